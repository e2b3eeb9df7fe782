"""Export of flow directions as columns and rows of the next cells, against plain Python."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import rasterio
import reference
from contract import TRANSFORM
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from terrain_gpu import TileStore, create_layer, export_layer
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.proof.raster import Limits, verify_exported


def call(words):
    return options._guarded(lambda: group.main(words.split(), standalone_mode=False))


def store_of(path, codes, block=64):
    grid = GridSpec(*codes.shape, TRANSFORM, "", "")
    with create_layer(path, "codes", grid, np.uint8, nodata=255, block_size=block) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(codes[r0:r1, c0:c1]))
        target.commit()
    return path


def some_codes(shape, seed=0, none=0.1):
    rng = np.random.default_rng(seed)
    found = rng.choice([0, *(1 << k for k in range(8))], shape).astype(np.uint8)
    found[rng.random(shape) < none] = 255
    return found


@settings(max_examples=examples(20))
@given(
    shape=st.sampled_from([(1, 1), (1, 90), (131, 1), (67, 71), (200, 130)]),
    seed=st.integers(0, 99),
    none=st.sampled_from([0, 0.05, 1]),
    block=st.sampled_from([64, 128]),
    part=st.sampled_from([None, (0.2, 0.3, 0.9, 0.8)]),
    cog=st.booleans(),
)
def test_next_cells(folders, shape, seed, none, block, part, cog):
    codes = some_codes(shape, seed, none)
    with folders() as folder:
        store = store_of(folder / "s.zarr", codes, block)
        grid = TileStore.open(store).grid
        window, bounds = grid.window, None
        if part:
            west, south, east, north = grid.bounds
            wide, high = east - west, north - south
            bounds = (west + part[0] * wide, south + part[1] * high,
                      west + part[2] * wide, south + part[3] * high)  # fmt: skip
            window = grid.window_of(bounds)
        how = {"layer": "codes", "encoding": "nextxy", "bounds": bounds, "cog": cog}
        report = export_layer(store, folder / "x.tif", verify=True, **how)
        right = reference.next_cells(codes, window)
        with rasterio.open(folder / "x.tif") as file:
            found = file.read()
            assert (file.dtypes, file.nodatavals) == (("int32",) * 2, (-9999,) * 2)
            assert file.tags(1)["FLOW_DIRECTION_ENCODING"] == "nextxy"
        assert np.array_equal(found, right)
        assert report.valid_cells == (right[0] != -9999).sum()
        assert report.result["verified_cells"] == right[0].size
        layer = TileStore.open(store).layer("codes")
        assert verify_exported(folder / "x.tif", layer, Limits()) == {"cells": right[0].size}


TABLE = np.array(
    [
        [1, 4, 255, 16],
        [128, 0, 255, 1],
        [0, 64, 32, 0],
    ]
)  # fmt: skip
"""E, S, none, W into none / NE, outlet beside none, none, E off the raster / three ways."""


def test_a_table(tmp_path, monkeypatch):
    """As CaMa-Flood numbers cells: from 1 at the upper left, the column in the first band."""
    monkeypatch.chdir(tmp_path)
    codes = np.full((5, 6), 255, np.uint8)
    codes[1:4, 1:5] = TABLE
    store_of("s.zarr", codes)
    assert call("export s.zarr x.tif --layer codes --encoding nextxy --verify -q") == 0
    with rasterio.open("x.tif") as file:
        x, y = file.read()[:, 1:4, 1:5]
    none = -9999
    assert x.tolist() == [[3, 3, none, -9], [3, -9, none, -9], [-9, 3, 3, -9]]
    assert y.tolist() == [[2, 3, none, -9], [2, -9, none, -9], [-9, 3, 3, -9]]


def test_an_outlet_in_the_midst_of_others_is_a_sink(tmp_path):
    codes = np.full((3, 3), 4, np.uint8)
    codes[1, 1] = 0
    store = store_of(tmp_path / "s.zarr", codes)
    export_layer(store, tmp_path / "x.tif", layer="codes", encoding="nextxy", verify=True)
    with rasterio.open(tmp_path / "x.tif") as file:
        assert file.read()[:, 1, 1].tolist() == [-10, -10]


def test_wrong_cells_are_refused(tmp_path, monkeypatch, capsys):
    """Each of some wrong values, in either band."""
    monkeypatch.chdir(tmp_path)
    codes = some_codes((80, 90), 1)
    store_of("s.zarr", codes)
    export_layer("s.zarr", "x.tif", layer="codes", encoding="nextxy")
    right = reference.next_cells(codes, (0, 80, 0, 90))
    layer = TileStore.open("s.zarr").layer("codes")
    cells = [tuple(np.argwhere(codes == code)[7]) for code in (0, 1, 32, 255)]
    for (row, col), band, value in product(cells, (0, 1), (-9999, -10, -9, 0, 1, 33, 2**31 - 1)):
        if right[band, row, col] == value:
            continue
        with rasterio.open("x.tif", "r+") as file:
            file.write(np.full((1, 1), value, np.int32), band + 1,
                       window=((row, row + 1), (col, col + 1)))  # fmt: skip
        with pytest.raises(VerificationError, match=f"row {row}, column {col}: column "):
            verify_exported("x.tif", layer, Limits())
        with rasterio.open("x.tif", "r+") as file:
            file.write(right)
    assert call("verify s.zarr --file x.tif --layer codes -q") == 0
    with rasterio.open("x.tif", "r+") as file:
        file.update_tags(1, FLOW_DIRECTION_ENCODING="grass")
    assert call("verify s.zarr --file x.tif --layer codes -q") == 2
    assert "x.tif: has 2 bands" in capsys.readouterr().err


def test_what_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    codes = some_codes((70, 80))
    codes[65, 4] = 7
    store_of("s.zarr", codes)
    assert call("export s.zarr x.tif --layer codes --encoding nextxy -q") == 2
    assert "codes: 7 at row 65, column 4 is not a flow direction" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot be combined with dtype"):
        export_layer("s.zarr", "x.tif", layer="codes", encoding="nextxy", dtype="float32")
    assert not (tmp_path / "x.tif").exists()
