"""The least-cost paths of a batch: their lengths, climbs, and steps.

Predecessors follow from the distances around a cell; they are computed only for the cells of paths.
Blocks are visited in the order of the number of paths waiting in them, so that few are loaded more
than once. On flats, the hops of the whole lane are needed (`relax.finalise`); they are relaxed only
for lanes with a path across a flat.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...grid import Block, BlockGrid
from ...grid.neighbours import COL_STEP_16, NEIGHBOUR_OF, ROW_STEP_16
from ..cost.fields import Field
from ..relax.final import codes_along, relaxation_of_hops, steps_in
from ..relax.relaxation import Relaxation
from .relax import BatchRelaxation
from .walk import INSIDE, ON_FLAT, UNKNOWN, mark_sources, walk_back

_STEPS = 1 << 20
"""Number of step codes collected at a time."""


class Steps(Protocol):
    """Collects the steps of paths."""

    def add(self, which: np.ndarray, counts: np.ndarray, steps: np.ndarray) -> None:
        """Add steps: numbers of paths, number of steps of each, and the codes of these steps."""

    def forget(self, which: np.ndarray) -> None:
        """Drop the steps of paths that will be followed again."""


class Tracer:
    """Follows the paths of a batch.

    Parameters
    ----------
    problem
        The `MatrixProblem`.
    paths
        The batch, solved.
    ends
        int64 (n, 3): lane, row and column of each path's target; sorted by lane.
    keep
        Receives the steps of paths in parts; None if they are not needed.

    Attributes
    ----------
    sums, cells
        For each path: length and climb in map units, float64 (n, 2), and the number of cells.
    """

    def __init__(
        self,
        problem: Any,
        paths: BatchRelaxation,
        ends: np.ndarray,
        keep: Steps | None,
        spill: Path,
    ) -> None:
        self.problem, self.paths, self.ends, self.keep = problem, paths, ends, keep
        self._spill = spill
        self._lock = threading.Condition()
        self._waiting: dict[Block, list[np.ndarray]] = {}
        self._busy: set[Block] = set()
        self._error: BaseException | None = None
        self._flats: dict[int, Relaxation] = {}
        self._places = np.zeros((len(ends), 4), np.int64)
        self._sums = np.zeros((len(ends), 4))

    @property
    def sums(self) -> np.ndarray:
        return self._sums[:, ::2] + self._sums[:, 1::2]

    @property
    def cells(self) -> np.ndarray:
        return self._places[:, 3] + 1

    def run(self, threads: int) -> None:
        """Follow all paths."""
        self._follow(np.arange(len(self.ends)), threads)
        stopped = self._places[:, 2] == ON_FLAT
        for lane in np.unique(self.ends[stopped, 0]).tolist():
            # Results so far are right, but it is simpler to compute them again.
            again = np.flatnonzero(stopped & (self.ends[:, 0] == lane))
            self._sums[again], self._places[again] = 0, 0
            if self.keep is not None:
                self.keep.forget(again)
            flats = self._hops(lane)
            try:
                self._flats[lane] = flats
                flats.run(threads)
                self._follow(again, threads)
            finally:
                flats.close()
                self._flats.clear()

    def stop(self, error: BaseException) -> None:
        """Make `run` end with an error; may be called from any thread."""
        self._fail(error)
        for flats in list(self._flats.values()):
            flats.stop(error)

    def _hops(self, lane: int) -> Relaxation:
        """The relaxation of the hops on all flats of a lane."""
        paths = self.paths

        def steps(at: Block) -> tuple[np.ndarray, np.ndarray, int]:
            return self._steps(at, lane)

        how = paths.blocks, paths.halo, lambda at: steps(at)[1]
        flats = relaxation_of_hops(
            Relaxation,
            *how,
            paths.capacity,
            self._spill.with_name(f"{self._spill.name}-hops-{lane}"),
        )
        for at in paths.blocks.ids():
            if at in paths.known:
                flats.offer(at, *steps(at)[1:])
        return flats

    def _steps(self, at: Block, lane: int) -> tuple[np.ndarray, np.ndarray, int]:
        """See `relax.final.steps_of`."""
        with self.paths.solved(at) as field:
            return self._steps_in(field, at, lane)

    def _steps_in(self, field: Field, at: Block, lane: int) -> tuple[np.ndarray, np.ndarray, int]:
        paths = self.paths
        ground, limit = paths.batch.grounds[lane], paths.limits[lane]
        return steps_in(self.problem, ground, at, paths.lane(field, lane), limit)

    # -- from block to block ---------------------------------------------------------------

    def _follow(self, which: np.ndarray, threads: int) -> None:
        side = self.paths.blocks.block
        self._places[which, :2] = self.ends[which, 1:]
        self._send(which, (0, 0), side)
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                while worker.is_alive():
                    worker.join(0.1)
        except BaseException as error:
            self._fail(error)
            for worker in workers:
                worker.join()
        if self._error is not None:
            raise self._error

    def _send(self, which: np.ndarray, at: Block, side: int) -> None:
        """Add paths to the queues of the blocks that they are in; positions are within a block."""
        mine = self._places[which]
        cells = mine[:, :2] + np.array(at) * side
        if self.paths.blocks.wraps:
            cells[:, 1] %= self.paths.blocks.cols
        blocks = cells // side
        self._places[which, :2] = cells - blocks * side
        for i, j in np.unique(blocks, axis=0).tolist():
            here = which[(blocks == (i, j)).all(axis=1)]
            self._waiting.setdefault((i, j), []).append(here)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._lock.notify_all()

    def _next(self) -> tuple[Block, np.ndarray] | None:
        with self._lock:
            while self._error is None:
                free = [at for at in self._waiting if at not in self._busy]
                if free:
                    at = max(free, key=lambda at: sum(map(len, self._waiting[at])))
                    self._busy.add(at)
                    return at, np.sort(np.concatenate(self._waiting.pop(at)))
                if not self._busy:
                    self._lock.notify_all()
                    return None
                self._lock.wait()
        return None

    def _work(self) -> None:
        side = self.paths.blocks.block
        steps = np.empty(_STEPS if self.keep else 0, np.uint8)
        try:
            while (job := self._next()) is not None:
                at, which = job
                lanes = self.ends[which, 0]
                with ExitStack() as stack:
                    # Hops first: loading them needs the distances of the block for a moment.
                    flats = self._flats.get(int(lanes[0]))
                    hops = stack.enter_context(flats.solved(at)) if flats else None
                    field = stack.enter_context(self.paths.solved(at))
                    for lane in np.unique(lanes).tolist():
                        self._walk(field, hops, at, lane, which[lanes == lane], steps)
                left = which[self._places[which, 2] == INSIDE]
                with self._lock:
                    self._send(left, at, side)
                    self._busy.discard(at)
                    self._lock.notify_all()
        except BaseException as error:
            self._fail(error)

    def _walk(
        self,
        field: Field,
        hops: Field | None,
        at: Block,
        lane: int,
        which: np.ndarray,
        steps: np.ndarray,
    ) -> None:
        """Follow the paths of a lane in a block to their ends or out of the block."""
        problem, paths, window = self.problem, self.paths, self.paths.blocks.window(*at)
        inner = window[1] - window[0], window[3] - window[2]
        if hops:
            codes, flat, _ = self._steps_in(field, at, lane)
            codes = np.ascontiguousarray(codes_along(problem, hops, at, codes, flat))
        else:
            codes = np.full(inner, UNKNOWN, np.uint8)
        rows, cols, values = paths.batch.grounds[lane].seeds(at, field)
        roots = rows, cols, values.astype(problem.dtype)
        mark_sources(field.distances, lane, roots, codes, paths.halo)
        how = problem.model.kernel, _cells(field), problem.options, lane, codes, inner
        while len(which):
            counts = walk_back(*how, which, self._places, self._sums, steps)
            if self.keep is not None:
                self.keep.add(which, counts, steps[: counts.sum()])
            places = self._places[which]
            inside = (places[:, :2] >= 0).all(axis=1) & (places[:, :2] < inner).all(axis=1)
            which = which[inside & (places[:, 2] == INSIDE)]


def _cells(field: Field) -> tuple[np.ndarray, ...]:
    return field.heights, field.frictions, field.absent, field.lengths, field.distances


def cells_of(end: np.ndarray, codes: np.ndarray, blocks: BlockGrid) -> np.ndarray:
    """The cells of a path, from its source, given its end and the codes of the steps back."""
    k = NEIGHBOUR_OF[codes]
    found = np.zeros((len(codes) + 1, 2), np.int64)
    found[1:, 0], found[1:, 1] = np.cumsum(ROW_STEP_16[k]), np.cumsum(COL_STEP_16[k])
    found += end
    if blocks.wraps:
        found[:, 1] %= blocks.cols
    return found[::-1]
