"""The totals of depressions, the choice of those to keep, and their table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...facts import Findings
from ...grid import GridSpec, cell_centres
from ...grid.neighbours import DIRECTIONS
from ..common.relative import restored
from . import kernels

if TYPE_CHECKING:
    from .state import Hierarchy

_ROWS = 1 << 15
"""Number of rows written at a time."""


class DepressionTotals:
    """Cell count, area and volume of each depression, including the depressions inside it.

    Parameters
    ----------
    unit
        Unit of areas, in square map units; see `kernels.measure`.
    area
        The area of the largest cell, in square map units.
    least
        Smallest area and smallest volume of depressions to keep.
    """

    def __init__(
        self, grid: GridSpec, unit: float, area: float, least: tuple[float, float]
    ) -> None:
        self._grid, self._unit, self._area, self._least = grid, unit, area, least
        self._kept = np.empty(0, np.int64)

    def number(self, hierarchy: Hierarchy) -> np.ndarray:
        """Add nested depressions to their parents.

        Returns int64, the number of each depression that is kept, and 0 for the others.
        """
        cells, units, high, low = hierarchy.sums.T.copy()
        scales = kernels.volume_scales(hierarchy.dead - hierarchy.pit_heights, self._area)
        volumes = (high * 2.0**kernels.LOW_BITS + low) / scales
        order = np.argsort(hierarchy.dead, kind="stable")  # the order fixes how float sums round
        kernels.add_up(order, hierarchy.parent, hierarchy.dead, self._unit, cells, units, volumes)
        self._cells, self._areas, self._volumes = cells, units * self._unit, volumes
        keep = (self._areas >= self._least[0]) & (volumes >= self._least[1])
        self._kept = np.flatnonzero(keep)
        return np.where(keep, np.cumsum(keep), 0)

    def found(self, all_of: Hierarchy) -> Findings:
        kept = self._kept
        outer = kept[all_of.parent[kept] < 0]
        depths = all_of.dead[kept] - all_of.pit_heights[kept]
        return {
            "depressions": len(kept),
            "deepest": float(depths.max(initial=0)),
            "area": float(self._areas[outer].sum()),
            "volume": float(self._volumes[outer].sum()),
        }

    def columns(
        self, hierarchy: Hierarchy, base: int, *, integers: bool
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the table in parts, at least one even if it has no rows.

        `base` is added to the elevations.
        """
        assert hierarchy.number is not None
        numbers, cols = np.append(hierarchy.number, 0), self._grid.cols
        heights = np.dtype(np.int64 if integers else np.float64)
        if base > np.iinfo(np.int64).max // 2:
            heights = np.dtype(np.uint64)
        for start in range(0, max(len(self._kept), 1), _ROWS):
            which = self._kept[start : start + _ROWS]
            pit = np.stack(np.divmod(hierarchy.pit[which], cols), axis=1)
            spill = spill_cells(hierarchy.keys[which], cols)
            x, y = cell_centres(self._grid, pit).T
            spill_x, spill_y = cell_centres(self._grid, spill).T
            bottom, top = hierarchy.pit_heights[which], hierarchy.dead[which]
            yield {
                "id": numbers[which],
                "parent": numbers[hierarchy.parent[which]],
                "row": pit[:, 0],
                "col": pit[:, 1],
                "x": x,
                "y": y,
                "height": restored(bottom, base, heights),
                "spill_row": spill[:, 0],
                "spill_col": spill[:, 1],
                "spill_x": spill_x,
                "spill_y": spill_y,
                "spill_height": restored(top, base, heights),
                "depth": (top - bottom).astype(heights),
                "cells": self._cells[which],
                "area": self._areas[which],
                "volume": self._volumes[which],
            }


def spill_cells(keys: np.ndarray, cols: int) -> np.ndarray:
    """Return the row and column of the higher end of each edge; shape (n, 2)."""
    edges, second = np.divmod(keys, 2)
    cells, directions = np.divmod(edges, 4)
    steps = np.array(DIRECTIONS)[directions] * second[:, None]
    return np.stack(np.divmod(cells, cols), axis=1) + steps


@dataclass
class Kept:
    """For each branch, the smallest kept depression that contains it and the level to fill to.

    Attributes
    ----------
    label
        int64, the number of that depression, or 0.
    level
        float64, the spill elevation of the largest removed depression, -infinity for none.
    """

    label: np.ndarray
    level: np.ndarray

    @classmethod
    def of(cls, dead: np.ndarray, up: np.ndarray, numbers: np.ndarray) -> Kept:
        at, below = np.arange(len(dead)), np.empty(len(dead), np.int64)
        kernels.climb_to(at, numbers, dead, up, below)
        level = np.where(below >= 0, dead[below], -np.inf)
        return cls(np.append(np.where(at >= 0, numbers[at], 0), 0), np.append(level, -np.inf))

    def labels(self, branches: np.ndarray) -> np.ndarray:
        return self.label[branches]

    def levels(self, branches: np.ndarray) -> np.ndarray:
        return self.level[branches]
