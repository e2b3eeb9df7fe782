"""Write a cost matrix as a table, and its paths as lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...facts import JsonObject
from ...grid import cell_centres
from ...io.features import LINES, Feature, lines_across, write_features
from ...io.lines import PARQUET, import_parquet, tell_without_crs
from ...io.lines import checked_target as checked_lines
from ...store.file_writer import writable_file
from ...store.outputs import whole_file
from .folder import SourceRows
from .operation import MatrixProblem
from .proof_lines import claimed, prove_lines
from .solve import MatrixRun
from .trace import cells_of

COLUMNS = "source", "target", "cost", "length", "climb"
LAYER = "paths"
_CELLS = 1 << 20
"""Number of cells of paths written at a time."""

Columns = dict[str, np.ma.MaskedArray]


def checked_table(path: Any, *, overwrite: bool) -> Path:
    """Return the absolute path of the table after checking that it can be written.

    Raises
    ------
    InputError
        when it exists, its folder does not exist, it has another extension, or pyarrow is missing.
    OutputError
        when its folder cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", PARQUET):
        raise InputError(f"{path}: the name of the table must end in .csv or .parquet")
    if path.suffix.lower() == PARQUET:
        import_parquet(path)
    return writable_file(path, overwrite=overwrite)


def columns_of(problem: MatrixProblem, source: int, found: SourceRows) -> Columns:
    """The rows of a source by column; missing values are masked."""
    rows, none = found.rows, found.rows["cells"] == 0
    cost = rows["cost"].astype(np.int64) if problem.dtype.kind == "u" else rows["cost"]
    return {
        "source": np.ma.array(problem.starts.labels[np.full(len(rows), source)]),
        "target": np.ma.array(problem.ends.labels[rows["target"]]),
        "cost": np.ma.array(cost, mask=none),
        "length": np.ma.array(rows["length"], mask=none),
        "climb": np.ma.array(rows["climb"], mask=np.isnan(rows["climb"])),
    }


def write_table(target: Path, run: MatrixRun) -> None:
    """Write the table as .csv, with empty fields where there is no path, or as .parquet."""
    write = _write_parquet if target.suffix.lower() == PARQUET else _write_csv
    with whole_file(target) as part:
        write(part, (columns_of(run.problem, *one) for one in run.in_file_order()), run.problem)


def _write_csv(file: Path, parts: Iterator[Columns], problem: MatrixProblem) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for columns in parts:
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _write_parquet(file: Path, parts: Iterator[Columns], problem: MatrixProblem) -> None:
    pyarrow, parquet = import_parquet(file)
    cost = pyarrow.int64() if problem.dtype.kind == "u" else pyarrow.float64()
    ends = [
        pyarrow.string() if places.labels.dtype == object else pyarrow.int64()
        for places in (problem.starts, problem.ends)
    ]
    kinds = *ends, cost, pyarrow.float64(), pyarrow.float64()
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    with parquet.ParquetWriter(file, schema) as out:
        for columns in parts:
            arrays = [
                pyarrow.array(column.data, kind, mask=np.ma.getmaskarray(column))
                for column, kind in zip(columns.values(), kinds, strict=True)
            ]
            out.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def checked_paths(path: Any, *, overwrite: bool) -> Path:
    """The same as `checked_table`, for the file of paths."""
    return checked_lines(path, overwrite=overwrite)


def write_lines(target: Path, run: MatrixRun) -> dict[str, int]:
    """Write the paths as lines from sources to targets, and prove them if requested.

    Returns
    -------
    dict
        "paths", their number; "verified_path_steps", if they are proven.
    """
    problem = run.problem
    cost = np.int64 if problem.dtype.kind == "u" else np.float64
    labels = problem.starts.labels, problem.ends.labels
    begin, end = (object if one.dtype == object else np.int64 for one in labels)
    fields = {"from": begin, "to": end, "cost": cost, "length": float, "climb": float}
    features, count = _features(run), 0

    def batches() -> Iterator[list[Feature]]:
        nonlocal count
        while batch := list(islice(features, 256)):
            count += len(batch)
            yield batch

    tell_without_crs(target, problem.grid)
    with whole_file(target) as part:
        shape = lines_across(problem.grid) if problem.wrap else LINES
        write_features(part, batches(), problem.grid, LAYER, fields, shape)
        if not problem.verified:
            return {"paths": count}
        claims = (claimed(source, rows.ends[k], own) for source, rows, k, own in _paths(run))
        how = LAYER, claims, run.plan.memory_limit, run.proof_progress
        return {"paths": count, "verified_path_steps": prove_lines(part, target, problem, *how)}


def _paths(run: MatrixRun) -> Iterator[tuple[int, SourceRows, int, JsonObject]]:
    """Yield the source, the row and the attributes of every path."""
    for source, found in run.in_file_order():
        columns = [column.tolist() for column in columns_of(run.problem, source, found).values()]
        for k in np.flatnonzero(found.rows["cells"]).tolist():
            own = (column[k] for column in columns)
            yield source, found, k, dict(zip(("from", "to", *COLUMNS[2:]), own, strict=True))


def _features(run: MatrixRun) -> Iterator[Feature]:
    for _, found, k, own in _paths(run):
        cells = cells_of(found.ends[k], found.codes(k), run.problem.blocks)
        xy = cell_centres(run.problem.grid, cells)
        # A path of one cell repeats its position: a line has two.
        yield xy if len(xy) > 1 else np.repeat(xy, 2, axis=0), own
