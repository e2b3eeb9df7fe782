"""The spanning forest on the CPU: numba kernels for tiles, blocks and joins of blocks."""
