"""Costs as they are stated: layers that formulas name, and tables of vertical factors."""

from __future__ import annotations

import csv
import json
import math
from itertools import pairwise

import numpy as np
import pytest
import reference
from contract import make_store, verify, whole
from hypothesis import given
from hypothesis import strategies as st

import terrain_gpu
from terrain_gpu import TileStore, build_index, cost_matrix, shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError
from terrain_gpu.paths.cost.formula.presets import PRESETS
from terrain_gpu.paths.cost.resolve import MOST_FACTORS, read_factors, with_named_layer

pytestmark = pytest.mark.usefixtures("no_fsync")

CPU = {"backend": "cpu"}
TABLE = [(-60.0, 3.0), (-5.0, 0.8), (0.0, 1.0), (30.0, 4.0)]


def factor(slope):
    """Of a step, by TABLE; infinite outside of it."""
    angle = math.degrees(math.atan(slope))
    for (x0, y0), (x1, y1) in pairwise(TABLE):
        if x0 <= angle <= x1:
            return y0 + (y1 - y0) * (angle - x0) / (x1 - x0)
    return math.inf


def hills(rows=70, cols=90):
    rng = np.random.default_rng(0)
    return rng.normal(0, 0.4, (rows, cols)).cumsum(0).cumsum(1) / 20


@pytest.fixture
def store(tmp_path):
    """Heights, and a layer of frictions with another name, and another one."""
    path = make_store(tmp_path / "s.zarr", hills(), None, 64, cell=(1.0, 1.0))
    for name, seed in (("snow", 1), ("wind", 2)):
        values = np.random.default_rng(seed).uniform(0, 2, (70, 90))
        values[40:44, 50] = np.nan
        with terrain_gpu.create_layer(
            path, name, TileStore.open(path).grid, "float64", nodata=np.nan, block_size=64
        ) as out:
            for at in out.blocks.ids():
                r0, r1, c0, c1 = out.block_window(*at)
                out.write_block(*at, np.ascontiguousarray(values[r0:r1, c0:c1]))
            out.commit()
    return path


def call(capfd, *words):
    code = options._guarded(lambda: group.main(list(words), standalone_mode=False))
    return code, *capfd.readouterr()


# -- tables of factors -----------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("cost", "plain"),
    [
        ("surface", lambda dz, length, f: math.hypot(length, dz)),
        ("friction", lambda dz, length, f: f * length),
        ("length * f2 + abs(dz)", lambda dz, length, f: 2 * length + abs(dz)),
        ("wheeled", None),
    ],
)
def test_factors_multiply_the_cost(cost, plain, reverse):
    z, f = hills(), np.random.default_rng(1).uniform(0, 2, (70, 90))
    how = {"parameters": {"f2": 2.0}} if "f2" in cost else {}
    how |= {"friction": f} if cost in ("friction", "surface") else {}
    found = shortest_paths(
        z, [(4, 5)], cost=cost, vertical_factor=TABLE, reverse=reverse, verify=True, **how, **CPU
    ).distance()
    if plain is None:  # as the formula of the preset, with its own parameters
        text = PRESETS[cost].formula
        points = ", ".join(f"{a}, {b}" for a, b in TABLE)
        text = f"({text}) * interp(degrees(atan(slope)), {points})"
        own = dict(PRESETS[cost].parameters)
        again = shortest_paths(z, [(4, 5)], cost=text, parameters=own, reverse=reverse, **CPU)
        np.testing.assert_array_equal(found, again.distance())
        return

    def priced(za, zb, fa, fb, length):
        dz, mean = zb - za, (fa + fb) / 2
        scale = mean if cost == "surface" else 1.0
        return plain(dz, length, mean) * scale * factor(dz / length)

    right = reference.dijkstra(z, priced, [(4, 5, 0, 1)], f=f, reverse=reverse).astype(float)
    right[np.isinf(right)] = np.nan
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_steps_at_other_angles_do_not_exist():
    """As of Esri's tables, whose factors are infinite outside of them."""
    z = np.array([[0.0, 1.0, 0.0, 5.0]])
    found = shortest_paths(
        z, [(0, 0)], cost="surface", vertical_factor=[(-60, 1), (45.1, 1)], **CPU
    ).distance()
    np.testing.assert_allclose(found, [[0, math.sqrt(2), 2 * math.sqrt(2), np.nan]])


