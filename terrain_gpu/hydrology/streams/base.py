"""The base of operations on channels: `OnChannels`.

1. *Pieces*: read each block once, and trace its pieces of links.
2. *Links*: join the pieces, and order the links, in memory or in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.machine import MB, Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import Excess, StreamPlan, fit_blocks, layer_bytes
from ...errors import StoreError
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...grid.lengths import cell_areas, step_lengths, whole_lengths
from ...plurals import counted
from ...store.paged import Paged
from ..common.codes import end_ways, no_code
from ..common.flow_loops import loop_error
from .inputs import no_channel
from .links import DRAWN_PIECE, EACH, PIECE, Links, as_whole
from .pieces import LESS, NO_CODE, on_loop, survey, trace

TRACE = Phase("pieces", joined="links")
_HELD = 24 * MB
"""Bytes planned for the pieces of all blocks; they are spilled to disk if they need more."""
_CHUNK = 1 << 16
"""Number of pieces whose sums and elevations are looked up at a time."""


def most_pieces(blocks: BlockGrid, cells: int) -> int:
    """Return the largest possible number of pieces in a block if a head drains at least `cells`.

    A head drains cells of the block, or receives flow across its rim. Other pieces begin where
    links meet or enter the block.
    """
    size = blocks.largest()
    return min(size, 2 * (size // max(cells, 1)) + 8 * sum(blocks.sides))


class OnChannels(Operation):
    """An operation on channels: the cells through which at least `least` drains.

    Its inputs are the layers of directions, of sums and, for lines, of elevations and edge cells.
    """

    store: str
    directions: str
    accumulation: str
    least: int | float
    halo = 1
    beside_bytes = 0
    """Bytes that it needs in addition to the memory for channels."""
    steps = False
    """Whether it needs the steps between the cells of channels, for lines."""
    each = EACH
    """Bytes per piece in memory while links are ordered."""

    @property
    def piece(self) -> np.dtype:
        return DRAWN_PIECE if self.steps else PIECE

    @property
    def most(self) -> int:
        """The largest possible number of pieces in a block."""
        sums = self.layers[1]
        settings = sums.info.get("settings")
        weighted = isinstance(settings, dict) and settings.get("statistic", "below") != "below"
        if weighted:
            cells = 1
        elif sums.dtype.kind == "f":
            cells = int(self.least / float(cell_areas(self.grid).max()))
        else:
            cells = int(self.least)
        return most_pieces(self.blocks, cells)

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The step lengths as integer numbers of a unit; and the unit."""
        return whole_lengths(self.grid, step_lengths(self.grid))

    def new_work(self) -> np.ndarray:
        return np.empty(self.blocks.largest(), np.uint8)

    def plan(self, machine: Machine) -> StreamPlan:
        written = [one.dtype for one in self.outputs if isinstance(one, OutputLayer)]
        return plan_blocks(
            self.blocks,
            [layer.dtype for layer in self.layers],
            written,
            pieces=self.most * self.piece.itemsize,
            beside=self.beside_bytes,
            machine=machine,
        )

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: np.ndarray,
    ) -> SolvedBlock:
        end_ways(self.layers[0], self.grid, self.blocks.window(*at), cells[0])
        if phase == TRACE:
            return SolvedBlock(known=self.traced(at, cells, context, work))
        return self.finish(at, cells, out, context)

    def finish(
        self, at: Block, cells: list[np.ndarray], out: list[np.ndarray], context: Any
    ) -> SolvedBlock:
        """Write the outputs of a block into `out`."""
        raise NotImplementedError

    def traced(
        self, at: Block, cells: list[np.ndarray], most: int, work: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int | float] | int:
        """Return the traced pieces of a block, the steps of their cells and its largest sum.

        If there are more than `most` pieces, return only their number.
        """
        codes, sums = cells[:2]
        r0, r1, c0, c1 = self.blocks.window(*at)
        state = work[: (r1 - r0) * (c1 - c0)]
        channel_survey = survey(codes, sums, sums.dtype.type(self.least), state)
        fault, row, col, channels, count, largest = channel_survey
        if fault == NO_CODE:
            raise no_code(self.layers[0], r0 + row, c0 + col, int(codes[row + 1, col + 1]))
        if fault == LESS:
            raise StoreError(
                f"{self.layers[1].path}: row {r0 + row}, column {c0 + col}: less drains through "
                f"the next cell along {self.layers[0].path}; sum along these directions "
                f"(terrain-gpu flow-accumulation --directions {self.directions})"
            )
        if count > most:  # only of sums of other programs
            return count
        pieces = np.empty(count, self.piece)
        steps = np.empty(channels if self.steps else 0, np.uint8)
        corner, starts = np.array([r0, c0, self.grid.cols]), np.empty(r1 - r0 + 1, np.int64)
        columns = tuple(pieces[name] for name in PIECE.names if name != "sums")  # type: ignore[union-attr]
        if trace(codes, state, corner, self.units[0], columns, starts, steps) < channels:
            row, col = divmod(int(on_loop(codes, state)), c1 - c0)
            raise loop_error(self.layers[0], r0 + row, c0 + col)
        for k in range(0, count, _CHUNK):
            chunk = pieces[k : k + _CHUNK]
            ends = [self._index(at, chunk[name]) for name in ("first", "last")]
            chunk["sums"] = as_whole(sums[ends[1]])
            if self.steps:
                for name, end in zip(("top", "bottom"), ends, strict=True):
                    chunk[name] = self.heights(at, cells, *end)
                chunk["edge"] = cells[3][ends[1]] if len(cells) > 3 else 0
        return pieces, steps, largest

    def _index(self, at: Block, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and columns of cells in the arrays of a block with its margin."""
        r0, _, c0, _ = self.blocks.window(*at)
        return ids // self.grid.cols - r0 + 1, ids % self.grid.cols - c0 + 1

    def heights(
        self, at: Block, cells: list[np.ndarray], row: np.ndarray, col: np.ndarray
    ) -> np.ndarray:
        """Return the elevations of cells of a block, if they are needed."""
        return np.empty(0)


def plan_blocks(
    blocks: BlockGrid,
    dtypes: Sequence[np.dtype],
    written: Sequence[np.dtype],
    *,
    pieces: int,
    beside: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan the passes over the blocks.

    Parameters
    ----------
    dtypes, written
        Data types of the layers to read and to write.
    pieces
        Bytes for the pieces of a block.
    beside
        Bytes needed in addition, whatever the block size.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    cells, ring = blocks.largest(), blocks.largest(1)
    read = sum(dtype.itemsize for dtype in dtypes)
    results = sum(dtype.itemsize for dtype in written)
    shape = blocks.rows, blocks.cols
    return fit_blocks(
        blocks,
        ", ".join(dtype.name for dtype in dtypes),
        "for the streams of",
        buffer=ring * read + cells * results + pieces,
        worker=2 * cells + 64 * _CHUNK,
        scratch=blocks.largest(tiled=True) * (read + 2 * results) + 128 * blocks.rows,
        held=_HELD + beside,
        joined=_HELD + beside,
        passes=1 + bool(written),
        bytes_read=(1 + bool(written))
        * sum(layer_bytes(*shape, dtype.itemsize, blocks.block) for dtype in dtypes),
        bytes_written=sum(layer_bytes(*shape, dtype.itemsize, blocks.block) for dtype in written),
        machine=machine,
    )


def _compile(dtype: np.dtype) -> None:
    """Load or compile the kernels for a type of sums in the main thread, which Ctrl-C can stop."""
    if not known_types(survey):
        tell_compiling(survey, "streams")
    codes, sums, state = np.zeros((3, 3), np.uint8), np.ones((3, 3), dtype), np.empty(1, np.uint8)
    survey(codes, sums, dtype.type(1), state)
    pieces, corner, starts = np.empty(1, PIECE), np.array([0, 0, 1]), np.empty(2, np.int64)
    columns = tuple(pieces[name] for name in PIECE.names if name != "sums")  # type: ignore[union-attr]
    trace(codes, state, corner, np.zeros((4, 1), np.int64), columns, starts, np.empty(1, np.uint8))


class ChannelState(State):
    """The pieces of all blocks, then the links that they form."""

    def __init__(self, operation: OnChannels, plan: StreamPlan, spill: Path) -> None:
        _compile(operation.layers[1].dtype)
        self._operation, self._plan = operation, plan
        room = plan.memory_limit - plan.memory + _HELD
        self.paged = Paged(spill, room)
        self.links = Links(operation.blocks, self.paged, operation.piece, room, operation.each)
        self._largest: int | float = 0
        self._excess = Excess.of(plan, advice=", or a larger --threshold", per="buffers")

    def given(self, phase: Phase, at: Block) -> Any:
        free = max(self._plan.memory_limit - self._plan.memory, 0)
        each = self._operation.piece.itemsize * self._plan.buffers
        return self._operation.most + free // each

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase != TRACE:
            return
        if isinstance(message, int):
            extra = (message - self._operation.most) * self._operation.piece.itemsize
            self._excess.has_room(extra, f"for {counted(message, 'piece')} of channels in a block")
            return
        pieces, steps, largest = message
        self._largest = max(self._largest, largest)
        self.keep(pieces, steps)
        self.links.add(at, pieces)

    def keep(self, pieces: np.ndarray, steps: np.ndarray) -> None:
        """Store the steps of the cells of a block's pieces, if they are needed."""

    def join(self, phase: Phase) -> None:
        if phase != TRACE:
            return
        self._excess.refuse()
        operation = self._operation
        codes, sums = operation.layers[:2]
        if not self.links.count:
            raise no_channel(sums, operation.least, self._largest)
        self.links.join(codes)

    def found(self) -> Findings:
        totals = self.links.totals
        return {**totals, "length": totals["length"] * self._operation.units[1]}

    def close(self) -> None:
        self.paged.close()
