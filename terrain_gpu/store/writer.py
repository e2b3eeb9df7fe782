"""A layer being written: blocks committed one by one, the layer at the end."""

from __future__ import annotations

import errno
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import cells
from ..errors import InputError, StoreError
from ..facts import Findings, JsonObject
from ..grid import TILE, Block, ceil_div
from ..plurals import counted
from .checksums import block_digest, crc_of_tiles, layer_digest, seal, sealed_line, unsealed_line
from .codecs import code_tiles
from .coding import most_bytes
from .files import new_file, output_error, output_errors, remove_file, settle, write_parts
from .layer import KEY, Layer, Number
from .outputs import add_complete
from .shard import ANY_DIGESTS, MISSING
from .tiles import split_bits, untile, z_view

if TYPE_CHECKING:
    from .bucket import BucketTarget, LentShards, ObjectShards
    from .run import Target


SMALL = 1 << 17
"""Smaller shards are synced together at the end: a raster of one row may have thousands."""


class FileShards(NamedTuple):
    """Writes shards through a folder for temporary files.

    Attributes
    ----------
    suffix
        Suffix of temporary names, different for each of several writers.
    """

    temporary: Path
    suffix: str = ""

    def own(self, name: str) -> Path:
        """The temporary name of a shard."""
        return self.temporary / f"{name}{self.suffix}"

    def put(self, path: Path, name: str, parts: list[Any], size: int) -> tuple[()]:
        """Write a shard, or delete it if it has no parts."""
        temporary = self.own(name)
        if parts:
            with new_file(path, temporary, sync=size >= SMALL, buffered=False) as file:
                write_parts(file, parts)
        else:
            remove_file(path, temporary)
        return ()


class Record(NamedTuple):
    """The record of a finished block in the manifest.

    Attributes
    ----------
    tag
        E-tag of the object, in object storage.
    """

    at: Block
    size: int
    valid: int
    low: Number | None
    high: Number | None
    digest: int
    tag: str = ""

    @classmethod
    def read(cls, line: bytes) -> Record | None:
        """Parse a line; None if the line is incomplete."""
        if not (value := unsealed_line(line)):
            return None
        i, j, size, valid, low, high, digest, *tag = value
        span = cells.from_json(low), cells.from_json(high)
        return cls((i, j), size, valid, *span, int(digest, 16), *tag)


