"""Features as Python objects: geometries, tables of them, and tables of x and y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from rasterio.crs import CRS

from .. import arguments
from ..arguments import described, refused


class HasGeometries(Protocol):
    """Such as a geometry of shapely or a GeoDataFrame; its CRS is in `crs`, if anywhere."""

    @property
    def __geo_interface__(self) -> Any: ...


class HasColumns(Protocol):
    """Such as a DataFrame with columns x and y."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, column: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class GeoObject:
    """Features in the memory of a program, read as a GeoJSON file is.

    Attributes
    ----------
    name
        What messages call it.
    data
        GeoJSON: a FeatureCollection, Feature or geometry.
    crs
        Its coordinate system; that of the raster when None.
    """

    name: str
    data: Any
    crs: CRS | None = None

    def __str__(self) -> str:
        return self.name


def geo_object(name: str, given: Any) -> GeoObject | None:
    """Features of an object that is, or contains, geometries or coordinates; None if it is not.

    Such are objects with a ``__geo_interface__`` (of shapely, GeoPandas and others), sequences and
    arrays of these, and tables with columns x and y, in the raster's CRS, and id and cost if any.

    Raises
    ------
    InputError
        when a table has no such columns.
    """
    own: Any = getattr(given, "crs", None)
    crs = CRS.from_wkt(own.to_wkt()) if hasattr(own, "to_wkt") else None
    if hasattr(given, "__geo_interface__"):
        return GeoObject(name, given.__geo_interface__, crs)
    arrays = str(getattr(given, "dtype", "")) in ("object", "geometry")  # of NumPy, of GeoPandas
    several = list(given) if isinstance(given, list | tuple) or (arrays and np.ndim(given)) else []
    if several and all(hasattr(one, "__geo_interface__") for one in several):
        return GeoObject(name, _collection([one.__geo_interface__ for one in several], {}), crs)
    if not hasattr(given, "columns") or callable(given.columns):
        return None
    columns = {str(one): np.asarray(given[one]).tolist() for one in given.columns}
    if not {"x", "y"} <= set(columns):
        has = ", ".join(columns)[:80] or "none"
        raise refused(
            name,
            " {given}: a table needs the columns x and y, and has {has}; rename those of its "
            "coordinates (.rename)",
            given=described(given),
            has=has,
        )
    points = zip(columns.pop("x"), columns.pop("y"), strict=True)
    return GeoObject(
        name, _collection([{"type": "Point", "coordinates": one} for one in points], columns)
    )


def _collection(geometries: list[Any], columns: dict[str, list[Any]]) -> dict[str, Any]:
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(geometries)
    features = [
        {"geometry": geometry, "properties": dict(zip(columns, row, strict=True))}
        for geometry, row in zip(geometries, rows, strict=True)
    ]
    return {"type": "FeatureCollection", "features": features}


def file_or_object(name: str, value: Any) -> Any:
    """Check for `arguments.checked`: a path, or what `geo_object` takes."""
    if isinstance(value, GeoObject):
        return value
    return geo_object(name, value) or arguments.path(name, value)
