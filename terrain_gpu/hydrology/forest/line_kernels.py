"""Kernels that trace pieces of lines through the cells of a block, and join the pieces."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP


@jit
def trace(bits, marked, width, starts, cells, heads):
    """Trace pieces of polylines; return the number of pieces and the number of their cells.

    Parameters
    ----------
    bits
        uint8, the edges at each cell, as a union of D8 codes.
    marked
        Mask of cells where polylines end.
    width
        Number of columns of the block.
    starts
        int32, the cells with edges, in ascending order.
    cells, heads
        int32. Receive nothing if `heads` is empty. `cells` receives the cells of each piece;
        `heads` receives, for each piece, its start in `cells` and the neighbours in other blocks
        before its first cell and after its last one, 8 at nodes.
    """
    height = len(bits) // width
    write = len(heads) > 0
    count, total = 0, 0
    for start in starts:
        here = bits[start]
        node = _is_node(here, marked[start])
        leaving = 0
        for k in range(8):
            leaving += here >> k & 1 and _leaves(start, k, height, width)
        if not node and leaving == 0:
            continue
        if leaving == 2 and not node:
            before = 8
            for k in range(8):
                if here >> k & 1:
                    before, after = k, before
            if write:
                cells[total] = start
                heads[count, 0], heads[count, 1], heads[count, 2] = total, before, after
            count += 1
            total += 1
            continue
        before = 8
        if not node:
            for k in range(8):
                if here >> k & 1 and _leaves(start, k, height, width):
                    before = k
        for k in range(8):
            if not here >> k & 1 or k == before:
                continue
            if _leaves(start, k, height, width):
                if write:
                    cells[total] = start
                    heads[count, 0], heads[count, 1], heads[count, 2] = total, 8, k
                count += 1
                total += 1
                continue
            # Each piece is found from both of its ends, so follow it first to see where it ends.
            length, v, step = 1, start, k
            after = 8
            while True:
                v += ROW_STEP[step] * width + COL_STEP[step]
                length += 1
                if _is_node(bits[v], marked[v]):
                    break
                came = step + 4 & 7
                for k2 in range(8):
                    if bits[v] >> k2 & 1 and k2 != came:
                        step = k2
                if _leaves(v, step, height, width):
                    after = step
                    break
            if v < start:
                continue
            if write:
                heads[count, 0], heads[count, 1], heads[count, 2] = total, before, after
                v, step = start, k
                for m in range(length):
                    cells[total + m] = v
                    if m == length - 1:
                        break
                    v += ROW_STEP[step] * width + COL_STEP[step]
                    came = step + 4 & 7
                    if m < length - 2:
                        for k2 in range(8):
                            if bits[v] >> k2 & 1 and k2 != came:
                                step = k2
            count += 1
            total += length
    return count, total


@jit
def _is_node(bits, marked):
    """Whether polylines end at a cell: it is marked, or the number of its edges is not two."""
    count = 0
    for k in range(8):
        count += bits >> k & 1
    return marked or count != 2


@jit
def _leaves(v, k, height, width):
    """Whether neighbour `k` of cell `v` lies outside the block."""
    row, col = v // width + ROW_STEP[k], v % width + COL_STEP[k]
    return not (0 <= row < height and 0 <= col < width)


@jit
def string(mate):
    """Join pieces into lines.

    Returns the slots of all lines (2 * piece + the end where it is entered), and where each line
    starts among them.
    """
    slots = np.empty(len(mate) // 2, np.int64)
    starts = np.empty(len(mate) // 2 + 1, np.int64)
    used = np.zeros(len(mate) // 2, np.bool_)
    count, lines = 0, 0
    for first in range(len(mate)):
        if mate[first] >= 0 or used[first >> 1]:
            continue
        starts[lines] = count
        lines += 1
        slot = first
        while slot >= 0:
            used[slot >> 1] = True
            slots[count] = slot
            count += 1
            slot = mate[slot ^ 1]
    starts[lines] = count
    return slots[:count], starts[: lines + 1]
