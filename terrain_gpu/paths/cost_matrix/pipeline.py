"""Compute costs between many sources and many targets: `cost_matrix`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import (
    Backend,
    CostName,
    PathConnectivity,
    Wrap,
    checked,
    counting,
    limits_of_costs,
    path,
    raster_or_layer,
    raster_or_store,
    refused,
    text,
    word,
)
from ...errors import ArgumentError, InputError
from ...io.frames import FeatureResult
from ...io.labelled import LayerLike, RasterLike, takes_dataarrays
from ...io.places import Places, PlacesLike
from ...progress import Progress, silent
from ...report import Report
from ...store.outputs import together
from ..cost.graph import warn_about_lengths
from ..cost.models import row_of
from ..cost.resolve import VerticalFactor, stated_cost
from ..cost.rules import Cost
from ..cost.wrap import joining
from ..cost_distance.inputs import check_start_costs, limit_of_costs, opened_inputs, valid_places
from ..cost_distance.operation import LAYERS
from .operation import MatrixProblem
from .run import name_files, run_matrix, settings_of
from .solve import MatrixRun
from .table import (
    COLUMNS,
    Columns,
    checked_paths,
    checked_table,
    columns_of,
    write_lines,
    write_table,
)


@dataclass(repr=False)
class CostMatrix(FeatureResult):
    """Costs between places.

    Attributes
    ----------
    rows
        Number of rows of the table.
    unreached
        Number of rows without a path.
    report
        The run's `Report`.
    """

    rows: int
    unreached: int
    report: Report
    _columns: Columns | None

    def _drawn(self) -> Path | None:
        found = self.report.result.get("path")
        return None if found is None else Path(found)

    def columns(self) -> Columns:
        """The table by column: source, target, cost, length and climb; masked without a path."""
        if self._columns is None:
            raise InputError("the table was written to a file; read the file, or leave out output")
        return self._columns


@takes_dataarrays
@checked(
    data=raster_or_store,
    cost=text,
    wrap=word(Wrap),
    connectivity=word(PathConnectivity),
    friction=raster_or_layer,
    barriers=raster_or_layer,
    nearest=counting,
    max_cost=limits_of_costs,
    output=path,
    paths=path,
)
def cost_matrix(
    data: RasterLike,
    sources: PlacesLike,
    targets: PlacesLike | None = None,
    *,
    cost: Cost | CostName | str | None = None,
    friction: LayerLike | None = None,
    barriers: LayerLike | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: PathConnectivity = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    nearest: int | None = None,
    max_cost: float | Mapping[int, float] | None = None,
    output: str | os.PathLike[str] | None = None,
    paths: str | os.PathLike[str] | None = None,
    cell_size: float | tuple[float, float] = (1.0, 1.0),
    nodata: float | int | None = None,
    layer: str = "elevation",
    wrap: Wrap = "auto",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    client: Any = None,
) -> CostMatrix:
    """Compute the least costs from each of many sources to each of many targets.

    Every cost is the same, bit for bit, as that of `shortest_paths` for this source alone, and
    every path follows its backlinks, for any memory limit and number of threads. Sources are solved
    eight at a time, which share the reading of cells and the costs of steps, until their targets
    are final.

    A source or target consists of all cells with one id, such as those of a line, polygon or zone.
    The cost from or to it is that of its best cell. Two of them may share a cell.

    Parameters
    ----------
    data, cost, friction, barriers, parameters, connectivity, corner_cutting, max_slope, \
