"""Runs that the map starts, each in its own process with a scratch store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

import terrain_gpu

from ..errors import InputError, StoreError
from ..facts import JsonObject
from ..grid import GridSpec, Window
from ..grid.lengths import step_lengths
from ..paths.cost.models import MODELS
from ..store import Layer, TileStore
from ..store.files import output_errors
from ..store.levels import factors_of, place_of
from ..store.objects import ObjectPath
from ..store.scratch import scratch_folder
from ..store.temporary import TemporaryFolder
from .tiles import Source

COSTS = ("tobler", "langmuir", "surface", "absdiff", "minimax")
"""Cost models that need no further layer."""

OWN = ("cost_distance", "drawn_barriers", "upstream")
"""Prefixes of the names of layers that runs write."""

KEPT = 3
"""Number of runs whose results are kept; the files of older ones are removed."""

MOST_PLACES, MOST_LINES, MOST_CORNERS = 100, 100, 10_000

SHOWN = 400
"""Largest number of cells in a profile."""


@dataclass(frozen=True)
class MapJob:
    """A checked description of a computation.

    Attributes
    ----------
    kind
        "distance" or "watershed".
    places
        Sources, or the outlet: rows and columns of the store.
    factor
        The overview level on which it is computed; 1 for the store itself.
    barriers
        Lines of (row, col), as real numbers.
    """

    kind: str
    places: list[list[int]]
    cost: str
    factor: int
    barriers: list[list[list[float]]]

    @classmethod
    def read(cls, description: Any, source: Source) -> MapJob:
        """Read a job from JSON; raise InputError if it is not valid."""
        if not isinstance(description, dict):
            raise InputError("the job is not a JSON object")
        kind, cost = description.get("kind"), description.get("cost", COSTS[0])
        if kind not in ("distance", "watershed") or cost not in COSTS:
            raise InputError(f"unknown kind {kind!r} or cost {cost!r}")
        factor, barriers = description.get("factor", 1), description.get("barriers", [])
        levels = 1, *factors_of(source.store.grid) * (kind == "distance")
        if type(factor) is not int or factor not in levels:
            raise InputError(f"factor {factor!r} is not a level")
        places: Any = description.get("places")
        if not (_list(places, 1, MOST_PLACES) and all(_pair(cell, int) for cell in places)):
            raise InputError(f"places: give 1 to {MOST_PLACES} pairs of row and column")
        rows, cols = source.shape
        for row, col in places:
            if not (0 <= row < rows and 0 <= col < cols):
                raise InputError(f"row {row}, column {col} is outside the raster")
        valid = _list(barriers, 0, MOST_LINES) and all(
            _list(line, 2, MOST_CORNERS) and all(_pair(cell, int, float) for cell in line)
            for line in barriers
        )
        if not valid:
            raise InputError(
                f"barriers: give at most {MOST_LINES} lines of 2 to {MOST_CORNERS} corners, each "
                "a row and a column"
            )
        return cls(kind, places, cost, factor, barriers)


def _clipped(line: list[list[float]], rows: int, cols: int) -> Iterator[list[list[float]]]:
    """The parts of line segments inside the raster (Y.-D. Liang and B. A. Barsky 1984)."""
    tiny = 1e-3
    for begin, end in pairwise(line):
        first, last = 0.0, 1.0
        for start, stop, side in zip(begin, end, (rows, cols), strict=True):
            for step, room in (
                (stop - start, side - tiny - start),
                (start - stop, start - tiny),
            ):
                if step > 0:
                    last = min(last, room / step)
                elif step < 0:
                    first = max(first, room / step)
                elif room < 0:
                    last = -1.0
        if first <= last:
            yield [
                [start + share * (stop - start) for start, stop in zip(begin, end, strict=True)]
                for share in (first, last)
            ]


def _list(value: Any, least: int, most: int) -> bool:
    return isinstance(value, list) and least <= len(value) <= most


def _pair(value: Any, *types: type) -> bool:
    """Whether a value is a pair of numbers of limited size."""
    return _list(value, 2, 2) and all(type(v) in types and abs(v) < 2**32 for v in value)


@dataclass
class MapRun:
    """A run, and its result when it is done.

    Attributes
    ----------
    state
        "running", "done", "failed" or "cancelled".
    progress
        Phase, number of cells done and total, or the error.
    source
        The scratch store as a map.
    """

    number: int
    job: MapJob
    folder: Path
    process: subprocess.Popen[bytes]
    state: str = "running"
    progress: JsonObject = field(default_factory=dict)
    source: Source | None = None
    _links: Callable[[int, int], np.ndarray] | None = None
    """Reads blocks of backlinks, with a cache for the next path."""

    def describe(self) -> JsonObject:
        """Describe the run for the page."""
        return {"run": self.number, "state": self.state, **vars(self.job), **self.progress}

    def end(self) -> None:
        """End the process if it is still running."""
        if self.process.poll() is None:
            self.state = "cancelled"
            self.process.kill()
        self.process.wait()

    def path(self, row: int, col: int) -> JsonObject | None:
        """The least-cost path to a cell of the map: cells and profile; None if unreached."""
        from ..paths.relax.trace import (  # only now, for a fast first picture
            lengths_of,
            trace_path,
        )

        if self.source is None or self.job.kind != "distance":
            raise StoreError("there is no path yet; wait until the distances are computed")
        base, links = self.job.factor, self.source.shown("cost_distance_backlink").layer
        heights = self.source.store.layer(self.progress["heights"])
        if self._links is None:
            self._links = lru_cache(4)(links.read_block)
        cells = trace_path(self._links, links.blocks, row // base, col // base)
        if cells is None:
            return None
        steps = lengths_of(cells, _lengths_on(links.grid))
        along = np.append(0.0, np.cumsum(steps))
        sampled = np.unique(np.linspace(0, len(cells) - 1, min(len(cells), SHOWN)).astype(int))
        profile = _values(heights, cells[sampled])
        drawn = cells[:: max(1, len(cells) // 4000)]
        drawn = np.concatenate((drawn, cells[-1:]))
        return {
            "run": self.number,
            "cells": ((drawn + 0.5) * base).round(1).tolist(),
            "length": float(along[-1]),
            "cost": self.source.shown("cost_distance").pyramid.value(row, col),
            "profile": [
                [round(float(x), 2), y] for x, y in zip(along[sampled], profile, strict=True)
            ],
        }


@lru_cache(1)
def _lengths_on(grid: GridSpec) -> np.ndarray:
    return step_lengths(grid)


def _values(layer: Layer, path: np.ndarray) -> list[float | None]:
    """Values along a path, read by windows; None for nodata."""
    side, values_found, k = 256, [], 0
    while k < len(path):
        end = k + 1
        while end < len(path) and (path[end] // side == path[k] // side).all():
            end += 1
        segment = path[k:end]
        (r0, c0), (r1, c1) = segment.min(axis=0).tolist(), (segment.max(axis=0) + 1).tolist()
        window: Window = (r0, r1, c0, c1)
        values = layer.read_window(*window)[segment[:, 0] - r0, segment[:, 1] - c0].astype(float)
        empty = ~np.isfinite(values)
        if layer.nodata is not None:
            empty |= values == float(layer.nodata)
        values_found += [
            None if is_empty else value
            for value, is_empty in zip(values.tolist(), empty, strict=True)
        ]
        k = end
    return values_found


class MapRuns:
    """All runs of a map, one at a time.

    Parameters
    ----------
    source
        The store.
    heights
        Name of the elevation layer; with None, there are no runs.
    memory_limit, threads
        Limits for each run.
    """

    def __init__(
        self,
        source: Source,
        heights: str | None,
        memory_limit: int | str | None,
        threads: int | None,
    ) -> None:
        self._source, self._heights = source, heights
        self._limits = {"memory_limit": memory_limit, "threads": threads}
        self._lock = Lock()
        self._folder: TemporaryFolder | None = None
        self._count = 0
        self._closed = False
        self.runs: dict[int, MapRun] = {}

    @property
    def why_not(self) -> str | None:
        """The reason why nothing can be computed, or None."""
        if isinstance(self._source.store.path, ObjectPath):
            return "A store in object storage can only be shown; copy it to a disk to compute."
        return None if self._heights else "The store has no elevation layer."

    def start(self, description: Any) -> MapRun:
        """Start a run; a run in progress is ended.

        Raises
        ------
        InputError
            when the job cannot be used, or the map is closed.
        OutputError
            when its files cannot be written.
        """
        job = MapJob.read(description, self._source)
        if why := self.why_not:
            raise InputError(why)
        level = place_of(self._source.store.path, job.factor)
        if job.factor > 1 and not (level / str(self._heights) / "zarr.json").exists():
            raise InputError(f"factor {job.factor}: no such level; build overviews")
        with self._lock, output_errors(scratch_folder()):
            if self._closed:  # a request on a connection that is still open
                raise InputError("the map is closed; start it again")
            for run in self.runs.values():
                run.end()
            while len(self.runs) >= KEPT:
                self._remove(min(self.runs))
            if self._folder is None:
                self._folder = TemporaryFolder(scratch_folder())
            self._count += 1
            folder = self._folder.path / str(self._count)
            _mirror(level, folder)
            run = self.runs[self._count] = self._begin(job, folder)
        Thread(target=self._follow, args=(run,), daemon=True).start()
        return run

    def _begin(self, job: MapJob, folder: Path) -> MapRun:
        grid = TileStore.open(folder).grid
        a, _, c, _, e, f = grid.transform
        factor = job.factor
        rows, cols = self._source.shape
        clipped = (part for line in job.barriers for part in _clipped(line, rows, cols))
        lines = [
            [[c + a * col / factor, f + e * row / factor] for row, col in line] for line in clipped
        ]
        request = {**vars(job), **self._limits, "store": str(folder), "layer": self._heights}
        request["places"] = [[row // factor, col // factor] for row, col in job.places]
        request["barriers"] = lines
        package_parent = Path(terrain_gpu.__file__).parents[1]
        paths = [str(package_parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            # -P: do not import modules from the folder in which the map was started.
            [sys.executable, "-P", "-m", "terrain_gpu.map.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return MapRun(self._count, job, folder, process, progress={"heights": self._heights})

    def _follow(self, run: MapRun) -> None:
        """Read messages of the process until it ends."""
        assert run.process.stdout is not None
        last: JsonObject = {}
        for line in run.process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # a library has printed something
                last = dict(json.loads(line))
            if "phase" in last:
                run.progress = {**run.progress, **last}
        run.process.wait()
        if run.state != "running":
            return
        try:
            result = {**run.progress, "layer": last["layer"]}
            run.source = Source(
                TileStore.open(run.folder),
                run.job.factor,
                self._source.shape,
                {"cost_distance": MODELS[run.job.cost].unit or ""},
            )
            run.progress, run.state = result, "done"
        except (KeyError, StoreError):
            stopped = f"the run ended with exit code {run.process.returncode}"
            if run.process.returncode == -signal.SIGKILL:
                stopped = "the run was killed; lower --memory-limit if memory was full"
            run.progress = {**run.progress, "error": last.get("error", stopped)}
            run.state = "failed"

    def cancel(self, number: int) -> MapRun:
        """End a run.

        Raises
        ------
        StoreError
            when there is no such run.
        """
        with self._lock:
            run = self.runs.get(number)
            if run is None:
                raise StoreError(f"no run {number}")
            run.end()
        return run

    def _remove(self, number: int) -> None:
        shutil.rmtree(self.runs.pop(number).folder, ignore_errors=True)

    def close(self) -> None:
        """End all runs, and remove the scratch folder."""
        with self._lock:
            self._closed = True
            for run in self.runs.values():
                run.end()
            if self._folder is not None:
                self._folder.close()
                self._folder = None


def _mirror(level: Path, folder: Path) -> None:
    """Make a store whose layers are links to those of another one."""
    folder.mkdir()
    shutil.copyfile(level / "zarr.json", folder / "zarr.json")
    for name in TileStore.open(level).layers:
        if not name.startswith(OWN):  # a run would replace them
            os.symlink(level / name, folder / name)
