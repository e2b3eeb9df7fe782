"""Cells that the parts of features cover, and which of these can be used."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..arguments import Settling, wrong
from ..errors import ArgumentError, OutsideError
from ..grid import GridSpec
from ..grid.distance import Distance
from .wkb import Part

log = logging.getLogger(__name__)

MOST_SNAP = 1000
"""Largest distance in cells over which a feature may be moved: its surroundings are read."""

NAMED = 5
"""Largest number of points, cells or features that a message lists."""

_CROSSED = 1 << 20
"""Up to this number of crossings of edges with rows, centres are searched one by one."""

_UNIT = 1 << 30
"""Corners of larger polygons are measured in this fraction of a cell."""

NO_CELLS = np.empty((0, 2), np.int64)

Shape = tuple[tuple[float, float], tuple[float, float]]
"""The first row and column, then the row and column after the last."""

ANYWHERE: Shape = ((-math.inf, -math.inf), (math.inf, math.inf))

Nearest = Callable[[int], tuple[float, int, int] | None]
"""Squared distance, row and column of the best cell near entry k; None if there is none."""


def named(which: np.ndarray, name: Callable[[int], str]) -> str:
    """List the first few marked items, and the number of further ones."""
    marked = np.flatnonzero(which).tolist()
    names = ", ".join(map(name, marked[:NAMED]))
    return names + (f" and {len(marked) - NAMED} more" if len(marked) > NAMED else "")


def covered_cells(part: Part, all_touched: bool, shape: Shape = ANYWHERE) -> np.ndarray:
    """Cells (row, column) that a part covers; its positions are fractional (column, row).

    A polygon covers the cells whose centres it contains. If it contains no centre at all, not even
    outside `shape`, it covers the cells that it touches. Only cells within `shape` are returned;
    the part may reach far beyond.
    """
    kind, rings = part
    inner = NO_CELLS
    if kind == "Point":
        return _within(rings[0], shape)
    if kind == "Polygon":
        inner = _centres(rings, shape)
        if not all_touched and (len(inner) or _has_centre(rings)):
            return inner
    return np.concatenate([inner, *(_touched(ring, shape) for ring in rings)])


def most_cells(part: Part, shape: Shape = ANYWHERE) -> int:
    """An upper bound on the number of cells that a part covers, from its length and area."""
    kind, rings = part
    count, (low, high) = 0.0, (np.array(end)[::-1] for end in shape)
    for ring in rings:
        inside = np.clip(ring, low, high)
        lengths = np.abs(np.diff(inside, axis=0))
        count += float(lengths.sum()) + 3 * len(ring)
        if kind == "Polygon":
            count += min(_area(ring), float(np.prod(np.ptp(inside, axis=0) + 1)))
    return math.ceil(count)


def _within(positions: np.ndarray, shape: Shape) -> np.ndarray:
    """Cells (row, column) of the positions that are within `shape`."""
    cells = np.floor(positions[:, ::-1])
    return cells[np.all((cells >= shape[0]) & (cells < shape[1]), axis=1)].astype(np.int64)


def _touched(line: np.ndarray, shape: Shape) -> np.ndarray:
    """Cells (row, column) that a line passes through, including those of its vertices."""
    start, steps = line[:-1], np.diff(line, axis=0)
    low, high = np.minimum(start, line[1:]), np.maximum(start, line[1:])
    # Cut every segment where it crosses lines between cells, at fractions `at` of its length.
    ends = np.arange(len(start))
    segments, fractions = [ends, ends], [np.zeros(len(start)), np.ones(len(start))]
    for axis in (0, 1):
        least, most = (end[1 - axis] for end in shape)
        first = np.maximum(np.floor(low[:, axis]) + 1, least)
        last = np.minimum(np.ceil(high[:, axis]) - 1, most)
        segment, crossed = _ranges(first, np.maximum(last - first + 1, 0))
        segments.append(segment)
        fractions.append((crossed - start[segment, axis]) / steps[segment, axis])
    segment, cut = np.concatenate(segments), np.concatenate(fractions)
    order = np.lexsort((cut, segment))
    segment, cut = segment[order], cut[order]
    piece = np.flatnonzero((segment[1:] == segment[:-1]) & (cut[1:] > cut[:-1]))
    middle = (cut[piece] + cut[piece + 1]) / 2
    inside = start[segment[piece]] + middle[:, None] * steps[segment[piece]]
    # Rounding must not move a position out of the raster.
    inside = np.clip(inside, line.min(axis=0), line.max(axis=0))
    return _within(np.concatenate((line, inside)), shape)


def _centres(rings: list[np.ndarray], shape: Shape) -> np.ndarray:
    """Cells (row, column) whose centre lies in a polygon."""
    row, first, last = _spans(rings, shape)
    span, cols = _ranges(first, last - first)
    return np.stack((row[span], cols), axis=1).astype(np.int64)


def _has_centre(rings: list[np.ndarray]) -> bool:
    """Whether the centre of any cell lies in a polygon, however large it is."""
    # V. Jarnik: the number of centres differs from the area by less than the perimeter.
    outer, *holes = map(_area, rings)
    steps = np.abs(np.concatenate([np.diff(ring, axis=0) for ring in rings]))
    if outer - sum(holes) > np.hypot(*steps.T).sum():
        return True
    if steps[:, 1].sum() + len(steps) <= _CROSSED:
        _, first, last = _spans(rings, ANYWHERE)
        return bool(np.any(first < last))
    inside, *left_out = map(_count_centres, rings)
    return inside > sum(left_out)


def _count_centres(ring: np.ndarray) -> int:
    """Number of cell centres in a ring, in a time that does not depend on the size of the ring.

    For each edge, the columns to its left are summed over the rows that it crosses, positive for
    edges in one direction and negative in the other. Coordinates are rounded to 2^-30 cells; the
    rest is exact.
    """
    centres, half = 0, _UNIT // 2
    corners = [
        [math.floor(value) * _UNIT + round(value % 1 * _UNIT) for value in corner]
        for corner in ring.tolist()
    ]
    for start, end in pairwise(corners):
        (x, y), (x1, y1) = sorted((start, end), key=itemgetter(1))
        row, below = (-((half - height_offset) // _UNIT) for height_offset in (y, y1))
        if row == below:
            continue
        width, height = x1 - x, y1 - y
        # A centre on the edge belongs to its right side, as in `_spans`.
        height_offset = (x - half) * height + (row * _UNIT + half - y) * width + _UNIT * height - 1
        columns = _sum_of_floors(below - row, _UNIT * height, _UNIT * width, height_offset)
        centres += columns if start[1] < end[1] else -columns
    return abs(centres)


def _sum_of_floors(count: int, divisor: int, step: int, first: int) -> int:
    """Sum floor((step * i + first) / divisor) over i < count, by Euclid's algorithm."""
    total = 0
    while count:
        total += step // divisor * (count * (count - 1) // 2) + first // divisor * count
        step, first = step % divisor, first % divisor
        # The rest is a count of lattice points in a triangle: count them along its other side.
        count, first = divmod(step * count + first, divisor)
        divisor, step = step, divisor
    return total


