"""Small rasters from papers and from the tests of other programs, with the results they state.

Rasters and numbers are facts; where they come from is said with each.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from contract import make_store, whole
from test_fill_spill_merge import add_rain
from test_flow import store_of_codes

from terrain_gpu import (
    TileStore,
    depressions,
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    hand,
    minimum_spanning_tree,
    streams,
)


def grid_of(text):
    return np.array([line.split() for line in text.strip().splitlines()]).astype(np.int16)


HERE = Path(__file__).parent


def sections(name):
    """Of a file of numbers: the lines between empty ones."""
    text = (HERE / name).read_text()
    return [part.splitlines() for part in text.split("\n\n")[1:]]


WANG_LIU = grid_of("""
15 15 14 15 12  6 12
14 13 10 12 15 17 15
15 15  9 11  8 15 15
16 17  8 16 15  7  5
19 18 19 18 17 15 14
""")
"""Wang and Liu (2006), International Journal of Geographical Information Science 20, figure 2."""


@pytest.mark.parametrize(
    ("outlets", "connectivity", "levels"),
    [
        ("edge", 8, {(1, 2): 11, (2, 2): 11, (3, 2): 11}),
        (
            [(3, 6)],
            8,
            {(1, 2): 11, (2, 2): 11, (3, 2): 11, (0, 5): 12},
        ),
        (
            "edge",
            4,
            {
                **{(1, col): 14 for col in (1, 2, 3)},
                **{(2, col): 14 for col in (2, 3, 4)},
                (3, 2): 14,
            },
        ),
    ],
    ids=["edge", "one outlet", "4 neighbours"],
)
def test_fill_of_wang_and_liu(tmp_path, outlets, connectivity, levels):
    """As pyflwdir 0.5.12 and its tests have it."""
    store = make_store(tmp_path / "s.zarr", WANG_LIU, None, 64)
    minimum_spanning_tree(store, weight="flow", connectivity=connectivity)
    flow_direction(store, outlets)
    filled = whole(fill(store, verify=True).layers["filled"])
    expected = WANG_LIU.copy()
    for cell, level in levels.items():
        expected[cell] = level
    assert filled.tolist() == expected.tolist()


def test_fill_of_richdem(tmp_path):
    """Two basins behind walls, RichDEM's testdem1 of depressions."""
    z = np.zeros((10, 10), np.int16)
    z[2:5, 1:5] = z[4:7, 2:5] = 2
    z[3, 2:4] = z[5, 3] = 0
    z[3, 4:8] = z[3:8, 7] = z[7, 4:8] = 2
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    filled = whole(fill(store, verify=True).layers["filled"])
    expected = np.zeros_like(z)
    expected[2:5, 1:5] = expected[5:7, 2:5] = expected[3:8, 4:8] = 2
    assert filled.tolist() == expected.tolist()


@pytest.mark.parametrize("least", [1, 2])
def test_largest_depressions_that_richdem_fills(tmp_path, least):
    """Its testdem1 once more: depressions of more than so many cells stay."""
    z = np.zeros((10, 10), np.int16)
    z[2:5, 1:5] = z[4:7, 2:5] = 2
    z[3, 2:4] = z[5, 3] = 0
    z[3, 4:8] = z[3:8, 7] = z[7, 4:8] = 2
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    found = fill(store, keep_larger_than=least, verify=True)
    expected = z.copy()
    expected[5, 3] = 2
    if least == 2:
        expected[3, 2:4] = 2
    assert whole(found.layers["filled"]).tolist() == expected.tolist()


CASES = {name: lines for name, *lines in sections("richdem_accumulation.txt")}


