"""Run `ComputeCostMatrix`: costs between many sources and many targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import refused
from ...errors import ArgumentError, InputError
from ...facts import Findings
from ...io.frames import FeatureResult
from ...io.labelled import RasterLike
from ...io.places import Places, PlacesLike
from ...report import Report
from ...store.outputs import together
from ..cost.graph import warn_about_lengths
from ..cost.models import row_of
from ..cost.resolve import stated_cost
from ..cost.wrap import joining
from ..cost_distance.inputs import check_start_costs, limit_of_costs, opened_inputs, valid_places
from ..cost_distance.operation import LAYERS
from . import ComputeCostMatrix
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


def run(
    asked: ComputeCostMatrix,
    data: RasterLike,
    *,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **how: Any,
) -> CostMatrix:
    """Compute a matrix over a store or an array; the result is that of the public function."""
    if resume and asked.output is None:
        raise ArgumentError("{resume} needs {output}: an unfinished run is stored next to it")
    table = None if asked.output is None else checked_table(asked.output, overwrite=overwrite)
    lines = None if asked.paths is None else checked_paths(asked.paths, overwrite=overwrite)
    problem = problem_of(asked, data, verified=verify)
    if problem.targets is None and len(problem.starts) < 2:
        raise ArgumentError("there is one source and no target; give {targets}, or more {sources}")
    if problem.store:
        warn_about_lengths(problem)
    writer = MatrixFiles(table, lines)
    how |= {"resume": resume, "overwrite": overwrite}
    report = run_matrix(problem, writer, settings_of(problem, writer, **how))
    name_files(report, {"output": asked.output, "path": asked.paths})
    rows, unreached = (report.result[name] for name in ("rows", "unreached"))
    return CostMatrix(rows, unreached, report, writer.columns)


def problem_of(
    asked: ComputeCostMatrix,
    data: RasterLike,
    kind: type[MatrixProblem] = MatrixProblem,
    **more: Any,
) -> MatrixProblem:
    """The problem of a tool, of a kind with `more` fields."""
    over_arrays = isinstance(data, np.ndarray)
    heights = data if over_arrays else asked.layer
    cost, parameters, friction, stated = stated_cost(
        data, asked.cost, heights, asked.friction, asked.parameters, asked.vertical_factor
    )
    rasters = asked.layer, friction, asked.barriers
    where, inputs = opened_inputs(data, rasters, (asked.nodata, asked.cell_size, None), LAYERS[0])
    starts = _some_places(inputs, asked.sources, "sources")
    ends = None if asked.targets is None else _some_places(inputs, asked.targets, "targets")
    joined = joining(inputs[0].grid, asked.wrap, where, asked.connectivity)
    names = [None if found is None else found.name for found in inputs[1:]]
    problem = kind(
        where,
        inputs[0].name,
        friction=names[0],
        barriers=names[1],
        cost=cost,
        parameters=parameters,
        connectivity=asked.connectivity,
        corner_cutting=asked.corner_cutting,
        reverse=asked.reverse,
        max_slope=asked.max_slope,
        stated=stated,
        sources=starts,
        targets=ends,
        nearest=asked.nearest,
        max_cost=_limits(asked.max_cost, row_of(cost).least, starts),
        wrap=joined,
        **more,
    ).over([found for found in inputs if found is not None])
    check_start_costs(problem)
    return problem


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
    """Writes a matrix as a table and as lines; the `RowWriter` of a matrix.

    Attributes
    ----------
    columns
        The table in memory, if it is not written to a file.
    """

    def __init__(self, table: Path | None, paths: Path | None) -> None:
        self.beside, self._paths, self.lines = table, paths, paths is not None
        self.files = [file for file in (table, paths) if file is not None]
        self.columns: Columns | None = None

    def write(self, run: MatrixRun) -> Findings:
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
