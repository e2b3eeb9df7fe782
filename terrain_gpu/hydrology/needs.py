"""What each function of hydrology needs: computes the layers that are missing.

Each function here has the name of the one that needs them, and the parameters

- store: the open store,
- show: shows the progress of a step, see `chain`,
- how: arguments for all steps, see `completing.how_of`,
- settings: the arguments of that function, of the same names.

It returns the seconds of each step that was run. It first refuses what that function would refuse
after them, where this is known from the arguments. The commands call it before that function, to
show the progress; else the function does (`completing.completed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..io.lines import checked_target
from ..spanning_tree import LAYER as TREE
from ..store import TileStore
from . import chain
from .breach import LAYER as BREACHED
from .breach import Breach
from .breach.operation import BreachedHeights
from .burn import LAYER as BURNED
from .burn import Burn
from .burn.operation import burned
from .chain import Show
from .common.outlets import Asked, Outlets, with_inner_voids
from .flow_direction import FlowDirection
from .flow_direction.operation import ways_of
from .network.operation import kept_places

Settings = dict[str, Any]
Seconds = dict[str, float]


def of(name: str) -> Callable[[TileStore, Show, Settings, Settings], Seconds]:
    """The function of a name."""
    found: Callable[[TileStore, Show, Settings, Settings], Seconds] = globals()[name]
    return found


def extract_network(store: TileStore, show: Show, how: Settings, settings: Settings) -> Seconds:
    """Of `extract_network`."""
    checked_target(settings["path"], overwrite=settings["overwrite"])
    if settings["keep"] is not None and TREE not in store:
        kept_places(chain.heights_in(store), settings["keep"])
    return chain.provide_tree(store, show, **how)


def flow_direction(
    asked: FlowDirection, store: TileStore, how: Settings, show: Show, *, direct: bool
) -> Seconds:
    """Of `flow_direction`; other tools need directions over `chain.heights_in`."""
    depressions, flats = ways_of(asked.depressions, asked.flats)
    ends, layer, seconds = Asked.of(asked.outlets, asked.add_outlets), asked.layer, Seconds()
    inner = with_inner_voids(ends.outlets)
    _refuse_outlets(store, ends)
    changed = asked.burn, asked.max_distance, asked.max_depth
    if not direct:
        layer = chain.heights_in(store).name
    elif layer is None and any(one is not None for one in changed):
        layer = chain.heights_in(store, plain=True).name
    if layer is not None:
        how = {**how, "replace": direct and how["overwrite"]}
        burning = None
        if asked.burn is not None and asked.burn_depth is not None:
            streams = Burn(asked.burn, asked.burn_depth, layer)
            burning = burned(store, streams, "burn", "burn_depth")
        made = BREACHED if depressions == "breach" else BURNED if burning else None
        if not how["replace"]:  # before the work
            chain.refuse_tree(store, made or layer, made=made is not None)
        if burning is not None:
            seconds |= chain.provide_heights(store, burning, show, **how)
            layer = BURNED
        if depressions == "breach":
            distance, depth = asked.max_distance or 50, asked.max_depth
            breach = Breach(distance, max_depth=depth, inner_voids=inner, layer=layer)
            breaching = BreachedHeights.of(store, breach)
            seconds |= chain.provide_heights(store, breaching, show, **how)
            layer = BREACHED
    elif depressions == "breach" and TREE not in store:
        if BREACHED in store:
            chain.refuse_stale(store, BREACHED)
        else:
            heights = chain.heights_in(store).name
            breaching = BreachedHeights.of(store, Breach(inner_voids=inner, layer=heights))
            seconds |= chain.provide_heights(store, breaching, show, **how)
        seconds |= chain.provide_tree(store, show, layer=BREACHED, **how)
    if flats == "tree":
        return {**seconds, **chain.provide_tree(store, show, layer=layer, **how)}
    filled = chain.provide_filled(store, asked.filled, ends, show, layer=layer, **how)
    return {**seconds, **filled}


def _refuse_outlets(store: TileStore, asked: Asked) -> None:
    """Refuse, before a spanning tree is computed for them, outlets that cannot be."""
    if TREE not in store:
        Outlets.of(chain.heights_in(store), *asked)
