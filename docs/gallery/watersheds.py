"""Watersheds of five gauges, nested along the rivers, with the area that drains through each."""

import csv

import numpy as np
from matplotlib.colors import ListedColormap
from scene import cells, draw_ways, folder, map_of, points, sample, save

import terrain_gpu

store = sample()
gauges = [(160, 256), (196, 76), (190, 320), (300, 120), (90, 180)]  # near the rivers
table = folder() / "gauges.csv"
terrain_gpu.streams(store, "4km2")
terrain_gpu.watershed(store, gauges, snap=1500, table=table)  # moved to the largest flow near by
rows = list(csv.DictReader(table.open()))
for name, row in zip("ABCDE", rows, strict=True):
    below = " ABCDE"[int(row["downstream"])]
    print(f"{name}: {float(row['total_area']) / 1e6:6.1f} km2" + f", then {below}" * (below != " "))

ax = map_of(cells(store))
label = cells(store, "watershed")
tints = ListedColormap(["#d9b26f", "#8fb996", "#7d9fc0", "#c98f8f", "#a795c4"])
ax.imshow(np.where(label > 0, label, np.nan), cmap=tints, alpha=0.55, interpolation="nearest")
draw_ways(ax, cells(store, "flow_direction"), 0.5 * np.nan_to_num(cells(store, "streams")))
points(ax, [(int(row["row"]), int(row["col"])) for row in rows], "ABCDE")
save("watersheds")
