"""Corridors among many sources: which pairs there are, and how far distances are needed.

1. *Nearest*: one search from all sources gives their areas; sources are neighbours if these touch.
2. *Costs*: the costs of all pairs, eight sources at a time, as in a cost matrix.
3. *Distances*: from each source, as far as a corridor of one of its pairs can reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...arguments import refused
from ...errors import ArgumentError, InputError
from ...facts import Settings
from ...io.places import Places, as_places
from ...io.text_tables import read_rows
from ...prerequisites import Show, refuse_existing
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ..cost.models import is_directed
from ..cost_distance import FindShortestPaths
from ..cost_distance.inputs import refuse_start_costs
from ..cost_distance.pipeline import run as find_paths
from ..cost_matrix import ComputeCostMatrix
from ..cost_matrix.lanes import LANES
from ..cost_matrix.operation import MatrixProblem
from ..cost_matrix.pipeline import MatrixFiles, problem_of
from ..cost_matrix.places import Grouped
from ..cost_matrix.run import run_matrix, settings_of
from ..proof import RingAcrossSeam
from . import LeastCostCorridor

_TITLES = ("from", "to"), ("source", "target")
"""Fields of a table of pairs: of a network, and of a cost matrix."""

_FARTHER = 1 + 1e-9
"""Factor of limits, because sums are rounded."""

Pair = tuple[int, int]


class Cores(NamedTuple):
    """Sources with corridors among them.

    Attributes
    ----------
    layers
        The layers of distances from each, by ids.
    labels
        Their ids, or their names.
    pairs
        Numbers of sources of each pair, the lower one first.
    """

    layers: tuple[str, ...]
    labels: tuple[Any, ...]
    pairs: tuple[Pair, ...]


def nearest_of(asked: LeastCostCorridor) -> str:
    """The layer of distances from the nearest source."""
    return f"{asked.into}_nearest"


def cores_of(asked: LeastCostCorridor, store: TileStore) -> Cores:
    """The sources and their pairs; the areas of sources must be there if they decide."""
    places = as_places(store.grid, asked.sources, "sources")  # type: ignore[arg-type]
    own = Grouped(places)
    layers = tuple(f"{asked.into}_{one}" for one in own.ids.tolist())
    return Cores(
        layers, tuple(own.labels.tolist()), tuple(sorted(_pairs(asked, store, places, own)))
    )


def _pairs(asked: LeastCostCorridor, store: TileStore, places: Places, own: Grouped) -> set[Pair]:
    given = asked.pairs
    if given == "all":
        return set(combinations(range(len(own)), 2))
    if given == "delaunay":
        number = {one: k for k, one in enumerate(own.ids.tolist())}
        layer = store.layer(f"{nearest_of(asked)}_allocation")
        wraps = bool(layer.info["settings"].get("wrap"))
        neighbours = touching(layer, wraps=wraps) | _sharing(places)
        return {(number[a], number[b]) for a, b in neighbours}
    try:
        pairs = _read_pairs(given) if isinstance(given, str) else given
        return _numbered(pairs, own)  # type: ignore[arg-type]
    except InputError as error:
        if isinstance(given, str):
            raise InputError(f"{given}: {error}") from None
        raise refused("pairs", ": {error}", error=error) from None


def _numbered(pairs: Iterable[tuple[int | str, int | str]], own: Grouped) -> set[Pair]:
    """Pairs of ids or names as numbers of sources."""
    number = {str(label): k for k, label in enumerate(own.labels.tolist())}
    found = set()
    for pair in pairs:
        for end in map(str, pair):
            if end not in number:
                raise InputError(f"no source is called {end!r}; give ids or names of the sources")
        one, other = sorted(number[str(end)] for end in pair)
        if one == other:
            raise InputError(f"{pair[0]} is paired with itself; leave this pair out")
        found.add((one, other))
    if not found:
        raise InputError("has no pairs; give at least one")
    return found


def _read_pairs(path: str) -> Iterator[tuple[str, str]]:
    """The pairs of a table with a line of names."""
    rows = read_rows(path, "pairs")
    names = [name.lower() for name in next(rows, (1, []))[1]]
    ends = next((both for both in _TITLES if set(both) <= set(names)), None)
    if ends is None:
        raise InputError("its first line does not name the fields from and to; add them")
    columns = [names.index(one) for one in ends]
    for line, row in rows:
        if len(row) <= max(columns):
            raise InputError(f"line {line} lacks the fields {' and '.join(ends)}; add them")
        yield row[columns[0]], row[columns[1]]


def touching(allocation: Layer, *, wraps: bool) -> set[Pair]:
    """The pairs of ids, the lower one first, of neighbouring cells."""
    blocks, found = allocation.blocks, set[Pair]()
    read = RingAcrossSeam(allocation.read_ring, replace(blocks, wraps=wraps))
    for at in blocks.ids():
        ring = read(blocks.window(*at), halo=1)
        here = ring[1:-1, 1:-1]
        rows, cols = here.shape
        for dy, dx in ((1, 2), (2, 0), (2, 1), (2, 2)):
            near = ring[dy : dy + rows, dx : dx + cols]
            both = (here != near) & (here > 0) & (near > 0)
            ends = np.sort(np.stack((here[both], near[both])), axis=0).astype(np.int64)
            for pair in np.unique(ends[0] << 32 | ends[1]).tolist():
                found.add((pair >> 32, pair & 0xFFFFFFFF))
    return found


def _sharing(places: Places) -> set[Pair]:
    """The pairs of ids of places that share a cell, each with the first one there."""
    first: dict[tuple[int, int], int] = {}
    ends = zip(places.rows.tolist(), places.cols.tolist(), places.ids.tolist(), strict=True)
    return {
        (min(one, other), max(one, other))
        for row, col, one in ends
        if (other := first.setdefault((row, col), one)) != one
    }


@dataclass(frozen=True)
class PairCosts(MatrixProblem):
    """The costs of some pairs of sources, from the first one of each.

    Attributes
    ----------
    pairs
        Numbers of sources.
    """

    pairs: tuple[Pair, ...] = ()

    command = "corridor"

    @cached_property
    def _partners(self) -> Mapping[int, list[int]]:
        found: dict[int, list[int]] = {}
        for one, other in self.pairs:
            found.setdefault(one, []).append(other)
        return found

    def wanted(self, batch: np.ndarray, lanes: int = LANES) -> np.ndarray:
        found = np.zeros((len(self.ends), lanes), bool)
        for lane, one in enumerate(batch.tolist()):
            found[self._partners.get(one, []), lane] = True
        return found


def provide(
    asked: LeastCostCorridor,
    store: TileStore,
    how: Settings,
    show: Show,
    settings: Settings | None,
) -> dict[str, float]:
    """Compute the distances from all sources; see `ends.provide`."""
    own = {name: (settings or {}).get(name, False) for name in ("resume", "overwrite", "verify")}
    steps = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name in _STEPS}
    assert asked.sources is not None
    matrix = ComputeCostMatrix(asked.sources, **steps)
    starts = problem_of(matrix, store)
    refuse_start_costs(starts.sources, "sources")
    if len(starts.starts) < 2:
        raise ArgumentError("{pairs} needs at least two {sources}; give more")
    if is_directed(starts.model.kernel):
        raise ArgumentError(
            "{cost} {model} differs uphill and downhill, but a pair has one corridor; use a cost "
            "that is the same in both directions, or {sources} and {targets}",
            model=repr(starts.model.name),
        )
    adjacent, seconds = asked.pairs == "delaunay", dict[str, float]()
    names = [f"{asked.into}_{one}" for one in starts.starts.ids.tolist()]
    refuse_existing(store, [*names, *([nearest_of(asked)] if adjacent else [])], own)
    steps["metric"] = asked.metric

    def search(places: Places, name: str, **more: Any) -> None:
        # A resumed run needs them, too: it finds them finished.
        there = own["resume"] and not own["overwrite"] and name in store
        with nullcontext(silent) if there else show("shortest paths") as progress:
            paths = FindShortestPaths(places, into=name, **steps, **more)
            found = find_paths(paths, store, progress=progress, **how | own)
        seconds[name] = found.report.seconds["total"]

    if adjacent:
        search(starts.sources.one_per_cell(), nearest_of(asked), allocation=True)
    cores = cores_of(asked, TileStore.open(store.path))
    limits: dict[int, float] = {}
    if asked.within is not None and asked.metric == "steps":
        problem = problem_of(matrix, store, PairCosts, pairs=cores.pairs)
        with show("costs of pairs") as progress:
            limits, seconds["costs"] = _limits(problem, asked, progress, how)
    for k, (name, one) in enumerate(zip(names, starts.starts.ids.tolist(), strict=True)):
        search(starts.starts.place(k), name, max_cost=limits.get(one))
    return seconds


_STEPS = {
    *("cost", "friction", "barriers", "parameters", "max_slope", "vertical_factor"),
    *("corner_cutting", "connectivity", "wrap", "layer"),
}
"""Options of the costs of steps that a cost matrix has, too."""


def _limits(
    problem: MatrixProblem, asked: LeastCostCorridor, progress: Progress, how: Settings
) -> tuple[dict[int, float], float]:
    """The largest distance that a corridor needs, by the id of its source; and the seconds."""
    own = {name: how[name] for name in _MATRIX if name in how}
    writer = MatrixFiles(None, None)
    report = run_matrix(problem, writer, settings_of(problem, writer, progress=progress, **own))
    assert writer.columns is not None
    found = dict.fromkeys(problem.starts.ids.tolist(), 0.0)
    number = {str(label): one for label, one in zip(problem.starts.labels, found, strict=True)}
    ends = (writer.columns[name].tolist() for name in ("source", "target", "cost"))
    for one, other, cost in zip(*ends, strict=True):
        if cost is not None and math.isfinite(cost):
            more = asked.within if asked.share is None else asked.share * cost
            for end in (number[str(one)], number[str(other)]):
                found[end] = max(found[end], (cost + more) * _FARTHER)
    return found, report.seconds["total"]


_MATRIX = "memory_limit", "threads", "backend", "device", "gpu_memory_limit"
"""How a matrix is solved here: workers of a cluster keep batches next to a table."""
