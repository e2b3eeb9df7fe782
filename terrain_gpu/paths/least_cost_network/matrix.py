"""Networks of all pairs of places, or of the nearest ones, from a cost matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...facts import Findings, Settings
from ...store.outputs import together, whole_file
from ..cost.models import is_directed
from ..cost_matrix.folder import SourceRows
from ..cost_matrix.operation import LANES, MatrixProblem, nearest_bytes
from ..cost_matrix.proof_lines import claimed, prove_lines
from ..cost_matrix.solve import MatrixRun
from ..cost_matrix.trace import cells_of
from .files import COLUMNS, LAYER, Link, write_links


@dataclass(frozen=True)
class PairedPlaces(MatrixProblem):
    """The problem; with symmetric costs, each pair of places is computed once."""

    command = "least-cost-network"

    def wanted(self, batch: np.ndarray, lanes: int = LANES) -> np.ndarray:
        found = super().wanted(batch, lanes)
        if self.nearest is None and not is_directed(self.model.kernel):
            found[:, : len(batch)] &= np.arange(len(self.ends))[:, None] > batch
        return found

    def _held(self, beside: int, machine: Machine) -> int:
        if _met_twice(self):
            beside += nearest_bytes(len(self.starts), self.nearest)
        return super()._held(beside, machine)


def _met_twice(problem: MatrixProblem) -> bool:
    """Whether a link may be among the nearest of both its places, at the same cost."""
    return problem.nearest is not None and not is_directed(problem.model.kernel)


class PairLinks:
    """Writes the links of a matrix by place, and counts the connected parts: a `RowWriter`.

    With `nearest`, two places that are near each other have one link if costs are symmetric.
    """

    lines = True

    def __init__(self, lines: Path, table: Path | None) -> None:
        self.beside, self._table = lines, table
        self.files = [file for file in (lines, table) if file is not None]

    def write(self, run: MatrixRun) -> Findings:
        problem, count = run.problem, len(run.problem.starts)
        kinds = problem.dtype.kind == "u", problem.starts.labels.dtype == object
        self._cost, self._parts, self._parent = 0, count, list(range(count))
        with together(), ExitStack() as stack:
            part = stack.enter_context(whole_file(self.beside))
            rows = None if self._table is None else stack.enter_context(whole_file(self._table))
            like: Settings = {"named": self.files, "wrap": problem.wrap}
            links = write_links(part, rows, self._links(run), problem.grid, kinds, **like)
            proven = {}
            if problem.verified:
                claims = (
                    claimed(source, found.ends[k], dict(zip(COLUMNS, own, strict=True)))
                    for source, found, k, own in self._rows(run)
                )
                how = LAYER, claims, run.plan.memory_limit, run.proof_progress
                steps = prove_lines(part, self.beside, problem, *how)
                proven = {"verified_path_steps": steps}
        return {"places": count, "links": links, "parts": self._parts, "cost": self._cost, **proven}

    def _rows(self, run: MatrixRun) -> Iterator[tuple[int, SourceRows, int, tuple[Any, ...]]]:
        """Yield the source, the row, and the values of `COLUMNS` of every link."""
        problem, labels = run.problem, run.problem.starts.labels.tolist()
        nearest = None
        if _met_twice(problem):
            count = len(problem.starts)
            nearest = np.full((count, min(problem.nearest or 0, count)), -1, np.int32)
        for source, found in run:
            for n, k in enumerate(np.flatnonzero(found.rows["cells"]).tolist()):
                target, cost, length, climb, _ = found.rows[k].tolist()
                if nearest is not None:
                    if source in nearest[target]:
                        continue
                    nearest[source, n] = target
                own = cost, length, climb if problem.climbs else None
                yield source, found, k, (labels[source], labels[target], *own)

    def _links(self, run: MatrixRun) -> Iterator[Link]:
        for source, found, k, own in self._rows(run):
            self._join(source, int(found.rows[k]["target"]))
            self._cost += own[2]
            cells = cells_of(found.ends[k], found.codes(k), run.problem.blocks)
            yield Link._make((*own, cells))

    def _join(self, one: int, other: int) -> None:
        a, b = (self._root(place) for place in (one, other))
        self._parts -= a != b
        self._parent[max(a, b)] = min(a, b)

    def _root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place
