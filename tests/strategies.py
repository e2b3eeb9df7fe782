"""Hypothesis strategies for rasters, from one cell to a few blocks.

A raster is drawn as a recipe (terrain, pattern of nodata, seed) and built by numpy, so that large
arrays stay cheap, shrink to small recipes, and a failing example prints as one line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from terrain_gpu import cells
from terrain_gpu.grid import TILE, GridSpec

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


def block_sizes(largest: int = 1024):
    """Sides of blocks, small ones first."""
    return st.sampled_from([b for b in BLOCK_SIZES if b <= largest])


def sides(largest: int = 300):
    """Rows or columns: anything, with a liking for 1, primes and the neighbours of tile edges."""
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
    """What a raster may declare as nodata: None, the usual codes, NaN, infinities, any value."""
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
        Strategies; any cell type and `shapes` when None.
    nodata
        Whether there may be a nodata value. Without one there are no voids.
    special
        Whether extreme values and, in float rasters, NaN and infinities may be strewn in.
    terrains, voids
        Allowed kinds of `TERRAINS` and `VOIDS`.
    """
    cell = draw(dtypes() if dtype is None else dtype)
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


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Equality of type, shape and every bit: NaN payloads and the sign of zero included."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
    )
