"""Arguments of public functions: the known words, and checks by the argument's name.

A wrong argument raises an `ArgumentError` that names it, the value and the remedy, before any work.
Commands take their choices from the same words.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, get_args, runtime_checkable

import numpy as np

from .cells import layer_dtype
from .errors import ArgumentError, InputError, plain
from .facts import Settings
from .similar import did_you_mean

Backend = Literal["auto", "cpu", "cuda"]
Connectivity = Literal[8, 4]
PathConnectivity = Literal[8, 4, 16]
PathMetric = Literal["steps", "continuous"]
Devices = int | Sequence[int] | Literal["all"]
"""The number of a GPU, numbers of several, or all."""
CostName = Literal["absdiff", "friction", "surface", "tobler", "langmuir", "minimax"]
NetworkPairs = Literal["mst", "delaunay", "all"]
IndexTile = Literal[16, 32, 64, 128]
IndexMethod = Literal["relax", "relax-array", "tournament"]
PathMethod = Literal["relax", "index", "dijkstra", "relax-array", "tournament"]
Wrap = Literal["auto", "yes", "no"]
"""Whether the last column of a raster meets the first one."""

TreeMethod = Literal["frozen", "contract"]
TreeWeight = Literal["max", "absdiff", "flow"]
FlatsMethod = Literal["tree", "gradient"]
DepressionsMethod = Literal["carve", "fill", "breach"]
FlowMethod = Literal["d8", "dinf", "mfd", "quinn"]
HandMethod = Literal["d8", "dinf"]
StreamOrder = Literal["strahler", "shreve", "horton", "hack", "topological", "link"]
UpstreamStatistic = Literal["sum", "mean", "max", "min", "below"]
LayerCompression = Literal["none", "auto", "blosc-lz4", "blosc-zstd", "zstd"]
Resampling = Literal["average", "nearest", "min", "max", "mode"]
FileCompression = Literal["none", "deflate", "lzw", "zstd"]
Settling = Literal["error", "skip", "snap"]
RoundedType = Literal["int16", "uint16", "int32"]
FlowEncoding = Literal["esri", "grass", "taudem", "whitebox", "saga", "ldd", "nextxy",
                       "esri-backlink", "esri-degrees", "r.cost"]  # fmt: skip
FloatType = Literal["float64", "float32"]
PathReduction = Literal["sum", "max"]
RankMethod = Literal["auto", "sequential", "wyllie", "splitters", "recursive", "hybrid"]

MOST_THREADS = MOST_DEVICES = 1024

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[str, Any], Any]
"""Takes the name and the value of an argument, and returns the value to use.

The name is that of a parameter, or a text with this in braces: "{max_cost} of 3".
"""


Rule = Callable[[Settings], None]
"""Refuses arguments that contradict each other; it gets all of them by name."""


Defaults = dict[str, Any]

DEFAULTS: Defaults = {}
"""Values of parameters that a call leaves out, see `defaults.set_options`.

