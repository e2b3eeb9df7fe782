"""Minutes of walking between eight villages: one search answers all pairs, both ways."""

import numpy as np
from matplotlib import pyplot as plt
from scene import cells, map_of, points, sample, save

import terrain_gpu

store = sample()
villages = [
    (40, 60),
    (60, 220),
    (50, 350),
    (170, 40),
    (180, 200),
    (290, 60),
    (310, 220),
    (270, 350),
]
names = "ABCDEFGH"
found = terrain_gpu.cost_matrix(store, villages, cost="tobler")
pairs = found.columns()
minutes = np.zeros((8, 8))
minutes[pairs["source"] - 1, pairs["target"] - 1] = pairs["cost"] / 60

row, col = np.unravel_index(np.argmax(minutes - minutes.T), minutes.shape)
there, back = minutes[row, col], minutes[col, row]
print(f"{found.rows} pairs; the mean takes {pairs['cost'].mean() / 60:.0f} minutes")
print(f"{names[row]} to {names[col]} takes {there:.0f} minutes, the way back {back:.0f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.9), layout="constrained")
points(map_of(cells(store), left), villages, names)
right.imshow(minutes, cmap="YlOrBr", vmax=1000)
for (row, col), value in np.ndenumerate(minutes):
    if row != col:
        right.text(col, row, f"{value:.0f}", ha="center", va="center", fontsize=8)
right.set(xticks=range(8), yticks=range(8), xticklabels=names, yticklabels=names)
right.set(xlabel="to", ylabel="from", title="minutes")
save("cost_matrix")
