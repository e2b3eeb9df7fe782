"""Proof that a file holds the areas of classes of cells as polygons: `PolygonProof`.

A *side* of a class is an edge of one of its cells beyond which the class ends, with its cell on the
left. The file is right exactly when

1. the edges of the rings of each feature, cell by cell, are the sides of its class. Two sums of
   64-bit mixtures of class and side, over each block, tell whether they are the same: addition
   does not depend on order. Where they differ, the sides of that block are compared one by one;
2. no ring meets a corner twice; the first ring of each polygon leads round its area, the others
   round holes; and there are as many polygons as parts, of cells joined by their sides. A ring
   round an area holds all of each part beside it, so a polygon holds one part;
3. holes are in their polygons: the next side to the left of the leftmost one of a hole is of the
   same polygon, since the cells between are of one part;
4. classes are in their order, and the attributes follow from the rings (Green's theorem).

Blocks are read once. Memory holds a feature with its corners, 16 bytes for each block, and links
between the cells at the rims of blocks, which tell the number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...cells import is_nodata
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits, Read, check_blocks, plan_proof
from ...errors import VerificationError
from ...facts import JsonObject
from ...grid import Block, BlockGrid, GridSpec
from ...grid.lengths import area_units
from ...io.proof.line_files import FileRoom, LineFile, check_attributes, wrong_line
from ...io.proof.polygon_files import BATCH_BYTES, FilePolygons, read_polygons
from ...plurals import counted
from ...store import Layer
from ..drawing.levels import ContourLevels
from ..drawing.proof_mixing import SEEDS, mixed
from .proof_kernels import join_links, join_parts, misplaced_hole

_LINK_BYTES = 100
"""Memory for each cell at the rim of a block."""

_SOME, _SIDE_BYTES = 1 << 14, 100
"""Number of cells, or of sides of a feature, whose sides are held at a time; memory for a side."""

_PAIR, _PAIR_BYTES = np.dtype([("side", "<i8"), ("class", "<i8")]), 120
"""A side and its class, and the memory for one while those of a block are compared."""

_BEYOND = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Steps to what lies right of a side that leads east, north, west or south."""

_AHEAD = np.array([(0, 1), (-1, 0), (0, -1), (1, 0)])
_LEFT = np.array([(-1, 0), (-1, -1), (0, -1), (0, 0)])
"""Steps along a side, and from the corner where it begins to its cell."""