They are replaced as a whole, never changed: calls of other threads may be reading them.
"""

_FILLED: ContextVar[frozenset[str] | None] = ContextVar("filled in with defaults", default=None)
"""Parameters of the public function that is running which have the values of `set_options`."""


@contextmanager
def complete(call: inspect.BoundArguments) -> Iterator[inspect.BoundArguments]:
    """Fill in a call as `with_defaults`; functions that it calls get explicit arguments only."""
    outer, explicit = _FILLED.get(), set(call.arguments)
    with_defaults(call)
    token = _FILLED.set(frozenset(DEFAULTS.keys() - explicit) if outer is None else outer)
    try:
        yield call
    finally:
        _FILLED.reset(token)


def is_demanded(name: str) -> bool:
    """Whether the call that is running has this argument, and not a default of `set_options`."""
    return name not in (_FILLED.get() or ())


def with_defaults(call: inspect.BoundArguments) -> inspect.BoundArguments:
    """Fill in the arguments that a `Cost` stands for, and those that `set_options` has set."""
    cost: Any = call.arguments.get("cost")
    if hasattr(type(cost), "fill_in"):
        cost.fill_in(call)
    explicit = set(call.arguments)
    for name, value in (DEFAULTS if _FILLED.get() is None else {}).items():
        if name in call.signature.parameters and name not in call.arguments:
            call.arguments[name] = value
    if "client" not in explicit and not _has_store(call):
        call.arguments.pop("client", None)  # workers need a store
    if "threads" not in explicit and call.arguments.get("client") is not None:
        call.arguments.pop("threads", None)  # workers have their own
    return call


def _has_store(call: inspect.BoundArguments) -> bool:
    """Whether the first argument of a call is a store, not a raster or an array in place of one."""
    first = next(iter(call.signature.parameters))
    value = call.arguments.get(first)
    is_store = isinstance(value, str | os.PathLike) or hasattr(value, "layers")
    return first not in ("store", "data") or (is_store and not is_raster(value))


def checked(*rules: Rule, **special: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function by their names: with `special`, else with `_CHECKS`.

    None is accepted where it is the default. Then the rules.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        checks = {name: check for name, check in {**_CHECKS, **special}.items()
                  if name in signature.parameters}  # fmt: skip
        usual = {name: one.default for name, one in signature.parameters.items()}

        def check(settings: Settings) -> None:
            """Check numbers, words with checks of this function, and rules, before other work."""
            for name, value in settings.items():
                number = isinstance(value, int | float) and not isinstance(value, bool)
                checkable = (number and name in checks) or (
                    isinstance(value, str) and name in special
                )
                if checkable and name in checks:
                    checks[name](name, value)
            for rule in rules:
                rule({**usual, **settings})

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with complete(bind(signature, args, kwargs)) as bound:
                both = [bound.arguments.get(name) for name in ("client", "threads")]
                if all(one is not None for one in both):
                    remedy = "None with a client, whose workers have their own"
                    raise wrong("threads", both[1], remedy)
                for name, value in bound.arguments.items():
                    free = value is None and signature.parameters[name].default is None
                    if name in checks and not free:
                        bound.arguments[name] = checks[name](name, value)
                for rule in rules:
                    rule({**usual, **bound.arguments})
                return function(*bound.args, **bound.kwargs)

        call.check, call.checks = check, checks  # type: ignore[attr-defined]
        return call

    return decorate


def bind(
    signature: inspect.Signature, args: Any, kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The arguments of a call.

    Raises
    ------
    TypeError
        If they do not fit; of a mistyped name with the one that was meant.
    """
    free = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    for name in () if free else kwargs.keys() - signature.parameters.keys():
        if like := did_you_mean(name, signature.parameters):
            raise TypeError(f"got an unexpected keyword argument {name!r}{like}")
    return signature.bind(*args, **kwargs)


def described(value: object) -> str:
    """A value for a message: short, on one line, with its type where that is not clear."""
    if isinstance(value, str | bytes | int | float | np.generic | None):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, list | tuple) and len(text := str(value)) <= 60 and "(" not in text[1:]:
        return " ".join(text.split())
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    return f"of type {kind.__name__ if module == 'builtins' else f'{module}.{kind.__name__}'}"


def refused(name: str, text: str, **values: object) -> ArgumentError:
    """The error about an argument: its name, and after it a text with values in braces."""
    (filled,) = ArgumentError(text, **values).args  # an argument may be called as a value is here
    return ArgumentError(field(name) + filled)


def field(name: str) -> str:
    """The name of an argument in braces, for the text of an error; see `Check`."""
    return name if "{" in name else f"{{{name}}}"


def wrong(name: str, value: object, remedy: str) -> ArgumentError:
    """The error for a wrong value."""
    return refused(name, " {value}: give {remedy}", value=described(value), remedy=remedy)


def _one_of(name: str, key: object) -> str:
    """The name of one value of a dict, for checks."""
    return f"{{{name}}} of {plain(key)}"


def at_least_one(*names: str) -> Rule:
    """Reject a call without any of these arguments."""

    def rule(settings: Settings) -> None:
        if not _given(names, settings):
            raise ArgumentError(f"give at least one of {_listed(names)}")

    return rule


def exactly_one(*names: str) -> Rule:
    """Reject a call without any of these arguments, or with several."""

    def rule(settings: Settings) -> None:
        present = _given(names, settings)
        if not present:
            raise ArgumentError(f"give one of {_listed(names)}")
        if len(present) > 1:
            raise ArgumentError(f"{_listed(present)} exclude each other: leave out all but one")

    return rule


