"""Shortest paths on the CPU: numba kernels; blocks are visited in the order of distance."""
