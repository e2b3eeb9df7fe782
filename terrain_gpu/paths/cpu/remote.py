"""Shortest paths on a cluster: workers visit blocks, this process keeps their order.

A visit may happen twice, or be lost with its worker: it lowers upper bounds, and what it writes
counts once this process has heard of it, see `SlotFiles`. So a repeat changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...engine.operation import Phase, SolvedBlock, State
from ...engine.run import Run
from ...grid import Block
from ...io.places import NO_PLACES, Places
from ...store.spill import SlotFiles, Slots
from .final import (
    closed_codes,
    distances_of,
    own_cells,
    relaxation_of,
    relaxation_of_hops,
    steps_of,
)
from .relax import Relaxation, rim_of_hops
from .solve import Phases

if TYPE_CHECKING:
    from ..problem import CostDistance

FINALISE, FLATS = Phase("finalise", writes=True), Phase("flats", writes=True, counted=False)


class Visit(NamedTuple):
    """The input of a visit.

    Attributes
    ----------
    folder, name
        Where distances are saved, and the file with those of the block; None before its first
        visit.
    sources, targets
        In the block.
    halo
        See `receive`.
    known
        Keys of tiles, which of them are whole, and the least distances on the sides; None before
        the first visit.
    after
        For hops: the last visit, which computed the distances.
    """

    at: Block
    folder: Path
    name: str | None
    sources: Places
    targets: Places | None
    farthest: Any
    halo: np.ndarray
    known: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None
    after: Visit | None


class Visited(NamedTuple):
    """The result of a visit.

    Attributes
    ----------
    pending
        Keys of blocks.
    at_targets
        Distances of the targets in the block.
    """

    at: Block
    name: str
    rim: np.ndarray
    keys: np.ndarray
    whole: np.ndarray
    pending: dict[Block, Any]
    at_targets: np.ndarray | None
    counts: dict[str, int]


class InFiles(Relaxation):
    """A relaxation whose fields are files that several processes share."""

    @property
    def files(self) -> SlotFiles:
        assert isinstance(self._slots, SlotFiles)
        return self._slots


# -- in the driver ------------------------------------------------------------------------------


@dataclass
class Dispatch(InFiles):
    """A relaxation whose blocks workers visit; iterating yields the visits to start now.

    Attributes
    ----------
    host
        The run.
    sources
        Those in a block.
    after
        For hops: the distances.
    """

    host: Run | None = None
    sources: Callable[[Block], Places] = lambda at: NO_PLACES
    after: Dispatch | None = None

    def _new_slots(self, *, resume: bool) -> SlotFiles:
        if not resume:
            return SlotFiles.beside(self.spill)
        left = SlotFiles.left(self.spill)
        left.begin()
        return left

    def run(self, threads: int, checkpoint: float = 0.0, tick: Any = lambda cells: None) -> None:
        assert self.host is not None
        self.files.begin()
        with closing(self.host.engine.each(self.host, visit_block, self, ahead=False)) as visits:
            for visited in visits:
                self._take_visit(visited)
                tick(self.visits.seen)

    def __iter__(self) -> Dispatch:
        return self

    def __next__(self) -> Visit:
        at = self._pop()
        if at is None:
            raise StopIteration
        self._busy.add(at)
        return self.visit(at, self._sides.pop(at, None))

    def visit(self, at: Block, sides: np.ndarray | None = None) -> Visit:
        """Return the input of a visit."""
        targets = None
        if self.targets is not None and (mine := self._targets_in(at)).any():
            own = self.targets
            targets = Places(*(a[mine] for a in (own.rows, own.cols, own.ids, own.costs)))
        keys = self._keys.get(at)
        return Visit(
            at,
            self.files.folder,
            self.files.names.get(self._slot(at)),
            self.sources(at),
            targets,
            self.farthest,
            self._halo(at),
            None if keys is None else (keys, self._whole[at], sides),
            None if self.after is None else self.after.visit(at),
        )

    def _take_visit(self, visited: Visited) -> None:
        at = visited.at
        self.files.rename(self._slot(at), visited.name)
        self._rims[at], self._keys[at], self._whole[at] = visited.rim, visited.keys, visited.whole
        self.visits.add(**visited.counts)
        self._busy.discard(at)
        for other, key in visited.pending.items():
            self.start(other, key)
        if visited.at_targets is not None:
            self._reach_targets(self._targets_in(at), visited.at_targets)


class RemotePhases(Phases):
    """The phases on a cluster. This process computes the allocation."""

    paths: Dispatch

    def __init__(self, problem: CostDistance, run: Run, spill: Path) -> None:
        # Sources and targets are sent with the blocks that contain them.
        wide = problem.dtype == np.uint64
        bare = replace(problem, sources=NO_PLACES, targets=None, wide=wide)
        self.host = replace(run, operation=bare.over(problem.layers))
        super().__init__(problem, run, spill)

    def _relaxation(self) -> Dispatch:
        problem = self.problem
        how = self.ground, problem.farthest, 1, self.spill, problem.ends
        return relaxation_of(Dispatch, problem, *how, host=self.host, sources=self.ground.places)

    def _left(self) -> Slots:
        count, size = self.problem.blocks.count, (self.problem.blocks.block + 2) ** 2
        return Slots(self.spill, count, size * self.problem.dtype.itemsize, resume=True)

    def finalise(self) -> tuple[int, int]:
        self._tick(self.problem.grid.cells)
        state = _Finishing(self.paths, self._flats() if "backlink" in self.problem.names else None)
        self._map(FINALISE, state, self.problem.blocks.ids(), self.problem.names[:2])
        flats = state.flats
        if flats is not None and (uneven := flats.pending()):
            flats.run(self.threads)
            self._map(FLATS, _Closing(self.paths, flats), uneven, ("backlink",))
            self.paths.visits.add(spilled=flats.visits.spilled, loaded=flats.visits.loaded)
            flats.files.close(keep=False)
        return state.reached, state.valid

    def _flats(self) -> Dispatch:
        spill = self.spill.with_suffix(".flats")
        SlotFiles.left(spill).close(keep=False)
        blocks, nowhere = self.problem.blocks, lambda at: np.empty(0)
        return relaxation_of_hops(
            Dispatch, blocks, nowhere, 1, spill, host=self.host, after=self.paths
        )

    def _map(
        self, phase: Phase, state: State, blocks: Iterable[Block], names: tuple[str, ...]
    ) -> None:
        writers = {name: self.run.writers[name] for name in names}
        host = replace(self.host, writers=writers, counted=phase.counted)
        host.engine.map(host, phase, state, iter(blocks))


class _Finishing(State):
    """Of `FINALISE`: the rims of hops, and how many cells are reached and have a value."""

    def __init__(self, paths: Dispatch, flats: Dispatch | None) -> None:
        self.paths, self.flats, self.reached, self.valid = paths, flats, 0, 0

    def given(self, phase: Phase, at: Block) -> Visit:
        return self.paths.visit(at)

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        reached, valid, rim, count = known
        self.reached, self.valid = self.reached + reached, self.valid + valid
        if self.flats is not None:
            self.flats.take_offer(at, rim, count)


class _Closing(State):
    """Of `FLATS`."""

    def __init__(self, paths: Dispatch, flats: Dispatch) -> None:
        self.flats = flats

    def given(self, phase: Phase, at: Block) -> Visit:
        return self.flats.visit(at)


# -- in the workers -----------------------------------------------------------------------------


@dataclass
class Visitor(InFiles):
    """A relaxation of one block."""

    visit: Visit | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.visit is not None
        at, known = self.visit.at, self.visit.known
        if known is not None:
            self._keys[at], self._whole[at], sides = known
            self._rims[at] = np.empty((4, max(self.shape(at))), self.dtype)
            if sides is not None:
                self._sides[at] = sides

    def _new_slots(self, *, resume: bool) -> SlotFiles:
        visit = self.visit
        assert visit is not None
        return SlotFiles(visit.folder, {self._slot(visit.at): visit.name} if visit.name else {})

    def _halo(self, at: Block) -> np.ndarray:
        assert self.visit is not None
        return self.visit.halo

    def found(self) -> Visited:
        """Return the result of the visit; distances are saved."""
        assert self.visit is not None
        at = self.visit.at
        self._visit(at, self._new_work(self.shape(at)))
        self._save(at, self._fields[at])
        return Visited(
            at,
            self.files.names[self._slot(at)],
            self._rims[at],
            self._keys[at],
            self._whole[at],
            self._pending,
            self._at_targets,
            self.visits.counts,
        )


def _of_distances(problem: CostDistance, visit: Visit) -> Visitor:
    ground = problem.ground.holding(visit.sources)
    how = ground, visit.farthest, 1, visit.folder, visit.targets
    return relaxation_of(Visitor, problem, *how, visit=visit)


def _of_hops(problem: CostDistance, visit: Visit) -> tuple[Visitor, np.ndarray, np.ndarray]:
    """Also compute predecessors, and the steps on flats."""
    assert visit.after is not None
    paths = _of_distances(problem, visit.after)
    codes, flat, _count = steps_of(problem, paths, visit.at)
    paths.close()  # memory has room for one field only
    how = problem.blocks, lambda at: flat, 1, visit.folder
    return relaxation_of_hops(Visitor, *how, visit=visit), codes, flat


def visit_block(problem: CostDistance, folder: Path, visit: Visit) -> Visited:
    """Relax a block until nothing in it is pending, in a worker."""
    if visit.after is None:
        return _of_distances(problem, visit).found()
    return _of_hops(problem, visit)[0].found()


def solve_remotely(problem: CostDistance, phase: Phase, at: Block, visit: Visit) -> SolvedBlock:
    """Compute the outputs of a block, in a worker."""
    if phase == FLATS:
        flats, codes, flat = _of_hops(problem, visit)
        return SolvedBlock((closed_codes(problem, flats, at, codes, flat),))
    paths = _of_distances(problem, visit)
    distances, *counts = distances_of(problem, paths, at)
    if "backlink" not in problem.names:
        return SolvedBlock((distances,), (*counts, None, 0))
    codes, flat, count = steps_of(problem, paths, at)
    rim = rim_of_hops(flat, np.dtype(np.uint32))
    own = None if count else own_cells(problem.blocks.window(*at), codes)
    return SolvedBlock((distances, own), (*counts, rim, count))
