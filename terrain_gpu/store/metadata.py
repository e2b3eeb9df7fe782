"""Zarr metadata of stores and layers, written and read with zarr-python, and checked."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from .. import arguments, cells
from ..described import Described
from ..errors import InputError, StoreError
from ..facts import JsonObject
from ..grid import TILE, GridSpec
from ..similar import did_you_mean
from .checksums import crc_of_json
from .coding import BLOSC_LEVEL, ZSTD_LEVEL, shuffle_of
from .files import new_file, sync_folder, write_whole
from .layer import KEY, Layer, Number
from .levels import FOLDER_OF_LEVELS, fresh_of, levels_of
from .nodes import attributes_of, find_array, open_group
from .objects import ObjectPath, folder_names, is_there
from .swap import absolute, beside, recover

FORMAT = 2
READABLE = (1, 2)
"""Formats that can be read; format 1 had no checksums of cells."""

LONGEST_NAME = 64
"""Largest number of characters in the name of a layer."""

NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{LONGEST_NAME - 1}}}")
DIGEST = re.compile("[0-9a-f]{32}")
SPATIAL = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/spatial/refs/tags/v0.1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/spatial/blob/v0.1/README.md",
    "uuid": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
    "name": "spatial",
    "description": "Spatial coordinate information",
}
PROJ = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/proj/refs/tags/v0.1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/proj/blob/v0.1/README.md",
    "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f",
    "name": "proj",
    "description": "Coordinate reference system information for geospatial data",
}
MULTISCALES = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}
_BLOSC = {"lz4": "blosc-lz4", "lz4hc": "blosc-lz4", "zstd": "blosc-zstd"}
"""Our names by the names of blosc's compressors; lz4 and lz4hc decode in the same way."""

RESERVED = ("x", "y", "spatial_ref", "distance_index", FOLDER_OF_LEVELS)
"""Names in a store that are not layers."""


def plain_group() -> bytes:
    """The zarr.json of a group that only contains other nodes."""
    return node_json(zarr.create_group({}))


def node_json(node: Any) -> bytes:
    """The zarr.json of an array or group in memory, as zarr-python would write it."""
    return json_of(node.metadata)


def json_of(metadata: Any) -> bytes:
    """The zarr.json of these metadata."""
    data: bytes = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    return data


def write_json(path: Path, data: bytes, temporary: Path) -> None:
    """Write the zarr.json of an array or group through a folder for temporary files."""
    path.mkdir(exist_ok=True)
    with new_file(path / "zarr.json", temporary / "zarr.json.partial") as out:
        out.write(data)


def layer_attributes(layer: Layer) -> JsonObject:
    """The attributes of a layer by which other programs locate and read its cells."""
    grid = layer.grid
    attributes: JsonObject = {
        "grid_mapping": "spatial_ref",
        "coordinates": "spatial_ref",
        **conventions(grid),
    }
    if grid.crs_wkt:
        attributes["_CRS"] = {"wkt": grid.crs_wkt}
    if layer.nodata is not None:
        attributes["_FillValue"] = _xarray_fill(layer.nodata)
    return attributes


def conventions(grid: GridSpec) -> JsonObject:
    """Location and coordinate system according to the conventions "spatial" and "proj"."""
    spatial = {
        "spatial:dimensions": ["y", "x"],
        "spatial:shape": list(grid.shape),
        "spatial:bbox": list(grid.bounds),
        "spatial:transform": [float(v) for v in grid.transform],
    }
    if not grid.crs_wkt:
        return {"zarr_conventions": [SPATIAL], **spatial}
    proj = {"proj:wkt2": grid.crs_wkt}
    if grid.crs_code:
        proj["proj:code"] = grid.crs_code
    return {"zarr_conventions": [SPATIAL, PROJ], **spatial, **proj}


def drop_consolidated(path: Path) -> None:
    """Remove consolidated metadata that another program wrote to a group, because it is stale."""
    if (plain := without_consolidated((path / "zarr.json").read_bytes())) is not None:
        write_whole(path / "zarr.json", plain)
        sync_folder(path)


def without_consolidated(metadata: bytes) -> bytes | None:
    """The metadata of a group without the consolidated metadata; None if it has none."""
    group = json.loads(metadata)
    if group.pop("consolidated_metadata", None) is None:
        return None
    return json.dumps(group, indent=2).encode()


def write_array(layer: Layer, temporary: Path) -> None:
    """Rewrite the Zarr metadata of a layer through a folder for temporary files."""
    write_json(layer.path, array_json(layer), temporary)


def array_json(layer: Layer) -> bytes:
    """Zarr metadata of a layer, with its checksum."""
    layer.info["checksum"] = _checksum(layer)
    attributes = {**layer.attributes, **layer_attributes(layer)}
    return json_of(plain_array(layer).metadata.update_attributes(attributes))


