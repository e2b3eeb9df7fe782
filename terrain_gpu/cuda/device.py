"""The GPU: availability, compilation of kernels, memory and transfers."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import Devices
from ..engine.machine import owns_process
from ..errors import PlanError
from ..facts import Settings
from ..grid.neighbours import COL_STEP, COL_STEP_16, EDGE_OF, ROW_STEP, ROW_STEP_16

log = logging.getLogger(__name__)

CELL_TYPES = {
    "uint8": "unsigned char",
    "int8": "signed char",
    "uint16": "unsigned short",
    "int16": "short",
    "uint32": "unsigned int",
    "int32": "int",
    "uint64": "unsigned long long",
    "int64": "long long",
    "float32": "float",
    "float64": "double",
}
"""C++ names of the cell types."""

REGION = np.dtype(
    [
        ("rows", "<i8"),
        ("cols", "<i8"),
        *((name, "<i4") for name in ("shift", "blocks_across", "tiles_across")),
        *((name, "<i4") for name in ("sides", "has_nodata", "diagonal")),
        ("per_length", "<u8"),
    ]
)
"""`Region` in ``cuda/kernels/cells.cuh``."""

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false")
"""Compiler options. No fused multiply-add: it rounds once where the CPU rounds twice."""

LEAST_CAPABILITY = 75

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


class OutOfGpuMemory(PlanError):
    """The GPU ran out of memory during a computation: other programs use it, too."""


@cache
def why_not(device: int = 0) -> str | None:
    """Return why CUDA cannot be used, with the remedy, in one line; None if it works."""
    if owns_process() and sys.modules.get("cupy", "not hidden") is None:
        del sys.modules["cupy"]
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (pip install 'terrain_gpu[cuda13]' or [cuda12])"
    except Exception as error:
        return f"CuPy cannot be imported ({_first_line(error)}); reinstall it"
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if "InsufficientDriver" in str(error):
            return "no NVIDIA driver, or one too old for this CuPy; update it, or install [cuda12]"
        return f"no GPU ({_first_line(error)})"
    if not 0 <= device < count:
        return f"device {device} does not exist, there are {count}; choose another with --device"
    try:
        with cupy.cuda.Device(device) as chosen:
            capability = int(chosen.compute_capability)
            if capability < LEAST_CAPABILITY:
                return (
                    f"device {device} has compute capability {capability / 10}; "
                    f"at least {LEAST_CAPABILITY / 10} is needed"
                )
            module("probe", {}).get_function("probe")
    except Exception as error:
        return f"device {device} does not work ({_first_line(error)})"
    return None


def numbers(device: Devices) -> tuple[int, ...]:
    """Return the numbers of the requested GPUs; for "all" without any GPU, the first."""
    if isinstance(device, int):
        return (device,)
    if device != "all":
        return tuple(map(int, device))
    if why_not() is not None:
        return (0,)
    import cupy

    return tuple(range(cupy.cuda.runtime.getDeviceCount()))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def source(name: str) -> str:
    """Return the CUDA C++ of ``cuda/kernels/NAME.cu`` with our own headers pasted in.

    The cache of compiled kernels is keyed by this text, so it must contain the headers.
    """
    folder = resources.files("terrain_gpu.cuda") / "kernels"

    def paste(match: re.Match[str]) -> str:
        if match[1] == "neighbours.cuh":
            return _neighbours()
        return (folder / match[1]).read_text(encoding="utf-8")

    text = (folder / f"{name}.cu").read_text(encoding="utf-8")
    while _INCLUDE.search(text):
        text = _INCLUDE.sub(paste, text)
    return text


def _neighbours() -> str:
    """Generate ``neighbours.cuh``: the neighbours of a cell, numbered as in `grid.neighbours`."""
    lines = [
        "// For the neighbour in D8 direction k: the step to it and the direction of the edge."
    ]
    for name, table in ("row_step", ROW_STEP), ("col_step", COL_STEP), ("edge_of", EDGE_OF):
        # Two bits per direction in one word: no memory access, no branches.
        least = int(table.min())
        word = sum(int(value - least) << 2 * k for k, value in enumerate(table))
        body = f"return (int)({word:#x}u >> 2 * k & 3) + ({least});"
        lines.append(f"__device__ constexpr int {name}(int k) {{ {body} }}")
    lines.append("// For 16 neighbours, those from 8 on by a knight's move.")
    for name, table in ("row_step_16", ROW_STEP_16), ("col_step_16", COL_STEP_16):
        word = sum(int(value + 2) << 3 * k for k, value in enumerate(table))
        body = f"return (int)({word:#x}ull >> 3 * k & 7) + (-2);"
        lines.append(f"__device__ constexpr int {name}(int k) {{ {body} }}")
    return "\n".join(lines)


def defines(values: Settings) -> tuple[str, ...]:
    """Return macro definitions as compiler options."""
    return tuple(f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in values.items())


def module(name: str, values: Settings) -> Any:
    """Return the kernels of ``cuda/kernels/NAME.cu`` with these macros, for the current device.

    Compiled at first use for the device's architecture, then cached in memory and on disk.
    """
    import cupy

    return _module(name, tuple(sorted(values.items())), cupy.cuda.Device().id)


@cache
def _module(name: str, values: tuple[tuple[str, Any], ...], device: int) -> Any:
    import cupy

    return cupy.RawModule(
        path=str(_compiled(source(name), OPTIONS + defines(dict(values)), device))
    )


def _compiled(code: str, options: tuple[str, ...], device: int) -> Path:
    """Compile kernels, or find them on disk in CuPy's cache folder; return the file.

    CuPy always compiles its modules with ``-ftz=true``, which flushes subnormal floats to 0; the
    CPU keeps them. So the compiler is called directly, without that option.
    """
    import cupy

    compiler = cupy.cuda.compiler
    capability = cupy.cuda.Device(device).compute_capability
    what = code, options, capability, cupy.__version__, cupy.cuda.nvrtc.getVersion()
    key = sha256(repr(what).encode()).hexdigest()[:32]
    folder = _cache_folder()
    for found in folder.glob(f"terrain_gpu-{key}-*.cubin"):
        with suppress(OSError):  # somebody else's
            if found.stem.endswith(sha256(found.read_bytes()).hexdigest()[:32]):
                return found
    _announce()
    binary, _ = compiler.compile_using_nvrtc(code, options, capability)
    name = f"terrain_gpu-{key}-{sha256(binary).hexdigest()[:32]}.cubin"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _saved(binary, folder / name)
    except OSError:  # the home directory is not writable, or full
        return _saved(binary, Path(tempfile.mkdtemp(prefix="terrain_gpu-")) / name)


def _cache_folder() -> Path:
    if named := os.environ.get("CUPY_CACHE_DIR"):
        return Path(named)
    try:
        return Path.home() / ".cupy/kernel_cache"
    except RuntimeError:  # a container's user without a home: nothing can be kept
        return Path(os.devnull) / "kernel_cache"


def _saved(binary: bytes, target: Path) -> Path:
    part = Path(f"{target}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(binary)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


@cache
def _announce() -> None:
    log.warning("compiling kernels for the GPU; this happens once")


# -- memory ----------------------------------------------------------------------------------------

RESERVED = 512 * 10**6
"""GPU memory for the context, the kernels and CuPy's pools, in addition to planned arrays."""


