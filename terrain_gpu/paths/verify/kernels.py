"""Kernels that check a block: its steps, its cells, and where its flats lead."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..edges import infinity_of, join
from ..steps import UNREACHED, fill_weights

_ABSENT, _FAR, _LONE, _NOT_VOID, _NOT_ROOT, _NO_CODE, _NOT_TIGHT, _NOT_FIRST = range(1, 9)
FAULTS = {
    _ABSENT: ("absent", "but is nodata or a barrier"),
    _FAR: ("farthest", "beyond the limit {farthest}"),
    _LONE: (
        "tight",
        "but is not a source at its start value, and no step gives exactly this distance",
    ),
    _NOT_VOID: ("backlink", "but its backlink is {code}, not 255"),
    _NOT_ROOT: ("backlink", "at its start value, but its backlink is {code}, not 0"),
    _NO_CODE: ("backlink", "but its backlink is {code}, which is not a direction"),
    _NOT_TIGHT: (
        "backlink",
        "but its backlink {code} does not lead to a predecessor (these lie {tight})",
    ),
    _NOT_FIRST: (
        "backlink",
        "but its backlink {code} is not the first direction to a nearer predecessor (these lie "
        "{tight})",
    ),
}


@jit
def check_steps(
    cost,
    heights,
    frictions,
    absent,
    lengths,
    options,
    distances,
    limits,
    work,
    near,
    even,
):
    """Check the steps into a block: (number of steps; k, row, col of a violation, or -1).

    A step violates the proof if it leads to a cell for less than its distance.

    Parameters
    ----------
    heights, frictions, absent, lengths, options
        See `fill_weights`.
    limits
        Largest distance; steps beyond it are ignored. Whether distances must not overflow. And the
        number of columns, since the column beyond a seam may follow.
    work
        Work space, (8, TILE, TILE) in the dtype of distances.
    near, even
        uint8, not padded: receive bit k for tight steps from neighbour k, see `_Masks`.
    """
    farthest, bounded, columns = limits
    infinity = infinity_of(distances)
    height, width = near.shape
    steps = np.int64(0)
    for row in range(0, height, TILE):
        for col in range(0, width, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for k in range(8):
                bit = np.uint8(1 << k)
                for y in range(TILE):
                    r, first = row + y + 1, col + 1 + COL_STEP[k]
                    here = distances[r, col + 1 : col + 1 + TILE]
                    there = distances[r + ROW_STEP[k], first : first + TILE]
                    gone = absent[r + ROW_STEP[k], first : first + TILE]
                    nearer = near[row + y, col : col + TILE]
                    level = even[row + y, col : col + TILE]
                    w = work[k, y]
                    bad = False
                    count = np.int64(0)
                    for x in range(min(TILE, columns - col)):
                        d, v, step = there[x], here[x], w[x]
                        through = join(cost, d, step)
                        count += (step < infinity) & (not gone[x])
                        bad |= (through < v) & (through <= farthest)
                        bad |= bounded & (step < infinity) & (d < infinity) & (through >= infinity)
                        tight = (through == v) & (v < infinity)
                        nearer[x] |= bit if tight & (d < v) else np.uint8(0)
                        level[x] |= bit if tight & (d == v) else np.uint8(0)
                    steps += count
                    if bad:
                        for x in range(min(TILE, columns - col)):
                            through = join(cost, there[x], w[x])
                            less = (through < here[x]) & (through <= farthest)
                            over = (
                                bounded
                                & (w[x] < infinity)
                                & (there[x] < infinity)
                                & (through >= infinity)
                            )
                            if less | over:
                                return steps, k, row + y, col + x
    return steps, -1, -1, -1


@jit
def one_step(cost, heights, frictions, absent, lengths, row, col, options, work, k, y, x, distance):
    """Cost of the step from neighbour k, and the distance after the step."""
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
    return work[k, y, x], join(cost, distance, work[k, y, x])


@jit
def check_cells(absent, distances, farthest, near, even, root, codes, linked, flat):
    """Check the cells of a block: (number reached, fault or 0, row, col of the fault).

    Parameters
    ----------
    absent, distances
        Padded.
    root
        Sources at their start values.
    codes, linked
        Backlinks, and whether there are any.
    flat
        Receives the cells whose predecessors are all at equal distance.
    """
    infinity = infinity_of(distances)
    height, width = root.shape
    reached = np.int64(0)
    for r in range(height):
        for c in range(width):
            d = distances[r + 1, c + 1]
            code = np.int64(codes[r, c]) if linked else np.int64(0)
            if d == infinity:
                if linked and code != UNREACHED:
                    return reached, _NOT_VOID, r, c
                continue
            reached += 1
            if absent[r + 1, c + 1]:
                return reached, _ABSENT, r, c
            if d > farthest:
                return reached, _FAR, r, c
            nearer, tight = np.int64(near[r, c]), np.int64(near[r, c] | even[r, c])
            if root[r, c]:
                if linked and code != 0:
                    return reached, _NOT_ROOT, r, c
                continue
            if tight == 0:
                return reached, _LONE, r, c
            flat[r, c] = nearer == 0
            if not linked:
                continue
            if code == 0 or code & (code - 1):
                return reached, _NO_CODE, r, c
            if code & tight == 0:
                return reached, _NOT_TIGHT, r, c
            if nearer != 0 and code != nearer & -nearer:
                return reached, _NOT_FIRST, r, c
    return reached, 0, -1, -1


@register_jitable
def _place(r, c, height, block):
    """Position of a cell in the concatenated rims of its block: top, bottom, left, right."""
    if r == 0:
        return c
    if r == height - 1:
        return block + c
    return 2 * block + r if c == 0 else 3 * block + r


@register_jitable
def _place_of(row, col, rows, cols, block):
    """Position of a cell in the concatenated rims of all blocks."""
    across = (cols + block - 1) // block
    i, j = row // block, col // block
    height = min((i + 1) * block, rows) - i * block
    return (i * across + j) * 4 * block + _place(row % block, col % block, height, block)


@register_jitable
def _find(parent, v):
    """Root of `v`, with path halving (R. Tarjan and J. van Leeuwen 1984)."""
    root = v
    while parent[root] != root:
        parent[root] = parent[parent[root]]
        root = parent[root]
    return root


@register_jitable
def _unite(parent, a, b):
    one, other = _find(parent, a), _find(parent, b)
    parent[max(one, other)] = min(one, other)


@jit
def join_flats(flat, even, offset, block, parent, outward):
    """Unite the cells of flats within a block; returns a cell of a flat without a root, or -1.

    Flats that reach the rim of the block are left to `join_rims`.

    Parameters
    ----------
    flat, even
        See `_Masks`.
    offset
        First position of the block's rims.
    parent
        Receives, at 1 + position of each rim cell, 1 + position of a cell it is united with; 0 if
        it leads to a root.
    outward
        Receives the tight steps from outside the block.
    """
    height, width = flat.shape
    own = np.arange(height * width + 1).astype(np.int32)  # 0 stands for all that lead to a root
    for r in range(height):
        for c in range(width):
            if not flat[r, c]:
                continue
            for k in range(8):
                if not (even[r, c] >> k) & 1:
                    continue
                y, x = r + ROW_STEP[k], c + COL_STEP[k]
                if 0 <= y < height and 0 <= x < width:
                    _unite(own, 1 + r * width + c, 1 + y * width + x if flat[y, x] else 0)
    at_rim = np.zeros(height * width + 1, np.int32)
    for side in range(4):
        for m in range(width if side < 2 else height):
            r = m if side >= 2 else (0 if side == 0 else height - 1)
            c = m if side < 2 else (0 if side == 2 else width - 1)
            if not flat[r, c]:
                continue
            place = _place(r, c, height, block)
            for k in range(8):
                y, x = r + ROW_STEP[k], c + COL_STEP[k]
                if not (0 <= y < height and 0 <= x < width):
                    outward[offset + place] |= even[r, c] & np.uint8(1 << k)
            tree = _find(own, 1 + r * width + c)
            if tree == 0:
                continue
            if at_rim[tree] == 0:
                at_rim[tree] = 1 + place
            parent[offset + 1 + place] = offset + at_rim[tree]
    for cell in range(height * width):
        if flat[cell // width, cell % width]:
            tree = _find(own, 1 + cell)
            if tree != 0 and at_rim[tree] == 0:
                return cell
    return -1


@jit
def join_rims(parent, outward, rows, cols, block):
    """Unite flats across blocks; returns (row, col) in a flat without a root, or (-1, -1)."""
    across = (cols + block - 1) // block
    for again in range(2):
        for place in range(len(outward)):
            if again == 0 and outward[place] == 0:
                continue
            if again == 1 and _find(parent, 1 + place) == 0:
                continue
            i, j = place // (4 * block) // across, place // (4 * block) % across
            side, m = place // block % 4, place % block
            height = min((i + 1) * block, rows) - i * block
            width = min((j + 1) * block, cols) - j * block
            r = m if side >= 2 else (0 if side == 0 else height - 1)
            c = m if side < 2 else (0 if side == 2 else width - 1)
            row, col = i * block + r, j * block + c
            if again == 1:
                return row, col
            for k in range(8):
                if (outward[place] >> k) & 1:
                    y, x = row + ROW_STEP[k], (col + COL_STEP[k]) % cols  # beyond the seam
                    _unite(parent, 1 + place, 1 + _place_of(y, x, rows, cols, block))
    return -1, -1


@jit
def spread_roots(flat, even, distances, where, solid):
    """Spread along tight steps from cells that lead to a root.

    Parameters
    ----------
    flat, even, distances
        Of a block, see `_Masks`.
    where
        First row and column of the block, rows and columns of the raster, side of blocks.
    solid
        For each position in the rims of all blocks, whether the cell leads to a root; read around
        the block and updated on its rims.

    Returns
    -------
    left, row, col
        Number of cells of the block not reached, and the first of them.
    """
    row0, col0, rows, cols, block = where
    infinity = infinity_of(distances)
    height, width = flat.shape
    rooted = np.zeros((height + 2, width + 2), np.bool_)
    way = np.empty((height + 2) * (width + 2), np.int64)
    count = 0
    for r in range(-1, height + 1):
        for c in range(-1, width + 1):
            row, col = row0 + r, (col0 + c) % cols  # beyond the seam
            if not 0 <= row < rows:
                continue
            if 0 <= r < height and 0 <= c < width:
                yes = not flat[r, c] and distances[r + 1, c + 1] < infinity
            else:
                yes = solid[_place_of(row, col, rows, cols, block)] != 0
            if yes:
                rooted[r + 1, c + 1] = True
                way[count] = (r + 1) * (width + 2) + c + 1
                count += 1
    while count:
        count -= 1
        r, c = way[count] // (width + 2) - 1, way[count] % (width + 2) - 1
        for k in range(8):
            y, x = r - ROW_STEP[k], c - COL_STEP[k]
            if not (0 <= y < height and 0 <= x < width) or rooted[y + 1, x + 1]:
                continue
            if flat[y, x] and (even[y, x] >> k) & 1:
                rooted[y + 1, x + 1] = True
                way[count] = (y + 1) * (width + 2) + x + 1
                count += 1
    left, found = 0, -1
    for r in range(height):
        for c in range(width):
            if rooted[r + 1, c + 1]:
                if r in (0, height - 1) or c in (0, width - 1):
                    solid[_place_of(row0 + r, col0 + c, rows, cols, block)] = 1
            elif flat[r, c]:
                left += 1
                if found < 0:
                    found = r * width + c
    return left, found // width, found % width
