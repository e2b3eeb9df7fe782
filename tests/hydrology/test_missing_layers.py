"""Functions of drainage compute the layers that they need and the store lacks."""

from __future__ import annotations

import gc
import os
import shlex
import shutil

import click
import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from contract import whole
from effort import only_long
from kills import die_at
from rasterio.crs import CRS
from test_network import make_store

import terrain_gpu
from terrain_gpu import TileStore
from terrain_gpu.cli.main import group
from terrain_gpu.engine import run
from terrain_gpu.errors import InputError, StoreError, TerrainError
from terrain_gpu.store import LayerWriter, create_layer

TREE = {"weight": "flow", "backend": "cpu"}
CHAIN = {
    "mst": lambda store: terrain_gpu.minimum_spanning_tree(store, **TREE),
    "breached": terrain_gpu.breach,
    "mst of breached": lambda store: terrain_gpu.minimum_spanning_tree(
        store, layer="breached", **TREE
    ),
    "flow_direction": terrain_gpu.flow_direction,
    "flow_direction_tree": lambda store: terrain_gpu.flow_direction(
        store, into="flow_direction_tree"
    ),
    "filled": terrain_gpu.fill,
    "filled of tree": lambda store: terrain_gpu.fill(store, directions="flow_direction_tree"),
    "flow_accumulation": terrain_gpu.flow_accumulation,
    "areas": lambda store: terrain_gpu.flow_accumulation(store, areas=True),
    "upstream_edge_cells": lambda store: terrain_gpu.flow_accumulation(store, edge_cells=True),
    "slope": terrain_gpu.slope,
}
"""How each layer is made by hand."""

CASES = {
    "accumulate": ({}, "mst"),
    "flow_direction": ({}, "mst"),
    "flow_direction filled": (
        {"depressions": "fill"},
        "mst, flow_direction_tree, filled of tree",
    ),
    "flow_direction breached": ({"depressions": "breach"}, "breached, mst of breached"),
    "flow_accumulation": ({}, "mst, flow_direction"),
    "flow_accumulation dinf": ({"method": "dinf"}, "mst, flow_direction, filled"),
    "fill": ({}, "mst, flow_direction"),
    "basins": ({}, "mst, flow_direction"),
    "depressions": ({}, "mst, flow_direction"),
    "fill_spill_merge": ({"rain": 0.5}, "mst, flow_direction"),
    "watershed": ({"pour_points": [(40, 30)]}, "mst, flow_direction"),
    "watershed snapped": (
        {"pour_points": [(40, 30)], "snap": 50.0, "snap_area": "100m2"},
        "mst, flow_direction, areas",
    ),
    "streams": ({"threshold": 20}, "mst, flow_direction, flow_accumulation"),
    "streams with edge cells": (
        {"threshold": 20, "lines": ".geojson", "edge_cells": True},
        "mst, flow_direction, flow_accumulation, upstream_edge_cells",
    ),
    "streams of areas": ({"threshold": "2000m2"}, "mst, flow_direction, areas"),
    "hand": ({"threshold": 20}, "mst, flow_direction, flow_accumulation"),
    "hand dinf": ({"to_outlets": True, "method": "dinf"}, "mst, flow_direction, filled"),
    "terrain_indices": ({"twi": "twi"}, "mst, flow_direction, areas, slope"),
}
"""Arguments of each function, and what it needs."""


def heights() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 60, (70, 80)).astype(np.int16)


def write(path, cells):
    return make_store(path, cells, -1, 64, crs=CRS.from_epsg(32617).to_wkt())


def own_layer(store, name, cells):
    """Add a layer of these cells."""
    like = TileStore.open(store).grid, cells.dtype
    with create_layer(store, name, *like, block_size=64) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, cells[r0:r1, c0:c1])
        target.commit()


def compute(case, store, **more):
    arguments, _ = CASES[case]
    if "lines" in arguments:
        arguments = {**arguments, "lines": store.with_suffix(arguments["lines"])}
    return getattr(terrain_gpu, case.split()[0])(store, **{**arguments, **more})


def found_layers(store):
    opened = TileStore.open(store)
    return {name: whole(opened.layer(name)).tobytes() for name in opened.layers}


