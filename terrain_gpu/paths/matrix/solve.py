"""Solve a cost matrix batch by batch; finished batches are kept in a folder, for `--resume`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...compiled import tell_compiling
from ...errors import InputError, OutputError, StoreError
from ...grid import Block
from ...progress import Progress
from ...report import Report
from ...store.files import output_errors
from ...store.outputs import whole_file
from ..cpu.relax import Overflow, Visits
from ..fields import Field
from .problem import BatchPlan, MatrixProblem
from .relax import BatchRelaxation, SourceBatch
from .trace import Tracer

_POLL = 0.1
"""Seconds between checks of the main thread for Ctrl-C."""

_BATCH = "batch-{}.npz"
"""Name of the file of a finished batch."""


def row_dtype(cost: np.dtype) -> np.dtype:
    """Of a row of the table; length and climb are NaN, and there are no cells, without a path."""
    kinds = {"target": np.int64, "cost": cost, "length": float, "climb": float, "cells": np.int64}
    return np.dtype(list(kinds.items()))


class SourceRows(NamedTuple):
    """The rows of one source, and the steps of its paths.

    Attributes
    ----------
    rows
        See `row_dtype`; targets are their places' numbers.
    ends
        int64 (n, 2): row and column of each path's last cell.
    parts
        int64 (m, 3): row of the table, first byte and number of steps of each part of a path.
    steps
        File of the steps, D8 codes from the target on.
    """

    rows: np.ndarray
    ends: np.ndarray
    parts: np.ndarray
    steps: Path

    def codes(self, k: int) -> np.ndarray:
        """The steps of the path of a row."""
        found = [np.empty(0, np.uint8)]
        for _, first, count in self.parts[self.parts[:, 0] == k].tolist():
            found.append(np.fromfile(self.steps, np.uint8, count, offset=first))
        return np.concatenate(found)


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
        return self.folder / _BATCH.format(number)

    def _steps(self, number: int) -> Path:
        return self.folder / f"batch-{number}.steps"

    def run(self, report: Report, progress: Progress) -> int:
        """Solve all batches that are not there; return how many were."""
        cells, count = self.problem.grid.cells, len(self.sources)
        left = [k for k in range(count) if not self._file(k).exists()]
        seen, told = dict.fromkeys(range(count), cells) | dict.fromkeys(left, 0), 0

        def tell() -> None:
            nonlocal told
            done = sum(seen.values())
            progress(done - told, cells * count)
            told = done

        tell()
        with ThreadPoolExecutor(self.plan.batches) as workers:
            jobs = {workers.submit(self._solve, k, report, seen) for k in left}
            try:
                while jobs:
                    ready, jobs = wait(jobs, _POLL, FIRST_COMPLETED)
                    for job in ready:
                        job.result()
                    tell()
            except BaseException as error:
                self._stop(error)
                raise
        return count - len(left)

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._error = error
            for work in self._running:
                work.stop(error)

    def _solve(self, number: int, report: Report, seen: dict[int, int]) -> None:
        problem, batch = self.problem, self.sources[number]
        starts = problem.starts
        grounds = [problem.ground.holding(starts.place(k)) for k in batch.tolist()]
        wanted = problem.wanted(batch)
        how = self.plan.fields // self.plan.batches, self.folder / f"fields-{number}"
        with self._lock:
            if self._error is not None:
                return
            batch_of = SourceBatch(grounds, self._kept.pop() if self._kept else {})
            paths = BatchRelaxation(batch_of, problem, problem.ends, wanted, *how)
            self._running.append(paths)
        try:
            start = time.perf_counter()
            self._relax(paths, number, seen)
            middle = time.perf_counter()
            found = self._rows(number, paths, wanted)
            self._count(report, middle - start, time.perf_counter() - middle)
        except Overflow:
            raise InputError(
                f"{problem.heights.name}: distances exceed 64 bits; convert to float64"
            ) from None
        finally:
            with self._lock:
                self._running = [work for work in self._running if work is not paths]
                self._kept.append(paths.take_fields())
            paths.close(keep=False)
            self.visits.add(**paths.visits.counts)
        with whole_file(self._file(number)) as part:
            np.savez(part, allow_pickle=False, **found)
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

    def _rows(
        self, number: int, paths: BatchRelaxation, wanted: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Rows of the table, the sources that they belong to, and the ends and parts of paths."""
        problem = self.problem
        costs = problem.ends.least(paths.reached)
        there = wanted & (costs <= paths.limits) & (costs < paths.infinity)
        if problem.nearest is not None:
            rank = np.where(there, costs, paths.infinity).argsort(axis=0, kind="stable")
            rank = rank.argsort(axis=0, kind="stable")  # of equal ones, the first
            there &= rank < problem.nearest
        few = problem.nearest is not None or problem.max_cost is not None
        lane, place = np.nonzero((there if few else wanted).T)
        rows = np.zeros(len(lane), row_dtype(problem.dtype))
        rows["target"], rows["cost"] = place, costs[place, lane]
        rows["length"] = rows["climb"] = np.nan
        which = np.flatnonzero(there[place, lane])
        cell = np.stack([problem.ends.nearest_cell(one) for one in paths.reached.T])[lane, place]
        at = np.stack((problem.ends.rows[cell], problem.ends.cols[cell]), axis=1)
        parts = self._trace(number, paths, rows, which, lane, at)
        return {"rows": rows, "lane": lane, "ends": at, "parts": parts}

    def _trace(
        self,
        number: int,
        paths: BatchRelaxation,
        rows: np.ndarray,
        which: np.ndarray,
        lane: np.ndarray,
        at: np.ndarray,
    ) -> np.ndarray:
        """Follow the paths of the rows `which`; returns the parts of their steps."""
        ends = np.column_stack((lane[which], at[which]))
        with ExitStack() as stack:
            kept = None
            if self.lines:
                kept = stack.enter_context(_StepFile(self._steps(number)))
            spill = self.folder / f"fields-{number}"
            tracer = Tracer(self.problem, paths, ends, kept, spill)
            with self._lock:
                self._running.append(tracer)
                if self._error is not None:
                    raise self._error
            try:
                tracer.run(self._threads)
            finally:
                with self._lock:
                    self._running.remove(tracer)
        rows["length"][which], rows["climb"][which] = tracer.sums.T
        if not self.problem.climbs:
            rows["climb"] = np.nan
        rows["cells"][which] = tracer.cells
        if kept is None:
            return np.empty((0, 3), np.int64)
        parts = kept.parts()
        parts[:, 0] = which[parts[:, 0]]
        return parts

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
            yield k, SourceRows(rows, ends, parts, self._steps(number))


