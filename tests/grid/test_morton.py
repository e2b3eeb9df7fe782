"""Z-order codes: one answer from Python ints, numpy and numba, against plain bit interleaving."""

from __future__ import annotations

import subprocess
import sys

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from terrain_gpu.grid import morton

LAST = 2**31 - 1
coordinates = st.one_of(
    st.integers(0, LAST),
    st.integers(0, 31).map(lambda k: min(1 << k, LAST)),
    st.integers(0, 31).map(lambda k: (1 << k) - 1),
)
pairs = st.tuples(coordinates, coordinates)


def interleaved(row: int, col: int) -> int:
    """The definition: bit i of the column at 2 i, bit i of the row at 2 i + 1."""
    return sum(((col >> i & 1) << 2 * i) | ((row >> i & 1) << (2 * i + 1)) for i in range(31))


@pytest.fixture(scope="module")
def compiled():
    morton.register_jitable()
    return tuple(numba.njit(f) for f in (morton.encode, morton.decode_row, morton.decode_col))


@given(pairs)
@example((LAST, LAST))
@example((0, 1))
@example((1, 0))
def test_python_ints_follow_the_definition_and_come_back(pair):
    code = morton.encode(*pair)
    assert code == interleaved(*pair)
    assert (morton.decode_row(code), morton.decode_col(code)) == pair
    assert 0 <= code < 2**62


@given(st.lists(pairs, min_size=1, max_size=50))
def test_numpy_numba_and_python_agree(compiled, drawn):
    rows, cols = np.array(drawn, np.int64).T
    codes = morton.encode(rows, cols)
    assert codes.dtype == np.int64
    assert codes.tolist() == [morton.encode(r, c) for r, c in drawn]
    assert morton.decode_row(codes).tolist() == rows.tolist()
    assert morton.decode_col(codes).tolist() == cols.tolist()
    encode, decode_row, decode_col = compiled
    for r, c in drawn:
        code = encode(r, c)
        assert code == morton.encode(r, c)
        assert (decode_row(code), decode_col(code)) == (r, c)
    assert np.array_equal(encode(rows, cols), codes)
    assert np.array_equal(decode_row(codes), rows)
    assert np.array_equal(decode_col(codes), cols)


def test_numba_stays_in_int64(compiled):
    """int64 mixed with uint64 would become float64 and lose the low bits of large codes."""
    encode, decode_row, decode_col = compiled
    for function, arguments in ((encode, (5, LAST)), (decode_row, (LAST,)), (decode_col, (LAST,))):
        function(*arguments)
        types = [s.return_type for s in function.nopython_signatures if s.args[0] == numba.int64]
        assert types == [numba.int64]


def test_kernels_may_call_it(compiled):
    @numba.njit
    def kernel(rows, cols, out):
        for k in range(rows.size):
            out[k] = morton.decode_row(morton.encode(rows[k], cols[k]))

    rows = np.array([0, 5, LAST], np.int64)
    out = np.empty_like(rows)
    kernel(rows, rows[::-1].copy(), out)
    assert out.tolist() == rows.tolist()


def test_x_is_in_the_lowest_bit():
    assert [morton.encode(r, c) for r, c in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))] == [
        0, 1, 2, 3, 4, 8,
    ]  # fmt: skip


@given(st.lists(pairs, min_size=2, max_size=20))
def test_order_of_codes_is_order_by_quadrants(drawn):
    """Z-order compares the highest differing bits, the row's before the column's."""

    def key(pair):
        return [(pair[0] >> k & 1, pair[1] >> k & 1) for k in reversed(range(31))]

    assert sorted(drawn, key=lambda p: morton.encode(*p)) == sorted(drawn, key=key)


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 32, 64, 128])
def test_z_ranks_number_a_square_without_gaps(side):
    ranks = morton.z_ranks(side)
    assert ranks.dtype == np.int64
    assert ranks.tolist() == [[interleaved(r, c) for c in range(side)] for r in range(side)]
    assert sorted(ranks.ravel().tolist()) == list(range(side * side))


@pytest.mark.parametrize("module", ["terrain_gpu.store", "terrain_gpu.cli.main"])
def test_numba_is_not_imported_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