@pytest.mark.parametrize("case", sorted(CASES))
def test_missing_layers_are_computed_and_reused(tmp_path, no_fsync, case):
    """With the same bits as one by one; a second run computes none of them."""
    store, by_hand = write(tmp_path / "s.zarr", heights()), tmp_path / "h.zarr"
    shutil.copytree(store, by_hand)
    steps = CASES[case][1].split(", ")
    for step in steps:
        CHAIN[step](by_hand)
    expected = compute(case, by_hand)
    assert not [one for one in expected.report.seconds if one.startswith("before")]

    report = compute(case, store).report
    names = {"areas": "flow_accumulation", "slope": "slope"}
    needed = {names.get(step, step.split(" of ")[0]) for step in steps}
    told = {one for one in report.seconds if one.startswith("before: ")}
    assert told == {f"before: {name}" for name in needed}
    assert all(report.seconds[one] > 0 for one in told)
    assert found_layers(store) == found_layers(by_hand)

    kept = {name: TileStore.open(store).layer(name).path.stat().st_mtime_ns for name in needed}
    again = compute(case, store, overwrite=True).report
    assert not [one for one in again.seconds if one.startswith("before")]
    layers = TileStore.open(store)
    assert kept == {name: layers.layer(name).path.stat().st_mtime_ns for name in needed}


@pytest.mark.parametrize("case", sorted(CASES))
def test_stale_layers_are_refused(tmp_path, no_fsync, case):
    store = write(tmp_path / "s.zarr", heights())
    compute(case, store)
    write(store, heights()[::-1])
    again = {"overwrite": True} if case.split()[0] != "flow_direction" else {"into": "other"}
    stale = r"computed from other cells than .* holds now|breached: made from other elevations"
    with pytest.raises(StoreError, match=stale):
        compute(case, store, **again)
    if "into" in again:  # and replaced, where that was asked for
        fresh = write(tmp_path / "f.zarr", heights()[::-1])
        compute(case, fresh)
        compute(case, store, overwrite=True)
        assert found_layers(store) == found_layers(fresh)


def test_the_network_computes_the_tree(tmp_path, no_fsync):
    store = write(tmp_path / "s.zarr", heights())
    with pytest.raises(InputError, match="give at least one of min_length and keep"):
        terrain_gpu.extract_network(store, tmp_path / "n.geojson")
    assert TileStore.open(store).layers == ["elevation"]
    report = terrain_gpu.extract_network(store, tmp_path / "n.geojson", min_length=50).report
    assert report.seconds["before: mst"] > 0
    again = terrain_gpu.extract_network(store, tmp_path / "m.geojson", min_length=50).report
    assert "before: mst" not in again.seconds
    assert (tmp_path / "n.geojson").read_bytes() == (tmp_path / "m.geojson").read_bytes()


