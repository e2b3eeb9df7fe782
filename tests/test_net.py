"""The net that a refactoring is held against: see scripts/record_net.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from net import surface


def test_every_command_has_a_line():
    assert surface.without_case() == []
