"""Channels: the cells through which enough drains, as links between heads, junctions and outlets.

`inputs` opens directions and sums, `pieces` traces channels within a block, and `links` joins the
pieces of all blocks and orders them. `orders` writes orders as a raster and `lines` links as
lines, both on `base`; `operation` has the function `streams`, which runs both.
"""