def _area(ring: np.ndarray) -> float:
    x, y = (ring - ring[0]).T
    return abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1])) / 2


def _spans(rings: list[np.ndarray], shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs of cells whose centres are in a polygon: rows, first columns, columns after the last.

    The even-odd rule applies. A centre on an edge belongs to the polygon below or to the right of
    the edge, so where polygons share an edge, each cell belongs to only one of them.
    """
    start = np.concatenate([ring[:-1] for ring in rings])
    end = np.concatenate([ring[1:] for ring in rings])
    (top, left), (bottom, right) = shape
    first = np.maximum(np.ceil(np.minimum(start[:, 1], end[:, 1]) - 0.5), top)
    last = np.minimum(np.ceil(np.maximum(start[:, 1], end[:, 1]) - 0.5), bottom)
    edge, row = _ranges(first, np.maximum(last - first, 0))
    (x, y), (width, height) = start[edge].T, (end - start)[edge].T
    x = x + (row + 0.5 - y) / height * width
    order = np.lexsort((x, row))
    row, col = row[order], np.clip(np.ceil(x[order] - 0.5), left, right)
    return row[::2], col[::2], col[1::2]


def _ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate ranges; return the range that each number belongs to, and the numbers."""
    count = count.astype(np.int64)
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) + (first - (np.cumsum(count) - count))[which]


class Settled(NamedTuple):
    """Cells after features were moved or left out.

    Attributes
    ----------
    cells
        int64 (n, 2), row and column of every entry.
    kept
        Which entries can be used.
    moved, left
        One entry for each feature without a usable cell: it was moved, or none is near enough.
    """

    cells: np.ndarray
    kept: np.ndarray
    moved: np.ndarray
    left: np.ndarray


