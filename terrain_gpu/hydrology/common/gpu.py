"""A whole raster on a GPU: layers are transferred block by block, kernels run over tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...cuda.arrays import DeviceArray
from ...cuda.device import REGION, RESERVED, Staging, free_staging, memory_bound, module
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB, Machine
from ...engine.plan import StreamPlan, format_size, layer_bytes
from ...engine.run import Run
from ...engine.schedule import stream
from ...errors import PlanError
from ...facts import Settings
from ...grid import TILE, Block, BlockGrid, ceil_div
from ...store import Layer

MOST_CELLS = 2**32 - 2
"""Cells have 32-bit numbers, of which one is reserved."""

_THREADS = 256


def plan_resident(
    blocks: BlockGrid,
    command: str,
    read: Sequence[np.dtype],
    written: np.dtype,
    *,
    cell: int,
    machine: Machine,
) -> StreamPlan:
    """Plan an operation that holds the whole raster on a GPU.

    Parameters
    ----------
    read, written
        Data types of the layers.
    cell
        Bytes of GPU memory per cell, for all blocks, counted as whole blocks.
    machine
        A machine with a GPU.

    Raises
    ------
    PlanError
        If the raster does not fit the memory limits.
    """
    limit, gpu = machine.memory_limit, machine.gpu
    cells = blocks.count * blocks.block**2
    items = [dtype.itemsize for dtype in (*read, written)]
    # Each thread has a buffer, and a block in the format of the store.
    thread = blocks.block**2 * (2 * max(items) + 2)
    baseline = COMPILED_BASELINE + CUDA_BASELINE
    needed = RESERVED + cells * cell
    if needed > gpu.memory or baseline + thread > limit or cells > MOST_CELLS:
        raise PlanError(
            f"{command} of {blocks.rows} x {blocks.cols} cells in blocks of {blocks.block} needs "
            f"--memory-limit {ceil_div(baseline + thread, MB)}MB and --gpu-memory-limit "
            f"{ceil_div(needed, MB)}MB at least ({format_size(limit)} and "
            f"{format_size(gpu.memory)} given), and fewer than 2^32 cells; or use --backend cpu"
        )
    count = max(1, min(machine.threads, blocks.count, (limit - baseline) // thread))

    def stored(itemsizes: list[int]) -> int:
        shape = blocks.rows, blocks.cols
        return sum(layer_bytes(*shape, size, blocks.block) for size in itemsizes)

    return StreamPlan.of_blocks(
        blocks,
        read[0].name,
        buffers=count,
        readers=count,
        writers=count,
        workers=1,
        passes=1,
        memory_limit=limit,
        memory=baseline + count * thread,
        bytes_read=stored(items[:-1]),
        bytes_written=stored(items[-1:]),
    )


@contextmanager
def resident(run: Run, *arguments: Any) -> Iterator[ResidentRaster]:
    """Hold a raster on the run's GPU, within its limit; arguments as for `ResidentRaster`."""
    import cupy

    gpu = run.gpu
    try:
        with memory_bound(gpu.memory, gpu.device), cupy.cuda.Device(gpu.device):
            yield ResidentRaster(run, *arguments)
    finally:
        free_staging()  # a proof on the CPU that may follow does not plan for it


