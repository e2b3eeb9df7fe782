"""`plan`: for variants of hydrology as their runs report it, and for every shape."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import nullcontext

import click
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from contract import make_store
from rasterio import Affine

from terrain_gpu import (
    calc,
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    hand,
    minimum_spanning_tree,
    shortest_paths,
    slope,
    streams,
)
from terrain_gpu.cli.main import group
from terrain_gpu.cli.plan import NEEDS, PURPOSES, command
from terrain_gpu.engine import run
from terrain_gpu.engine.machine import Machine
from terrain_gpu.errors import PlanError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.hydrology.breach.lines import BreachLines
from terrain_gpu.hydrology.streams.lines import StreamLines
from terrain_gpu.paths.cost_matrix.operation import MatrixProblem
from terrain_gpu.running import plan_of as plan_tool
from terrain_gpu.spanning_tree import MinimumSpanningTree

LIMITS = {"memory_limit": 10**9, "threads": 2}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    heights = np.random.default_rng(4).integers(0, 50, (200, 300)).astype(np.float32)
    path = make_store(tmp_path_factory.mktemp("plan") / "s.zarr", heights, None, 64)
    minimum_spanning_tree(path, weight="flow")
    flow_direction(path)
    fill(path)
    flow_accumulation(path)
    return path


VARIANTS = {
    "flow-direction --flats gradient": lambda s: flow_direction(
        s, flats="gradient", into="a", **LIMITS
    ),
    "flow-accumulation --method dinf": lambda s: flow_accumulation(
        s, method="dinf", into="b", **LIMITS
    ),
    "flow-accumulation --method quinn": lambda s: flow_accumulation(
        s, method="quinn", into="b", overwrite=True, **LIMITS
    ),
    "hand --method dinf": lambda s: hand(
        s, threshold=9, method="dinf", into="c", distance="d", **LIMITS
    ),
    "fill-spill-merge": lambda s: fill_spill_merge(s, rain=0.1, **LIMITS),
    "fill --epsilon": lambda s: fill(s, epsilon=True, into="e", **LIMITS),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_plan_says_is_what_a_run_does(variant, store):
    words = ["--for", *variant.split(), "--memory-limit", "1GB", "--threads", "2", "--json", "-"]
    done = CliRunner().invoke(command, [str(store), *words])
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)["result"]
    assert planned == VARIANTS[variant](store).report.settings["plan"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fill --method mfd", "--method needs --for flow-accumulation or --for hand"),
        ("hand --method mfd", "--method mfd: hand knows d8 and dinf"),
        ("flow-accumulation --method index", "flow-accumulation knows d8, dinf, mfd and quinn"),
        ("sssp --method dinf", "--method dinf: sssp knows relax, index and dijkstra"),
        ("basins --epsilon", "--epsilon needs --for fill"),
        ("fill --flats gradient", "--flats needs --for flow-direction"),
    ],
)
def test_options_of_other_commands_are_refused(words, message):
    done = CliRunner().invoke(command, ["90x90", "--for", *words.split()])
    assert done.exit_code == 2
    assert message in done.output


RUNS = """
compute-mst --weight flow --layer elevation : --weight flow
compute-mst --weight max --connectivity 4 :
compute-mst --weight max --method contract : <
label-components --where "elevation > 9" --table t.csv :
label-components --where "elevation > 9" --connectivity 4 : <
accumulate :
accumulate --areas --directions w : --areas --directions
calc "elevation + 1" --into q : <
calc elevation --reclass c.csv --default 1 --dtype int64 --into q : <
rasterize --features r.geojson --onto elevation --into q : >
rasterize --features r.geojson --field id --into q : <
rasterize --features r.geojson --value 4 --layer elevation --into q : <
slope --layer elevation --into q :
slope --aspect q : --aspect
burn --streams r.geojson --depth 3 --layer elevation --into q : >
breach : <
breach --max-distance 9 --max-depth 4 --inner-voids --layer elevation --into q : --max-distance 9 <
breach --max-distance 9 --lines l.gpkg : --max-distance 9 --lines <
flow-direction : <
flow-direction --inner-voids --layer elevation --into q : <
flow-direction --flats gradient --filled filled --into q : --flats gradient
flow-accumulation --into q --directions flow_direction :
flow-accumulation --into q --areas : --areas
flow-accumulation --into q --exclude-self : --exclude-self
flow-accumulation --into q --edge-cells : --edge-cells
flow-accumulation --into q --weights slope : --weights slope
flow-accumulation --weights slope --statistic mean : --weights slope --statistic mean
flow-accumulation --weights slope --statistic max : --weights slope --statistic max
flow-accumulation --weights slope --statistic below : --weights slope --statistic below
flow-accumulation --into q --method mfd --exponent 2 --filled filled : --method mfd
flow-accumulation --into q --method mfd --weights slope : --method mfd --weights slope
fill --into q --directions flow_direction :
fill --into q --keep-deeper-than 1 --keep-larger-than 4 : --keep
fill --into q --epsilon : --epsilon
hand --threshold 9 --accumulation flow_accumulation --distance far --layer elevation --into q :
hand --to-outlets --directions flow_direction --into q : <
hand --streams channels --into q : <
hand --streams channels --method dinf --filled filled --into q : --method dinf <
basins --directions flow_direction --into q :
basins --table t.csv : --table
depressions --directions flow_direction --into q --table t.csv :
depressions --min-depth 1 --min-area 2 --min-volume 3 :
depressions --conditioned q : --conditioned
fill-spill-merge --rain 1 --directions flow_direction --into q --table t.csv :
fill-spill-merge --rain slope : --rain slope
watershed --pour-points r.geojson --into q : --points 2
watershed --pour-point-rowcol 9,9 --pour-point-rowcol 50,9 --table t.csv : --points 2 --table
watershed --pour-points r.geojson --snap 3 --snap-area 9 --accumulation areas : --points 2
watershed --links channels --directions flow_direction : --links channels
streams --threshold 9 --accumulation flow_accumulation --into q : --threshold 9
streams --threshold 9 --order link --directions flow_direction : --threshold 9 --order link
streams --threshold 9 --lines l.gpkg --heights elevation : --threshold 9 --lines
streams --threshold 9 --lines l.gpkg --edge-cells : --threshold 9 --lines --edge-cells
terrain-indices --accumulation areas --slope slope --min-slope 1 --twi q --spi p --ls l :
terrain-indices --accumulation areas --twi q : <
network n.gpkg --min-length 90 --keep r.geojson :
polygons p.gpkg --layer channels --id-field name --names r.geojson : --dtype uint32 <
contours c.gpkg --interval 9 --base 3 --layer elevation :
contours c.gpkg --breaks 3,9,20 --polygons : --polygons
contours c.gpkg --breaks 3,9,20 --polygons --cumulative : --cumulative 3
convert-dataset r.tif o.zarr --block-size 64 --layer a --crs EPSG:32633 --nodata -1 :
convert-dataset r.tif o.zarr --block-size 64 --round --dtype int16 --clamp-min 0 : \
  --dtype int16 --source-dtype float32