def test_the_longest_table():
    """Of numbers that take many characters."""
    angles, z = np.linspace(-90, 90, MOST_FACTORS), hills(5, 6)
    factors = np.random.default_rng(2).uniform(1, 2, MOST_FACTORS)
    table = [*zip(angles, factors, strict=True)]
    found = shortest_paths(z[:1], [(0, 0)], cost="1", vertical_factor=table, **CPU).distance()
    slopes = np.degrees(np.arctan(np.diff(z[0])))
    np.testing.assert_allclose(found[0, 1:], np.cumsum(np.interp(slopes, angles, factors)))


@pytest.mark.parametrize("mark", [",", ";", "\t", " ", "   ", " , "])
@pytest.mark.parametrize("heading", ["", "angle,factor\n", "VRMA VF\n"])
def test_tables(tmp_path, mark, heading):
    file = tmp_path / "t.txt"
    file.write_text(heading + "".join(f"{a}{mark}{f}\n" for a, f in TABLE) + "\n")
    assert read_factors(file) == TABLE
    z = hills(9, 9)
    one, other = (
        shortest_paths(z, [(0, 0)], cost="surface", vertical_factor=given, **CPU).distance()
        for given in (file, TABLE)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "lines", ["-90,1,\n90,2,\n", "angle;2015;\n-90;1;;\n90;2;;\n", "angle 1\n-90 1\n90 2\n"]
)
def test_tables_as_spreadsheets_write_them(tmp_path, lines):
    (tmp_path / "t.txt").write_text(lines)
    assert read_factors(tmp_path / "t.txt") == [(-90, 1), (90, 2)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([(0, 1)], "1 factor; give 2 to 200"),
        ([(k / 9, 1) for k in range(MOST_FACTORS + 1)], "201 factors; give 2 to 200"),
        ([(0, 1), (0, 2)], "angle 0 occurs twice; delete one"),
        ([(0, 1), (-1, 2)], "angle -1: angles must be from -90 to 90 degrees, and ascending"),
        ([(-91, 1), (0, 2)], "angle -91: angles must"),
        ([(math.nan, 1), (0, 2)], "angle nan: angles must"),
        ([(0, 1), (5, -1)], "factor -1 at 5 degrees: give a finite number, 0 or more"),
        ([(0, 1), (5, math.inf)], "factor inf at 5 degrees: give a finite number, 0 or more"),
        ([(0, 1, 2), (1, 2, 3)], "pairs of an angle"),
        (3, "pairs of an angle"),
        ("0 1\n5 x\n", "line 2: '5 x' is not an angle and its factor"),
        ("a b\nc d\n", "line 2: 'c d' is not"),
        ("5\n6\n", "line 1: '5' is not an angle and its factor"),
        ("", "0 factors"),
        ("-90;1,5\n90;1,5\n", "line 1: '-90;1,5' is not .* decimals with a point"),
        ("-90 1,5\n90 1,5\n", "line 1: '-90 1,5' is not an angle"),
        ("-90;1.5\n90,1.5\n", "line 2: '90,1.5' is not an angle"),
        ("a b\n-90 1 3\n", "line 2: '-90 1 3' is not an angle"),
        ("\u221290 1\n90 1\n", "line 1: '\u221290 1' is not an angle"),
    ],
)
def test_bad_tables(tmp_path, given, words):
    if isinstance(given, str):
        (tmp_path / "t.txt").write_text(given)
        given = tmp_path / "t.txt"
    with pytest.raises(InputError, match=words):
        shortest_paths(hills(9, 9), [(0, 0)], cost="surface", vertical_factor=given, **CPU)


def test_what_takes_no_factors(tmp_path):
    z = hills(9, 9)
    for cost, how, words in (
        ("minimax", {}, "cannot be combined with vertical_factor"),
        ("langmuir", {}, "cannot be combined with vertical_factor"),
        ("friction", {"friction": z}, "but layer holds the frictions"),
    ):
        with pytest.raises(InputError, match=words):
            shortest_paths(z, [(0, 0)], cost=cost, vertical_factor=TABLE, **how, **CPU)
    with pytest.raises(InputError, match="cannot be read as a table of factors: No such file"):
        shortest_paths(z, [(0, 0)], cost="surface", vertical_factor=tmp_path / "none", **CPU)


