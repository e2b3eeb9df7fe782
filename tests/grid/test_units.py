"""Units of numbers."""

from types import SimpleNamespace

import pytest

from terrain_gpu.grid.units import range_of


@pytest.mark.parametrize(
    ("least", "greatest", "attributes", "text"),
    [
        (None, None, {"units": "m"}, ""),
        (1, 43749, {}, "1 to 43,749"),
        (2**53, 2**53 + 1, {}, "9,007,199,254,740,992 to 9,007,199,254,740,993"),
        (-0.5, 34.36453628540039, {"units": "degree"}, "-0.5 to 34.3645 degree"),
        (100, 250, {"units": "m", "scale_factor": -0.5, "add_offset": 10}, "-115 to -40 m"),
        (6000.0, 2.5e6, {"units": "m2"}, "0.006 to 2.5 km2"),
        (6000.0, 9e5, {"units": "m2"}, "6000 to 900000 m2"),
    ],
)
def test_the_range_of_a_layer(least, greatest, attributes, text):
    layer = SimpleNamespace(info={"min": least, "max": greatest}, attributes=attributes)
    assert range_of(layer) == text
