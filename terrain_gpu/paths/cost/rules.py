"""The rules of a step as one value: `Cost`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ... import arguments
from ...arguments import CostName, PathConnectivity, PathMetric, refused, word
from ...errors import ArgumentError
from ...facts import Settings

if TYPE_CHECKING:
    from .resolve import VerticalFactor

CHECKS = {
    "model": arguments.text,
    "connectivity": word(PathConnectivity),
    "metric": word(PathMetric),
}


def _checked(name: str, value: object) -> Any:
    return CHECKS.get(name, arguments.check)(name, value)


@dataclass(frozen=True)
class Cost:
    """The cost of steps, and which steps exist, for use in several calls.

    Functions accept it as `cost`, instead of separate arguments.

    Parameters
    ----------
    model
        "absdiff", "friction", "surface", "tobler", "langmuir", "minimax", or a formula.
    parameters
        Values of the parameters of the model, or of names in the formula.
    connectivity
        Neighbours of a cell: 8, 4 or 16.
    metric
        "steps" from neighbour to neighbour, or "continuous", in any direction.
    corner_cutting
        Whether diagonal steps may pass between two cells that are barriers or nodata.
    max_slope
        The steepest step, as rise over run.
    vertical_factor
        Factors of the cost by slope.

    Raises
    ------
    InputError
        for a value that functions do not accept.

    Examples
    --------
    >>> walk = Cost("tobler", max_slope=0.6, connectivity=16)
    >>> found = shortest_paths("dem.zarr", [(0, 0)], cost=walk)
    """

    model: CostName | str
    parameters: Mapping[str, float] | None = field(default=None, hash=False)
    connectivity: PathConnectivity = 8
    metric: PathMetric = "steps"
    corner_cutting: bool = True
    max_slope: float | None = None
    vertical_factor: VerticalFactor | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for one in fields(self):
            if (value := getattr(self, one.name)) is not None or one.default is not None:
                object.__setattr__(self, one.name, _checked(one.name, value))

    def _rules(self) -> Settings:
        """The fields other than the model that differ from their defaults."""
        values = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {name: value for name, (value, usual) in values.items()
                if usual is not MISSING and value != usual}  # fmt: skip

    def fill_in(self, call: inspect.BoundArguments) -> None:
        """Set the arguments of a call from these fields.

        Raises
        ------
        ArgumentError
            when the call also has one of these arguments, or its function does not have a rule.
        """
        for one in fields(self)[1:]:
            if one.name in call.arguments:
                raise ArgumentError(
                    f"{{{one.name}}} is part of the {{cost}}, a Cost: give it there"
                )
        for name, value in self._rules().items():
            if name not in call.signature.parameters:
                raise refused("cost", " has {rule}, which is not possible here: leave it out",
                              rule=f"{name}={value!r}")  # fmt: skip
            call.arguments[name] = value
        call.arguments["cost"] = self.model
