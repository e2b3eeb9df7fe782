"""Fill values that a raster does not declare as nodata: `warn_of_fills`."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import cells
from ..errors import without_secrets
from ..grid import Window
from ..store.writer import LayerWriter

log = logging.getLogger(__name__)

_INTEGERS = -999, -9999, -99999, -32768, -32767, 32767, 65535, -(2**31), 2**31 - 1
_LARGE = 1e20, 9.969209968386869e36, 3.4028234663852886e38, 1.7976931348623157e308
FILLS = (*_INTEGERS, *_LARGE, *(-value for value in _LARGE))
"""What programs write where there is no value."""

_STRIP = 1 << 20
_MOST = 1 << 26
"""Cells that are read again, at most, to count fill values; without one, none are."""


class _Seen(NamedTuple):
    """Cells of a fill value, whether they are all, and the range of the others."""

    cells: int
    all: bool
    low: float | int
    high: float | int


def warn_of_fills(writer: LayerWriter, name: str) -> None:
    """Warn of a least or greatest value that is a usual fill value, far from all others.

    The records of the written blocks, with their ranges, show whether there is one.

    Parameters
    ----------
    name
        What the warning calls the layer.
    """
    low, high = math.inf, -math.inf
    for _, least, most in writer.ranges():
        low, high = min(low, least), max(high, most)
    found = [value for value in dict.fromkeys((low, high)) if _fill(value, writer.dtype)]
    for value in found:
        seen = _look(writer, found, value)
        far = min(abs(value - seen.low), abs(value - seen.high))
        if not seen.low <= seen.high or far <= seen.high - seen.low:
            continue
        log.warning(
            "%s: %s%s cells have the value %s, far from all others (%s to %s), which is not "
            "declared as nodata; if they have no value, convert with --nodata=%s",
            without_secrets(name),
            "" if seen.all else "at least ",
            f"{seen.cells:,}",
            value,
            seen.low,
            seen.high,
            value,
        )


def _fill(value: float | int, dtype: np.dtype) -> bool:
    one = np.array([value], dtype) if math.isfinite(value) else np.empty(0, dtype)
    return any(cells.fits(fill, dtype) and cells.near(one, fill).any() for fill in FILLS)


def _look(writer: LayerWriter, fills: list[float | int], value: float | int) -> _Seen:
    """Read blocks that have the value; of the others, the range is known."""
    count, left, complete, low, high = 0, _MOST, True, math.inf, -math.inf
    for at, least, most in writer.ranges():
        window = writer.block_window(*at)
        if not {least, most} & {*fills}:
            low, high = min(low, least), max(high, most)
        elif left <= 0:
            complete = False
        else:
            for part in _strips(window):
                data = writer.read_window(*part)
                rest = ~cells.is_nodata(data, writer.nodata)
                for fill in fills:
                    same = cells.near(data, fill) & rest
                    count += int(np.count_nonzero(same)) if fill == value else 0
                    rest &= ~same
                if rest.any():
                    some = data[rest]
                    low, high = min(low, some.min().item()), max(high, some.max().item())
            left -= (window[1] - window[0]) * (window[3] - window[2])
    return _Seen(count, complete, low, high)


def _strips(window: Window) -> Iterator[Window]:
    r0, r1, c0, c1 = window
    tall = max(_STRIP // (c1 - c0), 1)
    for row in range(r0, r1, tall):
        yield row, min(row + tall, r1), c0, c1
