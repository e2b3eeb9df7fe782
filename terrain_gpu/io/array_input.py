"""DataArrays of xarray as rasters: `ArrayInput`."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from rasterio.crs import CRS
from rasterio.errors import CRSError

from .. import cells
from ..errors import InputError
from ..facts import JsonObject
from ..grid import GridSpec, Window, units
from ..grid.crs import grid_crs
from ..plurals import counted
from .crs import placed, read_crs
from .gdal import ENCODING_TAG

if TYPE_CHECKING:
    from xarray import DataArray

log = logging.getLogger(__name__)

SIDES = ("y", "x"), ("lat", "lon"), ("latitude", "longitude"), ("Y", "X")
"""Names of the two dimensions, rows first."""

Transform = tuple[float, float, float, float, float, float]

EVEN = 1e-3
"""Coordinates are evenly spaced when they are within this fraction of a cell of even ones."""


class ArrayInput:
    """A DataArray as an input of a `Mosaic`, read window by window."""

    driver, files, masked = "DataArray", (), False

    def __init__(self, array: DataArray, band: int | None) -> None:
        self.path = called(array)
        self._array = two_dimensions(array, band, self.path)
        dtype = self._array.dtype
        try:
            self.dtype = cells.layer_dtype(np.dtype(np.uint8) if dtype.kind == "b" else dtype)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        self.grid = grid_of(self._array)
        self.crs = grid_crs(self.grid) if self.grid.crs_wkt else None
        self.nodata = nodata_of(self._array, self.dtype)
        self._also = nodata_values(self._array, self.dtype)[1:]
        attributes = self._array.attrs
        self.encoding = attributes.get(ENCODING_TAG) or None
        self.units = "" if attributes.get("units") is None else str(attributes["units"])
        self.scale = _number(attributes.get("scale_factor", 1), self.path, "scale_factor")
        self.offset = _number(attributes.get("add_offset", 0), self.path, "add_offset")
        chunks = self._array.chunks or [[min(n, 1024)] for n in self._array.shape]
        self.chunk = tuple(max(sizes) for sizes in chunks)
        self.decoding = 3 * math.prod(self.chunk) * dtype.itemsize

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window into `out`."""
        r0, r1, c0, c1 = window
        out[...] = self._array[r0:r1, c0:c1].to_numpy()
        for value in self._also:
            out[cells.near(out, value)] = self.nodata

    def close(self) -> None:
        """Do nothing: no file is open."""


def called(array: DataArray) -> str:
    """The name of a DataArray in messages."""
    return "DataArray" if array.name is None else f"DataArray {str(array.name)!r}"


def two_dimensions(array: DataArray, band: int | None, name: str) -> Any:
    """Drop dimensions of length 1 other than rows and columns, and check these two."""
    pair = next((pair for pair in SIDES if set(pair) <= set(array.dims)), None)
    if pair is None:
        raise InputError(
            f"{name} has the dimensions {', '.join(map(str, array.dims))}; rename those of its "
            'rows and columns to "y" and "x" (.rename)'
        )
    for dim in set(array.dims) - set(pair):
        if band is None and array.sizes[dim] > 1:
            raise InputError(
                f"{name} has {counted(array.sizes[dim], 'entry', 'entries')} along {dim}; "
                f"choose one: .isel({dim}=0)"
            )
        if not 1 <= (band or 1) <= array.sizes[dim]:
            raise InputError(f"{name} has no band {band}; it has {array.sizes[dim]}")
        array = array.isel({dim: (band or 1) - 1})
    if 0 in array.shape:
        raise InputError(f"{name} has no cells: its shape is {array.shape}")
    if array.dims != pair:
        raise InputError(f"{name} has its columns first; use .transpose({pair[0]!r}, {pair[1]!r})")
    return array


# -- georeference ----------------------------------------------------------------------------------


