"""The CUDA backend: finding a GPU, and code shared by the drivers of the kernels."""
