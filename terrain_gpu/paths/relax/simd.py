"""Vectors of the processor in compiled code, where numba does not find them by itself.

It vectorises no loop whose indices might be negative, since these count from the end, and none in
which each step waits for the one before. Arrays are flat; positions are those of first elements.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...grid import TILE
from ..cost.edges import Differences, Max

_INDEX = ir.IntType(32)
_WIDEST = 512
"""Bits of a vector. Where processors have shorter ones, LLVM takes several."""


SCANNED = 8
"""Rows that `scan_rows` scans together."""


class Vectors:
    """Emits operations on vectors of an array."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any, lanes: int) -> None:
        self.builder, self.lanes = builder, lanes
        self.data = context.make_array(array)(context, builder, value).data
        self.floats = isinstance(array.dtype, types.Float)
        self.kind = ir.VectorType(context.get_data_type(array.dtype), lanes)
        self.align = array.dtype.bitwidth // 8

    def _pointer(self, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data, [at]), self.kind.as_pointer())

    def load(self, at: Any) -> Any:
        found = self.builder.load(self._pointer(at))
        found.align = self.align
        return found

    def store(self, value: Any, at: Any) -> None:
        self.builder.store(value, self._pointer(at)).align = self.align

    def farthest(self) -> Any:
        """What stands for "not reached", as in `edges`, in all lanes."""
        bits = 8 * self.align
        whole = 2**bits - 1 if bits == 16 else 2 ** (bits - 1) - 1
        return ir.Constant(self.kind, [math.inf if self.floats else whole] * self.lanes)

    def splat(self, one: Any) -> Any:
        undefined = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(undefined, one, ir.Constant(_INDEX, 0))
        return self._shuffle(first, undefined, [0] * self.lanes)

    def _shuffle(self, a: Any, b: Any, chosen: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(_INDEX, self.lanes), chosen)
        return self.builder.shuffle_vector(a, b, mask)

    def lane(self, a: Any, n: int) -> Any:
        """One lane in all lanes; -1 is the last one."""
        return self._shuffle(a, a, [n % self.lanes] * self.lanes)

    def moved(self, a: Any, count: int, rest: Any) -> Any:
        """Lanes moved up, or down where `count` is negative; lanes of `rest` follow."""
        return self._shuffle(a, rest, [(x - count) % (2 * self.lanes) for x in range(self.lanes)])

    def all_of(self, value: int) -> Any:
        return ir.Constant(self.kind, [value] * self.lanes)

    def transpose(self, rows: list[Any]) -> list[Any]:
        """Transpose as many vectors as there are lanes.

        First within 128 bits, by instructions that interleave and take one cycle; then blocks.
        """
        rows, lanes = list(rows), range(self.lanes)
        side = 16 // self.align
        half = side // 2
        lower = [(j % 2) * self.lanes + j // side * side + j % side // 2 for j in lanes]
        upper = [j + half for j in lower]
        for _ in range(side.bit_length() - 1):
            pairs = [(n + i, n + i + half) for n in range(0, self.lanes, side) for i in range(half)]
            rows = [
                self._shuffle(rows[i], rows[k], mask) for i, k in pairs for mask in (lower, upper)
            ]
        while side < self.lanes:
            upper = [j if j & side == 0 else self.lanes + j - side for j in lanes]
            lower = [j + side if j & side == 0 else self.lanes + j for j in lanes]
            for i in lanes:
                if i & side == 0:
                    a, b = rows[i], rows[i + side]
                    rows[i], rows[i + side] = self._shuffle(a, b, upper), self._shuffle(a, b, lower)
            side *= 2
        return rows

    def less(self, a: Any, b: Any) -> Any:
        compare = self.builder.fcmp_ordered if self.floats else self.builder.icmp_unsigned
        return compare("<", a, b)

    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(b, a), b, a)

    def most(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.less(a, b), b, a)

    def join(self, way: Any, distances: Any, weights: Any) -> Any:
        """See `edges.join`."""
        if way.instance_class is Max:
            return self.most(distances, weights)
        if way.instance_class is Differences:
            return self.sum(distances, weights)
        add = self.builder.fadd if self.floats else self.builder.add
        return add(distances, weights)

    def difference(self, a: Any, b: Any) -> Any:
        return self.builder.sub(self.most(a, b), self.least(a, b))

    def sum(self, a: Any, b: Any) -> Any:
        """The sum of unsigned integers, at most the largest one."""
        return self._intrinsic("uadd.sat", self.kind, a, b)

    def least_of_all(self, a: Any) -> Any:
        """The least of all lanes, which hold unsigned integers."""
        return self._intrinsic("vector.reduce.umin", self.kind.element, a)

    def _intrinsic(self, name: str, result: Any, *operands: Any) -> Any:
        kind = ir.FunctionType(result, [self.kind] * len(operands))
        name = f"llvm.{name}.v{self.lanes}i{8 * self.align}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, operands)

    def lower(self, at: Any, new: Any) -> Any:
        """Lower the lanes at a position; returns, for each lane, whether it changed."""
        old = self.load(at)
        less = self.less(new, old)
        self.store(self.builder.select(less, new, old), at)
        return less

    def bits(self, lanes: Any) -> Any:
        """Pack one bit of each lane into an integer."""
        return self.builder.bitcast(lanes, ir.IntType(self.lanes))


