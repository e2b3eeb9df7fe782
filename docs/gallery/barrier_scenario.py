"""What a fence with one gate changes: travel over land cover, before and after."""

import numpy as np
from matplotlib import pyplot as plt
from scene import INK, cells, folder, map_of, points, sample, save

import terrain_gpu

store, classes = sample(), folder() / "cover.csv"
classes.write_text("class,friction\n0,1.0\n1,1.8\n2,4.0\n")  # meadow, forest, rock
terrain_gpu.slope(store)
terrain_gpu.calc(store, "(slope > 8) + (slope > 20)", into="cover")
terrain_gpu.calc(store, "cover", reclass=classes, into="friction")
fence = [(90 + col // 3, col) for col in range(20, 400) if not 300 < col < 306]
terrain_gpu.rasterize(store, fence, value=1, into="fence")

village, options = (280, 120), {"cost": "friction", "friction": "friction"}
terrain_gpu.shortest_paths(store, [village], into="before", **options)
terrain_gpu.shortest_paths(
    store, [village], into="after", barriers="fence", corner_cutting=False, **options
)
terrain_gpu.calc(store, "after - before", into="detour")
detour = cells(store, "detour") / 1000
longer = detour[detour > 0.01]
print(f"the fence lengthens the way to {np.mean(detour > 0.01):.0%} of the map")
print(f"by {longer.mean():.1f} km of meadow on average, at most {longer.max():.1f}")

ax = map_of(cells(store))
shown = ax.imshow(np.where(detour > 0.01, detour, np.nan), cmap="YlOrRd", alpha=0.65)
row, col = np.array(fence).T
for part in col < 303, col > 303:
    ax.plot(col[part], row[part], color=INK, lw=2)
points(ax, [village], "V")
plt.sca(ax)
save("barrier_scenario")
