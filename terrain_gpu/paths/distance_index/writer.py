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

import numpy as np

from ...errors import StoreError
from ...facts import JsonObject
from ...grid import Block, BlockGrid, GridSpec
from ...store.checksums import crc32c, seal, sealed_line, unsealed_line
from ...store.files import new_file, output_errors, sync_tree
from ...store.metadata import TileStore, drop_consolidated, write_json
from ...store.objects import ObjectPath
from ...store.run import Target
from ...store.shard import MISSING
from ...store.swap import beside, exclusive, swap
from ...store.writer import FileShards
from .files import FORMAT, NAME, Index

if TYPE_CHECKING:
    from ...store.bucket import LentShards, ObjectShards
    from .bucket import IndexBucket
    from .operation import DistanceIndex


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
        target = self._target(store.path)
        with output_errors(store.path), _exclusive(store.path):
            if target.is_busy():
                raise StoreError(
                    f"{store.path}: another run is building the distance index; wait until it ends"
                )
            there = None if overwrite else Index.open(store, operation.blocks)
            if there is not None:
                if different := there.difference(settings):
                    raise StoreError(
                        f"{there.path}: was built for other costs: {different}; --overwrite "
                        "replaces it"
                    )
                if not resume:
                    raise StoreError(f"{there.path}: exists; --overwrite replaces it")
                return IndexWriter(target, there, finished=True)
            index = operation.new_index(target.place)
            header = json.loads(json.dumps({"format": FORMAT, **index.own}))
            resumed = target.header() == header and resume
            target.claim_index(index, header, store.grid, resumed=resumed)
        return IndexWriter(target, index, finished=False)

    def _target(self, root: Any) -> IndexFolder | IndexBucket:
        """Where an index is built; completes a build that was killed during its commit."""
        if not isinstance(root, ObjectPath):
            return IndexFolder(root, self.name, replace_store=False)
        from .bucket import IndexBucket

        target = IndexBucket(root, self.name)
        target.recover()
        return target


def _exclusive(root: Any) -> AbstractContextManager[None]:
    """`exclusive`, except in object storage, which has no locks."""
    return contextlib.nullcontext() if isinstance(root, ObjectPath) else exclusive(root)


class IndexFolder(Target):
    """The folders in which an index is built."""

    def claim_index(
        self, index: Index, header: JsonObject, grid: GridSpec, *, resumed: bool
    ) -> None:
        """Begin or resume the build, as its only writer."""
        index.path = self.work
        if not resumed:
            self.begin(grid, header)
        self.lock()
        self.temporary.mkdir(exist_ok=True)
        write_json(index.path, index.metadata(header), self.temporary)

    def written(self, index: Index) -> Iterator[Block]:
        """Yield the blocks that an earlier run finished."""
        with open(self.manifest, "rb") as lines:
            next(lines, None)
            for line in lines:
                # A killed run may leave the last line incomplete; its block is done again.
                if (at := unsealed_line(line)) and index.holds(at[0], at[1], 0, small=False):
                    yield at[0], at[1]

    def stored_bytes(self, index: Index) -> int:
        """Total size of the files."""
        return sum(os.stat(index.file(at)).st_size for at in index.blocks.ids())

    def publish_index(self, index: Index, own: JsonObject) -> None:
        """Move the index into place; it replaces any older one."""
        with exclusive(self.root):
            write_json(index.path, index.metadata(own), self.temporary)
            sync_tree(self.work)
            swap(self.work, self.place, beside(self.work, "replaced"))
            drop_consolidated(self.base)
            self.clear()


