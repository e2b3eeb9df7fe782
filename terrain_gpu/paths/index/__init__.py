"""The distance index: distances between the rim cells of every tile, and solving from them.

A tile of 64 x 64 cells has 252 rim cells. The index holds, per tile, the distances between them
along ways inside of the tile (half of them where costs are symmetric), and the steps into them from
other tiles: all that other sources need to find the distances of all rims, without any cell. It is
phase 1 of docs/design/shortest-paths.md; the files are those of a Zarr array, see `Index`.

`tile` has the kernels, `files` the index on disk; `build` makes it, on a GPU with `gpu`; `solve`
computes distances from it.
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
