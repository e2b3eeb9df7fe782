"""Proof that a layer of forward edges is the minimum spanning forest: `verify_forest`.

Nothing is shared with the programs that compute forests but the cells' operands: Kruskal's
algorithm (J. Kruskal 1956) over *all* edges of the grid, in pieces that fit the cache, with a plain
union-find. A piece takes its edges in the total order and keeps those that join two of its parts.
The layer is right exactly when, over all pieces,

- no edge *of the layer* is ever left out. One that is closes a cycle of smaller edges: if all of
  those are the layer's, it is not acyclic; otherwise it is not minimal (the cycle property);
- every *other* edge is left out in the end: then smaller edges join its ends, and, by induction
  over the order, smaller edges of the layer. One that stays joins two trees of the layer, which
  then does not span.

Two neighbouring pieces are joined from the edges between them and what is left of each: the kept
edges without dead ends, every path without a branch contracted to its largest edge, for only that
one can still be left out. It is a forest between border cells, so memory is O(border), although
every edge of the raster is checked, and every cell is read once.

A GPU that holds the whole raster proves the same in another way, see `verify_gpu`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...compiled import jit
from ...cuda.backend import Gpu, Placement, find_gpu
from ...engine.plan import (
    COMPILED_BASELINE,
    CUDA_BASELINE,
    MB,
    NO_LIMIT,
    available_threads,
    format_size,
    limit_of,
    threads_of,
)
from ...engine.schedule import stream
from ...errors import InputError, PlanError, VerificationError
from ...grid import Block, BlockGrid, Window, ceil_div
from ...grid.neighbours import DIRECTIONS
from ...progress import Progress, silent
from ...store import Layer
from ..weights import Weight, valid_cells

log = logging.getLogger(__name__)

UNIT = 128
"""Side of a piece: its edges stay in cache while they are sorted and joined."""

_THREADS = 4
"""Unless told otherwise: 16 on 16 cores took 37 s where 4 took 24, waiting for Python's lock."""

_WORKER = 16 * MB
"""What a thread holds to check a piece: some 300 bytes for each of its cells, and slack."""


class Blocks(Protocol):
    """A raster that is read block by block; a `Layer` is one."""

    blocks: BlockGrid
    dtype: np.dtype
    nodata: float | int | None

    def read_block(self, i: int, j: int, out: np.ndarray) -> np.ndarray: ...


class ArrayBlocks:
    """An array as `Blocks`."""

    def __init__(self, data: np.ndarray, nodata: float | int | None, block: int) -> None:
        self.data, self.nodata, self.dtype = data, nodata, data.dtype
        rows, cols = data.shape
        self.blocks = BlockGrid(rows, cols, block)

    def read_block(self, i: int, j: int, out: np.ndarray) -> np.ndarray:
        r0, r1, c0, c1 = self.blocks.window(i, j)
        result = out[: r1 - r0, : c1 - c0]
        result[...] = self.data[r0:r1, c0:c1]
        return result


