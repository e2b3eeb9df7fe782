"""The files of a distance index, and the settings that it depends on."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ...errors import ArgumentError, InputError, OutputError, StoreError
from ...facts import Findings, JsonObject, Settings
from ...grid import TILE, Block, BlockGrid, ceil_div
from ...store import TileStore
from ...store.checksums import unseal
from ...store.coding import ZSTD_LEVEL
from ...store.files import output_errors
from ...store.layer import KEY
from ...store.metadata import node_json, separator_of
from ...store.nodes import attributes_of, metadata_at, parsed
from ...store.objects import ObjectPath, is_there
from ...store.scratch import scratch_folder
from ..cost.models import CostModel
from ..cost.terrain import Raster
from .packing import Packer, packed_bytes
from .rim import TILES, entries_of, number_dtype, rim_cells, rim_steps
from .tile import Entries

NAME = "distance_index"
FORMAT = 2
_REMEDY = "build the index again with --overwrite"
_PLACES = 1024
"""Number of blocks whose table of tile offsets is kept, 4 KB each for blocks of 1024."""

Unpacked = TypeVar("Unpacked")


def index_settings(
    model: CostModel, problem: Settings, rasters: Mapping[str, Raster | None]
) -> Settings:
    """Settings that an index depends on: those of steps and their costs, not sources or limits."""
    found: Findings = {
        "format": FORMAT,
        "cost": model.name,
        "parameters": model.parameters,
        "connectivity": problem["connectivity"],
        "corner_cutting": problem["corner_cutting"],
        "reverse": problem["reverse"] and model.kind.directed,
        "max_slope": problem.get("max_slope"),
    }
    if "metres" in problem:
        found["metres"] = problem["metres"]
    found |= {key: raster and Path(raster.name).name for key, raster in rasters.items()}
    found |= {
        f"{key} cells": raster and raster.data.identity  # type: ignore[union-attr]
        for key, raster in rasters.items()
    }
    return json.loads(json.dumps(found))


class Index:
    """The distance index of a store, open for reading; all methods are thread-safe.

    It is a sharded Zarr array of bytes, (tile rows, tile columns, bytes of a tile). A shard holds
    the tiles of a block, each packed (`packing`), compressed and with a checksum (crc32c). Between
    the last tile and the table of tiles lie the squares of each level, packed in the same way, and
    a table of them.

    Attributes
    ----------
    path
        Folder of the array.
    settings
        See `index_settings`.
    tile
        Side of a tile, in cells.
    levels
        Number of levels above the tiles. A square of level k consists of 2^k x 2^k tiles, and has
        the entries that a tile of its size would have. Level 0 is that of the tiles.
    symmetric
        Whether only half of the distances are stored.
    dtype
        Dtype of the entries; its largest value (`edges.infinity_of`) means that there is no path.
    bytes
        Total size of the files.
    room
        Bytes of unpacked blocks that `read` keeps.
    separator
        Separator in the names of files: a slash, or in object storage also a dot.
    cache
        Folder for copies of the files read from object storage, so that they are downloaded once;
        None downloads them every time.
    """

    def __init__(
        self, path: Path, blocks: BlockGrid, own: JsonObject, separator: str = "/"
    ) -> None:
        self.path, self.blocks, self.separator = path, blocks, separator
        self.cache: Path | None = None
        self.settings = {"tile": TILE, "levels": 0, **own["settings"]}  # not recorded by old ones
        self.own = {**{key: own[key] for key in ("dtype", "symmetric")}, "settings": self.settings}
        self.tile, self.levels = self.settings["tile"], self.settings["levels"]
        self.symmetric = bool(own["symmetric"])
        self.dtype = np.dtype(own["dtype"])
        self.bytes = int(own.get("stored_bytes", 0))
        self.room = 0
        self._lock = threading.Lock()
        self._local = threading.local()
        self._open: OrderedDict[Block, Entries] = OrderedDict()
        self._places: OrderedDict[Block, np.ndarray] = OrderedDict()
        self._copied: set[Block] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return Index, (self.path, self.blocks, self.own, self.separator)

    def chunk(self, level: int = 0) -> tuple[int, int]:
        """Number of rows and columns of squares in a file."""
        most, (down, across) = self.blocks.block // (self.tile << level), self.shape(level)
        return min(most, down), min(most, across)

    def shape(self, level: int = 0) -> tuple[int, int]:
        """Number of rows and columns of squares in the raster."""
        side = self.tile << level
        return ceil_div(self.blocks.rows, side), ceil_div(self.blocks.cols, side)

    def entries(self, level: int = 0) -> int:
        """Number of entries of a square."""
        return entries_of(self.tile << level, self.symmetric)

    def packed_bytes(self, level: int = 0) -> int:
        """Bytes of a packed square before compression."""
        return packed_bytes(self.tile << level, self.symmetric, self.dtype)

    @property
    def file_bytes(self) -> int:
        """The largest possible size of a file: that with squares that do not compress."""
        size = 8
        for level in range(self.levels + 1):
            each = self.packed_bytes(level)
            each += (each >> 8) + 64  # ZSTD_COMPRESSBOUND, and a checksum
            size += math.prod(self.chunk(level)) * (each + 16)
        return size

    @property
    def unpacked_bytes(self) -> int:
        """The largest possible size of a block's entries in memory."""
        count, item = rim_cells(self.tile), self.dtype.itemsize
        ways = count * count * (item + number_dtype(self.tile).itemsize)
        # Also the entries of one tile, packed and unpacked, and its `Packer`.
        each = ways + rim_steps(self.tile) * item + 8 * (count + 1)
        return (math.prod(self.chunk()) + 5) * each

    def file(self, at: Block) -> Path:
        """File of a block."""
        return self.path / self.separator.join(("c", str(at[0]), str(at[1]), "0"))

    def tiles(self, at: Block, level: int = 0) -> tuple[int, int]:
        """Number of rows and columns of squares in a block."""
        (r0, r1, c0, c1), side = self.blocks.window(*at), self.tile << level
        return ceil_div(r1 - r0, side), ceil_div(c1 - c0, side)

    def metadata(self, own: JsonObject) -> bytes:
        """The metadata of the Zarr array."""
        size = self.packed_bytes()
        array = zarr.create_array(
            {},
            shape=(*self.shape(), size),
            chunks=(1, 1, size),
            shards=(*self.chunk(), size),
            dtype=np.uint8,
            compressors=(ZstdCodec(level=ZSTD_LEVEL), Crc32cCodec()),
            filters=None,
            fill_value=0,
            dimension_names=("tile_row", "tile_column", "byte"),
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
            when its metadata is damaged, of an older version, or does not match the blocks.
        """
        path = store.path / NAME
        if not is_there(path / "zarr.json"):
            return None
        remedy = "build it again with --overwrite, or delete the folder"
        metadata = metadata_at(path) if isinstance(path, ObjectPath) else None
        try:
            array = parsed(zarr.open_array, metadata or metadata_at(path) or b"")
            own: Any = attributes_of(array)[KEY]
            if own["dtype"] not in ("float64", "uint32", "uint64"):
                raise ValueError(f"entries of type {own['dtype']!r}")
            if not isinstance(own["settings"], dict) or type(own["symmetric"]) is not bool:
                raise ValueError("settings must be a JSON object and symmetric a boolean")
            tile = own["settings"].get("tile", TILE)
            if type(tile) is not int or tile not in TILES or tile > blocks.block:
                raise ValueError(f"tiles of {tile!r} in blocks of {blocks.block}")
            levels = own["settings"].get("levels", 0)
            if type(levels) is not int or not 0 <= levels <= most_levels(tile, blocks.block):
                raise ValueError(f"levels is {levels!r}, above tiles of {tile}")
            version = own["format"]
            found = cls(path, blocks, own, separator_of(path, array.metadata))
            if version == FORMAT:
                found._refuse_unlike(array)
        except Exception as error:  # on malformed JSON, zarr raises errors of many types
            raise StoreError(
                f"{path}/zarr.json: damaged distance index ({type(error).__name__}: {error}); "
                f"{remedy}"
            ) from error
        if version != FORMAT:
            raise StoreError(
                f"{path}: a distance index of format {version!r}, but this version reads format "
                f"{FORMAT}; {remedy}"
            )
        return found

    def _refuse_unlike(self, array: Any) -> None:
        """Refuse an array whose metadata do not match this index."""
        expected = json.loads(self.metadata({}))
        found = array.metadata.to_dict()
        for key in ("shape", "data_type", "chunk_grid", "codecs"):
            if json.loads(json.dumps(found[key])) != expected[key]:
                raise ValueError(f"{key} is {found[key]}, not {expected[key]}")

    def difference(self, settings: Settings) -> str | None:
        """Describe the first setting that differs from those of the index; None if all agree."""
        for key in settings:
            was, now = self.settings.get(key), settings[key]
            if was != now:
                if key.endswith(" cells"):
                    return f"the {key.removesuffix(' cells')} layer has changed since"
                return f"{key} was {was!r} and is now {now!r}"
        return None

    def read(self, at: Block) -> Entries:
        """Read the entries of a block's tiles.

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
        tiles, size = math.prod(self.tiles(at)), 0
        # The operating system provides only the memory that is written.
        count = rim_cells(self.tile)
        others = np.empty(tiles * count * count, number_dtype(self.tile))
        ways = np.empty(len(others), self.dtype)
        ends = np.empty((tiles, count + 1), np.int64)
        steps = np.empty((tiles, rim_steps(self.tile)), self.dtype)
        for k, one in enumerate(self._stored(at)):
            tile = self._unpacked(at, 0, *one, Packer.links)
            place = slice(size, size + len(tile.ways))
            others[place], ways[place] = tile.others, tile.ways
            ends[k], steps[k] = tile.ends[0] + size, tile.steps[0]
            size = place.stop
        found = Entries(ends, others[:size], ways[:size], steps)
        with self._lock:
            self._open[at] = found
            held = sum(a.nbytes for entries in self._open.values() for a in entries)
            while self._open and held > self.room:
                held -= sum(a.nbytes for a in self._open.popitem(last=False)[1])
        return found

    def read_tile(self, tile: tuple[int, int], level: int = 0) -> Entries:
        """Read the entries of one tile, or square of a level, by its row and column.

        Raises
        ------
        StoreError
            when the file is missing or damaged.
        """
        side = self.blocks.block // (self.tile << level)
        (y, i), (x, j) = (divmod(n, side) for n in tile)
        at, number = (y, x), i * self.chunk(level)[1] + j
        with self._opened(at) as file:
            stored = self._tile_in(file, at, level, number)
        return self._unpacked(at, level, number, stored, Packer.links)

    def rows(self, at: Block, level: int = 0) -> Iterator[np.ndarray]:
        """Read the entries of a block's squares, (columns, entries), one row of them at a time.

        Entries that were left out are infinite. The array is reused.

        Raises
        ------
        StoreError
            when the file is missing or damaged.
        """
        across = self.tiles(at, level)[1]
        row = np.empty((across, self.entries(level)), self.dtype)
        for k, one in enumerate(self._stored(at, level)):
            row[k % across] = self._unpacked(at, level, *one, Packer.entries)
            if k % across == across - 1:
                yield row

    def _unpacked(
        self,
        at: Block,
        level: int,
        number: int,
        stored: bytes,
        how: Callable[[Packer, bytes], Unpacked],
    ) -> Unpacked:
        """Unpack a square of a block with a method of `Packer`."""
        packers = vars(self._local).setdefault("packers", {})
        if level not in packers:
            packers[level] = Packer(self.tile << level, self.symmetric, self.dtype)
        try:
            return how(packers[level], stored)
        except ValueError as error:
            raise self._corrupt(at, level, number, str(error)) from None

    def _stored(self, at: Block, level: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the number in the block and the compressed bytes of every square, row by row."""
        down, across = self.tiles(at, level)
        with self._opened(at) as file:
            for i in range(down):
                for j in range(across):
                    number = i * self.chunk(level)[1] + j
                    yield number, self._tile_in(file, at, level, number)

    def _tile_in(self, file: BinaryIO, at: Block, level: int, number: int) -> bytes:
        """Read the compressed bytes of a square in an open file."""
        before = sum(math.prod(self.chunk(k)) for k in range(level))
        start, size = self._places_in(file, at)[before + number].tolist()
        data = os.pread(file.fileno(), size, start) if size <= self.file_bytes else b""
        stored = unseal(data) if len(data) == size else None
        if stored is None:
            raise self._corrupt(at, level, number, "crc32c differs")
        return stored

    def _places_in(self, file: BinaryIO, at: Block) -> np.ndarray:
        """Offsets and sizes of the squares of all levels in an open file, tiles first."""
        with self._lock:
            found = self._places.get(at)
        if found is None:
            counts = [math.prod(self.chunk(level)) for level in range(self.levels + 1)]
            # The file ends with two tables, that of the tiles last, as Zarr requires.
            lengths = [16 * n + 4 for n in (counts[0], sum(counts[1:])) if n]
            end, tables = os.fstat(file.fileno()).st_size, b""
            for length in lengths:
                table = unseal(os.pread(file.fileno(), length, max(end - length, 0)))
                if table is None:
                    raise StoreError(
                        f"{self.file(at)}: truncated or corrupt (crc32c of its index differs); "
                        f"{_REMEDY}"
                    )
                tables, end = tables + table, end - length
            found = np.frombuffer(tables, "<u8").reshape(-1, 2)
            with self._lock:
                self._places[at] = found
                while len(self._places) > _PLACES:
                    self._places.popitem(last=False)
        return found

    def _corrupt(self, at: Block, level: int, number: int, why: str) -> StoreError:
        what = f"square of {self.tile << level}" if level else "tile"
        tile = divmod(number, self.chunk(level)[1])
        return StoreError(f"{self.file(at)}: corrupt {what} {tile} ({why}); {_REMEDY}")

    @contextmanager
    def _opened(self, at: Block) -> Iterator[BinaryIO]:
        """Open the file of a block, or a copy of the object."""
        path = self.file(at)
        try:
            is_object = isinstance(path, ObjectPath)
            with self._downloaded(path, at) if is_object else open(path, "rb") as file:
                yield file
        except FileNotFoundError:
            raise StoreError(f"{path}: missing from the distance index; {_REMEDY}") from None
        except OSError as error:
            if isinstance(error, StoreError | OutputError):
                raise
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error

    @contextmanager
    def _downloaded(self, path: Any, at: Block) -> Iterator[BinaryIO]:
        """Open a copy of an object on disk; without `cache`, an anonymous temporary file."""
        copy = self.cache / f"{at[0]}-{at[1]}" if self.cache else None
        if copy and at in self._copied:
            with open(copy, "rb") as file:
                yield file
            return
        if (found := path.head()) is None:
            raise FileNotFoundError
        scratch = self.cache or scratch_folder()
        with ExitStack() as opened:
            with output_errors(scratch):
                scratch.mkdir(parents=True, exist_ok=True)
                nameless = partial(tempfile.TemporaryFile, dir=scratch)
                new: Any = partial(open, copy) if copy else nameless
                made = opened.enter_context(new(mode="w+b"))
                if found.size:
                    os.posix_fallocate(made.fileno(), 0, found.size)
            path.download(made.fileno(), found.size)
            self._copied.add(at)
            yield made

    def holds(self, i: int, j: int, digest: int, *, small: bool) -> bool:
        """Whether the file of a block is complete; `digest` and `small` are as for layers."""
        try:
            for level in range(self.levels + 1):
                for _ in self._stored((i, j), level):
                    pass
        except StoreError:
            return False
        finally:
            self._places.pop((i, j), None)
        return True

    def close(self) -> None:
        """Release the blocks read, and delete the copies of objects."""
        self._open.clear()
        if self.cache is not None:
            shutil.rmtree(self.cache, ignore_errors=True)
            self._copied.clear()


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


def most_levels(tile: int, block: int) -> int:
    """The largest number of levels of an index: a square of the last one is a block."""
    return (block // tile).bit_length() - 1


def new_index(
    path: Path, blocks: BlockGrid, model: CostModel, heights: np.dtype, settings: Settings
) -> Index:
    """Return an index in a folder, which need not exist yet, for heights of a dtype.

    Raises
    ------
    InputError
        when its tiles are larger than the blocks.
    """
    if (tile := settings.get("tile", TILE)) > blocks.block:
        raise ArgumentError(
            f"tiles of {tile} are larger than the blocks of the store, {blocks.block}; give a "
            "smaller {tile}, or convert with a larger --block-size"
        )
    levels, most = settings.get("levels", 0), most_levels(tile, blocks.block)
    if levels > most:
        raise ArgumentError(
            f"{{levels}} {levels}: squares of {tile << levels} are larger than the blocks of the "
            f"store, {blocks.block}; give {{levels}} {most}, or convert with a larger --block-size"
        )
    own = {
        "settings": settings,
        "dtype": index_dtype(model, heights).name,
        "symmetric": not model.kind.directed,
    }
    return Index(path, blocks, own)
