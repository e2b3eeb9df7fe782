"""Cells where paths start or end, from coordinates, vector files or rasters."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .. import cells
from ..arguments import Settling, checked, refused, text, wrong
from ..described import Described
from ..engine.machine import BASELINE, GDAL_CACHE, VECTOR_BYTES, limit_of, owns_process
from ..engine.plan import Excess, require
from ..errors import InputError, OutsideError
from ..grid import TILE, GridSpec, Window
from ..grid.crs import grid_crs
from ..grid.distance import Distance
from ..plurals import counted
from ..report import return_large_arrays
from ..store.layer import Layer
from .aligned import must_match
from .covered import (
    ANYWHERE,
    NO_CELLS,
    bounds,
    brought_inside,
    covered_cells,
    most_cells,
    named,
    nearest_cell,
    refuse_outside,
    warn_of_clipped,
)
from .fields import MAX_ID, warn_of_shared
from .gdal import gdal_environment
from .geo_objects import GeoObject, HasColumns, HasGeometries, file_or_object, geo_object
from .mosaic import Mosaic
from .points import numbers_of
from .vectors import read_features

log = logging.getLogger(__name__)

PIECE = 2048
"""Side of the squares in which rasters are read, in cells."""

COVERED_BYTES = 200
"""Bytes needed to collect a cell that a feature covers or a raster marks."""

FAR = 2**40
"""Rows and columns beyond this number are clipped to it."""

ON_LINE = 1e-6
"""A position within this fraction of a cell from a line between cells is on the line."""

_AT_ONCE = 1 << 20
"""Number of cells read together to get the values of some of them."""


@dataclass(frozen=True, eq=False, repr=False)
class Places(Described):
    """Cells with an id and a start cost, sorted by row, column, cost and id.

    A cell appears once for every id that it has: several targets may share a cell. As sources or
    outlets, each cell is used once; see `one_per_cell`.

    Attributes
    ----------
    rows, cols
        int64.
    ids
        uint32, 1 .. 2**32 - 2; several cells may have the same id.
    costs
        float64, finite and not negative, in units of the cost model.
    given
        int64: the point or feature that each cell comes from, counted from 0 in the input; None if
        unknown.
    names
        Names by id, where ids only number names.
    file
        The vector file whose features `given` counts, for messages; "" if there is none.
    reprojected
        For a vector file in another CRS, a text such as "EPSG:4326 to EPSG:32633".
    in_order
        Whether tables list the cells in the order of `given`, as for a vector file; if not, they
        list them by id.
    """

    rows: np.ndarray
    cols: np.ndarray
    ids: np.ndarray
    costs: np.ndarray
    given: np.ndarray | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    file: str = ""
    reprojected: str = ""
    in_order: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> np.ndarray:
        """(row, col) of every cell, shape (n, 2)."""
        return np.stack((self.rows, self.cols), axis=1)

    def one_per_cell(self, kind: str = "") -> Places:
        """Keep one entry per cell: the one with the least cost, then with the least id.

        Parameters
        ----------
        kind
            What the cells are, such as "sources", for a warning that lists the dropped ones. No
            warning when empty.
        """
        repeated = np.zeros(len(self), bool)
        repeated[1:] = (np.diff(self.rows) == 0) & (np.diff(self.cols) == 0)
        if not repeated.any():
            return self
        if kind:
            retained = np.flatnonzero(~repeated)[np.cumsum(~repeated) - 1]
            names = named(
                repeated,
                lambda k: (
                    f"{self.called(k)} at row {self.rows[k]}, column {self.cols[k]} "
                    f"(but {self.called(retained[k])})"
                ),
            )
            log.warning(
                "%d of %d %s ignored, because another one in the same cell has a lower start cost "
                "or id: %s",
                repeated.sum(),
                len(self),
                kind,
                names,
            )
        return self.chosen(~repeated)

    def chosen(self, which: np.ndarray) -> Places:
        """The entries that are marked, or listed by position."""
        origins = None if self.given is None else self.given[which]
        columns = self.rows, self.cols, self.ids, self.costs
        rows, cols, ids, costs = (a[which] for a in columns)
        return replace(self, rows=rows, cols=cols, ids=ids, costs=costs, given=origins)

    def moved_to(self, cells: np.ndarray) -> Places:
        """The same entries at other cells (row, col), in their order; no longer sorted."""
        return replace(self, rows=cells[:, 0].copy(), cols=cells[:, 1].copy())

    def bare(self) -> Places:
        """The same entries without names and the order of the input."""
        return Places(self.rows, self.cols, self.ids, self.costs)

    def called(self, k: int) -> str:
        """The name of an entry, or its id if it has no name."""
        return self.names.get(int(self.ids[k]), str(self.ids[k]))

    def as_given(self) -> Places:
        """The same entries in the order of the points or features of the input, then by row."""
        if self.given is None:
            return self
        return self.chosen(np.argsort(self.given, kind="stable"))


PlacesLike = Places | Iterable[Sequence[float]] | HasGeometries | HasColumns
"""`Places`, (row, col) or (row, col, start cost) of each cell, or what `geo_object` accepts."""

_NONE = np.empty(0, np.int64)
NO_PLACES: Places = Places(_NONE, _NONE, _NONE.astype(np.uint32), _NONE.astype(np.float64))


def from_xy(
    grid: GridSpec,
    points: Iterable[Sequence[float]],
    *,
    outside: Settling = "error",
    snap: Distance | None = None,
) -> Places:
    """Find the cells that contain points; ids are 1, 2, ... in the order of the points.

    A point on a line between cells belongs to the cell with the higher row and column; a point on
    the lower or right edge of the raster belongs to the last cell. Longitudes of 285 and -75
    degrees are equal: a point outside the raster is also tried one turn around the Earth away.

    Parameters
    ----------
    points
        (x, y) or (x, y, start cost), in the grid's CRS.
    outside
        How to treat points outside the raster: "error" raises an error, "skip" leaves them out
        with a warning, "snap" moves them to the nearest cell of the raster, with a warning.
    snap
        Largest distance to move a point.

    Raises
    ------
    InputError
        when there are no points, or one is outside the raster, is not a point, or has a cost that
        is negative or not finite.
    """
    xy, costs = numbers_of(points, "point", "x, y")
    placed, _ = _placed(grid, _turned(grid, xy, np.arange(len(xy))))

    def name(k: int) -> str:
        return f"point {k + 1} (x {xy[k, 0]}, y {xy[k, 1]})"

    cells, inside = _inside(grid, np.floor(placed[:, ::-1]), outside, snap, "point", name)
    if not inside.all() and outside != "skip":
        raise OutsideError(
            f"outside the raster, which covers {bounds(grid)}: {named(~inside, name)}",
            nearest_cell(grid, placed[~inside][0, ::-1]),
        )
    numbers = np.arange(len(xy))
    return _places(cells[inside], numbers[inside] + 1, costs[inside], numbers[inside])


def from_rowcol(
    grid: GridSpec,
    points: Iterable[Sequence[float]],
    *,
    outside: Settling = "error",
    snap: Distance | None = None,
) -> Places:
    """Cells by row and column, counted from 0; ids are 1, 2, ... in their order.

    Parameters
    ----------
    points
        (row, column) or (row, column, start cost).
    outside, snap
        As for `from_xy`.

    Raises
    ------
    InputError
        as for `from_xy`, or when a row or column is not a whole number.
    """
    places, costs = numbers_of(points, "cell", "row, column")

    def name(k: int) -> str:
        return f"cell {k + 1} (row {places[k, 0]:.15g}, column {places[k, 1]:.15g})"

    broken = np.any(places % 1 != 0, axis=1)
    if broken.any():
        raise InputError(
            f"rows and columns must be whole numbers: {named(broken, name)}; give coordinates as "
            "shapely points, a GeoDataFrame, or a table with columns x and y"
        )
    cells, inside = _inside(grid, places, outside, snap, "cell", name)
    if not inside.all() and outside != "skip":
        raise OutsideError(
            f"outside the raster, which has rows 0 .. {grid.rows - 1} and columns 0 .. "
            f"{grid.cols - 1}: {named(~inside, name)}",
            nearest_cell(grid, places[~inside][0]),
        )
    numbers = np.arange(len(places))
    return _places(cells[inside], numbers[inside] + 1, costs[inside], numbers[inside])


def as_places(grid: GridSpec, value: PlacesLike, name: str) -> Places:
    """Check cells that a caller passes, and convert them to `Places`, which may be empty.

    Parameters
    ----------
    value, name
        The value and the name of the caller's argument.

    Raises
    ------
    InputError
        as for `from_rowcol`, or when `value` is not `PlacesLike`.
    """
    if features := geo_object(name, value):
        return from_vector(grid, features)
    if not isinstance(value, Places):
        if isinstance(value, str | bytes | os.PathLike):
            raise refused(
                name,
                " {file}: read a file with io.places.from_vector or from_raster first, or features "
                "with geopandas.read_file",
                file=repr(os.fspath(value)),
            )
        if not isinstance(value, Iterable) or isinstance(value, Mapping | np.ma.MaskedArray):
            some = "(row, column) pairs, shapely geometries, a GeoDataFrame or Places"
            raise wrong(name, value, some)
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if len(shape) == 2 and shape[1] not in (2, 3):
            raise wrong(name, value, "(row, column) pairs; for a mask, numpy.argwhere(mask)")
        try:
            points = value if isinstance(value, np.ndarray) and value.ndim else list(value)
        except TypeError:  # an array without dimensions
            raise wrong(name, value, "(row, column) pairs") from None
        try:
            return from_rowcol(grid, points) if len(points) else NO_PLACES
        except OutsideError as error:
            raise OutsideError(f"{name}: {error}", error.cell) from None
        except InputError as error:
            raise refused(name, ": {error}", error=error) from None
    columns = [np.asarray(a) for a in (value.rows, value.cols, value.ids, value.costs)]
    rows, cols, ids, costs = columns
    if any(a.ndim != 1 or len(a) != len(rows) for a in columns):
        raise refused(name, ": rows, cols, ids and costs need one dimension and one length")
    for column, a in zip(("rows", "cols", "ids"), columns, strict=False):
        if a.dtype.kind not in "iu" and a.size:
            raise refused(name, f": {column} are of type {a.dtype.name}, but must be integers")
    if not len(rows):
        return NO_PLACES
    if costs.dtype.kind not in "iuf" or not np.isfinite(costs).all():
        raise refused(name, ": a start cost is not a finite number")
    if not ((ids >= 1) & (ids <= MAX_ID)).all():
        raise refused(name, f": an id is not a whole number from 1 to {MAX_ID}")
    outside = (rows < 0) | (rows >= grid.rows) | (cols < 0) | (cols >= grid.cols)
    if outside.any():
        raise OutsideError(
            f"{name}: outside the raster, which has rows 0 .. {grid.rows - 1} and columns 0 .. "
            f"{grid.cols - 1}: {named(outside, lambda k: f'row {rows[k]}, column {cols[k]}')}",
            nearest_cell(grid, np.array((rows[outside][0], cols[outside][0]))),
        )
    numbers = None if value.given is None else np.asarray(value.given)
    places = _places(
        np.stack((rows, cols), axis=1), ids, costs.astype(np.float64), numbers, value.names
    )
    file, reprojected, in_order = value.file, value.reprojected, value.in_order
    return replace(places, file=file, reprojected=reprojected, in_order=in_order)


@checked(layer=text, path=file_or_object)
def from_vector(
    grid: GridSpec,
    path: str | os.PathLike[str] | GeoObject,
    layer: str | None = None,
    memory_limit: int | str | None = None,
    *,
    all_touched: bool = False,
    fields: bool = True,
    id_field: str | None = None,
    cost_field: str | None = None,
    outside: Settling = "skip",
    snap: Distance | None = None,
) -> Places:
    """Find the cells of the points, lines and polygons of a vector file.

    A line covers all cells that it touches. A polygon covers the cells whose centres are in it, or
    all cells that it touches if there are none. The field ``id`` holds ids, whole numbers that
    features may share; without it, ids are 1, 2, ... in the order of the file. The field ``cost``
    holds start costs.

    Parameters
    ----------
    path, layer
        As for `read_features`; features are reprojected to the grid's CRS. A feature that is not
        within the raster is also tried, as a whole, one turn around the Earth away.
    memory_limit
        Limit on the peak resident set size of the process, in bytes; a quarter of RAM when None.
    all_touched
        Whether a polygon covers all cells that it touches, even if there are centres in it.
    fields
        Whether to read ids and costs; if not, ids are 1, 2, ..., costs are 0, and features without
        geometry cover no cell.
    id_field, cost_field
        Fields to read instead of ``id`` and ``cost``; they must exist. If any value of `id_field`
        is not a whole number from 1 to 2**32 - 2, all values are names, which are numbered by ids
        and kept in `Places`.
    outside
        How to treat features outside the raster: "error" raises an error, also for features that
        are partly outside; "skip" leaves out the parts outside, unless everything is outside;
        "snap" also moves a feature of which nothing remains to the nearest cell. A warning lists
        the features that were left out, clipped or moved.
    snap
        Largest distance to move a feature.

    Raises
    ------
    InputError
        when the file or a feature cannot be used, or when a feature is not inside the raster.
    PlanError
        when the memory limit is too small for the features or for the cells that they cover.
    """
    limit = limit_of(memory_limit)
    with gdal_environment():
        field_options = {"fields": fields, "id_field": id_field, "cost_field": cost_field}
        features = read_features(path, grid, layer, limit, **field_options)  # type: ignore[arg-type]
        warn_of_shared(path, features.ids.tolist(), features.names)
        features.xy[:], beyond = _placed(grid, _turned(grid, features.xy, features.owner))
        if beyond.any() and outside == "error":
            those = np.isin(np.arange(len(features.parts)), features.owner[beyond])
            refuse_outside(grid, path, those, features.xy[beyond][0, ::-1])
        # To move features, their cells outside the raster are needed as well.
        shape = ANYWHERE if outside == "snap" else ((0, 0), grid.shape)
        needed = features.nbytes + COVERED_BYTES * sum(
            most_cells(part, shape) for parts in features.parts for part in parts
        )
        require(BASELINE + VECTOR_BYTES + needed, limit, f"for the cells that {path} covers")
        places = [
            np.concatenate([NO_CELLS, *(covered_cells(part, all_touched, shape) for part in parts)])
            for parts in features.parts
        ]
    owner = np.repeat(np.arange(len(places)), [len(covered_by) for covered_by in places])
    cells, inside = np.concatenate(places), np.ones(len(owner), bool)
    if beyond.any() and outside == "skip":
        parts, covered = (np.array([*map(len, one)]) for one in (features.parts, places))
        where = features.owner[beyond], features.xy[beyond][0, ::-1]
        warn_of_clipped(grid, path, parts, covered, *where)
    elif beyond.any():

        def name(k: int) -> str:
            return f"feature {owner[k] + 1}"

        cells, inside = _inside(grid, cells, outside, snap, "feature", name, owner)
        lost = ~np.isin(np.arange(len(places)), owner[inside]) & np.array(
            list(map(len, places)), bool
        )
        if lost.any():
            refuse_outside(grid, path, lost, places[lost.argmax()][0])
    owner = owner[inside]
    result = _places(
        cells[inside], features.ids[owner], features.costs[owner], owner, features.names
    )
    return replace(result, file=str(path), reprojected=features.reprojected, in_order=True)


def _inside(
    grid: GridSpec,
    cells: np.ndarray,
    outside: Settling,
    snap: Distance | None,
    kind: str,
    name: Callable[[int], str],
    owner: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Move cells (row, col) inside, and mark those inside; warn of moved and left out ones."""
    if np.all((cells >= 0) & (cells < grid.shape)):
        return cells, np.ones(len(cells), bool)
    near = np.clip(cells, -FAR, FAR).astype(np.int64)
    owners = np.arange(len(cells)) if owner is None else owner
    result = brought_inside(near, owners, grid, outside, snap)
    for one, done in ((result.moved, "moved into"), (result.left, "left out, outside")):
        if len(one) and (outside == "skip" or one is result.moved):
            names = named(np.isin(np.arange(len(cells)), one), name)
            several = "s" * (len(one) > 1)
            log.warning("%d %s%s %s the raster: %s", len(one), kind, several, done, names)
    return result.cells, result.kept


