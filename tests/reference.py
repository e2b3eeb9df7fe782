"""Plain, slow, obviously right implementations to compare every fast path with."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import pickle
from collections import deque
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter

import numpy as np
from scipy import ndimage

from terrain_gpu.hydrology.divided_flow.division import STEEPER, arctan, power

FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))
"""Steps to the upper endpoint of an edge, in the order of directions: E, SW, S, SE."""


def vertices(z, nodata=None):
    """Mask of the cells that are vertices: finite and not nodata."""
    mask = np.isfinite(z) if z.dtype.kind == "f" else np.ones(z.shape, bool)
    return mask if nodata is None else mask & (z != nodata)


def weight_of(a, b, weight):
    """Weight between two cells: exact for integers, in the cells' own type for floats."""
    if weight in ("max", "flow"):
        return max(a.item(), b.item())
    if a.dtype.kind in "iu":
        return abs(int(a) - int(b))
    with np.errstate(over="ignore"):
        return abs(a - b).item()


def slope_of(a, b, length):
    with np.errstate(over="ignore"):  # a difference of integers is exact, and rounded once
        return np.float32(float(abs(a.item() - b.item())) * (1 / length)).item()


def edges(z, weight, nodata=None, connectivity=8, lengths=None):
    """All edges as (weight, id of the lower endpoint, direction).

    By "flow", the weight is a pair that sorts as it does: (weight, slope less than 0). `lengths` of
    steps are by direction and row; by default those between square cells.
    """
    good = vertices(z, nodata)
    rows, cols = z.shape
    if lengths is None:
        lengths = np.repeat([[1], [2**0.5], [1], [2**0.5]], rows, axis=1)
    found = []
    for row in range(rows):
        for col in range(cols):
            for d, (dr, dc) in enumerate(FORWARD):
                r, c = row + dr, col + dc
                if connectivity == 4 and dr and dc:
                    continue
                if not (r < rows and 0 <= c < cols and good[row, col] and good[r, c]):
                    continue
                ends = z[row, col], z[r, c]
                size = weight_of(*ends, weight)
                if weight == "flow":
                    size = size, -slope_of(*ends, lengths[d, row])
                found.append((size, row * cols + col, d))
    return found


def kruskal(z, weight, nodata=None, connectivity=8, lengths=None):
    """Minimum spanning forest by Kruskal: (mask of forward edges, exact total weight, edges)."""
    rows, cols = z.shape
    parent = list(range(rows * cols))

    def find(v):
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    mask = np.zeros(rows * cols, np.uint8)
    total, count = [], 0
    for w, cell, d in sorted(edges(z, weight, nodata, connectivity, lengths)):
        dr, dc = FORWARD[d]
        u, v = find(cell), find(cell + dr * cols + dc)
        if u != v:
            parent[u] = v
            mask[cell] |= 1 << d
            total.append(w[0] if weight == "flow" else w)
            count += 1
    return mask.reshape(rows, cols), exact_sum(total), count


def spanning_forest(edges, weights, n):
    """Indices of the edges of a list's minimum spanning forest, by Kruskal."""
    component = list(range(n))
    found = []
    for _, k in sorted((weight, k) for k, weight in enumerate(weights)):
        u, v = (component[end] for end in edges[k])
        if u != v:
            component = [u if label == v else label for label in component]
            found.append(k)
    return sorted(found)


def exact_sum(weights):
    """Integers as they are, floats as the correctly rounded sum."""
    if not weights or isinstance(weights[0], int):
        return sum(weights)
    if any(math.isinf(w) for w in weights):
        return math.inf
    total = sum(map(Fraction, weights))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


# -- cost distance -------------------------------------------------------------------------

TOWARD = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
"""Steps to the neighbours in the order of their ESRI codes 1, 2, 4 .. 128: E, SE, S .. NE."""

UNREACHED = 255

KNIGHTS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
"""Knight's moves, from ESE clockwise."""

MOVES = {step: 1 << k for k, step in enumerate(TOWARD)}
MOVES |= {step: (1 << k) + (1 << (k + 1) % 8) for k, step in enumerate(KNIGHTS)}
"""The code of each step."""
STEP_OF = {code: step for step, code in MOVES.items()}
RANK = {code: rank for rank, code in enumerate((*MOVES.values(), UNREACHED))}
"""Of equal predecessors, the one of the lowest rank counts."""


def edge_cost(model, za, zb, fa, fb, length, **parameters):
    """Cost of one step from a to b, as an operand of `extend`.

    An int for absdiff and minimax on integer heights without friction; otherwise float64
    operations on the converted values, in the order written here. fa and fb are None without a
    friction raster, which minimax ignores. Infinite or NaN where the arithmetic overflows: no step.
    A model may also be a function of these arguments.
    """
    if callable(model):
        return model(float(za), float(zb), fa, fb, length)
    if model == "minimax":
        return max(za, zb)  # both, so that it means the same in either direction
    if model == "absdiff" and fa is None:
        return abs(zb - za)
    dz = float(zb) - float(za)
    mean = None if fa is None else (float(fa) + float(fb)) / 2
    if model == "friction":
        return mean * length
    if model == "langmuir":
        return langmuir(dz, length, mean, **parameters)
    if model == "absdiff":
        cost = abs(dz)
    elif model == "surface":
        cost = math.sqrt(length * length + dz * dz)
    elif model == "tobler":
        cost = tobler(dz, length)
    return cost if mean is None else cost * mean


def tobler(dz, length):
    """Seconds of walking: 6 exp(-3.5 |slope + 0.05|) km/h. Tobler 1993, NCGIA report 93-1."""
    # 3.6 / 6 seconds for a metre at the fastest; hours and kilometres cancel.
    exponent = 3.5 * abs(dz / length + 0.05)
    return length * 0.6 * exponential(exponent)


def exponential(x):
    """exp(x) for x >= 0 by fdlibm's operations, the same with every compiler and library."""
    if not x <= 709.782712893384:
        return math.inf
    k = round(x * 1.44269504088896338700)
    high, low = x - k * 6.93147180369123816490e-01, k * 1.90821492927058770002e-10
    r = high - low
    t = r * r
    c = 6.61375632143793436117e-05 + t * (
        -1.65339022054652515390e-06 + t * 4.13813679705723846039e-08
    )
    c = r - t * (1.66666666666666019037e-01 + t * (-2.77777777770155933842e-03 + t * c))
    return math.ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), k - 1) * 2.0


def langmuir(
    dz, length, friction, *, a=0.72, b=6.0, c=1.9998, d=-1.9998, slope_factor=-0.2125, lam=1.0
):
    """Seconds of walking as in GRASS r.walk; friction in seconds per unit of length."""
    if dz >= 0:
        climb = b * dz
    elif dz / length >= slope_factor:
        climb = c * dz
    else:
        climb = d * dz
    cost = a * length + climb
    return cost if friction is None else cost + lam * friction * length


def extend(model, distance, cost):
    """Distance after one more step; floats are added in float64, ints exactly."""
    return max(distance, cost) if model == "minimax" else distance + cost


def listed(mask):
    """Cells of a mask as tuples, in row-major order."""
    return list(map(tuple, np.argwhere(mask).tolist()))


def remembered(most):
    """Keep that many results for later calls with the same arguments, compared in full."""

    def remembering(function):
        known = {}

        @functools.wraps(function)
        def call(*given, **named):
            try:
                asked = pickle.dumps((given, named))
            except (AttributeError, pickle.PicklingError):  # a function of a test
                return function(*given, **named)
            if asked not in known:
                result = function(*given, **named)
                if isinstance(result, np.ndarray):
                    result.flags.writeable = False
                if len(known) == most:
                    del known[next(iter(known))]
                known[asked] = result
            return known[asked]

        return call

    return remembering


