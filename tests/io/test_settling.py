"""Places outside the raster or on cells that cannot be used: refused, left out, moved."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from effort import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.features import rasterize
from test_paths_sources import GRID, at, box, line, point, polygon, rows_of, save

from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.distance import CELLS, Distance
from terrain_gpu.io import covered
from terrain_gpu.io.covered import covered_cells, most_cells
from terrain_gpu.io.places import Places, as_places, from_rowcol, from_vector, from_xy, merge
from terrain_gpu.io.settling import Ground, settle
from terrain_gpu.store import TileStore, create_layer

KINDS = pytest.mark.parametrize("kind", ["geojson", "gpkg"])


def px(cells: int) -> Distance:
    return Distance(cells, CELLS)


def store_of(path, grid=None, **layers):
    """A store with layers of int16 whose nodata is -1."""
    grid = grid or GridSpec(*next(iter(layers.values())).shape)
    for name, data in layers.items():
        with create_layer(path, name, grid, "int16", nodata=-1, block_size=64) as out:
            for i, j in out.blocks.ids():
                r0, r1, c0, c1 = out.block_window(i, j)
                out.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1], np.int16))
            out.commit()
    return TileStore.open(path)


def usable(heights, friction, barriers):
    return (heights != -1) & (friction != -1) & ((barriers == 0) | (barriers == -1))


def settled_plainly(places, good, snap):
    """(row, col, id, cost) of every place that remains, by looking at all cells."""
    found = []
    for feature in sorted(set(places.given.tolist())):
        own = [
            (int(r), int(c), int(i), float(cost))
            for r, c, i, cost, g in zip(
                places.rows, places.cols, places.ids, places.costs, places.given, strict=True
            )
            if g == feature
        ]
        fine = [one for one in own if good[one[:2]]]
        if fine or snap is None:
            found += fine
            continue
        near = [
            ((r - row) ** 2 + (c - col) ** 2, r, c, k)
            for k, (row, col, _, _) in enumerate(own)
            for r, c in np.argwhere(good).tolist()
        ]
        near = [one for one in near if one[0] <= snap**2]
        assert near
        _, r, c, k = min(near)
        found.append((r, c, *own[k][2:]))
    return sorted(found)


@st.composite
def problems(draw):
    rows, cols = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.02, 0.3, 0.9]))
    layers = [np.where(rng.random((rows, cols)) < share, 5, -1) for _ in range(2)]
    layers.append(rng.choice([-1, 0, 1], (rows, cols)))
    n = draw(st.integers(1, 12))
    places = [(int(rng.integers(rows)), int(rng.integers(cols))) for _ in range(n)]
    own = rng.integers(0, n, n) if draw(st.booleans()) else np.arange(n)
    return layers, places, own


@given(problems())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_nearest_usable_cells(tmp_path_factory, problem):
    (heights, friction, barriers), cells, own = problem
    path = tmp_path_factory.mktemp("s") / "s.zarr"
    store = store_of(path, elevation=heights, friction=friction, barriers=barriers)
    ground = Ground([store.layer("elevation"), store.layer("friction")], [store.layer("barriers")])
    good = usable(heights, friction, barriers)
    places = from_rowcol(store.grid, cells)
    places = replace(places, given=own[places.given])
    if not good.any():
        with pytest.raises(InputError, match=r"no usable cell is within 500px|has no valid cells"):
            settle(places, ground, "snap", px(500))
        return
    found = settle(places, ground, "snap", px(500))
    assert sorted(rows_of(found)) == settled_plainly(places, good, 500)
    wanted = settled_plainly(places, good, None)
    if wanted:
        assert sorted(rows_of(settle(places, ground, "skip"))) == wanted
    else:
        with pytest.raises(InputError, match=r"no places left: all are on nodata"):
            settle(places, ground, "skip")


def test_words_about_places_on_nodata(tmp_path, no_fsync, caplog):
    heights = np.full((9, 9), 7)
    heights[4:7, 4:7] = -1
    store = store_of(tmp_path / "s.zarr", elevation=heights)
    ground = Ground([store.layer("elevation")])
    places = replace(from_rowcol(store.grid, [(4, 5), (0, 0), (5, 5)]), names={1: "hut"})
    with pytest.raises(
        InputError,
        match=r"elevation: 2 of 3 huts are on nodata cells: row 4, column 5 \(nearest valid "
        r"cell: row 3, column 5, 1 cell away\), row 5, column 5 \(nearest .* row 3, column 5, 2",
    ):
        settle(places, ground, what="huts")
    with pytest.raises(InputError, match=r"1 of 3 .*; no usable cell is within 1px: move them, or"):
        settle(places, ground, "snap", px(1))
    assert rows_of(settle(places, ground, "skip", what="huts")) == [(0, 0, 2, 0.0)]
    assert caplog.messages == [
        "2 of 3 huts left out (on nodata or impassable cells): hut at row 4, column 5, 3 "
        "at row 5, column 5"
    ]
    caplog.clear()
    assert len(settle(places, ground, "snap", px(2), "huts")) == 3
    assert caplog.messages == [
        "2 of 3 huts moved: hut from row 4, column 5 to row 3, column 5, 3 from row 5, column 5 to "
        "row 3, column 5"
    ]
    with pytest.raises(InputError, match="give snap, such as 3px"):
        settle(places, ground, "snap")
    for cells in 0, 1001:
        with pytest.raises(InputError, match=f"snap '{cells}px': give a distance of 1 to 1000"):
            settle(places, ground, "snap", px(cells))


def test_lengths_are_measured_along_rows_and_columns(tmp_path, no_fsync):
    heights = np.full((9, 30), -1)
    heights[4, 25] = heights[0, 20] = 5
    wide = GridSpec(9, 30, (10, 0, 0, 0, -60, 0), CRS.from_epsg(32633).to_wkt())
    store = store_of(tmp_path / "s.zarr", grid=wide, elevation=heights)
    ground = Ground([store.layer("elevation")])
    start = from_rowcol(store.grid, [(4, 20)])  # 50 m from one, 240 m and 4 cells from the other
    assert rows_of(settle(start, ground, "snap", Distance(50, "m"))) == [(4, 25, 1, 0.0)]
    assert rows_of(settle(start, ground, "snap", px(9))) == [(0, 20, 1, 0.0)]
    with pytest.raises(InputError, match=r"no valid cell|no usable cell is within 49m"):
        settle(start, ground, "snap", Distance(49, "m"))
    with pytest.raises(InputError, match="give a distance of 1 to 1000 cells"):
        settle(start, ground, "snap", Distance(11, "km"))
    outside = {"outside": "snap", "snap": Distance(30, "m")}
    assert rows_of(from_rowcol(wide, [(4, -3)], **outside)) == [(4, 0, 1, 0.0)]
    with pytest.raises(InputError, match="outside the raster"):
        from_rowcol(wide, [(-1, 4)], **outside)


def test_points_outside(caplog):
    points = [at(1.5, 1.5), at(-0.5, 3.5), at(30.5, 0.5), [1e300, -1e300]]
    with pytest.raises(InputError, match=r"outside the raster, which covers .*: point 2"):
        from_xy(GRID, points)
    found = from_xy(GRID, points, outside="skip")
    assert rows_of(found) == [(1, 1, 1, 0.0)]
    assert "3 points left out, outside the raster: point 2" in caplog.text
    caplog.clear()
    with pytest.raises(InputError, match=r"outside the raster, which covers .*: point 4"):
        from_xy(GRID, points, outside="snap", snap=px(19))
    found = from_xy(GRID, points[:3], outside="snap", snap=px(19))
    assert rows_of(found) == [(0, 11, 3, 0.0), (1, 1, 1, 0.0), (3, 0, 2, 0.0)]
    assert "2 points moved into the raster: point 2" in caplog.text
    assert rows_of(from_rowcol(GRID, [(-1, 0), (0, 0)], outside="snap", snap=px(1))) == [
        (0, 0, 1, 0.0),
        (0, 0, 2, 0.0),
    ]
    assert rows_of(from_rowcol(GRID, [(-1, 0), (0, 0)], outside="skip")) == [(0, 0, 2, 0.0)]
    with pytest.raises(InputError, match=r"which has rows 0 .. 9 .*: cell 1 \(row -1, column 0\)"):
        from_rowcol(GRID, [(-1, 0), (0, 0)])


@KINDS
def test_features_outside(tmp_path, kind, caplog):
    shapes = [
        point(2.5, 2.5),
        point(-3.5, 4.5),
        line((-5.5, 1.5), (1.5, 1.5)),
        polygon(box(10, 8, 30, 14)),
        line((14.5, 12.5), (20.5, 12.5)),
    ]
    path = save(kind, tmp_path, *shapes)
    with pytest.raises(InputError, match=r"4 of 5 features are not inside .*-clipdst"):
        from_vector(GRID, path, outside="error")
    inside = {(2, 2, 1), (1, 0, 3), (1, 1, 3), (8, 10, 4), (8, 11, 4), (9, 10, 4), (9, 11, 4)}
    found = from_vector(GRID, path)
    assert {one[:3] for one in rows_of(found)} == inside
    assert "2 features left out (outside the raster): feature 2, feature 5" in caplog.text
    assert "2 features clipped to the raster: feature 3, feature 4" in caplog.text
    found = from_vector(GRID, path, outside="snap", snap=px(5))
    assert {one[:3] for one in rows_of(found)} == inside | {(4, 0, 2), (9, 11, 5)}
    with pytest.raises(InputError, match=r"1 of 5 features are not inside .*: feature 5; clip"):
        from_vector(GRID, path, outside="snap", snap=px(4))
    (tmp_path / "away").mkdir()
    with pytest.raises(InputError, match=r"2 of 2 features are not inside .*; correct its CRS"):
        from_vector(GRID, save(kind, tmp_path / "away", shapes[1], shapes[4]))


def polygons(most=40):
    number = st.floats(-most, most).map(lambda x: round(x, 3))
    ring = st.lists(st.tuples(number, number), min_size=3, max_size=8)
    return ring.map(lambda points: np.array([*points, points[0]], np.float64))


@settings(max_examples=examples(100), deadline=None)
@given(polygons(), st.sampled_from(["LineString", "Polygon"]), st.booleans())
def test_clipped_features_cover_the_same_cells_of_the_raster(ring, kind, all_touched):
    part, shape = (kind, [ring]), (7, 9)
    cells = covered_cells(part, all_touched)
    inside = cells[np.all((cells >= 0) & (cells < shape), axis=1)]
    found = covered_cells(part, all_touched, ((0, 0), shape))
    assert len(found) <= most_cells(part, ((0, 0), shape))
    assert {*map(tuple, found.tolist())} == {*map(tuple, inside.tolist())}


@settings(max_examples=examples(200), deadline=None)
@given(polygons(12), st.integers(0, 30))
@example(np.array([[-9, -9], [0.2, -9], [0.2, 20], [-9, 20], [-9, -9]], float), 0)
def test_cells_of_polygons_are_those_that_gdal_burns(ring, wide):
    """If GDAL burns none of all cells, a polygon covers what it touches."""
    ring = ring * [1, 1 + wide] + [1.37e-4, 2.91e-4]  # so that no centre is on an edge
    outline = {"type": "Polygon", "coordinates": [(ring + 400).tolist()]}
    burnt = rasterize([outline], (830, 830))
    found = covered_cells(("Polygon", [ring]), False, ((0, 0), (7, 9)))
    if burnt.any():
        assert np.array_equal(found, np.argwhere(burnt[400:407, 400:409]))


corner = st.tuples(*2 * [st.integers(-9, 9).map(lambda half: half / 2)])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(corner, min_size=3, max_size=3, unique=True), st.integers(1, 1000))
def test_centres_are_counted_as_they_are_listed(corners, wide):
    ring = np.array([*corners, corners[0]]) * [1, wide]
    assert covered._count_centres(ring) == len(covered._centres([ring], covered.ANYWHERE))


@pytest.mark.parametrize(("tip", "rings", "count"), [(0.9, 1, 4), (1.6, 1, 0), (1.6, 2, 4)])
def test_slivers_of_billions_of_rows_are_seen_at_once(tip, rings, count):
    """Only the second contains centres, far above: the others cover what they touch."""
    ring = np.array([[0.6, -1e9], [1.4, -1e9], [tip, 3e9], [0.6, -1e9]])
    found = covered_cells(("Polygon", rings * [ring]), False, ((0, 0), (2, 2)))
    assert len({*map(tuple, found.tolist())}) == count


def test_features_that_reach_far_beyond_take_no_more_memory(tmp_path):
    wide = polygon(box(-1e7, -1e7, 1e7, 1e7)), line((-1e7, 1.5), (1e7, 1.5))
    found = from_vector(GRID, save("geojson", tmp_path, *wide), memory_limit="400MB")
    assert {one[:2] for one in rows_of(found)} == {
        (r, c) for r in range(GRID.rows) for c in range(GRID.cols)
    }


@KINDS
def test_names_in_place_of_ids(tmp_path, kind):
    shapes = [point(3.5, 3.5), point(1.5, 1.5), point(2.5, 2.5), point(0.5, 0.5)]
    names = ["Zwölf", "b", "Zwölf", "a b"]
    path = save(kind, tmp_path, *shapes, name=names, price=[1.5, 0, 2, 3], osm=[5e9, 7, 8, -1])
    found = from_vector(GRID, path, id_field="name", cost_field="price")
    assert found.names == {1: "Zwölf", 2: "b", 3: "a b"}
    assert rows_of(found) == [(0, 0, 3, 3.0), (1, 1, 2, 0.0), (2, 2, 1, 2.0), (3, 3, 1, 1.5)]
    assert found.given.tolist() == [3, 1, 2, 0]
    assert [found.as_given().called(k) for k in range(4)] == names
    found = from_vector(GRID, path, id_field="osm")
    assert found.names == {1: "5000000000", 2: "7", 3: "8", 4: "-1"}
    found = from_vector(GRID, path, id_field="price", cost_field="price")
    assert set(found.names.values()) == {"1.5", "0", "2", "3"}
    assert not from_vector(GRID, path).names
    for field in ({"id_field": "nam"}, {"cost_field": "nam"}):
        with pytest.raises(InputError, match=r"have no field 'nam', only name, price, osm"):
            from_vector(GRID, path, **field)
    with pytest.raises(InputError, match=r"feature 1 has the name 'Zwölf', which is negative"):
        from_vector(GRID, path, cost_field="name")
    (tmp_path / "gap").mkdir()
    gap = save(kind, tmp_path / "gap", *shapes, name=["a", None, "b", "c"])
    with pytest.raises(InputError, match=r"feature 2 has no name; fill it in"):
        from_vector(GRID, gap, id_field="name")


def test_names_and_order_survive(tmp_path):
    path = save("geojson", tmp_path, point(3.5, 3.5), point(1.5, 1.5), name=["far", "near"])
    found = from_vector(GRID, path, id_field="name")
    several = merge([found, replace(from_rowcol(GRID, [(0, 0)]), ids=np.array([3], np.uint32))])
    kept = as_places(GRID, several, "sources").one_per_cell()
    assert kept.names == {1: "far", 2: "near"}
    assert rows_of(kept.as_given()) == [(3, 3, 1, 0.0), (1, 1, 2, 0.0), (0, 0, 3, 0.0)]
    plain = Places(found.rows, found.cols, found.ids, found.costs)
    assert rows_of(as_places(GRID, plain, "sources")) == rows_of(plain)
    assert json.dumps(kept.names)
