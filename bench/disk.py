"""What the disk alone takes: a cold cache, and a floor for a run that reads and writes as much."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = min(16, os.cpu_count() or 1)


def cold(store: Path | None = None) -> None:
    """Drop what the system holds of files; without the right to, of those of a store."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        for file in store.rglob("*") if store else ():
            if file.is_file():
                with open(file, "rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def floor(store: Path, files: list[Path], sizes: list[int]) -> tuple[float, float]:
    """Seconds to read files of a store in parallel, and to write others of these sizes, synced."""
    folder, part = store.with_name("floor"), os.urandom(max(sizes))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def write(k: int) -> None:
        with open(folder / str(k), "wb", buffering=0) as file:
            file.write(memoryview(part)[: sizes[k]])
            os.fsync(file.fileno())

    cold(store)
    with ThreadPoolExecutor(THREADS) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda file: len(file.read_bytes()), files))
        middle = time.perf_counter()
        list(pool.map(write, range(len(sizes))))
        end = time.perf_counter()
    shutil.rmtree(folder)
    return middle - begin, end - middle
