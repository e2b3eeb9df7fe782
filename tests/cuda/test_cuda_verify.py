"""The proof of a spanning forest on a GPU: the verdicts of the CPU, word for word."""

from __future__ import annotations

import json
import re
import shutil
import threading
from contextlib import contextmanager
from functools import partial

import emulation
import numpy as np
import pytest
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_cuda import compile_all, compile_for_real_gpus, needs_nvcc
from test_cuda_mst import make
from test_mst_verify import (
    connectivities,
    edges_of,
    flipped,
    make_store,
    other_end,
    path,
    reference,
    solved,
    swaps,
    terrain,
    weights,
)

from terrain_gpu import TileStore, minimum_spanning_tree
from terrain_gpu.cells import DTYPES
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import Gpu, NoGpu
from terrain_gpu.errors import PlanError, VerificationError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.spanning_tree.proof import gpu as verify_gpu
from terrain_gpu.spanning_tree.proof.forest import verify_arrays, verify_forest
from terrain_gpu.spanning_tree.weights import weights_of

small = rasters(shape=shapes(200, 5000))
widths = st.sampled_from([2**32, 1])
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


@needs_nvcc
def test_kernels_compile(tmp_path):
    compile_all(tmp_path, "verify", verify_gpu.variants())


@needs_nvcc
def test_kernels_compile_for_real_gpus(tmp_path):
    compile_for_real_gpus(tmp_path, "verify", verify_gpu.variants()[0])


# -- on a GPU ------------------------------------------------------------------------------


def verdict(backend, *how, **more):
    """What is found, or the error."""
    try:
        found = verify_arrays(*how, **more, backend=backend)
    except VerificationError as error:
        return str(error), error.check, error.row, error.col
    assert found.pop("backend") == backend
    return found