@checked()
def from_raster(
    grid: GridSpec, path: str | os.PathLike[str], memory_limit: int | str | None = None
) -> Places:
    """Find the cells of a raster that are neither nodata nor 0. It must be aligned with the grid.

    Their values are the ids; start costs are 0. Memory grows with the number of such cells.

    Parameters
    ----------
    memory_limit
        Limit on the peak resident set size of the process, in bytes; a quarter of RAM when None.

    Raises
    ------
    InputError
        when the raster cannot be read, is not aligned, contains a value that is not an id, or
        contains no id.
    PlanError
        when the memory limit is too small for this number of cells.
    """
    collected, count, excess = [], 0, Excess(BASELINE, limit_of(memory_limit))
    # 0 is not an id, so it can stand for nodata.
    with gdal_environment(), Mosaic([os.fspath(path)], nodata=0) as raster:
        must_match(grid, raster, path)
        if raster.decoding and owns_process():
            return_large_arrays()
        whole_rows = raster.sequential or raster.chunk[1] >= grid.cols
        size = (max(1, PIECE**2 // grid.cols), grid.cols) if whole_rows else (PIECE, PIECE)
        for window in _pieces(grid.window, *size):
            row0, row1, col0, col1 = window
            data = np.empty((row1 - row0, col1 - col0), raster.dtype)
            raster.read(window, data)
            marked = (data != 0) & ~cells.is_nodata(data, raster.nodata)
            places, ids = np.argwhere(marked) + np.array((row0, col0)), data[marked]
            count += len(ids)
            needed = COVERED_BYTES * count + 16 * data.nbytes
            needed += max(0, raster.decoding - GDAL_CACHE)
            fits = excess.has_room(needed, f"for {counted(count, 'cell')} of {path}")
            wrong = (ids < 1) | (ids > MAX_ID) | (ids % 1 != 0)
            if wrong.any():
                row, col = places[wrong][0]
                raise InputError(
                    f"{path}: has value {ids[wrong][0]} at row {row}, column {col}; ids must be "
                    f"whole numbers from 1 to {MAX_ID}, and other cells 0 or nodata"
                )
            if fits:
                collected.append((places, ids.astype(np.uint32)))
            else:
                collected.clear()
    excess.refuse()
    places, ids = (np.concatenate(column) for column in zip(*collected, strict=True))
    if not len(ids):
        raise InputError(f"{path}: every cell is 0 or nodata; mark at least one cell with an id")
    return _places(places, ids, np.zeros(len(ids)))


def merge(several: Sequence[Places]) -> Places:
    """Combine several `Places`. For the same cell and id, the least cost is kept.

    Raises
    ------
    InputError
        when `several` is empty.
    """
    if not several:
        raise InputError("no points, vector file or raster given")
    if len(several) == 1:
        return several[0]
    places, ids, costs = zip(*((s.places, s.ids, s.costs) for s in several), strict=True)
    numbers, last = [], 0
    for one in several:
        numbers.append(last + (np.arange(len(one)) if one.given is None else one.given))
        last = max(last, *numbers[-1] + 1) if len(one) else last
    names = {id_: name for one in several for id_, name in one.names.items()}
    cells, origins = np.concatenate(places), np.concatenate(numbers)
    merged = _places(cells, np.concatenate(ids), np.concatenate(costs), origins, names)
    file = several[0]
    return replace(merged, reprojected=file.reprojected, in_order=file.in_order)


def values_at(layer: Layer, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Read single cells of a layer; only the tiles around them are read.

    Raises
    ------
    StoreError
        when the layer is damaged.
    """
    # Strips of a block at a time: few reads, and little memory for any block size.
    high = max(_AT_ONCE // layer.block_size, TILE)
    strips = rows // high * layer.blocks.shape[1] + cols // layer.block_size
    order = np.argsort(strips, kind="stable")
    values = np.empty(len(rows), layer.dtype)
    for members in np.split(order, np.flatnonzero(np.diff(strips[order])) + 1):
        r, c = rows[members], cols[members]
        row, col = int(r.min()), int(c.min())
        data = layer.read_window(row, int(r.max()) + 1, col, int(c.max()) + 1)
        values[members] = data[r - row, c - col]
    return values


def _places(
    places: np.ndarray,
    ids: np.ndarray,
    costs: np.ndarray,
    origins: np.ndarray | None = None,
    names: Mapping[int, str] | None = None,
) -> Places:
    """Sort cells. For the same cell and id, the least cost is kept."""
    origins = np.arange(len(ids)) if origins is None else origins
    order = np.lexsort((origins, costs, ids, places[:, 1], places[:, 0]))
    rows, cols = places[order].astype(np.int64).T
    # Adding 0 turns -0.0, which files may contain, into 0.0.
    ids, costs = ids[order].astype(np.uint32), costs[order] + 0.0
    merged = Places(rows, cols, ids, costs, origins[order].astype(np.int64), names or {})
    same = (np.diff(rows) == 0) & (np.diff(cols) == 0)
    if not same.any():
        return merged
    merged = merged.chosen(np.append(True, ~same | (np.diff(merged.ids) != 0)))
    return merged.chosen(np.lexsort((merged.ids, merged.costs, merged.cols, merged.rows)))


def _turned(grid: GridSpec, xy: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Move features into a geographic grid by a turn around the Earth, such as -75 to 285."""
    west, _, east, _ = grid.bounds
    slack, first = ON_LINE * abs(grid.transform[0]), np.flatnonzero(np.diff(owner, prepend=-1))
    least, most = (end.reduceat(xy[:, 0], first) for end in (np.minimum, np.maximum))
    direction = np.where(least < west - slack, 1, np.where(most > east + slack, -1, 0))
    if not (direction.any() and grid.crs_wkt and (crs := grid_crs(grid)).is_geographic):
        return xy
    whole = round(2 * math.pi / crs.units_factor[1], 9)
    fits = (least + direction * whole >= west) & (most + direction * whole <= east)
    turns = np.repeat(np.where(fits, direction, 0), np.diff(first, append=len(xy)))
    return np.stack((xy[:, 0] + turns * whole, xy[:, 1]), axis=1)


def _placed(grid: GridSpec, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert positions to fractional (column, row), and mark those outside the raster.

    Positions on the right and lower edges become the next smaller numbers, which are in the last
    cells.
    """
    a, _, c, _, e, f = grid.transform
    size = np.array((grid.cols, grid.rows), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        placed = (xy - (c, f)) / (a, e)
        line = np.rint(placed)
        placed = np.where(np.abs(placed - line) <= ON_LINE, line, placed)
    outside = ~np.all((placed >= 0) & (placed <= size), axis=1)
    return np.where(placed == size, np.nextafter(size, 0), placed), outside


def _pieces(window: Window, rows: int, cols: int) -> Iterator[Window]:
    """Divide a window into windows of at most `rows` x `cols` cells, in row-major order."""
    row0, row1, col0, col1 = window
    for row in range(row0, row1, rows):
        for col in range(col0, col1, cols):
            yield row, min(row + rows, row1), col, min(col + cols, col1)
