"""Write fractal terrain of any size: every cell is a pure function of (row, col, seed).

Blocks are independent, so memory stays constant and any partition gives the same bits.
"""

import math
import os
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import click
import numba
import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.enums import WktVersion
from rasterio.windows import Window
from tqdm import tqdm

NODATA = {"uint16": 65535, "int16": -9999, "int32": -9999, "float32": np.nan, "float64": np.nan}
EPSG = "EPSG:32633"
TRANSFORM = (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_500_000.0)
TERRAIN, HOLES = 1, 2  # independent noise fields of one seed
OCTAVE_SIGMA = 0.463  # standard deviation of one octave, measured
HOLE_SIZE, HOLE_THRESHOLD = 64, 2.01  # about 2 % of the cells lie above
TILE = 256


@numba.njit(nogil=True, cache=True)
def _hash(i, j, key):
    """Mix a lattice node and a key into 64 random bits (splitmix64's finaliser)."""
    h = np.uint64(i) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(j) * np.uint64(0xD1B54A32D192ED03)
    h += np.uint64(key)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def _node(i, j, key):
    """Return the random value and the slopes along rows and columns of a node, in [-1, 1)."""
    h = np.int64(_hash(i, j, key) >> np.uint64(1))
    scale = 1.0 / (1 << 20)
    mask = (1 << 21) - 1
    return (h >> 42) * scale - 1, ((h >> 21) & mask) * scale - 1, (h & mask) * scale - 1


@numba.njit(nogil=True, cache=True)
def _edge(i, j, y, key):
    """Return value and slope along columns, at height y of the edge from node (i, j) down."""
    value0, down0, right0 = _node(i, j, key)
    value1, down1, right1 = _node(i + 1, j, key)
    value0 += down0 * y
    value1 += down1 * (y - 1)
    s = y * y * (3 - 2 * y)
    return value0 + s * (value1 - value0), right0 + s * (right1 - right0)


@numba.njit(nogil=True, cache=True)
def _add_octaves(out, r0, c0, octaves):
    """Add octaves of noise (value and gradient, period 2**shift) to the window at (r0, c0)."""
    shifts, amplitudes, keys = octaves
    rows, cols = out.shape
    for row in range(rows):
        for octave in range(shifts.size):
            shift, amplitude, key = shifts[octave], amplitudes[octave], keys[octave]
            period, scale = 1 << shift, 1.0 / (1 << shift)
            # A random origin per octave, or all lattices would meet in cell (0, 0).
            r = r0 + row + (key & (period - 1))
            c = c0 + ((key >> 32) & (period - 1))
            i, j = r >> shift, c >> shift
            y = (r & (period - 1)) * scale
            value1, slope1 = _edge(i, j, y, key)
            start = (j << shift) - c
            while start < cols:
                value0, slope0 = value1, slope1
                j += 1
                value1, slope1 = _edge(i, j, y, key)
                for col in range(max(start, 0), min(start + period, cols)):
                    x = (col - start) * scale
                    left = value0 + slope0 * x
                    right = value1 + slope1 * (x - 1)
                    left += x * x * (3 - 2 * x) * (right - left)
                    out[row, col] += amplitude * left
                start += period


@lru_cache
def _octaves(seed, field, size, roughness):
    """Return shifts, amplitudes and keys of the octaves with periods size ... 2 (unit variance)."""
    shifts = np.arange(size.bit_length() - 1, 0, -1)
    # Rounding hides the last bit, where platforms' power functions may differ.
    gain = round(2.0**-roughness, 12)
    amplitudes = np.cumprod(np.full(shifts.size, gain))
    amplitudes /= OCTAVE_SIGMA * math.sqrt(math.fsum(amplitudes**2))
    key = np.uint64(seed & (2**64 - 1))
    keys = np.array([_hash(field, shift, key) for shift in shifts], np.uint64)
    return shifts, amplitudes, keys.view(np.int64)  # numba would mix uint64 and int64 into float


