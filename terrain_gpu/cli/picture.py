"""Pictures of rasters, trees and paths; needs matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import cells
from ..grid import GridSpec, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRES_PER_DEGREE = 111_320
LAND = ("#4f8a6a", "#9db57c", "#dccb92", "#b98d60", "#86614f", "#f4f1ee")
"""Colours from low to high."""

_FORWARD = ((0, 1), (1, 1), (1, 0), (1, -1))
"""Row and column steps of the D8 bits E 1, SE 2, S 4, SW 8: they name each edge once."""


def hillshade(
    axes: Axes, heights: np.ndarray, grid: GridSpec, nodata: float | int | None = None
) -> Any:
    """Draw a hillshade with elevation tint, in map coordinates; return its colour scale."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LightSource, LinearSegmentedColormap, Normalize

    west, south, east, north = grid.bounds
    dx, dy = (east - west) / grid.cols, (north - south) / grid.rows
    if grid.is_geographic:
        dx *= METRES_PER_DEGREE * math.cos(math.radians((north + south) / 2))
        dy *= METRES_PER_DEGREE
    empty = cells.is_nodata(heights, nodata)
    shown = np.where(empty, heights[~empty].min() if (~empty).any() else 0, heights)
    scale = Normalize(shown.min(), shown.max())
    colours = LinearSegmentedColormap.from_list("land", LAND)
    image = LightSource(azdeg=315, altdeg=45).shade(
        shown, colours, norm=scale, blend_mode="overlay", vert_exag=1.5, dx=dx, dy=dy
    )
    image[empty] = 1
    aspect = dy / dx * (east - west) / grid.cols / ((north - south) / grid.rows)
    axes.imshow(image, extent=(west, east, south, north), aspect=aspect)
    axes.ticklabel_format(useOffset=False)
    axes.locator_params(nbins=4)
    return ScalarMappable(scale, colours)


def tree_lines(axes: Axes, edges: np.ndarray, window: Window, grid: GridSpec) -> None:
    """Draw the edges of a D8 edge raster that start in a window as lines in map coordinates."""
    from matplotlib.collections import LineCollection

    r0, r1, c0, c1 = window
    x, y = grid.x_centres(), grid.y_centres()
    lines = []
    for bit, (down, right) in enumerate(_FORWARD):
        row, col = np.nonzero(edges[r0:r1, c0:c1] >> bit & 1)
        row, col = row + r0, col + c0
        ends = np.stack([x[col], y[row], x[col + right], y[row + down]], axis=1)
        lines.append(ends.reshape(-1, 2, 2))
    axes.add_collection(
        LineCollection(list(np.concatenate(lines)), colors="#1c3f94", linewidths=0.6)
    )


def draw_tree(path: Path, heights: np.ndarray, edges: np.ndarray, grid: GridSpec) -> None:
    """Write a PNG of a hillshade beside a detail with the edges of the spanning tree."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    side = min(80, *grid.shape)
    row, col = (grid.rows - side) // 2, (grid.cols - side) // 2
    part = row, row + side, col, col + side
    zoom = grid.crop(part)
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    whole, near = figure.subplots(1, 2)
    tint = hillshade(whole, heights, grid)
    west, south, east, north = zoom.bounds
    whole.add_patch(Rectangle((west, south), east - west, north - south, fill=False, color="k"))
    hillshade(near, heights[part[0] : part[1], part[2] : part[3]], zoom)
    tree_lines(near, edges, part, grid)
    near.set(xlim=(west, east), ylim=(south, north), title="minimum spanning tree")
    whole.set(title="hillshade")
    figure.colorbar(tint, ax=whole, shrink=0.8).set_label("elevation")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def draw_walk(
    path: Path, heights: np.ndarray, seconds: np.ndarray, way: np.ndarray, grid: GridSpec
) -> None:
    """Write a PNG of a hillshade with lines of equal walking time and the path to a target.

    `seconds` are distances, NaN where unreached; `way` holds the (x, y) of the path's cells.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    tint = hillshade(axes, heights, grid)
    lines = axes.contour(
        grid.x_centres(), grid.y_centres(), seconds / 3600, 12, colors="#1c3f94", linewidths=0.7
    )
    axes.clabel(lines, fmt="%g h", fontsize=7)
    axes.plot(way[:, 0], way[:, 1], color="#c0392b", linewidth=2)
    axes.plot(*way[0], "o", *way[-1], "s", color="#c0392b")
    axes.set(title="hours of walking, and the least-cost path")
    figure.colorbar(tint, ax=axes, shrink=0.8).set_label("elevation")
    figure.savefig(path, dpi=120, metadata={"Software": None})
