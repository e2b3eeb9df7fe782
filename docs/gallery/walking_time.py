"""Walking time to the nearest of four huts, uphill and down, with Tobler's function."""

import numpy as np
from matplotlib import pyplot as plt
from scene import cells, map_of, points, sample, save

import terrain_gpu

store = sample()
huts = [(70, 70), (110, 300), (240, 150), (300, 330)]  # rows and columns
terrain_gpu.shortest_paths(store, huts, cost="tobler", reverse=True, allocation=True)  # to the huts
hours = cells(store, "distance") / 3600
nearest = cells(store, "allocation")

print(f"within an hour of a hut: {np.mean(hours <= 1):.0%} of the map")
print(f"the remotest cell: {hours.max():.1f} hours")

ax = map_of(cells(store))
bands = np.arange(0, hours.max() + 0.5, 0.5)
ax.contourf(hours, bands, cmap="YlGnBu", alpha=0.55)
lines = ax.contour(hours, bands[2::2], colors="#22333b", linewidths=0.7)
ax.clabel(lines, fmt="%g h", fontsize=8)
ax.contour(nearest, np.arange(1.5, 4), colors="white", linewidths=1.8)
points(ax, huts, "ABCD")
plt.sca(ax)
save("walking_time")
