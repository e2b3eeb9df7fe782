"""Fill all depressions except the deep and large ones, as an operation: `FillAround`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...facts import Settings
from ...grid.lengths import Measured
from .operation import DepressionLabels


@dataclass(frozen=True)
class FillAround(DepressionLabels):
    """The operation. `conditioned` is the layer to write; see `DepressionLabels` for the others."""

    into: None = None
    conditioned: str | None = "filled"

    command = "fill"
    mark = "fill_of"
    only_on_cpu = "keeping depressions runs"

    @classmethod
    def keeping(
        cls, store: str, directions: str, into: str, depth: float | None, area: float | None
    ) -> FillAround:
        """Keep depressions deeper than `depth` and larger than `area`; None sets no limit."""
        least = (0.0 if one is None else math.nextafter(one, math.inf) for one in (depth, area))
        return cls(store, directions, None, into, None, *least)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ()

    def settings(self) -> Settings:
        return {
            "fill_of": self.layers[0].name,
            "directions": self.directions,
            "keep_depth": self.min_depth,
            "keep_area": self.min_area,
        }