@intrinsic
def enter_tile(
    typing: Any, distances: Any, heights: Any, absent: Any, at: Any, stride: Any, into: Any
) -> Any:
    """Copy the heights of a tile with its halo of one cell; return its least distance.

    Parameters
    ----------
    distances, heights, absent
        Of the block: uint32, uint16 and uint8.
    at, stride
        Where the halo begins, and from one row to the next.
    into
        Receives the heights.

    Returns
    -------
    least
        uint32; the largest one if cells of the tile are absent.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size, side, parts = ir.IntType(64), TILE + 2, []
        for k in (0, 1, 2, 5):
            kind = signature.args[k]
            lanes = _WIDEST // kind.dtype.bitwidth
            parts.append(Vectors(context, builder, kind, arguments[k], lanes))
        distances, heights, absent, into = parts
        at, stride = arguments[3:5]
        least = cgutils.alloca_once_value(
            builder, ir.Constant(distances.kind, [2**32 - 1] * distances.lanes)
        )
        gone = cgutils.alloca_once_value(builder, ir.Constant(absent.kind, [0] * TILE))

        def places(first: Any, lanes: int) -> list[Any]:
            """Where the vectors of a row begin; the last one overlaps."""
            begins = [*range(0, side - lanes, lanes), side - lanes]
            return [builder.add(first, size(x)) for x in begins]

        with cgutils.for_range(builder, size(side)) as loop:
            row = builder.add(at, builder.mul(loop.index, stride))
            found = builder.load(least)
            for place in places(row, distances.lanes):
                found = distances.least(found, distances.load(place))
            builder.store(found, least)
            own = places(builder.mul(loop.index, size(side)), into.lanes)
            for place, there in zip(places(row, heights.lanes), own, strict=True):
                into.store(heights.load(place), there)
        inside = builder.add(at, builder.add(stride, size(1)))
        with cgutils.for_range(builder, size(TILE)) as loop:
            row = builder.add(inside, builder.mul(loop.index, stride))
            builder.store(builder.or_(builder.load(gone), absent.load(row)), gone)
        bits = builder.bitcast(builder.load(gone), ir.IntType(_WIDEST))
        missing = builder.icmp_unsigned("!=", bits, bits.type(0))
        found = distances.least_of_all(builder.load(least))
        return builder.select(missing, found.type(2**32 - 1), found)

    size = types.int64
    return types.uint32(distances, heights, absent, size, size, into), emit


@intrinsic
def relax_row(
    typing: Any, way: Any, distances: Any, at: Any, others: Any, weights: Any, begins: Any
) -> Any:
    """Relax a row of a tile from other rows; returns whether anything changed.

    Parameters
    ----------
    at
        Where the row begins.
    others, begins
        Tuples, for each kind of step: where the first cell's neighbour lies, and where the costs of
        these steps begin.
    weights
        Costs of steps; for `Differences` heights, which lie as distances do.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, others, costs, begins = arguments
        way, size = signature.args[0], ir.IntType(64)
        lanes = _WIDEST // signature.args[1].dtype.bitwidth
        cells = Vectors(context, builder, signature.args[1], array, lanes)
        prices = Vectors(context, builder, signature.args[4], costs, lanes)
        steps = [cgutils.unpack_tuple(builder, places) for places in (others, begins)]
        changed = None
        for x in range(0, TILE, lanes):
            found = None
            for there, begin in zip(*steps, strict=True):
                distance = cells.load(builder.add(there, size(x)))
                if way.instance_class is Differences:
                    own, other = (prices.load(builder.add(n, size(x))) for n in (at, there))
                    price = prices.difference(own, other)
                else:
                    price = prices.load(builder.add(begin, size(x)))
                one = cells.join(way, distance, price)
                found = one if found is None else cells.least(found, one)
            less = cells.lower(builder.add(at, size(x)), found)
            changed = less if changed is None else builder.or_(changed, less)
        bits = cells.bits(changed)
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(way, distances, types.int64, others, weights, begins), emit