def _given(names: Iterable[str], settings: Settings) -> list[str]:
    """Which of these arguments are given; a flag that is off is not."""
    return [name for name in names if settings[name] is not None and settings[name] is not False]


def _listed(names: Sequence[str]) -> str:
    *most, last = (f"{{{name}}}" for name in names)
    return f"{', '.join(most)} and {last}"


# -- numbers and words -----------------------------------------------------------------------------


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """A whole number in a range; neither bool nor float counts as one."""
    low = "" if least is None else f" from {least} {'on' if most is None else f'to {most}'}"
    good = isinstance(value, Integral) and not isinstance(value, bool)
    if good and (least is None or value >= least) and (most is None or value <= most):
        return int(value)
    raise wrong(name, value, f"a whole number{low}")


def counting(name: str, value: object) -> int:
    """A whole number from 1 on."""
    return whole(name, value, 1)


def levels_above(name: str, value: object) -> int:
    """A number of further levels, 0 to 9."""
    return whole(name, value, 0, 9)


def cells_away(name: str, value: object) -> int:
    """A distance of 1 to 10,000 cells."""
    return whole(name, value, 1, 10_000)


def real(name: str, value: object) -> float | int:
    """A Python number; whole numbers stay exact."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            float(value)
        except OverflowError:
            pass
        else:
            return int(value) if isinstance(value, Integral) else float(value)
    raise wrong(name, value, "a number")


def real_or_word(one: str) -> Check:
    """A finite number, or this word."""

    def check(name: str, value: object) -> float | str:
        if isinstance(value, str) and value.lower() == one:
            return one
        if isinstance(value, str) or not math.isfinite(number := real(name, value)):
            raise wrong(name, value, f"a finite number, or {one!r}")
        return number

    return check


def cell_type(name: str, value: object) -> str:
    """The name of a type that cells of layers may have."""
    try:
        return layer_dtype(text(name, value)).name
    except ArgumentError:
        raise
    except InputError as error:
        raise refused(name, ": {error}", error=error) from None


def not_negative(name: str, value: object) -> float:
    """A finite number of at least 0."""
    if not 0 <= (number := real(name, value)) < math.inf:
        raise refused(name, " {value} is not a finite number of at least 0", value=value)
    return float(number)


def positive(name: str, value: object) -> float:
    """A finite number above 0."""
    if not 0 < (number := real(name, value)) < math.inf:
        raise refused(name, " {value} is not a finite number above 0", value=value)
    return float(number)


def height(name: str, value: object) -> float | int:
    """A finite height above 0."""
    if not 0 < (number := real(name, value)) < math.inf:
        raise refused(name, " {value}: give a height above 0", value=value)
    return number


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise wrong(name, value, "True or False")
    return bool(value)


def text(name: str, value: object) -> str:
    """A word."""
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


def word(literal: Any) -> Check:
    """One of the values of a `Literal`."""
    return one_of(get_args(literal))


def one_of(values: Collection[Any]) -> Check:
    """One of these words, such as the names in a table, or one of these numbers."""

    def check(name: str, value: object) -> Any:
        words = tuple(values)
        for one in words:
            if isinstance(value, str | Integral) and type(value) is not bool and value == one:
                return one
        if isinstance(words[0], int):
            use, text = " or ".join(map(str, words)), " {value} is not {use}"
        else:
            use = f"one of {', '.join(words)}" if len(words) > 2 else " or ".join(words)
            text = " {value} is not known; use {use}"
        like = did_you_mean(value, words)
        raise refused(name, f"{text}{{like}}", value=described(value), use=use, like=like)

    return check


def numbers(name: str, value: Any, count: int, expected: str) -> tuple[float, ...]:
    """A given count of numbers."""
    try:
        result = tuple(real(name, one) for one in value)
    except (TypeError, InputError):
        result = ()
    if len(result) != count:
        shown = str(value) if isinstance(value, tuple | list | np.ndarray) else described(value)
        raise refused(
            name, " {value}: give {what}", value=" ".join(shown.split())[:80], what=expected
        )
    return result


def _cell_size(name: str, value: object) -> tuple[float, ...]:
    # One number means square cells.
    pair = (value, value) if isinstance(value, Real) else value
    expected = "two positive numbers, or one for square cells"
    sizes = numbers(name, pair, 2, expected)
    if not all(0 < one < math.inf for one in sizes):
        raise refused(name, " {value} is not {what}", value=value, what=expected)
    return sizes


def _bounds(name: str, value: object) -> tuple[float, ...]:
    return numbers(name, value, 4, "four numbers: west, south, east, north")


def _parameters(name: str, value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise wrong(name, value, 'a dict, such as {"lam": 0.5}')
    return {text(name, key): real(_one_of(name, repr(key)), one) for key, one in value.items()}


def _max_cost(name: str, value: object) -> float | int:
    if math.isnan(cost := real(name, value)):
        raise refused(name, " {value} is not a number of at least 0", value=value)
    return cost


def limits_of_costs(name: str, value: object) -> Any:
    """The largest cost, or one for each source by id."""
    if not isinstance(value, Mapping):
        return _max_cost(name, value)
    return {counting(f"{{{name}}} of", key): _max_cost(_one_of(name, key), most)
            for key, most in value.items()}  # fmt: skip


def _client(name: str, value: object) -> Any:
    if getattr(value, "asynchronous", True) or not hasattr(value, "scheduler_info"):
        raise wrong(name, value, "a distributed.Client that is not asynchronous")
    return value


def _progress(name: str, value: object) -> Any:
    if value is None:
        from .progress import silent

        return silent
    if isinstance(value, str) and value == "auto":
        from .progress import Bar

        return Bar()
    if not callable(value):
        raise wrong(name, value, 'a function of the cells just done and those in all, or "auto"')
    return value


# -- sizes -----------------------------------------------------------------------------------------

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(text: str) -> int:
    """Bytes of "512MB", "2 GiB", "1e9".

    Raises
    ------
    InputError
        when the text is not a size.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _UNITS:
        raise InputError(f"{text!r} is not a size; write for example 512MB, 2GB or 1.5GiB")
    size = float(match[1]) * _UNITS[match[2].upper()]
    if not 1 <= size < 2**63:
        raise InputError(f"{text!r} is not a positive size of less than 2**63 bytes")
    return int(size)


