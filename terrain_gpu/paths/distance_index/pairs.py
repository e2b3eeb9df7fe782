"""Read pairs of places from a table: `read_pairs`."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...grid import GridSpec
from ...grid.distance import Distance
from ...io.places import Places, from_rowcol, from_xy
from ...io.text_tables import ADVICE, read_rows, refuse_more_fields

_XY = "from_x", "from_y", "to_x", "to_y"
_CELLS = "from_row", "from_col", "to_row", "to_col"


def read_pairs(
    grid: GridSpec, path: str | os.PathLike[str], *, snap: Distance | None = None
) -> tuple[Places, Places]:
    """Read pairs of places from a text file.

    Parameters
    ----------
    path
        Fields separated by commas, semicolons or tabs. The first line names them: from_x, from_y,
        to_x, to_y, in the raster's CRS; or from_row, from_col, to_row, to_col, counted from 0. A
        field named id, if there is one, labels the pairs. Other fields are ignored.
    snap
        Move places outside the raster to its nearest cell, within this distance.

    Raises
    ------
    InputError
        when the file cannot be read, a field is missing, a value is not a number, decimal commas
        produce additional fields, or a place is outside the raster; the message names the line.
    """
    path = Path(path)
    rows = read_rows(path, "pairs")
    names = [name.lower() for name in next(rows, (1, []))[1]]
    fields = next((some for some in (_XY, _CELLS) if set(some) <= set(names)), None)
    if fields is None:
        raise InputError(
            f"{path}: its first line does not name the fields {', '.join(_XY)} or "
            f"{', '.join(_CELLS)}; add them"
        )
    columns = [names.index(name) for name in fields]
    counting = max(columns) + 1
    text = "id" in names[counting:]
    if text:
        counting = names.index("id") + 1
    points: list[tuple[float, ...]] = []
    called: list[str] = []
    for number, row in rows:
        refuse_more_fields(path, number, row, len(names), counting, text=text)
        points.append(_numbers(path, number, row, columns, fields))
        if "id" in names:
            at = names.index("id")
            called.append(row[at] if at < len(row) else "")
    if not points:
        raise InputError(f"{path}: has no pairs; add lines with {', '.join(fields)}")
    place: Any = from_xy if fields == _XY else from_rowcol
    how = {"outside": "error" if snap is None else "snap", "snap": snap}
    labels = dict(enumerate(called, 1))
    try:
        begin, end = (place(grid, [p[k : k + 2] for p in points], **how) for k in (0, 2))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(begin, names=labels), end


def _numbers(
    path: Path, line: int, row: list[str], columns: list[int], fields: tuple[str, ...]
) -> tuple[float, ...]:
    found = []
    for column, name in zip(columns, fields, strict=True):
        field = row[column] if column < len(row) else ""
        try:
            value = float(field)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(
                f"{path}: line {line}: {name} {field[:60]!r} is not a number; correct it ({ADVICE})"
            )
        if fields == _CELLS and value % 1:
            raise InputError(
                f"{path}: line {line}: {name} {field[:60]!r} is not a whole number; correct it, or "
                f"give coordinates in the fields {', '.join(_XY)}"
            )
        found.append(value)
    return tuple(found)
