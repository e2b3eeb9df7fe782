"""The spanning forest, streamed by blocks, against Kruskal: edge for edge."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
import rasterio
import reference
from conftest import only_cpu
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from samples import DEMS
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import minimum_spanning_tree as scipy_tree
from strategies import has_no_largest, rasters, shapes

from terrain_gpu import TileStore, accumulate, create_layer, minimum_spanning_tree
from terrain_gpu.errors import InputError, PlanError, StoreError, TerrainError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.grid.neighbours import symmetric
from terrain_gpu.io.convert import convert_dataset
from terrain_gpu.io.export import export_layer
from terrain_gpu.spanning_tree import levels
from terrain_gpu.spanning_tree.gpu import plan as gpu
from terrain_gpu.spanning_tree.weights import WEIGHTS, weights_of
from terrain_gpu.store import LayerWriter


@pytest.fixture(scope="module", autouse=True)
def small_regions(backend):
    """Run this module on both backends; on a GPU, regions are as small as blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "MOST_SIDE", 64)
        yield


every_method = pytest.mark.parametrize(
    ("backend", "method"),
    [
        ("cpu", "frozen"),
        ("cpu", "contract"),
        pytest.param("cuda", "frozen", marks=pytest.mark.gpu),
    ],
    indirect=["backend"],
)


small = rasters(shape=shapes(200, 9000)).filter(has_no_largest)
"""Kruskal in plain Python takes a second for 30 000 cells."""

weights = st.sampled_from(list(WEIGHTS))
connectivities = st.sampled_from([8, 4])


def make_store(path, data, nodata, block):
    grid, settings = GridSpec(*data.shape), {"nodata": nodata, "block_size": block}
    with create_layer(path, "elevation", grid, data.dtype, overwrite=True, **settings) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()
    return path


def check(tree, forward, data, nodata, weight, connectivity):
    mask, total, count = reference.kruskal(data, weight, nodata, connectivity)
    assert np.array_equal(forward, mask)
    assert tree.edge_count == count
    assert tree.total_weight == total
    assert tree.components == reference.vertices(data, nodata).sum() - count


@settings(max_examples=examples(120))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    block=st.sampled_from([None, 64, 128]),
)
def test_arrays(backend, raster, weight, connectivity, block):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    tree = minimum_spanning_tree(
        data, weight=weight, connectivity=connectivity, nodata=nodata, block_size=block, threads=2
    )
    check(tree, tree._forward, data, nodata, weight, connectivity)
    assert tree.report.settings["backend"] == backend


@every_method
@settings(max_examples=examples(40))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    block=st.sampled_from([64, 128, 256, 1024]),
    threads=st.sampled_from([1, 2, 3]),
    limit=st.sampled_from([None, 512 * 10**6]),
)
def test_stores(
    folders, no_fsync_session, backend, method, raster, weight, connectivity, block, threads, limit
):
    assume(weight in weights_of(raster.cells.dtype))
    with folders() as folder:
        store = make_store(folder / "s.zarr", raster.cells, raster.nodata, block)
        tree = minimum_spanning_tree(
            store,
            method=method,
            weight=weight,
            connectivity=connectivity,
            threads=threads,
            memory_limit=limit,
        )
        forward = TileStore.open(store).layer("mst").read_window(*tree.layer.grid.window)
        check(tree, forward, raster.cells, raster.nodata, weight, connectivity)
        assert np.array_equal(tree.edges(), symmetric(np.pad(forward, 1)))
        assert not (store / ".incomplete").exists()
        assert tree.report.settings["backend"] == (backend if limit is None else "cpu")


@pytest.fixture(scope="session")
def no_fsync_session():
    import os

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


def test_symmetric_edges_have_both_ends():
    data = np.random.default_rng(0).integers(0, 9, (70, 90)).astype(np.int16)
    both = minimum_spanning_tree(data, block_size=64).edges()
    steps = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
    for k, (dr, dc) in enumerate(steps):
        for row, col in np.argwhere(both >> k & 1).tolist():
            assert both[row + dr, col + dc] >> ((k + 4) % 8) & 1
    assert np.bitwise_count(both).sum() == 2 * (70 * 90 - 1)


def test_levels_over_many_blocks_of_a_wide_raster():
    """Blocks in one row, in one column, and more than two levels of them."""
    rng = np.random.default_rng(5)
    for shape in ((1, 1500), (1500, 1), (65, 300), (300, 66), (200, 140)):
        data = rng.integers(0, 4, shape).astype(np.uint8)
        tree = minimum_spanning_tree(data, weight="absdiff", block_size=64)
        check(tree, tree._forward, data, None, "absdiff", 8)


