"""How do experiments of the literature on lists, trees and graphs come out, next to its figures?

Milliseconds, medians after a warm-up; data are in the memory of the device. In brackets: the
literature's figures, on the machines of `SOURCES`, at its sizes; by default a GPU has these, and
the CPU a fiftieth of them. Some of its figures are curves without numbers; there ours stand alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from bench.device import Machine
from bench.graphs import random_graph, rmat, torus
from bench.table import Table
from terrain_gpu.engine.machine import available_threads
from terrain_gpu.primitives import (
    connected_components,
    euler,
    euler_tour,
    list_ranking,
    lists,
    lists_cpu,
)
from terrain_gpu.primitives import edge_components as host

MILLION = 10**6
SOURCES = {
    "Dehne": "F. Dehne and K. Yogaratnam 2010, GeForce 260 with 216 cores",
    "Rehman": "M. S. Rehman, slides of 2010 on work of 2009, GTX 280 with 240 cores; Core i7",
    "Banerjee": "D. S. Banerjee and K. Kothapalli 2011, Tesla C1060 with 240 cores and Core i7 980",
    "Cong": "G. Cong and P. Muzio 2014, one of four GPUs of a Tesla S2050, 448 cores",
}

# Dehne, table 2, by millions of elements; words of 48 and of 64 bits: RS1 and RS2, RS3, RS4, RS5.
KERNELS = {
    8: ((1.91, 56.73, 0.64, 3.77), (7.46, 43.95, 0.65, 3.60)),
    16: ((3.76, 117.84, 0.64, 7.17), (14.87, 91.36, 0.64, 7.79)),
    24: ((5.61, 174.56, 0.65, 11.86), (22.28, 134.82, 0.65, 11.17)),
    32: ((7.47, 236.77, 0.67, 15.01), (29.70, 183.37, 0.67, 15.55)),
    40: ((9.32, 288.60, 0.65, 19.13), (37.11, 219.93, 0.65, 18.61)),
    48: ((11.17, 353.38, 0.63, 22.55), (44.51, 280.26, 0.63, 23.74)),
    56: ((13.02, 421.88, 0.65, 28.29), (51.92, 401.62, 0.65, 26.62)),
    64: ((14.87, 547.65, 0.65, 29.86), (59.33, 552.34, 0.65, 31.82)),
}
# Dehne, table 3, 8192 splitters, random and even: shortest and longest sublist, RS3.
SPLITTERS = {
    8: ((1, 8674, 56.73), (975, 977, 53.35)),
    16: ((1, 19877, 117.84), (1952, 1954, 107.50)),
    32: ((2, 38984, 236.77), (3905, 3907, 215.74)),
    64: ((2, 61894, 547.65), (7811, 7813, 507.47)),
}
# Rehman, by log2 of the elements: Wyllie with reads on demand; recursive with n / log n splitters,
# with n / (2 log^2 n); CPU.
SIZES = {
    10: (0.052, 0.297, 0.259, 0.006),
    12: (0.059, 0.351, 0.501, 0.018),
    14: (0.125, 0.501, 0.954, 0.105),
    16: (0.419, 0.692, 2.369, 1.357),
    18: (2.86, 1.576, 3.731, 6.395),
    20: (14.49, 6.188, 8.557, 35.09),
    22: (73.01, 27.64, 30.09, 324.3),
    24: (377.6, 117.8, 99.08, 1582),
    26: (1718, 488.9, 388.2, 6929),
}
# Rehman, by millions of elements: ordered, ordered but unbalanced, random but balanced, random.
ORDERS = {
    1: (2.719, 5.897, 5.649, 6.188),
    2: (4.956, 12.111, 12.211, 13.038),
    4: (9.56, 24.523, 26.164, 27.638),
    8: (18.615, 49.585, 54.992, 57.516),
    16: (36.432, 99.716, 112.59, 117.771),
}
# Rehman, by millions of vertices: tour, ranks, parents, their sum; with levels, preorder and sizes;
# CPU's breadth-first search.
TOURS = {
    1: (1.52, 5.21, 0.77, 7.50, 9.06, 66.59),
    2: (2.96, 10.26, 1.49, 14.71, 17.66, 142.29),
    4: (5.90, 19.28, 2.93, 28.11, 33.74, 319.59),
    8: (11.65, 39.17, 5.88, 56.70, 67.70, 578.73),
    16: (23.23, 76.35, 11.70, 111.28, 133.34, 1174.66),
}
# Banerjee, table I, by millions of elements: phases I, II, III, total.
PHASES = {
    1: (1.696, 0.721, 0.096, 2.636),
    4: (6.346, 2.757, 0.092, 9.591),
    16: (25.452, 10.565, 0.096, 37.535),
    64: (98.756, 41.686, 0.113, 145.763),
    128: (196.512, 83.015, 0.114, 286.953),
}
# Banerjee, table II, 128 M elements, by round: generation, transfer, use.
ROUNDS = (
    (32.40, 0.163, 30.45),
    (28.35, 0.096, 25.08),
    (22.59, 0.082, 20.68),
    (18.70, 0.053, 18.35),
    (15.25, 0.040, 14.08),
    (12.88, 0.035, 12.84),
    (10.56, 0.027, 10.66),
    (8.30, 0.013, 8.50),
)
# Banerjee, table III, by millions of vertices: GPU, CPU, cross edges, total.
HYBRID = {
    1: (4.13, 4.03, 0.01, 4.14),
    1.5: (4.30, 4.23, 0.01, 4.31),
    2: (7.64, 7.71, 0.02, 7.73),
    3: (12.89, 12.76, 0.03, 12.92),
    4: (17.61, 17.70, 0.05, 17.75),
    4.5: (19.91, 19.34, 0.06, 19.97),
}
# Cong, sections 4 and 5: how many times as fast.
SPEEDUPS = (
    ("cc", "cc-updt", "1.75-1.83,R-MAT"),
    ("cc", "stages", "1.7-2.3"),
    ("sv", "sv-updt", ""),
    ("sv", "stages-sv", "1.07-2.6"),
    ("sv-updt", "stages-sv-updt", "1.07-2.6"),
)


class Bench:
    """The device, the sizes, and the tables."""

    def __init__(self, machine: Machine, scale: float, repeat: int) -> None:
        self.machine, self.scale, self.repeat = machine, scale, repeat
        self.once = machine.once
        self.xp, self.gpu = machine.xp, machine.xp is not np
        self.backend: Any = machine.backend
        self.steps: Any = lists_cpu
        if self.gpu:
            from terrain_gpu.primitives import lists_gpu

            self.steps = lists_gpu

    def size(self, millions: float) -> int:
        """A size of the literature, scaled."""
        return max(2**12, round(millions * MILLION * self.scale))

    def median(self, call: Callable[..., Any]) -> float:
        """Milliseconds of a call after a warm-up."""
        return self.medians(lambda: [self.once(call)[0]])[0]

    def medians(self, times: Callable[[], Iterable[float]]) -> list[float]:
        """Medians of several times, each measured in every one of the calls, after a warm-up."""
        all_times = [tuple(times()) for _ in range(1 + self.repeat)][1:]
        self.machine.free()
        return [statistics.median(column) for column in zip(*all_times, strict=True)]

    def table(self, title: str, header: str, rows: Iterable[Iterable[Any]]) -> None:
        """Print a table; its columns are named by words."""
        print(f"\n{title}\n")
        table = Table(*header.split())
        for row in rows:
            table.row(*map(_text, row))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value < 10 else f"{value:.1f}"
    return str(value)


def with_theirs(ours: Iterable[Any], theirs: Iterable[Any]) -> list[str]:
    """Our figures, and in brackets theirs."""
    pairs = zip(ours, theirs, strict=True)
    return [_text(own) + (f" ({_text(other)})" if other != "" else "") for own, other in pairs]


# -- lists -----------------------------------------------------------------------------------------


def shift_of(count: int, splitters: int) -> int:
    """log2 of the elements per splitter, for at most this many splitters."""
    return max(1, (-(-count // splitters) - 1).bit_length())


def make_list(xp: Any, n: int, shift: int, random: bool, even: bool) -> Any:
    """Successors of one list, where the splitters are `even`, or at random places of the list.

    Our splitters are fixed elements, one of each block of memory: so the list is laid through them.
    """
    xp.random.seed(1)
    splitters = lists_cpu.pick(xp.arange(n >> shift), shift)
    others = xp.ones(n, bool)
    others[splitters] = False
    others = xp.flatnonzero(others)
    if random:
        splitters, others = xp.random.permutation(splitters), xp.random.permutation(others)
    count = len(splitters)
    places = xp.arange(count) * n // count
    if not even:
        places[1:] = xp.sort(xp.random.permutation(n - 1)[: count - 1]) + 1
    rest = xp.ones(n, bool)
    rest[places] = False
    chain = xp.empty(n, np.int64)
    chain[places], chain[xp.flatnonzero(rest)] = splitters, others
    succ = xp.empty(n, np.int32)
    succ[chain[:-1]] = chain[1:]
    succ[chain[-1]] = chain[-1]
    return succ


def by_kernel(bench: Bench, succ: Any, shift: int, bits: int) -> tuple[list[float], Any]:
    """Milliseconds of RS1 (with our checks), RS2 and RS3, RS4, RS5; and the sublists' lengths."""
    steps, lengths = bench.steps, None

    def times() -> list[float]:
        nonlocal lengths
        pack, top = bench.once(steps.pack, succ, None, bits)
        walk, reduced = bench.once(steps.walk, top, shift)
        lengths = reduced.words[:-1] >> (reduced.words.dtype.type(32))
        jump, ranks = bench.once(steps.jump, reduced)
        expand, _ = bench.once(steps.expand, top, ranks)
        return [pack, walk, jump, expand]

    return bench.medians(times), lengths


