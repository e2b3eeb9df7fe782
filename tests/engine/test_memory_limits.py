"""Every command within its memory limit: the peak of its own process, all extras installed.

The limit is the least that the plan accepts, for a raster whose blocks, rims and rows matter. By
default few cases, those that came nearest; ``--long`` runs all commands over odd shapes, all cell
types, checkerboards, constant rasters and long ways.
"""

from __future__ import annotations

import json
import re
import struct
import tracemalloc
from pathlib import Path

import memory
import numpy as np
import pytest
import rasterio
from memory import MB
from rasterio.crs import CRS

import terrain_gpu
from terrain_gpu import TileStore
from terrain_gpu.cells import DTYPES
from terrain_gpu.engine.machine import Machine
from terrain_gpu.errors import PlanError
from terrain_gpu.io.convert_problem import Convert
from terrain_gpu.paths.proof.stored import verify_stored
from terrain_gpu.store.files import sync_files

TRANSFORM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5500000.0)
ALWAYS = "--threads 2 --overwrite -q"
CPU = f"{ALWAYS} --backend cpu"

COMMANDS = {
    "contract": f"compute-mst s.zarr --method contract --connectivity 4 --weight absdiff {CPU}",
    "tree": f"compute-mst s.zarr -o e.tif --verify {CPU}",
    "paths": "compute-sssp s.zarr --source-rowcol 0,0 -o d.tif --backlink b.tif --allocation a.tif "
    f"--verify {CPU}",
    "verify": "terrain-gpu verify s.zarr --threads 2 --backend cpu -q",
    "lines": f"compute-sssp s.zarr --sources p.gpkg --targets p.geojson --path w.gpkg {CPU}",
    "raster of sources": f"compute-sssp s.zarr --sources p.tif --cost surface {CPU}",
    "edge": f"compute-sssp s.zarr --source-edge --cost langmuir --backlink b.tif {CPU}",
    "dijkstra": f"compute-sssp s.zarr --source-rowcol 0,0 --cost tobler --method dijkstra {CPU}",
    "index": f"compute-sssp s.zarr --source-rowcol 0,0 --cost surface --build-index {CPU}",
    "formula": "compute-sssp s.zarr --source-rowcol 0,0 --cost 'max(0,length+dz)*exp(abs(slope))' "
    f"--max-slope 9 --backlink b.tif --verify {CPU}",
    "labels": "terrain-gpu label-components s.zarr --where 'elevation > 3' --table t.parquet "
    f"--verify {ALWAYS}",
    "four": "terrain-gpu label-components s.zarr --where 'elevation > 3' --connectivity 4 "
    f"--table t.geojson {ALWAYS}",
    "drainage": f"terrain-gpu accumulate s.zarr --directions dirs --verify {ALWAYS}",
    "areas": f"terrain-gpu accumulate s.zarr --areas {ALWAYS}",
    "slopes": f"terrain-gpu slope s.zarr --aspect aspect --verify {ALWAYS}",
    "network": f"terrain-gpu network s.zarr n.gpkg --min-length 200 {ALWAYS}",
    "export": f"terrain-gpu export s.zarr x.tif --compress deflate {ALWAYS}",
    "overviews": f"terrain-gpu export s.zarr x.tif --cog {ALWAYS}",
    "one strip": f"convert-dataset strip.tif c.zarr --compress zstd {ALWAYS}",
    "mosaic": f"convert-dataset strip.tif x.tif c.zarr --clamp-min 2 {ALWAYS}",
    "text": f"convert-dataset text.asc c.zarr {ALWAYS}",
    "proven export": f"terrain-gpu export s.zarr x.tif --verify --compress deflate {ALWAYS}",
    "proven overviews": f"terrain-gpu export s.zarr x.tif --cog --verify {ALWAYS}",
    "proven tree": f"terrain-gpu export s.zarr e.tif --layer mst --verify {ALWAYS}",
    "proven strip": f"convert-dataset strip.tif c.zarr --compress zstd --verify {ALWAYS}",
    "proven mosaic": f"convert-dataset strip.tif x.tif c.zarr --clamp-min 2 --verify {ALWAYS}",
    "sources": "terrain-gpu verify c.zarr --threads 2 -q",
    "proven text": f"convert-dataset text.asc c.zarr --verify {ALWAYS}",
}
"""In an order in which each finds what it needs."""

