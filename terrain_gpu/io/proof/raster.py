"""Proof that a GeoTIFF holds the cells of a layer: `verify_raster`.

The file is opened again; each cell is computed from the layer and compared with what GDAL reads.
"""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import cells
from ...engine.plan import StreamPlan
from ...engine.proof import Limits, wrong
from ...errors import InputError
from ...facts import Findings
from ...grid import Window, clip, is_empty
from ...grid.neighbours import (
    DEGREES,
    DIRECTIONS,
    ENCODINGS,
    FORWARD_EDGES,
    NEIGHBOUR,
    no_direction,
)
from ...store import Layer
from ..encodings import encoded, encoding_dtype
from ..gdal import GdalInput, gdal_environment
from ..nextxy import NEXTXY
from .header import check_header, refused
from .nextxy import verify_next_cells
from .windows import check_windows, differ, equals, pieces, plan_windows, read_cells, read_mask

_CHUNK = 512
"""Side of the largest tiles in files that this package writes."""


def plan_raster(layer: Layer, part: Window, dtype: np.dtype, limits: Limits) -> StreamPlan:
    """Plan how windows stream through `verify_raster`; the file need not exist yet."""
    grid = layer.grid.crop(part)
    stored = layer.info.get("stored_bytes") or 0
    # The second copy is for GDAL's mask, or for the ring around the window.
    file: dict[str, Any] = {"chunk": (_CHUNK, _CHUNK), "source_bytes": stored, "extra": 1}
    return plan_windows(grid, dtype, layer.dtype, layer.block_size, limits, **file)


def verify_raster(
    path: str | os.PathLike[str],
    layer: Layer,
    part: Window,
    dtype: np.dtype,
    limits: Limits,
    *,
    encoding: str | None = None,
    name: str | os.PathLike[str] = "",
) -> Findings:
    """Check all cells of a file, its type, nodata value, position and attributes.

    Parameters
    ----------
    path
        The file.
    layer, part
        The layer, and its window that the file holds.
    dtype
        Type of the cells in the file: that of the layer, or a float type they were converted to.
    encoding
        Encoding of flow directions in the file, if any.
    name
        Name of the file in messages.

    Returns
    -------
    dict
        "cells", the number of cells compared.

    Raises
    ------
    VerificationError
        at the first wrong cell found, or when anything else differs.
    PlanError
        when the memory limit is too small.
    StoreError
        when the layer is damaged.
    """
    named = SimpleNamespace(path=name or path)
    plan = plan_raster(layer, part, dtype, limits)
    same_type = dtype == layer.dtype or encoding in DEGREES
    nodata = layer.nodata if dtype == layer.dtype else math.nan
    plain = encoding is None or encoding == "esri"
    if not plain:
        nodata = no_direction(encoding)
    try:
        file = GdalInput(os.fspath(path), None)
    except InputError as error:
        raise refused(named.path, f"cannot be read: {error}", "file") from None
    try:
        check_header(named.path, file, layer, layer.grid.crop(part), dtype, nodata)
        if file.encoding != encoding:
            fault = f"its flow directions are in encoding {file.encoding}, not {encoding}"
            raise refused(named.path, fault, "encoding")
        codes = None if plain else _table(layer, str(encoding)).astype(dtype)
        masked = dtype.kind != "f" and nodata is not None

        def check(window: Window, stored: np.ndarray, data: np.ndarray) -> None:
            try:
                read_cells(file, window, stored)
                void = read_mask(file, window) == 0 if masked else None
            except InputError as error:
                raise refused(named.path, f"cannot be read: {error}", "file") from None
            r0, r1, c0, c1 = window
            window_of_layer = r0 + part[0], r1 + part[0], c0 + part[2], c1 + part[2]
            if layer.info.get("encoding") == FORWARD_EDGES:
                data = _at_both_ends(layer.read_ring(window_of_layer, halo=1))
            else:
                layer.read_window(*window_of_layer, out=data)
            if codes is not None:
                data = codes[data]
            for piece in pieces(*data.shape):
                right = data[piece] if same_type else _converted(data[piece], layer.nodata, dtype)
                bad = differ(stored[piece], right)
                if not same_type:  # any NaN is correct
                    bad &= ~(np.isnan(right) & np.isnan(stored[piece]))
                if nodata == 0:  # GDAL omits blocks of zeros, so -0.0 becomes 0.0
                    bad &= (stored[piece] != 0) | (right != 0)
                if bad.any():
                    row, col = np.argwhere(bad)[0]
                    fault = f"{stored[piece][row, col]!s} instead of {right[row, col]!s}"
                    wrong(named, fault, "cells", *_cell(window, piece, row, col))
                if void is None:
                    continue
                bad = void[piece] != equals(right, nodata)
                if bad.any():
                    row, col = np.argwhere(bad)[0]
                    fault = "is masked" if void[piece][row, col] else "is not masked as nodata"
                    wrong(named, fault, "nodata", *_cell(window, piece, row, col))

        check_windows(plan, dtype, layer, check, lambda _: None, limits)
    finally:
        file.close()
    return {"cells": plan.rows * plan.cols}


