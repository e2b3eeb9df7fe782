"""The accessor `da.terrain` of DataArrays; ``import terrain_gpu.xarray`` registers it.

Each method is the public function in `METHODS` on the DataArray, and returns the layers that it
computed: one as a DataArray, several as a Dataset. Their cells are lazy. The methods in `FEATURES`
return a GeoDataFrame.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import terrain_gpu

from .tool import drawn
from .tools import TOOLS, tool_of

if TYPE_CHECKING:
    import geopandas

    from .io.places import PlacesLike

try:
    import xarray
except ImportError as error:
    raise ImportError(f"{error}; pip install 'terrain_gpu[xarray]'") from None

_TOOLS = [tool_of(command) for command in TOOLS]

METHODS = {one.accessor: one.function for one in _TOOLS if one.accessor and not drawn(one)}
"""Methods of the accessor, and the functions that they call."""

FEATURES = {one.accessor: one.function for one in _TOOLS if one.accessor and drawn(one)}
"""Methods that return a GeoDataFrame, and the functions that they call."""


@xarray.register_dataarray_accessor("terrain")
class TerrainAccessor:
    """Terrain analysis of a DataArray of elevations, or of what a function needs instead."""

    def __init__(self, array: xarray.DataArray) -> None:
        self._array = array

    def least_cost_paths(
        self, sources: PlacesLike, targets: PlacesLike, **how: Any
    ) -> geopandas.GeoDataFrame:
        """The least-cost paths to the targets that can be reached, as lines.

        Parameters
        ----------
        sources, targets
            As for `cost_distance`.
        how
            Other arguments of `cost_distance`, such as ``cost="tobler"``.

        Returns
        -------
        geopandas.GeoDataFrame
            In the CRS of the DataArray; see `ShortestPaths.paths`.
        """
        own = {"targets": targets, "stop_at_targets": True, "backlink": True}
        found = terrain_gpu.shortest_paths(self._array, sources, **{**how, **own})
        return found.paths(targets, sources).to_geodataframe()

    def corridor(
        self, sources: PlacesLike, targets: PlacesLike | None = None, **how: Any
    ) -> xarray.DataArray:
        """The cost of the best path through each cell, less that of the best path of all.

        Parameters
        ----------
        sources, targets
            As for `cost_distance`. Without targets, give ``pairs``, such as ``"delaunay"``.
        how
            Other arguments of `terrain_gpu.corridor`, such as ``cost="tobler"``.

        Returns
        -------
        xarray.DataArray
            float64, in the unit of the cost; NaN elsewhere.

        Examples
        --------
        >>> detour = dem.terrain.corridor(huts, summits, cost="tobler", within="5%")
        """
        found = terrain_gpu.corridor(self._array, sources=sources, targets=targets, **how)
        (layer,) = found.layers.values()
        return layer.to_xarray()


def _whole_numbers(array: xarray.DataArray) -> xarray.DataArray:
    """Labels as the integers that they were before nodata became NaN."""
    dtype, nodata = (array.encoding.get(key) for key in ("dtype", "_FillValue"))
    if array.dtype.kind != "f" or nodata is None or np.dtype(dtype).kind not in "iu":
        return array
    whole = array.fillna(nodata).astype(dtype)
    return whole.assign_attrs(array.attrs, _FillValue=nodata)


def _drawing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that draws features, without the parameter that names a layer.

    If a file is given, it is written as well.
    """
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()
    kept = [one for one in others if one.name != "layer"]
    labels = name == "polygons"

    def method(self: TerrainAccessor, *args: Any, **more: Any) -> Any:
        cells = _whole_numbers(self._array) if labels else self._array
        return function(cells, *args, **more).to_geodataframe()

    return _like(method, name, function, kept)


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()

    def method(self: TerrainAccessor, *args: Any, **more: Any) -> Any:
        found = function(self._array, *args, **more).to_xarray()
        return next(iter(found.values())) if len(found) == 1 else found

    return _like(method, name, function, others)


def _like(
    method: Callable[..., Any], name: str, function: Callable[..., Any], parameters: list[Any]
) -> Callable[..., Any]:
    """A method with the documentation of a function, and these parameters."""
    method = functools.wraps(function)(method)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__qualname__ = name, f"TerrainAccessor.{name}"
    method.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    return method


for _make, _names in ((_method, METHODS), (_drawing, FEATURES)):
    for _name, _function in _names.items():
        setattr(TerrainAccessor, _name, _make(_name, getattr(terrain_gpu, _function)))
