"""The result of `shortest_paths`: `ShortestPaths`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import (
    Any,
    Generic,
    ParamSpec,
    TypeVar,
)

import numpy as np

from ...arguments import whole
from ...errors import InputError
from ...grid import BlockGrid, GridSpec
from ...io.labelled import ArrayKind
from ...io.places import PlacesLike, as_places
from ...report import Report
from ...store import Layer
from ...store.labels import Layered
from ..cost.steps import UNREACHED, unreached
from ..cost.terrain import EDGE
from ..relax.trace import TracedPath, path_length, trace_path
from .output import TracedPaths

Cells = TypeVar("Cells")
"""`numpy.ndarray`, plain or masked; `xarray.DataArray` or `cupy.ndarray` if the input is one."""

P = ParamSpec("P")

ABSENT = {"backlink": UNREACHED, "allocation": 0}
"""Values of unreached cells in the other results."""


@dataclass(repr=False)
class ShortestPaths(Layered, Generic[Cells]):
    """Cost distances from sources.

    Attributes
    ----------
    layers
        Computed layers of the store by kind, "distance", and "backlink" and "allocation" if
        requested, whatever their names are. Empty when computed from arrays.
    grid
        The grid of the raster.
    reached
        Number of cells reached from a source.
    report
        The run's `Report`.
    """

    layers: dict[str, Layer]
    grid: GridSpec
    reached: int
    report: Report
    _arrays: dict[str, np.ndarray]
    _blocks: BlockGrid
    _lengths: np.ndarray
    _kind: ArrayKind | None = None

    def _whole(self, name: str) -> Any:
        if name in self._arrays:
            found = self._arrays[name]
            if self._kind is None:
                return found
            return self._kind.array(found, ABSENT.get(name, unreached(found.dtype)))
        if name not in self.layers:
            raise InputError(f"{name} was not computed; compute with {name}=True")
        layer = self.layers[name]
        labelled = layer.labels is not None and layer.labels.coords is not None
        return layer.to_xarray() if labelled else layer.read_window(*self.grid.window)

    def distance(self) -> Cells:
        """Read all distances into memory.

        uint32 or uint64 for integer costs, with the largest value at unreached cells; otherwise
        float64, with NaN at unreached cells. If the input was a DataArray, this and the other
        arrays are lazy DataArrays, see `Layer.to_xarray`; if it was a masked array, unreached cells
        are masked; if it was a CuPy array, results are CuPy arrays on the same GPU.
        """
        return self._whole("distance")

    def backlink(self) -> Cells:
        """Read all codes towards predecessors, uint8; 0 at sources, 255 at unreached cells.

        D8 codes; for a knight's move, the sum of the codes of the two cells that it passes between.
        """
        return self._whole("backlink")

    def allocation(self) -> Cells:
        """Read the id of the source of each cell, uint32; 0 at unreached cells."""
        return self._whole("allocation")

    def path(self, row: int, col: int) -> np.ndarray | None:
        """Return the cells (row, col) of the least-cost path to a cell; None if it is unreached.

        int64, shape (n, 2). Requires ``backlink=True``.
        """
        row, col = (
            whole(name, at, 0, size - 1)
            for name, at, size in zip(("row", "col"), (row, col), self.grid.shape, strict=True)
        )
        if "backlink" in self._arrays:
            codes = self._arrays["backlink"]

            def read(i: int, j: int) -> np.ndarray:
                r0, r1, c0, c1 = self._blocks.window(i, j)
                return codes[r0:r1, c0:c1]

        elif "backlink" in self.layers:
            read = self.layers["backlink"].read_block
        else:
            raise InputError("paths need backlinks; compute with backlink=True")
        return trace_path(read, self._blocks, row, col, 2 * len(self._lengths))

    @property
    def unit(self) -> str:
        """The unit of distances, such as "s"; "" if unknown."""
        return str(self.report.result["unit"])

    def paths(self, targets: PlacesLike, sources: PlacesLike) -> TracedPaths:
        """Return least-cost paths to the targets that are reached, with cost, length and source.

        The list can be converted to a GeoDataFrame: ``paths(...).to_geodataframe()``.
        `targets` and `sources` have the same forms as in `shortest_paths`. There is one path for
        every cell and id of `targets`, in their order; paths to targets in the same cell share
        their cells.
        """
        targets = as_places(self.grid, targets, "targets").as_given()
        sources = as_places(self.grid, sources, "sources").one_per_cell()
        found: list[TracedPath] = []
        ids = {
            (r, c): i
            for r, c, i in zip(
                *(a.tolist() for a in (sources.rows, sources.cols, sources.ids)), strict=True
            )
        }
        traced: dict[tuple[int, int], TracedPath] = {}
        across = self._blocks.cols if self._blocks.wraps else None
        for row, col, name in zip(
            targets.rows.tolist(), targets.cols.tolist(), targets.ids.tolist(), strict=True
        ):
            named = targets.names.get(name, str(name)) if targets.names else None
            if (row, col) in traced:
                found.append(replace(traced[row, col], target=name, target_name=named))
                continue
            cells = self.path(row, col)
            if cells is None:
                continue
            cost = self._at("distance", row, col)
            source = ids.get((int(cells[0, 0]), int(cells[0, 1])), EDGE)
            begin = sources.names.get(source, str(source)) if sources.names else None
            path = TracedPath(
                source, name, cost, path_length(cells, self._lengths, across), cells, begin, named
            )
            traced[row, col] = path
            found.append(path)
        return TracedPaths(found, self.grid, self.unit)

    def _at(self, name: str, row: int, col: int) -> float:
        if name in self._arrays:
            return self._arrays[name][row, col].item()
        return self.layers[name].read_window(row, row + 1, col, col + 1)[0, 0].item()
