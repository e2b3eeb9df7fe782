"""What drains through each cell of the spanning forest, block by block, against plain Python."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from reference import border, drained, rooted
from strategies import rasters, shapes, without_checksums
from test_mst import make_store

from terrain_gpu import TileStore, accumulate, create_layer, minimum_spanning_tree, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, PlanError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas, step_lengths
from terrain_gpu.hydrology.accumulate.operation import Accumulate
from terrain_gpu.io.places import from_rowcol

int16 = st.just(np.dtype("<i2"))
small = rasters(int16, shapes(200, 6000))


@pytest.fixture(scope="session", autouse=True)
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


class TestContract(OperationContract):
    command = "accumulate s.zarr --directions direction"
    rasters = small

    def prepare(self, store):
        minimum_spanning_tree(store, backend="cpu")

    def make(self, store):
        return Accumulate(str(store), directions="direction")

    def expected(self, data, nodata, grid):
        outlets = border(reference.vertices(data, nodata))
        tree = rooted(data, "max", outlets, nodata)
        sums, codes = drained(data.shape, *tree, np.ones(len(data), int))
        return sums.astype(np.uint32), codes


class TestContractOfFlow(TestContract):
    rasters = rasters(st.sampled_from(["<i2", "<f4", "<u4"]).map(np.dtype), shapes(200, 6000))

    def prepare(self, store):
        minimum_spanning_tree(store, weight="flow", backend="cpu")

    def make(self, store):
        return Accumulate(str(store), "low_border", directions="direction")

    def expected(self, data, nodata, grid):
        low = border(reference.vertices(data, nodata))
        tree = rooted(data, "flow", [], nodata, lengths=step_lengths(grid), low=low)
        sums, codes = drained(data.shape, *tree, np.ones(len(data), int))
        return sums.astype(np.uint32), codes


def read(layer):
    return layer.read_window(*layer.grid.window)


def check(folder, data, nodata, connectivity, block, outlets, threads=1):
    store = make_store(folder / "s.zarr", data, nodata, block)
    minimum_spanning_tree(store, connectivity=connectivity, threads=threads)
    given_cells = None if outlets is None else from_rowcol(GridSpec(*data.shape), outlets)
    found = accumulate(store, given_cells, directions="direction", threads=threads)
    ends = border(reference.vertices(data, nodata)) if outlets is None else outlets
    into, order = rooted(data, "max", ends, nodata, connectivity)
    sums, codes = drained(data.shape, into, order, np.ones(data.shape[0], int))
    assert np.array_equal(read(found.layer), sums.astype(np.int64))
    assert np.array_equal(read(found.directions), codes)
    assert found.outlets == len(set(ends))
    assert found.reached == len(order)


@settings(max_examples=examples(40))
@given(
    raster=small,
    connectivity=st.sampled_from([8, 4]),
    block=st.sampled_from([64, 128]),
    threads=st.sampled_from([1, 2]),
)
def test_to_the_border(folders, raster, connectivity, block, threads):
    with folders() as folder:
        check(folder, raster.cells, raster.nodata, connectivity, block, None, threads)


@settings(max_examples=examples(60))
@given(
    raster=small,
    count=st.sampled_from([1, 2, 3, 10, 100]),
    seed=st.integers(0, 99),
)
def test_to_given_outlets(folders, raster, count, seed):
    good = np.argwhere(reference.vertices(raster.cells, raster.nodata))
    chosen = np.random.default_rng(seed).permutation(good)[:count]
    if len(chosen):
        with folders() as folder:
            outlets = [tuple(cell) for cell in chosen.tolist()]
            check(folder, raster.cells, raster.nodata, 8, 64, outlets)


@settings(max_examples=examples(15))
@given(raster=rasters(st.just(np.dtype("<f4")), shapes(150, 3000)))
def test_real_heights(folders, raster):
    with folders() as folder:
        check(folder, raster.cells, raster.nodata, 8, 64, None)


def test_64_bit_heights_that_differ_in_their_last_bit(tmp_path):
    data = np.random.default_rng(5).integers(0, 9, (40, 100)) + 2**60
    check(tmp_path, data, None, 8, 64, [(20, 3), (20, 97), (3, 60)])


def snake(side):
    """A corridor of one cell that winds through a raster, and its cells in order."""
    data = np.full((side, side), -1, np.int16)
    way = []
    for row in range(0, side, 2):
        cols = range(side) if row % 4 == 0 else range(side - 1, -1, -1)
        way += [(row, col) for col in cols]
        if row + 1 < side - 1:
            way.append((row + 1, way[-1][1]))
    for cell in way:
        data[cell] = 7
    return data, way


def test_a_path_through_all_blocks(tmp_path):
    """Long chains, all weights equal: the edge id alone decides where two outlets part."""
    data, way = snake(139)
    store = make_store(tmp_path / "one.zarr", data, -1, 64)
    minimum_spanning_tree(store, connectivity=4)
    found = accumulate(store, from_rowcol(GridSpec(139, 139), [way[0]]))
    sums = read(found.layer)
    assert [sums[cell] for cell in way] == list(range(len(way), 0, -1))
    assert (sums[data < 0] == 0).all()
    check(tmp_path, data, -1, 4, 64, [way[0], way[len(way) // 3], way[-1]])


def test_areas_do_not_depend_on_blocks(tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (150, 170)).astype(np.int16)
    grid = GridSpec(150, 170, (0.5, 0, 10, 0, -0.5, 70), CRS.from_epsg(4326).to_wkt())
    areas = cell_areas(grid)
    whole = []
    for block in (64, 256):
        store = tmp_path / f"{block}.zarr"
        with create_layer(store, "elevation", grid, data.dtype, block_size=block) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, data[r0:r1, c0:c1])
            writer.commit()
        minimum_spanning_tree(store)
        whole.append(read(accumulate(store, areas=True).layer))
    assert np.array_equal(*whole)
    into, order = rooted(data, "max", border(data > -1))
    sums = areas.repeat(170)
    for v in reversed(order):
        if into[v] is not None:
            sums[into[v]] += sums[v]
    assert np.allclose(whole[0].ravel(), sums, rtol=1e-12)


def test_areas_of_equal_cells_are_counted(tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (70, 80)).astype(np.int16)
    grid = GridSpec(70, 80, (0.1, 0, 0, 0, -0.3, 0))
    with create_layer(tmp_path / "s.zarr", "elevation", grid, data.dtype) as writer:
        writer.write_block(0, 0, data)
        writer.commit()
    minimum_spanning_tree(tmp_path / "s.zarr")
    counts = read(accumulate(tmp_path / "s.zarr").layer)
    areas = read(accumulate(tmp_path / "s.zarr", areas=True, overwrite=True).layer)
    assert np.array_equal(areas, counts * (0.1 * 0.3))


class Stop(Exception):
    pass


@pytest.fixture
def store(tmp_path):
    data = np.random.default_rng(7).integers(0, 99, (200, 300)).astype(np.int16)
    path = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(path)
    return path


@pytest.mark.parametrize("after", [1, 19, 20, 21, 30, 39])
def test_a_stopped_run_goes_on(store, after):
    counted = []

    def progress(cells, total):
        counted.append(cells)
        if len(counted) == after:
            raise Stop

    with pytest.raises(Stop):
        accumulate(store, directions="direction", progress=progress)
    assert TileStore.open(store).layers == ["elevation", "mst"]
    if after > 20:  # something was written
        other = from_rowcol(GridSpec(200, 300), [(0, 0)])
        with pytest.raises(StoreError, match="outlets was 'border'"):
            accumulate(store, other, directions="direction", resume=True)
    found = accumulate(store, directions="direction", resume=True)
    sums, codes = read(found.layer), read(found.directions)
    again = accumulate(store, directions="direction", overwrite=True)
    assert np.array_equal(read(again.layer), sums)
    assert np.array_equal(read(again.directions), codes)
    done = accumulate(store, directions="direction", resume=True)
    assert (done.outlets, done.reached) == (found.outlets, found.reached)


def test_a_damaged_result_is_replaced(store):
    expected = read(accumulate(store).layer)
    path = store / "accumulation" / "zarr.json"
    path.write_text(path.read_text()[:99])
    with pytest.raises(StoreError):
        accumulate(store)
    assert np.array_equal(read(accumulate(store, overwrite=True).layer), expected)


def test_refusals(store, tmp_path):
    with pytest.raises(PlanError, match=r"280 MB is too small to drain .* at least \d+ MB"):
        accumulate(store, memory_limit=280 * 10**6)
    with pytest.raises(InputError, match="outside the raster"):
        accumulate(store, from_rowcol(GridSpec(200, 300), [(200, 0)]))
    for names in ({"into": "elevation"}, {"directions": "mst"}, {"into": "a", "directions": "a"}):
        with pytest.raises(InputError, match="must have different names"):
            accumulate(store, overwrite=True, **names)
    shortest_paths(store, [(0, 0)], backlink=True)
    for names, message in (
        ({"into": "distance"}, "'distance' does not hold results of accumulate that this program"),
        ({"directions": "backlink"}, "'backlink' does not hold results of accumulate that"),
    ):
        with pytest.raises(InputError, match=message):
            accumulate(store, overwrite=True, **names)
    void = np.full((70, 80), -1, np.int16)
    void[0, 0] = 5
    other = make_store(tmp_path / "v.zarr", void, -1, 64)
    minimum_spanning_tree(other)
    with pytest.raises(InputError, match="1 of 1 given cells are nodata: row 3, column 4"):
        accumulate(other, from_rowcol(GridSpec(70, 80), [(3, 4)]))
    make_store(other, void + 1, 0, 64)
    with pytest.raises(StoreError, match="computed from other cells"):
        accumulate(other)


@pytest.mark.parametrize("value", [15, 16])
def test_a_layer_that_is_no_forest_is_refused(store, value):
    """Cycles inside a block, and invalid codes."""
    edges = without_checksums(TileStore.open(store).layer("mst"))
    with open(edges.shard_path(1, 1), "r+b") as file:
        file.write(bytes([value]) * 3000)
    with pytest.raises(StoreError, match="mst: not a forest of these cells in rows"):
        accumulate(store)
    assert TileStore.open(store).layers == ["elevation", "mst"]


def test_a_cycle_through_four_blocks_is_refused(store):
    writer = without_checksums(TileStore.open(store).layer("mst"))
    ring = np.zeros((200, 300), np.uint8)
    ring[63, 63] = 1 | 4
    ring[64, 63] = 1
    ring[63, 64] = 4
    for i, j in writer.blocks.ids():
        r0, r1, c0, c1 = writer.block_window(i, j)
        tiles = np.zeros((64, 64), np.uint8)
        tiles[: r1 - r0, : c1 - c0] = ring[r0:r1, c0:c1]
        with open(writer.shard_path(i, j), "r+b") as file:
            file.write(tiles.tobytes())
    with pytest.raises(StoreError, match="has a cycle"):
        accumulate(store)


def test_a_forest_of_another_weight_is_refused(store, capfd):
    """Water follows heights, not differences: its divides would be silently wrong."""
    minimum_spanning_tree(store, weight="absdiff", overwrite=True)
    with pytest.raises(
        StoreError, match=r"weight absdiff, .*compute-mst --weight flow --overwrite"
    ):
        accumulate(store)
    code = options._guarded(lambda: group.main(["accumulate", str(store)], standalone_mode=False))
    assert code == 2
    assert "mst: computed with weight absdiff, but drainage needs" in capfd.readouterr().err
    assert TileStore.open(store).layers == ["elevation", "mst"]


def test_outlets_in_one_cell_count_once(store, caplog):
    grid = TileStore.open(store).grid
    found = accumulate(store, from_rowcol(grid, [(5, 6), (5, 6), (9, 9)]))
    assert (found.outlets, found.reached) == (2, 60_000)
    assert [m for m in caplog.messages if "outlets" in m] == [
        "1 of 3 outlets ignored, because another one in the same cell has a lower start cost or id:"
        " 2 at row 5, column 6 (but 1)"
    ]


def test_the_plan(store, capfd):
    line = f"plan {store} --for accumulate --memory-limit 1GB --threads 3 --json -".split()
    assert options._guarded(lambda: group.main(line, standalone_mode=False)) == 0
    planned = json.loads(capfd.readouterr().out)["result"]
    assert planned == accumulate(store, memory_limit=10**9, threads=3).report.settings["plan"]


def test_the_command(store, tmp_path, capfd):
    def call(command):
        code = options._guarded(lambda: group.main(command.split(), standalone_mode=False))
        return (code, *capfd.readouterr())

    code, said, _ = call(
        f"accumulate {store} --directions direction -o {tmp_path}/a.tif --json {tmp_path}/j"
    )
    assert code == 0
    assert re.search(
        r"layers accumulation, direction, 60,000 cells drain to 996 outlets, .* s\nwritten: ", said
    )
    report = json.loads((tmp_path / "j").read_text())
    assert (report["command"], report["result"]["reached"]) == ("accumulate", 60_000)
    with rasterio.open(tmp_path / "a.tif") as raster:
        assert np.array_equal(raster.read(1), read(TileStore.open(store).layer("accumulation")))
    code, _, wrong = call(f"accumulate {store}")
    assert (code, "layer 'accumulation' exists; --overwrite replaces it" in wrong) == (2, True)
    code, said, _ = call(f"accumulate {store} --outlet-rowcol 5,6 --overwrite")
    assert (code, "60,000 cells drain to 1 outlet," in said) == (0, True)


def test_files_are_not_replaced_by_one_another(store, tmp_path, capfd):
    gauges = tmp_path / "gauges.geojson"
    gauges.write_text('{"type": "Point", "coordinates": [101, 49]}')
    marks, sums = tmp_path / "marks.tif", tmp_path / "sums.tif"
    for wrong, message in (
        (
            f"--outlets {marks} -o {marks} --overwrite",
            f"--output {marks}: --outlets already names this",
        ),
        (f"--outlets {gauges} --json {gauges}", "gauges.geojson' exists and is not a report"),
        (f"--outlets {sums}.gpkg:own --json {sums}.gpkg", "sums.tif.gpkg: --outlets already names"),
        (
            f"-o {sums} --json {sums}",
            f"--json {sums}: --output already names this file; name another",
        ),
    ):
        command = f"accumulate {store} {wrong}".split()
        code = options._guarded(lambda: group.main(command, standalone_mode=False))  # noqa: B023
        assert (code, message in capfd.readouterr().err) == (2, True)
    assert sorted(os.listdir(tmp_path)) == ["gauges.geojson", "s.zarr"]
    assert TileStore.open(store).layers == ["elevation", "mst"]
    assert json.loads(gauges.read_text())["type"] == "Point"
