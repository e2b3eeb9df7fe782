"""What NumPy and CuPy share in annotations: CuPy has no types, and is not installed everywhere."""

from __future__ import annotations

from typing import Any

Array = Any
"""An array of NumPy or CuPy."""

DeviceArray = Any
"""A `cupy.ndarray`."""

DeviceKernel = Any
"""A `cupy.RawKernel`."""

DeviceModule = Any
"""A `cupy.RawModule`: the kernels of a file of ``cuda/kernels``."""
