"""Compute least-cost corridors from layers of distances: `corridor`.

1. *Optimum*: the least sum of two distances over all cells, for every pair of layers.
2. *Corridor*: how much more than the optimum the best path through each cell costs.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, real, wrong
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...errors import InputError
from ...grid import Block, BlockGrid, units
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ...store.manage import inputs_of, made_by
from .proof import Stated, plan_corridor_proof, verify_corridor

log = logging.getLogger(__name__)

LAYER = "corridor"
_STRIP = 1 << 16
"""Number of cells computed at a time, so that temporary arrays stay in the cache."""

STEPS = (
    "cost", "parameters", "friction", "barriers", "layer", "connectivity", "metric",
    "corner_cutting", "max_slope", "wrap",
)  # fmt: skip
"""Settings of distances that determine the costs of steps."""

_MAKERS = {None, "calc", "compute-sssp", "convert-dataset"}
"""Commands whose layers may be distances."""

OPTIMUM, CORRIDOR = Phase("optimum"), Phase("corridor", writes=True)


@dataclass(frozen=True)
class Corridor(Operation):
    """The operation; fields are parameters of `corridor`, with `within` as one of two fields.

    Attributes
    ----------
    within, share
        The largest excess of a path's cost over the optimum of its pair: a cost, or a fraction of
        the optimum; one of them is set.
    """

    store: str
    distances: tuple[str, ...]
    into: str = LAYER
    within: float | None = None
    share: float | None = None

    command = "corridor"
    mark = "corridor_of"
    phases = (OPTIMUM, CORRIDOR)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.distances

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        own = {units.unit_of(layer) for layer in self.layers}
        described = units.in_unit(own.pop()) if len(own) == 1 else {}
        like = np.dtype("<f8"), math.nan, "a corridor"
        return (OutputLayer(self.into, *like, described=described),)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of layers, by number."""
        return list(combinations(range(len(self.distances)), 2))

    def settings(self) -> dict[str, Any]:
        return {"corridor_of": list(self.distances), "within": self.within, "share": self.share}

    def plan(self, machine: Machine) -> StreamPlan:
        layers = self.layers
        return plan_corridor(
            self.blocks,
            [layer.dtype for layer in layers],
            stored=sum(layer.info.get("stored_bytes") or 0 for layer in layers),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Any) -> State:
        return _Optima(self)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        least = np.full(len(self.pairs), np.inf)
        with np.errstate(over="ignore"):  # an infinite sum means no path
            self._solve(phase, at, cells, out, given, least)
        return SolvedBlock(tuple(out)) if phase == CORRIDOR else SolvedBlock(known=least)

    def _solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        least: np.ndarray,
    ) -> None:
        """Update the least sums, or compute the corridor."""
        rows, cols = cells[0].shape
        step = max(_STRIP // cols, 1)
        for row in range(0, rows, step):
            part = slice(row, row + step)
            costs = [
                np.where(is_nodata(data[part], layer.nodata), np.inf, data[part].astype(np.float64))
                for data, layer in zip(cells, self.layers, strict=True)
            ]
            if phase == OPTIMUM:
                self._refuse_negative(at, row, costs)
            excess = np.full(costs[0].shape, np.inf)
            for k, (one, other) in enumerate(self.pairs):
                total = costs[one] + costs[other]
                if phase == OPTIMUM:
                    least[k] = min(least[k], total.min())
                elif math.isfinite(given[k]):
                    total -= given[k]
                    total[total > self.most(given[k])] = np.inf
                    np.minimum(excess, total, out=excess)
            if phase == CORRIDOR:
                out[0][part] = np.where(np.isfinite(excess), excess, np.nan)

    def _refuse_negative(self, at: Block, first: int, costs: list[np.ndarray]) -> None:
        """Reject values in some rows of a block that are not distances."""
        for own, layer in zip(costs, self.layers, strict=True):
            if own.min() < 0:
                r0, _, c0, _ = self.blocks.window(*at)
                row, col = np.argwhere(own < 0)[0].tolist()
                raise InputError(
                    f"{layer.path}: has {own[row, col]:.10g} at row {r0 + first + row}, column "
                    f"{c0 + col}, which is not a distance; name layers of distances made by "
                    "compute-sssp"
                )

    def most(self, optimum: float) -> float:
        """The largest excess of a path's cost over an optimum."""
        if self.share is not None:
            return self.share * optimum
        return math.inf if self.within is None else self.within

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_corridor_proof(self.blocks, self.layers, self.outputs[0], limits)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        optima = (pair["optimum"] for pair in found["pairs"])
        stated = Stated(
            tuple(math.nan if one is None else one for one in optima), self.within, self.share
        )
        distances = dict(zip(self.distances, self.layers, strict=True))
        proven = verify_corridor(stated, distances, run.layer(self.into), run.proof_limits)
        return {"verified_cells": proven["cells"]}


def plan_corridor(
    blocks: BlockGrid,
    kinds: Sequence[np.dtype],
    *,
    stored: int | None = None,
    machine: Machine,
) -> StreamPlan:
    """Plan `corridor` for distances of these types.

    Parameters
    ----------
    stored
        Size of the stored distances in bytes; None for that of full layers.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    size, tiled, shape = blocks.largest(), blocks.largest(tiled=True), (blocks.rows, blocks.cols)
    read = sum(kind.itemsize for kind in kinds)
    if stored is None:
        stored = sum(layer_bytes(*shape, kind.itemsize, blocks.block) for kind in kinds)
    return fit_blocks(
        blocks,
        ", ".join(kind.name for kind in kinds),
        "for the corridor of",
        buffer=size * (read + 8),
        worker=min(size, 2 * _STRIP) * (9 * len(kinds) + 64),
        scratch=tiled * (read + 8),
        compiled=False,
        held=200 * math.comb(len(kinds), 2),
        passes=2,
        bytes_read=2 * stored,
        bytes_written=layer_bytes(*shape, 8, blocks.block),
        machine=machine,
    )


class _Optima(State):
    """The least cost of each pair."""

    def __init__(self, operation: Corridor) -> None:
        self._operation = operation
        self._least = np.full(len(operation.pairs), np.inf)

    def given(self, phase: Phase, at: Block) -> Any:
        return self._least if phase == CORRIDOR else None

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        if phase == OPTIMUM:
            np.minimum(self._least, known, out=self._least)

    def found(self) -> dict[str, Any]:
        names = self._operation.distances
        return {
            "pairs": [
                {
                    "from": names[one],
                    "to": names[other],
                    "optimum": float(least) if math.isfinite(least) else None,
                }
                for (one, other), least in zip(self._operation.pairs, self._least, strict=True)
            ]
        }


def _within(name: str, value: Any) -> float | str:
    """A finite number of at least 0, or a percentage such as "5%"."""
    percent = isinstance(value, str) and value.endswith("%")
    try:
        number = float(value[:-1]) if percent else float(real(name, value))
    except (ValueError, InputError):
        number = -1
    if not 0 <= number < math.inf:
        raise wrong(name, value, 'a number of at least 0, or a percentage such as "5%"')
    return f"{number!r}%" if percent else number


def _distances(name: str, value: Any) -> tuple[str, ...]:
    """The names of two or more different layers."""
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not all(isinstance(one, str) for one in names) or len(set(names)) < max(len(names), 2):
        raise wrong(name, value, "a list of two or more different layers")
    return names


@checked(distances=_distances, within=_within)
def corridor(
    store: str | os.PathLike[str] | TileStore,
    distances: Sequence[str],
    *,
    into: str = LAYER,
    within: float | str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute a least-cost corridor: how much more the best path through each cell costs.

    For two layers of distances, each from its own source, a cell gets the sum of both distances
    minus the least such sum, which is the cost of the best path between the sources. It is 0 along
    best paths. With more layers, every pair is one corridor, and a cell gets the least value over
    all pairs (normalised least-cost corridors, as in Linkage Mapper).

    Parameters
    ----------
    store
        A store, or its path.
    distances
        Two or more layers of `shortest_paths`, such as ``["from_a", "from_b"]``. Where costs
        differ uphill and downhill, compute the second one with `reverse`.
    into
        The layer to write: float64, in units of the distances. NaN is nodata: cells that are
        reached in fewer than two of the layers, or exceed `within`.
    within
        The largest excess of a path's cost over the optimum of its pair: a number in units of the
        distances, or a percentage of the optimum, such as "5%".
    memory_limit
        Limit on the peak resident set size of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers compute the blocks, each within `memory_limit`. When
        None, this process does the work.
    verify
        Check every cell, and the optima, in another pass.
    compress
        Compression of the layer, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the number of cells just done, and the total.

    Returns
    -------
    Result
        Its layer is named `into`. `found["pairs"]` has the optimum of each pair, None if there is
        no path between its sources.

    Raises
    ------
    InputError
        when there are fewer than two different layers, one does not hold distances or has a
        negative value (names the cell), or two have the same sources.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or already has such a result.
    VerificationError
        when the proof fails; no result is written then.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    B. H. McRae, D. M. Kavanagh (2011), Linkage Mapper Connectivity Analysis Software.

    Examples
    --------
    >>> shortest_paths("dem.zarr", [(9, 9)], cost="tobler", into="from_a")
    >>> shortest_paths("dem.zarr", [(90, 70)], cost="tobler", reverse=True, into="to_b")
    >>> corridor("dem.zarr", ["from_a", "to_b"], within="5%")
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    _refuse_others(opened, distances)
    _tell_what_is_no_sum(opened, distances)
    percent = isinstance(within, str)
    share = float(within[:-1]) / 100 if isinstance(within, str) else None
    most = None if percent or within is None else float(within)
    found = run(
        Corridor(str(opened.path), tuple(distances), into, most, share),
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    for pair in found.report.result["pairs"]:
        if pair["optimum"] is None:
            log.warning(
                "there is no path between the sources of %s and %s", pair["from"], pair["to"]
            )
        elif pair["optimum"] == 0:
            log.warning(
                "%s and %s are both 0 at a cell, which is a source of both or is reached at no "
                "cost; this is not a corridor from one to the other",
                *(pair["from"], pair["to"]),
            )
    return found


def _is_recorded(layer: Layer) -> bool:
    """Whether a layer records that it holds distances made by compute-sssp."""
    own = layer.info.get("settings")
    beside = "beside" in layer.info  # of distances: backlinks, ids, ties
    return isinstance(own, dict) and "cost" in own and not beside


def _refuse_others(store: TileStore, names: Sequence[str]) -> None:
    """Reject layers that are not distances: results of other commands, and inputs of costs."""
    layers = {name: store.layer(name) for name in names if name in store}
    for name, layer in layers.items():
        maker, why = made_by(layer), ""
        if maker not in _MAKERS:
            why = f"was made by {maker}"
        elif maker == "compute-sssp" and not _is_recorded(layer):
            why = "is not the layer of distances, which compute-sssp wrote with it"
        elif maker == "compute-sssp" and layer.info["settings"]["cost"] == "minimax":
            why = "has cost minimax, in which the costs of two parts of a path do not add up"
        for other, its in layers.items():
            if _is_recorded(its) and name in inputs_of(its):
                why = f"is an input of the costs in layer {other}"
        if why:
            raise InputError(f"{layer.path}: {why}; name layers of distances made by compute-sssp")


def _tell_what_is_no_sum(store: TileStore, distances: Sequence[str]) -> None:
    """Warn about layers whose sum is not the cost of a path."""
    known: dict[str, dict[str, Any]] = {}
    for name in distances:
        if name not in store:
            return  # the run rejects it
        if _is_recorded(layer := store.layer(name)):
            known[name] = layer.info["settings"]
        else:
            log.warning(
                "%s has no record of being distances made by compute-sssp; a corridor is the sum "
                "of two layers of distances",
                name,
            )
    for name, own in list(known.items())[1:]:
        first, like = next(iter(known.items()))
        if other := [key for key in STEPS if own.get(key) != like.get(key)]:
            told = ", ".join(f"{key} {like.get(key)} and {own.get(key)}" for key in other)
            log.warning(
                "%s and %s were computed with different steps (%s), so their sum is not the cost "
                "of a path",
                *(first, name, told),
            )
    for one, two in combinations(known, 2):
        if None is not known[one].get("sources") == known[two].get("sources"):
            raise InputError(
                f"{one} and {two} hold costs from the same sources, so there is no corridor "
                "between them; compute one of them for other sources"
            )
        reverse = bool(known[one].get("reverse"))
        directed = any(store.layer(name).info.get("directed") for name in (one, two))
        if directed and reverse == bool(known[two].get("reverse")):
            log.warning(
                "%s and %s both hold costs %s their sources, and cost %s differs uphill and "
                "downhill, so their sum is not the cost of a path; compute one of them %s reverse "
                "(--reverse)",
                *(one, two, "to" if reverse else "from", known[one]["cost"]),
                "without" if reverse else "with",
            )
