"""Features as Python objects: geometries, tables of them, and tables of x and y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from rasterio.crs import CRS

from .. import arguments
from ..arguments import described, refused
from ..facts import JsonObject


class HasGeometries(Protocol):
    """An object such as a shapely geometry or a GeoDataFrame; its CRS, if any, is in `crs`."""

    @property
    def __geo_interface__(self) -> Any: ...


class HasColumns(Protocol):
    """An object such as a DataFrame with columns x and y."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, column: object) -> Any: ...


@dataclass(frozen=True, eq=False)
class GeoObject:
    """Features in memory, read in the same way as a GeoJSON file.

    Attributes
    ----------
    name
        Name in messages.
    data
        GeoJSON: a FeatureCollection, Feature or geometry.
    crs
        Coordinate system; that of the raster when None.
    """

    name: str
    data: Any
    crs: CRS | None = None

    def __str__(self) -> str:
        return self.name


def geo_object(name: str, value: Any) -> GeoObject | None:
    """Return the features in an object with geometries or coordinates; None for other objects.

    Accepted are objects with a ``__geo_interface__`` (of shapely, GeoPandas and others), sequences
    and arrays of these, and tables with columns x and y in the raster's CRS, optionally id and
    cost.

    Raises
    ------
    InputError
        when a table does not have the columns x and y.
    """
    crs_object: Any = getattr(value, "crs", None)
    crs = CRS.from_wkt(crs_object.to_wkt()) if hasattr(crs_object, "to_wkt") else None
    if hasattr(value, "__geo_interface__"):
        return GeoObject(name, value.__geo_interface__, crs)
    arrays = str(getattr(value, "dtype", "")) in ("object", "geometry")  # of NumPy, of GeoPandas
    several = list(value) if isinstance(value, list | tuple) or (arrays and np.ndim(value)) else []
    if several and all(hasattr(one, "__geo_interface__") for one in several):
        return GeoObject(name, _collection([one.__geo_interface__ for one in several], {}), crs)
    if not hasattr(value, "columns") or callable(value.columns):
        return None
    columns = {str(one): np.asarray(value[one]).tolist() for one in value.columns}
    if not {"x", "y"} <= set(columns):
        has = ", ".join(columns)[:80] or "none"
        raise refused(
            name,
            " {given}: a table needs the columns x and y, but its columns are {has}; rename those "
            "with coordinates (.rename)",
            given=described(value),
            has=has,
        )
    points = zip(columns.pop("x"), columns.pop("y"), strict=True)
    return GeoObject(
        name, _collection([{"type": "Point", "coordinates": one} for one in points], columns)
    )


def _collection(geometries: list[Any], columns: dict[str, list[Any]]) -> JsonObject:
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(geometries)
    features = [
        {"geometry": geometry, "properties": dict(zip(columns, row, strict=True))}
        for geometry, row in zip(geometries, rows, strict=True)
    ]
    return {"type": "FeatureCollection", "features": features}


def file_or_object(name: str, value: Any) -> Any:
    """Check for `arguments.checked`: a path, or an object that `geo_object` accepts."""
    if isinstance(value, GeoObject):
        return value
    return geo_object(name, value) or arguments.path(name, value)
