"""Networks of least-cost paths between places.

Links of a spanning tree, and of areas that touch, follow from one search from all places:
`crossings` finds the cheapest steps between their areas, and chooses links; `operation`
streams it and writes the paths. `matrix` gets links from a cost matrix instead, for all pairs or
the nearest ones. `files` writes them, and `pipeline` has the function `least_cost_network`. See
docs/design/shortest-paths.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pipeline import CostNetwork, least_cost_network, refuse_directed

__all__ = ["CostNetwork", "least_cost_network", "refuse_directed"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pipeline", __name__), name)
