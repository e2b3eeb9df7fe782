"""The depressions of the whole raster, joined from those of its blocks: `Hierarchy`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.operation import Phase, State
from ...engine.plan import Growing
from ...errors import StoreError
from ...grid import Block
from ...plurals import counted
from . import kernels
from .block import Branches, Known

NODE_BYTES = 130
"""Bytes per node and its edges while the blocks are joined; half of that at other times."""

ROW_BYTES = 220
"""Bytes per depression while the blocks are joined; half of that at other times."""


class Hierarchy(State):
    """All depressions in row-major order of their pits, and the depressions they spill into.

    Attributes
    ----------
    pit, pit_heights, dead, keys, parent
        For each depression: cell and elevation of the pit, elevation and key of the spill, and the
        index of the depression that it spills into, or -1.
    sums
        int64, shape (depressions, 4); see `kernels.measure`.
    """

    def __init__(self, path: object, least: float, room: Growing) -> None:
        self._path, self._least, self._room = path, least, room
        self._known: dict[Block, Known] = {}
        self._rows = self._count = 0
        self.number: np.ndarray | None = None

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if message is None:
            return
        if phase.joined == "totals":
            which, sums = message
            self.sums[which] += sums
            self.sums[which, 2] += self.sums[which, 3] >> kernels.LOW_BITS
            self.sums[which, 3] &= (1 << kernels.LOW_BITS) - 1
            return
        self._count += len(message.nodes[0]) + len(message.crossing[0]) // 2
        self._rows += len(message.closed[0])
        self._known[at] = message
        if not self._room.fits(*self._size):  # from now on only count, for the error message
            self._known.clear()

    @property
    def _size(self) -> tuple[int, int]:
        """Bytes needed while blocks stream, and while they are joined."""
        joined = self._count * NODE_BYTES + self._rows * ROW_BYTES
        return joined // 2, joined

    def join(self, phase: Phase) -> None:
        if phase.joined == "hierarchy":
            self._join()

    def _join(self) -> None:
        self._room.require(
            *self._size,
            f"for {counted(self._rows, 'depression')}",
            where=self._path,
            advice=", or leave out the shallow ones (--min-depth)",
        )
        blocks = sorted(self._known)
        counts = np.array([len(self._known[at].nodes[0]) for at in blocks], np.int64)
        firsts = np.cumsum(counts) - counts
        self._nodes = dict(
            zip(blocks, zip(firsts.tolist(), counts.tolist(), strict=True), strict=True)
        )
        pit = self._columns(blocks, "nodes", 2)
        self._merge(blocks, firsts, pit)
        closed = self._columns(blocks, "closed", 5)
        sizes = [len(self._known[at].closed[0]) for at in blocks]
        self._known.clear()
        parents, ids = closed[4], pit[1]
        # A parent that is a node becomes the first node that dies above the spill. Likewise for
        # nodes.
        out = parents <= -2
        at = -2 - parents[out] + np.repeat(firsts, sizes)[out]
        kernels.climb(at, closed[2][out], self._dead, self._up)
        parents[out] = self._cell(ids, at)
        height, key = self._dead, self._keys
        rows = np.flatnonzero((key >= 0) & (height > pit[0]) & (height - pit[0] >= self._least))
        above = self._up[rows]
        kernels.climb(above, height[rows], height, self._up)
        of_nodes = pit[0][rows], ids[rows], height[rows], key[rows], self._cell(ids, above)
        columns = [np.append(a, b) for a, b in zip(closed, of_nodes, strict=True)]
        order = np.argsort(columns[1])
        self.pit_heights, self.pit, self.dead, self.keys, parents = (c[order] for c in columns)
        self.parent = np.where(parents >= 0, np.searchsorted(self.pit, parents), -1)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ends = np.cumsum([0, *sizes]).tolist()
        self._closed = {at: rank[a:b] for at, a, b in zip(blocks, ends, ends[1:], strict=False)}
        self._of_node = np.full(len(ids), -1)
        self._of_node[rows] = rank[ends[-1] :]
        self.sums = np.zeros((len(order), 4), np.int64)

    def _columns(self, blocks: list[Block], part: str, width: int) -> list[np.ndarray]:
        each = [getattr(self._known[at], part) for at in blocks]
        return [np.concatenate([one[k] for one in each]) for k in range(width)]

    def _merge(self, blocks: list[Block], firsts: np.ndarray, pit: list[np.ndarray]) -> None:
        heights, keys, *ends = self._columns(blocks, "met", 4)
        across = self._columns(blocks, "crossing", 3)
        several = [np.repeat(firsts, [len(getattr(self._known[at], part)[0]) for at in blocks])
                   for part in ("met", "crossing")]  # fmt: skip
        a, b = (end + several[0] for end in ends)
        order = np.argsort(across[1], kind="stable")
        levels, twice, node = across[0][order], across[1][order], (across[2] + several[1])[order]
        if len(twice) % 2 or (twice[::2] != twice[1::2]).any():
            raise self._no_forest()
        heights, keys = np.append(heights, levels[::2]), np.append(keys, twice[::2])
        pairs = np.stack((np.append(a, node[::2]), np.append(b, node[1::2])), axis=1)
        count = len(pit[0])
        self._pits = pit[0]
        self._dead, self._keys, self._up = (np.empty(count, kind) for kind in (float, int, int))
        order = np.lexsort((keys, heights))
        dead = self._dead, self._keys
        if not kernels.merge_nodes(order, (heights, keys), pairs, tuple(pit), dead, self._up):
            raise self._no_forest()

    def _no_forest(self) -> StoreError:
        return StoreError(
            f"{self._path}: not a forest of these cells; compute it again (compute-mst --overwrite)"
        )

    def _cell(self, ids: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the pits of nodes that die, and -1 for other nodes."""
        inside = np.maximum(nodes, 0)
        return np.where((nodes >= 0) & (self._keys[inside] >= 0), ids[inside], -1)

    def given(self, phase: Phase, at: Block) -> Branches | None:
        if phase.joined == "hierarchy":
            return None
        number = np.arange(1, len(self.pit) + 1) if self.number is None else self.number
        first, count = self._nodes[at]
        nodes = np.arange(first, first + count)
        branches, new = nodes[:0], nodes[self._keys[nodes] >= 0]
        while len(new):
            branches = np.append(branches, new)
            above = self._up[new]
            new = np.setdiff1d(above[self._keys[above] >= 0], branches)
        branches.sort()
        rows = self._of_node[branches]
        return Branches(
            number[self._closed[at]],
            within(branches, nodes),
            self._pits[branches],
            self._dead[branches],
            within(branches, self._up[branches]),
            np.where(rows >= 0, number[rows] if len(number) else 0, 0),
        )


def within(ordered: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return the position of each node in a sorted array, or -1 if it is not in it."""
    if not len(ordered):
        return np.full(len(nodes), -1)
    at = np.minimum(np.searchsorted(ordered, nodes), len(ordered) - 1)
    return np.where(ordered[at] == nodes, at, -1)
