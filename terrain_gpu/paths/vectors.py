"""Vectors of the processor in compiled code, where numba does not find them by itself.

It vectorises no loop whose indices might be negative, since these count from the end, and none in
which each step waits for the one before. Arrays are flat; positions are those of first elements.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..grid import TILE
from .edges import Max

SCANNED = 8
"""Rows that `scan_rows` scans together."""

_INDEX = ir.IntType(32)
_WIDEST = 512
"""Bits of a vector. Where processors have shorter ones, LLVM takes several."""


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

    def gather(self, places: list[Any]) -> Any:
        found = ir.Constant(self.kind, ir.Undefined)
        for n, at in enumerate(places):
            one = self.builder.load(self.builder.gep(self.data, [at]))
            found = self.builder.insert_element(found, one, ir.Constant(_INDEX, n))
        return found

    def splat(self, one: Any) -> Any:
        undefined = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(undefined, one, ir.Constant(_INDEX, 0))
        return self._shuffle(first, undefined, [0] * self.lanes)

    def _shuffle(self, a: Any, b: Any, chosen: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(_INDEX, self.lanes), chosen)
        return self.builder.shuffle_vector(a, b, mask)

    def transpose(self, rows: list[Any]) -> list[Any]:
        """Transpose as many vectors as there are lanes: blocks of 1, then of 2, of 4, ..."""
        rows, side, lanes = list(rows), 1, range(self.lanes)
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
        add = self.builder.fadd if self.floats else self.builder.add
        return add(distances, weights)

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
                one = cells.join(way, distance, prices.load(builder.add(begin, size(x))))
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
    """Relax the cells of `SCANNED` rows one after another, rightwards and then leftwards.

    A row is a lane, so columns are vectors: squares of cells are transposed in registers.

    Parameters
    ----------
    at, stride
        Where the first row begins, and from one row to the next.
    from_left, from_right
        Where the costs of steps from these sides into the first row begin.

    Returns
    -------
    changed
        A bit for each row, the lowest for the first one; uint8.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, array, at, stride, costs, from_left, from_right = arguments
        way, size = signature.args[0], ir.IntType(64)
        cells = Vectors(context, builder, signature.args[1], array, SCANNED)
        prices = Vectors(context, builder, signature.args[4], costs, SCANNED)
        rows = [builder.add(at, builder.mul(stride, size(r))) for r in range(SCANNED)]
        columns = cgutils.alloca_once(builder, ir.ArrayType(cells.kind, TILE))
        passed = cgutils.alloca_once(builder, cells.kind)
        changed = cgutils.alloca_once(builder, ir.VectorType(ir.IntType(1), SCANNED))
        builder.store(ir.Constant(changed.type.pointee, None), changed)

        def column(x: Any) -> Any:
            return builder.gep(columns, [size(0), x])

        def square(first: Any, begin: Any, old: list[Any], backwards: bool) -> list[Any]:
            """Relax the columns of a square from left to right, or from right to left."""
            lines = [builder.add(begin, builder.add(first, size(r * TILE))) for r in range(SCANNED)]
            steps = prices.transpose([prices.load(line) for line in lines])
            last, lower, new = builder.load(passed), builder.load(changed), list(old)
            for x in reversed(range(SCANNED)) if backwards else range(SCANNED):
                there = cells.join(way, last, steps[x])
                less = cells.less(there, old[x])
                new[x] = last = builder.select(less, there, old[x])
                lower = builder.or_(lower, less)
            builder.store(last, passed)
            builder.store(lower, changed)
            return new

        count = size(TILE // SCANNED)
        builder.store(cells.gather([builder.sub(row, size(1)) for row in rows]), passed)
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(loop.index, size(SCANNED))
            old = cells.transpose([cells.load(builder.add(row, first)) for row in rows])
            for x, new in enumerate(square(first, from_left, old, backwards=False)):
                builder.store(new, column(builder.add(first, size(x))))
        builder.store(cells.gather([builder.add(row, size(TILE)) for row in rows]), passed)
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(builder.sub(size(TILE // SCANNED - 1), loop.index), size(SCANNED))
            old = [builder.load(column(builder.add(first, size(x)))) for x in range(SCANNED)]
            new = cells.transpose(square(first, from_right, old, backwards=True))
            for row, line in zip(rows, new, strict=True):
                cells.store(line, builder.add(row, first))
        return cells.bits(builder.load(changed))

    size = types.int64
    return types.uint8(way, distances, size, size, weights, size, size), emit