def memory(name: str, value: object) -> int:
    """Bytes: a number, or a text as given on the command line."""
    if isinstance(value, str):
        try:
            return parse_size(value)
        except InputError as error:
            raise refused(name, " {error}", error=error) from None
    remedy = 'a positive number of bytes, or a size such as "2GB"'
    size = real(name, value) if isinstance(value, Real) else None
    if size is None or isinstance(value, bool) or not 1 <= size < 2**63 or size % 1:
        raise wrong(name, value, remedy)
    return int(size)


AMOUNT = "a number of cells such as 1000, or an area such as 5km2, 300ha or 90000m2"


def is_area(value: object) -> bool:
    """Whether an amount of what drains is an area, see `parse_amount`."""
    return parse_amount("amount", value)[1] is not None


def parse_amount(name: str, value: Any) -> tuple[int | float, str | None]:
    """The number of an amount of what drains, and the unit of an area; None for cells.

    An amount is a number of cells, or a text: "1000", "1000 cells", "5km2", "300ha", "90000m2".
    """
    number, unit = value, "cells"
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        match = re.fullmatch(
            r"\s*([-+]?[0-9]+\.?[0-9]*(?:e\+?[0-9]+)?)\s*(cells?|m2|ha|km2)?\s*", str(value), re.I
        )
        if match is None:
            raise wrong(name, value, AMOUNT)
        unit = (match[2] or "cells").lower()
        number = int(match[1]) if re.fullmatch("[-+]?[0-9]+", match[1]) else float(match[1])
    if not 0 < number < math.inf:
        raise refused(name, " {given}: must be positive and finite", given=described(value))
    return number, None if unit.startswith("cell") else unit


def amount(name: str, value: object) -> Any:
    """A number of cells, or an area as text, see `parse_amount`."""
    parse_amount(name, value)
    return value


# -- files, stores and arrays ----------------------------------------------------------------------


LABELLED = "xarray.DataArray(array, dims=('y', 'x'))"
"""How to make a DataArray of a numpy array."""


def path(name: str, value: object) -> str | os.PathLike[str]:
    """The name of a file or folder."""
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise wrong(name, value, "a path")
    if not os.fspath(value) or "\0" in os.fspath(value):
        raise refused(name, " {value} is not the name of a file", value=repr(os.fspath(value)))
    return value


