"""Costs between many sources and many targets: `MatrixProblem`, solved in batches of lanes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...engine.operation import OutputLayer, Phase, SolvedBlock
from ...engine.plan import COMPILED_BASELINE, limit_of, loaded, require, threads_of
from ...grid import TILE, Block, BlockGrid, ceil_div
from ...io.places import NO_PLACES, Places
from ..graph import CostGraph
from ..ground import Terrain
from ..verify import upper_limit
from .places import Grouped
from .tile import WORK_BYTES
from .vectors import LANES

SIDES = 512, 1024, 2048
"""Sides of blocks: as small as the memory for rims allows, so that a block stays in cache."""

_CELL_BYTES = 200 + 16 * LANES
"""Memory for a cell of a source or target, and its distances."""

_TARGET_BYTES = 256 * LANES
"""Memory for the rows of a target, and its paths."""


class BatchPlan(NamedTuple):
    """How batches are solved within the memory limit.

    Attributes
    ----------
    side
        Of blocks.
    fields
        Fields of blocks in memory: the cells, and `LANES` distances of each. Others are spilled.
    threads
        Threads.
    batches
        Batches that are solved at the same time, where their fields fit: each in its own order,
        which takes fewer visits than threads that share the blocks of one.
    memory_limit, memory
        In bytes: the limit, and the need.
    """

    side: int
    fields: int
    threads: int
    batches: int
    memory_limit: int
    memory: int


@dataclass(frozen=True)
class MatrixProblem(CostGraph):
    """The problem; fields as the parameters of `cost_matrix`.

    Attributes
    ----------
    targets
        None: the sources themselves, each with all others.
    side
        Of blocks.
    """

    sources: Places = field(default=NO_PLACES, compare=False)
    targets: Places | None = field(default=None, compare=False)
    nearest: int | None = None
    max_cost: float | None = None
    side: int = SIDES[0]

    command = "cost-matrix"
    mark = ""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return ()

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return ()

    @property
    def blocks(self) -> BlockGrid:
        return BlockGrid(*self.grid.shape, self.side)

    @cached_property
    def starts(self) -> Grouped:
        return Grouped(self.sources)

    @cached_property
    def ends(self) -> Grouped:
        return self.starts if self.targets is None else Grouped(self.targets)

    @cached_property
    def dtype(self) -> np.dtype:
        """Of distances: float64 or uint64, which no sum of 32-bit heights exceeds."""
        return np.dtype(np.uint64 if self.model.is_integer(self.heights.dtype) else np.float64)

    @property
    def guarded(self) -> bool:
        """Whether sums of integers may exceed their type."""
        return self.dtype.kind == "u" and self.heights.dtype.itemsize > 4

    @property
    def farthest(self) -> Any:
        """The bound of distances."""
        return upper_limit(self.max_cost, self.dtype)

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
        """Whether the raster holds heights, not frictions."""
        return self.model.kind.friction != "needed" or self.friction is not None

    def batches(self) -> Iterator[np.ndarray]:
        """The sources of each batch: sources close to each other, at most `LANES`."""
        order = self.starts.by_vicinity()
        for first in range(0, len(order), LANES):
            yield order[first : first + LANES]

    def wanted(self, batch: np.ndarray) -> np.ndarray:
        """For every target and lane, whether their cost is asked for."""
        found = np.zeros((len(self.ends), LANES), bool)
        found[:, : len(batch)] = True
        if self.targets is None:
            found[batch, np.arange(len(batch))] = False
        return found

    def settings(self) -> dict[str, Any]:
        return {
            **self.steps,
            "max_cost": self.max_cost,
            "nearest": self.nearest,
            "layer": self.layer,
            "friction": self.friction,
            "barriers": self.barriers,
            "sources": _digest(self.sources),
            "targets": None if self.targets is None else _digest(self.targets),
        }

    def plan_batches(self, memory_limit: Any, threads: int | None, beside: int = 0) -> BatchPlan:
        """Plan the batches: as many fields in memory as fit.

        Raises
        ------
        PlanError
            when the limit is too small for one field and the rims of all blocks.
        """
        limit = limit_of(memory_limit)
        beside += COMPILED_BASELINE + loaded() + 64 * self.grid.rows
        beside += _CELL_BYTES * (len(self.sources) + len(self.targets or ()))
        beside += _TARGET_BYTES * len(self.ends)
        plans = [self._plan(side, limit, threads_of(threads), beside) for side in SIDES]
        least = min(plans, key=lambda plan: plan.memory)
        require(least.memory, limit, "for a cost matrix")

        def cells(plan: BatchPlan) -> int:
            return min(plan.fields * plan.side**2, self.grid.cells)

        # The rims of small blocks take room that fields could have.
        fitting = [plan for plan in plans if plan.memory <= limit]
        most = max(map(cells, fitting))
        return next(plan for plan in fitting if cells(plan) >= 0.8 * most)

    def _plan(self, side: int, limit: int, threads: int, beside: int) -> BatchPlan:
        friction = self.friction is not None
        count, cells = BlockGrid(*self.grid.shape, side).count, (side + 2) ** 2
        held = 8 * (1 + friction) + 1
        # A lane with flats has its hops, their steps, and its own copy of the distances.
        field = cells * (8 * LANES + held + 5)
        passing = cells * (self.heights.dtype.itemsize + 8 + 24) + WORK_BYTES + 10 * TILE**2 * 8
        keys = (side // TILE) ** 2 * (8 * LANES + 1)
        rims = count * (4 * side * (8 * LANES + 4) + keys + 2000)
        room = limit - beside - rims
        threads = max(min(threads, room // (field + passing)), 1)
        most = min(threads, ceil_div(len(self.starts), LANES))
        room -= threads * passing
        batches = max(min(room // (rims + count * field), most), 1)
        fields = max(min(room // field, count), threads) if batches == 1 else batches * count
        memory = beside + batches * rims + fields * field + threads * passing
        return BatchPlan(side, fields, threads, batches, limit, memory)

    def of(self, plan: BatchPlan) -> MatrixProblem:
        """The problem with the plan's blocks."""
        return replace(self, side=plan.side).over(self.layers)

    def plan(self, memory_limit: Any, threads: int | None, gpu: Any = None) -> Any:
        raise NotImplementedError("see plan_batches")

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        raise NotImplementedError("blocks are visited again and again: matrix.relax")


def _digest(places: Places) -> str:
    found = hashlib.sha256()
    for a in (places.rows, places.cols, places.ids, places.costs):
        found.update(np.ascontiguousarray(a).tobytes())
    found.update(repr(sorted(places.names.items())).encode())
    return found.hexdigest()
