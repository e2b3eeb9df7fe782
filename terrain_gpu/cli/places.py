"""Places on the command line (sources, targets, outlets): coordinates, cells or files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ..arguments import Settling
from ..facts import Settings
from .renamed import RenamedOption

if TYPE_CHECKING:
    from ..grid import GridSpec
    from ..hydrology.common.outlets import Asked
    from ..io.places import Places
    from ..report import Report
    from ..store import TileStore
    from .options import Decorator

VECTOR = (
    *(".geojson", ".json", ".geojsonl", ".geojsons", ".gpkg", ".shp", ".fgb", ".kml", ".gml"),
    *(".dxf", ".tab", ".mif", ".gpx", ".sqlite", ".gdb"),
)
UNREADABLE = {
    ".csv": "a table, not a vector file or raster",
    **dict.fromkeys((".parquet", ".geoparquet"), "GeoParquet cannot be read here"),
}

Point = tuple[float, ...]


class Place(click.ParamType):
    """Two or three numbers, separated by commas."""

    def __init__(self, form: str) -> None:
        self.name = form

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Point:
        try:
            found = tuple(map(float, value.split(",")))
        except ValueError:
            found = ()
        most = self.name.count(",") + 1
        if self.name.startswith("ROW") and any(one % 1 for one in found[:2]):
            option = param.opts[0].removesuffix("-rowcol")
            self.fail(
                f"{value!r}: rows and columns are whole numbers; coordinates go to {option}",
                param,
                ctx,
            )
        if not 2 <= len(found) <= most:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return found


class DistanceType(click.ParamType):
    """A distance, in cells if it has no unit."""

    name = "distance"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from ..errors import ArgumentError
        from ..grid.distance import CELLS, in_unit

        try:
            return in_unit(CELLS)(param.name, value)
        except ArgumentError as error:
            self.fail(error.spelled(lambda name: "").strip(), param, ctx)


def place_options(
    option: str, point: str, cell: str, file: str, form: Callable[[str], str] = "{}".format
) -> list[Decorator]:
    """Return the three options that name places: --source, --source-rowcol, --sources.

    Parameters
    ----------
    option
        The first one.
    point, cell, file
        What each is, for the help.
    form
        Adds to the forms "X,Y" and "ROW,COL".
    """
    named = ((option, form("X,Y"), point), (f"{option}-rowcol", form("ROW,COL"), cell))
    return [
        *(
            click.option(name, type=Place(shown), metavar=shown, multiple=True, help=what)
            for name, shown, what in named
        ),
        click.option(f"{option}s", default=None, metavar="FILE", help=file),
    ]


with_cost = "{}[,COST]".format
"""Form of places that may have a start cost."""

misplaced_options = [
    click.option(
        "--outside",
        type=click.Choice(get_args(Settling)),
        help="What to do with places outside the raster: reject them, skip them, or move them to "
        "its nearest cell within --snap.  [default: error for points, while features of files are "
        "clipped to the raster; snap with --snap]",
    ),
    click.option(
        "--on-nodata",
        cls=RenamedOption,
        formerly="--nodata",
        type=click.Choice(get_args(Settling)),
        help="What to do with places on nodata or impassable cells: reject them, skip them, or "
        "move them to the nearest usable cell within --snap.  [default: error; snap with "
        "--snap]",
    ),
    click.option(
        "--snap",
        type=DistanceType(),
        metavar="DISTANCE",
        help="Move places by at most this distance, such as 200m, or 3px for cells.",
    ),
]


def misplaced_of(settings: Settings) -> tuple[Settings, Settings]:
    """Take --outside, --on-nodata and --snap out of settings, for readers and `settle`."""
    outside, nodata, snap = (settings.pop(name) for name in ("outside", "on_nodata", "snap"))
    usual = "error" if snap is None else "snap"
    for option, given in (("--outside", outside), ("--on-nodata", nodata)):
        if given == "snap" and snap is None:
            raise click.UsageError(f"{option} snap needs a distance: give --snap, such as 3px")
    if snap is not None and "snap" not in (outside or usual, nodata or usual):
        raise click.UsageError("--snap: nothing is snapped with these --outside and --on-nodata")
    settled = outside or (None if snap is None else usual)
    return (
        {"snap": snap} if settled is None else {"outside": settled, "snap": snap},
        {"nodata": nodata or usual, "snap": snap},
    )


def given_outlet_options(file: str) -> list[Decorator]:
    """The options for outlets at points, cells and features, with the help of the last one."""
    return place_options(
        "--outlet",
        "An outlet: a point in the raster's CRS. Repeatable.  [default: where water leaves the "
        "data over its edge]",
        "An outlet: a cell; rows and columns count from 0. Repeatable.",
        file,
    )


def added_outlet_options(text: str) -> list[Decorator]:
    """The options for outlets on the edge, with the help of the first one."""
    return [
        click.option("--add-outlets", is_flag=True, help=text),
        click.option(
            "--force-outward",
            is_flag=True,
            help="Make every cell on the edge an outlet, even where the ground falls inwards.",
        ),
    ]


def given_outlets(grid: GridSpec, settings: Settings) -> Places | None:
    """Take the outlets out of a command's settings; None if there are none."""
    points, cells, file = (settings.pop(f"outlet{kind}") for kind in ("", "_rowcol", "s"))
    if not points and not cells and file is None:
        return None
    return places(grid, "--outlet", points, cells, file, settings["memory_limit"])


