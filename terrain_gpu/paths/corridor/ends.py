"""The distances from the ends of corridors: `provide`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from typing import Any

from ...facts import Settings
from ...prerequisites import Show, refuse_existing
from ...progress import silent
from ...store import TileStore
from ..cost_distance import FindShortestPaths
from ..cost_distance.inputs import (
    refuse_shared,
    refuse_start_costs,
    store_layers,
    valid_places,
)
from ..cost_distance.pipeline import run
from . import LeastCostCorridor, cores


def provide(
    asked: LeastCostCorridor,
    store: TileStore,
    how: Settings,
    show: Show,
    settings: Settings | None,
) -> dict[str, float]:
    """Compute the distances from the ends, unless layers of them are named.

    They are named after the corridor: they are resumed, replaced and verified as it is.

    Returns
    -------
    dict
        Seconds of each layer.
    """
    if asked.distances:
        return {}
    if asked.pairs is not None:
        return cores.provide(asked, store, how, show, settings)
    own = {name: (settings or {}).get(name, False) for name in ("resume", "overwrite", "verify")}
    refuse_existing(store, asked.layers, own)
    inputs = store_layers(store, (asked.layer, asked.friction, asked.barriers))
    cells = []
    for what in ("sources", "targets"):  # before all is written
        cells.append(valid_places(inputs, getattr(asked, what), what))
        refuse_start_costs(cells[-1], what)
    refuse_shared(*cells)
    of_ends = {"distances", "sources", "targets", "pairs", "into", "within", "table", "reverse"}
    steps = {one.name: getattr(asked, one.name) for one in fields(asked)
             if one.name not in of_ends}  # fmt: skip
    seconds = {}
    ends: Any = (asked.sources, asked.reverse), (asked.targets, not asked.reverse)
    for name, (places, reverse) in zip(asked.layers, ends, strict=True):
        # A resumed run needs them, too: it finds them finished.
        there = own["resume"] and not own["overwrite"] and name in store
        with nullcontext(silent) if there else show("shortest paths") as progress:
            paths = FindShortestPaths(places, reverse=reverse, into=name, **steps)
            found = run(paths, store, progress=progress, **how | own)
        seconds[name] = found.report.seconds["total"]
    return seconds
