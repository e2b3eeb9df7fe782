"""Plans of shortest paths, networks and cost matrices from the options of `terrain-gpu plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..facts import Settings
from ..grid import TILE, BlockGrid
from ..grid.neighbours import reach_of
from ..paths.cost.models import CostModel, friction_beside, is_directed, usual_cost

if TYPE_CHECKING:
    from ..engine.machine import Machine
    from ..engine.plan import StreamPlan
    from ..paths.cost_matrix.operation import MatrixPlan
    from ..paths.distance_index.files import Index


@dataclass(frozen=True)
class PlannedPaths:
    """Paths over a raster, as the options describe them.

    Attributes
    ----------
    purpose
        "sssp", "cost-matrix", "least-cost-network", "index" or "corridor".
    cells, layer
        Type of the cells, and the layer that holds them.
    problem
        The options.
    also_read
        Returns the type of another layer.
    """

    purpose: str
    cells: np.dtype
    layer: str
    problem: Settings
    also_read: Callable[[str | None], np.dtype | None] = lambda name: None

    @property
    def cost(self) -> str:
        stated: str | None = self.problem["cost"]
        return usual_cost(self.problem["friction"]) if stated is None else stated

    @property
    def connectivity(self) -> int:
        return self.problem["connectivity"] or 8

    @property
    def metric(self) -> str:
        return self.problem["metric"] or "steps"

    @property
    def pairs(self) -> str | None:
        """Which pairs of places are joined; None for paths from all sources at once."""
        if self.purpose == "least-cost-network":
            return "all" if self.problem["nearest"] else self.problem["pairs"] or "mst"
        return "all" if self.purpose == "cost-matrix" else None

    @property
    def allocation(self) -> bool:
        return self.purpose == "least-cost-network" or bool(self.problem["allocation"])

    @property
    def backlink(self) -> bool:
        return self.allocation or bool(self.problem["backlink"])

    @property
    def friction(self) -> str | None:
        found: str | None = friction_beside(self.cost, self.layer, self.problem["friction"])
        return found

    @property
    def model(self) -> CostModel:
        return CostModel(
            self.cost,
            self.friction is not None,
            self.problem["parameter"],
            connectivity=self.connectivity,
        )

    def plan(
        self, rows: int, cols: int, block_size: int, machine: Machine
    ) -> StreamPlan | MatrixPlan:
        """Plan them over so many cells.

        Raises
        ------
        InputError
            for costs that such a network refuses.
        PlanError
            when a limit is too small.
        """
        from ..paths.cost_distance.inputs import refuse_with_continuous
        from ..paths.least_cost_network.pipeline import refuse_directed

        if self.metric == "continuous":
            refuse_with_continuous(self.model, self.connectivity, alone=not self.backlink)
        if self.pairs not in (None, "all"):
            refuse_directed(self.model, str(self.pairs))
        named = {"friction": self.friction, "barriers": self.problem["barriers"]}
        beside = {name: self.also_read(layer) for name, layer in named.items()}
        if self.pairs == "all":
            return self._matrix(rows, cols, beside, machine)
        if self.purpose == "index":
            return self._index(BlockGrid(rows, cols, block_size), beside, machine)
        return self._distances(BlockGrid(rows, cols, block_size), beside, machine)

    def _matrix(self, rows: int, cols: int, beside: Settings, machine: Machine) -> MatrixPlan:
        from ..paths.cost_matrix.operation import plan_matrix

        network, nearest = self.purpose == "least-cost-network", self.problem["nearest"]
        return plan_matrix(
            rows,
            cols,
            self.cells,
            self.problem["points"],
            targets=self.problem["targets"],
            lines=network or bool(self.problem["lines"]),
            once=network and nearest is None and not is_directed(self.model.kernel),
            nearest=nearest if network and not is_directed(self.model.kernel) else None,
            cost=self.cost,
            parameters=self.problem["parameter"],
            connectivity=self.connectivity,
            apart=self.problem["workers"] is not None,
            **beside,
            machine=machine,
        )

    def _new_index(self, blocks: BlockGrid) -> Index:
        from ..paths.distance_index.files import NAME, new_index

        sizes = {"tile": self.problem["tile"] or TILE, "levels": self.problem["levels"] or 0}
        return new_index(Path(NAME), blocks, self.model, self.cells, sizes)

    def _index(self, blocks: BlockGrid, beside: Settings, machine: Machine) -> StreamPlan:
        from ..paths.distance_index.operation import plan_index

        planned = self._new_index(blocks)
        kinds = [kind for kind in (self.cells, *beside.values()) if kind is not None]
        read = blocks.rows * blocks.cols * sum(kind.itemsize for kind in kinds)
        return plan_index(planned, self.cells, self.model, read=read, machine=machine)

    def _distances(self, blocks: BlockGrid, beside: Settings, machine: Machine) -> StreamPlan:
        """Of distances, and of the network or the corridor that follows from them."""
        from ..engine.plan import plan_paths
        from ..paths.cost_distance.operation import method_bytes
        from ..paths.least_cost_network.operation import plan_network

        wanted = {"backlink": self.backlink, "allocation": self.allocation}
        distance, halo = self.model.distance_dtype(self.cells), reach_of(self.connectivity)
        method = self.problem["method"]
        index = self._new_index(blocks) if method == "index" else None
        needs = method_bytes(method, index, distance, blocks, machine.threads)
        plan = plan_paths(
            blocks.rows,
            blocks.cols,
            self.cells,
            blocks.block,
            distance=distance,
            layers=["distance", *(name for name, yes in wanted.items() if yes)],
            halo=halo,
            beside=needs,
            **beside,
            machine=machine,
        )
        if index is not None:  # which is built before, if it is missing
            built = self._index(blocks, beside, machine)
            return replace(plan, memory=max(plan.memory, built.memory))
        if self.purpose == "sssp":
            return plan
        if self.purpose == "corridor":
            return _with_corridor(blocks, plan, distance, machine)
        kinds = [kind for kind in (self.cells, *beside.values()) if kind is not None]
        drawn = plan_network(
            blocks, distance, kinds, self.problem["points"], halo=halo, machine=machine
        )
        return replace(
            plan,
            memory=max(plan.memory, drawn.memory),
            worker_memory=max(plan.worker_memory, drawn.worker_memory),
        )


def _with_corridor(
    blocks: BlockGrid, plan: StreamPlan, distance: np.dtype, machine: Machine
) -> StreamPlan:
    """Distances from both ends, one after the other, and the corridor between them."""
    from ..paths.corridor import LeastCostCorridor
    from ..running import plan_of

    then = plan_of(LeastCostCorridor(["from", "to"]), blocks, distance, machine)
    return replace(
        plan,
        memory=max(plan.memory, then.memory),
        worker_memory=max(plan.worker_memory, then.worker_memory),
        passes=2 * plan.passes,
        bytes_read=2 * plan.bytes_read + then.bytes_read,
        bytes_written=2 * plan.bytes_written + then.bytes_written,
    )
