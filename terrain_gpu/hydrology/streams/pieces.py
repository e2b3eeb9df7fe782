"""Channels within a block: pieces of links, each a run of cells without a junction inside.

A *link* begins at a head, where no channel flows in, or at a junction, where several do. It ends at
the next junction or at an outlet. Blocks cut links into pieces, which also begin where a link
enters the block.

`codes` and `sums` have a margin of one cell around the block; `state` is flat, for the cells of the
block only.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP

NOWHERE = 255
INFLOWS, ENTERED, CHANNEL = 15, 16, 32
"""Bits of a state: the number of inflowing channels; one comes from outside; the cell is a channel.
"""

NO_CODE, LESS = 1, 2
"""Faults: not a D8 code; a cell with a smaller sum than one that flows into it."""


@jit
def step_of(code):
    """Return the number of the neighbour for a D8 code; -1 if it is not a direction."""
    for k in range(8):
        if code == 1 << k:
            return k
    return -1


@jit
def survey(codes, sums, least, state):
    """Mark channel cells, and count the channels that flow into them.

    Returns
    -------
    fault, row, col
        0, or the first fault and its cell in the block.
    channels, pieces
        The number of channel cells and of pieces.
    largest
        The largest sum of a cell that drains.
    """
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    largest = np.zeros(1, sums.dtype)[0]
    channels = 0
    for row in range(rows):
        for col in range(cols):
            found = sums[row + 1, col + 1]
            channel = codes[row + 1, col + 1] != NOWHERE and found >= least
            state[row * cols + col] = CHANNEL if channel else 0
            channels += channel
            if codes[row + 1, col + 1] != NOWHERE and found > largest:
                largest = found
    for row in range(-1, rows + 1):
        for col in range(-1, cols + 1):
            code, found = codes[row + 1, col + 1], sums[row + 1, col + 1]
            if code in (NOWHERE, 0) or not found >= least:
                continue
            own = 0 <= row < rows and 0 <= col < cols
            k = step_of(code)
            if k < 0:
                if own:
                    return NO_CODE, row, col, channels, 0, largest
                continue
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            inside = 0 <= r < rows and 0 <= c < cols
            if not (own or inside) or codes[r + 1, c + 1] == NOWHERE:
                continue
            if not sums[r + 1, c + 1] >= found:
                if own:
                    return LESS, row, col, channels, 0, largest
                continue
            if inside:
                state[r * cols + c] += 1
                if not own:
                    state[r * cols + c] |= ENTERED
    pieces = 0
    for at in range(rows * cols):
        pieces += begins_piece(state[at])
    return 0, 0, 0, channels, pieces, largest


@jit
def begins_piece(state):
    return state & CHANNEL != 0 and (state & INFLOWS != 1 or state & ENTERED != 0)


@jit
def trace(codes, state, corner, units, found, starts, steps):
    """Trace the pieces of a block, in row-major order of their first cells.

    Parameters
    ----------
    corner
        First row and column of the block, and number of columns of the raster.
    units
        int64, shape (4, rows of the raster): step lengths, see `lengths.step_lengths`.
    found
        The columns of `links.PIECE` except `sums`. They receive the pieces.
    starts
        int64, shape (rows + 1,). Receives the number of pieces that begin before each row.
    steps
        uint8. Unless empty, receives the number of the neighbour that each cell of each piece flows
        into, 8 at outlets.

    Returns
    -------
    int
        The number of cells on pieces.
    """
    first, last, following, lengths, cells, begins = found
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    count, total = 0, 0
    for start in range(rows * cols):
        if start % cols == 0:
            starts[start // cols] = count
        if not begins_piece(state[start]):
            continue
        row, col = start // cols, start % cols
        first[count] = (corner[0] + row) * corner[2] + corner[1] + col
        begins[count] = state[start] & INFLOWS != 1
        following[count] = -1
        along, length = 0, 0
        while True:
            along += 1
            k = step_of(codes[row + 1, col + 1])
            r, c = row, col
            if k >= 0:
                r, c = row + ROW_STEP[k], col + COL_STEP[k]
            outlet = k < 0 or codes[r + 1, c + 1] == NOWHERE
            if steps.size:
                steps[total] = 8 if outlet else k
            total += 1
            if outlet:
                break
            length += units[EDGE_OF[k], corner[0] + min(row, r)]
            if not (0 <= r < rows and 0 <= c < cols) or begins_piece(state[r * cols + c]):
                following[count] = -2 - ((corner[0] + r) * corner[2] + corner[1] + c)
                break
            row, col = r, c
        last[count] = (corner[0] + row) * corner[2] + corner[1] + col
        cells[count], lengths[count] = along, length
        count += 1
    starts[rows] = count
    for piece in range(count):
        cell = -2 - following[piece]
        row, col = cell // corner[2] - corner[0], cell % corner[2] - corner[1]
        if cell >= 0 and 0 <= row < rows and 0 <= col < cols:
            low, high = starts[row], starts[row + 1]
            while low < high:
                middle = (low + high) // 2
                if first[middle] < cell:
                    low = middle + 1
                else:
                    high = middle
            following[piece] = low
    return total


@jit
def on_loop(codes, state):
    """Return a channel cell of the block that is on no piece, -1 if there is none.

    Clears the cells of pieces in `state`.
    """
    rows, cols = codes.shape[0] - 2, codes.shape[1] - 2
    for start in range(rows * cols):
        at = start
        while begins_piece(state[at]) or (at != start and state[at] != 0):
            state[at] = 0
            k = step_of(codes[at // cols + 1, at % cols + 1])
            if k < 0:
                break
            r, c = at // cols + ROW_STEP[k], at % cols + COL_STEP[k]
            if not (0 <= r < rows and 0 <= c < cols):
                break
            at = r * cols + c
    for at in range(rows * cols):
        if state[at] != 0:
            return at
    return -1


@jit
def paint(codes, starts, values, out):
    """Write the value of each piece to its cells, and 0 to others.

    Parameters
    ----------
    starts
        int64, the cells of the block where pieces begin.
    values
        The value of each piece, not 0.
    out
        Shape (rows, cols). Receives the values.
    """
    rows, cols = out.shape
    out[:] = 0
    for k in range(len(starts)):
        out[starts[k] // cols, starts[k] % cols] = values[k]
    for piece in range(len(starts)):
        row, col = starts[piece] // cols, starts[piece] % cols
        while True:
            k = step_of(codes[row + 1, col + 1])
            if k < 0:
                break
            row, col = row + ROW_STEP[k], col + COL_STEP[k]
            inside = 0 <= row < rows and 0 <= col < cols
            if not inside or codes[row + 1, col + 1] == NOWHERE or out[row, col] != 0:
                break
            out[row, col] = values[piece]
