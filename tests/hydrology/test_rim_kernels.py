"""Lists of cells at the rims of blocks, against plain numpy over masks of whole windows."""

import itertools

import numpy as np
import pytest

from terrain_gpu.grid.neighbours import COL_STEP, ROW_STEP
from terrain_gpu.hydrology.along_flow.kernels import number_outlets, take_in
from terrain_gpu.hydrology.along_flow.rim_kernels import (
    entries,
    fill_ring,
    filled_at,
    known_at,
    ring_cells,
)
from terrain_gpu.hydrology.common.cell_kernels import cells_of, ids_of

SHAPES = (1, 1), (1, 7), (5, 1), (2, 2), (4, 6), (17, 13)


def ring_of(shape):
    """The mask of the outermost cells."""
    mask = np.ones(shape, bool)
    mask[1:-1, 1:-1] = False
    return mask


def ringed(shape):
    return shape[0] + 2, shape[1] + 2


@pytest.mark.parametrize("shape", SHAPES)
def test_cells_of_the_ring(shape):
    mask = ring_of(ringed(shape))
    assert np.array_equal(ring_cells(*mask.shape), np.flatnonzero(mask))
    for dtype in (np.float32, np.int64):
        values = np.zeros(mask.shape, dtype)
        fill_ring(values, dtype(7))
        assert np.array_equal(values, 7 * mask)


@pytest.mark.parametrize("shape", SHAPES)
def test_entries_are_where_the_ring_drains_to(shape):
    rng = np.random.default_rng(3)
    for _ in range(20):
        codes = rng.choice([0, 255, *(1 << np.arange(8))], ringed(shape)).astype(np.uint8)
        ring, found = ring_of(codes.shape), set()
        for (row, col), k in itertools.product(np.argwhere(ring), range(8)):
            r, c = row + ROW_STEP[k], col + COL_STEP[k]
            inside = 0 < r <= shape[0] and 0 < c <= shape[1]
            if inside and codes[row, col] == 1 << k and codes[r, c] != 255:
                found.add(r * codes.shape[1] + c)
        assert entries(codes).tolist() == sorted(found)


@pytest.mark.parametrize("window", [(0, 4, 0, 5), (-1, 5, -1, 6), (3, 10, 4, 12), (8, 9, 2, 3)])
def test_known_cells_at_the_rim_of_a_window(window):
    rows, cols, rng = 9, 11, np.random.default_rng(5)
    r0, r1, c0, c1 = window
    row, col = np.argwhere(ring_of((r1 - r0, c1 - c0))).T + np.array([[r0], [c0]])
    there = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
    rim = row[there] * cols + col[there]
    for share in (0, 0.3, 1):
        ids = np.flatnonzero(rng.random(rows * cols) < share)
        assert np.array_equal(known_at(ids, window, rows, cols), np.flatnonzero(np.isin(ids, rim)))


def test_cells_and_ids():
    window, cols = (np.int64(3) * 10**9, 7), 2 * 10**9
    row, col = np.divmod(np.arange(20), 5)
    ids = (window[0] + row) * cols + window[1] + col
    cells = np.arange(20, dtype=np.int32)
    assert np.array_equal(ids_of(cells, *window, 5, cols), ids)
    assert np.array_equal(cells_of(ids, *window, 5, cols), cells)
    assert ids_of(np.array([-1, -2, 0]), *window, 5, cols).tolist() == [-1, -1, ids[0]]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_what_enters_is_taken_in(dtype):
    sums = np.arange(6, dtype=dtype).reshape(2, 3)
    cells, amounts = np.array([1, 4], np.int32), np.array([10, 2])
    take_in(sums, cells, amounts, True)
    assert sums.tolist() == [[0, 11, 2], [3, 6, 5]]
    take_in(sums, cells, amounts, False)
    assert sums.tolist() == [[0, 11, 2], [3, 6, 5]]
    take_in(sums, cells, amounts + 3, False)
    assert sums.tolist() == [[0, 13, 2], [3, 6, 5]]


@pytest.mark.parametrize("shape", SHAPES)
def test_outlets_are_numbered_from_left_to_right(shape):
    rng = np.random.default_rng(1)
    codes = rng.choice([0, 1, 255], ringed(shape)).astype(np.uint8)
    firsts, numbers = 100 * np.arange(shape[0]), np.full(codes.shape, -1)
    number_outlets(codes, firsts, numbers)
    outlets = codes == 0
    outlets[ring_of(codes.shape)] = False
    expected = np.zeros(codes.shape, np.int64)
    for row, first in enumerate(firsts, 1):
        expected[row, outlets[row]] = first + np.arange(outlets[row].sum())
    assert np.array_equal(numbers, expected)


def test_where_amounts_are_not_empty():
    amounts = np.array([[0, 3, 0, 0], [0, 0, -1, 0]])
    assert filled_at(amounts, 0).tolist() == [1, 2]
    assert filled_at(amounts[:1], 0).tolist() == [1]
    assert filled_at(amounts, 5).tolist() == [0, 1, 2, 3]
    assert filled_at(amounts[:, :0], 0).tolist() == []
