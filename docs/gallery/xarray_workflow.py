"""From a DataArray to four layers, without a file: slope, flow, height above streams, wetness."""

import numpy as np
from matplotlib import pyplot as plt
from scene import made, map_of, save

import terrain_gpu.xarray

dem = terrain_gpu.open(made(200, 300, seed=9, feature_size=256, relief=500.0)).elevation
slope = dem.terrain.slope()
flow = dem.terrain.flow_accumulation()
height = dem.terrain.hand("1ha")
wetness = dem.terrain.indices(twi="twi")

print(flow.dims, flow.shape, flow.dtype)
low = height < 3
print(
    f"slope: {float(slope.mean()):.1f} degrees, and {float(slope.where(low).mean()):.1f} below 3 m"
)

figure, axes = plt.subplots(2, 2, figsize=(6.4, 4.5), layout="constrained")
drawn = {
    "slope, degrees": (slope, "YlOrBr"),
    "flow, log10 of cells": (np.log10(flow), "YlGnBu"),
    "height above the stream, m": (height, "GnBu_r"),
    "wetness index": (wetness, "BrBG"),
}
for ax, (title, (layer, colours)) in zip(axes.flat, drawn.items(), strict=True):
    map_of(dem.values, ax, title)
    shown = ax.imshow(layer, cmap=colours, alpha=0.75, vmax=float(layer.quantile(0.99)))
    figure.colorbar(shown, ax=ax, shrink=0.8)
save("xarray_workflow")
