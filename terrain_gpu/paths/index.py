"""The distance index: distances between the rim cells of every tile, and solving from them.

A tile of 64 x 64 cells has 252 rim cells. The index holds, per tile, the distances between them
along ways inside of the tile (half of them where costs are symmetric), and the steps into them from
other tiles: all that other sources need to find the distances of all rims, without any cell. It is
phase 1 of docs/design.md, "Shortest paths"; the files are those of a Zarr array, see `Index`.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import mmap
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numba
import numpy as np
import zarr
from numba.extending import register_jitable
from zarr.codecs import BytesCodec, Crc32cCodec

from ..cuda.device import Gpu, find_gpu, memory_bound, name_of
from ..errors import InputError, PlanError, StoreError
from ..executor import stream
from ..grid import TILE, BlockGrid, ceil_div
from ..mst.boruvka import jit, known_types
from ..planner import (
    COMPILED_BASELINE,
    CUDA_BASELINE,
    MB,
    available_threads,
    default_memory_limit,
    format_size,
)
from ..progress import Progress, silent
from ..report import Report
from ..store import TileStore
from ..store.layer import KEY
from ..store.places import alone, beside, held, swap
from ..store.run import Target
from ..store.writer import _UMASK, output_error, output_errors
from .block import _farthest
from .costs import CostModel, join, joining, largest
from .ground import Raster, Terrain
from .lengths import step_lengths
from .relax import Block, Field, Overflow, Relaxation, pages
from .sources import NO_SOURCES
from .tile import COL_STEP, PADDED, ROW_STEP, fill_weights, new_tile_work, relax_tile

log = logging.getLogger(__name__)

NAME = "distance_index"
FORMAT = 1
RING = 4 * TILE - 4
"""Rim cells of a tile, clockwise from its upper left corner."""

DIRECTED = ("tobler", "langmuir")
"""Models whose steps cost another amount on the way back."""

_LAST = TILE - 1
_WAY = np.arange(_LAST)
RING_ROW = np.concatenate((0 * _WAY, _WAY, _LAST + 0 * _WAY, _LAST - _WAY))
RING_COL = np.concatenate((_WAY, _LAST + 0 * _WAY, _LAST - _WAY, 0 * _WAY))


def _crossings() -> np.ndarray:
    """Steps into rim cells from other tiles: rim cell, D8 direction, tile step, its rim cell."""
    place = {(int(r), int(c)): b for b, (r, c) in enumerate(zip(RING_ROW, RING_COL, strict=True))}
    found = []
    for (row, col), b in place.items():
        for k in range(8):
            r, c = row + int(ROW_STEP[k]), col + int(COL_STEP[k])
            i, j = r // TILE, c // TILE
            if (i, j) != (0, 0):
                found.append((b, k, i, j, place[r % TILE, c % TILE]))
    return np.array(found, np.int64).T.copy()


CROSSINGS = _crossings()
STEPS = CROSSINGS.shape[1]


def entries_of(symmetric: bool) -> int:
    """Numbers that a tile has in the index: distances between rim cells, then steps into them."""
    return (RING * (RING - 1) // 2 if symmetric else RING * RING) + STEPS


# -- kernels -------------------------------------------------------------------------------

LANES = 64
"""Rim cells from which a tile is relaxed at once: those of a side, and one to spare."""


def new_index_work(distance: np.dtype) -> tuple:
    """Arrays that `index_tile` works in."""
    return (
        pages((PADDED, PADDED * LANES), distance),  # by row, column with its halo, and lane
        np.empty((8, TILE, TILE), distance),  # cost of a step into each cell from each neighbour
        np.empty((2, PADDED), np.bool_),  # rows to relax from the one above, and from below
    )


@jit
def relax_from_many(way, work):
    """Relax a tile from many cells at once, a lane for each, until nothing changes.

    Every lane takes the same steps, so these cost one load for all, and scans along a row, where
    each cell waits for the one before, wait for all lanes together.
    """
    d, weights, pending = work
    down, up = pending
    busy = True
    while busy:
        busy = False
        for y in range(1, TILE + 1):
            if down[y]:
                down[y] = False
                if _relax_row(way, d[y - 1], d[y], weights, y - 1, 6, 7, 5):
                    busy = down[y + 1] = up[y - 1] = True
        for y in range(TILE, 0, -1):
            if up[y]:
                up[y] = False
                if _relax_row(way, d[y + 1], d[y], weights, y - 1, 2, 1, 3):
                    busy = down[y + 1] = up[y - 1] = True


@register_jitable
def _relax_row(way, other, here, weights, row, straight, right, left):
    """Relax a row from the one above or below, and along itself; whether anything changed."""
    changed = False
    beyond, beside, before = weights[straight, row], weights[right, row], weights[left, row]
    east, west = weights[0, row], weights[4, row]
    # One index into whole rows: LLVM sees that columns do not overlap, and vectorises.
    for x in range(TILE):
        wn, wr, wl, ww = beyond[x], beside[x], before[x], west[x]
        for lane in range(LANES):
            i = (x + 1) * LANES + lane
            old = here[i]
            best = min(join(way, other[i], wn), join(way, other[i + LANES], wr))
            best = min(best, join(way, other[i - LANES], wl), old)
            new = min(best, join(way, here[i - LANES], ww))
            changed |= new != old
            here[i] = new
    for x in range(TILE - 1):
        we = east[TILE - 2 - x]
        for lane in range(LANES):
            i = (TILE - 1 - x) * LANES + lane
            old = here[i]
            new = min(old, join(way, here[i + LANES], we))
            changed |= new != old
            here[i] = new
    return changed


@jit
def index_tile(
    cost, heights, frictions, absent, lengths, row, col, options, nothing, symmetric, work, entries
):
    """Entries of one tile, by relaxations of it from the rim cells of one side after the other.

    Parameters
    ----------
    heights, frictions, absent, lengths, row, col, options
        See `tile.fill_weights`.
    nothing
        Distance of a rim cell from itself.
    symmetric
        Whether only distances to rim cells of lower number are kept.
    work
        From `new_index_work`.
    entries
        Receives them, see `entries_of`.
    """
    d, weights, pending = work
    entries[:] = largest(d)
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, weights)
    for first in range(0, RING, _LAST):
        d[:] = largest(d)
        pending[:] = False
        for lane in range(_LAST):
            r, c = RING_ROW[first + lane], RING_COL[first + lane]
            if not absent[row + 1 + r, col + 1 + c]:
                d[r + 1, (c + 1) * LANES + lane] = nothing
                # Its own row was not scanned yet.
                pending[0, r + 1 : r + 3] = True
                pending[1, r] = True
        relax_from_many(joining(cost), work)
        for lane in range(_LAST):
            b = first + lane
            start = b * (b - 1) // 2 if symmetric else b * RING
            for a in range(b if symmetric else RING):
                entries[start + a] = d[RING_ROW[a] + 1, (RING_COL[a] + 1) * LANES + lane]
    for p in range(STEPS):
        b, k = CROSSINGS[0, p], CROSSINGS[1, p]
        r, c = RING_ROW[b], RING_COL[b]
        if not absent[row + 1 + r + ROW_STEP[k], col + 1 + c + COL_STEP[k]]:
            entries[len(entries) - STEPS + p] = weights[k, r, c]


@jit
def pass_block(way, data, rims, first, shape, inside, symmetric, limit, guard, sides, scratch):
    """Pass distances on from rim to rim through the tiles of a block, nearest first, to the end.

    Parameters
    ----------
    way
        Of `costs.joining`: nothing else of a cost model matters here.
    data
        Entries of the block's tiles, (rows, columns, entries).
    rims
        Distances of all rim cells, by tile, padded by one tile.
    first, shape
        First tile of the block, row and column, and how many there are.
    inside
        Whether rims inside of the block were set, not only those of its neighbours.
    symmetric
        Whether entries are halves.
    limit, guard
        See `block.relax_block`.
    sides
        Per D8 direction: lowered to the least value that concerns the blocks there.
    scratch
        Two arrays of RING values.

    Returns
    -------
    visits, overflow
        Tiles visited, and whether `guard` was passed.
    """
    top = largest(rims)
    down, across = shape
    keys = np.full((down, across), top, rims.dtype)
    queue = [(top, np.int64(0))]
    queue.clear()
    for t in range(down * across):
        i, j = t // across, t % across
        if inside or i in (0, down - 1) or j in (0, across - 1):
            keys[i, j] = _arriving(way, data[i, j], rims, first[0] + i, first[1] + j, scratch)
            if keys[i, j] < top:
                heapq.heappush(queue, (keys[i, j], np.int64(t)))
    visits = 0
    while len(queue) > 0:
        key, t = heapq.heappop(queue)
        i, j = t // across, t % across
        if key != keys[i, j]:
            continue
        if key > limit:
            break
        keys[i, j] = top
        y, x = first[0] + i, first[1] + j
        _arriving(way, data[i, j], rims, y, x, scratch)
        visits += 1
        if _through(way, data[i, j], rims[y + 1, x + 1], symmetric, scratch) > guard:
            return visits, True
        old, mine = scratch[1], rims[y + 1, x + 1]
        for p in range(STEPS):
            b, dy, dx = CROSSINGS[0, p], CROSSINGS[2, p], CROSSINGS[3, p]
            value = mine[b]
            if value >= old[b] or value >= rims[y + 1 + dy, x + 1 + dx, CROSSINGS[4, p]]:
                continue
            r, c = i + dy, j + dx
            if 0 <= r < down and 0 <= c < across:
                if value < keys[r, c]:
                    keys[r, c] = value
                    heapq.heappush(queue, (value, r * across + c))
                continue
            for k in range(8):
                if ROW_STEP[k] == _beyond(r, down) and COL_STEP[k] == _beyond(c, across):
                    sides[k] = min(sides[k], value)
    return visits, False


@register_jitable
def _beyond(k, count):
    return -1 if k < 0 else (1 if k >= count else 0)


@register_jitable
def _arriving(way, entries, rims, i, j, scratch):
    """What steps from other tiles bring to a tile's rim, in `scratch`; the least that is news."""
    top, never = largest(rims), largest(entries)
    news, mine = scratch[0], rims[i + 1, j + 1]
    news[:] = top
    base = len(entries) - STEPS
    least = top
    for p in range(STEPS):
        there = rims[i + 1 + CROSSINGS[2, p], j + 1 + CROSSINGS[3, p], CROSSINGS[4, p]]
        b = CROSSINGS[0, p]
        if there < mine[b] and entries[base + p] < never:
            new = join(way, there, rims.dtype.type(entries[base + p]))
            if new < mine[b] and new < news[b]:
                news[b] = new
                least = min(least, new)
    return least


