"""The store: every layer against numpy, zarr-python, xarray and the bytes of the specification;
every run against kills, rivals and folders that are not ours."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import json
import os
import re
import shutil
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numcodecs.blosc
import numcodecs.zstd
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - registers .rio
import xarray as xr
import zarr
import zarr_cm.proj
import zarr_cm.spatial
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kills import die_at, fork, wait
from rasterio.crs import CRS
from rasterio.errors import RasterioIOError
from strategies import (
    DTYPES,
    Raster,
    block_sizes,
    dtypes,
    rasters,
    same_bits,
    windows,
    without_checksums,
)
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec, ZstdCodec

from terrain_gpu import cells
from terrain_gpu.errors import InputError, OutputError, StoreError, TerrainError
from terrain_gpu.grid import TILE, GridSpec
from terrain_gpu.store import (
    TileStore,
    checksums,
    coding,
    create_layer,
    decoding,
    unfinished_block_size,
)
from terrain_gpu.store.accept import accept_changes
from terrain_gpu.store.files import new_file
from terrain_gpu.store.swap import withdraw

UTM = CRS.from_epsg(32611).to_wkt(version="WKT2_2019")
LATLON = CRS.from_epsg(4326).to_wkt(version="WKT2_2019")
MISSING = 2**64 - 1


def grid_of(shape, crs=UTM, code="EPSG:32611"):
    return GridSpec(*shape, (30.0, 0.0, 500_000.0, 0.0, -30.0, 4_000_000.0), crs, code)


def write(path, raster, name="elevation", *, block=64, compress=None, grid=None, **options):
    """Write a raster through the public API and return the layer, reopened."""
    with begin(path, raster, name, block=block, compress=compress, grid=grid, **options) as writer:
        fill(writer, raster.cells)
        writer.commit()
    return TileStore.open(path).layer(name)


def begin(path, raster, name="elevation", *, block=64, compress=None, grid=None, **options):
    return create_layer(
        path,
        name,
        grid or grid_of(raster.shape),
        raster.dtype,
        nodata=raster.nodata,
        block_size=block,
        compress=compress,
        **options,
    )


def fill(writer, data, blocks=None):
    for i, j in writer.blocks.ids() if blocks is None else blocks:
        r0, r1, c0, c1 = writer.block_window(i, j)
        writer.write_block(i, j, data[r0:r1, c0:c1])


def read(path, name="elevation"):
    layer = TileStore.open(path).layer(name)
    return layer.read_window(0, layer.grid.rows, 0, layer.grid.cols)


def names(path):
    return sorted(p.name for p in Path(path).iterdir())


def files(path):
    return sorted(str(p.relative_to(path)) for p in Path(path).rglob("*") if p.is_file())


def padded(layer, data, i, j):
    """Block (i, j) filled up to its full square."""
    b = layer.block_size
    whole = np.full((b, b), layer.fill, layer.dtype)
    part = data[i * b : (i + 1) * b, j * b : (j + 1) * b]
    whole[: part.shape[0], : part.shape[1]] = part
    return whole


def z_order(side):
    """(row, column) of a square in Z-order, by recursion on quadrants."""
    if side == 1:
        return [(0, 0)]
    h = side // 2
    quarter = z_order(h)
    return [(r + dr, c + dc) for dr in (0, h) for dc in (0, h) for r, c in quarter]


def present_tiles(layer, data, i, j, row=0, col=0, side=0):
    """What `map_tiles` promises: the tiles with a bit that differs from the fill, in Z-order."""
    whole = padded(layer, data, i, j)
    fill_tile = np.full((TILE, TILE), layer.fill, layer.dtype).tobytes()
    tiles = []
    for r, c in z_order(side or layer.block_size // TILE):
        y, x = (row + r) * TILE, (col + c) * TILE
        tile = whole[y : y + TILE, x : x + TILE]
        if tile.tobytes() != fill_tile:
            tiles.append(tile)
    return np.array(tiles, layer.dtype).reshape(-1, TILE, TILE)


def crc32c(data):
    """Castagnoli's CRC, bit by bit from its polynomial (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _crc_entry(value):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


CRC_TABLE = [_crc_entry(k) for k in range(256)]


def parse_shard(path, side):
    """Data bytes and {(tile row, tile column): (offset, length)} of a shard file.

    By the Zarr specification of ``sharding_indexed``: at the end a C-ordered table of little-endian
    uint64 pairs, both 2**64 - 1 for an absent tile, then the table's CRC-32C. Before it ours: a
    table of the CRC-32C of each tile's bytes, 0 for an absent one, and its own.
    """
    raw = path.read_bytes()
    size = 16 * side * side + 4
    sums = struct.unpack(f"<{side * side + 1}I", raw[-size - 4 * side * side - 4 : -size])
    data, index = raw[: -size - 4 * len(sums)], raw[-size:]
    assert struct.unpack("<I", index[-4:])[0] == crc32c(index[:-4])
    assert sums[-1] == crc32c(struct.pack(f"<{side * side}I", *sums[:-1]))
    found = {}
    for k, (offset, length) in enumerate(struct.iter_unpack("<QQ", index[:-4])):
        if (offset, length) != (MISSING, MISSING):
            found[divmod(k, side)] = offset, length
            assert sums[k] == crc32c(data[offset : offset + length])
        else:
            assert sums[k] == 0
    return data, found


def test_the_checksum_of_this_file_is_right():
    assert crc32c(b"123456789") == 0xE3069283


# -- conformance ---------------------------------------------------------------------------

SHAPES = [  # one cell, one row, one column, primes, a cell more or less than tiles and blocks
    ((1, 1), 64),
    ((1, 301), 64),
    ((277, 1), 128),
    ((193, 127), 64),
    ((127, 131), 128),
    ((257, 255), 256),
]
CODED = [  # every shape uncompressed and compressed, every codec with several shapes
    *((shape, None) for shape in SHAPES),
    *zip(SHAPES, itertools.cycle(("blosc-lz4", "zstd", "blosc-zstd"))),
]
PATTERNS = {
    "empty": ("ramp", "all", False),
    "sparse": ("hills", "dense", False),
    "dense": ("bits", "none", False),
    "special": ("ties", "tiles", True),
}


def pattern(name, dtype, shape):
    terrain, voids, special = PATTERNS[name]
    nodata = {"u": np.iinfo(dtype).max if dtype.kind == "u" else 0, "i": -1, "f": -9999.0}[
        dtype.kind
    ]
    if name == "dense":
        nodata = None
    elif name == "special" and dtype.kind == "f":
        nodata = float("nan")
    nodata = None if nodata is None else cells.as_scalar(nodata, dtype)
    return Raster(dtype, shape, nodata, terrain, voids, special, seed=sum(shape))


