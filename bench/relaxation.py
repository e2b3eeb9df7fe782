"""A problem of shortest paths in the memory of a GPU, solved again and again."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.device import cupy
from terrain_gpu.cuda.device import module
from terrain_gpu.paths.cost.models import AbsDiff, cuda_name
from terrain_gpu.paths.relax.gpu import memory, relaxing, variants
from terrain_gpu.paths.relax.gpu.classic import RELAXERS
from terrain_gpu.paths.relax.relaxation import GUARDS

EVERY = (True, True, False)


class Bench:
    """A problem on the GPU: cost, cells, and a seed."""

    def __init__(self, cost: Any, cells: Any, seed: tuple[int, int], walls: Any = None) -> None:
        self.cost, self.seed = cost, seed
        self.shape = memory.Shape(*cells.shape)
        self.integer = isinstance(cost, AbsDiff) and cells.dtype.kind == "u"
        self.dtype = np.dtype(np.uint32 if self.integer else np.float64)
        self.heights = memory.padded(self.shape, cells.dtype, 0)
        self._inside(self.heights)[...] = cells
        self.frictions = self.heights
        self.distances = memory.padded(self.shape, self.dtype, variants.absent(self.dtype))
        self.walls = walls
        lengths = np.repeat(
            np.array([10.0, np.hypot(10.0, 10.0), 10.0])[:, None], self.shape.padded, 1
        )
        self.lengths = cupy.array(lengths)

    def _inside(self, array: Any) -> Any:
        whole = array[: self.shape.padded * self.shape.pitch - 31]
        rows, cols, pitch = self.shape.rows, self.shape.cols, self.shape.pitch
        return cupy.lib.stride_tricks.as_strided(
            whole[pitch + 1 :], (rows, cols), (pitch * whole.itemsize, whole.itemsize)
        )

    def solve(self, method: str = "relax") -> tuple[float, Any]:
        """Seconds, and the method's report."""
        top = 2**31 - 1 if self.integer else np.inf
        inside = self._inside(self.distances)
        inside[...] = top
        if self.walls is not None:
            inside[self.walls] = variants.absent(self.dtype)
        self.relaxing = own = relaxing.Relaxing(
            self.shape, self.cost, self.heights.dtype, None, self.dtype, EVERY, top
        )
        given = cuda_name(self.cost), self.heights.dtype, self.dtype, 1
        fields = module("fields", variants.fields_macros(*given))
        at = cupy.array([self.seed[0] * self.shape.cols + self.seed[1]])
        fields.get_function("sources")(
            (1,),
            (1,),
            (at, cupy.zeros(1, self.dtype), 1, self.shape.cols, self.shape.pitch, self.heights,
             self.distances, *own.pending, memory.new_notes()),
        )  # fmt: skip
        guard = GUARDS[4] if self.integer else np.inf
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        if method in RELAXERS:
            piece: Any = self  # it has what a piece of a raster has
            found = RELAXERS[method](piece, lambda: None)
        else:
            found = own.run(self.heights, self.heights, self.lengths, self.distances, guard)
        cupy.cuda.Device().synchronize()
        return time.perf_counter() - start, found

    def result(self) -> np.ndarray:
        """The distances."""
        return self._inside(self.distances).get()
