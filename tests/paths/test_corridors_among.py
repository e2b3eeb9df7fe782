"""Corridors among many sources, against sums of Dijkstra's distances from each."""

from __future__ import annotations

import csv
import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import reference
from contract import make_store as make_heights
from contract import whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import shapes
from test_corridor import call
from test_least_cost_network import questions, steps_of
from test_paths import make_store
from test_paths_matrix import as_places

from terrain_gpu import TileStore, corridor, least_cost_network
from terrain_gpu.errors import InputError, StoreError

pytestmark = pytest.mark.usefixtures("no_fsync")

ADDED = ["absdiff", "friction", "surface"]
"""Models whose costs add up."""

LIMITS = {
    None: lambda least: math.inf,
    0: lambda least: 0,
    9.5: lambda least: 9.5,
    "10%": lambda least: 0.1 * least,
    "150%": lambda least: 1.5 * least,
}


@settings(max_examples=examples(10))
@given(
    questions(shapes(130, 2500), models=ADDED, connectivities=(8, 4, 16)),
    st.sampled_from(list(LIMITS)),
    st.sampled_from(["delaunay", "all", "given"]),
    st.sampled_from([64, 256]),
    st.randoms(use_true_random=False),
)
def test_corridors_are_those_of_whole_distances(folders, question, within, kind, block, random):
    problem, places = question
    ids = sorted({name for *_, name in places})
    pairs = set(combinations(ids, 2))
    if kind == "given":
        pairs = set(random.sample(sorted(pairs), random.randint(1, len(pairs))))
    how = {name: value for name, value in steps_of(problem).items() if name != "reverse"}
    graph = {**problem.graph, "reverse": False}
    if kind == "delaunay":
        far = reference.dijkstra(problem.cells, problem.model, places, **graph)
        codes, _ = reference.backlinks(far, problem.cells, problem.model, places, **graph)
        areas = reference.allocation(codes, problem.cells, problem.model, places)
        pairs = reference.touching(areas)
        least = {}
        for *cell, _, name in sorted(places, key=lambda place: place[3]):
            first = least.setdefault(tuple(cell), name)
            pairs |= {(first, name)} if first != name else set()
    right, optima = reference.corridors(
        problem.cells, problem.model, places, pairs, LIMITS[within], **graph
    )
    with folders() as folder:
        store = make_store(folder / f"{block}.zarr", problem, block)
        found = corridor(
            store, sources=as_places(places), within=within, threads=2, verify=True,
            pairs=[*map(list, pairs)] if kind == "given" else kind, **how,
        )  # fmt: skip
        np.testing.assert_array_equal(whole(found.layers["corridor"]), right)
        told = found.report.result["pairs"]
        least = {(one["from"], one["to"]): one["optimum"] for one in told}
        assert least == {k: v if math.isfinite(v) else None for k, v in optima.items()}


CORES = [(10, 10), (100, 30), (150, 200), (50, 150), (120, 110)]


@pytest.fixture
def hills(tmp_path, monkeypatch):
    """A store in the current folder."""
    monkeypatch.chdir(tmp_path)
    heights = np.random.default_rng(1).normal(size=(200, 230)).cumsum(axis=1).astype(np.float32)
    return make_heights(tmp_path / "s.zarr", heights, None, 64)


def words(cores=CORES):
    return " ".join(f"--source-rowcol {row},{col}" for row, col in cores)


def test_the_command_takes_the_pairs_of_a_network(hills, capfd):
    """From its table; and writes one of its own."""
    network = least_cost_network(
        hills, CORES, "n.geojson", pairs="delaunay", cost="surface", table="n.csv"
    )
    line = f"corridor s.zarr {words()} --cost surface --within 5%"
    code, out, err = call(capfd, f"{line} --pairs n.csv --table c.csv --verify --json r.json")
    assert code == 0, err
    assert " cells within 5%, " in out
    links = list(csv.DictReader(Path("n.csv").read_text().splitlines()))
    rows = list(csv.DictReader(Path("c.csv").read_text().splitlines()))
    assert len(rows) == network.links
    assert [(row["from"], row["to"]) for row in rows] == [(row["from"], row["to"]) for row in links]
    for row, link in zip(rows, links, strict=True):  # a link stays within two areas
        assert float(row["cost"]) <= float(link["cost"]) * (1 + 1e-12)
    told = json.loads(Path("r.json").read_text())["result"]["pairs"]
    assert [one["optimum"] for one in told] == [float(row["cost"]) for row in rows]
    code, _, err = call(capfd, f"{line} --pairs delaunay --into areas --compress-layers zstd")
    assert code == 0, err
    store = TileStore.open("s.zarr")
    assert whole(store.layer("areas")).tobytes() == whole(store.layer("corridor")).tobytes()
    assert call(capfd, "verify s.zarr --backend cpu")[0] == 0


def test_distances_reach_as_far_as_corridors(hills):
    found = corridor(hills, sources=CORES, pairs=[(2, 5)], cost="surface", within=30)
    store, (pair,) = TileStore.open(hills), found.report.result["pairs"]
    for name in ("corridor_2", "corridor_5"):
        assert np.nanmax(whole(store.layer(name))) == pytest.approx(pair["optimum"] + 30, rel=0.01)
    assert np.isfinite(whole(store.layer("corridor_1"))).sum() == 1
    assert "corridor_nearest" not in store.layers


