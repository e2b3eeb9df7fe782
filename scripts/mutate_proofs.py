"""Count the faults in solvers that proofs find: mutants of kernels, and of what kernels import.

    python scripts/mutate_proofs.py --each 10 > after.txt        # a table; hours with large numbers
    python scripts/mutate_proofs.py --only '^slope' --each 40

For each operation, faults of one line are made in the functions that it runs: kernels, those that
they call, and functions of the modules that kernels import (lengths, masks, edges); not proofs, and
not storage. Operators are turned round, comparisons and constants changed, at places that a fixed
seed draws. The operation then runs with `--verify` over a small raster of four blocks, in a process
of its own that compiles what has changed and keeps nothing. A mutant is

- killed, if the proof refuses;
- broken, if the run fails in another way, or does not end;
- equal, if no cell, table or line is another;
- survived, if some are and the proof accepts them: each is listed with its place and with what is
  another. Tables that `docs/design/proofs.md` says are not proven are not written.

`scripts/mutants.txt` is what this printed before the redesign of the package. No proof may kill
fewer of them afterwards.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numba
import numpy as np
from faults import PACKAGE, Fault, faults_of, mutated
from net import rows, world

from terrain_gpu import compiled

SHAPE = 70, 66
SECONDS = 40
"""Of a processor, after which a mutant does not end."""

CONVERT = "convert-dataset dem.tif s.zarr --block-size 64"
FLOW = f"{CONVERT}\nflow-direction s.zarr\nflow-accumulation s.zarr"
TREE = f"{CONVERT}\ncompute-mst s.zarr --weight flow"
WITH_RAIN = f"{FLOW}\n{CONVERT.replace('dem', 'rain')} --layer rain"
WITH_FRICTION = f"{CONVERT}\n{CONVERT.replace('dem', 'friction')} --layer friction"
TWO = "--source-rowcol 12,9 --source-rowcol 50,40"
FROM_A = "compute-sssp s.zarr --source-rowcol 12,9 --into a"
DISTANCES = f"{CONVERT}\n{FROM_A}\ncompute-sssp s.zarr --source-rowcol 50,40 --into b"

OPERATIONS = {
    "slope s.zarr --aspect aspect": CONVERT,
    "compute-mst s.zarr": CONVERT,
    "compute-mst s.zarr --method contract": CONVERT,
    "compute-mst s.zarr --weight flow": CONVERT,
    f"compute-sssp s.zarr {TWO} --backlink b.tif --allocation a.tif": CONVERT,
    f"compute-sssp s.zarr {TWO} --cost tobler --backlink b.tif": CONVERT,
    f"compute-sssp s.zarr {TWO} --cost friction --friction friction": WITH_FRICTION,
    f"compute-sssp s.zarr {TWO} --friction friction --metric continuous": WITH_FRICTION,
    f"compute-sssp s.zarr {TWO} --cost surface --method dijkstra": CONVERT,
    "build-index s.zarr --tile 32 --levels 1": CONVERT,
    f"cost-matrix s.zarr {TWO} -o out/m.csv": CONVERT,
    f"least-cost-network s.zarr {TWO} -o out/n.geojson": CONVERT,
    "corridor s.zarr a b": DISTANCES,
    "label-components s.zarr --where 'elevation > 500'": CONVERT,
    "accumulate s.zarr --directions paths": TREE,
    "network s.zarr out/n.geojson --min-length 90": TREE,
    "calc s.zarr 'where(elevation > 500, elevation * 2, abs(elevation - 9))'": CONVERT,
    "rasterize s.zarr --features zones.tif": CONVERT,
    "burn s.zarr --streams zones.tif --depth 3": CONVERT,
    "breach s.zarr --max-distance 9": CONVERT,
    "flow-direction s.zarr": TREE,
    "flow-direction s.zarr --flats gradient --into gradient": f"{FLOW}\nfill s.zarr",
    "flow-accumulation s.zarr --areas --into areas": FLOW,
    "flow-accumulation s.zarr --weights rain --statistic max --into most": WITH_RAIN,
    "flow-accumulation s.zarr --method dinf --into divided": f"{FLOW}\nfill s.zarr",
    "flow-accumulation s.zarr --method mfd --into divided": f"{FLOW}\nfill s.zarr",
    "fill s.zarr": FLOW,
    "fill s.zarr --epsilon": FLOW,
    "fill s.zarr --keep-deeper-than 9": FLOW,
    "hand s.zarr --threshold 20 --distance far": FLOW,
    "hand s.zarr --threshold 20 --method dinf": f"{FLOW}\nfill s.zarr",
    "basins s.zarr": FLOW,
    "depressions s.zarr --table out/t.csv": FLOW,
    "fill-spill-merge s.zarr --rain 0.4": FLOW,
    "watershed s.zarr --pour-point-rowcol 30,30 --pour-point-rowcol 40,12": FLOW,
    "streams s.zarr --threshold 20": FLOW,
    "streams s.zarr --threshold 20 --order horton": FLOW,
    "terrain-indices s.zarr --twi twi --spi spi --ls ls": f"{FLOW}\nslope s.zarr",
    "polygons s.zarr out/p.geojson --layer basins": f"{FLOW}\nbasins s.zarr",
    "contours s.zarr out/c.geojson --interval 40": CONVERT,
    "contours s.zarr out/c.geojson --interval 40 --polygons": CONVERT,
    "overviews s.zarr --layer elevation": "convert-dataset wide.tif s.zarr --block-size 64",
}
"""Command lines, and those that make the store that they start from."""

LEFT_OUT = {
    *("cli", "store", "io", "engine", "map", "cuda"),
    *("grid/tiling.py", "grid/morton.py", "grid/spec.py", "grid/crs.py"),
}
"""Folders and files whose faults are no faults of a solver."""


# -- in the process of a mutant ------------------------------------------------------------------


def use(fault: Fault) -> None:
    """Import the package anew, with a fault; kernels that import its file are compiled anew."""
    place = PACKAGE / fault.file
    for name in [one for one in sys.modules if one.partition(".")[0] in ("terrain_gpu", "net")]:
        del sys.modules[name]
    usual = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        if Path(loader.path) == place:
            return compile(ast.fix_missing_locations(mutated(fault)), loader.path, "exec")
        return usual(loader, name)

    numba.core.config.OPT = numba.core.config._OptLevel(1)  # what is compiled runs once
    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    fresh = importlib.import_module("terrain_gpu.compiled")
    digest = fresh.digest_of
    # Kernels of sources that have changed are neither read nor kept.
    fresh.digest_of = lambda file: None if place in fresh.sources_of(Path(file)) else digest(file)


def attempt(fault: Fault | None, line: str, answer: Any) -> None:
    """Run an operation with a fault in the current folder, and answer what it leaves."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if fault is not None:
        use(fault)
    net_rows = importlib.import_module("net.rows")
    before = net_rows.stats(Path())
    found = net_rows.run(line, f"{net_rows.limits(line, 1)} --verify -vv")
    answer.put((found["exit"], found["said"], meant(net_rows.changes(before, Path()))))