def settled(cells: np.ndarray, owner: np.ndarray, good: np.ndarray, nearest: Nearest) -> Settled:
    """Leave out unusable cells of features with usable ones; move other features to the nearest.

    Parameters
    ----------
    cells
        int64 (n, 2): rows and columns.
    owner
        The feature that each cell belongs to.
    good
        Which cells can be used.
    """
    cells, usable = cells.copy(), good.copy()
    moved, left = [], []
    poor = np.flatnonzero(~np.isin(owner, owner[good]))
    order = poor[np.argsort(owner[poor], kind="stable")]
    for entries in np.split(order, np.flatnonzero(np.diff(owner[order])) + 1):
        candidates = [(*near, k) for k in entries.tolist() if (near := nearest(k)) is not None]
        if candidates:
            _, row, col, k = min(candidates)
            cells[k], usable[k] = (row, col), True
            moved.append(k)
        elif len(entries):
            left.append(entries[0])
    return Settled(cells, usable, np.array(moved, np.int64), np.array(left, np.int64))


def brought_inside(
    cells: np.ndarray,
    owner: np.ndarray,
    grid: GridSpec,
    outside: Settling,
    snap: Distance | None,
) -> Settled:
    """Leave out cells outside a raster; with "snap", move features outside to its nearest cells."""
    good = np.all((cells >= 0) & (cells < grid.shape), axis=1)
    reach = None if outside != "snap" else Reach.of(grid, outside, snap)

    def nearest(k: int) -> tuple[float, int, int] | None:
        row, col = np.clip(cells[k], 0, np.array(grid.shape) - 1).tolist()
        if reach is None:
            return None
        away = reach.squared(row, int(cells[k, 0]) - row, int(cells[k, 1]) - col)
        return (away, row, col) if away <= reach.most**2 else None

    return settled(cells, owner, good, nearest)


class Reach(NamedTuple):
    """How far places may be moved.

    Attributes
    ----------
    most
        The largest distance.
    steps
        Lengths of steps across and down in each row, in the unit of `most`. From a cell, distances
        are measured with those of its row.
    """

    most: float
    steps: np.ndarray

    @classmethod
    def of(cls, grid: GridSpec, settling: Settling, snap: Distance | None) -> Reach:
        """Check the distance for "snap".

        Raises
        ------
        ArgumentError
            Without one, and for one below a cell or beyond `MOST_SNAP` cells.
        """
        if snap is None:
            raise ArgumentError(
                "{settling} needs the largest distance to move a feature: give {snap}, such as 3px",
                settling=repr(settling),
            )
        steps, most = snap.measured(grid)
        if not 0 < most <= MOST_SNAP * steps.min():
            raise wrong("snap", str(snap), f"a distance of 1 to {MOST_SNAP} cells")
        return cls(most, steps)

    def squared(self, row: int, down: Any, across: Any) -> Any:
        """Squared distances from a cell of a row over numbers of rows and columns."""
        length, height = self.steps[:, row]
        return (down * height) ** 2 + (across * length) ** 2

    def cells(self, row: int) -> int:
        """The most rows or columns within it of a cell of a row."""
        return int(self.most / self.steps[:, row].min())


def nearest_cell(grid: GridSpec, position: np.ndarray) -> tuple[int, int]:
    """The cell of the raster nearest to a position (row, column) outside it."""
    row, col = np.clip(position, 0, np.array(grid.shape) - 1).astype(np.int64).tolist()
    return row, col


def bounds(grid: GridSpec) -> str:
    west, south, east, north = grid.bounds
    return f"x {west} .. {east}, y {south} .. {north}"


def refuse_outside(
    grid: GridSpec, path: object, outside: np.ndarray, position: np.ndarray
) -> NoReturn:
    """Reject a file with features outside the raster, the first of them at `position`."""
    raise OutsideError(
        f"{path}: {outside.sum()} of {len(outside)} features are not inside the raster, "
        f"which covers {bounds(grid)}: {named(outside, lambda k: f'feature {k + 1}')}; "
        + (
            "correct its CRS if it should lie there"
            if outside.all()
            else "clip the file to the raster first (ogr2ogr -clipdst)"
        ),
        nearest_cell(grid, position),
    )


def warn_of_clipped(
    grid: GridSpec,
    path: object,
    parts: np.ndarray,
    covered: np.ndarray,
    owner: np.ndarray,
    position: np.ndarray,
) -> None:
    """Warn of features that extend beyond the raster; reject a file if all lie outside.

    Parameters
    ----------
    parts, covered
        Number of parts of each feature, and number of cells of the raster that it covers.
    owner, position
        The features of positions outside, and the first of these positions.
    """
    reaching = np.isin(np.arange(len(covered)), owner)
    gone = reaching & (covered == 0)
    if gone.sum() == np.count_nonzero(parts):
        refuse_outside(grid, path, gone, position)
    for those, done in (
        (gone, "left out (outside the raster)"),
        (reaching & ~gone, "clipped to the raster"),
    ):
        if count := int(those.sum()):
            names = named(those, lambda k: f"feature {k + 1}")
            log.warning("%s: %d feature%s %s: %s", path, count, "s" * (count > 1), done, names)
