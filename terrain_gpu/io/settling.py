"""Treat sources, targets or outlets on cells that cannot be used: `settle`."""

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
from ..grid.distance import CELLS, Distance
from ..store.layer import Layer
from .covered import Reach, named, settled
from .places import Places, values_at

log = logging.getLogger(__name__)

HINT = 100
"""Distance in cells within which a message names the nearest cell that can be used."""


class Ground(NamedTuple):
    """The layers that decide which cells can be used.

    Attributes
    ----------
    needed
        Layers that must be valid.
    barriers
        Layers in which values other than 0 are impassable.
    """

    needed: Sequence[Layer]
    barriers: Sequence[Layer] = ()

    @property
    def layers(self) -> list[tuple[Layer, bool]]:
        """All layers, each with whether it is a layer of barriers."""
        return [*((one, False) for one in self.needed), *((one, True) for one in self.barriers)]

    def usable(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Whether single cells can be used."""
        return self._usable(lambda layer: values_at(layer, rows, cols))

    def nearest(self, row: int, col: int, limit: Reach) -> tuple[float, int, int] | None:
        """Squared distance, row and column of the nearest usable cell within a limit.

        Of cells at the same distance, the first in row-major order is returned.
        """
        grid, reach, most = self.needed[0].grid, 1, limit.cells(row)
        while True:
            reach = min(reach, most)
            window = r0, r1, c0, c1 = clip(
                (row - reach, row + reach + 1, col - reach, col + reach + 1), grid.window
            )
            good = self._usable(lambda layer, part=window: layer.read_window(*part))
            down, across = np.arange(r0, r1) - row, np.arange(c0, c1) - col
            away = np.where(good, limit.squared(row, down[:, None], across), np.inf)
            k = int(np.argmin(away))
            least = float(away.flat[k])
            # A cell beyond the window may be nearer than one in its corner.
            beyond = (reach + 1) * limit.steps[:, row].min()
            if least <= limit.most**2 and (least < beyond**2 or reach == most):
                return least, r0 + k // (c1 - c0), c0 + k % (c1 - c0)
            if reach == most:
                return None
            reach *= 2

    def refuse_if_empty(self) -> None:
        """Reject a raster without valid cells, which leaves nothing to move to."""
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
    """Check that all places are on usable cells.

    Parameters
    ----------
    snapped
        Whether the command has --snap, which the message then suggests.

    Raises
    ------
    InputError
        when places cannot be used; names the layer, the first features with their file or the
        first cells, and the nearest usable cell of each.
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

    name_of_layer, obstacle = layer.path or layer.name, "barriers" if barrier else "nodata"
    start, where = (
        (f"{places.file}: ", f" in {name_of_layer}") if places.file else (f"{name_of_layer}: ", "")
    )
    raise InputError(
        f"{start}{bad.sum()} of {len(bad)} given cells are {obstacle}{where}: {named(bad, name)}; "
        f"move them to {'cells without barriers' if barrier else 'valid cells'}"
        + " (--snap DISTANCE of the command), or leave them out (--on-nodata skip)"
        * snapped
    )


def settle(
    places: Places,
    ground: Ground,
    nodata: Settling = "error",
    snap: Distance | None = None,
    what: str = "places",
) -> Places:
    """Move places that are on unusable cells, or leave them out.

    If a feature has usable cells, its other cells are left out. A feature without usable cells is
    moved to the usable cell nearest to any of its cells.

    Parameters
    ----------
    ground
        The layers that decide which cells can be used.
    nodata
        "error" raises an error for such places, "skip" leaves them out, "snap" moves them.
    snap
        Largest distance to move a place; at most `MOST_SNAP` cells.
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
    grid = ground.needed[0].grid
    reach = Reach.of(grid, nodata, snap) if nodata == "snap" else None

    def nearest(k: int) -> Any:
        return reach and ground.nearest(int(cells[k, 0]), int(cells[k, 1]), reach)

    if nodata == "error":
        raise InputError(
            f"{_unusable(ground, cells, ~good, what)}; move them (--snap DISTANCE of the command)"
        )
    result = settled(cells, owner, good, nearest)
    bad = np.zeros(len(places), bool)
    bad[result.left] = True
    if nodata == "snap" and bad.any():
        near = f"; no usable cell is within {snap}: move them, or skip them"
        raise InputError(_unusable(ground, cells, bad, what) + near)
    if len(result.moved):
        names = named(
            np.isin(np.arange(len(places)), result.moved),
            lambda k: f"{places.called(k)} from {_at(cells[k])} to {_at(result.cells[k])}",
        )
        log.warning("%d of %d %s moved: %s", len(result.moved), len(places), what, names)
    if skipped := int((~good).sum()) - len(result.moved):
        gone = ~result.kept
        names = named(gone, lambda k: f"{places.called(k)} at {_at(cells[k])}")
        log.warning(
            "%d of %d %s left out (on nodata or impassable cells): %s",
            skipped,
            len(places),
            what,
            names,
        )
    if not result.kept.any():
        raise InputError(f"no {what} left: all are on nodata or impassable cells")
    return places.moved_to(result.cells).chosen(result.kept)


def _unusable(ground: Ground, cells: np.ndarray, bad: np.ndarray, kind: str) -> str:
    """List the first unusable cells, and the nearest usable one of each."""

    def name(k: int) -> str:
        return f"{_at(cells[k])} ({nearest_words(ground, *cells[k].tolist())})"

    layers = " or ".join(str(one.path) for one in ground.needed)
    blocked = "".join(f", or barriers in {one.path}" for one in ground.barriers)
    return (
        f"{layers}: {bad.sum()} of {len(bad)} {kind} are on nodata cells{blocked}: "
        f"{named(bad, name)}"
    )


def nearest_words(ground: Ground, row: int, col: int) -> str:
    """Name the nearest usable cell."""
    usable = "usable cell" if len(ground.layers) > 1 else "valid cell"
    reach = Reach.of(ground.needed[0].grid, "snap", Distance(HINT, CELLS))
    near = ground.nearest(row, col, reach)
    if near is None:
        return f"no {usable} within {HINT} cells"
    away, *cell = near
    several = "s" * (away != 1)
    return f"nearest {usable}: {_at(cell)}, {math.sqrt(away):.3g} cell{several} away"


def _at(cell: Any) -> str:
    return f"row {cell[0]}, column {cell[1]}"