# -- layers by name --------------------------------------------------------------------------------


def test_a_formula_names_a_layer(store):
    """With the proof, the record, an index, a matrix."""
    how = {"verify": True, **CPU}
    named = shortest_paths(store, [(1, 1)], cost="length * (snow + 2 * snow_to)", **how)
    settings = TileStore.open(store).layer("distance").info["settings"]
    assert settings["friction"] == "snow"
    assert settings["cost"] == "length * (friction + 2 * friction_to)"
    assert verify(store) == (0, {"distance"})
    distance = named.distance()
    usual = {"cost": "length * (friction + 2 * friction_to)", "friction": "snow", "into": "usual"}
    again = shortest_paths(store, [(1, 1)], **usual, **CPU)
    np.testing.assert_array_equal(distance, again.distance())
    assert np.isnan(distance[40:44, 50]).all()
    ends = [(1, 1), (60, 70)]
    table = cost_matrix(store, ends, cost="length * (snow + 2 * snow_to)").columns()
    assert table["cost"][0] == distance[60, 70]
    build_index(store, cost="length * snow", vertical_factor=TABLE, **CPU)
    how = {"cost": "length * snow", "vertical_factor": TABLE, **CPU}
    one = shortest_paths(store, [(1, 1)], method="index", into="one", **how).distance()
    other = shortest_paths(store, [(1, 1)], into="other", **how).distance()
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_networks_take_the_same_costs(store, tmp_path):
    places = [(1, 1), (60, 70), (30, 80)]
    how = {"cost": "length * snow", "vertical_factor": TABLE}
    costs = cost_matrix(store, places, **how).columns()["cost"]
    made = terrain_gpu.least_cost_network(
        store, places, tmp_path / "n.geojson", table=tmp_path / "n.csv", pairs="all", **how
    )
    with open(tmp_path / "n.csv") as lines:
        rows = [*csv.DictReader(lines)]
    assert made.links == len(rows)
    assert {float(row["cost"]) for row in rows} <= set(costs.tolist())
    found = terrain_gpu.least_cost_network(
        store, places, tmp_path / "t.geojson", cost="length * snow", **CPU
    )
    assert (found.links, found.parts) == (2, 1)


def test_a_formula_names_one_layer(store):
    for cost, how in (
        ("length * snow * wind", {}),
        ("length * snow_from * wind_to", {}),
        ("length * snow * friction", {"friction": "wind"}),
        ("length * snow", {"friction": "wind"}),
        ("length * snow * friction", {}),
        ("length * snow_from * friction_to", {}),
        ("length * (1 + friction_from) * snow", {"parameters": {"k": 1.0}}),
    ):
        with pytest.raises(InputError, match=r"uses .* and .*, but it may use only one layer in"):
            shortest_paths(store, [(1, 1)], cost=cost, **how, **CPU)
    with pytest.raises(InputError, match=r"unknown name 'rain' .*; layers: snow, wind; or"):
        shortest_paths(store, [(1, 1)], cost="length * rain", **CPU)
    with pytest.raises(InputError, match="cost 'toblers' is not known; use one of absdiff, fri"):
        shortest_paths(store, [(1, 1)], cost="toblers", **CPU)
    # The layer may have both names where --friction says so.
    both = shortest_paths(
        store, [(1, 1)], cost="length * (friction + snow_to)", friction="snow", into="b", **CPU
    ).distance()
    one = shortest_paths(store, [(1, 1)], cost="length * (snow + snow_to)", into="o", **CPU)
    np.testing.assert_array_equal(both, one.distance())
    # A parameter hides a layer.
    cost, own = "length * snow", {"snow": 2.0}
    found = shortest_paths(store, [(1, 1)], cost=cost, parameters=own, **CPU).distance()
    assert found[1, 2] == 2


@given(
    st.sampled_from(["snow", "s", "e5", "snow_from", "length2"]),
    st.sampled_from(["{0}", "{0}_from", "{0}_to", "2 * {0} + 1e5 * {0}_to"]),
)
def test_names_of_layers_are_whole_words(name, text):
    rest = " + length + snows * 1.e5"
    found = with_named_layer(text.format(name) + rest, None, [name, "length", "max"])
    assert found == (text.format("friction") + rest, name)


