"""The command of a tool, from its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from ..arguments import amount, cells_away, counting, levels_above, not_negative
from ..facts import Settings
from ..tool import (
    PathLike,
    Tool,
    ToolOption,
    as_option,
    described,
    drawn,
    only_stores,
    options_of,
    spelled,
)
from ..tools import tool_of
from . import forms, options, path_forms
from .operations import command_of, files_of, runner_of, writer_of
from .renamed import RenamedOption

if TYPE_CHECKING:
    from ..store import TileStore
    from .options import Decorator

FORMS = {**forms.FORMS, **path_forms.FORMS}
RASTER = "STORE can also be a raster: then give {given} for the result."
PROVIDED = "Layers that the command needs and STORE lacks are computed first."


def command_of_tool(cls: type[Tool]) -> click.Command:
    """The command `terrain-gpu NAME` of a tool."""
    tool_options = {n: one for n, one in options_of(cls).items() if not one.option.of_arrays}
    file = drawn(cls)
    given = {name: FORMS[one.option.form] for name, one in tool_options.items() if one.option.form}
    files = [name if form.file is True else form.file for name, form in given.items() if form.file]

    def take(store: TileStore, settings: Settings) -> None:
        for name, form in given.items():
            settings[name] = form.take(name, store, settings)

    def provide(store: TileStore, show: Any, settings: Settings) -> dict[str, float]:
        from .. import prerequisites

        take(store, settings)
        opened = type(store).open(store.path)  # which may have layers of files now
        return prerequisites.provide(asked(settings), opened, settings, show)

    def run(store: TileStore, **settings: Any) -> Any:
        from ..running import compute

        how = {name: value for name, value in settings.items() if name not in tool_options}
        runs = cls.load(cls.runs) if cls.runs else compute
        found = runs(asked(settings), store, **how)
        for form in given.values():
            form.warn(found)
        return found

    def asked(settings: Settings) -> Tool:
        return cls(**{name: settings[name] for name in tool_options})

    def refuse(settings: Settings) -> None:
        for form in given.values():
            form.refuse(settings)

    def told() -> str:
        return "".join(form.told() for form in given.values())

    declared = SimpleNamespace(
        NAME=cls.command,
        FUNCTION=cls.function,
        HELP=help_of(cls),
        SHORT=cls.short,
        OPTIONS=[option for one in tool_options.values() for option in options_for(one)],
        ON_GPU=cls.gpu is not None,
        ON_GPUS=cls.gpu not in (None, "one"),
        PROGRAM=cls.program,
        FILE=file,
        FORMATS=file and tool_options[file].option.metavar,
        PROVEN=bool(cls.proof or file),
        MODULES=_modules(cls),
        READS=(*files, *(name for name, one in tool_options.items() if _is_read(one))),
        WRITES=tuple(name for name, one in tool_options.items() if one.option.layer == "write"),
        HOW=cls.how,
        FILES=[name for name, one in tool_options.items() if one.option.file],
        KEPT=cls.kept,
        refuse_file=cls.refuse_file,
        contents=cls.contents,
        take=take,
        provide=provide,
        refuse=refuse,
        refuse_output=cls.refuse_output,
        run=run,
        told=told,
        tell=cls.summary,
    )
    if not cls.runs:
        return (writer_of if file else command_of)(declared)
    return (files_of if declared.FILES else runner_of)(declared)


def help_of(cls: type[Tool]) -> str:
    """The help of a tool's command."""
    paragraphs = described(cls)[""].split("\n\n")
    lines = [f"{{{name}}}" for name, one in options_of(cls).items() if one.option.file == "lines"]
    given = RASTER.replace("{given}", " or ".join(["{output}", *lines]))
    raster = "STORE can also be a raster." if drawn(cls) or "output" in options_of(cls) else given
    if not only_stores(cls):
        paragraphs.append(f"{raster} {PROVIDED}" if cls.needs else raster)
    examples = inspect.cleandoc(cls.examples)
    return spelled("\n\n".join([*paragraphs, f"\b\n{examples}"]), as_option).replace("`", "")


def options_for(one: ToolOption) -> list[Decorator]:
    """The options of a command for one of a tool."""
    text = spelled(one.option.help, as_option).replace("`", "")
    if one.option.form:
        return FORMS[one.option.form].options(one, text)
    if one.option.argument:
        return [click.argument(one.name, metavar=one.option.metavar)]
    if one.type is bool:
        return [click.option(as_option(one.name), is_flag=True, default=False, help=text)]
    # Amounts are text, such as 5km2, and messages show them as they were given.
    number = one.type == float | str and one.check is not amount
    kind: Any = NumberOrText() if number else str
    if one.choices:
        words = [str(value) for value in one.choices]
        kind = (options.NumberChoice if isinstance(one.choices[0], int) else click.Choice)(words)
    elif one.type == Sequence[float]:
        kind = CommaSeparated()
    elif one.type in (int, float):
        kind = RANGES.get(one.check, one.type)
    # None is a default, too: an option that has it can be left out.
    usual = {"default": one.default, "show_default": one.default is not None}
    usual = {"required": True} if one.required else usual
    made = click.option(
        as_option(one.name),
        one.name,
        cls=RenamedOption,
        formerly=one.option.formerly and as_option(one.option.formerly),
        type=kind,
        metavar=one.option.metavar,
        help=text,
        **usual,
    )
    return [made]


RANGES: dict[Any, click.ParamType] = {
    cells_away: click.IntRange(1, 10_000),
    counting: click.IntRange(1),
    levels_above: click.IntRange(0, 9),
    not_negative: click.FloatRange(min=0),
}
"""Types of the command for numbers with these checks."""


class NumberOrText(click.ParamType):
    """A number where it can be read as one, else text."""

    name = "number or text"

    def convert(self, value: Any, param: object, ctx: object) -> float | str:
        for read in (int, float):  # integers are exact beyond 2^53
            try:
                return read(value)
            except ValueError:
                pass
        return str(value)


class CommaSeparated(click.ParamType):
    """Numbers, such as 600,1200,1800."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            return tuple(map(float, value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 600,1200,1800", param, ctx)


def _is_read(one: ToolOption) -> bool:
    """Whether an option names a file to read."""
    return one.type == PathLike and one.option.file is None


def _modules(cls: type[Tool]) -> tuple[str, ...]:
    """The modules that workers import for a tool and what it needs, without the name of ours."""
    before = [_modules(tool_of(name)) for name in cls.needs]
    own = cls.__module__.partition(".")[2] + cls.operation.partition(":")[0]
    return tuple(dict.fromkeys([*cls.modules, *chain.from_iterable(before), own]))
