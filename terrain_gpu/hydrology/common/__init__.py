"""What commands of hydrology and their proofs share.

`codes` says what layers of directions hold, `sums` and `weights` what layers of sums hold, and
`outlets` where water leaves. `voids` finds voids that reach the edge of the raster, `rims` keeps
what lies along the rims of blocks, and `flow_loops` names the cells of a loop. Modules named
`proof_...` serve proofs alone.
"""
