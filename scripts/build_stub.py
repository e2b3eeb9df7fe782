"""Write terrain_gpu/__init__.pyi: what editors and type checkers see of the public names.

    python scripts/build_stub.py

Functions of tools are made from their declarations when they are asked for; the stub has their
signatures and documentation. Other names are imported as `terrain_gpu/__init__.py` says.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import terrain_gpu
from terrain_gpu.functions import documentation, signature
from terrain_gpu.tool import Tool
from terrain_gpu.tools import FUNCTIONS, tool_of

STUB = Path(terrain_gpu.__file__).with_suffix(".pyi")

HEAD = '''"""The public names of terrain_gpu. Written by scripts/build_stub.py: do not edit."""
# ruff: noqa

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import xarray

from .arguments import *
from .engine.run import Result
from .io.labelled import LayerLike, PlainRaster, RasterLike, StoreLike
from .paths.cost.resolve import VerticalFactor
from .progress import Progress, silent
from .tool import PathLike, PlacesLike
'''


def text() -> str:
    """The stub."""
    homes = sorted(terrain_gpu._HOME.items(), key=lambda one: one[::-1])
    lines = [f"from .{home} import {name} as {name}" for name, home in homes]
    functions = [function(tool_of(command)) for _, command in sorted(FUNCTIONS.items())]
    names = "".join(f'    "{name}",\n' for name in sorted([*terrain_gpu._HOME, *FUNCTIONS]))
    return "\n".join([HEAD, *lines, "", "__version__: str", f"__all__ = [\n{names}]", *functions])


KINDS = {
    "xarray.DataArray": "xarray.DataArray",
    "np.ma.MaskedArray": "np.ma.MaskedArray",
    "HasDeviceMemory": "Any",
    "PlainRaster": "np.ndarray",
}
"""Of a result that holds arrays: their type for every kind of input."""


def function(cls: type[Tool]) -> str:
    """The stub of a tool's function; a generic result depends on the kind of the input."""
    if not getattr(getattr(terrain_gpu, cls.result, None), "__parameters__", ()):
        return f"\n{declared(cls, signature(cls).return_annotation)}"
    made = []
    for kind, arrays in KINDS.items():
        made.append(f"\n@overload\n{declared(cls, f'{cls.result}[{arrays}]', kind)}")
    # A DataArray has any attribute, also that of an array on a GPU.
    ignored = "( # type: ignore[overload-overlap]"
    return "".join(made).replace("(", ignored, 1)


def declared(cls: type[Tool], result: str, kind: str = "") -> str:
    """A function of a result, and perhaps of an input of this kind."""
    parameters = list(signature(cls).parameters.values())
    if kind:
        parameters[0] = parameters[0].replace(annotation=kind)
    written = [parameter(one) for one in parameters]
    keywords = next(i for i, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY)
    body = textwrap.indent(f'"""{documentation(cls)}"""', "    ").replace("\n    \n", "\n\n")
    if kind in list(KINDS)[1:]:
        body = "    ..."
    inner = "".join(f"    {one},\n" for one in [*written[:keywords], "*", *written[keywords:]])
    return f"def {cls.function}(\n{inner}) -> {result}:\n{body}\n"


def parameter(one: inspect.Parameter) -> str:
    """A parameter with its type and default."""
    default = getattr(one.default, "__name__", repr(one.default).replace("'", '"'))
    usual = "" if one.default is inspect.Parameter.empty else f" = {default}"
    return f"{one.name}: {one.annotation}{usual}"


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
