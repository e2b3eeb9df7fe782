"""cost-matrix as a user meets it: files, reports, and wrong inputs one by one."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow.parquet
import pyogrio.raw
import pytest
from effort import only_long
from memory import MB, within
from rasterio import warp
from test_cli_sssp import call, heights, solved, template, world, write_points, write_tif, xy
from test_paths import make_layers

from terrain_gpu import TileStore

__all__ = ["template", "world"]

HUTS = [(30, 40), (140, 100), (90, 10)]
ENDS = [(30, 41), (30, 41), (120, 90), (100, 20)]


@pytest.fixture
def places(world):
    write_points("from.geojson", HUTS, id=[7, 9, 3])
    write_points("to.geojson", ENDS, id=[5, 4, 2, 1])
    return world


def table(file):
    with open(file, newline="", encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


def test_a_table_its_paths_and_its_report(places, capfd):
    code, out, err = call(
        capfd,
        "cost-matrix s.zarr --sources from.geojson --targets to.geojson --cost friction "
        "--friction friction --barriers walls -o t.csv --path p.gpkg --json -",
    )
    assert code == 0
    assert "s.zarr: 3 sources, 4 targets, 3 pairs without a path, " in err
    assert err.endswith(" s\nwritten: t.csv (12 rows), p.gpkg (9 paths)\n")
    rows = table("t.csv")
    assert [(r["source"], r["target"]) for r in rows[:5]] == [
        *(("7", str(k)) for k in (5, 4, 2, 1)), ("9", "5"),
    ]  # fmt: skip
    assert all(r["cost"] == r["length"] == r["climb"] == "" for r in rows if r["target"] == "1")
    for name, hut in zip((7, 9, 3), HUTS, strict=True):
        distance = solved([hut], cost="friction", friction=True, barriers=True).distance()
        for end, target in zip(ENDS, (5, 4, 2, 1), strict=True):
            (row,) = [r for r in rows if (r["source"], r["target"]) == (str(name), str(target))]
            cost = distance[end]
            assert row["cost"] == ("" if np.isnan(cost) else str(cost.item()))
    meta, _, shapes, columns = pyogrio.raw.read("p.gpkg", layer="paths")
    assert list(meta["fields"]) == ["from", "to", "cost", "length", "climb"]
    ways = [np.frombuffer(shape[9:], "<f8").reshape(-1, 2) for shape in shapes]
    lengths = [np.hypot(*np.diff(way, axis=0).T).sum() for way in ways]
    assert columns[3].tolist() == pytest.approx(lengths)
    assert ways[0][0].tolist() == pytest.approx(xy(30, 40))
    result = json.loads(out)["result"]
    assert {k: result[k] for k in ("sources", "targets", "rows", "unreached", "paths")} == {
        "sources": 3, "targets": 4, "rows": 12, "unreached": 3, "paths": 9,
    }  # fmt: skip
    assert (result["output"], result["path"]) == ("t.csv", "p.gpkg")
    assert result["store"].endswith("s.zarr")


def test_a_raster_in_place_of_a_store_and_zones(places, capfd):
    zones = np.zeros(heights().shape, np.uint8)
    zones[40:60, 50:70], zones[100, :] = 8, 9
    write_tif("zones.tif", zones)
    command = "--sources from.geojson --targets zones.tif --cost tobler --nearest 1"
    assert call(capfd, f"cost-matrix s.zarr {command} -o a.parquet")[0] == 0
    code, out, _ = call(capfd, f"cost-matrix dem.tif {command} -o b.csv --json r.json")
    assert code == 0
    assert "written: b.csv (3 rows)" in out
    rows = pyarrow.parquet.read_table("a.parquet").to_pydict()
    assert rows["source"] == [7, 9, 3]
    assert rows["target"] == [8, 9, 9]
    assert [str(cost) for cost in rows["cost"]] == [row["cost"] for row in table("b.csv")]
    distance = solved([HUTS[0]], cost="tobler").distance()
    assert rows["cost"][0] == distance[zones == 8].min()
    result = json.loads((places / "r.json").read_text())["result"]
    assert result["raster"] == "dem.tif"
    assert "store" not in result


def test_rows_in_the_order_of_the_file_and_another_crs(places, capfd):
    """Of sources and targets; also with fields of lines, ids that features share, and --nearest."""
    spots = [(30, 40), (140, 100), (90, 10), (31, 44), (60, 60)]
    east, north = zip(*(xy(*spot) for spot in spots), strict=True)
    for name, ids in ("any", [7, 2, 5, 2, 9]), ("sorted", [1, 2, 3, 2, 4]):
        features = [
            {
                "type": "Feature",
                "properties": {"id": own},
                "geometry": {"type": "Point", "coordinates": [x, y]},
            }
            for own, x, y in zip(
                ids, *warp.transform("EPSG:32633", "EPSG:4326", east, north), strict=True
            )
        ]
        text = json.dumps({"type": "FeatureCollection", "features": features})
        (places / f"{name}.geojson").write_text(text)
    name = {1: 7, 2: 2, 3: 5, 4: 9, 5: 10}
    beside = "--targets {}.geojson --target-rowcol 61,60 --source-rowcol 32,40"
    for more in ("", "--nearest 2", "--targets {}.geojson", "--max-cost 900 --reverse", beside):
        found = {}
        for file in ("any", "sorted"):
            words = f"s.zarr --sources {file}.geojson --cost tobler {more.format(file)} --overwrite"
            code, out, err = call(
                capfd, f"cost-matrix {words} -o {file}.csv --path {file}.geojsonl.geojson "
                "--verify --json r.json",
            )  # fmt: skip
            assert code == 0, err
            found[file] = table(f"{file}.csv")
        report = json.loads((places / "r.json").read_text())
        how = "EPSG:4326 to EPSG:32633"
        assert report["result"]["reprojected"]["sources"] == how
        assert f", verified, sources reprojected from {how}" in out
        assert (
            report["valid_cells"] == TileStore.open("s.zarr").layer("elevation").info["valid_cells"]
        )
        for row in found["sorted"]:  # whose ids are in the order of the file
            row |= {end: str(name[int(row[end])]) for end in ("source", "target")}
        assert found["any"] == found["sorted"]
        lines = json.loads((places / "any.geojsonl.geojson").read_text())["features"]
        drawn = [(str(line["properties"]["from"]), str(line["properties"]["to"])) for line in lines]
        assert drawn == [(row["source"], row["target"]) for row in found["any"] if row["cost"]]
    words = "--sources any.geojson --targets sorted.geojson --stop-at-targets --overwrite"
    code, out, _ = call(capfd, f"compute-sssp s.zarr {words} --json r.json")
    assert code == 0
    assert f"sources reprojected from {how}, targets reprojected from {how}" in out
    told = json.loads((places / "r.json").read_text())["result"]["reprojected"]
    assert told == {"sources": how, "targets": how}
    code, out, _ = call(capfd, "least-cost-network s.zarr --sources any.geojson -o n.gpkg")
    assert (code, f"places reprojected from {how}" in out) == (0, True)
    # So do commands that take other places.
    walls = json.loads((places / "any.geojson").read_text())
    del walls["features"][1:]
    (places / "fence.geojson").write_text(json.dumps(walls))
    for words, what in (
        ("rasterize s.zarr --features any.geojson", "features"),
        ("burn s.zarr --streams any.geojson --depth 3", "streams"),
        ("compute-sssp s.zarr --source-rowcol 60,60 --barriers fence.geojson --into b", "barriers"),
    ):
        code, out, err = call(capfd, f"{words} --json r.json")
        assert code == 0, err
        assert f", {what} reprojected from {how}" in out
        told = json.loads((places / "r.json").read_text())["result"]["reprojected"]
        assert told == {what: how}


def test_names_formulas_and_snapping(places, capfd):
    write_points("named.geojson", [(30, 40), (5, 5), (140, 100)], called=["b", "void", "a"])
    command = "--sources named.geojson --id-field called --snap 40px --cost '2 * length'"
    assert call(capfd, f"cost-matrix s.zarr {command} -o t.csv --path p.geojson")[0] == 0
    assert [(r["source"], r["target"]) for r in table("t.csv")] == [
        ("b", "void"), ("b", "a"), ("void", "b"), ("void", "a"), ("a", "b"), ("a", "void"),
    ]  # fmt: skip
    for row in table("t.csv"):
        assert float(row["cost"]) == pytest.approx(2 * float(row["length"]))
    lines = json.loads((places / "p.geojson").read_text())["features"]
    assert lines[0]["properties"]["from"] == "b"
    assert call(capfd, f"cost-matrix s.zarr {command} -o t.parquet")[0] == 0
    assert pyarrow.parquet.read_table("t.parquet").to_pydict()["target"][1] == "a"
    assert call(capfd, "cost-matrix s.zarr --sources from.geojson --max-slope 0 -o s.csv")[0] == 0
    assert all(row["climb"] in ("", "0.0") for row in table("s.csv"))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("s.zarr -o t.csv", "no source: give --source X,Y"),
        ("s.zarr --source-rowcol 30,40 -o t.csv", "one source and no target"),
        ("s.zarr --sources from.geojson", "Missing option '-o'"),
        (
            "s.zarr --sources from.geojson -o t.txt",
            "--output: t.txt: the name of the table must end in .csv",
        ),
        (
            "s.zarr --sources from.geojson -o t.csv --path p.txt",
            "--path: p.txt: the name must end in",
        ),
        ("s.zarr --sources from.geojson -o there.csv", "there.csv: exists; --overwrite"),
        ("s.zarr --sources from.geojson -o from.geojson", "--sources already names this file"),
        ("s.zarr --sources none.gpkg -o t.csv", "--sources: none.gpkg: no such file"),
        ("none.zarr --sources from.geojson -o t.csv", "none.zarr"),
        ("s.zarr --sources from.geojson --target-rowcol 5,5 -o t.csv", "given cells are nodata"),
        ("s.zarr --sources from.geojson --target-rowcol 999,5 -o t.csv", "outside the raster"),
        ("s.zarr --sources from.geojson --cost friction -o t.csv", "needs frictions"),
        ("s.zarr --sources from.geojson --nearest 0 -o t.csv", "0 is not in the range"),
        ("s.zarr --sources from.geojson --max-cost -1 -o t.csv", "-1.0 is not a number"),
        ("s.zarr --sources from.geojson --memory-limit 9MB -o t.csv", "give at least"),
        ("dem.tif --sources from.geojson --resume -o t.csv", "--resume needs a store"),
    ],
)
def test_wrong_inputs(places, capfd, command, message):
    (places / "there.csv").write_text("mine")
    before = sorted(places.iterdir())
    code, out, err = call(capfd, f"cost-matrix {command}")
    assert (code, out) == (2, "")
    assert message in err
    assert sorted(places.iterdir()) == before
    assert (places / "there.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("cost", "shape"),
    [
        ("absdiff", (1100, 900)),
        only_long("friction --friction friction --connectivity 16", (2100, 1800)),
    ],
)
def test_the_least_limit_holds(tmp_path, capfd, monkeypatch, cost, shape):
    """Over heights, with paths across flats, which take five times as long for each cell."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    for name, side in (("compile", (80, 60)), ("s", shape)):
        make_layers(
            tmp_path / f"{name}.zarr",
            512,
            elevation=rng.integers(0, 9, side).astype(np.uint8),
            friction=rng.uniform(1, 5, side).astype(np.float32),
        )
        cells = " ".join(f"--source-rowcol {r},{c}" for r, c in rng.integers(0, side[1], (9, 2)))
        command = f"cost-matrix {name}.zarr {cells} --cost {cost} -o {name}.csv"
        command += f" --path {name}.geojson --overwrite -q"
        if name == "compile":
            assert call(capfd, command)[0] == 0
    limit, peak = within(tmp_path, f"terrain-gpu {command}", 300 * MB)
    assert peak <= limit


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ("--cost friction --friction friction", "--cost friction --friction float32"),
        ("--barriers walls", "--barriers uint8"),
        ("--cost tobler --memory-limit 400MB", "--cost tobler --memory-limit 400MB"),
        ("--connectivity 16 --memory-limit 400MB", "--connectivity 16 --memory-limit 400MB"),
    ],
)
def test_the_plan_is_that_of_the_run(places, capfd, problem, named):
    cells = " ".join(f"--source-rowcol {k},{k + 30}" for k in range(40, 52))
    more = "--threads 2 --json -"
    command = f"cost-matrix s.zarr {cells} {problem} {more} --backend cpu -o t.csv"
    run = json.loads(call(capfd, command)[1])["settings"]["plan"]
    shape = "x".join(map(str, heights().shape))
    for what in ("s.zarr", f"{shape} --dtype {heights().dtype.name}"):
        how = problem if what == "s.zarr" else named
        code, out, _ = call(capfd, f"plan {what} --for cost-matrix --points 12 {how} {more}")
        assert code == 0
        plan = json.loads(out)["result"]
        assert {key: plan[key] for key in run} == run
        assert (plan["lanes"], plan["batches_in_all"], plan["bytes_spilled"]) == (8, 2, 0)


