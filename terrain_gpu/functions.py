"""The public functions of tools: flat signatures, documented from the declarations."""

from __future__ import annotations

import inspect
import logging
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np

from .arguments import check, checked, devices, raster_or_store, store
from .errors import ArgumentError
from .io.labelled import opened_store, takes_dataarrays
from .prerequisites import provide
from .progress import silent
from .running import compute
from .tool import Tool, described, drawn, only_stores, options_of, spelled
from .tools import FUNCTIONS, tool_of

log = logging.getLogger(__name__)

WIDTH = 96
"""Width of lines of documentation, with the indent that the stub adds."""


class _Documented(NamedTuple):
    type: str
    default: Any
    help: str


ONLY_STORE = "A store, or its path."
STORE = "A store or a raster (a path), or a DataArray."
STORE_OR_ARRAY = "A store or a raster (a path), a DataArray, or a 2-D array (or nested lists)."
PROVIDED = "Layers that the function needs and the store lacks are computed first."

RUN = {
    "memory_limit": _Documented(
        "int | str | None",
        None,
        'Limit on the peak resident set of the process: bytes, or a size such as "2GB"; a quarter '
        "of RAM when None.",
    ),
    "threads": _Documented("int | None", None, "Number of threads; all processors when None."),
    "backend": _Documented(
        "Backend",
        "auto",
        '"cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results '
        "have the same bits.",
    ),
    "device": _Documented("int", 0, "Number of the GPU."),
    "gpu_memory_limit": _Documented(
        "int | str | None",
        None,
        "Limit on the GPU memory; nine tenths of the free memory when None.",
    ),
    "client": _Documented(
        "Any",
        None,
        "A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None "
        "for this process.",
    ),
    "verify": _Documented("bool", False, "Verify the result in another pass over the cells."),
    "compress": _Documented(
        "LayerCompression | None",
        None,
        "Compression of the layers, as for `convert_dataset`; none when None.",
    ),
    "resume": _Documented("bool", False, "Continue an unfinished run."),
    "overwrite": _Documented(
        "bool", False, "Replace an existing result once the new one is complete."
    ),
    "progress": _Documented(
        'Progress | Literal["auto"]',
        silent,
        'Called with the cells just done and all cells; "auto" for a tqdm bar.',
    ),
}
"""Parameters of every function that makes layers."""

ON_GPUS = {
    "backend": _Documented(
        "Backend",
        "auto",
        '"cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.',
    ),
    "device": _Documented(
        "Devices",
        0,
        'Number of the GPU; or numbers of several, or "all", which divide the raster among them.',
    ),
    "client": RUN["client"]._replace(
        help="A ``distributed.Client`` whose workers solve the blocks of a store, each within "
        "`memory_limit`. None for this process. Each computes on the first GPU that it sees if "
        '`backend` is "cuda", or if it is "auto" and all workers announce the resource GPU; '
        "`device` is ignored."
    ),
}
"""Parameters of functions that can run on several GPUs."""

OVER_ARRAYS = {
    "memory_limit": RUN["memory_limit"]._replace(
        help=f"{RUN['memory_limit'].help} For arrays, it includes the results but not the caller's "
        "own memory; no limit when None."
    )
}
"""Parameters of functions of arrays."""

GPU = {"backend", "device", "gpu_memory_limit"}
OF_LAYERS = {"compress", "resume"}

RAISES = {
    "PlanError": "when the memory limit is too small.",
    "StoreError": "when the store is damaged, lacks a layer, or already has one of the results.",
    "OutputError": "when the disk is full. Finished blocks are kept for `resume`.",
    "VerificationError": "when the proof fails; there is no result then.",
}

DRAWING_RAISES = RAISES | {
    "StoreError": "when the store is damaged or lacks a layer.",
    "OutputError": "when the file cannot be written.",
}
"""Errors of functions that write a file instead of layers."""