def grid_of(array: Any) -> GridSpec:
    """The grid of a DataArray, from its coordinates, GeoTransform and coordinate system.

    Raises
    ------
    InputError
        when coordinates are not evenly spaced or not in the unit of the coordinate system, or when
        there are none, so that the GeoTransform may be that of a larger array.
    """
    name, mapping = called(array), _mapping(array)
    crs = _crs(array, mapping, name)
    coordinates = [
        array.coords[dim].to_numpy() if dim in array.coords else None for dim in array.dims
    ]
    transform = _told(mapping, name)
    if any(side is not None for side in coordinates):
        grid = _of_coordinates(array, coordinates, transform, name)
    elif transform is not None or crs is not None:
        has = "a coordinate system" if transform is None else "a GeoTransform"
        raise InputError(
            f"{name} has {has} but no coordinates, so it may be a part of a larger array; open the "
            "array with coordinates (without parse_coordinates=False), and select from it"
        )
    else:
        grid = GridSpec(*array.shape)
    _check_units(array, crs, name)
    return grid if crs is None else placed(grid, crs)


def mapping_name(array: DataArray) -> str:
    """Name of the coordinate that is the CF grid mapping, whether it exists or not."""
    name = array.encoding.get("grid_mapping", array.attrs.get("grid_mapping"))
    return name if isinstance(name, str) else "spatial_ref"


def _mapping(array: DataArray) -> JsonObject:
    """Attributes of the CF grid mapping; empty if there is none."""
    name = mapping_name(array)
    return dict(array.coords[name].attrs) if name in array.coords else {}


def _told(mapping: JsonObject, name: str) -> Transform | None:
    """The transform in the GeoTransform attribute, in rasterio's order."""
    if "GeoTransform" not in mapping:
        return None
    text = str(mapping["GeoTransform"])
    try:
        c, a, b, f, d, e = map(float, text.split())
    except ValueError:
        raise InputError(f"{name}: its GeoTransform {text[:60]!r} is not six numbers") from None
    return a, b, c, d, e, f


def _of_coordinates(
    array: DataArray, coordinates: list[Any], transform: Transform | None, name: str
) -> GridSpec:
    """The grid from coordinates of cell centres, or the exact GeoTransform if they agree."""
    axes = []
    for dim, values, k in zip(array.dims, coordinates, (4, 0), strict=True):
        if values is None:
            raise InputError(f"{name} has no coordinates along {dim}; add them")
        if values.dtype.kind not in "iuf" or values.ndim != 1:
            raise InputError(f"{name}: its coordinates along {dim} are not numbers")
        first, count = float(values[0]), len(values)
        if count > 1:
            step = (float(values[-1]) - first) / (count - 1)
        elif transform is not None:
            step = transform[k]
        else:
            raise InputError(
                f"{name} has one cell along {dim}, so its cell size is unknown; set it with "
                ".rio.write_transform"
            )
        off = np.abs(values.astype(np.float64) - (first + step * np.arange(count)))
        most = EVEN * abs(step)
        if values.dtype.kind == "f":  # coordinates of 32 bits are rounded
            most = max(most, 4 * float(np.finfo(values.dtype).eps * np.abs(values).max()))
        if not step or not (off <= most).all():
            row = int(np.argmax(~(off <= most)))
            raise InputError(
                f"{name}: its coordinates along {dim} are not evenly spaced, for example at index "
                f"{row} ({values[row]}); interpolate the array to even spacing (.interp), or sort "
                "it (.sortby)"
            )
        axes.append((first - step / 2, step))
    (f, e), (c, a) = axes
    rows, cols = array.shape
    grid = GridSpec(rows, cols, (a, 0.0, c, 0.0, e, f))
    if transform is not None and not (transform[1] or transform[3]):
        exact = GridSpec(rows, cols, transform)
        # A slice keeps the GeoTransform of the whole.
        return exact if exact.same_place(grid) else grid
    return grid


