"""Time the spanning tree on a GPU: on resident data, and end to end on a cold disk.

    python scripts/bench_gpu_mst.py --side 16384 --work /tmp
    python scripts/bench_gpu_mst.py --programs --huge 60000 --work /tmp
    python scripts/bench_gpu_mst.py --huge 200704x100352 --limit "" --devices all --work /tmp
    python scripts/bench_gpu_mst.py --growth 16384 30000 60000 100000 --verify mst distance

Prints one line for each case. "floor" is the same bytes read by parallel pread and written with
fsync, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from terrain_gpu import create_layer, minimum_spanning_tree, shortest_paths
from terrain_gpu.cuda.backend import Gpu
from terrain_gpu.grid import TILE, BlockGrid, GridSpec
from terrain_gpu.spanning_tree.gpu import plan
from terrain_gpu.spanning_tree.gpu.regions import GpuSolver
from terrain_gpu.spanning_tree.weights import Weight

BLOCK = 1024
THREADS = 16


def terrain(side: int, beta: float = 1.8) -> cupy.ndarray:
    """Spectral terrain, 0 to 1000, float32."""
    rng = cupy.random.RandomState(1)
    f = cupy.fft.rfft2(rng.standard_normal((side, side), dtype=cupy.float32))
    k = cupy.hypot(cupy.fft.fftfreq(side)[:, None], cupy.fft.rfftfreq(side)[None, :])
    k[0, 0] = 1
    z = cupy.fft.irfft2(f * (k**-beta).astype(cupy.float32), s=(side, side))
    z -= z.min()
    return z * (1000 / z.max())


def tiles_of(z: cupy.ndarray) -> np.ndarray:
    """(blocks, tiles, 64, 64), blocks row by row, tiles in Z-order."""
    n = z.shape[0] // BLOCK
    bits = (BLOCK // TILE).bit_length() - 1
    a = z.reshape((n,) + (2,) * bits + (TILE, n) + (2,) * bits + (TILE,))
    order = [0, bits + 2]
    for b in range(bits):
        order += [1 + b, bits + 3 + b]
    order += [bits + 1, 2 * bits + 3]
    return cupy.ascontiguousarray(a.transpose(order)).reshape(n * n, -1, TILE, TILE).get()


def resident(name: str, tiles: np.ndarray, side: int) -> None:
    for weight in ("absdiff", "max"):
        blocks, kind = BlockGrid(side, side, BLOCK), Weight(weight, tiles.dtype)
        solver = GpuSolver(blocks, side, kind, None, True, Gpu(0, 2**62, given=True, wanted=True))
        slot = solver.slots(1)[0]
        slot.cells.set(tiles)
        solved = solver.solve((0, 0), slot)
        assert solved.edges == side * side - 1, solved.edges
        work = slot.lane.work
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            with work.stream:
                work.run()
                work.stream.synchronize()
            seconds.append(time.perf_counter() - begin)
        best = sorted(seconds)[2]
        speed = side * side / best / 1e9
        print(f"resident {name:16s} {weight:8s} {best:.4f} s {speed:.2f} G cells/s", flush=True)
        del work, solver, slot
        cupy.get_default_memory_pool().free_all_blocks()


def cold() -> None:
    os.system("sync; echo 3 > /proc/sys/vm/drop_caches")


def floor(files: list[Path], out: Path, size: int) -> tuple[float, float]:
    """Seconds to read the files in parallel, and to write `size` bytes with fsync."""
    cold()
    begin = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda f: len(f.read_bytes()), files))
    read = time.perf_counter() - begin
    part = os.urandom(1 << 20)
    out.mkdir()

    def write(k: int) -> None:
        with open(out / str(k), "wb") as file:
            file.write(part)
            file.flush()
            os.fsync(file.fileno())

    begin = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(size >> 20)))
    return read, time.perf_counter() - begin


def make_store(store: Path, tiles: np.ndarray, side: int) -> list[Path]:
    """The shards of a new store."""
    shutil.rmtree(store, ignore_errors=True)
    n = side // BLOCK
    grid, kind = GridSpec(side, side), tiles.dtype
    with create_layer(store, "elevation", grid, kind, block_size=BLOCK) as writer:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda k: writer.write_tiles(*divmod(k, n), tiles[k]), range(n * n)))
        writer.commit()
    return [p for p in (store / "elevation" / "c").rglob("*") if p.is_file()]


def end_to_end(work: Path, tiles: np.ndarray, side: int, rounds: int) -> None:
    """Spanning tree and cost distance, cold store to fsynced layer, beside the floor."""
    store = work / "bench.zarr"
    files = make_store(store, tiles, side)
    whole = tiles.dtype.kind == "u"
    middle = [(side // 2, side // 2)]
    costs = [("absdiff", 4, None)] if whole else [("friction", 8, "elevation")]
    runs: list[tuple[str, int, Callable[[], Any]]] = [
        (w, 1, partial(minimum_spanning_tree, store, weight=w, backend="cuda"))
        for w in ("absdiff", "max")
    ] + [
        (c, size, partial(shortest_paths, store, middle, cost=c, friction=f, backend="cuda"))
        for c, size, f in costs
    ]
    for name, size, run in runs * rounds:
        shutil.rmtree(work / "floor", ignore_errors=True)
        for layer in ("mst", "distance"):
            shutil.rmtree(store / layer, ignore_errors=True)
        read, write = floor(files, work / "floor", size * side * side)
        cold()
        begin = time.perf_counter()
        report = run().report
        wall = time.perf_counter() - begin
        phases = " ".join(f"{k} {v:.3f}" for k, v in report.seconds.items())
        what = "mst" if size == 1 else "sssp"
        print(
            f"end to end {tiles.dtype} {what} {name:8s} wall {wall:.3f} s, floor "
            f"{read + write:.3f} ({read:.3f} + {write:.3f}), {wall / (read + write):.2f} x; "
            f"{phases}; peak {report.peak_rss_bytes / 1e6:.0f} MB",
            flush=True,
        )


def new_store(store: Path, rows: int, cols: int, block: int, codec: str = "none") -> None:
    """Waves and noise, made on the GPU piece by piece."""
    shutil.rmtree(store, ignore_errors=True)
    down, across = (
        cupy.sin(line / 9000) * 4000 + cupy.sin(line / 700) * 300
        for line in (cupy.arange(n, dtype=cupy.float32) for n in (rows, cols))
    )
    begin = time.perf_counter()
    grid = GridSpec(rows, cols)
    how = {"block_size": block, "compress": None if codec == "none" else codec}
    with create_layer(store, "elevation", grid, np.uint16, **how) as writer:
        with ThreadPoolExecutor(8) as pool:
            jobs: list[Future[int]] = []
            for i, j in writer.blocks.ids():
                r0, r1, c0, c1 = writer.blocks.window(i, j)
                z = down[r0:r1, None] * (1 + across[None, c0:c1] / 9000) + 20000
                z += cupy.random.standard_normal(z.shape, dtype=cupy.float32) * 20
                jobs.append(pool.submit(writer.write_block, i, j, z.astype(cupy.uint16).get()))
                del z
                if len(jobs) > 12:
                    jobs.pop(0).result()
        size = writer.commit().info["stored_bytes"]
    wall = time.perf_counter() - begin
    print(f"made {rows} x {cols}, {size / 1e9:.1f} GB, in {wall:.1f} s", flush=True)
    cupy.get_default_memory_pool().free_all_blocks()


def program(command: str, store: Path) -> dict[str, Any] | None:
    """Run a command as users do, in its own process, on a store with a cold cache.

    Returns its report, with "process", the seconds of the process.
    """
    cold()
    report = Path(f"{store}.json")
    words = f"{command.format(store)} --json {report}".split()
    start = "from terrain_gpu.cli.main import main as f; f()"
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", start, *words], check=False)
    wall = time.perf_counter() - begin
    print(f"{command}: exit {done.returncode}, process {wall:.2f} s", flush=True)
    if done.returncode == 0:
        found = json.loads(report.read_text())
        phases = " ".join(f"{k} {v:.2f}" for k, v in found["seconds"].items())
        side = found["settings"].get("plan", {}).get("unit_rows")
        print(f"    {phases}; side {side}; peak {found['peak_rss_bytes'] / 1e6:.0f} MB")
        print(f"    {found['result']}", flush=True)
        return {**found, "process": wall}
    return None


MST = "compute-mst {} --backend cuda --overwrite"
PATHS = "compute-sssp {} --backend cuda --overwrite --source-rowcol 4096,4096"


def programs(work: Path) -> None:
    """The thesis's raster, and a small GPU."""
    new_store(work / "thesis.zarr", 12555, 17630, BLOCK)
    for weight in ("absdiff", "max"):
        program(f"{MST} --weight {weight}", work / "thesis.zarr")
    for cost in ("absdiff", "surface"):
        program(f"{PATHS} --cost {cost}", work / "thesis.zarr")
    new_store(work / "square.zarr", 16384, 16384, BLOCK)
    for _ in range(2):
        for limit in ("100GB", "4GB"):
            program(f"{MST} --gpu-memory-limit {limit}", work / "square.zarr")
            program(f"{PATHS} --gpu-memory-limit {limit}", work / "square.zarr")


