"""Which source each cell belongs to: backlinks followed within blocks, then from rim to rim."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiled import jit
from ...errors import StoreError
from ...grid import Block, BlockGrid, Window
from ...grid.neighbours import COL_STEP_16, NEIGHBOUR_OF, ROW_STEP_16

_UNKNOWN, _ON_THE_WAY = -1, -2
_PART = 1 << 20
"""Places processed at once, so that temporaries are small compared with the rims."""
_STRIP = 1 << 16
"""Cells processed at once, so that temporaries are small compared with a block."""


@jit
def follow(codes, ways, row0, col0, width, rows, cols, ids, labels):
    """Where each cell's backlinks lead: minus the id of a source, or out of the block.

    Parameters
    ----------
    codes
        uint8 backlinks of the block.
    ways
        Number of neighbours, 8 or 16.
    row0, col0, width
        First row and column of the block, and columns of the raster.
    rows, cols, ids
        Sources in the block.
    labels
        int64, receives -id - 2 at a source, the global cell outside where the path leaves the
        block, -1 where unreached; -2 is on a cycle.

    Returns
    -------
    damaged
        Whether there is a cycle, an invalid code, or a root that is not a source.
    """
    height, across = codes.shape
    labels[:] = _UNKNOWN
    for k in range(len(rows)):
        if codes[rows[k], cols[k]] == 0:
            labels[rows[k], cols[k]] = -np.int64(ids[k]) - 2
    flat, way = labels.reshape(-1), np.empty(height * across, np.int64)
    for row in range(height):
        for col in range(across):
            r, c, count = row, col, 0
            label = np.int64(_UNKNOWN)
            while True:
                if not (0 <= r < height and 0 <= c < across):
                    label = (row0 + r) * width + (col0 + c) % width
                    break
                label, code = labels[r, c], codes[r, c]
                if label == _ON_THE_WAY:
                    return True
                if label != _UNKNOWN or code == 255:
                    break
                k = NEIGHBOUR_OF[code]
                if k >= ways:
                    return True
                labels[r, c] = _ON_THE_WAY
                way[count] = r * across + c
                count += 1
                r += ROW_STEP_16[k]
                c += COL_STEP_16[k]
            for m in range(count):
                flat[way[m]] = label
    return False


def _jump(part: np.ndarray, flat: np.ndarray) -> bool:
    """Point each place to the target of its target; return whether some are unfinished."""
    open_ = np.flatnonzero(part >= 0)
    part[open_] = flat[part[open_]]
    return bool((part[open_] >= 0).any())


def labels_of(
    blocks: BlockGrid, halo: int, at: Block, codes: np.ndarray, *sources: np.ndarray
) -> np.ndarray:
    """Return the labels of a block from `follow`; `sources` are rows and columns in it, and ids."""
    r0, _, c0, _ = blocks.window(*at)
    labels = np.empty(codes.shape, np.int64)
    if follow(codes, 8 * halo, r0, c0, blocks.cols, *sources, labels):
        raise StoreError(f"the backlinks of block {at} are damaged; compute them again")
    return labels


def ids_of(
    blocks: BlockGrid,
    halo: int,
    at: Block,
    codes: np.ndarray,
    labels: np.ndarray,
    around: np.ndarray,
) -> np.ndarray:
    """Return the source ids of a block's cells, uint32; 0 where there is none.

    Parameters
    ----------
    labels
        From `labels_of`; they are overwritten.
    around
        From `BacklinkForest.around`.
    """
    r0, r1, c0, c1 = blocks.window(*at)
    down, across = r1 - r0, c1 - c0
    found = np.empty(labels.shape, np.uint32)
    strip = max(1, _STRIP // across)
    for row in range(0, down, strip):
        part = labels[row : row + strip]
        outside = part >= 0
        r, c = part[outside] // blocks.cols - r0, part[outside] % blocks.cols - c0
        if blocks.wraps:  # columns to the left are negative, and those to the right end the block
            c = (c + halo) % blocks.cols - halo
        # As `cells_around` numbers them.
        long = across + 2 * halo
        above, below = (r + halo) * long + c + halo, (halo + r - down) * long + c + halo
        line = halo + np.where(c < across, c, c - across)  # a block may end at itself
        beside = 2 * halo * long + line * down + r
        places = np.where(r < 0, above, np.where(r >= down, below, beside))
        part[part < 0] = -part[part < 0] - 2  # _UNKNOWN becomes -1
        part[outside] = around[places]
        part[part == _UNKNOWN] = 0
        if ((part == 0) & (codes[row : row + strip] != 255)).any():
            raise StoreError(f"backlinks of block {at} lead to unreached cells; compute them again")
        found[row : row + strip] = part
    return found


def cells_around(window: Window, halo: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the cells around a window, as kernels/fields.cu numbers them.

    Whole lines above and below, then what is left and right.
    """
    r0, r1, c0, c1 = window
    above, below = np.arange(r0 - halo, r0), np.arange(r1, r1 + halo)
    left, right = np.arange(c0 - halo, c0), np.arange(c1, c1 + halo)
    across, down = np.arange(c0 - halo, c1 + halo), np.arange(r0, r1)
    lines = np.meshgrid(np.concatenate((above, below)), across, indexing="ij")
    cols, rows = np.meshgrid(np.concatenate((left, right)), down, indexing="ij")
    both = (lines[0], rows), (lines[1], cols)
    return tuple(np.concatenate((a.ravel(), b.ravel())) for a, b in both)  # type: ignore[return-value]


