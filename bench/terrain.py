"""Rasters that cases share: fractal terrain, spectral terrain, waves; of numpy or CuPy (`xp`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
from make_terrain import EPSG, TRANSFORM, terrain_window

__all__ = ["EPSG", "TRANSFORM", "fractal", "kept", "spectral", "terrain_window", "waves"]


def fractal(side: int, dtype: str = "float32", **options: Any) -> np.ndarray:
    """A square of the terrain of `scripts/make_terrain.py`."""
    return terrain_window(0, side, 0, side, dtype=dtype, **options)


def kept(work: Path, name: str, side: int, roughness: float = 0.8) -> np.ndarray:
    """Fractal terrain kept in a file: "z" of float32, "zi" of uint16, "f" frictions of 1 to 50."""
    path = work / f"{name}{side}.npy"
    if not path.exists():
        cells = fractal(side, "uint16" if name == "zi" else "float32", roughness=roughness)
        if name == "f":
            cells = (1 + 49 * (cells - cells.min()) / np.ptp(cells)).astype(np.float32)
        np.save(path, cells)
    return np.load(path, mmap_mode="r")


def spectral(xp: Any, side: int, seed: int = 1) -> Any:
    """White noise with frequency f scaled by f^-1.8: heights from 0 to 1000, float32."""
    random = np.random.default_rng(seed) if xp is np else xp.random.RandomState(seed)
    spectrum = xp.fft.rfft2(random.standard_normal((side, side), dtype=xp.float32))
    frequency = xp.hypot(xp.fft.fftfreq(side)[:, None], xp.fft.rfftfreq(side)[None, :])
    frequency[0, 0] = 1
    spectrum *= (frequency**-1.8).astype(xp.float32)
    z = xp.fft.irfft2(spectrum, s=(side, side)).astype(xp.float32, copy=False)
    z -= z.min()
    return z * (1000 / z.max())


def waves(xp: Any, r0: int, r1: int, c0: int, c1: int) -> Any:
    """A window of waves of two lengths, without noise: heights about 20 000."""
    down, across = (
        xp.sin(line / 9000) * 4000 + xp.sin(line / 700) * 300
        for line in (xp.arange(*ends, dtype=xp.float32) for ends in ((r0, r1), (c0, c1)))
    )
    return down[:, None] * (1 + across[None] / 9000) + 20000
