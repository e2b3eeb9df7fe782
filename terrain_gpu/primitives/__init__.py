"""Parallel primitives on plain arrays, on the CPU and the GPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .components import connected_components
    from .contraction import Contraction, contract_tree
    from .euler import EulerTour, euler_tour
    from .forests import spanning_forest
    from .lists import list_ranking

_HOME = {
    "Contraction": "contraction",
    "EulerTour": "euler",
    "connected_components": "components",
    "contract_tree": "contraction",
    "euler_tour": "euler",
    "list_ranking": "lists",
    "spanning_forest": "forests",
}

__all__ = [
    "Contraction",
    "EulerTour",
    "connected_components",
    "contract_tree",
    "euler_tour",
    "list_ranking",
    "spanning_forest",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
