"""How round is a circle? Distances over level ground with 4, 8 and 16 neighbours."""

import numpy as np
from matplotlib import pyplot as plt
from scene import ACCENT, INK, save

import terrain_gpu

ground, middle = np.ones((201, 201)), 100
y, x = np.mgrid[:201, :201] - middle
straight = np.hypot(x, y)
figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.9), layout="constrained")
for ax, neighbours in zip(axes, (4, 8, 16), strict=True):
    found = terrain_gpu.shortest_paths(
        ground, [(middle, middle)], cost="friction", friction=ground, connectivity=neighbours
    )
    distance = found.distance()
    error = np.where(straight > 0, distance / np.maximum(straight, 1) - 1, 0)
    print(f"{neighbours:2} neighbours: up to {error.max():.1%} too long")
    ax.imshow(error, cmap="YlOrBr", vmax=0.42)
    ax.contour(straight, [30, 60, 90], colors=INK, linewidths=0.7, linestyles="dotted")
    ax.contour(distance, [30, 60, 90], colors=ACCENT, linewidths=1.6)
    ax.set(xticks=[], yticks=[], title=f"{neighbours} neighbours")
save("octagons")
