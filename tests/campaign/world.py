"""Playing a case: its files are made, its commands run, and every outcome is judged.

The world remembers what each layer must hold. After every step all layers are read again, in a
process of their own: each holds what it held, or what the step must make of it, or says that a file
of it is damaged.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import programs
import rasterio

import terrain_gpu
from terrain_gpu import cells as values

from . import inputs, oracles
from .cases import Case, Fault, Step
from .faults import damage, outside
from .oracles import Truth

CHILD = str(Path(__file__).with_name("child.py"))
PATIENCE = 150
"""Seconds after which a command hangs; kernels that were never compiled take a minute."""
DISK = "64m"

PROGRAMS = {
    "convert": "convert-dataset",
    "mst": "compute-mst",
    "sssp": "compute-sssp",
    "index": "terrain-gpu build-index",
    "components": "terrain-gpu label-components",
}
LAYERS = {
    "mst": ["mst"],
    "sssp": ["distance", "backlink", "allocation"],
    "components": ["components"],
    "accumulate": ["accumulation", "direction"],
    "create": ["elevation"],
}
"""What a command may write; a conversion writes the layer it is told to."""
RESUMABLE = ("convert", "mst", "sssp", "components", "accumulate")
SMALL = 10**6 * 512
"""Memory limits below may be refused."""


class Failure(Exception):
    """A promise that was broken: what kind, what exactly, and the commands up to there."""

    def __init__(self, kind: str, what: str, transcript: list[str]) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind, self.what, self.transcript = kind, what, transcript

    @property
    def signature(self) -> str:
        """What failures of one cause have in common: no numbers, no names of files."""
        last = [line for line in self.what.strip().splitlines() if line.strip()]
        text = " ".join(last[:1] + last[-1:])
        return f"{self.kind}: " + re.sub(r"[/\w.-]*/[/\w.-]+|\d[\d.e+-]*|'[^']*'", "~", text)[:160]


@dataclass
class Outcome:
    """How a process ended."""

    code: int
    out: str
    err: str


def check(case: Case) -> Counter:
    """Play a case in a folder of its own.

    Returns
    -------
    collections.Counter
        Of (step, fault, outcome).

    Raises
    ------
    Failure
        when a promise is broken.
    """
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="campaign-", dir=base))
    try:
        with _disk(folder / "case", case):
            return play(case, folder / "case")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _disk(folder: Path, case: Case) -> Iterator[None]:
    """The folder of a case; a small file system where one is to be full."""
    folder.mkdir()
    wanted = any(f.kind == "disk" for step in case.steps for f in step.faults)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = wanted and not subprocess.run(mount, check=False, capture_output=True).returncode
    folder.chmod(0o777)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def play(case: Case, folder: Path) -> Counter:
    """Play a case in this folder."""
    world = World(case, folder)
    for step in case.steps:
        world.take(step)
    return world.counts


@functools.cache
def _server(number: int) -> programs.Server:
    """Two of them, for two writers."""
    return programs.Server(CHILD)


class World:
    """A folder, and what its store must hold."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.terrain = case.terrain
        self.truth: dict[str, Truth] = {}
        self.unknown: set[str] = set()
        """Layers whose right cells nobody knows: made of damaged inputs."""
        self.crs = ["", None]
        """Of the store: WKT and code."""
        self.damaged = False
        """Whether a file of the store was damaged: from then on commands may refuse."""
        self.hurt: set[str] = set()
        """Input files that were damaged."""
        self.transcript: list[str] = []
        self.counts: Counter = Counter()
        self.older = folder.with_name("older")
        self.keeps = any(f.how == "older" for step in case.steps for f in step.faults)

    def fail(self, kind: str, what: str) -> None:
        raise Failure(kind, what, self.transcript)

    # -- one step ----------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Run a step and judge it; then, where it says so, the same with --resume."""
        words = self.words(step)
        if words is None:
            return
        during = None
        for fault in step.faults:
            if fault.kind == "damage":
                self.hurt_a_file(fault)
            elif fault.kind != "two":
                during = fault
        if self.keeps:
            self.keep()
        beside = self.words(step.beside) if step.beside else None
        outcome, second = self.run(words, during, beside)
        steps = [(step, outcome)]
        if step.beside and second:
            steps.append((step.beside, second))
        names = [fault.kind if fault.kind != "damage" else f"{fault.how} {fault.what}" for fault in step.faults]
        for one, found in steps:
            for name in names or ["none"]:
                self.counts[one.do, name, _ending(found.code)] += 1
        if len(steps) == 1 and during is None and outcome.code and not self.damaged and self.is_sound(step):
            self.fail("refused", f"{words}\n{outcome.err}")
        self.compare(steps)
        if step.again and (during or step.beside) and "overwrite" in step.options:
            more = {"resume": True} if step.do in RESUMABLE else {}
            again = replace(step, faults=(), beside=None, again=False)
            self.take(replace(again, options={**step.options, **more}))

    def run(self, words: list[str], during: Fault | None, beside: list[str] | None) -> tuple[Outcome, Outcome | None]:
        """Start the processes, wait, and judge how they end."""
        self.transcript.append(_shell(words) + (f"    # {during}" if during else ""))
        plan, seconds, number = self.plan(during)
        first: Any
        if during and during.kind == "home":
            first = Homeless(self.folder, words)
        else:
            first = _server(0).begin(self.folder, [json.dumps(plan), *words])
        second = None
        if beside:
            self.transcript.append(_shell(beside) + "    # at the same time")
            second = _server(1).begin(self.folder, [json.dumps({}), *beside])
        ballast = self.folder / "ballast"
        try:
            if seconds is not None:
                try:
                    first.communicate(timeout=seconds)
                except subprocess.TimeoutExpired:
                    first.send_signal(number)
            outcome = self.wait(first)
            other = self.wait(second) if second else None
        finally:
            ballast.unlink(missing_ok=True)
        allowed = set()
        if during and during.kind == "kill":
            allowed = {-signal.Signals[during.what]}
        for found in (outcome, other):
            if found:
                self.judge(found, allowed)
        return outcome, other

    def plan(self, during: Fault | None) -> tuple[dict[str, Any], float | None, int]:
        """The faults that a process sets up by itself, and when it gets which signal."""
        if during is None:
            return {}, None, 0
        at = during.at
        if during.kind == "kill":
            number = signal.Signals[during.what]
            if at < 0:
                return {}, -at, number
            return {"event": {"number": at, "signal_name": during.what}}, None, number
        if during.kind == "error":
            return {"event": {"number": at, "error": during.what, "always": during.how == "always"}}, None, 0
        if during.kind == "disk" and os.path.ismount(self.folder):
            free = os.statvfs(self.folder)
            size = free.f_bavail * free.f_frsize - int(at)
            (self.folder / "ballast").write_bytes(bytes(max(0, size)))
            return {}, None, 0
        if during.kind in ("fsize", "disk"):
            return {"limits": {"RLIMIT_FSIZE": int(at)}}, None, 0
        if during.kind == "files":
            return {"limits": {"RLIMIT_NOFILE": int(at)}}, None, 0
        return {"nobody": during.kind == "nobody"}, None, 0

    def wait(self, process: Any) -> Outcome:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)  # where does it hang?
            time.sleep(1)
            process.kill()
            _, err = process.communicate()
            self.fail("hang", err)
        return Outcome(process.returncode, out, err)

    def judge(self, found: Outcome, allowed: set[int]) -> None:
        """No crash, no traceback, one line for an error."""
        self.transcript.append(f"#   {found.code}" + (f" {found.err.strip()[-500:]}" if found.err.strip() else ""))
        if found.code in allowed:
            return
        if found.code not in (0, 1, 2):
            self.fail("crash", f"exit code {found.code}\n{found.err}")
        if re.search(r"Traceback|Exception ignored|Fatal Python error", found.err):
            self.fail("traceback", found.err)
        if "Error: unexpected" in found.err:
            self.fail("unexpected", found.err)
        lines = found.err.splitlines()
        errors = [line for line in lines if not line.startswith(("WARNING: ", "INFO: ")) and line]
        if found.code and (len(errors) != 1 or not errors[0].startswith("Error: ") or lines[-1] != errors[0]):
            self.fail("message", f"exit code {found.code}\n{found.err}")
        if not found.code and errors:
            self.fail("message", f"exit code 0\n{found.err}")
        if found.code and "out of memory" in found.err:
            self.fail("memory", found.err)

    # -- commands ----------------------------------------------------------------------------

    def words(self, step: Step, folder: Path | None = None) -> list[str] | None:
        """The command line of a step, its files written; None where it has nothing to work on."""
        folder = folder or self.folder
        given = dict(step.options)
        if step.do in ("create", "read"):
            return self.own_words(step, folder)
        if step.do not in ("convert", "plan") and "elevation" not in self.truth:
            return None
        words = [*PROGRAMS.get(step.do, f"terrain-gpu {step.do}").split()]
        if step.do == "convert":
            names, _ = inputs.write(folder, self.terrain, given["into"], given.pop("input"), given.pop("variant"))
            words += names
            given["layer"] = given.pop("into")
            if self.terrain.crs and not names[0].endswith(".tif"):
                given["crs"] = self.terrain.crs
        words.append("s.zarr")
        if step.do == "plan" and "elevation" not in self.truth:
            words[-1] = "100x200"
        if step.do == "network":
            words.append(given.pop("to"))
        if step.do == "export":
            if given["layer"] not in self.truth:
                given["layer"] = "elevation"
            words.append("out.tif")
        if step.do == "components":
            given["where"] = self.condition(given["where"], given.pop("bound"))[0]
        if step.do in ("sssp", "index"):
            for name in ("friction", "barriers"):
                if name in given and name not in self.truth:
                    del given[name]
        if step.do in ("sssp", "accumulate") and "from" in given:
            given.pop("from")
            points = self.points(step)
            words += self.source_words(folder, points, given.pop("by", "rowcol"), "source" if step.do == "sssp" else "outlet")
        for row, col in self.cells_at(given.pop("to", [])) if step.do == "sssp" else []:
            words += ["--target-rowcol", f"{row},{col}"]
        for name, value in given.items():
            words += [f"--{name}"] if value is True else [] if value is False else [f"--{name}", str(value)]
        return words

    def own_words(self, step: Step, folder: Path) -> list[str] | None:
        """A step of `child.py`."""
        if "elevation" not in self.truth:
            return None
        if step.do == "read":
            return ["read", step.options["by"], "s.zarr", "cells.npy"]
        return self.create_words(folder, "elevation", self.altered(step), step.options["block-size"], resume=step.options["resume"])

    def create_words(self, folder: Path, name: str, truth: Truth, block: int, *, resume: bool = False) -> list[str]:
        np.save(folder / f"new-{name}.npy", truth.cells)
        given = {"nodata": values.to_json(truth.nodata), "block_size": block, "overwrite": True}
        given |= {"resume": resume, "crs": self.crs}
        given["grid"] = [self.terrain.rows, self.terrain.cols, *self.terrain.grid.transform]
        return ["create", "s.zarr", name, f"new-{name}.npy", json.dumps(given)]

    def source_words(self, folder: Path, points: list[inputs.Point], by: str, option: str) -> list[str]:
        if by == "edge":
            return ["--source-edge"]
        if by in ("geojson", "gpkg"):
            path = folder / f"from.{by}"
            inputs.write_points(path, self.terrain, points)
            self.hurt.discard(path.name)
            return [f"--{option}s", path.name]
        xs, ys = self.terrain.grid.x_centres(), self.terrain.grid.y_centres()
        found = []
        for row, col, cost, _ in points:
            place = f"{row},{col}" if by == "rowcol" else f"{xs[col]!r},{ys[row]!r}".replace("np.float64(", "").replace(")", "")
            more = f",{cost}" if cost and option == "source" else ""
            found += [f"--{option}" + ("-rowcol" if by == "rowcol" else ""), place + more]
        return found

    def usable(self, options: dict[str, Any]) -> np.ndarray:
        """Cells with a value in all layers that a step reads."""
        good = self.truth["elevation"].good
        for name in ("friction", "barriers"):
            if name in options and name in self.truth:
                layer = self.truth[name]
                good = good & layer.good
                if name == "barriers":
                    good = good & (layer.cells == 0)
        return good

    def cells_at(self, picks: list[float], options: dict[str, Any] | None = None) -> list[tuple[int, int]]:
        there = np.argwhere(self.usable(options or {}))
        if not len(there):
            return [(0, 0) for _ in picks]
        return [tuple(there[int(pick * len(there))].tolist()) for pick in picks]

    def points(self, step: Step) -> list[inputs.Point]:
        """Sources or outlets; of several in one cell the first costs least and counts."""
        found = self.cells_at(step.options.get("from", []), step.options)
        costs = [None, None, 7] if step.do == "sssp" else [None]
        return [(row, col, costs[k % len(costs)], k + 1) for k, (row, col) in enumerate(found)]

    def condition(self, kind: str, pick: float) -> tuple[str, np.ndarray]:
        """A --where, and the cells where it holds."""
        z = self.truth["elevation"]
        some = np.sort(z.cells[z.good])
        bound = some[int(pick * len(some))].item() if len(some) else 0
        upper = bound + 20
        z_is = z.cells
        return {
            "above": (f"elevation > {bound!r}", z.good & (z_is > bound)),
            "below": (f"not elevation > {bound!r}", z.good & (z_is <= bound)),
            "between": (f"{bound!r} <= elevation < {upper!r}", z.good & (z_is >= bound) & (z_is < upper)),
            "void": ("nodata(elevation)", ~z.good),
            "value": ("not nodata(elevation)", z.good),
        }[kind]

    def altered(self, step: Step) -> Truth:
        """The heights with one cell changed, so that count and range stay where that can be."""
        old = self.truth["elevation"]
        data = old.cells.copy()
        places = np.argwhere(old.good)
        if len(places):
            cell = tuple(places[int(step.options["pick"] * len(places))])
            others = data[old.good]
            data[cell] = others[len(others) // 2]
        return Truth(data, old.nodata)

    def hurt_a_file(self, fault: Fault) -> None:
        done = damage(self.folder, self.older, fault.what, fault.how, fault.pick)
        self.transcript.append(f"# {done or f'nothing to {fault.how} in {fault.what}'}")
        if done and fault.what in ("input", "vector"):
            self.hurt |= set(re.findall(r"(?:in-|from\.)[\w.-]+", done))
        elif done:
            self.damaged = True

    def keep(self) -> None:
        """A copy of the stores, for files that come back older than they were."""
        shutil.rmtree(self.older, ignore_errors=True)
        for store in self.folder.glob("s.zarr*"):
            shutil.copytree(store, self.older / store.name, symlinks=True)

    # -- what must come out ------------------------------------------------------------------

    def is_sound(self, step: Step) -> bool:
        """Whether a command must succeed: nothing is in its way, and its input is whole."""
        given = step.options
        if step.do == "info":
            return bool(self.truth)
        small = given.get("memory-limit", "1GiB") not in ("512MB", "1GiB")
        wide = self.terrain.dtype in ("int64", "uint64", "float64") or self.terrain.special
        if small or wide or self.hurt or not given.get("overwrite") or "elevation" not in self.truth:
            return False
        unusable = not self.usable(given).any()
        if step.do == "sssp":
            return not (unusable or "path" in given or given["method"] == "index" or given["cost"] == "friction")
        return step.do in ("mst", "components", "export")

    def expected(self, step: Step) -> dict[str, Truth | None]:
        """Layers that a step makes; None for cells that nobody knows."""
        given, grid = step.options, self.wkt_grid()
        if step.do == "convert":
            return {given["into"]: self.expected_conversion(step)}
        if step.do == "create":
            return {"elevation": self.altered(step)}
        if step.do not in LAYERS:
            return {}
        z = self.truth["elevation"]
        if self.unknown & {"elevation", given.get("friction"), given.get("barriers")}:
            return dict.fromkeys(LAYERS[step.do])
        if z.cells.size > oracles.LARGEST and step.do != "components":
            return self.undisturbed(step)
        if step.do == "mst":
            return {"mst": replace(oracles.forest(z, given), step=step)}
        if step.do == "components":
            where = self.condition(given["where"], given["bound"])[1]
            return {"components": oracles.components(where, given["connectivity"])}
        if step.do == "accumulate":
            if "mst" not in self.truth or self.truth["mst"].step is None:
                return dict.fromkeys(LAYERS[step.do])
            outlets = [(row, col) for row, col, *_ in self.points(step)] or oracles.border(z.good)
            tree = self.truth["mst"].step.options
            sums, codes = oracles.accumulated(z, tree, outlets, grid, areas=bool(given.get("areas")))
            return {"accumulation": sums} | ({"direction": codes} if "directions" in given else {})
        if {f"from.{given['by']}"} & self.hurt:
            return dict.fromkeys(LAYERS[step.do])
        wanted = {"distance"}
        if {"backlink", "path", "allocation"} & given.keys():
            wanted.add("backlink")
        if "allocation" in given:
            wanted.add("allocation")
        sources = self.points(step)
        if given["by"] == "edge":
            sources = [(row, col, None, 2**32 - 1) for row, col in oracles.border(self.usable(given))]
        layers = [self.truth.get(name) if name in given else None for name in ("friction", "barriers")]
        found = oracles.paths(z, grid, given, sources, *layers, codes=len(wanted) > 1)
        found["distance"].loose = given["method"] == "index" and len(wanted) == 1 and not given.get("verify")
        return {name: found[name] for name in wanted}

    def wkt_grid(self) -> Any:
        return replace(self.terrain.grid, crs_wkt=self.crs[0])

    def expected_conversion(self, step: Step) -> Truth | None:
        given = step.options
        names, truth = inputs.write(self.folder, self.terrain, given["into"], given["input"], given["variant"])
        if self.hurt & set(names):
            if len(names) > 1 or not names[0].endswith(".tif"):
                return None
            outcome = self.wait(_server(1).begin(self.folder, ["{}", "gdal", names[0], "gdal.npz"]))
            if outcome.code:
                self.fail("wrong", f"{names[0]} was converted, but GDAL cannot read it: {outcome.err}")
            with np.load(self.folder / "gdal.npz") as file:
                return None if str(file["nodata"]) != repr(truth.nodata and float(truth.nodata)) else Truth(file["cells"], truth.nodata)
        if given.get("round") or "clamp-min" in given:
            if truth.nodata is None and not truth.good.all():
                return None  # a value for the cells without one is chosen
            if given.get("round") and truth.cells.dtype.kind == "f":
                if truth.nodata is not None and not values.fits(truth.nodata, np.dtype("int32")):
                    return None
                nodata = -(2**31) if truth.nodata is None else int(truth.nodata)
            else:
                nodata = truth.nodata
            return Truth(oracles.converted(truth.cells, truth.nodata, given), nodata)
        return truth

    def undisturbed(self, step: Step) -> dict[str, Truth | None]:
        """The layers of the same command on a new store, in other blocks and without any fault."""
        clean = self.folder.with_name("clean")
        shutil.rmtree(clean, ignore_errors=True)
        clean.mkdir()
        runs = [
            self.create_words(clean, name, self.truth[name], 256)
            for name in ("elevation", "friction", "barriers")
            if name in self.truth
        ]
        if step.do in ("accumulate", "network"):
            if "mst" not in self.truth or self.truth["mst"].step is None:
                return dict.fromkeys(LAYERS.get(step.do, []))
            tree = self.truth["mst"].step
            runs.append(self.words(replace(tree, options=_plainly(tree.options)), clean) or [])
        options = _plainly(step.options)
        if "method" in options:
            options["method"] = {"frozen": "contract", "contract": "frozen", "relax": "dijkstra"}.get(options["method"], "relax")
            options.pop("build-index", None)
        runs.append(self.words(replace(step, options=options), clean) or [])
        for words in runs:
            outcome = self.wait(_server(1).begin(clean, ["{}", *words]))
            if outcome.code:
                return dict.fromkeys(LAYERS.get(step.do, []))
        arrays, facts = self.dump(clean)
        loose = step.options.get("method") == "index"
        return {
            name: Truth(arrays[name], values.from_json(facts["layers"][name]["nodata"]), step, loose)
            for name in LAYERS.get(step.do, [])
            if name in arrays
        }

    # -- what came out -----------------------------------------------------------------------

    def dump(self, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All layers of the store, read in another process."""
        out = folder / "dump.npz"
        outcome = self.wait(_server(1).begin(folder, ["{}", "dump", "s.zarr", str(out)]))
        if outcome.code:
            self.fail("traceback" if "Traceback" in outcome.err else "crash", f"reading all layers\n{outcome.err}")
        with np.load(out) as file:
            facts = json.loads(str(file["facts"]))
            arrays = {name.removeprefix("cells:"): file[name] for name in file.files if name != "facts"}
        out.unlink()
        return arrays, facts

    def compare(self, steps: list[tuple[Step, Outcome]]) -> None:
        """Every layer holds what it held or what a step must have made of it."""
        arrays, facts = self.dump(self.folder)
        if not self.damaged and "grid" in facts:
            self.crs = facts["crs"]
        missing = [name for name in self.truth if name not in arrays]
        if missing and not self.damaged:
            self.fail("lost", f"{missing}: {facts}")
        done = [step for step, outcome in steps if outcome.code == 0]
        tried = [step for step, outcome in steps if outcome.code != 0]
        touched = {name for step, _ in steps for name in self.targets(step)}
        wanted: dict[str, list[tuple[Truth | None, Step]]] = {}
        must: set[str] = set()
        for step in [*done, *tried]:
            changed = [n for n in self.targets(step) if n in arrays and not self.is_old(n, arrays[n])]
            if step in done or changed:
                for name, truth in self.expected(step).items():
                    wanted.setdefault(name, []).append((truth, step))
                    if step in done and len(done) == 1 and (name in arrays or not self.damaged):
                        must.add(name)
        for name, found in arrays.items():
            if name in self.unknown and name not in wanted:
                continue
            olds = [] if name in must or name not in self.truth else [(self.truth[name], None)]
            for truth, step in [*wanted.get(name, []), *olds]:
                if truth is None or self.agrees(name, found, truth):
                    break
            else:
                self.fail("wrong", f"layer {name} {found.shape} {found.dtype}: {self.difference(name, found, wanted)}\n{[s.do for s in done]}")
            if truth is None:
                self.unknown.add(name)
                self.truth[name] = Truth(found, values.from_json(facts["layers"][name]["nodata"]), None)
                continue
            if step is not None:
                self.unknown.discard(name)
                nodata = values.from_json(facts["layers"][name]["nodata"])
                if name in ("elevation", "friction", "barriers") and repr(nodata) != repr(truth.nodata):
                    self.fail("wrong", f"layer {name}: nodata {nodata}, not {truth.nodata}")
                self.truth[name] = Truth(found, nodata, step)
            recorded = facts["layers"][name]
            stats = self.truth[name].statistics()
            if name == "mst":
                del stats["max"]  # recorded before the last edges are set
            now = {key: values.from_json(recorded[key]) for key in stats}
            if name not in self.unknown and now != stats:
                self.fail("wrong", f"layer {name}: recorded {now}, is {stats}")
        for step in done:
            self.check_files(step, touched)
        self.check_outside()

    def targets(self, step: Step) -> list[str]:
        return [step.options["into"]] if step.do == "convert" else LAYERS.get(step.do, [])

    def is_old(self, name: str, found: np.ndarray) -> bool:
        return name in self.truth and self.truth[name].agrees(found)

    def agrees(self, name: str, found: np.ndarray, truth: Truth) -> bool:
        if truth.cells.dtype == object:
            return oracles.same_distances(found, truth)
        return truth.agrees(found)

    def difference(self, name: str, found: np.ndarray, wanted: dict[str, list[Any]]) -> str:
        truths = [t for t, _ in wanted.get(name, [])] or [self.truth[name]] if name in self.truth or name in wanted else []
        if not truths:
            return "it should not be there"
        theirs = truths[0].cells
        if theirs.shape != found.shape:
            return f"not of shape {theirs.shape}"
        mine = found.astype(object)
        at = np.argwhere((mine != theirs) & ~((mine != mine) & (theirs != theirs)))
        some = ", ".join(f"{tuple(c.tolist())}: {mine[tuple(c)]} for {theirs[tuple(c)]}" for c in at[:3])
        return f"{len(at)} cells differ ({some}), type {theirs.dtype}"

    def check_files(self, step: Step, touched: set[str]) -> None:
        """The files of a step that ended well."""
        given = step.options
        files = []
        if step.do == "export":
            layer = given["layer"] if given["layer"] in self.truth else "elevation"
            files.append(("out.tif", layer))
        names = {"mst": "mst", "sssp": "distance", "accumulate": "accumulation", "components": "components"}
        if "output" in given:
            files.append((given["output"], names[step.do]))
        files += [(given[n], n) for n in ("backlink", "allocation") if n in given]
        for file, layer in files:
            if layer in self.unknown or layer not in self.truth:
                continue
            with rasterio.open(self.folder / file) as raster:
                found = raster.read(1)
            wanted = Truth(oracles.exported(self.truth[layer], layer))
            if not wanted.agrees(found.astype(found.dtype.newbyteorder("<"))):
                self.fail("wrong", f"{file} is not layer {layer}: {found.dtype} {found.shape}, {wanted.cells.dtype} {wanted.cells.shape}")
        if "json" in given:
            report = json.loads((self.folder / "report.json").read_text())
            if report["command"] not in {step.do, *_shell([PROGRAMS.get(step.do, step.do)]).split()} and step.do not in report["command"] and report["command"] not in str(PROGRAMS.get(step.do)):
                self.fail("wrong", f"report of {report['command']} for {step.do}")
            (self.folder / "report.json").unlink()
        if step.do == "read" and not self.damaged and "elevation" not in self.unknown:
            found = np.load(self.folder / "cells.npy")
            if not self.truth["elevation"].agrees(found):
                self.fail("wrong", f"elevation read by {given['by']}")
        if step.do == "network" and given["to"].endswith("json") and "elevation" not in self.unknown:
            mine = (self.folder / given["to"]).read_bytes()
            self.undisturbed(step)
            clean = self.folder.with_name("clean") / given["to"]
            if clean.exists() and clean.read_bytes() != mine:
                self.fail("wrong", f"{given['to']} differs from that of an undisturbed run")
        if given.get("table", "").endswith(".csv") and "components" not in self.unknown:
            rows = (self.folder / given["table"]).read_text().splitlines()[1:]
            counts = np.bincount(self.truth["components"].cells.ravel())[1:]
            if [int(row.split(",")[1]) for row in rows] != counts.tolist():
                self.fail("wrong", f"{given['table']}: {rows[:3]} for {counts[:3]}")
        if given.get("path", "").endswith("json") and not {"distance", *self.hurt} & self.unknown:
            text = json.loads((self.folder / given["path"]).read_text())
            ends = self.cells_at(given["to"])
            distance = self.truth["distance"].cells
            for feature in text["features"]:
                found = feature["properties"]
                row, col = ends[found["target"] - 1]
                if found["cost"] != distance[row, col].item():
                    self.fail("wrong", f"path of cost {found['cost']} for {distance[row, col]}")

    def check_outside(self) -> None:
        """Nothing that a link in the store leads to may change."""
        place = outside(self.folder)
        now = {
            str(p.relative_to(place)): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()
        }
        before = getattr(self, "canary", {})
        for name, data in before.items():
            if now.get(name) != data:
                self.fail("outside", f"{name}: written through a link")
        self.canary = now


class Homeless:
    """A process that starts by itself, where neither the package nor the home can be written.

    It has no place for compiled kernels. As much of a `programs.Run` as is needed.
    """

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.place = folder.with_name("package")
        self.place.mkdir()
        paths = os.pathsep.join([str(self.place), *(p for p in sys.path if p)])
        env = {**os.environ, "HOME": "/proc/nowhere", "PYTHONPATH": paths}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        package = self.place / "terrain_gpu"
        package.mkdir()
        bind = ["mount", "--bind", str(Path(terrain_gpu.__file__).parent), str(package)]
        self.bound = not subprocess.run(bind, check=False, capture_output=True).returncode
        if self.bound:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(package)], check=True)
        self.process = subprocess.Popen([sys.executable, CHILD, "alone", *words], cwd=folder, env=env, **pipes)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        try:
            return self.process.communicate(timeout=timeout)
        finally:
            if self.process.returncode is not None and self.bound:
                subprocess.run(["umount", "-l", str(self.place / "terrain_gpu")], check=True)
                self.bound = False
                shutil.rmtree(self.place)

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()

    @property
    def returncode(self) -> int:
        return self.process.returncode


def _plainly(options: dict[str, Any]) -> dict[str, Any]:
    """Options without those that are about runs and files."""
    leave = {"overwrite", "resume", "threads", "memory-limit", "json", "verify", "output"}
    return {name: value for name, value in options.items() if name not in leave}


def _shell(words: list[str]) -> str:
    import shlex

    return shlex.join(words)


def _ending(code: int) -> str:
    return {0: "done", 1: "error 1", 2: "error 2"}.get(code, "killed")
