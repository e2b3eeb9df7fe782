"""Raster -> store -> raster: no cell, type, nodata value, place or unit changes on the way."""

from __future__ import annotations

import itertools
import json
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from effort import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from samples import DEMS
from strategies import (
    DTYPES,
    Raster,
    block_sizes,
    dtypes,
    nodata_values,
    rasters,
    same_bits,
    scalars,
    shapes,
    transforms,
)

from terrain_gpu import cells
from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io import ascii_grid
from terrain_gpu.io.convert import convert_dataset
from terrain_gpu.io.export import export_layer
from terrain_gpu.io.grass_ascii import GrassAscii
from terrain_gpu.store import TileStore, create_layer

UTM = CRS.from_epsg(32611)
PLACE = rasterio.Affine(30.0, 0.0, 500_000.0, 0.0, -30.0, 4_000_000.0)

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def quick():
    """No waiting for the disk: nothing here pulls the plug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


def save(path, data, nodata=None, *, crs=UTM, transform=PLACE, units=None, scaling=None, **profile):
    """Write a one-band raster with rasterio."""
    profile = {"driver": "GTiff"} | profile
    rows, cols = data.shape
    if nodata is not None and data.dtype.name in ("int64", "uint64") and abs(nodata) > 2**53:
        # rasterio would convert it to a double; GDAL itself can copy it.
        plain = path.with_name("plain.tif")
        save(plain, data, crs=crs, transform=transform)
        kind = {"int64": "Int64", "uint64": "UInt64"}[data.dtype.name]
        vrt = vrt_of(plain, data, nodata=nodata, dtype=kind)
        with rasterio.open(vrt, "r+") as file:
            file.transform = transform
            if crs:
                file.crs = crs
        rasterio.shutil.copy(vrt, path, **profile)
        plain.unlink()
        vrt.unlink()
        return path
    shape = {"height": rows, "width": cols, "count": 1, "dtype": data.dtype.name}
    with rasterio.open(
        path, "w", nodata=nodata, crs=crs, transform=transform, **shape, **profile
    ) as file:
        file.write(data, 1)
        if units:
            file.units = [units]
        if scaling:
            file.scales, file.offsets = [scaling[0]], [scaling[1]]
    return path


def stored(store, layer="elevation"):
    """All cells of a layer, and the layer."""
    opened = TileStore.open(store).layer(layer)
    return opened.read_window(0, opened.grid.rows, 0, opened.grid.cols), opened


def same_value(one, other):
    return one == other or (one is not None and math.isnan(one) and math.isnan(other))


AS_GDAL_SAYS = object()


def check_round_trip(source, folder, *, block, expected=None, nodata=AS_GDAL_SAYS, **options):
    """Convert, export, and compare everything with what rasterio reads from the source."""
    with rasterio.open(source) as given:
        data = given.read(1) if expected is None else expected
        if nodata is AS_GDAL_SAYS:
            nodata = given.nodatavals[0]
        if data.dtype.kind == "f" and nodata is not None:
            data = np.where(cells.near(data, nodata) & (data != nodata), nodata, data)
            data = data.astype(given.dtypes[0])
        transform, crs = given.transform, given.crs
        described = given.units, given.scales, given.offsets
    converted = convert_dataset([source], folder / "s", block_size=block, verify=True, **options)
    found, layer = stored(folder / "s")
    assert same_bits(found, data)
    assert layer.block_size == block
    assert same_value(layer.nodata, nodata)
    assert layer.grid.transform == tuple(transform)[:6]
    empty = cells.is_nodata(data, layer.nodata)
    assert converted.cells == data.size
    assert converted.valid_cells == layer.info["valid_cells"] == np.count_nonzero(~empty)
    exported = export_layer(folder / "s", folder / "out.tif", verify=True)
    assert exported.valid_cells == converted.valid_cells
    with rasterio.open(folder / "out.tif") as back:
        assert same_bits(back.read(1), data)
        if not isinstance(nodata, int) or abs(nodata) <= 2**53:  # else beyond rasterio's double
            assert same_value(back.nodatavals[0], nodata)
        if data.dtype.kind != "f" and nodata is not None and data.size < 10**7:
            assert np.array_equal(back.read_masks(1) == 0, data == nodata)
        assert back.transform == transform
        assert back.crs == crs
        assert (back.units, back.scales, back.offsets) == described
        assert back.count == 1
    for report in (converted, exported):
        json.loads(report.to_json(), parse_constant=pytest.fail)


# -- real rasters --------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    "name", sorted(p.name for p in DEMS.glob("*.*") if p.suffix in (".tif", ".asc", ".txt"))
)
def test_real_rasters(tmp_path, name, large):
    source = DEMS / name
    if name.endswith("grass.txt"):
        check_grass(source, tmp_path, 512 if large else 64)
        return
    huge = source.stat().st_size > 10**7
    check_round_trip(
        source, tmp_path, block=(1024 if large else 512) if huge else (1024 if large else 128)
    )


def check_grass(source, folder, block):
    """GDAL misreads their nulls and degrees: compare with numpy's text reader."""
    with open(source, encoding="ascii") as file:
        header = dict(next(file).split(":") for _ in range(6))
    expected = np.loadtxt(source, skiprows=6, dtype=np.int32)
    convert_dataset([source], folder / "s", block_size=block)
    found, layer = stored(folder / "s")
    assert same_bits(found, expected)
    assert layer.grid.shape == (int(header["rows"]), int(header["cols"]))
    bounds = [float(header[k]) for k in ("west", "south", "east", "north")]
    assert layer.grid.bounds == pytest.approx(bounds, abs=1e-12)
    export_layer(folder / "s", folder / "out.tif")
    with rasterio.open(folder / "out.tif") as back:
        assert same_bits(back.read(1), expected)
        assert back.crs is None
        assert tuple(back.transform)[:6] == GrassAscii(str(source)).grid.transform


@pytest.mark.skipif(not DEMS.is_dir(), reason=f"{DEMS} is not here")
def test_the_real_rasters_are_all_there():
    assert len([p for p in DEMS.glob("*.*") if p.suffix in (".tif", ".asc", ".txt")]) >= 10


