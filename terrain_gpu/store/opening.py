"""Open a store with xarray: `open`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..arguments import checked, flag, names, whole
from ..grid.spec import MAX_SIDE
from .labels import CHUNK, import_lazy
from .metadata import TileStore

if TYPE_CHECKING:
    import xarray


def _chunks(name: str, value: Any) -> int | None:
    return None if value is None else whole(name, value, 1, MAX_SIDE)


@checked(chunks=_chunks, masked=flag, layers=names)
def open(
    store: str | os.PathLike[str],
    layers: Sequence[str] | None = None,
    *,
    chunks: int | None = CHUNK,
    masked: bool = True,
) -> xarray.Dataset:
    """Open the layers of a store as an `xarray.Dataset`, without reading cells.

    Parameters
    ----------
    store
        A store, or its path or address.
    layers
        Names of layers; all when None.
    chunks
        Side of the Dask chunks in cells. Without Dask, or with None, cells are read into memory
        when indexed.
    masked
        Whether nodata becomes NaN, which converts integers to floats, as in `xarray.open_zarr`.
        With False, and for 64-bit integers, which floats cannot hold, cells stay as they are stored
        and nodata is the attribute ``_FillValue``.

    Returns
    -------
    xarray.Dataset
        With dimensions y and x, the centres of cells as coordinates, and the CRS as the coordinate
        ``spatial_ref``.

    Raises
    ------
    StoreError
        when the store or a layer cannot be opened.
    InputError
        when xarray is not installed.

    Examples
    --------
    >>> terrain_gpu.open("dem.zarr").elevation.mean().compute()
    """
    opened = TileStore.open(store)
    wanted = opened.layers if layers is None else layers
    return import_lazy().to_dataset(map(opened.layer, wanted), chunks, masked=masked)
