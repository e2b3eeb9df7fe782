"""Write the lines of a network as vector features with attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...facts import Findings
from ...grid import GridSpec, cell_centres
from ...grid.lengths import step_lengths
from ...io.features import LINES, Feature, Fields, write_features
from ...spanning_tree.weights import Weight
from .lines import PieceFile

LAYER = "network"
"""Name of the layer in a GeoPackage."""

FIELDS: Fields = {
    "start": np.int64,
    "end": np.int64,
    "weight": np.float64,
    "pass_height": np.float64,
    "length": np.float64,
    "cells": np.int64,
}


def features(pieces: PieceFile, grid: GridSpec, weight: Weight) -> Iterator[list[Feature]]:
    """Yield batches of lines, each with its coordinates and attributes."""
    lengths = step_lengths(grid)
    for batch in pieces.lines():
        lines, values = _simple(*batch, grid.cols)
        # + 0 turns -0.0 into 0.0: which of the two a maximum returns depends on the order.
        cells, heights = np.concatenate(lines), np.concatenate(values) + 0
        positions = np.stack(np.divmod(cells, grid.cols), axis=1)
        xy = cell_centres(grid, positions)
        (down, right), upper = np.abs(np.diff(positions, axis=0)).T, positions[:, 0]
        # The step from the last cell of a line to the first cell of the next is never used.
        kind = np.where(down == 0, 0, np.where(right == 0, 2, 3))
        steps = lengths[kind, np.minimum(upper[:-1], upper[1:])].tolist()
        weights = _weights(weight, heights).tolist()
        bounds = np.cumsum([0, *map(len, lines)])
        columns = (
            cells[bounds[:-1]].tolist(),
            cells[bounds[1:] - 1].tolist(),
            np.maximum.reduceat(heights, bounds[:-1]).tolist(),
            pairwise(bounds.tolist()),
        )
        batch_features = []
        for start, end, height, (first, last) in zip(*columns, strict=True):
            attributes = {
                "start": start,
                "end": end,
                "weight": math.fsum(weights[first : last - 1]),
                "pass_height": float(height),
                "length": math.fsum(steps[first : last - 1]),
                "cells": last - first,
            }
            batch_features.append((xy[first:last], attributes))
        yield batch_features


def _simple(
    lines: list[np.ndarray], values: list[np.ndarray], cols: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cut lines where they would cross themselves, and let each part start at its smaller end id.

    Returns the cells and the elevations of the parts.
    """
    crossing = _crossing(lines, cols)
    if not crossing:
        return lines, values
    cells, heights = [], []
    for number, (line, value) in enumerate(zip(lines, values, strict=True)):
        cuts = _crossings(line, cols) if number in crossing else []
        for first, last in pairwise([0, *cuts, len(line) - 1]):
            part = slice(first, last + 1)
            step = -1 if line[first] > line[last] else 1
            cells.append(line[part][::step])
            heights.append(value[part][::step])
    return cells, heights


def _crossing(lines: list[np.ndarray], cols: int) -> set[int]:
    """Return the numbers of the lines that cross themselves."""
    owner = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    diagonal, squares = _diagonals(np.concatenate(lines), cols)
    whole = owner[diagonal] == owner[diagonal + 1]
    owner, squares = owner[diagonal[whole]], squares[whole]
    order = np.argsort(squares)
    twice = np.flatnonzero(np.diff(squares[order]) == 0)
    first, second = owner[order[twice]], owner[order[twice + 1]]
    return set(first[first == second].tolist())


def _diagonals(cells: np.ndarray, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonal steps between consecutive cells, and the upper left cells of squares."""
    row, col = np.divmod(cells, cols)
    diagonal = np.flatnonzero((np.diff(row) != 0) & (np.diff(col) != 0))
    upper, leftmost = np.minimum(row[1:], row[:-1]), np.minimum(col[1:], col[:-1])
    return diagonal, (upper * cols + leftmost)[diagonal]


def _crossings(line: np.ndarray, cols: int) -> list[int]:
    """Return the positions at which to cut a line so that no part crosses itself.

    A line crosses itself where it uses both diagonals of a square of four cells. Each cut is made
    as late as possible, which minimises the number of cuts. Position 0 is the first cell.
    """
    cuts, first, seen = [], 0, dict[int, int]()
    for step, square in zip(*_diagonals(line, cols), strict=True):
        if seen.get(square, -1) >= first:
            cuts.append(step)
            first = step
        seen[square] = step
    return cuts


def _weights(weight: Weight, heights: np.ndarray) -> np.ndarray:
    """Return the weights of the edges between consecutive cells, float64."""
    high, low = np.maximum(heights[1:], heights[:-1]), np.minimum(heights[1:], heights[:-1])
    if not weight.subtracts:
        return high.astype(np.float64)
    with np.errstate(over="ignore"):
        difference = high - low
    # A signed difference that wrapped around is correct when read as unsigned.
    kind = difference.dtype.kind.replace("i", "u")
    return difference.view(f"{kind}{difference.itemsize}").astype(np.float64)


class _Written:
    """Totals of the lines written so far."""

    def __init__(self) -> None:
        self.lines = self.cells = 0
        self.lengths: list[float] = []

    def counted(self, batches: Iterator[list[Feature]]) -> Iterator[list[Feature]]:
        """Yield the features, and count each batch once it is written."""
        for features in batches:
            yield features
            self.lines += len(features)
            self.cells += sum(attributes["cells"] for _, attributes in features)
            self.lengths.append(math.fsum(attributes["length"] for _, attributes in features))


def write_lines(
    file: Path,
    batches: Iterator[list[Feature]],
    grid: GridSpec,
    layer: str = LAYER,
    fields: Fields = FIELDS,
) -> Findings:
    """Write lines to a new file with `write_features`; return their number, cells and length."""
    tally = _Written()
    write_features(file, tally.counted(batches), grid, layer, fields, LINES)
    return {"lines": tally.lines, "cells": tally.cells, "length": math.fsum(tally.lengths)}
