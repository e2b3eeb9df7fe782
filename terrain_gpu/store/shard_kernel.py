"""Read windows from the shards of a layer in one call, without the interpreter's lock.

In Python a shard takes a dozen calls that give up the lock and wait for it again. Where many
threads read, that takes 0.6 ms for each shard, however many there are, and a block with its rim
lies in nine. The kernel here names the files, opens them, compares checksums and digests, decodes
tiles, and puts their cells where they belong. Whatever is not as expected is left to `Shard` and
`decoding`, and so are their messages.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from functools import cache
from typing import NamedTuple

import numpy as np

from ..compiled import jit
from ..grid import TILE, Window
from . import codec_kernel
from .codec_kernel import call_at, copy_bytes, crc_of_some, decode_tile, decoder, word_at
from .coding import most_bytes
from .crc_kernel import has_instruction
from .digest_kernel import BYTES, digest_of
from .shard import GAP, end_bytes
from .tiles import ABSENT

BATCH = 1 << 18
"""Bytes of tiles that are read, compared and decoded before the next: they stay in the cache."""

_TOGETHER = 256
"""Most tiles of a batch."""

_DIGITS = 19
"""Most of a number in the name of a shard."""

_MISSING, _SEEK_END, _FLAGS = errno.ENOENT, os.SEEK_END, os.O_RDONLY | os.O_CLOEXEC


class _Shards(NamedTuple):
    """What all shards of a layer have in common.

    Attributes
    ----------
    order
        Position in the index of every rank: the tiles of a block, row by row.
    fill
        Bytes of the cells of one row of a tile, all fill.
    block, item
        Side of a block in cells; bytes of a cell.
    stem, separator
        Bytes of a shard's path before its numbers; the byte before each of them.
    codec
        Addresses as of `codec_kernel.decoder`.
    most, batch
        Most bytes of a tile in the file, and of a batch.
    """

    order: np.ndarray
    fill: np.ndarray
    block: int
    item: int
    stem: int
    separator: int
    codec: tuple[int, int, int]
    most: int
    batch: int


class _ReaderScratch(NamedTuple):
    """The memory of a thread.

    Attributes
    ----------
    name
        Of a shard: its path, and a zero.
    room
        Bytes of tiles as they are in the file, or of checksums and index.
    ends
        Checksums and index as words, and zeros; see `digest_kernel`.
    tile
        Bytes of a decoded tile.
    some
        int64, for the tiles of a batch: rank, begin and length.
    sums
        Their CRC-32C.
    """

    name: np.ndarray
    room: np.ndarray
    ends: np.ndarray
    tile: np.ndarray
    some: np.ndarray
    sums: np.ndarray


class _ShardPart(NamedTuple):
    """Where cells of a shard go.

    Attributes
    ----------
    inner
        The cells of the block.
    to, stride
        Address of the first of them, and bytes from row to row.
    tiles
        Instead of rows: all tiles of the block by rank, as bytes. Else no tiles.
    """

    inner: Window
    to: int
    stride: int
    tiles: np.ndarray


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
def _put(source, row, rank, shards, target):  # type: ignore[no-untyped-def]
    """Copy what belongs to the target of a tile at an address, with rows of `row` bytes.

    With rows of 0 bytes, every row of the tile is the one at the address.
    """
    (row0, row1, col0, col1), to, stride, tiles = target
    item, side = shards.item, shards.block // TILE
    top, left = shards.order[rank] // side * TILE, shards.order[rank] % side * TILE
    if tiles.size:
        to, stride = np.int64(tiles.ctypes.data) + rank * tiles.shape[1], TILE * item
        row0, row1, col0, col1 = top, top + TILE, left, left + TILE
    begin, end = max(top, row0), min(top + TILE, row1)
    first, width = max(left, col0), (min(left + TILE, col1) - max(left, col0)) * item
    source += (begin - top) * row + (first - left) * item * (row > 0)
    to += (begin - row0) * stride + (first - col0) * item
    for k in range(end - begin):
        copy_bytes(to + k * stride, source + k * row, width)


@jit
def _within(rank, shards, inner):  # type: ignore[no-untyped-def]
    """Whether a tile has cells of `inner`."""
    side = shards.block // TILE
    row, col = shards.order[rank] // side, shards.order[rank] % side
    down = inner[0] // TILE <= row and row * TILE < inner[1]
    return down and inner[2] // TILE <= col and col * TILE < inner[3]


@jit
def _read_open(file, shards, digest, target, context, scratch):  # type: ignore[no-untyped-def]
    """Read tiles of an open file in batches; return whether all is as expected.

    Of the file: `pread`, descriptor, size. A digest of 0 stands for any.
    """
    (pread, fd, size), (decode, _, _), order = file, shards.codec, shards.order
    room, ends, coded = scratch.room, scratch.ends, np.int64(scratch.room.ctypes.data)
    tile, last = scratch.tile.size, size - (20 * order.size + 8)
    (ranks, starts, lengths), found = scratch.some, scratch.sums
    if last < 0 or not _fill(pread, fd, coded, size - last, last):
        return False
    starts[0], lengths[0] = 0, 4 * order.size
    starts[1], lengths[1] = 4 * order.size + 4, 16 * order.size
    crc_of_some(room, starts[:2], lengths[:2], found)
    sums = np.int64(ends.ctypes.data)
    index = sums + lengths[0]
    for k in range(2):  # the words begin before the last four bytes of what is checked
        if word_at(coded + starts[k] + lengths[k] - 4) >> 32 & 0xFFFFFFFF != found[k]:
            return False
        copy_bytes(sums + k * lengths[0], coded + starts[k], lengths[k])
    if digest and digest_of(ends, 20 * order.size) != digest:
        return False
    n, stop = np.int64(0), np.int64(0)
    while n < order.size:
        count, begin = np.int64(0), np.int64(0)
        while n < order.size and count < ranks.size:
            if not _within(n, shards, target.inner):
                n += 1
                continue
            pair = index + 16 * order[n]
            at, length = word_at(pair), word_at(pair + 8)
            if at == ABSENT:
                _put(np.int64(shards.fill.ctypes.data), np.int64(0), n, shards, target)
                n += 1
                continue
            if at < stop or not 0 < length <= shards.most or at > last - length:
                return False
            fits = at - stop <= GAP and at + length - begin <= shards.batch
            if not decode:
                if length != tile:
                    return False
                follows = at == stop
                if target.tiles.size and count:
                    follows = at - begin == (n - ranks[0]) * tile
                fits = fits and follows
            if count == 0:
                begin = at
            elif not fits:
                break
            ranks[count], starts[count], lengths[count] = n, at - begin, length
            count, stop, n = count + 1, at + length, n + 1
        if count == 0:
            break
        direct = not decode and target.tiles.size > 0
        data = target.tiles[ranks[0]] if direct else room  # and the rows that follow
        if not _fill(pread, fd, np.int64(data.ctypes.data), stop - begin, begin):
            return False
        crc_of_some(data, starts[:count], lengths[:count], found)
        for k in range(count):
            if word_at(sums + 4 * order[ranks[k]]) & 0xFFFFFFFF != found[k]:
                return False
            at = coded + starts[k]
            if decode:
                to = np.int64(scratch.tile.ctypes.data)
                if not decode_tile(decode, context, at, lengths[k], to, tile):
                    return False
                at = to
            if not direct:
                _put(at, np.int64(tile // TILE), ranks[k], shards, target)
    return True


@jit
def _complete_name(name, at, separator, i, j):  # type: ignore[no-untyped-def]
    """Write the numbers of a block behind the stem of its path."""
    for number in (i, j):
        name[at], rest, digits = separator, number, 0
        while rest or not digits:
            digits, rest = digits + 1, rest // 10
        rest = number
        for k in range(digits, 0, -1):
            name[at + k], rest = 48 + rest % 10, rest // 10
        at += digits + 1
    name[at] = 0


@jit
def _fill_rows(to, stride, rows, size, fill):  # type: ignore[no-untyped-def]
    """Fill so many bytes of each row, the first of which is at an address."""
    for k in range(rows):
        for at in range(0, size, fill.size):
            copy_bytes(to + k * stride + at, fill.ctypes.data, min(fill.size, size - at))


@jit
def _fill_around(ring, inside, to, stride, shards):  # type: ignore[no-untyped-def]
    """Fill the cells of a ring that are not inside."""
    item, fill = shards.item, shards.fill
    before, after = (inside[2] - ring[2]) * item, (ring[3] - inside[3]) * item
    width = (ring[3] - ring[2]) * item
    _fill_rows(to, stride, inside[0] - ring[0], width, fill)
    to += (inside[0] - ring[0]) * stride
    rows = inside[1] - inside[0]
    _fill_rows(to, stride, rows, before, fill)
    _fill_rows(to + width - after, stride, rows, after, fill)
    _fill_rows(to + rows * stride, stride, ring[1] - inside[1], width, fill)


@jit
def _read(calls, shards, digests, windows, numbers, rows, tiles, scratch):  # type: ignore[no-untyped-def]
    """See `ShardReader.read`. Only arguments are used by address: see `codec_kernel`."""
    (begin, seek, pread, close, number), (_, make, free) = calls, shards.codec
    (ring, inside), (to, stride), b, fill = windows, rows, shards.block, shards.fill
    first_row, first_col, across = inside[0] // b, inside[2] // b, (inside[3] - 1) // b + 1
    across -= first_col
    n, context = numbers[0], call_at(make, ()) if make else np.int64(0)
    good = context != 0 or make == 0
    if n == 0:
        _fill_around(ring, inside, to, stride, shards)
    while good and n < numbers[1]:
        i, j = first_row + n // across, first_col + n % across
        row0, row1 = max(inside[0], i * b), min(inside[1], i * b + b)
        col0, col1 = max(inside[2], j * b), min(inside[3], j * b + b)
        at = to + (row0 - ring[0]) * stride + (col0 - ring[2]) * shards.item
        known = digests.size > 0
        digest = digests[i, j] if known else np.uint64(0)
        _complete_name(scratch.name, shards.stem, shards.separator, i, j)
        given = scratch.name.ctypes.data, np.int64(_FLAGS)
        fd = np.int64(np.int32(call_at(begin, given)))
        if fd < 0:
            good = not digest and word_at(call_at(number, ())) & 0xFFFFFFFF == _MISSING
            if good and tiles.size:
                _fill_rows(np.int64(tiles.ctypes.data), np.int64(0), 1, tiles.size, fill)
            elif good:
                _fill_rows(at, stride, row1 - row0, (col1 - col0) * shards.item, fill)
        else:
            inner = row0 - i * b, row1 - i * b, col0 - j * b, col1 - j * b
            file = pread, fd, call_at(seek, (fd, np.int64(0), np.int64(_SEEK_END)))
            target = _ShardPart(inner, at, stride, tiles)
            good = digest != 0 or not known
            good = good and _read_open(file, shards, digest, target, context, scratch)
            call_at(close, (fd,))
        n += good
    if context:
        call_at(free, (context,))
    return n


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
    names = "open", "lseek", "pread", "close", "__errno_location"
    found = [getattr(library, name) for name in names]
    return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in found)


@cache
def can(compress: str | None) -> bool:
    """Whether shards with this compression can be read here."""
    return has_instruction() if compress is None else codec_kernel.can(compress)


class ShardReader:
    """Reads the shards of a layer, which are files with checksums. Thread-safe.

    Parameters
    ----------
    stem
        Path of a shard before its numbers; before each of them there is the separator.
    order, compress
        As for `Shard`.
    block
        Side of a block in cells.
    fill
        Value of absent cells, in the layer's dtype.
    """

    def __init__(
        self,
        stem: str,
        separator: str,
        order: np.ndarray,
        block: int,
        compress: str | None,
        fill: np.ndarray,
    ) -> None:
        self._stem, self._local = os.fsencode(stem), threading.local()
        size = TILE * TILE * fill.itemsize
        most = most_bytes(size) if compress else size
        self._shards = _Shards(
            order,
            np.full(TILE, fill).view(np.uint8),
            block,
            fill.itemsize,
            len(self._stem),
            ord(separator),
            decoder(compress),
            most,
            max(min(BATCH, order.size * most), most),
        )
        self._no_tiles = np.empty((0, size), np.uint8)

    def read(
        self,
        digests: np.ndarray,
        ring: Window,
        inside: Window,
        numbers: tuple[int, int],
        out: np.ndarray,
    ) -> int:
        """Read a window from some of the blocks that it has cells of, which are counted row by row.

        Parameters
        ----------
        digests
            Of all blocks, with 0 for those that have no file; of shape (0, 0) for any.
        ring, inside
            The window, and its part that lies in the raster. With the first block, the rest of it
            is filled.
        numbers
            The first block and the end.
        out
            Cells of the ring; those of a row are side by side.

        Returns
        -------
        int
            The number of a block where anything is not as expected: `Shard` says what. If there is
            none, the end.
        """
        rows = out.ctypes.data, out.strides[0]
        return self._call(digests, (ring, inside), numbers, rows, self._no_tiles)

    def read_tiles(self, digests: np.ndarray, i: int, j: int, out: np.ndarray) -> bool:
        """Read all tiles of a block in Z-order, those beyond the raster too; C-contiguous."""
        b, tiles = self._shards.block, out.view(np.uint8).reshape(len(out), -1)
        window = i * b, i * b + b, j * b, j * b + b
        return self._call(digests, (window, window), (0, 1), (0, 0), tiles) == 1

    def _call(self, digests: np.ndarray, *given: object) -> int:
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = self._new_scratch()
        return int(_read(_calls(), self._shards, digests, *given, scratch))

    def _new_scratch(self) -> _ReaderScratch:
        count, row = self._shards.order.size, self._shards.fill.size
        name = np.zeros(len(self._stem) + 2 * (_DIGITS + 1) + 1, np.uint8)
        name[: len(self._stem)] = np.frombuffer(self._stem, np.uint8)
        return _ReaderScratch(
            name,
            np.empty(max(self._shards.batch, end_bytes(count)), np.uint8),
            np.zeros(-(-20 * count // BYTES) * BYTES // 8, np.uint64),
            np.empty(TILE * row, np.uint8),
            np.empty((3, _TOGETHER), np.int64),
            np.empty(_TOGETHER, np.uint32),
        )
