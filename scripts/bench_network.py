"""Benchmark of least-cost-network against the tree of all pairs, ours and scikit-image's.

    python scripts/bench_network.py [--side 4096] [--points 100] [--skimage PYTHON] [--work FOLDER]

Friction as in bench_sssp.py; points are random. The tree of all pairs is Kruskal's over the costs
of cost-matrix, all pairs; it must have the same cost. scikit-image searches from two points, and
its time is multiplied. Both wall and processor seconds are told. PYTHON is an interpreter with
scikit-image.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from bench_convert import versions
from bench_matrix import PEER, timed
from bench_sssp import CELL, KINDS, raster

from terrain_gpu import GridSpec, TileStore, cost_matrix, create_layer, least_cost_network


def write(path: Path, data: np.ndarray) -> Path:
    """A store with the layer elevation."""
    grid = GridSpec(*data.shape, transform=(CELL, 0.0, 0.0, 0.0, -CELL, 0.0))
    with create_layer(path, "elevation", grid, data.dtype) as out:
        for i, j in out.blocks.ids():
            r0, r1, c0, c1 = out.block_window(i, j)
            out.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        out.commit()
    return path


def tree_of(table: dict[str, np.ma.MaskedArray]) -> float:
    """The cost of the spanning tree over all pairs."""
    ends = table["source"].tolist(), table["target"].tolist()
    edges = sorted(zip(table["cost"].tolist(), *ends, strict=True))
    part = {name: name for name in ends[0]}
    found = []
    for cost, a, b in edges:
        if part[a] != part[b]:
            found.append(cost)
            old, new = part[b], part[a]
            part = {name: new if own == old else own for name, own in part.items()}
    return math.fsum(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--skimage")
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    arguments = parser.parse_args()
    work, side = arguments.work.absolute(), arguments.side
    work.mkdir(parents=True, exist_ok=True)
    name = KINDS["friction"][0]
    data = np.array(raster(work, name, side))
    rng = np.random.default_rng(5)
    points = list(map(tuple, rng.integers(0, side, (arguments.points, 2)).tolist()))
    how = {"cost": "friction", "friction": "elevation"}
    with tempfile.TemporaryDirectory(dir=work) as made:
        folder = Path(made)
        warm, store = write(folder / "w.zarr", data[:300, :300]), write(folder / "s.zarr", data)
        file = folder / "n.gpkg"
        least_cost_network(warm, [(1, 1), (9, 9)], file, backend="cpu", **how)
        cost_matrix(warm, [(1, 1), (9, 9)], **how)
        for pairs in ("mst", "delaunay"):
            wall, used, found = timed(
                lambda p=pairs: least_cost_network(
                    store, points, file, pairs=p, backend="cpu", into=p, overwrite=True, **how
                )
            )
            cost, seconds = found.report.result["cost"], found.report.seconds
            print(f"{pairs}, {len(points)} places, {found.links} links: wall {wall:.1f} s, "
                  f"processors {used:.1f} s; of these cross {seconds['cross']:.1f} s, write "
                  f"{seconds['write']:.1f} s", flush=True)  # fmt: skip
            if pairs == "mst":
                first, tree = (wall, used), cost
        wall, used, matrix = timed(lambda: cost_matrix(TileStore.open(store), points, **how))
        assert math.isclose(tree_of(matrix.columns()), tree, rel_tol=1e-12)
        print(f"all pairs by cost-matrix: wall {wall:.1f} s ({wall / first[0]:.1f} x), processors "
              f"{used:.1f} s ({used / first[1]:.1f} x)", flush=True)  # fmt: skip
    if arguments.skimage:
        at = ",".join(map(str, points[0]))
        command = [arguments.skimage, "-c", PEER, str(work / f"{name}{side}.npy"), "2", at]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peer = min(map(float, out.split()))
        print(f"scikit-image: {peer:.1f} s a place, {peer * len(points) / first[0]:.0f} x")
    print(versions())


if __name__ == "__main__":
    main()
