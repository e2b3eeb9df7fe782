"""Read features from vector files, to be used as sources, targets or outlets."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rasterio.crs import CRS
from rasterio.errors import CRSError

from ..engine.machine import BASELINE, VECTOR_BYTES, limit_of, owns_process
from ..engine.plan import require
from ..errors import InputError, ReprojectionError, without_secrets
from ..facts import JsonObject
from ..grid import GridSpec
from ..grid.crs import equal, grid_crs
from ..plurals import counted
from ..similar import did_you_mean
from ..store.objects import refuse_url
from .covered import named
from .crs import crs_name, read_crs
from .fields import costs_of, ids_of, is_number, is_used, named_ids
from .geo_objects import GeoObject
from .reprojection import WGS84, reprojected
from .wkb import Part, parts_of_wkb

log = logging.getLogger(__name__)

GEOJSON = (".geojson", ".json")
GEOPACKAGE = ".gpkg"

_HEAVY = ("geopandas", "pandas", "pyarrow", "pyproj", "shapely")
"""Optional imports of pyogrio (117 MB), for functions that are not used here."""

_FEATURE_BYTES = 1300
"""Bytes per feature while it is read, in addition to its positions."""


MOST_LONGITUDE = 540
"""Largest longitude in GeoJSON without "crs": 180, plus a full turn across the antimeridian."""


@dataclass(eq=False)
class Features:
    """The features of a vector file.

    Attributes
    ----------
    xy
        float64, shape (n, 2): all positions.
    owner
        int64, shape (n,): the feature of each position, counted from 0 in the order of the file.
    parts
        The parts of every feature; their positions are views of `xy`.
    ids
        uint32: the field ``id``, or 1, 2, ... in the order of the file.
    costs
        float64: the field ``cost``, or 0.
    names
        Names by id, where ids only number the names of features.
    reprojected
        A text such as "EPSG:4326 to EPSG:32633"; "" if the file is in the grid's CRS.
    """

    xy: np.ndarray
    owner: np.ndarray
    parts: list[list[Part]]
    ids: np.ndarray
    costs: np.ndarray
    names: dict[int, str]
    reprojected: str = ""

    @property
    def nbytes(self) -> int:
        """Memory in use, in bytes, including the parts."""
        arrays = self.xy.nbytes + self.owner.nbytes + self.ids.nbytes + self.costs.nbytes
        return arrays + 500 * sum(map(len, self.parts))


# -- in ------------------------------------------------------------------------------------


def read_features(
    path: str | os.PathLike[str] | GeoObject,
    grid: GridSpec,
    layer: str | None = None,
    memory_limit: int | str | None = None,
    *,
    fields: bool = True,
    id_field: str | None = None,
    cost_field: str | None = None,
) -> Features:
    """Read points, lines and polygons from a vector file, and reproject them to the grid's CRS.

    Only vertices are reprojected: a straight line in the file stays straight. Collections are split
    into their parts, and a third coordinate is ignored.

    Parameters
    ----------
    path
        GeoJSON (.geojson, .json), or any format that pyogrio reads, such as GeoPackage; or objects.
    layer
        Name of the layer; required when the file has several.
    memory_limit
        Limit on the peak resident set size of the process, in bytes; a quarter of RAM when None.
    fields
        Whether to read ids and costs. If not, ids are 1, 2, ..., costs are 0 unless `cost_field` is
        given, and features without geometry are allowed, such as one-cell lines of `streams`.
    id_field, cost_field
        Fields to read instead of ``id`` and ``cost``; they must exist. If any value of `id_field`
        is not a whole number from 1 to `MAX_ID`, all values are names, which ids number.

    Raises
    ------
    InputError
        when the file or a feature cannot be used; names the feature, counted from 1.
    PlanError
        when the memory limit is too small for this number of features.
    """
    path = path if isinstance(path, GeoObject) else Path(path)
    wanted = id_field or "id", cost_field or "cost"
    geometries, ids, costs, crs = _read(path, layer, limit_of(memory_limit), *wanted)
    _refuse_or_tell_empty(path, geometries, refuse=fields)
    for number, parts in enumerate(geometries, 1):
        if problem := next(filter(None, map(_problem, parts)), None):
            raise InputError(f"{path}: feature {number} {problem}; repair it")
    if not fields:
        ids = [None] * len(geometries)
        costs = costs if cost_field else ids
    numbers, names = (ids_of(path, ids), {}) if id_field is None else named_ids(path, id_field, ids)
    features = Features(
        *_joined(geometries),
        np.array(numbers, np.uint32),
        np.array(costs_of(path, costs, wanted[1]), np.float64),
        names,
    )
    if crs is not None or not isinstance(path, GeoObject):
        _to_grid_crs(path, features, crs, grid)
    return features


def read_field(
    path: str | os.PathLike[str],
    field: str,
    layer: str | None = None,
    memory_limit: int | str | None = None,
    id_field: str | None = None,
) -> dict[int, float]:
    """Read a field of positive numbers from a vector file, by the ids of its features.

    Parameters
    ----------
    path, layer, memory_limit, id_field
        As for `read_features`.

    Raises
    ------
    InputError
        as `read_features`, and when the field of a feature is not a positive number, or when
        features with the same id have different numbers.
    """
    path = Path(path)
    _, id_values, values, _ = _read(path, layer, limit_of(memory_limit), id_field or "id", field)
    ids = ids_of(path, id_values) if id_field is None else named_ids(path, id_field, id_values)[0]
    if not is_used(path, field, values):
        raise InputError(f"{path}: its features have no field {field!r}; name another")
    values_by_id: dict[int, float] = {}
    for number, (id_, value) in enumerate(zip(ids, values, strict=True), 1):
        if not (is_number(value) and 0 < value < math.inf):
            raise InputError(
                f"{path}: feature {number} has the {field} {value!r}, which is not a positive "
                "number; correct it"
            )
        if values_by_id.setdefault(int(id_), float(value)) != value:
            raise InputError(
                f"{path}: feature {number} has the {field} {value!r}, but another feature with its "
                f"id {id_} has {values_by_id[int(id_)]!r}; correct one, or give them different ids"
            )
    return values_by_id


def _refuse_or_tell_empty(path: object, geometries: list[list[Part]], *, refuse: bool) -> None:
    """Reject features without geometry, or only warn about them if there are others."""
    empty = np.array([not parts for parts in geometries], bool)
    if not empty.any():
        return
    if refuse or empty.all():
        raise InputError(
            f"{path}: feature {empty.argmax() + 1} has no geometry; add one or delete the feature"
        )
    log.warning(
        "%s: %d of %d features have no geometry and cover no cell: %s",
        without_secrets(str(path)),
        empty.sum(),
        len(empty),
        named(empty, lambda k: f"feature {k + 1}"),
    )


def _joined(geometries: list[list[Part]]) -> tuple[np.ndarray, np.ndarray, list[list[Part]]]:
    """Collect all positions in one array; return it, the feature of each, and parts as views."""
    counts = [sum(len(ring) for _, rings in parts for ring in rings) for parts in geometries]
    rings = [ring for parts in geometries for _, rings in parts for ring in rings]
    xy = np.concatenate(rings)
    views = iter(np.split(xy, np.cumsum([len(ring) for ring in rings])[:-1]))
    placed = [[(kind, [next(views) for _ in rings]) for kind, rings in g] for g in geometries]
    return xy, np.repeat(np.arange(len(geometries)), counts), placed


def _problem(part: Part) -> str | None:
    """Describe what is wrong with a part; None if it is valid."""
    kind, rings = part
    least = {"Point": 1, "LineString": 2, "Polygon": 4}[kind]
    if not rings or min(map(len, rings)) < least:
        return f"is a {kind} with fewer than {counted(least, 'position')}"
    if not all(np.isfinite(ring).all() for ring in rings):
        return "has a position that is not finite"
    if kind == "Polygon" and not all((ring[0] == ring[-1]).all() for ring in rings):
        return "has a ring that is not closed"
    return None


def _to_grid_crs(path: Source, features: Features, crs: CRS | None, grid: GridSpec) -> None:
    """Reproject the positions in place."""
    if crs is None and not grid.crs_wkt:
        return
    if crs is None:
        raise InputError(
            f"{path}: has no coordinate system, but the raster has one ({_grid_name(grid)}); "
            "assign one to the file (ogr2ogr -a_srs)"
        )
    if not grid.crs_wkt:
        raise InputError(
            f"{path}: is in {crs_name(crs)}, but the raster has no coordinate system; assign one "
            "to the raster (gdal_edit.py -a_srs) and convert it again, or remove that of the file "
            '(in GeoJSON: "crs": null) if both use the same coordinates'
        )
    target = grid_crs(grid)
    if equal(crs, target):
        return
    features.reprojected = f"{crs_name(crs)} to {_grid_name(grid)}"
    log.info("%s: reprojected from %s", without_secrets(str(path)), features.reprojected)
    xy = features.xy
    try:
        xy[:] = reprojected(xy, crs, target)
    except ReprojectionError as error:
        number = int(features.owner[error.number]) + 1
        raise InputError(
            f"{path}: feature {number} cannot be reprojected from {crs_name(crs)} to "
            f"{_grid_name(grid)} of the raster; check its coordinates and the file's coordinate "
            "system"
        ) from None


def _grid_name(grid: GridSpec) -> str:
    return grid.crs_name


Source = Path | GeoObject
Columns = tuple[list[list[Part]], list[Any], list[Any]]
Read = tuple[list[list[Part]], list[Any], list[Any], CRS | None]
"""Parts of every feature, ids, costs (None where the field is empty), and the CRS."""

_RINGS = {"Point": lambda c: [[c]], "LineString": lambda c: [c], "Polygon": lambda c: c}


def _read(path: Source, layer: str | None, limit: int, *fields: str) -> Read:
    """Read a file with two fields: ids, and costs or another field instead."""
    read: Read
    if isinstance(path, Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path}: a pipe or device; save it as a file first")
    if isinstance(path, GeoObject):
        read = *_of_json(path, path.data, fields), path.crs
    elif path.suffix.lower() not in GEOJSON:
        read = _read_ogr(path, layer, limit, fields)
    elif layer is not None:
        raise InputError(f"{path}: GeoJSON has no layers; leave out {layer!r}")
    else:
        read = _read_geojson(path, limit, fields)
    if not read[0]:
        raise InputError(f"{path}: has no features")
    return read


def _refuse_lack(path: Source, wanted: Iterable[str], have: Iterable[str]) -> None:
    """Check that some feature has the fields that the caller names."""
    have = [*have]
    if lacks := [name for name in wanted if name not in (*have, "id", "cost")]:
        others = f"only {', '.join(have)}" if have else "and no other fields"
        raise InputError(
            f"{path}: its features have no field {lacks[0]!r}, {others}; name another field"
            f"{did_you_mean(lacks[0], have)}"
        )


def _read_geojson(path: Path, limit: int, wanted: Sequence[str]) -> Read:
    def may_take(needed: int) -> None:
        require(BASELINE + needed, limit, f"to read {path}")

    try:
        may_take(2 * path.stat().st_size)
        text = path.read_bytes()
        # The text as bytes and str, and Python objects: dicts, lists with their arrays, numbers.
        may_take(
            2 * len(text) + 300 * text.count(b"{") + 250 * text.count(b"[") + 32 * text.count(b",")
        )
        data = json.loads(text)
        del text
    except OSError as error:
        raise InputError(_not_readable(path, error)) from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not GeoJSON: {error}") from None
    geometries, ids, costs = _of_json(path, data, wanted)
    if "crs" not in data:
        _refuse_metres(path, geometries)
    return geometries, ids, costs, _json_crs(path, data)


def _of_json(path: Source, data: Any, wanted: Sequence[str]) -> Columns:
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "FeatureCollection":
        features = data.get("features")
    elif kind == "Feature":
        features = [data]
    elif kind in (*_RINGS, *(f"Multi{k}" for k in _RINGS), "GeometryCollection"):
        features = [{"type": "Feature", "geometry": data}]
    else:
        features = None
    if not isinstance(features, list):
        raise InputError(f"{path}: not GeoJSON: no FeatureCollection, Feature or geometry")
    geometries, have = [], dict[str, None]()
    columns: list[list[Any]] = [[] for _ in wanted]
    for number, feature in enumerate(features, 1):
        try:
            geometries.append(_json_parts(feature["geometry"]))
            properties = feature.get("properties") or {}
            have.update(dict.fromkeys(properties))
            for name, values in zip(wanted, columns, strict=True):
                values.append(properties.get(name))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise InputError(f"{path}: feature {number} is not valid GeoJSON; repair it") from None
    if geometries:
        _refuse_lack(path, wanted, have)
    ids, costs = columns
    return geometries, ids, costs


def _refuse_metres(path: Path, geometries: list[list[Part]]) -> None:
    """Check that the positions of a file without "crs" can be longitude and latitude."""
    for number, parts in enumerate(geometries, 1):
        for xy in (ring for _, rings in parts for ring in rings):
            # Lines that cross the antimeridian may continue beyond 180 degrees.
            beyond = np.abs(xy) > (MOST_LONGITUDE, 90)
            if beyond.any():
                x, y = xy[np.argwhere(beyond)[0, 0]].tolist()
                raise InputError(
                    f"{path}: feature {number} is at {x}, {y}, not in longitude and latitude as "
                    'required for GeoJSON without "crs"; name its coordinate system ("crs": '
                    '{"type": "name", "properties": {"name": "EPSG:32633"}}, or "crs": null if the '
                    "raster has none), or reproject it (ogr2ogr -t_srs EPSG:4326)"
                )


def _json_parts(geometry: Any) -> list[Part]:
    if geometry is None:
        return []
    kind = geometry["type"]
    if kind == "GeometryCollection":
        return [part for one in geometry["geometries"] for part in _json_parts(one)]
    coordinates = geometry["coordinates"]
    if not coordinates:
        return []
    single = kind.removeprefix("Multi")
    return [
        (single, [_json_positions(ring) for ring in _RINGS[single](one)])
        for one in (coordinates if kind != single else [coordinates])
    ]


def _json_positions(positions: Any) -> np.ndarray:
    xy = np.array([position[:2] for position in positions])
    if xy.ndim != 2 or xy.shape[1] != 2 or xy.dtype.kind not in "iuf":
        raise ValueError
    return xy.astype(np.float64)


def _json_crs(path: Path, data: JsonObject) -> CRS | None:
    """WGS 84 (RFC 7946, section 4), or the CRS in the member "crs" of the older GeoJSON 2008."""
    if "crs" not in data:
        return WGS84
    if data["crs"] is None:
        return None
    try:
        return read_crs(data["crs"]["properties"]["name"])
    except (CRSError, TypeError, LookupError):
        raise InputError(
            f'{path}: cannot parse its "crs": {json.dumps(data["crs"])[:200]}; give a name such as '
            '"urn:ogc:def:crs:EPSG::32633", or leave it out for longitude and latitude'
        ) from None


def import_pyogrio(path: Path) -> ModuleType:
    """Import pyogrio, which reads and writes all formats but GeoJSON; `path` is for messages.

    Raises
    ------
    InputError
        when pyogrio is not installed.
    """
    # Hidden only in our own process: pyogrio looks for them once, and other callers may need them.
    hidden = [name for name in _HEAVY if owns_process() and name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import pyogrio.raw
    except ImportError as error:
        raise InputError(
            f"{path}: this format needs pyogrio ({error}); pip install 'terrain_gpu[vector]', "
            "or use GeoJSON"
        ) from None
    finally:
        for name in hidden:
            del sys.modules[name]
    return pyogrio


def _read_ogr(path: Path, layer: str | None, limit: int, wanted: Sequence[str]) -> Read:
    pyogrio = import_pyogrio(path)
    _refuse_misread(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            layers = [name for name, kind in pyogrio.list_layers(path) if kind is not None]
            layer = _chosen(path, layers, layer)
            info = pyogrio.read_info(path, layer=layer, force_feature_count=True)
            needed = _FEATURE_BYTES * info["features"] + 8 * path.stat().st_size
            require(BASELINE + VECTOR_BYTES + needed, limit, f"to read {path}")
            _refuse_lack(path, wanted, (*info["fields"], *filter(None, [info["fid_column"]])))
            meta, fids, wkb, columns = pyogrio.raw.read(
                path, layer=layer, columns=[*wanted], force_2d=True, return_fids=True
            )
    except InputError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(_not_readable(path, error)) from None
    # GDAL does not list the key column of a GeoPackage among the fields, even if it is named id.
    fields_read = {info["fid_column"]: fids} if info["fid_column"] else {}
    fields_read |= dict(zip(meta["fields"], columns, strict=True))
    ids, costs = (
        [None if is_number(v) and math.isnan(v) else v for v in fields_read[name].tolist()]
        if name in fields_read
        else [None] * len(wkb)
        for name in wanted
    )
    geometries = []
    for number, one in enumerate(wkb, 1):
        try:
            geometries.append([] if one is None else parts_of_wkb(one)[0])
        except KeyError as error:
            raise InputError(
                f"{path}: feature {number} has a geometry of WKB type {error}; only points, "
                "lines, polygons and collections of them can be used"
            ) from None
    crs = meta["crs"]
    # GeoPackage stores a missing CRS under these names.
    if crs is None or re.match(r'\w+\["Undefined (Cartesian|geographic)', crs):
        return geometries, ids, costs, None
    try:
        return geometries, ids, costs, read_crs(crs)
    except CRSError as error:
        raise InputError(f"{path}: cannot parse its coordinate system: {error}") from None


def _refuse_misread(path: Path) -> None:
    """Reject names with characters such as !, which pyogrio would cut off there."""
    from pyogrio.util import vsi_path

    name = str(path)
    if path.exists() and (
        not name.isprintable() or vsi_path(name).removeprefix("/vsizip/") != name
    ):
        raise InputError(f"{path}: pyogrio cannot read a file with this name; rename it")


def _chosen(path: Path, layers: list[str], layer: str | None) -> str:
    if not layers:
        raise InputError(f"{path}: has no layer with geometries")
    if layer is None and len(layers) > 1:
        raise InputError(f"{path}: has several layers; name one of {', '.join(layers)}")
    if layer is not None and layer not in layers:
        raise InputError(f"{path}: has no layer {layer!r}, only {', '.join(layers)}")
    return layer or layers[0]


def _not_readable(path: Path, error: Exception) -> str:
    refuse_url(path, "a vector file")
    if not path.exists():
        return f"{path}: no such file"
    if path.is_dir():
        return f"{path}: a folder, not a vector file"
    if not os.access(path, os.R_OK):
        return f"{path}: permission denied"
    if path.stat().st_size == 0:
        return f"{path}: the file is empty"
    if path.suffix.lower() in (".parquet", ".geoparquet"):
        return (
            f"{path}: GeoParquet cannot be read; convert it to a GeoPackage (.gpkg), or read it "
            "with GeoPandas"
        )
    return f"{path}: not a vector file that can be read: {one_line(error)}"


def one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))
