"""Corridors between three reserves: where an animal's detour is small, on slopes that it avoids."""

import numpy as np
from scene import ACCENT, cells, map_of, sample, save

import terrain_gpu

store = sample()
reserves = {"west": (220, 30), "north": (30, 270), "south": (300, 320)}
terrain_gpu.slope(store)
terrain_gpu.calc(store, "1 + slope / 4", into="resistance")
for name, (row, col) in reserves.items():
    area = [(r, c) for r in range(row, row + 25) for c in range(col, col + 35)]
    terrain_gpu.shortest_paths(
        store, area, cost="friction", friction="resistance", into=f"from_{name}"
    )
found = terrain_gpu.corridor(store, [f"from_{name}" for name in reserves], within="6%")
for pair in found.report.result["pairs"]:
    print(
        f"{pair['from']} to {pair['to']}: a cost of {pair['optimum'] / 1000:.0f} km of level ground"
    )
detour = cells(store, "corridor")
print(f"{np.isfinite(detour).mean():.0%} of the map lies in a corridor")

ax = map_of(cells(store))
ax.imshow(detour / 1000, cmap="YlOrBr_r", alpha=0.75)
for name, (row, col) in reserves.items():
    ax.fill([col, col + 35, col + 35, col], [row, row, row + 25, row + 25], color=ACCENT)
    ax.annotate(name, (col + 17, row + 13), color="white", ha="center", va="center", weight="bold")
save("corridors")