convert-dataset r.tif o.zarr --block-size 64 --band 1 --bounds 500000 5499000 501000 5500000 : <
convert-dataset d.tif o.zarr --block-size 64 --encoding esri : --dtype uint8
export o.tif :
export o.tif --layer elevation --bounds 500000 5499000 501000 5500000 : <
export o.tif --compress zstd : --compress zstd
export o.tif --cog --compress deflate : --cog --compress deflate
export o.tif --layer flow_direction --encoding nextxy : --dtype uint8 --encoding nextxy
export o.tif --layer flow_direction --encoding esri-degrees : --dtype uint8 --encoding esri-degrees
export o.zarr : <
compute-sssp {a} --layer elevation --reverse --max-cost 9 --max-slope 3 --no-corner-cutting :
compute-sssp {a} --connectivity 16 --cost tobler --wrap no : --connectivity 16 --cost tobler
compute-sssp {a} --cost "length * k" --parameter k=3 : --cost "length * k" --parameter k=3
compute-sssp {a} --cost "length * rough" : --cost "length * rough"
compute-sssp {a} --barriers walls --vertical-factor v.csv : --barriers walls --cost surface
compute-sssp {a} --friction rough --metric continuous : --friction rough --metric continuous
compute-sssp {a} {b} --path p.gpkg --stop-at-targets : --backlink
compute-sssp {a} --backlink b.tif --all-ties t.tif : --backlink
compute-sssp {a} --allocation a.tif : --allocation
compute-sssp {a} -o d.tif --dtype float32 :
compute-sssp {a} --build-index : --method index
compute-sssp {a} --method dijkstra : --method dijkstra
build-index --layer elevation --reverse --max-slope 3 --no-corner-cutting --method relax :
build-index --tile 32 --levels 1 --barriers walls : --tile 32 --levels 1 --barriers walls
build-index --cost "length * k" --parameter k=3 : --cost "length * k" --parameter k=3
build-index --friction slope --connectivity 4 : --friction slope
build-index --vertical-factor v.csv : --cost tobler
cost-matrix {a} {c} -o m.csv --layer elevation --max-cost 9 --nearest 1 : --points 2
cost-matrix {a} {c} -o m.csv --cost tobler --reverse --max-slope 3 : --points 2 --cost tobler
cost-matrix {a} {c} {b} -o m.csv --barriers walls : --points 2 --targets 1 --barriers walls
cost-matrix {a} {c} -o m.csv --friction slope --no-corner-cutting : --points 2 --friction slope
cost-matrix {a} {c} -o m.csv --path p.gpkg --connectivity 16 : \
  --points 2 --lines --connectivity 16
