"""How large are errors of distances on a plain over 4, 8, 16 and 32 neighbours? And a picture.

The least length of a path between two cells that are far apart depends on its direction only: it
combines the two steps between which the direction lies. The errors are those of this length.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.table import Table

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


def draw(path: Path, angles: np.ndarray, found: dict[int, np.ndarray]) -> None:
    """Draw lines of equal distance."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), dpi=110)
    axes = figure.subplots()
    axes.plot(np.cos(angles), np.sin(angles), color="0.7", linewidth=4, label="exact")
    for neighbours, each in found.items():
        if neighbours < 32:
            label = f"{neighbours} neighbours, to {100 * (each.max() - 1):.1f} %"
            axes.plot(np.cos(angles) / each, np.sin(angles) / each, linewidth=1, label=label)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.legend(loc="center", frameon=False)
    figure.savefig(path, bbox_inches="tight")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--plot", type=Path, metavar="OUT.png", help="draw lines of equal distance")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    angles = np.linspace(0, 2 * math.pi, 80_001)
    found = {neighbours: lengths(neighbours, angles) for neighbours in STEPS}
    table = Table("neighbours | largest error, % | mean error, %")
    for neighbours, each in found.items():
        table.row(neighbours, f"{100 * (each.max() - 1):.2f}", f"{100 * (each.mean() - 1):.2f}")
    if given.plot:
        draw(given.plot, angles, found)
