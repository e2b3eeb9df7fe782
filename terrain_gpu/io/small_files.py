"""Small files of text, read once and whole: `read_small`."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Iterator

from ..engine.plan import format_size

MOST = 256 << 20
"""Bytes that a pipe or a device may have. Regular files end."""

PATIENCE = 5.0
"""Seconds in which a process must begin to write to a pipe."""


def read_small(path: str | os.PathLike[str]) -> str:
    """Read a text in UTF-8 from a regular file, or from a pipe such as ``<(command)``.

    Raises
    ------
    OSError
        when it cannot be read; nothing writes to the pipe; or a device has no end. Its `strerror`
        says which.
    UnicodeError
        when it is not such a text.
    """
    # To open a pipe to which nobody writes would otherwise wait for ever.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(number).st_mode
        data = b"".join(_parts(number, kind))
    finally:
        os.close(number)
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _parts(number: int, kind: int) -> Iterator[bytes]:
    """The bytes of an open file of a kind (`st_mode`)."""
    left, until = MOST, time.monotonic() + PATIENCE
    waits = stat.S_ISFIFO(kind)
    while True:
        try:
            part = os.read(number, 1 << 20)
        except BlockingIOError:  # from now on, there is a process that writes
            waits, poll = False, select.poll()
            poll.register(number, select.POLLIN)
            poll.poll()
            continue
        if part:
            yield part
            waits, left = False, left - len(part)
            if left < 0 and not stat.S_ISREG(kind):
                raise OSError(errno.EFBIG, f"it has no end within {format_size(MOST)}")
        elif not waits:
            return
        elif time.monotonic() > until:
            raise OSError(errno.ETIMEDOUT, "a pipe that no process writes to")
        else:
            time.sleep(0.02)
