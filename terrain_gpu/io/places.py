"""Cells where paths start or end, from coordinates, vector files or rasters."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from .. import cells
from ..arguments import checked, described, text
from ..engine import plan as planner
from ..engine.plan import BASELINE, GDAL_CACHE, VECTOR_BYTES, limit_of, require
from ..errors import InputError
from ..grid import TILE, GridSpec, Window, cell_centres
from ..report import return_large_arrays
from ..store.layer import Layer
from .crs import same_crs
from .gdal import gdal_environment
from .mosaic import Mosaic
from .vectors import MAX_ID, Part, read_features

log = logging.getLogger(__name__)

PIECE = 2048
"""Rasters are read in squares of this side, in cells."""

COVERED_BYTES = 200
"""Bytes per cell that a feature covers or a raster marks, while they are collected."""

ON_LINE = 1e-6
"""A position within this fraction of a cell from a line between cells counts as on the line."""

NAMED = 5
"""A message names at most this many points, cells or features."""

_AT_ONCE = 1 << 20
"""Cells that are read together to find the values of some of them."""


@dataclass(frozen=True, eq=False)
class Places:
    """Cells with an id and a start cost, sorted by row, column, cost and id.

    A cell appears once for every id that it has: several targets may share a cell. As sources or
    outlets, cells count once; see `one_per_cell`.

    Attributes
    ----------
    rows, cols
        int64.
    ids
        uint32, 1 .. 2**32 - 2; several cells may have the same id.
    costs
        float64, finite and not negative, in units of the cost model.
    """

    rows: np.ndarray
    cols: np.ndarray
    ids: np.ndarray
    costs: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> np.ndarray:
        """(row, col) of every cell, shape (n, 2)."""
        return np.stack((self.rows, self.cols), axis=1)

    def one_per_cell(self, what: str = "") -> Places:
        """Keep one entry per cell: the one with the least cost, then with the least id.

        Parameters
        ----------
        what
            What the places are, "sources", for a warning that names the dropped ones. No warning
            when empty.
        """
        again = np.zeros(len(self), bool)
        again[1:] = (np.diff(self.rows) == 0) & (np.diff(self.cols) == 0)
        if not again.any():
            return self
        if what:
            kept = np.flatnonzero(~again)[np.cumsum(~again) - 1]
            names = _named(
                again,
                lambda k: (
                    f"{self.ids[k]} at row {self.rows[k]}, column {self.cols[k]} "
                    f"(but {self.ids[kept[k]]})"
                ),
            )
            log.warning(
                "%d of %d %s ignored: their cell has one with a lower start cost or id: %s",
                again.sum(),
                len(self),
                what,
                names,
            )
        return Places(self.rows[~again], self.cols[~again], self.ids[~again], self.costs[~again])


PlacesLike = Places | Iterable[Sequence[float]]
"""Forms in which callers give cells: `Places`, or (row, col) or (row, col, start cost) each."""

NO_PLACES = Places(*(np.empty(0, t) for t in (np.int64, np.int64, np.uint32, np.float64)))


def from_xy(grid: GridSpec, points: Iterable[Sequence[float]]) -> Places:
    """Find the cells that contain points; ids are 1, 2, ... in the order of the points.

    A point on a line between cells belongs to the cell with the higher row and column; a point on
    the lower or right edge of the raster belongs to the last cell.

    Parameters
    ----------
    points
        (x, y) or (x, y, start cost), in the grid's CRS.

    Raises
    ------
    InputError
        when there are no points, or one is outside the raster, is not a point, or has a cost that
        is negative or not finite.
    """
    xy, costs = _numbers(points, "point", "x, y")
    placed, outside = _placed(grid, xy)
    if outside.any():
        names = _named(outside, lambda k: f"point {k + 1} (x {xy[k, 0]}, y {xy[k, 1]})")
        raise InputError(f"outside the raster, which covers {_bounds(grid)}: {names}")
    return _places(np.floor(placed[:, ::-1]), np.arange(1, len(xy) + 1), costs)


def from_rowcol(grid: GridSpec, points: Iterable[Sequence[float]]) -> Places:
    """Cells given by row and column, counted from 0; ids are 1, 2, ... in their order.

    Parameters
    ----------
    points
        (row, column) or (row, column, start cost).

    Raises
    ------
    InputError
        as for `from_xy`, or when a row or column is not a whole number.
    """
    places, costs = _numbers(points, "cell", "row, column")

    def name(k: int) -> str:
        return f"cell {k + 1} (row {places[k, 0]:.15g}, column {places[k, 1]:.15g})"

    broken = np.any(places % 1 != 0, axis=1)
    if broken.any():
        raise InputError(f"rows and columns must be whole numbers: {_named(broken, name)}")
    outside = np.any((places < 0) | (places >= grid.shape), axis=1)
    if outside.any():
        raise InputError(
            f"outside the raster, which has rows 0 .. {grid.rows - 1} and columns 0 .. "
            f"{grid.cols - 1}: {_named(outside, name)}"
        )
    return _places(places, np.arange(1, len(places) + 1), costs)


def as_places(grid: GridSpec, given: PlacesLike, name: str) -> Places:
    """Check the cells that a caller gives, and convert them to `Places`, which may be empty.

    Parameters
    ----------
    given, name
        The value and the name of the caller's argument.

    Raises
    ------
    InputError
        as for `from_rowcol`, or when `given` has none of the forms of `PlacesLike`.
    """
    if not isinstance(given, Places):
        if isinstance(given, str | bytes | os.PathLike):
            raise InputError(
                f"{name} {os.fspath(given)!r}: read a file with io.places.from_vector or "
                "from_raster first"
            )
        if not isinstance(given, Iterable) or isinstance(given, Mapping | np.ma.MaskedArray):
            raise InputError(f"{name} {described(given)}: give (row, column) pairs, or Places")
        try:
            points = list(given)
        except TypeError:  # an array without dimensions
            raise InputError(f"{name} {described(given)}: give (row, column) pairs") from None
        try:
            return from_rowcol(grid, points) if points else NO_PLACES
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    columns = [np.asarray(a) for a in (given.rows, given.cols, given.ids, given.costs)]
    rows, cols, ids, costs = columns
    if any(a.ndim != 1 or len(a) != len(rows) for a in columns):
        raise InputError(f"{name}: rows, cols, ids and costs need one dimension and one length")
    for what, a in zip(("rows", "cols", "ids"), columns, strict=False):
        if a.dtype.kind not in "iu" and a.size:
            raise InputError(f"{name}: {what} are of type {a.dtype.name}; give integers")
    if not len(rows):
        return NO_PLACES
    if costs.dtype.kind not in "iuf" or not np.isfinite(costs).all():
        raise InputError(f"{name}: a start cost is not a finite number")
    if not ((ids >= 1) & (ids <= MAX_ID)).all():
        raise InputError(f"{name}: an id is not a whole number from 1 to {MAX_ID}")
    outside = (rows < 0) | (rows >= grid.rows) | (cols < 0) | (cols >= grid.cols)
    if outside.any():
        raise InputError(
            f"{name}: outside the raster, which has rows 0 .. {grid.rows - 1} and columns 0 .. "
            f"{grid.cols - 1}: {_named(outside, lambda k: f'row {rows[k]}, column {cols[k]}')}"
        )
    return _places(np.stack((rows, cols), axis=1), ids, costs.astype(np.float64))


@checked(layer=text)
def from_vector(
    grid: GridSpec,
    path: str | os.PathLike[str],
    layer: str | None = None,
    memory_limit: int | str | None = None,
    *,
    all_touched: bool = False,
    fields: bool = True,
) -> Places:
    """Find the cells of the points, lines and polygons of a vector file.

    A line covers all cells that it touches. A polygon covers the cells whose centre lies in it, or
    all cells that it touches if there are none. A field ``id`` holds ids, whole numbers that
    features may share; without it, ids are 1, 2, ... in the order of the file. A field ``cost``
    holds start costs.

    Parameters
    ----------
    path, layer
        As for `read_features`; features are reprojected to the grid's CRS.
    memory_limit
        Bound on the peak resident set of the process, in bytes; a quarter of RAM when None.
    all_touched
        Whether a polygon covers all cells that it touches, also where centres lie in it.
    fields
        Whether ids and costs are read; else ids are 1, 2, ... and costs 0.

    Raises
    ------
    InputError
        when the file or a feature cannot be used, or a feature is not inside the raster.
    PlanError
        when the memory limit is too small for the features or for the cells that they cover.
    """
    limit = limit_of(memory_limit)
    with gdal_environment():
        found = read_features(path, grid, layer, limit, fields=fields)
        found.xy[:], beyond = _placed(grid, found.xy)
        outside = np.zeros(len(found.parts), bool)
        outside[found.owner[beyond]] = True
        if outside.any():
            raise InputError(
                f"{path}: {outside.sum()} of {len(outside)} features not inside the raster, "
                f"which covers {_bounds(grid)}: {_named(outside, lambda k: f'feature {k + 1}')}; "
                "clip the file to the raster first (ogr2ogr -clipdst)"
                + (", or correct its CRS if it should lie there" if outside.all() else "")
            )
        needed = found.nbytes + COVERED_BYTES * sum(
            _most_cells(part) for parts in found.parts for part in parts
        )
        require(BASELINE + VECTOR_BYTES + needed, limit, f"for the cells that {path} covers")
        places = [
            np.concatenate([_covered(part, all_touched) for part in parts]) for parts in found.parts
        ]
    owner = np.repeat(np.arange(len(places)), [len(place) for place in places])
    return _places(np.concatenate(places), found.ids[owner], found.costs[owner])


@checked()
def from_raster(
    grid: GridSpec, path: str | os.PathLike[str], memory_limit: int | str | None = None
) -> Places:
    """Find the cells of a raster that are neither nodata nor 0. It must be aligned with the grid.

    Their values are the ids; start costs are 0. Memory grows with the number of such cells.

    Parameters
    ----------
    memory_limit
        Bound on the peak resident set of the process, in bytes; a quarter of RAM when None.

    Raises
    ------
    InputError
        when the raster cannot be read, is not aligned, contains a value that is not an id, or
        contains no id.
    PlanError
        when the memory limit is too small for so many sources.
    """
    found, count, limit = [], 0, limit_of(memory_limit)
    with gdal_environment(), Mosaic([os.fspath(path)]) as raster:
        _must_align(grid, raster.grid, path)
        if raster.decoding and planner.whole_process:
            return_large_arrays()
        whole_rows = raster.sequential or raster.chunk[1] >= grid.cols
        size = (max(1, PIECE**2 // grid.cols), grid.cols) if whole_rows else (PIECE, PIECE)
        for window in _pieces(grid.window, *size):
            row0, row1, col0, col1 = window
            data = np.empty((row1 - row0, col1 - col0), raster.dtype)
            raster.read(window, data)
            given = (data != 0) & ~cells.is_nodata(data, raster.nodata)
            places, ids = np.argwhere(given) + np.array((row0, col0)), data[given]
            count += len(ids)
            needed = COVERED_BYTES * count + 16 * data.nbytes
            needed += max(0, raster.decoding - GDAL_CACHE)
            require(BASELINE + needed, limit, f"for {count:,} or more cells of {path}")
            wrong = (ids < 1) | (ids > MAX_ID) | (ids % 1 != 0)
            if wrong.any():
                row, col = places[wrong][0]
                raise InputError(
                    f"{path}: has value {ids[wrong][0]} at row {row}, column {col}; ids must be "
                    f"whole numbers from 1 to {MAX_ID}, and other cells 0 or nodata"
                )
            found.append((places, ids.astype(np.uint32)))
    places, ids = (np.concatenate(column) for column in zip(*found, strict=True))
    if not len(ids):
        raise InputError(f"{path}: every cell is 0 or nodata; mark at least one cell with an id")
    return _places(places, ids, np.zeros(len(ids)))


def merge(several: Sequence[Places]) -> Places:
    """Combine several places. For the same cell and id, the least cost is kept.

    Raises
    ------
    InputError
        when `several` is empty.
    """
    if not several:
        raise InputError("no points, vector file or raster given")
    places, ids, costs = zip(*((s.places, s.ids, s.costs) for s in several), strict=True)
    return _places(np.concatenate(places), np.concatenate(ids), np.concatenate(costs))


def values_at(layer: Layer, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Read single cells of a layer, and only tiles around them.

    Raises
    ------
    StoreError
        when the layer is damaged.
    """
    # Some rows of a block at a time: few reads, and little memory for any block size.
    high = max(_AT_ONCE // layer.block_size, TILE)
    strips = rows // high * layer.blocks.shape[1] + cols // layer.block_size
    order = np.argsort(strips, kind="stable")
    found = np.empty(len(rows), layer.dtype)
    for here in np.split(order, np.flatnonzero(np.diff(strips[order])) + 1):
        r, c = rows[here], cols[here]
        row, col = int(r.min()), int(c.min())
        data = layer.read_window(row, int(r.max()) + 1, col, int(c.max()) + 1)
        found[here] = data[r - row, c - col]
    return found


def refuse_nodata(sources: Places, layer: Layer) -> None:
    """Check that every cell has a value in a layer; reads only tiles around the cells.

    Raises
    ------
    InputError
        when cells have no value; names the first of them.
    StoreError
        when the layer is damaged.
    """
    void = cells.is_nodata(values_at(layer, sources.rows, sources.cols), layer.nodata)
    if void.any():
        places = sources.places
        xy = cell_centres(layer.grid, places)
        names = _named(
            void,
            lambda k: f"row {places[k, 0]}, column {places[k, 1]} (x {xy[k, 0]}, y {xy[k, 1]})",
        )
        raise InputError(
            f"{layer.path}: {void.sum()} of {len(void)} given cells are nodata: {names}; move them "
            "to cells with a value"
        )


def _places(places: np.ndarray, ids: np.ndarray, costs: np.ndarray) -> Places:
    """Sort cells. For the same cell and id, the least cost is kept."""
    order = np.lexsort((costs, ids, places[:, 1], places[:, 0]))
    rows, cols = places[order].astype(np.int64).T
    ids, costs = ids[order].astype(np.uint32), costs[order]
    same = (np.diff(rows) == 0) & (np.diff(cols) == 0)
    if same.any():
        first = np.append(True, ~same | (np.diff(ids) != 0))
        rows, cols, ids, costs = rows[first], cols[first], ids[first], costs[first]
        order = np.lexsort((ids, costs, cols, rows))
        rows, cols, ids, costs = rows[order], cols[order], ids[order], costs[order]
    # Adding 0 turns -0.0, which files may contain, into 0.0.
    return Places(rows, cols, ids, costs + 0.0)


def _numbers(
    points: Iterable[Sequence[float]], what: str, names: str
) -> tuple[np.ndarray, np.ndarray]:
    """Convert points to pairs, shape (n, 2), and start costs, float64."""
    try:
        several = list(points)
    except TypeError:
        raise InputError(f"{what}s {described(points)}: give {names} of each") from None
    plain = _plain_numbers(several)
    if plain is not None:
        return plain[:, :2], plain[:, 2]
    values = []
    for number, point in enumerate(several, 1):
        try:
            if isinstance(point, str) or not all(isinstance(one, Real) for one in point):
                raise TypeError
            first, second, cost = (*map(float, point), 0.0)[: max(3, len(point))]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{what} {number}: {described(point)} is neither {names} nor {names}, start cost"
            ) from None
        if not (math.isfinite(first) and math.isfinite(second)):
            raise InputError(f"{what} {number}: {names} {first}, {second} are not finite")
        if not 0 <= cost < math.inf:
            raise InputError(
                f"{what} {number}: start cost {cost} is negative or not finite; give 0 or more"
            )
        values.append((first, second, cost))
    if not values:
        raise InputError(f"no {what} given")
    found = np.array(values)
    return found[:, :2], found[:, 2]


