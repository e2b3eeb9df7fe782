"""Shortest paths over a raster, block by block.

`costs` says what a step costs, `tile` relaxes 64 x 64 cells in cache, `block` the tiles of a block
in order, `relax` the blocks of a raster (phase 2). `finalise` finds predecessors and `allocate` the
sources they lead to (phase 3); `pipeline` streams it all from and to a store, and `gpu` does the
same on a GPU. `index` is another way there, of which a part is computed once, and `verify` proves
what was found. `sources`, `vectors` and `trace` read where paths begin and end, and write them; see
docs/design/shortest-paths.md.
"""

from ..io.places import Sources
from .pipeline import ShortestPaths, shortest_paths

__all__ = ["ShortestPaths", "Sources", "shortest_paths"]
