"""Searches for least costs over a raster.

`tile` relaxes 64 x 64 cells in cache, `block` relaxes the tiles of a block in order, and
`relaxation` the blocks of a raster (phase 2); `finalise` finds predecessors, and `allocate` the
sources they lead to (phase 3). `gpu` does the same on a GPU.
"""
