"""What a batch has found at its targets: their distances, the limits that follow, and the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .places import Grouped


def row_dtype(cost: np.dtype) -> np.dtype:
    """Of a row of the table; length and climb are NaN, and there are no cells, without a path."""
    kinds = {"target": np.int64, "cost": cost, "length": float, "climb": float, "cells": np.int64}
    return np.dtype(list(kinds.items()))


class Reached:
    """Distances of the targets' cells, one for each lane; upper bounds while the batch is solved.

    A lane ends where the farthest of its targets is reached, or the `nearest` of them. Until then
    the distances of targets are upper bounds, and so are the limits that follow from them. A target
    that is not reached leaves its lane without a limit.

    Attributes
    ----------
    distances
        By cell and lane.
    limits
        By lane: larger distances need not be passed on, and are not final.
    """

    def __init__(self, problem: Any, wanted: np.ndarray, limits: np.ndarray) -> None:
        """`wanted` tells for every target and lane whether their distance is asked for."""
        self.ends: Grouped = problem.ends
        self.wanted, self.infinity, self._problem = wanted, problem.infinity, problem
        lanes, dtype = wanted.shape[1], problem.dtype
        self.distances = np.full((len(self.ends.rows), lanes), self.infinity, dtype)
        self.limits = limits.copy()
        count = wanted.sum(axis=0)
        self._last = np.minimum(count, min(problem.nearest or len(wanted), len(wanted))) - 1
        self.limits[count == 0] = 0 if dtype.kind == "u" else -np.inf

    def note(self, cells: Any, found: np.ndarray) -> bool:
        """Take distances of some cells; returns whether they have changed, and lowers limits."""
        if (found == self.distances[cells]).all():
            return False
        self.distances[cells] = found
        self.limits = np.minimum(self.limits, self._bounds())
        return True

    def _bounds(self) -> np.ndarray:
        """By lane: the largest distance that may matter to the targets."""
        costs = np.where(self.wanted, self.ends.least(self.distances), self.infinity)
        last = np.maximum(self._last, 0)
        ranked = np.partition(costs, np.unique(last), axis=0)
        return ranked[last, np.arange(len(last))]

    def part(self, lanes: slice) -> Reached:
        """The same of some lanes."""
        found = Reached(self._problem, self.wanted[:, lanes], self.limits[lanes])
        found.distances = self.distances[:, lanes]
        return found

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows of the table when all is final, without lengths and climbs.

        Returns
        -------
        rows
            See `row_dtype`; by lane, then by target.
        lane
            Of each row.
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
            rank = rank.argsort(axis=0, kind="stable")  # of equal ones, the first
            there &= rank < nearest
        few = nearest is not None or problem.max_cost is not None
        lane, place = np.nonzero((there if few else self.wanted).T)
        rows = np.zeros(len(lane), row_dtype(problem.dtype))
        rows["target"], rows["cost"] = place, costs[place, lane]
        rows["length"] = rows["climb"] = np.nan
        cell = np.stack([self.ends.nearest_cell(one) for one in self.distances.T])[lane, place]
        ends = np.stack((self.ends.rows[cell], self.ends.cols[cell]), axis=1)
        return rows, lane, ends, np.flatnonzero(there[place, lane])
