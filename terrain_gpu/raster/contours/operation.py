"""Contours of a layer: lines, or the areas between breaks."""

from __future__ import annotations

from ...io.lines import refuse_too_fine
from ...store import TileStore
from ..drawing.levels import ContourLevels
from . import DrawContours
from .bands import ContourPolygons
from .lines import ContourLines


def contours_of(store: TileStore | None, asked: DrawContours) -> ContourLines | ContourPolygons:
    """The operation of the tool: lines or areas.

    Raises
    ------
    InputError
        when cells are too small for GeoJSON.
    StoreError
        when the layer is missing or damaged.
    """
    path = str(asked.path)
    if store is not None:
        refuse_too_fine(path, store.grid)
        store.layer(asked.layer)
    levels = ContourLevels(tuple(asked.breaks or ()), asked.interval or 0.0, asked.base)
    what = ("" if store is None else str(store.path), asked.layer, path, levels)
    return ContourPolygons(*what, asked.cumulative) if asked.polygons else ContourLines(*what)
