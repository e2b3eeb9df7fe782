"""Slope and aspect: a small operation, and the example of docs/how-to/add-an-operation.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .operation import LAYER, Slope, plan_slope, slope

__all__ = ["LAYER", "Slope", "plan_slope", "slope"]


def __getattr__(name: str) -> Any:
    # Loaded lazily: the program reads the options in `command` without importing numba.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".operation", __name__), name)
