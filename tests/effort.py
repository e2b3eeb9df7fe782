"""How much tests do: in usual runs, in long ones (`--long`), and while searching (`search`)."""

from __future__ import annotations

import pytest
from hypothesis import settings

USUAL = 50
"""Examples of most tests in a usual run."""


def is_long() -> bool:
    """Whether this run is a long one."""
    return settings.default.max_examples > USUAL


def examples(usual: int) -> int:
    """Number of examples to draw, given that of a usual run; long ones draw more."""
    return max(1, round(usual * settings.default.max_examples / USUAL))


def only_long(*values):
    """A case of `parametrize` that only long runs have."""
    return pytest.param(*values, marks=pytest.mark.long)
