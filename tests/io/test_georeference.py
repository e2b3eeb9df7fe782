"""Where a raster lies, and in which system: kept by every output, and never taken wrongly."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from pyproj.database import query_crs_info
from pyproj.enums import PJType
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.errors import CRSError
from rasterio.rpc import RPC
from scipy.io import netcdf_file

from terrain_gpu import (
    InputError,
    OutputError,
    TileStore,
    VerificationError,
    convert_dataset,
    create_layer,
    export_layer,
)
from terrain_gpu.cli.main import group
from terrain_gpu.engine.proof import Limits
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.grid.crs import equal, grid_crs
from terrain_gpu.io.aligned import must_align
from terrain_gpu.io.crs import crs_code, placed
from terrain_gpu.io.gdal import gdal_environment
from terrain_gpu.io.geotiff import OutputProfile, RasterOutput
from terrain_gpu.io.proof.raster import verify_exported
from terrain_gpu.store.file_writer import writable_file
from terrain_gpu.store.outputs import Output

pytestmark = pytest.mark.usefixtures("no_fsync")

PLACE = (30.0, 0.0, 5e5, 0.0, -30.0, 4e6)
ROTATED = (
    "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 "
    "+to_meter=0.0174532925199433 +datum=WGS84"
)
GEOID = "+proj=utm +zone=33 +datum=WGS84 +geoidgrids=egm96_15.gtx +vunits=us-ft"


def write(path, crs=None, dtype="float32", place=PLACE, **more):
    """Write a small raster; `more` are attributes of the dataset."""
    how = {"height": 4, "width": 5, "count": 1, "dtype": dtype, "crs": crs}
    if place is not None:
        how["transform"] = rasterio.Affine(*place)
    with rasterio.open(path, "w", driver="GTiff", **how) as out:
        out.write(np.arange(20).reshape(4, 5).astype(dtype), 1)
        for name, value in more.items():
            setattr(out, name, value)
    return path


def grid_in(text, shape=(4, 5)):
    return placed(GridSpec(*shape, PLACE), CRS.from_user_input(text))


def layer_in(path, text, dtype="float32", nodata=None, **attributes):
    grid = grid_in(text)
    store(path, grid, dtype, nodata, attributes={"units": "m"} | attributes)
    return grid


def store(path, grid, dtype="float32", nodata=None, **more):
    with create_layer(path, "elevation", grid, np.dtype(dtype), nodata=nodata, **more) as out:
        out.write_block(0, 0, np.arange(20).reshape(4, 5).astype(dtype))
        out.commit()


# -- what a file keeps ------------------------------------------------------------------------


def test_every_compound_system_of_epsg_reaches_the_file(tmp_path):
    """Its horizontal and its vertical part, and the unit of heights."""
    codes = [info.code for info in query_crs_info("EPSG", PJType.COMPOUND_CRS)]
    uint8, path, done = np.dtype("uint8"), tmp_path / "a.tif", 0
    for code in codes:
        with gdal_environment(), suppress(CRSError):  # GDAL's PROJ may not know it yet
            crs = CRS.from_epsg(int(code))
            grid = placed(GridSpec(1, 1, PLACE), crs)
            rest = OutputProfile(), {}, "here", BlockGrid(1, 1, 64), (0, 1, 0, 1)
            with RasterOutput(path, grid, uint8, None, *rest) as out:
                out.write((0, 1, 0, 1), np.ones((1, 1), uint8))
                out.finish()
                out.commit()
            with rasterio.open(path) as data:
                assert equal(data.crs, crs), code
                assert f'["{data.units[0]}",' in crs.to_wkt(), code
            done += 1
    assert done > 400


WAYS = {
    "plain": {},
    "cog": {"cog": True},
    "exact": {"dtype": "int64", "nodata": -(2**60) - 1},  # nodata that is not a double
}


@pytest.mark.parametrize("text", ["EPSG:7415", "EPSG:8767", "EPSG:10318", ROTATED, GEOID])
@pytest.mark.parametrize("way", WAYS)
def test_an_export_lies_in_the_system_of_the_layer(tmp_path, text, way):
    how = dict(WAYS[way])
    made = {name: how.pop(name) for name in ("dtype", "nodata") if name in how}
    layer_in(tmp_path / "s.zarr", text, **made)
    target = tmp_path / "out.tif"
    export_layer(tmp_path / "s.zarr", target, verify=True, **how)
    right = CRS.from_user_input(text)
    with rasterio.open(target) as data:
        assert equal(data.crs, right)
        assert data.units == ("m",)
    aside = {"out.tif.aux.xml"} if text in (ROTATED, GEOID) else set()
    assert {*os.listdir(tmp_path)} == {"s.zarr", "out.tif"} | aside
    # Again, over the sidecar of the former: that of a raster that needs none goes.
    layer_in(tmp_path / "other.zarr", "EPSG:32633")
    export_layer(tmp_path / "other.zarr", target, verify=True, overwrite=True)
    with rasterio.open(target) as data:
        assert data.crs == CRS.from_epsg(32633)
    assert {*os.listdir(tmp_path)} == {"out.tif", "s.zarr", "other.zarr"}


def test_a_command_without_a_store_keeps_the_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("EPSG:8767", ROTATED):
        write("a.tif", text) if text != ROTATED else None
        if text == ROTATED:
            layer_in("s.zarr", text)
            export_layer("s.zarr", "a.tif", overwrite=True)
        words = ["calc", "a.tif", "elevation + 1", "-o", "b.tif", "--overwrite", "--verify"]
        assert group.main(words, standalone_mode=False) in (0, None)
        with rasterio.open("b.tif") as data:
            assert equal(data.crs, CRS.from_user_input(text))


def test_the_unit_of_a_vertical_system_is_no_difference(tmp_path):
    """As of BAG: its band has no unit, and GDAL reads that of the CRS from the GeoTIFF."""
    layer_in(tmp_path / "s.zarr", "EPSG:32631+5866", units="")
    export_layer(tmp_path / "s.zarr", tmp_path / "a.tif", verify=True)
    with rasterio.open(tmp_path / "a.tif", "r+") as data:
        data.units = ["foot"]
    layer = TileStore.open(tmp_path / "s.zarr").layer("elevation")
    with pytest.raises(VerificationError, match="its units: foot, not none"):
        verify_exported(tmp_path / "a.tif", layer, Limits.of("1GB", 1))


@pytest.mark.parametrize(("driver", "name"), [("BAG", "a.bag"), ("PDS4", "a.xml")])
def test_formats_of_other_worlds(tmp_path, driver, name):
    """A vertical system without a unit of the band; a sphere, which GeoTIFF makes an ellipsoid."""
    source, given = write(tmp_path / "a.tif", "EPSG:32631+5866", nodata=1e6), tmp_path / name
    try:
        rasterio.shutil.copy(source, given, driver=driver)
    except rasterio.errors.RasterioError:
        pytest.skip("this GDAL has no such driver")
    convert_dataset(given, tmp_path / "s.zarr", band=1, verify=True)
    for cog in (False, True):
        export_layer(tmp_path / "s.zarr", tmp_path / "b.tif", cog=cog, overwrite=True, verify=True)
        with rasterio.open(given) as right, rasterio.open(tmp_path / "b.tif") as data:
            assert equal(data.crs, right.crs)


# -- two files that are one -------------------------------------------------------------------


def killed_after(steps: int, target: Path, sidecar: bool) -> bool:
    """Publish a file in a process that dies before one of its renames; whether it did."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] != 0
    try:
        left = iter(range(steps))
        usual = os.replace, os.unlink, os.rename

        def alive(call):
            def counted(*words, **more):
                if next(left, None) is None:
                    os._exit(9)
                return call(*words, **more)

            return counted

        os.replace, os.unlink, os.rename = map(alive, usual)
        publish(target, "new", sidecar)
        os._exit(0)
    except BaseException:
        os._exit(1)


