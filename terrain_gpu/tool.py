"""Tools: what users ask for, declared once.

A tool is a frozen dataclass. Its fields are the options, each with one text of help; its docstring
describes it. The command, the Python function with its stub, the method of DataArrays, the
algorithm of QGIS, the reference, `plan` and `verify` are made from it. Programs import it to show
help, so it imports no kernels: how it is computed is in the module that `Tool.operation` names.

In help and docstrings, names of options are in braces: ``{min_slope}`` is `--min-slope` in the
command and `min_slope` in Python.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import reduce
from importlib import import_module
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from . import arguments
from .arguments import Check, Rule
from .facts import Findings, Settings
from .plurals import counted

if TYPE_CHECKING:
    from .io.places import PlacesLike
else:
    PlacesLike = Any  # which needs GDAL

PathLike = str | os.PathLike[str]


COUNTS = "counts"
"""The type of counts of cells: uint32, int64 for rasters of 2^32 or more cells."""


SIGNED_COUNTS = "signed counts"
"""The type of counts of cells that may be -1: int32, int64 for rasters of 2^31 or more cells."""

FileKind = Literal["table", "lines", "features"]
"""Of files: a table or lines in addition to layers, or features instead of them."""


class OfStore(NamedTuple):
    """A value that depends on the store: a function of it, as module:name of the package."""

    function: str

    def of(self, store: Any) -> Any:
        """The value for a store."""
        return loaded(self.function)(store)


class MadeBy(NamedTuple):
    """The command that makes a layer, and options of its tool, which may be `OfStore`."""

    command: str
    options: Settings


class InputLayer(NamedTuple):
    """A layer that a tool reads.

    Attributes
    ----------
    dtype
        The usual type of its cells, COUNTS or SIGNED_COUNTS; None for that of the raster.
    option
        The option that names it, where a plan may be told its type.
    made_by
        What computes it first, if the store lacks it and nobody gave it another name.
    """

    layer: str
    dtype: str | None = None
    option: str = ""
    made_by: MadeBy | None = None


def made_by(command: str, **options: Any) -> MadeBy:
    """The command that makes a layer, and options of its tool."""
    return MadeBy(command, options)


@dataclass(frozen=True)
class Option:
    """What is declared of an option in addition to its name, type and default.

    Attributes
    ----------
    help
        One text for the command, for Python and for QGIS.
    python
        What Python says instead, where it takes another form than the command.
    metavar
        What the command's help calls the value.
    layer
        Whether it names a layer to read, or one to write.
    file
        The kind of a file to write.
    form
        How the command gives what Python takes as `PlacesLike`, or as a number or the name of a
        layer: a key of `cli.forms.FORMS`.
    argument
        Whether the command takes it without its name.
    choices
        What the command accepts, where that is not a `Literal`.
    check
        Returns the value to use, or raises an `InputError`; found by the type if None.
    of_arrays
        Whether only Python has it, for arrays in place of a store.
    formerly
        A name that it had, which still works: in Python, in the command and in QGIS.
    """

    help: str
    metavar: str | None = None
    layer: Literal["read", "write"] | None = None
    file: FileKind | None = None
    form: str | None = None
    argument: bool = False
    choices: tuple[str, ...] = ()
    check: Check | None = None
    python: str | None = None
    of_arrays: bool = False
    formerly: str | None = None


def option(
    *,
    default: Any = MISSING,
    help: str,
    metavar: str | None = None,
    argument: bool = False,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    form: str | None = None,
    python: str | None = None,
) -> Any:
    """An option of a tool."""
    how: Settings = {"choices": choices, "check": check, "form": form, "python": python}
    declared = Option(help, metavar, argument=argument, **how)
    return field(default=default, metadata={"option": declared})


def places(*, default: Any = MISSING, form: str, help: str, python: str) -> Any:
    """An option that names places, cells or features."""
    return field(default=default, metadata={"option": Option(help, form=form, python=python)})


def of_arrays(*, default: Any, check: Check, help: str) -> Any:
    """An option that only Python has, for arrays in place of a store."""
    declared = Option(help, check=check, of_arrays=True)
    return field(default=default, metadata={"option": declared})


def reads(
    *,
    default: str | None,
    help: str,
    form: str | None = None,
    python: str | None = None,
    formerly: str | None = None,
) -> Any:
    """An option that names a layer to read."""
    declared = Option(help, "NAME", "read", form=form, python=python, formerly=formerly)
    return field(default=default, metadata={"option": declared})


def writes(*, default: str | None, help: str, python: str | None = None) -> Any:
    """An option that names a layer to write."""
    declared = Option(help, "NAME", "write", python=python)
    return field(default=default, metadata={"option": declared})


def file(
    *,
    default: None,
    kind: FileKind,
    help: str,
    metavar: str = "FILE",
    form: str | None = None,
    python: str | None = None,
) -> Any:
    """An option that names a file to write besides layers."""
    declared = Option(help, metavar, file=kind, form=form, python=python)
    return field(default=default, metadata={"option": declared})


def drawing(*, layer: str, metavar: str) -> Any:
    """The vector file that a tool writes instead of layers.

    Parameters
    ----------
    layer
        Its layer in a GeoPackage.
    """
    text = (
        f'A .gpkg (layer "{layer}"), .parquet or .fgb file, in the CRS of the raster; or a '
        ".geojson or .json file, in longitude and latitude; see `write_paths`. None for a "
        "temporary file, which `to_geodataframe` of the result reads."
    )
    declared = Option(text, metavar, file="features", argument=True)
    return field(default=None, metadata={"option": declared})


@dataclass_transform(
    frozen_default=True, field_specifiers=(option, reads, writes, file, drawing, places, of_arrays)
)
def tool(cls: type[Any]) -> type[Any]:
    """Declare a class as a tool."""
    if taken := vars(cls)["__annotations__"].keys() & Tool.__annotations__.keys():
        raise TypeError(f"{cls.__name__}: tools declare {', '.join(taken)}; rename the option")
    return dataclass(frozen=True)(cls)


class Tool:
    """What a tool declares in addition to its options.

    Attributes
    ----------
    command, function, accessor
        Names: of the command, of the Python function, and of the method of DataArrays.
    positional
        Options that Python takes by position, though they can be left out.
    group
        Where the list of commands and QGIS show it.
    short
        What the list of commands says of it: a few words.
    title
        Its title in QGIS, if that is not the name of the command.
    examples
        Command lines.
    operation
        How it is computed, as module:name in its package: a `ToolOperation`, or a function that
        makes an `Operation` of an open store, None for a plan, and the tool.
    planner
        A function of the tool, blocks, types of the inputs and the machine, as module:name, which
        plans what its operation cannot plan without a store.
    gpu
        Whether it can run on one GPU, or on several, also on those of workers; or the steps that
        make what it reads can, on several.
    runs
        A function of the tool, a store or its path, and how to run, as module:name in its package,
        which runs a tool that makes no layers, or files alone; empty for others.
    how
        Of such a tool: which parameters say how to run.
    kept
        Of one that writes files: what an interrupted run keeps.
    first
        Name of the first parameter of the function.
    arrays
        A function of the tool, a 2-D array and how to run, as module:name in its package, which
        computes over an array in place of a store; none if empty.
    program
        Whether the command is a program of its own, too.
    result
        Name of the type of its result.
    mark
        A setting that only layers of this tool record; none if it writes no layers.
    replaces
        A setting of all layers that its results may replace, if that is not `mark`.
    proof
        The function that proves a stored layer, as module:name in its package; none if empty.
    proven
        What `verify` says of the findings of that function.
    rules
        Refuse options that do not go together.
    refuses
        A function of the tool and a store, as module:name in its package: refuses what cannot be,
        before layers that it needs are computed.
    provides
        A function of the tool, a store, how to run, `prerequisites.Show` and how a user runs the
        tool, None where another tool needs it, as module:name in its package. It computes layers
        that it needs and that depend on what the store has; it returns the seconds of each.
    needs
        The commands that make layers which it reads, see `InputLayer`.
    modules
        Modules of the package that workers import before they start.
    style
        Style of the raster in QGIS.
    """

    command: ClassVar[str]
    function: ClassVar[str]
    accessor: ClassVar[str | None] = None
    positional: ClassVar[tuple[str, ...]] = ()
    group: ClassVar[str]
    short: ClassVar[str]
    title: ClassVar[str | None] = None
    examples: ClassVar[str] = ""
    operation: ClassVar[str]
    planner: ClassVar[str] = ""
    gpu: ClassVar[Literal["one", "several", "steps before"] | None] = None
    runs: ClassVar[str] = ""
    how: ClassVar[tuple[str, ...]] = ()
    kept: ClassVar[str] = ""
    first: ClassVar[str] = "store"
    arrays: ClassVar[str] = ""
    program: ClassVar[bool] = False
    result: ClassVar[str] = "Result"
    mark: ClassVar[str] = ""
    replaces: ClassVar[str] = ""
    proof: ClassVar[str] = ""
    rules: ClassVar[tuple[Rule, ...]] = ()
    refuses: ClassVar[str] = ""
    provides: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]] = ()
    style: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for name, one in options_of(type(self)).items():
            value = getattr(self, name)
            if value is not None or one.default is not None:
                object.__setattr__(self, name, one.check(name, value))
        for rule in self.rules:
            rule(vars(self))

    def inputs(self) -> tuple[InputLayer, ...]:
        """The layers that it reads."""
        raise NotImplementedError

    @classmethod
    def planned(cls, asked: Settings) -> Self:
        """The tool that `plan` plans: layers that are only said to be written have usual names."""
        given = {name: asked.get(name) for name in options_of(cls)}
        if (file := drawn(cls)) is not None:
            given[file] = f"{cls.command}.gpkg"
        named = {k for k, one in options_of(cls).items() if one.option.layer or one.option.file}
        return cls(**{k: k if v is True and k in named else v for k, v in given.items() if v})

    @staticmethod
    def summary(result: Any) -> str:
        """What the command says of its result."""
        layers, report = result.layers, result.report
        ranges = [
            f", {name} {layer.value_range}" if len(layers) > 1 else f", {layer.value_range}"
            for name, layer in layers.items()
            if layer.value_range
        ]
        return f"{report.valid_cells:,} of {report.cells:,} cells valid{''.join(ranges)}"

    @staticmethod
    def refuse_output(output: str | None) -> None:
        """Refuse a file for the raster of the first layer that cannot hold it."""
        return  # most can be any raster

    @staticmethod
    def refuse_file(name: str, file: PathLike, *, overwrite: bool) -> None:
        """Refuse, of a tool with `runs`, a file that cannot be written."""
        raise NotImplementedError

    @staticmethod
    def contents(result: object) -> dict[str, str]:
        """What files hold, by their options, in a few words."""
        return {}

    @staticmethod
    def proven(found: Findings) -> str:
        """What `verify` says of a proof."""
        return counted(found["cells"], "cell with a value")

    @classmethod
    def load(cls, name: str) -> Any:
        """Import what is at module:name in the package of the tool."""
        module, attribute = name.split(":")
        return getattr(import_module(module, cls.__module__), attribute)


@dataclass(frozen=True)
class ToolOption:
    """An option with what follows from its declaration."""

    name: str
    type: Any
    default: Any
    option: Option
    check: Check

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values of a `Literal`; none of other types."""
        return get_args(self.type) if get_origin(self.type) is Literal else self.option.choices

    @property
    def required(self) -> bool:
        return self.default is MISSING