# -- any GeoTIFF ---------------------------------------------------------------------------

LAYOUTS = {
    "strips": {},
    "one strip": {"blockysize": 4096},
    "tiles": {"tiled": True, "blockxsize": 16, "blockysize": 48},
    "deflate": {"tiled": True, "blockxsize": 128, "blockysize": 64, "compress": "deflate"},
    "lzw strips": {"compress": "lzw", "predictor": 2, "blockysize": 7},
    "big-endian": {"ENDIANNESS": "BIG"},
}


@given(
    raster=rasters(),
    layout=st.sampled_from(list(LAYOUTS)),
    block=block_sizes(256),
    transform=transforms(),
    crs=st.sampled_from([None, UTM, CRS.from_epsg(4326), CRS.from_epsg(3857)]),
    compress=st.sampled_from([None, "zstd"]),
)
@settings(max_examples=examples(40))
def test_any_geotiff(folders, raster, layout, block, transform, crs, compress):
    options = dict(LAYOUTS[layout])
    if raster.dtype.kind == "f" or raster.dtype.itemsize == 8:
        options.pop("predictor", None)
    assume(tuple(transform) != (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))  # GDAL's "no transform"
    with folders() as folder:
        source = save(
            folder / "a.tif",
            raster.cells,
            raster.nodata,
            crs=crs,
            transform=rasterio.Affine(*transform),
            **options,
        )
        # GDAL leaves out blocks that equal nodata: -0.0 comes back as 0.0, big-endian ones wrong.
        with rasterio.open(source) as given:
            assume(same_bits(given.read(1), raster.cells))
        if raster.dtype.kind == "f" and raster.nodata == 0:
            assume(not np.signbit(raster.cells[raster.cells == 0]).any())
        check_round_trip(
            source,
            folder,
            block=block,
            expected=raster.cells,
            nodata=raster.nodata,
            compress=compress,
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_with_nodata_at_its_limits(tmp_path, dtype):
    """A double cannot hold every 64-bit nodata value: none may be off by one."""
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    data = np.array([[info.min, info.max, 4], [1, 2, 3]], dtype)
    data[1] += dtype.type(data[1] == 0)
    near = [] if dtype.kind == "f" else [int(info.min) + 1, int(info.max) - 1]
    for k, value in enumerate([info.min, info.max, *near, 2]):
        folder = tmp_path / str(k)
        folder.mkdir()
        nodata = cells.as_scalar(value, dtype)
        source = save(folder / "a.tif", data, nodata)
        check_round_trip(source, folder, block=64, expected=data, nodata=nodata)
        expected = np.count_nonzero(data != nodata)
        assert stored(folder / "s")[1].info["valid_cells"] == expected


@pytest.mark.parametrize("nodata", [2**53 + 1, -(2**53) - 1, 2**60, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("cog", [False, True])
def test_nodata_values_beyond_a_double_survive_in_every_profile(tmp_path, nodata, cog):
    data = np.arange(600 * 700).reshape(600, 700)
    data[::3] = nodata
    data[1, 1] = nodata + (1 if nodata < 0 else -1)
    source = save(tmp_path / "a.tif", data, nodata)
    convert_dataset([source], tmp_path / "s")
    assert stored(tmp_path / "s")[1].nodata == nodata
    export_layer(tmp_path / "s", tmp_path / "o.tif", cog=cog, compress="deflate")
    with rasterio.open(tmp_path / "o.tif") as back:
        assert same_bits(back.read(1), data)
        assert np.array_equal(back.read_masks(1) == 0, data == nodata)
        assert (back.crs, back.transform) == (UTM, PLACE)
    convert_dataset([tmp_path / "o.tif"], tmp_path / "t")
    assert stored(tmp_path / "t")[1].nodata == nodata


@pytest.mark.parametrize(
    "text", ["-3.402823466385289e+38", "-3.4028234663852886e+38", "-3.4028235e+38", "-3.40282e+38"]
)
def test_the_lowest_float_in_every_spelling_is_nodata(tmp_path, text):
    """Programs write it with 6 to 17 digits; some spellings round beyond the type."""
    lowest = np.float32(-3.40282e38) if text == "-3.40282e+38" else np.finfo(np.float32).min
    data = np.array([[lowest, 1.0, 2.0]], np.float32)
    source = vrt_of(save(tmp_path / "a.tif", data), data, nodata=text, dtype="Float32")
    convert_dataset([source], tmp_path / "s")
    found, layer = stored(tmp_path / "s")
    assert same_bits(found, data)
    assert layer.nodata == lowest.item()
    assert (layer.info["valid_cells"], layer.info["min"]) == (2, 1.0)


def test_units_scale_and_offset_are_kept(tmp_path):
    data = np.arange(600, dtype=np.int16).reshape(20, 30)
    source = save(tmp_path / "a.tif", data, -1, units="decimetre", scaling=(0.1, -50.0))
    check_round_trip(source, tmp_path, block=64)
    attributes = stored(tmp_path / "s")[1].attributes
    assert attributes["units"] == "decimetre"
    assert (attributes["scale_factor"], attributes["add_offset"]) == (0.1, -50.0)


def test_a_nodata_value_with_a_fraction_loses_it_as_in_gdals_masks(tmp_path, caplog):
    data = np.arange(6, dtype=np.uint8).reshape(2, 3)
    vrt = vrt_of(save(tmp_path / "a.tif", data), data, nodata="1.5")
    with caplog.at_level("WARNING", logger="terrain_gpu"):
        convert_dataset([vrt], tmp_path / "s")
    found, layer = stored(tmp_path / "s")
    with rasterio.open(vrt) as file:
        assert np.array_equal(found == layer.nodata, file.read_masks(1) == 0)
    assert same_bits(found, data)
    assert layer.nodata == 1
    assert "nodata value 1.5 does not fit uint8 and is read as 1" in caplog.text


# -- other formats -------------------------------------------------------------------------


def vrt_of(source, data, *, nodata=None, dtype="Byte", placed=False):
    rows, cols = data.shape
    path = source.with_suffix(".vrt")
    size = f'xSize="{cols}" ySize="{rows}"'
    path.write_text(
        f'<VRTDataset rasterXSize="{cols}" rasterYSize="{rows}">'
        + ("<SRS>EPSG:32611</SRS>" if placed else "")
        + ("<GeoTransform>500000, 30, 0, 4000000, 0, -30</GeoTransform>" if placed else "")
        + f'<VRTRasterBand dataType="{dtype}" band="1">'
        + (f"<NoDataValue>{nodata}</NoDataValue>" if nodata is not None else "")
        + f'<SimpleSource><SourceFilename relativeToVRT="1">{source.name}</SourceFilename>'
        f'<SourceBand>1</SourceBand><SrcRect xOff="0" yOff="0" {size}/>'
        f'<DstRect xOff="0" yOff="0" {size}/></SimpleSource></VRTRasterBand></VRTDataset>'
    )
    return path


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 150), (131, 67)])
def test_envi(tmp_path, dtype, shape):
    raster = Raster(np.dtype(dtype), shape, 0, "bits", "sparse", seed=1)
    source = save(tmp_path / "a.img", raster.cells, 0, driver="ENVI")
    check_round_trip(source, tmp_path, block=64, expected=raster.cells)


