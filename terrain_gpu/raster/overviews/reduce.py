"""Reduce two by two cells to one: `reduce`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...cells import is_nodata

STRIP = 32
"""Number of rows of results computed at a time, so that temporaries stay in the cache."""


def reduce(fine: np.ndarray, nodata: float | int | None, method: str, out: np.ndarray) -> None:
    """Reduce cells two by two, ignoring nodata.

    Parameters
    ----------
    fine
        Cells; the numbers of rows and columns may be odd.
    method
        A key of `METHODS`.
    out
        The results, of the same type: half as many rows and columns, rounded up.
    """
    for top in range(0, len(out), STRIP):
        rows = fine[2 * top : 2 * (top + STRIP)]
        values, valid = _quarters(rows, nodata)
        out[top : top + STRIP] = METHODS[method](values, valid, nodata)


def _quarters(rows: np.ndarray, nodata: float | int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the four cells of each result in row-major order, and the mask of valid ones."""
    shape = 4, (rows.shape[0] + 1) // 2, (rows.shape[1] + 1) // 2
    values, valid = np.zeros(shape, rows.dtype), np.zeros(shape, bool)
    for k in range(4):
        part = rows[k // 2 :: 2, k % 2 :: 2]
        height, width = part.shape
        values[k, :height, :width] = part
        valid[k, :height, :width] = ~is_nodata(part, nodata)
    return values, valid


def _absent(dtype: np.dtype, nodata: float | int | None) -> np.generic:
    """Return the value of a nodata cell."""
    if nodata is None:
        return dtype.type(np.nan if dtype.kind == "f" else 0)
    return dtype.type(nodata)


def _average(values: np.ndarray, valid: np.ndarray, nodata: float | int | None) -> np.ndarray:
    dtype, count = values.dtype, np.maximum(valid.sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = np.where(valid, values, 0).astype(np.float64)
        mean = ((terms[0] + terms[1]) + (terms[2] + terms[3])) / count
        shares = terms / count
        mean = np.where(np.isfinite(mean), mean, (shares[0] + shares[1]) + (shares[2] + shares[3]))
        averages = (np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
    # An average may equal nodata by chance, or exceed the range of float32.
    chance = is_nodata(averages, nodata) & valid.any(axis=0)
    averages = np.where(chance, _picked(values, valid.argmax(axis=0)), averages)
    return np.where(valid.any(axis=0), averages, _absent(dtype, nodata))


def _nearest(values: np.ndarray, valid: np.ndarray, nodata: float | int | None) -> np.ndarray:
    return values[0]


def _least(values: np.ndarray, valid: np.ndarray, nodata: float | int | None) -> np.ndarray:
    dtype = values.dtype
    most = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    result = np.where(valid, values, dtype.type(most)).min(axis=0) + dtype.type(0)  # no -0.0
    return np.where(valid.any(axis=0), result, _absent(dtype, nodata))


def _greatest(values: np.ndarray, valid: np.ndarray, nodata: float | int | None) -> np.ndarray:
    dtype = values.dtype
    least = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    result = np.where(valid, values, dtype.type(least)).max(axis=0) + dtype.type(0)
    return np.where(valid.any(axis=0), result, _absent(dtype, nodata))


def _mode(values: np.ndarray, valid: np.ndarray, nodata: float | int | None) -> np.ndarray:
    equal = (values[:, None] == values[None]) & valid[:, None] & valid[None]
    result = _picked(values, equal.sum(axis=1).argmax(axis=0))  # the first of the most frequent
    return np.where(valid.any(axis=0), result, _absent(values.dtype, nodata))


def _picked(values: np.ndarray, which: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, which[None], axis=0)[0]


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, float | int | None], np.ndarray]] = {
    "average": _average,
    "nearest": _nearest,
    "min": _least,
    "max": _greatest,
    "mode": _mode,
}