@pytest.fixture(scope="class")
def written(request, tmp_path_factory):
    """One store with a layer for each cell type and pattern, and the rasters they show."""
    (shape, block), compress = request.param
    path = tmp_path_factory.mktemp("conformance") / "store"
    source = {
        f"{dtype.name}_{name}": pattern(name, dtype, shape) for dtype in DTYPES for name in PATTERNS
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        for name, raster in source.items():
            write(path, raster, name, block=block, compress=compress)
    store = TileStore.open(path)
    assert store.layers == sorted(source)
    return path, {name: (raster, store.layer(name)) for name, raster in source.items()}


def _label(value):
    (shape, block), compress = value
    return f"{shape[0]}x{shape[1]}-{block}-{compress or 'raw'}"


@pytest.mark.parametrize("written", CODED, indirect=True, ids=_label)
class TestConformance:
    """Every cell type, odd shape, compression and pattern, through every way of reading."""

    def test_description(self, written):
        _, layers = written
        for raster, layer in layers.values():
            assert layer.dtype == raster.dtype
            assert layer.grid == grid_of(raster.shape)
            told = json.loads(json.dumps(layer.describe(), allow_nan=False))
            assert told["dtype"] == raster.dtype.name
            assert told["nodata"] == cells.to_json(raster.nodata)
            values = raster.cells[~cells.is_nodata(raster.cells, raster.nodata)]
            assert told["valid_cells"] == values.size
            assert told["min"] == (values.min().item() if values.size else None)
            assert told["max"] == (values.max().item() if values.size else None)
            assert told["raw_bytes"] == raster.cells.nbytes
            shards = [p for p in layer.path.glob("c/*/*")]
            assert told["stored_bytes"] == sum(p.stat().st_size for p in shards)

    @pytest.mark.parametrize("halo", [-1, -40, 0.5])
    def test_a_halo_that_is_no_number_of_rings(self, written, halo):
        _, layers = written
        _, layer = next(iter(layers.values()))
        with pytest.raises(InputError, match="give a whole number from 0 on"):
            layer.read_block(0, 0, halo=halo)

    def test_blocks_and_halos(self, written):
        _, layers = written
        for raster, layer in layers.values():
            for halo in (0, 1, TILE):
                ring = np.pad(raster.cells, halo, constant_values=layer.fill)
                for i, j in layer.blocks.ids():
                    r0, r1, c0, c1 = layer.block_window(i, j)
                    expected = ring[r0 : r1 + 2 * halo, c0 : c1 + 2 * halo]
                    assert same_bits(layer.read_block(i, j, halo=halo), expected)

    def test_windows(self, written):
        _, layers = written
        rng = np.random.default_rng(1)
        for raster, layer in layers.values():
            rows, cols = raster.shape
            assert same_bits(layer.read_window(0, rows, 0, cols), raster.cells)
            for _ in range(4):
                r0, r1 = sorted(rng.integers(0, rows + 1, 2))
                c0, c1 = sorted(rng.integers(0, cols + 1, 2))
                if r0 < r1 and c0 < c1:
                    found = layer.read_window(r0, r1, c0, c1)
                    assert same_bits(found, raster.cells[r0:r1, c0:c1])

    def test_mapped_tiles(self, written):
        _, layers = written
        for raster, layer in layers.values():
            if layer.compress:
                with pytest.raises(InputError, match="compressed layer cannot be mapped"):
                    layer.map_tiles(0, 0)
                continue
            tiles = layer.block_size // TILE
            for i, j in layer.blocks.ids():
                expected = present_tiles(layer, raster.cells, i, j)
                assert same_bits(layer.map_tiles(i, j), expected)
                for side in (1 << k for k in range(tiles.bit_length())):
                    for row, col in itertools.product(range(0, tiles, side), repeat=2):
                        found = layer.map_tiles(i, j, row, col, side)
                        expected = present_tiles(layer, raster.cells, i, j, row, col, side)
                        assert same_bits(found, expected)
                        assert not found.flags.writeable or not found.size

    def test_shards_by_hand(self, written):
        """Absent tiles take no byte; the others lie back to back in Z-order."""
        _, layers = written
        for raster, layer in layers.values():
            side = layer.block_size // TILE
            for i, j in layer.blocks.ids():
                path = layer.path / "c" / str(i) / str(j)
                tiles = present_tiles(layer, raster.cells, i, j)
                if not len(tiles):
                    assert not path.exists()
                    continue
                data, index = parse_shard(path, side)
                assert len(index) == len(tiles)
                ordered = [index[place] for place in z_order(side) if place in index]
                end = 0
                for (offset, length), tile in zip(ordered, tiles, strict=True):
                    assert offset == end
                    end += length
                    body = data[offset:end]
                    if layer.compress:
                        module = numcodecs.zstd if layer.compress == "zstd" else numcodecs.blosc
                        body = bytes(module.decompress(body))
                    assert body == tile.tobytes()
                assert end == len(data)
                if not layer.compress:
                    assert len(data) == len(tiles) * TILE * TILE * raster.dtype.itemsize

    def test_zarr_python(self, written):
        path, layers = written
        group = zarr.open_group(str(path), mode="r")
        for name, (raster, layer) in layers.items():
            array = group[name]
            assert array.metadata.dimension_names == ("y", "x")
            assert array.chunks == (TILE, TILE)
            assert array.shards == (layer.block_size,) * 2
            assert same_bits(array[...], raster.cells)
            assert np.array(array.fill_value, raster.dtype).tobytes() == layer.fill.tobytes()

    def test_xarray_and_rioxarray(self, written):
        path, layers = written
        raw = xr.open_zarr(path, consolidated=False, chunks=None, mask_and_scale=False)
        masked = xr.open_zarr(path, consolidated=False, chunks=None)
        for name, (raster, layer) in layers.items():
            assert same_bits(raw[name].values, raster.cells)
            found = masked[name]
            if raster.nodata is None:
                assert same_bits(found.values, raster.cells)
            else:
                # xarray converts to float to compare, which cannot hold all 64-bit integers.
                expected = raster.cells.astype(found.dtype)
                expected[expected == found.dtype.type(raster.nodata)] = np.nan
                assert found.dtype.kind == "f"
                assert np.array_equal(found.values, expected, equal_nan=True)
                encoded = found.rio.encoded_nodata
                assert encoded == raster.nodata or (np.isnan(encoded) and np.isnan(raster.nodata))
            assert found.dims == ("y", "x")
            if not name.endswith("sparse"):
                continue  # once for each cell type: rioxarray is slow at these
            assert found.rio.crs == CRS.from_epsg(32611)
            assert tuple(found.rio.transform())[:6] == layer.grid.transform
            assert found.y.values.tolist() == layer.grid.y_centres().tolist()
            assert found.x.values.tolist() == layer.grid.x_centres().tolist()
            assert found.rio.bounds() == pytest.approx(layer.grid.bounds)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gdal_reads_the_same_or_says_that_it_cannot(tmp_path, dtype):
    """GDAL learnt the sharding codec late; an older one must refuse, never show other cells."""
    raster = pattern("sparse", dtype, (70, 130))
    write(tmp_path / "s", raster)
    try:
        data = rasterio.open(f'ZARR:"{tmp_path / "s"}":/elevation')
    except RasterioIOError as error:
        if "sharding_indexed" not in str(error):
            raise
        pytest.skip(f"GDAL {rasterio.__gdal_version__} does not know sharding: {error}")
    with data:
        assert same_bits(data.read(1), raster.cells)
        assert data.nodata == raster.nodata
        assert data.crs == CRS.from_epsg(32611)
        assert tuple(data.transform)[:6] == grid_of((1, 1)).transform


@given(
    rasters(),
    block_sizes(256),
    st.sampled_from([None, *coding.NAMES]),
    st.data(),
)
def test_any_raster_comes_back(folders, no_fsync_everywhere, raster, block, compress, data):
    with folders() as folder:
        layer = write(folder / "s", raster, block=block, compress=compress)
        rows, cols = raster.shape
        assert same_bits(layer.read_window(0, rows, 0, cols), raster.cells)
        window = data.draw(windows(raster.shape))
        part = raster.cells[window[0] : window[1], window[2] : window[3]]
        assert same_bits(layer.read_window(*window), part)
        halo = data.draw(st.integers(0, TILE))
        ring = np.pad(raster.cells, halo, constant_values=layer.fill)
        i, j = data.draw(st.sampled_from(list(layer.blocks.ids())))
        r0, r1, c0, c1 = layer.block_window(i, j)
        expected = ring[r0 : r1 + 2 * halo, c0 : c1 + 2 * halo]
        buffer = np.empty((block + 2 * halo, block + 2 * halo + 3), raster.dtype)
        found = layer.read_block(i, j, buffer, halo=halo)
        assert same_bits(found, expected)
        assert found.base is buffer
        assert same_bits(zarr.open_array(str(layer.path), mode="r")[...], raster.cells)


@pytest.fixture(scope="module")
def no_fsync_everywhere():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.mark.parametrize("block", [512, 1024])
def test_large_blocks(tmp_path, no_fsync, block):
    raster = Raster(np.dtype("<i2"), (block + 65, 2 * block - 63), -1, "hills", "tiles", seed=block)
    layer = write(tmp_path / "s", raster, block=block)
    assert same_bits(layer.read_window(0, raster.shape[0], 0, raster.shape[1]), raster.cells)
    assert same_bits(zarr.open_array(str(layer.path), mode="r")[...], raster.cells)
    for i, j in layer.blocks.ids():
        assert same_bits(layer.map_tiles(i, j), present_tiles(layer, raster.cells, i, j))
        _, index = parse_shard(layer.shard_path(i, j), block // TILE)
        ordered = [index[place][0] for place in z_order(block // TILE) if place in index]
        assert ordered == sorted(ordered)


def test_stored_size_is_at_most_five_percent_more_than_the_cells(tmp_path, no_fsync):
    raster = Raster(np.dtype("<f4"), (64 * 50 + 1, 64 * 50 + 1), None, "ramp")
    layer = write(tmp_path / "s", raster, block=1024)
    assert layer.info["stored_bytes"] <= 1.05 * raster.cells.nbytes


# -- arguments -----------------------------------------------------------------------------

DENSE = Raster(np.dtype("<i4"), (130, 200), -1, "ramp")
"""3 x 4 blocks of 64, all present; values 0 .. 10000."""
OTHER = Raster(np.dtype("<i4"), (130, 200), -1, "bits", seed=7)
SPARSE = Raster(np.dtype("<i4"), (130, 200), -1, "hills", "tiles", seed=3)


@pytest.fixture
def layer(tmp_path):
    return write(tmp_path / "s", DENSE, block=128)


@pytest.mark.parametrize(
    "window",
    [(0, 0, 0, 5), (5, 5, 0, 5), (-1, 5, 0, 5), (0, 131, 0, 5), (0, 5, 0, 201), (9, 3, 0, 5)],
)
def test_windows_outside_are_refused(layer, window):
    with pytest.raises(InputError, match="is empty or not inside the raster of"):
        layer.read_window(*window)


@pytest.mark.parametrize("block", [(-1, 0), (0, -1), (2, 0), (0, 2)])
def test_blocks_outside_are_refused(layer, block):
    for method in (layer.read_block, layer.map_tiles):
        with pytest.raises(InputError, match="is outside the 2 x 2 blocks"):
            method(*block)


@pytest.mark.parametrize(
    ("row", "col", "side"),
    [
        *((1, 0, 2), (0, 1, 2), (0, 0, 3), (0, 0, 4), (0, 0, -1)),
        *((2, 0, 1), (0, 2, 1), (-1, 0, 1), (0, -2, 2)),
    ],
)
def test_sub_blocks_that_are_not_aligned_are_refused(layer, row, col, side):
    with pytest.raises(InputError, match="is not aligned"):
        layer.map_tiles(0, 0, row, col, side)


def test_buffers_must_fit(layer):
    with pytest.raises(InputError, match="buffer"):
        layer.read_window(0, 5, 0, 5, np.empty((5, 6), np.int32))
    with pytest.raises(InputError, match="buffer"):
        layer.read_window(0, 5, 0, 5, np.empty((5, 5), np.int64))
    with pytest.raises(InputError, match="buffer"):
        layer.read_block(0, 0, np.empty((127, 128), np.int32))
    with pytest.raises(InputError, match="buffer"):
        layer.read_block(0, 0, np.empty((128, 128), np.float32))


def test_buffers_that_are_read_only_are_refused(layer):
    whole, tiles = np.zeros((128, 128), np.int32), np.zeros((4, 64, 64), np.int32)
    for array in (whole, tiles):
        array.flags.writeable = False
    with pytest.raises(InputError, match="buffer is read-only"):
        layer.read_window(0, 128, 0, 128, whole)
    with pytest.raises(InputError, match="buffer is read-only"):
        layer.read_block(0, 0, whole)
    with pytest.raises(InputError, match="buffer is read-only"):
        layer.read_tiles(0, 0, tiles)
    assert not whole.any()
    assert not tiles.any()


@pytest.mark.parametrize(
    "window", [(0, 0, 0, 0), (64, 64, 0, 10), (70, 70, 0, 10), (9, 12, 64, 64)]
)
def test_an_empty_window_takes_no_cells(layer, window):
    assert layer.read_ring(window, halo=0).size == 0
    whole = layer.read_window(0, 128, 0, 128)
    assert np.array_equal(layer.read_ring((64, 64, 64, 64), halo=2), whole[62:66, 62:66])


def test_a_block_is_written_as_it_is_or_not_at_all(tmp_path):
    with begin(tmp_path / "s", DENSE) as writer:
        for wrong in (
            DENSE.cells[:64, :63],
            DENSE.cells[:64, :64].astype("<i8"),
            DENSE.cells[:64, :64].astype("<f4"),
            DENSE.cells[:64, :64].astype(">i4"),
        ):
            with pytest.raises(InputError, match=r"block \(0, 0\) is 64 x 64 int32, not"):
                writer.write_block(0, 0, wrong)
        with pytest.raises(InputError, match="outside"):
            writer.write_block(3, 0, DENSE.cells[:2, :64])
    assert names(tmp_path) == []


def test_blocks_may_be_any_view(tmp_path):
    wide = np.zeros((260, 400), np.int32)
    wide[::2, ::2] = DENSE.cells
    with begin(tmp_path / "s", DENSE) as writer:
        fill(writer, wide[::2, ::2])
        writer.commit()
    assert same_bits(read(tmp_path / "s"), DENSE.cells)


@pytest.mark.parametrize(
    "name",
    ["", "1st", "a b", "a/b", "../a", ".a", "a.b", "x", "y", "spatial_ref", "é", "a" * 65, "-a"],
)
def test_layer_names(tmp_path, name):
    with pytest.raises(InputError, match="layer name"):
        begin(tmp_path / "s", DENSE, name)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 100}, "block size 100 is not a power of two"),
        (
            {"compress": "gzip"},
            "compression 'gzip' is not known; use blosc-lz4, blosc-zstd, zstd or None",
        ),
        ({"nodata": 1.5}, "nodata value 1.5 does not fit cells of type int32"),
        ({"nodata": 2**31}, "nodata value 2147483648 does not fit"),
        ({"nodata": float("nan")}, "nodata value nan does not fit"),
        ({"dtype": "float16"}, "float16 are not supported"),
    ],
)
def test_arguments_that_make_no_layer_leave_nothing(tmp_path, options, message):
    arguments = {"dtype": "int32"} | options
    with pytest.raises(InputError, match=message):
        create_layer(tmp_path / "s", "elevation", GridSpec(5, 5), **arguments)
    assert names(tmp_path) == []


@pytest.mark.parametrize("suffix", ["incomplete", "replaced"])
def test_names_kept_for_runs_are_refused(tmp_path, suffix):
    with pytest.raises(InputError, match=rf"\.{suffix}"):
        begin(tmp_path / f"dem.{suffix}", DENSE)
    assert names(tmp_path) == []


def test_missing_blocks_are_counted(tmp_path):
    with begin(tmp_path / "s", DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0), (2, 3)])
        with pytest.raises(StoreError, match="10 blocks were never written"):
            writer.commit()
    assert not (tmp_path / "s").exists()


# -- what others write ---------------------------------------------------------------------


