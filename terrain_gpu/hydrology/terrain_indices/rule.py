"""The definition of terrain indices and their input layers, for the operation and its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...cells import is_nodata
from ...errors import InputError, StoreError
from ...grid import BlockGrid, Window
from ...grid.lengths import cell_areas, metres_per_unit
from ...store import Layer
from ...store.readable import Readable

if TYPE_CHECKING:
    from ...store import TileStore
    from . import TerrainIndices

KINDS = ("twi", "spi", "ls")
NODATA = -9999.0
DTYPE = np.dtype("<f4")
RADIANS = math.pi / 180

PLOT = 22.13
"""Length, in metres, of the standard plots of the universal soil loss equation."""

PLOT_SINE = 0.0896
"""Sine of the slope of the standard plots."""


@dataclass(frozen=True)
class IndexRule:
    """Specific catchment areas, and the cells that have indices.

    Attributes
    ----------
    slopes
        The layer of slopes in degrees.
    sums
        The layer of flow accumulation: uint32 or int64 cells, or float64 areas.
    min_slope
        Slope in degrees that the wetness index assumes for flatter cells.
    """

    slopes: Readable
    sums: Layer
    min_slope: float

    @property
    def blocks(self) -> BlockGrid:
        layers = self.slopes, self.sums
        largest: BlockGrid = max((layer.blocks for layer in layers), key=lambda one: one.block)
        return largest

    @property
    def least_tangent(self) -> float:
        return math.tan(self.min_slope * RADIANS)

    @cached_property
    def per_width(self) -> np.ndarray:
        """For each row, the factor that turns a sum into a specific catchment area in metres.

        The width of a cell is the square root of its area, the side of a square cell.
        """
        areas = cell_areas(self.sums.grid)
        widths = np.sqrt(areas) * metres_per_unit(self.sums.grid)
        of_sum = areas if self.sums.dtype.kind != "f" else np.ones(len(areas))
        return of_sum * metres_per_unit(self.sums.grid) ** 2 / np.maximum(widths, 1e-300)

    def absent(self, window: Window, slopes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the mask of cells of a window without indices.

        Raises
        ------
        InputError
            If a value is not a slope in degrees.
        """
        absent = is_nodata(slopes, self.slopes.nodata)
        wrong = ~absent & ((slopes < 0) | (slopes > 90))
        for row, col in np.argwhere(wrong)[:1].tolist():
            raise InputError(
                f"{self.slopes.path}: row {window[0] + row}, column {window[2] + col}: "
                f"{slopes[row, col]} is not a slope in degrees; terrain-gpu slope makes them"
            )
        absent |= is_nodata(sums, self.sums.nodata)
        absent |= sums <= 0
        return absent


def check_inputs(slopes: Readable, sums: Layer) -> None:
    """Reject layers from which indices would be wrong.

    Raises
    ------
    InputError
        If sums are not those that indices need.
    StoreError
        If a layer holds something else.
    """
    refuse_other_slopes(slopes)
    refuse_other_areas(sums)


def refuse_others(tool: TerrainIndices, store: TileStore) -> None:
    """Reject layers from which indices would be wrong, before missing layers are computed.

    Raises
    ------
    InputError, StoreError
        As for `check_inputs`.
    """
    if tool.slope in store:
        refuse_other_slopes(store.layer(tool.slope))
    if tool.accumulation in store:
        refuse_other_areas(store.layer(tool.accumulation))


def refuse_other_slopes(slopes: Readable) -> None:
    """Reject a layer that cannot hold slopes.

    Raises
    ------
    StoreError
        If it does not hold floats.
    """
    if slopes.dtype.kind != "f":
        raise StoreError(
            f"{slopes.path}: holds {slopes.dtype.name}, but slopes are degrees as floats; "
            "terrain-gpu slope makes them"
        )


def refuse_other_areas(sums: Layer) -> None:
    """Reject a layer that does not hold the upstream cells or areas that indices need.

    Raises
    ------
    InputError
        If the cell itself is excluded, or cells are counted where areas are needed.
    StoreError
        If the layer holds something else.
    """
    settings = sums.info.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    unsuitable = "weights" in settings or ("of" in settings and "areas" not in settings)
    if sums.dtype.name not in ("uint32", "int64", "float64") or unsuitable:
        raise StoreError(
            f"{sums.path}: does not hold uint32 or int64 cells, or float64 areas; terrain-gpu "
            "flow-accumulation makes them"
        )
    if settings.get("exclude_self"):
        raise InputError(f"{sums.path}: excludes the cell itself; sum again without --exclude-self")
    if "method" in settings and not settings.get("areas"):
        raise InputError(
            f"{sums.path}: counts cells whose flow is divided among neighbours; give areas "
            f"(terrain-gpu flow-accumulation --method {settings['method']} --areas --into area)"
        )
    if sums.dtype.kind != "f" and np.ptp(cell_areas(sums.grid)) > 0:
        raise InputError(
            f"{sums.path}: cells of this raster differ in area, so their number is not enough; "
            "give areas (terrain-gpu flow-accumulation --areas --into area)"
        )
