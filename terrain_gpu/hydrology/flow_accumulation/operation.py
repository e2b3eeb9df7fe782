"""Flow accumulation along given directions: `flow_accumulation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import Backend, FlowMethod, LayerCompression, UpstreamStatistic, checked, word
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, State
from ...engine.plan import PER_ROW, StreamPlan
from ...engine.proof import Limits
from ...engine.run import Result, Run, run
from ...errors import ArgumentError
from ...grid import BlockGrid
from ...grid.lengths import Measured
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Inflows
from ..along_flow.kernels import TAKE
from ..along_flow.operation import AlongFlow, plan_flow
from ..common.backend import placed, refuse_cuda
from ..common.codes import DIRECTIONS, NOWHERE, open_directions
from ..common.sums import EDGE_LAYER, EdgeRule, SumRule, count_dtype, edge_dtype
from ..common.weights import Rule, WeightRule, described_sums, refuse_rule, rule_of
from ..completing import completed
from ..divided_flow.division import EXPONENTS
from ..divided_flow.surface import open_surface
from .divided import MultipleFlow
from .proof import plan_sums, verify_sums

LAYER = "flow_accumulation"


@dataclass(frozen=True)
class FlowAccumulation(AlongFlow):
    """The operation; fields are parameters of `flow_accumulation`."""

    store: str
    directions: str = DIRECTIONS
    areas: bool = False
    exclude_self: bool = False
    into: str = LAYER
    weights: str | None = None
    statistic: str = "sum"
    edge_cells: bool = False

    command = "flow-accumulation"
    mark = "accumulation_of"
    proof_passes = 2

    @property
    def worker_bytes(self) -> int:
        plain = isinstance(self.rule, SumRule)
        return 8 if plain else 40 + 24 * self.rule.columns

    @property
    def entry_more(self) -> int:  # type: ignore[override]
        return 32 * (self.rule.columns - 1)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.directions,) if self.weights is None else (self.directions, self.weights)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        like = self.rule.dtype, self.rule.nodata, "flow accumulation"
        weights = None if self.weights is None else self.layers[1]
        described = described_sums(self.grid, weights, self.statistic, self.areas)
        return (OutputLayer(self.into, *like, described=described),)

    @property
    def row_bytes(self) -> int:
        return PER_ROW if self.areas or self.weights is not None else 16

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",) if self.areas else ()

    def settings(self) -> dict[str, Any]:
        if self.edge_cells:
            return {"accumulation_of": self.directions, "edge_cells": True}
        weighted = {"weights": self.weights, "statistic": self.statistic}
        return {
            "accumulation_of": self.directions,
            "areas": self.areas,
            "exclude_self": self.exclude_self,
            **(weighted if self.weights is not None else {}),
        }

    @cached_property
    def rule(self) -> Rule:
        if self.edge_cells:
            return EdgeRule.of(self.grid)
        weights = None if self.weights is None else self.layers[1]
        return rule_of(self.grid, weights, self.statistic, self.areas, self.exclude_self)

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from ..along_flow.gpu import plan_along

        return plan_along(self, machine)

    def execute(self, run: Run) -> dict[str, Any]:
        if run.gpu is None:
            return super().execute(run)
        from ..along_flow.gpu import accumulate

        return accumulate(self, run)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return Inflows(self, plan, self.rule)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[Any, ...]:
        without, drained = self._drained(block, cells)
        into, ring = block.entries, block.ring
        left = np.array([sums.ravel()[ring] for sums in drained], np.int64)
        leaving = (left != self.rule.empty).any(axis=0)
        exits = block.follow(into, TAKE, drained[0])
        ways = block.globally(into), block.globally(exits)
        return *ways, block.globally(ring[leaving]), left[:, leaving], without

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> None:
        _, drained = self._drained(block, cells, given)
        values = [one[1:-1, 1:-1] for one in drained]
        self.rule.write(block.window, *self._inner(block, cells), values, out[0])

    def _drained(
        self, block: FlowBlock, cells: list[np.ndarray], inflow: Any = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Numbers of cells; and what drains through each, of the ring, drains there.

        They are those of cells without a weight, and those of `WeightRule.few_units`.
        """
        rule, (codes, weights) = self.rule, self._inner(block, cells)
        known, columns = rule.own(block.window, codes, weights)
        join = np.add if rule.adds else np.maximum
        drained = []
        for k, own in enumerate(columns):
            sums = np.empty(block.codes.shape, np.int64) if k else block.array(rule.sums_dtype)
            sums[[0, -1]] = sums[:, [0, -1]] = rule.empty
            sums[1:-1, 1:-1] = own
            if inflow is not None:
                flat, at = sums.ravel(), block.locally(inflow[0])
                flat[at] = join(flat[at], inflow[1 + k])
            block.pass_on(sums, rule.adds)
            drained.append(sums)
        counts = np.zeros(3, np.int64)
        if rule.weights is not None and inflow is None:
            counts[0] = np.count_nonzero(codes != NOWHERE) - np.count_nonzero(known)
            if isinstance(rule, WeightRule):
                counts[1:] = rule.few_units(weights, known, columns[0])
        return counts, drained

    def _inner(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, Any]:
        """Directions of the block without its ring, and weights, or which cells are on the edge."""
        weights = block.edge if self.edge_cells else cells[0][1:-1, 1:-1] if cells else None
        return block.codes[1:-1, 1:-1], weights

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_sums(self.blocks, self.layers[0], self.outputs[0], limits, self.rule)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        result = run.layer(self.into)
        verify_sums(self.layers[0], result, self.rule, run.proof_limits, found)
        return {"verified_cells": self.grid.cells}


