"""The day, the machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

import rasterio

from bench.device import cupy
from terrain_gpu.cuda import device


def processor() -> str:
    """The name of the processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0]


def described() -> str:
    """A line to record with figures."""
    told = [
        f"{date.today()}",
        f"{len(os.sched_getaffinity(0))} x {processor()}",
        f"load {os.getloadavg()[0]:.0f}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("numpy", "numba", "zarr")),
        f"rasterio {rasterio.__version__} (GDAL {rasterio.__gdal_version__})",
    ]
    if not device.why_not():
        told += [device.name_of(), f"CuPy {cupy.__version__}"]
    return ", ".join(told)
