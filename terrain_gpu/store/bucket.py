"""Runs that build a layer in object storage.

A run owns the object ``.incomplete/NAME/run.json``. It writes this object only on the condition
that it has not changed since, so one of two writers gets an error. Shards are written under their
final names, each with a small object that records it for a run that resumes. The layer appears, or
changes, with one conditional write of its zarr.json. The shards of its next version have different
names: ``c.0.0`` after ``c/0/0``, and vice versa. Zarr supports both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..errors import OutputError, StoreError
from ..facts import JsonObject
from ..grid import Block, BlockGrid, GridSpec
from .checksums import digests_name
from .coordinates import group_files
from .layer import KEY, Layer
from .metadata import TileStore, array_json, without_consolidated
from .objects import AnyPath, ObjectPath, for_each, uploads
from .removal import drop_overviews
from .scratch import Scratch
from .writer import Record

SHARDS = {"/": re.compile(r"c/(\d+)/(\d+)(?:/0)?"), ".": re.compile(r"c\.(\d+)\.(\d+)(?:\.0)?")}
"""Patterns of shard names, by the separator of a version; a distance index has three axes."""

ROUNDS = 16
"""Number of attempts to replace a shard that changes meanwhile or cannot be replaced."""


def make_group(root: ObjectPath, grid: GridSpec) -> None:
    """Create a store if it does not exist."""
    files = group_files(grid)
    name, data = next(files)
    if not (root / name).exists():
        (root / name).create(data)
    if TileStore.open(root).grid != grid:
        raise StoreError(
            f"{root}: was created with a different grid while this run was building it; "
            "choose another store"
        )
    if not (root / "spatial_ref" / "zarr.json").exists():  # which is written last
        for name, data in files:
            (root / name).write(data)


class Sharded(Protocol):
    """An array that a run builds: `Layer`, or a distance index."""

    blocks: BlockGrid
    separator: str

    def holds(self, i: int, j: int, digest: int, *, small: bool) -> bool: ...


class _Claim(NamedTuple):
    """The content of run.json.

    Attributes
    ----------
    id
        Id of the run; it stays the same when the run is resumed.
    writer
        Id of the process that owns the run.
    header
        The settings that the layer depends on.
    separator
        Separator in the names of its shards.
    replaces
        E-tag of the zarr.json that will be replaced; empty if there is none.
    complete
        Whether everything except zarr.json is written; any process may then write that.
    """

    id: str
    writer: str
    header: JsonObject
    separator: str
    replaces: str
    complete: bool = False


class LentShards(NamedTuple):
    """Writes shards from another process, as long as a temporary folder exists."""

    temporary: Path
    suffix: str = ""

    def put(self, path: AnyPath, name: str, parts: list[Any], size: int) -> tuple[str]:
        """Write a shard, or delete it if it has no parts."""
        with uploads.bytes(size):
            return self.put_whole(path, b"".join(parts) if parts else None)

    def put_whole(self, path: AnyPath, data: Any) -> tuple[str]:
        """Write a shard that is in memory, or delete it if there are no data."""
        if not self.temporary.is_dir():
            raise OutputError(f"{path}: cannot be written: the run has given up this worker")
        if data is None:
            path.delete()
        else:
            path.write(data)
        return ("",)  # no e-tag: another process may write the same shard


class ObjectShards(NamedTuple):
    """Writes shards for the run itself, unless the run was taken over."""

    target: BucketTarget

    def put(self, path: AnyPath, name: str, parts: list[Any], size: int) -> tuple[str]:
        """Write a shard, or delete it if it has no parts; return its e-tag."""
        with uploads.bytes(size):
            return self.put_whole(path, b"".join(parts) if parts else None)

    def put_whole(self, path: AnyPath, data: Any) -> tuple[str]:
        """Write a shard that is in memory, or delete it if there are no data; return its e-tag."""
        for _ in range(ROUNDS):
            if self.target.fresh and data is not None:
                if (tag := path.create(data)) is not None:
                    return (tag,)
                self.target.fresh = False  # a block that is written again, or a second writer
            # The shard exists, from this run or one that has taken it over. Read the e-tag
            # first, then check who owns the run, so that no later write of another is replaced.
            existing = path.head()
            if existing is not None:
                self.target.check()
            if data is None:
                if existing is not None:
                    path.delete()
                return ("",)
            tag = path.create(data) if existing is None else path.replace(data, existing.tag)
            if tag is None:
                tag = _written(path, data)
            if tag is not None:
                return (tag,)
        raise OutputError(
            f"{path}: cannot be replaced, although no other run writes it; check whether the "
            "bucket or the object is locked against changes"
        )


def _written(path: ObjectPath, data: Any) -> str | None:
    """The e-tag of an object if it has these data: it was written, but the response was lost.

    On Google's and Azure's servers, every write makes a new tag, even for the same data.
    """
    existing, data = path.head(), memoryview(data).cast("B")
    if existing is None or existing.size != data.nbytes or (content := path.read()) is None:
        return None
    return content[1] if content[0] == data else None


class BucketTarget:
    """The location in a bucket where a layer is built; see `run.Target`."""

    replace_store = False
    what, again = "layer", "--resume"
    """What is built, and the option that continues a run, for messages."""

    def __init__(self, root: AnyPath, name: str) -> None:
        self.root = self.base = root
        self.place = root / name
        self._folder = root / ".incomplete" / name
        self._state = self._folder / "run.json"
        self._writer = uuid.uuid4().hex
        self._run: _Claim | None = None
        self._tag = ""
        self.fresh = True
        """Whether no shard is known to exist; writing then first tries to create one."""
        self._scratch: Scratch | None = None

    # -- the run ---------------------------------------------------------------------------

    @cached_property
    def _first_read(self) -> tuple[_Claim, str] | None:
        """The first result of `_read`, on which `start` bases its conditional write."""
        return self._read()

    def _read(self) -> tuple[_Claim, str] | None:
        """Read run.json and its e-tag; None if there is none."""
        if (content := self._state.read()) is None:
            return None
        try:
            run = _Claim(**json.loads(content[0]))
            if not (re.fullmatch("[0-9a-f]{32}", run.id) and run.separator in SHARDS):
                raise ValueError(f"run {run.id!r}")
        except (ValueError, TypeError) as error:
            raise StoreError(f"{self._state}: damaged ({error}); delete it") from error
        return run, content[1]

    def header(self) -> JsonObject | None:
        """The header of an unfinished run; None if there is none."""
        return self._first_read[0].header if self._first_read else None

    def is_busy(self) -> bool:
        """Whether a live process of this machine owns the run."""
        claim = self._first_read
        return claim is not None and Scratch(claim[0].id).is_held()

    def _hold(self, run: _Claim, before: str | None) -> None:
        """Write run.json if it still has the e-tag `before`, or does not exist if that is None."""
        data = json.dumps(run._asdict()).encode()
        tag = self._state.create(data) if before is None else self._state.replace(data, before)
        if tag is None:
            content = self._state.read()  # it is ours if only the response was lost
            if content is None or content[0] != data:
                raise self._lost()
            tag = content[1]
        self._run, self._tag = run, tag

    def _lost(self) -> StoreError:
        return StoreError(
            f"{self.place}: another run has begun to write this {self.what}; wait until it ends, "
            f"then {self.again}"
        )

    def check(self) -> None:
        """Check that no other run has taken over.

        Raises
        ------
        StoreError
        """
        claim = self._read()
        if claim is None or claim[0].writer != self._writer:
            raise self._lost()

    @property
    def _claim(self) -> _Claim:
        assert self._run is not None
        return self._run

    @property
    def _records(self) -> ObjectPath:
        """Where the finished blocks are recorded."""
        return self._folder / self._claim.id

    # -- begin -----------------------------------------------------------------------------

    def start(self, layer: Layer, header: JsonObject, *, resumed: bool) -> None:
        """Begin or resume the run of a layer, as its only writer."""
        layer.separator = self.claim(header, resumed=resumed)
        array_json(layer)  # sets the same attributes, in the same order, as in a folder

    def claim(self, header: JsonObject, *, resumed: bool) -> str:
        """Begin or resume the run; return the separator in the names of its shards."""
        # run.json is not read again: a run that has begun since then wins.
        earlier, self.fresh = self._first_read, not resumed
        if resumed and earlier is not None:
            run = earlier[0]._replace(writer=self._writer, complete=False)
        else:
            separator, replaces = self._next_version()
            run = _Claim(uuid.uuid4().hex, self._writer, header, separator, replaces)
        scratch = Scratch(run.id)
        scratch.begin()
        try:
            self._hold(run, earlier and earlier[1])
            self._refuse_unconditional(resumed=resumed)
            if resumed:
                self._fetch_records(scratch.manifest)
            else:
                self._clear(run.separator)
        except BaseException:
            scratch.end(keep=True)
            raise
        self._scratch = scratch
        return run.separator

    def _refuse_unconditional(self, *, resumed: bool) -> None:
        """Reject a server without conditional writes, which detect a second writer.

        Raises
        ------
        OutputError
        """
        if self.root.bucket in _trusted:
            return
        # In the folder of the run: at its end, a probe left by a killed process is deleted.
        wrong = _wrong_answers(self._folder / f"probe-{self._writer}")
        if wrong:
            self.check()  # another run may have deleted the probe
            if not resumed:
                self._state.delete()
            raise OutputError(
                f"{self.root.bucket}: the server {wrong}; use another server or a local disk"
            )
        _trusted.add(self.root.bucket)

    def _next_version(self) -> tuple[str, str]:
        """Separator of the next version of the layer, and e-tag of the existing one."""
        content = (self.place / "zarr.json").read()
        if content is None:
            return "/", ""
        separator = "."
        with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: will be replaced
            metadata = json.loads(content[0])
            if KEY not in metadata["attributes"]:
                raise StoreError(
                    f"{self.place}: exists and is not a layer of this program; move it"
                )
            separator = metadata["chunk_key_encoding"]["configuration"]["separator"]
        return ("/" if separator == "." else "."), content[1]

    def _fetch_records(self, manifest: Path) -> None:
        """Fetch the records of an unfinished run."""
        lock = threading.Lock()
        with open(manifest, "ab") as lines:

            def fetch(name: str) -> None:
                if (content := (self._records / name).read()) is not None:
                    with lock:
                        lines.write(content[0])

            for_each(fetch, (name for name, _ in self._records.walk() if name != "zarr.json"))

    # -- while it runs ---------------------------------------------------------------------

    @property
    def _local(self) -> Scratch:
        assert self._scratch is not None
        return self._scratch

    @property
    def spill(self) -> Path:
        """A local folder for data that the run stores in addition to the layer."""
        return self._local.spill

    @property
    def manifest(self) -> Path:
        """File with the records of blocks, of this run and the one it resumed."""
        return self._local.manifest

    @property
    def shards(self) -> ObjectShards:
        """Writes shards."""
        return ObjectShards(self)

    def shards_by(self, temporary: Path) -> LentShards:
        """Writes shards from another process, as long as a temporary folder exists."""
        return LentShards(temporary)

    def recorded(self, line: bytes) -> None:
        """Record a written block in the bucket, for a run that resumes on another machine."""
        record = Record.read(line)
        assert record is not None
        (self._records / f"{record.at[0]}-{record.at[1]}").write(line)

    def look(self, layer: Sharded, *, checked: bool) -> Callable[[Record], bool]:
        """Return a function that checks whether the shard of a record exists."""
        listed: list[tuple[np.ndarray, np.ndarray]] = []

        def is_there(record: Record) -> bool:
            if not listed:
                self.check()
                listed.append(self._listed(layer))
            size, tag = (values[record.at] for values in listed[0])
            if size != record.size:
                return False
            if not (record.size and record.tag and tag):
                good = record.size == 0 or not checked
                return good or layer.holds(*record.at, record.digest, small=False)
            return bool(tag == _short(record.tag))

        return is_there

    def _listed(self, layer: Sharded) -> tuple[np.ndarray, np.ndarray]:
        """Sizes of all shards, 0 if missing, and hashes of their e-tags."""
        size, tag = np.zeros(layer.blocks.shape, np.int64), np.zeros(layer.blocks.shape, np.uint64)
        for name, meta in self.place.walk():
            if (block := _block(name, layer.separator)) and _inside(block, layer.blocks.shape):
                size[block], tag[block] = meta.size, _short(meta.tag)
        return size, tag

    # -- the end ---------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether the layer is complete, and only its zarr.json is missing."""
        return self._claim.complete

    def complete_layer(self, layer: Layer, size: np.ndarray, digests: np.ndarray) -> None:
        """Write the files of the layer other than its shards, and mark the run as complete."""
        (self.place / digests_name(layer.separator)).write(digests.astype("<u8").tobytes())
        self.complete_array(array_json(layer), layer.grid)

    def complete_array(self, metadata: bytes, grid: GridSpec) -> None:
        """Store the zarr.json of the array to publish, and mark the run as complete."""
        (self._records / "zarr.json").write(metadata)
        make_group(self.root, grid)
        self._hold(self._claim._replace(complete=True), self._tag)

    def publish(self, *, finished: bool) -> Layer:
        """Make the layer visible, unless it was `finished` before."""
        if not finished:
            self.publish_array()
        return TileStore.open(self.root).layer(self.place.name)

    def publish_array(self) -> None:
        """Make the array visible."""
        if not self._end(self._claim):
            raise StoreError(
                f"{self.place}: another program changed this {self.what} while this run was "
                "building it; use --overwrite to start again"
            )
        self._local.end(keep=False)

    def recover(self) -> None:
        """Complete a run that was killed during its commit."""
        claim = self._read()
        if claim is not None and claim[0].complete and not Scratch(claim[0].id).is_held():
            self._end(claim[0])

    def _end(self, run: _Claim) -> bool:
        """Make the layer of a complete run visible, and delete the version that it replaces.

        May be repeated. Returns False if another program changed the layer.
        """
        place, pending = self.place / "zarr.json", (self._folder / run.id / "zarr.json").read()
        if pending is not None:
            data = pending[0]
            done = place.replace(data, run.replaces) if run.replaces else place.create(data)
            if done is None and ((content := place.read()) is None or content[0] != data):
                return False
        group = (self.root / "zarr.json").read()
        if group and (plain := without_consolidated(group[0])) is not None:
            (self.root / "zarr.json").replace(plain, group[1])
        self._clear("/" if run.separator == "." else ".")
        self._state.delete()
        drop_overviews(self.root, self.place.name)
        return True

    def _clear(self, separator: str) -> None:
        """Delete a version of the layer, except its zarr.json, and all records."""

        def version() -> Iterator[str]:
            for name, _ in self.place.walk():
                if _block(name, separator) or name == digests_name(separator):
                    yield name

        self.place.delete_below(version())
        self._folder.delete_below(name for name, _ in self._folder.walk() if name != "run.json")

    def release(self, *, keep: bool) -> None:
        """Stop without publishing; with `keep`, keep what a later run can resume."""
        if self._scratch is None:
            return
        try:
            if not keep:
                self.check()
                self._clear(self._claim.separator)
                self._state.delete()
        except (StoreError, OutputError):
            keep = True  # the run was taken over, or the server is unreachable
        finally:
            self._scratch.end(keep=keep)


