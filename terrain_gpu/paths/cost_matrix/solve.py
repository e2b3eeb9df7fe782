"""Solve a cost matrix batch by batch; finished batches are kept in a folder, for `--resume`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from ...compiled import tell_compiling
from ...cuda.backend import Gpu
from ...errors import ClusterError, InputError
from ...grid import Block
from ...progress import Progress, silent
from ...report import Report
from ...store.outputs import whole_file
from ..cost.fields import Field
from ..cost.terrain import Terrain
from ..relax.counts import Visits
from ..relax.relaxation import Overflow
from .folder import BATCH, SourceRows, StepFile
from .operation import BatchPlan, MatrixProblem
from .proof import Distances, prove
from .reached import Reached
from .relax import BatchRelaxation, SourceBatch
from .trace import Tracer

if TYPE_CHECKING:
    from ...engine.cluster import Cluster

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
        self.visits, self.proven = Visits(), 0
        self.proof_progress: Progress = silent
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
                grounds = self._grounds(sources)
                wanted = problem.wanted(sources, len(sources))
                reached = Reached(problem, wanted, problem.limits(sources, len(sources)))
                with report.phase("relax"), _named_overflow(problem):
                    stack.solve(grounds, reached)
                self._prove(grounds, reached, stack.around, report)
                lane = 0
                for number in some:
                    lanes = slice(lane, lane + len(self.sources[number]))
                    lane = lanes.stop
                    with report.phase("trace"):
                        self._finish(number, reached.part(lanes), stack.tracing(lanes, reached))
                    seen[number] = problem.grid.cells
                self.visits.add(tiles=stack.take_visits())

    def _grounds(self, sources: np.ndarray) -> list[Terrain]:
        """The ground with each of some sources."""
        problem = self.problem
        return [problem.ground.holding(problem.starts.place(k)) for k in sources.tolist()]

    def solve(self, number: int, report: Report, seen: dict[int, int]) -> None:
        """Solve a batch on the CPU, and keep what it found."""
        problem, batch = self.problem, self.sources[number]
        # A name of its own: another process may still work on the same batch.
        spill = self.folder / f"fields-{number}-{uuid4().hex}"
        with self._lock:
            if self._error is not None:
                return
            batch_of = SourceBatch(self._grounds(batch), self._kept.pop() if self._kept else {})
            capacity = self.plan.fields // self.plan.batches
            reached = Reached(problem, problem.wanted(batch), problem.limits(batch))
            paths = BatchRelaxation(batch_of, problem, reached, capacity, spill)
            self._running.append(paths)
        try:
            start = time.perf_counter()
            with _named_overflow(problem):
                self._relax(paths, number, seen)
            middle = time.perf_counter()
            self._prove(paths.batch.grounds, paths.reached, paths.around, report)
            proven = time.perf_counter()
            self._finish(number, paths.reached, self._tracing(paths, spill))
            self._count(report, middle - start, time.perf_counter() - proven)
        finally:
            with self._lock:
                self._running = [work for work in self._running if work is not paths]
                self._kept.append(paths.take_fields())
            paths.close(keep=False)
            self.visits.add(**paths.visits.counts)
        seen[number] = self.problem.grid.cells

    def _prove(
        self, grounds: Sequence[Terrain], reached: Reached, around: Distances, report: Report
    ) -> None:
        if not self.problem.verified:
            return
        start = time.perf_counter()
        found = prove(self.problem, grounds, reached, around, self._threads, self._raise_error)
        with self._lock:
            self.proven += found
            seconds = time.perf_counter() - start
            report.seconds["verify"] = report.seconds.get("verify", 0.0) + seconds

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
        with whole_file(self._file(number), alone=True) as part:
            np.savez(part, allow_pickle=False, **found)

    def in_file_order(self) -> Iterator[tuple[int, SourceRows]]:
        """Each source and its rows, in the order of the file, of sources and of targets."""
        problem = self.problem
        rank = np.argsort(problem.ends.in_file_order)
        for k, found in self._of(problem.starts.in_file_order.tolist()):
            order = np.argsort(rank[found.rows["target"]], kind="stable")
            parts = found.parts.copy()
            parts[:, 0] = np.argsort(order)[parts[:, 0]]
            yield k, found._replace(rows=found.rows[order], ends=found.ends[order], parts=parts)

    def __iter__(self) -> Iterator[tuple[int, SourceRows]]:
        """Each source and its rows, in the order of the ids."""
        return self._of(range(len(self.problem.starts)))

    def _of(self, sources: Iterable[int]) -> Iterator[tuple[int, SourceRows]]:
        of = {k: n for n, batch in enumerate(self.sources) for k in batch.tolist()}
        read: tuple[int, dict[str, np.ndarray]] = (-1, {})
        for k in sources:
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


class RemoteRun(NamedTuple):
    """What `engine.cluster.Cluster` needs to know of a run."""

    operation: MatrixProblem
    plan: BatchPlan
    folder: Path


def solve_on_cluster(run: MatrixRun, cluster: Cluster, report: Report, progress: Progress) -> None:
    """Solve all batches that are not there in the workers of a cluster, one in each task."""
    cells, left = run.problem.grid.cells, run.left()
    total = cells * len(run.sources)
    progress(total - cells * len(left), total)
    items = ((run.plan, run.lines, number) for number in left)
    remote = RemoteRun(run.problem, run.plan, run.folder)
    with closing(cluster.each(remote, solve_batch, items)) as solved:  # type: ignore[arg-type]
        for visits, proven, seconds in solved:
            run.visits.add(**visits)
            run.proven += proven
            for name, value in seconds.items():
                report.seconds[name] = report.seconds.get(name, 0.0) + value
            progress(cells, total)


def solve_batch(
    problem: MatrixProblem, folder: Path, item: tuple[BatchPlan, bool, int]
) -> tuple[dict[str, int], int, dict[str, float]]:
    """Solve a batch in a worker; return counts of visits, proven steps, and seconds.

    The batch is a file in the folder, whose name it gets when complete. A second task for it writes
    the same rows.
    """
    if not folder.is_dir():
        raise ClusterError(
            f"worker on {socket.gethostname()} does not see {folder}; the table must lie in a "
            "folder that all hosts share, under the same path"
        )
    plan, lines, number = item
    run, report = MatrixRun(problem, plan, folder, lines=lines), Report(problem.command)
    run.solve(number, report, {})
    return run.visits.counts, run.proven, report.seconds


@contextmanager
def _named_overflow(problem: MatrixProblem) -> Iterator[None]:
    """Turn an overflow into an error that names the raster."""
    try:
        yield
    except Overflow:
        raise InputError(
            f"{problem.heights.name}: distances exceed 64 bits; convert to float64"
        ) from None
