"""Proof that heights above streams and distances to them are right: `verify_above`.

Both are computed again by a different algorithm and compared bit for bit. Flow paths end at
streams. In a first pass, each block finds, for every path that enters it, the elevation of the
stream that the path reaches and the distance to it. Paths are then followed from block to block,
and a second pass computes each block from downstream to upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...engine.plan import StreamPlan
from ...engine.proof import (
    Limits,
    Read,
    RunRecord,
    border_ids,
    check_blocks,
    known_of,
    plan_proof,
    wrong,
)
from ...facts import Findings
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ...store.readable import Readable, Typed
from ..common.codes import open_directions
from ..common.height_above import KINDS, NEVER, AboveRule
from ..common.proof_kernels import carry_up, steps_down
from ..common.proof_paths import PATHS_BYTES, BlockPaths, FlowPaths, paths_bytes
from .proof_divided import verify_stored_averages

if TYPE_CHECKING:
    from ..common.proof_paths import BlockFlow


def verify_above(codes: Readable, rule: AboveRule, results: Findings, limits: Limits) -> Findings:
    """Check every cell.

    Parameters
    ----------
    codes
        The layer of directions, uint8.
    rule
        The elevations, the streams and the arithmetic.
    results
        The layers to check, by kind: "height", "distance".

    Returns
    -------
    dict
        "cells", the number of cells whose path reaches a stream.

    Raises
    ------
    VerificationError
        If a cell is wrong; the first one found is reported.
    PlanError
        If the memory limit is too small.
    StoreError
        If a layer is damaged.
    """
    checker = _AboveChecker(codes, rule, results, limits)
    checker.run(limits)
    return {"cells": checker.cells}


def plan_above(
    codes: Readable, rule: AboveRule, results: Iterable[Typed], limits: Limits
) -> list[StreamPlan]:
    """Plan both passes; the layers to check need not exist yet."""
    blocks = _blocks(codes, rule)
    worker, held = blocks.largest(1) * (PATHS_BYTES + 16), 3 * paths_bytes(blocks)
    worker += 4 * blocks.largest(1) * rule.dtype.itemsize
    return [
        plan_proof(blocks, reads, limits, worker=worker, held=held)
        for reads in _reads(codes, rule, results)
    ]


def verify_stored_above(store: TileStore, layer: Layer, limits: Limits) -> Findings:
    """Check a layer with `verify_above` and the settings recorded with it."""
    recorded = RunRecord(store, layer)
    if "method" in recorded.settings:
        return verify_stored_averages(recorded, _recorded_streams(recorded), limits)
    heights = recorded.input(recorded.get("hand_of", str))
    codes = recorded.input(recorded.get("directions", str))
    open_directions(store, codes.name)
    rule = AboveRule(heights, *_recorded_streams(recorded))
    types = dict(zip(KINDS, (rule.dtype, np.dtype(np.float64)), strict=True))
    kind = str(layer.info.get("holds"))
    if types.get(kind) != layer.dtype:
        raise recorded.damaged("holds", kind)
    if layer.blocks != _blocks(codes, rule):
        raise recorded.damaged("block_size", layer.block_size)
    return verify_above(codes, rule, {kind: layer}, limits)


def _recorded_streams(recorded: RunRecord) -> tuple[Layer | None, float | None]:
    """Return the streams and the threshold of an `AboveRule`."""
    if recorded.settings.get("to_outlets") is True:
        return None, None
    threshold = recorded.settings.get("threshold")
    if threshold is not None:
        threshold = recorded.get("threshold", float)
    return recorded.input(recorded.get("streams", str)), threshold


def _blocks(codes: Readable, rule: AboveRule) -> BlockGrid:
    layers = codes, *rule.inputs
    largest: BlockGrid = max((layer.blocks for layer in layers), key=lambda one: one.block)
    return largest


def _reads(codes: Readable, rule: AboveRule, results: Iterable[Typed]) -> list[list[Read]]:
    inputs = [Read(codes, 1), Read(rule.heights)]
    streams = [] if rule.streams is None else [Read(rule.streams, 1)]
    return [inputs + streams, [*inputs, *map(Read, results), *streams]]


class _BlockAbove(NamedTuple):
    """Computes heights and distances in blocks; can be sent to workers."""

    paths: BlockPaths
    rule: AboveRule
    results: Findings

    def look(
        self, at: Block, data: list[np.ndarray]
    ) -> tuple[BlockFlow, np.ndarray, np.ndarray, np.ndarray]:
        """Return the flow paths of a block, and the values of the cells where they enter it."""
        target, order, met, lengths = self.block(at, data)
        _, flow = self.paths.look(at, data[0], target, order)
        carry_up(target, order, met, lengths)
        r0, _, c0, c1 = self.paths.blocks.window(*at)
        row, col = np.divmod(flow.entered, self.paths.blocks.cols)
        into = (row - r0) * (c1 - c0) + col - c0
        return flow, flow.entered, met[into], lengths[into]

    def block(self, at: Block, data: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return where cells drain to, their order, the elevations of streams, and step lengths."""
        codes, heights = data[:2]
        stops = None if self.rule.streams is None else self.rule.is_stream(data[-1])
        target, order = self.paths.within(at, codes, stops)
        ended = target == -1
        if stops is not None:
            ended &= stops[1:-1, 1:-1].ravel()
        met = np.where(ended, self.rule.height(heights).ravel(), np.nan).astype(self.rule.dtype)
        lengths = np.empty(len(target), np.int64)
        top = self.paths.blocks.window(*at)[0]
        steps_down(codes, top, target, self.rule.lengths[0], lengths)
        lengths[~ended & ((target == -1) | (target == -3))] = NEVER
        return target, order, met, lengths

    def check(
        self, at: Block, data: list[np.ndarray], streams_around: tuple[np.ndarray, ...]
    ) -> int:
        """Check a block; return the number of cells whose path reaches a stream.

        `streams_around` are the cells around the block that it drains to, with their values.
        """
        around, met_there, lengths_there = streams_around
        r0, _, c0, _ = self.paths.blocks.window(*at)
        target, order, met, lengths = self.block(at, data)
        leaving, flow = self.paths.look(at, data[0], target, order)
        beyond = np.searchsorted(around, flow.target)
        met[leaving] = met_there[beyond]
        lengths[leaving] += lengths_there[beyond]
        carry_up(target, order, met, lengths)
        heights = data[1]
        for (kind, layer), stored in zip(self.results.items(), data[2:], strict=False):
            right = np.empty_like(stored)
            if kind == "height":
                self.rule.write_heights(self.rule.height(heights), met.reshape(right.shape), right)
            else:
                self.rule.write_distances(lengths.reshape(right.shape), right)
            bits = f"u{right.itemsize}"
            faults = np.argwhere(right.view(bits) != stored.view(bits))
            for row, col in faults[:1].tolist():
                problem = f"{kind} {stored[row, col]!s} should be {right[row, col]!s}"
                wrong(layer, problem, kind, r0 + row, c0 + col)
        return int(np.count_nonzero(lengths >= 0))


