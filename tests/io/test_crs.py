"""Coordinate systems: a code is named only where it means the same."""

from __future__ import annotations

import json

import numpy as np
import pyogrio
import pytest
import rasterio
from rasterio.crs import CRS

import terrain_gpu
from terrain_gpu import convert_dataset
from terrain_gpu.errors import TerrainError
from terrain_gpu.grid.crs import grid_crs
from terrain_gpu.io.crs import crs_code, crs_name
from terrain_gpu.io.export import export_layer

UTAH = "+proj=utm +zone=12 +ellps=GRS80 +units=m +no_defs"
"""Of no known datum; PROJ's best match, at 70 %, is EPSG:6367, Mexico ITRF2008."""

LIE = CRS.from_epsg(32633).to_wkt(version="WKT2_2019").replace("500000", "500001")
"""Says that it is EPSG:32633, and lies a metre beside."""

NONE = {
    "utah": UTAH,
    "lie": LIE,
    "shifted": "+proj=utm +zone=33 +ellps=WGS84 +towgs84=1,2,3 +units=m",
}
SAME = {
    "EPSG:32633": "EPSG:32633",
    "EPSG:4326": "EPSG:4326",
    "EPSG:31467": "EPSG:31467",
    "ESRI:102008": "ESRI:102008",
    "+proj=utm +zone=33 +datum=WGS84 +units=m": "EPSG:32633",
    # Rasters have the longitude or easting first, whatever the system says.
    "+proj=longlat +datum=WGS84": "EPSG:4326",
    "OGC:CRS84": "EPSG:4326",
}


def write_tif(path, crs):
    data = np.arange(1, 65 * 70 + 1, dtype=np.int16).reshape(65, 70)
    how = {"height": 65, "width": 70, "count": 1, "dtype": "int16", "crs": crs}
    place = rasterio.Affine(30, 0, 500_000, 0, -30, 4_400_000)
    if CRS.from_user_input(crs).is_geographic:
        place = rasterio.Affine(0.001, 0, 10, 0, -0.001, 50)
    with rasterio.open(path, "w", transform=place, **how) as out:
        out.write(data, 1)
    return data


@pytest.mark.parametrize("name", NONE)
def test_a_similar_crs_has_no_code(name):
    crs = CRS.from_user_input(NONE[name])
    assert crs_code(crs) is None
    assert "EPSG" not in crs_name(crs)


@pytest.mark.parametrize("text", SAME)
def test_an_equal_crs_has_its_code(text):
    crs = CRS.from_user_input(text)
    assert crs_code(crs) == crs_name(crs) == SAME[text]


@pytest.mark.parametrize("text", [UTAH, LIE, NONE["shifted"], *SAME])
def test_from_the_raster_to_every_output(tmp_path, capfd, text):
    code = SAME.get(text)
    # A GeoTIFF would keep only the lie's id, so it comes from a VRT.
    write_tif(tmp_path / "a.tif", "EPSG:32633" if text == LIE else text)
    if text == LIE:
        vrt = tmp_path / "a.vrt"
        rasterio.shutil.copy(tmp_path / "a.tif", vrt, driver="VRT")
        old = vrt.read_text()
        start, end = old.index(">", old.index("<SRS")) + 1, old.index("</SRS>")
        vrt.write_text(old[:start] + LIE.replace('"', "&quot;") + old[end:])
    source = tmp_path / ("a.vrt" if text == LIE else "a.tif")
    with rasterio.open(source) as data:
        there = data.crs
    store = tmp_path / "s.zarr"
    terrain_gpu.convert_dataset(source, store)
    grid = terrain_gpu.TileStore.open(store).grid
    assert grid_crs(grid) == there
    assert grid.crs_code == code
    attributes = json.loads((store / "elevation/zarr.json").read_text())["attributes"]
    assert attributes.get("proj:code") == grid.crs_code
    for cog in (False, True):
        export_layer(store, tmp_path / "b.tif", cog=cog, overwrite=True)
        with rasterio.open(tmp_path / "b.tif") as data:
            assert data.crs == there
            assert crs_code(data.crs) == grid.crs_code
    found = terrain_gpu.shortest_paths(store, [(3, 3)], backlink=True)
    from terrain_gpu.io.places import from_rowcol, from_vector
    from terrain_gpu.paths.cost_distance.output import write_paths

    ends = from_rowcol(grid, [(50, 60)])
    write_paths(tmp_path / "p.gpkg", found.paths(ends, from_rowcol(grid, [(3, 3)])), grid)
    assert CRS.from_user_input(pyogrio.read_info(tmp_path / "p.gpkg")["crs"]) == there
    assert len(from_vector(grid, tmp_path / "p.gpkg")) > 50
    if text != SAME.get(text):
        return
    with pytest.raises(terrain_gpu.InputError, match=f"is in {code}, not in PROJCS"):
        terrain_gpu.convert_dataset(source, tmp_path / "t.zarr", crs=UTAH)


def test_a_resumed_run_may_name_the_same_crs_and_nodata_otherwise(tmp_path):
    """Unfinished or finished, in a new store or beside another layer: by meaning, not as text."""
    path = tmp_path / "a.tif"
    how = {"height": 65, "width": 70, "count": 1, "dtype": "int16", "driver": "GTiff"}
    with rasterio.open(path, "w", transform=rasterio.Affine(1, 0, 10, 0, -1, 50), **how) as out:
        out.write(np.ones((65, 70), np.int16), 1)
    utah = CRS.from_user_input(UTAH)
    for layer, first, *others in (
        ("a", "OGC:CRS84", "EPSG:4326", CRS.from_epsg(4326).to_wkt(version="WKT2_2019")),
        ("b", "EPSG:4326", "OGC:CRS84", "+proj=longlat +datum=WGS84"),
        ("c", UTAH, utah.to_wkt(), utah.to_wkt(version="WKT2_2019").replace("unknown", "mine")),
    ):
        store = tmp_path / ("t.zarr" if layer == "c" else "s.zarr")

        def stop(done, total):
            raise KeyboardInterrupt

        def convert(crs, nodata=1000, *, store=store, layer=layer, **more):
            how = {"layer": layer, "block_size": 64, "threads": 1, "resume": True}
            return convert_dataset(path, store, crs=crs, nodata=nodata, **how, **more)

        with pytest.raises(KeyboardInterrupt):
            convert(first, progress=stop)
        with pytest.raises(TerrainError, match=r"crs was|coordinate systems differ"):
            convert("EPSG:3035")
        resumed, finished = (convert(crs, 1e3).result["blocks_resumed"] for crs in others)
        assert resumed > 0
        assert finished == 4