@pytest.mark.parametrize("fraction_in", [None, 0, 130])
@pytest.mark.parametrize("indent", ["", " "])
def test_esri_ascii(tmp_path, fraction_in, indent):
    """A fraction anywhere makes all cells real, even beyond where GDAL looks."""
    rows, cols = 131, 40
    data = np.arange(rows * cols).reshape(rows, cols) % 977
    lines = [" ".join(map(str, row)) for row in data.tolist()]
    expected = data.astype(np.int32)
    if fraction_in is not None:
        expected = data.astype(np.float32)
        expected[fraction_in, 3] = 0.5
        words = lines[fraction_in].split()
        lines[fraction_in] = " ".join([*words[:3], "0.5", *words[4:]])
    source = tmp_path / "a.asc"
    header = f"ncols {cols}\nnrows {rows}\nxllcorner 100\nyllcorner 200\ncellsize 10\n"
    header += "NODATA_value -9999\n"
    source.write_text(header + "".join(indent + line + "\n" for line in lines))
    check_round_trip(source, tmp_path, block=64, expected=expected)
    grid = stored(tmp_path / "s")[1].grid
    assert grid.bounds == (100.0, 200.0, 500.0, 1510.0)


def test_esri_ascii_with_a_fraction_far_behind(tmp_path):
    """Further down than GDAL looks before it decides on integers."""
    rows, cols = 300, 400
    data = np.arange(rows * cols).reshape(rows, cols) % 99_991
    lines = [" ".join(map(str, row)) for row in data.tolist()]
    lines[-1] = lines[-1].rsplit(" ", 1)[0] + " 0.25"
    source = tmp_path / "a.asc"
    header = f"ncols {cols}\nnrows {rows}\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
    source.write_text(header + "\n".join(lines) + "\n")
    expected = data.astype(np.float32)
    expected[-1, -1] = 0.25
    convert_dataset([source], tmp_path / "s")
    assert same_bits(stored(tmp_path / "s")[0], expected)


@pytest.mark.parametrize(
    ("word", "dtype", "value"),
    [
        ("2147483647", "float64", 2147483647),
        ("3000000000", "float64", 3000000000),
        ("-3000000000", "float64", -3000000000),
        ("9007199254740991", "float64", 2**53 - 1),
        ("nan", "float32", math.nan),
        ("NaN", "float32", math.nan),
        ("1E2", "float32", 100),
        ("-32768", "int32", -32768),
    ],
)
@pytest.mark.parametrize("place", [0, 5])
@pytest.mark.parametrize("piece", [3, 1 << 22])
def test_esri_ascii_cells_that_are_no_int32(
    tmp_path, monkeypatch, word, dtype, value, place, piece
):
    """GDAL silently wraps large integers and reads nan as 0."""
    monkeypatch.setattr(ascii_grid, "_PIECE", piece)
    cols = 3
    words = ["7"] * (2 * cols)
    words[place] = word
    source = tmp_path / "a.asc"
    header = f"ncols {cols}\nnrows 2\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
    source.write_text(header + " ".join(words[:cols]) + "\n" + " ".join(words[cols:]) + "\n")
    convert_dataset([source], tmp_path / "s")
    expected = np.full(2 * cols, 7, dtype)
    expected[place] = value
    found, _ = stored(tmp_path / "s")
    assert found.dtype == dtype
    assert np.array_equal(found, expected.reshape(2, cols), equal_nan=dtype != "int32")


def test_srtm_hgt(tmp_path):
    """Big-endian int16, 1201 x 1201, place by file name, voids -32768."""
    raster = Raster(np.dtype("<i2"), (1201, 1201), -32768, "hills", "lakes", seed=6)
    source = tmp_path / "N46E008.hgt"
    source.write_bytes(raster.cells.astype(">i2").tobytes())
    check_round_trip(source, tmp_path, block=256, expected=raster.cells)
    layer = stored(tmp_path / "s")[1]
    half = 1 / 2400
    assert layer.grid.bounds == pytest.approx((8 - half, 46 - half, 9 + half, 47 + half), abs=1e-9)
    assert layer.grid.crs_code == "EPSG:4326"
    assert layer.nodata == -32768


def test_netcdf(tmp_path):
    with rasterio.Env() as environment:
        if "w" not in environment.drivers().get("netCDF", ""):
            pytest.skip("this GDAL cannot write NetCDF")
    raster = Raster(np.dtype("<f4"), (70, 90), -9999.0, "hills", "sparse", seed=8)
    save(tmp_path / "a.tif", raster.cells, raster.nodata)
    rasterio.shutil.copy(tmp_path / "a.tif", tmp_path / "a.nc", driver="netCDF")
    convert_dataset([tmp_path / "a.nc"], tmp_path / "s", block_size=64)
    found, layer = stored(tmp_path / "s")
    assert same_bits(found, raster.cells)
    assert layer.nodata == -9999.0
    assert layer.grid.transform == pytest.approx(tuple(PLACE)[:6])
    assert CRS.from_wkt(layer.grid.crs_wkt).to_epsg() == 32611


