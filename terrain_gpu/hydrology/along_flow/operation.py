"""Operations along flow directions: `AlongFlow`.

1. *Ways*: read each block, and trace the flow between its entries and exits.
2. Join the entries of all blocks in memory.
3. *Cells*: read each block again, together with the values at its rim, and write it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...grid import Block, BlockGrid
from ...store import TileStore
from ..common.codes import open_directions
from .block import FlowBlock, FlowWork, read_flow
from .entries import entry_bytes, most_entries


class AlongFlow(Operation):
    """An operation whose first input layer holds flow directions."""

    directions: str
    halo = 1
    entry_more = 0
    """Bytes per entry that the state needs in addition to `ENTRY_BYTES`."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("ways", joined="join"), Phase("cells", writes=True)

    @property
    def worker_bytes(self) -> int:
        """Bytes per cell that a worker needs in addition to `FlowWork`."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes that the state needs in addition to the entries."""
        return 0

    @property
    def row_bytes(self) -> int:
        """Bytes held per row of the raster: lengths and areas."""
        return PER_ROW if self.measures else 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.directions,)

    @property
    def layers_out(self) -> list[OutputLayer]:
        return [output for output in self.outputs if isinstance(output, OutputLayer)]

    def examine(self) -> None:
        open_directions(TileStore.open(self.store), self.inputs[0])

    def plan(self, machine: Machine) -> StreamPlan:
        return plan_flow(
            self.blocks,
            self.command,
            [layer.dtype.itemsize for layer in self.layers],
            [output.dtype.itemsize for output in self.layers_out],
            worker=self.worker_bytes,
            held=self.held_bytes,
            entry_more=self.entry_more,
            row_bytes=self.row_bytes,
            machine=machine,
        )

    def new_work(self) -> FlowWork:
        return FlowWork(self.blocks)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: tuple[np.ndarray, ...] | None,
        work: FlowWork,
    ) -> SolvedBlock:
        codes = self.layers[0]
        block = read_flow(codes, self.grid, self.blocks.window(*at), cells[0], work)
        if not phase.writes:
            return SolvedBlock(known=self.trace(block, cells[1:]))
        return SolvedBlock(tuple(out), self.finish(block, cells[1:], context, out))

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return what `FlowEntries.add` receives from a block in the first pass."""
        raise NotImplementedError

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], context: Any, out: list[np.ndarray]
    ) -> Any:
        """Write the outputs of a block into `out`; return what the state receives."""
        raise NotImplementedError


def plan_flow(
    blocks: BlockGrid,
    command: str,
    read: list[int],
    written: list[int],
    *,
    worker: int = 8,
    held: int = 0,
    entry_more: int = 0,
    row_bytes: int = 0,
    passes: int = 2,
    machine: Machine,
) -> StreamPlan:
    """Plan the passes of an operation along flow directions.

    Parameters
    ----------
    read, written
        Bytes per cell of each layer.
    worker
        Bytes per cell that a worker needs in addition to `FlowWork`.
    held
        Bytes that the state needs in addition to the entries.
    entry_more
        Bytes per entry that the state needs in addition to `ENTRY_BYTES`.
    row_bytes
        Bytes held per row of the raster.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    rows, cols, ring = blocks.rows, blocks.cols, blocks.largest(1)
    while_streaming, while_joined = entry_bytes(most_entries(blocks), entry_more)
    return fit_blocks(
        blocks,
        "uint8",
        f"for {command} of",
        buffer=ring * (sum(read) + sum(written)),
        worker=ring * (FlowWork.BYTES + worker),
        scratch=blocks.largest(1, tiled=True) * (sum(read) + 2 * sum(written)),
        common=row_bytes * rows,
        held=while_streaming + held,
        joined=while_joined + held,
        passes=passes,
        bytes_read=passes * sum(layer_bytes(rows, cols, size, blocks.block) for size in read),
        bytes_written=sum(layer_bytes(rows, cols, size, blocks.block) for size in written),
        machine=machine,
    )
