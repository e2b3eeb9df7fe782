"""The CPU or a GPU: arrays, waiting, memory, and blocks as a GPU has them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from terrain_gpu.grid import TILE


class _Cupy:
    """CuPy, imported when it is used: cases are listed without a GPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("cupy"), name)


cupy: Any = _Cupy()


def free() -> None:
    """Give memory back that CuPy keeps."""
    cupy.get_default_memory_pool().free_all_blocks()


def tiles_of(z: Any, block: int = 1024) -> np.ndarray:
    """A square of cells as blocks, row by row, each as tiles in Z-order; in the host's memory."""
    n, bits = len(z) // block, (block // TILE).bit_length() - 1
    order = [0, bits + 2]
    for b in range(bits):
        order += [1 + b, bits + 3 + b]
    order += [bits + 1, 2 * bits + 3]
    parts = z.reshape((n, *(2,) * bits, TILE) * 2).transpose(order)
    xp = np if isinstance(z, np.ndarray) else cupy
    tiles = xp.ascontiguousarray(parts).reshape(n * n, -1, TILE, TILE)
    return tiles if xp is np else tiles.get()


class Machine:
    """Where arrays lie and calls run."""

    def __init__(self, backend: str) -> None:
        self.backend: Any = backend
        self.xp: Any = np if backend == "cpu" else import_module("cupy")

    def sync(self) -> None:
        """Wait for all that runs."""
        if self.xp is not np:
            cupy.cuda.Device().synchronize()

    def free(self) -> None:
        """Give memory of the GPU back."""
        if self.xp is not np:
            free()

    def once(self, call: Callable[..., Any], *words: Any, **how: Any) -> tuple[float, Any]:
        """Milliseconds of a call, and its result."""
        self.sync()
        begin = time.perf_counter()
        found = call(*words, **how)
        self.sync()
        return 1e3 * (time.perf_counter() - begin), found

    def median(
        self, call: Callable[..., Any], *words: Any, least: float = 0, **how: Any
    ) -> tuple[float, Any]:
        """Median milliseconds after a warm-up, over three times or `least` seconds; the result."""
        _, found = self.once(call, *words, **how)
        times: list[float] = []
        while len(times) < 3 or sum(times) < 1e3 * least:
            found = None
            spent, found = self.once(call, *words, **how)
            times.append(spent)
        return statistics.median(times), found
