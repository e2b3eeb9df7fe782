"""Channels: the cells through which enough drains, as links between heads, junctions and outlets.

`inputs` opens directions and sums, `pieces` traces channels within a block, and `links` joins the
pieces of all blocks and orders them. `problem` is the operation that writes orders as a raster,
`line_problem` the one that writes links as lines; `streams` runs both.
"""
