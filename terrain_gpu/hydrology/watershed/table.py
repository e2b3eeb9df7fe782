"""Tables of the watersheds of pour points, `PointRows`, and of links, `LinkRows`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...engine.plan import Growing
from ...errors import StoreError
from ...grid import GridSpec, cell_centres
from ...store import Layer
from ..along_flow.basin_table import CELLS, EDGE, UNITS
from ..along_flow.kernels import join_upstream
from ..common.flow_loops import loop_error
from .pour_points import PourPoints

LINK_BYTES = 280
"""Bytes per link in a block while all are joined; `_HELD_BYTES` before that."""
_HELD_BYTES = 32
PLANNED_LINKS = 1 << 15

_ROWS = 1 << 15
"""Number of rows written at a time."""

Columns = dict[str, np.ndarray]


class PointRows:
    """Cells and areas of pour points, by their numbers.

    Parameters
    ----------
    layer
        The directions, for messages.
    """

    def __init__(self, layer: Layer, points: PourPoints) -> None:
        self._layer, self._points = layer, points
        count = len(points.places)
        self._sums = np.zeros((3, count), np.int64)
        self._following = np.full(count, -1)

    def add(
        self,
        numbers: np.ndarray,
        figures: np.ndarray,
        ends: np.ndarray,
        cells: np.ndarray,
        beyond: np.ndarray,
    ) -> None:
        """Add a block.

        Parameters
        ----------
        numbers, figures
            From `basin_table.figures`.
        ends, cells, beyond
            Numbers of the pour points in the block, their ids, and the numbers of the next ones.
        """
        self._sums[:, numbers - 1] += figures[:, [CELLS, UNITS, EDGE]].T
        self._following[ends - 1] = beyond - 1

    def columns(self, grid: GridSpec, unit: float) -> Iterator[Columns]:
        """Yield the table in parts, at least one even if it has no rows.

        Raises StoreError if pour points drain to each other in a loop.
        """
        points, total = self._points, self._sums.copy()
        for sums in total:
            waiting = np.empty_like(self._following)
            end = join_upstream(self._following, waiting, sums, True)
            if end >= 0:
                raise loop_error(self._layer, *points.places[end].tolist())
        labels = np.append(points.labels, np.uint32(0)).astype(
            np.int64
        )  # the last entry stands for none
        for start in range(0, max(len(points), 1), _ROWS):
            rows = slice(start, start + _ROWS)
            which, cells = points.which[rows], points.cells[rows]
            own_sums, whole = self._sums[:, which], total[:, which]
            original, at = cell_centres(grid, points.given[rows]).T, cell_centres(grid, cells).T
            yield {
                "id": points.ids[rows].astype(np.int64),
                "label": labels[which],
                "given_x": original[0],
                "given_y": original[1],
                "row": cells[:, 0],
                "col": cells[:, 1],
                "x": at[0],
                "y": at[1],
                "cells": own_sums[0],
                "area": own_sums[1] * unit,
                "edge_cells": own_sums[2],
                "total_cells": whole[0],
                "total_area": whole[1] * unit,
                "total_edge_cells": whole[2],
                "downstream": labels[self._following[which]],
            }


class LinkRows:
    """Cells and areas of links, by their labels.

    Parameters
    ----------
    links, codes
        The layers of links and directions, for messages.
    room
        The memory available to the run, with `PLANNED_LINKS` planned.
    """

    def __init__(self, links: Layer, codes: Layer, room: Growing) -> None:
        self._links, self._codes = links, codes
        self._room, self._count = room, 0
        none = np.empty(0, np.int64)
        self._parts, self._ends = [(none,) * 4], [(none,) * 3]

    def add(
        self,
        labels: np.ndarray,
        figures: np.ndarray,
        ends: np.ndarray,
        cells: np.ndarray,
        beyond: np.ndarray,
    ) -> None:
        """Add a block.

        Parameters
        ----------
        labels, figures
            From `basin_table.figures`.
        ends, cells, beyond
            Labels of cells of links in the block, their ids, and the labels of the next cells.
        """
        labelled, last = labels != 0, beyond != ends
        self._count += int(labelled.sum()) + int(last.sum())
        if self._room.fits(*self._size):
            self._parts.append((labels[labelled], *figures[labelled][:, [CELLS, UNITS, EDGE]].T))
            self._ends.append((ends[last], cells[last], beyond[last]))
        else:
            del self._parts[1:], self._ends[1:]

    @property
    def _size(self) -> tuple[int, int]:
        extra = max(self._count - PLANNED_LINKS, 0)
        return self._room.held + extra * _HELD_BYTES, self._room.joined + extra * LINK_BYTES

    def columns(self, grid: GridSpec, unit: float) -> Iterator[Columns]:
        """Yield the table, some rows at a time; at least once, even without rows."""
        self._room.require(*self._size, "for the table of this many links", where=self._links.path)
        several, *counts = map(np.concatenate, zip(*self._parts, strict=True))
        labels, which = np.unique(several, return_inverse=True)
        sums = np.zeros((3, len(labels)), np.int64)
        for total, of_block in zip(sums, counts, strict=True):
            np.add.at(total, which, of_block)
        ends, cells, beyond = map(np.concatenate, zip(*self._ends, strict=True))
        order = np.lexsort((cells, ends))
        ends, first = np.unique(ends[order], return_index=True)
        if len(ends) < len(labels):
            raise loop_error(self._codes, *self._first_cell(np.setdiff1d(labels, ends)[0]))
        last = order[first]
        for start in range(0, max(len(labels), 1), _ROWS):
            rows = slice(start, start + _ROWS)
            at = np.stack(np.divmod(cells[last[rows]], grid.cols), axis=1)
            x, y = cell_centres(grid, at).T
            yield {
                "label": labels[rows],
                "row": at[:, 0],
                "col": at[:, 1],
                "x": x,
                "y": y,
                "cells": sums[0, rows],
                "area": sums[1, rows] * unit,
                "edge_cells": sums[2, rows],
                "downstream": beyond[last[rows]],
            }

    def _first_cell(self, label: int) -> tuple[int, int]:
        """Return the first cell of a link."""
        for at in self._links.blocks.ids():
            window = self._links.blocks.window(*at)
            for row, col in np.argwhere(self._links.read_window(*window) == label)[:1].tolist():
                return window[0] + row, window[2] + col
        raise StoreError(f"{self._links.path}: changed while it was read; run this again")