def terrain_window(r0, r1, c0, c1, *, dtype="float32", **options):
    """Return rows r0:r1, columns c0:c1 of the endless terrain; voids hold ``NODATA[dtype]``.

    Options are those of ``_band``, as in ``make_terrain.py --help``. Heights lie in [0, relief].
    """
    out = np.empty((r1 - r0, c1 - c0), dtype)
    # Thin bands, because the float64 work arrays should stay in cache.
    height = max(1, 2**16 // max(1, c1 - c0))
    for r in range(r0, r1, height):
        band = out[r - r0 : r - r0 + height]
        band[:] = _band(r, c0, band.shape, out.dtype, **options)
    return out


def _band(
    r0, c0, shape, dtype, *, seed=1, roughness=0.8, feature_size=4096, relief=1000.0,
    lakes=False, holes=False, coast=False,
):  # fmt: skip
    if dtype.kind in "iu" and relief >= np.iinfo(dtype).max:
        raise ValueError(f"a relief of {relief} does not fit {dtype}; choose another dtype")
    octaves = _octaves(seed, TERRAIN, feature_size, roughness)
    third = octaves[0].size // 3
    coarse, fine = tuple(o[:third] for o in octaves), tuple(o[third:] for o in octaves)
    cells = np.zeros(shape)
    _add_octaves(cells, r0, c0, coarse)
    if lakes:
        # Terraces of the coarse field, four standard deviations of the fine one apart.
        step = 4 * OCTAVE_SIGMA * math.sqrt(math.fsum(fine[1] ** 2))
        level = step * np.floor(cells / step)
    _add_octaves(cells, r0, c0, fine)
    if lakes:
        np.maximum(cells, level, out=cells)
    void = cells < 0 if coast else np.zeros(shape, bool)
    if holes:
        noise = np.zeros(shape)
        _add_octaves(noise, r0, c0, _octaves(seed, HOLES, HOLE_SIZE, 0.5))
        void |= noise > HOLE_THRESHOLD
    # Square roots and quotients are exact to the last bit everywhere; tanh would not be.
    cells /= np.sqrt(3 + cells * cells)
    cells = relief * (cells if coast else 0.5 + 0.5 * cells)
    if dtype.kind in "iu":
        np.rint(cells, out=cells)
    cells[void] = NODATA[dtype.name]
    return cells


def _in_order(task, items, threads):
    """Yield ``task(item)`` in order, computed by threads; few results wait, whatever the size."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque()
        for item in tqdm(items, unit="block", disable=None):  # None: a bar on terminals only
            waiting.append(pool.submit(task, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def write_geotiff(path, shape, window, *, dtype, threads, compress, strips):
    """Write ``window(r0, r1, c0, c1)`` for the whole raster into a GeoTIFF."""
    rows, cols = shape
    height, width = (max(1, 2**20 // cols), cols) if strips else (1024, 1024)
    windows = [
        (r, min(r + height, rows), c, min(c + width, cols))
        for r in range(0, rows, height)
        for c in range(0, cols, width)
    ]
    profile = {
        "driver": "GTiff", "dtype": dtype, "count": 1, "height": rows, "width": cols,
        "crs": EPSG, "transform": rasterio.Affine(*TRANSFORM), "nodata": NODATA[dtype],
        "bigtiff": "IF_SAFER",
    }  # fmt: skip
    if not strips:
        profile |= {"tiled": True, "blockxsize": TILE, "blockysize": TILE}
    if compress != "none":
        predictor = 3 if dtype.startswith("float") else 2
        profile |= {"compress": compress, "predictor": predictor, "num_threads": threads}
    # A killed run must not leave a file that looks whole.
    part = path.with_name(f"{path.name}.part")
    with rasterio.open(part, "w", **profile) as dst:
        for (r0, r1, c0, c1), cells in _in_order(lambda w: (w, window(*w)), windows, threads):
            dst.write(cells, 1, window=Window(c0, r0, c1 - c0, r1 - r0))
        dst.set_band_unit(1, "m")
    part.replace(path)


def write_store(path, shape, window, *, dtype, threads, block_size, overwrite):
    """Write ``window(r0, r1, c0, c1)`` for the whole raster into layer "elevation" of a store."""
    from terrain_gpu.grid import GridSpec
    from terrain_gpu.store import create_layer

    wkt = CRS.from_string(EPSG).to_wkt(version=WktVersion.WKT2_2019)
    grid = GridSpec(*shape, TRANSFORM, wkt, EPSG)
    with create_layer(
        path, "elevation", grid, np.dtype(dtype), nodata=NODATA[dtype], block_size=block_size,
        attributes={"units": "m"}, overwrite=overwrite,
    ) as layer:  # fmt: skip

        def write(block):
            layer.write_block(*block, window(*layer.block_window(*block)))

        deque(_in_order(write, list(layer.blocks.ids()), threads), maxlen=0)
        layer.commit()


def _parse_shape(ctx, param, value):
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", value)
    if not match:
        raise click.BadParameter(f"{value!r} is not ROWSxCOLS, such as 4096x6000")
    return int(match[1]), int(match[2])


@click.command(context_settings={"show_default": True})
@click.argument("shape", callback=_parse_shape, metavar="ROWSxCOLS")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seed", default=1, help="Another seed, another terrain.")
@click.option("--dtype", type=click.Choice(list(NODATA)), default="float32")
@click.option(
    "--roughness", type=click.FloatRange(0, 2), default=0.8, metavar="H",
    help="Hurst exponent: octaves weigh frequency^-H. 1 is smooth, 0.5 rugged, 0 noise.",
)  # fmt: skip
@click.option(
    "--feature-size", type=click.IntRange(2, 2**30), default=4096, metavar="CELLS",
    help="Period of the largest octave, rounded down to a power of two; the finest is 2 cells.",
)  # fmt: skip
@click.option(
    "--relief", type=click.FloatRange(0), default=1000.0, metavar="METRES",
    help="Heights lie in [0, METRES].",
)  # fmt: skip
@click.option("--lakes", is_flag=True, help="Fill hollows: plateaus of exactly equal heights.")
@click.option("--holes", is_flag=True, help="Irregular nodata voids, about 2 % of the cells.")
@click.option(
    "--coast", is_flag=True,
    help="Nodata sea and heights from 0 at the shore; about half on rasters of many features.",
)  # fmt: skip
@click.option("--block-size", default=1024, metavar="N", help="Side of a store's block, in cells.")
@click.option("--threads", type=click.IntRange(1), default=os.cpu_count())
@click.option("--compress", type=click.Choice(["none", "deflate"]), default="none", help="GeoTIFF.")
@click.option("--strips", is_flag=True, help="GeoTIFF in strips instead of 256 x 256 tiles.")
@click.option("--overwrite", is_flag=True, help="Replace OUT.")
def main(*, shape, out, seed, dtype, block_size, threads, compress, strips, overwrite, **options):
    """Write fractal terrain to OUT: a GeoTIFF when it ends in .tif, else a terrain_gpu store.

    Every cell is a pure function of (row, col, seed) and the options, so a smaller raster is the
    upper left corner of a larger one. Nodata is -9999 (int16, int32), 65535 (uint16) or NaN.
    """
    if out.exists() and not overwrite:
        raise click.ClickException(f"{out} exists; give --overwrite to replace it")
    window = partial(terrain_window, seed=seed, dtype=dtype, **options)
    try:
        window(0, 1, 0, 1)  # compiles before the threads start, and before OUT is touched
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    common = {"dtype": dtype, "threads": threads}
    if out.suffix.lower() in {".tif", ".tiff"}:
        write_geotiff(out, shape, window, **common, compress=compress, strips=strips)
    else:
        write_store(out, shape, window, **common, block_size=block_size, overwrite=overwrite)


if __name__ == "__main__":
    main()