class Classes(Protocol):
    """What cells of a layer belong to."""

    @property
    def most(self) -> int:
        """To how many classes a cell may belong."""

    @property
    def cell_bytes(self) -> int:
        """Memory for a cell of a block while its classes are compared."""

    def of(self, values: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield int64 numbers of classes, and which cells have one; cells may have several."""

    def number(self, attributes: JsonObject) -> int | None:
        """The class of a feature; None if it is none."""

    def attributes(self, number: int) -> JsonObject:
        """The attributes of a class but cells and area."""


@dataclass(frozen=True)
class LabelClasses:
    """Each label is a class; `names` are those of the attribute name, None if it has none."""

    names: Any = None
    most = 1
    cell_bytes = 25

    def of(self, values: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield values.astype(np.int64), inside

    def number(self, attributes: JsonObject) -> int | None:
        found = attributes.get("label")
        return found if type(found) is int else None

    def attributes(self, number: int) -> JsonObject:
        own: JsonObject = {"label": number}
        return own if self.names is None else {**own, "name": self.names.get(number)}


@dataclass(frozen=True)
class BandClasses:
    """The values above one level, up to the next; or all up to a level, if cumulative."""

    levels: ContourLevels
    cumulative: bool = False
    cell_bytes = 50

    @property
    def most(self) -> int:
        return max(len(self.levels.breaks), 1) if self.cumulative else 1

    def of(self, values: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        reals, breaks = np.where(inside, values, 0).astype(np.float64), self.levels.breaks
        if not breaks:
            yield self._numbered(reals), inside
            return
        below = np.zeros(reals.shape, np.int64)
        for number, level in enumerate(breaks):
            if self.cumulative:
                yield np.full(reals.shape, number), inside & (reals <= level)
            below += reals > level
        if not self.cumulative:
            yield below, inside & (below < len(breaks))

    def _numbered(self, values: np.ndarray) -> np.ndarray:
        """The whole number k of the least level base + k * interval at or above each value."""
        base, interval = self.levels.base, self.levels.interval
        low = np.floor((values - base) / interval).astype(np.int64) - 2
        found = low.copy()
        for k in range(1, 5):  # a quotient is rounded
            found += base + (low + k - 1) * interval < values
        return found

    def number(self, attributes: JsonObject) -> int | None:
        upper = attributes.get("upper")
        if not self.levels.breaks:
            if type(upper) is not float:
                return None
            return int(self._numbered(np.array([upper]))[0])
        upper = np.inf if upper is None else upper
        there = self.levels.breaks
        return there.index(upper) if upper in there else None

    def attributes(self, number: int) -> JsonObject:
        lower, upper = self.levels.band(number)
        return {"lower": None if self.cumulative else lower, "upper": upper}


class _BlockSides(NamedTuple):
    """What is known of a block: digests of its sides, its inner parts, links of those at its rim,
    and the cells at the rim that have a class."""

    digest: tuple[int, int]
    parts: int
    links: np.ndarray
    rim: np.ndarray


@dataclass(frozen=True)
class _SidesOf:
    """Finds the sides of all classes in blocks."""

    classes: Classes
    blocks: BlockGrid
    nodata: float | int | None

    def __call__(self, at: Block, cells: list[np.ndarray]) -> _BlockSides:
        digest, parts, links, rims = [0, 0], 0, [np.empty((0, 2), np.int64)], []
        for turn, (labels, inside) in enumerate(self._classes(at, cells[0])):
            for some in self._sides(at, labels, inside):
                for k, words in enumerate(_mixed(_pairs(*some))):
                    digest[k] = (digest[k] + int(words.sum(dtype=np.uint64))) % 2**64
            count, found, rim = self._parts(at, labels, inside, turn)
            parts += count
            links += found
            rims.append(rim)
        return _BlockSides((digest[0], digest[1]), parts, np.concatenate(links),
                           np.concatenate([np.empty(0, np.int64), *rims]))  # fmt: skip

    def _classes(self, at: Block, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        inside = ~is_nodata(values, self.nodata)
        row, col = np.arange(r0 - 1, r1 + 1), np.arange(c0 - 1, c1 + 1)
        inside &= ((row >= 0) & (row < self.blocks.rows))[:, None]
        inside &= (col >= 0) & (col < self.blocks.cols)
        yield from self.classes.of(values, inside)

    def sides(self, at: Block, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Classes and sides of a block."""
        found = [some for one in self._classes(at, values) for some in self._sides(at, *one)]
        labels, sides = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return labels, sides

    def _sides(
        self, at: Block, labels: np.ndarray, inside: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield classes and sides, of some rows and one direction at a time."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows = max(_SOME // (c1 - c0), 1)
        for top, (way, (dy, dx)) in product(range(0, r1 - r0, rows), enumerate(_BEYOND)):
            end = min(top + rows, r1 - r0)
            own = np.s_[1 + top : 1 + end, 1:-1]
            there = np.s_[1 + top + dy : 1 + end + dy, 1 + dx : 1 + dx + c1 - c0]
            row, col = np.nonzero(inside[own] & ((labels[there] != labels[own]) | ~inside[there]))
            side = 4 * ((row + r0 + top) * self.blocks.cols + col + c0) + way
            yield labels[own][row, col], side

    def _parts(
        self, at: Block, labels: np.ndarray, inside: np.ndarray, turn: int
    ) -> tuple[int, list[np.ndarray], np.ndarray]:
        """The parts that do not meet the rim, links between cells there, and these cells."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = r1 - r0, c1 - c0
        first = (turn * self.blocks.rows + r0) * self.blocks.cols + c0
        parent = np.empty(rows * cols, np.int64)
        count = join_parts(labels, inside, parent)
        rim = np.zeros((rows, cols), bool)
        rim[[0, -1]] = rim[:, [0, -1]] = True
        here = np.flatnonzero(rim.ravel() & (parent >= 0))
        cells = first + here // cols * self.blocks.cols + here % cols
        roots, least, which = np.unique(parent[here], return_index=True, return_inverse=True)
        links = [np.stack((cells, cells[least][which]), axis=1)]
        below, beside = self.blocks.cols, 1
        for a, b, step, ids in (
            (np.s_[-2, 1:-1], np.s_[-1, 1:-1], below, (rows - 1) * below + np.arange(cols)),
            (np.s_[1:-1, -2], np.s_[1:-1, -1], beside, cols - 1 + np.arange(rows) * below),
        ):
            same = first + ids[inside[a] & inside[b] & (labels[a] == labels[b])]
            links.append(np.stack((same, same + step), axis=1))
        return count - len(roots), links, cells


class _Edges(NamedTuple):
    """The edges of the rings of a feature.

    Attributes
    ----------
    begin, way, length
        The corner where each begins, int64 (n, 2); its direction, and its number of sides.
    ring
        The ring of each.
    """

    begin: np.ndarray
    way: np.ndarray
    length: np.ndarray
    ring: np.ndarray

    @property
    def total(self) -> int:
        """The number of sides."""
        return int(self.length.sum())

    def sides(self, cols: int) -> Iterator[np.ndarray]:
        """Yield the ids of sides, 4 * cell + direction, in parts: edges may be very long."""
        ends = np.cumsum(self.length)
        for first in range(0, self.total, _SOME):
            side = np.arange(first, min(first + _SOME, self.total))
            edge = np.searchsorted(ends, side, side="right")
            ahead, way = side - (ends - self.length)[edge], self.way[edge]
            cell = self.begin[edge] + ahead[:, None] * _AHEAD[way] + _LEFT[way]
            yield 4 * (cell[:, 0] * cols + cell[:, 1]) + way


def _pairs(labels: np.ndarray | int, sides: np.ndarray) -> np.ndarray:
    found = np.empty(len(sides), _PAIR)
    found["side"], found["class"] = sides, labels
    return found


def _mixed(pairs: np.ndarray) -> Iterator[np.ndarray]:
    """Two mixtures of each class and side."""
    for seed in SEEDS:
        yield mixed(seed, pairs["class"].view(np.uint64), pairs["side"].view(np.uint64))


@dataclass
class PolygonProof:
    """What a file of polygons is checked against.

    Attributes
    ----------
    file
        The file.
    layer, classes
        The cells, and the classes that they belong to.
    """

    file: LineFile
    layer: Layer
    classes: Classes

    @staticmethod
    def plan(layer: Layer, limits: Limits, cell_bytes: int, most: int = 1) -> StreamPlan:
        """How blocks stream through the check; a cell belongs to at most so many classes."""
        blocks = layer.blocks
        rims = _LINK_BYTES * 2 * sum(blocks.sides) * blocks.count * most + 16 * blocks.count
        worker, held = cell_bytes * blocks.largest(1), rims + 2 * _SOME * _SIDE_BYTES + BATCH_BYTES
        return plan_proof(blocks, [Read(layer, 1)], limits, worker=worker, held=held)

    def run(self, limits: Limits) -> dict[str, int]:
        """Check everything; return the number of features, polygons and sides.

        Raises
        ------
        VerificationError
            at the first violation found.
        PlanError
            when the memory limit is too small, also for a feature.
        """
        classes, blocks = self.classes, self.layer.blocks
        plan = self.plan(self.layer, limits, classes.cell_bytes, classes.most)
        digests = np.zeros((blocks.count, 2), np.uint64)
        found = self._read_file(plan, limits, lambda pairs: self._add(digests, pairs))
        parts, links, rims = 0, [np.empty((0, 2), np.int64)], [np.empty(0, np.int64)]
        other: list[Block] = []

        def add(at: Block, one: _BlockSides) -> None:
            nonlocal parts
            parts += one.parts
            links.append(one.links)
            rims.append(one.rim)
            if tuple(digests[at[0] * blocks.shape[1] + at[1]].tolist()) != one.digest:
                other.append(at)

        sides = _SidesOf(self.classes, blocks, self.layer.nodata)
        check_blocks(plan, blocks, [Read(self.layer, 1)], sides, add, limits)
        if other:
            self._name(min(other), sides, plan, limits)
        vertices, ends = np.unique(np.concatenate(rims)), np.concatenate(links)
        ends = np.searchsorted(vertices, ends)
        parts += len(vertices) - int(join_links(ends, np.arange(len(vertices))))
        if parts != found["polygons"]:
            raise VerificationError(
                f"{self.file.path}: holds {counted(found['polygons'], 'polygon')}, but the cells "
                f"are {counted(parts, 'part')}; write it again with --overwrite",
                "polygons",
            )
        return found

    def _add(self, digests: np.ndarray, pairs: np.ndarray) -> None:
        """Add classes and sides to the digests of the blocks of the sides."""
        owner = self._owner(pairs["side"])
        for k, words in enumerate(_mixed(pairs)):
            np.add.at(digests[:, k], owner, words)

    def _owner(self, sides: np.ndarray) -> np.ndarray:
        blocks = self.layer.blocks
        row, col = np.divmod(sides >> 2, blocks.cols)
        found: np.ndarray = row // blocks.block * blocks.shape[1] + col // blocks.block
        return found

    # -- the file -------------------------------------------------------------------------------

    def _read_file(
        self, plan: StreamPlan, limits: Limits, take: Callable[[np.ndarray], None]
    ) -> dict[str, int]:
        units, unit = area_units(self.file.grid)
        above = np.append(0, np.cumsum(units))
        found = dict.fromkeys(("features", "polygons", "sides"), 0)
        before, held, count = None, list[np.ndarray](), 0
        for one in read_polygons(self.file, FileRoom(Excess.of(plan), "to verify a feature")):
            number = self.classes.number(one.attributes)
            if number is None or (before is not None and number <= before):
                why = "its class is none that follows"
                wrong_line(self.file.path, one.number, why, what="feature")
            before = number
            found["features"] += 1
            found["polygons"] += int(one.polygon[-1]) + 1
            for sides in self._checked(one, number, above, unit):
                held.append(_pairs(number, sides))
                count += len(sides)
                if count > _SOME:
                    take(np.concatenate(held))
                    found["sides"] += count
                    held, count = [], 0
            del one  # before the next one is read
        if held:
            take(np.concatenate(held))
        found["sides"] += count
        return found

    def _checked(
        self, one: FilePolygons, number: int, above: np.ndarray, unit: float
    ) -> Iterator[np.ndarray]:
        """Check a feature by itself; yield its sides in parts."""
        edges = self._edges(one)
        cells, area = self._measured(one, edges, above)
        right = {**self.classes.attributes(number), "cells": int(cells.sum())}
        right["area"] = float(area.sum() * unit)
        there = {key: value for key, value in one.attributes.items() if value is not None}
        right = {key: value for key, value in right.items() if value is not None}
        check_attributes(self.file.path, one.number, there, right, of="feature")
        self._check_rings(one, edges, cells)
        yield from edges.sides(self.file.grid.cols)

    def _edges(self, one: FilePolygons) -> _Edges:
        """The edges of a feature, each of which has cells of the raster on its left."""
        last = np.zeros(len(one.corners), bool)
        last[one.starts[1:] - 1] = True
        step = np.diff(one.corners, axis=0)[~last[:-1]]
        begin, ring = one.corners[~last], np.repeat(np.arange(len(one.polygon)),
                                                    np.diff(one.starts) - 1)  # fmt: skip
        length = np.abs(step).sum(axis=1)
        wrong = (step != 0).sum(axis=1) != 1
        if wrong.any():
            k = int(wrong.argmax())
            wrong_line(self.file.path, one.number, f"{_corner(begin[k])}: an edge does not follow "
                       "the edges of cells", what="feature")  # fmt: skip
        way = np.where(step[:, 1] > 0, 0, np.where(step[:, 0] < 0, 1,
                       np.where(step[:, 1] < 0, 2, 3)))  # fmt: skip
        beside = begin + _LEFT[way]
        for cell in (beside, beside + (length - 1)[:, None] * _AHEAD[way]):
            beyond = (cell < 0).any(axis=1) | (cell >= self.file.grid.shape).any(axis=1)
            if beyond.any():
                where = _corner(begin[int(beyond.argmax())])
                wrong_line(self.file.path, one.number, f"{where}: has the outside on its left",
                           what="feature")  # fmt: skip
        return _Edges(begin, way, length, ring)

    def _measured(
        self, one: FilePolygons, edges: _Edges, above: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells, and units of area, on the left of each ring; negative for holes."""
        row, col = edges.begin.T
        # Edges that lead north are right of their cells: these and all to the left are added; those
        # that lead south, left of their cells, take away what is left of these.
        end = row + edges.length * _AHEAD[edges.way, 0]
        cells, units = np.zeros((2, len(one.polygon)), np.int64)
        np.add.at(cells, edges.ring, col * (row - end))
        np.add.at(units, edges.ring, col * (above[row] - above[end]))
        return cells, units

    def _check_rings(self, one: FilePolygons, edges: _Edges, cells: np.ndarray) -> None:
        path, grid = self.file.path, self.file.grid

        def wrong(k: int, what: str) -> None:
            where = _corner(one.corners[one.starts[k]])
            wrong_line(path, one.number, f"{where}: the ring {what}", what="feature")

        first = np.append(True, one.polygon[1:] != one.polygon[:-1])
        if (turned := (cells > 0) != first).any():
            k = int(turned.argmax())
            wrong(k, "is the first of its polygon, but leads round a hole" if first[k] else
                  "leads round an area, where a hole is due")  # fmt: skip
        # Where a class has all four sides at a corner, rings turn: so these corners end edges.
        row, col = edges.begin.T
        key = row * (grid.cols + 1) + col
        order = np.lexsort((key, edges.ring))
        again = (np.diff(key[order]) == 0) & (np.diff(edges.ring[order]) == 0)
        if again.any():
            wrong(int(edges.ring[order][int(again.argmax())]), "meets a corner twice")
        end = row + edges.length * _AHEAD[edges.way, 0]
        upper, lower = np.minimum(row, end), np.maximum(row, end)
        upright = np.flatnonzero(edges.way % 2)
        upright = upright[np.lexsort((upper[upright], col[upright]))]
        sides = edges.ring[upright], upper[upright], lower[upright]
        k = misplaced_hole(*sides, one.polygon, first, np.full(grid.rows, -1))
        if k >= 0:
            wrong(k, "is a hole of another polygon")

    # -- messages -------------------------------------------------------------------------------

    def _name(self, at: Block, sides: _SidesOf, plan: StreamPlan, limits: Limits) -> None:
        """Name the first side in a block that only the file has, or only the cells."""
        blocks = self.layer.blocks
        owner = at[0] * blocks.shape[1] + at[1]
        kept, count, excess = [np.empty(0, _PAIR)], 0, Excess.of(plan)

        def has_room() -> bool:
            what = f"to name a wrong side in {self.file.path}"
            return excess.has_room(_PAIR_BYTES * count, what)

        def keep(pairs: np.ndarray) -> None:
            nonlocal count
            found = pairs[self._owner(pairs["side"]) == owner]
            count += len(found)
            if has_room():
                kept.append(found)
            else:
                kept.clear()

        self._read_file(plan, limits, keep)
        r0, r1, c0, c1 = blocks.window(*at)
        values = self.layer.read_ring((r0, r1, c0, c1), halo=1)
        right = _pairs(*sides.sides(at, values))
        count += len(right)
        has_room()
        excess.refuse()
        there = np.concatenate(kept)
        first = np.append(np.setxor1d(right, there), np.zeros(1, _PAIR))[0]
        side, number = first.tolist()
        row, col = divmod(side >> 2, blocks.cols)
        what = "no ring leads" if (right == first).any() else "a ring leads"
        about = ", ".join(f"{k} {v}" for k, v in self.classes.attributes(number).items())
        raise VerificationError(
            f"{self.file.path}: {what} along the {('south', 'east', 'north', 'west')[side & 3]} "
            f"side of row {row}, column {col} for the class of {about}; write it again with "
            "--overwrite",
            "polygons",
            row,
            col,
        )


def _corner(place: np.ndarray) -> str:
    return f"the corner above row {place[0]}, left of column {place[1]}"


def polygon_file(part: Path, path: Path, grid: GridSpec, layer: str, fields: Any) -> LineFile:
    """The file of an operation, before it has its name."""
    return LineFile(part, path, grid, layer, tuple(fields))
