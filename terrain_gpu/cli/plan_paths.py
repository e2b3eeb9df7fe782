"""Plans of shortest paths, networks and cost matrices from the options of `terrain-gpu plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..grid import BlockGrid
from ..paths.costs import CostModel, friction_beside, is_directed

if TYPE_CHECKING:
    from ..engine.plan import StreamPlan
    from ..paths.matrix.problem import MatrixPlan


def halo_of(problem: dict[str, Any]) -> int:
    """Cells around a block that steps reach."""
    return 2 if problem["connectivity"] == 16 else 1


def model_of_options(problem: dict[str, Any], cost: str, friction: str | None) -> CostModel:
    """Return the cost that the options describe."""
    how = {"connectivity": problem["connectivity"] or 8}
    return CostModel(cost, friction is not None, problem["parameter"], **how)


def plan_matrix_for(
    purpose: str,
    rows: int,
    cols: int,
    cells: np.dtype,
    layer: str,
    block_size: int,
    also_read: Callable[[str | None], np.dtype | None],
    problem: dict[str, Any],
    **limits: Any,
) -> MatrixPlan:
    """Plan a cost matrix, or a network of all pairs."""
    from ..paths.matrix.problem import plan_matrix

    cost, network = problem["cost"] or "absdiff", purpose == "least-cost-network"
    friction = friction_beside(cost, layer, problem["friction"])
    symmetric = not is_directed(model_of_options(problem, cost, friction).kernel)
    return plan_matrix(
        rows,
        cols,
        cells,
        problem["points"],
        targets=problem["targets"],
        lines=network,
        once=network and symmetric,
        cost=cost,
        parameters=problem["parameter"],
        friction=also_read(friction),
        barriers=also_read(problem["barriers"]),
        apart=problem["workers"] is not None,
        **limits,
    )


def plan_paths_for(
    purpose: str,
    rows: int,
    cols: int,
    cells: np.dtype,
    layer: str,
    block_size: int,
    also_read: Callable[[str | None], np.dtype | None],
    problem: dict[str, Any],
    **limits: Any,
) -> StreamPlan:
    """Plan the shortest paths that the options describe, a network, or a distance index."""
    from ..engine.plan import plan_paths

    cost = problem["cost"] or "absdiff"
    friction = friction_beside(cost, layer, problem["friction"])
    model = model_of_options(problem, cost, friction)
    beside = [also_read(friction), also_read(problem["barriers"])]
    if purpose == "index":
        from ..paths.index.files import NAME, new_index
        from ..paths.index.problem import plan_index

        planned = new_index(Path(NAME), BlockGrid(rows, cols, block_size), model, cells, {})
        read = rows * cols * sum(kind.itemsize for kind in (cells, *beside) if kind is not None)
        return plan_index(planned, cells, model, read=read, **limits)
    allocation = problem["allocation"] or purpose == "least-cost-network"
    wanted = {"backlink": problem["backlink"] or allocation, "allocation": allocation}
    distance = model.distance_dtype(cells)
    plan = plan_paths(
        rows,
        cols,
        cells,
        block_size,
        distance=distance,
        friction=beside[0],
        barriers=beside[1],
        layers=["distance", *(name for name, yes in wanted.items() if yes)],
        halo=halo_of(problem),
        **limits,
    )
    if purpose == "sssp":
        return plan
    from ..paths.network.problem import plan_network

    kinds = [kind for kind in (cells, *beside) if kind is not None]
    blocks = BlockGrid(rows, cols, block_size)
    drawn = plan_network(blocks, distance, kinds, problem["points"], **limits)
    return replace(
        plan,
        memory=max(plan.memory, drawn.memory),
        worker_memory=max(plan.worker_memory, drawn.worker_memory),
    )
