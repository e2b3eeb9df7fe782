"""Sums along flow paths, as whole numbers of units, whose order does not matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ...errors import StoreError
from ...grid import GridSpec, Window
from ...grid.lengths import area_units, refuse_without_lengths
from ...store import Layer, TileStore
from .code_values import NOWHERE

EDGE_LAYER = "upstream_edge_cells"
"""Default name of the layer that counts edge cells."""

EXACT_BITS = 50
"""Bits of the sum over the raster if flow is divided, so that float64 holds every sum exactly."""


def count_dtype(cells: int) -> np.dtype:
    """Return the data type for numbers of cells in a raster of this number of cells."""
    return np.dtype(np.uint32 if cells < 2**32 else np.int64)


def edge_dtype(cells: int) -> np.dtype:
    """Return the data type for numbers of edge cells in such a raster; nodata is -1."""
    return np.dtype(np.int32 if cells < 2**31 else np.int64)


@dataclass(frozen=True)
class SumRule:
    """The contribution of each cell, and how sums are written.

    Attributes
    ----------
    grid
        The grid of the raster.
    areas
        Whether cells contribute their areas; otherwise each contributes 1.
    exclude_self
        Whether the sum of a cell excludes its own contribution.
    divided
        Whether flow is divided, which needs finer units.
    """

    grid: GridSpec
    areas: bool
    exclude_self: bool = False
    divided: bool = False

    adds: ClassVar = True
    empty: ClassVar = 0
    columns: ClassVar = 1
    weights: ClassVar = None

    def __post_init__(self) -> None:
        if self.areas:
            refuse_without_lengths(self.grid)

    @cached_property
    def _scale(self) -> tuple[np.ndarray, float]:
        """Units per row, and the unit. Computed once there is a plan, as there may be many rows."""
        grid = self.grid
        units, unit = area_units(grid) if self.areas else (np.ones(grid.rows, np.int64), 1.0)
        if not self.divided:
            return units, unit
        spare = EXACT_BITS - (int(units.max()) * grid.cells).bit_length()
        units = units << spare if spare >= 0 else units + (1 << ~spare) >> -spare
        return units, unit * 2.0**-spare

    @property
    def units(self) -> np.ndarray:
        """int64, shape (rows of the raster,): the units that a cell of each row contributes."""
        return self._scale[0]

    @property
    def unit(self) -> float:
        """The value of a unit."""
        return self._scale[1]

    @property
    def dtype(self) -> np.dtype:
        """Data type of the layer: int64 if a sum may be -1, float64 for areas and divided flow."""
        if self.areas or self.divided:
            return np.dtype(np.float64)
        return np.dtype(np.int64) if self.exclude_self else count_dtype(self.grid.cells)

    @property
    def sums_dtype(self) -> np.dtype:
        """Data type of sums in units."""
        return np.dtype(np.int64) if self.areas or self.divided else count_dtype(self.grid.cells)

    @property
    def nodata(self) -> int:
        """The value of cells that do not drain."""
        return -1 if self.exclude_self else 0

    def own(
        self, window: Window, codes: np.ndarray, weights: None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the mask of cells that count, and contributions, maybe read-only."""
        drains = codes != NOWHERE
        units = self.units[window[0] : window[1], None]
        return drains, [np.broadcast_to(units, codes.shape) if drains.all() else drains * units]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        weights: None,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the sums of a window, which are in units, to `out`."""
        (sums,) = values
        if self.exclude_self:
            sums = sums - self.own(window, codes)[1][0]
        if self.dtype.kind == "f":
            np.multiply(sums, self.unit, out=out)
        else:
            out[...] = sums
        if self.exclude_self:
            out[codes == NOWHERE] = self.nodata


@dataclass(frozen=True)
class EdgeRule:
    """The number of upstream cells that are at the edge of the data and drain inwards.

    The mask of these cells takes the place of weights.
    """

    dtype: np.dtype

    adds: ClassVar = True
    empty: ClassVar = 0
    columns: ClassVar = 1
    weights: ClassVar = None
    nodata: ClassVar = -1
    sums_dtype: ClassVar = np.dtype(np.int64)

    @classmethod
    def of(cls, grid: GridSpec) -> EdgeRule:
        return cls(edge_dtype(grid.cells))

    def own(
        self, window: Window, codes: np.ndarray, edge: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the mask of cells that drain, and 1 for those at the edge."""
        return codes != NOWHERE, [edge.astype(np.int64)]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        edge: np.ndarray,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the counts of a window to `out`."""
        out[...] = values[0]
        out[codes == NOWHERE] = self.nodata


def open_edge_cells(store: TileStore, name: str, codes: Layer) -> Layer:
    """Open the layer that counts upstream edge cells; see `EdgeRule`.

    Raises
    ------
    StoreError
        If it does not exist, holds something else, or was counted along other directions.
    """
    make = f"(terrain-gpu flow-accumulation --edge-cells --directions {codes.name} --overwrite)"
    if name not in store:
        raise StoreError(f"{store.path}: has no layer {name!r}; count the edge cells {make}")
    layer = store.layer(name)
    settings = layer.info.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    if settings.get("edge_cells") is not True or layer.dtype != EdgeRule.of(layer.grid).dtype:
        raise StoreError(f"{layer.path}: does not count edge cells; count them {make}")
    of = settings.get("of")
    if not (isinstance(of, dict) and codes.name in of and store.holds(codes.name, of[codes.name])):
        raise StoreError(
            f"{layer.path}: not counted along the directions that {codes.path} holds now; count "
            f"along them {make}"
        )
    return layer