COMMANDS |= {
    "calc": f"terrain-gpu calc s.zarr 'elevation * 2' --into double --verify {ALWAYS}",
    "levels": f"terrain-gpu overviews s.zarr --layer elevation --verify {ALWAYS}",
    "tree of flow": f"compute-mst s.zarr --weight flow --verify {CPU}",
    "areas along flow": f"terrain-gpu accumulate s.zarr --areas {ALWAYS}",
    "directions": f"terrain-gpu flow-direction s.zarr --verify {ALWAYS}",
    "sums": f"terrain-gpu flow-accumulation s.zarr --verify {ALWAYS}",
    "divided": f"terrain-gpu flow-accumulation s.zarr --method dinf --into dinf --verify {ALWAYS}",
    "fill": f"terrain-gpu fill s.zarr --verify {ALWAYS}",
    "basins": f"terrain-gpu basins s.zarr --table b.csv --verify {ALWAYS}",
    "depressions": f"terrain-gpu depressions s.zarr --table d.csv --verify {ALWAYS}",
    "water": f"terrain-gpu fill-spill-merge s.zarr --rain 0.1 --verify {ALWAYS}",
    "streams": f"terrain-gpu streams s.zarr --threshold 90 --lines l.gpkg --verify {ALWAYS}",
    "hand": f"terrain-gpu hand s.zarr --threshold 90 --distance far --verify {ALWAYS}",
    "breach": f"terrain-gpu breach s.zarr --max-distance 9 --verify {ALWAYS}",
    "corridor": f"terrain-gpu corridor s.zarr distance double --verify {ALWAYS}",
    "matrix": "terrain-gpu cost-matrix s.zarr --sources p.geojson --nearest 2 -o m.csv --verify "
    f"{CPU}",
    "contours": f"terrain-gpu contours s.zarr c.geojson --interval 40 --verify {ALWAYS}",
    "polygons": f"terrain-gpu polygons s.zarr c.geojson --layer basins --verify {ALWAYS}",
}

SHORT = ("tree", "paths", "lines", "network", "one strip", "proven strip")


