"""Phases of a run on a cluster, from the seconds that their work takes: `Forecast`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..engine import cluster
from ..engine.plan import StreamPlan
from ..grid import ceil_div
from ..grid.neighbours import reach_of
from ..paths.cost_matrix.operation import MatrixPlan

Plan = StreamPlan | MatrixPlan


class Case(NamedTuple):
    """What else a forecast depends on.

    Attributes
    ----------
    weight
        Of a spanning tree.
    item
        Bytes of a distance.
    visits
        How often shortest paths visit a block.
    backlink
        Whether they compute backlinks.
    slower
        How many times as long as by the rates below a core takes.
    storage
        Bytes per second that storage moves for all workers together; None if that is no limit.
    stored
        The share of the tiles that hold something; None for what is usual.
    cold
        Whether what a run reads must come from storage, and is not in memory already.
    driver
        Seconds of the process that starts the run, for each cell, by phase, as a report tells.
    loads
        How many times as long as usual workers load kernels; None: as `slower` says.
    dense
        How many times the usual bytes workers find in each cell.
    layers
        How many layers calc or a corridor read; None for the least number.
    connectivity, metric
        Of shortest paths.
    allocation
        Whether they compute the allocation.
    flats
        Whether their costs may be 0.
    points, pairs
        Of a network or a matrix: places, and which of their pairs are joined.
    """

    weight: str = "max"
    item: int = 8
    visits: float = 1
    backlink: bool = False
    slower: float = 1
    storage: int | None = None
    stored: float | None = None
    cold: bool = False
    driver: Mapping[str, float] = MappingProxyType({})
    loads: float | None = None
    dense: float = 1
    layers: int | None = None
    connectivity: int = 8
    metric: str = "steps"
    allocation: bool = False
    flats: bool = False
    points: int = 0
    pairs: str | None = None

    @property
    def halo(self) -> int:
        """Cells that a step reaches beyond a block."""
        return reach_of(self.connectivity)


TASK_COST, VISIT_COST = 3.1e-3, 5e-3
"""Seconds of the scheduler and of the process that starts the run for each task, and for a task of
visits, which has a worker of its own, and some ten thousand bytes."""
ALONE, CROWD = 0.7, 16
"""How long one worker of a host takes for what takes one of so many a second."""
WAIT = 1.5e-9
"""Seconds until a byte is on the disk that no other worker uses, if --storage is not faster."""
FIRST, LATER = 0.4, 0.1
"""Seconds of a worker's first task of a run, which loads kernels, and of a later phase."""
FILES = 4e9
"""Bytes of files that a host keeps in memory for each worker: the measured ones have 8 GB for each
processor, and workers leave most of it."""

JOB, WRITING_JOB, OUTPUT, BLOCK, ANSWER, EDGE, VISIT = 760, 2100, 1000, 20, 50, 8, 3500
"""Bytes of a task, of one that writes a layer, of each further layer, of a block in a task, of what
returns, of a final edge, and of a task of visits."""


def crowded(workers: int) -> float:
    """Return how long so many workers of a host take for what takes many a second."""
    return ALONE + (1 - ALONE) * min(workers - 1, CROWD - 1) / (CROWD - 1)


class Forecast:
    """A forecast in the making.

    Attributes
    ----------
    kept
        Whether the hosts keep all files of the run in memory. Then nothing is read from storage
        that the run itself, or one before it, has read or written.
    """

    def __init__(self, plan: Plan, workers: int, case: Case) -> None:
        self.slower = case.slower * crowded(workers)
        self.loads = self.slower if case.loads is None else case.loads
        self.first = {"convert": 0.0} if case.loads is None else {}
        self.workers, self.storage, self.cold = workers, case.storage, case.cold
        files = plan.bytes_read / max(plan.passes, 1) + plan.bytes_written
        self.kept = files <= workers * FILES
        self.tasks = self.sent = self.received = self.fetched = 0.0
        self.seconds: dict[str, float] = {}
        self.limits: dict[str, str] = {}

    def phase(
        self, name: str, items: int, work: float, written: float = 0, read: float = 0, *,
        at_once: float = math.inf, tasks: int | None = None, cost: float = TASK_COST,
    ) -> int:  # fmt: skip
        """Add a phase whose items take so many seconds of one core; return its tasks."""
        first = self.loads * (LATER if self.seconds else self.first.get(name, FIRST))
        if self.kept and (self.seconds or not self.cold):
            read = 0
        self.fetched += read
        busy = max(min(self.workers, items, at_once), 1)
        stored = (read + written) / self.storage if self.storage else 0.0
        spent = self.slower * work + max(WAIT * written - stored, 0.0)
        shared = shared_seconds(busy, spent, stored)
        if tasks is None:
            tasks = tasks_of(items, busy * shared, self.workers)
        # In the end others wait for the last task.
        last = busy * shared / tasks * (1 - 1 / busy) / 2
        slowest = "storage" if stored > spent / busy else "workers"
        took = {slowest: first + shared + last, "tasks": first + cost * tasks}
        self.limits[name] = max(took, key=lambda limit: took[limit])
        self.seconds[name] = self.seconds.get(name, 0.0) + took[self.limits[name]]
        self.tasks += tasks
        return tasks

    def alone(self, name: str, work: float) -> None:
        """Add work of the process that starts the run."""
        self.seconds[name] = self.seconds.get(name, 0.0) + work


def shared_seconds(workers: float, work: float, stored: float) -> float:
    """Return the seconds of workers that compute, and take turns at the storage.

    Mean value analysis of a closed queueing network (Reiser and Lavenberg 1980): a worker that
    comes to the storage finds there as many as there are on average with one worker less.

    Parameters
    ----------
    work, stored
        Seconds of one worker that computes, and of the storage, for all of the work.
    """
    rate = waiting = 0.0
    for present in range(1, math.ceil(workers) + 1):
        at_storage = stored * (1 + waiting)
        rate = min(present, workers) / (work + at_storage)
        waiting = rate * at_storage
        if rate * stored > 0.9999:
            break
    return 1 / rate if stored else work / workers


def tasks_of(items: int, seconds: float, workers: int) -> int:
    """Count tasks as a `Cluster` makes them.

    First there are two of single items for each worker. The time in which a worker's first task
    loads kernels does not count for the length of others.
    """
    several = min(max(int(cluster.TASK_SECONDS * items / seconds), 1), cluster.MOST_BLOCKS)
    single = min(items, 2 * workers)
    return single + ceil_div(items - single, several)
