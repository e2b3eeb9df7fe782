"""Networks of all pairs of places, or of the nearest ones: links from a cost matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.plan import NO_LIMIT
from ...io.features import library_bytes
from ...progress import Progress
from ...report import Report
from ...store.outputs import whole_file
from ..costs import is_directed
from ..matrix.folder import BATCH, run_folder
from ..matrix.problem import LANES, MatrixProblem
from ..matrix.solve import MatrixRun
from ..matrix.trace import cells_of
from .files import Link, write_links


@dataclass(frozen=True)
class PairedPlaces(MatrixProblem):
    """The problem; of symmetric costs, each pair of places is looked at once."""

    command = "least-cost-network"

    @property
    def directed(self) -> bool:
        return is_directed(self.model.kernel)

    def wanted(self, batch: np.ndarray, lanes: int = LANES) -> np.ndarray:
        found = super().wanted(batch, lanes)
        if self.nearest is None and not self.directed:
            found[:, : len(batch)] &= np.arange(len(self.ends))[:, None] > batch
        return found


def write_pairs(
    problem: PairedPlaces,
    lines: Path,
    table: Path | None,
    *,
    memory_limit: Any,
    threads: int | None,
    resume: bool,
    overwrite: bool,
    progress: Progress,
) -> Report:
    """Solve the matrix and write its links; sources that are done are kept beside `lines`."""
    report = Report(problem.command)
    files = [file for file in (lines, table) if file is not None]
    beside = max(library_bytes(str(file)) for file in files)
    limit = NO_LIMIT if memory_limit is None and problem.store == "" else memory_limit
    plan = problem.plan_batches(limit, threads, beside)
    problem = problem.of(plan)
    settings = problem.fingerprint()
    with (
        report.measured(),
        run_folder(lines, settings, resume=resume, overwrite=overwrite) as folder,
    ):
        run = MatrixRun(problem, plan, folder, lines=True)
        resumed = sum(1 for _ in folder.glob(BATCH.format("*")))
        run.run(report, progress)
        kinds = problem.dtype.kind == "u", problem.starts.labels.dtype == object
        links = _MatrixLinks(run, problem)
        with report.phase("write"), ExitStack() as stack:
            part = stack.enter_context(whole_file(lines))
            rows = None if table is None else stack.enter_context(whole_file(table))
            count = write_links(part, rows, links, problem.grid, kinds, named=str(lines))
    report.cells = problem.grid.cells
    report.settings = {**settings, "plan": plan._asdict()}
    report.result = {
        **({"store": problem.store} if problem.store else {}),
        "places": len(problem.starts),
        "links": count,
        "parts": links.parts,
        "cost": links.cost,
        "batches": len(run.sources),
        "batches_resumed": resumed,
    }
    return report


class _MatrixLinks:
    """Yields the links of a matrix, by places, and counts the parts that these join.

    Of the nearest places, two that are near to each other have one link if costs are symmetric.

    Attributes
    ----------
    cost
        The sum of the costs so far.
    parts
        Number of parts so far.
    """

    def __init__(self, run: MatrixRun, problem: PairedPlaces) -> None:
        self._run, self._problem = run, problem
        self.cost, self.parts = 0, len(problem.starts)
        self._parent = list(range(self.parts))

    def __iter__(self) -> Iterator[Link]:
        problem, labels = self._problem, self._problem.starts.labels.tolist()
        once = problem.nearest is not None and not problem.directed
        seen = set[tuple[int, int]]()
        for source, found in self._run:
            for k in np.flatnonzero(found.rows["cells"]).tolist():
                target, cost, length, climb, _ = found.rows[k].tolist()
                if once and (target, source) in seen:
                    continue
                if once:
                    seen.add((source, target))
                self._join(source, target)
                self.cost += cost
                own = cost, length, climb if problem.climbs else None
                cells = cells_of(found.ends[k], found.codes(k))
                yield Link(labels[source], labels[target], *own, cells)

    def _join(self, one: int, other: int) -> None:
        a, b = (self._root(place) for place in (one, other))
        self.parts -= a != b
        self._parent[max(a, b)] = min(a, b)

    def _root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place
