"""Benchmark of compute-sssp, in turn with in-memory C++, GRASS r.cost and scikit-image.

    python scripts/bench_sssp.py [--sides 2048 4096 8192] [--dijkstra PROGRAM] [--grass] [--skimage]
                                 [--rounds 3] [--work FOLDER] [--roughness 0.8]
                                 [--kinds friction absdiff spiral cascade] [--block-size 1024]
                                 [--memory-limit SIZE] [--threads N]

FOLDER holds `f{side}.npy` (float32 friction) and `zi{side}.npy` (uint16 heights); what is missing
is made by make_terrain.py. The source is the middle cell, cells are 10 m. PROGRAM is run as
`PROGRAM heap_fr|dial_dz_i SIDE 1 1` with the folder in $PEERDATA; it must print `med=SECONDS`. Ours
is `seconds.total`, from store to committed store, of runs after the one that compiles; theirs is
computing only, on arrays in memory (r.cost: its own process, from its database to its database).

`spiral` and `cascade` are frictions that make relaxation visit blocks as often as we know how, see
docs/design/bounds.md. There, visits grow with --block-size, and under a --memory-limit for few
blocks, most visits read and write the distances of a block.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_convert import versions
from bench_mst import seconds_of
from make_terrain import terrain_window

from terrain_gpu import GridSpec, Report, create_layer
from terrain_gpu.paths.cost_distance.pipeline import shortest_paths

KINDS = {
    "friction": ("f", "heap_fr"),
    "absdiff": ("zi", "dial_dz_i"),
    "spiral": ("spiral", ""),
    "cascade": ("cascade", ""),
}
CELL = 10.0


def spiral(side: int) -> np.ndarray:
    """A corridor one cell wide from the corner to the middle; side is a multiple of four."""
    rows, cols = np.ogrid[:side, :side]
    ring = np.minimum(np.minimum(rows, cols), side - 1 - np.maximum(rows, cols))
    cells = np.where(ring % 2, np.nan, 1).astype(np.float32)
    first = np.arange(0, side // 2 - 2, 2)
    cells[first + 1, first], cells[first + 2, first + 1] = np.nan, 1  # to the next ring inwards
    return cells


def cascade(side: int, block: int) -> np.ndarray:
    """Groups of three blocks, in which every turn of a corridor improves all of the third.

    The corridor winds through two blocks. Wherever it turns at the third, it enters through a cell
    whose friction is so much less than at the turn before that all cells become nearer.
    """
    group = np.full((block, 3 * block), np.nan, np.float32)
    group[::2, : 2 * block] = group[1::4, 2 * block - 1] = group[3:-1:4, 0] = 1
    group[::4, 2 * block] = 1
    group[::4, 2 * block + 1] = 8 * block * np.arange(block // 4, 0, -1)
    group[:-1, 2 * block + 2 : -1] = 0.001
    count = -(-side // block)
    return np.tile(group, (count, -(-count // 3)))[:side, :side]


def sources_of(cost: str, side: int, block: int) -> list[tuple[int, int]]:
    """The middle cell, or where corridors begin."""
    if cost == "cascade":
        return [(r, c) for r in range(0, side, block) for c in range(0, side, 3 * block)]
    return [(0, 0)] if cost == "spiral" else [(side // 2, side // 2)]


def raster(
    work: Path, name: str, side: int, roughness: float = 0.8, block: int = 1024
) -> np.ndarray:
    if name == "spiral":
        return spiral(side)
    if name == "cascade":
        return cascade(side, block)
    path = work / f"{name}{side}.npy"
    if not path.exists():
        kind = "uint16" if name == "zi" else "float32"
        cells = terrain_window(0, side, 0, side, dtype=kind, roughness=roughness)
        if name == "f":
            cells = (1 + 49 * (cells - cells.min()) / np.ptp(cells)).astype(np.float32)
        np.save(path, cells)
    return np.load(path, mmap_mode="r")


def store_of(work: Path, name: str, data: np.ndarray, block: int = 1024) -> Path:
    path = work / f"paths-{name}{len(data)}-{block}.zarr"
    if not path.exists():
        grid = GridSpec(*data.shape, (CELL, 0.0, 0.0, 0.0, -CELL, 0.0))
        with create_layer(path, "elevation", grid, data.dtype, block_size=block) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
            writer.commit()
    return path


def ours(store: Path, cost: str, side: int, block: int, **limits: Any) -> Report:
    how: dict[str, Any] = {"cost": "friction", "friction": "elevation"}
    if cost == "absdiff":
        how = {"cost": cost}
    found = shortest_paths(store, sources_of(cost, side, block), **how, **limits, overwrite=True)
    return found.report


def dijkstra(program: str, kind: str, side: int, work: Path) -> float:
    out = subprocess.run(
        [program, kind, str(side), "1", "1"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PEERDATA": f"{work}/"},
    ).stdout
    return seconds_of(out)


def skimage(data: np.ndarray, side: int) -> float:
    from skimage.graph import MCP_Geometric

    cells = np.asarray(data, np.float64)
    start = time.perf_counter()
    MCP_Geometric(cells, sampling=(CELL, CELL)).find_costs([(side // 2, side // 2)])
    return time.perf_counter() - start


def grass(data: np.ndarray, side: int) -> float:
    """r.cost alone, memory=300, its input imported before."""
    import rasterio

    with tempfile.TemporaryDirectory() as folder:
        tif = f"{folder}/f.tif"
        with rasterio.open(
            tif, "w", driver="GTiff", width=side, height=side, count=1, dtype=data.dtype,
            crs="EPSG:32633", transform=rasterio.Affine(CELL, 0, 5e5, 0, -CELL, 5.5e6),
        ) as target:  # fmt: skip
            target.write(np.asarray(data), 1)
        place = f"{folder}/location"
        x, y = 5e5 + (side // 2 + 0.5) * CELL, 5.5e6 - (side // 2 + 0.5) * CELL
        script = (
            f"r.in.gdal -o --q input={tif} output=f && g.region raster=f && "
            f"start=$(date +%s.%N) && "
            f"r.cost --q input=f output=d start_coordinates={x},{y} memory=300 && "
            f'echo "med=$(echo "$(date +%s.%N) - $start" | bc)"'
        )
        subprocess.run(["grass", "-c", tif, "-e", place], check=True, capture_output=True)
        out = subprocess.run(
            ["grass", f"{place}/PERMANENT", "--exec", "bash", "-c", script],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return seconds_of(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--dijkstra")
    parser.add_argument("--grass", action="store_true")
    parser.add_argument("--skimage", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roughness", type=float, default=0.8, help="0.5 with a FOLDER of its own")
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--memory-limit")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    arguments = parser.parse_args()
    block = arguments.block_size
    limits = {"memory_limit": arguments.memory_limit, "threads": arguments.threads}
    work = arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    print("| raster, cost | ours s | M cells/s | tile visits | block visits | bytes per cell read "
          "| written | C++ s | ratio | r.cost s | ratio | scikit-image s | ratio |")  # fmt: skip
    print("| --- " * 13 + "|")
    for cost in arguments.kinds:
        name, kind = KINDS[cost]
        for side in arguments.sides:
            data = raster(work, name, side, arguments.roughness, block)
            store = store_of(work, name, data, block)
            ours(store, cost, side, block, **limits)
            mine, theirs = [], []
            for _ in range(arguments.rounds):
                mine.append(ours(store, cost, side, block, **limits))
                if arguments.dijkstra and kind:
                    theirs.append(dijkstra(arguments.dijkstra, kind, side, work))
            seconds = statistics.median(m.seconds["total"] for m in mine)
            others = [
                statistics.median(theirs) if theirs else np.nan,
                grass(data, side) if arguments.grass and cost == "friction" else np.nan,
                skimage(data, side) if arguments.skimage and cost == "friction" else np.nan,
            ]
            cells = " | ".join(f"{o:.2f} | {o / seconds:.1f}" for o in others)
            print(
                f"| {side}^2 {data.dtype}, {cost} | {seconds:.2f} | {data.size / seconds / 1e6:.1f}"
                f" | {mine[0].result['tile_visits_per_tile']:.2f}"
                f" | {mine[0].result['block_visits_per_block']:.2f}"
                f" | {(mine[0].bytes_read or 0) / data.size:.2f}"
                f" | {(mine[0].bytes_written or 0) / data.size:.2f} | {cells} |",
                flush=True,
            )
    print(f"\n{versions()}")


if __name__ == "__main__":
    main()
