"""Which codec suits tiles of layers? Ratio, and GB/s of one core for coding and decoding.

Every layer type is coded in tiles of 64 x 64 cells, as layers are stored, by one thread. The
rasters given are real terrain; beside them are fractal terrain and noise. Trees and distances are
computed from each of them. GB/s are of uncompressed bytes, by the processor's time of the thread
(best of three), and include the calls from Python. The columns "block" code all tiles of a block as
one piece, which no window or halo can read in part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numcodecs
import numcodecs.blosc
import numcodecs.zstd
import numpy as np
import rasterio

import terrain_gpu
from bench.stores import add_layer, cells_of
from bench.table import Table
from bench.terrain import fractal

TILE, BLOCK = 64, 1024
SHUFFLES = {"": 0, "+shuffle": 1, "+bitshuffle": 2}


def codecs(size: int) -> dict:
    """Functions that code and decode one piece, by name."""
    numcodecs.blosc.use_threads = False
    found = {
        f"zstd {level}": (
            partial(numcodecs.zstd.compress, level=level), numcodecs.zstd.decompress
        )
        for level in (1, 3)
    }  # fmt: skip
    for name in ("lz4", "zstd"):
        for label, shuffle in SHUFFLES.items():
            code = partial(
                numcodecs.blosc.compress, cname=name.encode(), clevel=1, shuffle=shuffle,
                blocksize=0, typesize=size,
            )  # fmt: skip
            found[f"blosc {name}{label}"] = code, numcodecs.blosc.decompress
    return found


def tiles_of(cells: np.ndarray) -> np.ndarray:
    """The whole blocks of a raster, each as tiles: shape (blocks, tiles, bytes)."""
    block = min(BLOCK, *(n // TILE * TILE for n in cells.shape))
    rows, cols = (n // block for n in cells.shape)
    side = block // TILE
    cut = cells[: rows * block, : cols * block].reshape(rows, side, TILE, cols, side, TILE)
    tiles = np.ascontiguousarray(cut.transpose(0, 3, 1, 4, 2, 5))
    return tiles.reshape(rows * cols, side * side, -1).view(np.uint8)


def measure(pieces: list, code, decode) -> tuple[float, float, float]:
    """Ratio, and GB/s for coding and decoding."""
    raw = sum(piece.nbytes for piece in pieces)
    best = [np.inf, np.inf]
    for _ in range(3):
        start = time.thread_time()
        coded = [code(piece) for piece in pieces]
        middle = time.thread_time()
        for one in coded:
            decode(one)
        spent = middle - start, time.thread_time() - middle
        best = [min(a, b) for a, b in zip(best, spent, strict=True)]
    if any(bytes(decode(c)) != p.tobytes() for c, p in zip(coded[:9], pieces[:9], strict=True)):
        raise SystemExit("not the same bytes")
    return sum(map(len, coded)) / raw, *(raw / 1e9 / seconds for seconds in best)


def layers_of(store: Path, cells: np.ndarray, nodata: object) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and cells of layers: heights, and what is computed from them."""
    if not store.exists():
        add_layer(store, cells, nodata=nodata, block_size=BLOCK)
        terrain_gpu.minimum_spanning_tree(store)
        middle = [tuple(n // 2 for n in cells.shape)]
        paths = partial(terrain_gpu.shortest_paths, store, middle, backlink=True)
        if cells.dtype.kind != "f":
            paths(into="integer", cost="absdiff")
        paths(into="real", cost="surface")
        terrain_gpu.accumulate(store, into="sums", directions="directions")
    for layer in terrain_gpu.TileStore.open(store).layers:
        yield layer, cells_of(store, layer)


def rasters(paths: list[Path], side: int) -> Iterator[tuple[str, np.ndarray, object]]:
    """Yield the name, cells and nodata value of each raster."""
    for path in paths:
        with rasterio.open(path) as source:
            yield path.stem.split("_")[0], source.read(1), source.nodata
    smooth = fractal(side)
    yield "fractal-float32", smooth, None
    yield "fractal-uint16", np.rint(smooth - smooth.min()).astype("<u2"), None
    yield "noise-uint16", np.random.default_rng(1).integers(0, 65536, (side, side), "<u2"), None


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("rasters", nargs="*", type=Path)
    parser.add_argument("--side", type=int, default=2048, help="of terrain, and most rows read")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    print(f"numcodecs {numcodecs.__version__}, blosc {numcodecs.blosc.VERSION_STRING}\n")
    table = Table(
        "terrain | layer | type | codec | ratio | code | decode | block: ratio | code | decode"
    )
    for name, cells, nodata in rasters(given.rasters, given.side):
        middle = max(cells.shape[0] - given.side, 0) // 2
        part = np.ascontiguousarray(cells[middle : middle + given.side, : given.side])
        store = given.work / f"codecs-{name}-{given.side}.zarr"
        for layer, values in layers_of(store, part, nodata):
            tiles = tiles_of(values)
            for codec, (code, decode) in codecs(values.itemsize).items():
                small = measure([t for block in tiles for t in block], code, decode)
                large = measure(list(tiles), code, decode)
                table.row(name, layer, str(values.dtype), codec, *small, *large)