def _block(name: str, separator: str) -> Block | None:
    """The block of the shard with this name; None for other objects."""
    match = SHARDS[separator].fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def _inside(block: Block, shape: tuple[int, int]) -> bool:
    return block[0] < shape[0] and block[1] < shape[1]


def _short(tag: str) -> np.uint64:
    """64-bit hash of an e-tag, without the quotation marks that some servers add; 0 if empty."""
    tag = tag.strip('"')
    digest = hashlib.blake2b(tag.encode(), digest_size=8).digest() if tag else bytes(8)
    return np.frombuffer(digest, "<u8")[0]


_trusted: set[str] = set()
"""Buckets whose server is known to respect conditions."""


def _wrong_answers(probe: ObjectPath) -> str:
    """How a server mishandles conditional writes; empty if it does not."""
    probe.create(b"1")
    try:
        created = probe.head()
        other = "1" if probe.bucket.startswith("gs:") else f'"{"0" * 32}"'
        if probe.create(b"2") is not None or probe.replace(b"3", other) is not None:
            return "ignores conditions of writes, so two writers would not notice each other"
        if created is not None and probe.replace(b"4", created.tag) is None:
            content = probe.read()
            if content is None or content[0] != b"4":  # otherwise only the response was lost
                return "rejects conditional writes although their conditions hold"
        return ""
    finally:
        probe.delete()


__all__ = ["BucketTarget", "LentShards", "ObjectShards", "Sharded"]
