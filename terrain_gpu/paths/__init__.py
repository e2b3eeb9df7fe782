"""Shortest paths over a raster, block by block.

`costs` is the table of what a step may cost, which `edges` compiles; `tile` relaxes 64 x 64 cells
in cache, `block` the tiles of a block in order, `relax` the blocks of a raster (phase 2).
`finalise` finds predecessors and `allocate` the sources they lead to (phase 3); `pipeline` streams
it all from and to a store, and `cuda` does the same on a GPU. `index` is another way there, of
which a part is computed once, and `verify` proves what was found; see
docs/design/shortest-paths.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..io.places import Places
    from .pipeline import ShortestPaths, shortest_paths

__all__ = ["Places", "ShortestPaths", "shortest_paths"]


def __getattr__(name: str) -> Any:
    # Loaded when used: commands take their choices from `costs`, without numba.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pipeline", __name__), name)
