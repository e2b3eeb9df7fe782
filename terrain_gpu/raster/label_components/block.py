"""Components of one block: which ones touch its rim, their measures, and their final labels.

The components of a block are numbered 1, 2, ... in row-major order of their first cells, as by
`primitives.grid_components.label_block`.
"""

from __future__ import annotations

from ...compiled import jit

CELLS, UNITS, ROW0, ROW1, COL0, COL1, FIRST = range(7)
"""Columns of the measures: cells, area, half-open bounding box, global id of the first cell."""

MEASURES = 7


@jit
def rim_slots(labels, slots):
    """Number the components that touch the rim of a block, and return how many there are.

    Parameters
    ----------
    labels
        int32, shape (rows, cols); 0 outside.
    slots
        int32, shape (components + 1,): receives the numbers 0, 1, ... of these components, in the
        order of the labels; -1 for all others.
    """
    rows, cols = labels.shape
    slots[:] = -1
    for col in range(cols):
        slots[labels[0, col]] = 0
        slots[labels[rows - 1, col]] = 0
    for row in range(rows):
        slots[labels[row, 0]] = 0
        slots[labels[row, cols - 1]] = 0
    slots[0] = -1
    count = 0
    for label in range(1, len(slots)):
        if slots[label] == 0:
            slots[label] = count
            count += 1
    return count


@jit
def measure(labels, row0, col0, width, units, found):
    """Measure every component of a block, run by run.

    Parameters
    ----------
    labels
        int32, shape (rows, cols); 0 outside.
    row0, col0, width
        First row and column of the block, and number of columns of the raster.
    units
        int64, shape (rows,): area of a cell in each row.
    found
        int64, shape (components + 1, MEASURES): receives the measures; row 0 is unused.
    """
    rows, cols = labels.shape
    seen = 0
    for row in range(rows):
        col = 0
        while col < cols:
            label = labels[row, col]
            start = col
            col += 1
            if label == 0:
                continue
            while col < cols and labels[row, col] == label:
                col += 1
            if label > seen:
                seen = label
                found[label, CELLS] = 0
                found[label, UNITS] = 0
                found[label, ROW0] = row0 + row
                found[label, COL0] = col0 + start
                found[label, COL1] = 0
                found[label, FIRST] = (row0 + row) * width + col0 + start
            found[label, CELLS] += col - start
            found[label, UNITS] += (col - start) * units[row]
            found[label, ROW1] = row0 + row + 1
            found[label, COL0] = min(found[label, COL0], col0 + start)
            found[label, COL1] = max(found[label, COL1], col0 + col)


@jit
def count_firsts(found, slots, row0, firsts, left):
    """Count the first cells of inner components in each row of a block.

    Parameters
    ----------
    found, slots
        From `measure` and `rim_slots`.
    firsts
        int64, shape (rows,): receives the counts.
    left
        int64, shape (components at the rim,): receives, for each of them, the number of such first
        cells in the row of its own first cell, to the left of it.
    """
    firsts[:] = 0
    for label in range(1, len(slots)):
        row = found[label, ROW0] - row0
        if slots[label] < 0:
            firsts[row] += 1
        else:
            left[slots[label]] = firsts[row]


@jit
def number(found, slots, row0, starts, at_rim, final):
    """Compute the final labels of a block's components.

    Parameters
    ----------
    found, slots
        From `measure` and `rim_slots`.
    starts
        int64, shape (rows,): label of the first component that begins in each row of the block.
    at_rim
        int64: final labels of the components at the rim.
    final
        int64, shape (components + 1,): receives the labels; 0 stays 0.
    """
    final[0] = 0
    row, following = -1, 0
    for label in range(1, len(final)):
        if found[label, ROW0] != row:
            row = found[label, ROW0]
            following = starts[row - row0]
        slot = slots[label]
        final[label] = following if slot < 0 else at_rim[slot]
        # A component at the rim that begins in another block uses no label of this row.
        following += final[label] == following


@jit
def rename(labels, final, out):
    """Write the final label of every cell of a block to `out`, of the layer's type."""
    rows, cols = labels.shape
    for row in range(rows):
        for col in range(cols):
            out[row, col] = final[labels[row, col]]
