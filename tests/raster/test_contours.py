"""Contours: lines against marching squares in plain Python, areas against counted cells."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pyogrio
import pytest
import reference
import shapely
from contract import FileContract, make_store
from effort import examples, only_long
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MB, within
from rasterio import features
from rasterio.enums import MergeAlg
from rasterio.transform import Affine
from strategies import rasters, shapes, transforms
from test_polygons import check_rings

import terrain_gpu
from terrain_gpu import TileStore, contours
from terrain_gpu.cells import is_nodata
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.grid import GridSpec
from terrain_gpu.raster.contours import DrawContours
from terrain_gpu.raster.contours.operation import contours_of
from terrain_gpu.raster.drawing import pieces
from terrain_gpu.raster.drawing.pieces import LinePieces

pytestmark = pytest.mark.usefixtures("no_fsync")

PLAIN = (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)


def lines_of(path):
    """Level and positions of each line of a GeoJSON file."""
    return [
        (one["properties"]["level"], one["geometry"]["coordinates"])
        for one in json.loads(path.read_text())["features"]
    ]


def segments_of(lines, transform=PLAIN):
    """How often each segment occurs: level, rows and columns of its ends, rounded."""
    a, _, c, _, e, f = transform
    found = Counter()
    for level, line in lines:
        at = [(round((y - f) / e - 0.5, 6), round((x - c) / a - 0.5, 6)) for x, y in line]
        if a * e > 0:
            at.reverse()
        found.update((level, one, other) for one, other in pairwise(at) if one != other)
    return found


def expected_segments(z, nodata, levels):
    found = Counter()
    for level, one, other in reference.contour_segments(z, nodata, levels):
        ends = tuple(tuple(round(k, 6) for k in at) for at in (one, other))
        if ends[0] != ends[1]:
            found[(level, *ends)] += 1
    return found


class TestContourLinesContract(FileContract):
    command = "contours s.zarr p.geojson --breaks 1,2.5,4"
    rasters = rasters(shape=shapes(120, 3_000))
    identified = True
    test_workers_prove_it = test_workers_refuse_mutations = None
    levels = (1.0, 2.5, 4.0)

    def cells(self, shape=(150, 210), dtype=np.int16):
        found = super().cells(shape, dtype) % 7
        return found if shape[0] == 150 else patches(found)

    def counted(self, store):
        return TileStore.open(store).grid.cells

    def make(self, store):
        path = str(store.parent / "p.geojson")
        asked = DrawContours(path, breaks=self.levels)
        return contours_of(TileStore.open(store), asked)

    def outputs(self, store):
        path = store.parent / "p.geojson"
        found = segments_of(lines_of(path), TileStore.open(store).grid.transform)
        return {str(path): as_array(found)}

    def expected(self, data, nodata, grid):
        return [as_array(expected_segments(data, nodata, self.levels))]

    def spoil(self, file, cell):
        """Leave out a line."""
        lines = file.read_text().split("\n")
        first = next(k for k, line in enumerate(lines) if "LineString" in line)
        del lines[first + cell[0]]
        file.write_text("\n".join(lines))

    def full(self, patch, after):
        left, keep = after, LinePieces.keep

        def full(*args):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            return keep(*args)

        patch.setattr(LinePieces, "keep", full)


def patches(cells):
    """Large rasters of squares, so that what the lines need is not all that is measured."""
    rows, cols = cells.shape
    return np.repeat(np.repeat(cells[: rows // 9 + 1, : cols // 9 + 1], 9, 0), 9, 1)[:rows, :cols]


def as_array(segments):
    return np.array(sorted((*key[:1], *key[1], *key[2], n) for key, n in segments.items()))


def write(path, data, transform=PLAIN, nodata=None, block=64):
    grid = GridSpec(*data.shape, transform)
    with terrain_gpu.create_layer(
        path, "elevation", grid, data.dtype, nodata=nodata, block_size=block
    ) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
        target.commit()
    return path


@st.composite
def surfaces(draw):
    """Heights with peaks, saddles, flats, ties with levels, and voids."""
    shape = draw(shapes(150, 6_000))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    dtype = draw(st.sampled_from([np.float32, np.int16, np.uint8, np.float64]))
    if draw(st.booleans()):
        found = rng.integers(0, draw(st.integers(1, 9)), shape).astype(dtype)
    else:
        found = (10 + 5 * np.cumsum(rng.standard_normal(shape), axis=1)).clip(0, 200).astype(dtype)
    holes = rng.random(shape) < draw(st.sampled_from([0, 0.01, 0.3]))
    found[holes] = 99
    return found


LEVELS = st.lists(
    st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.25, 5.0, 7.5, 10.0, 42.0]), min_size=1, unique=True
).map(sorted)


@settings(max_examples=examples(60))
@given(data=surfaces(), levels=LEVELS, transform=transforms(), threads=st.integers(1, 3))
def test_lines_are_marching_squares_for_all_blocks(folders, data, levels, transform, threads):
    texts = set()
    with folders() as folder:
        for block in (64, 256):
            store = write(folder / f"{block}.zarr", data, PLAIN, 99, block)
            file = folder / f"{block}.geojson"
            found = contours(store, file, breaks=levels, threads=threads)
            texts.add(file.read_text())
        lines = lines_of(file)
        store = write(folder / "t.zarr", data, transform, 99)
        contours(store, folder / "t.geojson", breaks=levels)
        elsewhere = lines_of(folder / "t.geojson")
    assert len(texts) == 1
    assert all(shapely.is_valid(shapely.LineString(line)) for _, line in lines)
    assert segments_of(lines) == expected_segments(data, 99, levels)
    assert [level for level, _ in lines] == sorted(level for level, _ in lines)
    assert found.features == len(lines) == len(elsewhere)
    assert found.levels == len({level for level, _ in lines})
    a, _, c, _, e, f = transform
    for (level, line), (same, moved) in zip(lines, elsewhere, strict=True):
        assert level == same
        right = [(c + a * x, f - e * y) for x, y in line]
        np.testing.assert_allclose(moved, right[::-1] if a * e > 0 else right, rtol=1e-9)
    # Lines are as long as they can be: two ends meet only where a level touches a cell's centre.
    ends = Counter()
    for level, line in lines:
        if line[0] != line[-1]:
            ends.update([(level, *line[0], "begin"), (level, *line[-1], "end")])
    for level, x, y, kind in ends:
        if kind == "begin" and (level, x, y, "end") in ends:
            assert x % 1 == 0.5
            assert y % 1 == 0.5


@settings(max_examples=examples(40))
@given(
    data=surfaces(),
    interval=st.sampled_from([0.7, 1.0, 2.5, 10.0]),
    base=st.sampled_from([0.0, -0.3, 1.25]),
)
def test_an_interval_is_a_list_of_breaks(folders, data, interval, base):
    low, high = float(data.min()), float(data.max())
    numbers = np.arange(np.floor((low - base) / interval) - 1, (high - base) / interval + 2)
    levels = [base + k * interval for k in numbers.tolist()]
    with folders() as folder:
        store = write(folder / "s.zarr", data, PLAIN, 99)
        how = {"lines": {}, "areas": {"polygons": True}}
        for name, more in how.items():
            contours(store, folder / f"{name}0.geojson", breaks=levels, **more)
            contours(
                store, folder / f"{name}1.geojson", interval=interval, base=base, **more
            )  # fmt: skip
            one, other = ((folder / f"{name}{k}.geojson").read_text() for k in (0, 1))
            assert one == other


def areas_of(path, shape):
    """The areas of a file with their attributes, painted one by one; checks rings."""
    found = []
    for one in json.loads(path.read_text())["features"]:
        assert shapely.is_valid(shapely.geometry.shape(one["geometry"]))
        several = one["geometry"]["coordinates"]
        for rings in several:
            check_rings(rings)
        polygons = [({"type": "Polygon", "coordinates": rings}, 1) for rings in several]
        how = {"transform": Affine(*PLAIN), "dtype": "int32", "merge_alg": MergeAlg.add}
        painted = features.rasterize(polygons, shape, **how)
        assert painted.max() == 1
        found.append((*one["properties"].values(), painted.astype(bool)))
    return found


@settings(max_examples=examples(60))
@given(data=surfaces(), breaks=LEVELS, cumulative=st.booleans(), last=st.booleans())
def test_areas_contain_the_cells_of_their_band(folders, data, breaks, cumulative, last):
    breaks = breaks + [np.inf] * last
    good, texts = ~is_nodata(data, 99), set()
    with folders() as folder:
        for block in (64, 256):
            store = write(folder / f"{block}.zarr", data, PLAIN, 99, block)
            file = folder / f"{block}.geojson"
            told = contours(store, file, breaks=breaks, polygons=True, cumulative=cumulative)
            texts.add(file.read_text())
        found = areas_of(file, data.shape)
    assert len(texts) == 1
    bounds = [-np.inf, *breaks]
    right = []
    for lower, upper in pairwise(bounds):
        cells = good & (data <= upper)
        if not cumulative:
            cells &= data > lower
        if cells.any():
            low = None if cumulative or lower == -np.inf else lower
            right.append((low, None if upper == np.inf else upper, cells))
    assert told.features == len(found) == len(right)
    for (lower, upper, count, area, painted), (low, high, cells) in zip(found, right, strict=True):
        assert (lower, upper, count) == (low, high, cells.sum())
        assert area == pytest.approx(count)
        np.testing.assert_array_equal(painted, cells)


class TestContourPolygonsContract(FileContract):
    command = "contours s.zarr p.geojson --breaks 1,3 --polygons --cumulative"
    rasters = rasters(shape=shapes(200, 20_000))
    identified = True
    test_its_proof_accepts_it = test_its_proof_refuses_mutations = None
    test_workers_prove_it = test_workers_refuse_mutations = None
    full = TestContourLinesContract.full
    counted = TestContourLinesContract.counted

    def cells(self, shape=(150, 210), dtype=np.int16):
        found = super().cells(shape, dtype) % 7
        return found if shape[0] == 150 else patches(found)

    def make(self, store):
        path = str(store.parent / "p.geojson")
        asked = DrawContours(path, breaks=(1.0, 3.0), polygons=True, cumulative=True)
        return contours_of(TileStore.open(store), asked)

    def outputs(self, store):
        path = store.parent / "p.geojson"
        a, _, c, _, e, f = TileStore.open(store).grid.transform
        found = [
            (
                one["properties"]["upper"],
                one["properties"]["cells"],
                *sorted(
                    (round((x - c) / a), round((y - f) / e))
                    for rings in one["geometry"]["coordinates"]
                    for ring in rings
                    for x, y in ring
                ),
            )
            for one in json.loads(path.read_text())["features"]
        ]
        return {str(path): np.array([hash(one) for one in found])}

    def expected(self, data, nodata, grid):
        found = []
        for upper in (1.0, 3.0):
            mask = ~is_nodata(data, nodata) & (data <= upper)
            if mask.any():
                shapes_ = features.shapes(mask.astype(np.uint8), mask, connectivity=4)
                corners = []
                for shape, _ in shapes_:
                    for ring in shape["coordinates"]:
                        corners += [(round(x), round(y)) for x, y in ring]
                found.append((upper, int(mask.sum()), *sorted(corners)))
        return [np.array([hash(one) for one in found])]


def test_lines_agree_with_gdal(tmp_path):
    """Lengths by level, but for the half cell that GDAL adds at the edge of the raster."""
    contourpy = pytest.importorskip("contourpy")
    rng = np.random.default_rng(4)
    data = np.cumsum(np.cumsum(rng.standard_normal((90, 130)), 0), 1).astype(np.float32)
    store = write(tmp_path / "s.zarr", data)
    contours(store, tmp_path / "c.geojson", interval=7)
    lengths = Counter()
    for level, line in lines_of(tmp_path / "c.geojson"):
        lengths[level] += float(np.hypot(*np.diff(line, axis=0).T).sum())
    theirs = contourpy.contour_generator(z=data.astype(float), name="serial", corner_mask=False)
    for level, length in lengths.items():
        right = sum(np.hypot(*np.diff(line, axis=0).T).sum() for line in theirs.lines(level))
        assert length == pytest.approx(right, rel=1e-3)


def test_none_and_what_is_refused(tmp_path, capfd):
    flat = make_store(tmp_path / "f.zarr", np.full((70, 90), 5, np.int16), None, 64)
    for name in ("c.gpkg", "c.geojson"):
        assert contours(flat, tmp_path / name, interval=10).features == 0
    assert pyogrio.read_info(tmp_path / "c.gpkg")["features"] == 0
    bad = {
        "give one of breaks and interval": {},
        "breaks and interval exclude each other": {"breaks": [1], "interval": 2},
        "interval 0.* is not a finite number above 0": {"interval": 0},
        "interval nan is not": {"interval": np.nan},
        "breaks: 1 follows 2; give them in ascending order": {"breaks": [2, 1]},
        "breaks: 1 follows 1": {"breaks": [1, 1]},
        "breaks: nan is not a finite": {"breaks": [np.nan]},
        "breaks: inf is not a finite": {"breaks": [1, np.inf]},
        "breaks: -inf is not a": {"breaks": [-np.inf], "polygons": True},
        "breaks are empty": {"breaks": []},
        "breaks '1,2': give a list": {"breaks": "1,2"},
        "cumulative areas need polygons and breaks": {"breaks": [1], "cumulative": True},
        "cumulative areas": {"interval": 1, "cumulative": True, "polygons": True},
        "base inf is not": {"interval": 1, "base": np.inf},
        "interval 1e-20 is too small for the value 5": {"interval": 1e-20},
        "interval 1e-21 is too small": {"interval": 1e-21, "polygons": True},
        "the next level beyond the value 5 of the layer is no fin": {"interval": 1e308},
        r"c.gpkg: exists; --overwrite": {"interval": 1, "path": tmp_path / "c.gpkg"},
        r"\.shp.*\.gpkg": {"interval": 1, "path": tmp_path / "c.shp"},
    }
    for match, how in bad.items():
        with pytest.raises(InputError, match=match):
            contours(flat, **{"path": tmp_path / "x.geojson", **how})
    assert not (tmp_path / "x.geojson").exists()
    for words, code in ((["--breaks", "1,x"], 2), (["--breaks", "5"], None)):
        command = ["contours", str(flat), str(tmp_path / "y.gpkg"), *words]
        if code:
            with pytest.raises(SystemExit) as error:
                group.main(command)
            assert error.value.code == code
            assert "'1,x' is not a list of numbers" in capfd.readouterr().err
        else:
            group.main(command, standalone_mode=False)
            assert "y.gpkg: 0 lines of 0 levels" in capfd.readouterr().out


def test_values_that_nearly_overflow(tmp_path):
    """Differences of cells exceed the largest number."""
    data = np.array([[-1.7e308, 1.7e308], [-1.7e308, 1.7e308]])
    store = write(tmp_path / "s.zarr", data)
    contours(store, tmp_path / "c.geojson", breaks=[0.0])
    ((level, line),) = lines_of(tmp_path / "c.geojson")
    assert level == 0
    assert [x for x, _ in line] == [1.0, 1.0]


@pytest.mark.parametrize("top", [5e-324, 1e-323, 3e-323, 2.2e-308])
def test_the_least_numbers(tmp_path, top):
    """Halves of some are 0."""
    store = write(tmp_path / "s.zarr", np.array([[0.0, top, 0.0]] * 3))
    breaks = sorted({5e-324, top})
    contours(store, tmp_path / "c.geojson", breaks=breaks, verify=True, overwrite=True)
    lines = lines_of(tmp_path / "c.geojson")
    assert len(lines) == (2 if top == 5e-324 else 4)
    share = 5e-324 / top
    for level, line in lines:
        along = share if level < top else 1.0
        for x, _ in line:
            assert min(abs(x - 0.5 - along), abs(x - 2.5 + along)) < 1e-15


def test_too_many_crossings_or_too_long_lines(tmp_path):
    rng = np.random.default_rng(2)
    noise = rng.integers(0, 30_000, (1500, 1500)).astype(np.int16)
    store = write(tmp_path / "n.zarr", noise, block=256)
    with pytest.raises(PlanError, match=r"cross [\d,]+ times between the cells of a block; give"):
        contours(store, tmp_path / "c.geojson", interval=1, memory_limit="500MB")
    comb = np.zeros((2000, 2000), np.uint8)
    comb[1:-1, ::2] = 9
    comb[1] = 9
    store = write(tmp_path / "c.zarr", comb, block=256)
    with pytest.raises(PlanError, match=r"contour of level 5 with [\d,]+ vertices; give at least"):
        contours(store, tmp_path / "c.geojson", breaks=[5], memory_limit="500MB")
    assert not (tmp_path / "c.geojson").exists()


@pytest.mark.parametrize("more", [{}, {"polygons": True}])
def test_pieces_are_joined_some_levels_at_a_time(tmp_path, monkeypatch, more):
    noise = np.random.default_rng(2).integers(0, 100, (70, 80)).astype(np.int16)
    store, files = write(tmp_path / "n.zarr", noise, block=64), []
    for at_once in (pieces.JOINING, 100 * pieces.PIECE_BYTES):
        monkeypatch.setattr(pieces, "JOINING", at_once)
        files.append(tmp_path / f"{at_once}.geojson")
        found = contours(store, files[-1], interval=7, **more)
        assert found.levels > 10
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("more", ["--verify", only_long("--polygons")])
def test_memory(tmp_path, more):
    rng = np.random.default_rng(2)
    data = rng.integers(0, 100, (1500, 1500)).astype(np.float32)
    store = write(tmp_path / "n.zarr", data, block=256)
    command = f"terrain-gpu contours {store} {tmp_path}/p.gpkg --breaks 90 --overwrite -q {more}"
    group.main(command.split()[1:], standalone_mode=False)  # compiles
    limit, peak = within(tmp_path, command, 600 * MB)
    assert peak <= limit
