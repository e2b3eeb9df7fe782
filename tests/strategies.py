"""Hypothesis strategies for rasters, from one cell to a few blocks.

A raster is drawn as a recipe (terrain, pattern of nodata, seed) and built by numpy, so that large
arrays stay cheap, shrink to small recipes, and a failing example prints as one line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace

import numpy as np
import reference
from effort import is_long
from hypothesis import strategies as st

from terrain_gpu import cells
from terrain_gpu.grid import TILE, GridSpec, ceil_div
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.store import Layer, TileStore

LONG = is_long()  # within an example, the number of examples is that of the test
DTYPES = list(cells.DTYPES)
BLOCK_SIZES = [64, 128, 256, 512, 1024]
PRIMES = [2, 3, 7, 31, 61, 67, 101, 127, 131, 211, 257, 293]

TERRAINS = ["flat", "steps", "ties", "ramp", "hills", "bits"]
"""One value; constant squares; few values; no value twice in a row; smooth; any bits at all."""

VOIDS = ["none", "all", "one", "sparse", "dense", "tiles", "rim", "lakes"]
"""Where nodata lies."""


def dtypes(kinds: str = "uif"):
    """Cell types of the given kinds: u(nsigned), i(nteger), f(loat)."""
    return st.sampled_from([d for d in DTYPES if d.kind in kinds])


def loaded_dtypes():
    """Cell types that kernels load cells of; each is compiled. All of them in long runs."""
    usual = ["uint8", "int16", "int64", "float32", "float64"]
    return dtypes() if LONG else st.sampled_from(usual).map(cells.layer_dtype)


def block_sizes(largest: int = 1024):
    """Sides of blocks, small ones first."""
    return st.sampled_from([b for b in BLOCK_SIZES if b <= largest])


def sides(largest: int = 300):
    """Rows or columns: anything, with a preference for 1, primes and sizes next to tile edges."""
    edges = [k * TILE + d for k in range(1, largest // TILE + 2) for d in (-1, 0, 1)]
    liked = sorted({n for n in [1, *PRIMES, *edges] if n <= largest})
    return st.one_of(st.sampled_from(liked), st.integers(1, largest))


def shapes(largest: int = 300, cells: int = 60_000):
    """(rows, cols) of at most `cells` cells."""
    return st.tuples(sides(largest), sides(largest)).filter(lambda s: s[0] * s[1] <= cells)


@st.composite
def windows(draw, shape: tuple[int, int]):
    """A non-empty half-open window (row0, row1, col0, col1) of a raster."""
    row0, col0 = draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))
    row1 = draw(st.integers(row0 + 1, shape[0]))
    col1 = draw(st.integers(col0 + 1, shape[1]))
    return row0, row1, col0, col1


def extremes(dtype: np.dtype) -> list[float | int]:
    """Finite values at the limits of a cell type, as Python numbers."""
    if dtype.kind == "f":
        info = np.finfo(dtype)
        tiny = [info.smallest_subnormal, info.tiny, info.eps]
        found = [0.0, -0.0, 1.0, -1.0, info.max, info.min, *tiny, 2.0**24 + 1, 0.1]
        return [dtype.type(v).item() for v in found]
    info = np.iinfo(dtype)
    return sorted({int(info.min), int(info.min) + 1, 0, 1, int(info.max) - 1, int(info.max)})


def scalars(dtype: np.dtype):
    """Any finite value a cell of `dtype` can hold, as a Python number."""
    if dtype.kind == "f":
        drawn = st.floats(allow_nan=False, allow_infinity=False, width=8 * dtype.itemsize)
    else:
        drawn = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return st.one_of(st.sampled_from(extremes(dtype)), drawn)


def nodata_values(dtype: np.dtype, *, none: bool = True):
    """What a raster may declare as nodata: None, usual codes, NaN, infinities, any value."""
    usual = [v for v in (-9999, -32768, 255, 0, -1) if cells.fits(v, dtype)]
    if dtype.kind == "f":
        usual = [float(v) for v in usual] + [math.nan, math.inf, -math.inf]
    choices = [st.sampled_from(usual), scalars(dtype)]
    return st.one_of(*([st.none()] if none else []), *choices)


@dataclass(frozen=True)
class Raster:
    """Cells and their nodata value, with the recipe they come from."""

    dtype: np.dtype
    shape: tuple[int, int]
    nodata: float | int | None = None
    terrain: str = "ramp"
    voids: str = "none"
    special: bool = False
    seed: int = 0
    cells: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", build(self))


def has_no_largest(raster):
    """Whether a raster can have a tree: without the largest integer of 64 bits."""
    data = raster.cells
    if data.dtype.kind == "f" or data.dtype.itemsize < 8:
        return True
    good = reference.vertices(data, raster.nodata)
    return not (good & (data == np.iinfo(data.dtype).max)).any()


def build(raster: Raster) -> np.ndarray:
    """The cells of a recipe; C-contiguous, native, read-only."""
    rng = np.random.default_rng(raster.seed)
    data = _terrain(rng, raster.terrain, raster.shape, raster.dtype)
    if raster.special:
        some = rng.random(raster.shape) < 0.05
        data[some] = rng.choice(np.array(extremes(raster.dtype), raster.dtype), some.sum())
        if raster.dtype.kind == "f":
            word = f"<u{raster.dtype.itemsize}"
            odd = np.array([np.nan, -np.nan, np.inf, -np.inf], raster.dtype).view(word)
            odd = np.append(odd, odd[0] | 5)  # a NaN with a payload: bits must survive
            some = rng.random(raster.shape) < 0.05
            data.view(word)[some] = rng.choice(odd, some.sum())
    empty = _voids(rng, raster.voids, raster.shape)
    data[empty] = 0 if raster.nodata is None else raster.nodata
    data.flags.writeable = False
    return data


def _terrain(
    rng: np.random.Generator, kind: str, shape: tuple[int, int], dtype: np.dtype
) -> np.ndarray:
    rows, cols = shape
    row, col = np.ogrid[:rows, :cols]
    if kind == "bits":
        bits = rng.integers(0, 256, (rows, cols * dtype.itemsize), np.uint8).view(dtype)
        if dtype.kind == "f":
            bits[~np.isfinite(bits)] = 0
        return bits
    top = 1e4 if dtype.kind == "f" else min(int(np.iinfo(dtype).max), 10_000)
    low = 0 if dtype.kind == "u" else -top // 3
    if kind == "flat":
        unit = np.full(shape, rng.random())
    elif kind == "steps":
        side = int(rng.integers(2, 90))
        coarse = rng.random((rows // side + 1, cols // side + 1))
        unit = coarse[row // side, col // side]
    elif kind == "ties":
        unit = rng.integers(0, 4, shape) / 4
    elif kind == "ramp":
        unit = (row * cols + col) % 9973 / 9973
    else:
        wave = rng.random(6) * [0.2, 0.2, 6, 0.05, 0.05, 6]
        unit = 0.25 * (
            2 + np.sin(wave[0] * row + wave[1] * col + wave[2])
            + np.cos(wave[3] * row - wave[4] * col + wave[5])
        )  # fmt: skip
    values = low + np.broadcast_to(unit, shape) * (top - low)
    return (values if dtype.kind == "f" else np.floor(values)).astype(dtype)


def _voids(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    rows, cols = shape
    row, col = np.ogrid[:rows, :cols]
    empty = np.zeros(shape, bool)
    if kind == "all":
        empty[...] = True
    elif kind == "one":
        empty[rng.integers(rows), rng.integers(cols)] = True
    elif kind in ("sparse", "dense"):
        empty = rng.random(shape) < (0.02 if kind == "sparse" else 0.97)
    elif kind == "tiles":
        coarse = rng.random((rows // TILE + 1, cols // TILE + 1)) < 0.6
        empty = coarse[row // TILE, col // TILE]
    elif kind == "rim":
        width = int(rng.integers(1, 1 + max(1, min(shape) // 3)))
        far = np.minimum(np.minimum(row, rows - 1 - row), np.minimum(col, cols - 1 - col))
        empty = np.broadcast_to(far < width, shape)
    elif kind == "lakes":
        for _ in range(3):
            radius = rng.random() * max(shape) / 3
            r, c = rng.random() * rows, rng.random() * cols
            empty = empty | ((row - r) ** 2 + (col - c) ** 2 < radius**2)
    return empty


@st.composite
def rasters(
    draw,
    dtype=None,
    shape=None,
    *,
    nodata: bool = True,
    special: bool = True,
    terrains=tuple(TERRAINS),
    voids=tuple(VOIDS),
):
    """A `Raster`.

    Parameters
    ----------
    dtype, shape
        Strategies; `loaded_dtypes` and `shapes` when None.
    nodata
        Whether there may be a nodata value. Without one there are no voids.
    special
        Whether to scatter extreme values and, in float rasters, NaN and infinities.
    terrains, voids
        Allowed kinds of `TERRAINS` and `VOIDS`.
    """
    cell = draw(loaded_dtypes() if dtype is None else dtype)
    value = draw(nodata_values(cell)) if nodata else None
    return Raster(
        dtype=cell,
        shape=draw(shapes() if shape is None else shape),
        nodata=value,
        terrain=draw(st.sampled_from(terrains)),
        voids="none" if value is None else draw(st.sampled_from(voids)),
        special=special and draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def transforms(draw):
    """Affine transforms of north-up and other axis-parallel grids, exact in binary."""
    cell = st.sampled_from([0.25, 1.0, 10.0, 30.0, 2.0**-12])
    a = draw(cell) * draw(st.sampled_from([1, 1, 1, -1]))
    e = draw(cell) * draw(st.sampled_from([-1, -1, -1, 1]))
    corner = st.integers(-(2**20), 2**20)
    return (a, 0.0, float(draw(corner)), 0.0, e, float(draw(corner)))


@st.composite
def grids(draw, shape=None):
    """A `GridSpec` without CRS; of any size up to 2**31 - 1 on a side when `shape` is None."""
    large = st.one_of(st.integers(1, 2**31 - 1), st.sampled_from([1, 2**31 - 1]))
    rows, cols = draw(st.tuples(large, large) if shape is None else shape)
    return GridSpec(rows, cols, draw(transforms()))


MODELS = ["absdiff", "friction", "surface", "tobler", "langmuir", "minimax"]

FRICTIONS = ["ones", "small", "zeros", "real", "holes"]
"""1; 1 to 4; 0 to 2; real numbers from 0.1 to 10; those with cells of NaN, which are no cells."""

WALLS = ["none", "sparse", "dense", "diagonal", "comb", "spiral"]
"""Cells nobody may enter: strewn, lines with corners to cut, and mazes with one way through."""

WGS84 = (
    'GEOGCRS["WGS 84",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.257223563,'
    'LENGTHUNIT["metre",1]]],CS[ellipsoidal,2],AXIS["latitude",north],AXIS["longitude",east],'
    'ANGLEUNIT["degree",0.0174532925199433]]'
)


@dataclass(frozen=True)
class CostProblem:
    """A cost-distance problem, with the recipe of its arrays.

    `cells` are those of the raster with the walls as nodata, `barriers` the walls otherwise (or
    None); `friction` is float64, uint8 where it is whole, or None.
    """

    raster: Raster
    grid: GridSpec
    model: str
    friction_kind: str | None = None
    walls: str = "none"
    walls_are_nodata: bool = False
    connectivity: int = 8
    corner_cutting: bool = True
    reverse: bool = False
    seed: int = 0
    sources: tuple[tuple[int, int, float | int | None, int], ...] = ()
    max_cost: float | int | None = None
    cells: np.ndarray = field(init=False, repr=False, compare=False)
    friction: np.ndarray | None = field(init=False, repr=False, compare=False)
    barriers: np.ndarray | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        data, walls = self.raster.cells, _walls(rng, self.walls, self.raster.shape)
        if self.walls_are_nodata:
            data = np.where(walls, data.dtype.type(self.raster.nodata), data)
        object.__setattr__(self, "cells", data)
        with_barriers = self.walls != "none" and not self.walls_are_nodata
        object.__setattr__(self, "barriers", walls if with_barriers else None)
        object.__setattr__(self, "friction", _friction(rng, self.friction_kind, data.shape))

    @property
    def exact(self) -> bool:
        """Whether distances are integers."""
        whole = self.cells.dtype.kind in "iu" and self.model in ("absdiff", "minimax")
        return whole and self.friction is None and self.connectivity != 16

    @property
    def valid(self) -> np.ndarray:
        """Mask of the cells with a value in all layers, barriers aside."""
        good = reference.vertices(self.cells, self.raster.nodata)
        return good if self.friction is None else good & np.isfinite(self.friction)

    @property
    def graph(self) -> dict:
        """The options of `reference.arcs`."""
        return {
            "f": self.friction,
            "valid": self.valid,
            "lengths": step_lengths(self.grid, self.connectivity),
            "connectivity": self.connectivity,
            "barriers": self.barriers,
            "corner_cutting": self.corner_cutting,
            "reverse": self.reverse,
        }


def _friction(
    rng: np.random.Generator, kind: str | None, shape: tuple[int, int]
) -> np.ndarray | None:
    if kind is None:
        return None
    if kind in ("ones", "small", "zeros"):
        low, high = {"ones": (1, 1), "small": (1, 4), "zeros": (0, 2)}[kind]
        return rng.integers(low, high, shape, np.uint8, endpoint=True)
    values = 10 ** rng.uniform(-1, 1, shape)
    if kind == "holes":
        values[rng.random(shape) < 0.1] = np.nan
    return values


def _walls(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    row, col = np.ogrid[: shape[0], : shape[1]]
    if kind in ("sparse", "dense"):
        walls = rng.random(shape) < (0.1 if kind == "sparse" else 0.4)
    elif kind == "diagonal":
        walls = (row + col) % int(rng.integers(3, 9)) == 0
    elif kind == "comb":
        # Every other column, with the gap at the top and the bottom in turn.
        gap = np.where(col % 4 == 1, 0, shape[0] - 1)
        walls = (col % 2 == 1) & (row != gap)
    elif kind == "spiral":
        walls = _spiral(shape)
    else:
        return np.zeros(shape, bool)
    return walls[:: rng.choice([1, -1]), :: rng.choice([1, -1])]


def _spiral(shape: tuple[int, int]) -> np.ndarray:
    """Walls of a corridor that winds inward, both one cell wide."""
    walls = np.pad(np.ones((shape[0] + 2, shape[1] + 2), bool), 1)
    at, step, turns = np.array([2, 2]), np.array([0, 1]), 0
    while turns < 2:
        walls[tuple(at)] = False
        if walls[tuple(at + step)] and walls[tuple(at + 2 * step)]:
            at, turns = at + step, 0
        else:
            step, turns = np.array([step[1], -step[0]]), turns + 1
    return walls[2:-2, 2:-2]


def compiled_for(dtype: np.dtype, models: tuple[str, ...]) -> tuple[str, ...]:
    """The models whose kernels usual runs compile for this cell type: for one type of reals each.

    Kernels of both are compiled for "friction" and "absdiff", and for all models in long runs.
    """
    wide = dtype.itemsize > 4 or dtype in ("int32", "uint32")
    narrow_only, wide_only = {"surface", "tobler"}, {"langmuir", "minimax"}
    found = tuple(m for m in models if m not in (narrow_only if wide else wide_only))
    return models if LONG else found or models


@st.composite
def cost_problems(
    draw,
    raster=None,
    *,
    models=tuple(MODELS),
    walls=tuple(WALLS),
    geographic=True,
    multiplied=True,
    connectivities=(8, 4),
):
    """A `CostProblem` with up to 5 sources, or none when no cell is left.

    Parameters
    ----------
    raster
        Strategy of rasters; small ones of any type by default.
    models, walls
        Allowed kinds of `MODELS` and `WALLS`.
    geographic
        Whether the grid may be in degrees.
    multiplied
        Whether a friction layer may multiply models other than "friction".
    connectivities
        Allowed numbers of neighbours.
    """
    small = rasters(shape=shapes(130, 1500))
    chosen = draw(small if raster is None else raster)
    model = draw(st.sampled_from(compiled_for(chosen.dtype, models)))
    frictions = FRICTIONS if model == "friction" or (multiplied and model != "minimax") else []
    optional = [] if model == "friction" else [None]
    problem = CostProblem(
        raster=chosen,
        grid=draw(_georeferenced(chosen.shape, geographic)),
        model=model,
        friction_kind=draw(st.sampled_from(optional + frictions)),
        walls=draw(st.sampled_from(walls)),
        walls_are_nodata=chosen.nodata is not None and draw(st.booleans()),
        connectivity=draw(st.sampled_from(connectivities)),
        corner_cutting=draw(st.booleans()),
        reverse=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
    problem = replace(problem, sources=draw(_sources(problem)))
    if problem.sources and draw(st.booleans()):
        distance = reference.dijkstra(problem.cells, model, problem.sources, **problem.graph)
        reached = sorted(d for d in distance.ravel() if d < math.inf)
        problem = replace(problem, max_cost=reached[draw(st.integers(0, len(reached) - 1))])
    return problem


@st.composite
def _georeferenced(draw, shape: tuple[int, int], geographic: bool):
    """Planar grids, steep and gentle, also mirrored, and grids of an eighth of a degree."""
    if geographic and shape[0] <= 1440 and draw(st.booleans()):
        top = draw(st.integers(ceil_div(shape[0], 8) - 90, 90))
        return GridSpec(*shape, (0.125, 0.0, 7.0, 0.0, -0.125, float(top)), WGS84)
    cell = draw(st.sampled_from([1.0, 30.0, 4096.0]))
    across, down = draw(st.sampled_from([(1, -1), (1.5, -1), (1, -4), (-1, 0.3)]))
    return GridSpec(*shape, (cell * across, 0.0, 500.0, 0.0, cell * down, -40.0))


@st.composite
def _sources(draw, problem: CostProblem):
    good = problem.valid if problem.barriers is None else problem.valid & ~problem.barriers
    places = reference.listed(good)
    if not places:
        return ()
    if problem.model == "minimax":
        costs = [None, *(problem.cells[draw(st.sampled_from(places))].item() for _ in range(2))]
    else:
        costs = [None, 0, 1, 1000] + ([] if problem.exact else [0.1])
    found = [
        (*draw(st.sampled_from(places)), draw(st.sampled_from(costs)))
        for _ in range(draw(st.integers(1, 5)))
    ]
    names = draw(st.permutations(range(1, len(found) + 1)))
    return tuple((*source, name) for source, name in zip(found, names, strict=True))


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Equality of type, shape and every bit: NaN payloads and the sign of zero included."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    )


def without_checksums(layer: Layer) -> Layer:
    """The layer as another program would make it: nothing is recorded of its cells."""
    path = layer.path / "zarr.json"
    metadata = json.loads(path.read_text())
    for key in ("digest", "checksum"):
        del metadata["attributes"]["terrain_gpu"][key]
    path.write_text(json.dumps(metadata))
    (layer.path / "digests").unlink()
    return TileStore.open(layer.path.parent).layer(layer.name)
