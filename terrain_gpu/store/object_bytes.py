"""The bytes of shards in object storage, and a cache of those read last."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from .objects import LAST, RECENT, ObjectPath


class ObjectBytes:
    """The bytes of an object: all read at once, or first the end and then parts on demand.

    The end of a small object is the whole object.
    """

    def __init__(self, path: ObjectPath, size: int, data: np.ndarray | None, end: bytes) -> None:
        self._path, self.size, self._data, self._end = path, size, data, end
        self.mapped = self.held = data is not None

    @classmethod
    def open(cls, path: ObjectPath, end: int, whole: bool) -> ObjectBytes:
        """Read all of an object if `whole`, otherwise its last bytes."""
        if whole:
            data = path.read_into(lambda size: np.empty(size, np.uint8))
            if data is not None:
                data.flags.writeable = False
                return cls(path, data.size, data, b"")
        elif response := path.tail(max(end, LAST)):
            last, (size, _) = response
            if size == len(last):
                return cls(path, size, np.frombuffer(last, np.uint8), b"")
            return cls(path, size, None, last[-end:])
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def tail(self, size: int) -> bytes:
        if self._data is not None:
            return self._data[max(self.size - size, 0) :].tobytes()
        return self._end[-size:]

    def map(self) -> np.ndarray:
        return self.read(np.empty(self.size, np.uint8)) if self._data is None else self._data

    def read(self, buffer: np.ndarray) -> np.ndarray:
        if self._data is None:
            self._path.read_part(buffer)
        else:
            buffer[...] = self._data[: buffer.size]
        return buffer

    def near(self, start: int, buffer: np.ndarray) -> np.ndarray:
        return self.map()[start : start + buffer.size]

    def parts(self, starts: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        if self._data is None:
            return iter(self._path.ranges(starts.tolist(), lengths.tolist()))
        data = self._data
        return (data[a : a + n] for a, n in zip(starts, lengths, strict=True))

    def worth_keeping(self, end: int) -> tuple[ObjectBytes, int]:
        """The bytes to cache, all or only the end if it is large; and their number."""
        if self._data is None:
            return self, len(self._end)
        if self.size <= LAST:
            return self, self.size
        return ObjectBytes(self._path, self.size, None, self.tail(end)), end


class Recent:
    """A cache of small shards, and of the ends of others, read last from open layers.

    A block is read with the rims of its neighbours, so each shard is needed nine times within a
    short time. All layers of a process share the memory.
    """

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self._kept: OrderedDict[tuple[object, ObjectPath], tuple[ObjectBytes, int, bool]] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def open(
        self, layer: object, path: ObjectPath, end: int, *, whole: bool, full: bool
    ) -> ObjectBytes:
        """Open a shard of a layer with recorded digests, like `ObjectBytes.open`.

        Parameters
        ----------
        layer
            An object unique to this open layer; other layers do not use its cached bytes.
        full
            Whether all cells of the block are read. Bytes cached by a full read are not used for
            another full read, so that repeated reading of a layer notices a replacement.
        """
        key = layer, path
        with self._lock:
            cached, size, used = self._kept.get(key, (None, 0, False))
            if cached is not None and (cached.held or not whole) and not (full and used):
                self._kept[key] = cached, size, used or full
                self._kept.move_to_end(key)
                return cached
        opened = ObjectBytes.open(path, end, whole)
        entry = *opened.worth_keeping(end), full
        with self._lock:
            self._drop(key)
            self._kept[key] = entry
            self._used += entry[1]
            while self._used > self._most:
                self._drop(next(iter(self._kept)))
        return opened

    def forget(self, layer: object, path: ObjectPath) -> bool:
        """Drop the cached bytes of a shard; return whether there were any."""
        with self._lock:
            return self._drop((layer, path))

    def _drop(self, key: tuple[object, ObjectPath]) -> bool:
        _, size, _ = entry = self._kept.pop(key, (None, 0, False))
        self._used -= size
        return entry[0] is not None


recent = Recent(RECENT)
