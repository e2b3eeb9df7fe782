"""Valid cells of a converted raster are those of GDAL's mask, and proofs agree."""

from __future__ import annotations

import contextlib
import re
import shlex
import warnings
import zipfile
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.enums import ColorInterp

from terrain_gpu import TileStore, calc, cells, convert_dataset, create_layer, export_layer
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io import ascii_grid, mosaic
from terrain_gpu.io.gdal import GdalInput

pytestmark = pytest.mark.usefixtures("no_fsync")
many = settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)

TYPES = "uint8", "int8", "int16", "uint16", "int32", "uint32", "float32", "float64"
LOWEST = -3.4028234663852886e38
REAL = -9999.0, 0.0, LOWEST, -3.40282306074e38, 1e20, 9.969209968386869e36, 1e-40, float("nan")
"""Nodata values of real cells, and values that cells near them start from."""


@st.composite
def bands(draw: Any) -> tuple[np.ndarray, float | None]:
    """Cells of one or two bands, many of them nodata or nearly so, and a nodata value."""
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    if dtype.kind == "f":
        nodata = draw(st.none() | st.sampled_from(REAL))
        off = [s * d for s in (-1, 1) for d in (0.0, 1e-8, 1e-7, 4.7e-7, 4.8e-7, 1e-6, 0.1)]
        near = st.builds(lambda v, d: v * (1 + d), st.sampled_from(REAL), st.sampled_from(off))
        cell = near | st.floats(-5e3, 5e3, width=32) | st.sampled_from([-1e31, -1e35, np.inf])
    else:
        info = np.iinfo(dtype)
        few = sorted({int(info.min), int(info.max), 0, 1, 5})
        nodata = draw(st.none() | st.sampled_from(few))
        cell = st.sampled_from(few)
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("ignore")
        flat = [draw(cell) for _ in range(np.prod(shape))]
        return np.array(flat).reshape(shape).astype(dtype), nodata


def raster(path: Path, data: np.ndarray, nodata: float | None, kind: str, draw: Any) -> Path:
    """A file whose valid cells the nodata value, a mask, alpha or NODATA_VALUES tells."""
    count, rows, cols = data.shape
    alpha = kind == "alpha" and data.dtype.name in ("uint8", "uint16")
    profile = {"driver": "GTiff", "height": rows, "width": cols, "dtype": data.dtype.name}
    profile |= {"transform": rasterio.Affine(30, 0, 5e5, 0, -30, 4e6), "crs": "EPSG:32611"}
    mask = np.array([draw(st.sampled_from([0, 255])) for _ in range(rows * cols)], np.uint8)
    mask = mask.reshape(rows, cols)
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=kind == "inside"),
        rasterio.open(path, "w", count=count + alpha, nodata=nodata, **profile) as file,
    ):
        file.write(data, list(range(1, count + 1)))
        if alpha:
            file.write(mask.astype(data.dtype) * (257 if data.itemsize == 2 else 1), count + 1)
            file.colorinterp = [ColorInterp.gray] * count + [ColorInterp.alpha]
        if kind in ("inside", "beside"):
            file.write_mask(mask)
        if kind == "values":
            named = [draw(st.sampled_from(data[k].ravel().tolist())) for k in range(count)]
            file.update_tags(NODATA_VALUES=" ".join(map(repr, named)))
    if kind != "vrt":
        return path
    profile |= {"dtype": "uint8", "count": 1}
    with rasterio.open(path.with_suffix(".mask.tif"), "w", **profile) as file:
        file.write(mask, 1)
    rasterio.shutil.copy(path, path.with_suffix(".vrt"), driver="VRT")
    text = path.with_suffix(".vrt").read_text()
    source = f'<SourceFilename relativeToVRT="1">{path.stem}.mask.tif</SourceFilename>'
    own = f"<SimpleSource>{source}<SourceBand>1</SourceBand></SimpleSource>"
    own = f'<MaskBand><VRTRasterBand dataType="Byte">{own}</VRTRasterBand></MaskBand>'
    end = draw(st.sampled_from(["</VRTRasterBand>", "</VRTDataset>"]))
    path.with_suffix(".vrt").write_text(text.replace(end, own + end))
    return path.with_suffix(".vrt")


