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
from terrain_gpu.grid import BlockGrid, GridSpec
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


def add_entries(plan: StreamPlan, *counts: int) -> None:
    state = Beyond(SimpleNamespace(**FLOW, held_bytes=0), plan, TAKE)
    for count in counts:
        state.add(Phase("ways"), (0, 0), (items(count), items(count)))
    if not state._parts:
        state._joined()


def plan_links(**more: Any) -> StreamPlan:
    return plan_entries(LINKS_BYTES, **more)


def add_links(plan: StreamPlan, *counts: int) -> None:
    state = Beyond(SimpleNamespace(**FLOW, held_bytes=LINKS_BYTES), plan, TAKE)
    rows = LinkRows(CODES, CODES, state._room)
    for count in counts:
        rows.add(np.ones(count, np.int8), np.zeros((count, 5), np.int8), NONE, NONE, NONE)
    if len(rows._parts) == 1:
        next(rows.columns(GridSpec(1, 1), 1.0))


def plan_skeleton(**more: Any) -> StreamPlan:
    return plan_blocks(TALL, HEIGHTS, "drain", vertex=VERTEX, **more)


def add_vertices(plan: StreamPlan, *counts: int) -> None:
    skeleton = planned_skeleton(plan, HEIGHTS, vertex=VERTEX)
    for count in counts:
        columns = items(count), items(count), NONE, NONE, (NONE,), NONE, (NONE,)
        skeleton.add(Outline(*columns))
    if not skeleton._outlines:
        skeleton.join()


def gather(state: Any, phase: Phase, several: list[Any]) -> None:
    """Add blocks; join, if all that is left is a refusal."""
    for at, known in enumerate(several):
        state.add(phase, (0, at), known)
    if not state._known:
        state.join(phase)


def plan_nodes(**more: Any) -> StreamPlan:
    return plan_of(Depressions(), TALL, HEIGHTS, **more)


def add_nodes(plan: StreamPlan, *counts: int) -> None:
    forest = SimpleNamespace(edges=SimpleNamespace(path="mst"))
    operation: Any = SimpleNamespace(forest=forest, blocks=TALL, min_depth=0.0)
    known = [Known((items(k),) * 2, (NONE,) * 4, (NONE,) * 3, (NONE,) * 5) for k in counts]
    gather(_Nesting(operation, None, plan), Phase("merge", joined="hierarchy"), known)


def plan_pools(**more: Any) -> StreamPlan:
    return plan_of(FillSpillMerge(0.0), TALL, HEIGHTS, **more)


def add_catchments(plan: StreamPlan, *counts: int) -> None:
    forest = SimpleNamespace(edges=SimpleNamespace(path="mst"))
    operation: Any = SimpleNamespace(forest=forest, blocks=TALL)
    known = [Catchments((NONE, NONE), items(k), (NONE,) * 3, (NONE,) * 4, (0, 0)) for k in counts]
    phase = Phase("tree", joined="tree")
    gather(RestingWater.begin(operation, plan, Path()), phase, known)


def least(planner: Callable[..., StreamPlan]) -> StreamPlan:
    """The plan with the least limit that it accepts."""
    with pytest.raises(PlanError) as refused:
        planner(machine=Machine(1, 2))
    limit = int(re.search("at least ([0-9]+)", str(refused.value))[1]) * MB
    return planner(machine=Machine(limit, 2))


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
    for more in [(planned + PER_ROW * TALL.rows // 2 // each,), (planned, planned, planned // 2)]:
        with pytest.raises(PlanError, match=r"give at least \d+ MB") as refused:
            add(plan, *more)
        limit = int(re.search("at least ([0-9]+) MB", str(refused.value))[1])
        add(planner(machine=Machine(limit * MB, 2)), *more)


def test_a_table_of_more_basins_in_a_block_than_planned():
    blocks = BlockGrid(4096, 4096, 4096)
    many: dict[str, Any] = {**FLOW, "blocks": blocks, "held_bytes": 0, "table": "b.csv"}

    def planner(**more: Any) -> StreamPlan:
        how = {"worker": worker_bytes(blocks, table=True), "row_bytes": PER_ROW}
        return plan_flow(blocks, "basins", [1], [4], **how, **more)

    def add(plan: StreamPlan, *outlets: int) -> None:
        state = _Numbers(SimpleNamespace(**many), plan, Path())
        for count in outlets:
            state.add(Phase("ways"), (0, 0), (NONE, NONE, NONE, np.full(4096, count)))
        state._beyond.refuse()

    plan = least(planner)
    add(plan, 4096 // 16)
    with pytest.raises(PlanError, match="a table of 16,777,216 basins in a block; give at") as no:
        add(plan, 1024, 4096, 2048)
    limit = int(re.search("at least ([0-9]+) MB", str(no.value))[1])
    add(planner(machine=Machine(limit * MB, 2)), 1024, 4096, 2048)