@only_cpu  # see test_cuda_dems.py
@pytest.mark.parametrize("dem", sorted(p.name for p in DEMS.glob("*.*") if p.suffix != ".md"))
def test_real_rasters_do_not_depend_on_blocks_and_threads(tmp_path, dem):
    path, bounds = DEMS / dem, None
    with rasterio.open(path) as data:
        if data.width * data.height > 10**7:
            # Part of the largest one, with a coast; all of it would take scipy minutes.
            a = data.transform
            bounds = (a.c + 3000 * a.a, a.f + 9000 * a.e, a.c + 4100 * a.a, a.f + 8000 * a.e)
    found = []
    for block, threads in ((64, 2), (256, 1), (1024, 2)):
        store = tmp_path / f"{block}.zarr"
        convert_dataset([path], store, block_size=block, bounds=bounds)
        for weight in ("max", "absdiff"):
            tree = minimum_spanning_tree(store, weight=weight, threads=threads, overwrite=True)
            found.append((weight, tree.edges().tobytes(), tree.total_weight, tree.components))
    assert set(found[0::2]) == {found[0]}
    assert set(found[1::2]) == {found[1]}
    layer = TileStore.open(store).layer("elevation")
    for weight, _, total, components in found[:2]:
        expected, parts = scipy_total(layer, weight)
        assert total == pytest.approx(expected, rel=1e-9, abs=1e-6)
        assert components == parts


def scipy_total(layer, weight):
    """Total weight by scipy, which drops edges of weight 0: shift all weights by a constant."""
    data = layer.read_window(*layer.grid.window)
    good = reference.vertices(data, layer.nodata)
    ids = np.arange(data.size).reshape(data.shape)
    us, vs, ws = [], [], []
    rows, cols = data.shape
    for dr, dc in reference.FORWARD:
        here = (slice(0, rows - dr), slice(max(0, -dc), cols - max(0, dc)))
        there = (slice(dr, rows), slice(max(0, dc), cols - max(0, -dc)))
        both = good[here] & good[there]
        a, b = data[here][both], data[there][both]
        if weight == "max":
            w = np.maximum(a, b).astype(np.float64)
        elif data.dtype.kind == "f":
            w = np.abs(a - b).astype(np.float64)
        else:
            w = np.abs(a.astype(np.int64) - b.astype(np.int64)).astype(np.float64)
        us.append(ids[here][both])
        vs.append(ids[there][both])
        ws.append(w)
    w = np.concatenate(ws)
    shift = 1 - w.min()
    graph = coo_matrix(
        (w + shift, (np.concatenate(us), np.concatenate(vs))), shape=(data.size, data.size)
    )
    tree = scipy_tree(graph.tocsr())
    return tree.sum() - shift * tree.nnz, good.sum() - tree.nnz


class Stop(Exception):
    pass


@every_method
@pytest.mark.parametrize("phase", ["blocks", "levels", "patches", "commit"])
def test_a_run_stopped_in_any_phase_resumes_to_the_same_result(
    tmp_path, monkeypatch, phase, method
):
    rng = np.random.default_rng(3)
    data = rng.integers(0, 30, (300, 260)).astype(np.int16)
    whole = make_store(tmp_path / "whole.zarr", data, None, 64)
    store = tmp_path / "s.zarr"
    shutil.copytree(whole, store)
    run = partial(minimum_spanning_tree, store, method=method)
    expected = minimum_spanning_tree(whole)
    with monkeypatch.context() as patch:
        name, home = {
            "blocks": ("save", levels.DiskSpill),
            "levels": ("add", levels.Patches),
            "patches": ("patch_block", LayerWriter),
            "commit": ("commit", LayerWriter),
        }[phase]
        usual, calls = getattr(home, name), []

        def failing(*args, **kwargs):
            calls.append(args)
            if len(calls) == (1 if phase == "commit" else 7):
                raise Stop
            return usual(*args, **kwargs)

        patch.setattr(home, name, failing)
        with pytest.raises(Stop):
            run()
    assert TileStore.open(store).layers == ["elevation"]
    with pytest.raises(StoreError, match="--resume"):
        run()
    with pytest.raises(StoreError, match="weight"):
        run(weight="absdiff", resume=True)
    tree = run(resume=True)
    assert tree.report.result["blocks_resumed"] >= (1 if phase == "blocks" else 25)
    assert np.array_equal(tree.edges(), expected.edges())
    assert (tree.total_weight, tree.edge_count) == (expected.total_weight, expected.edge_count)
    again = run(resume=True)
    assert again.report.result["blocks_resumed"] == 25
    assert again.total_weight == expected.total_weight
    make_store(store, data + np.int16(1), None, 64)
    with pytest.raises(StoreError, match="'mst' exists"):
        run(resume=True)


