"""What do proofs of trees and distances take, compared with the computation, on the CPU or a GPU?

On the CPU: trees over fractal terrain, the computation and its proof with so many threads, both
from the store. On a GPU, "resident": cells and mask lie in its memory; the median of three, and
milliseconds of kernels; else from the store, its files in the page cache ("warm") or not; and the
CPU with four threads over a quarter. The huge raster is resident only. With --paths, proofs of
distances from the store on both backends, and reading it alone. In regions:
`terrain-gpu verify STORE --backend cuda --gpu-memory-limit 8GB --device all`.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.device import cupy, free, tiles_of
from bench.disk import cold, floor
from bench.stores import add_layer, add_tiles, cells_of, shards
from bench.table import Table
from bench.terrain import kept, spectral, waves
from bench.timing import repeated, timed
from terrain_gpu import TileStore, minimum_spanning_tree, shortest_paths
from terrain_gpu.grid import BlockGrid
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.spanning_tree.proof.checker import UNIT, ForestChecker
from terrain_gpu.spanning_tree.proof.forest import verify_forest
from terrain_gpu.spanning_tree.proof.gpu import GpuProof, HeldRegion
from terrain_gpu.spanning_tree.weights import Weight

BLOCK = 1024


def prove_tree(store: Path, weight: str, **how: Any) -> None:
    """Prove the tree of a store."""
    opened = TileStore.open(store)
    cells, forest = opened.layer("elevation"), opened.layer("mst")
    own = {"weight": weight, "connectivity": 8, "expected": forest.info["result"]}
    verify_forest(cells, forest, **own, **how)


def on_cpu(given: argparse.Namespace) -> None:
    """The computation and its proof, each the least of some rounds."""
    table = Table("raster, weight | threads | s | CPU s | proof s | CPU s | ratio | ratio of CPU s")
    for name in ("zi", "z"):
        cells = kept(given.work, name, given.side)
        store = given.work / f"{name}{given.side}.zarr"
        if not store.exists():
            add_layer(store, cells)
        for weight in ("absdiff", "max"):
            for threads in given.threads:
                how = {"threads": threads, "memory_limit": given.memory_limit, "backend": "cpu"}

                def compute(store: Path = store, weight: str = weight, how: dict = how) -> None:
                    minimum_spanning_tree(store, weight=weight, overwrite=True, **how)

                def prove(store: Path = store, weight: str = weight, how: dict = how) -> None:
                    prove_tree(store, weight, **how)

                work, proof = (repeated(each, given.rounds, min)[0] for each in (compute, prove))
                ratios = proof.wall / work.wall, proof.processor / work.processor
                what = f"{given.side}^2 {cells.dtype}, {weight}"
                table.row(what, threads, *work, *proof, *ratios)


def resident(side: int, weight: str, dtype: np.dtype) -> HeldRegion:
    """Allocate a raster on the GPU, as one region."""
    blocks, kind = BlockGrid(side, side, BLOCK), Weight(weight, dtype)
    slot = GpuProof(side * side, ForestChecker(blocks, kind, None, 8, UNIT), 0).slot()
    slot.window = 0, side, 0, side
    return slot


def prove_resident(what: str, slot: HeldRegion, *, right: bool, times: int = 3) -> None:
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

    def timed_launch(name: str, *arguments: Any) -> None:
        begin = time.perf_counter()
        launch(name, *arguments)
        cupy.cuda.Device().synchronize()
        spent[name] += time.perf_counter() - begin
        calls[name] += 1

    raster._launch = timed_launch
    raster.prove(slot)
    parts = ", ".join(f"{calls[k]} {k} {spent[k] * 1e3:.1f}" for k in spent)
    tell(f"resident {what}", best, cells)
    print(f"    ms: {parts}", flush=True)


def tell(what: str, seconds: float, cells: int) -> None:
    """Print a line."""
    print(f"{what:40s} {seconds:.3f} s, {cells / seconds / 1e9:.3f} G cells/s", flush=True)


def of_store(what: str, store: Path, weight: str) -> None:
    """Time a proof from the store, cold and warm; and resident."""
    layer = TileStore.open(store).layer("elevation")
    for state in ("cold", "warm"):
        if state == "cold":
            cold(store)
        spent, _ = timed(prove_tree, store, weight, backend="cuda")
        tell(f"{state} cuda {what}", spent.wall, layer.grid.cells)
    slot = resident(layer.grid.rows, weight, layer.dtype)
    for array, name in zip(slot.arrays(), ("elevation", "mst"), strict=True):
        array.set(cells_of(store, name))
    prove_resident(what, slot, right=True)


def new_store(store: Path, tiles: np.ndarray) -> None:
    """A store in the place of another one."""
    shutil.rmtree(store, ignore_errors=True)
    add_tiles(store, tiles)


def of_distances(side: int, z: Any, store: Path) -> None:
    """Time proofs of distances from the store, on both backends, and reading it alone."""
    middle = [(side // 2, side // 2)]
    for name, cost, friction in ("uint16", "absdiff", None), ("float32", "friction", "elevation"):
        new_store(store, tiles_of(z + 1).astype(name))
        for more in {}, {"backlink": True}, {"allocation": True}:
            how = {"cost": cost, "friction": friction, "backend": "cuda", **more}
            layers = shortest_paths(store, middle, **how).layers
            for state, backend in ("cold", "cuda"), ("warm", "cuda"), ("cold", "cpu"):
                if state == "cold":
                    cold(store)
                spent, found = timed(verify_stored, TileStore.open(store), backend=backend)
                assert found["backend"] == backend
                what = f"{state} {backend} {side}^2 {name} {' '.join(layers)}"
                tell(what, spent.wall, side * side)
            for layer in layers:
                shutil.rmtree(store / layer)
        tell("reading the cells alone", floor(store, shards(store), [1])[0], side * side)


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
    for row in range(0, side, 1000):
        part = cells[row : row + 1000]
        noise = cupy.random.standard_normal(part.shape, dtype=cupy.float32) * 20
        part[...] = waves(cupy, row, row + len(part), 0, side) + noise
    prove_resident(f"{side}^2 uint16 waves", slot, right=False, times=1)
    cells[...] = 0
    # All weights are equal, so the first edges are taken: to the right, and down from the left.
    mask[...] = 8
    mask[0] = 9
    mask[:, 0] = 12
    mask[0, 0] = 13
    mask[:, -1] = 0
    mask[-1] = 0
    prove_resident(f"{side}^2 uint16 constant", slot, right=True, times=1)


def on_gpu(given: argparse.Namespace) -> None:
    """Trees, resident and from the store; or distances."""
    side, z, store = given.side, spectral(cupy, given.side), given.work / "verify.zarr"
    if given.paths:
        of_distances(side, z, store)
        return
    z += cupy.random.standard_normal(z.shape, dtype=cupy.float32)
    z = z.clip(0, None)
    for name in ("uint16", "float32"):
        new_store(store, tiles_of(z).astype(name))
        for weight in ("max", "absdiff"):
            minimum_spanning_tree(store, weight=weight, backend="cuda", overwrite=True)
            of_store(f"{side}^2 {name} {weight}", store, weight)
    half = side // 2 // BLOCK * BLOCK
    part = tiles_of(z[:half, :half])
    del z
    free()
    if given.huge:
        huge(given.huge)
    for name in ("uint16", "float32"):
        new_store(store, part.astype(name))
        minimum_spanning_tree(store, backend="cuda", overwrite=True)
        of_store(f"{half}^2 {name} max", store, "max")
        spent, _ = timed(prove_tree, store, "max", backend="cpu", threads=4)
        tell(f"warm cpu {half}^2 {name} max, 4 threads", spent.wall, half * half)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--side", type=int, default=8192, help="of a GPU: a multiple of 1024")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the CPU")
    parser.add_argument("--memory-limit", help="of the CPU")
    parser.add_argument("--rounds", type=int, default=3, help="of the CPU")
    parser.add_argument("--huge", type=int, default=60000, help="of a GPU; 0: none")
    parser.add_argument("--paths", action="store_true", help="of a GPU: only distances")


def run(given: argparse.Namespace) -> None:
    """Print what proofs take."""
    on_gpu(given) if given.backend == "cuda" else on_cpu(given)
