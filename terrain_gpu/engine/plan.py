"""The planner: derive block size, buffers, threads and a prediction from a memory limit.

The limit bounds the peak resident set of the process, including interpreter and libraries. A plan
adds up the memory that the executor will hold, and refuses problems that cannot fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import PlanError
from ..facts import Findings
from ..grid import MAX_BLOCK, MIN_BLOCK, TILE, BlockGrid, Window, ceil_div
from ..plurals import counted
from .machine import MB, NO_LIMIT, Machine

PER_ROW = 64
"""Bytes per row where lengths of steps or areas of cells are known, and while they are computed."""

RECORD_BYTES = 64
"""Bytes per block while the records of all blocks are joined, at the end of a run."""

PER_READER = 4
"""Threads that solve blocks for each one that reads them, and for each that writes them."""

LEAST_WRITERS = 2
"""While one waits for the disk, another gives it more to do."""

MAX_SHARDS = 1 << 20
"""Above this many shards the planner prefers larger blocks, if they fit."""


def format_size(size: float) -> str:
    """Format a size in decimal units, such as "3.5 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(size) < 1000 or unit == "PB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError


def require(needed: int, limit: int, what: str) -> None:
    """Refuse a need for more bytes than the limit; `what` names the purpose in the message.

    Raises
    ------
    PlanError
        with the limit that would suffice.
    """
    if needed > limit:
        too_small(limit, needed, what)


def too_small(limit: int, needed: int, what: str, where: object = "", advice: str = "") -> NoReturn:
    """Raise `PlanError`; see `require` and `Excess`."""
    # Else both may read alike.
    given = format_size(limit) if needed > 1.01 * limit else f"{limit / MB:g} MB"
    raise PlanError(
        f"{f'{where}: ' if where else ''}a memory limit of {given} is too small {what}; give at "
        f"least {ceil_div(needed, MB)} MB{advice}"
    )


class PlanStep(NamedTuple):
    """What a plan takes: bytes, and numbers of workers and buffers."""

    memory: int
    workers: int = 1
    buffers: int = 1


def enough(steps: Sequence[PlanStep], needed: Callable[[PlanStep], int]) -> int:
    """Return the least limit that suffices where plans turn out to need more than was planned.

    Parameters
    ----------
    steps
        Plans, the best first: a limit gets the first one that it has room for.
    needed
        Bytes that a plan needs.
    """
    limits = sorted(ceil_div(needed(step), MB) * MB for step in steps)
    return next(
        limit
        for limit in limits
        if needed(next(step for step in steps if step.memory <= limit)) <= limit
    )


def other_blocks(size: str, block: int) -> str:
    """Return the end of a message: advice to use "smaller" or "larger" blocks, if possible."""
    last = MIN_BLOCK if size == "smaller" else MAX_BLOCK
    return "" if block == last else f", or convert with a {size} --block-size"


