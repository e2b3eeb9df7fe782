"""What blocks tell the process of a proof, as long as its memory limit has room for it."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...engine.machine import MB
from ...engine.plan import StreamPlan, format_size
from ...errors import PlanError
from ...grid import ceil_div
from ...store import Layer

Part = TypeVar("Part")


class GatheredParts(Generic[Part]):
    """The parts that all blocks tell.

    Where the limit has no room for them they are only counted, so that the refusal in the end names
    a limit that suffices.

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
        self._plan, self._each, self._layer, self._items = plan, each, layer, items
        self._left = planned
        self._parts: list[Part] = []

    @property
    def _more(self) -> int:
        """Bytes beyond those of the plan."""
        return self._each * max(-self._left, 0)

    @property
    def _fits(self) -> bool:
        return self._plan.memory + self._more <= self._plan.memory_limit

    def add(self, part: Part, items: int) -> None:
        """Keep the part of a block, with so many items."""
        self._left -= items
        if self._fits:
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
        if not self._fits:
            # With a larger limit more blocks are in memory.
            enough = max(self._plan.memory, self._plan.most_memory) + self._more
            raise PlanError(
                f"{self._layer.path}: more {self._items} than a memory limit of "
                f"{format_size(self._plan.memory_limit)} has room for; give at least "
                f"{ceil_div(enough, MB)} MB to verify them"
            )
        found, self._parts = self._parts, []
        return found