class _StepFile:
    """A file that the steps of paths are appended to, from several threads."""

    def __init__(self, path: Path) -> None:
        self._out = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._found: list[np.ndarray] = []
        self._path, self._size, self._lock = path, 0, threading.Lock()

    def __enter__(self) -> _StepFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self._out.close()

    def add(self, which: np.ndarray, counts: np.ndarray, steps: np.ndarray) -> None:
        with self._lock, output_errors(self._path):
            self._out.write(steps.tobytes())
            self._out.flush()
            first = self._size + np.cumsum(counts) - counts
            self._size += len(steps)
            self._found.append(np.column_stack((which, first, counts))[counts > 0])

    def forget(self, which: np.ndarray) -> None:
        self._found = [part[~np.isin(part[:, 0], which)] for part in self._found]

    def parts(self) -> np.ndarray:
        """By path, in the order in which its parts were added."""
        parts = np.concatenate([np.empty((0, 3), np.int64), *self._found])
        return parts[np.argsort(parts[:, 0], kind="stable")]


@contextmanager
def run_folder(
    target: Path, settings: dict[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[Path]:
    """The folder of a run beside its output; it is removed when the run is complete.

    Raises
    ------
    OutputError
        when it cannot be made, or another run works there.
    StoreError
        when an unfinished run with other settings is to be resumed, or one is there and is not.
    """
    folder = target.with_name(f"{target.name}.unfinished")
    about = json.dumps(settings, sort_keys=True, default=str)
    with output_errors(folder):
        folder.mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"{folder}: another run works there; wait for its end") from None
        record = folder / "run.json"
        _refuse_left(folder, record, about, resume=resume, overwrite=overwrite)
        if not (resume and record.exists()):
            _empty(folder)
            with whole_file(record) as part:
                part.write_text(about)
        try:
            yield folder
        except BaseException:
            if not any(folder.glob(_BATCH.format("*"))):  # nothing to resume from
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _refuse_left(folder: Path, record: Path, about: str, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder with work that would be lost, or that does not belong to this run."""
    if not record.exists():
        if any(not left.name.startswith(".terrain_gpu-") for left in folder.iterdir()):
            raise OutputError(f"{folder}: not the folder of a run; move it, or name another table")
    elif resume and record.read_text() != about:
        raise StoreError(
            f"{folder}: left by a run with other settings or inputs; resume with the same, or "
            "start again with --overwrite"
        )
    elif not resume and not overwrite:
        raise StoreError(
            f"{folder}: left by an unfinished run; --resume continues it, --overwrite starts again"
        )


def _empty(folder: Path) -> None:
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()
