"""Tables about all blocks, which grow with the cells, beside all else that a plan counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from memory import MB

from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.operation import Phase
from terrain_gpu.engine.plan import PER_ROW, StreamPlan
from terrain_gpu.errors import PlanError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.hydrology.along_flow.entries import ENTRY_BYTES, Beyond, most_entries
from terrain_gpu.hydrology.along_flow.kernels import TAKE
from terrain_gpu.hydrology.along_flow.operation import plan_flow
from terrain_gpu.hydrology.basins.operation import _Numbers, worker_bytes
from terrain_gpu.hydrology.depressions import Depressions
from terrain_gpu.hydrology.depressions.block import Known
from terrain_gpu.hydrology.depressions.operation import _Nesting
from terrain_gpu.hydrology.depressions.state import NODE_BYTES
from terrain_gpu.hydrology.fill_spill_merge import FillSpillMerge
from terrain_gpu.hydrology.fill_spill_merge.block import Catchments
from terrain_gpu.hydrology.fill_spill_merge.operation import RestingWater
from terrain_gpu.hydrology.fill_spill_merge.pools import ROW_BYTES
from terrain_gpu.hydrology.forest.plan import most_vertices, plan_blocks, planned_skeleton
from terrain_gpu.hydrology.forest.skeleton import Outline
from terrain_gpu.hydrology.watershed.operation import LINKS_BYTES
from terrain_gpu.hydrology.watershed.table import LINK_BYTES, PLANNED_LINKS, LinkRows
from terrain_gpu.running import plan_of

TALL = BlockGrid(200_000, 130, 64)
HEIGHTS = np.dtype(np.float32)
VERTEX = 110
NONE = np.empty(0)
CODES = SimpleNamespace(path="codes")
FLOW: dict[str, Any] = {"layers": [CODES], "blocks": TALL, "entry_more": 0}


def items(count: int) -> np.ndarray:
    return np.empty(count, np.int8)


def plan_entries(held: int = 0, **more: Any) -> StreamPlan:
    how = {"worker": 0, "held": held, "row_bytes": PER_ROW}
    return plan_flow(TALL, "basins", [1], [4], **how, **more)


def add_entries(plan: StreamPlan, count: int) -> None:
    state = Beyond(SimpleNamespace(**FLOW, held_bytes=0), plan, TAKE)
    state.add(Phase("ways"), (0, 0), (items(count), items(count)))


def plan_links(**more: Any) -> StreamPlan:
    return plan_entries(LINKS_BYTES, **more)


def add_links(plan: StreamPlan, count: int) -> None:
    state = Beyond(SimpleNamespace(**FLOW, held_bytes=LINKS_BYTES), plan, TAKE)
    figures, labels = np.zeros((count, 5), np.int8), np.ones(count, np.int8)
    LinkRows(CODES, CODES, state._room).add(labels, figures, NONE, NONE, NONE)


def plan_skeleton(**more: Any) -> StreamPlan:
    return plan_blocks(TALL, HEIGHTS, "drain", vertex=VERTEX, **more)


def add_vertices(plan: StreamPlan, count: int) -> None:
    columns = items(count), items(count), NONE, NONE, (NONE,), NONE, (NONE,)
    planned_skeleton(plan, HEIGHTS, vertex=VERTEX).add(Outline(*columns))


def gather(state: Any, phase: Phase, known: Any) -> None:
    """Add a block; join, if all that is left is a refusal."""
    state.add(phase, (0, 0), known)
    if not state._known:
        state.join(phase)


def plan_nodes(**more: Any) -> StreamPlan:
    return plan_of(Depressions(), TALL, HEIGHTS, **more)


def add_nodes(plan: StreamPlan, count: int) -> None:
    forest = SimpleNamespace(edges=SimpleNamespace(path="mst"))
    operation: Any = SimpleNamespace(forest=forest, blocks=TALL, min_depth=0.0)
    known = Known((items(count),) * 2, (NONE,) * 4, (NONE,) * 3, (NONE,) * 5)
    gather(_Nesting(operation, None, plan), Phase("merge", joined="hierarchy"), known)


def plan_pools(**more: Any) -> StreamPlan:
    return plan_of(FillSpillMerge(0.0), TALL, HEIGHTS, **more)


def add_catchments(plan: StreamPlan, count: int) -> None:
    forest = SimpleNamespace(edges=SimpleNamespace(path="mst"))
    operation: Any = SimpleNamespace(forest=forest, blocks=TALL)
    known = Catchments((NONE, NONE), items(count), (NONE,) * 3, (NONE,) * 4, (0, 0))
    phase = Phase("tree", joined="tree")
    gather(RestingWater.begin(operation, plan, Path()), phase, known)


def least(planner: Callable[..., StreamPlan]) -> StreamPlan:
    """The plan with the least limit that it accepts."""
    with pytest.raises(PlanError) as refused:
        planner(machine=Machine(1, 1))
    limit = int(re.search("at least ([0-9]+)", str(refused.value))[1]) * MB
    return planner(machine=Machine(limit, 1))


@pytest.mark.parametrize(
    ("planner", "add", "planned", "each"),
    [
        (plan_entries, add_entries, most_entries(TALL), ENTRY_BYTES),
        (plan_links, add_links, PLANNED_LINKS, LINK_BYTES),
        (plan_skeleton, add_vertices, most_vertices(TALL), VERTEX),
        (plan_nodes, add_nodes, 2 * TALL.line_cells, NODE_BYTES),
        (plan_pools, add_catchments, 2 * TALL.line_cells, ROW_BYTES),
    ],
)
def test_what_is_known_of_rows_is_no_room_for_them(planner, add, planned, each):
    plan = least(planner)
    add(plan, planned)
    more = planned + PER_ROW * TALL.rows // 2 // each
    with pytest.raises(PlanError, match=r"give (more than|at least) \d+ MB") as refused:
        add(plan, more)
    limit = int(re.search("give [a-z]+ [a-z]+ ([0-9]+) MB", str(refused.value))[1]) + 1
    add(planner(machine=Machine(limit * MB, 2)), more)


def test_a_table_of_more_basins_in_a_block_than_planned():
    blocks = BlockGrid(4096, 4096, 4096)
    many: dict[str, Any] = {**FLOW, "blocks": blocks, "held_bytes": 0, "table": "b.csv"}

    def planner(**more: Any) -> StreamPlan:
        how = {"worker": worker_bytes(blocks, table=True), "row_bytes": PER_ROW}
        return plan_flow(blocks, "basins", [1], [4], **how, **more)

    def add(plan: StreamPlan, outlets: int) -> None:
        state = _Numbers(SimpleNamespace(**many), plan, Path())
        state.add(Phase("ways"), (0, 0), (NONE, NONE, NONE, np.full(4096, outlets)))

    plan = least(planner)
    add(plan, 4096 // 16)
    with pytest.raises(PlanError, match="a table of 16,777,216 basins in a block; give more") as no:
        add(plan, 4096)
    limit = int(re.search("more than ([0-9]+) MB", str(no.value))[1]) + 1
    add(planner(machine=Machine(limit * MB, 1)), 4096)
