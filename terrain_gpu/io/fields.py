"""Fields of features: ids, names and start costs."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .covered import named

log = logging.getLogger(__name__)

MAX_ID = 2**32 - 2
"""Largest id; 0 and 2**32 - 1 mean no id."""


def ids_of(path: object, values: list[Any]) -> Sequence[int]:
    # The id of an element in KML is text, which GDAL makes up where it is missing.
    if str(path).lower().endswith(".kml") or not is_used(path, "id", values):
        return range(1, len(values) + 1)
    for number, value in enumerate(values, 1):
        if not (is_number(value) and value % 1 == 0 and 1 <= value <= MAX_ID):
            raise InputError(
                f"{path}: feature {number} has the id {value!r}, which is not a whole number from "
                f"1 to {MAX_ID}; correct it, rename the field to number the features 1, 2, ..., or "
                "use its values as names (--id-field id, if the command has this option)"
            )
    return values


def named_ids(path: object, field: str, values: list[Any]) -> tuple[Sequence[int], dict[int, str]]:
    """Ids of features from a field of numbers or names; with names, also the name of each id."""
    for number, value in enumerate(values, 1):
        if value is None or value == "":
            raise InputError(f"{path}: feature {number} has no {field}; fill it in")
    if all(is_number(value) and value % 1 == 0 and 1 <= value <= MAX_ID for value in values):
        return values, {}
    ids_by_name: dict[str, int] = {}
    ids = [ids_by_name.setdefault(_text(value), len(ids_by_name) + 1) for value in values]
    return ids, {id_: name for name, id_ in ids_by_name.items()}


def warn_of_shared(path: object, ids: Sequence[int], names: dict[int, str]) -> None:
    """Warn about features that share a name and are therefore treated as one."""
    shared = [(count, names[id_]) for id_, count in Counter(ids).items() if names and count > 1]
    if shared:
        log.warning(
            "%s: features that share a name are treated as one: %s; rename them to keep them apart",
            path,
            named(np.ones(len(shared), bool), lambda k: "{} are called {!r}".format(*shared[k])),
        )


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def costs_of(path: object, values: list[Any], field: str) -> Sequence[float]:
    if not is_used(path, field, values):
        return [0.0] * len(values)
    alternative = ", or rename the field to start all features at cost 0" if field == "cost" else ""
    for number, value in enumerate(values, 1):
        if not (is_number(value) and 0 <= value < math.inf):
            raise InputError(
                f"{path}: feature {number} has the {field} {value!r}, which is negative or not a "
                f"finite number; correct it{alternative}"
            )
    return values


def is_used(path: object, field: str, values: list[Any]) -> bool:
    """Whether the features have this field. Raises InputError when only some of them do."""
    empty = [number for number, value in enumerate(values, 1) if value is None]
    if empty and len(empty) < len(values):
        raise InputError(
            f"{path}: feature {empty[0]} has no {field}, but other features have one; fill it in"
        )
    return not empty


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
