"""Shortest paths by regions: what needs no GPU. The rest is in `test_cuda_paths.py`."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import region_standin
import test_mst
from hypothesis import example, given
from hypothesis import strategies as st

from terrain_gpu import shortest_paths
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.cuda.device import source
from terrain_gpu.engine.machine import CUDA_BASELINE, Machine
from terrain_gpu.errors import StoreError
from terrain_gpu.grid import BlockGrid, ceil_div
from terrain_gpu.paths.proof.checker import threads_within
from terrain_gpu.paths.proof.gpu import Proof
from terrain_gpu.paths.relax.gpu.problem import Problem
from terrain_gpu.paths.relax.gpu.regions import RegionSpill
from terrain_gpu.paths.relax.gpu.relaxing import AWAY, CHANGED
from terrain_gpu.paths.relax.gpu.resident import ResidentBlocks, _beside
from terrain_gpu.paths.relax.gpu.rims import Rims
from terrain_gpu.paths.relax.gpu.variants import SIDE
from terrain_gpu.spanning_tree.proof import gpu as tree_proof
from terrain_gpu.store import spill


def test_flags_are_those_of_the_kernels():
    text = source("paths")
    for name, value in (("AWAY", AWAY), ("CHANGED", CHANGED), ("SIDE", SIDE)):
        assert re.search(rf"#define {name} (\d+)", text)[1] == str(value)


masks = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=81).map(
        lambda bits: np.array(bits[: shape[0] * shape[1]]).reshape(shape)
    )
)


@given(masks)
def test_tiles_beside(mask):
    padded = np.pad(mask, 1)
    down, across = mask.shape
    expected = [[padded[i : i + 3, j : j + 3].any() for j in range(across)] for i in range(down)]
    assert _beside(mask).tolist() == expected


@given(masks, st.sampled_from([64, 128]), st.integers(0, 2), st.integers(0, 2))
def test_blocks_of_tiles(waiting, block, row, col):
    """Those that hold a tile that waits, or one beside it, and have not come."""
    down, across = waiting.shape
    rows, cols, each = 32 * down, 32 * across, block // 32
    relaxing = SimpleNamespace(send_away=lambda: None, waiting=lambda: waiting)
    piece = SimpleNamespace(
        problem=SimpleNamespace(blocks=SimpleNamespace(block=block)),
        window=(row * block, row * block + rows, col * block, col * block + cols),
        shape=SimpleNamespace(rows=rows, cols=cols, tiles=(down, across), halo=1),
        relaxing=relaxing,
        around=lambda: {(row - 1, col), (row - 1, col + 3), (row, col - 1)},
    )
    resident = ResidentBlocks(piece, whole=False)
    needed = {(row + i // each, col + j // each) for i, j in np.argwhere(_beside(waiting)).tolist()}
    assert set(resident.wanted()) == needed
    assert ResidentBlocks(piece, whole=True).wanted() == []
    near = {(row, col), (row - 1, col), (row, col - 1)}
    assert resident.with_around([(row, col)]) == near  # once
    assert resident.with_around([(row, col)]) == {(row, col)}


@given(st.integers(0, 10**4), st.integers(1, 2), st.integers(1, 300), st.integers(1, 300))
def test_blocks_beside_lowered_cells(k, halo, rows, cols):
    """They hold every tile that a lowered cell around the region reaches, and those beside it."""
    problem = SimpleNamespace(blocks=SimpleNamespace(block=64))
    shape = SimpleNamespace(rows=rows, cols=cols, halo=halo)
    relaxing = SimpleNamespace(send_away=lambda: None)
    given = {"problem": problem, "window": (64, 64 + rows, 128, 128 + cols), "shape": shape}
    piece = SimpleNamespace(**given, relaxing=relaxing, around=set)
    ring = [*range(-halo, 0)], [*range(rows, rows + halo)], [*range(-halo, 0)], [cols]
    places = [(r, c) for r in ring[0] + ring[1] for c in range(-halo, cols + halo)]
    places += [(r, c) for c in (*ring[2], *range(cols, cols + halo)) for r in range(rows)]
    k %= len(places)
    lowered = np.zeros(len(places), bool)
    lowered[k] = True
    reached = np.pad(np.zeros((-(-rows // 32), -(-cols // 32)), bool), 1)
    row, col = places[k]
    for i in (row - halo, row + halo):
        for j in (col - halo, col + halo):
            reached[max(i // 32 + 1, 0), max(j // 32 + 1, 0)] = True
    needed = _beside(reached[1:-1, 1:-1])
    found = set(ResidentBlocks(piece, whole=False).beside(lowered))
    assert {(1 + i // 2, 2 + j // 2) for i, j in np.argwhere(needed).tolist()} <= found
    assert len(found) <= 6
    assert ResidentBlocks(piece, whole=False).beside(lowered & False) == []


def rough(rows, cols):
    """Waves with noise: paths wander to and fro between regions."""
    i, j = np.ogrid[:rows, :cols]
    noise = np.random.default_rng(0).integers(0, 12, (rows, cols))
    return (30 * (np.sin(i / 9) * np.cos(j / 7) + 1) + noise).astype(np.uint16)


@pytest.mark.parametrize("how", [{"wrap": "yes"}, {"nodata": 90, "max_cost": 700}])
def test_distances_region_by_region(monkeypatch, how):
    z = rough(150, 200)
    z[60:90, 40:190] = 90
    run = partial(shortest_paths, z, [(3, 5)], block_size=64, threads=2, **how)
    expected = run()
    region_standin.install(monkeypatch, 1, 1)
    found = run()
    assert found.report.result["regions"] == 12
    assert found.report.result["region_visits"] > 20
    assert found.reached == expected.reached
    assert found.report.valid_cells == expected.report.valid_cells
    assert np.array_equal(found.distance(), expected.distance())


def test_regions_resume_from_what_was_saved(tmp_path, no_fsync, monkeypatch):
    z = rough(150, 200)
    store = test_mst.make_store(tmp_path / "s.zarr", z, None, 64)
    run = partial(shortest_paths, store, [(3, 5)], threads=2)
    expected = shortest_paths(z, [(3, 5)], block_size=64).distance()
    save, calls = RegionSpill.save, itertools.count()

    def failing(self, *given):
        if next(calls) == 14:
            raise KeyboardInterrupt
        save(self, *given)

    with monkeypatch.context() as patch:
        region_standin.install(patch, 1, 1)
        patch.setattr(RegionSpill, "save", failing)
        with pytest.raises(KeyboardInterrupt):
            run()
    region_standin.install(monkeypatch, 2, 1)  # a resumed run may use other regions
    found = run(resume=True)
    assert found.report.result["blocks_resumed"] > 0
    assert np.array_equal(found.distance(), expected)
    assert not (store / ".incomplete").exists()


def test_proofs_of_ten_thousand_million_cells_fit_8_gb():
    gpu, u16 = Gpu(0, 8 * 10**9, given=True, wanted=True), np.dtype(np.uint16)
    for block in (1024, 2048):
        blocks = BlockGrid(100_000, 100_000, block)
        assert tree_proof.region_side(blocks, u16, gpu) >= 16_384
        heights = SimpleNamespace(dtype=u16)
        terrain = SimpleNamespace(heights=heights, friction=None, barriers=None, sources=[0])
        settings = {"terrain": terrain, "blocks": blocks, "dtype": np.dtype(np.uint32), "gpu": gpu}
        reads = dict.fromkeys(("read_backlink", "read_allocation"))
        proof = SimpleNamespace(**settings, **reads, joins=True)
        proof._items = Proof._items.fget(proof)
        proof.memory = partial(Proof.memory, proof)
        assert Proof.side(proof) >= 16_384
        assert threads_within(blocks, 4, Machine.of("8GB", 16), CUDA_BASELINE) == 16


@given(
    side=st.integers(1, 200_000),
    block=st.sampled_from([256, 1024, 2048]),
    threads=st.integers(1, 64),
    memory=st.integers(10, 400).map(lambda n: n * 10**8),
)
@example(side=100_000, block=2048, threads=16, memory=8 * 10**9)
@example(side=60_000, block=1024, threads=64, memory=8 * 10**9)
def test_buffers_are_left_out_for_fewer_regions(side, block, threads, memory):
    blocks = BlockGrid(side, side, block)
    heights = SimpleNamespace(dtype=np.dtype(np.uint16))
    ground = SimpleNamespace(blocks=blocks, heights=heights, friction=None, barriers=None)
    ground.dtype, ground.sources = np.dtype(np.uint32), [0]
    how = (True, True, False), 2**31 - 1, None, ["distance"]

    gpu = Gpu(0, memory, given=True, wanted=True)
    problem = Problem(ground, *how, threads, gpu, None, Path("spill"))
    most = min(threads, blocks.count)
    limit, (high, wide) = problem.plan()
    assert problem.memory(high, wide) <= limit == memory
    most = min(most, 1024 * 10**6 // problem.staging_bytes)
    fewest = min(ceil_div(most, 2), 16)
    assert fewest <= problem.stagings <= most
    count = ceil_div(blocks.shape[0], high) * ceil_div(blocks.shape[1], wide)
    for more in range(problem.stagings + 1, most + 1):
        assert problem._fewest(more) > count
    assert problem._fewest(fewest) == count
    if (side, block, threads, memory) == (100_000, 2048, 16, 8 * 10**9):
        assert (count, high, wide, problem.stagings) == (9, 17, 17, 10)
    if (side, block, threads) == (60_000, 1024, 64):
        assert (count, high, wide) == (3, 20, 59)


@given(
    side=st.integers(1, 100_000),
    threads=st.integers(1, 16),
    limit=st.integers(11, 300).map(lambda n: n * 10**8),
    names=st.sampled_from([["distance"], ["distance", "backlink"]]),
)
def test_blocks_are_held_within_the_limit(side, threads, limit, names):
    blocks = BlockGrid(side, side, 1024)
    heights = SimpleNamespace(dtype=np.dtype(np.uint16))
    ground = SimpleNamespace(blocks=blocks, heights=heights, friction=None, barriers=None)
    ground.dtype, ground.sources = np.dtype(np.uint32), [0]
    gpu = Gpu(0, 10**9, given=True, wanted=True)
    how = (True, True, False), 2**31 - 1, None, names, threads, gpu
    problem = Problem(ground, *how, limit, Path("spill"))
    most = problem.host_memory + problem.held_bytes
    assert most <= limit
    one = len(names) * 4 * 1024**2
    assert 0 <= problem.held <= blocks.count
    if problem.held < blocks.count:  # there is no room for another one
        more = problem.held + 1 + problem.savers
        assert problem.host_memory + more * one > limit
    assert Problem(ground, *how, None, Path("spill")).held_bytes == 0


@pytest.fixture
def blocks():
    return BlockGrid(100, 200, 64)


@pytest.mark.parametrize("held", [0, 1, 2])
def test_a_spill_is_found_again(tmp_path, blocks, held):
    rng, new = np.random.default_rng(1), partial(RegionSpill, tmp_path / "regions", blocks)
    cells = {(0, 1): rng.random((64, 64)), (1, 3): rng.random((36, 8))}
    for resume in (False, True):
        spill = new(np.dtype(float), resume=resume, held=held)
        assert spill.saved == (set(cells) if resume else set())
        for at, data in cells.items():
            if not resume:
                spill.save("", at, data)
            found = np.empty_like(data)
            spill.restore(at, found)
            assert np.array_equal(found, data)
        spill.close(keep=not resume)
    assert not list(tmp_path.iterdir())
    spill = RegionSpill(tmp_path / "regions", blocks, np.dtype(float), resume=True)
    assert spill.saved == set()
    with pytest.raises(
        StoreError, match=r"regions: damaged: slot 0 .*; compute again with --overwrite"
    ):
        spill.restore((0, 0), np.empty((64, 64)))
    spill.close(keep=False)


@pytest.mark.parametrize("dtype", ["u4", "f8"])
def test_saved_distances_are_compressed(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(spill, "PART", 1024)
    path, lengths = tmp_path / "slots", (1, 255, 256, 257, 16_384)
    slots = spill.CodedSlots(path, 3, 16_384 * 8, np.dtype(dtype), threads=3)
    slots.save(1, np.arange(16_384).astype(dtype))
    assert path.stat().st_size - slots._slot_bytes < 16_384 * np.dtype(dtype).itemsize / 2
    noise = np.random.default_rng(1)
    for length in (*lengths, *lengths[::-1]):
        for cells in (np.arange(length), noise.integers(0, 2**62, length)):
            given = (cells % 2**31).astype(dtype)
            slots.save(1, given)
            found = np.empty_like(given)
            slots.load(1, found)
            assert np.array_equal(found, given)
    slots.save(1, noise.integers(0, 2**31, 16_384).astype(dtype))
    whole = path.read_bytes()
    for at in (0, 3, 5000, 50_000):  # lengths of parts, and parts
        with path.open("r+b") as file:
            file.seek(slots._slot_bytes + at)
            file.write(bytes([whole[slots._slot_bytes + at] ^ 255]))
        again = spill.CodedSlots(path, 3, 16_384 * 8, np.dtype(dtype), resume=True)
        assert list(again) == [1]
        assert not again.is_whole(1, np.empty(16_384, dtype))
        assert list(again) == []
        again.close()
        path.write_bytes(whole)
    slots.close(keep=False)


def test_rims_keep_what_is_away():
    """The largest distance stands for cells that were not read."""
    windows = {(0, 0): (0, 2, 0, 3), (0, 1): (0, 2, 3, 6), (1, 0): (2, 4, 0, 3)}
    rims = Rims(windows, np.dtype(np.uint32))
    infinity = rims.infinity

    def put(at, *cells):
        rims.put(at, np.array(cells, np.uint32))

    put((0, 0), 1, 2, 3, 4, 5, 6, 1, 4, 3, 6)
    assert rims.pending == {(0, 1): 3, (1, 0): 4}
    rims.pending.clear()
    put(
        (0, 0), infinity, infinity, 2, infinity, infinity, infinity, infinity, infinity, 2, infinity
    )
    assert rims.pending == {(0, 1): 2}  # the cell beside (1, 0) is unchanged
    assert rims.next(9) == (0, 1)
    ring, seen = rims.ring((0, 1))
    # Above, below: nothing; left: the right column of (0, 0); right: nothing.
    assert ring[-4:].tolist() == [2, 6, infinity, infinity]
    assert (seen == infinity).all()
    assert rims.ring((1, 0))[0][:5].tolist() == [infinity, 4, 5, 6, infinity]
    assert rims.ring((1, 0))[1].tolist() == rims.ring((1, 0))[0].tolist()