@given(raster=rasters(dtypes(), nodata=True), block=block_sizes(256), data=st.data())
@settings(max_examples=examples(25))
def test_layers_that_zarr_python_modified(folders, no_fsync_everywhere, raster, block, data):
    """zarr-python rewrites whole shards in its own tile order, drops empty ones, adds new ones."""
    compress = data.draw(st.sampled_from([None, *coding.NAMES]))
    with folders() as folder:
        layer = write(folder / "s", raster, block=block, compress=compress)
        array = zarr.open_array(str(layer.path), mode="r+")
        expected = raster.cells.copy()
        for k in range(data.draw(st.integers(1, 3))):
            r0, r1, c0, c1 = data.draw(windows(raster.shape))
            if data.draw(st.booleans()):
                value = np.full((r1 - r0, c1 - c0), layer.fill, layer.dtype)
            else:
                value = Raster(raster.dtype, (r1 - r0, c1 - c0), terrain="bits", seed=k).cells
            array[r0:r1, c0:c1] = value
            expected[r0:r1, c0:c1] = value
        store = TileStore.open(folder / "s")
        if not same_bits(array[...], raster.cells):
            with pytest.raises(StoreError, match=r"verify .* --accept-changes elevation"):
                read_by_blocks(store.layer("elevation"))
        layer = accept_changes(store, "elevation")
        assert store.layer("elevation").is_sealed
        # zarr drops a tile that *equals* the fill, so -0.0 and NaN payloads may come back as fill.
        found = layer.read_window(0, raster.shape[0], 0, raster.shape[1])
        assert np.array_equal(found, expected, equal_nan=raster.dtype.kind == "f")
        assert same_bits(found, array[...])
        assert np.array_equal(read_by_blocks(layer), found, equal_nan=raster.dtype.kind == "f")


def read_by_blocks(layer):
    whole = np.empty(layer.grid.shape, layer.dtype)
    for i, j in layer.blocks.ids():
        r0, r1, c0, c1 = layer.block_window(i, j)
        whole[r0:r1, c0:c1] = layer.read_block(i, j)
    return whole


MADE = {
    None: [],
    "zstd": [ZstdCodec(level=1)],
    "blosc-lz4": [BloscCodec(cname="lz4hc", clevel=9, shuffle="noshuffle", blocksize=256)],
}


