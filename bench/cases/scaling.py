"""How does every operation scale over worker processes of one host, against what `plan` predicts?

    python -m bench scaling FILE.json --work /dev/shm/scaling [--operations NAME ...]
    python -m bench scaling FILE.json --print            # print the tables again
    python -m bench scaling FILE.json --plot OUT.png     # draw them; needs matplotlib

The first form makes rasters in WORK, which should lie in memory, and runs each operation with each
number of workers, in the order of --workers; the most of them make the layers that others read.
Runs go on side by side, each on processors of its own, one for each worker and one for the process
of the command (one more from 16 workers on). With more than half of the host's, a run has the host
for itself, unless --beside lets runs of fewer workers use the other processors. Each run has a
store of its own, whose layers are links to those that were made before.

FILE is written after each run, so the same command goes on where one ended. Runs that would not end
within --seconds are left out. Operations that take one worker long run over --smaller rasters.

Predictions take the rate of WORK as measured here with as many writers as workers, and, of more
than one worker, the report of one worker (--like).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import processor
from bench.programs import ROOT, START
from bench.scaling_operations import BLOCKS, LARGE, OPERATIONS, features, needed, words
from bench.terrain import terrain_window

WARM, WARM_SIDE = len(BLOCKS), 1500
"""Index and side of a raster that every operation computes first, so that kernels are compiled."""
FEW = 16
"""Workers that make what only other operations need."""
ON_PROCESSORS = """
import os, sys
cpus = sys.argv.pop(1)
if cpus:
    os.sched_setaffinity(0, map(int, cpus.split(",")))
