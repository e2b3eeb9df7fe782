"""The spanning forest on a GPU: macros of the kernels, and the size of regions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import numpy as np

from ...cuda.device import CELL_TYPES, RESERVED, shared_memory
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB, Machine
from ...engine.plan import StreamPlan, format_size, layer_bytes
from ...errors import PlanError
from ...facts import Settings
from ...grid import TILE, BlockGrid, RegionGrid, ceil_div, round_up
from ..weights import Weight, weights_of

MOST_SIDE = 2**15
"""The largest side of a region: ids of its edges have 32 bits."""

SLOTS = 2
"""Most regions on the GPU: one is read or written while the other is solved."""

REGIONS_OF_A_WORKER = 8
"""Regions that each worker of a cluster gets, if there are as many blocks: to balance the load."""

RING = 4 * TILE - 4
"""Cells on the rim of a tile."""

TILE_EDGES = RING - 1 + 6 * TILE - 2
"""Most candidates of a tile plus edges to later tiles."""


def variants() -> list[Settings]:
    """Return macros that cover every type and weight, with and without cells in shared memory."""
    types = [np.dtype(dtype) for dtype in CELL_TYPES]
    return [
        macros(Weight(name, dtype), cached)
        for dtype in types
        for name, cached in zip(weights_of(dtype), cycle((True, False)), strict=False)
    ]


def macros(weight: Weight, cached: bool) -> Settings:
    """Return the macros of ``cuda/kernels/mst.cu``."""
    return {
        "CELL": CELL_TYPES[weight.dtype.name],
        "ABSDIFF": weight.subtracts,
        "SLOPES": weight.slopes,
        "CACHED": cached,
        "TILE_BYTES": tile_bytes(weight, cached),
        "WIDE_KEYS": is_wide(weight),
    }


def is_wide(weight: Weight) -> bool:
    """Return whether keys have 64 bits, so that no word holds key and number of an edge."""
    return weight.key_bits == 64


def tile_bytes(weight: Weight, cached: bool) -> int:
    """Return the shared memory of a tile in bytes: `Tile` in the kernels."""
    cells, item = TILE * TILE, weight.dtype.itemsize
    word = 4 if weight.key_bits <= 16 else 8
    numbers = 4 * cells if is_wide(weight) else 4
    operand = max(item, 2) * (cells if cached else 1)
    return cells * (word + 6 + 1) + numbers + 4 * RING + operand + 64


def keeps_cells(weight: Weight, device: int) -> bool:
    """Return whether a tile fits into shared memory together with its cells.

    Raises
    ------
    PlanError
        when a tile does not fit even without its cells, or keys have two words.
    """
    if weight.two_words:
        raise PlanError(
            f"flow over cells of {weight.dtype.name} has no kernels for GPUs; use --backend cpu"
        )
    room = shared_memory(device)
    if tile_bytes(weight, False) > room:
        raise PlanError(
            f"cells of {weight.dtype.name} need {tile_bytes(weight, False)} bytes of shared "
            f"memory, this GPU has {room}; use --backend cpu"
        )
    return tile_bytes(weight, True) <= room


def slot_bytes(dtype: np.dtype) -> int:
    """Return the GPU memory of a buffered region, in bytes per cell."""
    return dtype.itemsize + 1


def work_bytes(weight: Weight) -> float:
    """Return the additional GPU memory for solving a region, in bytes per cell."""
    edge = 8 + 4 * 3 + 4 * is_wide(weight)
    vertex = 8 + 4 + 1 + 4
    # Two lists of edges, a copy of the edges to choose candidates from, and their tags.
    return (TILE_EDGES * (2.5 * edge + 4) + RING * vertex) / TILE**2


CONTRACTING = 400
"""Additional GPU memory of the method "contract", in bytes per cell: the whole forest of a region
as a list of edges, and the Euler tour of its trees."""


def merge_bytes(vertices: int, edges: int, weight: Weight, contracts: bool = False) -> int:
    """Return the GPU memory for joining regions, in bytes."""
    if contracts:  # ends may lie inside, at most two for each edge
        return edges * 2 * CONTRACTING
    wide = is_wide(weight)
    # Two lists of edges with tags, plus either the sort or the edges found, chosen and kept.
    return edges * (2 * (8 + 4 * 3 + 4 * wide) + 48) + vertices * (8 + 4 + 1 + 4 * wide)


def plan_regions(
    rows: int,
    cols: int,
    weight: Weight,
    block: int,
    *,
    spill: Callable[[BlockGrid], int],
    levels: int,
    source_bytes: int,
    machine: Machine,
    method: str = "frozen",
) -> StreamPlan:
    """Plan a spanning forest on GPUs; ``unit_rows`` is the side of a region.

    Parameters
    ----------
    machine
        With a GPU. Of several each gets a region, if there are that many; of a cluster's workers
        several.

    Raises
    ------
    PlanError
        when a region of one block does not fit one of the limits.
    """
    limit, gpu, dtype = machine.memory_limit, machine.gpu, weight.dtype
    item = dtype.itemsize
    # A staging buffer and the work memory of a writer.
    thread = block**2 * (2 * item + 6)
    baseline = COMPILED_BASELINE + CUDA_BASELINE + machine.overhead
    # The levels are joined where the GPU is, or in the process that starts the workers.
    joining = baseline - (CUDA_BASELINE if gpu.workers else 0) + levels
    least = max(baseline + thread, joining)
    threads = max(1, min(machine.threads, (limit - baseline) // thread))
    solving = baseline + threads * thread
    host = max(solving, joining)

    def device(side: int) -> int:
        slots = min(SLOTS, RegionGrid(rows, cols, side).count)
        cells = min(side, round_up(rows, block)) * min(side, round_up(cols, block))
        lengths = 4 * 8 * min(side, rows) * weight.slopes
        of_cell = slots * slot_bytes(dtype) + work_bytes(weight)
        of_cell += CONTRACTING * (method == "contract")
        return RESERVED + int(cells * of_cell) + lengths

    if host > limit or device(block) > gpu.memory:
        raise PlanError(
            f"the spanning tree of {rows} x {cols} cells of {dtype.name} in blocks of {block} "
            f"needs --memory-limit {ceil_div(least, MB)}MB and --gpu-memory-limit "
            f"{ceil_div(device(block), MB)}MB at least ({format_size(limit)} and "
            f"{format_size(gpu.memory)} given); or use --backend cpu"
        )
    least_regions = REGIONS_OF_A_WORKER * len(gpu.workers) or len(gpu.devices)
    side = block
    while side < min(MOST_SIDE, max(rows, cols)) and device(2 * side) <= gpu.memory:
        if RegionGrid(rows, cols, 2 * side).count < least_regions:
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
        memory=joining if gpu.workers else host,
        worker_memory=solving if gpu.workers else 0,
        bytes_read=source_bytes + spill(regions),
        # Blocks are written again if edges become final above their region.
        bytes_written=(1 + (regions.count > 1)) * layer_bytes(rows, cols, 1, block)
        + spill(regions),
    )
