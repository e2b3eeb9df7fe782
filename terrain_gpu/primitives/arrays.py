"""The choice of device for computations on arrays."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

import numpy as np

from ..cuda.arrays import Array
from ..cuda.backend import Gpu, Placement, choose
from ..cuda.device import gpu_memory_errors
from ..engine.machine import NO_LIMIT
from ..errors import InputError

Result = TypeVar("Result")

Move = Callable[[Array], Array]
"""Brings an array to a device."""


def on_gpu(array: Array) -> bool:
    """Return whether this is an array on a GPU."""
    return hasattr(array, "__cuda_array_interface__")


def placed(
    backend: str,
    device: int,
    arrays: tuple[Array, ...],
    work: Callable[[ModuleType, Move, Move], Result],
) -> Result:
    """Work on arrays on the device of the backend, or on their own GPU.

    Parameters
    ----------
    work
        ``work(xp, take, give)``: `xp` is numpy or cupy, `take` brings an argument to that device,
        and `give` returns a result to the device of the arguments. Arrays on a GPU are not copied.
    """
    resident = [array for array in arrays if on_gpu(array)]
    if resident and backend == "cpu":
        raise InputError("arrays are on the GPU: use backend 'cuda', or give numpy arrays")
    if resident:
        device = getattr(getattr(resident[0], "device", None), "id", device)
        backend = "cuda"
    chosen, _ = choose(backend, device)
    gpu = None if chosen == "cpu" else Gpu(device, NO_LIMIT, False, wanted=backend == "cuda")

    def run(gpu: Gpu | None) -> Result:
        if gpu is None:
            return work(np, np.asarray, lambda result: result)
        import cupy

        give = (lambda result: result) if resident else cupy.asnumpy
        with (
            gpu_memory_errors("free some, or use numpy arrays and backend 'cpu'"),
            cupy.cuda.Device(gpu.device),
        ):
            return work(cupy, cupy.asarray, give)

    return Placement(gpu).run(run)


def integers(name: str, array: Array) -> Array:
    """Check for a one-dimensional array of integers; return it as contiguous int32 or int64."""
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; one dimension is needed")
    if array.dtype.kind not in "iu":
        if not array.size:  # an empty list is an array of floats
            return array.astype(np.int64)
        raise InputError(f"{name} is of {array.dtype.name}; integers are needed")
    if array.dtype not in (np.int32, np.int64):
        array = array.astype(np.int64)
    return array if array.flags.c_contiguous else array.copy()
