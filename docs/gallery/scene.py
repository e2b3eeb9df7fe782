"""What the scripts of the gallery have in common: two terrains, and maps that look alike."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from PIL import Image

import terrain_gpu

ROOT = Path(__file__).resolve().parents[2]
INK, PAPER, WATER, ACCENT = "#22333b", "#fbfaf7", "#2a7f9e", "#c8553d"
COLOURS = 32  # a palette keeps the files small
STEPS = {
    1: (0, 1),
    2: (1, 1),
    4: (1, 0),
    8: (1, -1),
    16: (0, -1),
    32: (-1, -1),
    64: (-1, 0),
    128: (-1, 1),
}
mpl.use("Agg")
mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "figure.facecolor": PAPER,
        "axes.facecolor": PAPER, "axes.titlesize": 10, "image.interpolation": "nearest",
        "savefig.facecolor": PAPER,
    }
)  # fmt: skip
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def folder() -> Path:
    """Return a new folder, which is removed at the end."""
    _FOLDERS.append(tempfile.TemporaryDirectory())
    return Path(_FOLDERS[-1].name)


def sample() -> Path:
    """Return a store with the sample DEM: 344 x 403 cells of 3 arc seconds in Tennessee."""
    store = folder() / "jacksboro.zarr"
    terrain_gpu.convert_dataset(ROOT / "data/jacksboro.tif", store)
    return store


def made(rows: int, cols: int, **terrain: object) -> Path:
    """Return a store with terrain of `scripts/make_terrain.py`, in cells of 10 m."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from make_terrain import terrain_window, write_store

    store, window = folder() / "made.zarr", partial(terrain_window, dtype="float32", **terrain)
    options = {"dtype": "float32", "threads": 1, "block_size": 256, "overwrite": False}
    write_store(store, (rows, cols), window, **options)
    return store


def cells(store: os.PathLike[str], name: str = "elevation") -> np.ndarray:
    """Return a whole layer, NaN where it has no value."""
    layer = terrain_gpu.TileStore.open(store).layer(name)
    read = layer.read_window(*layer.grid.window).astype(float)
    return read if layer.nodata is None else np.where(read == layer.nodata, np.nan, read)


def hillshade(heights: np.ndarray, relief: float = 3.0) -> np.ndarray:
    """Return the light that falls on a surface from the north-west, 0 to 1."""
    down, right = np.gradient(heights * relief / np.nanstd(np.gradient(heights)) / 8)
    light = (1 + down + right) / np.sqrt(3 * (1 + down**2 + right**2)) * 0.5 + 0.5
    return np.round(light * 16) / 16  # few shades make small files


def map_of(heights: np.ndarray, ax: plt.Axes | None = None, title: str = "") -> plt.Axes:
    """Draw a hillshade in the colour of paper, and return its axes."""
    if ax is None:
        rows, cols = heights.shape
        ax = plt.figure(figsize=(cols / 50, rows / 50)).add_axes((0, 0, 1, 1))  # 2 pixels a cell
    ax.imshow(hillshade(heights), cmap="gray", vmin=-0.4, vmax=1.05, alpha=0.75)
    ax.set(xticks=[], yticks=[], title=title)
    for side in ax.spines.values():
        side.set_visible(False)
    return ax


def draw_ways(ax: plt.Axes, codes: np.ndarray, widths: np.ndarray, colour: str = WATER) -> None:
    """Draw the step of each cell with a width along its D8 code."""
    ends = np.array(
        [
            [(r, c), np.add((r, c), STEPS.get(codes[r, c], (0, 0)))]
            for r, c in np.argwhere(widths > 0)
        ]
    )
    ax.add_collection(
        LineCollection(
            ends[..., ::-1], linewidths=widths[widths > 0], colors=colour, capstyle="round"
        )
    )


def points(ax: plt.Axes, places: list[tuple[int, int]], names: str = "") -> None:
    """Draw places (row, column), with a letter each."""
    for (row, col), name in zip(places, names or " " * len(places), strict=True):
        ax.plot(col, row, "o", ms=8, color=ACCENT, mec="white", mew=1.5)
        ax.annotate(name, (col, row), (7, 5), textcoords="offset points", weight="bold", color=INK)


def save(name: str) -> None:
    """Write the current figure to NAME.png in the current folder, and close it."""
    drawn = io.BytesIO()
    plt.savefig(drawn, dpi=100)
    plt.close()
    picture, palette = Image.open(drawn).convert("RGB"), Image.new("P", (1, 1))
    few = picture.quantize(COLOURS).getpalette()[: 3 * COLOURS]
    for colour in INK, PAPER, WATER, ACCENT, "#ffffff":  # which are rare, and would be lost
        few += [round(255 * part) for part in to_rgb(colour)]
    palette.putpalette(few)
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(f"{name}.png", optimize=True)