def verify_forest(
    source: Layer,
    forest: Layer,
    *,
    weight: str,
    connectivity: int,
    expected: dict[str, Any],
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "cpu",
    device: int = 0,
    gpu_memory_limit: int | None = None,
    gpu: Gpu | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Check that a layer is the minimum spanning forest of another, edge by edge, in one pass.

    Parameters
    ----------
    source
        The cells.
    forest
        uint8, the forward edges: bit 0 E, 1 SW, 2 S, 3 SE at the lower endpoint.
    weight, connectivity
        See `minimum_spanning_tree`.
    expected
        The recorded "edges", "components" and "total_weight".
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; one for each processor, but at most 4 of them on the CPU, when None.
    backend
        "cpu"; "cuda", whose memory has to hold the whole raster; or "auto": a GPU that works and
        has the memory, else the CPU. What is wrong is named by the CPU in any case.
    device, gpu_memory_limit
        Which GPU, and a bound on its memory that is used, bytes; nine tenths of what is free when
        None.
    gpu
        The GPU where it is known already, in place of the three.
    progress
        Called with the cells just checked and the cells in all; with fewer than none before they
        are checked again.

    Returns
    -------
    dict
        "edges", "components", "total_weight" as recomputed, "checked_edges", all edges of the grid,
        "all_edges", True: none is sampled, and "backend", "cpu" or "cuda", which proved them.

    Raises
    ------
    VerificationError
        at the first violation found: the property, row and column, and the edges involved.
    InputError
        when the layers do not belong together, a memory limit is too small, or "cuda" does not
        work.
    StoreError
        when a shard is damaged.
    """
    if forest.grid.shape != source.grid.shape or forest.block_size != source.block_size:
        raise InputError(
            f"{forest.path}: {forest.grid.shape} cells in blocks of {forest.block_size}, but "
            f"{source.path} has {source.grid.shape} in blocks of {source.block_size}"
        )
    if forest.dtype != np.uint8:
        raise InputError(f"{forest.path}: cells of type {forest.dtype.name} are no edges")
    model = Weight(weight, source.dtype)
    checker = _ForestChecker(source.blocks, model, source.nodata, connectivity, UNIT)
    limit = limit_of(memory_limit)
    how = _How(limit, threads, backend, device, gpu_memory_limit, gpu)
    try:
        return _prove(source, forest, checker, expected, how, progress)
    except VerificationError as error:
        error.args = (f"{forest.path}: {error}; compute it again with --overwrite",)
        raise


def verify_arrays(
    data: np.ndarray,
    nodata: float | int | None,
    forward: np.ndarray,
    weight: str,
    connectivity: int,
    *,
    expected: dict[str, Any] | None = None,
    block_size: int = 1024,
    unit: int = UNIT,
    memory_limit: int = NO_LIMIT,
    held: int = 0,
    backend: str = "cpu",
    device: int = 0,
    gpu_memory_limit: int | None = None,
    gpu: Gpu | None = None,
) -> dict[str, Any]:
    """`verify_forest` for arrays: cells and forward edges of one shape.

    Parameters
    ----------
    block_size, unit
        Sides of the blocks and of the pieces they are cut into; any positive `unit` does.
    memory_limit, held
        Bound on memory, and what is held of it, bytes.
    """
    if data.ndim != 2 or not data.size or forward.shape != data.shape:
        raise InputError(f"edges of shape {forward.shape} for cells of shape {data.shape}")
    if forward.dtype != np.uint8:
        raise InputError(f"an array of {forward.dtype.name} holds no edges; give uint8")
    cells, edges = ArrayBlocks(data, nodata, block_size), ArrayBlocks(forward, 0, block_size)
    checker = _ForestChecker(cells.blocks, Weight(weight, data.dtype), nodata, connectivity, unit)
    how = _How(memory_limit, 1, backend, device, gpu_memory_limit, gpu, held)
    return _prove(cells, edges, checker, expected, how, silent)


class _How(NamedTuple):
    """Limits of memory and threads, and the backend."""

    memory_limit: int
    threads: int | None
    backend: str
    device: int
    gpu_memory_limit: int | None
    gpu: Gpu | None
    held: int = 0


def _prove(
    cells: Blocks,
    edges: Blocks,
    checker: _ForestChecker,
    expected: dict[str, Any] | None,
    how: _How,
    progress: Progress,
) -> dict[str, Any]:
    """On the GPU, or on the CPU."""

    def pool(limit: int, cuda: int = 0) -> tuple[int, int]:
        return _pool(cells, checker.weight, limit, how.threads, how.held, cuda)

    def room() -> tuple[int, int]:
        # The CPU has to name what is wrong.
        return pool(how.memory_limit, CUDA_BASELINE)

    doing = "verifying "
    gpu = how.gpu or find_gpu(
        how.backend,
        how.device,
        how.gpu_memory_limit,
        how.memory_limit,
        0,
        fits=room,
        doing=doing,
    )
    placement = Placement(gpu, progress, doing)

    def prove(gpu: Gpu | None) -> dict[str, Any]:
        if gpu is not None:
            return _prove_on_gpu(
                cells, edges, checker, expected, how, gpu, room(), placement.progress
            )
        left = pool(how.memory_limit - placement.held)
        found = _verify(cells, edges, checker, expected, left, placement.progress)
        return {**found, "backend": "cpu"}

    return placement.run(prove)


def _prove_on_gpu(
    cells: Blocks,
    edges: Blocks,
    checker: _ForestChecker,
    expected: dict[str, Any] | None,
    how: _How,
    gpu: Gpu,
    pool: tuple[int, int],
    progress: Progress,
) -> dict[str, Any]:
    from . import gpu as verify_gpu

    found = verify_gpu.prove(
        cells,
        edges,
        checker.weight,
        checker.diagonal,
        gpu=gpu,
        memory_limit=how.memory_limit,
        threads=threads_of(how.threads),
        progress=progress,
    )
    if found is None:
        log.info("the forest is wrong; where, is found on the CPU")
        _verify(cells, edges, checker, None, pool, silent)
        raise AssertionError("the GPU finds a forest wrong that the CPU finds right: a bug")
    return {**checker.result(_Tally(*found), expected), "backend": "cuda"}


def _verify(
    cells: Blocks,
    edges: Blocks,
    checker: _ForestChecker,
    expected: dict[str, Any] | None,
    pool: tuple[int, int],
    progress: Progress,
) -> dict[str, Any]:
    """Stream all blocks through `checker`; `pool` is the number of workers and of buffers."""
    blocks = cells.blocks
    side = min(blocks.block, blocks.rows), min(blocks.block, blocks.cols)
    joiner, tally = _Joiner(checker, blocks.shape), _Tally()
    Buffer = tuple[np.ndarray, np.ndarray]

    def read(at: Block, buffer: Buffer) -> Buffer:
        return cells.read_block(*at, out=buffer[0]), edges.read_block(*at, out=buffer[1])

    def check(at: Block, buffer: Buffer) -> tuple[_CheckedPiece, _Tally]:
        return checker.block(blocks.window(*at), *buffer)

    def join(at: Block, result: tuple[_CheckedPiece, _Tally]) -> None:
        tally.merge(result[1])
        joiner.add(*at, result[0], tally)

    def finished(at: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        progress((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

    stream(
        blocks.ids(),
        read,
        join,
        compute=check,
        buffers=[(np.empty(side, cells.dtype), np.empty(side, np.uint8)) for _ in range(pool[1])],
        workers=pool[0],
        done=finished,
    )
    if tally.missing >= 0:
        raise checker.violation(
            "spanning", tally.missing, "joins two trees: the forest lacks an edge between them"
        )
    return checker.result(tally, expected)


def _pool(
    source: Blocks, weight: Weight, limit: int, threads: int | None, held: int = 0, cuda: int = 0
) -> tuple[int, int]:
    """Workers and buffers under the memory limit, of which CUDA takes some, beside bytes held."""
    blocks = source.blocks
    block = blocks.block**2 * (source.dtype.itemsize + 1)
    # The largest join: two pieces keep 2 edges for each border cell, on 3 sides where the shorter
    # side of the raster is little more than theirs, and 3 more for each cell join them.
    joins = 24 * min(blocks.rows, blocks.cols) * (3 * weight.key_dtype.itemsize + 96)
    most = min(available_threads(), _THREADS) if threads is None else threads_of(threads)
    for workers in range(min(most, blocks.count), 0, -1):
        for buffers in (min(workers + 1, blocks.count), workers):
            # One more block: what the reader decodes from.
            memory = workers * _WORKER + (buffers + 1) * block + joins
            memory += COMPILED_BASELINE + held + cuda
            if memory <= limit:
                return workers, buffers
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to verify {blocks.rows} x "
        f"{blocks.cols} cells of {source.dtype.name} in blocks of {blocks.block}"
        f"{' on a GPU' if cuda else ''}; give at least {ceil_div(memory, MB)} MB"
    )


# -- what is known of a piece --------------------------------------------------------------


class _Side(NamedTuple):
    """Border cells on one side: operands, forward edges, vertex numbers (-1 without a value)."""

    cells: np.ndarray
    bits: np.ndarray
    vertex: np.ndarray

    def part(self, start: int, stop: int | None) -> _Side:
        return _Side(*(a[start:stop] for a in self))

    def renumbered(self, number: np.ndarray) -> _Side:
        """The same with new vertex numbers; the last of `number` is -1 and stays so."""
        return _Side(self.cells, self.bits, number[self.vertex])

    def followed_by(self, other: _Side) -> _Side:
        return _Side(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


@dataclass
class _Edges:
    """Edges, each of the grid or the largest of the path it stands for.

    Attributes
    ----------
    keys, ids
        Weight keys, and global ids ``4 * cell + direction``.
    us, vs
        int32 vertex numbers of the ends.
    tree
        Whether it is in the forest.
    strange
        Id of an edge of its path that is not in the forest; -1 without one.
    """

    keys: np.ndarray
    ids: np.ndarray
    us: np.ndarray
    vs: np.ndarray
    tree: np.ndarray
    strange: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return (getattr(self, f.name) for f in fields(self))

    def first(self, count: int) -> _Edges:
        return _Edges(*(a[:count] for a in self))

    def take(self, index: np.ndarray) -> _Edges:
        # Unlike a[index], np.take lets other threads run.
        return _Edges(*(np.take(a, index) for a in self))

    def shifted(self, first: int) -> _Edges:
        """The same between vertices that are numbered from `first`."""
        ends = self.us + np.int32(first), self.vs + np.int32(first)
        return _Edges(self.keys, self.ids, *ends, self.tree, self.strange)


@dataclass
class _CheckedPiece:
    """A checked rectangle.

    Attributes
    ----------
    window
        (row0, row1, col0, col1) in the raster.
    sides
        Top, bottom, left, right; empty on the rim of the raster.
    size
        Vertices that are left: border cells, and branches between them.
    edges
        The kept edges between them.
    """

    window: Window
    sides: tuple[_Side, ...]
    size: int
    edges: _Edges


@dataclass
class _Tally:
    """Sums over pieces.

    Attributes
    ----------
    vertices, edges, checked
        Cells with a value, edges of the forest, edges of the grid.
    exact
        Sum of the forest's weights, see `_ForestChecker.total`.
    missing
        Least id of the edges that stay although they are not in the forest; -1 without one.
    """

    vertices: int = 0
    edges: int = 0
    checked: int = 0
    exact: int | float = 0
    missing: int = -1

    def merge(self, other: _Tally) -> None:
        self.vertices += other.vertices
        self.edges += other.edges
        self.checked += other.checked
        self.weigh(other.exact)
        self.miss(other.missing)

    def weigh(self, exact: int | float) -> None:
        # Infinity takes no part in sums: integers as long as these do not fit a float.
        infinite = isinstance(exact, float) or isinstance(self.exact, float)
        self.exact = math.inf if infinite else self.exact + exact

    def miss(self, edge: int) -> None:
        if edge >= 0:
            self.missing = edge if self.missing < 0 else min(self.missing, edge)


class _Joiner:
    """Joins the pieces of a grid of them, given in any order: pairs across, pairs down, again."""

    def __init__(self, checker: _ForestChecker, shape: tuple[int, int]) -> None:
        self._checker, self._shape = checker, shape
        self._waiting: dict[tuple[int, int, int], _CheckedPiece] = {}
        self.whole: _CheckedPiece | None = None

    def add(self, i: int, j: int, piece: _CheckedPiece, tally: _Tally) -> None:
        down, across = self._shape
        step = 0
        while down > 1 or across > 1:
            beside = step % 2 == 0
            other = (step, i, j ^ 1) if beside else (step, i ^ 1, j)
            if other[1] < down and other[2] < across:
                if other not in self._waiting:
                    self._waiting[step, i, j] = piece
                    return
                first, second = self._waiting.pop(other), piece
                if (i, j) < other[1:]:
                    first, second = second, first
                piece = self._checker.join(first, second, beside, tally)
            if beside:
                j, across = j // 2, ceil_div(across, 2)
            else:
                i, down = i // 2, ceil_div(down, 2)
            step += 1
        self.whole = piece


# -- checking ------------------------------------------------------------------------------


class _ForestChecker:
    """Checks pieces and joins them. It keeps no state, so threads share it."""

    def __init__(
        self,
        blocks: BlockGrid,
        weight: Weight,
        nodata: float | int | None,
        connectivity: int,
        unit: int,
    ) -> None:
        if connectivity not in (4, 8):
            raise InputError(f"connectivity {connectivity} is not 8 or 4")
        self.rows, self.cols = blocks.rows, blocks.cols
        self.weight, self.nodata, self.unit = weight, nodata, unit
        self.diagonal = connectivity == 8

    def block(
        self, window: Window, data: np.ndarray, bits: np.ndarray
    ) -> tuple[_CheckedPiece, _Tally]:
        """Check a block, piece by piece."""
        r0, r1, c0, c1 = window
        down, across = ceil_div(r1 - r0, self.unit), ceil_div(c1 - c0, self.unit)
        joiner, tally = _Joiner(self, (down, across)), _Tally()
        for i in range(down):
            for j in range(across):
                row, col = i * self.unit, j * self.unit
                rows = slice(row, min(row + self.unit, r1 - r0))
                cols = slice(col, min(col + self.unit, c1 - c0))
                corner = r0 + row, c0 + col
                piece = self.piece(corner, data[rows, cols], bits[rows, cols], tally)
                joiner.add(i, j, piece, tally)
        assert joiner.whole is not None
        return joiner.whole, tally

    def piece(
        self, corner: tuple[int, int], data: np.ndarray, bits: np.ndarray, tally: _Tally
    ) -> _CheckedPiece:
        """Check the cells of a piece whose upper left cell is `corner`."""
        rows, cols = data.shape
        window = (corner[0], corner[0] + rows, corner[1], corner[1] + cols)
        cells, valid, bits = self.weight.operands(data), valid_cells(data, self.nodata), bits.copy()
        keys = np.empty((4, rows, cols), self.weight.key_dtype)
        keys[0, :, :-1] = self.keys(cells[:, :-1], cells[:, 1:])
        keys[1, :-1, 1:] = self.keys(cells[:-1, 1:], cells[1:, :-1])
        keys[2, :-1] = self.keys(cells[:-1], cells[1:])
        keys[3, :-1, :-1] = self.keys(cells[:-1, :-1], cells[1:, 1:])
        edges = _Edges(
            np.empty(4 * data.size, keys.dtype),
            np.empty(4 * data.size, np.int64),
            np.empty(4 * data.size, np.int32),
            np.empty(4 * data.size, np.int32),
            np.empty(4 * data.size, np.bool_),
            np.empty(4 * data.size, np.int64),
        )
        count, wrong, fault = _list_edges(
            bits, valid, keys, self.diagonal, corner, (self.rows, self.cols), tuple(edges)
        )
        if fault:
            raise self.violation("edges", wrong, _FAULTS[fault])
        edges = edges.first(count)
        self.count(edges, tally)
        tally.vertices += int(np.count_nonzero(valid))
        vertex = np.arange(data.size, dtype=np.int32).reshape(data.shape)
        vertex[~valid] = -1
        sides = tuple(
            _Side(*(a[at].copy() for a in (cells, bits, vertex)))
            for at in ((0,), (-1,), (slice(None), 0), (slice(None), -1))
        )
        return self.reduced(window, sides, data.size, edges, np.arange(count), tally)

    def join(
        self, one: _CheckedPiece, other: _CheckedPiece, beside: bool, tally: _Tally
    ) -> _CheckedPiece:
        """Two pieces as one: the second is right of the first, or below it."""
        r0, _, c0, _ = one.window
        _, r1, _, c1 = other.window
        number = np.arange(one.size, one.size + other.size + 1, dtype=np.int32)
        number[-1] = -1
        above, under, left, right = one.sides
        top, bottom, west, east = (side.renumbered(number) for side in other.sides)
        if beside:
            row, col, step = r0, one.window[3] - 1, (1, 0)
            found = [
                self.between(right, west, 0, (row, col), step, tally),
                self.between(west.part(0, -1), right.part(1, None), 1, (row, col + 1), step, tally),
                self.between(right.part(0, -1), west.part(1, None), 3, (row, col), step, tally),
            ]
            sides = (above.followed_by(top), under.followed_by(bottom), left, east)
        else:
            row, col, step = one.window[1] - 1, c0, (0, 1)
            found = [
                self.between(under.part(1, None), top.part(0, -1), 1, (row, col + 1), step, tally),
                self.between(under, top, 2, (row, col), step, tally),
                self.between(under.part(0, -1), top.part(1, None), 3, (row, col), step, tally),
            ]
            sides = (above, bottom, left.followed_by(west), right.followed_by(east))
        lists = [one.edges, other.edges.shifted(one.size), *found]
        edges = _Edges(*(np.concatenate(arrays) for arrays in zip(*lists, strict=True)))
        size = one.size + other.size
        return self.reduced((r0, r1, c0, c1), sides, size, edges, np.argsort(edges.ids), tally)

    def between(
        self,
        lower: _Side,
        upper: _Side,
        direction: int,
        first: tuple[int, int],
        step: tuple[int, int],
        tally: _Tally,
    ) -> _Edges:
        """Edges from each cell of `lower` to that of `upper`; the first lower cell is `first`."""
        count = len(lower.cells) if self.diagonal or direction % 2 == 0 else 0
        lower, upper = lower.part(0, count), upper.part(0, count)
        along = np.arange(count)
        ids = (first[0] + along * step[0]) * self.cols + first[1] + along * step[1]
        ids = 4 * ids + direction
        tree = (lower.bits >> direction) & 1 != 0
        good = (lower.vertex >= 0) & (upper.vertex >= 0)
        if (tree & ~good).any():
            raise self.violation("edges", int(ids[tree & ~good][0]), _FAULTS[_NODATA])
        ids, tree = ids[good], tree[good]
        keys = self.keys(lower.cells[good], upper.cells[good])
        ends = lower.vertex[good], upper.vertex[good]
        edges = _Edges(keys, ids, *ends, tree, np.where(tree, -1, ids))
        self.count(edges, tally)
        return edges

    def reduced(
        self,
        window: Window,
        sides: tuple[_Side, ...],
        size: int,
        edges: _Edges,
        order: np.ndarray,
        tally: _Tally,
    ) -> _CheckedPiece:
        """Check edges against each other; what is left for the pieces around.

        `order` has the edges by id.
        """
        order = _sorted(edges.keys, order)
        kept, wrong = _kruskal(order, edges.us, edges.vs, edges.tree, size)
        if wrong >= 0:
            raise self.left_out(edges, kept, wrong, size)
        edges = edges.take(kept)
        r0, r1, c0, c1 = window
        inside = (r0 > 0, r1 < self.rows, c0 > 0, c1 < self.cols)
        sides = tuple(s if near else s.part(0, 0) for s, near in zip(sides, inside, strict=True))
        terminal = np.zeros(size, np.bool_)
        for side in sides:
            terminal[side.vertex[side.vertex >= 0]] = True
        number, left, best, us, vs, strange, missing = _skeleton(
            edges.us, edges.vs, edges.tree, edges.strange, terminal
        )
        if missing >= 0:
            tally.miss(int(edges.ids[missing]))
        keys, ids, tree = (np.take(a, best) for a in (edges.keys, edges.ids, edges.tree))
        edges = _Edges(keys, ids, us, vs, tree, strange)
        return _CheckedPiece(window, tuple(side.renumbered(number) for side in sides), left, edges)

    def keys(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Weights between operands, as unsigned integers in their order."""
        if self.weight.subtracts_floats:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.abs(a - b).view(self.weight.key_dtype)
        high = np.maximum(a, b)
        return high if self.weight.name == "max" else high - np.minimum(a, b)

    # -- sums ------------------------------------------------------------------------------

    def count(self, edges: _Edges, tally: _Tally) -> None:
        """Add edges of the grid to the sums."""
        keys = np.compress(edges.tree, edges.keys)
        tally.checked += len(edges.keys)
        tally.edges += len(keys)
        tally.weigh(self.exact(keys))

    def exact(self, keys: np.ndarray) -> int | float:
        """Sum of keys; for real cells of weights, in units of 2**-1126, or infinity."""
        if self.weight.dtype.kind != "f":
            # In halves: the sum of whole keys may not fit.
            half = 4 * keys.itemsize
            low, high = keys & keys.dtype.type(2**half - 1), keys >> keys.dtype.type(half)
            return int(low.sum(dtype=np.uint64)) + (int(high.sum(dtype=np.uint64)) << half)
        if not self.weight.subtracts_floats:
            sign = keys.dtype.type(1) << keys.dtype.type(8 * keys.itemsize - 1)
            keys = np.where(keys & sign, keys ^ sign, ~keys)
        values = keys.view(self.weight.dtype).astype(np.float64)
        if np.isinf(values).any():
            return math.inf
        fraction, exponent = np.frexp(values)
        whole = (fraction * 2.0**53).astype(np.int64)
        # In halves, because bincount sums in float64, which is exact below 2**53.
        shift = exponent.astype(np.int64) + 1073
        low, high = (np.bincount(shift, part) for part in (whole & (2**27 - 1), whole >> 27))
        return sum(
            (int(low[k]) + (int(high[k]) << 27)) << k
            for k in np.flatnonzero((low != 0) | (high != 0)).tolist()
        )

    def total(self, tally: _Tally) -> int | float:
        """The sum of weights: exact for integers, correctly rounded for real cells."""
        dtype = self.weight.dtype
        if isinstance(tally.exact, float):
            return tally.exact
        if dtype.kind == "f":
            try:
                return float(Fraction(tally.exact, 2**1126))
            except OverflowError:
                return math.inf if tally.exact > 0 else -math.inf
        least = int(np.iinfo(dtype).min) if self.weight.name == "max" else 0
        return tally.exact + tally.edges * least

    def result(self, tally: _Tally, expected: dict[str, Any] | None) -> dict[str, Any]:
        """What is found of a right forest; its totals have to be the recorded ones."""
        found = {
            "edges": tally.edges,
            "components": tally.vertices - tally.edges,
            "total_weight": self.total(tally),
        }
        for key, value in found.items():
            if expected is None:
                break
            recorded = expected[key]
            if (float(recorded) if isinstance(recorded, str) else recorded) != value:
                raise VerificationError(
                    f"wrong totals: {key} is recorded as {recorded} and is {value}", "totals"
                )
        return {**found, "checked_edges": tally.checked, "all_edges": True}

    # -- violations ------------------------------------------------------------------------

    def violation(self, check: str, edge: int, text: str) -> VerificationError:
        cell = edge >> 2
        return VerificationError(
            f"{_PROPERTIES[check]}: edge {self.name(edge)} {text}",
            check,
            cell // self.cols,
            cell % self.cols,
        )

    def left_out(self, edges: _Edges, kept: np.ndarray, wrong: int, size: int) -> VerificationError:
        """Why edge `wrong` of the forest is left out when the edges `kept` are there."""
        terminal = np.zeros(size, np.bool_)
        terminal[[edges.us[wrong], edges.vs[wrong]]] = True
        kept_edges = edges.take(kept)
        _, _, best, _, _, strange, _ = _skeleton(
            kept_edges.us, kept_edges.vs, kept_edges.tree, kept_edges.strange, terminal
        )
        # What is left is the path between its ends, as one edge; `wrong` may stand for a path too.
        edge, strange_id = int(edges.ids[wrong]), max(int(strange[0]), int(edges.strange[wrong]))
        if strange_id < 0:
            another = self.name(int(kept_edges.ids[best[0]]))
            return self.violation("acyclic", edge, f"closes a cycle through {another}")
        other = self.name(strange_id)
        return self.violation(
            "minimal",
            edge,
            f"is the largest of a cycle through {other}, which is not in the forest",
        )

    def name(self, edge: int) -> str:
        row, col = divmod(edge >> 2, self.cols)
        down, right = DIRECTIONS[edge & 3]
        return f"(row {row}, column {col})-(row {row + down}, column {col + right})"


_PROPERTIES = {
    "edges": "not an edge of the grid",
    "acyclic": "not acyclic",
    "spanning": "not spanning",
    "minimal": "not minimal",
}

_NODATA, _LEAVES, _DIAGONAL, _UNKNOWN = 1, 2, 3, 4
_FAULTS = {
    _NODATA: "ends at a cell without a value",
    _LEAVES: "leaves the raster",
    _DIAGONAL: "is diagonal, but cells have 4 neighbours",
    _UNKNOWN: "stands at a cell with bits that mean no edge",
}


@jit
def _list_edges(bits, valid, keys, diagonal, corner, shape, out):
    """All edges inside a piece, by id: (their number, a wrong edge, its fault or 0).

    `out` are the arrays of an `_Edges`; vertices are ``row * cols + col`` in the piece.
    """
    rows, cols = bits.shape
    out_keys, ids, us, vs, tree, strange = out
    count = 0
    for row in range(rows):
        for col in range(cols):
            first = 4 * ((corner[0] + row) * shape[1] + corner[1] + col)
            have = np.int64(bits[row, col])
            if have > 15:
                return count, first, _UNKNOWN
            for d in range(4):
                y = row + (d > 0)
                x = col + (1 if d == 0 else d - 2)
                chosen = have >> d & 1 != 0
                inside = y < rows and x >= 0 and x < cols
                if chosen:
                    if d & 1 and not diagonal:
                        return count, first + d, _DIAGONAL
                    if corner[0] + y >= shape[0] or not 0 <= corner[1] + x < shape[1]:
                        return count, first + d, _LEAVES
                    if not valid[row, col] or (inside and not valid[y, x]):
                        return count, first + d, _NODATA
                if not inside or not valid[row, col] or not valid[y, x]:
                    continue
                if d & 1 and not diagonal:
                    continue
                out_keys[count] = keys[d, row, col]
                ids[count] = first + d
                us[count] = row * cols + col
                vs[count] = y * cols + x
                tree[count] = chosen
                strange[count] = -1 if chosen else first + d
                count += 1
    return count, -1, 0


@jit
def _sorted(keys, order):
    """`order` sorted by key, stably: radix sort from the least digit; equal digits are skipped."""
    digit = np.uint64(2047)
    varying = np.uint64(0)
    for e in order:
        varying |= np.uint64(keys[e]) ^ np.uint64(keys[order[0]])
    spare = np.empty_like(order)
    counts = np.empty(2049, np.int64)
    shift = np.uint64(0)
    while shift < 64 and varying >> shift:
        if varying >> shift & digit:
            counts[:] = 0
            for e in order:
                counts[np.int64(np.uint64(keys[e]) >> shift & digit) + 1] += 1
            for k in range(2048):
                counts[k + 1] += counts[k]
            for e in order:
                k = np.int64(np.uint64(keys[e]) >> shift & digit)
                spare[counts[k]] = e
                counts[k] += 1
            order, spare = spare, order
        shift += np.uint64(11)
    return order


@jit
def _find(parent, v):
    """Root of `v`, halving the path on the way (R. Tarjan and J. van Leeuwen 1984)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@jit
def _kruskal(order, us, vs, tree, size):
    """Edges that join two parts, in order, and -1; or those before a `tree` edge that does not."""
    parent = np.arange(size, dtype=np.int32)
    kept = np.empty(size, np.int64)
    count = 0
    for e in order:
        u, v = _find(parent, us[e]), _find(parent, vs[e])
        if u != v:
            parent[max(u, v)] = min(u, v)
            kept[count] = e
            count += 1
        elif tree[e]:
            return kept[:count], e
    return kept[:count], -1


@jit
def _skeleton(us, vs, tree, strange, terminal):
    """What a forest, its edges in ascending order, is between terminals.

    Dead ends are removed and paths without a branch contracted to their largest edge.

    Returns
    -------
    number, left
        New numbers of the vertices that are left, -1 for the others and after the last, and how
        many are left.
    best, us, vs, strange
        The edges that are left: largest edge of the path, ends in new numbers, and an edge of the
        path that is not in the forest to be verified, or -1.
    missing
        Some edge that went, so that it belongs to the minimum spanning forest, and is none of the
        forest to be verified; -1 without one.
    """
    size, edges = len(terminal), len(us)
    degree = np.zeros(size, np.int32)
    # The exclusive or of a vertex's edges: with all but one of them known, it gives that one.
    mixed = np.zeros(size, np.int64)
    for e in range(edges):
        for v in (us[e], vs[e]):
            degree[v] += 1
            mixed[v] ^= e
    missing = -1
    # 1. Dead ends.
    alive = np.ones(edges, np.bool_)
    for start in range(size):
        v = start
        while degree[v] == 1 and not terminal[v]:
            e = mixed[v]
            alive[e] = False
            if not tree[e]:
                missing = e
            degree[v] = 0
            v = us[e] ^ vs[e] ^ v
            degree[v] -= 1
            mixed[v] ^= e
    # 2. New numbers.
    number = np.full(size + 1, -1, np.int32)
    left = 0
    for v in range(size):
        if terminal[v] or degree[v] > 2:
            number[v] = left
            left += 1
    # 3. Paths, from the end with the smaller first edge.
    most = max(2 * left, 1)
    out_best, out_strange = np.empty(most, np.int64), np.empty(most, np.int64)
    out_us, out_vs = np.empty(most, np.int32), np.empty(most, np.int32)
    count = 0
    for first in range(edges):
        if not alive[first]:
            continue
        for start in (us[first], vs[first]):
            if number[start] < 0:
                continue
            e = best = first
            odd = strange[first]
            gone = -1
            v = us[e] ^ vs[e] ^ start
            while number[v] < 0:
                e = mixed[v] ^ e
                v = us[e] ^ vs[e] ^ v
                odd = max(odd, strange[e])
                less = min(best, e)
                best = max(best, e)
                if not tree[less]:
                    gone = less
            if e < first:
                continue
            if gone >= 0:
                missing = gone
            out_best[count], out_strange[count] = best, odd
            out_us[count], out_vs[count] = number[start], number[v]
            count += 1
            if e == first:
                break
    return (
        number,
        left,
        out_best[:count],
        out_us[:count],
        out_vs[:count],
        out_strange[:count],
        missing,
    )
