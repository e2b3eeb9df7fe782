"""Shortest paths from a distance index; it reads only tiles of sources until rims are solved."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from ...compiled import known_types
from ...grid import TILE, Block, ceil_div
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..cost.edges import infinity_of, joining
from ..cost.fields import Field, pages
from ..relax.relaxation import Overflow, Relaxation
from ..relax.tile import new_tile_work
from .files import Index
from .rim import number_dtype, rim_cells, rim_of, rim_steps, unit_of
from .tile import Entries, fill_block, pass_block, seed_rims


def rims_bytes(index: Index, dtype: np.dtype) -> int:
    """Bytes for the distances of the rim cells of all tiles."""
    down, across = index.shape()
    return (down + 2) * (across + 2) * rim_cells(index.tile) * dtype.itemsize


class FromIndex(Relaxation):
    """Phase 2 from an index: relaxes the rims of all tiles, which are kept in memory.

    `solved` computes the cells of a block from the rims of its tiles.
    """

    def __init__(self, index: Index, *how: Any, **more: Any) -> None:
        super().__init__(*how, **more)
        self.index, self.rim, self.unit = index, rim_of(index.tile), unit_of(index.tile)
        down, across = index.shape()
        count = rim_cells(index.tile)
        self.rims = np.full((down + 2, across + 2, count), self.infinity, self.dtype)
        self._entered: set[Block] = set()
        self._sown = {at for at, _ in self.ground.starts()}  # type: ignore[attr-defined]

    def compiled(self, heights: np.dtype, frictions: np.dtype) -> bool:
        cost, way = numba.typeof(self.cost), numba.typeof(joining(self.cost))
        entries = numba.from_dtype(self.index.dtype)
        wanted = tuple(map(numba.from_dtype, (heights, frictions, self.dtype)))
        numbers = numba.from_dtype(number_dtype(self.index.tile))
        passing = any(
            (t[0], t[1][1].dtype, t[1][2].dtype, t[3].dtype) == (way, numbers, entries, wanted[2])
            for t in known_types(pass_block)
        )
        return passing and any(
            t[0] == cost and (t[1].dtype, t[2].dtype, t[6].dtype) == wanted
            for t in known_types(fill_block)
        )

    def compile(self, heights: np.dtype, frictions: np.dtype) -> None:
        side = TILE + 2
        cells, absent = np.zeros((side, side), heights), np.ones((side, side), bool)
        distances = np.full((side, side), self.infinity, self.dtype)
        held = cells, cells.astype(frictions)
        field = Field(*held, absent, np.ones((4, side)), distances)
        tile = self.index.tile
        rims = np.full((3, 3, rim_cells(tile)), self.infinity, self.dtype)
        none = np.empty(0, self.index.dtype)
        steps = np.full((1, rim_steps(tile)), infinity_of(none), self.index.dtype)
        ends = np.zeros((1, rim_cells(tile) + 1), np.int64)
        data = Entries(ends, none.astype(number_dtype(tile)), none, steps)
        self._pass(data, rims, (0, 0), (1, 1), True, self._new_sides())
        self._seed(field, np.zeros((1, 1), bool), rims, (0, 0), (1, 1))
        self._fill(field, rims, (0, 0), (1, 1))

    def restore(self, others: object) -> int:
        """Return 0: nothing is restored, as distances are computed again from the index."""
        return 0

    def save_all(self) -> None:
        """Save nothing."""

    def run(self, *how: Any, **more: Any) -> None:
        super().run(*how, **more)
        if self.targets is None:
            return
        side = self.blocks.block
        owners = zip((self.targets.rows // side).tolist(), (self.targets.cols // side).tolist(),
                     strict=True)  # fmt: skip
        for at in sorted(set(owners)):
            with self.solved(at) as field:
                self._note_targets(at, field)

    def _new_work(self, largest_block: tuple[int, int]) -> Any:
        return None

    def _new_sides(self) -> np.ndarray:
        return np.full(8, self.infinity, self.dtype)

    def _first(self, at: Block) -> tuple[int, int]:
        side = self.blocks.block // self.index.tile
        return at[0] * side, at[1] * side

    def _visit(self, at: Block, work: object) -> None:
        inside = at not in self._entered
        sides = self._new_sides()
        if inside:
            self._entered.add(at)
            self.visits.add(seen=math.prod(self.shape(at)))
            sides[:] = self._enter(at)
        visits, overflow = self._pass(
            self.index.read(at), self.rims, self._first(at), self.index.tiles(at), inside, sides
        )
        if overflow:
            raise Overflow
        down, across = self.blocks.shape
        self.visits.add(blocks=1, tiles=int(visits))
        with self._lock:
            for k in range(8):
                other = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
                if 0 <= other[0] < down and 0 <= other[1] < across:
                    self.start(other, sides[k])

    def _pass(
        self,
        data: Entries,
        rims: np.ndarray,
        first: tuple[int, int],
        shape: tuple[int, int],
        inside: bool,
        sides: np.ndarray,
    ) -> tuple[int, bool]:
        return pass_block(
            joining(self.cost),
            data,
            self.rim,
            rims,
            first,
            shape,
            inside,
            self.dtype.type(self.farthest),
            self.dtype.type(self.guard),
            sides,
            np.empty((2, len(rims[0, 0])), self.dtype),
        )

    def _enter(self, at: Block) -> Any:
        """Lower the rims of tiles that contain sources; returns the least start value."""
        if at not in self._sown:
            return self.infinity
        field = self.ground.load(at)
        field.distances = pages(field.absent.shape, self.dtype)
        field.distances[...] = self.infinity
        rows, cols, values = self.ground.seeds(at, field)
        np.minimum.at(field.distances, (rows + 1, cols + 1), values)
        chosen = np.zeros([ceil_div(n - 2, self.unit) for n in field.absent.shape], bool)
        chosen[rows // self.unit, cols // self.unit] = True
        self._seed(field, chosen, self.rims, self._first(at), self.index.tiles(at))
        return values.min() if len(values) else self.infinity

    def _seed(
        self,
        field: Field,
        chosen: np.ndarray,
        rims: np.ndarray,
        first: tuple[int, int],
        shape: tuple[int, int],
    ) -> None:
        seed_rims(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            field.distances,
            chosen,
            self.rim,
            rims,
            first,
            shape,
            self.unit,
            new_tile_work(self.dtype),
        )

    def _fill(
        self, field: Field, rims: np.ndarray, first: tuple[int, int], shape: tuple[int, int]
    ) -> None:
        most = fill_block(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            field.distances,
            self.rim,
            rims,
            first,
            shape,
            self.unit,
            new_tile_work(self.dtype),
        )
        if most > self.guard:
            raise Overflow

    # -- cells, after the rims -------------------------------------------------------------

    def _load(self, at: Block) -> Field:
        field = self.ground.load(at)
        field.distances = pages(field.absent.shape, self.dtype)
        field.distances[...] = self.infinity
        rows, cols, values = self.ground.seeds(at, field)
        np.minimum.at(field.distances, (rows + 1, cols + 1), values)
        self._fill(field, self.rims, self._first(at), self.index.tiles(at))
        return field

    def _save(self, at: Block, field: Field) -> None:
        """Save nothing: the cells are computed again when they are needed again."""

    def _complete(self, at: Block, field: Field) -> None:
        """Do nothing: `_load` has filled the field completely."""

    def close(self) -> None:
        """Release the fields and close the index."""
        self.index.close()
        super().close()
