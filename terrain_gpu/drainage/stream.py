"""Blocks of a forest, streamed: the plan, and the loop that phases share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..engine.plan import StreamPlan, fit_blocks, layer_bytes
from ..engine.schedule import stream
from ..grid import Block, BlockGrid
from ..mst.weights import Weight
from ..progress import Progress
from .block import Work, read_forest, work_bytes
from .skeleton import OUTLINE_BYTES
from .source import Forest


def plan_blocks(
    blocks: BlockGrid,
    dtype: np.dtype,
    what: str,
    *,
    vertex: int,
    work: int = 0,
    results: int = 0,
    beside: int = 0,
    written: int = 0,
    memory_limit: int | str | None,
    threads: int | None,
) -> StreamPlan:
    """How blocks stream in two passes, and what the skeleton between them takes.

    Parameters
    ----------
    blocks, dtype
        Of the layer of heights.
    what
        What is done, for messages.
    vertex
        Bytes for each vertex of the skeleton while it is solved.
    work, results
        Bytes for each cell of a block: of a worker beside `block.Work`, and of what a buffer
        receives.
    beside
        Further bytes.
    written
        Bytes written at most.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    rows, cols, block, item = blocks.rows, blocks.cols, blocks.block, dtype.itemsize
    ring = (block + 2) ** 2
    down, across = blocks.shape
    # About half of the cells at a border have an edge across it: the ends of these, and branches.
    vertices = 5 * ((down - 1) * cols + (across - 1) * rows) // 2
    return fit_blocks(
        blocks,
        dtype.name,
        f"to {what}",
        buffer=ring * (item + 1 + results),
        worker=work_bytes(block, dtype, Weight("max", dtype).key_dtype) + ring * work,
        scratch=block * block * (item + 2 * results),
        held=vertices * OUTLINE_BYTES + beside,
        joined=vertices * vertex + beside,
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, size, block) for size in (item, 1)),
        bytes_written=written,
        memory_limit=memory_limit,
        threads=threads,
    )


class ForestBlocks:
    """Blocks of a forest, streamed through threads that each have work space of their own."""

    def __init__(
        self, forest: Forest, plan: StreamPlan, *results: Any, work: type[Work] = Work
    ) -> None:
        self.forest, self.plan, self._work = forest, plan, work
        self.blocks = forest.cells.blocks
        self._kinds = forest.cells.dtype, np.uint8, *results
        self._local = threading.local()

    def stream(
        self,
        items: Iterable[Block],
        compute: Callable[..., Any],
        write: Callable[[Block, Any], None],
        progress: Progress,
        total: int,
    ) -> None:
        """``write(at, compute(at, block, *results))`` for blocks; `results` are flat arrays."""

        def read(at: Block, buffer: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            r0, r1, c0, c1 = self.blocks.window(*at)
            shape = r1 - r0 + 2, c1 - c0 + 2
            # Contiguous for every shape, so that the kernels are compiled once.
            cells, edges = (flat[: shape[0] * shape[1]].reshape(shape) for flat in buffer[:2])
            self.forest.cells.read_block(*at, out=cells, halo=1)
            self.forest.edges.read_block(*at, out=edges, halo=1)
            return (cells, edges, *buffer[2:])

        def computed(at: Block, data: tuple[np.ndarray, ...]) -> Any:
            if not hasattr(self._local, "work"):
                self._local.work = self._work(self.blocks)
            window = self.blocks.window(*at)
            block = read_forest(self.forest, window, data[0], data[1], self._local.work)
            return compute(at, block, *data[2:])

        # Not kept between phases: the skeleton needs the memory.
        ring = (self.plan.unit_rows + 2) * (self.plan.unit_cols + 2)
        buffers = [
            tuple(np.empty(ring, kind) for kind in self._kinds) for _ in range(self.plan.buffers)
        ]

        def finished(at: Block) -> None:
            r0, r1, c0, c1 = self.blocks.window(*at)
            progress((r1 - r0) * (c1 - c0), total)

        stream(
            items,
            read,
            write,
            compute=computed,
            buffers=buffers,
            workers=self.plan.workers,
            done=finished,
        )
