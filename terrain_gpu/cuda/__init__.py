"""The CUDA backend: kernels in CUDA C++, loaded by CuPy. Nothing here is imported without a GPU."""