def options_of(cls: type[Tool]) -> dict[str, ToolOption]:
    """The options of a tool, by name."""
    if "_options" not in vars(cls):
        types = inspect.get_annotations(cls, eval_str=True)
        cls._options = {  # type: ignore[attr-defined]
            one.name: _parameter(one, _not_none(types[one.name]))
            for one in fields(cls)  # type: ignore[arg-type]
        }
    found: dict[str, ToolOption] = vars(cls)["_options"]
    return found


def drawn(cls: type[Tool]) -> str | None:
    """The option that is the file a tool writes instead of layers, if it does."""
    options = options_of(cls).items()
    return next((name for name, one in options if one.option.file == "features"), None)


def only_stores(cls: type[Tool]) -> bool:
    """Whether no raster can stand in place of a store, because there is no result to write."""
    declared = [one.option for one in options_of(cls).values()]
    return bool(cls.runs) and not any(one.file or one.layer == "write" for one in declared)


def _not_none(kind: Any) -> Any:
    """The type of the values of an option that may be None."""
    if get_origin(kind) not in (UnionType, Union):  # the latter of a `Literal`
        return kind
    return reduce(or_, (one for one in get_args(kind) if one is not type(None)))


_CHECKS: dict[Any, Check] = {
    str: arguments.text,
    bool: arguments.flag,
    int: arguments.whole,
    float: arguments.real,
    PathLike: arguments.path,
    PlacesLike: lambda name, value: value,
    PlacesLike | str: lambda name, value: value,
}


