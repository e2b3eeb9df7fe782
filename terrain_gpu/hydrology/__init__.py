"""Hydrology: a folder for each command, and what they share.

- `common`: what codes, sums and outlets mean, for operations and proofs alike
- `forest`: the spanning forest, rooted: water follows it
- `along_flow`: passes along flow directions
- `divided_flow`: passes along flow over several directions

A command needs layers of others. `needs` says which ones, `chain` computes those that are missing,
and `completing` has the functions of commands ask for them.
"""
