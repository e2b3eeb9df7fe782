"""The proof of a spanning forest: right forests pass, and no wrong one does."""

from __future__ import annotations

import re

import numpy as np
import pytest
import reference
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import rasters, shapes

from terrain_gpu.engine.machine import Machine
from terrain_gpu.errors import InputError, PlanError, StoreError, VerificationError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.spanning_tree.proof import forest as verify
from terrain_gpu.spanning_tree.proof.forest import verify_arrays, verify_forest
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight, weights_of
from terrain_gpu.store import create_layer

weights = st.sampled_from(list(WEIGHTS))
connectivities = st.sampled_from([8, 4])
small = rasters(shape=shapes(200, 6000))
"""Kruskal in plain Python takes a second for 30 000 cells."""

KINDS = [("max", 8), ("max", 4), ("absdiff", 8), ("absdiff", 4)]


def solved(data, nodata, weight, connectivity):
    """The forest by Kruskal's algorithm, and what a run records about it."""
    mask, total, count = reference.kruskal(data, weight, nodata, connectivity)
    vertices = int(reference.vertices(data, nodata).sum())
    return mask, {"edges": count, "components": vertices - count, "total_weight": total}


def broken(data, nodata, mask, weight, connectivity, **options):
    """The error raised for the edges `mask`."""
    with pytest.raises(VerificationError) as caught:
        verify_arrays(data, nodata, mask, weight, connectivity, **options)
    assert caught.value.exit_code == 1
    return caught.value


def other_end(shape, cell, direction):
    down, right = reference.FORWARD[direction]
    return cell + down * shape[1] + right


def edges_of(mask):
    """(cell, direction) of every edge of a mask."""
    flat = mask.ravel()
    return [(c, d) for c in np.flatnonzero(flat).tolist() for d in range(4) if flat[c] >> d & 1]


def flipped(mask, *edges):
    """The mask with the bits of these (cell, direction) flipped."""
    changed = mask.copy()
    for cell, direction in edges:
        changed.ravel()[cell] ^= np.uint8(1 << direction)
    return changed


def path(mask, u, v):
    """Edges of the forest between two cells of one tree."""
    around = {}
    for cell, d in edges_of(mask):
        other = other_end(mask.shape, cell, d)
        around.setdefault(cell, []).append((other, (cell, d)))
        around.setdefault(other, []).append((cell, (cell, d)))
    came = {u: None}
    reached = [u]
    for at in reached:
        for other, edge in around.get(at, ()):
            if other not in came:
                came[other] = (at, edge)
                reached.append(other)
    found = []
    while v != u:
        v, edge = came[v]
        found.append(edge)
    return found


def swaps(data, nodata, mask, weight, connectivity):
    """(edge in the forest, edge not in it): swapping them gives another spanning forest."""
    for _, cell, d in reference.edges(data, weight, nodata, connectivity):
        if not mask.ravel()[cell] >> d & 1:
            for edge in path(mask, cell, other_end(mask.shape, cell, d)):
                yield edge, (cell, d)


def make_store(folder, data, nodata, mask, block):
    store, layers = folder / "s.zarr", []
    for name, cells, void in (("elevation", data, nodata), ("mst", mask, None)):
        grid = GridSpec(*data.shape)
        with create_layer(store, name, grid, cells.dtype, nodata=void, block_size=block) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, cells[r0:r1, c0:c1])
            layers.append(writer.commit())
    return layers


def terrain(shape, high=50, seed=0):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int16)


# -- right forests -------------------------------------------------------------------------


@settings(max_examples=examples(50))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    block=st.sampled_from([64, 128, 1024]),
    unit=st.sampled_from([7, 16, 61, 64, 128, 1024]),
)
def test_a_right_forest_passes(raster, weight, connectivity, block, unit):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, recorded = solved(data, nodata, weight, connectivity)
    found = verify_arrays(
        data, nodata, mask, weight, connectivity, expected=recorded, block_size=block, unit=unit
    )
    edges = len(reference.edges(data, weight, nodata, connectivity))
    assert found == {**recorded, "checked_edges": edges, "all_edges": True, "backend": "cpu"}
    assert type(found["total_weight"]) is type(recorded["total_weight"]) or not edges


@settings(max_examples=examples(60))
@given(
    raster=rasters(shape=shapes(12, 80)),
    weight=weights,
    connectivity=connectivities,
    unit=st.integers(1, 4),
)
def test_pieces_of_a_few_cells(raster, weight, connectivity, unit):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, recorded = solved(data, nodata, weight, connectivity)
    verify_arrays(data, nodata, mask, weight, connectivity, expected=recorded, unit=unit)


