"""A shard file open for reading: its index, its checksums, the bytes of its tiles."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from ..errors import StoreError
from .checksums import block_digest, unseal

ABSENT = -1
MISSING = np.uint64(2**64 - 1)
ANY_DIGEST = -1


def again(layer: Path) -> str:
    """What to do about a layer whose files are not those that were written."""
    return (
        "copy or convert the layer again, or take it as it is: "
        f"terrain-gpu verify {layer.parent} --accept-changes {layer.name}"
    )


class Shard:
    """An open shard file and its index, checked.

    Parameters
    ----------
    order
        Place in the index of every rank.
    tile_bytes
        Size of a tile, 0 when it may be any.
    digest
        What is recorded of the block: `ANY_DIGEST` for one being written, None when nothing is,
        and tiles have no checksums.

    Attributes
    ----------
    offsets, lengths
        Of each rank, int64; `ABSENT` for a tile that is all fill.
    sums
        CRC-32C of each rank's bytes, uint32, or None.
    digest
        Of the content.
    """

    def __init__(
        self, fd: int, path: Path, order: np.ndarray, tile_bytes: int, digest: int | None
    ) -> None:
        self.fd, self.path = fd, path
        index_bytes = 16 * order.size + 4
        sums_bytes = 0 if digest is None else 4 * order.size + 4
        self.data_bytes = os.fstat(fd).st_size - index_bytes - sums_bytes
        tail = os.pread(fd, sums_bytes + index_bytes, max(self.data_bytes, 0))
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
                    f"{path}: its checksums are damaged, or another program wrote it; "
                    f"{again(path.parents[2])}"
                )
            self.sums = np.frombuffer(sums, "<u4")[order]
            self.digest = block_digest(sums, raw)
            if digest not in (ANY_DIGEST, self.digest):
                raise StoreError(
                    f"{path}: not the block that was recorded (a layer replaced since it was "
                    f"opened, or an older copy); open it again, or {again(path.parents[2])}"
                )
        if self.data_bytes < 0:
            raise StoreError(f"{path}: truncated: no room for its index; convert it again")
        pairs = np.frombuffer(raw, "<u8").reshape(-1, 2)[order]
        absent = pairs[:, 0] == MISSING
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
