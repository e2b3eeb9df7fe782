"""Streams burned into heights, against a loop over their cells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
import reference
from contract import OperationContract, make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.transform import from_origin
from test_flow import call, small

from terrain_gpu import TileStore, burn, flow_direction, minimum_spanning_tree
from terrain_gpu.cells import DTYPES
from terrain_gpu.engine.run import run
from terrain_gpu.errors import InputError, StoreError, VerificationError
from terrain_gpu.grid import GridSpec
from terrain_gpu.hydrology.burn.operation import Burned, digest_of
from terrain_gpu.io.places import from_vector


def right(data, nodata, cells, depth):
    """Heights of which these (row, column) are lowered."""
    good, found = reference.vertices(data, nodata), data.copy()
    for row, col in cells:
        if good[row, col]:
            lower = (
                float(data[row, col]) - depth
                if data.dtype.kind == "f"
                else int(data[row, col]) - depth
            )
            found[row, col] = lower
    return found


def every_third(data, nodata):
    """Ids of cells on diagonals that can be lowered by 1."""
    good = reference.vertices(data, nodata)
    row, col = np.indices(data.shape)
    with np.errstate(all="ignore"):
        if data.dtype.kind == "f":
            lower = (data.astype(np.float64) - 1).astype(data.dtype)
            good &= np.isfinite(lower) & (lower != data)
        else:
            lower = data - data.dtype.type(1)
            good &= data > np.iinfo(data.dtype).min
    if nodata is not None:
        good &= lower != nodata
    return np.flatnonzero(good & ((row + col) % 3 == 0)).astype(np.int64)


class TestBurnContract(OperationContract):
    command = "burn s.zarr --streams streams.geojson --depth 60"
    rasters = small

    def prepare(self, store):
        """The cells to lower, and for the command a line."""
        layer = TileStore.open(store).layer("elevation")
        np.save(store.parent / "cells.npy", every_third(whole(layer), layer.nodata))
        west, south, east, north = TileStore.open(store).grid.bounds
        line = [[west + 1, north - 1], [east - 1, north - 1], [west + 1, (south + north) / 2]]
        shape = {"type": "LineString", "coordinates": line}
        feature = {"type": "Feature", "properties": {}, "geometry": shape}
        text = {"type": "FeatureCollection", "crs": None, "features": [feature]}
        (store.parent / "streams.geojson").write_text(json.dumps(text))

    def make(self, store):
        layer = TileStore.open(store).layer("elevation")
        cells = np.load(store.parent / "cells.npy")
        depth = 1.0 if layer.dtype.kind == "f" else 1
        return Burned(str(store), depth, digest_of(cells), cells=cells)

    def expected(self, data, nodata, grid):
        places = np.stack(np.divmod(every_third(data, nodata), data.shape[1]), axis=1)
        return [right(data, nodata, places.tolist(), 1)]


@settings(max_examples=examples(30))
@given(
    dtype=st.sampled_from(DTYPES),
    block=st.sampled_from([64, 128]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
    shape=st.sampled_from([(1, 90), (131, 1), (67, 150)]),
    depth=st.sampled_from([1, 7, 40]),
)
def test_cells_are_lowered(folders, dtype, block, threads, seed, shape, depth):
    rng = np.random.default_rng(seed)
    z = rng.integers(40, 120, shape).astype(dtype)
    z[rng.random(shape) < 0.2] = 121
    cells = [*np.argwhere(rng.random(shape) < 0.1).tolist(), [0, 0]]
    z[0, 0] = 99
    with folders() as folder:
        store = make_store(folder / "s.zarr", z, 121, block)
        found = burn(store, cells, depth=depth, threads=threads, verify=True)
        expected = right(z, 121, cells, depth)
        assert same(whole(found.layers["burned"]), expected)
        assert found.found == {"burned": int((expected != z).sum())}


@pytest.mark.parametrize(
    ("dtype", "height", "depth", "nodata"),
    [
        ("u1", 3, 4, None),
        ("i1", -100, 29, None),
        ("i2", 5, 70_000, None),
        ("u8", 2**63, 2**63 + 1, None),
        ("i8", -(2**62), 2**62 + 1, None),
        ("i4", 10, 10, 0),  # would become nodata
        ("f4", 5.0, 5.0, 0.0),
        ("f4", 2.0**30, 1.0, None),  # rounds to the same height
        ("f4", -3e38, 3e38, None),
        ("f8", 2.0**60, 1.0, None),
    ],
)
def test_heights_that_do_not_fit(tmp_path, dtype, height, depth, nodata):
    z = np.full((70, 80), 100, dtype)
    z[66, 70] = height
    store = make_store(tmp_path / "s.zarr", z, nodata, 64)
    with pytest.raises(InputError, match=r"row 66, column 70: elevation .* cannot be lowered by"):
        burn(store, [(66, 70)], depth=depth)
    assert TileStore.open(store).layers == ["elevation"]


@pytest.mark.parametrize(
    ("dtype", "height", "depth", "low"),
    [
        ("u1", 3, 3, 0),
        ("i1", 127, 255, -128),
        ("i2", -100, 32_668, -32_768),
        ("u8", 2**64 - 1, 2**64 - 1, 0),
        ("i8", 2**63 - 1, 2**63, -1),
        ("f4", 0.1, 0.1, np.float32(np.float64(np.float32(0.1)) - 0.1)),
    ],
)
def test_heights_that_just_fit(tmp_path, dtype, height, depth, low):
    z = np.full((3, 4), height, dtype)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    found = whole(burn(store, [(1, 2)], depth=depth, verify=True).layers["burned"])
    expected = z.copy()
    expected[1, 2] = low
    assert same(found, expected)


def vector(path, *features):
    shapes = [{"type": kind, "coordinates": xy} for kind, xy in features]
    each = [{"type": "Feature", "properties": {"id": "A 7"}, "geometry": g} for g in shapes]
    path.write_text(json.dumps({"type": "FeatureCollection", "crs": None, "features": each}))


def test_all_cells_that_features_touch(tmp_path, monkeypatch):
    """A thin diagonal line, a sliver of a polygon and a point; ids of text do not matter."""
    monkeypatch.chdir(tmp_path)
    z = np.full((20, 30), 50, np.int16)
    with rasterio.open(
        "dem.tif", "w", driver="GTiff", height=20, width=30, count=1, dtype="int16",
        transform=from_origin(0, 20, 1, 1),
    ) as file:  # fmt: skip
        file.write(z, 1)
    sliver = [[20.1, 2.4], [29.5, 2.2], [29.5, 2.45], [20.1, 2.6], [20.1, 2.4]]
    vector(Path("r.geojson"), ("LineString", [[0.2, 19.5], [9.9, 9.9]]), ("Polygon", [sliver]),
           ("Point", [15.5, 15.5]))  # fmt: skip
    assert call("burn dem.tif --streams r.geojson --depth 5 -o b.tif --verify -q") == 0
    with rasterio.open("b.tif") as file:
        found = file.read(1)
    assert set(np.unique(found)) == {45, 50}
    low = found == 45
    assert low[4, 15]
    assert low[17, 20:30].all()
    assert low[:15, :12].sum() == 20  # no two of the line's cells touch in a corner alone
    line = np.argwhere(low[:15, :12])
    order = line[np.lexsort((line[:, 1], line[:, 0]))]
    assert (np.abs(np.diff(order, axis=0)).sum(axis=1) == 1).all()


def test_water_follows_the_stream(tmp_path):
    """Through a ridge, along a diagonal."""
    row, col = np.indices((60, 60))
    z = (1000 + 20 * np.minimum(np.abs(col - 30), 8) * -1 + 400 + row).astype(np.float32)
    store = make_store(tmp_path / "s.zarr", z, None, 64)
    stream = [(k, k) for k in range(5, 60)] + [(k, k - 1) for k in range(6, 60)]
    burn(store, stream, depth=500)
    minimum_spanning_tree(store, weight="flow", layer="burned", backend="cpu")
    codes = whole(flow_direction(store, layer="burned", verify=True).layers["flow_direction"])
    assert {int(codes[k, k]) for k in range(6, 59)} <= {1, 2, 4, 8, 16, 32, 64, 128}
    cells = set(stream)
    for cell in stream:
        after = reference.downstream(codes, *cell) if codes[cell] else None
        assert after is None or after in cells or min(after) in (0, 59)


# -- the command and wrong inputs ------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_store(Path("s.zarr"), np.full((20, 30), 50, np.int16), -1, 64)
    vector(Path("r.geojson"), ("LineString", [[500001, 5499999], [500099, 5499901]]))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--depth 0", "depth 0.0: give a height above 0"),
        ("--depth nan", "depth nan: give a height above 0"),
        ("--depth 2.5", "depth 2.5: the elevations are int16; give a whole number"),
        ("--depth 1e9", "cannot be lowered by 1000000000"),
        ("--depth 5 --layer no", "no layer 'no'"),
        ("--depth 5 --into elevation", "--layer already names this layer"),
        ("--depth 51", "would"),
    ],
)
def test_what_cannot_be_burned(place, capsys, words, told):
    if "51" in words:  # becomes -1, nodata
        told = "row 0, column 0: elevation 50 cannot be lowered by 51"
    assert call(f"burn s.zarr --streams r.geojson {words}") == 2
    assert told in capsys.readouterr().err
    assert TileStore.open("s.zarr").layers == ["elevation"]


def test_streams_that_cannot_be_read(place, capsys):
    vector(place / "far.geojson", ("LineString", [[0, 0], [1, 1]]))
    for file, told in (
        ("far.geojson", "--streams: far.geojson: 1 of 1 features are not inside the raster"),
        ("no.gpkg", "no.gpkg"),
        ("r.csv", "a table, not a vector file"),
    ):
        assert call(f"burn s.zarr --streams {file} --depth 5") == 2
        assert told in capsys.readouterr().err
    assert call("burn s.zarr --streams r.geojson --depth 5 -o r.geojson") == 2
    assert "--output r.geojson: --streams already names this file" in capsys.readouterr().err
    with pytest.raises(InputError, match="streams"):
        burn("s.zarr", [], depth=1)
    for other, message in (
        (-1, "has no valid cells, all are nodata"),
        (7, "all cells of the stre"),
    ):
        cells = np.where(np.eye(3) == 1, -1, other).astype(np.int16)
        with pytest.raises(InputError, match=message):
            burn(make_store(place / f"{other}.zarr", cells, -1, 64), [(0, 0)], depth=1)


# -- the proof -----------------------------------------------------------------------------------


def test_other_cells_of_the_same_number_are_refused(tmp_path):
    store = make_store(tmp_path / "s.zarr", np.full((70, 80), 9, np.int16), None, 64)
    cells, others = np.array([3, 90, 5000]), np.array([3, 91, 5000])
    with pytest.raises(VerificationError, match="the lowered cells are not those"):
        run(Burned(str(store), 2, digest_of(cells), cells=others), verify=True)


@pytest.mark.parametrize(
    ("key", "value"), [("depth", 0), ("depth", 2.0), ("depth", "2"), ("streams", 3)]
)
def test_damaged_settings(tmp_path, key, value):
    from contract import verify

    store = make_store(tmp_path / "s.zarr", np.full((70, 80), 9, np.int16), None, 64)
    burn(store, [(3, 4)], depth=2)
    meta = store / "burned/zarr.json"
    text = json.loads(meta.read_text())
    own = text["attributes"]["terrain_gpu"]
    own["settings"][key] = value
    del own["checksum"]
    meta.write_text(json.dumps(text))
    assert verify(store)[0] == StoreError.exit_code


def test_cells_of_polygons(tmp_path):
    """Those whose centres lie within, or all that are touched."""
    vector(
        tmp_path / "p.geojson",
        ("Polygon", [[[1.2, 8.8], [3.8, 8.8], [3.8, 6.2], [1.2, 6.2], [1.2, 8.8]]]),
    )
    grid = GridSpec(10, 10, (1.0, 0.0, 0.0, 0.0, -1.0, 10.0), "", "")
    inner = from_vector(grid, tmp_path / "p.geojson", fields=False)
    touched = from_vector(grid, tmp_path / "p.geojson", fields=False, all_touched=True)
    assert set(map(tuple, touched.places.tolist())) == {
        (r, c) for r in (1, 2, 3) for c in (1, 2, 3)
    }
    assert len(inner) == 9
