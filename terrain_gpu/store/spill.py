"""Slots for arrays that are rewritten repeatedly, from which a killed run can resume.

`Slots` are parts of one file. The file NAME.saved next to NAME holds a record of 8 bytes for each
slot: 1, and the CRC-32C of the saved data. A slot that was only partly written, or lost in a power
cut, does not match its record and is treated as empty. `CodedSlots` are compressed, and `HeldSlots`
are also held in memory.

`SlotFiles` are separate files, for the processes of a cluster.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import StoreError
from ..grid import ceil_div
from .checksums import crc32c
from .codecs import code_tiles, decode_tiles
from .coding import most_bytes
from .files import output_errors, sync_folder
from .swap import withdraw

_RECORD = struct.Struct("<II")


class Slots:
    """Numbered slots for arrays of at most `slot_bytes`.

    Parameters
    ----------
    path
        The file, created when the first array is saved.
    count, slot_bytes
        Number of slots, and the size of one.
    resume
        Keep the slots that an earlier run saved; otherwise they are discarded.
    """

    def __init__(self, path: Path, count: int, slot_bytes: int, *, resume: bool = False) -> None:
        self.path, self.count, self._slot_bytes = path, count, slot_bytes
        self._records = path.with_name(f"{path.name}.saved")
        self._lock = threading.Lock()
        self._files: tuple[int, int] | None = None
        self.sums: dict[int, int] = {}
        """CRC-32C of the saved data, by slot."""
        if resume and path.exists() and self._records.exists():
            with output_errors(path):
                self._files = os.open(path, os.O_RDWR), os.open(self._records, os.O_RDWR)
                saved = self._records.read_bytes()[: count * _RECORD.size]
            records = np.frombuffer(saved[: len(saved) // 8 * 8], "<u4").reshape(-1, 2)
            self.sums = {int(k): int(records[k, 1]) for k in np.flatnonzero(records[:, 0] == 1)}

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.sums))

    def __contains__(self, slot: int) -> bool:
        return slot in self.sums

    def _open(self) -> tuple[int, int]:
        with self._lock:
            if self._files is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
                self._files = os.open(self.path, flags, 0o666), os.open(self._records, flags, 0o666)
            return self._files

    def save(self, slot: int, array: np.ndarray) -> None:
        """Write a contiguous array to a slot; only one thread at a time may write to a slot.

        Raises
        ------
        OutputError
            when the disk is full.
        """
        data = array.reshape(-1).view(np.uint8)
        self._put(slot, [data], crc32c(data))

    def _put(self, slot: int, parts: Sequence[Any], crc: int) -> None:
        """Write a slot, and its record with a checksum."""
        offset = slot * self._slot_bytes
        with output_errors(self.path):
            file, records = self._open()
            for part in parts:
                rest = memoryview(part)
                while rest:
                    written = os.pwrite(file, rest, offset)
                    rest, offset = rest[written:], offset + written
            os.pwrite(records, _RECORD.pack(1, crc), slot * _RECORD.size)
        self.sums[slot] = crc

    def load(self, slot: int, array: np.ndarray) -> None:
        """Read a slot into a contiguous array of the saved size.

        Raises
        ------
        StoreError
            when the slot does not match its checksum.
        """
        if not self.is_whole(slot, array):
            raise StoreError(
                f"{self.path}: damaged: slot {slot} differs from its checksum; compute again with "
                "--overwrite"
            )

    def is_whole(self, slot: int, array: np.ndarray) -> bool:
        """Like `load`, but return whether the slot matches its checksum; if not, empty it."""
        whole = self._get(slot, array.reshape(-1).view(np.uint8))
        if not whole:
            self.sums.pop(slot, None)
        return whole

    def _get(self, slot: int, data: np.ndarray) -> bool:
        return self._read(slot, 0, data) and crc32c(data) == self.sums.get(slot)

    def _read(self, slot: int, start: int, data: np.ndarray) -> bool:
        """Fill an array with bytes of a slot from `start`; return whether there are enough."""
        rest, offset = memoryview(data.data), slot * self._slot_bytes + start
        with output_errors(self.path):
            while rest:
                read = os.preadv(self._open()[0], [rest], offset)
                if not read:
                    return False
                rest, offset = rest[read:], offset + read
        return True

    def sync(self) -> None:
        """Sync all saved arrays to the disk, so that they survive a power cut."""
        if self._files is None:
            return
        with output_errors(self.path):
            for file in self._files:
                os.fsync(file)
            sync_folder(self.path.parent)

    def close(self, *, keep: bool = True) -> None:
        """Close the file; remove it unless `keep`."""
        with self._lock, ExitStack() as closing:
            for file in self._files or ():
                closing.callback(os.close, file)
            self._files = None
        if not keep:
            self.path.unlink(missing_ok=True)
            self._records.unlink(missing_ok=True)


PART = 1 << 20
"""Number of bytes of an array that `CodedSlots` encodes at a time."""

_CODEC, _PIECES = "blosc-lz4", 4


def _pieces(cells: np.ndarray, count: int = _PIECES) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield pieces of several parts of equal length, and the rest: part numbers and rows of cells.

    Cells are viewed as floats: blosc then reorders bytes instead of bits, which would take 1.6
    times as long and compress distances no better.
    """
    cells = cells.view(f"f{cells.itemsize}")
    step = PART // cells.itemsize
    whole = len(cells) // step
    some = ceil_div(whole, count)
    for k in range(0, whole, some or 1):
        parts = slice(k, min(k + some, whole))
        yield parts, cells[parts.start * step : parts.stop * step].reshape(-1, step)
    if len(cells) % step:
        yield slice(whole, whole + 1), cells[whole * step :].reshape(1, -1)


