"""Whatever a file or an option holds, a command ends with success or an error of its own.

Texts are made by a grammar from words that mean something there, and by changes of texts that are
right; bytes are changed in the campaign, which also runs these tests with more examples
(`bash scripts/campaign.sh MINUTES --parsers`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import click
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from contract import make_store
from effort import examples
from everywhere import prepare, words_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import SAMPLE

from terrain_gpu.cli.main import group
from terrain_gpu.engine import run as engine_run
from terrain_gpu.errors import TerrainError
from terrain_gpu.map import MapServer
from terrain_gpu.map.server import Refused
from terrain_gpu.paths.cost_matrix.operation import MatrixProblem

ODD = [None, True, -1, 0, 0.5, 2**31, 2**63, 2**70, 1e308, float("nan"), float("inf"), "", "x"]
ODD += ["EPSG:abc", "\x00", "ü" * 70, [], {}, [[]], [None], {"type": []}, {"name": 1}]
WORDS = "0 1 -1 1.5 .5 1e-320 1e400 -0.0 nan inf 007 1_0 0x1F 9999999999"
NUMBERS = st.sampled_from(WORDS.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store, and a raster without a coordinate system."""
    found = tmp_path_factory.mktemp("parsers")
    elevations = np.arange(30 * 40, dtype=np.float32).reshape(30, 40) % 7
    make_store(found / "s.zarr", elevations, None, 64)
    shape = {"height": 30, "width": 40, "count": 1, "dtype": "float32"}
    where = rasterio.Affine(10.0, 0.0, 100.0, 0.0, -10.0, 900.0)
    with rasterio.open(found / "r.tif", "w", "GTiff", transform=where, **shape) as file:
        file.write(elevations, 1)
    run(found, "build-index s.zarr")
    return found


