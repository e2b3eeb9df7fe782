"""D8 flow directions, from the spanning forest or a filled DEM."""

from __future__ import annotations

from dataclasses import dataclass

from ...arguments import DepressionsMethod, FlatsMethod
from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...engine.proof import RunRecord
from ...engine.run import Run
from ...errors import ArgumentError, InputError, StoreError
from ...facts import Findings, Settings
from ...running import refuse_cuda
from ...store import Layer, TileStore
from ..accumulate.operation import Accumulate
from ..common.codes import DIRECTIONS
from ..common.outlets import LOW_EDGE, Asked, Outlets, named_outlets
from ..fill import LAYER as FILLED
from ..forest.source import open_drained, open_filled
from . import FlowDirection
from .gradient import GradientDirection


@dataclass(frozen=True)
class TreeDirections(Accumulate):
    """Directions along the spanning forest. Fields as for `Accumulate`."""

    digest: str = LOW_EDGE
    into: None = None
    directions: str | None = DIRECTIONS

    command = FlowDirection.command

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from .gpu import plan_directions

        return plan_directions(self, machine)

    def execute(self, run: Run) -> Findings:
        if run.gpu is None:
            return super().execute(run)
        from .gpu import solve

        return solve(self, run)


def methods_of(
    depressions: DepressionsMethod | None, flats: FlatsMethod | None
) -> tuple[DepressionsMethod, FlatsMethod]:
    """Return how water leaves depressions and flats; either argument may imply the other.

    Raises
    ------
    InputError
        If they contradict each other.
    """
    if depressions == "fill" and flats == "tree":
        raise ArgumentError(
            "{depressions} fill with {flats} tree: filled depressions are flats, which drain by "
            "gradients; leave out {flats}, or carve along the tree ({depressions} carve)"
        )
    if depressions == "carve" and flats == "gradient":
        raise ArgumentError(
            "{depressions} carve with {flats} gradient: gradients need filled depressions; leave "
            "out {flats}, or fill ({depressions} fill)"
        )
    filled = depressions == "fill" or flats == "gradient"
    return depressions or ("fill" if filled else "carve"), "gradient" if filled else "tree"


def refuse_arguments(settings: Settings) -> None:
    """Reject arguments of `flow_direction` that contradict each other.

    Raises
    ------
    InputError
        If they do.
    """
    depressions, flats = methods_of(settings["depressions"], settings["flats"])
    for name in ("max_distance", "max_depth"):
        if settings[name] is not None and depressions != "breach":
            raise ArgumentError(f"{{{name}}} needs {{depressions}} breach: give both")
    if (settings["burn"] is None) != (settings["burn_depth"] is None):
        raise ArgumentError("{burn} and {burn_depth} need each other: give both")
    if flats == "gradient" and settings["filled"] != FILLED:
        changed = [k for k in ("burn", "max_distance", "max_depth") if settings[k] is not None]
        for name in changed:
            raise ArgumentError(
                f"{{filled}} names elevations that are filled already, which {{{name}}} would not "
                "change: leave out one of them"
            )
    only_cpu = GradientDirection.only_on_cpu if flats == "gradient" else None
    refuse_cuda(settings.get("backend"), only_cpu)


def operation_of(
    store: TileStore | None, tool: FlowDirection
) -> TreeDirections | GradientDirection:
    """Return the operation after checking the layers; `store` is None when only planning."""
    _, flats = methods_of(tool.depressions, tool.flats)
    if store is None:
        if flats == "gradient":
            return GradientDirection("", tool.filled, into=tool.into)
        return TreeDirections("", directions=tool.into)
    path, ends = str(store.path), Asked.of(tool.outlets, tool.add_outlets)
    if flats == "gradient":
        along = _along(store, tool, ends)
        if tool.into == along:
            raise InputError(
                f"{store.path}: {tool.filled} was filled along {along}, which must stay; give "
                "these directions another name (--into)"
            )
        return GradientDirection(path, tool.filled, along, tool.into)
    heights = open_drained(store, tool.command, ("flow",)).cells
    _refuse_heights(heights, tool.depressions)
    outlets = Outlets.of(heights, *ends)
    return TreeDirections(path, outlets.digest, directions=tool.into, places=outlets.places)


def _refuse_heights(heights: Layer, depressions: DepressionsMethod | None) -> None:
    """Reject breached elevations if these are not asked for, and the reverse."""
    breached = "breach_of" in (heights.info.get("settings") or {})
    if depressions == "breach" and not breached:
        raise StoreError(
            f"{heights.path}: not made by breach; run breach, and compute-mst --layer breached "
            "--weight flow --overwrite"
        )
    if depressions in ("carve", "fill") and breached:
        raise StoreError(
            f"{heights.path}: the spanning tree was computed from breached elevations; "
            "flow-direction --depressions breach follows it, or compute it again (compute-mst "
            "--weight flow "
            "--overwrite)"
        )


def _along(store: TileStore, tool: FlowDirection, outlets: Asked) -> str:
    """Return the directions along which elevations were filled, after checking the outlets."""
    layer = open_filled(store, tool.filled)
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("fill_of", str))
    _refuse_heights(heights, tool.depressions)
    if tool.filled != FILLED and tool.layer not in (None, heights.name):
        raise ArgumentError(
            "{filled} {filled_layer} was filled from {own}, not from {layer} {asked}: leave out "
            "one of them",
            filled_layer=tool.filled,
            own=heights.name,
            asked=tool.layer,
        )
    ends = Outlets.of(heights, *outlets)
    codes = recorded.input(recorded.get("directions", str))
    theirs = RunRecord(store, codes).get("outlets", str)
    if ends.digest != theirs:
        raise InputError(
            f"{layer.path}: filled for {named_outlets(theirs)}, not for those asked for; give the "
            "same outlets, or fill along directions to the new ones (terrain-gpu fill --directions)"
        )
    return codes.name
