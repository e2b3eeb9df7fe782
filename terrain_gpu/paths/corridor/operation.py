"""Compute least-cost corridors from layers of distances.

1. *Optimum*: the least sum of two distances over all cells, for every pair of layers.
2. *Corridor*: how much more than the optimum the best path through each cell costs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import (
    Operation,
    OutputLayer,
    Phase,
    SolvedBlock,
    State,
    refuse_without_table,
)
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Result, Run
from ...errors import InputError
from ...facts import Findings, Settings
from ...grid import Block, units
from ...store import Layer, TileStore
from ...store.manage import inputs_of, made_by
from . import LeastCostCorridor
from .proof import Stated, plan_corridor_proof, verify_corridor

log = logging.getLogger(__name__)

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
    """The operation.

    Attributes
    ----------
    within, share
        The largest excess of a path's cost over the optimum of its pair: a cost, or a fraction of
        the optimum; one of them is set.
    between
        Whether the distances were computed for it, from sources and targets.
    labels
        What the sources of the distances are called, if they were computed for it from many.
    chosen
        Numbers of the layers of each pair; None for all pairs.
    table
        A file of the pairs.
    """

    store: str
    distances: tuple[str, ...]
    into: str = "corridor"
    within: float | None = None
    share: float | None = None
    between: bool = False
    labels: tuple[Any, ...] | None = None
    chosen: tuple[tuple[int, int], ...] | None = None
    table: str | None = None

    command = "corridor"
    mark = "corridor_of"
    phases = (OPTIMUM, CORRIDOR)

    def result(self, found: Result) -> Result:
        """Warn of pairs without a corridor; name the ends of one between places."""
        pairs = found.report.result["pairs"]
        for pair, (one, other) in zip(pairs, self.pairs, strict=True):
            if self.labels:
                pair |= {"from": self.labels[one], "to": self.labels[other]}
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
            if self.between:
                pair |= {"from": "sources", "to": "targets"}
        return found

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
        every = combinations(range(len(self.distances)), 2)
        return list(every if self.chosen is None else self.chosen)

    def settings(self) -> Settings:
        own = {"corridor_of": list(self.distances), "within": self.within, "share": self.share}
        # Omitted for all pairs, as in older stores.
        return own if self.chosen is None else own | {"chosen": [*map(list, self.chosen)]}

    def refuse_finished(self) -> None:
        refuse_without_table(self)

    def plan(self, machine: Machine) -> StreamPlan:
        layers, blocks = self.layers, self.blocks
        kinds = [layer.dtype for layer in layers]
        read = sum(kind.itemsize for kind in kinds)
        size, tiled = blocks.largest(), blocks.largest(tiled=True)
        return fit_blocks(
            blocks,
            ", ".join(kind.name for kind in kinds),
            "for the corridor of",
            buffer=size * (read + 8),
            worker=min(size, 2 * _STRIP) * (9 * len(kinds) + 64),
            scratch=tiled * (read + 8),
            compiled=False,
            held=200 * len(self.pairs),
            passes=2,
            bytes_read=2 * sum(layer.info.get("stored_bytes") or 0 for layer in layers),
            bytes_written=layer_bytes(blocks.rows, blocks.cols, 8, blocks.block),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Optima(self)

    def read(self, block: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        """As usual, but distances that do not reach a block are arrays without rows."""
        r0, r1, c0, c1 = self.window(block)
        views = [flat[: (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0) for flat in buffer]
        for k, layer in enumerate(self.layers):
            if layer.blocks == self.blocks and layer.is_empty_block(*block):
                views[k] = views[k][:0]
            else:
                layer.read_ring((r0, r1, c0, c1), views[k], halo=0)
        return views

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: object,
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
        r0, r1, c0, c1 = self.blocks.window(*at)
        rows, cols = r1 - r0, c1 - c0
        step = max(_STRIP // cols, 1)
        for row in range(0, rows, step):
            part = slice(row, row + step)
            costs = {}
            for number, (data, layer) in enumerate(zip(cells, self.layers, strict=True)):
                none = is_nodata(own := data[part], layer.nodata)
                if not none.all():
                    costs[number] = np.where(none, np.inf, own.astype(np.float64))
            if phase == OPTIMUM:
                self._refuse_negative(at, row, costs)
            excess = np.full((min(step, rows - row), cols), np.inf)
            for k, (one, other) in enumerate(self.pairs):
                if one not in costs or other not in costs:
                    continue
                total = costs[one] + costs[other]
                if phase == OPTIMUM:
                    least[k] = min(least[k], total.min())
                elif math.isfinite(given[k]):
                    total -= given[k]
                    total[total > self.most(given[k])] = np.inf
                    np.minimum(excess, total, out=excess)
            if phase == CORRIDOR:
                out[0][part] = np.where(np.isfinite(excess), excess, np.nan)

    def _refuse_negative(self, at: Block, first: int, costs: dict[int, np.ndarray]) -> None:
        """Reject values in some rows of a block that are not distances."""
        for number, own in costs.items():
            if own.min() < 0:
                layer = self.layers[number]
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

    def verify(self, run: Run, found: Findings) -> Findings:
        optima = (pair["optimum"] for pair in found["pairs"])
        stated = Stated(
            tuple(self.pairs),
            tuple(math.nan if one is None else one for one in optima),
            self.within,
            self.share,
        )
        distances = dict(zip(self.distances, self.layers, strict=True))
        proven = verify_corridor(stated, distances, run.layer(self.into), run.proof_limits)
        return {"verified_cells": proven["cells"]}


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

    def found(self) -> Findings:
        if self._operation.table is not None:
            self._write_table(self._operation.table)
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

    def _write_table(self, table: str) -> None:
        from ...io.tables import write_table  # brings GDAL

        operation, there = self._operation, np.isfinite(self._least)
        called = np.array(operation.labels or operation.distances)
        one, other = np.array(operation.pairs, np.int64).reshape(-1, 2)[there].T
        columns = {"from": called[one], "to": called[other], "cost": self._least[there]}
        write_table(Path(table), iter([columns]), operation.grid)


def corridor_of(store: TileStore | None, asked: LeastCostCorridor) -> Corridor:
    """The operation of a tool."""
    names, more = asked.layers, Settings()
    if store is not None and asked.pairs is not None:
        from .cores import cores_of  # which needs GDAL

        names, labels, chosen = cores_of(asked, store)
        more = {"labels": labels, "chosen": chosen}
    elif store is not None:
        _refuse_others(store, names)
        _tell_what_is_no_sum(store, names)
    within = None if isinstance(asked.within, str) else asked.within
    more |= {"between": not (asked.distances or more), "table": asked.table}
    path = "" if store is None else str(store.path)
    return Corridor(path, names, asked.into, within, asked.share, **more)


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
    known: dict[str, Findings] = {}
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
