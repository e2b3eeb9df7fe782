"""Other ways to the same distances: Dijkstra's algorithm in blocks, and the distance index."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial

import hypothesis
import numcodecs.zstd
import numpy as np
import pytest
import reference
import strategies
import test_paths
import zarr
from contract import OperationContract
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from terrain_gpu import (
    GridSpec,
    InputError,
    StoreError,
    TileStore,
    VerificationError,
    build_index,
    create_layer,
    shortest_paths,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import run
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.grid.neighbours import COL_STEP, ROW_STEP
from terrain_gpu.io.places import Places
from terrain_gpu.paths.cost import edges
from terrain_gpu.paths.distance_index import packing, writer
from terrain_gpu.paths.distance_index.files import NAME, Index
from terrain_gpu.paths.distance_index.operation import DistanceIndex
from terrain_gpu.paths.distance_index.packing import Packer
from terrain_gpu.paths.distance_index.rim import TILES, rim_of
from terrain_gpu.paths.distance_index.writer import EntryWriter, IndexWriter

TYPES = [np.dtype(name) for name in ("int16", "uint8", "float32")]
large = strategies.rasters(shape=strategies.shapes(200, 6000))


def for_the_index():
    """One cost of each kind: integer, real, directed, and joined by max.

    Each model, type and multiplier compiles its own kernels, which takes long; all are covered
    in test_paths.py, with the same edge functions.
    """
    some = strategies.rasters(st.sampled_from(TYPES), strategies.shapes(200, 6000))
    models = "absdiff", "friction", "tobler", "minimax"
    return strategies.cost_problems(some, models=models, multiplied=False)


RIM = rim_of(64)
ROWS, COLS = RIM.cells
RING = len(ROWS)
BLOCKS = st.sampled_from([64, 128, 1024])
TILED = st.tuples(BLOCKS, st.sampled_from(TILES)).filter(lambda sides: sides[1] <= sides[0])
"""Sides of blocks, and of the tiles of an index of them."""
THREADS = st.sampled_from([1, 2, 4])


@pytest.fixture(scope="module", autouse=True)
def no_waiting():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


# -- Dijkstra's algorithm --------------------------------------------------------------------------


@given(strategies.cost_problems(large, geographic=False), BLOCKS, THREADS)
def test_dijkstra_over_arrays(problem, block, threads):
    hypothesis.assume(problem.sources)
    test_paths.within_reach(problem)
    found = test_paths.solve(
        problem,
        block_size=block,
        threads=threads,
        method="dijkstra",
    )
    test_paths.assert_same(found, problem)
    assert found.report.settings["method"] == "dijkstra"


@given(strategies.cost_problems(large), BLOCKS, THREADS, st.sampled_from([1, 2, 100]))
def test_dijkstra_over_stores(folders, problem, block, threads, fields):
    hypothesis.assume(problem.sources)
    test_paths.within_reach(problem)
    with folders() as folder, test_paths.fields_in_memory(fields):
        store = test_paths.make_store(folder / "s.zarr", problem, block)
        found = test_paths.solve_store(store, problem, threads=threads, method="dijkstra")
        test_paths.assert_same(found, problem)


# -- the index -------------------------------------------------------------------------------------


def entries(z, model, valid, lengths, dtype):
    """The entries of an index: scipy's distances inside tiles that no others give, and steps."""
    steps = reference.arcs(z, model, valid=valid, lengths=lengths)
    never = np.inf if dtype.kind == "f" else np.iinfo(dtype).max >> 1
    tiles = (len(z) + 63) // 64, (z.shape[1] + 63) // 64
    lower = None if model == "tobler" else np.tril_indices(RING, -1)
    found = np.full((*tiles, (RING**2 if lower is None else len(lower[0])) + 764), never, dtype)
    for i, j in np.ndindex(tiles):

        def inside(cell, i=i, j=j):
            return 64 * i <= cell[0] < 64 * i + 64 and 64 * j <= cell[1] < 64 * j + 64

        number = {cell: n for n, cell in enumerate(filter(inside, steps))}
        rim = list(zip((64 * i + ROWS).tolist(), (64 * j + COLS).tolist(), strict=True))
        here = [b for b in range(RING) if rim[b] in number]
        within = [
            (cost, n, number[v]) for u, n in number.items() for v, cost, _ in steps[u] if inside(v)
        ]
        between = np.full((RING, RING), np.inf)
        if here:
            costs, *ends = np.array(within or np.empty((0, 3))).T
            graph = sparse.csr_array((costs, np.array(ends, int)), (len(number),) * 2)
            own = [number[rim[b]] for b in here]
            far = sparse.csgraph.dijkstra(graph, indices=own)
            between[np.ix_(here, here)] = far[:, own]
            if lower is not None:  # stored for one direction, and used for both
                between = np.tril(between) + np.tril(between, -1).T
            between = reference.without_superfluous(between, np.add)
        way = between.ravel() if lower is None else between[lower]
        found[i, j, :-764][way < np.inf] = way[way < np.inf]
        for p, (b, k) in enumerate(RIM.crossings[:2].T.tolist()):
            u = rim[b][0] + int(ROW_STEP[k]), rim[b][1] + int(COL_STEP[k])
            for v, cost, _ in steps.get(u, []):
                if v == rim[b]:
                    found[i, j, p - 764] = cost
    return found