@pytest.mark.parametrize("name", CASES)
def test_accumulation_of_richdem(tmp_path, name):
    rows = [line.split() for line in CASES[name]]
    theirs = np.array([list(codes) for codes, *_ in rows]).astype(int)
    # 0, then clockwise from W.
    ours = np.array([0, 16, 32, 64, 128, 1, 2, 4, 8, 255], np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", ours[theirs])
    found = flow_accumulation(store, directions="codes", verify=True)
    sums = np.array([sums for _, *sums in rows]).astype(int)
    expected = np.where(sums == -1, 0, sums)
    assert whole(found.layers["flow_accumulation"]).tolist() == expected.tolist()


def test_what_pyflwdir_makes_of_its_directions(tmp_path):
    codes, sums, orders, lengths = (
        np.array([line.split() for line in lines]).astype(float)
        for lines in sections("pyflwdir_directions.txt")
    )
    inside = codes != 247
    ours = np.where(inside, codes, 255).astype(np.uint8)
    store = store_of_codes(tmp_path / "s.zarr", ours)
    found = flow_accumulation(store, directions="codes", verify=True)
    assert (whole(found.layers["flow_accumulation"]) == sums)[inside].all()
    found = streams(store, 1, directions="codes", verify=True)
    assert whole(found.layers["streams"]).tolist() == orders.tolist()
    store_of_codes(store, np.ones(codes.shape, np.int16), nodata=None, name="elevation")
    how = {"to_outlets": True, "directions": "codes", "distance": "far"}
    found = hand(store, **how, verify=True)
    far = whole(found.layers["far"])
    assert np.abs(far - lengths)[inside].max() <= 5e-4  # theirs have three decimals


def in_a_ditch(rows):
    """A grid with a ring of low cells, into which water leaves."""
    return np.pad(grid_of(rows), 1, constant_values=-9)


SADDLE = in_a_ditch("""
    6 6 6 6 6 6 6 6
    6 1 6 1 1 6 1 6
    6 1 6 3 3 6 1 6
    6 1 6 2 1 4 1 6
    6 1 6 1 1 6 1 6
    6 1 6 6 6 6 1 6
    6 1 1 1 1 1 1 6
    6 6 6 6 6 6 6 6
    """)


def test_a_saddle_of_barnes(tmp_path):
    """His example of filling: water spills from the upper pit at 3, and from both at 4.

    There, the upper pit holds 4 units, and both hold 19 before water runs into the ditch around.
    Here, of equally deep pits the first one stands for the parent.
    """
    store = make_store(tmp_path / "s.zarr", SADDLE, None, 64)
    depressions(store, table=tmp_path / "t.csv", verify=True)
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = sorted((float(row["spill_height"]), float(row["volume"]) / 200) for row in rows)
    assert found == [(3, 7), (4, 19), (6, 117)]


def test_hierarchy_of_barnes(tmp_path):
    """The first example in the tests of fill-spill-merge (Barnes and others 2021).

    There, two leaves, of which the smaller has a volume of 2 and spills at 8, and their parent of
    111, which spills at 9. Here the deeper pit stands for the parent (docs/design/drainage.md).
    """
    z = in_a_ditch("""
        9  9  9  9  9  9  9  9
        9  8  8  8  8  7  6  9
        9  8  7  8  7  6  5  9
        9  8  7  8  6  5  4  9
        9  8  8  8  5  4  3  9
        9  7  6  5  4  3  2  9
        9  7  6  5  4  3  1  9
        9  9  9  9  9  9  9  9
        """)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    minimum_spanning_tree(store, weight="flow")
    flow_direction(store)
    depressions(store, table=tmp_path / "t.csv", verify=True)
    with open(tmp_path / "t.csv", newline="") as file:
        small, large = csv.DictReader(file)
    area = 200  # of a cell of 10 x 20
    for row, pit, spill, volume in ((small, 7, 8, 2), (large, 1, 9, 111)):
        found = [float(row[key]) for key in ("height", "spill_height", "volume")]
        assert found == [pit, spill, volume * area]
    assert (small["parent"], large["parent"]) == (large["id"], "0")


def rest(folder, z, rain):
    """Depths of the water of a rain at rest; cells of 1 x 1, outlets at the edge."""
    store = make_store(folder / "s.zarr", np.array(z, np.float32), None, 64, cell=(1.0, 1.0))
    add_rain(store, np.array(rain, np.float32))
    return whole(fill_spill_merge(store, rain="rain", verify=True).layers["water"])


@pytest.mark.parametrize(("water", "level"), [(3, 2.5), (19, 4)])
def test_fill_spill_merge_of_barnes_over_a_saddle(tmp_path, water, level):
    """Of its tests "FillDepressions": "Standard Case", and "Passes over a saddle"."""
    z = SADDLE
    rain = np.zeros(z.shape)
    rain[2, 4] = water
    right = np.zeros(z.shape)
    inner = slice(2, 6 if water == 19 else 3), slice(4, 6)
    right[inner] = level - z[inner]
    assert right.sum() == water
    assert np.array_equal(rest(tmp_path, z, rain), right.astype(np.float32))


def test_fill_spill_merge_of_richdem_along_a_valley(tmp_path):
    """RichDEM's FillSpillMerge (c5a183a) gives these depths; 22 of 79 leave.

    Flow has one way, so definitions agree.
    """
    valley = [-1, 7, 1, 4, 2, 9, 0, 5, 3, 8, 1, 6, 2, 12, 3, 5, 4, 10, -1]
    water = {2: 1, 4: 9, 8: 6, 9: 2, 12: 21, 16: 40}
    thirds = [0, 0, 14, 5, 11, 0, 22, 7, 13, 0, 21, 6, 18, 0, 21, 15, 18, 0, 0]
    z = np.full((5, len(valley) + 2), 99)
    z[2, 1:-1], z[[0, -1]], z[:, [0, -1]] = valley, -9, -9
    rain, right = np.zeros((2, *z.shape))
    rain[2, [1 + col for col in water]] = list(water.values())
    right[2, 1:-1] = np.array(thirds) / 3
    assert np.abs(rest(tmp_path, z, rain) - right).max() < 1e-6


def test_of_three_streams_only_one_with_the_highest_order(tmp_path):
    """Strahler (1957): orders of 1, 2 and 1 meet as 2, whichever comes first."""
    codes = np.zeros((5, 7), np.uint8)
    codes[0, 2], codes[0, 4] = 2, 8  # two sources meet at row 1, column 3
    codes[1, 3] = 4
    codes[2, 3] = 4
    codes[2, 2], codes[2, 4] = 2, 8  # two further ones at row 3, column 3
    codes[3, 3] = 4
    store = store_of_codes(tmp_path / "s.zarr", codes)
    flow_accumulation(store, directions="codes")
    found = streams(store, 1, directions="codes", verify=True)
    orders = whole(found.layers["streams"])
    assert orders[0, 2] == orders[2, 2] == orders[2, 4] == 1
    assert orders[1, 3] == orders[2, 3] == orders[3, 3] == orders[4, 3] == 2
    assert TileStore.open(store).layers == ["codes", "flow_accumulation", "streams"]