def test_plans_in_words_and_refused(places, capfd):
    command = "plan 20000x30000 --for cost-matrix --points 100 --cost friction --friction float32"
    code, out, err = call(capfd, f"{command} --memory-limit 4GB --threads 4")
    assert code == 0
    assert "13 of 8 sources, 1 at a time, 4 threads" in out + err
    assert "spilled at each visit" in out + err
    code, _, err = call(capfd, "plan 99x99 --for cost-matrix")
    assert code == 2
    assert "--for cost-matrix needs --points" in err
    code, _, err = call(capfd, "plan 99x99 --points 4")
    assert code == 2
    assert "--points needs --for cost-matrix" in err
    code, _, err = call(capfd, f"{command} --memory-limit 9MB")
    assert code == 2
    assert "give at least" in err
    for more in ("", " --workers 2"):
        code, out, _ = call(capfd, f"{command} --memory-limit 4GB{more}")
        assert (code, out.count("seconds")) == (0, 1)
    network = "plan 99x99 --for least-cost-network --points 4 --cost tobler --connectivity 16"
    code, _, err = call(capfd, network)
    assert code == 2
    assert (
        "--cost 'tobler' differs uphill and downhill, but links of --pairs 'mst' have only" in err
    )
    assert call(capfd, f"{network} --pairs all")[0] == 0


