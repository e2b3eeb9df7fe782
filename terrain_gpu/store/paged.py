"""Tables that kernels visit in any order, in memory or in a file that is mapped: `Paged`.

What is mapped counts as memory of the process until it is let go. So kernels count the pages that
they touch, and return when these are as many as there is room for. Then all pages are let go, and
the kernel goes on where it stopped. What a kernel computes does not depend on where tables are.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..compiled import jit
from .files import output_errors

PAGE_BITS = 16
"""Linux maps so many bytes, 64 KiB, around one that is read."""
_SPARE = 64
"""Pages that a kernel may touch before it looks again whether there is room."""
_BESIDE = 4 << 20
"""Bytes of the room for what is at hand of tables and of `NumberList`."""
LEAST_ROOM = 16 << 20
_MOST = 1 << 18
"""Pages that are mapped at a time, whatever there is room for."""
CHUNK = 1 << 16
"""Numbers that are handed to a kernel, or that it hands out, at a time."""


class Pages(NamedTuple):
    """The pages of a table, for kernels.

    Attributes
    ----------
    seen
        bool, which were touched; all, where nothing has to be counted.
    size
        Bytes of a row.
    left
        int64, shape (1,): how many more may be touched; of all tables together.
    """

    seen: np.ndarray
    size: int
    left: np.ndarray


@jit
def touch(pages: Any, row: Any) -> None:
    """Count the pages of a row."""
    first = row * pages.size
    for page in (first >> PAGE_BITS, first + pages.size - 1 >> PAGE_BITS):
        if not pages.seen[page]:
            pages.seen[page] = True
            pages.left[0] -= 1


class PagedTable:
    """Rows of a structured type, see `Paged.table`.

    Attributes
    ----------
    rows
        The structured array.
    pages
        For kernels that visit them.
    """

    def __init__(self, rows: np.ndarray, left: np.ndarray, whole: mmap.mmap | None) -> None:
        self.rows, self._whole = rows, whole
        count = (rows.nbytes >> PAGE_BITS) + 1
        self.pages = Pages(np.full(count, whole is None), rows.itemsize, left)

    def let_go(self) -> None:
        """Let go of all pages; what was written stays in the file."""
        if self._whole is not None:
            self._whole.madvise(mmap.MADV_DONTNEED)
            self.pages.seen[:] = False


class NumberList:
    """A list of int64 numbers, appended and read in chunks, in memory or in a file."""

    def __init__(self, paged: Paged) -> None:
        self._paged, self._parts = paged, list[np.ndarray]()
        self._file = paged.file() if paged.spilled else None
        self._counts: list[int] = []

    def append(self, found: np.ndarray) -> None:
        """Append a copy of an array."""
        if not len(found):
            return
        self._counts.append(len(found))
        if self._file is None:
            self._parts.append(found.copy())
        else:
            self._paged.write(self._file, found)

    def chunks(self, *, backwards: bool = False) -> Iterator[np.ndarray]:
        """Yield the arrays that were appended, in this order or from the last one."""
        ends = np.cumsum(self._counts)
        which = range(len(ends))
        for k in reversed(which) if backwards else which:
            if self._file is None:
                yield self._parts[k]
            else:
                count = self._counts[k]
                data = os.pread(self._file.fileno(), 8 * count, 8 * int(ends[k] - count))
                yield np.frombuffer(data, np.int64)


class Paged:
    """Tables and lists, in memory unless `spill` was called before they are made.

    Files have no name, so that a killed process leaves nothing.

    Parameters
    ----------
    folder
        Folder for the files, made when needed.
    room
        Bytes of memory for the pages of all tables.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder = folder
        self._most = min((max(room, LEAST_ROOM) - _BESIDE >> PAGE_BITS) - _SPARE, _MOST)
        self._left = np.array([self._most])
        self._tables: list[PagedTable] = []
        self._files: list[IO[bytes]] = []
        self._lock = threading.Lock()
        self.spilled = False

    def spill(self) -> None:
        """Keep what is made from now on in files."""
        self.spilled = True

    def file(self) -> IO[bytes]:
        """Return a new file."""
        with output_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            found = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        self._files.append(found)
        return found

    def write(self, file: IO[bytes], data: np.ndarray) -> None:
        """Append an array to a file.

        Raises
        ------
        OutputError
            when the disk is full.
        """
        rest = memoryview(data.reshape(-1).view(np.uint8).data)
        with output_errors(self._folder):
            while rest:
                rest = rest[file.write(rest) :]

    def table(self, count: int, dtype: np.dtype) -> PagedTable:
        """Return a new table of zeros.

        Raises
        ------
        OutputError
            when the disk is full.
        """
        if not self.spilled:
            return self.held(np.zeros(count, dtype))
        file = self.file()
        with output_errors(self._folder):
            # Mapped memory without a place on the disk would kill the process.
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        return self.mapped(file, dtype)

    def held(self, rows: np.ndarray) -> PagedTable:
        """Return a table of an array in memory."""
        return PagedTable(rows, self._left, None)

    def mapped(self, file: IO[bytes], dtype: np.dtype) -> PagedTable:
        """Return a table of all rows in a file."""
        with output_errors(self._folder):
            whole = mmap.mmap(file.fileno(), 0)
        found = PagedTable(np.frombuffer(whole, dtype), self._left, whole)
        self._tables.append(found)
        return found

    def numbers(self) -> NumberList:
        """Return a new list."""
        return NumberList(self)

    def let_go(self) -> None:
        """Let go of the pages of all tables."""
        for table in self._tables:
            table.let_go()
        self._left[0] = self._most

    def run(self, kernel: Callable[..., bool], *given: Any) -> None:
        """Call a kernel, which notes in its arguments where it stopped, until it returns True."""
        with self._lock:
            while not kernel(*given):
                if self._left[0] <= 0:
                    self.let_go()

    def filled(
        self, kernel: Callable[..., bool], *given: Any, state: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Call a kernel that hands out numbers; yield them chunk by chunk, each until the next.

        Its last arguments are an array for the numbers and `state`; its last element is how many
        there are in the array. It returns False when the array is full, too.
        """
        out, done = np.empty(CHUNK, np.int64), False
        while not done:
            state[-1] = 0
            with self._lock:
                while not (done := kernel(*given, out, state)) and state[-1] < CHUNK:
                    self.let_go()
            yield out[: state[-1]]

    def copy(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of consecutive elements of a column."""
        found = np.empty(len(rows), rows.dtype)
        step = max((self._most << PAGE_BITS) // max(rows.strides[0], 1), 1)
        with self._lock:
            for k in range(0, len(rows), step):
                found[k : k + step] = rows[k : k + step]
                if self.spilled:
                    self.let_go()
        return found

    def close(self) -> None:
        """Remove the files."""
        self._tables = []
        for file in self._files:
            file.close()


class Gathered:
    """Rows that are appended and then become a table; all is spilled if they do not fit.

    Parameters
    ----------
    dtype
        Of the rows.
    room, each
        Bytes of memory, and those that a row will take in all tables and lists together.

    Attributes
    ----------
    count
        Number of rows.
    """

    def __init__(self, paged: Paged, dtype: np.dtype, room: int, each: int) -> None:
        self._paged, self._dtype, self._room, self._each = paged, dtype, room, each
        self._parts: list[np.ndarray] = []
        self._file: IO[bytes] | None = None
        self.count = 0

    def append(self, rows: np.ndarray) -> None:
        """Append an array, which must not change from now on.

        Raises
        ------
        OutputError
            when the disk is full.
        """
        self.count += len(rows)
        self._parts.append(rows)
        if self.count * self._each > self._room:
            self._write()

    def _write(self) -> IO[bytes]:
        if self._file is None:
            self._paged.spill()
            self._file = self._paged.file()
        for part in self._parts:
            self._paged.write(self._file, part)
        self._parts = []
        return self._file

    def table(self) -> PagedTable:
        """Return the table of all rows."""
        if self._file is not None:
            return self._paged.mapped(self._write(), self._dtype)
        rows, done = np.empty(self.count, self._dtype), 0
        self._parts.reverse()
        while self._parts:
            part = self._parts.pop()
            rows[done : done + len(part)] = part
            done += len(part)
        return self._paged.held(rows)
