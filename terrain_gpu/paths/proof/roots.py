"""Infer sources from the results, as a store does not record the sources themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ...grid import Block, BlockGrid
from ..cost.fields import Field
from ..cost.terrain import Terrain

WRONG = "something is wrong"
"""Result of a GPU that found a violation; the CPU then locates it."""

Read = Callable[..., np.ndarray]
Cells = tuple[np.ndarray, np.ndarray, np.ndarray]

GIVEN, GIVEN_AND_EDGE, AT_ZERO, AT_OWN_HEIGHT, UNLINKED = range(5)
"""Rules for which cells are roots, as in kernels/proof.cu."""


class CheckedCells(Protocol):
    """The cells and sources of a problem, such as `terrain.Terrain`."""

    blocks: BlockGrid

    def load(self, at: Block) -> Field: ...

    def seeds(self, at: Block, field: Field) -> Cells:
        """Rows and columns within the block, and start values, of its sources."""

    def roots(self, at: Block, field: Field) -> tuple[np.ndarray, ...]:
        """Rows and columns within the block, and ids, of its sources."""


class KnownRoots:
    """A problem whose sources are inferred from its results.

    With backlinks, the sources are the cells with code 0. Without, they are the cells at distance
    0, or for minimax at their own height. The distance of each is taken as its start value.

    Attributes
    ----------
    count
        Number of sources in the blocks processed so far.
    """

    def __init__(self, terrain: Terrain, *, linked: bool) -> None:
        self.terrain, self.blocks = terrain, terrain.blocks
        self.rule = AT_ZERO
        """How the GPU identifies sources, see kernels/proof.cu."""
        if linked:
            self.rule = UNLINKED
        elif terrain.model.kind.bottleneck:
            self.rule = AT_OWN_HEIGHT
        self._counts: dict[Block, int] = {}

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def note(self, at: Block, count: int) -> None:
        """Record the number of sources in a block or region; the CPU's replace those of a GPU."""
        self._counts[at] = count

    def load(self, at: Block) -> Field:
        return self.terrain.load(at)

    def seeds_among(self, field: Field, distances: np.ndarray, codes: np.ndarray | None) -> Cells:
        """Rows and columns, and start values, of the sources of a block, given its results."""
        if self.rule == UNLINKED:
            assert codes is not None
            root = codes == 0
        elif self.rule == AT_OWN_HEIGHT:
            (height, width), h = distances.shape, self.terrain.halo
            root = distances == field.heights[h : height + h, h : width + h]
        else:
            root = distances == 0
        rows, cols = np.nonzero(root)
        return rows, cols, distances[rows, cols]


def seeds_of(
    ground: CheckedCells | KnownRoots,
    at: Block,
    field: Field,
    distances: np.ndarray,
    codes: np.ndarray | None = None,
) -> Cells:
    """As `CheckedCells.seeds`, for a block whose results were read."""
    if isinstance(ground, KnownRoots):
        return ground.seeds_among(field, distances, codes)
    return ground.seeds(at, field)


def ids_of(ground: CheckedCells | KnownRoots, at: Block, field: Field) -> tuple[np.ndarray, ...]:
    """As `CheckedCells.roots`; none if sources are inferred, as their ids may have any value."""
    if isinstance(ground, KnownRoots):
        return tuple(np.empty(0, dtype) for dtype in (np.int64, np.int64, np.uint32))
    return ground.roots(at, field)