@cache
def function_of(command: str) -> Callable[..., Any]:
    """The public function of a tool."""
    cls = tool_of(command)
    options = options_of(cls)

    def call(store: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs |= dict(zip(parameters(cls), args, strict=False))
        tool = cls(**{name: kwargs.pop(name) for name in options if name in kwargs})
        if isinstance(store, np.ndarray):
            if kwargs.get("client") is not None:
                raise ArgumentError("a cluster computes only from stores; leave out {client}")
            return cls.load(cls.arrays)(tool, store, **kwargs)
        _refuse_of_arrays(tool)
        if cls.runs:
            return cls.load(cls.runs)(tool, store, **kwargs)
        opened = opened_store(store)
        before = provide(tool, opened, kwargs)
        result = compute(tool, opened, **kwargs)
        result.report.add_steps_before(before)
        return result

    call.__name__ = call.__qualname__ = cls.function
    call.__module__, call.__doc__ = __package__, documentation(cls)
    call.__signature__ = signature(cls)  # type: ignore[attr-defined]
    checks = {name: one.check for name, one in options.items() if one.check is not check}
    checks[cls.first] = raster_or_store if cls.arrays else store
    if cls.gpu not in (None, "one"):
        checks["device"] = devices
    call = checked(*cls.rules, **checks)(call)
    if (path := drawn(cls)) is not None:
        from .io.frames import draws  # brings GDAL

        call = draws(path)(call)
    call = call if only_stores(cls) else takes_dataarrays(call)
    renamed = {one.option.formerly: name for name, one in options.items() if one.option.formerly}
    return _renaming(renamed, call) if renamed else call


def _renaming(renamed: Mapping[str, str], function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function take parameters by former names, which it tells."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old in renamed.keys() & kwargs.keys():
            if renamed[old] in kwargs:
                raise ArgumentError(f"{{{old}}} is now called {{{renamed[old]}}}: leave it out")
            log.warning("%s: %s is now called %s", function.__name__, old, renamed[old])
            kwargs[renamed[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return call


def _refuse_of_arrays(tool: Tool) -> None:
    """Reject options for arrays when the input is a store."""
    of_arrays = {name: one for name, one in options_of(type(tool)).items() if one.option.of_arrays}
    if any(getattr(tool, name) != one.default for name, one in of_arrays.items()):
        names = " and ".join(f"{{{name}}}" for name in of_arrays)
        raise ArgumentError(f"{names} apply only to arrays; a layer of a store has its own")


def __getattr__(name: str) -> Any:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return function_of(FUNCTIONS[name])


def parameters(cls: type[Tool]) -> dict[str, _Documented]:
    """All parameters after the store: types as written."""
    types = inspect.get_annotations(cls)
    options = options_of(cls)
    in_order = sorted(options, key=lambda name: not _by_position(cls, name))
    own = {
        name: _Documented(types[name], one.default, one.option.python or one.option.help)
        for name, one in ((name, options[name]) for name in in_order)
    }
    how = RUN | ({} if cls.gpu in (None, "one") else ON_GPUS) | (OVER_ARRAYS if cls.arrays else {})
    if cls.runs:
        return own | {name: one for name, one in how.items() if name in cls.how}
    left_out = (set() if cls.gpu else GPU) | (OF_LAYERS if drawn(cls) else set())
    return own | {name: one for name, one in how.items() if name not in left_out}


def _by_position(cls: type[Tool], name: str) -> bool:
    """Whether Python takes a parameter by position."""
    option = options_of(cls).get(name)
    return option is not None and (option.required or name in cls.positional)


def signature(cls: type[Tool]) -> inspect.Signature:
    """The signature of a tool's function."""
    kind = inspect.Parameter
    annotation = "RasterLike" if cls.arrays else "PathLike" if only_stores(cls) else "StoreLike"
    first = kind(cls.first, kind.POSITIONAL_OR_KEYWORD, annotation=annotation)
    others = [
        kind(
            name,
            kind.POSITIONAL_OR_KEYWORD if _by_position(cls, name) else kind.KEYWORD_ONLY,
            default=kind.empty if one.default is MISSING else one.default,
            annotation=one.type,
        )
        for name, one in parameters(cls).items()
    ]
    return inspect.Signature([first, *others], return_annotation=cls.result)


def documentation(cls: type[Tool]) -> str:
    """The docstring of a tool's function."""
    sections = described(cls)
    store = STORE_OR_ARRAY if cls.arrays else ONLY_STORE if only_stores(cls) else STORE
    store = f"{store} {PROVIDED}" if cls.needs else store
    texts = {cls.first: store, **{name: one.help for name, one in parameters(cls).items()}}
    usual = {} if cls.runs else DRAWING_RAISES if drawn(cls) else RAISES
    raised = "\n".join(f"{error}\n    {when}" for error, when in usual.items())
    if own := sections.get("Raises"):
        raised = f"{own}\n{raised}".strip()
    parts = [
        sections[""],
        _section("Parameters", "\n".join(f"{n}\n{_indented(text)}" for n, text in texts.items())),
        _section("Returns", sections["Returns"]),
        _section("Raises", raised),
        *(_section(name, sections[name]) for name in ("Notes", "Examples") if name in sections),
    ]
    return spelled("\n\n".join(parts), lambda name: f"`{name}`") + "\n"


def _section(name: str, text: str) -> str:
    return f"{name}\n{'-' * len(name)}\n{text}"


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