def usable_memory(device: int, asked: int | None) -> int:
    """Return the bytes of a device that may be used: `asked`, at most nine tenths of the free."""
    import cupy

    with cupy.cuda.Device(device):
        free, _ = cupy.cuda.runtime.memGetInfo()
    most = free * 9 // 10
    return min(most, asked or most)


def shared_memory(device: int = 0) -> int:
    """Return the most shared memory that one thread block may use, in bytes."""
    import cupy

    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


def name_of(device: int = 0) -> str:
    """Return the vendor's name of a device."""
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()


def identity_of(device: int = 0) -> str:
    """Return what two processes compare to learn whether they use the same device."""
    import cupy

    uuid = cupy.cuda.runtime.getDeviceProperties(device)["uuid"]
    return f"{cupy.cuda.Device(device).pci_bus_id} {uuid.hex()}"


class Staging:
    """A page-locked buffer per thread, and streams, for transfers between disk and GPUs.

    Locking 500 MB of pages takes a second, so each buffer holds only one block.

    Parameters
    ----------
    nbytes
        Size of a buffer.
    device
        The device whose context locks the buffers; arrays may lie on any device.
    """

    def __init__(self, nbytes: int, device: int) -> None:
        self._nbytes, self._device = nbytes, device
        self._local = threading.local()

    def host(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return this thread's buffer as an array, uninitialised."""
        import cupy

        if not hasattr(self._local, "buffer"):
            with cupy.cuda.Device(self._device):
                memory = cupy.cuda.alloc_pinned_memory(self._nbytes)
            self._local.buffer = np.frombuffer(memory, np.uint8, self._nbytes)
        return self._local.buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    @contextmanager
    def _stream(self, device: Any) -> Iterator[Any]:
        """Yield this thread's stream on the GPU of an array; synchronise it at the end."""
        import cupy

        streams = vars(self._local).setdefault("streams", {})
        with device.device:
            if device.device.id not in streams:
                streams[device.device.id] = cupy.cuda.Stream(non_blocking=True)
            stream = streams[device.device.id]
            yield stream
            stream.synchronize()

    def upload(self, host: np.ndarray, device: Any) -> None:
        """Copy to the GPU, and wait."""
        with self._stream(device) as stream:
            device.set(host, stream)

    def place(self, host: np.ndarray, device: Any) -> None:
        """Copy to a window of a larger array on the GPU, and wait."""
        from cupy.cuda import runtime

        rows, pitch = len(host), host.strides[0]
        to, far = device.data.ptr, device.strides[0]
        width, kind = host.shape[1] * host.itemsize, runtime.memcpyHostToDevice
        with self._stream(device) as stream:
            runtime.memcpy2DAsync(to, far, host.ctypes.data, pitch, width, rows, kind, stream.ptr)

    def download(self, device: Any) -> np.ndarray:
        """Copy from the GPU into this thread's buffer, and wait."""
        host = self.host(device.shape, device.dtype)
        with self._stream(device) as stream:
            device.get(stream, out=host)
        return host


def free_staging() -> None:
    """Free the page-locked memory. It takes 2 ms per block: do it only if the CPU needs memory."""
    import cupy

    cupy.get_default_pinned_memory_pool().free_all_blocks()


def give_back(device: int) -> None:
    """Free CuPy's pools of GPU memory and of page-locked memory."""
    if cupy := sys.modules.get("cupy"):
        with cupy.cuda.Device(device):
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()


_REFUSED = "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
"""Prefixes of the runtime's and the driver's errors when streams, kernels or pages do not fit."""


@contextmanager
def gpu_memory_errors(remedy: str) -> Iterator[None]:
    """Turn failures for lack of GPU memory in this context into `OutOfGpuMemory`."""
    import cupy

    try:
        yield
    except Exception as error:
        refused = isinstance(error, cupy.cuda.memory.OutOfMemoryError)
        if not refused and not str(error).startswith(_REFUSED):
            raise
        raise OutOfGpuMemory(
            f"the GPU has no memory left ({_first_line(error)}); {remedy}"
        ) from error


@contextmanager
def memory_bounds(limit: int, devices: Sequence[int]) -> Iterator[None]:
    """Apply `memory_bound` to several GPUs; one that is named twice gets twice as much."""
    with ExitStack() as stack:
        for device in sorted(set(devices)):
            stack.enter_context(memory_bound(limit * devices.count(device), device))
        yield


@contextmanager
def memory_bound(limit: int, device: int = 0) -> Iterator[None]:
    """Limit CuPy's memory in this context; exceeding it raises `OutOfGpuMemory` with the remedy.

    Arrays that the caller already holds do not count.
    """
    import cupy

    with cupy.cuda.Device(device):
        pool = cupy.get_default_memory_pool()
        before = pool.get_limit()
        pool.free_all_blocks()
        pool.set_limit(pool.used_bytes() + limit)
    try:
        with gpu_memory_errors("choose a smaller --gpu-memory-limit, or use --backend cpu"):
            yield
    finally:
        with cupy.cuda.Device(device):
            pool.set_limit(before)
            pool.free_all_blocks()
