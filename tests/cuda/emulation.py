"""A stand-in for CuPy that runs kernels on the CPU, one thread in each block.

It shows that an algorithm and its kernels are right, where no GPU is; not that threads do not
disturb each other. Kernels that need several threads in a block run `in_lanes`: the threads take
turns, each until it waits for the others of its warp or block.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import types
from hashlib import sha256
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
#define __threadfence()
#define __popc __builtin_popcount
#define __ffs __builtin_ffs
#define __ffsll __builtin_ffsll
using std::isfinite;
static struct { unsigned x; } threadIdx, blockIdx, blockDim = {1}, gridDim;
extern "C" void set_block(unsigned block, unsigned blocks, unsigned threads) {
    blockIdx.x = block, gridDim.x = blocks, blockDim.x = threads;
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
inline unsigned atomicExch(unsigned* at, unsigned v) { return change(at, v); }
inline unsigned long long atomicExch(unsigned long long* at, unsigned long long v) {
    return change(at, v);
}
template <class T, class U> T atomicAnd(T* at, U v) { return change(at, *at & v); }
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldca(const T* at) { return *at; }
template <class T> T __ldcg(const T* at) { return *at; }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
inline long long __double_as_longlong(double z) { return bits_as<long long>(z); }
inline double __longlong_as_double(long long z) { return bits_as<double>(z); }
"""

ALONE = r"""
#define __syncthreads()
#define __syncwarp()
#define __syncthreads_or(x) (x)
#define __ballot_sync(lanes, x) ((x) ? 1u : 0u)
#define __shfl_sync(lanes, x, lane) (x)
#define __shfl_down_sync(lanes, x, offset) 0
"""

LANES = r"""
#include <csetjmp>
#include <functional>
#include <ucontext.h>
#include <vector>
#define __nanosleep(x)
struct Fiber { ucontext_t context; jmp_buf at; bool begun, done; std::vector<char> stack; };
static Fiber fibers[1024];
static jmp_buf home;
static std::function<void()> body;
static void begin() { body(); fibers[threadIdx.x].done = true; _longjmp(home, 1); }
static void yield() {
    unsigned me = threadIdx.x;
    if (!_setjmp(fibers[me].at)) _longjmp(home, 1);
}
static void run(std::function<void()> what) {
    static volatile unsigned k, left;
    body = what;
    for (k = 0; k < blockDim.x; k = k + 1) fibers[k].begun = fibers[k].done = false;
    do {
        left = 0;
        for (k = 0; k < blockDim.x; k = k + 1) {
            Fiber& f = fibers[k];
            if (f.done) continue;
            left = left + 1;
            threadIdx.x = k;
            if (_setjmp(home)) continue;
            if (f.begun) _longjmp(f.at, 1);
            f.begun = true;
            f.stack.resize(1 << 17);
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack.data();
            f.context.uc_stack.ss_size = f.stack.size();
            makecontext(&f.context, begin, 0);
            setcontext(&f.context);
        }
    } while (left);
}
// Values of the threads of a group, once all have given theirs; the next but one overwrites them.
struct Group { unsigned long long values[2][1024]; unsigned given, round; };
static Group warps[32], block;
static unsigned long long* collect(Group& g, unsigned first, unsigned size, unsigned long long v) {
    unsigned round = g.round, me = threadIdx.x - first;
    g.values[round & 1][me] = v;
    if (++g.given == size) g.given = 0, g.round++;
    else while (g.round == round) yield();
    return g.values[round & 1];
}
static unsigned long long* of_warp(unsigned long long v) {
    return collect(warps[threadIdx.x / 32], threadIdx.x & ~31u, 32, v);
}
inline void __syncwarp() { of_warp(0); }
inline void __syncthreads() { collect(block, 0, blockDim.x, 0); }
inline int __syncthreads_or(int x) {
    unsigned long long* all = collect(block, 0, blockDim.x, x);
    int found = 0;
    for (unsigned k = 0; k < blockDim.x; k++) found |= (int)all[k];
    return found;
}
inline unsigned __ballot_sync(unsigned, bool x) {
    unsigned long long* all = of_warp(x);
    unsigned found = 0;
    for (int k = 0; k < 32; k++) found |= (unsigned)all[k] << k;
    return found;
}
inline bool __any_sync(unsigned lanes, bool x) { return __ballot_sync(lanes, x); }
template <class T> T __shfl_sync(unsigned, T x, int lane) {
    unsigned long long bits = 0;
    memcpy(&bits, &x, sizeof x);
    T found;
    memcpy(&found, of_warp(bits) + lane, sizeof x);
    return found;
}
template <class T> T __shfl_down_sync(unsigned lanes, T x, int offset) {
    int lane = threadIdx.x & 31;
    return __shfl_sync(lanes, x, lane + offset < 32 ? lane + offset : lane);
}
template <class T> T __shfl_xor_sync(unsigned lanes, T x, int other) {
    return __shfl_sync(lanes, x, (threadIdx.x & 31) ^ other);
}
"""

