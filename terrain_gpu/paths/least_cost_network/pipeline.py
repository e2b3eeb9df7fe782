"""Compute networks of least-cost paths between places: `least_cost_network`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...arguments import (
    Backend,
    CostName,
    Devices,
    NetworkPairs,
    PathConnectivity,
    Wrap,
    checked,
    counting,
    devices,
    path,
    raster_or_layer,
    word,
)
from ...engine.figures import figures_of_both
from ...engine.run import Here, run
from ...errors import ArgumentError
from ...grid.units import of_lengths
from ...io.frames import FeatureResult, draws
from ...io.labelled import LayerLike, StoreLike, takes_dataarrays
from ...io.lines import checked_target
from ...io.places import Places, PlacesLike
from ...progress import Progress, silent
from ...report import Report
from ..cost.graph import warn_about_lengths
from ..cost.models import CostModel, cost_text, is_directed, row_of
from ..cost.resolve import VerticalFactor, stated_cost
from ..cost.rules import Cost
from ..cost.wrap import joining
from ..cost_distance.inputs import limit_of_costs, opened_inputs, refuse_start_costs, valid_places
from ..cost_distance.pipeline import shortest_paths
from ..cost_matrix.run import name_files, run_matrix, settings_of
from ..cost_matrix.table import checked_table
from .matrix import PairedPlaces, PairLinks
from .operation import PlaceNetwork

log = logging.getLogger(__name__)

NEAREST = "nearest"
"""Default name of the layer of distances from the nearest place."""


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


def _refuse_pairs(settings: Mapping[str, Any]) -> None:
    """Reject two options for choosing pairs."""
    if settings["nearest"] is not None and settings["pairs"] != "mst":
        raise ArgumentError(
            "{nearest} cannot be combined with {pairs} {value}; leave out one of them",
            value=settings["pairs"],
        )


@takes_dataarrays
@draws("output")
@checked(
    _refuse_pairs,
    cost=cost_text,
    device=devices,
    friction=raster_or_layer,
    barriers=raster_or_layer,
    output=path,
    table=path,
    nearest=counting,
    pairs=word(NetworkPairs),
    wrap=word(Wrap),
    connectivity=word(PathConnectivity),
)
def least_cost_network(
    store: StoreLike,
    places: PlacesLike,
    output: str | os.PathLike[str] | None = None,
    *,
    table: str | os.PathLike[str] | None = None,
    pairs: NetworkPairs = "mst",
    nearest: int | None = None,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: PathConnectivity = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    max_cost: float | None = None,
    layer: str = "elevation",
    into: str = NEAREST,
    wrap: Wrap = "auto",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> CostNetwork:
    """Link places by least-cost paths, and write these as lines.

    A place consists of all cells with one id, such as those of a line, polygon or zone. Its *area*
    is all cells to which no other place is nearer by cost (the allocation). The links depend on
    `pairs`:

    - "mst": the minimum spanning tree over the costs between all pairs of places.
    - "delaunay": one link for any two places whose areas touch (cost-weighted adjacency). Its path
      is the cheapest one that stays in these two areas. A path between them through the area of a
      third place may be cheaper.
    - "all": each place is linked with all others ("from everywhere to everywhere").

    "mst" and "delaunay" take one search from all places, however many there are. They need costs
    that are the same in both directions. "all" and `nearest` take a search for each place, like
    `cost_matrix`.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    places
        In the same form as the sources of `shortest_paths`; at least two, without start costs. Two
        places may share a cell: they are linked there.
    output
        File for the lines: .gpkg (layer "network"), .parquet, .fgb or .geojson. Their attributes
        are from and to (ids, or names if places have them), cost, length (map units, or metres for
        a geographic CRS), and climb (the sum of all rises along the path, in units of the
        elevations; null if the raster holds frictions). Lines go from `from` to `to`, sorted by
        ids; if costs are the same in both directions, `from` is the lower id, except with
        `nearest`. None for a temporary file, which `CostNetwork.to_geodataframe` reads.
    table
        Also write the attributes as a table, .csv or .parquet.
    pairs, nearest
        Which places to link. Instead of `pairs`, `nearest` links each place with this number of
        others, those of least cost.
    cost, friction, barriers, parameters, connectivity, corner_cutting, max_slope, \
