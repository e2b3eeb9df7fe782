"""Several GPUs: the same bits as one, whoever takes which region.

A GPU named twice stands for two; if there are two, both are used as well.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
import strategies
import test_cuda_mst
import test_mst
from bucket import files
from cluster import at_share, drawn_share
from region_plans import in_regions
from test_cuda_paths import ALL, CASES, assert_equal, hills

from terrain_gpu import minimum_spanning_tree, shortest_paths
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.errors import CellError, InputError
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.relax.gpu import regions as paths_regions
from terrain_gpu.paths.relax.gpu.piece import Piece
from terrain_gpu.spanning_tree.gpu import plan as mst_plan
from terrain_gpu.spanning_tree.weights import weights_of

pytestmark = pytest.mark.gpu


@pytest.fixture(params=[(0, 0), (0, 0, 0, 0), (0, 1), (1, 0)], ids=str)
def devices(request, monkeypatch):
    """Runs on these GPUs."""
    need(request.param)
    use(monkeypatch, request.param)
    return request.param


def need(numbers):
    """Skip a test where one of these GPUs does not exist."""
    import cupy

    if max(numbers) >= cupy.cuda.runtime.getDeviceCount():
        pytest.skip("one GPU only")


def use(monkeypatch, numbers):
    """Make runs use these GPUs."""
    usual, (first, *others) = Gpu.of, numbers

    def several(cls, device, memory_limit, *, wanted):
        gpu = usual(first, memory_limit, wanted=wanted)
        return gpu._replace(memory=gpu.memory // len(numbers), others=tuple(others))

    monkeypatch.setattr(Gpu, "of", classmethod(several))


def both(data, sources, **how):
    cuda, cpu = (shortest_paths(data, sources, **ALL, **how, backend=b) for b in ("cuda", "cpu"))
    assert "devices" in cuda.report.settings
    assert_equal(cuda, cpu)
    return cuda.report.result


@pytest.mark.parametrize("side", [2, 5], ids=["twelve regions", "two regions"])
def test_paths(devices, monkeypatch, side):
    in_regions(monkeypatch, side)
    for cost, kind, how in CASES:
        z = hills(300, 410).astype(kind)
        barriers = np.random.default_rng(1).random(z.shape) < 0.2
        barriers[0, 0] = barriers[-1, -1] = False
        z[100:220, 60:300] = 7
        beside = {"friction": z} if cost.startswith("friction") else {}
        sources = [(0, 0), (299, 409, 2)]
        found = both(z, sources, cost=cost, barriers=barriers, block_size=64, **how, **beside)
        assert found["regions"] == {2: 12, 5: 2}[side]


@pytest.mark.parametrize("side", [1, 2, 3])
def test_flats_and_spirals(devices, monkeypatch, side):
    in_regions(monkeypatch, side)
    monkeypatch.setattr(paths_regions, "_EXCHANGE", 0)  # as often as possible
    both(np.zeros((300, 300), np.uint8), [(150, 140), (3, 3)], block_size=64)
    walls = strategies._spiral((257, 257))
    z = np.arange(257 * 257, dtype=np.float32).reshape(257, 257) % 17
    both(z, [(0, 0)], cost="surface", barriers=walls, block_size=64)


@pytest.mark.parametrize("side", [2, 3])
def test_targets_and_limits(devices, monkeypatch, side):
    from terrain_gpu import GridSpec

    in_regions(monkeypatch, side)
    z = hills(300, 300).astype(np.float32)
    targets = from_rowcol(GridSpec(*z.shape), [(200, 130), (250, 250)])
    how = {"targets": targets, "stop_at_targets": True, "cost": "tobler", "block_size": 64}
    assert 0 < both(z, [(150, 150)], **how)["reached"] < z.size
    both(z, [(150, 150)], cost="absdiff", max_cost=40, block_size=64)
    both(z, [(0, 0)], source_edge=True, block_size=64)


def test_distances_alone(devices, monkeypatch):
    z = hills(300, 410).astype(np.float32)
    z[np.random.default_rng(2).random(z.shape) < 0.1] = -9
    z[0, 0] = 1
    for side in (2, 5):
        with monkeypatch.context() as patch:
            in_regions(patch, side)
            found = shortest_paths(z, [(0, 0)], nodata=-9, block_size=64, backend="cuda")
        expected = shortest_paths(z, [(0, 0)], nodata=-9, block_size=64, backend="cpu")
        assert found.reached == expected.reached
        assert strategies.same_bits(found.distance(), expected.distance())


@pytest.mark.parametrize("side", [2, 5])
@pytest.mark.parametrize("share", [0.3, 1.2])
def test_a_stopped_run_goes_on_with_one_gpu(tmp_path, no_fsync, monkeypatch, devices, side, share):
    z = hills(300, 410).astype(np.uint16)
    z[100:220, 60:300] = 7
    store = test_mst.make_store(tmp_path / "s.zarr", z, None, 64)
    run = partial(shortest_paths, store, [(0, 0)], **ALL)
    in_regions(monkeypatch, side)
    seen = 0

    def stop(cells, total):
        nonlocal seen
        seen += cells
        if seen > share * z.size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(backend="cuda", progress=stop)
    expected = shortest_paths(z, [(0, 0)], **ALL, block_size=64, backend="cpu")
    monkeypatch.undo()
    assert_equal(run(backend="cuda", resume=True), expected)
    assert not (store / ".incomplete").exists()


def solve_and_die(store, numbers, side, share):
    """Find paths on these GPUs, and die at a share of the run."""
    os.fsync = lambda fd: None
    dead = at_share(share, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.MonkeyPatch.context() as patch:
        use(patch, numbers)
        in_regions(patch, side)
        shortest_paths(store, [(0, 0)], **ALL, backend="cuda", progress=dead)


@pytest.mark.parametrize("side", [2, 5])
@pytest.mark.parametrize(
    ("first", "then"), [((0, 0), (0,)), ((0,), (0, 0)), ((0, 1), (1,)), ((1,), (0, 1))], ids=str
)
def test_a_killed_run_goes_on_with_other_gpus(tmp_path, no_fsync, monkeypatch, first, then, side):
    """From several to one, and from one to several."""
    need(first + then)
    z = hills(300, 410).astype(np.uint16)
    z[100:220, 60:300] = 7
    store = test_mst.make_store(tmp_path / "s.zarr", z, None, 64)
    given = store, first, side, drawn_share()
    killed = get_context("spawn").Process(target=solve_and_die, args=given)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    use(monkeypatch, then)
    in_regions(monkeypatch, side)
    found = shortest_paths(store, [(0, 0)], **ALL, backend="cuda", resume=True)
    assert_equal(found, shortest_paths(z, [(0, 0)], **ALL, block_size=64, backend="cpu"))
    assert not (store / ".incomplete").exists()


def test_an_error_on_one_ends_all(devices, monkeypatch):
    in_regions(monkeypatch, 1)
    usual, calls = Piece.relax, []

    def relax(self, between):
        calls.append(self.window)
        if len(calls) == 3:
            raise ZeroDivisionError
        return usual(self, between)

    monkeypatch.setattr(Piece, "relax", relax)
    with pytest.raises(ZeroDivisionError):
        shortest_paths(hills(300, 410).astype(np.uint16), [(0, 0)], block_size=64, backend="cuda")
    z = np.ones((200, 200), np.float32)
    z[3, 3] = -1
    with pytest.raises(InputError, match=r"friction -1\.0 at row 3, column 3 is negative"):
        shortest_paths(z, [(0, 0)], cost="friction", friction=z, block_size=64, backend="cuda")


def test_distances_of_64_bits(devices, monkeypatch):
    """Found only midway: all starts again."""
    in_regions(monkeypatch, 2)
    heights = np.arange(200 * 200, dtype=np.uint32).reshape(200, 200) % 7 * 2**29
    assert both(heights, [(0, 0)], block_size=64)["regions"] == 4


def test_regions_that_are_owned_stay(devices, monkeypatch):
    """Then each is read once, and nothing is spilled."""
    in_regions(monkeypatch, 5)
    saved = []
    save = paths_regions.RegionSpill.save
    monkeypatch.setattr(
        paths_regions.RegionSpill, "save", lambda *given: saved.append(given) or save(*given)
    )
    z = hills(300, 410).astype(np.float32)
    for source in ((0, 0), (299, 409)):
        friction = {"cost": "friction", "friction": z, "block_size": 64}
        found = shortest_paths(z, [source], **friction, backend="cuda").report.result
        assert found["regions"] == 2
        assert found["blocks_read"] == 35
    assert not saved


# -- the spanning forest ---------------------------------------------------------------------------


@pytest.mark.parametrize("side", [None, 128, 256])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_trees(devices, monkeypatch, side, dtype):
    if side:
        monkeypatch.setattr(mst_plan, "MOST_SIDE", side)
    for weight in weights_of(np.dtype(dtype)):
        data = test_cuda_mst.make("terrain", dtype, (777, 333), 3)
        how = {"weight": weight, "nodata": 7, "block_size": 64}
        one, other = (minimum_spanning_tree(data, **how, backend=b) for b in ("cpu", "cuda"))
        assert np.array_equal(one._forward, other._forward)
        assert one.total_weight == other.total_weight
        assert other.report.settings["plan"]["workers"] > 1  # a region for each, if need be


def test_the_same_store(tmp_path, devices):
    data = test_cuda_mst.make("terrain", "int16", (700, 900), 3)
    found = []
    for backend in ("cpu", "cuda"):
        store = test_mst.make_store(tmp_path / backend, data, 7, 128)
        minimum_spanning_tree(store, backend=backend, verify=True)
        found.append(files(store / "mst"))
    assert found[0] == found[1]


def test_a_height_that_cannot_be(devices):
    data = np.zeros((600, 600), np.int64)
    data[500, 500] = 2**63 - 1
    with pytest.raises(CellError, match=f"row 500, column 500: {2**63 - 1}, the largest int64"):
        minimum_spanning_tree(data, weight="max", block_size=64, backend="cuda")


def test_which_gpus(tmp_path):
    """As users name them."""
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    data = np.arange(10_000, dtype=np.int16).reshape(100, 100)
    for device in ("all", tuple(range(count)), 0, [0]):
        found = minimum_spanning_tree(data, device=device, block_size=64, backend="cuda")
        several = count > 1 and not isinstance(device, int | list)
        assert ("devices" in found.report.settings) == several
    with pytest.raises(InputError, match=f"device {count} does not exist, there are {count}"):
        minimum_spanning_tree(data, device=(0, count), backend="cuda")
    assert minimum_spanning_tree(data, device=(0, count)).report.settings["backend"] == "cpu"
