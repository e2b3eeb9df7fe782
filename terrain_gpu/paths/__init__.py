"""Shortest paths over a raster, block by block: a folder for each command, and what they share.

- `cost`: the cost of a step
- `relax`: searches, within tiles, blocks and rasters, on the CPU and on a GPU
- `proof`: proofs of distances, backlinks, allocation and paths

See docs/design/shortest-paths.md.
"""
