"""The distance index: precomputed distances between the rim cells of every tile.

A tile of 64 x 64 cells has 252 rim cells. For every tile, the index holds the distances between
them along paths within the tile (half of them if costs are symmetric), and the costs of steps into
them from other tiles. From these, the distances of all rim cells can be computed for any sources,
without reading cells. It is phase 1 of docs/design/shortest-paths.md. The files form a Zarr array,
see `Index`.

`tile` has the kernels and `files` the index on disk. `operation` builds it, on a GPU with `gpu`,
with larger squares by `levels`, through `writer`; `build` is the function for users. `stored`
verifies the index of a store. `solve` computes distances from the index, `search` those of pairs.
"""

from .build import build_index
from .files import Index, index_dtype, index_settings
from .solve import FromIndex, rims_bytes

__all__ = [
    "FromIndex",
    "Index",
    "build_index",
    "index_dtype",
    "index_settings",
    "rims_bytes",
]
