"""The spanning forest as a network of lines: `extract_network`.

1. *Outlines*: every block is read once and contracted to the cells with edges to other blocks.
2. *Skeleton*: for every edge between blocks, the longest path to either side.
3. *Lines*: every block is read again; its edges with long enough paths on both sides are traced,
   and kept on disk, in pieces; blocks into which ends of lines lead from others, once more.
4. *Writing*: pieces are strung together, line by line.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import checked
from ..engine.plan import MB, StreamPlan
from ..errors import InputError
from ..grid import Block, BlockGrid, GridSpec, cell_centres
from ..grid.lengths import step_lengths
from ..io.lines import (
    checked_target,
    geojson_lines,
    is_geopackage,
    tell_without_crs,
    whole_file,
    wkb_line,
    write_layer,
)
from ..io.places import NO_PLACES, Places, PlacesLike, as_places, refuse_nodata
from ..io.vectors import grid_crs
from ..mst.weights import Weight
from ..progress import Progress, silent
from ..report import Report
from ..store import TileStore
from . import prune
from .accumulation import outlets_in
from .block import BlockForest
from .lines import PieceFile, Pieces, trace_pieces
from .skeleton import Outline, Skeleton
from .source import Forest, open_forest
from .stream import ForestBlocks, plan_blocks

log = logging.getLogger(__name__)

LAYER = "network"
"""Name of the layer in a GeoPackage."""

_LINES = 32 * MB
"""Set aside for lines."""
_PYOGRIO = 80 * MB
"""What it brings, GDAL once more."""

_FIELDS = {
    "start": np.int64,
    "end": np.int64,
    "weight": np.float64,
    "pass_height": np.float64,
    "length": np.float64,
    "cells": np.int64,
}


@dataclass
class Network:
    """A network that was written.

    Attributes
    ----------
    path
        The file.
    lines, cells
        How many lines there are, and cells on them; one where lines meet counts for each.
    length
        Of all lines, map units, or metres in a geographic CRS.
    report
        The run's `Report`.
    """

    path: Path
    lines: int
    cells: int
    length: float
    report: Report


def plan_network(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    geopackage: bool = True,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """The plan of `extract_network` for a layer of such a shape, type and block size.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    return plan_blocks(
        BlockGrid(rows, cols, block),
        dtype,
        "extract the network of",
        vertex=prune.VERTEX_BYTES,
        work=prune.LengthWork.BYTES + 8,
        beside=_LINES + (_PYOGRIO if geopackage else 0),
        memory_limit=memory_limit,
        threads=threads,
    )


