"""Benchmark of compute-mst, in turn with an in-memory Kruskal in C++ and with scipy.

    python scripts/bench_mst.py [--sides 2048 4096 8192] [--roughness 0.8] [--kruskal PROGRAM]
                                [--scipy] [--rounds 3] [--work FOLDER]
    python scripts/bench_mst.py --proof 1 2 4 16 [--sides 8192] [--memory-limit 512MB]

With --proof, the computation and its proof on the CPU with so many threads: seconds, and seconds
of processors; both from the store.

Terrain is made by make_terrain.py, as uint16 and float32 (the same heights), unless FOLDER holds
`zi{side}.npy` and `z{side}.npy` already. PROGRAM is run as `PROGRAM dz_i|max_i|dz_f|max_f SIDE 1`
with the folder in $PEERDATA; it must print `med=SECONDS`. Ours is `seconds.total`, from store to
committed store, of runs after the one that compiles; theirs is computing only, on arrays in memory.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from bench_convert import versions
from make_terrain import terrain_window

from terrain_gpu import GridSpec, create_layer, minimum_spanning_tree

KINDS = {"dz_i": ("zi", "absdiff"), "max_i": ("zi", "max"),
         "dz_f": ("z", "absdiff"), "max_f": ("z", "max")}  # fmt: skip


def heights(work: Path, name: str, side: int, roughness: float) -> np.ndarray:
    path = work / f"{name}{side}.npy"
    if not path.exists():
        for other, dtype in (("zi", "uint16"), ("z", "float32")):
            cells = terrain_window(0, side, 0, side, dtype=dtype, roughness=roughness)
            np.save(work / f"{other}{side}.npy", cells)
    return np.load(path, mmap_mode="r")


def store_of(work: Path, name: str, data: np.ndarray) -> Path:
    path = work / f"{name}{len(data)}.zarr"
    if not path.exists():
        with create_layer(path, "elevation", GridSpec(*data.shape), data.dtype) as writer:
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
            writer.commit()
    return path


def ours(store: Path, weight: str) -> float:
    report = minimum_spanning_tree(store, weight=weight, overwrite=True).report
    return report.seconds["total"]


def proofs(store: Path, weight: str, rounds: int, limits: dict[str, object]) -> str:
    """Columns of a table: the computation and the proof, each the least of some rounds."""
    from terrain_gpu import TileStore
    from terrain_gpu.spanning_tree.proof.forest import verify_forest

    def compute() -> None:
        minimum_spanning_tree(store, weight=weight, overwrite=True, backend="cpu", **limits)

    def prove() -> None:
        opened = TileStore.open(store)
        cells, forest = opened.layer("elevation"), opened.layer("mst")
        kind = {"weight": weight, "connectivity": 8, "expected": forest.info["result"]}
        verify_forest(cells, forest, **kind, **limits)

    found = []
    for work in (compute, prove):
        work()
        times = []
        for _ in range(rounds):
            start = time.perf_counter(), time.process_time()
            work()
            times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        found.append([min(column) for column in zip(*times, strict=True)])
    (wall, used), (proof, of_proof) = found
    return (
        f"{wall:.2f} | {used:.2f} | {proof:.2f} | {of_proof:.2f} | {proof / wall:.2f} | "
        f"{of_proof / used:.2f}"
    )


def proof_table(work: Path, arguments: argparse.Namespace) -> None:
    print("| raster, weight | threads | s | CPU s | proof s | CPU s | ratio | ratio of CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, weight in KINDS.values():
        for side in arguments.sides:
            data = heights(work, name, side, arguments.roughness)
            store = store_of(work, name, data)
            for threads in arguments.proof:
                limits = {"threads": threads, "memory_limit": arguments.memory_limit}
                columns = proofs(store, weight, arguments.rounds, limits)
                print(f"| {side}^2 {data.dtype}, {weight} | {threads} | {columns} |", flush=True)


def kruskal(program: str, kind: str, side: int, work: Path) -> float:
    out = subprocess.run(
        [program, kind, str(side), "1"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PEERDATA": f"{work}/"},
    ).stdout
    return seconds_of(out)


def seconds_of(out: str) -> float:
    """What a peer prints."""
    return float(re.search(r"med=([0-9.]+)", out)[1])


def scipy_seconds(data: np.ndarray, weight: str) -> float:
    """scipy's minimum_spanning_tree alone; its graph, with zero weights raised, is made before."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import minimum_spanning_tree as scipy_tree

    ids = np.arange(data.size, dtype=np.int32).reshape(data.shape)
    us, vs, ws = [], [], []
    for dr, dc in ((0, 1), (1, -1), (1, 0), (1, 1)):
        here = (slice(0, -dr or None), slice(max(0, -dc), -dc if dc > 0 else None))
        there = (slice(dr, None), slice(max(0, dc), dc if dc < 0 else None))
        a, b = data[here].astype(np.float64).ravel(), data[there].astype(np.float64).ravel()
        ws.append((np.maximum(a, b) if weight == "max" else np.abs(a - b)) + 1e-9)
        us.append(ids[here].ravel())
        vs.append(ids[there].ravel())
    parts = [np.concatenate(x) for x in (ws, us, vs)]
    graph = coo_matrix((parts[0], (parts[1], parts[2])), shape=(data.size, data.size)).tocsr()
    del us, vs, ws, parts
    start = time.perf_counter()
    scipy_tree(graph, overwrite=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--roughness", type=float, default=0.8)
    parser.add_argument("--kruskal")
    parser.add_argument("--scipy", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("bench-work"))
    parser.add_argument("--proof", type=int, nargs="+", metavar="THREADS")
    parser.add_argument("--memory-limit")
    arguments = parser.parse_args()
    work = arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    if arguments.proof:
        proof_table(work, arguments)
        print(f"\n{versions()}")
        return
    print("| raster, weight | ours s | M cells/s | C++ Kruskal s | ratio | scipy s | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, (name, weight) in KINDS.items():
        for side in arguments.sides:
            data = heights(work, name, side, arguments.roughness)
            store = store_of(work, name, data)
            ours(store, weight)
            pairs = []
            for _ in range(arguments.rounds):
                pairs.append(
                    (
                        ours(store, weight),
                        kruskal(arguments.kruskal, kind, side, work)
                        if arguments.kruskal
                        else np.nan,
                    )
                )
            mine, theirs = (statistics.median(p[k] for p in pairs) for k in (0, 1))
            ratio = statistics.median(p[1] / p[0] for p in pairs)
            wanted = arguments.scipy and weight == "absdiff"
            other = scipy_seconds(np.asarray(data), weight) if wanted else np.nan
            print(
                f"| {side}^2 {data.dtype}, {weight} | {mine:.2f} | {data.size / mine / 1e6:.0f} | "
                f"{theirs:.2f} | {ratio:.1f} | {other:.1f} | {other / mine:.0f} |",
                flush=True,
            )
    print(f"\n{versions()}")


if __name__ == "__main__":
    main()
