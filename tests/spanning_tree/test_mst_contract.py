"""The method "contract": its tournament tree, its contracted blocks, and the whole route."""

from __future__ import annotations

import heapq
from itertools import product

import numba
import numpy as np
import pytest
import reference
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import Raster, block_sizes, rasters, shapes

from terrain_gpu import minimum_spanning_tree
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.neighbours import DIRECTIONS
from terrain_gpu.primitives import tournament
from terrain_gpu.spanning_tree import weights
from terrain_gpu.spanning_tree.cpu import contract, frozen
from terrain_gpu.spanning_tree.levels import METHODS, Solver
from terrain_gpu.spanning_tree.weights import Weight

OPEN = (True, True, True, True)
CLOSED = (False, False, False, False)


# -- the tournament tree -------------------------------------------------------------------


@numba.njit
def played(keys, ids, before):
    """All enter with keys raised by `before`, drop to their own, and leave, least first."""
    tree = np.full(2 * len(keys), tournament.NOBODY)
    high = keys + before
    for player in range(len(keys)):
        tournament.challenge(tree, high, ids, player)
    for player in range(len(keys)):
        high[player] = keys[player]
        tournament.challenge(tree, high, ids, player)
    order = np.empty(len(keys), np.int64)
    for k in range(len(keys)):
        order[k] = tournament.first(tree)
        tournament.leave(tree, high, ids, order[k])
    return order, tree


@pytest.mark.parametrize("players", [1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 4097])
@pytest.mark.parametrize("most", [1, 3, 10**6])
def test_a_tournament_sorts(players, most):
    rng = np.random.default_rng(players)
    keys = rng.integers(0, most, players).astype(np.uint32)
    ids = rng.permutation(players)
    before = rng.integers(0, 5, players).astype(np.uint32)
    order, tree = played(keys, ids, before)
    np.testing.assert_array_equal(order, np.lexsort((ids, keys)))
    assert (tree == tournament.NOBODY).all()


def test_the_largest_entry_wins_over_nobody():
    keys = np.full(3, np.iinfo(np.uint64).max)
    ids = np.array([np.iinfo(np.int64).max, 1, 2])
    order, _ = played(keys, ids, np.zeros(3, np.uint64))
    assert order.tolist() == [1, 2, 0]


@given(st.integers(1, 20), st.data())
def test_players_come_climb_and_leave_in_any_order(players, data):
    tree = tournament.new_tree(players)
    keys, ids = np.full(players, 9, np.uint64), np.arange(players)[::-1].copy()
    there: set[int] = set()
    for player in data.draw(st.lists(st.integers(0, players - 1), max_size=60)):
        if player not in there:
            keys[player] = data.draw(st.integers(0, 9))
            tournament.challenge(tree, keys, ids, player)
            there.add(player)
        elif keys[player] > 0 and data.draw(st.booleans()):
            keys[player] -= 1
            tournament.challenge(tree, keys, ids, player)
        else:
            tournament.leave(tree, keys, ids, player)
            there.remove(player)
        best = min(there, key=lambda p: (keys[p], ids[p]), default=tournament.NOBODY)
        assert tournament.first(tree) == best
        assert {p for p in range(players) if tournament.plays(tree, p)} == there


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_edges_precede_by_key_then_id(edges):
    least = edges[0]
    for edge in edges[1:]:
        if tournament.precedes(*edge, *least):
            least = edge
    assert least == heapq.nsmallest(1, edges)[0]


# -- one block -----------------------------------------------------------------------------