def with_another_bit(index, stored, entry, level=0):
    """A packed tile of 64, or square of a level, with the last bit of an entry flipped."""
    found = Packer(index.tile << level, index.symmetric, index.dtype).entries(stored)
    words = found.view(f"u{found.itemsize}")
    words[entry] ^= 1
    kept = words[:-764] != np.array(edges.infinity_of(found), found.dtype).view(words.dtype)
    packed = np.empty(index.packed_bytes(level), np.uint8)
    packing.pack(words, kept, packed)
    return numcodecs.zstd.compress(packed)


def dense(store, level=0):
    """All entries of a level of the index of a store, (tile rows, tile columns, entries)."""
    opened = TileStore.open(store)
    index = Index.open(opened, opened.layer("elevation").blocks)
    blocks = index.blocks.ids()
    found = {at: np.array([row.copy() for row in index.rows(at, level)]) for at in blocks}
    down, across = index.blocks.shape
    rows = [[found[i, j] for j in range(across)] for i in range(down)]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows])


def change_entry(patch, entry):
    """Make builds flip the last bit of an entry of the last tile, or square, that is written."""
    write_block = EntryWriter.write_block

    def wrong(self, i, j, rows):
        rows = list(rows)
        rows[-1][-1] = with_another_bit(self.index, rows[-1][-1], entry, self.index.levels)
        write_block(self, i, j, rows)

    patch.setattr(EntryWriter, "write_block", wrong)


class TestContract(OperationContract):
    representative = True
    command = "build-index s.zarr --cost tobler --verify"
    cost = "tobler"
    rasters = strategies.rasters(shape=strategies.shapes(150, 4000))
    identified = False  # the digests are settings of the index itself
    writing = writer

    def make(self, store):
        return DistanceIndex(str(store), "elevation", cost=self.cost)

    def dtype(self, cells):
        return np.dtype(np.float64)

    def outputs(self, store):
        return {NAME: dense(store)}

    def expected(self, data, nodata, grid):
        valid = reference.vertices(data, nodata)
        return [entries(data, self.cost, valid, step_lengths(grid), self.dtype(data.dtype))]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def change(self, patch, kind, name, cell):
        change_entry(patch, {(20, 20): 0, (64, 100): -764, (50, 40): -1}[cell])

    def test_workers_refuse_mutations(self, store, monkeypatch, cluster):
        """Of an index that is kept, for workers would build it without the mutation."""
        with monkeypatch.context() as patch:
            self.change(patch, DistanceIndex, NAME, (64, 100))
            run(self.make(store))
        found = []
        for client in (None, cluster):
            with pytest.raises(VerificationError) as error:
                run(self.make(store), resume=True, verify=True, client=client)
            found.append((str(error.value), error.value.row, error.value.col))
        assert found[0] == found[1]

    def there(self, store):
        return {NAME} if (store / NAME).exists() else set()


