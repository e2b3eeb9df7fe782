"""Object storage: whole objects, ranges of them, and writes on a condition, through obstore."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import InputError, OutputError, StoreError
from .client import FIRST_WAIT, LONGEST_WAIT, Truncated, connected, explained, status_of

Found = TypeVar("Found")
Item = TypeVar("Item")

SCHEMES = ("s3", "gs", "az")
# pathlib makes one slash of two.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/]+)/*(.*)")

AT_ONCE = 16
"""Requests under way at most."""

HELD = 64 * 10**6
"""Bytes that uploads hold at most, unless one object alone has more."""

CLIENT_BYTES = 24 * 10**6
"""What the library takes, with its connections."""

ATTEMPTS = 4
"""How often is tried what broke off on its way."""

_CHUNK = 1 << 20

_requests = threading.BoundedSemaphore(AT_ONCE)


class Meta(NamedTuple):
    """An object: its size, and the e-tag that names its version (on Google, its generation)."""

    size: int
    tag: str


class Held:
    """Bytes in use, no more than a bound; one alone may be larger."""

    def __init__(self, most: int) -> None:
        self._most, self._used, self._changed = most, 0, threading.Condition()

    @contextlib.contextmanager
    def bytes(self, size: int) -> Iterator[None]:
        """Wait until so many fit."""
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


def is_url(path: Any) -> bool:
    """Whether a path names a place in object storage."""
    return isinstance(path, ObjectPath) or bool(
        isinstance(path, str | os.PathLike) and _URL.fullmatch(os.fspath(path))
    )


def refuse_url(path: Any, what: str = "an output file") -> None:
    """Refuse a place in object storage for what only a disk can hold.

    Raises
    ------
    InputError
    """
    if is_url(path):
        url = ObjectPath(path)
        raise InputError(f"{url}: {what} cannot be in object storage; name a file on a disk")


class ObjectPath:
    """A place in object storage: of an object, or of all whose names start with it and a slash.

    Parameters
    ----------
    url
        ``s3://bucket/a/b``, ``gs://...`` or ``az://container/...``.

    Raises
    ------
    InputError
        when it is no such URL.
    """

    __slots__ = ("bucket", "key")

    def __init__(self, url: str | os.PathLike[str]) -> None:
        parts = _URL.fullmatch(os.fspath(url))
        if not parts:
            raise InputError(f"{url}: not a place in object storage, such as s3://bucket/name")
        names = [name for name in parts[3].split("/") if name]
        if {".", ".."} & set(names) or "\\" in parts[3] or not parts[3].isprintable():
            raise InputError(f"{url}: name the place without . and .. and control characters")
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
        """The last part of its name."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(f"{self.bucket}/{self.key.rpartition('/')[0]}")

    @property
    def parents(self) -> list[ObjectPath]:
        """All places above, the nearest first, without the bucket itself."""
        names = self.key.split("/")
        return [ObjectPath(f"{self.bucket}/{'/'.join(names[:k])}") for k in range(len(names))][
            :0:-1
        ]

    # -- reading ---------------------------------------------------------------------------

    def head(self) -> Meta | None:
        """Size and e-tag; None when there is no such object."""
        return self._read(lambda o, store: self._meta(o.head(store, self.key)))

    def exists(self) -> bool:
        """Whether there is an object of this very name."""
        return self.head() is not None

    def read(self) -> tuple[bytes, str] | None:
        """All bytes of a small object and its e-tag; None when there is none."""

        def get(o: Any, store: Any) -> tuple[bytes, str]:
            found = o.get(store, self.key)
            data = bytes(found.bytes())
            return _whole(data, found.meta["size"]), self._meta(found.meta).tag

        return self._read(get)

    def tail(self, size: int) -> tuple[bytes, Meta] | None:
        """The last bytes, all if there are fewer; None when there is no such object."""

        def get(o: Any, store: Any) -> tuple[bytes, Meta]:
            part: Any = {"suffix": size}
            if self.bucket.startswith("az:"):  # where a range cannot be counted from the end
                end = o.head(store, self.key)["size"]
                part = max(end - size, 0), end
            found = o.get(store, self.key, options={"range": part})
            meta, data = self._meta(found.meta), bytes(found.bytes())
            # Some servers answer with the whole of a shorter object.
            return _whole(data[-size:], min(size, meta.size)), meta

        return self._read(get)

    def read_into(self, room: Callable[[int], np.ndarray]) -> np.ndarray | None:
        """All bytes, in what `room` gives for their number; None when there is no such object."""

        def get(o: Any, store: Any) -> np.ndarray:
            found = o.get(store, self.key)
            return _filled(room(found.meta["size"]), found)

        return self._read(get)

    def read_part(self, buffer: np.ndarray) -> None:
        """The first bytes into a buffer, as many as it has room for."""

        def get(o: Any, store: Any) -> np.ndarray:
            options = {"range": (0, buffer.size)}
            return _filled(buffer, o.get(store, self.key, options=options))

        if buffer.size and self._read(get) is None:
            raise StoreError(f"{self}: is gone, replaced or deleted by another program")

    def ranges(self, starts: Sequence[int], lengths: Sequence[int]) -> list[np.ndarray]:
        """Parts of an object, those that lie close together fetched as one."""

        def get(o: Any, store: Any) -> list[np.ndarray]:
            found = o.get_ranges(store, self.key, starts=starts, lengths=lengths)
            return [
                np.frombuffer(_whole(part, size), np.uint8)
                for part, size in zip(found, lengths, strict=True)
            ]

        found = self._read(get)
        if found is None:
            raise StoreError(f"{self}: is gone, replaced or deleted by another program")
        return found

    def folders(self) -> list[str]:
        """The names right below that have others below them, sorted."""

        def listed(o: Any, store: Any) -> list[str]:
            found = o.list_with_delimiter(store, self.key or None)
            return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

        return self._read(listed) or []

    def walk(self) -> Iterator[tuple[str, Meta]]:
        """Names below, relative to this one, of all objects, in no order that matters."""
        start = len(self.key) + 1 if self.key else 0
        with explained(self, "listed", StoreError):
            o, store = connected(self.bucket)
            last, failures = None, 0
            while True:
                try:
                    for page in o.list(store, self.key or None, offset=last, chunk_size=1000):
                        for found in page:
                            yield found["path"][start:], self._meta(found)
                            last, failures = found["path"], 0
                    return
                except o.exceptions.GenericError as error:  # it broke off: from there on
                    failures += 1
                    if failures == ATTEMPTS or status_of(error):
                        raise
                    time.sleep(min(FIRST_WAIT * 2**failures, LONGEST_WAIT))

    # -- writing ---------------------------------------------------------------------------

    def write(self, data: Any) -> str:
        """Put an object in place of any older one; its e-tag."""
        found = self._write(data, "overwrite")
        assert found is not None
        return found

    def create(self, data: Any) -> str | None:
        """Put an object where there is none; its e-tag, or None when there is one."""
        return self._write(data, "create")

    def replace(self, data: Any, tag: str) -> str | None:
        """Put an object in place of the version with this e-tag; None when there is another."""
        return self._write(data, {self._version: tag})

    def delete(self) -> None:
        """Delete an object, if there is one."""
        with explained(self, "deleted", OutputError), contextlib.suppress(FileNotFoundError):
            self._tried(lambda o, store: o.delete(store, self.key))

    def delete_below(self, names: Iterable[str]) -> None:
        """Delete objects below, as far as they are there."""

        def delete(name: str) -> None:
            (self / name).delete()  # one by one: not all servers can delete many

        for_each(delete, names)

    # -- both ------------------------------------------------------------------------------

    @property
    def _version(self) -> str:
        """What names a version."""
        return "version" if self.bucket.startswith("gs:") else "e_tag"

    def _meta(self, found: Any) -> Meta:
        return Meta(found["size"], found[self._version] or "")

    def _read(self, get: Callable[[Any, Any], Found]) -> Found | None:
        """What `get` returns; None for no such object."""
        with explained(self, "read", StoreError):
            try:
                return self._tried(get)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def _write(self, data: Any, mode: Any) -> str | None:
        """The e-tag of what is written; None where the condition does not hold.

        It does not either where an answer was lost on its way, and the write was tried again.
        """

        def put(o: Any, store: Any) -> str | None:
            try:
                done = o.put(store, self.key, data, mode=mode, use_multipart=False)
            except (o.exceptions.AlreadyExistsError, o.exceptions.PreconditionError):
                return None
            return done[self._version] or ""

        with explained(self, "written", OutputError):
            try:
                return self._tried(put)
            except FileNotFoundError as error:
                if mode in ("overwrite", "create") or "NoSuchBucket" in str(error):
                    raise
                return None  # the version to replace is gone

    def _tried(self, request: Callable[[Any, Any], Found]) -> Found:
        """What a request returns, tried again when it or its answer broke off.

        What servers say, such as 503, the client itself has retried.
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
    """Do something with each item, several at once, without a list of them; the first error."""
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


def place(path: str | os.PathLike[str]) -> Any:
    """The `ObjectPath` of a URL, which must name more than a bucket.

    It is typed as any path, for what reads and writes stores takes both.
    """
    found = path if isinstance(path, ObjectPath) else ObjectPath(path)
    if not found.key:
        raise InputError(f"{found}: a whole bucket; name a place in it, such as {found}/dem.zarr")
    return found


def named(path: str | os.PathLike[str]) -> Any:
    """The `ObjectPath` of a URL, or the `Path` of a folder, as it was named."""
    return place(path) if is_url(path) else Path(path)


def has_store(path: Any) -> bool:
    """Whether there is something at the place of a store."""
    return is_there(path / "zarr.json" if isinstance(path, ObjectPath) else path)


def is_there(path: Any) -> bool:
    """Whether there is a file, folder or object that we may see."""
    return path.exists() if isinstance(path, ObjectPath) else os.path.exists(path)


def folder_names(path: Any) -> list[str]:
    """The names right below a folder, or those below a place that have others below them."""
    return path.folders() if isinstance(path, ObjectPath) else os.listdir(path)


def read_small(path: Any, most: int = -1) -> bytes:
    """All bytes of a file or object, or the first ones.

    Raises
    ------
    OSError
        when it cannot be read; FileNotFoundError when it is not there.
    """
    if not isinstance(path, ObjectPath):
        with open(path, "rb") as file:
            return file.read(most)
    found = path.read()
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return found[0]


def _whole(data: Any, size: int) -> Any:
    if len(data) != size:
        raise Truncated(f"{len(data)} of {size} bytes arrived")
    return data


def _filled(buffer: np.ndarray, found: Any) -> np.ndarray:
    """A body streamed into a buffer of its size."""
    done = 0
    for piece in found.stream(min_chunk_size=_CHUNK):
        size = len(piece)
        if done + size <= buffer.size:
            buffer[done : done + size] = np.frombuffer(piece, np.uint8)
        done += size
    _whole(range(done), buffer.size)
    return buffer


def bytes_held(block: int) -> int:
    """Bytes held here, where blocks of this side are read and written.

    The library and its connections; shards on their way up. What comes down goes into buffers that
    are planned.
    """
    return CLIENT_BYTES + max(HELD, 8 * block * block)
