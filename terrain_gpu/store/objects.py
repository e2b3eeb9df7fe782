"""Object storage: read objects and ranges, and write conditionally, through obstore."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import InputError, OutputError, StoreError
from .client import (
    FIRST_WAIT,
    KEYS,
    LONGEST_WAIT,
    NO_BUCKET,
    Truncated,
    connected,
    explained,
    status_of,
)

Response = TypeVar("Response")
Item = TypeVar("Item")

SCHEMES = ("s3", "gs", "az")
# pathlib merges two slashes into one.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/]+)/*(.*)")

_SIGNED = re.compile(r"\?(.*&)?(sig|x-amz-signature|x-goog-signature)=", re.IGNORECASE)
_OTHERS = (
    (r"(?:abfss?|wasbs?|adl|azure)://([^/@]+)(?:@[^/]+)?/(.+)", "az"),
    (r"https://[^/]+\.(?:blob|dfs)\.core\.windows\.net/([^/]+)/([^?]+).*", "az"),
    (r"gcs://([^/]+)/(.+)", "gs"),
    (r"https://storage\.(?:googleapis|cloud\.google)\.com/([^/]+)/([^?]+).*", "gs"),
    (r"s3[an]://([^/]+)/(.+)", "s3"),
)
"""URLs of other programs for the same storage: pattern of the URL, and our scheme."""

AT_ONCE = 16
"""Largest number of concurrent requests."""

HELD = 64 * 10**6
"""Largest total number of bytes in uploads, unless a single object is larger."""

LAST = 1 << 17
"""Number of bytes read from the end of a shard in one request: all bytes of a small shard."""

RECENT = 8 * 10**6
"""Size of the cache of shards in bytes; see `object_bytes.Recent`."""

CLIENT_BYTES = 24 * 10**6
"""Memory of the library with its connections, in bytes."""

ATTEMPTS = 4
"""Number of attempts if a transfer is interrupted."""

DELETED_AT_ONCE = 1000
"""Largest number of objects that one request deletes: the limit of S3."""

LARGEST = 5 * 10**9
"""Size in bytes of the largest object that one request can write to Amazon or Azure."""

_CHUNK = 1 << 20

_PART = 16 << 20
"""Size in bytes of the parts of a large object that concurrent requests read."""

_unquoted: set[str] = set()
"""Buckets whose server expects e-tags in conditions without quotation marks."""

_requests = threading.BoundedSemaphore(AT_ONCE)


class Meta(NamedTuple):
    """Size of an object, and the e-tag of its version (on Google: its generation)."""

    size: int
    tag: str


class Held:
    """Counts bytes in use and limits them; a single request may exceed the limit."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._changed = most, 0, threading.Condition()

    @contextlib.contextmanager
    def bytes(self, size: int) -> Iterator[None]:
        """Reserve bytes in the body; wait until they are available."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._most)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


uploads = Held(HELD)


def is_url(path: object) -> bool:
    """Whether a path is a URL in object storage."""
    return isinstance(path, ObjectPath) or bool(
        isinstance(path, str | os.PathLike) and _URL.fullmatch(os.fspath(path))
    )


def refuse_url(path: str | os.PathLike[str], content: str = "an output file") -> None:
    """Reject a URL in object storage for something that must be on disk.

    Raises
    ------
    InputError
    """
    if is_url(path):
        url = ObjectPath(path)
        raise InputError(f"{url}: {content} cannot be in object storage; name a file on disk")


AnyPath = Any
"""A `Path` or an `ObjectPath`: the code of stores accepts both, and calls what both have."""


class ObjectPath:
    """A URL in object storage: an object, or a prefix of objects like a folder.

    Parameters
    ----------
    url
        ``s3://bucket/a/b``, ``gs://...`` or ``az://container/...``.

    Raises
    ------
    InputError
        when it is not such a URL.
    """

    __slots__ = ("bucket", "key")

    def __init__(self, url: str | os.PathLike[str]) -> None:
        parts = _URL.fullmatch(os.fspath(url))
        if not parts:
            raise InputError(f"{url}: not a URL in object storage, such as s3://bucket/name")
        if set("@:") & set(parts[2]):  # not repeated: it may be a secret
            raise InputError(
                f"{parts[1]}://...: the name of a bucket cannot contain @ or a colon; set "
                f"credentials in the environment ({KEYS[parts[1]]}), not in a URL"
            )
        if _SIGNED.search(f"{parts[2]}/{parts[3]}"):
            raise InputError(
                f"{parts[1]}://...: the URL of a store cannot contain a signature; set credentials "
                f"in the environment ({KEYS[parts[1]]})"
            )
        names = [name for name in parts[3].split("/") if name]
        if {".", ".."} & set(names) or "\\" in parts[3] or not parts[3].isprintable():
            raise InputError(f"{url}: remove . and .., backslashes and control characters")
        self.bucket, self.key = f"{parts[1]}://{parts[2]}", "/".join(names)

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str | os.PathLike[str]) -> ObjectPath:
        return ObjectPath(f"{self.bucket}/{self.key}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(f"{self.bucket}/{self.key.rpartition('/')[0]}")

    @property
    def parents(self) -> list[ObjectPath]:
        """All prefixes above, the nearest first, without the bucket itself."""
        names = self.key.split("/")
        return [ObjectPath(f"{self.bucket}/{'/'.join(names[:k])}") for k in range(len(names))][
            :0:-1
        ]

    # -- reading ---------------------------------------------------------------------------

    def head(self) -> Meta | None:
        """Size and e-tag; None if there is no such object."""
        return self._read(lambda o, store: self._meta(o.head(store, self.key)))

    def exists(self) -> bool:
        """Whether there is an object with exactly this name."""
        return self.head() is not None

    def read(self) -> tuple[bytes, str] | None:
        """Read a small object and its e-tag; None if there is none."""

        def get(o: ModuleType, store: Any) -> tuple[bytes, str]:
            response = o.get(store, self.key)
            data = bytes(response.bytes())
            return _whole(data, response.meta["size"]), self._meta(response.meta).tag

        return self._read(get)

    def tail(self, size: int) -> tuple[bytes, Meta] | None:
        """Read the last `size` bytes, or all if there are fewer; None if there is no object."""

        def get(o: ModuleType, store: Any) -> tuple[bytes, Meta]:
            part: Any = {"suffix": size}
            end = None
            if self.bucket.startswith("az:"):  # Azure does not support ranges from the end
                end = o.head(store, self.key)["size"]
                part = max(end - size, 0), end
            response = o.get(store, self.key, options={"range": part})
            meta, data = self._meta(response.meta), bytes(response.bytes())
            if end is not None and meta.size != end:
                raise Truncated("the object was replaced meanwhile")
            # Some servers send all of an object that is shorter than the range.
            return _whole(data[-size:], min(size, meta.size)), meta

        return self._read(get)

    def read_into(self, room: Callable[[int], np.ndarray]) -> np.ndarray | None:
        """Read all bytes into an array that `room` returns for their number; None if missing."""

        def get(o: ModuleType, store: Any) -> np.ndarray:
            response = o.get(store, self.key)
            return _filled(room(response.meta["size"]), response)

        return self._read(get)

    def read_part(self, buffer: np.ndarray) -> None:
        """Read the first bytes into a buffer, as many as fit."""

        def get(o: ModuleType, store: Any) -> np.ndarray:
            options = {"range": (0, buffer.size)}
            return _filled(buffer, o.get(store, self.key, options=options))

        if buffer.size and self._read(get) is None:
            raise StoreError(f"{self}: was replaced or deleted by another program")

    def download(self, file: int, size: int) -> None:
        """Write the first `size` bytes to a file on disk, in several requests at once."""

        def fetch(start: int) -> None:
            end = min(start + _PART, size)

            def get(o: ModuleType, store: Any) -> bool:
                done = start
                for piece in o.get(store, self.key, options={"range": (start, end)}).stream(
                    min_chunk_size=_CHUNK
                ):
                    os.pwrite(file, memoryview(piece)[: max(end - done, 0)], done)
                    done += len(piece)
                _whole(range(start, done), end - start)
                return True

            if not self._read(get):
                raise StoreError(f"{self}: was replaced or deleted by another program")

        for_each(fetch, range(0, size, _PART))

    def ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[np.ndarray]:
        """Read parts of an object; parts that are close together share a request."""

        def get(o: ModuleType, store: Any) -> list[np.ndarray]:
            parts = o.get_ranges(store, self.key, starts=starts, lengths=lengths)
            return [
                np.frombuffer(_whole(part, size), np.uint8)
                for part, size in zip(parts, lengths, strict=True)
            ]

        parts = self._read(get)
        if parts is None:
            raise StoreError(f"{self}: was replaced or deleted by another program")
        return parts

    def folders(self) -> list[str]:
        """Names of the folders directly below, sorted."""

        def listed(o: ModuleType, store: Any) -> list[str]:
            listing = o.list_with_delimiter(store, self.key or None)
            return sorted(prefix.rpartition("/")[2] for prefix in listing["common_prefixes"])

        return self._read(listed) or []

    def walk(self) -> Iterator[tuple[str, Meta]]:
        """Yield relative name and metadata of all objects below, in arbitrary order."""
        start = len(self.key) + 1 if self.key else 0
        with explained(self, "listed", StoreError):
            o, store = connected(self.bucket)
            last, failures = None, 0
            while True:
                try:
                    for page in o.list(store, self.key or None, offset=last, chunk_size=1000):
                        for entry in page:
                            yield entry["path"][start:], self._meta(entry)
                            last, failures = entry["path"], 0
                    return
                except o.exceptions.GenericError as error:  # interrupted: continue from there
                    failures += 1
                    if failures == ATTEMPTS or status_of(error):
                        raise
                    time.sleep(min(FIRST_WAIT * 2**failures, LONGEST_WAIT))

    # -- writing ---------------------------------------------------------------------------

    def write(self, data: bytes | np.ndarray) -> str:
        """Write an object, replacing any older one; return its e-tag."""
        tag = self._write(data, "overwrite")
        assert tag is not None
        return tag

    def create(self, data: bytes | np.ndarray) -> str | None:
        """Write an object if there is none; return its e-tag, or None if one exists."""
        return self._write(data, "create")

    def replace(self, data: bytes | np.ndarray, tag: str) -> str | None:
        """Replace the version with this e-tag; return the new e-tag, or None if it has changed."""
        if self.bucket not in _unquoted:
            done = self._write(data, {self._version: tag})
            if done is not None or not tag.startswith('"'):
                return done
        # Some servers, such as Ceph's, compare with the e-tag without its quotation marks.
        done = self._write(data, {self._version: tag.strip('"')})
        if done is not None:
            _unquoted.add(self.bucket)
        return done

    def delete(self) -> None:
        """Delete an object if it exists."""
        with explained(self, "deleted", OutputError), contextlib.suppress(FileNotFoundError):
            self._delete([self.key])

    def delete_below(self, names: Iterable[str]) -> None:
        """Delete objects below, if they exist."""
        names = iter(names)

        def delete(some: list[str]) -> None:
            try:
                with explained(self, "deleted", OutputError):
                    self._delete([f"{self.key}/{name}" for name in some])
            except OutputError:
                # One is missing, or the server does not support deleting many.
                for name in some:
                    (self / name).delete()

        for_each(delete, iter(lambda: list(islice(names, DELETED_AT_ONCE)), []))

    def _delete(self, keys: list[str]) -> None:
        self._tried(lambda o, store: o.delete(store, keys))

    # -- requests --------------------------------------------------------------------------

    @property
    def _version(self) -> str:
        """Key of the metadata that identifies a version."""
        return "version" if self.bucket.startswith("gs:") else "e_tag"

    def _meta(self, entry: Any) -> Meta:
        return Meta(entry["size"], entry[self._version] or "")

    def _read(self, get: Callable[[Any, Any], Response]) -> Response | None:
        """Return what `get` returns, or None if there is no such object."""
        with explained(self, "read", StoreError):
            try:
                return self._tried(get)
            except FileNotFoundError as error:
                if NO_BUCKET.search(str(error)):
                    raise
                return None

    def _write(self, data: bytes | np.ndarray, mode: Any) -> str | None:
        """Write an object; return its e-tag, or None if the condition does not hold.

        It does not hold either if a successful write was retried because its response was lost.
        """

        def put(o: ModuleType, store: Any) -> str | None:
            try:
                done = o.put(store, self.key, data, mode=mode, use_multipart=False)
            except (o.exceptions.AlreadyExistsError, o.exceptions.PreconditionError):
                if mode == "overwrite":  # the object is locked
                    raise
                return None
            return done[self._version] or ""

        with explained(self, "written", OutputError):
            try:
                return self._tried(put)
            except FileNotFoundError as error:
                if mode in ("overwrite", "create") or NO_BUCKET.search(str(error)):
                    raise
                return None  # the version to replace no longer exists

    def _tried(self, request: Callable[[Any, Any], Response]) -> Response:
        """Run a request; retry it if the request or its response was interrupted.

        The client itself has already retried error responses such as 503.
        """
        o, store = connected(self.bucket)
        for attempt in range(ATTEMPTS):
            try:
                with _requests:
                    return request(o, store)
            except (Truncated, o.exceptions.GenericError) as error:
                if attempt == ATTEMPTS - 1 or status_of(error):
                    raise
                time.sleep(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT))
        raise AssertionError


def for_each(work: Callable[[Item], Any], items: Iterable[Item]) -> None:
    """Call `work` for each item, several at once and without a list; raise the first error."""
    items = iter(items)
    lock = threading.Lock()
    failed: list[BaseException] = []

    def take() -> None:
        try:
            while not failed:
                with lock:
                    item = next(items, None)
                if item is None:
                    return
                work(item)
        except BaseException as error:
            failed.append(error)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(AT_ONCE):
            pool.submit(take)
    if failed:
        raise failed[0]


def place(path: str | os.PathLike[str]) -> AnyPath:
    """The `ObjectPath` of a URL, which must name more than a bucket."""
    url = path if isinstance(path, ObjectPath) else ObjectPath(path)
    if not url.key:
        raise InputError(f"{url}: names a whole bucket; add a name, such as {url}/dem.zarr")
    return url


def named(path: str | os.PathLike[str]) -> AnyPath:
    """The `ObjectPath` of a URL, or the `Path` of a folder.

    Raises
    ------
    InputError
        for a URL of another kind, or of a bucket without a name.
    """
    if is_url(path):
        return place(path)
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", os.fspath(path)):
        matches = [(re.fullmatch(shape, os.fspath(path)), scheme) for shape, scheme in _OTHERS]
        ours = [f"; write {to}://{match[1]}/{match[2]}" for match, to in matches if match]
        raise InputError(
            f"{os.fspath(path)}: a store is a folder, or a URL such as s3://bucket/dem.zarr "
            f"({', '.join(SCHEMES)}){''.join(ours)}"
        )
    return Path(path)


def has_store(path: AnyPath) -> bool:
    """Whether something exists at the path of a store."""
    return is_there(path / "zarr.json" if isinstance(path, ObjectPath) else path)


def is_there(path: AnyPath) -> bool:
    """Whether there is a file, folder or object that this user may access."""
    return path.exists() if isinstance(path, ObjectPath) else os.path.exists(path)


def folder_names(path: AnyPath) -> list[str]:
    """Names directly below a folder; in object storage, only names of folders."""
    return path.folders() if isinstance(path, ObjectPath) else os.listdir(path)


def read_small(path: AnyPath, most: int = -1) -> bytes:
    """Read a file or object, or at most the first `most` bytes of a file.

    Raises
    ------
    OSError
        when it cannot be read; FileNotFoundError when it does not exist.
    """
    if not isinstance(path, ObjectPath):
        with open(path, "rb") as file:
            return file.read(most)
    content = path.read()
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return content[0]


def _whole(data: bytes | np.ndarray | range, size: int) -> Any:
    if len(data) != size:
        raise Truncated(f"{len(data)} of {size} bytes arrived")
    return data


def _filled(buffer: np.ndarray, response: Any) -> np.ndarray:
    """Stream the body of a response into a buffer of its size."""
    done = 0
    for piece in response.stream(min_chunk_size=_CHUNK):
        size = len(piece)
        if done + size <= buffer.size:
            buffer[done : done + size] = np.frombuffer(piece, np.uint8)
        done += size
    _whole(range(done), buffer.size)
    return buffer


def bytes_held(block: int) -> int:
    """Memory for object storage in bytes, with blocks of this side.

    It includes the library with its connections, shards being uploaded, the cache, and the ends of
    shards being read, twice. Other downloads use buffers of the plan.
    """
    return CLIENT_BYTES + max(HELD, 8 * block * block) + RECENT + 2 * AT_ONCE * LAST
