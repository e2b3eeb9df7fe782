"""Phase 3: predecessors, and which source each cell belongs to.

A predecessor is a neighbour u of v with d(u) + w(u, v) = d(v), exactly. One that is strictly nearer
comes first. Cells without one lie on a flat, where steps cost nothing: there the hops from the
flat's rim decide, found by another relaxation (`Flats`). Among equals the lowest direction wins. So
backlinks depend on the distances alone, and they form a forest rooted at the sources.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...compiled import jit
from ...grid import TILE, Block, BlockGrid
from ...grid.neighbours import CODE_16, COL_STEP_16, ROW_STEP_16
from ..cost.edges import infinity_of, join
from ..cost.fields import Field
from ..cost.knights import halo_of
from ..cost.steps import UNREACHED, fill_weights


@jit
def predecessors(
    cost, heights, frictions, absent, lengths, options, distances, roots, work, codes, flat
):
    """Code the nearest predecessors; for cells without one, mark the steps that cost nothing.

    Parameters
    ----------
    heights, frictions, absent, lengths, options
        See `fill_weights`.
    distances
        Final, padded.
    roots
        Rows, columns and distances of sources in the block.
    work
        (8 or 16, TILE, TILE) of the type of distances.
    codes
        uint8, not padded: receives the code toward the predecessor; 0 for none, 255 unreached.
    flat
        uint8 or uint16, padded: receives bit k where the step from neighbour k costs nothing, for
        cells without code.

    Returns
    -------
    flats
        Number of cells without a code that are not roots.
    """
    infinity, halo, mask = infinity_of(distances), halo_of(options), flat.dtype.type
    height, width = codes.shape
    flat[:] = 0
    flats = 0
    for row in range(0, height, TILE):
        for col in range(0, width, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for y in range(TILE):
                r, c = row + y + halo, col + halo
                here = distances[r, c : c + TILE]
                code = codes[row + y, col : col + TILE]
                even = flat[r, c : c + TILE]
                code[:] = 0
                for m in range(8 * halo):
                    k = 8 * halo - 1 - m
                    start = c + COL_STEP_16[k]
                    there = distances[r + ROW_STEP_16[k], start : start + TILE]
                    w = work[k, y]
                    own, bit = CODE_16[k], mask(1 << k)
                    for x in range(TILE):
                        tight = (join(cost, there[x], w[x]) == here[x]) & (here[x] < infinity)
                        code[x] = own if tight & (there[x] < here[x]) else code[x]
                        even[x] |= bit if tight & (there[x] == here[x]) else mask(0)
                for x in range(TILE):
                    code[x] = code[x] if here[x] < infinity else np.uint8(UNREACHED)
                    even[x] = even[x] if code[x] == 0 else mask(0)
    rows, cols, values = roots
    for k in range(len(rows)):
        r, c = rows[k], cols[k]
        if distances[r + halo, c + halo] == values[k]:
            codes[r, c] = 0
            flat[r + halo, c + halo] = 0
    for r in range(height):
        for c in range(width):
            flats += flat[r + halo, c + halo] != 0
    return flats


@jit
def close_flats(flat, hops, codes):
    """Code the cells of flats: the lowest direction with one hop less."""
    height, width = codes.shape
    halo = (flat.shape[0] - height) // 2
    lost = 0
    for r in range(height):
        for c in range(width):
            y, x = r + halo, c + halo
            if flat[y, x] == 0:
                continue
            found = False
            for k in range(8 * halo):
                there = hops[y + ROW_STEP_16[k], x + COL_STEP_16[k]]
                if (flat[y, x] >> k) & 1 and there + 1 == hops[y, x]:
                    codes[r, c] = CODE_16[k]
                    found = True
                    break
            lost += not found
    return lost


class Flats:
    """The `CellSource` of hops: cells of flats are joined by steps that cost nothing."""

    def __init__(self, blocks: BlockGrid, steps: Callable[[Block], np.ndarray]) -> None:
        self.blocks, self.steps = blocks, steps

    def load(self, at: Block) -> Field:
        """`heights` are the masks of steps."""
        flat = self.steps(at)
        nothing = np.zeros((1, 1), bool)
        return Field(flat, flat, nothing, np.zeros((4, 1)), np.empty(0))

    def seeds(self, at: Block, field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the cells that are not on a flat: they have no hops."""
        h = 1 if field.heights.dtype == np.uint8 else 2
        own = field.heights[h:-h, h : self.blocks.seam(at, h) or -h]
        rows, cols = np.nonzero(own == 0)
        return rows, cols, np.zeros(len(rows), np.uint32)
