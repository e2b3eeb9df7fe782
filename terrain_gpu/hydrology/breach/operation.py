"""Least-cost breaching as an operation: `breach`.

1. *Voids*, if there are any that matter: which of them reach the edge of the raster.
2. *Pits*: the pits and outlets of each block go to a file; flats at rims are joined in memory.
3. *Breach*: each block is read with so many rings that it can be computed on its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, height
from ...cells import differences, is_nodata, to_json
from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...grid import Block, BlockGrid, units
from ...grid.lengths import Measured, area_units
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.lines import checked_target
from ...progress import Progress, silent
from ...store import TileStore
from ..common.outlets import BORDER, EDGE, Outlets, has_voids
from ..common.rims import BlockRim
from ..common.voids import Voids, label_voids, outside, voids_bytes
from .kernels import breach_all, new_search
from .pits import BlockFiles, LowRims, find_pits, low_bytes
from .proof import plan_breach_proof, verify_breach
from .rule import NO_VALUE, PIT, PLAIN, BreachRule, reach_of

LAYER = "breached"
MAX_DISTANCE = 50


@dataclass(frozen=True)
class Breach(Operation):
    """The operation; fields are parameters of `breach`."""

    store: str
    outlets: str = EDGE
    layer: str = "elevation"
    into: str = LAYER
    max_distance: int = MAX_DISTANCE
    max_depth: float | None = None

    command = "breach"
    mark = "breach_of"

    @property
    def halo(self) -> int:  # type: ignore[override]
        return 2 * self.reach

    @property
    def reach(self) -> int:
        return reach_of(self.grid.shape, self.max_distance)

    @property
    def phases(self) -> tuple[Phase, ...]:
        solved = Phase("pits", joined="flats"), Phase("breach", writes=True)
        return (Phase("voids", joined="outside"), *solved) if self.has_voids else solved

    @property
    def has_voids(self) -> bool:
        return has_voids(self.outlets, self.layers[0])

    @property
    def proof_passes(self) -> int:  # type: ignore[override]
        return 2 + self.has_voids

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[0]
        like = heights.dtype, heights.nodata, "breached heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",)

    def settings(self) -> dict[str, Any]:
        return {
            "breach_of": self.layer,
            "outlets": self.outlets,
            "max_distance": self.max_distance,
            "max_depth": self.max_depth,
        }

    @cached_property
    def rule(self) -> BreachRule:
        return BreachRule(self.layers[0], self.max_distance, self.max_depth)

    def plan(self, machine: Machine) -> StreamPlan:
        layer = self.layers[0]
        return plan_breach(
            *self.grid.shape,
            layer.dtype,
            layer.block_size,
            max_distance=self.max_distance,
            voids=self.has_voids,
            machine=machine,
        )

    @cached_property
    def areas(self) -> tuple[np.ndarray, float]:
        return area_units(self.grid)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.fingerprint()).encode()).hexdigest()[:16]

    def files(self, folder: Path) -> BlockFiles:
        return BlockFiles(folder / f"breach-{self.digest}")

    def new_work(self) -> Any:
        return new_search(self.reach)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        compile_kernels(self.layers[0].dtype, self.rule)
        files = self.files(spill)
        files.folder.mkdir(parents=True, exist_ok=True)
        return BreachState(self, files)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        heights = cells[0]
        if phase.writes:
            return self._breached(at, heights, out[0], given, work)
        near = self.halo - 1
        rows, cols = heights.shape
        heights = np.ascontiguousarray(heights[near : rows - near, near : cols - near])
        valid = self._valid(at, heights, 1)
        inner = np.ascontiguousarray(valid[1:-1, 1:-1])
        if phase.name == "voids":
            return SolvedBlock(known=None if inner.all() else BlockRim.of(label_voids(~inner)[0]))
        window = self.blocks.window(*at)
        outer = None if given is None else outside(~inner, given)
        outlets = Outlets(self.outlets).within(window, valid, outer).cells
        cols = self.grid.cols
        pits, rim = find_pits(heights, valid, outlets, window[0] * cols + window[2], cols)
        return SolvedBlock(known=(pits, outlets, rim))

    def _valid(self, at: Block, heights: np.ndarray, ring: int) -> np.ndarray:
        """Which cells of a block and its rings have a value; none outside of the raster."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        valid = ~is_nodata(heights, self.layers[0].nodata)
        valid[: max(ring - r0, 0)] = valid[:, : max(ring - c0, 0)] = False
        valid[len(valid) - max(r1 + ring - self.grid.rows, 0) :] = False
        valid[:, valid.shape[1] - max(c1 + ring - self.grid.cols, 0) :] = False
        return valid

    def _breached(
        self, at: Block, heights: np.ndarray, out: np.ndarray, given: Any, work: Any
    ) -> SolvedBlock:
        ring, rule, r0 = self.halo, self.rule, self.blocks.window(*at)[0]
        kinds = self.kinds(at, heights, given)
        before = heights[ring:-ring, ring:-ring]
        out[...] = before
        how = rule.reach, rule.per_unit, rule.deepest
        pits, breached = breach_all(heights, kinds, *how, work, out)
        lowered = np.flatnonzero((out < before).any(axis=1))
        cells, cut, volume = 0, 0.0, 0
        for row in lowered.tolist():
            where = out[row] < before[row]
            high, low = before[row][where], out[row][where]
            cells += len(high)
            with np.errstate(over="ignore"):  # of cuts that no float holds
                cut = max(cut, float(differences(high, low).max()))
            volume += int(rule.units(high, low).sum()) * int(self.areas[0][r0 + row])
        counts = {"pits": pits, "breached": breached, "lowered": cells, "cut": cut}
        return SolvedBlock((out,), {**counts, "volume": volume})

    def kinds(self, at: Block, heights: np.ndarray, given: Any) -> np.ndarray:
        """Kinds of the cells of a block and its rings; pits not in the outer rings."""
        files, over_blocks = given
        r0, _, c0, _ = self.blocks.window(*at)
        corner = r0 - self.halo, c0 - self.halo
        valid = self._valid(at, heights, self.halo)
        kinds = np.where(valid, np.uint8(PLAIN), np.uint8(NO_VALUE))
        files.mark(kinds, self.blocks, corner, self.reach)
        row, col = np.divmod(over_blocks, self.grid.cols)
        kinds[row - corner[0], col - corner[1]] = PIT
        return kinds

    def keep(self, phase: Phase, at: Block, known: Any, folder: Path | None) -> Any:
        assert folder is not None
        if phase.writes:
            self.files(folder).save_counts(at, known)
            return None
        if phase.name == "pits":
            pits, outlets, rim = known
            self.files(folder).save_marks(at, pits, outlets)
            return rim
        return known

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_breach_proof(self.layers[0], self.outputs[0], self.rule, limits, voids=self.has_voids)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        layers = self.layers[0], run.layer(self.into)
        verify_breach(*layers, self.rule, self.outlets, found, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class BreachState(State):
    """Voids, then flats at the rims of all blocks; then the counts of blocks, in files."""

    def __init__(self, operation: Breach, files: BlockFiles) -> None:
        self._operation, self._files = operation, files
        blocks = operation.blocks
        self._voids = Voids(blocks) if operation.has_voids else None
        self._low = LowRims(blocks, operation.layers[0].dtype)

    def given(self, phase: Phase, at: Block) -> Any:
        if not phase.joined:
            reach = self._operation.halo - self._operation.reach
            r0, r1, c0, c1 = self._operation.blocks.window(*at)
            around = max(r0 - reach, 0), r1 + reach, c0 - reach, c1 + reach
            return self._files, self._low.within(around)
        known = phase.name == "pits" and self._voids is not None
        return self._voids.of(at) if known and self._voids is not None else None

    def finished(self, phase: Phase, at: Block, written: bool) -> bool:
        return phase.writes and written and self._files.has_counts(at)

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        if phase.name == "voids" and self._voids is not None:
            self._voids.add(at, known)
        elif phase.name == "pits":
            self._low.add(at, known)

    def join(self, phase: Phase) -> None:
        if phase.name == "voids" and self._voids is not None:
            self._voids.join()
        else:
            self._low.join()

    def found(self) -> dict[str, Any]:
        blocks, each = self._operation.blocks, ("pits", "breached", "lowered", "volume")
        total, cut = dict.fromkeys(each, 0), 0.0
        for at in blocks.ids():
            counts = self._files.counts(at)
            total = {key: total[key] + counts[key] for key in each}
            cut = max(cut, counts["cut"])
        units = self._operation.areas[1] / self._operation.rule.per_unit
        return {**total, "deepest_cut": to_json(cut), "volume": to_json(total["volume"] * units)}


def compile_kernels(dtype: np.dtype, rule: BreachRule) -> None:
    """Load or compile the kernels, in the main thread, which Ctrl-C stops."""
    if not known_types(breach_all):
        tell_compiling(breach_all, "breach")
    heights, valid = np.zeros((3, 3), dtype), np.ones((3, 3), bool)
    find_pits(heights, valid, np.empty(0, np.int32), 0, 1)
    blocks = BlockGrid(1, 1, 64)
    rims = LowRims(blocks, dtype)
    rims.join()
    kinds = np.full((5, 5), PLAIN, np.uint8)
    breach_all(
        np.zeros((5, 5), dtype),
        kinds,
        1,
        rule.per_unit,
        rule.deepest,
        new_search(1),
        heights[:1, :1],
    )


def plan_breach(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    max_distance: int = MAX_DISTANCE,
    voids: bool = False,
    beside: int | None = None,
    machine: Machine,
) -> StreamPlan:
    """Plan `breach` for a layer of this shape, type and block size.

    Parameters
    ----------
    beside
        Of its lines: bytes that writing needs. None for the layer.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    blocks = BlockGrid(rows, cols, block)
    cells, tiled = blocks.largest(1), blocks.largest(tiled=True)
    lines = beside is not None
    reach = reach_of((rows, cols), max_distance)
    ring = blocks.largest(reach if lines else 2 * reach)
    held = low_bytes(blocks, dtype.itemsize) + voids * voids_bytes(blocks) // 24
    held += lines * 16 * rows * blocks.shape[1]  # lines and steps of each row of each block
    return fit_blocks(
        blocks,
        dtype.name,
        "to breach",
        buffer=(ring + blocks.largest()) * dtype.itemsize,
        # Masks of the rings; the search; low cells, labels, lists of pits and outlets as numbers
        # and bytes.
        worker=4 * ring + 29 * (2 * reach + 1) ** 2 + cells * (40 + dtype.itemsize),
        scratch=(ring + 2 * tiled) * dtype.itemsize,
        common=PER_ROW * rows,
        held=held,
        joined=held + max(voids * voids_bytes(blocks), beside or 0),
        passes=2 + voids,
        bytes_read=(2 + voids) * layer_bytes(rows, cols, dtype.itemsize, block),
        bytes_written=layer_bytes(rows, cols, dtype.itemsize, block),
        machine=machine,
    )


@takes_dataarrays
@checked(max_depth=height)
def breach(
    store: StoreLike,
    *,
    max_distance: int = MAX_DISTANCE,
    max_depth: float | None = None,
    inner_voids: bool = False,
    layer: str = "elevation",
    into: str = LAYER,
    lines: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Breach depressions: cut a channel from each pit along the least-cost way to a lower cell.

    A pit is a cell, or a flat, without a lower neighbour and without an outlet. Outlets are the
    cells at the raster's edge and beside voids that reach it. The way leads from the pit (the first
    cell of a flat) to a lower cell or an outlet, and all higher cells on it are lowered to the
    height of the pit. It is the one with the least sum of cuts; of several, one with the fewest
    steps. All ways are found on the heights as they are; where they meet, the lowest cut counts.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    max_distance
        How many rows and columns a way may lead away from its pit.
    max_depth
        The deepest cut, in the unit of the heights; no limit when None. Other pits remain.
    inner_voids
        Whether cells beside voids that do not reach the raster's edge are outlets, too.
    layer
        Layer of heights.
    into
        Layer to write, of the type of the heights, with the nodata value of these.
    lines
        File for the ways as lines: .geojson, .json, .parquet (GeoParquet), .fgb or .gpkg (layer
        "breach_lines"). None: no file.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process, which draws the lines in any case.
    verify
        Verify the layer in two more passes over the cells, three where there are voids.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and the cells of all passes.

    Returns
    -------
    Result
        Its `layers` are named `into`; `found` has the numbers of "pits", of those "breached" and of
        cells "lowered", the "deepest_cut", and the "volume" of all cuts: heights times areas, which
        are in square metres in a geographic CRS.

    Raises
    ------
    InputError
        when a name, the distance or the depth cannot be used, or lines cannot be written there.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks the layer, or already has such a result.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    A line leads from a pit to the end of its way, in the order of pits, row by row. Its attributes
    are pit and end, ids (row * columns + column) of these cells; the number of its cells; its
    length, in map units, or in metres for a geographic CRS; cost, the sum of all cuts below the
    heights as they were, and the largest cut; height and end_height, those of the pit and, before
    it is cut, of the end.

    J. B. Lindsay (2016), Efficient hybrid breaching-filling sink removal methods for flow path
    enforcement in digital elevation models; Hydrological Processes 30. J. B. Lindsay and K. Dhun
    (2015), Modelling surface drainage patterns in altered landscapes using LiDAR; International
    Journal of Geographical Information Science 29.

    Examples
    --------
    >>> breach("dem.zarr", max_depth=5)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="breached")
    """
    opened = opened_store(store)
    limits = max_distance, max_depth
    operation = breaching_of(opened, *limits, inner_voids=inner_voids, layer=layer, into=into)
    how: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "overwrite": overwrite}
    again: dict[str, Any] = {"resume": resume, "verify": verify, "client": client}
    again["compress"] = compress
    if lines is None:
        return run(operation, place=Here(progress), **how, **again)
    from .lines import both, lines_of

    checked_target(lines, overwrite=overwrite)
    drawn = lines_of(operation, str(lines))
    drawn.plan(Machine.of(memory_limit, threads))  # before heights are there without the lines
    passes = operation.passes + drawn.passes + operation.proof_passes * verify

    def counted(cells: int, total: int) -> None:
        progress(cells, opened.grid.cells * passes)

    found = run(operation, place=Here(counted), **how, **again)
    return both(found, run(drawn, place=Here(counted), **how), str(lines))


def breaching_of(
    store: TileStore,
    max_distance: int = MAX_DISTANCE,
    max_depth: float | None = None,
    *,
    inner_voids: bool = False,
    layer: str = "elevation",
    into: str = LAYER,
) -> Breach:
    """The operation of the arguments of `breach`."""
    depth = None if max_depth is None else float(max_depth)
    outlets = BORDER if inner_voids else EDGE
    return Breach(str(store.path), outlets, layer, into, max_distance, depth)
