"""Levels above the tiles of a distance index: the entries of their squares, and queries."""

from __future__ import annotations

import math
from itertools import pairwise

import hypothesis
import numpy as np
import pytest
import reference
import test_paths
import test_paths_index
import zarr
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paths_index import (
    NAME,
    TILED,
    call,
    dense,
    exact,
    for_the_index,
    graph_of,
    terrain,  # noqa: F401
)
from test_query_index import NUMBERS, near

from terrain_gpu import (
    InputError,
    PlanError,
    StoreError,
    TileStore,
    build_index,
    query_index,
    shortest_paths,
)
from terrain_gpu.paths.distance_index import query
from terrain_gpu.paths.distance_index.files import most_levels
from terrain_gpu.paths.distance_index.operation import DistanceIndex
from terrain_gpu.paths.distance_index.search import RimSearch
from terrain_gpu.paths.distance_index.stored import stored_index


class TestContract(test_paths_index.TestContractOfIntegers):
    """The squares of 64 above tiles of 32 have the entries of tiles of 64."""

    command = "build-index s.zarr --tile 32 --levels 1 --verify"

    def make(self, store):
        return DistanceIndex(str(store), "elevation", tile=32, levels=1)

    def outputs(self, store):
        return {NAME: dense(store, 1)}


@settings(max_examples=examples(15))
@given(
    st.data(),
    for_the_index(),
    TILED,
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.sampled_from([0, 10**8]),
)
def test_costs_and_paths_are_those_of_dijkstra(folders, data, problem, sides, pairs, room):
    """With any number of levels, proven, also where nothing is kept of what was read."""
    block, tile = sides
    levels = data.draw(st.integers(0, most_levels(tile, block)))
    test_paths.within_reach(problem)
    hypothesis.assume(problem.cells.dtype.itemsize < 8 or not problem.exact)
    steps = reference.arcs(problem.cells, problem.model, **problem.graph)
    cells = list(steps)
    hypothesis.assume(cells)
    pairs = [(cells[a % len(cells)], cells[b % len(cells)]) for a, b in pairs]
    pairs.append((pairs[0][0], pairs[-1][0]))
    with folders() as folder:
        store = test_paths.make_store(folder / "s.zarr", problem, block)
        how = {"tile": tile, "levels": levels, "backend": "cpu"}
        built = build_index(store, **graph_of(problem), **how, verify=True)
        operation, index = stored_index(TileStore.open(store))
        sizes = (math.prod(index.shape(k)) * index.entries(k) for k in range(levels + 1))
        assert built.result["verified_entries"] >= sum(sizes)
        searches = [
            RimSearch(operation, index, room, lines=lines, levels=k)
            for k in range(levels + 1)
            for lines in (False, True)
        ]
        for start in dict.fromkeys(a for a, _ in pairs):
            source = [(*start, None, 1)]
            expected = reference.dijkstra(problem.cells, problem.model, source, **problem.graph)
            ends = [b for a, b in pairs if a == start]
            for n, search in enumerate(searches):
                for end, cost in zip(ends, search.costs(start, ends), strict=True):
                    if expected[end] == math.inf:
                        assert cost == search.infinity
                        continue
                    assert near(cost, expected[end], exact(problem))
                    if n % 2:
                        path = list(map(tuple, search.path(end, cost).tolist()))
                        assert (path[0], path[-1]) == (start, end)
                        total = reference.seeds(problem.cells, problem.model, source)[start][0]
                        for u, v in pairwise(path):
                            (step,) = (w for to, w, _ in steps[u] if to == v)
                            total = reference.extend(problem.model, total, step)
                        assert near(cost, total, exact(problem))


@pytest.mark.parametrize("cost", ["absdiff", "minimax"])
def test_squares_have_the_entries_of_tiles(terrain, cost):  # noqa: F811
    store = terrain()
    build_index(store, cost=cost, tile=64)
    expected = dense(store)
    tiles = {}
    for levels in (0, 2):
        build_index(store, cost=cost, tile=16, levels=levels, overwrite=True)
        tiles[levels] = zarr.open_array(str(store / NAME), mode="r")[...]
    np.testing.assert_array_equal(*tiles.values())  # levels change nothing for other readers
    np.testing.assert_array_equal(dense(store, 2), expected)


def test_a_search_crosses_large_squares(terrain):  # noqa: F811
    """It reads fewer entries, and as many levels as there is room for."""
    store = terrain()
    ends = [(2, 3), (75, 95)], [(140, 170), (10, 160)]
    build_index(store, tile=16)
    plain = query_index(store, *ends)
    assert plain.report.result["levels"] == 0
    build_index(store, tile=16, levels=2, overwrite=True)
    found = query_index(store, *ends)
    assert found.report.result["levels"] == 2
    assert found.report.result["tiles_read"] < 0.6 * plain.report.result["tiles_read"]
    traced = query_index(store, *ends, trace=True)
    assert traced.report.result["levels"] == 2
    with pytest.MonkeyPatch.context() as patch:
        usual = query.square_bytes
        patch.setattr(query, "square_bytes", lambda *how: usual(*how) << (60 * (how[1] > 1)))
        tight = query_index(store, *ends)
    assert tight.report.result["levels"] == 1
    for one in (found, traced, tight):
        assert one.costs.tolist() == plain.costs.tolist()
    every = shortest_paths(store, ends[0][:1], method="index").distance()
    assert every[ends[1][0]] == plain.costs[0]


def test_damaged_squares_and_wrong_levels(terrain, capfd):  # noqa: F811
    store = terrain()
    with pytest.raises(InputError, match=r"levels 3: squares of 128 .* 64; give levels 2"):
        build_index(store, tile=16, levels=3)
    with pytest.raises(PlanError, match=r"give at least \d+ MB, or fewer --levels"):
        build_index(store, tile=16, levels=2, memory_limit=10**8)
    code, _, err = call(capfd, f"build-index {store} --tile 16 --levels 10")
    assert (code, "10 is not in the range 0<=x<=9" in err) == (2, True)
    assert call(capfd, f"build-index {store} --tile 16 --levels 2")[0] == 0
    code, _, err = call(capfd, f"build-index {store} --tile 16")
    assert (code, "levels was 2 and is now 0; --overwrite replaces it" in err) == (2, True)
    assert not build_index(store, tile=16, levels=2).result["built"]
    code, out, _ = call(capfd, f"verify {store}")
    assert (code, "distance index of absdiff verified" in out) == (0, True)
    # The last square of a file ends where the tables of 16 tiles, and of 4 + 1 squares, begin.
    file = store / NAME / "c" / "1" / "1" / "0"
    whole = file.read_bytes()
    last = len(whole) - (16 * 16 + 4) - (5 * 16 + 4) - 1
    file.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
    with pytest.raises(StoreError, match=r"1/1/0: corrupt square of 64 \(0, 0\) \(crc32c differs"):
        query_index(store, [(75, 2)], [(75, 170)])
    code, _, err = call(capfd, f"verify {store}")
    assert (code, "corrupt square of 64" in err) == (2, True)
    file.write_bytes(whole[: last + 1] + b"?" + whole[last + 2 :])
    with pytest.raises(StoreError, match="truncated or corrupt"):
        query_index(store, [(75, 2)], [(75, 170)])
    meta = store / NAME / "zarr.json"
    meta.write_text(meta.read_text().replace('"levels": 2', '"levels": 3'))
    with pytest.raises(StoreError, match=r"damaged distance index .*levels is 3, above tiles"):
        query_index(store, [(75, 2)], [(75, 170)])
