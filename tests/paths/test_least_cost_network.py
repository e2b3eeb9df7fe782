"""Networks of least-cost paths against Dijkstra from each place, and from all places at once."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pyarrow.parquet
import pyogrio.raw
import pytest
import reference
import strategies
from contract import FileContract
from contract import make_store as make_heights
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, within
from test_paths import make_store, within_reach
from test_paths_matrix import as_places
from test_paths_operation import ends

import terrain_gpu
from terrain_gpu import (
    GridSpec,
    InputError,
    PlanError,
    StoreError,
    VerificationError,
    cost_matrix,
    least_cost_network,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.machine import Machine
from terrain_gpu.engine.run import run
from terrain_gpu.grid import BlockGrid
from terrain_gpu.io import features
from terrain_gpu.io.places import as_places as valid
from terrain_gpu.paths.cost_distance.operation import CostDistance
from terrain_gpu.paths.cost_matrix import relax
from terrain_gpu.paths.least_cost_network.crossings import link_dtype, spanning_tree
from terrain_gpu.paths.least_cost_network.operation import (
    CROSS,
    LINK_BYTES,
    LINKS,
    PlaceNetwork,
    _CheapestLinks,
    plan_network,
)
from terrain_gpu.store import TileStore

pytestmark = pytest.mark.usefixtures("no_fsync")

SYMMETRIC = ["absdiff", "friction", "surface", "minimax"]


@st.composite
def questions(draw, shapes=strategies.shapes(200, 4000), models=SYMMETRIC, **how):  # noqa: B008
    """A `CostProblem` of symmetric costs, and its places (row, col, None, id)."""
    raster = strategies.rasters(shape=shapes)
    problem = draw(strategies.cost_problems(raster, models=models, **how))
    problem = replace(problem, max_cost=None)
    within_reach(problem)
    good = problem.valid if problem.barriers is None else problem.valid & ~problem.barriers
    hypothesis.assume(good.any())
    cells = st.sampled_from(reference.listed(good))
    hypothesis.assume(np.abs(problem.cells[good].astype(float)).max() < 1e300)  # climbs are finite
    few = st.integers(1, draw(st.sampled_from([2, 12])))
    drawn = draw(st.lists(st.tuples(cells, few), min_size=2, max_size=14, unique=True))
    places = [(*cell, None, name) for cell, name in drawn]
    hypothesis.assume(len({name for *_, name in places}) > 1)
    return problem, places


def steps_of(problem):
    names = {k: k for k in ("friction", "barriers") if getattr(problem, k) is not None}
    if problem.model == "friction" and not names.get("friction"):
        names["friction"] = "elevation"
    own = {"cost": problem.model, "connectivity": problem.connectivity}
    return {**own, **names, "corner_cutting": problem.corner_cutting, "reverse": problem.reverse}


def read(file):
    """The attributes and positions of lines of a GeoJSON file."""
    found = json.loads(Path(file).read_text())["features"]
    return [(tuple(f["properties"].values()), f["geometry"]["coordinates"]) for f in found]


def cells_along(grid, xy):
    a, _, c, _, e, f = grid.transform
    return [(round((y - f) / e - 0.5), round((x - c) / a - 0.5)) for x, y in xy]


def check_line(problem, places, line, steps):
    """A line is a way between its places, with its cost, length and climb."""
    (begin, end, cost, length, climb), xy = line
    way = cells_along(problem.grid, xy)
    way = way[:1] if way[0] == way[1] else way
    assert (*way[0], None, begin) in places
    assert (*way[-1], None, end) in places
    total = problem.cells[way[0]].item() if problem.model == "minimax" else 0
    for u, v in pairwise(way):
        (step,) = [step for there, step, _ in steps[u] if there == v]
        total = reference.extend(problem.model, total, step)
    assert cost == (total if problem.exact else pytest.approx(total, rel=1e-12))
    lengths = problem.graph["lengths"]
    right = reference.measured_way(problem.cells, way, lengths, reverse=problem.reverse)
    heights = problem.model != "friction" or problem.friction is not None
    assert (length, climb) == (right[0], right[1] if heights else None)


@settings(max_examples=examples(20))
@given(
    questions(connectivities=(8, 4, 16)),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([None, 0, 1, 20]),
)
def test_trees_and_touching_areas(folders, question, threads, limit):
    problem, places = question
    steps, how = reference.arcs(problem.cells, problem.model, **problem.graph), steps_of(problem)
    right = reference.cheapest_crossings(problem.cells, problem.model, places, **problem.graph)
    if limit is not None and problem.model == "minimax":
        limit = None  # heights may be negative
    near = {k: v for k, v in right.items() if limit is None or v <= limit}
    whole = problem.exact
    metric, parts = reference.spanning_costs(
        problem.cells, problem.model, places, max_cost=limit, **problem.graph
    )
    with folders() as folder:
        texts = {"mst": set(), "delaunay": set()}
        for block in (64, 256):
            store = make_store(folder / f"{block}.zarr", problem, block)
            for pairs, seen in texts.items():
                file = folder / f"{block}-{pairs}.geojson"
                found = least_cost_network(
                    store, as_places(places), file, table=file.with_suffix(".csv"), pairs=pairs,
                    max_cost=limit, threads=threads, into=f"near_{pairs}", verify=block == 64,
                    **how,
                )  # fmt: skip
                assert found.links == len(read(file))
                seen.add(file.read_text() + file.with_suffix(".csv").read_text())
                if limit is None or whole:
                    assert found.parts == parts
        assert {len(seen) for seen in texts.values()} == {1}
        tree, areas = (read(folder / f"64-{pairs}.geojson") for pairs in texts)
    for line in (*tree, *areas):
        check_line(problem, places, line, steps)
    assert {own[:2]: own[2] for own, _ in areas} == near
    costs = sorted(own[2] for own, _ in tree)
    if whole:
        assert costs == metric
    elif limit is None:
        assert costs == pytest.approx(metric, rel=1e-12)
    assert all(near[own[:2]] == own[2] for own, _ in tree)
    rows = list(csv.reader(texts["delaunay"].pop().partition("]}\n")[2].splitlines()))
    shown = [["" if value is None else str(value) for value in own] for own, _ in areas]
    assert rows == [["from", "to", "cost", "length", "climb"], *shown]


@given(questions(), st.sampled_from([None, 1, 2]), st.booleans())
def test_all_pairs_and_the_nearest(folders, question, nearest, verify):
    problem, places = question
    how = {"pairs": "all", "nearest": None} if nearest is None else {"nearest": nearest}
    with folders() as folder:
        store = make_store(folder / "s.zarr", problem, 64)
        file = folder / "n.geojson"
        how |= {"verify": verify, **steps_of(problem)}
        found = least_cost_network(store, as_places(places), file, **how)
        assert ("verified_steps" in found.report.result) == verify
        columns = cost_matrix(store, as_places(places), **steps_of(problem), nearest=nearest)
        lines = read(file)
        assert {*TileStore.open(store).layers} <= {"elevation", "friction", "barriers"}
    rows = zip(*(column.tolist() for column in columns.columns().values()), strict=True)
    rows = [row for row in rows if row[2] is not None]
    right, seen = [], set()
    for row in rows:
        if row[:2][::-1] not in seen:
            seen.add(row[:2])
            right.append(row)
    assert [own for own, _ in lines] == right
    steps = reference.arcs(problem.cells, problem.model, **problem.graph)
    for line in lines:
        check_line(problem, places, line, steps)
    part = {name: name for *_, name in places}
    for a, b, *_ in right:
        part = {name: part[a] if own == part[b] else own for name, own in part.items()}
    assert (found.links, found.parts) == (len(right), len(set(part.values())))


def test_all_pairs_of_16_neighbours(world):
    """Links and lines are the rows and paths of the cost matrix."""
    places, how = [(5, 5), (80, 20), (50, 100)], {"cost": "absdiff", "connectivity": 16}
    least_cost_network("s.zarr", places, "n.geojson", pairs="all", verify=True, **how)
    rows = listed_rows(cost_matrix("s.zarr", places, output=None, paths="p.geojson", **how))
    pairs = [row for row in rows if row[0] < row[1]]
    assert len(pairs) == 3
    found = [json.loads(Path(name).read_text())["features"] for name in ("n.geojson", "p.geojson")]
    lines = [[(f["properties"], f["geometry"]["coordinates"]) for f in one] for one in found]
    assert lines[0] == [line for line in lines[1] if line[0]["from"] < line[0]["to"]]
    assert [tuple(own.values()) for own, _ in lines[0]] == pairs
    plain = listed_rows(cost_matrix("s.zarr", places, cost="absdiff"))
    assert any(row[2] != other[2] for row, other in zip(rows, plain, strict=True))


def listed_rows(found):
    return list(zip(*(column.tolist() for column in found.columns().values()), strict=True))


def test_directed_costs(tmp_path):
    z = np.random.default_rng(1).integers(0, 60, (40, 50)).astype(np.int16)
    store = make_heights(tmp_path / "s.zarr", z, None, 64)
    places = [(1, 2), (30, 40), (20, 3)]
    for cost in ("tobler", "length * exp(slope)"):
        for pairs in ("mst", "delaunay"):
            with pytest.raises(InputError, match=r"differs uphill and downhill.* use pairs all"):
                least_cost_network(store, places, tmp_path / "n.gpkg", cost=cost, pairs=pairs)
    file = tmp_path / "n.geojson"
    found = least_cost_network(store, places, file, cost="tobler", pairs="all")
    assert (found.links, found.parts) == (6, 1)
    rows = cost_matrix(store, places, cost="tobler").columns()
    assert [own[:3] for own, _ in read(file)] == list(
        zip(*(rows[name].tolist() for name in ("source", "target", "cost")), strict=True)
    )
    least_cost_network(store, places, file, cost="length * exp(abs(slope))", overwrite=True)
    assert len(read(file)) == 2


def test_equal_costs_are_decided_by_ids(tmp_path):
    """On a plain every choice is tied: the tree has the least ids, whatever the order."""
    store = make_heights(tmp_path / "s.zarr", np.ones((21, 21), np.uint8), None, 64)
    how = {"cost": "friction", "friction": "elevation", "connectivity": 4}
    places = [(0, 0), (0, 20), (20, 0), (20, 20)]
    least_cost_network(store, places, tmp_path / "n.geojson", **how)
    assert [own[:2] for own, _ in read(tmp_path / "n.geojson")] == [(1, 2), (1, 3), (3, 4)]
    links = np.array([(1, 2, 5, 0), (1, 3, 5, 0), (2, 3, 5, 0), (3, 4, 1, 0)],
                     link_dtype(np.dtype(np.uint32)))  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(5):
        found = np.sort(spanning_tree(rng.permutation(links)), order=["from", "to"])
        assert found[["from", "to"]].tolist() == [(1, 2), (1, 3), (3, 4)]


# -- the contract of operations ----------------------------------------------------------------


class TestPlaceNetworkContract(FileContract):
    command = "least-cost-network s.zarr --source-rowcol 3,5 --source-rowcol 9,60 -o n.geojson"
    rasters = strategies.rasters(shape=strategies.shapes(200, 6000))
    test_its_proof_refuses_mutations = None  # see below

    def places(self, store):
        layer = TileStore.open(store).layer("elevation")
        cells = layer.read_window(*layer.grid.window)
        found = [cell[:2] for cell in ends(reference.vertices(cells, layer.nodata))]
        return valid(layer.grid, found, "places")

    def prepare(self, store):
        names = "distance", "backlink", "allocation"
        how = {"cost": "surface", "sources": self.places(store), "names": names}
        run(CostDistance(str(store), "elevation", into="near", **how))

    def make(self, store):
        path = str(store.parent / "n.geojson")
        try:
            places = self.places(store)
        except StoreError:  # a damaged layer, which the operation must find
            places = []
        return PlaceNetwork(str(store), "near", path, None, "delaunay", None, places)

    def outputs(self, store):
        file = store.parent / "n.geojson"
        return {str(file): np.array([own[:3] for own, _ in read(file)]).reshape(-1, 3)}

    def expected(self, data, nodata, grid):
        good = reference.vertices(data, nodata)
        graph = {"valid": good, "lengths": terrain_gpu.grid.lengths.step_lengths(grid)}
        found = reference.cheapest_crossings(data, "surface", ends(good), **graph)
        return [np.array([(*k, v) for k, v in sorted(found.items())], float).reshape(-1, 3)]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def full(self, patch, after):
        def full(*args):
            raise OSError(28, "No space left on device")

        patch.setattr(features, "_write_geojson", full)


def cross(lines):
    """Two lines exchange their ends."""
    one, other = lines[:2]
    one["properties"]["to"], other["properties"]["to"] = (
        other["properties"]["to"], one["properties"]["to"]
    )  # fmt: skip


def bend(lines):
    """A line goes over a cell beside its way."""
    xy = lines[0]["geometry"]["coordinates"]
    middle = len(xy) // 2
    (x0, y0), (x1, y1) = xy[middle - 1], xy[middle]
    there = [x0, y1] if x0 != x1 and y0 != y1 else [x0 + (y0 != y1) * 10.0, y0 + (x0 != x1) * 20.0]
    xy.insert(middle, there)


def costs(change):
    def spoil(lines):
        lines[1]["properties"]["cost"] += change

    return spoil


MUTATIONS = {
    "cheaper": (costs(-1), "instead of"),
    "dearer": (costs(1), "less than the links between|instead of"),
    "longer": (lambda lines: lines[0]["properties"].update(length=1.0), "length is 1.0"),
    "climbing": (lambda lines: lines[0]["properties"].update(climb=1.0), "climb is 1.0"),
    "crossed": (cross, "area of one place|greater id"),
    "bent": (bend, "follow the backlinks|not neighbours|area of one place|costs"),
    "short": (lambda lines: lines[0]["geometry"]["coordinates"].pop(), "follow the backlinks"),
    "fewer": (lambda lines: lines.pop(0), "less than the links between"),
    "twice": (lambda lines: lines.insert(0, lines[0]), "not sorted"),
    "moved": (lambda lines: lines.append(lines.pop(0)), "not sorted"),
    "turned": (lambda lines: lines[0]["geometry"]["coordinates"].reverse(), "area of one place"),
}


WAYS = {8: "nearest", 16: "moves"}
"""Numbers of neighbours, and the layers of distances."""


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """A store, its places, and finished networks."""
    folder = tmp_path_factory.mktemp("proven")
    z = np.random.default_rng(4).integers(0, 60, (90, 130)).astype(np.int16)
    store = make_heights(folder / "s.zarr", z, -1, 64)
    places = [(5, 5), (80, 20), (50, 100), (10, 120), (40, 60), (70, 70), (20, 60)]
    for pairs in ("mst", "delaunay"):
        for ways, into in WAYS.items():
            file = folder / f"{pairs}-{into}.geojson"
            how = {"pairs": pairs, "into": into, "connectivity": ways}
            least_cost_network(store, places, file, resume=True, verify=True, **how)
    return folder, valid(TileStore.open(store).grid, places, "places")


@pytest.mark.parametrize(("pairs", "into"), [("mst", "nearest"), ("delaunay", "nearest"),
                                             ("delaunay", "moves")])  # fmt: skip
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_proof_refuses_wrong_lines(proven, tmp_path, monkeypatch, mutation, pairs, into):
    folder, places = proven
    change, message = MUTATIONS[mutation]
    file = tmp_path / "n.geojson"
    operation = PlaceNetwork(str(folder / "s.zarr"), into, str(file), None, pairs, None, places)
    execute = PlaceNetwork.execute

    def spoiled(self, run):
        found = execute(self, run)
        part = next(iter(run.writers.values())).part
        head, *lines, end = part.read_text().split("\n{")
        lines = [json.loads("{" + line.partition("\n")[0].rstrip(",")) for line in [*lines, end]]
        change(lines)
        text = ",\n".join(json.dumps(line) for line in lines)
        part.write_text(f"{head}\n{text}\n]}}\n")
        return found

    run(operation, verify=True, overwrite=True)
    monkeypatch.setattr(PlaceNetwork, "execute", spoiled)
    with pytest.raises(VerificationError, match=message):
        run(operation, verify=True, overwrite=True)
    assert file.read_bytes() == (folder / f"{pairs}-{into}.geojson").read_bytes()


def test_the_proof_finds_a_tree_that_is_not_minimal(proven, tmp_path, monkeypatch):
    """All its links are right, but others are cheaper; or they are no tree."""
    folder, places = proven
    from terrain_gpu.paths.least_cost_network import operation as problem

    how = str(folder / "s.zarr"), "nearest", str(tmp_path / "n.geojson"), None, "mst", None, places

    def dearest(links):
        turned = links.copy()
        turned["cost"] = links["cost"].max() - links["cost"]
        return links[np.isin(links["where"], spanning_tree(turned)["where"])]

    for choose, message in ((dearest, "less than the links between"), (lambda x: x, "cycle")):
        monkeypatch.setattr(problem, "spanning_tree", choose)
        with pytest.raises(VerificationError, match=message):
            run(PlaceNetwork(*how), verify=True)


def call(capfd, words):
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    return code, *capfd.readouterr()


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    z = np.random.default_rng(2).integers(0, 60, (90, 130)).astype(np.int16)
    z[:, 64] = -1
    z[40, 64] = 5
    make_heights(tmp_path / "s.zarr", z, -1, 64)
    grid = TileStore.open("s.zarr").grid
    xy = terrain_gpu.grid.cell_centres(grid, np.array([(5, 5), (80, 20), (50, 100), (10, 120)]))
    points = [
        {"type": "Feature", "properties": {"called": name},
         "geometry": {"type": "Point", "coordinates": at}}
        for name, at in zip(("Oak", "Ash", "Elm", "Fir"), xy.tolist(), strict=True)
    ]  # fmt: skip
    text = json.dumps({"type": "FeatureCollection", "crs": None, "features": points})
    Path("towns.geojson").write_text(text)
    return tmp_path


def test_names_files_and_the_report(world, capfd):
    command = "least-cost-network s.zarr --sources towns.geojson --id-field called"
    code, out, err = call(capfd, f"{command} -o n.gpkg --table n.csv --json -")
    assert code == 0
    assert "s.zarr: 4 places, 3 links, " in err
    assert err.endswith("written: n.gpkg, n.csv\n")
    meta, _, shapes, columns = pyogrio.raw.read("n.gpkg", layer="network")
    assert list(meta["fields"]) == ["from", "to", "cost", "length", "climb"]
    with open("n.csv", newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert [row["from"] for row in rows] == columns[0].tolist()
    assert {row[k] for row in rows for k in ("from", "to")} == {"Oak", "Ash", "Elm", "Fir"}
    ways = [np.frombuffer(shape[9:], "<f8").reshape(-1, 2) for shape in shapes]
    lengths = [math.fsum(np.hypot(*np.diff(way, axis=0).T)) for way in ways]
    assert columns[3].tolist() == pytest.approx(lengths)
    result = json.loads(out)["result"]
    assert {k: result[k] for k in ("places", "links", "parts", "output", "table", "layers")} == {
        "places": 4, "links": 3, "parts": 1, "output": "n.gpkg", "table": "n.csv",
        "layers": ["nearest", "nearest_backlink", "nearest_allocation"],
    }  # fmt: skip
    assert result["cost"] == columns[2].sum()
    # Finished layers serve other links; from a raster, nothing but files remains.
    code, _, _ = call(capfd, f"{command} -o d.parquet --pairs delaunay --resume")
    assert code == 0
    areas = pyarrow.parquet.read_table("d.parquet").to_pydict()
    assert len(areas["from"]) >= 3
    call(capfd, "export s.zarr dem.tif")
    code, _, _ = call(capfd, f"{command.replace('s.zarr', 'dem.tif')} -o r.geojson --json r.json")
    assert code == 0
    assert [own[2] for own, _ in read("r.geojson")] == columns[2].tolist()
    result = json.loads(Path("r.json").read_text())["result"]
    assert result["raster"] == "dem.tif"
    assert not {"store", "layers"} & result.keys()


def test_areas_bear_the_names_of_their_places(world, capfd, caplog):
    named = "--id-field called"
    run_it = (
        f"least-cost-network s.zarr --sources towns.geojson {named} -o n.geojson --max-cost 300"
    )
    assert call(capfd, run_it)[0] == 0
    draw = "polygons s.zarr a.geojson --layer nearest_allocation"
    assert call(capfd, f"{draw} --names towns.geojson {named}")[0] == 0
    found = [f["properties"] for f in json.loads(Path("a.geojson").read_text())["features"]]
    assert [list(own) for own in found] == [["label", "name", "cells", "area"]] * 4
    assert [own["name"] for own in found] == ["Oak", "Ash", "Elm", "Fir"]
    ids = TileStore.open("s.zarr").layer("nearest_allocation").read_window(0, 90, 0, 130)
    assert [own["cells"] for own in found] == [int((ids == k).sum()) for k in range(1, 5)]
    terrain_gpu.polygons("s.zarr", "b.gpkg", layer="nearest_allocation", names={2: "two"})
    assert "have no name" not in caplog.text
    towns = json.loads(Path("towns.geojson").read_text())
    towns["features"] = [towns["features"][0]] * 2
    Path("few.geojson").write_text(json.dumps(towns))
    assert call(capfd, f"{draw} --names few.geojson {named} --overwrite")[0] == 0
    told = "few.geojson: 3 of 4 labels of nearest_allocation have no name, the first of them 2;"
    assert caplog.text.count(told) == 1
    assert "share a name" not in caplog.text
    columns = pyogrio.raw.read("b.gpkg", columns=["name"])[3]
    assert columns[0].tolist() == [None, "two", None, None]
    with pytest.raises(InputError, match=r"a key of names .*: give a whole number"):
        terrain_gpu.polygons("s.zarr", "c.gpkg", layer="nearest_allocation", names={"a": 1})
    for words, message in (
        (named, "belong together"),
        ("--names towns.geojson --id-field none", "none"),
        (f"--names s.zarr {named}", "has no fields"),
    ):
        code, _, err = call(capfd, f"{draw} --overwrite {words}")
        assert (code, message in err) == (2, True), err


def test_places_that_no_way_joins(world, capfd, caplog):
    places = "--source-rowcol 5,5 --source-rowcol 80,20 --source-rowcol 50,100"
    code, out, _ = call(capfd, f"least-cost-network s.zarr {places} -o n.gpkg --max-cost 500")
    assert code == 0
    assert "3 places in 2 parts, 1 link, " in out
    assert "the 3 places form 2 parts that no link connects" in caplog.text
    command = f"least-cost-network s.zarr {places} -o e.parquet --max-cost 0 --into none"
    assert call(capfd, command)[0] == 0
    assert pyarrow.parquet.read_table("e.parquet").num_rows == 0


@pytest.mark.parametrize("pairs", ["--pairs all", "--nearest 1"])
def test_a_stopped_matrix_is_resumed(world, capfd, monkeypatch, pairs):
    command = f"least-cost-network s.zarr --sources towns.geojson -o n.gpkg {pairs}"
    from terrain_gpu.paths.least_cost_network import matrix

    with monkeypatch.context() as patch:
        patch.setattr(matrix, "write_links", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "")))
        assert call(capfd, command)[0] != 0
    assert sorted(path.name for path in world.glob("n.gpkg*")) == ["n.gpkg.unfinished"]
    assert "--resume continues it" in call(capfd, command)[2]
    code, _, _ = call(capfd, f"{command} --resume --json r.json")
    assert code == 0
    assert json.loads(Path("r.json").read_text())["result"]["batches_resumed"] == 1
    assert sorted(path.name for path in world.glob("n.gpkg*")) == ["n.gpkg"]


PAIRED = [{"pairs": "all"}, {"nearest": 2}]


@pytest.mark.parametrize("how", PAIRED)
def test_workers_find_the_same_matrix(world, cluster, how):
    places = [(r, c) for r in range(5, 90, 20) for c in (3, 50, 99)]
    files = []
    for client, name in ((None, "here"), (cluster, "there")):
        files.append([world / f"{name}.geojson", world / f"{name}.csv"])
        run_there = {"output": files[-1][0], "table": files[-1][1], "client": client}
        found = least_cost_network("s.zarr", places, verify=True, cost="tobler", **run_there, **how)
        assert found.report.result["verified_steps"] > 0
    assert found.report.settings["cluster"]["tasks"] == 2
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]
    assert not list(world.glob("*.unfinished"))
    with pytest.raises(InputError, match="on the CPU; leave out backend cuda, or client"):
        least_cost_network("s.zarr", places, "n.gpkg", client=cluster, backend="cuda", **how)


@pytest.mark.parametrize("how", PAIRED)
def test_wrong_costs_of_a_matrix_are_found(world, monkeypatch, how):
    usual = relax.BatchRelaxation.around

    def around(self, lane, at):
        found = usual(self, lane, at)
        found[20, 20] += lane == 1
        return found

    monkeypatch.setattr(relax.BatchRelaxation, "around", around)
    places = [(5, 5), (80, 20), (50, 100)]
    assert least_cost_network("s.zarr", places, "n.gpkg", **how).links == 3
    with pytest.raises(VerificationError):
        least_cost_network("s.zarr", places, "n.gpkg", overwrite=True, verify=True, **how)
    assert sorted(path.name for path in world.glob("n.gpkg*")) == ["n.gpkg"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no place: give --source X,Y"),
        ("--source-rowcol 5,5", "a network needs at least two --sources, not 1"),
        ("--source-rowcol 5,5 --source-rowcol 5,64", "nodata"),
        ("--sources towns.geojson --cost tobler", "differs uphill and downhill"),
        (
            "--sources towns.geojson --pairs all --nearest 2",
            "--nearest cannot be combined with --pairs",
        ),
        (
            "--source-rowcol 5,5 --source-rowcol 80,20 --pairs all --memory-limit 30MB",
            "for a cost matrix",
        ),
        (
            "--sources towns.geojson --table t.txt",
            "--table: t.txt: the name of the table must end in .csv",
        ),
        ("--sources towns.geojson --table towns.geojson", "already names this file"),
        ("--sources towns.geojson --into elevation", "different names"),
        ("--sources towns.geojson --id-field none", "none"),
        ("--sources towns.geojson --max-cost -1", "at least 0"),
        ("--sources towns.geojson --memory-limit 30MB", "memory limit"),
    ],
)
def test_wrong_input(world, capfd, words, message):
    before = sorted(world.rglob("*"))
    code, _, err = call(capfd, f"least-cost-network s.zarr -o n.gpkg {words}")
    assert (code, message in err) == (2, True), err
    assert sorted(world.rglob("*")) == before


def test_climbs_beyond_float64_are_refused(tmp_path):
    z = np.array([[0, 1.7e308, 0, 1.7e308, 0, 1]])
    store = make_heights(tmp_path / "s.zarr", z, None, 64)
    with pytest.raises(
        InputError, match="sum of rises between 1 and 2 exceeds the largest float64"
    ):
        least_cost_network(store, [(0, 0), (0, 5)], tmp_path / "n.geojson", cost="minimax")
    assert not list(tmp_path.glob("n.*"))


def test_start_costs_are_refused(world):
    with pytest.raises(InputError, match=r"places: 2 has a start cost of 3, .* leave it out"):
        least_cost_network("s.zarr", [(5, 5), (80, 20, 3)], "n.gpkg")


def test_many_places_within_the_least_limit(tmp_path):
    z = np.random.default_rng(3).integers(0, 60, (1100, 900)).astype(np.int16)
    make_heights(tmp_path / "s.zarr", z, -1, 512)
    zones = np.zeros(z.shape, np.uint16)
    zones[::20, ::20] = np.arange(1, zones[::20, ::20].size + 1).reshape(zones[::20, ::20].shape)
    with terrain_gpu.create_layer(
        tmp_path / "z.zarr", "elevation", TileStore.open(tmp_path / "s.zarr").grid, zones.dtype,
        nodata=0,
    ) as target:  # fmt: skip
        for i, j in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(i, j)
            target.write_block(i, j, np.ascontiguousarray(zones[r0:r1, c0:c1]))
        target.commit()
    terrain_gpu.export_layer(tmp_path / "z.zarr", tmp_path / "zones.tif")
    command = "terrain-gpu least-cost-network s.zarr --sources zones.tif -o n.gpkg --table n.csv"
    limit, peak = within(tmp_path, f"{command} --pairs delaunay --threads 2 --overwrite -q", MB)
    assert peak <= limit


@pytest.mark.parametrize("most", [None, 500])
def test_pairs_beyond_the_plan_are_refused_once(most):
    """With a limit that suffices for all of them, also for those met after it was too small."""
    joins, blocks = link_dtype(np.dtype(float)), BlockGrid(64, 64, 64)
    sources = valid(GridSpec(64, 64), [(0, k) for k in range(9)], "places")
    kind = SimpleNamespace(bottleneck=False)
    terrain = SimpleNamespace(model=SimpleNamespace(kind=kind))
    operation: Any = SimpleNamespace(
        sources=sources, max_cost=most, joins=joins, blocks=blocks, terrain=terrain
    )
    one, other = np.triu_indices(700, 1)
    links = np.zeros(len(one), joins)
    links["from"], links["to"], links["cost"] = one, other, one + other

    def found(limit):
        machine = Machine(limit, 1)
        plan = plan_network(blocks, np.dtype(float), [np.dtype("f4")], 9, machine=machine)
        state = _CheapestLinks(operation, plan)
        for part in np.array_split(links[np.random.default_rng(3).permutation(len(links))], 5):
            state.add(CROSS, (0, 0), np.sort(part, order=["from", "to"]))
            state.add(CROSS, (0, 0), part[: len(part) // 2])
        return plan, state.links()

    plan, kept = found(8000 * MB)
    np.testing.assert_array_equal(kept, links if most is None else links[links["cost"] <= most])
    with pytest.raises(PlanError, match=f"for {len(kept):,} pairs of places") as caught:
        found(plan.memory)
    least = int(re.search(r"give at least (\d+) MB", str(caught.value))[1])
    assert least * MB >= plan.memory + LINK_BYTES * (len(kept) - LINKS * 9)
    np.testing.assert_array_equal(found(least * MB)[1], kept)
