"""Hydrology on a GPU: the same bits as on the CPU. Without a GPU, its kernels are emulated."""

from __future__ import annotations

import json
import os
import shutil

import emulation
import numpy as np
import pytest
import reference
from contract import make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SAMPLE
from strategies import rasters, shapes
from test_flow import acyclic_codes, store_of_codes

from terrain_gpu import (
    TileStore,
    convert_dataset,
    fill,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Placement, find_gpu
from terrain_gpu.engine.run import run as run_operation
from terrain_gpu.errors import InputError, PlanError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import area_units
from terrain_gpu.hydrology.along_flow import gpu as flow_gpu
from terrain_gpu.hydrology.fill.operation import PlainFill
from terrain_gpu.hydrology.flow_direction import gpu as directions_gpu

types = st.sampled_from(["<i2", "<f4", "<u4"]).map(np.dtype)


@pytest.fixture(scope="module", autouse=True)
def a_gpu(kernels):
    """A GPU, or its emulation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        emulation.forget()
        if device.why_not() is not None:
            if shutil.which("g++") is None:
                pytest.skip("neither a GPU nor a compiler to emulate one")
            emulation.use(patch, kernels)
        yield
    emulation.forget()


def make_tree(path, data, nodata, block=64, **how):
    """A store with heights and their spanning tree."""
    store = make_store(path, data, nodata, block)
    minimum_spanning_tree(store, weight="flow", backend="cpu", **how)
    return store


def chain(store, backend, outlets="low_edge", added=None, **how):
    """Directions, sums, areas and levels, and what their reports say."""
    how = {"backend": backend, "verify": backend == "cuda", "overwrite": True, **how}
    codes = flow_direction(store, outlets, add_outlets=added, **how)
    runs = [
        codes,
        flow_accumulation(store, exclude_self=True, **how),
        flow_accumulation(store, areas=True, into="areas", **how),
        fill(store, **how),
    ]
    assert {run.report.settings["backend"] for run in runs} == {backend}
    layers = [whole(layer) for run in runs for layer in run.layers.values()]
    return layers, codes.found, codes.report.valid_cells


@st.composite
def problems(draw):
    """A raster, and outlets by name or some of its cells, and cells to add to the former."""
    raster = draw(rasters(types, shapes(200, 9000)))
    good = np.argwhere(reference.vertices(raster.cells, raster.nodata))
    name = draw(st.sampled_from(["low_edge", "low_border", "edge", "border", "given"]))
    some = draw(st.lists(st.integers(0, 10**6), min_size=name == "given", max_size=9))
    cells = sorted({tuple(good[k % len(good)].tolist()) for k in some}) if len(good) else []
    if name == "given":
        return raster, cells or "edge", None
    return raster, name, cells or None


@settings(max_examples=examples(25))
@given(problem=problems(), connectivity=st.sampled_from([8, 4]), block=st.sampled_from([64, 128]))
def test_as_the_cpu(folders, problem, connectivity, block):
    raster, *outlets = problem
    with folders() as folder:
        store = make_tree(
            folder / "s.zarr", raster.cells, raster.nodata, block, connectivity=connectivity
        )
        cpu, gpu = (chain(store, backend, *outlets) for backend in ("cpu", "cuda"))
        assert all(map(same, cpu[0], gpu[0]))
        assert cpu[1:] == gpu[1:]


@pytest.mark.parametrize("kind", ["flat", "ties", "noise", "terrain", "checks", "comb"])
@pytest.mark.parametrize("shape", [(201, 130), (1, 500), (300, 1)])
def test_kinds_of_terrain(tmp_path, kind, shape):
    rng = np.random.default_rng(1)
    row, col = np.indices(shape)
    data = {
        "flat": np.full(shape, 5),
        "ties": rng.integers(0, 3, shape),
        "noise": rng.random(shape) * 120,
        "terrain": np.cumsum(rng.normal(size=shape), axis=0).cumsum(axis=1) / 9,
        "checks": (row + col) % 2,
        "comb": np.where((col % 4 == 2) & (row != col // 4 % 2 * (shape[0] - 1)), 9, 1),
    }[kind].astype(np.float32)
    data[shape[0] // 3 : shape[0] // 3 + 9, shape[1] // 3 : shape[1] // 3 + 9] = np.nan
    store = make_tree(tmp_path / "s.zarr", data, None, 128)
    for outlets in ("low_edge", [(0, 0)]):
        cpu, gpu = (chain(store, backend, outlets) for backend in ("cpu", "cuda"))
        assert all(map(same, cpu[0], gpu[0]))
        assert cpu[1:] == gpu[1:]


def test_the_sample(tmp_path):
    convert_dataset([SAMPLE], tmp_path / "s.zarr", block_size=256)
    minimum_spanning_tree(tmp_path / "s.zarr", weight="flow", backend="cpu")
    cpu, gpu = (chain(tmp_path / "s.zarr", backend) for backend in ("cpu", "cuda"))
    assert all(map(same, cpu[0], gpu[0]))
    assert cpu[1:] == gpu[1:]


@pytest.mark.parametrize("compress", [None, "blosc-lz4"])
def test_the_same_files(tmp_path, compress):
    data = np.random.default_rng(3).integers(0, 50, (300, 200)).astype(np.int16)
    data[:130, :130] = -1
    files = []
    for backend in ("cpu", "cuda"):
        store = make_tree(tmp_path / backend, data, -1, compress=compress)
        chain(store, backend, verify=False, compress=compress)
        made = {p.relative_to(store): p.read_bytes() for p in store.rglob("c/*/*")}
        files.append(made)
    assert len(files[0]) > 50
    assert files[0] == files[1]


@settings(max_examples=examples(25))
@given(codes=acyclic_codes(), block=st.sampled_from([64, 128]), exclude=st.booleans())
def test_sums_along_given_directions(folders, codes, block, exclude):
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        how = {"directions": "codes", "exclude_self": exclude, "backend": "cuda"}
        found = flow_accumulation(store, verify=True, **how)
        sums = reference.flow_sums(codes, np.ones(len(codes), int)).astype(np.int64)
        right = np.where(codes == 255, -1, sums - 1) if exclude else sums.astype(np.uint32)
        assert same(whole(found.layers["flow_accumulation"]), right)


def test_areas_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    grid = GridSpec(150, 90, (0.1, 0, 7, 0, -0.1, 60), CRS.from_epsg(4326).to_wkt(), "")
    codes = np.full((150, 90), 4, np.uint8)
    codes[:, 40:] = 16
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=grid)
    units, unit = area_units(grid)
    sums = reference.flow_sums(codes, units).astype(np.int64)
    found = flow_accumulation(store, directions="codes", areas=True, backend="cuda")
    assert same(whole(found.layers["flow_accumulation"]), sums * unit)


def test_slopes_on_the_ellipsoid(tmp_path):
    """Lengths differ from row to row."""
    from rasterio.crs import CRS

    from terrain_gpu import create_layer

    data = np.random.default_rng(2).integers(0, 9, (150, 90)).astype(np.int16)
    grid = GridSpec(150, 90, (0.1, 0, 7, 0, -0.1, 85), CRS.from_epsg(4326).to_wkt(), "")
    with create_layer(tmp_path / "s.zarr", "elevation", grid, "int16", block_size=64) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
        target.commit()
    minimum_spanning_tree(tmp_path / "s.zarr", weight="flow", backend="cpu")
    cpu, gpu = (chain(tmp_path / "s.zarr", backend) for backend in ("cpu", "cuda"))
    assert all(map(same, cpu[0], gpu[0]))


def test_another_nodata_value(tmp_path):
    for nodata in (247, 0):
        codes = np.full((70, 80), 1, np.uint8)
        codes[5, 70] = codes[6, 71] = nodata
        codes[9, 70] = 255  # an inland sink
        store = store_of_codes(tmp_path / f"{nodata}.zarr", codes, nodata=nodata)
        found = flow_accumulation(store, directions="codes", verify=True, backend="cuda")
        codes = np.where(codes == nodata, 255, codes * (codes != 255)).astype(np.uint8)
        right = reference.flow_sums(codes, np.ones(70, int)).astype(np.uint32)
        assert same(whole(found.layers["flow_accumulation"]), right)


def test_a_way_through_all_blocks(tmp_path):
    rows, cols = 139, 200
    codes = np.full((rows, cols), 1, np.uint8)
    codes[1::2] = 16
    codes[::2, -1] = codes[1::2, 0] = 4
    store = store_of_codes(tmp_path / "s.zarr", codes)
    found = flow_accumulation(store, directions="codes", backend="cuda")
    assert whole(found.layers["flow_accumulation"]).max() == rows * cols


@pytest.mark.parametrize(
    "ring",
    [
        [(10, 10, 1), (10, 11, 4), (11, 11, 16), (11, 10, 64)],
        [(63, 63, 1), (63, 64, 4), (64, 64, 16), (64, 63, 64)],
    ],
)
def test_circles_are_refused(tmp_path, ring):
    codes = np.full((130, 140), 1, np.uint8)
    for row, col, code in ring:
        codes[row, col] = code
    store = store_of_codes(tmp_path / "s.zarr", codes)
    row, col, _ = ring[0]
    told = f"row {row}, column {col}: directions form a loop"
    with pytest.raises(StoreError, match=told):
        flow_accumulation(store, directions="codes", backend="cuda")
    assert TileStore.open(store).layers == ["codes"]


def test_levels_along_a_circle_are_refused(tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (100, 200)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)
    flow_direction(store, backend="cpu")
    codes = whole(TileStore.open(store).layer("flow_direction"))
    codes[70, 70], codes[70, 71] = 1, 16
    store_of_codes(store, codes, grid=TileStore.open(store).grid, name="round")
    operation = PlainFill(str(store), directions="round")
    place = Placement(find_gpu("cuda", 0, None, None, 64), lambda *told: None)
    with pytest.raises(StoreError, match="row 70, column 70: directions form a loop"):
        run_operation(operation, place=place)


def test_what_is_no_direction_is_refused(tmp_path):
    codes = np.zeros((70, 80), np.uint8)
    codes[65, 3] = 3
    store = store_of_codes(tmp_path / "s.zarr", codes)
    with pytest.raises(StoreError, match=r"codes: row 65, column 3: 3 is not a D8 code \(E 1, "):
        flow_accumulation(store, directions="codes", backend="cuda")


def test_edges_of_other_cells_are_refused(tmp_path, monkeypatch):
    from terrain_gpu.store import Layer

    data = np.random.default_rng(3).integers(0, 50, (100, 200)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)
    read = Layer.read_tiles
    for change in (lambda edges: edges | 8, lambda edges: edges & 14, lambda edges: edges | 32):

        def changed(layer, i, j, out, change=change):
            read(layer, i, j, out)
            if layer.name == "mst":
                out[...] = change(out)

        monkeypatch.setattr(Layer, "read_tiles", changed)
        with pytest.raises(StoreError, match="mst: not a forest of these cells; compute it again"):
            flow_direction(store, backend="cuda")


def test_resumed_by_the_other_backend(tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (300, 200)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)
    right = chain(store, "cpu")[0]
    names = ("flow_direction", "flow_accumulation", "filled")
    runs = flow_direction, flow_accumulation, fill
    for first, then in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
        for name, run, cells in zip(names, runs, (right[0], None, right[3]), strict=True):
            seen = 0

            def stop(cells, total):
                nonlocal seen
                seen += cells
                if seen > total * 0.8:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                run(store, backend=first, overwrite=True, progress=stop)
            found = run(store, backend=then, overwrite=True, resume=True)
            assert found.report.result["blocks_resumed"] > 0
            if cells is not None:
                assert same(whole(found.layers[name]), cells)


def test_progress_counts_to_its_total(tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (150, 170)).astype(np.int16)
    data[70:75, 60:70] = -1
    store = make_tree(tmp_path / "s.zarr", data, -1)
    for run in (flow_direction, flow_accumulation, fill):
        seen = [0, 0]

        def told(cells, total, seen=seen):
            seen[0] += cells
            seen[1] = total

        run(store, backend="cuda", progress=told, verify=True)
        assert seen[0] == seen[1] > 0


def test_what_does_not_fit(tmp_path, caplog):
    caplog.set_level("INFO", logger="terrain_gpu")
    data = np.random.default_rng(3).integers(0, 50, (150, 170)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)
    for run in (flow_direction, flow_accumulation, fill):
        with pytest.raises(PlanError, match=r"--memory-limit 981MB and --gpu-memory-limit \d+MB a"):
            run(store, backend="cuda", gpu_memory_limit=10**8)
        found = run(store, gpu_memory_limit=10**8)
        assert found.report.settings["backend"] == "cpu"
        assert "on the CPU: flow-direction of 150 x 170 cells in blocks of 64 needs" in caplog.text


def test_a_gpu_that_runs_out_of_memory(tmp_path, monkeypatch, caplog):
    def run_out(*given):
        raise device.OutOfGpuMemory("the GPU has no memory left; use --backend cpu")

    monkeypatch.setattr(directions_gpu, "_root", run_out)
    monkeypatch.setattr(flow_gpu, "_read_codes", run_out)
    data = np.random.default_rng(3).integers(0, 50, (150, 170)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)
    for run in (flow_direction, flow_accumulation, fill):
        with pytest.raises(PlanError, match="no memory left"):
            run(store, backend="cuda")
        seen = [0, 0]

        def told(cells, total, seen=seen):
            seen[0] += cells
            seen[1] = total

        found = run(store, progress=told, verify=True)
        assert seen[0] == seen[1]
        assert found.report.settings["backend"] == "cpu"
    assert caplog.text.count("on the CPU from now on: the GPU has no memory left") == 3


def test_what_runs_on_the_cpu_only(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.zeros((70, 80), np.int16), None, 64)
    for run, asked in (
        (flow_direction, {"flats": "gradient"}),
        (flow_direction, {"depressions": "fill"}),
        (fill, {"epsilon": True}),
        (flow_accumulation, {"method": "mfd"}),
        (flow_accumulation, {"weights": "elevation"}),
    ):
        with pytest.raises(InputError, match=r"backend cuda: .* runs? on the CPU only; use"):
            run(store, backend="cuda", **asked)


def test_the_commands(tmp_path, capfd):
    """The tree that they need is computed on the CPU here: the emulation cannot."""
    data = np.random.default_rng(3).integers(0, 50, (150, 170)).astype(np.int16)
    store = make_tree(tmp_path / "s.zarr", data, None)

    def call(words):
        words = words.replace("s.zarr", str(store)).split()
        return options._guarded(lambda: group.main(words, standalone_mode=False))

    for words in ("flow-direction s.zarr", "flow-accumulation s.zarr --areas", "fill s.zarr"):
        report = tmp_path / "report.json"
        assert call(f"{words} --backend cuda --gpu-memory-limit 2GB --json {report}") == 0
        assert json.loads(report.read_text())["settings"]["backend"] == "cuda"
    for words in (
        "flow-direction s.zarr --flats gradient",
        "flow-accumulation s.zarr --method mfd",
        "fill s.zarr --epsilon",
    ):
        assert call(f"{words} --backend cuda --overwrite") == 2
        assert "on the CPU only; use --backend auto or cpu" in capfd.readouterr().err
