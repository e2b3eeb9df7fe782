"""Data structures of the proof: edges, checked pieces, and the sums over pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from ...grid import Window


class Side(NamedTuple):
    """Border cells on one side: operands, forward edges, vertex numbers (-1 for nodata)."""

    cells: np.ndarray
    bits: np.ndarray
    vertex: np.ndarray

    def part(self, start: int, stop: int | None) -> Side:
        return Side(*(a[start:stop] for a in self))

    def renumbered(self, number: np.ndarray) -> Side:
        """Return a copy with new vertex numbers; `number` ends with -1, so -1 stays -1."""
        return Side(self.cells, self.bits, number[self.vertex])

    def followed_by(self, other: Side) -> Side:
        return Side(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


@dataclass
class PieceEdges:
    """Edges: each an edge of the grid, or the largest edge of a contracted path.

    Attributes
    ----------
    keys, ids
        Weight keys, and global ids ``4 * cell + direction``.
    us, vs
        int32 vertex numbers of the ends.
    tree
        Whether the edge is in the forest.
    strange
        Id of an edge of its path that is not in the forest, or -1.
    """

    keys: np.ndarray
    ids: np.ndarray
    us: np.ndarray
    vs: np.ndarray
    tree: np.ndarray
    strange: np.ndarray

    @classmethod
    def new(cls, count: int, key: np.dtype) -> PieceEdges:
        """Allocate this many edges."""
        types = key, np.int64, np.int32, np.int32, np.bool_, np.int64
        return cls(*(np.empty(count, dtype) for dtype in types))

    def __iter__(self) -> Iterator[np.ndarray]:
        return (getattr(self, f.name) for f in fields(self))

    def first(self, count: int) -> PieceEdges:
        return PieceEdges(*(a[:count] for a in self))

    def take(self, index: np.ndarray) -> PieceEdges:
        # Unlike a[index], np.take releases Python's lock.
        return PieceEdges(*(np.take(a, index) for a in self))

    def shifted(self, first: int) -> PieceEdges:
        """Return a copy whose vertices are numbered from `first`."""
        ends = self.us + np.int32(first), self.vs + np.int32(first)
        return PieceEdges(self.keys, self.ids, *ends, self.tree, self.strange)


@dataclass
class CheckedPiece:
    """A checked rectangle.

    Attributes
    ----------
    window
        (row0, row1, col0, col1) in the raster.
    sides
        Top, bottom, left, right; empty on the rim of the raster.
    size
        Number of remaining vertices: border cells, and branches between them.
    edges
        The kept edges between them.
    """

    window: Window
    sides: tuple[Side, ...]
    size: int
    edges: PieceEdges


@dataclass
class ForestTally:
    """Sums over pieces.

    Attributes
    ----------
    vertices, edges, checked
        Numbers of cells with a value, edges of the forest, and edges of the grid.
    exact
        Sum of the forest's weights, see `ForestChecker.total`.
    missing
        Least id of the kept edges that are not in the forest, or -1.
    refused
        Whether tiles were found wrong.
    """

    vertices: int = 0
    edges: int = 0
    checked: int = 0
    exact: int | float = 0
    missing: int = -1
    refused: bool = False

    def merge(self, other: ForestTally) -> None:
        self.refused |= other.refused
        self.vertices += other.vertices
        self.edges += other.edges
        self.checked += other.checked
        self.weigh(other.exact)
        self.miss(other.missing)

    def weigh(self, exact: int | float) -> None:
        # Infinity is handled apart: int + inf fails for integers too large for a float.
        infinite = isinstance(exact, float) or isinstance(self.exact, float)
        self.exact = math.inf if infinite else self.exact + exact

    def miss(self, edge: int) -> None:
        if edge >= 0:
            self.missing = edge if self.missing < 0 else min(self.missing, edge)
