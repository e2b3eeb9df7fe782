"""The plan of a conversion or an export: rasters that are read in chunks of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import PlanError
from ..grid import MAX_BLOCK, MIN_BLOCK, BlockGrid, ceil_div, round_up
from .machine import BASELINE, COMPILED_BASELINE, DEFAULT_BLOCK, GDAL_CACHE, MB, Machine
from .plan import MAX_SHARDS, RECORD_BYTES, StreamPlan, format_size, layer_bytes


@dataclass(frozen=True)
class SourceShape:
    """The properties of a source raster that the planner needs.

    Attributes
    ----------
    chunk
        Rows and columns decoded together.
    itemsize
        Bytes of a source cell.
    source_bytes
        Size of the files.
    sequential
        Whether it can only be read forwards, by one thread.
    also_read
        Additional bytes read, for checksums.
    decoding
        Bytes that a reader holds to decode a chunk.
    extra
        Further copies of a unit that reading needs (mosaics, conversions of the cell type).
    work
        Further bytes of each reader.
    libraries
        Bytes of libraries that may not be loaded yet, and of their work.
    """

    chunk: tuple[int, int]
    itemsize: int
    source_bytes: int
    sequential: bool = False
    extra: int = 0
    work: int = 0
    libraries: int = 0
    also_read: int = 0
    decoding: int = 0


def plan_stream(
    rows: int,
    cols: int,
    dtype: np.dtype,
    source: SourceShape,
    *,
    machine: Machine,
    block_size: int | None = None,
) -> StreamPlan:
    """Plan a conversion or an export.

    Chooses the largest block size that leaves at least two buffers. Sources in strips are read in
    whole rows of blocks, so that each strip is decoded once; piece by piece, in several passes,
    only if nothing else fits.

    Raises
    ------
    PlanError
        when the limit is too small.
    InputError
        when `block_size` is not a valid block size.
    """
    limit, threads = machine.memory_limit, machine.threads
    base, wanted, least = BASELINE, threads + 1, 0
    many = 1 if source.sequential else threads
    pools = [(many, threads), (many, 1)]
    if source.decoding:  # each reader decodes a chunk of its own
        pools += [(1, threads), (1, 1)]
    steps = [(2, True), (1, True), (1, False)]
    if machine.in_cluster:
        # Each thread of a worker reads and writes. Kernels of other operations may be loaded.
        base, wanted = COMPILED_BASELINE + machine.overhead, threads
        pools, steps = [(threads, threads)], [(threads, True), (threads, False)]
    sizes = [block_size] if block_size else _block_sizes(rows, cols)
    for enough, whole_rows in steps:
        for block in sizes:
            unit = _unit(rows, cols, block, source.chunk, whole_rows=whole_rows)
            unit_bytes = unit[0] * unit[1] * source.itemsize
            units = ceil_div(rows, unit[0]) * ceil_div(cols, unit[1])
            blocks = BlockGrid(rows, cols, block)
            padded, ending = blocks.largest(tiled=True), base + RECORD_BYTES * blocks.count
            for most, writers in dict.fromkeys(pools):
                readers = min(most, wanted, units)
                # Each writer holds a padded block, its tiles and, for sparse blocks, a copy.
                fixed = (
                    base
                    + source.libraries
                    + 3 * writers * padded * dtype.itemsize
                    + readers * (source.extra * unit_bytes + source.work)
                    + max(0, readers * source.decoding - GDAL_CACHE)
                    + machine.objects(block)
                )
                buffers = min((limit - fixed) // unit_bytes, wanted, units)
                least = min(least or 2**63, max(fixed + steps[-1][0] * unit_bytes, ending))
                if buffers >= min(enough, units) and ending <= limit:
                    return _stream_plan(
                        (rows, cols),
                        dtype,
                        block,
                        unit,
                        source,
                        machine,
                        (buffers, min(readers, buffers), writers),
                        (fixed, ending),
                    )
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small for {rows} x {cols} cells of "
        f"{dtype.name}"
        + (f" in blocks of {block_size}" if block_size else "")
        + f"; give at least {ceil_div(least, MB)} MB"
    )


def _block_sizes(rows: int, cols: int) -> list[int]:
    """Return the block sizes to try, the preferred one first."""
    sizes = [DEFAULT_BLOCK >> k for k in range((DEFAULT_BLOCK // MIN_BLOCK).bit_length())]
    block = DEFAULT_BLOCK
    while block < MAX_BLOCK and BlockGrid(rows, cols, block).count > MAX_SHARDS:
        block *= 2
        sizes.insert(0, block)
    return sizes


def _unit(
    rows: int, cols: int, block: int, chunk: tuple[int, int], *, whole_rows: bool
) -> tuple[int, int]:
    """Return the rows and columns to read together: whole blocks that contain whole chunks."""
    down = block if chunk[0] <= block else round_up(min(chunk[0], rows), block)
    across = block if chunk[1] <= block or not whole_rows else round_up(min(chunk[1], cols), block)
    return min(down, rows), min(across, cols)


def _stream_plan(
    shape: tuple[int, int],
    dtype: np.dtype,
    block: int,
    unit: tuple[int, int],
    source: SourceShape,
    machine: Machine,
    pool: tuple[int, int, int],
    bytes_held: tuple[int, int],
) -> StreamPlan:
    rows, cols = shape
    buffers, readers, writers = pool
    fixed, ending = bytes_held
    memory = max(fixed + buffers * unit[0] * unit[1] * source.itemsize, ending)
    passes = ceil_div(min(source.chunk[1], cols), unit[1])
    return StreamPlan(
        rows=rows,
        cols=cols,
        dtype=dtype.name,
        block_size=block,
        unit_rows=unit[0],
        unit_cols=unit[1],
        buffers=buffers,
        readers=readers,
        writers=writers,
        passes=passes,
        blocks=BlockGrid(rows, cols, block).count,
        memory_limit=machine.memory_limit,
        memory=memory,
        worker_memory=memory if machine.in_cluster else 0,
        bytes_read=source.source_bytes * passes + source.also_read,
        bytes_written=layer_bytes(rows, cols, dtype.itemsize, block),
    )
