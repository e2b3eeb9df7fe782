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

from collections.abc import Callable, Mapping
from typing import Any

from ..arguments import parse_amount
from ..io.labelled import HEIGHTS
from ..io.lines import checked_target
from ..raster.slope import LAYER as SLOPE
from ..spanning_tree import LAYER as TREE
from ..store import Layer, TileStore
from . import chain
from .breach.operation import LAYER as BREACHED
from .breach.operation import breaching_of
from .chain import Show
from .common.codes import open_directions, open_links
from .common.outlets import BORDER, Asked, Outlets, with_inner_voids
from .common.relative import base_of
from .fill import LAYER as FILLED
from .flow_accumulation import LAYER as ACCUMULATION
from .flow_direction.operation import ways_of
from .network.pipeline import kept_places
from .streams.inputs import (
    no_sums,
    refuse_beyond_raster,
    refuse_other_sums,
)
from .watershed.operation import refuse_missing_areas
from .watershed.pour_points import PourPoints

Settings = dict[str, Any]
Seconds = dict[str, float]

DEFAULT = {"layer": HEIGHTS, "accumulation": ACCUMULATION, "filled": FILLED, "slope": SLOPE}
"""Parameters that name layers, and their defaults; those but "layer" are computed if missing."""


def of(name: str) -> Callable[[TileStore, Show, Settings, Settings], Seconds]:
    """The function of a name."""
    found: Callable[[TileStore, Show, Settings, Settings], Seconds] = globals()[name]
    return found


def accumulate(store: TileStore, show: Show, how: Settings, settings: Settings) -> Seconds:
    """Of `accumulate`."""
    outlets = BORDER if settings["outlets"] is None else settings["outlets"]
    _refuse_outlets(store, Asked(outlets, settings["add_outlets"]))
    return chain.provide_tree(store, show, **how)


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
            breaching = breaching_of(store, inner_voids=inner, layer=heights)
            seconds |= chain.provide_heights(store, breaching, show, **how)
        seconds |= chain.provide_tree(store, show, layer=BREACHED, **how)
    if flats == "tree":
        return {**seconds, **chain.provide_tree(store, show, layer=layer, **how)}
    named = settings["filled"], Asked(settings["outlets"], settings["add_outlets"])
    return {**seconds, **chain.provide_filled(store, *named, show, layer=layer, **how)}


def watershed(store: TileStore, show: Show, how: Settings, settings: Settings) -> Seconds:
    """Of `watershed`."""
    _refuse_table(settings)
    directions, area = settings["directions"], settings["snap_area"]
    if settings["links"] is not None:
        open_links(store, settings["links"])
    else:
        _refuse_pour_points(store, settings)
    if settings["snap"] is None:
        return chain.provide_directions(store, directions, show, **how)
    given = area.values() if isinstance(area, Mapping) else [] if area is None else [area]
    areas = any(parse_amount("snap_area", one)[1] is not None for one in given)
    if area is not None and not isinstance(area, Mapping):
        refuse_beyond_raster(area, store.grid, "snap_area")
    _refuse_missing(store, settings, "accumulation", accumulation=refuse_other_sums)
    named = settings["accumulation"], directions
    return chain.provide_accumulation(store, *named, show, areas=areas, **how)


def _refuse_outlets(store: TileStore, asked: Asked) -> None:
    """Refuse, before a spanning tree is computed for them, outlets that cannot be."""
    if TREE not in store:
        Outlets.of(chain.heights_in(store), *asked)


def _refuse_wide(store: TileStore, settings: Settings) -> None:
    """Refuse integers of too large a range where directions over them are to be computed."""
    if settings["directions"] not in store:
        base_of(chain.heights_in(store))


def _refuse_pour_points(store: TileStore, settings: Settings) -> None:
    """Refuse pour points that cannot drain, where layers are to be computed for them."""
    directions, snap = settings["directions"], settings["snap"]
    if directions in store:
        if snap is None or settings["accumulation"] in store:
            return
        layer = open_directions(store, directions)
    else:
        layer = chain.heights_in(store)
        layer.refuse_if_empty()
    points = PourPoints.of(layer, settings["pour_points"])
    if isinstance(settings["snap_area"], Mapping):
        refuse_missing_areas(settings["snap_area"], points)
    points.refuse_nodata(layer, snap)


def _refuse_missing(
    store: TileStore, settings: Settings, *names: str, **kinds: Callable[[Layer], None]
) -> None:
    """Refuse layers that are missing, if they have names of their own, or of another kind."""
    for name in names:
        if settings[name] == DEFAULT[name]:
            continue
        if name == "accumulation" and settings[name] not in store:
            raise no_sums(store, settings[name])
        layer = store.layer(settings[name])
        if name in kinds:
            kinds[name](layer)


def _refuse_table(settings: Settings) -> None:
    """Refuse a table that cannot be written."""
    if settings["table"] is not None:
        from ..io.tables import checked_table  # brings GDAL

        checked_table(settings["table"], overwrite=settings["overwrite"])
