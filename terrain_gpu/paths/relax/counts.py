"""Counts of the work of a relaxation: `Visits`."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass


@dataclass
class Visits:
    """Counts of the work of a relaxation's threads.

    Attributes
    ----------
    blocks, tiles, passes
        Visits of blocks and of tiles, and passes over rows.
    spilled, loaded
        Bytes of fields.
    seen
        Cells of the blocks that were visited at all.
    """

    blocks: int = 0
    tiles: int = 0
    passes: int = 0
    spilled: int = 0
    loaded: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def counts(self) -> dict[str, int]:
        return asdict(self)

    def add(self, **counts: int) -> None:
        """Add to the counts, from any thread."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
