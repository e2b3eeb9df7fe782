"""FlatGeobuf files: what GDAL reads from them, and what the proof of lines does."""

import struct

import numpy as np
import pyogrio
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from rasterio.crs import CRS

from terrain_gpu.grid import GridSpec
from terrain_gpu.io.flatgeobuf import write_flatgeobuf
from terrain_gpu.io.proof.flatgeobuf import read_flatgeobuf
from terrain_gpu.io.tables import write_table

WIDE, HUGE = st.floats(-1e9, 1e9), 2**63 - 1
PLACES = st.tuples(WIDE, WIDE)
SQUARES = st.tuples(WIDE, WIDE, st.floats(1, 1e6)).map(
    lambda at: (
        shapely.box(at[0], at[1], at[0] + at[2], at[1] + at[2])
        - shapely.box(*(at[k] + at[2] * part for part in (0.4, 0.6) for k in (0, 1)))
    )
)
LINES = st.lists(PLACES, min_size=2, max_size=9).map(shapely.LineString)
SHAPES = {
    "Point": PLACES.map(shapely.Point),
    "LineString": LINES,
    "Polygon": SQUARES,
    "MultiLineString": st.lists(LINES, min_size=1, max_size=3).map(shapely.MultiLineString),
    "MultiPolygon": st.lists(SQUARES, min_size=1, max_size=3).map(shapely.MultiPolygon),
}
VALUES = {
    "whole": (np.int64, st.integers(-HUGE, HUGE)),
    "small": (np.uint8, st.integers(0, 255)),
    "real": (np.float64, st.floats(allow_nan=False)),
    "half": (np.float32, st.floats(width=32, allow_nan=False)),
    "text": (object, st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
}
FIELDS = {name: kind for name, (kind, _) in VALUES.items()}
ROWS = st.fixed_dictionaries({name: values for name, (_, values) in VALUES.items()})


def grid_in(code):
    wkt = CRS.from_epsg(code).to_wkt() if code else ""
    return GridSpec(5, 5, (1, 0, 0, 0, -1, 5), wkt, f"EPSG:{code}" if code else None)


@given(st.data(), st.sampled_from(sorted(SHAPES)), st.sampled_from([None, 4326, 32633]))
def test_gdal_reads_what_was_written(folders, data, kind, code):
    shapes = data.draw(st.lists(st.none() | SHAPES[kind], max_size=5))
    rows = [data.draw(ROWS) for _ in shapes]
    wkb = [None if one is None else shapely.to_wkb(one) for one in shapes]
    with folders() as folder:
        file = folder / "f.fgb"
        write_flatgeobuf(file, zip(wkb, rows, strict=True), grid_in(code), "a layer", FIELDS, kind)
        info = pyogrio.read_info(file, force_total_bounds=True, force_feature_count=True)
        _, _, found, columns = pyogrio.raw.read(file)
        again = list(read_flatgeobuf(file, lambda size: True)) if "Line" in kind else None
    assert info["crs"] == (code and f"EPSG:{code}")
    assert (info["features"], info["geometry_type"]) == (len(rows), kind)
    assert info["fields"].tolist() == list(FIELDS)
    there = [one for one in shapes if one is not None]
    if there:
        assert info["total_bounds"] == tuple(shapely.total_bounds(there))
    assert found.tolist() == wkb
    for (name, (numbers, _)), column in zip(VALUES.items(), columns, strict=True):
        right = [row[name] for row in rows]
        assert column.tolist() == (
            right if numbers is object else np.array(right, numbers).tolist()
        )
    if again is not None:
        assert [geometry for _, geometry in again] == wkb
        assert [own for own, _ in again] == [
            {**row, "half": float(np.float32(row["half"]))} for row in rows
        ]


def test_tables(tmp_path):
    columns = {"basin": np.array([1, 2]), "area": np.array([0.5, 7.0])}
    boxes = dict(zip(("west", "south", "east", "north"), np.arange(8.0).reshape(4, 2), strict=True))
    points = {"x": np.array([1.0, 2.0]), "y": np.array([3.0, 4.0])}
    for name, place in (("b.fgb", boxes), ("p.fgb", points)):
        write_table(tmp_path / name, iter([columns | place, columns | place]), grid_in(4326))
        found = pyogrio.read_dataframe(tmp_path / name)
        assert found["area"].tolist() == [0.5, 7.0] * 2
    assert found.geometry.to_wkt().tolist() == ["POINT (1 3)", "POINT (2 4)"] * 2


@pytest.mark.parametrize("rows", [[], [(None, {"n": 7})]])
def test_nothing_to_bound(tmp_path, rows):
    """An extent of zeros, or an infinite one, would be drawn."""
    write_flatgeobuf(tmp_path / "a.fgb", iter(rows), grid_in(4326), "a", {"n": int}, "LineString")
    assert pyogrio.read_dataframe(tmp_path / "a.fgb")["n"].tolist() == [n["n"] for _, n in rows]
    assert pyogrio.read_info(tmp_path / "a.fgb")["total_bounds"] is None


@pytest.mark.parametrize("wrong", ["", "short", "count", "garbage"])
def test_damage_is_told(tmp_path, wrong):
    file, line = tmp_path / "f.fgb", shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)]))
    write_flatgeobuf(file, [(line, {"a": 1})], grid_in(None), "l", {"a": np.int64}, "LineString")
    data = file.read_bytes()
    size = 12 + int.from_bytes(data[8:12], "little")
    spoilt = {
        "": b"",
        "short": data[:-1],
        "count": data + data[size:],
        "garbage": data[:size] + data[size : size + 4] + b"\xff" * (len(data) - size - 4),
    }[wrong]
    file.write_bytes(spoilt)
    with pytest.raises((ValueError, struct.error)):
        list(read_flatgeobuf(file, lambda size: True))
