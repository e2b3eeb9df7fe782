"""The ledger of a run: what its blocks told, so that a resumed run need not ask them again.

A log with a record for the start of each pass and for each block: a line of JSON with a checksum,
then the bytes of the arrays in the message. A block's record is written before the block counts as
written. It is not synced: after a power cut it may be missing, and the block is solved again.

Messages are numbers, texts, arrays, tuples, lists and dicts of these, and instances of the named
tuples and dataclasses in `Operation.messages`.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import StoreError, TerrainError
from ..facts import JsonObject, Settings
from ..grid import Block
from ..store.checksums import crc32c, sealed_line, unsealed_line
from ..store.files import output_errors, write_parts

_LONGEST = 1 << 26
"""Bytes of a line; longer ones are damaged."""


class Ledger:
    """The ledger in a file.

    Parameters
    ----------
    settings
        Of the run: records of a run with others are not replayed.

    Attributes
    ----------
    filled
        Whether it holds a message.
    """

    def __init__(
        self, path: Path, messages: Sequence[type], settings: Settings | None = None
    ) -> None:
        self._path, self._kinds = path, {kind.__name__: kind for kind in messages}
        self._of = f"{crc32c(json.dumps(settings, sort_keys=True).encode()):08x}"
        self._lock = threading.Lock()
        self._log: Any = None
        self._end = 0  # of the records that were replayed
        self._replays, self._closed = True, False
        self._begun: list[bytes] = []  # passes without a record yet
        self.filled = False

    def rewind(self) -> None:
        """Begin with the first pass again."""
        self._shut()
        self._end, self._replays = 0, True
        self._begun.clear()

    def replay(self, name: str) -> Iterator[tuple[Block, Any]]:
        """Begin a pass; yield what an earlier run recorded of it: blocks and their messages.

        A block may come twice, with equal messages.
        """
        begin = {"version": __version__, "of": self._of, "pass": name}
        if self._replays:
            yield from self._replay(begin)
        if not self._replays:
            self._begun.append(sealed_line(begin))

    def _replay(self, begin: dict[str, str]) -> Iterator[tuple[Block, Any]]:
        self._replays = False
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._end)
            if _line_of(file) != begin:
                return
            self._replays, self._end = True, file.tell()
            while (found := self._read(file)) is not None:
                self._end, self.filled = file.tell(), True
                yield found

    def _read(self, file: Any) -> tuple[Block, Any] | None:
        """Read a record; None if the pass has no further one, or it is damaged."""
        try:
            line, size = _line_of(file), os.fstat(file.fileno()).st_size
            (i, j), arrays = line["at"], []
            if min(i, j) < 0:
                return None
            for (kind, shape), checksum in zip(line["arrays"], line["checksums"], strict=True):
                dtype = _dtype_of(kind)
                if math.prod(shape) * dtype.itemsize > size - file.tell():
                    return None
                array = np.empty(shape, dtype)
                file.readinto(_flat(array).data)
                if crc32c(_flat(array)) != checksum:
                    return None
                arrays.append(array)
            return (i, j), self._restored(line["message"], arrays)
        except Exception:  # of whatever kind: records are solved again
            return None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what records cause that no run of the operation wrote into a clear error."""
        try:
            yield
        except TerrainError:
            raise
        except Exception as error:
            self._path.unlink(missing_ok=True)
            raise StoreError(
                f"{self._path}: was not written by this run, and is removed; --resume continues"
            ) from error

    def record(self, at: Block, message: Any) -> None:
        """Record what a block told. Thread-safe."""
        arrays: list[np.ndarray] = []
        message = self._plain(message, arrays)
        self._write(
            {
                "at": at,
                "message": message,
                "arrays": [(_described(array.dtype), array.shape) for array in arrays],
                "checksums": [crc32c(_flat(array)) for array in arrays],
            },
            arrays,
        )
        self.filled = True

    def close(self) -> None:
        """Close the file. Threads that an interrupt left behind write nothing more."""
        self._closed = True
        self._shut()

    def _shut(self) -> None:
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    def _write(self, line: JsonObject, arrays: list[np.ndarray]) -> None:
        parts = [sealed_line(line), *(_flat(array) for array in arrays if array.size)]
        with self._lock, output_errors(self._path):
            if self._closed:
                return
            if self._log is None:  # from here on, in place of records that were not replayed
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._log = open(self._path, "ab", buffering=0)  # noqa: SIM115
                os.ftruncate(self._log.fileno(), self._end)
            self._replays = False
            write_parts(self._log, [*self._begun, *parts])
            self._begun.clear()

    def _plain(self, message: Any, arrays: list[np.ndarray]) -> Any:
        """A message as JSON has it; its arrays are appended to `arrays`."""
        if isinstance(message, np.ndarray | np.generic):  # of which np.float64 is also a float
            arrays.append(np.asarray(message, order="C"))
            return {"array" if isinstance(message, np.ndarray) else "scalar": len(arrays) - 1}
        if message is None or isinstance(message, bool | int | float | str):
            return message
        if isinstance(message, dict):
            return {"dict": [self._plain(item, arrays) for item in message.items()]}
        kind = type(message)
        if is_dataclass(message):
            parts = [getattr(message, one.name) for one in fields(message)]
        elif isinstance(message, tuple | list):
            parts = list(message)
        else:
            raise TypeError(f"{kind.__name__} in a message of a block")
        if kind not in (tuple, list) and self._kinds.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__name__} is not among the messages of the operation")
        return {kind.__name__: [self._plain(part, arrays) for part in parts]}

    def _restored(self, plain: Any, arrays: list[np.ndarray]) -> Any:
        """Inverse of `_plain`."""
        if not isinstance(plain, dict):
            return plain
        ((kind, parts),) = plain.items()
        if kind in ("array", "scalar"):
            return arrays[parts] if kind == "array" else arrays[parts][()]
        found = [self._restored(part, arrays) for part in parts]
        if kind in _BUILTIN:
            return _BUILTIN[kind](found)
        return self._kinds[kind](*found)


def _line_of(file: Any) -> Any:
    """The next line; None if it is damaged."""
    try:
        return unsealed_line(file.readline(_LONGEST))
    except (ValueError, RecursionError):
        return None


_BUILTIN = {"tuple": tuple, "list": list, "dict": dict}


def _flat(array: np.ndarray) -> np.ndarray:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _described(dtype: np.dtype) -> Any:
    """A type as JSON has it; with its padding, if it has fields."""
    if dtype.names is None:
        return dtype.str
    each = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]
    return {
        "names": dtype.names,
        "formats": [[_described(one.base), one.shape] for one, *_ in each],
        "offsets": [offset for _, offset, *_ in each],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _dtype_of(described: Any) -> np.dtype:
    """Inverse of `_described`."""
    if isinstance(described, str):
        return np.dtype(described)
    formats = [(_dtype_of(base), tuple(shape)) for base, shape in described["formats"]]
    return np.dtype({**described, "formats": formats})  # type: ignore[call-overload]