def _crs(array: DataArray, mapping: JsonObject, name: str) -> CRS | None:
    text = mapping.get("crs_wkt") or mapping.get("spatial_ref") or array.attrs.get("crs")
    if not text and mapping.get("grid_mapping_name"):
        text = getattr(getattr(array, "rio", None), "crs", None)  # rioxarray reads CF parameters
        if not text:
            raise InputError(
                f"{name}: its coordinate system is stored as CF grid-mapping parameters; import "
                "rioxarray to read it, or write it with .rio.write_crs"
            )
    named = [array.coords[d].attrs.get("units") for d in array.dims if d in array.coords]
    if not text and named == ["degrees_north", "degrees_east"]:
        text = "EPSG:4326"
    if not text and str(array.dims[0]).startswith("lat") and _in_degrees(array):
        log.warning(
            "%s: its coordinates %s and %s are interpreted as degrees in WGS 84; set another "
            "coordinate system with .rio.write_crs",
            name,
            *array.dims,
        )
        text = "EPSG:4326"
    try:
        return read_crs(text) if text else None
    except CRSError as error:
        raise InputError(f"{name}: cannot parse its coordinate system: {error}") from None


def _check_units(array: DataArray, crs: CRS | None, name: str) -> None:
    """Check that coordinates are in the unit of their coordinate system."""
    for dim in array.dims:
        unit = str(array.coords[dim].attrs.get("units", "") if dim in array.coords else "")
        size, degrees = units.metres_of(unit), unit.lower() in units.DEGREES
        if not (size or degrees):
            continue
        size = size or 1.0
        unit_name, metres = ("m", 1.0) if crs is None else crs.units_factor
        geographic = crs is not None and crs.is_geographic
        if degrees == geographic and (degrees or abs(size - metres) <= 1e-5 * metres):
            continue
        if degrees == geographic:
            remedy = f"multiply them by {size / metres:.12g}, with .assign_coords"
        else:
            remedy = "write the coordinate system that they belong to, with .rio.write_crs"
        raise InputError(
            f"{name}: its coordinates along {dim} are in {unit}, but lengths of "
            f"{'an array without a coordinate system' if crs is None else 'its coordinate system'} "
            f"are in {unit_name}; {remedy}"
        )


def _in_degrees(array: DataArray) -> bool:
    """Whether the coordinates of an array can be latitudes and longitudes."""
    most = zip(array.dims, (90, 360), strict=True)
    return all(
        dim in array.coords and bool((np.abs(array.coords[dim].to_numpy()) <= size).all())
        for dim, size in most
    )


def _number(value: Any, name: str, key: str) -> float | int:
    """The number in an attribute, which may be an array of one number."""
    one = np.asarray(value)
    if one.size != 1 or one.dtype.kind not in "biuf":
        raise InputError(f"{name}: its {key} {value!r} is not a number; correct or remove it")
    number: float | int = one.reshape(()).item()
    return number


def nodata_of(array: DataArray, dtype: np.dtype) -> float | int | None:
    """The nodata value of a DataArray: the first of `nodata_values`; NaN of floats without one."""
    nodata = nodata_values(array, dtype)
    return nodata[0] if nodata else math.nan if dtype.kind == "f" else None


def nodata_values(array: DataArray, dtype: np.dtype) -> list[float | int]:
    """The nodata values: `_FillValue` and `missing_value` of CF, or else similar attributes.

    In floats that xarray has decoded, nodata is NaN; integers still hold the values in `encoding`.
    Its `fill_value` is ignored: it is that of the Zarr array, 0 by default.
    """
    attributes = {} if dtype.kind == "f" else {**array.encoding, "fill_value": None}
    attributes |= array.attrs
    for keys in (("_FillValue", "missing_value"), ("fill_value",), ("nodata",)):
        values = {}
        for key in keys:
            if (value := attributes.get(key)) is None:
                continue
            # In CF, missing_value may hold several values.
            for one in value if keys[1:] and np.ndim(value) == 1 else [value]:
                number = _number(one, called(array), key)
                if cells.fits(number, dtype):  # else no cell equals it
                    values[cells.as_scalar(number, dtype, f"{called(array)}: {key}")] = key
        if values:
            return [*values]
    return []
