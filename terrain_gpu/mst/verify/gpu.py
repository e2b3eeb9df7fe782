"""The proof of a spanning forest on a GPU: it holds exactly the edges that Boruvka's rounds pick.

The whole raster is one graph in the GPU's memory, row by row, without tiles, blocks or borders; see
``cuda/kernels/verify.cu``. The GPU only finds that a forest is wrong; the CPU locates the error.
"""

from __future__ import annotations

import math
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...cells import fits, layer_dtype
from ...cuda.backend import Gpu
from ...cuda.device import CELL_TYPES, RESERVED, Staging, free_staging, memory_bound, module
from ...engine.plan import COMPILED_BASELINE, CUDA_BASELINE, MB, format_size
from ...engine.schedule import stream
from ...errors import PlanError
from ...grid import ceil_div
from ...progress import Progress
from ..weights import WEIGHTS, Weight, weights_of

if TYPE_CHECKING:
    from .blocks import Blocks

NARROW = 2**32
"""With fewer cells than this, 32 bits number the cells."""
STRIP = 2**28
"""Cells whose weights are summed at a time, so that no sum exceeds 64 bits."""

_THREADS = 256


class Found(NamedTuple):
    """Sums over a raster, like `pieces.ForestTally`."""

    vertices: int
    edges: int
    checked: int
    exact: int | float


def variants() -> list[dict[str, Any]]:
    """Return macros that cover every type, every weight and both widths."""
    return [
        macros(np.dtype(dtype), name, narrow)
        for dtype in CELL_TYPES
        for name, narrow in zip(weights_of(np.dtype(dtype)), cycle((True, False)), strict=False)
    ]


def macros(dtype: np.dtype, weight: str, narrow: bool) -> dict[str, Any]:
    """Return the macros of ``cuda/kernels/verify.cu``."""
    return {
        "CELL": CELL_TYPES[dtype.name],
        "ABSDIFF": WEIGHTS[weight].subtracts,
        "SLOPES": WEIGHTS[weight].slopes,
        "VERTEX": CELL_TYPES["uint32" if narrow else "uint64"],
    }


def gpu_bytes(cells: int, dtype: np.dtype) -> int:
    """Return the GPU memory needed in bytes: cells, mask, and each cell's parent and best edge."""
    return RESERVED + cells * (dtype.itemsize + 1 + (4 if cells < NARROW else 8) + 8)


