"""Edge weights: keys that sort like the weights, exact sums."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from functools import reduce

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import exact_sum, slope_of, weight_of
from strategies import DTYPES, extremes, nodata_values, same_bits, scalars

from terrain_gpu.errors import InputError
from terrain_gpu.spanning_tree.cpu.keys import add_weight, edge_key
from terrain_gpu.spanning_tree.cpu.operands import vertices_of
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight, valid_cells
from terrain_gpu.wide import words_of


@numba.njit
def keys_of(cells, rule, found):
    for k in range(len(found)):
        found[k] = edge_key(cells[2 * k], cells[2 * k + 1], rule)
    return found


@numba.njit
def sum_of(keys, sums, mode):
    for k in keys:
        add_weight(sums, k, mode)


def keys(weight, cells):
    rule = np.float64(1 / LENGTH) if weight.slopes else weight.rule()
    return keys_of(weight.operands(cells), rule, np.empty(len(cells) // 2, weight.key_dtype))


LENGTH = 28.28
KINDS = [(name, dtype) for dtype in DTYPES for name in WEIGHTS]


@pytest.mark.parametrize(("name", "dtype"), KINDS, ids=str)
@given(data=st.data())
def test_keys_have_the_order_of_the_weights_and_sums_are_exact(name, dtype, data):
    values = data.draw(st.lists(scalars(dtype), min_size=2, max_size=40))
    cells = np.array(values[: len(values) // 2 * 2], dtype)
    weight = Weight(name, dtype)
    as_array = keys(weight, cells)
    found = list(zip(*(word.tolist() for word in words_of(as_array)[::-1]), strict=True))
    plain = [weight_of(a, b, name) for a, b in cells.reshape(-1, 2)]
    order = plain
    if name == "flow":
        slopes = [-slope_of(a, b, LENGTH) for a, b in cells.reshape(-1, 2)]
        order = list(zip(plain, slopes, strict=True))
    for key, w in zip(found, order, strict=True):
        for other_key, other_w in zip(found, order, strict=True):
            assert (key < other_key) == (w < other_w)
            assert (key == other_key) == (w == other_w)
    sums = weight.new_sums()
    sum_of(as_array, sums, weight.sum_mode)
    at_once = weight.new_sums()
    weight.add(at_once, as_array)
    assert np.array_equal(at_once, sums)
    total = weight.rounded(weight.exact(sums, len(found)))
    expected = exact_sum(plain)
    assert total == expected
    assert isinstance(total, int) == (dtype.kind != "f")


@pytest.mark.parametrize(("name", "dtype"), KINDS, ids=str)
@given(data=st.data())
def test_one_pass_gives_operands_and_vertices_as_numpy_does(name, dtype, data):
    nodata = data.draw(nodata_values(dtype))
    special = [*extremes(dtype), *([nodata] if nodata is not None else [])]
    special += [math.nan, -math.nan, math.inf, -math.inf] if dtype.kind == "f" else []
    shape = data.draw(st.sampled_from([(1, 1), (1, 67), (67, 1), (13, 17), (64, 128)]))
    chosen = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, len(special), shape)
    cells, weight = np.array(special, dtype)[chosen], Weight(name, dtype)
    room = np.empty(cells.size + 5, weight.operand_dtype)
    found, valid = vertices_of(weight, cells, nodata, room)
    assert np.shares_memory(found, room)
    assert np.array_equal(valid, valid_cells(cells, nodata))
    plain = weight.operands(cells)
    assert same_bits(found, plain + 0 if plain.dtype.kind == "f" else plain)


@pytest.mark.parametrize("nodata", [-0.0, 0.0, -1e-50, 1e-50, -1e-46, 1e300, -1e300])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nodata_that_is_zero_in_the_type_of_the_cells(dtype, nodata):
    cells = np.array([[0.0, -0.0, 1, -1, 1e-40, np.inf]], dtype)
    weight = Weight("max", cells.dtype)
    with np.errstate(over="ignore"):
        _, valid = vertices_of(weight, cells, nodata, np.empty(6, weight.operand_dtype))
        assert np.array_equal(valid, valid_cells(cells, nodata))


def test_float_sums_are_correctly_rounded_where_plain_ones_are_not():
    dtype = np.dtype("<f8")
    weight = Weight("max", dtype)
    values = [1e100, 1.0, -1e100, 2.0**-1074, 1e-3]
    cells = np.repeat(np.array(values, dtype), 2)
    sums = weight.new_sums()
    sum_of(keys(weight, cells), sums, weight.sum_mode)
    assert weight.rounded(weight.exact(sums, 5)) == float(sum(map(Fraction, values)))
    assert reduce(operator.add, values) != float(sum(map(Fraction, values)))  # `sum` compensates


def test_a_difference_beyond_the_type_is_infinite():
    weight = Weight("absdiff", np.dtype("<f4"))
    cells = np.array([3e38, -3e38], np.float32)
    with np.errstate(over="ignore"):
        found = keys(weight, cells)
    sums = weight.new_sums()
    sum_of(found, sums, weight.sum_mode)
    at_once = weight.new_sums()
    weight.add(at_once, found)
    assert np.array_equal(at_once, sums)
    assert math.isinf(weight.rounded(weight.exact(sums, 1)))


def test_negative_and_positive_zero_are_one_value():
    weight = Weight("max", np.dtype("<f4"))
    assert len(set(weight.operands(np.array([0.0, -0.0], np.float32)).tolist())) == 1


def test_unknown_weights_are_refused():
    with pytest.raises(InputError, match="mean"):
        Weight("mean", np.dtype("u1"))
