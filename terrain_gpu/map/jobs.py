"""Runs that the map starts, each in its own process with a scratch store."""

from __future__ import annotations

import contextlib
import json
import os
import re
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
from ..grid import GridSpec
from ..paths.cost.models import MODELS
from ..store import TileStore
from ..store.files import output_errors
from ..store.levels import factors_of, place_of
from ..store.objects import ObjectPath
from ..store.scratch import scratch_folder
from ..store.temporary import TemporaryFolder
from .paths import describe_path
from .tiles import Source

COSTS = ("tobler", "langmuir", "surface", "absdiff", "minimax")
"""Cost models that need no further layer."""

OWN = ("cost_distance", "drawn_barriers", "upstream")
"""Prefixes of the names of layers that runs write."""

CATCHMENT = "catchment.json"
"""The file of a watershed's outline and figures, in the folder of the run."""

KEPT = 3
"""Number of runs whose results are kept; the files of older ones are removed."""

MOST_PLACES, MOST_LINES, MOST_CORNERS = 100, 100, 10_000

FORMS = "tif", "gpkg", "geojson", "barriers"
"""Forms in which a result is written, see `MapRun.write`."""

LAYER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")

MOST_SNAP = 1e6
"""Largest distance of snapping, in map units or metres."""


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
    snap
        How far the outlet may be moved to the cell with the largest flow accumulation.
    """

    kind: str
    places: list[list[int]]
    cost: str
    factor: int
    barriers: list[list[list[float]]]
    snap: float

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
        snap = description.get("snap", 0)
        if type(snap) not in (int, float) or not 0 <= snap <= MOST_SNAP:
            raise InputError(f"snap: {snap!r} is not a distance from 0 to {MOST_SNAP:,.0f}")
        return cls(kind, places, cost, factor, barriers, float(snap))


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
    grid
        The grid of the map.
    command
        The command line that computes the same.
    """

    number: int
    job: MapJob
    folder: Path
    process: subprocess.Popen[bytes]
    grid: GridSpec
    command: str
    state: str = "running"
    progress: JsonObject = field(default_factory=dict)
    source: Source | None = None
    _links: Callable[[int, int], np.ndarray] | None = None
    """Reads blocks of backlinks, with a cache for the next path."""

    def describe(self) -> JsonObject:
        """Describe the run for the page."""
        return {
            "run": self.number,
            "state": self.state,
            "command": self.command,
            **vars(self.job),
            **self.progress,
        }

    def end(self) -> None:
        """End the process if it is still running."""
        if self.process.poll() is None:
            self.state = "cancelled"
            self.process.kill()
        self.process.wait()

    def path(self, row: int, col: int) -> JsonObject | None:
        """The least-cost path to a cell of the map: cells and profile; None if unreached."""
        from ..paths.relax.trace import trace_path  # only now, for a fast first picture

        if self.source is None or self.job.kind != "distance":
            raise StoreError("there is no path yet; wait until the distances are computed")
        links = self.source.shown("cost_distance_backlink").layer
        base, heights = self.job.factor, self.source.store.layer(self.progress["heights"])
        if self._links is None:
            self._links = lru_cache(4)(links.read_block)
        path = trace_path(self._links, links.blocks, row // base, col // base)
        if path is None:
            return None
        cost = self.source.shown("cost_distance").pyramid.value(row, col)
        return {"run": self.number, "cost": cost, **describe_path(path, base, heights)}

    def catchment(self) -> JsonObject:
        """The outline, statistics and flow path of what is upstream, from the worker's file."""
        if self.source is None or self.job.kind != "watershed":
            raise StoreError("there is no catchment yet; wait until the run ends")
        told: JsonObject = json.loads((self.folder / CATCHMENT).read_text())
        return {"run": self.number, **told}

    def write(self, form: str, places: list[list[int]], limits: JsonObject) -> str:
        """Write a file of the result; return its name.

        Parameters
        ----------
        form
            "tif" for a cloud-optimised GeoTIFF; "gpkg" or "geojson" for the outline of a catchment
            and its flow path, or for the paths to places; "barriers" for them as GeoJSON.
        """
        from ..io.export import export_layer  # only now, for a fast first picture
        from .downloads import catchment_layers, lines_layer, write_vectors

        if self.source is None:
            raise StoreError("there is no result yet; wait until the run ends")
        grid, vectors = self.grid, []
        name = {"distance": "cost_distance", "watershed": "upstream"}[self.job.kind]
        folder = self.folder / "files"
        folder.mkdir(exist_ok=True)
        if form == "tif":
            file = folder / f"{name}.tif"
            export_layer(self.source.store, file, layer=name, cog=True, overwrite=True, **limits)
            return file.name
        if form == "barriers":
            file = folder / "barriers.geojson"
            vectors = [lines_layer("barriers", grid, [(line, {}) for line in self.job.barriers])]
        elif self.job.kind == "watershed":
            file = folder / f"upstream.{form}"
            vectors = catchment_layers(grid, self.catchment())
        else:
            file = folder / f"paths.{form}"
            paths = [path for row, col in places if (path := self.path(row, col))]
            if not paths:
                raise InputError("no path leads there; pin cells that can be reached")
            numbers = "cost", "length", "climb", "descent"
            lines = [(path["cells"], {key: float(path[key]) for key in numbers}) for path in paths]
            vectors = [lines_layer("paths", grid, lines)]
        write_vectors(file, grid, vectors)
        return file.name


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
        self._limits: JsonObject = {"memory_limit": memory_limit, "threads": threads}
        self._lock, self._files = Lock(), Lock()
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
            _mirror(level, folder / "store")
            run = self.runs[self._count] = self._begin(job, folder)
        Thread(target=self._follow, args=(run,), daemon=True).start()
        return run

    def _begin(self, job: MapJob, folder: Path) -> MapRun:
        store = folder / "store"
        from .downloads import command_of

        grid = TileStore.open(store).grid
        a, _, c, _, e, f = grid.transform
        factor = job.factor
        rows, cols = self._source.shape
        clipped = (part for line in job.barriers for part in _clipped(line, rows, cols))
        lines = [
            [[c + a * col / factor, f + e * row / factor] for row, col in line] for line in clipped
        ]
        request = {**vars(job), **self._limits, "store": str(store), "layer": self._heights}
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
        return MapRun(
            self._count,
            job,
            folder,
            process,
            self._source.store.grid,
            command_of(Path(self._source.store.path), vars(job)),
            progress={"heights": self._heights},
        )

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
                TileStore.open(run.folder / "store"),
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

    def write(self, run: MapRun, description: Any) -> str:
        """Write a file of a result, see `MapRun.write`, one at a time; return its name."""
        if not isinstance(description, dict) or description.get("form") not in FORMS:
            raise InputError(f"form: give one of {', '.join(FORMS)}")
        places = description.get("places", [])
        inside = _list(places, 0, MOST_PLACES) and all(
            _pair(cell, int)
            and 0 <= cell[0] < self._source.shape[0]
            and 0 <= cell[1] < self._source.shape[1]
            for cell in places
        )
        if not inside:
            raise InputError(f"places: give at most {MOST_PLACES} cells inside the raster")
        with self._files, output_errors(scratch_folder()):
            return run.write(description["form"], places, self._limits)

    def keep(self, run: MapRun, description: Any) -> str:
        """Copy the result of a run into the store, as a layer of a new name; return the name.

        Raises
        ------
        InputError
            when the run is of a coarser level, or the store already has a layer of this name.
        """
        from ..io.export import export_layer

        name = description.get("name") if isinstance(description, dict) else None
        if run.source is None:
            raise StoreError("there is no result yet; wait until the run ends")
        if run.job.factor > 1:
            raise InputError("this result has coarser cells than the store; download it instead")
        if not isinstance(name, str) or not LAYER_NAME.fullmatch(name):
            raise InputError(f"name: {name!r} cannot be a layer; use letters, digits and _")
        if name in self._source.store:
            raise InputError(f"the store already has a layer {name!r}; choose another name")
        with self._files, output_errors(scratch_folder()):
            renamed = run.folder / "renamed"
            shutil.rmtree(renamed, ignore_errors=True)
            renamed.mkdir()
            store = Path(run.source.store.path)
            shutil.copyfile(store / "zarr.json", renamed / "zarr.json")
            os.symlink(store / run.progress["layer"], renamed / name)
            export_layer(
                renamed, self._source.store.path, layer=name, overwrite=True, **self._limits
            )
        return name

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
    folder.mkdir(parents=True)
    shutil.copyfile(level / "zarr.json", folder / "zarr.json")
    for name in TileStore.open(level).layers:
        if not name.startswith(OWN):  # a run would replace them
            os.symlink(level / name, folder / name)