def _placed(grid: GridSpec, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert positions to fractional (column, row), and mark those outside the raster.

    Positions on the right and lower edges become the largest numbers below them, which lie in the
    last cells.
    """
    a, _, c, _, e, f = grid.transform
    size = np.array((grid.cols, grid.rows), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        placed = (xy - (c, f)) / (a, e)
        line = np.rint(placed)
        placed = np.where(np.abs(placed - line) <= ON_LINE, line, placed)
    outside = ~np.all((placed >= 0) & (placed <= size), axis=1)
    return np.minimum(placed, np.nextafter(size, 0)), outside


def _covered(part: Part, all_touched: bool) -> np.ndarray:
    """Cells (row, column) that a part covers; its positions are fractional (column, row)."""
    kind, rings = part
    inner = np.empty((0, 2), np.int64)
    if kind == "Point":
        return np.floor(rings[0][:, ::-1]).astype(np.int64)
    if kind == "Polygon":
        inner = _centres(rings)
        if len(inner) and not all_touched:
            return inner
    return np.concatenate([inner, *(_touched(ring) for ring in rings)])


def _most_cells(part: Part) -> int:
    """Estimate an upper bound of the cells a part covers, from its length and area."""
    kind, rings = part
    count = 0.0
    for ring in rings:
        way = np.abs(np.diff(ring, axis=0))
        count += float(way.sum()) + 3 * len(ring)
        if kind == "Polygon":
            x, y = (ring - ring[0]).T
            count += abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1])) / 2
    return math.ceil(count)


def _touched(line: np.ndarray) -> np.ndarray:
    """Cells (row, column) that a line passes through, including those of its vertices."""
    start, way = line[:-1], np.diff(line, axis=0)
    low, high = np.minimum(start, line[1:]), np.maximum(start, line[1:])
    # Every segment is cut where it crosses lines between cells, at the fraction `at` of its length.
    ends = np.arange(len(start))
    segments, at = [ends, ends], [np.zeros(len(start)), np.ones(len(start))]
    for axis in (0, 1):
        first = np.floor(low[:, axis]) + 1
        segment, crossed = _ranges(first, np.maximum(np.ceil(high[:, axis]) - first, 0))
        segments.append(segment)
        at.append((crossed - start[segment, axis]) / way[segment, axis])
    segment, cut = np.concatenate(segments), np.concatenate(at)
    order = np.lexsort((cut, segment))
    segment, cut = segment[order], cut[order]
    piece = np.flatnonzero((segment[1:] == segment[:-1]) & (cut[1:] > cut[:-1]))
    middle = (cut[piece] + cut[piece + 1]) / 2
    inside = start[segment[piece]] + middle[:, None] * way[segment[piece]]
    # Rounding must not move a position out of the raster.
    inside = np.clip(inside, line.min(axis=0), line.max(axis=0))
    return np.floor(np.concatenate((line, inside))[:, ::-1]).astype(np.int64)


def _centres(rings: list[np.ndarray]) -> np.ndarray:
    """Cells (row, column) whose centre lies in a polygon, by the even-odd rule.

    A centre on an edge belongs to the polygon below or to the right of the edge, so where polygons
    share an edge, each cell belongs to only one of them.
    """
    start = np.concatenate([ring[:-1] for ring in rings])
    end = np.concatenate([ring[1:] for ring in rings])
    first = np.ceil(np.minimum(start[:, 1], end[:, 1]) - 0.5)
    last = np.ceil(np.maximum(start[:, 1], end[:, 1]) - 0.5)
    edge, row = _ranges(first, last - first)
    (x, y), (width, height) = start[edge].T, (end - start)[edge].T
    x = x + (row + 0.5 - y) / height * width
    order = np.lexsort((x, row))
    row, col = row[order], np.ceil(x[order] - 0.5)
    span, cols = _ranges(col[::2], col[1::2] - col[::2])
    return np.stack((row[::2][span], cols), axis=1).astype(np.int64)


def _ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate ranges: the range that each number belongs to, and the numbers."""
    count = count.astype(np.int64)
    which = np.repeat(np.arange(len(count)), count)
    return which, np.arange(len(which)) + (first - (np.cumsum(count) - count))[which]


def _pieces(window: Window, rows: int, cols: int) -> Iterator[Window]:
    """Divide a window into windows of at most `rows` x `cols` cells, in row-major order."""
    row0, row1, col0, col1 = window
    for row in range(row0, row1, rows):
        for col in range(col0, col1, cols):
            yield row, min(row + rows, row1), col, min(col + cols, col1)


def _must_align(grid: GridSpec, other: GridSpec, path: str | os.PathLike[str]) -> None:
    if other.shape != grid.shape:
        differs = f"has {other.rows} x {other.cols} cells, not {grid.rows} x {grid.cols}"
    elif not same_crs(grid.crs_wkt, other.crs_wkt):
        differs = f"is in {other.crs_code or 'another CRS'}, not {grid.crs_code or 'the same CRS'}"
    elif not grid.same_place(other):
        differs = f"covers {_bounds(other)}, not {_bounds(grid)}"
    else:
        return
    raise InputError(
        f"{path}: {differs}; warp it to the grid of the raster first (gdalwarp -t_srs -te -ts)"
    )


def _bounds(grid: GridSpec) -> str:
    west, south, east, north = grid.bounds
    return f"x {west} .. {east}, y {south} .. {north}"


def _named(which: np.ndarray, name: Callable[[int], str]) -> str:
    """Name the first few marked items, and say how many more there are."""
    marked = np.flatnonzero(which).tolist()
    names = ", ".join(map(name, marked[:NAMED]))
    return names + (f" and {len(marked) - NAMED} more" if len(marked) > NAMED else "")


def _plain_numbers(points: list[Sequence[float]]) -> np.ndarray | None:
    """Convert many good pairs, or triples, of Python's numbers at once; None for all else."""
    if not {type(point) for point in points} <= {tuple, list}:
        return None
    if not {type(one) for point in points for one in point} <= {int, float}:
        return None
    if {len(point) for point in points} not in ({2}, {3}):
        return None
    try:
        found = np.array(points, np.float64)
    except OverflowError:
        return None
    found = np.column_stack((found, np.zeros((len(found), 3 - found.shape[1]))))
    return found if np.isfinite(found).all() and (found[:, 2] >= 0).all() else None
