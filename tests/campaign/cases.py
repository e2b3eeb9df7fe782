"""What a case is, and how one is drawn from its seed.

A case is plain data: its `repr` is Python that makes it again, and any step or fault may be left
out. So nothing here looks at files; cells and files are chosen by shares of 1.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import strategies

from terrain_gpu import cells
from terrain_gpu.cli.plan import PURPOSES
from terrain_gpu.grid import GridSpec

CRS = ["", "EPSG:4326", "EPSG:32633"]
COSTS = ["absdiff", "friction", "surface", "tobler", "langmuir", "minimax"]

WAYS = ["flip", "zero", "cut", "extend", "swap", "delete", "older", "hostile", "link"]
"""What happens to a file: one bit, a sector, its end, garbage behind it; it changes places with its
like, goes, comes back as it was; its JSON says something else; a link stands in its place."""

FLOWS = {
    "flow-direction": ("flow_direction",),
    "flow-direction --flats gradient --into gradient": ("gradient",),
    "flow-direction --inner-voids --into inner": ("inner",),
    "flow-direction --depressions fill --into across": ("across",),
    "flow-direction --depressions breach --into cut": ("cut", "breached", "mst"),
    "flow-accumulation": ("flow_accumulation",),
    "flow-accumulation --areas --into area": ("area",),
    "flow-accumulation --exclude-self --into above": ("above",),
    "flow-accumulation --weights elevation --into rain": ("rain",),
    "flow-accumulation --weights elevation --statistic mean --into mean": ("mean",),
    "flow-accumulation --weights elevation --statistic min --into low": ("low",),
    "flow-accumulation --weights elevation --statistic below --areas --into below": ("below",),
    "flow-accumulation --method mfd --into mfd": ("mfd",),
    "flow-accumulation --method quinn --exponent 2 --into quinn": ("quinn",),
    "flow-accumulation --method dinf --areas --into dinf": ("dinf",),
    "fill": ("filled",),
    "fill --epsilon --into sloping": ("sloping",),
    "fill --keep-deeper-than 3 --into lakes": ("lakes",),
    "fill --keep-deeper-than 1 --keep-larger-than 4 --into large_lakes": ("large_lakes",),
    "breach": ("breached",),
    "breach --max-distance 7 --max-depth 9 --into shallow": ("shallow",),
    "breach --lines cuts.geojson": ("breached",),
    "burn --depth 3": ("burned",),
    "depressions": ("depressions",),
    "depressions --min-depth 2 --into deep --conditioned smooth --table d.csv": ("deep", "smooth"),
    "fill-spill-merge --rain 0.5": ("water",),
    "fill-spill-merge --rain elevation --into wet --table w.csv": ("wet",),
    "basins": ("basins",),
    "basins --table b.gpkg": ("basins",),
    "hand --threshold 9 --distance away": ("hand", "away"),
    "hand --to-outlets --into relief --method dinf": ("relief",),
    "hand --threshold 5 --method dinf --into mean_hand --distance mean_away": (
        "mean_hand",
        "mean_away",
    ),
    "streams --threshold 9 --lines l.geojson": ("streams",),
    "streams --threshold 5 --order link --into links --lines l.gpkg": ("links",),
    "terrain-indices --twi twi --spi spi": ("twi", "spi"),
    "watershed --snap 100": ("watershed", "watershed_points"),
}
"""Commands along flow directions, and what they write; what they need they compute themselves."""

MATRICES = [
    "cost-matrix -o m.csv",
    "cost-matrix --nearest 2 -o m.csv --path m.geojson",
    "least-cost-network --pairs all -o m.gpkg --table m.csv",
    "least-cost-network --nearest 1 -o m.geojson --table m.csv",
]
"""Commands that write costs between places to `m.csv`."""

LINKS = ["least-cost-network -o l.geojson", "least-cost-network --pairs delaunay -o l.geojson"]
"""Commands that join places over the layers of the nearest one."""

NEEDED = ("mst", "flow_direction", "flow_direction_tree", "filled", "flow_accumulation", "slope")
"""What they compute, and take where it is there."""

RESUMABLE = ("convert", "mst", "sssp", "components", "accumulate", "flow", "matrix", "links")
"""Commands that have --resume."""

PLACES = [
    "shard",
    "metadata",
    "group",
    "manifest",
    "spill",
    "index",
    "input",
    "vector",
    "coordinates",
]
"""Which files: see `faults.files_of`."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong before or during a step.

    kind
        During: "kill" by the signal `what`, or "error" of errno `what`, at file operation `at` (or
        at `-at` seconds when negative); "disk" that has `at` bytes left; "fsize", a largest file of
        `at` bytes; "files", at most `at` open ones; "nobody", a user who may write nothing but new
        files in the folder; "home", no place for compiled kernels. Before: "damage" of a file of
        kind `what` in the way `how`. "two" stands for a second writer, `Step.beside`.
    pick
        Which file, and where in it.
    """

    kind: str
    what: str = ""
    how: str = ""
    at: float = 0
    pick: float = 0.0


@dataclass(frozen=True)
class Step:
    """A command with its options; `again`: after a fault, the same with --resume.

    `beside` is a second command that runs on the same store at the same time.
    """

    do: str
    options: dict[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    beside: Step | None = None
    again: bool = False


@dataclass(frozen=True)
class Terrain:
    """The recipe of a case's rasters; nodata as in JSON."""

    dtype: str = "int16"
    rows: int = 40
    cols: int = 50
    nodata: float | str | None = None
    terrain: str = "ramp"
    voids: str = "none"
    special: bool = False
    crs: str = ""
    seed: int = 0
    around: bool = False
    """Whether its columns go round the Earth, in longitude and latitude."""

    def raster(self, variant: int = 0) -> np.ndarray:
        """The cells of one of its rasters."""
        nodata = cells.from_json(self.nodata)
        more = {"terrain": self.terrain, "voids": self.voids, "special": self.special}
        shape = self.rows, self.cols
        seed = self.seed + variant
        dtype = np.dtype(self.dtype).newbyteorder("<")
        return strategies.Raster(dtype, shape, nodata, **more, seed=seed).cells

    @cached_property
    def grid(self) -> GridSpec:
        if self.crs == "EPSG:4326":
            top = max(-80.0, min(80.0, self.rows / 16))
            place = (0.125, 0.0, 7.0, 0.0, -0.125, top)
            if self.around:
                place = (360 / self.cols, 0.0, -180.0, 0.0, -0.125, top)
        else:
            place = (30.0, 0.0, 500_010.0, 0.0, -20.0, 5_000_000.0)
        return GridSpec(self.rows, self.cols, place)

    def friction(self) -> np.ndarray:
        random = np.random.default_rng(self.seed)
        kind = str(random.choice(["small", "real", "zeros", "holes"]))
        return strategies._friction(random, kind, (self.rows, self.cols))

    def barriers(self) -> np.ndarray:
        random = np.random.default_rng(self.seed + 1)
        kind = str(random.choice(["sparse", "diagonal", "comb", "spiral"]))
        return strategies._walls(random, kind, (self.rows, self.cols)).astype(np.uint8)


