"""Distances with their unit: 200m, or 3px for cells."""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple

import numpy as np

from ..arguments import Check, described, field, not_negative, refused, wrong
from ..errors import ArgumentError
from .lengths import length_unit, metres_per_unit, step_lengths
from .spec import GridSpec
from .units import metres_of

log = logging.getLogger(__name__)

CELLS = "px"
MAP_UNITS = "map units"
"""The unit of `step_lengths`, whatever it is."""

EXAMPLES = "a distance with its unit, such as 200m or 3px"
_PIXELS = {"px", "pixel", "pixels", "cell", "cells"}


class Distance(NamedTuple):
    """A distance, in cells or in a unit of length.

    Attributes
    ----------
    unit
        `CELLS`, `MAP_UNITS`, or a name that `units.metres_of` knows.
    """

    number: float
    unit: str

    def __str__(self) -> str:
        space = " " if self.unit == MAP_UNITS else ""
        return f"{self.number:.10g}{space}{self.unit}"

    def in_map_units(self, grid: GridSpec, name: str) -> float:
        """The distance in the unit of `step_lengths`; `name` is that of the argument.

        Raises
        ------
        ArgumentError
            For cells, and for other units if the raster's is unknown.
        """
        if self.unit == CELLS:
            raise wrong(name, str(self), "a length, such as 200m")
        if self.unit == MAP_UNITS:
            return self.number
        if not grid.crs_wkt:
            raise refused(
                name,
                " {given}: the raster has no coordinate system, so its unit of length is unknown; "
                "give a distance in cells, such as 3px",
                given=str(self),
            )
        return self.number * float(metres_of(self.unit) or 1) / metres_per_unit(grid)

    def measured(self, grid: GridSpec) -> tuple[np.ndarray, float]:
        """The lengths of steps across and down in each row, and the distance in their unit."""
        if self.unit == CELLS:
            return np.ones((2, grid.rows)), self.number
        return step_lengths(grid)[::2].copy(), self.in_map_units(grid, "snap")

    def shown(self, grid: GridSpec) -> str:
        """The distance for messages about a raster."""
        number, unit = self
        return f"{number:.10g} {length_unit(grid) if unit == MAP_UNITS else unit}"


def in_unit(usual: str) -> Check:
    """The check of a distance; one without a unit is in the usual one, as a warning tells."""

    def check(name: str, value: Any) -> Distance:
        if isinstance(value, Distance):
            return value
        number, unit = value, ""
        if isinstance(value, str):
            parts = re.fullmatch(r"\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*(.*?)\s*", value, re.I)
            try:
                number, unit = (float(parts[1]), parts[2].lower()) if parts else (None, "")
            except ValueError:  # such as 1.2.3
                number = None
        if not isinstance(number, int | float | np.number) or isinstance(number, bool):
            raise wrong(name, value, EXAMPLES)
        found = not_negative(name, number)
        if unit in _PIXELS:
            return Distance(found, CELLS)
        if unit and unit != MAP_UNITS and metres_of(unit) is None:
            raise wrong(name, value, EXAMPLES)
        if not unit and found:
            meant = "cells" if usual == CELLS else "map units (metres in a geographic CRS)"
            alike = f"{found:.10g}{CELLS if usual == CELLS else 'm'}"
            log.warning(
                "%s",
                ArgumentError(
                    field(name) + " {given} has no unit and means {meant}; write it, such as "
                    "{alike}",
                    given=described(value),
                    meant=meant,
                    alike=alike,
                ),
            )
        return Distance(found, unit or usual)

    return check
