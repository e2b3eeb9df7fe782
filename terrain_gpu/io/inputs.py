"""Open any raster that can be converted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..arguments import is_dataarray
from ..errors import InputError
from ..store import Layer
from .array_input import ArrayInput
from .gdal import GdalInput
from .grass_ascii import GrassAscii, is_grass_ascii
from .layer_input import LayerInput

SEQUENTIAL = {"AAIGrid", "GRASSASCIIGrid", "XYZ", "ISG"}


def offset_bytes(files: Iterable[Any]) -> int:
    """Bytes that GDAL needs for the line offsets of open text rasters."""
    return sum(8 * one.grid.rows for one in files if one.driver in SEQUENTIAL)


def open_input(path: Any, band: int | None) -> Any:
    """Open a raster: a file, a DataArray, or a layer.

    Raises
    ------
    InputError
        when it cannot be read or does not have the band.
    """
    if is_dataarray(path):
        return ArrayInput(path, band)
    if isinstance(path, Layer):
        return LayerInput(path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path}: a pipe or device; save it as a file first")
    if is_grass_ascii(path):
        if band not in (None, 1):
            raise InputError(f"{path}: has no band {band}; its last band is 1")
        try:
            grass = GrassAscii(path)
        except InputError as error:
            raise InputError(
                str(error) if str(error).startswith(path) else f"{path}: {error}"
            ) from None
        described: Any = grass
        described.crs, described.driver, described.files = None, "GRASSASCIIGrid", [path]
        described.chunk, described.masked = (1, grass.grid.cols), False
        described.encoding = None
        described.decoding = 0
        described.units, described.scale, described.offset = "", 1.0, 0.0
        return described
    return GdalInput(path, band)
