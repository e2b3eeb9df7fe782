"""Determine units of cost distances: `unit_of_costs`."""

from __future__ import annotations

from typing import Any

from ...grid import GridSpec, units
from .formula.presets import PRESETS
from .models import row_of


def unit_of_costs(cost: str, grid: GridSpec, heights: Any, friction: Any = None) -> str:
    """The unit of costs, such as "s" or "friction x m"; "" if unknown.

    Parameters
    ----------
    cost
        A model, preset or formula, as stated; a table of vertical factors has no unit.
    heights, friction
        Layers. Frictions that multiply a cost with its own unit have no unit.
    """
    row = row_of(cost)
    if row.unit or row.name == "formula" or cost in PRESETS:
        return row.unit
    if row.friction == "needed":
        rate = units.unit_of(heights if friction is None else friction)
    elif friction is not None:
        rate = units.unit_of(friction)
    else:
        rate = "1"
    own = units.of_lengths(grid) if row.lengths else units.unit_of(heights)
    if own and not rate:
        return f"friction x {own}"
    return units.product(rate, own)
