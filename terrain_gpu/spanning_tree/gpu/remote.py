"""Regions of the spanning forest on the GPUs of a cluster's workers: `solve_task`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...cuda.backend import Gpu
from ...cuda.workers import require_own_gpu
from ...engine.plan import StreamPlan
from ...grid import Block
from ..levels import DiskSpill
from .plan import REGIONS_OF_A_WORKER
from .regions import solve_regions

if TYPE_CHECKING:
    from ..operation import SpanningForest

MOST_REGIONS = REGIONS_OF_A_WORKER // 2
"""Most regions of a task: one is read or written while the next is solved."""


class RegionTask(NamedTuple):
    """Regions that a worker solves in a task.

    Attributes
    ----------
    gpu
        What the worker may use of its GPU.
    folder
        Where solved regions are kept for the levels.
    """

    regions: list[Block]
    gpu: Gpu
    plan: StreamPlan
    folder: Path


def region_tasks(
    regions: Iterator[Block], count: int, gpu: Gpu, plan: StreamPlan, folder: Path
) -> Iterator[RegionTask]:
    """Divide `count` regions among the workers, at least two tasks for each."""
    task_gpu, most = gpu._replace(workers=()), max(count // (2 * len(gpu.workers)), 1)
    while chunk := list(islice(regions, min(most, MOST_REGIONS))):
        yield RegionTask(chunk, task_gpu, plan, folder)


def solve_task(forest: SpanningForest, writers: list[Any], task: RegionTask) -> list[Block]:
    """Solve and write some regions, and keep what the levels need of them, in a worker."""
    require_own_gpu()
    solver, spill = forest.solver_on(task.gpu, task.plan), DiskSpill(task.folder, forest.kind)
    solve_regions(forest.source, solver, writers[0], task.regions, spill, task.plan)
    return task.regions
