"""Run `LeastCostNetwork`: networks of least-cost paths between places."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engine.figures import figures_of_both
from ...engine.run import Here
from ...engine.run import run as run_operation
from ...errors import ArgumentError
from ...facts import Settings
from ...grid.units import of_lengths
from ...io.frames import FeatureResult
from ...io.labelled import StoreLike
from ...io.lines import checked_target
from ...io.places import Places, PlacesLike
from ...progress import Progress, silent
from ...report import Report
from ..cost.graph import warn_about_lengths
from ..cost.models import CostModel, is_directed, row_of
from ..cost.resolve import stated_cost
from ..cost.wrap import joining
from ..cost_distance import FindShortestPaths
from ..cost_distance.inputs import limit_of_costs, opened_inputs, refuse_start_costs, valid_places
from ..cost_distance.pipeline import run as find_paths
from ..cost_matrix.run import name_files, run_matrix, settings_of
from ..cost_matrix.table import checked_table
from . import LeastCostNetwork
from .matrix import PairedPlaces, PairLinks
from .operation import PlaceNetwork

log = logging.getLogger(__name__)


@dataclass(repr=False)
class CostNetwork(FeatureResult):
    """A network written to a file.

    Attributes
    ----------
    path
        The file of lines.
    places, links
        Number of places, and of links between them.
    parts
        Number of connected parts: 1 if the links connect all places.
    report
        The run's `Report`.
    """

    path: Path
    places: int
    links: int
    parts: int
    report: Report


def run(
    asked: LeastCostNetwork,
    store: StoreLike,
    *,
    verify: bool = False,
    overwrite: bool = False,
    **how: Any,
) -> CostNetwork:
    """Join the places of a store; the result is that of the public function."""
    assert asked.output is not None
    lines = checked_target(asked.output, overwrite=overwrite)
    rows = None if asked.table is None else checked_table(asked.table, overwrite=overwrite)
    cost, parameters, beside, stated = stated_cost(
        store, asked.cost, asked.layer, asked.friction, asked.parameters, asked.vertical_factor
    )
    names = asked.layer, beside, asked.barriers
    where, inputs = opened_inputs(store, names, (None, (1.0, 1.0), None), asked.into)
    found = _some_places(inputs, asked.places)
    steps: Settings = {
        "cost": cost,
        "barriers": asked.barriers,
        "parameters": parameters,
        "connectivity": asked.connectivity,
        "corner_cutting": asked.corner_cutting,
        "reverse": asked.reverse,
        "max_slope": asked.max_slope,
    }
    row = row_of(cost)
    most = limit_of_costs(asked.max_cost, row.least)
    how["overwrite"] = overwrite
    if asked.nearest is not None or asked.pairs == "all":
        joined = joining(inputs[0].grid, asked.wrap, where, asked.connectivity)
        paired = PairedPlaces(
            where, asked.layer, beside, **steps, sources=found, nearest=asked.nearest,
            max_cost=most, verified=verify, wrap=joined, stated=stated,
        ).over([one for one in inputs if one is not None])  # fmt: skip
        warn_about_lengths(paired)
        writer = PairLinks(lines, rows)
        report = run_matrix(paired, writer, settings_of(paired, writer, **how))
    else:
        model = CostModel(cost, beside is not None, parameters, asked.max_slope)
        refuse_directed(model, asked.pairs)
        half = most if most is None or row.bottleneck else _half(most)
        paths = FindShortestPaths(
            found.one_per_cell(), **steps, friction=beside or asked.friction, layer=asked.layer,
            into=asked.into, max_cost=half, backlink=True, allocation=True, wrap=asked.wrap,
        )  # fmt: skip
        searched = find_paths(paths, where, verify=verify, **how).report
        operation = PlaceNetwork(
            where, asked.into, str(lines), None if rows is None else str(rows), asked.pairs, most,
            found,
        )  # fmt: skip
        report = _combined(searched, _drawn(operation, verify, **how))
        report.result["length_unit"] = of_lengths(inputs[0].grid)
    name_files(report, {"output": asked.output, "table": asked.table})
    return _made(lines, report)


def _made(path: Path, report: Report) -> CostNetwork:
    """The network described by a report; warn if it does not connect all places."""
    places, links, parts = (report.result[name] for name in ("places", "links", "parts"))
    if parts > 1:
        log.warning("the %d places form %d parts that no link connects", places, parts)
    return CostNetwork(path, places, links, parts, report)


def _some_places(inputs: Any, given: PlacesLike) -> Places:
    """Convert and check places, at least two."""
    found = valid_places(inputs, given, "places")
    if (count := len(set(found.ids.tolist()))) < 2:
        raise ArgumentError(f"a network needs at least two {{places}}, not {count}; give more")
    refuse_start_costs(found, "places")
    return found


def refuse_directed(model: CostModel, pairs: str) -> None:
    """Reject costs that depend on direction if a link has only one cost."""
    if is_directed(model.kernel):
        raise ArgumentError(
            "{cost} {model} differs uphill and downhill, but links of {pairs} {value} have only "
            "one cost; use {pairs} all or {nearest}, or a cost that is the same in both directions",
            model=repr(model.name),
            value=repr(pairs),
        )


def _half(most: float) -> float:
    """Half a cost, and a little more because of rounding in sums."""
    return most // 2 if isinstance(most, int) else most / 2 * (1 + 1e-9)


def _drawn(
    operation: PlaceNetwork, verify: bool, *, progress: Progress = silent, **how: Any
) -> Report:
    own = {
        name: how[name]
        for name in ("memory_limit", "threads", "overwrite", "client")
        if name in how
    }
    return run_operation(operation, verify=verify, place=Here(progress), **own).report


def _combined(searched: Report, drawn: Report) -> Report:
    """Combine the reports of both steps."""
    found = Report(drawn.command, drawn.cells, searched.valid_cells)
    found.seconds = {**searched.seconds, **drawn.seconds}
    found.seconds["total"] = searched.seconds["total"] + drawn.seconds["total"]
    for name in ("bytes_read", "bytes_written"):
        both = [getattr(one, name) for one in (searched, drawn)]
        setattr(found, name, None if None in both else sum(both))
    found.peak_rss_bytes = max(searched.peak_rss_bytes, drawn.peak_rss_bytes)
    found.settings = {**searched.settings, **drawn.settings}
    found.settings["plan_of_distances"] = searched.settings["plan"]
    if "cluster" in drawn.settings:
        figures = (one.settings["cluster"] for one in (searched, drawn))
        found.settings["cluster"] = figures_of_both(*figures)
    del drawn.result["blocks_resumed"]
    found.result = {**searched.result, **drawn.result, "layers": searched.result["layers"]}
    return found
