"""Find the source of each cell on a GPU: follow backlinks by pointer jumping.

Paths that leave a region are followed from rim to rim, as between blocks; see
`relax.allocate.BacklinkForest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....cuda import device
from ....cuda.arrays import DeviceArray, DeviceModule
from ....engine.schedule import stream
from ....grid import Block, RegionGrid, Window, ceil_div
from ..allocate import BacklinkForest, cells_around, sides_of
from .memory import BlockStaging
from .piece import PieceLayer
from .problem import Problem, Read, Write
from .variants import launch

OUTSIDE = -(2**33)
"""Label of a cell that leads to the first position around its region, as in kernels/fields.cu."""


def follow(
    kernels: DeviceModule,
    codes: DeviceArray,
    ids: DeviceArray,
    names: Any,
    rows: int,
    cols: int,
    *,
    wraps: bool = False,
) -> DeviceArray:
    """Compute where the backlinks of a region's cells lead: labels, int64, on the GPU.

    Parameters
    ----------
    codes
        Backlinks, uint8.
    ids, names
        Cells of the region's sources, sorted, and their ids.
    wraps
        Whether the region's last column meets its first one.

    Notes
    -----
    Pointer jumping (J. C. Wyllie 1979).
    """
    import cupy

    labels = cupy.empty(rows * cols, np.int64)
    given = codes, ids, names, len(ids), rows, cols, np.int32(wraps), labels
    launch(kernels.get_function("follow"), rows * cols, *given)
    unfinished = cupy.ones(1, np.uint32)
    for _ in range(64):
        unfinished[:] = 0
        launch(kernels.get_function("jump"), rows * cols, labels, rows * cols, unfinished)
        if not int(unfinished[0]):
            return labels
    raise AssertionError("backlinks form a cycle")


def naming(
    kernels: DeviceModule, labels: DeviceArray, around: DeviceArray, cols: int
) -> PieceLayer:
    """The layer of source ids of a region; `around` has the labels of the cells around it."""

    def cut(size: int, *place: Any) -> None:
        *where, block = place
        launch(kernels.get_function("name"), size, labels, around, *where, cols, block)

    return PieceLayer("allocation", np.dtype(np.uint32), cut)


class Allocation:
    """The allocation of a raster in regions.

    Parameters
    ----------
    side
        Side of a region in cells.
    kernels
        The module kernels/fields.cu.
    pool
        Staging buffers, one per thread.
    read, write
        See `solve.solve`; backlinks are read.
    """

    def __init__(
        self,
        problem: Problem,
        side: int,
        kernels: DeviceModule,
        pool: list[BlockStaging],
        read: Read,
        write: Write,
    ) -> None:
        blocks = problem.blocks
        self.problem, self.kernels, self.pool = problem, kernels, pool
        self.read, self.write = read, write
        self.regions = RegionGrid(blocks.rows, blocks.cols, side, blocks.wraps)
        self.staging = device.Staging(blocks.block**2, problem.gpu.device)

    def run(self) -> None:
        """Follow backlinks in every region, then between regions, then write."""
        forest = BacklinkForest(self.regions, self.problem.halo)
        for at in self.regions.ids():
            forest.put(at, *self._sides(self.regions.window(*at)))
        forest.resolve()
        for at in self.regions.ids():
            self._write(self.regions.window(*at), forest)

    def _labels(self, window: Window) -> DeviceArray:
        import cupy

        r0, r1, c0, c1 = window
        rows, cols = r1 - r0, c1 - c0
        codes = cupy.empty((rows, cols), np.uint8)
        cupy.cuda.Device().synchronize()

        def read(at: Block, _: None) -> None:
            a, b, c, d = self.problem.blocks.window(*at)
            host = self.staging.host((b - a, d - c), np.dtype(np.uint8))
            np.copyto(host, self.read("backlink", at))
            self.staging.place(host, codes[a - r0 : b - r0, c - c0 : d - c0])

        threads = len(self.pool)
        nothing = [None] * threads
        stream(self._blocks(window), read, lambda at, _: None, buffers=nothing, readers=threads)
        sources = self.problem.ground.sources
        mine = (sources.rows >= r0) & (sources.rows < r1)
        mine &= (sources.cols >= c0) & (sources.cols < c1)
        ids = cupy.array((sources.rows[mine] - r0) * cols + sources.cols[mine] - c0)
        names = cupy.array(sources.ids[mine])
        return follow(self.kernels, codes, ids, names, rows, cols).reshape(rows, cols)

    def _sides(self, window: Window) -> list[np.ndarray]:
        """Labels of a region's sides, as `BacklinkForest` takes them."""
        labels, halo = self._labels(window), self.problem.halo
        rows, cols = cells_around(window, halo)
        sides = [side.get() for side in sides_of(labels, halo)]
        for side in sides:
            out = side <= OUTSIDE
            places = OUTSIDE - side[out]
            width = self.regions.cols
            side[out] = rows[places] * width + cols[places] % width  # beyond the seam
        return sides

    def _write(self, window: Window, forest: BacklinkForest) -> None:
        import cupy

        labels = self._labels(window)
        places = cells_around(window, self.problem.halo)
        around = cupy.array(forest.labels_at(*places))
        output = naming(self.kernels, labels, around, labels.shape[1])
        cupy.cuda.Device().synchronize()

        def write(at: Block, staging: BlockStaging) -> None:
            a, b, c, d = self.problem.blocks.window(*at)
            cells = staging.array((b - a, d - c), output.dtype)
            with staging:
                output.cut(cells.size, *cells.shape, a - window[0], c - window[2], staging.device)
                staging.copy(cells.nbytes, back=True)
            self.write(output.name, at, cells)

        pool = self.pool
        stream(self._blocks(window), write, lambda at, _: None, buffers=pool, readers=len(pool))

    def _blocks(self, window: Window) -> Iterator[Block]:
        r0, r1, c0, c1 = window
        b = self.problem.blocks.block
        for i in range(r0 // b, ceil_div(r1, b)):
            for j in range(c0 // b, ceil_div(c1, b)):
                yield i, j