class CodedSlots(Slots):
    """Slots for arrays that are compressed with blosc-lz4.

    The file is sparse: it takes only the disk space of the saved data. A slot holds the length and
    the CRC-32C of each encoded part (uint32), then the parts. The checksum in its record is that of
    the lengths and checksums. Saving and loading take the memory of at most one more array, which
    is reused.

    Parameters
    ----------
    threads
        Number of threads that encode pieces of arrays, for all threads that save and load.
    """

    def __init__(
        self,
        path: Path,
        count: int,
        slot_bytes: int,
        dtype: np.dtype,
        *,
        resume: bool = False,
        threads: int = 1,
    ) -> None:
        most = ceil_div(slot_bytes, PART) * (8 + most_bytes(min(PART, slot_bytes)))
        super().__init__(path, count, most, resume=resume)
        self._dtype = dtype
        self._rooms: list[np.ndarray] = []
        self._pool = ThreadPoolExecutor(threads)

    @contextmanager
    def _room(self) -> Iterator[np.ndarray]:
        """A buffer for encoded parts; there are as many as threads need at the same time."""
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.empty(self._slot_bytes, np.uint8)
        yield room
        self._rooms.append(room)

    def save(self, slot: int, array: np.ndarray, *, alone: bool = False) -> None:
        """Like `Slots.save`; with `alone`, encode in the caller's thread."""
        table = np.empty((ceil_div(array.nbytes, PART), 2), "<u4")
        with self._room() as room:

            def code(piece: tuple[slice, np.ndarray]) -> np.ndarray:
                parts, rows = piece
                coded = room[parts.start * most_bytes(PART) :]
                lengths, sums = code_tiles(_CODEC, rows, np.arange(len(rows)), coded)
                table[parts, 0], table[parts, 1] = lengths, sums
                return coded[: lengths.sum()]

            count, each = (1, map) if alone else (_PIECES, self._pool.map)
            coded = list(each(code, _pieces(array.reshape(-1), count)))
            head = table.reshape(-1).view(np.uint8)
            self._put(slot, [head, *coded], crc32c(head))

    def _get(self, slot: int, data: np.ndarray) -> bool:
        table = np.empty((ceil_div(len(data), PART), 2), "<u4")
        head = table.reshape(-1).view(np.uint8)
        if not self._read(slot, 0, head) or crc32c(head) != self.sums.get(slot):
            return False
        lengths, sums = table[:, 0].astype(np.int64), table[:, 1]
        if lengths.max() > most_bytes(PART):
            return False
        starts = np.cumsum(lengths) - lengths
        with self._room() as room:
            coded = room[: lengths.sum()]

            def decode(piece: tuple[slice, np.ndarray]) -> bool:
                parts, rows = piece
                where = starts[parts], lengths[parts], sums[parts]
                return decode_tiles(_CODEC, coded, *where, rows)

            pieces = _pieces(data.view(self._dtype))
            return self._read(slot, head.nbytes, coded) and all([*self._pool.map(decode, pieces)])

    def close(self, *, keep: bool = True) -> None:
        self._pool.shutdown()
        super().close(keep=keep)


