"""Least-cost breaching of depressions.

`kernels` finds pits and ways in a block, `pits` joins flats over blocks, `operation` has the passes
over all blocks.
"""