@register_jitable
def _through(way, entries, mine, symmetric, scratch):
    """Lower a tile's rim by what arrives and goes on through the tile; the farthest that changed.

    `scratch` has what arrives, and receives what the rim was before.
    """
    top, never = largest(mine), largest(entries)
    kind = mine.dtype.type
    news, old = scratch
    for b in range(RING):
        old[b] = mine[b]
        mine[b] = min(mine[b], news[b])
    most = kind(0)
    for b in np.argsort(news):
        value = news[b]
        if value == top:
            break
        if mine[b] < value:
            continue  # something else that arrives is nearer even here
        # Rows of entries are contiguous, and this loop without branches: it is vectorised.
        start, count = (b * (b - 1) // 2, b) if symmetric else (b * RING, RING)
        row = entries[start : start + count]
        for a in range(count):
            w = kind(row[a]) if row[a] < never else top
            mine[a] = min(mine[a], join(way, value, w))
        if symmetric:
            place = b * (b + 1) // 2 + b
            for a in range(b + 1, RING):
                if entries[place] < never:
                    mine[a] = min(mine[a], join(way, value, kind(entries[place])))
                place += a
    for b in range(RING):
        if mine[b] < old[b]:
            most = max(most, mine[b])
    return most


@jit
def seed_rims(
    cost, heights, frictions, absent, lengths, options, distances, chosen, rims, first, work
):
    """Solve the chosen tiles, those with sources in them, and lower their rims."""
    improved = np.empty(8, distances.dtype)
    for i in range(chosen.shape[0]):
        for j in range(chosen.shape[1]):
            if not chosen[i, j]:
                continue
            row, col = i * TILE, j * TILE
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
            relax_tile(joining(cost), distances, row, col, True, work, improved)
            mine = rims[first[0] + i + 1, first[1] + j + 1]
            for b in range(RING):
                value = distances[row + 1 + RING_ROW[b], col + 1 + RING_COL[b]]
                mine[b] = min(mine[b], value)


@jit
def fill_block(
    cost, heights, frictions, absent, lengths, options, distances, rims, first, shape, work
):
    """Distances of all cells of a block, its sources set, from its tiles' rims; the farthest."""
    top = largest(distances)
    down, across = shape
    improved = np.empty(8, distances.dtype)
    for i in range(-1, down + 1):
        for j in range(-1, across + 1):
            mine = rims[first[0] + i + 1, first[1] + j + 1]
            for b in range(RING):
                r, c = i * TILE + RING_ROW[b] + 1, j * TILE + RING_COL[b] + 1
                if 0 <= r < distances.shape[0] and 0 <= c < distances.shape[1]:
                    distances[r, c] = min(distances[r, c], mine[b])
    most = distances.dtype.type(0)
    for i in range(down):
        for j in range(across):
            row, col = i * TILE, j * TILE
            if distances[row : row + TILE + 2, col : col + TILE + 2].min() == top:
                continue
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work[1])
            relax_tile(joining(cost), distances, row, col, True, work, improved)
            most = max(most, _farthest(work[0]))
    return most


