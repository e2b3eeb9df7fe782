"""Write the links of a network: paths as lines, and a table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...facts import JsonObject
from ...grid import GridSpec, cell_centres
from ...io.features import LINES, Feature, lines_across, write_features
from ...io.lines import PARQUET, import_parquet, tell_without_crs
from ...store.outputs import output_errors

LAYER = "network"
"""Name of the layer in a GeoPackage."""

COLUMNS = "from", "to", "cost", "length", "climb"

_BATCH = 256
"""Number of links written at a time."""


class Link(NamedTuple):
    """A link of a network.

    Attributes
    ----------
    begin, end
        Ids or names of the places.
    cost, length, climb
        Cost, length and climb of the path; the climb is None if the raster holds frictions.
    cells
        int64 (n, 2): row and column, from `begin` to `end`.
    """

    begin: int | str
    end: int | str
    cost: float
    length: float
    climb: float | None
    cells: np.ndarray

    @property
    def row(self) -> tuple[Any, ...]:
        """Values of `COLUMNS`."""
        return self[:5]


class _Table(Protocol):
    def __call__(self, rows: list[tuple[Any, ...]]) -> None: ...


def write_links(
    lines: Path,
    table: Path | None,
    links: Iterable[Link],
    grid: GridSpec,
    kinds: tuple[bool, bool],
    *,
    named: Sequence[Path],
    wrap: bool = False,
) -> int:
    """Write links in the order of the iterator; return their number.

    Parameters
    ----------
    lines, table
        The files, .gpkg, .parquet, .fgb or .geojson, and .csv or .parquet.
    kinds
        Whether costs are integers, and whether places have names.
    named
        Names of these files in messages.
    wrap
        Whether links may cross the seam of a raster around the Earth.
    """
    count, left = 0, iter(links)
    cost, end = np.int64 if kinds[0] else float, object if kinds[1] else np.int64
    fields = dict(zip(COLUMNS, (end, end, cost, float, float), strict=True))
    tell_without_crs(named[0], grid)
    with ExitStack() as stack:
        add = None
        if table is not None:
            stack.enter_context(output_errors(named[1]))  # also on close
            add = stack.enter_context(_open_table(table, fields))

        def batches() -> Iterator[list[Feature]]:
            nonlocal count
            while batch := list(islice(left, _BATCH)):
                count += len(batch)
                if add is not None:
                    with output_errors(named[1]):
                        add([link.row for link in batch])
                yield [(_line(link, grid), dict(zip(COLUMNS, link.row, strict=True)))
                       for link in batch]  # fmt: skip

        shape = lines_across(grid) if wrap else LINES
        with output_errors(named[0]):
            write_features(lines, batches(), grid, LAYER, fields, shape)
    return count


def _line(link: Link, grid: GridSpec) -> np.ndarray:
    xy = cell_centres(grid, link.cells)
    # A path of one cell repeats its position: a line has two.
    return xy if len(xy) > 1 else np.repeat(xy, 2, axis=0)


@contextmanager
def _open_table(file: Path, fields: JsonObject) -> Iterator[_Table]:
    """Open a table of `COLUMNS`; yield a function that appends rows."""
    if file.suffix.lower() != PARQUET:
        with open(file, "w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(COLUMNS)
            yield writer.writerows
        return
    pyarrow, parquet = import_parquet(file)
    kinds = {object: pyarrow.string(), np.int64: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in fields.items()])
    with parquet.ParquetWriter(file, schema) as out:

        def add(rows: list[tuple[Any, ...]]) -> None:
            columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
            out.write_table(pyarrow.table(columns, schema=schema))

        yield add
