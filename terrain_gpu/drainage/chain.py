"""Layers that hydrology needs before the one that is asked for: computed where they are missing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..io.places import PlacesLike
from ..morphometry import LAYER as SLOPE
from ..morphometry import slope
from ..mst import LAYER as TREE
from ..mst import minimum_spanning_tree
from ..progress import Progress, silent
from ..store import TileStore
from .codes import DIRECTIONS, TREE_DIRECTIONS
from .directions import flow_direction
from .flow.accumulation import LAYER as ACCUMULATION
from .flow.accumulation import flow_accumulation
from .flow.fill import LAYER as FILLED
from .flow.fill import fill
from .outlets import EDGE

Show = Callable[[str], AbstractContextManager[Progress]]
"""Shows the progress of a named step."""


def provide_tree(
    store: TileStore, show: Show = lambda step: nullcontext(silent), **how: Any
) -> dict[str, float]:
    """Compute the spanning forest of weight "flow", unless there is one.

    Parameters
    ----------
    how
        Of all steps: memory_limit, threads, client, resume.

    Returns
    -------
    dict
        Seconds of each step that was run.
    """
    if TREE in store.layers:
        return {}
    with show("mst") as progress:
        found = minimum_spanning_tree(store, weight="flow", progress=progress, **how)
    return {TREE: found.report.seconds["total"]}


def provide_directions(
    store: TileStore,
    name: str = DIRECTIONS,
    show: Show = lambda step: nullcontext(silent),
    **how: Any,
) -> dict[str, float]:
    """Compute flow directions by default, unless there are some, or they have another name."""
    if name != DIRECTIONS or name in store.layers:
        return {}
    seconds = provide_tree(store, show, **how)
    with show("flow-direction") as progress:
        found = flow_direction(store, progress=progress, **how)
    return {**seconds, DIRECTIONS: found.report.seconds["total"]}


def provide_filled(
    store: TileStore,
    name: str = FILLED,
    outlets: PlacesLike | str = EDGE,
    show: Show = lambda step: nullcontext(silent),
    **how: Any,
) -> dict[str, float]:
    """Fill depressions for outlets, unless it was done, or the layer has another name."""
    if name != FILLED or name in store.layers:
        return {}
    seconds = provide_tree(store, show, **how)
    if TREE_DIRECTIONS not in store.layers:
        with show("flow-direction --flats tree") as progress:
            found = flow_direction(store, outlets, into=TREE_DIRECTIONS, progress=progress, **how)
        seconds[TREE_DIRECTIONS] = found.report.seconds["total"]
    with show("fill") as progress:
        found = fill(store, directions=TREE_DIRECTIONS, progress=progress, **how)
    return {**seconds, FILLED: found.report.seconds["total"]}


def provide_filled_along(
    store: TileStore,
    name: str,
    directions: str,
    show: Show = lambda step: nullcontext(silent),
    **how: Any,
) -> dict[str, float]:
    """Fill depressions along directions, unless it was done, or the layer has another name."""
    if name != FILLED or name in store.layers:
        return {}
    with show("fill") as progress:
        found = fill(store, directions=directions, progress=progress, **how)
    return {FILLED: found.report.seconds["total"]}


def provide_accumulation(
    store: TileStore,
    name: str = ACCUMULATION,
    directions: str = DIRECTIONS,
    show: Show = lambda step: nullcontext(silent),
    *,
    areas: bool = False,
    **how: Any,
) -> dict[str, float]:
    """Sum cells or areas that drain through each, unless sums are there, or have another name."""
    seconds = provide_directions(store, directions, show, **how)
    if name != ACCUMULATION or name in store.layers:
        return seconds
    with show("flow-accumulation") as progress:
        found = flow_accumulation(
            store, directions=directions, areas=areas, progress=progress, **how
        )
    return {**seconds, ACCUMULATION: found.report.seconds["total"]}


def provide_slope(
    store: TileStore,
    name: str = SLOPE,
    show: Show = lambda step: nullcontext(silent),
    **how: Any,
) -> dict[str, float]:
    """Compute slopes, unless there are some, or they have another name."""
    if name != SLOPE or name in store.layers:
        return {}
    with show("slope") as progress:
        found = slope(store, progress=progress, **how)
    return {SLOPE: found.report.seconds["total"]}
