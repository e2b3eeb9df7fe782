"""The distance index on a GPU: entries of tiles, with the same bits as on the CPU.

Blocks are read as on the CPU. A few rows of tiles are copied to the GPU at a time, and their
entries are copied back row by row. Each thread has its own stream, so the GPU computes for one
thread while others read and write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.device import RESERVED, module
from ...engine.plan import format_size
from ...errors import PlanError
from ...facts import Settings
from ...grid import Block, ceil_div
from ..cost.fields import Field
from ..cost.models import MODELS, Scaled, cuda_parameters
from ..relax.gpu.variants import step_macros
from .classic import CLASSIC, scratch_bytes
from .rim import rim_cells, rim_of

if TYPE_CHECKING:
    from ..cost.terrain import Terrain
    from .files import Index

LANES = 32
"""A warp relaxes a tile from this many rim cells at once."""


def _groups(tile: int) -> int:
    """Warps per tile."""
    return ceil_div(rim_cells(tile), LANES)


_WARPS = 4096
"""Total number of warps of concurrent launches; enough to fill any GPU."""


def _macros(tile: int, *how: Any) -> Settings:
    return {"TILE": tile, **step_macros(*how)}


def variants() -> list[tuple[str, Settings]]:
    """Modules and macros that together cover every line of the kernels, for compile tests."""
    f32, f64, u32, u64 = map(np.dtype, (np.float32, np.float64, np.uint32, np.uint64))
    every, closed, four = (True, True, False), (True, False, True), (False, True, False)
    found = [
        _macros(64, MODELS["absdiff"].kernel(), u32, None, u32, every),
        _macros(128, MODELS["absdiff"].kernel(), u64, None, u64, four),
        _macros(32, MODELS["friction"].kernel(), f32, None, f64, every),
        _macros(16, MODELS["minimax"].kernel(), f32, None, f64, every),
        _macros(64, MODELS["tobler"].kernel(), f32, None, f64, closed),
        _macros(128, Scaled(MODELS["surface"].kernel()), f64, f64, f64, four),
    ]
    return [
        (name, macros)
        for name in ("index", "index_classic")
        for macros in (found if name == "index" else found[:4])
    ]


def plan(index: Index, threads: int, limit: int, method: str = "relax") -> tuple[int, int]:
    """Number of threads, and of tile rows that each solves at once, within a GPU memory limit.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    item = index.dtype.itemsize
    # Scratch, steps, and two sets of entries: one is copied back while the next is computed.
    side, groups = index.tile, _groups(index.tile)
    scratch = groups * LANES * side**2 * item
    if method != "relax":
        scratch = scratch_bytes(method, side, item)
    one = scratch + 8 * side**2 * item + 2 * index.entries() * item
    one += (side + 2) ** 2 * (8 + 8 + 1)  # heights, frictions, masks
    down, across = index.chunk()
    one *= across
    if limit < RESERVED + one:
        raise PlanError(
            f"a distance index of blocks of {index.blocks.block} takes "
            f"{format_size(RESERVED + one)} of GPU memory, more than {format_size(limit)}; raise "
            "--gpu-memory-limit, convert with a smaller --block-size, or use --backend cpu"
        )
    threads = min(threads, (limit - RESERVED) // one)
    wanted = ceil_div(_WARPS, threads * across * groups)
    if method == "tournament":  # a tile is a thread there
        wanted = down
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
    method
        "relax", or one of `classic.CLASSIC`.
    """

    def __init__(
        self,
        terrain: Terrain,
        options: tuple[bool, bool, bool],
        index: Index,
        nothing: Any,
        tile_rows: int,
        method: str = "relax",
    ) -> None:
        import cupy

        self.terrain, self.index, self.nothing = terrain, index, nothing
        self._tile_rows, self._device = tile_rows, cupy.cuda.Device()
        heights, frictions = terrain.types
        friction = None if terrain.friction is None else frictions
        cost = terrain.model.kernel
        macros = _macros(index.tile, cost, heights, friction, index.dtype, options)
        self._kernels = [module("index", macros)]
        self._method = CLASSIC.get(method, GpuEntrySolver._relax)
        if method in CLASSIC:
            self._kernels.append(module("index_classic", macros))
        self._parameters = cupy.array(cuda_parameters(cost))
        self._crossings = cupy.array(rim_of(index.tile).crossings[:2])
        shape = index.chunk()[1], index.entries()
        size = shape[0] * shape[1] * index.dtype.itemsize
        locked = cupy.cuda.alloc_pinned_memory(size)
        self._row = np.frombuffer(locked, index.dtype, shape[0] * shape[1]).reshape(shape)
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._device.synchronize()

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Yield the entries of a block, one row of tiles at a time, in a buffer that is reused."""
        field = self.terrain.load(at)
        down, across = self.index.tiles(at)
        for first in range(0, down, self._tile_rows):
            last = min(first + self._tile_rows, down)
            with self._device, self._stream:
                found = self.solve(self.upload(field, first, last), across)
            for entries in found:
                entries.get(self._stream, out=self._row[:across])
                self._stream.synchronize()
                yield self._row

    def upload(self, field: Field, first: int, last: int) -> tuple[DeviceArray, ...]:
        """Copy heights, frictions, masks and lengths of some rows of tiles to the device."""
        import cupy

        rows = slice(first * self.index.tile, last * self.index.tile + 2)
        heights = cupy.array(field.heights[rows])
        other = field.frictions is not field.heights
        frictions = cupy.array(field.frictions[rows]) if other else heights
        return (
            heights,
            frictions,
            cupy.array(field.absent[rows]),
            cupy.array(field.lengths[:, rows]),
        )

    def solve(self, cells: tuple[DeviceArray, ...], across: int) -> Any:
        """Compute entries from the result of `upload`: (rows, columns, entries), on the device."""
        import cupy

        (rows, pitch), side = cells[0].shape, self.index.tile
        down, absent = rows // side, cells[2]
        tiles, dtype, count = down * across, self.index.dtype, self.index.entries()
        weights = cupy.empty((tiles, 8, side, side), dtype)
        entries = cupy.empty((down, across, count), dtype)
        where, costs = (absent, pitch, tiles, across), (self._parameters, weights)
        self.launch("weigh", weights.size // 8, *cells, rows, pitch, tiles, across, *costs)
        self._method(self, where, weights, entries)
        steps = self._crossings.shape[1]
        into = *self._crossings, steps, count, entries
        self.launch("cross", tiles * steps, *where, weights, *into)
        return entries

    def _relax(
        self, where: tuple[DeviceArray, ...], weights: DeviceArray, entries: DeviceArray
    ) -> None:
        """Compute the distances between rim cells; a warp for each tile and group of them."""
        import cupy

        (absent, pitch, tiles, across), index = where, self.index
        groups = tiles * _groups(index.tile)
        scratch = cupy.empty((groups, index.tile, index.tile, LANES), index.dtype)
        how = self.nothing, np.int32(index.symmetric), index.entries()
        arguments = absent, pitch, across, weights, *how, scratch, entries
        self._kernels[0].get_function("relax")((groups,), (LANES,), arguments)

    def launch(self, name: str, count: int, *arguments: object) -> None:
        """Run a kernel whose threads each process several items."""
        grid = int(min(ceil_div(count, 256), 1 << 16))
        kernels = self._kernels[0 if name in ("weigh", "cross") else -1]
        kernels.get_function(name)((grid,), (256,), arguments)
