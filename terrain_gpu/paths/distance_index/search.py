"""Least costs between single cells from a distance index: `RimSearch`.

Only the tiles that hold ends of a path are read as cells. Between them E. W. Dijkstra's algorithm
runs over rims, tile by tile in the order of their least pending distance, and reads the entries of
a tile when it comes to it. A search ends when no pending distance can shorten the way to a target.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ...grid import BlockGrid
from ...io.places import NO_PLACES
from ..cost.edges import infinity_of, joining
from ..cost.terrain import Terrain
from ..relax.tile import new_tile_work
from .files import Index
from .operation import DistanceIndex
from .rim import number_dtype, rim_cells, rim_of, rim_steps, unit_of
from .search_kernels import (
    DONE,
    LACKS_TILE,
    SEED,
    announce,
    search_rims,
    solve_inside,
    way_inside,
)
from .tile import Entries, new_weights

_KEPT = 1024
"""Ends whose distances within their tiles are kept, 2 KB each for tiles of 64."""

Cell = tuple[int, int]


def state_bytes(index: Index, *, lines: bool) -> int:
    """Bytes for the state of a search."""
    (down, across), count, unit = index.shape, rim_cells(index.tile), unit_of(index.tile)
    tile = count * 2 * lines + 8 + 8 + 16 + 8 + 1 + 1  # origins, keys, ids, tree, slots, two marks
    # Also the costs of a square and paths inside of it, and what unpacks a tile.
    held = (_KEPT * count + 16 * unit**2 + 6 * count**2) * 8
    return (down + 2) * (across + 2) * count * 8 + down * across * tile + held


class RimSearch:
    """Least costs from one cell at a time to others.

    Parameters
    ----------
    operation, index
        From `stored.stored_index`.
    room
        Bytes for entries that are kept for the next searches.
    lines
        Whether paths are asked for.

    Attributes
    ----------
    tiles_read
        Number of tiles whose entries were read.
    """

    def __init__(self, operation: DistanceIndex, index: Index, room: int, *, lines: bool) -> None:
        self.index, self.model, self.options = index, operation.model, operation.options
        self.dtype = np.dtype(np.uint64 if index.dtype.kind == "u" else np.float64)
        self.tile, self._unit, self.rim = index.tile, unit_of(index.tile), rim_of(index.tile)
        blocks = BlockGrid(*operation.grid.shape, self._unit)
        self.shape = index.shape
        self.ground = Terrain(
            blocks,
            operation.model,
            operation.heights,
            operation.rasters["friction"],
            operation.rasters["barriers"],
            operation.lengths,
            NO_PLACES,
            self.dtype,
        ).stepping(operation.options, self._unit)
        self.infinity = infinity_of(np.empty(0, self.dtype))
        self.tiles_read = 0
        self._way = joining(self.model.kernel)
        self._work = new_tile_work(self.dtype)
        self._weights = new_weights(self._unit, self.dtype)
        self._tails: OrderedDict[Cell, np.ndarray] = OrderedDict()
        tiles, count = math.prod(self.shape), rim_cells(index.tile)
        self._rims = np.full((*(n + 2 for n in self.shape), count), self.infinity, self.dtype)
        self._origins = np.empty((tiles * lines, count), np.uint16)
        self._keys, self._ids = np.full(tiles, self.infinity, self.dtype), np.arange(tiles)
        self._tree = np.full(2 * tiles, -1, np.int64)
        self._marks = np.zeros((2, tiles), bool)
        self._touched, self._watched = self._marks
        self._slots = np.full(tiles, -1, np.int64)
        self._pool = self._new_pool(room, tiles)
        self._used = [0, 0]
        self._source: Cell = (0, 0)

    def _new_pool(self, room: int, tiles: int) -> Entries:
        """Arrays for the entries of tiles; memory that is never used is never taken."""
        item, numbers = self.index.dtype.itemsize, number_dtype(self.tile)
        count, steps = rim_cells(self.tile), rim_steps(self.tile)
        slot = 8 * (count + 1) + steps * item
        slots = min(max(room // 4 // slot, 1), tiles)
        ways = max((room - slots * slot) // (item + numbers.itemsize), count * count)
        ways = min(ways, tiles * count * count)
        return Entries(
            np.empty((slots, count + 1), np.int64),
            np.empty(ways, numbers),
            np.empty(ways, self.index.dtype),
            np.empty((slots, steps), self.index.dtype),
        )

    # -- distances --------------------------------------------------------------------------

    def costs(self, source: Cell, targets: list[Cell]) -> np.ndarray:
        """Least costs from a cell to others; infinity, see `edges.infinity_of`, without a path."""
        self._clear()
        self._source = source
        home, self._first = self._square_of(source), self._solved(source, reverse=False)
        rows, cols = self.rim.cells
        seeded = []
        for i, j in self._tiles_of(home):
            part = self._first[i * self.tile % self._unit :, j * self.tile % self._unit :]
            self._rims[i + 1, j + 1] = part[1 + rows, 1 + cols]
            seeded.append(i * self.shape[1] + j)
        self._touched[seeded] = True
        if len(self._origins):
            self._origins[seeded] = SEED
        found = np.full(len(targets), self.infinity, self.dtype)
        inside: dict[int, list[int]] = {}
        for k, target in enumerate(targets):
            at = self._tile_of(target)
            inside.setdefault(at[0] * self.shape[1] + at[1], []).append(k)
            if self._is_home(target):
                found[k] = self._first_at(target)
        tails = {k: self._tail(target) for k, target in enumerate(targets)}
        self._watched[list(inside)] = True
        state = self._rims, self._keys, self._ids, self._tree
        never = np.full(len(rows), self.infinity, self.dtype)
        for number in seeded:
            announce(never, number, self.rim, *state)
        for tile in inside:
            self._lower(found, tile, inside, tails)
        while True:
            what, tile = search_rims(
                self._way,
                self._pool,
                self._slots,
                self.rim,
                *state,
                self._origins,
                self._marks,
                found.max(),
            )
            if what == DONE:
                return found
            if what == LACKS_TILE:
                self._load(tile)
            else:
                self._lower(found, tile, inside, tails)

    def _lower(
        self, found: np.ndarray, tile: int, inside: dict[int, list[int]], tails: dict[int, Any]
    ) -> None:
        """Lower the distances of the targets in a tile by ways over its rim."""
        for k in inside[tile]:
            found[k] = min(found[k], self._over_rim(tile, tails[k]).min())

    def _over_rim(self, tile: int, tail: np.ndarray) -> np.ndarray:
        i, j = divmod(tile, self.shape[1])
        rim = self._rims[i + 1, j + 1]
        both = np.maximum(rim, tail) if self.model.kind.bottleneck else rim + tail
        return np.where((rim < self.infinity) & (tail < self.infinity), both, self.infinity)

    def _clear(self) -> None:
        touched = np.flatnonzero(self._touched)
        rows, cols = np.divmod(touched, self.shape[1])
        self._rims[rows + 1, cols + 1] = self.infinity
        self._keys[:], self._tree[:] = self.infinity, -1
        self._touched[:], self._watched[:] = False, False

    def _load(self, tile: int) -> None:
        """Read the entries of a tile; if they do not fit, those of all others are dropped."""
        i, j = divmod(tile, self.shape[1])
        read = self.index.read_tile((i, j))
        self.tiles_read += 1
        pool, (slot, first) = self._pool, self._used
        if slot == len(pool.ends) or first + len(read.ways) > len(pool.ways):
            self._slots[:], slot, first = -1, 0, 0
        last = first + len(read.ways)
        pool.ends[slot] = read.ends[0] + first
        pool.others[first:last], pool.ways[first:last] = read.others, read.ways
        pool.steps[slot] = read.steps[0]
        self._slots[tile], self._used = slot, [slot + 1, last]

    # -- the cells of one square: a tile of the index, or those in a tile of the store ----------

    def _tile_of(self, cell: Cell) -> Cell:
        return cell[0] // self.tile, cell[1] // self.tile

    def _square_of(self, cell: Cell) -> Cell:
        return cell[0] // self._unit, cell[1] // self._unit

    def _tiles_of(self, square: Cell) -> Iterator[Cell]:
        """The tiles in a square."""
        own, (i, j), (down, across) = self._unit // self.tile, square, self.shape
        rows = range(i * own, min((i + 1) * own, down))
        return product(rows, range(j * own, min((j + 1) * own, across)))

    def _solved(self, cell: Cell, *, reverse: bool) -> np.ndarray:
        """Distances in a square from a cell; to it if `reverse`. Padded by one."""
        field = self.ground.load(self._square_of(cell))
        row, col = cell[0] % self._unit, cell[1] % self._unit
        start: Any = self.dtype.type(0)
        if self.model.kind.bottleneck:
            start = -np.inf if reverse else field.heights[row + 1, col + 1]
        found = np.full(field.absent.shape, self.infinity, self.dtype)
        found[row + 1, col + 1] = start
        diagonal, corners, way = self.options
        cells = field.heights, field.frictions, field.absent, field.lengths
        options = diagonal, corners, way != reverse
        solve_inside(self.model.kernel, *cells, options, found, self._work)
        return found

    def _tail(self, cell: Cell) -> np.ndarray:
        """Distances from the rim of its tile to a cell."""
        found = self._tails.pop(cell, None)
        if found is None:
            far, (rows, cols) = self._solved(cell, reverse=True), self.rim.cells
            row, col = (n % self._unit // self.tile * self.tile for n in cell)
            found = far[1 + row + rows, 1 + col + cols]
            if len(self._tails) == _KEPT:
                self._tails.popitem(last=False)
        self._tails[cell] = found
        return found

    # -- paths ----------------------------------------------------------------------------------

    def path(self, target: Cell, cost: Any) -> np.ndarray:
        """The cells (row, col), shape (n, 2), of a least-cost path of the last search."""
        at = self._tile_of(target)
        tile = at[0] * self.shape[1] + at[1]
        over = self._over_rim(tile, self._tail(target))
        parts, cell = [], target
        if cost not in over or (self._is_home(target) and self._first_at(target) == cost):
            return self._inside(self._source, target)
        b = int(np.argmin(over))
        while True:
            while (origin := int(self._origins[tile, b])) < len(self.rim.cells[0]):
                b = origin
            if origin == SEED:
                break
            parts.append(self._inside(self._rim_cell(tile, b), cell))
            i, j = divmod(tile, self.shape[1])
            row, col, b = self.rim.crossings[2:, origin - len(self.rim.cells[0])].tolist()
            tile = (i + row) * self.shape[1] + j + col
            cell = self._rim_cell(tile, b)
        parts.append(self._inside(self._source, cell))
        return np.concatenate(parts[::-1])

    def _is_home(self, cell: Cell) -> bool:
        return self._square_of(cell) == self._square_of(self._source)

    def _first_at(self, cell: Cell) -> Any:
        """The distance of a cell of the source's square inside of it."""
        return self._first[1 + cell[0] % self._unit, 1 + cell[1] % self._unit]

    def _rim_cell(self, tile: int, b: int) -> Cell:
        i, j = divmod(tile, self.shape[1])
        row, col = self.rim.cells[:, b].tolist()
        return i * self.tile + row, j * self.tile + col

    def _inside(self, begin: Cell, end: Cell) -> np.ndarray:
        """The cells of a path inside of a square, from `begin` to `end`."""
        at, unit = self._square_of(begin), self._unit
        field, corner = self.ground.load(at), np.array(at) * unit
        numbers = [(row % unit) * unit + col % unit for row, col in (begin, end)]
        start: Any = np.array(self.model.kind.least).astype(self.dtype)[()]
        cells = field.heights, field.frictions, field.absent, field.lengths
        how = self.options, self._weights, *numbers, start
        found = way_inside(self.model.kernel, *cells, *how)[::-1]
        return np.stack(np.divmod(found, unit), axis=1) + corner
