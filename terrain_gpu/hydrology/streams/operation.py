"""Channels as a raster of orders, and as lines: `streams`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...arguments import LayerCompression, StreamOrder, checked
from ...engine.machine import Machine
from ...engine.run import Here, run
from ...io.frames import FeatureResult
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.lines import checked_target
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer
from ...store.labels import Layered
from ..common.codes import DIRECTIONS
from ..common.sums import EDGE_LAYER, open_edge_cells
from ..completing import completed
from .inputs import SUMS, open_channels, refuse_edge_cells
from .lines import StreamLines
from .orders import LAYER, StreamOrders


@dataclass(repr=False)
class Streams(Layered, FeatureResult):
    """The result of `streams`.

    Attributes
    ----------
    layer
        The order of each channel cell; 0 elsewhere.
    links, heads, outlets, cells
        Number of links, of links into which no other flows, of links that flow into no other, and
        of channel cells.
    length
        Total length of all links, in map units, or in metres for a geographic CRS.
    report
        The run's `Report`.
    """

    layer: Layer
    links: int
    heads: int
    outlets: int
    cells: int
    length: float
    report: Report

    @property
    def layers(self) -> dict[str, Layer]:
        return {self.layer.name: self.layer}

    def _drawn(self) -> Path | None:
        found = self.report.result.get("lines")
        return None if found is None else Path(found)


@takes_dataarrays
@checked(refuse_edge_cells)
@completed(reads=("directions", "accumulation", "layer"), writes=("into",))
def streams(
    store: StoreLike,
    threshold: float | str,
    *,
    directions: str = DIRECTIONS,
    accumulation: str = SUMS,
    order: StreamOrder = "strahler",
    into: str = LAYER,
    lines: str | os.PathLike[str] | None = None,
    layer: str = "elevation",
    edge_cells: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Streams:
    """Take the cells through which enough drains as channels, and order them.

    Channels consist of links. A link begins at a head, into which no channel flows, or at a
    junction, into which several do. It ends at the next junction or at an outlet. A junction's own
    cell belongs to the link that begins there. The orders of a link are

    - strahler (Strahler 1957): 1 at heads; at a junction, one more than the greatest order that
      flows in, if several links have it, else that;
    - shreve (Shreve 1966): the number of heads upstream;
    - horton (Horton 1945): as strahler, but a stream keeps its order up to its head. At a junction
      it goes on along the link of the greatest Strahler order; of several, the main one;
    - hack (Hack 1957, Gravelius): 1 along main links from an outlet up to a head; one more than
      the link that it flows into on others;
    - topological: the number of links down to the outlet, itself included;
    - link: its number, 1, 2, ... in row-major order of first cells.

    The main one of several links that flow together has the largest sum at its lower end; of equal
    ones, the one whose last cell comes first in row-major order. Nothing depends on block size,
    memory limit or threads.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Missing layers of default names that it needs
        are computed: "mst", "flow_direction", "flow_accumulation" and, for `edge_cells`,
        "upstream_edge_cells".
    threshold
        Least sum of a channel: a number of cells, or an area as text: "5km2", "300ha", "90000m2".
        For sums of other quantities, a number in their unit.
    directions
        Layer of flow directions, see `flow_accumulation`.
    accumulation
        Layer of the sums along these directions: int64 cells or float64 areas.
    order
        Which order to write.
    into
        Layer to write: uint8 for strahler, horton and hack; else uint32, or int64 for rasters of
        2**32 cells and more. 0 where there is no channel.
    lines
        File for the links as lines: .geojson, .json, .parquet (GeoParquet), .fgb, or .gpkg (layer
        "streams"; layer "junctions" has the cells where links begin, and the outlets). None: no
        file.
    layer
        Layer of elevations, for the drop and the slope of lines.
    edge_cells
        Give lines the attribute edge_cells: how many cells on the edge of the data drain through
        them, as `flow_accumulation` counts these.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the layer in another pass over the cells; and the lines, read back from their file,
        in another one.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of both passes.

    Notes
    -----
    The line of a link leads from its first cell to the next junction or the outlet. A link of one
    cell, an outlet at which links end, has none. Its attributes are

    - id: its number; downstream: the link that it flows into, 0 at outlets; outlet: the last link
      on the way down;
    - start, end: ids (row * columns + column) of the cells at which its line begins and ends;
      cells: the number of its own cells, without the next junction;
    - length: of the line, in map units, or in metres for a geographic CRS; sinuosity: length by the
      straight distance between its ends; drop, slope: the difference of their elevations, and this
      by the length;
    - accumulation: the sum at its last cell;
    - edge_cells, if wanted: how many cells on the edge of the data (at the raster's edge or next to
      nodata) drain inwards and through its last cell; 0 where the sum is complete;
    - strahler, shreve, horton, hack, topological: its orders;
    - pfafstetter: its code after Verdin and Verdin (1999), as text; equal links of the networks of
      different outlets have equal codes.

    A junction has its id, its kind ("head", "junction" where links meet, or "outlet"), the number
    of links upstream that end there, the link downstream that begins there (0 at outlets) and the
    elevation of its cell.

    Raises
    ------
    InputError
        when the threshold is not positive, cannot be converted to the unit of the sums, or leaves
        no channel; when the file of lines cannot be written there, or `edge_cells` lacks one.
    PlanError
        when the memory limit is too small.
    StoreError
        when a layer is missing or damaged, sums belong to other directions, these lead round in a
        circle, or the result exists already; when edge cells were counted along others.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> found = streams("dem.zarr", "5km2")
    >>> orders = found.layer.read_window(0, 100, 0, 100)
    """
    opened = opened_store(store)
    codes, _, least = open_channels(opened, directions, accumulation, threshold)
    if edge_cells:
        open_edge_cells(opened, EDGE_LAYER, codes)
    named = str(opened.path), directions, accumulation
    drawn = StreamLines(*named, least, str(lines), layer, edge_cells)
    if lines is not None:
        checked_target(lines, overwrite=overwrite)
        opened.layer(layer)
        if client is None:  # before the layer is computed, and left there without the lines
            machine = Machine.of(memory_limit, threads)
            drawn.plan(machine)
            if verify:
                drawn.plan_verify(machine)
    passes = opened.grid.cells * (2 + verify + (lines is not None) * (1 + verify))

    def counted(cells: int, total: int) -> None:
        progress(cells, passes)

    how: dict[str, Any] = {
        "memory_limit": memory_limit,
        "threads": threads,
        "overwrite": overwrite,
        "place": Here(counted),
        "client": client,
    }
    operation = StreamOrders(*named, least, order, into)
    result = run(operation, resume=resume, verify=verify, compress=compress, **how)
    found, report = result.found, result.report
    if lines is not None:
        more = run(drawn, verify=verify, **{**how, "place": Here(counted)}).report
        report.seconds = {
            name: report.seconds.get(name, 0.0) + more.seconds.get(name, 0.0)
            for name in {**report.seconds, **more.seconds}
        }
        for counter in ("bytes_read", "bytes_written"):
            if getattr(report, counter) is not None:
                setattr(report, counter, getattr(report, counter) + getattr(more, counter))
        report.peak_rss_bytes = more.peak_rss_bytes
        report.settings |= {"layer": layer, "edge_cells": edge_cells}
        report.result["lines"] = str(lines)
        if verify:
            report.result["verified_lines"] = more.result["verified_lines"]
    return Streams(
        result.layers[into],
        found["links"],
        found["heads"],
        found["outlets"],
        found["cells"],
        found["length"],
        report,
    )
