"""Check pieces and join them; `forest` explains the proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from ...errors import InputError, VerificationError
from ...facts import Findings
from ...grid import BlockGrid, Window, ceil_div
from ...grid.neighbours import DIRECTIONS
from ...wide import high_word, two_words, words_of
from ..weights import Weight, valid_cells
from .kernels import FAULTS, NODATA, kruskal, list_edges, skeleton, sort_by_key, sum_floats
from .pieces import CheckedPiece, ForestTally, PieceEdges, Side
from .tiles import check_tiles, new_words

UNIT = 128
"""Side of a tile, such that its edges stay in cache."""

SPAN = 8
"""Side in tiles of a square, which is checked without Python's lock."""


class Joiner:
    """Joins a grid of pieces, given in any order: alternately pairs in a row and in a column."""

    def __init__(self, checker: ForestChecker, shape: tuple[int, int]) -> None:
        self._checker, self._shape = checker, shape
        self._waiting: dict[tuple[int, int, int], CheckedPiece] = {}
        self.whole: CheckedPiece | None = None

    def add(self, i: int, j: int, piece: CheckedPiece, tally: ForestTally) -> None:
        down, across = self._shape
        step = 0
        while down > 1 or across > 1:
            beside = step % 2 == 0
            other = (step, i, j ^ 1) if beside else (step, i ^ 1, j)
            if other[1] < down and other[2] < across:
                if other not in self._waiting:
                    self._waiting[step, i, j] = piece
                    return
                first, second = self._waiting.pop(other), piece
                if (i, j) < other[1:]:
                    first, second = second, first
                piece = self._checker.join(first, second, beside, tally)
            if beside:
                j, across = j // 2, ceil_div(across, 2)
            else:
                i, down = i // 2, ceil_div(down, 2)
            step += 1
        self.whole = piece


def border(cells: np.ndarray, bits: np.ndarray, vertex: np.ndarray) -> tuple[Side, ...]:
    """Return the top, bottom, left and right side of a piece."""
    ends = (0,), (-1,), (slice(None), 0), (slice(None), -1)
    return tuple(Side(*(a[at].copy() for a in (cells, bits, vertex))) for at in ends)


