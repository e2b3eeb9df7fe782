"""Small tables in text files: of classes, factors or pairs of places."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import InputError

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
        return Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InputError(f"{path}: cannot be read as a table of {what}: {reason}") from None


def read_rows(path: str | os.PathLike[str], what: str) -> Iterator[tuple[int, list[str]]]:
    """Read the numbers and fields of lines that are not empty.

    The first line decides whether commas, semicolons or tabs separate fields.

    Raises
    ------
    InputError
        as `read_lines`, and when a line has more fields than the first, as one with decimal commas.
    """
    lines = read_lines(path, what)
    first = next(filter(str.strip, lines), "")
    rows, columns = csv.reader(lines, delimiter=max(",;\t", key=first.count)), 0
    for row in rows:
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        columns = columns or len(fields)
        if any(fields[columns:]):
            raise InputError(
                f"{path}: line {rows.line_num} has {len(fields)} fields, and the first line "
                f"{columns}; correct it ({ADVICE})"
            )
        yield rows.line_num, fields


def is_heading(fields: Sequence[str]) -> bool:
    """Whether a first line holds names: no number begins it, and its second field is no value."""
    if re.match(r"[-+.]?\d", fields[0]):
        return False
    return len(fields) < 2 or not (_is_number(fields[1]) or fields[1].lower() == "nodata")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