@pytest.mark.parametrize(
    ("case", "more", "error", "told"),
    [
        (
            "fill",
            {"directions": "own"},
            StoreError,
            "no layer 'own'; it has: .*; terrain-gpu flow-d",
        ),
        ("flow_accumulation", {"weights": "rain"}, StoreError, "no layer 'rain'"),
        ("hand", {"layer": "bed"}, StoreError, "no layer 'bed'"),
        ("basins", {"table": "t.txt"}, InputError, "the name of a table must end"),
        ("basins", {"into": "elevation"}, InputError, "does not hold results of basins"),
        ("basins", {"into": "wide"}, InputError, "'wide' does not hold results of basins"),
        ("flow_accumulation", {"exponent": 2}, InputError, "exponent 2.0 cannot be used with"),
        ("terrain_indices", {"slope": "steep"}, StoreError, "no layer 'steep'"),
        ("terrain_indices", {"min_slope": 0}, InputError, "give degrees between 0 and 90"),
        ("streams", {"lines": "l.txt"}, InputError, "l.txt"),
        ("watershed", {"pour_points": [(70, 3)]}, InputError, "outside the .* is row 69, column 3"),
        ("watershed", {"pour_points": None}, InputError, "give pour_points, or links"),
        ("watershed", {"pour_points": [(9, 9), (0, 0)]}, InputError, "1 of 2 .* are nodata: 2 at"),
        (
            "watershed snapped",
            {"pour_points": [(0, 0)], "snap": 20.0},
            InputError,
            "within 20 m: 1 at",
        ),
        ("watershed snapped", {"snap_area": {5: "1km2"}}, InputError, "has none for 1 of 1"),
        ("watershed snapped", {"snap": None}, InputError, "needs snap"),
        ("watershed snapped", {"links": "wide"}, InputError, "replaces pour_points"),
        ("watershed", {"pour_points": None, "links": "real"}, StoreError, "holds float64, but"),
        ("hand", {"layer": "wide"}, InputError, r"differ by more than 2\*\*53"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(tmp_path, no_fsync, case, more, error, told):
    cells = heights()
    cells[:9, :9] = -1
    store = write(tmp_path / "s.zarr", cells)
    wide = np.where(cells < 0, 0, cells.astype(np.int64) << 58)
    own_layer(store, "wide", wide)
    own_layer(store, "real", wide * 1.0)
    with pytest.raises(error, match=told):
        compute(case, store, **more)
    assert TileStore.open(store).layers == ["elevation", "real", "wide"]


@pytest.mark.parametrize("case", ["fill", "depressions", "fill_spill_merge"])
def test_too_large_a_range_is_refused_before_the_work(tmp_path, no_fsync, case):
    store = write(tmp_path / "s.zarr", heights().astype(np.int64) << 58)
    with pytest.raises(InputError, match=r"differ by more than 2\*\*53"):
        compute(case, store)
    assert TileStore.open(store).layers == ["elevation"]


def test_a_point_on_nodata_may_be_snapped(tmp_path, no_fsync):
    cells = heights()
    cells[:9, :9] = -1
    store = write(tmp_path / "s.zarr", cells)
    given = {"snap": 90.0, "snap_area": None, "pour_points": [(5, 5)]}
    assert compute("watershed snapped", store, **given).found["pour_points"] == 1


PLAIN = sorted(case for case in CASES if " " not in case)


@pytest.fixture(scope="module")
def raster(tmp_path_factory):
    """The same heights as a store, and as a GeoTIFF beside it."""
    folder = tmp_path_factory.mktemp("raster")
    store = write(folder / "s.zarr", heights())
    terrain_gpu.export_layer(store, folder / "dem.tif")
    return folder


@pytest.mark.parametrize("case", [*PLAIN[::2], *map(only_long, PLAIN[1::2])])
def test_a_raster_or_dataarray_in_place_of_a_store(raster, tmp_path, no_fsync, monkeypatch, case):
    """Results have the same bits and places, and leave nothing behind."""
    pytest.importorskip("xarray")
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path))
    shutil.copytree(raster / "s.zarr", tmp_path / "s.zarr")
    expected = compute(case, tmp_path / "s.zarr").to_xarray(None)
    dem = terrain_gpu.open(raster / "s.zarr", masked=False).elevation
    for given in (str(raster / "dem.tif"), dem):
        found = compute(case, given)
        layers = list(found.layers.values())
        assert found.to_xarray(None).drop_attrs().identical(expected.drop_attrs())
        del found
        gc.collect()
        assert [whole(one).tobytes() for one in layers]  # which keep the working store
        del layers
        gc.collect()
        assert os.listdir(tmp_path) == ["s.zarr"]
    with pytest.raises(InputError, match=r"^resume needs a store; make one of .*dem.tif with "):
        compute(case, raster / "dem.tif", resume=True)


def test_rasters_beside_a_raster(raster, tmp_path, no_fsync, monkeypatch):
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path))
    cost = {"cost": "friction", "backend": "cpu"}
    found = terrain_gpu.shortest_paths(
        raster / "dem.tif", [(3, 3)], friction=raster / "dem.tif", **cost
    )
    store = shutil.copytree(raster / "s.zarr", tmp_path / "s.zarr")
    expected = terrain_gpu.shortest_paths(store, [(3, 3)], friction="elevation", **cost)
    assert np.array_equal(found.distance(), expected.distance(), equal_nan=True)
    terrain_gpu.export_layer(found.layers["distance"], tmp_path / "d.tif")
    with rasterio.open(tmp_path / "d.tif") as file:
        assert np.array_equal(file.read(1), expected.distance(), equal_nan=True)


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_no_raster_is_named(tmp_path, case):
    path = tmp_path / "dem.tif"
    path.write_bytes(b"II*\0")
    with pytest.raises(InputError, match=r"dem\.tif: not a raster that GDAL can read"):
        compute(case, path)
    with pytest.raises(StoreError, match=r"none\.tif: no such file; name a raster or a store"):
        compute(case, tmp_path / "none.tif")


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [*PLAIN[1::2], *map(only_long, PLAIN[::2])])
def test_the_same_call_works_after_a_kill(tmp_path, no_fsync, case):
    """A kill at any moment, also in layers that nobody named: nothing of it is left either."""
    whole_run = write(tmp_path / "whole.zarr", heights())
    compute(case, whole_run)
    store, count, deaths = tmp_path / "s.zarr", 3, 0
    rng, died = np.random.default_rng(len(case)), True
    while died:
        write(store, heights())
        died = die_at(count, tmp_path, lambda: compute(case, store, overwrite=True))
        deaths += died
        compute(case, store, overwrite=True)
        assert found_layers(store) == found_layers(whole_run)
        assert ".incomplete" not in os.listdir(store)
        shutil.rmtree(store)
        count += int(rng.integers(10, 40))
    assert deaths


