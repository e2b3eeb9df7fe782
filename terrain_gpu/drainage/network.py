"""The spanning forest as a network of lines: `extract_network`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments import checked
from ..engine.run import Here, run
from ..errors import InputError
from ..io.lines import checked_target
from ..io.places import NO_PLACES, PlacesLike, as_places, refuse_nodata
from ..progress import Progress, silent
from ..report import Report
from ..store import TileStore
from .network_problem import ExtractNetwork
from .source import open_forest


@dataclass
class Network:
    """A network that was written.

    Attributes
    ----------
    path
        The file.
    lines, cells
        How many lines there are, and cells on them; one where lines meet counts for each.
    length
        Of all lines, map units, or metres in a geographic CRS.
    report
        The run's `Report`.
    """

    path: Path
    lines: int
    cells: int
    length: float
    report: Report


@checked()
def extract_network(
    store: str | os.PathLike[str] | TileStore,
    path: str | os.PathLike[str],
    *,
    min_length: float | None = None,
    keep: PlacesLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Network:
    """Write the main lines of the spanning forest as polylines.

    Dead ends shorter than `min_length` are removed: an edge of the forest belongs to the network
    when on both of its sides a path that begins with it is at least so long, or leads to a kept
    point; and the ends of what is left go on along the longest path (all of them, where several
    are equally long), unless they are kept points. A tree without such an edge, none of whose paths
    is twice as long, goes. What is written does not depend on blocks, limits or threads.

    Every line leads from one node to the next: a cell where three or more edges meet, an end, or a
    kept point. A line that takes both diagonals of a square of four cells is cut before the second,
    so that none crosses itself; its parts follow one another. The attributes of a line are

    - start, end: ids (row * columns + column) of its ends, the lesser one first,
    - weight: the sum of its edges' weights; pass_height: its highest cell,
    - length: in map units, in a geographic CRS metres; cells: their number.

    Parameters
    ----------
    store
        A store with the layer "mst".
    path
        .geojson or .json, or .gpkg: the layer "network" of a GeoPackage; see `write_paths`.
    min_length
        Map units, metres in a geographic CRS. When None, only kept points count; 0 keeps all.
    keep
        Cells that are never removed, and end lines, given as the sources of `shortest_paths`.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    client
        A ``distributed.Client``: its workers solve the blocks, and `memory_limit` holds for each.
        This process when None.
    overwrite
        Replace an existing file, at the end.
    progress
        Called with the cells just handled, and the cells of both passes.

    Raises
    ------
    InputError
        when there is neither `min_length` nor `keep`, a kept point has no value, the file cannot be
        named so, or the memory limit is too small.
    StoreError
        when there is no spanning forest, or it is damaged.
    OutputError
        when the file cannot be written.
    ClusterError
        when the cluster has no worker, or is gone.
    """
    if min_length is None and keep is None:
        raise InputError("give a minimum length, points to keep, or both")
    if min_length is not None and not 0 <= min_length < math.inf:
        raise InputError(f"a minimum length of {min_length} is no finite number from 0 on")
    target = checked_target(path, overwrite=overwrite)
    forest = open_forest(store)
    kept = NO_PLACES if keep is None else as_places(forest.cells.grid, keep, "keep")
    if len(kept):
        refuse_nodata(kept, forest.cells)
        kept = kept.one_per_cell("points to keep")
    operation = ExtractNetwork(str(forest.store.path), str(path), min_length, kept)
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        overwrite=overwrite,
        place=Here(progress),
        client=client,
    )
    report, found = result.report, result.found
    report.valid_cells = forest.edges.info["result"]["vertices"]
    report.result = {**found, "store": str(forest.store.path), "output": str(path)}
    return Network(target, found["lines"], found["cells"], found["length"], report)