@dataclass(frozen=True)
class StreamPlan:
    """The plan by which a raster streams through the executor.

    Attributes
    ----------
    block_size
        Side of a block in cells.
    unit_rows, unit_cols
        Cells that are read together: one or several whole blocks.
    buffers, readers, writers, workers
        Number of buffers of one unit each, and of threads.
    passes
        How often each source cell is decoded.
    blocks
        Number of blocks (shards) of the layer.
    memory_limit, memory
        The limit, and the predicted peak resident set, in bytes.
    worker_memory
        Of each worker of a cluster: less, where what is known of all blocks takes more. Else 0.
    steps
        Plans for larger limits, from that without a limit to this one; empty where they are not
        known.
    always
        Bytes of it before a cell is read, with what is known of rows; 0 where that is not known.
    bytes_read, bytes_written
        Predictions; bytes_written is an upper bound, because all-nodata tiles are not stored.
    """

    rows: int
    cols: int
    dtype: str
    block_size: int
    unit_rows: int
    unit_cols: int
    buffers: int
    readers: int
    writers: int
    passes: int
    blocks: int
    memory_limit: int
    memory: int
    bytes_read: int
    bytes_written: int
    workers: int = 0
    worker_memory: int = 0
    steps: tuple[PlanStep, ...] = ()
    always: int = 0

    @classmethod
    def of_blocks(cls, blocks: BlockGrid, dtype: str, **more: Any) -> StreamPlan:
        """Return a plan that reads block by block; `more` are the other attributes."""
        return cls(
            rows=blocks.rows,
            cols=blocks.cols,
            dtype=dtype,
            block_size=blocks.block,
            unit_rows=min(blocks.block, blocks.rows),
            unit_cols=min(blocks.block, blocks.cols),
            blocks=blocks.count,
            **more,
        )

    def units(self) -> Iterator[Window]:
        """Yield the windows of the units row by row, the order of strips and text files."""
        for row in range(0, self.rows, self.unit_rows):
            for col in range(0, self.cols, self.unit_cols):
                yield (
                    row,
                    min(row + self.unit_rows, self.rows),
                    col,
                    min(col + self.unit_cols, self.cols),
                )

    def blocks_of(self, unit: Window) -> Iterator[tuple[int, int]]:
        """Yield the blocks inside a unit."""
        b = self.block_size
        for i in range(unit[0] // b, ceil_div(unit[1], b)):
            for j in range(unit[2] // b, ceil_div(unit[3], b)):
                yield i, j

    @property
    def alternatives(self) -> tuple[PlanStep, ...]:
        """`steps`, or what this plan takes alone."""
        return self.steps or (PlanStep(self.memory, max(self.workers, 1), self.buffers),)

    def as_dict(self) -> Findings:
        own = asdict(self)
        del own["steps"], own["always"]
        return own

    def describe(self) -> str:
        """Describe the plan in words, in several lines."""
        limit = self.memory_limit
        bound = f"limit {format_size(limit)}" if limit < NO_LIMIT else "no limit"
        return "\n".join(
            (
                f"raster         {self.rows} x {self.cols} = "
                f"{counted(self.rows * self.cols, 'cell')}, "
                f"{self.dtype}",
                f"memory         {format_size(self.memory)} predicted peak, {bound}",
                f"blocks         {self.blocks:,} of {self.block_size} x {self.block_size} cells",
                f"unit of I/O    {self.unit_rows} x {self.unit_cols} cells, "
                f"{counted(self.buffers, 'buffer')}, {counted(self.readers, 'reader')}, "
                + (f"{counted(self.workers, 'worker')}, " if self.workers else "")
                + counted(self.writers, "writer"),
                "passes         every source cell is decoded "
                + ("once" if self.passes == 1 else counted(self.passes, "time")),
                f"bytes read     {format_size(self.bytes_read)}",
                f"bytes written  {format_size(self.bytes_written)} at most",
            )
        )


@dataclass
class Excess:
    """Memory beyond a plan, for what is only known once it is met.

    Where the limit has no room for it the rest is only counted, so that the refusal in the end
    names a limit that suffices.

    Attributes
    ----------
    memory, limit
        Bytes that are planned, and the limit.
    steps
        As of `StreamPlan`.
    beside
        Bytes that are needed beside those of the plan.
    per
        Whether what is met takes memory for each of the "workers" or "buffers" of a plan.
    where, advice
        The start and the end of the message.
    more, what
        The most bytes met, and their purpose, as for `require`.
    """

    memory: int
    limit: int
    steps: tuple[PlanStep, ...] = ()
    beside: int = 0
    per: str = ""
    where: object = ""
    advice: str = ""
    more: int = 0
    what: str = ""

    @classmethod
    def of(
        cls,
        plan: StreamPlan,
        where: object = "",
        advice: str = "",
        *,
        beside: int = 0,
        per: str = "",
    ) -> Excess:
        """Return what is beyond a plan."""
        return cls(plan.memory, plan.memory_limit, plan.alternatives, beside, per, where, advice)

    def has_room(self, more: int = 0, what: str = "") -> bool:
        """Whether there is room for so many bytes beyond the plan, and was for all before."""
        if more > self.more:
            self.more, self.what = more, what
        return self._needed(self._steps[-1]) <= self.limit

    @property
    def _steps(self) -> tuple[PlanStep, ...]:
        return self.steps or (PlanStep(self.memory),)

    def _needed(self, step: PlanStep) -> int:
        each = getattr(step, self.per) if self.per else 1
        return step.memory + self.beside + self.more * each

    def refuse(self) -> None:
        """Refuse the limit if it had no room for something."""
        if not self.has_room():
            needed = enough(self._steps, self._needed)
            too_small(self.limit, needed, self.what, self.where, self.advice)


class Growing(NamedTuple):
    """The memory of a table about all blocks whose size depends on the cells.

    What has no room is only counted, as by `Excess`.

    Attributes
    ----------
    plan
        Of the run.
    held, joined
        Bytes of the table that the plan counts: while blocks stream, and while no blocks stream.
    beside
        Further bytes that are held then.
    """

    plan: StreamPlan
    held: int
    joined: int
    beside: int = 0

    def fits(self, held: int, joined: int) -> bool:
        """Whether the table may take so many bytes."""
        return self._needed(self.plan.memory, held, joined) <= self.plan.memory_limit

    def require(
        self, held: int, joined: int, what: str, *, where: object = "", advice: str = ""
    ) -> None:
        """Refuse the limit if it may not; the words are those of `Excess`."""
        if not self.fits(held, joined):
            steps = self.plan.alternatives
            needed = enough(steps, lambda step: self._needed(step.memory, held, joined))
            too_small(self.plan.memory_limit, needed, what, where, advice)

    def _needed(self, memory: int, held: int, joined: int) -> int:
        streaming = 0 if self.plan.worker_memory else memory - self.held + held
        return max(streaming, self.plan.always + self.beside + joined)


def layer_bytes(rows: int, cols: int, itemsize: int, block: int) -> int:
    """Return the size of a layer's shards, uncompressed and with all tiles present."""
    tiles = ceil_div(rows, TILE) * ceil_div(cols, TILE)
    index = 20 * (block // TILE) ** 2 + 8
    return tiles * TILE * TILE * itemsize + BlockGrid(rows, cols, block).count * index


def _lanes(workers: int, machine: Machine) -> Iterator[tuple[int, int]]:
    """Yield numbers of writers to try, the best first, and of buffers beside the workers'."""
    if not machine.in_cluster:  # where workers read and write
        for lanes in range(max(LEAST_WRITERS, ceil_div(workers, PER_READER)), 1, -1):
            yield lanes, 2 * lanes
    yield from ((1, spare) for spare in (2, 1, 0))


def fit_blocks(
    blocks: BlockGrid,
    dtype: str,
    what: str,
    *,
    buffer: int,
    worker: int,
    scratch: int = 0,
    common: int = 0,
    held: int = 0,
    joined: int = 0,
    compiled: bool = True,
    advice: str = "",
    passes: int = 1,
    bytes_read: int = 0,
    bytes_written: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan a stream of blocks with the most workers and buffers that fit a memory limit.

    Parameters
    ----------
    what
        The purpose, for messages: "to drain", "for the slope of".
    buffer, worker
        Bytes of a buffer, and of a worker's additional memory.
    scratch
        Bytes of a reader and a writer.
    common
        Bytes that every process holds, such as `PER_ROW` of all rows.
    held
        Bytes of knowledge about all blocks, held while they stream.
    joined
        Most bytes needed while no blocks stream.
    compiled
        Whether it has compiled kernels.
    advice
        The end of the message when the limit is too small.

    Raises
    ------
    PlanError
        when the limit is too small, with one that suffices.
    """
    limit = machine.memory_limit
    always = machine.baseline(blocks.block, compiled=compiled) + common
    steps: list[PlanStep] = []
    for workers in range(min(machine.threads, blocks.count), 0, -1):
        for lanes, spare in _lanes(workers, machine):
            buffers = min(workers + spare, blocks.count)
            streaming = workers * worker + buffers * buffer + lanes * scratch
            streaming = max(streaming, held) if machine.in_cluster else streaming + held
            own = always + workers * (worker + buffer) + scratch
            memory = always + max(streaming, joined, RECORD_BYTES * blocks.count)
            steps.append(PlanStep(memory, workers, buffers))
            if memory <= limit:
                return StreamPlan.of_blocks(
                    blocks,
                    dtype,
                    buffers=buffers,
                    readers=min(lanes, ceil_div(workers, PER_READER)),
                    writers=lanes,
                    workers=workers,
                    passes=passes,
                    memory_limit=limit,
                    memory=memory,
                    bytes_read=bytes_read,
                    bytes_written=bytes_written,
                    worker_memory=own if machine.in_cluster else 0,
                    steps=tuple(steps),
                    always=always,
                )
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small {what} {blocks.rows} x "
        f"{blocks.cols} cells of {dtype} in blocks of {blocks.block}; give at least "
        f"{ceil_div(memory, MB)} MB{advice}"
    )


def plan_forest(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    work: int,
    levels: int,
    spill: int,
    source_bytes: int,
    common: int = 0,
    beside: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan a spanning forest: blocks streamed through workers, then levels of borders.

    Parameters
    ----------
    dtype
        Type of the cells.
    block
        Side of the layer's blocks.
    work
        Bytes that a worker needs beside its buffer.
    levels
        Most bytes needed to join the borders.
    spill
        Most bytes spilled for the levels: written, and read again.
    source_bytes
        Size of the shards that are read.
    common
        Bytes that every process holds.
    beside
        Further bytes held.

    Raises
    ------
    PlanError
        when the limit is too small for the blocks, or for the borders of the largest levels.
    """
    blocks = BlockGrid(rows, cols, block)
    plan = fit_blocks(
        blocks,
        dtype.name,
        "for the spanning tree of",
        buffer=blocks.largest() * (dtype.itemsize + 1),
        worker=work,
        scratch=2 * blocks.largest(tiled=True) * max(dtype.itemsize, 2),
        common=common,
        held=beside,
        joined=levels + beside,
        advice=other_blocks("smaller", block) if work > levels else "",
        # Blocks are read, and written again, if edges become final above them.
        bytes_read=source_bytes + (blocks.count > 1) * layer_bytes(rows, cols, 1, block) + spill,
        bytes_written=(1 + (blocks.count > 1)) * layer_bytes(rows, cols, 1, block) + spill,
        machine=machine,
    )
    # Workers join the lower levels.
    return replace(plan, worker_memory=plan.memory if machine.in_cluster else 0)


def plan_paths(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    distance: np.dtype,
    friction: np.dtype | None = None,
    barriers: np.dtype | None = None,
    layers: Sequence[str] = ("distance",),
    halo: int = 1,
    beside: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan shortest paths: fields of blocks, as many in memory as fit, the others spilled.

    Parameters
    ----------
    dtype
        Type of the heights.
    block
        Side of the layer's blocks.
    distance
        Type of distances, see `CostModel.distance_dtype`.
    friction, barriers
        Types of these layers; None without such a layer.
    layers
        Results: "distance", "backlink" and "allocation", which needs "backlink".
    halo
        Cells around a block that its steps reach: 2 for 16 neighbours, else 1.
    beside
        Further bytes held.

    Returns
    -------
    StreamPlan
        Its buffers are the fields. Its bytes count each block's cells once. Spilled bytes are not
        included, because they depend on the course of the paths.

    Raises
    ------
    PlanError
        when the limit is too small for one field and the rims of all blocks.
    """
    limit, threads = machine.memory_limit, machine.threads
    blocks, item = BlockGrid(rows, cols, block), distance.itemsize
    count, cells = blocks.count, blocks.largest(halo, tiled=True)
    field = cells * (2 * item + 1 + 8 * (friction is not None))
    if "backlink" in layers:
        field += cells * (4 + halo)  # hops and masks of flats
    passing = cells * (dtype.itemsize + 2 * item + 8) + 10 * halo * TILE * TILE * 8
    rims = count * (8 * halo * block * item + (block // TILE) ** 2 * (item + 1)) + 64 * halo * rows
    if "backlink" in layers:
        rims += count * 16 * halo * block  # hops
    if "allocation" in layers:
        rims += count * 32 * halo * block  # where the backlinks lead
    always = machine.baseline(block) + rims + beside
    if machine.in_cluster:
        # Workers hold rims of these.
        field += 4 * halo * block * item + (block // TILE) ** 2 * (item + 1)
    least = always + (threads if machine.in_cluster else 1) * (field + passing)
    if least > limit:
        raise PlanError(
            f"a memory limit of {format_size(limit)} is too small for shortest paths over "
            f"{rows} x {cols} cells in blocks of {block}; give at least {ceil_div(least, MB)} MB"
            + other_blocks("smaller" if field + passing > rims else "larger", block)
        )
    while threads > 1 and always + threads * (field + passing) > limit:
        threads -= 1
    held_there = rims - 64 * halo * rows if machine.in_cluster else 0
    room = min(limit, machine.room + held_there) - always - threads * passing
    fields = max(min(room // field, count), 1)
    threads = min(threads, fields)
    memory = always + fields * field + threads * passing
    worker_memory = 0
    if machine.in_cluster:  # workers keep the fields
        worker_memory, memory = memory - held_there, memory - (fields - threads) * field
    size = partial(layer_bytes, rows, cols, block=block)
    read = sum(size(kind.itemsize) for kind in (dtype, friction, barriers) if kind is not None)
    if "allocation" in layers:
        read += 2 * size(1)  # backlinks are followed twice
    results = {"distance": item, "backlink": 1, "allocation": 4}
    return StreamPlan.of_blocks(
        blocks,
        dtype.name,
        buffers=fields,
        readers=1,
        writers=threads,
        workers=threads,
        passes=1,
        memory_limit=limit,
        memory=memory,
        worker_memory=worker_memory,
        bytes_read=read,
        bytes_written=sum(size(results[name]) for name in layers),
    )
