"""Errors of distances on a plain over 4, 8, 16 and 32 neighbours, and a picture of equal distance.

    python scripts/plot_neighbours.py docs/images/neighbours.png

The least length of a path between two cells that are far apart depends on its direction only: it
combines the two steps between which the direction lies. The errors are those of this length.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import numpy as np

STEPS = {
    4: [(1, 0)],
    8: [(1, 0), (1, 1)],
    16: [(1, 0), (2, 1), (1, 1)],
    32: [(1, 0), (3, 1), (2, 1), (3, 2), (1, 1)],
}
"""The steps of the first octant; with 4 neighbours, of a quadrant."""


def lengths(neighbours: int, angles: np.ndarray) -> np.ndarray:
    """Least length of a path to a point at distance 1, for each angle."""
    steps = list(STEPS[neighbours])
    steps += [(y, x) for x, y in reversed(steps) if x != y]
    x, y = np.abs(np.cos(angles)), np.abs(np.sin(angles))
    found = np.zeros_like(angles)
    for (ax, ay), (bx, by) in pairwise(steps):
        # a times the one step and b times the other lead there.
        both = ax * by - ay * bx
        a, b = (x * by - y * bx) / both, (ax * y - ay * x) / both
        inside = (a >= -1e-12) & (b >= -1e-12)
        length = a * math.hypot(ax, ay) + b * math.hypot(bx, by)
        found = np.where(inside, length, found)
    return found


def main(path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    angles = np.linspace(0, 2 * math.pi, 80_001)
    figure, axes = pyplot.subplots(figsize=(5, 5), dpi=110)
    axes.plot(np.cos(angles), np.sin(angles), color="0.7", linewidth=4, label="exact")
    for neighbours in STEPS:
        found = lengths(neighbours, angles)
        most, mean = 100 * (found.max() - 1), 100 * (found.mean() - 1)
        print(f"{neighbours:2d} neighbours: largest error {most:.2f} %, mean {mean:.2f} %")
        if neighbours < 32:
            label = f"{neighbours} neighbours, to {most:.1f} %"
            axes.plot(np.cos(angles) / found, np.sin(angles) / found, linewidth=1, label=label)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.legend(loc="center", frameon=False)
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:])