def stopped(monkeypatch, layer, run):
    """Stop a run after the first block of a layer that it writes."""
    record = LayerWriter.record

    def stopping(writer, line):
        record(writer, line)
        if writer.name == layer:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LayerWriter, "record", stopping)
        with pytest.raises(KeyboardInterrupt):
            run()


def test_layers_that_nobody_named_continue(tmp_path, no_fsync, monkeypatch):
    store = write(tmp_path / "s.zarr", heights())
    stopped(monkeypatch, "mst", lambda: compute("basins", store))
    begun = (store / ".incomplete/mst").stat().st_ino
    compute("basins", store)  # with neither resume nor overwrite
    assert (store / "mst").stat().st_ino == begun


def test_an_unfinished_tree_of_another_weight(tmp_path, no_fsync, monkeypatch):
    store = write(tmp_path / "s.zarr", heights())
    grid = TileStore.open(store).grid
    with create_layer(
        store, "mst", grid, "uint8", block_size=64, settings={"weight": "max"}
    ) as writer:
        writer.write_block(0, 0, np.ones((64, 64), np.uint8))
    with pytest.raises(StoreError, match=r"weight was 'max' and is now 'flow'"):
        compute("basins", store)
    compute("basins", store, overwrite=True)


def test_an_unfinished_run_is_refused_before_the_work(tmp_path, no_fsync, monkeypatch):
    """Also one of other options that is to be resumed; the error names what the user gave."""
    store = write(tmp_path / "s.zarr", heights())
    stopped(monkeypatch, "flow_direction", lambda: compute("flow_direction", store))
    terrain_gpu.remove_layers(store, ["mst"], force=True)
    with pytest.raises(StoreError, match=r"has an unfinished run of layer 'flow_direction'"):
        compute("flow_direction", store)
    assert TileStore.open(store).layers == ["elevation"]
    compute("flow_direction", store, resume=True)  # the tree that was removed is computed again
    stopped(monkeypatch, "flow_direction", lambda: compute("flow_direction", store, overwrite=True))
    with pytest.raises(StoreError, match=r"cannot resume: .* other options, .* not need flow-dir"):
        compute("flow_direction filled", store, resume=True)
    assert TileStore.open(store).layers == ["elevation", "flow_direction", "mst"]
    for name in "flow_direction_tree", "filled of tree":
        CHAIN[name](store)
    with pytest.raises(StoreError, match=r"cannot resume: flats was None and is now 'gradient'"):
        compute("flow_direction filled", store, resume=True)
    compute("flow_direction filled", store, resume=True, overwrite=True)


