"""Time list ranking and Euler tours beside the figures of the literature.

    python scripts/bench_primitives.py                      # CPU
    python scripts/bench_primitives.py --backend cuda       # GPU, arrays resident there

Median of five runs after a warm-up, in milliseconds. "walk" is one thread that follows the
list, once; its head and length are given, and nothing is checked. "sequential" finds and checks
them first, as all methods do. Every result is compared with the walk's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from terrain_gpu.cuda import device
from terrain_gpu.engine.machine import available_threads
from terrain_gpu.primitives import euler, euler_tour, list_ranking

MILLION = 10**6
LITERATURE = (
    ("list ranking, random, 64 M", "Dehne and Yogaratnam 2010", 593),
    ("list ranking, random, 64 M", "Rehman et al. 2009", 388),
    ("list ranking, random, 128 M", "Banerjee and Kothapalli 2011", 287),
    ("Euler tour of 16 M nodes from edges, parents only", "Rehman 2010", 111),
    ("the same with levels, preorder and sizes", "Rehman 2010", 133),
)
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "sequential": {"method": "sequential"},
    "wyllie": {"method": "wyllie"},
    "splitters 48": {"method": "splitters", "splitters": 2**16 - 1},  # 48 bits on a GPU
    "splitters": {"method": "splitters"},
    "recursive": {"method": "recursive"},
    "hybrid": {"method": "hybrid"},
}


@numba.njit
def walk(succ: np.ndarray, head: int, ranks: np.ndarray) -> None:
    """Walk along one list, plainly."""
    v = head
    for rank in range(len(succ) - 1, -1, -1):
        ranks[v] = rank
        v = succ[v]


def make_list(xp: Any, count: int, order: str) -> tuple[Any, int]:
    """Successors and the head."""
    xp.random.seed(1)
    chain = xp.random.permutation(count) if order == "random" else xp.arange(count)
    succ = xp.empty(count, np.int32)
    succ[chain[:-1]] = chain[1:]
    succ[chain[-1]] = chain[-1]
    return succ, int(chain[0])


def make_tree(xp: Any, count: int) -> Any:
    """Parents of a random tree with random names."""
    xp.random.seed(1)
    names = xp.random.permutation(count)
    above = (xp.random.random(count) * xp.arange(count)).astype(np.int64)
    parent = xp.empty(count, np.int32)
    parent[names] = names[above]
    return parent


def milliseconds(call: Callable[[], Any], wait: Callable[[], None], repeat: int) -> float:
    """Median time after a warm-up call."""
    times = []
    for _ in range(repeat + 1):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 4, 16], help="million")
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--orders", nargs="+", default=["random", "ordered"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tree", type=float, default=16, help="million nodes; 0: none")
    args = parser.parse_args()

    methods = args.methods or [
        name for name in METHODS if name != "sequential" or args.backend == "cpu"
    ]
    xp: Any = np
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if args.backend == "cuda":
        import cupy

        xp, wait = cupy, cupy.cuda.Device().synchronize
        print(device.name_of(), f"CuPy {cupy.__version__}")
    print(f"{available_threads()} threads, numpy {np.__version__}, numba {numba.__version__}")

    walk(np.zeros(1, np.int32), 0, np.empty(1, np.int64))
    print(f"{'M elements':>10} {'order':8}", *(f"{m:>13}" for m in ("walk", *methods)))
    for size in args.sizes:
        for order in args.orders:
            succ, head = make_list(xp, round(size * MILLION), order)
            host, expected = xp.asnumpy(succ) if xp is not np else succ, np.empty(len(succ), int)
            start = time.perf_counter()
            walk(host, head, expected)
            cells = [f"{1000 * (time.perf_counter() - start):13.1f}"]
            expected = xp.asarray(expected)
            for name in methods:

                def call(name: str = name, succ: Any = succ) -> Any:
                    return list_ranking(succ, backend=args.backend, **METHODS[name])

                assert bool((call() == expected).all()), name
                cells.append(f"{milliseconds(call, wait, args.repeat):13.2f}")
            print(f"{size:10g} {order:8}", *cells, flush=True)

    if args.tree:
        parent = make_tree(xp, round(args.tree * MILLION))
        child = xp.random.permutation(xp.flatnonzero(parent != xp.arange(len(parent))))
        edges = xp.stack([child, parent[child]], 1).astype(np.int32)
        calls: dict[str, Callable[[], Any]] = {
            "depth, preorder, size from parents": lambda: euler_tour(parent, backend=args.backend),
            "parents from edges": lambda: euler.root_tree(xp, edges, 0),
            "all from edges": lambda: euler_tour(edges=edges, backend=args.backend),
        }
        for what, call in calls.items():
            took = milliseconds(call, wait, args.repeat)
            print(f"Euler tour, {args.tree:g} M nodes, {what}: {took:.2f}", flush=True)
    print("\nin the literature, on GPUs of their time:")
    for what, who, took in LITERATURE:
        print(f"  {what}: {took} ({who})")


if __name__ == "__main__":
    main()
