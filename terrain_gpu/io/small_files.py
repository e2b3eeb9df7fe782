"""Read small text files as a whole: `read_small`."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Iterator

from ..engine.plan import format_size

MOST = 256 << 20
"""Largest number of bytes read from a pipe or device. Regular files have an end."""

PATIENCE = 5.0
"""Seconds within which a process must begin to write to a pipe."""


def read_small(path: str | os.PathLike[str]) -> str:
    """Read UTF-8 text from a regular file, or from a pipe such as ``<(command)``.

    Raises
    ------
    OSError
        when the file cannot be read, nothing writes to the pipe, or a device has no end; see its
        `strerror`.
    UnicodeError
        when the file is not UTF-8 text.
    """
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(number).st_mode
        data = b"".join(_parts(number, kind))
    finally:
        os.close(number)
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _parts(number: int, kind: int) -> Iterator[bytes]:
    """Yield the bytes of an open file whose `st_mode` is `kind`."""
    left, until = MOST, time.monotonic() + PATIENCE
    waits = stat.S_ISFIFO(kind)
    while True:
        try:
            part = os.read(number, 1 << 20)
        except BlockingIOError:  # a process has opened the pipe for writing
            waits, poll = False, select.poll()
            poll.register(number, select.POLLIN)
            poll.poll()
            continue
        if part:
            yield part
            waits, left = False, left - len(part)
            if left < 0 and not stat.S_ISREG(kind):
                raise OSError(errno.EFBIG, f"it is longer than {format_size(MOST)}")
        elif not waits:
            return
        elif time.monotonic() > until:
            raise OSError(errno.ETIMEDOUT, "it is a pipe that no process writes to")
        else:
            time.sleep(0.02)
