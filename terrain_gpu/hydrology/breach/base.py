"""The pits of a raster, for breaching: `PitSearch`, what layers and lines of breaching share.

1. *Voids*, if there are any that matter: which of them reach the edge of the raster.
2. *Pits*: the pits and outlets of each block go to a file; flats at rims are joined in memory.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...cells import is_nodata, to_json
from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.tools import ToolOperation
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...grid.lengths import area_units
from ..common.outlets import BORDER, EDGE, Outlets, has_voids
from ..common.rims import BlockRim
from ..common.voids import Voids, label_voids, outside, voids_bytes
from . import Breach
from .kernels import breach_all, new_search
from .kinds import NO_VALUE, PIT, PLAIN
from .pits import BlockFiles, LowRim, LowRims, find_pits, low_bytes
from .rule import BreachRule, reach_of


@dataclass(frozen=True)
class PitSearch(ToolOperation):
    """The first passes, of `BreachedHeights` and `BreachLines`."""

    asked: Breach

    messages = (BlockRim, LowRim)

    @property
    def outlets(self) -> str:
        return BORDER if self.asked.inner_voids else EDGE

    @property
    def reach(self) -> int:
        return reach_of(self.grid.shape, self.asked.max_distance)

    @property
    def phases(self) -> tuple[Phase, ...]:
        pits = Phase("pits", joined="flats")
        return (Phase("voids", joined="outside"), pits) if self.has_voids else (pits,)

    @property
    def has_voids(self) -> bool:
        return has_voids(self.outlets, self.layers[0])

    def settings(self) -> Settings:
        return {
            "breach_of": self.asked.layer,
            "outlets": self.outlets,
            "max_distance": self.asked.max_distance,
            "max_depth": self.max_depth,
        }

    @property
    def max_depth(self) -> float | None:
        depth = self.asked.max_depth
        return None if depth is None else float(depth)

    @cached_property
    def rule(self) -> BreachRule:
        return BreachRule(self.layers[0], self.asked.max_distance, self.max_depth)

    def _plan(self, machine: Machine, writing: int | None = None) -> StreamPlan:
        """Plan the passes.

        Parameters
        ----------
        writing
            Of lines: bytes that writing needs. None for the layer.
        """
        (rows, cols), blocks, dtype = self.grid.shape, self.blocks, self.layers[0].dtype
        cells, tiled = blocks.largest(1), blocks.largest(tiled=True)
        voids, ring = self.has_voids, blocks.largest(self.halo)
        held = low_bytes(blocks, dtype.itemsize) + voids * voids_bytes(blocks) // 24
        if writing is not None:
            held += 16 * rows * blocks.shape[1]  # lines and steps of each row of each block
        return fit_blocks(
            blocks,
            dtype.name,
            "to breach",
            buffer=(ring + blocks.largest()) * dtype.itemsize,
            # Masks of the rings; the search; low cells, labels, lists of pits and outlets as
            # numbers and bytes.
            worker=4 * ring + 29 * (2 * self.reach + 1) ** 2 + cells * (16 + dtype.itemsize),
            scratch=(ring + 2 * tiled) * dtype.itemsize,
            common=PER_ROW * rows,
            held=held,
            joined=held + max(voids * voids_bytes(blocks), writing or 0),
            passes=2 + voids,
            bytes_read=(2 + voids) * layer_bytes(rows, cols, dtype.itemsize, blocks.block),
            bytes_written=layer_bytes(rows, cols, dtype.itemsize, blocks.block),
            machine=machine,
        )

    @cached_property
    def areas(self) -> tuple[np.ndarray, float]:
        return area_units(self.grid)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.fingerprint()).encode()).hexdigest()[:16]

    def files(self, folder: Path) -> BlockFiles:
        return BlockFiles(folder / f"breach-{self.digest}")

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: Any,
    ) -> SolvedBlock:
        heights = cells[0]
        near = self.halo - 1
        rows, cols = heights.shape
        heights = np.ascontiguousarray(heights[near : rows - near, near : cols - near])
        valid = self._valid(at, heights, 1)
        inner = np.ascontiguousarray(valid[1:-1, 1:-1])
        if phase.name == "voids":
            return SolvedBlock(known=None if inner.all() else BlockRim.of(label_voids(~inner)[0]))
        window = self.blocks.window(*at)
        outer = None if context is None else outside(~inner, context)
        outlets = Outlets(self.outlets).within(window, valid, outer).cells
        cols = self.grid.cols
        pits, rim = find_pits(heights, valid, outlets, window[0] * cols + window[2], cols)
        return SolvedBlock(known=(pits, outlets, rim))

    def _valid(self, at: Block, heights: np.ndarray, ring: int) -> np.ndarray:
        """Return the mask of valid cells of a block and its rings; False outside the raster."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        valid = ~is_nodata(heights, self.layers[0].nodata)
        valid[: max(ring - r0, 0)] = valid[:, : max(ring - c0, 0)] = False
        valid[len(valid) - max(r1 + ring - self.grid.rows, 0) :] = False
        valid[:, valid.shape[1] - max(c1 + ring - self.grid.cols, 0) :] = False
        return valid

    def kinds(self, at: Block, heights: np.ndarray, context: Any) -> np.ndarray:
        """Kinds of the cells of a block and its rings; pits not in the outer rings."""
        files, over_blocks = context
        r0, _, c0, _ = self.blocks.window(*at)
        corner = r0 - self.halo, c0 - self.halo
        valid = self._valid(at, heights, self.halo)
        kinds = np.where(valid, np.uint8(PLAIN), np.uint8(NO_VALUE))
        files.mark(kinds, self.blocks, corner, self.reach)
        row, col = np.divmod(over_blocks, self.grid.cols)
        kinds[row - corner[0], col - corner[1]] = PIT
        return kinds