@pytest.mark.parametrize("compress", MADE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_that_zarr_python_made(tmp_path, dtype, compress):
    raster = Raster(dtype, (200, 150), 0, "bits", "tiles", seed=5)
    write(tmp_path / "s", raster)
    array = zarr.create_array(
        str(tmp_path / "s" / "other"),
        shape=raster.shape,
        dtype=dtype,
        chunks=(128, 128),
        serializer=ShardingCodec(chunk_shape=(TILE, TILE), codecs=[BytesCodec(), *MADE[compress]]),
        compressors=None,
        fill_value=0,
    )
    for r in reversed(range(0, 200, 50)):
        array[r : r + 50] = raster.cells[r : r + 50]
    layer = TileStore.open(tmp_path / "s").layer("other")
    assert (layer.block_size, layer.nodata, layer.compress) == (128, None, compress)
    assert same_bits(layer.read_window(0, 200, 0, 150), raster.cells)
    assert layer.describe()["valid_cells"] is None


def shard_bytes(tiles, places, side, junk=b""):
    """A shard with `junk` before each tile, tiles in the order given."""
    index = np.full((side * side, 2), MISSING, "<u8")
    body = b""
    for tile, (r, c) in zip(tiles, places, strict=True):
        body += junk
        index[r * side + c] = len(body), tile.nbytes
        body += tile.tobytes()
    raw = index.tobytes()
    return body + raw + struct.pack("<I", crc32c(raw))


@pytest.mark.parametrize("junk", [b"", b"\0" * 5, b"x" * TILE * TILE * 4])
@pytest.mark.parametrize("order", [1, -1, 3])
def test_tiles_in_any_order_with_gaps(tmp_path, junk, order):
    layer = without_checksums(write(tmp_path / "s", DENSE, block=128))
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    places = places[::order] if abs(order) == 1 else [places[k] for k in (2, 0, 3, 1)]
    whole = padded(layer, DENSE.cells, 0, 0)
    tiles = [whole[r * 64 : r * 64 + 64, c * 64 : c * 64 + 64] for r, c in places]
    layer.shard_path(0, 0).write_bytes(shard_bytes(tiles, places, 2, junk))
    assert same_bits(read(tmp_path / "s"), DENSE.cells)
    assert same_bits(zarr.open_array(str(layer.path), mode="r")[...], DENSE.cells)
    assert same_bits(layer.read_window(60, 70, 60, 70), DENSE.cells[60:70, 60:70])
    if order == 1 and not junk:
        assert same_bits(layer.map_tiles(0, 0), present_tiles(layer, DENSE.cells, 0, 0))
    else:
        with pytest.raises(StoreError, match="not in Z-order"):
            layer.map_tiles(0, 0)
    for k, (r, c) in enumerate(places):  # a single tile can always be mapped
        assert same_bits(layer.map_tiles(0, 0, r, c, 1)[0], tiles[k])


def test_two_places_may_share_one_tile(tmp_path):
    layer = without_checksums(write(tmp_path / "s", DENSE, block=128))
    tile = np.ascontiguousarray(DENSE.cells[:64, :64])
    raw = struct.pack("<8Q", 0, tile.nbytes, MISSING, MISSING, MISSING, MISSING, 0, tile.nbytes)
    shard = tile.tobytes() + raw + struct.pack("<I", crc32c(raw))
    layer.shard_path(0, 0).write_bytes(shard)
    block = layer.read_block(0, 0)
    assert same_bits(block, zarr.open_array(str(layer.path), mode="r")[:128, :128])
    assert same_bits(block[64:, 64:], tile)
    assert (block[64:, :64] == -1).all()


def test_missing_shards_are_fill(tmp_path):
    layer = without_checksums(write(tmp_path / "s", DENSE, block=64))
    layer.shard_path(1, 1).unlink()
    expected = DENSE.cells.copy()
    expected[64:128, 64:128] = -1
    assert same_bits(read(tmp_path / "s"), expected)
    assert layer.map_tiles(1, 1).shape == (0, 64, 64)


@pytest.mark.parametrize("compress", [None, "blosc-lz4"])
@pytest.mark.parametrize("raster", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_lost_shards_are_told_from_fill(tmp_path, raster, compress):
    layer = write(tmp_path / "s", raster, compress=compress)
    assert same_bits(read_by_blocks(layer), raster.cells)
    for lost in layer.path.glob("c/*/*"):
        i, j = int(lost.parent.name), int(lost.name)
        whole = lost.read_bytes()
        lost.unlink()
        named = f"c/{i}/{j}: missing from layer 'elevation'"
        for read_one in (layer.read_block, layer.check_block, *[layer.map_tiles] * (not compress)):
            with pytest.raises(StoreError, match=named):
                read_one(i, j)
        with pytest.raises(StoreError, match=named):
            read_by_blocks(layer)
        lost.write_bytes(whole)
    assert same_bits(read_by_blocks(layer), raster.cells)
    shutil.rmtree(layer.path / "c")
    with pytest.raises(StoreError, match=r"missing .*an incomplete copy"):
        read_by_blocks(layer)


def test_what_no_loss_is(tmp_path):
    """Copies, links, files of others and blocks written again."""
    layer = write(tmp_path / "s", SPARSE)
    assert len(list(layer.path.glob("c/*/*"))) < layer.blocks.count
    with begin(tmp_path / "s", SPARSE, "bits", compress="zstd") as writer:
        fill(writer, SPARSE.cells)
        for bits in (5, 1 << 20):
            writer.patch_block(0, 0, np.array([3]), np.array([4]), bits)
        patched = read_by_blocks(writer.commit())
    assert patched[3, 4] == SPARSE.cells[3, 4] | 5 | 1 << 20
    for copy in (shutil.copy2, os.link, os.symlink):
        shutil.copytree(tmp_path / "s", tmp_path / copy.__name__, copy_function=copy)
        again = TileStore.open(tmp_path / copy.__name__).layer("elevation")
        assert same_bits(read_by_blocks(again), SPARSE.cells)
        assert again.identity == layer.identity
    next(layer.path.glob("c/*/*")).with_name(".0.rsync").write_bytes(bytes(99))
    assert same_bits(read_by_blocks(layer), SPARSE.cells)


def test_a_stranger_in_the_way_of_shards(tmp_path):
    layer = write(tmp_path / "s", DENSE)
    shutil.rmtree(layer.path / "c" / "1")
    (layer.path / "c" / "1").write_bytes(b"")
    with pytest.raises(StoreError, match="c/1/0: cannot be read: Not a directory"):
        read_by_blocks(layer)


# -- checksums -----------------------------------------------------------------------------


WAYS = {
    "block": lambda layer: layer.read_block(0, 0),
    "tiles": lambda layer: layer.read_tiles(0, 0, np.empty((4, 64, 64), layer.dtype)),
    "window": lambda layer: layer.read_window(0, 128, 0, 128),
    "check": lambda layer: layer.check_block(0, 0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("compress", [None, *coding.NAMES])
def test_every_flipped_bit_of_a_shard_is_found(tmp_path, compress, way):
    """Whichever bit of the file differs: an error that names it, however it is read."""
    raster = Raster(np.dtype("<i2"), (128, 128), -1, "bits", seed=3)
    layer = write(tmp_path / "s", raster, block=128, compress=compress)
    path = layer.shard_path(0, 0)
    whole = path.read_bytes()
    rng = np.random.default_rng(len(whole))
    tail = range(len(whole) - 4 * 20 - 8, len(whole))
    for at in (*rng.integers(0, len(whole), 60).tolist(), *tail):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StoreError, match=re.escape(str(path))):
            WAYS[way](layer)
    path.write_bytes(whole)
    WAYS[way](layer)


def test_a_damaged_tile_is_named_and_the_others_are_read(tmp_path):
    layer = write(tmp_path / "s", DENSE, block=128)
    path = layer.shard_path(0, 1)
    whole = bytearray(path.read_bytes())
    whole[2 * 16384 + 5] ^= 4  # rank 2 in Z-order: tile row 1, tile column 0
    path.write_bytes(whole)
    named = r"tile \(1, 0\) of block \(0, 1\) of layer 'elevation' differs from its checksum"
    for action in (
        lambda: layer.read_block(0, 1),
        lambda: layer.map_tiles(0, 1),
        lambda: layer.read_window(70, 71, 130, 131),
        lambda: layer.read_block(1, 1, halo=1),
        lambda: layer.check_block(0, 1),
    ):
        with pytest.raises(StoreError, match=named):
            action()
    assert same_bits(layer.read_window(0, 64, 128, 200), DENSE.cells[:64, 128:])
    assert same_bits(layer.read_block(0, 0), DENSE.cells[:128, :128])


def test_blocks_of_another_version_are_found(tmp_path):
    """Whole shards, but not the ones that belong together: a copy that was interrupted."""
    layer = write(tmp_path / "s", DENSE)
    write(tmp_path / "t", OTHER)
    for i, j in ((0, 0), (1, 2)):
        place, other = layer.shard_path(i, j), tmp_path / f"t/elevation/c/{i}/{j}"
        mine = place.read_bytes()
        place.write_bytes(other.read_bytes())
        with pytest.raises(StoreError, match=f"c/{i}/{j}: is not the recorded block"):
            read_by_blocks(layer)
        place.write_bytes(mine)
    one, two = layer.shard_path(0, 0), layer.shard_path(0, 1)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.raises(StoreError, match="is not the recorded block"):
        layer.read_block(0, 1)
    shutil.copy(tmp_path / "t/elevation/digests", layer.path / "digests")
    with pytest.raises(StoreError, match=r"not the digests that .*zarr.json records"):
        TileStore.open(tmp_path / "s").layer("elevation").read_block(1, 1)
    os.truncate(layer.path / "digests", 3)
    with pytest.raises(StoreError, match="not the digests that"):
        TileStore.open(tmp_path / "s").layer("elevation").read_block(1, 1)
    (layer.path / "digests").unlink()
    with pytest.raises(StoreError, match="digests: cannot be read: No such file"):
        TileStore.open(tmp_path / "s").layer("elevation").read_block(1, 1)


def test_every_flipped_bit_of_metadata_is_found_or_means_nothing(tmp_path):
    layer = write(tmp_path / "s", DENSE, block=128)
    plain = json.dumps(TileStore.open(tmp_path / "s").describe())
    for path in (layer.path / "zarr.json", tmp_path / "s" / "zarr.json"):
        whole = path.read_bytes()
        found = 0
        for at in range(0, len(whole), 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 7]) + whole[at + 1 :])
            try:
                store = TileStore.open(tmp_path / "s")
                again = store.layer("elevation")
                assert json.dumps(store.describe()) == plain
                assert same_bits(read_by_blocks(again), DENSE.cells)
            except StoreError:
                found += 1
        assert found > 20
        path.write_bytes(whole)


@given(raster=rasters(dtypes(), nodata=True), data=st.data())
@settings(max_examples=examples(25))
def test_identity_is_of_content(folders, no_fsync_everywhere, raster, data):
    """Equal for equal cells, another one when a single cell or what cells mean differs."""
    compress = data.draw(st.sampled_from([None, *coding.NAMES]))
    with folders() as folder:
        layer = write(folder / "s", raster, compress=compress)
        assert write(folder / "t", raster, compress=compress).identity == layer.identity
        cells = raster.cells.copy()
        at = data.draw(st.integers(0, cells.size - 1))
        raw = cells.reshape(-1).view(np.uint8).reshape(cells.size, -1)
        raw[at, data.draw(st.integers(0, raw.shape[1] - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with begin(folder / "u", raster, compress=compress) as writer:
            fill(writer, cells)
            changed = writer.commit()
        assert changed.identity != layer.identity
        plain = without_checksums(layer)
        assert not plain.is_sealed
        named = plain.identity
        assert named == without_checksums(TileStore.open(folder / "t").layer("elevation")).identity
        assert named != without_checksums(changed).identity


def test_the_kernel_of_checksums_is_google_s(monkeypatch):
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for count in (1, 2, 3, 4, 5, 9):
            tiles = rng.integers(0, 256, (count, 64 * 64 * dtype.itemsize), np.uint8)
            tiles = tiles.view(dtype).reshape(count, 64, 64)
            slots = rng.permutation(count)[: rng.integers(0, count + 1)]
            expected = [crc32c(tiles[k].tobytes()) for k in slots]
            assert checksums.crc_of_tiles(tiles, slots).tolist() == expected
            with monkeypatch.context() as patch:
                patch.delitem(sys.modules, "numba", raising=False)
                assert checksums.crc_of_tiles(tiles, slots).tolist() == expected


def add_with_xarray(path):
    """An array that is not a layer, as users of xarray add one."""
    opened = xr.open_zarr(path)
    mine = opened.elevation.astype(np.float32).drop_attrs() * 0 + 1
    mine.encoding.clear()
    xr.Dataset({"mine": mine}, attrs=opened.attrs).drop_vars(["x", "y"]).to_zarr(path, mode="a")


def test_metadata_that_others_consolidated_are_dropped(tmp_path):
    """xarray leaves a copy of all metadata in the group, and would read the old layer with it."""
    path = tmp_path / "s"
    write(path, Raster(np.dtype("<i2"), (130, 200), seed=1))
    add_with_xarray(path)
    assert "consolidated_metadata" in json.loads((path / "zarr.json").read_text())
    high = Raster(np.dtype("<u2"), (130, 200), seed=2, terrain="bits")
    write(path, high, overwrite=True)
    write(path, OTHER, "later")
    opened = xr.open_zarr(path, mask_and_scale=False, chunks=None)
    assert same_bits(opened.elevation.values, high.cells)
    assert same_bits(opened.later.values, OTHER.cells)
    assert (opened.mine.values == 1).all()


def test_foreign_arrays_do_not_hide_the_layers(tmp_path):
    path = tmp_path / "s"
    write(path, DENSE)
    add_with_xarray(path)
    (path / "broken").mkdir()
    (path / "broken" / "zarr.json").write_text("{")
    told = TileStore.open(path).describe()
    assert list(told["layers"]) == ["elevation"]
    assert sorted(told["unreadable"]) == ["broken", "mine"]
    assert "not sharded" in told["unreadable"]["mine"]


@pytest.mark.parametrize("crs", ["", "EPSG:32612", "EPSG:4326"])
def test_conventions_are_declared_and_valid(tmp_path, crs):
    """zarr-cm is the conventions' own library."""
    wkt = CRS.from_string(crs).to_wkt(version="WKT2_2019") if crs else ""
    grid = GridSpec(130, 200, (30.0, 0.0, 400000.0, 0.0, -30.0, 4500000.0), wkt, crs or None)
    if crs == "EPSG:4326":
        grid = GridSpec(130, 200, (0.1, 0.0, 10.0, 0.0, -0.1, 45.0), wkt, crs)
    with create_layer(tmp_path / "s", "elevation", grid, DENSE.dtype, block_size=64) as writer:
        fill(writer, DENSE.cells)
        writer.commit()
    for node in ("", "elevation"):
        metadata = json.loads((tmp_path / "s" / node / "zarr.json").read_text())
        attributes = metadata["attributes"]
        zarr_cm.spatial.validate_node_metadata(metadata)
        assert attributes["spatial:bbox"] == list(grid.bounds)
        assert attributes["spatial:transform"] == list(grid.transform)
        declared = [entry["name"] for entry in attributes["zarr_conventions"]]
        assert declared == ["spatial", "proj"] if crs else ["spatial"]
        if crs:
            zarr_cm.proj.validate_node_metadata(metadata)
            assert attributes["proj:code"] == crs


# -- damage --------------------------------------------------------------------------------


def reseal(data, change):
    """The shard with a changed index and a matching checksum."""
    index = np.frombuffer(data[-68:-4], "<u8").reshape(4, 2).copy()
    change(index)
    raw = index.tobytes()
    return data[:-68] + raw + struct.pack("<I", crc32c(raw))


def set_pair(k, offset, length):
    def change(index):
        index[k] = offset, length

    return lambda data: reseal(data, change)


DAMAGE = {
    "empty file": lambda d: b"",
    "no room for an index": lambda d: d[-67:],
    "last byte gone": lambda d: d[:-1],
    "first byte gone": lambda d: d[1:],
    "first tile gone": lambda d: d[TILE * TILE * 4 :],
    "half gone": lambda d: d[: len(d) // 2],
    "checksum": lambda d: d[:-1] + bytes([d[-1] ^ 1]),
    "index": lambda d: d[:-30] + bytes([d[-30] ^ 1]) + d[-29:],
    "past the end": set_pair(3, 4 * 16384 - 1, 16384),
    "far past the end": set_pair(0, 2**63, 16384),
    "offset wraps": set_pair(0, 2**64 - 16384, 16384),
    "short tile": set_pair(0, 0, 16383),
    "long tile": set_pair(0, 0, 16385),
    "huge tile": set_pair(0, 0, 2**63),
}


RESEALED = [kind for kind in DAMAGE if "tile" in kind or "end" in kind or "offset" in kind]
RESEALED.remove("first tile gone")


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_shards_are_named(tmp_path, kind):
    layer = write(tmp_path / "s", DENSE, block=128)
    path = layer.shard_path(0, 0)
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    if kind in RESEALED:  # otherwise it is not even the block that was written
        layer = without_checksums(layer)
    for action in (
        lambda: layer.read_block(0, 0),
        lambda: layer.read_window(0, 5, 0, 5),
        lambda: layer.map_tiles(0, 0),
        lambda: layer.read_block(1, 1, halo=1),
    ):
        with pytest.raises(StoreError, match=re.escape(str(path))) as caught:
            action()
        assert re.search("truncated|corrupt|damaged", str(caught.value))
    assert same_bits(layer.read_block(1, 1), DENSE.cells[128:, 128:])


def test_a_folder_in_place_of_a_shard(tmp_path):
    layer = write(tmp_path / "s", DENSE, block=128)
    path = layer.shard_path(0, 0)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=re.escape(str(path))):
        layer.read_block(0, 0)


def blosc(size, **change):
    """A blosc frame of so many zeros, with other values in its header."""
    frame = bytearray(numcodecs.blosc.compress(np.zeros(size, np.uint8), b"lz4", 1))
    for at, value in change.items():
        struct.pack_into("<I", frame, int(at[1:]), value)
    return bytes(frame)


TILE_SIZE = TILE * TILE * DENSE.dtype.itemsize
JUNK = {  # what, the codec and the bytes of a tile, and what the message says
    "no zstd": ("zstd", b"no zstd frame at all", "not a zstd frame"),
    "short zstd": ("zstd", bytes(numcodecs.zstd.compress(b"short")), "holds 5 bytes"),
    "zstd bomb": ("zstd", numcodecs.zstd.compress(bytes(1 << 28)), "holds 268,435,456 bytes|takes"),
    "bomb of unknown size": (
        "zstd",  # repeats a byte a million times
        b"\x28\xb5\x2f\xfd\x00\xa0" + struct.pack("<I", 1 << 20 << 3 | 3)[:3] + b"a",
        "does not decompress",
    ),
    "cut zstd": ("zstd", numcodecs.zstd.compress(bytes(TILE_SIZE))[:-3], "does not decompress"),
    "nothing": ("blosc-lz4", b"", "not a blosc frame"),
    "no blosc": ("blosc-lz4", b"no blosc frame at all", "not a blosc frame"),
    "short blosc": ("blosc-lz4", blosc(TILE_SIZE - 1), f"holds {TILE_SIZE - 1:,} bytes"),
    "blosc bomb": ("blosc-zstd", blosc(TILE_SIZE, _4=2**31 - 1), "holds 2,147,483,647 bytes"),
    "no blocks": ("blosc-lz4", blosc(TILE_SIZE, _8=0), "not a blosc frame of format 2"),
    "huge blocks": ("blosc-lz4", blosc(TILE_SIZE, _8=2**31), "not a blosc frame of format 2"),
    "cut blosc": ("blosc-lz4", blosc(TILE_SIZE)[:-1], "truncated or padded"),
    "wrong start": ("blosc-lz4", blosc(TILE_SIZE, _16=2**30), "does not decompress"),
    "long": ("blosc-lz4", bytes(2 * TILE_SIZE), f"takes {2 * TILE_SIZE} bytes"),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("what", JUNK)
def test_compressed_tiles_that_do_not_decompress(tmp_path, monkeypatch, what, at_once):
    if not at_once:
        monkeypatch.setattr(decoding, "together", lambda name: None)
    compress, junk, message = JUNK[what]
    layer = without_checksums(write(tmp_path / "s", DENSE, block=64, compress=compress))
    path = layer.shard_path(0, 0)
    raw = struct.pack("<2Q", 0, len(junk))
    path.write_bytes(junk + raw + struct.pack("<I", crc32c(raw)))
    with pytest.raises(StoreError, match=f"{re.escape(str(path))}: a tile .*({message})"):
        layer.read_block(0, 0)
    with pytest.raises(StoreError, match=re.escape(str(path))):
        layer.read_tiles(0, 0, np.empty((1, TILE, TILE), layer.dtype))


def edited(path, change):
    text = json.loads((path / "zarr.json").read_text())
    change(text)
    (path / "zarr.json").write_text(json.dumps(text))


def put(*keys, value):
    def change(text):
        for key in keys[:-1]:
            text = text[key]
        text[keys[-1]] = value

    return change


INNER = ("codecs", 0, "configuration")


def put_blosc(**how):
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    usual = {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}
    return put(*INNER, "codecs", value=[little, {"name": "blosc", "configuration": usual | how}])


BAD_LAYERS = {
    "blosc of another kind": put_blosc(cname="snappy"),
    "blosc of an unknown kind": put_blosc(cname="magic"),
    "blosc level": put_blosc(clevel=10),
    "blosc shuffle": put_blosc(shuffle="twice"),
    "blosc block size": put_blosc(blocksize=-1),
    "blosc of other cells": put_blosc(typesize=0),
    "blosc where there is none": put_blosc(),
    "other shape": put("shape", value=[130, 201]),
    "three dimensions": put("shape", value=[130, 200, 1]),
    "blocks not square": put("chunk_grid", "configuration", "chunk_shape", value=[128, 64]),
    "block size odd": put("chunk_grid", "configuration", "chunk_shape", value=[192, 192]),
    "tiles of 32": put(*INNER, "chunk_shape", value=[32, 32]),
    "index first": put(*INNER, "index_location", value="start"),
    "index without checksum": put(
        *INNER, "index_codecs", value=[{"name": "bytes", "configuration": {"endian": "little"}}]
    ),
    "big-endian cells": put(*INNER, "codecs", 0, "configuration", "endian", value="big"),
    "big-endian index": put(*INNER, "index_codecs", 0, "configuration", "endian", value="big"),
    "gzip tiles": put(
        *INNER,
        "codecs",
        value=[
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "gzip", "configuration": {"level": 1}},
        ],
    ),
    "not sharded": put("codecs", value=[{"name": "bytes", "configuration": {"endian": "little"}}]),
    "dots in file names": put("chunk_key_encoding", "configuration", "separator", value="."),
    "another type": put("data_type", value="float16"),
    "unknown type": put("data_type", value="heights"),
    "another fill": put("fill_value", value=0),
    "another nodata": put("attributes", "terrain_gpu", "nodata", value=7),
    "nodata of words": put("attributes", "terrain_gpu", "nodata", value="much"),
    "nodata out of range": put("attributes", "terrain_gpu", "nodata", value=2**40),
    "own attributes gone": put("attributes", "terrain_gpu", value=None),
    "unknown codec": put("codecs", value=[{"name": "magic"}]),
    "no codecs": put("codecs", value=[]),
    "a group": put("node_type", value="group"),
    "version 2": put("zarr_format", value=2),
    "negative shape": put("shape", value=[-130, 200]),
    "shape of words": put("shape", value="many"),
    "codecs null": put("codecs", value=None),
    "attributes list": put("attributes", value=[1]),
    "checksum": put("attributes", "terrain_gpu", "valid_cells", value=7),
    "unit": put("attributes", "units", value="feet"),
    "digest of words": put("attributes", "terrain_gpu", "digest", value="many"),
}


@pytest.mark.parametrize("kind", BAD_LAYERS)
def test_layers_that_are_not_ours_are_refused(tmp_path, kind):
    layer = write(tmp_path / "s", DENSE, block=128)
    edited(layer.path, BAD_LAYERS[kind])
    with pytest.raises(StoreError, match=re.escape(f"{layer.path}/zarr.json")):
        TileStore.open(tmp_path / "s").layer("elevation")


BAD_STORES = {
    "another program's": put("attributes", value={}),
    "own attributes of words": put("attributes", "terrain_gpu", value="mine"),
    "later format": put("attributes", "terrain_gpu", "format", value=3),
    "checksum": put("attributes", "terrain_gpu", "crs_code", value="EPSG:4326"),
    "no format": put("attributes", "terrain_gpu", value={}),
    "shape of one": put("attributes", "terrain_gpu", "shape", value=[5]),
    "shape of words": put("attributes", "terrain_gpu", "shape", value=["a", "b"]),
    "shape of halves": put("attributes", "terrain_gpu", "shape", value=[1.5, 2]),
    "shape null": put("attributes", "terrain_gpu", "shape", value=None),
    "shape zero": put("attributes", "terrain_gpu", "shape", value=[0, 5]),
    "shape true": put("attributes", "terrain_gpu", "shape", value=[True, 5]),
    "huge": put("attributes", "terrain_gpu", "shape", value=[2**31, 5]),
    "transform short": put("attributes", "terrain_gpu", "transform", value=[1, 2]),
    "transform rotated": put("attributes", "terrain_gpu", "transform", value=[1, 1, 0, 0, -1, 0]),
    "transform null": put("attributes", "terrain_gpu", "transform", value=[None] * 6),
    "transform too large": put("attributes", "terrain_gpu", "transform", value=[10**400] * 6),
    "no crs": lambda text: text["attributes"]["terrain_gpu"].pop("crs_wkt"),
    "array": put("node_type", value="array"),
}


@pytest.mark.parametrize("kind", BAD_STORES)
def test_stores_that_are_not_ours_are_refused(tmp_path, kind):
    write(tmp_path / "s", DENSE)
    edited(tmp_path / "s", BAD_STORES[kind])
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / "s"))):
        TileStore.open(tmp_path / "s")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"node_type": "group"}', "\xff\x00"]
)
@pytest.mark.parametrize("where", ["", "elevation"])
def test_metadata_that_is_no_metadata(tmp_path, text, where):
    write(tmp_path / "s", DENSE)
    (tmp_path / "s" / where / "zarr.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=r"zarr\.json|not a store of this program"):
        TileStore.open(tmp_path / "s").layer("elevation")


def test_what_is_no_store(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere: no such store; convert-dataset makes one"):
        TileStore.open(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder: not a store"):
        TileStore.open(tmp_path / "folder")
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StoreError, match="file: a file, not a store"):
        TileStore.open(tmp_path / "file")
    write(tmp_path / "s", DENSE)
    with pytest.raises(StoreError, match=r"no layer 'slope'; it has: elevation") as caught:
        TileStore.open(tmp_path / "s").layer("slope")
    assert isinstance(caught.value, OSError)
    (tmp_path / "land.tif").write_text("hello")
    with pytest.raises(StoreError, match="to make a layer of this file: convert-dataset"):
        TileStore.open(tmp_path / "s").layer(str(tmp_path / "land.tif"))
    assert isinstance(caught.value, TerrainError)


def test_layers_are_found_by_name_only(tmp_path):
    write(tmp_path / "s", DENSE, "b")
    write(tmp_path / "s", DENSE, "a")
    (tmp_path / "s" / "notes").mkdir()
    (tmp_path / "s" / "a.txt").write_text("a note")
    store = TileStore.open(tmp_path / "s")
    assert store.layers == ["a", "b"]
    told = json.loads(json.dumps(store.describe(), allow_nan=False))
    assert sorted(told["layers"]) == ["a", "b"]
    assert told["cells"] == 130 * 200
    for wrong in ("x", "spatial_ref", "..", "", "notes", "c"):
        with pytest.raises(StoreError, match="no layer"):
            store.layer(wrong)


# -- runs ----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path, no_fsync):
    return tmp_path / "s"


@pytest.fixture
def old(path):
    """A store with a finished layer."""
    write(path, DENSE)
    return path


def test_nothing_is_visible_before_the_commit(path):
    with begin(path, DENSE) as writer:
        for i, j in writer.blocks.ids():
            fill(writer, DENSE.cells, [(i, j)])
            assert not path.exists()
            r0, r1, c0, c1 = writer.block_window(i, j)
            assert same_bits(writer.read_block(i, j), DENSE.cells[r0:r1, c0:c1])
        assert not path.exists()
        committed = writer.commit({"sources": ["a.tif"]})
        assert same_bits(read(path), DENSE.cells)
    assert committed.path == path / "elevation"
    assert committed.info["sources"] == ["a.tif"]
    assert committed.info["settings"] == {}
    assert names(path.parent) == ["s"]
    assert names(path) == ["elevation", "spatial_ref", "x", "y", "zarr.json"]


def test_a_second_layer_is_not_visible_before_the_commit(old):
    with begin(old, OTHER, "friction") as writer:
        fill(writer, OTHER.cells)
        assert TileStore.open(old).layers == ["elevation"]
        writer.commit()
    assert TileStore.open(old).layers == ["elevation", "friction"]
    assert same_bits(read(old, "friction"), OTHER.cells)
    assert same_bits(read(old), DENSE.cells)
    assert names(old) == ["elevation", "friction", "spatial_ref", "x", "y", "zarr.json"]


def test_no_temporary_files_remain(path):
    write(path, SPARSE)
    absent = sum(
        (SPARSE.cells[r : r + 64, c : c + 64] == -1).all()
        for r in range(0, 130, 64)
        for c in range(0, 200, 64)
    )
    assert 0 < absent < 12
    found = [f for f in files(path) if not f.endswith("zarr.json")]
    assert len(found) == 12 - absent + 3
    assert all(re.fullmatch(r"elevation/(c/\d/\d|digests)|[xy]/c/0", f) for f in found)


def test_files_have_ordinary_permissions(path):
    mask = os.umask(0)
    os.umask(mask)
    layer = write(path, DENSE)
    assert layer.shard_path(0, 0).stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_a_killed_run_left_is_no_part_of_a_shard(path):
    usual = write(path, DENSE).shard_path(0, 0).stat()
    with begin(path, DENSE, "other") as writer:
        left = writer._target.temporary / "0-0"
        left.write_bytes(bytes(usual.st_size + 9))
        left.chmod(0o400)
        fill(writer, DENSE.cells)
        writer.commit()
    found = TileStore.open(path).layer("other").shard_path(0, 0).stat()
    assert (found.st_size, found.st_mode) == (usual.st_size, usual.st_mode)


def test_leaving_without_a_block_leaves_nothing(path):
    with begin(path, DENSE):
        assert names(path.parent) == ["s.incomplete"]
    assert names(path.parent) == []
    write(path, DENSE)
    before = files(path)
    with begin(path, OTHER, "friction"):
        pass
    assert files(path) == before
    assert names(path) == ["elevation", "spatial_ref", "x", "y", "zarr.json"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("compress", [None, "zstd"])
def test_resume_goes_on_where_the_run_stopped(path, existing, compress):
    if existing:
        write(path, OTHER, "friction")
    first = [(2, 3), (0, 1), (1, 1)]
    with contextlib.suppress(KeyboardInterrupt), begin(path, SPARSE, compress=compress) as writer:
        assert not writer.done.any()
        fill(writer, SPARSE.cells, first)
        raise KeyboardInterrupt
    assert unfinished_block_size(path, "elevation") == 64
    assert unfinished_block_size(path, "slope") is None
    with begin(path, SPARSE, compress=compress, resume=True) as writer:
        assert sorted(zip(*map(list, np.nonzero(writer.done)), strict=True)) == sorted(first)
        assert not writer.finished
        kept = {b: stamp(writer.shard_path(*b)) for b in first}
        fill(writer, SPARSE.cells, [b for b in writer.blocks.ids() if not writer.done[b]])
        assert {b: stamp(writer.shard_path(*b)) for b in first} == kept
        layer = writer.commit()
    fresh = write(path.parent / "fresh", SPARSE, compress=compress)
    assert layer.info == fresh.info
    assert same_bits(read(path), SPARSE.cells)
    assert names(path.parent) == ["fresh", "s"]
    assert ".incomplete" not in names(path)
    assert unfinished_block_size(path, "elevation") is None


def stamp(path):
    """What changes when a file is written again."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


@pytest.mark.parametrize(
    "tail",
    ["[0, 3, 16", "[", "\0\0\0\0", '[0, 3, 16404, 4096, 0, "N', "[0, 3, 16404]\n", "7\n", "{}\n"],
)
def test_a_half_written_last_line_is_tolerated(path, tail):
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0), (0, 1)])
    manifest = path.parent / "s.incomplete/.incomplete/elevation.jsonl"
    with open(manifest, "a", encoding="utf-8") as file:
        file.write(tail)
    with begin(path, DENSE, resume=True) as writer:
        assert int(writer.done.sum()) == 2
        fill(writer, DENSE.cells, [b for b in writer.blocks.ids() if not writer.done[b]][:4])
    with begin(path, DENSE, resume=True) as writer:
        assert int(writer.done.sum()) == 6
        fill(writer, DENSE.cells, [b for b in writer.blocks.ids() if not writer.done[b]])
        writer.commit()
    assert same_bits(read(path), DENSE.cells)


@pytest.mark.parametrize("text", ["", "\n", "{", "[]\n", '"s"\n'])
def test_a_run_whose_first_line_is_lost_starts_again(path, text):
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    (path.parent / "s.incomplete/.incomplete/elevation.jsonl").write_text(text)
    with begin(path, DENSE, resume=True) as writer:
        assert not writer.done.any()
        fill(writer, DENSE.cells)
        writer.commit()
    assert same_bits(read(path), DENSE.cells)


@pytest.mark.parametrize("damage", [Path.unlink, lambda p: os.truncate(p, 100)])
def test_recorded_but_missing_or_truncated_shards_are_done_again(path, damage):
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells)
        damage(writer.shard_path(1, 2))
    with begin(path, DENSE, resume=True) as writer:
        assert np.argwhere(~writer.done).tolist() == [[1, 2]]
        with pytest.raises(StoreError, match="1 block was never written"):
            writer.commit()
    with begin(path, DENSE, resume=True) as writer:
        fill(writer, DENSE.cells, [(1, 2)])
        writer.commit()
    assert same_bits(read(path), DENSE.cells)


def test_a_block_may_be_written_again(path):
    """Also from full to empty and back: the last time counts, for cells and statistics."""
    empty = np.full((64, 64), -1, np.int32)
    with begin(path, DENSE) as writer:
        fill(writer, OTHER.cells)
        writer.write_block(0, 0, empty)
        writer.write_block(1, 1, empty)
        assert not writer.shard_path(0, 0).exists()
        assert (writer.read_block(1, 1) == -1).all()
    with begin(path, DENSE, resume=True) as writer:
        assert writer.done.all()
        fill(writer, DENSE.cells)
        layer = writer.commit()
    fresh = write(path.parent / "fresh", DENSE)
    assert layer.info == fresh.info
    assert same_bits(read(path), DENSE.cells)


def test_an_unrecorded_shard_of_a_block_recorded_as_empty_is_done_again(path):
    """A kill between rename and record, when a block is written a second time."""
    with begin(path, DENSE) as writer:
        writer.write_block(0, 0, np.full((64, 64), -1, np.int32))
        manifest = path.parent / "s.incomplete/.incomplete/elevation.jsonl"
        before = manifest.read_bytes()
        fill(writer, DENSE.cells, [(0, 0), (0, 1)])
        manifest.write_bytes(before)
        writer.write_block(0, 2, DENSE.cells[:64, 128:192])
    with begin(path, DENSE, resume=True) as writer:
        assert np.argwhere(writer.done).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"nodata": -2}, "nodata"),
        ({"nodata": None}, "nodata"),
        ({"block_size": 128}, "block_size"),
        ({"compress": "zstd"}, "compress"),
        ({"dtype": "int64"}, "dtype"),
        ({"settings": {"bounds": [0, 0, 1, 2]}}, "bounds"),
        ({"settings": {}}, "bounds"),
        ({"settings": {"bounds": [0, 0, 1, 1], "round": True}}, "round"),
        ({"settings": {"bounds": [0, 0, 1, 1], "dtype": "int64"}}, "dtype"),
        ({"grid": grid_of((131, 200))}, "shape"),
        ({"grid": grid_of((130, 200), LATLON)}, "crs"),
        ({"grid": GridSpec(130, 200, crs_wkt=UTM)}, "transform"),
    ],
)
def test_resume_with_other_settings_is_refused(path, change, word):
    arguments = {
        "grid": grid_of(DENSE.shape),
        "dtype": "int32",
        "nodata": -1,
        "block_size": 64,
        "settings": {"bounds": [0, 0, 1, 1]},
    }
    with create_layer(path, "elevation", **arguments) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    with pytest.raises(StoreError, match=rf"cannot resume: {word} was .* and is now .*--overwrite"):
        create_layer(path, "elevation", **(arguments | change), resume=True)
    with create_layer(path, "elevation", **arguments, resume=True) as writer:
        assert writer.done[0, 0]


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ([["a.tif", 5, 7]], "a.tif differs"),
        ([["b.tif", 5, 6]], "b.tif differs"),
        ([["a.tif", 5, 6], ["b.tif", 1, 1]], "b.tif differs"),
        ([], "the list of inputs differs"),
        (None, "the list of inputs differs"),
    ],
)
def test_resume_after_the_inputs_changed_is_refused(path, inputs, named):
    with begin(path, DENSE, settings={"inputs": [["a.tif", 5, 6]]}) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    settings = {} if inputs is None else {"inputs": inputs}
    with pytest.raises(StoreError, match=rf"cannot resume: {named} .*--overwrite starts again"):
        begin(path, DENSE, settings=settings, resume=True)


def test_settings_cannot_hide_a_difference_of_the_layer(path):
    options = {"settings": {"nodata": "as found"}}
    with begin(path, DENSE, **options) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    other = Raster(DENSE.dtype, DENSE.shape, -7, "ramp")
    with pytest.raises(StoreError, match="cannot resume: nodata was -1 and is now -7"):
        begin(path, other, **options, resume=True)


def test_an_unfinished_run_is_not_thrown_away_unasked(path):
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    with pytest.raises(StoreError, match=r"unfinished run .*--resume continues it, --overwrite"):
        begin(path, DENSE)
    with begin(path, OTHER, overwrite=True) as writer:
        assert not writer.done.any()
        fill(writer, OTHER.cells)
        writer.commit()
    assert same_bits(read(path), OTHER.cells)
    assert names(path.parent) == ["s"]


def test_the_unfinished_run_of_another_layer_is_not_thrown_away_unasked(path):
    """Both would be the first layer of one new store, built in one folder beside it."""
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
        with pytest.raises(StoreError, match=r"run is writing 'elevation'; wait until it ends"):
            begin(path, OTHER, "friction")
        with pytest.raises(StoreError, match=r"another run is writing 'elevation'"):
            begin(path, OTHER, "friction", overwrite=True)
    for overwrite in (False, True):
        with pytest.raises(StoreError, match=r"unfinished run of layer 'elevation'.*--resume"):
            begin(path, OTHER, "friction", overwrite=overwrite)
    with begin(path, DENSE, resume=True) as writer:
        assert writer.done[0, 0]


def test_resuming_a_finished_run_is_nothing_to_do(old):
    before = {f: stamp(old / f) for f in files(old)}
    with begin(old, DENSE, resume=True) as writer:
        assert writer.finished
        assert writer.done.all()
        layer = writer.commit()
    assert same_bits(layer.read_window(0, 130, 0, 200), DENSE.cells)
    assert {f: stamp(old / f) for f in files(old)} == before
    assert names(old.parent) == ["s"]


def test_a_run_killed_after_its_last_rename_is_finished(path):
    """The layer is in place, the manifest still there: not one block is done again."""
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells)
        manifest = (path.parent / "s.incomplete/.incomplete/elevation.jsonl").read_bytes()
        writer.commit()
    (path / ".incomplete").mkdir()
    (path / ".incomplete/elevation.jsonl").write_bytes(manifest)
    with begin(path, DENSE, resume=True) as writer:
        assert writer.finished
        writer.commit()
    assert ".incomplete" not in names(path)
    assert same_bits(read(path), DENSE.cells)


@pytest.mark.parametrize("at", [0, 40, -12])
def test_an_unfinished_run_whose_record_is_damaged_is_never_published(old, at):
    with begin(old, DENSE, overwrite=True) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    manifest = old / ".incomplete/elevation.jsonl"
    header, _, rest = manifest.read_bytes().partition(b"\n")
    damaged = bytearray(header)
    damaged[at] ^= 4
    manifest.write_bytes(damaged + b"\n" + rest)
    with begin(old, DENSE, resume=True) as writer:
        assert writer.finished
        writer.commit()
    assert same_bits(read(old), DENSE.cells)
    assert ".incomplete" not in names(old)


@pytest.mark.parametrize(
    "change",
    [{"nodata": -2}, {"compress": "zstd"}, {"dtype": "int64"}, {"settings": {"round": True}}],
)
def test_resuming_a_finished_run_with_other_settings_is_refused(old, change):
    arguments = {"dtype": "int32", "nodata": -1, "block_size": 64} | change
    with pytest.raises(StoreError, match=r"layer 'elevation' exists; --overwrite"):
        create_layer(old, "elevation", grid_of(DENSE.shape), **arguments, resume=True)
    assert same_bits(read(old), DENSE.cells)


def test_an_existing_layer_is_kept_unless_asked(old):
    with pytest.raises(StoreError, match=r"layer 'elevation' exists; --overwrite replaces it"):
        begin(old, OTHER)
    assert same_bits(read(old), DENSE.cells)
    assert names(old.parent) == ["s"]


def test_overwriting_replaces_at_the_end(old):
    """Another cell type, block size and compression; the old layer stays readable until then."""
    other = Raster(np.dtype("<f8"), DENSE.shape, float("nan"), "hills", "lakes")
    with begin(old, other, overwrite=True, block=128, compress="zstd") as writer:
        for i, j in writer.blocks.ids():
            fill(writer, other.cells, [(i, j)])
            assert same_bits(read(old), DENSE.cells)
        writer.commit()
        assert same_bits(read(old), other.cells)
    assert names(old.parent) == ["s"]
    assert ".incomplete" not in names(old)


def test_abandoned_overwriting_keeps_the_old(old):
    before = files(old)
    with contextlib.suppress(ZeroDivisionError), begin(old, OTHER, overwrite=True) as writer:
        fill(writer, OTHER.cells)
        raise ZeroDivisionError
    assert same_bits(read(old), DENSE.cells)
    with begin(old, OTHER, overwrite=True, resume=True) as writer:
        assert writer.done.all()
        writer.commit()
    assert same_bits(read(old), OTHER.cells)
    assert files(old) == before


SMALL = Raster(np.dtype("<i4"), (60, 70), -1, "bits", seed=9)
"""Another grid than DENSE."""


def test_overwriting_with_another_grid_replaces_the_store(old):
    with begin(old, SMALL, overwrite=True) as writer:
        fill(writer, SMALL.cells)
        assert same_bits(read(old), DENSE.cells)
        writer.commit()
    assert same_bits(read(old), SMALL.cells)
    assert TileStore.open(old).grid == grid_of(SMALL.shape)
    assert names(old.parent) == ["s"]


@pytest.mark.parametrize(
    "grid", [grid_of((60, 70)), GridSpec(130, 200), grid_of((130, 200), LATLON)]
)
def test_another_grid_never_enters_a_store(old, grid):
    raster = Raster(np.dtype("<i4"), grid.shape, -1)
    refusal = r"has a different grid .* than b.tif .*; choose another store"
    with pytest.raises(StoreError, match=refusal + " or --overwrite"):
        begin(old, raster, grid=grid, origin="b.tif")
    with pytest.raises(StoreError, match=refusal) as caught:
        begin(old, raster, "b", grid=grid, origin="b.tif")
    assert "--overwrite" not in str(caught.value)
    with pytest.raises(StoreError, match=refusal + r" \(--overwrite would lose 'elevation'\)"):
        begin(old, raster, "b", grid=grid, origin="b.tif", overwrite=True)
    write(old, OTHER, "b")
    with pytest.raises(StoreError, match=r"has a different grid .*--overwrite would lose 'b'"):
        begin(old, raster, grid=grid, overwrite=True)
    assert same_bits(read(old), DENSE.cells)
    assert same_bits(read(old, "b"), OTHER.cells)


def test_overwriting_never_loses_files_of_the_user(old):
    (old / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"--overwrite would lose 'notes.txt'"):
        begin(old, SMALL, overwrite=True)
    write(old, OTHER, overwrite=True)
    assert (old / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["elevation", "notes"])
def test_a_folder_of_the_user_in_place_of_a_layer(old, name):
    (old / "notes").mkdir()
    (old / "notes/letter.txt").write_text("mine")
    if name == "notes":
        with pytest.raises(StoreError, match=r"notes: exists and is not a layer"):
            begin(old, OTHER, "notes", overwrite=True)
    else:
        write(old, OTHER, overwrite=True)
    assert (old / "notes/letter.txt").read_text() == "mine"


def test_a_raster_without_crs_takes_the_stores(old):
    plain = GridSpec(130, 200, grid_of((1, 1)).transform)
    layer = write(old, OTHER, "b", grid=plain)
    assert layer.grid == grid_of((130, 200))


# -- rivals --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize("existing", [False, True])
def test_a_second_run_at_the_same_time_is_refused(path, options, existing):
    if existing:
        write(path, OTHER, "friction")
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
        with pytest.raises(StoreError, match="another run is writing 'elevation'"):
            begin(path, DENSE, **options)
        fill(writer, DENSE.cells)
        writer.commit()
    assert same_bits(read(path), DENSE.cells)


def test_two_layers_of_one_store_at_the_same_time(old):
    with begin(old, OTHER, "a") as a, begin(old, SPARSE, "b") as b:
        fill(a, OTHER.cells)
        fill(b, SPARSE.cells)
        a.commit()
        b.commit()
    assert same_bits(read(old, "a"), OTHER.cells)
    assert same_bits(read(old, "b"), SPARSE.cells)
    assert ".incomplete" not in names(old)


@pytest.mark.parametrize("round_", range(6))
def test_of_runs_that_start_together_one_wins(path, round_):
    """Odd rounds into an existing store, even ones into a new one."""
    if round_ % 2:
        write(path, OTHER, "friction")
    count = 5
    together = threading.Barrier(count)

    def contend(_):
        together.wait()
        try:
            return begin(path, DENSE, resume=round_ > 3)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(contend, range(count)))
    losers = [r for r in results if isinstance(r, StoreError)]
    assert len(losers) == count - 1
    assert all("another run is writing 'elevation'" in str(e) for e in losers)
    with next(r for r in results if not isinstance(r, StoreError)) as winner:
        fill(winner, DENSE.cells)
        winner.commit()
    assert same_bits(read(path), DENSE.cells)


def test_threads_write_different_blocks(path):
    raster = Raster(np.dtype("<i2"), (500, 700), -1, "hills", "lakes", seed=4)
    with begin(path, raster) as writer, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda b: fill(writer, raster.cells, [b]), writer.blocks.ids()))
        layer = writer.commit()
    assert same_bits(read(path), raster.cells)
    assert layer.info == write(path.parent / "one", raster).info


def test_forked_processes_write_different_blocks(path):
    raster = Raster(np.dtype("<i2"), (500, 700), -1, "hills", "lakes", seed=4)
    with begin(path, raster) as writer:
        blocks = list(writer.blocks.ids())
        children = [fork(lambda k=k: fill(writer, raster.cells, blocks[k::3])) for k in range(3)]
        assert [wait(child) for child in children] == [0, 0, 0]
        with pytest.raises(StoreError, match="another run"):
            begin(path, raster)
        layer = writer.commit()
    assert same_bits(read(path), raster.cells)
    assert layer.info == write(path.parent / "one", raster).info


def test_a_layer_replaced_since_it_was_opened(path):
    """Its error gives no advice about damaged files, whatever is read first."""
    for gone in (False, True):
        write(path, DENSE, overwrite=True)
        old = [TileStore.open(path).layer("elevation") for _ in range(4)]
        old[0].read_block(0, 0)  # which reads the digests
        if gone:
            shutil.rmtree(path / "elevation")
        else:
            write(path, OTHER, overwrite=True)
        for layer, read in zip(
            [old[0], *old],
            (
                lambda layer: layer.read_block(0, 0),
                lambda layer: layer.read_window(0, 99, 0, 99),
                lambda layer: layer.map_tiles(0, 0),
                lambda layer: layer.check_block(0, 0),
                lambda layer: layer.read_block(1, 1, halo=1),
            ),
            strict=True,
        ):
            with pytest.raises(
                StoreError, match=r"elevation: replaced since it was opened; open it"
            ):
                read(layer)


def test_readers_beside_a_writer(path, no_fsync):
    """Every read gives all of one version, or says that there is another."""
    write(path, DENSE)

    def replace_for_ever():
        for raster in itertools.cycle((OTHER, DENSE)):
            write(path, raster, overwrite=True)

    child = fork(replace_for_ever)
    seen, wanted, reads = set(), {DENSE.cells.tobytes(), OTHER.cells.tobytes()}, 0
    try:
        while seen != wanted or reads < 100:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            try:
                seen.add(read(path).tobytes())
                reads += 1
            except StoreError as error:
                if "replaced since it was opened" not in str(error):
                    raise
    finally:
        os.kill(child, signal.SIGKILL)
        wait(child)


def test_a_killed_run_frees_the_store_for_the_next(path):
    """The lock is the kernel's: it ends with the process, and not before."""
    ready, told = os.pipe()

    def run():
        writer = begin(path, DENSE)
        fill(writer, DENSE.cells, [(0, 0), (0, 1)])
        os.write(told, b"!")
        signal.pause()

    child = fork(run)
    os.read(ready, 1)
    with pytest.raises(StoreError, match="another run"):
        begin(path, DENSE, resume=True)
    os.kill(child, 9)
    assert wait(child) == -9
    with begin(path, DENSE, resume=True) as writer:
        assert int(writer.done.sum()) == 2
        fill(writer, DENSE.cells)
        writer.commit()
    assert same_bits(read(path), DENSE.cells)
    os.close(ready)
    os.close(told)


def test_threads_read_through_one_layer(path):
    raster = Raster(np.dtype("<f4"), (300, 300), -1.0, "hills", "tiles", seed=2)
    for compress in (None, "zstd"):
        layer = write(path, raster, compress=compress, block=128, overwrite=True)

        def look(k, layer=layer):
            rng = np.random.default_rng(k)
            for _ in range(30):
                r, c = rng.integers(0, 280, 2)
                found = layer.read_window(r, r + 20, c, c + 20)
                assert same_bits(found, raster.cells[r : r + 20, c : c + 20])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(look, range(16)))


# -- kills ---------------------------------------------------------------------------------


TINY = Raster(np.dtype("<i4"), (60, 70), -1, "ramp")
TINY_NEW = Raster(np.dtype("<i4"), (60, 70), -1, "bits", seed=1)
TINY_GRID = Raster(np.dtype("<i4"), (50, 60), -1, "bits", seed=2)


def kill_everywhere(folders, action, check, before=None, first=1):
    """Kill `action` before each of its changes, `check` every wreck, return their number."""
    for count in itertools.count(first):
        with folders() as folder:
            if before is not None:
                shutil.copytree(before, folder / "s")
            died = die_at(count, folder, lambda: action(folder / "s"))
            check(folder / "s")
            assert names(folder) == ["s"]
            assert names(folder / "s") == ["elevation", "spatial_ref", "x", "y", "zarr.json"]
            if not died:
                return count - 1


def again(path, raster, **options):
    """The remedy after a kill: --resume, which must do whatever is left."""
    with begin(path, raster, resume=True, **options) as writer:
        fill(writer, raster.cells, [b for b in writer.blocks.ids() if not writer.done[b]])
        writer.commit()
    assert same_bits(read(path), raster.cells)


def test_kills_while_a_new_store_is_made(folders, no_fsync):
    def check(path):
        with contextlib.suppress(StoreError):
            assert same_bits(read(path), TINY.cells)  # absent or whole, nothing between
        again(path, TINY)

    assert kill_everywhere(folders, lambda p: write(p, TINY), check) > 40


def test_kills_while_a_layer_is_replaced(folders, tmp_path, no_fsync):
    options = {"overwrite": True, "settings": {"inputs": "new"}}
    seen = set()

    def check(path):
        found = read(path).tobytes()
        seen.add(found)
        assert found in (TINY.cells.tobytes(), TINY_NEW.cells.tobytes())
        again(path, TINY_NEW, **options)

    before = write(tmp_path / "s", TINY, settings={"inputs": "old"}).path.parent
    assert kill_everywhere(folders, lambda p: write(p, TINY_NEW, **options), check, before) > 20
    assert len(seen) == 2


def test_kills_while_a_store_is_replaced(folders, tmp_path, no_fsync):
    seen = set()

    def check(path):
        found = read(path).tobytes()
        seen.add(found)
        assert found in (TINY.cells.tobytes(), TINY_GRID.cells.tobytes())
        again(path, TINY_GRID, overwrite=True)

    before = write(tmp_path / "s", TINY).path.parent
    action = functools.partial(write, raster=TINY_GRID, overwrite=True)
    # Building the new store is the same as above; only swapping it with the old one is new.
    assert kill_everywhere(folders, action, check, before, first=40) > 60
    assert len(seen) == 2


def test_readers_see_the_old_or_the_new_at_every_moment(path, monkeypatch):
    """A reader opens the store before and after each rename of a run that replaces things."""
    write(path, DENSE)
    real = os.rename
    allowed = [DENSE.cells.tobytes()]
    seen, inside = [], []

    def look():
        found = read(path).tobytes()
        assert found in allowed
        seen.append(allowed.index(found))

    def rename(source, target, **options):
        nested = bool(inside)
        inside.append(1)
        if not nested:
            look()
        real(source, target, **options)
        if not nested:
            look()
        inside.pop()

    monkeypatch.setattr(os, "rename", rename)
    for raster in (OTHER, SMALL, DENSE):
        allowed.append(raster.cells.tobytes())
        write(path, raster, overwrite=True)
        assert same_bits(read(path), raster.cells)
        assert seen == sorted(seen)
        allowed, seen = allowed[-1:], []
        assert names(path.parent) == ["s"]
        assert ".incomplete" not in names(path)


# -- interrupted swaps, as folders ---------------------------------------------------------


def test_a_swap_of_stores_interrupted_after_the_first_rename(path):
    """Old store set aside, new one whole but not yet in place: a reader, too, ends the swap."""
    write(path.with_name("old"), DENSE)
    write(path.with_name("new"), SMALL)
    os.rename(path.with_name("old"), path.with_name("s.replaced"))
    os.rename(path.with_name("new"), path.with_name("s.incomplete"))
    assert same_bits(read(path), SMALL.cells)
    assert names(path.parent) == ["s"]


def test_a_swap_of_stores_interrupted_after_the_second_rename(path):
    write(path, SMALL)
    write(path.with_name("old"), DENSE)
    os.rename(path.with_name("old"), path.with_name("s.replaced"))
    assert same_bits(read(path), SMALL.cells)
    assert names(path.parent) == ["s"]


def test_a_store_set_aside_with_nothing_to_replace_it_comes_back(path):
    write(path, DENSE)
    os.rename(path, path.with_name("s.replaced"))
    assert same_bits(read(path), DENSE.cells)
    assert names(path.parent) == ["s"]


@pytest.mark.parametrize("state", ["first", "second", "back"])
def test_swaps_of_layers_interrupted(old, state):
    write(old, OTHER, "b")
    inside = old / ".incomplete"
    inside.mkdir()
    os.rename(old / "elevation", inside / "elevation.replaced")
    expected = OTHER.cells
    if state == "first":
        os.rename(old / "b", inside / "elevation")
    elif state == "second":
        os.rename(old / "b", old / "elevation")
    else:
        expected = DENSE.cells
    assert same_bits(read(old), expected)
    assert not list(old.glob(".incomplete/*.replaced"))
    again(old, Raster(np.dtype("<i4"), DENSE.shape, -1, "ramp"), overwrite=True)
    assert ".incomplete" not in names(old)


def test_a_half_removed_old_store_is_removed(path):
    """A kill while the old store was being deleted."""
    write(path, SMALL)
    write(path.with_name("s.old"), DENSE)
    os.rename(path.with_name("s.old"), path.with_name("s.replaced"))
    (path.with_name("s.replaced") / "elevation/zarr.json").unlink()
    shutil.rmtree(path.with_name("s.replaced") / "elevation/c")
    assert same_bits(read(path), SMALL.cells)
    assert names(path.parent) == ["s"]


# -- folders that are not ours -------------------------------------------------------------

STRANGERS = {
    "letters": lambda p: (p.mkdir(), (p / "letter.txt").write_text("dear diary")),
    "a file": lambda p: p.write_text("dear diary"),
    "other zarr": lambda p: zarr.create_group(str(p), attributes={"title": "mine"}),
    "odd json": lambda p: (p.mkdir(), (p / "zarr.json").write_text("[1]")),
}


def snapshot(path):
    if path.is_file():
        return path.read_bytes()
    return {f: (path / f).read_bytes() for f in files(path)}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("suffix", ["incomplete", "replaced"])
def test_strangers_named_like_ours_are_never_touched(path, kind, suffix):
    """New store, read, layer replaced, store replaced: each works or says what is in the way."""
    stranger = path.with_name(f"s.{suffix}")
    STRANGERS[kind](stranger)
    before = snapshot(stranger)
    done = []
    for raster, options in (
        (DENSE, {}),
        (OTHER, {"overwrite": True}),
        (SMALL, {"overwrite": True}),
        (SMALL, {"overwrite": True, "resume": True}),
    ):
        try:
            write(path, raster, **options)
            done.append(True)
        except StoreError as error:
            if not re.search(rf"s\.{suffix}: exists and is not", str(error)):
                raise
            done.append(False)
        assert snapshot(stranger) == before
        if any(done):
            read(path)
            assert snapshot(stranger) == before
    assert not all(done)


def test_a_stranger_that_comes_while_the_run_goes_is_not_touched_either(old):
    """The commit refuses; once the way is free, --resume needs no block again."""
    stranger = old.with_name("s.replaced")
    with begin(old, SMALL, overwrite=True) as writer:
        fill(writer, SMALL.cells)
        STRANGERS["letters"](stranger)
        with pytest.raises(StoreError, match=r"s\.replaced: exists and is not"):
            writer.commit()
    assert snapshot(stranger) == {"letter.txt": b"dear diary"}
    assert same_bits(read(old), DENSE.cells)
    os.rename(stranger, old.with_name("mine"))
    with begin(old, SMALL, overwrite=True, resume=True) as writer:
        assert writer.done.all()
        writer.commit()
    assert same_bits(read(old), SMALL.cells)
    assert names(old.parent) == ["mine", "s"]


def test_empty_folders_of_the_user_are_not_mistaken_for_stores(path):
    path.with_name("s.replaced").mkdir()
    write(path, DENSE)
    assert same_bits(read(path), DENSE.cells)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "elevation.jsonl",
        "elevation",
        "elevation/c",
        "elevation/c/0",
        "elevation.tmp",
        "elevation.tmp/0-0",
        "elevation.spill",
        "elevation.spill/fields",
    ],
)
@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}])
def test_runs_do_not_write_through_links(old, name, options):
    with begin(old, DENSE, overwrite=True) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
        (writer.spill / "fields").mkdir(parents=True)
    link, outside = old / ".incomplete" / name, old.parent / "outside"
    if link.exists():
        link.rename(outside)
    else:
        link.parent.mkdir(exist_ok=True)
        outside.mkdir()
    link.symlink_to(outside)
    before = {f: f.read_bytes() for f in [outside, *outside.rglob("*")] if f.is_file()}
    with pytest.raises(StoreError, match=f"{link}: is a link where runs write; delete it"):
        begin(old, DENSE, **options)
    assert {f: f.read_bytes() for f in [outside, *outside.rglob("*")] if f.is_file()} == before
    assert same_bits(read(old), DENSE.cells)