cost-matrix {a} {c} --cost "length * k" --parameter k=3 --wrap no -o m.csv : \
  --points 2 --cost "length * k" --parameter k=3
cost-matrix {a} {c} -o m.csv --vertical-factor v.csv : --points 2 --cost surface
least-cost-network {a} {c} -o n.gpkg --layer elevation --wrap no : --points 2 <
least-cost-network {a} {c} -o n.gpkg --pairs delaunay --barriers walls --max-cost 9 : \
  --points 2 --pairs delaunay --barriers walls <
least-cost-network {a} {c} -o n.gpkg --friction slope --connectivity 4 --no-corner-cutting : \
  --points 2 --friction slope --connectivity 4 <
least-cost-network {a} {c} -o n.gpkg --pairs all --cost tobler --reverse --table t.csv : \
  --points 2 --pairs all --cost tobler
least-cost-network {a} {c} -o n.gpkg --nearest 1 --max-slope 3 : --points 2 --nearest 1
least-cost-network {a} {c} -o n.gpkg --cost "length * k" --parameter k=3 --pairs all : \
  --points 2 --pairs all --cost "length * k" --parameter k=3
least-cost-network {a} {c} -o n.gpkg --vertical-factor v.csv --pairs all : \
  --points 2 --pairs all --cost surface
corridor {a} {b} --within 5% --layer elevation --into q --wrap no : <
corridor {a} {b} --cost friction --friction rough --metric continuous --into q : \
  --cost friction --friction rough --metric continuous <
corridor {a} {b} --barriers walls --connectivity 16 --no-corner-cutting --max-slope 3 --into q : \
  --barriers walls --connectivity 16 <
corridor {a} {b} --cost "length * k" --parameter k=3 --reverse --into q : \
  --cost "length * k" --parameter k=3 <