def meant(files: dict[str, Any]) -> dict[str, Any]:
    """The cells of layers and the bytes of tables and vectors, without what layers record."""
    cells = {k: v["cells"] for k, v in files.items() if isinstance(v, dict) and "cells" in v}
    return cells | {k: v for k, v in files.items() if k.startswith("out/")}


def prepare(store: str, answer: Any) -> None:
    """Make the store that an operation starts from; answer what went wrong."""
    for line in store.splitlines():
        found = rows.run(line, f"{rows.limits(line)} -q")
        if found["exit"]:
            answer.put(f"{line}: {found}")
    answer.put("")


def functions_of(line: str, answer: Any) -> None:
    """Answer the functions that an operation runs, by file, without its proof."""
    seen: set[tuple[str, str]] = set()

    def trace(frame: types.FrameType, event: str, value: Any) -> None:
        seen.add((frame.f_code.co_filename, frame.f_code.co_name))

    threading.settrace(trace)
    sys.settrace(trace)
    rows.run(line, rows.limits(line, 1))
    sys.settrace(None)
    kernels = set()
    waiting = [one for one in gc.get_objects() if isinstance(one, numba.core.dispatcher.Dispatcher)]
    waiting = [one for one in waiting if one.overloads]
    while waiting:
        kernel = waiting.pop()
        place = kernel.py_func.__code__.co_filename, kernel.py_func.__name__
        if place not in kernels:
            kernels.add(place)
            given = kernel.py_func.__globals__
            called = [given.get(name) for name in kernel.py_func.__code__.co_names]
            waiting += [one for one in called if hasattr(one, "py_func")]
    kernels = {one for one in kernels if of_solver(one[0])}
    imported = {str(one) for file, _ in kernels for one in compiled.sources_of(Path(file))}
    # What has no kernels, as calc, is mutated in all that it runs.
    hosts = {one for one in seen if of_solver(one[0]) and (not kernels or one[0] in imported)}
    found: dict[str, set[str]] = {}
    for file, name in kernels | hosts:
        found.setdefault(file, set()).add(name)
    answer.put({file: sorted(names) for file, names in found.items()})