class TestContractOfIntegers(TestContract):
    command = "build-index s.zarr --verify"
    cost = "absdiff"
    rasters = strategies.rasters(
        strategies.dtypes("ui").filter(lambda dtype: dtype.itemsize < 8),
        strategies.shapes(150, 4000),
    )

    def dtype(self, cells):
        return np.dtype(np.uint32 if cells.itemsize <= 2 else np.uint64)


def graph_of(problem):
    """What an index depends on."""
    layers = {name: name for name in ("friction", "barriers") if getattr(problem, name) is not None}
    how = {k: getattr(problem, k) for k in ("connectivity", "corner_cutting", "reverse")}
    return {"cost": problem.model, **layers, **how}


def assert_near(found, problem):
    """Within 1e-12 of the reference; cells at `max_cost` may fall on either side of it."""
    expected = reference.dijkstra(
        problem.cells, problem.model, problem.sources, **problem.graph
    ).astype(float)
    near = found.distance()
    limit = np.inf if problem.max_cost is None else problem.max_cost
    inside, outside = expected <= limit * (1 - 1e-12), expected > limit * (1 + 1e-12)
    assert not np.isnan(near[inside & (expected < np.inf)]).any()
    assert np.isnan(near[outside | (expected == np.inf)]).all()
    there = ~np.isnan(near)
    np.testing.assert_allclose(near[there], expected[there], rtol=1e-12, atol=0)


def exact(problem):
    return problem.exact or problem.model == "minimax"


@settings(max_examples=examples(30))
@given(for_the_index(), TILED, THREADS)
def test_index_gives_the_distances_of_dijkstra(folders, problem, sides, threads):
    block, tile = sides
    hypothesis.assume(problem.sources)
    test_paths.within_reach(problem)
    wide = problem.cells.dtype.itemsize == 8 and problem.model == "absdiff" and problem.exact
    hypothesis.assume(not wide)
    with folders() as folder:
        store = test_paths.make_store(folder / "s.zarr", problem, block)
        built = build_index(store, **graph_of(problem), tile=tile, threads=threads, verify=True)
        assert built.result["built"]
        links = exact(problem)
        found = shortest_paths(
            store,
            test_paths.as_sources(problem),
            **graph_of(problem),
            max_cost=problem.max_cost,
            backlink=links,
            allocation=links,
            threads=threads,
            verify=links,
            method="index",
        )
        assert found.report.settings["method"] == "index"
        assert found.report.result["index_bytes"] == built.result["bytes"]
        if links:
            test_paths.assert_same(found, problem)
        else:
            assert_near(found, problem)
        assert not (store / ".incomplete").exists()


@pytest.fixture
def terrain(tmp_path):
    """A function that makes a store of 6 blocks with heights, frictions and barriers."""
    rng = np.random.default_rng(5)

    def make(dtype=np.int16, name="s.zarr"):
        layers = {
            "elevation": np.cumsum(rng.integers(-3, 4, (150, 180)), axis=1).astype(dtype),
            "friction": rng.uniform(0.5, 4, (150, 180)).astype(np.float32),
            "walls": np.uint8(rng.random((150, 180)) < 0.1),
        }
        layers["walls"][70:80, 90:100] = 0
        for layer, cells in layers.items():
            write_layer(tmp_path / name, layer, cells)
        return tmp_path / name

    return make


def write_layer(store, name, cells, block=64):
    with create_layer(
        store, name, GridSpec(*cells.shape), cells.dtype, block_size=block, overwrite=True
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(cells[r0:r1, c0:c1]))
        writer.commit()


SOURCES = [(75, 95), (140, 3, 2)]


