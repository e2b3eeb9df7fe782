"""Read a shard: its index, its checksums, and the bytes of its tiles."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import StoreError
from .checksums import block_digest, unseal
from .coding import most_bytes
from .object_bytes import ObjectBytes, recent
from .objects import AnyPath, ObjectPath
from .tiles import ABSENT

MISSING = np.uint64(2**64 - 1)
GAP = 1 << 14
"""A gap between tiles of up to this number of bytes is read: another request takes longer."""
ANY_DIGEST = -1
ANY_DIGESTS = np.empty((0, 0), np.uint64)
"""The digests of a layer that is being written."""


def again(layer: Path | ObjectPath) -> str:
    """The remedy for a layer whose files were changed."""
    return (
        "copy or convert the layer again, or accept it as it is: "
        f"terrain-gpu verify {layer.parent} --accept-changes {layer.name}"
    )


class ShardBytes(Protocol):
    """The bytes of a shard, in a file or an object.

    Attributes
    ----------
    size
        Total number of bytes.
    mapped
        Whether `map` reads only the parts that are accessed.
    held
        Whether all bytes are in memory.
    """

    size: int
    mapped: bool
    held: bool

    def tail(self, size: int) -> bytes:
        """The last `size` bytes."""

    def map(self) -> np.ndarray:
        """All bytes, read-only."""

    def read(self, buffer: np.ndarray) -> np.ndarray:
        """Read the first bytes, as many as fit in `buffer`."""

    def near(self, start: int, buffer: np.ndarray) -> np.ndarray:
        """As many bytes from `start` as `buffer` has, in `buffer` or elsewhere in memory."""

    def parts(self, starts: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Yield parts of the bytes, in the given order."""


