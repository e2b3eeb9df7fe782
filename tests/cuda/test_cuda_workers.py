"""Trees on GPUs of the workers of a cluster: real ones where there are two, else a stand-in.

See also `test_cuda_workers_paths`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from bucket import files
from cluster import kill_a_worker
from contract import Stop, make_store, stop_at
from distributed import WorkerPlugin
from effort import examples
from gpu_workers import StandIn, workers_with_gpus
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import forked, spawn
from strategies import rasters, shapes
from test_mst import connectivities, has_no_largest, weights

from terrain_gpu import TileStore, minimum_spanning_tree
from terrain_gpu.cuda import device
from terrain_gpu.cuda.device import OutOfGpuMemory
from terrain_gpu.engine import connection
from terrain_gpu.errors import CellError, InputError, PlanError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.spanning_tree import operation as problem
from terrain_gpu.spanning_tree.gpu import plan, remote
from terrain_gpu.spanning_tree.weights import weights_of

pytestmark = pytest.mark.usefixtures("no_fsync")


@pytest.fixture(scope="module", params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def kind(request):
    """Whether GPUs are real, or a stand-in where there are none."""
    if request.param == "stand-in" and device.why_not() is None:
        pytest.skip("there are real ones")
    return request.param


@pytest.fixture(scope="module")
def gpus(kind, kernels):
    """A client of two workers with a GPU each."""
    with workers_with_gpus(2, kernels) as client:
        yield client


@pytest.fixture(params=[64, 128, 4096])
def side(request, monkeypatch):
    monkeypatch.setattr(plan, "MOST_SIDE", request.param)
    return request.param


def heights(shape=(450, 520), dtype=np.int16):
    found = np.random.default_rng(5).integers(0, 90, shape).astype(dtype)
    found[100:140, 30:200] = 7
    return found


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "s.zarr", heights(), 7, 64)


def check(store, found):
    """The same files as on the CPU of one process."""
    layer, own = found.layer, files(store / "mst")
    assert not (store / ".incomplete").exists()
    expected = minimum_spanning_tree(store, backend="cpu", overwrite=True, **asked(layer))
    assert files(store / "mst") == own
    assert found.total_weight == expected.total_weight


def asked(layer):
    recorded = layer.info["settings"]
    return {name: recorded[name] for name in ("weight", "connectivity")}


def test_the_same_bytes(gpus, store, side):
    for weight in weights_of(np.dtype(np.int16)):
        found = minimum_spanning_tree(
            store, client=gpus, backend="cuda", weight=weight, overwrite=True, verify=True
        )
        told = found.report.settings
        assert told["backend"] == "cuda"
        assert told["gpu"]
        assert told["plan"]["unit_rows"] == min(side, 128)  # eight regions for each, if possible
        assert told["plan"]["worker_memory"] > told["plan"]["memory"] > 0
        assert told["cluster"]["workers"] == 2
        assert found.report.result["verified_on"] == "cpu"
        check(store, found)


@settings(max_examples=examples(8))
@given(
    raster=rasters(shape=shapes(200, 20_000)).filter(has_no_largest),
    weight=weights,
    connectivity=connectivities,
    most=st.sampled_from([64, 128, 4096]),
    count=st.sampled_from([1, 8]),
)
def test_any_raster(gpus, folders, raster, weight, connectivity, most, count):
    assume(weight in weights_of(raster.cells.dtype))
    how = {"weight": weight, "connectivity": connectivity}
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MOST_SIDE", most)
        patch.setattr(plan, "REGIONS_OF_A_WORKER", count)
        patch.setattr(remote, "MOST_REGIONS", count)
        store = make_store(folder / "s.zarr", raster.cells, raster.nodata, 64)
        check(store, minimum_spanning_tree(store, client=gpus, backend="cuda", **how))


def test_levels_in_tasks(gpus, tmp_path, monkeypatch):
    """Workers join regions of the first levels, as they do blocks."""
    monkeypatch.setattr(plan, "MOST_SIDE", 64)
    store = make_store(tmp_path / "s.zarr", heights((700, 900)), 7, 64)
    joined = []
    usual = problem.regions_of_a_task
    monkeypatch.setattr(
        problem, "regions_of_a_task", lambda *how: joined.append(usual(*how)) or joined[-1]
    )
    check(store, minimum_spanning_tree(store, client=gpus, backend="cuda"))
    assert joined[0] > 1


def test_auto_takes_gpus_that_are_announced(gpus, store, kernels, caplog):
    caplog.set_level(logging.INFO, "terrain_gpu")
    found = minimum_spanning_tree(store, client=gpus)
    assert found.report.settings["backend"] == "cuda"
    assert "on the GPUs of 2 workers: " in caplog.text
    check(store, found)
    caplog.clear()
    few = minimum_spanning_tree(store, client=gpus, memory_limit="900MB", overwrite=True)
    assert few.report.settings["backend"] == "cpu"
    assert "on the CPU: a memory limit of 900 MB is too small for CUDA" in caplog.text
    caplog.clear()
    with workers_with_gpus(2, kernels, announced=False) as client:
        other = minimum_spanning_tree(store, client=client, overwrite=True)
    assert other.report.settings["backend"] == "cpu"
    assert "announces no GPU (--resources GPU=1, or --backend cuda" in caplog.text
    assert (
        minimum_spanning_tree(store, client=gpus, backend="cpu", overwrite=True).report.settings[
            "backend"
        ]
        == "cpu"
    )


def test_a_worker_dies(gpus, store, monkeypatch):
    """Others do its regions again."""
    monkeypatch.setattr(plan, "MOST_SIDE", 64)
    killed = []

    def kill(cells, total):
        if not killed:
            killed.append(kill_a_worker(gpus))

    check(store, minimum_spanning_tree(store, client=gpus, backend="cuda", progress=kill))
    assert killed
    gpus.wait_for_workers(2)


def test_a_task_that_is_done_twice(gpus, store, monkeypatch):
    monkeypatch.setattr(plan, "MOST_SIDE", 64)
    usual = remote.region_tasks

    def twice(*given):
        for task in usual(*given):
            yield task
            yield task

    monkeypatch.setattr(remote, "region_tasks", twice)
    check(store, minimum_spanning_tree(store, client=gpus, backend="cuda"))


def test_a_run_that_was_stopped_goes_on(gpus, store, monkeypatch):
    """There, with other regions there, and alone."""
    monkeypatch.setattr(plan, "MOST_SIDE", 64)
    again = (
        (64, {"client": gpus, "backend": "cuda"}),
        (128, {"client": gpus, "backend": "cuda"}),
        (64, {"client": gpus, "backend": "cpu"}),
        (64, {"backend": "cpu"}),
    )
    for most, how in again:
        with pytest.raises(Stop):
            minimum_spanning_tree(
                store, client=gpus, backend="cuda", overwrite=True, progress=stop_at(0.4)
            )
        monkeypatch.setattr(plan, "MOST_SIDE", most)
        found = minimum_spanning_tree(store, resume=True, overwrite=True, **how)
        assert found.report.result["blocks_resumed"] > 0
        check(store, found)
        monkeypatch.setattr(plan, "MOST_SIDE", 64)


def run_out(*given):
    raise OutOfGpuMemory("the GPU has no memory left; choose a smaller --gpu-memory-limit")


class Full(WorkerPlugin):
    """The GPU of each worker is full."""

    name = "full"

    def setup(self, worker):
        self.usual, remote.solve_regions = remote.solve_regions, run_out

    def teardown(self, worker):
        remote.solve_regions = self.usual


def test_no_memory_is_left(gpus, store, caplog):
    gpus.register_plugin(Full())
    try:
        found = minimum_spanning_tree(store, client=gpus)
        assert found.report.settings["backend"] == "cpu"
        assert "on the CPU from now on: the GPU has no memory left" in caplog.text
        check(store, found)
        with pytest.raises(PlanError, match="no memory left; choose a smaller --gpu-memory"):
            minimum_spanning_tree(store, client=gpus, backend="cuda", overwrite=True)
    finally:
        gpus.unregister_worker_plugin("full")


def test_limits(gpus, store):
    found = minimum_spanning_tree(store, client=gpus, backend="cuda", gpu_memory_limit="600MB")
    check(store, found)
    with pytest.raises(PlanError, match=r"--gpu-memory-limit \d+MB at least"):
        minimum_spanning_tree(
            store, client=gpus, backend="cuda", gpu_memory_limit="500MB", overwrite=True
        )
    with pytest.raises(PlanError, match=r"--memory-limit \d+MB and"):
        minimum_spanning_tree(
            store, client=gpus, backend="cuda", memory_limit="700MB", overwrite=True
        )


def test_a_height_that_cannot_be(gpus, tmp_path):
    data = np.zeros((300, 300), np.int64)
    data[200, 250] = 2**63 - 1
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    with pytest.raises(CellError, match=r"elevation: row 200, column 250: .* the largest int64"):
        minimum_spanning_tree(store, client=gpus, backend="cuda")


def dask_setup(worker):
    """For workers that are started by hand and preload this module."""
    StandIn(Path(os.environ["KERNELS"])).setup(worker)


def test_workers_started_by_hand(kind, kernels, store, tmp_path):
    """As docs/how-to/cluster.md says."""
    file = tmp_path / "scheduler.json"
    with started(f"scheduler --host 127.0.0.1 --port 0 --no-dashboard --scheduler-file {file}"):
        while not (file.exists() and file.read_text()):
            time.sleep(0.02)
        address = json.loads(file.read_text())["address"]
        one = f"worker {address} --nthreads 1 --memory-limit 0 --no-dashboard --resources GPU=1"
        if kind == "stand-in":
            one += f" --preload {__file__}"
        paths = os.pathsep.join(sys.path)
        with started(one, CUDA_VISIBLE_DEVICES="0", KERNELS=str(kernels), PYTHONPATH=paths):
            report = tmp_path / "report.json"
            with connection.open_client(None, address) as client:
                client.wait_for_workers(1)
            done = spawn(f"compute-mst {store} --scheduler {address} --json {report}")
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text())["settings"]
    assert (told["backend"], told["cluster"]["workers"]) == ("cuda", 1)
    own = files(store / "mst")
    minimum_spanning_tree(store, backend="cpu", overwrite=True)
    assert files(store / "mst") == own


@contextmanager
def started(words, **environment):
    """A process of Dask."""
    kind, *more = words.split()
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{kind}", *more],
        env=os.environ | environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


# -- workers that have none ------------------------------------------------------------------------


def test_a_worker_without_a_gpu(cluster, store):
    if device.why_not() is None:
        pytest.skip("it has one")
    words = r"worker tcp://\S+: CuPy is not installed .*; start each .*; or use --backend cpu"
    with pytest.raises(InputError, match=words):
        minimum_spanning_tree(store, client=cluster, backend="cuda")
    assert "mst" not in TileStore.open(store).layers


def test_commands_without_gpus(store):
    if device.why_not() is None:
        pytest.skip("there are GPUs")
    for command, words in (
        ("compute-mst {} --workers 1 --backend cuda", "CuPy is not installed"),
        ("compute-mst {} --workers 2 --backend cuda --device 0", "--workers 2: each needs a GPU"),
        ("compute-sssp {} --source-rowcol 3,3 --workers 1 --backend cuda", "CuPy is not installed"),
        ("terrain-gpu build-index {} --workers 1 --backend cuda", "build an index on the CPU"),
        (
            "terrain-gpu build-index {} --workers 1 --method tournament",
            "only on a GPU of this process",
        ),
        ("terrain-gpu flow-direction {} --workers 1 --backend cuda", "compute this on the CPU"),
    ):
        done = forked(command.format(store))
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    done = forked(f"compute-mst {store} --workers 1 --device 0 -v")
    assert done.returncode == 0
    assert "INFO: on the CPU: worker tcp" in done.stderr
    assert "CuPy is not installed" in done.stderr


@pytest.mark.parametrize("announced", [True, False])
def test_two_workers_with_one_gpu(store, kernels, announced, caplog):
    if device.why_not() is None:
        pytest.skip("there are real ones")
    caplog.set_level(logging.INFO, "terrain_gpu")
    with workers_with_gpus(2, kernels, announced, shared=True) as client:
        with pytest.raises(InputError, match=r"worker \S+ has the same GPU as \S+; start each"):
            minimum_spanning_tree(store, client=client, backend="cuda")
        found = minimum_spanning_tree(store, client=client)
    assert found.report.settings["backend"] == "cpu"
    assert ("has the same GPU as" in caplog.text) == announced


def test_a_worker_that_joins_late_without_one(monkeypatch):
    monkeypatch.setattr(device, "why_not", lambda number=0: "no GPU")
    import distributed

    class One:
        address = "tcp://late:1"

    monkeypatch.setattr(distributed, "get_worker", One)
    with pytest.raises(PlanError, match="worker tcp://late:1: no GPU; start each worker with"):
        remote.solve_task(None, [], None)


def test_which_gpu_each_worker_sees(monkeypatch):
    def seen(*given):
        return [one["CUDA_VISIBLE_DEVICES"] for one in connection._one_gpu_each(*given)]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen(3, "all") == ["0", "1", "2"]
    assert seen(2, (3, 1)) == ["3", "1"]
    assert seen(1, 2) == ["2"]
    with pytest.raises(InputError, match=r"--workers 2: each .* names 1; start 1"):
        seen(2, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5")
    assert seen(2, "all") == ["4", "GPU-5"]
    assert seen(1, (1,)) == ["GPU-5"]
    with pytest.raises(InputError, match=r"--workers 3: each .* names 2"):
        seen(3, "all")
    with pytest.raises(InputError, match=r"--device 2 does not exist: CUDA_VISIBLE_DEVICES=4,GPU"):
        seen(1, 2)


def test_workers_are_shown_one_each(kernels):
    with workers_with_gpus(2, kernels) as client:
        shown = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        told = [w["resources"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]
    assert sorted(shown.values()) == ["0", "1"]
    assert told == [{"GPU": 1}] * 2


def test_tasks_of_regions():
    from terrain_gpu.cuda.backend import Gpu

    gpu = Gpu(0, 10**9, given=False, wanted=True, workers=("a", "b"))
    for shape, sizes in (((64, 64), [1]), ((320, 64), [1] * 5), ((640, 64), [2] * 5)):
        grid = BlockGrid(*shape, 64)
        found = list(remote.region_tasks(grid.ids(), grid.count, gpu, None, None))
        assert [len(task.regions) for task in found] == sizes
        assert [at for task in found for at in task.regions] == list(grid.ids())
        assert not found[0].gpu.workers
    grid = BlockGrid(64 * 30, 64, 64)
    found = list(remote.region_tasks(grid.ids(), grid.count, gpu, None, None))
    assert [len(task.regions) for task in found] == [4] * 7 + [2]
