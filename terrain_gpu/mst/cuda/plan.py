"""The spanning forest on a GPU: macros of the kernels, and the size of regions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from ...cuda.backend import Gpu
from ...cuda.device import CELL_TYPES, RESERVED, shared_memory
from ...engine.plan import (
    COMPILED_BASELINE,
    CUDA_BASELINE,
    MB,
    StreamPlan,
    format_size,
    layer_bytes,
    limit_of,
)
from ...errors import PlanError
from ...grid import TILE, BlockGrid, RegionGrid, ceil_div, round_up
from ..cpu.tile import RING
from ..weights import WEIGHTS

MOST_SIDE = 2**15
"""The largest side of a region: ids of its edges have 32 bits."""

SLOTS = 2
"""Most regions on the GPU: one is read or written while the other is solved."""

TILE_EDGES = RING - 1 + 6 * TILE - 2
"""Most candidates of a tile plus edges to later tiles."""


def variants() -> list[dict[str, Any]]:
    """Return macros that cover every type and weight, with and without cells in shared memory."""
    return [
        macros(np.dtype(dtype), name, cached)
        for dtype in CELL_TYPES
        for name, cached in zip(WEIGHTS, cycle((True, False)), strict=False)
    ]


def macros(dtype: np.dtype, weight: str, cached: bool) -> dict[str, Any]:
    """Return the macros of ``cuda/kernels/mst.cu``."""
    return {
        "CELL": CELL_TYPES[dtype.name],
        "ABSDIFF": WEIGHTS[weight].subtracts,
        "CACHED": cached,
        "TILE_BYTES": tile_bytes(dtype, cached),
        "WIDE_KEYS": dtype.itemsize == 8,
    }


def tile_bytes(dtype: np.dtype, cached: bool) -> int:
    """Return the shared memory of a tile in bytes: `Tile` in the kernels."""
    cells, item = TILE * TILE, dtype.itemsize
    word = 4 if item <= 2 else 8
    numbers = 4 * cells if item == 8 else 4
    operand = max(item, 2) * (cells if cached else 1)
    return cells * (word + 6 + 1) + numbers + 4 * RING + operand + 64


def keeps_cells(dtype: np.dtype, device: int) -> bool:
    """Return whether a tile fits into shared memory together with its cells.

    Raises
    ------
    PlanError
        when a tile does not fit even without its cells.
    """
    room = shared_memory(device)
    if tile_bytes(dtype, False) > room:
        raise PlanError(
            f"cells of {dtype.name} need {tile_bytes(dtype, False)} bytes of shared memory, "
            f"this GPU has {room}; use --backend cpu"
        )
    return tile_bytes(dtype, True) <= room


def slot_bytes(dtype: np.dtype) -> int:
    """Return the GPU memory of a buffered region, in bytes per cell."""
    return dtype.itemsize + 1


def work_bytes(dtype: np.dtype) -> float:
    """Return the additional GPU memory for solving a region, in bytes per cell."""
    edge = 8 + 4 * 3 + 4 * (dtype.itemsize == 8)
    vertex = 8 + 4 + 1 + 4
    # Two lists of edges, a copy of the edges to choose candidates from, and their tags.
    return (TILE_EDGES * (2.5 * edge + 4) + RING * vertex) / TILE**2


def merge_bytes(vertices: int, edges: int, dtype: np.dtype) -> int:
    """Return the GPU memory for joining regions, in bytes."""
    wide = dtype.itemsize == 8
    # Two lists of edges with tags, plus either the sort or the edges found, chosen and kept.
    return edges * (2 * (8 + 4 * 3 + 4 * wide) + 48) + vertices * (8 + 4 + 1 + 4 * wide)


def plan_regions(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    spill: Callable[[BlockGrid], int],
    levels: int,
    source_bytes: int,
    threads: int,
    memory_limit: int | None,
    gpu: Gpu,
) -> StreamPlan:
    """Plan a spanning forest on GPUs; ``unit_rows`` is the side of a region.

    Parameters
    ----------
    gpu
        Of several each gets a region, if there are that many.

    Raises
    ------
    PlanError
        when a region of one block does not fit one of the limits.
    """
    limit = limit_of(memory_limit)
    item = dtype.itemsize
    # A staging buffer and the work memory of a writer.
    thread = block**2 * (2 * item + 6)
    baseline = COMPILED_BASELINE + CUDA_BASELINE
    least = baseline + max(thread, levels)
    threads = max(1, min(threads, (limit - baseline) // thread))
    host = baseline + max(threads * thread, levels)

    def device(side: int) -> int:
        slots = min(SLOTS, RegionGrid(rows, cols, side).count)
        cells = min(side, round_up(rows, block)) * min(side, round_up(cols, block))
        return RESERVED + int(cells * (slots * slot_bytes(dtype) + work_bytes(dtype)))

    if host > limit or device(block) > gpu.memory:
        raise PlanError(
            f"the spanning tree of {rows} x {cols} cells of {dtype.name} in blocks of {block} "
            f"needs --memory-limit {ceil_div(least, MB)}MB and --gpu-memory-limit "
            f"{ceil_div(device(block), MB)}MB at least ({format_size(limit)} and "
            f"{format_size(gpu.memory)} given); or use --backend cpu"
        )
    side = block
    while side < min(MOST_SIDE, max(rows, cols)) and device(2 * side) <= gpu.memory:
        if RegionGrid(rows, cols, 2 * side).count < len(gpu.devices):
            break
        side *= 2
    regions = RegionGrid(rows, cols, side)
    devices = min(len(gpu.devices), regions.count)
    slots = min(SLOTS * devices, regions.count)
    return StreamPlan(
        rows=rows,
        cols=cols,
        dtype=dtype.name,
        block_size=block,
        unit_rows=side,
        unit_cols=side,
        buffers=slots,
        readers=threads,
        writers=threads,
        workers=devices,
        passes=1,
        blocks=BlockGrid(rows, cols, block).count,
        memory_limit=limit,
        memory=host,
        bytes_read=source_bytes + spill(regions),
        # Blocks are written again if edges become final above their region.
        bytes_written=(1 + (regions.count > 1)) * layer_bytes(rows, cols, 1, block)
        + spill(regions),
    )
