"""The problem that `solve` solves, and the memory it needs on the GPU and in the process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ....cuda.backend import Gpu
from ....cuda.device import RESERVED
from ....engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB
from ....engine.plan import format_size
from ....errors import InputError, PlanError
from ....grid import Block, BlockGrid, ceil_div
from ....io.places import Places
from ...cost.continuous import SHARES, Continuous
from ...cost.knights import Options, halo_of
from ...cost.terrain import Raster, Terrain
from .memory import Shape
from .variants import cell_dtype

_STAGING = 1024 * MB
"""Most bytes of page-locked memory for staging blocks."""

Write = Callable[[str, Block, np.ndarray], Any]
Read = Callable[[str, Block], np.ndarray]


@dataclass
class Problem:
    """A shortest-path problem for a GPU.

    Attributes
    ----------
    ground
        Rasters, sources, model and dtype of distances.
    options
        (diagonal, corner_cutting, reverse).
    farthest
        Larger distances count as unreached.
    targets
        Stop when the farthest of these is reached; None for no early stop.
    names
        Layers to compute: "distance", "backlink", "allocation".
    threads
        Number of threads that read and write blocks.
    gpu
        The GPU, and how much of its memory may be used.
    host_limit
        Bound on the peak resident set of the process, in bytes; None for arrays.
    spill
        File for the distances of regions that do not fit GPU memory.
    method
        "relax", or one of `classic.RELAXERS`, which require that the raster fits GPU memory.
    """

    ground: Terrain
    options: Options
    farthest: Any
    targets: Places | None
    names: Sequence[str]
    threads: int
    gpu: Gpu
    host_limit: int | None
    spill: Path
    method: str = "relax"

    @property
    def blocks(self) -> BlockGrid:
        return self.ground.blocks

    @property
    def halo(self) -> int:
        """How many cells around a region its steps reach."""
        return halo_of(self.options)

    @property
    def rasters(self) -> list[Raster]:
        g = self.ground
        return [r for r in (g.heights, g.friction, g.barriers) if r is not None]

    @property
    def staging_bytes(self) -> int:
        """Bytes of the largest block that is read or written."""
        items = [r.dtype.itemsize for r in self.rasters] + [self.ground.dtype.itemsize, 4]
        r0, r1, c0, c1 = self.blocks.window(0, 0)
        return (r1 - r0) * (c1 - c0) * max(items)

    @cached_property
    def stagings(self) -> int:
        """Number of threads that read and write; 0 if the limit is too small for one.

        Each has a buffer on the GPU. All but half of them, or 16, are left out where that makes
        room for larger, and thus fewer, regions: a region is visited many times.
        """
        most = min(self.threads, self.blocks.count, max(1, _STAGING // self.staging_bytes))
        if self.host_limit is not None:
            room = self.host_limit - COMPILED_BASELINE - CUDA_BASELINE
            most = max(0, min(most, room // self._passing))
        return min(range(most, min((most - 1) // 2, 15), -1), key=self._fewest)

    def _fewest(self, stagings: int) -> int:
        """Number of regions with so many buffers on the GPU; more than blocks if none fits."""
        return min(self._shapes(stagings, 1), default=(self.blocks.count + 1,))[0]

    def _shapes(self, stagings: int, least: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield regions that fit: how many, how long and wide, rows and columns of blocks.

        There are at least so many, or as many as blocks.
        """
        (down, across), limit = self.blocks.shape, self.gpu.memory
        least = min(least, self.blocks.count)
        for high in sorted({ceil_div(down, k) for k in range(1, down + 1)}):
            widths, rows = range(1, across + 1), ceil_div(down, high)
            widest = bisect_right(widths, limit, key=partial(self._memory_of, high, stagings))
            if not widest:
                return
            if (parts := ceil_div(least, rows)) > 1:
                widest = min(widest, ceil_div(across, parts - 1) - 1)
            if widest:
                parts = ceil_div(across, widest)
                wide = ceil_div(across, parts)  # as many, of about one size
                yield rows * parts, high + wide, high, wide

    @property
    def host_memory(self) -> int:
        """Predicted peak of the process in bytes, not counting the caller's arrays."""
        return COMPILED_BASELINE + CUDA_BASELINE + self.stagings * self._passing

    @property
    def _passing(self) -> int:
        """Bytes per thread: its staging and the buffers of layers; see `plan_stream`."""
        return 5 * self.staging_bytes

    @cached_property
    def held(self) -> int:
        """Most blocks of distances, and of hops, that regions also leave in host memory."""
        if self.host_limit is None:
            return 0
        room = self.host_limit - self.host_memory - self._saving
        return max(0, min(room // self._held_block, self.blocks.count))

    @property
    def held_bytes(self) -> int:
        """Bytes of these, and to save them in the background."""
        return self.held * self._held_block + self._saving if self.held else 0

    @property
    def _held_block(self) -> int:
        kinds = 2 if "backlink" in self.names else 1
        return kinds * self.blocks.block**2 * self.ground.dtype.itemsize

    @property
    def savers(self) -> int:
        """Number of threads that save these in the background; more would slow down the others."""
        return ceil_div(self.threads, 4)

    @property
    def _saving(self) -> int:
        """Bytes of what is being coded."""
        return self.savers * self._held_block

    def cell_dtypes(self) -> tuple[np.dtype, np.dtype | None]:
        """Dtypes of heights and frictions on the GPU."""
        g = self.ground
        friction = None if g.friction is None else cell_dtype(g.friction.dtype, g.dtype)
        return cell_dtype(g.heights.dtype, g.dtype), friction

    def memory(self, side: int, across: int) -> int:
        """Bytes of GPU memory for regions of `side` x `across` blocks."""
        return self._memory_of(side, self.stagings, across)

    def _memory_of(self, side: int, stagings: int, across: int) -> int:
        rows = min(side * self.blocks.block, self.blocks.rows)
        # The last region may be wider, see `rims.region_windows`.
        cols = min(across * self.blocks.block + self.halo - 1, self.blocks.cols)
        shape = Shape(rows, cols, self.halo)
        cell, friction = self.cell_dtypes()
        item = self.ground.dtype.itemsize
        linked = "backlink" in self.names
        each = cell.itemsize + (friction.itemsize if friction else 0) + item
        if linked:
            each += 1 + self.halo + 4  # codes, steps of flats, hops
        down, beside = self.blocks.shape
        if "allocation" in self.names and side >= down and across >= beside:
            each = max(each, item + 1 + 8)
        tiles = shape.tiles[0] * shape.tiles[1]
        lists = tiles * (8 + 4 + 12 + (4 + 4 + 12 if linked else 0))
        lengths = 8 * len(SHARES) if isinstance(self.options, Continuous) else 0
        rims = self.halo * 8 * 4 * (rows + cols) + (48 + 8 * lengths) * shape.padded
        if self.method != "relax":
            lists += shape.cells // 8 + 48 * tiles  # flags; keys, and the search for pending ones
        sources = 24 * len(self.ground.sources)
        staging = stagings * self.staging_bytes
        return RESERVED + shape.cells * each + lists + rims + sources + staging + 2**16

    def sides(self, least: int = 1) -> tuple[int, int]:
        """Rows and columns of blocks of regions: the fewest that fit, of these the squarest.

        There are at least so many, one for each worker of a cluster, or as many as blocks.
        """
        return min(self._shapes(self.stagings, least))[2:]

    def plan(self) -> tuple[int, tuple[int, int]]:
        """The GPU memory limit in bytes, and rows and columns of blocks of the regions.

        If the raster does not fit one GPU, each of several gets a region.

        Raises
        ------
        PlanError
            when not even one block fits, on the GPU or in the process.
        InputError
            when the method needs the whole raster, and it does not fit.
        """
        if not self.stagings:
            least = COMPILED_BASELINE + CUDA_BASELINE + self._passing
            raise PlanError(
                f"a memory limit of {format_size(self.host_limit or 0)} is too small for CUDA and "
                f"blocks of {self.blocks.block}; give at least {ceil_div(least, MB)} MB, or use "
                "--backend cpu"
            )
        limit, whole = self.gpu.memory, self.blocks.shape
        if self.memory(1, 1) > limit:
            raise PlanError(
                f"shortest paths in blocks of {self.blocks.block} take "
                f"{format_size(self.memory(1, 1))} of GPU memory, more than "
                + ("the limit of " if self.gpu.given else "")
                + f"{format_size(limit)}"
                + ("" if self.gpu.given else " that are free")
                + "; raise --gpu-memory-limit, convert with a smaller --block-size, or use "
                "--backend cpu"
            )
        if (sides := self.sides()) == whole:
            return limit, sides
        if self.method != "relax":
            raise InputError(
                f"method {self.method!r} needs the whole raster in GPU memory, "
                f"{format_size(self.memory(*whole))} of {format_size(limit)}; "
                "raise --gpu-memory-limit, or use --method relax"
            )
        return limit, self.sides(len(self.gpu.devices))