vertical_factor, cell_size, nodata, layer, wrap
        As for `shortest_paths`.
    sources, targets
        As for `shortest_paths`; start costs of sources are added. Without targets, each source is
        also the target of all others.
    reverse
        Compute costs from the target to the source, for costs that depend on direction.
    nearest
        Only this number of targets for each source, those of least cost; ties go to lower ids.
    max_cost
        Only pairs of at most this cost: one number, or one for each source by its id; other sources
        have no limit.
    output
        File for the table, .csv or .parquet; when None, it is kept in memory. Unreachable pairs
        have empty fields; with `nearest` or `max_cost` they have no row.
    paths
        Also write the paths as lines from source to target, with their from, to, cost, length and
        climb: .gpkg, .parquet, .fgb or .geojson.
    memory_limit
        Limit on the peak resident set size of the process, bytes or "2GB"; a quarter of RAM when
        None. For arrays: without memory held by the caller; no limit when None.
    threads
        Number of threads; all processors when None.
    backend
        "cpu", "cuda", or "auto": CUDA if it works and the raster fits with eight fields of
        distances, otherwise the CPU. The result is the same, bit for bit.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the memory of the GPU in bytes; nine tenths of the free memory when None.
    verify
        Prove all costs: every step of the distances that they come from; and the file of paths,
        read back, step by step.
    resume
        Continue an unfinished run to the same output: finished sources are kept, whatever device
        solved them.
    overwrite
        Replace existing files once the new ones are complete.
    progress
        Called with the number of cells just done, and the total of all batches of sources.
    client
        A `distributed.Client` whose workers solve eight sources in each task, on the CPU; when
        None, this process does. The table must be in a folder that all hosts share.

    Returns
    -------
    CostMatrix
        Rows by source, then by target, in the order of features in a file, otherwise of ids. Cost:
        int64 for integer costs, otherwise float64. Length: map units, or metres for a geographic
        CRS. Climb: the sum of all rises along the path, in units of the elevations; masked if the
        raster holds frictions.

    Raises
    ------
    ClusterError
        when the cluster has no workers or is lost; finished batches are kept for `resume`.
    InputError
        for unknown models, sources or targets outside or on nodata, negative frictions, and files
        that exist.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or there is another unfinished run.
    VerificationError
        when the proof finds a violation.
    OutputError
        when the disk is full; finished batches are kept for `resume`.

    Notes
    -----
    Label correcting as in `shortest_paths`, with a vector of distances in each cell;
    docs/design/shortest-paths.md.

    Examples
    --------
    >>> import numpy as np
    >>> heights = np.array([[0, 2, 9], [0, 1, 3]], np.int16)
    >>> found = cost_matrix(heights, [(0, 0), (0, 2)], [(1, 1), (1, 2)])
    >>> found.columns()["cost"].tolist()
    [1, 3, 8, 6]
    """
    if resume and output is None:
        raise ArgumentError("{resume} needs {output}: an unfinished run is stored next to it")
    table = None if output is None else checked_table(output, overwrite=overwrite)
    lines = None if paths is None else checked_paths(paths, overwrite=overwrite)
    over_arrays = isinstance(data, np.ndarray)
    heights = data if over_arrays else layer
    cost, parameters, friction, stated = stated_cost(
        data, cost, heights, friction, parameters, vertical_factor
    )
    given = nodata, cell_size, None
    where, inputs = opened_inputs(data, (layer, friction, barriers), given, LAYERS[0])
    starts = _some_places(inputs, sources, "sources")
    joined = joining(inputs[0].grid, wrap, where, connectivity)
    names = [None if found is None else found.name for found in inputs[1:]]
    problem = MatrixProblem(
        where,
        inputs[0].name,
        friction=names[0],
        barriers=names[1],
        cost=cost,
        parameters=parameters,
        connectivity=connectivity,
        corner_cutting=corner_cutting,
        reverse=reverse,
        max_slope=max_slope,
        stated=stated,
        sources=starts,
        targets=None if targets is None else _some_places(inputs, targets, "targets"),
        nearest=nearest,
        max_cost=_limits(max_cost, row_of(cost).least, starts),
        verified=verify,
        wrap=joined,
    ).over([found for found in inputs if found is not None])
    check_start_costs(problem)
    if problem.targets is None and len(problem.starts) < 2:
        raise ArgumentError("there is one source and no target; give {targets}, or more {sources}")
    if not over_arrays:
        warn_about_lengths(problem)
    writer = MatrixFiles(table, lines)
    how: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "resume": resume}
    how |= {"overwrite": overwrite, "progress": progress, "client": client, "backend": backend}
    how |= {"device": device, "gpu_memory_limit": gpu_memory_limit}
    report = run_matrix(problem, writer, settings_of(problem, writer, **how))
    name_files(report, {"output": output, "path": paths})
    rows, unreached = (report.result[name] for name in ("rows", "unreached"))
    return CostMatrix(rows, unreached, report, writer.columns)


def _limits(
    max_cost: float | Mapping[int, float] | None, least: float, sources: Places
) -> float | dict[int, float] | None:
    """Check limits; infinite ones are dropped."""
    if not isinstance(max_cost, Mapping):
        return limit_of_costs(max_cost, least)
    if unknown := sorted(set(max_cost) - set(sources.ids.tolist())):
        raise refused("max_cost", f": no source has the id {unknown[0]}; give ids of {{sources}}")
    found = {source: limit_of_costs(most, least) for source, most in max_cost.items()}
    return {source: most for source, most in found.items() if most is not None} or None


def _some_places(inputs: Any, given: PlacesLike, name: str) -> Places:
    """Convert and check sources or targets, at least one."""
    found = valid_places(inputs, given, name)
    if not len(found):
        raise ArgumentError(f"there are no {{{name}}}; give at least one")
    return found


class MatrixFiles:
    """Writes a matrix as a table and as lines; the `RowWriter` of `cost_matrix`.

    Attributes
    ----------
    columns
        The table in memory, if it is not written to a file.
    """

    def __init__(self, table: Path | None, paths: Path | None) -> None:
        self.beside, self._paths, self.lines = table, paths, paths is not None
        self.files = [file for file in (table, paths) if file is not None]
        self.columns: Columns | None = None

    def write(self, run: MatrixRun) -> dict[str, Any]:
        problem = run.problem
        if self.beside is None:
            parts = [columns_of(problem, *one) for one in run.in_file_order()]
            self.columns = {name: np.ma.concatenate([p[name] for p in parts]) for name in COLUMNS}
        with together():
            if self.beside is not None:
                write_table(self.beside, run)
            written = {} if self._paths is None else write_lines(self._paths, run)
        counts = [(len(found.rows), int((found.rows["cells"] == 0).sum())) for _, found in run]
        rows, unreached = (sum(count) for count in zip(*counts, strict=True))
        sizes = {"sources": len(problem.starts), "targets": len(problem.ends)}
        return {**sizes, "rows": rows, "unreached": unreached, **written}
