"""Record what every command does, says and leaves: the net that a refactoring is held against.

    python scripts/record_net.py before          # at the commit to compare with
    python scripts/record_net.py after           # after the change
    diff -r before after

The folder holds text: `rows/` a file for each command line of `net/cases.py` (digests of all cells,
tables and vectors, what layers record, the report, what it prints, and what `verify` says; with one
thread, and what differs with two, on workers, stopped half-way and resumed, and on a GPU where CUDA
works), `python/` the same for the methods of the accessor, `help/`, `plans/`, `signatures.txt` and
`messages.txt`, which has what the program says to wrong inputs. Times, sizes in memory and versions
are left out, so two recordings of one commit are equal.

`--only PATTERN` records the rows alone whose store or line it matches: `--only '^flow: hand'`.
Files that modes leave have to be equal; the script lists those that are not, and rows that fail,
and then ends with code 1. It also fails if a command of the program has no line.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
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

from net import cases, rows, surface, world

from terrain_gpu.cuda.backend import choose
from terrain_gpu.errors import TerrainError


@contextlib.contextmanager
def two_workers() -> Iterator[str | None]:
    """The address of a scheduler with two workers; None without Dask."""
    try:
        from distributed import LocalCluster
    except ImportError:
        yield None
        return
    how: dict[str, Any] = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    with LocalCluster(n_workers=2, processes=True, **how) as cluster:
        yield cluster.scheduler_address


def cuda_works() -> bool:
    try:
        return choose("cuda")[0] == "cuda"
    except TerrainError:
        return False


def slug(line: str) -> str:
    """A line as the name of a file."""
    short = re.sub(r"[^\w.]+", "-", line).strip("-")
    return (
        short
        if len(short) <= 120
        else f"{short[:110]}-{hashlib.sha256(line.encode()).hexdigest()[:8]}"
    )


def write(path: Path, found: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        found if isinstance(found, str) else json.dumps(found, indent=1, sort_keys=True) + "\n"
    )


def record(target: Path, only: str | None) -> list[str]:
    """Record into a new folder; return what is wrong."""
    wrong: list[str] = []
    cuda = cuda_works()
    if not cuda:
        print("CUDA does not work here: rows have no mode cuda")
    with contextlib.ExitStack() as stack:
        # Layers record where their cells are from, so all recordings use one folder.
        folder = Path(tempfile.gettempdir()) / "terrain_gpu-net"
        folder.mkdir()  # fails while another recording uses it
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(contextlib.chdir(folder))
        (folder / "inputs").mkdir()
        world.make(folder / "inputs")
        scheduler = stack.enter_context(two_workers())
        if scheduler is None:
            print("Dask is not installed: rows have no mode workers")
        net = rows.Net(cases.STORES, scheduler, cuda=cuda)
        for store, text in cases.CASES.items():
            for line in cases.lines_of(text):
                if not re.search(only or "", f"{store}: {line.removeprefix('- ')}"):
                    continue
                start, found = time.monotonic(), row(net, store, line)
                path = target / "rows" / line.removeprefix("- ").split()[0]
                write(path / f"{slug(line)}.{store}.json", found)
                wrong += troubles(found)
                print(f"{time.monotonic() - start:6.2f} s  {store}: {line}", flush=True)
        if only is None:
            start_again = time.monotonic()
            for name, text in surface.helps():
                write(target / "help" / f"{name}.txt", text)
            write(target / "signatures.txt", "\n".join(surface.signatures()) + "\n")
            told = list(surface.messages(net))
            write(target / "messages.txt", "\n".join(told))
            wrong += [f"accepted: {one}" for one in told if "exit code 0" in one]
            for name, plan in surface.plans():
                write(target / "plans" / f"{slug(name)}.json", plan)
            print(f"{time.monotonic() - start_again:6.2f} s  help, signatures, messages, plans")
            net.start("nothing")
            with contextlib.chdir(net.work):
                for call, made in surface.accessor():
                    write(target / "python" / f"{slug(call)}.json", {"call": call, **made})
    return wrong


def row(net: rows.Net, store: str, line: str) -> dict[str, Any]:
    """A command line in all its modes; of the others than the first one, what differs."""
    command = line.removeprefix("- ")
    found: dict[str, Any] = {"line": command, "store": store}
    first = None
    for mode, made in net.modes(store, command, all_modes=command == line):
        alone = first is None or mode == "verify"
        found[mode] = made if alone else rows.unlike(first, made)
        first = first or made
    return found


def troubles(found: dict[str, Any]) -> list[str]:
    """What must not be: a command that fails, a proof that refuses, a mode with other files."""
    line = f"{found['store']}: {found['line']}"
    wrong = []
    for mode, made in found.items():
        if isinstance(made, dict):
            if made.get("exit") == 2 and mode != "1 thread":
                continue  # a mode that the line does not have: its message is recorded
            if made.get("exit"):
                wrong.append(f"{line}, {mode}: failed: {made.get('said')}")
            elif mode not in ("1 thread", "verify") and made.get("files"):
                wrong.append(f"{line}, {mode}: other files: {', '.join(made['files'])}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write, which must be new")
    parser.add_argument("--only", metavar="PATTERN", help="record only rows that it matches")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists; name a new folder")
    if missing := surface.without_case():
        parser.error(f"no line of net/cases.py or net/surface.py runs: {', '.join(missing)}")
    os.environ["COLUMNS"] = "100"
    os.fsync = lambda fd: None  # type: ignore[assignment]
    target = given.folder.absolute()
    target.mkdir(parents=True)
    wrong = record(target, given.only)
    for one in wrong:
        print("WRONG:", one, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
