"""Simulate visits of regions on a GPU that does not hold the raster: how often blocks are read.

    python scripts/simulate_regions.py --blocks 49 --cells 16 32 64 --side 13 17 25

Waves with noise, as in bench_gpu_mst.py, and absolute differences. A region is relaxed by
Dijkstra's algorithm, blocks are read when a step needs them, as `paths/cuda/regions.py` does.
Prints a row for each case: visits, readings in turn of a later visit, reads and writes of a block.
"""

from __future__ import annotations

import argparse
from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

FAR = 2**60


def terrain(side: int) -> np.ndarray:
    line = np.sin(np.arange(side) / 9000) * 4000 + np.sin(np.arange(side) / 700) * 300
    z = line[:, None] * (1 + line / 9000) + np.random.default_rng(0).normal(20000, 20, (side, side))
    return z.astype(np.int64)


@njit
def relax(z, d, window, here, block, starts, changed, wanted):  # type: ignore[no-untyped-def]
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


def simulate(z: np.ndarray, block: int, side: int, source: tuple[int, int]) -> list[float]:
    """Visits, readings in turn, reads and writes, for regions of `side` x `side` blocks."""
    count, cells = len(z) // block, side * block
    d = np.full(z.shape, FAR)
    d[source] = 0
    pending = {(source[0] // cells, source[1] // cells): {source}}
    begun: set[tuple[int, int]] = set()
    visits = turns = reads = writes = 0
    while pending:
        at = min(pending, key=lambda region: min(d[cell] for cell in pending[region]))
        starts = sorted(pending.pop(at))
        window = tuple(min(max(k, 0), len(z)) for i in at for k in (i * cells, (i + 1) * cells))
        here, changed = np.zeros((count, count), bool), np.zeros(z.shape, bool)
        rows, cols = slice(*window[:2]), slice(*window[2:])
        if at not in begun:
            here[at[0] * side : (at[0] + 1) * side, at[1] * side : (at[1] + 1) * side] = True
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
                    to = i // cells, j // cells
                    if to != at and 0 <= i < len(z) and 0 <= j < len(z):
                        pending.setdefault(to, set()).add((r, c))
    return [visits, turns / max(visits - len(begun), 1), reads / count**2, writes / count**2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=49, help="Of the raster, along each side.")
    parser.add_argument("--cells", type=int, nargs="*", default=[16, 32], help="Of a block.")
    parser.add_argument("--side", type=int, nargs="*", default=[13, 17], help="Blocks of a region.")
    args = parser.parse_args()
    for block in args.cells:
        z = terrain(args.blocks * block)
        for side in args.side:
            found = simulate(z, block, side, (len(z) // 25, len(z) // 25))
            print(
                f"| {block} | {side} | {found[0]} |", *(f"{n:.2f} |" for n in found[1:]), flush=True
            )


if __name__ == "__main__":
    main()
