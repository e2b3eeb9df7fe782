"""The spanning forest of a raster, rooted: block by block, with a skeleton between blocks.

`source` opens the forest and the elevations it was computed from, `block` roots it within a
block, and `skeleton` joins the contracted blocks. `drain` adds up along the rooted `tree`. `lines`
joins cells into polylines, and `features` writes them. `plan` plans the two passes.
"""
