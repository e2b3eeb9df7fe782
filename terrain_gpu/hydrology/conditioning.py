"""Compute what flow directions need: burned or breached elevations, a spanning tree, a filled DEM.

`provide` computes the layers that a store lacks. A layer made from other elevations or with other
settings causes an error, or is replaced with --overwrite.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..engine.operation import Operation
from ..engine.proof import RunRecord
from ..engine.run import Here, run
from ..errors import StoreError
from ..facts import Settings
from ..prerequisites import refuse_stale
from ..progress import Progress, silent
from ..running import compute
from ..spanning_tree import LAYER as TREE
from ..spanning_tree import MinimumSpanningTree
from ..store import Layer, TileStore
from .breach import LAYER as BREACHED
from .breach import Breach
from .breach.operation import BreachedHeights
from .burn import LAYER as BURNED
from .burn import Burn
from .burn.operation import Burned, burned
from .common.codes import TREE_DIRECTIONS
from .common.outlets import Asked, Outlets, named_outlets, with_inner_voids
from .fill import LAYER as FILLED
from .fill import Fill
from .flow_direction import FlowDirection
from .flow_direction.operation import methods_of
from .forest import source
from .forest.source import open_forest

Show = Callable[[str], AbstractContextManager[Progress]]
"""A function that shows the progress of a named step."""


def provide(
    tool: FlowDirection,
    store: TileStore,
    options: Settings,
    show: Show,
    settings: Settings | None,
) -> dict[str, float]:
    """Compute the layers that flow directions need and a store lacks.

    Parameters
    ----------
    settings
        The settings with which a user asked for directions; None for other tools, which need
        directions over `heights_in`.

    Returns
    -------
    dict
        The seconds for each layer that was computed.
    """
    depressions, flats = methods_of(tool.depressions, tool.flats)
    ends, burning = Asked.of(tool.outlets, tool.add_outlets), None
    seconds = dict[str, float]()
    inner = with_inner_voids(ends.outlets)
    _refuse_outlets(store, ends)
    if flats == "gradient" and tool.filled != FILLED:
        return seconds  # over elevations that a user filled
    plain = depressions == "breach" or tool.burn is not None
    layer = tool.layer or heights_in(store, plain=plain).name
    options = {**options, "replace": settings is not None and options["overwrite"]}
    if tool.burn is not None and tool.burn_depth is not None:
        streams = Burn(tool.burn, tool.burn_depth, layer)
        burning = burned(store, streams, "burn", "burn_depth")
    made_layer = BREACHED if depressions == "breach" else BURNED if burning else None
    if not options["replace"]:  # before the work
        refuse_tree(store, made_layer or layer, intermediate=made_layer is not None)
    if burning is not None:
        seconds |= provide_heights(store, burning, show, **options)
        layer = BURNED
    if depressions == "breach":
        distance, depth = tool.max_distance or 50, tool.max_depth
        breach = Breach(distance, max_depth=depth, inner_voids=inner, layer=layer)
        breaching = BreachedHeights.of(store, breach)
        seconds |= provide_heights(store, breaching, show, **options)
        layer = BREACHED
    if flats == "tree":
        return {**seconds, **provide_tree(store, show, layer=layer, **options)}
    return {**seconds, **provide_filled(store, ends, show, layer=layer, **options)}


def _refuse_outlets(store: TileStore, outlets: Asked) -> None:
    """Reject outlets that cannot be used, before a spanning tree is computed."""
    if TREE not in store:
        Outlets.of(heights_in(store), *outlets)


def provide_heights(
    store: TileStore,
    operation: Burned | BreachedHeights,
    show: Show = lambda step: nullcontext(silent),
    *,
    replace: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Run an operation on elevations, unless its layer exists with the same inputs and settings.

    Parameters
    ----------
    replace
        Whether to replace a layer made from other inputs or with other settings.
    options
        Options of all steps; see `prerequisites.how_of`.

    Returns
    -------
    dict
        The seconds of the step, if it was run.

    Raises
    ------
    StoreError
        If such a layer exists and is not replaced.
    """
    name = operation.outputs[0].name
    exists = name in store
    if exists and not (differs := _differences(store, operation)):
        return {}
    if exists and not replace:
        raise StoreError(f"{store.path / name}: made {differs}; --overwrite replaces it")
    for one in ("backend", "device", "gpu_memory_limit"):  # these run on the CPU
        options.pop(one, None)
    with show(operation.command) as progress:
        result = run(operation, place=Here(progress), **_replacing(options, replace))
    return {name: result.report.seconds["total"]}


def _replacing(options: Settings, replace: bool) -> dict[str, Any]:
    """Return the options of a step that may replace a finished layer, not only resume a run."""
    return {**options, "overwrite": True} if replace else options


def _differences(store: TileStore, operation: Operation) -> str:
    """Say in which settings the layer of an operation differs; empty if it does not."""
    (output,) = operation.outputs
    recorded = store.layer(output.name).info.get("settings") or {}
    fingerprint = operation.fingerprint()
    differs = [name for name in fingerprint if recorded.get(name) != fingerprint[name]]
    cells = {"of": "from other elevations", "streams": "with other streams"}
    return ", ".join(
        cells.get(name, f"with {name} {recorded.get(name)}, not {fingerprint[name]}")
        for name in differs
    )


