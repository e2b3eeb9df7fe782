"""Files of results that the page offers, and the commands that make them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..facts import JsonObject
from ..grid import GridSpec
from ..grid.crs import grid_crs
from ..io.features import LINES, POLYGONS, Feature, GeometryType, write_features
from ..io.geojson import write_geojson
from ..io.lines import checked_target


class VectorLayer(NamedTuple):
    """Features of one type for a file.

    Attributes
    ----------
    name
        The layer in a GeoPackage.
    fields
        Data types of attributes.
    """

    name: str
    shape: GeometryType
    fields: dict[str, type]
    features: list[Feature]


def write_vectors(file: Path, grid: GridSpec, layers: list[VectorLayer]) -> None:
    """Write a GeoPackage with these layers, or one GeoJSON file with the features of all."""
    checked_target(file, overwrite=True)  # tells what is not installed
    file.unlink(missing_ok=True)
    if file.suffix == ".gpkg":
        for name, shape, fields, features in layers:
            write_features(file, iter([features]), grid, name, fields, shape)
        return
    crs = grid_crs(grid) if grid.crs_wkt else None
    rows = [
        ({"layer": layer.name, **attributes}, geometry)
        for layer in layers
        for (_, attributes), geometry in zip(
            layer.features,
            layer.shape.geojson([one for one, _ in layer.features], crs),
            strict=True,
        )
    ]
    write_geojson(file, rows, crs=crs is not None)


def _positions(grid: GridSpec, places: Any) -> np.ndarray:
    """Coordinates of places on the map, rows and columns as real numbers."""
    a, _, c, _, e, f = grid.transform
    row, col = np.asarray(places, np.float64).reshape(-1, 2).T
    return np.stack((c + a * col, f + e * row), axis=1)


def lines_layer(name: str, grid: GridSpec, lines: list[tuple[Any, JsonObject]]) -> VectorLayer:
    """Lines over places on the map, with numbers as attributes."""
    features: list[Feature] = [(_positions(grid, places), facts) for places, facts in lines]
    fields: dict[str, type] = {key: np.float64 for _, facts in lines for key in facts}
    return VectorLayer(name, LINES, fields, features)


def catchment_layers(grid: GridSpec, told: JsonObject) -> list[VectorLayer]:
    """The outline of a catchment with its statistics, and the flow path from its outlet."""
    polygons = [[_positions(grid, ring) for ring in rings] for rings in told["outline"]]
    facts = {key: np.nan if value is None else float(value) for key, value in told["facts"].items()}
    if not grid.crs_wkt:
        facts.pop("area_km2")
    fields: dict[str, type] = dict.fromkeys(facts, np.float64)
    layers = [VectorLayer("catchment", POLYGONS, fields, [(polygons, facts)])]
    if told["down"]:
        way = told["down"]
        layers.append(lines_layer("way_down", grid, [(way["cells"], {"length": way["length"]})]))
    return layers


def command_of(store: Path, job: JsonObject) -> str:
    """The command line that computes a job; barriers are those of barriers.geojson."""
    factor = job["factor"]
    level = store if factor == 1 else store / "overviews" / str(factor)
    cells = [f"{row // factor},{col // factor}" for row, col in job["places"]]
    if job["kind"] == "watershed":
        words = ["terrain-gpu", "watershed", str(level), "--pour-point-rowcol", *cells]
        if job["snap"]:
            words += ["--snap", f"{job['snap']:g} map units"]
        return shlex.join([*words, "-o", "upstream.tif"])
    words = ["terrain-gpu", "compute-sssp", str(level)]
    for cell in cells:
        words += ["--source-rowcol", cell]
    words += ["--cost", job["cost"]]
    if job["barriers"]:
        words += ["--barriers", "barriers.geojson"]
    return shlex.join([*words, "--no-corner-cutting", "--wrap", "no", "-o", "cost_distance.tif"])
