"""The rows of the table of components, with counts, areas and bounding boxes: `Rows`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...errors import StoreError
from ...grid import GridSpec
from ...io.tables import Columns
from .block import CELLS, COL0, COL1, FIRST, MEASURES, ROW0, ROW1, UNITS

ROW_BYTES = 8 * MEASURES
_ROWS = 1 << 15
"""Number of rows written at a time."""


class Rows:
    """The measures of all components, on disk, in the order of their labels."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        os.ftruncate(self._file, count * ROW_BYTES)

    def close(self) -> None:
        os.close(self._file)

    def put(
        self,
        measures: np.ndarray,
        slots: np.ndarray,
        rim_begins: np.ndarray,
        whole: np.ndarray,
        final: np.ndarray,
    ) -> None:
        """Write the components that begin in a block.

        Parameters
        ----------
        measures, slots, final
            From `block.measure`, `rim_slots` and `number`; `measures` receives `whole`.
        rim_begins, whole
            From `Joins.of`.
        """
        rim = np.flatnonzero(slots >= 0)
        measures[rim, :FIRST] = whole
        begins = np.ones(len(measures), bool)
        begins[0], begins[rim] = False, rim_begins
        # Labels are consecutive along a row of the block, and so are their rows in the file.
        breaks = np.diff(final) != 1
        breaks |= begins[1:] != begins[:-1]
        ends = [*(np.flatnonzero(breaks) + 1).tolist(), len(measures)]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            if begins[start]:
                self._write(measures[start:end], (int(final[start]) - 1) * ROW_BYTES)

    def _write(self, measures: np.ndarray, offset: int) -> None:
        unwritten = measures.data.cast("B")
        while unwritten:
            done = os.pwrite(self._file, unwritten, offset)
            unwritten, offset = unwritten[done:], offset + done

    def columns(self, grid: GridSpec, unit: float) -> Iterator[Columns]:
        """Yield the table in parts, at least one even if it has no rows.

        Raises StoreError if rows are missing.
        """
        a, _, c, _, e, f = grid.transform
        for start in range(0, max(self.count, 1), _ROWS):
            rows = min(_ROWS, self.count - start)
            raw = os.pread(self._file, rows * ROW_BYTES, start * ROW_BYTES)
            measures = np.frombuffer(raw, np.int64).reshape(rows, MEASURES)
            if not measures[:, CELLS].all():
                raise StoreError(
                    f"{self.path}: rows of the table are missing, because the machine stopped "
                    "during the run; --overwrite starts again"
                )
            xs = np.sort(c + a * measures[:, [COL0, COL1]])
            ys = np.sort(f + e * measures[:, [ROW0, ROW1]])
            yield {
                "label": np.arange(start + 1, start + rows + 1),
                "cells": measures[:, CELLS],
                "area": measures[:, UNITS] * unit,
                "row0": measures[:, ROW0],
                "row1": measures[:, ROW1],
                "col0": measures[:, COL0],
                "col1": measures[:, COL1],
                "west": xs[:, 0],
                "south": ys[:, 0],
                "east": xs[:, 1],
                "north": ys[:, 1],
            }
