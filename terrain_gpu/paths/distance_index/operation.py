"""The operation that builds the distance index of a store: `DistanceIndex`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...cuda.backend import Gpu
from ...cuda.device import memory_bound
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB, Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, format_size
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import PlanError
from ...facts import Findings, Settings
from ...grid import TILE, Block, ceil_div
from ...io.places import NO_PLACES
from ...store.objects import is_url, named
from ..cost.edges import joining
from ..cost.fields import Field
from ..cost.graph import CostGraph
from ..cost.models import CostModel
from ..cost.terrain import Terrain
from .files import NAME, Index, index_settings, new_index
from .levels import LevelSolver, level_bytes
from .packing import Packer
from .proof import plan_entries, verify_entries
from .rim import entries_of, rim_cells, rim_of, unit_of
from .tile import LANES, Entries, index_square, new_index_work
from .writer import OutputIndex


@dataclass(frozen=True)
class DistanceIndex(CostGraph):
    """The operation; its fields are the parameters of `build_index`."""

    command = "build-index"
    mark = "cost"
    tile: int = field(default=TILE, kw_only=True)
    levels: int = field(default=0, kw_only=True)
    method: str = field(default="relax", kw_only=True)
    gpu: ClassVar[Gpu | None] = None
    """The GPU that `new_work` computes on; None for the CPU."""
    tile_rows: ClassVar[int] = 0
    """Number of rows of tiles that the GPU solves at once."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("build", writes=True),)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputIndex(),)  # type: ignore[return-value]

    def settings(self) -> Settings:
        sizes = {"tile": self.tile, "levels": self.levels}
        return {**index_settings(self.model, self.steps, self.rasters), **sizes}

    def fingerprint(self) -> Settings:
        return self.settings()

    def recorded(self, attributes: Any) -> Findings:
        return self._sized(attributes["bytes"])

    def _sized(self, stored: int) -> Settings:
        return {"bytes": stored, "bytes_per_cell": round(stored / self.grid.cells, 2)}

    def new_index(self, path: Path) -> Index:
        """The index of this operation in a folder, which need not exist yet."""
        return new_index(path, self.blocks, self.model, self.heights.dtype, self.settings())

    @cached_property
    def index(self) -> Index:
        return self.new_index(named(self.store) / NAME)

    @cached_property
    def ground(self) -> Terrain:
        return Terrain(
            self.blocks,
            self.model,
            self.heights,
            self.rasters["friction"],
            self.rasters["barriers"],
            self.lengths,
            NO_PLACES,
            self.index.dtype,
        ).stepping(self.options, unit_of(self.tile))

    # -- memory ---------------------------------------------------------------------------------

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_index(
            self.index,
            self.heights.dtype,
            self.model,
            read=sum(layer.grid.cells * layer.dtype.itemsize for layer in self.layers),
            machine=machine,
            method=self.method,
        )

    # -- the phase ------------------------------------------------------------------------------

    # The solver reads the blocks itself, with one ring of cells and padded to whole tiles.

    def new_buffer(self) -> list[np.ndarray]:
        return []

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        return []

    def new_work(self) -> Any:
        packer = Packer(self.tile, self.index.symmetric, self.index.dtype)
        how = joining(self.model.kernel), self._nothing
        levels = [LevelSolver(self.index, k + 1, *how) for k in range(self.levels)]
        return self._new_solver(), packer, levels

    @property
    def _nothing(self) -> Any:
        """Distance of a cell from itself."""
        return self.index.dtype.type(-np.inf if self.model.kind.bottleneck else 0)

    def _new_solver(self) -> Any:
        how = self.ground, self.options, self.index, self._nothing
        if self.gpu is None:
            return EntrySolver(*how)
        import cupy

        from .gpu import GpuEntrySolver

        with cupy.cuda.Device(self.gpu.device):
            return GpuEntrySolver(*how, self.tile_rows, self.method)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        solver, packer, levels = self.new_work()
        solver.compile()
        for level in levels:
            level.compile()
        packer.pack(joining(self.model.kernel), np.zeros(self.index.entries(), self.index.dtype))
        return State()

    def execute(self, run: Run) -> Findings:
        if run.gpu is None:
            super().execute(run)
        else:
            on_gpu = copy(self)
            vars(on_gpu).update(gpu=run.gpu, tile_rows=ceil_div(run.plan.unit_rows, self.tile))
            with memory_bound(run.gpu.memory, run.gpu.device):
                replace(run, operation=on_gpu).map(self.phases[0], State())
        return self._sized(run.writers[NAME].stored_bytes)

    def plan_verify(self, machine: Machine) -> None:
        plan_entries(self.index, self.model, Limits(machine))

    def verify(self, run: Run, found: Findings) -> Findings:
        index, path = run.writers[NAME].index, named(self.store) / NAME
        proven = verify_entries(self.ground, self.options, index, path, run.proof_limits)
        return {"verified_entries": proven["entries"]}

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: object,
        work: Any,
    ) -> SolvedBlock:
        solver, packer, levels = work
        tiles = _Tiles(solver, packer, levels, joining(self.model.kernel), at)
        return SolvedBlock((tiles,))  # type: ignore[arg-type]