@settings(max_examples=examples(25))
@given(
    raster=small,
    weight=weights,
    connectivity=connectivities,
    block=st.sampled_from([64, 128]),
    threads=st.sampled_from([1, 3]),
    limit=st.sampled_from([None, 300 * 10**6]),
)
def test_stores(folders, no_fsync_session, raster, weight, connectivity, block, threads, limit):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, recorded = solved(data, nodata, weight, connectivity)
    with folders() as folder:
        source, forest = make_store(folder, data, nodata, mask, block)
        found = verify_forest(
            source,
            forest,
            weight=weight,
            connectivity=connectivity,
            expected=recorded,
            memory_limit=limit,
            threads=threads,
        )
        assert {key: found[key] for key in recorded} == recorded


@pytest.fixture(scope="session")
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1, 2, 3, 64])
def test_differences_that_overflow_their_type(dtype, unit):
    top = np.finfo(dtype).max
    data = np.array([[top, -top, 0, top, top, -top]], dtype)
    mask = np.array([[1, 1, 1, 1, 1, 0]], np.uint8)
    for total in (np.inf, "inf", "Infinity"):
        recorded = {"edges": 5, "components": 1, "total_weight": total}
        verify_arrays(data, None, mask, "absdiff", 8, expected=recorded, unit=unit)
    recorded["total_weight"] = float(top)
    assert broken(data, None, mask, "absdiff", 8, expected=recorded, unit=unit).check == "totals"


def test_each_block_is_read_once_and_little_is_kept(monkeypatch, tmp_path, no_fsync):
    data = terrain((200, 150))
    mask, recorded = solved(data, None, "absdiff", 8)
    source, forest = make_store(tmp_path, data, None, mask, 64)
    reads, kept, shown = [], [], []
    read, block = type(source).read_block, verify.ForestChecker.block

    def counted(self, i, j, out=None, *, halo=0):
        reads.append((self.name, i, j, halo))
        return read(self, i, j, out, halo=halo)

    def watched(self, window, *rest):
        piece, tally = block(self, window, *rest)
        kept.append((piece.size, len(piece.edges.ids), window))
        return piece, tally

    monkeypatch.setattr(type(source), "read_block", counted)
    monkeypatch.setattr(verify.ForestChecker, "block", watched)
    verify_forest(
        source,
        forest,
        weight="absdiff",
        connectivity=8,
        expected=recorded,
        progress=lambda cells, total: shown.append((cells, total)),
    )
    every = list(BlockGrid(200, 150, 64).ids())
    assert sorted(reads) == sorted((n, i, j, 0) for n in ("elevation", "mst") for i, j in every)
    assert sum(cells for cells, _ in shown) == data.size
    assert {total for _, total in shown} == {data.size}
    for size, edges, (r0, r1, c0, c1) in kept:
        rim = 2 * (r1 - r0 + c1 - c0)
        assert edges < size < 2 * rim


@pytest.mark.parametrize("unit", [1, 2, 64])
def test_a_weight_of_all_ones_is_an_edge(unit):
    """No edge is all ones, too, where weight and number of an edge do not fit one word."""
    top = np.iinfo(np.uint64).max
    data = np.array([[0, top, 3], [top, top, top], [5, top, 7]], np.uint64)
    for weight in ("max", "absdiff"):
        mask, recorded = solved(data, 3, weight, 4)
        verify_arrays(data, 3, mask, weight, 4, expected=recorded, unit=unit)
        for edge in edges_of(mask):
            assert broken(data, 3, flipped(mask, edge), weight, 4, unit=unit).check == "spanning"


# -- wrong forests -------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "connectivity"), KINDS)
@pytest.mark.parametrize(("unit", "high"), [(1, 3), (2, 1), (3, 1000), (64, 3)])
def test_no_wrong_bit_passes(weight, connectivity, unit, high):
    data = terrain((5, 5), high)
    data[2, 2] = data[4, 0] = -1
    mask, _ = solved(data, -1, weight, connectivity)
    good = reference.vertices(data, -1)
    grid = {(c, d) for _, c, d in reference.edges(data, weight, -1, connectivity)}
    for cell in range(data.size):
        for bit in range(8):
            wrong = flipped(mask, (cell, bit))
            error = broken(data, -1, wrong, weight, connectivity, unit=unit)
            if mask.ravel()[cell] >> bit & 1:
                assert error.check == "spanning"
            elif (cell, bit) in grid:
                # A piece may see a cycle through another edge before the one in the forest.
                assert error.check in ("acyclic", "minimal")
            else:
                assert error.check == "edges"
                assert (error.row, error.col) == divmod(cell, 5)
            if not good.ravel()[cell]:
                assert error.check == "edges"


