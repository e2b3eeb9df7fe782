"""Costs between pairs of cells from the distance index: those of Dijkstra's algorithm."""

from __future__ import annotations

import csv
import json
import math
from itertools import pairwise

import hypothesis
import numba
import numpy as np
import pytest
import reference
import test_paths
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paths_index import TILED, call, exact, for_the_index, graph_of, write_layer

from terrain_gpu import InputError, PlanError, StoreError, TileStore, build_index, query_index
from terrain_gpu.paths.distance_index import search as search_module
from terrain_gpu.paths.distance_index.files import NAME
from terrain_gpu.paths.distance_index.pairs import read_pairs
from terrain_gpu.paths.distance_index.search import RimSearch
from terrain_gpu.paths.distance_index.stored import stored_index
from terrain_gpu.store import Layer

NUMBERS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))


@settings(max_examples=examples(12))
@given(
    for_the_index(),
    TILED,
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.sampled_from([0, 10**8]),
)
def test_costs_and_paths_are_those_of_dijkstra(folders, problem, sides, pairs, room):
    """Also where nothing is kept of what was read, and with several ends of one start."""
    block, tile = sides
    test_paths.within_reach(problem)
    hypothesis.assume(problem.cells.dtype.itemsize < 8 or not problem.exact)
    steps = reference.arcs(problem.cells, problem.model, **problem.graph)
    cells = list(steps)
    hypothesis.assume(cells)
    pairs = [(cells[a % len(cells)], cells[b % len(cells)]) for a, b in pairs]
    pairs.append((pairs[0][0], pairs[-1][0]))
    with folders() as folder:
        store = test_paths.make_store(folder / "s.zarr", problem, block)
        build_index(store, **graph_of(problem), tile=tile, backend="cpu")
        search = RimSearch(*stored_index(TileStore.open(store)), room, lines=True)
        for start in dict.fromkeys(a for a, _ in pairs):
            source = [(*start, None, 1)]
            expected = reference.dijkstra(problem.cells, problem.model, source, **problem.graph)
            ends = [b for a, b in pairs if a == start]
            for end, cost in zip(ends, search.costs(start, ends), strict=True):
                if expected[end] == math.inf:
                    assert cost == search.infinity
                    continue
                assert near(cost, expected[end], exact(problem))
                path = list(map(tuple, search.path(end, cost).tolist()))
                assert (path[0], path[-1]) == (start, end)
                total = reference.seeds(problem.cells, problem.model, source)[start][0]
                for u, v in pairwise(path):
                    (step,) = (w for to, w, _ in steps[u] if to == v)
                    total = reference.extend(problem.model, total, step)
                assert near(cost, total, exact(problem))


def test_kernels_are_compiled_before_the_state_of_a_search(store, monkeypatch):
    """It takes memory of its own; a search compiles no more."""
    seen: dict[str, set] = {}

    def watched(name):
        kernel = getattr(search_module, name)

        def call(*given):
            seen.setdefault(name, set()).add(tuple(map(numba.typeof, given)))
            return kernel(*given)

        return call

    for name in ("announce", "search_rims", "solve_inside", "way_inside"):
        monkeypatch.setattr(search_module, name, watched(name))
    build_index(store, backend="cpu")
    search = RimSearch(*stored_index(TileStore.open(store)), 10**6, lines=True)
    before = {name: set(types) for name, types in seen.items()}
    end = (140, 170)
    search.path(end, *search.costs((3, 4), [end]))
    assert len(before) == 4
    assert seen == before


def near(found, expected, exact):
    return found == expected if exact else math.isclose(found, expected, rel_tol=1e-12)


@pytest.fixture
def store(tmp_path, no_fsync):
    """A store of 6 blocks: rough heights, a wall across with a gap, an island behind nodata."""
    rng = np.random.default_rng(5)
    cells = np.cumsum(rng.integers(-3, 4, (150, 180)), axis=1).astype(np.float32)
    walls = np.zeros(cells.shape, np.uint8)
    walls[:, 90] = 1
    walls[140:, 90] = 0
    cells[10:30, 10:30] = np.nan
    cells[15:25, 15:25] = 7
    write_layer(tmp_path / "s.zarr", "elevation", cells)
    write_layer(tmp_path / "s.zarr", "walls", walls)
    return tmp_path / "s.zarr"


