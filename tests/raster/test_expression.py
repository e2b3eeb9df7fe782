"""Conditions on layers: against plain Python, cell by cell, and against nonsense."""

from __future__ import annotations

import math
import operator
import re
from itertools import pairwise

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import DTYPES, Raster, nodata_values, scalars

from terrain_gpu.errors import InputError
from terrain_gpu.raster.label_components.expression import Expression
from terrain_gpu.tokens import MOST_NESTED

NAMES = ["a", "land-cover_2", "class"]
SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
SHAPE = (3, 7)


@st.composite
def worlds(draw):
    """Three layers of any types, some cells without a value."""
    found = {}
    for name in NAMES:
        dtype = draw(st.sampled_from(DTYPES))
        nodata = draw(nodata_values(dtype))
        kind = draw(st.sampled_from(["ties", "bits", "ramp"]))
        voids = "none" if nodata is None else draw(st.sampled_from(["none", "dense"]))
        seed = draw(st.integers(0, 99))
        found[name] = Raster(dtype, SHAPE, nodata, kind, voids, True, seed)
    return found


def numbers(world):
    """Values of cells, their neighbours, and any others; as Python numbers."""
    some = {v for r in world.values() for v in r.cells.ravel()[:4].tolist() if math.isfinite(v)}
    near = {v + d for v in some for d in (-1, -0.5, 0, 0.5, 1)}
    return st.one_of(
        st.sampled_from(sorted(v for v in near if math.isfinite(v))),
        *(scalars(r.dtype) for r in world.values()),
        st.integers(-(2**70), 2**70),
    )


def trees(world):
    """Conditions as nested tuples."""
    layer = st.sampled_from(NAMES)
    operand = st.one_of(layer, numbers(world))
    signs = st.sampled_from(sorted(SIGNS))

    def chain(parts):
        first, *more = parts
        return ("chain", first[1], [(sign, right) for sign, right in more])

    def names_a_layer(tree):
        ends = [tree[1], *(right for _, right in tree[2])]
        return all(str in map(type, pair) for pair in pairwise(ends))

    chains = st.lists(st.tuples(signs, operand), min_size=2, max_size=4).map(chain)
    leaf = st.one_of(chains.filter(names_a_layer), st.tuples(st.just("nodata"), layer))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=6,
    )


def text_of(tree):
    kind = tree[0]
    if kind == "nodata":
        return f"nodata({tree[1]})"
    if kind == "chain":
        return f" {tree[1]}" + "".join(f" {sign} {right}" for sign, right in tree[2])
    if kind == "not":
        return f"not ({text_of(tree[1])})"
    return f" {kind.upper()} ".join(f"({text_of(part)})" for part in tree[1])


def truth(tree, cell, kinds):
    """True, False, or None where that is unknown: the logic of SQL (S. C. Kleene 1938)."""
    kind = tree[0]
    if kind == "nodata":
        return cell[tree[1]] is None
    if kind == "chain":
        left, found = tree[1], []
        for sign, right in tree[2]:
            found.append(compared(left, sign, right, cell, kinds))
            left = right
    elif kind == "not":
        inner = truth(tree[1], cell, kinds)
        return None if inner is None else not inner
    else:
        found = [truth(part, cell, kinds) for part in tree[1]]
    decisive = kind == "or"
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def compared(left, sign, right, cell, kinds):
    sides = []
    for one, other in ((left, right), (right, left)):
        if isinstance(one, str):
            sides.append(cell[one])
        elif kinds[other].kind == "f":
            with np.errstate(over="ignore"):
                sides.append(kinds[other].type(float(one)).item())
        else:
            sides.append(one)
    return None if None in sides else SIGNS[sign](*sides)


def has_value(value, nodata):
    return math.isfinite(value) and not (nodata is not None and value == nodata)