class _Tiles:
    """Packed tiles of a block by rows, then the squares of each level, solved lazily.

    Pickling solves all of them.
    """

    def __init__(
        self, solver: Any, packer: Packer, levels: list[LevelSolver], way: Any, at: Block
    ) -> None:
        self.solver, self.packer, self.levels = solver, packer, levels
        self.way, self.at = way, at

    def __iter__(self) -> Iterator[list[bytes]]:
        index, at = self.solver.index, self.at
        below: list[list[Entries]] = []
        across = index.tiles(at)[1]
        for row in self.solver.rows(at):
            packed = [self.packer.pack(self.way, entries) for entries in row[:across]]
            if self.levels:
                below.append([self.packer.links(tile) for tile in packed])
            yield packed
        for level, solver in enumerate(self.levels, 1):
            above = []
            down, across = index.tiles(at, level)
            for i in range(down):
                row = [solver.pack(_quarters(below, i, j)) for j in range(across)]
                above.append([entries for _, entries in row])
                yield [packed for packed, _ in row]
            below = above

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _quarters(below: list[list[Entries]], i: int, j: int) -> list[Entries | None]:
    """The four squares in that of row i and column j; None for one outside the raster."""
    return [
        below[y][x] if y < len(below) and x < len(below[y]) else None
        for y in (2 * i, 2 * i + 1)
        for x in (2 * j, 2 * j + 1)
    ]


class EntrySolver:
    """Computes the entries of blocks, one block at a time, in its own arrays."""

    def __init__(
        self, terrain: Terrain, options: tuple[bool, bool, bool], index: Index, nothing: Any
    ) -> None:
        self.terrain, self.options, self.index, self.nothing = terrain, options, index, nothing
        self._rim, self._unit = rim_of(index.tile), unit_of(index.tile)
        self._work = new_index_work(index.tile, index.dtype)
        shape = self._unit // index.tile, index.chunk()[1], index.entries()
        self._rows = np.empty(shape, index.dtype)

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Yield the entries of a block, one row of tiles at a time, in a buffer that is reused."""
        field = self.terrain.load(at)
        down, across = self.index.tiles(at)
        own = len(self._rows)
        for i in range(0, down, own):
            rows = self._rows[: down - i, :across]
            for j in range(0, across, own):
                self.solve(field, i // own, j // own, rows[:, j : j + own])
            yield from rows

    def solve(self, field: Field, i: int, j: int, entries: np.ndarray) -> None:
        """Compute the entries of the tiles in a square of a block."""
        index_square(
            self.terrain.model.kernel,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            i * self._unit,
            j * self._unit,
            self.options,
            self._rim,
            self.nothing,
            self.index.symmetric,
            self._work,
            entries,
        )

    def compile(self) -> None:
        """Compile in this thread, where Ctrl-C works; in a worker it would have to wait."""
        side = self._unit + 2
        heights, frictions = (np.zeros((side, side), dtype) for dtype in self.terrain.types)
        absent, lengths = np.ones((side, side), bool), np.ones((4, side))
        field = Field(heights, frictions, absent, lengths, None)  # type: ignore[arg-type]
        self.solve(field, 0, 0, self._rows[:, :1])


def plan_index(
    index: Index,
    dtype: np.dtype,
    model: CostModel,
    *,
    read: int,
    machine: Machine,
    method: str = "relax",
) -> StreamPlan:
    """Plan the build of an index that need not exist yet.

    Parameters
    ----------
    dtype
        Of the heights.
    read
        Total size of the layers that are read, in bytes.

    Raises
    ------
    PlanError
        when the memory limit is too small for one thread.
    """
    blocks, limit, rows = index.blocks, machine.memory_limit, index.blocks.block
    gpu = machine.gpu
    baseline = machine.baseline() if gpu is None else COMPILED_BASELINE + CUDA_BASELINE
    baseline += PER_ROW * blocks.rows
    one = _thread_bytes(index, model)
    most = min(machine.threads, blocks.count, (limit - baseline) // one)
    if most < 1:
        raise PlanError(
            f"a memory limit of {format_size(limit)} is too small to build a distance index in "
            f"blocks of {blocks.block}; give at least {ceil_div(baseline + one, MB)} MB"
            + (", or fewer --levels" if index.levels else "")
        )
    if gpu is not None:
        from .gpu import plan

        most, tile_rows = plan(index, most, gpu.memory, method)
        rows = tile_rows * index.tile
    found = StreamPlan.of_blocks(
        blocks,
        dtype.name,
        buffers=most,
        readers=1,
        workers=0,  # writers solve and write blocks, one row of tiles at a time
        writers=most,
        passes=1,
        memory=baseline + most * one,
        memory_limit=limit,
        bytes_read=read,
        bytes_written=blocks.count * index.file_bytes,
    )
    return replace(found, unit_rows=min(rows, blocks.rows))


def _thread_bytes(index: Index, model: CostModel) -> int:
    item, side = index.dtype.itemsize, index.tile
    entries, unit = entries_of(side, False), unit_of(side)
    # Heights, frictions and barriers, as read and in the dtypes of kernels; masks; a row of
    # tiles, and the same packed; what packs them; the lanes.
    one = index.blocks.largest(1) * (2 * item + 16 * model.needs_friction + 8 + 3)
    one += 2 * index.file_bytes * is_url(index.path)  # an object is written with one request
    row = (1 + unit // side) * index.chunk()[1] * entries * item
    costs = 8 * (TILE**2 + unit**2)
    return (
        one
        + row
        + level_bytes(index)
        + (2 * rim_cells(side) ** 2 + 2 * entries + (side + 2) ** 2 * LANES + costs) * item
    )
