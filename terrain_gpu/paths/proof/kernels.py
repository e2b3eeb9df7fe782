"""Kernels that check a block: its steps, its cells, and where its flats lead."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from ...compiled import jit
from ...grid import TILE
from ...grid.neighbours import COL_STEP_16, NEIGHBOUR_OF, ROW_STEP_16
from ..cost.edges import infinity_of, join
from ..cost.knights import halo_of
from ..cost.steps import UNREACHED, fill_weights

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
        Work space, (8 or 16, TILE, TILE) in the dtype of distances.
    near, even
        uint8 or uint16, not padded: receive bit k for tight steps from neighbour k, see `_Masks`.
    """
    farthest, bounded, columns = limits
    infinity, halo, mask = infinity_of(distances), halo_of(options), near.dtype.type
    height, width = near.shape
    steps = np.int64(0)
    for row in range(0, height, TILE):
        for col in range(0, width, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for k in range(8 * halo):
                bit = mask(1 << k)
                for y in range(TILE):
                    r, c = row + y + halo, col + halo
                    other, first = r + ROW_STEP_16[k], c + COL_STEP_16[k]
                    here = distances[r, c : c + TILE]
                    there = distances[other, first : first + TILE]
                    gone = absent[other, first : first + TILE]
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
                        nearer[x] |= bit if tight & (d < v) else mask(0)
                        level[x] |= bit if tight & (d == v) else mask(0)
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
        Backlinks, and whether there are any. Then `even` keeps only the step that they name.
    flat
        Receives the cells whose predecessors are all at equal distance.
    """
    infinity = infinity_of(distances)
    height, width = root.shape
    halo = (distances.shape[0] - near.shape[0]) // 2
    reached = np.int64(0)
    for r in range(height):
        for c in range(width):
            d = distances[r + halo, c + halo]
            code = np.int64(codes[r, c]) if linked else np.int64(0)
            if d == infinity:
                if linked and code != UNREACHED:
                    return reached, _NOT_VOID, r, c
                continue
            reached += 1
            if absent[r + halo, c + halo]:
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
            k = np.int64(NEIGHBOUR_OF[code])
            if k >= 8 * halo:
                return reached, _NO_CODE, r, c
            if (tight >> k) & 1 == 0:
                return reached, _NOT_TIGHT, r, c
            if nearer != 0 and (1 << k) != nearer & -nearer:
                return reached, _NOT_FIRST, r, c
            even[r, c] = 1 << k
    return reached, 0, -1, -1


@jit
def check_ids(codes, ids, rows, cols, given):
    """Row and column of a cell without the id of its predecessor or source, or (-1, -1).

    Parameters
    ----------
    codes
        Backlinks, which are right.
    ids
        Allocation, padded.
    rows, cols, given
        Sources and their ids; those not given may have any.
    """
    height, width = codes.shape
    halo = (ids.shape[0] - height) // 2
    for n in range(len(rows)):
        r, c = rows[n], cols[n]
        if codes[r, c] == 0 and ids[r + halo, c + halo] != given[n]:
            return r, c
    for r in range(height):
        for c in range(width):
            own, code = ids[r + halo, c + halo], codes[r, c]
            if (own == 0) != (code == UNREACHED):
                return r, c
            if code not in (0, UNREACHED):
                k = NEIGHBOUR_OF[code]
                if own != ids[r + halo + ROW_STEP_16[k], c + halo + COL_STEP_16[k]]:
                    return r, c
    return -1, -1


@register_jitable
def _place(r, c, height, width, block, halo):
    """Position of a cell in the concatenated rims of its block: top, bottom, left, right.

    For each side as many lines as the halo has, the outermost first.
    """
    if r < halo:
        return r * block + c
    if height - 1 - r < halo:
        return (halo + height - 1 - r) * block + c
    if c < halo:
        return (2 * halo + c) * block + r
    return (3 * halo + width - 1 - c) * block + r


@register_jitable
def _place_of(row, col, rows, cols, block, halo):
    """Position of a cell in the concatenated rims of all blocks."""
    across = (cols + block - 1) // block
    i, j = row // block, col // block
    height, width = min((i + 1) * block, rows) - i * block, min((j + 1) * block, cols) - j * block
    place = _place(row % block, col % block, height, width, block, halo)
    return (i * across + j) * 4 * halo * block + place


@register_jitable
def _cell(line, m, height, width, halo):
    """Row and column of cell `m` of a line of a block's rims; outside of a block that is small."""
    side, n = line // halo, line % halo
    if side < 2:
        return n if side == 0 else height - 1 - n, m
    return m, n if side == 2 else width - 1 - n


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
def join_flats(flat, even, halo, offset, block, parent, outward):
    """Unite the cells of flats within a block; returns a cell of a flat without a root, or -1.

    Flats that reach the rim of the block are left to `join_rims`.

    Parameters
    ----------
    flat, even
        See `_Masks`.
    halo
        How far steps reach.
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
            for k in range(8 * halo):
                if not (even[r, c] >> k) & 1:
                    continue
                y, x = r + ROW_STEP_16[k], c + COL_STEP_16[k]
                if 0 <= y < height and 0 <= x < width:
                    _unite(own, 1 + r * width + c, 1 + y * width + x if flat[y, x] else 0)
    at_rim = np.zeros(height * width + 1, np.int32)
    for line in range(4 * halo):
        for m in range(width if line < 2 * halo else height):
            r, c = _cell(line, m, height, width, halo)
            if not (0 <= r < height and 0 <= c < width) or not flat[r, c]:
                continue
            place = _place(r, c, height, width, block, halo)
            for k in range(8 * halo):
                y, x = r + ROW_STEP_16[k], c + COL_STEP_16[k]
                if not (0 <= y < height and 0 <= x < width):
                    outward[offset + place] |= even[r, c] & even.dtype.type(1 << k)
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
def join_rims(parent, outward, rows, cols, block, halo):
    """Unite flats across blocks; returns (row, col) in a flat without a root, or (-1, -1)."""
    across = (cols + block - 1) // block
    for again in range(2):
        for place in range(len(outward)):
            if again == 0 and outward[place] == 0:
                continue
            if again == 1 and _find(parent, 1 + place) == 0:
                continue
            owner, line, m = place // (4 * halo * block), place // block % (4 * halo), place % block
            i, j = owner // across, owner % across
            height = min((i + 1) * block, rows) - i * block
            width = min((j + 1) * block, cols) - j * block
            r, c = _cell(line, m, height, width, halo)
            row, col = i * block + r, j * block + c
            if again == 1:
                return row, col
            for k in range(8 * halo):
                if (outward[place] >> k) & 1:
                    y, x = row + ROW_STEP_16[k], (col + COL_STEP_16[k]) % cols  # beyond the seam
                    _unite(parent, 1 + place, 1 + _place_of(y, x, rows, cols, block, halo))
    return -1, -1


@jit
def spread_roots(flat, even, distances, halo, rooted):
    """Spread along tight steps from cells that lead to a root.

    Parameters
    ----------
    flat, even, distances
        Of a block, see `_Masks`.
    halo
        How far steps reach.
    rooted
        For each cell of the block and those around it, whether it leads to a root; those around
        are given, and those of the block found.

    Returns
    -------
    left, row, col
        Number of cells of the block not reached, and the first of them.
    """
    infinity = infinity_of(distances)
    height, width = flat.shape
    long = width + 2 * halo
    way = np.empty(rooted.size, np.int64)
    count = 0
    for r in range(-halo, height + halo):
        for c in range(-halo, width + halo):
            if 0 <= r < height and 0 <= c < width:
                nearer = not flat[r, c] and distances[r + halo, c + halo] < infinity
                rooted[r + halo, c + halo] = nearer
            if rooted[r + halo, c + halo]:
                way[count] = (r + halo) * long + c + halo
                count += 1
    while count:
        count -= 1
        r, c = way[count] // long - halo, way[count] % long - halo
        for k in range(8 * halo):
            y, x = r - ROW_STEP_16[k], c - COL_STEP_16[k]
            if not (0 <= y < height and 0 <= x < width) or rooted[y + halo, x + halo]:
                continue
            if flat[y, x] and (even[y, x] >> k) & 1:
                rooted[y + halo, x + halo] = True
                way[count] = (y + halo) * long + x + halo
                count += 1
    left, found = 0, -1
    for r in range(height):
        for c in range(width):
            if flat[r, c] and not rooted[r + halo, c + halo]:
                left += 1
                if found < 0:
                    found = r * width + c
    return left, found // width, found % width