def _cells_of(buffer: np.ndarray, array: np.ndarray) -> np.ndarray:
    """The beginning of a buffer, in the shape of an array."""
    return buffer[: array.nbytes].view(array.dtype).reshape(array.shape)


class HeldSlots:
    """Slots whose arrays stay in memory while there is room, and are saved in the background.

    An array that is saved again before it is written is written once. Write errors are raised by
    later calls, at the latest by `sync`; no call waits for a buffer after an error.

    Parameters
    ----------
    slots
        Where arrays are saved. Only one thread at a time may save or load a slot.
    most_bytes
        Size of the largest array in bytes.
    room
        Number of arrays held in memory; with 0, saving waits for the file.
    threads
        Number of threads that save.
    """

    def __init__(self, slots: CodedSlots, most_bytes: int, room: int, threads: int) -> None:
        self._slots, self._most_bytes = slots, most_bytes
        self._holds, self._unused = room > 0, room
        self._held: dict[int, tuple[np.ndarray, Future[None]]] = {}
        """Buffers that no thread is using, least recently used first."""
        self._changed = threading.Condition()
        self._pool = ThreadPoolExecutor(threads)

    def save(self, slot: int, array: np.ndarray) -> None:
        """Copy a contiguous array, to be written later."""
        if not self._holds:
            self._slots.save(slot, array)
            return
        buffer, saving = self._take(slot)
        try:
            if saving is None:
                buffer = self._free_buffer()
            elif not saving.cancel():
                saving.result()
            cells = _cells_of(buffer, array)
            cells[...] = array
            saving = self._pool.submit(self._slots.save, slot, cells, alone=True)
        except BaseException as error:
            if buffer is not None:  # others may be waiting for a buffer: they fail as well
                saving = Future()
                saving.set_exception(error)
                self._put_back(slot, buffer, saving)
            raise
        self._put_back(slot, buffer, saving)
        saving.add_done_callback(self._tell)

    def load(self, slot: int, array: np.ndarray) -> None:
        """See `Slots.load`."""
        buffer, saving = self._take(slot)
        if saving is None:
            self._slots.load(slot, array)
        else:
            array[...] = _cells_of(buffer, array)
            self._put_back(slot, buffer, saving)

    def _take(self, slot: int) -> tuple[Any, Future[None] | None]:
        with self._changed:
            return self._held.pop(slot, (None, None))

    def _put_back(self, slot: int, buffer: np.ndarray, saving: Future[None]) -> None:
        with self._changed:
            self._held[slot] = buffer, saving
            self._changed.notify_all()

    def _tell(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _free_buffer(self) -> np.ndarray:
        """A new buffer, or the buffer of a slot that has been written."""
        with self._changed:
            while not self._unused:
                for slot, (buffer, saving) in self._held.items():
                    if saving.done():
                        saving.result()
                        del self._held[slot]
                        return buffer
                self._changed.wait()
            buffer = np.empty(self._most_bytes, np.uint8)
            self._unused -= 1
            return buffer

    def sync(self) -> None:
        """Write all saved arrays and sync them to the disk, even if a slot cannot be written."""
        savings = [saving for _, saving in self._held.values()]
        wait(savings)
        self._slots.sync()
        for saving in savings:
            saving.result()

    def close(self, *, keep: bool = True) -> None:
        """Close the file; remove it unless `keep`."""
        self._pool.shutdown(cancel_futures=not keep)
        self._held.clear()
        self._slots.close(keep=keep)


_SLOT_FILE = re.compile("([0-9]{1,18})-[0-9a-f]{32}")


def _matches_checksum(path: Path) -> bool:
    """Whether a file of `SlotFiles` is whole."""
    data = np.fromfile(path, np.uint8)
    body, end = data[: -_RECORD.size], data[-_RECORD.size :]
    return end.tobytes() == _RECORD.pack(1, crc32c(body))


class SlotFiles:
    """Numbered slots for arrays that several processes save.

    Every saved array is a new file, with its checksum. It becomes the content of the slot when the
    process with the list of `names` registers it, so a process that was given up and saves late
    changes nothing.

    Parameters
    ----------
    folder
        Folder of the files; other processes do not create it.
    names
        Names of the files, by slot.
    """

    def __init__(self, folder: Path, names: dict[int, str] | None = None) -> None:
        self.folder, self.names = folder, names or {}

    @classmethod
    def beside(cls, path: Path) -> SlotFiles:
        """Slots in a new folder next to `path`, which is created by `begin`."""
        return cls(path.with_name(f"{path.name}-{uuid.uuid4().hex}"))

    @classmethod
    def left(cls, path: Path) -> SlotFiles:
        """Slots that an earlier run left next to `path`, moved to a new folder.

        Late processes of that run know only the old folder. If there are several files for a slot,
        all but one may be incomplete, from processes that were killed.
        """
        slots = cls.beside(path)
        with output_errors(slots.folder):
            for old in path.parent.glob(f"{path.name}-*"):
                slots.begin()
                for file in old.iterdir():
                    if not (name := _SLOT_FILE.fullmatch(file.name)):
                        continue  # not ours: from a network file system, for example
                    slot = int(name[1])
                    if slot not in slots or _matches_checksum(file):
                        os.rename(file, slots.folder / file.name)
                        slots.rename(slot, file.name)
                withdraw(old)
        return slots

    def begin(self) -> None:
        """Create the folder, before other processes save there."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self.names))

    def __contains__(self, slot: int) -> bool:
        return slot in self.names

    def save(self, slot: int, array: np.ndarray) -> None:
        """Write a contiguous array to a new file, which becomes the content of the slot.

        Raises
        ------
        OutputError
            when the disk is full, or the folder was removed.
        """
        data, name = array.reshape(-1).view(np.uint8), f"{slot}-{uuid.uuid4().hex}"
        path = self.folder / name
        with output_errors(path):
            try:
                with open(path, "xb") as file:
                    file.write(data.data)
                    file.write(_RECORD.pack(1, crc32c(data)))
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                raise
        self.names[slot] = name

    def load(self, slot: int, array: np.ndarray) -> None:
        """Read a slot into a contiguous array of the saved size.

        Raises
        ------
        StoreError
            when the slot does not match its checksum.
        """
        path = self.folder / self.names[slot]
        if not self.is_whole(slot, array):
            raise StoreError(f"{path}: damaged; compute again with --overwrite")

    def is_whole(self, slot: int, array: np.ndarray) -> bool:
        """Like `load`, but return whether the slot matches its checksum; if not, empty it."""
        data, path = array.reshape(-1).view(np.uint8), self.folder / self.names[slot]
        with output_errors(path), open(path, "rb") as file:
            whole = file.readinto(data.data) == len(data)
            whole = whole and file.read() == _RECORD.pack(1, crc32c(data))
        if not whole:
            del self.names[slot]
        return whole

    def rename(self, slot: int, name: str) -> None:
        """Use the file that another process has saved for a slot, and remove the previous one."""
        before, self.names[slot] = self.names.get(slot, name), name
        if before != name:
            with suppress(OSError):
                os.unlink(self.folder / before)

    def forget(self, slot: int) -> None:
        """Empty a slot, and remove its file."""
        with suppress(OSError):
            os.unlink(self.folder / self.names.pop(slot))

    def sync(self) -> None:
        """Do nothing: a file lost in a power cut does not match its checksum."""

    def close(self, *, keep: bool = True) -> None:
        """Remove the files unless `keep`; processes that save later fail."""
        if not keep:
            withdraw(self.folder)
