"""Write a shard in one call, without the interpreter's lock.

In Python a shard takes a dozen calls that give up the lock and wait for it again. Where many
threads write, they wait longer than they work. The kernel here codes the tiles, sums them, and
writes, syncs and renames the file. Whatever is not as expected is left to `BlockWriter`, and so are
its messages.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from .. import cells
from ..compiled import jit
from ..grid import TILE
from . import codec_kernel
from .codec_kernel import call_at, code_tile, coder, copy_bytes, crc_of_some
from .coding import most_bytes
from .crc_kernel import has_instruction
from .digest_kernel import BYTES, digest_of
from .shard import end_bytes

FAILED, EMPTY, WRITTEN, SAVED = range(4)
"""What became of a shard: not as expected; without tiles; complete but not renamed; in place."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MODE = 0o666


@jit
def _range(cells, flip, ends):  # type: ignore[no-untyped-def]
    """Find the least and the greatest cell, given as signed integers; `flip` what had no sign."""
    own = cells.dtype.type  # numba's own results have 64 bits, of which processors compare fewer
    low = high = own(cells[0] ^ flip)
    for k in range(cells.size):
        key = own(cells[k] ^ flip)
        low, high = own(min(low, key)), own(max(high, key))
    ends[0], ends[1] = low ^ flip, high ^ flip


@jit
def _range_of_floats(bits, mirror, ends):  # type: ignore[no-untyped-def]
    """As `_range`; with those below 0 mirrored, floats are in order, and NaN is beyond infinity."""
    own, shift = bits.dtype.type, 8 * bits.itemsize - 1
    low = high = own(bits[0] ^ (bits[0] >> shift & mirror))
    for k in range(bits.size):
        key = own(bits[k] ^ (bits[k] >> shift & mirror))
        low, high = own(min(low, key)), own(max(high, key))
    ends[0], ends[1] = low ^ (low >> shift & mirror), high ^ (high >> shift & mirror)


@jit
def _find_range(kind, *views):  # type: ignore[no-untyped-def]
    """As `_range`. `kind`: bytes of a cell, whether cells are unsigned, or floats; see `_views`."""
    (item, unsigned, floats), ((a, b, c, d), (to_a, to_b, to_c, to_d)) = kind, views
    sign = ~np.int64(0) << (8 * item - 1)
    flip = sign if unsigned else np.int64(0)
    if item == 1:
        _range(a, np.int8(flip), to_a)
    elif item == 2:
        _range(b, np.int16(flip), to_b)
    elif item == 4 and floats:
        _range_of_floats(c, np.int32(~sign), to_c)
    elif item == 4:
        _range(c, np.int32(flip), to_c)
    elif floats:
        _range_of_floats(d, ~sign, to_d)
    else:
        _range(d, flip, to_d)


@jit
def _range_of_valid(cells, nodata, ends):  # type: ignore[no-untyped-def]
    """Narrow the ends to the cells with a value; return how many there are."""
    count, (high, low) = 0, ends
    for k in range(cells.size):
        cell = cells[k]
        if np.isfinite(cell) and cell != nodata:
            count += 1
            low = cell if cell < low else low
            high = cell if cell > high else high
    ends[0], ends[1] = low, high
    return count


def stats(data: np.ndarray, nodata: float | int | None, ends: np.ndarray) -> cells.Stats:
    """As `cells.stats`, of a C-contiguous block whose least and greatest cell are known."""
    low, high = ends
    if cells.all_valid(low, high, nodata):
        return cells.stats(data, nodata, ends)
    dtype, flat = data.dtype, data.reshape(-1).view()
    flat.flags.writeable = False  # else numba compiles twice
    none = dtype.type(np.nan if nodata is None else nodata)  # integers without it are all valid
    bounds = (-np.inf, np.inf) if dtype.kind == "f" else np.array(ends)
    found = np.array(bounds, dtype)
    count = _range_of_valid(flat, none, found)
    if not count:
        return cells.Stats(0, None, None)
    return cells.Stats(count, found[0].item() + 0, found[1].item() + 0)  # 0.0 for -0.0


@jit
def _gather(cells, cut, fill, tile):  # type: ignore[no-untyped-def]
    """Copy a tile from the rows of a block, all of bytes; what lies outside becomes fill."""
    at, rows, width = cut
    to, row = np.int64(tile.ctypes.data), tile.size // TILE
    if rows < TILE or width < row:
        copy_bytes(to, fill.ctypes.data, tile.size)
    for k in range(rows):
        copy_bytes(to + k * row, cells.ctypes.data + at + k * cells.shape[1], width)


