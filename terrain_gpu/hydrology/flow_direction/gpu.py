"""Flow directions of a whole raster on a GPU: the spanning forest, rooted at the outlets.

1. Each cell points along its least edge of the forest, which is its steepest descent, or outwards
   if that edge comes first, which makes it an outlet. This divides the raster into catchments of
   pits and of outlets.
2. The edges between catchments, and outwards from other cells at the border, form a graph in which
   all outlets are one vertex, the sea. Boruvka rounds in which the component of the sea picks no
   edge give its minimum spanning forest relative to the outlets: each catchment has one edge
   towards the sea.
3. An Euler tour from the sea finds this edge, over which the catchment drains. The path from there
   to the pit of the catchment is reversed.

See docs/design/drainage.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.device import CELL_TYPES
from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Settings
from ...primitives.euler import root_tree
from ...spanning_tree.gpu.plan import keeps_cells
from ...spanning_tree.gpu.plan import macros as tree_macros
from ...spanning_tree.gpu.workspace import NULL, EdgeList
from ...spanning_tree.weights import Weight, weights_of
from ..common.gpu import ResidentRaster, plan_resident, resident
from ..common.outlets import is_low, name_of, refuse_missing

if TYPE_CHECKING:
    from .operation import TreeDirections

VALID, OUTLETS, EDGES, BAD, PITS = range(5)
"""Counters of ``cuda/kernels/directions.cu``."""

OUTLET, LOW, NOWHERE = 9, 10, 255
"""Marks of its kernels."""

GRAPH_BYTES = 16
"""GPU memory for the graph of catchments, in bytes per cell; it takes about 150 bytes per pit. Only
noise has more than one pit in nine cells; the run may then exhaust the GPU memory."""


def macros(dtype: np.dtype) -> Settings:
    """Return the macros of ``cuda/kernels/directions.cu``."""
    return {"CELL": CELL_TYPES[dtype.name], "ABSDIFF": 0, "SLOPES": 1}


def variants() -> list[Settings]:
    """Return macros that cover every type of elevations."""
    types = map(np.dtype, CELL_TYPES)
    return [macros(dtype) for dtype in types if "flow" in weights_of(dtype)]


def plan_directions(operation: TreeDirections, machine: Machine) -> StreamPlan:
    """Plan `solve`.

    Raises
    ------
    PlanError
        If the raster does not fit the memory limits.
    """
    heights, edges = (layer.dtype for layer in operation.layers)
    keeps_cells(operation.forest.weight, machine.gpu.device)
    return plan_resident(
        operation.blocks,
        operation.command,
        [heights, edges],
        edges,
        # Heights, edges, directions, parents, and the graph of catchments.
        cell=heights.itemsize + 1 + 1 + 4 + GRAPH_BYTES,
        machine=machine,
    )


def solve(operation: TreeDirections, run: Run) -> Settings:
    """Compute and write flow directions; return the numbers of valid cells and of outlets."""
    weight, (cells, edges) = operation.forest.weight, operation.layers
    cached = keeps_cells(weight, run.gpu.device)
    kernels = "directions", macros(cells.dtype), cells.nodata, weight.per_length
    with resident(run, *kernels) as raster:
        data = raster.read(cells, edges)
        with raster.phase("root"):
            codes, notes = _root(operation, raster, data, cached)
        raster.write(str(operation.directions), codes)
        return {"cells": notes[VALID], "outlets": notes[OUTLETS]}


def _root(
    operation: TreeDirections, raster: ResidentRaster, data: list[Any], cached: bool
) -> tuple[Any, list[int]]:
    """Return the codes of all cells, and the counters; empties `data`."""
    cupy, launch, weight = raster.cupy, raster.launch, operation.forest.weight
    heights, mask = data
    data.clear()
    notes = cupy.zeros(5, np.uint64)
    steps, parent = raster.empty(np.uint8), cupy.arange(raster.size + 1, dtype=np.uint32)
    _find_outlets(operation, raster, heights, steps, parent, notes)
    launch("descend", heights, mask, steps, notes)
    launch("attach", steps, parent)
    launch("flatten", steps, parent)
    launch("number", steps, parent, notes)
    counts = notes.get().tolist()
    _check(operation, counts)
    vertices, count = counts[PITS] + 1, cupy.zeros(1, np.uint64)
    launch("list_edges", heights, mask, steps, parent, *[NULL] * 4, count)
    graph = CatchmentGraph(weight, cached, vertices, int(count[0]))
    count[...] = 0
    launch("list_edges", heights, mask, steps, parent, *graph.arrays, count)
    del heights, mask
    reached, exits = graph.exits()
    if not reached.all():
        launch("strand", reached, parent, steps)
    raster.launch_list("turn", len(exits), exits, np.int64(len(exits)), steps)
    launch("encode", steps, notes)
    counts[OUTLETS] = int(notes[OUTLETS])
    return steps, counts


def _find_outlets(
    operation: TreeDirections,
    raster: ResidentRaster,
    heights: DeviceArray,
    steps: DeviceArray,
    parent: DeviceArray,
    notes: DeviceArray,
) -> None:
    cupy, added = raster.cupy, operation.places
    nodata = heights.dtype.type(operation.layers[0].nodata or 0)
    outside = np.uint32(raster.size)
    voids = parent if operation.has_voids else NULL
    if operation.has_voids:
        raster.launch("join_voids", heights, nodata, outside, parent)
    digest = operation.digest
    mark = np.int32(LOW if is_low(digest) else OUTLET if name_of(digest) else NOWHERE)
    raster.launch("find_outlets", heights, nodata, mark, outside, voids, steps, notes)
    if added is not None:
        at = [cupy.asarray(a.astype(np.int64)) for a in (added.rows, added.cols)]
        raster.launch_list("place_outlets", len(added), *at, np.int64(len(added)), steps)


def _check(operation: TreeDirections, counters: list[int]) -> None:
    """Raise an error if the counters show that the edges are not a forest of these cells."""
    refuse_missing(operation.forest.cells, counters[VALID])
    forest = operation.forest
    recorded = forest.edges.info["result"].get("edges", counters[EDGES])
    if counters[BAD] or counters[EDGES] != recorded:
        raise StoreError(
            f"{forest.edges.path}: not a forest of these cells; compute it again (compute-mst "
            "--overwrite)"
        )


class CatchmentGraph:
    """The graph of catchments: vertex 0 is the sea, the others are pits.

    Attributes
    ----------
    arrays
        For the edges: keys, ids in the raster, and the catchments of the lower and upper ends.
    """

    def __init__(self, weight: Weight, cached: bool, vertices: int, edges: int) -> None:
        import cupy

        self._cupy, self._count, self._vertices = cupy, edges, vertices
        self._work = EdgeList(weight, tree_macros(weight, cached), vertices, edges)
        ids, ends = cupy.empty(edges, np.int64), [cupy.empty(edges, np.uint32) for _ in range(2)]
        self.arrays = [self._work.edges[0], ids, *ends]

    def exits(self) -> tuple[Any, Any]:
        """Find the edges over which catchments drain. The graph cannot be used again.

        Returns
        -------
        reached
            bool, the catchments that are connected to the sea.
        exits
            int64, an edge for each of these; see ``turn`` in the kernels.
        """
        cupy = self._cupy
        reached, exits = cupy.zeros(self._vertices, bool), cupy.empty(0, np.int64)
        reached[0] = True
        if not self._count:
            return reached, exits
        _, ids, us, vs = self.arrays
        picked = self._forest(ids, us, vs, reached)
        picked = picked[reached[us[picked]]]
        if not len(picked):
            return reached, exits
        ids, us, vs = ids[picked], us[picked], vs[picked]
        self.arrays.clear()
        kind = np.int32 if 2 * self._vertices < 2**31 else np.int64
        numbers = (cupy.cumsum(reached) - 1).astype(kind)
        ends = cupy.stack((numbers[us], numbers[vs]), axis=1)
        towards = root_tree(cupy, ends, 0)
        return reached, 2 * ids + (towards[ends[:, 0]] != ends[:, 1])

    def _forest(
        self, ids: DeviceArray, us: DeviceArray, vs: DeviceArray, reached: DeviceArray
    ) -> DeviceArray:
        """Return the edges of the minimum spanning forest; mark vertices connected to the sea."""
        work = self._work
        del self._work
        for into, ends in zip(work.edges[-2:], (us, vs), strict=True):
            into[...] = ends
        work.frozen[...] = 0
        work.frozen[0] = 1
        work.number(ids)
        picked, _ = work.pick(self._count)
        reached[...] = work.parent == work.parent[0]
        return picked
