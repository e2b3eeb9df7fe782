"""Shortest paths against Dijkstra: every distance, predecessor and allocation, bit for bit."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import reference
import strategies
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.paths import pipeline
from terrain_gpu.paths.sources import Sources


def as_sources(problem):
    """Sources of a problem, cheapest first where several are on a cell."""
    best = {}
    for row, col, cost, name in problem.sources:
        start = 0.0 if cost is None else float(cost)
        if problem.model == "minimax":
            own = float(problem.cells[row, col])
            start = own if cost is None else max(start, own)
        best[row, col] = min(best.get((row, col), (start, name)), (start, name))
    cells = sorted(best)
    rows, cols = (np.array([c[k] for c in cells], np.int64) for k in (0, 1))
    costs, ids = (np.array([best[c][k] for c in cells]) for k in (0, 1))
    return Sources(rows, cols, ids.astype(np.uint32), costs.astype(np.float64))


def solve(problem, **how):
    graph = dict(problem.graph)
    parameters = graph.get("parameters") or {}
    return pipeline.shortest_paths(
        problem.cells,
        as_sources(problem),
        cost=problem.model,
        friction=problem.friction,
        barriers=problem.barriers,
        parameters=parameters,
        connectivity=graph.get("connectivity", 8),
        corner_cutting=graph.get("corner_cutting", True),
        reverse=graph.get("reverse", False),
        max_cost=problem.max_cost,
        backlink=True,
        allocation=True,
        **how,
    )


def expected(problem):
    graph = problem.graph
    distance = reference.dijkstra(
        problem.cells, problem.model, problem.sources, max_cost=problem.max_cost, **graph
    )
    codes, _ = reference.backlinks(
        distance, problem.cells, problem.model, problem.sources, **graph
    )
    return distance, codes, reference.allocation(
        codes, problem.cells, problem.model, problem.sources
    )


def assert_same(found, problem):
    distance, codes, ids = expected(problem)
    mine = found.distance()
    reached = np.array([d < np.inf for d in distance.ravel()]).reshape(distance.shape)
    void = np.isnan(mine) if mine.dtype.kind == "f" else mine == np.iinfo(mine.dtype).max
    np.testing.assert_array_equal(~void, reached)
    assert [m.item() for m in mine[reached]] == distance[reached].tolist()
    np.testing.assert_array_equal(found.backlink(), codes)
    np.testing.assert_array_equal(found.allocation(), ids)
    assert found.reached == reached.sum()


def within_reach(problem):
    """What the engine refuses, or gives as float64 where the reference has integers."""
    wide = problem.cells.dtype.kind in "iu" and problem.cells.dtype.itemsize == 8
    if wide and problem.model in ("absdiff", "minimax"):
        hypothesis.assume(np.abs(problem.cells.astype(np.float64)).max() < 2**52)
    if problem.model == "minimax":
        # A start cost of 0 means the source's own height.
        hypothesis.assume(all(s[2] != 0 for s in problem.sources))


large = strategies.rasters(shape=strategies.shapes(200, 6000))


@given(
    strategies.cost_problems(large, geographic=False),
    st.sampled_from([64, 128, 1024]),
    st.sampled_from([1, 2, 4]),
)
def test_arrays(problem, block, threads):
    hypothesis.assume(problem.sources)
    within_reach(problem)
    found = solve(
        problem,
        nodata=problem.raster.nodata,
        block_size=block,
        threads=threads,
        cell_size=(abs(problem.grid.transform[0]), abs(problem.grid.transform[4])),
    )
    assert_same(found, problem)
