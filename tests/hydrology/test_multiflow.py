"""Flow accumulation where cells divide what drains through them, against plain Python."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import reference
from contract import OperationContract, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dtypes, rasters, shapes
from test_flats import lakes
from test_flow import call, right_codes, small, store_of_codes

from terrain_gpu import TileStore, fill, flow_accumulation, flow_direction, minimum_spanning_tree
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import area_units, step_lengths
from terrain_gpu.hydrology.common.sums import EXACT_BITS
from terrain_gpu.hydrology.divided_flow import base, division
from terrain_gpu.hydrology.divided_flow.visits import FlowVisits
from terrain_gpu.hydrology.flow_accumulation.divided import MultipleFlow

heights = dtypes().filter(lambda dtype: dtype.kind == "f" or dtype.itemsize <= 4)
METHODS = ("dinf", "mfd", "quinn")


def prepare(store, outlets="low_edge", gradient=False):
    """Filled heights and directions."""
    minimum_spanning_tree(store, weight="flow", backend="cpu")
    flow_direction(store, outlets, into="tree" if gradient else "flow_direction")
    fill(store, directions="tree" if gradient else "flow_direction")
    if gradient:
        flow_direction(store, outlets, flats="gradient")
    opened = TileStore.open(store)
    return [whole(opened.layer(name)) for name in ("filled", "flow_direction")]


def unit_of(grid):
    """Of cells: 2^-50 of the raster, at least."""
    return 2.0 ** (int(grid.cells).bit_length() - EXACT_BITS)


def right(levels, codes, grid, method, exponent):
    units = np.full(codes.shape, round(1 / unit_of(grid)))
    lengths = step_lengths(grid)
    sums = reference.divided_flow(levels, codes, units, method, exponent, lengths)
    return sums.astype(np.int64) * unit_of(grid)


class TestMultipleFlowContract(OperationContract):
    representative = True
    command = "flow-accumulation s.zarr --method mfd"
    rasters = small

    def prepare(self, store):
        prepare(store)

    def make(self, store):
        return MultipleFlow(str(store))

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        levels = reference.filled(data, codes, nodata)
        return [right(levels, codes, grid, "mfd", 1.1)]


@settings(max_examples=examples(12))
@given(
    z=lakes(),
    block=st.sampled_from([64, 128, 512]),
    method=st.sampled_from(METHODS),
    outlets=st.sampled_from(["low_edge", "low_border", "edge"]),
    gradient=st.booleans(),
)
def test_lakes_with_islands_divide_their_flow(folders, z, block, method, outlets, gradient):
    nodata = z.dtype.type(-1) if z.dtype.kind != "u" else np.iinfo(z.dtype).max
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, nodata.item() if nodata < 0 else nodata, block)
        levels, codes = prepare(store, outlets, gradient)
        found = flow_accumulation(store, method=method, verify=True)
        sums, grid = whole(found.layers["flow_accumulation"]), TileStore.open(store).grid
        assert same(sums, right(levels, codes, grid, method, division.EXPONENTS.get(method)))
        assert sums[codes == 0].sum() == (codes != 255).sum()  # to the last unit
        assert (sums[codes != 255] >= 1).all()
        assert (sums[codes == 255] == 0).all()


@settings(max_examples=examples(8))
@given(
    raster=rasters(heights, shapes(150, 1500)),
    method=st.sampled_from(METHODS),
    exponent=st.sampled_from([None, 0.5, 1.0, 4.0, 30.0]),
)
def test_any_heights(folders, raster, method, exponent):
    """The largest and the least numbers that there are, of all types."""
    with folders() as folder:
        store = make_store(folder / "s.zarr", raster.cells, raster.nodata, 64)
        levels, codes = prepare(store)
        exponent = None if method == "dinf" else exponent
        found = flow_accumulation(store, method=method, exponent=exponent, verify=True)
        with np.errstate(over="ignore"):
            used = division.EXPONENTS.get(method) if exponent is None else exponent
            expected = right(levels, codes, TileStore.open(store).grid, method, used)
        assert same(whole(found.layers["flow_accumulation"]), expected)


# -- what the papers say -------------------------------------------------------------------------


def plane(degrees, size=9):
    """A plane that falls towards an azimuth, counterclockwise from E."""
    row, col = np.mgrid[:size, :size]
    angle = math.radians(degrees)
    return (1000 - col * math.cos(angle) + row * math.sin(angle)).astype(np.float32)


def square_store(folder, z, cell=1.0):
    """A store of heights in square cells."""
    grid = GridSpec(*z.shape, (cell, 0, 0, 0, -cell, 0), "", "")
    return store_of_codes(folder / "s.zarr", z, 64, None, grid, "elevation")


def spread_of(folder, z, method, outlets="edge", cell=1.0, **how):
    """What one unit at the middle of a raster becomes, in the neighbours."""
    store = square_store(folder, z, cell)
    prepare(store, outlets)
    source = np.zeros(z.shape)
    middle = tuple(n // 2 for n in z.shape)
    source[middle] = 1
    beside(store, "source", source)
    found = flow_accumulation(store, method=method, weights="source", verify=True, **how)
    sums = whole(found.layers["upstream_sum"])
    return [sums[tuple(np.add(middle, step))] for step in reference.TOWARD]


def beside(store, name, data):
    """Another layer of a store."""
    store_of_codes(store, data, 64, None, TileStore.open(store).grid, name)


@pytest.mark.parametrize("degrees", [0, 10, 30, 45, 60, 90, 100, 200, 300, 345])
def test_dinf_divides_by_the_angle(tmp_path, degrees):
    """Tarboton (1997): on a plane, to two neighbours, by their angles with the descent."""
    eighth, part = divmod(degrees / 45, 1)
    expected = np.zeros(8)
    expected[-int(eighth) % 8] += 1 - part  # neighbours are numbered clockwise
    expected[-int(eighth + 1) % 8] += part
    found = spread_of(tmp_path, plane(degrees), "dinf")
    assert found == pytest.approx(expected.tolist(), abs=2e-4)  # of heights as float32


def test_of_equal_triangles_the_first_as_tarboton_numbers_them(tmp_path):
    """In a symmetric valley towards E: the one between E and NE."""
    z = np.array([[9, 9, 1], [9, 5, 3], [9, 9, 1]], np.float32)
    outlets = [cell for cell in np.ndindex(3, 3) if cell != (1, 1)]
    found = spread_of(tmp_path, z, "dinf", outlets)
    assert found == [0, 0, 0, 0, 0, 0, 0, 1]
    z[0, 2] = z[2, 2] = 2
    found = spread_of(tmp_path / "divided", z, "dinf", outlets)
    part = math.atan(0.5) / (math.pi / 4)
    assert found == pytest.approx([1 - part, 0, 0, 0, 0, 0, 0, part], abs=1e-8)


@pytest.mark.parametrize("cell", [7.0, 30.0])
def test_rounding_does_not_part_equal_triangles(tmp_path, cell):
    """Slopes of 5 by the cell: straight, and of 4 and 3 by the cell between two neighbours."""
    outlets = [at for at in np.ndindex(3, 3) if at != (1, 1)]
    z = np.array([[20, 20, 20], [6, 10, 5], [3, 20, 20]], np.float32)
    assert spread_of(tmp_path / "east", z, "dinf", outlets, cell) == [1, 0, 0, 0, 0, 0, 0, 0]
    z = np.array([[20, 20, 3], [5, 10, 6], [20, 20, 20]], np.float32)
    found = spread_of(tmp_path / "north_east", z, "dinf", outlets, cell)
    assert found[0] + found[7] == 1 > found[7] > 0.8


@pytest.mark.parametrize(
    ("method", "exponent", "diagonal"), [("mfd", 1.1, 1), ("mfd", 4, 1), ("quinn", 1, 2**-0.5)]
)
def test_mfd_divides_by_slopes(tmp_path, method, exponent, diagonal):
    """Freeman (1991) with 1.1, and Quinn and others (1991) with contours of 0.5 and 0.354."""
    z = np.array([[12, 9, 7], [10, 10, 8], [11, 6, 3]], np.float32)
    outlets = [cell for cell in np.ndindex(3, 3) if cell != (1, 1)]
    drops = np.array([2, 7, 4, 0, 0, 0, 1, 3]) / 2 ** (np.arange(8) % 2 / 2)
    weights = drops**exponent * np.where(np.arange(8) % 2, diagonal, 1)
    found = spread_of(tmp_path, z, method, outlets, exponent=exponent)
    assert found == pytest.approx((weights / weights.sum()).tolist(), abs=1e-8)


def test_a_cone_spreads_its_flow(tmp_path):
    """Around a cone, D8 has eight rays; divided flow is nearly the same all around."""
    row, col = np.mgrid[-40:41, -40:41]
    radius = np.hypot(row, col)
    store = square_store(tmp_path, (1000 - radius).astype(np.float32))
    prepare(store)
    ring = (radius > 29) & (radius < 31)
    spread = {}
    for method in ("d8", *METHODS):
        sums = whole(flow_accumulation(store, method=method, into=method).layers[method])
        spread[method] = sums[ring].std() / sums[ring].mean()
    assert spread["d8"] > 2 * spread["dinf"] > 2 * spread["mfd"] * 0.5
    assert max(spread["mfd"], spread["quinn"]) < 0.25


def test_powers_and_angles():
    rng = np.random.default_rng(2)
    for x, p in zip(rng.random(2000) ** 6, rng.choice([0.5, 1.1, 3, 40], 2000), strict=True):
        assert abs(division.power(x, p) - x**p) < 1e-13
        assert division.power.py_func(x, p) == division.power(x, p)
        assert abs(division.arctan(1 / x) - math.atan(1 / x)) < 1e-13
        assert abs(division.arctan(x) - math.atan(x)) < 1e-13
    assert division.power(0.0, 1.1) == division.power(1e-300, 9.0) == 0
    assert division.power(1.0, 1.1) == 1
    for amount in (*rng.integers(-(2**62), 2**62, 2000).tolist(), -1, 0, 2**62, -(2**62)):
        part = int(rng.integers(0, 2**30 + 1))
        assert division.share(amount, part) == amount * part >> 30


# -- areas, weights, memory ----------------------------------------------------------------------


def test_areas_and_weights_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    rng = np.random.default_rng(4)
    grid = GridSpec(90, 130, (0.01, 0, 7, 0, -0.02, 60), CRS.from_epsg(4326).to_wkt(), "")
    z = rng.integers(0, 99, grid.shape).astype(np.float32)
    store = store_of_codes(tmp_path / "s.zarr", z, 64, None, grid, "elevation")
    levels, codes = prepare(store)
    units, unit = area_units(grid)
    shift = int(units.max() * grid.cells).bit_length() - EXACT_BITS
    units = (units + (1 << shift - 1)) >> shift
    own = np.repeat(units[:, None], grid.cols, axis=1)
    for method in METHODS:
        how = method, division.EXPONENTS.get(method), step_lengths(grid)
        sums = reference.divided_flow(levels, codes, own, *how).astype(np.int64)
        found = flow_accumulation(store, method=method, areas=True, into=method, verify=True)
        assert same(whole(found.layers[method]), sums * (unit * 2.0**shift))
        found = flow_accumulation(
            store, method=method, areas=True, exclude_self=True, into=f"{method}_above", verify=True
        )
        assert same(whole(found.layers[f"{method}_above"]), (sums - own) * (unit * 2.0**shift))
    rain = rng.normal(0, 50, grid.shape)
    rain[rng.random(grid.shape) < 0.1] = np.nan
    beside(store, "rain", rain)
    for areas in (False, True):
        found = flow_accumulation(
            store, method="mfd", weights="rain", areas=areas, into=f"rain{areas}", verify=True
        )
        sums = whole(found.layers[f"rain{areas}"])
        each = np.nan_to_num(rain) * (units * unit * 2.0**shift)[:, None] ** areas
        assert sums[codes == 0].sum() == pytest.approx(each.sum(), abs=1e-6 * np.abs(each).sum())
        assert found.found == {"without_weight": np.isnan(rain).sum()}


@pytest.mark.parametrize("method", ["dinf", "mfd"])
def test_blocks_that_leave_memory(tmp_path, monkeypatch, method):
    """The same bits whether blocks stay in memory or not; and they do not stay."""
    z = np.random.default_rng(1).integers(0, 60, (300, 260)).astype(np.int16)
    found, loads = [], []
    for block, capacity, threads in ((512, 1, 1), (64, 100, 1), (64, 4, 3), (64, 1, 1)):
        path = tmp_path / f"{block}-{capacity}.zarr"
        store = make_store(path, z, None, block)
        prepare(store)
        with monkeypatch.context() as patch:
            few = lambda rims, spill, _, kept, n=capacity: FlowVisits(rims, spill, n, kept)  # noqa: E731
            patch.setattr(base, "FlowVisits", few)
            result = flow_accumulation(store, method=method, threads=threads, verify=True)
        found.append(whole(result.layers["flow_accumulation"]))
        loads.append(result.report.result["block_loads"])
        assert sorted(p.name for p in path.iterdir() if p.name.startswith(".")) == []
    for one in found[1:]:
        assert same(one, found[0])
    assert loads[0] == 1
    assert loads[1] == 25 < loads[2] < loads[3]


# -- the command, and what is refused ------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    z = np.random.default_rng(7).integers(0, 30, (100, 150)).astype(np.int16)
    return make_store(tmp_path / "s.zarr", z, None, 64)


def test_from_a_raw_dem(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = "flow-accumulation s.zarr --method quinn --exponent 2 --areas --json report.json"
    assert call(command) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["settings"]["method"] == "quinn"
    assert report["settings"]["exponent"] == 2
    assert {"before: filled", "before: flow_direction", "flow"} < report["seconds"].keys()
    assert call("verify s.zarr") == 0
    assert "layer flow_accumulation verified, 15,000 cells that drain" in capsys.readouterr().out
    assert call("flow-accumulation s.zarr --method dinf --into dinf") == 0
    for command, words in (
        ("streams s.zarr --threshold 9", "divided among neighbours"),
        ("terrain-indices s.zarr --accumulation dinf --twi twi", "give areas"),
        ("flow-accumulation s.zarr --method mfd --statistic mean", "only sum"),
        ("flow-accumulation s.zarr --exponent 2 --into no", "cannot be used with"),
        ("flow-accumulation s.zarr --method dinf --exponent 2 --into no", "cannot be used with"),
        ("flow-accumulation s.zarr --method mfd --exponent 0 --into no", "above 0"),
    ):
        assert call(command) == 2
        assert words in capsys.readouterr().err


def test_directions_that_do_not_belong_to_the_heights(store):
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    with pytest.raises(StoreError, match="no layer 'heights'"):
        flow_accumulation(store, method="mfd", filled="heights")
    fill(store)
    flow_direction(store, [(50, 50)], into="inwards")
    with pytest.raises(InputError, match="to other outlets"):
        flow_accumulation(store, method="mfd", directions="inwards")
    with pytest.raises(StoreError, match="not made by fill"):
        flow_accumulation(store, method="mfd", filled="elevation")
    flow_direction(store, into="again")  # others to the same outlets
    one, two = (
        flow_accumulation(store, method="mfd", directions=name, into=f"by_{name}")
        for name in ("again", "flow_direction")
    )
    assert same(whole(one.layers["by_again"]), whole(two.layers["by_flow_direction"]))
    with pytest.raises(InputError, match="method 'd9' is not known"):
        flow_accumulation(store, method="d9")


def test_a_circle(store):
    """In directions that another program wrote: its cells are named."""
    prepare(store)
    z = np.zeros((100, 150), np.int16)
    codes = np.full(z.shape, 1, np.uint8)
    codes[:, -1] = 0
    codes[70, 60] = 16
    beside(store, "levels", z)
    beside(store, "codes", codes)
    looped = MultipleFlow(str(store), filled="levels", directions="codes")
    with pytest.raises(StoreError, match=r"codes: .* a loop of 2 cells: \(70, 59\), \(70, 60\)"):
        run(looped)