def verify_exported(path: str | os.PathLike[str], layer: Layer, limits: Limits) -> Findings:
    """Run `verify_raster` for a file written earlier, with the window and type of the file.

    Raises
    ------
    InputError
        when the file is not a raster.
    """
    with gdal_environment():
        file = GdalInput(os.fspath(path), 1)
        if file.encoding != NEXTXY:
            file.close()
            file = GdalInput(os.fspath(path), None)  # rejects several bands
        file.close()
        a, _, c, _, e, f = layer.grid.transform
        row = round((file.grid.transform[5] - f) / e)
        col = round((file.grid.transform[2] - c) / a)
        part = clip((row, row + file.grid.rows, col, col + file.grid.cols), layer.grid.window)
        if is_empty(part):
            raise refused(path, "does not overlap the layer", "transform")
        dtype = file.dtype if file.dtype.kind == "f" else layer.dtype
        if file.encoding in DEGREES:
            dtype = encoding_dtype(layer, file.encoding)
        if file.encoding == NEXTXY and layer.dtype == np.uint8:
            return verify_next_cells(path, layer, part, limits)
        if file.encoding not in (None, *ENCODINGS) or (file.encoding and layer.dtype != np.uint8):
            raise refused(path, f"its encoding {file.encoding!r} is unknown", "encoding")
        return verify_raster(path, layer, part, dtype, limits, encoding=file.encoding)


def _table(layer: Any, encoding: str) -> np.ndarray:
    """The code in an encoding for each code of a layer; 255 is a sink unless it is nodata."""
    table = encoded(layer, encoding)
    if layer.nodata not in (None, 255):
        none, table[255] = table[255], table[0]
        table[layer.nodata] = none
    return table


def _cell(window: Window, piece: tuple[slice, slice], row: int, col: int) -> tuple[int, int]:
    return int(window[0] + piece[0].start + row), int(window[2] + piece[1].start + col)


def _converted(data: np.ndarray, nodata: float | int | None, dtype: np.dtype) -> np.ndarray:
    """Cells as the nearest floats, NaN for nodata."""
    with np.errstate(over="ignore"):  # in nodata cells
        return np.where(cells.is_nodata(data, nodata), dtype.type(math.nan), data.astype(dtype))


def _at_both_ends(ring: np.ndarray) -> np.ndarray:
    """D8 codes of a window, from a window with a ring of edges recorded at one end."""
    rows, cols = ring.shape[0] - 2, ring.shape[1] - 2
    codes = np.zeros((rows, cols), np.uint8)
    for bit, (down, right) in enumerate(DIRECTIONS):
        edges = ring >> np.uint8(bit) & np.uint8(1)
        codes |= edges[1:-1, 1:-1] << NEIGHBOUR[1 + down, 1 + right]
        from_it = edges[1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
        codes |= from_it << NEIGHBOUR[1 - down, 1 - right]
    return codes
