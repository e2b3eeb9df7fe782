"""Shortest paths over a raster, block by block.

`costs` is the table of cost models, which `edges` compiles. In `cpu`, `tile` relaxes 64 x 64 cells
in cache, `block` relaxes the tiles of a block in order, and `relax` the blocks of a raster (phase
2); `finalise` finds predecessors, and `allocate` the sources they lead to (phase 3). `cuda` does
the same on a GPU. `problem` is the operation that streams it all, `pipeline` the function
`shortest_paths`. `index` precomputes distances for many sources, and `verify` proves the results.
See docs/design/shortest-paths.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..io.places import Places
    from .pipeline import ShortestPaths, shortest_paths
    from .ties import tied_steps

__all__ = ["Places", "ShortestPaths", "shortest_paths", "tied_steps"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: commands read their choices from `costs` and must not load numba.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = ".ties" if name == "tied_steps" else ".pipeline"
    return getattr(import_module(home, __name__), name)