def plain_array(layer: Layer) -> Any:
    """The Zarr array of a layer, in memory and without attributes or cells."""
    fill, compress = layer.fill.tobytes(), layer.compress
    shape = layer.grid.shape
    return _plain_array(shape, layer.dtype, layer.block_size, compress, fill, layer.separator)


@functools.lru_cache(256)
def _plain_array(
    shape: tuple[int, int],
    dtype: np.dtype,
    block_size: int,
    compress: str | None,
    fill: bytes,
    separator: str,
) -> Any:
    """A Zarr array in memory without attributes; cached to save time, like `parsed`."""
    return zarr.create_array(
        {},
        shape=shape,
        dtype=dtype,
        chunks=(TILE, TILE),
        shards=(block_size, block_size),
        compressors=_compressor(compress, dtype),
        filters=None,
        fill_value=np.frombuffer(fill, dtype)[0].item(),
        dimension_names=("y", "x"),
        chunk_key_encoding={"name": "default", "separator": separator},
    )


def _compressor(compress: str | None, dtype: np.dtype) -> BloscCodec | ZstdCodec | None:
    """The codec of tiles, after `bytes`."""
    if compress in (None, "zstd"):
        return ZstdCodec(level=ZSTD_LEVEL) if compress else None
    options: Any = {"cname": compress.removeprefix("blosc-"), "shuffle": shuffle_of(dtype)}
    return BloscCodec(typesize=dtype.itemsize, clevel=BLOSC_LEVEL, **options)


def _compression(codecs: Sequence[Any]) -> str | None:
    """The name in `coding.NAMES` of the compression by these tile codecs."""
    first, *others = codecs
    if isinstance(first, BytesCodec) and not others:
        return None
    if isinstance(first, BytesCodec) and len(others) == 1:
        if isinstance(others[0], ZstdCodec):
            return "zstd"
        if isinstance(others[0], BloscCodec) and (kind := _word(others[0].cname)) in _BLOSC:
            return _BLOSC[kind]
    names = [
        f"blosc {_word(c.cname)}" if isinstance(c, BloscCodec) else type(c).__name__ for c in codecs
    ]
    raise InputError(
        f"tile codecs {names} are not supported, only bytes, bytes and zstd, or bytes and blosc "
        f"with {', '.join(_BLOSC)}"
    )


def _checksum(layer: Layer) -> str:
    """Checksum of the records of a layer that results depend on."""
    records = {key: value for key, value in layer.info.items() if key != "checksum"}
    meaning = {key: layer.attributes.get(key) for key in ("units", "scale_factor", "add_offset")}
    return crc_of_json(layer.facts, records, meaning)


def _xarray_fill(nodata: Number) -> Number | str:
    """`_FillValue` as xarray stores it in Zarr v3: floats as base64 of a little-endian double."""
    if isinstance(nodata, float):
        return base64.standard_b64encode(struct.pack("<d", nodata)).decode()
    return nodata


