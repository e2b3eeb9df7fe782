"""Layers as DataArrays of xarray, which read cells when needed: `to_dataarray`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from ..facts import JsonObject
from ..grid import GridSpec
from .nodes import DESCRIBED

if TYPE_CHECKING:
    from .layer import Layer


class LayerArray(BackendArray):
    """The cells of a layer, read when indexed."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.shape, self.dtype = layer, layer.grid.shape, layer.dtype
        # Layers are pickled without it.
        self.store = None if layer.labels is None else layer.labels.store

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        window: list[Any] = []
        steps: list[Any] = []
        for indexer, size in zip(key, self.shape, strict=True):
            if isinstance(indexer, slice):
                indices = range(size)[indexer]
                if not indices:
                    shape = [
                        len(range(n)[k])
                        for k, n in zip(key, self.shape, strict=True)
                        if isinstance(k, slice)
                    ]
                    return np.empty(shape, self.dtype)
                window += [min(indices[0], indices[-1]), max(indices[0], indices[-1]) + 1]
                steps.append(slice(None, None, indices.step))
            else:
                index = int(indexer) % size
                window += [index, index + 1]
                steps.append(0)
        cells = self.layer.read_window(*window)
        return cells[tuple(steps)]


def to_dataarray(layer: Layer, chunks: int | None, *, masked: bool) -> xarray.DataArray:
    """A layer as a DataArray; see `Layer.to_xarray`."""
    coords, dims, mapping = coordinates(layer.grid), ("y", "x"), "spatial_ref"
    if layer.labels is not None and layer.labels.coords is not None:
        given_coords = dict(layer.labels.coords)
        mapping, dims = layer.labels.mapping, layer.labels.dims
        reference = coords["spatial_ref"]
        if mapping in given_coords:  # in a slice, it describes the whole array
            reference.attrs = {**given_coords[mapping].attrs, **reference.attrs}
        coords = given_coords | {mapping: reference} if {*dims} <= {*given_coords} else given_coords
    attributes = {name: layer.attributes[name] for name in DESCRIBED if name in layer.attributes}
    if layer.nodata is not None:
        attributes["_FillValue"] = layer.dtype.type(layer.nodata)
    cells = xarray.Variable(dims, indexing.LazilyIndexedArray(LayerArray(layer)), attributes)
    # Not all 64-bit integers can be stored as 64-bit floats.
    if masked and layer.dtype.name not in ("int64", "uint64"):
        plain = {"decode_times": False, "decode_timedelta": False}  # hours stay numbers
        cells = xarray.conventions.decode_cf_variable(layer.name, cells, **plain)
    array = xarray.DataArray(cells, coords=coords, name=layer.name)
    array.encoding = {**cells.encoding, "grid_mapping": mapping}
    if chunks is not None and find_spec("dask") is not None:
        sides = {dim: chunks for dim in dims}
        array = array.chunk(
            sides, name_prefix=f"{layer.name}-", token=_token(layer, chunks, masked)
        )
    return array


def _token(layer: Layer, *options: object) -> str:
    """The token in the names of chunks: equal for equal cells."""
    from dask.base import tokenize

    return str(tokenize(str(layer.path), layer.info.get("digest") or uuid4().hex, *options))


def coordinates(grid: GridSpec) -> JsonObject:
    """The coordinates of a grid: centres of cells, and the CF grid mapping `spatial_ref`."""
    coords: dict[str, Any] = {}
    for axis, values, where in (
        ("y", grid.y_centres(), "north"),
        ("x", grid.x_centres(), "east"),
    ):
        about = {"axis": axis.upper(), "standard_name": f"projection_{axis}_coordinate"}
        if grid.is_geographic:
            about |= {
                "standard_name": {"y": "latitude", "x": "longitude"}[axis],
                "units": f"degrees_{where}",
            }
        coords[axis] = xarray.Variable((axis,), values, about)
    a, b, c, d, e, f = grid.transform
    about = {"GeoTransform": " ".join(repr(v) for v in (c, a, b, f, d, e))}
    if grid.crs_wkt:
        about |= {"crs_wkt": grid.crs_wkt, "spatial_ref": grid.crs_wkt}
    return coords | {"spatial_ref": xarray.Variable((), 0, about)}


def to_dataset(layers: Iterable[Layer], chunks: int | None, *, masked: bool) -> xarray.Dataset:
    """Layers of a store as a Dataset."""
    arrays = {layer.name: to_dataarray(layer, chunks, masked=masked) for layer in layers}
    return xarray.Dataset(arrays, attrs={"Conventions": "CF-1.11"})