@settings(max_examples=examples(300))
@given(data=st.data(), world=worlds())
def test_agrees_with_python(data, world):
    tree = data.draw(trees(world))
    found = Expression(text_of(tree), NAMES)
    cells = {name: (world[name].cells, world[name].nodata) for name in found.layers}
    inside = found.holds(cells)
    kinds = {name: raster.dtype for name, raster in world.items()}
    assert inside.shape == SHAPE
    assert inside.dtype == bool
    for at in np.ndindex(SHAPE):
        cell = {}
        for name, raster in world.items():
            value = raster.cells[at].item()
            cell[name] = value if has_value(value, raster.nodata) else None
        assert inside[at] == (truth(tree, cell, kinds) is True)


def test_the_cells_are_left_alone():
    cells = np.arange(6).reshape(2, 3)
    before = cells.copy()
    Expression("not (a > 2 and a < 4) or nodata(a)", ["a"]).holds({"a": (cells, 3)})
    assert np.array_equal(cells, before)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("b>1", ["b"]),
        ("1<b<2 and 3 > a", ["b", "a"]),
        ("\tnot\nnodata ( a )", ["a"]),
        ("a == b or b == a", ["a", "b"]),
        ("not " * 100_000 + "a > 1", ["a"]),
        ("(" * MOST_NESTED + "a > 1" + ")" * MOST_NESTED, ["a"]),
        (" or ".join(["a > 1"] * 20_000), ["a"]),
        ("a != -.5e-1", ["a"]),
    ],
)
def test_layers(text, layers):
    assert Expression(text, ["a", "b", "c"]).layers == tuple(layers)


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "expected the name of a layer or a number, found the end", 1),
        ("   ", "found the end", 4),
        ("a", "expected one of < <= > >= == !=, found the end", 2),
        ("a >", "found the end", 4),
        ("a > 1 or", "found the end", 9),
        ("a > 1 b", "expected 'and', 'or' or the end, found 'b'", 7),
        ("a = 1", "'=' is not allowed in a condition (equality is ==)", 3),
        ("a > 1 && b > 1", "'&' is not allowed", 7),
        ("a > '1'", "is not allowed", 5),
        ("a > \uff19", "is not allowed", 5),
        ("elevaton > 1", "there is no layer 'elevaton', only a, b", 1),
        ("a > 1 and B > 1", "there is no layer 'B'", 11),
        ("1 < 2", "two numbers are compared", 1),
        ("a > 1 < 2", "two numbers are compared", 5),
        ("a > -b", "expected a number, found 'b'", 6),
        ("a > --1", "expected a number, found '-'", 6),
        ("a > 10m", "expected 'and', 'or' or the end, found 'm'", 7),
        ("a > 1e999", "'1e999' is too large for a float64", 5),
        ("a > " + "9" * 5000, "is too large for a float64", 5),
        ("(a > 1", "expected ')', found the end", 7),
        ("a > 1)", "found ')'", 6),
        ("(a) > 1", "found ')'", 3),
        ("nodata(1)", "expected the name of a layer, found '1'", 8),
        ("nodata a", "expected '('", 8),
        ("nodata(a) == 1", "found '=='", 11),
        ("not", "found the end", 4),
        ("(" * 100_000, f"more than {MOST_NESTED} nested parentheses", MOST_NESTED + 1),
        ("a > 1 " * 100_000, "expected 'and', 'or'", 7),
        ("__import__('os')", "is not allowed", 1),
    ],
)
def test_errors_name_the_place(text, reason, position):
    with pytest.raises(InputError) as caught:
        Expression(text, ["a", "b"])
    message = str(caught.value)
    assert reason in message
    assert re.search(rf", at character {position}(; did you mean .*\?)?$", message)
    assert len(message) < 300


WORDS = ["a", "b", "and", "or", "not", "nodata", "(", ")", "1", "-", "<", "<=", "==", ".", "e", "="]


@settings(max_examples=examples(500))
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join)))
def test_anything_is_parsed_or_refused(text):
    try:
        found = Expression(text, ["a", "b"])
    except InputError:
        return
    cells = np.arange(4).reshape(2, 2)
    assert set(found.layers) <= {"a", "b"}
    assert found.holds({name: (cells, 1) for name in found.layers}).shape == cells.shape
