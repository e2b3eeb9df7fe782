"""Object storage: whole objects, ranges of them, and writes on a condition, through obstore.

Credentials, region and endpoint come from the environment and the profiles of the provider's own
tools. They are never part of a message.
"""

from __future__ import annotations

import configparser
import contextlib
import errno
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import InputError, OutputError, StoreError

Found = TypeVar("Found")
Item = TypeVar("Item")

SCHEMES = ("s3", "gs", "az")
# pathlib makes one slash of two.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/]+)/*(.*)")

AT_ONCE = 16
"""Requests under way at most."""

HELD = 64 * 10**6
"""Bytes that uploads hold at most, unless one object alone has more."""

ATTEMPTS = 4
"""How often a body is asked for that did not arrive whole."""

SERVER_RETRIES = 6
"""How often obstore asks again after 5xx, a lost connection or a time-out."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
"""Seconds between attempts, doubled each time."""

CONNECT_TIMEOUT, READ_TIMEOUT, REQUEST_TIMEOUT = 10.0, 30.0, 600.0
"""Seconds: for a connection, without a byte arriving, and for a whole object."""

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
        raise InputError(f"{path}: {what} cannot be in object storage; name a file on a disk")


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
            found = o.get(store, self.key, options={"range": {"suffix": size}})
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
        with _explained(self, "listed", StoreError):
            o, store = _connected(self.bucket)
            for page in o.list(store, self.key or None, chunk_size=1000):
                for found in page:
                    yield found["path"][start:], self._meta(found)

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
        self.delete_below([""])

    def delete_below(self, names: Any) -> None:
        """Delete objects below, or this one when the name is empty, as far as they are there."""
        o, store = _connected(self.bucket)

        def delete(some: list[str]) -> None:
            with _explained(self, "deleted", OutputError), _requests:
                for key in some:  # one by one: not all servers can delete many
                    with contextlib.suppress(FileNotFoundError):
                        o.delete(store, key)

        start = f"{self.key}/" if self.key else ""
        for_each(delete, ([start + name if name else self.key] for name in names))

    # -- both ------------------------------------------------------------------------------

    @property
    def _version(self) -> str:
        """What names a version."""
        return "version" if self.bucket.startswith("gs:") else "e_tag"

    def _meta(self, found: Any) -> Meta:
        return Meta(found["size"], found[self._version] or "")

    def _read(self, get: Callable[[Any, Any], Found]) -> Found | None:
        """What `get` returns, tried again when a body is not whole; None for no such object."""
        with _explained(self, "read", StoreError):
            o, store = _connected(self.bucket)
            for attempt in range(ATTEMPTS):
                try:
                    with _requests:
                        return get(o, store)
                except FileNotFoundError as error:
                    if "NoSuchBucket" in str(error):
                        raise
                    return None
                except (_Truncated, o.exceptions.GenericError) as error:
                    # obstore has retried what servers said; here a body broke off on its way.
                    if attempt == ATTEMPTS - 1 or _status(error):
                        raise
                    time.sleep(min(FIRST_WAIT * 2**attempt, LONGEST_WAIT))
        raise AssertionError

    def _write(self, data: Any, mode: Any) -> str | None:
        with _explained(self, "written", OutputError):
            o, store = _connected(self.bucket)
            try:
                with _requests:
                    done = o.put(store, self.key, data, mode=mode, use_multipart=False)
                return done[self._version] or ""
            except (o.exceptions.AlreadyExistsError, o.exceptions.PreconditionError):
                return None
            except FileNotFoundError as error:
                if mode in ("overwrite", "create") or "NoSuchBucket" in str(error):
                    raise
                return None  # the version to replace is gone


def for_each(work: Callable[[Item], Any], items: Any) -> None:
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


class _Truncated(Exception):
    """Fewer bytes arrived than were asked for."""


def _whole(data: Any, size: int) -> Any:
    if len(data) != size:
        raise _Truncated(f"{len(data)} of {size} bytes arrived")
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


# -- connections --------------------------------------------------------------------------------


def _obstore(url: str) -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise InputError(
            f"{url}: object storage needs obstore ({error}); pip install 'terrain_gpu[cloud]'"
        ) from None
    return obstore


def _connected(bucket: str) -> tuple[Any, Any]:
    """obstore and its client for a bucket, one for all threads."""
    obstore = _obstore(bucket)
    settings = tuple(sorted(_profile().items())) if bucket.startswith("s3:") else ()
    return obstore, _client(bucket, settings, _endpoint(), os.getpid())


def _endpoint() -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


@functools.lru_cache(64)
def _client(bucket: str, settings: tuple[tuple[str, str], ...], endpoint: str, _: int) -> Any:
    config = dict(settings)
    if endpoint and bucket.startswith("s3:"):
        config["endpoint"] = endpoint
    plain = config.get("endpoint", "").startswith("http:")
    how: dict[str, Any] = {
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT),
            "read_timeout": timedelta(seconds=READ_TIMEOUT),
            "timeout": timedelta(seconds=REQUEST_TIMEOUT),
            **({"allow_http": True} if plain else {}),
        },
        "retry_config": {
            "max_retries": SERVER_RETRIES,
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT),
                "max_backoff": timedelta(seconds=LONGEST_WAIT),
                "base": 2,
            },
            "retry_timeout": timedelta(seconds=180),
        },
    }
    return _obstore(bucket).store.from_url(bucket, **how, **({"config": config} if config else {}))


def _profile() -> dict[str, str]:
    """What a profile of AWS's own tools says, where the environment does not.

    obstore reads the environment and asks the machine's role, but reads no profiles.
    """
    if os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_SKIP_SIGNATURE"):
        return {}
    name = os.environ.get("AWS_PROFILE", "")
    files = tuple(
        os.path.expanduser(os.environ.get(variable) or default)
        for variable, default in (
            ("AWS_CONFIG_FILE", "~/.aws/config"),
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        )
    )
    found = dict(_sections(files, name or "default", *(_changed(file) for file in files)))
    if name and "aws_access_key_id" not in found:
        raise InputError(
            f"AWS_PROFILE {name}: {files[1]} has no keys for it; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (aws configure export-credentials --format env)"
        )
    regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
    if any(os.environ.get(variable) for variable in regions):
        found.pop("region", None)
    return found


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(8)
def _sections(files: tuple[str, ...], name: str, *_: int) -> dict[str, str]:
    keys = {
        "aws_access_key_id": "aws_access_key_id",
        "aws_secret_access_key": "aws_secret_access_key",
        "aws_session_token": "aws_session_token",
        "region": "region",
        "endpoint_url": "endpoint",
    }
    found: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(OSError, configparser.Error, UnicodeError):
            parser.read(file, encoding="utf-8")
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                found |= {keys[k]: v for k, v in parser.items(section) if k in keys and v}
    return found


# -- messages -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _explained(path: ObjectPath, done: str, kind: type[StoreError | OutputError]) -> Iterator[None]:
    """Whatever obstore raises becomes an error that names the URL, what failed and the remedy."""
    try:
        yield
    except (StoreError, InputError, OutputError):
        raise
    except Exception as error:
        module = type(error).__module__
        ours = isinstance(error, _Truncated | OSError)
        if not ours and not module.startswith(("obstore", "builtins")):
            raise
        if not ours and module == "builtins" and not isinstance(error, ValueError | RuntimeError):
            raise
        reason, remedy = _reason(error)
        raise kind(f"{path}: cannot be {done}: {reason}; {remedy}") from None


_REMEDIES = (
    ("NoSuchBucket", "no such bucket", "make it, or name another"),
    (
        "401|403|Unauthenticated|PermissionDenied|InvalidAccessKey|SignatureDoesNotMatch",
        "access denied",
        "check the credentials (environment, profile) and what they may do with the bucket",
    ),
    (
        "169.254.169.254|169.254.170.2|metadata.google",
        "no credentials",
        "set them in the environment or a profile, or AWS_SKIP_SIGNATURE=true for a public bucket",
    ),
    ("dns error|lookup address", "the server's name is not known", "check endpoint and region"),
    ("[Cc]onnection refused|error trying to connect", "no connection to the server", ""),
    ("timed out|[Tt]imeout|TimedOut", "the server did not answer in time", ""),
    ("body|IncompleteMessage|bytes arrived|unexpected EOF", "what arrived broke off", ""),
)


def _status(error: BaseException) -> str:
    """HTTP status in what obstore says: "503 Service Unavailable"."""
    found = re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z]+)*)", str(error))
    return found[1] if found else ""


def _reason(error: BaseException) -> tuple[str, str]:
    """An error in words, and what to do about it; nothing in them can be a secret."""
    text = str(error).partition("Debug source")[0]
    status, retried = _status(error), re.search(r"after (\d+) retries", text)
    code = re.search(r"<Code>(\w{1,60})</Code>", text)
    said = ", ".join(filter(None, (status, code and code[1])))
    found = next((row for row in _REMEDIES if re.search(row[0], f"{text} {type(error)}")), None)
    if status.startswith("5") or (found is None and not said):
        found = None
    again = "try again later; a run goes on with --resume"
    words = found[1] if found else "" if said else f"{type(error).__name__} of the client"
    reason = words + (f" ({said})" if words and said else said)
    if retried and retried[1] != "0":
        reason += f", also after {retried[1]} retries"
    return reason, (found[2] if found else "") or again


def held_by(block: int) -> int:
    """Bytes that this module holds where blocks of this side are read and written.

    The library itself and its connections; shards on their way up. What comes down goes into
    buffers that are planned.
    """
    return 24 * 10**6 + max(HELD, 8 * block * block) if "obstore" in sys.modules else 0
