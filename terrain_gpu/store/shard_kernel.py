"""Read the tiles of a shard in one call, without the interpreter's lock.

In Python a shard takes a dozen calls that give up the lock and wait for it again. Where many
threads read, that takes 0.6 ms for each shard, however many there are. The kernel here opens a
file, compares its checksums, and decodes its tiles. Whatever is not as expected is left to `Shard`
and `decoding`, and so are their messages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ..compiled import jit
from ..grid import TILE, Window
from . import codec_kernel
from .checksums import block_digest
from .codec_kernel import call_at, copy_bytes, crc_of_some, decode_some, decoder, word_at
from .codecs import most_bytes
from .crc_kernel import has_instruction
from .shard import ANY_DIGEST, GAP, end_bytes
from .tiles import ABSENT

BATCH = 1 << 18
"""Bytes of tiles that are read, compared and decoded before the next: they stay in the cache."""

_NOWHERE = np.empty((0, 6), np.int64), (0, 0)
"""For tiles that stay tiles, instead of cuts and a window."""

_SEEK_END, _FLAGS = os.SEEK_END, os.O_RDONLY | os.O_CLOEXEC
_READ, _SHARED = mmap.PROT_READ, mmap.MAP_SHARED


@jit
def _fill(pread, fd, to, size, at):  # type: ignore[no-untyped-def]
    """Read bytes of a file to an address; return whether all were there."""
    done = np.int64(0)
    while done < size:
        got = call_at(pread, (fd, to + done, size - done, at + done))
        if got <= 0:
            return False
        done += got
    return True


@jit
def _put(tile, row, cut, window):  # type: ignore[no-untyped-def]
    """Copy part of a tile at an address, with rows of `row` bytes; for `cut` see `WindowCuts`."""
    top, left, rows, width, down, across = cut
    (target, stride), source = window, tile + top * row + left
    for k in range(rows):
        copy_bytes(target + (down + k) * stride + across, source + k * row, width)


@jit
def _deliver(codec, data, some, out, cuts, window):  # type: ignore[no-untyped-def]
    """Decode tiles, and put them where they belong, see `_read_open`; return whether they decode.

    Of `some` tiles: their numbers, and where they begin in `data`, and their lengths.
    """
    (decode, context), (slots, starts, lengths) = codec[:2], some
    if cuts.size == 0:
        if not decode:
            return True
        done = decode_some(decode, context, data, starts, lengths, out, slots)
        return done == slots.size
    first = np.zeros(1, np.int64)
    for k in range(slots.size):
        at = np.int64(data.ctypes.data) + starts[k]
        if decode:
            part = starts[k : k + 1], lengths[k : k + 1], out, first
            if decode_some(decode, context, data, *part) != 1:
                return False
            at = np.int64(out.ctypes.data)
        _put(at, out.shape[1] // TILE, cuts[slots[k]], window)
    return True


@jit
def _read_open(file, order, ranks, codec, out, room, end, present, *placed):  # type: ignore[no-untyped-def]
    """Read the tiles of an open file in batches; return whether all is as expected.

    Of the file: `pread`, descriptor, size, and the address of its bytes if they are mapped, else 0.
    Tiles go to `out`. If there are cuts, they go on to a window, whose address and bytes from row
    to row are given, and a tile that is not there is the second row of `out`.
    """
    cuts, window = placed
    pread, fd, size, mapped = file
    decode, _, most, batch = codec
    tile, last = out.shape[1], size - end.size
    onward = cuts.size > 0
    sums, index = end.ctypes.data, end.ctypes.data + 4 * order.size + 4
    if last < 0 or not _fill(pread, fd, sums, end.size, last):
        return False
    starts, lengths = np.empty(ranks.size + 1, np.int64), np.empty(ranks.size + 1, np.int64)
    slots, found = np.empty(ranks.size, np.int64), np.empty(ranks.size + 1, np.uint32)
    starts[0], lengths[0] = 0, 4 * order.size
    starts[1], lengths[1] = 4 * order.size + 4, 16 * order.size
    crc_of_some(end, starts[:2], lengths[:2], found)
    for k in range(2):  # the words begin before the last four bytes of what is checked
        if word_at(sums + starts[k] + lengths[k] - 4) >> 32 & 0xFFFFFFFF != found[k]:
            return False
    n, stop = 0, np.int64(0)
    while n < ranks.size:
        count, begin = 0, np.int64(0)
        while n < ranks.size:
            pair = index + 16 * order[ranks[n]]
            at, length = word_at(pair), word_at(pair + 8)
            present[n] = at != ABSENT
            if present[n]:
                if at < stop or not 0 < length <= most or at > last - length:
                    return False
                fits = at - stop <= GAP and at + length - begin <= batch
                if not decode:
                    if length != tile:
                        return False
                    fits = fits and at - begin == (n - slots[0]) * tile
                if count == 0:
                    begin = at
                elif not fits:
                    break
                starts[count], lengths[count], slots[count] = at - begin, length, n
                count, stop = count + 1, at + length
            n += 1
        if count == 0:
            break
        data = room if decode or onward else out[slots[0]]  # and the rows that follow
        if mapped:
            copy_bytes(data.ctypes.data, mapped + begin, stop - begin)
        elif not _fill(pread, fd, data.ctypes.data, stop - begin, begin):
            return False
        crc_of_some(data, starts[:count], lengths[:count], found)
        for k in range(count):
            if word_at(sums + 4 * order[ranks[slots[k]]]) & 0xFFFFFFFF != found[k]:
                return False
        some = slots[:count], starts[:count], lengths[:count]
        if not _deliver(codec, data, some, out, *placed):
            return False
    for k in range(ranks.size if onward else 0):
        if not present[k]:
            _put(np.int64(out[1].ctypes.data), tile // TILE, cuts[k], window)
    return True


@jit
def _read(calls, path, order, ranks, codec, *given):  # type: ignore[no-untyped-def]
    """As `_read_open`, by the path. Only arguments are used by address: see `codec_kernel`."""
    begin, seek, pread, map_file, unmap, close = calls
    fd = np.int64(np.int32(call_at(begin, (path.ctypes.data, np.int64(_FLAGS)))))
    if fd < 0:
        return False
    size = call_at(seek, (fd, np.int64(0), np.int64(_SEEK_END)))
    mapped, none = np.int64(0), np.int64(0)
    if not codec[0] and 4 * ranks.size <= order.size:  # a few tiles, as in `Layer`
        mapped = call_at(map_file, (none, size, np.int64(_READ), np.int64(_SHARED), fd, none))
    done = False
    if mapped != -1:
        file = pread, fd, size, mapped
        done = _read_open(file, order, ranks, codec, *given)
        if mapped:
            call_at(unmap, (mapped, size))
    call_at(close, (fd,))
    return done


@jit
def _place(tiles, slots, inner, fill, out):  # type: ignore[no-untyped-def]
    """As `place`; all of bytes."""
    row0, row1, col0, col1 = inner
    item = fill.size // TILE
    source, target, absent = tiles.ctypes.data, out.ctypes.data, fill.ctypes.data
    for row in range(row0, row1):
        across, down = slots[row // TILE - row0 // TILE], row % TILE * TILE
        for k in range(across.size):
            left = (col0 // TILE + k) * TILE
            begin, end = max(col0, left), min(col1, left + TILE)
            at = absent
            if across[k] != ABSENT:
                at = source + across[k] * tiles.shape[1] + (down + begin - left) * item
            to = target + (row - row0) * out.strides[0] + (begin - col0) * item
            copy_bytes(to, at, (end - begin) * item)


def place(
    tiles: np.ndarray, slots: np.ndarray, inner: Window, out: np.ndarray, fill: np.ndarray
) -> None:
    """Copy the cells `inner` of a block from the slots of its tiles, as `tiles.arrange`."""
    rows = tiles.view(np.uint8).reshape(len(tiles), -1)
    _place(rows, slots, inner, np.full(TILE, fill).view(np.uint8), out.view(np.uint8))


@cache
def _calls() -> tuple[int, ...]:
    """The addresses of the system's functions."""
    library = ctypes.CDLL(None)
    names = "open", "lseek", "pread", "mmap", "munmap", "close"
    found = [getattr(library, name) for name in names]
    return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in found)


