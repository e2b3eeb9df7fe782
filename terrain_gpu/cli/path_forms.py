"""How commands give tools the places and the costs of paths: `FORMS`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.core import ParameterSource

from ..arguments import is_raster
from ..errors import InputError
from ..facts import Settings
from ..paths.cost.formula.presets import PRESETS
from ..paths.cost.models import MODELS, refuse_unknown, row_of, usual_cost
from ..tool import ToolOption, as_option
from . import options
from .forms import Form
from .places import (
    Point,
    field_of,
    misplaced_of,
    misplaced_options,
    naming,
    not_negative,
    place_options,
    places,
    with_cost,
)

if TYPE_CHECKING:
    from ..io.places import Places
    from ..store import TileStore
    from .options import Decorator


def id_field_option(files: str) -> Decorator:
    """The option that names the field of ids in these files."""
    text = (
        f"Field of {files} with the ids of features, instead of id: whole numbers from 1; or with "
        "their names, which are then numbered from 1."
    )
    return click.option("--id-field", metavar="FIELD", help=text)


field_options = [
    id_field_option("--sources and --targets"),
    click.option(
        "--target-id-field", metavar="FIELD", help="The field of --targets, if it is another one."
    ),
    click.option(
        "--cost-field",
        metavar="FIELD",
        help="Field of --sources with start costs, in place of cost.",
    ),
]


class CostType(click.ParamType):
    """The name of a model, or a formula; the library checks it."""

    name = "cost"

    def get_metavar(self, param: object, ctx: object = None) -> str:
        return f"[{'|'.join(MODELS)}|PRESET|FORMULA]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            refuse_unknown(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return str(value)

    def shell_complete(self, ctx: object, param: object, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(n) for n in (*MODELS, *PRESETS) if n.startswith(incomplete)]


class CostOrFormula(Form):
    """A model, or a formula, which may name a layer of frictions."""

    file = False

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [click.option(as_option(one.name), type=CostType(), help=text)]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        name_frictions(store, settings, settings["parameters"])
        return settings[name]

    def told(self) -> str:
        return cost_by_friction(click.get_current_context().params)


class Parameters(Form):
    """Parameters of the cost, one by one."""

    file = False

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        how: Settings = {"type": options.Parameter(), "metavar": "NAME=VALUE"}
        how |= {"multiple": True, "callback": options.named_parameters, "help": text}
        return [click.option("--parameter", one.name, **how)]


class TableToRead(Form):
    """A table in a text file."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [click.option(as_option(one.name), metavar=one.option.metavar, help=text)]


class NoCornerCutting(Form):
    """A flag that is off where the tool's option is on."""

    file = False

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [click.option(f"--no-{as_option(one.name)[2:]}", is_flag=True, help=text)]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        return not settings.pop(f"no_{name}")


class PathSources(Form):
    """Sources at points, cells and features; the targets are read with them, see `PathTargets`.

    Parameters
    ----------
    point, cell
        What these options name, for the help.
    start_costs
        Whether each may have a cost.
    needed
        What there must be at least one of; "" if another form says so.
    """

    def __init__(
        self, point: str, cell: str, *, start_costs: bool = False, needed: str = ""
    ) -> None:
        self._texts, self._form = (point, cell), with_cost if start_costs else "{}".format
        self._needed = needed

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return place_options("--source", *self._texts, text, self._form)

    def refuse(self, settings: Settings) -> None:
        if self._needed and not any(settings[f"source{one}"] for one in ("", "_rowcol", "s")):
            raise click.UsageError(
                f"no {self._needed}: give --source X,Y, --source-rowcol ROW,COL or --sources FILE"
            )

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        begin, end = (
            tuple(settings.pop(kind, None) for kind in (one, f"{one}_rowcol", f"{one}s"))
            for one in ("source", "target")
        )
        starts, settings["targets"] = both_ends(store, begin, end, settings)
        return starts if any(begin) else None


class PathTargets(Form):
    """Targets at points, cells and features, fields of files, and what becomes of misplaced ends.

    Parameters
    ----------
    fields
        Options that name fields of ids and of start costs.
    """

    def __init__(self, point: str, cell: str, fields: Sequence[Any]) -> None:
        self._texts, self._fields = (point, cell), fields

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        own = place_options("--target", *self._texts, text)
        return [*own, *self._fields, *misplaced_options]


