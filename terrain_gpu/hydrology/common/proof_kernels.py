"""Cells of a block, and ways between blocks, as a proof of drainage looks at them.

Arrays of `codes` and `keys` have one ring around the block; all others are flat, with an element
for each cell of the block.
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
    "is that of a cell with a value, and it has none",
    "is not that of an outlet, and it is one",
    "is that of an outlet, and it is none",
    "leads along no edge of the forest",
    "and a neighbour in the forest: one drains to an outlet, the other to none",
    "is that of a cell that reaches no outlet, and water can leave there",
)


OUTWARDS = 2**62
"""Ids of edges outwards are those of their cells less this number."""


@jit
def _step(code):
    """Number of the neighbour of a D8 code; -1 where it is none."""
    for k in range(8):
        if code == 1 << k:
            return k
    return -1


@jit
def check_codes(codes, links, valid, needed, possible, low):
    """Look at the directions of a block; see the package for what must hold.

    Parameters
    ----------
    codes
        uint8, shape (rows + 2, cols + 2).
    links
        uint8, shape (rows, cols): D8 bits of a cell's edges in the forest.
    valid, needed, possible, low
        bool, shape (rows, cols): which cells have a value, which must be outlets, which can be, and
        which of these are low ones.

    Returns
    -------
    int, int
        Which of `FAULTS`, 0 for none, and the cell.
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
        int32, receives the cell of the block that each drains to; -1 where the way ends, -2 where
        that is in another block, -3 where it drains nowhere, -4 where the code is none.
    waiting
        uint8 work space.
    order
        int32, receives the cells.

    Returns
    -------
    int, int
        How many there are, and a cell on a circle, or one whose code is none; -1 if all are good.
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
        # Down from a cell of which nothing is awaited, as far as no other way comes in.
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
    """Key and id of the edge from a cell of a block to a neighbour.

    `cells` are keys of the heights, the heights, and reciprocals of the lengths of steps by
    direction and row of the raster, without rows unless the steeper of two edges comes first.
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
    """Join the key of a height and the rest of the key of an edge."""


@overload(_joined, inline="always")
def _joined_of(high, rest):
    if high == numba.types.uint64:
        return lambda high, rest: two_words(np.uint64(high), rest)
    return lambda high, rest: (np.uint64(high) << np.uint64(32)) | rest


@jit
def edge_outwards(cells, corner, row, col):
    """Key and id of the edge outwards from a low outlet: as high as the cell, without a slope.

    It comes before edges between cells with the same key.
    """
    key = _joined(cells[0][row + 1, col + 1], np.uint64(2**31 - 1))
    return key, (corner[0] + row) * corner[2] + corner[1] + col - OUTWARDS


@jit
def heavier(key, number, than_key, than_number):
    """Whether an edge comes after another in the total order."""
    return less(than_key, key) or (key == than_key and number > than_number)


@jit
def ways_out(target, order, exits):
    """Number the cells at which ways leave the block; returns how many there are.

    Parameters
    ----------
    exits
        int32, receives the number of the cell at which the way from each leaves the block; -1
        where it ends inside.
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
    """List the cells at which ways leave a block, by number, and the ids of those they lead to.

    Parameters
    ----------
    corner
        First row and column of the block, columns of the raster.
    leaving, over
        int64, receive the cells and the ids.
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
    """The heaviest edge on the way from each cell until it ends or leaves the block.

    Parameters
    ----------
    low
        As for `check_codes`: where ways end over an edge outwards that counts.
    tops, numbers
        uint64 (complex128 for two words) and int64, receive key and id of the edge; 0 and -1 where
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
    """Compare each edge along which nothing drains with the way from each of its ends.

    Parameters
    ----------
    low
        As for `check_codes`.
    least, least_numbers
        uint64 and int64, for each cell at which ways leave the block: receive the lightest such
        edge at the cells from which they come.

    Returns
    -------
    int, int
        A cell whose way has a heavier edge, -1 when there is none, and the neighbour; 8 for none.
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
    """Make the largest value upstream of each cell, its own included, its value."""
    for at in order:
        to = target[at]
        if to >= 0:
            values[to] = max(values[to], values[at])


@jit
def entries(codes, entered):
    """Mark the cells of a block into which others drain; bool."""
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    entered[: rows * cols] = False
    for row in range(-1, rows + 1):
        # All of the ring's first and last rows, of others the first and last cell.
        for col in range(-1, cols + 1, 1 if row in (-1, rows) else cols + 1):
            k = _step(codes[row + 1, col + 1])
            if k < 0:
                continue
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            if 0 <= r < rows and 0 <= c < cols:
                entered[r * cols + c] = True


@jit
def crossing_edges(cells, corner, codes, leaving, top, number):
    """Key and id of the edge by which each way leaves a block."""
    cols = codes.shape[1] - 2
    for i in range(len(leaving)):
        row, col = leaving[i] // cols, leaving[i] % cols
        k = _step(codes[row + 1, col + 1])
        top[i], number[i] = edge(cells, corner, row, col, k)


@jit
def order_ways(following, waiting, order):
    """Order ways from block to block, each before the one that follows.

    Parameters
    ----------
    following
        int64: of each cell at which ways leave a block, the next one; -1 where they end.
    waiting
        int64 work space.
    order
        int64, receives them.

    Returns
    -------
    int, int
        How many there are, and one on a circle; -1 when there is none.
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
    """Make the heaviest edge up to the next block that of the whole way."""
    for i in range(len(order) - 1, -1, -1):
        at, x = order[i], following[order[i]]
        if x >= 0 and heavier(tops[x], numbers[x], tops[at], numbers[at]):
            tops[at], numbers[at] = tops[x], numbers[x]


@jit
def check_levels(codes, heights, levels, connectivity):
    """Look at the levels of a block; see `fill` for what must hold.

    Parameters
    ----------
    codes, heights, levels
        With one ring; `codes` is `NOWHERE` outside of the raster.

    Returns
    -------
    int, int
        Which rule is broken, 0 for none, and the cell.
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
    """Length of the step from each cell that drains to another one; 0 at other cells.

    Parameters
    ----------
    row0
        First row of the block.
    units
        int64, shape (4, rows of the raster): lengths of edges by direction and lower endpoint.
    lengths
        int64: receives them.
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
    """Carry the value at the end of each way up to its cells, and add up the lengths of steps."""
    for i in range(len(order) - 1, -1, -1):
        at = order[i]
        to = target[at]
        if to >= 0:
            values[at] = values[to]
            lengths[at] += lengths[to]


@jit
def check_labels(codes, target, labels, own):
    """Look at the labels of a block: each cell has that of the next one, or at an end its own.

    Parameters
    ----------
    codes, labels
        With one ring.
    target
        From `order_cells`.
    own
        int64, flat: labels of cells at which ways end; others are not looked at.

    Returns
    -------
    int
        A cell whose label is wrong, -1 when there is none.
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
