"""Proof that distances, backlinks and allocation are correct: `verify_paths`.

The proof shares with the solver only the definition of the problem: the cells, the cost of a step,
and how a step is added to a distance. Distances are the shortest ones if and only if

- every source has at most its start value, and no step leads to a cell for less than its distance;
  so no distance is too large;
- every reached cell is a source at its start value or has a *tight* predecessor, from which a step
  gives exactly its distance, and following predecessors ends at a source; so every distance is the
  cost of a path.

Each block is read once, with one ring of cells around it. A tight predecessor that is strictly
nearer cannot be part of a cycle. Others can, on flats, where steps cost nothing. The cells of each
flat are united, first within blocks and then across their rims, and every flat must contain a
source or a cell with a nearer predecessor. If a step may cost nothing in one direction only, the
proof instead spreads from such cells along the steps, block by block until nothing changes. Memory
is O(boundary), except for the path that is traced to find which id is wrong.

A backlink names one predecessor of each cell, so backlinks need not be followed either: on flats,
the cells are united along their backlinks only. A set of n cells in which every backlink stays
within the set has n such steps, and so a cycle; any other set is a tree, and one of its cells is a
source or has a nearer predecessor. Ids are then correct if each cell has the id of its predecessor,
and each source its own.

`checker` iterates over the blocks, in this process or in the workers of a cluster. `blocks` and
`kernels` check their cells, `gpu` does so on a GPU, `stored` reads the problem from a store, and
`roots` finds its sources.
"""

from .checker import RingAcrossSeam, ring_of, threads_within, upper_limit, verify_paths
from .roots import CheckedCells, KnownRoots
from .stored import verify_stored

__all__ = [
    "CheckedCells",
    "KnownRoots",
    "RingAcrossSeam",
    "ring_of",
    "threads_within",
    "upper_limit",
    "verify_paths",
    "verify_stored",
]
