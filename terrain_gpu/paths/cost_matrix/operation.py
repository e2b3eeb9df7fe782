"""Costs between many sources and many targets: `MatrixProblem`, solved in batches of lanes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from ...engine.machine import COMPILED_BASELINE, Machine
from ...engine.operation import OutputLayer, Phase
from ...engine.plan import format_size, require
from ...facts import Findings, Settings
from ...grid import TILE, BlockGrid, GridSpec, ceil_div
from ...io.places import NO_PLACES, Places
from ...plurals import counted
from ..cost.edges import infinity_of
from ..cost.graph import CostGraph
from ..cost.knights import halo_of
from ..cost.terrain import Terrain
from ..proof import upper_limit
from .lanes import LANES
from .places import Grouped
from .tile import WORK_BYTES

SIDES = 512, 1024, 2048
"""Sides of blocks: as small as the memory for rims allows, so that a block stays in cache."""

GPU_SIDE = 1024
"""Side of the blocks in which the raster of a GPU is read."""

_PLACE_BYTES = 200
"""Memory for a cell of a source or target."""

_CELL_BYTES, _TARGET_BYTES = 16, 256
"""Memory for the distances of a target's cell, and for its rows and paths; for each lane."""


CELL_SECONDS = 8e-8
"""Processor seconds of a batch for each cell, of frictions (EPYC, 2048^2 cells, 40 sources)."""

_KNIGHTS_SECONDS = 1.65
"""Factor by which 16 neighbours take longer (benchmarks/log.md)."""

_ROW_BYTES, _FILE_BYTES, _WAY = 64, 1800, 0.65
"""Bytes of a batch's file per row, and in addition; usual steps of a path per longer side."""

_PROOF_BYTES = 9 * 8 + 24
"""Memory for a cell of a block during the proof."""


class BatchPlan(NamedTuple):
    """How batches are solved within the memory limit.

    Attributes
    ----------
    side
        Side of blocks.
    fields
        Number of block fields in memory: the cells, and `LANES` distances of each. Others are
        spilled.
    threads
        Number of threads.
    batches
        Number of batches solved at the same time, if their fields fit: each in its own order, which
        takes fewer visits than threads that share the blocks of one batch.
    memory_limit, memory
        The limit and the need, in bytes.
    planes, gpu_memory
        On a GPU: number of sources solved at the same time, and bytes of its memory.
    """

    side: int
    fields: int
    threads: int
    batches: int
    memory_limit: int
    memory: int
    planes: int = 0
    gpu_memory: int = 0

    @property
    def together(self) -> int:
        """Number of batches solved at the same time."""
        return self.planes // LANES or self.batches

    @property
    def worker_memory(self) -> int:
        """Memory of a process of a cluster in bytes."""
        return self.memory


