"""What operations that label cells along flow directions share: `FlowLabels`."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...engine.operation import Phase, refuse_without_table
from ...grid.lengths import Measured, area_units
from .block import FlowBlock
from .operation import AlongFlow


class FlowLabels(AlongFlow):
    """An operation that labels cells by where their ways lead, and may write a table of labels."""

    into: str
    table: str | None
    proof_passes = 2

    @property
    def phases(self) -> tuple[Phase, ...]:
        ways, cells = super().phases
        return ways, cells._replace(joined="table" if self.table else "")

    @property
    def worker_bytes(self) -> int:
        return 40 if self.table is None else 120

    @property
    def measures(self) -> tuple[Measured, ...]:
        return () if self.table is None else ("areas",)

    def refuse_finished(self) -> None:
        refuse_without_table(self)

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """Area of a cell in each row as an integer number of units, and the unit."""
        return area_units(self.grid)


def labelled(
    block: FlowBlock, cells: np.ndarray, labels: np.ndarray, dtype: np.dtype | type
) -> np.ndarray:
    """The labels of some cells, flat indices within the block, as an array with one ring; else 0.

    In the work space, so valid until the next call.
    """
    found = block.array(dtype)
    found[...] = 0
    row, col = np.divmod(cells, block.codes.shape[1] - 2)
    found[row + 1, col + 1] = labels
    return found
