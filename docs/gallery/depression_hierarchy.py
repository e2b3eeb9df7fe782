"""Depressions within depressions: each with its pit, spill, depth and volume."""

import csv

import numpy as np
from matplotlib.colors import ListedColormap
from scene import cells, folder, made, map_of, save

import terrain_gpu

store = made(300, 450, seed=11, feature_size=128, relief=60.0, roughness=0.9)
table = folder() / "depressions.csv"
terrain_gpu.depressions(store, min_depth=0.3, table=table)
rows = {int(row["id"]): row for row in csv.DictReader(table.open())}

level = dict.fromkeys(rows, 1)
for name in sorted(rows, key=lambda name: float(rows[name]["spill_height"])):
    parent = int(rows[name]["parent"])
    if parent:
        level[parent] = max(level[parent], level[name] + 1)
deepest = max(rows.values(), key=lambda row: float(row["depth"]))
volume = float(deepest["volume"]) / 1e3
print(f"{len(rows)} depressions of at least 0.3 m, in up to {max(level.values())} levels")
print(f"the deepest: {float(deepest['depth']):.1f} m, {volume:.0f} thousand m3")

ax = map_of(cells(store))
of = np.vectorize(lambda name: level.get(name, np.nan), otypes=[float])
shades = ["#b9dcd8", "#7fbab8", "#418f98", "#22627a", "#123c5a"]
ax.imshow(
    of(np.nan_to_num(cells(store, "depressions"))), cmap=ListedColormap(shades), vmin=0.5, vmax=5.5
)
save("depression_hierarchy")