def test_names(hills, tmp_path, capfd):
    features = [
        {"type": "Feature", "properties": {"park": name},
         "geometry": {"type": "Point", "coordinates": [x, y]}}
        for name, (x, y) in {"Ash": (15, -15), "Elm": (95, -85), "Oak": (215, -180)}.items()
    ]  # fmt: skip
    grid = TileStore.open(hills).layer("elevation").grid
    for one in features:
        x, y = one["geometry"]["coordinates"]
        a, _, c, _, e, f = grid.transform
        one["geometry"]["coordinates"] = [c + a * x, f - e * y]
    text = {"type": "FeatureCollection", "crs": None, "features": features}
    (tmp_path / "parks.geojson").write_text(json.dumps(text))
    (tmp_path / "p.csv").write_text("to;note;from\nElm;x;Ash\nOak;;Elm\nAsh;;Elm\n")
    line = "corridor s.zarr --sources parks.geojson --id-field park --cost surface"
    code, out, err = call(capfd, f"{line} --pairs p.csv --table c.csv")
    assert code == 0, err
    assert "least costs: Ash to Elm " in out
    rows = list(csv.reader(Path("c.csv").read_text().splitlines()))
    assert [row[:2] for row in rows] == [["from", "to"], ["Ash", "Elm"], ["Elm", "Oak"]]


def test_runs_are_resumed_and_replaced(hills):
    how = {"sources": CORES, "pairs": "delaunay", "cost": "surface"}
    first = corridor(hills, **how, within="5%", table="c.csv")
    with pytest.raises(StoreError, match="--overwrite replaces it"):
        corridor(hills, **how, within="5%")
    again = corridor(hills, **how, within="5%", resume=True)
    assert again.report.result["pairs"] == first.report.result["pairs"]
    right = corridor(hills, **how, within="9%", into="wider")
    found = corridor(hills, **how, within="9%", overwrite=True)
    assert whole(found.layers["corridor"]).tobytes() == whole(right.layers["wider"]).tobytes()


def test_pairs_without_a_path(tmp_path, caplog):
    heights = np.full((40, 70), 3, np.int16)
    heights[:, 30] = -1
    store = make_heights(tmp_path / "s.zarr", heights, -1, 64)
    how = {"cost": "surface", "within": "5%", "table": tmp_path / "c.csv"}
    found = corridor(store, sources=[(5, 5), (30, 20), (5, 50)], pairs="all", **how)
    assert [one["optimum"] is None for one in found.report.result["pairs"]] == [False, True, True]
    assert "there is no path between the sources of 1 and 3" in caplog.text
    assert (tmp_path / "c.csv").read_text().count("\n") == 2


def test_a_dataarray(hills):
    array = TileStore.open(hills).layer("elevation").to_xarray()
    expected = corridor(hills, sources=CORES, pairs="all", cost="surface", within="5%")
    found = array.terrain.corridor(CORES, pairs="all", cost="surface", within="5%")
    np.testing.assert_array_equal(found.values, whole(expected.layers["corridor"]))


def test_what_is_refused(hills, tmp_path, capfd):
    (tmp_path / "few.csv").write_text("from,to\n")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    (tmp_path / "short.csv").write_text("from,to\n1\n")
    (tmp_path / "far.csv").write_text("from,to\n1,7\n")
    bad = {
        "--pairs all": "no source: give --source X,Y",
        f"{words()} --target-rowcol 3,3 --pairs all": "--pairs are pairs of --source-rowcol",
        f"{words(CORES[:1])} --pairs all": "--pairs needs at least two --source-rowcol",
        f"{words()} --pairs all --cost tobler": "differs uphill and downhill",
        f"{words()} --pairs all --cost minimax": "do not add up",
        f"{words()} --pairs some": '--pairs \'some\': give "delaunay", "all", a .csv file',
        f"{words()} --pairs no.csv": "no.csv: cannot be read as a table of pairs",
        f"{words()} --pairs few.csv": "few.csv: has no pairs",
        f"{words()} --pairs odd.csv": "does not name the fields from and to",
        f"{words()} --pairs short.csv": "line 2 lacks the fields from and to",
        f"{words()} --pairs far.csv": "no source is called '7'",
        f"{words()} --pairs all --table t.gpkg": "name a .csv or .parquet file",
        f"{words()} --pairs few.csv --table few.csv --overwrite": "both name few.csv",
        "elevation other --pairs all": "--pairs is for distances that are computed here",
    }
    for line, message in bad.items():
        cost = "" if "--cost" in line or "other" in line else " --cost surface"
        code, _, err = call(capfd, f"corridor s.zarr {line}{cost}")
        assert (code, message in err) == (2, True), (line, err)
    assert set(TileStore.open(hills).layers) == {"elevation"}
    with pytest.raises(InputError, match="pairs: 2 is paired with itself"):
        corridor(hills, sources=CORES, pairs=[(2, 2)], cost="surface")
    for wrong in ([(1, 2, 3)], [1, 2], 7, [(1.5, 2)]):
        with pytest.raises(InputError, match="pairs"):
            corridor(hills, sources=CORES, pairs=wrong, cost="surface")


@pytest.mark.parametrize("value", [7, [[0, 0]], [[0, 9]], [[0, 1], [0, 1]], [["0", 1]]])
def test_a_damaged_record_of_pairs(hills, capfd, value):
    corridor(hills, sources=CORES, pairs="all", cost="surface")
    file = hills / "corridor" / "zarr.json"
    text = json.loads(file.read_text())
    own = next(v for v in text["attributes"].values() if isinstance(v, dict) and "settings" in v)
    own["settings"]["chosen"] = value
    del own["checksum"]
    file.write_text(json.dumps(text))
    code, _, err = call(capfd, f"verify {hills} --backend cpu")
    assert (code, "chosen is recorded as" in err) == (2, True), err


def test_the_shared_message_names_pairs(hills):
    with pytest.raises(InputError, match="for corridors among all sources, give pairs in place of"):
        corridor(hills, sources=CORES, targets=CORES, cost="surface")
