"""The definition of heights above the nearest drainage: `AboveRule`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...cells import is_nodata
from ...engine.operation import OutputLayer
from ...facts import Settings
from ...grid import units
from ...grid.lengths import step_lengths, whole_lengths
from ...store.readable import Readable
from .code_values import NODATA
from .relative import as_floats, base_of

KINDS = ("height", "distance")

NEVER = -(1 << 62)
"""Length of a step that reaches no stream: sums stay negative on any path; see `whole_lengths`."""


@dataclass(frozen=True)
class AboveRule:
    """The cells that are streams, and how heights above them and distances to them are written.

    Attributes
    ----------
    heights, streams
        Layers of elevations and of streams. None as `streams` means the outlets.
    threshold
        Smallest value of a stream cell in `streams`; None for all values except 0 and nodata.
    divided
        Whether results are averages over divided flow. These are float64, so that the value of each
        cell follows from those of others.
    """

    heights: Readable
    streams: Any
    threshold: float | None = None
    divided: bool = False

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The input layers."""
        return (self.heights,) if self.streams is None else (self.heights, self.streams)

    @property
    def exact(self) -> np.dtype:
        """The narrowest float type that holds the elevations exactly."""
        small = np.can_cast(self.heights.dtype, np.float32)
        return np.dtype(np.float32 if small else np.float64)

    @property
    def dtype(self) -> np.dtype:
        """Data type of the heights above streams."""
        return np.dtype(np.float64) if self.divided else self.exact

    def outputs(self, into: str, distance: str | None) -> tuple[OutputLayer, ...]:
        """The layers to write."""
        names = (into,) if distance is None else (into, distance)
        types = self.dtype, np.dtype(np.float64)
        of_layers = units.unit_of(self.heights), units.of_lengths(self.heights.grid)
        return tuple(
            OutputLayer(
                *(name, dtype, NODATA, f"{kind}s above streams", {"holds": kind}),
                described=units.in_unit(unit),
            )
            for name, dtype, kind, unit in zip(names, types, KINDS, of_layers, strict=False)
        )

    @cached_property
    def lengths(self) -> tuple[np.ndarray, float]:
        """Step lengths in whole units, int64, shape (4, rows); and the unit."""
        grid = self.heights.grid
        return whole_lengths(grid, step_lengths(grid))

    def is_stream(self, cells: np.ndarray) -> np.ndarray:
        """Return the mask of stream cells."""
        streams = cells != 0 if self.threshold is None else cells >= self.threshold
        return streams & ~is_nodata(cells, self.streams.nodata)

    def height(self, cells: np.ndarray) -> np.ndarray:
        """Return the elevations of cells as floats, minus `relative.base_of`; NaN for nodata."""
        base = base_of(self.heights)
        levels = as_floats(cells, base) if base else cells.astype(self.exact)
        levels[is_nodata(cells, self.heights.nodata)] = np.nan
        return levels

    def write_heights(self, heights: np.ndarray, streams: np.ndarray, out: np.ndarray) -> None:
        """Write heights above streams, given the streams' elevations, NaN where there is none."""
        with np.errstate(over="ignore"):
            np.subtract(heights, streams, out=out)
        out[~np.isfinite(out)] = NODATA

    def write_distances(self, lengths: np.ndarray, out: np.ndarray) -> None:
        """Write lengths of flow paths, given in units, negative where they reach no stream."""
        np.multiply(lengths, self.lengths[1], out=out)
        out[lengths < 0] = NODATA


def streams_settings(streams: str | None, threshold: float | None) -> Settings:
    """Return what is recorded about streams; None means the outlets."""
    if streams is None:
        return {"to_outlets": True}
    return {"streams": streams, "threshold": threshold}
