"""Visits of blocks on a cluster: workers pass flow on; this process holds the order and the rims.

Each block has a home, the worker that visited it last and keeps its flow. A flow that is lost is
computed again from the start, because the ring around a block holds everything that has reached it.
A block is pending while its ring has cells that no visit has used. The blocks that flow has reached
most often are visited first.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from heapq import nlargest
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...engine.run import Run
from ...grid import Block, BlockGrid, ceil_div
from ..common.rims import BlockRim
from .visits import Flow, is_unknown

if TYPE_CHECKING:
    from ...store.writer import BlockWriter
    from .base import DividedFlow, FlowRims

SECONDS = 0.1
"""Target duration of a call, in seconds. A task costs some milliseconds, but rings get stale."""
MOST = 16
"""Largest number of blocks in a call that flow has reached, and largest number of others."""
NEW = 4
"""Largest number of blocks in a call that no worker has visited before."""


class FlowVisit(NamedTuple):
    """The input for visits of one block.

    Attributes
    ----------
    ring
        The known values around the block.
    news
        How often flow has reached it since its last visit; at least 1 if it must be visited.
    reported
        int64, shape (3, 3): how often flow went to each block around, as far as the driver knows.
    new
        Whether the block has never been visited.
    """

    at: Block
    ring: BlockRim
    news: int
    reported: np.ndarray
    new: bool


class FlowCall(NamedTuple):
    """Blocks for a worker to visit; `capacity` is the number of flows that it keeps for a run."""

    run: str
    capacity: int
    visits: list[FlowVisit]


@dataclass
class KeptFlow:
    """The flow of a block that a worker keeps.

    Attributes
    ----------
    left
        Number of cells that wait for inflow.
    counts
        See `DividedFlow.start`.
    crossed
        Like `FlowVisit.reported`, counted from the start of the flow.
    """

    flow: Flow
    left: int
    counts: np.ndarray
    crossed: np.ndarray


class FlowLeft(NamedTuple):
    """What the driver receives about a visited block; see `KeptFlow`."""

    rim: BlockRim
    left: int
    counts: np.ndarray
    crossed: np.ndarray


class FlowsVisited(NamedTuple):
    """The result of `visit_flows`.

    Attributes
    ----------
    news
        For each block of the call, how often flow has reached it since its last visit.
    left
        The results of the blocks that were visited.
    kept
        Blocks whose flow the worker keeps.
    visits, begun
        Number of visits, and number of flows computed from the start.
    """

    news: dict[Block, int]
    left: dict[Block, FlowLeft]
    kept: list[Block]
    visits: int
    begun: int


def around(blocks: BlockGrid, at: Block) -> Iterator[tuple[tuple[int, int], Block]]:
    """Yield the blocks around one, each after its position in `FlowVisit.reported`."""
    (i, j), (down, across) = at, blocks.shape
    for r in range(max(i - 1, 0), min(i + 2, down)):
        for c in range(max(j - 1, 0), min(j + 2, across)):
            if (r, c) != at:
                yield (r - i + 1, c - j + 1), (r, c)


class FlowDispatch:
    """Visits of blocks by workers until nothing changes.

    Parameters
    ----------
    run
        The run, whose operation is a `DividedFlow`.
    state
        Receives the values at the rims of blocks.
    capacity
        Number of flows that a worker keeps.

    Attributes
    ----------
    left
        Number of cells of each block that wait for inflow; -1 before its first visit.
    visits, loads
        Number of visits, and number of flows computed from the start.
    """

    def __init__(self, run: Run, state: FlowRims, capacity: int) -> None:
        self.host, self.state, self.capacity = run, state, capacity
        self.blocks = state.rims.blocks
        shape, self._id = self.blocks.shape, uuid.uuid4().hex
        self.left = np.full(shape, -1, np.int64)
        self.visits = self.loads = 0
        self._reported = np.zeros((*shape, 3, 3), np.int64)
        self._news = np.zeros(shape, np.int64)
        # Whether the ring around a block knows more than at its last visit.
        self._changed = np.zeros(shape, bool)
        self._homes: dict[Block, str] = {}
        self._kept: dict[str, set[Block]] = {}
        self._pending: set[Block] = set()
        self._busy: set[Block] = set()
        self._present: tuple[str, ...] = ()
        # Blocks that no worker has visited. Each worker gets a contiguous part of the raster.
        self._new: dict[str, deque[Block]] = {"": deque(self.blocks.ids())}

    def run(self) -> None:
        """Visit blocks. Only this thread changes the state."""
        with (
            self.host.engine.lend(self.host, []) as loan,
            closing(loan.converse(self.give)) as results,
        ):
            for home, visited in results:
                self._take(home, visited)

    # -- what workers are given ----------------------------------------------------------------

    def give(self, home: str, homes: Collection[str]) -> tuple[Any, FlowCall] | None:
        """Return blocks for a worker to visit, preferably those whose flow it keeps."""
        if self._present != (present := tuple(homes)):
            self._present = present
            self._deal()
        mine = {at for at in self._pending if self._home(at) == home}
        cached = self._kept.get(home, set())
        chosen = self._most(at for at in mine & cached if self._news[at])
        beside = [*self._beside(home, chosen, cached)]
        new = self._first_new(home) if len(chosen) < MOST else []
        if not chosen and not new:
            chosen = self._last(mine) or self._last(
                at for at in self._pending if not self._home(at)
            )
        if not chosen and not new:
            return None
        visits = [self._visit(at, 1) for at in chosen]
        visits += [self._visit(at, 0) for at in (*beside, *new)]
        return visit_flows, FlowCall(self._id, self.capacity, visits)

    def _deal(self) -> None:
        """Divide the unvisited blocks among the workers, and forget workers that have left."""
        for gone in self._kept.keys() - {*self._present}:
            del self._kept[gone]
        unvisited = [at for part in self._new.values() for at in part]
        share = ceil_div(len(unvisited), max(len(self._present), 1))
        self._new = {
            home: deque(unvisited[k * share : (k + 1) * share])
            for k, home in enumerate(self._present)
        }

    def _most(self, candidates: Iterable[Block], count: int = MOST) -> list[Block]:
        return nlargest(count, candidates, key=self._news.__getitem__)

    def _last(self, candidates: Iterable[Block]) -> list[Block]:
        """Return the block that flow has reached most often.

        A block that no flow has reached is returned only if no block is being visited.
        """
        return self._most((at for at in candidates if self._news[at] or not self._busy), 1)

    def _beside(self, home: str, chosen: list[Block], cached: set[Block]) -> list[Block]:
        """Return neighbours of the chosen blocks that flow may reach in the same call."""
        near = dict.fromkeys(to for at in chosen for _, to in around(self.blocks, at))
        return [
            at
            for at in near
            if at in cached
            and self._homes.get(at) == home
            and self.left[at] > 0
            and at not in self._busy
            and at not in chosen
        ][:MOST]

    def _first_new(self, home: str) -> list[Block]:
        mine = self._new[home]
        if mine:
            return [mine.popleft() for _ in range(min(NEW, len(mine)))]
        theirs = max(self._new.values(), key=len)  # help another worker
        return [theirs.pop()] if theirs else []

    def _visit(self, at: Block, least: int) -> FlowVisit:
        news, new = max(int(self._news[at]), least), bool(self.left[at] < 0)
        self._news[at], self._changed[at] = 0, False  # the ring contains it all
        self._pending.discard(at)
        self._busy.add(at)
        ring = self.state.rims.around(at, self.state.unknown)
        return FlowVisit(at, ring, news, self._reported[at], new)

    def _home(self, at: Block) -> str:
        home = self._homes.get(at, "")
        return home if home in self._present else ""

    # -- what they return ----------------------------------------------------------------------

    def _take(self, home: str, visited: FlowsVisited) -> None:
        self._busy.difference_update(visited.news)
        self._kept[home] = set(visited.kept)
        self.visits += visited.visits
        self.loads += visited.begun
        for at, result in visited.left.items():
            if self.left[at] and not result.left:
                self.host.tick(at)
            self.state.counts[at] = result.counts
            self.left[at], self._homes[at] = result.left, home
        for at in visited.news.keys() - visited.left.keys():  # not visited: its ring was not used
            self._changed[at] = True
            if self.left[at] < 0:
                self._new[home if home in self._new else self._present[0]].appendleft(at)
        for at, result in visited.left.items():
            self._learn(at, result.rim)
            crossed = np.maximum(result.crossed - self._reported[at], 0)
            self._reported[at] += crossed
            for step, to in around(self.blocks, at):
                if to not in visited.news:  # otherwise the worker has counted it
                    self._news[to] += crossed[step]
        for one, news in visited.news.items():
            self._news[one] += news
        near = {to for at in visited.left for _, to in around(self.blocks, at)}
        for at in near.union(visited.news):
            if self._changed[at] and self.left[at] > 0 and at not in self._busy:
                self._pending.add(at)

    def _learn(self, at: Block, rim: BlockRim) -> None:
        """Add the values of a rim; mark the neighbouring blocks whose rings change."""
        sides = []
        for line, side in zip(self.state.rims.of(at), rim, strict=True):
            new = is_unknown(line, self.state.unknown) & ~is_unknown(side, self.state.unknown)
            line[new] = side[new]
            sides.append(new.reshape(len(new), -1).any(axis=1))
        for (down, right), to in around(self.blocks, at):
            side = (sides[0], sides[3 if right else 2], sides[1])[down]
            if right != 1 and down != 1:
                side = side[-1 if right else 0]
            self._changed[to] |= np.any(side)


# -- in a worker --------------------------------------------------------------------------------


class KeptFlows:
    """A cache of the flows of the blocks that this process visited last, for one run."""

    def __init__(self) -> None:
        self._lock, self._run = Lock(), ""
        self._flows: OrderedDict[Block, KeptFlow] = OrderedDict()

    def take(self, run: str, at: Block) -> KeptFlow | None:
        """Remove and return the flow of a block, if cached; forget those of other runs."""
        with self._lock:
            if self._run != run:
                self._run = run
                self._flows.clear()
            return self._flows.pop(at, None)

    def keep(self, run: str, at: Block, one: KeptFlow, capacity: int) -> None:
        """Keep the flow of a block, and drop the oldest ones beyond `capacity`."""
        with self._lock:
            if self._run == run:
                self._flows[at] = one
                while len(self._flows) > capacity:
                    self._flows.popitem(last=False)

    def blocks(self) -> list[Block]:
        """Return the blocks whose flows are cached."""
        with self._lock:
            return list(self._flows)

    def forget(self) -> None:
        """Drop all flows."""
        with self._lock:
            self._run = ""
            self._flows.clear()


FLOWS = KeptFlows()


def visit_flows(operation: DividedFlow, writers: list[BlockWriter], call: FlowCall) -> FlowsVisited:
    """Visit blocks for about `SECONDS`, those that flow has reached most often first."""
    visits = {one.at: one for one in call.visits}
    news = {one.at: one.news for one in call.visits}
    known_crossings = {one.at: one.reported for one in call.visits}
    new = deque(one.at for one in call.visits if one.new)
    results: dict[Block, FlowLeft] = {}
    work, end = operation.new_work(), time.perf_counter() + SECONDS
    count = begun = 0
    while count == 0 or time.perf_counter() < end:
        at = max(news.keys() - {*new}, key=news.__getitem__, default=None)
        if at is None or not news[at]:
            if not new:
                break
            at = new.popleft()
        cached = FLOWS.take(call.run, at)
        if first := cached is None:
            flow, cells, counts = operation.begin_flow(at)
            flow.enter(BlockRim(*[flow.unknown] * 4))
            cached = KeptFlow(flow, cells, counts, np.zeros((3, 3), np.int64))
        assert cached is not None
        cached.flow.learn(visits[at].ring)
        for step, other in around(operation.blocks, at):
            if other in results:
                cached.flow.learn_rim((step[0] - 1, step[1] - 1), results[other].rim)
        cached.left -= operation.advance(at, cached.flow, first, work)
        cached.crossed = cached.crossed + work.crossed
        count, begun, news[at] = count + 1, begun + first, 0
        results[at] = FlowLeft(cached.flow.rim(), cached.left, cached.counts, cached.crossed)
        for other in news:
            step = other[0] - at[0] + 1, other[1] - at[1] + 1
            if (
                other != at
                and {*step} <= {0, 1, 2}
                and not (other in results and not results[other].left)
            ):
                news[other] += max(int(cached.crossed[step] - known_crossings[at][step]), 0)
        known_crossings[at] = np.maximum(known_crossings[at], cached.crossed)
        if cached.left:
            FLOWS.keep(call.run, at, cached, call.capacity)
    return FlowsVisited(news, results, FLOWS.blocks(), count, begun)