def _vertical_factor(name: str, value: object) -> Any:
    """A text file, or pairs of an angle and a factor."""
    if isinstance(value, str | os.PathLike):
        return path(name, value)
    remedy = "a text file, or pairs of an angle in degrees and its factor"
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong(name, value, remedy)
    try:
        return [(float(angle), float(factor)) for angle, factor in value]
    except (TypeError, ValueError, OverflowError):
        raise wrong(name, value, remedy) from None


def store(name: str, value: object) -> Any:
    """A store, or its path; an open store also serves as a path."""
    if not isinstance(value, str | os.PathLike):
        raise wrong(name, value, f"a store or its path{_made_of(value)}")
    return path(name, value)


def _made_of(value: object) -> str:
    """How to make a store of an array, for a message; "" of anything else."""
    plain = isinstance(value, np.ndarray) or _on_device(value)
    array = "array" if is_dataarray(value) else LABELLED if plain else variable_of(value)
    return f"; convert_dataset({array}, 'dem.zarr') makes one" if array else ""


def raster_or_store(name: str, value: object) -> Any:
    """A 2-D array of numbers or nested lists; or a store, or its path."""
    if isinstance(value, np.ndarray | list | tuple) or _on_device(value):
        return raster(name, value)
    try:
        return store(name, value)
    except InputError:
        raise _no_array(name, value, ", a store or its path") from None


def raster(name: str, value: object) -> np.ndarray:
    """A 2-D array of numbers, or nested lists; arrays on a GPU are copied from it."""
    from .cells import layer_dtype, refuse_masked

    value = from_device(value)
    if not isinstance(value, np.ndarray | list | tuple):
        raise _no_array(name, value, "")
    if isinstance(value, np.ndarray):
        refuse_masked(value, name)
    try:
        cells = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise refused(name, ": rows of different lengths are not a raster") from None
    if cells.ndim != 2 or not cells.size:
        text = ": an array of shape {shape} is not a raster; give two dimensions"
        raise refused(name, text, shape=cells.shape)
    if cells.dtype != bool:
        try:
            layer_dtype(cells.dtype)
        except InputError as error:
            raise refused(name, ": {error}", error=error) from None
    return cells


@runtime_checkable
class HasDeviceMemory(Protocol):
    """An array on a GPU, such as one of CuPy."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


def _on_device(value: object) -> bool:
    try:
        return isinstance(value, HasDeviceMemory)
    except RuntimeError:  # PyTorch's, of a tensor that needs gradients
        return False


def from_device(value: object) -> Any:
    """An array on a GPU as one of numpy, which is a copy; other values as they are."""
    if not _on_device(value):
        return value
    for name in ("get", "copy_to_host", "cpu"):  # of CuPy, numba and PyTorch
        if callable(copy := getattr(value, name, None)):
            return np.asarray(copy())
    return value


def _no_array(name: str, value: object, alternative: str) -> ArgumentError:
    if hasattr(type(value), "__geo_interface__"):
        return wrong(name, value, "cells; rasterize converts features to cells")
    arrays = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")
    if any(hasattr(type(value), one) for one in arrays) and not isinstance(value, np.generic):
        # Its nodata value, cell size and position would be lost silently.
        return wrong(
            name, value, f"its numpy array (.to_numpy() or .get()){alternative}, and nodata="
        )
    return wrong(name, value, f"a numpy array{alternative}")


def array(name: str, value: object) -> Any:
    """An array of numbers, or lists; arrays on a GPU stay there."""
    if hasattr(value, "__cuda_array_interface__"):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise refused(name, " is a masked array; give .filled(value)")
    try:
        result = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise wrong(name, value, "an array of numbers") from None
    if not result.ndim or result.dtype.kind not in "biuf":
        raise wrong(name, value, "an array of numbers")
    return result


def raster_or_layer(name: str, value: object) -> Any:
    """The name of a layer, or an array."""
    if is_dataarray(value):
        array = "the name of a layer; together with an array, its numpy array (.to_numpy())"
        raise wrong(name, value, array)
    return value if isinstance(value, str) else raster(name, value)


def is_dataarray(value: object) -> bool:
    """Whether it is an `xarray.DataArray`; does not import xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