@many
@given(bands(), st.sampled_from(["plain", "inside", "beside", "alpha", "values", "vrt"]), st.data())
def test_valid_cells_are_those_of_gdals_mask(tmp_path_factory, made, kind, chosen):
    folder = tmp_path_factory.mktemp("masks")
    path = raster(folder / "a.tif", *made, kind, chosen.draw)
    with rasterio.open(path) as file:
        band = chosen.draw(st.integers(1, len(made[0])))
        data, valid = file.read(band), file.read_masks(band) != 0
    if data.dtype.kind == "f":
        valid &= np.isfinite(data)  # as in every layer
    ends = {*cells_at_ends(data.dtype)} & {*data[valid].tolist()}
    with contextlib.suppress(*[InputError] * bool(ends)):  # none is left for nodata
        convert_dataset([path], folder / "s", band=band, verify=True)
    if ends and not (folder / "s").exists():
        return
    found, layer = stored(folder / "s")
    assert np.array_equal(~is_nodata(found, layer.nodata), valid)
    assert np.array_equal(found[valid], data[valid])


def cells_at_ends(dtype):
    return [] if dtype.kind == "f" else [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]


def stored(store):
    layer = TileStore.open(store).layer("elevation")
    return layer.read_window(*layer.grid.window), layer


def write(path, data, nodata=None, mask=None, **more):
    """A GeoTIFF of 30 m cells; returns its path."""
    profile = {"driver": "GTiff", "count": 1, "dtype": data.dtype.name, "crs": "EPSG:32611"}
    profile |= {"height": data.shape[0], "width": data.shape[1], "nodata": nodata, **more}
    place = rasterio.Affine(30, 0, 5e5, 0, -30, 4e6)
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(path, "w", transform=place, **profile) as file,
    ):
        file.write(data, 1)
        if mask is not None:
            file.write_mask(np.where(mask, 255, 0).astype(np.uint8))
    return path


def vanishing(self, window, out):
    out[self.dataset().read_masks(self.band) == 0] = self.nodata


def test_the_proof_refuses_cells_that_only_look_valid(tmp_path, monkeypatch):
    """What conversion made when it compared nodata exactly, and when nodata outranked a mask."""
    near = write(tmp_path / "near.tif", np.array([[1, LOWEST]], np.float32), -3.40282306074e38)
    data = np.array([[5, 7, -9999]], np.int16)
    both = write(tmp_path / "both.tif", data, -9999, np.array([[1, 0, 1]]))
    with monkeypatch.context() as old:
        old.setattr(cells, "near", lambda data, value: data == value)
        with pytest.raises(VerificationError):
            convert_dataset([near], tmp_path / "s", verify=True)
    with monkeypatch.context() as old:
        old.setattr(mosaic, "_unlikely", lambda one: one.outranked)
        old.setattr(GdalInput, "_mask", vanishing)
        with pytest.raises(VerificationError):
            convert_dataset([both], tmp_path / "s", verify=True)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("big", ["YES", "NO"])
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("text", ["-1.8e308", "-inf"])
def test_a_tag_that_overflows_masks_the_largest_numbers(tmp_path, caplog, text, order, big):
    how = {"BIGTIFF": big, "ENDIANNESS": order}
    path = write(tmp_path / "a.tif", np.array([[1, -np.finfo(float).max, 2]]), -12345.5, **how)
    data = path.read_bytes()
    assert data.count(b"-12345.5\0") == 1
    path.write_bytes(data.replace(b"-12345.5\0", text.encode().ljust(9, b"\0")))
    convert_dataset([path], tmp_path / "s", verify=True)
    found, layer = stored(tmp_path / "s")
    assert np.array_equal(found, [[1, -np.inf, 2]])
    assert (layer.nodata, layer.info["valid_cells"]) == (-np.inf, 2)
    says = {
        "-1.8e308": "written as -1.8e308, which GDAL reads as -inf",
        "-inf": "-inf, to which GDAL also rounds numbers beyond float64",
    }
    assert f"a.tif: its nodata value is {says[text]}; cells with -1.797" in caplog.text