class _AboveChecker:
    def __init__(self, codes: Readable, rule: AboveRule, results: Findings, limits: Limits) -> None:
        self.codes, self.rule, self.results = codes, rule, results
        self.blocks = _blocks(codes, rule)
        self.plans = plan_above(codes, rule, results.values(), limits)
        self.paths = FlowPaths(codes, self.blocks, self.plans[0])
        self.cells = 0
        self._parts: list[tuple[np.ndarray, ...]] = []

    def run(self, limits: Limits) -> None:
        first, second = _reads(self.codes, self.rule, self.results.values())
        of = _BlockAbove(self.paths.of, self.rule, dict(self.results))
        check_blocks(self.plans[0], self.blocks, first, of.look, self._add, limits)
        self._join()
        check_blocks(
            self.plans[1], self.blocks, second, of.check, self._count, limits, given=self._given
        )

    def _add(
        self, at: Block, summary: tuple[BlockFlow, np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        flow, *entered = summary
        self._parts.append(tuple(entered))
        self.paths.add(flow)

    def _join(self) -> None:
        self.paths.join()
        entered, met, lengths = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts.clear()
        order = np.argsort(entered)
        at = order[np.searchsorted(entered, self.paths.target, sorter=order)]
        met, lengths = met[at], lengths[at]
        carry_up(self.paths.following, self.paths.order, met, lengths)
        order = np.argsort(self.paths.target)
        self._into, self._met, self._lengths = self.paths.target[order], met[order], lengths[order]

    def _given(self, at: Block) -> tuple[np.ndarray, ...]:
        around, where = known_of(border_ids(self.blocks, at, inside=False), self._into)
        return around, self._met[where], self._lengths[where]

    def _count(self, at: Block, cells: int) -> None:
        self.cells += cells
