"""Areas between the breaks of a layer, as polygons along the edges of their cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.plan import StreamPlan
from ..io.features import Fields
from .contour_lines import NAME, refuse_interval
from .polygon_problem import LabelPolygons, plan_polygons

FIELDS: Fields = {
    "lower": np.float64,
    "upper": np.float64,
    "cells": np.int64,
    "area": np.float64,
}


@dataclass(frozen=True)
class ContourPolygons(LabelPolygons):
    """The operation; its fields are the parameters of `contours`.

    The label of a band is the number of its upper break.

    Attributes
    ----------
    breaks
        Ascending; none for every `interval` from `base` on.
    """

    breaks: tuple[float, ...] = ()
    interval: float = 0.0
    base: float = 0.0
    cumulative: bool = False

    command = "contours"
    name = NAME
    fields = FIELDS

    def settings(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("layer", "interval", "base", "cumulative")}
        return {**own, "breaks": list(map(repr, self.breaks))}  # JSON knows no infinite number

    def plan(
        self, memory_limit: int | str | None, threads: int | None, gpu: Any = None
    ) -> StreamPlan:
        layer = self.layers[0]
        return plan_polygons(
            *layer.grid.shape,
            layer.dtype,
            layer.block_size,
            path=self.path,
            labels=len(self.breaks) if self.cumulative else 1,
            memory_limit=memory_limit,
            threads=threads,
        )

    @property
    def label_type(self) -> np.dtype:
        return np.dtype(np.int64)

    def labelled(
        self, values: np.ndarray, inside: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        band = self._bands(values, inside)
        if not self.cumulative:
            yield band, inside & (band < len(self.breaks)) if self.breaks else inside
        for number in range(len(self.breaks) if self.cumulative else 0):
            yield np.full(band.shape, number), inside & (band <= number)

    def _bands(self, values: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """The number of the least break at or above each value."""
        if self.breaks:
            return np.searchsorted(self.breaks, values.astype(np.float64), side="left")
        reals = np.where(inside, values, 0).astype(np.float64)
        refuse_interval(reals, self.base, self.interval)
        band = np.ceil((reals - self.base) / self.interval).astype(np.int64)
        # Divisions are rounded.
        while (above := self.base + (band - 1) * self.interval >= reals).any():
            band -= above
        while (below := self.base + band * self.interval < reals).any():
            band += below
        return band

    def about(self, label: int) -> tuple[Any, ...]:
        if not self.breaks:
            return self.base + (label - 1) * self.interval, self.base + label * self.interval
        lower = self.breaks[label - 1] if label and not self.cumulative else None
        upper = self.breaks[label]
        return lower, upper if math.isfinite(upper) else None
