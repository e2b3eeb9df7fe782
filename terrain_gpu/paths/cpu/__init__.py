"""Shortest paths on the CPU: numba kernels, and blocks in the order of their distances."""
