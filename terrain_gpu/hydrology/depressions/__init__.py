"""The hierarchy of depressions: which spill into which, at which heights.

`kernels` merges catchments along the spanning forest; `block` does so within a block, `state`
between blocks, `table` adds up areas and volumes, and `operation` runs them.
"""
