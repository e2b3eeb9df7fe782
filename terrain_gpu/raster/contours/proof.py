"""Proof that a file holds the contour lines of a layer: `IsolineProof`.

A level *crosses* a side between the centres of two neighbouring cells with a value if it is above
one of them, and not above the other. Where it does is interpolated. In a square of four such
sides, each crossing that leads in has one that leads out. Crossings that follow each other in one
place are one vertex. A *turn* is a level and three positions: of a vertex, of the one before and
the one after it; an end of a line lacks one of these.

The file is right exactly when its turns are those of the cells: all steps are among them, none
twice, and how they follow each other. Each vertex lies nearest to one cell, whose eight neighbours
tell all about its turn; so blocks are read once, with one ring of cells. Two sums of 64-bit
mixtures, over each of 1024 buckets, tell whether the turns are the same: addition does not depend
on order. Where they differ, those of some buckets are compared one by one.

An open line may end where it begins, at the centre of a cell beside one without a value: in the
file it looks like a ring. The turns with which such lines can begin are kept, and a ring with such
a turn is taken for an open line. If it is none, its end is a turn that the cells do not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

from ...cells import is_nodata
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits, Read, check_blocks, plan_proof
from ...errors import VerificationError
from ...facts import JsonObject
from ...grid import Block, BlockGrid, GridSpec
from ...grid.crs import grid_crs
from ...io.lines import lonlat_of
from ...io.proof.line_files import FileRoom, LineFile, check_attributes, read_positions, wrong_line
from ...plurals import counted
from ...store import Layer
from ..drawing.levels import ContourLevels
from ..drawing.proof_mixing import SEEDS, mixed

_STRIP = 1 << 13
"""Cells of a block that are looked at together."""

_CELL_BYTES, _CROSSING_BYTES = 250, 300
"""Memory for a cell of a strip, and for a crossing, of which there are two for each cell."""

_BATCH, _LINE, _VERTEX_BYTES = 1 << 15, 16, 250
"""Lines are compared in batches of about this many vertices. How many vertices take the memory of
what is known of a line, and the bytes of one."""

_BUCKETS, _NAMED = 1 << 10, 8
"""Buckets of turns, and of how many a wrong one is named."""

_LOOSE_BYTES, _KEPT_BYTES = 32, 200
_KEPT = np.dtype([("turn", "<u8"), ("number", "<i8"), ("level", "<f8"), ("x", "<f8"), ("y", "<f8")])
"""A turn of these: its mixture, the number of its line or 0, its level and its vertex."""


class _Turns(NamedTuple):
    """Turns of some lines: mixtures (2, n), levels, vertices (n, 2), and which begin or end."""

    mixed: np.ndarray
    level: np.ndarray
    at: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, level: np.ndarray, xy: np.ndarray, ways: tuple[np.ndarray, ...]) -> _Turns:
        """Turns of positions: the numbers of those before, at and after; -1 for none."""
        words = np.ascontiguousarray(xy).view(np.uint64).T
        before, at, after = ways
        found = np.empty((2, len(at)), np.uint64)
        levels = (level + 0.0).view(np.uint64)[at]  # SQLite has no -0.0
        for k, seed in enumerate(SEEDS):
            places = np.append(mixed(seed, *words), np.uint64(0))
            found[k] = mixed(seed, levels, places[before], places[at], places[after])
        return cls(found, level[at], xy[at], before < 0, after < 0)

    @property
    def bucket(self) -> np.ndarray:
        return self.mixed[1] >> np.uint64(54)

    def add_to(self, sums: np.ndarray) -> None:
        for k in range(2):
            np.add.at(sums[:, k], self.bucket, self.mixed[k])

    @property
    def loose(self) -> np.ndarray:
        """Those that begin where another one of their level ends: mixtures."""
        begins, ends = np.flatnonzero(self.begins), np.flatnonzero(self.ends)
        one, other = (
            mixed(SEEDS[0], *np.column_stack((self.level, self.at))[k].view(np.uint64).T)
            for k in (begins, ends)
        )
        found: np.ndarray = self.mixed[0][begins[np.isin(one, other)]]
        return found

    def some(self, buckets: tuple[int, ...], number: int | np.ndarray = 0) -> np.ndarray:
        """Those of some buckets; `number` tells their lines."""
        mine = np.isin(self.bucket, np.array(buckets, np.uint64))
        found = np.empty(int(mine.sum()), _KEPT)
        found["turn"], found["level"] = self.mixed[0][mine], self.level[mine]
        found["x"], found["y"] = self.at[mine].T
        found["number"] = np.broadcast_to(number, mine.shape)[mine]
        return found


class _Strip(NamedTuple):
    """Some rows of a block, with one ring of cells; `first` is the row and column of the ring.

    Attributes
    ----------
    heights, inside
        float64 and bool (h, w): the cells, and which have a value.
    reached
        int64 (h, w): the number of the first level above each cell.
    """

    heights: np.ndarray
    inside: np.ndarray
    reached: np.ndarray
    first: tuple[int, int]


class _Sides(NamedTuple):
    """Sides to the right of cells, row by row, then those below; of the cells of a strip.

    Attributes
    ----------
    one, other
        int64: the cells at their ends.
    low, high
        int64: the numbers of the levels that cross them, up to but without the last.
    """

    one: np.ndarray
    other: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, strip: _Strip) -> _Sides:
        ids = np.arange(strip.reached.size).reshape(strip.reached.shape)
        one = np.concatenate((ids[:, :-1].ravel(), ids[:-1].ravel()))
        other = np.concatenate((ids[:, 1:].ravel(), ids[1:].ravel()))
        reached, inside = strip.reached.ravel(), strip.inside.ravel()
        low = np.minimum(reached[one], reached[other])
        high = np.maximum(reached[one], reached[other])
        return cls(one, other, low, np.where(inside[one] & inside[other], high, low))

    def between(self, low: int, high: int) -> _Sides:
        """The same with the levels of a range."""
        ends = (np.clip(level, low, high) for level in (self.low, self.high))
        return _Sides(self.one, self.other, *ends)

    @property
    def crossings(self) -> int:
        return int((self.high - self.low).sum())

    def ranges(self, most: int) -> Iterator[_Sides]:
        """Yield the crossings by ranges of levels, each of at most so many or of one level."""
        due = [(int(self.low.min()), int(self.high.max()))] if len(self.low) else []
        while due:
            low, high = due.pop()
            found = self.between(low, high)
            if found.crossings > most and high - low > 1:
                middle = (low + high) // 2
                due += [(middle, high), (low, middle)]
            elif found.crossings:
                yield found


class _BlockTurns(NamedTuple):
    """Of a block: sums of its turns by buckets, turns that begin where others end, those kept."""

    sums: np.ndarray
    loose: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True)
class _TurnsOf:
    """Finds the turns of all contours in blocks, and keeps those of some buckets."""

    levels: ContourLevels
    grid: GridSpec
    blocks: BlockGrid
    nodata: float | int | None
    lonlat: bool
    buckets: tuple[int, ...] = ()

    def __call__(self, at: Block, cells: list[np.ndarray]) -> _BlockTurns:
        sums, loose = np.zeros((_BUCKETS, 2), np.uint64), [np.empty(0, np.uint64)]
        kept = [np.empty(0, _KEPT)]
        for strip in self._strips(at, cells[0]):
            for sides in _Sides.of(strip).ranges(2 * strip.heights.size):
                turns = self._turns(strip, sides)
                turns.add_to(sums)
                loose.append(turns.loose)
                if self.buckets:
                    kept.append(turns.some(self.buckets))
        return _BlockTurns(sums, np.concatenate(loose), np.concatenate(kept))

    def _strips(self, at: Block, values: np.ndarray) -> Iterator[_Strip]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows = max(_STRIP // (c1 - c0 + 2), 1)
        col = np.arange(c0 - 1, c1 + 1)
        for top in range(r0, r1, rows):
            row = np.arange(top - 1, min(top + rows, r1) + 1)
            own = values[row - r0 + 1]
            inside = ~is_nodata(own, self.nodata)
            inside &= ((row >= 0) & (row < self.blocks.rows))[:, None]
            inside &= (col >= 0) & (col < self.blocks.cols)
            if not inside.any():
                continue
            # Cells without a value lie at no other levels than those with one.
            heights = np.where(inside, own, own[inside][0]).astype(np.float64)
            self.levels.refuse(heights)
            yield _Strip(heights, inside, self._reached(heights), (top - 1, c0 - 1))

    def _reached(self, heights: np.ndarray) -> np.ndarray:
        breaks, base, interval = self.levels.parts
        if len(breaks):
            return np.searchsorted(breaks, heights, side="right").astype(np.int64)
        low = np.floor((heights - base) / interval).astype(np.int64) - 1
        found = low.copy()
        for k in range(4):  # a quotient is rounded
            found += base + (low + k) * interval <= heights
        return found

    def _turns(self, strip: _Strip, sides: _Sides) -> _Turns:
        """The turns whose vertices lie nearest to a cell of a strip that is not in its ring."""
        count = sides.high - sides.low
        first = np.cumsum(count) - count
        side = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(side)) - (first - sides.low)[side]
        level, (near, xy) = self._level(number), self._placed(strip, sides, side, number)
        row, col = np.divmod(near, strip.heights.shape[1])
        own = (row > 0) & (row < strip.heights.shape[0] - 1)
        own &= (col > 0) & (col < strip.heights.shape[1] - 1)
        after = self._following(strip, sides, first)
        there = np.flatnonzero(after >= 0)
        entered = np.zeros(len(side), bool)
        entered[after[there]] = True
        same = np.zeros(len(side), bool)
        same[there] = (xy[there] == xy[after[there]]).all(axis=1)
        # Of the crossings in one place: the first one, what comes before it, and the last one.
        steps, begins = there[~same[there]], np.flatnonzero(own & ~entered & (after >= 0))
        steps = steps[own[after[steps]]]
        before = np.append(steps, np.full(len(begins), -1))
        at = last = np.append(after[steps], begins)
        while (more := same[last]).any():
            last = np.where(more, after[last], last)
        ways = np.stack((before, at, after[last]))
        ways = ways[:, (ways[0] >= 0) | (ways[2] >= 0)]
        if self.lonlat:
            used = np.zeros(len(xy) + 1, bool)
            used[ways] = True  # no other vertex is in the file, nor need it have a longitude
            used = used[:-1]
            xy[used] = lonlat_of(xy[used], grid_crs(self.grid))
        a, _, _, _, e, _ = self.grid.transform
        return _Turns.of(level, xy, tuple(ways if a * e < 0 else ways[::-1]))

    def _level(self, number: np.ndarray) -> np.ndarray:
        breaks, base, interval = self.levels.parts
        found: np.ndarray = breaks[number] if len(breaks) else base + number * interval
        return found

    def _placed(
        self, strip: _Strip, sides: _Sides, side: np.ndarray, number: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest cell of each crossing, and its position."""
        begin, end = sides.one[side], sides.other[side]
        heights, level = strip.heights.ravel(), self._level(number)
        one, other = heights[begin], heights[end]
        with np.errstate(over="ignore"):
            far = np.flatnonzero(np.isinf(other - one))
        for numbers in (level, one, other):
            numbers[far] /= 2  # so that no difference exceeds the largest number
        share = (level - one) / (other - one)
        row, col = np.divmod(begin, strip.heights.shape[1])
        row, col, down = row + strip.first[0], col + strip.first[1], end - begin > 1
        a, _, c, _, e, f = self.grid.transform
        x = c + a * (col + 0.5 + np.where(down, 0.0, share))
        y = f + e * (row + 0.5 + np.where(down, share, 0.0))
        return np.where(share <= 0.5, begin, end), np.stack((x, y), axis=1)

    def _following(self, strip: _Strip, sides: _Sides, first: np.ndarray) -> np.ndarray:
        """The crossing to which each one leads through a square; -1 if there is none."""
        rows, cols = strip.heights.shape
        after = np.full(int((sides.high - sides.low).sum()), -1)
        four = [(slice(r, rows - 1 + r), slice(c, cols - 1 + c)) for r in (0, 1) for c in (0, 1)]
        reached = [strip.reached[one] for one in four]
        met = np.minimum.reduce(reached) < np.maximum.reduce(reached)
        row, col = np.nonzero(met & np.logical_and.reduce([strip.inside[one] for one in four]))
        # Clockwise: the corners from the upper left one on, and the sides from each to the next.
        corner = np.stack((row * cols + col,) * 4) + np.array([[0], [1], [cols + 1], [cols]])
        across, down = row * (cols - 1) + col, rows * (cols - 1) + row * cols + col
        around = np.stack((across, down + 1, across + cols - 1, down))
        low, high = sides.low[around].min(axis=0), sides.high[around].max(axis=0)
        square = np.repeat(np.arange(len(low)), high - low)
        number = np.arange(len(square)) - (np.cumsum(high - low) - high)[square]
        corner, around = corner[:, square], around[:, square]
        above = strip.reached.ravel()[corner] > number
        begins, ends = ~above & np.roll(above, -1, axis=0), above & ~np.roll(above, -1, axis=0)
        out, saddle = ends.argmax(axis=0), (above[0] == above[2]) & (above[1] == above[3])
        heights = strip.heights.ravel()[corner[:, saddle]]
        with np.errstate(all="ignore"):
            middle = ((heights[0] + heights[1]) + (heights[3] + heights[2])) / 4
        back = np.zeros(len(square), bool)
        back[saddle] = middle >= self._level(number[saddle])
        for k in range(4):
            mine = np.flatnonzero(begins[k])
            # In a saddle, round the low corner where the side begins, or round the high one.
            turned = np.where(back[mine], k + 3, k + 1) & 3
            way = np.where(saddle[mine], turned, out[mine])
            here, there = around[k, mine], around[way, mine]
            after[first[here] + number[mine] - sides.low[here]] = (
                first[there] + number[mine] - sides.low[there]
            )
        return after


