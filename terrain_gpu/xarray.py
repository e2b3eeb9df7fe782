"""The accessor `da.terrain` of DataArrays; ``import terrain_gpu.xarray`` registers it.

Each method is the public function in `METHODS` on the DataArray, and returns the layers that it
computed: one as a DataArray, several as a Dataset. Their cells are lazy.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import terrain_gpu

try:
    import xarray
except ImportError as error:
    raise ImportError(f"{error}; pip install 'terrain_gpu[xarray]'") from None

METHODS = {
    "accumulate": "accumulate",
    "basins": "basins",
    "breach": "breach",
    "calc": "calc",
    "components": "label_components",
    "cost_distance": "shortest_paths",
    "fill": "fill",
    "flow_accumulation": "flow_accumulation",
    "flow_direction": "flow_direction",
    "hand": "hand",
    "indices": "terrain_indices",
    "slope": "slope",
    "spanning_tree": "minimum_spanning_tree",
    "streams": "streams",
    "watershed": "watershed",
}
"""Methods of the accessor, and the functions that they are."""


@xarray.register_dataarray_accessor("terrain")
class TerrainAccessor:
    """Terrain analysis of a DataArray of heights, or of what the function needs."""

    def __init__(self, array: xarray.DataArray) -> None:
        self._array = array


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()

    @functools.wraps(function)
    def method(self: TerrainAccessor, *args: Any, **more: Any) -> Any:
        found = function(self._array, *args, **more).to_xarray()
        return next(iter(found.values())) if len(found) == 1 else found

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__qualname__ = name, f"TerrainAccessor.{name}"
    method.__signature__ = inspect.Signature([own, *others])  # type: ignore[attr-defined]
    return method


for _name, _function in METHODS.items():
    setattr(TerrainAccessor, _name, _method(_name, getattr(terrain_gpu, _function)))
