"""Least-cost breaching, against Dijkstra's algorithm from each pit on the whole raster."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, verify, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flats import lakes
from test_flow import call, moderate

from terrain_gpu import TileStore, breach, fill, flow_direction, minimum_spanning_tree
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.hydrology.breach import Breach
from terrain_gpu.hydrology.breach.operation import BreachedHeights
from terrain_gpu.hydrology.breach.rule import BreachRule
from terrain_gpu.running import plan_of


def right(data, nodata, reach, depth=None, *, inner_voids=False):
    """Breached heights, and the way out of each pit."""
    good = reference.vertices(data, nodata)
    outlets = reference.border(good) if inner_voids else reference.edge(good)
    deepest, scale = math.inf if depth is None else depth, per_unit(data, nodata, reach)
    return reference.breached(data, nodata, outlets, reach, deepest, scale)


def per_unit(data, nodata, reach):
    """Units of costs in a height of 1: sums over all cells within reach stay below 2^62."""
    values = data[reference.vertices(data, nodata)].astype(float)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    exponent = math.frexp(high / 2 - low / 2)[1] + 1 - 61 + ((2 * reach + 1) ** 2).bit_length()
    return 2.0 ** -max(exponent, 0 if data.dtype.kind in "iu" else -1000)


class TestBreachContract(OperationContract):
    command = "breach s.zarr --max-distance 9"
    rasters = moderate

    def make(self, store):
        return BreachedHeights(str(store), Breach(max_distance=9))

    def expected(self, data, nodata, grid):
        return [right(data, nodata, 9)[0]]


@st.composite
def rough(draw):
    """Noise of few or many heights, with voids."""
    shape = draw(st.sampled_from([(1, 90), (70, 3), (67, 71)]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    z = rng.integers(0, draw(st.sampled_from([2, 5, 40, 30_000])), shape)
    z[rng.random(z.shape) < draw(st.sampled_from([0, 0.01, 0.3]))] = -1
    return z.astype(draw(st.sampled_from(["i2", "u4", "f4", "f8"])))


def none(z):
    """What -1 became in an array of its type."""
    return np.array(-1).astype(z.dtype).item()


@settings(max_examples=examples(25))
@given(
    z=st.one_of(rough(), lakes()),
    block=st.sampled_from([64, 128, 512]),
    threads=st.integers(1, 3),
    reach=st.sampled_from([1, 2, 9, 70, 10_000]),
    depth=st.sampled_from([None, 1.0, 3.5, 100.0]),
    inner_voids=st.booleans(),
)
def test_ways_out_of_all_pits(folders, z, block, threads, reach, depth, inner_voids):
    nodata = none(z)
    asked = {"max_distance": reach, "max_depth": depth, "inner_voids": inner_voids}
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, nodata, block)
        found = breach(store, threads=threads, verify=True, **asked)
        lowered = whole(found.layers["breached"])
    expected, ways = right(z, nodata, reach, depth, inner_voids=inner_voids)
    assert same(lowered, expected)
    cuts = (z - lowered).astype(float)
    assert found.found == {
        "pits": len(ways),
        "breached": sum(way is not None for way in ways.values()),
        "lowered": int((cuts > 0).sum()),
        "volume": pytest.approx(cuts.sum() * 200),
        "deepest_cut": cuts.max(),
    }
    # What is breached drains: the pits of the result are those that were left.
    good = reference.vertices(z, nodata)
    outlets = set(reference.border(good) if inner_voids else reference.edge(good))
    left = [pit for pit, way in ways.items() if way is None]
    assert reference.pits_of(lowered, good, outlets) == left
    assert cuts.max() <= (depth or math.inf)


@settings(max_examples=examples(10))
@given(z=rough(), block=st.sampled_from([64, 256]))
def test_nothing_is_left_to_fill(folders, z, block):
    """Without limits, every pit is breached from where an outlet can be reached."""
    nodata = none(z)
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, nodata, block)
        lowered = whole(breach(store, max_distance=max(z.shape)).layers["breached"])
        minimum_spanning_tree(store, weight="flow", layer="breached", backend="cpu")
        flow_direction(store, layer="breached", verify=True)
        assert same(whole(fill(store, verify=True).layers["filled"]), lowered)
        flow_direction(store, flats="gradient", layer="breached", into="gradient", verify=True)


def test_a_reach_beyond_the_raster_takes_no_memory():
    raster = BlockGrid(50, 50, 64), np.dtype("f4"), Machine.of()
    plans = [plan_of(Breach(max_distance=n), *raster) for n in (49, 10_000)]
    assert plans[0] == plans[1]
    assert plans[0].memory < 310e6


DAM = """
99999999999
95555585559
95555585559
95535565329
95555585559
95555585559
99999999990
"""


def dam(folder):
    """A valley to the east behind a dam, whose pit is 3 deep, and an outlet at the lower right."""
    z = np.array([list(row) for row in DAM.split()]).astype(np.int16)
    return make_store(folder / "s.zarr", z, None, 64), z


def test_a_dam(tmp_path):
    store, z = dam(tmp_path)
    found = breach(store, verify=True)
    expected = z.copy()
    expected[3, 4:8] = 3  # through the gap in the dam, to the 3 that drains to the 2
    expected[4:6, 9] = 2  # from there to the 0
    assert same(whole(found.layers["breached"]), expected)
    assert found.found == {
        "pits": 2,
        "breached": 2,
        "lowered": 6,
        "volume": (2 + 2 + 3 + 2 + 3 + 3) * 200.0,
        "deepest_cut": 3.0,
    }


@pytest.mark.parametrize(
    ("limits", "pits"), [({"max_depth": 2.5}, 2), ({"max_distance": 2}, 1), ({"max_depth": 3}, 0)]
)
def test_limits_leave_pits(tmp_path, limits, pits):
    store, _ = dam(tmp_path)
    found = breach(store, **limits).found
    assert found["pits"] - found["breached"] == pits


def test_a_flat_over_blocks_is_one_pit(tmp_path):
    """A long lake through four blocks, and one that drains at its far end."""
    z = np.full((140, 140), 9, np.float32)
    z[62:66, 5:135] = z[5:135, 70] = 5
    z[100, 3:70] = 6  # ends in the first
    z[70, 134] = 7
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    found = breach(store, max_distance=70)
    assert found.found["pits"] == 2
    (way,) = (w for pit, w in right(z, None, 70)[1].items() if pit == (5, 70))
    assert len(way) == 6
    assert same(whole(found.layers["breached"]), right(z, None, 70)[0])


def test_outlets_beside_inner_voids(tmp_path):
    z = np.full((40, 40), 9, np.int16)
    z[20, 20:23] = 3, 9, -1
    store = make_store(tmp_path / "s.zarr", z, -1, 64)
    assert breach(store, max_distance=5).found["breached"] == 0
    assert breach(store, max_distance=5, inner_voids=True, overwrite=True).found["lowered"] == 1


# -- the command ---------------------------------------------------------------------------------


def test_from_a_raster(dem, capsys):
    words = "breach dem.tif -o out.tif --max-distance 5 --max-depth 7 --json r.json --verify"
    assert call(words) == 0
    told = capsys.readouterr().out
    with rasterio.open("dem.tif") as source, rasterio.open("out.tif") as made:
        z, found = source.read(1), made.read(1)
        assert made.nodata == source.nodata
        expected, ways = right(z, source.nodata, 5, 7.0)
    assert same(found, expected)
    report = json.loads(Path("r.json").read_text())
    breached = sum(way is not None for way in ways.values())
    assert report["result"]["breached"] == breached
    assert f"{breached:,} of {len(ways):,} pits breached, {len(ways) - breached:,} left" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--max-depth 0", "--max-depth 0.0: give a height above 0"),
        ("--max-depth nan", "--max-depth nan: give a height above 0"),
        ("--max-distance 0", "0 is not in the range 1<=x<=10000"),
        ("--layer no", "no layer 'no'"),
        ("--into elevation", "--into elevation: --layer already names this layer"),
        ("--into elevation --overwrite", "--into elevation: --layer already names this layer"),
    ],
)
def test_what_cannot_be_breached(dem, capsys, words, told):
    assert call("convert-dataset dem.tif s.zarr -q") == 0
    assert call(f"breach s.zarr {words}") == 2
    assert told in capsys.readouterr().err
    assert TileStore.open("s.zarr").layers == ["elevation"]


def test_python_refuses_too(tmp_path):
    store, _ = dam(tmp_path)
    for wrong in ({"max_distance": 0}, {"max_distance": 2.5}, {"max_depth": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            breach(store, **wrong)
    with pytest.raises(StoreError, match="no layer"):
        breach(store, layer="no")


# -- the proof -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["pits", "breached", "lowered"])
def test_wrong_numbers_are_refused(tmp_path, monkeypatch, key):
    store, _ = dam(tmp_path)
    execute = BreachedHeights.execute

    def more(operation, own):
        found = execute(operation, own)
        return {**found, key: found[key] + 1}

    monkeypatch.setattr(BreachedHeights, "execute", more)
    with pytest.raises(VerificationError, match=f"wrong totals: . {key}"):
        run(BreachedHeights(str(store), Breach()), verify=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_distance", 0), ("max_distance", "9"), ("max_depth", -1.0), ("outlets", "none")],
)
def test_damaged_settings(tmp_path, key, value):
    store, _ = dam(tmp_path)
    breach(store, max_depth=4)
    meta = store / "breached/zarr.json"
    text = json.loads(meta.read_text())
    own = text["attributes"]["terrain_gpu"]
    own["settings"][key] = value
    del own["checksum"]
    meta.write_text(json.dumps(text))
    assert verify(store)[0] == StoreError.exit_code


def test_units_hold_all_sums(tmp_path):
    z = np.array([[8848.5, -10_935.0]])
    layer = TileStore.open(make_store(tmp_path / "s.zarr", z, None, 64)).layer("elevation")
    for reach in (1, 50, 10_000):
        rule = BreachRule(layer, reach, None)
        units = z * rule.per_unit
        assert 2**59 < (units[0, 0] - units[0, 1]) * (2 * reach + 1) ** 2 < 2**62
