"""The spanning forest on a GPU: the same bits as on the CPU and by Kruskal's algorithm."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_mst import check, connectivities, has_no_largest, make_store, weights

from terrain_gpu import TileStore, minimum_spanning_tree
from terrain_gpu.cells import DTYPES
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.spanning_tree.cpu.merge import merge
from terrain_gpu.spanning_tree.gpu import plan
from terrain_gpu.spanning_tree.gpu import regions as gpu
from terrain_gpu.spanning_tree.levels import MemorySpill, Solver, Totals, join_levels
from terrain_gpu.spanning_tree.weights import Weight, weights_of

pytestmark = pytest.mark.gpu

small = rasters(shape=shapes(200, 5000)).filter(has_no_largest)


@pytest.fixture(params=[64, 128, 4096])
def side(request, monkeypatch):
    """Region sides; with the small ones, regions have rims and are joined."""
    monkeypatch.setattr(plan, "MOST_SIDE", request.param)


def forest(data, **options):
    return minimum_spanning_tree(data, **options)


@settings(max_examples=examples(80))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    most=st.sampled_from([64, 128, 4096]),
)
def test_as_kruskal(raster, weight, connectivity, most):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MOST_SIDE", most)
        tree = forest(
            data,
            weight=weight,
            connectivity=connectivity,
            nodata=nodata,
            block_size=64,
            backend="cuda",
        )
    check(tree, tree._forward, data, nodata, weight, connectivity)


def make(kind, dtype, shape, seed):
    """Ties, flats, noise or terrain, with holes."""
    rng = np.random.default_rng(seed)
    if kind == "flat":
        data = np.zeros(shape)
    elif kind == "ties":
        data = rng.integers(0, 3, shape).astype(float)
    elif kind == "noise":
        data = rng.random(shape) * 120
    else:
        data = np.add.outer(
            np.cumsum(rng.normal(size=shape[0])), np.cumsum(rng.normal(size=shape[1]))
        )
    data = (data - data.min()).astype(dtype)
    data[rng.random(shape) < 0.05] = 7
    return data


@pytest.mark.parametrize(("weight", "dtype"), [(w, d.name) for d in DTYPES for w in weights_of(d)])
def test_as_the_cpu(side, dtype, weight):
    for seed, (kind, shape, connectivity) in enumerate(
        [
            ("flat", (300, 257), 8),
            ("ties", (500, 700), 8),
            ("noise", (64, 1000), 4),
            ("terrain", (777, 333), 8),
            ("noise", (513, 129), 8),
        ]
    ):
        data = make(kind, dtype, shape, seed)
        trees = [
            forest(
                data,
                weight=weight,
                connectivity=connectivity,
                nodata=7,
                block_size=64 << seed % 2,
                backend=backend,
            )
            for backend in ("cpu", "cuda")
        ]
        assert np.array_equal(trees[0]._forward, trees[1]._forward)
        for name in ("edge_count", "components", "total_weight"):
            assert getattr(trees[0], name) == getattr(trees[1], name)


# -- levels above the regions ----------------------------------------------------------------------


def on_gpu(memory_limit):
    return Gpu(0, memory_limit, given=True, wanted=True)


def both_ways(data, nodata, weight, connectivity, memory_limit):
    """Join blocks of 64 on the CPU and the GPU, level by level; return final edges per merge."""
    kind = Weight.on(GridSpec(*data.shape), weight, data.dtype)
    cpu = Solver(data.shape, 64, kind, nodata, connectivity == 8)
    blocks = BlockGrid(*data.shape, 64)
    other = gpu.GpuSolver(blocks, 64, kind, nodata, connectivity == 8, on_gpu(memory_limit))
    spill, merges = MemorySpill(), []
    for i, j in blocks.ids():
        r0, r1, c0, c1 = window = blocks.window(i, j)
        cells = data[r0:r1, c0:c1]
        spill.save(i, j, cpu.solve(window, cells, np.zeros(cells.shape, np.uint8)))

    class Both:
        weight = kind

        def merge(self, children, sums):
            other_sums = sums.copy()
            region, final = cpu.merge(children, sums)
            found, other_final = other.merge(children, other_sums)
            assert found.window == region.window
            for one, two in zip(sides_of(region), sides_of(found), strict=True):
                assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
            for one, two in zip(by_id(region), by_id(found), strict=True):
                assert one.dtype == two.dtype
                assert np.array_equal(one, two)
            assert np.array_equal(np.sort(final), np.sort(other_final))
            assert np.array_equal(sums, other_sums)
            merges.append(len(final))
            return found, other_final

    join_levels(blocks, Both(), spill, Totals(), lambda ids: None)
    return merges


def sides_of(region):
    return *region.border.cells, *region.border.valid


def by_id(region):
    """Candidates sorted by id, each with its lesser end first."""
    keys, ids, us, vs = region.candidates
    order = np.argsort(ids)
    return keys[order], ids[order], np.minimum(us, vs)[order], np.maximum(us, vs)[order]


@settings(max_examples=examples(60))
@given(raster=small, weight=weights, connectivity=connectivities)
def test_merges(raster, weight, connectivity):
    assume(weight in weights_of(raster.cells.dtype))
    both_ways(raster.cells, raster.nodata, weight, connectivity, 2**40)


@pytest.mark.parametrize("kind", ["flat", "ties", "noise", "terrain"])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64", "float32", "float64"])
def test_merges_of_three_levels(monkeypatch, kind, dtype):
    """No merge falls back to the CPU."""
    monkeypatch.setattr(gpu.frozen, "merge", None)
    monkeypatch.setattr(Solver, "merge", on_the_cpu)
    for weight in weights_of(np.dtype(dtype)):
        data = make(kind, dtype, (500, 330), 1)
        merges = both_ways(data, 7, weight, 8, 2**40)
        assert len(merges) > 10
        assert sum(merges) > 0


def on_the_cpu(solver, children, sums):
    weight = solver.weight
    return merge(children, solver.shape, weight.rule(), solver.diagonal, sums, weight.sum_mode)


@pytest.mark.parametrize("dtype", ["uint16", "float64"])
def test_a_merge_keeps_to_its_bytes(monkeypatch, dtype):
    """A merge that does not fit runs on the CPU; the planned bytes suffice."""
    data, planned, fallen = make("noise", dtype, (1024, 1024), 2), [], []
    monkeypatch.setattr(gpu, "RESERVED", 0)
    bytes_of = gpu.merge_bytes

    def note(*size):
        planned.append(bytes_of(*size))
        return planned[-1]

    monkeypatch.setattr(gpu, "merge_bytes", note)
    both_ways(data, 7, "max", 8, 2**40)
    most = max(planned)
    assert most > 5 * 10**5
    monkeypatch.setattr(gpu.frozen, "merge", lambda *given: fallen.append(1) or merge(*given))
    monkeypatch.setattr(Solver, "merge", on_the_cpu)
    both_ways(data, 7, "max", 8, most)
    assert not fallen
    both_ways(data, 7, "max", 8, most - 1)
    assert len(fallen) == planned.count(most) // 3


def test_the_same_store(tmp_path, side):
    """Both backends write the same files."""
    data = make("terrain", "int16", (700, 900), 3)
    files = []
    for backend in ("cpu", "cuda"):
        store = make_store(tmp_path / backend, data, 7, 128)
        forest(store, backend=backend)
        folder = store / "mst"
        files.append(
            {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        )
    assert files[0] == files[1]


def test_resumed_by_the_other_backend(tmp_path, monkeypatch):
    data = make("terrain", "uint16", (700, 900), 6)
    expected = forest(data, nodata=7)._forward
    for first, then in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")):
        monkeypatch.setattr(plan, "MOST_SIDE", 256)
        store = make_store(tmp_path / f"{first}-{then}", data, 7, 128)
        seen = 0

        def stop(cells, total):
            nonlocal seen
            seen += cells
            if seen > total // 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            forest(store, backend=first, progress=stop)
        tree = forest(store, backend=then, resume=True)
        assert tree.report.result["blocks_resumed"] > 0
        assert np.array_equal(tree.layer.read_window(0, 700, 0, 900), expected)


def test_resumed_with_other_regions(tmp_path, monkeypatch):
    """Small regions overwrite blocks of larger ones, which then no longer count as solved."""
    data = make("noise", "uint16", (512, 512), 7)
    expected = forest(data)._forward
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    for side, share in ((256, 0.6), (128, 0.4), (256, 2)):
        monkeypatch.setattr(plan, "MOST_SIDE", side)
        seen = 0

        def stop(cells, total, share=share):
            nonlocal seen
            seen += cells
            if seen > share * total:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            forest(store, backend="cuda", resume=True, progress=stop)
    assert np.array_equal(TileStore.open(store).layer("mst").read_window(0, 512, 0, 512), expected)


def test_limits(tmp_path):
    store = make_store(tmp_path / "s", make("terrain", "uint16", (700, 900), 6), 7, 256)
    with pytest.raises(PlanError, match=r"--gpu-memory-limit [0-9]+MB at least"):
        forest(store, backend="cuda", gpu_memory_limit=10**8)
    with pytest.raises(InputError, match="device 99 does not exist"):
        forest(store, backend="cuda", device=99)


@pytest.mark.gpu
@pytest.mark.parametrize("weight", ["max", "absdiff"])
@pytest.mark.parametrize("nodata", [None, 0])
def test_floats_below_the_normal_ones(weight, nodata):
    """1e-45 is not 0: neither as a height nor beside a nodata value of 0."""
    rng = np.random.default_rng(1)
    z = rng.choice(np.array([0, 1e-45, 3e-45, 1e-40, 1e-38, -1e-45, -0.0], np.float32), (150, 170))
    one, other = (
        minimum_spanning_tree(z, weight=weight, nodata=nodata, backend=backend, verify=True)
        for backend in ("cpu", "cuda")
    )
    assert np.array_equal(one._forward, other._forward)
    assert one.total_weight == other.total_weight
