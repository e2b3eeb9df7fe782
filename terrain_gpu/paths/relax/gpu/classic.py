"""Classical methods to relax a raster in GPU memory, for comparison with `Piece.relax`.

`relax_array` processes large blocks one at a time, in the order of a tournament tree on the host.
The whole GPU sweeps over a block, with an array of flags for the cells that changed. `tournament`
processes all pending blocks, which are small, at once: each warp runs Dijkstra's algorithm on a
block, with a tournament tree. Distances are the unique fixed point of relaxation, so all methods
give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cuda.device import module
from ....facts import Settings
from ....grid import Window, ceil_div, clip
from ....primitives.tournament import NOBODY, challenge, first, leave, new_tree
from ...cost.edges import infinity_of
from ..relaxation import GUARDS, Overflow

if TYPE_CHECKING:
    from .piece import Piece

ARRAY_BLOCK = 1024
"""Side of the blocks of `relax_array`, in cells."""

TOURNAMENT_BLOCK = 32
"""Side of the blocks of `tournament`: SIDE in kernels/classic.cu."""

SWEEPS = 64
"""Number of sweeps over a block between tests for convergence."""


class _PieceField:
    """The distances of a piece, flags of cells that are pending, and the keys of blocks."""

    def __init__(self, piece: Piece, side: int) -> None:
        import cupy

        self.piece, self.dtype = piece, piece.dtype
        shape = piece.shape
        self.side, self.across = side, ceil_div(shape.cols, side)
        self.blocks = ceil_div(shape.rows, side) * self.across
        self.infinity = infinity_of(np.empty(0, self.dtype))
        self.guard = GUARDS[self.dtype.itemsize] if self.dtype.kind == "u" else self.infinity
        self.flags = cupy.zeros(ceil_div(shape.cells, 32), np.uint32)
        self.keys = cupy.full(self.blocks, self.infinity, self.dtype)
        self._kernels = module("classic", macros(piece.relaxing.macros))
        self.launch(
            "begin",
            shape.rows * shape.cols,
            *(shape.rows, shape.cols, shape.pitch, piece.distances),
            *(self.flags, self.keys, side, self.across),
        )

    @property
    def limit(self) -> Any:
        """Larger distances are not propagated; those beyond the guard are detected at the end."""
        return self.dtype.type(min(self.piece.relaxing.farthest, self.guard))

    def launch(self, name: str, cells: int, *arguments: object) -> None:
        """Run a kernel with one thread per cell."""
        grid = min(ceil_div(cells, 256), 1 << 16)
        self._kernels.get_function(name)((grid,), (256,), arguments)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        piece = self.piece
        raster = piece.heights, piece.frictions, piece.lengths
        places = piece.shape.padded, piece.shape.pitch, piece.distances, self.flags, self.keys
        blocks = self.side, self.across
        return *raster, *places, *blocks, piece.relaxing.parameters, self.limit

    def window(self, block: int) -> Window:
        """Cells of a block, clipped to the raster."""
        row, col = (k * self.side for k in divmod(block, self.across))
        whole = 0, self.piece.shape.rows, 0, self.piece.shape.cols
        return clip((row, row + self.side, col, col + self.side), whole)

    def sweep(self, block: int) -> int:
        """Sweep over a block until none of its cells has a flag; returns the number of sweeps."""
        import cupy

        r0, r1, c0, c1 = self.window(block)
        arguments = *self._arguments, r0, c0, r1 - r0, c1 - c0
        kernel, threads = self._kernels.get_function("sweep"), (32, 8)
        grid = ceil_div(c1 - c0, threads[0]), ceil_div(r1 - r0, threads[1])
        last = cupy.zeros(1, np.int64)
        cupy.cuda.Device().synchronize()
        rounds = 0
        with cupy.cuda.Stream(non_blocking=True) as stream:
            # Recorded once as a graph, because a sweep takes less time than its launch.
            stream.begin_capture()
            last.fill(0)
            for number in range(1, SWEEPS + 1):
                kernel(grid, threads, (*arguments, number, last))
            batch = stream.end_capture()
            while not rounds or int(last[0]) == SWEEPS:
                batch.launch(stream)
                rounds += 1
        return rounds * SWEEPS

    def play(self, blocks: Any) -> None:
        """Run Dijkstra's algorithm in some blocks."""
        kernel = self._kernels.get_function("play")
        kernel((len(blocks),), (32,), (*self._arguments, blocks))

    def refuse_overflow(self) -> None:
        """Raise `Overflow` if a distance exceeds the guard.

        Such distances were not propagated, so smaller ones are correct in any order.
        """
        import cupy

        found = cupy.zeros(1, np.uint32)
        distances, guard = self.piece.distances, self.dtype.type(self.guard)
        self.launch("beyond", len(distances), distances, len(distances), guard, found)
        if int(found[0]):
            raise Overflow


def macros(of_paths: Settings) -> Settings:
    """Macros of kernels/classic.cu, from those of kernels/paths.cu."""
    return {name: v for name, v in of_paths.items() if name not in ("WARPS", "TILE_BYTES")}


def relax_array(piece: Piece, between: Callable[[], None]) -> dict[str, int]:
    """Relax a piece from its seeds: always the block with the least key.

    Parameters
    ----------
    between
        Called from time to time.

    Returns
    -------
    counts
        "visits" of tiles of 32 x 32 cells, and the "number" of sweeps.

    Raises
    ------
    Overflow
        when integer distances overflow.
    """
    field = _PieceField(piece, ARRAY_BLOCK)
    players = np.arange(field.blocks)
    keys = np.full(len(players), field.infinity, field.dtype)
    tree = new_tree(len(players))
    visits = sweeps = 0
    while True:
        found = field.keys.get()
        for player in np.flatnonzero(found < keys):
            keys[player] = found[player]
            challenge(tree, keys, players, player)
        chosen = first(tree)
        if chosen == NOBODY or keys[chosen] > field.limit:
            break
        leave(tree, keys, players, chosen)
        keys[chosen] = field.keys[chosen] = field.infinity
        sweeps += field.sweep(int(chosen))
        r0, r1, c0, c1 = field.window(int(chosen))
        visits += ceil_div(r1 - r0, TOURNAMENT_BLOCK) * ceil_div(c1 - c0, TOURNAMENT_BLOCK)
        between()
    field.refuse_overflow()
    return {"visits": visits, "number": sweeps}


def tournament(piece: Piece, between: Callable[[], None]) -> dict[str, int]:
    """Relax a piece from its seeds, in rounds over all pending blocks; see `relax_array`.

    Returns
    -------
    counts
        "visits" of blocks, and the "number" of rounds.
    """
    import cupy

    field = _PieceField(piece, TOURNAMENT_BLOCK)
    visits = rounds = 0
    while True:
        pending = cupy.flatnonzero((field.keys < field.infinity) & (field.keys <= field.limit))
        if not len(pending):
            break
        field.keys[pending] = field.infinity
        field.play(pending)
        visits, rounds = visits + len(pending), rounds + 1
        between()
    field.refuse_overflow()
    return {"visits": visits, "number": rounds}


RELAXERS = {"relax-array": relax_array, "tournament": tournament}

__all__ = ["RELAXERS"]
