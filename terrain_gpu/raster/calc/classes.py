"""Tables that map classes, such as those of land cover, to values."""

from __future__ import annotations

import os

from ...errors import InputError
from ...io.text_tables import ADVICE, is_heading, number_in, read_rows, refuse_more_fields

MOST_CLASSES = 100_000

Classes = tuple[tuple[int, float | None], ...]
"""Classes and their values, sorted; None for nodata. Integers are exact."""


def read_classes(path: str | os.PathLike[str]) -> Classes:
    """Read a table of classes and values from a text file.

    The first two columns are used; they are separated by commas, semicolons or tabs. A first line
    that begins with text holds column names. An empty second field, or "nodata", means nodata.

    Raises
    ------
    InputError
        If the file cannot be read, a field is not a number, or a class is repeated. The message
        names the line.
    """
    classes: dict[int, float | None] = {}
    columns = 0
    for k, (number, fields) in enumerate(read_rows(path, "classes")):
        columns = columns or len(fields)
        if k == 0 and is_heading(fields):
            continue
        refuse_more_fields(path, number, fields, columns, 2)
        if len(fields) < 2:
            raise InputError(
                f"{path}: line {number} has no second field; give class and value, separated as "
                "the first line is: by a comma, semicolon or tab"
            )
        key, value = number_in(fields[0]), number_in(fields[1])
        empty = fields[1].lower() in ("", "nodata")
        if key is None or key % 1 or (value is None and not empty):
            raise InputError(
                f"{path}: line {number}: {', '.join(fields[:2])[:60]!r} is not a whole number and "
                f"its value; correct it ({ADVICE}; an empty value is no value)"
            )
        key = int(key)
        if key in classes:
            raise InputError(f"{path}: line {number}: class {key} is there twice; delete one")
        if len(classes) == MOST_CLASSES:
            raise InputError(f"{path}: more than {MOST_CLASSES:,} classes")
        classes[key] = value
    if not classes:
        raise InputError(f"{path}: holds no class; give lines of class and value")
    return tuple(sorted(classes.items()))
