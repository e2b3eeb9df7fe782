"""A stand-in for CuPy that runs kernels on the CPU, one thread in each block.

It shows that an algorithm and its kernels are right, where no GPU is; not that threads do not
disturb each other. Kernels that need several threads in a block cannot run.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from terrain_gpu.cuda import device

SHIM = r"""
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__ static
#define __syncthreads()
#define __syncwarp()
#define __threadfence()
#define __syncthreads_or(x) (x)
#define __ballot_sync(lanes, x) ((x) ? 1u : 0u)
#define __shfl_sync(lanes, x, lane) (x)
#define __shfl_down_sync(lanes, x, offset) 0
#define __popc __builtin_popcount
#define __ffs __builtin_ffs
using std::isfinite;
static struct { unsigned x; } threadIdx, blockIdx, blockDim = {1}, gridDim;
extern "C" void set_block(unsigned block, unsigned blocks) {
    blockIdx.x = block, gridDim.x = blocks;
}
template <class T, class U> T change(T* at, U value) { T old = *at; *at = (T)value; return old; }
template <class T, class U> T atomicAdd(T* at, U v) { return change(at, *at + v); }
template <class T, class U> T atomicSub(T* at, U v) { return change(at, *at - v); }
template <class T, class U> T atomicOr(T* at, U v) { return change(at, *at | v); }
template <class T, class U> T atomicMin(T* at, U v) { return change(at, (T)v < *at ? (T)v : *at); }
template <class T, class U> T atomicMax(T* at, U v) { return change(at, (T)v > *at ? (T)v : *at); }
template <class T> T atomicCAS(T* at, T old, T now) { return change(at, *at == old ? now : *at); }
template <class T, class U> T bits_as(U from) { T to; memcpy(&to, &from, sizeof to); return to; }
inline unsigned __float_as_uint(float z) { return bits_as<unsigned>(z); }
inline long long __double_as_longlong(double z) { return bits_as<long long>(z); }
inline double __longlong_as_double(long long z) { return bits_as<double>(z); }
"""


class EmulatedArray(np.ndarray):
    """An array "on the GPU"."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self):
        return EmulatedDevice()

    def get(self, stream=None, out=None):
        found = np.array(self.view(np.ndarray))
        if out is None:
            return found
        out[...] = found
        return out

    def set(self, host, stream=None):
        assert host.dtype == self.dtype
        assert host.shape == self.shape
        self[...] = host


class EmulatedDevice:
    id = 0
    compute_capability = "90"
    pci_bus_id = "0000:00:00.0"
    attributes: ClassVar = {"MultiProcessorCount": 1, "MaxSharedMemoryPerBlockOptin": 232_448}

    def __init__(self, number=0):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


class EmulatedStream:
    ptr = 0

    def __init__(self, non_blocking=False):
        pass

    def synchronize(self):
        pass


class EmulatedPool:
    """Knows no limit."""

    def free_all_blocks(self):
        pass

    def get_limit(self):
        return 0

    def set_limit(self, size):
        pass

    def used_bytes(self):
        return 0


class EmulatedModule:
    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))

    def get_function(self, name):
        kernel = getattr(self._library, name)

        def launch(grid, block, arguments):
            given = [_argument(a) for a in arguments]
            for at in range(grid[0]):
                self._library.set_block(at, grid[0])
                kernel(*given)

        return launch


def _argument(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if value is None:
        return ctypes.c_void_p(0)
    if isinstance(value, int):  # as CuPy does
        return ctypes.c_int64(value)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())


def _compile(code, options, capability):
    # Dynamic shared memory, of kernels that cannot run here, is an array without a size.
    text = SHIM + code.replace("extern __shared__", "static").replace("shared[];", "shared[1];")
    macros = [option for option in options if option.startswith("-D")]
    how = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off"]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        source.write_text(text)
        words = ["g++", *how, "-shared", "-fPIC", *macros, source, "-o", library]
        subprocess.run(words, check=True)
        return library.read_bytes(), None


def _empty(shape, dtype=float):
    """Not zeros: nothing may rely on them."""
    found = np.empty(shape, dtype).view(EmulatedArray)
    found.reshape(-1).view(np.uint8)[...] = 0xA5
    return found


def _here(function):
    def call(*arguments, **more):
        return np.asarray(function(*arguments, **more)).view(EmulatedArray)

    return call


def cupy():
    """The stand-in: what hydrology, spanning trees and list ranking use of CuPy."""
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        CUDARuntimeError=OSError,
        memGetInfo=lambda: (10**10, 10**10),
        getDeviceProperties=lambda number: {"name": b"emulated"},
    )
    cuda = types.SimpleNamespace(
        Device=EmulatedDevice,
        Stream=EmulatedStream,
        get_current_stream=EmulatedStream,
        alloc_pinned_memory=bytearray,
        compiler=types.SimpleNamespace(compile_using_nvrtc=_compile),
        nvrtc=types.SimpleNamespace(getVersion=lambda: (0, 0)),
        runtime=runtime,
        memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
    )
    found = types.SimpleNamespace(cuda=cuda, RawModule=EmulatedModule, __version__="emulated")
    found.empty, found.asnumpy = _empty, lambda array: array.get()
    found.get_default_memory_pool = found.get_default_pinned_memory_pool = EmulatedPool
    for name in (
        *("arange", "argsort", "asarray", "concatenate", "cumsum", "empty_like", "flatnonzero"),
        *("full", "ones", "searchsorted", "stack", "where", "zeros"),
    ):
        setattr(found, name, _here(getattr(np, name)))
    return found


def use(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the stand-in for CuPy; compiled kernels go to a folder."""
    patch.setitem(sys.modules, "cupy", cupy())
    patch.setenv("CUPY_CACHE_DIR", str(folder))
    forget()


def forget() -> None:
    """Forget which GPU there is."""
    device.why_not.cache_clear()
    device._module.cache_clear()