def publish(target: Path, text: str, sidecar: bool = False) -> None:
    with Output(target) as output:
        for name in ("a.tif", "a.tif.aux.xml")[: 1 + sidecar]:
            (output.folder / name).write_text(text)
        output.publish(output.folder / "a.tif")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("older", [[], ["x.tif"], ["x.tif", "x.tif.aux.xml"]])
def test_a_kill_while_a_file_and_its_sidecar_are_moved(tmp_path, older, sidecar):
    """No file is ever there with the sidecar of another, and the next run finds the older one."""
    old, new = dict.fromkeys(older, "old"), {"x.tif": "new"}
    if sidecar:
        new["x.tif.aux.xml"] = "new"
    for steps in range(100):
        folder = tmp_path / str(steps)
        folder.mkdir()
        for name in older:
            (folder / name).write_text("old")
        dead = killed_after(steps, folder / "x.tif", sidecar)
        there = contents(folder)
        assert "x.tif" not in there or there in (old, new)
        writable_file(folder / "x.tif", overwrite=True)
        assert contents(folder) in ((old, new) if dead else (new,))
        publish(folder / "x.tif", "again")
        assert contents(folder) == {"x.tif": "again"}
        assert os.listdir(folder) == ["x.tif"]
        if not dead:
            break
    assert steps >= len(new)