class TileStore(Described):
    """A store open for reading: its grid and its layers.

    Attributes
    ----------
    path
        The store's folder.
    grid
        `GridSpec` of every layer.
    layers
        Names of the layers, sorted.
    """

    def __init__(self, path: Path, grid: GridSpec) -> None:
        self.path, self.grid = path, grid

    def __fspath__(self) -> str:
        return str(self.path)

    def facts_shown(self) -> JsonObject:
        grid = self.grid
        return {
            "path": str(self.path),
            "cells": f"{grid.rows} x {grid.cols}",
            "crs": grid.crs_name,
            "layers": ", ".join(self.layers),
        }

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TileStore:
        """Open a store.

        Raises
        ------
        StoreError
            when there is no store at `path`, or its metadata is damaged.
        InputError
            when `path` has the wrong type.
        """
        root = absolute(arguments.store("store", path))
        if not isinstance(root, ObjectPath):
            recover(beside(root, "incomplete"), root, beside(root, "replaced"))
            _complete_swaps(root)
        attributes = attributes_of(open_group(root))
        recorded_grid = attributes.get(KEY)
        if not isinstance(recorded_grid, dict):
            raise StoreError(
                f"{root}: a Zarr group, but not a store of this program; choose another path"
            )
        if recorded_grid.get("format") not in READABLE:
            raise StoreError(
                f"{root}: store format {recorded_grid.get('format')!r}; this program reads "
                f"{' and '.join(map(str, READABLE))}; convert again"
            )
        try:
            rows, cols = recorded_grid["shape"]
            a, b, c, d, e, f = map(float, recorded_grid["transform"])
            grid = GridSpec(
                _whole(rows),
                _whole(cols),
                (a, b, c, d, e, f),
                str(recorded_grid["crs_wkt"]),
                recorded_grid["crs_code"],
            )
            recorded = recorded_grid.pop("checksum", None)
            now = crc_of_json(recorded_grid)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise StoreError(
                f"{root}/zarr.json: damaged store metadata: {reason}; convert again"
            ) from error
        if recorded is not None and recorded != now:
            raise StoreError(
                f"{root}/zarr.json: damaged: the grid does not match its checksum; convert again, "
                "or delete the key 'checksum' if it was changed on purpose"
            )
        return cls(root, grid)

    @property
    def layers(self) -> list[str]:
        return [name for name in self._names() if name in self]

    def _names(self) -> list[str]:
        """Names of all folders in the store, sorted."""
        try:
            return sorted(folder_names(self.path))
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path}: cannot be read: {error.strerror}") from error

    def __contains__(self, name: str) -> bool:
        """Whether a layer exists; in object storage with one request, not one for each layer."""
        return _may_be_layer(name) and is_there(self.path / name / "zarr.json")

    def refuse_foreign(self, name: str, setting: str, holds: str, results: str) -> None:
        """Reject replacing a layer without this setting, which another command made.

        Damaged layers may be replaced.

        Raises
        ------
        InputError
            with the remedy.
        """
        with contextlib.suppress(StoreError):
            if (layer := self.find(name)) is None:
                return
            settings = layer.info.get("settings")
            if isinstance(settings, dict) and setting in settings:
                return
            raise InputError(
                f"{self.path}: layer {name!r} does not hold {holds} that this program computed; "
                f"rename or remove it (terrain-gpu layers {self.path} remove {name}), or choose "
                f"another name for the {results} if the command has an option for it"
            )

    def describe(self) -> JsonObject:
        """Describe grid and layers as plain JSON, as shown by ``terrain-gpu info``.

        Damaged layers, and arrays that are not layers, are under "unreadable", with the reason.
        """
        grid, levels = self.grid, None
        layers, unreadable = {}, {}
        for name, layer in self.each():
            try:
                if isinstance(layer, StoreError):
                    raise layer
                levels = list(levels_of(self)) if levels is None else levels
                fresh, other = fresh_of(layer, levels)
                layers[name] = layer.describe() | {
                    "stale": self.stale(layer),
                    "overviews": fresh,
                    "stale_overviews": other,
                }
            except StoreError as error:
                unreadable[name] = str(error)
        return {
            "store": str(self.path),
            "format": FORMAT,
            "rows": grid.rows,
            "cols": grid.cols,
            "cells": grid.cells,
            "crs_code": grid.crs_code,
            "crs_wkt": grid.crs_wkt,
            "transform": list(grid.transform),
            "bounds": list(grid.bounds),
            "layers": layers,
            "unreadable": unreadable,
        }

    def stale(self, layer: Layer) -> list[str]:
        """Names of the layers that a result was computed from and that have changed since.

        Layers without a recorded digest are omitted, because changes cannot be detected.
        """
        settings, beside = layer.info.get("settings"), layer.info.get("beside")
        of = settings.get("of") if isinstance(settings, dict) else None
        of = {
            **(of if isinstance(of, dict) else {}),
            **(beside if isinstance(beside, dict) else {}),
        }
        inputs = {name: self.find(name) for name in of}
        return [
            name
            for name, layer in inputs.items()
            if layer is None or (layer.is_sealed and layer.identity != of[name])
        ]

    def holds(self, name: str, identity: object) -> bool:
        """Whether there is a layer with this name and this `Layer.identity`."""
        layer = self.find(name)
        return layer is not None and layer.identity == identity

    def layer(self, name: str) -> Layer:
        """Open a layer.

        Raises
        ------
        StoreError
            when there is no such layer or its metadata is damaged.
        """
        if (layer := self.find(name)) is not None:
            return layer
        have = ", ".join(self.layers) or "none"
        file = f"; to make a layer of this file: convert-dataset {name} STORE --layer NAME"
        missing = "; there is no such file either"
        hint = (
            did_you_mean(name, self.layers)
            if "." not in name
            else file
            if os.path.isfile(name)
            else missing
        )
        raise StoreError(f"{self.path}: no layer {name!r}; it has: {have}{hint}")

    def find(self, name: str) -> Layer | None:
        """Open a layer; None if there is no such layer.

        Raises
        ------
        StoreError
            when its metadata is damaged.
        """
        if not _may_be_layer(name):
            return None
        path = self.path / name
        # If reading is not permitted, opening says so.
        array = find_array(path)
        if array is None and not isinstance(self.path, ObjectPath):
            _complete_swaps(self.path)  # another process may be between its two renames
            array = find_array(path)
        if array is None:
            return None
        try:
            return _checked_layer(path, self.grid, array)
        except InputError as error:
            raise StoreError(f"{path}/zarr.json: {error}; convert it again") from error
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"{path}/zarr.json: damaged metadata ({error}); convert it again"
            ) from error

    def each(self) -> Iterator[tuple[str, Layer | StoreError]]:
        """Yield the names of all layers, sorted, each with the layer or the error in opening it."""
        for name in self._names() if isinstance(self.path, ObjectPath) else self.layers:
            try:
                layer: Layer | StoreError | None = self.find(name)
            except StoreError as error:
                layer = error
            if layer is not None:
                yield name, layer


