"""The table of basins: outlets, cell counts and areas, added up on disk block by block."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...errors import StoreError
from ...grid import BlockGrid, GridSpec, ceil_div, cell_centres

ROW, COL, CELLS, UNITS, EDGE = range(5)
_ROW_BYTES = 8 * 5
_ROWS = 1 << 15
"""Number of rows read at a time."""
BAND = 1 << 20
"""Number of cells of a block measured at a time: as many as a usual block has."""


class BasinRows:
    """The figures of all basins, int64, in a new file in the order of their labels."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        os.ftruncate(self._file, count * _ROW_BYTES)
        self._lock = threading.Lock()

    def close(self) -> None:
        os.close(self._file)

    def add(self, labels: np.ndarray, figures: np.ndarray) -> None:
        """Add the figures of a block.

        Parameters
        ----------
        labels
            int64, shape (n,), strictly increasing.
        figures
            int64, shape (n, 5): row and column of the outlet, or 0 if it lies in another block; and
            the numbers of cells, area units and edge cells in this block.
        """
        breaks = (np.flatnonzero(np.diff(labels) != 1) + 1).tolist()
        with self._lock:
            for start, end in zip([0, *breaks], [*breaks, len(labels)], strict=True):
                if start < end:
                    first, count = int(labels[start]) - 1, end - start
                    whole = self._read(first, count) + figures[start:end]
                    self._write(whole, first * _ROW_BYTES)

    def _read(self, first: int, count: int) -> np.ndarray:
        raw = os.pread(self._file, count * _ROW_BYTES, first * _ROW_BYTES)
        return np.frombuffer(raw, np.int64).reshape(count, 5)

    def _write(self, figures: np.ndarray, offset: int) -> None:
        unwritten = figures.data.cast("B")
        while unwritten:
            done = os.pwrite(self._file, unwritten, offset)
            unwritten, offset = unwritten[done:], offset + done

    def columns(self, grid: GridSpec, unit: float) -> Iterator[dict[str, np.ndarray]]:
        """Yield the table in parts, at least one even if it has no rows.

        Raises StoreError if the file is incomplete.
        """
        for start in range(0, max(self.count, 1), _ROWS):
            figures = self._read(start, min(_ROWS, self.count - start))
            if not figures[:, CELLS].all():
                raise StoreError(f"{self.path}: rows of the table are missing; run again")
            x, y = cell_centres(grid, figures[:, :2]).T
            yield {
                "basin": np.arange(start + 1, start + len(figures) + 1),
                "row": figures[:, ROW],
                "col": figures[:, COL],
                "x": x,
                "y": y,
                "cells": figures[:, CELLS],
                "area": figures[:, UNITS] * unit,
                "edge_cells": figures[:, EDGE],
            }


def bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of rows that together cover a block."""
    rows, cols = shape
    step = max(BAND // cols, 1)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def band_bytes(blocks: BlockGrid, beside: int, each: int) -> int:
    """Return bytes per cell of the largest block: some of all, and some of the cells of a band."""
    ring = blocks.largest(1)
    return beside + ceil_div(each * min(ring, BAND), ring)


def joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the figures of a block from those of its bands."""
    several, counts = map(np.concatenate, zip(*parts, strict=True))
    labels, which = np.unique(several, return_inverse=True)
    totals = np.zeros((len(labels), 5), np.int64)
    np.add.at(totals, which, counts)
    return labels.astype(np.int64), totals


def figures(
    labels: np.ndarray,
    edge: np.ndarray,
    outlets: np.ndarray | None,
    units: np.ndarray,
    corner: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arguments of `BasinRows.add` for a block, or for some of its rows.

    Parameters
    ----------
    labels
        The basin of each cell, 0 for none.
    edge
        Mask of the cells at the edge of the data.
    outlets
        Mask of the outlets, or None to leave their rows and columns 0.
    units
        int64, shape (rows,), the area of a cell in each row, in area units.
    corner
        Row and column of the first cell.
    """
    flat, cols = labels.ravel(), labels.shape[1]
    new = np.append(True, flat[1:] != flat[:-1])
    new[::cols] = True
    starts = np.flatnonzero(new)  # starts of runs along rows: fewer than cells
    lengths = np.diff(starts, append=len(flat))
    ids, which = np.unique(flat[starts], return_inverse=True)
    counts = np.zeros((len(ids), 5), np.int64)
    np.add.at(counts[:, CELLS], which, lengths)
    np.add.at(counts[:, UNITS], which, lengths * units[starts // cols])
    np.add.at(counts[:, EDGE], np.searchsorted(ids, labels[edge]), 1)
    if outlets is not None:
        row, col = np.nonzero(outlets)
        at = np.searchsorted(ids, labels[row, col])
        counts[at, ROW], counts[at, COL] = row + corner[0], col + corner[1]
    first_basin = int(ids[0] == 0)
    return ids[first_basin:], counts[first_basin:]
