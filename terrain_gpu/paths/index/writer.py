"""Write a distance index: `IndexWriter`, the counterpart of `LayerWriter`."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import google_crc32c
import numpy as np

from ...errors import StoreError
from ...grid import Block, BlockGrid
from ...store.checksums import sealed_line, unsealed_line
from ...store.files import new_file, output_errors, sync_tree
from ...store.metadata import TileStore, drop_consolidated
from ...store.run import Target
from ...store.swap import beside, exclusive, is_locked, swap
from .files import FORMAT, NAME, Index

if TYPE_CHECKING:
    from .problem import DistanceIndex


@dataclass(frozen=True)
class OutputIndex:
    """The index as the output of an operation."""

    name: str = NAME
    attributes: ClassVar[Mapping[str, Any]] = {}

    def refuse(self, operation: DistanceIndex, *, overwrite: bool) -> None:
        """Do nothing here: `open` refuses an index for other costs."""

    def open(self, operation: DistanceIndex, *, resume: bool, overwrite: bool) -> IndexWriter:
        """Begin or continue the index, or find it complete."""
        store, settings = TileStore.open(operation.store), operation.fingerprint()
        target = Target(store.path, self.name, replace_store=False)
        with output_errors(store.path), exclusive(store.path):
            if is_locked(target.manifest):
                raise StoreError(f"{store.path}: another run is building the distance index")
            there = None if overwrite else Index.open(store, operation.blocks)
            if there is not None:
                if different := there.difference(settings):
                    raise StoreError(
                        f"{there.path}: is for other costs: {different}; --overwrite replaces it"
                    )
                if not resume:
                    raise StoreError(f"{there.path}: exists; --overwrite replaces it")
                return IndexWriter(target, there, finished=True)
            index = operation.new_index(target.work)
            header = json.loads(json.dumps({"format": FORMAT, **index.own}))
            if not resume or target.header() != header:
                target.begin(store.grid, header)
            target.lock()
            index.write_metadata(header)
        return IndexWriter(target, index, finished=False)


class EntryWriter:
    """Writes the files of blocks. Like `store.writer.BlockWriter`, it can be sent to processes.

    Attributes
    ----------
    lines
        Records of blocks written so far.
    """

    def __init__(self, index: Index, temporary: Path, suffix: str = "") -> None:
        self.index, self._temporary, self._suffix = index, temporary, suffix
        self.lines: list[bytes] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _lent, (self.index.path, self.index.blocks, self.index.own, self._temporary)

    def write_block(self, i: int, j: int, rows: Iterable[np.ndarray]) -> None:
        """Write the entries of a block, given by rows of tiles."""
        own = self._temporary / f"{i}-{j}{self._suffix}"
        with new_file(self.index.file((i, j)), own) as file:
            crc, written = 0, 0
            for row in rows:
                data = row.tobytes()
                crc = google_crc32c.extend(crc, data)
                written += file.write(data)
            # A block at the edge of the raster has fewer tiles; the rest of its chunk is not used.
            rest = self.index.file_bytes - 4 - written
            crc = google_crc32c.extend(crc, bytes(rest)) if rest else crc
            file.seek(rest, os.SEEK_CUR)
            file.write(crc.to_bytes(4, "little"))
        self.record(sealed_line((i, j)))

    def record(self, line: bytes) -> None:
        """Keep the record of a written block; the process that lent this writer collects it."""
        self.lines.append(line)


def _lent(path: Path, blocks: BlockGrid, own: Mapping[str, Any], temporary: Path) -> EntryWriter:
    """A writer in another process. Two of them may write the same block at the same time."""
    return EntryWriter(Index(path, blocks, own), temporary, f"-{uuid.uuid4().hex}")


class IndexWriter(EntryWriter):
    """An index that is written in a folder of its own until `commit` moves it into place.

    Without `commit`, finished blocks are kept for a later run.
    """

    def __init__(self, target: Target, index: Index, *, finished: bool) -> None:
        super().__init__(index, target.temporary)
        self._target, self.finished, self.keep = target, finished, True
        self.spill, self.block_size = target.spill, index.blocks.block
        self.info = {"bytes": index.bytes}
        self.done = np.full(index.blocks.shape, finished)
        if finished:
            return
        target.temporary.mkdir(exist_ok=True)
        self._log = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)
        os.write(self._log, b"\n")  # ends a line that a killed run left incomplete
        for at in self._records():
            self.done[at] = True

    def _records(self) -> Iterator[Block]:
        """Blocks that an earlier run finished."""
        with open(self._target.manifest, "rb") as lines:
            next(lines, None)
            for line in lines:
                # A killed run may leave the last line incomplete; its block is done again.
                if not (at := unsealed_line(line)):
                    continue
                with contextlib.suppress(StoreError):
                    self.index.read(tuple(at))
                    yield tuple(at)
        self.index.close()

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.finished:
            os.close(self._log)
            self._target.release(keep=self.keep)

    def errors(self) -> AbstractContextManager[None]:
        """Turn an `OSError` in the body into an `OutputError`."""
        return output_errors(self._target.manifest)

    def record(self, line: bytes) -> None:
        with self.errors():
            if os.write(self._log, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def lent(self, folder: Path) -> EntryWriter:
        """A writer for other processes, with `folder` for its temporary files."""
        return EntryWriter(self.index, folder)

    def commit(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Move the index into place; it replaces any older one."""
        if self.finished:
            return
        target, root = self._target, self._target.root
        stored = self.index.blocks.count * self.index.file_bytes
        with output_errors(root), exclusive(root):
            own = {"format": FORMAT, **self.index.own, "stored_bytes": stored}
            self.index.write_metadata(own)
            sync_tree(target.work)
            swap(target.work, target.place, beside(target.work, "replaced"))
            drop_consolidated(target.base)
            target.clear()