def out_of_core(
    work: Path, shape: str, limits: list[str], devices: str, verify: list[str], codec: str
) -> None:
    """Ids beyond 32 bits, one operation after another: the disk holds one result at a time."""
    store = work / "huge.zarr"
    rows, _, cols = shape.partition("x")
    new_store(store, int(rows), int(cols or rows), 2048, codec)
    for limit in limits:
        how = f" --device {devices}"
        if limit:
            how += f" --memory-limit {limit} --gpu-memory-limit {limit}"
        for command, layer in ((MST, "mst"), (PATHS, "distance")):
            program(f"{command}{how} --compress-layers {codec}", store)
            if layer in verify:
                program(f"verify {{}} --backend cuda{how}", store)
            shutil.rmtree(store / layer, ignore_errors=True)


def growth(
    work: Path, sides: list[int], limit: str, more: str, verify: list[str], codec: str
) -> None:
    """Distances, and proofs, of rasters of growing size under the same limits: rows of a table."""
    limits = f" --memory-limit {limit} --gpu-memory-limit {limit}"
    compress = f" --compress-layers {codec}"
    rows, store = [], work / "growth.zarr"
    for side in sides:
        block = BLOCK if side <= 30000 else 2 * BLOCK
        new_store(store, side, side, block, codec)
        made = {"distance": PATHS + more + compress, "mst": MST + compress}
        for layer, command in made.items():
            commands = {layer: command} if layer == "distance" or layer in verify else {}
            if layer in verify:
                commands[f"proof of {layer}"] = "verify {} --backend cuda"
            for name, words in commands.items():
                found = program(words + limits, store)
                if found is not None:
                    rows.append(growth_row(name, side, block, found))
            shutil.rmtree(store / layer, ignore_errors=True)
    shutil.rmtree(store, ignore_errors=True)
    phases = "relax s | finalise s | total s | ns a cell | process s | peak MB"
    print(f"| | raster | regions | visits | reads of a block | {phases} |")
    print("|" + " --- |" * 11)
    print("\n".join(rows), flush=True)