def test_a_link_to_a_store_is_a_store(path):
    write(path.with_name("real"), DENSE)
    path.symlink_to(path.with_name("real"))
    assert same_bits(read(path), DENSE.cells)
    write(path, OTHER, "b")
    assert same_bits(read(path.with_name("real"), "b"), OTHER.cells)


# -- failing disks -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_remedy_and_keeps_what_is_done(path, monkeypatch, number):
    monkeypatch.setattr("terrain_gpu.store.writer.saves_at_once", lambda name: None)
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells, [(0, 0)])

        def full(fd):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with monkeypatch.context() as large:
                large.setattr("terrain_gpu.store.writer.SMALL", 0)
                with pytest.raises(OutputError, match=r"0/1: no space left on the disk.*--resume"):
                    fill(writer, DENSE.cells, [(0, 1)])
            temporary = path.parent / "s.incomplete/.incomplete/elevation.tmp"
            assert list(temporary.iterdir()) == []
            fill(writer, DENSE.cells)
            with pytest.raises(OutputError, match=r"/\d: no space left on the disk.*--resume"):
                writer.commit()
    again(path, DENSE)


def test_other_failures_of_the_disk_are_output_errors(path, monkeypatch):
    monkeypatch.setattr("terrain_gpu.store.writer.saves_at_once", lambda name: None)
    with begin(path, DENSE) as writer:
        fill(writer, DENSE.cells)

        def broken(*arguments, **options):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", broken)
            with pytest.raises(OutputError, match="cannot be written: Input/output error"):
                fill(writer, DENSE.cells, [(0, 1)])
            with pytest.raises(OutputError, match="cannot be written: Input/output error"):
                writer.commit()
    again(path, DENSE)