@jit
def _pack(cells, cuts, fill, codec, parts, ends, sums):  # type: ignore[no-untyped-def]
    """Put the tiles that are not all fill one after another, coded if there is a codec.

    Tiles that are in order already and not coded stay where they are, if none is missing. Only
    arguments are used by address: see `codec_kernel`.

    Parameters
    ----------
    cells, cuts
        Rows of bytes; of each tile where it begins in them, its rows, and the bytes of each row.
    parts
        Memory for all coded tiles, for one of them, and for its cells.
    ends
        Becomes the begin and the length of each tile, and its number.
    sums
        Becomes their CRC-32C.

    Returns
    -------
    count, size, whole
        Number of tiles, -1 if one could not be coded; number of bytes; whether they are `cells` as
        they were.
    """
    (room, part, tile), (starts, lengths, numbers) = parts, ends
    size, end, count = tile.size, np.int64(0), 0
    source, to = np.int64(cells.ctypes.data), np.int64(room.ctypes.data)
    tiled, whole = cells.shape[1] * TILE == size, not codec[1]
    for n in range(len(cuts)):
        at, length, there = source + cuts[n, 0], size, tiled and cuts[n, 1] == TILE
        if not there:
            _gather(cells, (cuts[n, 0], cuts[n, 1], cuts[n, 2]), fill, tile)
            at = np.int64(tile.ctypes.data)
        empty = np.int32(call_at(codec[0], (at, fill.ctypes.data, size))) == 0
        if whole and (empty or not there):
            copy_bytes(to, source, end)
            whole = False
        if empty:
            continue
        if codec[1]:
            coded = np.int64(part.ctypes.data)
            length = code_tile(codec[1:], at, size, coded, part.size)
            if length < 0:
                return -1, end, whole
            at = coded
        if not whole:
            copy_bytes(to + end, at, length)
        starts[count], lengths[count], numbers[count] = end, length, n
        end, count = end + length, count + 1
    crc_of_some(cells.reshape(-1) if whole else room, starts[:count], lengths[:count], sums)
    return count, end, whole


@jit
def _finish(tail, words, places, count, ends, sums):  # type: ignore[no-untyped-def]
    """Complete checksums and index, which are `tail` and the same as words of 32 bits."""
    (starts, lengths, numbers), tiles = ends, (words.size - 2) // 5
    words[:tiles], words[tiles + 1 :] = 0, 0xFFFFFFFF
    for k in range(count):
        place = places[numbers[k]]
        words[place], at = sums[k], tiles + 1 + 4 * place
        words[at], words[at + 1] = starts[k] & 0xFFFFFFFF, starts[k] >> 32
        words[at + 2], words[at + 3] = lengths[k], 0
    starts[0], lengths[0] = 0, 4 * tiles
    starts[1], lengths[1] = 4 * tiles + 4, 16 * tiles
    crc_of_some(tail, starts[:2], lengths[:2], sums)
    words[tiles], words[words.size - 1] = sums[0], sums[1]


