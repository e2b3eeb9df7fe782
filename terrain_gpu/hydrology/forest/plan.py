"""Plan two streamed passes over the blocks of a forest, with a skeleton solved in between."""

from __future__ import annotations

import numpy as np

from ...engine.machine import Machine
from ...engine.plan import PER_ROW, Growing, StreamPlan, fit_blocks, layer_bytes
from ...grid import BlockGrid
from ...spanning_tree.weights import Weight
from .block import work_bytes
from .skeleton import OUTLINE_BYTES, Skeleton


def most_vertices(blocks: BlockGrid) -> int:
    """Return how many vertices of a skeleton are planned for.

    About half of the cells along a border have an edge across it. Both ends count, and branches.
    """
    return 5 * blocks.line_cells // 2


def vertex_bytes(dtype: np.dtype, vertex: int) -> tuple[int, int]:
    """Return the bytes of a vertex while blocks stream, and while the skeleton is solved."""
    extra = Weight("flow", dtype).key_dtype.itemsize - 8
    return OUTLINE_BYTES + extra, vertex + 3 * extra


def planned_skeleton(
    plan: StreamPlan, dtype: np.dtype, *, vertex: int, beside: int = 0
) -> Skeleton:
    """Return an empty skeleton for a run by the plan of `plan_blocks`, with its arguments."""
    each, blocks = vertex_bytes(dtype, vertex), BlockGrid(plan.rows, plan.cols, plan.block_size)
    held, joined = (most_vertices(blocks) * size for size in each)
    return Skeleton(each, Growing(plan, held, joined, beside))


def plan_blocks(
    blocks: BlockGrid,
    dtype: np.dtype,
    verb: str,
    *,
    vertex: int,
    work: int = 0,
    results: int = 0,
    beside: int = 0,
    before: int = 0,
    written: int = 0,
    row_bytes: int = PER_ROW,
    machine: Machine,
) -> StreamPlan:
    """Plan two passes over the blocks, and the memory of the skeleton between them.

    Parameters
    ----------
    blocks, dtype
        The blocks and the dtype of the elevation layer.
    verb
        The verb for messages: "accumulate".
    vertex
        Bytes per vertex of the skeleton while it is solved.
    work, results
        Bytes per cell of a block: of a worker in addition to `block.Work`, and of the results in
        a buffer.
    beside
        Additional bytes, whatever the block size.
    before
        Bytes held during another pass, before there is a skeleton.
    written
        Upper bound on the bytes written.
    row_bytes
        Bytes held for each row of the raster: lengths of steps, areas of cells.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    rows, cols, block, item = blocks.rows, blocks.cols, blocks.block, dtype.itemsize
    ring, key = blocks.largest(1), Weight("flow", dtype).key_dtype
    held, joined = (most_vertices(blocks) * each for each in vertex_bytes(dtype, vertex))
    return fit_blocks(
        blocks,
        dtype.name,
        f"to {verb}",
        buffer=ring * (item + 1 + results),
        worker=work_bytes(blocks, dtype, key) + ring * work,
        scratch=blocks.largest(tiled=True) * (item + 2 * results),
        common=row_bytes * rows,
        held=max(held + beside, before),
        joined=joined + beside,
        passes=2,
        bytes_read=2 * sum(layer_bytes(rows, cols, size, block) for size in (item, 1)),
        bytes_written=written,
        machine=machine,
    )
