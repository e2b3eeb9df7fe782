"""Slope and aspect: a small operation, the example of docs/how-to/add-an-operation.md."""

from .problem import LAYER, Slope, plan_slope, slope

__all__ = ["LAYER", "Slope", "plan_slope", "slope"]
