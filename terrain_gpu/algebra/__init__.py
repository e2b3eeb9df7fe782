"""Layers from layers, and from features: `calc`, `corridor`, `rasterize`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .corridors import corridor
    from .problem import Calc, calc
    from .rasterizing import rasterize

__all__ = ["Calc", "calc", "corridor", "rasterize"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"rasterize": ".rasterizing", "corridor": ".corridors"}.get(name, ".problem")
    return getattr(import_module(home, __name__), name)
