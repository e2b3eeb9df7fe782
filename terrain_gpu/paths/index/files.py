"""The files of a distance index, and the settings that it depends on."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec

from ...errors import InputError, OutputError, StoreError
from ...grid import TILE, Block, BlockGrid, ceil_div
from ...store import TileStore
from ...store.files import output_errors
from ...store.layer import KEY
from ...store.metadata import node_at, node_json, separator_of
from ...store.objects import ObjectPath, is_there
from ...store.scratch import scratch_folder
from ..costs import CostModel
from ..edges import infinity_of
from ..ground import Raster
from .tile import entries_of

NAME = "distance_index"
FORMAT = 1
_REMEDY = "build the index again with --overwrite"


def index_settings(
    model: CostModel, problem: Mapping[str, Any], rasters: Mapping[str, Raster | None]
) -> dict[str, Any]:
    """Settings that an index depends on: the steps and their costs, not sources or limits."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "cost": model.name,
        "parameters": model.parameters,
        "connectivity": problem["connectivity"],
        "corner_cutting": problem["corner_cutting"],
        "reverse": problem["reverse"] and model.kind.directed,
        "max_slope": problem.get("max_slope"),
    }
    found |= {key: raster and Path(raster.name).name for key, raster in rasters.items()}
    found |= {
        f"{key} cells": raster and raster.data.identity  # type: ignore[union-attr]
        for key, raster in rasters.items()
    }
    return json.loads(json.dumps(found))