def test_only_cells_around_the_ends_are_read(store, monkeypatch):
    build_index(store, cost="tobler", backend="cpu")
    read, usual = [], Layer.read_window

    def reading(self, row0, row1, col0, col1, *more, **how):
        read.append((row0, row1, col0, col1))
        return usual(self, row0, row1, col0, col1, *more, **how)

    monkeypatch.setattr(Layer, "read_window", reading)
    found = query_index(store, [(2, 3), (2, 3)], [(147, 170), (140, 175)])
    assert found.report.result["searches"] == 1
    assert not np.ma.getmaskarray(found.costs).any()
    near_ends = {(0, 0), (2, 2)}
    for row0, row1, col0, col1 in read:
        inner = {(r // 64, c // 64) for r in (row0 + 1, row1 - 2) for c in (col0 + 1, col1 - 2)}
        assert inner <= near_ends, read


def test_a_search_reads_only_what_lies_near(store):
    build_index(store, backend="cpu")
    found = query_index(store, [(3, 3)], [(3, 9)])
    assert found.report.result["tiles_read"] < 9
    assert query_index(store, [(3, 3)], [(3, 3)]).costs.tolist() == [0]


def test_walls_islands_and_names(store, tmp_path, capfd):
    build_index(store, cost="surface", barriers="walls", backend="cpu")
    table, lines, pairs = (tmp_path / name for name in ("t.csv", "p.geojson", "pairs.csv"))
    rows = (
        "id;from_row;from_col;to_row;to_col\nround;20;60;20;120\nisle;20;60;20;20\nself;5;5;5;5\n"
    )
    pairs.write_text(rows)
    run = f"query-index {store} --pairs {pairs} -o {table} --path {lines}"
    code, out, err = call(capfd, run)
    assert code == 0, err
    assert "3 pairs, 1 without a path" in out
    first, second, third = csv.DictReader(table.open())
    assert (second["pair"], second["cost"]) == ("isle", "")
    assert (third["pair"], third["cost"]) == ("self", "0.0")
    shapes = json.loads(lines.read_text())["features"]
    assert [one["properties"]["pair"] for one in shapes] == ["round", "self"]
    assert shapes[0]["properties"]["cost"] == float(first["cost"])
    assert shapes[0]["properties"]["length"] > 2 * 110
    wide = max(y for _, y in shapes[0]["geometry"]["coordinates"])
    low = min(y for _, y in shapes[0]["geometry"]["coordinates"])
    assert wide - low > 110  # around the wall
    assert call(capfd, run)[0] == 2  # both exist
    assert call(capfd, f"{run} --overwrite")[0] == 0
    found = query_index(store, [(20, 60)] * 2, [(20, 120), (20, 20)], trace=True)
    assert found.costs[0] == float(first["cost"])
    assert found.paths[1] is None
    assert len(found.paths[0]) == len(shapes[0]["geometry"]["coordinates"])


def test_the_command_prints_costs(store, capfd):
    build_index(store, cost="minimax", backend="cpu")
    run = f"query-index {store} --from-rowcol 5,5 --to-rowcol 100,100"
    code, out, err = call(capfd, run)
    assert code == 0, err
    cost = float(out.splitlines()[1].removeprefix("1,"))
    assert out.startswith("pair,cost\n1,")
    code, out, _ = call(capfd, f"{run} --json -")
    assert json.loads(out)["result"]["costs"] == [cost]
    x, y = TileStore.open(store).grid.transform[2], TileStore.open(store).grid.transform[5]
    code, out, _ = call(capfd, f"query-index {store} --from {x},{y} --to {x},{y}")
    assert code == 0
    for wrong, message in (
        ("", "give pairs in one way"),
        ("--from 1,1", "--from 1 time, --to 0 times"),
        ("--from-rowcol 5,5 --to-rowcol 999,5", "--to-rowcol: outside the raster"),
        ("--pairs none.csv", "--pairs: none.csv: cannot be read as a table of pairs"),
        ("--from-rowcol 5,5 --to-rowcol 9,9 --memory-limit 200MB", "is too small to search"),
    ):
        code, _, err = call(capfd, f"query-index {store} {wrong}")
        assert (code, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line does not name"),
        ("from_x,from_y,to_x\n1,2,3\n", "its first line does not name"),
        ("from_row,from_col,to_row,to_col\n\n", "has no pairs; add lines"),
        ("from_row,from_col,to_row,to_col\n1,2,3,x\n", "line 2: to_col 'x' is not a number"),
        ("from_row,from_col,to_row,to_col\n1,2,3\n", "line 2: to_col '' is not a number"),
        (
            "from_row,from_col,to_row,to_col\n1,2,3,1.5\n",
            "line 2: to_col '1.5' is not a whole .* from_x, ",
        ),
        ("from_row,from_col,to_row,to_col\n1,2,3,500\n", "outside the raster"),
        ("from_x,from_y,to_x,to_y,id\n1,2,3,4,Roma, Italia\n", "line 2 has 6 fields instead of 5"),
        ("from_x,from_y,to_x,to_y\n1,5,2,5,3,5,4,5\n", "line 2 has 8 fields instead of 4"),
        ("from_x;from_y;to_x;to_y\n1,5;2;3;4\n", "line 2: from_x '1,5' .* decimals with a point"),
    ],
)
def test_wrong_tables_are_refused(store, tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_pairs(TileStore.open(store).grid, tmp_path / "p.csv")
    assert "p.csv" in str(error.value)


def test_ends_that_cannot_be_used(store):
    build_index(store, barriers="walls", backend="cpu")
    for cell, near in (((12, 12), "row 9, column 12"), ((20, 90), "row 20, column 89")):
        with pytest.raises(InputError, match=f"ends are on nodata cells.*nearest .*: {near}"):
            query_index(store, [(50, 50)], [cell])
        row, col = map(int, near.replace(",", "").split()[1::2])
        moved = query_index(store, [(50, 50)], [cell], snap=3)
        assert moved.costs.tolist() == query_index(store, [(50, 50)], [(row, col)]).costs.tolist()
    with pytest.raises(InputError, match="2 starts and 1 end; "):
        query_index(store, [(50, 50), (51, 51)], [(9, 9)])
    with pytest.raises(InputError, match="there are no ends"):
        query_index(store, [(50, 50)], [])
    with pytest.raises(PlanError, match="too small to search in this distance index"):
        query_index(store, [(50, 50)], [(9, 9)], memory_limit=10**8)


def test_an_index_that_is_missing_stale_or_old(store):
    def query():
        return query_index(store, [(50, 50)], [(100, 100)])

    with pytest.raises(StoreError, match="has no distance index; build one: terrain-gpu build-in"):
        query()
    build_index(store, max_slope=500.0, verify=True, backend="cpu")
    assert query().report.settings["max_slope"] == 500
    meta = store / NAME / "zarr.json"
    text = meta.read_text()
    meta.write_text(text.replace('"format": 2', '"format": 1'))
    with pytest.raises(StoreError, match="of format 1, but this version reads format 2; build it"):
        query()
    with pytest.raises(StoreError, match="of format 1"):
        build_index(store, max_slope=500.0, backend="cpu")
    meta.write_text(text)
    file = store / NAME / "c" / "1" / "1" / "0"
    kept = file.read_bytes()
    file.write_bytes(kept[:9] + b"?" + kept[10:])
    with pytest.raises(StoreError, match=r"c/1/1/0: corrupt tile \(0, 0\).*build the index again"):
        query()
    write_layer(store, "elevation", np.ones((150, 180), np.float32))
    with pytest.raises(StoreError, match="the layer layer has changed since; build it again"):
        query()


def test_a_table_for_other_programs(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    build_index(store, backend="cpu")
    found = query_index(
        store, [(50, 50), (9, 9)], [(9, 9), (20, 20)], output=tmp_path / "t.parquet"
    )
    rows = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert rows == {"pair": [1, 2], "cost": [found.costs[0], None]}
