"""Solve a cost matrix batch by batch; finished batches are kept in a folder, for `--resume`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ...compiled import tell_compiling
from ...cuda.backend import Gpu
from ...errors import InputError
from ...grid import Block
from ...progress import Progress
from ...report import Report
from ...store.outputs import whole_file
from ..cpu.relax import Overflow, Visits
from ..fields import Field
from .folder import BATCH, SourceRows, StepFile
from .problem import BatchPlan, MatrixProblem
from .reached import Reached
from .relax import BatchRelaxation, SourceBatch
from .trace import Tracer

_POLL = 0.1
"""Seconds between checks of the main thread for Ctrl-C."""

Trace = Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]]
"""Follows paths, given lanes and ends, int64 (n, 3), and what keeps their steps; returns lengths
and climbs, (n, 2), and numbers of cells."""


class MatrixRun:
    """Solves the batches of a problem.

    Parameters
    ----------
    folder
        Folder of the run: spilled fields, and the batches that are finished.
    lines
        Whether the steps of paths are kept.
    """

    def __init__(
        self, problem: MatrixProblem, plan: BatchPlan, folder: Path, *, lines: bool
    ) -> None:
        self.problem, self.plan, self.folder, self.lines = problem, plan, folder, lines
        self.sources = list(problem.batches())
        self.visits = Visits()
        self._kept: list[dict[Block, Field]] = []
        self._running: list[BatchRelaxation | Tracer] = []
        self._error: BaseException | None = None
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    def _file(self, number: int) -> Path:
        return self.folder / BATCH.format(number)

    def left(self) -> list[int]:
        """The batches that are not there."""
        return [k for k in range(len(self.sources)) if not self._file(k).exists()]

    def run(self, report: Report, progress: Progress, gpu: Gpu | None = None) -> None:
        """Solve all batches that are not there."""
        cells, count, left = self.problem.grid.cells, len(self.sources), self.left()
        seen, told = dict.fromkeys(range(count), cells) | dict.fromkeys(left, 0), 0

        def tell() -> None:
            nonlocal told
            done = sum(seen.values())
            progress(done - told, cells * count)
            told = done

        tell()
        with ThreadPoolExecutor(self.plan.batches) as workers:
            if gpu is None:
                jobs = {workers.submit(self.solve, k, report, seen) for k in left}
            else:
                jobs = {workers.submit(self._solve_on_gpu, left, gpu, report, seen)}
            try:
                while jobs:
                    ready, jobs = wait(jobs, _POLL, FIRST_COMPLETED)
                    for job in ready:
                        job.result()
                    tell()
            except BaseException as error:
                self._stop(error)
                raise

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._error = error
            for work in self._running:
                work.stop(error)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _solve_on_gpu(
        self, left: list[int], gpu: Gpu, report: Report, seen: dict[int, int]
    ) -> None:
        """Solve batches, as many at a time as there are planes."""
        from .gpu import PlaneStack, bounded, form_of

        problem, plan = self.problem, self.plan
        form = form_of(problem, gpu, plan.threads, None)
        with bounded(form):
            with report.phase("read"):
                stack = PlaneStack(problem, form, plan.planes, self._raise_error)
            for first in range(0, len(left), plan.together):
                some = left[first : first + plan.together]
                sources = np.concatenate([self.sources[k] for k in some])
                grounds = [
                    problem.ground.holding(problem.starts.place(k)) for k in sources.tolist()
                ]
                reached = Reached(problem, problem.wanted(sources, len(sources)))
                with report.phase("relax"), _named_overflow(problem):
                    stack.solve(grounds, reached)
                lane = 0
                for number in some:
                    lanes = slice(lane, lane + len(self.sources[number]))
                    lane = lanes.stop
                    with report.phase("trace"):
                        self._finish(number, reached.part(lanes), stack.tracing(lanes, reached))
                    seen[number] = problem.grid.cells
                self.visits.add(tiles=stack.take_visits())

    def solve(self, number: int, report: Report, seen: dict[int, int]) -> None:
        """Solve a batch on the CPU, and keep what it found."""
        problem, batch = self.problem, self.sources[number]
        starts = problem.starts
        grounds = [problem.ground.holding(starts.place(k)) for k in batch.tolist()]
        # A name of its own: another process may still work on the same batch.
        spill = self.folder / f"fields-{number}-{uuid4().hex}"
        with self._lock:
            if self._error is not None:
                return
            batch_of = SourceBatch(grounds, self._kept.pop() if self._kept else {})
            capacity = self.plan.fields // self.plan.batches
            paths = BatchRelaxation(batch_of, problem, problem.wanted(batch), capacity, spill)
            self._running.append(paths)
        try:
            start = time.perf_counter()
            with _named_overflow(problem):
                self._relax(paths, number, seen)
            middle = time.perf_counter()
            self._finish(number, paths.reached, self._tracing(paths, spill))
            self._count(report, middle - start, time.perf_counter() - middle)
        finally:
            with self._lock:
                self._running = [work for work in self._running if work is not paths]
                self._kept.append(paths.take_fields())
            paths.close(keep=False)
            self.visits.add(**paths.visits.counts)
        seen[number] = self.problem.grid.cells

    def _count(self, report: Report, relax: float, trace: float) -> None:
        """Add to the times of the phases, those of all batches at the same time."""
        with self._lock:
            for name, seconds in (("relax", relax), ("trace", trace)):
                report.seconds[name] = report.seconds.get(name, 0.0) + seconds

    @property
    def _threads(self) -> int:
        """Threads of a batch."""
        return max(self.plan.threads // self.plan.batches, 1)

    def _relax(self, paths: BatchRelaxation, number: int, seen: dict[int, int]) -> None:
        types, cells = self.problem.ground.types, self.problem.grid.cells
        with self._compiling:
            if not paths.compiled(*types):
                tell_compiling(paths.operator, f"cost {self.problem.cost}, many sources")
                paths.compile(*types)
        for ground in paths.batch.grounds:
            for at, key in ground.starts():
                paths.start(at, self.problem.dtype.type(key))

        def tick(count: int) -> None:
            seen[number] = min(count, cells - 1)  # it is done when it is kept

        paths.run(self._threads, tick=tick)

    def _tracing(self, paths: BatchRelaxation, spill: Path) -> Trace:
        def trace(ends: np.ndarray, keep: Any) -> tuple[np.ndarray, np.ndarray]:
            tracer = Tracer(self.problem, paths, ends, keep, spill)
            with self._lock:
                self._running.append(tracer)
                self._raise_error()
            try:
                tracer.run(self._threads)
            finally:
                with self._lock:
                    self._running.remove(tracer)
            return tracer.sums, tracer.cells

        return trace

    def _finish(self, number: int, reached: Reached, trace: Trace) -> None:
        """Follow the paths of a batch, and keep its rows, the sources that they belong to, and the
        ends and parts of paths."""
        rows, lane, ends, which = reached.rows()
        steps = f"{uuid4().hex}.steps"
        with ExitStack() as stack:
            keep = stack.enter_context(StepFile(self.folder / steps)) if self.lines else None
            sums, cells = trace(np.column_stack((lane[which], ends[which])), keep)
        rows["length"][which], rows["climb"][which] = sums.T
        if not self.problem.climbs:
            rows["climb"] = np.nan
        rows["cells"][which] = cells
        parts = np.empty((0, 3), np.int64)
        if keep is not None:
            parts = keep.parts()
            parts[:, 0] = which[parts[:, 0]]
        found = {"rows": rows, "lane": lane, "ends": ends, "parts": parts, "steps": np.array(steps)}
        with whole_file(self._file(number)) as part:
            np.savez(part, allow_pickle=False, **found)

    def __iter__(self) -> Iterator[tuple[int, SourceRows]]:
        """Each source and its rows, in the order of the sources."""
        of = {k: n for n, batch in enumerate(self.sources) for k in batch.tolist()}
        read: tuple[int, dict[str, np.ndarray]] = (-1, {})
        for k in range(len(self.problem.starts)):
            number = of[k]
            if read[0] != number:
                with np.load(self._file(number)) as found:
                    read = number, dict(found)
            data, lane = read[1], self.sources[number].tolist().index(k)
            first, last = np.searchsorted(data["lane"], [lane, lane + 1])
            parts = data["parts"]
            parts = parts[(parts[:, 0] >= first) & (parts[:, 0] < last)] - (first, 0, 0)
            rows, ends = data["rows"][first:last], data["ends"][first:last]
            yield k, SourceRows(rows, ends, parts, self.folder / str(data["steps"]))


@contextmanager
def _named_overflow(problem: MatrixProblem) -> Iterator[None]:
    """Turn an overflow into an error that names the raster."""
    try:
        yield
    except Overflow:
        raise InputError(
            f"{problem.heights.name}: distances exceed 64 bits; convert to float64"
        ) from None
