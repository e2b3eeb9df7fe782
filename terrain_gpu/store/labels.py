"""The connection of layers to xarray, which is imported only when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..described import Described
from ..errors import InputError

if TYPE_CHECKING:
    import xarray

    from .layer import Layer

CHUNK = 1024
"""Side of the Dask chunks of a layer, in cells."""


class Labels(NamedTuple):
    """Properties that a layer takes from the DataArray or raster that it was computed from.

    Attributes
    ----------
    store
        The temporary store of the layer, which must exist as long as the layer.
    coords, dims
        Coordinates and dimensions of the DataArray, rows first; None for those of the grid.
    mapping
        Name of the coordinate that holds the coordinate system.
    """

    store: Any
    coords: Any = None
    dims: tuple[str, str] = ("y", "x")
    mapping: str = "spatial_ref"


class Layered(Described):
    """A result with `layers` by name."""

    def to_xarray(self, chunks: int | None = CHUNK, *, masked: bool = True) -> xarray.Dataset:
        """Return the layers of the result as an `xarray.Dataset`, whose cells are read when needed.

        They have the coordinates of the DataArray that they were computed from, if any.

        Parameters
        ----------
        chunks, masked
            As for `terrain_gpu.open`.

        Raises
        ------
        InputError
            when xarray is not installed, or the result has no layer.
        """
        layers: list[Layer] = list(getattr(self, "layers", {}).values())
        if not layers:
            raise InputError("the result was computed from arrays, so it has no layers in a store")
        return import_lazy().to_dataset(layers, chunks, masked=masked)


def import_lazy() -> Any:
    """Import the module that needs xarray.

    Raises
    ------
    InputError
        when it is not installed.
    """
    try:
        from . import lazy
    except ImportError as error:
        raise InputError(
            f"xarray cannot be imported ({error}); pip install 'terrain_gpu[xarray]'"
        ) from None
    return lazy
