"""Costs and paths between many sources and many targets.

`lanes`, `tile` and `block` relax eight sources together, with a vector of distances in each cell;
`relax` does so for the blocks of a raster, until the targets are final. `walk` and `trace` follow
the paths. `operation` plans the batches, `solve` runs and stores them, and `run` does both on the
requested device. `table` writes the results; `pipeline` has the function `cost_matrix`. See
docs/design/shortest-paths.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline import CostMatrix, cost_matrix

__all__ = ["CostMatrix", "cost_matrix"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pipeline", __name__), name)
