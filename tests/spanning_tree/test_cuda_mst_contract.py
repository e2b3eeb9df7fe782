"""The classical spanning tree on a GPU: blocks leave what they leave on the CPU."""

from __future__ import annotations

import os
import shutil

import emulation
import numpy as np
import pytest
import reference
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes
from test_cuda_mst import by_id, make, sides_of
from test_mst import has_no_largest

from terrain_gpu import minimum_spanning_tree
from terrain_gpu.cuda import device
from terrain_gpu.errors import PlanError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.spanning_tree.cpu import contract
from terrain_gpu.spanning_tree.cpu.keys import edge_key, rule_at
from terrain_gpu.spanning_tree.cpu.operands import vertices_of
from terrain_gpu.spanning_tree.gpu import plan, regions
from terrain_gpu.spanning_tree.gpu.contract import contract_forest
from terrain_gpu.spanning_tree.levels import Solver
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight, weights_of


@pytest.fixture(scope="module")
def a_gpu(kernels):
    """A GPU, or its emulation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        emulation.forget()
        if device.why_not() is not None:
            if shutil.which("g++") is None:
                pytest.skip("neither a GPU nor a compiler to emulate one")
            emulation.in_lanes(patch, kernels, shared=232_448)
        yield
    emulation.forget()


def solved_on_cpu(kind, data, nodata, connectivity, window, shape):
    """A block of a raster by the method of the CPU, and its mask."""
    r0, r1, c0, c1 = window
    mask = np.zeros((r1 - r0, c1 - c0), np.uint8)
    side = 64
    while side < max(mask.shape):
        side *= 2
    solver = Solver(shape, side, kind, nodata, connectivity == 8, contract)
    return solver.solve(window, data[r0:r1, c0:c1], mask), mask


def forest_of(kind, data, nodata, connectivity):
    """Edges of the spanning forest of a raster: keys, ids, both ends."""
    window = 0, data.shape[0], 0, data.shape[1]
    _, mask = solved_on_cpu(kind, data, nodata, connectivity, window, data.shape)
    cells, _ = vertices_of(kind, data, nodata, np.empty(data.shape, kind.operand_dtype))
    rule, cols, found = kind.rule(0, data.shape[0]), data.shape[1], []
    for d, (down, right) in enumerate(reference.FORWARD):
        row, col = np.nonzero(mask >> d & 1)
        u, v = row * cols + col, (row + down) * cols + col + right
        ends = cells.ravel()[u], cells.ravel()[v]
        found.append((edge_key(*ends, rule_at(rule, d, row)), 4 * u + d, u, v))
    return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))


@settings(max_examples=examples(60))
@given(
    raster=rasters(shape=shapes(60, 1500)).filter(has_no_largest),
    weight=st.sampled_from(list(WEIGHTS)),
    connectivity=st.sampled_from([4, 8]),
    sides=st.tuples(*[st.booleans()] * 4),
)
def test_list_ranking_contracts_as_walks_do(raster, weight, connectivity, sides):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    kind = Weight.on(GridSpec(*data.shape), weight, data.dtype)
    assume(not kind.two_words)
    rows, cols = data.shape
    around = np.full((rows + 2, cols + 2), data.flat[0], data.dtype)
    around[1:-1, 1:-1] = data
    above, below, left, right = sides
    whole = around[1 - above : rows + 1 + below, 1 - left : cols + 1 + right]
    window = int(above), rows + above, int(left), cols + left
    kind_there = Weight.on(GridSpec(*whole.shape), weight, data.dtype)
    solved, _ = solved_on_cpu(kind_there, whole, nodata, connectivity, window, whole.shape)
    expected = by_id(solved.region)

    keys, ids, us, vs = forest_of(kind, data, nodata, connectivity)
    keep = np.zeros(data.shape, bool)
    keep[0] |= above
    keep[-1] |= below
    keep[:, 0] |= left
    keep[:, -1] |= right
    edges = np.stack((us, vs), 1).reshape(-1, 2)
    greatest, us, vs = contract_forest(np, edges, np.lexsort((ids, keys)), keep.ravel())

    def globally(cell):
        return (cell // cols + above) * whole.shape[1] + cell % cols + left

    ids = 4 * globally(ids >> 2) + (ids & 3)
    solved.region.candidates = keys[greatest], ids[greatest], globally(us), globally(vs)
    for one, other in zip(by_id(solved.region), expected, strict=True):
        assert np.array_equal(one, other)


def check_regions(data, nodata, weight, connectivity, side, block=64):
    """Regions leave what blocks of their size leave, also joined; the tree is that of "frozen"."""
    found = {}
    solve, merge, merge_on_cpu = regions.GpuSolver.solve, regions.GpuSolver.merge, contract.merge

    def check_merge(solver, children, sums):
        kind, other_sums = solver.weight, sums.copy()
        how = solver.shape, kind.rule(), solver.diagonal, other_sums, kind.sum_mode
        expected, expected_final = merge_on_cpu(children, *how)
        region, final = merge(solver, children, sums)
        assert region.window == expected.window
        for one, other in zip(by_id(region), by_id(expected), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        assert np.array_equal(np.sort(final), np.sort(expected_final))
        assert np.array_equal(sums, other_sums)
        return region, final

    def note(solver, at, slot):
        found[at] = solve(solver, at, slot)
        return found[at]

    options = {"weight": weight, "connectivity": connectivity, "nodata": nodata}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MOST_SIDE", side)
        patch.setattr(regions.GpuSolver, "solve", note)
        patch.setattr(regions.GpuSolver, "merge", check_merge)
        patch.setattr(contract, "merge", None)  # no merge falls back to the CPU
        tree = minimum_spanning_tree(
            data, method="contract", backend="cuda", block_size=block, **options
        )
    kind = Weight.on(GridSpec(*data.shape), weight, data.dtype)
    grid = BlockGrid(*data.shape, side)
    assert found.keys() == set(grid.ids())
    for at, solved in found.items():
        expected, _ = solved_on_cpu(kind, data, nodata, connectivity, grid.window(*at), data.shape)
        assert solved.edges == expected.edges
        assert solved.vertices == expected.vertices
        assert np.array_equal(solved.sums, expected.sums)
        for one, other in zip(by_id(solved.region), by_id(expected.region), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        for one, other in zip(sides_of(solved.region), sides_of(expected.region), strict=True):
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    expected = minimum_spanning_tree(data, backend="cpu", **options)
    assert np.array_equal(tree._forward, expected._forward)
    assert tree.total_weight == expected.total_weight


@pytest.mark.parametrize(
    ("dtype", "weight", "kind", "side"),
    [
        ("uint16", "max", "terrain", 64),
        ("float64", "absdiff", "ties", 128),
    ],
)
def test_regions_leave_what_blocks_leave(a_gpu, dtype, weight, kind, side):
    check_regions(make(kind, dtype, (70, 140), 1), 7, weight, 8, side)


def test_rasters_without_edges(a_gpu):
    for data in (np.zeros((1, 1), np.int16), np.full((70, 70), 7, np.int16)):
        check_regions(data, 7, "max", 8, 64)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["flat", "ties", "noise", "terrain"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64", "float32", "float64"])
def test_large_regions(kind, dtype):
    for weight in weights_of(np.dtype(dtype)):
        if Weight(weight, np.dtype(dtype)).two_words:
            continue
        for side, connectivity in ((64, 4), (256, 8), (1024, 8)):
            data = make(kind, dtype, (600, 700), side)
            check_regions(data, 7, weight, connectivity, side, block=64)


@pytest.mark.gpu
def test_memory_is_planned():
    """What is planned for a region suffices; large, since a fixed part is reserved."""
    data = make("noise", "uint16", (4096, 4096), 2)
    options = {"method": "contract", "backend": "cuda", "block_size": 4096}
    with pytest.raises(PlanError, match=r"--gpu-memory-limit [0-9]+MB at least") as refused:
        minimum_spanning_tree(data, gpu_memory_limit=10**8, **options)
    least = int(str(refused.value).partition("--gpu-memory-limit ")[2].partition("MB")[0])
    tree = minimum_spanning_tree(data, gpu_memory_limit=least * 10**6, **options)
    assert np.array_equal(tree._forward, minimum_spanning_tree(data, backend="cpu")._forward)
