"""A file of equal slots for arrays, rewritten repeatedly, from which a killed run can resume.

The file NAME.saved beside NAME holds a record of 8 bytes for each slot: 1, and the CRC-32C of the
saved data. A slot that was only partly written, or lost in a power cut, does not match its record
and counts as empty.
"""

from __future__ import annotations

import os
import struct
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ..errors import StoreError
from .checksums import crc32c
from .files import output_errors, sync_folder

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
                found = self._records.read_bytes()[: count * _RECORD.size]
            known = np.frombuffer(found[: len(found) // 8 * 8], "<u4").reshape(-1, 2)
            self.sums = {int(k): int(known[k, 1]) for k in np.flatnonzero(known[:, 0] == 1)}

    def _open(self) -> tuple[int, int]:
        with self._lock:
            if self._files is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                how = os.O_RDWR | os.O_CREAT | os.O_TRUNC
                self._files = os.open(self.path, how, 0o666), os.open(self._records, how, 0o666)
            return self._files

    def save(self, slot: int, array: np.ndarray) -> None:
        """Write a contiguous array to a slot; only one thread at a time may write to a slot.

        Raises
        ------
        OutputError
            when the disk is full.
        """
        data = array.reshape(-1).view(np.uint8)
        crc = crc32c(data)
        with output_errors(self.path):
            file, records = self._open()
            rest, offset = memoryview(data.data), slot * self._slot_bytes
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
        """As `load`, but returns whether the slot matches its checksum; if not, it is emptied."""
        data = array.reshape(-1).view(np.uint8)
        rest, offset = memoryview(data.data), slot * self._slot_bytes
        with output_errors(self.path):
            while rest:
                read = os.preadv(self._open()[0], [rest], offset)
                if not read:
                    break
                rest, offset = rest[read:], offset + read
        whole = not rest and crc32c(data) == self.sums.get(slot)
        if not whole:
            self.sums.pop(slot, None)
        return whole

    def sync(self) -> None:
        """Sync everything saved to the disk, so that it survives a power cut."""
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
