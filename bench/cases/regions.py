"""How often does a GPU that does not hold the raster read each block? A simulation.

    python -m bench regions --blocks 49 --cells 16 32 64 --regions 13x13 17x17 25x25
    python -m bench regions --blocks 96 --cells 12 --regions 48x48 32x96 --source 0.5 0.5

Waves with noise, as in `large`, or fractal terrain, and absolute differences. A region is relaxed
by Dijkstra's algorithm, blocks are read when a step needs them, as `paths/relax/gpu/regions.py`
does.
"""

from __future__ import annotations

import argparse
from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

from bench.table import Table
from bench.terrain import fractal, waves

FAR = 2**60


def noisy_waves(side: int) -> np.ndarray:
    """Waves, and noise with a standard deviation of 20."""
    noise = np.random.default_rng(0).normal(0, 20, (side, side))
    return (waves(np, 0, side, 0, side) + noise).astype(np.int64)


@njit
def relax(z, d, window, here, block, starts, changed, wanted):
    """Relax cells of a window from some cells; return those that wait for blocks."""
    r0, r1, c0, c1 = window
    queue = [(d[r, c], r, c) for r, c in starts]
    heapify(queue)
    waiting = [(0, 0) for _ in range(0)]
    while queue:
        least, r, c = heappop(queue)
        if least > d[r, c]:
            continue
        missing = False
        for i in range(max(r - 1, r0), min(r + 2, r1)):
            for j in range(max(c - 1, c0), min(c + 2, c1)):
                if not here[i // block, j // block]:
                    missing = wanted[i // block, j // block] = True
        if missing:
            waiting.append((r, c))
            continue
        for i in range(max(r - 1, r0), min(r + 2, r1)):
            for j in range(max(c - 1, c0), min(c + 2, c1)):
                found = least + abs(z[i, j] - z[r, c])
                if found < d[i, j]:
                    d[i, j], changed[i, j] = found, True
                    heappush(queue, (found, i, j))
    return waiting


def simulate(
    z: np.ndarray, block: int, sides: tuple[int, int], source: tuple[int, int]
) -> list[float]:
    """Visits, readings in turn, reads and writes, for regions of so many blocks down and across."""
    count, (high, wide) = len(z) // block, (side * block for side in sides)
    d = np.full(z.shape, FAR)
    d[source] = 0
    pending = {(source[0] // high, source[1] // wide): {source}}
    begun: set[tuple[int, int]] = set()
    visits = turns = reads = writes = 0
    while pending:
        at = min(pending, key=lambda region: min(d[cell] for cell in pending[region]))
        starts = sorted(pending.pop(at))
        window = tuple(
            min(k, len(z))
            for i, cells in zip(at, (high, wide), strict=True)
            for k in (i * cells, (i + 1) * cells)
        )
        here, changed = np.zeros((count, count), bool), np.zeros(z.shape, bool)
        rows, cols = slice(*window[:2]), slice(*window[2:])
        if at not in begun:
            mine = (slice(i * n, (i + 1) * n) for i, n in zip(at, sides, strict=True))
            here[*mine] = True
            reads += int(here.sum())
        begun.add(at)
        visits += 1
        while True:
            wanted = np.zeros_like(here)
            starts = relax(z, d, window, here, block, starts, changed, wanted)
            if not starts:
                break
            turns, reads = turns + 1, reads + int(wanted.sum())
            here |= wanted
        inside = changed[rows, cols].reshape(
            rows.stop // block - rows.start // block, block, -1, block
        )
        writes += int(inside.any(axis=(1, 3)).sum())
        inner = np.zeros_like(changed)
        inner[rows.start + 1 : rows.stop - 1, cols.start + 1 : cols.stop - 1] = True
        for r, c in np.argwhere(changed & ~inner).tolist():
            for i in (r - 1, r + 1):
                for j in (c - 1, c + 1):
                    to = i // high, j // wide
                    if to != at and 0 <= i < len(z) and 0 <= j < len(z):
                        pending.setdefault(to, set()).add((r, c))
    return [visits, turns / max(visits - len(begun), 1), reads / count**2, writes / count**2]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--blocks", type=int, default=49, help="of the raster, along each side")
    parser.add_argument("--cells", type=int, nargs="*", default=[16, 32], help="of a block")
    parser.add_argument("--regions", nargs="*", default=["13x13", "17x17"], help="in blocks")
    parser.add_argument("--source", type=float, nargs=2, default=[0.04, 0.04], help="0 to 1")
    parser.add_argument("--fractal", action="store_true", help="fractal terrain")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    table = Table(
        "cells of a block | region, in blocks | visits | readings of a later visit | "
        "reads of a block | writes"
    )
    for block in given.cells:
        side = given.blocks * block
        z = fractal(side, "uint16").astype(np.int64) if given.fractal else noisy_waves(side)
        source = int(given.source[0] * side), int(given.source[1] * side)
        for region in given.regions:
            high, _, wide = region.partition("x")
            table.row(block, region, *simulate(z, block, (int(high), int(wide)), source))
