"""The words of a command line, from what QGIS was given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Described = Mapping[str, Any]
"""An algorithm or a parameter in `algorithms.json`."""


class WrongValues(ValueError):
    """Values that contradict each other."""


def description() -> dict[str, Any]:
    """What `algorithms.json` says."""
    text = Path(__file__).with_name("algorithms.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def words(algorithm: Described, values: Mapping[str, Any], always: list[str]) -> list[str]:
    """Return the words after the name of the program.

    Parameters
    ----------
    algorithm
        An entry of "algorithms".
    values
        A value for each parameter that is given: a bool for a flag, a number, else a text. None and
        the default are left out.
    always
        Further words.

    Raises
    ------
    WrongValues
        If two parameters that stand for one option are given.

    Examples
    --------
    >>> fill = next(a for a in description()["algorithms"] if a["command"] == "fill")
    >>> words(fill, {"INPUT": "a.tif", "EPSILON": True, "OUTPUT": "b.tif"}, ["--overwrite"])
    ['fill', '--epsilon', '--output', 'b.tif', '--overwrite', '--', 'a.tif']
    """
    found, arguments, given = [str(algorithm["command"])], list[str](), dict[str, str]()
    for one in algorithm["parameters"]:
        value = values.get(one["name"])
        if value is None or value is False or value == "":
            continue
        if "prefix" in one:
            found += [f"{one['prefix']}{value}", str(value)]
        elif "option" not in one:
            arguments.append(text_of(value))
        elif value != one.get("default"):
            if one["option"] in given and not one.get("repeated"):
                other = given[one["option"]]
                raise WrongValues(f"{other!r} and {one['label']!r}: give only one of them")
            given[one["option"]] = one["label"]
            found += _option(one, value)
    return [*found, *always, "--", *arguments]


def _option(one: Described, value: Any) -> list[str]:
    if one["kind"] == "flag":
        return [one["option"]]
    if one.get("repeated"):
        parts = re.split(r"[\s,;]+", value.strip())
        return [word for part in parts for word in (one["option"], part)]
    return [one["option"], text_of(value), *one.get("more", [])]


def named(algorithm: Described, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by present names of parameters, and with choices by their names.

    Models and scripts may have former names; qgisprocess of R gives numbers of choices, from 0.

    Examples
    --------
    >>> fill = next(a for a in description()["algorithms"] if a["command"] == "fill")
    >>> named(fill, {"COMPRESS": "2", "EPSILON": True})
    {'COMPRESS': 'deflate', 'EPSILON': True}
    """
    found = dict(values)
    for one in algorithm["parameters"]:
        if one.get("formerly") in found:
            found.setdefault(one["name"], found.pop(one["formerly"]))
        name = text_of(found.get(one["name"]))
        if one["kind"] != "choice" or name in one["choices"] or not name.isdecimal():
            continue
        if int(name) < len(one["choices"]):
            found[one["name"]] = one["choices"][int(name)]
    return found


def store_in(folder: str, raster: str) -> str:
    """Return the store of a raster: the folder itself if it is one, or is called so; else in it.

    Examples
    --------
    >>> store_in("/data/dem.zarr", "/maps/dem.tif"), store_in("/data", "/maps/dem.tif")
    ('/data/dem.zarr', '/data/dem.zarr')
    """
    path = Path(folder)
    if path.suffix == ".zarr" or (path / "zarr.json").exists():
        return folder
    return str(path / f"{Path(raster).stem}.zarr")


def text_of(value: Any) -> str:
    """A value as the command line reads it: 5.0 as 5, other numbers with all digits."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
