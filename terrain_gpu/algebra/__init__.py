"""Layers from layers, and from features: `calc`, `rasterize`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .burning import rasterize
    from .problem import Calc, calc

__all__ = ["Calc", "calc", "rasterize"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = ".burning" if name == "rasterize" else ".problem"
    return getattr(import_module(home, __name__), name)