class NetworkPlaces(PathSources):
    """Places at points, cells and features, without targets."""

    file = "sources"

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        own = super().options(one, text)
        return [*own, id_field_option("--sources"), *misplaced_options]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        points, cells, file = (settings.pop(f"source{one}") for one in ("", "_rowcol", "s"))
        return both_ends(store, (points, cells, file), ((), (), None), settings, called=name)[0]


class CostLimit(Form):
    """The most that a path may cost."""

    file = False

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        limit: Settings = {"type": float, "metavar": "COST", "callback": not_negative}
        return [click.option(as_option(one.name), help=text, **limit)]


class CostLimits(CostLimit):
    """The most that pairs may cost, and a field with that of each source."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        of_field = (
            "Field of --sources with the most that pairs of each source may cost; with --max-cost, "
            "the smaller one counts."
        )
        field = click.option("--max-cost-field", metavar="FIELD", help=of_field)
        return [*super().options(one, text), field]

    def refuse(self, settings: Settings) -> None:
        if (field := settings["max_cost_field"]) is not None and settings["sources"] is None:
            raise click.UsageError(
                f"--max-cost-field {field} names a field of a file: give --sources FILE"
            )

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        field, most = settings.pop("max_cost_field"), settings[name]
        if field is None:
            return most
        params, every = click.get_current_context().params, math.inf if most is None else most
        with naming("--max-cost-field"):
            file, limit = params["sources"], settings["memory_limit"]
            own = field_of(file, field, limit, params["id_field"])
        ids = set(settings["sources"].ids.tolist())
        return {one: min(own.get(one, every), every) for one in ids}


class FileToWrite(Form):
    """A file to write, by options of other names."""

    file = False

    def __init__(self, *names: str, required: bool = False) -> None:
        self._names, self._required = names, required

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        how: Settings = {"metavar": one.option.metavar, "help": text}
        return [click.option(*self._names, one.name, required=self._required, **how)]


class AlsoRaster(Form):
    """A result that is computed if a file is named for its raster."""

    file = False

    def __init__(self, metavar: str) -> None:
        self._metavar = metavar

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [click.option(as_option(one.name), metavar=self._metavar, help=text)]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        return settings[name] is not None


class LayersOrPlaces(Form):
    """Layers of distances, in place of all options of paths."""

    file = False
    _others: ClassVar[set[str]] = {
        *("distances", "into", "within", "memory_limit", "threads", "client", "verify"),
        *("compress", "resume", "overwrite"),
    }
    """Settings that do not only concern distances computed here."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [click.argument(one.name, metavar=one.option.metavar, nargs=-1)]

    def refuse(self, settings: Settings) -> None:
        given, context = settings["distances"], click.get_current_context()
        if not given:
            for what in ("source",) if settings["pairs"] else ("source", "target"):
                if not any(settings[name] for name in (what, f"{what}_rowcol", f"{what}s")):
                    among = ", or --pairs for corridors among the sources" * (what == "target")
                    raise click.UsageError(
                        f"no {what}: give --{what} X,Y, --{what}-rowcol ROW,COL or --{what}s FILE"
                        f"{among}; or two or more layers of distances"
                    )
            return
        if is_raster(path := context.params["store"]):
            raise click.UsageError(
                f"{path} is a raster, so {' '.join(given)} cannot be layers of it; give --sources "
                "and --targets in place of them, or convert rasters of distances into one store, "
                "with convert-dataset --layer"
            )
        if len(given) == 1:
            raise click.UsageError(
                f"{given[0]}: one layer of distances; give two or more, or --sources and --targets "
                "in place of them"
            )
        asked = [
            as_option(name)
            for name in settings.keys() - self._others
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "kept"
        ]
        if asked:
            raise click.UsageError(
                f"{min(asked)} is for distances that are computed here; leave it out, or the "
                f"layers {' '.join(given)}"
            )

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        return settings[name] or None


