"""What becomes of places outside the raster or on cells that cannot be used: `Misplaced`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arguments import Settling
from ..cells import is_nodata
from ..errors import InputError
from ..grid import cell_centres, clip
from ..plurals import counted
from ..store.layer import Layer
from .covered import named, settled, snap_distance
from .places import Places, values_at

log = logging.getLogger(__name__)

HINT = 100
"""Distance in cells within which a message names the nearest cell that can be used."""


class Ground(NamedTuple):
    """The layers that say which cells can be used.

    Attributes
    ----------
    needed
        Layers that must have a value.
    barriers
        Layers in which other values than 0 are impassable.
    """

    needed: Sequence[Layer]
    barriers: Sequence[Layer] = ()

    @property
    def layers(self) -> list[tuple[Layer, bool]]:
        """All of them, and whether it is one of barriers."""
        return [*((one, False) for one in self.needed), *((one, True) for one in self.barriers)]

    def usable(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Whether single cells can be used."""
        return self._usable(lambda layer: values_at(layer, rows, cols))

    def nearest(self, row: int, col: int, most: int) -> tuple[int, int, int] | None:
        """Squared distance, row and column of the nearest usable cell within so many cells.

        Of cells equally near, the first in row-major order.
        """
        grid, reach = self.needed[0].grid, 1
        while True:
            reach = min(reach, most)
            window = r0, r1, c0, c1 = clip(
                (row - reach, row + reach + 1, col - reach, col + reach + 1), grid.window
            )
            good = self._usable(lambda layer, at=window: layer.read_window(*at))
            down, across = np.arange(r0, r1) - row, np.arange(c0, c1) - col
            away = np.where(good, down[:, None] ** 2 + across**2, np.iinfo(np.int64).max)
            k = int(np.argmin(away))
            least = int(away.flat[k])
            if least <= reach**2:
                return least, r0 + k // (c1 - c0), c0 + k % (c1 - c0)
            if reach == most:
                return None
            reach *= 2

    def refuse_if_empty(self) -> None:
        """Refuse a raster without a value, which has no place to move to."""
        for layer, barrier in self.layers:
            if not barrier:
                layer.refuse_if_empty()

    def _usable(self, read: Callable[..., np.ndarray]) -> np.ndarray:
        return np.logical_and.reduce(
            [_good(read(layer), layer, barrier) for layer, barrier in self.layers]
        )


def _good(data: np.ndarray, layer: Layer, barrier: bool) -> np.ndarray:
    """Which cells of a layer can be used."""
    void = is_nodata(data, layer.nodata)
    return void | (data == 0) if barrier else ~void


def refuse_unusable(places: Places, ground: Ground, *, snapped: bool = False) -> None:
    """Check that every place lies on a cell that can be used.

    Parameters
    ----------
    snapped
        Whether the command has --snap, which the message then names.

    Raises
    ------
    InputError
        when places cannot be used; names the layer, and the file and the features, or the first
        cells, each with the nearest usable cell.
    StoreError
        when a layer is damaged.
    """
    for layer, barrier in ground.layers:
        bad = ~_good(values_at(layer, places.rows, places.cols), layer, barrier)
        if bad.any():
            break
    else:
        return
    ground.refuse_if_empty()
    cells = places.places
    xy = cell_centres(layer.grid, cells)

    def name(k: int) -> str:
        feature = ""
        if places.file and places.given is not None:
            feature = f"feature {places.given[k] + 1} at "
        return (
            f"{feature}{_at(cells[k])} (x {xy[k, 0]}, y {xy[k, 1]}; "
            f"{nearest_words(ground, *cells[k].tolist())})"
        )

    own, what = layer.path or layer.name, "barriers" if barrier else "nodata"
    start, where = (f"{places.file}: ", f" in {own}") if places.file else (f"{own}: ", "")
    raise InputError(
        f"{start}{bad.sum()} of {len(bad)} given cells are {what}{where}: {named(bad, name)}; "
        f"move them to cells {'without barriers' if barrier else 'with a value'}"
        + ", with --snap CELLS of the command, or leave them out, with --nodata skip"
        * snapped
    )


def settle(
    places: Places,
    ground: Ground,
    nodata: Settling = "error",
    snap: int | None = None,
    what: str = "places",
) -> Places:
    """Move places on cells that cannot be used, or leave them out.

    Of a feature that has usable cells, the others are left out. One without any is moved to the
    usable cell nearest to any of its cells.

    Parameters
    ----------
    ground
        The layers that say which cells can be used.
    nodata
        "error" refuses such places, "skip" leaves them out, "snap" moves them.
    snap
        Largest distance in cells to move over, at most `MOST_SNAP`.
    what
        What the places are, for messages.

    Raises
    ------
    InputError
        when a place cannot be used; names the nearest usable cell.
    """
    good = ground.usable(places.rows, places.cols)
    if good.all():
        return places
    ground.refuse_if_empty()
    cells = places.places
    owner = np.arange(len(places)) if places.given is None else places.given
    most = snap_distance(nodata, snap) if nodata == "snap" else -1

    def nearest(k: int) -> Any:
        return ground.nearest(int(cells[k, 0]), int(cells[k, 1]), most) if most >= 0 else None

    if nodata == "error":
        raise InputError(
            f"{_unusable(ground, cells, ~good, what)}; move them, with --snap CELLS of the command"
        )
    found = settled(cells, owner, good, nearest)
    bad = np.zeros(len(places), bool)
    bad[found.left] = True
    if nodata == "snap" and bad.any():
        near = f"; none is within {counted(most, 'cell')}: move them, or skip them"
        raise InputError(_unusable(ground, cells, bad, what) + near)
    if len(found.moved):
        names = named(
            np.isin(np.arange(len(places)), found.moved),
            lambda k: f"{places.called(k)} from {_at(cells[k])} to {_at(found.cells[k])}",
        )
        log.warning("%d of %d %s moved: %s", len(found.moved), len(places), what, names)
    if skipped := int((~good).sum()) - len(found.moved):
        gone = ~found.kept
        names = named(gone, lambda k: f"{places.called(k)} at {_at(cells[k])}")
        log.warning(
            "%d of %d %s left out, on cells without a value or impassable: %s",
            skipped,
            len(places),
            what,
            names,
        )
    if not found.kept.any():
        raise InputError(f"no {what} left: all lie on cells without a value, or impassable")
    return places.moved_to(found.cells).chosen(found.kept)


def _unusable(ground: Ground, cells: np.ndarray, bad: np.ndarray, what: str) -> str:
    """Name the first bad cells, and the nearest good one of each."""

    def name(k: int) -> str:
        return f"{_at(cells[k])} ({nearest_words(ground, *cells[k].tolist())})"

    layers = " or ".join(str(one.path) for one in ground.needed)
    blocked = "".join(f", or barriers in {one.path}" for one in ground.barriers)
    return (
        f"{layers}: {bad.sum()} of {len(bad)} {what} have no value here{blocked}: "
        f"{named(bad, name)}"
    )


def nearest_words(ground: Ground, row: int, col: int) -> str:
    """Name the nearest cell that can be used."""
    usable = "usable cell" if len(ground.layers) > 1 else "cell with a value"
    near = ground.nearest(row, col, HINT)
    if near is None:
        return f"no {usable} within {HINT} cells"
    away, *at = near
    several = "s" * (away != 1)
    return f"nearest {usable}: {_at(at)}, {math.sqrt(away):.3g} cell{several} away"


def _at(cell: Any) -> str:
    return f"row {cell[0]}, column {cell[1]}"