def kernels(bench: Bench) -> None:
    """Kernels RS1 to RS5 over n, and where time per element bends (Dehne, table 2, figure 3)."""
    rows, none = [], (("",) * 4,) * 2
    for millions in (1, 2, 4, *KERNELS, 128, 256):
        published: Any = KERNELS.get(millions, none)
        n = bench.size(millions)
        succ = make_list(bench.xp, n, bench.steps.SHIFT, True, False)
        for bits, theirs in zip((48, 64), published, strict=True):
            if bits == 48 and not bench.gpu:
                continue
            shift = max(bench.steps.SHIFT, shift_of(n, 2**16 - 1 if bits == 48 else n))
            ours = by_kernel(bench, succ, shift, bits)[0]
            totals = (sum(theirs), sum(theirs) / millions) if published is not none else ("", "")
            cells = with_theirs((*ours, sum(ours), 1e6 * sum(ours) / n), (*theirs, *totals))
            rows.append((millions, bits, *cells))
    bench.table(
        "Splitters by kernel, random list (Dehne, who times RS2 with RS1; ours with RS3)",
        "M bits RS1 RS2,3 RS4 RS5 sum ns/element",
        rows,
    )


def splitters(bench: Bench) -> None:
    """Random against even splitters (Dehne, table 3)."""
    rows = []
    for millions, published in SPLITTERS.items():
        n = bench.size(millions)
        for count in (8192, n >> bench.steps.SHIFT):
            shift = shift_of(n, max(2, min(count, n // 4)))
            row: list[Any] = [millions, n >> shift]
            for even in (False, True):
                succ = make_list(bench.xp, n, shift, True, even)
                ours, lengths = by_kernel(bench, succ, shift, 64)
                theirs = published[even] if count == 8192 else ("", "", "")
                row += with_theirs((int(lengths.min()), int(lengths.max()), ours[1]), theirs)
            rows.append(row)
    bench.table(
        "Random splitters, then even ones: shortest and longest sublist, walk (Dehne)",
        "M splitters random:low random:high random:RS3 even:low even:high even:RS3",
        rows,
    )


def sizes(bench: Bench) -> None:
    """Pointer jumping and recursion over n (Rehman); short lists also with a kernel per round."""
    rows = []
    for log, (wyllie, recursive, recursive2, cpu) in SIZES.items():
        n = max(64, round(2**log * bench.scale))
        succ = make_list(bench.xp, n, 2, True, False)

        def rank(method: Any, succ: Any = succ) -> float:
            return bench.median(lambda: list_ranking(succ, method, backend=bench.backend))

        cells = with_theirs(
            (rank("wyllie"), rank("recursive")), (wyllie, min(recursive, recursive2))
        )
        cells.append(f"({cpu})" if bench.gpu else with_theirs([rank("sequential")], [cpu])[0])
        if bench.gpu and n <= bench.steps.ONE_BLOCK:
            most, bench.steps.ONE_BLOCK = bench.steps.ONE_BLOCK, 0
            cells.append(_text(rank("wyllie")))
            bench.steps.ONE_BLOCK = most
        rows.append((f"2^{log}", *cells))
    bench.table(
        "Random lists (Rehman: optimised Wyllie, the better recursion, a Core i7)",
        "n wyllie recursive CPU many-kernels",
        rows,
    )


METHODS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("auto", "sequential", "wyllie", "splitters")},
    "splitters,48": {"method": "splitters", "splitters": 2**16 - 1},  # 48 bits on a GPU
    **{name: {"method": name} for name in ("recursive", "hybrid")},
}


@numba.njit
def follow(succ: np.ndarray, head: int, ranks: np.ndarray) -> None:
    """Walk along one list, plainly."""
    v = head
    for rank in range(len(succ) - 1, -1, -1):
        ranks[v] = rank
        v = succ[v]


def methods(bench: Bench) -> None:
    """Every method, and one thread that follows the list from its head and checks nothing."""
    xp, rows = bench.xp, []
    names = [name for name in METHODS if name != "sequential" or not bench.gpu]
    follow(np.zeros(1, np.int32), 0, np.empty(1, np.int64))
    for millions in (1, 4, 16, 64, 128):
        for random in (True, False):
            n = bench.size(millions)
            xp.random.seed(1)
            chain = xp.random.permutation(n) if random else xp.arange(n)
            succ = xp.empty(n, np.int32)
            succ[chain[:-1]], succ[chain[-1]] = chain[1:], chain[-1]
            on_host, ranks = xp.asnumpy(succ) if bench.gpu else succ, np.empty(n, np.int64)
            row: list[Any] = [millions, "random" if random else "ordered"]
            row.append(bench.once(follow, on_host, int(chain[0]), ranks)[0])
            right = xp.asarray(ranks)
            for name in names:

                def rank(how: dict = METHODS[name], succ: Any = succ) -> Any:
                    return list_ranking(succ, backend=bench.backend, **how)

                assert bool((rank() == right).all()), name
                row.append(bench.median(rank))
            rows.append(row)
    bench.table("Lists by every method", "M order one-thread " + " ".join(names), rows)


def orders(bench: Bench) -> None:
    """Ordered and random lists with balanced and unbalanced sublists (Rehman)."""
    rows, kinds = [], ((False, True), (False, False), (True, True), (True, False))
    for millions, theirs in ORDERS.items():
        n, shift = bench.size(millions), bench.steps.SHIFT
        ours = []
        for random, even in kinds:
            succ = make_list(bench.xp, n, shift, random, even)
            ours.append(sum(by_kernel(bench, succ, shift, 64)[0]))
        rows.append((millions, *with_theirs(ours, theirs)))
    bench.table(
        "Splitters: lists in order or not, sublists balanced or not (Rehman, recursive)",
        "M ordered ord.unbalanced random.balanced random",
        rows,
    )


def watched(bench: Bench) -> Any:
    """Batches of random bits that note when they are made, waited for and used."""

    class Watched(bench.steps.Batches):  # type: ignore[name-defined]
        def __init__(self, *arguments: Any) -> None:
            self.made: list[float] = []
            self.waited: list[float] = []
            self.used: list[float] = []
            self.since = 0.0
            super().__init__(*arguments)

        def make(self, number: int, words: int) -> Any:
            begin = time.perf_counter()
            bits = super().make(number, words)
            self.made.append(1e3 * (time.perf_counter() - begin))
            return bits

        def take(self, count: int) -> Any:
            if bench.gpu:  # not the stream that copies
                bench.xp.cuda.get_current_stream().synchronize()
            now = time.perf_counter()
            if self.since:
                self.used.append(1e3 * (now - self.since))
            bits = super().take(count)
            self.since = time.perf_counter()
            self.waited.append(1e3 * (self.since - now))
            return bits

    return Watched


def hybrid_phases(bench: Bench, succ: Any, rounds: int) -> tuple[list[float], Any]:
    """Milliseconds of phases I to III of the hybrid list ranking, and the watched batches."""
    steps, batches = bench.steps, None

    def times() -> list[float]:
        nonlocal batches
        top = steps.pack(succ, None, 64)

        def thin() -> Any:
            nonlocal batches
            batches = watched(bench)(top.count, lists.SEED)
            try:
                return steps.thin(top, batches, rounds)
            finally:
                batches.close()

        first, (kept, live, gone) = bench.once(thin)
        second, ranks = bench.once(lists._by_splitters, steps, kept, steps.SHIFT)
        third, _ = bench.once(steps.insert, top, live, gone, ranks)
        return [first, second, third]

    return bench.medians(times), batches


def hybrid_lists(bench: Bench) -> None:
    """The phases of the hybrid method, its rounds, and idle times (Banerjee, tables I and II)."""
    rows: list[Any] = []
    n, succ, batches = 0, None, None
    for millions, theirs in PHASES.items():
        n = bench.size(millions)
        succ = make_list(bench.xp, n, 2, True, False)
        ours, batches = hybrid_phases(bench, succ, lists.hybrid_rounds(n))
        rows.append((millions, lists.hybrid_rounds(n), *with_theirs([*ours, sum(ours)], theirs)))
    bench.table(
        "Hybrid list ranking: I independent sets, II splitters, III insertion (Banerjee: twice the "
        "rounds)",
        "M rounds I II III sum",
        rows,
    )
    assert batches is not None
    times = zip(batches.made, batches.waited, batches.used, strict=False)
    bench.table(
        "Its rounds at the last size: random bits made (ours with the copy), waited for, used "
        "(Banerjee: made, copied, used)",
        "round made waited|(copied) used",
        ((k, *with_theirs(*pair)) for k, pair in enumerate(zip(times, ROUNDS, strict=False))),
    )
    waited, used = sum(batches.waited), sum(batches.used)
    print(f"the device waits for bits {waited / (waited + used):.1%} of the time (under 5 %)")
    rows = []
    for rounds in (0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 20):
        phases = hybrid_phases(bench, succ, rounds)[0]
        rows.append((rounds, *phases, sum(phases)))
    bench.table(
        "By the number of rounds (Banerjee: least at 4 log log n)", "rounds I II III sum", rows
    )


# -- trees -----------------------------------------------------------------------------------------


def tour(bench: Bench) -> None:
    """Euler tours from edges, by phase (Rehman)."""
    xp, rows = bench.xp, []
    for millions, theirs in TOURS.items():
        edges, _ = forest(xp, bench.size(millions) - 1, 2, 1)
        edges = edges[xp.random.permutation(len(edges))]

        def times(edges: Any = edges) -> list[float]:
            sources = edges.T.ravel()
            arcs, succ = bench.once(euler._arcs, xp, sources, 0)
            ranks, _ = bench.once(lists.rank, xp, succ, None, "auto")
            whole, parent = bench.once(euler.root_tree, xp, edges, 0)
            of_edges, _ = bench.once(lambda: euler_tour(edges=edges, backend=bench.backend))
            of_parents, _ = bench.once(lambda: euler_tour(parent, backend=bench.backend))
            return [arcs, ranks, max(0.0, whole - arcs - ranks), whole, of_edges, of_parents]

        ours = bench.medians(times)
        rows.append((millions, *with_theirs(ours, (*theirs[:5], "")), f"({theirs[5]})"))
    bench.table(
        "Euler tour of a binary tree from edges: tour (ours sorts the edges), ranks, parents,\n"
        "their sum; all: with levels, preorder, sizes, also from parents; breadth first (Rehman)",
        "M tour ranks parents sum all all,of-parents CPU",
        rows,
    )


def forest(xp: Any, m: int, k: int, parts: int = 10) -> tuple[Any, int]:
    """Edges and vertices of `parts` trees whose inner vertices have k children, named at random."""
    xp.random.seed(1)
    each = max(1, m // parts)
    names = xp.random.permutation(parts * (each + 1)).astype(np.int32).reshape(parts, each + 1)
    above = names[:, xp.arange(each) // k]
    return xp.stack([names[:, 1:], above], -1).reshape(-1, 2), names.size


# -- components ------------------------------------------------------------------------------------


def rounds_of(bench: Bench, method: str, edges: Any, n: int) -> int:
    """The rounds of a method."""
    if not bench.gpu:
        parent = np.arange(n, dtype=host.label_dtype(n))
        return host.INNER[method](edges.astype(np.int64), parent)
    from terrain_gpu.primitives import components_gpu

    parents = components_gpu._Parents(bench.xp.arange(n, dtype=host.label_dtype(n)))
    return components_gpu.INNER[method](parents, edges)


def rounds(bench: Bench) -> None:
    """Rounds and times on lists, trees and random graphs of 8 M edges (Dehne, figure 6)."""
    xp, m, rows = bench.xp, bench.size(8), []
    methods = ("sv", "sv-updt", "soman", "cc", "cc-updt", "rem")
    kinds = {f"trees,k={k}": k for k in (2, 5, 10, 20)}
    given = [(name, *forest(xp, m, k)) for name, k in {"lists": 1, **kinds}.items()]
    for density in (0.001, 0.01):
        n = int((2 * m / density) ** 0.5)
        edges = random_graph(xp, n, m)
        given.append((f"d={density:.1%}", edges, n))
    for name, edges, n in given:
        cells = (
            f"{rounds_of(bench, method, edges, n)}: {_text(ms(bench, edges, n, method))}"
            for method in methods
        )
        rows.append((name, *cells))
    bench.table(
        "Rounds: ms (Dehne, sv: as many rounds for lists as for trees, far fewer for random\n"
        "graphs, which are the fastest, then lists)",
        "graph " + " ".join(methods),
        rows,
    )
    if not bench.gpu:
        print("(on the CPU an edge sees what earlier ones did, which saves rounds)")


def ms(bench: Bench, edges: Any, n: int, method: str) -> float:
    """Milliseconds of a method."""
    return bench.median(lambda: connected_components(edges, n, method, backend=bench.backend))


def graphs(bench: Bench) -> None:
    """Random graphs, R-MAT and a torus (Cong, figures 1 to 7)."""
    xp, m = bench.xp, bench.size(200)
    methods = dict.fromkeys(m for pair in SPEEDUPS for m in pair[:2]) | {"soman": None, "rem": None}
    xp.random.seed(1)
    rows, speeds = [], []

    def random(n: int) -> tuple[Any, int]:
        return random_graph(xp, n, m), n

    side = int(bench.size(100) ** 0.5)
    for name, make in (
        ("random:50/200", lambda: random(bench.size(50))),
        ("random:100/200", lambda: random(bench.size(100))),
        ("R-MAT:20/200", lambda: (rmat(xp, bench.size(20), m), bench.size(20))),
        ("torus:100/200", lambda: (torus(xp, side), side * side)),
    ):
        edges, n = make()
        # Alternating hooking takes as many rounds as a torus has rows: minutes.
        asked = [method for method in methods if (name[:5], method) != ("torus", "soman")]
        times = {method: ms(bench, edges, n, method) for method in asked}
        rows.append((name, *(times.get(method, "") for method in methods)))
        speeds.append((name, *(times[a] / times[b] for a, b, _ in SPEEDUPS)))
        del edges
        bench.machine.free()
    bench.table("Vertices and edges in millions", "graph " + " ".join(methods), rows)
    speeds.append(("Cong", *(theirs for *_, theirs in SPEEDUPS)))
    names = " ".join(f"{a}/{b}" for a, b, _ in SPEEDUPS)
    bench.table("How many times as fast.", f"graph {names}", speeds)
    print("Cong: fastest are Stages on the GPU, Rem on the CPU; on the GPU Rem's paths diverge")


def hybrid_components(bench: Bench) -> None:
    """The sides of the hybrid method, each alone, and its share (Banerjee, table III, figure 9)."""
    if not bench.gpu:
        print("\nhybrid components need a GPU")
        return
    from terrain_gpu.primitives import components_gpu as gpu

    xp, rows = bench.xp, []
    for millions, theirs in HYBRID.items():
        n = bench.size(millions)
        edges = random_graph(xp, n, 2 * n)
        gpu._shares.clear()
        whole = ms(bench, edges, n, "hybrid")  # the share settles in these calls
        share = next(iter(gpu._shares.values()), gpu.FIRST_SHARE)

        def times(edges: Any = edges, n: int = n, low: int = round(share * n)) -> list[float]:
            parents = gpu._Parents(xp.arange(n, dtype=np.int32))
            width, inner, cross = gpu._split(parents, edges, low)
            mine, labels = inner.get().astype(np.int64), np.empty(low, np.int32)
            parts = range(0, low, width)

            def on_gpu() -> None:
                parents.over("rem", edges, low, parents.parent)
                parents.shortcut()

            def on_part(k: int) -> None:
                host.depth_first(mine, k, labels[k : k + width])

            def on_cpu() -> None:
                with ThreadPoolExecutor(available_threads()) as pool:
                    list(pool.map(on_part, parts))

            sides = bench.once(on_gpu)[0], bench.once(on_cpu)[0]
            parents.parent[:low].set(labels)
            last = bench.once(lambda: gpu._rem(parents, gpu._one_for_each_pair(parents, cross)))
            return [*sides, last[0]]

        ours = [*bench.medians(times), whole]
        idle = abs(ours[0] - ours[1]) / max(ours[0], ours[1])
        alone = ms(bench, edges, n, "rem")
        rows.append((millions, f"{share:.2%}", *with_theirs(ours, theirs), f"{idle:.0%}", alone))
    bench.table(
        "Hybrid components, two edges per vertex: the CPU's share, the sides alone, all; idle:\n"
        "what the faster side waits (Banerjee: share 25 % at 1.5 M, 17 % at 3 M; idle up to 5 %)",
        "M share GPU CPU cross all idle rem,GPU-only",
        rows,
    )


EXPERIMENTS: dict[str, Callable[[Bench], None]] = {
    "methods": methods,
    "kernels": kernels,
    "splitters": splitters,
    "sizes": sizes,
    "orders": orders,
    "hybrid-lists": hybrid_lists,
    "tour": tour,
    "rounds": rounds,
    "graphs": graphs,
    "hybrid-components": hybrid_components,
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--scale", type=float, help="of their sizes; 1 on a GPU, else 0.02")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))


def run(given: argparse.Namespace) -> None:
    """Print the tables."""
    scale = given.scale or (1 if given.backend == "cuda" else 0.02)
    print(f"ours: {available_threads()} threads, at {scale:g} times the sizes of the literature")
    print("\n".join(f"{who}: {what}" for who, what in SOURCES.items()))
    bench = Bench(Machine(given.backend), scale, given.repeat)
    for experiment in given.only:
        begin = time.perf_counter()
        EXPERIMENTS[experiment](bench)
        print(f"({experiment}: {time.perf_counter() - begin:.1f} s)", flush=True)
