"""The rivers of an island: directions, sums and orders, from a raw DEM with pits."""

import numpy as np
from scene import cells, draw_ways, made, map_of, save

import terrain_gpu

store = made(400, 600, seed=5, feature_size=256, relief=1200.0, roughness=0.9, coast=True)
rivers = terrain_gpu.streams(store, "2ha")  # computes directions and sums, which are not there
order = np.nan_to_num(cells(store, "streams"))

print(f"{rivers.links:,} links, {rivers.heads:,} springs, {rivers.outlets:,} mouths")
print(f"{rivers.length / 1000:.0f} km of channels, up to order {order.max():.0f}")

ax = map_of(cells(store))
draw_ways(ax, cells(store, "flow_direction"), 0.4 + 0.6 * order * (order > 0) - 0.4 * (order == 0))
save("river_network")
