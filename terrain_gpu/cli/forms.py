"""How commands give tools what Python gives otherwise: `FORMS`."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Protocol

import click

from ..arguments import not_negative
from ..facts import Settings
from ..tool import ToolOption, as_option
from .places import (
    added_outlet_options,
    field_of,
    from_file,
    given_outlet_options,
    inner_voids_option,
    names_of,
    naming,
    outlets_of,
    place_options,
    places,
)

if TYPE_CHECKING:
    from ..store import TileStore
    from .options import Decorator


log = logging.getLogger(__name__)


class Form(Protocol):
    """How a command gives the value of an option of a tool.

    Attributes
    ----------
    file
        Whether the option of this name may be a file to read; or the option that may be one.
    """

    file: bool | str = True

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        """The options of the command."""

    def refuse(self, settings: Settings) -> None:
        """Refuse options that exclude each other, before any work."""
        return  # which most do not have

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        """Take the options out of the settings; return the value of the tool's option."""
        return settings[name]  # which most are themselves

    def warn(self, found: object) -> None:
        """Warn, after the run, of what its result tells about these options."""
        return  # which is nothing of most

    def told(self) -> str:
        """Words for the summary."""
        return ""


class FeatureFile(Form):
    """The cells that features of a file touch."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        option = as_option(one.name)
        return [click.option(option, metavar="FILE", required=one.required, help=text)]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        file, limit = settings.pop(name), settings["memory_limit"]
        if file is None:
            return None
        with naming(as_option(name)):
            return self.read(name, file, store, limit)

    def read(self, name: str, file: str, store: TileStore, limit: int | None) -> Any:
        return from_file(store.grid, file, limit, name, all_touched=True)


class StreamCells(FeatureFile):
    """The cells that streams of a file touch."""

    def read(self, name: str, file: str, store: TileStore, limit: int | None) -> Any:
        return super().read("streams", file, store, limit)


class CellsToKeep(FeatureFile):
    """The cells at points, on lines and in polygons of a file that are to be kept."""

    def read(self, name: str, file: str, store: TileStore, limit: int | None) -> Any:
        return from_file(store.grid, file, limit, "places to keep")


class NamesOfLabels(Form):
    """What features of a file are called, by their ids."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        option = as_option(one.name)
        field = f"Field of {option} with these names."
        return [
            click.option(option, metavar="FILE", help=text),
            click.option("--id-field", metavar="FIELD", help=field),
        ]

    def refuse(self, settings: Settings) -> None:
        if (settings["names"] is None) != (settings["id_field"] is None):
            raise click.UsageError("--names FILE and --id-field FIELD belong together: give both")

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        file, field = settings.pop(name), settings.pop("id_field")
        if file is None:
            return None
        with naming(as_option(name)):
            return names_of(store.grid, file, field, settings["memory_limit"])

    def warn(self, found: Any) -> None:
        report = found.report
        if "unnamed" in report.result:
            log.warning(
                "%s: %d of %d labels of %s have no name, the first of them %d; give the file of "
                "the places that the layer was computed from",
                click.get_current_context().params["names"],
                report.result["unnamed"],
                found.labels,
                report.settings["layer"],
                report.result["first_unnamed"],
            )


class DepthOrLayer(Form):
    """A depth, the name of a layer of depths, or a raster that becomes one."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        how: Settings = {
            "metavar": "DEPTH|LAYER|RASTER",
            "required": one.required,
            "help": text,
        }
        return [click.option(as_option(one.name), **how)]

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        from .working import layer_of

        try:
            number = float(settings[name])
        except ValueError:
            nor = "not a depth, such as 0.02, in units of the heights, and "
            layer = layer_of(name, store, settings, nor)
            type(store).open(store.path).layer(layer)  # before the work
            return layer
        return not_negative(name, number)


class ValuedFeatures(FeatureFile):
    """The cells that features touch; they become one value, or that in a field of each."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        field = "Field with the value of each, 0 or more."
        return [*super().options(one, text), click.option("--field", metavar="FIELD", help=field)]

    def refuse(self, settings: Settings) -> None:
        if settings["value"] is not None and settings["field"] is not None:
            raise click.UsageError("--value and --field both say what cells become: give one")

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        file, field = settings.pop(name), settings.pop("field")
        if settings["value"] is None and field is None:
            settings["value"] = 1
        own, limit = {"cost_field": field}, settings["memory_limit"]
        with naming(as_option(name)):
            return from_file(store.grid, file, limit, name, all_touched=True, fields=own)


class GivenOutlets(Form):
    """Outlets at points, cells and features, or those on the edge.

    Parameters
    ----------
    inner_voids
        Whether cells beside inner voids are outlets; None for an option that says so.
    """

    def __init__(self, *, inner_voids: bool | None = None) -> None:
        self._inner_voids = inner_voids

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return given_outlet_options(text)

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        asked = outlets_of(store, settings, inner_voids=self._inner_voids)
        outlets, settings["add_outlets"] = asked or (None, None)
        return outlets


class AddedOutlets(Form):
    """Whether given outlets are added, and to which ones on the edge; see `GivenOutlets`."""

    file = False

    def __init__(self, *, inner_voids: bool | None = None) -> None:
        self._asks = inner_voids is None

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return [*added_outlet_options(text), *([inner_voids_option] if self._asks else [])]


class GivenPourPoints(Form):
    """Pour points at points, cells and features, and the area that a field has for each."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        return place_options(
            "--pour-point",
            "A pour point in the raster's CRS. Repeatable.",
            "A pour point: a cell; rows and columns count from 0. Repeatable.",
            text,
        )

    def take(self, name: str, store: TileStore, settings: Settings) -> Any:
        from ..hydrology.watershed.pour_points import naming_nearest

        points, cells = settings.pop("pour_point"), settings.pop("pour_point_rowcol")
        file, limit = settings[name], settings["memory_limit"]
        if settings["links"] is not None:
            return None
        with naming_nearest(store, settings["directions"]):
            found = places(store.grid, "--pour-point", points, cells, file, limit)
        area = settings["snap_area"]
        form = re.fullmatch(r"([^\W\d][^:]*)(?::(km2|ha|m2))?", area or "")
        if form and file is None:
            raise click.UsageError(
                f"--snap-area {area}: a field needs --pour-points; give a number of cells, or an "
                "area such as 5km2"
            )
        if form:
            with naming("--snap-area"):
                each = field_of(file, form[1], limit)
            unit = form[2] or ""
            settings["snap_area"] = {key: f"{value!r}{unit}" for key, value in each.items()}
        return found


class AreaOrField(Form):
    """A number of cells, an area, or a field of those, which `GivenPourPoints` reads."""

    def options(self, one: ToolOption, text: str) -> list[Decorator]:
        how: Settings = {"metavar": one.option.metavar, "help": text}
        return [click.option(as_option(one.name), default=None, **how)]


FORMS: dict[str, Form] = {
    "features": FeatureFile(),
    "streams": StreamCells(),
    "valued features": ValuedFeatures(),
    "kept": CellsToKeep(),
    "names": NamesOfLabels(),
    "depth": DepthOrLayer(),
    "outlets": GivenOutlets(),
    "added outlets": AddedOutlets(),
    "border outlets": GivenOutlets(inner_voids=True),
    "added border outlets": AddedOutlets(inner_voids=True),
    "pour points": GivenPourPoints(),
    "area": AreaOrField(),
}
"""Forms by the names that tools give them."""
