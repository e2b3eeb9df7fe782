"""Proof that a GeoTIFF holds the next cells of a layer of flow directions: `verify_next_cells`.

The flow direction towards the cell in the file must be that of the layer.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from rasterio.errors import RasterioError
from rasterio.windows import Window as GdalWindow

from ...engine.proof import Limits, around, wrong
from ...errors import InputError
from ...facts import Findings
from ...grid import Window
from ...grid.neighbours import NEIGHBOUR
from ...plurals import counted
from ..gdal import GdalInput
from .header import check_header, refused
from .windows import check_windows, plan_windows

if TYPE_CHECKING:
    from ...engine.plan import StreamPlan

PLANNED = np.dtype(np.int64)
"""A type as large as a cell of both bands."""

_NONE, _MOUTH, _SINK = -9999, -9, -10
_CHUNK = 512
_TEMPORARIES = 64
"""Bytes for each cell of a window."""


def plan_next_cells(layer: Any, part: Window, limits: Limits) -> StreamPlan:
    """Plan how windows stream through `verify_next_cells`; the file need not exist yet."""
    stored = layer.info.get("stored_bytes") or 0
    file: dict[str, Any] = {"chunk": (_CHUNK, _CHUNK), "source_bytes": stored}
    extra = _TEMPORARIES // (PLANNED.itemsize + 1) + 1
    of = layer.grid.crop(part), PLANNED, layer.dtype, layer.block_size
    return plan_windows(*of, limits, extra=extra, **file)


def verify_next_cells(
    path: str | os.PathLike[str],
    layer: Any,
    part: Window,
    limits: Limits,
    *,
    name: str | os.PathLike[str] = "",
) -> Findings:
    """Check all cells of both bands, their type, nodata value and position.

    Parameters
    ----------
    path
        The file.
    layer, part
        The layer, and its window that the file holds.
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
    plan = plan_next_cells(layer, part, limits)
    try:
        file = GdalInput(os.fspath(path), 1)
    except InputError as error:
        raise refused(named.path, f"cannot be read: {error}", "file") from None
    try:
        int32 = np.dtype(np.int32)
        check_header(named.path, file, layer, layer.grid.crop(part), int32, _NONE)
        if (bands := file.dataset().count) != 2 or file.encoding != "nextxy":
            fault = (
                f"its {counted(bands, 'band is', 'bands are')} in encoding {file.encoding}, not 2 "
                "in nextxy"
            )
            raise refused(named.path, fault, "encoding")

        def check(window: Window, stored: np.ndarray, data: np.ndarray) -> None:
            r0, r1, c0, c1 = window
            both = stored.view(np.int32).reshape(2, r1 - r0, c1 - c0)
            frame = GdalWindow(c0, r0, c1 - c0, r1 - r0)
            try:
                file.dataset().read(out=both, window=frame)
            except RasterioError as error:
                why = error.__cause__ or error
                raise refused(named.path, f"cannot be read: {why}", "file") from None
            window_of_layer = r0 + part[0], r1 + part[0], c0 + part[2], c1 + part[2]
            bad = _wrong_cells(both, window, _codes(layer, window_of_layer), part)
            if bad.any():
                row, col = np.argwhere(bad)[0]
                x, y = both[:, row, col]
                code = layer.read_window(*(int(one) for one in _one(window_of_layer, row, col)))[
                    0, 0
                ]
                fault = f"column {x}, row {y} where the flow direction is {code}"
                wrong(named, fault, "cells", r0 + int(row), c0 + int(col))

        check_windows(plan, PLANNED, layer, check, lambda _: None, limits)
    finally:
        file.close()
    return {"cells": plan.rows * plan.cols}


def _one(window: Window, row: int, col: int) -> Window:
    return window[0] + row, window[0] + row + 1, window[2] + col, window[2] + col + 1


def _codes(layer: Any, window: Window) -> np.ndarray:
    """Codes of a window and a ring of one cell, 255 outside the raster."""
    r0, r1, c0, c1 = window
    codes: np.ndarray = layer.read_ring(window)
    if layer.nodata not in (None, 255):  # then 255 is an inland sink
        codes = np.where(codes == layer.nodata, 255, codes * (codes != 255))
    rows, cols = np.arange(r0 - 1, r1 + 1), np.arange(c0 - 1, c1 + 1)
    codes[(rows < 0) | (rows >= layer.grid.rows)] = 255
    codes[:, (cols < 0) | (cols >= layer.grid.cols)] = 255
    return codes


def _wrong_cells(both: np.ndarray, window: Window, codes: np.ndarray, part: Window) -> np.ndarray:
    """Mark cells whose next cell is not the one that their code points to."""
    r0, r1, c0, c1 = window
    x, y = both
    codes_inside = codes[1:-1, 1:-1]
    row, col = np.arange(r0, r1)[:, None], np.arange(c0, c1)[None]
    flows = (x > 0) & (y > 0)
    down, right = np.where(flows, y - 1 - row, 0), np.where(flows, x - 1 - col, 0)
    near = (np.abs(down) <= 1) & (np.abs(right) <= 1) & ((down != 0) | (right != 0))
    down[~near] = right[~near] = 0
    step = NEIGHBOUR[down + 1, right + 1]
    inside = (y <= part[1] - part[0]) & (x <= part[3] - part[2])
    next_cell = np.arange(r1 - r0)[:, None] + 1 + down, np.arange(c1 - c0)[None] + 1 + right
    good = (
        flows
        & near
        & inside
        & (codes_inside == np.left_shift(1, step & 7))
        & (codes[next_cell] != 255)
    )
    good |= (x == _NONE) & (y == _NONE) & (codes_inside == 255)
    at_edge = around(codes == 255)
    good |= (x == _SINK) & (y == _SINK) & (codes_inside == 0) & ~at_edge
    leaves = (codes_inside == 0) & at_edge
    for r in range(3):
        for c in range(3):
            last = codes[r : r + r1 - r0, c : c + c1 - c0] == 255
            beyond = (row + r - 1 < 0) | (row + r - 1 >= part[1] - part[0])
            beyond = beyond | (col + c - 1 < 0) | (col + c - 1 >= part[3] - part[2])
            if (r, c) != (1, 1):
                leaves |= (codes_inside == 1 << int(NEIGHBOUR[r, c])) & (last | beyond)
    good |= (x == _MOUTH) & (y == _MOUTH) & leaves
    return ~good
