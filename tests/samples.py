"""Where the rasters of tests are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "jacksboro.tif"
DEMS = ROOT.parent / "shared" / "dems"
"""Real rasters that a checkout need not have."""


def numbers_of(file: Path) -> dict[str, np.ndarray]:
    """Arrays of a file of numbers: each a name, then rows; "-" is NaN, empty lines between them."""
    parts = [part.splitlines() for part in file.read_text().strip().split("\n\n")[1:]]
    return {
        name: np.array([["nan" if v == "-" else v for v in row.split()] for row in rows], float)
        for name, *rows in parts
    }
