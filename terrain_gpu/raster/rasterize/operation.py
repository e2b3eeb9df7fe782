"""Features of vector files as a layer, such as rivers as barriers: `rasterize`."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, real_or_word, refused
from ...cells import exact, fits
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...errors import ArgumentError, InputError
from ...grid import Block, BlockGrid, cells_in
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.places import Places, PlacesLike, as_places
from ...io.settling import Ground
from ...progress import Progress, silent
from ...store import Layer
from .changes import Changes, changes
from .proof import plan_rasterized_proof, verify_rasterized

log = logging.getLogger(__name__)

LAYER = "rasterized"


@dataclass(frozen=True)
class Rasterize(Operation):
    """The operation.

    Attributes
    ----------
    digest
        Of cells and values.
    like
        A layer whose blocks the result has.
    onto
        The layer whose cells are kept elsewhere; zeros when None.
    real
        Whether the result is float64 if there is no `onto`; else uint8.
    cells, values
        int64 ids of cells, sorted, and float64 values; NaN is no value.
    """

    store: str
    digest: str
    like: str
    onto: str | None = None
    into: str = LAYER
    real: bool = False
    cells: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False, repr=False
    )
    values: np.ndarray = field(default_factory=lambda: np.empty(0), compare=False, repr=False)

    command = "rasterize"
    mark = "features"
    phases = (Phase("rasterize", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.onto or self.like,)

    @property
    def source(self) -> Layer | None:
        return None if self.onto is None else self.layers[0]

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        source = self.source
        dtype, nodata = np.dtype("<f8" if self.real else "u1"), None
        if source is not None:
            dtype, nodata = source.dtype, source.nodata
        return (OutputLayer(self.into, dtype, nodata, "rasterized features"),)

    def identity(self) -> dict[str, str]:
        return {} if self.onto is None else super().identity()

    def settings(self) -> dict[str, Any]:
        return {"features": self.digest, "onto": self.onto}

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_rasterize(
            self.blocks,
            self.layers[0].dtype,
            self.outputs[0].dtype,
            onto=self.onto is not None,
            cells=len(self.cells),
            machine=machine,
        )

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        if self.onto is not None:
            return super().read(at, buffer)
        r0, r1, c0, c1 = self.window(at)
        shape = r1 - r0, c1 - c0
        return [flat[: shape[0] * shape[1]].reshape(shape) for flat in buffer]

    def begin(self, plan: StreamPlan, spill: Any) -> State:
        return _Changed(self)

    def given(self, at: Block) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the given cells of a block, and what they become."""
        here = cells_in(self.blocks.window(*at), self.cells, self.grid.cols)
        values, output = self.values[here], self.outputs[0]
        if (void := np.isnan(values)).any():
            values = np.where(void, 0 if output.nodata is None else output.nodata, values)
        return self.cells[here], values.astype(output.dtype)

    def changes(self, at: Block, before: np.ndarray) -> Changes:
        """What changes in a block."""
        (r0, _, c0, _), (ids, values) = self.blocks.window(*at), self.given(at)
        row, col = np.divmod(ids, self.grid.cols)
        return changes(ids, before[row - r0, col - c0].astype(values.dtype), values)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        (r0, _, c0, _), (ids, values) = self.blocks.window(*at), self.given(at)
        row, col = np.divmod(ids, self.grid.cols)
        out[0][...] = 0 if self.onto is None else cells[0]
        made = self.changes(at, out[0])
        out[0][row - r0, col - c0] = values
        return SolvedBlock(tuple(out), made)

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_rasterized_proof(self.blocks, self.source, self.outputs[0], limits)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        expected = Changes(found["changed"], int(found["digest"], 16))
        made = run.layer(self.into)
        proven = verify_rasterized(self.source, made, expected, run.proof_limits)
        return {"verified_cells": proven["changed"]}


