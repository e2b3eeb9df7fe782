"""Operations on channels: `OnChannels`.

1. *Pieces*: each block is read once, and its pieces of links are traced.
2. *Links*: the pieces are joined in memory, and the links are ordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import MB, StreamPlan, fit_blocks, format_size, layer_bytes
from ...errors import PlanError, StoreError
from ...grid import Block, BlockGrid, ceil_div
from ...grid.lengths import step_lengths, whole_lengths
from ..codes import end_ways, no_code
from ..loops import circle
from .inputs import no_channel
from .links import PIECE_BYTES, LinkPieces, Links, link_up
from .pieces import LESS, NO_CODE, on_circle, survey, trace

TRACE = Phase("pieces", joined="links")
_TRACED_BYTES = 2 * (9 * 8 + 1)
"""Of a piece, while it is traced in a block."""
_SHARE = 16
"""Memory is planned for a piece in so many cells of a block."""
_HELD = 16 * MB
"""Memory planned for the pieces of all blocks; more is counted as they come."""


class Room(NamedTuple):
    """Memory for the pieces of a block: `planned`, bytes for each further one, and the plan's."""

    planned: int
    each: int
    memory: int
    limit: int

    def require(self, count: int) -> None:
        """Refuse more pieces than there is memory for."""
        needed = self.memory + max(count - self.planned, 0) * self.each
        if needed > self.limit:
            raise too_many(needed, self.limit)


def too_many(needed: int, limit: int) -> PlanError:
    return PlanError(
        f"a memory limit of {format_size(limit)} is too small for so many channels; give at least "
        f"{ceil_div(needed, MB)} MB, or a larger --threshold"
    )


