"""Proof of a file that `contours` or `polygons` wrote earlier: `verify_drawing`.

The file tells its levels or labels, so none that it lacks altogether is missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...engine.plan import Excess
from ...engine.proof import Limits
from ...facts import Findings
from ...grid import GridSpec
from ...io.proof.line_files import FileRoom, LineFile, attribute_rows, attributes_of
from ...store import Layer
from ..drawing.levels import ContourLevels
from ..polygons.proof import BandClasses, LabelClasses, PolygonProof
from .proof import IsolineProof

_LINES, _BANDS, _LABELS = {"level"}, {"lower", "upper"}, {"label"}
_MEASURES = {"cells", "area"}
_NAME_BYTES = 300


def is_drawing(file: str | Path, grid: GridSpec) -> bool:
    """Whether a file has the attributes that `contours` or `polygons` write."""
    there = attributes_of(Path(file), grid)
    return there == _LINES or there - {"name"} in (_BANDS | _MEASURES, _LABELS | _MEASURES)


def verify_drawing(layer: Layer, file: str | Path, limits: Limits) -> Findings:
    """Check a file of contours, bands or labels against the layer that it was drawn from.

    Returns
    -------
    dict
        Numbers of "lines" and "levels", or of "features", "polygons" and "sides".

    Raises
    ------
    VerificationError
        when it is wrong.
    PlanError
        when the memory limit is too small.
    """
    path = Path(file)
    there = attributes_of(path, layer.grid)
    fields = tuple(
        name for name in ("level", "lower", "upper", "label", "name", "cells", "area")
        if name in there
    )  # fmt: skip
    of = LineFile(path, path, layer.grid, "polygons" if "label" in there else "contours", fields)
    if "level" in there:
        plan = IsolineProof.plan(layer, limits)
    else:
        classes = LabelClasses if "label" in there else BandClasses
        plan = PolygonProof.plan(layer, limits, classes.cell_bytes)
    excess = Excess.of(plan)
    rows = attribute_rows(of, FileRoom(excess, "to verify a feature"))
    if "label" in there:
        names: dict[int, Any] = {}
        for own in rows if "name" in there else ():
            fits = excess.has_room(_NAME_BYTES * (len(names) + 1), "to verify this many names")
            if type(label := own.get("label")) is int and fits:
                names[label] = own.get("name")
        return dict(PolygonProof(of, layer, LabelClasses(names or None)).run(limits))
    # What is no number is found to be wrong where it is read.
    bounds = {
        tuple(value if type(value) is float else None for value in map(own.get, fields[:2]))
        for own in rows
    }
    if "level" in there:
        levels = _levels(bounds)
        found = IsolineProof(of, layer, levels).run(limits)
        return {**found, "levels": len(levels.breaks)}
    bounds = {(lower, math.inf if upper is None else upper) for lower, upper in bounds}
    cumulative = sum(lower is None for lower, _ in bounds) > 1
    return dict(PolygonProof(of, layer, BandClasses(_levels(bounds), cumulative)).run(limits))


def _levels(bounds: Iterable[tuple[Any, ...]]) -> ContourLevels:
    """The levels among some values."""
    values = {value for several in bounds for value in several if value is not None}
    found = sorted(value for value in values if not math.isnan(value))
    return ContourLevels(tuple(found) or (math.inf,))
