"""The spanning forest as a network of lines: `extract_network`."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...arguments import at_least_one, checked, not_negative
from ...engine.run import Here, run
from ...grid.lengths import length_unit
from ...io.frames import FeatureResult, draws
from ...io.labelled import StoreLike, takes_dataarrays
from ...io.lines import checked_target
from ...io.places import NO_PLACES, Places, PlacesLike, as_places
from ...io.settling import Ground, refuse_unusable
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer
from ..completing import completed
from ..forest.source import open_forest
from .operation import ExtractNetwork

log = logging.getLogger(__name__)


@dataclass(repr=False)
class Network(FeatureResult):
    """A network written to a file.

    Attributes
    ----------
    path
        The file.
    lines, cells
        Number of lines, and of cells on them. A cell where lines meet counts once for each line.
    length
        Total length of all lines, in map units, or in metres for a geographic CRS.
    report
        The run's `Report`.
    """

    path: Path
    lines: int
    cells: int
    length: float
    report: Report


@takes_dataarrays
@draws("path")
@checked(at_least_one("min_length", "keep"), min_length=not_negative)
@completed()
def extract_network(
    store: StoreLike,
    path: str | os.PathLike[str] | None = None,
    *,
    min_length: float | None = None,
    keep: PlacesLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Network:
    """Write the main lines of the spanning forest as polylines.

    Dead ends shorter than `min_length` are removed. An edge of the forest belongs to the network
    when, on both of its sides, a path that begins with the edge is at least `min_length` long or
    leads to a kept point. Each remaining end is then extended along the longest path (along all
    of them, where several are equally long), unless it is a kept point. A tree without such an
    edge is dropped: none of its paths is twice as long as `min_length`. The output does not depend
    on block size, memory limit or threads.

    Every line connects two nodes. A node is a cell where three or more edges meet, an end, or a
    kept point. A line that uses both diagonals of a square of four cells is cut before the second
    one, so that no line crosses itself; its parts follow one another. The attributes of a line are

    - start, end: ids (row * columns + column) of its ends, the lesser one first,
    - weight: the sum of its edge weights; pass_height: the value of its highest cell,
    - length: in map units, or in metres for a geographic CRS; cells: the number of its cells.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. "mst" of weight "flow" is computed if it is
        missing.
    path
        A .geojson, .json, .parquet, .fgb or .gpkg file (layer "network"); see `write_paths`. None
        for a temporary file, which `Network.to_geodataframe` reads.
    min_length
        In map units, or in metres for a geographic CRS. None: only kept points count; 0 keeps
        every line.
    keep
        Cells that are never removed and at which lines end, in the forms that `shortest_paths`
        accepts as sources.
    memory_limit
        Bound on the peak resident set of the process, in bytes; a quarter of RAM when None.
    threads
        Number of threads; one per processor when None.
    client
        A ``distributed.Client`` whose workers solve the blocks; `memory_limit` then applies to
        each worker. None: this process solves them.
    verify
        Read the file back and verify all lines, in two more passes over the cells.
    overwrite
        Replace an existing file, once the new one is complete.
    progress
        Called with the number of cells just processed, and the total over both passes.

    Raises
    ------
    InputError
        when neither `min_length` nor `keep` is given, a kept point has no value, the file name
        has an unknown extension, or the memory limit is too small.
    StoreError
        when the spanning forest is stale or damaged.
    OutputError
        when the file cannot be written.
    ClusterError
        when the cluster has no workers, or is lost.
    VerificationError
        when the proof fails; there is no file then, and an older one is kept.
    """
    assert path is not None
    target = checked_target(path, overwrite=overwrite)
    forest = open_forest(store)
    if forest.weight.name == "absdiff":
        log.warning(
            "%s: computed with weight absdiff, so its lines follow the least climb, not valleys; "
            "these need compute-mst --weight flow, or max",
            forest.edges.path,
        )
    kept = NO_PLACES if keep is None else kept_places(forest.cells, keep)
    operation = ExtractNetwork(str(forest.store.path), str(path), min_length, kept)
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    report, found = result.report, result.found
    report.valid_cells = forest.edges.info["result"]["vertices"]
    unit = length_unit(forest.cells.grid)
    report.result = {**report.result, "length_unit": unit, "output": str(path)}
    for key in ("layers", "blocks_resumed"):
        del report.result[key]
    return Network(target, found["lines"], found["cells"], found["length"], report)


def kept_places(cells: Layer, keep: PlacesLike) -> Places:
    """The cells to keep, over a layer of heights.

    Raises
    ------
    InputError
        when one has no value.
    """
    kept = as_places(cells.grid, keep, "keep")
    if not len(kept):
        return kept
    refuse_unusable(kept, Ground([cells]))
    return kept.one_per_cell("points to keep")