def test_a_place_that_cannot_be_written(path):
    path.parent.joinpath("file").write_text("in the way")
    with pytest.raises(OutputError, match="file/s: cannot be written: File exists"):
        begin(path.parent / "file" / "s", DENSE)


def test_folders_above_a_new_store_are_made(path):
    deep = path / "a" / "b" / "dem"
    write(deep, DENSE)
    assert same_bits(read(deep), DENSE.cells)


# -- attributes ----------------------------------------------------------------------------


def test_attributes_travel(path):
    attributes = {"units": "metre", "scale_factor": 0.5, "add_offset": 10.0}
    layer = write(path, DENSE, attributes=attributes)
    assert {k: layer.attributes[k] for k in attributes} == attributes
    assert layer.describe()["units"] == "metre"
    opened = xr.open_zarr(path, consolidated=False, chunks=None)["elevation"]
    expected = np.where(DENSE.cells == -1, np.nan, DENSE.cells * 0.5 + 10.0)
    assert np.array_equal(opened.values, expected, equal_nan=True)
    assert opened.attrs["units"] == "metre"


def test_geographic_stores_have_latitude_and_longitude(path):
    grid = GridSpec(20, 30, (0.1, 0, 10.0, 0, -0.1, 50.0), LATLON, "EPSG:4326")
    write(path, Raster(np.dtype("<f4"), grid.shape), grid=grid)
    opened = xr.open_zarr(path, consolidated=False, chunks=None)
    assert opened.y.attrs["standard_name"] == "latitude"
    assert opened.x.attrs["standard_name"] == "longitude"
    assert opened.elevation.rio.crs == CRS.from_epsg(4326)


