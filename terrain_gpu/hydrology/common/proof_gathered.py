"""What blocks report to the process of a proof, within its memory limit."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...engine.plan import Excess, StreamPlan
from ...store.readable import Readable

Part = TypeVar("Part")


class GatheredParts(Generic[Part]):
    """The parts that all blocks yield, see `Excess`.

    Parameters
    ----------
    plan
        The plan, which has room for `planned` items.
    each
        Bytes per item.
    layer, items
        The layer, and the plural name of the items, for messages.
    """

    def __init__(
        self, plan: StreamPlan, each: int, layer: Readable, items: str, planned: int = 0
    ) -> None:
        self._each, self._what = each, f"to verify this many {items}"
        self._left, self._excess = planned, Excess.of(plan, layer.path)
        self._parts: list[Part] = []

    def add(self, part: Part, items: int) -> None:
        """Keep the part of a block, which has this number of items."""
        self._left -= items
        if self._excess.has_room(self._each * max(-self._left, 0), self._what):
            self._parts.append(part)
        else:
            self._parts.clear()

    def take(self) -> list[Part]:
        """Return and release the parts of all blocks, in the order in which they were added.

        Raises
        ------
        PlanError
            If they do not fit the memory limit.
        """
        self._excess.refuse()
        parts, self._parts = self._parts, []
        return parts