class BlockWriter(Layer):
    """Writes blocks of a layer: each under a temporary name, renamed when complete.

    It can be pickled and used by any process that can open the store. Its blocks are part of the
    layer once the `LayerWriter` that lent it has received the `lines` that record them. After the
    temporary folder is removed, writing fails, so a process that was given up cannot write late.

    Attributes
    ----------
    lines
        Records of the blocks written so far.
    """

    def __init__(self, layer: Layer, shards: FileShards | ObjectShards | LentShards) -> None:
        super().__init__(*layer._facts())
        self._shards = shards
        self._saves: dict[tuple[int, ...], Any] = {}
        self.lines: list[bytes] = []

    def __reduce__(self) -> tuple[object, ...]:
        return _lent, (*self._facts(), self._shards)

    def write_block(self, i: int, j: int, data: np.ndarray) -> int:
        """Write block (i, j): temporary file, fsync (small shards later), rename, record.

        A block whose cells are all fill has no file.

        Parameters
        ----------
        data
            The cells of `block_window(i, j)`, in exactly this layer's dtype.

        Returns
        -------
        int
            Number of bytes written.

        Raises
        ------
        InputError
            when shape or dtype is wrong: nothing is cast silently.
        OutputError
            when the disk is full or the folder is not writable.
        """
        r0, r1, c0, c1 = self._window(i, j)
        if data.shape != (r1 - r0, c1 - c0) or data.dtype != self.dtype:
            raise InputError(
                f"block ({i}, {j}) is {r1 - r0} x {c1 - c0} {self.dtype}, "
                f"not {data.shape} {data.dtype}"
            )
        return self._save(i, j, np.ascontiguousarray(data), lambda: self._tiled(data))

    def write_tiles(self, i: int, j: int, tiles: np.ndarray) -> int:
        """Like `write_block`, with all tiles of a block in Z-order, shape (tiles, 64, 64).

        Cells outside the raster are ignored.
        """
        r0, r1, c0, c1 = self._window(i, j)
        if tiles.shape != (self._ranks.size, TILE, TILE) or tiles.dtype != self.dtype:
            raise InputError(
                f"block ({i}, {j}) has {counted(self._ranks.size, 'tile')} of {self.dtype}, "
                f"not {tiles.shape} {tiles.dtype}"
            )
        if (r1 - r0, c1 - c0) != (self.block_size, self.block_size):
            return self.write_block(i, j, untile(tiles)[: r1 - r0, : c1 - c0])
        tiles = np.ascontiguousarray(tiles)
        ranks = np.arange(len(tiles))
        return self._save(i, j, tiles.reshape(-1, TILE), lambda: (tiles, ranks))

    def _save(
        self, i: int, j: int, data: np.ndarray, tiled: Callable[[], tuple[np.ndarray, np.ndarray]]
    ) -> int:
        """Write a shard, and record it.

        Parameters
        ----------
        data
            The block, or its tiles stacked vertically; C-contiguous.
        tiled
            Returns tiles in Z-order and their ranks.
        """
        tag: tuple[str, ...] = ()
        if (saved := self._saved_at_once(i, j, data)) is not None:
            size, digest, stats = saved
        else:
            stats = cells.stats(data, self.nodata)
            parts, digest = self._shard_of(*tiled())
            size = sum(memoryview(part).nbytes for part in parts)
            tag = self._shards.put(self.shard_path(i, j), f"{i}-{j}", parts, size)
        low, high = cells.to_json(stats.low), cells.to_json(stats.high)
        self.record(sealed_line((i, j, size, stats.valid, low, high, f"{digest:016x}", *tag)))
        return size

    def _saved_at_once(self, i: int, j: int, data: np.ndarray) -> Any:
        """Write a shard in one call; return size, digest and `Stats`, or None if impossible."""
        if not isinstance(self._shards, FileShards):
            return None
        if (kernels := saves_at_once(self.compress)) is None:
            return None
        if (cuts := self._saves.get(data.shape)) is None:
            self._saves[data.shape] = cuts = kernels.TileCuts.of(data.shape, self._order, self.fill)
        # As `shard_path` and `own` have them; making a `Path` takes longer than all other names.
        path = self.separator.join((f"{self.path}/c", str(i), str(j)))
        temporary = f"{self._shards.temporary}/{i}-{j}{self._shards.suffix}"
        saved = kernels.write_shard(
            path, temporary, data, cuts, self.compress, SMALL, self._scratch
        )
        if saved.state == kernels.WRITTEN:
            settle(Path(temporary), Path(path))
        elif saved.state == kernels.EMPTY:
            remove_file(Path(path), Path(temporary))
        elif saved.state != kernels.SAVED:
            return None
        return saved.size, saved.digest, kernels.stats(data, self.nodata, saved.ends)

    def record(self, line: bytes) -> None:
        """Store the record of a written block, for the process that lent this writer."""
        self.lines.append(line)

    def patch_block(self, i: int, j: int, row: np.ndarray, col: np.ndarray, bits: Any) -> None:
        """Set bits in cells of a finished block; may be repeated.

        The block is written again, so it is complete, with its checksums, at any moment.

        Parameters
        ----------
        row, col
            Cells within the block; int64, of the same shape.
        bits
            Bits to set in each cell, in this layer's integer dtype.
        """
        data = self.read_block(i, j)
        np.bitwise_or.at(data, (row, col), bits)
        self.write_block(i, j, data)

    def _recorded(self) -> np.ndarray | None:
        # Threads may be rewriting a block, so it can only be compared with its own checksums.
        return ANY_DIGESTS

    def _tiled(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tiles of a block that have cells, in Z-order, and their ranks.

        Used for buckets, and where a shard cannot be written in one call.
        """
        if data.shape == (self.block_size, self.block_size):
            whole = self._room(self._ranks.size)[1].view(self.dtype).reshape(-1, TILE, TILE)
            np.copyto(z_view(whole), split_bits(data))
            return whole, np.arange(self._ranks.size)
        # At the edge of the raster, only tiles with cells; in a raster of one row these are few.
        down, across = (ceil_div(n, TILE) for n in data.shape)
        ranks = self._ranks[:down, :across].ravel()
        room = self._room(ranks.size)[1].view(self.dtype)
        tiles = room.reshape(down, across, TILE, TILE)
        tiles[...] = self.fill
        for k in range(down):
            rows = data[k * TILE : (k + 1) * TILE]
            for m in range(across):
                part = rows[:, m * TILE : (m + 1) * TILE]
                tiles[k, m, : part.shape[0], : part.shape[1]] = part
        order = np.argsort(ranks)
        return tiles.reshape(-1, TILE, TILE)[order], ranks[order]

    def _shard_of(self, tiles: np.ndarray, ranks: np.ndarray) -> tuple[list[Any], int]:
        """Encode tiles in Z-order, with these ranks, as a shard: tiles, checksums, index."""
        present = np.flatnonzero(~self._all_fill(tiles))
        if not present.size:
            return [], 0
        index = np.full((self._ranks.size, 2), MISSING, "<u8")
        sums = np.zeros(self._ranks.size, "<u4")
        places = self._order[ranks[present]]
        if self.compress:
            coded, lengths, sums[places] = self._coded(tiles, present)
            body: list[Any] = [coded]
        else:
            body = [tiles if present.size == len(tiles) else tiles[present]]
            lengths = np.full(present.size, self._tile_bytes)
            sums[places] = crc_of_tiles(tiles, present)
        index[places, 0] = np.cumsum(lengths) - lengths
        index[places, 1] = lengths
        tail = sums.tobytes(), index.tobytes()
        return [*body, *map(seal, tail)], block_digest(*tail)

    def _room(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """A byte buffer of this thread for `count` encoded tiles, and its end for the tiles."""
        most = most_bytes(self._tile_bytes) if self.compress else self._tile_bytes
        room = self._scratch(count * most)
        return room, room[count * (most - self._tile_bytes) :]

    def _coded(self, tiles: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, ...]:
        """Encode tiles; return the bytes of all of them, and the length and CRC-32C of each.

        Tiles in this thread's buffer are overwritten: encoded bytes never reach the next tile.
        """
        room = self._room(len(tiles))[0]
        lengths, sums = code_tiles(str(self.compress), tiles, present, room)
        return room[: lengths.sum()], lengths, sums

    def _all_fill(self, tiles: np.ndarray) -> np.ndarray:
        """Mask of the tiles that contain only the fill value, compared bit by bit."""
        word = f"<u{self.dtype.itemsize}"
        bits = tiles.view(word).reshape(len(tiles), -1)
        fill = self.fill.view(word)
        empty = (bits[:, 0] == fill) & (bits[:, -1] == fill)
        rest = np.flatnonzero(empty)
        for some in np.split(rest, range(64, len(rest), 64)):  # a copy of a few tiles at a time
            empty[some] = (bits[some] == fill).all(axis=1)
        return empty


def _lent(*facts: Any) -> BlockWriter:
    """A writer in another process. Two such writers may write the same block at the same time."""
    *layer, shards = facts
    return BlockWriter(Layer(*layer), shards._replace(suffix=f"-{uuid.uuid4().hex}"))


class WrittenBlocks(Layer):
    """The blocks of a layer that a `LayerWriter` is writing, for reading in another process."""

    def _recorded(self) -> np.ndarray | None:
        return ANY_DIGESTS


class LayerWriter(BlockWriter):
    """A layer being written, in its own folder until `commit` moves it into place.

    Blocks may be written from any thread or forked process, but each block only by one at a time.
    Every block is committed by a rename and recorded in the manifest of the run, so a killed run
    can be resumed. Finished blocks can be read (`read_block`). Use it as a context manager: without
    `commit`, finished blocks are kept for ``resume=True``; if there are none, the folder is
    removed.
    """

    def __init__(self, target: Target | BucketTarget, layer: Layer, *, finished: bool) -> None:
        super().__init__(layer, target.shards)
        self._target = target
        self.keep = True
        """Whether finished blocks are kept for a later run if this one ends without `commit`."""
        self.spilled = False
        """Whether `spill` holds data to resume from, even if no block is finished."""
        self.finished = finished
        """Whether a resumed run found its result already complete."""
        self.done = np.zeros(self.blocks.shape, bool)
        """Blocks that the resumed run had finished."""
        self._log = -1
        if finished:
            self.done[...] = True
            return
        self._log = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)
        # Terminates a last line that is incomplete after a kill or on a full disk.
        os.write(self._log, b"\n")
        for record in self._records(checked=True):
            self.done[record.at] = True

    def __reduce__(self) -> tuple[object, ...]:
        return WrittenBlocks, self._facts()

    def __enter__(self) -> LayerWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.finished:
            return
        try:
            self._close()
        finally:
            complete = self._target.complete
            self._target.release(keep=complete or (self.keep and self._worth_keeping()))

    def _close(self) -> None:
        """Close the manifest, only once: another thread may get a file with this descriptor."""
        if self._log >= 0:
            log, self._log = self._log, -1
            os.close(log)

    def record(self, line: bytes) -> None:
        """Record a block as written with a line in the manifest."""
        try:
            # One small O_APPEND write: concurrent writers need no lock.
            if os.write(self._log, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise output_error(self._target.manifest, error) from error
        self._target.recorded(line)

    def lent(self, temporary: Path) -> BlockWriter:
        """A writer for other processes, with its own temporary folder."""
        return BlockWriter(self, self._target.shards_by(temporary))

    @property
    def spill(self) -> Path:
        """A folder for further data of the run; removed at the end of the run."""
        return self._target.spill

    def errors(self) -> AbstractContextManager[None]:
        """Turn an `OSError` in the body into an `OutputError`."""
        return output_errors(self.spill)

    def _recorded(self) -> np.ndarray | None:
        return Layer._recorded(self) if self.finished else super()._recorded()

    def _worth_keeping(self) -> bool:
        try:
            return self.spilled or self.any_written()
        except StoreError:  # the server no longer responds
            return True

    def any_written(self) -> bool:
        """Whether there is a finished block, from this run or the one it resumed."""
        return any(True for _ in self._records())

    def commit(self, attributes: JsonObject | None = None) -> Layer:
        """Move the finished layer into place, replacing any older one, and return it opened.

        Parameters
        ----------
        attributes
            Attributes to add to this package's own ones (sources, settings).

        Raises
        ------
        StoreError
            when blocks are missing.
        """
        with output_errors(self._target.root):
            if not self.finished:
                self._complete(attributes or {})
            layer = self._target.publish(finished=self.finished)
        self._close()
        self.finished = True
        add_complete(str(layer.path))
        return layer

    def ranges(self) -> Iterator[tuple[tuple[int, int], Any, Any]]:
        """Yield the finished blocks that have valid cells, with the range of these cells."""
        for record in self._records():
            if record.low is not None and record.high is not None:
                yield record.at, record.low, record.high

    def statistics(self) -> Findings:
        """Statistics of the finished blocks, as `commit` records them."""
        return self._tally()[2]

    def _tally(self) -> tuple[np.ndarray, np.ndarray, JsonObject]:
        """Sizes in bytes and digests of all blocks, and statistics."""
        shape = self.blocks.shape
        seen = np.zeros(shape, bool)
        size, valid = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        low, high = np.zeros(shape, self.dtype), np.zeros(shape, self.dtype)
        digests = np.zeros(shape, np.uint64)
        # If a killed run wrote a block twice, its line may be newer than the file.
        for record in self._records(checked=bool(self.done.any())):
            block = record.at
            seen[block], size[block], valid[block] = True, record.size, record.valid
            digests[block] = record.digest
            if record.low is not None and record.high is not None:
                low[block], high[block] = record.low, record.high
        if not seen.all():
            missing = counted((~seen).sum(), "block was", "blocks were")
            raise StoreError(f"{self.path}: {missing} never written")
        some = valid > 0
        return (
            size,
            digests,
            {
                "valid_cells": int(valid.sum()),
                "min": low[some].min().item() if some.any() else None,
                "max": high[some].max().item() if some.any() else None,
            },
        )

    def _complete(self, attributes: JsonObject) -> None:
        size, digests, statistics = self._tally()
        records = {
            **self.info,
            **attributes,
            **statistics,
            "stored_bytes": int(size.sum()),
            "digest": layer_digest(self.facts, digests),
        }
        self.attributes[KEY] = records
        self._target.complete_layer(self, size, digests)

    def _records(self, *, checked: bool = False) -> Iterator[Record]:
        """Yield the records of blocks whose shards exist, in the order of the manifest.

        Parameters
        ----------
        checked
            Whether to read the checksums of every shard, because another run wrote it.
        """
        down, across = self.blocks.shape
        is_there = self._target.look(self, checked=checked)
        with open(self._target.manifest, "rb") as lines:
            next(lines, None)
            for line in lines:
                # A killed run may leave the last line incomplete; its block is written again.
                if (record := Record.read(line)) is None:
                    continue
                i, j = record.at
                if i in range(down) and j in range(across) and is_there(record):
                    yield record


def saves_at_once(compress: str | None) -> Any:
    """The module `save_kernel`, which writes a shard in one call; None where it cannot be used.

    It needs numba, which takes longer to import than most layers to write, so it is used only if
    numba is loaded.
    """
    if "numba" not in sys.modules:
        return None
    from . import save_kernel

    return save_kernel if save_kernel.can(compress) else None