inner_voids_option = click.option(
    "--inner-voids",
    is_flag=True,
    help="Cells beside inner voids are outlets, too.",
)


def outlets_of(
    store: TileStore, settings: Settings, *, inner_voids: bool | None = None
) -> Asked | None:
    """Take the outlets of flow directions out of a command's settings; None if there are none.

    `inner_voids` says whether cells beside these are outlets, for commands without the option.
    """
    from ..hydrology.common.outlets import BORDER, EDGE, LOW_BORDER, LOW_EDGE, Asked

    given = given_outlets(store.grid, settings)
    add, forced = settings.pop("add_outlets"), settings.pop("force_outward")
    inner = settings.pop("inner_voids") if inner_voids is None else inner_voids
    if add and given is None:
        raise click.UsageError(
            "--add-outlets: there are none to add; give --outlet, --outlet-rowcol or --outlets"
        )
    if given is not None and not add:
        chosen = {"--inner-voids": inner and inner_voids is None, "--force-outward": forced}
        for option in (option for option, on in chosen.items() if on):
            raise click.UsageError(
                f"{option} is about the outlets on the edge, which the given ones replace; give "
                "--add-outlets to keep both"
            )
        return Asked(given)
    if given is None and not forced and inner == bool(inner_voids):
        return None
    low, all_cells = (LOW_BORDER, BORDER) if inner else (LOW_EDGE, EDGE)
    return Asked(all_cells if forced else low, given)


