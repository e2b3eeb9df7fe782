"""The distance index on a GPU: entries of tiles, with the same bits as on the CPU.

Blocks are read as on the CPU. A few rows of tiles are copied to the GPU at a time, and their
entries are copied back row by row. Each thread has a stream of its own, so the GPU computes for one
thread while others read and write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.device import RESERVED, module
from ...engine.plan import format_size
from ...errors import PlanError
from ...grid import TILE, Block, ceil_div
from ..costs import MODELS, Scaled, cuda_parameters
from ..cuda.variants import step_macros
from ..fields import Field

if TYPE_CHECKING:
    from ..ground import Terrain
    from .files import Index

LANES = 32
"""A warp relaxes a tile from this many rim cells at once."""

_GROUPS = ceil_div(4 * TILE - 4, LANES)
"""Warps per tile."""

_WARPS = 4096
"""Number of warps that concurrent launches should have together; enough to fill any GPU."""


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Modules and macros that together cover every line of the kernels, for compile tests."""
    f32, f64, u32, u64 = map(np.dtype, (np.float32, np.float64, np.uint32, np.uint64))
    every, closed, four = (True, True, False), (True, False, True), (False, True, False)
    found = [
        step_macros(MODELS["absdiff"].kernel(), u32, None, u32, every),
        step_macros(MODELS["absdiff"].kernel(), u64, None, u64, four),
        step_macros(MODELS["friction"].kernel(), f32, None, f64, every),
        step_macros(MODELS["minimax"].kernel(), f32, None, f64, every),
        step_macros(MODELS["tobler"].kernel(), f32, None, f64, closed),
        step_macros(Scaled(MODELS["surface"].kernel()), f64, f64, f64, four),
    ]
    return [("index", macros) for macros in found]


def plan(index: Index, threads: int, limit: int) -> tuple[int, int]:
    """Number of threads, and of tile rows that each solves at once, within a GPU memory limit.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    item = index.dtype.itemsize
    # Scratch, steps, and two sets of entries: one is copied back while the next is computed.
    one = (_GROUPS * LANES + 8) * TILE * TILE * item + 2 * index.entries * item
    one += (TILE + 2) ** 2 * (8 + 8 + 1)  # heights, frictions, masks
    down, across = index.chunk
    one *= across
    if limit < RESERVED + one:
        raise PlanError(
            f"a distance index of blocks of {index.blocks.block} takes "
            f"{format_size(RESERVED + one)} of GPU memory, more than {format_size(limit)}; raise "
            "--gpu-memory-limit, convert with a smaller --block-size, or use --backend cpu"
        )
    threads = min(threads, (limit - RESERVED) // one)
    wanted = ceil_div(_WARPS, threads * across * _GROUPS)
    return threads, min(down, wanted, (limit - RESERVED) // (threads * one))


class GpuEntrySolver:
    """Computes the entries of blocks, one block at a time.

    Parameters
    ----------
    options
        (diagonal, corner_cutting, reverse).
    nothing
        Distance of a rim cell from itself.
    tile_rows
        Number of rows of tiles to solve at once.
    """

    def __init__(
        self,
        terrain: Terrain,
        options: tuple[bool, bool, bool],
        index: Index,
        nothing: Any,
        tile_rows: int,
    ) -> None:
        import cupy

        from .tile import CROSSINGS

        self.terrain, self.index, self.nothing = terrain, index, nothing
        self._tile_rows, self._device = tile_rows, cupy.cuda.Device()
        heights, frictions = terrain.types
        friction = None if terrain.friction is None else frictions
        cost = terrain.model.kernel
        self._kernels = module("index", step_macros(cost, heights, friction, index.dtype, options))
        self._parameters = cupy.array(cuda_parameters(cost))
        self._crossings = cupy.array(CROSSINGS[:2])
        shape = index.chunk[1], index.entries
        size = shape[0] * shape[1] * index.dtype.itemsize
        locked = cupy.cuda.alloc_pinned_memory(size)
        self._row = np.frombuffer(locked, index.dtype, shape[0] * shape[1]).reshape(shape)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._device.synchronize()

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Yield the entries of a block, one row of tiles at a time, in a buffer that is reused."""
        field = self.terrain.load(at)
        down, across = self.index.tiles(at)
        self._row[across:] = 0
        for first in range(0, down, self._tile_rows):
            last = min(first + self._tile_rows, down)
            with self._device, self._stream:
                found = self.solve(self.upload(field, first, last), across)
            for entries in found:
                entries.get(self._stream, out=self._row[:across])
                self._stream.synchronize()
                yield self._row

    def upload(self, field: Field, first: int, last: int) -> tuple[Any, ...]:
        """Copy heights, frictions, masks and lengths of some rows of tiles to the device."""
        import cupy

        rows = slice(first * TILE, last * TILE + 2)
        heights = cupy.array(field.heights[rows])
        other = field.frictions is not field.heights
        frictions = cupy.array(field.frictions[rows]) if other else heights
        return (
            heights,
            frictions,
            cupy.array(field.absent[rows]),
            cupy.array(field.lengths[:, rows]),
        )

    def solve(self, cells: tuple[Any, ...], across: int) -> Any:
        """Compute entries from the result of `upload`: (rows, columns, entries), on the device."""
        import cupy

        rows, pitch = cells[0].shape
        down, absent = rows // TILE, cells[2]
        tiles, dtype, count = down * across, self.index.dtype, self.index.entries
        weights = cupy.empty((tiles, 8, TILE, TILE), dtype)
        scratch = cupy.empty((tiles * _GROUPS, TILE, TILE, LANES), dtype)
        entries = cupy.empty((down, across, count), dtype)
        costs = self._parameters, weights
        self._launch("weigh", weights.size // 8, *cells, rows, pitch, tiles, across, *costs)
        how = self.nothing, np.int32(self.index.symmetric), count
        self._kernels.get_function("relax")(
            (tiles * _GROUPS,), (LANES,), (absent, pitch, across, weights, *how, scratch, entries)
        )
        steps = self._crossings.shape[1]
        into = *self._crossings, steps, count, entries
        self._launch("cross", tiles * steps, absent, pitch, tiles, across, weights, *into)
        return entries

    def _launch(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel whose threads each process several items."""
        grid = int(min(ceil_div(count, 256), 1 << 16))
        self._kernels.get_function(name)((grid,), (256,), arguments)
