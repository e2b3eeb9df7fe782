"""Proof that distances, backlinks and allocation are right: `verify_paths`.

Nothing is shared with the program that finds distances but what defines the problem: which cells
there are, what a step costs, and how a step is joined to a distance. Distances are the shortest
ones exactly when

- every source is at most its start value, and no step leads to a cell for less than its distance:
  then no distance is too large;
- every reached cell is a source at its start value, or has a *tight* predecessor, from which a step
  gives exactly its distance, and going from predecessor to predecessor ends at a source: then every
  distance is the cost of a path.

Each block is read once, with one ring of cells around it. A tight predecessor that is strictly
nearer cannot be part of a circle. Others can: on flats, where steps cost nothing. With backlinks,
these are followed (`allocate.BacklinkForest`). Without, the cells of a flat are joined, in blocks
and then from rim to rim, and every flat must hold a cell with a nearer predecessor, or a source.
Where a step may cost nothing in one direction only, this is spread from such cells along the steps
instead, block by block until nothing changes. Memory is O(boundary) in all cases.

`checker` goes through the blocks, `kernels` look at their cells, `gpu` does so on a GPU, `stored`
reads the problem from a store.
"""

from .checker import CheckedCells, ring_of, threads_within, upper_limit, verify_paths
from .roots import KnownRoots
from .stored import verify_stored

__all__ = [
    "CheckedCells",
    "KnownRoots",
    "ring_of",
    "threads_within",
    "upper_limit",
    "verify_paths",
    "verify_stored",
]
