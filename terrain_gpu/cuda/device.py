"""The GPU: whether there is one that works, kernels compiled for it, its memory."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import Devices
from ..engine import plan as planner
from ..errors import PlanError
from ..grid.neighbours import COL_STEP, EDGE_OF, ROW_STEP

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
"""What kernels call the types of cells."""

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false")
"""Of the compiler; a fused multiply-add rounds once where the CPU rounds twice."""

LEAST_CAPABILITY = 75

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


class OutOfGpuMemory(PlanError):
    """The GPU's memory did not suffice while it computed: others use it, too."""


@cache
def why_not(device: int = 0) -> str | None:
    """Why CUDA cannot be used, and the remedy, in one line; None where it works."""
    if planner.whole_process and sys.modules.get("cupy", "not hidden") is None:
        del sys.modules["cupy"]
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (pip install 'terrain_gpu[cuda13]' or [cuda12])"
    except Exception as error:
        return f"CuPy does not load ({_first_line(error)}); install it again"
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
                    f"{LEAST_CAPABILITY / 10} is needed"
                )
            module("probe", {}).get_function("probe")
    except Exception as error:
        return f"device {device} does not work ({_first_line(error)})"
    return None


def numbers(device: Devices) -> tuple[int, ...]:
    """The numbers of the GPUs that are asked for; of "all" where there is none, the first."""
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
    """CUDA C++ of ``cuda/kernels/NAME.cu``, with its own headers put in.

    Pasted, not left to the compiler: CuPy caches by the text it is given.
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
    """``neighbours.cuh``: the neighbours of a cell, numbered as in `grid.neighbours`."""
    lines = ["// Of the neighbour in D8 direction k: steps to it, and the direction of the edge."]
    for name, table in ("row_step", ROW_STEP), ("col_step", COL_STEP), ("edge_of", EDGE_OF):
        # Two bits each in one word: neither memory nor branches.
        least = int(table.min())
        word = sum(int(value - least) << 2 * k for k, value in enumerate(table))
        body = f"return (int)({word:#x}u >> 2 * k & 3) + ({least});"
        lines.append(f"__device__ constexpr int {name}(int k) {{ {body} }}")
    return "\n".join(lines)


def defines(values: dict[str, Any]) -> tuple[str, ...]:
    """Macro definitions as options of the compiler."""
    return tuple(f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in values.items())


def module(name: str, values: dict[str, Any]) -> Any:
    """Kernels of ``cuda/kernels/NAME.cu`` with macros defined, for the current device; cached.

    Compiled at first use for the device's own architecture; the result is kept on disk.
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
    """A file of compiled kernels, kept on disk with CuPy's own.

    CuPy's modules are compiled with ``-ftz=true``, whatever one asks for: floats below the normal
    ones, which the CPU has, would be 0. So the compiler is called here, which leaves them.
    """
    import cupy

    compiler = cupy.cuda.compiler
    capability = cupy.cuda.Device(device).compute_capability
    what = code, options, capability, cupy.__version__, cupy.cuda.nvrtc.getVersion()
    key = sha256(repr(what).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy/kernel_cache")
    for found in folder.glob(f"terrain_gpu-{key}-*.cubin"):
        if found.stem.endswith(sha256(found.read_bytes()).hexdigest()[:32]):
            return found
    _announce()
    binary, _ = compiler.compile_using_nvrtc(code, options, capability)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115
    except OSError:  # a home that cannot be written
        folder = Path(tempfile.mkdtemp(prefix="terrain_gpu-"))
        part = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115
    with part:
        part.write(binary)
    target = folder / f"terrain_gpu-{key}-{sha256(binary).hexdigest()[:32]}.cubin"
    os.replace(part.name, target)
    return target


@cache
def _announce() -> None:
    log.warning("compiling kernels for the GPU; this happens once")


# -- memory ----------------------------------------------------------------------------------------

RESERVED = 512 * 10**6
"""GPU memory of the context, the kernels and CuPy's pools beside what is planned."""


def usable_memory(device: int, asked: int | None) -> int:
    """Memory of a device that may be used: as asked for, nine tenths of what is free at most."""
    import cupy

    with cupy.cuda.Device(device):
        free, _ = cupy.cuda.runtime.memGetInfo()
    most = free * 9 // 10
    return min(most, asked or most)


def shared_memory(device: int = 0) -> int:
    """Shared memory that one thread block may have, bytes."""
    import cupy

    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


def name_of(device: int = 0) -> str:
    """What the vendor calls a device."""
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()


class Staging:
    """A page-locked buffer for each thread, and streams: the way between disk and GPUs.

    Locking pages takes a second for 500 MB, so the buffers are small, of one block.

    Parameters
    ----------
    nbytes
        Size of a buffer.
    device
        In whose name buffers are locked; arrays may lie on any.
    """

    def __init__(self, nbytes: int, device: int) -> None:
        self._nbytes, self._device = nbytes, device
        self._local = threading.local()

    def host(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """This thread's buffer as an array, not set."""
        import cupy

        if not hasattr(self._local, "buffer"):
            with cupy.cuda.Device(self._device):
                memory = cupy.cuda.alloc_pinned_memory(self._nbytes)
            self._local.buffer = np.frombuffer(memory, np.uint8, self._nbytes)
        return self._local.buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    @contextmanager
    def _stream(self, device: Any) -> Iterator[Any]:
        """This thread's stream on the GPU of an array; at the end what it does is done."""
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
    """Give page-locked memory back: it takes 2 ms a block, so only before the CPU needs room."""
    import cupy

    cupy.get_default_pinned_memory_pool().free_all_blocks()


def give_back(device: int) -> None:
    """Return what CuPy keeps for later: the GPU's memory and page-locked memory."""
    if cupy := sys.modules.get("cupy"):
        with cupy.cuda.Device(device):
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()


_REFUSED = "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
"""How the runtime and the driver begin to say it, of streams, kernels and pages."""


@contextmanager
def gpu_memory_errors(remedy: str) -> Iterator[None]:
    """Whatever is refused for lack of memory inside becomes `OutOfGpuMemory`."""
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
    """`memory_bound` for each of several; for one that is named twice, twice as much."""
    with ExitStack() as stack:
        for device in sorted(set(devices)):
            stack.enter_context(memory_bound(limit * devices.count(device), device))
        yield


@contextmanager
def memory_bound(limit: int, device: int = 0) -> Iterator[None]:
    """Hold CuPy's memory to a limit; what is refused becomes `OutOfGpuMemory` with the remedy.

    Arrays that the caller holds do not count.
    """
    import cupy

    with cupy.cuda.Device(device):
        pool = cupy.get_default_memory_pool()
        before = pool.get_limit()
        pool.free_all_blocks()
        pool.set_limit(pool.used_bytes() + limit)
    try:
        with gpu_memory_errors("give a smaller --gpu-memory-limit, or use --backend cpu"):
            yield
    finally:
        with cupy.cuda.Device(device):
            pool.set_limit(before)
            pool.free_all_blocks()
