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

Blocks are read once. Memory holds a feature with its sides, 16 bytes for each block, and links
between the cells at the rims of blocks, which tell the number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...cells import is_nodata
from ...engine.plan import Excess, StreamPlan
from ...engine.proof import Limits, Read, check_blocks, plan_proof
from ...errors import VerificationError
from ...grid import Block, BlockGrid
from ...grid.lengths import area_units
from ...io.proof.line_files import FileRoom, LineFile, check_attributes, wrong_line
from ...io.proof.polygon_files import FilePolygons, read_polygons
from ...plurals import counted
from ...store import Layer
from ..drawing.levels import ContourLevels
from ..drawing.proof_mixing import SEEDS, mixed
from .proof_kernels import join_links, join_parts

_CELL_BYTES, _SIDE_BYTES, _LINK_BYTES = 120, 150, 100
"""Memory for a cell of a block and a side of a feature, and for each cell at the rim of a block."""

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

    def of(self, values: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield int64 numbers of classes, and which cells have one; cells may have several."""

    def number(self, attributes: dict[str, Any]) -> int | None:
        """The class of a feature; None if it is none."""

    def attributes(self, number: int) -> dict[str, Any]:
        """The attributes of a class but cells and area."""


@dataclass(frozen=True)
class LabelClasses:
    """Each label is a class; `names` are those of the attribute name, None if it has none."""

    names: Any = None
    most = 1

    def of(self, values: np.ndarray, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield values.astype(np.int64), inside

    def number(self, attributes: dict[str, Any]) -> int | None:
        found = attributes.get("label")
        return found if type(found) is int else None

    def attributes(self, number: int) -> dict[str, Any]:
        own: dict[str, Any] = {"label": number}
        return own if self.names is None else {**own, "name": self.names.get(number)}


@dataclass(frozen=True)
class BandClasses:
    """The values above one level, up to the next; or all up to a level, if cumulative."""

    levels: ContourLevels
    cumulative: bool = False

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

    def number(self, attributes: dict[str, Any]) -> int | None:
        upper = attributes.get("upper")
        if not self.levels.breaks:
            if type(upper) is not float:
                return None
            return int(self._numbered(np.array([upper]))[0])
        upper = np.inf if upper is None else upper
        there = self.levels.breaks
        return there.index(upper) if upper in there else None

    def attributes(self, number: int) -> dict[str, Any]:
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
    nodata: Any

    def __call__(self, at: Block, cells: list[np.ndarray]) -> _BlockSides:
        digest, parts, links, rims = [0, 0], 0, [np.empty((0, 2), np.int64)], []
        for turn, (labels, inside) in enumerate(self._classes(at, cells[0])):
            for k, more in enumerate(_mixed(*self._sides(at, labels, inside))):
                digest[k] = (digest[k] + more) % 2**64
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
        found = [self._sides(at, *one) for one in self._classes(at, values)]
        labels, sides = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return labels, sides

    def _sides(
        self, at: Block, labels: np.ndarray, inside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        here, valid = labels[1:-1, 1:-1], inside[1:-1, 1:-1]
        all_labels, all_sides = [], []
        for way, (dy, dx) in enumerate(_BEYOND):
            there = np.s_[1 + dy : 1 + dy + r1 - r0, 1 + dx : 1 + dx + c1 - c0]
            row, col = np.nonzero(valid & ((labels[there] != here) | ~inside[there]))
            all_labels.append(here[row, col])
            all_sides.append(4 * ((row + r0) * self.blocks.cols + col + c0) + way)
        return np.concatenate(all_labels), np.concatenate(all_sides)

    def _parts(
        self, at: Block, labels: np.ndarray, inside: np.ndarray, turn: int
    ) -> tuple[int, list[np.ndarray], np.ndarray]:
        """The parts that do not meet the rim, links between cells there, and these cells."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = r1 - r0, c1 - c0
        ids = (np.arange(r0 - 1, r1 + 1)[:, None] * self.blocks.cols) + np.arange(c0 - 1, c1 + 1)
        ids += turn * self.blocks.rows * self.blocks.cols
        parent = np.empty(rows * cols, np.int64)
        own = np.s_[1:-1, 1:-1]
        count = join_parts(
            np.ascontiguousarray(labels[own]), np.ascontiguousarray(inside[own]), parent
        )
        rim = np.zeros((rows, cols), bool)
        rim[[0, -1]] = rim[:, [0, -1]] = True
        here = np.flatnonzero(rim.ravel() & (parent >= 0))
        cells = ids[own].ravel()[here]
        roots, first, which = np.unique(parent[here], return_index=True, return_inverse=True)
        links = [np.stack((cells, cells[first][which]), axis=1)]
        for a, b in (
            (np.s_[-2, 1:-1], np.s_[-1, 1:-1]),
            (np.s_[1:-1, -2], np.s_[1:-1, -1]),
        ):
            same = inside[a] & inside[b] & (labels[a] == labels[b])
            links.append(np.stack((ids[a][same], ids[b][same]), axis=1))
        return count - len(roots), links, cells


class _FeatureRoom(FileRoom):
    """The memory for features while the one before is still there.

    Features are read, and their sides counted, also after one that had no room.
    """

    _before = _there = _own = 0
    """Bytes of the feature before, those that are there of it, and of this feature."""

    def has(self, size: int) -> bool:
        self._own = max(self._own, size)  # of a row, after its group of rows
        fits = self.excess.memory + self._there + self._own <= self.excess.limit
        if not fits:
            self._own *= 2  # its sides, not known yet, seldom take more
            super().has(self._before + self._own)
            self.done(there=0)
        return fits

    def has_sides(self, size: int) -> bool:
        """Whether the feature that was read may take so many bytes more."""
        self._own += size
        fits = super().has(self._before + self._own)
        if not fits:
            self.done(there=self._own - size)
        return fits

    def done(self, there: int | None = None) -> None:
        """Go on to the next feature."""
        self._before, self._there = self._own, self._own if there is None else there
        self._own = 0


def _pairs(labels: np.ndarray | int, sides: np.ndarray) -> np.ndarray:
    found = np.empty(len(sides), _PAIR)
    found["side"], found["class"] = sides, labels
    return found


def _mixed(labels: np.ndarray, sides: np.ndarray) -> tuple[int, int]:
    """Two sums of mixtures of classes and sides, modulo 2**64."""
    words = labels.astype(np.int64).view(np.uint64), sides.astype(np.int64).view(np.uint64)
    one, other = (int(mixed(seed, *words).sum(dtype=np.uint64)) for seed in SEEDS)
    return one, other


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
    def plan(layer: Layer, limits: Limits, most: int = 1) -> StreamPlan:
        """How blocks stream through the check; a cell belongs to at most so many classes."""
        blocks = layer.blocks
        rims = _LINK_BYTES * 2 * sum(blocks.sides) * blocks.count * most + 16 * blocks.count
        worker = _CELL_BYTES * blocks.largest(1)
        return plan_proof(blocks, [Read(layer, 1)], limits, worker=worker, held=rims)

    def run(self, limits: Limits) -> dict[str, int]:
        """Check everything; return the number of features, polygons and sides.

        Raises
        ------
        VerificationError
            at the first violation found.
        PlanError
            when the memory limit is too small, also for a feature.
        """
        plan, blocks = self.plan(self.layer, limits, self.classes.most), self.layer.blocks
        digests = np.zeros((blocks.count, 2), np.uint64)
        found = self._read_file(plan, limits, lambda cls, sides: self._add(digests, cls, sides))
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

    def _add(self, digests: np.ndarray, number: int, sides: np.ndarray) -> None:
        """Add the sides of a feature to the digests of their blocks."""
        owner = self._owner(sides)
        order = np.argsort(owner, kind="stable")
        there, first = np.unique(owner[order], return_index=True)
        for block, own in zip(there.tolist(), np.split(sides[order], first[1:]), strict=True):
            more = _mixed(np.full(len(own), number), own)
            digests[block] += np.array(more, np.uint64)

    def _owner(self, sides: np.ndarray) -> np.ndarray:
        blocks = self.layer.blocks
        row, col = np.divmod(sides >> 2, blocks.cols)
        found: np.ndarray = row // blocks.block * blocks.shape[1] + col // blocks.block
        return found

    # -- the file -------------------------------------------------------------------------------

    def _read_file(
        self, plan: StreamPlan, limits: Limits, take: Callable[[int, np.ndarray], None]
    ) -> dict[str, int]:
        path, room = self.file.path, _FeatureRoom(Excess.of(plan), "to verify a feature")
        units, unit = area_units(self.file.grid)
        above = np.append(0, np.cumsum(units))
        found = dict.fromkeys(("features", "polygons", "sides"), 0)
        before = None
        for one in read_polygons(self.file, room):
            number = self.classes.number(one.attributes)
            if number is None or (before is not None and number <= before):
                wrong_line(path, one.number, "its class is none that follows", what="feature")
            before = number
            walked = self._walked(one, room)
            if walked is None:
                continue
            ring, sides = walked
            cells, area = self._measured(one, ring, sides, above)
            right = {**self.classes.attributes(number), "cells": int(cells.sum())}
            right["area"] = float(area.sum() * unit)
            there = {key: value for key, value in one.attributes.items() if value is not None}
            right = {key: value for key, value in right.items() if value is not None}
            check_attributes(path, one.number, there, right, of="feature")
            self._check_rings(one, ring, sides, cells)
            take(number, sides)
            found["features"] += 1
            found["polygons"] += int(one.polygon[-1]) + 1
            found["sides"] += len(sides)
            room.done()
        return found

    def _walked(
        self, one: FilePolygons, room: _FeatureRoom
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The ring and the id, 4 * cell + direction, of each side along the rings of a feature.

        None where some feature has no room.
        """
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
        if not room.has_sides(_SIDE_BYTES * int(length.sum())):
            return None
        way = np.where(step[:, 1] > 0, 0, np.where(step[:, 0] < 0, 1,
                       np.where(step[:, 1] < 0, 2, 3)))  # fmt: skip
        k = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        way = np.repeat(way, length)
        cell = np.repeat(begin, length, axis=0) + k[:, None] * _AHEAD[way] + _LEFT[way]
        rows, cols = self.file.grid.shape
        beyond = (cell < 0).any(axis=1) | (cell >= (rows, cols)).any(axis=1)
        if beyond.any():
            where = _corner(np.repeat(begin, length, axis=0)[int(beyond.argmax())])
            wrong_line(self.file.path, one.number, f"{where}: has the outside on its left",
                       what="feature")  # fmt: skip
        return np.repeat(ring, length), 4 * (cell[:, 0] * cols + cell[:, 1]) + way

    def _measured(
        self, one: FilePolygons, ring: np.ndarray, sides: np.ndarray, above: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells, and units of area, on the left of each ring; negative for holes."""
        row, col = np.divmod(sides >> 2, self.file.grid.cols)
        way = sides & 3
        # Sides that lead north are right of their cells: these and all to the left are added; those
        # that lead south, left of their cells, take away what is left of these.
        width = np.where(way == 1, col + 1, np.where(way == 3, -col, 0))
        cells, units = np.zeros((2, len(one.polygon)), np.int64)
        np.add.at(cells, ring, width)
        np.add.at(units, ring, width * (above[row + 1] - above[row]))
        return cells, units

    def _check_rings(
        self, one: FilePolygons, ring: np.ndarray, sides: np.ndarray, cells: np.ndarray
    ) -> None:
        path, cols = self.file.path, self.file.grid.cols

        def wrong(k: int, what: str) -> None:
            where = _corner(one.corners[one.starts[k]])
            wrong_line(path, one.number, f"{where}: the ring {what}", what="feature")

        first = np.append(True, one.polygon[1:] != one.polygon[:-1])
        if (turned := (cells > 0) != first).any():
            k = int(turned.argmax())
            wrong(k, "is the first of its polygon, but leads round a hole" if first[k] else
                  "leads round an area, where a hole is due")  # fmt: skip
        way = sides & 3
        corner = np.stack(np.divmod(sides >> 2, cols), axis=1) - _LEFT[way]
        key = corner[:, 0] * (cols + 1) + corner[:, 1]
        order = np.lexsort((key, ring))
        again = (np.diff(key[order]) == 0) & (np.diff(ring[order]) == 0)
        if again.any():
            wrong(int(ring[order][int(again.argmax())]), "meets a corner twice")
        upright = np.flatnonzero(way % 2 == 1)
        row, column = corner[upright, 0] - (way[upright] == 1), corner[upright, 1]
        order = np.lexsort((column, row))
        upright, row, column = upright[order], row[order], column[order]
        owner = ring[upright]
        # The leftmost side of each ring; all rings have one.
        by = np.lexsort((column, owner))
        leftmost = by[np.append(True, np.diff(owner[by]) > 0)]
        for k in np.flatnonzero(~first).tolist():
            at = int(leftmost[k])
            if at == 0 or row[at - 1] != row[at] or (
                one.polygon[owner[at - 1]] != one.polygon[k]
            ):  # fmt: skip
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

        def keep(number: int, all_: np.ndarray) -> None:
            nonlocal count
            found = _pairs(number, all_[self._owner(all_) == owner])
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


def polygon_file(part: Path, path: Path, grid: Any, layer: str, fields: Any) -> LineFile:
    """The file of an operation, before it has its name."""
    return LineFile(part, path, grid, layer, tuple(fields))