def test_an_error_while_a_sidecar_is_moved_leaves_the_older_file(tmp_path, monkeypatch):
    target = tmp_path / "x.tif"
    for name in ("x.tif", "x.tif.aux.xml"):
        (tmp_path / name).write_text("old")
    usual = os.replace

    def replace(a, b):
        if str(b).endswith("x.tif.aux.xml") and "aside" not in str(b) and "aside" not in str(a):
            raise OSError(5, "Input/output error")
        usual(a, b)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OutputError, match="nothing was replaced"):
        publish(target, "new", sidecar=True)
    assert contents(tmp_path) == {"x.tif": "old", "x.tif.aux.xml": "old"}


# -- equal systems ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [4326, 4258, 4283, 4269, 4167, 4230, 31467, 2193, 3301])
def test_a_prj_of_esri_is_the_system_of_its_code(tmp_path, code):
    """Also as GDAL reads it, with longitudes first."""
    crs = CRS.from_epsg(code)
    text = crs.to_wkt(version="WKT1_ESRI")
    (tmp_path / "a.prj").write_text(text)
    head = "ncols 1\nnrows 1\nxllcorner 5\nyllcorner 45\ncellsize 1\n7\n"
    (tmp_path / "a.asc").write_text(head)
    with rasterio.open(tmp_path / "a.asc") as data:
        beside = data.crs
    for prj in CRS.from_wkt(text), beside:
        assert equal(prj, crs)
        assert grid_crs(placed(GridSpec(1, 1), prj)) == CRS.from_user_input(crs_code(prj))
        assert equal(CRS.from_user_input(crs_code(prj)), crs)
        assert crs_code(prj).startswith("EPSG:")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("EPSG:4326", "EPSG:4258"),
        ("EPSG:4326", "EPSG:4979"),
        ("EPSG:7415", "EPSG:28992"),
        ("EPSG:7415", "EPSG:28992+5710"),
        ("EPSG:8767", "EPSG:8768"),
        ("EPSG:32633", "EPSG:32634"),
        ("EPSG:32631+5866", "EPSG:32631+5714"),  # depths and heights
        ("EPSG:2053", "+proj=tmerc +lat_0=0 +lon_0=29 +k=1 +ellps=WGS84 +units=m"),
    ],
)
def test_other_systems_stay_others(one, other):
    one, other = map(CRS.from_user_input, (one, other))
    assert equal(one, one)
    assert not equal(one, other)
    assert not equal(one, None)
    assert equal(None, None)


