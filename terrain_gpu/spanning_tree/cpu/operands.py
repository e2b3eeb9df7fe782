"""Operands of real cells, and which of them are vertices, in one pass over a block."""

from __future__ import annotations

import math

import numpy as np

from ...compiled import jit
from ..weights import Weight, valid_cells


def vertices_of(
    weight: Weight, data: np.ndarray, nodata: float | int | None, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `weight.operands` of a block, in `room` and without -0.0, and its `valid_cells`."""
    cells = room[: data.size].reshape(data.shape)
    if data.dtype.kind != "f":
        return weight.operands(data, cells), valid_cells(data, nodata)
    bits, valid = np.dtype(f"i{data.itemsize}"), np.empty(data.shape, bool)
    absent = math.inf if nodata is None or not math.isfinite(nodata) else nodata
    special = np.array([math.inf, absent], data.dtype) + data.dtype.type(0)  # no -0.0
    infinity, hole = special.view(bits)
    ordered = bits.type(-1 if cells.dtype.kind == "u" else 0)
    views = np.ascontiguousarray(data).view(bits), cells.view(bits), valid
    _prepare(infinity, hole, ordered, *(array.reshape(-1) for array in views))
    return cells, valid


@jit
def _prepare(infinity, hole, ordered, bits, out, valid):  # type: ignore[no-untyped-def]
    """`ordered`: all ones for integers in the order of the cells, 0 for the cells themselves."""
    own, shift = bits.dtype.type, 8 * bits.itemsize - 1
    sign = own(-1 << shift)
    for k in range(bits.size):
        cell = own(0) if bits[k] == sign else bits[k]
        valid[k] = (cell & infinity != infinity) & (cell != hole)
        out[k] = cell ^ ((cell >> shift | sign) & ordered)
