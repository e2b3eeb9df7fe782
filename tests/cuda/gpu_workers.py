"""Workers with a GPU each: real ones where there are as many, else a stand-in for them.

The kernels of a spanning tree need many threads in a block, which the emulation has not; there the
CPU solves the regions.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

import emulation
import numpy as np
import pytest
from cluster import share_imports
from distributed import WorkerPlugin

from terrain_gpu.cuda import device
from terrain_gpu.engine import connection
from terrain_gpu.engine import worker as tasks
from terrain_gpu.spanning_tree.gpu import regions
from terrain_gpu.spanning_tree.levels import Solver
from terrain_gpu.store.tiles import split_bits, untile, z_view


class StandIn(WorkerPlugin):
    """Gives each worker a "GPU" of its own; also those that Dask starts again.

    For shortest paths it has `lanes`.
    """

    name = "stand-in"

    def __init__(self, folder, shared=False, lanes=False):
        self.folder, self.shared, self.lanes = folder, shared, lanes

    def setup(self, worker):
        use = emulation.in_lanes if self.lanes else emulation.use
        use(pytest.MonkeyPatch(), self.folder)
        import cupy

        told = {"name": b"emulated", "uuid": str(0 if self.shared else os.getpid()).encode()}
        cupy.cuda.runtime.getDeviceProperties = lambda number: told
        regions.GpuSolver.solve = solve_on_the_cpu
        if self.lanes:  # kernels cannot be emulated side by side
            tasks.available_threads = lambda: 1


def solve_on_the_cpu(self, at, slot):
    window = r0, r1, c0, c1 = self.regions.window(*at)
    cells, side = np.empty((r1 - r0, c1 - c0), self.weight.dtype), self.blocks.block
    inside = [self.blocks.window(*block) for block in self.blocks_in(at)]
    places = [np.s_[a - r0 : b - r0, c - c0 : d - c0] for a, b, c, d in inside]
    for tiles, place in zip(slot.cells.get(), places, strict=False):
        own = cells[place]
        own[...] = untile(tiles)[: own.shape[0], : own.shape[1]]
    mask = np.zeros(cells.shape, np.uint8)
    solver = Solver(self.shape, self.regions.block, self.weight, self.nodata, self.diagonal)
    solved = solver.solve(window, cells, mask)
    for tiles, place in zip(slot.mask, places, strict=False):
        block = np.zeros((side, side), np.uint8)
        own = mask[place]
        block[: own.shape[0], : own.shape[1]] = own
        z_view(tiles.view(np.ndarray))[...] = split_bits(block)
    return solved


@contextmanager
def workers_with_gpus(count, folder, announced=True, **how):
    share_imports()
    real = device.why_not() is None
    if real:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() < count:
            pytest.skip("fewer GPUs than workers")
    with connection.open_client(count, None, "all" if announced else None) as client:
        if not real:
            client.register_plugin(StandIn(folder, **how))
        yield client
