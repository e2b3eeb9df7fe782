"""Two classical methods for distances between rim cells on a GPU, for comparison with `relax`.

They are those of the thesis of 2012 (docs/design/origins.md), for many tiles at once. The first
keeps an updating array and a mask for all rim cells and runs two kernels in turn until nothing
changes; the second uses one thread and one tournament tree per tile. Distances are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .rim import rim_cells

if TYPE_CHECKING:
    from .gpu import GpuEntrySolver


def relax_arrays(
    solver: GpuEntrySolver, where: tuple[Any, ...], weights: Any, entries: Any
) -> None:
    """Compute distances by algorithms 6 to 8 of the thesis, which are `spread` and `settle`."""
    import cupy

    index, (_, _, tiles, _) = solver.index, where
    count, cells = rim_cells(index.tile), index.tile**2
    costs, updating = cupy.empty((2, tiles, count, cells), index.dtype)
    mask = cupy.empty((tiles, count, cells), np.uint8)
    changed = cupy.zeros(1, np.uint32)
    solver.launch("begin_arrays", costs.size, *where, solver.nothing, costs, updating, mask)
    busy = True
    while busy:
        changed.fill(0)
        solver.launch("spread", tiles * cells, tiles, weights, costs, updating, mask)
        solver.launch("settle", tiles * cells, tiles, costs, updating, mask, changed)
        busy = bool(changed.get()[0])
    how = tiles, count, np.int32(0), costs, np.int32(index.symmetric), index.entries(), entries
    solver.launch("gather", tiles * count * count, *how)


def tournament(solver: GpuEntrySolver, where: tuple[Any, ...], weights: Any, entries: Any) -> None:
    """Compute distances by algorithm 9 of the thesis: from one rim cell of all tiles at a time."""
    import cupy

    index, (_, _, tiles, _) = solver.index, where
    count, cells = rim_cells(index.tile), index.tile**2
    distances = cupy.empty((tiles, cells), index.dtype)
    done = cupy.empty((tiles, cells), np.uint8)
    tree = cupy.empty((tiles, 2 * cells), np.uint32)
    for b in map(np.int32, range(count)):
        held = solver.nothing, b, distances, done, tree
        solver.launch("compete", tiles, *where, weights, *held)
        how = tiles, 1, b, distances, np.int32(index.symmetric), index.entries(), entries
        solver.launch("gather", tiles * count, *how)


CLASSIC: dict[str, Callable[[Any, tuple[Any, ...], Any, Any], None]] = {
    "relax-array": relax_arrays,
    "tournament": tournament,
}


def scratch_bytes(method: str, tile: int, item: int) -> int:
    """GPU memory for one tile."""
    if method == "tournament":
        return tile**2 * (item + 1 + 8)
    return rim_cells(tile) * tile**2 * (2 * item + 1)
