"""What follows flow over several directions: each cell divides what drains through it.

`surface` opens heights and directions; `split` says how a cell divides; `visits` takes blocks as
they can go on, and `remote` has workers do so; `base` has the passes that operations share.
`operation` accumulates flow, which `kernels` passes on within a block; `hand` averages what is
downstream, which `upward` passes up.
"""
