"""The store: a Zarr v3 group whose layers are Z-ordered tiles in shards, one shard per block.

Metadata is written and read with zarr-python; cells go straight from and to the shard files.
``docs/format.md`` specifies every byte.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import mmap
import os
import re
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.zstd
import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

from . import cells
from .errors import InputError, OutputError, StoreError, TerrainError
from .grid import TILE, BlockGrid, GridSpec, Window, ceil_div, clip, is_empty, z_rank_table

FORMAT = 1
KEY = "terrain_gpu"
DEFAULT_BLOCK = 1024
ZSTD_LEVEL = 3
ABSENT = -1

_TILE_CELLS = TILE * TILE
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RESERVED = ("x", "y", "spatial_ref")
_MISSING = np.uint64(2**64 - 1)

Number = float | int


class Layer:
    """One raster of a store, open for reading. All methods are thread-safe.

    Attributes
    ----------
    name, path
        Layer name and the directory of its Zarr array.
    grid
        The store's `GridSpec`.
    blocks
        The `BlockGrid`: how the raster is cut.
    dtype
        Cell type, little-endian.
    nodata
        The value of cells without a value, or None.
    attributes
        All Zarr attributes of the array.
    """

    def __init__(
        self,
        path: Path,
        grid: GridSpec,
        dtype: np.dtype,
        block_size: int,
        nodata: Number | None,
        compress: str | None,
        attributes: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.name = path.name
        self.grid = grid
        self.dtype = dtype
        self.blocks = BlockGrid(grid.rows, grid.cols, block_size)
        self.nodata = nodata
        self.compress = compress
        self.attributes = dict(attributes)
        self.fill = np.array(0 if nodata is None else nodata, dtype=dtype)
        self._ranks = z_rank_table(block_size)
        self._order = np.argsort(self._ranks.ravel())
        self._tile_bytes = _TILE_CELLS * dtype.itemsize
        self._index_bytes = 16 * self._ranks.size + 4
        self._local = threading.local()

    # -- description -----------------------------------------------------------------------

    @property
    def block_size(self) -> int:
        """Side of a block in cells."""
        return self.blocks.block

    @property
    def info(self) -> dict[str, Any]:
        """This package's own attributes: statistics, sources, settings."""
        own = self.attributes.get(KEY)
        return own if isinstance(own, dict) else {}

    def describe(self) -> dict[str, Any]:
        """The layer as plain JSON. Statistics are those recorded when it was written."""
        recorded = self.info
        return {
            "dtype": self.dtype.name,
            "units": self.attributes.get("units"),
            "nodata": cells.to_json(self.nodata),
            "valid_cells": recorded.get("valid_cells"),
            "min": recorded.get("min"),
            "max": recorded.get("max"),
            "block_size": self.block_size,
            "blocks": list(self.blocks.shape),
            "tile": TILE,
            "compress": self.compress,
            "raw_bytes": self.grid.cells * self.dtype.itemsize,
            "stored_bytes": recorded.get("stored_bytes"),
            "sources": recorded.get("sources", []),
        }

    def shard_path(self, i: int, j: int) -> Path:
        """File of block (i, j); it does not exist when the block is all fill."""
        return self.path / "c" / str(i) / str(j)

    def block_window(self, i: int, j: int) -> Window:
        """Cells of block (i, j) as (row0, row1, col0, col1)."""
        return self.blocks.window(i, j)

    # -- reading ---------------------------------------------------------------------------

    def read_block(
        self, i: int, j: int, out: np.ndarray | None = None, *, halo: int = 0
    ) -> np.ndarray:
        """Cells of block (i, j), clipped to the raster.

        Parameters
        ----------
        out
            Buffer of this layer's dtype, at least as large as the result; the result is its upper
            left corner.
        halo
            Rings of neighbouring cells around the block, at most a tile wide; beyond the raster
            they hold the fill value.

        Returns
        -------
        numpy.ndarray, shape (rows + 2 halo, cols + 2 halo)

        Raises
        ------
        StoreError
            when the shard is damaged or cannot be read.
        """
        return self.read_ring(self._window(i, j), out, halo=halo)

    def read_ring(
        self, window: Window, out: np.ndarray | None = None, *, halo: int = 1
    ) -> np.ndarray:
        """Cells of a window inside the raster with `halo` rings around it, as `read_block`."""
        r0, r1, c0, c1 = window
        shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
        result = np.empty(shape, self.dtype) if out is None else out[: shape[0], : shape[1]]
        if result.shape != shape or result.dtype != self.dtype:
            raise InputError(f"buffer of {result.shape} {result.dtype} for cells of {shape}")
        ring = (r0 - halo, r1 + halo, c0 - halo, c1 + halo)
        inside = clip(ring, self.grid.window)
        if ring != inside:
            result[...] = self.fill
        self._read(inside, _part(result, ring, inside))
        return result

    def read_window(
        self, row0: int, row1: int, col0: int, col1: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Cells [row0, row1) x [col0, col1), which must lie inside the raster.

        Raises
        ------
        InputError
            when the window is empty or leaves the raster, or `out` has another shape or dtype.
        StoreError
            when a shard is damaged or cannot be read.
        """
        window = (row0, row1, col0, col1)
        if is_empty(window) or clip(window, self.grid.window) != window:
            raise InputError(f"window {window} is empty or leaves the raster of {self.grid.shape}")
        shape = row1 - row0, col1 - col0
        result = np.empty(shape, self.dtype) if out is None else out
        if result.shape != shape or result.dtype != self.dtype:
            raise InputError(f"buffer of {result.shape} {result.dtype} for a window of {shape}")
        self._read(window, result)
        return result

    def map_tiles(self, i: int, j: int, row: int = 0, col: int = 0, side: int = 0) -> np.ndarray:
        """Memory-mapped tiles of an aligned power-of-two sub-block, without a copy.

        Parameters
        ----------
        row, col
            First tile row and column inside the block, multiples of `side`.
        side
            Tiles on a side, a power of two; 0 for the whole block.

        Returns
        -------
        numpy.ndarray, read-only, shape (present tiles, 64, 64)
            In Z-order; absent (all fill) tiles are left out.

        Raises
        ------
        InputError
            when the sub-block is not aligned, or the layer is compressed.
        """
        tiles = len(self._ranks)
        side = side or tiles
        fits = 0 < side <= tiles and 0 <= row <= tiles - side and 0 <= col <= tiles - side
        if not fits or side & (side - 1) or row % side or col % side:
            raise InputError(f"sub-block at tile ({row}, {col}) of side {side} is not aligned")
        if self.compress:
            raise InputError(f"{self.path}: a compressed layer cannot be mapped; use read_window")
        with self._shard(i, j) as shard:
            if shard is None:
                return np.empty((0, TILE, TILE), self.dtype)
            first = self._ranks[row, col]
            offsets = shard.offsets[first : first + side * side]
            offsets = offsets[offsets != ABSENT]
            if not offsets.size:
                return np.empty((0, TILE, TILE), self.dtype)
            if np.any(np.diff(offsets) != self._tile_bytes):
                raise StoreError(
                    f"{shard.path}: tiles are not in Z-order (written by another program); "
                    "use read_window"
                )
            data = shard.map()[offsets[0] : offsets[-1] + self._tile_bytes]
            return data.view(self.dtype).reshape(-1, TILE, TILE)

    def _read(self, window: Window, out: np.ndarray) -> None:
        b = self.block_size
        for i in range(window[0] // b, ceil_div(window[1], b)):
            for j in range(window[2] // b, ceil_div(window[3], b)):
                part = clip(window, self.blocks.window(i, j))
                self._read_part(i, j, part, _part(out, window, part))

    def _read_part(self, i: int, j: int, part: Window, out: np.ndarray) -> None:
        """Copy the cells `part` of block (i, j) into `out`."""
        with self._shard(i, j) as shard:
            if shard is None:
                out[...] = self.fill
                return
            b = self.block_size
            inner = (part[0] - i * b, part[1] - i * b, part[2] - j * b, part[3] - j * b)
            ranks = self._ranks[
                inner[0] // TILE : ceil_div(inner[1], TILE),
                inner[2] // TILE : ceil_div(inner[3], TILE),
            ]
            tiles, slots = self._tiles(shard, ranks)
            if out.shape == (b, b) and np.array_equal(slots, self._ranks):
                np.copyto(_split(out), _z_view(tiles[: ranks.size]))
            else:
                self._assemble(tiles, slots, inner, out)

    def _assemble(
        self, tiles: np.ndarray, slots: np.ndarray, inner: Window, out: np.ndarray
    ) -> None:
        """Copy tile row by tile row: any window, any absent tiles."""
        row0, row1, col0, col1 = inner
        skip = col0 % TILE
        for k, across in enumerate(slots):
            top = (row0 // TILE + k) * TILE
            lo, hi = max(row0, top), min(row1, top + TILE)
            strip = tiles[across, lo - top : hi - top]
            if (across == ABSENT).any():
                strip[across == ABSENT] = self.fill
            line = strip.transpose(1, 0, 2).reshape(hi - lo, -1)
            out[lo - row0 : hi - row0] = line[:, skip : skip + col1 - col0]

    def _tiles(self, shard: _Shard, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An array of tiles that holds those of `ranks`, and the slot of each in it."""
        offsets = shard.offsets[ranks]
        present = offsets != ABSENT
        if not present.any():
            return np.empty((1, TILE, TILE), self.dtype), np.full(ranks.shape, ABSENT)
        if self.compress or (offsets[present] % self._tile_bytes).any():
            return self._decoded(shard, ranks, present)
        # A few tiles (a halo) are mapped; for more, one sequential read beats page faults.
        if 4 * np.count_nonzero(present) < np.count_nonzero(shard.offsets != ABSENT):
            data = shard.map()
        else:
            data = shard.read(self._scratch(shard.data_bytes))
        whole = len(data) // self._tile_bytes * self._tile_bytes
        tiles = data[:whole].view(self.dtype).reshape(-1, TILE, TILE)
        return tiles, np.where(present, offsets // self._tile_bytes, ABSENT)

    def _decoded(
        self, shard: _Shard, ranks: np.ndarray, present: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        count = int(np.count_nonzero(present))
        tiles = self._scratch(count * self._tile_bytes).view(self.dtype).reshape(-1, TILE, TILE)
        slots = np.full(ranks.shape, ABSENT)
        slots[present] = np.arange(count)
        data = shard.map()
        for slot, rank in enumerate(ranks[present]):
            start = shard.offsets[rank]
            raw = data[start : start + shard.lengths[rank]]
            if self.compress:
                try:
                    raw = np.frombuffer(numcodecs.zstd.decompress(raw), np.uint8)
                except RuntimeError as error:
                    raise StoreError(f"{shard.path}: a tile does not decompress: {error}") from None
            if raw.size != self._tile_bytes:
                raise StoreError(f"{shard.path}: a tile holds {raw.size} bytes")
            tiles[slot] = raw.view(self.dtype).reshape(TILE, TILE)
        return tiles, slots

    @contextlib.contextmanager
    def _shard(self, i: int, j: int) -> Iterator[_Shard | None]:
        """The open shard of block (i, j); None when the block is all fill."""
        self._window(i, j)
        path = self.shard_path(i, j)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            yield _Shard(fd, path, self._order, 0 if self.compress else self._tile_bytes)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        finally:
            os.close(fd)

    def _window(self, i: int, j: int) -> Window:
        """Cells of block (i, j), which must exist."""
        down, across = self.blocks.shape
        if not (0 <= i < down and 0 <= j < across):
            raise InputError(f"block ({i}, {j}) is outside the {down} x {across} blocks")
        return self.blocks.window(i, j)

    def _scratch(self, size: int) -> np.ndarray:
        """A byte buffer of this thread, reused from call to call."""
        have = getattr(self._local, "scratch", None)
        if have is None or have.size < size:
            have = self._local.scratch = np.empty(size, np.uint8)
        return have[:size]


class _Shard:
    """An open shard file and its index, checked."""

    def __init__(self, fd: int, path: Path, order: np.ndarray, tile_bytes: int) -> None:
        self.fd, self.path = fd, path
        index_bytes = 16 * order.size + 4
        self.data_bytes = os.fstat(fd).st_size - index_bytes
        raw = os.pread(fd, index_bytes, max(self.data_bytes, 0))
        if self.data_bytes < 0 or len(raw) != index_bytes:
            raise StoreError(f"{path}: truncated: no room for its index; convert it again")
        if google_crc32c.value(raw[:-4]) != struct.unpack("<I", raw[-4:])[0]:
            raise StoreError(f"{path}: corrupt shard index (crc32c differs); convert it again")
        pairs = np.frombuffer(raw[:-4], "<u8").reshape(-1, 2)[order]
        absent = pairs[:, 0] == _MISSING
        ends = pairs.sum(axis=1)
        sane = (ends >= pairs[:, 0]) & (ends <= self.data_bytes)
        if tile_bytes:
            sane &= pairs[:, 1] == tile_bytes
        if not (sane | absent).all():
            raise StoreError(
                f"{path}: corrupt shard index (a tile lies outside the file); convert it again"
            )
        self.offsets = np.where(absent, np.uint64(0), pairs[:, 0]).astype(np.int64)
        self.offsets[absent] = ABSENT
        self.lengths = pairs[:, 1].astype(np.int64)

    def map(self) -> np.ndarray:
        """The tiles' bytes, memory-mapped read-only."""
        mapped = mmap.mmap(self.fd, 0, prot=mmap.PROT_READ)
        return np.frombuffer(mapped, np.uint8)[: self.data_bytes]

    def read(self, buffer: np.ndarray) -> np.ndarray:
        """The tiles' bytes, read into `buffer`."""
        done = 0
        while done < buffer.size:
            got = os.preadv(self.fd, [buffer[done:].data], done)
            if got == 0:
                raise StoreError(f"{self.path}: truncated while being read")
            done += got
        return buffer


def _part(array: np.ndarray, window: Window, part: Window) -> np.ndarray:
    """The view of `array`, which covers `window`, that covers `part`."""
    return array[
        part[0] - window[0] : part[1] - window[0], part[2] - window[2] : part[3] - window[2]
    ]


def _split(block: np.ndarray) -> np.ndarray:
    """A (side, side) block as a view with one axis per bit of the tile row and column."""
    bits = (len(block) // TILE).bit_length() - 1
    view = block.view()
    view.shape = ((2,) * bits + (TILE,)) * 2  # assigning never copies
    return view


def _z_view(tiles: np.ndarray) -> np.ndarray:
    """Z-ordered tiles as the view that matches `_split`: interleaved bits, sorted apart."""
    bits = (len(tiles).bit_length() - 1) // 2
    axes = (*range(0, 2 * bits, 2), 2 * bits, *range(1, 2 * bits, 2), 2 * bits + 1)
    return tiles.reshape((2,) * (2 * bits) + (TILE, TILE)).transpose(axes)


# -- writing -------------------------------------------------------------------------------


class LayerWriter(Layer):
    """A layer being written, in a folder of its own until `commit` puts it in place.

    Blocks may be written from any thread or forked process, each by one at a time. Every block is
    committed by rename and recorded in the run manifest, so a killed run goes on where it stood.
    Readable while it grows (`read_block`). Use as a context manager: leaving it without `commit`
    keeps the finished blocks for ``resume=True``, and removes the folder when there are none.
    """

    def __init__(self, target: _Target, layer: Layer, *, finished: bool) -> None:
        super().__init__(
            layer.path,
            layer.grid,
            layer.dtype,
            layer.block_size,
            layer.nodata,
            layer.compress,
            layer.attributes,
        )
        self._target = target
        self.keep = True
        """Whether finished blocks stay for a later run when this one ends without `commit`."""
        self.finished = finished
        """True when a resumed run finds its result whole already."""
        self.done = np.zeros(self.blocks.shape, bool)
        """Blocks that an earlier, resumed run has finished."""
        if finished:
            self.done[...] = True
            return
        self._temporary = target.temporary
        self._temporary.mkdir(exist_ok=True)
        self._log = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)
        # Ends a last line that a kill or a full disk left half written.
        os.write(self._log, b"\n")
        for i, j, *_ in self._records():
            self.done[i, j] = True

    def __enter__(self) -> LayerWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.finished:
            os.close(self._log)
            # Without a manifest the layer is complete, and only its last rename failed.
            started = self._target.manifest.exists()
            self._target.release(keep=not started or (self.keep and self.any_written()))

    def write_block(self, i: int, j: int, data: np.ndarray) -> int:
        """Write block (i, j) whole: to a temporary name, fsync, rename, record.

        Parameters
        ----------
        data
            The cells of `block_window(i, j)`, of exactly this layer's dtype.

        Returns
        -------
        int
            Bytes written.

        Raises
        ------
        InputError
            on another shape or dtype: nothing is cast silently.
        OutputError
            when the disk is full or the folder cannot be written.
        """
        r0, r1, c0, c1 = self._window(i, j)
        if data.shape != (r1 - r0, c1 - c0) or data.dtype != self.dtype:
            raise InputError(
                f"block ({i}, {j}) is {r1 - r0} x {c1 - c0} {self.dtype}, "
                f"not {data.shape} {data.dtype}"
            )
        found = cells.stats(data, self.nodata)
        size = self._write_shard(self.shard_path(i, j), self._encode(data))
        record = (i, j, size, found.valid, cells.to_json(found.low), cells.to_json(found.high))
        line = (json.dumps(record) + "\n").encode()
        with _output_errors(self._target.manifest):
            # One small O_APPEND write: concurrent writers need no lock.
            if os.write(self._log, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    @property
    def spill(self) -> Path:
        """A folder for what a run keeps beside the layer; it goes with the run."""
        return self._target.spill

    def patch_block(self, i: int, j: int, row: np.ndarray, col: np.ndarray, bits: Any) -> None:
        """Set bits in cells of a finished block, in place; doing it again changes nothing.

        Parameters
        ----------
        row, col
            Cells inside the block; int64, one shape.
        bits
            Per cell, or-ed into it; of this layer's integer dtype.
        """
        with self._shard(i, j) as shard:
            offset = None
            if shard is not None and not self.compress:
                ranks = self._ranks[row // TILE, col // TILE]
                offset = shard.offsets[ranks]
            if shard is not None and offset is not None and (offset != ABSENT).all():
                at = offset // self.dtype.itemsize + row % TILE * TILE + col % TILE
                with _output_errors(shard.path), open(shard.path, "r+b") as file:
                    count = shard.data_bytes // self.dtype.itemsize
                    words = np.memmap(file, self.dtype, "r+", shape=count)
                    np.bitwise_or.at(words, at, bits)
                    words.flush()
                return
        data = self.read_block(i, j)
        np.bitwise_or.at(data, (row, col), bits)
        self.write_block(i, j, data)

    def any_written(self) -> bool:
        """Whether there is a finished block, of this run or the one it resumed."""
        return any(True for _ in self._records())

    def commit(self, attributes: Mapping[str, Any] | None = None) -> Layer:
        """Put the finished layer in place of any older one and return it, opened.

        Parameters
        ----------
        attributes
            Added to this package's own attributes of the layer (sources, settings).

        Raises
        ------
        StoreError
            when blocks are missing.
        """
        with _output_errors(self._target.root):
            if not self.finished:
                self._complete(attributes or {})
            with _alone(self._target.root):
                layer = self._target.publish()
        if not self.finished:
            os.close(self._log)
        self.finished = True
        return layer

    def _complete(self, attributes: Mapping[str, Any]) -> None:
        shape = self.blocks.shape
        seen = np.zeros(shape, bool)
        size, valid = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        low, high = np.zeros(shape, self.dtype), np.zeros(shape, self.dtype)
        for i, j, stored, count, least, most in self._records():
            seen[i, j], size[i, j], valid[i, j] = True, stored, count
            if least is not None and most is not None:
                low[i, j], high[i, j] = least, most
        if not seen.all():
            raise StoreError(f"{self.path}: {np.count_nonzero(~seen)} blocks were never written")
        some = valid > 0
        own = {
            **self.info,
            **attributes,
            "valid_cells": int(valid.sum()),
            "min": low[some].min().item() if some.any() else None,
            "max": high[some].max().item() if some.any() else None,
            "stored_bytes": int(size.sum()),
        }
        self.attributes[KEY] = own
        _write_array(self)

    def _records(self) -> Iterator[tuple[int, int, int, int, Number | None, Number | None]]:
        """Blocks whose shard is really there, from the manifest; later records win."""
        down, across = self.blocks.shape
        with open(self._target.manifest, encoding="utf-8", errors="replace") as lines:
            next(lines, None)
            for line in lines:
                # A kill may leave the last line half written: that block is simply done again.
                with contextlib.suppress(ValueError, TypeError):
                    i, j, size, valid, low, high = json.loads(line)
                    path = self.shard_path(i, j)
                    there = path.stat().st_size if path.exists() else 0
                    if there == size and i in range(down) and j in range(across):
                        yield i, j, size, valid, cells.from_json(low), cells.from_json(high)

    def _encode(self, data: np.ndarray) -> list[Any]:
        """The shard of a block as byte buffers: present tiles in Z-order, then the index."""
        b = self.block_size
        if data.shape != (b, b):
            padded = np.full((b, b), self.fill, self.dtype)
            padded[: data.shape[0], : data.shape[1]] = data
            data = padded
        tiles = self._scratch(self._ranks.size * self._tile_bytes)
        tiles = tiles.view(self.dtype).reshape(-1, TILE, TILE)
        np.copyto(_z_view(tiles), _split(data))
        present = ~self._all_fill(tiles)
        if not present.any():
            return []
        count = np.count_nonzero(present)
        index = np.full((self._ranks.size, 2), _MISSING, "<u8")
        if self.compress:
            codec = numcodecs.zstd.compress
            body: list[Any] = [codec(tile, ZSTD_LEVEL) for tile in tiles[present]]
            lengths = np.array([len(part) for part in body], np.uint64)
        else:
            body = [tiles if count == len(tiles) else tiles[present]]
            lengths = np.full(count, self._tile_bytes, np.uint64)
        places = self._order[present]
        index[places, 0] = np.cumsum(lengths) - lengths
        index[places, 1] = lengths
        raw = index.tobytes()
        return [*body, raw + struct.pack("<I", google_crc32c.value(raw))]

    def _all_fill(self, tiles: np.ndarray) -> np.ndarray:
        """Mask of the tiles that hold nothing but the fill value, compared bit by bit."""
        word = f"<u{self.dtype.itemsize}"
        bits = tiles.view(word).reshape(len(tiles), -1)
        fill = self.fill.view(word)
        empty = (bits[:, 0] == fill) & (bits[:, -1] == fill)
        for k in np.flatnonzero(empty):
            empty[k] = (bits[k] == fill).all()
        return empty

    def _write_shard(self, path: Path, parts: list[Any]) -> int:
        if not parts:
            path.unlink(missing_ok=True)
            return 0
        temporary = None
        try:
            fd, temporary = tempfile.mkstemp(dir=self._temporary)
            with open(fd, "wb", buffering=0) as file:
                size = sum(_write_all(file, part) for part in parts)
                os.fchmod(fd, 0o666 & ~_umask())
                os.fsync(fd)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.rename(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise output_error(path, error) from error
        return size


def _write_all(file: Any, part: Any) -> int:
    view = memoryview(part).cast("B")
    done = 0
    while done < len(view):
        done += file.write(view[done:])
    return done


def _umask() -> int:
    return _UMASK


_UMASK = os.umask(0)
os.umask(_UMASK)


@contextlib.contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    """Whatever the system refuses inside becomes an `OutputError` that names `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TerrainError):
            raise
        raise output_error(path, error) from error


def output_error(path: Path, error: OSError) -> OutputError:
    """`error` as an `OutputError` that names the file and the remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"{path}: no space left on the disk; free some and --resume")
    return OutputError(f"{path}: cannot be written: {error.strerror}")


class _Target:
    """Where a layer is built and where it goes: all the renames of a run."""

    def __init__(self, root: Path, name: str, *, replace_store: bool) -> None:
        self.root = root
        self.replace_store = replace_store
        """The whole store is new: it is built beside its final name."""
        self.base = _beside(root, "incomplete") if replace_store else root
        self.folder = self.base / ".incomplete"
        self.work = self.folder / name
        self.manifest = self.folder / f"{name}.jsonl"
        self.temporary = self.folder / f"{name}.tmp"
        self.spill = self.folder / f"{name}.spill"
        self.place = self.base / name
        self._lock = -1
        self._was_there = root.exists()

    def begin(self, grid: GridSpec, header: dict[str, Any]) -> None:
        """Start afresh: a new store folder where needed, an empty manifest."""
        if self.replace_store:
            for other in self.folder.glob("*.jsonl"):
                if _held(other):
                    raise StoreError(f"{self.root}: another run is writing {other.stem!r}")
                if other != self.manifest:
                    raise StoreError(
                        f"{self.root}: an unfinished run of layer {other.stem!r} is making this "
                        f"store; finish it first (--resume), or delete {self.base}"
                    )
            _remove_ours(self.base)
            _write_group(self.base, grid)
        self.clear()
        self.folder.mkdir(exist_ok=True)
        self.manifest.write_text(json.dumps(header) + "\n", encoding="utf-8")

    def header(self) -> dict[str, Any] | None:
        """First line of the manifest of an unfinished run, None when there is none."""
        if not self.work.exists():  # a kill before the first or after the last step
            return None
        try:
            with open(self.manifest, encoding="utf-8") as lines:
                header = json.loads(next(lines, ""))
        except (FileNotFoundError, ValueError):
            return None
        return header if isinstance(header, dict) else None

    def lock(self) -> None:
        """Hold the run alone, or say that another process does."""
        try:
            self._lock = os.open(self.manifest, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise StoreError(f"{self.root}: another run is writing {self.work.name!r}") from None

    def publish(self) -> Layer:
        if self.replace_store and self.root.exists() and not self._was_there:
            raise StoreError(
                f"{self.root}: came into being while the run made it; move it and --resume"
            )
        if self.work.exists():
            _swap(self.work, self.place, _beside(self.work, "replaced"))
        self.clear()
        if self.replace_store and self.base.exists():
            _swap(self.base, self.root, _beside(self.root, "replaced"))
        self._unlock()
        return TileStore.open(self.root).layer(self.place.name)

    def release(self, *, keep: bool) -> None:
        """Stop without publishing; keep what a later run can resume."""
        if not keep:
            self.clear()
            if self.replace_store:
                with contextlib.suppress(OSError):
                    _remove_ours(self.base)
        self._unlock()

    def clear(self) -> None:
        for path in (self.work, self.temporary, self.spill):
            shutil.rmtree(path, ignore_errors=True)
        self.manifest.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _absolute(path: str | os.PathLike[str]) -> Path:
    """The path without ``..`` and links, so that it has a name to build other names beside."""
    root = Path(os.path.realpath(path))
    if not root.name:
        raise InputError(f"{os.fspath(path)}: not the path of a store; name a folder below it")
    return root


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One process at a time decides what becomes of a store, or puts one in place."""
    root.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(root.parent, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _held(manifest: Path) -> bool:
    """Whether a living process is at work on the run of `manifest`."""
    if not manifest.exists():
        return False
    with open(manifest, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _swap(new: Path, place: Path, old: Path) -> None:
    """Move `new`, which is whole, to `place`; what was there goes away last.

    `_recover` ends an interrupted swap.
    """
    if not place.exists():
        os.rename(new, place)
        return
    _remove_ours(old)
    os.rename(place, old)
    with contextlib.suppress(FileNotFoundError):  # a reader came first, in `_recover`
        os.rename(new, place)
    _remove(old)


def _recover(new: Path, place: Path, old: Path) -> None:
    """End a swap that was interrupted or, seen by a reader, is under way.

    Once `old` was set aside `new` is whole, so that forward is always right.
    """
    if not old.is_dir() or not _is_ours(old):
        return
    for source in (new, old):
        if not place.exists() and (source / "zarr.json").exists():
            with contextlib.suppress(OSError):  # the writer came first, or we may only read
                os.rename(source, place)
    if place.exists():
        _remove(old)


def _remove(path: Path) -> None:
    """Delete a folder of ours, its zarr.json last: a kill leaves it recognisable."""
    with contextlib.suppress(OSError):
        for inner in path.iterdir():
            if inner.is_dir():
                shutil.rmtree(inner, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Whether `path` is a group or array of this package, a part of one, or an empty folder."""
    if path.parent.name == ".incomplete":
        return True
    try:
        metadata = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
        return KEY in metadata["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        # zarr writes files through NAME.partial, which a kill may leave alone in the folder.
        return path.is_dir() and all(p.suffix == ".partial" for p in path.iterdir())


def _is_layer(path: Path) -> bool:
    """Whether `path` is a layer of ours, or too damaged to tell: what --overwrite may replace."""
    with contextlib.suppress(ValueError, OSError):
        json.loads((path / "zarr.json").read_bytes())
        return _is_ours(path)
    return (path / "zarr.json").is_file() or _is_ours(path)


def _must_be_ours(path: Path) -> None:
    if os.path.lexists(path) and not _is_ours(path):
        raise StoreError(f"{path}: in the way, and not a store of this program; move it")


def _remove_ours(path: Path) -> None:
    _must_be_ours(path)
    _remove(path)
    if path.exists():
        raise StoreError(f"{path}: in the way, and cannot be deleted; delete it")


def create_layer(
    path: str | os.PathLike[str],
    name: str,
    grid: GridSpec,
    dtype: Any,
    *,
    nodata: Number | None = None,
    block_size: int = DEFAULT_BLOCK,
    compress: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    origin: str = "the new layer",
) -> LayerWriter:
    """Begin a layer in a new or existing store.

    The layer appears under its name, whole, when the writer's `commit` is called. A new store is
    built beside its final name and appears with its first layer.

    Parameters
    ----------
    path
        The store. Absent, or a store of the same grid. A store that holds nothing but the layer to
        overwrite may also be replaced by one of another grid.
    nodata
        Value of cells without a value; also what absent tiles mean.
    block_size
        Side of a block, a power of two from 64 to 8192.
    compress
        None or "zstd".
    attributes
        Zarr attributes of the array, such as "units".
    settings
        What the cells depend on (JSON). A run resumes only with equal settings.
    overwrite
        Replace an existing layer, or start an unfinished run again.
    resume
        Go on with an unfinished run, if there is one.
    origin
        Where the cells come from, for messages.

    Raises
    ------
    InputError
        for arguments that make no layer.
    StoreError
        when the layer exists, the store has another grid, or an unfinished run is in the way.
    OutputError
        when the folder cannot be written.
    """
    root = _absolute(path)
    _check_name(name)
    dtype = cells.layer_dtype(dtype)
    if compress not in (None, "zstd"):
        raise InputError(f"compression {compress!r} is not known; use zstd or none")
    if nodata is not None:
        nodata = cells.as_scalar(nodata, dtype)
    header = _header(grid, dtype, nodata, block_size, compress, settings or {})
    own = {"nodata": cells.to_json(nodata), "settings": header["settings"]}
    layer = Layer(
        root / name, grid, dtype, block_size, nodata, compress, {**(attributes or {}), KEY: own}
    )
    for suffix in ("incomplete", "replaced"):
        if root.name.endswith(f".{suffix}"):
            raise InputError(f"{root}: names in .{suffix} are kept for runs; use another")
    with _output_errors(root), _alone(root):
        _recover(_beside(root, "incomplete"), root, _beside(root, "replaced"))
        existing = root.exists()
        replace_store = not existing or _replaces(root, name, grid, origin, overwrite=overwrite)
        target = _Target(root, name, replace_store=replace_store)
        layer.path = target.work
        if replace_store:
            _must_be_ours(target.base)
            if existing:
                _must_be_ours(_beside(root, "replaced"))
        resumed = _resume_or_clear(target, header, resume=resume, overwrite=overwrite)
        if resumed == "finished":
            there = TileStore.open(target.base).layer(name)
            return LayerWriter(target, there, finished=True)
        try:
            if not resumed:
                target.begin(grid, header)
            target.lock()
            _write_array(layer)
            return LayerWriter(target, layer, finished=False)
        except BaseException as error:
            # A StoreError means that the folder is not ours to clear.
            if not isinstance(error, StoreError):
                target.release(keep=bool(resumed))
            raise


def unfinished_block_size(path: str | os.PathLike[str], name: str) -> int | None:
    """Block size of an unfinished run of a layer, None when there is none."""
    root = _absolute(path)
    header = _Target(root, name, replace_store=not root.exists()).header() or {}
    size = header.get("block_size")
    return size if isinstance(size, int) else None


def _replaces(root: Path, name: str, grid: GridSpec, origin: str, *, overwrite: bool) -> bool:
    """Whether writing `name` replaces the whole existing store, which it does when grids differ."""
    store = TileStore.open(root)
    same = store.grid.same_place(grid) and grid.crs_wkt in ("", store.grid.crs_wkt)
    if same:
        return False
    ours = {"zarr.json", *_RESERVED, ".incomplete", name, f"{name}.jsonl", f"{name}.tmp"}
    found = {p.name for p in (*root.iterdir(), *root.glob(".incomplete/*"))} - ours
    if overwrite and not found:
        return True
    raise StoreError(
        f"{root}: holds another grid ({_describe(store.grid)}) than {origin} "
        f"({_describe(grid)}); choose another store"
        + ("" if found else " or --overwrite")
        + (f" (--overwrite would lose {min(found)!r})" if overwrite else "")
    )


def _describe(grid: GridSpec) -> str:
    crs = grid.crs_code or (grid.crs_wkt[:40] if grid.crs_wkt else "no CRS")
    return f"{grid.rows} x {grid.cols}, transform {list(grid.transform)}, {crs}"


def _header(
    grid: GridSpec,
    dtype: np.dtype,
    nodata: Number | None,
    block_size: int,
    compress: str | None,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    header = {
        "format": FORMAT,
        "shape": list(grid.shape),
        "transform": list(grid.transform),
        "crs": grid.crs_wkt,
        "dtype": dtype.name,
        "nodata": cells.to_json(nodata),
        "block_size": block_size,
        "compress": compress,
        "settings": dict(settings),
    }
    return json.loads(json.dumps(header))


def _resume_or_clear(
    target: _Target, header: dict[str, Any], *, resume: bool, overwrite: bool
) -> str | None:
    """Decide what to do with what is there: "resume", "finished", or None to start afresh."""
    if _held(target.manifest):
        raise StoreError(f"{target.root}: another run is writing {target.work.name!r}")
    unfinished = target.header()
    if unfinished is not None and resume:
        _same_settings(target.root, unfinished, header)
        return "resume"
    if unfinished is not None and not overwrite:
        raise StoreError(
            f"{target.root}: an unfinished run of layer {target.work.name!r} is there; "
            "--resume continues it, --overwrite starts again"
        )
    if target.place.exists() and not target.replace_store and not _is_layer(target.place):
        raise StoreError(
            f"{target.place}: in the way, and not a layer of this program; "
            "move it, or choose another --layer"
        )
    if (target.place / "zarr.json").exists():
        if resume:
            there = TileStore.open(target.base).layer(target.place.name)
            same = (
                there.info.get("settings") == header["settings"]
                and cells.to_json(there.nodata) == header["nodata"]
                and (there.dtype.name, there.compress) == (header["dtype"], header["compress"])
            )
            # Beside the store lies only what this run made: --overwrite means the store's own.
            if same and (target.replace_store or not overwrite):
                return "finished"
        if not overwrite and not target.replace_store:
            raise StoreError(
                f"{target.root}: layer {target.place.name!r} exists; --overwrite replaces it, "
                "--layer names another"
            )
    return None


def _same_settings(root: Path, was: dict[str, Any], now: dict[str, Any]) -> None:
    pairs = [(was, now), (was.get("settings") or {}, now["settings"])]
    for old, new in pairs:
        for key in sorted((old.keys() | new.keys()) - {"settings"}):
            if old.get(key) == new.get(key):
                continue
            if key == "inputs":
                changed = [f[0] for f in new.get(key) or [] if f not in (old.get(key) or [])]
                raise StoreError(
                    f"{root}: cannot resume: {', '.join(changed[:3]) or 'the list of inputs'} "
                    "differs from what the unfinished run read (path, size, time); "
                    "--overwrite starts again"
                )
            raise StoreError(
                f"{root}: cannot resume: {key} was {old.get(key)!r} and is now "
                f"{new.get(key)!r}; use the same, or --overwrite to start again"
            )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InputError(
            f"layer name {name!r}: use letters, digits, '-' and '_', starting with a letter, "
            f"and none of {', '.join(_RESERVED)}"
        )


# -- metadata ------------------------------------------------------------------------------


def _write_group(path: Path, grid: GridSpec) -> None:
    """Group metadata and the coordinate arrays that xarray, rioxarray and GDAL look for."""
    own = {
        "format": FORMAT,
        "shape": list(grid.shape),
        "transform": list(grid.transform),
        "crs_wkt": grid.crs_wkt,
        "crs_code": grid.crs_code,
    }
    group = zarr.create_group(str(path), attributes={"Conventions": "CF-1.11", KEY: own})
    geographic = "GEOGCRS[" in grid.crs_wkt and "PROJCRS[" not in grid.crs_wkt
    for name, values in (("y", grid.y_centres()), ("x", grid.x_centres())):
        standard = {"x": "longitude", "y": "latitude"} if geographic else {}
        array = group.create_array(
            name,
            data=values,
            chunks=values.shape,
            compressors=None,
            dimension_names=(name,),
            attributes={
                "axis": name.upper(),
                "standard_name": standard.get(name, f"projection_{name}_coordinate"),
            },
        )
        del array
    a, b, c, d, e, f = grid.transform
    reference: dict[str, Any] = {"GeoTransform": " ".join(repr(v) for v in (c, a, b, f, d, e))}
    if grid.crs_wkt:
        reference |= {"crs_wkt": grid.crs_wkt, "spatial_ref": grid.crs_wkt}
    group.create_array("spatial_ref", data=np.array(0, np.int64), attributes=reference)


def _write_array(layer: Layer) -> None:
    """Zarr metadata of a layer, written anew."""
    grid = layer.grid
    attributes: dict[str, Any] = {
        "grid_mapping": "spatial_ref",
        "coordinates": "spatial_ref",
        "spatial:dimensions": ["y", "x"],
        "spatial:shape": list(grid.shape),
        "spatial:transform": list(grid.transform),
    }
    if grid.crs_wkt:
        attributes |= {"_CRS": {"wkt": grid.crs_wkt}, "proj:wkt2": grid.crs_wkt}
    if grid.crs_code:
        attributes["proj:code"] = grid.crs_code
    if layer.nodata is not None:
        attributes["_FillValue"] = _xarray_fill(layer.nodata)
    (layer.path / "zarr.json").unlink(missing_ok=True)
    zarr.create_array(
        str(layer.path),
        shape=grid.shape,
        dtype=layer.dtype,
        chunks=(TILE, TILE),
        shards=(layer.block_size, layer.block_size),
        compressors=ZstdCodec(level=ZSTD_LEVEL) if layer.compress else None,
        filters=None,
        fill_value=layer.fill.item(),
        dimension_names=("y", "x"),
        attributes={**attributes, **layer.attributes},
    )


def _xarray_fill(nodata: Number) -> Number | str:
    """`_FillValue` as xarray keeps it in Zarr v3: floats as base64 of a little-endian double."""
    if isinstance(nodata, float):
        return base64.standard_b64encode(struct.pack("<d", nodata)).decode()
    return nodata


class TileStore:
    """A store open for reading: its grid and its layers.

    Attributes
    ----------
    path
        The store's folder.
    grid
        `GridSpec` of every layer.
    layers
        Names of the layers, sorted.
    """

    def __init__(self, path: Path, grid: GridSpec) -> None:
        self.path, self.grid = path, grid

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TileStore:
        """Open a store.

        Raises
        ------
        StoreError
            when there is none at `path`, or its metadata is damaged.
        """
        root = _absolute(path)
        _recover(_beside(root, "incomplete"), root, _beside(root, "replaced"))
        for old in root.glob(".incomplete/*.replaced"):
            _recover(old.with_suffix(""), root / old.stem, old)
        attributes = _open_node(root, zarr.open_group).attrs.asdict()
        own = attributes.get(KEY)
        if not isinstance(own, dict):
            raise StoreError(
                f"{root}: a Zarr group, but not a store of this program; choose another path"
            )
        if own.get("format") != FORMAT:
            raise StoreError(
                f"{root}: store format {own.get('format')!r}; this program reads {FORMAT}; "
                "convert again"
            )
        try:
            rows, cols = own["shape"]
            a, b, c, d, e, f = map(float, own["transform"])
            grid = GridSpec(
                _whole(rows), _whole(cols), (a, b, c, d, e, f), str(own["crs_wkt"]), own["crs_code"]
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise StoreError(
                f"{root}/zarr.json: damaged store metadata: {reason}; convert again"
            ) from error
        return cls(root, grid)

    @property
    def layers(self) -> list[str]:
        return sorted(
            p.parent.name
            for p in self.path.glob("*/zarr.json")
            if _NAME.fullmatch(p.parent.name) and p.parent.name not in _RESERVED
        )

    def describe(self) -> dict[str, Any]:
        """Grid and layers as plain JSON: what ``terrain-gpu info`` shows."""
        grid = self.grid
        return {
            "store": str(self.path),
            "format": FORMAT,
            "rows": grid.rows,
            "cols": grid.cols,
            "cells": grid.cells,
            "crs_code": grid.crs_code,
            "crs_wkt": grid.crs_wkt,
            "transform": list(grid.transform),
            "bounds": list(grid.bounds),
            "layers": {name: self.layer(name).describe() for name in self.layers},
        }

    def layer(self, name: str) -> Layer:
        """Open a layer.

        Raises
        ------
        StoreError
            when there is no such layer or its metadata is damaged.
        """
        if name not in self.layers:
            have = ", ".join(self.layers) or "none"
            raise StoreError(f"{self.path}: no layer {name!r}; it has: {have}")
        path = self.path / name
        array = _open_node(path, zarr.open_array)
        try:
            return _checked_layer(path, self.grid, array)
        except InputError as error:
            raise StoreError(f"{path}/zarr.json: {error}; convert it again") from error
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"{path}/zarr.json: damaged metadata ({error}); convert it again"
            ) from error


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _open_node(path: Path, opener: Any) -> Any:
    if not path.exists():
        raise StoreError(f"{path}: no such store; convert-dataset makes one")
    if not path.is_dir():
        raise StoreError(f"{path}: a file, not a store; convert-dataset makes one")
    if not (path / "zarr.json").is_file():
        raise StoreError(f"{path}: not a store (it has no zarr.json); convert-dataset makes one")
    try:
        return opener(str(path), mode="r", zarr_format=3)
    except PermissionError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # zarr meets hostile JSON with whatever its parsers happen to raise
        raise StoreError(
            f"{path}/zarr.json: damaged metadata ({type(error).__name__}: {error}); convert again"
        ) from error


def _check_recorded(attributes: dict[str, Any]) -> None:
    """Refuse recorded statistics of a wrong type, which callers compute with."""
    json.dumps(attributes, allow_nan=False)
    own = attributes.get(KEY, {})
    if not isinstance(own, dict):
        raise InputError(f"attribute {KEY} is no JSON object")
    for key in ("valid_cells", "stored_bytes"):
        if own.get(key) is not None and _whole(own[key]) < 0:
            raise InputError(f"attribute {KEY}.{key} is {own[key]}")
    for key in ("min", "max"):
        cells.from_json(own.get(key))


def _checked_layer(path: Path, grid: GridSpec, array: Any) -> Layer:
    """A `Layer` of metadata that passed every check of docs/format.md, section 3."""
    metadata = array.metadata
    if array.shape != grid.shape:
        raise InputError(f"shape {array.shape} differs from the store's {grid.shape}")
    codecs = metadata.codecs
    if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
        raise InputError("the layer is not sharded")
    sharding = codecs[0]
    if sharding.chunk_shape != (TILE, TILE):
        raise InputError(f"tiles of {sharding.chunk_shape}, not {TILE} x {TILE}")
    if sharding.index_location.value != "end":
        raise InputError("the shard index is not at the end")
    if [type(c) for c in sharding.index_codecs] != [BytesCodec, Crc32cCodec]:
        raise InputError("the shard index is not plain bytes with crc32c")
    inner = [type(c) for c in sharding.codecs]
    if inner not in ([BytesCodec], [BytesCodec, ZstdCodec]):
        names = [codec.__name__ for codec in inner]
        raise InputError(f"tile codecs {names} are not bytes, or bytes and zstd")
    for codec in (sharding.codecs[0], sharding.index_codecs[0]):
        endian = getattr(codec, "endian", None)
        if endian is not None and endian.value != "little":
            raise InputError("cells are not little-endian")
    block, across = metadata.chunk_grid.chunk_shape
    if block != across:
        raise InputError(f"blocks of {block} x {across} are not square")
    keys = metadata.chunk_key_encoding
    if (keys.name, getattr(keys, "separator", None)) != ("default", "/"):
        raise InputError("shard files are not named c/ROW/COLUMN")
    dtype = cells.layer_dtype(array.dtype)
    attributes = array.attrs.asdict()
    own = attributes.get(KEY)
    _check_recorded(attributes)
    nodata = cells.from_json(own.get("nodata") if isinstance(own, dict) else None)
    if nodata is not None:
        nodata = cells.as_scalar(nodata, dtype)
    layer = Layer(
        path, grid, dtype, block, nodata, "zstd" if ZstdCodec in inner else None, attributes
    )
    fill = np.array(metadata.fill_value, dtype)
    if not np.array_equal(layer.fill, fill, equal_nan=dtype.kind == "f"):
        raise InputError(f"fill value {metadata.fill_value} is not the nodata value {nodata}")
    return layer