@pytest.mark.parametrize("nodata", [None, 7])
def test_vrt(tmp_path, nodata):
    raster = Raster(np.dtype("u1"), (150, 70), 7, "ties", "lakes", seed=3)
    vrt = vrt_of(save(tmp_path / "a.tif", raster.cells), raster.cells, nodata=nodata, placed=True)
    check_round_trip(vrt, tmp_path, block=64, expected=raster.cells)


@pytest.mark.parametrize("band", [1, 3])
def test_one_band_of_several(tmp_path, band):
    bands = np.random.default_rng(1).integers(0, 9, (3, 40, 50), np.int16)
    source = tmp_path / "a.tif"
    profile = {"height": 40, "width": 50, "count": 3, "dtype": "int16", "transform": PLACE}
    with rasterio.open(source, "w", driver="GTiff", **profile) as file:
        file.write(bands)
    with pytest.raises(InputError, match=r"a\.tif: has 3 bands; choose one with --band"):
        convert_dataset([source], tmp_path / "s")
    with pytest.raises(InputError, match=r"a\.tif: has no band 4; its last band is 3"):
        convert_dataset([source], tmp_path / "s", band=4)
    convert_dataset([source], tmp_path / "s", band=band)
    assert same_bits(stored(tmp_path / "s")[0], bands[band - 1])


@pytest.mark.parametrize("kind", ["alpha", "mask"])
def test_masked_cells_become_nodata(tmp_path, kind, caplog):
    data = Raster(np.dtype("u1"), (60, 70), terrain="bits", seed=2).cells.clip(0, 254)
    mask = np.where(np.arange(70) % 5, 255, 0) * np.ones((60, 1))
    source = tmp_path / "a.tif"
    profile = {"height": 60, "width": 70, "dtype": "uint8", "transform": PLACE}
    if kind == "alpha":
        with rasterio.open(source, "w", driver="GTiff", count=2, alpha="yes", **profile) as file:
            file.write(data, 1)
            file.write(mask.astype(np.uint8), 2)
    else:
        with rasterio.open(source, "w", driver="GTiff", count=1, **profile) as file:
            file.write(data, 1)
            file.write_mask(mask.astype(np.uint8))
    convert_dataset([source], tmp_path / "s", verify=True)
    found, layer = stored(tmp_path / "s")
    assert layer.nodata == 255
    assert same_bits(found, np.where(mask == 0, 255, data).astype(np.uint8))
    caplog.clear()
    convert_dataset([source], tmp_path / "s", nodata=0, overwrite=True, verify=True)
    found, layer = stored(tmp_path / "s")
    assert layer.nodata == 0
    assert same_bits(found, np.where(mask == 0, 0, data).astype(np.uint8))
    lost = np.count_nonzero((mask != 0) & (data == 0))
    assert (
        f"{lost:,} cells that are valid according to its mask have the nodata value 0"
        in caplog.text
    )