def plan_upstream(
    blocks: BlockGrid,
    *,
    weights: np.dtype | None = None,
    statistic: str = "sum",
    areas: bool = False,
    exclude_self: bool = False,
    edge_cells: bool = False,
    **limits: Any,
) -> StreamPlan:
    """Plan `flow_accumulation` along D8 directions, with weights of a type.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    written, cells = count_dtype(blocks.rows * blocks.cols), blocks.rows * blocks.cols
    if edge_cells:
        written = edge_dtype(cells)
    elif weights is not None and statistic in ("max", "min"):
        written = weights
    elif areas or exclude_self or (weights is not None and statistic != "below"):
        written = np.dtype(np.int64)  # or float64
    plain, columns = weights is None and not edge_cells, 1 + (statistic in ("mean", "below"))
    return plan_flow(
        blocks,
        FlowAccumulation.command,
        [1] if weights is None else [1, weights.itemsize],
        [written.itemsize],
        worker=8 if plain else 40 + 24 * columns,
        entry_more=32 * (columns - 1),
        row_bytes=PER_ROW if areas or weights is not None else 16,
        **limits,
    )


def refuse_arguments(settings: Mapping[str, Any]) -> None:
    """Refuse arguments of `flow_accumulation` that contradict each other.

    Raises
    ------
    InputError
    """
    method, exponent, statistic = (settings[key] for key in ("method", "exponent", "statistic"))
    weights, edge_cells = settings["weights"], settings["edge_cells"]
    if exponent is not None and method not in EXPONENTS:
        raise ArgumentError(
            "{exponent} {value}: leave it out, {method} takes no power of slopes",
            value=exponent,
            method=method,
        )
    others = weights is not None or settings["areas"] or settings["exclude_self"]
    if edge_cells and (method != "d8" or statistic != "sum" or others):
        raise ArgumentError(
            "{edge_cells} counts cells along D8 directions; it cannot be combined with another "
            "{method}, {weights}, a {statistic}, {areas} or {exclude_self}"
        )
    refuse_cuda(settings["backend"], only_on_cpu(method, weights, edge_cells))
    if method != "d8" and statistic != "sum":
        raise ArgumentError(
            "{statistic} {value}: give {method} d8, others sum only", value=repr(statistic)
        )
    refuse_rule(weights, statistic, settings["areas"], settings["exclude_self"])


def only_on_cpu(method: str, weights: str | None, edge_cells: bool) -> str | None:
    """Return what of this runs on the CPU alone, see `placed`."""
    if method != "d8":
        return f"method {method} runs"
    if edge_cells:
        return "counts of edge cells run"
    return None if weights is None else "sums of weights run"


@takes_dataarrays
@checked(refuse_arguments, method=word(FlowMethod))
@completed(reads=("directions", "filled", "weights"), writes=("into",))
def flow_accumulation(
    store: StoreLike,
    *,
    directions: str = DIRECTIONS,
    method: FlowMethod = "d8",
    exponent: float | None = None,
    filled: str = "filled",
    areas: bool = False,
    exclude_self: bool = False,
    weights: str | None = None,
    statistic: UpstreamStatistic = "sum",
    edge_cells: bool = False,
    into: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Count the cells, or sum areas or weights, that drain through each cell.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Missing layers of default names that it needs
        are computed: "mst", "flow_direction" and "filled".
    directions
        Layer of flow directions, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at
        outlets, 255 (or the layer's nodata) at cells that do not drain. Ways also end where the
        next cell does not drain, or lies outside the raster. For other methods than "d8", as
        `flow_direction` made it.
    method
        How cells divide what drains through them: "d8", not at all; "dinf", between the two
        neighbours on both sides of the steepest descent over triangular facets (D-infinity); "mfd",
        among all lower neighbours by their slopes; "quinn", by slopes and the lengths of contours.
        Cells without lower neighbours, and those under water, follow the directions.
    exponent
        Of slopes. None for 1.1 ("mfd") or 1 ("quinn").
    filled
        For other methods than "d8": layer of heights, as `fill` made it for the outlets of the
        directions.
    areas
        Sum areas (map units squared, or square metres for a geographic CRS) instead of cells; or
        weights times areas.
    exclude_self
        Leave out the cell itself: 0 at cells into which nothing drains. Not for extremes and
        "below".
    weights
        Layer of values to sum over all cells upstream, such as rain or runoff; they may be
        negative. Cells without one count nothing.
    statistic
        "sum", or of `weights` also "mean", "max" or "min", all over the cells upstream and the cell
        itself. The minimum of elevations is the carved DEM: no cell is higher than what drains
        into it. "below": cells, or areas, at and below the cells of which the weight is neither 0
        nor nodata, and 0 elsewhere. Streams of these sums begin at such cells.
    edge_cells
        Instead, count the cells upstream, and the cell itself, that lie on the edge of the data (at
        the raster's edge or next to nodata) and drain inwards. Where there are any, water may come
        in from beyond the edge, and sums may be too small (edge contamination). Only for "d8",
        without weights, `areas` and `exclude_self`.
    into
        Layer to write; None for "flow_accumulation", with weights "upstream_sum", "upstream_mean"
        and so on, and "upstream_edge_cells". Cells are uint32 (int64 for rasters of 2^32 cells or
        more, and with `exclude_self`), areas float64; those that do not drain are nodata, 0, or -1
        with `exclude_self`; so are those "below". Sums and means of weights: float64, nodata NaN.
        Extremes: the type and nodata value of the weights; cells that do not drain keep their
        values. Edge cells are int32 (int64 for rasters of 2^31 cells or more), nodata is -1.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory; for D8 without
        weights and `edge_cells`. The results have the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory in bytes; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of both passes.

    Returns
    -------
    Result
        Its `layers` are named `into`. With weights, `found` has "without_weight", the number of
        cells that drain and have none.

    Raises
    ------
    InputError
        when a name cannot be used, options exclude each other, or a weight is infinite.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or has no such directions, when they lead round in a circle, or
        when the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    Sums are sums of integers, so they do not depend on the blocks; see `area_units`. Weights are
    rounded to a power of two, 2^-62 to 2^-60 of the largest size of a weight times the number N of
    cells of the raster. So a sum of n weights errs by at most n N 2^-61 of the largest, besides the
    rounding to float64. Integers of which N times the largest is below 2^62 are summed exactly.

    Where cells divide what drains through them, sums are float64. Units are a power of two, 2^-50
    to 2^-49 of the largest sum possible, and a cell rounds what each neighbour receives to whole
    units; the neighbour with the largest part gets what remains, so nothing is lost. Powers and
    angles do not depend on the machine.

    D-infinity: D. Tarboton 1997, Water Resources Research 33. Multiple flow directions: T. Freeman
    1991, Computers & Geosciences 17; P. Quinn and others 1991, Hydrological Processes 5.

    Examples
    --------
    >>> found = flow_accumulation("dem.zarr", areas=True)
    >>> areas = found.layers["flow_accumulation"].read_window(0, 100, 0, 100)
    """
    opened = opened_store(store)
    if into is None:
        into = LAYER if weights is None else f"upstream_{statistic}"
        into = EDGE_LAYER if edge_cells else into
    operation: FlowAccumulation | MultipleFlow
    why = only_on_cpu(method, weights, edge_cells)
    if method == "d8":
        open_directions(opened, directions)
        names = directions, areas, exclude_self, into, weights, statistic, edge_cells
        operation = FlowAccumulation(str(opened.path), *names)
    else:
        open_surface(opened, filled, directions)
        exponent = EXPONENTS.get(method, 1.0) if exponent is None else exponent
        how = method, exponent, filled, directions, areas, exclude_self, into, weights
        operation = MultipleFlow(str(opened.path), *how)
    where = backend, device, gpu_memory_limit, memory_limit, client, progress, why
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=placed(operation.blocks.block, *where),
        client=client,
    )
