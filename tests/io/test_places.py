"""Places given as numbers, many at once and one by one; and once round the Earth."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rasterio.crs import CRS
from shapely import Point

from terrain_gpu.cli.places import is_vector
from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.io.places import from_vector, from_xy
from terrain_gpu.io.points import numbers_of

numbers = st.integers(-5, 5) | st.floats() | st.sampled_from([10**400, "3", True])
points = st.lists(numbers, min_size=1, max_size=4) | st.tuples(numbers, numbers)
good = st.tuples(st.integers(0, 9), st.floats(0, 9), st.floats(0, 9))


def outcome(given):
    try:
        return [part.tolist() for part in numbers_of(given, "cell", "row, column")]
    except InputError as error:
        return str(error)


@given(st.lists(points, min_size=1) | st.lists(good, min_size=1))
def test_points_are_the_same_at_once_and_one_by_one(points):
    slow = outcome([*points, (np.int64(0), 0)])  # one of another type: each is looked at
    assert outcome(points) == (slow if isinstance(slow, str) else [part[:-1] for part in slow])


@given(
    arrays.arrays(
        st.sampled_from(["i2", "u8", "f4", "f8"]),
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
        elements={"min_value": 0, "max_value": 9},
    )
)
def test_arrays_are_the_same_as_lists(points):
    assert outcome(points) == outcome(list(points))


# -- longitudes --------------------------------------------------------------------------------


def degrees(west, epsg=4326, side=10.0):
    """18 x 36 cells."""
    wkt = CRS.from_epsg(epsg).to_wkt()
    return GridSpec(18, 36, (side, 0.0, west, 0.0, -side, 9 * side), wkt)


def cells_of(places):
    return [column.tolist() for column in (places.rows, places.cols, places.ids)]


@given(
    st.sampled_from([-180.0, 0.0, -20.0, 170.0, -200.0]),
    st.lists(st.tuples(st.integers(0, 359), st.integers(-89, 89)), min_size=1, max_size=9),
)
def test_points_are_found_once_round_the_earth(west, points):
    there = [((x - west) % 360 + west + 0.5, y + 0.5) for x, y in points]
    right = cells_of(from_xy(degrees(west), there))
    for lowest in (-180, 0):
        given = [((x - lowest) % 360 + lowest, y) for x, y in there]
        assert cells_of(from_xy(degrees(west), given)) == right


SHAPES = {
    "Point": [-75, 45],
    "MultiPoint": [[-75, 45], [-12, 5]],
    "LineString": [[-100, 5], [-70, 60]],
    "Polygon": [[[-100, 5], [-70, 60], [-40, 5], [-100, 5]]],
}


def moved(coordinates, by):
    if isinstance(coordinates[0], list):
        return [moved(one, by) for one in coordinates]
    return [coordinates[0] + by, coordinates[1]]


def test_features_are_found_once_round_the_earth_as_a_whole(tmp_path):
    def read(west, by, extra=()):
        shapes = [(kind, moved(xy, by)) for kind, xy in SHAPES.items()]
        features = [
            {"type": "Feature", "properties": {}, "geometry": {"type": kind, "coordinates": xy}}
            for kind, xy in (*shapes, *extra)
        ]
        file = tmp_path / "f.geojson"
        file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        return cells_of(from_vector(degrees(west), file, outside="error"))

    right = read(-180.0, 0)
    rows, cols, ids = read(0.0, 0)
    order = np.lexsort((ids, np.add(cols, 18) % 36, rows))
    turned = rows, (np.add(cols, 18) % 36).tolist(), ids
    assert [np.array(column)[order].tolist() for column in turned] == right
    assert read(0.0, 360) == read(0.0, 0)
    assert read(-180.0, 360) == right
    with pytest.raises(InputError, match="feature 5"):  # on both sides of the western edge
        read(0.0, 0, [("LineString", [[-5, 5], [5, 5]])])


def test_only_longitudes_are_turned():
    """Nor a place that is elsewhere, too, nor one beyond a part of the Earth."""
    for grid, x in ((degrees(500_000.0, 32633), 499_995.0), (degrees(0.0), 725.0)):
        with pytest.raises(InputError, match="outside the raster"):
            from_xy(grid, [(x, 5.0)])
    with pytest.raises(InputError, match="outside the raster"):
        from_xy(degrees(0.0, side=1.0), [(-75.0, 5.0)])
    # Gradians: 400 of them are the whole circle.
    wkt = CRS.from_epsg(4807).to_wkt()
    grid = GridSpec(20, 40, (10.0, 0.0, 0.0, 0.0, -10.0, 100.0), wkt)
    assert from_xy(grid, [(-5.0, 5.0)]).cols.tolist() == [39]


@pytest.mark.parametrize(
    "name",
    ["p.gpkg", "p.shp", "p.fgb", "p.kml", "p.gml", "p.tab", "p.mif", "p.geojsonl", "p.sqlite"],
)
def test_formats_of_vector_files(name, tmp_path):
    """The commands know them by their names; what has no ids is numbered."""
    points = [Point(7.25, 0.25), Point(7.75, -0.25)]
    frame = geopandas.GeoDataFrame({"Name": ["a", "b"]}, geometry=points, crs=4326)
    drivers = {".mif": "MapInfo File", ".geojsonl": "GeoJSONSeq", ".sqlite": "SQLite"}
    frame.to_file(tmp_path / name, driver=drivers.get(Path(name).suffix))
    assert is_vector(name)
    found = from_vector(degrees(7, side=0.1), tmp_path / name)
    assert found.rows.tolist() == [6, 11]
    assert found.cols.tolist() == [2, 7]
    assert sorted(found.ids) == [1, 2]  # a FlatGeobuf with an index has an order of its own
