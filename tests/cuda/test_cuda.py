"""The choice of the backend, and kernels compiled for real GPUs: neither needs one."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
from test_mst import make_store

from terrain_gpu import TileStore, minimum_spanning_tree, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import NoGpu, choose
from terrain_gpu.cuda.device import OPTIONS, defines, source, why_not
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid.neighbours import COL_STEP, COL_STEP_16, EDGE_OF, ROW_STEP, ROW_STEP_16
from terrain_gpu.hydrology.along_flow import gpu as flow_gpu
from terrain_gpu.hydrology.flow_direction import gpu as directions_gpu
from terrain_gpu.paths.proof import gpu as proof_gpu
from terrain_gpu.paths.relax.gpu import solve as paths_gpu
from terrain_gpu.paths.relax.gpu import variants as paths_variants
from terrain_gpu.paths.relax.gpu.problem import Problem
from terrain_gpu.paths.relax.relaxation import Overflow
from terrain_gpu.spanning_tree.gpu import plan as mst_gpu

TARGETS = {"compute_75": ["sm_75", "sm_80", "sm_86", "sm_90"], "compute_100": ["sm_100"]}
"""Real GPUs that kernels are compiled for, from the code of the oldest and of the newest."""


class CudaError(RuntimeError):
    pass


def fake_cupy(*, count=1, error=None, capability="90", works=True):
    """A stand-in for CuPy as far as `why_not` looks."""

    def device_count():
        if error:
            raise CudaError(error)
        return count

    class Device:
        def __init__(self, number=0):
            self.id = number

        compute_capability = capability

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

    def compile_using_nvrtc(code, options, capability):
        assert "probe" in code
        assert "--ftz=false" in options
        if not works:
            raise CudaError("nvrtc: error: cannot open libnvrtc\nmore lines")
        return b"cubin", None

    class RawModule:
        def __init__(self, path):
            assert Path(path).read_bytes() == b"cubin"

        def get_function(self, name):
            return name

    compiler = types.SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc)
    runtime = types.SimpleNamespace(getDeviceCount=device_count, CUDARuntimeError=CudaError)
    nvrtc = types.SimpleNamespace(getVersion=lambda: (13, 0))
    cuda = types.SimpleNamespace(runtime=runtime, Device=Device, compiler=compiler, nvrtc=nvrtc)
    return types.SimpleNamespace(cuda=cuda, RawModule=RawModule, __version__="14")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path, request):
    """Nothing remembered from, or for, other tests."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    why_not.cache_clear()
    device._module.cache_clear()
    device._announce.cache_clear()
    yield
    why_not.cache_clear()
    device._module.cache_clear()
    device._announce.cache_clear()


@pytest.mark.parametrize(
    ("cupy", "number", "reason"),
    [
        (None, 0, "CuPy is not installed (pip install 'terrain_gpu[cuda13]' or [cuda12])"),
        (fake_cupy(error="cudaErrorInsufficientDriver: too old"), 0, "one too old for this CuPy"),
        (fake_cupy(error="cudaErrorNoDevice: no device"), 0, "no GPU (cudaErrorNoDevice"),
        (fake_cupy(count=2), 2, "device 2 does not exist, there are 2; choose another with --dev"),
        (
            fake_cupy(capability="61"),
            0,
            "device 0 has compute capability 6.1; at least 7.5 is needed",
        ),
        (fake_cupy(works=False), 0, "device 0 does not work (nvrtc: error: cannot open libnvrtc)"),
    ],
)
def test_a_gpu_that_does_not_work(monkeypatch, cupy, number, reason):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    backend, why = choose("auto", number)
    assert backend == "cpu"
    assert reason in why
    assert "\n" not in why
    with pytest.raises(NoGpu) as error:
        choose("cuda", number)
    assert str(error.value) == f"backend cuda: {why}; or use --backend cpu"
    assert error.value.exit_code == 2
    assert choose("cpu", number) == ("cpu", None)


def test_a_gpu_that_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    assert choose("auto") == choose("cuda") == ("cuda", None)


def test_only_compiling_is_told_and_done_once(monkeypatch, caplog, tmp_path):
    caplog.set_level("INFO", logger="terrain_gpu")
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    told = "compiling kernels for the GPU; this happens once"
    for damaged, times in ((False, 1), (False, 1), (True, 2)):
        why_not.cache_clear()
        device._module.cache_clear()
        device._announce.cache_clear()
        if damaged:
            (kept,) = (tmp_path / "cache").iterdir()
            kept.write_bytes(b"cut")
        assert choose("cuda") == ("cuda", None)
        assert caplog.messages == [told] * times


