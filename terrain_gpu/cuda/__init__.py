"""The CUDA backend: whether it works, and what the drivers of kernels share."""
