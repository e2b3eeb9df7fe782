"""Joining regions: numbers of their border cells, edges across the cuts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import reference
from hypothesis import assume, given
from hypothesis import strategies as st

from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.neighbours import DIRECTIONS
from terrain_gpu.spanning_tree.cpu import merge
from terrain_gpu.spanning_tree.cpu.merge import Frame
from terrain_gpu.spanning_tree.region import Border, Region
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight, valid_cells, weights_of


def nothing(key):
    return np.empty(0, key), *(np.empty(0, np.int64) for _ in range(3))


@st.composite
def siblings(draw):
    """Siblings of odd sizes somewhere in a raster: children, their cells, corner, whole shape."""
    heights = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    widths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    corner = draw(st.tuples(*[st.sampled_from([0, 1, 3, 2**29])] * 2))
    beyond = draw(st.tuples(*[st.sampled_from([0, 1, 2**29])] * 2))
    shape = corner[0] + sum(heights) + beyond[0], corner[1] + sum(widths) + beyond[1]
    dtype = draw(st.sampled_from([np.uint8, np.int32, np.int64, np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    z = rng.integers(0, draw(st.sampled_from([2, 100])), (sum(heights), sum(widths))).astype(dtype)
    return z, corner, shape, heights, widths


def joined(z, corner, shape, heights, widths, weight):
    children = {}
    for a, b in product(range(len(heights)), range(len(widths))):
        r, c = sum(heights[:a]), sum(widths[:b])
        data = z[r : r + heights[a], c : c + widths[b]]
        row, col = corner[0] + r, corner[1] + c
        window = (row, row + heights[a], col, col + widths[b])
        border = Border.of_block(weight.operands(data), valid_cells(data, 1))
        children[a, b] = Region(window, border, nothing(weight.key_dtype))
    return Frame(children, shape)


@given(siblings())
def test_border_cells_have_numbers_of_their_own(drawn):
    z, corner, shape, heights, widths = drawn
    frame = joined(*drawn, Weight("max", z.dtype))
    row, col = (np.array(a) for a in zip(*np.ndindex(z.shape), strict=True))
    bounds = [np.cumsum([0, *sizes]) for sizes in (heights, widths)]
    rim = np.zeros(len(row), bool)
    for at, ends, first, size in zip((row, col), bounds, corner, shape, strict=True):
        starts = ends[:-1] if first else ends[1:-1]
        stops = ends[1:] if first + ends[-1] < size else ends[1:-1]
        rim |= np.isin(at, starts) | np.isin(at, stops - 1)
    cells = (corner[0] + row[rim]) * shape[1] + corner[1] + col[rim]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_STRIP", 7)
        numbers = frame.number(cells)
    assert np.array_equal(frame.cells[numbers], cells)
    assert set(frame.cells.tolist()) == set(cells.tolist())


@given(siblings())
def test_open_cells(drawn):
    z, corner, shape, *_ = drawn
    frame = joined(*drawn, Weight("max", z.dtype))
    for cell, found in zip(frame.cells.tolist(), frame.is_open(frame.cells), strict=True):
        around = [
            (cell // shape[1] + r, cell % shape[1] + c) for r in (-1, 0, 1) for c in (-1, 0, 1)
        ]
        assert found == any(
            0 <= r < shape[0]
            and 0 <= c < shape[1]
            and not (0 <= r - corner[0] < z.shape[0] and 0 <= c - corner[1] < z.shape[1])
            for r, c in around
        )


@given(siblings(), st.sampled_from(list(WEIGHTS)), st.booleans())
def test_edges_across_the_cuts(drawn, name, diagonal):
    z, corner, shape, heights, widths = drawn
    assume(name in weights_of(z.dtype))
    lengths = np.array([[3.0], [5.0], [4.0], [6.0]])
    weight = Weight(name, z.dtype, GridSpec(*shape))
    # Rasters may have more rows than memory has room for.
    vars(weight)["_per_length"] = np.broadcast_to(1 / lengths, (4, shape[0]))
    keys, ids, us, vs = joined(*drawn, weight).edges(weight.rule(), diagonal)
    sibling = [np.repeat(np.arange(len(sizes)), sizes) for sizes in (heights, widths)]
    expected = {}
    for row, col in np.ndindex(z.shape):
        for d, (r, c) in enumerate(DIRECTIONS):
            y, x = row + r, col + c
            if (d % 2 and not diagonal) or y >= z.shape[0] or not 0 <= x < z.shape[1]:
                continue
            apart = any(s[i] != s[k] for s, i, k in zip(sibling, (row, col), (y, x), strict=True))
            if apart and z[row, col] != 1 and z[y, x] != 1:
                lower, upper = (
                    (corner[0] + i) * shape[1] + corner[1] + k for i, k in ((row, col), (y, x))
                )
                key = reference.weight_of(z[row, col], z[y, x], name)
                if name == "flow":
                    key = key, -reference.slope_of(z[row, col], z[y, x], lengths[d, 0])
                expected[4 * lower + d] = {lower, upper}, key
    assert keys.dtype == weight.key_dtype
    assert sorted(ids.tolist()) == sorted(expected)
    for edge, u, v in zip(ids.tolist(), us.tolist(), vs.tolist(), strict=True):
        assert {u, v} == expected[edge][0]
    # Keys have the order of the weights.
    plain = [expected[edge][1] for edge in ids.tolist()]
    order = np.argsort(keys, kind="stable")
    assert [plain[k] for k in order] == sorted(plain)
    assert len(set(keys.tolist())) == len(set(plain))


def test_differences_beyond_the_type():
    z = np.array([[3e38, -3e38]], np.float32)
    weight = Weight("absdiff", z.dtype)
    keys, *_ = joined(z, (0, 0), (1, 2), [1], [1, 1], weight).edges(weight.rule(), True)
    assert keys.view(np.float32).tolist() == [np.inf]