def same_verdict(*how, narrow=2**32, strip=2**28, **more):
    """The common verdict of both backends; `narrow` and `strip` as in `verify_gpu`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_gpu, "NARROW", narrow)
        patch.setattr(verify_gpu, "STRIP", strip)
        found = verdict("cuda", *how, **more)
    assert found == verdict("cpu", *how, **more)
    return found


@pytest.mark.gpu
@settings(max_examples=examples(60))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    narrow=widths,
    strip=st.sampled_from([100, 2**28]),
    block=st.sampled_from([64, 128, 1024]),
)
def test_a_right_forest_passes(raster, weight, connectivity, narrow, strip, block):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, recorded = solved(data, nodata, weight, connectivity)
    how = data, nodata, mask, weight, connectivity
    more = {"narrow": narrow, "strip": strip, "block_size": block}
    found = same_verdict(*how, **more, expected=recorded)
    assert {key: found[key] for key in recorded} == recorded
    for key in recorded:
        wrong = {**recorded, key: recorded[key] + 1}
        if wrong[key] != recorded[key]:
            assert same_verdict(*how, **more, expected=wrong)[1] == "totals"


@pytest.mark.gpu
@settings(max_examples=examples(60))
@given(
    raster=rasters(shape=shapes(80, 2000)),
    weight=weights,
    connectivity=connectivities,
    narrow=widths,
    draw=st.data(),
)
def test_mutations(raster, weight, connectivity, narrow, draw):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, recorded = solved(data, nodata, weight, connectivity)

    def check_of(*edges):
        wrong = flipped(mask, *edges)
        how = data, nodata, wrong, weight, connectivity
        return same_verdict(*how, narrow=narrow, expected=recorded)[1]

    # Any bits: to absent cells, out of the raster, diagonal ones, and those that mean no edge.
    some = st.tuples(st.integers(0, data.size - 1), st.integers(0, 7))
    check_of(*draw.draw(st.lists(some, min_size=1, max_size=3, unique=True)))
    others = [
        (c, d)
        for _, c, d in reference.edges(data, weight, nodata, connectivity)
        if not mask.ravel()[c] >> d & 1
    ]
    assume(others)
    removed, added = draw.draw(st.sampled_from(edges_of(mask))), draw.draw(st.sampled_from(others))
    assert check_of(removed) == "spanning"
    assert check_of(added) in ("acyclic", "minimal")
    cycle = path(mask, added[0], other_end(data.shape, *added))
    assert check_of(draw.draw(st.sampled_from(cycle)), added) == "minimal"
    outside = [edge for edge in edges_of(mask) if edge not in cycle]
    if outside:
        # As many edges as before, but a cycle here and a gap there.
        check_of(draw.draw(st.sampled_from(outside)), added)


@pytest.mark.gpu
@pytest.mark.parametrize(("weight", "connectivity"), [("max", 8), ("absdiff", 4), ("flow", 8)])
@pytest.mark.parametrize("high", [1, 3])
def test_no_other_spanning_forest_passes(weight, connectivity, high):
    """Every exchange of one edge; most are for an equal one later in the order."""
    data = terrain((5, 5), high, seed=high)
    data[1, 3] = -1
    mask, recorded = solved(data, -1, weight, connectivity)
    count = 0
    for out, into in swaps(data, -1, mask, weight, connectivity):
        how = data, -1, flipped(mask, out, into), weight, connectivity
        assert same_verdict(*how, expected=recorded)[1] == "minimal"
        count += 1
    assert count


@pytest.mark.gpu
@pytest.mark.parametrize(("weight", "dtype"), [(w, d.name) for d in DTYPES for w in weights_of(d)])
def test_rasters_of_many_thread_blocks(dtype, weight):
    rng = np.random.default_rng(1)
    for seed, (kind, shape, connectivity) in enumerate(
        [
            ("flat", (301, 1257), 8),
            ("ties", (500, 701), 8),
            ("noise", (64, 2000), 4),
            ("terrain", (777, 1333), 8),
            ("noise", (100_003, 1), 8),
        ]
    ):
        data = make(kind, dtype, shape, seed)
        tree = minimum_spanning_tree(
            data, weight=weight, connectivity=connectivity, nodata=7, backend="cpu"
        )
        recorded = {
            "edges": tree.edge_count,
            "components": tree.components,
            "total_weight": tree.total_weight,
        }
        how = partial(same_verdict, data, 7, expected=recorded, narrow=2**32 if seed % 2 else 1)
        assert how(tree._forward, weight, connectivity)["edges"] == tree.edge_count
        cell = rng.choice(np.flatnonzero(tree._forward))
        bit = int(tree._forward.ravel()[cell]).bit_length() - 1
        assert how(flipped(tree._forward, (cell, bit)), weight, connectivity)[1] == "spanning"


@pytest.mark.gpu
@pytest.mark.parametrize("back", [False, True])
def test_a_chain_as_long_as_the_raster(back):
    """Uphill along a corridor, every cell picks the edge to the cell before."""
    data = np.full((201, 401), -1, np.int32)
    data[::2] = 0
    data[1::4, -1] = data[3::4, 0] = 0
    way = np.where(np.arange(201)[:, None] // 2 % 2, np.arange(401)[::-1], np.arange(401))
    order = np.lexsort((way.ravel(), np.repeat(np.arange(201), 401)))
    open_cells = order[data.ravel()[order] == 0]
    heights = np.arange(len(open_cells))
    data.ravel()[open_cells] = heights[::-1] if back else heights
    mask = minimum_spanning_tree(data, nodata=-1, connectivity=4, backend="cpu")._forward
    assert same_verdict(data, -1, mask, "max", 4)["edges"] == len(open_cells) - 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_differences_that_overflow_their_type(dtype):
    top = np.finfo(dtype).max
    data = np.array([[top, -top, 0, top, top, -top]], dtype)
    mask = np.array([[1, 1, 1, 1, 1, 0]], np.uint8)
    recorded = {"edges": 5, "components": 1, "total_weight": "Infinity"}
    assert same_verdict(data, None, mask, "absdiff", 8, expected=recorded)["edges"] == 5
    recorded["total_weight"] = float(top)
    assert same_verdict(data, None, mask, "absdiff", 8, expected=recorded)[1] == "totals"


@pytest.mark.gpu
def test_nodata_that_no_cell_can_have():
    data = terrain((20, 30)).astype(np.uint8)
    mask, _ = solved(data, None, "max", 8)
    for nodata in (-9999, 0.5, float("nan")):
        assert same_verdict(data, nodata, mask, "max", 8)["edges"] == data.size - 1


@pytest.mark.gpu
def test_memory_asked_for_is_enough(monkeypatch):
    monkeypatch.setattr(verify_gpu, "RESERVED", 10**6)
    data = make("terrain", "float32", (1500, 1701), 2)
    mask = minimum_spanning_tree(data, nodata=7, backend="cpu")._forward
    verify = partial(verify_arrays, data, 7, mask, "max", 8, backend="cuda")
    with pytest.raises(PlanError) as caught:
        verify(gpu_memory_limit=10**6)
    least = int(re.search(r"--gpu-memory-limit (\d+)MB", str(caught.value))[1])
    held = 1024**2 * (2 * 4 + 14)  # of a block, and the cells of the next
    assert held < least * 10**6 < held + 3 * 10**6
    assert verify(gpu_memory_limit=least * 10**6)["backend"] == "cuda"


@pytest.mark.gpu
def test_where_stores_are_proven(tmp_path, no_fsync, capfd, monkeypatch):
    data = make("terrain", "float32", (500, 400), 5)
    source = layers(tmp_path, data, 7)[0]
    run = partial(minimum_spanning_tree, source.path.parent, verify=True, overwrite=True)
    assert run(backend="cpu").report.result["verified_on"] == "cpu"
    with monkeypatch.context() as patch:
        patch.setattr(verify_gpu, "RESERVED", 2**50)
        assert run(backend="cuda").report.result["verified_on"] == "cpu"
    tree = run(backend="cuda")
    assert tree.report.result["verified_on"] == "cuda"
    shown = []
    found = verify_forest(
        source,
        tree.layer,
        weight="max",
        connectivity=8,
        expected=tree.report.result,
        backend="auto",
        progress=lambda cells, total: shown.append((cells, total)),
    )
    assert found["backend"] == "cuda"
    assert sum(cells for cells, _ in shown) == data.size
    assert {total for _, total in shown} == {data.size}
    for backend, proven in (("cuda", "cuda"), ("auto", "cuda"), ("cpu", "cpu")):
        assert program(source, "--backend", backend, "--json", "-") == 0
        out, err = capfd.readouterr()
        found = json.loads(out)["result"]["mst"]
        assert (found["backend"], found["edges"]) == (proven, tree.edge_count)
        assert ("on the GPU" in err) == (proven == "cuda")
    assert not minimum_spanning_tree(data, nodata=7, verify=True, backend="cuda").layer


@pytest.mark.gpu
@pytest.mark.parametrize("block", [64, 128])
def test_stores_that_are_wrong(tmp_path, no_fsync, block):
    data = terrain((300, 170))
    mask = minimum_spanning_tree(data, nodata=3, backend="cpu")._forward
    rng = np.random.default_rng(3)
    cell = rng.choice(np.flatnonzero(mask))
    wrong = flipped(mask, (cell, int(mask.ravel()[cell]).bit_length() - 1))
    source, forest = make_store(tmp_path, data, 3, wrong, block)
    said = []
    for backend in ("cpu", "cuda"):
        with pytest.raises(VerificationError) as caught:
            verify_forest(
                source, forest, weight="max", connectivity=8, expected={}, backend=backend
            )
        said.append((str(caught.value), caught.value.row, caught.value.col))
    assert said[0] == said[1]
    assert said[0][0].startswith(str(forest.path))


# -- in regions ----------------------------------------------------------------------------

KINDS = [
    ("uint16", "max", 8),
    ("float32", "absdiff", 8),
    ("int16", "flow", 4),
    ("int64", "absdiff", 8),
    ("float64", "max", 8),
]


@pytest.fixture(scope="module")
def stand_in(kernels):
    """A stand-in for a GPU where there is none, until the end of a test."""

    @contextmanager
    def used():
        with pytest.MonkeyPatch.context() as patch:
            if device.why_not() is not None:
                emulation.use(patch, kernels)
            yield patch
        emulation.forget()

    return used


def same_in_regions(patch, side, *how, **more):
    """The common verdict of the CPU, and of the GPU in regions of this side."""
    patch.setattr(verify_gpu, "RESERVED", 10**6)
    patch.setattr(verify_gpu, "region_side", lambda *given: side)
    return same_verdict(*how, **more, block_size=64)


@needs_compiler
@pytest.mark.parametrize(("dtype", "weight", "connectivity"), KINDS[:3])
def test_regions_in_a_stand_in(stand_in, dtype, weight, connectivity):
    with stand_in() as patch:
        check_regions(patch, dtype, weight, connectivity, swapped=3)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "weight", "connectivity"), KINDS)
@pytest.mark.parametrize("narrow", [2**32, 1])
def test_regions(monkeypatch, dtype, weight, connectivity, narrow):
    check_regions(monkeypatch, dtype, weight, connectivity, swapped=40, narrow=narrow)


def check_regions(patch, dtype, weight, connectivity, swapped, **more):
    rng = np.random.default_rng(4)
    shape = 70, 140
    data = make("ties", dtype, shape, 1)
    data[60:66, 3:130] = 7  # a lake across the cuts, which leaves a way round
    mask, recorded = solved(data, 7, weight, connectivity)
    how = weight, connectivity
    for side in (128, 64):
        verdict = partial(same_in_regions, patch, side, data, 7, **more)
        found = verdict(mask, *how, expected=recorded)
        assert {key: found[key] for key in recorded} == recorded
    # Bits of any kind: too many, too few, out of the raster, to cells without a value.
    near = np.flatnonzero((np.indices(shape) % 64 % 63 == 0).any(axis=0))
    for cell in rng.choice(near, swapped).tolist():
        wrong = flipped(mask, (cell, int(rng.integers(0, 5))))
        assert isinstance(verdict(wrong, *how), tuple)
    for out, into in exchanged_near_cuts(data, mask, *how, rng, swapped):
        assert verdict(flipped(mask, out, into), *how)[1] == "minimal"


def exchanged_near_cuts(data, mask, weight, connectivity, rng, count):
    """(edge in the forest, edge not in it) on one cycle, which crosses a cut."""
    cols = data.shape[1]

    def block(cell):
        return cell // cols // 64, cell % cols // 64

    across = [
        (c, d)
        for _, c, d in reference.edges(data, weight, 7, connectivity)
        if not mask.ravel()[c] >> d & 1 and block(c) != block(other_end(data.shape, c, d))
    ]
    for k in rng.choice(len(across), count, replace=False):
        cycle = path(mask, across[k][0], other_end(data.shape, *across[k]))
        yield cycle[rng.integers(len(cycle))], across[k]


@needs_compiler
def test_several_gpus_share_the_regions(stand_in, tmp_path, no_fsync):
    data = make("terrain", "uint16", (200, 330), 1)
    mask, recorded = solved(data, 7, "max", 8)
    source, forest = make_store(tmp_path, data, 7, mask, 64)
    how = {"weight": "max", "connectivity": 8, "expected": recorded, "backend": "cuda"}
    with stand_in() as patch:
        patch.setattr(verify_gpu, "RESERVED", 10**6)
        proofs, shown = [], []
        prove, lock = verify_gpu.GpuProof.prove, threading.Lock()

        def one_at_a_time(self, slot):
            proofs.append(self)
            with lock:  # kernels of the stand-in share their shared memory
                return prove(self, slot)

        patch.setattr(verify_gpu.GpuProof, "prove", one_at_a_time)
        found = verify_forest(
            source,
            forest,
            **how,
            gpu=Gpu(0, 2 * 10**6, True, True, (0,)),
            progress=lambda cells, total: shown.append(cells),
        )
    assert {key: found[key] for key in recorded} == recorded
    assert len(proofs) > len(set(proofs)) == 2
    assert sum(shown) == data.size


# -- without one ---------------------------------------------------------------------------


@pytest.fixture
def works(monkeypatch):
    """A GPU that seems to work; nothing may be computed on it."""
    monkeypatch.setattr(device, "why_not", lambda number=0: None)
    monkeypatch.setattr(device, "usable_memory", lambda number, asked: asked or 2**40)


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setattr(device, "why_not", lambda number=0: "no GPU (there is none)")


@pytest.fixture
def proven(tmp_path, no_fsync):
    """(cells, forest) of a store, and how they are verified."""
    data = terrain((150, 170)).astype(np.uint16)
    source, forest = layers(tmp_path, data, None)
    return source, forest, {"weight": "max", "connectivity": 8, "expected": forest.info["result"]}


def layers(folder, data, nodata):
    store = make_store(folder, data, nodata, np.zeros(data.shape, np.uint8), 64)[0].path.parent
    shutil.rmtree(store / "mst")
    tree = minimum_spanning_tree(store, backend="cpu")
    return TileStore.open(store).layer("elevation"), tree.layer


def program(source, *more):
    words = ["verify", str(source.path.parent), *more]
    return options._guarded(lambda: group.main(words, standalone_mode=False))


def test_no_gpu(broken, proven, caplog, capfd):
    source, forest, how = proven
    with pytest.raises(
        NoGpu, match=r"backend cuda: no GPU \(there is none\); or use --backend cpu"
    ):
        verify_forest(source, forest, **how, backend="cuda")
    caplog.set_level("INFO", logger="terrain_gpu")
    assert verify_forest(source, forest, **how, backend="auto")["backend"] == "cpu"
    assert "verifying on the CPU: no GPU (there is none)" in caplog.text
    caplog.clear()
    assert verify_forest(source, forest, **how)["backend"] == "cpu"
    assert not caplog.text
    assert program(source, "--backend", "cuda") == 2
    assert "Error: backend cuda: no GPU (there is none)" in capfd.readouterr().err
    assert program(source, "-v", "--json", "-") == 0
    assert "verifying on the CPU: no GPU (there is none)" in caplog.text
    assert json.loads(capfd.readouterr().out)["result"]["mst"]["backend"] == "cpu"


def test_a_gpu_that_is_too_small(works, proven, caplog, capfd):
    source, forest, how = proven
    least = verify_gpu.RESERVED + 64 * 64 * (2 * 3 + 4 + 8) + 4 * 128 * 33
    for limits, text in (
        (
            {"gpu_memory_limit": least - 1},
            "verifying blocks of 64 x 64 cells of uint16 takes 513MB of GPU memory",
        ),
        (
            {"gpu_memory_limit": least - 1},
            "more than the 512 MB given; give --gpu-memory-limit 513MB",
        ),
        ({"memory_limit": 600 * 10**6}, "600 MB is too small .* on a GPU; give at least 989 MB"),
    ):
        with pytest.raises(PlanError, match=text):
            verify_forest(source, forest, **how, **limits, backend="cuda")
    caplog.set_level("INFO", logger="terrain_gpu")
    found = verify_forest(source, forest, **how, backend="auto", gpu_memory_limit=10**6)
    assert found["backend"] == "cpu"
    assert "verifying on the CPU: verifying blocks of 64 x 64" in caplog.text
    small = "--gpu-memory-limit", "10MB"
    assert program(source, *small, "--backend", "cuda") == 2
    assert "or use --backend cpu" in capfd.readouterr().err
    assert program(source, *small) == 0
    assert "on the GPU" not in capfd.readouterr().out


def test_cuda_is_not_loaded_where_there_is_no_room_for_it(monkeypatch, proven):
    source, forest, how = proven
    monkeypatch.setattr(device, "why_not", lambda number=0: pytest.fail("loaded"))
    found = verify_forest(source, forest, **how, backend="auto", memory_limit=600 * 10**6)
    assert found["backend"] == "cpu"


def regions_of(side, memory, devices=1, dtype="uint16"):
    """The side of regions of a raster of `side` x `side` cells in blocks of 4096."""
    gpu = Gpu(0, memory, True, True, tuple(range(1, devices)))
    return verify_gpu.region_side(BlockGrid(side, side, 4096), np.dtype(dtype), gpu)


def test_regions_are_as_large_as_fit():
    assert regions_of(60_000, 55 * 10**9) == 61_440  # one, with one slot
    assert regions_of(60_000, 54 * 10**9) == 32_768
    assert regions_of(100_000, 8 * 10**9) == 16_384
    assert regions_of(100_000, 125 * 10**9) == regions_of(60_000, 125 * 10**9, 4) + 20_480
    assert regions_of(141_422, 125 * 10**9, 8) == 49_152


def test_3_6e9_cells_fit_a_large_gpu():
    assert verify_gpu.gpu_bytes(60_000**2, np.dtype(np.uint16)) < 55 * 10**9
    assert verify_gpu.gpu_bytes(60_000**2, np.dtype(np.float64)) < 80 * 10**9
    one = verify_gpu.gpu_bytes(2**32, np.dtype(np.uint8))
    assert one - verify_gpu.gpu_bytes(2**32 - 1, np.dtype(np.uint8)) > 4 * 2**32


def test_the_cpu_names_what_the_gpu_finds(works, proven, monkeypatch):
    source = proven[0]
    data = source.read_window(*source.grid.window)
    mask, recorded = solved(data, None, "max", 8)
    monkeypatch.setattr(verify_gpu, "prove", lambda *args, **more: None)
    with pytest.raises(AssertionError, match="a bug"):
        verify_arrays(data, None, mask, "max", 8, backend="cuda")
    wrong = flipped(mask, edges_of(mask)[5])
    assert verdict("cuda", data, None, wrong, "max", 8) == verdict(
        "cpu", data, None, wrong, "max", 8
    )
    good = verify_gpu.Found(data.size, recorded["edges"], 7, recorded["total_weight"] + 1)
    monkeypatch.setattr(verify_gpu, "prove", lambda *args, **more: good)
    assert verdict("cuda", data, None, mask, "max", 8, expected=recorded)[1] == "totals"
