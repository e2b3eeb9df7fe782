"""Rasters that the proof reads block by block."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...grid import BlockGrid


class Blocks(Protocol):
    """A raster that is read block by block; a `Layer` is one."""

    blocks: BlockGrid
    dtype: np.dtype
    nodata: float | int | None

    def read_block(self, i: int, j: int, out: np.ndarray) -> np.ndarray: ...


class ArrayBlocks:
    """An array as `Blocks`."""

    def __init__(self, data: np.ndarray, nodata: float | int | None, block: int) -> None:
        self.data, self.nodata, self.dtype = data, nodata, data.dtype
        rows, cols = data.shape
        self.blocks = BlockGrid(rows, cols, block)

    def read_block(self, i: int, j: int, out: np.ndarray) -> np.ndarray:
        r0, r1, c0, c1 = self.blocks.window(i, j)
        result = out[: r1 - r0, : c1 - c0]
        result[...] = self.data[r0:r1, c0:c1]
        return result