def test_rasters_in_equal_systems_fit(tmp_path):
    """Mosaics, second layers, --crs, barriers and friction; and the proof of an export."""
    place = (0.001, 0.0, 10.0, 0.0, -0.001, 50.0)
    code = write(tmp_path / "a.tif", "EPSG:4326", place=place)
    esri = tmp_path / "b.asc"
    rasterio.shutil.copy(code, esri, driver="AAIGrid")
    prj = CRS.from_epsg(4326).to_wkt(version="WKT1_ESRI")
    esri.with_suffix(".prj").write_text(prj)
    esri.with_name("b.asc.aux.xml").unlink(missing_ok=True)
    with rasterio.open(esri) as data:
        assert data.crs != CRS.from_epsg(4326)  # what it is about
    for k, pair in enumerate(([code, esri], [esri, code])):
        store = tmp_path / f"{k}.zarr"
        convert_dataset(pair, store, crs="EPSG:4326", verify=True)
        assert TileStore.open(store).grid.crs_code == "EPSG:4326"
        convert_dataset(pair[1], store, layer="second", verify=True)
        must_align(TileStore.open(store).grid, str(esri))
        export_layer(store, tmp_path / "c.tif", verify=True, overwrite=True)
    with pytest.raises(InputError, match=r"is in EPSG:4326, not in EPSG:4258"):
        convert_dataset(esri, tmp_path / "z.zarr", crs="EPSG:4258")


def test_a_store_in_the_order_of_crs84(tmp_path):
    """As earlier versions wrote."""
    wkt = CRS.from_user_input("OGC:CRS84").to_wkt(version="WKT2_2019")
    store(tmp_path / "s.zarr", GridSpec(4, 5, PLACE, wkt, "OGC:CRS84"))
    export_layer(tmp_path / "s.zarr", tmp_path / "a.tif", verify=True)
    convert_dataset(tmp_path / "a.tif", tmp_path / "s.zarr", layer="second", verify=True)


# -- what lies elsewhere ----------------------------------------------------------------------


def netcdf(path, sides, two_sided=(), **grid_mapping):
    """A NetCDF of a variable z over `sides` (names, values), with 2-D longitudes if wanted."""
    with netcdf_file(path, "w") as file:
        file.Conventions = b"CF-1.6"
        units = {"lat": b"degrees_north", "lon": b"degrees_east"}
        for name, values in sides.items():
            file.createDimension(name, len(values))
            if (values is not None and len(two_sided) == 0) or name not in ("j", "i"):
                side = file.createVariable(name, "f8", (name,))
                side[:] = values
                side.units = units.get(name, b"degrees")
                known = {"rlat": b"grid_latitude", "rlon": b"grid_longitude"}
                side.standard_name = known.get(name, name.encode())
        shape = tuple(map(len, sides.values()))
        for name in two_sided:
            side = file.createVariable(name, "f8", tuple(sides))
            side.units = units[name]
            side[:] = np.arange(np.prod(shape)).reshape(shape) ** 1.1
        z = file.createVariable("z", "f4", tuple(sides))
        z[:] = 1
        if two_sided:
            z.coordinates = b"lon lat"
        if grid_mapping:
            mapping = file.createVariable("rotated_pole", "i4", ())
            for name, value in grid_mapping.items():
                setattr(mapping, name, value)
            z.grid_mapping = b"rotated_pole"
    return path


