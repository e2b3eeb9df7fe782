"""Flow in several directions: each cell divides its flow among its neighbours.

`surface` opens elevations and directions; `division` has the methods, and `split` divides the flow
of one cell; `kernels` passes flow on within a block. `visits` visits blocks in the order in which
flow reaches them, and `remote` does so on a cluster; `base` has the passes that operations share.
`flow_accumulation` adds up what drains through cells, and `hand` averages what is downstream.
"""
