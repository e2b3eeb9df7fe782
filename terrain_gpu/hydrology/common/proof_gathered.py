"""What blocks tell the process of a proof, as long as its memory limit has room for it."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...engine.plan import Excess, StreamPlan
from ...store import Layer

Part = TypeVar("Part")


class GatheredParts(Generic[Part]):
    """The parts that all blocks tell, see `Excess`.

    Parameters
    ----------
    plan
        Has room for `planned` items.
    each
        Bytes of an item.
    layer, items
        Of which layer they are, and what they are, as the message names them.
    """

    def __init__(
        self, plan: StreamPlan, each: int, layer: Layer, items: str, planned: int = 0
    ) -> None:
        self._each, self._what = each, f"to verify so many {items}"
        self._left, self._excess = planned, Excess.of(plan, layer.path)
        self._parts: list[Part] = []

    def add(self, part: Part, items: int) -> None:
        """Keep the part of a block, with so many items."""
        self._left -= items
        if self._excess.has_room(self._each * max(-self._left, 0), self._what):
            self._parts.append(part)
        else:
            self._parts.clear()

    def take(self) -> list[Part]:
        """Take away the parts of all blocks, in the order in which they came.

        Raises
        ------
        PlanError
            when the limit has no room for them.
        """
        self._excess.refuse()
        found, self._parts = self._parts, []
        return found
