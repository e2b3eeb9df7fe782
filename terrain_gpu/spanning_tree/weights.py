"""Edge weights of the spanning tree and their total order.

Edges are ordered by (weight, global id of the lower endpoint, direction), directions E < SW < S <
SE; by "flow", the steeper of two edges of one weight comes first, before ids. Kernels compare
weights as unsigned *keys* in the same order: 32 bits for cells of up to 16 bits and float32, 64
bits otherwise and for "flow"; for "flow" over cells of 64 bits two words, see `wide`.
The difference of two floats is rounded in the layer's type.

The slope of an edge is the difference of its cells, rounded once to a double, times the reciprocal
of its length, rounded to float32.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

import numpy as np

from .. import cells
from ..errors import InputError
from ..grid import GridSpec
from ..grid.lengths import step_lengths


@dataclass(frozen=True)
class WeightKind:
    """A row of the table of weights.

    Attributes
    ----------
    name
        The users' name of the weight.
    subtracts
        Whether the weight is the higher cell minus the lower one, or the higher one alone.
    slopes
        Whether of edges of one weight the steeper comes first.
    """

    name: str
    subtracts: bool
    slopes: bool = False


WEIGHTS = {
    row.name: row
    for row in (
        WeightKind("max", False),
        WeightKind("absdiff", True),
        WeightKind("flow", False, slopes=True),
    )
}
"""Weights by name; kernels, macros and the choices of options follow it."""


def weights_of(dtype: np.dtype) -> list[str]:
    """Return the weights of cells of a type whose keys are one word, as tiles and GPUs need."""
    return [name for name, row in WEIGHTS.items() if not (row.slopes and dtype.itemsize > 4)]


_LENGTHS = threading.Lock()
_STRIP = 16
"""Rows processed at a time, so that temporaries stay in the cache."""


@dataclass(frozen=True)
class Weight:
    """Maps cells of one type to keys.

    Attributes
    ----------
    name
        "max": the higher of the two cells; "absdiff": their absolute difference; "flow": the
        higher of the two cells, then the steeper edge.
    dtype
        Type of the cells.
    grid
        Of the raster, for the lengths of steps of a weight with slopes.
    """

    name: str
    dtype: np.dtype
    grid: GridSpec | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.name not in WEIGHTS:
            raise InputError(f"weight {self.name!r} is not known; use {' or '.join(WEIGHTS)}")

    @classmethod
    def on(cls, grid: GridSpec, name: str, dtype: np.dtype) -> Weight:
        """Return the weight of the cells of a raster."""
        return cls(name, dtype, grid)

    @property
    def per_length(self) -> np.ndarray | None:
        """Reciprocals of the lengths of the steps E, SW, S and SE from each row.

        Computed at the first use, after they are planned. None unless the weight has slopes.
        """
        if self.grid is None or not self.slopes:
            return None
        with _LENGTHS:
            found: np.ndarray | None = self.__dict__.get("_per_length")
            if found is None:
                found = step_lengths(self.grid)
                self.__dict__["_per_length"] = np.divide(1, found, out=found)
        return found

    @property
    def slopes(self) -> bool:
        """Whether of edges of one weight the steeper comes first."""
        return WEIGHTS[self.name].slopes

    @property
    def subtracts(self) -> bool:
        """Whether the weight is a difference."""
        return WEIGHTS[self.name].subtracts

    @property
    def two_words(self) -> bool:
        """Whether keys are of two words: cells of 64 bits, and slopes."""
        return self.slopes and self.dtype.itemsize == 8

    @property
    def key_dtype(self) -> np.dtype:
        """uint32 or uint64; complex128 for two words."""
        if self.two_words:
            return np.dtype(np.complex128)
        small = self.dtype.itemsize <= 2 or self.dtype == np.float32
        return np.dtype(np.uint32 if small and not self.slopes else np.uint64)

    @property
    def key_bits(self) -> int:
        """How many bits of a key may be set."""
        return 64 if self.slopes else 8 * self.dtype.itemsize

    @property
    def subtracts_floats(self) -> bool:
        """Whether keys are the bits of the difference of two floats."""
        return self.subtracts and self.dtype.kind == "f"

    @property
    def operand_dtype(self) -> np.dtype:
        """Type of the `operands`."""
        if (self.subtracts or self.slopes) and self.dtype.kind == "f":
            return self.dtype.newbyteorder("=")
        if self.slopes:
            return np.dtype(np.uint64 if self.two_words else np.uint32)
        return self.key_dtype

    def rule(self, row0: int = 0, row1: int | None = None) -> np.unsignedinteger | np.ndarray:
        """Return how `edge_key` joins the operands of two cells, the first in one of these rows.

        The mask `low` in `max(a, b) - (min(a, b) & low)`: all ones to subtract, else 0. With
        slopes, `per_length` of these rows.
        """
        if self.slopes:
            per_length = self.per_length
            assert per_length is not None
            whole = row0 == 0 and row1 is None
            return per_length if whole else np.ascontiguousarray(per_length[:, row0:row1])
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
        elif out.dtype.kind == "f":
            np.add(data, data.dtype.type(0), out=out)  # turns -0.0 into 0.0
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
        """Mode of `add_weight`.

        0 integer keys, 1 bits of floats >= 0, 2 order-mapped floats; 4 more if weights are only
        the upper half of keys.
        """
        floats = 1 if self.subtracts else 2
        return (floats if self.dtype.kind == "f" else 0) + 4 * self.slopes

    def new_sums(self) -> np.ndarray:
        """Return zeroed accumulators for `add_weight`: a low and a high word per exponent."""
        exponents = 1 if self.dtype.kind != "f" else (256 if self.dtype.itemsize == 4 else 2048)
        return np.zeros(2 * exponents, np.int64)

    def add(self, sums: np.ndarray, keys: np.ndarray) -> None:
        """Add the weights of edges to accumulators, as `add_weight` does for one edge."""
        if self.two_words:
            from ..wide import high_word  # loads numba

            sizes = high_word(keys)
        else:
            sizes = keys.astype(np.uint64) >> np.uint64(32 * self.slopes)
        exponents, signs = np.zeros(len(keys), np.int64), np.ones(len(keys), np.int64)
        if self.dtype.kind == "f":
            bits, point = (31, 23) if self.dtype.itemsize == 4 else (63, 52)
            if not self.subtracts:
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
    return cells.is_valid(data, nodata)
