"""How many examples tests draw: shares of what the profile of Hypothesis draws."""

from __future__ import annotations

from hypothesis import settings

USUAL = 50
"""Examples of most tests in a usual run."""


def examples(usual: int) -> int:
    """Number of examples to draw, given that of a usual run; the profile `search` draws more."""
    return max(1, round(usual * settings.default.max_examples / USUAL))
