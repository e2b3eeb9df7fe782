"""Measure distances by 8 and 16 neighbours and by the continuous metric: errors, and CPU time.

Beside scikit-fmm where it can be imported (`pip install scikit-fmm`, in an environment of its own:
`PYTHONPATH=.../site-packages`). Errors are those of a source in a corner, relative to the true
distance, on a plain and where friction changes from 1 to 3 (or 3 to 1) halfway: Snell's law.

python scripts/bench_metric.py [SIDE OF ERRORS] [SIDE OF TIMES]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from terrain_gpu import shortest_paths

WAYS = {"8": {}, "16": {"connectivity": 16}, "continuous": {"metric": "continuous"}}


def distances(friction: np.ndarray, way: str, **how: object) -> tuple[np.ndarray, float, dict]:
    """Distances from the first cell, CPU seconds, and the report's result."""
    began = time.process_time()
    if way.startswith("fmm"):
        import skfmm

        phi = np.ones(friction.shape)
        phi[0, 0] = -1  # the front lies halfway to the next cells, in friction of the first
        found = skfmm.travel_time(phi, 1 / friction, order=int(way[-1])) + friction[0, 0] / 2
        found[0, 0] = 0
        return np.asarray(found), time.process_time() - began, {}
    made = shortest_paths(
        friction, [(0, 0)], cost="friction", friction=friction, threads=1, backend="cpu",
        **{**WAYS[way], **how},
    )  # fmt: skip
    return made.distance(), time.process_time() - began, made.report.result


def refracted(side: int, near: float, far: float) -> np.ndarray:
    """True distances beyond the middle, where friction changes from near to far."""
    middle = side // 2 - 0.5
    rows, cols = np.mgrid[side // 2 : side, :side].astype(float)
    low, high = np.zeros_like(cols), cols.copy()
    for _ in range(60):  # the point on the border where the derivative of the cost is 0
        x = (low + high) / 2
        rising = near * x / np.hypot(x, middle) > far * (cols - x) / np.hypot(
            cols - x, rows - middle
        )
        low, high = np.where(rising, low, x), np.where(rising, x, high)
    return near * np.hypot(low, middle) + far * np.hypot(cols - low, rows - middle)


def errors(side: int, ways: list[str]) -> None:
    """Print relative errors."""
    rows, cols = np.mgrid[:side, :side]
    radius = np.hypot(rows, cols)
    for way in ways:
        found = distances(np.ones((side, side)), way)[0]
        with np.errstate(invalid="ignore"):
            off = (found - radius) / radius
        told = []
        for least, most in ((2, 10), (10, 100), (100, side)):
            part = np.abs(off[(radius >= least) & (radius < most)])
            told.append(f"{least}-{most} {100 * part.max():.2f} % ({100 * part.mean():.2f} %)")
        print(f"plain, {way}: largest (mean) error at distances {', '.join(told)}", flush=True)
        for near, far in ((1.0, 3.0), (3.0, 1.0)):
            friction = np.full((side, side), near)
            friction[side // 2 :] = far
            right = refracted(side, near, far)
            off = np.abs(distances(friction, way)[0][side // 2 :] - right) / right
            print(
                f"friction {near:g} to {far:g}, {way}: {100 * off.max():.2f} % "
                f"({100 * off.mean():.2f} %)",
                flush=True,
            )


def times(side: int, ways: list[str]) -> None:
    """Print CPU times over friction from 1 to 10, uniform noise smoothed a little."""
    rng = np.random.default_rng(1)
    coarse = rng.random((side // 8 + 2, side // 8 + 2))
    friction = 1 + 9 * np.kron(coarse, np.ones((8, 8)))[:side, :side]
    for way in ways:
        distances(friction[:100, :100].copy(), way)  # compile
        seconds = min(distances(friction, way)[1] for _ in range(2))
        told = distances(friction, way)[2]
        visits = told.get("tile_visits_per_tile", "-"), told.get("row_passes_per_visit", "-")
        print(
            f"{side} x {side}, {way}: {seconds:.2f} s CPU, {1e9 * seconds / side**2:.0f} ns a "
            f"cell; tile visits {visits[0]}, row passes a visit {visits[1]}",
            flush=True,
        )


if __name__ == "__main__":
    ways = list(WAYS)
    try:
        import skfmm  # noqa: F401

        ways += ["fmm 1", "fmm 2"]
    except ImportError:
        print("scikit-fmm is missing")
    sides = [int(word) for word in sys.argv[1:]] + [513, 2048][len(sys.argv) - 1 :]
    errors(sides[0], ways)
    times(sides[1], ways)
