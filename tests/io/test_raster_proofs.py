"""Proofs of conversions and exports: right results pass, and wrong ones do not.

The contract of operations changes single cells within a run; here files and layers are changed.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import rasterio
from effort import examples
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.windows import Window
from strategies import Raster, block_sizes, dtypes, nodata_values, rasters, shapes, transforms
from test_roundtrip import same_value, save

from terrain_gpu import (
    TileStore,
    convert_dataset,
    create_layer,
    export_layer,
    minimum_spanning_tree,
)
from terrain_gpu.arguments import RoundedType
from terrain_gpu.cells import Stats, is_nodata, stats
from terrain_gpu.cli.main import group
from terrain_gpu.cli.options import _guarded as guarded
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, PlanError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.gdal import gdal_environment
from terrain_gpu.io.proof.conversion import Conversion, verify_conversion
from terrain_gpu.io.proof.raster import verify_raster
from terrain_gpu.io.recode import Recode

LIMITS = Limits.of("1GB", 2)
UTM = CRS.from_epsg(32611)

pytestmark = pytest.mark.usefixtures("no_fsync")
many = settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)


def make_layer(
    path, data, nodata, block, transform=(30.0, 0.0, 5e5, 0.0, -30.0, 4e6), **attributes
):
    grid = GridSpec(*data.shape, transform, UTM.to_wkt(version="WKT2_2019"))
    with create_layer(
        path, "elevation", grid, data.dtype, nodata=nodata, block_size=block, attributes=attributes
    ) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
        return target.commit()


def refused(check, *args):
    with pytest.raises(VerificationError) as caught:
        check(*args)
    assert caught.value.exit_code == 1
    return caught.value


def flip(cells: np.ndarray, row: int, col: int, bit: int) -> None:
    """Flip a bit of a cell."""
    words = cells.view(f"u{cells.itemsize}")
    words[row, col] ^= words.dtype.type(1 << bit % (8 * cells.itemsize))


# -- exports -------------------------------------------------------------------------------------


def verified(path, layer, part, dtype):
    with gdal_environment():
        return verify_raster(path, layer, part, np.dtype(dtype), LIMITS)


@given(
    raster=rasters(shape=shapes(200, 20_000)),
    block=block_sizes(128),
    transform=transforms(),
    corners=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    wider=st.booleans(),
    cog=st.booleans(),
    where=st.tuples(st.integers(0), st.integers(0), st.integers(0)),
)
@many
def test_exports(folders, raster, block, transform, corners, wider, cog, where):
    assume(tuple(transform) != (1.0, 0.0, 0.0, 0.0, 1.0, 0.0))
    dtype = "float64" if wider else None
    with folders() as folder:
        layer = make_layer(folder / "s", raster.cells, raster.nodata, block, transform)
        west, south, east, north = layer.grid.bounds
        x, y = sorted(corners[:2]), sorted(corners[2:])
        bounds = (
            west + (east - west) * x[0],
            south + (north - south) * y[0],
            west + (east - west) * max(x[1], x[0] + 0.1),
            south + (north - south) * max(y[1], y[0] + 0.1),
        )
        path = folder / "x.tif"
        how = {"bounds": bounds, "cog": cog, "dtype": dtype, "overwrite": True}
        found = export_layer(folder / "s", path, verify=True, threads=2, **how)
        part = layer.grid.window_of(bounds)
        rows, cols = part[1] - part[0], part[3] - part[2]
        assert found.result["verified_cells"] == rows * cols
        row, col, bit = where[0] % rows, where[1] % cols, where[2]
        with rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as file:
            cells = file.read(1)
            before = cells.copy()
            flip(cells, row, col, bit)
            file.write(cells, 1)
        with rasterio.open(path) as file:
            now = file.read(1)
        kind = np.dtype(dtype or raster.dtype)
        # The same NaN or, where GDAL leaves out blocks of nodata 0, the same zero.
        nan = kind != raster.dtype and np.isnan([now[row, col], before[row, col]]).all()
        assume(not nan and not (raster.nodata == 0 and now[row, col] == before[row, col] == 0))
        error = refused(verified, path, layer, part, kind)
        assert error.check in ("cells", "nodata")
        assert (error.row, error.col) == (row, col)


HEADERS = {
    "nodata": ("nodata", -3),
    "no nodata": ("nodata", None),
    "transform": ("transform", rasterio.Affine(30.0, 0.0, 5e5, 0.0, -30.0, 4e6 + 30)),
    "crs": ("crs", CRS.from_epsg(32612)),
    "units": ("units", ["foot"]),
    "scale": ("scales", [0.5]),
    "offset": ("offsets", [7.0]),
}


@pytest.mark.parametrize("kind", ["int16", "float32", "int64"])
@pytest.mark.parametrize("header", HEADERS)
def test_a_wrong_header_is_refused(tmp_path, header, kind):
    if (header, kind) == ("no nodata", "int64"):
        kind = "int8"  # GDAL does not remove a nodata value of 64 bits
    data = (np.arange(70 * 90) % 100).reshape(70, 90).astype(kind)
    layer = make_layer(tmp_path / "s", data, -1, 64, units="m", scale_factor=0.25, add_offset=3.0)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path, verify=True)
    name, value = HEADERS[header]
    with rasterio.open(path, "r+") as file:
        setattr(file, name, value)
    assert refused(verified, path, layer, part, kind).check == header.split()[-1]


def test_units_beside_none_are_told(tmp_path):
    layer = make_layer(tmp_path / "s", np.arange(12, dtype=np.int16).reshape(3, 4), -1, 64)
    export_layer(tmp_path / "s", tmp_path / "x.tif")
    with rasterio.open(tmp_path / "x.tif", "r+") as file:
        file.units = ["s"]
    error = refused(verified, tmp_path / "x.tif", layer, layer.grid.window, "int16")
    assert str(error).endswith("x.tif: its units: s, not none; export it again")


def test_another_shape_type_or_no_raster_is_refused(tmp_path):
    data = np.arange(70 * 90).reshape(70, 90).astype(np.int16)
    layer = make_layer(tmp_path / "s", data, -1, 64)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path)
    assert refused(verified, path, layer, (0, 69, 0, 90), "int16").check == "shape"
    assert refused(verified, path, layer, part, "float32").check == "type"
    path.write_bytes(path.read_bytes()[:9000])
    assert refused(verified, path, layer, part, "int16").check == "file"
    path.write_text("not a raster")
    assert refused(verified, path, layer, part, "int16").check == "file"


@pytest.mark.parametrize("nodata", [2**63 - 1, 2**53 + 1, -(2**63)])
def test_a_nodata_value_beyond_a_double(tmp_path, nodata):
    data = np.arange(70 * 90, dtype=np.int64).reshape(70, 90)
    data[3] = nodata
    layer = make_layer(tmp_path / "s", data, nodata, 64)
    path, part = tmp_path / "x.tif", layer.grid.window
    export_layer(tmp_path / "s", path, verify=True)
    other = make_layer(tmp_path / "t", data, nodata - 1 if nodata > 0 else nodata + 1, 64)
    assert refused(verified, path, other, part, "int64").check == "nodata"


@given(
    raster=rasters(dtypes("i"), shapes(150, 10_000), special=False),
    connectivity=st.sampled_from([4, 8]),
    where=st.tuples(st.integers(0), st.integers(0), st.integers(0, 7)),
)
@settings(many, max_examples=examples(15))
def test_spanning_trees_are_exported_at_both_ends(folders, raster, connectivity, where):
    with folders() as folder:
        make_layer(folder / "s", raster.cells, raster.nodata, 64)
        minimum_spanning_tree(folder / "s", connectivity=connectivity)
        path, layer = folder / "x.tif", TileStore.open(folder / "s").layer("mst")
        export_layer(folder / "s", path, layer="mst", verify=True)
        row, col = where[0] % raster.shape[0], where[1] % raster.shape[1]
        with rasterio.open(path, "r+") as file:
            cell = file.read(1, window=Window(col, row, 1, 1))
            file.write(cell ^ np.uint8(1 << where[2]), 1, window=Window(col, row, 1, 1))
        error = refused(verified, path, layer, layer.grid.window, "uint8")
        assert (error.check, error.row, error.col) == ("cells", row, col)


def test_too_small_a_limit_is_refused_before_the_work(tmp_path):
    make_layer(tmp_path / "s", np.zeros((70, 90), np.int16), None, 64)
    with pytest.raises(PlanError, match="too small"):
        export_layer(tmp_path / "s", tmp_path / "x.tif", verify=True, memory_limit="165MB")
    assert not (tmp_path / "x.tif").exists()


def test_a_damaged_value_is_told_as_such(tmp_path):
    layer = make_layer(tmp_path / "s", np.full((70, 90), 2.5), math.nan, 64)
    path = tmp_path / "x.tif"
    export_layer(tmp_path / "s", path)
    with rasterio.open(path, "r+") as file:
        file.write(np.full((1, 1), 7.0), 1, window=Window(5, 66, 1, 1))
    error = refused(verified, path, layer, layer.grid.window, "float64")
    assert str(error).startswith(f"{path}: row 66, column 5: 7.0 instead of 2.5;")


# -- conversions ---------------------------------------------------------------------------------


class Changed:
    """A layer with other cells, and the statistics of these."""

    def __init__(self, layer, data, **facts):
        vars(self).update({key: getattr(layer, key) for key in FACTS}, **facts)
        self.data = data

    def read_window(self, r0, r1, c0, c1, out):
        out[...] = self.data[r0:r1, c0:c1]

    def statistics(self):
        found = stats(self.data, self.nodata)
        return {"valid_cells": found.valid, "min": found.low, "max": found.high}


FACTS = ("path", "grid", "dtype", "nodata", "block_size", "attributes")
PLACE = rasterio.Affine(30.0, 0.0, 500_000.0, 0.0, -30.0, 4_000_000.0)


def proven(layer, how, limits=LIMITS):
    with gdal_environment():
        return verify_conversion(layer, how, limits)


def numbers(dtype):
    return st.one_of(st.none(), nodata_values(dtype, none=False))


@st.composite
def conversions(draw, folder):
    """Rasters saved in a folder, and options for `convert_dataset`."""
    dtype = draw(dtypes())
    files = []
    for k in range(draw(st.integers(1, 3))):
        raster = draw(rasters(st.just(dtype), shapes(100, 4000)))
        down, right = draw(st.tuples(st.integers(-70, 70), st.integers(-70, 70)))
        layout = draw(
            st.sampled_from([{}, {"tiled": True, "blockxsize": 64, "blockysize": 64}, GRASS])
        )
        place = PLACE @ rasterio.Affine.translation(right, down)
        if layout is GRASS and dtype.name in ("int32", "float32", "float64"):
            files.append(grass(folder / f"{k}.asc", raster, place))
        else:
            name, crs = folder / f"{k}.tif", draw(st.sampled_from([UTM, None]))
            layout = {} if layout is GRASS else layout
            files.append(
                save(name, raster.cells, raster.nodata, crs=crs, transform=place, **layout)
            )
    sides = st.floats(-20, 120).map(lambda cells: 30 * cells)
    x, y = (sorted(draw(st.tuples(sides, sides))) for _ in range(2))
    bounds = (5e5 + x[0], 4e6 - y[1], 5e5 + x[1], 4e6 - y[0])
    return [str(file) for file in files], {
        **draw(rounding),
        "clamp_min": draw(st.one_of(st.none(), st.integers(0, 100))),
        "nodata": draw(numbers(dtype)),
        "bounds": draw(st.sampled_from([None, bounds])),
        "crs": "EPSG:32611",
    }


GRASS = object()
rounding = st.one_of(
    st.booleans().map(lambda rounds: {"round_cells": rounds}),
    st.sampled_from(get_args(RoundedType)).map(lambda name: {"round_cells": True, "dtype": name}),
)


def grass(path, raster, place):
    """Save as GRASS ASCII, infinities and NaN as null."""
    rows, cols = raster.shape
    types = {"int32": "int", "float32": "float", "float64": "double"}
    lines = [
        f"north: {place.f!r}",
        f"south: {place.f - 30 * rows!r}",
        f"east: {place.c + 30 * cols!r}",
        f"west: {place.c!r}",
        f"rows: {rows}",
        f"cols: {cols}",
        f"type: {types[raster.dtype.name]}",
    ]
    void = is_nodata(raster.cells, raster.nodata)
    if raster.dtype.kind == "i":
        void |= raster.cells == np.iinfo(np.int32).min
    for row, empty in zip(raster.cells.tolist(), void, strict=True):
        lines.append(" ".join("*" if gone else repr(v) for v, gone in zip(row, empty, strict=True)))
    path.write_text("\n".join(lines) + "\n")
    return path


@given(data=st.data())
@settings(many, max_examples=examples(60))
def test_conversions(folders, data):
    with folders() as folder:
        files, options = data.draw(conversions(folder))
        block, threads = data.draw(block_sizes(128)), data.draw(st.integers(1, 3))
        try:
            found = convert_dataset(
                files, folder / "s", block_size=block, verify=True, threads=threads, **options
            )
        except InputError:
            reject()
        layer = TileStore.open(folder / "s").layer("elevation")
        cells = layer.read_window(*layer.grid.window)
        assert found.result["verified_cells"] == cells.size
        how = Conversion(files, **options)
        assert proven(Changed(layer, cells), how) == {"cells": cells.size, "sources": len(files)}
        row = data.draw(st.integers(0, layer.grid.rows - 1))
        col = data.draw(st.integers(0, layer.grid.cols - 1))
        wrong = cells.copy()
        flip(wrong, row, col, data.draw(st.integers(0, 63)))
        one, other = cells[row, col], wrong[row, col]
        void = is_nodata(np.array([one, other]), layer.nodata).all()
        # The same nodata value in other bits.
        assume(not (void and same_value(one.item(), other.item())))
        error = refused(proven, Changed(layer, wrong), how)
        assert (error.check, error.row, error.col) == ("cells", row, col)


@pytest.fixture
def converted(tmp_path):
    """Two files that overlap, converted with their names relative to the folder."""
    rng = np.random.default_rng(5)
    west = rng.uniform(0, 90, (150, 120)).astype(np.float32)
    east = rng.uniform(0, 90, (150, 120)).astype(np.float32)
    west[40:70, 50:] = -1
    shift = rasterio.Affine.translation(60, 0)
    for name, data, place in (("west", west, PLACE), ("east", east, PLACE @ shift)):
        save(tmp_path / f"{name}.tif", data, -1, transform=place, units="m", scaling=(2.0, 1.0))
    files = [str(tmp_path / "west.tif"), str(tmp_path / "east.tif")]
    convert_dataset(files, tmp_path / "s.zarr", clamp_min=10, block_size=64, verify=True)
    return tmp_path / "s.zarr", Conversion(files, clamp_min=10)


OTHERS = {
    "cells": {"clamp_min": 11},
    "nodata": {"nodata": -2},
    "place": {"bounds": (500_000, 3_996_000, 503_000, 4_000_000)},
    "type": {"round_cells": True},
}


@pytest.mark.parametrize("check", OTHERS)
def test_a_conversion_with_other_options_is_refused(converted, check):
    store, how = converted
    layer = TileStore.open(store).layer("elevation")
    assert proven(layer, how)["sources"] == 2
    assert refused(proven, layer, how._replace(**OTHERS[check])).check == check


def test_a_mosaic_in_another_order_is_refused(converted):
    store, how = converted
    layer = TileStore.open(store).layer("elevation")
    error = refused(proven, layer, how._replace(rasters=how.rasters[::-1]))
    assert (error.check, error.row, error.col) == ("cells", 0, 60)
    assert refused(proven, layer, how._replace(rasters=how.rasters[:1])).check == "place"


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        (
            "place",
            {"grid": GridSpec(150, 180, tuple(PLACE @ rasterio.Affine.translation(1, 0))[:6])},
        ),
        ("crs", {"grid": GridSpec(150, 180, tuple(PLACE)[:6], CRS.from_epsg(32612).to_wkt())}),
        ("nodata", {"nodata": -9.0}),
        ("nodata", {"nodata": None}),
        ("units", {"attributes": {"scale_factor": 2.0, "add_offset": 1.0}}),
        ("scale", {"attributes": {"units": "m", "add_offset": 1.0}}),
        ("offset", {"attributes": {"units": "m", "scale_factor": 2.0}}),
    ],
)
def test_a_layer_with_a_wrong_description_is_refused(converted, check, facts):
    store, how = converted
    layer = TileStore.open(store).layer("elevation")
    cells = layer.read_window(*layer.grid.window)
    assert refused(proven, Changed(layer, cells, **facts), how).check == check


def verify(store, *more):
    """Exit code and report of `terrain-gpu verify`."""
    report = store.parent / "v.json"
    words = ["verify", str(store), "--backend", "cpu", "-q", "--json", str(report), *more]
    code = guarded(lambda: group.main(words, standalone_mode=False))
    return code, json.loads(report.read_text())["result"][more[1] if more else "elevation"]


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_a_file_is_proven_later(tmp_path, dtype):
    data = np.arange(300 * 200, dtype=np.float32).reshape(300, 200)
    layer = make_layer(tmp_path / "s", data, -1, 64)
    path, bounds = tmp_path / "x.tif", (501_000, 3_993_000, 503_000, 3_998_000)
    export_layer(tmp_path / "s", path, bounds=bounds, dtype=dtype)
    r0, r1, c0, c1 = layer.grid.window_of(bounds)
    cells = (r1 - r0) * (c1 - c0)
    found = verify(tmp_path / "s", "--file", str(path), "--layer", "elevation")
    assert found == (0, {"verified": True, "cells": cells})
    with rasterio.open(path, "r+") as file:
        file.write(np.full((1, 1), 7.0), 1, window=Window(5, 66, 1, 1))
    code, found = verify(tmp_path / "s", "--file", str(path))
    assert (code, found["verified"]) == (1, False)
    assert found["error"].startswith(f"{path}: row 66, column 5: 7.0 instead of ")
    save(path, data, -1, transform=PLACE @ rasterio.Affine.translation(0, 300))
    code, found = verify(tmp_path / "s", "--file", str(path))
    assert (code, found["error"]) == (
        1, f"{path}: does not overlap the layer; export it again"
    )  # fmt: skip
    path.write_text("nothing")
    assert verify(tmp_path / "s", "--file", str(path))[0] == 2


@pytest.mark.parametrize(("name", "by"), [("valid_cells", 1), ("min", -1), ("max", 0.5)])
def test_wrong_statistics_are_refused(converted, name, by):
    store, _ = converted
    file = store / "elevation/zarr.json"
    recorded = json.loads(file.read_text())
    own = recorded["attributes"]["terrain_gpu"]
    right, own[name] = own[name], own[name] + by
    del own["checksum"]
    file.write_text(json.dumps(recorded))
    code, found = verify(store)
    assert (code, found["verified"]) == (1, False)
    assert f"wrong totals: {name} is recorded as {own[name]}, but is {right};" in found["error"]


def test_wrong_statistics_are_refused_before_they_are_written(converted, monkeypatch, tmp_path):
    _, how = converted
    monkeypatch.setattr("terrain_gpu.store.writer.cells.stats", lambda *_: Stats(7, 1.0, 2.0))
    with pytest.raises(VerificationError, match="wrong totals: valid_cells is"):
        convert_dataset(how.rasters, tmp_path / "t.zarr", block_size=64, verify=True)
    assert not (tmp_path / "t.zarr/elevation").exists()
    assert not (tmp_path / "t.zarr/.incomplete").exists()


def test_a_failed_proof_keeps_the_older_layer(converted, monkeypatch):
    store, how = converted
    with monkeypatch.context() as patch:
        patch.setattr(Recode, "__call__", lambda self, data, row, col: data + np.float32(1))
        with pytest.raises(VerificationError, match=r"elevation: row \d+, column \d+: "):
            convert_dataset(how.rasters, store, block_size=64, verify=True, overwrite=True)
    assert sorted(os.listdir(store)) == ["elevation", "spatial_ref", "x", "y", "zarr.json"]
    assert verify(store)[0] == 0
    convert_dataset(how.rasters, store, resume=True, clamp_min=10, block_size=64, verify=True)


def test_sources_that_are_as_they_were_are_read_again(converted):
    store, how = converted
    code, found = verify(store)
    assert (code, found) == (0, {"verified": True, "cells": 150 * 180, "sources": 2})
    os.utime(how.rasters[0], (1, 1))  # the same bytes
    assert verify(store) == (0, found)


def test_sources_that_are_not_there_leave_a_layer_unproven(converted):
    store, how = converted
    path = Path(how.rasters[1])
    with open(path, "rb+") as file:
        file.seek(9000)
        file.write(b"other")
    code, found = verify(store)
    assert (code, found["verified"]) == (0, False)
    assert found["unproven"] == f"its source {path} has changed since the conversion"
    path.unlink()
    code, found = verify(store)
    assert (code, found["verified"]) == (0, False)
    assert found["unproven"] == f"its source {path} no longer exists"


def test_recorded_nonsense_is_told(converted):
    store, _ = converted
    file = store / "elevation/zarr.json"
    recorded = json.loads(file.read_text())
    own = recorded["attributes"]["terrain_gpu"]
    own["settings"]["inputs"] = 3
    del own["checksum"]
    file.write_text(json.dumps(recorded))
    code, found = verify(store)
    assert code == 2
    assert "recorded settings are invalid" in found["error"]


def test_masks_bands_and_missing_coordinate_systems(tmp_path):
    data = np.arange(70 * 90, dtype=np.uint8).reshape(70, 90)
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", height=70, width=90, count=2, dtype="uint8",
        transform=PLACE,
    ) as file:  # fmt: skip
        file.write(255 - data, 1)
        file.write(data, 2)
        file.write_mask(data % 3 != 0)
    how = Conversion([str(tmp_path / "a.tif")], band=2, nodata=7, crs="EPSG:32611")
    convert_dataset(how.rasters, tmp_path / "s", band=2, nodata=7, crs="EPSG:32611", verify=True)
    layer = TileStore.open(tmp_path / "s").layer("elevation")
    cells = layer.read_window(*layer.grid.window)
    assert (cells == 7).sum() == ((data % 3 == 0) | (data == 7)).sum()
    wrong = cells.copy()
    wrong[0, 3] = data[0, 3]  # masked
    assert refused(proven, Changed(layer, wrong), how).col == 3
    assert refused(proven, layer, how._replace(band=1)).check == "cells"
    assert verify(tmp_path / "s")[0] == 0


def test_text_is_read_forwards_once(tmp_path):
    data = np.arange(700 * 90, dtype=np.int32).reshape(700, 90)
    file = grass(tmp_path / "a.asc", Raster(np.dtype("<i4"), (700, 90)), PLACE)
    convert_dataset([str(file)], tmp_path / "s", block_size=64, verify=True, threads=3)
    lines = file.read_text().split("\n")
    lines[7:] = " ".join(lines[7:]).split()
    file.write_text("\n".join(lines))  # words, not lines, make rows
    how = Conversion([str(file)])
    layer = TileStore.open(tmp_path / "s").layer("elevation")
    assert proven(layer, how)["cells"] == data.size
    file.write_text(file.read_text()[:-40])
    with pytest.raises(InputError, match="truncated"):
        proven(layer, how)