"""


# -- the host -------------------------------------------------------------------------------------


def processors() -> list[int]:
    """Processors of this process, those of one core side by side."""

    def core(cpu: int) -> tuple[int, ...]:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            names = ("physical_package_id", "core_id")
            return *(int((topology / name).read_text()) for name in names), cpu
        except (OSError, ValueError):
            return 0, cpu, cpu

    return sorted(os.sched_getaffinity(0), key=core)


def speeds(folder: Path, threads: int) -> dict[str, float]:
    """What so many threads do per second: Mcells of terrain made, GB copied, GB written."""
    cells, to = np.ones(2**25), [np.ones(2**22) for _ in range(threads)]
    files, chunk = [folder / f"speed{k}" for k in range(threads)], bytes(mmap.mmap(-1, 2**22))
    side = 1024

    def make(k: int) -> float:
        for n in range(3):
            terrain_window(n * side, (n + 1) * side, k * side, (k + 1) * side)
        return 3 * side**2 / 1e6

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
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "speeds": {str(count): speeds(folder, count) for count in workers},
    }


# -- runs -----------------------------------------------------------------------------------------


@dataclass
class Job:
    """A run: one that is measured, or of what others need; of a raster if it has no workers.

    Attributes
    ----------
    order
        What has the least comes first.
    size
        Index of the raster.
    """

    order: int
    name: str
    workers: int
    size: int
    timed: bool = False
    alone: bool = False
    cpus: int = 0
    seconds: float = 0.0
    room: float = 0.0
    run: Path = Path()
    process: Any = None
    start: float = 0.0
    own: list[int] = field(default_factory=list)
    beside: int = 0

    def __str__(self) -> str:
        what = f"{self.name}, {self.workers} worker(s)" if self.workers else self.name
        return what if self.timed else f"{what}, raster {self.size}"


class Bench:
    """The runs in a folder, and the file of what they reported.

    Attributes
    ----------
    found
        sides, memory_limit, host, and runs: by operation, then by number of workers.
    left
        Jobs that have not begun.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        self.file, self.folder, self.asked = asked.file, asked.work, asked
        self.deadline = time.monotonic() + asked.seconds
        sides = [asked.side, *asked.smaller]
        self.found: dict[str, Any] = {"memory_limit": asked.memory_limit, "sides": sides}
        self.found |= {"host": {}, "runs": {}}
        if self.file.exists():
            self.found |= read(self.file)
        if (self.found["sides"], self.found["memory_limit"]) != (sides, asked.memory_limit):
            raise SystemExit(f"{self.file}: of other sides or --memory-limit; give another FILE")
        self.sides = [*sides, WARM_SIDE]
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        self.total, self.free = len(os.sched_getaffinity(0)), processors()
        package = sorted((ROOT / "terrain_gpu").rglob("*.py"))
        text = b"".join(path.read_bytes() for path in package)
        self.sources = hashlib.sha256(text).hexdigest()[:16]
        self.running: list[Job] = []
        self.failed: set[tuple[str, int]] = set()
        self.most, self.later, self.guesses = max(asked.workers), [], {}
        self.left: list[Job] = self.jobs()
        self.cleaner, self.count = ThreadPoolExecutor(1), 0

    # What there is to do

    def jobs(self) -> list[Job]:
        """All runs, and what they need."""
        counts = [self.most, *(n for n in self.asked.workers if n != self.most)]
        runs, jobs = self.found["runs"], []
        for name in OPERATIONS:
            if name in self.asked.operations and OPERATIONS[name].timed:
                size = OPERATIONS[name].size
                for k, n in enumerate(counts):
                    if str(n) not in runs.get(name, {}):
                        jobs.append(Job(3 + k, name, n, size, timed=True))
        made = {(job.name, job.size) for job in jobs if job.workers == self.most}
        made = {(name, size) for name, size in made if size == OPERATIONS[name].size}
        for size in sorted({job.size for job in jobs}):
            there = {name for name in OPERATIONS if self.kept(name, size).exists()}
            read_by = [n for j in jobs if j.size == size for n in OPERATIONS[j.name].needs]
            for name in needed([*read_by, "convert"], there):
                if (name, size) not in made:
                    jobs.append(Job(2, name, min(FEW, self.most), size))
        if jobs:
            names = needed([*(job.name for job in jobs), "convert"])
            warm = [name for name in names if not self.warmed(name).exists()]
            whole = needed([*warm, "convert"]) if warm else []
            again = [n for n in whole if n not in warm and not self.kept(n, WARM).exists()]
            jobs += [Job(1, name, 2, WARM) for name in [*warm, *again]]
        for size in sorted({job.size for job in jobs}):
            if not (self.raster(size) / "source.tif").exists():
                jobs.append(Job(0, f"raster of {self.sides[size]}", 0, size))
        for job in jobs:
            several = job.workers + 1 + job.workers // 16
            job.alone = job.timed and 2 * several > self.total and not self.asked.beside
            job.cpus = self.total if job.alone else min(several, self.total) * (job.workers > 0)
        return jobs

    def raster(self, size: int) -> Path:
        return self.folder / f"raster{size}"

    def kept(self, name: str, size: int) -> Path:
        """Where the layer of an operation is, once it is complete."""
        return self.raster(size) / "kept" / name.replace(" ", "-")

    def warmed(self, name: str) -> Path:
        """A file that says that the kernels of an operation are compiled, from these sources."""
        return self.folder / "warm" / self.sources / name.replace(" ", "-")

    def expected(self, job: Job) -> float:
        """Estimate the seconds of a program, from a run with other workers or from its plan."""
        start = 3 + job.workers / 8
        if not job.workers or job.size == WARM:
            return 0.0
        ran = self.found["runs"].get(job.name, {}) if job.timed else {}
        if ran:
            nearest = min(map(int, ran), key=lambda n: abs(np.log(n / job.workers)))
            told = ran[str(nearest)]
            total, each = told["seconds"]["total"], workers_of(told)
            spent, used = (sum(one[k] for one in each) for k in ("seconds", "processor_seconds"))
            if used > spent / 5:  # otherwise threads of tasks computed
                spent = min(spent, 1.3 * used)
            alone = total - max((one["seconds"] for one in each), default=0.0)
            return start + alone + max(spent / job.workers, total * min(nearest / job.workers, 1))
        if (job.name, job.workers) not in self.guesses:
            guess = self.sides[job.size] ** 2 / 2e6 / job.workers
            if predicted := prediction(self.found, job.name, job.workers):
                guess = 1.2 * float(predicted["seconds"]["total"])
            self.guesses[job.name, job.workers] = guess
        return start + self.guesses[job.name, job.workers]

    def ready(self, job: Job) -> bool:
        """Whether all is there that it reads, and its kernels are compiled."""
        if job.name not in OPERATIONS:
            return True
        if job.size != WARM and not self.warmed(job.name).exists():
            return False
        if job.name == "convert":
            return (self.raster(job.size) / "source.tif").exists()
        needs = (*OPERATIONS[job.name].needs, "convert")
        return all(self.kept(need, job.size).exists() for need in needs)

    # Going on

    def go(self) -> None:
        """Run all there is time for."""
        try:
            while self.left or self.running:
                self.drop()
                while (job := self.next()) is not None:
                    self.begin(job)
                if not self.running:
                    break
                time.sleep(0.02)
                for job in [job for job in self.running if self.ended(job)]:
                    self.running.remove(job)
                    self.free = sorted([*self.free, *job.own], key=processors().index)
                    self.finish(job)
        finally:
            for job in self.running:
                stop(job.process)
            self.cleaner.shutdown()
        for job in self.left:
            print(f"{job}: left out", flush=True)

    def drop(self) -> None:
        """Give up what needs something that failed or that there is no time for."""
        lost = [job for job in self.left if self.expected_end(job) > self.deadline]
        for job in lost:
            self.left.remove(job)
            self.later.append(job)
            print(f"{job}: left out, {self.deadline - time.monotonic():.0f} s are left", flush=True)
        coming = {(job.name, job.size) for job in [*self.left, *self.running]}
        for job in list(self.left):
            if job.name not in OPERATIONS:
                continue
            for need in {*OPERATIONS[job.name].needs, "convert"} - {job.name}:
                if not self.kept(need, job.size).exists() and (need, job.size) not in coming:
                    self.left.remove(job)
                    print(f"{job}: left out, {need} is missing", flush=True)
                    break
            else:
                if job.size != WARM and (job.name, WARM) in self.failed:
                    self.left.remove(job)
                    print(f"{job}: left out, its kernels were not compiled", flush=True)

    def expected_end(self, job: Job) -> float:
        """When it ends if it begins now."""
        job.seconds = self.expected(job)
        return time.monotonic() + job.seconds

    def next(self) -> Job | None:
        """Return a job that can begin, if any."""
        ready = [job for job in self.left if self.ready(job)]
        if not ready:
            return None
        names = list(OPERATIONS)  # the first runs make what many others need
        ready.sort(key=lambda j: (j.order, names.index(j.name) if j.order == 3 else -j.seconds))
        first = ready[0].order
        each = max((job.cpus for job in ready if job.order == first), default=0) or 1
        spare = self.total - self.total // each * each
        spare -= sum(len(job.own) for job in self.running if job.order > first)
        # What waits for the whole host, also if it is not ready yet, would wait for these too.
        last = min((job.order for job in self.left if job.alone), default=np.inf)
        for job in ready:
            fits = job.cpus <= len(self.free) and (job.order == first or job.cpus <= spare)
            if fits and job.order <= last and self.has_room(job):
                return job
        return None

    def has_room(self, job: Job) -> bool:
        """Whether its results fit into the folder beside those of others."""
        if job.name not in OPERATIONS:
            return True
        ran = self.found["runs"].get(job.name, {}).values()
        bytes_out = max((told.get("stored", 0) for told in ran), default=0)
        job.room = bytes_out or OPERATIONS[job.name].side_cells * self.sides[job.size] ** 2
        usage = shutil.disk_usage(self.folder)
        room = min(self.asked.room * 1e9 - usage.used, usage.free)
        return not self.running or sum(one.room for one in [*self.running, job]) < room

    def begin(self, job: Job) -> None:
        """Start its program."""
        self.left.remove(job)
        job.own, self.free = self.free[: job.cpus], self.free[job.cpus :]
        job.beside = sum(one.workers for one in self.running)
        self.count += 1
        job.run = self.folder / "runs" / str(self.count)
        job.run.mkdir(parents=True)
        data, side = self.raster(job.size), self.sides[job.size]
        if job.name not in OPERATIONS:
            data.mkdir(exist_ok=True)
            features(data, side, job.size)
            script = ROOT / "scripts" / "make_terrain.py"
            told = [sys.executable, str(script), f"{side}x{side}", str(job.run / "source.tif")]
            told += ["--dtype", "uint16"]
        else:
            store = job.run / "a.zarr"
            if job.name != "convert":
                for need in ("convert", *OPERATIONS[job.name].needs):
                    link(self.kept(need, job.size), store)
            limit = OPERATIONS[job.name].memory or self.found["memory_limit"]
            told = [sys.executable, "-c", ON_PROCESSORS + START, ",".join(map(str, job.own))]
            told += words(job.name, store, data, job.run, side, job.size)
            told += ["--workers", str(job.workers), "--memory-limit", limit, "-q"]
            told += ["--json", str(job.run / "report.json")]
        with (job.run / "log").open("w") as log:
            job.start = time.monotonic()
            job.process = subprocess.Popen(
                told, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
            )
        self.running.append(job)

    def ended(self, job: Job) -> bool:
        """Whether its program has ended, which it has to at the deadline or its limit."""
        if job.process.poll() is not None:
            return True
        now = time.monotonic()
        if now < min(self.deadline, job.start + self.asked.limit):
            return False
        print(f"{job}: stopped after {now - job.start:.0f} s", flush=True)
        stop(job.process)
        return True

    def finish(self, job: Job) -> None:
        """Note what it reported, and keep or delete what it made."""
        program, key = time.monotonic() - job.start, (job.name, job.size)
        if job.process.returncode:
            self.failed.add(key)
            log = (job.run / "log").read_text(encoding="utf-8", errors="replace").strip()
            print(f"{job}: exit status {job.process.returncode}: {log[-400:]}", flush=True)
        elif job.name not in OPERATIONS:
            (job.run / "source.tif").replace(self.raster(job.size) / "source.tif")
            print(f"{job}: {program:.1f} s", flush=True)
        else:
            self.note(job, program)
            self.keep(job)
        self.cleaner.submit(shutil.rmtree, job.run, ignore_errors=True)
        if job.size != WARM:
            self.tidy(job.size)
        elif not any(one.size == WARM for one in [*self.left, *self.running]):
            self.cleaner.submit(shutil.rmtree, self.raster(WARM), ignore_errors=True)

    def note(self, job: Job, program: float) -> None:
        """Write down the report of a run."""
        if job.size == WARM:
            self.warmed(job.name).parent.mkdir(parents=True, exist_ok=True)
            self.warmed(job.name).touch()
            print(f"{job.name}: kernels compiled, {program:.1f} s", flush=True)
            return
        told = read(job.run / "report.json")
        stored = sum(
            one.stat().st_size
            for one in job.run.rglob("*")
            if one.is_file() and one.stat().st_nlink == 1
        )
        more = {"program": program, "stored": stored, "side": self.sides[job.size]}
        told |= {**more, "processors": len(job.own), "workers_beside": job.beside}
        if before := [step for step in told["seconds"] if step.startswith("before")]:
            print(f"{job}: computed what was missing: {', '.join(before)}", flush=True)
        total = told["seconds"]["total"]
        print(f"{job}: {total:.2f} s, program {program:.2f} s", flush=True)
        if job.timed:
            self.found["runs"].setdefault(job.name, {})[str(job.workers)] = told
            write(self.file, self.found)

    def keep(self, job: Job) -> None:
        """Move a layer that others read to where they find it."""
        place, makes = self.kept(job.name, job.size), OPERATIONS[job.name].makes
        if place.exists() or not self.wanted(job.name, job.size):
            return
        store, part = job.run / "a.zarr", place.with_name(f"{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(exist_ok=True)
        if job.name == "convert":
            store.replace(part)
        else:
            part.mkdir()
            (store / makes).replace(part / makes)
        part.replace(place)

    def wanted(self, name: str, size: int) -> bool:
        """Whether runs that have not begun read a layer."""
        return any(
            name in (*OPERATIONS[job.name].needs, "convert")
            for job in [*self.left, *self.later]
            if job.size == size and job.name in OPERATIONS
        )

    def tidy(self, size: int) -> None:
        """Delete what nothing reads any more."""
        busy = [job.name for job in self.running if job.size == size]
        using = {need for name in busy if name in OPERATIONS for need in OPERATIONS[name].needs}
        for name in OPERATIONS:
            place = self.kept(name, size)
            if place.exists() and name not in using and not self.wanted(name, size):
                self.cleaner.submit(shutil.rmtree, place, ignore_errors=True)


def link(kept: Path, store: Path) -> None:
    """Show what is kept in a store of its own: cells are the same files, the rest is copied."""
    for folder, _, names in os.walk(kept):
        to = store / Path(folder).relative_to(kept)
        to.mkdir(parents=True, exist_ok=True)
        chunks = "c" in to.relative_to(store).parts
        for name in names:
            (os.link if chunks else shutil.copyfile)(Path(folder, name), to / name)


def stop(process: Any) -> None:
    """End a program and its workers."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, found: Any) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def workers_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What each worker reported."""
    return list(told["settings"].get("cluster", {}).get("each", {}).values())


# -- what was measured, and predicted -------------------------------------------------------------


def prediction(found: dict[str, Any], name: str, workers: int) -> dict[str, Any] | None:
    """Return what `plan` predicts for a run of these; None where there is no forecast."""
    from terrain_gpu.cli.plan import command

    operation = OPERATIONS[name]
    if not operation.plan:
        return None
    side, dtype = found["sides"][operation.size], [] if "--dtype" in operation.plan else ["uint16"]
    told = shlex.split(f"{side}x{side} --for {operation.plan} --workers {workers} --json -")
    told += ["--block-size", str(BLOCKS[operation.size])]
    told += ["--memory-limit", operation.memory or found["memory_limit"]]
    told += ["--dtype", *dtype] if dtype else []
    if speeds := found["host"].get("speeds", {}).get(str(workers)):
        told += ["--storage", f"{speeds['write']:.2f}GB"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text), tempfile.NamedTemporaryFile("w") as like:
        report = found["runs"].get(name, {}).get("1")
        if report and workers > 1:
            json.dump(report, like)
            like.flush()
            told += ["--like", like.name]
        try:
            command.main(told, standalone_mode=False)
        except Exception as error:
            print(f"plan of {name}: {error}", file=sys.stderr)
            return None
    cluster: dict[str, Any] | None = json.loads(text.getvalue())["result"].get("cluster")
    return cluster if cluster and cluster.get("seconds") else None


def shares(told: dict[str, Any], workers: int) -> tuple[float, float]:
    """Shares of the time of all workers: in tasks, and of a processor in tasks."""
    each, whole = workers_of(told), workers * told["seconds"]["total"]
    busy, used = (sum(one[k] for one in each) / whole for k in ("seconds", "processor_seconds"))
    return busy, used


def phases(told: dict[str, Any]) -> dict[str, float]:
    """Seconds by phase, but of those outside the total; none if workers sum them up."""
    found = {
        name: spent
        for name, spent in told["seconds"].items()
        if name not in ("total", "export") and not name.startswith("before")
    }
    return found if sum(found.values()) < 1.05 * told["seconds"]["total"] else {}


def limit(ran: dict[int, dict[str, Any]]) -> str:
    """Say what limits the run with the most workers: the longest phase, and how it scales."""
    most = max(ran)
    told, found = ran[most], phases(ran[most])
    total, few = told["seconds"]["total"], min(ran)
    if not found:
        found = {"all": total}
    longest = max(found, key=lambda name: found[name])
    busy, used = shares(told, most)
    tasks = told["settings"].get("cluster", {}).get("tasks", 0)
    said = f"{longest} {found[longest]:.1f} s"
    before = {**phases(ran[few]), "all": ran[few]["seconds"]["total"]}
    fixed = [n for n in found if most > few and before.get(n, 0) < 1.5 * found[n]]
    alone = sum(found[name] for name in fixed)
    if alone > total / 4:
        said += f"; {alone:.1f} s in phases that do not scale ({', '.join(fixed)})"
    if used > 0.7:
        said += "; work of the workers"
    elif busy > 0.7:
        said += "; workers wait within tasks (memory, storage)"
    elif tasks / total > 150:
        said += "; the number of tasks"
    elif tasks < 4 * most:
        said += "; few tasks for each worker"
    elif alone <= total / 4:
        said += "; workers wait for tasks"
    return f"{said}; {tasks} tasks ({tasks / total:.0f} a second)"


def table(found: dict[str, Any], heads: Iterable[str], row: Callable[..., list[str]]) -> str:
    """Return a table of all runs; `row` gets the operation, and reports by number of workers."""
    heads = list(heads)
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for name in OPERATIONS:
        if ran := {int(n): told for n, told in found["runs"].get(name, {}).items()}:
            cells = found["sides"][OPERATIONS[name].size]
            side = "" if OPERATIONS[name].size == LARGE else f" ({cells:,}^2)".replace(",", " ")
            lines.append(f"| {name}{side} | " + " | ".join(row(name, ran)) + " |")
    return "\n".join(lines)


def tables(found: dict[str, Any]) -> str:
    """Return what was measured and predicted, and how busy workers were."""
    counts = sorted({int(n) for ran in found["runs"].values() for n in ran})
    if not counts:
        return "nothing was measured"

    def measured(name: str, ran: dict[int, Any]) -> list[str]:
        cells = []
        for n in counts:
            total = ran[n]["seconds"]["total"] if n in ran else None
            ratio = 1 in ran and n > 1 and total and ran[1]["seconds"]["total"] / total
            cells.append("" if total is None else f"{total:.1f}" + f" ({ratio:.1f})" * bool(ratio))
        return [*cells, limit(ran)]

    def predicted(name: str, ran: dict[int, Any]) -> list[str]:
        cells = []
        for n in counts:
            plan = prediction(found, name, n) if n in ran else None
            total = plan["seconds"]["total"] if plan else 0.0
            seconds = ran[n]["seconds"]["total"] if n in ran else 0.0
            cells.append(f"{total:.1f} / {seconds:.1f} ({total / seconds:.2f})" if plan else "")
        return cells

    def used(name: str, ran: dict[int, Any]) -> list[str]:
        cells = []
        for n in counts:
            if n not in ran:
                cells.append("")
                continue
            peaks = [one["peak_rss_bytes"] for one in workers_of(ran[n])]
            peak = f"{max(peaks, default=0) / 1e9:.2f} {ran[n]['peak_rss_bytes'] / 1e9:.2f}"
            busy, processor = shares(ran[n], n)
            tasks = ran[n]["settings"].get("cluster", {}).get("tasks", 0)
            beside = ran[n]["workers_beside"]
            cells.append(f"{busy:.2f} {processor:.2f}, {peak}, {tasks}, {beside}")
        return cells

    workers = [f"{n} worker{'s' * (n > 1)}" for n in counts]
    rates = found["host"].get("speeds", {})
    host = [
        f"{n}: {one['make']:.0f} {one['copy']:.1f} {one['write']:.2f}" for n, one in rates.items()
    ]
    return "\n\n".join(
        (
            "Seconds (how many times as fast as one worker):",
            table(found, ["operation", *workers, f"what limits {max(counts)}"], measured),
            "Predicted / measured seconds (ratio); of one worker with nothing known of the host:",
            table(found, ["operation", *workers], predicted),
            "Share of the time in tasks, of a processor in these, GB at the peak of a worker and "
            "of the process of the command, tasks, workers of other runs beside:",
            table(found, ["operation", *workers], used),
            f"{found['host'].get('processor')}, {found['host'].get('cores')} processors; Mcells/s "
            f"made, GB/s copied, GB/s written with so many threads: {'; '.join(host)}",
        )
    )


def plot(found: dict[str, Any], file: Path) -> None:
    """Draw seconds over workers, each operation by itself."""
    from matplotlib.figure import Figure

    names = [name for name in OPERATIONS if found["runs"].get(name)]
    counts = sorted({int(n) for ran in found["runs"].values() for n in ran})
    across = 6
    down = -(-len(names) // across)
    figure = Figure(figsize=(2 * across, 1.8 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, name in zip(panels, names, strict=False):
        ran = {int(n): told["seconds"]["total"] for n, told in found["runs"][name].items()}
        at = sorted(ran)
        panel.loglog(at, [ran[at[0]] * at[0] / n for n in at], ":", color="grey", linewidth=1)
        panel.loglog(at, [ran[n] for n in at], "o-", markersize=3)
        size = OPERATIONS[name].size
        side = "" if size == LARGE else f", {found['sides'][size]}^2"
        panel.set_title(f"{name}{side}", fontsize=8)
        panel.set_xticks(counts, [str(n) for n in counts], minor=False)
        panel.minorticks_off()
        panel.yaxis.set_major_formatter("{x:g}")
        panel.tick_params(labelsize=7)
        panel.grid(alpha=0.3)
    for panel in panels[len(names) :]:
        panel.axis("off")
    figure.supxlabel("worker processes", fontsize=9)
    figure.supylabel("seconds", fontsize=9)
    side = f"{found['sides'][LARGE]:,}".replace(",", " ")
    title = f"{side} x {side} cells, {found['host'].get('processor', '')}; dotted: ideal"
    figure.suptitle(title, fontsize=10)
    figure.savefig(file, dpi=120)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    timed = [name for name, operation in OPERATIONS.items() if operation.timed]
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--side", type=int, default=30_000)
    parser.add_argument(
        "--smaller", type=int, nargs=3, default=[16_384, 8192, 4096], metavar="SIDE"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[48, 16, 1, 4])
    parser.add_argument("--operations", nargs="+", choices=timed, default=timed, metavar="NAME")
    parser.add_argument("--memory-limit", default="4GB", help="of each process")
    parser.add_argument("--room", type=float, default=250, metavar="GB", help="in WORK")
    parser.add_argument("--seconds", type=float, default=540, help="for all of this call")
    parser.add_argument("--limit", type=float, default=400, help="seconds of one program")
    parser.add_argument("--beside", action="store_true", help="fewer workers beside the most, too")
    parser.add_argument("--print", action="store_true", help="only print the tables")
    parser.add_argument("--plot", type=Path, metavar="OUT.png", help="only draw them")


def run(given: argparse.Namespace) -> None:
    """Run what there is time for, and print the tables."""
    if given.plot:
        plot(read(given.file), given.plot)
        return
    if not given.print:
        bench = Bench(given)
        if not bench.found["host"]:
            bench.found["host"] = host(given.work, sorted(given.workers))
            write(given.file, bench.found)
        bench.go()
    print(tables(read(given.file)))
