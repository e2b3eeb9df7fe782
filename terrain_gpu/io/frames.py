"""Features as GeoDataFrames of GeoPandas, which is imported only when needed."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ..described import Described
from ..errors import InputError
from ..grid import GridSpec
from ..grid.units import UNITS
from .labelled import WorkingStore
from .lines import PARQUET, is_geopackage

if TYPE_CHECKING:
    import geopandas

P = ParamSpec("P")
R = TypeVar("R")


def import_geopandas() -> Any:
    """Import GeoPandas.

    Raises
    ------
    InputError
        when it is not installed.
    """
    try:
        import geopandas
    except ImportError as error:
        raise InputError(
            f"GeoPandas cannot be imported ({error}); pip install 'terrain_gpu[geopandas]'"
        ) from None
    return geopandas


class FeatureResult(Described):
    """A result whose features are in a file."""

    report: Any

    def _drawn(self) -> Path | None:
        """The file; None if none was written."""
        path: Path = vars(self)["path"]
        return path

    def to_geodataframe(self, layer: str | None = None) -> geopandas.GeoDataFrame:
        """Read the features from their file.

        Parameters
        ----------
        layer
            Layer of a GeoPackage; the first one when None.

        Returns
        -------
        geopandas.GeoDataFrame
            With the coordinate system and the attributes of the file; from GeoJSON, in longitude
            and latitude. ``attrs["units"]`` has the units of cost and length, where known.

        Raises
        ------
        InputError
            when GeoPandas is not installed, or when no features were written.
        """
        geopandas, path = import_geopandas(), self._drawn()
        if path is None:
            raise InputError("no lines were written; name a file to write them to")
        if path.suffix.lower() == PARQUET:
            frame_read = geopandas.read_parquet(path)
        elif is_geopackage(path):
            import pyogrio

            frame_read = geopandas.read_file(path, layer=layer or pyogrio.list_layers(path)[0][0])
        else:
            frame_read = geopandas.read_file(path)
        result = self.report.result
        return _with_units(
            frame_read, {"cost": result.get("unit"), "length": result.get("length_unit")}
        )


def frame(
    shapes: Sequence[bytes],
    columns: Mapping[str, np.ndarray],
    grid: GridSpec,
    units: Mapping[str, str | None],
) -> geopandas.GeoDataFrame:
    """A GeoDataFrame of geometries (WKB) in the CRS of a grid, with columns."""
    geopandas = import_geopandas()
    lines = geopandas.GeoSeries.from_wkb(list(shapes), crs=grid.crs_wkt or None)
    return _with_units(geopandas.GeoDataFrame(dict(columns), geometry=lines), units)


def _with_units(features: Any, units: Mapping[str, str | None]) -> Any:
    known_units = {name: unit for name, unit in units.items() if unit and name in features.columns}
    if known_units:
        features.attrs[UNITS] = known_units
    return features


def draws(parameter: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to write its features to a temporary file when `parameter` is None.

    The file exists as long as the result, a `FeatureResult`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            if bound.arguments.get(parameter) is not None:
                return function(*args, **kwargs)
            if bound.arguments.get("client") is not None:
                raise InputError(
                    f"a cluster cannot write to a temporary file of this process; give {parameter}"
                )
            import_geopandas()  # before the work
            store = WorkingStore()
            bound.arguments[parameter] = os.path.join(os.path.dirname(store.path), "features.gpkg")
            result = function(*bound.args, **bound.kwargs)
            result.report.result.pop("output", None)  # type: ignore[attr-defined]
            vars(result)["_kept"] = store
            return result

        return call

    return decorate
