"""The raster's frame: refusals, windows, blocks in Z-order, shapes nobody could allocate."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rasterio.crs import CRS
from strategies import WGS84, block_sizes, grids, shapes, windows

from terrain_gpu.engine.plan import PER_ROW
from terrain_gpu.errors import InputError, TerrainError
from terrain_gpu.grid import (
    MAX_BLOCK,
    MAX_SIDE,
    TILE,
    BlockGrid,
    GridSpec,
    ceil_div,
    clip,
    is_empty,
    morton,
    round_up,
    z_rank_table,
)
from terrain_gpu.grid.lengths import area_units, cell_areas, step_lengths, whole_lengths
from terrain_gpu.hydrology.divided_flow.division import geometry

small_grids = grids(shape=shapes(200))
huge = st.one_of(st.integers(1, MAX_SIDE), st.sampled_from([MAX_SIDE, 2**31 - 64, 2**21, 2**16]))


# -- GridSpec ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "cols"), [(0, 1), (1, 0), (-1, 5), (5, -1), (2**31, 1), (1, 2**31), (2**40, 2**40)]
)
def test_impossible_shapes_are_refused(rows, cols):
    with pytest.raises(
        InputError, match=f"{rows} x {cols} cells: each side must be 1 .. 2147483647"
    ):
        GridSpec(rows, cols)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(6))
def test_transforms_must_be_finite(place, value):
    transform = [1.0, 0.0, 0.0, 0.0, -1.0, 0.0]
    transform[place] = value
    with pytest.raises(InputError, match="not invertible"):
        GridSpec(2, 2, tuple(transform))


@pytest.mark.parametrize("place", [0, 4])
def test_cells_must_have_a_size(place):
    transform = [1.0, 0.0, 0.0, 0.0, -1.0, 0.0]
    transform[place] = 0.0
    with pytest.raises(InputError, match="not invertible"):
        GridSpec(2, 2, tuple(transform))


@pytest.mark.parametrize("place", [1, 3])
def test_rotated_rasters_are_refused_with_a_remedy(place):
    transform = [1.0, 0.0, 0.0, 0.0, -1.0, 0.0]
    transform[place] = 1e-9
    with pytest.raises(InputError, match=r"rotated or sheared; .*gdalwarp"):
        GridSpec(2, 2, tuple(transform))


def test_errors_are_value_errors_too():
    with pytest.raises(ValueError, match="each side must be") as caught:
        GridSpec(0, 0)
    assert isinstance(caught.value, TerrainError)


@given(grids())
def test_counts_are_exact_and_nothing_is_allocated(grid):
    assert grid.cells == grid.rows * grid.cols
    assert grid.shape == (grid.rows, grid.cols)
    assert grid.window == (0, grid.rows, 0, grid.cols)
    west, south, east, north = grid.bounds
    a, _, c, _, e, f = grid.transform
    assert {west, east} == {c, c + a * grid.cols}
    assert {south, north} == {f, f + e * grid.rows}
    assert west < east
    assert south < north


@given(small_grids)
def test_centres_lie_half_a_cell_inside(grid):
    x, y = grid.x_centres(), grid.y_centres()
    a, _, c, _, e, f = grid.transform
    assert (x.dtype, y.dtype, x.size, y.size) == (np.float64, np.float64, grid.cols, grid.rows)
    assert x.tolist() == [c + a * (k + 0.5) for k in range(grid.cols)]
    assert y.tolist() == [f + e * (k + 0.5) for k in range(grid.rows)]


@given(grids(), st.data())
def test_a_window_and_the_bounds_of_its_crop_are_one(grid, data):
    window = data.draw(windows(grid.shape))
    part = grid.crop(window)
    assert part.shape == (window[1] - window[0], window[3] - window[2])
    assert (part.crs_wkt, part.crs_code) == (grid.crs_wkt, grid.crs_code)
    assert grid.window_of(part.bounds) == window
    assert grid.window_of(grid.bounds) == grid.window
    assert grid.crop(grid.window) == grid


@given(small_grids, st.data())
def test_bounds_choose_the_cells_they_touch(grid, data):
    """Against every cell looked at, with bounds off the grid lines and partly off the raster."""
    a, _, c, _, e, f = grid.transform
    quarter = st.integers(-9, 4 * max(grid.shape) + 9).map(lambda k: k / 4 + 0.125)
    p, q = sorted(data.draw(st.tuples(quarter, quarter)))
    r, s = sorted(data.draw(st.tuples(quarter, quarter)))
    assume(p < q and r < s)
    x, y = sorted((c + a * p, c + a * q)), sorted((f + e * r, f + e * s))
    cols = [k for k in range(grid.cols) if k + 1 > p and k < q]
    rows = [k for k in range(grid.rows) if k + 1 > r and k < s]
    bounds = (x[0], y[0], x[1], y[1])
    if rows and cols:
        expected = (rows[0], rows[-1] + 1, cols[0], cols[-1] + 1)
        assert grid.window_of(bounds) == expected
    else:
        with pytest.raises(InputError, match="do not touch the raster, which covers"):
            grid.window_of(bounds)


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 0, 1, 5),
        (2, 0, 1, 5),
        (0, 3, 5, 3),
        (0, 4, 5, 3),
        (math.nan, 0, 1, 1),
        (0, 0, math.inf, 1),
    ],
)
def test_empty_bounds_are_refused(bounds):
    with pytest.raises(InputError, match="are empty; give WEST SOUTH EAST NORTH"):
        GridSpec(10, 10, (1.0, 0, 0, 0, -1.0, 10.0)).window_of(bounds)


@pytest.mark.parametrize("nudge", [-4e-7, 0.0, 4e-7])
def test_bounds_a_hair_off_a_grid_line_count_as_on_it(nudge):
    grid = GridSpec(100, 100, (0.1, 0, 0, 0, -0.1, 10.0))
    bounds = tuple(v + nudge * 0.1 for v in (1.0, 2.0, 3.0, 4.0))
    assert grid.window_of(bounds) == (60, 80, 10, 30)


@given(grids(), st.data())
def test_the_same_place_allows_a_thousandth_of_a_cell(grid, data):
    assert grid.same_place(grid)
    k = data.draw(st.sampled_from([2, 5]))
    cell = abs(grid.transform[k - 2 if k == 2 else 4])
    for part, same in ((0.0009, True), (0.0011, False), (-0.0009, True), (-0.0011, False)):
        moved = list(grid.transform)
        moved[k] += part * cell
        assume(abs((moved[k] - grid.transform[k]) / cell - part) < 5e-5)
        assert grid.same_place(GridSpec(*grid.shape, tuple(moved))) is same


@given(grids(shape=st.tuples(st.integers(2, MAX_SIDE), st.integers(2, MAX_SIDE))))
def test_the_same_place_compares_the_far_corner(grid):
    """A cell size that differs a little ends cells away on the other side."""
    for k, count in ((0, grid.cols), (4, grid.rows)):
        other = list(grid.transform)
        other[k] *= 1 + 0.01 / count
        assume(0.009 < abs(other[k] / grid.transform[k] - 1) * count < 0.011)
        assert not grid.same_place(GridSpec(*grid.shape, tuple(other)))


def test_other_shapes_are_other_places():
    assert not GridSpec(5, 6).same_place(GridSpec(6, 5))
    assert not GridSpec(5, 6).same_place(GridSpec(5, 7))


# -- windows -------------------------------------------------------------------------------

spans = st.tuples(*[st.integers(-5, 12)] * 4)


@given(spans, spans)
def test_clip_is_the_intersection(one, other):
    def members(w):
        return set(itertools.product(range(w[0], w[1]), range(w[2], w[3])))

    clipped = clip(one, other)
    assert members(clipped) == members(one) & members(other)
    assert is_empty(clipped) == (not members(clipped))


@given(st.integers(0, 2**62), st.integers(1, 2**31))
def test_division_rounds_up(a, b):
    assert (ceil_div(a, b) - 1) * b < a <= ceil_div(a, b) * b
    assert round_up(a, b) == ceil_div(a, b) * b


# -- BlockGrid -----------------------------------------------------------------------------


@pytest.mark.parametrize("block", [0, 1, 32, 63, 65, 96, 192, 16384, -64])
def test_impossible_block_sizes_are_refused(block):
    with pytest.raises(
        InputError, match=f"block size {block} is not a power of two from 64 to 8192"
    ):
        BlockGrid(100, 100, block)


@given(st.integers(1, 5000), st.integers(1, 5000), block_sizes(256))
def test_ids_are_all_blocks_in_z_order(rows, cols, block):
    blocks = BlockGrid(rows, cols, block)
    down, across = blocks.shape
    every = itertools.product(range(down), range(across))
    found = list(blocks.ids())
    assert found == sorted(every, key=lambda b: morton.encode(*b))
    assert len(found) == blocks.count == down * across


@given(shapes(400, cells=160_000), block_sizes(256))
def test_block_windows_cut_the_raster_exactly_once(shape, block):
    blocks = BlockGrid(*shape, block)
    seen = np.zeros(shape, np.int8)
    for i, j in blocks.ids():
        r0, r1, c0, c1 = blocks.window(i, j)
        assert (r0, c0) == (i * block, j * block)
        assert 0 < r1 - r0 <= block
        assert 0 < c1 - c0 <= block
        seen[r0:r1, c0:c1] += 1
    assert (seen == 1).all()


@given(huge, huge, st.sampled_from([64, 1024, MAX_BLOCK]))
def test_blocks_of_huge_rasters_need_no_memory(rows, cols, block):
    """Up to 2**62 cells: exact counts, the first ids at once, the last block clipped."""
    blocks = BlockGrid(rows, cols, block)
    down, across = blocks.shape
    assert (down - 1) * block < rows <= down * block
    assert (across - 1) * block < cols <= across * block
    assert blocks.count == down * across
    first = list(itertools.islice(blocks.ids(), 100))
    assert len(first) == min(100, blocks.count)
    codes = [morton.encode(*b) for b in first]
    assert codes == sorted(set(codes))
    assert all(0 <= i < down and 0 <= j < across for i, j in first)
    if min(down, across) >= 16:
        assert first == [(morton.decode_row(k), morton.decode_col(k)) for k in range(100)]
    r0, r1, c0, c1 = blocks.window(down - 1, across - 1)
    assert (r1, c1) == (rows, cols)
    assert 0 < r1 - r0 <= block
    assert 0 < c1 - c0 <= block


@pytest.mark.parametrize(
    ("rows", "cols"),
    [(46341, 46342), (2**16, 2**16), (2**20, 2**21), (2**31 - 1, 2**31 - 1), (1, 2**31 - 1)],
)
def test_cells_beyond_32_bits(rows, cols):
    grid = GridSpec(rows, cols)
    assert grid.cells == int(rows) * int(cols)
    last = grid.crop((rows - 1, rows, cols - 1, cols))
    assert last.cells == 1
    assert last.transform[2] == cols - 1
    assert last.transform[5] == 1 - rows
    assert grid.window_of(last.bounds) == (rows - 1, rows, cols - 1, cols)


def test_ids_of_a_long_strip_are_walked_lazily():
    """Quadrants outside the raster are skipped whole: a strip costs only its length."""
    blocks = BlockGrid(1, MAX_SIDE, 8192)
    assert list(blocks.ids()) == [(0, j) for j in range(2**18)]


@given(block_sizes())
def test_rank_tables_are_morton_codes_of_tiles(block):
    table = z_rank_table(block)
    side = block // TILE
    assert table.shape == (side, side)
    assert table.dtype == np.int64
    assert table[-1, -1] == side * side - 1
    for i, j in ((0, 0), (side - 1, 0), (side // 2, side // 3)):
        assert table[i, j] == morton.encode(i, j)


@pytest.mark.parametrize("crs", [CRS.from_epsg(32633).to_wkt(), WGS84])
def test_measures_of_a_long_raster_take_what_is_planned(crs):
    """Also while they are computed: temporaries are small."""
    rows = 300_000
    grid = GridSpec(rows, 3, (0.01, 0.0, 7.0, 0.0, -0.0001, 50.0), crs)
    known = {
        lambda: whole_lengths(grid, step_lengths(grid)): PER_ROW,
        lambda: area_units(grid): PER_ROW // 2,
        lambda: cell_areas(grid): PER_ROW // 4,
        lambda: geometry(grid): 3 * PER_ROW,
    }
    for measure, each in known.items():
        tracemalloc.start()
        try:
            measure()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < each * rows + 4_000_000
