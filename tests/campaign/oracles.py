"""What every command must leave, in plain Python: the cells of each layer it writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import reference
from scipy import ndimage
from strategies import same_bits

from terrain_gpu import cells
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import area_units, step_lengths
from terrain_gpu.grid.neighbours import symmetric

LARGEST = 6000
"""Cells up to which plain Python is quick; larger rasters are computed again, undisturbed."""


@dataclass
class Truth:
    """What a layer holds; `step` made it. `loose`: equal within 1e-12."""

    cells: np.ndarray
    nodata: Any = None
    step: Any = None
    loose: bool = False

    def agrees(self, found: np.ndarray) -> bool:
        """Whether these are the cells: bit for bit; Python numbers by value."""
        if self.cells.dtype == object:
            return same_distances(found, self)
        found = found.astype(found.dtype.newbyteorder("<"), copy=False)
        if self.loose and found.dtype.kind == "f":
            return found.shape == self.cells.shape and np.allclose(
                found, self.cells, rtol=1e-12, atol=0, equal_nan=True
            )
        return same_bits(found, self.cells)

    @property
    def good(self) -> np.ndarray:
        return ~cells.is_nodata(self.cells, self.nodata)

    def statistics(self) -> dict[str, Any]:
        """As a layer records them."""
        some = self.cells[self.good]
        low, high = (some.min().item(), some.max().item()) if some.size else (None, None)
        return {"valid_cells": int(some.size), "min": low, "max": high}


def converted(data: np.ndarray, nodata: Any, options: dict[str, Any]) -> np.ndarray:
    """--round and --clamp-min; cells without a value take the nodata value, if there is one."""
    good = ~cells.is_nodata(data, nodata)
    if options.get("round") and data.dtype.kind == "f":
        whole = np.where(good, np.rint(data), 0).astype(np.int64)
        found = whole.astype("<i4")
        if (found != whole).any():
            return data[:0]  # refused
    else:
        found = data.copy()
    if "clamp-min" in options:
        low = found.dtype.type(options["clamp-min"])
        found[good & (found < low)] = low
    if nodata is not None:
        found[~good] = nodata
    return found


def forest(z: Truth, options: dict[str, Any], grid: GridSpec) -> Truth:
    how = options["weight"], z.nodata, options["connectivity"], step_lengths(grid)
    mask, _, _ = reference.kruskal(z.cells, *how)
    return Truth(mask, 0)


def components(where: np.ndarray, connectivity: int) -> Truth:
    """Numbered in the order of their first cells."""
    found, count = ndimage.label(where, np.ones((3, 3)) if connectivity == 8 else None)
    _, first = np.unique(np.append(found, np.arange(count + 1)), return_index=True)
    names = np.zeros(count + 1, np.uint32)
    names[1 + np.argsort(first[1:])] = np.arange(1, count + 1)
    return Truth(names[found], 0)


def joined(grid: GridSpec, options: dict[str, Any]) -> bool:
    """Whether paths cross from the last column of a raster to the first."""
    round_the_earth = bool(grid.crs_wkt) and abs(grid.cols * grid.transform[0] - 360) < 1e-6
    least = 5 if options.get("connectivity") == 16 else 3
    return round_the_earth and grid.cols >= least and options.get("wrap") != "no"


def border(good: np.ndarray, *, wrap: bool = False) -> list[tuple[int, int]]:
    """Cells with a value at the raster's edge or beside cells without one."""
    around = np.pad(good, ((0, 0), (1, 1)), mode="wrap" if wrap else "constant")
    inner = ndimage.binary_erosion(around, np.ones((3, 3)))[:, 1:-1]
    return [tuple(cell) for cell in np.argwhere(good & ~inner).tolist()]


