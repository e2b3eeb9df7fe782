"""The minimum spanning forest of a raster, block by block.

`tile` finds the forest of 64 x 64 cells in cache, `block` joins the tiles of a block, `merge` joins
blocks four at a time, `problem` is the whole as an operation. Every level is Boruvka with the
vertices frozen that have edges elsewhere; see docs/design/spanning-trees.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline import LAYER, SpanningTree, minimum_spanning_tree, plan_spanning_tree

__all__ = ["LAYER", "SpanningTree", "minimum_spanning_tree", "plan_spanning_tree"]


def __getattr__(name: str) -> Any:
    # Loaded when used: commands take their choices from `weights`, without numba.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pipeline", __name__), name)
