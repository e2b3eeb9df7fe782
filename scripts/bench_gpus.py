"""Benchmark of several GPUs: phases of a spanning forest and of shortest paths over arrays.

    python scripts/bench_gpus.py [--rows 32768] [--cols 16384] [--devices 0 0,1] [--rounds 3]

Shortest paths may use enough memory of each GPU for half of the raster: one GPU takes two
regions in turn, two keep one each. The results must be bit-identical.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

from terrain_gpu import minimum_spanning_tree, shortest_paths
from terrain_gpu.paths.cuda.problem import Problem


def heights(rows: int, cols: int) -> np.ndarray:
    """Waves of several lengths and noise, uint16."""
    y, x = np.arange(rows)[:, None], np.arange(cols)[None, :]
    smooth = [np.sin(y / k) * np.cos(x / (k + 7)) * k for k in (11, 130, 1700)]
    noise = np.random.default_rng(1).integers(0, 9, (rows, cols), np.uint16)
    return (sum(smooth) + 4000).astype(np.uint16) + noise


def show(name: str, devices: str, found: list[dict[str, float]]) -> None:
    phases = {key: statistics.median(one[key] for one in found) for key in found[0]}
    shown = "  ".join(f"{key} {seconds:.3f}" for key, seconds in phases.items())
    print(f"{name:9s} device {devices:8s} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--cols", type=int, default=16384)
    parser.add_argument("--devices", nargs="+", default=["0", "0,1"])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    z = heights(given.rows, given.cols)
    friction = (1 + z % 97).astype(np.float32)
    usual = Problem.plan
    half = -(-max(given.rows, given.cols) // 2048)

    def halves(self: Any) -> tuple[int, int]:
        return usual(self)[0], half

    same: dict[str, Any] = {}
    for devices in given.devices:
        how: dict[str, Any] = {"device": tuple(map(int, devices.split(","))), "backend": "cuda"}
        found = []
        for _ in range(given.rounds):
            tree = minimum_spanning_tree(z, **how, block_size=1024)
            found.append(tree.report.seconds)
            assert same.setdefault("tree", tree.total_weight) == tree.total_weight
            del tree
        show("tree", devices, found)
        Problem.plan = halves  # type: ignore[method-assign]
        for source in ((0, 0), (given.rows // 2, given.cols // 2)):
            found = []
            for _ in range(given.rounds):
                paths = shortest_paths(
                    friction, [source], cost="friction", friction=friction, **how, block_size=1024
                )
                assert paths.report.result["regions"] == 2
                found.append(paths.report.seconds)
                distance = paths.distance()
                assert np.array_equal(same.setdefault(f"paths {source}", distance), distance)
                del paths
            show(f"{source}", devices, found)
        Problem.plan = usual  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
