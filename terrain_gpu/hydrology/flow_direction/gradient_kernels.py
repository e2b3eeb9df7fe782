"""A block of a filled DEM: its steepest descents, and hop distances in its flats.

Arrays have a margin of one cell around the block. Those of one dimension are indexed flat.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...wide import difference
from ..common.code_values import NOWHERE, OUTLET

UNSEEN, DRAINS, FLAT, RING = range(4)
"""Kinds of cells: not visited; drains without a flat; flat; around the block."""

ABSENT = -1
"""Stands for the hop distance of a nodata cell at a rim."""

_BY_EDGE = np.array([5, 6, 7, 4, 0, 3, 2, 1])
"""The neighbours in the order of their edges, by which weight "flow" breaks ties."""

_STRAIGHT_FIRST = np.array([4, 6, 0, 2, 5, 7, 1, 3])
"""The neighbours in the order in which flats drain to them, as in RichDEM: straight before
diagonal, then clockwise from W."""


@jit
def has_lower(heights, codes, at, step):
    """Whether a neighbour of a cell is lower."""
    for k in range(8):
        to = at + step[k]
        if heights[to] < heights[at] and codes[to] != NOWHERE:
            return True
    return False


@jit
def flats_at_rim(heights, codes, kind, low, high, flats):
    """List the cells of flats that reach the rim of a block.

    Parameters
    ----------
    heights, codes
        Filled elevations, and directions that mark nodata and outlets; shape (rows + 2, cols + 2).
    kind
        uint8. Receives the kinds of cells in and next to these flats.
    low, high
        See `spread`. Receive the hop distances of the other cells at the rim.
    flats
        int32. Receives the cells.

    Returns
    -------
    int
        The number of these cells.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    unknown = np.iinfo(low.dtype).max
    set_kinds(rows, cols, kind)
    count, head = 0, 0
    for row in range(1, rows - 1):
        # All cells of the first and last row; the first and last cell of the others.
        by = 1 if row in (1, rows - 2) else max(cols - 3, 1)
        for start in range(row * cols + 1, row * cols + cols - 1, by):
            if code[start] == NOWHERE:
                low[start], high[start] = ABSENT, unknown
                continue
            if kind[start] == UNSEEN:
                drains = code[start] == OUTLET or has_lower(z, code, start, step)
                kind[start] = DRAINS if drains else FLAT
                if not drains:
                    flats[count] = start
                    count += 1
            if kind[start] == DRAINS:
                low[start], high[start] = 0, unknown
            while head < count:
                at = flats[head]
                head += 1
                for k in range(8):
                    to = at + step[k]
                    if kind[to] == UNSEEN and z[to] == z[at] and code[to] != NOWHERE:
                        if code[to] == OUTLET or has_lower(z, code, to, step):
                            kind[to] = DRAINS
                        else:
                            kind[to] = FLAT
                            flats[count] = to
                            count += 1
    return count


@jit
def set_kinds(rows, cols, kind):
    """Set all cells to UNSEEN, and those around the block to RING."""
    kind[: rows * cols] = UNSEEN
    kind[:cols] = kind[(rows - 1) * cols : rows * cols] = RING
    for row in range(1, rows - 1):
        kind[row * cols] = kind[row * cols + cols - 1] = RING


