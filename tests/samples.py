"""Where the rasters of tests are, and layers of made ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from strategies import WGS84

from terrain_gpu import GridSpec, create_layer

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "jacksboro.tif"
DEMS = ROOT.parent / "shared" / "dems"
"""Real rasters that a checkout need not have."""


def numbers_of(file: Path) -> dict[str, np.ndarray]:
    """Arrays of a file of numbers: each a name, then rows; "-" is NaN, empty lines between them."""
    parts = [part.splitlines() for part in file.read_text().strip().split("\n\n")[1:]]
    return {
        name: np.array([["nan" if v == "-" else v for v in row.split()] for row in rows], float)
        for name, *rows in parts
    }


def round_the_earth(shape, west=-180.0, top=60.0, height=0.5):
    """A grid of longitude and latitude that spans 360 degrees."""
    width = 360 / shape[1]
    return GridSpec(*shape, (width, 0.0, west, 0.0, -height, top), WGS84)


def make_layers(store, grid, layers, block=64):
    """Write layers; heights of -1 are nodata."""
    for name, cells in layers.items():
        nodata = -1 if name == "elevation" else None
        with create_layer(
            store, name, grid, cells.dtype, nodata=nodata, block_size=block
        ) as writer:
            for at in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(*at)
                writer.write_block(*at, np.ascontiguousarray(cells[r0:r1, c0:c1]))
            writer.commit()
