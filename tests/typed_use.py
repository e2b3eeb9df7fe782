"""Calls as users write them, which mypy checks with the package; nothing runs this file."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import xarray

import terrain_gpu
from terrain_gpu import Contours, ShortestPaths


def calls(dem: xarray.DataArray, cells: np.ndarray, cupy: Any, table: Any) -> None:
    """Every kind of input."""
    for one in (cells, "dem.zarr", Path("dem.zarr"), terrain_gpu.TileStore.open("s")):
        plain = terrain_gpu.shortest_paths(one, [(0, 0)], friction=dem)
        assert_type(plain, ShortestPaths[np.ndarray])
    terrain_gpu.shortest_paths(cupy, [(0, 0)])
    found = terrain_gpu.shortest_paths(data=dem, sources=[(0, 0)], cost="tobler")
    assert_type(found.distance(), xarray.DataArray)  # as it was given
    found.distance().sel(x=5.0, method="nearest").mean()
    terrain_gpu.shortest_paths([[0, 1], [2, 3]], table)
    terrain_gpu.shortest_paths(5, [(0, 0)])  # type: ignore[call-overload]
    terrain_gpu.shortest_paths(dem, [(0, 0)], connectivity=5)  # type: ignore[call-overload]
    assert_type(terrain_gpu.contours(dem, interval=10), Contours)
    terrain_gpu.fill(cells)  # type: ignore[arg-type]
    terrain_gpu.slope(dem, progress=lambda done, total: None).to_xarray().slope.mean()


def masked(cells: np.ma.MaskedArray) -> None:
    """Masked arrays in and out."""
    terrain_gpu.shortest_paths(cells, [(0, 0)]).distance().mask.any()


def results(found: ShortestPaths[np.ndarray]) -> None:
    """What they return."""
    assert_type(found.to_xarray(), xarray.Dataset)
    found.paths([(0, 0)], [(1, 1)]).to_geodataframe()
    assert_type(found.path(0, 0), np.ndarray | None)