def variable_of(value: object) -> str:
    """How to get a DataArray from an `xarray.Dataset`; "" of anything else."""
    xarray = sys.modules.get("xarray")
    if xarray is None or not isinstance(value, xarray.Dataset):
        return ""
    return f"dataset[{next(iter(value.data_vars), 'name')!r}]"


def is_raster(value: object) -> bool:
    """Whether it is the path of a raster, as GDAL has it, and not that of a store."""
    if not isinstance(value, str | os.PathLike):
        return False
    named = os.fspath(value)
    remote = isinstance(named, str) and named.startswith(("/vsi", "http://", "https://"))
    return remote or os.path.isfile(named)


def _inputs(name: str, value: object) -> list[Any]:
    if is_dataarray(value) or hasattr(value, "read_window"):
        return [value]
    if isinstance(value, str | os.PathLike):
        return [os.fspath(path(name, value))]
    if variable := variable_of(value):
        raise wrong(name, value, f"one of its variables, such as {variable}")
    remedy = f"the path of a raster, or several, or a DataArray, such as {LABELLED}"
    if isinstance(value, bytes | np.ndarray | Mapping) or not isinstance(value, Iterable):
        raise wrong(name, value, remedy)
    try:
        paths = [os.fspath(path(name, one)) for one in value]
    except TypeError:  # such as a 0-d DataArray, which claims to be iterable
        raise wrong(name, value, remedy) from None
    if not paths:
        raise refused(name, " is empty; give {remedy}", remedy=remedy)
    return paths


def names(name: str, value: object) -> list[str]:
    """Names of layers."""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return list(value)
    raise wrong(name, value, "a list of names of layers")


def _crs(name: str, value: object) -> str:
    return text(name, value.to_wkt() if hasattr(value, "to_wkt") else value)


def _threads(name: str, value: object) -> int:
    return whole(name, value, 1, MOST_THREADS)


def devices(name: str, value: Any) -> Any:
    """The number of a GPU, a sequence of several, or "all"."""
    if isinstance(value, str | Integral):
        return value if value == "all" else device(name, value)
    try:
        numbers_of_gpus = tuple(device(name, one) for one in value)
    except TypeError:
        numbers_of_gpus = ()
    if not numbers_of_gpus or len(set(numbers_of_gpus)) < len(numbers_of_gpus):
        raise wrong(name, value, "the number of a GPU, numbers of different ones, or 'all'")
    return numbers_of_gpus


def device(name: str, value: object) -> int:
    """The number of a GPU."""
    return whole(name, value, 0, MOST_DEVICES - 1)


_CHECKS: dict[str, Check] = {
    "all_touched": flag,
    "allocation": flag,
    "backend": word(Backend),
    "backlink": flag,
    "base": real,
    "band": counting,
    "block_size": counting,
    "bounds": _bounds,
    "build_index": flag,
    "cell_size": _cell_size,
    "clamp_min": real,
    "client": _client,
    "cog": flag,
    "compress": word(LayerCompression),
    "cost_field": text,
    "connectivity": word(Connectivity),
    "corner_cutting": flag,
    "crs": _crs,
    "cumulative": flag,
    "depressions": word(DepressionsMethod),
    "device": device,
    "fields": flag,
    "filled": text,
    "flats": word(FlatsMethod),
    "gpu_memory_limit": memory,
    "id_field": text,
    "inner_voids": flag,
    "inputs": _inputs,
    "interval": positive,
    "into": text,
    "layer": text,
    "lines": path,
    "max_cost": _max_cost,
    "max_slope": not_negative,
    "memory_limit": memory,
    "nodata": real,
    "outside": word(Settling),
    "overwrite": flag,
    "parameters": _parameters,
    "path": path,
    "polygons": flag,
    "progress": _progress,
    "resampling": word(Resampling),
    "resume": flag,
    "reverse": flag,
    "round_cells": flag,
    "source_edge": flag,
    "stop_at_targets": flag,
    "store": store,
    "table": path,
    "threads": _threads,
    "verify": flag,
    "vertical_factor": _vertical_factor,
    "weights": text,
}


def check(name: str, value: object) -> Any:
    """Check the value of a parameter that has the same meaning in all functions; return it."""
    return _CHECKS[name](name, value)
