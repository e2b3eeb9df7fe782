"""What is entered is left and what is held is released, even if a step fails."""

from __future__ import annotations

import os
import sys
import types
from contextlib import nullcontext

import numpy as np
import pytest

from terrain_gpu import GridSpec, OutputError, create_layer
from terrain_gpu.cuda import device
from terrain_gpu.grid import BlockGrid
from terrain_gpu.paths.relax.gpu.regions import RegionSpill
from terrain_gpu.paths.relax.gpu.solve import BlockStaging
from terrain_gpu.spanning_tree.gpu import regions as mst_gpu
from terrain_gpu.spanning_tree.proof import gpu as verify_gpu
from terrain_gpu.spanning_tree.proof.forest import verify_arrays
from terrain_gpu.store.spill import Slots


class CudaError(RuntimeError):
    pass


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for CuPy that records what is entered, left and waited for; some of it fails."""
    seen = []
    failing = set()

    def step(name):
        seen.append(name)
        if name in failing:
            raise CudaError(name)

    class Device:
        def __init__(self, number=0):
            self.id = number

        def __enter__(self):
            step("enter device")

        def __exit__(self, *error):
            step("leave device")

    class Stream:
        def __init__(self, non_blocking):
            pass

        def __enter__(self):
            step("enter stream")

        def __exit__(self, *error):
            step("leave stream")

        def synchronize(self):
            step("wait")

    found = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Device=Device, Stream=Stream, alloc_pinned_memory=bytearray),
        empty=np.empty,
    )
    monkeypatch.setitem(sys.modules, "cupy", found)
    return seen, failing


def test_a_staging_is_left_when_its_stream_fails(cupy):
    seen, failing = cupy
    staging = BlockStaging(64)
    with staging:
        seen.append("work")
    whole = ["enter device", "enter stream", "work", "wait", "leave stream", "leave device"]
    assert seen == whole
    failing.add("wait")
    for _ in range(2):  # it can be used again
        seen.clear()
        with pytest.raises(CudaError, match="wait"), staging:
            seen.append("work")
        assert seen == whole
    failing.add("leave stream")
    seen.clear()
    with pytest.raises(CudaError, match="leave stream"), staging:
        seen.append("work")
    assert seen == whole


def test_a_stream_that_cannot_be_entered_leaves_no_device_behind(cupy):
    seen, failing = cupy
    failing.add("enter stream")
    with pytest.raises(CudaError), BlockStaging(64):
        pass
    assert seen == ["enter device", "enter stream", "leave device"]


def test_an_error_inside_is_what_surfaces(cupy):
    seen, _ = cupy
    with pytest.raises(ZeroDivisionError), BlockStaging(64):
        raise ZeroDivisionError
    assert seen[-3:] == ["wait", "leave stream", "leave device"]


def test_a_solver_of_regions_gives_its_memory_back(monkeypatch):
    class Solver:
        blocks = BlockGrid(64, 64, 64)
        device, memory_limit, closed, lanes = 0, 10**9, False, []

        def slots(self, count):
            raise CudaError("no memory")

        def close(self):
            self.closed = True

    monkeypatch.setattr(mst_gpu, "memory_bounds", lambda *how: nullcontext())
    solver, plan = Solver(), types.SimpleNamespace(readers=1, buffers=2)
    source = types.SimpleNamespace(dtype=np.dtype(np.uint8))
    with pytest.raises(CudaError):
        mst_gpu.solve_regions(source, solver, None, [(0, 0)], None, plan)
    assert solver.closed


def test_a_proof_that_fails_gives_page_locked_memory_back(monkeypatch):
    given_back = []
    monkeypatch.setattr(device, "usable_memory", lambda *how: 2**40)
    monkeypatch.setattr(verify_gpu, "memory_bounds", lambda *how: nullcontext())
    monkeypatch.setattr(verify_gpu, "free_staging", lambda: given_back.append(1))
    monkeypatch.setattr(verify_gpu, "_prove", lambda *how: 1 / 0)
    data = np.ones((70, 70), np.uint8)
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    with pytest.raises(ZeroDivisionError):
        verify_arrays(data, None, data, "max", 8, backend="cuda")
    assert given_back


# -- files -----------------------------------------------------------------------------------------


def full(*_):
    raise OSError(28, os.strerror(28))


def open_files(folder):
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [
        there
        for k in links
        if os.path.exists(k) and (there := os.readlink(k)).startswith(str(folder))
    ]


def test_spills_are_closed_where_the_disk_fails(tmp_path, monkeypatch):
    spill = RegionSpill(tmp_path / "regions", BlockGrid(64, 64, 64), np.dtype(float), resume=False)
    spill.save("", (0, 0), np.zeros((64, 64)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError):
            spill.close(keep=True)
    assert not open_files(tmp_path)

    slots = Slots(tmp_path / "slots", 1, 8)
    slots.save(0, np.zeros(8, np.uint8))
    usual, closed = os.close, []

    def close(fd):
        usual(fd)
        closed.append(fd)
        if len(closed) == 1:
            full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(OSError, match="space"):
            slots.close()
    assert len(closed) == 2
    slots.close()  # nothing is closed twice


def test_a_writer_lets_go_of_its_layer_where_the_disk_fails(tmp_path, monkeypatch):
    how = tmp_path / "s.zarr", "elevation", GridSpec(64, 64), np.uint8
    writer = create_layer(*how)
    writer.write_block(0, 0, np.ones((64, 64), np.uint8))
    usual, log = os.close, writer._log

    def close(fd):
        usual(fd)
        if fd == log:
            full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(OSError, match="space"):
            writer.__exit__()
    with create_layer(*how, resume=True) as again:  # no run holds it
        assert again.done.all()
