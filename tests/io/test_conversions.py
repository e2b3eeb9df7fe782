"""The contract of operations for conversions and exports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import rasterio
from contract import FileContract, OperationContract
from rasterio.shutil import copy
from rasterio.windows import Window
from strategies import dtypes, rasters, shapes
from test_roundtrip import plainly_recoded

from terrain_gpu import convert_dataset, export_layer
from terrain_gpu.errors import InputError
from terrain_gpu.io import geotiff
from terrain_gpu.io.convert_problem import Convert
from terrain_gpu.io.export_problem import Export
from terrain_gpu.store import TileStore


def faithful(raster) -> bool:
    """Whether a GeoTIFF keeps every bit: where 0 is nodata, -0.0 becomes 0.0."""
    return raster.nodata is None or raster.nodata != 0


class TestConvert(OperationContract):
    representative = True
    command = "convert-dataset r.tif s.zarr --layer copy"
    rasters = rasters(shape=shapes(200, 30_000)).filter(faithful)
    damaged = InputError, "r.tif: rows .* cannot be read; the file is truncated or damaged"
    identified = False
    layout: ClassVar = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    recoding: ClassVar = {}

    def prepare(self, store):
        path, whole = store.parent / "r.tif", store.parent / "whole.tif"
        export_layer(store, whole)
        copy(whole, path, driver="GTiff", compress="deflate", **self.layout)

    def make(self, store):
        block = TileStore.open(store).layer("elevation").block_size
        return Convert(str(store), (str(store.parent / "r.tif"),), "copy", block, **self.recoding)

    def expected(self, data, nodata, grid):
        return [data]

    def damage(self, store):
        path = store.parent / "r.tif"
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
        path.write_bytes(data)


class TestConvertRounded(TestConvert):
    command = "convert-dataset r.tif s.zarr --layer copy --round --clamp-min 10 --nodata -7"
    layout: ClassVar = {"blockysize": 7}
    recoding: ClassVar = {"round_cells": True, "clamp_min": 10, "nodata": -7}
    rasters = rasters(dtypes("f"), shapes(100, 6000), special=False).filter(
        lambda raster: faithful(raster) and plainly_recoded(raster, -7, 10, np.dtype(np.int32))
    )

    def cells(self, shape=(150, 210), dtype=np.float32):
        found = super().cells(shape, dtype)
        return np.where(found == -1, found, found + found % 3 / 2)

    def expected(self, data, nodata, grid):
        raster = SimpleNamespace(cells=data, dtype=data.dtype, shape=data.shape, nodata=nodata)
        return [plainly_recoded(raster, -7, 10, np.dtype(np.int32))[0]]


class TestExport(FileContract):
    representative = True
    command = "export s.zarr x.tif"
    rasters = rasters(shape=shapes(200, 30_000)).filter(faithful)
    # Blocks are written in order, by one process.
    test_on_a_cluster = test_on_five_workers = None
    test_a_worker_dies_and_the_run_goes_on = None
    test_its_driver_is_killed = test_its_scheduler_is_killed = None

    def make(self, store):
        return Export(str(store), str(store.parent / "x.tif"))

    def outputs(self, store):
        path = store.parent / "x.tif"
        with rasterio.open(path) as data:
            return {str(path): data.read(1)}

    def expected(self, data, nodata, grid):
        return [data]

    def full(self, patch, after):
        left = after + 1

        def free(path):
            nonlocal left
            left -= 1
            return 0 if left < 0 else 1 << 60

        patch.setattr(geotiff, "free_space", free)

    corner = 0, 0

    def spoil(self, file, cell):
        with rasterio.open(file, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as data:
            here = Window(cell[1] - self.corner[1], cell[0] - self.corner[0], 1, 1)
            found = data.read(1, window=here)
            if np.isnan(found).any():  # all its bit patterns mean the same
                found[...] = 1
            else:
                found.view(f"u{found.itemsize}")[...] ^= 1
            data.write(found, 1, window=here)


class TestExportOfPartAsReals(TestExport):
    command = "export s.zarr x.tif --cog --compress lzw --bounds 500495 5499045 501195 5499795"

    corner = 37, 70

    @pytest.mark.parametrize("cell", [(40, 80), (64, 100), (50, 89)], ids=["inner", "rim", "void"])
    def test_its_proof_refuses_mutations(self, store, monkeypatch, cell):
        super().test_its_proof_refuses_mutations(store, monkeypatch, cell)

    @staticmethod
    def part(rows: int, cols: int) -> tuple[int, int, int, int]:
        return (
            rows // 4,
            max(3 * rows // 4, rows // 4 + 1),
            cols // 3,
            max(cols // 2, cols // 3 + 1),
        )

    def make(self, store):
        grid = TileStore.open(store).grid
        a, _, c, _, e, f = grid.transform
        top, bottom, left, right = self.part(*grid.shape)
        bounds = (
            c + a * (left + 0.25),
            f + e * (bottom - 0.25),
            c + a * (right - 0.25),
            f + e * (top + 0.25),
        )
        path = str(store.parent / "x.tif")
        return Export(str(store), path, "elevation", bounds, True, "deflate", "float64")

    def expected(self, data, nodata, grid):
        top, bottom, left, right = self.part(*data.shape)
        found = data[top:bottom, left:right]
        if found.dtype == np.float64:
            return [found]
        void = ~np.isfinite(found)
        if nodata is not None:
            void |= found == nodata
        return [np.where(void, np.nan, found.astype(np.float64))]


def vrt(band):
    return (
        '<VRTDataset rasterXSize="6" rasterYSize="5"><VRTRasterBand dataType="Float32" band="1" '
        f"{band}</VRTRasterBand></VRTDataset>"
    )


SOURCE = "<SimpleSource><SourceFilename>{}</SourceFilename></SimpleSource>"


@pytest.mark.parametrize(
    ("band", "message"),
    [
        (f">{SOURCE.format('gone.tif')}", "gone.tif: No such file"),
        (
            'subClass="VRTDerivedRasterBand"><PixelFunctionType>unheard</PixelFunctionType>'
            + SOURCE.format("a.tif"),
            "'unheard' not registered",
        ),
    ],
)
def test_a_vrt_that_names_what_is_not_there(tmp_path, band, message):
    (tmp_path / "a.vrt").write_text(vrt(band))
    with pytest.raises(InputError, match=f"a file or a pixel function in .* {message}"):
        convert_dataset([tmp_path / "a.vrt"], tmp_path / "s.zarr")


def test_complex_numbers(tmp_path):
    with rasterio.open(
        tmp_path / "c.tif", "w", "GTiff", width=3, height=2, count=1, dtype="complex64"
    ):
        pass
    with pytest.raises(
        InputError, match=r"c\.tif: its cells are complex numbers; write their real"
    ):
        convert_dataset([tmp_path / "c.tif"], tmp_path / "s.zarr")