class OnChannels(Operation):
    """An operation on channels, the cells through which at least `least` drains.

    Its inputs are the layers of directions, of sums and, for lines, of elevations.
    """

    store: str
    directions: str
    accumulation: str
    least: int | float
    halo = 1
    beside_bytes = 0
    """Memory that it needs beside that of channels."""
    steps = False
    """Whether it needs the steps between the cells of channels."""

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """Lengths of steps as whole numbers of a unit, and the unit."""
        return whole_lengths(self.grid, step_lengths(self.grid))

    def new_work(self) -> np.ndarray:
        rows, cols = (min(self.blocks.block, side) for side in self.grid.shape)
        return np.empty(rows * cols, np.uint8)

    def plan(
        self, memory_limit: int | str | None, threads: int | None, gpu: Any = None
    ) -> StreamPlan:
        written = [one.dtype for one in self.outputs if isinstance(one, OutputLayer)]
        return plan_blocks(
            self.blocks,
            [layer.dtype for layer in self.layers],
            written,
            beside=self.beside_bytes,
            memory_limit=memory_limit,
            threads=threads,
        )

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        end_ways(self.layers[0], self.grid, self.blocks.window(*at), cells[0])
        if phase == TRACE:
            return SolvedBlock(known=self.traced(at, cells, given, work))
        return self.finish(at, cells, out, given)

    def finish(
        self, at: Block, cells: list[np.ndarray], out: list[np.ndarray], given: Any
    ) -> SolvedBlock:
        """Compute the outputs of a block."""
        raise NotImplementedError

    def traced(
        self, at: Block, cells: list[np.ndarray], room: Room, work: np.ndarray
    ) -> tuple[LinkPieces, np.ndarray, int | float]:
        """Trace the pieces of a block; also the steps of their cells, and its largest sum."""
        codes, sums = cells[:2]
        r0, r1, c0, c1 = self.blocks.window(*at)
        state = work[: (r1 - r0) * (c1 - c0)]
        found = survey(codes, sums, sums.dtype.type(self.least), state)
        fault, row, col, channels, count, largest = found
        if fault == NO_CODE:
            raise no_code(self.layers[0], r0 + row, c0 + col, int(codes[row + 1, col + 1]))
        if fault == LESS:
            raise StoreError(
                f"{self.layers[1].path}: row {r0 + row}, column {c0 + col}: less drains through "
                f"the next cell along {self.layers[0].path}; sum along these directions "
                f"(terrain-gpu flow-accumulation --directions {self.directions})"
            )
        room.require(count)
        first, last, after, spans, lengths = np.empty((5, count), np.int64)
        begins = np.empty(count, bool)
        steps = np.empty(channels if self.steps else 0, np.uint8)
        corner = np.array([r0, c0, self.grid.cols])
        columns = first, last, after, begins, spans, lengths, steps
        if trace(codes, state, corner, self.units[0], *columns) < channels:
            row, col = divmod(int(on_circle(codes, state)), c1 - c0)
            raise circle(self.layers[0], r0 + row, c0 + col)
        ends = [self._index(at, ids) for ids in (first, last)]
        top, bottom = (self.heights(at, cells, *end) for end in ends)
        through, place = sums[ends[1]], np.empty(0, np.int64)
        pieces = LinkPieces(first, last, after, begins, spans, lengths, through, top, bottom, place)
        return pieces, steps, largest

    def _index(self, at: Block, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices of cells in the arrays of a block with its ring."""
        r0, _, c0, _ = self.blocks.window(*at)
        return ids // self.grid.cols - r0 + 1, ids % self.grid.cols - c0 + 1

    def heights(
        self, at: Block, cells: list[np.ndarray], row: np.ndarray, col: np.ndarray
    ) -> np.ndarray:
        """Elevations of cells of a block, for lines."""
        return np.empty(0)


def plan_blocks(
    blocks: BlockGrid,
    dtypes: Sequence[np.dtype],
    written: Sequence[np.dtype],
    *,
    beside: int = 0,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """Plan the passes over the blocks of layers of these types.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    cells, ring = blocks.block**2, (blocks.block + 2) ** 2
    read = sum(dtype.itemsize for dtype in dtypes)
    results = sum(dtype.itemsize for dtype in written)
    shape = blocks.rows, blocks.cols
    return fit_blocks(
        blocks,
        ", ".join(dtype.name for dtype in dtypes),
        "for the streams of",
        buffer=ring * read + cells * results + cells // _SHARE * _TRACED_BYTES // 2,
        worker=2 * cells + cells // _SHARE * _TRACED_BYTES,
        scratch=cells * (read + 2 * results) + 128 * blocks.rows,
        held=_HELD + beside,
        joined=_HELD + beside,
        passes=1 + bool(written),
        bytes_read=(1 + bool(written))
        * sum(layer_bytes(*shape, dtype.itemsize, blocks.block) for dtype in dtypes),
        bytes_written=sum(layer_bytes(*shape, dtype.itemsize, blocks.block) for dtype in written),
        memory_limit=memory_limit,
        threads=threads,
    )


def _compile(dtype: np.dtype) -> None:
    """Load or compile the kernels for sums of a type, in the main thread, which Ctrl-C stops."""
    if not known_types(survey):
        tell_compiling(survey, "streams")
    codes, sums, state = np.zeros((3, 3), np.uint8), np.ones((3, 3), dtype), np.empty(1, np.uint8)
    survey(codes, sums, dtype.type(1), state)
    ids, begins, corner = np.empty((5, 1), np.int64), np.empty(1, bool), np.array([0, 0, 1])
    first, last, after, cells, lengths = ids
    columns = first, last, after, begins, cells, lengths, np.empty(1, np.uint8)
    trace(codes, state, corner, np.zeros((4, 1), np.int64), *columns)


class ChannelState(State):
    """The pieces of all blocks, then their links."""

    def __init__(self, operation: OnChannels, plan: StreamPlan) -> None:
        _compile(operation.layers[1].dtype)
        self._operation, self._plan = operation, plan
        self._parts: list[LinkPieces] = []
        self._count = 0
        self._largest: int | float = 0
        self._found: dict[str, Any] = {}

    def given(self, phase: Phase, at: Block) -> Any:
        plan = self._plan
        most = plan.block_size**2 // _SHARE
        return Room(most, _TRACED_BYTES * plan.buffers, plan.memory, plan.memory_limit)

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        if phase != TRACE:
            return
        pieces, steps, largest = known
        self._largest = max(self._largest, largest)
        self._parts.append(self.kept(pieces, steps))
        self._count += len(pieces.first)
        plan = self._plan
        if self.bytes_beyond + plan.memory > plan.memory_limit:
            # A guess at how many there will be.
            share = plan.blocks / len(self._parts)
            raise too_many(int(plan.memory + share * self._count * PIECE_BYTES), plan.memory_limit)

    def kept(self, pieces: LinkPieces, steps: np.ndarray) -> LinkPieces:
        """Return the pieces of a block to keep, after storing the steps of their cells."""
        return pieces

    @property
    def bytes_beyond(self) -> int:
        """Memory for pieces beyond what is planned."""
        return max(self._count * PIECE_BYTES - _HELD, 0)

    def join(self, phase: Phase) -> None:
        if phase == TRACE:
            self.linked(*self._join())

    def linked(self, pieces: LinkPieces, links: Links) -> None:
        """Keep what the next phase needs."""
        raise NotImplementedError

    def _join(self) -> tuple[LinkPieces, Links]:
        operation, parts = self._operation, self._parts
        codes, sums = operation.layers[:2]
        if not self._count:
            raise no_channel(sums, operation.least, self._largest)
        self._parts = []
        pieces = LinkPieces.joined(parts)
        del parts
        links = link_up(pieces, codes, operation.grid.cols)
        self._found = {
            "links": len(links),
            "cells": int(links.cells.sum()),
            "heads": int((links.main < 0).sum()),
            "outlets": int((links.down < 0).sum()),
            "length": int(links.lengths.sum()) * operation.units[1],
            "strahler": int(links.strahler.max()),
        }
        return pieces, links

    def found(self) -> dict[str, Any]:
        return self._found
