"""Small tables in text files: of classes, factors or pairs of places."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Sequence

from ..errors import InputError
from ..plurals import counted
from .small_files import read_small

ADVICE = "one separator, and decimals with a point"
"""How to write the numbers of a table, for messages."""


def read_lines(path: str | os.PathLike[str], what: str) -> list[str]:
    """Read the lines of a table; `what` it is of, for messages.

    Raises
    ------
    InputError
        when the file cannot be read, or is not text in UTF-8.
    """
    try:
        # `splitlines` would also divide lines at what editors show within them, such as U+2028.
        return read_small(path).split("\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InputError(f"{path}: cannot be read as a table of {what}: {reason}") from None


def read_rows(path: str | os.PathLike[str], what: str) -> Iterator[tuple[int, list[str]]]:
    """Read the numbers and fields of lines that are not empty.

    The first line decides whether commas, semicolons or tabs separate fields.

    Raises
    ------
    InputError
        as `read_lines`.
    """
    lines = read_lines(path, what)
    first = next(filter(str.strip, lines), "")
    rows = csv.reader(lines, delimiter=max(",;\t", key=first.count))
    for row in rows:
        fields = [field.strip() for field in row]
        if any(fields):
            yield rows.line_num, fields


def refuse_more_fields(
    path: str | os.PathLike[str],
    line: int,
    fields: Sequence[str],
    columns: int,
    counting: int,
    *,
    text: bool = False,
) -> None:
    """Refuse a line whose decimal commas separate fields.

    Parameters
    ----------
    columns
        Number of fields of the first line.
    counting
        Number of fields up to the last that counts. Numbers that follow it and are more fields than
        the first line has are refused; fields that do not count may hold any text.
    text
        Whether more fields with text are refused, too.

    Raises
    ------
    InputError
        names the line.
    """
    columns = max(columns, counting)
    more = [field for field in fields[counting : counting + len(fields) - columns] if field]
    if more and len(fields) > columns and (text or None not in map(number_in, more)):
        raise InputError(
            f"{path}: line {line} has {counted(len(fields), 'field')} instead of {columns}; give "
            "decimals with a point, and quote texts that hold the separator"
        )


def is_heading(fields: Sequence[str]) -> bool:
    """Whether a first line holds names: its first field is no number, nor a range such as 1-3."""
    if re.match(r"[-+\u2212<>=\s]*\.?\d", fields[0]):
        return False
    if fields[0].lower() not in ("", "nan", "nodata"):
        return True
    return len(fields) < 2 or (number_in(fields[1]) is None and fields[1].lower() != "nodata")


def number_in(field: str) -> float | None:
    """The finite number that a field holds; whole ones are exact."""
    try:
        value = float(field)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    try:
        whole = int(field)  # exact beyond 2^53
    except ValueError:
        return value
    return whole if -(2**63) <= whole < 2**64 else value