def accumulated(
    z: Truth,
    tree: dict[str, Any],
    outlets: list[tuple[int, int]],
    grid: GridSpec,
    *,
    areas: bool,
    low: bool,
) -> tuple[Truth, Truth]:
    """Sums and D8 codes downstream: Kruskal from a root beyond all outlets.

    With `low`, edges to the root are as high as the outlets, and without slope.
    """
    shape, cols = z.cells.shape, z.cells.shape[1]
    parent = list(range(z.cells.size + 1))

    def find(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    outside = z.cells.size
    beside: list[list[int]] = [[] for _ in parent]
    ends = [row * cols + col for row, col in outlets]
    chosen = [] if low else [(outside, cell) for cell in ends]
    how = tree["weight"], z.nodata, tree["connectivity"], step_lengths(grid)
    edges: list[tuple[Any, int, Any]] = reference.edges(z.cells, *how)
    if low:
        edges += [((z.cells.flat[cell].item(), 0), cell - outside, None) for cell in ends]
    for _, cell, d in sorted(edges):
        if d is None:
            chosen.append((outside, cell + outside))
        else:
            chosen.append((cell, cell + reference.FORWARD[d][0] * cols + reference.FORWARD[d][1]))
    for u, v in chosen:
        a, b = find(u), find(v)
        if a != b:
            parent[a] = b
            beside[u].append(v)
            beside[v].append(u)
    into, order = {outside: -1}, [outside]
    for v in order:
        for u in beside[v]:
            if u not in into:
                into[u] = v
                order.append(u)
    units, unit = area_units(grid) if areas else (np.ones(shape[0], np.int64), 1.0)
    sums = np.zeros(outside + 1, np.int64)
    codes = np.full(outside, 255, np.uint8)
    for v in order[:0:-1]:
        sums[v] += int(units[v // cols])
        u = into[v]
        sums[u] += sums[v]
        step = (u // cols - v // cols, u % cols - v % cols)
        codes[v] = 0 if u == outside else 1 << reference.TOWARD.index(step)
    found = sums[:-1].reshape(shape)
    result = found * unit if areas else found.astype(np.uint32)
    return Truth(result, 0, loose=areas), Truth(codes.reshape(shape), 255)


def paths(
    z: Truth,
    grid: GridSpec,
    options: dict[str, Any],
    sources: list[tuple[int, int, Any, int]],
    friction: Truth | None,
    barriers: Truth | None,
    *,
    codes: bool,
) -> dict[str, Truth]:
    """Distances, backlinks and allocation by Dijkstra's algorithm."""
    model, graph = options["cost"], graph_of(z, grid, options, friction, barriers)
    distance = reference.dijkstra(
        z.cells, model, sources, max_cost=options.get("max-cost"), **graph
    )
    reached = np.array([d < math.inf for d in distance.ravel()], bool).reshape(distance.shape)
    found = {"distance": Truth(distance, reached)}
    if codes:
        back, _ = reference.backlinks(distance, z.cells, model, sources, **graph)
        found["backlink"] = Truth(back, 255)
        ids = reference.allocation(back, z.cells, model, sources)
        found["allocation"] = Truth(ids.astype("<u4"), 0)
    return found


def costs_between(
    z: Truth,
    grid: GridSpec,
    options: dict[str, Any],
    places: list[tuple[int, int, Any, int]],
    friction: Truth | None,
    barriers: Truth | None,
) -> list[tuple[int, int, Any]]:
    """Rows of the table of a matrix, or of a network of all or the nearest places: with costs."""
    words, model = options["of"].split(), options["cost"]
    nearest = int(words[words.index("--nearest") + 1]) if "--nearest" in words else None
    graph = graph_of(z, grid, options, friction, barriers)
    rows = reference.cost_matrix(z.cells, model, places, None, nearest=nearest, **graph)
    costs = {row[:2]: row[2] for row in rows}
    if words[0] == "least-cost-network":
        once = model not in ("tobler", "langmuir")
        costs = {
            (a, b): cost
            for (a, b), cost in costs.items()
            if cost is not None and not (once and a > b and (nearest is None or (b, a) in costs))
        }
    return [(*pair, cost) for pair, cost in costs.items()]


def graph_of(
    z: Truth,
    grid: GridSpec,
    options: dict[str, Any],
    friction: Truth | None,
    barriers: Truth | None,
) -> dict[str, Any]:
    """The graph of a command's steps, as `reference.arcs` takes it."""
    model = options["cost"]
    # With model "friction" and no named layer, the raster's own cells are the friction.
    f = friction or (z if model == "friction" else None)
    good = z.good & (f.good if f else True)
    walls = None if barriers is None else ~barriers.good | (barriers.cells != 0)
    return {
        "f": None if f is None else f.cells,
        "valid": good,
        "lengths": step_lengths(grid, options["connectivity"]),
        "connectivity": options["connectivity"],
        "barriers": walls,
        "corner_cutting": not options.get("no-corner-cutting"),
        "reverse": bool(options.get("reverse")),
        "wrap": joined(grid, options),
    }


def same_distances(found: np.ndarray, wanted: Truth) -> bool:
    """Compare with Python numbers, whatever the type of the cells."""
    void = np.isnan(found) if found.dtype.kind == "f" else found == np.iinfo(found.dtype).max
    if not np.array_equal(~void, wanted.nodata):
        return False
    mine, theirs = found[wanted.nodata].tolist(), wanted.cells[wanted.nodata].tolist()
    if wanted.loose and found.dtype.kind == "f":
        return bool(np.allclose(mine, theirs, rtol=1e-12, atol=0))
    return mine == theirs


def exported(truth: Truth, layer: str) -> np.ndarray:
    """The cells of the file that a layer is exported to."""
    return symmetric(np.pad(truth.cells, 1)) if layer == "mst" else truth.cells
