"""Arithmetic over cells once more, for proofs: `evaluate`.

The language is that of `calc.arithmetic`, the algorithm a different one: an expression is evaluated
while it is read, by the precedence of its operators. Every value is one array, in which NaN stands
for nodata: float64 for real numbers, and extended precision, with a mantissa of at least 64 bits,
for integers, which it holds exactly.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import partial, reduce

import numpy as np

from ...tokens import COMPARE

REAL, WHOLE = np.dtype(np.float64), np.dtype(np.longdouble)

_TOKEN = re.compile(
    r'\s*(?:("[^"]*")|([A-Za-z]\w*)|(\d+(?![\d.eE]))|([\d.]+(?:[eE][+-]?\d+)?)|([<>=!]=|\S))', re.A
)
_WORD, _INTEGER, _NUMBER, _SIGN = 2, 3, 4, 5
"""Groups of the pattern; the first is a name in quotes."""

_NOT, _COMPARISON = 3, 4
_STRENGTH = {"or": 1, "and": 2, **dict.fromkeys(COMPARE, _COMPARISON), "+": 5, "-": 5}
_STRENGTH |= {"*": 6, "/": 6}
"""How strongly operators bind."""


def evaluate(text: str, layers: Mapping[str, np.ndarray]) -> np.ndarray:
    """Compute a valid expression over layers.

    Parameters
    ----------
    layers
        By name; float64 or extended precision, of one shape, NaN where there is no value.

    Returns
    -------
    numpy.ndarray
        float64 for a real result, else extended precision; NaN where there is no value.
    """
    with np.errstate(all="ignore"):
        result = _Evaluator(text, layers).operation(0)
    return np.broadcast_to(result, next(iter(layers.values())).shape)


class _Evaluator:
    """Reads an expression from the left, and computes what is complete."""

    def __init__(self, text: str, layers: Mapping[str, np.ndarray]) -> None:
        self._tokens = [(one.lastindex, one[one.lastindex or 0]) for one in _TOKEN.finditer(text)]
        self._tokens.reverse()
        self._layers = layers

    def _sign(self) -> str:
        """The next token, if it is a sign, or an operator in letters."""
        kind, token = self._tokens[-1] if self._tokens else (_SIGN, "")
        if kind == _WORD and token.lower() in ("and", "or", "not"):
            return token.lower()
        return token if kind == _SIGN else ""

    def _odd(self, sign: str, other: str = "") -> tuple[bool, bool]:
        """Consume signs; returns whether there were any, and an odd number of `sign`."""
        seen = odd = False
        while (token := self._sign()) and token in (sign, other):
            self._tokens.pop()
            seen, odd = True, odd ^ (token == sign)
        return seen, odd

    def operation(self, least: int) -> np.ndarray:
        """Compute operators that bind more strongly than `least`."""
        has_not, inverted = self._odd("not")
        if has_not:
            result = self.operation(_NOT)
            result = _known(1 - (result != 0), result) if inverted else result
        else:
            result = self._operand()
        while (strength := _STRENGTH.get(sign := self._sign(), 0)) > least:
            if strength == _COMPARISON:
                result = self._comparisons(result)
                continue
            self._tokens.pop()
            result = _OPERATORS[sign](result, self.operation(strength))
        return result

    def _comparisons(self, left: np.ndarray) -> np.ndarray:
        """Compute a < b < c, which means a < b and b < c."""
        result = np.ones((), WHOLE)
        while (sign := self._sign()) in COMPARE:
            self._tokens.pop()
            right = self.operation(_COMPARISON)
            result = _both(result, _compared(sign, left, right))
            left = right
        return result

    def _operand(self) -> np.ndarray:
        _, negated = self._odd("-", "+")
        kind, token = self._tokens.pop()
        if kind in (_INTEGER, _NUMBER):
            number = (WHOLE if kind == _INTEGER else REAL).type(token)
            number = -number if negated else number
            return np.asarray(number + 0 if kind == _INTEGER else number)  # no negative 0
        if token == "(":
            value = self.operation(0)
            self._tokens.pop()
        elif kind == _WORD and token in _FUNCTIONS and self._sign() == "(":
            arguments = []
            while self._tokens.pop()[1] != ")":  # a parenthesis or a comma
                arguments.append(self.operation(0))
            value = _FUNCTIONS[token](*arguments)
        else:
            value = self._layers[token.strip('"')]
        return _OPERATORS["-"](np.zeros((), WHOLE), value) if negated else value


def _alike(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
    """As real numbers, if one of them is."""
    real = any(one.dtype == REAL for one in operands)
    return tuple(one.astype(REAL if real else WHOLE) for one in operands)


def _known(values: np.ndarray, *of: np.ndarray) -> np.ndarray:
    """Integers, but NaN where one of the others is."""
    void = reduce(operator.or_, map(np.isnan, of))
    return np.where(void, np.nan, values.astype(WHOLE))


def _calculated(function: Callable[..., np.ndarray], *operands: np.ndarray) -> np.ndarray:
    values = function(*_alike(*operands))
    if values.dtype == REAL:
        return np.where(np.isfinite(values), values, np.nan)
    return values + 0  # integers have no negative 0


def _real(function: Callable[..., np.ndarray], *operands: np.ndarray) -> np.ndarray:
    return _calculated(function, *(one.astype(REAL) for one in operands))


def _compared(sign: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one.dtype != other.dtype:  # extended precision holds both exactly
        one, other = one.astype(WHOLE), other.astype(WHOLE)
    return _known(COMPARE[sign](one, other), one, other)


def _both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    false = (one == 0) | (other == 0)
    return np.where(false, 0, _known(~false, one, other))


def _either(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    true = ((one != 0) & ~np.isnan(one)) | ((other != 0) & ~np.isnan(other))
    return np.where(true, 1, _known(true, one, other))


def _where(test: np.ndarray, *branches: np.ndarray) -> np.ndarray:
    yes, no = _alike(*branches)
    return np.where(np.isnan(test), np.nan, np.where(test != 0, yes, no))


def _best(sign: str, *operands: np.ndarray) -> np.ndarray:
    values = _alike(*operands)
    result = reduce(lambda one, other: np.where(COMPARE[sign](other, one), other, one), values)
    return np.where(reduce(operator.or_, map(np.isnan, values)), np.nan, result)


def _coalesce(*operands: np.ndarray) -> np.ndarray:
    return reduce(lambda one, other: np.where(np.isnan(one), other, one), _alike(*operands))


_OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    "or": _either,
    "and": _both,
    "+": partial(_calculated, np.add),
    "-": partial(_calculated, np.subtract),
    "*": partial(_calculated, np.multiply),
    "/": partial(_real, np.divide),
}

_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "abs": partial(_calculated, np.abs),
    "sqrt": partial(_real, np.sqrt),
    "nodata": lambda one: np.isnan(one).astype(WHOLE),
    "min": partial(_best, "<"),
    "max": partial(_best, ">"),
    "coalesce": _coalesce,
    "where": _where,
}
