"""The spanning forest on a GPU: regions of whole blocks, tiles first, then the rims of all tiles.

The same frozen Boruvka as on the CPU, level by level; see ``cuda/kernels/mst.cu``. Solving a region
gives a `Solved`, like that of a block on the CPU, so both share the levels above.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from types import ModuleType
from typing import Any

import numpy as np

from ...cuda.backend import Gpu, Placement
from ...cuda.device import RESERVED, Staging, memory_bound, memory_bounds
from ...engine.plan import StreamPlan
from ...engine.schedule import stream
from ...grid import TILE, Block, BlockGrid, RegionGrid, ceil_div
from ..cpu import frozen
from ..cpu.merge import Children, Frame
from ..levels import Solved, Spill
from ..region import Edges, Region
from ..weights import Weight
from .contract import ContractingWorkspace, merge
from .plan import keeps_cells, macros, merge_bytes, tile_bytes
from .workspace import EdgeList, Slot, Workspace


class SolverLane:
    """A GPU that solves regions, one at a time.

    Attributes
    ----------
    work
        Memory for solving, allocated for the first region.
    """

    def __init__(self, device: int) -> None:
        self.device, self.lock = device, threading.Lock()
        self.work: Workspace | None = None


class GpuSolver:
    """Solves regions on one or several GPUs, one region at a time on each.

    Parameters
    ----------
    blocks
        Blocks of the layer.
    side
        Side of a region in cells: whole blocks.
    gpu
        Solves the regions, and joins them on its first device while that has memory.
    method
        `frozen` or `contract`.
    """

    def __init__(
        self,
        blocks: BlockGrid,
        side: int,
        weight: Weight,
        nodata: float | int | None,
        diagonal: bool,
        gpu: Gpu,
        method: ModuleType = frozen,
    ) -> None:
        self.method = method
        self.shape = blocks.rows, blocks.cols
        self.blocks, self.regions = blocks, RegionGrid(blocks.rows, blocks.cols, side)
        self.weight, self.nodata, self.diagonal = weight, nodata, diagonal
        self.device, self.memory_limit = gpu.device, gpu.memory
        self.lanes = [SolverLane(device) for device in gpu.devices]
        self._joins = Placement(gpu, doing="joining regions ")
        cached = all(keeps_cells(weight, device) for device in gpu.devices)
        self._macros = macros(weight, cached)
        self._shared = tile_bytes(weight, cached)

    def blocks_in(self, at: Block) -> list[Block]:
        """Return the blocks of a region, row by row."""
        r0, r1, c0, c1 = self.regions.window(*at)
        b = self.blocks.block
        return [
            (i, j) for i in range(r0 // b, ceil_div(r1, b)) for j in range(c0 // b, ceil_div(c1, b))
        ]

    def close(self) -> None:
        """Release the GPUs' memory."""
        for lane in self.lanes:
            lane.work = None

    def slots(self, count: int) -> list[Slot]:
        """Allocate this many slots for regions, on the GPUs in turn."""
        blocks, tiles = len(self.blocks_in((0, 0))), (self.blocks.block // TILE) ** 2
        shape = blocks, tiles, TILE, TILE
        return [Slot(lane, shape, self.weight.dtype) for lane in islice(cycle(self.lanes), count)]

    def solve(self, at: Block, slot: Slot) -> Solved:
        """Solve the region whose cells are in a slot; write its final edges to the slot."""
        import cupy

        lane = slot.lane
        with lane.lock, cupy.cuda.Device(lane.device):
            if lane.work is None:
                lane.work = self._new_workspace(cupy)
            with lane.work.stream:
                lane.work.start(at, slot)
                lane.work.run()
                return lane.work.result()

    def _new_workspace(self, cupy: ModuleType) -> Workspace:
        if self.method is frozen:
            return Workspace(self, cupy)
        return ContractingWorkspace(self, cupy)

    def merge(self, children: Children, sums: np.ndarray) -> tuple[Region, np.ndarray]:
        """Join siblings like `merge.merge`; on the CPU if they do not fit the GPU's memory."""
        weight = self.weight
        frame = Frame(children, self.shape)
        contracts = self.method is not frozen
        needed = merge_bytes(frame.cells.size, frame.most_edges, weight, contracts)
        fits = frame.most_edges < 2**32 and RESERVED + needed <= self.memory_limit

        def join(gpu: Gpu | None) -> tuple[Region, np.ndarray]:
            if gpu is not None and fits:
                return self._merge(frame, sums)
            rule, mode = weight.rule(), weight.sum_mode
            return self.method.merge(children, self.shape, rule, self.diagonal, sums, mode)

        return self._joins.run(join)

    def _merge(self, frame: Frame, sums: np.ndarray) -> tuple[Region, np.ndarray]:
        import cupy

        weight = self.weight
        if self.method is not frozen:
            with memory_bound(self.memory_limit, self.device), cupy.cuda.Device(self.device):
                return merge(cupy, frame, weight, self.diagonal, sums)
        keys, ids, us, vs = frame.edges(weight.rule(), self.diagonal)
        graph = keys, ids, frame.number(us), frame.number(vs)
        with memory_bound(self.memory_limit, self.device), cupy.cuda.Device(self.device):
            contracted = self._contract(graph, frame.is_open(frame.cells))
            final, candidates, us, vs = (array.get() for array in contracted)
        weight.add(sums, keys[final])
        ends = frame.cells[us], frame.cells[vs]
        return frame.region((keys[candidates], ids[candidates], *ends)), ids[final]

    def _contract(self, edges: Edges, frozen: np.ndarray) -> tuple[Any, ...]:
        """`kruskal.contract` on the GPU.

        Returns
        -------
        final, candidates, us, vs
            On the GPU: positions of the final edges and of the candidates in the list, and the
            frozen vertices at the candidates' ends.
        """
        import cupy

        keys, ids, us, vs = edges
        work = EdgeList(self.weight, self._macros, frozen.size, keys.size)
        for into, values in zip((work.edges[0], *work.edges[-2:]), (keys, us, vs), strict=True):
            into.set(values.astype(into.dtype))
        work.frozen.set(frozen.view(np.uint8))
        work.number(cupy.asarray(ids))
        final, left = work.pick(keys.size)
        return final, *work.candidates(left, tags=True)


def solve_regions(
    source: Any,
    solver: GpuSolver,
    target: Any,
    regions: Iterable[Block],
    spill: Spill,
    plan: StreamPlan,
    done: Callable[[Block], None] | None = None,
) -> None:
    """Solve regions on a GPU: read and write their blocks in parallel.

    Parameters
    ----------
    source, target
        A layer and a layer's writer, or arrays wrapped as such.
    done
        Called with each region that is written.
    """
    shape = (solver.blocks.block // TILE) ** 2, TILE, TILE
    staging = Staging(math.prod(shape) * source.dtype.itemsize, solver.device)

    def read(at: Block, slot: Slot) -> Slot:
        def load(k: int, block: Block) -> None:
            host = staging.host(shape, source.dtype)
            source.read_tiles(*block, out=host)
            staging.upload(host, slot.cells[k])

        each(load, at)
        return slot

    def solve(at: Block, slot: Slot) -> tuple[Solved, Slot]:
        return solver.solve(at, slot), slot

    def save(at: Block, result: tuple[Solved, Slot]) -> None:
        # The spill first: a block counts as finished once it is written.
        spill.save(*at, result[0])
        each(lambda k, block: target.write_tiles(*block, staging.download(result[1].mask[k])), at)

    def each(work: Callable[[int, Block], None], at: Block) -> None:
        blocks = enumerate(solver.blocks_in(at))

        def some(_: int) -> None:
            # A thread takes the next block itself: jobs for the pool cost the lock more often.
            try:
                for k, block in blocks:
                    work(k, block)
            except BaseException:
                deque(blocks, 0)  # the others also stop
                raise

        deque(pool.map(some, range(plan.readers)), 0)

    devices = [lane.device for lane in solver.lanes]
    with ThreadPoolExecutor(plan.readers) as pool, memory_bounds(solver.memory_limit, devices):
        try:
            stream(
                regions,
                read,
                save,
                compute=solve,
                buffers=solver.slots(plan.buffers),
                workers=plan.buffers,  # each waits for the GPU of its region
                done=done,
            )
        finally:
            solver.close()