def growth_row(name: str, side: int, block: int, found: dict[str, Any]) -> str:
    result, seconds = found["result"], found["seconds"]
    blocks = (-(-side // block)) ** 2
    reads = f"{result['blocks_read'] / blocks:.2f}" if "blocks_read" in result else "-"
    cells = [name, f"{side}^2", result.get("regions", "-"), result.get("region_visits", "-"), reads]
    cells += [f"{seconds[k]:.1f}" if k in seconds else "-" for k in ("relax", "finalise", "total")]
    cells += [f"{seconds['total'] / side**2 * 1e9:.2f}", f"{found['process']:.1f}"]
    return f"| {' | '.join(map(str, cells))} | {found['peak_rss_bytes'] / 1e6:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=16384)
    parser.add_argument("--work", type=Path, default=Path("/tmp"))
    parser.add_argument("--rounds", type=int, default=2, help="Of the runs end to end.")
    parser.add_argument("--no-resident", action="store_true")
    parser.add_argument("--region", type=int, help="Side of a region at most.")
    parser.add_argument("--programs", action="store_true", help="Only these: whole processes.")
    parser.add_argument("--huge", metavar="SIDE|ROWSxCOLS", help="Out of core, too.")
    parser.add_argument(
        "--limit", nargs="+", default=["8GB"], help="Memory limits of that, of host and GPU."
    )
    parser.add_argument("--codec", default="none", help="Of the layers of that.")
    parser.add_argument("--devices", default="0", help="GPUs of that.")
    parser.add_argument(
        "--verify", nargs="*", default=[], metavar="LAYER", help="Prove these, too."
    )
    parser.add_argument(
        "--growth", nargs="*", type=int, metavar="SIDE", help="Distances of these under --limit."
    )
    parser.add_argument("--more", default="", help="Options of compute-sssp for --growth.")
    args = parser.parse_args()
    if args.growth:
        growth(args.work, args.growth, args.limit[0], f" {args.more}", args.verify, args.codec)
        return
    if args.programs:
        programs(args.work)
    if args.huge:
        out_of_core(args.work, args.huge, args.limit, args.devices, args.verify, args.codec)
    if args.programs or args.huge:
        return
    plan.MOST_SIDE = args.region or plan.MOST_SIDE
    z = terrain(args.side)
    heights = tiles_of(z)
    whole = np.rint(heights).astype(np.uint16)
    noise = cupy.random.RandomState(2).standard_normal(z.shape, dtype=cupy.float32)
    rough = tiles_of((z * 5 + noise * 50).clip(0, 65535))
    del z, noise
    cupy.get_default_memory_pool().free_all_blocks()
    for name, tiles in (
        ()
        if args.no_resident
        else (
            ("uint16 terrain", whole),
            ("float32 terrain", heights),
            ("uint16 rough", rough.astype(np.uint16)),
            ("uint16 constant", np.zeros_like(whole)),
        )
    ):
        resident(name, tiles, args.side)
    end_to_end(args.work, whole, args.side, args.rounds)
    end_to_end(args.work, heights + 1, args.side, args.rounds)


if __name__ == "__main__":
    main()