class Index:
    """The distance index of a store, open for reading; all methods are thread-safe.

    It is a Zarr array of shape (tile rows, tile columns, entries). A chunk holds the tiles of a
    block, uncompressed, with a checksum (crc32c).

    Attributes
    ----------
    path
        Folder of the array.
    settings
        See `index_settings`.
    symmetric
        Whether only half of the distances are stored.
    dtype
        Dtype of entries, which hold its largest value (`edges.infinity_of`) if there is no path.
    bytes
        Total size of the files.
    separator
        Separator in the names of files: a slash, or in object storage also a dot.
    cache
        Folder for copies of the files that are read from object storage, to read them again; None
        downloads them every time.
    """

    def __init__(
        self, path: Path, blocks: BlockGrid, own: Mapping[str, Any], separator: str = "/"
    ) -> None:
        self.path, self.blocks, self.separator = path, blocks, separator
        self.cache: Path | None = None
        self.own = {key: own[key] for key in ("settings", "dtype", "symmetric")}
        self.settings = own["settings"]
        self.symmetric = bool(own["symmetric"])
        self.dtype = np.dtype(own["dtype"])
        self.entries = entries_of(self.symmetric)
        self.bytes = int(own.get("stored_bytes", 0))
        self.capacity = 1
        self._lock = threading.Lock()
        self._open: OrderedDict[Block, np.ndarray] = OrderedDict()
        self._sound: set[Block] = set()

    @property
    def chunk(self) -> tuple[int, int]:
        """Number of tile rows and columns in a file."""
        side = self.blocks.block // TILE
        down, across = ceil_div(self.blocks.rows, TILE), ceil_div(self.blocks.cols, TILE)
        return min(side, down), min(side, across)

    @property
    def file_bytes(self) -> int:
        """Size of every file, including its checksum."""
        return self.chunk[0] * self.chunk[1] * self.entries * self.dtype.itemsize + 4

    def file(self, at: Block) -> Path:
        """File of a block."""
        return self.path / self.separator.join(("c", str(at[0]), str(at[1]), "0"))

    def tiles(self, at: Block) -> tuple[int, int]:
        """Number of tile rows and columns in a block."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        return ceil_div(r1 - r0, TILE), ceil_div(c1 - c0, TILE)

    def metadata(self, own: Mapping[str, Any]) -> bytes:
        """The metadata of the Zarr array."""
        shape = ceil_div(self.blocks.rows, TILE), ceil_div(self.blocks.cols, TILE), self.entries
        array = zarr.create_array(
            {},
            shape=shape,
            chunks=(*self.chunk, self.entries),
            dtype=self.dtype,
            serializer=BytesCodec(endian="little"),
            compressors=Crc32cCodec(),
            filters=None,
            fill_value=infinity_of(np.empty(0, self.dtype)),
            dimension_names=("tile_row", "tile_column", "entry"),
            chunk_key_encoding={"name": "default", "separator": self.separator},
            attributes={KEY: dict(own)},
        )
        return node_json(array)

    @classmethod
    def open(cls, store: TileStore, blocks: BlockGrid) -> Index | None:
        """Open the index of a store; None if there is none.

        Raises
        ------
        StoreError
            when its metadata is damaged, or does not match the blocks.
        """
        path = store.path / NAME
        if not is_there(path / "zarr.json"):
            return None
        there = node_at(path)
        remedy = "build it again with --overwrite, or delete the folder"
        try:
            array = zarr.open_array(there, mode="r", zarr_format=3)
            own: Any = array.attrs.asdict()[KEY]
            if own["dtype"] not in ("float64", "uint32", "uint64"):
                raise ValueError(f"entries of type {own['dtype']!r}")
            if not isinstance(own["settings"], dict) or type(own["symmetric"]) is not bool:
                raise ValueError("settings must be a JSON object and symmetric a boolean")
            found = cls(path, blocks, own, separator_of(path, array.metadata))
            tiles = ceil_div(blocks.rows, TILE), ceil_div(blocks.cols, TILE)
            expected = (*tiles, found.entries), (*found.chunk, found.entries), found.dtype
            facts = array.shape, array.chunks, array.dtype
            if facts != expected:
                raise ValueError(f"shape, chunks and type are {facts}, not {expected}")
            codecs = array.metadata.codecs  # type: ignore[union-attr]
            if [type(c) for c in codecs] != [BytesCodec, Crc32cCodec]:
                raise ValueError("its codecs are not plain bytes with crc32c")
        except Exception as error:  # on malformed JSON, zarr raises errors of many types
            raise StoreError(
                f"{path}/zarr.json: damaged distance index ({type(error).__name__}: {error}); "
                f"{remedy}"
            ) from error
        return found

    def difference(self, settings: Mapping[str, Any]) -> str | None:
        """Describe the first setting that differs from those of the index; None if all agree."""
        for key in settings:
            was, now = self.settings.get(key), settings[key]
            if was != now:
                if key.endswith(" cells"):
                    return f"the {key.removesuffix(' cells')} layer has changed since"
                return f"{key} was {was!r} and is now {now!r}"
        return None

    def read(self, at: Block) -> np.ndarray:
        """Map the entries of a block's tiles: (rows, columns, entries), read-only.

        Raises
        ------
        StoreError
            when the file is missing or damaged.
        """
        with self._lock:
            found = self._open.get(at)
            if found is not None:
                self._open.move_to_end(at)
                return found
            while len(self._open) >= self.capacity:
                self._open.popitem(last=False)
        found = self._mapped(at)
        with self._lock:
            self._open[at] = found
        return found

    def _mapped(self, at: Block) -> np.ndarray:
        with self._opened(at) as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if at not in self._sound:
            flat = np.frombuffer(whole, np.uint8)
            step = 1 << 22  # google_crc32c takes only bytes objects, that is copies
            pieces = (flat[k : k + step].tobytes() for k in range(0, len(flat), step))
            self._refuse_corrupt(at, pieces)
            self._sound.add(at)
        cells = np.frombuffer(whole, self.dtype, (len(whole) - 4) // self.dtype.itemsize)
        return cells.reshape(*self.chunk, self.entries)

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Read the entries of a block's tiles, (columns, entries), one row of tiles at a time.

        Raises
        ------
        StoreError
            when the file is missing or damaged, before the first row.
        """
        down, across = self.chunk[1], self.entries
        size = down * across * self.dtype.itemsize
        with self._opened(at) as file:
            self._refuse_corrupt(at, iter(partial(file.read, 1 << 22), b""))
            file.seek(0)
            for _ in range(self.tiles(at)[0]):
                yield np.frombuffer(file.read(size), self.dtype).reshape(down, across)

    @contextmanager
    def _opened(self, at: Block) -> Iterator[BinaryIO]:
        """Open the file of a block, or a copy of the object, if it has the right size."""
        path = self.file(at)
        try:
            is_object = isinstance(path, ObjectPath)
            with self._downloaded(path, at) if is_object else open(path, "rb") as file:
                self._check_size(path, os.fstat(file.fileno()).st_size)
                yield file
        except FileNotFoundError:
            raise StoreError(f"{path}: missing from the distance index; {_REMEDY}") from None
        except OSError as error:
            if isinstance(error, StoreError | OutputError):
                raise
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error

    @contextmanager
    def _downloaded(self, path: Any, at: Block) -> Iterator[BinaryIO]:
        """Open a copy of an object on disk; without `cache`, in a file without a name."""
        copy = self.cache / f"{at[0]}-{at[1]}" if self.cache else None
        if copy and at in self._sound:
            with open(copy, "rb") as file:
                yield file
            return
        if (found := path.head()) is None:
            raise FileNotFoundError
        self._check_size(path, found.size)
        scratch = self.cache or scratch_folder()
        with ExitStack() as opened:
            with output_errors(scratch):
                scratch.mkdir(parents=True, exist_ok=True)
                nameless = partial(tempfile.TemporaryFile, dir=scratch)
                new: Any = partial(open, copy) if copy else nameless
                made = opened.enter_context(new(mode="w+b"))
                os.posix_fallocate(made.fileno(), 0, found.size)
            path.download(made.fileno(), found.size)
            yield made

    def _check_size(self, path: Path, size: int) -> None:
        if size != self.file_bytes:
            raise StoreError(
                f"{path}: has {size} bytes, not {self.file_bytes}: truncated or another file; "
                f"{_REMEDY}"
            )

    def _refuse_corrupt(self, at: Block, pieces: Iterable[bytes]) -> None:
        """Refuse a file whose last four bytes are not the checksum of the others."""
        crc, left = 0, self.file_bytes - 4
        stored = b""
        for data in pieces:
            crc = google_crc32c.extend(crc, data[:left])
            stored += data[left:]
            left = max(left - len(data), 0)
        if crc != int.from_bytes(stored, "little"):
            raise StoreError(f"{self.file(at)}: corrupt (crc32c differs); {_REMEDY}")

    def holds(self, i: int, j: int, digest: int, *, small: bool) -> bool:
        """Whether the file of a block is whole; `digest` and `small` are those of layers."""
        try:
            self.read((i, j))
        except StoreError:
            return False
        return True

    def close(self) -> None:
        """Release the mapped files, and delete the copies of objects."""
        self._open.clear()
        if self.cache is not None:
            shutil.rmtree(self.cache, ignore_errors=True)
            self._sound.clear()


def index_dtype(model: CostModel, heights: np.dtype) -> np.dtype:
    """Dtype of the entries.

    Raises
    ------
    InputError
        for 64-bit integer heights, whose distances within a tile may overflow.
    """
    if model.is_integer(heights) and heights.itemsize == 8:
        raise InputError(
            f"a distance index requires integer heights of at most 32 bits, not {heights.name}; "
            "use another method, or convert to float64"
        )
    return model.distance_dtype(heights)


def new_index(
    path: Path, blocks: BlockGrid, model: CostModel, heights: np.dtype, settings: dict[str, Any]
) -> Index:
    """Return an index in a folder that need not exist yet, for heights of a dtype."""
    own = {
        "settings": settings,
        "dtype": index_dtype(model, heights).name,
        "symmetric": not model.kind.directed,
    }
    return Index(path, blocks, own)