class BreachState(State):
    """Voids, then flats at the rims of all blocks; then what was breached."""

    again = True

    def __init__(self, operation: PitSearch, files: BlockFiles) -> None:
        self._operation, self._files = operation, files
        blocks = operation.blocks
        self._voids = Voids(blocks) if operation.has_voids else None
        self._low = LowRims(blocks, operation.layers[0].dtype)
        self._totals = dict.fromkeys(("pits", "breached", "lowered", "volume"), 0)
        self._cut = 0.0

    def given(self, phase: Phase, at: Block) -> Any:
        if not phase.joined:
            reach = self._operation.halo - self._operation.reach
            r0, r1, c0, c1 = self._operation.blocks.window(*at)
            around = max(r0 - reach, 0), r1 + reach, c0 - reach, c1 + reach
            return self._files, self._low.within(around)
        has_voids = phase.name == "pits" and self._voids is not None
        return self._voids.of(at) if has_voids and self._voids is not None else None

    def finished(self, phase: Phase, at: Block, done: bool) -> bool:
        return done and (phase.name != "pits" or self._files.has_marks(at))

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase.name == "voids" and self._voids is not None:
            self._voids.add(at, message)
        elif phase.name == "pits":
            self._low.add(at, message)
        else:
            self._cut = max(self._cut, message.pop("cut"))
            for name, count in message.items():
                self._totals[name] += count

    def join(self, phase: Phase) -> None:
        if phase.name == "voids" and self._voids is not None:
            self._voids.join()
        else:
            self._low.join()

    def found(self) -> Findings:
        units = self._operation.areas[1] / self._operation.rule.per_unit
        volume = to_json(self._totals["volume"] * units)
        return {**self._totals, "deepest_cut": to_json(self._cut), "volume": volume}


def compile_kernels(dtype: np.dtype, rule: BreachRule) -> None:
    """Load or compile the kernels, in the main thread, which Ctrl-C stops."""
    if not known_types(breach_all):
        tell_compiling(breach_all, "breach")
    heights, valid = np.zeros((3, 3), dtype), np.ones((3, 3), bool)
    find_pits(heights, valid, np.empty(0, np.int32), 0, 1)
    blocks = BlockGrid(1, 1, 64)
    rims = LowRims(blocks, dtype)
    rims.join()
    kinds = np.full((5, 5), PLAIN, np.uint8)
    breach_all(
        np.zeros((5, 5), dtype),
        kinds,
        1,
        rule.per_unit,
        rule.deepest,
        new_search(1),
        heights[:1, :1],
    )
