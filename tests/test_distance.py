"""Distances with their unit, and what options without one mean."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from rasterio.crs import CRS

from terrain_gpu import InputError
from terrain_gpu.errors import ArgumentError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.distance import CELLS, MAP_UNITS, Distance, in_unit


def grid(code: int, width: float, height: float, west: float, north: float) -> GridSpec:
    return GridSpec(9, 9, (width, 0, west, 0, -height, north), CRS.from_epsg(code).to_wkt())


METRES = grid(32632, 30, 30, 5e5, 5e6)
FEET = grid(2263, 100, 100, 1e6, 2e5)
DEGREES = grid(4326, 0.01, 0.02, 8, 47)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("200m", Distance(200, "m")),
        ("1.5 KM", Distance(1.5, "km")),
        ("3px", Distance(3, CELLS)),
        ("1 cell", Distance(1, CELLS)),
        ("1e3ft", Distance(1000, "ft")),
        ("40 map units", Distance(40, MAP_UNITS)),
        (Distance(3, CELLS), Distance(3, CELLS)),
    ],
)
def test_units(text: object, found: Distance, caplog: pytest.LogCaptureFixture) -> None:
    assert in_unit(CELLS)("snap", text) == found
    assert in_unit(MAP_UNITS)("snap", str(found)) == found  # as it is shown, it is read again
    assert not caplog.records


@pytest.mark.parametrize("text", ["m", "", "3 parsec", "1.2.3m", "-m", True, [3], None])
def test_what_is_no_distance(text: object) -> None:
    with pytest.raises(ArgumentError, match=r"snap .*: give a distance with its unit"):
        in_unit(CELLS)("snap", text)


@pytest.mark.parametrize("text", ["-1m", -1, float("nan"), "1e999m"])
def test_distances_are_finite_and_not_negative(text: object) -> None:
    with pytest.raises(ArgumentError, match="not a finite number of at least 0"):
        in_unit(CELLS)("snap", text)


def test_numbers_without_a_unit_keep_their_meaning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "terrain_gpu")
    assert in_unit(CELLS)("snap", 5) == Distance(5, CELLS)
    assert in_unit(MAP_UNITS)("min_length", "200") == Distance(200, MAP_UNITS)
    assert caplog.messages == [
        "snap 5 has no unit and means cells; write it, such as 5px",
        "min_length '200' has no unit and means map units (metres in a geographic CRS); write it, "
        "such as 200m",
    ]
    caplog.clear()
    assert in_unit(MAP_UNITS)("min_length", 0) == Distance(0, MAP_UNITS)  # 0 in any unit
    assert not caplog.records


def test_lengths_are_converted_to_the_unit_of_the_map() -> None:
    assert Distance(2, "km").in_map_units(METRES, "snap") == 2000
    assert Distance(1000, "us-ft").in_map_units(FEET, "snap") == pytest.approx(1000)
    assert Distance(1, "km").in_map_units(FEET, "snap") == pytest.approx(3937 / 1.2)
    assert Distance(7, "m").in_map_units(DEGREES, "snap") == 7
    plain = GridSpec(9, 9)
    assert Distance(7, MAP_UNITS).in_map_units(plain, "snap") == 7
    with pytest.raises(InputError, match=r"snap 7m: the raster has no coordinate system.*3px"):
        Distance(7, "m").in_map_units(plain, "snap")
    with pytest.raises(InputError, match=r"min_length .3px.: give a length, such as 200m"):
        Distance(3, CELLS).in_map_units(METRES, "min_length")


def test_cells_are_measured_as_squares() -> None:
    steps, most = Distance(3, CELLS).measured(DEGREES)
    assert (steps == 1).all()
    assert most == 3
    steps, most = Distance(3, "km").measured(DEGREES)
    assert steps.shape == (2, 9)
    assert np.all(steps[1] > 2 * steps[0])  # half as wide as high, and nearer to the pole
    assert most == 3000
