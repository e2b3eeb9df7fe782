"""CUDA C++ sources, compiled at first use; see `cuda.device`."""