def solved(z, weight="max", connectivity=8, nodata=None, sides=OPEN, method=contract, block=None):
    """Mask of final edges, their number and weight, and candidates of a block."""
    kind = Weight.on(GridSpec(*z.shape), weight, z.dtype)
    work = method.new_work((block or 64 * -(-max(z.shape) // 64),) * 2, kind)
    mask, sums = np.zeros(z.shape, np.uint8), kind.new_sums()
    edges, candidates = method.solve_block(
        kind.operands(z),
        weights.valid_cells(z, nodata),
        kind.rule(),
        connectivity == 8,
        sides,
        work,
        mask,
        sums,
        kind.sum_mode,
    )
    return mask, edges, kind.exact(sums, edges), tuple(a.copy() for a in candidates)


def boundary_of(shape, sides):
    """Mask of the boundary vertices."""
    found = np.zeros(shape, bool)
    found[0] |= sides[0]
    found[-1] |= sides[1]
    found[:, 0] |= sides[2]
    found[:, -1] |= sides[3]
    return found


def adjacency(mask):
    """Neighbours of each cell of a tree: {cell: {neighbour: id}}."""
    rows, cols = mask.shape
    joined = {cell: {} for cell in range(rows * cols)}
    for cell in np.flatnonzero(mask).tolist():
        for d, (dr, dc) in enumerate(DIRECTIONS):
            if mask.flat[cell] >> d & 1:
                other = cell + dr * cols + dc
                joined[cell][other] = joined[other][cell] = 4 * cell + d
    return joined


def contracted_slowly(z, mask, weight, boundary):
    """The definition: peel leaves off the tree, then walk its paths; {(id, ends)}."""
    joined = adjacency(mask)
    fixed = set(np.flatnonzero(boundary).tolist())
    leaves = [v for v in joined if len(joined[v]) == 1 and v not in fixed]
    while leaves:
        v = leaves.pop()
        for u in joined.pop(v):
            del joined[u][v]
            if len(joined[u]) == 1 and u not in fixed:
                leaves.append(u)
    order = {4 * v + d: (w, 4 * v + d) for w, v, d in reference.edges(z, weight)}
    stay = {v for v in joined if v in fixed or len(joined[v]) > 2}
    found = set()
    for start in stay:
        for step in joined[start]:
            before, at, path = start, step, [joined[start][step]]
            while at not in stay:
                (after,) = set(joined[at]) - {before}
                path.append(joined[at][after])
                before, at = at, after
            found.add((max(path, key=order.get), *sorted((start, at))))
    return found


@pytest.mark.parametrize("weight", weights.WEIGHTS)
@pytest.mark.parametrize("sides", list(product((False, True), repeat=4)))
def test_dead_ends_and_paths_follow_their_definitions(weight, sides):
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (1, 9), (9, 1), (2, 2), (13, 17), (21, 20)):
        z = rng.integers(0, 6, shape).astype(np.uint16)
        whole, total, count = reference.kruskal(z, weight)
        mask, final, exact, (keys, ids, us, vs) = solved(z, weight, sides=sides)
        boundary = boundary_of(shape, sides)
        expected = contracted_slowly(z, whole, weight, boundary)
        assert set(zip(ids, np.minimum(us, vs), np.maximum(us, vs), strict=True)) == expected
        assert len(ids) == len(expected) == count - final
        for k, cell in enumerate(ids >> 2):
            assert not mask.flat[cell] >> (ids[k] & 3) & 1
            mask.flat[cell] |= 1 << (ids[k] & 3)
        np.testing.assert_array_equal(mask, whole)
        assert exact + int((keys >> (32 if weight == "flow" else 0)).sum()) == total
        assert len(ids) <= max(0, 2 * int(boundary.sum()) - 3)


def test_a_path_keeps_only_its_largest_edge():
    z = np.array([[3, 1, 7, 7, 2]], np.uint8)
    mask, final, exact, (keys, ids, us, vs) = solved(z, sides=(False, False, True, True))
    # Weights 3, 7, 7, 7: the last of the three equal edges in the total order.
    assert (keys.tolist(), ids.tolist()) == ([7], [4 * 3])
    assert {us.item(), vs.item()} == {0, 4}
    assert (mask.tolist(), final, exact) == ([[1, 1, 1, 0, 0]], 3, 17)


def test_a_dead_end_is_final():
    z = np.array([[3, 1, 7, 7, 2]], np.uint8)
    mask, final, exact, candidates = solved(z, sides=(False, False, True, False))
    assert not candidates[0].size
    assert (mask.tolist(), final, exact) == ([[1, 1, 1, 1, 0]], 4, 24)


@pytest.mark.parametrize("dtype", [np.uint64, np.int64])
@pytest.mark.parametrize("connectivity", [4, 8])
def test_the_largest_key_is_a_weight_like_others(dtype, connectivity):
    ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    row, col = np.indices((13, 20))
    for z in (ends[(row + col) % 2], np.full((3, 20), ends[1])):
        for weight in weights.weights_of(z.dtype):
            expected = reference.kruskal(z, weight, connectivity=connectivity)
            mask, final, exact, candidates = solved(z, weight, connectivity, sides=CLOSED)
            np.testing.assert_array_equal(mask, expected[0])
            assert (exact, final, candidates[0].size) == (*expected[1:], 0)


def test_paths_meet_in_a_branching_cell():
    z = np.full((5, 5), 9, np.uint8)
    z[2, :] = z[:, 2] = 0
    _, final, _, (_, _, us, vs) = solved(z, connectivity=4, nodata=9)
    ends = [{u, v} for u, v in zip(us.tolist(), vs.tolist(), strict=True)]
    assert sorted(map(sorted, ends)) == [[2, 12], [10, 12], [12, 14], [12, 22]]
    assert final == 4


def test_work_is_clean_for_every_block():
    kind, work = Weight("max", np.dtype(np.uint16)), None
    rng = np.random.default_rng(3)
    for shape in ((64, 64), (1, 64), (64, 3), (17, 64), (64, 64)):
        z = rng.integers(0, 4, shape).astype(np.uint16)
        results = []
        for one in (work, contract.new_work((64, 64), kind)):
            work = one or contract.new_work((64, 64), kind)
            mask, sums = np.zeros(shape, np.uint8), kind.new_sums()
            edges, candidates = contract.solve_block(
                kind.operands(z), z != 3, kind.rule(), True, OPEN, work, mask, sums, kind.sum_mode
            )
            results.append((mask, edges, *sums, *(a.copy() for a in candidates)))
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


# -- merge ---------------------------------------------------------------------------------


def four_blocks(shape, corner, z, method):
    """Region and final ids of four 64 x 64 blocks joined, somewhere in a raster."""
    solver = Solver(shape, 64, Weight("max", z.dtype), None, True, method)
    children = {}
    for a, b in product((0, 1), repeat=2):
        row, col = corner[0] + 64 * a, corner[1] + 64 * b
        data = z[64 * a : 64 * a + 64, 64 * b : 64 * b + 64]
        window = (row, row + 64, col, col + 64)
        children[a, b] = solver.solve(window, data, np.zeros((64, 64), np.uint8)).region
    sums = solver.weight.new_sums()
    return method.merge(children, shape, solver.weight.rule(), True, sums, 0), children


def test_cells_beyond_32_bits():
    z = np.random.default_rng(1).integers(0, 50, (128, 128)).astype(np.uint16)
    side, far = 2**30, (2**30 - 1024, 2**30 - 512)
    (region, final), _ = four_blocks((256, 256), (64, 64), z, contract)
    (region_far, final_far), _ = four_blocks((side, side), far, z, contract)

    def shifted(cell):
        return (cell // 256 - 64 + far[0]) * side + cell % 256 - 64 + far[1]

    assert final_far.max() > 2**60
    np.testing.assert_array_equal(final_far, 4 * shifted(final >> 2) + (final & 3))
    keys, ids, us, vs = region.candidates
    expected = keys, 4 * shifted(ids >> 2) + (ids & 3), shifted(us), shifted(vs)
    for one, other in zip(region_far.candidates, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("most", [1, 7, 60_000])
def test_what_goes_up_is_bounded_by_the_boundary(most):
    z = np.random.default_rng(most).integers(0, most, (128, 128)).astype(np.uint16)
    (region, final), children = four_blocks((512, 512), (128, 128), z, contract)
    (region_frozen, _), _ = four_blocks((512, 512), (128, 128), z, frozen)
    for child in children.values():
        assert len(child.candidates[0]) <= 2 * (4 * 64 - 4)
    assert len(region.candidates[0]) <= 2 * (4 * 128 - 4)
    assert np.unique(final).size == final.size
    assert not np.isin(final, region.candidates[1]).any()
    # Both keep every edge that cells outside may still need; "contract" names more vertices.
    assert np.isin(region_frozen.candidates[1], region.candidates[1]).all()


# -- the whole route -----------------------------------------------------------------------


def assume_accepted(raster):
    """`Solver` refuses the largest integers of 64 bits."""
    if raster.dtype.kind in "iu" and raster.dtype.itemsize == 8:
        most = np.iinfo(raster.dtype).max
        assume(raster.nodata == most or not (raster.cells == most).any())


def assert_forest(z, *, weight="max", connectivity=8, nodata=None, block_size=64, expected=None):
    """Compare with the reference, or with another result."""
    tree = minimum_spanning_tree(
        z,
        method="contract",
        weight=weight,
        connectivity=connectivity,
        nodata=nodata,
        block_size=block_size,
        threads=2,
    )
    if expected is None:
        expected = reference.kruskal(z, weight, nodata, connectivity)
    mask, total, count = expected
    np.testing.assert_array_equal(tree._forward, mask)
    assert tree.total_weight == total
    assert tree.edge_count == count
    assert tree.components == int(reference.vertices(z, nodata).sum()) - count
    return tree


def test_the_method_is_registered():
    assert METHODS["contract"] is contract
    assert sorted(contract.__all__) == sorted(frozen.__all__)


SHAPES = [(1, 1), (1, 2), (1, 63), (1, 257), (129, 1), (2, 130), (65, 67), (131, 67), (66, 193)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weight", weights.WEIGHTS)
@pytest.mark.parametrize("connectivity", [4, 8])
def test_few_values_and_holes(shape, weight, connectivity):
    z = np.random.default_rng(shape[0]).integers(0, 4, shape).astype(np.int16)
    for nodata in (None, 2):
        assert_forest(z, weight=weight, connectivity=connectivity, nodata=nodata)


@pytest.mark.parametrize("block_size", [64, 128])
@pytest.mark.parametrize("weight", weights.WEIGHTS)
def test_a_flat(weight, block_size):
    z = np.full((130, 70), 7, np.uint8)
    assert_forest(z, weight=weight, block_size=block_size)


@given(
    rasters(shape=shapes(largest=200, cells=6000)),
    st.sampled_from(list(weights.WEIGHTS)),
    st.sampled_from([4, 8]),
    st.sampled_from([64, 128]),
)
@example(Raster(np.dtype(np.float32), (66, 66), None, "ties", special=True), "absdiff", 8, 64)
@example(Raster(np.dtype(np.float64), (66, 66), None, "ties", special=True), "absdiff", 8, 64)
@example(Raster(np.dtype(np.uint8), (70, 80), 0, "hills", "all"), "max", 8, 64)
def test_equal_to_kruskal(raster, weight, connectivity, block_size):
    assume_accepted(raster)
    assume(weight in weights.weights_of(raster.cells.dtype))
    assert_forest(
        raster.cells,
        weight=weight,
        connectivity=connectivity,
        nodata=raster.nodata,
        block_size=block_size,
    )


@given(
    rasters(shape=shapes(largest=400)),
    st.sampled_from(list(weights.WEIGHTS)),
    st.sampled_from([4, 8]),
    block_sizes(largest=256),
)
def test_equal_to_frozen(raster, weight, connectivity, block_size):
    assume_accepted(raster)
    assume(weight in weights.weights_of(raster.cells.dtype))
    options = {"weight": weight, "connectivity": connectivity, "nodata": raster.nodata}
    tree = minimum_spanning_tree(
        raster.cells, method="frozen", block_size=block_size, threads=1, **options
    )
    expected = tree._forward, tree.total_weight, tree.edge_count
    assert_forest(raster.cells, block_size=block_size, expected=expected, **options)
