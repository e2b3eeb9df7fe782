"""How large are the two largest basins of a DEM, and how long their longest ways?

The DEM is in Web Mercator; heights of 0, the sea, have no value. Outlets are the cells beside it; a
basin is what drains to one outlet. Its longest way leads from the cell with the greatest flow
length (in map units), from centre to centre of cells, to the outlet. Areas and lengths are on the
WGS 84 ellipsoid, by its radii of curvature at the latitude. The folder keeps a store of all layers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import terrain_gpu as tg
from bench.stores import cells_of
from bench.table import Table
from terrain_gpu.grid.neighbours import COL_STEP, ROW_STEP

RADIUS, E2 = 6378137.0, 0.00669437999014


def ground(grid, rows):
    """Latitudes of (fractions of) rows; metres on the ground of a column and a row there."""
    latitude = np.arctan(np.sinh((grid.transform[5] + grid.transform[4] * (rows + 0.5)) / RADIUS))
    bulge = 1 - E2 * np.sin(latitude) ** 2
    side = grid.transform[0] * np.cos(latitude)
    return latitude, side / np.sqrt(bulge), side * (1 - E2) / bulge**1.5


def length(grid, way, straight=1.0, diagonal=2**0.5):
    """Kilometres along (row, column) of cells; what a straight and a diagonal step count."""
    steps = np.diff(way, axis=0)
    _, across, along = ground(grid, (way[1:, 0] + way[:-1, 0]) / 2)
    factor = np.where((steps != 0).all(axis=1), diagonal / 2**0.5, straight)
    return (factor * np.hypot(steps[:, 0] * along, steps[:, 1] * across)).sum() / 1000


def smooth(way, n):
    """Averages over n centres of cells, fewer at both ends."""
    count = np.convolve(np.ones(len(way)), np.ones(n), "same")
    return np.column_stack([np.convolve(side, np.ones(n), "same") / count for side in way.T])


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("dem", type=Path)


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    path = given.work / f"{given.dem.stem}.zarr"
    tg.convert_dataset(given.dem, path, nodata=0, resume=True)
    tg.minimum_spanning_tree(path, weight="flow", resume=True)
    table = Table("flats | outlet, N | km2 | km with factors | of cells | means of 3 | 5 | 9")
    for flats in ("tree", "gradient"):
        tg.flow_direction(path, flats=flats, into=flats, resume=True)
        own = {"directions": flats, "resume": True}
        if flats == "tree":
            tg.fill(path, **own)  # for the gradients
        tg.basins(path, into=f"{flats}_basins", **own)
        tg.hand(path, to_outlets=True, into=f"{flats}_hand", distance=f"{flats}_length", **own)
        store = tg.TileStore.open(path)
        names = flats, f"{flats}_basins", f"{flats}_length"
        codes, labels, lengths = (cells_of(path, name) for name in names)
        latitude, across, along = ground(store.grid, np.arange(store.grid.rows))
        areas = np.bincount(labels.ravel(), np.repeat(across * along, store.grid.cols)) / 1e6
        areas[store.layer(names[1]).nodata] = 0
        for basin in np.argsort(areas)[-2:]:
            far = int(np.argmax(np.where(labels == basin, lengths, -1)))
            way = [divmod(far, store.grid.cols)]
            while code := int(codes[way[-1]]):
                k = code.bit_length() - 1
                way.append((way[-1][0] + int(ROW_STEP[k]), way[-1][1] + int(COL_STEP[k])))
            cells = np.array(way)
            forms = cells, *(smooth(cells, n) for n in (3, 5, 9))
            found = [length(store.grid, cells, 0.948, 1.340)]
            found += [length(store.grid, each) for each in forms]
            outlet = f"{np.degrees(latitude[way[-1][0]]):.2f}"
            table.row(flats, outlet, *(f"{one:.1f}" for one in (areas[basin], *found)))
