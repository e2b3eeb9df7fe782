"""Shared by the hydrology commands and their proofs.

`codes` defines the content of layers of directions, `sums` and `weights` that of layers of sums,
and `outlets` where water leaves the raster. `voids` finds voids that reach the edge of the raster,
`rims` holds values along the rims of blocks, and `flow_loops` reports the cells of a loop. Modules
named `proof_...` are for proofs only.
"""
