"""A region on a GPU: its cells, the list of its edges, and the kernels that find its forest.

The same frozen Boruvka as on the CPU, level by level; see ``cuda/kernels/mst.cu``.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.device import REGION, module
from ...errors import CellError
from ...facts import Settings
from ...grid import TILE, Block, ceil_div
from ..levels import Solved
from ..region import Border, Region
from ..weights import Weight, valid_cells
from .plan import RING, TILE_EDGES, is_wide

if TYPE_CHECKING:
    from .regions import GpuSolver, SolverLane

ROUNDS = 4
"""Rounds between the host's checks for convergence."""

THREADS = 256
TILE_THREADS = 512

NULL = np.uint64(0)
"""A null pointer, for optional arrays of a kernel."""


class Slot:
    """A region on a GPU: its cells and final edges, (blocks, tiles, 64, 64)."""

    def __init__(self, lane: SolverLane, shape: tuple[int, ...], dtype: np.dtype) -> None:
        import cupy

        self.lane = lane
        with cupy.cuda.Device(lane.device):
            self.cells = cupy.empty(shape, dtype)
            self.mask = cupy.empty(shape, np.uint8)


class EdgeList:
    """Boruvka over a list of edges: its memory and its sequence of kernels.

    Parameters
    ----------
    values
        Macros of ``cuda/kernels/mst.cu``.

    Attributes
    ----------
    edges
        Arrays of the list: words of key and id, or keys and ids; the vertices at both ends.
    counts
        The first is the number of edges.
    parent, frozen, best, best_id
        One entry per vertex; all but `frozen` are reset by `flatten`.
    vertices
        Number of vertices, at most that of the allocation.
    """

    def __init__(self, weight: Weight, values: Settings, vertices: int, edges: int) -> None:
        import cupy

        self.cupy, self.kernels = cupy, module("mst", values)
        self.wide, self.vertices = is_wide(weight), vertices
        self._lists = [self.new_list(edges) for _ in range(2)]
        self.edges = self._lists[0][0]
        self.parent = cupy.empty(vertices, np.uint32)
        self.frozen = cupy.empty(vertices, np.uint8)
        self.best = cupy.empty(vertices, np.uint64)
        self.best_id = cupy.empty(vertices if self.wide else 1, np.uint32)
        self.counts = cupy.zeros(2 * ROUNDS + 2, np.uint64)
        self.grid = 8 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def new_list(self, count: int) -> tuple[list[DeviceArray], DeviceArray]:
        """Allocate the arrays of a list of edges, and their tags."""
        empty = self.cupy.empty
        keys = [empty(count, np.uint64)] + [empty(count, np.uint32)] * self.wide
        ends = [empty(count, np.uint32) for _ in range(2)]
        return [*keys, *ends], empty(count, np.uint32)

    def launch(self, name: str, *arguments: object) -> None:
        """Launch a kernel with grid-stride loops."""
        self.kernels.get_function(name)((self.grid,), (THREADS,), arguments)

    def number(self, ids: DeviceArray) -> None:
        """Complete a list whose keys, ends and frozen vertices are set: ranks replace its ids."""
        order = self.cupy.argsort(ids)
        self.launch("rank_edges", np.int64(ids.size), order, *self.edges)
        self.parent[...] = self.cupy.arange(self.vertices, dtype=np.uint32)
        self.flatten()
        self.counts[0] = ids.size

    def mark(self, region: DeviceArray, mask: DeviceArray) -> int:
        """Set the final edges in the mask of a region; return the number of edges left."""
        return self._rounds(region, mask, NULL, NULL)

    def pick(self, most: int) -> tuple[DeviceArray, int]:
        """Return the positions of the final edges, `most` at most, and the number of edges left."""
        positions = self.cupy.empty(most, np.uint32)
        count = self.cupy.zeros(1, np.uint64)
        left = self._rounds(NULL, NULL, positions, count)
        return positions[: int(count[0])], left

    def candidates(self, left: int, tags: bool) -> list[DeviceArray]:
        """Return the forest of the edges between frozen vertices: as `edges`, or tags and ends."""
        edges, first_tags = self._lists[0]
        arrays = [first_tags, *edges[-2:]] if tags else edges
        if not left:
            return [array[:0] for array in arrays]
        chosen = [array[:left].copy() for array in arrays]
        self.frozen[...] = 0
        picked, _ = self.pick(left)
        return [array[picked] for array in chosen]

    def _rounds(
        self,
        region: DeviceArray,
        mask: DeviceArray,
        positions: DeviceArray,
        found_count: DeviceArray,
    ) -> int:
        """Run Boruvka's rounds over the list; return the edges left. For arguments, see `hook`."""
        first = True
        while True:
            for k in range(ROUNDS):
                (edges, tags), (out, out_tags) = self._lists[k % 2], self._lists[1 - k % 2]
                count, next_count = self.counts[k:], self.counts[k + 1 :]
                self.launch(
                    "least_of_list",
                    *edges,
                    tags,
                    count,
                    np.int32(first and k == 0),
                    self.parent,
                    self.frozen,
                    self.best,
                    *out,
                    out_tags,
                    next_count,
                )
                if self.wide:
                    self.launch("least_ids", *out, next_count, self.frozen, self.best, self.best_id)
                self.launch(
                    "hook",
                    region,
                    *out,
                    out_tags,
                    next_count,
                    self.parent,
                    self.frozen,
                    self.best,
                    self.best_id,
                    mask,
                    positions,
                    found_count,
                    self.counts[ROUNDS + 1 + k :],
                )
                self.flatten()
            first = False
            seen = self.counts.get()
            self.counts[1:] = 0
            self.counts[0] = seen[ROUNDS]
            if not seen[2 * ROUNDS]:
                return int(seen[ROUNDS])

    def flatten(self) -> None:
        """Point vertices to their roots, and reset the least edges for the next round."""
        self.launch("flatten", np.int64(self.vertices), self.parent, self.best, self.best_id)