def unpacked(tile, rim):
    """The entries of a packed tile of directed costs, as docs/format.md has it."""
    ways, steps = rim.cells.shape[1] ** 2, rim.crossings.shape[1]
    assert (ways, steps) == ((4 * rim.side - 4) ** 2, 12 * rim.side - 4)
    kept = np.unpackbits(tile[: ways // 8], bitorder="little").astype(bool)
    count = kept.sum() + steps
    planes = tile[ways // 8 :][: 8 * count].reshape(8, count)
    step = np.ascontiguousarray(planes.T).view(np.uint64).ravel()
    step = (step >> 1) ^ -(step & 1)
    values = np.cumsum(step, dtype=np.uint64).view(np.float64)
    found = np.full(ways + steps, np.inf)
    found[:ways][kept], found[ways:] = values[:-steps], values[-steps:]
    return found


@pytest.mark.parametrize(
    ("cost", "reverse", "side"),
    [("tobler", False, 64), ("tobler", True, 16), ("langmuir", True, 64), ("langmuir", False, 32)],
)
def test_what_is_in_the_files(terrain, cost, reverse, side):
    """Distances inside tiles, and the steps between tiles, also as any Zarr reader sees them."""
    store = terrain()
    build_index(store, cost=cost, reverse=reverse, tile=side)
    rim = rim_of(side)
    (rows, cols), count = rim.cells, rim.cells.shape[1]
    packed = zarr.open_array(str(store / NAME), mode="r")[...]
    entries = np.array([[unpacked(tile, rim) for tile in row] for row in packed])
    np.testing.assert_array_equal(entries, dense(store))
    assert entries.shape[:2] == (-(-150 // side), -(-180 // side))
    cells = TileStore.open(store).layer("elevation").read_window(0, 150, 0, 180)
    tile = cells[side : 2 * side, 0:side]
    found = entries[1, 0, : count * count].reshape(count, count)
    expected = np.array([
        reference.dijkstra(tile, cost, [(r, c, 0, 1)], reverse=reverse)[rows, cols]
        for r, c in zip(rows.tolist(), cols.tolist(), strict=True)
    ], float)  # fmt: skip
    np.testing.assert_array_equal(found, reference.without_superfluous(expected, np.add))
    into = entries[1, 0, count * count :]
    arcs = reference.arcs(cells, cost, reverse=reverse)
    for p in (0, 1, 50, 100, len(into) - 1):
        b, k = rim.crossings[:2, p].tolist()
        v = side + rows[b], cols[b]
        u = v[0] + ROW_STEP[k], v[1] + COL_STEP[k]
        costs = [w for to, w, _ in arcs.get(u, []) if to == v]
        assert [into[p]] == (costs or [np.inf])


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("cost", ["absdiff", "surface", "tobler", "minimax"])
def test_entries_around_barriers(terrain, cost, connectivity):
    """Also from rim cells between two closed ones: they have no step along their side."""
    store = terrain()
    how = {"connectivity": connectivity, "corner_cutting": False}
    build_index(store, cost=cost, **how, barriers="walls")
    entries = dense(store)[1, 1]
    layers = [TileStore.open(store).layer(name) for name in ("elevation", "walls")]
    cells, walls = (layer.read_window(64, 128, 64, 128) for layer in layers)
    closed = walls[ROWS, COLS] != 0
    narrow = ~closed & np.roll(closed, 1) & np.roll(closed, -1)
    assert narrow.any()
    never = np.iinfo(np.uint32).max >> 1 if cost == "absdiff" else np.inf
    far = np.full((RING, RING), np.inf)
    for b in np.flatnonzero(~closed).tolist():
        source = [(ROWS[b], COLS[b], None, 1)]
        expected = reference.dijkstra(cells, cost, source, **how, barriers=walls)
        far[b] = expected[ROWS, COLS]
    np.fill_diagonal(far, np.inf)
    lower = np.tril_indices(RING, -1)
    if cost != "tobler":
        far.T[lower] = far[lower]
    join = np.maximum if cost == "minimax" else np.add
    expected = reference.without_superfluous(far, join)
    found = entries[:-764].astype(float)
    found[found == never] = np.inf
    np.testing.assert_array_equal(found, expected.ravel() if cost == "tobler" else expected[lower])


@pytest.mark.parametrize(
    "how",
    [
        {"max_cost": 40},
        {"source_edge": True},
        {"reverse": True, "cost": "minimax"},
        {"stop_at_targets": True, "targets": [(20, 150), (100, 100)]},
        {"barriers": "walls", "connectivity": 4},
        {"barriers": "walls", "corner_cutting": False},
    ],
)
def test_options_of_integer_costs_give_the_same_bits(terrain, how):
    store = terrain()
    if "targets" in how:
        rows, cols = np.array(how["targets"]).T
        how = {**how, "targets": Places(rows, cols, np.uint32([1, 2]), np.zeros(2))}
    run = partial(
        shortest_paths, store, SOURCES, **how, backlink=True, allocation=True, overwrite=True
    )
    expected = test_paths.all_of(run())
    for more in ({"method": "dijkstra"}, {"build_index": True, "verify": True}):
        found = run(**more)
        for mine, theirs in zip(test_paths.all_of(found), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert found.report.result["index_built"]["built"]
    assert found.report.result["tile_visits_per_tile"] > 0


def test_real_costs_with_links_are_relaxed_with_a_warning(terrain, caplog):
    store = terrain()
    run = partial(shortest_paths, store, SOURCES, cost="tobler", overwrite=True)
    old = run(backlink=True, allocation=True)
    expected = test_paths.all_of(old)
    build_index(store, cost="tobler")
    found = run(backlink=True, allocation=True, method="index")
    assert "the index is not used" in caplog.text
    assert found.report.settings["method"] == "relax"
    for mine, theirs in zip(test_paths.all_of(found), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    near = run(method="index")
    assert near.layers["distance"].info["settings"]["method"] == "index"
    np.testing.assert_allclose(near.distance(), expected[0], rtol=1e-12, atol=0)
    with pytest.raises(StoreError, match="replaced since it was opened"):
        old.distance()


def test_distances_beyond_32_bits_are_promoted(tmp_path):
    spiral = strategies._spiral((257, 257))
    data = np.zeros(spiral.shape, np.uint16)
    data[np.add.outer(np.arange(257), np.arange(257)) % 2 == 1] = 65535
    write_layer(tmp_path / "s.zarr", "elevation", data)
    write_layer(tmp_path / "s.zarr", "walls", spiral.view(np.uint8))
    run = partial(shortest_paths, tmp_path / "s.zarr", [(0, 0)], connectivity=4, barriers="walls")
    expected = run().distance()
    found = run(build_index=True, overwrite=True)
    reached = expected != np.iinfo(expected.dtype).max
    assert found.report.result["distance_dtype"] == (
        "uint64" if reached.sum() > 2**15 else "uint32"
    )
    np.testing.assert_array_equal(found.distance(), expected)


# -- an index that does not fit --------------------------------------------------------------------


def index_of(store, how, cost="absdiff"):
    return shortest_paths(store, SOURCES, cost=cost, **how, method="index", overwrite=True)


@pytest.mark.parametrize(
    ("built", "used", "message"),
    [
        ({}, {"connectivity": 4}, "connectivity was 8 and is now 4"),
        ({}, {"corner_cutting": False}, "corner_cutting was True"),
        ({"barriers": "walls"}, {}, "barriers was 'walls' and is now None"),
        ({}, {"cost": "minimax"}, "cost was 'absdiff' and is now 'minimax'"),
        ({"cost": "tobler"}, {"cost": "tobler", "reverse": True}, "reverse was False"),
        (
            {"cost": "langmuir", "parameters": {"a": 0.7}},
            {"cost": "langmuir"},
            "parameters was {'a': 0.7}",
        ),
        ({"cost": "surface", "friction": "friction"}, {"cost": "surface"}, "friction was 'fri"),
    ],
)
def test_an_index_for_something_else_is_refused(terrain, built, used, message):
    store = terrain()
    run = partial(shortest_paths, store, SOURCES, overwrite=True)
    with pytest.raises(StoreError, match="there is none; build one with --build-index"):
        run(**used, method="index")
    build_index(store, **built)
    with pytest.raises(StoreError, match=message):
        run(**used, method="index")
    with pytest.raises(StoreError, match="--overwrite replaces it"):
        build_index(store, **used)
    expected = run(**used).distance()
    found = run(**used, build_index=True)
    assert found.report.result["index_built"]["seconds"] > 0
    np.testing.assert_allclose(found.distance(), expected, rtol=1e-12, atol=0)
    again = run(**used, build_index=True)
    assert again.report.result["index_built"] is None


@pytest.mark.parametrize("layer", ["elevation", "friction", "walls"])
def test_a_layer_that_changed_makes_the_index_stale(terrain, layer):
    store = terrain()
    how = {"friction": "friction", "barriers": "walls"}
    build_index(store, cost="absdiff", **how)
    assert not build_index(store, cost="absdiff", **how).result["built"]
    cells = TileStore.open(store).layer(layer).read_window(0, 150, 0, 180).copy()
    cells[0, 0] += 9
    write_layer(store, layer, cells)
    name = "layer" if layer == "elevation" else {"walls": "barriers"}.get(layer, layer)
    with pytest.raises(StoreError, match=f"the {name} layer has changed since"):
        index_of(store, how)


def test_tiles_of_other_sizes(terrain, capfd):
    store = terrain()
    build_index(store)
    meta = store / NAME / "zarr.json"
    saved = json.loads(meta.read_text())
    assert saved["attributes"]["terrain_gpu"]["settings"].pop("tile") == 64
    meta.write_text(json.dumps(saved))  # as before there were others
    assert not build_index(store, tile=64).result["built"]
    expected = index_of(store, {}).distance()
    code, _, err = call(capfd, f"build-index {store} --tile 16")
    assert (code, "tile was 64 and is now 16; --overwrite replaces it" in err) == (2, True)
    assert call(capfd, f"build-index {store} --tile 16 --overwrite")[0] == 0
    np.testing.assert_array_equal(index_of(store, {}).distance(), expected)
    assert build_index(store, tile=16, verify=True).result["verified_entries"] > 0
    with pytest.raises(InputError, match=r"tiles of 128 are larger than the blocks .*, 64; give"):
        build_index(store, tile=128)
    with pytest.raises(InputError, match="tile 48 is not 16 or 32 or 64 or 128"):
        build_index(store, tile=48)


def test_reverse_makes_no_difference_to_symmetric_costs(terrain):
    store = terrain()
    build_index(store)
    assert index_of(store, {"reverse": True}).reached == 150 * 180


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: os.truncate(p, 1000), "truncated or corrupt"),
        (lambda p: p.write_bytes(p.read_bytes() + b"x"), "truncated or corrupt"),
        (lambda p: p.write_bytes(os.urandom(p.stat().st_size)), "corrupt"),
        (lambda p: p.write_bytes(b"\x01" + p.read_bytes()[1:]), "corrupt"),
        (lambda p: p.unlink(), "missing from the distance index"),
    ],
)
def test_damaged_files_are_named(terrain, damage, message):
    store = terrain()
    build_index(store)
    file = store / NAME / "c" / "1" / "1" / "0"
    damage(file)
    with pytest.raises(StoreError, match=message) as error:
        index_of(store, {})
    assert str(file) in str(error.value)
    assert "build the index again with --overwrite" in str(error.value)
    build_index(store, overwrite=True)
    assert index_of(store, {}).reached == 150 * 180


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta["shape"].__setitem__(0, 99),
        lambda meta: meta.pop("attributes"),
        lambda meta: meta["attributes"]["terrain_gpu"].pop("settings"),
        lambda meta: meta["attributes"]["terrain_gpu"].update(dtype="object"),
        lambda meta: meta["attributes"]["terrain_gpu"].update(symmetric="yes"),
        lambda meta: meta["attributes"]["terrain_gpu"]["settings"].update(tile="64"),
        lambda meta: meta["attributes"]["terrain_gpu"]["settings"].update(tile=32),
        lambda meta: meta["attributes"]["terrain_gpu"]["settings"].update(tile=128),
        lambda meta: meta["attributes"]["terrain_gpu"].update(symmetric=False),
        lambda meta: meta["codecs"][0]["configuration"]["codecs"].pop(),
        lambda meta: meta["codecs"][0]["configuration"]["codecs"][1]["configuration"].update(
            level=9
        ),
        lambda meta: meta.clear(),
    ],
)
def test_damaged_metadata_is_refused_and_rebuilt(terrain, change):
    store = terrain()
    build_index(store)
    path = store / NAME / "zarr.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))
    with pytest.raises(StoreError, match="damaged distance index"):
        index_of(store, {})
    with pytest.raises(StoreError, match="damaged distance index"):
        build_index(store)
    found = shortest_paths(store, SOURCES, build_index=True)
    assert found.report.result["index_built"]["built"]


def test_a_killed_build_goes_on(terrain, monkeypatch):
    store = terrain()
    twin = terrain(name="twin.zarr")
    for layer in ("elevation", "friction", "walls"):
        cells = TileStore.open(store).layer(layer).read_window(0, 150, 0, 180)
        write_layer(twin, layer, cells)
    build_index(twin)
    usual, calls = EntryWriter.write_block, []

    def failing(*args):
        calls.append(args)
        if len(calls) == 5:
            os._exit(9)
        return usual(*args)

    with monkeypatch.context() as patch:
        patch.setattr(EntryWriter, "write_block", failing)
        child = os.fork()
        if child == 0:
            build_index(store, threads=1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with pytest.raises(StoreError, match="there is none"):
        index_of(store, {})
    assert build_index(store).result["blocks_resumed"] == 4
    for file in (twin / NAME / "c").rglob("0"):
        if file.is_file():
            assert file.read_bytes() == (store / file.relative_to(twin)).read_bytes()
    assert not (store / ".incomplete").exists()
    assert index_of(store, {}).reached == 150 * 180


def test_a_proof_that_fails_keeps_an_older_index(terrain, monkeypatch):
    store = terrain()
    build_index(store, connectivity=4)
    before = (store / NAME / "zarr.json").read_bytes()
    with monkeypatch.context() as patch:
        change_entry(patch, 1000)
        with pytest.raises(
            VerificationError,
            match=r"s\.zarr/distance_index: the distance within its tile from row .* is",
        ):
            build_index(store, verify=True, overwrite=True)
        assert (store / NAME / "zarr.json").read_bytes() == before
        assert not (store / ".incomplete").exists()
    with monkeypatch.context() as patch:
        change_entry(patch, -5)
        with pytest.raises(
            VerificationError, match=r"the cost of the step .* build the index again"
        ):
            build_index(store, verify=True, overwrite=True)
    assert build_index(store, connectivity=4, verify=True).result["verified_entries"] > 0


def test_an_index_that_cannot_be_verified(terrain, capfd):
    store = terrain()
    build_index(store, cost="absdiff", friction="friction", barriers="walls")
    file = store / NAME / "c" / "1" / "1" / "0"
    cells = file.read_bytes()
    file.write_bytes(cells[:50] + b"?" + cells[51:])
    code, _, wrong = call(capfd, f"verify {store}")
    assert (code, "corrupt tile (0, 0) (crc32c differs)" in wrong) == (2, True)
    file.write_bytes(cells)
    code, said, _ = call(capfd, f"verify {store}")
    assert (code, "distance index of absdiff verified" in said) == (0, True)
    with pytest.raises(InputError, match="too small to verify a distance index in blocks of 64"):
        DistanceIndex(str(store), "elevation").plan_verify(Machine.of(280 * 10**6, 2))
    write_layer(store, "friction", np.ones((150, 180), np.float32))
    code, _, wrong = call(capfd, f"verify {store}")
    assert (code, "the friction layer has changed since; build it again" in wrong) == (2, True)
    meta = store / NAME / "zarr.json"
    meta.write_text(meta.read_text().replace('"cost":', '"costs":'))
    code, _, wrong = call(capfd, f"verify {store}")
    assert (code, "damaged distance index (KeyError: 'cost')" in wrong) == (2, True)


def test_an_unfinished_build_of_something_else_starts_again(terrain, monkeypatch):
    store = terrain()
    with monkeypatch.context() as patch:
        patch.setattr(IndexWriter, "commit", lambda self, own: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_index(store)
    assert build_index(store, connectivity=4).result["blocks_resumed"] == 0


def test_the_store_stays_one_that_others_read(terrain):
    store = terrain()
    build_index(store)
    opened = TileStore.open(store)
    assert opened.layers == ["elevation", "friction", "walls"]
    assert set(opened.describe()["layers"]) == set(opened.layers)
    assert NAME in dict(zarr.open_group(str(store), mode="r").arrays())
    with pytest.raises(InputError, match="layer name"):
        create_layer(store, NAME, opened.grid, np.uint8)


def test_wrong_arguments(terrain):
    data = np.zeros((5, 5), np.int16)
    for how, message in (
        ({"method": "index"}, "needs a store"),
        ({"build_index": True}, "needs a store"),
        ({"method": "dijkstra", "build_index": True}, "cannot be combined with method dijkstra"),
        ({"method": "magic"}, "use one of relax, index, dijkstra"),
    ):
        with pytest.raises(InputError, match=message):
            shortest_paths(data, [(0, 0)], **how)
    store = terrain(np.int64)
    with pytest.raises(InputError, match="integer heights of at most 32 bits"):
        build_index(store)
    with pytest.raises(InputError, match="memory limit"):
        build_index(store, cost="tobler", memory_limit=10**6)
    with pytest.raises(InputError, match=r"too small for shortest paths .*; give at least 281 MB"):
        shortest_paths(store, SOURCES, memory_limit=10**6, method="dijkstra")


# -- the commands ----------------------------------------------------------------------------------


def call(capfd, command):
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


def test_the_commands(terrain, capfd):
    store = terrain()
    code, out, err = call(capfd, f"build-index {store} --cost tobler --memory-limit 1GB --json -")
    assert (code, json.loads(out)["result"]["built"]) == (0, True), err
    code, out, err = call(capfd, f"build-index {store} --cost tobler")
    assert code == 0
    assert "already built" in out
    code, _, err = call(capfd, f"build-index {store}")
    assert code == 2
    assert "cost was 'tobler' and is now 'absdiff'; --overwrite replaces it" in err
    run = f"compute-sssp {store} --source-rowcol 75,95 --overwrite"
    code, _, err = call(capfd, f"{run} --method index")
    assert code == 2
    assert "--build-index" in err
    code, out, err = call(capfd, f"{run} --method index --cost tobler --json -")
    assert code == 0, err
    assert json.loads(out)["settings"]["method"] == "index"
    code, out, err = call(capfd, f"{run} --build-index --json -")
    assert code == 0, err
    assert json.loads(out)["result"]["index_built"]["bytes"] > 0
    os.truncate(store / NAME / "c" / "0" / "0" / "0", 7)
    code, _, err = call(capfd, f"{run} --method index")
    assert code == 2
    assert "truncated or corrupt" in err
    code, _, err = call(capfd, f"{run} --method dijkstra --build-index")
    assert code == 2
    assert call(capfd, f"{run} --method dijkstra --verify")[0] == 0
