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
from .chain import Show
from .common.outlets import Asked, Outlets, with_inner_voids
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
    store: TileStore,
    show: Show,
    how: Settings,
    settings: Settings,
    layer: str | None = None,
) -> Seconds:
    """Of `flow_direction`; `how` may say replace, see `chain.provide_tree`.

    Parameters
    ----------
    layer
        The heights that the tree must be of. None: those of the one that is there; else
        `chain.heights_in`, or with depressions "breach" those breached, made where missing.
    """
    depressions, flats = ways_of(settings["depressions"], settings["flats"])
    _refuse_outlets(store, Asked(settings["outlets"], settings["add_outlets"]))
    seconds = Seconds()
    if depressions == "breach" and layer is None and TREE not in store:
        if BREACHED in store:
            chain.refuse_stale(store, BREACHED)
        else:
            heights, inner = chain.heights_in(store).name, with_inner_voids(settings["outlets"])
            breaching = BreachedHeights.of(store, Breach(inner_voids=inner, layer=heights))
            seconds |= chain.provide_heights(store, breaching, show, **how)
        seconds |= chain.provide_tree(store, show, layer=BREACHED, **how)
    if flats == "tree":
        return {**seconds, **chain.provide_tree(store, show, layer=layer, **how)}
    named = settings["filled"], Asked(settings["outlets"], settings["add_outlets"])
    return {**seconds, **chain.provide_filled(store, *named, show, layer=layer, **how)}


def _refuse_outlets(store: TileStore, asked: Asked) -> None:
    """Refuse, before a spanning tree is computed for them, outlets that cannot be."""
    if TREE not in store:
        Outlets.of(chain.heights_in(store), *asked)
