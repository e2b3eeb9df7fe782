"""Areas between the levels of a layer, as polygons along the edges of their cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...io.features import Fields
from ..drawing.levels import ContourLevels
from ..polygons.operation import LabelPolygons, plan_polygons
from ..polygons.proof import BandClasses, Classes
from .lines import NAME

FIELDS: Fields = {
    "lower": np.float64,
    "upper": np.float64,
    "cells": np.int64,
    "area": np.float64,
}


@dataclass(frozen=True)
class ContourPolygons(LabelPolygons):
    """The operation; its fields are the parameters of `contours`.

    The label of a band is the number of its upper level.
    """

    levels: ContourLevels
    cumulative: bool = False

    command = "contours"
    name = NAME
    fields = FIELDS

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self.levels.settings(), "cumulative": self.cumulative}

    def plan(self, machine: Machine) -> StreamPlan:
        layer = self.layers[0]
        return plan_polygons(
            *layer.grid.shape,
            layer.dtype,
            layer.block_size,
            path=self.path,
            labels=len(self.levels.breaks) if self.cumulative else 1,
            machine=machine,
        )

    @property
    def label_type(self) -> np.dtype:
        return np.dtype(np.int64)

    def labelled(
        self, values: np.ndarray, inside: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        reals, count = np.where(inside, values, 0).astype(np.float64), len(self.levels.breaks)
        self.levels.refuse(reals)
        band = self.levels.bands(reals)
        if not self.cumulative:
            yield band, inside & (band < count) if count else inside
        for number in range(count if self.cumulative else 0):
            yield np.full(band.shape, number), inside & (band <= number)

    @property
    def classes(self) -> Classes:
        return BandClasses(self.levels, self.cumulative)

    def about(self, label: int) -> tuple[Any, ...]:
        lower, upper = self.levels.band(label)
        return None if self.cumulative else lower, upper