@pytest.mark.parametrize("door", ["paths", "matrix", "network", "index"])
@pytest.mark.parametrize("word", ["friction", "friction_from", "friction_to"])
def test_friction_beside_a_named_layer_is_refused(tmp_path, door, word):
    """A store with a layer of that name: it would silently be the named one."""
    path = make_store(tmp_path / "s.zarr", hills(), None, 64, cell=(1.0, 1.0))
    for name in ("lc", "friction", "z"):
        terrain_gpu.calc(path, "elevation * 0 + 2", into=name)
    ends, cost = [(1, 1), (60, 70)], f"length * (1 + lc) * {word}"
    does = {
        "paths": lambda cost: shortest_paths(path, ends, cost=cost, **CPU),
        "matrix": lambda cost: cost_matrix(path, ends, cost=cost, **CPU),
        "network": lambda cost: terrain_gpu.least_cost_network(
            path, ends, tmp_path / "n.geojson", cost=cost, **CPU
        ),
        "index": lambda cost: build_index(path, cost=cost, **CPU),
    }[door]
    with pytest.raises(
        InputError, match="the formula uses friction and lc, but it may use only one layer"
    ):
        does(cost)
    # Of a layer z, z_from would be the height.
    with pytest.raises(InputError, match=r"unknown name 'z' .*; layers: friction, lc, z; or"):
        does("length * (1 + z) + abs(z_from - z_to)")


def test_a_parameter_hides_the_layer_of_a_cell():
    assert with_named_layer("snow * snow_from", None, ["snow"], ["snow_from"]) == (
        "friction * snow_from",
        "snow",
    )


# -- the commands ----------------------------------------------------------------------------------


def test_the_commands(store, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "t.csv"
    table.write_text("angle;factor\n" + "\n".join(f"{a};{f}" for a, f in TABLE))
    words = "--cost", "k * length * snow", "--parameter", "k=2", "--vertical-factor", "t.csv"
    start = "compute-sssp", "s.zarr", "--source-rowcol", "5,5"
    code, out, err = call(capfd, *start, *words, "--verify", "--json", "r.json")
    assert code == 0, err
    assert "farthest" in out
    settings = json.loads((tmp_path / "r.json").read_text())["settings"]
    assert "interp(degrees(atan(slope)), -60.0, 3.0" in settings["cost"]
    assert (settings["friction"], settings["parameters"]) == ("snow", {"k": 2.0})
    # A source where the layer that the formula names has no value.
    void = "compute-sssp", "s.zarr", "--source-rowcol", "41,50", "--into", "v"
    code, _, err = call(capfd, *void, "--on-nodata", "snap", "--snap", "2px", *words)
    assert code == 0, err
    assert (whole(TileStore.open(store).layer("v"))[40:43, 48:53] == 0).sum() == 1
    ends = "--source-rowcol", "5,5", "--source-rowcol", "60,70"
    assert call(capfd, "terrain-gpu", "cost-matrix")[0] == 2
    code, _, err = call(capfd, "cost-matrix", "s.zarr", *ends, *words, "-o", "m.csv")
    assert code == 0, err
    with open("m.csv") as lines:
        rows = [*csv.DictReader(lines)]
    distance = whole(TileStore.open(store).layer("distance"))
    assert float(rows[0]["cost"]) == distance[60, 70]
    code, _, err = call(capfd, *start, *words, "--overwrite", "-o", "t.csv")
    assert code == 2
    assert "t.csv" in err
    assert read_factors(table) == TABLE
    for what, cost, own, good in (
        ("s.zarr", "k * length * snow", ["--parameter", "k=2"], True),
        ("s.zarr", "k * length * snow", [], False),
        ("900x800", "k * length * friction", ["--friction", "uint8", "--parameter", "k=2"], True),
        ("900x800", "langmuir", ["--parameter", "a=1"], True),
        ("900x800", "langmuir", ["--parameter", "q=1"], False),
    ):
        for purpose in ("sssp", "index"):
            code, _, err = call(capfd, "plan", what, "--for", purpose, "--cost", cost, *own)
            assert (code == 0) == good, err
    assert call(capfd, "plan", "900x800", "--for", "mst", "--parameter", "k=2")[0] == 2
