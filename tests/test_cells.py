"""Cell types, nodata and statistics against plain definitions; numbers through strict JSON."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import DTYPES, dtypes, extremes, nodata_values, rasters, scalars, shapes

from terrain_gpu import cells
from terrain_gpu.cells import as_scalar, fits, from_json, is_nodata, layer_dtype, stats, to_json
from terrain_gpu.errors import InputError

NAMES = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)]
NAMES += ["float32", "float64"]

# -- types ---------------------------------------------------------------------------------


def test_the_ten_types():
    assert [d.name for d in cells.DTYPES] == NAMES
    assert all(d.byteorder in "<=|" for d in cells.DTYPES)


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_of_a_type_becomes_little_endian(name):
    for spelling in (name, np.dtype(name), np.dtype(name).newbyteorder(">"), getattr(np, name)):
        found = layer_dtype(spelling)
        assert found == np.dtype(name).newbyteorder("<")
        assert found.byteorder in "=|<"


@pytest.mark.parametrize(
    "wrong",
    ["float16", "complex64", "bool", "S3", "datetime64[s]", "i2,i4", "object", "longdouble"],
)
def test_other_types_are_refused_with_the_list(wrong):
    with pytest.raises(InputError, match=r"not supported; use one of uint8, .*float64"):
        layer_dtype(wrong)


@pytest.mark.parametrize("wrong", ["heights", 7.5, "int17", ",", "1;2", "\u0663,\u0663"])
def test_what_is_no_type_at_all(wrong):
    with pytest.raises(InputError, match="is not a cell type"):
        layer_dtype(wrong)


# -- values --------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([v for d in DTYPES for v in extremes(d)]),
    st.sampled_from([v + s for d in DTYPES if d.kind != "f" for v in extremes(d) for s in (-1, 1)]),
    st.sampled_from([1e39, -1e39, 3.5e38, 10**400, -(10**400), 2.0**31, 2.0**63, 2.0**64, 0.5]),
)


def held_exactly(value, dtype):
    """Whether an integer type can hold the value, in exact arithmetic."""
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        return False
    return np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max


@given(numbers, dtypes())
@example(10**400, np.dtype("<f4"))
@example(3.4028235e38, np.dtype("<f4"))
@example(1e300, np.dtype("<f4"))
@example(2.0**63, np.dtype("<i8"))
@example(2.0**63, np.dtype("<u8"))
def test_a_value_fits_or_is_refused(value, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if dtype.kind == "f":
            if isinstance(value, float) and not math.isfinite(value):
                expected = True
            else:
                top = int(np.finfo(dtype).max)
                half_step = 2 ** (104 if dtype.itemsize == 4 else 971) // 2
                expected = abs(int(value)) < top + half_step
        else:
            expected = held_exactly(value, dtype)
        assert fits(value, dtype) is expected
        if not expected:
            with pytest.raises(InputError, match=r"^level .*does not fit cells of type"):
                as_scalar(value, dtype, "level")
            return
        held = as_scalar(value, dtype)
    assert isinstance(held, float if dtype.kind == "f" else int)
    if dtype.kind == "f":
        assert (
            np.array(held, dtype).tobytes() == np.array(value, np.float64).astype(dtype).tobytes()
        )
        assert math.isnan(held) or dtype.type(held).item() == held
    else:
        assert held == value


@given(dtypes(), st.data())
def test_values_of_the_type_stay(dtype, data):
    value = data.draw(scalars(dtype))
    assert fits(value, dtype)
    assert as_scalar(value, dtype) == value


@pytest.mark.parametrize(
    ("value", "ok"),
    [
        (np.float32(1.5), False),
        (np.float32(3), True),
        (np.float64(1.5), False),
        (np.float32("nan"), False),
        (np.float32("inf"), False),
        (np.int64(7), True),
        (np.int64(2**40), False),
        (np.uint64(2**64 - 1), False),
    ],
)
def test_numpy_scalars_count_by_their_value(value, ok):
    dtype = np.dtype("<i2")
    assert fits(value, dtype) is ok
    if ok:
        assert as_scalar(value, dtype) == int(value)
        assert type(as_scalar(value, dtype)) is int
    else:
        with pytest.raises(InputError, match="does not fit cells of type int16"):
            as_scalar(value, dtype)


# -- nodata and statistics -----------------------------------------------------------------


def plainly_empty(value, nodata, dtype):
    if dtype.kind == "f" and not math.isfinite(value):
        return True
    return nodata is not None and value == nodata


@given(rasters(shape=shapes(20)))
def test_nodata_mask_and_statistics_follow_the_definition(raster):
    data, nodata, dtype = raster.cells, raster.nodata, raster.dtype
    values = data.ravel().tolist()
    empty = [plainly_empty(v, nodata, dtype) for v in values]
    mask = is_nodata(data, nodata)
    assert mask.dtype == bool
    assert mask.shape == data.shape
    assert mask.ravel().tolist() == empty
    found = stats(data, nodata)
    have = [v for v, e in zip(values, empty, strict=True) if not e]
    assert found.valid == len(have)
    assert found.low == (min(have) if have else None)
    assert found.high == (max(have) if have else None)
    json.dumps([found.valid, found.low, found.high], allow_nan=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nodata_at_either_end_and_in_the_middle(dtype):
    """The shortcut for blocks without nodata looks at min and max: try every place of the value."""
    row = np.array([3, 5, 9], dtype)
    for nodata, expected in (
        (3, (2, 5, 9)),
        (5, (2, 3, 9)),
        (9, (2, 3, 5)),
        (4, (3, 3, 9)),
        (0, (3, 3, 9)),
        (100, (3, 3, 9)),
        (None, (3, 3, 9)),
    ):
        found = stats(row, as_scalar(nodata, dtype) if nodata is not None else None)
        assert (found.valid, found.low, found.high) == expected


# -- JSON ----------------------------------------------------------------------------------


@given(dtypes(), st.data())
def test_numbers_survive_strict_json(dtype, data):
    value = data.draw(nodata_values(dtype))
    text = json.dumps(to_json(value), allow_nan=False)
    back = from_json(json.loads(text))
    if value is None:
        assert back is None
    else:
        assert np.array(back, dtype).tobytes() == np.array(value, dtype).tobytes()


def test_spelling_of_what_json_lacks():
    assert [to_json(v) for v in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("wrong", ["nan", "-9999", "", True, False, [], [1], {}, "inf"])
def test_what_is_no_number_in_json(wrong):
    with pytest.raises(InputError, match="is not a number"):
        from_json(wrong)