@pytest.mark.parametrize(("weight", "connectivity"), KINDS)
@pytest.mark.parametrize(("unit", "high"), [(1, 3), (2, 1), (2, 1000), (3, 3), (64, 3)])
def test_no_other_spanning_forest_passes(weight, connectivity, unit, high):
    """Every swap of one edge: for a larger one, or an equal one later in the order."""
    data = terrain((5, 5), high, seed=high)
    data[1, 3] = -1
    mask, recorded = solved(data, -1, weight, connectivity)
    order = {(c, d): w for w, c, d in reference.edges(data, weight, -1, connectivity)}
    equal = 0
    for out, into in swaps(data, -1, mask, weight, connectivity):
        wrong = flipped(mask, out, into)
        error = broken(data, -1, wrong, weight, connectivity, expected=recorded, unit=unit)
        assert error.check == "minimal"
        equal += order[out] == order[into]
    assert equal or high == 1000


@settings(max_examples=examples(40))
@given(
    raster=rasters(shape=shapes(80, 2000)),
    weight=weights,
    connectivity=connectivities,
    unit=st.sampled_from([5, 16, 64]),
    draw=st.data(),
)
def test_mutations(raster, weight, connectivity, unit, draw):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    mask, _ = solved(data, nodata, weight, connectivity)
    have = edges_of(mask)
    others = [
        (c, d)
        for _, c, d in reference.edges(data, weight, nodata, connectivity)
        if not mask.ravel()[c] >> d & 1
    ]
    assume(others)
    options = (data, nodata, weight, connectivity)

    def check_of(*edges):
        data, nodata, *rest = options
        return broken(data, nodata, flipped(mask, *edges), *rest, unit=unit).check

    removed, added = draw.draw(st.sampled_from(have)), draw.draw(st.sampled_from(others))
    assert check_of(removed) == "spanning"
    assert check_of(added) in ("acyclic", "minimal")
    cycle = path(mask, added[0], other_end(data.shape, *added))
    assert check_of(draw.draw(st.sampled_from(cycle)), added) == "minimal"
    outside = [edge for edge in have if edge not in cycle]
    if outside:
        # As many edges as before, but a cycle here and a gap there.
        check_of(draw.draw(st.sampled_from(outside)), added)


@settings(max_examples=examples(60))
@given(
    raster=rasters(shape=shapes(70, 1500), voids=("none", "sparse", "lakes")),
    weight=weights,
    connectivity=connectivities,
    other=st.sampled_from(KINDS),
    unit=st.sampled_from([5, 16, 64]),
)
def test_the_forest_of_other_settings_passes_only_when_it_is_the_same(
    raster, weight, connectivity, other, unit
):
    data, nodata = raster.cells, raster.nodata
    assume(weight in weights_of(data.dtype))
    right, _ = solved(data, nodata, weight, connectivity)
    mask, _ = solved(data, nodata, *other)
    if np.array_equal(mask, right):
        verify_arrays(data, nodata, mask, weight, connectivity, unit=unit)
    else:
        broken(data, nodata, mask, weight, connectivity, unit=unit)


def test_exchanges_across_blocks_are_caught_in_stores(tmp_path, no_fsync):
    data = terrain((130, 70), 30)
    mask, recorded = solved(data, None, "max", 8)
    rng = np.random.default_rng(1)

    def block(cell):
        return cell // 70 // 64, cell % 70 // 64

    across = [
        (c, d)
        for _, c, d in reference.edges(data, "max")
        if not mask.ravel()[c] >> d & 1 and block(c) != block(other_end(data.shape, c, d))
    ]
    for k in rng.choice(len(across), 8, replace=False):
        into = across[k]
        cycle = path(mask, into[0], other_end(data.shape, *into))
        wrong = flipped(mask, cycle[rng.integers(len(cycle))], into)
        folder = tmp_path / str(k)
        folder.mkdir()
        source, forest = make_store(folder, data, None, wrong, 64)
        with pytest.raises(VerificationError, match="not minimal") as caught:
            verify_forest(source, forest, weight="max", connectivity=8, expected=recorded)
        assert caught.value.check == "minimal"


@pytest.mark.parametrize(
    ("key", "wrong"), [("edges", 1), ("components", -1), ("total_weight", 1), ("total_weight", 0.5)]
)
@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_wrong_totals(key, wrong, dtype):
    data = terrain((20, 30)).astype(dtype)
    mask, recorded = solved(data, None, "absdiff", 8)
    recorded[key] += wrong
    error = broken(data, None, mask, "absdiff", 8, expected=recorded)
    assert error.check == "totals"
    assert key in str(error)
    assert str(recorded[key]) in str(error)