@dataclass(frozen=True)
class Case:
    terrain: Terrain
    steps: tuple[Step, ...]
    seed: int | None = None


def draw(seed: int) -> Case:
    """The case of a seed."""
    return _Draw(random.Random(seed)).case(seed)


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.some = rng.choice

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def case(self, seed: int) -> Case:
        terrain = self.terrain()
        steps = [self.step("convert", {"into": "elevation"})]
        for layer in ("friction", "barriers"):
            if self.chance(0.35):
                steps.append(self.step("convert", {"into": layer}))
        body = ["mst", "sssp", "components", "export", "create", "convert", "index", "verify"]
        body += ["accumulate", "network", "info", "plan", "read", "flow", "matrix", "links"]
        weights = [4, 6, 3, 3, 2, 2, 2, 2, 3, 2, 1, 1, 2, 12, 3, 2]
        for do in self.rng.choices(body, weights, k=self.rng.randint(1, 6)):
            if do in ("accumulate", "network") and "mst" not in [s.do for s in steps]:
                steps.append(self.step("mst"))
            steps.append(self.step(do))
        # Faults come last, so that a pipeline of any length has one or two.
        for _ in range(self.some([0, 1, 1, 1, 2, 2])):
            k = self.rng.randrange(len(steps))
            steps[k] = self.faulty(steps[k])
            damaged = steps[k].faults[-1].kind == "damage"
            if damaged and steps[k].do in RESUMABLE and self.chance(0.5) and k:
                # What a killed run leaves is damaged before it resumes.
                kill = Fault("kill", "SIGKILL", at=self.event(20))
                steps[k] = Step(steps[k].do, steps[k].options, (kill,))
                hurt = Fault("damage", self.some(["manifest", "spill"]), self.way(), 0, self.pick())
                more = {**steps[k].options, "resume": True}
                steps.insert(k + 1, Step(steps[k].do, more, (hurt,)))
        return Case(terrain, tuple(steps), seed)

    def terrain(self) -> Terrain:
        usual = ["uint8", "int16", "int32", "float32", "float64"]
        dtype = np.dtype(self.some(usual * 3 + [d.name for d in strategies.DTYPES]))
        wide = dtype.kind in "iu" and dtype.itemsize == 8
        edges = [1, 2, 3, 63, 64, 65, 127, 128, 129]
        most = 22_500 if self.chance(0.25) else 5000
        rows, cols = (
            self.some(edges) if self.chance(0.4) else self.rng.randint(1, 150) for _ in range(2)
        )
        if self.chance(0.08):
            rows, cols = self.some([(1, self.rng.randint(1, 4000)), (self.rng.randint(1, 700), 1)])
        while rows * cols > most:
            rows, cols = (rows + 1) // 2, (cols + 1) // 2
        nodata = self.some([None, None, -9999, 0, -1, 255, -32768, "NaN"])
        if nodata == "NaN" and dtype.kind != "f":
            nodata = None
        if nodata is not None and not cells.fits(cells.from_json(nodata), dtype):
            nodata = 100
        if nodata is not None and nodata != "NaN":
            nodata = dtype.type(nodata).item()
        return Terrain(
            dtype.name,
            rows,
            cols,
            nodata,
            self.some([t for t in strategies.TERRAINS if not (wide and t == "bits")]),
            "none" if nodata is None else self.some(strategies.VOIDS),
            not wide and self.chance(0.15),
            self.some(CRS),
            self.rng.randrange(2**31),
            self.chance(0.5),
        )

    def step(self, do: str, options: dict[str, Any] | None = None) -> Step:
        found = dict(options or {})
        found |= getattr(self, f"_{do}", dict)()
        writes = do in RESUMABLE
        if options and "into" in options:
            found["into"] = options["into"]
        elif (writes or do in ("export", "network", "index")) and self.chance(0.85):
            found["overwrite"] = True
        if writes and self.chance(0.1):
            found["resume"] = True
        if do not in ("create", "read"):
            if do not in ("info", "plan") and self.chance(0.8):
                found["threads"] = self.some([1, 1, 2, 3, 4])
            if do != "info" and self.chance(0.2):
                found["memory-limit"] = self.some(["280MB", "400MB", "512MB", "1GiB"])
            if self.chance(0.2):
                found["json"] = "report.json"
        return Step(do, found)

    def _convert(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "into": self.some(["elevation", "elevation", "friction", "barriers"]),
            "input": self.some(
                ["plain", "plain", "tiled", "deflate", "zstd", "mosaic", "ascii", "grass"]
            ),
            "variant": self.rng.randrange(2),
            "block-size": self.some([64, 64, 128, 256]),
        }
        if self.chance(0.3):
            found["compress"] = "zstd"
        if self.chance(0.1):
            found["round"] = True
        if self.chance(0.1):
            found["clamp-min"] = self.some([0, 1, 100])
        return found

    def _mst(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "weight": self.some(["max", "absdiff", "flow", "flow"]),
            "connectivity": self.some([8, 8, 4]),
            "method": self.some(["frozen", "frozen", "contract"]),
        }
        if self.chance(0.2):
            found["verify"] = True
        if self.chance(0.2):
            found["output"] = "edges.tif"
        return found

    def _costs(self) -> dict[str, Any]:
        found: dict[str, Any] = {"cost": self.some(COSTS), "connectivity": self.some([8, 8, 4])}
        if found["cost"] != "minimax" and self.chance(0.3):
            found["friction"] = "friction"
        for name, share in (("barriers", 0.2), ("no-corner-cutting", 0.2), ("reverse", 0.2)):
            if self.chance(share):
                found[name] = "barriers" if name == "barriers" else True
        return found

    def _sssp(self) -> dict[str, Any]:
        found = self._costs()
        found["from"] = [self.pick() for _ in range(self.rng.randint(1, 4))]
        found["by"] = self.some(["rowcol", "rowcol", "xy", "geojson", "gpkg", "edge"])
        found["method"] = self.some(["relax", "relax", "relax", "dijkstra", "index"])
        if found["method"] == "index" and self.chance(0.8):
            found["build-index"] = True
        if found["method"] == "relax" and self.chance(0.2):
            found["connectivity"] = 16
        if found["method"] == "index" or self.chance(0.2):
            found["wrap"] = "no"
        if found["method"] != "index" and self.chance(0.15):
            found["max-cost"] = self.some([0, 5, 100, 3000])
        for name, share in (("backlink", 0.3), ("allocation", 0.3), ("output", 0.2), ("path", 0.2)):
            if self.chance(share):
                found[name] = (
                    f"{name}.tif" if name != "path" else self.some(["p.geojson", "p.gpkg"])
                )
        if "path" in found:
            found["to"] = [self.pick() for _ in range(self.rng.randint(1, 3))]
        if self.chance(0.2):
            found["verify"] = True
        return found

    _index = _costs

    def _matrix(self) -> dict[str, Any]:
        found = {"of": self.some(MATRICES), **self._costs()}
        found["from"] = [self.pick() for _ in range(self.rng.randint(2, 11))]
        found["by"] = self.some(["rowcol", "xy", "geojson", "gpkg"])
        if self.chance(0.2):
            found["connectivity"] = 16
        if self.chance(0.2):
            found["wrap"] = "no"
        if self.chance(0.3):
            found["verify"] = True
        return found

    def _links(self) -> dict[str, Any]:
        return {**self._matrix(), "of": self.some(LINKS)}

    def _components(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "where": self.some(["above", "below", "void", "value", "between"]),
            "bound": self.pick(),
            "connectivity": self.some([8, 4]),
        }
        if self.chance(0.4):
            found["table"] = self.some(["t.csv", "t.parquet", "t.geojson", "t.fgb"])
        return found

    def _accumulate(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance(0.5):
            found["from"] = [self.pick() for _ in range(self.rng.randint(1, 4))]
        if self.chance(0.3):
            found["areas"] = True
        if self.chance(0.3):
            found["directions"] = "direction"
        return found

    def _flow(self) -> dict[str, Any]:
        found: dict[str, Any] = {"of": self.some(list(FLOWS))}
        if found["of"].split()[0] in ("watershed", "burn"):
            found["from"] = [self.pick() for _ in range(self.rng.randint(1, 4))]
        if "burn" in found["of"]:
            found["by"] = "gpkg"
        if self.chance(0.2):
            found["output"] = "flow.tif"
        if self.chance(0.2) and "streams" not in found["of"]:
            found["verify"] = True
        return found

    def _network(self) -> dict[str, Any]:
        return {
            "min-length": self.some([0, 50, 300, 3000]),
            "to": self.some(["n.geojson", "n.gpkg"]),
        }

    def _export(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "layer": self.some(["elevation", "mst", "distance", "components", "accumulation"])
        }
        if self.chance(0.3):
            found["cog"] = True
        if self.chance(0.4):
            found["compress"] = self.some(["none", "deflate", "lzw", "zstd"])
        return found

    def _create(self) -> dict[str, Any]:
        return {"pick": self.pick(), "block-size": self.some([64, 128]), "resume": self.chance(0.2)}

    def _plan(self) -> dict[str, Any]:
        return {"for": self.some(PURPOSES)}

    def _read(self) -> dict[str, Any]:
        return {"by": self.some(["zarr", "xarray", "map"])}

    # -- faults ------------------------------------------------------------------------------

    def pick(self) -> float:
        return round(self.rng.random(), 4)

    def event(self, first: int = 1) -> int:
        """A file operation among the first hundreds, early ones as often as late ones."""
        return int(math.exp(self.rng.uniform(math.log(first), math.log(500))))

    def way(self) -> str:
        return self.some(WAYS)

    def faulty(self, step: Step) -> Step:
        """The step with another fault, or with a second writer."""
        kind = self.some(
            ["kill"] * 15 + ["damage"] * 21 + ["error"] * 6 + ["disk"] * 6 + ["fsize"] * 3
            + ["files"] * 3 + ["nobody"] * 3 + ["two"] * 6 + ["home"]
        )  # fmt: skip
        beside, again = step.beside, step.again or self.chance(0.8)
        if kind == "two":
            beside = (
                step
                if self.chance(0.4)
                else self.step(
                    self.some(
                        ["mst", "sssp", "convert", "create", "info", "export", "components", "flow"]
                    )
                )
            )
        fault = {
            "kill": lambda: Fault(
                "kill",
                self.some(["SIGKILL", "SIGKILL", "SIGINT", "SIGTERM"]),
                at=self.event() if self.chance(0.7) else -round(self.rng.uniform(0.005, 0.4), 3),
            ),
            "error": lambda: Fault(
                "error",
                self.some(["EIO", "ENOSPC", "EACCES", "EMFILE"]),
                self.some(["once", "always"]),
                self.event(),
            ),
            "disk": lambda: Fault("disk", at=int(10 ** self.rng.uniform(3.5, 5.5))),
            "fsize": lambda: Fault("fsize", at=int(10 ** self.rng.uniform(2, 5.5))),
            "files": lambda: Fault("files", at=self.rng.randint(10, 50)),
            "nobody": lambda: Fault("nobody"),
            "home": lambda: Fault("home"),
            "damage": lambda: Fault(
                "damage", self.some(PLACES[:1] * 4 + PLACES), self.way(), 0, self.pick()
            ),
            "two": lambda: Fault("two"),
        }[kind]()
        return Step(step.do, step.options, (*step.faults, fault), beside, again)
