"""Shortest paths on a cluster: workers visit blocks, this process keeps their order.

A visit may happen twice, or be lost with its worker and all fields that this one kept: see
docs/design/cluster.md for why the result is the same.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.run import Loan, Run
from ...grid import Block, ceil_div
from ...io.places import NO_PLACES, Places
from ...store.spill import SlotFiles, Slots
from ..relax.allocate import BacklinkForest
from ..relax.final import relaxation_of, relaxation_of_hops
from .solve import Phases
from .visits import (
    Followed,
    InFiles,
    Visit,
    Visited,
    allocate_block,
    follow_block,
    least_key,
    visit_blocks,
    write_blocks,
)

if TYPE_CHECKING:
    from ..cost.terrain import Terrain
    from .operation import CostDistance

MOST = 8
"""Most pending blocks that a worker is given at a time, and most of its others around them."""
NEW = 3
"""Most blocks around them that no worker has visited."""


@dataclass
class Dispatch(InFiles):
    """A relaxation whose blocks workers visit, and write in the end.

    A block has a home: the worker that visited it last, which keeps its field.

    Attributes
    ----------
    host
        The run.
    loan
        Its workers, with the writers of distances and backlinks.
    sources
        Those in a block.
    after
        For hops: the distances.
    """

    host: Run | None = None
    loan: Loan | None = None
    sources: Callable[[Block], Places] = lambda at: NO_PLACES
    after: Dispatch | None = None

    def __post_init__(self) -> None:
        self._queues: defaultdict[str, list[tuple[float, Block]]] = defaultdict(list)
        self._homes: dict[Block, str] = {}
        self._unsaved: defaultdict[str, dict[Block, float]] = defaultdict(dict)
        """By home: blocks, and since when; those of the longest time come first."""
        self._present: Collection[str] = ()
        self._stamps: dict[Block, str] = {}
        self._file_stamps: dict[Block, str] = {}
        self._checkpoint = math.inf
        self._stopped = False
        self._unwritten: defaultdict[str, deque[Block]] | None = None
        self._under_way = 0
        """Calls whose results are awaited."""
        self._write: tuple[bool, ...] = ()
        super().__post_init__()

    def _new_slots(self, *, resume: bool) -> SlotFiles:
        if not resume:
            return SlotFiles.beside(self.spill)
        left = SlotFiles.left(self.spill)
        left.begin()
        return left

    def run(
        self, threads: int, checkpoint: float = math.inf, tick: Any = lambda cells: None
    ) -> None:
        self.files.begin()
        self._checkpoint = checkpoint
        self._converse(lambda visited: tick(self.visits.seen))

    def finish(
        self,
        blocks: Iterable[Block],
        write: tuple[bool, ...],
        done: Callable[[Block, Any], None] = lambda at, left: None,
    ) -> None:
        """Have the workers write blocks, after `run`; `done` gets what each leaves."""
        self._write, self._unwritten = write, defaultdict(deque)
        for at in blocks:
            home = self._home(at)
            if at in self._unsaved[home]:  # a field in memory comes first, and stays
                self._unwritten[home].appendleft(at)
            else:
                self._unwritten[home].append(at)

        def took(visited: Visited) -> None:
            for at, left in visited.written.items():
                done(at, left)

        self._converse(took)

    def save_all(self) -> None:
        """Have the workers save the fields that they keep."""
        self._stopped = True
        self._converse(lambda visited: None)

    def _converse(self, took: Callable[[Visited], None]) -> None:
        assert self.loan is not None
        self._under_way = 0
        # Halos of what is written are final, so calls may wait.
        waiting = 0 if self._unwritten is None else 1
        with closing(self.loan.converse(self.give, waiting)) as results:
            for home, visited in results:
                self._under_way -= 1
                self._take_visited(home, visited)
                took(visited)

    # -- what workers are given ----------------------------------------------------------------

    def start(self, at: Block, key: float) -> None:
        if key < self._pending.get(at, self.infinity) and key <= self.farthest:
            self._pending[at] = key
            heapq.heappush(self._queues[self._home(at)], (key, at))

    def _home(self, at: Block) -> str:
        home = self._homes.get(at, "")
        return home if home in self._present else ""

    def give(self, home: str, homes: Collection[str]) -> tuple[Any, list[Visit]] | None:
        """Return blocks for a worker to visit, the least keys first, to save, or to write."""
        self._present, work = homes, visit_blocks
        for gone in {*self._queues, *self._unsaved}.difference(homes, ("",)):
            self._leave(gone)
        if self._stopped:
            visits = self._to_save(home)
        elif self._unwritten is None:
            visits = self._to_visit(home)
        else:
            visits, work = self._to_write(home, self._unwritten), write_blocks
        self._busy.update(visit.at for visit in visits)
        self._under_way += bool(visits)
        return (work, visits) if visits else None

    def _leave(self, gone: str) -> None:
        """What a worker that is gone had not saved must be found again, unless all is final."""
        for key, at in self._queues.pop(gone, ()):
            heapq.heappush(self._queues[""], (key, at))
        for at in self._unsaved.pop(gone, ()):
            if self._unwritten is None:
                self.start(at, least_key(self.dtype))

    def _to_visit(self, home: str) -> list[Visit]:
        mine, new = self._popped(home, MOST), self._popped("", 1)
        # One new block at a time, so that workers get equally many, and none before its turn.
        if mine and new and new[0] > mine[0]:
            self.start(new[0][1], new[0][0])
            new = []
        unsaved, now = self._unsaved[home], time.monotonic()

        def due(at: Block) -> bool:
            return now >= unsaved.get(at, now) + self._checkpoint

        pending = {at: key for key, at in new + mine}
        pending |= self._beside(home, pending)
        long = islice(takewhile(due, unsaved), MOST)
        idle = [at for at in long if at not in pending and at not in self._busy]
        return [
            *(self.visit(at, key, save=due(at)) for at, key in pending.items()),
            *(self.visit(at, self.infinity, save=True) for at in idle),
        ]

    def _beside(self, home: str, pending: Collection[Block]) -> dict[Block, Any]:
        """Return blocks around these, with keys, that the worker may visit in the same call.

        Blocks without a home are among them unless another worker waits for one.
        """
        assert self.host is not None
        others_work = self._under_way >= len(self._present) * self.host.plan.workers - 1
        room, found = {home: MOST, "": NEW if others_work else 0}, {}
        for _, at in chain.from_iterable(map(self._around, pending)):
            its = self._home(at)
            if room.get(its) and not (at in pending or at in found or at in self._busy):
                room[its] -= 1
                found[at] = self._pending.pop(at, self.infinity)
        return found

    def _to_save(self, home: str) -> list[Visit]:
        some = islice((at for at in self._unsaved[home] if at not in self._busy), MOST)
        return [self.visit(at, self.infinity, save=True) for at in some]

    def _to_write(self, home: str, unwritten: defaultdict[str, deque[Block]]) -> list[Visit]:
        for gone in unwritten.keys() - {*self._present, ""}:
            unwritten[""].extend(unwritten.pop(gone))
        mine = unwritten[home] or unwritten[""]
        some = [mine.popleft() for _ in range(min(MOST, len(mine)))]
        if not some:  # help another worker, with what it has saved
            theirs = max(unwritten.values(), key=len)
            for _ in range(min(MOST, ceil_div(len(theirs), 2))):
                if theirs[-1] in self._unsaved[self._home(theirs[-1])]:
                    break
                some.append(theirs.pop())
        return [self.visit(at) for at in some]

    def _popped(self, home: str, count: int) -> list[tuple[float, Block]]:
        """Take idle blocks of a home, those with the least keys."""
        queue = self._queues[home]
        found: list[tuple[float, Block]] = []
        busy: list[tuple[float, Block]] = []
        while queue and len(found) < count:
            key, at = heapq.heappop(queue)
            if self._pending.get(at) != key:
                continue
            if (moved := self._home(at)) != home:
                heapq.heappush(self._queues[moved], (key, at))
                continue
            if at in self._busy:
                busy.append((key, at))
                continue
            del self._pending[at]
            found.append((key, at))
        for entry in busy:
            heapq.heappush(queue, entry)
        return found

    def visit(self, at: Block, key: float | None = None, *, save: bool = False) -> Visit:
        """Return the input of a visit; of the last one without `key`.

        A block that is not pending gets no halo: what could lower its field would make it pending.
        One that is to be saved does, to be found again if it is lost.
        """
        assert self.host is not None
        needs_halo = key is None or key < self.infinity or save
        targets, plan = None, self.host.plan
        if self.targets is not None and (mine := self._targets_in(at)).any():
            own = self.targets
            targets = own.chosen(mine)
        name, stamp = self.files.names.get(self._slot(at)), self._stamps.get(at, "")
        newest = name is not None and self._file_stamps.get(at, "") == stamp
        return Visit(
            at,
            self.infinity if key is None else key,
            stamp,
            self.files.folder,
            name,
            (self._keys[at], self._whole[at]) if newest else None,
            self._sides.get(at),
            self.sources(at),
            targets,
            self.farthest,
            self._halo(at) if needs_halo else None,
            plan.buffers // plan.workers,
            save or plan.workers > 1,  # any thread of a worker may get the next visit
            self._write,
            None if self.after is None else self.after.visit(at),
        )

    # -- what they return ----------------------------------------------------------------------

    def _take_visited(self, home: str, visited: Visited) -> None:
        self._busy.difference_update(visited.given)
        self.visits.add(**visited.counts)
        for at, left in visited.left.items():
            if at not in self._keys:
                self.visits.add(seen=math.prod(self.shape(at)))
            if (before := self._homes.get(at, "")) != home:
                self._unsaved[before].pop(at, None)
            self._unsaved[home].setdefault(at, time.monotonic())
            self._homes[at], self._stamps[at] = home, visited.stamp
            self._rims[at], self._keys[at], self._whole[at], at_targets = left
            self._sides.pop(at, None)
            if at_targets is not None:
                self._reach_targets(self._targets_in(at), at_targets)
        for at, stamp, name in visited.saved:
            self._take_file(at, stamp, name, visited)
        for at, key in visited.pending.items():
            self.start(at, key)

    def _take_file(self, at: Block, stamp: str, name: str, visited: Visited) -> None:
        newest = stamp == self._stamps.get(at)
        # A visit under way may read the file before, if its worker is not the one that keeps it.
        if at in self._busy or (not newest and (stamp or at not in visited.left)):
            with suppress(OSError):
                (self.files.folder / name).unlink()
            return
        self.files.rename(self._slot(at), name)
        self._file_stamps[at] = stamp
        if newest:
            self._unsaved[self._homes[at]].pop(at, None)


class RemotePhases(Phases):
    """The phases on a cluster. This process joins the allocation from rim to rim."""

    paths: Dispatch

    def __init__(self, problem: CostDistance, run: Run, spill: Path) -> None:
        # Sources and targets are sent with the blocks that contain them.
        wide = problem.dtype == np.uint64
        bare = replace(problem, sources=NO_PLACES, targets=None, wide=wide)
        self.host = replace(run, operation=bare.over(problem.layers))
        super().__init__(problem, run, spill)
        # One loan for all: workers keep their fields until its end.
        names = [problem.named[name] for name in problem.names]
        self.loan = self.opened.enter_context(run.engine.lend(self.host, names))
        self.paths.loan = self.loan

    def _relaxation(self) -> Dispatch:
        problem = self.problem
        how = self.ground, problem.farthest, 1, self.spill, problem.ends
        return relaxation_of(Dispatch, problem, *how, host=self.host, sources=self.ground.places)

    def _left(self) -> Slots:
        return Slots(self.spill, self.problem.blocks.count, self.paths.field_bytes, resume=True)

    def finalise(self) -> tuple[int, int]:
        write = tuple(not self.run.writers[output.name].finished for output in self.problem.outputs)
        flats = self._flats() if "backlink" in self.problem.names else None
        reached = valid = 0

        def done(at: Block, left: tuple[int, int, Any, int]) -> None:
            nonlocal reached, valid
            reached, valid = reached + left[0], valid + left[1]
            if flats is not None:
                flats.take_offer(at, *left[2:])
            self.run.tick(at)

        with self._saved_when_stopped():
            self._tick(self.problem.grid.cells)
            self.paths.finish(self.problem.blocks.ids(), write, done)
        if flats is not None and (uneven := flats.pending()):
            flats.run(self.threads)
            flats.finish(uneven, write)
            self.paths.visits.add(spilled=flats.visits.spilled, loaded=flats.visits.loaded)
            flats.files.close(keep=False)
        return reached, valid

    def _flats(self) -> Dispatch:
        spill = self.spill.with_suffix(".flats")
        SlotFiles.left(spill).close(keep=False)
        blocks, nowhere = self.problem.blocks, lambda at: np.empty(0)
        more = {"host": self.host, "loan": self.loan, "after": self.paths}
        return relaxation_of_hops(Dispatch, blocks, self.paths.halo, nowhere, 1, spill, **more)

    def allocate(self) -> None:
        if self.run.writers[self.problem.named["allocation"]].finished:
            return
        allocate(self.ground, self.loan)


def allocate(ground: Terrain, loan: Loan) -> None:
    """Write the source of each cell from the backlinks, in the workers."""
    blocks = ground.blocks
    forest = BacklinkForest(blocks, ground.halo)
    given = (Followed(at, ground.places(at)) for at in blocks.ids())
    for at, sides in loan.each(follow_block, given):
        forest.put(at, *sides)
    forest.resolve()
    given = (Followed(at, ground.places(at), forest.around(at)) for at in blocks.ids())
    for _ in loan.each(allocate_block, given):
        pass