def _complete_swaps(root: Path) -> None:
    """Complete replacements of layers that were interrupted, or are seen in progress."""
    with contextlib.suppress(FileNotFoundError):  # the last run removes the folder
        for old in root.glob(".incomplete/*.replaced"):
            recover(old.with_suffix(""), root / old.stem, old)


def _may_be_layer(name: str) -> bool:
    return bool(NAME.fullmatch(name)) and name not in RESERVED


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _check_recorded(attributes: JsonObject) -> None:
    """Reject recorded statistics of a wrong type, because callers compute with them."""
    json.dumps(attributes, allow_nan=False)
    records = attributes.get(KEY, {})
    if not isinstance(records, dict):
        raise InputError(f"attribute {KEY} is not a JSON object")
    for key in ("valid_cells", "stored_bytes"):
        if records.get(key) is not None and _whole(records[key]) < 0:
            raise InputError(f"attribute {KEY}.{key} is {records[key]}")
    for key in ("min", "max"):
        cells.from_json(records.get(key))
    digest = records.get("digest")
    if digest is not None and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise InputError(f"attribute {KEY}.digest is {digest!r}")


def _checked_layer(path: Path, grid: GridSpec, array: Any) -> Layer:
    """Check metadata as required by docs/format.md, section 3, and return the `Layer`."""
    metadata = array.metadata
    if array.shape != grid.shape:
        raise InputError(f"shape {array.shape} differs from the store's {grid.shape}")
    codecs = metadata.codecs
    if len(codecs) != 1 or not isinstance(codecs[0], ShardingCodec):
        raise InputError("the layer is not sharded")
    sharding = codecs[0]
    if sharding.chunk_shape != (TILE, TILE):
        raise InputError(f"tiles of {sharding.chunk_shape}, not {TILE} x {TILE}")
    if _word(sharding.index_location) != "end":
        raise InputError("the shard index is not at the end")
    if [type(c) for c in sharding.index_codecs] != [BytesCodec, Crc32cCodec]:
        raise InputError("the shard index is not plain bytes with crc32c")
    compress = _compression(sharding.codecs)
    for codec in (sharding.codecs[0], sharding.index_codecs[0]):
        endian = getattr(codec, "endian", None)
        if endian is not None and _word(endian) != "little":
            raise InputError("cells are not little-endian")
    block, across = metadata.chunk_grid.chunk_shape
    if block != across:
        raise InputError(f"blocks of {block} x {across} are not square")
    separator = separator_of(path, metadata)
    dtype = cells.layer_dtype(array.dtype)
    attributes = attributes_of(array)
    records = attributes.get(KEY)
    _check_recorded(attributes)
    nodata = cells.from_json(records.get("nodata") if isinstance(records, dict) else None)
    if nodata is not None:
        nodata = cells.as_scalar(nodata, dtype)
    layer = Layer(path, grid, dtype, block, nodata, compress, attributes, separator)
    fill = np.array(metadata.fill_value, dtype)
    if not np.array_equal(layer.fill, fill, equal_nan=dtype.kind == "f"):
        raise InputError(f"fill value {metadata.fill_value} is not the nodata value {nodata}")
    if layer.info.get("checksum") not in (None, _checksum(layer)):
        raise InputError(
            "damaged: it differs from its checksum (delete the key 'checksum' if it was changed on "
            "purpose)"
        )
    return layer


def separator_of(path: Path, metadata: Any) -> str:
    """The separator in the names of an array's files.

    Raises
    ------
    InputError
        unless it is a slash, or in object storage a dot.
    """
    keys = metadata.chunk_key_encoding
    separator = _word(getattr(keys, "separator", None))
    # In a bucket, files of the next version have other names, so that one write replaces the layer.
    if keys.name != "default" or separator not in "/."[: 1 + isinstance(path, ObjectPath)]:
        raise InputError("shard files are not named c/ROW/COLUMN")
    return str(separator)


def _word(value: Any) -> str:
    """A setting of a codec as plain text; before zarr-python 3.2 it is an enumeration."""
    return getattr(value, "value", value)
