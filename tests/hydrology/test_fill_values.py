"""A single fill value does not cost other cells their sums, costs and volumes."""

from __future__ import annotations

import re
from shutil import copytree

import numpy as np
import pytest
from contract import make_store, whole

from terrain_gpu import (
    TileStore,
    breach,
    depressions,
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    minimum_spanning_tree,
)
from terrain_gpu.errors import InputError

FILLS = [9.97e36, 3.4e38, -9999.0]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A DEM with all that sums need, and weights as small as rates of rain."""
    random = np.random.default_rng(3)
    heights = random.random((70, 90)).cumsum(0).astype(np.float32)
    store = make_store(tmp_path_factory.mktemp("fills") / "s.zarr", heights, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    fill(store)
    rates = random.gamma(0.3, 1e-9, heights.shape)
    rates[random.random(heights.shape) < 0.3] = 0
    return store, rates


@pytest.fixture
def store(made, tmp_path):
    return copytree(made[0], tmp_path / "s.zarr")


@pytest.mark.parametrize("how", [{}, {"statistic": "mean"}, {"method": "mfd"}, {"method": "dinf"}])
@pytest.mark.parametrize("value", FILLS)
def test_weights_lost_next_to_a_fill_value_are_refused(made, store, how, value):
    rates = made[1].copy()
    rates[7, 9] = value
    make_store(store, rates, None, 64, name="rates")
    named = f"rates: the value {value} at row 7, column 9 is so large that "
    with pytest.raises(InputError, match=re.escape(named)):
        flow_accumulation(store, weights="rates", into="sums", **how)
    assert "sums" not in TileStore.open(store)


@pytest.mark.parametrize("how", [{}, {"method": "mfd"}])
def test_noise_in_weights_is_no_reason_to_refuse(made, store, how):
    rates = np.where(made[1] == 0, 1e-40, made[1])
    make_store(store, rates, None, 64, name="rates")
    flow_accumulation(store, weights="rates", into="noisy", verify=True, **how)


def test_small_weights_without_a_fill_value_are_only_told(made, store, caplog):
    """Of probabilities, decays and residues of 1e-17, nothing that is lost matters."""
    rates = np.where(made[1] == 0, 1.0, 1e-17)
    make_store(store, rates, None, 64, name="rates")
    found = flow_accumulation(store, weights="rates", into="sums", verify=True)
    assert "weights are lost next to it: sums over" in caplog.text
    assert np.nanmax(whole(found.layers["sums"])) > 1


def test_rain_lost_next_to_a_fill_value_is_refused(store):
    rain = np.full((70, 90), 0.02)
    rain[3, 4] = 1e20
    make_store(store, rain, None, 64, name="rain")
    with pytest.raises(InputError, match=r"rain: the value 1e\+20 at row 3, column 4 is so large"):
        fill_spill_merge(store, rain="rain")


def test_costs_of_cuts_lost_next_to_a_fill_value_are_refused(tmp_path):
    heights = np.random.default_rng(4).random((30, 30)).astype(np.float32)
    heights[5, 6] = -3.4e38
    store = make_store(tmp_path / "s.zarr", heights, None, 64)
    with pytest.raises(InputError, match=r"the value -3.4e\+38 at row 5, column 6 is so far from"):
        breach(store)


@pytest.mark.parametrize("value", [3.4e38, -3.4e38])
def test_volumes_are_as_without_a_fill_value(tmp_path, value):
    """As a peak it changes nothing; as a pit only the depression that it makes."""
    heights = np.random.default_rng(5).random((70, 90)).astype(np.float32)
    tables = []
    for name, data in (("a", heights), ("b", heights.copy())):
        data[30, 30] = 5 if name == "a" else value
        store = make_store(tmp_path / f"{name}.zarr", data, None, 64)
        minimum_spanning_tree(store, weight="flow")
        flow_direction(store)
        table = tmp_path / f"{name}.csv"
        depressions(store, table=table, verify=True, min_volume=1e-9)
        rows = np.genfromtxt(table, delimiter=",", names=True)
        assert (rows["volume"] > 0).all()
        tables.append({tuple(row): volume for *row, volume in rows[["row", "col", "volume"]]})
    plain, found = tables
    found.pop((30, 30), None)
    both = plain.keys() & found.keys()
    assert len(both) > 0.9 * len(plain)
    if value > 0:
        assert plain == found
