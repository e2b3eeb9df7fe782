"""What operations that label cells along flow directions share: `FlowLabels`."""

from __future__ import annotations

import os
from functools import cached_property

import numpy as np

from ...engine.operation import Phase
from ...errors import StoreError
from ...grid.lengths import area_units
from .block import FlowBlock
from .kernels import NO_STOPS, TAKE
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

    def refuse_finished(self) -> None:
        if self.table is not None and not os.path.exists(self.table):
            raise StoreError(
                f"{self.store}: layer {self.into!r} is complete but {self.table} is missing; "
                "--overwrite without --resume computes both again"
            )

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """Area of a cell in each row as an integer number of units, and the unit."""
        return area_units(self.grid)


def followed(
    block: FlowBlock,
    own: np.ndarray,
    starts: np.ndarray,
    around: tuple[np.ndarray, np.ndarray] | None = None,
    stops: np.ndarray = NO_STOPS,
) -> tuple[np.ndarray, np.ndarray]:
    """Exits of cells, and the labels where their ways end; of others 0.

    Parameters
    ----------
    own
        Labels of cells at which ways may end, int64, flat.
    around
        Entries around the block and their labels, if these are known.
    stops
        Where ways end, besides outlets.
    """
    labels = block.work.sums[: block.size]
    labels[:] = 0
    if around is not None:
        labels[block.locally(around[0])] = around[1]
    return block.follow(starts, own, TAKE, labels, stops), labels