def _parameter(one: Field[Any], kind: Any) -> ToolOption:
    declared: Option = one.metadata["option"]
    check = declared.check or (
        arguments.word(kind) if get_origin(kind) is Literal else _CHECKS[kind]
    )
    return ToolOption(one.name, kind, one.default, declared, check)


def loaded(name: str) -> Any:
    """Import what is at module:name of the package."""
    module, attribute = name.split(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def late_rule(name: str) -> Rule:
    """A rule at module:name of the package, which is imported when it is asked."""

    def rule(settings: Settings) -> None:
        loaded(name)(settings)

    return rule


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """A text with the names of options in braces spelled by a function."""
    return re.sub(r"\{(\w+)\}", lambda found: spell(found[1]), text)


def as_option(name: str) -> str:
    """The name of an option in the command."""
    return f"--{name.replace('_', '-')}"


SECTIONS = "Returns", "Raises", "Notes", "Examples"


def described(cls: type[Tool]) -> dict[str, str]:
    """The docstring by sections, the description under ""."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(cls.__doc__ or ""), flags=re.MULTILINE)
    found = {"": parts[0].strip()}
    found |= {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    if unknown := found.keys() - {"", *SECTIONS}:
        raise TypeError(f"{cls.__name__}: sections {', '.join(unknown)} are not of a tool")
    return found
