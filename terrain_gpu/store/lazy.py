"""Layers as DataArrays of xarray, which read cells when asked: `to_dataarray`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from ..grid import GridSpec
from .labels import DESCRIBED
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
        for one, size in zip(key, self.shape, strict=True):
            if isinstance(one, slice):
                there = range(size)[one]
                if not there:
                    shape = [
                        len(range(n)[k])
                        for k, n in zip(key, self.shape, strict=True)
                        if isinstance(k, slice)
                    ]
                    return np.empty(shape, self.dtype)
                window += [min(there[0], there[-1]), max(there[0], there[-1]) + 1]
                steps.append(slice(None, None, there.step))
            else:
                at = int(one) % size
                window += [at, at + 1]
                steps.append(0)
        found = self.layer.read_window(*window)
        return found[tuple(steps)]


def to_dataarray(layer: Layer, chunks: int | None, *, masked: bool) -> xarray.DataArray:
    """A layer as a DataArray; see `Layer.to_xarray`."""
    coords, dims, mapping = coordinates(layer.grid), ("y", "x"), "spatial_ref"
    if layer.labels is not None and layer.labels.coords is not None:
        own = dict(layer.labels.coords)
        mapping, dims = layer.labels.mapping, layer.labels.dims
        reference = coords["spatial_ref"]
        if mapping in own:  # that of a slice is of the whole
            reference.attrs = {**own[mapping].attrs, **reference.attrs}
        coords = own | {mapping: reference} if {*dims} <= {*own} else own
    attributes = {name: layer.attributes[name] for name in DESCRIBED if name in layer.attributes}
    if layer.nodata is not None:
        attributes["_FillValue"] = layer.dtype.type(layer.nodata)
    cells = xarray.Variable(dims, indexing.LazilyIndexedArray(LayerArray(layer)), attributes)
    # Floats of 64 bits do not hold all integers of 64 bits.
    if masked and layer.dtype.name not in ("int64", "uint64"):
        plain = {"decode_times": False, "decode_timedelta": False}  # hours stay numbers
        cells = xarray.conventions.decode_cf_variable(layer.name, cells, **plain)
    found = xarray.DataArray(cells, coords=coords, name=layer.name)
    found.encoding = {**cells.encoding, "grid_mapping": mapping}
    if chunks is not None and find_spec("dask") is not None:
        sides = {dim: chunks for dim in dims}
        found = found.chunk(
            sides, name_prefix=f"{layer.name}-", token=_token(layer, chunks, masked)
        )
    return found


def _token(layer: Layer, *how: Any) -> str:
    """What names the chunks: equal for equal cells."""
    from dask.base import tokenize

    return str(tokenize(str(layer.path), layer.info.get("digest") or uuid4().hex, *how))


def coordinates(grid: GridSpec) -> dict[str, Any]:
    """The coordinates of a grid: centres of cells, and the CF grid mapping `spatial_ref`."""
    found: dict[str, Any] = {}
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
        found[axis] = xarray.Variable((axis,), values, about)
    a, b, c, d, e, f = grid.transform
    about = {"GeoTransform": " ".join(repr(v) for v in (c, a, b, f, d, e))}
    if grid.crs_wkt:
        about |= {"crs_wkt": grid.crs_wkt, "spatial_ref": grid.crs_wkt}
    return found | {"spatial_ref": xarray.Variable((), 0, about)}


def to_dataset(layers: Iterable[Layer], chunks: int | None, *, masked: bool) -> xarray.Dataset:
    """Layers of a store as a Dataset."""
    found = {one.name: to_dataarray(one, chunks, masked=masked) for one in layers}
    return xarray.Dataset(found, attrs={"Conventions": "CF-1.11"})
