"""The pools of the whole raster and the water in them: `AllPools`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.operation import Phase, State
from ...engine.plan import Growing
from ...errors import StoreError
from ...facts import Findings
from ...grid import Block
from ...plurals import counted
from ..depressions.kernels import OCEAN
from ..depressions.state import within
from . import kernels
from .block import Catchments, Pools

if TYPE_CHECKING:
    from .operation import RestingWater

ROW_BYTES = 260
"""Bytes per catchment of a block, with its edges and pools."""
_SOME = 1 << 16
"""Number of levels lowered at a time."""


class AllPools(State):
    """Rows and pools as `kernels` defines them, then the water in them.

    Attributes
    ----------
    cells, heights
        Cell and elevation of the pit of each row.
    dead, up
        For each row, the elevation of the edge at which it dies and the row that it merges into.
    first
        int64, shape (rows + 1,): the first pool of each row.
    water, full, levels
        For each pool, its units of water, whether it is full, and the water level over its cells.
    waiting
        Pools whose level is not known yet.
    """

    again = True

    def __init__(self, operation: RestingWater, room: Growing) -> None:
        self._operation, self._room = operation, room
        self._path = operation.forest.edges.path
        self._known: dict[Block, Catchments] = {}
        self._held: dict[Block, np.ndarray] = {}
        self._span: dict[Block, tuple[float, float]] = {}
        self._rows = 0
        self.waiting = np.empty(0, np.int64)
        self._stands = np.zeros(3, np.int64)

    # -- the tree -------------------------------------------------------------------------------

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        if known is None:
            return
        if isinstance(known, Catchments):
            self._rows += len(known.rain)
            self._known[at] = known
            if not self._room.fits(*self._size):  # from now on only count, for the error message
                self._known.clear()
            return
        if phase.writes:
            self._stands += known
            return
        pools, sums = known
        if phase.joined == "settle":
            self._held[at] = pools
            self._own[pools] += sums[:, 1]
            self.room[pools] = np.minimum(self.room[pools] + sums[:, 2], kernels.MOST)
            return
        waiting = np.searchsorted(self.waiting, pools)
        self._sums[waiting, :2] += sums[:, :2]
        self._sums[waiting, 2] = np.minimum(self._sums[waiting, 2] + sums[:, 2], kernels.MOST)

    @property
    def _size(self) -> tuple[int, int]:
        """Bytes needed while blocks stream, and while they are joined."""
        return (self._rows * ROW_BYTES,) * 2

    def join(self, phase: Phase) -> None:
        if phase.joined == "tree":
            self._nest()
        elif phase.joined == "settle":
            self._settle()
        elif phase.joined == "levels":
            self._lower()

    def _nest(self) -> None:
        self._room.require(
            *self._size,
            f"for {counted(self._rows, 'catchment')}",
            where=self._path,
            advice=", or fill the shallow depressions first (depressions --min-depth "
            "--conditioned)",
        )
        blocks = sorted(self._known)
        known = [self._known.pop(at) for at in blocks]
        self._span = dict(zip(blocks, (one.span for one in known), strict=True))
        ends = np.cumsum([0, *(len(one.rain) for one in known)])
        # Columns of all blocks, each released once it is joined.
        parts = [[*one.pits, one.rain, *one.between, *one.crossing] for one in known]
        columns = list(zip(*parts, strict=True))[::-1]
        del known, parts
        heights, cells, rain, levels, keys = (np.concatenate(columns.pop()) for _ in range(5))
        inner = np.concatenate([one + end for one, end in zip(columns.pop(), ends, strict=False)])
        shift = np.repeat(ends[:-1], [len(one) for one in columns[-1]])
        across = [np.concatenate(columns.pop()) for _ in range(4)]
        across[2] = across[2] + shift
        order = np.argsort(across[1], kind="stable")
        level, key, end, over = (column[order] for column in across)
        if len(key) % 2 or (key[::2] != key[1::2]).any():
            raise self._no_forest()
        pairs, joined = np.stack((end[::2], end[1::2]), axis=1), over[::2] | over[1::2]
        row = np.empty(len(rain), np.int64)
        count = kernels.unite(pairs[joined], heights, cells, rain, row)
        self.heights, self.cells, self.rain = (one[:count].copy() for one in (heights, cells, rain))
        del heights, cells, rain
        self._start = {at: row[a:b] for at, a, b in zip(blocks, ends, ends[1:], strict=False)}
        levels, keys = np.append(levels, level[::2][~joined]), np.append(keys, key[::2][~joined])
        order = np.lexsort((keys, levels))
        del keys
        self._merge(order, levels, row[np.concatenate((inner, pairs[~joined]))])
        del order, levels, inner
        self._number()

    def _merge(self, order: np.ndarray, levels: np.ndarray, ends: np.ndarray) -> None:
        count = len(self.rain)
        self.dead, self.up = np.empty(count), np.empty(count, np.int64)
        self.sides, deaths = np.full((count, 2), -1), np.empty(count, np.int64)
        pit = self.heights, self.cells
        died = kernels.nest(order, levels, ends, pit, self.dead, self.up, self.sides, deaths)
        if died < 0:
            raise self._no_forest()
        self.deaths = deaths[:died].copy()

    def _number(self) -> None:
        inland, count = self.cells != OCEAN, len(self.rain)
        found = int(inland.sum() + inland[self.up[self.deaths]].sum())
        self.first, event = np.empty(count + 1, np.int64), np.empty(count, np.int64)
        floor, top = np.empty((2, found))
        row, merged = np.empty((2, found), np.int64)
        self.pools = self.first, floor, top, row, merged, event
        kernels.number_pools(self.deaths, self.cells, self.dead, self.up, *self.pools)
        self._own, self.room = np.zeros((2, found), np.int64)

    def _no_forest(self) -> StoreError:
        return StoreError(
            f"{self._path}: not a forest of these cells; compute it again (compute-mst --overwrite)"
        )

    # -- the water ------------------------------------------------------------------------------

    def _settle(self) -> None:
        unit, scale, count = self._operation.units[1], self._operation.scale, len(self._own)
        below = kernels.areas_below(self.deaths, self.pools, self._own)
        kernels.find_rooms(self.pools, below, unit, scale, self.room)
        del below  # frees memory during the rest
        self.water = np.empty(count, np.int64)
        self.passing = np.empty(count if self._operation.table else 0, np.int64)
        self.full = np.empty(count, np.bool_)
        moved = self.room, self.water, self.full, self.passing
        kernels.settle(self.deaths, self.up, self.sides, self.pools, self.rain, *moved)
        _, floor, top, row, _, _ = self.pools
        at = self.waiting = np.flatnonzero((self.water > 0) & ~self.full)
        self._held = {block: found[np.isin(found, at)] for block, found in self._held.items()}
        self._fell = int(self.rain.sum())
        del self.room, self.sides, self.rain
        self._below = kernels.areas_below(self.deaths, self.pools, self._own)[at]
        self._own = self._own[at]
        self.levels = np.full(count, -np.inf)
        highest = max((high for _, high in self._span.values()), default=0.0)
        above = np.nextafter(highest, np.inf)  # above all cells
        self._at = np.where(np.isfinite(top[at]), top[at], above)
        self._bottom = np.maximum(floor[at], self.heights[row[at]])
        self._counted = np.full(len(at), -1)
        self._begin()

    def _begin(self) -> None:
        """Start the sums below the levels still sought, scaled so that none overflows."""
        if not len(self.waiting):
            return self._find_surfaces()
        self._sums = np.zeros((len(self.waiting), 3), np.int64)
        most = (self._at - self._bottom) * (self._own * self._operation.units[1])
        bits = 60 - np.frexp(np.maximum(most, 0.0))[1]
        self._scales = np.ldexp(1.0, np.minimum(bits, 1000))
        return None

    def _lower(self) -> None:
        """Lower the levels still sought by one step of Newton's iteration.

        The volume is a convex function of the level, so no step goes below the level sought. The
        last step reaches it: the same cells are below both levels.
        """
        left = np.empty(len(self.waiting), np.bool_)
        for k in range(0, len(left), _SOME):
            left[k : k + _SOME] = self._step(slice(k, k + _SOME))
        del self._sums
        for name in ("waiting", "_at", "_counted", "_bottom", "_own", "_below"):
            setattr(self, name, getattr(self, name)[left])
        self._begin()

    def _step(self, some: slice) -> np.ndarray:
        """Lower some of the levels; return the mask of those not yet found."""
        at, level, bottom, below = (
            column[some] for column in (self.waiting, self._at, self._bottom, self._below)
        )
        unit, top, counted = self._operation.units[1], self.pools[2][at], self._counted[some]
        cells, own, volume = self._sums[some].T
        area = (own + below) * unit
        excess = volume / self._scales[some] + (level - bottom) * (below * unit)
        excess -= self.water[at] / self._operation.scale
        with np.errstate(invalid="ignore", divide="ignore"):
            lower = np.where(area > 0, level - excess / area, level)
        first = (counted < 0) & np.isinf(top)
        lower = np.where(first, lower, np.minimum(lower, level))
        lower = np.minimum(np.maximum(lower, bottom), top)
        done: np.ndarray = (cells == counted) | (lower == level)
        self.levels[at[done]] = lower[done]
        self._at[some], self._counted[some] = lower, cells
        return ~done

    def _find_surfaces(self) -> None:
        endless = np.flatnonzero((self.up < 0) & (self.cells != OCEAN))
        order = np.concatenate((endless, self.deaths[::-1]))
        kernels.find_surfaces(order, self.pools, self.full, self.levels)
        inland = self.cells != OCEAN
        self.surfaces = self.heights.copy()
        at_pits = self.levels[self.first[:-1][inland]]
        self.surfaces[inland] = np.maximum(self.surfaces[inland], at_pits)
        self.depressions = inland & (self.dead > self.heights)

    # -- for blocks -----------------------------------------------------------------------------

    def finished(self, phase: Phase, at: Block, done: bool) -> bool:
        if done or phase.joined != "levels":
            return done
        return not np.isin(self._held.get(at, self.waiting[:0]), self.waiting).any()

    def given(self, phase: Phase, at: Block) -> Pools | None:
        if phase.joined == "tree":
            return None
        start, inland = self._start[at], self.cells != OCEAN
        low, high = self._span[at]
        new = np.unique(start[inland[start]])
        rows = new[:0]
        while len(new):
            rows = np.union1d(rows, new)
            above = self.up[new[self.dead[new] <= high]]
            new = np.setdiff1d(above[inland[above]], rows)
        first, floor, top = self.pools[:3]
        counts = first[rows + 1] - first[rows]
        ids = np.repeat(first[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        reached = (floor[ids] <= high) & (top[ids] > low)
        row = np.repeat(np.arange(len(rows)), counts)[reached]
        ids = ids[reached]
        return Pools(
            within(rows, start),
            self.dead[rows],
            within(rows, self.up[rows]),
            np.searchsorted(row, np.arange(len(rows) + 1)),
            floor[ids],
            ids,
            *self._below_which(phase, ids),
        )

    def _below_which(self, phase: Phase, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the levels up to which a phase measures or fills pools, and scales of sums."""
        if phase.joined != "levels":
            levels = self.pools[2] if phase.joined == "settle" else self.levels
            return levels[ids], np.full(len(ids), self._operation.scale)
        where = within(self.waiting, ids)
        levels = np.where(where >= 0, self._at[where], -np.inf)
        return levels, self._scales[where]

    def found(self) -> Findings:
        operation = self._operation
        fell, stands = self._fell, int(self.water.sum())
        wet = self.depressions & (self.surfaces > self.heights)
        deepest = (self.surfaces[wet] - self.heights[wet]).max(initial=0.0)
        whole = self.first[1:] - 1
        holds = self.depressions & np.isfinite(self.dead)
        return {
            "rain": fell / operation.scale,
            "water": stands / operation.scale,
            "outflow": (fell - stands) / operation.scale,
            "depressions": int(self.depressions.sum()),
            "with_water": int(wet.sum()),
            "full": int(self.full[whole[holds]].sum()),
            "deepest": float(deepest),
            "wet_cells": int(self._stands[0]),
            "area": float(self._stands[1] * operation.units[1]),
            "on_cells": int(self._stands[2]) / operation.scale,
        }
