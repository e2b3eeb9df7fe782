"""Arithmetic over cells, such as ``where(slope > 30, 9, friction) + 2 * distance``.

    either      both ("or" both)*
    both        negation ("and" negation)*
    negation    "not"* comparison
    comparison  sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)*
    sum         product (("+" | "-") product)*
    product     factor (("*" | "/") factor)*
    factor      ("+" | "-")* ( number | layer | function "(" either ("," either)* ")" | grouped )
    grouped     "(" either ")"

Names of layers that contain a minus sign or are words of this language are given in double quotes.
There are two types of numbers: int64, of integer layers and whole numbers, and float64. Cells of a
uint64 layer keep their type until they enter a computation. A quotient is a float64, a condition is
0 or 1. A result is nodata where an operand is, with three exceptions: `nodata`, `coalesce`, and the
branch that `where` does not take. `and` and `or` are those of SQL, where an unknown operand may not
matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...cells import is_nodata
from ...plurals import counted
from ...tokens import COMPARE, Tokens

CONDITION, INTEGER, REAL = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64)
_UNSIGNED = np.dtype(np.uint64)

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r'|(?P<word>[A-Za-z][A-Za-z0-9_]*)|"(?P<quoted>[^"]*)"|(?P<sign><=|>=|==|!=|[<>()+*/,-])'
)
_FUNCTIONS = {
    "abs": (1, 1),
    "sqrt": (1, 1),
    "nodata": (1, 1),
    "min": (2, 20),
    "max": (2, 20),
    "coalesce": (2, 20),
    "where": (3, 3),
}
"""The fewest and the most arguments of each function."""
_WORDS = ("and", "or", "not")


class Cells(NamedTuple):
    """Cells of one shape: values, and which of them are unknown; there the value is anything."""

    values: np.ndarray
    void: np.ndarray


class TooLarge(Exception):
    """An integer does not fit an int64; holds the index of the cell."""


Layers = Mapping[str, Cells]
Compute = Callable[[Layers], Cells]
Join = Callable[[Cells, Cells], Cells]


@dataclass(frozen=True)
class _Term:
    """A part of an expression: how it is computed, and the type of its values."""

    compute: Compute
    kind: np.dtype


class Arithmetic:
    """A parsed expression.

    Parameters
    ----------
    text
        The expression; see the module for its grammar.
    dtypes
        Types of the layers that may occur, by name.

    Attributes
    ----------
    text
        As given.
    layers
        Names that occur, in the order of their first occurrence; at least one.
    kind
        Type of the values: bool, int64 or float64; uint64 of a layer alone.
    parts
        Number of operations, layers and numbers.

    Raises
    ------
    InputError
        for a syntax error, an unknown layer, or a number that fits neither int64 nor float64; the
        message names the position, counted from 1.
    """

    def __init__(self, text: str, dtypes: Mapping[str, np.dtype]) -> None:
        self.text = text
        parser = _Sums(text, dtypes)
        root = parser.either()
        if parser.kind:
            parser.fail("an operator or the end")
        if not parser.seen:
            parser.refuse("names no layer; name at least one")
        self._root, self.kind, self.parts = root, root.kind, parser.parts
        self.layers = tuple(parser.seen)

    def over(self, cells: Mapping[str, tuple[np.ndarray, float | int | None]]) -> Cells:
        """Compute the values of cells, given those of each layer and its nodata value.

        Raises
        ------
        TooLarge
            when an integer to compute with, or a result, does not fit an int64.
        """
        layers = {name: _known(data, nodata) for name, (data, nodata) in cells.items()}
        with np.errstate(all="ignore"):
            return self._root.compute(layers)


def _known(data: np.ndarray, nodata: float | int | None) -> Cells:
    return Cells(data.astype(_kind_of(data.dtype)), is_nodata(data, nodata))


def _kind_of(dtype: np.dtype) -> np.dtype:
    """The type that cells of a layer have in expressions."""
    if dtype.kind == "f":
        return REAL
    return _UNSIGNED if dtype == _UNSIGNED else INTEGER


def _refuse(beyond: np.ndarray) -> None:
    if beyond.any():
        raise TooLarge(int(np.argmax(beyond)))


def _as(cells: Cells, kind: np.dtype) -> Cells:
    if cells.values.dtype == kind:
        return cells
    if cells.values.dtype == _UNSIGNED and kind == INTEGER:
        _refuse(~cells.void & (cells.values > np.uint64(2**63 - 1)))
    return Cells(cells.values.astype(kind), cells.void)


def _common(nodes: Sequence[_Term]) -> np.dtype:
    return REAL if any(node.kind == REAL for node in nodes) else INTEGER


def _real(values: np.ndarray, void: np.ndarray) -> Cells:
    """Return real numbers; infinities and NaN become nodata."""
    return Cells(values, void | ~np.isfinite(values))


def _joined(first: _Term, rest: Sequence[tuple[Join, _Term]], kind: np.dtype) -> _Term:
    """A term and others, joined one after another: by a loop, as there may be thousands."""

    def compute(layers: Layers) -> Cells:
        result = first.compute(layers)
        for join, term in rest:
            result = join(result, term.compute(layers))
        return result

    return _Term(compute, kind) if rest else first


def _calculated(first: _Term, rest: Sequence[tuple[str, _Term]]) -> _Term:
    """Sums or products, by their signs."""
    kind, steps = first.kind, list[tuple[Join, _Term]]()
    for sign, term in rest:
        kind = REAL if REAL in (kind, term.kind) or sign == "/" else INTEGER
        steps.append((partial(_calculate, sign, kind), term))
    return _joined(first, steps, kind)


def _calculate(sign: str, kind: np.dtype, one: Cells, other: Cells) -> Cells:
    (a, a_void), (b, b_void) = _as(one, kind), _as(other, kind)
    void = a_void | b_void
    if sign == "/":
        return _real(a / b, void)
    result = {"+": np.add, "-": np.subtract, "*": np.multiply}[sign](a, b)
    if kind == REAL:
        return _real(result, void)
    # Integers wrap around; a sum has then a sign that none of its terms has.
    if sign == "*":
        large = ~void & (np.abs(a.astype(REAL) * b.astype(REAL)) > 2.0**62)
        if large.any():
            # On Linux, longdouble has a mantissa of at least 64 bits: exact around 2**63.
            product = a.astype(np.longdouble) * b.astype(np.longdouble)
            _refuse(large & ((product >= 2.0**63) | (product < -(2.0**63))))
    else:
        addend = b if sign == "+" else ~b
        _refuse(~void & (((a ^ result) & (addend ^ result)) < 0))
    return Cells(result, void)


def _compared(sign: str, one: _Term, other: _Term) -> _Term:
    def compute(layers: Layers) -> Cells:
        a, b = one.compute(layers), other.compute(layers)
        x, y = a.values, b.values
        if x.dtype.kind != y.dtype.kind:
            # On Linux, longdouble has a mantissa of 64 bits: all of both types are exact.
            x, y = x.astype(np.longdouble), y.astype(np.longdouble)
        return Cells(COMPARE[sign](x, y), a.void | b.void)

    return _Term(compute, CONDITION)


def _truth(cells: Cells) -> np.ndarray:
    return cells.values if cells.values.dtype == CONDITION else cells.values != 0


def _decide(every: bool, a: Cells, b: Cells) -> Cells:
    """The conjunction (`every`) or disjunction; an operand decides alone where it can."""
    x, y = _truth(a), _truth(b)
    decided = (~a.void & (x != every)) | (~b.void & (y != every))
    values = np.where(decided, not every, x & y if every else x | y)
    return Cells(values, (a.void | b.void) & ~decided)


_all, _any = partial(_decide, True), partial(_decide, False)


def _negated(term: _Term) -> _Term:
    def compute(layers: Layers) -> Cells:
        cells = term.compute(layers)
        return Cells(~_truth(cells), cells.void)

    return _Term(compute, CONDITION)


def _constant(number: float | int) -> _Term:
    kind = REAL if isinstance(number, float) else INTEGER

    def compute(layers: Layers) -> Cells:
        shape = next(iter(layers.values())).values.shape
        return Cells(np.full(shape, number, kind), np.zeros(shape, bool))

    return _Term(compute, kind)


def _called(name: str, arguments: list[_Term]) -> _Term:
    """A function of its arguments."""
    if name == "nodata":

        def missing(layers: Layers) -> Cells:
            void = arguments[0].compute(layers).void
            return Cells(void, np.zeros(void.shape, bool))

        return _Term(missing, CONDITION)
    if name == "sqrt":

        def root(layers: Layers) -> Cells:
            result = _as(arguments[0].compute(layers), REAL)
            return _real(np.sqrt(result.values), result.void)

        return _Term(root, REAL)
    kind = _common(arguments[1:] if name == "where" else arguments)

    def compute(layers: Layers) -> Cells:
        if name == "where":
            test = arguments[0].compute(layers)
            yes, no = (_as(node.compute(layers), kind) for node in arguments[1:])
            chosen = _truth(test)
            void = test.void | np.where(chosen, yes.void, no.void)
            return Cells(np.where(chosen, yes.values, no.values), void)
        result = _as(arguments[0].compute(layers), kind)
        if name == "abs":
            if kind == INTEGER:
                _refuse(~result.void & (result.values == np.iinfo(INTEGER).min))
            return Cells(np.abs(result.values), result.void)
        for node in arguments[1:]:
            operand = _as(node.compute(layers), kind)
            if name == "coalesce":
                values = np.where(result.void, operand.values, result.values)
                result = Cells(values, result.void & operand.void)
            else:
                better = COMPARE["<" if name == "min" else ">"](operand.values, result.values)
                values = np.where(better, operand.values, result.values)
                result = Cells(values, result.void | operand.void)
        return result

    return _Term(compute, kind)


class _Sums(Tokens):
    """A recursive-descent parser."""

    what, pattern, words = "expression", _TOKEN, _WORDS

    def __init__(self, text: str, dtypes: Mapping[str, np.dtype]) -> None:
        super().__init__(text)
        self.dtypes = dtypes
        self.seen: dict[str, None] = {}
        self.parts = 0

    def made(self, node: _Term) -> _Term:
        self.parts += 1
        return node

    def either(self) -> _Term:
        first, rest = self.both(), list[tuple[Join, _Term]]()
        while self.take("or"):
            rest.append((_any, self.made(self.both())))
        return _joined(first, rest, CONDITION)

    def both(self) -> _Term:
        first, rest = self.negation(), list[tuple[Join, _Term]]()
        while self.take("and"):
            rest.append((_all, self.made(self.negation())))
        return _joined(first, rest, CONDITION)

    def negation(self) -> _Term:
        negated = False
        while self.take("not"):
            negated = not negated
        term = self.comparison()
        return self.made(_negated(term)) if negated else term

    def comparison(self) -> _Term:
        left, parts = self.sum(), list[_Term]()
        while sign := self.take(*COMPARE):
            right = self.sum()
            parts.append(self.made(_compared(sign, left, right)))
            left = right
        if not parts:
            return left
        return _joined(parts[0], [(_all, self.made(one)) for one in parts[1:]], CONDITION)

    def sum(self) -> _Term:
        first, rest = self.product(), list[tuple[str, _Term]]()
        while sign := self.take("+", "-"):
            rest.append((sign, self.made(self.product())))
        return _calculated(first, rest)

    def product(self) -> _Term:
        first, rest = self.factor(), list[tuple[str, _Term]]()
        while sign := self.take("*", "/"):
            rest.append((sign, self.made(self.factor())))
        return _calculated(first, rest)

    def factor(self) -> _Term:
        minus = False
        while sign := self.take("+", "-"):
            minus ^= sign == "-"
        if minus and self.kind == "number":
            number = self.number()
            return self.made(_constant(-number))
        term = self.atom()
        return self.made(_calculated(_constant(0), [("-", term)])) if minus else term

    def atom(self) -> _Term:
        if self.kind == "number":
            return self.made(_constant(self.number()))
        if self.token == "(" and self.kind == "sign":
            return self.inside(self.either)
        if (
            self.kind == "word"
            and self.token in _FUNCTIONS
            and self.text[self.end :].lstrip()[:1] == "("
        ):
            return self.function()
        if self.kind not in ("word", "quoted"):
            self.fail("a layer, a number or a function")
        name = self.layer(self.dtypes)
        self.seen[name] = None
        return self.made(_Term(lambda layers: layers[name], _kind_of(self.dtypes[name])))

    def function(self) -> _Term:
        name, start = self.token, self.start
        least, most = _FUNCTIONS[name]
        self.next()
        arguments: list[_Term] = []

        def parse_arguments() -> _Term:
            arguments.append(self.either())
            while self.take(","):
                arguments.append(self.either())
            return arguments[0]

        self.inside(parse_arguments)
        if not least <= len(arguments) <= most:
            self.start = start
            count = counted(least, "argument") if least == most else f"{least} to {most} arguments"
            self.refuse(f"{name} takes {count}, not {len(arguments)}")
        return self.made(_called(name, arguments))

    def number(self) -> float | int:
        token = self.token
        if token.isdigit():
            if len(token) > 19 or int(token) >= 2**63:
                self.refuse(f"{token[:40]!r} is too large for an int64")
            self.next()
            return int(token)
        number = self.real()
        self.next()
        return number
