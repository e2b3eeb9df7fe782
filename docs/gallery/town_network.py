"""Paths that join nine towns: the cheapest network, and those between all neighbours."""

import json

import numpy as np
from matplotlib import pyplot as plt
from scene import ACCENT, INK, cells, folder, map_of, points, sample, save

import terrain_gpu

store = sample()
grid = terrain_gpu.TileStore.open(store).grid
towns = [(40, 60), (60, 220), (40, 360), (150, 40), (170, 170), (140, 310)]
towns += [(290, 60), (310, 210), (270, 350)]
terrain_gpu.slope(store)
terrain_gpu.calc(store, "1 + slope / 4", into="resistance")  # a cost that is the same both ways
ax = map_of(cells(store))
for pairs, colour, width in ("delaunay", INK, 1.0), ("mst", ACCENT, 2.6):
    path = folder() / f"{pairs}.geojson"
    found = terrain_gpu.least_cost_network(
        store, towns, path, pairs=pairs, cost="friction", friction="resistance", into=pairs
    )
    lines = json.loads(path.read_text())["features"]
    length = sum(line["properties"]["length"] for line in lines) / 1000
    print(f"{pairs}: {found.links} links, {length:.0f} km")
    for line in lines:
        x, y = np.array(line["geometry"]["coordinates"]).T
        left, top = grid.bounds[0], grid.bounds[3]
        col, row = (x - left) / grid.transform[0] - 0.5, (y - top) / grid.transform[4] - 0.5
        ax.plot(col, row, color=colour, lw=width, solid_capstyle="round")
points(ax, towns)
plt.sca(ax)
save("town_network")