def test_messages_name_the_edges():
    data = np.array([[1, 2], [3, 4]], np.uint8)  # its forest: E and S of 1, E of 3 or S of 2
    edge = r"\(row \d+, column \d+\)-\(row \d+, column \d+\)"
    for mask, connectivity, check, text in (
        ([[5, 0], [1, 0]], 4, "minimal", r"edge \(row 1, column 0\)-\(row 1, column 1\) is the"),
        (
            [[5, 4], [1, 0]],
            4,
            "acyclic",
            rf"closes a cycle through {edge}",
        ),
        (
            [[1, 4], [0, 0]],
            4,
            "spanning",
            r"edge \(row 0, column 0\)-\(row 1, column 0\) joins two",
        ),
        ([[13, 0], [0, 0]], 4, "edges", "is diagonal"),
        (
            [[5, 5], [0, 0]],
            8,
            "edges",
            r"\(row 0, column 1\)-\(row 0, column 2\) leaves the raster",
        ),
        ([[5, 16], [0, 0]], 8, "edges", "bits that are not edges"),
    ):
        error = broken(data, None, np.array(mask, np.uint8), "max", connectivity)
        assert error.check == check, str(error)
        assert re.search(text, str(error))
        assert re.search(edge, str(error))
        assert f"(row {error.row}, column {error.col})" in str(error)
    error = broken(data, 4, np.array([[5, 4], [0, 0]], np.uint8), "max", 8)
    assert "without a value" in str(error)


def test_messages_of_stores_name_the_layer(tmp_path, no_fsync):
    data = terrain((70, 70))
    mask, recorded = solved(data, None, "max", 8)
    source, forest = make_store(tmp_path, data, None, flipped(mask, edges_of(mask)[0]), 64)
    with pytest.raises(VerificationError) as caught:
        verify_forest(source, forest, weight="max", connectivity=8, expected=recorded)
    assert str(caught.value).startswith(str(tmp_path / "s.zarr" / "mst"))
    assert "--overwrite" in str(caught.value)


# -- wrong inputs --------------------------------------------------------------------------


def test_wrong_inputs(tmp_path, no_fsync):
    data = terrain((70, 70))
    mask, recorded = solved(data, None, "max", 8)
    source, forest = make_store(tmp_path, data, None, mask, 64)
    (tmp_path / "a").mkdir()
    smaller, _ = make_store(tmp_path / "a", data[:64], None, mask[:64], 64)
    options = {"weight": "max", "connectivity": 8, "expected": recorded}
    verify_forest(source, forest, **options)
    for layers, changed, error, text in (
        ((source, forest), {"connectivity": 6}, InputError, "connectivity 6"),
        ((source, forest), {"weight": "mean"}, InputError, "'mean'"),
        ((source, source), {}, InputError, "are not edges"),
        ((smaller, forest), {}, InputError, "blocks of"),
        ((source, forest), {"memory_limit": 10**6}, PlanError, r"give at least \d+ MB"),
    ):
        with pytest.raises(error, match=text):
            verify_forest(*layers, **{**options, **changed})
    with pytest.raises(InputError, match="shape"):
        verify_arrays(data, None, mask[1:], "max", 8)
    with pytest.raises(InputError, match="uint8"):
        verify_arrays(data, None, mask.astype(np.int32), "max", 8)


def test_the_memory_limit_that_is_asked_for_is_enough(tmp_path, no_fsync):
    source, _ = make_store(tmp_path, terrain((70, 70)), None, np.zeros((70, 70), np.uint8), 64)
    with pytest.raises(PlanError) as caught:
        verify._pool(source, Weight("max", source.dtype), Machine.of(1, 4))
    least = int(re.search(r"at least (\d+) MB", str(caught.value))[1])
    assert verify._pool(source, Weight("max", source.dtype), Machine.of(least * 10**6, 4))[0] == 1
    assert verify._pool(source, Weight("max", source.dtype), Machine.of(2**40, 9)) == (4, 4)


def test_a_damaged_shard_stops_it(tmp_path, no_fsync):
    data = terrain((70, 70))
    mask, recorded = solved(data, None, "max", 8)
    source, forest = make_store(tmp_path, data, None, mask, 64)
    shard = forest.shard_path(1, 1)
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(StoreError, match="mst"):
        verify_forest(source, forest, weight="max", connectivity=8, expected=recorded)
