"""Seconds of friction paths over 8 and 16 neighbours: of a processor, beside peers, or of a GPU.

    python scripts/bench_neighbours.py [SIDE] [--backend cuda]

Peers are E. W. Dijkstra's algorithm with a binary heap over the whole raster, compiled by numba,
whose distances must be the same; and r.cost, where GRASS is installed. There are none for a GPU,
where the seconds are those of relaxation, with kernels that are compiled already.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numba
import numpy as np

from terrain_gpu import shortest_paths


def spent(who: int) -> float:
    return resource.getrusage(who).ru_utime


@numba.njit
def dijkstra(f: np.ndarray, start: tuple[int, int], ways: int) -> np.ndarray:
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


DOWN, RIGHT = (0, 1, 1, 1, 0, -1, -1, -1), (1, 1, 0, -1, -1, -1, 0, 1)


def on_gpu(cells: np.ndarray) -> None:
    middle = len(cells) // 2
    cells = cells.astype(np.float32)
    for connectivity in (8, 16):
        how = {"cost": "friction", "connectivity": connectivity, "backend": "cuda"}
        found = [shortest_paths(cells, [(middle, middle)], friction=cells, **how) for _ in range(4)]
        seconds = min(one.report.seconds["relax"] for one in found)
        visits = found[0].report.result["tile_visits_per_tile"]
        print(f"{connectivity} neighbours: {seconds:.3f} s, {visits} visits of a tile")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", type=int, nargs="?", default=2048)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    side = given.side
    cells = np.random.default_rng(1).uniform(1, 10, (side, side))
    if given.backend == "cuda":
        on_gpu(cells)
        return
    for connectivity in (8, 16):
        how = {"cost": "friction", "connectivity": connectivity, "threads": 1, "backend": "cpu"}
        few = cells[:99, :99].copy()
        shortest_paths(few, [(0, 0)], friction=few, **how)  # may compile
        before = spent(resource.RUSAGE_SELF)
        found = shortest_paths(cells, [(side // 2, side // 2)], friction=cells, **how)
        print(f"{connectivity} neighbours: {spent(resource.RUSAGE_SELF) - before:.2f} s")
        dijkstra(few, (0, 0), connectivity)  # compiles
        before = spent(resource.RUSAGE_SELF)
        right = dijkstra(cells, (side // 2, side // 2), connectivity)
        print(f"  with a binary heap: {spent(resource.RUSAGE_SELF) - before:.2f} s")
        np.testing.assert_allclose(found.distance(), right, rtol=1e-12)
    if not shutil.which("grass"):
        return
    region = f"north={side} south=0 east={side} west=0 rows={side} cols={side}"
    with tempfile.TemporaryDirectory() as folder:
        cells.tofile(Path(folder) / "f")
        for flag in ("", "-k"):
            used = []
            for work in (
                "",
                f"r.cost {flag} input=f output=c start_coordinates={side // 2 + 0.5},"
                f"{side // 2 - 0.5} --q",
            ):
                script = f"r.in.bin -d input=f output=f {region} --q\ng.region raster=f\n{work}\n"
                (Path(folder) / "script").write_text(script)
                command = ["grass", "--tmp-location", "XY", "--exec", "bash", "script"]
                before = spent(resource.RUSAGE_CHILDREN)
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
                used.append(spent(resource.RUSAGE_CHILDREN) - before)
            print(f"r.cost {flag}: {used[1] - used[0]:.2f} s")


if __name__ == "__main__":
    main()
