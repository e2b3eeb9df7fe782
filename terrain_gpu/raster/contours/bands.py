"""Areas between the levels of a layer, as polygons along the edges of their cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.run import Result
from ...facts import Settings
from ...io.features import Fields
from ..drawing.levels import ContourLevels
from ..polygons.operation import LabelPolygons
from ..polygons.proof import BandClasses, Classes
from .lines import NAME, Contours

FIELDS: Fields = {
    "lower": np.float64,
    "upper": np.float64,
    "cells": np.int64,
    "area": np.float64,
}


@dataclass(frozen=True)
class ContourPolygons(LabelPolygons):
    """Areas between levels. The label of a band is the number of its upper level."""

    levels: ContourLevels
    cumulative: bool = False

    command = "contours"
    name = NAME
    fields = FIELDS

    def settings(self) -> Settings:
        return {**super().settings(), **self.levels.settings(), "cumulative": self.cumulative}

    computed = True

    @property
    def labels_of_a_cell(self) -> int:
        return len(self.levels.breaks) if self.cumulative else 1

    def result(self, found: Result) -> Contours:
        drawn, count = super().result(found), found.found["labels"]
        return Contours(drawn.path, count, count, drawn.report)

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