def plan_rasterize(
    blocks: BlockGrid,
    kind: np.dtype,
    target: np.dtype,
    *,
    onto: bool,
    cells: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan `rasterize` of so many cells, beside a layer of type `kind`, into one of type `target`.

    Parameters
    ----------
    onto
        Whether the layer is read, because its cells are kept.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    size, both = blocks.largest(), kind.itemsize + target.itemsize
    whole = layer_bytes(blocks.rows, blocks.cols, target.itemsize, blocks.block)
    return fit_blocks(
        blocks,
        target.name,
        "to rasterize features into",
        buffer=size * both,
        worker=40 * min(cells, size),
        scratch=blocks.largest(tiled=True) * both,
        compiled=False,
        held=16 * cells + 250 * blocks.count,
        bytes_read=whole if onto else 0,
        bytes_written=whole,
        machine=machine,
    )


class _Changed(State):
    """What changes, also in blocks that an earlier run has written."""

    def __init__(self, operation: Rasterize) -> None:
        self._operation = operation
        self._changes: dict[Block, Changes] = {}

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        self._changes[at] = Changes(*known)

    def found(self) -> dict[str, Any]:
        operation, total = self._operation, Changes()
        for at in operation.blocks.ids():
            if (mine := self._changes.get(at)) is None:
                mine = self._before(at)
            total = total.plus(mine)
        covered = len(operation.cells)
        return {"covered": covered, "changed": total.cells, "digest": f"{total.digest:016x}"}

    def _before(self, at: Block) -> Changes:
        operation = self._operation
        if not len(operation.given(at)[0]):
            return Changes()
        if operation.source is not None:
            return operation.changes(at, operation.source.read_block(*at))
        r0, r1, c0, c1 = operation.blocks.window(*at)
        return operation.changes(at, np.zeros((r1 - r0, c1 - c0), operation.outputs[0].dtype))


@takes_dataarrays
@checked(features=lambda name, value: value, value=real_or_word("nodata"))
def rasterize(
    store: StoreLike,
    features: PlacesLike,
    *,
    value: float | str | None = None,
    onto: str | None = None,
    into: str = LAYER,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Write the cells of features into a layer, such as rivers as barriers.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    features
        Cells, in the forms that `shortest_paths` accepts as sources; ``io.places.from_vector`` with
        `all_touched` finds those of lines and polygons.
    value
        What these cells become; "nodata" for no value. When None, the start costs of `features`,
        such as the field that ``from_vector(cost_field=...)`` has read; of several features in a
        cell, the last one's.
    onto
        Layer whose cells are kept elsewhere, and whose type and nodata value the result has. When
        None, other cells are 0, and the type is uint8 if that holds all values, else float64.
    into
        Layer to write.
    layer
        Layer whose blocks the result has without `onto`.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Compare every cell with what it was, and the changed ones with the features.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells.

    Returns
    -------
    Result
        Its layer is named `into`; `found` has the number of cells "covered", how many of them
        are "changed", and their "digest".

    Raises
    ------
    InputError
        when a name, the features or a value cannot be used, or the type of `onto` does not hold a
        value.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks the layer, or already has such a result.
    VerificationError
        when the proof fails; there is no result then.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    A line covers every cell that it touches (J. Amanatides and A. Woo, "A fast voxel traversal
    algorithm for ray tracing", Eurographics 1987). Where it passes exactly through a corner, only
    ``corner_cutting=False`` of `shortest_paths` keeps diagonal steps from crossing it.

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> rivers = from_vector(grid, "rivers.gpkg", all_touched=True, fields=False)
    >>> rasterize("dem.zarr", rivers, value=1, into="rivers")
    >>> shortest_paths("dem.zarr", [(0, 0)], barriers="rivers", corner_cutting=False)
    """
    opened = opened_store(store)
    places = as_places(opened.grid, features, "features")
    if not len(places):
        raise refused("features", ": there are no cells; give some")
    source = None if onto is None else opened.layer(onto)
    ids, values = _last(places, opened.grid.cols)
    if value is not None:
        if not isinstance(value, str) and not exact(value, values.dtype):
            raise refused("value", f" {value}: give a number that float64 holds exactly")
        values = np.full(len(ids), np.nan if value == "nodata" else value, np.float64)
        if value == "nodata" and (source is None or source.nodata is None):
            raise ArgumentError("{value} nodata: give {onto}, a layer that has a nodata value")
    elif source is None and not values.any():
        log.warning(
            "features: without value, cells become the start costs, and all of these are 0, as "
            "other cells are; give value=1, or read a field with from_vector(cost_field=...)"
        )
    real = not all(fits(one, np.dtype(np.uint8)) for one in np.unique(values).tolist())
    if source is not None:
        for one in np.unique(values[~np.isnan(values)]).tolist():
            if value is None and source.dtype.kind != "f" and one >= 2**53:
                raise refused(
                    "features",
                    f": value {one:.15g}: fields are read as float64, which does not hold all "
                    "integers from 2^53 on; give smaller values, or features of one value and "
                    "{value}",
                )
            if not fits(one, source.dtype) or source.dtype.type(one) == source.nodata:
                raise InputError(
                    f"value {one:.15g}: {source.path} is {source.dtype.name} with nodata "
                    f"{source.nodata}, which does not hold it as a value"
                )
    digest = hashlib.sha256(ids.astype("<i8").tobytes() + values.astype("<f8").tobytes())
    found = Rasterize(
        *(str(opened.path), digest.hexdigest(), layer, onto, into, real), cells=ids, values=values
    )
    return run(
        found,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )


def open_corner(places: Places, heights: Layer) -> tuple[int, int] | None:
    """The first cell that touches one of the next row only at a corner, where paths may slip by.

    Both other cells at the corner have heights.
    """
    ground, width = Ground([heights]), heights.grid.cols + 2  # no cell is beside one of another row
    keys = np.unique(places.rows * width + places.cols + 1)

    def marked(cells: np.ndarray) -> np.ndarray:
        return np.isin(cells, keys)

    below = keys + width
    touching = np.zeros(len(keys), bool)
    for side in (-1, 1):
        open_ = marked(below + side) & ~marked(below) & ~marked(keys + side)
        if open_.any():
            rows, cols = np.divmod(keys[open_], width)
            slips = ground.usable(rows + 1, cols - 1) & ground.usable(rows, cols - 1 + side)
            touching[open_] |= slips
    if not touching.any():
        return None
    row, col = divmod(int(keys[touching.argmax()]), width)
    return row, col - 1


def _last(places: Places, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted ids of the cells, and the cost of the last of the features that were given in each."""
    ids = places.rows * cols + places.cols
    given = np.zeros(len(ids), np.int64) if places.given is None else places.given
    order = np.lexsort((given, ids))
    ids, costs = ids[order], places.costs[order]
    last = np.append(np.diff(ids) != 0, True)
    return ids[last], costs[last]
