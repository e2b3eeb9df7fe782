"""Edge weights of the spanning tree and their total order.

Edges are ordered by (weight, global id of the lower endpoint, direction), directions E < SW < S <
SE. Kernels compare weights as unsigned *keys* in the same order: 32 bits for cells of up to 16 bits
and float32, 64 bits otherwise. Only the difference of two floats is rounded, in the layer's type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import cells
from ..errors import InputError


@dataclass(frozen=True)
class WeightKind:
    """A row of the table of weights.

    Attributes
    ----------
    name
        The users' name of the weight.
    subtracts
        Whether the weight is the higher cell minus the lower one, or the higher one alone.
    """

    name: str
    subtracts: bool


WEIGHTS = {row.name: row for row in (WeightKind("max", False), WeightKind("absdiff", True))}
"""Weights by name; kernels, macros and the choices of options follow it."""

_STRIP = 16
"""Rows processed at a time, so that temporaries stay in the cache."""


@dataclass(frozen=True)
class Weight:
    """Maps cells of one type to keys.

    Attributes
    ----------
    name
        "max": the higher of the two cells; "absdiff": their absolute difference.
    dtype
        Type of the cells.
    """

    name: str
    dtype: np.dtype

    def __post_init__(self) -> None:
        if self.name not in WEIGHTS:
            raise InputError(f"weight {self.name!r} is not known; use {' or '.join(WEIGHTS)}")

    @property
    def subtracts(self) -> bool:
        """Whether the weight is a difference."""
        return WEIGHTS[self.name].subtracts

    @property
    def key_dtype(self) -> np.dtype:
        """uint32 or uint64."""
        small = self.dtype.itemsize <= 2 or self.dtype == np.float32
        return np.dtype(np.uint32 if small else np.uint64)

    @property
    def subtracts_floats(self) -> bool:
        """Whether the kernels take float cells and use the bits of their difference."""
        return self.subtracts and self.dtype.kind == "f"

    @property
    def operand_dtype(self) -> np.dtype:
        """Type of the `operands`."""
        return self.dtype.newbyteorder("=") if self.subtracts_floats else self.key_dtype

    @property
    def low(self) -> np.unsignedinteger:
        """Mask in `key = max(a, b) - (min(a, b) & low)`: all ones to subtract, else 0."""
        key = self.key_dtype
        return key.type(np.iinfo(key).max if self.subtracts else 0)

    def operands(self, data: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the kernels' operands: unsigned integers in the order of the cells, or floats.

        Written to `out` if given: of `operand_dtype` and the shape of `data`.
        """
        if out is None:
            out = np.empty(data.shape, self.operand_dtype)
        if self.subtracts_floats or self.dtype.kind == "u":
            out[...] = data
        elif self.dtype.kind == "f":
            # + 0 turns -0.0 into 0.0. Negative bits are inverted, for others the sign bit is set.
            np.add(data, data.dtype.type(0), out=out.view(self.dtype.newbyteorder("=")))
            sign = out.dtype.type(1) << out.dtype.type(8 * out.itemsize - 1)
            signed = out.view(f"i{out.itemsize}")
            for row in range(0, len(out), _STRIP):
                part = slice(row, row + _STRIP)
                out[part] ^= (signed[part] >> (8 * out.itemsize - 1)).view(out.dtype) | sign
        else:
            wide = out.view(f"i{out.itemsize}")
            wide[...] = data
            wide -= wide.dtype.type(np.iinfo(self.dtype).min)
        return out

    # -- exact sums ------------------------------------------------------------------------

    @property
    def sum_mode(self) -> int:
        """Mode of `add_weight`: 0 integer keys, 1 bits of floats >= 0, 2 order-mapped floats."""
        if self.dtype.kind != "f":
            return 0
        return 1 if self.subtracts_floats else 2

    def new_sums(self) -> np.ndarray:
        """Return zeroed accumulators for `add_weight`: a low and a high word per exponent."""
        exponents = 1 if self.dtype.kind != "f" else (256 if self.dtype.itemsize == 4 else 2048)
        return np.zeros(2 * exponents, np.int64)

    def add(self, sums: np.ndarray, keys: np.ndarray) -> None:
        """Add the weights of edges to accumulators, as `add_weight` does for one edge."""
        sizes = keys.astype(np.uint64)
        exponents, signs = np.zeros(len(keys), np.int64), np.ones(len(keys), np.int64)
        if self.dtype.kind == "f":
            bits, point = (31, 23) if self.dtype.itemsize == 4 else (63, 52)
            if self.sum_mode == 2:
                negative = sizes >> bits == 0
                signs[negative] = -1
                sizes[negative] = 2**bits - 1 - sizes[negative]
                sizes &= 2**bits - 1
            exponents = (sizes >> point).astype(np.int64)
            sizes &= 2**point - 1
            sizes[exponents > 0] |= 2**point
        for word, part in enumerate((sizes & 0xFFFFFFFF, sizes >> 32)):
            np.add.at(sums, 2 * exponents + word, signs * part.astype(np.int64))

    def exact(self, sums: np.ndarray, edges: int) -> int | float:
        """Return the sum of the weights of `edges` edges; for floats, in least subnormals.

        Infinite if a difference of two floats overflowed.
        """
        words = sums.reshape(-1, 2)
        if self.dtype.kind == "f":
            if words[-1].any():
                return math.inf
            return sum(
                (int(words[k, 0]) + (int(words[k, 1]) << 32)) << max(k - 1, 0)
                for k in np.flatnonzero(words.any(axis=1)).tolist()
            )
        least = 0 if self.subtracts else int(np.iinfo(self.dtype).min)
        return int(words[0, 0]) + (int(words[0, 1]) << 32) + edges * least

    def rounded(self, exact: int | float) -> int | float:
        """Convert an `exact` sum for users: an integer, or the correctly rounded double."""
        if self.dtype.kind != "f" or isinstance(exact, float):
            return exact
        try:
            # Python's division of integers rounds correctly.
            return exact / (1 << (149 if self.dtype.itemsize == 4 else 1074))
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


def plus(one: int | float, other: int | float) -> int | float:
    """Add two `Weight.exact` sums.

    Infinity is handled apart: int + inf fails for integers too large for a float.
    """
    return math.inf if isinstance(one, float) or isinstance(other, float) else one + other


def valid_cells(data: np.ndarray, nodata: float | int | None) -> np.ndarray:
    """Return the mask of the cells that are vertices."""
    return ~cells.is_nodata(data, nodata)