def test_what_a_run_with_other_regions_solved_is_dropped(tmp_path):
    """Its blocks are overwritten, so its regions no longer count as solved."""
    store = make_store(tmp_path / "s.zarr", np.eye(300, dtype=np.int16), None, 64)

    def stop(cells, total):
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            minimum_spanning_tree(store, resume=True, progress=stop)
        (own,) = store.rglob("solved-*")
        own.with_name("solved-4096").mkdir()
    with pytest.raises(KeyboardInterrupt):
        minimum_spanning_tree(store, resume=True, progress=stop)
    assert list(store.rglob("solved-*")) == [own]


@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", -9999), ("uint8", 0.5), ("int16", np.nan)])
def test_nodata_that_no_cell_can_have(dtype, nodata):
    data = np.zeros((70, 90), dtype)
    assert minimum_spanning_tree(data, nodata=nodata).edge_count == 70 * 90 - 1


def test_an_existing_result_is_replaced_only_when_asked(tmp_path):
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(store, weight="max")
    before = TileStore.open(store).layer("mst").info["result"]
    with pytest.raises(StoreError, match="overwrite"):
        minimum_spanning_tree(store, weight="absdiff")
    assert TileStore.open(store).layer("mst").info["result"] == before
    tree = minimum_spanning_tree(store, weight="absdiff", overwrite=True)
    assert TileStore.open(store).layer("mst").info["result"]["total_weight"] == tree.total_weight


@pytest.mark.parametrize("bounds", [None, (100.0, -180.0, 210.0, -50.0)])
def test_the_exported_raster_is_symmetric(tmp_path, bounds):
    data = np.random.default_rng(1).integers(0, 50, (200, 230)).astype(np.uint16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    both = minimum_spanning_tree(store).edges()
    out = tmp_path / "edges.tif"
    export_layer(store, out, layer="mst", bounds=bounds)
    with rasterio.open(out) as raster:
        cells = raster.read(1)
    assert np.array_equal(cells, both if bounds is None else both[50:180, 100:210])


def test_reading_and_writing_is_what_the_plan_says(backend, tmp_path):
    store = tmp_path / "s.zarr"
    data = np.random.default_rng(2).integers(0, 99, (700, 900)).astype(np.int16)
    make_store(store, data, None, 128)
    minimum_spanning_tree(store)  # the first run also reads compiled code
    report = minimum_spanning_tree(store, overwrite=True).report
    plan = report.settings["plan"]
    # Besides cells and spill: metadata and the manifest.
    assert 0.8 * plan["bytes_written"] <= report.bytes_written <= plan["bytes_written"] + 50_000
    assert report.settings["backend"] == backend
    assert 0.8 * plan["bytes_read"] <= report.bytes_read <= plan["bytes_read"] + 10**6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": "mean"}, "mean"),
        ({"connectivity": 6}, "6"),
        ({"method": "prim"}, "prim"),
        ({"memory_limit": 10**8}, "give at least"),
        ({"memory_limit": "lots"}, "memory_limit 'lots' is not a size"),
        ({"threads": 0}, "threads 0: give a whole number from 1 to 1024"),
        ({"nodata": 0}, "arrays"),
        ({"layer": "mst"}, "is the result"),
    ],
)
def test_wrong_options(tmp_path, options, words):
    store = make_store(tmp_path / "s.zarr", np.zeros((5, 5), np.uint8), None, 64)
    with pytest.raises((InputError, PlanError), match=words):
        minimum_spanning_tree(store, **options)
    assert TileStore.open(store).layers == ["elevation"]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_the_largest_64_bit_integer_is_refused_unless_it_is_nodata(dtype):
    largest = np.iinfo(dtype).max
    data = np.zeros((100, 100), dtype)
    data[70, 80] = largest
    with pytest.raises(InputError, match=f"row 70, column 80: {largest}.*nodata"):
        minimum_spanning_tree(data, block_size=64)
    assert minimum_spanning_tree(data, nodata=largest).edge_count == 9998
    data[70, 80] = largest - 1
    tree = minimum_spanning_tree(data, block_size=64)
    assert tree.total_weight == largest - 1


def test_the_largest_integer_in_the_last_block_leaves_nothing(tmp_path):
    data = np.zeros((300, 300), np.uint64)
    data[290, 280] = np.iinfo(data.dtype).max
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    with pytest.raises(InputError, match=f"{store}/elevation: row 290, column 280: 18446.*nodata"):
        minimum_spanning_tree(store, threads=1)
    assert not (store / ".incomplete").exists()


