"""Least costs between single cells from a distance index: `RimSearch`.

Cells are read only in the tiles that contain the ends of a path. Between them, E. W. Dijkstra's
algorithm runs over rim cells, tile by tile in the order of their least pending distance, and reads
the entries of a tile when it visits it. If the index has levels, the search crosses the largest
squares of tiles that contain no end. It stops when no pending distance can lower that of a target.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from copy import copy
from itertools import product
from operator import add, gt
from typing import Any

import numpy as np

from ...grid import BlockGrid
from ...io.places import NO_PLACES
from ...report import trim
from ..cost.edges import infinity_of, joining
from ..cost.terrain import Terrain
from ..relax.tile import new_tile_work
from .files import Index
from .operation import DistanceIndex
from .rim import number_dtype, rim_cells, rim_of, rim_steps, squares_of, unit_of
from .search_kernels import (
    DONE,
    LACKS_TILE,
    announce,
    search_rims,
    solve_inside,
    way_inside,
)
from .tile import Entries, new_weights

_KEPT = 1024
"""Number of ends whose distances within their tiles are kept, 2 KB each for tiles of 64."""

Cell = tuple[int, int]


def state_bytes(index: Index, levels: int, *, lines: bool) -> int:
    """Bytes for the state of a search with this number of levels."""
    count, unit, item = rim_cells(index.tile), unit_of(index.tile), index.dtype.itemsize
    found = math.prod(_padded(index, levels)) * count * 8
    origin = _origin_dtype(index, levels).itemsize
    found += math.prod(index.shape()) * count * origin * lines
    for level in range(levels + 1):
        found += math.prod(index.shape(level)) * (6 * 8 + 3)  # keys, ids, tree, slots, marks
    if lines and levels:  # another search, for parts of paths
        found *= 2
    # Also the costs of a square and paths within it, and the `Packer` of tiles.
    found += (_KEPT * count + 16 * unit**2 + 6 * count**2) * 8
    for level in range(1, levels + 1):  # what unpacks a square, and its rim
        found += index.entries(level) * (2 * item + 2) + (count << level) * 30 * 8
    return found


def _origin_dtype(index: Index, levels: int) -> np.dtype:
    """Dtype of numbers of rim cells of a square, and of steps into it, and one more."""
    side = index.tile << levels
    return np.dtype(np.uint16 if rim_cells(side) + rim_steps(side) < 2**16 else np.uint32)


def _padded(index: Index, levels: int) -> tuple[int, int]:
    """Number of tile rows and columns up to whole squares of the last level, and around them."""
    down, across = ((n << levels) + 2 for n in index.shape(levels))
    return down, across


def square_bytes(index: Index, level: int) -> int:
    """The largest possible size of the entries of a square, in bytes."""
    side, item = index.tile << level, index.dtype.itemsize
    count = rim_cells(side)
    each = item + number_dtype(side).itemsize
    return 8 * (count + 1) + rim_steps(side) * item + count * count * each


class RimSearch:
    """Least costs from one cell at a time to others.

    Parameters
    ----------
    operation, index
        From `stored.stored_index`.
    room
        Bytes for entries that are kept for the next searches.
    lines
        Whether paths are requested.
    levels
        Number of levels of the index to use.
    start
        A valid cell.
    """

    def __init__(
        self,
        operation: DistanceIndex,
        index: Index,
        room: int,
        *,
        lines: bool,
        levels: int = 0,
        start: Cell = (0, 0),
    ) -> None:
        self.index, self.model, self.options = index, operation.model, operation.options
        self.dtype = np.dtype(np.uint64 if index.dtype.kind == "u" else np.float64)
        self.tile, self._unit, self.rim = index.tile, unit_of(index.tile), rim_of(index.tile)
        blocks = BlockGrid(*operation.grid.shape, self._unit)
        self.shape = index.shape()
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
        self._way = joining(self.model.kernel)
        self._work = new_tile_work(self.dtype)
        self._weights = new_weights(self._unit, self.dtype)
        self._tails: OrderedDict[Cell, np.ndarray] = OrderedDict()
        self._levels, self._squares = levels, squares_of(index.tile, levels, self.shape)
        self._compile(start, lines)
        self._slots = np.full((2, int(self._squares.first[-1])), -1, np.int64)
        self._pool = self._new_pool(room)
        self._used = [0, 0, 0, 0]  # of each array of the pool, and the number of reads
        self._begin(lines)
        self._finer = self
        if lines and levels:  # its searches keep the state of this one, and share what is read
            self._finer = copy(self)
            self._finer._begin(lines)
            self._finer._finer = self._finer

    def _compile(self, start: Cell, lines: bool) -> None:
        """Compile all kernels before other memory is allocated, as compiling takes memory."""
        self._begun = {start: self._solved(start, reverse=False)}  # which is searched first
        if lines:
            self._inside(start, start)
        count, kind = rim_cells(self.tile), _origin_dtype(self.index, self._levels)
        rims, marks = np.full((3, 3, count), self.infinity, self.dtype), np.zeros((3, 1), bool)
        keys, ids = np.full(1, self.infinity, self.dtype), np.arange(1)
        state = rims, keys, ids, np.full(2, -1, np.int64)
        none, shape, rim = np.full((2, 1), -1, np.int64), self.shape, rims[0, 0]
        announce(rim, rim, 0, 0, shape, self._squares, marks[2], *state)
        origins = np.empty((0, count), kind)
        how = self._way, self._new_pool(0), none, shape, self._squares, *state, origins, marks
        search_rims(*how, self.infinity)  # nothing is pending
        trim()

    def _begin(self, lines: bool) -> None:
        """Allocate the state of a search."""
        tiles, count = math.prod(self.shape), rim_cells(self.tile)
        number = int(self._squares.first[-1])
        padded = _padded(self.index, self._levels)
        self._rims = np.full((*padded, count), self.infinity, self.dtype)
        # The largest number stands for cells reached from the source within its square.
        kind = _origin_dtype(self.index, self._levels)
        self._origins, self._seed = np.empty((tiles * lines, count), kind), np.iinfo(kind).max
        self._keys, self._ids = np.full(number, self.infinity, self.dtype), np.arange(number)
        self._tree = np.full(2 * number, -1, np.int64)
        self._marks = np.zeros((3, number), bool)
        self._touched, self._watched, self._split = self._marks
        self._source: Cell = (0, 0)

    @property
    def tiles_read(self) -> int:
        """Number of tiles, and of squares of them, whose entries were read."""
        return self._used[3]

    def _new_pool(self, room: int) -> Entries:
        """Arrays for the entries of squares; only memory that is used becomes resident."""
        index, item = self.index, self.index.dtype.itemsize
        sides = [index.tile << level for level in range(self._levels + 1)]
        numbers = number_dtype(sides[-1])
        squares = np.diff(self._squares.first).tolist()
        most = [[rim_cells(side) + 1, rim_steps(side), rim_cells(side) ** 2] for side in sides]
        all_ends, all_steps, all_ways = (np.array(squares) @ most).tolist()
        ends = min(max(room // 64, most[-1][0]), all_ends)
        steps = min(max(room // 8 // item, most[-1][1]), all_steps)
        ways = (room - 8 * ends - item * steps) // (item + numbers.itemsize)
        ways = min(max(ways, most[-1][2]), all_ways)
        return Entries(
            np.empty(ends, np.int64),
            np.empty(ways, numbers),
            np.empty(ways, index.dtype),
            np.empty(steps, index.dtype),
        )

    # -- distances --------------------------------------------------------------------------

    def costs(self, source: Cell, targets: list[Cell], levels: int | None = None) -> np.ndarray:
        """Least costs from a cell to others; infinity (`edges.infinity_of`) if there is no path.

        `levels` is the number of levels to use; all when None.
        """
        self._clear()
        if levels is not None:
            self._split[self._squares.first[levels + 1] :] = True
        self._source = source
        home, begun = self._square_of(source), self._begun.pop(source, None)
        self._first = self._solved(source, reverse=False) if begun is None else begun
        rows, cols = self.rim.cells
        seeded = []
        for i, j in self._tiles_of(home):
            self._split_around((i, j))
            part = self._first[i * self.tile % self._unit :, j * self.tile % self._unit :]
            self._rims[i + 1, j + 1] = part[1 + rows, 1 + cols]
            seeded.append(i * self.shape[1] + j)
        self._touched[seeded] = True
        if len(self._origins):
            self._origins[seeded] = self._seed
        found = np.full(len(targets), self.infinity, self.dtype)
        inside: dict[int, list[int]] = {}
        for k, target in enumerate(targets):
            at = self._tile_of(target)
            self._split_around(at)
            inside.setdefault(at[0] * self.shape[1] + at[1], []).append(k)
            if self._is_home(target):
                found[k] = self._first_at(target)
        tails = {k: self._tail(target) for k, target in enumerate(targets)}
        self._watched[list(inside)] = True
        state = self._rims, self._keys, self._ids, self._tree
        never = np.full(len(rows), self.infinity, self.dtype)
        how = self.shape, self._squares, self._split
        for number in seeded:
            i, j = divmod(number, self.shape[1])
            announce(never, self._rims[i + 1, j + 1], number, 0, *how, *state)
        for tile in inside:
            self._lower(found, tile, inside, tails)
        while True:
            what, tile = search_rims(
                self._way,
                self._pool,
                self._slots,
                self.shape,
                self._squares,
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
        """Lower the distances of the targets in a tile by paths over its rim."""
        for k in inside[tile]:
            found[k] = min(found[k], self._over_rim(tile, tails[k]).min())

    def _over_rim(self, tile: int, tail: np.ndarray) -> np.ndarray:
        i, j = divmod(tile, self.shape[1])
        rim = self._rims[i + 1, j + 1]
        both = np.maximum(rim, tail) if self.model.kind.bottleneck else rim + tail
        return np.where((rim < self.infinity) & (tail < self.infinity), both, self.infinity)

    def _clear(self) -> None:
        touched, squares = np.flatnonzero(self._touched), self._squares
        for level in range(self._levels + 1):
            first, last = squares.first[level : level + 2]
            own = touched[(touched >= first) & (touched < last)] - first
            rows, cols = (n[:, None] << level for n in np.divmod(own, squares.across[level]))
            y, x, b = squares.cells[:, squares.rims[level] : squares.rims[level + 1]]
            self._rims[rows + 1 + y, cols + 1 + x, b] = self.infinity
        self._keys[:], self._tree[:] = self.infinity, -1
        self._marks[:] = False

    def _split_around(self, tile: Cell) -> None:
        """Search the squares around a tile by their parts."""
        squares = self._squares
        for level in range(1, self._levels + 1):
            i, j = tile[0] >> level, tile[1] >> level
            self._split[squares.first[level] + i * squares.across[level] + j] = True

    def _load(self, square: int) -> None:
        """Read the entries of a square; if they do not fit, those of all others are dropped."""
        squares = self._squares
        level = int(np.searchsorted(squares.first, square, side="right")) - 1
        i, j = divmod(square - int(squares.first[level]), int(squares.across[level]))
        read = self.index.read_tile((i, j), level)
        pool, parts = self._pool, (read.ends[0], read.steps[0], read.ways)
        used, sizes = self._used, [len(part) for part in parts]
        used[3] += 1
        most = len(pool.ends), len(pool.steps), len(pool.ways)
        if any(map(gt, map(add, used, sizes), most)):
            self._slots[:], used[:3] = -1, [0, 0, 0]
        first, used[:3] = used[:3], map(add, used, sizes)
        ends, steps, ways = map(slice, first, used)
        pool.ends[ends] = read.ends[0] + ways.start
        pool.steps[steps] = read.steps[0]
        pool.others[ways], pool.ways[ways] = read.others, read.ways
        self._slots[:, square] = first[:2]

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
        parts = self._parts(target, cost)[::-1]
        return np.concatenate([self._cells(*part) for part in parts])

    def _parts(self, target: Cell, cost: Any) -> list[tuple[Cell, Cell, int]]:
        """The parts of a path, the last one first.

        A part has a first and a last cell, and the level of the square in which it lies.
        """
        squares, (i, j) = self._squares, self._tile_of(target)
        over = self._over_rim(i * self.shape[1] + j, self._tail(target))
        if cost not in over or (self._is_home(target) and self._first_at(target) == cost):
            return [(self._source, target, 0)]
        parts, end, b = [], target, int(np.argmin(over))
        while (origin := int(self._origins[i * self.shape[1] + j, b])) != self._seed:
            level = self._level_of((i, j))
            i, j, first = i >> level << level, j >> level << level, squares.rims[level]
            own = int(squares.rims[level + 1] - first)
            if origin < own:
                row, col, b = squares.cells[:, first + origin].tolist()
            else:
                step = squares.crossings[:, squares.steps[level] + origin - own].tolist()
                row, col, inside = squares.cells[:, first + step[0]].tolist()
                parts.append((self._rim_cell((i + row, j + col), inside), end, level))
                row, col, b = step[2:]
                end = self._rim_cell((i + row, j + col), b)
            i, j = i + row, j + col
        return [*parts, (self._source, end, 0)]

    def _level_of(self, tile: Cell) -> int:
        """The level of the square by which the search covered a tile."""
        squares, level = self._squares, self._levels
        while level:
            i, j = tile[0] >> level, tile[1] >> level
            if not self._split[squares.first[level] + i * squares.across[level] + j]:
                break
            level -= 1
        return level

    def _cells(self, begin: Cell, end: Cell, level: int) -> np.ndarray:
        """The cells of a part of a path; within a larger square, another search finds them."""
        if level == 0:
            return self._inside(begin, end)
        (cost,) = self._finer.costs(begin, [end], level - 1)
        return self._finer.path(end, cost)

    def _is_home(self, cell: Cell) -> bool:
        return self._square_of(cell) == self._square_of(self._source)

    def _first_at(self, cell: Cell) -> Any:
        """The distance of a cell from the source along paths within the source's square."""
        return self._first[1 + cell[0] % self._unit, 1 + cell[1] % self._unit]

    def _rim_cell(self, tile: Cell, b: int) -> Cell:
        row, col = self.rim.cells[:, b].tolist()
        return tile[0] * self.tile + row, tile[1] * self.tile + col

    def _inside(self, begin: Cell, end: Cell) -> np.ndarray:
        """The cells of a path within a square, from `begin` to `end`."""
        at, unit = self._square_of(begin), self._unit
        field, corner = self.ground.load(at), np.array(at) * unit
        numbers = [(row % unit) * unit + col % unit for row, col in (begin, end)]
        start: Any = np.array(self.model.kind.least).astype(self.dtype)[()]
        cells = field.heights, field.frictions, field.absent, field.lengths
        how = self.options, self._weights, *numbers, start
        found = way_inside(self.model.kernel, *cells, *how)[::-1]
        return np.stack(np.divmod(found, unit), axis=1) + corner