class EntryWriter:
    """Writes the files of blocks; can be sent to other processes, as `store.writer.BlockWriter`.

    Attributes
    ----------
    lines
        Records of blocks written so far.
    """

    def __init__(self, index: Index, shards: FileShards | ObjectShards | LentShards) -> None:
        self.index, self._shards = index, shards
        self.lines: list[bytes] = []

    def __reduce__(self) -> tuple[object, ...]:
        index = self.index
        return _lent, (index.path, index.blocks, index.own, index.separator, self._shards)

    def write_block(self, i: int, j: int, rows: Iterable[list[bytes]]) -> None:
        """Write the packed tiles of a block, given by rows; then the squares of each level."""
        path = self.index.file((i, j))
        write = self._to_object if isinstance(path, ObjectPath) else self._to_file
        self.record(sealed_line(write(path, (i, j), self._parts((i, j), rows))))

    def _parts(self, at: Block, rows: Iterable[list[bytes]]) -> Iterator[bytes]:
        """Yield the parts of a file: the squares with their checksums, and where each lies."""
        rows, end, tables = iter(rows), 0, []
        for level in range(self.index.levels + 1):
            places = np.full((*self.index.chunk(level), 2), MISSING, "<u8")
            tables.append(places)
            for row in range(self.index.tiles(at, level)[0]):
                for col, tile in enumerate(next(rows)):
                    part = seal(tile)
                    places[row, col] = end, len(part)
                    end += len(part)
                    yield part
        if len(tables) > 1:
            yield seal(b"".join(places.tobytes() for places in tables[1:]))
        yield seal(tables[0].tobytes())

    def _to_file(self, path: Path, at: Block, parts: Iterable[bytes]) -> tuple[int, int, int]:
        """Write a file; return its record in the manifest."""
        shards: Any = self._shards
        with new_file(path, shards.temporary / f"{at[0]}-{at[1]}{shards.suffix}") as file:
            return *at, sum(map(file.write, parts))

    def _to_object(self, path: Any, at: Block, parts: Iterable[bytes]) -> tuple[Any, ...]:
        """Write an object with one request, so that the write can be conditional."""
        data = b"".join(parts)
        shards: Any = self._shards
        return (*at, len(data), 0, None, None, f"{crc32c(data):016x}",
                *shards.put_whole(path, data))  # fmt: skip

    def record(self, line: bytes) -> None:
        """Keep the record of a written block; the process that lent this writer collects it."""
        self.lines.append(line)


def _lent(
    path: Path, blocks: BlockGrid, own: JsonObject, separator: str, shards: Any
) -> EntryWriter:
    """A writer in another process. Two of them may write the same block at the same time."""
    index = Index(path, blocks, own, separator)
    return EntryWriter(index, shards._replace(suffix=f"-{uuid.uuid4().hex}"))


class IndexWriter(EntryWriter):
    """An index that is being written; it appears under its name with `commit`.

    Without `commit`, finished blocks are kept for a later run.
    """

    def __init__(self, target: IndexFolder | IndexBucket, index: Index, *, finished: bool) -> None:
        super().__init__(index, target.shards)
        self._target, self.finished, self.keep = target, finished, True
        self.block_size, self.info = index.blocks.block, {"bytes": index.bytes}
        self.done = np.full(index.blocks.shape, finished)
        if finished:
            return
        self._log = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)
        os.write(self._log, b"\n")  # ends a line that a killed run left incomplete
        for at in target.written(index):
            self.done[at] = True
        index.close()

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.finished:
            os.close(self._log)
            self._target.release(keep=self.keep)

    @property
    def spill(self) -> Path:
        """A folder for data that the run keeps beside the index; removed at the end of the run."""
        return self._target.spill

    @property
    def stored_bytes(self) -> int:
        """Total size of the files, once all are written."""
        return self._target.stored_bytes(self.index)

    def errors(self) -> AbstractContextManager[None]:
        """Turn an `OSError` in the body into an `OutputError`."""
        return output_errors(self._target.manifest)

    def record(self, line: bytes) -> None:
        with self.errors():
            if os.write(self._log, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._target.recorded(line)

    def lent(self, folder: Path) -> EntryWriter:
        """A writer for other processes, with `folder` for its temporary files."""
        return EntryWriter(self.index, self._target.shards_by(folder))

    def commit(self, attributes: JsonObject | None = None) -> None:
        """Make the index visible; it replaces any older one."""
        if self.finished:
            return
        with output_errors(self._target.root):
            own = {"format": FORMAT, **self.index.own, "stored_bytes": self.stored_bytes}
            self._target.publish_index(self.index, own)