GAUSS = np.degrees(np.arcsin(np.polynomial.legendre.leggauss(32)[0]))
RLON, RLAT = np.arange(5) / 2 - 1, np.arange(6) / 2 - 1
POLE = {
    "grid_mapping_name": b"rotated_latitude_longitude",
    "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}
LON = np.arange(64) * 5.625
ONES = [1.0] * 20
COEFFICIENTS = RPC(0, 1, 50, 1, ONES, ONES, 2, 2, 10, 1, ONES, ONES, 2, 2)
POINTS = [GroundControlPoint(0, 0, 10, 50), GroundControlPoint(0, 5, 11, 50)]

ELSEWHERE = {
    "rpc": (lambda p: write(p / "a.tif", place=None, rpcs=COEFFICIENTS), "gdalwarp -rpc"),
    "gcps": (
        lambda p: write(p / "a.tif", place=None, gcps=(POINTS, CRS.from_epsg(4326))),
        "control points",
    ),
    "curvilinear": (
        lambda p: netcdf(p / "a.nc", {"j": range(4), "i": range(5)}, ("lon", "lat")),
        "gdalwarp -geoloc",
    ),
    "very uneven": (
        lambda p: netcdf(p / "a.nc", {"lat": [80, 60, 30, 0, -35, -60], "lon": range(5)}),
        "gdalwarp -geoloc",
    ),
    "gaussian": (lambda p: netcdf(p / "a.nc", {"lat": GAUSS, "lon": LON}), "not evenly spaced"),
    "rotated, with arrays": (
        lambda p: netcdf(p / "a.nc", {"rlat": RLAT, "rlon": RLON}, ("lon", "lat"), **POLE),
        "gdalwarp -geoloc",
    ),
    "rotated": (
        lambda p: netcdf(p / "a.nc", {"rlat": RLAT, "rlon": RLON}, **POLE),
        "rotated_latitude_longitude",
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_located_otherwise_is_refused(tmp_path, name):
    make, remedy = ELSEWHERE[name]
    with pytest.raises(InputError, match=remedy) as caught:
        convert_dataset(make(tmp_path), tmp_path / "s.zarr")
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "s.zarr").exists()


def test_even_latitudes_are_taken(tmp_path):
    lat = np.linspace(80, -80, 33)
    convert_dataset(netcdf(tmp_path / "a.nc", {"lat": lat, "lon": LON}), tmp_path / "s.zarr")
    assert TileStore.open(tmp_path / "s.zarr").grid.transform[5] == pytest.approx(82.5)


def test_without_any_georeference_is_told(tmp_path, caplog):
    convert_dataset(write(tmp_path / "a.tif", place=None), tmp_path / "s.zarr")
    assert "a.tif: has no georeference: cells are treated as 1 x 1" in caplog.text
    caplog.clear()
    convert_dataset(write(tmp_path / "b.tif"), tmp_path / "t.zarr")
    assert not caplog.records


UNREAD = ["EPSG:99999", "nonsense", 'PROJCS["x",GEOGCS["y",DATUM["z",SPHEROID["q",1]]]]']


@pytest.mark.parametrize("text", UNREAD)
@pytest.mark.parametrize("kind", ["vrt", "aux.xml", "prj"])
def test_a_system_that_cannot_be_read_is_told(tmp_path, caplog, kind, text):
    source = write(tmp_path / "a.tif", "EPSG:32633")
    quoted = text.replace('"', "&quot;")
    if kind == "vrt":
        rasterio.shutil.copy(source, path := tmp_path / "a.vrt", driver="VRT")
        whole = path.read_text()
        start, end = whole.index(">", whole.index("<SRS")) + 1, whole.index("</SRS>")
        path.write_text(whole[:start] + quoted + whole[end:])
    elif kind == "aux.xml":
        path = source
        beside = tmp_path / "a.tif.aux.xml"
        beside.write_text(f"<PAMDataset><SRS>{quoted}</SRS></PAMDataset>")
    else:
        rasterio.shutil.copy(source, path := tmp_path / "a.asc", driver="AAIGrid")
        for beside in tmp_path.glob("a.asc.*"):
            beside.unlink()
        path.with_suffix(".prj").write_text(text)
    with rasterio.open(path) as data:
        assert not data.crs
    convert_dataset(path, tmp_path / "s.zarr")
    assert "its coordinate system cannot be read and is ignored" in caplog.text
    assert text[:40] in caplog.text
    caplog.clear()
    convert_dataset(path, tmp_path / "t.zarr", crs="EPSG:32633")
    assert TileStore.open(tmp_path / "t.zarr").grid.crs_code == "EPSG:32633"
    assert not caplog.records


def test_a_code_that_proj_does_not_know_is_told(tmp_path, caplog):
    """GDAL makes a local system of it."""
    source = write(tmp_path / "a.tif", "EPSG:32633")
    key = np.array([3072, 0, 1, 32633], "<u2").tobytes()
    data = source.read_bytes()
    assert data.count(key) == 1
    source.write_bytes(data.replace(key, np.array([3072, 0, 1, 1234], "<u2").tobytes()))
    convert_dataset(source, tmp_path / "s.zarr")
    assert "'WGS 84 / UTM zone 33N' is a local one" in caplog.text


def test_cells_that_read_like_a_system_are_not_told(tmp_path, caplog):
    path = write(tmp_path / "a.tif", None)
    with path.open("ab") as file:
        file.write(b"<SRS>nonsense</SRS>")
    convert_dataset(path, tmp_path / "s.zarr")
    assert "coordinate system" not in caplog.text
