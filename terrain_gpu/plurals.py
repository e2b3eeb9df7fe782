"""Numbers with what they count, in messages."""

from __future__ import annotations


def counted(count: int, what: str, several: str = "") -> str:
    """A number and what it counts: "1 cell without a value", "2,000 cells without a value".

    Parameters
    ----------
    what
        For one. Several have an s after the first word.
    several
        For several, where that is not right.
    """
    if count == 1:
        return f"1 {what}"
    first, blank, rest = what.partition(" ")
    return f"{count:,} {several or f'{first}s{blank}{rest}'}"