FORMS: dict[str, Form] = {
    "cost": CostOrFormula(),
    "parameters": Parameters(),
    "table to read": TableToRead(),
    "no corner cutting": NoCornerCutting(),
    "corridor layers": LayersOrPlaces(),
    "corridor sources": PathSources(
        "One end of the corridor: a point in the raster's CRS. Repeatable.",
        "One end of the corridor: a cell; rows and columns count from 0. Repeatable.",
    ),
    "corridor targets": PathTargets(
        "The other end: a point in the raster's CRS. Repeatable.",
        "The other end: a cell. Repeatable.",
        [id_field_option("--sources")],
    ),
    "matrix sources": PathSources(
        "A source at this point, in the raster's CRS, with this start cost (default 0). "
        "Repeatable.",
        "A source: a cell; rows and columns count from 0. Repeatable.",
        start_costs=True,
        needed="source",
    ),
    "matrix targets": PathTargets(
        "A target: a point in the raster's CRS. Repeatable.",
        "A target: a cell. Repeatable.",
        field_options,
    ),
    "path sources": PathSources(
        "Start at this point, in the raster's CRS, with this cost (default 0). Repeatable.",
        "Start at this cell; rows and columns count from 0. Repeatable.",
        start_costs=True,
    ),
    "path targets": PathTargets(
        "End of a path: a point in the raster's CRS. Repeatable.",
        "End of a path: a cell. Repeatable.",
        field_options,
    ),
    "backlink codes": AlsoRaster("CODES.tif"),
    "allocation ids": AlsoRaster("IDS.tif"),
    "network places": NetworkPlaces(
        "A place at this point, in the raster's CRS. Repeatable.",
        "A place: a cell; rows and columns count from 0. Repeatable.",
        needed="place",
    ),
    "cost limit": CostLimit(),
    "cost limits": CostLimits(),
    "file of -o": FileToWrite("-o", "--output", required=True),
    "paths to write": FileToWrite("--path"),
}
"""Forms by the names that tools give them."""


Group = tuple[Sequence[Point], Sequence[Point], str | None]
"""Points, cells and the file of a group of options."""


def both_ends(
    store: TileStore, begin: Group, end: Group, settings: Settings, called: str = "sources"
) -> tuple[Places, Places | None]:
    """Read the sources and the targets; take the options about them out of the settings.

    A formula that names a layer is turned into one of frictions, which places need, too. `called`
    says what the summary calls the sources.
    """
    name_frictions(store, settings, settings["parameters"])
    id_field, target_field, cost_field = (
        settings.pop(name, None) for name in ("id_field", "target_id_field", "cost_field")
    )
    for option, field, files in (
        ("--id-field", id_field, (begin[2], end[2])),
        ("--target-id-field", target_field, (end[2],)),
        ("--cost-field", cost_field, (begin[2],)),
    ):
        if field is not None and not any(files):
            which = "--targets FILE" if option == "--target-id-field" else "--sources FILE"
            raise click.UsageError(f"{option} {field} names a field of a file: give {which}")
    outside, void = misplaced_of(settings)
    limit = settings["memory_limit"]
    own = {"id_field": id_field, "cost_field": cost_field}
    starts = places(store.grid, "--source", *begin, limit, own, outside, called)
    starts = _settled(store, starts, void, "sources", settings)
    if not any(end):
        return starts, None
    own = {"id_field": target_field or id_field}
    ends = places(store.grid, "--target", *end, limit, own, outside, "targets")
    return starts, _settled(store, ends, void, "targets", settings)


def name_frictions(store: TileStore, settings: Settings, parameters: dict[str, float]) -> None:
    """Choose a missing cost; turn a formula that names a layer into one of frictions."""
    from ..paths.cost.resolve import with_named_layer

    if settings["cost"] is None:
        settings["cost"] = usual_cost(settings["friction"])
    if row_of(settings["cost"]).name == "formula":
        layers = {*store.layers} - {settings["layer"]}
        found = with_named_layer(settings["cost"], settings["friction"], layers, parameters)
        settings["cost"], settings["friction"] = found


def cost_by_friction(settings: Settings) -> str:
    """Name the cost in a summary if --friction has chosen it."""
    source = click.get_current_context().get_parameter_source("cost")
    chosen = source is ParameterSource.DEFAULT and settings["friction"] is not None
    return ", cost friction" if chosen else ""


def _settled(
    store: TileStore, found: Places, void: Settings, what: str, settings: Settings
) -> Places:
    """Move places that cannot be used, or leave them out; by default a run refuses them."""
    if void["nodata"] == "error" or not len(found):
        return found
    from ..io.settling import Ground, settle

    needed = [store.layer(settings["layer"])]
    if settings["friction"] not in (None, settings["layer"]):
        needed.append(store.layer(settings["friction"]))
    barriers = [store.layer(settings["barriers"])] if settings["barriers"] else []
    return settle(found, Ground(needed, barriers), **void, what=what)
