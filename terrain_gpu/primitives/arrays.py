"""Where arrays lie, and where to compute on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..cuda.device import choose
from ..errors import InputError


def on_gpu(array: Any) -> bool:
    """Whether this is an array on a GPU."""
    return hasattr(array, "__cuda_array_interface__")


@contextmanager
def placed(
    backend: str, device: int, *arrays: Any
) -> Iterator[tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Choose the backend for a call with these arrays.

    Yields
    ------
    xp, take, give
        numpy or cupy; what brings an argument there, as an array; and what brings a result to where
        the arguments lay. Arrays on a GPU are not copied.
    """
    resident = [array for array in arrays if on_gpu(array)]
    if resident and backend == "cpu":
        raise InputError("arrays lie on the GPU: use backend 'cuda', or give numpy arrays")
    if resident:
        device = getattr(getattr(resident[0], "device", None), "id", device)
    chosen, _ = choose("cuda" if resident else backend, device)
    if chosen == "cpu":
        yield np, np.asarray, lambda result: result
        return
    import cupy

    with cupy.cuda.Device(device):
        yield cupy, cupy.asarray, (lambda result: result) if resident else cupy.asnumpy


def integers(name: str, array: Any) -> Any:
    """Check that an array has one dimension and integers; int32 or int64, contiguous."""
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; one dimension is needed")
    if array.dtype.kind not in "iu":
        if not array.size:  # an empty list is an array of floats
            return array.astype(np.int64)
        raise InputError(f"{name} is of {array.dtype.name}; integers are needed")
    if array.dtype not in (np.int32, np.int64):
        array = array.astype(np.int64)
    return array if array.flags.c_contiguous else array.copy()
