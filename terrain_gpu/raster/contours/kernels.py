"""Contour lines in a block: linear interpolation between the centres of cells (marching squares).

A *side* joins the centres of a cell and of the next one in its row (number 2 * cell) or its column
(2 * cell + 1). A *level* crosses it if one end lies at or above the level and the other below; the
*class* of a cell is the number of levels that it reaches, so these are the levels between the
classes of both ends. A *square* has four sides. Each level enters it once or twice, with the higher
ground on its left, and leaves it as often.
"""

from __future__ import annotations

import numpy as np

from ...compiled import jit


@jit
def level_of(number, levels, base, interval):
    """The level of a number: of the list, or every interval from base on if that is empty."""
    return levels[number] if len(levels) else base + number * interval


@jit
def classify(cells, inside, levels, base, interval, classes):
    """Write how many levels each cell reaches, which is the number of the level above it.

    Without a list, levels have the numbers ..., -1, 0, 1, ...
    """
    rows, cols = cells.shape
    for row in range(rows):
        for col in range(cols):
            if not inside[row, col]:
                continue
            value = np.float64(cells[row, col])
            if len(levels):
                classes[row, col] = np.searchsorted(levels, value, side="right")
                continue
            number = np.int64(np.floor((value - base) / interval)) + 1
            while base + number * interval <= value:
                number += 1
            while base + (number - 1) * interval > value:
                number -= 1
            classes[row, col] = number


@jit
def count_crossings(classes, inside, before):
    """Write the number of crossings before each side of the squares of a block; returns all.

    A block of n x m squares has n + 1 x m + 1 cells.
    """
    rows, cols = classes.shape
    total = 0
    for row in range(rows):
        for col in range(cols):
            for side in range(2):
                before[2 * (row * cols + col) + side] = total
                r, c = row + side, col + 1 - side
                if r < rows and c < cols and inside[row, col] and inside[r, c]:
                    total += abs(classes[row, col] - classes[r, c])
    return total


@jit
def _crossing(classes, before, row, col, side, level):
    """The number of the crossing of a side by a level."""
    r, c = row + side, col + 1 - side
    low = min(classes[row, col], classes[r, c])
    return before[2 * (row * classes.shape[1] + col) + side] + level - low


@jit
def link(cells, classes, inside, levels, base, interval, before, following, entered):
    """Write the crossing that follows each crossing, and which ones are entered.

    Parameters
    ----------
    following
        Receives -1 where a line leaves the block.
    entered
        Receives whether a line of the block leads to the crossing.
    """
    rows, cols = classes.shape
    following[:] = -1
    entered[:] = False
    corner = np.empty(4, np.int64)
    for row in range(rows - 1):
        for col in range(cols - 1):
            if not (
                inside[row, col]
                and inside[row, col + 1]
                and inside[row + 1, col]
                and inside[row + 1, col + 1]
            ):
                continue
            # Clockwise from the upper left corner; side k leads from corner k to the next one.
            corner[0], corner[1] = classes[row, col], classes[row, col + 1]
            corner[2], corner[3] = classes[row + 1, col + 1], classes[row + 1, col]
            for level in range(corner.min(), corner.max()):
                for k in range(4):
                    if corner[k] > level or corner[(k + 1) & 3] <= level:
                        continue  # not entered here
                    # Around the high corner k + 1, or around the low corner k.
                    out = (k + 1) & 3
                    while not (corner[out] > level and corner[(out + 1) & 3] <= level):
                        out = (out + 1) & 3
                    if corner[(k + 2) & 3] <= level and corner[(k + 3) & 3] > level:  # a saddle
                        middle = (
                            (np.float64(cells[row, col]) + np.float64(cells[row, col + 1]))
                            + (
                                np.float64(cells[row + 1, col])
                                + np.float64(cells[row + 1, col + 1])
                            )
                        ) / 4
                        if middle >= level_of(level, levels, base, interval):
                            out = (k + 3) & 3
                    here = _side_crossing(classes, before, row, col, k, level)
                    there = _side_crossing(classes, before, row, col, out, level)
                    following[here] = there
                    entered[there] = True


@jit
def _side_crossing(classes, before, row, col, k, level):
    """The crossing of the upper, right, lower or left side of a square."""
    if k == 0:
        return _crossing(classes, before, row, col, 0, level)
    if k == 1:
        return _crossing(classes, before, row, col + 1, 1, level)
    if k == 2:
        return _crossing(classes, before, row + 1, col, 0, level)
    return _crossing(classes, before, row, col, 1, level)


@jit
def place(cells, classes, inside, levels, base, interval, before, side, number, share):
    """Write of each crossing its side, the number of its level, and where on the side it is."""
    rows, cols = cells.shape
    for row in range(rows):
        for col in range(cols):
            for s in range(2):
                r, c = row + s, col + 1 - s
                if not (r < rows and c < cols and inside[row, col] and inside[r, c]):
                    continue
                low, high = classes[row, col], classes[r, c]
                if low > high:
                    low, high = high, low
                one, other = np.float64(cells[row, col]), np.float64(cells[r, c])
                # A difference may exceed the largest number; of the least ones, halves are 0.
                part = 0.5 if np.isinf(other - one) else 1.0
                at = before[2 * (row * cols + col) + s]
                for level in range(low, high):
                    side[at] = 2 * (row * cols + col) + s
                    number[at] = level
                    share[at] = (level_of(level, levels, base, interval) * part - one * part) / (
                        other * part - one * part
                    )
                    at += 1


@jit
def chains(following, entered, order, starts):
    """Order elements chain by chain; returns the number of chains, and how many are open.

    Open chains come first. Each ring begins with its first element.

    Parameters
    ----------
    following
        The element that follows each one; -1 at the end of a chain. An element without one that
        is not entered is left out.
    """
    count, total = 0, 0
    seen = np.zeros(len(following), np.bool_)
    for rings in range(2):
        for first in range(len(following)):
            if seen[first] or (following[first] < 0 if rings else entered[first]):
                continue
            if following[first] < 0:
                continue
            starts[count] = total
            count += 1
            k = first
            while k >= 0 and not seen[k]:
                seen[k] = True
                order[total] = k
                total += 1
                k = following[k]
        if not rings:
            open_ = count
    starts[count] = total
    return count, open_
