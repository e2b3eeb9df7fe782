"""How much tests try: by default what a run on two processors has time for.

`HYPOTHESIS_PROFILE=thorough` tries twice as much and all cases, and `search` very much more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")

THOROUGH = 50
"""Examples that the profile `thorough` draws in most tests."""


def examples(thorough: int) -> int:
    """Number of examples to draw, given that of a thorough run."""
    return max(1, round(thorough * settings.default.max_examples / THOROUGH))


def cases(usual: Sequence[Case], others: Sequence[Case]) -> list[Case]:
    """The usual cases, and in a thorough run the others."""
    return [*usual, *others] if settings.default.max_examples >= THOROUGH else [*usual]
