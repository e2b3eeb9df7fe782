"""Pour points, the cells where watersheds end: `PourPoints`."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...cells import is_nodata
from ...errors import ArgumentError, InputError, OutsideError, StoreError
from ...grid import GridSpec, Window, cell_centres, units
from ...grid.distance import Distance
from ...grid.lengths import cell_areas, step_lengths
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.covered import NAMED, named
from ...io.encodings import to_own_codes
from ...io.places import PlacesLike, as_places, values_at
from ...store import Layer, TileStore
from ..common.code_values import NOWHERE
from ..common.codes import open_directions
from ..forest.source import heights_in
from .snap import distances, most_within

log = logging.getLogger(__name__)

HOLDS = "pour points"
"""Recorded as the content of the layer of pour points that belongs to one of watersheds."""

FEW = 10
"""A pour point that fewer cells drain to is probably misplaced."""

_SQUARE = 512
"""Side, in cells, of the squares whose points share one read of directions."""

_REACH = (8, 64, 512)
"""Distances, in cells, within which the nearest cell that drains is looked for, in turn."""


def points_layer(labels: str) -> str:
    """Return the name of the layer of the pour points of watersheds."""
    return f"{labels}_points"


def digest(ids: np.ndarray, *columns: np.ndarray) -> str:
    """Return a digest of pour points: their ids, uint32, and further columns, int64."""
    sha = hashlib.sha256(ids.astype("<u4").tobytes())
    for column in columns:
        sha.update(np.ascontiguousarray(column, "<i8").tobytes())
    return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class PourPoints:
    """Pour points, sorted by their ids, then by the given cells.

    Attributes
    ----------
    ids
        uint32, from 1 to 2**32 - 2; several points may share an id.
    given, cells
        int64, shape (n, 2): row and column of the given cells, and of those they were moved to.
    """

    ids: np.ndarray
    given: np.ndarray
    cells: np.ndarray

    @classmethod
    def of(cls, codes: Layer, pour_points: PlacesLike) -> PourPoints:
        """Read pour points in any form that callers may give.

        Raises
        ------
        InputError
            If there are none, or one is outside the raster.
        """
        points = as_places(codes.grid, pour_points, "pour_points")
        if not len(points):
            raise ArgumentError("there are no {pour_points}; give one or more")
        order = np.lexsort((points.cols, points.rows, points.ids))
        cells = points.places[order]
        return cls(points.ids[order], cells, cells)

    def __len__(self) -> int:
        return len(self.ids)

    def refuse_nodata(self, layer: Layer, snap: Distance | None) -> None:
        """Check that each point is on or near a valid cell, before directions are computed.

        Parameters
        ----------
        layer
            Elevations or directions. Cells that are nodata do not drain.
        snap
            Distance by which points may be moved; None if they may not.

        Raises
        ------
        InputError
            If there is no valid cell for a point. The message names the nearest one.
        """
        none = is_nodata(values_at(layer, *self.cells.T), layer.nodata)
        if snap is not None and none.any():
            none[none] = most_within(layer, self.cells[none], snap)[1]
        if not none.any():
            return
        layer.refuse_if_empty()
        far = "" if snap is None else snap.shown(layer.grid)
        which = f"have no valid cell within {far}" if far else "are nodata"
        near = _nearest_valid(layer, self.cells[none][0].tolist(), remedy=_remedy(snap))
        raise InputError(
            f"{layer.path}: {none.sum()} of {len(self)} pour points {which}: "
            f"{self._named(none, layer.grid)}; {near}"
        )

    def snapped(
        self,
        store: TileStore,
        codes: Layer,
        sums: Layer,
        snap: Distance,
        expected: np.ndarray | None = None,
    ) -> PourPoints:
        """Move each point to the cell within a distance that has the largest or the expected sum.

        Raises
        ------
        InputError
            If no cell within the distance of a point has a sum. The message names a cell nearby, as
            for `refuse_undrained`.
        """
        cells, none = most_within(sums, self.given, snap, expected)
        if none.any():
            sums.refuse_if_empty()
            row, col = self.cells[none][0].tolist()
            raise InputError(
                f"{sums.path}: {none.sum()} of {len(self)} pour points have no cell that drains "
                f"within {snap.shown(sums.grid)}: {self._named(none, sums.grid)}; "
                f"{_nearest(store, codes, (row, col), remedy=_remedy(snap))}"
            )
        return replace(self, cells=cells)

    def refuse_undrained(self, store: TileStore, codes: Layer) -> None:
        """Check that all points drain.

        Raises
        ------
        InputError
            If one does not. The message names the nearest channel cell if the store has a layer of
            streams, or else the nearest cell that drains.
        """
        at_points = values_at(codes, *self.cells.T)
        to_own_codes(at_points, codes.nodata)
        none = at_points == NOWHERE
        if none.any():
            codes.refuse_if_empty()
            row, col = self.cells[none][0].tolist()
            raise InputError(
                f"{codes.path}: {none.sum()} of {len(self)} pour points do not drain: "
                f"{self._named(none, codes.grid)}; {_nearest(store, codes, (row, col))}"
            )

    def _named(self, which: np.ndarray, grid: GridSpec) -> str:
        marked = np.flatnonzero(which)
        shown = marked[:NAMED]
        xy = cell_centres(grid, self.cells[shown])
        names = ", ".join(
            f"{self.ids[k]} at row {self.cells[k, 0]}, column {self.cells[k, 1]} (x {x}, y {y})"
            for k, (x, y) in zip(shown, xy.tolist(), strict=True)
        )
        return names + (f" and {len(marked) - NAMED} more" if len(marked) > NAMED else "")

    # -- where paths end ------------------------------------------------------------------------

    @cached_property
    def _unique(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct cells in row-major order, the index of each point, and their least ids."""
        row, col = self.cells.T
        _, first, which = np.unique(row << 32 | col, return_index=True, return_inverse=True)
        return self.cells[first], which, self.ids[first]  # points are sorted by id

    @property
    def places(self) -> np.ndarray:
        """The distinct cells in row-major order; int64, shape (n, 2)."""
        return self._unique[0]

    @property
    def which(self) -> np.ndarray:
        """The index of each point in `places`."""
        return self._unique[1]

    @property
    def labels(self) -> np.ndarray:
        """The label of each of `places`: the smallest id of the points there."""
        return self._unique[2]

    @cached_property
    def named(self) -> np.ndarray:
        """The label for each number that `within` returns, and 0 for number 0."""
        return np.append(np.uint32(0), self.labels)

    @property
    def digest(self) -> str:
        """A digest of the labels and their cells."""
        return digest(self.labels, self.places)

    @property
    def table_digest(self) -> str:
        """A digest of all points, as their table shows them."""
        return digest(self.ids, self.given, self.cells)

    def tell_shared(self) -> None:
        """Warn of points that share a cell with another point."""
        shared = np.flatnonzero(self.labels[self.which] != self.ids)
        if len(shared):
            names = ", ".join(
                f"{self.ids[k]} (label {self.labels[self.which[k]]})" for k in shared[:NAMED]
            )
            others = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
            log.warning(
                "%d of %d pour points share the cell of one with a lower id and have its label: "
                "%s%s", len(shared), len(self), names, others,
            )  # fmt: skip

    def tell_small(self, codes: Layer, *, snapped: bool) -> None:
        """Warn of points that few cells drain to, which probably lie next to a channel."""
        counts, which = few_upstream(codes, self.cells), np.unique(self.ids, return_inverse=True)[1]
        of_id = np.bincount(which.ravel(), counts)[which.ravel()]
        small = np.flatnonzero(of_id < FEW)
        if not len(small):
            return
        areas, unit = cell_areas(codes.grid), units.of_areas(codes.grid) or "square map units"
        names = named(
            of_id < FEW,
            lambda k: (
                f"{self.ids[k]} at row {self.cells[k, 0]}, column {self.cells[k, 1]} "
                f"({of_id[k]:.0f} cell{'' if of_id[k] == 1 else 's'}, "
                f"{of_id[k] * areas[self.cells[k, 0]]:.6g} {unit})"
            ),
        )
        log.warning(
            "%d of %d pour points catch fewer than %d cells: %s; if they should lie on a channel, "
            "snap them %s",
            len(small),
            len(self),
            FEW,
            names,
            "farther (--snap)" if snapped else "to it (--snap)",
        )

    def within(self, window: Window) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the cells in a window: rows and columns within it, and their numbers from 1."""
        r0, r1, c0, c1 = window
        first, last = np.searchsorted(self.places[:, 0], [r0, r1])
        row, col = self.places[first:last].T
        inside = (col >= c0) & (col < c1)
        return row[inside] - r0, col[inside] - c0, np.flatnonzero(inside) + first + 1


def few_upstream(codes: Layer, cells: np.ndarray) -> np.ndarray:
    """Count the cells that drain through each cell, itself included, up to `FEW`."""
    grid, counts = codes.grid, np.zeros(len(cells), np.int64)
    squares = cells // _SQUARE
    order = np.lexsort(squares.T[::-1])
    starts = np.flatnonzero(np.any(np.diff(squares[order], axis=0, prepend=-1) != 0, axis=1))
    for square in np.split(order, starts[1:]):
        (r0, c0), (r1, c1) = cells[square].min(axis=0) - FEW, cells[square].max(axis=0) + FEW + 1
        r0, c0, r1, c1 = max(r0, 0), max(c0, 0), min(r1, grid.rows), min(c1, grid.cols)
        data = np.pad(codes.read_window(r0, r1, c0, c1), 1, constant_values=NOWHERE)
        to_own_codes(data, codes.nodata)
        for k in square.tolist():
            upstream = [(int(cells[k, 0]) - r0 + 1, int(cells[k, 1]) - c0 + 1)]
            for row, col in upstream:  # the list grows in the loop
                for step in range(8):
                    r, c = row - int(ROW_STEP[step]), col - int(COL_STEP[step])
                    if len(upstream) < FEW and data[r, c] == 1 << step and (r, c) not in upstream:
                        upstream.append((r, c))
            counts[k] = len(upstream)
    return counts


@contextmanager
def naming_nearest(store: TileStore, directions: str) -> Iterator[None]:
    """Add the nearest channel to errors about pour points outside the raster.

    Without directions, the nearest valid cell.
    """
    try:
        yield
    except OutsideError as error:
        # Points outside the raster are rejected before they could be snapped.
        if directions in store:
            nearest = _nearest(store, open_directions(store, directions), error.cell, remedy="")
        else:
            nearest = _nearest_valid(heights_in(store), error.cell, remedy="")
        raise OutsideError(f"{error}; {nearest}", error.cell) from None


def _remedy(snap: Distance | None) -> str:
    return ", or snap it (--snap)" if snap is None else ", or snap farther (--snap)"


def _nearest(
    store: TileStore,
    codes: Layer,
    cell: tuple[int, int],
    *,
    remedy: str = _remedy(None),
) -> str:
    """Say which channel cell is nearest, or else which cell that drains, and what to do."""
    drains = NOWHERE if codes.nodata is None else codes.nodata
    layers = (_channels(store, codes), 0, "of a channel"), ((codes,), drains, "that drains")
    return _nearest_of(layers, cell, remedy=remedy, none="drains")


def _nearest_valid(layer: Layer, cell: tuple[int, int], *, remedy: str) -> str:
    """The nearest valid cell of a layer, and what to do."""
    kinds = [((layer,), layer.nodata, "that is valid")]
    return _nearest_of(kinds, cell, remedy=remedy, none="is valid")


def _nearest_of(
    kinds: Iterable[tuple[Iterable[Layer], float | None, str]],
    cell: tuple[int, int],
    *,
    remedy: str,
    none: str,
) -> str:
    """Say which cell is nearest, of the first kind that has one, and what to do.

    Parameters
    ----------
    kinds
        For each kind: its layers, the value of cells that do not count, and words for the others.
    remedy
        Words for another remedy than moving the point.
    none
        Words for what no cell does if there is none.
    """
    for layers, void, name in kinds:
        near = [_nearest_in(layer, *cell, void) for layer in layers]
        if candidates := [one for one in near if one is not None]:
            far, row, col = min(candidates)
            ((x, y),) = cell_centres(next(iter(layers)).grid, np.array([[row, col]])).tolist()
            away = f", {far:.6g} away" * bool(remedy)  # not for a point outside the raster
            return (
                f"the cell {name} nearest to the first is row {row}, column {col} (x {x}, y {y})"
                f"{away}: move it there{remedy}"
            )
    return f"no cell within {_REACH[-1]} cells of the first {none}: move it"


def _channels(store: TileStore, codes: Layer) -> list[Layer]:
    """Return the layers of streams along these directions that are up to date."""
    channels = []
    for _, layer in store.each():
        with suppress(StoreError):
            if isinstance(layer, StoreError):
                continue
            settings = layer.info.get("settings")
            of = settings.get("streams_of") if isinstance(settings, dict) else None
            if of == codes.name and not store.stale(layer):
                channels.append(layer)
    return channels


def _nearest_in(
    layer: Layer, row: int, col: int, void: float | None
) -> tuple[float, int, int] | None:
    """Return distance, row and column of the nearest cell that is not `void`, if it is near."""
    grid, nearest = layer.grid, None
    across, _, down, _ = step_lengths(grid)
    for reach in _REACH:
        r0, r1 = max(row - reach, 0), min(row + reach + 1, grid.rows)
        c0, c1 = max(col - reach, 0), min(col + reach + 1, grid.cols)
        data = layer.read_window(r0, r1, c0, c1)
        near = np.argwhere(~is_nodata(data, void)) + np.array((r0, c0))
        if len(near):
            far = distances(grid, row, col, near)
            first = int(np.argmin(far))
            nearest = float(far[first]), int(near[first, 0]), int(near[first, 1])
            # A cell beyond the window may be nearer than one in its corner.
            beyond = min((across[r0:r1].min() + across[row]) / 2, down.min()) * (reach + 1)
            if nearest[0] <= beyond:
                break
    return nearest