def test_a_store_without_crs(path):
    grid = GridSpec(20, 30)
    layer = write(path, Raster(np.dtype("<f4"), grid.shape), grid=grid)
    assert layer.grid == grid
    opened = xr.open_zarr(path, consolidated=False, chunks=None)
    assert opened.elevation.rio.crs is None
    assert tuple(opened.elevation.rio.transform())[:6] == grid.transform


def test_a_file_whose_temporary_folder_was_withdrawn_leaves_nothing(tmp_path):
    """A process of a stopped run goes on; a later run has finished where it would write."""
    (tmp_path / "lent").mkdir()
    late = new_file(tmp_path / "run" / "c" / "0", tmp_path / "lent" / "0")
    with contextlib.suppress(OutputError), late as file:
        file.write(b"late")
        withdraw(tmp_path / "lent")
    assert not any(tmp_path.iterdir())


def test_a_crs_written_otherwise_is_the_same(path, tmp_path):
    """PROJ may name the datum of a code, or its ensemble of datums."""
    plain = CRS.from_wkt(CRS.from_wkt(UTM).to_wkt()).to_wkt(version="WKT2_2019")
    one, two = (GridSpec(*DENSE.shape, crs_wkt=wkt) for wkt in (UTM, plain))
    assert one.crs_wkt != two.crs_wkt
    with begin(path, DENSE, grid=one) as writer:
        fill(writer, DENSE.cells, [(0, 0)])
    other = GridSpec(*DENSE.shape, crs_wkt=CRS.from_epsg(32633).to_wkt())
    names = "crs was 'WGS 84 / UTM zone 11N' and is now 'WGS 84 / UTM zone 33N'; use the same"
    with pytest.raises(StoreError, match=names):
        begin(path, DENSE, grid=other, resume=True)
    # The option does not count where the grid has the same system.
    for was, now in (("EPSG:32611", None), (None, "EPSG:32611")):
        with begin(tmp_path / f"{was}", DENSE, settings={"crs": was}) as writer:
            fill(writer, DENSE.cells, [(0, 0)])
        with begin(tmp_path / f"{was}", DENSE, settings={"crs": now}, resume=True) as writer:
            assert writer.done[0, 0]
    with begin(path, DENSE, grid=two, resume=True) as writer:
        assert writer.done[0, 0]
        fill(writer, DENSE.cells)
        writer.commit()
    write(path, OTHER, "b", grid=two)
    assert TileStore.open(path).grid == one
