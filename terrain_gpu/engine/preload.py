"""Imported by the server that workers are forked from: what they all need."""

from __future__ import annotations

import sys

import distributed.nanny  # noqa: F401
import numpy as np

from . import worker  # noqa: F401

if "numba" in sys.modules:  # an operation needs kernels: with the first one, numba loads the rest
    from ..store.crc_kernel import kernel

    if kernel is not None:
        kernel(np.zeros((1, 1), np.uint64), np.zeros(1, np.int64), np.zeros(1, np.uint32))