def prove(
    cells: Blocks,
    edges: Blocks,
    weight: Weight,
    diagonal: bool,
    *,
    gpu: Gpu,
    memory_limit: int,
    threads: int,
    progress: Progress,
) -> Found | None:
    """Return sums over a raster if the layer `edges` is its minimum spanning forest, else None.

    Parameters
    ----------
    gpu
        The GPU, with the limit on its memory.
    memory_limit, threads
        Limit on the resident set of the process in bytes, and on the number of reading threads.

    Raises
    ------
    PlanError
        when the raster does not fit the GPU's memory.

    Notes
    -----
    Boruvka's rounds [1]_. GPU memory per cell is the cell itself and 13 bytes, or 17 bytes from
    2**32 cells.

    .. [1] O. Boruvka, "O jistem problemu minimalnim", 1926.
    """
    blocks, dtype = cells.blocks, layer_dtype(cells.dtype)
    on_gpu = gpu_bytes(blocks.rows * blocks.cols, dtype)
    needed = f"{ceil_div(on_gpu, MB)}MB"
    if on_gpu > gpu.memory:
        raise PlanError(
            f"verifying {blocks.rows} x {blocks.cols} cells of {dtype.name} takes {needed} of GPU "
            f"memory, more than the {format_size(gpu.memory)} "
            f"{'given' if gpu.given else 'free'}; give --gpu-memory-limit "
            f"{needed}, or use --backend cpu"
        )
    if blocks.cols * dtype.itemsize >= 2**31:
        raise PlanError(f"rows of {blocks.cols} cells are too long for CUDA; use --backend cpu")

    # Each reader has a staging buffer and the encoded block of either layer.
    reader = blocks.block**2 * (2 * dtype.itemsize + 1)
    readers = min(threads, (memory_limit - COMPILED_BASELINE - CUDA_BASELINE) // reader)
    try:
        with memory_bound(gpu.memory, gpu.device):
            return _prove(cells, edges, weight, diagonal, gpu.device, max(readers, 1), progress)
    finally:
        # A proof on the CPU that may follow does not budget for page-locked buffers.
        free_staging()


def _prove(
    cells: Blocks,
    edges: Blocks,
    weight: Weight,
    diagonal: bool,
    device: int,
    readers: int,
    progress: Progress,
) -> Found | None:
    import cupy

    blocks = cells.blocks
    with cupy.cuda.Device(device):
        raster = GpuRaster((blocks.rows, blocks.cols), weight, cells.nodata, diagonal)
        staging = Staging(blocks.block**2 * weight.dtype.itemsize, device)

    def read(at: tuple[int, int], _: None) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        for source, whole in (cells, raster.cells), (edges, raster.mask):
            host = source.read_block(*at, out=staging.host((r1 - r0, c1 - c0), whole.dtype))
            staging.place(host, whole[r0:r1, c0:c1])

    def finished(at: tuple[int, int]) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        progress((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

    stream(
        blocks.ids(),
        read,
        lambda at, _: None,
        buffers=[None] * readers,
        readers=readers,
        done=finished,
    )
    with cupy.cuda.Device(device):
        return raster.prove()


class GpuRaster:
    """A raster and a mask of edges on the current GPU, to be filled and verified.

    Attributes
    ----------
    cells, mask
        Arrays of the raster's shape; the mask is uint8.
    """

    def __init__(
        self, shape: tuple[int, int], weight: Weight, nodata: float | int | None, diagonal: bool
    ) -> None:
        import cupy

        self.cupy, self.weight = cupy, weight
        n, dtype = shape[0] * shape[1], layer_dtype(weight.dtype)
        narrow = n < NARROW
        self.cells, self.mask = cupy.empty(shape, dtype), cupy.empty(shape, np.uint8)
        self._parent = cupy.empty(n, np.uint32 if narrow else np.uint64)
        self._best = cupy.empty(n, np.uint64)
        self._per_length = cupy.asarray(weight.rule()) if weight.slopes else np.uint64(0)
        # A nodata value that does not fit the cells' type marks no cell.
        marks = nodata is not None and fits(nodata, dtype)
        self._nodata = dtype.type(nodata if marks else 0), np.int32(marks)
        self._n = np.int64(n)
        self._grid = np.int64(shape[0]), np.int64(shape[1]), np.int32(diagonal)
        self._kernels = module("verify", macros(dtype, weight.name, narrow))
        self._blocks = 32 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def prove(self) -> Found | None:
        """Return the sums if the mask is the minimum spanning forest, else None."""
        self._launch("start", self._n, self.cells, *self._nodata, self._parent, self._best)
        found, wrong = self._survey()
        return None if wrong or self._picked() != found.edges else found

    def _launch(self, name: str, *arguments: Any) -> None:
        self._kernels.get_function(name)((self._blocks,), (_THREADS,), arguments)

    def _survey(self) -> tuple[Found, int]:
        """Return the sums, and the number of bits that are not edges."""
        dtype = self.weight.dtype
        exponents = 1 if dtype.kind != "f" else 256 if dtype.itemsize == 4 else 2048
        counts, exact, infinite = self._zeros(4), 0, False
        for first in range(0, int(self._n), STRIP):
            sums = self._zeros(2 * exponents)
            span = np.int64(first), np.minimum(self._n, np.int64(first + STRIP))
            given = self.cells, self.mask, self._parent
            self._launch("survey", *span, *self._grid, *given, counts, sums)
            words = sums.get().view(np.int64).reshape(-1, 2)
            infinite |= exponents > 1 and bool(words[-1].any())
            for k in np.flatnonzero(words.any(axis=1)).tolist():
                exact += (int(words[k, 0]) + (int(words[k, 1]) << 32)) << max(k - 1, 0)
        if exponents > 1:
            # Convert the unit from the least subnormal of the type to 2**-1126.
            exact <<= 1126 - (149 if dtype.itemsize == 4 else 1074)
        vertices, edges, checked, wrong = counts.get().tolist()
        return Found(vertices, edges, checked, math.inf if infinite else exact), wrong

    def _picked(self) -> int:
        """Return the number of all edges picked, or -1 if one of them is not in the mask."""
        total = 0
        while True:
            counts = self._zeros(2)
            work = self._parent, self._best
            self._launch("least_edges", *self._grid, self.cells, self._per_length, *work)
            self._launch("aim", self._n, self._grid[1], self.mask, *work, counts)
            self._launch("hook", self._n, *work, counts[1:])
            lacking, picks = counts.get().tolist()
            if lacking or not picks:
                return -1 if lacking else total
            total += picks
            unfinished = True
            while unfinished:
                flag = self._zeros(1)
                self._launch("flatten", *self._grid[:2], *work, flag)
                unfinished = bool(flag.get()[0])

    def _zeros(self, count: int) -> Any:
        return self.cupy.zeros(count, np.uint64)
