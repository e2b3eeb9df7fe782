"""The classical method on a GPU: the spanning forest of a region, then dead ends and paths.

`cpu.contract` grows the forest of a block vertex by vertex, and walks up and down its trees.
Here the kernels of `workspace` find the forest of the region alone, with nothing frozen. Its trees
are rooted by an Euler tour, and list ranking contracts them (`primitives.contraction`): everything
takes O(log n) rounds. Regions are joined in the same way: the spanning forest of a list of edges,
then dead ends and paths.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ...cuda.arrays import DeviceArray
from ...primitives.contraction import contract
from ...primitives.euler import root_tree, tour_of
from ...primitives.forests import forest_of
from ..cpu.merge import Frame
from ..region import Region
from ..weights import Weight
from .workspace import Workspace


class ContractingWorkspace(Workspace):
    """Solves regions as `cpu.contract` solves blocks; ends of candidates may be inside."""

    freezes = False

    def run(self) -> None:
        """Run all kernels of a region."""
        self.grow()
        *keys, us, vs = self._forest_edges()
        if self.list.wide:
            order = self.cupy.lexsort(self.cupy.stack((keys[1].astype(np.uint64), keys[0])))
        else:
            order = self.cupy.argsort(keys[0])
        edges = self.cupy.stack((us, vs), 1).astype(np.int64)
        del us, vs
        greatest, us, vs = contract_forest(self.cupy, edges, order, self._keep())
        candidates = [array[greatest] for array in keys]
        self.candidates = [*candidates, us, vs]
        # The lower half of a word is the id.
        ids = candidates[-1].astype(np.uint32)
        self.list.launch("drop_edges", self.region, ids, np.int64(len(ids)), self.mask)
        self.weigh()

    def _forest_edges(self) -> list[DeviceArray]:
        """Return the edges of the forest, as in `EdgeList.edges`; ends are cells."""
        r0, r1, c0, c1 = self.window
        arrays, _ = self.list.new_list((r1 - r0) * (c1 - c0))
        count = self.cupy.zeros(1, np.uint64)
        self.list.launch("forest_edges", self.region, self.cells, self.mask, *arrays, count)
        size = int(count[0])
        return [array[:size] for array in arrays]

    def _keep(self) -> DeviceArray:
        """Return which cells have neighbours outside the region."""
        r0, r1, c0, c1 = self.window
        keep = self.cupy.zeros((r1 - r0, c1 - c0), bool)
        for k, line in enumerate((keep[0], keep[-1], keep[:, 0], keep[:, -1])):
            if self.sides >> k & 1:
                line[...] = True
        return keep.ravel()

    def cell_of(self, vertices: np.ndarray) -> np.ndarray:
        r0, _, c0, c1 = self.window
        row, col = np.divmod(vertices, c1 - c0)
        return (r0 + row) * self.solver.shape[1] + c0 + col


def merge(
    xp: ModuleType, frame: Frame, weight: Weight, diagonal: bool, sums: np.ndarray
) -> tuple[Region, np.ndarray]:
    """Join siblings as `spanning_tree.cpu.contract.merge` does; `xp` is numpy or cupy."""
    graph = frame.edges(weight.rule(), diagonal)
    by_id = np.argsort(graph[1])  # of equal keys, the edge that comes first is the lesser
    keys, ids, us, vs = (array[by_id] for array in graph)
    cells, ends = np.unique(np.concatenate((us, vs)), return_inverse=True)
    edges, of_edges = xp.asarray(np.stack(np.split(ends, 2), 1)), xp.asarray(keys)
    forest = forest_of(xp, edges, of_edges, len(cells))
    order = xp.argsort(of_edges[forest], kind="stable")
    contracted = contract_forest(xp, edges[forest], order, xp.asarray(frame.is_open(cells)))
    greatest, us, vs = (array if xp is np else array.get() for array in contracted)
    whole = forest if xp is np else forest.get()
    candidates, final = whole[greatest], np.delete(whole, greatest)
    weight.add(sums, keys[final])
    return frame.region((keys[candidates], ids[candidates], cells[us], cells[vs])), ids[final]


def contract_forest(
    xp: ModuleType, edges: DeviceArray, order: DeviceArray, keep: Any
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Remove dead ends from a forest, and contract its paths to their greatest edges.

    Parameters
    ----------
    xp
        numpy or cupy.
    edges
        int64, (m, 2): the forest.
    order
        Indices of the edges in ascending order.
    keep
        bool, one for each vertex: whether it has edges elsewhere.

    Returns
    -------
    greatest, us, vs
        Index of the greatest edge of each path, and the vertices at the path's ends: kept ones, and
        those where at least three paths meet.
    """
    if xp is np:
        from ...primitives.edge_components import edge_components
    else:
        from ...primitives.components_gpu import edge_components
    count, m = len(keep), len(edges)
    roots = xp.flatnonzero(edge_components(edges, count, "rem") == xp.arange(count))
    # Edges from a virtual vertex to one of each tree join the forest to a tree.
    links = xp.stack((xp.full(len(roots), count), roots), 1)
    parent = root_tree(xp, xp.concatenate((edges, links)), count)[:-1]
    parent[roots] = roots
    parent, _, preorder, size = tour_of(xp, parent)
    us, vs = edges[:, 0], edges[:, 1]
    child = xp.where(parent[us] == vs, us, vs)
    rank = xp.zeros(count, np.int64)
    rank[child[order]] = xp.arange(m)
    _, offsets, along, greatest = contract(xp, parent, preorder, size, keep, rank, "max")
    return order[greatest], along[offsets[:-1]], along[offsets[1:] - 1]