class ForestChecker:
    """Checks pieces and joins them. It has no mutable state, so threads can share it."""

    def __init__(
        self,
        blocks: BlockGrid,
        weight: Weight,
        nodata: float | int | None,
        connectivity: int,
        unit: int,
    ) -> None:
        if connectivity not in (4, 8):
            raise InputError(f"connectivity {connectivity} is not 8 or 4")
        self.rows, self.cols = blocks.rows, blocks.cols
        self.weight, self.nodata, self.unit = weight, nodata, unit
        self.diagonal = connectivity == 8

    def block(
        self, window: Window, data: np.ndarray, bits: np.ndarray
    ) -> tuple[CheckedPiece, ForestTally]:
        """Check a block, piece by piece."""
        tally = ForestTally()
        corner, square = (window[0], window[2]), partial(self.square, tally=tally)
        return self.each(corner, data, bits, self.unit * SPAN, square, tally), tally

    def each(
        self,
        corner: tuple[int, int],
        data: np.ndarray,
        bits: np.ndarray,
        side: int,
        check: Callable[[tuple[int, int], np.ndarray, np.ndarray], CheckedPiece],
        tally: ForestTally,
    ) -> CheckedPiece:
        """Check parts of this side, and join them."""
        rows, cols = data.shape
        shape = ceil_div(rows, side), ceil_div(cols, side)
        joiner = Joiner(self, shape)
        for i, j in np.ndindex(shape):
            row, col = i * side, j * side
            part = slice(row, row + side), slice(col, col + side)
            piece = check((corner[0] + row, corner[1] + col), data[part], bits[part])
            joiner.add(i, j, piece, tally)
        assert joiner.whole is not None
        return joiner.whole

    def square(
        self, corner: tuple[int, int], data: np.ndarray, bits: np.ndarray, tally: ForestTally
    ) -> CheckedPiece:
        """Check the tiles of a square whose upper left cell is `corner`."""
        if self.weight.two_words:  # the words of tiles do not hold these
            piece = partial(self.piece, tally=tally)
            return self.each(corner, data, bits, self.unit, piece, tally)
        rows, cols = data.shape
        cells, valid = self.weight.operands(data), valid_cells(data, self.nodata)
        unit = min(self.unit, max(rows, cols))
        words, shift = new_words(unit, self.weight.key_bits)
        down, across = ceil_div(rows, unit), ceil_div(cols, unit)
        most = down * across * 4 * unit + 3 * ((down - 1) * cols + (across - 1) * rows)
        edges = PieceEdges.new(most, self.weight.key_dtype)
        vertex = np.full((rows, cols), -1, np.int32)
        weights = np.empty(min(most + data.size, 4 * data.size), self.weight.key_dtype)
        right, count, size, picked, checked = check_tiles(
            cells,
            valid,
            np.ascontiguousarray(bits),
            self.rule(corner[0], rows),
            self.diagonal,
            (*corner, self.rows, self.cols),
            unit,
            words,
            shift,
            tuple(edges),
            vertex,
            weights,
        )
        if not right:
            tally.refused = True
            # Kruskal's algorithm alone names edges.
            piece = partial(self.piece, tally=tally)
            return self.each(corner, data, bits, self.unit, piece, tally)
        tally.vertices += int(np.count_nonzero(valid))
        tally.checked += checked
        tally.edges += picked
        tally.weigh(self.exact(weights[:picked]))
        window = (corner[0], corner[0] + rows, corner[1], corner[1] + cols)
        return self.reduced(window, border(cells, bits, vertex), size, edges.first(count), tally)

    def rule(self, row: int, rows: int) -> np.ndarray | np.bool_:
        """Return how `check_tiles` weighs the edges of these rows."""
        if self.weight.per_length is None:
            return np.bool_(self.weight.subtracts)
        return np.ascontiguousarray(self.weight.per_length[:, row : row + rows])

    def piece(
        self, corner: tuple[int, int], data: np.ndarray, bits: np.ndarray, tally: ForestTally
    ) -> CheckedPiece:
        """Check the cells of a piece whose upper left cell is `corner`."""
        rows, cols = data.shape
        window = (corner[0], corner[0] + rows, corner[1], corner[1] + cols)
        cells, valid, bits = self.weight.operands(data), valid_cells(data, self.nodata), bits.copy()
        keys = np.empty((4, rows, cols), self.weight.key_dtype)
        row = np.arange(*window[:2])[:, None]
        keys[0, :, :-1] = self.keys(cells[:, :-1], cells[:, 1:], 0, row)
        keys[1, :-1, 1:] = self.keys(cells[:-1, 1:], cells[1:, :-1], 1, row[:-1])
        keys[2, :-1] = self.keys(cells[:-1], cells[1:], 2, row[:-1])
        keys[3, :-1, :-1] = self.keys(cells[:-1, :-1], cells[1:, 1:], 3, row[:-1])
        edges = PieceEdges.new(4 * data.size, keys.dtype)
        count, wrong, fault = list_edges(
            bits, valid, keys, self.diagonal, corner, (self.rows, self.cols), tuple(edges)
        )
        if fault:
            raise self.violation("edges", wrong, FAULTS[fault])
        edges = edges.first(count)
        self.count(edges, tally)
        tally.vertices += int(np.count_nonzero(valid))
        vertex = np.arange(data.size, dtype=np.int32).reshape(data.shape)
        vertex[~valid] = -1
        return self.reduced(window, border(cells, bits, vertex), data.size, edges, tally)

    def join(
        self, one: CheckedPiece, other: CheckedPiece, beside: bool, tally: ForestTally
    ) -> CheckedPiece:
        """Join two pieces: the second is right of the first (`beside`), or below it."""
        r0, _, c0, _ = one.window
        _, r1, _, c1 = other.window
        number = np.arange(one.size, one.size + other.size + 1, dtype=np.int32)
        number[-1] = -1
        above, under, left, right = one.sides
        top, bottom, west, east = (side.renumbered(number) for side in other.sides)
        if beside:
            row, col, step = r0, one.window[3] - 1, (1, 0)
            between = [
                self.between(right, west, 0, (row, col), step, tally),
                self.between(west.part(0, -1), right.part(1, None), 1, (row, col + 1), step, tally),
                self.between(right.part(0, -1), west.part(1, None), 3, (row, col), step, tally),
            ]
            sides = (above.followed_by(top), under.followed_by(bottom), left, east)
        else:
            row, col, step = one.window[1] - 1, c0, (0, 1)
            between = [
                self.between(under.part(1, None), top.part(0, -1), 1, (row, col + 1), step, tally),
                self.between(under, top, 2, (row, col), step, tally),
                self.between(under.part(0, -1), top.part(1, None), 3, (row, col), step, tally),
            ]
            sides = (above, bottom, left.followed_by(west), right.followed_by(east))
        lists = [one.edges, other.edges.shifted(one.size), *between]
        edges = PieceEdges(*(np.concatenate(arrays) for arrays in zip(*lists, strict=True)))
        size = one.size + other.size
        return self.reduced((r0, r1, c0, c1), sides, size, edges, tally)

    def between(
        self,
        lower: Side,
        upper: Side,
        direction: int,
        first: tuple[int, int],
        step: tuple[int, int],
        tally: ForestTally,
    ) -> PieceEdges:
        """List the edges from each cell of `lower` to that of `upper`; `first` is the first one."""
        count = len(lower.cells) if self.diagonal or direction % 2 == 0 else 0
        lower, upper = lower.part(0, count), upper.part(0, count)
        along = np.arange(count)
        ids = (first[0] + along * step[0]) * self.cols + first[1] + along * step[1]
        ids = 4 * ids + direction
        tree = (lower.bits >> direction) & 1 != 0
        good = (lower.vertex >= 0) & (upper.vertex >= 0)
        if (tree & ~good).any():
            raise self.violation("edges", int(ids[tree & ~good][0]), FAULTS[NODATA])
        ids, tree = ids[good], tree[good]
        keys = self.keys(lower.cells[good], upper.cells[good], direction, (ids >> 2) // self.cols)
        ends = lower.vertex[good], upper.vertex[good]
        edges = PieceEdges(keys, ids, *ends, tree, np.where(tree, -1, ids))
        self.count(edges, tally)
        return edges

    def reduced(
        self,
        window: Window,
        sides: tuple[Side, ...],
        size: int,
        edges: PieceEdges,
        tally: ForestTally,
    ) -> CheckedPiece:
        """Run Kruskal's algorithm on the edges of a piece; return its skeleton."""
        order = sort_by_key(edges.ids, np.arange(len(edges.ids)))
        for word in words_of(edges.keys):
            order = sort_by_key(word, order)
        positions, wrong = kruskal(order, edges.us, edges.vs, edges.tree, size)
        if wrong >= 0:
            raise self.left_out(edges, positions, wrong, size)
        edges = edges.take(positions)
        r0, r1, c0, c1 = window
        inside = (r0 > 0, r1 < self.rows, c0 > 0, c1 < self.cols)
        sides = tuple(s if near else s.part(0, 0) for s, near in zip(sides, inside, strict=True))
        terminal = np.zeros(size, np.bool_)
        for side in sides:
            terminal[side.vertex[side.vertex >= 0]] = True
        number, size_left, best, us, vs, strange, missing = skeleton(
            edges.us, edges.vs, edges.tree, edges.strange, terminal
        )
        if missing >= 0:
            tally.miss(int(edges.ids[missing]))
        keys, ids, tree = (np.take(a, best) for a in (edges.keys, edges.ids, edges.tree))
        edges = PieceEdges(keys, ids, us, vs, tree, strange)
        return CheckedPiece(
            window, tuple(side.renumbered(number) for side in sides), size_left, edges
        )

    def keys(self, a: np.ndarray, b: np.ndarray, direction: int, row: np.ndarray) -> np.ndarray:
        """Return the weights between operands as unsigned integers in the same order.

        `row` is the row of the lower endpoint of each edge.
        """
        if self.weight.subtracts_floats:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.abs(a - b).view(self.weight.key_dtype)
        high = np.maximum(a, b)
        if self.weight.per_length is None:
            return high - np.minimum(a, b) if self.weight.subtracts else high
        low = np.minimum(a, b)
        with np.errstate(over="ignore"):
            drop = high - low if high.dtype.kind == "u" else np.subtract(high, low, dtype="f8")
            slope = (drop * self.weight.per_length[direction][row]).astype(np.float32)
        order = Weight("max", self.weight.dtype) if high.dtype.kind == "f" else None
        height = high if order is None else order.operands(high)
        rest = (2**31 - 1 - slope.view(np.uint32)).astype(np.uint64)
        if self.weight.two_words:
            return two_words(height, rest)
        return height.astype(np.uint64) * 2**32 + rest

    # -- sums ------------------------------------------------------------------------------

    def count(self, edges: PieceEdges, tally: ForestTally) -> None:
        """Add edges of the grid to the tally."""
        keys = np.compress(edges.tree, edges.keys)
        tally.checked += len(edges.keys)
        tally.edges += len(keys)
        tally.weigh(self.exact(keys))

    def exact(self, keys: np.ndarray) -> int | float:
        """Sum keys; for real cells, sum weights in units of 2**-1126, possibly infinite."""
        if self.weight.two_words:
            keys = high_word(keys)
        elif self.weight.slopes:
            keys = (keys >> np.uint64(32)).astype(np.uint32)
        if self.weight.dtype.kind != "f":
            # In halves, because the sum of whole keys could overflow.
            half = 4 * keys.itemsize
            low, high = keys & keys.dtype.type(2**half - 1), keys >> keys.dtype.type(half)
            return int(low.sum(dtype=np.uint64)) + (int(high.sum(dtype=np.uint64)) << half)
        narrow = keys.itemsize == 4
        words = np.zeros((256 if narrow else 2048, 2), np.int64)
        sum_floats(keys, not self.weight.subtracts_floats, 23 if narrow else 52, words)
        if words[-1].any():
            return math.inf
        unit = 1126 - (149 if narrow else 1074)
        return sum(
            (int(words[k, 0]) + (int(words[k, 1]) << 32)) << (max(k - 1, 0) + unit)
            for k in np.flatnonzero(words.any(axis=1)).tolist()
        )

    def total(self, tally: ForestTally) -> int | float:
        """Return the sum of weights: exact for integers, correctly rounded for real cells."""
        dtype = self.weight.dtype
        if isinstance(tally.exact, float):
            return tally.exact
        if dtype.kind == "f":
            try:
                return float(Fraction(tally.exact, 2**1126))
            except OverflowError:
                return math.inf if tally.exact > 0 else -math.inf
        least = 0 if self.weight.subtracts else int(np.iinfo(dtype).min)
        return tally.exact + tally.edges * least

    def result(self, tally: ForestTally, expected: Findings | None) -> Findings:
        """Return the totals of a correct forest, and check them against the recorded ones."""
        totals = {
            "edges": tally.edges,
            "components": tally.vertices - tally.edges,
            "total_weight": self.total(tally),
        }
        for key, value in totals.items():
            if expected is None:
                break
            recorded = expected[key]
            if (float(recorded) if isinstance(recorded, str) else recorded) != value:
                raise VerificationError(
                    f"wrong totals: {key} is {value}, but {recorded} is recorded", "totals"
                )
        return {**totals, "checked_edges": tally.checked, "all_edges": True}

    # -- violations ------------------------------------------------------------------------

    def violation(self, check: str, edge: int, text: str) -> VerificationError:
        cell = edge >> 2
        return VerificationError(
            f"{_PROPERTIES[check]}: edge {self.name(edge)} {text}",
            check,
            cell // self.cols,
            cell % self.cols,
        )

    def left_out(
        self, edges: PieceEdges, positions: np.ndarray, wrong: int, size: int
    ) -> VerificationError:
        """Return the error of edge `wrong` of the forest, dropped after the edges `positions`."""
        terminal = np.zeros(size, np.bool_)
        terminal[[edges.us[wrong], edges.vs[wrong]]] = True
        kept_edges = edges.take(positions)
        _, _, best, _, _, strange, _ = skeleton(
            kept_edges.us, kept_edges.vs, kept_edges.tree, kept_edges.strange, terminal
        )
        # The skeleton is the path between its ends, as one edge; `wrong` may also be a path.
        edge, strange_id = int(edges.ids[wrong]), max(int(strange[0]), int(edges.strange[wrong]))
        if strange_id < 0:
            another = self.name(int(kept_edges.ids[best[0]]))
            return self.violation("acyclic", edge, f"closes a cycle through {another}")
        other = self.name(strange_id)
        return self.violation(
            "minimal",
            edge,
            f"is the largest of a cycle through {other}, which is not in the forest",
        )

    def name(self, edge: int) -> str:
        row, col = divmod(edge >> 2, self.cols)
        down, right = DIRECTIONS[edge & 3]
        return f"(row {row}, column {col})-(row {row + down}, column {col + right})"


_PROPERTIES = {
    "edges": "not an edge of the grid",
    "acyclic": "not acyclic",
    "spanning": "not spanning",
    "minimal": "not minimal",
}
