"""What the proof keeps of a checked piece, and the sums over pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from ...grid import Window


class Side(NamedTuple):
    """Border cells on one side: operands, forward edges, vertex numbers (-1 without a value)."""

    cells: np.ndarray
    bits: np.ndarray
    vertex: np.ndarray

    def part(self, start: int, stop: int | None) -> Side:
        return Side(*(a[start:stop] for a in self))

    def renumbered(self, number: np.ndarray) -> Side:
        """The same with new vertex numbers; the last of `number` is -1 and stays so."""
        return Side(self.cells, self.bits, number[self.vertex])

    def followed_by(self, other: Side) -> Side:
        return Side(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


@dataclass
class PieceEdges:
    """Edges, each of the grid or the largest of the path it stands for.

    Attributes
    ----------
    keys, ids
        Weight keys, and global ids ``4 * cell + direction``.
    us, vs
        int32 vertex numbers of the ends.
    tree
        Whether it is in the forest.
    strange
        Id of an edge of its path that is not in the forest; -1 without one.
    """

    keys: np.ndarray
    ids: np.ndarray
    us: np.ndarray
    vs: np.ndarray
    tree: np.ndarray
    strange: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return (getattr(self, f.name) for f in fields(self))

    def first(self, count: int) -> PieceEdges:
        return PieceEdges(*(a[:count] for a in self))

    def take(self, index: np.ndarray) -> PieceEdges:
        # Unlike a[index], np.take lets other threads run.
        return PieceEdges(*(np.take(a, index) for a in self))

    def shifted(self, first: int) -> PieceEdges:
        """The same between vertices that are numbered from `first`."""
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
        Vertices that are left: border cells, and branches between them.
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
        Cells with a value, edges of the forest, edges of the grid.
    exact
        Sum of the forest's weights, see `ForestChecker.total`.
    missing
        Least id of the edges that stay although they are not in the forest; -1 without one.
    """

    vertices: int = 0
    edges: int = 0
    checked: int = 0
    exact: int | float = 0
    missing: int = -1

    def merge(self, other: ForestTally) -> None:
        self.vertices += other.vertices
        self.edges += other.edges
        self.checked += other.checked
        self.weigh(other.exact)
        self.miss(other.missing)

    def weigh(self, exact: int | float) -> None:
        # Infinity takes no part in sums: integers as long as these do not fit a float.
        infinite = isinstance(exact, float) or isinstance(self.exact, float)
        self.exact = math.inf if infinite else self.exact + exact

    def miss(self, edge: int) -> None:
        if edge >= 0:
            self.missing = edge if self.missing < 0 else min(self.missing, edge)
