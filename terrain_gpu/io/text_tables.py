"""Small tables in text files: classes, factors, or pairs of ids."""

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
"""Advice in messages on how to write the numbers of a table."""


def read_lines(path: str | os.PathLike[str], content: str) -> list[str]:
    """Read the lines of a table; `content` names its content in messages.

    Raises
    ------
    InputError
        when the file cannot be read or is not UTF-8 text.
    """
    try:
        # `splitlines` would also split at characters that editors show within lines: U+2028.
        return read_small(path).split("\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read as a table of {content}: {reason}") from None


def read_rows(path: str | os.PathLike[str], content: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line that is not empty.

    The first line determines whether commas, semicolons or tabs separate fields.

    Raises
    ------
    InputError
        as `read_lines`.
    """
    lines = read_lines(path, content)
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
    """Reject a line in which decimal commas were read as separators.

    Parameters
    ----------
    columns
        Number of fields in the first line.
    counting
        Number of fields up to the last one that is used. If there are numbers after it and the line
        has more fields than the first one, it is rejected; unused fields may hold any text.
    text
        Whether additional fields with text are rejected as well.

    Raises
    ------
    InputError
        naming the line.
    """
    columns = max(columns, counting)
    additional = [field for field in fields[counting : counting + len(fields) - columns] if field]
    if additional and len(fields) > columns and (text or None not in map(number_in, additional)):
        raise InputError(
            f"{path}: line {line} has {counted(len(fields), 'field')} instead of {columns}; use "
            "decimal points, and quote texts that contain the separator"
        )


def is_heading(fields: Sequence[str]) -> bool:
    """Whether a first line holds names: its first field is not a number or range such as 1-3."""
    if re.match(r"[-+\u2212<>=\s]*\.?\d", fields[0]):
        return False
    if fields[0].lower() not in ("", "nan", "nodata"):
        return True
    return len(fields) < 2 or (number_in(fields[1]) is None and fields[1].lower() != "nodata")


def number_in(field: str) -> float | None:
    """The finite number in a field, exact if it is an integer; None if there is none."""
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
