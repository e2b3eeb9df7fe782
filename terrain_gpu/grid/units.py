"""Units of numbers in layers, reports and messages.

Units are written as in UDUNITS if it has them: "m", "s", "m2". "" is an unknown unit.
"""

from __future__ import annotations

import logging
import math
import re
from typing import Any

from ..facts import Settings
from .lengths import metres_per_unit, other_unit
from .spec import GridSpec

log = logging.getLogger(__name__)

UNITS = "units"
"""The attribute of a layer with its unit."""

SCALED = "scale_factor", "add_offset"
"""Attributes that convert stored cells to numbers in that unit."""

_METRES = {
    1.0: "m metre metres meter meters",
    1e3: "km kilometre kilometres kilometer kilometers",
    1e-2: "cm centimetre centimetres centimeter centimeters",
    1e-3: "mm millimetre millimetres millimeter millimeters",
    0.3048: "ft foot feet international_foot international_feet",
    1200 / 3937: "us-ft ftus us_survey_foot us_survey_feet",
    0.9144: "yd yard yards",
    1609.344: "mi mile miles",
}
METRES = {name: size for size, names in _METRES.items() for name in names.split()}
"""Names of units of length, and their size in metres."""

DEGREES = {
    "degree",
    "degrees",
    "deg",
    *(f"degree{s}{mark}{where}" for s in ("", "s") for mark in ("_", "") for where in "NE"),
    *(f"degree{s}_{where}" for s in ("", "s") for where in ("north", "east")),
}
"""Names of degrees, for latitude and longitude."""

MOST = 60
"""Largest number of characters in a unit; longer texts are ignored."""

_VERTICAL = re.compile(r'VERT(?:CRS|ICALCRS|_CS)\[.*?UNIT\["[^"]*",\s*([\d.eE+-]+)', re.DOTALL)
"""The size in metres of the unit of a vertical CRS."""


def metres_of(unit: str) -> float | None:
    """The size of a unit of length in metres; None if it is not a known one."""
    return METRES.get("_".join(unit.lower().split()))


def unit_of(layer: Any) -> str:
    """The unit of a layer's stored cells; "" if they are scaled."""
    return "" if scale_of(layer) != (1.0, 0.0) else scaled_unit_of(layer)


def scaled_unit_of(layer: Any) -> str:
    """The unit of a layer's cells once they are scaled."""
    unit = getattr(layer, "attributes", {}).get(UNITS)
    good = isinstance(unit, str) and len(unit) <= MOST and unit.isprintable()
    return str(unit).strip() if good else ""


def scale_of(layer: Any) -> tuple[Any, Any]:
    """The scale and offset that convert a layer's stored cells to its unit."""
    attributes = getattr(layer, "attributes", {})
    return attributes.get("scale_factor", 1.0), attributes.get("add_offset", 0.0)


def range_of(layer: Any) -> str:
    """The least and the greatest of a layer's cells in its unit; "" if it has no valid cell."""
    least, greatest = layer.info.get("min"), layer.info.get("max")
    if least is None or greatest is None:
        return ""
    ends = [least, greatest]
    if (scale := scale_of(layer)) != (1, 0):  # else integers stay integers
        ends = sorted(value * scale[0] + scale[1] for value in ends)
    unit = scaled_unit_of(layer)
    if unit == "m2" and ends[1] >= 1e6:
        ends, unit = [end / 1e6 for end in ends], "km2"
    low, high = (f"{end:,}" if isinstance(end, int) else f"{end:.6g}" for end in ends)
    return f"{low} to {high} {unit}".rstrip()


def meaning_of(layer: Any) -> Settings:
    """Unit, scale and offset of a layer's cells; None, 1 and 0 if not recorded."""
    factor, offset = scale_of(layer)
    return {UNITS: layer.attributes.get(UNITS), "scale_factor": factor, "add_offset": offset}


def same_quantity(layer: Any) -> Settings:
    """Attributes for a layer with the same quantity as this one, such as filled elevations."""
    attributes = getattr(layer, "attributes", {})
    return {name: attributes[name] for name in (UNITS, *SCALED) if name in attributes}


def in_unit(unit: str) -> Settings:
    """Attributes for a layer in this unit."""
    return {UNITS: unit} if unit else {}


def of_lengths(grid: GridSpec) -> str:
    """The unit of `step_lengths`."""
    return (other_unit(grid) or "m") if grid.crs_wkt else ""


def step_of(layer: Any) -> float:
    """The factor that converts differences of a layer's cells to its unit."""
    scale = scale_of(layer)[0]
    good = isinstance(scale, int | float) and math.isfinite(scale)
    return float(scale) if good else 1.0


def metres_of_heights(layer: Any) -> float | None:
    """A difference of 1 between a layer's cells in metres; None if their unit is unknown.

    If the layer has no unit, that of a vertical CRS is used.
    """
    if unit := scaled_unit_of(layer):
        metres = metres_of(unit)
    else:
        match = _VERTICAL.search(layer.grid.crs_wkt or "")
        metres = float(match[1]) if match else None
    return metres and metres * step_of(layer)


def rise_of(layer: Any) -> float:
    """The factor that converts differences of elevations to the unit of `step_lengths`.

    An unknown unit is assumed to be that of `step_lengths`.
    """
    heights = metres_of_heights(layer)
    if heights is None or not layer.grid.crs_wkt:
        return step_of(layer)
    ratio = heights / metres_per_unit(layer.grid)
    return 1.0 if math.isclose(ratio, 1, rel_tol=1e-5) else ratio


def warn_of_slopes(layer: Any, formula: str) -> None:
    """Warn if `formula` combines elevations and lengths in different units."""
    if (rise := rise_of(layer)) != 1:
        log.warning(
            "%s: %s combines elevations and lengths without conversion, but elevations must be "
            "multiplied by %.9g to be in the unit of lengths; do so in the formula, or convert "
            "them first with terrain-gpu calc",
            layer.path,
            formula,
            rise,
        )


def of_areas(grid: GridSpec) -> str:
    """The unit of areas of cells."""
    unit = of_lengths(grid)
    return f"{unit}2" if unit.isalpha() else unit and f"square {unit}"


def product(one: str, other: str) -> str:
    """The unit of products of numbers in two units, such as s for s/m and m.

    Names of the same unit of length are equivalent: s/metre times m is s.
    """
    if not other:
        return ""
    for per in (r"(.*)/ *(\S+)", r"(.*) (\S+)-1", r"(.*) per (\S.*)"):
        match = re.fullmatch(per, one)
        if match and _same(match[2], other):
            return match[1].strip()
    if one in ("", "1"):
        return other
    return f"{other}2" if _same(one, other) and other.isalpha() else f"{one} {other}"


def _same(one: str, other: str) -> bool:
    """Whether two units are the same, or the same length under two names."""
    length = metres_of(one)
    return one == other or (length is not None and length == metres_of(other))
