"""Where the rasters of tests are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "jacksboro.tif"
DEMS = ROOT.parent / "shared" / "dems"
"""Real rasters that a checkout need not have."""