@checked()
def extract_network(
    store: str | os.PathLike[str] | TileStore,
    path: str | os.PathLike[str],
    *,
    min_length: float | None = None,
    keep: PlacesLike | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Network:
    """Write the main lines of the spanning forest as polylines.

    Dead ends shorter than `min_length` are removed: an edge of the forest belongs to the network
    when on both of its sides a path that begins with it is at least so long, or leads to a kept
    point; and the ends of what is left go on along the longest path (all of them, where several
    are equally long), unless they are kept points. A tree without such an edge, none of whose paths
    is twice as long, goes. What is written does not depend on blocks, limits or threads.

    Every line leads from one node to the next: a cell where three or more edges meet, an end, or a
    kept point. A line that takes both diagonals of a square of four cells is cut before the second,
    so that none crosses itself; its parts follow one another. The attributes of a line are

    - start, end: ids (row * columns + column) of its ends, the lesser one first,
    - weight: the sum of its edges' weights; pass_height: its highest cell,
    - length: in map units, in a geographic CRS metres; cells: their number.

    Parameters
    ----------
    store
        A store with the layer "mst".
    path
        .geojson or .json, or .gpkg: the layer "network" of a GeoPackage; see `write_paths`.
    min_length
        Map units, metres in a geographic CRS. When None, only kept points count; 0 keeps all.
    keep
        Cells that are never removed, and end lines, given as the sources of `shortest_paths`.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    overwrite
        Replace an existing file, at the end.
    progress
        Called with the cells just handled, and the cells of both passes.

    Raises
    ------
    InputError
        when there is neither `min_length` nor `keep`, a kept point has no value, the file cannot be
        named so, or the memory limit is too small.
    StoreError
        when there is no spanning forest, or it is damaged.
    OutputError
        when the file cannot be written.
    """
    if min_length is None and keep is None:
        raise InputError("give a minimum length, points to keep, or both")
    if min_length is not None and not 0 <= min_length < math.inf:
        raise InputError(f"a minimum length of {min_length} is no finite number from 0 on")
    report = Report("network")
    target = checked_target(path, overwrite=overwrite)
    forest = open_forest(store)
    kept = NO_PLACES if keep is None else as_places(forest.cells.grid, keep, "keep")
    if len(kept):
        refuse_nodata(kept, forest.cells)
        kept = kept.one_per_cell("points to keep")
    plan = plan_network(
        *forest.cells.grid.shape,
        forest.cells.dtype,
        forest.cells.block_size,
        geopackage=is_geopackage(target),
        memory_limit=memory_limit,
        threads=threads,
    )
    for line in plan.describe().splitlines():
        log.info("%s", line)
    grid, dtype = forest.cells.grid, forest.cells.dtype
    with (
        report.measured(),
        closing(PieceFile(target.parent, dtype, plan.memory - _LINES, plan.memory_limit)) as pieces,
    ):
        _trace(forest, kept, min_length, plan, pieces, progress, report)
        with report.phase("write"), whole_file(target, overwrite=overwrite) as part:
            tell_without_crs(path, grid)
            write = _write_geopackage if is_geopackage(target) else _write_geojson
            found = write(part, _features(pieces, grid, forest.weight), grid)
    report.settings = {
        "min_length": min_length,
        "kept": len(kept),
        "of": forest.identity,
        "plan": plan.as_dict(),
    }
    report.cells, report.valid_cells = grid.cells, forest.edges.info["result"]["vertices"]
    report.result = {**found, "store": str(forest.store.path), "output": str(path)}
    return Network(target, found["lines"], found["cells"], found["length"], report)


def _trace(
    forest: Forest,
    kept: Places,
    min_length: float | None,
    plan: StreamPlan,
    pieces: PieceFile,
    progress: Progress,
    report: Report,
) -> None:
    """Phases 1 to 3."""
    units, unit = prune.whole_lengths(forest.cells.grid, step_lengths(forest.cells.grid))
    least = prune.ENDLESS
    if min_length is not None:
        least = math.ceil(min(min_length / unit, least))
    blocks = ForestBlocks(forest, plan, work=prune.LengthWork)
    skeleton = Skeleton(prune.VERTEX_BYTES, plan.memory_limit)
    total = 2 * forest.cells.grid.cells

    def outlined(at: Block, block: BlockForest) -> Outline:
        return prune.outline(block, outlets_in(block, kept), units)

    def traced(at: Block, block: BlockForest) -> tuple[Pieces, np.ndarray]:
        points = outlets_in(block, kept)
        bits, arcs = prune.keep(block, points, units, beyond, tips, at, least)
        return trace_pieces(block, bits, points), arcs

    def save(at: Block, result: tuple[Pieces, np.ndarray]) -> None:
        pieces.put(at, result[0])
        arcs.append(result[1])

    tips = prune.Tips(blocks.blocks)
    arcs: list[np.ndarray] = []
    with report.phase("outlines"):
        every = blocks.blocks.ids()
        blocks.stream(every, outlined, lambda _, part: skeleton.add(part), progress, total)
    with report.phase("skeleton"):
        beyond = prune.solve(skeleton.join(), blocks.blocks, least)
    with report.phase("lines"):
        blocks.stream(blocks.blocks.ids(), traced, save, progress, total)
    with report.phase("ends"):
        again = tips.close(np.concatenate(arcs))
        blocks.stream(again, traced, save, silent, total)


Feature = tuple[np.ndarray, dict[str, Any]]


def _features(pieces: PieceFile, grid: GridSpec, weight: Weight) -> Iterator[list[Feature]]:
    """Positions and attributes of lines, some lines at a time."""
    lengths = step_lengths(grid)
    for batch in pieces.lines():
        lines, values = _simple(*batch, grid.cols)
        # + 0, for the sign of a zero depends on where a maximum meets it.
        cells, heights = np.concatenate(lines), np.concatenate(values) + 0
        places = np.stack(np.divmod(cells, grid.cols), axis=1)
        xy = cell_centres(grid, places)
        (down, right), upper = np.abs(np.diff(places, axis=0)).T, places[:, 0]
        # Steps from the last cell of a line to the first of the next are never looked at.
        kind = np.where(down == 0, 0, np.where(right == 0, 2, 3))
        steps = lengths[kind, np.minimum(upper[:-1], upper[1:])]
        weights = _weights(weight, heights)
        features, first = [], 0
        for line in lines:
            last = first + len(line)
            attributes = {
                "start": int(line[0]),
                "end": int(line[-1]),
                "weight": math.fsum(weights[first : last - 1].tolist()),
                "pass_height": float(heights[first:last].max()),
                "length": math.fsum(steps[first : last - 1].tolist()),
                "cells": len(line),
            }
            features.append((xy[first:last], attributes))
            first = last
        yield features


def _simple(
    lines: list[np.ndarray], values: list[np.ndarray], cols: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cells and heights of lines, cut where a line would cross itself; lesser ends first."""
    cells, heights = [], []
    for line, value in zip(lines, values, strict=True):
        for first, last in pairwise([0, *_crossings(line, cols), len(line) - 1]):
            part = slice(first, last + 1)
            way = -1 if line[first] > line[last] else 1
            cells.append(line[part][::way])
            heights.append(value[part][::way])
    return cells, heights


def _crossings(line: np.ndarray, cols: int) -> list[int]:
    """Where to cut a line, the first cell being 0: as late as can be, so as seldom as can be.

    It crosses itself where it takes both diagonals of a square of four cells.
    """
    row, col = np.divmod(line, cols)
    upper, left = np.minimum(row[1:], row[:-1]), np.minimum(col[1:], col[:-1])
    diagonal = np.flatnonzero((np.diff(row) != 0) & (np.diff(col) != 0))
    squares = (upper * cols + left)[diagonal]
    if len(np.unique(squares)) == len(squares):
        return []
    cuts, first, seen = [], 0, dict[int, int]()
    for step, square in zip(diagonal.tolist(), squares.tolist(), strict=True):
        if seen.get(square, -1) >= first:
            cuts.append(step)
            first = step
        seen[square] = step
    return cuts


def _weights(weight: Weight, heights: np.ndarray) -> np.ndarray:
    """Weights of the edges between consecutive cells."""
    high, low = np.maximum(heights[1:], heights[:-1]), np.minimum(heights[1:], heights[:-1])
    if weight.name == "max":
        return high.astype(np.float64)
    with np.errstate(over="ignore"):
        found = high - low
    # A difference of signed integers that wrapped is right as an unsigned one.
    kind = found.dtype.kind.replace("i", "u")
    return found.view(f"{kind}{found.itemsize}").astype(np.float64)


class _Written:
    """What was written."""

    def __init__(self) -> None:
        self.lines = self.cells = 0
        self.lengths: list[float] = []

    def add(self, features: list[Feature]) -> None:
        self.lines += len(features)
        self.cells += sum(attributes["cells"] for _, attributes in features)
        self.lengths.append(math.fsum(attributes["length"] for _, attributes in features))

    def result(self) -> dict[str, Any]:
        return {"lines": self.lines, "cells": self.cells, "length": math.fsum(self.lengths)}


def _write_geojson(file: Path, batches: Iterator[list[Feature]], grid: GridSpec) -> dict[str, Any]:
    crs = grid_crs(grid) if grid.crs_wkt else None
    tally = _Written()
    with open(file, "w", encoding="utf-8") as out:
        out.write('{"type": "FeatureCollection",\n')
        if crs is None:
            out.write('"crs": null,\n')
        out.write('"features": [')
        for features in batches:
            lines = geojson_lines([xy for xy, _ in features], crs)
            for k, ((_, attributes), geometry) in enumerate(zip(features, lines, strict=True)):
                out.write(",\n" if tally.lines + k else "\n")
                json.dump({"type": "Feature", "properties": attributes, "geometry": geometry}, out)
            tally.add(features)
        out.write("\n]}\n")
    return tally.result()


def _write_geopackage(
    file: Path, batches: Iterator[list[Feature]], grid: GridSpec
) -> dict[str, Any]:
    tally = _Written()

    def append(features: list[Feature]) -> None:
        columns = {
            name: np.array([attributes[name] for _, attributes in features], kind)
            for name, kind in _FIELDS.items()
        }
        lines = [wkb_line(xy) for xy, _ in features]
        write_layer(file, LAYER, lines, columns, grid, append=file.exists())

    for features in batches:
        append(features)
        tally.add(features)
    if not tally.lines:
        append([])
    return tally.result()
