"""Features as GeoDataFrames of GeoPandas, which is imported only when one is asked for."""

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
        """The file; None if there is none."""
        found: Path = vars(self)["path"]
        return found

    def to_geodataframe(self, layer: str | None = None) -> geopandas.GeoDataFrame:
        """Read the features from their file.

        Parameters
        ----------
        layer
            Of a GeoPackage; the first one when None.

        Returns
        -------
        geopandas.GeoDataFrame
            With the coordinate system and the attributes of the file: of GeoJSON, longitude and
            latitude. ``attrs["units"]`` has the units of cost and length, where they are known.

        Raises
        ------
        InputError
            when GeoPandas is not installed, or no features were written.
        """
        geopandas, path = import_geopandas(), self._drawn()
        if path is None:
            raise InputError("no lines were written; give a file for them")
        if path.suffix.lower() == PARQUET:
            found = geopandas.read_parquet(path)
        elif is_geopackage(path):
            import pyogrio

            found = geopandas.read_file(path, layer=layer or pyogrio.list_layers(path)[0][0])
        else:
            found = geopandas.read_file(path)
        own = self.report.result
        return _with_units(found, {"cost": own.get("unit"), "length": own.get("length_unit")})


def frame(
    shapes: Sequence[bytes],
    columns: Mapping[str, np.ndarray],
    grid: GridSpec,
    units: Mapping[str, str | None],
) -> geopandas.GeoDataFrame:
    """Geometries (WKB) in the CRS of a grid, and their columns, as a GeoDataFrame."""
    geopandas = import_geopandas()
    lines = geopandas.GeoSeries.from_wkb(list(shapes), crs=grid.crs_wkt or None)
    return _with_units(geopandas.GeoDataFrame(dict(columns), geometry=lines), units)


def _with_units(found: Any, units: Mapping[str, str | None]) -> Any:
    known = {name: unit for name, unit in units.items() if unit and name in found.columns}
    if known:
        found.attrs[UNITS] = known
    return found


def draws(parameter: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function write its features to a temporary file where its parameter is None.

    The file lives as long as the result, a `FeatureResult`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **more: P.kwargs) -> R:
            given = signature.bind(*args, **more)
            if given.arguments.get(parameter) is not None:
                return function(*args, **more)
            if given.arguments.get("client") is not None:
                raise InputError(f"a cluster needs a file that it can see; give {parameter}")
            import_geopandas()  # before the work
            kept = WorkingStore()
            given.arguments[parameter] = os.path.join(os.path.dirname(kept.path), "features.gpkg")
            found = function(*given.args, **given.kwargs)
            found.report.result.pop("output", None)  # type: ignore[attr-defined]
            vars(found)["_kept"] = kept
            return found

        return call

    return decorate