def test_a_weight_that_is_infinite(tmp_path):
    data = np.full((3, 70), np.finfo(np.float32).max)
    data[:, 66:] *= -1
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    tree = minimum_spanning_tree(store, weight="absdiff", verify=True)
    assert tree.total_weight == np.inf
    assert tree.report.result["total_weight"] == "Infinity"
    assert minimum_spanning_tree(store, weight="absdiff", resume=True).total_weight == np.inf


@pytest.mark.parametrize("method", ["frozen", "contract"])
@pytest.mark.parametrize("first", [True, False])
def test_a_weight_that_is_infinite_in_one_block_of_several(tmp_path, method, first):
    """Exact sums of float64 are integers that no float holds."""
    data = np.random.default_rng(1).uniform(1e307, 1e308, (64, 130))
    data[::2, 0 if first else 129], data[1::2, 0 if first else 129] = 1.7e308, -1.7e308
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    tree = minimum_spanning_tree(store, weight="absdiff", method=method, verify=True)
    assert tree.total_weight == np.inf


@pytest.mark.parametrize(
    "data", [np.zeros((0, 3)), np.zeros(5), np.zeros((2, 2), complex), [[1, 2], [3]], [1], None]
)
def test_what_is_no_raster(data):
    with pytest.raises(InputError):
        minimum_spanning_tree(data)


def test_a_mask_is_not_overlooked():
    masked = np.ma.masked_less(np.random.default_rng(2).integers(0, 9, (20, 30)), 3)
    found = minimum_spanning_tree(masked)
    plain = minimum_spanning_tree(masked.filled(-1), nodata=-1)
    assert np.array_equal(found.edges(), plain.edges())
    assert (found.edge_count, found.components) == (plain.edge_count, plain.components)


def test_verify_passes_and_catches_a_wrong_forest(tmp_path, monkeypatch):
    data = np.random.default_rng(4).integers(0, 9, (150, 170)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    report = minimum_spanning_tree(store, verify=True).report
    assert report.result["verified_edges"] == len(reference.edges(data, "max"))
    assert "verify" in report.seconds
    again = minimum_spanning_tree(store, verify=True, resume=True).report
    assert again.result["verified_edges"] == report.result["verified_edges"]
    minimum_spanning_tree(data, verify=True)
    # A forest without the edges above the blocks does not span.
    monkeypatch.setattr(levels.Patches, "by_block", lambda self: iter(()))
    with pytest.raises(TerrainError, match="mst"):
        minimum_spanning_tree(store, weight="absdiff", verify=True, overwrite=True)
    with pytest.raises(TerrainError):
        minimum_spanning_tree(data, verify=True, block_size=64)
    kept = TileStore.open(store).layer("mst").info["result"]
    assert kept["total_weight"] == report.result["total_weight"]


@only_cpu
@settings(max_examples=examples(20))
@given(
    raster=rasters(st.sampled_from(["<f8", "<i8", "<u8"]).map(np.dtype), shapes(150, 3000)).filter(
        has_no_largest
    ),
    connectivity=connectivities,
)
def test_slopes_of_cells_of_64_bits(raster, connectivity):
    """Their keys have two words; tiles and GPUs have no such keys."""
    data, nodata = raster.cells, raster.nodata
    how = {"connectivity": connectivity, "nodata": nodata, "block_size": 64, "verify": True}
    tree = minimum_spanning_tree(data, weight="flow", **how)
    check(tree, tree._forward, data, nodata, "flow", connectivity)
    assert tree.report.settings["backend"] == "cpu"


@every_method
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_slopes_on_the_ellipsoid(tmp_path, no_fsync, backend, method, dtype):
    """Steps towards E shrink to a third from the first row to the last."""
    crs = CRS.from_epsg(4326).to_wkt()
    grid = GridSpec(150, 130, (0.2, 0, 0, 0, -0.5, 75), crs, "")
    data = np.random.default_rng(1).integers(0, 5, grid.shape).astype(dtype)
    store = tmp_path / "s.zarr"
    with create_layer(store, "elevation", grid, data.dtype, block_size=64) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()
    minimum_spanning_tree(store, weight="flow", method=method, verify=True)
    expected, *_ = reference.kruskal(data, "flow", lengths=step_lengths(grid))
    found = TileStore.open(store).layer("mst").read_window(*grid.window)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, reference.kruskal(data, "flow")[0])
    low = reference.border(np.ones(grid.shape, bool))
    tree = reference.rooted(data, "flow", [], lengths=step_lengths(grid), low=low)
    _, codes = reference.drained(grid.shape, *tree, np.ones(grid.rows, int))
    directions = accumulate(store, directions="codes", verify=True).directions
    assert np.array_equal(directions.read_window(*grid.window), codes)
