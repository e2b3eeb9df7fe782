"""Fill values that a raster does not declare as nodata: `warn_of_fills`."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import cells
from ..errors import without_secrets
from ..grid import Window
from ..plurals import counted
from ..store.writer import LayerWriter

log = logging.getLogger(__name__)

_INTEGERS = -999, -9999, -99999, -32768, -32767, 32767, 65535, -(2**31), 2**31 - 1
_LARGE = 1e20, 1e30, 9.969209968386869e36, 3.4028234663852886e38, 1.7976931348623157e308
_ROUNDED = 9.97e36, 1.70141e38, 3.4e38
FILLS = (*_INTEGERS, *_LARGE, *_ROUNDED, *(-value for value in (*_LARGE, *_ROUNDED)))
"""Values that programs write into cells without data."""

_TAG = 5e-7
"""Relative precision of real fill values; a tag often holds fewer digits than the cells."""
_STRIP = 1 << 20
_MOST = 1 << 26
"""Largest number of cells that are read again to count fill values, if there are any."""


class _UndeclaredFills(NamedTuple):
    """The number of cells with each fill value, whether all were counted, the others' range."""

    counts: dict[float | int, int]
    all: bool
    low: float | int
    high: float | int


def warn_of_fills(writer: LayerWriter, name: str) -> None:
    """Warn about each usual fill value in the cells, if no other value is within a tenth of it.

    Parameters
    ----------
    name
        Name of the layer in the warning.
    """
    fills, name = _found(writer), without_secrets(name)
    others = f"; the others are {fills.low} to {fills.high}" if fills.low <= fills.high else ""
    for value, count in fills.counts.items():
        log.warning(
            "%s: %s%s the value %s, a usual fill value far from all others, which is "
            "not declared as nodata%s; if it means nodata: terrain-gpu convert-dataset %s "
            "dem.zarr --nodata=%s",
            name,
            "" if fills.all else "at least ",
            counted(count, "cell has", "cells have"),
            value,
            others,
            shlex.quote(name),
            value,
        )
    if len(fills.counts) > 1:
        layer = f'"{writer.name}"' if "-" in writer.name else writer.name
        each = " or ".join(f"{layer} == {value}" for value in fills.counts)
        log.warning(
            "%s: --nodata accepts only one of these %d values; to set all of them to nodata: "
            "terrain-gpu calc dem.zarr '%s' --into NAME",
            name,
            len(fills.counts),
            f"where({each}, 0 / 0, {layer})",
        )


def _found(writer: LayerWriter) -> _UndeclaredFills:
    """Read blocks whose range includes a fill value; first those that have it as an end."""
    dtype, records = writer.dtype, list(writer.ranges())
    tag = _TAG if dtype.kind == "f" else 0
    ends = np.array([span for _, *span in records], dtype).reshape(-1, 2)
    usual = dict.fromkeys(cells.as_scalar(v, dtype) for v in FILLS if cells.fits(v, dtype))
    at_end = {v: _within(ends, v, tag).any(axis=1) for v in usual}
    within = {v: at_end[v] | (ends[:, 0] <= v) & (v <= ends[:, 1]) for v in usual}
    counts = {v: 0 for v in usual if within[v].any()}
    low, high, left, complete = math.inf, -math.inf, _MOST, True

    def see(data: np.ndarray, *, count: bool = True) -> None:
        nonlocal low, high
        same = {v: _within(data, v, tag) for v in counts}
        others = data[~np.logical_or.reduce([*same.values(), np.zeros(data.shape, bool)])]
        if others.size:
            low, high = min(low, others.min().item()), max(high, others.max().item())
        for v, those in same.items():
            if _within(others, v, 0.1).any():
                del counts[v]
            elif count:
                counts[v] += int(np.count_nonzero(those))

    see(ends, count=False)
    for k in np.argsort(~np.logical_or.reduce([*at_end.values()]), kind="stable").tolist():
        if not any(within[v][k] for v in counts):
            continue
        if left <= 0:
            complete = False
            break
        window = writer.block_window(*records[k][0])
        for part in _strips(window):
            data = writer.read_window(*part)
            see(data[~cells.is_nodata(data, writer.nodata)])
        left -= (window[1] - window[0]) * (window[3] - window[2])
    return _UndeclaredFills({v: n for v, n in counts.items() if n}, complete, low, high)


def _within(data: np.ndarray, value: float | int, part: float) -> np.ndarray:
    """Where cells differ from a value by no more than this fraction of it."""
    margin = abs(value) * part
    with np.errstate(over="ignore"):
        return (data >= value - margin) & (data <= value + margin)


def _strips(window: Window) -> Iterator[Window]:
    r0, r1, c0, c1 = window
    tall = max(_STRIP // (c1 - c0), 1)
    for row in range(r0, r1, tall):
        yield row, min(row + tall, r1), c0, c1