def cells(pattern: str, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """A raster whose cells of 0 are nodata."""
    rows, cols = np.indices(shape, sparse=True)
    if pattern == "flat":
        return np.full(shape, 7, dtype)
    if pattern == "winding":  # one path through all of it
        end = np.where(rows % 4 == 1, cols == shape[1] - 1, cols == 0)
        return np.where((rows % 2 == 0) | end, 5, 0).astype(dtype)
    found = np.random.default_rng(1).integers(1, 120, shape)
    if pattern == "checkerboard":
        found[(rows + cols) % 2 == 1] = 0
    if pattern == "pits":  # as many as can be
        found[(rows % 2 == 1) | (cols % 2 == 1)] += 120
    return found.astype(dtype)


def world(folder: Path, pattern: str, shape: tuple[int, int], dtype: np.dtype, block: int) -> Path:
    """A store and files to read, in a folder."""
    data = cells(pattern, shape, np.dtype(dtype))
    crs = CRS.from_epsg(32633)
    side = 10 if max(shape) < 10**6 else 0.1  # else not all of it has a longitude and latitude
    transform = (side, *TRANSFORM[1:4], -side, TRANSFORM[5])
    grid = terrain_gpu.GridSpec(*shape, transform, crs.to_wkt(), "EPSG:32633")
    with terrain_gpu.create_layer(
        folder / "s.zarr", "elevation", grid, dtype, nodata=0, block_size=block
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()
    places = np.argwhere(data != 0)[:: max(1, data.size // 300)]
    xy = (places[:, ::-1] + 0.5) * (side, -side) + (500_000, 5_500_000)
    points(folder / "p.geojson", xy)
    geopackage(folder / "p.gpkg", xy)
    ids = np.zeros(shape, np.uint32)
    ids[tuple(places.T)] = 5
    how = {"driver": "GTiff", "height": shape[0], "width": shape[1], "count": 1, "nodata": 0}
    how |= {"crs": crs, "transform": rasterio.Affine(*transform)}
    with rasterio.open(folder / "p.tif", "w", dtype="uint32", **how) as file:
        file.write(ids, 1)
    strip = {"compress": "deflate", "blockysize": shape[0]}
    with rasterio.open(folder / "strip.tif", "w", dtype=data.dtype.name, **how, **strip) as file:
        file.write(data, 1)
    with open(folder / "text.asc", "w") as file:
        names = ("ncols", "nrows", "xllcorner", "yllcorner", "cellsize", "NODATA_value")
        for name, value in zip(names, (shape[1], shape[0], 0, 0, 10, 0), strict=True):
            file.write(f"{name} {value}\n")
        np.savetxt(file, data, "%d")
    return folder


def points(file: Path, xy: np.ndarray) -> None:
    """GeoJSON."""
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
    features = [
        {
            "type": "Feature",
            "properties": {"id": k},
            "geometry": {"type": "Point", "coordinates": one},
        }
        for k, one in enumerate(xy.tolist(), 1)
    ]
    file.write_text(json.dumps({"type": "FeatureCollection", "crs": crs, "features": features}))


def geopackage(file: Path, xy: np.ndarray) -> None:
    """The same as a GeoPackage."""
    raw = pytest.importorskip("pyogrio.raw")
    raw.write(
        file,
        np.array([struct.pack("<BIdd", 1, 1, *one) for one in xy.tolist()], object),
        [np.arange(1, len(xy) + 1)],
        ["id"],
        driver="GPKG",
        layer="points",
        geometry_type="Point",
        crs="EPSG:32633",
    )


def check(folder: Path, names: tuple[str, ...], most: float = float("inf")) -> None:
    """No peak is above the least limit, nor that above so many times the peak."""
    wrong = []
    for name in names:
        try:
            limit, peak = memory.within(folder, COMMANDS[name], MB)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
            continue
        if not peak <= limit <= most * peak:
            wrong.append(f"{name}: {peak / MB:.0f} of {limit / MB:.0f} MB")
    assert not wrong, wrong


def test_commands_keep_the_least_limit_that_they_accept(tmp_path):
    check(world(tmp_path, "noise", (1100, 1300), np.dtype(np.float32), 512), SHORT)


def test_blocks_larger_than_the_raster_take_no_more(tmp_path):
    """Also where it is proven: no plan is above twice the peak."""
    names = ("paths", "calc", "levels", "tree of flow", "directions", "basins", "breach")
    check(world(tmp_path, "noise", (700, 20), np.dtype(np.float32), 4096), names, 2)


ODD = [(1, 3_000_000, 1024), (3_000_000, 1, 1024), (20_000, 20, 4096), (5000, 5000, 64)]
LEAST_CAREFUL = ("lines", "raster of sources", "mosaic", "text")
"""Whose files, of odd sizes here, are what takes memory."""
OVER_PITS = ("tree of flow", "directions", "water")
"""The last is planned for as many depressions as there can be; noise has a fraction of them."""


@pytest.mark.long(shared=False)  # some cases take a quarter of an hour
@pytest.mark.parametrize(("rows", "cols", "block"), [*ODD, (5000, 5000, 4096)])
def test_plans_of_odd_shapes_are_at_most_twice_the_peak(rows, cols, block, tmp_path):
    folder = world(tmp_path, "noise", (rows, cols), np.dtype(np.float32), block)
    check(folder, tuple(name for name in COMMANDS if name not in (*LEAST_CAREFUL, "water")), 2)
    pits = tmp_path / "pits"
    pits.mkdir()
    check(world(pits, "pits", (rows, cols), np.dtype(np.float32), block), OVER_PITS, 2)


WIDE = [
    *(("noise", (1500, 1700), dtype.name, 1024) for dtype in DTYPES),
    ("checkerboard", (2100, 2100), "int64", 1024),
    ("flat", (2100, 2100), "float64", 128),
    ("pits", (2100, 2100), "float32", 1024),
    ("winding", (2100, 2100), "int16", 512),
    ("noise", (1, 100_000), "float32", 1024),
    ("noise", (100_000, 1), "int16", 1024),
    ("noise", (65_537, 255), "float64", 256),
]


@pytest.mark.long(shared=False)
@pytest.mark.parametrize(("pattern", "shape", "dtype", "block"), WIDE)
def test_all_commands_keep_it_over_odd_rasters(pattern, shape, dtype, block, tmp_path):
    check(world(tmp_path, pattern, shape, np.dtype(dtype), block), tuple(COMMANDS))


@pytest.mark.parametrize("threads", [1, 3])
def test_one_large_compressed_strip_is_planned_by_what_it_decodes_to(threads, tmp_path):
    shape, how = (3000, 2500), {"driver": "GTiff", "count": 1, "blockysize": 3000}
    how |= {"crs": "EPSG:32633", "transform": rasterio.Affine(*TRANSFORM), "compress": "deflate"}
    data = np.random.default_rng(1).integers(1, 120, shape).astype(np.float64)
    with rasterio.open(
        tmp_path / "p.tif", "w", dtype="float64", height=shape[0], width=shape[1], **how
    ) as file:
        file.write(data, 1)
    command = f"convert-dataset p.tif s.zarr --overwrite --threads {threads} -q"
    for start in (1, 220, 300):
        limit, peak = memory.within(tmp_path, command, start * MB)
        assert peak <= limit
    data[data > 1] = 0
    with rasterio.open(tmp_path / "p.tif", "r+") as file:
        file.write(data, 1)
    sources = f"compute-sssp s.zarr --sources p.tif {CPU} --threads {threads}"
    limit, peak = memory.within(tmp_path, sources, MB)
    assert peak <= limit


def test_nothing_is_known_of_all_rows_before_there_is_a_plan(tmp_path, monkeypatch, no_fsync):
    """Lengths of steps and areas of cells are as large as a raster is long."""
    store = str(world(tmp_path, "noise", (70, 90), np.dtype(np.float32), 64) / "s.zarr")
    terrain_gpu.shortest_paths(store, [(3, 4)])
    terrain_gpu.flow_direction(store)

    def too_early(*given):
        raise AssertionError("computed before a plan refused it")

    monkeypatch.setattr("terrain_gpu.paths.proof.stored.step_lengths", too_early)
    monkeypatch.setattr("terrain_gpu.hydrology.common.sums.area_units", too_early)
    with pytest.raises(PlanError, match="to verify shortest paths"):
        verify_stored(TileStore.open(store), memory_limit=MB)
    for refused in (terrain_gpu.flow_accumulation, terrain_gpu.accumulate):
        with pytest.raises(PlanError, match="give at least"):
            refused(store, areas=True, memory_limit=MB)


def test_a_small_file_of_a_long_raster_keeps_the_limit(tmp_path):
    """The file has 372 bytes, its coordinates 240 MB."""
    how = {"driver": "GTiff", "count": 1, "dtype": "uint8", "nodata": 0, "sparse_ok": True}
    how |= {"height": 1, "width": 30_000_000, "blockysize": 1}
    how |= {"crs": "EPSG:32633", "transform": rasterio.Affine(*TRANSFORM)}
    with rasterio.open(tmp_path / "p.tif", "w", **how):
        pass
    for command in ("convert-dataset p.tif s.zarr", "terrain-gpu export s.zarr x.tif"):
        limited = f"{command} --threads 2 -q --memory-limit 300MB"
        code, peak, err = memory.measured(tmp_path, limited, 300 * MB)
        assert code == 0, err
        assert peak <= 300 * MB


def test_blocks_of_one_strip_are_not_held(tmp_path):
    """A small block may be smaller than what Python keeps of it."""
    cells = np.ones((1, 64 * 20_000), np.uint8)
    how = {"driver": "GTiff", "count": 1, "dtype": "uint8", "blockysize": 1}
    how |= {"height": 1, "width": cells.size, "crs": "EPSG:32633"}
    with rasterio.open(
        tmp_path / "p.tif", "w", transform=rasterio.Affine(*TRANSFORM), **how
    ) as file:
        file.write(cells, 1)
    work = Convert(str(tmp_path / "s.zarr"), (str(tmp_path / "p.tif"),), block_size=64)
    plan = work.plan(Machine.of(300 * MB, 1))
    buffer = work.group_buffer(plan)
    tracemalloc.start()
    try:
        (group,) = work.groups(plan, work.order(plan))
        seen = sum(
            int(data.sum())
            for _, (data,) in zip(group, work.read_group(group, buffer), strict=True)
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        work.close()
    assert seen == cells.size
    assert peak < 20_000 * 8
    some = [(0, j) for j in range(20_000) if j not in (0, 7, 8)]  # a resumed run
    assert [list(group) for group in work.groups(plan, iter(some))] == [some]


def test_many_small_files_are_synced_a_few_at_a_time(tmp_path):
    (tmp_path / "one").touch()
    tracemalloc.start()
    try:
        sync_files(tmp_path / "one" for _ in range(10_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * MB


@pytest.mark.parametrize("file", ["many.geojson", "many.gpkg"])
def test_vector_files_are_planned_by_their_size(file, tmp_path):
    folder = world(tmp_path, "flat", (300, 300), np.dtype(np.uint8), 128)
    xy = np.random.default_rng(1).uniform((500000, 5497001), (502999, 5500000), (150_000, 2))
    (points if file.endswith("json") else geopackage)(folder / file, xy)
    command = f"compute-sssp s.zarr --sources {file} {CPU}"
    code, peak, err = memory.measured(folder, f"{command} --memory-limit 300MB")
    assert (code, peak < 300 * MB) == (2, True)
    says = f"--sources: a memory limit of 300 MB is too small to read {file}; give at least "
    assert says in err
    least = int(re.match("[0-9]+", err.partition(says)[2])[0]) * MB
    limit, peak = memory.within(folder, command, least)
    assert peak <= limit < 600 * MB


def test_pyogrio_does_not_bring_what_it_imports_for_others(tmp_path):
    folder = world(tmp_path, "flat", (70, 70), np.dtype(np.uint8), 64)
    _, without, _ = memory.measured(folder, f"compute-sssp s.zarr --sources p.geojson {CPU}")
    code, peak, err = memory.measured(folder, f"compute-sssp s.zarr --sources p.gpkg {CPU}")
    assert code == 0, err
    assert peak - without < 60 * MB


@pytest.mark.parametrize("profile", ["--compress zstd", "--cog", "--cog --compress lzw"])
@pytest.mark.parametrize("limit", [1, 450])
def test_codecs_of_many_threads(tmp_path, no_fsync, profile, limit):
    """As many threads compress as the limit has room for."""
    cells = np.random.default_rng(1).uniform(0, 1000, (1500, 6000)).astype(np.float32)
    grid = terrain_gpu.GridSpec(*cells.shape, TRANSFORM, "", "")
    with terrain_gpu.create_layer(
        tmp_path / "s.zarr", "elevation", grid, cells.dtype, block_size=512
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, cells[r0:r1, c0:c1])
        writer.commit()
    command = f"terrain-gpu export s.zarr x.tif {profile} --threads 16 --overwrite -q"
    granted, peak = memory.within(tmp_path, command, limit * MB)
    assert peak <= granted
