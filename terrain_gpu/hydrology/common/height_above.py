"""What heights above the nearest drainage are: `AboveRule`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.operation import OutputLayer
from ...grid import units
from ...grid.lengths import step_lengths, whole_lengths
from .code_values import NODATA
from .relative import as_floats, base_of

KINDS = ("height", "distance")

NEVER = -(1 << 62)
"""Length of a step that leads to no stream: no way makes it good, see `whole_lengths`."""


@dataclass(frozen=True)
class AboveRule:
    """Which cells are streams, and how heights above them, and distances to them, are written.

    Attributes
    ----------
    heights, streams
        Layers; in place of streams None for the outlets, where ways end.
    threshold
        Least value of a cell of `streams` that is a stream; None: all but 0 and nodata are.
    divided
        Whether results are averages over divided flow: in float64, so that each cell's follow
        from those of others.
    """

    heights: Any
    streams: Any
    threshold: float | None = None
    divided: bool = False

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The layers that there are."""
        return (self.heights,) if self.streams is None else (self.heights, self.streams)

    @property
    def exact(self) -> np.dtype:
        """The narrowest type that holds the heights exactly."""
        small = np.can_cast(self.heights.dtype, np.float32)
        return np.dtype(np.float32 if small else np.float64)

    @property
    def dtype(self) -> np.dtype:
        """Type of the heights above streams."""
        return np.dtype(np.float64) if self.divided else self.exact

    def outputs(self, into: str, distance: str | None) -> tuple[OutputLayer, ...]:
        """The layers to write."""
        names = (into,) if distance is None else (into, distance)
        types = self.dtype, np.dtype(np.float64)
        own = units.unit_of(self.heights), units.of_lengths(self.heights.grid)
        return tuple(
            OutputLayer(
                *(name, dtype, NODATA, f"{kind}s above streams", {"holds": kind}),
                described=units.in_unit(unit),
            )
            for name, dtype, kind, unit in zip(names, types, KINDS, own, strict=False)
        )

    @cached_property
    def lengths(self) -> tuple[np.ndarray, float]:
        """Lengths of steps as whole units, int64, shape (4, rows), and the unit."""
        grid = self.heights.grid
        return whole_lengths(grid, step_lengths(grid))

    def is_stream(self, cells: np.ndarray) -> np.ndarray:
        found = cells != 0 if self.threshold is None else cells >= self.threshold
        return found & ~is_nodata(cells, self.streams.nodata)

    def height(self, cells: np.ndarray) -> np.ndarray:
        """Heights of cells, as `relative.as_floats` has them; NaN where there is none."""
        base = base_of(self.heights)
        found = as_floats(cells, base) if base else cells.astype(self.exact)
        found[is_nodata(cells, self.heights.nodata)] = np.nan
        return found

    def write_heights(self, heights: np.ndarray, streams: np.ndarray, out: np.ndarray) -> None:
        """Write heights above the heights of streams, which are NaN where there is none."""
        with np.errstate(over="ignore"):
            np.subtract(heights, streams, out=out)
        out[~np.isfinite(out)] = NODATA

    def write_distances(self, lengths: np.ndarray, out: np.ndarray) -> None:
        """Write lengths of ways, in units; less than 0 where they meet no stream."""
        np.multiply(lengths, self.lengths[1], out=out)
        out[lengths < 0] = NODATA


def streams_settings(streams: str | None, threshold: float | None) -> dict[str, Any]:
    """Return what is recorded of streams; None are the outlets."""
    if streams is None:
        return {"to_outlets": True}
    return {"streams": streams, "threshold": threshold}