def test_features_of_one_name_are_told(places, capfd, caplog):
    write_points("towns.geojson", [*HUTS, HUTS[0]], called=["b", "c", "b", "c"])
    code, out, _ = call(
        capfd, "cost-matrix s.zarr --sources towns.geojson --id-field called -o t.csv"
    )
    assert (code, "2 sources" in out) == (0, True)
    told = "share a name are treated as one: 2 are called 'b', 2 are called 'c'; rename them to"
    assert f"towns.geojson: features that {told}" in caplog.text
    caplog.clear()
    write_points("apart.geojson", HUTS, called=["b", "c", "a"])
    write_points("numbers.geojson", HUTS, called=[2, 1, 2])
    for file in ("apart", "numbers"):
        line = f"cost-matrix s.zarr --sources {file}.geojson --id-field called -o {file}.csv"
        assert call(capfd, line)[0] == 0
    assert "share a name" not in caplog.text


def test_limits_of_sources(places, capfd):
    """Each has its own; --max-cost bounds all, and those of a file need not bear ids."""
    write_points("own.geojson", HUTS, called=["b", "c", "a"], most=[900, 1e9, 700.5])
    command = "cost-matrix s.zarr --cost tobler --sources own.geojson --id-field called "
    command += "--targets to.geojson --target-id-field id"
    rows = {}
    for more in ("", " --max-cost-field most", " --max-cost-field most --max-cost 500"):
        done = call(capfd, f"{command} -o t.csv --overwrite{more}")
        assert done[0] == 0, done
        rows[more] = {(r["source"], r["target"]): r["cost"] for r in table("t.csv")}
    every, own, both = rows.values()
    most = {"b": 900, "c": 1e9, "a": 700.5}
    near = {pair: c for pair, c in every.items() if c and float(c) <= most[pair[0]]}
    assert own == near
    assert both == {pair: c for pair, c in near.items() if float(c) <= 500}
    assert len(every) > len(own) > len(both) > 0
    for words, message in (
        ("cost-matrix s.zarr --source-rowcol 30,40 --max-cost-field most -o u.csv",
         "--max-cost-field most names a field of a file: give --sources FILE"),
        (f"{command} --max-cost-field less -o u.csv", "no field 'less'"),
        (f"{command} --max-cost-field called -o u.csv", "called 'b', which is not a positive"),
        ("compute-sssp s.zarr --sources own.geojson --max-cost-field most",
         "one search cannot take limits of sources; run one for each limit"),
    ):  # fmt: skip
        code, _, err = call(capfd, words)
        assert (code, message in " ".join(err.split())) == (2, True), err
