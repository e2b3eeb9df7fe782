"""Run command lines in every mode, and say what they leave, print and report."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import rasterio
import zarr

from terrain_gpu import __version__, progress
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group

UNEQUAL = {
    *("seconds", "bytes_read", "bytes_written", "peak_rss_bytes", "version", "versions"),
    *("machine", "started", "cells_per_second", "peak", "spilled_bytes", "loaded_bytes"),
    *("gpu_memory_bytes", "memory_limit", "blocks_resumed", "tiles_resumed", "cluster"),
}
"""Entries of reports that two runs do not share."""

BY_TIMING = {
    *("block_visits_per_block", "tile_visits_per_tile", "row_passes_per_visit"),
    *("region_visits", "waves", "block_visits", "tile_visits", "rounds"),
    *("block_loads", "proof_tasks"),
}
"""Entries that depend on which thread is first."""

LONG = 400
"""Characters from which on a text, such as WKT, is recorded as its digest."""

Row = dict[str, Any]
Stats = dict[str, tuple[int, int, int]]
"""Times, sizes and numbers of files."""


def parameters(command: str) -> set[str]:
    found = group.get_command(click.Context(group), command)
    return {one.name or "" for one in found.params} if found else set()


def run(line: str, more: str = "", *, stop_in: str | None = None) -> Row:
    """Run a command line in this process: its exit code, what it prints, and its steps.

    It may be stopped half-way in a step, as by Ctrl-C.
    """
    words = shlex.split(f"{line} {more}")
    steps: list[str] = []

    @contextlib.contextmanager
    def bar(label: str, *, quiet: bool = False) -> Iterator[progress.Progress]:
        done = 0.0
        steps.append(label)

        def show(cells: int, total: int) -> None:
            nonlocal done
            done += cells / total
            if label == stop_in and done >= 0.5:
                raise KeyboardInterrupt

        yield show

    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log = logging.getLogger("terrain_gpu")
    log.addHandler(handler)
    before, progress.bar = progress.bar, bar
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = options._guarded(lambda: group.main(words, "terrain-gpu", standalone_mode=False))
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        progress.bar = before
        log.removeHandler(handler)
    texts = [one for one in said.getvalue().splitlines() if "compiling kernels" not in one]
    return {"exit": code, "said": [plain(one) for one in texts], "steps": steps}


def plain(text: str) -> str:
    """A text without what two runs do not share."""
    text = text.replace(os.getcwd(), ".").replace(__version__, "VERSION")
    text = re.sub(r"\btmp\w{8}\b", "TEMPORARY", text)
    text = re.sub(r",? [\d,]+ \w+ resumed", "", text)  # how far a stopped run came
    return re.sub(r"\b[\d.,]+ (s|min|h)\b", r"N \1", text)


def shared(value: object, unequal: set[str]) -> Any:
    """What two runs share of a report: of its seconds, the names of the phases."""
    if isinstance(value, dict):
        found = {k: shared(v, unequal) for k, v in sorted(value.items()) if k not in unequal}
        timed = value.get("seconds")
        return found | ({"phases": sorted(timed)} if isinstance(timed, dict) else {})
    if isinstance(value, list):
        return [shared(one, unequal) for one in value]
    if isinstance(value, str):
        return plain(value) if len(value) < LONG else digest(value.encode())
    return value


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


# -- what lies in a folder -----------------------------------------------------------------------


def stats(folder: Path) -> Stats:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            found[str(path)] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found


def changes(before: Stats, folder: Path) -> Row:
    """What the files of a folder mean that are new or changed, and the names of those removed."""
    after = stats(folder)
    touched = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    units = sorted({unit_of(Path(path), folder) for path in touched})
    return {str(unit): meaning(unit) if unit.exists() else "removed" for unit in units}


def unit_of(path: Path, folder: Path) -> Path:
    """The array that a file belongs to, or the file."""
    for parent in path.parents:
        if parent == folder:
            break
        if is_array(parent):
            return parent
    return path


def is_array(folder: Path) -> bool:
    file = folder / "zarr.json"
    return file.is_file() and json.loads(file.read_bytes()).get("node_type") == "array"


def meaning(path: Path) -> Any:
    if path.is_dir():
        return of_array(path)
    if path.name == "zarr.json":
        return shared(json.loads(path.read_bytes()), UNEQUAL)
    if path.suffix == ".tif":
        return of_raster(path)
    return digest(path.read_bytes().replace(os.getcwd().encode(), b"."))


def of_array(path: Path) -> Row:
    array = zarr.open_array(path, mode="r")
    facts = shared(json.loads((path / "zarr.json").read_bytes()), UNEQUAL)
    return {"cells": digest(np.ascontiguousarray(array[...])), "zarr.json": facts}


def of_raster(path: Path) -> Row:
    with rasterio.open(path) as file:
        found: Row = {
            "cells": digest(file.read()),
            "bytes": digest(path.read_bytes()),
            "profile": {key: str(value) for key, value in sorted(file.profile.items())},
            "tags": {key: plain(value) for key, value in sorted(file.tags().items())},
            "band tags": {key: plain(value) for key, value in sorted(file.tags(1).items())},
        }
        levels = file.overviews(1)
    for number, level in enumerate(levels):
        with rasterio.open(path, overview_level=number) as file:
            found[f"overview {level}"] = digest(file.read())
    return found


# -- a command line in every mode ----------------------------------------------------------------


class Net:
    """Runs command lines in the current folder, each over a copy of the store that it names."""

    def __init__(self, stores: dict[str, str], scheduler: str | None, *, cuda: bool) -> None:
        self._stores, self._scheduler, self._cuda = stores, scheduler, cuda
        self.work, self._kept = Path("work"), Path("stores")

    def start(self, store: str) -> Stats:
        """Put a store, and the files beside it, into the folder where commands run."""
        kept = self._kept / store
        if not kept.exists():
            kept.mkdir(parents=True)
            for source in Path("inputs").iterdir():
                os.link(source, kept / source.name)
            (kept / "out").mkdir()
            for line in self._stores[store].strip().splitlines():
                with contextlib.chdir(kept):
                    made = run(line, f"{limits(line)} -q")
                if made["exit"]:
                    raise RuntimeError(f"store {store}: {line}: {made}")
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(kept, self.work)
        with contextlib.chdir(self.work):
            return stats(Path())

    def modes(self, store: str, line: str, *, all_modes: bool) -> Iterator[tuple[str, Any]]:
        """The rows of a command line, by mode."""
        has = parameters(first_word(line))
        here = limits(line, 2)
        first = self.row(store, line, limits(line, 1), proof="verify" in has and has_proof(line))
        proof = first.pop("verify", None)
        yield "1 thread", first
        if proof:
            yield "verify", proof
        if not all_modes:
            return
        if "threads" in has:
            yield "2 threads", self.row(store, line, here)
        if "scheduler" in has and self._scheduler:
            yield "workers", self.row(store, line, f"{limits(line)} --scheduler {self._scheduler}")
        if first["steps"] and "verify" in has:
            kept = "s.zarr" in line or "--store" in line  # not in a temporary store
            more = " --resume" * ("resume" in has and kept)
            yield "resumed", self.resumed(store, line, here, more, first["steps"][-1])
        if "backend" in has and self._cuda:
            yield "cuda", self.row(store, line, here.replace("cpu", "cuda"))

    def row(self, store: str, line: str, more: str, *, proof: bool = False) -> Row:
        """What a command line leaves, prints and reports, and perhaps what proofs say."""
        before = self.start(store)
        with contextlib.chdir(self.work):
            found = self._told(line, f"{more}{' --verify' * proof}")
            found["files"] = changes(before, Path())
            if proof and Path("s.zarr").exists():
                found["verify"] = self._told("verify s.zarr", limits("verify", 2))
        return found

    def resumed(self, store: str, line: str, more: str, again: str, last_step: str) -> Row:
        """The same of a run that was stopped half-way before."""
        before = self.start(store)
        with contextlib.chdir(self.work):
            stopped = run(line, more, stop_in=last_step)
            found = self._told(line, f"{more}{again}")
            return found | {"stopped": stopped, "files": changes(before, Path())}

    def _told(self, line: str, more: str) -> Row:
        """What a command line prints and reports."""
        report = Path("report.json")
        has_report = "json_target" in parameters(first_word(line))
        found = run(line, f"{more}{f' --json {report}' * has_report}")
        if report.exists():
            found["report"] = shared(json.loads(report.read_text()), UNEQUAL | BY_TIMING)
            report.unlink()
        return found


def first_word(line: str) -> str:
    return line.split(maxsplit=1)[0]


def has_proof(line: str) -> bool:
    """Whether the command takes --verify with its other options, and does the same with it."""
    sums_alone = line.startswith("accumulate") and "--directions" not in line
    by_index = line.startswith("compute-sssp") and "index" in line
    return not sums_alone and not by_index


def limits(line: str, threads: int | None = None) -> str:
    """Options that make runs of a command comparable."""
    has = parameters(first_word(line))
    if line.startswith("corridor") and "--source" not in line:
        has -= {"backend"}  # which is for the distances that it computes
    given = {"memory_limit": "--memory-limit 1GB", "backend": "--backend cpu"}
    given |= {"threads": f"--threads {threads}"} if threads else {}
    return " ".join(text for name, text in given.items() if name in has)


def unlike(first: Any, other: Any) -> Any:
    """What differs in another mode: nothing is an empty dictionary."""
    if not (isinstance(first, dict) and isinstance(other, dict)):
        return other
    found = {k: unlike(first.get(k), v) for k, v in other.items() if first.get(k) != v}
    return found | {k: "missing" for k in first.keys() - other.keys()}