corridor {a} {b} --vertical-factor v.csv --into q : --cost surface <
corridor {a} {c} --pairs all --table t.csv --into q : <
corridor from_a from_b --into q : --layers 2 --dtype float64
"""
"""Runs with all options of the operations, and what `plan` knows of them: it plans them exactly;
with "<" for more memory, where it assumes the most that they may do; with ">" without the cells of
features."""

EVERYWHERE = {
    *("output", "cog", "compress", "compress-layers", "json", "memory-limit", "overwrite"),
    *("progress", "quiet", "resume", "scheduler", "scratch", "store", "threads", "verbose"),
    *("verify", "version", "workers", "backend", "device", "gpu-memory-limit"),
    *("outlet", "outlet-rowcol", "outlets", "add-outlets", "force-outward"),
    *("inner-voids", "burn", "burn-depth", "depressions", "max-depth", "into", "pour-point"),
}
"""Options that change no plan: of all operations, which outlets there are, steps before, names."""


OF_PLACES = {
    *("source", "source-rowcol", "sources", "source-edge", "target", "target-rowcol", "targets"),
    *(
        "id-field",
        "target-id-field",
        "cost-field",
        "outside",
        "on-nodata",
        "snap",
        "max-cost-field",
    ),
}
"""Those of paths: where they begin and end."""

PURPOSE = {
    "compute-mst": "mst",
    "label-components": "components",
    "convert-dataset": "convert",
    "compute-sssp": "sssp",
    "build-index": "index",
}
"""What commands are called by `plan`."""

SEVERAL = {"corridor", "least-cost-network"}
"""Commands of several runs."""

PLACES = {
    "a": "--source-rowcol 3,6",
    "b": "--target-rowcol 150,250",
    "c": "--source-rowcol 150,250",
}


class Planned(Exception):
    """The plan of a run that goes no further."""


@pytest.fixture(scope="module")
def world(store):
    """The folder of a store with all that operations read, and files of features and tables."""
    folder = store.parent
    flow_accumulation(store, areas=True, into="areas")
    flow_accumulation(store, edge_cells=True)
    slope(store)
    streams(store, 90, order="link", into="channels")
    (folder / "c.csv").write_text("id,value\n1,2\n")
    places = [{"type": "Point", "coordinates": [x, 5499810]} for x in (500205, 500905)]
    features = [
        {"type": "Feature", "properties": {"id": 1, "name": "a"}, "geometry": one} for one in places
    ]
    found = {"type": "FeatureCollection", "crs": None, "features": features}
    (folder / "r.geojson").write_text(json.dumps(found))
    calc(store, "elevation > 48", into="walls", dtype="uint8")
    calc(store, "elevation + 1", into="rough", dtype="float32")
    for into, cell in ("from_a", (3, 6)), ("from_b", (150, 250)):
        shortest_paths(store, [cell], into=into)
    (folder / "v.csv").write_text("-90,1\n90,2\n")
    how = {"driver": "GTiff", "height": 200, "width": 300, "count": 1, "tiled": True}
    how |= {"transform": Affine(10, 0, 500000, 0, -20, 5500000)}
    for name, kind in ("r.tif", "float32"), ("d.tif", "uint8"):
        with rasterio.open(folder / name, "w", dtype=kind, **how) as file:
            file.write(np.ones((200, 300), kind), 1)
    return folder


def planned_by(words, monkeypatch):
    """The plan that a run of a command makes; if two, what both need."""
    found = []

    def planner(operation, machine, place, cluster=None):
        found.append(operation.plan(Machine.of(**LIMITS)))
        raise Planned

    def drawn(plan):
        return lambda *args: found.append(plan(*args)) or found[-1]

    def batches(self, *args, **how):
        found.append(plan_batches(self, *args, **how))
        raise Planned

    def noted(*args):
        plan_on = plan_of(*args)
        found.append(plan_on(None))
        return plan_on

    plan_batches, plan_of = MatrixProblem.plan_batches, run._planner
    several = "--build-index" in words or words[0] in SEVERAL
    several &= not {"all", "--nearest"} & {*words}
    with monkeypatch.context() as patch:
        for one in (StreamLines, BreachLines):
            patch.setattr(one, "plan", drawn(one.plan))
        patch.setattr(MatrixProblem, "plan_batches", batches)
        patch.setattr(run, "_planner", noted if several else planner)
        with nullcontext() if several else pytest.raises(Planned):
            group.main(words, standalone_mode=False)
    return max(plan.memory for plan in found), getattr(found[-1], "bytes_written", None)


@pytest.mark.parametrize("line", RUNS.strip().splitlines())
def test_plans_know_the_options_of_runs(line, world, monkeypatch):
    monkeypatch.chdir(world)
    words, planned = (shlex.split(part) for part in line.format(**PLACES).split(" :"))
    limits = ["--memory-limit", "1GB", "--threads", "2"]
    purpose = PURPOSE.get(words[0], words[0])
    if words[0] != "convert-dataset":
        words.insert(1, "s.zarr")
    memory, written = planned_by([*words, *limits, "--overwrite"], monkeypatch)
    sign = planned.pop() if planned and planned[-1] in "<>" else "="
    known = ["--for", purpose, *planned]
    done = CliRunner().invoke(command, ["s.zarr", *known, *limits, "--json", "-", "-q"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["result"]
    if sign == "<":
        assert found["memory"] >= memory
    else:
        assert 0 <= memory - found["memory"] <= 999 * (sign == ">")
        assert written in (None, found["bytes_written"])


def test_all_options_of_operations_are_named():
    lines = RUNS.strip().splitlines()
    for name in {line.split()[0] for line in lines}:
        steps = {"max-distance"} if name == "flow-direction" else set()  # of breaching, before
        own = [line.partition(" :")[0] for line in lines if line.split()[0] == name]
        given = {one for line in own for one in re.findall(r" --([a-z-]+)", line)}
        options = group.get_command(click.Context(group), name).params
        there = {word[2:] for one in options for word in one.opts if word.startswith("--")}
        assert there - EVERYWHERE - OF_PLACES - steps - given == set(), name


def test_all_that_has_a_plan_is_run():
    names = {line.split()[0] for line in RUNS.strip().splitlines()}
    assert {PURPOSE.get(name, name) for name in names} == {*PURPOSES}


def test_there_is_no_forecast_of_what_was_not_measured():
    for words in (
        "fill --epsilon",
        "fill-spill-merge",
        "flow-direction --flats gradient",
        "hand --method dinf",
    ):
        done = CliRunner().invoke(command, ["900x900", "--for", *words.split(), "--workers", "4"])
        assert done.exit_code == 0
        assert "no forecast" in done.output
    plain = ["900x900", "--for", "hand", "--method", "d8", "--workers", "4"]
    assert "scheduler" in CliRunner().invoke(command, plain).output


@pytest.mark.parametrize("shape", ["2147483647x2147483647", "1x2147483647", "2147483647x1", "1x1"])
@pytest.mark.parametrize("purpose", PURPOSES)
def test_every_shape_has_a_plan_or_none(purpose, shape):
    """However large, a raster is planned, or its plan says how much memory it would take."""
    words = [shape, "--for", purpose]
    for points in ("9", "2147483647") if purpose in NEEDS["points"] else ("",):
        more = ["--points", points] if points else []
        done = CliRunner().invoke(command, [*words, *more], standalone_mode=False)
        assert done.exception is None or isinstance(done.exception, PlanError)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_blocks_are_planned_no_larger_than_the_raster(purpose):
    def least(shape, block):
        words = [shape, "--for", purpose, "--block-size", str(block), "--threads", "1"]
        more = ["--points", "9"] if purpose in NEEDS["points"] else []
        done = CliRunner().invoke(command, [*words, *more, "--memory-limit", "1B"])
        return int(re.search(r"give (?:at least|more than) (\d+) MB", str(done.exception))[1])

    for shape in ("500x20", "20x500"):
        assert least(shape, 8192) <= least(shape, 512) + 1


def test_long_rasters_have_no_borders_beside_their_edges():
    for shape in (1, 30_000_000), (30_000_000, 1):
        blocks, machine = BlockGrid(*shape, 1024), Machine.of(threads=1)
        plan = plan_tool(MinimumSpanningTree(), blocks, np.dtype(np.float32), machine)
        assert plan.memory < 300e6
