"""The base of operations that label cells along flow directions: `FlowLabels`."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...engine.operation import Phase, refuse_without_table
from ...grid.lengths import Measured, area_units
from .block import FlowBlock
from .operation import AlongFlow


class FlowLabels(AlongFlow):
    """An operation that labels cells by the end of their flow path, with an optional table."""

    into: str
    table: str | None
    proof_passes = 2

    @property
    def phases(self) -> tuple[Phase, ...]:
        first, cells = super().phases
        return first, cells._replace(joined="table" if self.table else "")

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
        """The area of a cell in each row, as an integer number of units; and the unit."""
        return area_units(self.grid)


def labelled(
    block: FlowBlock, cells: np.ndarray, labels: np.ndarray, dtype: np.dtype | type
) -> np.ndarray:
    """Return an array of the block and its ring with the labels of some cells, 0 elsewhere.

    `cells` are flat indices in the block without its ring. The array is a view of the work space,
    valid until the next call.
    """
    array = block.array(dtype)
    array[...] = 0
    row, col = np.divmod(cells, block.codes.shape[1] - 2)
    array[row + 1, col + 1] = labels
    return array
