"""Layers of a store as map tiles: which cells are read, and how they are coloured."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .. import cells
from ..errors import StoreError
from ..facts import JsonObject
from ..grid import Window, ceil_div, clip
from ..grid.neighbours import BACKLINKS, FLOW_DIRECTIONS, FORWARD_EDGES
from ..store import Layer, TileStore
from ..store.levels import factors_of, levels_of, overviews_of
from ..store.manage import is_coded, made_by
from . import pictures

SIDE = 256
"""Side of a tile in pixels."""

MOST_STEP = 8
"""If the next finer level is finer by more than this factor, only some of its cells are read."""

COARSE = 8
"""In that case, one cell is shown by this number of pixels along a side."""

METRES_PER_DEGREE = 111_320

MOST_CLASSES = 12
"""Largest number of classes in a legend."""

ARROWS = "→ E", "↘ SE", "↓ S", "↙ SW", "← W", "↖ NW", "↑ N", "↗ NE"
"""Directions to neighbours, in the order of `grid.neighbours`."""

DIRECTIONS = {FLOW_DIRECTIONS: "outlet", BACKLINKS: "source"}
"""Encodings of directions, and what their code 0 means."""

LAND = ("convert-dataset", "fill", "breach", "burn")
"""Commands whose layers are elevations."""


class Pyramid:
    """A layer and its overviews, read at any power of two.

    If levels are missing, every n-th cell of the next finer level is shown. A map tile reads at
    most 2048 x 2048 cells at once, or (SIDE / COARSE)**2 tiles of the store.

    Parameters
    ----------
    store
        The store.
    name
        The layer.
    base
        Number of map cells along a side of a cell of the store: 1, or more for a coarser level.
    """

    def __init__(self, store: TileStore, name: str, base: int = 1) -> None:
        self.base, self.layer = base, store.layer(name)
        fresh = overviews_of(store, name)[0]
        self.levels = {base: self.layer}
        for factor, level in levels_of(store):
            if factor in fresh:
                self.levels[base * factor] = level.layer(name)

    def read(self, factor: int, window: Window) -> np.ndarray:
        """Read a window inside the raster, given in cells of `factor`.

        `factor` is a power of two, at least `base`.
        """
        have = max(level for level in self.levels if level <= factor)
        layer, step = self.levels[have], factor // have
        r0, r1, c0, c1 = window
        if step <= MOST_STEP:
            ends = (r0 * step, (r1 - 1) * step + 1, c0 * step, (c1 - 1) * step + 1)
            return layer.read_window(*ends)[::step, ::step]
        rows, back = np.unique(np.arange(r0, r1) // COARSE, return_inverse=True)
        cols, across = np.unique(np.arange(c0, c1) // COARSE, return_inverse=True)
        sampled = np.empty((len(rows), len(cols)), layer.dtype)
        for i, row in enumerate((rows * COARSE * step).tolist()):
            for j, col in enumerate((cols * COARSE * step).tolist()):
                sampled[i, j] = layer.read_window(row, row + 1, col, col + 1)[0, 0]
        return sampled[np.ix_(back, across)]

    def value(self, row: int, col: int) -> str | None:
        """The value of a cell of the map as text; None for nodata."""
        row, col = row // self.base, col // self.base
        value = self.layer.read_window(row, row + 1, col, col + 1)
        if cells.is_nodata(value, self.layer.nodata)[0, 0]:
            return None
        return str(value[0, 0]) if value.dtype.kind in "iu" else f"{value[0, 0]:.7g}"


@dataclass(frozen=True)
class Look:
    """How a layer is shown.

    Attributes
    ----------
    kind
        "ramp" or "classes".
    colours
        Name of the ramp.
    low, high
        Values at its ends; few cells of the coarsest level are beyond them.
    log
        Whether the ramp is logarithmic.
    interval
        Interval of contour lines.
    """

    kind: str
    colours: str = "plain"
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    interval: float = 1.0


class Source:
    """A store, or the result of a run, as a map.

    Parameters
    ----------
    store
        The store.
    base
        See `Pyramid`.
    shape
        Rows and columns of the map in cells.
    units
        Units of layers that have no units themselves.
    """

    def __init__(
        self, store: TileStore, base: int, shape: tuple[int, int], units: dict[str, str]
    ) -> None:
        self.store, self.base, self.shape, self._units = store, base, shape, units
        self._shown: dict[str, Shown] = {}

    def shown(self, name: str) -> Shown:
        """A layer as shown; raises StoreError if there is none."""
        layer = self._shown.get(name)  # another thread may remove it meanwhile
        if layer is None:
            if name not in self.store:
                raise StoreError(f"{self.store.path}: no layer {name!r}")
            layer = self._shown[name] = Shown(self, Pyramid(self.store, name, self.base))
        return layer

    def refresh(self) -> None:
        """Drop layers that were replaced or removed, or whose levels have changed."""
        for name, shown in list(self._shown.items()):
            with contextlib.suppress(StoreError):
                levels = {1, *overviews_of(self.store, name)[0]}
                same = {self.base * factor for factor in levels} == shown.pyramid.levels.keys()
                if same and self.store.layer(name).info == shown.layer.info:
                    continue
            self._shown.pop(name, None)

    def rows_and_cols(self, factor: int) -> tuple[int, int]:
        """Number of rows and columns of the raster in cells of `factor`."""
        rows, cols = self.shape
        return ceil_div(rows, factor), ceil_div(cols, factor)

    @property
    def coarsest(self) -> int:
        """The factor at which the whole raster is one tile."""
        return max([self.base, *(self.base * factor for factor in factors_of(self.store.grid))])

    @property
    def aspect(self) -> float:
        """Ratio of width to height of a cell in the middle of the raster."""
        dx, dy = self.cell(1, 0, self.shape[0])
        return min(100.0, max(0.01, abs(dx / dy)))

    @property
    def north_up(self) -> tuple[slice, slice]:
        """Rows and columns in the order of a map: southwards and eastwards."""
        a, _, _, _, e, _ = self.store.grid.transform
        return slice(None, None, -1 if e > 0 else 1), slice(None, None, -1 if a < 0 else 1)

    def cell(self, factor: int, row: int, rows: int) -> tuple[float, float]:
        """Width and height of a cell of `factor`, in metres if the CRS is geographic.

        Negative if columns run westwards, or rows northwards.
        """
        grid = self.store.grid
        a, _, _, _, e, f = grid.transform
        share = factor / self.base
        dx, dy = a * share, -e * share
        if grid.is_geographic:
            latitude = f + e * share * (row + rows / 2)
            dx *= METRES_PER_DEGREE * max(0.01, math.cos(math.radians(latitude)))
            dy *= METRES_PER_DEGREE
        return dx, dy

    def units(self, layer: Layer) -> str | None:
        return layer.attributes.get("units") or self._units.get(layer.name)


class Shown:
    """A layer as shown on the map: its tiles and its legend."""

    def __init__(self, source: Source, pyramid: Pyramid) -> None:
        self.source, self.pyramid, self.layer = source, pyramid, pyramid.layer

    @cached_property
    def _sample(self) -> np.ndarray:
        """The layer in one tile, as floats, NaN for nodata, with a ring of neighbours."""
        factor = self.source.coarsest
        rows, cols = self.source.rows_and_cols(factor)
        return self._padded(factor, (0, rows, 0, cols))[0]

    @cached_property
    def look(self) -> Look:
        """How the layer is shown."""
        values = self._sample
        values = values[np.isfinite(values)]
        if not values.size:
            return Look("ramp")
        name, maker = self.layer.name, made_by(self.layer)
        least, most = self._range(values)
        few = np.unique(values).size <= 12 and most - least < 256
        if self.layer.dtype.kind in "iu" and (few or is_coded(self.layer)):
            return Look("classes")
        low, high = np.percentile(values, (0.5, 99.5)).tolist()
        log, colours = False, "plain"
        if name == "elevation" or maker in LAND:
            colours = "land"
        elif maker == "compute-sssp":
            low, colours = 0.0, "cost"
        elif least >= 0 and most > 1000 * np.median(
            positive := np.append(values[values > 0], most)
        ):
            low, high, log, colours = float(positive.min()), most, True, "water"
        interval = _round_interval((high - low) / 10, self.source.units(self.layer))
        return Look("ramp", colours, low, high, log, interval)

    def _range(self, sample: np.ndarray) -> tuple[float, float]:
        """The minimum and maximum; those of a sample if they are not recorded."""
        statistics = self.layer.statistics()
        ends = [statistics["min"], statistics["max"]]
        if all(type(end) in (int, float) for end in ends):
            return float(ends[0]), float(ends[1])
        return float(sample.min()), float(sample.max())

    @cached_property
    def _steepness(self) -> float:
        sample, factor = self._sample, self.source.coarsest
        return pictures.steepness(sample, *self.source.cell(factor, 0, sample.shape[0]))

    def legend(self) -> JsonObject:
        """The description of the layer for the page."""
        look, layer = self.look, self.layer
        description: JsonObject = {
            "name": layer.name,
            "kind": look.kind,
            "units": self.source.units(layer),
            "dtype": layer.dtype.name,
            "made_by": made_by(layer),
            "overviews": len(self.pyramid.levels) > 1 or self.source.coarsest == self.source.base,
            **layer.statistics(),
        }
        if look.kind == "ramp":
            palette = pictures.ramp(look.colours)[1::23, :3]
            description |= {"low": look.low, "high": look.high, "log": look.log}
            description |= {"interval": look.interval, "colours": palette.tolist()}
            return description
        return description | self._classes()

    def _classes(self) -> JsonObject:
        """Names and colours of classes, and a text if there are many."""
        encoding = self.layer.info.get("encoding")
        if encoding == FORWARD_EDGES:
            return {"classes": [], "text": "edges to E 1, SW 2, S 4 and SE 8, added up"}
        if encoding in DIRECTIONS:
            values, names = (
                np.array([*(1 << k for k in range(8)), 0]),
                [*ARROWS, DIRECTIONS[encoding]],
            )
        else:
            values = np.unique(self._sample[np.isfinite(self._sample)])
            if values.size > MOST_CLASSES:
                low, high = self._range(values)
                text = f"numbers from {low:,.0f} to {high:,.0f}, told apart by colour"
                return {"classes": [], "text": text}
            names = [str(value) for value in values.astype(self.layer.dtype).tolist()]
        colours = pictures.hues()[pictures.classes(values.astype(self.layer.dtype))][:, :3]
        return {"classes": list(zip(names, colours.tolist(), strict=True))}

    def tile(self, kind: str, factor: int, row: int, col: int) -> bytes:
        """A tile of "cells", "shade" or "lines" as PNG, north up.

        The tile at `factor`, `row` and `col` must touch the raster.
        """
        rows, cols = self.source.rows_and_cols(factor)
        window = (row * SIDE, (row + 1) * SIDE, col * SIDE, (col + 1) * SIDE)
        window = clip(window, (0, rows, 0, cols))
        if kind == "cells":
            data = self.pyramid.read(factor, window)
            empty = cells.is_nodata(data, self.layer.nodata)
            numbers, palette = self._coloured(data)
        else:
            data, empty = self._padded(factor, window)
            numbers, palette = self._drawn(kind, factor, window[0], data)
        picture = np.zeros((SIDE, SIDE), np.uint8)
        picture[: numbers.shape[0], : numbers.shape[1]] = np.where(empty, 0, numbers)
        return pictures.png(picture[self.source.north_up], palette)

    def _coloured(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        look = self.look
        if look.kind == "classes":
            return pictures.classes(data), pictures.hues()
        numbers = pictures.shares(data, look.low, look.high, log=look.log)
        return numbers, pictures.ramp(look.colours)

    def _drawn(
        self, kind: str, factor: int, row: int, data: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if kind == "lines":
            return pictures.isolines(data, self.look.interval), pictures.strokes()
        # Terrain gets smoother with coarser cells; this makes hillshades of all levels look alike.
        steep = self._steepness * (self.source.coarsest / factor) ** 0.3
        raised = pictures.STEEP / steep if steep else 1.0
        size = self.source.cell(factor, row, data.shape[0])
        return pictures.hillshade(data, *size, raised), pictures.greys()

    def _padded(self, factor: int, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Cells of a window with a ring, as floats, NaN for nodata; and a mask of nodata.

        Beyond the raster, cells are repeated.
        """
        rows, cols = self.source.rows_and_cols(factor)
        r0, r1, c0, c1 = window
        inside = clip((r0 - 1, r1 + 1, c0 - 1, c1 + 1), (0, rows, 0, cols))
        data = self.pyramid.read(factor, inside)
        empty = cells.is_nodata(data, self.layer.nodata)
        values = np.where(empty, np.nan, data.astype(np.float64))
        ring = ((inside[0] - r0 + 1, r1 + 1 - inside[1]), (inside[2] - c0 + 1, c1 + 1 - inside[3]))
        values = np.pad(values, ring, mode="edge")
        return values, np.isnan(values[1:-1, 1:-1])


def _round_interval(about: float, units: str | None) -> float:
    """A round number near `about`; for seconds, a round number of minutes or hours."""
    if not about > 0 or not math.isfinite(about):
        return 1.0
    if units == "s" and about > 30:
        times = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
        near = [one for one in times if about / 1.5 <= one]
        if near:
            return float(near[0])
    tens = 10.0 ** math.floor(math.log10(about))
    return tens * min((1, 2, 5, 10), key=lambda one: abs(one * tens - about))