BAD = {
    "into": ("a/b", "''", "spatial_ref", "elevation"),
    "distance": ("a/b",),
    "conditioned": ("a/b", "elevation"),
    "twi": ("a/b",),
    "directions": ("none",),
    "accumulation": ("none", "bytes"),
    "weights": ("none",),
    "slope": ("none", "bytes"),
    "layer": ("none",),
    "streams": ("none",),
    "links": ("none",),
    "rain": ("none", "-1", "nan", "1e400"),
    "keep": ("no.gpkg", "away.geojson"),
    "table": ("no/t.csv", "t.txt", "s.zarr"),
    "lines": ("no/l.gpkg", "l.txt", "s.zarr"),
    "output": ("no/o.tif", "o.txt"),
    "outlet": ("1e9,1e9", "nan,0"),
    "outlet-rowcol": ("999,0", "0,0"),
    "outlets": ("no.gpkg", "away.geojson"),
    "pour-point": ("1e9,1e9",),
    "pour-point-rowcol": ("999,0", "0,0"),
    "pour-points": ("no.gpkg", "away.geojson"),
    "keep-deeper-than": ("-1", "nan", "inf"),
    "keep-larger-than": ("-1", "nan"),
    "min-depth": ("-1", "nan", "inf"),
    "min-area": ("-1", "nan"),
    "min-volume": ("-1", "nan"),
    "min-slope": ("0", "nan"),
    "min-length": ("-1", "nan"),
    "threshold": ("0", "nan", "1e99"),
    "snap": ("-1", "nan", "inf"),
    "snap-area": ("0", "5km2"),
    "exponent": ("0", "2"),
    "statistic": ("mean", "max"),
}
"""Options, and values that no command takes, in a folder as below."""

COMMANDS = {
    "accumulate": "",
    "flow-direction": "",
    "fill": "",
    "flow-accumulation": "",
    "basins": "",
    "depressions": "",
    "fill-spill-merge": "--rain 1",
    "watershed": "--pour-point-rowcol 40,30",
    "streams": "--threshold 20",
    "hand": "--threshold 20",
    "terrain-indices": "--twi twi",
    "network": "n.gpkg --min-length 5",
}
"""Commands that compute the layers they need, with what they must have."""

NOT_READ = {("accumulate", "directions"), ("watershed", "accumulation")}
"""One names a layer to write, the other is read for --snap."""

MORE = """
accumulate s.zarr --directions a/b
watershed s.zarr --pour-point-rowcol 40,30 --snap 90 --accumulation bytes
flow-accumulation s.zarr --edge-cells --areas
flow-accumulation s.zarr --method mfd --statistic mean --weights bytes
fill s.zarr --epsilon --keep-deeper-than 1
hand s.zarr
hand s.zarr --threshold 5 --distance hand
corridor s.zarr --source-rowcol 5,5 --target-rowcol 9,9 --into c --within -1
corridor s.zarr --source-rowcol 5,5 --target-rowcol 9,9 --into c --within nan%
corridor s.zarr --source-rowcol 5,5 --target-rowcol 999,9 --into c
compute-sssp s.zarr --source-rowcol 5,5 --build-index --into elevation
compute-sssp s.zarr --source-rowcol 999,5 --build-index
watershed empty.zarr --pour-point-rowcol 3,3
streams empty.zarr --threshold 3
"""


def bad_lines():
    """Every option of each command with values that it cannot take."""
    for name, given in COMMANDS.items():
        options = {one for param in group.commands[name].params for one in param.opts}
        for option, values in BAD.items():
            # An option that must be given has the bad value in place of the good one.
            own = "" if f"--{option} " in given or option in ("pour-points", "links") else given
            own = given.partition(" --")[0] if name == "network" and not own else own
            if (name, option) in NOT_READ or f"--{option}" not in options:
                continue
            for value in values:
                yield f"{name} s.zarr {own} --{option}={value}"
    yield from MORE.strip().splitlines()


def test_no_bad_argument_leaves_a_layer_behind(tmp_path, no_fsync, monkeypatch):
    """However a command is called wrongly, it says so before it computes what it needs."""
    cells = heights()
    cells[:3, :3] = -1
    write(tmp_path / "s.zarr", cells)
    write(tmp_path / "empty.zarr", np.full_like(cells, -1))
    own_layer(tmp_path / "s.zarr", "bytes", np.full(cells.shape, 9, np.uint8))
    (tmp_path / "away.geojson").write_text('{"type": "Point", "coordinates": [0, 0]}')
    monkeypatch.chdir(tmp_path)

    def begin(operation, *how):
        raise AssertionError(f"{operation.command} begins")

    monkeypatch.setattr(run, "_planner", begin)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for line in bad_lines():
        done = CliRunner().invoke(group, shlex.split(line), standalone_mode=False)
        assert isinstance(done.exception, TerrainError | click.ClickException), (line, done)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, line
