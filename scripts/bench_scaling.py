"""Strong scaling of operations over worker processes of one host, beside what `plan` predicts.

    python scripts/bench_scaling.py FILE.json --folder FOLDER [--side 30000] [--workers 1 4 16 32]
        [--like 12288]
    python scripts/bench_scaling.py FILE.json                  # print the tables again
    python scripts/bench_scaling.py FILE.json --plot OUT.png   # draw them; needs matplotlib

The first form makes a raster in FOLDER and runs every operation with every number of workers, most
workers first. FILE is written after each run, so the same command goes on where one ended. What
would not end within --seconds is left out. Layers are deleted when nothing needs them any more.

Predictions take the storage as measured here, with as many writers as workers, and with --like SIDE
the speed of this host's cores from runs over a raster of that side with the fewest workers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import mmap
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from make_terrain import terrain_window

BLOCK = 1024
SMALL = 1500
"""Side of a raster that every operation computes first, so that kernels are compiled."""
START = 12.0
"""Seconds that a program may take to start and to end."""
PROGRAM = [sys.executable, "-c", "from terrain_gpu.cli.main import main; main()"]


class Operation(NamedTuple):
    """A command, without the words that all have.

    Attributes
    ----------
    words
        {folder} is that of the stores, {store} the name of one, {middle} a cell.
    plan
        Words of `plan --for`.
    makes
        The layer that it writes.
    needs
        The operation whose layer it reads.
    """

    words: str
    plan: str
    makes: str
    needs: str = ""


OPERATIONS = {
    "convert": Operation(
        f"convert-dataset {{folder}}/source.tif {{store}} --block-size {BLOCK}",
        "convert",
        "elevation",
    ),
    "slope": Operation("slope {store}", "slope", "slope"),
    "components": Operation(
        "label-components {store} --where 'elevation > 500'", "components", "components"
    ),
    "spanning tree": Operation("compute-mst {store}", "mst", "mst"),
    "accumulate": Operation("accumulate {store}", "accumulate", "accumulation", "spanning tree"),
    "flow tree": Operation("compute-mst {store} --weight flow", "mst --weight flow", "mst"),
    "flow-direction": Operation(
        "flow-direction {store}", "flow-direction", "flow_direction", "flow tree"
    ),
    "flow-accumulation": Operation(
        "flow-accumulation {store}", "flow-accumulation", "flow_accumulation", "flow-direction"
    ),
    "cost distance": Operation(
        "compute-sssp {store} --cost friction --layer friction --friction friction "
        "--source-rowcol {middle}",
        "sssp --cost friction --layer friction --friction friction --dtype float32",
        "distance",
    ),
}


def friction_layer(store: Path) -> None:
    """Write frictions from 1 to 50 beside the heights."""
    from terrain_gpu import TileStore, create_layer

    grid = TileStore.open(store).grid
    with create_layer(
        store, "friction", grid, np.dtype("float32"), nodata=np.nan, block_size=BLOCK
    ) as layer:

        def write(at: tuple[int, int]) -> None:
            window = layer.block_window(*at)
            layer.write_block(*at, 1 + terrain_window(*window, dtype="float32", relief=49.0))

        with ThreadPoolExecutor() as pool:
            list(pool.map(write, list(layer.blocks.ids())))
        layer.commit()


# -- the host -------------------------------------------------------------------------------------


def speeds(folder: Path, threads: int) -> dict[str, float]:
    """What so many threads do per second: Mcells of terrain made, GB copied, GB written."""
    cells, to = np.ones(2**25), [np.ones(2**22) for _ in range(threads)]
    files, chunk = [folder / f"speed{k}" for k in range(threads)], bytes(mmap.mmap(-1, 2**22))

    def make(k: int) -> float:
        for n in range(3):
            terrain_window(n * BLOCK, (n + 1) * BLOCK, k * BLOCK, (k + 1) * BLOCK)
        return 3 * BLOCK**2 / 1e6

    def copy(k: int) -> float:
        for n in range(8):
            np.copyto(to[k], cells[n * 2**22 :][: 2**22])
        return 8 * to[k].nbytes / 1e9

    def write(k: int) -> float:
        names = [files[k].with_suffix(f".{n}") for n in range(16)]
        for name in names:
            with name.open("wb") as out:
                out.write(chunk)
                os.fsync(out.fileno())
        for name in names:
            name.unlink()
        return len(names) * len(chunk) / 1e9

    found = {}
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(make, range(threads)))
        for work in (make, copy, write):
            start = time.perf_counter()
            done = sum(pool.map(work, range(threads)))
            found[work.__name__] = done / (time.perf_counter() - start)
    return found


def host(folder: Path, workers: list[int]) -> dict[str, Any]:
    """Describe this machine."""
    named = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": (named or [platform.processor()])[0],
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "speeds": {str(count): speeds(folder, count) for count in workers},
    }


# -- runs -----------------------------------------------------------------------------------------


class Bench:
    """The runs in a folder, and the file of what they reported.

    Attributes
    ----------
    found
        side, memory_limit, host, like (reports of a smaller raster, by operation), and runs: by
        operation, then by number of workers.
    most
        The most workers, which also make what other runs need.
    """

    def __init__(
        self, file: Path, folder: Path, side: int, memory_limit: str, most: int, deadline: float
    ) -> None:
        self.file, self.folder, self.most, self.deadline = file, folder, most, deadline
        self.found = {
            "side": side,
            "memory_limit": memory_limit,
            "host": {},
            "like": {},
            "runs": {},
        }
        if file.exists():
            self.found |= read(file)
        if (self.found["side"], self.found["memory_limit"]) != (side, memory_limit):
            raise SystemExit(f"{file}: of another side or --memory-limit; give another FILE")
        made = folder / "made.json"
        self.made: dict[str, str] = read(made) if made.exists() else {}

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def prepare(self, operations: list[str]) -> bool:
        """Make what they read, unless it is there; return whether it is."""
        store, source, side = self.folder / "a.zarr", self.folder / "source.tif", self.found["side"]
        if "elevation" not in self.made:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not source.exists():
                script = Path(__file__).with_name("make_terrain.py")
                words = [f"{side}x{side}", str(source), "--dtype", "uint16"]
                subprocess.run([sys.executable, str(script), *words], check=True)
            shutil.rmtree(store, ignore_errors=True)
            if self.run("convert", self.most) is None:
                return False
        if "convert" not in operations:
            source.unlink(missing_ok=True)
        if "cost distance" in operations and "friction" not in self.made:
            friction_layer(store)
            self.note("friction", "")
        return True

    def note(self, layer: str, name: str) -> None:
        """Remember what made a layer, also for the next call."""
        self.made[layer] = name
        write(self.folder / "made.json", self.made)

    def run(self, name: str, workers: int) -> dict[str, Any] | None:
        """Run an operation and what it needs; return the report, or None if there is no time."""
        operation = OPERATIONS[name]
        needed = operation.needs
        there = not needed or self.made.get(OPERATIONS[needed].makes) == needed
        if not there and self.run(needed, self.most) is None:
            return None
        store = self.folder / "a.zarr"
        if name == "convert" and store.exists():
            store = self.folder / "again.zarr"
        if self.expected(name, workers) + START > self.left:
            print(f"{name}, {workers} workers: left out, {self.left:.0f} s are left", flush=True)
            return None
        middle = f"{self.found['side'] // 2},{self.found['side'] // 2}"
        report = self.folder / "report.json"
        words = shlex.split(
            operation.words.format(folder=self.folder, store=store, middle=middle)
            + f" --workers {workers} --memory-limit {self.found['memory_limit']} --overwrite -q"
            + f" --json {report}"
        )
        start = time.monotonic()
        if not finished(words, self.left):
            return None
        told = read(report) | {"program": time.monotonic() - start}
        self.found["runs"].setdefault(name, {})[str(workers)] = told
        write(self.file, self.found)
        self.note(operation.makes, name)
        if store.name == "again.zarr":
            shutil.rmtree(store)
        elif name != "convert" and all(name != other.needs for other in OPERATIONS.values()):
            shutil.rmtree(store / operation.makes)
        print(
            f"{name}, {workers} workers: {told['seconds']['total']:.2f} s, "
            f"program {told['program']:.2f} s",
            flush=True,
        )
        return told

    def expected(self, name: str, workers: int) -> float:
        """Estimate the seconds of a run, from one with more workers or from its plan."""
        ran = self.found["runs"].get(name, {})
        known = [int(count) for count in ran if int(count) >= workers]
        if known:
            nearest = min(known)
            return float(ran[str(nearest)]["seconds"]["total"] * nearest / workers)
        predicted = prediction(self.found, name, workers)
        return 2 * predicted["seconds"]["total"] if predicted else 0.0


def finished(words: list[str], seconds: float) -> bool:
    """Run the program, but not longer; return whether it succeeded."""
    run = subprocess.Popen([*PROGRAM, *words], start_new_session=True)
    try:
        run.wait(max(seconds, 1))
    except BaseException as error:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(5)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    if run.returncode:
        print(f"{' '.join(words)}: exit status {run.returncode}", flush=True)
    return not run.returncode


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, found: Any) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


# -- what was measured, and predicted -------------------------------------------------------------


def prediction(found: dict[str, Any], name: str, workers: int) -> dict[str, Any] | None:
    """Return what `plan` predicts for a run of these; None where there is no forecast."""
    from terrain_gpu.cli.plan import command

    side, limit = found["side"], found["memory_limit"]
    words = shlex.split(
        f"{side}x{side} --dtype uint16 --block-size {BLOCK} --for {OPERATIONS[name].plan}"
        f" --workers {workers} --memory-limit {limit} --json -"
    )
    if speeds := found["host"].get("speeds", {}).get(str(workers)):
        words += ["--storage", f"{speeds['write']:.2f}GB"]
    told = io.StringIO()
    with contextlib.redirect_stdout(told), tempfile.NamedTemporaryFile("w") as like:
        if report := found.get("like", {}).get(name):
            json.dump(report, like)
            like.flush()
            words += ["--like", like.name]
        try:
            command.main(words, standalone_mode=False)
        except Exception as error:
            print(f"plan of {name}: {error}", file=sys.stderr)
            return None
    cluster: dict[str, Any] | None = json.loads(told.getvalue())["result"].get("cluster")
    return cluster if cluster and cluster.get("seconds") else None


def table(found: dict[str, Any], title: str, cell: Callable[..., str]) -> str:
    """Return a table of all runs; `cell` gets operation, workers and report."""
    counts = sorted({int(count) for ran in found["runs"].values() for count in ran})
    lines = [
        f"| {title} | "
        + " | ".join(f"{count} worker{'s' * (count > 1)}" for count in counts)
        + " |",
        "| --- " * (len(counts) + 1) + "|",
    ]
    for name, ran in found["runs"].items():
        cells = [cell(name, n, ran[str(n)]) if str(n) in ran else "" for n in counts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(found: dict[str, Any]) -> str:
    """Return what was measured and predicted, and how busy workers were."""

    def seconds(name: str, workers: int, told: dict[str, Any]) -> str:
        one, total = found["runs"][name].get("1"), told["seconds"]["total"]
        ratio = f" ({one['seconds']['total'] / total:.1f})" if one and workers > 1 else ""
        return f"{total:.1f}{ratio}"

    def predicted(name: str, workers: int, told: dict[str, Any]) -> str:
        if (plan := prediction(found, name, workers)) is None:
            return "-"
        total = plan["seconds"]["total"]
        return f"{total:.1f} ({total / told['seconds']['total']:.2f})"

    def busy(name: str, workers: int, told: dict[str, Any]) -> str:
        each = told["settings"]["cluster"]["each"].values()
        whole = workers * told["seconds"]["total"]
        shares = (sum(one[k] for one in each) / whole for k in ("seconds", "processor_seconds"))
        return " ".join(f"{share:.2f}" for share in shares)

    return "\n\n".join(
        (
            table(found, "seconds (of one worker: times as many)", seconds),
            table(found, "predicted (of the measured)", predicted),
            table(found, "share of the time in tasks, and of a processor in these", busy),
        )
    )


def plot(found: dict[str, Any], file: Path) -> None:
    """Draw seconds over workers."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    counts: set[int] = set()
    for k, (name, ran) in enumerate(found["runs"].items()):
        across = sorted(map(int, ran))
        seconds = [ran[str(n)]["seconds"]["total"] for n in across]
        colour = colormaps["tab10"](k % 10)
        axes.loglog(across, seconds, "o-", label=name, color=colour)
        ideal = [seconds[0] * across[0] / n for n in across]
        axes.loglog(across, ideal, ":", color=colour, linewidth=0.8)
        counts.update(across)
    axes.set_xticks(sorted(counts), [str(n) for n in sorted(counts)], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("worker processes")
    axes.set_ylabel("seconds")
    side = f"{found['side']:,}".replace(",", " ")
    axes.set_title(f"{side} x {side} cells, {found['host'].get('processor', '')}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.yaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--folder", type=Path, help="where the raster is made")
    parser.add_argument("--side", type=int, default=30_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--memory-limit", default="4GB", help="of each process")
    parser.add_argument(
        "--like", type=int, metavar="SIDE", help="of a raster for the speed of cores"
    )
    parser.add_argument("--seconds", type=float, default=540, help="for all of this call")
    parser.add_argument("--plot", type=Path, metavar="OUT.png")
    asked = parser.parse_args()
    if asked.plot:
        plot(read(asked.file), asked.plot)
        return
    if asked.folder:
        measure(asked)
    print(tables(read(asked.file)))


def measure(asked: argparse.Namespace) -> None:
    """Run what has not run yet."""
    deadline, most = time.monotonic() + asked.seconds, max(asked.workers)
    limit = asked.memory_limit
    asked.folder.mkdir(parents=True, exist_ok=True)
    small = Bench(
        asked.folder / "small.json", asked.folder / "small", SMALL, limit, 2, deadline
    )  # compiles the kernels
    for name in asked.operations:
        done = name in small.found["runs"] or (
            small.prepare(asked.operations) and small.run(name, 2)
        )
        if not done:
            raise SystemExit(f"{name} of a small raster failed")
    shutil.rmtree(small.folder, ignore_errors=True)
    bench = Bench(asked.file, asked.folder, asked.side, limit, most, deadline)
    if not bench.found["host"]:
        bench.found["host"] = host(asked.folder, sorted(asked.workers))
        write(asked.file, bench.found)
    if asked.like:
        folder, few, like = asked.folder / "like", min(asked.workers), bench.found["like"]
        model = Bench(asked.folder / "like.json", folder, asked.like, limit, most, deadline)
        left = [name for name in asked.operations if name not in like]
        if left and model.prepare(asked.operations):
            like |= {name: told for name in left if (told := model.run(name, few))}
            write(asked.file, bench.found)
        if all(name in like for name in asked.operations):
            shutil.rmtree(folder, ignore_errors=True)
    if bench.prepare(asked.operations):
        for workers in sorted(asked.workers, reverse=True):
            for name in asked.operations:
                if str(workers) not in bench.found["runs"].get(name, {}):
                    bench.run(name, workers)


if __name__ == "__main__":
    main()
