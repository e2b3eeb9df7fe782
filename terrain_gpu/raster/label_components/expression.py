"""Conditions on the cells of layers, such as ``0 < elevation <= 100 and not nodata(slope)``.

    condition   either ("or" either)*
    either      part ("and" part)*
    part        "not"* ( "(" condition ")" | "nodata" "(" layer ")" | comparison )
    comparison  operand (("<" | "<=" | ">" | ">=" | "==" | "!=") operand)+
    operand     layer | number

There are three truth values, as in SQL: a comparison with a nodata cell is neither true nor false,
and so is its negation. Python's parser cannot be used, because names of layers may contain a minus
sign or be keywords.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...tokens import COMPARE, Tokens

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z][A-Za-z0-9_-]*)|(?P<sign><=|>=|==|!=|[<>()+-])"
)
_WORDS = ("and", "or", "not", "nodata")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

Number = int | float
Cells = Mapping[str, tuple[np.ndarray, Number | None]]
"""Cells of each layer, all of one shape, and its nodata value."""


@dataclass(frozen=True)
class _Compare:
    """Compares a layer with a number or another layer. Not true where either is nodata."""

    layer: str
    sign: str
    other: str | Number

    def holds(self, cells: Cells) -> np.ndarray:
        data, nodata = cells[self.layer]
        if not isinstance(self.other, str):
            mask = _compare_number(data, self.sign, self.other)
        else:
            other, other_nodata = cells[self.other]
            mask = _compare_cells(data, self.sign, other)
            mask &= ~is_nodata(other, other_nodata)
        if nodata is not None or data.dtype.kind == "f":
            mask &= ~is_nodata(data, nodata)
        return mask


@dataclass(frozen=True)
class _Void:
    """Whether a layer is nodata (`void`), or is not."""

    layer: str
    void: bool

    def holds(self, cells: Cells) -> np.ndarray:
        mask = is_nodata(*cells[self.layer])
        return mask if self.void else ~mask


@dataclass(frozen=True)
class _Joined:
    """The conjunction (`every`) or disjunction of conditions."""

    every: bool
    parts: tuple[_Compare | _Void | _Joined, ...]

    def holds(self, cells: Cells) -> np.ndarray:
        mask = self.parts[0].holds(cells)
        for part in self.parts[1:]:
            (np.logical_and if self.every else np.logical_or)(mask, part.holds(cells), out=mask)
        return mask


_Node = _Compare | _Void | _Joined


class Expression:
    """A parsed condition.

    Parameters
    ----------
    text
        The condition; see the module for its grammar. The words and, or, not and nodata are
        case-insensitive.
    layers
        Names of layers that may occur.

    Attributes
    ----------
    text
        As given.
    layers
        Names that occur, in the order of their first occurrence; at least one.

    Raises
    ------
    InputError
        for a syntax error, an unknown layer or a number that is not finite; the message names the
        position, counted from 1.
    """

    def __init__(self, text: str, layers: Iterable[str]) -> None:
        self.text = text
        parser = _Parser(text, tuple(layers))
        self._root = parser.condition(negated=False)
        if parser.kind:
            parser.fail("'and', 'or' or the end")
        self.layers = tuple(parser.seen)

    def holds(self, cells: Cells) -> np.ndarray:
        """Return where the condition is true; bool, of the cells' shape.

        Integer cells are compared with numbers exactly; a number with a point or an exponent is a
        float64. For real cells, the number is first rounded to their type, so that ``== 0.1`` finds
        cells stored as 0.1. Layers are compared with each other exactly.
        """
        return self._root.holds(cells)


class _Parser(Tokens):
    """A recursive-descent parser that pushes ``not`` down to the comparisons and inverts these."""

    what, pattern, words = "condition", _TOKEN, _WORDS

    def __init__(self, text: str, layers: tuple[str, ...]) -> None:
        super().__init__(text)
        self.layers = layers
        self.seen: dict[str, None] = {}

    def condition(self, *, negated: bool) -> _Node:
        parts = [self.either(negated=negated)]
        while self.take("or"):
            parts.append(self.either(negated=negated))
        return _joined(negated, parts)

    def either(self, *, negated: bool) -> _Node:
        parts = [self.part(negated=negated)]
        while self.take("and"):
            parts.append(self.part(negated=negated))
        return _joined(not negated, parts)

    def part(self, *, negated: bool) -> _Node:
        while self.take("not"):
            negated = not negated
        if self.token == "(":
            return self.inside(lambda: self.condition(negated=negated))
        if self.take("nodata"):
            self.need("(")
            if self.kind != "word":
                self.fail("the name of a layer")
            name = self.operand()
            self.need(")")
            return _Void(str(name), not negated)
        return self.comparison(negated=negated)

    def comparison(self, *, negated: bool) -> _Node:
        start, parts = self.start, list[_Node]()
        left = self.operand()
        while sign := self.take(*COMPARE):
            next_start, right = self.start, self.operand()
            if negated:
                sign = _OPPOSITE[sign]
            if isinstance(left, str):
                parts.append(_Compare(left, sign, right))
            elif isinstance(right, str):
                parts.append(_Compare(right, _MIRROR.get(sign, sign), left))
            else:
                self.start = start
                self.refuse("two numbers are compared; name a layer on one side")
            left, start = right, next_start
        if not parts:
            self.fail("one of " + " ".join(COMPARE))
        return _joined(not negated, parts)

    def operand(self) -> str | Number:
        sign = self.take("-", "+")
        token, kind = self.token, self.kind
        if kind == "number":
            number = self.number(token)
            self.next()
            return -number if sign == "-" else number
        if kind != "word" or sign:
            self.fail("a number" if sign else "the name of a layer or a number")
        self.layer(self.layers)
        self.seen[token] = None
        return token

    def number(self, token: str) -> Number:
        value = self.real()
        return int(token) if token.isdigit() else value


def _joined(every: bool, parts: list[_Node]) -> _Node:
    return parts[0] if len(parts) == 1 else _Joined(every, tuple(parts))


def _compare_number(data: np.ndarray, sign: str, number: Number) -> np.ndarray:
    """Return ``data SIGN number``, cell by cell; see `Expression.holds` for what is exact."""
    if data.dtype.kind == "f":
        with np.errstate(over="ignore"):
            bound = data.dtype.type(float(number))
        return COMPARE[sign](data, bound)
    # Reduce to an integer bound: x < 1.5 is x < 2, x <= 1.5 is x <= 1.
    whole = math.ceil(number) if sign in ("<", ">=") else math.floor(number)
    info = np.iinfo(data.dtype)
    if sign in ("==", "!=") and whole != number:
        return np.full(data.shape, sign == "!=")
    if not info.min <= whole <= info.max:
        return np.full(data.shape, COMPARE[sign](0, whole))
    return COMPARE[sign](data, data.dtype.type(whole))


def _compare_cells(one: np.ndarray, sign: str, other: np.ndarray) -> np.ndarray:
    """Return ``one SIGN other``, exactly: numpy would round 64-bit integers to float64."""
    compare: Callable[[Any, Any], np.ndarray] = COMPARE[sign]
    kinds = {one.dtype.kind, other.dtype.kind}
    if "f" in kinds and any(c.dtype.kind in "iu" and c.dtype.itemsize == 8 for c in (one, other)):
        # On Linux, longdouble has a mantissa of at least 64 bits, enough for both.
        return compare(one.astype(np.longdouble), other.astype(np.longdouble))
    return compare(one, other)
