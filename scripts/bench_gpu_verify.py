"""Time the proof of spanning forests and of distances on a GPU, beside the CPU's.

    python scripts/bench_gpu_verify.py [--side 16384] [--huge 60000] [--work /tmp]
    python scripts/bench_gpu_verify.py --paths

"resident": cells and mask lie in the GPU's memory; the median of three. "end to end": from the
store, its files in the page cache or not. The huge raster is resident only. In regions:
`terrain-gpu verify STORE --backend cuda --gpu-memory-limit 8GB --device all`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from bench_gpu_mst import BLOCK, cold, make_store, terrain, tiles_of

from terrain_gpu import TileStore, minimum_spanning_tree, shortest_paths
from terrain_gpu.grid import BlockGrid
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.spanning_tree.proof.checker import UNIT, ForestChecker
from terrain_gpu.spanning_tree.proof.forest import verify_forest
from terrain_gpu.spanning_tree.proof.gpu import GpuProof, HeldRegion
from terrain_gpu.spanning_tree.weights import Weight


def resident(side: int, weight: str, dtype: np.dtype) -> HeldRegion:
    """Allocate a raster on the GPU, as one region."""
    blocks, kind = BlockGrid(side, side, BLOCK), Weight(weight, dtype)
    slot = GpuProof(side * side, ForestChecker(blocks, kind, None, 8, UNIT), 0).slot()
    slot.window = 0, side, 0, side
    return slot


def prove(what: str, slot: HeldRegion, *, right: bool, times: int = 3) -> None:
    """Time a proof, and its kernels."""
    raster, seconds = slot.lane, []
    for _ in range(times):
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        assert (raster.prove(slot) is not None) == right
        seconds.append(time.perf_counter() - begin)
    best, cells = sorted(seconds)[times // 2], slot.cells.size
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    launch = raster._launch

    def timed(name: str, *arguments: Any) -> None:
        begin = time.perf_counter()
        launch(name, *arguments)
        cupy.cuda.Device().synchronize()
        spent[name] += time.perf_counter() - begin
        calls[name] += 1

    raster._launch = timed  # type: ignore[method-assign]
    raster.prove(slot)
    parts = ", ".join(f"{calls[k]} {k} {spent[k] * 1e3:.1f}" for k in spent)
    print(
        f"resident {what:26s} {best:.3f} s, {cells / best / 1e9:.2f} G cells/s; ms: {parts}",
        flush=True,
    )


def of_store(what: str, store: Path, weight: str, backend: str, threads: int | None = None) -> None:
    """Time a proof from the store, cold and warm; and resident."""
    opened = TileStore.open(store)
    cells, forest = opened.layer("elevation"), opened.layer("mst")
    for state in ("cold", "warm") if backend == "cuda" else ("warm",):
        if state == "cold":
            cold()
        begin = time.perf_counter()
        verify_forest(
            cells,
            forest,
            weight=weight,
            connectivity=8,
            expected=forest.info["result"],
            threads=threads,
            backend=backend,
        )
        wall = time.perf_counter() - begin
        speed = cells.grid.cells / wall / 1e9
        print(f"{state} {backend} {what:26s} {wall:.3f} s, {speed:.3f} G cells/s", flush=True)
    if backend == "cuda":
        slot = resident(cells.grid.rows, weight, cells.dtype)
        for array, layer in zip(slot.arrays(), (cells, forest), strict=True):
            array.set(layer.read_window(*cells.grid.window))
        prove(what, slot, right=True)


def of_distances(side: int, z: Any, store: Path) -> None:
    """Time proofs of distances from the store, on both backends, and reading it alone."""
    middle = [(side // 2, side // 2)]
    for name, cost, friction in ("uint16", "absdiff", None), ("float32", "friction", "elevation"):
        make_store(store, tiles_of(z + 1).astype(name), side)
        for more in {}, {"backlink": True}, {"allocation": True}:
            how = {"cost": cost, "friction": friction, "backend": "cuda", **more}
            layers = shortest_paths(store, middle, **how).layers
            for state, backend in ("cold", "cuda"), ("warm", "cuda"), ("cold", "cpu"):
                if state == "cold":
                    cold()
                begin = time.perf_counter()
                found = verify_stored(TileStore.open(store), backend=backend)
                wall = time.perf_counter() - begin
                assert found["backend"] == backend
                what = f"{side}^2 {name} {' '.join(layers)}"
                speed = side * side / wall / 1e9
                print(f"{state} {backend} {what:34s} {wall:.3f} s, {speed:.3f} G cells/s")
            for layer in layers:
                shutil.rmtree(store / layer)
        files = [p for p in store.rglob("c/*/*") if p.is_file()]
        cold()
        begin = time.perf_counter()
        with ThreadPoolExecutor(16) as pool:
            size = sum(pool.map(lambda f: len(f.read_bytes()), files))
        print(f"reading {size / 1e9:.2f} GB of cells: {time.perf_counter() - begin:.3f} s")


def all_edges(mask: Any) -> None:
    """Every edge of the grid: all picked edges exist, so the proof runs to its end."""
    mask[...] = 15
    mask[:, 0] = 13
    mask[:, -1] = 6
    mask[-1] = 1
    mask[-1, -1] = 0


def huge(side: int) -> None:
    """Waves and noise, and one value."""
    slot = resident(side, "max", np.dtype(np.uint16))
    cells, mask = slot.arrays()
    all_edges(mask)
    line = cupy.arange(side, dtype=cupy.float32)
    across = cupy.sin(line / 9000) * 4000 + cupy.sin(line / 700) * 300
    for row in range(0, side, 1000):
        part = cells[row : row + 1000]
        z = across[row : row + 1000, None] * (1 + across[None] / 9000) + 20000
        part[...] = z + cupy.random.standard_normal(part.shape, dtype=cupy.float32) * 20
    prove(f"{side}^2 uint16 waves", slot, right=False, times=1)
    cells[...] = 0
    # All weights are equal, so the first edges are taken: to the right, and down from the left.
    mask[...] = 8
    mask[0] = 9
    mask[:, 0] = 12
    mask[0, 0] = 13
    mask[:, -1] = 0
    mask[-1] = 0
    prove(f"{side}^2 uint16 constant", slot, right=True, times=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--huge", type=int, default=60000)
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--paths", action="store_true", help="Only distances.")
    args = parser.parse_args()
    z, store = terrain(args.side), args.work / "verify.zarr"
    if args.paths:
        of_distances(args.side, z, store)
        return
    z += cupy.random.standard_normal(z.shape, dtype=cupy.float32)
    z = z.clip(0, None)
    for name in ("uint16", "float32"):
        make_store(store, tiles_of(z).astype(name), args.side)
        for weight in ("max", "absdiff"):
            minimum_spanning_tree(store, weight=weight, backend="cuda", overwrite=True)
            of_store(f"{args.side}^2 {name} {weight}", store, weight, "cuda")
    half = args.side // 2 // BLOCK * BLOCK
    part = tiles_of(z[:half, :half])
    del z
    cupy.get_default_memory_pool().free_all_blocks()
    if args.huge:
        huge(args.huge)
    for name in ("uint16", "float32"):
        make_store(store, part.astype(name), half)
        minimum_spanning_tree(store, backend="cuda", overwrite=True)
        of_store(f"{half}^2 {name} max", store, "max", "cuda")
        of_store(f"{half}^2 {name} max, 4 threads", store, "max", "cpu", 4)


if __name__ == "__main__":
    main()
