"""Relax one tile by the continuous metric, see `cost.continuous`: the same sweeps as in `tile`.

A row is relaxed from the row above by the triangles that point upward, in vector registers. Then it
is scanned rightwards and leftwards, by those that point to a side. What a cell is given by a scan
is more than what it comes from, so one scan in each direction is enough.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload, register_jitable

from ...grid import TILE
from ...grid.neighbours import NEIGHBOUR
from ..cost.continuous import NEXT, SHARES, Continuous, Front
from ..cost.edges import joining

_KINDS, _COUNT = 8, len(SHARES)
_ABOVE, _BELOW, _SIDE_ABOVE, _SIDE_BELOW = 0, 2, 4, 6
"""Triangles in `Front.ratios`."""


def way_of(cost, options, lengths, row):
    """How distances combine in a tile: `edges.joining`, or a `Front`; in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(way_of)
def _way_of(cost, options, lengths, row):
    if getattr(options, "instance_class", None) is Continuous:
        return lambda cost, options, lengths, row: _front(lengths, row)
    return lambda cost, options, lengths, row: joining(cost)


@register_jitable
def _front(lengths, row):
    """The ratios of a tile; `lengths` and `row` as for `fill_weights`."""
    ratios = np.empty((_KINDS, TILE, _COUNT))
    for y in range(TILE):
        r = row + 1 + y
        for kind in range(0, _KINDS, 2):
            upward = kind in (_ABOVE, _SIDE_ABOVE)
            edge = r - 1 if upward else r
            along, down, diagonal = lengths[0, r], lengths[2, edge], lengths[3, edge]
            beside, across = along, down
            if kind < _SIDE_ABOVE:
                beside, across = down, lengths[0, r - 1 if upward else r + 1]
            for k in range(_COUNT):
                share = (k + 1) / (_COUNT + 1)
                rest = 1.0 - share
                square = rest * (beside * beside) + share * (diagonal * diagonal)
                length = np.sqrt(square - share * rest * (across * across))
                ratios[kind, y, k] = length / beside
                ratios[kind + 1, y, k] = length / diagonal
    return Front(ratios)


@register_jitable
def _straight(distance, weight):
    """Distance behind the step from a neighbour."""
    return max(distance + weight, NEXT * distance)


@register_jitable
def _between(a, wa, d, wd, to_a, to_d):
    """Least distance behind a point between a neighbour and the diagonal one."""
    best = np.inf
    for k in range(_COUNT):
        share = (k + 1) / (_COUNT + 1)
        best = min(best, (1.0 - share) * (a + wa * to_a[k]) + share * (d + wd * to_d[k]))
    return max(best, NEXT * max(a, d))


@register_jitable
def _from_row(here, other, weights, ratios, row, up, right_up, left_up):
    """Relax a row from the row above or below; returns whether anything changed."""
    straight, right, left = weights[up, row], weights[right_up, row], weights[left_up, row]
    kind = _ABOVE if up == 6 else _BELOW
    to_a, to_d = ratios[kind, row], ratios[kind + 1, row]
    changed = False
    for x in range(TILE):
        c = x + 1
        old, a, d, e = here[c], other[c], other[c + 1], other[c - 1]
        wa, wd, we = straight[x], right[x], left[x]
        new = min(_straight(a, wa), _straight(d, wd), _straight(e, we))
        new = min(new, _between(a, wa, d, wd, to_a, to_d))
        new = min(new, _between(a, wa, e, we, to_a, to_d), old)
        changed |= new != old
        here[c] = new
    return changed


@register_jitable
def _scan(d, weights, ratios, row, side, above, below):
    """Scan a row from the neighbour at one side to the other side; see `_from_row`."""
    straight, up, down = weights[side, row], weights[above, row], weights[below, row]
    to_up, far_up = ratios[_SIDE_ABOVE, row], ratios[_SIDE_ABOVE + 1, row]
    to_down, far_down = ratios[_SIDE_BELOW, row], ratios[_SIDE_BELOW + 1, row]
    over, here, under = d[row], d[row + 1], d[row + 2]
    step = 1 if side == 4 else -1
    x = 0 if side == 4 else TILE + 1
    a = here[x]
    changed = False
    for _ in range(TILE):
        x += step
        old, wa = here[x], straight[x - 1]
        new = min(_straight(a, wa), old)
        new = min(new, _between(a, wa, over[x - step], up[x - 1], to_up, far_up))
        new = min(new, _between(a, wa, under[x - step], down[x - 1], to_down, far_down))
        changed |= new != old
        here[x] = new
        a = new
    return changed


@register_jitable
def front_rows(way, work):
    """As `tile.relax_rows`."""
    d, weights, due, scan = work
    passes = 0
    busy = True
    while busy:
        for down in (True, False):
            flag, other = (np.uint8(1), np.uint8(2)) if down else (np.uint8(2), np.uint8(1))
            for n in range(1, TILE + 1):
                y = n if down else TILE + 1 - n
                if (due[y] & flag) == 0 and not scan[y]:
                    continue
                due[y] &= other
                scan[y] = False
                passes += 1
                row = y - 1
                if down:
                    changed = _from_row(d[y], d[y - 1], weights, way.ratios, row, 6, 7, 5)
                else:
                    changed = _from_row(d[y], d[y + 1], weights, way.ratios, row, 2, 1, 3)
                changed |= _scan(d, weights, way.ratios, row, 4, 5, 3)
                changed |= _scan(d, weights, way.ratios, row, 0, 7, 1)
                if changed:
                    due[y + 1] |= np.uint8(1)
                    due[y - 1] |= np.uint8(2)
        busy = False
        for y in range(1, TILE + 1):
            busy |= due[y] != 0
    return passes


@register_jitable
def front_from_sides(way, work):
    """As `tile.from_sides`."""
    d, weights, due, scan = work
    for y in range(1, TILE + 1):
        for x in (1, TILE):
            if _relax_cell(d, weights, way.ratios, y, x):
                due[y + 1] |= np.uint8(1)
                due[y - 1] |= np.uint8(2)
                scan[y] = True


@register_jitable
def _relax_cell(d, weights, ratios, y, x):
    """Relax a cell from all its neighbours; returns whether it changed."""
    row, col = y - 1, x - 1
    old = new = d[y, x]
    for vertical in (True, False):
        for one in (-1, 1):
            for other in (-1, 1):
                dy, dx = (one, 0) if vertical else (0, one)
                ey, ex = (one, other) if vertical else (other, one)
                kind = (_ABOVE if one < 0 else _BELOW) if vertical else (
                    _SIDE_ABOVE if other < 0 else _SIDE_BELOW
                )  # fmt: skip
                a, e = d[y + dy, x + dx], d[y + ey, x + ex]
                wa = weights[NEIGHBOUR[dy + 1, dx + 1], row, col]
                we = weights[NEIGHBOUR[ey + 1, ex + 1], row, col]
                found = _between(a, wa, e, we, ratios[kind, row], ratios[kind + 1, row])
                new = min(new, found, _straight(a, wa), _straight(e, we))
    d[y, x] = new
    return new != old
