"""The minimum spanning forest of a raster, block by block.

`tile` finds the forest of 64 x 64 cells in cache, `block` joins the tiles of a block, `merge` joins
blocks four at a time, and `operation` runs all of it. Every level runs Boruvka's
algorithm and freezes the vertices that have edges outside; see docs/design/spanning-trees.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline import LAYER, SpanningTree, minimum_spanning_tree, plan_spanning_tree

__all__ = ["LAYER", "SpanningTree", "minimum_spanning_tree", "plan_spanning_tree"]


def __getattr__(name: str) -> Any:
    # Loaded lazily: commands read the choices in `weights` without importing numba.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pipeline", __name__), name)