# -- the files -----------------------------------------------------------------------------


def index_settings(
    model: CostModel, problem: Mapping[str, Any], rasters: Mapping[str, Raster | None]
) -> dict[str, Any]:
    """What an index depends on: the steps and what they cost, not sources or limits."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "cost": model.name,
        "parameters": model.parameters,
        "connectivity": problem["connectivity"],
        "corner_cutting": problem["corner_cutting"],
        "reverse": problem["reverse"] and model.name in DIRECTED,
    }
    found |= {key: raster and Path(raster.name).name for key, raster in rasters.items()}
    found |= {f"{key} cells": raster and _identity(raster.data) for key, raster in rasters.items()}
    return json.loads(json.dumps(found))


def _identity(layer: Any) -> dict[str, Any]:
    """What tells the cells of a layer from others."""
    kept = ("sources", "settings", "stored_bytes", "valid_cells", "min", "max")
    found = {name: layer.info.get(name) for name in kept}
    if not found["sources"]:
        # Nothing says where the cells are from: when they were written tells.
        found["written"] = (layer.path / "zarr.json").stat().st_mtime_ns
    return found


class Index:
    """The distance index of a store, open for reading; all methods are thread-safe.

    A Zarr array of shape (tile rows, tile columns, entries) whose chunks are the tiles of a block,
    not compressed, with a checksum (crc32c).

    Attributes
    ----------
    path
        Its folder.
    settings
        See `index_settings`.
    symmetric
        Whether entries are halves.
    dtype
        Of entries; the largest value (`costs.largest`) where there is no way.
    bytes
        Size of the files.
    """

    def __init__(self, path: Path, blocks: BlockGrid, own: Mapping[str, Any]) -> None:
        self.path, self.blocks = path, blocks
        self.settings = own["settings"]
        self.symmetric = bool(own["symmetric"])
        self.dtype = np.dtype(own["dtype"])
        self.entries = entries_of(self.symmetric)
        self.bytes = int(own.get("stored_bytes", 0))
        self.capacity = 1
        self._lock = threading.Lock()
        self._open: OrderedDict[Block, np.ndarray] = OrderedDict()
        self._sound: set[Block] = set()

    @property
    def chunk(self) -> tuple[int, int]:
        """Tile rows and columns of a file."""
        side = self.blocks.block // TILE
        down, across = ceil_div(self.blocks.rows, TILE), ceil_div(self.blocks.cols, TILE)
        return min(side, down), min(side, across)

    @property
    def file_bytes(self) -> int:
        """Size of every file, its checksum included."""
        return self.chunk[0] * self.chunk[1] * self.entries * self.dtype.itemsize + 4

    def file(self, at: Block) -> Path:
        """File of a block."""
        return self.path / "c" / str(at[0]) / str(at[1]) / "0"

    def tiles(self, at: Block) -> tuple[int, int]:
        """Rows and columns of tiles in a block."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        return ceil_div(r1 - r0, TILE), ceil_div(c1 - c0, TILE)

    def write_metadata(self, own: Mapping[str, Any]) -> None:
        """The Zarr array, without its chunks."""
        (self.path / "zarr.json").unlink(missing_ok=True)
        shape = ceil_div(self.blocks.rows, TILE), ceil_div(self.blocks.cols, TILE), self.entries
        zarr.create_array(
            str(self.path),
            shape=shape,
            chunks=(*self.chunk, self.entries),
            dtype=self.dtype,
            serializer=BytesCodec(endian="little"),
            compressors=Crc32cCodec(),
            filters=None,
            fill_value=largest(np.empty(0, self.dtype)),
            dimension_names=("tile_row", "tile_column", "entry"),
            attributes={KEY: dict(own)},
        )

    @classmethod
    def open(cls, store: TileStore, blocks: BlockGrid) -> Index | None:
        """The index of a store; None when there is none.

        Raises
        ------
        StoreError
            when its metadata is damaged, or of other blocks.
        """
        path = store.path / NAME
        if not (path / "zarr.json").exists():
            return None
        remedy = "build it again with --overwrite, or delete the folder"
        try:
            array = zarr.open_array(str(path), mode="r", zarr_format=3)
            own: Any = array.attrs.asdict()[KEY]
            if own["dtype"] not in ("float64", "uint32", "uint64"):
                raise ValueError(f"entries of type {own['dtype']!r}")
            if not isinstance(own["settings"], dict) or type(own["symmetric"]) is not bool:
                raise ValueError("settings are no JSON object, or symmetric is no truth value")
            found = cls(path, blocks, own)
            tiles = ceil_div(blocks.rows, TILE), ceil_div(blocks.cols, TILE)
            expected = (*tiles, found.entries), (*found.chunk, found.entries), found.dtype
            there = array.shape, array.chunks, array.dtype
            if there != expected:
                raise ValueError(f"shape, chunks and type are {there}, not {expected}")
            codecs = array.metadata.codecs  # type: ignore[union-attr]
            if [type(c) for c in codecs] != [BytesCodec, Crc32cCodec]:
                raise ValueError("its codecs are not plain bytes with crc32c")
        except Exception as error:  # zarr meets hostile JSON with whatever its parsers raise
            raise StoreError(
                f"{path}/zarr.json: damaged distance index ({type(error).__name__}: {error}); "
                f"{remedy}"
            ) from error
        return found

    def difference(self, settings: Mapping[str, Any]) -> str | None:
        """What this index was built for, and is not asked for now; None when all is equal."""
        for key in settings:
            was, now = self.settings.get(key), settings[key]
            if was != now:
                if key.endswith(" cells"):
                    return f"the {key.removesuffix(' cells')} layer has changed since"
                return f"{key} was {was!r} and is now {now!r}"
        return None

    def read(self, at: Block) -> np.ndarray:
        """Entries of a block's tiles, mapped: (rows, columns, entries), read-only.

        Raises
        ------
        StoreError
            when the file is missing or damaged.
        """
        with self._lock:
            found = self._open.get(at)
            if found is not None:
                self._open.move_to_end(at)
                return found
            while len(self._open) >= self.capacity:
                self._open.popitem(last=False)
        found = self._mapped(at)
        with self._lock:
            self._open[at] = found
        return found

    def _mapped(self, at: Block) -> np.ndarray:
        path = self.file(at)
        remedy = "build the index again with --overwrite"
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self.file_bytes:
                    raise StoreError(
                        f"{path}: has {size} bytes, not {self.file_bytes}: truncated or another "
                        f"file; {remedy}"
                    )
                whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise StoreError(f"{path}: missing from the distance index; {remedy}") from None
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        if at not in self._sound:
            flat = np.frombuffer(whole, np.uint8)
            if _crc(flat[:-4]) != int.from_bytes(flat[-4:].tobytes(), "little"):
                raise StoreError(f"{path}: corrupt (crc32c differs); {remedy}")
            self._sound.add(at)
        cells = np.frombuffer(whole, self.dtype, (len(whole) - 4) // self.dtype.itemsize)
        return cells.reshape(*self.chunk, self.entries)

    def close(self) -> None:
        """Let go of the files."""
        self._open.clear()


def _crc(data: np.ndarray) -> int:
    """CRC-32C in pieces: the checksum wants bytes objects."""
    crc = 0
    for start in range(0, len(data), 1 << 22):
        crc = google_crc32c.extend(crc, data[start : start + (1 << 22)].tobytes())
    return crc


# -- building ------------------------------------------------------------------------------


def index_dtype(model: CostModel, heights: np.dtype) -> np.dtype:
    """Type of the entries.

    Raises
    ------
    InputError
        for integers of 64 bits, whose distances inside of a tile may not fit.
    """
    if model.is_integer(heights) and heights.itemsize == 8:
        raise InputError(
            f"a distance index takes integer heights of up to 32 bits, not {heights.name}; use "
            "another method, or convert to float64"
        )
    return model.distance_dtype(heights)


class _Build(Target):
    """A build: its folder, what is finished of it, and how it gets into place."""

    def __init__(self, store: Path) -> None:
        super().__init__(store, NAME, replace_store=False)

    def records(self, index: Index) -> Iterator[tuple[int, int]]:
        """Blocks that are finished."""
        with open(self.manifest, encoding="utf-8", errors="replace") as lines:
            next(lines, None)
            for line in lines:
                # A kill may leave the last line half written: that block is simply done again.
                with contextlib.suppress(ValueError, TypeError, OSError):
                    i, j, size = json.loads(line)
                    if size == index.file((i, j)).stat().st_size == index.file_bytes:
                        yield i, j

    def put_in_place(self) -> None:
        swap(self.work, self.place, beside(self.work, "replaced"))
        self.clear()
        self._unlock()


def build_index(
    data: str | os.PathLike[str] | TileStore,
    *,
    cost: str = "absdiff",
    friction: str | None = None,
    barriers: str | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: int = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    layer: str = "elevation",
    memory_limit: int | None = None,
    threads: int | None = None,
    backend: str = "auto",
    device: int = 0,
    gpu_memory_limit: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Build the distance index of a store, for `shortest_paths` with ``method="index"``.

    A build that was killed goes on where it stood. An index that is there already, for the same
    layers and costs, stays.

    Parameters
    ----------
    data
        A store, or its path.
    cost, friction, barriers, parameters, connectivity, corner_cutting, reverse, layer
        As for `shortest_paths`. `reverse` matters for tobler and langmuir only.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    backend
        "cpu", "cuda", or "auto": CUDA where it works. The files are the same, byte for byte.
    device
        Which GPU.
    gpu_memory_limit
        Bound on the GPU memory used, bytes; nine tenths of what is free when None.
    overwrite
        Replace an index for other costs, or a damaged one.
    progress
        Called with the cells just done and those to do in all.

    Returns
    -------
    Report
        Its result has "bytes", "bytes_per_cell", "blocks_resumed" and "built".

    Raises
    ------
    InputError
        for unknown models and integer heights of 64 bits; when CUDA is wanted and does not work.
    PlanError
        when a limit is too small.
    StoreError
        when an index for other costs is there, or another run is building one.
    OutputError
        when the disk is full.
    """
    store = data if isinstance(data, TileStore) else TileStore.open(data)
    if connectivity not in (4, 8):
        raise InputError(f"connectivity {connectivity} is not 8 or 4")
    model = CostModel(cost, friction is not None, parameters or {})
    rasters = {"layer": layer, "friction": friction, "barriers": barriers}
    opened = {key: name and _raster(store, name) for key, name in rasters.items()}
    problem = {
        "connectivity": connectivity,
        "corner_cutting": corner_cutting,
        "reverse": reverse,
    }
    gpu = find_gpu(backend, device, gpu_memory_limit, memory_limit)
    limits = memory_limit, threads, gpu
    report = Report("build-index")
    with report.measured():
        _build(store, model, problem, opened, limits, overwrite, progress, report)
    return report


def _raster(store: TileStore, name: str) -> Raster:
    found = store.layer(name)
    return Raster(found, str(found.path), found.nodata)


def _build(
    store: TileStore,
    model: CostModel,
    problem: Mapping[str, Any],
    rasters: Mapping[str, Any],
    limits: tuple[int | None, int | None, Gpu | None],
    overwrite: bool,
    progress: Progress,
    report: Report,
) -> None:
    heights = rasters["layer"]
    blocks = heights.data.blocks
    dtype = index_dtype(model, heights.dtype)
    settings = index_settings(model, problem, rasters)
    own = {
        "format": FORMAT,
        "settings": settings,
        "dtype": dtype.name,
        "symmetric": model.name not in DIRECTED,
    }
    target = _Build(store.path)
    index = Index(target.work, blocks, own)
    plan = _plan(index, model, *limits)
    where = {"backend": "cpu"}
    if plan.device is not None:
        where = {"backend": "cuda", "gpu": name_of(plan.device)}
    report.settings = {**settings, **where, "threads": plan.threads}
    report.cells = blocks.rows * blocks.cols
    with output_errors(store.path), alone(store.path):
        if held(target.manifest):
            raise StoreError(f"{store.path}: another run is building the distance index")
        there = None if overwrite else Index.open(store, blocks)
        if there is not None:
            different = there.difference(settings)
            if different:
                raise StoreError(
                    f"{there.path}: is for other costs: {different}; --overwrite replaces it"
                )
            report.result = _result(there, 0, built=False)
            return
        header = json.loads(json.dumps(own))
        resumed = target.header() == header
        if not resumed:
            target.begin(store.grid, header)
        target.lock()
        index.write_metadata(own)
    try:
        done = set(target.records(index)) if resumed else set()
        _write_blocks(target, index, model, problem, rasters, done, plan, progress)
        stored = blocks.count * index.file_bytes
        with output_errors(store.path), alone(store.path):
            index.write_metadata({**own, "stored_bytes": stored})
            target.put_in_place()
    except BaseException:
        target.release(keep=True)
        raise
    index.bytes = stored
    report.result = _result(index, len(done), built=True)


def _result(index: Index, resumed: int, *, built: bool) -> dict[str, Any]:
    return {
        "bytes": index.bytes,
        "bytes_per_cell": round(index.bytes / (index.blocks.rows * index.blocks.cols), 2),
        "blocks_resumed": resumed,
        "built": built,
    }


class _Plan(NamedTuple):
    """Threads, and for a GPU which one, a limit, and rows of tiles that are solved at once."""

    threads: int
    device: int | None = None
    gpu_limit: int = 0
    tile_rows: int = 0


def _plan(
    index: Index, model: CostModel, memory_limit: int | None, threads: int | None, gpu: Gpu | None
) -> _Plan:
    """Where and how to build under the limits; what does not fit a GPU is left to the CPU."""
    if gpu is None:
        return _Plan(_threads_within(index, model, memory_limit, threads, COMPILED_BASELINE))
    from . import gpu_index

    try:
        baseline = COMPILED_BASELINE + CUDA_BASELINE
        most = _threads_within(index, model, memory_limit, threads, baseline)
        limit, most, tile_rows = gpu_index.plan(index, most, gpu.memory_limit, gpu.device)
    except PlanError as error:
        gpu.leave(error)
        return _plan(index, model, memory_limit, threads, None)
    return _Plan(most, gpu.device, limit, tile_rows)


def _threads_within(
    index: Index, model: CostModel, memory_limit: int | None, threads: int | None, baseline: int
) -> int:
    """Threads that build under a memory limit."""
    blocks, item = index.blocks, index.dtype.itemsize
    limit = default_memory_limit() if memory_limit is None else memory_limit
    cells = (blocks.block + 2) ** 2
    # Heights, frictions, barriers, as read and as the kernels take them; masks; a row of tiles,
    # once more as bytes; the lanes.
    one = cells * (2 * item + 16 * model.needs_friction + 8 + 3)
    one += 2 * (blocks.block // TILE) * entries_of(False) * item + PADDED**2 * LANES * item
    for n in range(min(threads or available_threads(), blocks.count), 0, -1):
        if (memory := baseline + n * one) <= limit:
            return n
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to build a distance index in blocks "
        f"of {blocks.block}; give at least {ceil_div(memory, MB)} MB"
    )


class _Solver:
    """Computes the entries of blocks, one after the other, in arrays of its own."""

    def __init__(
        self, terrain: Terrain, options: tuple[bool, bool, bool], index: Index, nothing: Any
    ) -> None:
        self.terrain, self.options, self.index, self.nothing = terrain, options, index, nothing
        self._work = new_index_work(index.dtype)
        self._row = np.zeros((index.chunk[1], index.entries), index.dtype)

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Entries of a block, row by row of tiles, in a buffer that is used again."""
        field = self.terrain.load(at)
        down, across = self.index.tiles(at)
        self._row[across:] = 0
        for i in range(down):
            for j in range(across):
                self.solve(field, i, j, self._row[j])
            yield self._row

    def solve(self, field: Field, i: int, j: int, entries: np.ndarray) -> None:
        """Entries of a tile of a block."""
        index_tile(
            self.terrain.model.kernel,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            i * TILE,
            j * TILE,
            self.options,
            self.nothing,
            self.index.symmetric,
            self._work,
            entries,
        )

    def compile(self) -> None:
        """Compile in this thread, which Ctrl-C reaches; a worker would be waited for."""
        heights, frictions = (np.zeros((PADDED, PADDED), dtype) for dtype in self.terrain.types)
        absent, lengths = np.ones((PADDED, PADDED), bool), np.ones((4, PADDED))
        field = Field(heights, frictions, absent, lengths, None)  # type: ignore[arg-type]
        self.solve(field, 0, 0, self._row[0])


@contextlib.contextmanager
def _solvers(
    terrain: Terrain, options: tuple[bool, bool, bool], index: Index, plan: _Plan
) -> Iterator[list[Any]]:
    """One for each thread."""
    nothing = index.dtype.type(-np.inf if terrain.model.name == "minimax" else 0)
    how = terrain, options, index, nothing
    if plan.device is None:
        found = [_Solver(*how) for _ in range(plan.threads)]
        found[0].compile()
        yield found
        return
    import cupy

    from .gpu_index import Solver

    with memory_bound(plan.gpu_limit, plan.device), cupy.cuda.Device(plan.device):
        yield [Solver(*how, plan.tile_rows) for _ in range(plan.threads)]


def _write_blocks(
    target: _Build,
    index: Index,
    model: CostModel,
    problem: Mapping[str, Any],
    rasters: Mapping[str, Any],
    done: set[Block],
    plan: _Plan,
    progress: Progress,
) -> None:
    blocks = index.blocks
    layer = rasters["layer"].data
    terrain = Terrain(
        blocks,
        model,
        rasters["layer"],
        rasters["friction"],
        rasters["barriers"],
        step_lengths(layer.grid),
        NO_SOURCES,
        index.dtype,
    )
    options = problem["connectivity"] == 8, problem["corner_cutting"], problem["reverse"]
    target.temporary.mkdir(exist_ok=True)
    record = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)

    def write(at: Block, solver: Any) -> None:
        with output_errors(target.manifest):
            size = _write_file(index, target.temporary, at, solver.rows(at))
            os.write(record, (json.dumps([*at, size]) + "\n").encode())

    def size(at: Block) -> int:
        r0, r1, c0, c1 = blocks.window(*at)
        return (r1 - r0) * (c1 - c0)

    total = blocks.rows * blocks.cols
    try:
        os.write(record, b"\n")  # ends a line that a kill left half written
        progress(sum(map(size, done)), total)
        with _solvers(terrain, options, index, plan) as solvers:
            stream(
                (at for at in blocks.ids() if at not in done),
                lambda at, solver: solver,
                write,
                buffers=solvers,
                writers=plan.threads,
                done=lambda at: progress(size(at), total),
            )
    finally:
        os.close(record)


def _write_file(index: Index, folder: Path, at: Block, rows: Iterator[np.ndarray]) -> int:
    """Write the file of a block under a temporary name, sync it, rename it; its size."""
    path = index.file(at)
    temporary = None
    try:
        fd, temporary = tempfile.mkstemp(dir=folder)
        with open(fd, "wb") as file:
            crc, written = 0, 0
            for row in rows:
                data = row.tobytes()
                crc = google_crc32c.extend(crc, data)
                written += file.write(data)
            # A block at the raster's edge has fewer tiles: the rest of its chunk is never read.
            rest = index.file_bytes - 4 - written
            crc = google_crc32c.extend(crc, bytes(rest)) if rest else crc
            file.seek(rest, os.SEEK_CUR)
            file.write(crc.to_bytes(4, "little"))
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_UMASK)
            os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        os.rename(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise output_error(path, error) from error
    return index.file_bytes


# -- solving -------------------------------------------------------------------------------


def rims_bytes(blocks: BlockGrid, dtype: np.dtype) -> int:
    """Memory of the rims of all tiles."""
    tiles = (ceil_div(blocks.rows, TILE) + 2) * (ceil_div(blocks.cols, TILE) + 2)
    return tiles * RING * dtype.itemsize


class FromIndex(Relaxation):
    """Phase 2 from an index: rims of all tiles in memory, no cells but those around sources.

    `solved` gives a block's cells from the rims of its tiles.
    """

    def __init__(self, index: Index, *how: Any, **more: Any) -> None:
        super().__init__(*how, **more)
        self.index = index
        down, across = ceil_div(self.blocks.rows, TILE), ceil_div(self.blocks.cols, TILE)
        self.rims = np.full((down + 2, across + 2, RING), self.top, self.dtype)
        self._entered: set[Block] = set()
        self._sown = {at for at, _ in self.ground.starts()}  # type: ignore[attr-defined]

    def compiled(self, heights: np.dtype, frictions: np.dtype) -> bool:
        cost, way = numba.typeof(self.cost), numba.typeof(joining(self.cost))
        entries = numba.from_dtype(self.index.dtype)
        wanted = tuple(map(numba.from_dtype, (heights, frictions, self.dtype)))
        passing = any(
            (t[0], t[1].dtype, t[2].dtype) == (way, entries, wanted[2])
            for t in known_types(pass_block)
        )
        return passing and any(
            t[0] == cost and (t[1].dtype, t[2].dtype, t[6].dtype) == wanted
            for t in known_types(fill_block)
        )

    def compile(self, heights: np.dtype, frictions: np.dtype) -> None:
        side = TILE + 2
        cells, absent = np.zeros((side, side), heights), np.ones((side, side), bool)
        distances = np.full((side, side), self.top, self.dtype)
        held = cells, cells.astype(frictions)
        field = Field(*held, absent, np.ones((4, side)), distances)
        rims = np.full((3, 3, RING), self.top, self.dtype)
        data = np.frombuffer(
            bytes(self.index.entries * self.index.dtype.itemsize), self.index.dtype
        )
        self._pass(data.reshape(1, 1, -1), rims, (0, 0), (1, 1), True, self._new_sides())
        self._seed(field, np.zeros((1, 1), bool), rims, (0, 0))
        self._fill(field, rims, (0, 0), (1, 1))

    def restore(self) -> int:
        """Nothing is saved: all goes anew from the index."""
        return 0

    def save_all(self) -> None:
        """Nothing is saved."""

    def run(self, *how: Any, **more: Any) -> None:
        super().run(*how, **more)
        if self.targets is None:
            return
        side = self.blocks.block
        owners = zip((self.targets.rows // side).tolist(), (self.targets.cols // side).tolist(),
                     strict=True)  # fmt: skip
        for at in sorted(set(owners)):
            with self.solved(at) as field:
                self._note_targets(at, field)

    def _new_work(self, largest_block: tuple[int, int]) -> Any:
        return None

    def _new_sides(self) -> np.ndarray:
        return np.full(8, self.top, self.dtype)

    def _first(self, at: Block) -> tuple[int, int]:
        side = self.blocks.block // TILE
        return at[0] * side, at[1] * side

    def _visit(self, at: Block, work: Any) -> None:
        inside = at not in self._entered
        sides = self._new_sides()
        if inside:
            self._entered.add(at)
            self._seen += self.shape(at)[0] * self.shape(at)[1]
            sides[:] = self._enter(at)
        visits, overflow = self._pass(
            self.index.read(at), self.rims, self._first(at), self.index.tiles(at), inside, sides
        )
        if overflow:
            raise Overflow
        down, across = self.blocks.shape
        with self._lock:
            self.visits.add(int(visits), 0)
            for k in range(8):
                other = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
                if 0 <= other[0] < down and 0 <= other[1] < across:
                    self.start(other, sides[k])
        self._release(at)

    def _pass(
        self,
        data: np.ndarray,
        rims: np.ndarray,
        first: tuple[int, int],
        shape: tuple[int, int],
        inside: bool,
        sides: np.ndarray,
    ) -> tuple[int, bool]:
        return pass_block(
            joining(self.cost),
            data,
            rims,
            first,
            shape,
            inside,
            self.index.symmetric,
            self.dtype.type(self.farthest),
            self.dtype.type(self.guard),
            sides,
            np.empty((2, RING), self.dtype),
        )

    def _enter(self, at: Block) -> Any:
        """Lower the rims of tiles with sources in them; the least start value."""
        if at not in self._sown:
            return self.top
        field = self.ground.load(at)
        field.distances = pages(field.absent.shape, self.dtype)
        field.distances[...] = self.top
        rows, cols, values = self.ground.seeds(at, field)
        np.minimum.at(field.distances, (rows + 1, cols + 1), values)
        chosen = np.zeros(self.index.tiles(at), bool)
        chosen[rows // TILE, cols // TILE] = True
        self._seed(field, chosen, self.rims, self._first(at))
        return values.min() if len(values) else self.top

    def _seed(
        self, field: Field, chosen: np.ndarray, rims: np.ndarray, first: tuple[int, int]
    ) -> None:
        seed_rims(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            field.distances,
            chosen,
            rims,
            first,
            new_tile_work(self.dtype),
        )

    def _fill(
        self, field: Field, rims: np.ndarray, first: tuple[int, int], shape: tuple[int, int]
    ) -> None:
        most = fill_block(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            field.distances,
            rims,
            first,
            shape,
            new_tile_work(self.dtype),
        )
        if most > self.guard:
            raise Overflow

    # -- cells, after the rims -------------------------------------------------------------

    def _load(self, at: Block) -> Field:
        field = self.ground.load(at)
        field.distances = pages(field.absent.shape, self.dtype)
        field.distances[...] = self.top
        rows, cols, values = self.ground.seeds(at, field)
        np.minimum.at(field.distances, (rows + 1, cols + 1), values)
        self._fill(field, self.rims, self._first(at), self.index.tiles(at))
        return field

    def _save(self, at: Block, field: Field) -> None:
        """Cells are solved again when they are wanted again."""

    def _complete(self, at: Block, field: Field) -> None:
        """It was, when the field was filled."""

    def close(self) -> None:
        """The fields and files go."""
        super().close()
        self.index.close()