def not_negative(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse a negative number or NaN; a callback for options."""
    if value is not None and not value >= 0:
        raise click.BadParameter(f"{value} is not a number of at least 0", ctx, param)
    return value


def places(
    grid: GridSpec,
    option: str,
    points: Sequence[Point],
    cells: Sequence[Point],
    file: str | None,
    memory_limit: int | None,
    fields: Mapping[str, str | None] | None = None,
    outside: Settings | None = None,
    called: str = "",
) -> Places:
    """Return all cells that a group of options names.

    Cells from the file keep its ids; points, then cells, get the ids after the greatest of these.
    `fields` are the id_field and the cost_field of the file, `outside` says what becomes of places
    outside the raster; see `from_vector`. `called` is for `from_file`.
    """
    import numpy as np

    from ..errors import InputError
    from ..io import places as sources

    found, last = [], 0
    if file is not None:
        with naming(f"{option}s"):
            what = called or f"{option[2:].replace('-', ' ')}s"
            of_file = from_file(grid, file, memory_limit, what, fields=fields, outside=outside)
            found.append(of_file)
        last = int(found[0].ids.max())
    for name, given, place in (
        (option, points, sources.from_xy),
        (f"{option}-rowcol", cells, sources.from_rowcol),
    ):
        if not given:
            continue
        if last + len(given) > sources.MAX_ID:
            raise InputError(
                f"{option}s {file}: its id {last} leaves none for {name}; use smaller ids"
            )
        with naming(name):
            own = place(grid, given, **(outside or {}))
        found.append(replace(own, ids=own.ids + np.uint32(last)))
        last += len(given)
    if found:
        return sources.merge(found)
    return sources.NO_PLACES


def from_file(
    grid: GridSpec,
    name: str,
    memory_limit: int | None,
    what: str,
    *,
    all_touched: bool = False,
    fields: Mapping[str, str | None] | None = None,
    outside: Settings | None = None,
) -> Places:
    """Return the cells that a vector file (FILE or FILE:LAYER) or an aligned raster names.

    `what` calls them in the summary, if they are reprojected (`tell_reprojected`). With
    `all_touched`, all that features touch, without their ids and costs.
    """
    from ..errors import InputError
    from ..io.places import from_raster, from_vector

    path, layer = file_and_layer(name)
    if is_vector(name):
        how: Settings = {"all_touched": all_touched, "fields": not all_touched}
        how |= {**(fields or {}), **(outside or {})}
        found = from_vector(grid, path, layer, memory_limit, **how)
        if found.reprojected:
            told = click.get_current_context().meta.setdefault(_REPROJECTED, {})
            told[what] = found.reprojected
        return found
    if wanted := [f for f in (fields or {}).values() if f is not None]:
        raise InputError(f"{name}: a raster has no field {wanted[0]!r}; give a vector file")
    return from_raster(grid, path, memory_limit)


_REPROJECTED = f"{__name__}.reprojected"


def tell_reprojected(report: Report) -> str:
    """Add to a report which files were in another CRS; return the words for the summary."""
    told: dict[str, str] = click.get_current_context().meta.get(_REPROJECTED, {})
    if told:
        report.result["reprojected"] = told
    return "".join(f", {name} reprojected from {how}" for name, how in told.items())


def field_of(
    name: str, field: str, memory_limit: int | None, id_field: str | None = None
) -> dict[int, float]:
    """Return the positive numbers in a field of a vector file (FILE or FILE:LAYER), by ids."""
    from ..errors import InputError
    from ..io.vectors import read_field

    path, layer = file_and_layer(name)
    if not is_vector(name):
        raise InputError(f"{name}: has no fields; give a vector file")
    return read_field(path, field, layer, memory_limit, id_field)


def names_of(grid: GridSpec, name: str, field: str, memory_limit: int | None) -> dict[int, str]:
    """Return what the ids of places stand for, of a vector file (FILE or FILE:LAYER)."""
    from ..errors import InputError
    from ..io.vectors import read_features

    path, layer = file_and_layer(name)
    if not is_vector(name):
        raise InputError(f"{name}: has no fields; give a vector file")
    found = read_features(path, grid, layer, memory_limit, id_field=field).names
    if not found:
        raise InputError(f"{path}: {field} holds numbers, which the labels are; leave this out")
    return found


def is_vector(name: str) -> bool:
    """Whether a file, or FILE:LAYER, is called like a vector file.

    Raises
    ------
    InputError
        for a file that holds features and cannot be read.
    """
    suffix = Path(file_and_layer(name)[0]).suffix.lower()
    if what := UNREADABLE.get(suffix):
        from ..errors import InputError

        raise InputError(f"{name}: {what}; convert it to .gpkg first")
    return suffix in VECTOR


def file_and_layer(name: str) -> tuple[str, str | None]:
    """Split FILE or FILE:LAYER."""
    path, _, layer = name.rpartition(":")
    if Path(path).suffix.lower() in VECTOR and not os.path.exists(name):
        return path, layer
    return name, None


def refuse_shared_files(inputs: dict[str, str | None], outputs: dict[str, str | None]) -> None:
    """Refuse empty file names, and an output that would replace an input or another output.

    Both arguments map an option to its file.
    """
    taken: dict[str, str] = {}
    for option, file in (inputs | outputs).items():
        if file is None or (option, file) == ("--json", "-"):
            continue
        if file == "":
            raise click.UsageError(f"{option}: the name of the file is empty")
        path = file_and_layer(file)[0] if option in inputs else file
        other = taken.setdefault(os.path.realpath(path), option)
        if other != option and option in outputs:
            raise click.UsageError(
                f"{option} {file}: {other} already names this file; name another"
            )


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Prefix errors raised in this context with the option they are about."""
    from ..errors import InputError, OutputError

    try:
        yield
    except (InputError, OutputError) as error:
        error.reword(lambda text: f"{option}: {text}")
        raise
