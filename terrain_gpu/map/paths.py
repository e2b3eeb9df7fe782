"""Paths over the raster, of least cost or of water: their cells, length, climb and profile."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .. import cells as cell_values
from ..facts import JsonObject
from ..grid import GridSpec, Window
from ..grid.lengths import step_lengths
from ..io.encodings import to_own_codes
from ..store import Layer

SHOWN = 400
"""Largest number of cells in a profile."""

DRAWN = 4000
"""About the largest number of cells of a path that is drawn."""


def describe_path(path: np.ndarray, base: int, heights: Layer) -> JsonObject:
    """Describe a path for the page.

    Parameters
    ----------
    path
        int64, shape (n, 2): rows and columns of the layer.
    base
        Number of map cells along a side of a cell of the layer.
    heights
        The layer of elevations.

    Returns
    -------
    dict
        "cells": positions on the map; "length"; "climb" and "descent" from cell to cell;
        "profile": lengths and elevations of some cells, None for nodata, and "places": their
        positions.
    """
    from ..paths.relax.trace import lengths_of  # only now, for a fast first picture

    along = np.append(0.0, np.cumsum(lengths_of(path, _lengths_on(heights.grid))))
    values = _values(heights, path)
    known = values[np.isfinite(values)]
    steps = np.diff(known)
    some = np.unique(np.linspace(0, len(path) - 1, min(len(path), SHOWN)).astype(int))
    last = len(path) - 1
    drawn = path[np.unique(np.append(np.arange(0, last, max(1, last // DRAWN)), last))]
    return {
        "cells": ((drawn + 0.5) * base).round(1).tolist(),
        "length": float(along[-1]),
        "climb": float(steps[steps > 0].sum()),
        "descent": float(-steps[steps < 0].sum()),
        "profile": [
            [round(float(x), 2), None if np.isnan(y) else float(y)]
            for x, y in zip(along[some], values[some], strict=True)
        ],
        "places": ((path[some] + 0.5) * base).round(1).tolist(),
    }


def flow_path(directions: Layer, row: int, col: int) -> np.ndarray | None:
    """The cells that flow from a cell passes to its outlet; None if the cell does not drain.

    Raises StoreError if the directions form a loop or lead out of the raster.
    """
    from ..paths.relax.trace import trace_path

    def read(i: int, j: int) -> np.ndarray:
        codes = directions.read_block(i, j).copy()
        to_own_codes(codes, directions.nodata)
        return codes

    # Directions have the codes of backlinks, and outlets that of sources.
    path = trace_path(read, directions.blocks, row, col)
    return None if path is None else path[::-1]


@lru_cache(1)
def _lengths_on(grid: GridSpec) -> np.ndarray:
    return step_lengths(grid)


def _values(layer: Layer, path: np.ndarray) -> np.ndarray:
    """Values along a path as float64, read by windows; NaN for nodata."""
    side = 256
    starts = np.flatnonzero(np.any(np.diff(path // side, axis=0, prepend=-1) != 0, axis=1))
    found = []
    for part in np.split(path, starts[1:]):
        (r0, c0), (r1, c1) = part.min(axis=0).tolist(), (part.max(axis=0) + 1).tolist()
        window: Window = (r0, r1, c0, c1)
        read = layer.read_window(*window)[part[:, 0] - r0, part[:, 1] - c0]
        found.append(np.where(cell_values.is_nodata(read, layer.nodata), np.nan, read))
    return np.concatenate(found).astype(np.float64)