# -- mosaics -------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [-32768, None])
def test_a_value_that_is_nodata_in_another_input_is_refused(tmp_path, own):
    """0 m beside a tile whose nodata is 0: which it is, the user has to say."""
    west = save(tmp_path / "west.tif", np.array([[3, 4], [0, 5]], np.int16), 0)
    place = PLACE @ rasterio.Affine.translation(2, 0)
    east = save(tmp_path / "east.tif", np.array([[7, 7], [2, 0]], np.int16), own, transform=place)
    for order in [[west, east]] + ([[east, west]] if own is None else []):
        with pytest.raises(
            InputError,
            match=r"east\.tif: row 1, column 1: value 0 would become nodata, as it is in .*west"
            r"\.tif; choose another nodata value .* --nodata, or use --nodata 0 if it means",
        ):
            convert_dataset(order, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    for nodata in (-1, 0):
        convert_dataset([west, east], tmp_path / f"s{nodata}", nodata=nodata)
        found, layer = stored(tmp_path / f"s{nodata}")
        assert layer.nodata == nodata
        assert found.tolist() == [[3, 4, 7, 7], [nodata, 5, 2, 0]]
    if own is not None:
        convert_dataset([east, west], tmp_path / "t", verify=True)
        assert stored(tmp_path / "t")[0].tolist() == [[3, 4, 7, 7], [own, 5, 2, 0]]


@given(
    dtype=dtypes(),
    down=st.integers(20, 90),
    across=st.integers(20, 90),
    overlap=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    order=st.permutations(range(4)),
    nodata=st.lists(st.sampled_from([0, 1, 5, None]), min_size=4, max_size=4),
    doubtful=st.booleans(),
    block=block_sizes(128),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(25))
def test_mosaics_of_overlapping_tiles(
    folders, dtype, down, across, overlap, order, nodata, doubtful, block, seed
):
    """The first named wins; where it has nodata, the next; all nodata cells take one value.

    A value that is nodata elsewhere is doubtful: refused, unless the value of nodata is given.
    """
    rng = np.random.default_rng(seed)
    height, width = down + overlap[0], across + overlap[1]
    places = [(r, c) for r in (0, down) for c in (0, across)]
    tiles = [rng.integers(0, 7, (height, width)).astype(dtype) for _ in places]
    declared = [None if n is None else cells.as_scalar(n, dtype) for n in nodata]
    out = next((declared[k] for k in order if declared[k] is not None), None)
    elsewhere = [k for k in order if out is not None and declared[k] != out]
    for k in elsewhere:
        tiles[k][(tiles[k] == out) & (not doubtful)] = 7
    doubtful = any((tiles[k] == out).any() for k in elsewhere)
    expected = np.full((down + height, across + width), 0 if out is None else out, dtype)
    for k in reversed(order):
        r, c = places[k]
        tile = tiles[k].copy()
        if declared[k] is not None:
            tile[tile == declared[k]] = out
        view = expected[r : r + height, c : c + width]
        keep = np.ones(tile.shape, bool) if out is None else tile != out
        view[keep] = tile[keep]
    with folders() as folder:
        paths = []
        for k, (r, c) in enumerate(places):
            transform = PLACE @ rasterio.Affine.translation(c, r)
            paths.append(save(folder / f"{k}.tif", tiles[k], declared[k], transform=transform))
        inputs = [paths[k] for k in order]
        if doubtful:
            with pytest.raises(InputError, match="would become nodata, as it is in"):
                convert_dataset(inputs, folder / "s", block_size=block)
        stated = out if doubtful else None
        convert_dataset(inputs, folder / "s", block_size=block, nodata=stated)
        found, layer = stored(folder / "s")
        assert same_bits(found, expected)
        assert same_value(layer.nodata, out)
        assert layer.grid.transform == tuple(PLACE)[:6]


def test_nan_and_numbers_as_nodata_of_one_mosaic(tmp_path):
    one, two = np.float32([[1, np.nan, 3]]), np.float32([[7, -1, 9]])
    a = save(tmp_path / "a.tif", one, math.nan)
    b = save(tmp_path / "b.tif", two, -1.0, transform=PLACE @ rasterio.Affine.translation(2, 0))
    convert_dataset([a, b], tmp_path / "ab")
    found, layer = stored(tmp_path / "ab")
    assert math.isnan(layer.nodata)
    assert np.array_equal(found, np.float32([[1, np.nan, 3, np.nan, 9]]), equal_nan=True)
    convert_dataset([b, a], tmp_path / "ba")
    found, layer = stored(tmp_path / "ba")
    assert layer.nodata == -1.0
    assert found.tolist() == [[1, -1, 7, -1, 9]]


def test_gaps_of_a_mosaic_need_a_value(tmp_path):
    data = np.ones((10, 10), np.int16)
    a = save(tmp_path / "a.tif", data)
    b = save(tmp_path / "b.tif", data, transform=PLACE @ rasterio.Affine.translation(10, 10))
    with pytest.raises(InputError, match=r"leave gaps between them; .* --nodata"):
        convert_dataset([a, b], tmp_path / "s")
    convert_dataset([a, b], tmp_path / "s", nodata=-1)
    corner = np.full((10, 10), -1, np.int16)
    assert same_bits(stored(tmp_path / "s")[0], np.block([[data, corner], [corner, data]]))


# -- bounds --------------------------------------------------------------------------------


@given(
    raster=rasters(shape=shapes(200), special=False),
    transform=transforms(),
    corners=st.tuples(*[st.floats(-0.2, 1.2)] * 4),
    block=block_sizes(128),
)
@settings(max_examples=examples(20))
def test_bounds_cut_what_they_touch(folders, raster, transform, corners, block):
    """Into the store and out of it: both against slices of the array."""
    assume(tuple(transform) != (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))
    grid = GridSpec(*raster.shape, transform)
    west, south, east, north = grid.bounds
    x = sorted(west + (east - west) * k for k in corners[:2])
    y = sorted(south + (north - south) * k for k in corners[2:])
    bounds = (x[0], y[0], x[1], y[1])
    try:
        r0, r1, c0, c1 = window = grid.window_of(bounds)
    except InputError as error:
        refused = str(error)
    else:
        refused = ""
    with folders() as folder:
        source = save(
            folder / "a.tif", raster.cells, raster.nodata, transform=rasterio.Affine(*transform)
        )
        if refused:
            with pytest.raises(InputError, match="bounds"):
                convert_dataset([source], folder / "s", bounds=bounds)
            assert not (folder / "s").exists()
            return
        part = raster.cells[r0:r1, c0:c1]
        convert_dataset([source], folder / "s", bounds=bounds, block_size=block)
        found, layer = stored(folder / "s")
        assert same_bits(found, part)
        assert layer.grid.transform == grid.crop(window).transform
        convert_dataset([source], folder / "whole", block_size=block)
        export_layer(folder / "whole", folder / "out.tif", bounds=bounds)
        with rasterio.open(folder / "out.tif") as back:
            assert same_bits(back.read(1), part)
            assert tuple(back.transform)[:6] == grid.crop(window).transform


# -- recoding ------------------------------------------------------------------------------


@given(raster=rasters(shape=shapes(60)), data=st.data())
@settings(max_examples=examples(25))
def test_another_nodata_value(folders, raster, data):
    """--nodata: cells of that value have none, and the old nodata cells take it."""
    nodata = data.draw(nodata_values(raster.dtype, none=False))
    expected = raster.cells.copy()
    if raster.nodata is not None and not same_value(raster.nodata, nodata):
        old = expected == raster.nodata
        if math.isnan(raster.nodata):
            old = np.isnan(expected)
        expected[old] = nodata
    with folders() as folder:
        source = save(folder / "a.tif", raster.cells, raster.nodata)
        report = convert_dataset([source], folder / "s", nodata=nodata)
        found, layer = stored(folder / "s")
        assert same_bits(found, expected)
        assert same_value(layer.nodata, nodata)
        assert report.valid_cells == np.count_nonzero(~cells.is_nodata(expected, nodata))


def plainly_recoded(raster, nodata, clamp, rounded):
    """Cell by cell in Python numbers: (cells, nodata), or None when a value must be refused."""
    dtype, source = raster.dtype, raster.nodata if nodata is None else nodata
    out_type = rounded or dtype
    out = source
    if rounded:
        if out is None or not cells.fits(out, out_type):
            out = {"int16": -(2**15), "uint16": 2**16 - 1, "int32": -(2**31)}[rounded.name]
        out = int(out)
    if clamp is not None and not rounded:
        clamp = dtype.type(clamp).item()
    result = []
    for value in raster.cells.ravel().tolist():
        if not math.isfinite(value) or value in (raster.nodata, source):
            result.append(value if out is None else out)
            continue
        if rounded:
            value = round(value)  # noqa: PLW2901 - Python also rounds ties to even
        if clamp is not None:
            value = max(value, clamp)  # noqa: PLW2901
        if not cells.fits(value, out_type) or same_value(value, out):
            return None
        result.append(value)
    return np.array(result, out_type).reshape(raster.shape), out


@given(
    raster=rasters(shape=shapes(40), special=False, terrains=("hills", "ties", "steps", "bits")),
    rounded=st.sampled_from([None, "int32", "int16", "uint16"]),
    data=st.data(),
)
@example(Raster(np.dtype("<f4"), (3, 4), terrain="flat"), "int32", None)
@settings(max_examples=examples(50))
def test_round_and_clamp_follow_plain_python(folders, raster, rounded, data):
    nodata = clamp = None
    rounds = rounded is not None and (raster.dtype.kind == "f" or rounded != "int32")
    held = np.dtype(rounded) if rounds else raster.dtype
    if data is not None:
        choice = st.sampled_from([None, -5, 0, 3, 100])
        nodata, clamp = data.draw(choice), data.draw(choice)
        assume(all(v is None or cells.fits(v, held) for v in (nodata, clamp)))
        assume(rounds or clamp is not None)
    expected = plainly_recoded(raster, nodata, clamp, held if rounds else None)
    with folders() as folder:
        source = save(folder / "a.tif", raster.cells, raster.nodata)
        options = {"round_cells": rounded is not None, "clamp_min": clamp, "nodata": nodata}
        options |= {"dtype": rounded} if rounds and rounded != "int32" else {}
        if expected is None:
            with pytest.raises(InputError, match=r"row \d+, column \d+: value .* (does|would)"):
                convert_dataset([source], folder / "s", **options)
            assert not (folder / "s").exists()
            return
        convert_dataset([source], folder / "s", **options)
        found, layer = stored(folder / "s")
        assert found.dtype == expected[0].dtype
        assert np.array_equal(found, expected[0], equal_nan=found.dtype.kind == "f")
        assert same_value(layer.nodata, expected[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-0.5, 0),
        (-1.5, -2),
        (0.49999997, 0),
        (2147483520.0, 2147483520),
        (-2147483520.0, -2147483520),
        (2147483648.0, None),
        (-2147483904.0, None),
        (-2147483648.0, None),
        (3e38, None),
        (math.inf, -(2**31)),
        (-math.inf, -(2**31)),
    ],
)
def test_rounding_at_the_edges(tmp_path, dtype, value, whole):
    """2**31 must not wrap to -2**31, which is the nodata value of rounded layers."""
    source = save(tmp_path / "a.tif", np.array([[1, 2], [3, value]], dtype))
    if whole is None:
        with pytest.raises(InputError, match="row 1, column 1"):
            convert_dataset([source], tmp_path / "s", round_cells=True)
    else:
        convert_dataset([source], tmp_path / "s", round_cells=True)
        assert stored(tmp_path / "s")[0].tolist() == [[1, 2], [3, whole]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cols", [1, 7, 33, 64])
def test_zeros_keep_their_sign_when_cells_are_raised_to_zero(tmp_path, dtype, cols):
    data = np.resize(np.array([-0.0, 0.0, -1.0, 2.0, -0.0], dtype), (5, cols))
    convert_dataset(save(tmp_path / "a.tif", data), tmp_path / "s", clamp_min=0)
    assert same_bits(stored(tmp_path / "s")[0], np.where(data < 0, data.dtype.type(0), data))


@pytest.mark.parametrize("nodata", [None, -9999.0])
def test_infinities_stay_without_a_value_when_cells_are_raised(tmp_path, nodata):
    data = np.array([[-5, 7, math.inf, -math.inf, math.nan]], "float32")
    report = convert_dataset(save(tmp_path / "a.tif", data, nodata), tmp_path / "s", clamp_min=0)
    kept = data[0, 2:] if nodata is None else [nodata] * 3
    assert np.array_equal(stored(tmp_path / "s")[0], [[0, 7, *kept]], equal_nan=True)
    assert report.valid_cells == 2


@pytest.mark.parametrize("error", [RuntimeError("no such thing"), MemoryError()])
def test_what_fails_beside_the_conversion_fails_the_conversion(tmp_path, monkeypatch, error):
    def fail(path, stop):
        raise error

    monkeypatch.setattr("terrain_gpu.io.convert_problem.checksum", fail)
    path = save(tmp_path / "a.tif", np.zeros((70, 70), np.float32))
    with pytest.raises(type(error)):
        convert_dataset(path, tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("kind", [str, Path])
def test_one_input_need_not_be_in_a_list(tmp_path, kind):
    data = np.arange(6, dtype="int16").reshape(2, 3)
    convert_dataset(kind(save(tmp_path / "a.tif", data)), tmp_path / "s")
    assert same_bits(stored(tmp_path / "s")[0], data)


@given(dtypes("ui"), st.data())
@settings(max_examples=examples(15))
def test_rounding_leaves_integers_alone(folders, dtype, data):
    array = np.array([data.draw(st.lists(scalars(dtype), min_size=5, max_size=5))], dtype)
    with folders() as folder:
        convert_dataset([save(folder / "a.tif", array)], folder / "s", round_cells=True)
        assert same_bits(stored(folder / "s")[0], array)


# -- memory, threads, interruptions --------------------------------------------------------


def every_file(store):
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def wide(tmp_path_factory, quick):
    """A raster in strips, with voids, wider than a block."""
    raster = Raster(np.dtype("<f4"), (700, 1500), math.nan, "hills", "lakes", seed=5)
    path = tmp_path_factory.mktemp("wide") / "a.tif"
    save(path, raster.cells, raster.nodata, compress="deflate", blockysize=16)
    store = path.with_name("s")
    convert_dataset([path], store, block_size=128)
    assert same_bits(stored(store)[0], raster.cells)
    return path, every_file(store)


@pytest.mark.parametrize("threads", [1, 3, 8])
@pytest.mark.parametrize("spare", [400_000, 2_000_000, 100_000_000])
def test_any_memory_limit_and_threads_give_the_same_bytes(tmp_path, wide, threads, spare):
    from terrain_gpu.engine.machine import BASELINE

    path, expected = wide
    report = convert_dataset(
        [path], tmp_path / "s", block_size=128, threads=threads, memory_limit=BASELINE + spare
    )
    plan = report.settings["plan"]
    assert plan["memory"] <= plan["memory_limit"] == BASELINE + spare
    assert (plan["passes"] > 1) == (spare == 400_000)
    assert every_file(tmp_path / "s") == expected


@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_conversion_resumes_to_the_same_bytes(tmp_path, wide, stop):
    path, expected = wide
    seen = []

    def progress(done, total):
        seen.append(done)
        if len(seen) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_dataset([path], tmp_path / "s", block_size=128, threads=1, progress=progress)
    assert not (tmp_path / "s").exists()
    report = convert_dataset([path], tmp_path / "s", resume=True)
    assert report.result["blocks_resumed"] > 0
    assert report.result["block_size"] == 128
    assert every_file(tmp_path / "s") == expected
    again = convert_dataset([path], tmp_path / "s", resume=True)
    assert again.result["blocks_resumed"] == 6 * 12
    assert every_file(tmp_path / "s") == expected


def test_progress_counts_every_cell_once(tmp_path, wide):
    path, _ = wide
    seen = []
    convert_dataset([path], tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    assert sum(done for done, _ in seen) == 700 * 1500
    assert {total for _, total in seen} == {700 * 1500}
    seen.clear()
    export_layer(
        tmp_path / "s", tmp_path / "o.tif", progress=lambda done, total: seen.append((done, total))
    )
    assert sum(done for done, _ in seen) == 700 * 1500


# -- export --------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", ["none", "deflate", "lzw", "zstd"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_compression_of_every_type(tmp_path, dtype, compress):
    raster = Raster(dtype, (300, 270), 0, "bits", "tiles", special=True, seed=1)
    source = save(tmp_path / "a.tif", raster.cells, raster.nodata)
    convert_dataset([source], tmp_path / "s", block_size=128)
    export_layer(tmp_path / "s", tmp_path / "o.tif", compress=compress)
    with rasterio.open(tmp_path / "o.tif") as back:
        assert same_bits(back.read(1), raster.cells)
        found = back.compression.value.lower() if back.compression else "none"
        assert found == {"none": "none"}.get(compress, compress)


@pytest.mark.parametrize("shape", [(1, 3000), (3000, 1)])
def test_a_thin_cog_has_the_levels_of_a_wide_one(tmp_path, shape):
    """GDAL would go on to one of a tile of 16 cells, and hold the whole raster for it."""
    source = save(tmp_path / "a.tif", np.arange(3000, dtype=np.float32).reshape(shape), None)
    convert_dataset([source], tmp_path / "s")
    export_layer(tmp_path / "s", tmp_path / "o.tif", cog=True)
    with rasterio.open(tmp_path / "o.tif") as back:
        assert len(back.overviews(1)) == 3  # 1500, 750, 375 cells


@pytest.mark.parametrize(
    ("dtype", "nodata", "compress"),
    [
        ("uint8", 255, None),
        ("int16", -32768, None),
        ("int16", -32768, "none"),
        ("int16", -32768, "zstd"),
        ("int32", -1, None),
        ("float32", math.nan, None),
        ("float32", math.nan, "zstd"),
        ("float64", -9999.0, None),
    ],
)
def test_cloud_optimised_geotiff(tmp_path, dtype, nodata, compress):
    raster = Raster(np.dtype(dtype), (1100, 1300), nodata, "hills", "lakes", seed=4)
    source = save(tmp_path / "a.tif", raster.cells, nodata, units="metre", scaling=(0.5, 3.0))
    convert_dataset([source], tmp_path / "s")
    report = export_layer(tmp_path / "s", tmp_path / "o.tif", cog=True, compress=compress)
    assert report.result["file_bytes"] == (tmp_path / "o.tif").stat().st_size
    with rasterio.open(tmp_path / "o.tif") as back:
        assert same_bits(back.read(1), raster.cells)
        assert same_value(back.nodata, nodata)
        assert (back.crs, back.transform) == (UTM, PLACE)
        assert (back.units, back.scales, back.offsets) == (("metre",), (0.5,), (3.0,))
        assert back.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        levels = back.overviews(1)
    assert levels == [2, 4]
    assert headers_come_first(tmp_path / "o.tif")
    valid = raster.cells[~cells.is_nodata(raster.cells, nodata)]
    for level in range(len(levels)):
        with rasterio.open(tmp_path / "o.tif", overview_level=level) as small:
            values = small.read(1)
            values = values[~cells.is_nodata(values, nodata)]
        assert values.size
        if valid.dtype.kind == "f":
            assert valid.min() <= values.min() <= values.max() <= valid.max()
        else:
            assert set(values.tolist()) <= set(valid.tolist())


def headers_come_first(path):
    """All image directories lie before all cells, full size first: what makes a COG a COG."""
    raw = path.read_bytes()
    order = "<" if raw[:2] == b"II" else ">"
    assert struct.unpack(order + "H", raw[2:4])[0] == 42
    offset = struct.unpack(order + "I", raw[4:8])[0]
    directories, first_cells, widths = [], [], []
    while offset:
        directories.append(offset)
        count = struct.unpack_from(order + "H", raw, offset)[0]
        for k in range(count):
            tag, kind, number, value = struct.unpack_from(order + "HHII", raw, offset + 2 + 12 * k)
            if tag == 256:
                short = struct.unpack_from(order + "H", raw, offset + 2 + 12 * k + 8)[0]
                widths.append(short if kind == 3 else value)
            if tag == 324:
                tiles = (
                    [value] if number == 1 else struct.unpack_from(f"{order}{number}I", raw, value)
                )
                first_cells.append(min(t for t in tiles if t))
        offset = struct.unpack_from(order + "I", raw, offset + 2 + 12 * count)[0]
    return max(directories) < min(first_cells) and widths == sorted(widths, reverse=True)


def test_an_existing_file_is_kept_unless_asked_and_whole_until_then(tmp_path, monkeypatch):
    raster = Raster(np.dtype("<i2"), (200, 200), terrain="bits")
    convert_dataset([save(tmp_path / "a.tif", raster.cells)], tmp_path / "s", block_size=64)
    target = tmp_path / "o.tif"
    target.write_text("mine")
    with pytest.raises(InputError, match=r"o\.tif: exists; --overwrite replaces it"):
        export_layer(tmp_path / "s", target)

    def stop(done, total):
        assert target.read_text() == "mine"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_layer(tmp_path / "s", target, overwrite=True, progress=stop)
    assert target.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tif", "o.tif", "s"]
    export_layer(tmp_path / "s", target, overwrite=True)
    with rasterio.open(target) as back:
        assert same_bits(back.read(1), raster.cells)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tif", "o.tif", "s"]


@given(rasters(shape=shapes(300)), st.sampled_from([1, 5]), block_sizes(128))
@settings(max_examples=examples(15))
def test_small_limits_export_the_same_file(folders, raster, threads, block):
    from terrain_gpu.engine.machine import BASELINE

    with folders() as folder:
        source = save(folder / "a.tif", raster.cells, raster.nodata)
        convert_dataset([source], folder / "s", block_size=block)
        limit = BASELINE + 20 * block * block * raster.dtype.itemsize
        for k, options in enumerate(({}, {"memory_limit": limit, "threads": threads})):
            export_layer(folder / "s", folder / f"{k}.tif", **options)
            with rasterio.open(folder / f"{k}.tif") as back:
                assert same_bits(back.read(1), raster.cells)
        assert sorted(p.name for p in folder.iterdir()) == ["0.tif", "1.tif", "a.tif", "s"]


def test_several_layers_of_one_store(tmp_path):
    """Further layers take the store's block size, and keep their own cell types."""
    arrays = {
        name: Raster(np.dtype(dtype), (150, 90), terrain="bits", seed=k).cells
        for k, (name, dtype) in enumerate(
            [("elevation", "<i2"), ("friction", "<f8"), ("land", "u1")]
        )
    }
    for name, array in arrays.items():
        source = save(tmp_path / f"{name}.tif", array)
        block = 64 if name == "elevation" else None
        convert_dataset([source], tmp_path / "s", layer=name, block_size=block)
    store = TileStore.open(tmp_path / "s")
    assert store.layers == sorted(arrays)
    for name, array in arrays.items():
        found, layer = stored(tmp_path / "s", name)
        assert same_bits(found, array)
        assert layer.block_size == 64
        export_layer(tmp_path / "s", tmp_path / "o.tif", layer=name, overwrite=True)
        with rasterio.open(tmp_path / "o.tif") as back:
            assert same_bits(back.read(1), array)


def test_combinations_cover_every_dtype():
    assert {d.name for d in DTYPES} == {
        f"{k}{b}" for k, b in itertools.product(("uint", "int"), (8, 16, 32, 64))
    } | {"float32", "float64"}


def test_cells_of_minus_zero_where_zero_is_nodata(tmp_path):
    """GDAL drops the sign of such cells; that is not damage, and export must not report it."""
    data = np.full((70, 70), -0.0, np.float32)
    source = save(tmp_path / "a.tif", data, -0.0)
    convert_dataset([source], tmp_path / "s", nodata=0.0)
    export_layer(tmp_path / "s", tmp_path / "out.tif")
    with rasterio.open(tmp_path / "out.tif") as back:
        assert np.array_equal(back.read(1), data)


@pytest.mark.parametrize("name", ["EPSG:32611", CRS.from_epsg(32611).to_wkt()])
def test_a_coordinate_system_for_inputs_that_name_none(tmp_path, name):
    header = "north: 30\nsouth: 0\neast: 20\nwest: 0\nrows: 3\ncols: 2\n"
    (tmp_path / "a.txt").write_text(header + "1 2\n3 4\n5 6\n")
    header = "ncols 2\nnrows 3\nxllcorner 20\nyllcorner 0\ncellsize 10\n"
    (tmp_path / "b.asc").write_text(header + "7 8\n9 1\n2 3\n")
    # And one that names the same system.
    save(
        tmp_path / "c.tif",
        np.ones((3, 2), np.int32),
        transform=rasterio.Affine(10, 0, 40, 0, -10, 30),
    )
    paths = [tmp_path / n for n in ("a.txt", "b.asc", "c.tif")]
    convert_dataset(paths, tmp_path / "s.zarr", crs=name)
    grid = TileStore.open(tmp_path / "s.zarr").grid
    assert grid.crs_code == "EPSG:32611"
    export_layer(tmp_path / "s.zarr", tmp_path / "out.tif")
    with rasterio.open(tmp_path / "out.tif") as out:
        assert out.crs == CRS.from_epsg(32611)
        assert out.read(1).tolist() == [[1, 2, 7, 8, 1, 1], [3, 4, 9, 1, 1, 1], [5, 6, 2, 3, 1, 1]]


@pytest.mark.parametrize("shape", [(1, 30_000), (30_000, 1), (3, 9000), (20, 20_000)])
@pytest.mark.parametrize(
    ("dtype", "nodata"), [("uint8", 0), ("float32", -9.0), ("float32", 0.0), ("float64", math.nan)]
)
def test_thin_rasters_are_exported_in_few_bytes(tmp_path, no_fsync, shape, dtype, nodata):
    full = (np.arange(math.prod(shape)) % 99 + 1).astype(dtype).reshape(shape)
    full[0, 0] = 1
    for name, data in (("f", full), ("e", np.full(shape, nodata, dtype))):
        with create_layer(
            tmp_path / name, "elevation", GridSpec(*shape), data.dtype, nodata=nodata
        ) as writer:
            for at in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(*at)
                writer.write_block(*at, data[r0:r1, c0:c1])
            writer.commit()
        target = tmp_path / f"{name}.tif"
        export_layer(tmp_path / name, target, verify=True)
        assert target.stat().st_size < 1.7 * data.nbytes + 1000
        with rasterio.open(target) as back:
            assert same_bits(back.read(1), data)
        # GDAL copies a file without its tiles of nodata into strips of arbitrary cells.
        rasterio.shutil.copy(target, tmp_path / "copy.tif", driver="GTiff", compress="deflate")
        with rasterio.open(tmp_path / "copy.tif") as back:
            assert same_bits(back.read(1), data)
    export_layer(tmp_path / "f", tmp_path / "c.tif", cog=True, compress="none", verify=True)
    with rasterio.open(tmp_path / "c.tif") as back:
        assert back.block_shapes[0][0] <= max(16, min(shape) + 15)
        assert same_bits(back.read(1), full)
