"""Operations along layers of D8 flow directions.

`kernels` follows the flow within a `block`; `entries` joins the blocks; `operation` has the passes
that all operations share.
"""