def test_messages_name_nodata_as_the_file_does(tmp_path, caplog):
    grid = "ncols 1\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\nnodata_value {}\n7\n"
    (tmp_path / "a.asc").write_text(grid.format("-1e+309"))
    path = write(tmp_path / "b.tif", np.array([[7]], np.uint8), 1.5)
    path.write_bytes(path.read_bytes().replace(b"1.5\0", b"2.5\0"))
    for name, says in {
        "a.asc": "its nodata value is written as -1e+309, which GDAL reads as -inf",
        "b.tif": "nodata value 2.5 does not fit uint8 and is read as 2",
    }.items():
        convert_dataset([tmp_path / name], tmp_path / "s", overwrite=True)
        assert f"{name}: {says}" in caplog.text


@pytest.mark.parametrize("value", [-9999, -32768, 1e20, 9.969209968386869e36, LOWEST])
@pytest.mark.parametrize("declared", [None, -5])
def test_a_fill_value_that_is_not_declared_is_counted(tmp_path, caplog, value, declared):
    data = np.random.default_rng(1).normal(500, 100, (150, 200)).astype(np.float32)
    data[3, 5:9] = data[140, 190] = value
    data[5, 5] = -5
    path = write(tmp_path / "a.tif", data, declared)
    convert_dataset([path], tmp_path / "s", block_size=64)
    says = [one.getMessage() for one in caplog.records]
    assert len(says) == 1
    assert "a.tif: 5 cells have the value" in says[0]
    command = shlex.split(
        says[0].split("means nodata: ", 1)[1].replace("dem.zarr", f"{tmp_path}/t")
    )
    assert command[:3] == ["terrain-gpu", "convert-dataset", str(path)]
    caplog.clear()
    group.main(command[1:], "terrain-gpu", standalone_mode=False)
    assert not caplog.records
    assert stored(tmp_path / "t")[1].info["valid_cells"] == data.size - 5 - (declared is not None)


@pytest.mark.parametrize(
    ("fills", "spikes"),
    [
        ({-9999: 3, -32768: 2}, []),
        ({-9999: 3, LOWEST: 1, -LOWEST: 2}, []),
        ({-9999: 4}, [-20000.0, 1e6]),
        ({-9999: 4}, [-6000.0]),
        ({-9999: 30 * 40}, []),
    ],
)
@pytest.mark.parametrize("block", [64, 4096])
def test_each_fill_value_is_counted_alone(tmp_path, caplog, fills, spikes, block):
    data = np.random.default_rng(1).normal(500, 100, (30, 40)).astype(np.float32)
    at = iter(np.random.default_rng(2).permutation(data.size))
    for value, count in [*fills.items(), *((spike, 1) for spike in spikes)]:
        data.flat[[next(at) for _ in range(count)]] = value
    convert_dataset([write(tmp_path / "a.tif", data)], tmp_path / "s", block_size=block)
    says = [record.getMessage() for record in caplog.records]
    parts = [
        re.search(r"a.tif: (\S+) cells? ha(?:ve|s) the value (\S+),", one)
        for one in says[: len(fills)]
    ]
    assert {float(part[2]): int(part[1].replace(",", "")) for part in parts} == fills
    others = data[~np.isin(data, np.array([*fills], np.float32))]
    range_ = f"the others are {others.min()} to {others.max()};" if others.size else "far from"
    assert all(range_ in one for one in says[: len(fills)])
    assert len(says) == len(fills) + (len(fills) > 1)
    if len(fills) > 1:
        *words, option, name = shlex.split(says[-1].split("all of them to nodata: ", 1)[1])
        assert (words[:3], option, name) == (["terrain-gpu", "calc", "dem.zarr"], "--into", "NAME")
        calc(tmp_path / "s", words[3], into="rest")
        layer = TileStore.open(tmp_path / "s").layer("rest")
        found = layer.read_window(0, *data.shape[:1], 0, data.shape[1])
        assert np.array_equal(np.sort(found[np.isfinite(found)]), np.sort(others))


def test_integers_near_a_fill_value_are_elevations(tmp_path, caplog):
    data = np.full((30, 40), 2**31 - 500, np.int32)
    data[0] = 5
    convert_dataset([write(tmp_path / "a.tif", data)], tmp_path / "s")
    assert not caplog.records


@pytest.mark.parametrize("span", [(-9999, 3000), (-32768, 32767), (-10900, 8800)])
def test_a_range_that_ends_at_a_fill_value_is_no_fill_value(tmp_path, caplog, span):
    data = np.linspace(*span, 6000).astype(np.int16).reshape(60, 100)
    convert_dataset([write(tmp_path / "a.tif", data)], tmp_path / "s")
    assert not caplog.records