def run(folder: Path, command: str) -> None:
    """Run a command in a folder; an error that is not one of ours passes through."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(group, shlex.split(command), standalone_mode=False)
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(
        done.exception, TerrainError | click.ClickException
    ):
        raise done.exception


# -- texts -----------------------------------------------------------------------------------


def joined(words: str, most: int = 12) -> st.SearchStrategy[str]:
    """Words and numbers in any order, with blanks or without."""
    one = st.sampled_from(words.split()) | NUMBERS
    return st.tuples(st.lists(one, max_size=most), st.sampled_from(["", " "])).map(
        lambda found: found[1].join(found[0])
    )


@st.composite
def nested(draw, atoms: str, forms: tuple[str, ...]) -> str:
    """Terms within terms; most are right."""
    found = draw(st.sampled_from(atoms.split()) | NUMBERS)
    for form in draw(st.lists(st.sampled_from(forms), max_size=9)):
        other = draw(st.sampled_from(atoms.split()) | NUMBERS)
        found = form.format(found, other)
    return found


@st.composite
def changed(draw, *texts: str) -> str:
    """A text with one part replaced, doubled or left out."""
    text = draw(st.sampled_from(texts))
    first, last = sorted(draw(st.tuples(*2 * [st.integers(0, len(text))])))
    part = draw(st.sampled_from(["", 2 * text[first:last], "\x00", "é", ",", '"', "\n", "1e999"]))
    return text[:first] + part + text[last:]


def repeated(*terms: str) -> st.SearchStrategy[str]:
    """One term very often."""
    return st.builds(
        lambda term, count: term * count + "1", st.sampled_from(terms), st.integers(1, 2000)
    )


@st.composite
def altered(draw, document: object) -> str:
    """JSON with some values replaced or left out."""
    tree = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        places = [*_places(tree)]
        if not places:
            break
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        if isinstance(holder, dict) and draw(st.integers(0, 4)) == 0:
            del holder[key]
        else:
            holder[key] = deepcopy(draw(st.sampled_from(ODD)))
    return json.dumps(tree)


def _places(tree):
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def collection(kind, coordinates):
    return {
        "type": "FeatureCollection",
        "name": "places",
        "crs": {"type": "name", "properties": {"name": "EPSG:4326"}},
        "features": [
            {
                "type": "Feature",
                "properties": {"id": 3, "cost": 1.5, "name": "a"},
                "geometry": {"type": kind, "coordinates": coordinates},
            }
        ],
    }


RING = [[120, 880], [200, 880], [200, 700], [120, 880]]
GEOJSON = (
    altered({**collection("Point", [150.0, 850.0]), "crs": None})
    | altered(collection("Point", [150.0, 850.0]))
    | altered({**collection("LineString", RING), "crs": None})
    | altered({**collection("MultiPolygon", [[RING]]), "crs": None})
    | altered({"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1]}]})
    | st.sampled_from(['{"type":' * 3000, "[" * 3000, '"x"', "null", "{}", "", "\ufeff{}"])
)
COSTS = (
    joined("dz length distance friction slope + - * / ** ( ) , if else < <= == and or not exp abs")
    | nested(
        "dz length friction slope elevation friction_from",
        (
            *(
                "({0} + {1})",
                "{0} * {1}",
                "{0} / {1}",
                "-{0}",
                "abs({0})",
                "sqrt({0})",
                "max({0}, {1})",
            ),
            *("{0} if dz < {1} else 1", "interp({0}, 1, {1}, 3, 4)", "{0} ** {1}", "{1} < {0} < 3"),
        ),
    )
    | repeated("dz+", "-", "(", "abs(dz)+", "1 if dz<1 else ", "not ")
)
SUMS = (
    joined('elevation "elevation" + - * / ( ) , < = and or not where abs sqrt min nodata coalesce')
    | nested(
        'elevation "elevation" x',
        (
            *(
                "({0} + {1})",
                "{0} * {1}",
                "{0} / {1}",
                "-{0}",
                "abs({0})",
                "sqrt({0})",
                "max({0}, {1})",
            ),
            *(
                "where({1} > 2, {0}, {1})",
                "nodata({0})",
                "coalesce({0}, {1})",
                "not {0}",
                "{0} = {1}",
            ),
        ),
    )
    | repeated("elevation+", "-", "(", "abs(elevation)+", "not ")
)
CONDITIONS = (
    joined("elevation = != < <= > >= and or not ( ) nodata is in")
    | nested("elevation x", ("({0} > 1)", "{0} and {1} < 3", "not {0}", "{0} or elevation = {1}"))
    | repeated("elevation > 1 and ", "not ", "(")
)
CODES = (
    "EPSG:32633 EPSG:32633N EPSG:abc EPSG: epsg:4326 [1] [] {} null 1 -1 4326 4979 5703 ESRI:54035 "
    'OGC:CRS84 +proj=longlat +proj=x +proj GEOGCS PROJCS["x"] GEOGCS[] IGNF:LAMB93 urn:ogc:def '
    '{"type":"name"} /dev/null EPSG:4326+5773 EPSG:99999999999999999999'
)
SYSTEMS = st.sampled_from(CODES.split())
UNITS = changed("100", "2km", "5km2", "10%", "1,2", "3,4,5", "1e3m", "512MB", "[1]", "0:10:100")
TABLES = changed("1,2\n3,4\n", "class,value\n1,5\n2,\n", "1;2\n3;4\n", '"1","2"\n', "1 2\n3 4\n")
PAIRS = changed(
    "from_x,from_y,to_x,to_y\n120,880,200,700\n", "id,from_row,from_col,to_row,to_col\na,1,1,2,2\n"
)
GRASS = changed(
    "north: 900\nsouth: 880\neast: 120\nwest: 100\nrows: 2\ncols: 2\nnull: *\n1 2\n3 *\n",
    "north: 45:30N\nsouth: 45N\neast: 7E\nwest: 6W\nrows: 1\ncols: 2\ntype: int\n1 2\n",
)
ARC = changed(
    "ncols 2\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 10\nnodata_value -9999\n1 2\n3 -9999\n",
    "ncols 2\nnrows 1\nxllcenter 0\nyllcenter 0\ndx 1\ndy 2\n1.5 nan\n",
)
PARSERS = {
    "GeoJSON": ("compute-sssp s.zarr --sources {file} --overwrite", ".geojson", GEOJSON),
    "GeoJSON to rasterize": ("rasterize s.zarr --features {file} --overwrite", ".geojson", GEOJSON),
    "costs": ("compute-sssp s.zarr --source-rowcol 1,1 --overwrite --cost={text}", "", COSTS),
    "sums": ("calc s.zarr --overwrite -- {text}", "", SUMS),
    "conditions": ("label-components s.zarr --overwrite --where={text}", "", CONDITIONS),
    "systems": ("convert-dataset r.tif t.zarr --overwrite --crs={text}", "", SYSTEMS),
    "intervals": ("contours s.zarr l.geojson --overwrite --interval={text}", "", UNITS),
    "breaks": ("contours s.zarr l.geojson --overwrite --breaks={text}", "", UNITS),
    "limits": ("plan 100x100 --for mst --memory-limit={text}", "", UNITS),
    "shapes": ("plan {text} --for mst", "", changed("100x100", "1x1", "2147483647x1")),
    "places": ("compute-sssp s.zarr --overwrite --source={text}", "", UNITS),
    "bounds": ("convert-dataset r.tif t.zarr --overwrite --bounds={text}", "", UNITS),
    "parameters": (
        "compute-sssp s.zarr --source-rowcol 1,1 --overwrite --cost tobler --parameter={text}",
        "",
        changed("a=1", "base_speed=5", "x", "=", "slope=nan"),
    ),
    "classes": ("calc s.zarr elevation --reclass {file} --default 1 --overwrite", ".csv", TABLES),
    "factors": (
        "compute-sssp s.zarr --overwrite --source-rowcol 1,1 --cost surface "
        "--vertical-factor {file}",
        ".txt",
        TABLES | changed("-90 3\n0 1\n90 3\n"),
    ),
    "pairs": ("query-index s.zarr --pairs {file} -o p.csv --overwrite", ".csv", PAIRS),
    "GRASS ASCII": ("convert-dataset {file} t.zarr --overwrite", ".txt", GRASS),
    "Arc ASCII": ("convert-dataset {file} t.zarr --overwrite", ".asc", ARC),
    "reports": (
        "plan 100x100 --for slope --workers 2 --like {file}",
        ".json",
        altered({"operation": "slope", "seconds": {"total": 1}, "settings": {}, "cells": 9}),
    ),
}


@pytest.mark.parametrize("parser", PARSERS)
def test_any_text_ends_well(parser, folder):
    command, suffix, texts = PARSERS[parser]
    file = folder / f"input{suffix}"

    @settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
    @given(texts)
    def check(text):
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        run(folder, command.format(file=file.name, text=shlex.quote(text.replace("\x00", ""))))

    check()


METADATA = ("zarr.json", "elevation/zarr.json", "distance_index/zarr.json")
READERS = (
    "info s.zarr",
    "slope s.zarr --overwrite",
    "verify s.zarr --data",
    "query-index s.zarr --from-rowcol 1,1 --to-rowcol 9,9 -o p.csv --overwrite",
    "convert-dataset ../r.tif s.zarr --layer other --overwrite",
)


@pytest.mark.parametrize("name", METADATA)
def test_metadata_of_a_store(name, folder):
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()

    @settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data):
        shutil.copytree(folder / "s.zarr", copy / "s.zarr")
        try:
            target = copy / "s.zarr" / name
            document = json.loads(target.read_bytes())
            document["attributes"].get("terrain_gpu", {}).pop("checksum", None)
            target.write_text(data.draw(altered(document)))
            run(copy, data.draw(st.sampled_from(READERS)))
        finally:
            shutil.rmtree(copy / "s.zarr")

    check()


def test_a_coordinate_system_that_cannot_be_read(tmp_path):
    """As an older or another program may have written it; every command meets it."""
    where = prepare(tmp_path, SAMPLE, 64)
    first, *others = words_of(where)
    run(tmp_path, shlex.join(first))
    for name in ("", "elevation"):
        metadata = where["store"] / name / "zarr.json"
        found = json.loads(metadata.read_bytes())
        own = found["attributes"]["terrain_gpu"]
        del own["checksum"]
        if not name:
            own |= {"crs_wkt": 'GEOGCRS["?"]', "crs_code": None}
        metadata.write_text(json.dumps(found))
    where["out"].mkdir()
    for words in others:
        run(tmp_path, shlex.join(words))


def test_runs_of_the_map(folder):
    body = {"sources": [[1, 1]], "target": [9, 9], "cost": "tobler", "barriers": [[[1, 2], [3, 4]]]}
    with MapServer(folder / "s.zarr") as server:
        server.runs.start = lambda given: (_ for _ in ()).throw(TerrainError(repr(given)))

        @settings(max_examples=examples(25))
        @given(altered(body) | st.sampled_from(["", "[" * 5000, "\ud800", "NaN", '{"a":1,"a":2}']))
        def check(text):
            try:
                data = text.encode("utf-8", "surrogatepass")
                server.answer("POST", f"/{server.token}/runs", lambda: data)
            except (Refused, TerrainError):
                pass

        check()


LINES = """
accumulate s.zarr
basins s.zarr
breach s.zarr
build-index s.zarr
burn s.zarr --streams r.tif --depth 3
calc s.zarr elevation+1 --into q
compute-mst s.zarr --weight max
compute-sssp s.zarr --source-rowcol 5,5 --target-rowcol 9,9
contours s.zarr c.geojson --interval 3
convert-dataset r.tif o.zarr
corridor s.zarr --source-rowcol 5,5 --target-rowcol 9,9 --into c
cost-matrix s.zarr --source-rowcol 5,5 --source-rowcol 9,9 -o m.csv
depressions s.zarr
export s.zarr o.tif
fill s.zarr
fill-spill-merge s.zarr --rain 1
flow-accumulation s.zarr
flow-direction s.zarr
hand s.zarr --threshold 20
info s.zarr
label-components s.zarr --where elevation>3
layers s.zarr
least-cost-network s.zarr --source-rowcol 5,5 --source-rowcol 9,9 -o n.geojson
network s.zarr n.geojson --min-length 5
overviews s.zarr
plan s.zarr
polygons s.zarr p.geojson --layer elevation
query-index s.zarr --from-rowcol 5,5 --to-rowcol 9,9
rasterize s.zarr --features e.geojson --into q
slope s.zarr
streams s.zarr --threshold 20
terrain-indices s.zarr --twi twi
verify s.zarr
watershed s.zarr --pour-point-rowcol 20,20
"""
ODD_NUMBERS = (
    *("nan", "inf", "-inf", "-0", "0", "1e400", "-1", "1", "", "\u0663", "1_0", "0x10", "1e-400"),
    *("9" * 20, "2147483648", " 3", "1.5", "True", "5%", "nan%", "5km2", "1e99km2", "\u00b2", ","),
    *("nan,nan", "1e400,0", "1,2,3,4", "\u0663,\u0663", "1;2", "500005,4999995,nan", "0,0"),
    *("-1,-1", "40.5,30", "1XB", "MB", "1e-9MB", "9" * 20 + "TB", "\u0663MB"),
)
ODD_NAMES = (
    *("d", "/dev/null", "fifo", "link", "loop", "no/such", "empty", "empty.gpkg", "empty.tif", "."),
    *("/", "~", "\u00fc.tif", "a\nb", "x" * 300, "http://127.0.0.1:9/x.tif", "http://[::1"),
    *("file:///tmp", "/vsimem/x", "x\x01.tif", "e.geojson:lay", "s.zarr", "elevation", "*", "a=b"),
    *("a=nan", "=", "[1]", "{}", "EPSG:abc", "(" * 100, "+".join(["x"] * 500), "where(", "not"),
)


class Begun(Exception):
    """A run that begins: its arguments are taken."""


def test_options_of_all_commands(folder, monkeypatch):
    """No argument ends with an error that is not one of ours, or the system's."""

    def begin(*how):
        raise Begun

    monkeypatch.setattr(engine_run, "_planner", begin)
    monkeypatch.setattr(MatrixProblem, "plan_batches", begin)
    where = folder / "odd"
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(folder / "s.zarr", where / "s.zarr")
    shutil.copy(folder / "r.tif", where)
    (where / "d").mkdir()
    (where / "link").symlink_to("nowhere")
    (where / "loop").symlink_to("loop")
    os.mkfifo(where / "fifo")
    for name in ("empty", "empty.gpkg", "empty.tif"):
        (where / name).touch()
    (where / "e.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    lines = [shlex.split(line) for line in LINES.strip().splitlines()]
    assert {line[0] for line in lines} == {*group.commands} - {"compile", "demo", "help", "map"}

    @settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data):
        line = data.draw(st.sampled_from(lines))
        options = [
            max(param.opts, key=len)
            for param in group.commands[line[0]].params
            if isinstance(param, click.Option) and not param.is_flag
            if not {"--workers", "--scheduler", "--threads"} & {*param.opts}
        ]
        value = data.draw(st.sampled_from(ODD_NUMBERS) | st.sampled_from(ODD_NAMES))
        option = data.draw(st.sampled_from([*options, ""]))
        line = [*line, f"{option}={value}"] if option else [line[0], value, *line[2:]]
        with suppress(Begun, OSError):
            run(where, shlex.join(line))

    check()
