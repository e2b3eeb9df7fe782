"""GPU memory of shortest paths: padded arrays, and staging buffers for blocks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....cuda.arrays import DeviceArray
from ....grid import ceil_div, round_up
from .variants import SIDE

_SHIFT = 31
"""Number of cells in front of a padded array, so that tiles begin at multiples of 32 cells."""


@dataclass(frozen=True)
class Shape:
    """The shape of a raster and of its padded arrays: with rings, and padded to whole tiles.

    Attributes
    ----------
    rows, cols
        Shape of the raster.
    halo
        Number of rings, see `knights.halo_of`.
    """

    rows: int
    cols: int
    halo: int = 1

    @property
    def tiles(self) -> tuple[int, int]:
        return ceil_div(self.rows, SIDE), ceil_div(self.cols, SIDE)

    @property
    def pitch(self) -> int:
        """Number of cells from one padded row to the next."""
        return round_up(self.cols, SIDE) + 2 * SIDE

    @property
    def padded(self) -> int:
        """Number of padded rows."""
        return round_up(self.rows, SIDE) + 2 * self.halo

    @property
    def cells(self) -> int:
        """Number of cells of a padded array, and in front of it."""
        return self.padded * self.pitch + self.front

    @property
    def front(self) -> int:
        """Number of cells in front of the corner of the inner ring."""
        return _SHIFT + (self.halo - 1) * self.pitch


def padded(shape: Shape, dtype: np.dtype, value: Any, planes: int = 1) -> Any:
    """A padded array on the device, filled with `value`, from a corner of the inner ring on.

    What lies further out is in front of it. Of several planes, one follows the other.
    """
    import cupy

    size = planes * shape.padded * shape.pitch
    return cupy.full(size + shape.front, value, dtype)[shape.front :]


NOTES = ("negative", "far", "blocked", "below", "reached", "valid", "flats", "lost")
LEAST_NOTES = 4
"""How many of the notes in kernels/notes.cuh are minima; the others are counts."""


def new_notes() -> DeviceArray:
    import cupy

    counts = len(NOTES) - LEAST_NOTES
    return cupy.array([2**64 - 1] * LEAST_NOTES + [0] * counts, np.uint64)


class BlockStaging:
    """Buffers for a block in page-locked memory and on the device, with a stream of their own."""

    def __init__(self, size: int) -> None:
        import cupy

        self.host = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.device = cupy.empty(size, np.uint8)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.id = cupy.cuda.Device().id

    def array(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """The host buffer as an array."""
        return self.host[: shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)

    def copy(self, size: int, *, back: bool) -> None:
        """Copy to the device, or back; copying back waits until it is complete."""
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
        self._entered.__exit__(*error)  # leaves all contexts, even if waiting for the stream fails