@dataclass(frozen=True)
class MatrixProblem(CostGraph):
    """The problem; its fields are parameters of `cost_matrix`.

    Attributes
    ----------
    targets
        The targets; None for the sources themselves, each with all others.
    side
        Side of blocks.
    verified
        Whether batches are proven, see `proof`.
    wrap
        Whether the last column meets the first one, see `wrap.wraps`.
    """

    sources: Places = field(default=NO_PLACES, compare=False)
    targets: Places | None = field(default=None, compare=False)
    nearest: int | None = None
    max_cost: float | Mapping[int, float] | None = None
    side: int = SIDES[0]
    verified: bool = False
    wrap: bool = False

    command = "cost-matrix"
    mark = ""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("batches"),)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return ()

    @property
    def blocks(self) -> BlockGrid:
        return BlockGrid(*self.grid.shape, self.side, wraps=self.wrap)

    @cached_property
    def starts(self) -> Grouped:
        return Grouped(self.sources)

    @cached_property
    def ends(self) -> Grouped:
        return self.starts if self.targets is None else Grouped(self.targets)

    @cached_property
    def dtype(self) -> np.dtype:
        """Type of distances: float64, or uint64, which no sum of 32-bit elevations exceeds."""
        return np.dtype(np.uint64 if self.model.is_integer(self.heights.dtype) else np.float64)

    @property
    def guarded(self) -> bool:
        """Whether sums of integers may exceed their type."""
        return self.dtype.kind == "u" and self.heights.dtype.itemsize > 4

    @property
    def infinity(self) -> float:
        return infinity_of(np.empty(0, self.dtype))

    @property
    def farthest(self) -> Any:
        """The limit of distances."""
        alone = None if isinstance(self.max_cost, Mapping) else self.max_cost
        return upper_limit(alone, self.dtype)

    def limits(self, batch: np.ndarray, lanes: int = LANES) -> np.ndarray:
        """For every lane, the limit of the distances from its source."""
        found = np.full(lanes, self.farthest, self.dtype)
        if isinstance(self.max_cost, Mapping):
            for lane, source in enumerate(self.starts.ids[batch].tolist()):
                found[lane] = upper_limit(self.max_cost.get(source), self.dtype)
        return found

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
            self.dtype,
        ).stepping(self.options)

    @property
    def climbs(self) -> bool:
        """Whether the raster holds elevations, not frictions."""
        return self.model.kind.friction != "needed" or self.friction is not None

    def batches(self) -> Iterator[np.ndarray]:
        """The sources of each batch: sources close to each other, at most `LANES`."""
        order = self.starts.by_vicinity()
        for first in range(0, len(order), LANES):
            yield order[first : first + LANES]

    def wanted(self, batch: np.ndarray, lanes: int = LANES) -> np.ndarray:
        """For every target and lane, whether their cost is requested."""
        found = np.zeros((len(self.ends), lanes), bool)
        found[:, : len(batch)] = True
        if self.targets is None:
            found[batch, np.arange(len(batch))] = False
        return found

    def settings(self) -> Settings:
        return {
            **self.steps,
            "max_cost": _told(self.max_cost),
            "nearest": self.nearest,
            "layer": self.layer,
            "friction": self.friction,
            "barriers": self.barriers,
            "sources": _digest(self.sources),
            "targets": None if self.targets is None else _digest(self.targets),
            # Omitted if not requested: it then does not matter whether batches are proven.
            **({"verified": True} if self.verified else {}),
            **({"wrap": True} if self.wrap else {}),
        }

    def _held(self, beside: int, machine: Machine) -> int:
        """Bytes of the process that do not depend on blocks and lanes."""
        cells = len(self.sources) + len(self.targets or ())
        return beside + machine.baseline() + 64 * self.grid.rows + _PLACE_BYTES * cells

    @property
    def _lane_bytes(self) -> int:
        """Bytes for the results of a lane at the targets."""
        return _CELL_BYTES * len(self.ends.rows) + _TARGET_BYTES * len(self.ends)

    def plan_batches(
        self,
        machine: Machine,
        beside: int = 0,
        *,
        apart: bool = False,
    ) -> BatchPlan:
        """Plan the batches: as many fields in memory as fit.

        Parameters
        ----------
        beside
            Bytes of the process that are already in use.
        apart
            Whether each thread solves its own batch, whatever the limit, as in the workers of a
            cluster.

        Raises
        ------
        PlanError
            when the limit is too small for one field and the rims of all blocks, or for the GPU.
        """
        if machine.gpu is not None:
            return self._plan_on_gpu(machine, beside)
        limit, lanes = machine.memory_limit, LANES * (machine.threads if apart else 1)
        beside = self._held(beside, machine) + self._lane_bytes * lanes
        plans = [self._plan(side, machine, beside, apart) for side in SIDES]
        least = min(plans, key=lambda plan: plan.memory)
        require(least.memory, limit, "for a cost matrix")

        def cells(plan: BatchPlan) -> int:
            return min(plan.fields * plan.side**2, self.grid.cells)

        # The rims of small blocks take memory that could hold fields.
        fitting = [plan for plan in plans if plan.memory <= limit]
        most = max(map(cells, fitting))
        return next(plan for plan in fitting if cells(plan) >= 0.8 * most)

    def _plan(self, side: int, machine: Machine, beside: int, apart: bool) -> BatchPlan:
        limit, threads = machine.memory_limit, machine.threads
        friction = self.friction is not None
        halo = halo_of(self.options)
        blocks = BlockGrid(*self.grid.shape, side)
        count, cells, longest = blocks.count, blocks.largest(halo, tiled=True), max(blocks.sides)
        held = 8 * (1 + friction) + 1
        # A lane with flats has its hops, their steps, and its own copy of the distances.
        field = cells * (8 * LANES + held + 5)
        passing = cells * (self.heights.dtype.itemsize + 8 + 24) + WORK_BYTES + 18 * TILE**2 * 8
        keys = blocks.largest(tiled=True) // TILE**2 * (8 * LANES + 1)
        rims = count * (4 * halo * longest * (8 * LANES + 4) + keys + 2000)
        if self.verified:  # a lane's distances, cells, masks; and what joins flats
            passing += cells * _PROOF_BYTES
            rims += count * 4 * halo * longest * 17
        room = limit - beside - rims
        if apart:
            room -= threads * passing + (threads - 1) * rims
            fields = threads * max(min(room // (threads * field), count), 1)
            memory = beside + threads * (rims + passing) + fields * field
            return BatchPlan(side, fields, threads, threads, limit, memory)
        threads = max(min(threads, room // (field + passing)), 1)
        most = min(threads, ceil_div(len(self.starts), LANES))
        room -= threads * passing
        batches = max(min(room // (rims + count * field), most), 1)
        fields = max(min(room // field, count), threads) if batches == 1 else batches * count
        memory = beside + batches * rims + fields * field + threads * passing
        return BatchPlan(side, fields, threads, batches, limit, memory)

    def _plan_on_gpu(self, machine: Machine, beside: int) -> BatchPlan:
        """Plan as many planes as fit the GPU's memory and the process."""
        from .gpu import form_of, memory_of, planes_within

        limit, threads = machine.memory_limit, machine.threads
        held, lane = self._held(beside, machine) - COMPILED_BASELINE, self._lane_bytes
        problem = replace(self, side=GPU_SIDE).over(self.layers)
        if self.verified:
            held += threads * _PROOF_BYTES * GPU_SIDE**2 + 70 * self.grid.cells // GPU_SIDE
        form = form_of(problem, machine.gpu, threads, limit - held - LANES * lane)
        planes = planes_within(form, len(self.starts))
        room = (limit - held - form.host_memory) // (LANES * lane)
        planes = min(planes, LANES * max(room, 1))
        memory = held + form.host_memory + planes * lane
        require(memory, limit, "for a cost matrix on a GPU")
        where = planes, memory_of(form, planes)
        return BatchPlan(GPU_SIDE, 0, form.stagings, 1, limit, memory, *where)

    def of(self, plan: BatchPlan) -> Self:
        """The problem with the blocks of a plan."""
        return replace(self, side=plan.side).over(self.layers)

    def plan(self, machine: Machine) -> Any:
        """Plan for a worker of a cluster."""
        return self.plan_batches(machine, apart=True)


class MatrixPlan(NamedTuple):
    """The plan for a raster and numbers of sources and targets: `plan_matrix`.

    Attributes
    ----------
    item
        Bytes of a cell of all layers that are read.
    apart
        Whether workers of a cluster solve the batches; `seconds` is then for one process.
    """

    rows: int
    cols: int
    dtype: str
    points: int
    plan: BatchPlan
    targets: int | None = None
    item: int = 4
    lines: bool = False
    once: bool = False
    connectivity: int = 8
    apart: bool = False

    @property
    def passes(self) -> int:
        return 1

    @property
    def worker_memory(self) -> int:
        return self.plan.worker_memory

    @property
    def memory(self) -> int:
        return self.plan.memory

    @property
    def block_size(self) -> int:
        return self.plan.side

    @property
    def batches(self) -> int:
        """Total number of batches."""
        return ceil_div(self.points, LANES)

    @property
    def pairs(self) -> int:
        """Number of rows of the table; an upper bound if not all are requested."""
        found = self.points * (self.points - 1 if self.targets is None else self.targets)
        return found // 2 if self.once else found

    @property
    def bytes_read(self) -> int:
        """Bytes read by all batches, if all fields fit into memory."""
        return self.batches * self.rows * self.cols * self.item

    @property
    def bytes_written(self) -> int:
        """Bytes written by all batches to their files, if no field is spilled."""
        row = _ROW_BYTES + self.lines * _WAY * max(self.rows, self.cols)
        return int(self.pairs * row) + self.batches * _FILE_BYTES

    def as_dict(self) -> Findings:
        """The entries of a report."""
        batches, cells = self.batches, self.rows * self.cols
        return {
            **self.plan._asdict(),
            "rows": self.rows,
            "cols": self.cols,
            "dtype": self.dtype,
            "lanes": LANES,
            "batches_in_all": batches,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "bytes_of_distances": 8 * LANES * cells * self.plan.batches,
            "bytes_spilled": 8 * LANES * self._away * self.plan.side**2,
            **({} if self.apart else {"seconds": self.seconds}),
        }

    @property
    def seconds(self) -> float:
        """Time of this process for frictions, if nothing is spilled."""
        slower = knights_slower(self.connectivity)
        work = CELL_SECONDS * slower * self.batches * self.rows * self.cols
        return work / self.plan.threads

    @property
    def _away(self) -> int:
        """Number of fields that do not fit into memory."""
        count = BlockGrid(self.rows, self.cols, self.plan.side).count * self.plan.batches
        return max(count - self.plan.fields, 0)

    def describe(self) -> str:
        """Describe the plan in words, in several lines."""
        plan, found = self.plan, self.as_dict()
        spilled = found["bytes_spilled"]
        seconds = f"seconds        {self.seconds:.3g} for frictions, if nothing is spilled"
        return "\n".join(
            (
                f"raster         {self.rows} x {self.cols} = "
                f"{counted(self.rows * self.cols, 'cell')}, "
                f"{self.dtype}",
                f"memory         {format_size(plan.memory)} predicted peak, "
                f"limit {format_size(plan.memory_limit)}",
                f"batches        {found['batches_in_all']:,} of {LANES} sources, {plan.batches} at "
                f"a time, {counted(plan.threads, 'thread')}",
                f"fields         {plan.fields:,} of {plan.side} x {plan.side} cells in memory, of "
                f"{format_size(found['bytes_of_distances'])} of distances"
                + (f"; {format_size(spilled)} spilled at each visit" if spilled else ""),
                *(() if self.apart else (seconds,)),
            )
        )


class _Planned(NamedTuple):
    """The properties of a layer that planning needs."""

    dtype: np.dtype
    blocks: BlockGrid
    grid: GridSpec
    nodata: None = None
    path: None = None


def plan_matrix(
    rows: int,
    cols: int,
    cells: np.dtype,
    points: int,
    *,
    targets: int | None = None,
    lines: bool = False,
    once: bool = False,
    nearest: int | None = None,
    cost: str = "absdiff",
    parameters: Settings | None = None,
    connectivity: int = 8,
    friction: np.dtype | None = None,
    barriers: np.dtype | None = None,
    machine: Machine,
    apart: bool = False,
) -> MatrixPlan:
    """Plan the costs between a number of points of a raster.

    Parameters
    ----------
    targets
        Number of further points that are targets of each point; all of the points when None.
    lines
        Whether the steps of paths are recorded and written to a GeoPackage.
    once
        Whether each pair of points is computed in only one direction.
    nearest
        Number of nearest points that a network keeps for each, to join two only once.
    apart
        See `MatrixProblem.plan_batches`.
    """
    require(_PLACE_BYTES * (points + (targets or 0)), machine.memory_limit, "for a cost matrix")
    grid, blocks = GridSpec(rows, cols), BlockGrid(rows, cols, SIDES[0])
    kinds = {"layer": cells, "friction": friction, "barriers": barriers}
    named = {name: kind for name, kind in kinds.items() if kind is not None}
    layers = [_Planned(kind, blocks, grid) for kind in named.values()]

    def places(count: int) -> Places:
        ids = np.arange(count)
        return Places(ids % rows, ids % cols, ids.astype(np.uint32), np.zeros(count))

    ends = None if targets is None else places(targets)
    problem = MatrixProblem(
        "",
        "layer",
        friction="friction" if friction is not None else None,
        barriers="barriers" if barriers is not None else None,
        cost=cost,
        parameters=parameters or {},
        connectivity=connectivity,
        sources=places(points),
        targets=ends,
    ).over(layers)
    beside = nearest_bytes(points, nearest)
    if lines and not apart:
        from ...io.features import library_bytes  # brings GDAL

        beside += library_bytes("paths.gpkg")
    plan = problem.plan_batches(machine, beside, apart=apart)
    item = sum(kind.itemsize for kind in named.values())
    of = rows, cols, cells.name, points, plan
    return MatrixPlan(*of, targets, item, lines, once, connectivity, apart)


def nearest_bytes(points: int, nearest: int | None) -> int:
    """Bytes for the numbers of the points nearest to each."""
    return 4 * points * min(nearest or 0, points)


def knights_slower(connectivity: int) -> float:
    """The time of a batch relative to that with 8 neighbours."""
    return _KNIGHTS_SECONDS if connectivity == 16 else 1.0


def _told(limits: float | Mapping[int, float] | None) -> Any:
    """The record of limits; a digest if there is one for each source."""
    if not isinstance(limits, Mapping):
        return limits
    return hashlib.sha256(repr(sorted(limits.items())).encode()).hexdigest()


def _digest(places: Places) -> str:
    found = hashlib.sha256()
    for a in (places.rows, places.cols, places.ids, places.costs):
        found.update(np.ascontiguousarray(a).tobytes())
    found.update(repr(sorted(places.names.items())).encode())
    return found.hexdigest()
