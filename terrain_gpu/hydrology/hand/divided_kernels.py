"""A block of a filled DEM: the value of a cell is the average over the cells that it drains to.

Arrays include two rings of cells around the block, as in `divided_flow.kernels`. Values pass from
cells of the inner ring to the cells that drain into it.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...wide import difference
from ..common.code_values import NODATA, NOWHERE
from ..divided_flow.division import BITS
from ..divided_flow.kernels import DONE, RING, count_crossing
from ..divided_flow.split import split

UNKNOWN = np.nan
"""Stands for the values of a cell that waits."""

_PART = 2.0**-BITS


@jit
def find_donors(
    heights, codes, levels, lengths, contours, row0, how, stops, to_outlets, waiting, donors, values
):
    """Count the cells that each cell of a block drains to; set the values at ends of flow paths.

    Parameters
    ----------
    heights, codes
        Filled elevations and directions, shape (rows + 4, cols + 4).
    levels
        The elevations to measure, NaN for nodata.
    lengths, contours, how
        See `split`.
    row0
        The first row of the block in the raster.
    stops
        bool, the mask of streams.
    to_outlets
        Whether outlets count as streams.
    waiting
        uint8. Receives the counts, or `RING` or `DONE` as in `divided_flow.kernels`.
    donors
        uint8. Receives a bit for each neighbour that drains to the cell.
    values
        float64, shape (cells, 1 or 2). Receives height and distance at the ends of paths, `UNKNOWN`
        at cells that wait and in the inner ring, `NODATA` elsewhere.

    Returns
    -------
    int
        The number of cells of the block that drain.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code, level, stop = heights.ravel(), codes.ravel(), levels.ravel(), stops.ravel()
    parts, shares = np.empty(8, np.int64), np.empty(8)
    waiting[: rows * cols] = DONE
    donors[: rows * cols] = 0
    values[: rows * cols] = NODATA
    count = 0
    for row in range(1, rows - 1):
        for at in range(row * cols + 1, row * cols + cols - 1):
            if code[at] == NOWHERE:
                continue
            col = at - row * cols
            ring = row in (1, rows - 2) or col in (1, cols - 2)
            waiting[at] = RING if ring else 0
            values[at] = UNKNOWN
            count += not ring
            most, above = -1, row0 + row - 2
            if not stop[at]:
                most = split(z, code, at, step, lengths, contours, above, how, True, parts, shares)
            if most >= 0:
                for k in range(8):
                    if parts[k] >= 0:
                        donors[at + step[k]] |= 1 << ((k + 4) & 7)
                        waiting[at] += not ring
            elif not ring:
                values[at] = 0 if stop[at] or to_outlets else NODATA
                if np.isnan(level[at]):
                    values[at, 0] = NODATA
    return count


@jit
def pass_up(
    heights, codes, levels, lengths, contours, row0, how, waiting, donors, values, begin, stack,
    crossed
):  # fmt: skip
    """Find the values of all cells that need not wait for others.

    Parameters
    ----------
    waiting, donors, values
        See `find_donors`. In the inner ring, values are `UNKNOWN` if they are not known.
    begin, stack, crossed
        See `divided_flow.kernels.pass_on`; what crosses to other blocks are values.

    Returns
    -------
    int
        The number of cells of the block completed by this call.
    """
    rows, cols = codes.shape
    step = ROW_STEP * cols + COL_STEP
    z, code, level = heights.ravel(), codes.ravel(), levels.ravel()
    parts, shares = np.empty(8, np.int64), np.empty(8)
    crossed[:] = 0
    done = 0
    for start_row in range(1, rows - 1):
        whole = begin or start_row in (1, rows - 2)
        by = 1 if whole else cols - 3
        for start in range(start_row * cols + 1, start_row * cols + cols - 1, by):
            if waiting[start] == RING:
                if np.isnan(values[start, 0]):
                    continue
            elif waiting[start] != 0:
                continue
            stack[0], height = start, 1
            while height:
                height -= 1
                at = stack[height]
                inside = waiting[at] != RING
                done += inside
                waiting[at] = DONE
                for k in range(8):
                    if not donors[at] >> k & 1:
                        continue
                    above = at + step[k]
                    if waiting[above] < RING:
                        waiting[above] -= 1
                        if waiting[above] == 0:
                            row = row0 + above // cols - 2
                            most = split(
                                z, code, above, step, lengths, contours, row, how, False, parts,
                                shares
                            )  # fmt: skip
                            _average(level, above, step, lengths, row, most, parts, values)
                            stack[height] = above
                            height += 1
                    elif inside:
                        count_crossing(above, rows, cols, crossed)
    return done


@jit
def _average(level, at, step, lengths, row, most, parts, values):
    """Average the values that a cell takes from the cells it drains to.

    Differences from the value of the largest part are averaged, so that the average of equal values
    is exactly that value.
    """
    for column in range(values.shape[1]):
        base = _taken(level, at, at + step[most], lengths[most, row], column, values)
        total = base
        for k in range(8):
            if parts[k] > 0 and k != most:
                one = _taken(level, at, at + step[k], lengths[k, row], column, values)
                total += parts[k] * _PART * (one - base)
        values[at, column] = total if np.isfinite(total) else NODATA


@jit
def _taken(level, at, to, length, column, values):
    """Return a value of the cell `to` plus that of the step there; NaN if it has none."""
    if values[to, column] == NODATA:
        return np.nan
    if column == 1:
        return values[to, 1] + length
    return values[to, 0] + difference(level[at], level[to])
