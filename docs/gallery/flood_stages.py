"""Which land is flooded when streams rise by 2, 5 and 10 m, and in how many separate areas."""

import numpy as np
from scene import cells, draw_ways, map_of, sample, save

import terrain_gpu

store = sample()
terrain_gpu.streams(store, "2km2")
terrain_gpu.fill(store)
terrain_gpu.hand(store, "2km2", layer="filled")  # height above the stream that a cell drains to
for stage in 2, 5, 10:
    flooded = terrain_gpu.label_components(store, f"hand <= {stage}", into=f"flood_{stage}")
    print(f"{stage:2} m: {flooded.cells:6,} cells in {flooded.count} areas")

ax = map_of(cells(store))
hand = cells(store, "hand")
levels = [-1, 2, 5, 10]
ax.contourf(hand, levels, colors=["#1f5f8b", "#5b9fc4", "#a8cfe3"], alpha=0.8)
channels = np.nan_to_num(cells(store, "streams")) > 0
draw_ways(ax, cells(store, "flow_direction"), 0.9 * channels, "#123c5a")
save("flood_stages")
