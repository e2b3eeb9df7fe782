"""What follows flow over several directions: each cell divides what drains through it.

`surface` opens heights and directions; `split` says how a cell divides; `visits` takes blocks as
they can go on, and `remote` has workers do so; `base` has the passes that operations share.
`kernels` passes it on within a block. `division` has the methods. `flow_accumulation` adds up what
drains through cells, and `hand` averages what is downstream.
"""