@remembered(1)
def arcs(
    z,
    model,
    *,
    f=None,
    valid=None,
    lengths=None,
    connectivity=8,
    barriers=None,
    corner_cutting=True,
    reverse=False,
    parameters=None,
    wrap=False,
):
    """The graph as {u: [(v, cost of going from u outward to v, ESRI code of u seen from v)]}.

    Parameters
    ----------
    z, f
        Heights, and friction or None.
    valid, barriers
        Masks of what is a cell and what is not; `vertices(z)` and none by default.
    lengths
        Shape (4, rows), as `step_lengths` gives them; cells of 1 x 1 by default. Of 16 neighbours,
        shape (8, rows).
    corner_cutting
        Whether a diagonal may pass between two cells that are both absent.
    reverse
        Whether the cost of u to v is that of travelling from v to u.
    parameters
        Of the model, as for `edge_cost`.
    wrap
        Whether the last column meets the first one.
    """
    here = vertices(z) if valid is None else valid
    if barriers is not None:
        here = here & ~barriers
    if lengths is None:
        lengths = np.array([[1], [math.sqrt(2)], [1], [math.sqrt(2)]]).repeat(len(z), axis=1)
    graph = {cell: [] for cell in listed(here)}
    for row, col in graph:
        for k, (dr, dc) in enumerate(TOWARD):
            u, v = (row, col), (row + dr, (col + dc) % z.shape[1] if wrap else col + dc)
            if v not in graph or (connectivity == 4 and dr and dc):
                continue
            if dr and dc and not corner_cutting and not (here[row, v[1]] or here[v[0], col]):
                continue
            up = (dr, dc) not in FORWARD
            step = FORWARD.index((-dr, -dc) if up else (dr, dc))
            a, b = (v, u) if reverse else (u, v)
            friction = (None, None) if f is None else (f[a].item(), f[b].item())
            length = float(lengths[step][min(row, v[0])])
            cost = edge_cost(
                model, z[a].item(), z[b].item(), *friction, length, **(parameters or {})
            )
            if math.isfinite(cost):
                assert model == "minimax" or cost >= 0
                graph[u].append((v, cost, 1 << (k + 4) % 8))
        for dr, dc in KNIGHTS if connectivity == 16 else ():
            u, v = (row, col), (row + dr, col + dc)
            # Both cells that the line passes through besides the ends.
            flat = abs(dc) == 2
            p = (row, col + dc // 2) if flat else (row + dr // 2, col)
            q = (row + dr, col + dc // 2) if flat else (row + dr // 2, col + dc)
            if wrap:
                v, p, q = ((r, c % z.shape[1]) for r, c in (v, p, q))
            if not {v, p, q} <= graph.keys():
                continue
            a, b = (v, u) if reverse else (u, v)
            kind = KNIGHTS.index((dr, dc)) % 4
            half = 0.5 * float(lengths[4 + kind][min(row, v[0])])
            height = 0.5 * (float(z[p]) + float(z[q]))
            fa, fm, fb = (None,) * 3
            if f is not None:
                fa, fm, fb = f[a].item(), 0.5 * (float(f[p]) + float(f[q])), f[b].item()
            more = parameters or {}
            first = edge_cost(model, z[a].item(), height, fa, fm, half, **more)
            cost = extend(model, first, edge_cost(model, height, z[b].item(), fm, fb, half, **more))
            if math.isfinite(cost):
                back = MOVES[-dr, -dc]
                graph[u].append((v, cost, back))
    return graph


def seeds(z, model, sources):
    """{cell: (initial distance, id)} of sources (row, col, cost or None, id).

    Without a cost it is 0, for minimax the cell's own height, which is always included. Of several
    sources in one cell the cheapest counts, then the one with the lowest id.
    """
    found = {}
    for row, col, cost, name in sources:
        if model == "minimax":
            height = z[row, col].item()
            start = height if cost is None else max(cost, height)
        else:
            start = 0 if cost is None else cost
        found[row, col] = min((start, name), found.get((row, col), (math.inf, name)))
    return found


def dijkstra(z, model, sources, *, max_cost=None, **graph):
    """Distances from the sources, accumulated from them outward: d(v) = fl(d(u) + cost).

    Rounded addition does not decrease, so they depend on nothing but the graph.

    Parameters
    ----------
    sources
        As for `seeds`, all on cells of the graph.
    max_cost
        Cells farther than this are unreached.
    graph
        As for `arcs`.

    Returns
    -------
    numpy.ndarray of objects
        Exact ints for integer costs and start costs, else floats; inf where unreached.
    """
    steps = arcs(z, model, **graph)
    distance = np.full(z.shape, math.inf, object)
    heap = []
    for cell, (start, _) in seeds(z, model, sources).items():
        assert cell in steps
        distance[cell] = start
        heap.append((start, cell))
    heapq.heapify(heap)
    while heap:
        d, u = heapq.heappop(heap)
        if d > distance[u]:
            continue
        for v, cost, _ in steps[u]:
            new = extend(model, d, cost)
            if new < distance[v]:
                distance[v] = new
                heapq.heappush(heap, (new, v))
    if max_cost is not None:
        distance[distance > max_cost] = math.inf
    return distance


def continuous(f, valid, sources, lengths, *, corner_cutting=True, max_cost=math.inf):
    """Distances by the continuous metric, cell by cell in their order; inf where not reached.

    Parameters
    ----------
    f, valid
        Frictions, and which cells count.
    sources
        (row, col, start cost).
    lengths
        As `step_lengths` gives them.
    """
    rows, cols = f.shape
    found = np.full(f.shape, math.inf)
    queue, done = [], np.zeros(f.shape, bool)
    for row, col, cost in sources:
        found[row, col] = min(found[row, col], cost)
        heapq.heappush(queue, (float(found[row, col]), row, col))

    def is_cell(row, col):
        return 0 <= row < rows and 0 <= col < cols and bool(valid[row, col])

    def step(row, col, dr, dc):
        """Distance of the neighbour, cost and length of the step from it; inf without one."""
        r, c = row + dr, col + dc
        if not is_cell(r, c):
            return math.inf, math.inf, math.nan
        if dr and dc and not (corner_cutting or is_cell(r, col) or is_cell(row, c)):
            return math.inf, math.inf, math.nan
        length = float(lengths[3 if dr and dc else 2 if dr else 0][row + min(dr, 0)])
        mean = (float(f[row, col]) + float(f[r, c])) / 2
        return float(found[r, c]), mean * length, length

    def behind(row, col):
        """The least that the neighbours of a cell give."""
        least = math.inf
        for dr, dc in TOWARD:
            d, w, diagonal = step(row, col, dr, dc)
            least = min(least, max(d + w, d * (1 + 2.0**-52)))
            for beside in ((dr, 0), (0, dc)) if dr and dc else ():
                a, v, side = step(row, col, *beside)
                if math.inf in (a, v, d, w):
                    continue
                if beside[0]:
                    across = float(lengths[0][row + dr])
                else:
                    across = float(lengths[2][row + min(dr, 0)])
                for eighths in range(1, 8):
                    t = eighths / 8
                    square = (1 - t) * (side * side) + t * (diagonal * diagonal)
                    long = math.sqrt(square - t * (1 - t) * (across * across))
                    through = (1 - t) * (a + v * (long / side)) + t * (d + w * (long / diagonal))
                    least = min(least, max(through, max(a, d) * (1 + 2.0**-52)))
        return least

    while queue:
        _, row, col = heapq.heappop(queue)
        if done[row, col]:
            continue
        done[row, col] = True
        for dr, dc in TOWARD:
            r, c = row + dr, col + dc
            if is_cell(r, c) and not done[r, c] and (new := behind(r, c)) < found[r, c]:
                found[r, c] = new
                heapq.heappush(queue, (new, r, c))
    found[found > max_cost] = math.inf
    return found


def backlinks(distance, z, model, sources, **graph):
    """Predecessors in a forest rooted at the sources.

    The predecessor of v is a neighbour u with a tight step, d(u) extended by it being d(v):

    1. none (code 0) at a root, a source that keeps its initial distance;
    2. the one of lowest rank among those strictly nearer;
    3. failing those, v lies in a flat: the one of lowest rank among those that are equally
       far and one hop nearer to the rim of the flat. Cells of cases 1 and 2 are the rim, hop 0.

    Returns
    -------
    codes : numpy.ndarray, uint8
        ESRI code of the direction from v toward u, 0 at roots, 255 where unreached.
    hops : numpy.ndarray, int64
        -1 where unreached.
    """
    codes = np.full(z.shape, UNREACHED, np.uint8)
    hops = np.full(z.shape, -1, np.int64)
    level = {}  # u: [(v, code)] of tight steps that keep the distance
    for u, steps in arcs(z, model, **graph).items():
        level[u] = []
        for v, cost, code in steps:
            if extend(model, distance[u], cost) == distance[v] < math.inf:
                if distance[u] < distance[v]:
                    codes[v] = min(int(codes[v]), code, key=RANK.get)
                else:
                    level[u].append((v, code))
    for cell, (start, _) in seeds(z, model, sources).items():
        if distance[cell] == start:
            codes[cell] = 0
    hops[codes != UNREACHED] = 0
    queue = deque(listed(hops == 0))
    while queue:
        u = queue.popleft()
        for v, code in level[u]:
            if hops[v] < 0:
                hops[v] = hops[u] + 1
                queue.append(v)
            if hops[v] == hops[u] + 1:
                codes[v] = min(int(codes[v]), code, key=RANK.get)
    return codes, hops


def allocation(codes, z, model, sources):
    """Id of the source at the end of each cell's path of predecessors; 0 where unreached."""
    roots = seeds(z, model, sources)
    ids = np.zeros(codes.shape, np.int64)
    for cell in listed(codes != UNREACHED):
        trail, end = [], cell
        while codes[end] and not ids[end]:
            trail.append(end)
            dr, dc = STEP_OF[int(codes[end])]
            end = end[0] + dr, (end[1] + dc) % codes.shape[1]  # around the Earth
        for row, col in [*trail, end]:
            ids[row, col] = ids[end] or roots[end][1]
    return ids


def cost_matrix(z, model, sources, targets, *, max_cost=None, nearest=None, **graph):
    """Rows of a table of costs: source, target, cost, length, climb and cells of the path.

    One search from each source; a place is all cells with its id, and its best cell counts, the
    first of several. Without targets, sources are the targets of each other. The last four are None
    without a path; such rows are left out where `max_cost` or `nearest` is given. `max_cost` may be
    a dict of limits, by source; an empty one is none.
    """
    max_cost = None if max_cost == {} else max_cost
    rows = []
    names = sorted({s[3] for s in sources if targets is None} | {t[2] for t in targets or ()})
    for source in sorted({s[3] for s in sources}):
        own = [s for s in sources if s[3] == source]
        most = max_cost.get(source) if isinstance(max_cost, dict) else max_cost
        distance = dijkstra(z, model, own, max_cost=most, **graph)
        codes, _ = backlinks(distance, z, model, own, **graph)
        found = []
        for target in names:
            if targets is None and target == source:
                continue
            ends = [(r, c) for r, c, *_, name in targets or sources if name == target]
            cost, end = min((distance[end], end) for end in ends)
            found.append((cost, target, end))
        if nearest is not None:
            found = sorted(sorted(f for f in found if f[0] < math.inf)[:nearest], key=itemgetter(1))
        for cost, target, end in found:
            if cost < math.inf:
                way = path_to(codes, end)
                lengths = graph.get("lengths")
                how = {"reverse": graph.get("reverse", False), "wrap": graph.get("wrap", False)}
                measured = measured_way(z, way, lengths, **how)
                rows.append((source, target, cost, *measured, way))
            elif max_cost is None and nearest is None:
                rows.append((source, target, None, None, None, None))
    return rows


def spanning_costs(z, model, places, *, max_cost=None, **graph):
    """Costs of a spanning tree over the costs between all pairs of places, ascending; and parts."""
    pairs = cost_matrix(z, model, places, None, **graph)
    edges = sorted((cost, a, b) for a, b, cost, *_ in pairs if cost is not None and a < b)
    part = {name: name for *_, name in places}
    chosen = []
    for cost, a, b in edges:
        if part[a] != part[b] and (max_cost is None or cost <= max_cost):
            chosen.append(cost)
            part = {name: part[a] if own == part[b] else own for name, own in part.items()}
    return chosen, len(set(part.values()))


def cheapest_crossings(z, model, places, **graph):
    """{(a, b): least cost of a way from a to b within the areas nearest to these two}."""
    distance = dijkstra(z, model, places, **graph)
    codes, _ = backlinks(distance, z, model, places, **graph)
    ids = allocation(codes, z, model, places)
    found = {}
    for u, steps in arcs(z, model, **graph).items():
        for v, cost, _ in steps:
            a, b = int(ids[u]), int(ids[v])
            first = u > v if u[0] == v[0] and abs(u[1] - v[1]) > 1 else u < v
            if first and a and b and a != b:  # sums begin at the first cell, the western one
                way = extend(model, extend(model, distance[u], cost), distance[v])
                pair = min(a, b), max(a, b)
                found[pair] = min(found.get(pair, math.inf), way)
    for row, col, *_, b in places:  # cells that places share
        a = int(ids[row, col])
        if a != b:
            pair = min(a, b), max(a, b)
            here = distance[row, col] if model == "minimax" else 0
            found[pair] = min(found.get(pair, math.inf), here)
    return found


def touching(ids):
    """The pairs of ids of cells that share an edge or a corner; 0 is none."""
    found = set()
    for row, col in listed(ids > 0):
        for r in range(max(row - 1, 0), row + 2):
            for c in range(max(col - 1, 0), col + 2):
                if r < ids.shape[0] and c < ids.shape[1] and ids[r, c] > ids[row, col]:
                    found.add((int(ids[row, col]), int(ids[r, c])))
    return found


def corridors(z, model, places, pairs, most, **graph):
    """The least excess of each cell over the optima of pairs of places, and these optima.

    `most`: the largest excess for an optimum.
    """
    far = {}
    for name in {name for *_, name in places}:
        own = [place for place in places if place[3] == name]
        far[name] = dijkstra(z, model, own, **graph).astype(float)
    found, optima = np.full(z.shape, math.inf), {}
    for a, b in sorted(pairs):
        costs = far[a] + far[b]
        optima[a, b] = least = costs.min().item()
        if math.isfinite(least):
            excess = costs - least
            found = np.fmin(found, np.where(excess <= most(least), excess, math.inf))
    return np.where(np.isfinite(found), found, math.nan), optima


def without_superfluous(far, join):
    """Distances between cells, by first and last one; infinity for those that others give.

    A distance is left out, if two that come before it join to at most as much: by size, then by
    how far apart the numbers of their cells are.
    """
    number = np.arange(len(far))
    span = abs(number[:, None] - number)
    dropped = span == 0
    for c in number.tolist():
        there, on = far[:, c, None], far[c]
        nearer = np.maximum(span[:, c, None], span[c]) < span
        ways = join(there, on) <= far
        ways &= nearer | ((there < far) & (on < far))
        ways[c], ways[:, c] = False, False
        dropped |= ways
    return np.where(dropped, np.inf, far)


def path_to(codes, cell):
    """Cells from the source to a cell, along backlinks."""
    way = [cell]
    while codes[cell]:
        dr, dc = STEP_OF[int(codes[cell])]
        cell = cell[0] + dr, (cell[1] + dc) % codes.shape[1]  # only of rasters that wrap
        way.append(cell)
    return way[::-1]


def measured_way(z, way, lengths, *, reverse, wrap=False):
    """Length and climb of a path, over heights in float64, travelled backwards if `reverse`."""
    steps, rises = [], []
    for a, b in pairwise(way):
        across = b[1] - a[1]
        if wrap and abs(across) > len(lengths) // 4:
            across -= math.copysign(z.shape[1], across)
        move, kinds = (b[0] - a[0], across), (*FORWARD, *KNIGHTS[:4])
        kind = kinds.index(move if move in kinds else (-move[0], -move[1]))
        steps.append(lengths[kind][min(a[0], b[0])])
        low, high = (float(z[cell]) for cell in ((b, a) if reverse else (a, b)))
        rises.append(max(high - low, 0))
    return math.fsum(steps), math.fsum(rises)


def overview(z, nodata, how):
    """Cells two by two, by plain Python; see `build_overviews`."""
    good = vertices(z, nodata)
    void = z.dtype.type((np.nan if z.dtype.kind == "f" else 0) if nodata is None else nodata)
    found = np.full([(side + 1) // 2 for side in z.shape], void, z.dtype)
    for r, c in np.ndindex(*found.shape):
        four = [(2 * r + k // 2, 2 * c + k % 2) for k in range(4)]
        if how == "nearest":
            found[r, c] = z[four[0]]
            continue
        there = [at for at in four if at[0] < z.shape[0] and at[1] < z.shape[1] and good[at]]
        values = [z[at] for at in there]
        if not values:
            continue
        if how == "mode":
            found[r, c] = max(values, key=values.count)  # the first of several
        elif how != "average":
            found[r, c] = {"min": min, "max": max}[how](values) + z.dtype.type(0)
        else:
            one, two, three, four = (float(z[at]) if at in there else 0.0 for at in four)
            with np.errstate(over="ignore", invalid="ignore"):
                mean = ((one + two) + (three + four)) / len(values)
                if not np.isfinite(mean):
                    n = len(values)
                    mean = (one / n + two / n) + (three / n + four / n)
                mean = z.dtype.type(round(mean) if z.dtype.kind in "iu" else mean)
            found[r, c] = mean if vertices(mean[None, None], nodata) else values[0]
    return found


def slope(z, nodata, lengths):
    """Horn's slope and aspect in degrees, float32; -9999 without all eight neighbours."""
    valid = vertices(z, nodata)
    rows, cols = z.shape
    slopes = np.full(z.shape, -9999, np.float32)
    aspects = slopes.copy()
    for r in range(1, rows - 1):
        for c in range(1, cols - 1):
            if not valid[r - 1 : r + 2, c - 1 : c + 2].all():
                continue
            # float64 does not hold all integers of 64 bits, but differences of close ones.
            from_here = z[r, c].item() if z.dtype.kind in "iu" and z.itemsize == 8 else 0
            (nw, n, ne), (w, _, e), (sw, s, se) = (
                [float(v - from_here) for v in row]
                for row in z[r - 1 : r + 2, c - 1 : c + 2].tolist()
            )
            right = ((ne + 2 * e + se) - (nw + 2 * w + sw)) / (8 * float(lengths[0, r]))
            below = ((sw + 2 * s + se) - (nw + 2 * n + ne)) / (
                4 * float(lengths[2, r - 1] + lengths[2, r])
            )
            slopes[r, c] = 180 / math.pi * math.atan(math.sqrt(right * right + below * below))
            if right or below:
                downhill = 180 / math.pi * math.atan2(-right, below)
                aspects[r, c] = downhill + 360 if downhill < 0 else downhill
    return slopes, aspects


def expected_labels(mask, connectivity=8):
    """Labels of scipy, renumbered by first cells."""
    found, count = ndimage.label(mask, np.ones((3, 3)) if connectivity == 8 else None)
    _, first = np.unique(np.append(found, np.arange(count + 1)), return_index=True)
    order = np.argsort(first[1:])
    names = np.zeros(count + 1, np.int64)
    names[1 + order] = np.arange(1, count + 1)
    return names[found]


def border(good):
    """Cells with a value at the raster's edge or beside cells without one."""
    ringed = np.pad(good, 1)
    inner = np.ones(good.shape, bool)
    for row in range(3):
        for col in range(3):
            inner &= ringed[row : row + good.shape[0], col : col + good.shape[1]]
    return [tuple(cell) for cell in np.argwhere(good & ~inner).tolist()]


def edge(good):
    """Cells with a value at the raster's edge or beside voids that reach it."""
    outside, _ = ndimage.label(np.pad(~good, 1, constant_values=True), np.ones((3, 3)))
    coast = ndimage.binary_dilation(outside == outside[0, 0], np.ones((3, 3)))[1:-1, 1:-1]
    return listed(good & coast)


def named_outlets(name, good, added=()):
    """Outlets of a name, with added ones, and low cells, as `rooted` takes them."""
    cells = edge(good) if name.endswith("edge") else border(good)
    more = [cell for cell in cells if cell not in added]
    return (list(added), more) if name.startswith("low") else ([*added, *more], [])


def downstream(codes, row, col):
    """The cell that a D8 code leads to, None where the way ends."""
    code = int(codes[row, col])
    if code in (0, 255):
        return None
    down, right = TOWARD[code.bit_length() - 1]
    r, c = row + down, col + right
    inside = 0 <= r < codes.shape[0] and 0 <= c < codes.shape[1]
    return (r, c) if inside and codes[r, c] != 255 else None


def flow_sums(codes, values, of=True):
    """What drains through each cell along D8 codes: the value of every cell `of` a mask."""
    after = {cell: downstream(codes, *cell) for cell in listed(codes != 255)}
    sums = np.zeros(codes.shape, object)
    for start in listed((codes != 255) & of):
        cell = start
        while cell is not None:
            sums[cell] += int(values[start[0]])
            cell = after[cell]
    return sums


def portions(z, codes, cell, method, exponent, lengths):
    """How a cell divides its flow, as multiples of 2^-30 by neighbour; none where it does not."""
    row, col = cell
    level, length, below = float(z[cell]), {}, {}
    for k, (dr, dc) in enumerate(TOWARD):
        r, c = row + dr, col + dc
        forward = (dr, dc) in FORWARD
        edge = FORWARD.index((dr, dc) if forward else (-dr, -dc))
        length[k] = lengths[edge, row if forward or not dr else max(row - 1, 0)]
        if 0 <= r < z.shape[0] and 0 <= c < z.shape[1] and codes[r, c] != 255:
            below[k] = float(z[r, c])
    slopes = {k: (level - below[k]) / length[k] for k in below}
    found = {}
    if method == "dinf":
        facets = []
        for near, far in ((0, 7), (6, 7), (6, 5), (4, 5), (4, 3), (2, 3), (2, 1), (0, 1)):
            d1, d2 = length[near], length[(2 * far - near) % 8]
            if near in slopes and far in slopes:
                s1, s2 = slopes[near], (below[near] - below[far]) / d2
                if s2 * d1 * STEEPER >= s1 * d2:
                    facets.append((slopes[far], {far: 1.0}))
                elif s2 > 0:
                    part = math.floor(arctan(s2 / s1) / arctan(d2 / d1) * 2**30) / 2**30
                    facets.append((math.sqrt(s1 * s1 + s2 * s2), {near: 1 - part, far: part}))
                else:
                    facets.append((s1, {near: 1.0}))
            else:
                facets += [(slopes[k], {k: 1.0}) for k in (near, far) if k in slopes]
        steepest = 0.0
        for slope, parts in facets:  # the first of equal ones; rounding does not part them
            if slope > steepest * STEEPER:
                steepest, found = slope, parts
        found = found if steepest < math.inf else {}
    else:
        lower = {k: slope for k, slope in slopes.items() if slope > 0}
        if lower and max(lower.values()) < math.inf:
            found = {k: power(slope / max(lower.values()), exponent) for k, slope in lower.items()}
            if method == "quinn":
                for k in found:
                    down = lengths[2, max(row - (k > 4), 0)]
                    found[k] *= lengths[0, row] * down / (2 * length[k])
            total = sum(found.values())
            found = {k: one / total for k, one in found.items()}
    return {k: math.floor(one * 2**30) for k, one in found.items()}


def divided_flow(z, codes, own, method, exponent, lengths):
    """What drains through each cell, in whole units, where cells divide it (down filled heights).

    Cells without lower neighbours give all to the next along D8 codes.
    """
    sums, parts, waiting = np.zeros(codes.shape, object), {}, collections.Counter()
    for cell in listed(codes != 255):
        sums[cell] = int(own[cell])
        parts[cell] = {}
        if codes[cell] != 0:
            found = portions(z, codes, cell, method, exponent, lengths)
            parts[cell] = {tuple(np.add(cell, TOWARD[k]).tolist()): found[k] for k in sorted(found)}
            if not found and (to := downstream(codes, *cell)) is not None:
                parts[cell] = {to: 2**30}
        waiting.update(list(parts[cell]))
    ready = [cell for cell in parts if not waiting[cell]]
    done = 0
    while ready:
        cell = ready.pop()
        done += 1
        shares = {to: sums[cell] * part // 2**30 for to, part in parts[cell].items()}
        if shares:
            largest = max(parts[cell], key=parts[cell].get)
            shares[largest] += sums[cell] - sum(shares.values())
        for to, share in shares.items():
            sums[to] += share
            waiting[to] -= 1
            ready += [to] * (not waiting[to])
    assert done == len(parts)
    return sums


def upstream(codes, values):
    """Lists of the values of all cells upstream of each and of its own; None is no value."""
    found = np.empty(codes.shape, object)
    for cell in np.ndindex(codes.shape):
        found[cell] = [values[cell]] if values[cell] is not None and codes[cell] != 255 else []
    after = {cell: downstream(codes, *cell) for cell in listed(codes != 255)}
    waiting = collections.Counter(after.values())
    ready = [cell for cell in after if not waiting[cell]]
    while ready:
        cell = ready.pop()
        if (to := after[cell]) is not None:
            found[to] += found[cell]
            waiting[to] -= 1
            ready += [to] * (not waiting[to])
    return found


def edge_cells(codes):
    """Which cells drain inwards at the edge of the raster, or next to one that does not drain."""
    outer = np.pad(codes, 1, constant_values=255)
    found = np.zeros(codes.shape, bool)
    for r, c in listed(codes != 255):
        beside = (outer[r : r + 3, c : c + 3] == 255).any()
        found[r, c] = beside and downstream(codes, r, c) is not None
    return found


def terrain_indices(slopes, areas, widths, min_slope):
    """TWI, SPI and LS, float32; -9999 without a slope or an area. Widths are of rows."""
    twi, spi, ls = (np.full(slopes.shape, -9999, np.float32) for _ in range(3))
    for row, col in listed((slopes != -9999) & (areas > 0)):
        a = float(areas[row, col]) * (1 / float(widths[row]))
        b = float(slopes[row, col]) * (math.pi / 180)
        steep = max(math.tan(b), math.tan(min_slope * (math.pi / 180)))
        twi[row, col] = math.log(a / steep)
        spi[row, col] = a * math.tan(b)
        ls[row, col] = (a / 22.13) ** 0.4 * (math.sin(b) / 0.0896) ** 1.3
    return twi, spi, ls


@remembered(40)
def filled(z, codes, nodata=None, connectivity=8):
    """Priority-flood (Barnes, Lehman, Mulla 2014) from the cells at which ways end."""
    good, levels, done = vertices(z, nodata), z.copy(), set()
    ends = [cell for cell in listed(codes != 255) if downstream(codes, *cell) is None]
    heap = [(z[cell].item(), cell) for cell in ends]
    heapq.heapify(heap)
    while heap:
        level, (row, col) = heapq.heappop(heap)
        if (row, col) in done:
            continue
        done.add((row, col))
        levels[row, col] = z[row, col] if level == z[row, col] else level  # 0.0 or -0.0
        for down, right in TOWARD[:: 8 // connectivity]:
            r, c = row + down, col + right
            if 0 <= r < z.shape[0] and 0 <= c < z.shape[1] and good[r, c]:
                heapq.heappush(heap, (max(level, z[r, c].item()), (r, c)))
    return levels


def filled_with_epsilon(z, codes, nodata=None, connectivity=8):
    """The same, but every cell is above the one from which it is reached."""
    levels, done, top = z.copy(), set(), z.dtype.type(np.inf)
    ends = [cell for cell in listed(codes != 255) if downstream(codes, *cell) is None]
    heap = [(z[cell], cell) for cell in ends]
    heapq.heapify(heap)
    while heap:
        level, (row, col) = heapq.heappop(heap)
        if (row, col) in done:
            continue
        done.add((row, col))
        levels[row, col] = z[row, col] if level == z[row, col] else level
        above = np.nextafter(level, top)
        if above == nodata:
            above = np.nextafter(above, top)
        for down, right in TOWARD[:: 8 // connectivity]:
            r, c = row + down, col + right
            if 0 <= r < z.shape[0] and 0 <= c < z.shape[1] and codes[r, c] != 255:
                heapq.heappush(heap, (max(above, z[r, c]), (r, c)))
    return levels


def pits_of(z, good, outlets):
    """First cells of flats without a lower neighbour and without an outlet."""
    found, seen = [], np.zeros(z.shape, bool)
    for cell in listed(good):
        if seen[cell]:
            continue
        flat, lowest = [cell], True
        seen[cell] = True
        for at in flat:
            lowest &= at not in outlets
            for to in around_cell(at, good):
                lowest &= z[to] >= z[at]
                if z[to] == z[at] and not seen[to]:
                    seen[to] = True
                    flat.append(to)
        if lowest:
            found.append(cell)
    return found


def around_cell(at, good):
    """The neighbours with a value of a cell, in row-major order."""
    row, col = at
    beside = itertools.product(range(row - 1, row + 2), range(col - 1, col + 2))
    rows, cols = good.shape
    return [
        (r, c) for r, c in beside if (r, c) != at and 0 <= r < rows and 0 <= c < cols and good[r, c]
    ]


def breach_way(z, good, outlets, pit, reach, deepest, per_unit):
    """The least-cost way out of a pit, from its end; None if there is none."""
    level, before = z[pit], {}
    queue = [((0, 0, 0), pit, None)]
    while queue:
        found, at, came = heapq.heappop(queue)
        if at in before:
            continue
        before[at] = found, came
        if z[at] < level or at in outlets:
            break
        for to in around_cell(at, good):
            far = max(abs(to[0] - pit[0]), abs(to[1] - pit[1])) > reach
            if to in before or far or (z[to] > level and float(z[to]) - float(level) > deepest):
                continue
            cut = round(float(z[to]) * per_unit - float(level) * per_unit) if z[to] > level else 0
            cost, steps, slanting = found
            diagonal = to[0] != at[0] and to[1] != at[1]
            heapq.heappush(queue, ((cost + cut, steps + 1, slanting + diagonal), to, at))
    else:
        return None
    way = [at]
    while way[-1] != pit:
        way.append(before[way[-1]][1])
    return way


def breached(z, nodata, outlets, reach, deepest, per_unit):
    """Heights along all ways lowered, and the ways by pit, None for those without."""
    good, found = vertices(z, nodata), z.copy()
    outlets = set(outlets)
    ways = {}
    for pit in pits_of(z, good, outlets):
        ways[pit] = breach_way(z, good, outlets, pit, reach, deepest, per_unit)
        for cell in ways[pit] or ():
            found[cell] = min(found[cell], z[pit])
    return found, ways


def way(codes, cell, stops=()):
    """The cells of the way from a cell, the last one at its end or the first one of `stops`."""
    found = [cell]
    while cell not in stops and (cell := downstream(codes, *cell)) is not None:
        found.append(cell)
    return found


def basins(codes):
    """Number of the outlet that each cell drains to, 0 for none; outlets count row by row."""
    labels, draining = np.zeros(codes.shape, np.uint32), listed(codes != 255)
    outlets = [cell for cell in draining if downstream(codes, *cell) is None]
    for cell in draining:
        labels[cell] = 1 + outlets.index(way(codes, cell)[-1])
    return labels


def watersheds(codes, ends, dtype=np.uint32):
    """The label of the first of `ends`, labels by cell, on the way from each cell; 0 for none."""
    labels = np.zeros(codes.shape, dtype)
    for cell in listed(codes != 255):
        labels[cell] = ends.get(way(codes, cell, ends)[-1], 0)
    return labels


def snapped(sums, cell, radius, across, down, expected=None):
    """The cell of the largest sum, or nearest to one, within a radius; then the nearest, the first.

    Sums are -1 where there is none.
    """
    near = []
    for r, c in listed(sums != -1):
        y = abs(r - cell[0]) * (down[r] + down[cell[0]]) / 2
        x = abs(c - cell[1]) * (across[r] + across[cell[0]]) / 2
        if np.hypot(y, x) <= radius:
            score = -sums[r, c] if expected is None else abs(sums[r, c] - expected)
            near.append((score, np.hypot(y, x), r, c))
    return min(near)[2:] if near else None


def above_streams(z, codes, streams, lengths):
    """Height above the first stream on the way from each cell, and the length of the way there.

    `lengths` are whole, as `step_lengths` gives them; -9999 and -1 where there is no stream.
    """
    heights, distances = np.full(z.shape, -9999, z.dtype), np.full(z.shape, -1, object)
    stops = set(listed(streams & (codes != 255)))
    for start in listed(codes != 255):
        cells = way(codes, start, stops)
        if cells[-1] not in stops:
            continue
        heights[start] = z[start] - z[cells[-1]]
        edges = [(min(pair), max(pair)) for pair in itertools.pairwise(cells)]
        kinds = [FORWARD.index((c - a, d - b)) for (a, b), (c, d) in edges]
        distances[start] = sum(
            int(lengths[kind, one[0]]) for kind, (one, _) in zip(kinds, edges, strict=True)
        )
    return heights, distances


def divided_above_streams(z, filled, codes, streams, lengths):
    """Averages of height above streams and distance to them over D-infinity flow.

    NaN where any of the flow meets no stream or a cell without a height, NaN in z.
    """
    heights, distances, found = np.full(z.shape, np.nan), np.full(z.shape, np.nan), {}

    def values(cell):
        """Height and distance of a cell of which all further ones down are found."""
        if streams[cell]:
            return 0.0 if z[cell] == z[cell] else math.nan, 0.0
        parts = below[cell]
        if not parts:
            return math.nan, math.nan
        largest = max(parts, key=parts.get)
        totals = []
        for column in range(2):
            taken = {}
            for k in parts:
                to = tuple(np.add(cell, TOWARD[k]).tolist())
                row, edge = cell[0] - (k > 4), (0, 3, 2, 1)[k % 4]
                steps = float(z[cell]) - float(z[to]), float(lengths[edge, max(row, 0)])
                taken[k] = found[to][column] + steps[column]
            total = taken[largest]
            for k in sorted(parts.keys() - {largest}):
                total += parts[k] / 2**30 * (taken[k] - taken[largest])
            totals.append(total if math.isfinite(total) else math.nan)
        return tuple(totals)

    below, above, waiting = {}, collections.defaultdict(list), {}
    for cell in listed(codes != 255):
        below[cell] = {}
        if codes[cell] != 0 and not streams[cell]:
            below[cell] = portions(filled, codes, cell, "dinf", 1, lengths)
            if not below[cell] and downstream(codes, *cell) is not None:
                below[cell] = {int(codes[cell]).bit_length() - 1: 2**30}
        below[cell] = {k: part for k, part in sorted(below[cell].items()) if part}
        waiting[cell] = len(below[cell])
        for k in below[cell]:
            above[tuple(np.add(cell, TOWARD[k]).tolist())].append(cell)
    ready = [cell for cell, count in waiting.items() if not count]
    while ready:
        cell = ready.pop()
        found[cell] = heights[cell], distances[cell] = values(cell)
        for other in above[cell]:
            waiting[other] -= 1
            ready += [other] * (not waiting[other])
    assert len(found) == len(below)
    return heights, distances


def rooted(z, weight, outlets, nodata=None, connectivity=8, lengths=None, low=()):
    """Next cell of each that drains to an outlet, None at outlets: Kruskal from the outlets.

    From each `low` cell an edge leads outwards, as high as the cell, without slope, and before all
    others like that.
    """
    cols = z.shape[1]
    found = edges(z, weight, nodata, connectivity, lengths)
    for row, col in low:
        found.append(((z[row, col].item(), 0), row * cols + col - z.size, None))
    steps = [(v + z.size, 0, 0) if d is None else (v, *FORWARD[d]) for _, v, d in sorted(found)]
    return hung(z.shape, outlets, steps)


def hung(shape, outlets, edges):
    """As `rooted`: edges (cell, step down, step right) are taken where they close no cycle.

    All outlets hang on one root outside by edges lighter than all others. No step leads outside.
    """
    rows, cols = shape
    parent = list(range(rows * cols + 1))

    def find(v):
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    beside = {v: [] for v in range(rows * cols + 1)}
    outside = rows * cols
    chosen = [(outside, row * cols + col) for row, col in outlets]
    chosen += [(v, v + dr * cols + dc if dr or dc else outside) for v, dr, dc in edges]
    for u, v in chosen:
        a, b = find(u), find(v)
        if a != b:
            parent[a] = b
            beside[u].append(v)
            beside[v].append(u)
    into, seen, order = {}, {outside}, [outside]
    for v in order:
        for u in beside[v]:
            if u not in seen:
                seen.add(u)
                order.append(u)
                into[u] = None if v == outside else v
    return into, order[1:]


def drained(shape, into, order, values):
    """Sums and D8 codes of every cell; `values` are whole numbers for each row."""
    cols = shape[1]
    sums = np.zeros(shape[0] * cols, object)
    codes = np.full(shape[0] * cols, 255, np.uint8)
    for v in reversed(order):
        sums[v] += int(values[v // cols])
        u = into[v]
        codes[v] = 0
        if u is not None:
            sums[u] += sums[v]
            step = (u // cols - v // cols, u % cols - v % cols)
            codes[v] = 1 << TOWARD.index(step)
    return sums.reshape(shape), codes.reshape(shape)


def channel_links(codes, sums, least):
    """Links of channels in row-major order: their cells, and the cell beyond, None at outlets."""
    channels = listed((codes != 255) & (sums >= least))
    beyond, inflows = {}, {cell: 0 for cell in channels}
    for row, col in channels:
        beyond[row, col] = None
        if code := int(codes[row, col]):
            down, right = TOWARD[code.bit_length() - 1]
            there = row + down, col + right
            inside = 0 <= there[0] < codes.shape[0] and 0 <= there[1] < codes.shape[1]
            if inside and codes[there] != 255:
                beyond[row, col] = there
                inflows[there] += 1
    links = []
    for cell in channels:
        if inflows[cell] != 1:
            cells = [cell]
            while (there := beyond[cells[-1]]) is not None and inflows[there] == 1:
                cells.append(there)
            links.append((cells, there))
    return links


def stream_orders(links, sums):
    """Orders of links by name, each a list; sums grow along every link."""
    number = {cells[0]: k for k, (cells, _) in enumerate(links)}
    down = [number.get(beyond) for _, beyond in links]
    up = [[] for _ in links]
    for k, to in enumerate(down):
        if to is not None:
            up[to].append(k)
    most = [(sums[cells[-1]], -cells[-1][0], -cells[-1][1]) for cells, _ in links]
    names = ("strahler", "shreve", "horton", "hack", "topological", "link")
    found = {name: [0] * len(links) for name in names}
    strahler, horton = found["strahler"], found["horton"]
    upward = sorted(range(len(links)), key=lambda k: most[k])
    for k in upward:
        orders = [strahler[j] for j in up[k]]
        top = max(orders, default=0)
        strahler[k] = top + (orders.count(top) != 1)
        found["shreve"][k] = sum(found["shreve"][j] for j in up[k]) or 1
        found["link"][k] = k + 1
    for k in reversed(upward):
        to = down[k]
        if to is None:
            horton[k], found["hack"][k], found["topological"][k] = strahler[k], 1, 1
            continue
        main = max(up[to], key=lambda j: most[j])
        stem = max(up[to], key=lambda j: (strahler[j], most[j]))
        horton[k] = horton[to] if k == stem else strahler[k]
        found["hack"][k] = found["hack"][to] + (k != main)
        found["topological"][k] = found["topological"][to] + 1
    return found


def pfafstetter(links, sums):
    """Codes of links, each of which is the last of a network of its own with all that flows in."""
    number = {cells[0]: k for k, (cells, _) in enumerate(links)}
    down = [number.get(beyond) for _, beyond in links]
    most = [(sums[cells[-1]], -cells[-1][0], -cells[-1][1]) for cells, _ in links]
    up = [[] for _ in links]
    for k, to in enumerate(down):
        if to is not None:
            up[to].append(k)

    def part_from(link):
        """The main stem up from a link, and what flows into it: (place on the stem, link)."""
        stem, tributaries = [link], []
        while flows := sorted(up[stem[-1]], key=lambda k: most[k]):
            tributaries += [(len(stem) - 1, k) for k in flows[:-1]]
            stem.append(flows[-1])
        return stem, tributaries

    codes = [""] * len(links)
    parts = [(0, *part_from(k), "") for k, to in enumerate(down) if to is None]
    while parts:
        low, stem, tributaries, code = parts.pop()
        if not tributaries:
            for k in stem:
                codes[k] = code or "1"
            continue
        chosen = sorted(sorted(tributaries, key=lambda at: most[at[1]])[-4:], key=tributaries.index)
        for n, (place, link) in enumerate(chosen):
            cut, before = place + 1 - low, tributaries.index((place, link))
            parts.append((low, stem[:cut], tributaries[:before], f"{code}{2 * n + 1}"))
            parts.append((0, *part_from(link), f"{code}{2 * n + 2}"))
            low, stem, tributaries = place + 1, stem[cut:], tributaries[before + 1 :]
        parts.append((low, stem, tributaries, f"{code}{2 * len(chosen) + 1}"))
    return codes


def stream_lines(codes, sums, heights, least, lengths, edge=None):
    """Cells of the line of each link, and its attributes; `edge` tells which cells are counted."""
    counts = None if edge is None else flow_sums(codes, np.ones(len(codes), int), edge)
    cols, links = codes.shape[1], channel_links(codes, sums, least)
    number = {cells[0]: k for k, (cells, _) in enumerate(links)}
    down = [number.get(beyond) for _, beyond in links]
    orders = {k: v for k, v in stream_orders(links, sums).items() if k != "link"}
    basins, found = pfafstetter(links, sums), []
    for k, (cells, beyond) in enumerate(links):
        line = cells + ([beyond] if beyond else [])
        outlet = k
        while down[outlet] is not None:
            outlet = down[outlet]
        steps = []
        for (r0, c0), (r1, c1) in pairwise(line):
            kind = 0 if r0 == r1 else 2 if c0 == c1 else 3
            steps.append(float(lengths[kind, min(r0, r1)]))
        length, ((r0, c0), (r1, c1)) = math.fsum(steps), (line[0], line[-1])
        across = (lengths[0, (r0 + r1) // 2] + lengths[0, (r0 + r1 + 1) // 2]) / 2 * (c1 - c0)
        straight = math.hypot(across, math.fsum(lengths[2, min(r0, r1) : max(r0, r1)]))
        drop = float(heights[line[0]]) - float(heights[line[-1]])
        found.append(
            (
                line,
                {
                    "id": k + 1,
                    "downstream": 0 if down[k] is None else down[k] + 1,
                    "outlet": outlet + 1,
                    "start": r0 * cols + c0,
                    "end": r1 * cols + c1,
                    "cells": len(cells),
                    "length": length,
                    "drop": drop,
                    "slope": drop / length if length else 0.0,
                    "sinuosity": max(length / straight, 1.0) if length else 1.0,
                    "accumulation": sums[cells[-1]],
                    **({} if counts is None else {"edge_cells": counts[cells[-1]]}),
                    **{name: values[k] for name, values in orders.items()},
                    "pfafstetter": basins[k],
                },
            )
        )
    return found


def down_gradients(filled, along, lengths):
    """D8 codes of filled heights; flats as in Barnes and others (2014), straight steps first."""
    along = np.pad(along, 1, constant_values=255)
    z = np.pad(filled, 1)
    codes = np.full(z.shape, 255, np.uint8)
    cells = listed(along != 255)
    beside = {
        (r, c): [(r + dr, c + dc) if along[r + dr, c + dc] != 255 else None for dr, dc in TOWARD]
        for r, c in cells
    }
    edge_of = {step: d for d, step in enumerate(FORWARD)}
    for cell in cells:
        if along[cell] == 0:
            codes[cell] = 0
            continue
        lower = []
        for k, to in enumerate(beside[cell]):
            if to and z[to] < z[cell]:
                first, last = sorted((cell, to))
                d = edge_of[last[0] - first[0], last[1] - first[1]]
                slope = slope_of(z[cell], z[to], lengths[d, first[0] - 1])
                lower.append((-slope, first, d, k))
        if lower:
            codes[cell] = 1 << min(lower)[-1]
    no_flow = {cell for cell in cells if codes[cell] == 255}

    def flat(cell):
        return [to for to in beside[cell] if to and z[to] == z[cell]]

    low = [cell for cell in cells if cell not in no_flow and no_flow & set(flat(cell))]
    high = [cell for cell in no_flow if any(to and z[to] > z[cell] for to in beside[cell])]
    labels = {}
    for label, start in enumerate(low):
        stack = [start]
        while stack:
            cell = stack.pop()
            if cell not in labels:
                labels[cell] = label
                stack += flat(cell)
    assert no_flow <= labels.keys()

    def grow(front):
        loops, seen = 0, {}
        while front:
            loops += 1
            seen |= dict.fromkeys(front, loops)
            front = {to for cell in front for to in flat(cell) if to in no_flow} - seen.keys()
        return seen

    away, towards, height = grow(set(high)), grow(set(low)), {}
    for cell, loops in away.items():
        height[labels[cell]] = max(height.get(labels[cell], 0), loops)
    mask = {cell: 2 * loops for cell, loops in towards.items()}
    for cell, loops in away.items():
        mask[cell] += height[labels[cell]] - loops
    for cell in no_flow:
        choice = [
            (mask[to], k % 2, (k + 4) % 8) for k, to in enumerate(beside[cell]) if to in flat(cell)
        ]
        codes[cell] = 1 << (min(choice)[-1] + 4) % 8
    return codes[1:-1, 1:-1]


def depressions(z, outlets, nodata=None, connectivity=8):
    """Depressions by their pits: (spill height, parent's pit or None), as water rises everywhere.

    At each height, its cells join their neighbours' sets. In each set, the deepest pit goes on, the
    first one of equally deep ones, and none in one that has an outlet; the others' depressions are
    complete. Those of no depth are left out, and those where no outlet is reached.
    """
    found, above, pits = {}, {}, {}
    cells = sorted((z[cell].item(), cell) for cell in listed(vertices(z, nodata)))

    def root(cell):
        while above[cell] != cell:
            above[cell] = cell = above[above[cell]]
        return cell

    for height, some in itertools.groupby(cells, key=lambda item: item[0]):
        group = [cell for _, cell in some]
        for cell in group:
            above[cell], pits[cell] = cell, [None if cell in outlets else (height, cell)]
        for row, col in group:
            for down, right in TOWARD[:: 8 // connectivity]:
                if (row + down, col + right) in above:
                    one, other = root((row, col)), root((row + down, col + right))
                    if one != other:
                        pits[one] += pits.pop(other)
                        above[other] = one
        for top in {root(cell) for cell in group}:
            oldest = None if None in pits[top] else min(pits[top])
            for pit in pits[top]:
                if pit not in (None, oldest) and pit[0] < height:
                    found[pit[1]] = height, None if oldest is None else oldest[1]
            pits[top] = [oldest]
    return {pit: known for pit, known in found.items() if pits[root(pit)] == [None]}


def smallest_depressions(z, found, numbers, nodata=None, connectivity=8):
    """The number of the smallest depression that each cell lies in, 0 for none."""
    good, labels = vertices(z, nodata), np.zeros(z.shape, np.uint32)
    for pit, (spill, _) in sorted(found.items(), key=lambda item: -item[1][0]):
        stack, seen = [pit], {pit}
        while stack:
            row, col = stack.pop()
            labels[row, col] = numbers[pit]
            for down, right in TOWARD[:: 8 // connectivity]:
                r, c = row + down, col + right
                inside = 0 <= r < z.shape[0] and 0 <= c < z.shape[1]
                if inside and (r, c) not in seen and good[r, c] and z[r, c] < spill:
                    seen.add((r, c))
                    stack.append((r, c))
    return labels


def rested(z, outlets, rain, nodata=None, connectivity=8, lengths=None):
    """Depths of the water of a rain at rest, and what left, in cells times height.

    Water runs down the steepest way to a pool. A pool is one catchment, or several whose pools are
    full and overflow over the same edge. One with more than it holds spills over the lowest edge
    around it, of equal ones the first, into the pool of the catchment beyond, in any order, until
    none has. The water that reaches an outlet is gone.
    """
    good = vertices(z, nodata)

    def exact(value):
        return Fraction(value.item()) if value.dtype.kind == "f" else value.item()

    height = {cell: exact(z[cell]) for cell in listed(good)}
    ways, cols = {cell: [] for cell in height}, z.shape[1]
    tree = kruskal(z, "flow", nodata, connectivity, lengths)[0]
    for size, first, d in edges(z, "flow", nodata, connectivity, lengths):
        one = divmod(first, cols)
        other = one[0] + FORWARD[d][0], one[1] + FORWARD[d][1]
        for a, b in ((one, other), (other, one)):
            ways[a].append((size, first, d, b, tree[one] >> d & 1))
    beyond = {}
    for cell, some in ways.items():
        down = [way for way in some if height[way[3]] <= height[cell]]
        beyond[cell] = min(down)[3] if down and cell not in outlets else None
    for cell in sorted(beyond):  # of a flat without a way out, all cells lead to the first of two
        if beyond[cell] and beyond[beyond[cell]] == cell:
            beyond[cell] = None

    def end(cell):
        return cell if beyond[cell] is None else end(beyond[cell])

    whose = {cell: end(cell) for cell in height}
    pools = {pit: [] for pit in whose.values()}
    for cell, pit in whose.items():
        pools[pit].append(cell)
    water = {pit: sum(exact(rain[one]) for one in own) for pit, own in pools.items()}

    def spill(pit):
        """What a pool holds, its lowest edge, and the cell beyond."""
        around = []
        for cell in pools[pit]:
            for _, first, d, to, kept in ways[cell]:
                if kept and whose[to] != pit:
                    second = height[min(cell, to)] < height[max(cell, to)]
                    around.append((max(height[cell], height[to]), first, d, second, to))
        if not around:
            return math.inf, None, None
        top, *key, to = min(around)
        return sum(max(top - height[cell], 0) for cell in pools[pit]), key, to

    held = {pit: (math.inf, None, None) if pit in outlets else spill(pit) for pit in pools}
    full = [pit for pit in pools if water[pit] > held[pit][0]]
    while full:
        pit = full.pop()
        if pit not in pools or water[pit] <= held[pit][0]:
            continue
        most, key, to = held[pit]
        other = whose[to]
        if water[other] >= held[other][0] and held[other][1] == key:
            for cell in pools[other]:
                whose[cell] = pit
            pools[pit] += pools.pop(other)
            water[pit] += water.pop(other)
            held[pit] = spill(pit)
        else:
            water[other] += water[pit] - most
            water[pit] = most
        full += [pit, other]
    depth = np.where(good, 0.0, np.nan)
    for pit in set(pools) - set(outlets):
        cells = sorted(pools[pit], key=height.get)
        for count in range(1, len(cells) + 1):
            level = Fraction(water[pit] + sum(height[one] for one in cells[:count])) / count
            if count == len(cells) or level <= height[cells[count]]:
                break
        for one in cells[:count]:
            depth[one] = level - height[one]
    return depth, sum(water[pit] for pit in set(pools) & set(outlets))


def next_cells(codes, part):
    """NEXTXY of a part of the raster: column and row of the next cell from 1, see CaMa-Flood."""
    top, bottom, left, right = part
    rows, cols = codes.shape
    found = np.full((2, bottom - top, right - left), -9999, np.int32)

    def drains(r, c):
        return 0 <= r < rows and 0 <= c < cols and codes[r, c] != 255

    for row in range(top, bottom):
        for col in range(left, right):
            code, at = int(codes[row, col]), (slice(None), row - top, col - left)
            if code == 255:
                continue
            around = [(row + dr, col + dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1)]
            if code == 0:
                found[at] = -10 if all(drains(*one) for one in around) else -9
                continue
            step = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
            down, across = step[code.bit_length() - 1]
            r, c = row + down, col + across
            inside = top <= r < bottom and left <= c < right and drains(r, c)
            found[at] = (c - left + 1, r - top + 1) if inside else -9
    return found


# -- contours -----------------------------------------------------------------------------------


def contour_segments(z, nodata, levels):
    """Segments of contour lines: level, and both ends in rows and columns of centres of cells.

    The higher ground is on the left of each, as seen with rows from north to south.
    """
    good, found = vertices(z, nodata), []
    for row in range(z.shape[0] - 1):
        for col in range(z.shape[1] - 1):
            corners = [(row, col), (row, col + 1), (row + 1, col + 1), (row + 1, col)]
            if not all(good[at] for at in corners):
                continue
            heights = [float(z[at]) for at in corners]
            for level in levels:
                entries, exits = [], []
                for k in range(4):
                    one, other = heights[k], heights[(k + 1) % 4]
                    if (one >= level) == (other >= level):
                        continue
                    (r0, c0), (r1, c1) = corners[k], corners[(k + 1) % 4]
                    share = (Fraction(level) - Fraction(one)) / (Fraction(other) - Fraction(one))
                    share = float(share)
                    at = (r0 + share * (r1 - r0), c0 + share * (c1 - c0))
                    (exits if one >= level else entries).append((k, at))
                mean = (heights[0] + heights[1]) / 4 + (heights[2] + heights[3]) / 4
                for k, begin in entries:
                    # Around the low corner k if the middle is high, else around the high one after.
                    wanted = exits if len(exits) == 1 else [
                        one for one in exits if one[0] == (k - 1 if mean >= level else k + 1) % 4
                    ]  # fmt: skip
                    found.append((level, begin, wanted[0][1]))
    return found
