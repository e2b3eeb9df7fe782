"""Tokens of a text, for recursive-descent parsers: conditions, arithmetic."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NoReturn, TypeVar

from .errors import InputError
from .similar import did_you_mean

MOST_NESTED = 50
"""Largest depth of nested parentheses: a parser recurses for each."""

COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

_SPACE = re.compile(r"\s*")

T = TypeVar("T")


@contextmanager
def named_store(path: object) -> Iterator[None]:
    """Let errors about a text name the store whose layers it may name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


class Tokens:
    """The current token of a text; parsers are subclasses.

    Attributes
    ----------
    what
        What the text is, for messages.
    pattern
        Matches a token. The name of its group is the token's kind, the group its text.
    words
        Words that are signs.
    kind, token
        The current token; the kind is None at the end.
    start, end
        Where it lies in the text.
    """

    what: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    words: ClassVar[tuple[str, ...]]

    def __init__(self, text: str) -> None:
        self.text = text
        self.nested = self.end = 0
        self.next()

    def next(self) -> None:
        """Advance to the next token."""
        self.start = _SPACE.match(self.text, self.end).end()  # type: ignore[union-attr]
        self.kind, self.token = None, ""
        if match := self.pattern.match(self.text, self.start):
            self.end = match.end()
            self.kind, self.token = match.lastgroup, match[match.lastgroup or 0]
            if self.kind == "word" and self.token.lower() in self.words:
                self.kind, self.token = "sign", self.token.lower()
        elif self.start < len(self.text):
            self.token = self.text[self.start]
            hint = " (equality is ==)" if self.token == "=" else ""
            article = "an" if self.what[0] in "aeiou" else "a"
            self.refuse(f"{self.token!r} is not allowed in {article} {self.what}{hint}")

    def refuse(self, reason: str, like: str = "") -> NoReturn:
        text = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        raise InputError(f"{self.what} {text!r}: {reason}, at character {self.start + 1}{like}")

    def fail(self, expected: str) -> NoReturn:
        actual = repr(self.token[:40]) if self.kind else "the end"
        self.refuse(f"expected {expected}, found {actual}")

    def take(self, *tokens: str) -> str:
        """Consume and return the token if it is one of `tokens`, else return ""."""
        token = self.token
        if self.kind != "sign" or token not in tokens:
            return ""
        self.next()
        return token

    def need(self, token: str) -> None:
        if not self.take(token):
            self.fail(repr(token))

    def inside(self, parse: Callable[[], T]) -> T:
        """Parse what is in parentheses."""
        if self.nested == MOST_NESTED:
            self.refuse(f"more than {MOST_NESTED} nested parentheses")
        self.need("(")
        self.nested += 1
        result = parse()
        self.nested -= 1
        self.need(")")
        return result

    def real(self) -> float:
        """The token as a float64."""
        if not math.isfinite(number := float(self.token)):
            self.refuse(f"{self.token[:40]!r} is too large for a float64")
        return number

    def layer(self, available: Iterable[str]) -> str:
        """Consume and return the name of a layer, one of `available`."""
        name, names = self.token, [*available]
        if name not in names:
            there = ", ".join(names[:20]) or "none"
            like = did_you_mean(name, names)
            self.refuse(f"there is no layer {name[:40]!r}, only {there}", like)
        self.next()
        return name