def _worker_bytes(block: int) -> int:
    return (_STRIP + 3 * (block + 2)) * (_CELL_BYTES + 2 * _CROSSING_BYTES)


@dataclass
class IsolineProof:
    """What a file of contour lines is checked against.

    Attributes
    ----------
    file
        The file.
    layer, levels
        The cells, and the levels of the lines.
    """

    file: LineFile
    layer: Layer
    levels: ContourLevels

    @staticmethod
    def plan(layer: Layer, limits: Limits) -> StreamPlan:
        """How blocks stream through the check."""
        worker, held = _worker_bytes(layer.blocks.block), _BATCH * _VERTEX_BYTES
        reads = [Read(layer, 1)]
        return plan_proof(layer.blocks, reads, limits, worker=worker, held=held, measures=False)

    def run(self, limits: Limits) -> dict[str, int]:
        """Check everything; return the number of lines and vertices.

        Raises
        ------
        VerificationError
            at the first violation found.
        PlanError
            when the memory limit is too small, also for a line.
        """
        plan, sums = self.plan(self.layer, limits), np.zeros((_BUCKETS, 2), np.uint64)
        loose = self._of_cells(plan, limits, sums)
        there, found = np.zeros((_BUCKETS, 2), np.uint64), {"lines": 0, "vertices": 0}
        for turns, number in self._of_file(plan, limits, loose):
            turns.add_to(there)
            found["lines"] = int(number[-1])
            found["vertices"] += len(number)
        if len(other := np.flatnonzero((sums != there).any(axis=1))):
            self._name(tuple(other[:_NAMED].tolist()), plan, limits, loose)
        return found

    def _of_cells(self, plan: StreamPlan, limits: Limits, sums: np.ndarray) -> np.ndarray:
        """Add the turns of all cells to sums; returns those of lines that end where they begin."""
        loose, count, excess = [np.empty(0, np.uint64)], 0, Excess.of(plan)

        def add(at: Block, one: _BlockTurns) -> None:
            nonlocal count
            sums[:] += one.sums
            count += len(one.loose)
            lines = counted(
                count, "line that may end where it begins", "lines that may end where they begin"
            )
            if excess.has_room(_LOOSE_BYTES * count, f"to verify {lines}"):
                loose.append(one.loose)
            else:
                del loose[1:]

        blocks = self.layer.blocks
        check_blocks(plan, blocks, [Read(self.layer, 1)], self._finder(), add, limits)
        excess.refuse()
        return np.unique(np.concatenate(loose))

    def _finder(self, buckets: tuple[int, ...] = ()) -> _TurnsOf:
        of = self.levels, self.file.grid, self.layer.blocks, self.layer.nodata
        return _TurnsOf(*of, self.file.lonlat, buckets)

    # -- the file -------------------------------------------------------------------------------

    def _beside(self, plan: StreamPlan, loose: np.ndarray) -> Excess:
        """What is beyond the plan, and these lines."""
        return Excess.of(plan, beside=_LOOSE_BYTES * len(loose))

    def _of_file(
        self, plan: StreamPlan, limits: Limits, loose: np.ndarray
    ) -> Iterator[tuple[_Turns, np.ndarray]]:
        """Yield the turns of some lines, and the number of the line of each."""
        room = FileRoom(self._beside(plan, loose), "to verify a line")
        lines: list[np.ndarray] = []
        levels: list[float] = []
        gathered, before = 0, -math.inf
        number = 0
        for number, (attributes, xy) in enumerate(read_positions(self.file, room), 1):
            # The line as it was parsed is still there.
            if not room.has(_VERTEX_BYTES * max(len(xy) - _BATCH, 0) + 2 * xy.nbytes):
                continue
            before = self._level(number, attributes, before)
            levels.append(before)
            lines.append(xy)
            gathered += len(xy) + _LINE
            if gathered > _BATCH:
                yield self._turns(number - len(lines), levels, lines, loose)
                lines, levels, gathered = [], [], 0
        if lines:
            yield self._turns(number - len(lines), levels, lines, loose)

    def _level(self, number: int, attributes: JsonObject, before: float) -> float:
        path, level = self.file.path, attributes.get("level")
        if type(level) is not float or not self._asked(level):
            wrong_line(path, number, f"level {level!r} is none of those asked for", "attribute")
        if level < before:
            why = f"level {level!r} is less than that of the line before"
            wrong_line(path, number, why, "attribute")
        check_attributes(path, number, attributes, {"level": level})
        return level

    def _asked(self, level: float) -> bool:
        breaks, base, interval = self.levels.breaks, self.levels.base, self.levels.interval
        if breaks:
            return level in breaks
        with np.errstate(all="ignore"):
            number = np.rint((np.float64(level) - base) / interval)
        return bool(base + number * interval == level)

    def _turns(
        self, before: int, levels: list[float], lines: list[np.ndarray], loose: np.ndarray
    ) -> tuple[_Turns, np.ndarray]:
        """The turns of some lines, of which so many come before, and the lines of the turns."""
        sizes = np.array(list(map(len, lines)))
        ends = np.cumsum(sizes) - 1
        first, xy = ends - sizes + 1, np.concatenate(lines)
        number = np.repeat(np.arange(len(lines)), sizes)
        level, at = np.array(levels)[number], np.arange(len(xy))
        back, forth = at - 1, at + 1
        back[first] = forth[ends] = -1
        begins = _Turns.of(level, xy, (back[first], first, forth[first])).mixed[0]
        words = xy.view(np.uint64)
        rings = (words[first] == words[ends]).all(axis=1) & ~np.isin(begins, loose)
        back[first[rings]] = ends[rings] - 1
        at = np.delete(at, ends[rings])
        turns = _Turns.of(level, xy, (back[at], at, forth[at]))
        return turns, before + 1 + number[at]

    # -- messages -------------------------------------------------------------------------------

    def _name(
        self, buckets: tuple[int, ...], plan: StreamPlan, limits: Limits, loose: np.ndarray
    ) -> NoReturn:
        """Name a turn of some buckets that only the file has, or else only the cells."""
        kept = {"cells": [np.empty(0, _KEPT)], "file": [np.empty(0, _KEPT)]}
        excess, count = self._beside(plan, loose), 0

        def keep(where: str, found: np.ndarray) -> None:
            nonlocal count
            count += len(found)
            if excess.has_room(_KEPT_BYTES * count, f"to name what is wrong in {self.file.path}"):
                kept[where].append(found)
            else:
                del kept[where][1:]

        check_blocks(
            plan, self.layer.blocks, [Read(self.layer, 1)], self._finder(buckets),
            lambda at, one: keep("cells", one.kept), limits.quietly(),
        )  # fmt: skip
        for turns, number in self._of_file(plan, limits, loose):
            keep("file", turns.some(buckets, number))
        excess.refuse()
        right, there = np.sort(np.concatenate(kept["cells"])), np.concatenate(kept["file"])
        turn = np.unique(np.append(right["turn"], there["turn"]))
        due, found = _counted(turn, right), _counted(turn, there)
        path = self.file.path
        if len(more := turn[found > due]):
            one = there[np.isin(there["turn"], more)][-1]
            _, line, level, x, y = one.tolist()
            why = f"does not pass ({x!r}, {y!r}) as contours of level {level!r} do"
            if one["turn"] in right["turn"]:
                why = f"passes ({x!r}, {y!r}) once more than contours of level {level!r} do"
            wrong_line(path, line, why)
        one = right[np.isin(right["turn"], turn[found < due])][0]
        *_, level, x, y = one.tolist()
        raise VerificationError(
            f"{path}: no line passes ({x!r}, {y!r}) as a contour of level {level!r} does; write it "
            "again with --overwrite",
            "line",
        )


def _counted(turns: np.ndarray, among: np.ndarray) -> np.ndarray:
    """How often each of some turns occurs."""
    ordered = np.sort(among["turn"])
    found = (np.searchsorted(ordered, turns, side) for side in ("left", "right"))
    return np.diff(np.stack(list(found)), axis=0)[0]