@cache
def can(compress: str | None) -> bool:
    """Whether shards with this compression can be read here."""
    return has_instruction() if compress is None else codec_kernel.can(compress)


class WindowCuts(NamedTuple):
    """How the tiles of a window of a block become its rows.

    Attributes
    ----------
    ranks
        Of the tiles, in ascending order.
    tiles
        int64, for each: the first row and byte of the part that is copied, its rows and the bytes
        of each, the first row and byte in the window.
    """

    ranks: np.ndarray
    tiles: np.ndarray

    @classmethod
    def of(cls, inner: Window, ranks: np.ndarray, item: int) -> WindowCuts:
        """Of the cells `inner` of a block, whose tiles there have these ranks."""
        (down, across), order = np.indices(ranks.shape), np.argsort(ranks, axis=None)
        found = []
        for (first, last), at, size in ((inner[:2], down, 1), (inner[2:], across, item)):
            begin = (at.ravel()[order] + first // TILE) * TILE
            low, high = np.maximum(begin, first), np.minimum(begin + TILE, last)
            found.append([size * one for one in (low - begin, high - low, low - first)])
        (top, rows, to_row), (left, width, to_byte) = found
        cuts = np.stack((top, left, rows, width, to_row, to_byte), axis=1)
        return cls(ranks.ravel()[order], cuts)


def read_cells(
    path: str,
    order: np.ndarray,
    compress: str | None,
    digest: int,
    cuts: WindowCuts,
    cells: np.ndarray,
    fill: np.ndarray,
    buffer: Callable[[int, str], np.ndarray],
) -> bool:
    """Read a window of a shard into `cells`, whose rows are contiguous; as `read_tiles`."""
    rows = buffer(2 * TILE * TILE * cells.itemsize, "tile").view(cells.dtype)
    rows = rows.reshape(2, TILE, TILE)
    rows[1] = fill
    target = cuts.tiles, (cells.ctypes.data, cells.strides[0])
    return _read_shard(path, order, compress, digest, cuts.ranks, rows, target, buffer) is not None


def read_tiles(
    path: str,
    order: np.ndarray,
    compress: str | None,
    digest: int,
    ranks: np.ndarray,
    tiles: np.ndarray,
    buffer: Callable[[int, str], np.ndarray],
) -> np.ndarray | None:
    """Read, check and decode tiles of a shard, which is a file with checksums.

    Parameters
    ----------
    order, digest
        As for `Shard`.
    ranks
        Ranks of the tiles, in ascending order.
    tiles
        The tiles are read into this, in this order; C-contiguous.
    buffer
        Gives so many bytes of memory under a name.

    Returns
    -------
    numpy.ndarray or None
        Mask of the tiles that are present; the others are left as they are. None if anything is
        not as expected: `Shard` says what.
    """
    if not ranks.size:
        return np.empty(0, np.bool_)  # the kernel needs one tile at least
    return _read_shard(path, order, compress, digest, ranks, tiles, _NOWHERE, buffer)


def _read_shard(
    path: str,
    order: np.ndarray,
    compress: str | None,
    digest: int,
    ranks: np.ndarray,
    tiles: np.ndarray,
    placed: tuple[np.ndarray, tuple[int, int]],
    buffer: Callable[[int, str], np.ndarray],
) -> np.ndarray | None:
    """As `read_tiles`; for `placed` see `_read_open`."""
    rows = tiles.view(np.uint8).reshape(len(tiles), -1)
    size = rows.shape[1]
    most = most_bytes(size) if compress else size
    batch = max(min(BATCH, ranks.size * most), most)
    room = buffer(batch if compress or len(placed[0]) else 0, "coded")
    end, present = buffer(end_bytes(order.size), "end"), np.empty(ranks.size, np.bool_)
    name = np.frombuffer(os.fsencode(path) + b"\0", np.uint8)
    with decoder(compress) as (function, context):
        codec = function, context, most, batch
        given = order, ranks, codec, rows, room, end, present
        if not _read(_calls(), name, *given, *placed):
            return None
    sums = 4 * order.size
    if digest not in (ANY_DIGEST, block_digest(end[:sums], end[sums + 4 : -4])):
        return None
    return present