class Workspace:
    """Memory and sequence of kernels to solve a region.

    Attributes
    ----------
    freezes
        Whether components with cells that have neighbours outside the region pick no edges.
    sides
        Bits: whether the raster continues above (1), below (2), left (4), right (8).
    """

    freezes = True

    def __init__(self, solver: GpuSolver, cupy: ModuleType) -> None:
        self.solver, self.cupy = solver, cupy
        side, block = solver.regions.block, solver.blocks.block
        down, across = (min(-(-n // block) * block, side) for n in solver.shape)
        tiles = down * across // TILE**2
        self.stream = cupy.cuda.Stream(non_blocking=True)
        with self.stream:
            most = tiles * RING, tiles * TILE_EDGES
            self.list = EdgeList(solver.weight, solver._macros, *most)
            self.sums = cupy.empty(len(solver.weight.new_sums()), np.int64)
            self.totals = cupy.empty(3, np.uint64)
            self.region = cupy.empty(REGION.itemsize, np.uint8)
            self.per_length = cupy.empty(4 * min(side, solver.shape[0]) * solver.weight.slopes)
        self.tile_kernel = self.list.kernels.get_function("tile_forest")
        self.tile_kernel.max_dynamic_shared_size_bytes = solver._shared
        self.nodata = solver.weight.dtype.type(0 if solver.nodata is None else solver.nodata)

    def start(self, at: Block, slot: Slot) -> None:
        """Select a region."""
        solver = self.solver
        self.cells, self.mask = slot.cells, slot.mask
        r0, r1, c0, c1 = solver.regions.window(*at)
        rows, cols = solver.shape
        self.sides = (r0 > 0) | (r1 < rows) << 1 | (c0 > 0) << 2 | (c1 < cols) << 3
        self.tiles_across = ceil_div(c1 - c0, TILE)
        self.tiles = ceil_div(r1 - r0, TILE) * self.tiles_across
        self.window = r0, r1, c0, c1
        described = (
            r1 - r0,
            c1 - c0,
            (solver.blocks.block // TILE).bit_length() - 1,
            ceil_div(c1 - c0, solver.blocks.block),
            self.tiles_across,
            self.sides * self.freezes,
            solver.nodata is not None,
            solver.diagonal,
            self.per_length.data.ptr,
        )
        if solver.weight.slopes:
            self.per_length[: 4 * (r1 - r0)].set(solver.weight.rule(r0, r1).ravel())
        self.region.set(np.array([described], REGION).view(np.uint8))

    def run(self) -> None:
        """Run all kernels of a region."""
        left = self.grow()
        self.candidates = self.list.candidates(left, tags=False)
        self.weigh()

    def grow(self) -> int:
        """Write the final edges to the mask; return the number of edges left in the list."""
        graph = self.list
        self.mask[...] = 0
        graph.counts[...] = 0
        cells = self.region, self.cells, self.nodata
        self.tile_kernel(
            (self.tiles,),
            (TILE_THREADS,),
            (*cells, self.mask, *graph.edges, graph.counts),
            shared_mem=self.solver._shared,
        )
        self._per_tile("separators", 2 * TILE, *cells, *graph.edges, graph.counts)
        graph.vertices = self.tiles * RING
        graph.launch(
            "start_vertices",
            self.region,
            np.int64(graph.vertices),
            graph.parent,
            graph.frozen,
            graph.best,
            graph.best_id,
        )
        return graph.mark(self.region, self.mask)

    def weigh(self) -> None:
        """Sum up the edges in the mask."""
        self.sums[...] = 0
        self.totals[...] = 0
        cells = self.region, self.cells, self.nodata
        self._per_tile("weigh", THREADS, *cells, self.mask, self.sums, self.totals)

    def _per_tile(self, name: str, threads: int, *arguments: object) -> None:
        self.list.kernels.get_function(name)((self.tiles,), (threads,), arguments)

    def result(self) -> Solved:
        """Return what the levels above need of a region."""
        solver, weight = self.solver, self.solver.weight
        r0, r1, c0, c1 = self.window
        rows, cols = r1 - r0, c1 - c0
        line = self.cupy.empty(2 * (rows + cols), weight.dtype)
        self.list.launch("border", self.region, self.cells, line)
        raw = line.get()
        *keys, us, vs = (array.get() for array in self.candidates)
        edges, vertices, largest = self.totals.get().tolist()
        self._refuse_largest(largest)
        if not self.list.wide:
            words = keys[0]
            keys = [words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)]
        local = keys[1].astype(np.int64)
        cell = local >> 2
        ids = 4 * ((r0 + cell // cols) * solver.shape[1] + c0 + cell % cols) + (local & 3)
        candidates = (keys[0].astype(weight.key_dtype), ids, self.cell_of(us), self.cell_of(vs))
        cuts = np.cumsum([cols, cols, rows])
        sides = np.split(raw, cuts)
        border = Border(
            _four(weight.operands(side[None])[0] for side in sides),
            _four(valid_cells(side, solver.nodata) for side in sides),
        )
        return Solved(Region(self.window, border, candidates), edges, vertices, self.sums.get())

    def cell_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the global cell of each vertex."""
        tile, cell = vertices.astype(np.int64) // RING, _RING_CELLS[vertices % RING]
        row = self.window[0] + tile // self.tiles_across * TILE + cell // TILE
        col = self.window[2] + tile % self.tiles_across * TILE + cell % TILE
        return row * self.solver.shape[1] + col

    def _refuse_largest(self, at: int) -> None:
        if not at:
            return
        row, col = divmod(at - 1, self.window[3] - self.window[2])
        dtype = self.solver.weight.dtype
        raise CellError(
            f"row {self.window[0] + row}, column {self.window[2] + col}: "
            f"{np.iinfo(dtype).max}, the largest {dtype.name}, cannot be an elevation; declare "
            f"it as nodata (convert-dataset --nodata={np.iinfo(dtype).max})"
        )


def _four(sides: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    top, bottom, left, right = sides
    return top, bottom, left, right


def _ring_cells() -> np.ndarray:
    """Return the cells of a tile by their number: top row, bottom row, left, right column."""
    along, inner = np.arange(TILE), np.arange(1, TILE - 1) * TILE
    return np.concatenate((along, (TILE - 1) * TILE + along, inner, inner + TILE - 1))


_RING_CELLS = _ring_cells()
