"""terrain-gpu query-index: least costs between pairs of places from the distance index."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..plurals import counted
from . import options
from .places import DistanceType, Place, Point, naming, refuse_shared_files
from .sections import program_command

if TYPE_CHECKING:
    from ..grid import GridSpec
    from ..grid.distance import Distance
    from ..io.places import Places
    from ..paths.distance_index.query import IndexQuery

SHOWN = 1000
"""Without a table, costs of at most this many pairs are in the report."""


@program_command("query-index", short_help="Compute least costs between pairs of places")
@click.argument("store", metavar="STORE")
@options.all_of(
    [
        click.option(name, type=Place(form), metavar=form, multiple=True, help=what)
        for name, form, what in (
            ("--from", "X,Y", "Where a path starts: a point in the raster's CRS. Repeatable."),
            ("--to", "X,Y", "Where it ends; the first --to belongs to the first --from."),
            ("--from-rowcol", "ROW,COL", "The same as cells, counted from 0. Repeatable."),
            ("--to-rowcol", "ROW,COL", "The same as cells. Repeatable."),
        )
    ]
)
@click.option(
    "--pairs",
    metavar="PAIRS.csv",
    help="Pairs as a table with the fields from_x, from_y, to_x, to_y, or from_row, from_col, "
    "to_row, to_col, and id if they have names.",
)
@click.option(
    "--snap",
    type=DistanceType(),
    metavar="DISTANCE",
    help="Move places that are outside, without a value or on barriers by at most this distance, "
    "such as 200m, or 3px for cells.",
)
@click.option(
    "-o",
    "--output",
    metavar="TABLE.csv|.parquet",
    help="The table of costs to write.  [default: CSV on standard output]",
)
@click.option(
    "--path",
    metavar="PATHS.gpkg|.parquet|.geojson|.fgb",
    help="Also write the least-cost paths as lines.",
)
@options.memory_limit_option
@options.scratch_option
@options.overwrite_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    *,
    output: str | None,
    path: str | None,
    json_target: str | None,
    memory_limit: int | None,
    overwrite: bool,
    snap: Distance | None,
    pairs: str | None,
    **points: Sequence[Point],
) -> None:
    """Compute the least costs between pairs of places over STORE from its distance index, for the
    costs that the index was built for.

    Reads only the cells around both ends, and the part of the index between them. Pairs without a
    path have an empty cost.

    \b
    terrain-gpu build-index dem.zarr --cost tobler
    terrain-gpu query-index dem.zarr --from -84.2,36.5 --to -84.1,36.6
    terrain-gpu query-index dem.zarr --pairs trips.csv -o costs.csv \\
        --path trails.gpkg
    """
    refuse_shared_files(
        {"--pairs": pairs}, {"--output": output, "--path": path, "--json": json_target}
    )

    from ..paths.distance_index.query import query_index, write_rows
    from ..store import TileStore

    opened = TileStore.open(store)
    starts, ends = _ends(opened.grid, points, pairs, snap)
    drawn = options.progress_of("query-index")
    with options.if_interrupted("nothing is kept"), drawn as show:
        found = query_index(
            opened,
            starts,
            ends,
            snap=snap,
            output=output,
            paths=path,
            memory_limit=memory_limit,
            overwrite=overwrite,
            progress=show,
        )
    if output is None and len(found.costs) <= SHOWN:
        found.report.result["costs"] = found.costs.tolist()
    options.write_json(found.report.to_json(), json_target)
    if output is None and json_target != "-":
        text = io.StringIO()
        write_rows(text, found)
        click.echo(text.getvalue(), nl=False)
    options.say(_summary(store, found, output, path), json_target)


def _ends(
    grid: GridSpec, points: dict[str, Sequence[Point]], pairs: str | None, snap: Distance | None
) -> tuple[Places, Places]:
    """The cells that the options name."""
    from ..io.places import from_rowcol, from_xy
    from ..paths.distance_index.pairs import read_pairs

    kinds = [kind for kind in ("", "_rowcol") if points[f"from{kind}"] or points[f"to{kind}"]]
    if len(kinds) + (pairs is not None) != 1:
        raise click.UsageError(
            "give pairs in one way: --from X,Y --to X,Y, --from-rowcol ROW,COL --to-rowcol ROW,COL "
            "or --pairs PAIRS.csv"
        )
    if pairs is not None:
        with naming("--pairs"):
            return read_pairs(grid, pairs, snap=snap)
    begin, end = points[f"from{kinds[0]}"], points[f"to{kinds[0]}"]
    names = [f"--{end}{kinds[0].replace('_', '-')}" for end in ("from", "to")]
    if len(begin) != len(end):
        raise click.UsageError(
            f"{names[0]} {counted(len(begin), 'time')}, {names[1]} {counted(len(end), 'time')}; "
            "give as many of each"
        )
    place: Any = from_rowcol if kinds[0] else from_xy
    how = {"outside": "error" if snap is None else "snap", "snap": snap}
    found = []
    for name, given in zip(names, (begin, end), strict=True):
        with naming(name):
            found.append(place(grid, given, **how))
    return found[0], found[1]


def _summary(store: str, found: IndexQuery, output: str | None, path: str | None) -> str:
    result = found.report.result
    count = result["pairs"]
    written = ", ".join(file for file in (output, path) if file)
    return (
        f"{store}: {counted(count, 'pair')}"
        + (f", {result['unreached']:,} without a path" if result["unreached"] else "")
        + f", {found.report.seconds['total']:.2f} s"
        + (f"\nwritten: {written}" if written else "")
    )
