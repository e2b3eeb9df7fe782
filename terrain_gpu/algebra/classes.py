"""Tables that give classes, such as those of land cover, other values."""

from __future__ import annotations

import math
import os

from ..errors import InputError
from ..io.text_tables import ADVICE, is_heading, read_rows

MOST_CLASSES = 100_000

Classes = tuple[tuple[int, float | None], ...]
"""Classes and their values, sorted; None for no value. Whole numbers are exact."""


def read_classes(path: str | os.PathLike[str]) -> Classes:
    """Read a table of classes and values from a text file.

    The first two columns count, separated by commas, semicolons or tabs. A first line without
    numbers holds names. An empty second field, or "nodata", means no value.

    Raises
    ------
    InputError
        when the file cannot be read, a field is not a number, or a class is there twice; names the
        line.
    """
    found: dict[int, float | None] = {}
    for k, (number, fields) in enumerate(read_rows(path, "classes")):
        if k == 0 and is_heading(fields):
            continue
        if len(fields) < 2:
            raise InputError(f"{path}: line {number} has no second field; give class and value")
        key, value = _number(fields[0]), _number(fields[1])
        empty = fields[1].lower() in ("", "nodata")
        if key is None or key % 1 or (value is None and not empty):
            raise InputError(
                f"{path}: line {number}: {', '.join(fields[:2])[:60]!r} is not a whole number and "
                f"its value; correct it ({ADVICE}; an empty value is no value)"
            )
        key = int(key)
        if key in found:
            raise InputError(f"{path}: line {number}: class {key} is there twice; delete one")
        if len(found) == MOST_CLASSES:
            raise InputError(f"{path}: more than {MOST_CLASSES:,} classes")
        found[key] = value
    if not found:
        raise InputError(f"{path}: holds no class; give lines of class and value")
    return tuple(sorted(found.items()))


def _number(field: str) -> float | None:
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
