"""Coordinate arrays and attributes of a store, which other programs read in addition to cells.

They follow from the grid and the records of layers, which have checksums, so they are compared with
those that this program would write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..errors import StoreError
from ..facts import JsonObject
from ..grid import GridSpec
from ..plurals import counted
from ..progress import Progress, silent
from .checksums import crc_of_json
from .files import output_errors, sync_tree, write_whole
from .layer import KEY, Layer
from .metadata import FORMAT, TileStore, conventions, layer_attributes, node_json, plain_array
from .nodes import attributes_of, find_array, open_group
from .objects import AnyPath, ObjectPath

COORDINATES = 1 << 18
"""Number of coordinates in a chunk of x or y: a long side need not fit in memory."""


ARRAYS = ("x", "y", "spatial_ref")


def write_group(path: Path, grid: GridSpec) -> None:
    """Write the files of a store without layers."""
    for name, data in group_files(grid):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path / name, data)
    sync_tree(path)


def group_files(grid: GridSpec) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files of a group without layers.

    The metadata of the group comes first, then the coordinate arrays that xarray, rioxarray and
    GDAL look for.
    """
    attributes_of_package: JsonObject = {
        "format": FORMAT,
        "shape": list(grid.shape),
        "transform": [float(v) for v in grid.transform],
        "crs_wkt": grid.crs_wkt,
        "crs_code": grid.crs_code,
    }
    attributes_of_package["checksum"] = crc_of_json(attributes_of_package)
    attributes = {KEY: attributes_of_package, **group_attributes(grid)}
    yield "zarr.json", node_json(zarr.create_group({}, attributes=attributes))
    yield from coordinate_files(grid)