@pytest.mark.parametrize("trouble", ["full", "no home", "unreadable"])
def test_kernels_that_cannot_be_kept(monkeypatch, tmp_path, trouble):
    """They are compiled again, elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())
    write_bytes, folder = Path.write_bytes, str(tmp_path / "cache")

    def refuse(path, data):
        if str(path).startswith(folder):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return write_bytes(path, data)

    if trouble == "full":
        monkeypatch.setattr(Path, "write_bytes", refuse)
    elif trouble == "no home":
        monkeypatch.delenv("CUPY_CACHE_DIR")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without an account
    else:
        assert choose("cuda") == ("cuda", None)
        (kept,) = Path(folder).iterdir()
        kept.unlink()
        kept.mkdir()
        why_not.cache_clear()
        device._module.cache_clear()
    assert choose("cuda") == ("cuda", None)


def test_cuda_is_not_loaded_where_there_is_no_room_for_it(monkeypatch, caplog, tmp_path):
    caplog.set_level("INFO", logger="terrain_gpu")
    monkeypatch.setattr(device, "why_not", lambda number=0: pytest.fail("loaded"))
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    for found in (
        minimum_spanning_tree(store, memory_limit=600_000_000),
        shortest_paths(store, [(0, 0)], memory_limit=600_000_000),
    ):
        assert found.report.settings["backend"] == "cpu"
    assert caplog.text.count("on the CPU: a memory limit of 600 MB is too small for CUDA") == 2
    monkeypatch.setattr(device, "why_not", lambda number=0: "no GPU")
    with pytest.raises(NoGpu):
        minimum_spanning_tree(store, memory_limit=600_000_000, backend="cuda", overwrite=True)


def test_what_does_not_fit_the_gpu_is_left_to_the_cpu(monkeypatch, caplog, tmp_path):
    caplog.set_level("INFO", logger="terrain_gpu")
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: 10**8)
    monkeypatch.setattr(mst_gpu, "shared_memory", lambda number: 232_448)
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    store = make_store(tmp_path / "s.zarr", data, None, 1024)
    found = minimum_spanning_tree(store, memory_limit=2 * 10**9)
    assert found.report.settings["backend"] == "cpu"
    needs = r"on the CPU: the spanning tree .*--memory-limit 989MB and --gpu-memory-limit \d+MB at"
    assert re.search(needs, caplog.text)
    # CUDA is loaded by now, and counts.
    assert found.report.settings["plan"]["memory_limit"] == 1_300_000_000
    with pytest.raises(PlanError, match="--gpu-memory-limit"):
        minimum_spanning_tree(store, backend="cuda", overwrite=True)


def test_cells_too_large_for_shared_memory_are_left_to_the_cpu(monkeypatch, caplog):
    caplog.set_level("INFO", logger="terrain_gpu")
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: 10**10)
    monkeypatch.setattr(mst_gpu, "shared_memory", lambda number: 65_536)
    data = np.eye(5)
    assert minimum_spanning_tree(data).report.settings["backend"] == "cpu"
    assert "on the CPU: cells of float64 need 78904 bytes of shared memory" in caplog.text
    with pytest.raises(PlanError, match="this GPU has 65536; use --backend cpu"):
        minimum_spanning_tree(data, backend="cuda")


def test_an_overflow_keeps_nothing_of_the_first_run(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: 10**9)
    monkeypatch.setattr(Problem, "plan", lambda self: (10**9, (1, 1)))
    made = []

    class Held:
        pass

    def solve(problem, *how):
        assert not any(held() for held in made)
        held = Held()
        made.append(weakref.ref(held))
        raise Overflow if problem.ground.dtype == np.uint32 else PlanError("as far as needed")

    monkeypatch.setattr(paths_gpu, "solve", solve)
    data = np.arange(12, dtype=np.int16).reshape(3, 4)
    for heights in (data, make_store(tmp_path / "s.zarr", data, None, 64)):
        with pytest.raises(PlanError, match="as far"):
            shortest_paths(heights, [(0, 0)], backend="cuda")
    assert len(made) == 4


def test_programs_load_cupy_only_to_use_it(tmp_path):
    make_store(tmp_path / "s.zarr", np.zeros((3, 4), np.uint8), None, 64)
    (tmp_path / "cupy.py").write_text('raise RuntimeError("loaded")')
    run = "import sys, terrain_gpu.cli.main as m; sys.argv[0] = 'terrain-gpu'; m.main()"
    for arguments, wanted in (
        ("info s.zarr", ""),
        ("compute-mst s.zarr --backend cpu", ""),
        ("compute-mst s.zarr --backend cuda --overwrite", "CuPy cannot be imported (loaded)"),
    ):
        words = [sys.executable, "-c", run, *arguments.split()]
        search = os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])))
        environment = os.environ | {"PYTHONPATH": search}
        how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run(words, check=False, **how)
        assert done.returncode == 2 * bool(wanted)
        assert wanted in done.stderr


def test_unknown_backend():
    with pytest.raises(InputError, match="backend 'tpu' is not known; use one of auto, cpu, cuda"):
        choose("tpu")


def test_the_programs_say_why(monkeypatch, tmp_path, capfd, caplog):
    monkeypatch.setitem(sys.modules, "cupy", None)
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    make_store(tmp_path / "s.zarr", data, None, 64)

    def call(*more):
        words = ["compute-mst", str(tmp_path / "s.zarr"), *more]
        return options._guarded(lambda: group.main(words, standalone_mode=False))

    assert call("--backend", "cuda") == 2
    assert "Error: backend cuda: CuPy is not installed (pip install" in capfd.readouterr().err
    assert call("-v") == 0
    assert "on the CPU: CuPy is not installed (pip" in caplog.text
    assert TileStore.open(tmp_path / "s.zarr").layer("mst").info["result"]["edges"] == 11


# -- kernels ---------------------------------------------------------------------------------------

VARIANTS = [
    ("probe", {}),
    *(("mst", macros) for macros in mst_gpu.variants()),
    *paths_variants.variants(),
    *(("proof", macros) for macros in proof_gpu.variants()),
    *(("directions", macros) for macros in directions_gpu.variants()),
    *(("flow", macros) for macros in flow_gpu.variants()),
    *(("gaps", {"CELL": name}) for name in mst_gpu.CELL_TYPES.values()),
]


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def compile_for_real_gpus(folder, name, macros):
    """Down to what GPUs run."""
    targets = [f"-gencode=arch={a},code=[{','.join(real)}]" for a, real in TARGETS.items()]
    run_nvcc(folder / f"{name}.cu", source(name), "-fatbin", *targets, *defines(macros))


def compile_all(folder, name, variants):
    """Every variant, as namespaces of one file: CUDA's headers take longer than most.

    Nothing is optimised; that is what takes long.
    """
    text = source(name).replace('extern "C"', "")
    own = re.findall(r"^ *# *define (\w+)", text, re.M)
    lines = []
    for k, macros in enumerate(variants):
        lines += [f"#define {d[2:].replace('=', ' ', 1)}" for d in defines(macros)]
        lines += [f"namespace variant_{k} {{", text, "}", *(f"#undef {m}" for m in (*own, *macros))]
    how = ("-ptx", "-arch=compute_75", "-Xcicc", "-O0")
    run_nvcc(folder / f"{name}.cu", "\n".join(lines), *how)


def run_nvcc(file, text, *options):
    file.write_text(text)
    words = ["nvcc", "-o", file.with_suffix(".out"), *OPTIONS, *options, file]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


NAMES = sorted({name for name, _ in VARIANTS})


@needs_nvcc
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile(tmp_path, name):
    compile_all(tmp_path, name, [macros for other, macros in VARIANTS if other == name])


@needs_nvcc
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile_for_real_gpus(tmp_path, name):
    """One variant of each, which has the same intrinsics as the others."""
    macros = next(macros for other, macros in VARIANTS if other == name)
    compile_for_real_gpus(tmp_path, name, macros)


@needs_nvcc
@pytest.mark.parametrize("name", ["paths", "fields"])
def test_kernels_of_16_neighbours_compile_for_real_gpus(tmp_path, name):
    macros = next(how for other, how in VARIANTS if other == name and how["KNIGHTS"])
    compile_for_real_gpus(tmp_path, name, macros)


NEIGHBOURS = {
    "row_step": ROW_STEP,
    "col_step": COL_STEP,
    "edge_of": EDGE_OF,
    "row_step_16": ROW_STEP_16,
    "col_step_16": COL_STEP_16,
}


@pytest.mark.parametrize("name", ["paths", "fields", "index", "proof", "classic", "flow"])
def test_neighbours_are_those_of_the_grid(name):
    text = source(name)
    bodies = dict(re.findall(r"constexpr int (\w+)\(int k\) { return (.*); }", text))
    assert set(bodies) == set(NEIGHBOURS)
    for word, table in NEIGHBOURS.items():
        body = re.sub(r"u(ll)? ", " ", bodies[word]).replace("(int)", "")
        assert [eval(body, {"k": k}) for k in range(len(table))] == table.tolist()


@needs_nvcc
def test_the_compiler_reads_neighbours_so(tmp_path):
    lines = [
        f"static_assert({word}({k}) == {value});"
        for word, table in NEIGHBOURS.items()
        for k, value in enumerate(table.tolist())
    ]
    text = "\n".join([device._neighbours(), *lines])
    run_nvcc(tmp_path / "neighbours.cu", text, "-ptx", "-arch=compute_75")


def test_headers_are_pasted():
    text = source("mst")
    assert "#include" not in text
    assert "struct Region" in text
