"""Where the water of a rain comes to rest: fill-spill-merge.

`block` finds the catchments of a block, `kernels` computes on cells and on the tree of pools,
`pools` is that tree for all blocks, `table` lists depressions, and `operation` runs them.
"""
