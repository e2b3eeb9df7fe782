"""Equal labels as polygons, against rasterio and plain Python."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow.parquet
import pyogrio
import pytest
from contract import FileContract, make_store
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, within
from rasterio import features
from rasterio.crs import CRS
from rasterio.enums import MergeAlg
from rasterio.transform import Affine
from strategies import rasters, shapes, transforms

from terrain_gpu import TileStore, create_layer, polygons
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import cell_areas
from terrain_gpu.io.features import POLYGONS
from terrain_gpu.io.wkb import parts_of_wkb
from terrain_gpu.raster.drawing import pieces
from terrain_gpu.raster.polygons import DrawPolygons
from terrain_gpu.raster.polygons.operation import Outlines, label_polygons

pytestmark = pytest.mark.usefixtures("no_fsync")

WHOLE = st.sampled_from([np.dtype(f"<{name}") for name in ("u1", "u2", "i4", "i8")])


def parts_of(data, absent):
    """Every 4-connected part of equal cells as its cells, by label, then by first cell."""
    left = {tuple(cell) for cell in np.argwhere(~absent).tolist()}
    found = []
    for first in sorted(left):
        if first not in left:
            continue
        left.remove(first)
        part, stack = [first], [first]
        while stack:
            row, col = stack.pop()
            for beside in ((row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)):
                if beside in left and data[beside] == data[first]:
                    left.remove(beside)
                    part.append(beside)
                    stack.append(beside)
        found.append((int(data[first]), first, sorted(part)))
    return sorted(found)


def numbered(parts, shape):
    """A raster of the numbers of parts, 0 elsewhere."""
    found = np.zeros(shape, np.int32)
    for number, (_, _, cells) in enumerate(parts, 1):
        found[tuple(np.transpose(cells))] = number
    return found


def read(path):
    """Label, cells, area and polygons of each feature of a GeoJSON file."""
    return [
        (*feature["properties"].values(), feature["geometry"]["coordinates"])
        for feature in json.loads(path.read_text())["features"]
    ]


def area_of(ring):
    """Positive if counterclockwise."""
    return sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise(ring)) / 2


def check_rings(rings):
    """They are closed, do not touch themselves, and turn as GeoJSON asks for."""
    for ring in rings:
        assert ring[0] == ring[-1]
        assert len({tuple(at) for at in ring}) == len(ring) - 1
        assert all((x0 == x1) != (y0 == y1) for (x0, y0), (x1, y1) in pairwise(ring))
    turns = [area_of(ring) > 0 for ring in rings]
    assert turns == [True] + [False] * (len(rings) - 1)


def painted(path, grid):
    """The parts that a file draws, numbered as in `numbered`; checks rings and figures."""
    found, area = read(path), abs(grid.transform[0] * grid.transform[4])
    number, shapes_ = 0, []
    for label, cells, measured, several in found:
        for rings in several:
            check_rings(rings)
            number += 1
            shapes_.append(({"type": "Polygon", "coordinates": rings}, number))
        total = sum(area_of(ring) for rings in several for ring in rings)
        assert total == pytest.approx(measured)
        assert measured == pytest.approx(cells * area)
        assert isinstance(label, int)
    assert [label for label, *_ in found] == sorted({label for label, *_ in found})
    if not shapes_:
        return np.zeros(grid.shape, np.int32)
    transform = Affine(*grid.transform)
    # Added up, so that polygons which overlap are seen.
    how = {"transform": transform, "dtype": "int32", "merge_alg": MergeAlg.add}
    return features.rasterize(shapes_, grid.shape, **how)


class TestPolygonsContract(FileContract):
    representative = True
    command = "polygons s.zarr p.geojson --layer elevation"
    rasters = rasters(WHOLE, shapes(200, 20_000))
    identified = True
    test_its_proof_accepts_it = test_its_proof_refuses_mutations = None
    test_workers_prove_it = test_workers_refuse_mutations = None

    def cells(self, shape=(150, 210), dtype=np.int16):
        found = super().cells(shape, dtype) % 5
        return (
            found
            if shape[0] < 200
            else np.repeat(np.repeat(found, 7, 0), 7, 1)[: shape[0], : shape[1]]
        )

    def make(self, store):
        asked = DrawPolygons(store.parent / "p.geojson", "elevation")
        return label_polygons(TileStore.open(store), asked)

    def outputs(self, store):
        path = store.parent / "p.geojson"
        return {str(path): painted(path, TileStore.open(store).grid)}

    def expected(self, data, nodata, grid):
        return [numbered(parts_of(data, is_nodata(data, nodata)), data.shape)]

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def full(self, patch, after):
        left, keep = after, Outlines.keep

        def full(*args):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return keep(*args)

        patch.setattr(Outlines, "keep", full)


def write(path, data, grid, nodata=0, block=64):
    with create_layer(path, "labels", grid, data.dtype, nodata=nodata, block_size=block) as target:
        for i, j in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(i, j)
            target.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        target.commit()
    return path


@st.composite
def coarse(draw):
    """Labels in patches, which touch in corners, lie in each other and cross blocks."""
    shape = draw(shapes(200, 20_000))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    found = rng.integers(0, draw(st.integers(2, 5)), shape).astype(np.int32)
    for axis in (0, 1):
        found = np.repeat(found, draw(st.sampled_from([1, 2, 5, 30])), axis)
    found = found[: shape[0], : shape[1]]
    if draw(st.booleans()):
        holes = rng.random(shape) < 0.02
        found[holes] = rng.integers(0, 5, holes.sum())
    return found


@settings(max_examples=examples(60))
@given(data=coarse(), transform=transforms(), threads=st.integers(1, 3))
def test_the_same_bytes_for_all_blocks_and_the_shapes_of_rasterio(
    folders, data, transform, threads
):
    grid = GridSpec(*data.shape, transform)
    texts = set()
    with folders() as folder:
        for block in (64, 256):
            store = write(folder / f"{block}.zarr", data, grid, block=block)
            file = folder / f"{block}.geojson"
            found = polygons(store, file, layer="labels", threads=threads)
            texts.add(file.read_text())
        right = numbered(parts_of(data, data == 0), data.shape)
        assert np.array_equal(painted(file, grid), right)
        several = [rings for *_, several in read(file) for rings in several]
    assert len(texts) == 1
    theirs = list(features.shapes(data, data != 0, connectivity=4, transform=Affine(*transform)))
    assert found.polygons == len(several) == len(theirs) == right.max()
    assert found.cells == (data != 0).sum()
    assert found.labels == len(np.unique(data[data != 0]))
    assert found.holes == sum(len(rings) - 1 for rings in several)
    # The same points, but where it leaves them out or draws them twice in a corner.
    ours = sorted({tuple(at) for rings in several for ring in rings for at in ring})
    points = {at for shape, _ in theirs for ring in shape["coordinates"] for at in ring}
    assert ours == sorted(points)


def test_a_polygon_that_touches_itself_gets_a_hole(tmp_path):
    """Two cells that touch diagonally close a ring: their polygon must not cross there."""
    data = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0]], np.uint8)
    store = write(tmp_path / "s.zarr", data, GridSpec(4, 3, (1.0, 0, 0, 0, -1.0, 4.0)))
    polygons(store, tmp_path / "p.geojson", layer="labels")
    ((label, cells, area, several),) = read(tmp_path / "p.geojson")
    assert (label, cells, area) == (1, 8, 8.0)
    assert several == [
        [
            [[0, 4], [0, 0], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [3, 4], [0, 4]],
            [[1, 3], [2, 3], [2, 2], [1, 2], [1, 3]],
        ]
    ]


def test_holes_lie_in_their_polygons(tmp_path):
    """Rings in rings of one label, with islands in their holes."""
    size = np.arange(81)
    depth = np.minimum(np.minimum(size, 80 - size)[:, None], np.minimum(size, 80 - size))
    data = (depth % 2 + 1).astype(np.int64)
    data[30, ::3] = 0
    store = write(tmp_path / "s.zarr", data, GridSpec(81, 81, (1.0, 0, 0, 0, -1.0, 81.0)))
    found = polygons(store, tmp_path / "p.geojson", layer="labels")
    for _, _, _, several in read(tmp_path / "p.geojson"):
        for outer, *holes in several:
            (west, south), (east, north) = np.min(outer, 0), np.max(outer, 0)
            for hole in holes:
                assert ((np.array(hole) >= (west, south)) & (np.array(hole) <= (east, north))).all()
    assert found.holes > 10
    right = numbered(parts_of(data, data == 0), data.shape)
    assert np.array_equal(painted(tmp_path / "p.geojson", TileStore.open(store).grid), right)


def test_geopackages_and_areas_in_degrees(tmp_path):
    rng = np.random.default_rng(1)
    data = np.repeat(np.repeat(rng.integers(0, 4, (30, 20)), 4, 0), 5, 1).astype(np.uint32)
    grid = GridSpec(*data.shape, (0.01, 0, 7, 0, -0.01, 50), CRS.from_epsg(4326).to_wkt())
    store = write(tmp_path / "s.zarr", data, grid)
    for name in ("p.gpkg", "p.geojson"):
        polygons(store, tmp_path / name, layer="labels")
    assert pyogrio.list_layers(tmp_path / "p.gpkg").tolist() == [["polygons", "MultiPolygon"]]
    meta, _, shapes_, columns = pyogrio.raw.read(tmp_path / "p.gpkg")
    assert CRS.from_user_input(meta["crs"]) == CRS.from_epsg(4326)
    assert meta["fields"].tolist() == ["label", "cells", "area"]
    labels, cells, areas = columns
    assert labels.tolist() == [1, 2, 3]
    assert cells.tolist() == np.bincount(data.ravel())[1:].tolist()
    by_row = cell_areas(grid)
    right = [((data == label).sum(axis=1) * by_row).sum() for label in (1, 2, 3)]
    np.testing.assert_allclose(areas, right, rtol=1e-12)
    polygons(store, tmp_path / "p.parquet", layer="labels")
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert table["geometry"].to_pylist() == shapes_.tolist()
    assert [table[name].to_pylist() for name in meta["fields"]] == [c.tolist() for c in columns]
    assert json.loads(table.schema.metadata[b"geo"])["columns"]["geometry"]["geometry_types"] == [
        "MultiPolygon"
    ]
    for wkb, (label, *own, several) in zip(shapes_, read(tmp_path / "p.geojson"), strict=True):
        rings = [ring for _, rings in parts_of_wkb(wkb)[0] for ring in rings]
        assert own == [cells[label - 1], areas[label - 1]]
        for ring, same in zip(rings, (r for rings in several for r in rings), strict=True):
            np.testing.assert_allclose(ring, same, atol=1e-9)


def test_longitudes_continue_across_the_antimeridian():
    west, east = 300_000.0, 700_000.0  # UTM 60: 180 degrees lies near x = 824 000
    ring = np.array([[west, 0], [east, 0], [950_000, 0], [950_000, 9e4], [west, 9e4], [west, 0]])
    (found,) = POLYGONS.geojson([[[ring]]], CRS.from_epsg(32660))
    lon = np.array(found["coordinates"][0][0])[:, 0]
    assert lon.max() > 180
    assert np.abs(np.diff(lon)).max() < 10


def test_none_and_what_is_refused(tmp_path, capfd):
    grid = GridSpec(70, 90, (1.0, 0, 0, 0, -1.0, 0))
    empty = write(tmp_path / "e.zarr", np.zeros((70, 90), np.uint8), grid)
    for name in ("p.gpkg", "p.geojson"):
        found = polygons(empty, tmp_path / name, layer="labels")
        assert (found.labels, found.polygons, found.cells) == (0, 0, 0)
    assert pyogrio.read_info(tmp_path / "p.gpkg")["features"] == 0
    assert read(tmp_path / "p.geojson") == []
    heights = make_store(tmp_path / "h.zarr", np.zeros((9, 9), np.float32), None, 64)
    with pytest.raises(InputError, match=r"holds float32, not labels .*--layer"):
        polygons(heights, tmp_path / "q.gpkg")  # the only layer
    with pytest.raises(InputError, match=r"\.geojson .*or \.fgb"):
        polygons(empty, tmp_path / "q.shp", layer="labels")
    with pytest.raises(InputError, match="exists; --overwrite replaces it"):
        polygons(empty, tmp_path / "p.gpkg", layer="labels")
    assert not (tmp_path / "q.gpkg").exists()
    words = f"polygons {empty} {tmp_path / 'p.gpkg'} --layer labels --overwrite"
    assert group.main(words.split(), standalone_mode=False) is None
    assert "p.gpkg: 0 labels, 0 polygons of 0 cells" in capfd.readouterr().out


def test_names_by_numbers_of_numpy(tmp_path):
    store = write(tmp_path / "n.zarr", np.array([[3, 7]]), GridSpec(1, 2, (1.0, 0, 0, 0, -1.0, 0)))
    names = dict(zip(np.array([3, 7]), np.array(["a", "b"]), strict=True))
    polygons(store, tmp_path / "n.geojson", names=names)
    assert [one[1] for one in read(tmp_path / "n.geojson")] == ["a", "b"]
    for wrong, said in (
        ({1.5: "a"}, "a key of names 1.5: give a whole"),
        ({1: 2}, "names of 1 2: g"),
    ):
        with pytest.raises(InputError, match=said):
            polygons(store, tmp_path / "m.geojson", names=wrong)


def test_outlines_are_joined_some_labels_at_a_time(tmp_path, monkeypatch):
    """Also if labels are spread over all of int64, or all but a few are close together."""
    rng, top = np.random.default_rng(2), 2**63
    for labels in (rng.integers(-top, top, (70, 40)), rng.integers(-4, 5, (70, 40)) ** 21):
        labels[0, :2] = 1 - top, top - 1
        grid = GridSpec(*labels.shape, (1.0, 0, 0, 0, -1.0, 0))
        folder = tmp_path / str(labels[5, 5])
        folder.mkdir()
        store, files = write(folder / "n.zarr", labels, grid, block=64), []
        for at_once in (pieces.JOINING, 100 * pieces.PIECE_BYTES):
            monkeypatch.setattr(pieces, "JOINING", at_once)
            files.append(folder / f"{at_once}.geojson")
            assert polygons(store, files[-1], layer="labels").cells == (labels != 0).sum()
        monkeypatch.undo()
        assert files[0].read_bytes() == files[1].read_bytes()


def test_too_long_outlines(tmp_path, monkeypatch):
    """Refused for the longest of all labels, before any is written."""
    monkeypatch.setattr(pieces, "JOINING", 100 * pieces.PIECE_BYTES)
    grid = GridSpec(1500, 1500, (1.0, 0, 0, 0, -1.0, 0))
    comb = np.ones((1500, 1500), np.uint8)
    comb[1:, 2::3] = 0
    comb[2::2, 1::3] = 0  # corners take memory, long edges hardly do
    comb[:, 500:] *= 2
    store = write(tmp_path / "c.zarr", comb, grid, block=256)
    with pytest.raises(
        PlanError, match=r"label 2, with outlines of 1,\d+,\d+ edges; give at least"
    ):
        polygons(store, tmp_path / "p.geojson", layer="labels", memory_limit="500MB")
    assert not (tmp_path / "p.geojson").exists()
    command = f"terrain-gpu polygons {tmp_path}/c.zarr {tmp_path}/p.gpkg --layer labels"
    command += " --overwrite -q"
    limit, peak = within(tmp_path, command, 500 * MB)
    assert peak <= limit