_lanes = False
"""Whether blocks have their threads."""

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(([^)]*)\)')


def _preprocessed(code, macros):
    """Expand macros, of which parameters of kernels are made."""
    words = ["g++", "-E", "-P", "-x", "c++", *macros, "-"]
    return subprocess.run(words, input=code, check=True, capture_output=True, text=True).stdout


def _in_lanes(code):
    """Add a function before each kernel that runs the threads of a block."""

    def add(kernel):
        name, given = kernel[1], kernel[2]
        names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", given))
        run = f"run([&] {{ ::{name}({names}); }});"
        start = 'extern "C" void'
        return f"{start} {name}({given});\n{start} lanes_{name}({given}) {{ {run} }}\n{kernel[0]}"

    return SHIM + LANES + _KERNEL.sub(add, code)


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


_SHARED = "MaxSharedMemoryPerBlockOptin"


class EmulatedDevice:
    id = 0
    compute_capability = "90"
    pci_bus_id = "0000:00:00.0"
    attributes: ClassVar = {"MultiProcessorCount": 1, _SHARED: 232_448}

    def __init__(self, number=0):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def synchronize(self):
        pass


class EmulatedStream:
    ptr = 0

    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
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
        kernel = getattr(self._library, f"lanes_{name}" if _lanes else name)

        def launch(grid, block, arguments, **more):
            given = [_argument(a) for a in arguments]
            for at in range(grid[0]):
                self._library.set_block(at, grid[0], block[0] if _lanes else 1)
                kernel(*given)

        launch.kernel = launch
        return launch


def _argument(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if value is None:
        return ctypes.c_void_p(0)
    if isinstance(value, int):  # as CuPy does
        return ctypes.c_int64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())


def _compile(code, options, capability):
    # Dynamic shared memory is an array without a size.
    size = EmulatedDevice.attributes[_SHARED]
    code = code.replace("extern __shared__", "static")
    code = re.sub(r"\b(shared|memory)\[\];", rf"\1[{size}];", code)
    macros = [option for option in options if option.startswith("-D")]
    text = _in_lanes(_preprocessed(code, macros)) if _lanes else SHIM + ALONE + code
    how = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off"]
    how.append("-U_FORTIFY_SOURCE")  # it takes another stack for an error
    name = sha256(repr((text, macros)).encode()).hexdigest()
    library = Path(os.environ["CUPY_CACHE_DIR"], f"{name}.so")
    library.parent.mkdir(parents=True, exist_ok=True)
    # What one process compiles, others wait for: those of a cluster need the same at once.
    with library.with_suffix(".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:
                source, found = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
                source.write_text(text)
                # A kernel may be called like a function of the C library, such as `close`.
                words = ["-shared", "-fPIC", "-Wl,-Bsymbolic", *macros, source, "-o", found]
                subprocess.run(["g++", *how, *words], check=True)
                found.rename(library)
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


def _copy_rows(to, far, fro, pitch, width, rows, kind, stream):
    for row in range(rows):
        ctypes.memmove(to + row * far, fro + row * pitch, width)


def cupy():
    """The stand-in: what hydrology, spanning trees and list ranking use of CuPy."""
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        CUDARuntimeError=OSError,
        memGetInfo=lambda: (10**10, 10**10),
        memcpyAsync=lambda to, fro, size, kind, stream: ctypes.memmove(to, fro, size),
        memcpy2DAsync=_copy_rows,
        memcpyDeviceToHost=2,
        memcpyHostToDevice=1,
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
        *("full", "ones", "searchsorted", "stack", "where", "zeros", "array"),
        *("ascontiguousarray", "bincount", "isnan", "lexsort"),
    ):
        setattr(found, name, _here(getattr(np, name)))
    found.maximum = np.maximum
    return found


def use(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the stand-in for CuPy; compiled kernels go to a folder, the fixture `kernels`."""
    patch.setitem(sys.modules, "cupy", found := cupy())
    patch.setitem(sys.modules, "cupy.cuda", found.cuda)
    # The package names kernels by their code, which is the same for lanes.
    patch.setenv("CUPY_CACHE_DIR", str(folder / ("lanes" if _lanes else "alone")))
    forget()


def in_lanes(patch: pytest.MonkeyPatch, folder: Path, shared: int = 48_000) -> None:
    """As `use`, with all threads of a block; two warps have the shared memory that they need."""
    patch.setattr(sys.modules[__name__], "_lanes", True)
    patch.setitem(EmulatedDevice.attributes, _SHARED, shared)
    use(patch, folder)


def forget() -> None:
    """Forget which GPU there is."""
    device.why_not.cache_clear()
    device._module.cache_clear()
