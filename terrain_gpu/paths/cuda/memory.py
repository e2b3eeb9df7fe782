"""Memory of shortest paths on a GPU: padded arrays, and blocks on their way there and back."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...grid import ceil_div, round_up
from .variants import SIDE

_SHIFT = 31
"""Cells in front of a padded array, so that tiles begin at multiples of 32 cells."""


@dataclass(frozen=True)
class Shape:
    """A raster and its padded arrays: a ring around it, up to whole tiles.

    Attributes
    ----------
    rows, cols
        Of the raster.
    """

    rows: int
    cols: int

    @property
    def tiles(self) -> tuple[int, int]:
        return ceil_div(self.rows, SIDE), ceil_div(self.cols, SIDE)

    @property
    def pitch(self) -> int:
        """Cells from one padded row to the next."""
        return round_up(self.cols, SIDE) + 2 * SIDE

    @property
    def padded(self) -> int:
        """Padded rows."""
        return round_up(self.rows, SIDE) + 2

    @property
    def cells(self) -> int:
        """Of a padded array."""
        return self.padded * self.pitch + _SHIFT


def padded(shape: Shape, dtype: np.dtype, value: Any) -> Any:
    """An array on the device, all cells of one value; its first is the ring's corner."""
    import cupy

    return cupy.full(shape.cells, value, dtype)[_SHIFT:]


NOTES = ("negative", "far", "blocked", "reached", "valid", "flats", "lost")
LEAST_NOTES = 3
"""Notes in kernels/notes.cuh; the first ones are least numbers, the others counts."""


def new_notes() -> Any:
    import cupy

    counts = len(NOTES) - LEAST_NOTES
    return cupy.array([2**64 - 1] * LEAST_NOTES + [0] * counts, np.uint64)


class BlockStaging:
    """Room for a block in page-locked memory and on the device, and a stream between them."""

    def __init__(self, size: int) -> None:
        import cupy

        self.host = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.device = cupy.empty(size, np.uint8)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.id = cupy.cuda.Device().id

    def array(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """The host's room as an array."""
        return self.host[: shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)

    def copy(self, size: int, *, back: bool) -> None:
        """Copy to the device, or back; waits for the latter."""
        from cupy.cuda import runtime

        pair = (self.device.data.ptr, self.host.ctypes.data)
        to, source = pair[::-1] if back else pair
        kind = runtime.memcpyDeviceToHost if back else runtime.memcpyHostToDevice
        runtime.memcpyAsync(to, source, size, kind, self.stream.ptr)

    def __enter__(self) -> BlockStaging:
        import cupy

        with ExitStack() as entered:
            entered.enter_context(cupy.cuda.Device(self.id))
            entered.enter_context(self.stream)
            entered.callback(self.stream.synchronize)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)  # all of it, also where waiting for the stream fails
