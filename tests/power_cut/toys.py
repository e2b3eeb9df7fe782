"""Small programs that the harness itself is tested with."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np

OLD, NEW = b"old" * 1000, b"new" * 1000


def careful(root: Path) -> None:
    """Replace a file correctly."""
    _replace(root, data=True)
    folder = os.open(root, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def careless(root: Path) -> None:
    """Replace a file without any fsync."""
    _replace(root, data=False)


def _replace(root: Path, *, data: bool) -> None:
    with open(root / "new", "wb") as file:
        file.write(NEW)
        file.flush()
        if data:
            os.fsync(file.fileno())
    os.replace(root / "new", root / "file")


def many_ways(root: Path) -> None:
    """Write by every means of the C library."""
    np.arange(1000).tofile(root / "tofile")
    words = np.memmap(root / "mapped", np.uint8, "w+", shape=9000)
    words[5000:] = 7
    words.flush()
    words[:] = 9
    del words
    with open(root / "mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[1] = 3
    fd = os.open("parts", os.O_RDWR | os.O_CREAT, dir_fd=(folder := os.open(root, os.O_RDONLY)))
    os.writev(fd, [b"one", b"two"])
    os.pwritev(fd, [b"three", b"four"], 10)
    os.pwrite(fd, b"five", 100)
    os.posix_fallocate(fd, 0, 200)
    os.ftruncate(fd, 150)
    os.close(fd)
    os.mkdir("sub", dir_fd=folder)
    os.rename("parts", "sub/parts", src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)
    shutil.copyfile(root / "tofile", root / "sub" / "copy")
    os.truncate(root / "sub" / "copy", 10)
    with open(root / "sub" / "copy", "ab") as file:
        file.write(b"appended")
    with sqlite3.connect(root / "base.sqlite") as base:
        base.execute("create table numbers (n)")
        base.executemany("insert into numbers values (?)", [(n,) for n in range(2000)])
    base.close()
    shutil.copytree(root / "sub", root / "gone")
    shutil.rmtree(root / "gone")