vertical_factor, layer, wrap
        As for `shortest_paths`.
    reverse
        Compute cost and climb from `to` to `from`.
    max_cost
        Only links of at most this cost.
    into
        The layer of distances from the nearest place, with its backlinks and allocation, such as
        "nearest", "nearest_backlink" and "nearest_allocation". With `max_cost`, cells farther than
        half of it are unreached (with minimax, farther than all of it). "all" and `nearest` write
        no layers.
    memory_limit
        Limit on the peak resident set size of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    backend, device, gpu_memory_limit
        Where distances are computed, see `shortest_paths`; for "all" and `nearest`, on one GPU.
    client
        A ``distributed.Client`` whose workers compute the distances and find links, each within
        `memory_limit`; for "all" and `nearest`, they solve eight places in each task, on the CPU,
        and the file must be in a folder that all hosts share.
    verify
        Prove the distances, and the links, in further passes over the cells; for "all" and
        `nearest`, prove all costs, like `cost_matrix`.
    resume
        Continue an unfinished run. Complete layers of `into` are used as they are.
    overwrite
        Replace existing files and layers once the new ones are complete.
    progress
        Called with the number of cells just done, and the total.

    Returns
    -------
    CostNetwork
        It is not an error if links do not connect all places: `parts` is the number of parts, and a
        warning reports it.

    Raises
    ------
    InputError
        for unknown models, places outside or on nodata, fewer than two places, start costs, costs
        that depend on direction with "mst" and "delaunay", and files that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or already has such layers.
    OutputError
        when the disk is full. Finished blocks, or sources, are kept for `resume`.
    ClusterError
        when the cluster has no workers or is lost. Finished work is kept for `resume`.
    VerificationError
        when a result is wrong.

    Notes
    -----
    K. Mehlhorn (1988), A faster approximation algorithm for the Steiner problem in graphs: a
    spanning tree over areas that touch is one over all pairs. B. H. McRae, D. M. Kavanagh (2011),
    Linkage Mapper, for cost-weighted adjacency; D. A. White, S. B. Barber (2012), From everywhere
    to everywhere, for all pairs.

    Examples
    --------
    >>> found = least_cost_network("dem.zarr", [(9, 9), (90, 70), (40, 80)], "roads.gpkg")
    >>> found.links, found.parts
    (2, 1)
    """
    assert output is not None
    lines = checked_target(output, overwrite=overwrite)
    rows = None if table is None else checked_table(table, overwrite=overwrite)
    own = stated_cost(store, cost, layer, friction, parameters, vertical_factor)
    cost, parameters, beside, stated = own
    names = layer, beside, barriers
    where, inputs = opened_inputs(store, names, (None, (1.0, 1.0), None), into)
    found = _some_places(inputs, places)
    steps: dict[str, Any] = {
        "cost": cost,
        "barriers": barriers,
        "parameters": parameters,
        "connectivity": connectivity,
        "corner_cutting": corner_cutting,
        "reverse": reverse,
        "max_slope": max_slope,
    }
    row, kind = row_of(cost), CostModel(cost, beside is not None, parameters, max_slope)
    most = limit_of_costs(max_cost, row.least)
    how: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "resume": resume}
    how |= {"overwrite": overwrite, "progress": progress, "client": client}
    how |= {"backend": backend, "device": device, "gpu_memory_limit": gpu_memory_limit}
    if nearest is not None or pairs == "all":
        joined = joining(inputs[0].grid, wrap, where, connectivity)
        paired = PairedPlaces(
            where, layer, beside, **steps, sources=found, nearest=nearest, max_cost=most,
            verified=verify, wrap=joined, stated=stated,
        ).over([one for one in inputs if one is not None])  # fmt: skip
        warn_about_lengths(paired)
        writer = PairLinks(lines, rows)
        report = run_matrix(paired, writer, settings_of(paired, writer, **how))
    else:
        refuse_directed(kind, pairs)
        half = most if most is None or row.bottleneck else _half(most)
        searched = shortest_paths(
            where, found.one_per_cell(), **steps, friction=beside or friction, layer=layer,
            into=into, max_cost=half, backlink=True, allocation=True, verify=verify, wrap=wrap,
            **how,
        ).report  # fmt: skip
        operation = PlaceNetwork(
            where, into, str(lines), None if rows is None else str(rows), pairs, most, found
        )
        report = _combined(searched, _drawn(operation, verify, how))
        report.result["length_unit"] = of_lengths(inputs[0].grid)
    name_files(report, {"output": output, "table": table})
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


def _drawn(operation: PlaceNetwork, verify: bool, how: dict[str, Any]) -> Report:
    return run(
        operation,
        memory_limit=how["memory_limit"],
        threads=how["threads"],
        overwrite=how["overwrite"],
        verify=verify,
        place=Here(how["progress"]),
        client=how["client"],
    ).report


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
