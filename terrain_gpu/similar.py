"""What a mistyped word may have meant: `did_you_mean`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """A question about the most similar of some words, for the end of a message; "" if none is."""
    names = {str(one).lower(): str(one) for one in known}
    found = get_close_matches(str(word)[:60].lower(), names, 1, 0.6)
    return f"; did you mean {names[found[0]]}?" if found else ""
