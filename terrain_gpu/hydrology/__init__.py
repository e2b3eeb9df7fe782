"""Hydrology: a folder for each command, and what they share.

- `common`: what codes, sums and outlets mean, for operations and proofs alike
- `forest`: the spanning forest, rooted: water follows it
- `along_flow`: passes along flow directions
- `divided_flow`: passes along flow over several directions

`conditioning` computes what flow directions need: the spanning tree, of elevations that are burned,
breached or filled first. What other commands need is declared with their inputs.
"""
