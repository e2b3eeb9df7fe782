"""Elevations of 64 bits: what differs only in bits that float32 has not drains as it must.

The same terrain in steps of 1 (float32), of 2^-40 above 100 (float64), and of 1 above 2^60 (int64):
all differences are exact, so results are the same, and heights correspond.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from contract import make_store, whole

from terrain_gpu import (
    InputError,
    TileStore,
    breach,
    depressions,
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    hand,
    slope,
    streams,
)

BASES = {"f4": 0, "f8": 100.0, "i8": 2**60}
STEPS = {"f8": 2.0**-40}
ROWS, COLS = 90, 110
HOLE = np.zeros((ROWS, COLS), bool)
HOLE[:3, :9] = HOLE[60:64, 20:30] = True


def terrain():
    """Rough, with lakes and a flat."""
    rng = np.random.default_rng(3)
    rough = rng.integers(0, 60, (ROWS, COLS)) + np.add.outer(np.arange(ROWS), np.arange(COLS)) // 3
    rough[30:38, 50:64] = 30
    return rough


@pytest.fixture(scope="module", params=["f8", "i8"])
def stores(request, tmp_path_factory):
    """Of float32, and of the type."""
    folder = tmp_path_factory.mktemp("wide")
    found = []
    for kind in ("f4", request.param):
        dtype = np.dtype(kind)
        z = dtype.type(BASES[kind]) + (terrain() * STEPS.get(kind, 1)).astype(dtype)
        z[HOLE] = 0
        store = make_store(folder / f"{kind}.zarr", z, 0, 64, cell=(10.0, 10.0))
        flow_direction(store, verify=True)
        flow_accumulation(store, verify=True)
        found.append(store)
    return found


def layer(store, name):
    return whole(TileStore.open(store).layer(name))


def steps(store, name):
    """A layer of heights, in steps of the terrain."""
    found, kind = layer(store, name), store.stem
    found = np.where(HOLE, found.dtype.type(BASES[kind]), found) - found.dtype.type(BASES[kind])
    return found / STEPS.get(kind, 1)


def of(store, height):
    """A difference of heights in the unit of a store."""
    return height * STEPS.get(store.stem, 1)


def test_directions_and_sums(stores):
    narrow, wide = stores
    for name in ("flow_direction", "flow_accumulation"):
        assert np.array_equal(layer(narrow, name), layer(wide, name))


def test_flats_and_divided_flow(stores):
    for store in stores:
        fill(store, verify=True)
        flow_direction(store, flats="gradient", into="gradient", verify=True)
        for method in ("dinf", "mfd"):
            flow_accumulation(store, method=method, into=method, verify=True)
    narrow, wide = stores
    assert np.array_equal(steps(narrow, "filled"), steps(wide, "filled"))
    for name in ("gradient", "dinf", "mfd"):
        assert np.array_equal(layer(narrow, name), layer(wide, name)), name


def test_conditioning(stores, tmp_path):
    tables = []
    for store in stores:
        breach(store, verify=True, max_depth=of(store, 20))
        fill(store, keep_deeper_than=of(store, 6), into="kept", verify=True)
        table = tmp_path / f"{store.stem}.csv"
        depressions(
            store, conditioned="conditioned", min_depth=of(store, 3), table=table, verify=True
        )
        with open(table, newline="") as file:
            tables.append(list(csv.DictReader(file)))
    narrow, wide = stores
    for name in ("breached", "kept", "conditioned"):
        assert np.array_equal(steps(narrow, name), steps(wide, name)), name
    assert np.array_equal(layer(narrow, "depressions"), layer(wide, "depressions"))
    base, step = BASES[wide.stem], STEPS.get(wide.stem, 1)
    whole_number = int if wide.stem != "f8" else float
    for one, other in zip(*tables, strict=True):
        for name in ("height", "spill_height"):
            assert (whole_number(other[name]) - base) / step == float(one[name])


def test_water_and_heights_above_streams(stores, tmp_path):
    links = []
    for store in stores:
        fill_spill_merge(store, rain=of(store, 2.5), into="water", verify=True)
        lines = tmp_path / f"{store.stem}.geojson"
        streams(store, threshold=40, lines=lines, verify=True)
        links.append([link["properties"] for link in json.loads(lines.read_text())["features"]])
        hand(store, threshold=40, verify=True)
        slope(store, verify=True)
    narrow, wide = stores
    step = STEPS.get(wide.stem, 1)
    water, right = layer(wide, "water") / np.float32(step), layer(narrow, "water")
    # The surface is a double: of the steps of float64, it has 6 bits more.
    assert np.allclose(water, right, rtol=1e-6, atol=2.0**-6, equal_nan=True)
    above, right = layer(wide, "hand"), layer(narrow, "hand")
    there = right != -9999
    assert np.array_equal(above[there] / step, right[there])
    for one, other in zip(*links, strict=True):
        assert (other["drop"] / step, other["length"]) == (one["drop"], one["length"])
    tangents = [np.tan(np.radians(layer(store, "slope").astype(float))) for store in stores]
    inside = layer(narrow, "slope") != -9999
    assert np.allclose(tangents[1][inside] / step, tangents[0][inside], rtol=1e-5)


def test_a_range_beyond_float64_is_refused_where_it_matters(tmp_path):
    z = np.full((70, 80), 5, np.int64)
    z[10, 10], z[50, 50] = -(2**60), 2**60
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    flow_direction(store, verify=True)
    with pytest.raises(InputError, match=r"elevation: elevations from -1152921504606846976 to"):
        depressions(store)
