"""Kernels of a block of the spanning forest, against plain numpy over whole arrays."""

import numpy as np
import pytest

from terrain_gpu.engine.proof import around
from terrain_gpu.grid.neighbours import COL_STEP, ROW_STEP
from terrain_gpu.hydrology.common.cell_kernels import cells_beside
from terrain_gpu.hydrology.forest.block_kernels import crossing_edges, cut_rim
from terrain_gpu.hydrology.forest.skeleton_kernels import by_number, keep_joined, number_vertices

SHAPES = (1, 1), (1, 7), (5, 1), (2, 2), (6, 9)


def leaving(links):
    """Cells, neighbours' numbers and ends, in the array with its margin, of edges that leave it."""
    rows, cols = links.shape
    for row, col, k in np.ndindex(rows, cols, 8):
        r, c = row + ROW_STEP[k], col + COL_STEP[k]
        if links[row, col] >> k & 1 and not (0 <= r < rows and 0 <= c < cols):
            yield row * cols + col, k, (r + 1, c + 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_that_leave_a_block(shape):
    rng = np.random.default_rng(2)
    links = rng.integers(0, 256, shape).astype(np.uint8)
    valid, before = np.ones((shape[0] + 2, shape[1] + 2), bool), links.copy()
    expected = list(leaving(links))
    cells, steps, sound = cut_rim(valid, links)
    assert sound
    assert list(zip(cells.tolist(), steps.tolist(), strict=True)) == [one[:2] for one in expected]
    assert not list(leaving(links))
    np.bitwise_or.at(links.reshape(-1), cells, np.uint8(1) << steps)
    assert np.array_equal(links, before)
    for end in {one[2] for one in expected}:
        valid[end] = False
        assert not cut_rim(valid, before.copy())[2]
        valid[end] = True
    valid[1, 1], before[0, 0] = False, 1
    assert not cut_rim(valid, before.copy())[2]
    before[...] = 0
    assert cut_rim(valid, before)[2]


def test_edges_from_lower_endpoints():
    cells, steps = np.array([0, 5, 5, 7], np.int32), np.array([4, 0, 1, 3], np.uint8)
    corner = np.array((10, 12, 20, 24, 100))  # 2 x 4 cells of 100 columns
    ends, ids = crossing_edges(cells, steps, corner)
    assert ends.tolist() == [[1121, 1122], [1121, 1222], [1123, 1222]]
    assert ids.tolist() == [4 * 1121, 4 * 1121 + 3, 4 * 1123 + 1]


def test_vertices_of_an_outline():
    order, number = np.array([7, 3, 1, 4, 9, 0], np.int32), np.full(10, 5, np.int32)
    terminals, count = number_vertices(order, *map(np.int32, ([1, 1, 4], [4, 9])), number)
    assert (terminals.tolist(), count) == ([1, 4], 3)
    assert number[order].tolist() == [-1, -1, 0, 1, 2, -1]
    number[7] = 3  # a branching point
    values = np.arange(10) * 10
    assert by_number(order, number, 4, values).tolist() == [10, 40, 90, 70]
    ends = np.array([[1, 3]], np.int32)
    keep, renumbered = keep_joined(4, 2, ends)
    assert (keep.tolist(), renumbered[keep].tolist()) == ([True, True, False, True], [0, 1, 2])
    assert ends.tolist() == [[1, 2]]


@pytest.mark.parametrize("shape", SHAPES)
def test_cells_beside(shape):
    rng = np.random.default_rng(4)
    for share in (0, 0.1, 0.5):
        beyond = rng.random((shape[0] + 2, shape[1] + 2)) < share
        valid = ~beyond & (rng.random(beyond.shape) < 0.8)
        beside = np.flatnonzero(valid[1:-1, 1:-1] & around(beyond))
        assert np.array_equal(cells_beside(valid, beyond), beside)
