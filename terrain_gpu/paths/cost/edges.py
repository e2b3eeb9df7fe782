"""Cost models in compiled code: the cost of a step, and how costs combine to distances.

The edge functions come from the table in `models`. Kernels are compiled for the type of a model, so
its edge function is inlined.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from . import instructions
from . import models as costs
from .formula.machine import one_step
from .formula.program import Formula
from .models import Scaled, model_of


@overload(costs.bits_of)
def _compiled_bits_of(x):
    def bits_of(x):
        return instructions.bits_of(x)

    return bits_of


@overload(costs.float_of)
def _compiled_float_of(bits):
    def float_of(bits):
        return instructions.float_of(bits)

    return float_of


@overload(costs.quotient)
def _compiled_quotient(a, b):
    def quotient(a, b):
        return instructions.quotient(a, b)

    return quotient


exponential = register_jitable(costs.exponential)


def edge(cost, a, b, fa, fb, length):
    """Cost of a step; callable in compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(edge, strict=False)  # their parameters have types
def _edge_of(cost, a, b, fa, fb, length):
    if cost.instance_class is Formula:
        return one_step
    return _scaled if cost.instance_class is Scaled else model_of(cost.instance_class).edge


def _scaled(cost, a, b, fa, fb, length):
    return edge(cost.cost, a, b, fa, fb, length) * (0.5 * (fa + fb))


class Sum(NamedTuple):
    """Stands for every model whose costs are added, in code that depends on nothing else."""


class Max(NamedTuple):
    """Stands for every model whose costs are combined by maximum."""


class Differences(NamedTuple):
    """Stands for `AbsDiff` in a tile whose distances, above the least of them, fit 16 bits.

    The tile holds heights instead of costs of steps. The largest value stands for all that are
    farther.

    Attributes
    ----------
    base
        The least distance, uint32.
    """

    base: Any


def _takes_maximum(kind: type) -> bool:
    if kind in (Sum, Max, Scaled, Differences):
        return kind is Max
    return model_of(kind).bottleneck


def joining(cost):
    """`Sum` or `Max`, depending on the model; also callable in compiled code."""
    return Max() if _takes_maximum(type(cost)) else Sum()


@overload(joining)
def _joining_of(cost):
    way = Max if _takes_maximum(cost.instance_class) else Sum
    return lambda cost: way()


def is_mutual(cost):
    """Whether all steps are known to cost the same both ways, bit for bit; compiled code only."""
    raise RuntimeError("for compiled code only")


@overload(is_mutual)
def _is_mutual_of(cost):
    kind = (cost.types[0] if cost.instance_class is Scaled else cost).instance_class
    # Hops lead away from the cells that have none.
    mutual = kind is not costs.Hops and not model_of(kind).directed
    return lambda cost: mutual


def join(cost, distance, weight):
    """Distance behind one more step, in compiled code."""
    raise RuntimeError("for compiled code only")


@overload(join)
def _join_of(cost, distance, weight):
    if _takes_maximum(cost.instance_class):
        return lambda cost, distance, weight: max(distance, weight)
    if isinstance(distance, types.Float):
        return lambda cost, distance, weight: distance + weight

    if cost.instance_class is Differences:
        return lambda cost, distance, weight: np.uint16(
            min(np.uint32(distance + weight), np.uint32(0xFFFF))
        )

    cast = np.uint32 if distance.bitwidth == 32 else np.uint64
    # Both are at most half of the range, see `infinity_of`: no sum wraps.
    return lambda cost, distance, weight: cast(distance + weight)


def infinity_of(a: np.ndarray) -> Any:
    """What stands for "not reached" in an array of distances: for integers, half of the range."""
    return np.inf if a.dtype.kind == "f" else np.iinfo(a.dtype).max >> 1


@overload(infinity_of)
def _compiled_infinity_of(a):
    if isinstance(a.dtype, types.Float):
        return lambda a: np.inf
    infinity = np.uint32(2**31 - 1) if a.dtype.bitwidth == 32 else np.uint64(2**63 - 1)
    return lambda a: infinity
