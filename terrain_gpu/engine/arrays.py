"""Arrays wrapped as layers, so that operations run on arrays as on stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cells import fits, is_nodata, layer_dtype
from ..errors import InputError
from ..grid import TILE, BlockGrid, GridSpec, Window, clip
from ..store import DEFAULT_BLOCK
from ..store.tiles import split_bits, untile, z_view


class ArrayLayer:
    """An array with the read and write methods of a layer.

    Attributes
    ----------
    data
        The cells, in native byte order.
    copied
        Bytes copied to convert to that order.
    """

    finished = False
    path = None

    def __init__(
        self,
        data: np.ndarray,
        blocks: BlockGrid,
        grid: GridSpec,
        nodata: float | int | None = None,
        name: str = "elevation",
    ) -> None:
        dtype = layer_dtype(data.dtype)
        self.data = data.astype(dtype, copy=False)
        self.copied = 0 if self.data is data else self.data.nbytes
        self.blocks, self.block_size, self.grid = blocks, blocks.block, grid
        self.dtype, self.name = dtype, name
        self.nodata = nodata if nodata is None or fits(nodata, dtype) else None  # no cell has it
        self.done = np.zeros(blocks.shape, bool)

    def _part(self, i: int, j: int) -> np.ndarray:
        r0, r1, c0, c1 = self.blocks.window(i, j)
        return self.data[r0:r1, c0:c1]

    def read_ring(
        self, window: Window, out: np.ndarray | None = None, *, halo: int = 1
    ) -> np.ndarray:
        """Read like `Layer.read_ring`; cells outside the raster are zero."""
        r0, r1, c0, c1 = window
        ring = r0 - halo, r1 + halo, c0 - halo, c1 + halo
        a, b, c, d = clip(ring, self.grid.window)
        shape = ring[1] - ring[0], ring[3] - ring[2]
        cells = np.empty(shape, self.dtype) if out is None else out[: shape[0], : shape[1]]
        if (a, b, c, d) != ring:
            cells[...] = 0
        cells[a - ring[0] : b - ring[0], c - ring[2] : d - ring[2]] = self.data[a:b, c:d]
        return cells

    def read_window(self, r0: int, r1: int, c0: int, c1: int) -> np.ndarray:
        """Read like `Layer.read_window`; a view."""
        return self.data[r0:r1, c0:c1]

    def read_block(self, i: int, j: int, out: np.ndarray | None = None) -> np.ndarray:
        return (
            self._part(i, j)
            if out is None
            else self.read_ring(self.blocks.window(i, j), out, halo=0)
        )

    def refuse_if_empty(self) -> None:
        """Reject an array that is all nodata, like `Layer.refuse_if_empty`."""
        parts = (self._part(*block) for block in self.blocks.ids())
        if all(is_nodata(part, self.nodata).all() for part in parts):
            raise InputError(f"{self.name}: no cell has a value; check the array and its nodata")

    def write_block(self, i: int, j: int, data: np.ndarray) -> None:
        self._part(i, j)[...] = data

    def patch_block(self, i: int, j: int, row: np.ndarray, col: np.ndarray, bits: Any) -> None:
        np.bitwise_or.at(self._part(i, j), (row, col), bits)

    def read_tiles(self, i: int, j: int, out: np.ndarray) -> None:
        part = self._part(i, j)
        whole = np.zeros((self.blocks.block,) * 2, self.dtype)
        whole[: part.shape[0], : part.shape[1]] = part
        np.copyto(z_view(out), split_bits(whole))

    def write_tiles(self, i: int, j: int, tiles: np.ndarray) -> None:
        part = self._part(i, j)
        part[...] = untile(tiles)[: part.shape[0], : part.shape[1]]


def fitting_block(rows: int, cols: int) -> int:
    """Return the block size for an array of this shape."""
    return min(DEFAULT_BLOCK, max(TILE, 1 << (max(rows, cols) - 1).bit_length()))
