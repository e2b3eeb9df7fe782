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

from ..edges import Max

LANES = 8
"""Distances of a cell that are relaxed together: eight float64 fill a cache line."""

_BITS, _INDEX = ir.IntType(LANES), ir.IntType(32)


class _Vectors:
    """Emits operations on vectors of an array."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any) -> None:
        self.builder = builder
        self.data = context.make_array(array)(context, builder, value).data
        self.floats = isinstance(array.dtype, types.Float)
        self.kind = ir.VectorType(context.get_data_type(array.dtype), LANES)
        self.align = array.dtype.bitwidth // 8

    def _pointer(self, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data, [at]), self.kind.as_pointer())

    def load(self, at: Any) -> Any:
        found = self.builder.load(self._pointer(at))
        found.align = self.align
        return found

    def store(self, value: Any, at: Any) -> None:
        self.builder.store(value, self._pointer(at)).align = self.align

    def splat(self, one: Any) -> Any:
        undefined = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(undefined, one, ir.Constant(_INDEX, 0))
        mask = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, undefined, mask)

    def less(self, a: Any, b: Any) -> Any:
        compare = self.builder.fcmp_ordered if self.floats else self.builder.icmp_unsigned
        return compare("<", a, b)

    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(b, a), b, a)

    def most(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(a, b), b, a)

    def join(self, way: Any, distances: Any, weight: Any) -> Any:
        """See `edges.join`."""
        if way.instance_class is Max:
            return self.most(distances, self.splat(weight))
        add = self.builder.fadd if self.floats else self.builder.add
        return add(distances, self.splat(weight))

    def lower(self, at: Any, new: Any) -> Any:
        """Lower the lanes at a position; returns a bit for each lane that changed."""
        old = self.load(at)
        less = self.less(new, old)
        self.store(self.builder.select(less, new, old), at)
        return self.builder.bitcast(less, _BITS)


@intrinsic
def relax_from(typing: Any, way: Any, distances: Any, at: Any, other: Any, weight: Any) -> Any:
    """Relax a cell from a neighbour; returns a bit for each lane that changed, uint8."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, other, weight = arguments
        lanes = _Vectors(context, builder, signature.args[1], array)
        return lanes.lower(at, lanes.join(signature.args[0], lanes.load(other), weight))

    number = distances.dtype
    return types.uint8(way, distances, types.int64, types.int64, number), emit


@intrinsic
def relax_from_row(
    typing: Any, way: Any, distances: Any, at: Any, other: Any, left: Any, straight: Any, right: Any
) -> Any:
    """Relax a cell from three neighbours in a row, of which the left one is at `other`."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, other, *weights = arguments
        lanes = _Vectors(context, builder, signature.args[1], array)
        found = None
        for number, weight in enumerate(weights):
            place = builder.add(other, ir.Constant(other.type, number * LANES))
            one = lanes.join(signature.args[0], lanes.load(place), weight)
            found = one if found is None else lanes.least(found, one)
        return lanes.lower(at, found)

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
        lanes = _Vectors(context, builder, signature.args[2], array)
        old = _Vectors(context, builder, signature.args[4], before).load(was)
        least = _Vectors(context, builder, signature.args[0], found)
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