def sides_of(labels: Any, halo: int = 1) -> tuple[Any, ...]:
    """Return the labels of a block's top, bottom, left and right: lines, the outermost first.

    Of arrays of NumPy or CuPy. A block with fewer lines has some of them twice.
    """
    rows, cols = ([min(line, n - 1) for line in range(halo)] for n in labels.shape)
    above, below = [labels[row] for row in rows], [labels[-1 - row] for row in rows]
    left, right = [labels[:, col] for col in cols], [labels[:, -1 - col] for col in cols]
    return (*above, *below, *left, *right)


def slots_of(blocks: BlockGrid, halo: int, cells: np.ndarray) -> np.ndarray:
    """Return the places, in the flattened rims of all blocks, of cells on a rim."""
    b, (_, across), h = blocks.block, blocks.shape, halo
    row, col = cells // blocks.cols, cells % blocks.cols
    i, j, r, c = row // b, col // b, row % b, col % b
    below = np.minimum((i + 1) * b, blocks.rows) - 1 - row
    right = np.minimum((j + 1) * b, blocks.cols) - 1 - col
    beside = np.where(c < h, (2 * h + c) * b + r, (3 * h + right) * b + r)
    ring = np.where(r < h, r * b + c, np.where(below < h, (h + below) * b + c, beside))
    return (i * across + j) * 4 * h * b + ring


def places_of(
    blocks: BlockGrid, halo: int, rows: np.ndarray, cols: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells are inside the raster, and the places of these, on rims."""
    if blocks.wraps:
        cols = cols % blocks.cols
    inside = (rows >= 0) & (rows < blocks.rows) & (cols >= 0) & (cols < blocks.cols)
    return inside, slots_of(blocks, halo, rows[inside] * blocks.cols + cols[inside])


class BacklinkForest:
    """The backlinks of the whole raster, reduced to the rims of blocks, `halo` cells wide."""

    def __init__(self, blocks: BlockGrid, halo: int = 1) -> None:
        self.blocks, self.halo = blocks, halo
        self._rims = np.full((blocks.count, 4 * halo * blocks.block), _UNKNOWN, np.int64)

    def add(self, at: Block, codes: np.ndarray, *sources: np.ndarray) -> None:
        """Store where the backlinks from a block's rim lead."""
        self.put(at, *sides_of(labels_of(self.blocks, self.halo, at, codes, *sources), self.halo))

    def put(self, at: Block, *sides: np.ndarray) -> None:
        """Store the labels from `follow` of a block's sides, see `sides_of`."""
        rim = self._rims[at[0] * self.blocks.shape[1] + at[1]].reshape(4 * self.halo, -1)
        for place, labels in zip(rim, sides, strict=True):
            place[: len(labels)] = labels

    def resolve(self) -> None:
        """Follow from rim to rim by pointer jumping (J. C. Wyllie 1979)."""
        flat = self._rims.reshape(-1)
        parts = [flat[k : k + _PART] for k in range(0, flat.size, _PART)]
        # Convert cells to places once; after that, places point to places.
        for part in parts:
            open_ = np.flatnonzero(part >= 0)
            part[open_] = slots_of(self.blocks, self.halo, part[open_])
        for _ in range(64):
            left = [_jump(part, flat) for part in parts]
            if not any(left):
                return
        raise StoreError("the backlinks form a cycle across blocks; compute them again")

    def labels_at(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return the resolved labels of cells on rims; -1 outside the raster."""
        inside, places = places_of(self.blocks, self.halo, rows, cols)
        found = np.full(len(rows), _UNKNOWN, np.int64)
        found[inside] = self._rims.reshape(-1)[places]
        return found

    def around(self, at: Block) -> np.ndarray:
        """Return the ids of the sources of the cells around a block, uint32; 0 for none."""
        labels = self.labels_at(*cells_around(self.blocks.window(*at), self.halo))
        return np.where(labels == _UNKNOWN, 0, -labels - 2).astype(np.uint32)

    def labels(self, at: Block, codes: np.ndarray, *sources: np.ndarray) -> np.ndarray:
        """Return the source ids of a block's cells, uint32; 0 where there is none."""
        labels = labels_of(self.blocks, self.halo, at, codes, *sources)
        return ids_of(self.blocks, self.halo, at, codes, labels, self.around(at))