@intrinsic
def scan_rows(
    typing: Any,
    way: Any,
    distances: Any,
    at: Any,
    stride: Any,
    weights: Any,
    from_left: Any,
    from_right: Any,
) -> Any:
    """Relax the cells of `scanned` rows one after another, rightwards and then leftwards.

    A row is a lane, so columns are vectors: squares of cells are transposed in registers. The cells
    beside the tile are left out: nothing in it is farther than these and one step (`from_sides`).

    Parameters
    ----------
    at, stride
        Where the first row begins, and from one row to the next.
    from_left, from_right
        Where the costs of steps from these sides into the first row begin.

    Returns
    -------
    changed
        A bit for each row, the lowest for the first one; uint8 or uint16.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, stride, costs, from_left, from_right = arguments
        way, size = signature.args[0], ir.IntType(64)
        lanes = SCANNED
        cells = Vectors(context, builder, signature.args[1], array, lanes)
        prices = Vectors(context, builder, signature.args[4], costs, lanes)
        rows = [builder.add(at, builder.mul(stride, size(r))) for r in range(lanes)]
        columns = cgutils.alloca_once(builder, ir.ArrayType(cells.kind, TILE))
        passed = cgutils.alloca_once(builder, cells.kind)
        changed = cgutils.alloca_once(builder, ir.VectorType(ir.IntType(1), lanes))
        builder.store(ir.Constant(changed.type.pointee, None), changed)

        def column(x: Any) -> Any:
            return builder.gep(columns, [size(0), x])

        def square(first: Any, begin: Any, old: list[Any], backwards: bool) -> list[Any]:
            """Relax the columns of a square from left to right, or from right to left."""
            order = list(reversed(range(lanes)) if backwards else range(lanes))
            lines = [builder.add(first, size(r * TILE)) for r in range(lanes)]
            lines = [prices.load(builder.add(begin, line)) for line in lines]
            steps = prices.transpose(lines)
            last, lower, new = builder.load(passed), builder.load(changed), list(old)
            for x in order:
                there = cells.join(way, last, steps[x])
                less = cells.less(there, old[x])
                new[x] = last = builder.select(less, there, old[x])
                lower = builder.or_(lower, less)
            builder.store(last, passed)
            builder.store(lower, changed)
            return new

        count = size(TILE // lanes)
        builder.store(cells.farthest(), passed)
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(loop.index, size(lanes))
            old = cells.transpose([cells.load(builder.add(row, first)) for row in rows])
            for x, new in enumerate(square(first, from_left, old, backwards=False)):
                builder.store(new, column(builder.add(first, size(x))))
        builder.store(cells.farthest(), passed)
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(builder.sub(size(TILE // lanes - 1), loop.index), size(lanes))
            old = [builder.load(column(builder.add(first, size(x)))) for x in range(lanes)]
            new = cells.transpose(square(first, from_right, old, backwards=True))
            for row, line in zip(rows, new, strict=True):
                cells.store(line, builder.add(row, first))
        return cells.bits(builder.load(changed))

    size = types.int64
    return types.uint8(way, distances, size, size, weights, size, size), emit


@intrinsic
def close_row(typing: Any, distances: Any, heights: Any, at: Any) -> Any:
    """Relax a row of a tile with `Differences` rightwards and leftwards, to the end.

    The least of all sums along the row is found without waiting for each step: distances and the
    costs of all steps from there to the end of the row are added, the least of those before is
    taken, and the costs are subtracted again.

    Parameters
    ----------
    heights
        They lie as distances do.
    at
        Where the row begins.

    Returns
    -------
    total
        uint16: the cost of the whole row. Only sums with it that fit 16 bits are right.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, ground, at = arguments
        size, lanes = ir.IntType(64), _WIDEST // 16
        cells = Vectors(context, builder, signature.args[0], array, lanes)
        prices = Vectors(context, builder, signature.args[1], ground, lanes)
        places = [builder.add(at, size(x)) for x in range(0, TILE, lanes)]
        steps = [2**k for k in range(lanes.bit_length() - 1)]
        last = len(places) - 1

        def sum_to_end(costs: Any, more: Any) -> Any:
            for step in steps:
                costs = cells.sum(costs, cells.moved(costs, -step, cells.all_of(0)))
            return costs if more is None else cells.sum(costs, more)

        def least_so_far(values: list[Any], way: int) -> list[Any]:
            """The least of each lane and all before it, or after it."""
            found: list[Any] = []
            for value in values[::way]:
                least = value
                for step in steps:
                    least = cells.least(least, cells.moved(least, way * step, cells.farthest()))
                if found:
                    least = cells.least(least, cells.lane(found[-1], -1 if way == 1 else 0))
                found.append(least)
            return found[::way]

        ends: list[Any] = [None] * len(places)
        for n, place in reversed(list(enumerate(places))):
            costs = prices.difference(prices.load(place), prices.load(builder.add(place, size(1))))
            if n == last:  # the step out of the tile does not count
                inside = ir.Constant(cells.kind, [2**16 - 1] * (lanes - 1) + [0])
                costs = builder.and_(costs, inside)
            ends[n] = sum_to_end(costs, None if n == last else cells.lane(ends[n + 1], 0))
        total = cells.lane(ends[0], 0)
        starts = [builder.sub(total, one) for one in ends]
        old = [cells.load(place) for place in places]
        found = []
        for costs, way in ((ends, 1), (starts, -1)):
            sums = [cells.sum(*both) for both in zip(old, costs, strict=True)]
            least = least_so_far(sums, way)
            found.append([builder.sub(*both) for both in zip(least, costs, strict=True)])
        for place, *both in zip(places, *found, strict=True):
            cells.store(cells.least(*both), place)
        return builder.extract_element(total, _INDEX(0))

    return types.uint16(distances, heights, types.int64), emit
