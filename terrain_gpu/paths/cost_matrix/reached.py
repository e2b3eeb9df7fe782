"""The results of a batch at its targets: distances, the limits that follow, and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .places import Grouped

if TYPE_CHECKING:
    from ..least_cost_network.matrix import PairedPlaces
    from .operation import MatrixProblem


def row_dtype(cost: np.dtype) -> np.dtype:
    """The type of a row of the table; without a path, length and climb are NaN and cells 0."""
    kinds = {"target": np.int64, "cost": cost, "length": float, "climb": float, "cells": np.int64}
    return np.dtype(list(kinds.items()))


class Reached:
    """Distances of the cells of targets, one for each lane; upper bounds until the batch is solved.

    A lane ends when its farthest target is reached, or the `nearest` ones are. Until then, the
    distances of targets are upper bounds, and so are the limits that follow from them. If a target
    is not reached, its lane has no limit.

    Attributes
    ----------
    distances
        Distances by cell and lane.
    limits
        Limits by lane: larger distances need not be propagated, and are not final.
    """

    def __init__(
        self, problem: MatrixProblem | PairedPlaces, wanted: np.ndarray, limits: np.ndarray
    ) -> None:
        """`wanted`: for every target and lane, whether the distance is requested."""
        self.ends: Grouped = problem.ends
        self.wanted, self.infinity, self._problem = wanted, problem.infinity, problem
        lanes, dtype = wanted.shape[1], problem.dtype
        self.distances = np.full((len(self.ends.rows), lanes), self.infinity, dtype)
        self.limits = limits.copy()
        count = wanted.sum(axis=0)
        self._last = np.minimum(count, min(problem.nearest or len(wanted), len(wanted))) - 1
        self.limits[count == 0] = 0 if dtype.kind == "u" else -np.inf

    def note(self, cells: Any, found: np.ndarray) -> bool:
        """Update distances of some cells and limits; return whether any have changed."""
        if (found == self.distances[cells]).all():
            return False
        self.distances[cells] = found
        self.limits = np.minimum(self.limits, self._bounds())
        return True

    def _bounds(self) -> np.ndarray:
        """The largest distance that may matter to the targets, by lane."""
        costs = np.where(self.wanted, self.ends.least(self.distances), self.infinity)
        last = np.maximum(self._last, 0)
        ranked = np.partition(costs, np.unique(last), axis=0)
        return ranked[last, np.arange(len(last))]

    def part(self, lanes: slice) -> Reached:
        """The same for some lanes."""
        found = Reached(self._problem, self.wanted[:, lanes], self.limits[lanes])
        found.distances = self.distances[:, lanes]
        return found

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows of the table when all distances are final, without lengths and climbs.

        Returns
        -------
        rows
            See `row_dtype`; by lane, then by target.
        lane
            Lane of each row.
        ends
            int64 (n, 2): row and column where its path ends.
        which
            The rows that have a path.
        """
        problem, nearest = self._problem, self._problem.nearest
        costs = self.ends.least(self.distances)
        there = self.wanted & (costs <= self.limits) & (costs < self.infinity)
        if nearest is not None:
            rank = np.where(there, costs, self.infinity).argsort(axis=0, kind="stable")
            rank = rank.argsort(axis=0, kind="stable")  # of equal distances, the first
            there &= rank < nearest
        few = nearest is not None or problem.max_cost is not None
        lane, place = np.nonzero((there if few else self.wanted).T)
        rows = np.zeros(len(lane), row_dtype(problem.dtype))
        rows["target"], rows["cost"] = place, costs[place, lane]
        rows["length"] = rows["climb"] = np.nan
        cell = np.stack([self.ends.nearest_cell(one) for one in self.distances.T])[lane, place]
        ends = np.stack((self.ends.rows[cell], self.ends.cols[cell]), axis=1)
        return rows, lane, ends, np.flatnonzero(there[place, lane])
