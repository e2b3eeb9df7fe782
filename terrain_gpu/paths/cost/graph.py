"""The weighted grid graph of layers in a store, the base class of operations: `CostGraph`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...engine.arrays import ArrayLayer
from ...engine.operation import Operation
from ...facts import Settings
from ...grid import BlockGrid, units
from ...grid.lengths import metres_per_unit, other_unit, step_lengths, warn_of_mercator
from ...store import Layer
from .knights import Options, options_of
from .models import AS_THEY_ARE, CostModel, row_of
from .terrain import Raster
from .units import unit_of_costs

log = logging.getLogger(__name__)

_SLOPES = re.compile(r"\bslope\b|\bdz\b.*\blength\b|\blength\b.*\bdz\b")
"""Pattern of formulas that combine elevations and lengths."""


@dataclass(frozen=True)
class CostGraph(Operation):
    """The steps of a grid graph and their costs; fields are parameters of `shortest_paths`.

    Attributes
    ----------
    stated
        The cost as stated by the user, from which the unit follows; "" if it is `cost`.
    """

    store: str
    layer: str
    friction: str | None = None
    barriers: str | None = None
    cost: str = "absdiff"
    parameters: Mapping[str, float] = field(default_factory=dict)
    connectivity: int = 8
    corner_cutting: bool = True
    reverse: bool = False
    max_slope: float | None = field(default=None, kw_only=True)
    metric: str = field(default="steps", kw_only=True)
    stated: str = field(default="", kw_only=True, compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        named = self.layer, self.friction, self.barriers
        return tuple(name for name in named if name is not None)

    @property
    def steps(self) -> Settings:
        """The fields that are not layers."""
        found = {
            "cost": self.model.name,
            "parameters": self.model.parameters,
            "connectivity": self.connectivity,
            "corner_cutting": self.corner_cutting,
            "reverse": self.reverse,
        }
        # Omitted if not set, as in older stores.
        if self.max_slope is not None:
            found["max_slope"] = self.max_slope
        if self.metres != AS_THEY_ARE:
            found["metres"] = list(self.metres)
        return found if self.metric == "steps" else {**found, "metric": self.metric}

    @cached_property
    def model(self) -> CostModel:
        own = dict(self.parameters)
        how = self.friction is not None, own, self.max_slope, self.connectivity
        return CostModel(self.cost, *how, self.metres)

    @cached_property
    def metres(self) -> tuple[float, float]:
        """Factors that convert elevations and lengths to the units of the cost."""
        row, heights = row_of(self.cost), self.layers[0]
        if row.metric:
            own = units.metres_of_heights(heights) or units.step_of(heights)
            return own, metres_per_unit(self.grid)
        if row.name == "surface" or self.max_slope is not None:
            return units.rise_of(heights), 1.0
        return AS_THEY_ARE

    @cached_property
    def unit(self) -> str:
        """The unit of costs; "" if unknown."""
        heights = self.layers[0]
        friction = None if self.friction is None else self.layers[1]
        return unit_of_costs(self.stated or self.cost, self.grid, heights, friction)

    @cached_property
    def rasters(self) -> dict[str, Raster | None]:
        """Elevations, frictions and barriers, by the names of their fields."""
        layers = iter(self.layers)
        return {
            key: None if getattr(self, key) is None else _raster(next(layers))
            for key in ("layer", "friction", "barriers")
        }

    @property
    def heights(self) -> Raster:
        found = self.rasters["layer"]
        assert found is not None
        return found

    @property
    def blocks(self) -> BlockGrid:
        return self.layers[0].blocks

    @property
    def options(self) -> Options:
        """(diagonal, corner_cutting, reverse), in the form for kernels."""
        return options_of(self.connectivity, self.corner_cutting, self.reverse, self.metric)

    @cached_property
    def lengths(self) -> np.ndarray:
        return step_lengths(self.grid, self.connectivity)


def _raster(layer: Layer | ArrayLayer) -> Raster:
    if isinstance(layer, ArrayLayer):
        return Raster(layer.data, layer.name, layer.nodata)
    return Raster(layer, str(layer.path), layer.nodata)


def warn_about_lengths(problem: CostGraph) -> None:
    """Warn if units of elevations or lengths are unknown, or a formula combines different units."""
    kind, heights = problem.model.kind, problem.layers[0]
    if kind.metric and not problem.grid.crs_wkt:
        log.warning(
            "cost %s needs metres, but without a CRS the unit of lengths is unknown; they are "
            "treated as metres",
            problem.cost,
        )
    named, lengths = units.scaled_unit_of(heights), other_unit(problem.grid)
    if kind.metric and (named or lengths) and units.metres_of_heights(heights) is None:
        log.warning(
            "%s: cost %s needs elevations in metres, but their unit is %s; they are treated as "
            "metres. If they are not, convert them first with terrain-gpu calc",
            heights.path,
            problem.cost,
            f"{named!r}" if named else "not recorded",
        )
    if kind.name == "formula" and _SLOPES.search(problem.cost):
        units.warn_of_slopes(heights, "the cost")
    if kind.lengths:
        warn_of_mercator(problem.grid, ("lengths", "slopes"))