@jit
def steepest(heights, codes, per_length, row0, kind, flats, out):
    """Compute the direction of every cell that drains without a flat.

    Parameters
    ----------
    per_length, row0
        Reciprocals of `step_lengths`, and the first row of the block in the raster.
    kind, flats
        As for `flats_at_rim`, but for all cells and all flat cells.
    out
        uint8, shape (rows, cols). Receives the codes.

    Returns
    -------
    int
        The number of flat cells.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    set_kinds(rows, cols, kind)
    count = 0
    for row in range(1, rows - 1):
        for col in range(1, cols - 1):
            at = row * cols + col
            found = code[at]
            if found != NOWHERE:
                kind[at] = DRAINS
            if found not in (NOWHERE, OUTLET):
                most, which = np.float32(-1), -1
                for k in _BY_EDGE:
                    to = at + step[k]
                    if z[to] < z[at] and code[to] != NOWHERE:
                        of_step = per_length[EDGE_OF[k], row0 + row - 1 + min(ROW_STEP[k], 0)]
                        slope = np.float32(difference(z[at], z[to]) * of_step)
                        if slope > most:
                            most, which = slope, k
                if which >= 0:
                    found = 1 << which
                else:
                    kind[at] = FLAT
                    flats[count] = at
                    count += 1
            out[row - 1, col - 1] = found
    return count


@jit
def spread(heights, codes, kind, flats, hops, from_low, queue):
    """Compute hop distances within flats, from their lower or their higher side.

    Parameters
    ----------
    kind, flats
        See `flats_at_rim`.
    hops
        Signed, flat. Receives the distances of the flat cells, the greatest value if there is none.
        Cells around the block must hold theirs already.
    from_low
        Whether distances are from cells of the same elevation that drain, which have 0; otherwise
        they are from flat cells next to higher ones, which have 1.
    queue
        int32, work space.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    unknown = np.iinfo(hops.dtype).max
    beside, starts = np.empty(2 * (rows + cols), np.int32), np.empty(2 * (rows + cols), hops.dtype)
    reached, later = 0, 0
    for at in flats:
        least = unknown
        for k in range(8):
            to = at + step[k]
            if code[to] == NOWHERE:
                continue
            if z[to] == z[at]:
                if kind[to] == RING:
                    least = min(least, hops[to] + (hops[to] < unknown))
                elif from_low and kind[to] == DRAINS:
                    least = 1
            elif not from_low and z[to] > z[at]:
                least = 1
        hops[at] = unknown
        if least == 1:
            hops[at] = 1
            queue[reached] = at
            reached += 1
        elif least < unknown:
            beside[later], starts[later] = at, least
            later += 1
    order = np.argsort(starts[:later])
    head, following = 0, 0
    while head < reached or following < later:
        at = beside[order[following]] if following < later else 0
        if following < later and (head == reached or starts[order[following]] <= hops[queue[head]]):
            start = starts[order[following]]
            following += 1
            if hops[at] <= start:
                continue
            hops[at] = start
        else:
            at = queue[head]
            head += 1
        for k in range(8):
            to = at + step[k]
            if kind[to] == FLAT and z[to] == z[at] and hops[to] > hops[at] + 1:
                hops[to] = hops[at] + 1
                queue[reached] = to
                reached += 1


@jit
def down_flats(heights, codes, kind, flats, low, high, out):
    """Compute the direction of every flat cell; see `steepest`.

    Parameters
    ----------
    low, high
        From `spread`.

    Returns
    -------
    int
        Index of a cell whose flat does not drain; -1 if there is none.
    """
    cols = codes.shape[1]
    step = ROW_STEP * cols + COL_STEP
    z, code = heights.ravel(), codes.ravel()
    unknown = np.iinfo(low.dtype).max
    for at in flats:
        if low[at] == unknown:
            return at
        least, which = np.iinfo(np.int64).max, 0
        for k in _STRAIGHT_FIRST:
            to = at + step[k]
            if z[to] != z[at] or code[to] == NOWHERE:
                continue
            if kind[to] == DRAINS or (kind[to] == RING and low[to] == 0):
                which = k
                break
            value = 2 * np.int64(low[to]) - (high[to] if high[to] < unknown else 0)
            if value < least:
                least, which = value, k
        out[at // cols - 1, at % cols - 1] = 1 << which
    return -1


@jit
def mark_nearer(lines, others, block, marks, other_marks):
    """Mark blocks on both sides of a border whose flats have shorter hop distances through it.

    Parameters
    ----------
    lines, others
        Elevations, `low` and `high` of the cells on each side.
    block
        The block size.
    marks, other_marks
        bool, by block along the border. Receive the marks.
    """
    z, low, high = lines
    other_z, other_low, other_high = others
    for at in range(len(z)):
        for beside in range(max(at - 1, 0), min(at + 2, len(z))):
            if z[at] != other_z[beside] or low[at] < 0 or other_low[beside] < 0:
                continue
            own, other = (low[at], high[at]), (other_low[beside], other_high[beside])
            if _is_nearer(own, other):
                marks[at // block] = True
            if _is_nearer(other, own):
                other_marks[beside // block] = True


@jit
def _is_nearer(own, other):
    """Whether a flat cell has a shorter hop distance through another cell."""
    if own[0] == 0:
        return False
    return own[0] - 1 > other[0] or (other[0] > 0 and own[1] - 1 > other[1])
