"""Places given as numbers: many at once, and one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from terrain_gpu.errors import InputError
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
