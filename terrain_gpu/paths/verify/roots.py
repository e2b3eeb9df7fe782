"""Sources that are known from their results alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...grid import Block
from ..fields import Field
from ..ground import Terrain

WRONG = "something is wrong"
"""Left to the CPU, which says what."""

Read = Callable[..., np.ndarray]
Cells = tuple[np.ndarray, np.ndarray, np.ndarray]

GIVEN, GIVEN_AND_EDGE, AT_ZERO, AT_OWN_HEIGHT, UNLINKED = range(5)
"""Which cells are roots, as in kernels/proof.cu."""


class KnownRoots:
    """A problem whose sources are not known but from its results.

    With backlinks they are the cells of code 0; without, those at distance 0, or, for minimax, at
    their own height. Each counts as a source with the start value it has.

    Attributes
    ----------
    count
        Such cells in the blocks that were asked for.
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
        """How the GPU tells them, see kernels/proof.cu."""
        if read_backlink is not None:
            self.rule = UNLINKED
        elif terrain.model.kind.bottleneck:
            self.rule = AT_OWN_HEIGHT
        self._counts: dict[Block, int] = {}

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def note(self, at: Block, count: int) -> None:
        """How many there are in a block, or in a region: the CPU, after a GPU, counts all again."""
        self._counts[at] = count

    def load(self, at: Block) -> Field:
        return self.terrain.load(at)

    def seeds(self, at: Block, field: Field) -> Cells:
        window = self.blocks.window(*at)
        distances = self._distance(window)[1:-1, 1:-1]
        if self._backlink is not None:
            root = self._backlink(window) == 0
        elif self.terrain.model.kind.bottleneck:
            height, width = distances.shape
            root = distances == field.heights[1 : height + 1, 1 : width + 1]
        else:
            root = distances == 0
        rows, cols = np.nonzero(root)
        self.note(at, len(rows))
        return rows, cols, distances[rows, cols]

    def roots(self, at: Block) -> tuple[np.ndarray, ...]:
        window = self.blocks.window(*at)
        assert self._backlink is not None
        rows, cols = np.nonzero(self._backlink(window) == 0)
        if self._allocation is None:
            return rows, cols, np.ones(len(rows), np.uint32)
        return rows, cols, self._allocation(window)[rows, cols]
