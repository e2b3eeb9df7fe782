"""Kernels of proofs along flow directions: cells of a block, and flow paths between blocks.

`codes` and `keys` have a margin of one cell around the block. All other arrays are flat, with an
element for each cell of the block.
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import overload

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP
from ...wide import difference, less, two_words
from .code_values import NOWHERE

FAULTS = (
    "",
    "is not a direction",
    "is on a nodata cell",
    "is on a cell that must be an outlet",
    "marks an outlet, but the cell is not one",
    "does not follow an edge of the forest",
    "and that of a neighbour in the forest disagree: only one of the cells drains to an outlet",
    "marks a cell without an outlet, but water can leave there",
)


OUTWARDS = 2**62
"""The ids of outward edges are those of their cells minus this number."""


@jit
def _step(code):
    """Return the number of the neighbour for a D8 code; -1 if it is not a direction."""
    for k in range(8):
        if code == 1 << k:
            return k
    return -1


@jit
def check_codes(codes, links, valid, needed, possible, low):
    """Check the directions of a block; see `accumulate.proof`.

    Parameters
    ----------
    codes
        uint8, shape (rows + 2, cols + 2).
    links
        uint8, shape (rows, cols): the edges of each cell in the forest, as D8 bits.
    valid, needed, possible, low
        bool, shape (rows, cols): the valid cells, those that must be outlets, those that can be,
        and the low ones among these.

    Returns
    -------
    int, int
        Index in `FAULTS`, 0 for none, and the cell.
    """
    rows, cols = links.shape
    for row in range(rows):
        for col in range(cols):
            at, code = row * cols + col, codes[row + 1, col + 1]
            k = _step(code)
            if k < 0 and code not in (0, NOWHERE):
                return 1, at
            if not valid[row, col]:
                if code != NOWHERE:
                    return 2, at
                continue
            if needed[row, col] and code != 0:
                return 3, at
            if code == 0 and not possible[row, col]:
                return 4, at
            if low[row, col] and code == NOWHERE:
                return 7, at
            if k >= 0 and not links[row, col] >> k & 1:
                return 5, at
            for k in range(8):
                if links[row, col] >> k & 1:
                    other = codes[row + 1 + ROW_STEP[k], col + 1 + COL_STEP[k]]
                    if (other == NOWHERE) != (code == NOWHERE):
                        return 6, at
    return 0, 0


@jit
def order_cells(codes, target, waiting, order):
    """Order the cells of a block that drain, each before the one that it drains to.

    Parameters
    ----------
    target
        int32. Receives the cell of the block that each cell drains to; -1 if its path ends there,
        -2 if that is in another block, -3 if it does not drain, -4 if its code is not a D8 code.
    waiting
        uint8, work space.
    order
        int32. Receives the cells.

    Returns
    -------
    int, int
        The number of these cells; and a cell on a loop or with a wrong code, -1 if there is none.
    """
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    waiting[: rows * cols] = 0
    for row in range(rows):
        for col in range(cols):
            at, code = row * cols + col, codes[row + 1, col + 1]
            target[at] = -3 if code == NOWHERE else -1
            k = _step(code)
            if k < 0:
                if code not in (0, NOWHERE):
                    target[at] = -4
                    return 0, at
                continue
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if codes[r + 1, c + 1] == NOWHERE:
                continue
            if 0 <= r < rows and 0 <= c < cols:
                target[at] = r * cols + c
                waiting[target[at]] += 1
            else:
                target[at] = -2
    count = 0
    for start in range(rows * cols):
        # Downstream from a cell without pending inflow, until another path is still to come in.
        at = start
        while at >= 0 and target[at] != -3 and waiting[at] == 0:
            waiting[at] = NOWHERE
            order[count] = at
            count += 1
            at = target[at]
            if at >= 0:
                waiting[at] -= 1
    for at in range(rows * cols):
        if target[at] != -3 and waiting[at] != NOWHERE:
            return count, at
    return count, -1


@jit
def edge(cells, corner, row, col, k):
    """Return the key and id of the edge from a cell of a block to a neighbour.

    `cells` holds the keys of elevations, the elevations, and the reciprocals of step lengths by
    direction and row of the raster. These have no rows if the order does not depend on slopes.
    """
    keys, heights, per_length = cells
    r, c = row + ROW_STEP[k], col + COL_STEP[k]
    drop = abs(difference(heights[row + 1, col + 1], heights[r + 1, c + 1]))
    higher, rest = max(keys[row + 1, col + 1], keys[r + 1, c + 1]), np.uint64(0)
    if k >= 4:
        row, col = r, c
    if per_length.shape[1]:
        slope = np.float32(drop * per_length[EDGE_OF[k], corner[0] + row])
        rest = np.uint64(np.int64(2**31 - 1) - slope.view(np.int32))
    number = 4 * ((corner[0] + row) * corner[2] + corner[1] + col) + EDGE_OF[k]
    return _joined(higher, rest), number


def _joined(high, rest):
    """Join the key of an elevation and the rest of the key of an edge."""


@overload(_joined, inline="always")
def _joined_of(high, rest):
    if high == numba.types.uint64:
        return lambda high, rest: two_words(np.uint64(high), rest)
    return lambda high, rest: (np.uint64(high) << np.uint64(32)) | rest


@jit
def edge_outwards(cells, corner, row, col):
    """Return the key and id of the outward edge of a low outlet.

    It has the elevation of the cell and slope 0, and comes before edges between cells with the same
    key.
    """
    key = _joined(cells[0][row + 1, col + 1], np.uint64(2**31 - 1))
    return key, (corner[0] + row) * corner[2] + corner[1] + col - OUTWARDS


@jit
def heavier(key, number, than_key, than_number):
    """Whether an edge comes after another in the total order."""
    return less(than_key, key) or (key == than_key and number > than_number)


@jit
def ways_out(target, order, exits):
    """Number the cells where flow paths leave the block; return their number.

    Parameters
    ----------
    exits
        int32. Receives, for each cell, the number of the cell where its path leaves the block; -1
        if it ends inside.
    """
    count = 0
    for i in range(len(order) - 1, -1, -1):
        at = order[i]
        to = target[at]
        exits[at] = exits[to] if to >= 0 else -1
        if to == -2:
            exits[at] = count
            count += 1
    return count


@jit
def crossings(codes, corner, target, exits, leaving, over):
    """List the cells where flow paths leave a block, by number, and the ids of the next cells.

    Parameters
    ----------
    corner
        First row and column of the block, and number of columns of the raster.
    leaving, over
        int64. Receive the cells and the ids.
    """
    cols = codes.shape[1] - 2
    for at in range(len(target)):
        if target[at] != -2:
            continue
        row, col = at // cols, at % cols
        k = _step(codes[row + 1, col + 1])
        r, c = corner[0] + row + ROW_STEP[k], corner[1] + col + COL_STEP[k]
        leaving[exits[at]], over[exits[at]] = at, r * corner[2] + c


@jit
def heaviest_edges(cells, corner, codes, low, target, order, tops, numbers):
    """Find the heaviest edge on the flow path from each cell to its end or out of the block.

    Parameters
    ----------
    low
        As for `check_codes`: paths that end at these cells include their outward edge.
    tops, numbers
        uint64 (complex128 for two words) and int64. Receive the key and id of the edge; 0 and -1 if
        there is none.
    """
    cols = codes.shape[1] - 2
    for i in range(len(order) - 1, -1, -1):
        at = order[i]
        to = target[at]
        row, col = at // cols, at % cols
        if to < 0:
            tops[at], numbers[at] = 0, -1
            if to == -1 and low[row, col]:
                tops[at], numbers[at] = edge_outwards(cells, corner, row, col)
            continue
        key, number = edge(cells, corner, row, col, _step(codes[row + 1, col + 1]))
        tops[at], numbers[at] = tops[to], numbers[to]
        if heavier(key, number, tops[at], numbers[at]):
            tops[at], numbers[at] = key, number


@jit
def check_divides(
    cells, corner, codes, links, low, order, exits, tops, numbers, least, least_numbers
):
    """Compare each edge along which nothing drains with the flow paths from its ends.

    Parameters
    ----------
    low
        As for `check_codes`.
    least, least_numbers
        uint64 and int64, for each cell where paths leave the block. Receive the lightest such edge
        among those at the cells on these paths.

    Returns
    -------
    int, int
        A cell whose path has a heavier edge, -1 if there is none; and the neighbour across the
        edge, 8 for an outward edge.
    """
    cols = codes.shape[1] - 2
    for at in order:
        row, col = at // cols, at % cols
        for k in range(9):
            if k == 8:
                if not low[row, col] or codes[row + 1, col + 1] == 0:
                    continue
                key, number = edge_outwards(cells, corner, row, col)
            else:
                if not links[row, col] >> k & 1 or codes[row + 1, col + 1] == 1 << k:
                    continue
                if codes[row + 1 + ROW_STEP[k], col + 1 + COL_STEP[k]] == 1 << (k + 4 & 7):
                    continue
                key, number = edge(cells, corner, row, col, k)
            if not heavier(key, number, tops[at], numbers[at]):
                return at, k
            x = exits[at]
            if x >= 0 and heavier(least[x], least_numbers[x], key, number):
                least[x], least_numbers[x] = key, number
    return -1, 0


@jit
def add_up(target, order, sums):
    """Add the sum of each cell to that of the cell of the block that it drains to."""
    for at in order:
        if target[at] >= 0:
            sums[target[at]] += sums[at]


@jit
def carry_down(target, order, values):
    """Replace the value of each cell with the largest value upstream, its own included."""
    for at in order:
        to = target[at]
        if to >= 0:
            values[to] = max(values[to], values[at])


@jit
def entries(codes, entered):
    """Mark the cells of a block that cells of the ring drain to; `entered` is bool."""
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    entered[: rows * cols] = False
    for row in range(-1, rows + 1):
        # All cells of the first and last row of the ring; the first and last cell of the others.
        for col in range(-1, cols + 1, 1 if row in (-1, rows) else cols + 1):
            k = _step(codes[row + 1, col + 1])
            if k < 0:
                continue
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if 0 <= r < rows and 0 <= c < cols:
                entered[r * cols + c] = True


@jit
def crossing_edges(cells, corner, codes, leaving, top, number):
    """Find the key and id of the edge over which each flow path leaves a block."""
    cols = codes.shape[1] - 2
    for i in range(len(leaving)):
        row, col = leaving[i] // cols, leaving[i] % cols
        k = _step(codes[row + 1, col + 1])
        top[i], number[i] = edge(cells, corner, row, col, k)


@jit
def order_ways(following, waiting, order):
    """Order the cells where flow paths leave blocks, each before the next one on its path.

    Parameters
    ----------
    following
        int64, for each of these cells the next one; -1 if the path ends before.
    waiting
        int64, work space.
    order
        int64. Receives the cells.

    Returns
    -------
    int, int
        The number of cells in order, and one on a loop, -1 if there is none.
    """
    waiting[:] = 0
    for x in following:
        if x >= 0:
            waiting[x] += 1
    count = 0
    for x in range(len(following)):
        if waiting[x] == 0:
            order[count] = x
            count += 1
    for i in range(len(following)):
        if i == count:
            break
        x = following[order[i]]
        if x >= 0:
            waiting[x] -= 1
            if waiting[x] == 0:
                order[count] = x
                count += 1
    for x in range(len(following)):
        if waiting[x] > 0:
            return count, x
    return count, -1


@jit
def join_ways(following, order, tops, numbers):
    """Extend the heaviest edges from the parts up to the next block to whole paths."""
    for i in range(len(order) - 1, -1, -1):
        at, x = order[i], following[order[i]]
        if x >= 0 and heavier(tops[x], numbers[x], tops[at], numbers[at]):
            tops[at], numbers[at] = tops[x], numbers[x]


@jit
def check_levels(codes, heights, levels, connectivity):
    """Check the levels of a block; see `fill.proof`.

    Parameters
    ----------
    codes, heights, levels
        With a margin of one cell; `codes` is `NOWHERE` outside the raster.

    Returns
    -------
    int, int
        The rule that is broken, 0 for none, and the cell.
    """
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    for row in range(rows):
        for col in range(cols):
            at, r, c = row * cols + col, row + 1, col + 1
            code, height, level = codes[r, c], heights[r, c], levels[r, c]
            if code == NOWHERE:
                if level != height and not (np.isnan(level) and np.isnan(height)):
                    return 4, at
                continue
            k = _step(code)
            if k < 0 or codes[r + ROW_STEP[k], c + COL_STEP[k]] == NOWHERE:
                if level != height:
                    return 1, at
                continue
            if level != max(height, levels[r + ROW_STEP[k], c + COL_STEP[k]]):
                return 2, at
            for k in range(0, 8, 8 // connectivity):
                y, x = r + ROW_STEP[k], c + COL_STEP[k]
                if codes[y, x] != NOWHERE and level > max(height, levels[y, x]):
                    return 3, at
    return 0, 0


@jit
def steps_down(codes, row0, target, units, lengths):
    """Find the length of the step from each cell that drains to another one; 0 for other cells.

    Parameters
    ----------
    row0
        First row of the block in the raster.
    units
        int64, shape (4, rows of the raster): lengths of edges by direction and lower endpoint.
    lengths
        int64. Receives the lengths.
    """
    cols = codes.shape[1] - 2
    for at in range(len(target)):
        lengths[at] = 0
        if target[at] >= 0 or target[at] == -2:
            row = at // cols
            k = _step(codes[row + 1, at % cols + 1])
            lengths[at] = units[EDGE_OF[k], row0 + (row if k < 4 else row + ROW_STEP[k])]


@jit
def carry_up(target, order, values, lengths):
    """Give each cell the value at the end of its flow path, and the length of the path."""
    for i in range(len(order) - 1, -1, -1):
        at = order[i]
        to = target[at]
        if to >= 0:
            values[at] = values[to]
            lengths[at] += lengths[to]


@jit
def check_labels(codes, target, labels, own):
    """Check the labels of a block: each cell has that of the next one or, at an end, its own.

    Parameters
    ----------
    codes, labels
        With a margin of one cell.
    target
        From `order_cells`.
    own
        int64, flat: the labels of cells where paths end; others are ignored.

    Returns
    -------
    int
        A cell whose label is wrong, -1 if there is none.
    """
    cols = codes.shape[1] - 2
    for at in range(len(target)):
        row, col = at // cols, at % cols
        label = np.int64(labels[row + 1, col + 1])
        right = np.int64(0)
        if target[at] == -1:
            right = own[at]
        elif target[at] != -3:
            k = _step(codes[row + 1, col + 1])
            right = np.int64(labels[row + 1 + ROW_STEP[k], col + 1 + COL_STEP[k]])
        if label != right:
            return at
    return -1
