"""Compare what every command leaves on workers and in a bucket with what it leaves on a disk.

    bash scripts/compare_engines.sh [RASTER ...]

Rasters are whole files; without one, those in ../shared/dems and the sample. After each command of
tests/everywhere.py all files that it made, changed or removed are compared, and how it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bucket import new_bucket, serve
from cluster import processes
from everywhere import UNLIKE, has_workers, prepare, words_of
from samples import DEMS, SAMPLE

from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.connection import address_of
from terrain_gpu.store.objects import ObjectPath

LARGE = 10_000_000
"""Cells of a raster above which only the commands of `CHEAP` run."""

CHEAP = (
    "convert-dataset",
    "calc",
    "slope",
    "label-components",
    "compute-mst",
    "flow-direction",
    "fill",
    "flow-accumulation",
    "basins",
    "overviews",
)


def files_of(store: str, out: Path) -> dict[str, tuple[Any, Path | ObjectPath]]:
    """The version of each file of a store and of a folder, and where it is."""
    found: dict[str, tuple[Any, Path | ObjectPath]] = {}
    if "://" in store:
        place = ObjectPath(store)
        found |= {name: (told, place / name) for name, told in place.walk()}
    for prefix, folder in (("", Path(store)), ("out: ", out)):
        for path in folder.rglob("*") if folder.is_dir() else ():
            if path.is_file():
                at, told = f"{prefix}{path.relative_to(folder)}", path.stat()
                found[at] = (told.st_mtime_ns, told.st_size, told.st_ino), path
    return found


def digest(path: Path | ObjectPath) -> str:
    if isinstance(path, ObjectPath):
        return hashlib.sha256(path.read()[0]).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def commands_of(where: dict[str, Any]) -> list[list[str]]:
    """As in the tests, or those named, with the larger blocks of larger rasters."""
    large, found = where["cells"] > LARGE, []
    block = 1024 if large else 256 if where["cells"] > 500_000 else 128
    for words in words_of(where):
        if words[0] == "convert-dataset":
            words[words.index("--block-size") + 1] = str(block)
        # Others need what a command that is left out makes or removes.
        plain = words[0] in CHEAP and not {"rivers", "weighted", "links", "--epsilon"} & set(words)
        plain &= words[0] != "compute-mst" or "flow" in words
        if (not large or plain) and words[0] in (where["commands"] or words):
            found.append(words)
    return found


def outcomes(where: dict[str, Any], more: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Run all commands; yield for each how it ended and what it changed."""
    store, out, report = str(where["store"]), Path(where["out"]), where["folder"] / "report.json"
    out.mkdir()
    before: dict[str, Any] = {}
    for words in commands_of(where):
        text = (
            words[0] == "convert-dataset" and Path(where["raster"]).suffix != ".tif"
        )  # one process
        on_workers = more if has_workers(words[0]) and not text else ()
        telling = [] if "--json" in words else ["--json", str(report)]
        report.unlink(missing_ok=True)
        command = [*words, "-q", *telling, *on_workers]
        start, said = time.monotonic(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = options._guarded(lambda now=command: group.main(now, standalone_mode=False))
        told = json.loads(report.read_text())["settings"] if report.exists() else {}
        after = files_of(store, out)
        changed = {
            name: digest(path)
            for name, (version, path) in after.items()
            if name not in UNLIKE and before.get(name) != version and ".incomplete" not in name
        }
        heard = said.getvalue().replace(store, "STORE").replace(str(out), "OUT")
        label = " ".join(words).replace(store, "STORE").replace(str(out), "OUT")
        yield {
            "command": label.replace(str(where["folder"]), "FOLDER"),
            "code": code,
            "said": heard,
            "files": changed,
            "gone": sorted(n for n in before.keys() - after.keys() if ".incomplete" not in n),
            "tasks": told.get("cluster", {}).get("tasks"),
            "seconds": round(time.monotonic() - start, 2),
        }
        before = {name: version for name, (version, _) in after.items()}


@contextlib.contextmanager
def engine(name: str, server: str, folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where the store is, and options; such as "local", "workers 5", "bucket", "bucket 3"."""
    kind, _, workers = name.partition(" ")
    with contextlib.ExitStack() as stack:
        store, more = str(folder / "s.zarr"), ()
        if kind == "bucket":
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            store = f"{new_bucket(server, patch, folder / 'scratch')}/s.zarr"
        if workers:
            client = stack.enter_context(processes(int(workers)))
            more = "--scheduler", address_of(client)
        yield store, more


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What a command did otherwise than on one machine.

    Which of several wrong cells an error names depends on who comes first, also among threads; and
    so does what a refused command leaves to be resumed.
    """
    found = [key for key in ("command", "code", "gone") if one[key] != other[key]]
    if re.sub("[0-9]+", "N", one["said"]) != re.sub("[0-9]+", "N", other["said"]):
        found.append("said")
    names = one["files"].keys() | other["files"].keys()
    return found + sorted(
        name for name in names if one["files"].get(name) != other["files"].get(name)
    )


def compare(source: Path, given: argparse.Namespace, server: str, log: io.TextIOBase) -> int:
    """Run a raster's commands by all engines; returns how many left something else."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="terrain-gpu-engines-") as name:
        where = prepare(Path(name), source, given.side) | {"commands": given.commands}
        expected: list[dict[str, Any]] = []
        for kind in ["local", *given.engines.split(",")]:
            (folder := Path(name) / kind.replace(" ", "-")).mkdir()
            with engine(kind, server, folder) as (store, more):
                here, seconds = {**where, "store": store, "out": folder / "out"}, 0.0
                for k, found in enumerate(outcomes(here, more)):
                    if kind == "local":
                        expected.append(found)
                    unlike = differences(expected[k], found)
                    wrong, seconds = wrong + bool(unlike), seconds + found["seconds"]
                    told = {"raster": source.name, "engine": kind, "differs": unlike, **found}
                    told["files"] = len(found["files"])
                    print(json.dumps(told), file=log, flush=True)
                    if unlike:
                        print(f"{source.name}, {kind}: {found['command']}: {unlike}", flush=True)
            refused = sum(found["code"] != 0 for found in expected)
            told = f"{k + 1} commands, {refused} of them refused"
            print(f"{source.name}, {kind}: {told}, {seconds:.0f} s", flush=True)
            shutil.rmtree(folder)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/compare_engines.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("raster", nargs="*", type=Path)
    parser.add_argument(
        "--engines", default="workers 2,workers 3,workers 5,bucket", help="separated by commas"
    )
    parser.add_argument("--side", type=int, help="only the middle, so many cells wide and high")
    parser.add_argument("--commands", nargs="+", help="only these")
    parser.add_argument("--log", type=Path, default=Path("engines.jsonl"), help="all outcomes")
    given = parser.parse_args()
    rasters = given.raster or sorted(
        [SAMPLE, *(one for one in DEMS.glob("*.*") if one.suffix != ".md")],
        key=lambda one: one.stat().st_size,
    )
    os.fsync = lambda fd: None
    wrong = 0
    with serve() as server, given.log.open("a") as log:
        for source in rasters:
            wrong += compare(source, given, server, log)
    print(f"{len(rasters)} rasters, {wrong} differences")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
