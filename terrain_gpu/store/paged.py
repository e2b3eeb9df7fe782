"""Tables that kernels visit in any order, in memory or in a file that is mapped: `Paged`.

Mapped pages count as memory of the process until they are released. So kernels count the pages that
they touch, and return when there is no room for more. Then all pages are released, and the kernel
continues where it stopped. Results do not depend on where tables are stored.
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
"""Linux maps 64 KiB around a byte that is read; this is the exponent of 2."""
_SPARE = 64
"""Pages that a kernel may touch between two checks for room."""
_BESIDE = 4 << 20
"""Bytes of the room that are reserved for chunks of tables and of `NumberList`."""
LEAST_ROOM = 16 << 20
_MOST = 1 << 18
"""Largest number of pages that are mapped at a time."""
CHUNK = 1 << 16
"""Number of values that a kernel receives or returns at a time."""


class Pages(NamedTuple):
    """The pages of a table, for kernels.

    Attributes
    ----------
    seen
        bool: the pages touched so far; all True if pages need not be counted.
    size
        Bytes of a row.
    left
        int64, shape (1,): number of pages that may still be touched, shared by all tables.
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
        The pages of the rows, for kernels.
    """

    def __init__(self, rows: np.ndarray, left: np.ndarray, whole: mmap.mmap | None) -> None:
        self.rows, self._whole = rows, whole
        count = (rows.nbytes >> PAGE_BITS) + 1
        self.pages = Pages(np.full(count, whole is None), rows.itemsize, left)

    def release(self) -> None:
        """Release all pages; the file keeps their content."""
        if self._whole is not None:
            self._whole.madvise(mmap.MADV_DONTNEED)
            self.pages.seen[:] = False


class NumberList:
    """A list of int64 numbers, appended and read in chunks, in memory or in a file."""

    def __init__(self, paged: Paged) -> None:
        self._paged, self._parts = paged, list[np.ndarray]()
        self._file = paged.file() if paged.spilled else None
        self._counts: list[int] = []

    def append(self, numbers: np.ndarray) -> None:
        """Append a copy of an array."""
        if not len(numbers):
            return
        self._counts.append(len(numbers))
        if self._file is None:
            self._parts.append(numbers.copy())
        else:
            self._paged.write(self._file, numbers)

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
    """Tables and lists, in memory unless `spill` was called before they were created.

    Files have no name, so that a killed process leaves nothing behind.

    Parameters
    ----------
    folder
        Folder for the files, created when needed.
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
        """Store all tables and lists that are created from now on in files."""
        self.spilled = True

    def file(self) -> IO[bytes]:
        """Return a new file."""
        with output_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
        self._files.append(file)
        return file

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
            # Without space on the disk, writing to mapped memory would kill the process.
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        return self.mapped(file, dtype)

    def held(self, rows: np.ndarray) -> PagedTable:
        """Return a table of an array in memory."""
        return PagedTable(rows, self._left, None)

    def mapped(self, file: IO[bytes], dtype: np.dtype) -> PagedTable:
        """Return a table of all rows in a file."""
        with output_errors(self._folder):
            whole = mmap.mmap(file.fileno(), 0)
        table = PagedTable(np.frombuffer(whole, dtype), self._left, whole)
        self._tables.append(table)
        return table

    def numbers(self) -> NumberList:
        """Return a new list."""
        return NumberList(self)

    def release(self) -> None:
        """Release the pages of all tables."""
        for table in self._tables:
            table.release()
        self._left[0] = self._most

    def run(self, kernel: Callable[..., bool], *arguments: Any) -> None:
        """Call a kernel until it returns True; it records in its arguments where it stopped."""
        with self._lock:
            while not kernel(*arguments):
                if self._left[0] <= 0:
                    self.release()

    def filled(
        self, kernel: Callable[..., bool], *arguments: Any, state: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Call a kernel that returns numbers; yield them in chunks, each valid until the next.

        The last arguments of the kernel are an array for the numbers and `state`, whose last
        element is the count of numbers in the array. It also returns False when the array is full.
        """
        out, done = np.empty(CHUNK, np.int64), False
        while not done:
            state[-1] = 0
            with self._lock:
                while not (done := kernel(*arguments, out, state)) and state[-1] < CHUNK:
                    self.release()
            yield out[: state[-1]]

    def copy(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of consecutive elements of a column."""
        copied = np.empty(len(rows), rows.dtype)
        step = max((self._most << PAGE_BITS) // max(rows.strides[0], 1), 1)
        with self._lock:
            for k in range(0, len(rows), step):
                copied[k : k + step] = rows[k : k + step]
                if self.spilled:
                    self.release()
        return copied

    def close(self) -> None:
        """Remove the files."""
        self._tables = []
        for file in self._files:
            file.close()


class Gathered:
    """Rows that are appended and then become a table; all are spilled if they do not fit.

    Parameters
    ----------
    dtype
        Type of the rows.
    room, each
        Bytes of memory available, and bytes that a row takes in all tables and lists together.

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
