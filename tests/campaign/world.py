"""Play a case: run its commands and judge every outcome.

The world remembers what each layer must hold. After every step all layers are read again, in a
separate process: each holds what it held, or what the step must make of it, or says that a file
of it is damaged.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

from terrain_gpu import GridSpec
from terrain_gpu import cells as values

from . import inputs, oracles
from .cases import FLOWS, NEEDED, RESUMABLE, Case, Fault, Step
from .commands import Commands
from .faults import damage, outside
from .oracles import Truth
from .processes import Outcome, Processes

DISK = "64m"
LAYERS = {
    "mst": ["mst"],
    "sssp": ["distance", "backlink", "allocation"],
    "components": ["components"],
    "accumulate": ["accumulation", "direction"],
    "create": ["elevation"],
    "links": ["nearest", "nearest_backlink", "nearest_allocation"],
    "flow": sorted({name for made in FLOWS.values() for name in made} | set(NEEDED)),
}
"""What a command may write; a conversion writes the layer it is told to."""


def check(case: Case) -> Counter:
    """Play a case in a folder of its own.

    Returns
    -------
    collections.Counter
        Of (command, fault, outcome).

    Raises
    ------
    Failure
        when a promise is broken.
    """
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="campaign-", dir=base))
    try:
        folder.chmod(0o755)
        with _disk(folder / "case", case):
            world = World(case, folder / "case")
            for step in case.steps:
                world.take(step)
            return world.counts
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _disk(folder: Path, case: Case) -> Iterator[None]:
    """The folder of a case; a small file system if the disk is to be full."""
    folder.mkdir()
    wanted = any(fault.kind == "disk" for step in case.steps for fault in step.faults)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = wanted and not subprocess.run(mount, check=False, capture_output=True).returncode
    folder.chmod(0o777)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


class World(Commands, Processes):
    """A folder, and what its store must hold."""

    def __init__(self, case: Case, folder: Path) -> None:
        Commands.__init__(self, case.terrain)
        Processes.__init__(self, folder)
        self.unknown: set[str] = set()
        """Layers whose right cells nobody knows: made of damaged inputs."""
        self.damaged = False
        """Whether a file of the store was damaged: from then on commands may refuse."""
        self.hurt: set[str] = set()
        """Input files that were damaged."""
        self.stale: set[str] = set()
        """Results that were made of other cells than those that are there now."""
        self.counts: Counter = Counter()
        self.older = folder.with_name("older")
        self.keeps = any(f.how == "older" for step in case.steps for f in step.faults)
        self.canaries: dict[str, bytes] = {}
        """Files outside of the store that links in it lead to."""

    def take(self, step: Step) -> None:
        """Run a step and judge it; then, if it says so, the same with --resume."""
        self.before = dict(self.truth)
        words = self.words(step, self.folder)
        if words is None:
            return
        self.hurt -= {word for word in words if word.startswith("from.")}
        names = [fault.kind for fault in step.faults if fault.kind != "damage"]
        for fault in step.faults:
            if fault.kind == "damage" and self.hurt_a_file(fault):
                names.append(f"{fault.how} {fault.what}")
        if self.damaged and step.do == "read" and step.options["by"] != "map":
            return  # other programs do not know our checksums
        if self.keeps:
            self.keep()
        during = next((f for f in step.faults if f.kind not in ("damage", "two")), None)
        beside = self.words(step.beside, self.folder) if step.beside else None
        outcomes = self.run(words, during, beside)
        pairs = list(zip([step, step.beside], outcomes, strict=False))
        for one, outcome in pairs:
            for name in names or ["none"]:
                self.counts[one.do, name, outcome.name] += 1
        if not (during or beside or self.damaged) and outcomes[0].code and self.is_sound(step):
            self.fail("refused", f"{' '.join(words)}\n{outcomes[0].err}")
        self.compare(pairs)
        if step.again and (during or beside) and "overwrite" in step.options:
            more = {"resume": True} if step.do in RESUMABLE else {}
            again = replace(step, faults=(), beside=None, again=False)
            self.take(replace(again, options={**step.options, **more}))

    # -- faults in files ---------------------------------------------------------------------

    def hurt_a_file(self, fault: Fault) -> bool:
        """Damage a file, if there is one of the kind."""
        done = damage(self.folder, self.older, fault.what, fault.how, fault.pick)
        self.transcript.append(f"# {done or f'nothing to {fault.how} in {fault.what}'}")
        if done and fault.what in ("input", "vector"):
            self.hurt |= set(re.findall(r"(?:in-|from\.)[\w.-]+", done))
        elif done:
            self.damaged = True
        return bool(done)

    def keep(self) -> None:
        """A copy of the stores, for files that come back older than they were."""
        shutil.rmtree(self.older, ignore_errors=True)
        for store in self.folder.glob("s.zarr*"):
            shutil.copytree(store, self.older / store.name, symlinks=True)

    # -- what must come out ------------------------------------------------------------------

    def is_sound(self, step: Step) -> bool:
        """Whether a command must succeed: nothing hinders it, and its input is whole."""
        given, terrain = step.options, self.terrain
        if self.hurt or given.get("memory-limit", "1GiB") not in ("512MB", "1GiB"):
            return False
        if step.do == "convert" and not {"resume", "round", "clamp-min"} & given.keys():
            nothing = not list(self.folder.glob("s.zarr*"))
            return nothing or ("elevation" in self.truth and "overwrite" in given)
        if "elevation" not in self.truth:
            return False
        results = {"mst", "distance", "backlink", "allocation"} & self.truth.keys()
        if step.do == "verify":
            paths = self.truth["distance"].step if "distance" in results else None
            provable = paths is None or (
                paths.options["method"] != "index" and "backlink" in paths.options
            )
            return bool(results) and not self.truth.keys() & self.stale and provable
        odd = terrain.dtype in ("int64", "uint64", "float64") or terrain.special
        if step.do == "info" or odd or not given.get("overwrite"):
            return step.do == "info"
        if step.do == "sssp":
            odd = given["method"] == "index" or given["cost"] == "friction" or "path" in given
            return not odd and bool(self.usable(given).any())
        if step.do == "matrix":
            return given["cost"] != "friction" and bool(self.usable(given).any())
        if step.do in ("accumulate", "network"):
            tree = self.truth["mst"].step if "mst" in results - self.stale else None
            usable = bool(self.usable({}).any())
            return tree is not None and tree.options.get("weight") == "max" and usable
        if step.do == "flow":
            plain = given["of"].split()[0] in ("flow-direction", "fill", "basins")
            if "--epsilon" in given["of"] and terrain.dtype != "float32":
                return False
            return plain and self.is_usual() and bool(self.usable({}).any())
        return step.do in ("mst", "components", "export")

    def targets(self, step: Step) -> list[str]:
        if step.do == "flow":
            made = FLOWS[step.options["of"]]
            return [*made, *(n for n in NEEDED if n not in (*made, *self.before))]
        if step.do == "convert":
            return [step.options["into"]]
        tree = ["mst"] * (step.do in ("accumulate", "network") and "mst" not in self.before)
        return LAYERS.get(step.do, []) + tree

    def is_usual(self) -> bool:
        """Whether the layers that commands along flow directions take are as they make them."""
        there = self.before.keys() & set(NEEDED)
        made = [self.truth[name].step for name in there - {"mst"}]
        tree = self.truth["mst"].step if "mst" in there else None
        flows = tree is None or (
            (tree.options["weight"], tree.options["connectivity"]) == ("flow", 8)
            if tree.do == "mst"
            else "breach" not in tree.options.get("of", "")
        )
        return flows and not there & (self.stale | self.unknown) and all(made)

    def expected(self, step: Step) -> dict[str, Truth | None]:
        """Layers that a step makes; None for cells that nobody knows."""
        given = step.options
        unknown: dict[str, Truth | None] = dict.fromkeys(self.targets(step))
        if step.do == "convert":
            return {given["into"]: self._converted(given)}
        if step.do == "create":
            return {"elevation": self.altered(step)}
        if step.do not in LAYERS or f"from.{given.get('by')}" in self.hurt:
            return unknown
        if self.unknown & {"elevation", given.get("friction"), given.get("barriers")}:
            return unknown
        tree = self.truth["mst"].step if "mst" in self.truth else None
        if step.do == "accumulate" and (tree is None or tree.do != "mst"):
            return unknown
        if step.do == "flow":
            return self.undisturbed(step) if self.is_usual() else unknown
        z = self.truth["elevation"]
        if step.do == "components":
            _, where = self.condition(step)
            return {"components": oracles.components(where, given["connectivity"])}
        if step.do == "links" or z.cells.size > oracles.LARGEST:
            return self.undisturbed(step)
        grid = self.grid()
        if step.do == "mst":
            return {"mst": oracles.forest(z, given, grid)}
        points = self.points(step)
        if step.do == "accumulate":
            outlets = [point[:2] for point in points] or oracles.border(z.good)
            areas = bool(given.get("areas"))
            low = not points and tree.options["weight"] == "flow"
            how = {"areas": areas, "low": low}
            sums, codes = oracles.accumulated(z, tree.options, outlets, grid, **how)
            return {"accumulation": sums} | ({"direction": codes} if "directions" in given else {})
        if given["by"] == "edge":
            edge = oracles.border(self.usable(given), wrap=oracles.joined(grid, given))
            points = [(*cell, None, 2**32 - 1) for cell in edge]
        wanted = {"distance"}
        wanted |= {"backlink"} if {"backlink", "path", "allocation"} & given.keys() else set()
        wanted |= {"allocation"} & given.keys()
        layers = [
            self.truth.get(name) if name in given else None for name in ("friction", "barriers")
        ]
        found = oracles.paths(z, grid, given, points, *layers, codes=len(wanted) > 1)
        found["distance"].loose = given["method"] == "index"
        return {name: found[name] for name in wanted}

    def grid(self) -> GridSpec:
        """The grid of the store."""
        rows, cols, *transform = self.place
        return GridSpec(int(rows), int(cols), tuple(transform), self.crs[0] or "")

    def _converted(self, given: dict[str, Any]) -> Truth | None:
        how = [given[name] for name in ("into", "input", "variant")]
        names, truth = inputs.write(self.folder, self.terrain, *how)
        nodata = truth.nodata
        if self.hurt & set(names):
            if (
                len(names) > 1
                or not names[0].endswith(".tif")
                or given.keys() & {"round", "clamp-min"}
            ):
                return None
            outcome = self.aside(["gdal", names[0], "gdal.npz"])
            if outcome.code:
                self.fail("wrong", f"converted, but GDAL cannot read {names[0]}: {outcome.err}")
            with np.load(self.folder / "gdal.npz") as file:
                same = str(file["nodata"]) == repr(None if nodata is None else float(nodata))
                return Truth(file["cells"], nodata) if same else None
        if not given.keys() & {"round", "clamp-min"}:
            return truth
        if nodata is None and not truth.good.all():
            return None  # a nodata value is chosen
        if given.get("round") and truth.cells.dtype.kind == "f":
            if nodata is not None and not values.fits(nodata, np.dtype("int32")):
                return None
            nodata = -(2**31) if nodata is None else int(nodata)
        return Truth(oracles.converted(truth.cells, truth.nodata, given), nodata)

    def undisturbed(self, step: Step) -> dict[str, Truth | None]:
        """The layers of the same command in a new store, in other blocks, by another method."""
        clean = self.folder.with_name("clean")
        shutil.rmtree(clean, ignore_errors=True)
        clean.mkdir()
        layers = [name for name in ("elevation", "friction", "barriers") if name in self.truth]
        runs = [self.create(clean, name, self.truth[name], 256) for name in layers]
        tree = self.truth["mst"].step if "mst" in self.truth else None
        for one in [tree] * (step.do in ("accumulate", "network")) + [step]:
            if one is None:
                return dict.fromkeys(self.targets(step))
            leave = {"overwrite", "resume", "threads", "memory-limit", "json", "verify", "output"}
            given = {n: v for n, v in one.options.items() if n not in leave | {"build-index"}}
            if "method" in given and given["connectivity"] != 16:
                other = {"frozen": "contract", "contract": "frozen", "relax": "dijkstra"}
                given["method"] = other.get(given["method"], "relax")
            runs.append(self.words(replace(one, options=given), clean) or [])
        if any(self.aside(words, clean).code for words in runs):
            return dict.fromkeys(self.targets(step))
        arrays, _ = self.dump(clean)
        loose = step.options.get("method") == "index"
        return {
            name: Truth(arrays[name], loose=loose) for name in self.targets(step) if name in arrays
        }

    # -- what came out -----------------------------------------------------------------------

    def dump(self, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """All layers of the store that can be read, and facts of each."""
        out = folder / "dump.npz"
        outcome = self.aside(["dump", "s.zarr", str(out)], folder)
        if outcome.code:
            kind = "traceback" if outcome.code == 1 else "crash"
            self.fail(kind, f"reading all layers: exit code {outcome.code}\n{outcome.err}")
        with np.load(out) as file:
            facts = json.loads(str(file["facts"]))
            arrays = {name[6:]: file[name] for name in file.files if name.startswith("cells:")}
        out.unlink()
        return arrays, facts

    def compare(self, pairs: list[tuple[Step, Outcome]]) -> None:
        """Every layer holds what it held or what a step must have made of it."""
        arrays, facts = self.dump(self.folder)
        if not self.damaged:
            self.crs = facts.get("crs", self.crs)
            self.place = facts.get("grid", self.place)
            missing = [name for name in self.truth if name not in arrays]
            if missing:
                self.fail("lost", f"{missing}: {facts}")
        done = [step for step, outcome in pairs if outcome.code == 0]
        wanted: dict[str, list[tuple[Truth | None, Step | None]]] = {}
        for step, outcome in pairs:
            here = [name for name in self.targets(step) if name in arrays]
            if outcome.code == 0 or (
                outcome.code != 2  # refused
                and not all(self._is_old(n, arrays[n], facts["layers"][n]) for n in here)
            ):
                others = [one for one, end in pairs if one is not step and end.code != 2]
                for name, truth in self._candidates(step, others):
                    wanted.setdefault(name, []).append((truth, step))
        for name in sorted(arrays, key="distance".__ne__):  # backlinks go with it, and come later
            cells = arrays[name]
            if name in self.unknown and name not in wanted:
                continue
            candidates = wanted.get(name, [])
            if name in self.truth and not (len(done) == len(pairs) == 1 and candidates):
                candidates = [*candidates, (self.truth[name], None)]
            agreeing = [(t, s) for t, s in candidates if t is None or t.agrees(cells)]
            if not agreeing:
                truths = [truth for truth, _ in candidates]
                self.fail("wrong", f"layer {name}: {_difference(cells, truths)}")
            self._learn(name, cells, facts["layers"][name], *agreeing[0])
        for step in done:
            self.check_files(step, alone=len(pairs) == 1)
        self.check_outside()

    def _candidates(self, step: Step, others: list[Step]) -> Iterator[tuple[str, Truth | None]]:
        """What a step may make: of what was there, or of what another made at the same time."""
        yield from self.expected(step).items()
        for other in others:
            if other.do in ("convert", "create") and "elevation" in self.truth:
                before = self.truth
                made = {n: truth for n, truth in self.expected(other).items() if truth is not None}
                self.truth = before | made
                yield from self.expected(step).items()
                self.truth = before

    def _is_old(self, name: str, cells: np.ndarray, facts: dict[str, Any]) -> bool:
        """Cells and nodata are as before; inputs may differ in nodata only."""
        if name not in self.truth or not self.truth[name].agrees(cells):
            return False
        return repr(values.from_json(facts["nodata"])) == repr(self.truth[name].nodata)

    def _learn(
        self,
        name: str,
        cells: np.ndarray,
        facts: dict[str, Any],
        truth: Truth | None,
        step: Step | None,
    ) -> None:
        """Remember what a layer holds, once its nodata and statistics are also right."""
        nodata = values.from_json(facts["nodata"])
        raster = name in ("elevation", "friction", "barriers")
        if truth is not None and raster and repr(nodata) != repr(truth.nodata):
            self.fail("wrong", f"layer {name}: nodata {nodata}, not {truth.nodata}")
        if truth is None or step is not None:
            if raster:  # the same cells, but from another run
                made = *LAYERS.values(), *FLOWS.values(), NEEDED
                self.stale |= {layer for layers in made for layer in layers} - {name}
            elif not raster:
                self.stale -= {name}
                self.stale |= {"backlink", "allocation"} if name == "distance" else set()
            self.truth[name] = Truth(cells, nodata, step)
        self.unknown -= {name}
        if truth is None:
            self.unknown.add(name)
            return
        stats = self.truth[name].statistics()
        recorded = {key: values.from_json(facts[key]) for key in stats}
        if recorded != stats:
            self.fail("wrong", f"layer {name}: recorded {recorded}, is {stats}")

    def check_files(self, step: Step, *, alone: bool) -> None:
        """The files of a step that succeeded; with two at once they may show the earlier state."""
        given, here = step.options, self.folder
        results = list(FLOWS[given["of"]]) if step.do == "flow" else LAYERS.get(step.do, [""])
        files = {given[name]: name for name in ("backlink", "allocation") if name in given}
        if "output" in given:
            files[given["output"]] = results[0]
        if step.do == "export":
            files["out.tif"] = self.exported(step)
        for file, layer in files.items():
            if layer in self.truth and layer not in self.unknown:
                with rasterio.open(here / file) as raster:
                    cells = raster.read(1)
                truths = [self.truth[layer]]
                if not alone and layer in self.before:
                    truths.append(self.before[layer])
                wanted = [Truth(oracles.exported(truth, layer)) for truth in truths]
                if not any(one.agrees(cells) for one in wanted):
                    self.fail("wrong", f"{file}: {_difference(cells, wanted)}")
        if "json" in given and (here / given["json"]).exists():  # the second writer may have it
            json.loads((here / given["json"]).read_text())
            (here / given["json"]).unlink()
        if not alone or self.damaged or self.hurt or self.unknown & {"elevation", *results}:
            return
        if step.do == "read" and not self.truth["elevation"].agrees(np.load(here / "cells.npy")):
            self.fail("wrong", f"elevation read by {given['by']}")
        lines = {"network": given.get("to", ""), "links": "l.geojson"}.get(step.do, "")
        if lines.endswith("json"):
            self.undisturbed(step)
            clean = here.with_name("clean") / lines
            if clean.exists() and clean.read_bytes() != (here / lines).read_bytes():
                self.fail("wrong", f"{lines} differs from that of an undisturbed run")
        if step.do == "matrix" and self.truth["elevation"].cells.size <= oracles.LARGEST:
            self._check_costs(step)
        if given.get("table", "").endswith("csv"):
            with open(here / given["table"], newline="") as file:
                counts = [int(row["cells"]) for row in csv.DictReader(file)]
            if counts != np.bincount(self.truth["components"].cells.ravel())[1:].tolist():
                self.fail("wrong", f"{given['table']}: cells of components {counts[:9]}")
        if given.get("path", "").endswith("json"):
            ends = self.cells_at(given["to"])
            for feature in json.loads((here / given["path"]).read_text())["features"]:
                path = feature["properties"]
                cost = self.truth["distance"].cells[ends[path["target"] - 1]].item()
                if path["cost"] != cost:
                    self.fail("wrong", f"a path of cost {path['cost']}, distance {cost}")

    def _check_costs(self, step: Step) -> None:
        """The table of costs between places; numbers by value."""
        given = step.options
        with open(self.folder / "m.csv", newline="") as file:
            found = [
                (int(a), int(b), float(cost) if cost else None)
                for a, b, cost, *_ in list(csv.reader(file))[1:]
            ]
        layers = [
            self.truth.get(name) if name in given else None for name in ("friction", "barriers")
        ]
        grid = self.grid()
        wanted = oracles.costs_between(
            self.truth["elevation"], grid, given, self.points(step), *layers
        )
        if found != [(a, b, cost if cost is None else float(cost)) for a, b, cost in wanted]:
            self.fail("wrong", f"m.csv: {found[:9]}, not {wanted[:9]}")

    def check_outside(self) -> None:
        """Nothing that a link in the store leads to may change."""
        place = outside(self.folder)
        now = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
        changed = [name for name, data in self.canaries.items() if now.get(name) != data]
        if changed:
            self.fail("outside", f"written or deleted through a link: {changed}")
        self.canaries = now


def _difference(cells: np.ndarray, truths: list[Truth | None]) -> str:
    """How cells differ from the first of the possible results."""
    if not truths or truths[0] is None:
        return "it should not be there"
    theirs = truths[0].cells
    if theirs.shape != cells.shape:
        return f"{cells.shape} cells, not {theirs.shape}"
    bad = [
        at for at in np.ndindex(cells.shape) if repr(cells[at].item()) != repr(_item(theirs[at]))
    ]
    some = ", ".join(f"{at} is {cells[at].item()}, not {_item(theirs[at])}" for at in bad[:3])
    return f"{len(bad)} cells of {cells.size} differ ({some}); {cells.dtype}, {theirs.dtype}"


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