def of_solver(file: str) -> bool:
    """Whether a file is of the package's solvers, and no proof."""
    if PACKAGE not in Path(file).parents:
        return False
    parts = Path(file).relative_to(PACKAGE).parts
    proof = any(part.startswith("proof") for part in parts)
    return len(parts) > 1 and not proof and not LEFT_OUT & {parts[0], "/".join(parts)}


# -- in the process that starts them -------------------------------------------------------------


def in_process(work: Any, *given: Any, seconds: float) -> Any:
    """What a function answers in a process forked from this one; None if it does not end."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=work, args=(*given, answers))
    process.start()
    until = time.monotonic() + seconds
    while answers.empty() and process.is_alive() and time.monotonic() < until:
        time.sleep(0.02)
    found = None if answers.empty() else answers.get()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    return found


def outcome(found: Any, right: dict[str, Any]) -> str:
    if found is None:
        return "broken"
    code, said, left = found
    if code:
        return "killed" if "VerificationError" in " ".join(said) else "broken"
    return "equal" if left == right else "survived"


def mutate(line: str, store: str, each: int, folder: Path) -> dict[str, Any]:
    """Try so many mutants of an operation."""
    kept, work = folder / "kept", folder / "work"
    for path in (kept, work):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / "inputs", kept)
    with contextlib.chdir(kept):
        if made := in_process(prepare, store, seconds=10 * SECONDS):
            raise RuntimeError(made)

    def tried(work_of: Any, *given: Any) -> Any:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(kept, work)
        with contextlib.chdir(work):
            return in_process(work_of, *given, seconds=10 * SECONDS)

    functions = tried(functions_of, line)
    reference = tried(attempt, None, line)
    if not functions or reference is None or reference[0]:
        raise RuntimeError(f"{line}: {functions}, {reference}")
    places = [
        fault
        for file, names in sorted(functions.items())
        for fault in faults_of(Path(file), set(names))
    ]
    drawn = random.Random(line).sample(places, min(each, len(places)))
    counts: Counter[str] = Counter()
    survived = []
    for fault in drawn:
        found = tried(attempt, fault, line)
        how = outcome(found, reference[2])
        counts[how] += 1
        if how == "survived":
            names = found[2].keys() | reference[2].keys()
            other = [one for one in sorted(names) if found[2].get(one) != reference[2].get(one)]
            survived.append(f"{fault} ({', '.join(other)})")
        why = ("did not end" if found is None else found[1][-1:]) if how == "broken" else ""
        print(f"  {how:9}{fault} {why}", file=sys.stderr, flush=True)
    return {"counts": counts, "survived": survived}


def inputs(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "out").mkdir()
    rng = np.random.default_rng(47)
    world.save(folder / "dem.tif", world.heights(rng, *SHAPE), nodata=world.NODATA)
    world.save(folder / "wide.tif", world.heights(rng, 70, 300), nodata=world.NODATA)
    world.save(folder / "rain.tif", rng.integers(1, 9, SHAPE).astype("f4"))
    world.save(folder / "friction.tif", rng.integers(1, 9, SHAPE).astype("f4"))
    zones = np.zeros(SHAPE, "u1")
    zones[5:60, 20], zones[30, 3:66] = 2, 1
    world.save(folder / "zones.tif", zones, nodata=0)


def chosen(only: str | None) -> Iterator[tuple[str, str]]:
    return ((line, store) for line, store in OPERATIONS.items() if re.search(only or "", line))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--each", type=int, default=10, help="mutants of each operation")
    parser.add_argument("--only", metavar="PATTERN", help="operations whose line it matches")
    given = parser.parse_args()
    os.fsync = lambda fd: None  # type: ignore[assignment]
    total: Counter[str] = Counter()
    print("mutants  killed  broken   equal  survived  operation")
    with tempfile.TemporaryDirectory() as name:
        inputs(Path(name) / "inputs")
        for line, store in chosen(given.only):
            print(line, file=sys.stderr, flush=True)
            found = mutate(line, store, given.each, Path(name))
            counts = found["counts"]
            total += counts
            print(_row(counts, line), flush=True)
            for place in found["survived"]:
                print(f"{'':41}  survived: {place}", flush=True)
    print(_row(total, "all"))
    return 0


def _row(counts: Counter[str], line: str) -> str:
    numbers = [counts[kind] for kind in ("killed", "broken", "equal", "survived")]
    widths = (8, 8, 8, 10)
    return (
        f"{sum(numbers):7}"
        + "".join(f"{n:{w}}" for n, w in zip(numbers, widths, strict=True))
        + f"  {line}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