class FileBytes:
    """The bytes of an open file."""

    mapped, held = True, False

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd, self.size = path, fd, os.fstat(fd).st_size

    def tail(self, size: int) -> bytes:
        return os.pread(self._fd, size, max(self.size - size, 0))

    def map(self) -> np.ndarray:
        return np.frombuffer(mmap.mmap(self._fd, 0, prot=mmap.PROT_READ), np.uint8)

    def read(self, buffer: np.ndarray) -> np.ndarray:
        return self.near(0, buffer)

    def near(self, start: int, buffer: np.ndarray) -> np.ndarray:
        done = 0
        while done < buffer.size:
            got = os.preadv(self._fd, [buffer[done:].data], start + done)
            if got == 0:
                raise StoreError(f"{self._path}: truncated while being read")
            done += got
        return buffer

    def parts(self, starts: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        # Not mapped: mapped pages count as memory of the process.
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            data = os.pread(self._fd, length, start)
            if len(data) != length:
                raise StoreError(f"{self._path}: truncated while being read")
            yield np.frombuffer(data, np.uint8)


@contextlib.contextmanager
def opened(
    path: AnyPath, end: int, *, whole: bool, full: bool = False, layer: object = None
) -> Iterator[ShardBytes]:
    """Open the bytes of a shard, in a file or an object.

    Parameters
    ----------
    end
        Number of bytes of its checksums and index.
    whole
        Whether most of the shard will be read.
    full, layer
        For an object, as for `Recent.open`; with None, nothing is cached.

    Raises
    ------
    OSError
        when it cannot be opened; FileNotFoundError when it does not exist.
    """
    if isinstance(path, ObjectPath):
        if layer is None:
            yield ObjectBytes.open(path, end, whole)
        else:
            yield recent.open(layer, path, end, whole=whole, full=full)
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        yield FileBytes(path, fd)
    finally:
        os.close(fd)


def end_bytes(tiles: int) -> int:
    """Number of bytes of checksums and index, which follow the tiles."""
    return 20 * tiles + 8


class Shard:
    """An open shard and its index, checked.

    Parameters
    ----------
    layer
        Path of the layer.
    order
        Position in the index of every rank.
    tile_bytes
        Size of a tile that is not compressed.
    compress
        The compression of tiles; sizes of compressed tiles vary.
    digest
        The recorded digest of the block; `ANY_DIGEST` for a block that is being written; None if no
        digest is recorded and tiles have no checksums.

    Attributes
    ----------
    offsets, lengths
        int64, for each rank; `ABSENT` for a tile that is all fill.
    sums
        uint32, CRC-32C of each tile's bytes by rank, or None.
    digest
        Digest of the content.
    """

    def __init__(
        self,
        source: ShardBytes,
        path: AnyPath,
        layer: AnyPath,
        order: np.ndarray,
        tile_bytes: int,
        digest: int | None,
        *,
        compress: str | None = None,
    ) -> None:
        self.source, self.path = source, path
        index_bytes = 16 * order.size + 4
        sums_bytes = 0 if digest is None else 4 * order.size + 4
        self.data_bytes = source.size - index_bytes - sums_bytes
        tail = source.tail(sums_bytes + index_bytes)
        if len(tail) < index_bytes:
            raise StoreError(f"{path}: truncated: no room for its index; convert it again")
        raw = unseal(tail[-index_bytes:])
        if raw is None:
            raise StoreError(f"{path}: corrupt shard index (crc32c differs); convert it again")
        self.sums, self.digest = None, 0
        if digest is not None:
            sums = unseal(tail[:-index_bytes])
            if self.data_bytes < 0 or sums is None:
                raise StoreError(
                    f"{path}: its checksums are damaged, or it was written by another program; "
                    f"{again(layer)}"
                )
            self.sums = np.frombuffer(sums, "<u4")[order]
            self.digest = block_digest(sums, raw)
            if digest not in (ANY_DIGEST, self.digest):
                raise StoreError(
                    f"{path}: is not the recorded block (an older copy?); {again(layer)}"
                )
        if self.data_bytes < 0:
            raise StoreError(f"{path}: truncated: no room for its index; convert it again")
        pairs = np.frombuffer(raw, "<u8").reshape(-1, 2)[order]
        absent = pairs[:, 0] == MISSING
        ends = pairs.sum(axis=1)
        sane = (ends >= pairs[:, 0]) & (ends <= self.data_bytes)
        if not compress:
            sane &= pairs[:, 1] == tile_bytes
        if not (sane | absent).all():
            raise StoreError(
                f"{path}: corrupt shard index (a tile lies outside the file); convert it again"
            )
        longest = pairs[~absent, 1].max(initial=0)
        if compress and longest > most_bytes(tile_bytes):
            raise StoreError(
                f"{path}: a tile takes {longest} bytes, too many for {tile_bytes} bytes of cells; "
                "copy or convert the layer again"
            )
        self.offsets = np.where(absent, np.uint64(0), pairs[:, 0]).astype(np.int64)
        self.offsets[absent] = ABSENT
        self.lengths = pairs[:, 1].astype(np.int64)

    def map(self) -> np.ndarray:
        """The bytes of tiles; if they are in a file, memory-mapped and read-only."""
        return self.source.map()[: self.data_bytes]

    def read(self, buffer: np.ndarray) -> np.ndarray:
        """The bytes of tiles, read into `buffer`."""
        return self.source.read(buffer)

    def tiles(self, ranks: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the bytes of some tiles, which must be present."""
        return self.source.parts(self.offsets[ranks], self.lengths[ranks])

    def batches(
        self, ranks: np.ndarray, buffer: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Read the bytes of some tiles, which must be present, in few pieces.

        Parameters
        ----------
        buffer
            Buffer of bytes, at least as long as the longest tile.

        Yields
        ------
        some, data, starts, lengths
            Positions in `ranks`; bytes; starts and lengths in them of the tiles at these positions.
        """
        order = np.argsort(self.offsets[ranks], kind="stable")
        starts, lengths = self.offsets[ranks[order]], self.lengths[ranks[order]]
        ends = np.maximum.accumulate(starts + lengths)
        breaks = 1 + np.flatnonzero(starts[1:] - ends[:-1] > GAP)
        first = 0
        while first < order.size:
            last = np.searchsorted(ends, starts[first] + buffer.size, "right")
            following = breaks[np.searchsorted(breaks, first, "right") :][:1]
            last = int(min((last, *following)))
            start = int(starts[first])
            data = self.source.near(start, buffer[: ends[last - 1] - start])
            yield order[first:last], data, starts[first:last] - start, lengths[first:last]
            first = last
