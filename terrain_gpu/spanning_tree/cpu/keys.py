"""Keys of edges in compiled code, and exact sums of their weights; see `weights.Weight`."""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import overload, register_jitable

from ...wide import difference, high_word, two_words

SLOPES = np.uint32(0x7FFFFFFF)
"""The lower half of a key with slopes is this less the bits of the slope: never "no edge"."""


def rule_at(rule, direction, row):
    """Return the rule of the edges in a direction from a row; see `weights.Weight.rule`.

    Outside of compiled code, of those from each of several rows.
    """
    return rule[direction, row] if rule.ndim else rule


@overload(rule_at, inline="always")
def _rule_at(rule, direction, row):
    if isinstance(rule, numba.types.Array):
        return lambda rule, direction, row: rule[direction, row]
    return lambda rule, direction, row: rule


def edge_key(a, b, rule):
    """Return the keys of the edges between the cells of two arrays; see `rule_at`.

    In compiled code, `a` and `b` are single cells.
    """
    if rule.dtype.kind == "f":
        high, low = np.maximum(a, b), np.minimum(a, b)
        with np.errstate(over="ignore"):
            drop = high.astype(np.float64) - low if a.dtype.kind == "f" else high - low
            slope = (drop.astype(np.float64) * rule).astype(np.float32)
        if a.dtype.kind == "f":
            bits = high.view(f"i{a.itemsize}")
            sign = np.iinfo(bits.dtype).min
            high = (bits ^ ((bits >> (8 * a.itemsize - 1)) | sign)).view(f"u{a.itemsize}")
        rest = (SLOPES - slope.view(np.uint32)).astype(np.uint64)
        if a.itemsize == 8:
            return two_words(high, rest)
        return (high.astype(np.uint64) << np.uint64(32)) | rest
    if a.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.abs(a - b).view(f"u{a.itemsize}")
    return np.maximum(a, b) - (np.minimum(a, b) & rule)


@register_jitable
def _order_of_float(z):
    bits = np.float32(z).view(np.int32)
    return np.uint32(bits ^ ((bits >> np.int32(31)) | np.int32(-(2**31))))


@register_jitable
def _order_of_double(z):
    bits = np.float64(z).view(np.int64)
    return np.uint64(bits ^ ((bits >> np.int64(63)) | np.int64(-(2**63))))


@register_jitable
def _order_of_integer(z):
    return z


@overload(edge_key, inline="always")
def _edge_key(a, b, rule):
    if rule == numba.types.float64 and a.bitwidth == 64:
        high = _order_of_double if a == numba.types.float64 else _order_of_integer

        def key(a, b, rule):
            slope = np.float32(difference(max(a, b), min(a, b)) * rule).view(np.uint32)
            return two_words(np.uint64(high(max(a, b))), np.uint64(SLOPES - slope))

    elif rule == numba.types.float64:
        high = _order_of_float if a == numba.types.float32 else _order_of_integer

        def key(a, b, rule):
            slope = np.float32(abs(np.float64(a) - np.float64(b)) * rule).view(np.uint32)
            return (np.uint64(high(max(a, b))) << np.uint64(32)) | np.uint64(SLOPES - slope)

    elif a == numba.types.float32:

        def key(a, b, rule):
            return np.float32(abs(a - b)).view(np.uint32)

    elif a == numba.types.float64:

        def key(a, b, rule):
            return np.float64(abs(a - b)).view(np.uint64)

    else:

        def key(a, b, rule):
            return max(a, b) - (min(a, b) & rule)

    return key


def add_weight(sums, key, mode):
    """Add the weight of an edge to exact accumulators, see `weights.Weight.exact`."""
    raise RuntimeError("for compiled code only")


@overload(add_weight, inline="always")
def _add_weight(sums, key, mode):
    if isinstance(key, numba.types.Complex):
        return lambda sums, key, mode: add_weight(sums, high_word(key), mode - 4)
    bits = key.bitwidth
    size = 31 if bits == 32 else 63
    point = 23 if bits == 32 else 52

    def add(sums, key, mode):
        if bits == 64 and mode >= 4:
            add_weight(sums, np.uint32(key >> 32), mode - 4)
            return
        if mode == 0:
            sums[0] += np.int64(key & 0xFFFFFFFF)
            if bits == 64:
                sums[1] += np.int64(key >> 32)
            return
        magnitude = np.int64(key)
        sign = 1
        if mode == 2:
            magnitude = np.int64(key & np.uint64((1 << size) - 1))
            if not key >> size:
                sign = -1
                magnitude = ((1 << size) - 1) - magnitude
        exponent = magnitude >> point
        mantissa = magnitude & ((1 << point) - 1)
        if exponent > 0:
            mantissa |= 1 << point
        sums[2 * exponent] += sign * (mantissa & 0xFFFFFFFF)
        if bits == 64:
            sums[2 * exponent + 1] += sign * (mantissa >> 32)

    return add