def coordinate_files(grid: GridSpec) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files of the coordinate arrays of a store."""
    for name, side in (("y", grid.rows), ("x", grid.cols)):
        yield f"{name}/zarr.json", node_json(axis_array(grid, name))
        for chunk, start in enumerate(range(0, side, COORDINATES)):
            values = grid.centres(name, start, start + min(side, COORDINATES))
            if values.any():
                yield f"{name}/c/{chunk}", values.astype("<f8", copy=False).tobytes()
    yield "spatial_ref/zarr.json", node_json(reference_array(grid))


def axis_array(grid: GridSpec, name: str) -> Any:
    """The Zarr array x or y, in memory and without its values."""
    side = grid.cols if name == "x" else grid.rows
    standard = {"x": "longitude", "y": "latitude"} if grid.is_geographic else {}
    return zarr.create_array(
        {},
        shape=(side,),
        dtype=np.float64,
        chunks=(min(side, COORDINATES),),
        compressors=None,
        dimension_names=(name,),
        attributes={
            "axis": name.upper(),
            "standard_name": standard.get(name, f"projection_{name}_coordinate"),
        },
    )


def reference_array(grid: GridSpec) -> Any:
    """The Zarr array spatial_ref, in memory."""
    a, b, c, d, e, f = grid.transform
    reference: JsonObject = {"GeoTransform": " ".join(repr(v) for v in (c, a, b, f, d, e))}
    if grid.crs_wkt:
        reference |= {"crs_wkt": grid.crs_wkt, "spatial_ref": grid.crs_wkt}
    return zarr.create_array({}, shape=(), dtype=np.int64, attributes=reference)


def group_attributes(grid: GridSpec) -> JsonObject:
    """The attributes of a group by which other programs locate its layers."""
    return {"Conventions": "CF-1.11", **conventions(grid)}


def check_coordinates(store: TileStore, progress: Progress = silent) -> None:
    """Compare the coordinate arrays of a store, and the attributes of its group, with its grid.

    `progress` counts the rows and columns whose coordinates are read.

    Raises
    ------
    StoreError
        when one of them is missing or differs.
    """
    _compare(store.path, attributes_of(open_group(store.path)), group_attributes(store.grid), "")
    for name in ARRAYS:
        path, remedy = store.path / name, f"--accept-changes {name}"
        wanted = reference_array(store.grid) if name == ARRAYS[2] else axis_array(store.grid, name)
        if (array := find_array(path)) is None:
            raise StoreError(f"{path}: missing (an incomplete copy?); {_again(store.path, remedy)}")
        # Older stores have all coordinates in one chunk.
        _compare_arrays(path, array, wanted, remedy, but="chunk_grid")
        _compare(path, attributes_of(array), attributes_of(wanted), remedy)
        if name != ARRAYS[2]:
            try:
                shape = array.shape[0], array.chunks[0]
                _compare_centres(path, store.grid, *shape, remedy, progress)
            except OSError as error:
                if isinstance(error, StoreError):
                    raise
                raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def check_attributes(layer: Layer) -> None:
    """Compare the metadata of a layer that other programs read with its own records.

    Raises
    ------
    StoreError
        when something is missing or differs.
    """
    remedy = f"--accept-changes {layer.name}"
    array = find_array(layer.path)
    # Compression levels may differ; the rest of the codecs is checked when a layer is opened.
    _compare_arrays(layer.path, array, plain_array(layer), remedy, but="codecs")
    _compare(layer.path, layer.attributes, layer_attributes(layer), remedy)


def write_coordinates(store: TileStore, name: str) -> None:
    """Write one of the coordinate arrays again, from the grid."""
    root = store.path
    files = ((path, data) for path, data in coordinate_files(store.grid) if path.startswith(name))
    if isinstance(root, ObjectPath):
        for path, data in files:
            (root / path).write(data)
        return
    with output_errors(root):
        for path, data in files:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(root / path, data)
        sync_tree(root / name)


def _compare_arrays(path: AnyPath, actual: Any, wanted: Any, remedy: str, *, but: str) -> None:
    """Compare the metadata of arrays, except for attributes and the key `but`."""
    have, want = (one.metadata.to_dict() for one in (actual, wanted))
    for key in want.keys() - {"attributes", "storage_transformers", but}:
        _same(path, key, have.get(key), want[key], remedy)


def _compare(path: AnyPath, actual: JsonObject, wanted: JsonObject, remedy: str) -> None:
    """Compare attributes; additional ones belong to other programs."""
    for key, value in wanted.items():
        have = actual.get(key)
        if key == "zarr_conventions" and isinstance(have, list):
            have = [one for one in have if one in value]  # others may be declared as well
        _same(path, key, have, value, remedy)


def _same(path: AnyPath, key: str, actual: Any, wanted: Any, remedy: str) -> None:
    # Also as text, in which NaN equals NaN.
    if actual != wanted and repr(actual) != repr(wanted):
        raise StoreError(
            f"{path}/zarr.json: damaged: {key} is {_short(actual)}, not {_short(wanted)}; "
            f"{_again(path.parent, remedy)}"
        )


def _compare_centres(
    path: AnyPath, grid: GridSpec, side: int, chunk: int, remedy: str, progress: Progress
) -> None:
    for start, have in _centres(path, side, chunk, remedy):
        want = grid.centres(path.name, start, start + len(have))
        if (wrong := np.flatnonzero(have != want)).size:
            k = int(wrong[0])
            raise StoreError(
                f"{path}: damaged: coordinate {start + k} is {have[k]}, not {want[k]}, the centre "
                f"of its cells; {_again(path.parent, remedy)}"
            )
        progress(len(have), grid.rows + grid.cols)


def _centres(path: AnyPath, side: int, chunk: int, remedy: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the values of an array x or y piece by piece, each after its first index."""
    for first in range(0, side, chunk):
        file, end = path / f"c/{first // chunk}", min(side, first + chunk)
        size = _size(file)
        if size not in (None, 8 * chunk):
            raise StoreError(
                f"{file}: damaged: {counted(size or 0, 'byte')}, not {8 * chunk}; "
                f"{_again(path.parent, remedy)}"
            )
        for start in range(first, end, COORDINATES):
            count = min(end - start, COORDINATES)
            if size is None:  # the fill value
                yield start, np.zeros(count)
            else:
                yield start, _values(file, start - first, count)


def _size(file: AnyPath) -> int | None:
    """Size of a chunk in bytes; None if it does not exist."""
    if isinstance(file, ObjectPath):
        meta = file.head()
        return None if meta is None else meta.size
    return os.stat(file).st_size if file.exists() else None


def _values(file: AnyPath, start: int, count: int) -> np.ndarray:
    if isinstance(file, ObjectPath):
        return file.ranges([8 * start], [8 * count])[0].view("<f8")
    return np.fromfile(file, "<f8", count, offset=8 * start)


def _again(store: Any, remedy: str) -> str:
    if not remedy:
        return "copy it again, or convert it"
    return f"copy it again, or write it again: terrain-gpu verify {store} {remedy}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."
