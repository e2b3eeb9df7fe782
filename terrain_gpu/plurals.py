"""Numbers with nouns in the singular or plural, for messages."""

from __future__ import annotations


def counted(count: int, what: str, several: str = "") -> str:
    """A number and a noun: "1 cell of nodata", "2,000 cells of nodata".

    Parameters
    ----------
    what
        The singular. By default, the plural has an s after the first word.
    several
        The plural, if it is formed differently.
    """
    if count == 1:
        return f"1 {what}"
    first, blank, rest = what.partition(" ")
    return f"{count:,} {several or f'{first}s{blank}{rest}'}"
