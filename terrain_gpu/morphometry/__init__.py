"""Slope and aspect: a small operation, the example of docs/how-to/add-an-operation.md."""

from .problem import LAYER, Slope, slope

__all__ = ["LAYER", "Slope", "slope"]
