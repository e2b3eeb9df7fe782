"""Distances of a cell from several sources, its lanes, as one vector of the processor.

numba does not vectorise a loop over so few values, since they might overlap with others in memory.
These functions state it: each reads whole vectors before it writes one. Arrays are flat; positions
are those of a cell's first lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..relax.simd import Vectors

LANES = 8
"""Distances of a cell that are relaxed together: eight float64 fill a cache line."""


@intrinsic
def relax_from(typing: Any, way: Any, distances: Any, at: Any, other: Any, weight: Any) -> Any:
    """Relax a cell from a neighbour; returns a bit for each lane that changed, uint8."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, other, weight = arguments
        lanes = Vectors(context, builder, signature.args[1], array, LANES)
        new = lanes.join(signature.args[0], lanes.load(other), lanes.splat(weight))
        return lanes.bits(lanes.lower(at, new))

    number = distances.dtype
    return types.uint8(way, distances, types.int64, types.int64, number), emit


@intrinsic
def relax_from_row(
    typing: Any, way: Any, distances: Any, at: Any, other: Any, left: Any, straight: Any, right: Any
) -> Any:
    """Relax a cell from three neighbours in a row, of which the left one is at `other`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, other, *weights = arguments
        lanes = Vectors(context, builder, signature.args[1], array, LANES)
        found = None
        for number, weight in enumerate(weights):
            place = builder.add(other, ir.Constant(other.type, number * LANES))
            one = lanes.join(signature.args[0], lanes.load(place), lanes.splat(weight))
            found = one if found is None else lanes.least(found, one)
        return lanes.bits(lanes.lower(at, found))

    number = distances.dtype
    sizes = types.int64, types.int64
    return types.uint8(way, distances, *sizes, number, number, number), emit


@intrinsic
def note_lowered(
    typing: Any,
    found: Any,
    k: Any,
    distances: Any,
    at: Any,
    before: Any,
    was: Any,
    a: Any,
    b: Any,
    c: Any,
) -> Any:
    """Lower vector `k` of `found` to the lanes that were lowered, and may lower a neighbour.

    `before` holds the former distances, the cell's at `was`; `a`, `b` and `c` are its neighbours on
    the other side.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found, k, array, at, before, was, *others = arguments
        lanes = Vectors(context, builder, signature.args[2], array, LANES)
        old = Vectors(context, builder, signature.args[4], before, LANES).load(was)
        least = Vectors(context, builder, signature.args[0], found, LANES)
        new = lanes.load(at)
        beyond = [lanes.load(other) for other in others]
        farther = lanes.less(new, lanes.most(lanes.most(beyond[0], beyond[1]), beyond[2]))
        relevant = builder.and_(lanes.less(new, old), farther)
        place = builder.mul(k, ir.Constant(k.type, LANES))
        now = least.load(place)
        least.store(builder.select(relevant, lanes.least(now, new), now), place)
        return context.get_dummy_value()

    size = types.int64
    return types.void(found, size, distances, size, before, size, size, size, size), emit
