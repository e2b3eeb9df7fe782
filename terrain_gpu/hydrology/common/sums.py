"""What sums of drainage are: whole numbers of units, so that their order does not matter."""

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
"""Where edge cells are counted, unless another name is given."""

EXACT_BITS = 50
"""Of the sum over the raster where flow is divided: float64 then tells all sums apart."""


def count_dtype(cells: int) -> np.dtype:
    """Type of numbers of cells of a raster of so many."""
    return np.dtype(np.uint32 if cells < 2**32 else np.int64)


def edge_dtype(cells: int) -> np.dtype:
    """Type of numbers of edge cells of a raster of so many cells; nodata is -1."""
    return np.dtype(np.int32 if cells < 2**31 else np.int64)


@dataclass(frozen=True)
class SumRule:
    """How much each cell contributes, and how sums are written.

    Attributes
    ----------
    grid
        Of the raster.
    areas
        Whether cells contribute their areas; else their number.
    exclude_self
        Whether a cell's own contribution is left out of its sum.
    divided
        Whether flow is divided; then units are fine.
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
        """Units and unit; not before there is a plan, for there may be many rows."""
        grid = self.grid
        units, unit = area_units(grid) if self.areas else (np.ones(grid.rows, np.int64), 1.0)
        if not self.divided:
            return units, unit
        spare = EXACT_BITS - (int(units.max()) * grid.cells).bit_length()
        units = units << spare if spare >= 0 else units + (1 << ~spare) >> -spare
        return units, unit * 2.0**-spare

    @property
    def units(self) -> np.ndarray:
        """int64, shape (rows of the raster,): what a cell of each row contributes."""
        return self._scale[0]

    @property
    def unit(self) -> float:
        """The value of one of them."""
        return self._scale[1]

    @property
    def dtype(self) -> np.dtype:
        """Type of the layer: int64 where a sum may be -1; float64 for areas and divided flow."""
        if self.areas or self.divided:
            return np.dtype(np.float64)
        return np.dtype(np.int64) if self.exclude_self else count_dtype(self.grid.cells)

    @property
    def sums_dtype(self) -> np.dtype:
        """Type of sums in units."""
        return np.dtype(np.int64) if self.areas or self.divided else count_dtype(self.grid.cells)

    @property
    def nodata(self) -> int:
        """The sum at cells that do not drain."""
        return -1 if self.exclude_self else 0

    def own(
        self, window: Window, codes: np.ndarray, weights: None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Which cells of a window count, and what each contributes; perhaps a read-only view."""
        known = codes != NOWHERE
        units = self.units[window[0] : window[1], None]
        return known, [np.broadcast_to(units, codes.shape) if known.all() else known * units]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        weights: None,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the sums of a window's cells, in units, to `out`."""
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
    """How many cells upstream lie on the edge of the data and drain inwards.

    Which these are takes the place of weights.
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
        """Which cells of a window drain, and 1 for those on the edge."""
        return codes != NOWHERE, [edge.astype(np.int64)]

    def write(
        self,
        window: Window,
        codes: np.ndarray,
        edge: np.ndarray,
        values: list[np.ndarray],
        out: np.ndarray,
    ) -> None:
        """Write the counts of a window's cells to `out`."""
        out[...] = values[0]
        out[codes == NOWHERE] = self.nodata


def open_edge_cells(store: TileStore, name: str, codes: Layer) -> Layer:
    """Open the layer of how many cells upstream of each lie on the edge, see `EdgeRule`.

    Raises
    ------
    StoreError
        when it does not exist, holds something else, or was counted along other directions.
    """
    make = f"(terrain-gpu flow-accumulation --edge-cells --directions {codes.name} --overwrite)"
    if name not in store:
        raise StoreError(f"{store.path}: has no layer {name!r}; count the edge cells {make}")
    layer = store.layer(name)
    settings = layer.info.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    if settings.get("edge_cells") is not True or layer.dtype != EdgeRule.of(layer.grid).dtype:
        raise StoreError(f"{layer.path}: holds no counts of edge cells; count them {make}")
    of = settings.get("of")
    if not (isinstance(of, dict) and codes.name in of and store.holds(codes.name, of[codes.name])):
        raise StoreError(
            f"{layer.path}: not counted along the directions that {codes.path} holds now; count "
            f"along them {make}"
        )
    return layer
