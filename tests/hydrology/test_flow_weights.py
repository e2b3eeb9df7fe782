"""Weights along flow directions: sums, means and extremes of what is upstream."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import reference
from contract import change, make_store, same, verify, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rasters
from test_flow import (
    AlongDirections,
    acyclic_codes,
    call,
    moderate,
    right_codes,
    store_of_codes,
)

from terrain_gpu import (
    TileStore,
    fill,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
    streams,
)
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas
from terrain_gpu.hydrology.flow_accumulation.operation import FlowSums
from terrain_gpu.io.fills import FILLS


def listed_upstream(z, codes, nodata, unit=None):
    """Of each cell, the values of all cells upstream that have one, as they are or in units."""
    good = reference.vertices(z, nodata)
    values = np.empty(z.shape, object)
    for cell in reference.listed(good & (codes != 255)):
        values[cell] = z[cell].item() if unit is None else round(Fraction(z[cell].item()) / unit)
    return reference.upstream(codes, values)


def unit_of(z, nodata):
    """The unit of sums: 1 for integers that allow it, else a power of two near 2^-61 of the sum."""
    known = z[reference.vertices(z, nodata)]
    largest = max((abs(value) for value in known.tolist()), default=0)
    bits = math.frexp(float(largest))[1] + (z.size - 1).bit_length()
    if z.dtype.kind != "f" and largest * z.size < 2**62:
        return Fraction(1)
    return Fraction(2) ** max(bits - 62, -1000)


def mostly_lost(z, codes, nodata, unit):
    """Whether more weights have less than 1024 units than lie between these and a huge one."""
    good = reference.vertices(z, nodata)
    if z.dtype.kind != "f" and max((abs(int(one)) for one in z[good]), default=0) * z.size < 2**62:
        return False
    largest = max((abs(Fraction(one)) for one in z[good].tolist()), default=0) / unit
    units = [abs(Fraction(one)) / unit for one in z[good & (codes != 255)].tolist() if one]
    few = sum(round(one) < 1024 for one in units)
    between = sum(1024 <= round(one) < largest / 16 for one in units)
    fill = largest * unit >= 10**15 or largest * unit in map(abs, FILLS)
    return few > between and fill


def right_sums(codes, lists, unit, *, mean=False):
    """FlowSums or means of whole units."""
    found = np.full(lists.shape, np.nan)
    for cell in reference.listed(codes != 255):
        if lists[cell] or not mean:
            found[cell] = sum(lists[cell]) * float(unit) / (len(lists[cell]) if mean else 1)
    return found


def right_extremes(z, codes, lists, pick, nodata):
    """The largest or smallest value; where nothing drains the cells themselves."""
    found = z.copy()
    for cell in reference.listed(codes != 255):
        none = np.nan if nodata is None else nodata
        found[cell] = pick(lists[cell], key=ordered) if lists[cell] else none
    return found


def ordered(value):
    return value, math.copysign(1, value)


class TestWeightsContract(AlongDirections):
    rasters = moderate
    command = "flow-accumulation s.zarr --weights elevation --into sums"

    def make(self, store):
        return FlowSums(str(store), into="sums", weights="elevation")

    def expected(self, data, nodata, grid):
        codes = right_codes(data, nodata, grid)
        unit = unit_of(data, nodata)
        return [right_sums(codes, listed_upstream(data, codes, nodata, unit), unit)]


KINDS = ["<i2", "<u4", "<i8", "<u8", "<f4", "<f8"]


@settings(max_examples=examples(50))
@given(
    codes=acyclic_codes(),
    raster=st.data(),
    block=st.sampled_from([64, 128, 256]),
    other=st.sampled_from([64, 128]),
    statistic=st.sampled_from(["sum", "mean", "max", "min"]),
    threads=st.integers(1, 3),
)
def test_weights_of_any_type(folders, codes, raster, block, other, statistic, threads):
    kinds = st.sampled_from(KINDS).map(np.dtype)
    drawn = raster.draw(rasters(kinds, st.just(codes.shape), special=False))
    z, nodata = drawn.cells, drawn.nodata
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        store_of_codes(store, z, other, nodata, TileStore.open(store).grid, "z")
        how = {"directions": "codes", "weights": "z", "statistic": statistic, "threads": threads}
        draining = codes != 255
        if z.dtype.kind == "f" and (np.isinf(z) & (z != nodata) & draining).any():
            with pytest.raises(InputError, match=r"z: row .* the weight is -?inf; give finite"):
                flow_accumulation(store, **how)
            return
        sums, unit = statistic in ("sum", "mean"), unit_of(z, nodata)
        if sums and unit > Fraction(2) ** (1023 - 62):
            with pytest.raises(InputError, match="may exceed the largest float64"):
                flow_accumulation(store, **how)
            return
        if sums and mostly_lost(z, codes, nodata, unit):
            with pytest.raises(InputError, match="weights are lost next to it"):
                flow_accumulation(store, **how)
            return
        found = flow_accumulation(store, **how, verify=True)
        layer = found.layers[f"upstream_{statistic}"]
        lists = listed_upstream(z, codes, nodata, unit if sums else None)
        if sums:
            right = right_sums(codes, lists, unit, mean=statistic == "mean")
        else:
            pick = {"max": max, "min": min}[statistic]
            right = right_extremes(z, codes, lists, pick, nodata)
        assert same(whole(layer), right)
        without = (draining & ~reference.vertices(z, nodata)).sum()
        assert found.found == {"without_weight": without}


@settings(max_examples=examples(20))
@given(codes=acyclic_codes(), seed=st.integers(0, 999), statistic=st.sampled_from(["sum", "mean"]))
def test_without_the_cell_itself(folders, codes, seed, statistic):
    z = np.random.default_rng(seed).integers(-9, 9, codes.shape).astype(np.float32) / 4
    z[z == 2] = np.nan
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes)
        store_of_codes(store, z, 64, None, name="z")
        how = {"directions": "codes", "weights": "z", "statistic": statistic}
        found = flow_accumulation(store, **how, exclude_self=True, verify=True)
        unit = Fraction(1, 4)
        lists = listed_upstream(z, codes, None, unit)
        for cell in reference.listed((codes != 255) & np.isfinite(z)):
            lists[cell].remove(z[cell] / unit)
        right = right_sums(codes, lists, unit, mean=statistic == "mean")
        assert same(whole(found.layers[f"upstream_{statistic}"]), right)


def test_sums_err_by_no_more_than_is_promised(tmp_path):
    """Of 300 x 300 weights between 1e-9 and 1, along one way through all of them."""
    rng = np.random.default_rng(5)
    z = 10 ** rng.uniform(-9, 0, (300, 300))
    codes = np.full(z.shape, 1, np.uint8)
    codes[1::2] = 16
    codes[::2, -1] = codes[1::2, 0] = 4
    store = store_of_codes(tmp_path / "s.zarr", codes)
    store_of_codes(store, z, 64, None, name="z")
    found = flow_accumulation(store, directions="codes", weights="z")
    sums = whole(found.layers["upstream_sum"])
    along = z.copy()
    along[1::2] = z[1::2, ::-1]
    places = np.arange(z.size).reshape(z.shape)
    places[1::2] = places[1::2, ::-1].copy()
    exact = np.cumsum([Fraction(value) for value in along.ravel().tolist()])
    count = np.arange(1, z.size + 1)
    errors = [
        abs(Fraction(one) - right)
        for one, right in zip(sums.flat, exact[places.ravel()], strict=True)
    ]
    bound = count[places.ravel()] * float(z.max()) * z.size * 2.0**-61 + sums.ravel() * 2.0**-53
    assert (np.array(errors, float) <= bound).all()
    assert max(errors) > 0


def test_integers_are_exact_up_to_the_last(tmp_path):
    codes = np.full((1, 128), 1, np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", codes)
    for k, largest in enumerate([(1 << 62) // 128 - 1, (1 << 62) // 128]):
        z = np.full((1, 128), -largest)
        z[0, 1:] = largest
        store_of_codes(store, z, 64, None, name=f"z{k}")
        how = {"weights": f"z{k}", "into": f"sums{k}", "verify": True}
        found = flow_accumulation(store, directions="codes", **how)
        assert same(
            whole(found.layers[f"sums{k}"])[0], np.cumsum(z[0].astype(object)).astype(float)
        )


def test_volumes_on_the_ellipsoid(tmp_path):
    from rasterio.crs import CRS

    grid = GridSpec(150, 90, (0.1, 0, 7, 0, -0.1, 60), CRS.from_epsg(4326).to_wkt(), "")
    codes = np.full((150, 90), 4, np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", codes, grid=grid)
    rain = np.random.default_rng(2).random(codes.shape).astype(np.float32)
    store_of_codes(store, rain, 64, None, grid, "rain")
    found = flow_accumulation(store, directions="codes", weights="rain", areas=True, verify=True)
    right = np.cumsum(rain * cell_areas(grid)[:, None], axis=0)
    assert np.allclose(whole(found.layers["upstream_sum"]), right, rtol=1e-12)
    assert verify(store) == (0, {"upstream_sum"})


def test_the_least_elevations_upstream_are_the_carved_dem(tmp_path):
    z = np.random.default_rng(4).integers(0, 99, (140, 150)).astype(np.int16)
    z[40:60, 50:70] = 7  # a flat in a depression
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    minimum_spanning_tree(store, weight="flow")
    codes = whole(flow_direction(store).layers["flow_direction"])
    found = flow_accumulation(
        store, weights="elevation", statistic="min", into="carved", verify=True
    )
    carved = whole(found.layers["carved"])
    filled = whole(fill(store).layers["filled"])
    assert ((carved <= z) & (z <= filled)).all()
    assert (carved < z).any()
    for cell in reference.listed(codes != 255):
        below = reference.downstream(codes, *cell)
        assert below is None or carved[below] <= carved[cell]
    # Only ways out of depressions are carved: where the way never rises, nothing is.
    lists = listed_upstream(z, codes, None)
    assert all(carved[cell] == min(lists[cell]) for cell in np.ndindex(z.shape))


@settings(max_examples=examples(40))
@given(
    codes=acyclic_codes(),
    raster=st.data(),
    block=st.sampled_from([64, 128]),
    other=st.sampled_from([64, 128]),
    areas=st.booleans(),
)
def test_sums_below_marked_cells(folders, codes, raster, block, other, areas):
    """Streams of these sums are the cells at and below the marks, with the orders of their sums."""
    kinds = st.sampled_from(["|u1", "<i2", "<f4", "<u8"]).map(np.dtype)
    drawn = raster.draw(rasters(kinds, st.just(codes.shape), special=False, terrains=["ties"]))
    marks, nodata = drawn.cells.copy(), drawn.nodata
    rng = np.random.default_rng(drawn.seed)
    marks[rng.random(codes.shape) < rng.choice([0, 0.9, 0.999])] = 0
    if marks.dtype.kind == "f" and (np.isinf(marks) & (marks != nodata)).any():
        return
    marked = (codes != 255) & (marks != 0) & reference.vertices(marks, nodata)
    with folders() as folder:
        store = store_of_codes(folder / "s.zarr", codes, block)
        store_of_codes(store, marks, other, nodata, TileStore.open(store).grid, "marks")
        how = {"directions": "codes", "weights": "marks", "statistic": "below"}
        found = flow_accumulation(store, **how, areas=areas, into="sums", verify=True)
        one = float(cell_areas(TileStore.open(store).grid)[0]) if areas else 1
        right = reference.flow_sums(codes, np.ones(len(codes), int))
        below = reference.flow_sums(codes, np.ones(len(codes), int), marked) > 0
        right = np.where(below, right, 0) * one
        assert same(whole(found.layers["sums"]), right.astype(np.float64 if areas else np.uint32))
        if below.any():
            how = {"directions": "codes", "accumulation": "sums", "order": "shreve"}
            orders = whole(streams(store, 1, **how, verify=True).layer)
            links = reference.channel_links(codes, right, 1)
            values = reference.stream_orders(links, right)["shreve"]
            expected = np.zeros(codes.shape, np.uint32)
            for (cells, _), value in zip(links, values, strict=True):
                expected[tuple(np.transpose(cells))] = value
            assert same(orders, expected)
            assert same(orders > 0, below)


# -- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path):
    store = store_of_codes(tmp_path / "s.zarr", np.full((70, 80), 1, np.uint8))
    store_of_codes(store, np.ones((70, 80), np.float32), 64, None, name="rain")
    return store


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"statistic": "max"}, "statistic 'max': give the layer of values"),
        (
            {"weights": "rain", "statistic": "mean", "areas": True},
            "areas cannot be combined with the mean",
        ),
        (
            {"weights": "rain", "statistic": "min", "exclude_self": True},
            "exclude_self cannot be combined with statistic 'min'",
        ),
        ({"statistic": "below"}, "statistic 'below': give the layer of values"),
        (
            {"weights": "rain", "statistic": "below", "exclude_self": True},
            "exclude_self cannot be combined with statistic 'below'",
        ),
        ({"weights": "rain", "statistic": "mode"}, "statistic 'mode' is not known; use one of sum"),
        ({"weights": "rain", "into": "rain"}, "must have different names"),
    ],
)
def test_choices_that_exclude_each_other(plain, how, message):
    with pytest.raises(InputError, match=message):
        flow_accumulation(plain, directions="codes", **how)


def test_infinite_and_huge_weights_are_refused(plain):
    rain = np.ones((70, 80))
    rain[65, 70] = np.inf
    store_of_codes(plain, rain, 64, -1, name="hail")
    for statistic in ("sum", "min"):
        with pytest.raises(InputError, match=r"hail: row 65, column 70: the weight is inf; give f"):
            flow_accumulation(plain, directions="codes", weights="hail", statistic=statistic)
    store_of_codes(plain, rain * 1e306, 64, np.inf, name="flood")
    with pytest.raises(InputError, match=r"flood: sums of weights up to 1e\+306 may exceed"):
        flow_accumulation(plain, directions="codes", weights="flood")
    with pytest.raises(StoreError, match="no layer 'snow'"):
        flow_accumulation(plain, directions="codes", weights="snow")


def test_weights_of_another_program(plain):
    """Their range is not recorded, and one that is recorded may be wrong."""
    right = whole(
        flow_accumulation(plain, directions="codes", weights="rain").layers["upstream_sum"]
    )
    path = plain / "rain" / "zarr.json"
    meta = json.loads(path.read_text())
    recorded = meta["attributes"]["terrain_gpu"]
    recorded["max"] = recorded["min"] = 0.25
    del recorded["checksum"]
    path.write_text(json.dumps(meta))
    how = {"directions": "codes", "weights": "rain", "overwrite": True}
    with pytest.raises(StoreError, match="rain: has values beyond its recorded range"):
        flow_accumulation(plain, **how)
    del meta["attributes"]["terrain_gpu"]
    path.write_text(json.dumps(meta))
    assert same(whole(flow_accumulation(plain, **how).layers["upstream_sum"]), right)


def test_the_proof_counts_cells_without_a_weight(plain):
    store_of_codes(plain, np.eye(70, 80), 64, 0, name="few")
    flow_accumulation(plain, directions="codes", weights="few", statistic="mean")
    path = plain / "upstream_mean" / "zarr.json"
    meta = json.loads(path.read_text())
    recorded = meta["attributes"]["terrain_gpu"]
    assert recorded["result"] == {"without_weight": 70 * 79}
    assert verify(plain) == (0, {"upstream_mean"})
    recorded["result"]["without_weight"] = 3
    del recorded["checksum"]
    path.write_text(json.dumps(meta))
    assert verify(plain)[0] == VerificationError.exit_code
    recorded["settings"]["statistic"] = "mode"
    path.write_text(json.dumps(meta))
    assert verify(plain)[0] == StoreError.exit_code


@pytest.mark.parametrize("statistic", ["mean", "max", "min", "below", "edge_cells"])
@pytest.mark.parametrize("cell", [(20, 20), (63, 64), (50, 40)])
def test_the_proof_refuses_a_wrong_bit(tmp_path, monkeypatch, statistic, cell):
    codes = np.full((70, 80), 1, np.uint8)
    codes[50] = 255
    store = store_of_codes(tmp_path / "s.zarr", codes)
    rain = np.random.default_rng(6).random(codes.shape).astype(np.float32)
    store_of_codes(store, rain, 64, None, name="rain")
    weighted = {"weights": "rain", "statistic": statistic}
    how = {"edge_cells": True} if statistic == "edge_cells" else weighted
    how |= {"directions": "codes", "verify": True}
    flow_accumulation(store, **how)
    change(monkeypatch, FlowSums, f"upstream_{statistic}", cell)
    with pytest.raises(VerificationError, match=f"row {cell[0]}, column {cell[1]}: "):
        flow_accumulation(store, **how, overwrite=True)


def test_the_command(plain, capsys):
    store_of_codes(plain, np.eye(70, 80), 64, 0, name="few")
    assert call(f"flow-accumulation {plain} --directions codes --weights few --verify") == 0
    out = capsys.readouterr().out
    assert re.search(
        "upstream_sum, 5,600 of 5,600 cells valid, .* to .*, 5,530 that drain without", out
    )
    assert call(f"flow-accumulation {plain} --directions codes --statistic min") == 2
    assert "--statistic 'min': give the layer of values, --weights" in capsys.readouterr().err


def test_streams_begin_where_sums_of_weights_reach_a_threshold(plain):
    how = {"directions": "codes", "weights": "rain"}
    for statistic, areas in (("sum", False), ("sum", True), ("mean", False)):
        into = f"{statistic}{areas:d}"
        flow_accumulation(plain, **how, statistic=statistic, areas=areas, into=into)
    for name in ("sum0", "sum1"):
        where = {"directions": "codes", "accumulation": name, "into": f"of_{name}"}
        orders = whole(streams(plain, 30.0, **where).layer)
        assert same(orders > 0, np.tile(np.arange(80) >= 29, (70, 1)))
        with pytest.raises(InputError, match="is not recorded as holding areas; give a number"):
            streams(plain, "5km2", **where, overwrite=True)
    with pytest.raises(StoreError, match="mean0: holds the mean of upstream values, which need"):
        streams(plain, 30.0, directions="codes", accumulation="mean0")
