"""Hydrology: a folder for each command, and what they share.

- `common`: what codes, sums and outlets mean, for operations and proofs alike
- `forest`: the spanning forest, rooted: water follows it
- `along_flow`: passes along flow directions
- `divided_flow`: passes along flow over several directions

No command imports these: `chain` computes the layers that another one needs, `needs` says which,
and `completing` does so for functions.
"""
