"""Which cells are valid, and how values are written to JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .errors import ArgumentError, InputError

DTYPES = tuple(
    np.dtype(name).newbyteorder("<")
    for name in (
        *("uint8", "uint16", "uint32", "uint64"),
        *("int8", "int16", "int32", "int64"),
        *("float32", "float64"),
    )
)
"""The cell types that a layer may have, little-endian."""


def layer_dtype(dtype: DTypeLike) -> np.dtype:
    """`dtype` as a supported little-endian cell type.

    Raises
    ------
    InputError
        when it is not one of `DTYPES`.
    """
    try:
        wanted = np.dtype(dtype).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError) as error:
        raise InputError(f"{dtype!r} is not a cell type: {error}") from error
    if wanted not in DTYPES:
        names = ", ".join(d.name for d in DTYPES)
        raise InputError(f"cells of type {wanted.name} are not supported; use one of {names}")
    return wanted


def refuse_masked(array: np.ndarray, name: str) -> None:
    """Reject a masked array, because its mask would be ignored.

    Raises
    ------
    InputError
        with the remedy.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            f"{{{name}}} is a masked array, which is not supported here; use .filled(value) with "
            "nodata=value, or floats with NaN"
        )


def fits(value: float | int, dtype: np.dtype) -> bool:
    """Whether `value` is representable: exactly for integers, in range for floats."""
    if isinstance(value, np.generic):
        value = value.item()  # np.float32 is not a float, and int() would drop its fraction
    if dtype.kind == "f":
        try:
            with np.errstate(over="ignore"):
                return not math.isfinite(value) or bool(np.isfinite(dtype.type(value)))
        except OverflowError:  # an int beyond any float
            return False
    if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
        return False
    info = np.iinfo(dtype)
    return int(info.min) <= int(value) <= int(info.max)


def exact(value: float | int, dtype: np.dtype) -> bool:
    """Whether `value` fits, and is not an integer that float64 would round."""
    whole = isinstance(value, int) and dtype.kind == "f"
    return fits(value, dtype) and not (whole and float(value) != value)


def as_scalar(value: float | int, dtype: np.dtype, meaning: str = "nodata value") -> float | int:
    """`value` as a Python number, converted to `dtype`.

    Raises
    ------
    InputError
        when it does not fit `dtype`.
    """
    if not fits(value, dtype):
        raise InputError(f"{meaning} {value} does not fit cells of type {dtype.name}")
    return dtype.type(value if dtype.kind == "f" else int(value)).item()


def near(data: np.ndarray, value: float | int) -> np.ndarray:
    """Where cells of a file equal its nodata value, by GDAL's rule.

    Real cells may differ from it by a relative 5e-7: a tag often has fewer digits than the cells.
    NaN equals NaN. In addition to GDAL's rule, the largest numbers equal infinity: a tag of
    -1.79769313486232e+308 is read as infinity.
    """
    if data.dtype.kind != "f":
        return data == value
    if math.isnan(value):
        return np.isnan(data)
    kind = data.dtype.type
    if math.isinf(value):
        most = np.finfo(kind).max * kind(1 - 2**-20)
        return data >= most if value > 0 else data <= -most
    exact, inner, outer = kind(value), kind(value * (1 - 2**-20)), kind(value)
    with np.errstate(over="ignore", invalid="ignore"):
        outer *= kind(1 + 2**-20)
        if np.isinf(exact + exact):  # if the sum below overflows, values are near
            inner = kind(0)
        close_cells = (data >= min(inner, outer)) & (data <= max(inner, outer))
        if close_cells.any():  # few cells: compare exactly
            some = data[close_cells]
            close = np.abs(some - exact) < np.abs(some + exact) * 2.0**-22
            close_cells[close_cells] = close | (some == exact)
    return close_cells


def is_valid(data: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Mask of valid cells: neither nodata nor, in float layers, NaN or infinite."""
    if isinstance(nodata, np.generic):
        nodata = nodata.item()  # a Python number is compared in the type of the cells
    if data.dtype.kind == "f":
        mask = np.isfinite(data)
        if nodata is not None and math.isfinite(nodata):
            mask &= data != nodata
        return mask
    return np.ones(data.shape, dtype=bool) if nodata is None else data != nodata


def is_nodata(data: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Mask of the cells that are not valid."""
    return ~is_valid(data, nodata)


@dataclass(frozen=True)
class Stats:
    """The number of valid cells, and their range (None when there are none)."""

    valid: int
    low: float | int | None
    high: float | int | None


def all_valid(low: Any, high: Any, nodata: float | int | None) -> bool:
    """Whether all cells are valid, from their minimum and maximum: most blocks need no mask."""
    # NaN and infinities appear in one of them.
    finite = bool(np.isfinite(low) and np.isfinite(high))
    return finite and (nodata is None or not low <= nodata <= high)


def stats(data: np.ndarray, nodata: float | int | None, ends: np.ndarray | None = None) -> Stats:
    """The `Stats` of a block; `ends`: its minimum and maximum, if known."""
    low, high = (data.min(), data.max()) if ends is None else ends
    if all_valid(low, high, nodata):
        return Stats(data.size, low.item() + 0, high.item() + 0)  # 0.0 for -0.0
    values = data[is_valid(data, nodata)]
    if not values.size:
        return Stats(0, None, None)
    return Stats(values.size, values.min().item() + 0, values.max().item() + 0)


def to_json(value: float | int | None) -> float | int | str | None:
    """A number for strict JSON, with "NaN", "Infinity", "-Infinity" as strings, as in Zarr v3."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def from_json(value: Any) -> float | int | None:
    """The inverse of `to_json`.

    Raises
    ------
    InputError
        when `value` is not a number.
    """
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise InputError(f"{value!r} is not a number")


def differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a - b as float64; for integers, with a single rounding."""
    if a.dtype.kind == "f":
        return a.astype(np.float64) - b.astype(np.float64)
    # Unsigned words wrap around, so they hold every difference.
    one, other = (each.astype(np.uint64) for each in (a, b))
    return np.where(a < b, -(other - one).astype(np.float64), (one - other).astype(np.float64))
