"""Least costs and paths between pairs of cells from the distance index: `query_index`."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ... import arguments
from ...arguments import checked, flag, path
from ...compiled import known_types, tell_compiling
from ...described import Described
from ...engine.machine import Machine
from ...engine.plan import PER_ROW, require
from ...errors import ArgumentError, InputError
from ...facts import JsonObject, Settings
from ...grid import cell_centres
from ...grid.distance import CELLS, Distance, in_unit
from ...io.features import LINES, Feature, library_bytes, write_features
from ...io.lines import PARQUET, checked_target, import_parquet, tell_without_crs
from ...io.places import Places, PlacesLike, as_places
from ...io.settling import Ground, settle
from ...plurals import counted
from ...progress import Progress, silent
from ...report import Report
from ...store import TileStore
from ...store.file_writer import writable_file
from ...store.objects import is_url
from ...store.outputs import together, whole_file
from ...store.scratch import scratch_folder
from ...store.temporary import TemporaryFolder
from ..cost.graph import warn_about_lengths
from ..cost.wrap import tell_open
from ..relax.trace import path_length
from .operation import DistanceIndex
from .rim import rim_cells
from .search import RimSearch, square_bytes, state_bytes
from .search_kernels import search_rims
from .stored import stored_index

COLUMNS = "pair", "cost"
LAYER = "paths"

_PAIR_BYTES = 2080
"""Bytes for a pair: its cells and label, without the distances within the tile of its end."""

_LEAST_ROOM = 8_000_000
"""Least number of bytes for the entries of tiles."""


@dataclass(repr=False)
class IndexQuery(Described):
    """Costs between pairs of cells.

    Attributes
    ----------
    pairs
        Labels of the pairs: their numbers, counted from 1, or names.
    costs
        Least cost of each pair, int64 for integer costs, else float64; masked if there is no path.
    paths
        With ``trace``: cells (row, col) of each path, int64 (n, 2), or None if there is no path;
        otherwise empty.
    report
        The run's `Report`.
    """

    pairs: np.ndarray
    costs: np.ma.MaskedArray
    paths: list[np.ndarray | None]
    report: Report


@checked(data=arguments.store, snap=in_unit(CELLS), trace=flag, output=path, paths=path)
def query_index(
    data: str | os.PathLike[str] | TileStore,
    starts: PlacesLike,
    ends: PlacesLike,
    *,
    snap: float | str | Distance | None = None,
    trace: bool = False,
    output: str | os.PathLike[str] | None = None,
    paths: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> IndexQuery:
    """Compute least costs between pairs of cells from the distance index of a store.

    Reads the cells of the tiles that contain the starts and ends, and the parts of the index that
    the search visits. Parts that were read are kept in memory for the next pairs, within the memory
    limit. The costs and their layers are those that the index was built for (`build_index`).

    Parameters
    ----------
    data
        A store with a distance index, or its path.
    starts, ends
        Cells, as for `shortest_paths`, as many starts as ends: a path leads from the first start to
        the first end, and so on. Pairs with the same start are computed by one search.
    snap
        Move nodata cells and cells on barriers to the nearest valid cell within this distance, such
        as "200m", or "3px" for cells.
    trace
        Also return the cells of the paths.
    output
        Also write the costs to this file, .csv or .parquet: pair and cost, which is empty if there
        is no path.
    paths
        Also write the paths to this file, with pair, cost and length: .gpkg, .parquet, .fgb or
        .geojson.
    memory_limit
        Limit on the peak resident set size of the process; a quarter of RAM when None.
    overwrite
        Replace existing files once the new ones are complete.
    progress
        Called with the number of pairs just computed, and the total.

    Returns
    -------
    IndexQuery
        Costs in the order of the pairs. Integer costs and those of minimax are bit-identical to
        those of `shortest_paths`; others have a relative difference of at most 1e-12.

    Raises
    ------
    InputError
        when cells are outside the raster, nodata or on barriers, or a file exists.
    StoreError
        when there is no index, it is damaged, or its layers have changed since.
    PlanError
        when the memory limit is too small.
    OutputError
        when the disk is full.

    Notes
    -----
    Uses E. W. Dijkstra's algorithm over the rim cells of tiles; see docs/design/distance-index.md.

    Examples
    --------
    >>> build_index("dem.zarr", cost="tobler")  # doctest: +SKIP
    >>> query_index("dem.zarr", [(10, 10)], [(90, 40)]).costs  # doctest: +SKIP
    masked_array(data=[7039.1], ...)
    """
    table = None if output is None else _checked_table(output, overwrite=overwrite)
    lines = None if paths is None else checked_target(paths, overwrite=overwrite)
    store = TileStore.open(data)
    operation, index = stored_index(store)
    begin, end = (
        _usable(operation, given, name, snap)
        for given, name in ((starts, "starts"), (ends, "ends"))
    )
    if len(begin) != len(end):
        raise InputError(
            f"{counted(len(begin), 'start')} and {counted(len(end), 'end')}; give as many "
            "ends as starts"
        )
    tell_open(operation.grid)
    warn_about_lengths(operation)
    if not known_types(search_rims):
        tell_compiling(search_rims, "query-index")
    report = Report("query-index")
    machine = Machine.of(memory_limit)
    limit = machine.memory_limit
    beside = max((library_bytes(str(file)) for file in (table, lines) if file), default=0)
    traced = trace or lines is not None
    needed = machine.baseline() + beside + PER_ROW * operation.grid.rows
    needed += len(begin) * (_PAIR_BYTES + 8 * rim_cells(index.tile))
    levels = index.levels  # as many as fit in memory
    while levels and limit < (
        needed + state_bytes(index, levels, lines=traced) + 2 * square_bytes(index, levels)
    ):
        levels -= 1
    needed += state_bytes(index, levels, lines=traced)
    require(needed + _LEAST_ROOM, limit, "to search in this distance index")
    with report.measured(), together(), ExitStack() as stack:
        if is_url(store.path):
            index.cache = stack.enter_context(TemporaryFolder(scratch_folder()))
        how: Settings = {"levels": levels, "start": tuple(begin.places[0].tolist())}
        search = RimSearch(operation, index, limit - needed, lines=traced, **how)
        answers = _Answers(search, operation, begin, end, progress)
        with report.phase("search"):
            if lines is not None:
                _write_lines(lines, answers, keep=trace)
            else:
                for _ in answers.each(traced=trace, keep=trace):
                    pass
        found = answers.found
        if table is not None:
            with report.phase("write"), whole_file(table) as part:
                write = _write_parquet if table.suffix.lower() == PARQUET else _write_csv
                write(part, found)
    report.cells = operation.grid.cells
    report.settings = {**index.settings, "memory_limit": limit}
    report.result = {
        "store": str(store.path),
        "pairs": len(begin),
        "unreached": int(np.ma.getmaskarray(found.costs).sum()),
        "searches": answers.searches,
        "tiles_read": search.tiles_read,
        "levels": levels,
        "index_bytes": index.bytes,
    }
    if lines is not None:
        report.result["paths"] = len(begin) - report.result["unreached"]
    for key, file in (("output", output), ("path", paths)):
        if file is not None:
            report.result[key] = os.fspath(file)
    found.report = report
    return found


class _Answers:
    """Computes costs of pairs of cells, those with the same start by one search."""

    def __init__(
        self,
        search: RimSearch,
        operation: DistanceIndex,
        begin: Places,
        end: Places,
        progress: Progress,
    ) -> None:
        self._search, self.grid, self._lengths = search, operation.grid, operation.lengths
        self._begin, self._end, self._progress = begin, end, progress
        labels = [begin.called(k) if begin.names else int(begin.ids[k]) for k in range(len(begin))]
        kind = np.int64 if search.dtype.kind == "u" else np.float64
        self.found = IndexQuery(
            np.array(labels, object if begin.names else np.int64),
            np.ma.masked_all(len(begin), kind),
            [],
            Report("query-index"),
        )
        self.searches = 0

    def each(self, *, traced: bool, keep: bool) -> Iterator[tuple[int, np.ndarray | None]]:
        """Yield the number of each pair and the cells of its path, if `traced` and there is one."""
        if keep:
            self.found.paths = [None] * len(self._begin)
        places = self._begin.places
        starts, first, of = np.unique(places, axis=0, return_index=True, return_inverse=True)
        ends_of = np.cumsum(np.bincount(of.ravel()))[:-1]
        members = np.split(np.argsort(of.ravel(), kind="stable"), ends_of)
        for start in np.argsort(first).tolist():
            pairs = members[start]
            ends = list(map(tuple, self._end.places[pairs].tolist()))
            costs = self._search.costs(tuple(starts[start].tolist()), ends)
            self.searches += 1
            for k, end, cost in zip(pairs.tolist(), ends, costs, strict=True):
                cells: np.ndarray | None = None
                if cost < self._search.infinity:
                    self.found.costs[k] = cost
                    cells = self._search.path(end, cost) if traced else None
                if keep:
                    self.found.paths[k] = cells
                yield k, cells
            self._progress(len(pairs), len(self._begin))

    def features(self, *, keep: bool) -> Iterator[Feature]:
        """Yield the paths as lines."""
        pairs, costs = self.found.pairs.tolist(), self.found.costs
        for k, cells in self.each(traced=True, keep=keep):
            if cells is None:
                continue
            xy = cell_centres(self.grid, cells)
            own = {"pair": pairs[k], "cost": costs[k].item()}
            own["length"] = path_length(cells, self._lengths)
            # A path of one cell repeats its position, as a line must have two.
            yield xy if len(xy) > 1 else np.repeat(xy, 2, axis=0), own


def _usable(operation: DistanceIndex, given: PlacesLike, name: str, snap: Any) -> Places:
    """Convert places to valid cells, in the order in which they are given."""
    found = as_places(operation.grid, given, name).as_given()
    if not len(found):
        raise ArgumentError(f"there are no {{{name}}}; give at least one")
    layers: dict[str, Any] = {
        key: raster.data for key, raster in operation.rasters.items() if raster is not None
    }
    barriers = [layers.pop("barriers")] if "barriers" in layers else []
    how: Any = {"nodata": "error" if snap is None else "snap", "snap": snap, "what": name}
    return settle(found, Ground(list(layers.values()), barriers), **how)


def _checked_table(file: Any, *, overwrite: bool) -> Path:
    found = Path(file)
    if found.suffix.lower() not in (".csv", PARQUET):
        raise InputError(f"{found}: the name of the table must end in .csv or .parquet")
    if found.suffix.lower() == PARQUET:
        import_parquet(found)
    return writable_file(found, overwrite=overwrite)


def _write_csv(file: Path, found: IndexQuery) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        write_rows(out, found)


def write_rows(out: Any, found: IndexQuery) -> None:
    """Write the costs as lines of CSV; the field of the cost is empty where there is no path."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(found.pairs.tolist(), found.costs.tolist(), strict=True))


def _write_parquet(file: Path, found: IndexQuery) -> None:
    pyarrow, parquet = import_parquet(file)
    pairs = pyarrow.array(found.pairs.tolist())
    costs = pyarrow.array(found.costs.data, mask=np.ma.getmaskarray(found.costs))
    parquet.write_table(pyarrow.table([pairs, costs], names=list(COLUMNS)), file)


def _write_lines(target: Path, answers: _Answers, *, keep: bool) -> None:
    """Write the paths as lines."""
    found, grid = answers.found, answers.grid
    pair = object if found.pairs.dtype == object else np.int64
    fields: JsonObject = {"pair": pair, "cost": found.costs.dtype.type, "length": float}
    features = answers.features(keep=keep)
    tell_without_crs(target, grid)
    with whole_file(target) as part:
        batches = iter(lambda: list(islice(features, 256)), [])
        write_features(part, batches, grid, LAYER, fields, LINES)