class ResidentRaster:
    """A raster on a GPU, on the current device.

    Parameters
    ----------
    run
        The run whose layers it reads and writes.
    kernels, values
        Name of the kernel file, and its macros.
    nodata
        The nodata value, or None.
    per_length
        Reciprocals of step lengths, see `spanning_tree.weights.Weight`; None if unused.

    Attributes
    ----------
    size
        Number of cells of all blocks, counted as whole blocks.
    """

    def __init__(
        self,
        run: Run,
        kernels: str,
        values: Settings,
        nodata: float | int | None = None,
        per_length: np.ndarray | None = None,
    ) -> None:
        import cupy

        self.run, self.cupy, self._kernels = run, cupy, module(kernels, values)
        self.blocks = blocks = run.operation.blocks
        self._tiles = (blocks.block // TILE) ** 2
        self.size = blocks.count * blocks.block**2
        largest = max(x.dtype.itemsize for x in (*run.operation.layers, *run.writers.values()))
        self._staging = Staging(blocks.block**2 * largest, cupy.cuda.Device().id)
        self._per_length = cupy.asarray(np.zeros(1) if per_length is None else per_length.ravel())
        across = ceil_div(blocks.cols, TILE)
        self._grid = ceil_div(blocks.rows, TILE) * across
        shift = (blocks.block // TILE).bit_length() - 1
        described = (blocks.rows, blocks.cols, shift, blocks.shape[1], across, 0)
        flags = nodata is not None, True, self._per_length.data.ptr
        self.region = cupy.asarray(np.array([(*described, *flags)], REGION).view(np.uint8))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report the seconds that kernels launched in this context take."""
        with self.run.report.phase(name):
            yield
            self.cupy.cuda.get_current_stream().synchronize()

    def launch(self, name: str, *arguments: object) -> None:
        """Launch a kernel over all tiles."""
        kernel = self._kernels.get_function(name)
        kernel((self._grid,), (_THREADS,), (self.region, *arguments))

    def launch_list(self, name: str, count: int, *arguments: object) -> None:
        """Launch a kernel over a list of this length."""
        kernel = self._kernels.get_function(name)
        most = 8 * self.cupy.cuda.Device().attributes["MultiProcessorCount"]
        grid = max(1, min(most, ceil_div(count, _THREADS)))
        kernel((grid,), (_THREADS,), (self.region, *arguments))

    def position(self, at: int) -> tuple[int, int]:
        """Return the row and column of a cell from its index in shard order."""
        tile, inside = divmod(at, TILE * TILE)
        block, rank = divmod(tile, self._tiles)
        i, j = divmod(block, self.blocks.shape[1])
        row = sum((rank >> 2 * bit + 1 & 1) << bit for bit in range(16))
        col = sum((rank >> 2 * bit & 1) << bit for bit in range(16))
        side = self.blocks.block
        return i * side + row * TILE + inside // TILE, j * side + col * TILE + inside % TILE

    def empty(self, dtype: DTypeLike) -> DeviceArray:
        """Allocate a flat array of all cells, in shard order."""
        return self.cupy.empty(self.size, dtype)

    def _part(self, array: DeviceArray, at: Block) -> DeviceArray:
        k = at[0] * self.blocks.shape[1] + at[1]
        return array.reshape(self.blocks.count, self._tiles, TILE, TILE)[k]

    def read(self, *layers: Layer) -> list[Any]:
        """Read whole layers. Progress counts their cells in all passes but the last."""
        arrays = [self.empty(layer.dtype) for layer in layers]
        shape = self._tiles, TILE, TILE

        def load(at: Block, buffer: None) -> None:
            for layer, array in zip(layers, arrays, strict=True):
                host = self._staging.host(shape, layer.dtype)
                layer.read_tiles(*at, out=host)
                self._staging.upload(host, self._part(array, at))

        def done(at: Block) -> None:
            for _ in range(self.run.operation.passes - 1):
                self.run.tick(at)

        with self.run.report.phase("read"):
            count = self.run.plan.readers
            stream(
                self.blocks.ids(),
                load,
                lambda at, data: None,
                buffers=[None] * count,
                readers=count,
                done=done,
            )
        return arrays

    def write(self, name: str, array: DeviceArray) -> None:
        """Write the blocks of an output that an earlier run did not write."""
        writer, count = self.run.writers[name], self.run.plan.writers

        def save(at: Block, data: None) -> None:
            if not self.run.written(at):
                writer.write_tiles(*at, self._staging.download(self._part(array, at)))

        with self.run.report.phase("write"):
            stream(
                self.blocks.ids(),
                lambda at, buffer: None,
                save,
                buffers=[None] * count,
                writers=count,
                done=self.run.tick,
            )
