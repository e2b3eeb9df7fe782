"""What do 16 neighbours and the continuous metric gain and cost: errors, and processor time?

Errors are those of a source in a corner, relative to the true distance, on a plain and where
friction changes from 1 to 3 (or 3 to 1) halfway: Snell's law. Peers: scikit-fmm where it can be
imported (`pip install scikit-fmm`, in an environment of its own: `PYTHONPATH=.../site-packages`);
E. W. Dijkstra's algorithm with a binary heap over the whole raster, compiled by numba, whose
distances must be the same; and r.cost, where GRASS is installed. There are none for a GPU, where
the seconds are those of relaxation, with kernels that are compiled already.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numba
import numpy as np

from bench import peers
from bench.table import Table
from bench.timing import Spent, timed
from terrain_gpu import shortest_paths

WAYS = {"8": {}, "16": {"connectivity": 16}, "continuous": {"metric": "continuous"}}
DOWN, RIGHT = (0, 1, 1, 1, 0, -1, -1, -1), (1, 1, 0, -1, -1, -1, 0, 1)
FMM = {"fmm 1": 1, "fmm 2": 2} if find_spec("skfmm") else {}
"""Orders of scikit-fmm."""


@numba.njit
def heap(f: np.ndarray, start: tuple[int, int], ways: int) -> np.ndarray:
    """Distances over 8 or 16 neighbours; a knight's move costs what r.cost -k takes, in halves."""
    rows, cols = f.shape
    found = np.full(f.shape, np.inf)
    found[start] = 0.0
    heap = [(0.0, start[0], start[1])]
    while heap:
        d, r, c = heapq.heappop(heap)
        if d > found[r, c]:
            continue
        for k in range(ways):
            i = k % 8  # two steps of a knight's move, or one
            down, right = DOWN[i], RIGHT[i]
            if k >= 8:
                down, right = down + DOWN[(i + 1) % 8], right + RIGHT[(i + 1) % 8]
            y, x = r + down, c + right
            if not (0 <= y < rows and 0 <= x < cols):
                continue
            if k < 8:
                length = 1.0 if down == 0 or right == 0 else np.sqrt(2.0)
                cost = 0.5 * (f[r, c] + f[y, x]) * length
            else:
                one = f[r + DOWN[i], c + RIGHT[i]]
                other = f[r + DOWN[(i + 1) % 8], c + RIGHT[(i + 1) % 8]]
                middle, half = 0.5 * (one + other), 0.5 * np.sqrt(5.0)
                cost = 0.5 * (f[r, c] + middle) * half + 0.5 * (middle + f[y, x]) * half
            if d + cost < found[y, x]:
                found[y, x] = d + cost
                heapq.heappush(heap, (d + cost, y, x))
    return found


def fmm(friction: np.ndarray, order: int) -> np.ndarray:
    """Distances from the first cell by scikit-fmm."""
    import skfmm

    phi = np.ones(friction.shape)
    phi[0, 0] = -1  # the front lies halfway to the next cells, in friction of the first
    found = skfmm.travel_time(phi, 1 / friction, order=order) + friction[0, 0] / 2
    found[0, 0] = 0
    return np.asarray(found)


def distances(friction: np.ndarray, way: str) -> tuple[Spent, np.ndarray, dict]:
    """What distances from the first cell take, these, and the report's result."""
    if way in FMM:
        return *timed(fmm, friction, FMM[way]), {}
    spent, made = timed(
        shortest_paths, friction, [(0, 0)], cost="friction", friction=friction, threads=1,
        backend="cpu", **WAYS[way],
    )  # fmt: skip
    return spent, made.distance(), made.report.result


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


def errors(side: int) -> None:
    """Largest and mean errors, in per cent."""
    radius = np.hypot(*np.mgrid[:side, :side])
    ranges = (2, 10), (10, 100), (100, side)
    frictions = (1.0, 3.0), (3.0, 1.0)
    table = Table(
        f"largest (mean) error in %, {side}^2",
        *(f"{least} to {most} cells away" for least, most in ranges),
        *(f"friction {near:g}, then {far:g}" for near, far in frictions),
    )
    for way in (*WAYS, *FMM):
        found = distances(np.ones((side, side)), way)[1]
        with np.errstate(invalid="ignore"):
            off = np.abs(found - radius) / radius
        parts = [off[(radius >= least) & (radius < most)] for least, most in ranges]
        for near, far in frictions:
            friction = np.full((side, side), near)
            friction[side // 2 :] = far
            right = refracted(side, near, far)
            parts.append(np.abs(distances(friction, way)[1][side // 2 :] - right) / right)
        table.row(way, *(f"{100 * part.max():.2f} ({100 * part.mean():.2f})" for part in parts))


def times(friction: np.ndarray, folder: Path) -> None:
    """Processor seconds, least of two."""
    table = Table(
        f"{len(friction)}^2 | s of a processor | ns a cell | visits of a tile | "
        "row passes of a visit"
    )

    def row(name: str, seconds: float, told: dict) -> None:
        visits = (told.get(f"{key}") for key in ("tile_visits_per_tile", "row_passes_per_visit"))
        table.row(name, seconds, 1e9 * seconds / friction.size, *visits)

    few, own = friction[:100, :100].copy(), {}
    for way in (*WAYS, *FMM):
        distances(few, way)  # compiles
        both = [distances(friction, way) for _ in range(2)]
        own[way] = both[0][1]
        row(way, min(spent.processor for spent, *_ in both), both[0][2])
    for way in ("8", "16"):
        heap(few, (0, 0), int(way))
        spent, found = timed(heap, friction, (0, 0), int(way))
        row(f"{way}, binary heap", spent.processor, {})
        np.testing.assert_allclose(own[way], found, rtol=1e-12)
    if peers.has_grass():
        for name, flags in (("8, r.cost", ""), ("16, r.cost -k", "-k")):
            row(name, peers.r_cost(folder, friction, (0, 0), flags).processor, {})


def on_gpu(friction: np.ndarray) -> None:
    """Seconds of relaxation from the middle, least of four."""
    cells, middle = friction.astype(np.float32), len(friction) // 2
    table = Table("neighbours | s | visits of a tile")
    for connectivity in (8, 16):
        how = {"cost": "friction", "connectivity": connectivity, "backend": "cuda"}
        found = [shortest_paths(cells, [(middle, middle)], friction=cells, **how) for _ in range(4)]
        seconds = min(one.report.seconds["relax"] for one in found)
        table.row(connectivity, seconds, found[0].report.result["tile_visits_per_tile"])


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--errors", type=int, default=513, metavar="SIDE", help="for errors")
    parser.add_argument("--side", type=int, default=2048, help="for times")
    parser.add_argument("--patch", type=int, default=8, help="side of patches of one friction")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu", help="for times")


def run(given: argparse.Namespace) -> None:
    """Print both tables; of a GPU, that of times."""
    side, patch = given.side, given.patch
    coarse = np.random.default_rng(1).random((side // patch + 2, side // patch + 2))
    friction = 1 + 9 * np.kron(coarse, np.ones((patch, patch)))[:side, :side].copy()
    if given.backend == "cuda":
        on_gpu(friction)
        return
    errors(given.errors)
    print()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        times(friction, Path(folder))