def test_masked_rasters_need_no_option(tmp_path, capsys):
    """As heights, friction and sources of one-shot commands."""
    data = np.arange(12, dtype=np.int16).reshape(3, 4)
    mask = np.ones((3, 4), bool)
    mask[1, 1] = mask[0, 3] = False
    heights = write(tmp_path / "a.tif", data, mask=mask)
    friction = write(tmp_path / "f.tif", np.ones((3, 4), np.uint8), mask=mask)
    none = write(tmp_path / "n.tif", np.zeros((3, 4), np.uint8), mask=mask)
    ids = write(tmp_path / "i.tif", np.where(mask, np.eye(3, 4), 255).astype(np.uint8), mask=mask)
    for command in (
        f"fill {heights}",
        f"compute-sssp {heights} --sources {ids} --cost friction --friction {friction}",
        f"compute-sssp {heights} --barriers {none} --source-rowcol 2,1",
    ):
        out = tmp_path / "o.tif"
        args = [*command.split(), "-o", str(out), "--overwrite", "-q"]
        group.main(args, "terrain-gpu", standalone_mode=False)
        with rasterio.open(out) as file:
            assert np.array_equal(file.read_masks(1) == 0, ~mask), command


def test_export_counts_valid_cells_that_gdal_takes_for_nodata(tmp_path, caplog):
    data = np.array([[1, -9999.001, -9999, 3]], np.float32)
    grid = GridSpec(1, 4, (30.0, 0.0, 0.0, 0.0, -30.0, 0.0))
    with create_layer(tmp_path / "s", "elevation", grid, data.dtype, nodata=-9999) as made:
        made.write_block(0, 0, data)
        made.commit()
    export_layer(tmp_path / "s", tmp_path / "o.tif")
    with rasterio.open(tmp_path / "o.tif") as file:
        assert file.read_masks(1).tolist() == [[255, 0, 0, 255]]
    assert "o.tif: 1 valid cells are so close to the nodata value -9999.0" in caplog.text


def test_text_that_cannot_be_checked_is_told(tmp_path, caplog):
    header = "ncols 3\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a.asc", f"{header}1 2 3\n")
    convert_dataset([f"/vsizip/{tmp_path}/a.zip/a.asc"], tmp_path / "s")
    assert stored(tmp_path / "s")[0].tolist() == [[1, 2, 3]]
    assert "a.asc: its text cannot be checked there" in caplog.text


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize("ends", [["\n"], ["\r"], ["\r\n"], ["\r\n", "\n", "\r"], ["\r", "\r\n"]])
def test_text_grids_of_any_line_ends_are_read_as_gdal_does(tmp_path, monkeypatch, ends, piece):
    monkeypatch.setattr(ascii_grid, "_PIECE", piece)

    def ended(lines):
        parts = lines.split("|")
        return "".join(map("".join, zip(parts, cycle(ends)))).encode()

    place = "ncols 3|nrows 2|xllcorner 0|yllcorner 0|cellsize 1|"
    grids = {
        "a.asc": place + "1 2 3|4 5 {}|",
        "b.asc": place.replace("|", " ") + "NODATA_value -1|1 2 3|4 5 {}|",
        "a.xyz": "x y z n|0 1 1 a|1 1 2 b|2 1 3 c|0 0 4 d|1 0 5 e|2 0 {} f|",
        "a.txt": "north: 2|south: 0|east: 3|west: 0|rows: 2|cols: 3|1 2 3|4 5 {}|",
    }
    for name, lines in grids.items():
        path = tmp_path / name
        path.write_bytes(ended(lines.format(6)))
        convert_dataset([path], tmp_path / "s", overwrite=True, verify=True)
        with rasterio.open(path) as file:
            assert stored(tmp_path / "s")[0].tolist() == file.read(1).tolist()
        path.write_bytes(ended(lines.format("#N/A")))
        line = "near row 1" if name == "a.txt" else f"line {3 if name == 'b.asc' else 7}: "
        with pytest.raises(InputError, match=f"{line}.*'#N/A'"):
            convert_dataset([path], tmp_path / "t")
