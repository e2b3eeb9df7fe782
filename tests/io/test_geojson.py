"""Positions in GeoJSON: the text of `json.dumps`, whatever the numbers."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from terrain_gpu.io.geojson import format_positions, listed, write_geojson

NUMBERS = st.one_of(
    st.floats(),
    st.floats(-1e6, 1e6),
    st.floats(-400, 400).map(lambda x: round(x, 9)),
    st.integers(-(10**15), 10**15).map(lambda k: k / 1e9),
    st.integers(-(10**7), 10**7).map(float),
)


def written(folder, coordinates):
    geometry = {"type": "LineString", "coordinates": coordinates}
    write_geojson(folder / "a.geojson", [({"a": 1}, geometry), ({"a": None}, None)], crs=True)
    return (folder / "a.geojson").read_text(), geometry


def expected(coordinates):
    features = [
        {"type": "Feature", "properties": {"a": a}, "geometry": geometry}
        for a, geometry in (
            (1, {"type": "LineString", "coordinates": coordinates}),
            (None, None),
        )
    ]
    head = '{"type": "FeatureCollection",\n"features": [\n'
    return head + ",\n".join(map(json.dumps, features)) + "\n]}\n"


@given(numbers=st.lists(NUMBERS, min_size=2, max_size=12))
@example([0.0, -0.0])
@example([-0.0001, 0.0001])
@example([9.9999e-05, 1e-9])
@example([math.nextafter(0.5, 1), math.inf])
@example([999999.999999999, -999999.999999999])
@example([1e6, 123456.7])
@example([180.0, -90.0])
@example([math.nan, 1.5])
def test_the_text_is_that_of_json(tmp_path_factory, numbers):
    xy = np.array(numbers[: len(numbers) // 2 * 2]).reshape(-1, 2)
    text, geometry = written(tmp_path_factory.getbasetemp(), xy)
    assert text == expected(xy.tolist())
    assert json.dumps(listed(geometry)["coordinates"]) == json.dumps(xy.tolist())


def test_parts_and_odd_arrays(tmp_path):
    xy = np.round(np.random.default_rng(1).uniform(-180, 180, (50, 2)), 9)
    several = [xy[:3], [xy[::2], np.asfortranarray(xy)], xy[:0]]
    text, geometry = written(tmp_path, several)
    assert text == expected(listed(geometry)["coordinates"])


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_numbers_of_few_digits_are_formatted_fast(decimals):
    xy = np.round(np.random.default_rng(2).uniform(-180, 180, (10_000, 2)), decimals)
    xy[np.abs(xy) < 1e-4] = 1
    text = np.empty(40 * len(xy), np.uint8)
    size = format_positions(xy, text)
    assert text[:size].tobytes().decode() == json.dumps(xy.tolist())