def provide_tree(
    store: TileStore,
    show: Show = lambda step: nullcontext(silent),
    *,
    layer: str | None = None,
    replace: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Compute the spanning forest of weight "flow", unless there is one.

    Parameters
    ----------
    layer
        The elevations that it must be computed from. None accepts any existing forest, and
        otherwise means `heights_in`.
    replace
        Whether to replace a forest of other elevations.
    options
        Options of all steps; see `prerequisites.how_of`.

    Returns
    -------
    dict
        The seconds of the step, if it was run.

    Raises
    ------
    StoreError
        If there is a forest of other elevations that is not replaced, or `layer` holds directions.
    """
    if TREE in store and (layer is None or _is_tree_of(store, layer)):
        refuse_stale(store, TREE)
        return {}
    if layer is not None and not replace:
        refuse_tree(store, layer)
    tree = MinimumSpanningTree(weight="flow", layer=source.heights_of_tree(store, layer))
    with show(tree.command) as progress:
        result = compute(tree, store, progress=progress, **_replacing(options, replace))
    return {TREE: result.report.seconds["total"]}


def heights_in(store: TileStore, *, plain: bool = False) -> Layer:
    """Return the default elevation layer; see `source.heights_in`.

    Parameters
    ----------
    plain
        Instead of breached or burned elevations, return those that they were made from.
    """
    layer = source.heights_in(store)
    passed = set[str]()
    while plain and layer.name not in passed:  # damaged metadata could form a loop
        passed.add(layer.name)
        settings = layer.info.get("settings") or {}
        before = settings.get(Breach.mark) or settings.get(Burn.mark)
        layer = store.layer(before) if before else layer
    return layer


def refuse_tree(store: TileStore, layer: str, *, intermediate: bool = False) -> None:
    """Reject a spanning forest of other elevations or of another weight, if there is one.

    Parameters
    ----------
    intermediate
        Whether the elevations are made in a previous step, so that --layer names others.

    Raises
    ------
    StoreError
        If there is such a forest.
    """
    if TREE in store and not _is_tree_of(store, layer):
        forest = open_forest(store)
        theirs, weight = forest.cells.name, forest.weight.name
        is_of = f"the tree of the elevations of layer {theirs}, not of {layer}"
        follow = "" if intermediate else f", flow-direction --layer {theirs} follows it"
        if weight != "flow":
            is_of, follow = f"of weight {weight}, not flow", ""
        raise StoreError(
            f"{store.path / TREE}: {is_of}; flow-direction --overwrite replaces it{follow}"
        )


def _is_tree_of(store: TileStore, layer: str) -> bool:
    """Whether the spanning forest has weight "flow" and was computed from this layer."""
    try:
        forest = open_forest(store)
    except StoreError:
        return False
    return forest.cells.name == layer and forest.weight.name == "flow"


def provide_filled(
    store: TileStore,
    requested: Asked,
    show: Show,
    *,
    layer: str,
    replace: bool,
    **options: Any,
) -> dict[str, float]:
    """Fill depressions for the given outlets, unless that was done.

    Parameters
    ----------
    requested
        The outlets.
    layer, replace
        As for `provide_tree`.

    Returns
    -------
    dict
        The seconds of each step that was run.

    Raises
    ------
    StoreError
        If there is a layer filled for others that is not replaced; also as for `provide_tree`.
    """
    seconds = provide_tree(store, show, layer=layer, replace=replace, **options)
    if FILLED in store and not (why := _refilled(store, layer, requested)):
        return seconds
    if FILLED in store and not replace:
        raise StoreError(f"{store.path / FILLED}: {why}; --overwrite replaces it")
    options = _replacing(options, replace)
    if TREE_DIRECTIONS not in store or replace:
        with show("flow-direction --flats tree") as progress:
            outlets, added = requested
            along_tree = FlowDirection(outlets, add_outlets=added, into=TREE_DIRECTIONS)
            result = compute(along_tree, store, progress=progress, **options)
        seconds[TREE_DIRECTIONS] = result.report.seconds["total"]
    with show("fill") as progress:
        along = Fill(directions=TREE_DIRECTIONS)
        result = compute(along, store, progress=progress, **options)
    return {**seconds, FILLED: result.report.seconds["total"]}


def _refilled(store: TileStore, layer: str, requested: Asked) -> str:
    """Say why the DEM must be filled again; empty if it need not be."""
    changed = f"not filled from the elevations that {layer} holds now"
    try:
        recorded = RunRecord(store, store.layer(FILLED))
        if (filled := recorded.get("fill_of", str)) != layer:
            return f"filled from the elevations of layer {filled}, not of {layer}"
        heights = recorded.input(layer)
        codes = RunRecord(store, recorded.input(recorded.get("directions", str)))
        for one in open_forest(store).identity:
            codes.input(one)
        theirs = codes.get("outlets", str)
    except StoreError:
        return changed
    if theirs == Outlets.of(heights, *requested).digest:
        return ""
    return f"filled for {named_outlets(theirs)}, not for those asked for"