@jit
def _digest(words):  # type: ignore[no-untyped-def]
    """As `checksums.block_digest`, of checksums and index."""
    tiles = (words.size - 2) // 5
    packed = np.zeros(-(-20 * tiles // BYTES) * BYTES // 8, np.uint64)
    each = packed.view(np.uint32)
    for k in range(5 * tiles):
        each[k] = words[k + (k >= tiles)]
    return digest_of(packed, 20 * tiles)


@jit
def _write(write, fd, data, size):  # type: ignore[no-untyped-def]
    """Write bytes at an address to a file; return whether all were written."""
    done = np.int64(0)
    while done < size:
        got = call_at(write, (fd, data + done, size - done))
        if got <= 0:
            return False
        done += got
    return True


@jit
def _save(calls, names, sync, ranged, cells, cuts, places, tail, words, *given):  # type: ignore[no-untyped-def]
    """Write the shard; return what became of it, size and digest. For `given` see `_pack`."""
    begin, write, flush, close, rename, unlink = calls
    (own, path), none = names, np.uint64(0)
    fill, codec, parts, ends, sums = given
    _find_range(*ranged)
    count, size, whole = _pack(cells, cuts, fill, codec, parts, ends, sums)
    if count <= 0:
        return (FAILED if count else EMPTY), size, none
    _finish(tail, words, places, count, ends, sums)
    flags, mode = np.int64(_FLAGS), np.int64(_MODE)
    fd = np.int64(np.int32(call_at(begin, (own.ctypes.data, flags, mode))))
    if fd < 0:
        return FAILED, size, none
    data = np.int64(cells.ctypes.data) if whole else np.int64(parts[0].ctypes.data)
    done = _write(write, fd, data, size)
    done = done and _write(write, fd, np.int64(tail.ctypes.data), tail.size)
    if done and size + tail.size >= sync:
        done = np.int32(call_at(flush, (fd,))) == 0
    done = np.int32(call_at(close, (fd,))) == 0 and done
    if not done:
        call_at(unlink, (own.ctypes.data,))
        return FAILED, size, none
    done = np.int32(call_at(rename, (own.ctypes.data, path.ctypes.data))) == 0
    return (SAVED if done else WRITTEN), size + tail.size, _digest(words)


@cache
def can(compress: str | None) -> bool:
    """Whether shards with this compression can be written here."""
    return has_instruction() if compress is None else codec_kernel.can(compress)


@cache
def _calls() -> tuple[int, ...]:
    """The addresses of the system's functions."""
    library = ctypes.CDLL(None)
    names = "open", "write", "fsync", "close", "rename", "unlink", "memcmp"
    found = [getattr(library, name) for name in names]
    return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in found)


_SIGNED = tuple(map(np.dtype, ("i1", "i2", "i4", "i8")))
_EMPTY = tuple(tuple(np.empty(0, kind) for kind in _SIGNED) for _ in range(2))
for _one in _EMPTY[False]:
    _one.flags.writeable = False


def _views(cells: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cells as signed integers of 1, 2, 4 and 8 bytes; empty ones but for that of their size.

    All are read-only if the cells are.
    """
    pairs = zip(_EMPTY[cells.flags.writeable], _SIGNED, strict=True)
    return tuple(cells.view(k) if k.itemsize == cells.itemsize else none for none, k in pairs)


class TileCuts(NamedTuple):
    """How the tiles of a block are cut from rows of bytes, in Z-order.

    Attributes
    ----------
    tiles
        int64, for each: where it begins, its number of rows, and the bytes of each row.
    places
        Positions in the index.
    fill
        The bytes of a tile that is all fill.
    all
        Number of tiles of a whole block.
    """

    tiles: np.ndarray
    places: np.ndarray
    fill: np.ndarray
    all: int

    @classmethod
    def of(cls, shape: tuple[int, ...], order: np.ndarray, fill: np.ndarray) -> TileCuts:
        """Of the cells of a block, those tiles that have some; or of all tiles below each other.

        Parameters
        ----------
        order
            As for `Shard`.
        """
        count, item = order.size, fill.itemsize
        side = 1 if shape == (count * TILE, TILE) else math.isqrt(count)
        down, across = np.divmod(np.arange(count) if side == 1 else order, side)
        there = (down * TILE < shape[0]) & (across * TILE < shape[1])
        begin = TILE * down[there], TILE * across[there]
        rows, cols = (np.minimum(TILE, n - k) for n, k in zip(shape, begin, strict=True))
        at = (begin[0] * shape[1] + begin[1]) * item
        tile = np.full(TILE * TILE, fill).view(np.uint8)
        return cls(np.stack((at, rows, cols * item), axis=1), order[there], tile, count)


class Saved(NamedTuple):
    """What became of a shard.

    Attributes
    ----------
    state
        `FAILED`, `EMPTY`, `WRITTEN` or `SAVED`.
    size
        Number of bytes.
    digest
        Of its content.
    ends
        Its least and its greatest cell, 0 and -0 taken as different, and NaN as beyond infinity.
    """

    state: int
    size: int
    digest: int
    ends: np.ndarray


def write_shard(
    path: str,
    temporary: str,
    cells: np.ndarray,
    cuts: TileCuts,
    compress: str | None,
    sync: int,
    buffer: Callable[[int, str], np.ndarray],
) -> Saved:
    """Write the tiles of a block as a file with checksums.

    Parameters
    ----------
    cells
        The block, or its tiles one below another; C-contiguous. May be read-only.
    sync
        Size in bytes from which on the file is synced.
    buffer
        Gives so many bytes of memory under a name.
    """
    size, count = cuts.fill.size, len(cuts.tiles)
    most = most_bytes(size) if compress else size
    names = (os.fsencode(name) + b"\0" for name in (temporary, path))
    own, place = (np.frombuffer(name, np.uint8) for name in names)
    kind, extremes = cells.dtype.kind, np.empty(2, cells.dtype)
    what = cells.itemsize, kind == "u", kind == "f"
    cells = cells.view()
    cells.flags.writeable = False  # else numba compiles twice
    ranged = what, _views(cells.reshape(-1)), _views(extremes)
    tail = buffer(end_bytes(cuts.all), "tail")
    parts = buffer(count * most, "room"), buffer(most, "part"), buffer(size, "tile")
    ends = np.empty((3, max(count, 2)), np.int64)
    *calls, compare = _calls()
    with coder(compress, cells.dtype) as codec:
        given = cuts.fill, (compare, *codec), parts, tuple(ends), np.empty(len(ends[0]), np.uint32)
        source = cells.view(np.uint8), cuts.tiles, cuts.places, tail, tail.view(np.uint32)
        state, written, digest = _save(tuple(calls), (own, place), sync, ranged, *source, *given)
    return Saved(state, written, digest, extremes)
