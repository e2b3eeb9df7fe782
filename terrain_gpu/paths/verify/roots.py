"""Infer sources from the results, which are all that a store records of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...grid import Block
from ..fields import Field
from ..ground import Terrain

WRONG = "something is wrong"
"""Result of a GPU that found a violation; the CPU then finds where."""

Read = Callable[..., np.ndarray]
Cells = tuple[np.ndarray, np.ndarray, np.ndarray]

GIVEN, GIVEN_AND_EDGE, AT_ZERO, AT_OWN_HEIGHT, UNLINKED = range(5)
"""Rules for which cells are roots, as in kernels/proof.cu."""


class KnownRoots:
    """A problem whose sources are inferred from its results.

    With backlinks, the sources are the cells with code 0. Without, they are the cells at distance
    0, or for minimax at their own height. The distance of each is taken as its start value.

    Attributes
    ----------
    count
        Number of sources in the blocks processed so far.
    """

    def __init__(
        self,
        terrain: Terrain,
        read_distance: Read,
        read_backlink: Read | None,
        read_allocation: Read | None,
    ) -> None:
        self.terrain, self.blocks = terrain, terrain.blocks
        self._distance, self._backlink, self._allocation = (
            read_distance,
            read_backlink,
            read_allocation,
        )
        self.rule = AT_ZERO
        """How the GPU identifies sources, see kernels/proof.cu."""
        if read_backlink is not None:
            self.rule = UNLINKED
        elif terrain.model.kind.bottleneck:
            self.rule = AT_OWN_HEIGHT
        self._counts: dict[Block, int] = {}

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def note(self, at: Block, count: int) -> None:
        """Record the number of sources in a block or region; the CPU replaces a GPU's counts."""
        self._counts[at] = count

    def load(self, at: Block) -> Field:
        return self.terrain.load(at)

    def seeds(self, at: Block, field: Field) -> Cells:
        window = self.blocks.window(*at)
        distances = self._distance(window, halo=0)
        if self._backlink is not None:
            root = self._backlink(window) == 0
        elif self.terrain.model.kind.bottleneck:
            height, width = distances.shape
            h = self.terrain.halo
            root = distances == field.heights[h : height + h, h : width + h]
        else:
            root = distances == 0
        rows, cols = np.nonzero(root)
        return rows, cols, distances[rows, cols]

    def roots(self, at: Block) -> tuple[np.ndarray, ...]:
        window = self.blocks.window(*at)
        assert self._backlink is not None
        rows, cols = np.nonzero(self._backlink(window) == 0)
        if self._allocation is None:
            return rows, cols, np.ones(len(rows), np.uint32)
        return rows, cols, self._allocation(window)[rows, cols]
