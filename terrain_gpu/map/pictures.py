"""Convert cells to colours, and pictures to PNG: plain functions of arrays.

A picture is an array of colour numbers, uint8, with a palette of 256 colours, uint8 (256, 4): red,
green, blue and opacity. Number 0 is transparent, for nodata.
"""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np

RAMPS = {
    "land": ("#3f7f6b", "#7fae7a", "#d6d39a", "#c9a26a", "#94694f", "#f6f2ee"),
    "plain": ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"),
    "cost": ("#fff3d6", "#fdcb8b", "#f48c6a", "#cf4f79", "#7f3385", "#2c2259"),
    "water": ("#eef4f8", "#c3dcec", "#86b9dd", "#3f8cc5", "#1a5a9e", "#0b2f6b"),
}
"""Colours from low to high."""

LINES = (24, 34, 72)
"""Colour of contour lines."""

LIGHT = np.radians((315.0, 45.0))
"""Azimuth and altitude of the light of a hillshade."""

STEEP = 0.35
"""The mean slope in a hillshade: elevations are exaggerated accordingly."""


def ramp(name: str) -> np.ndarray:
    """The palette of a colour ramp; its colours are 1 to 255."""
    ends = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in RAMPS[name]], float)
    positions = np.linspace(0, len(ends) - 1, 255)
    palette = np.zeros((256, 4), np.uint8)
    for band in range(3):
        palette[1:, band] = np.round(np.interp(positions, np.arange(len(ends)), ends[:, band]))
    palette[1:, 3] = 255
    return palette


def greys() -> np.ndarray:
    """The palette of a hillshade."""
    palette = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 4, axis=1)
    palette[:, 3] = 255
    palette[0] = 0
    return palette


def strokes() -> np.ndarray:
    """The palette of lines: the colour number is the opacity."""
    palette = np.empty((256, 4), np.uint8)
    palette[:, :3] = LINES
    palette[:, 3] = np.arange(256)
    return palette


def hues() -> np.ndarray:
    """The palette of classes: neighbouring numbers have very different hues."""
    hue = np.arange(255) * 0.61803398875 % 1
    light = 0.46 + 0.2 * (np.arange(255) % 3) / 2
    palette = np.zeros((256, 4), np.uint8)
    for band, shift in enumerate((0, 1 / 3, 2 / 3)):
        wave = 0.5 + 0.5 * np.cos(2 * np.pi * (hue - shift))
        palette[1:, band] = np.round(255 * (light + 0.36 * (wave - 0.5)))
    palette[1:, 3] = 255
    return palette


def shares(values: np.ndarray, low: float, high: float, *, log: bool) -> np.ndarray:
    """Colour numbers 1 to 255 of values from `low` to `high`; others are clipped."""
    values = values.astype(np.float64)
    if log:
        values = np.log(np.maximum(values, low))
        low, high = math.log(low), math.log(high)
    with np.errstate(invalid="ignore"):
        part = (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)
        return (1.5 + 254 * np.clip(np.nan_to_num(part), 0, 1)).astype(np.uint8)


def classes(values: np.ndarray) -> np.ndarray:
    """Colour numbers 1 to 255 of integers that denote classes."""
    return (1 + values.astype(np.uint64) % np.uint64(255)).astype(np.uint8)


def _slopes(padded: np.ndarray, dx: float, dy: float) -> tuple[np.ndarray, np.ndarray]:
    """Slopes to the east and the south; `padded` has a ring of neighbours, and NaN for nodata."""
    centre = padded[1:-1, 1:-1]

    def beside(part: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(part), centre, part)

    east = beside(padded[1:-1, 2:]) - beside(padded[1:-1, :-2])
    south = beside(padded[2:, 1:-1]) - beside(padded[:-2, 1:-1])
    return east / (2 * dx), south / (2 * dy)


def steepness(padded: np.ndarray, dx: float, dy: float) -> float:
    """The mean slope of elevations; arguments as for `hillshade`."""
    across, down = _slopes(padded, dx, dy)
    slopes = np.hypot(across, down)
    slopes = slopes[np.isfinite(slopes)]
    return float(slopes.mean()) if slopes.size else 0.0


def hillshade(padded: np.ndarray, dx: float, dy: float, raised: float) -> np.ndarray:
    """Colour numbers 1 to 255 of a hillshade (B. K. P. Horn 1981).

    Parameters
    ----------
    padded
        Elevations, float, shape (rows + 2, cols + 2), with a ring of neighbours; NaN for nodata.
    dx, dy
        Width and height of a cell; negative if columns run westwards, or rows northwards.
    raised
        Factor of exaggeration of elevations.
    """
    across, down = (raised * slope for slope in _slopes(padded, dx, dy))
    towards, height = LIGHT
    lit = np.sin(height) - np.cos(height) * (np.sin(towards) * across - np.cos(towards) * down)
    lit /= np.sqrt(1 + across**2 + down**2)
    return (1.5 + 254 * np.clip(np.nan_to_num(lit), 0, 1)).astype(np.uint8)


def isolines(padded: np.ndarray, interval: float) -> np.ndarray:
    """Opacity 0 to 200 of contour lines at multiples of `interval`, about 1.5 cells wide.

    `padded` is as for `hillshade`. Where lines would touch each other, they fade.
    """
    centre = padded[1:-1, 1:-1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        change = np.hypot(*_slopes(padded, 1, 1))
        nearest = np.round(centre / interval)
        apart = np.abs(centre - nearest * interval) / change
        seen = np.clip(1.25 - apart, 0, 1) * np.clip(interval / (4 * change), 0, 1)
        seen[~(nearest > 0)] = 0
    return np.round(200 * np.nan_to_num(seen, posinf=0)).astype(np.uint8)


def png(numbers: np.ndarray, palette: np.ndarray) -> bytes:
    """A picture as a PNG file with a palette (W3C, Portable Network Graphics, 2003)."""
    rows, cols = numbers.shape
    lines = np.zeros((rows, cols + 1), np.uint8)  # each begins with its filter type: none
    lines[:, 1:] = numbers
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", cols, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(lines.tobytes(), 1)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
