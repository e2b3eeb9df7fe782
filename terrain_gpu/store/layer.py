"""Read a layer; cells are read directly from the shard files."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import arguments, cells
from ..described import Described
from ..errors import InputError, StoreError, TerrainError
from ..facts import JsonObject
from ..grid import (
    TILE,
    BlockGrid,
    GridSpec,
    Window,
    ceil_div,
    clip,
    is_empty,
    units,
    z_rank_table,
)
from ..plurals import counted
from .checksums import block_digest, crc_of_tiles, digests_name, layer_digest
from .decoding import arrange, decode_tiles, shards_at_once
from .labels import CHUNK, Labels, import_lazy
from .object_bytes import recent
from .objects import ObjectPath, read_small
from .shard import ABSENT, ANY_DIGEST, Shard, again, end_bytes, opened
from .tiles import check_buffer, part_of

if TYPE_CHECKING:
    import xarray

log = logging.getLogger(__name__)

KEY = "terrain_gpu"
"""Key of this package's own attributes."""

Number = float | int

AT_ONCE = 16
"""Largest number of blocks read between checks for Ctrl-C; a block with its rim is in nine."""


class Layer(Described):
    """One raster of a store, open for reading. All methods are thread-safe.

    It can be pickled: another process opens it by its path, and also rejects blocks whose digests
    differ from those recorded here.

    Attributes
    ----------
    name, path
        Name of the layer, and folder of its Zarr array (an `ObjectPath` in object storage).
    separator
        Separator in the names of shards: a slash, or in object storage also a dot.
    grid
        The store's `GridSpec`.
    blocks
        The `BlockGrid` of the raster.
    dtype
        Cell type, little-endian.
    nodata
        The nodata value, or None.
    attributes
        All Zarr attributes of the array.
    labels
        `Labels` of the DataArray or raster that it was computed from, if any; not pickled.
    """

    labels: Labels | None = None

    def __init__(
        self,
        path: Path,
        grid: GridSpec,
        dtype: np.dtype,
        block_size: int,
        nodata: Number | None,
        compress: str | None,
        attributes: JsonObject,
        separator: str = "/",
    ) -> None:
        self.path = path
        self.separator = separator
        self.name = path.name
        self.grid = grid
        self.dtype = dtype
        self.blocks = BlockGrid(grid.rows, grid.cols, block_size)
        self.nodata = nodata
        self.compress = compress
        self.attributes = dict(attributes)
        self.fill = np.array(0 if nodata is None else nodata, dtype=dtype)
        self._ranks = z_rank_table(block_size)
        self._order = np.argsort(self._ranks.ravel())
        self._tile_bytes = TILE * TILE * dtype.itemsize
        self._local = threading.local()
        self._lock, self._key = threading.Lock(), object()
        self._digests: np.ndarray | None = None
        self._reader: Any = None

    def _facts(self) -> tuple[Any, ...]:
        """The arguments of `Layer`."""
        facts = (self.path, self.grid, self.dtype, self.block_size, self.nodata, self.compress)
        return *facts, self.attributes, self.separator

    def __reduce__(self) -> tuple[object, ...]:
        return Layer, self._facts()

    def facts_shown(self) -> JsonObject:
        rows, cols = self.grid.shape
        return {
            "name": self.name,
            "cells": f"{rows} x {cols} {self.dtype.name}",
            "nodata": self.nodata,
            "path": str(self.path),
        }

    def to_xarray(self, chunks: int | None = CHUNK, *, masked: bool = True) -> xarray.DataArray:
        """Return the layer as a DataArray, whose cells are read when needed.

        Parameters
        ----------
        chunks, masked
            As for `terrain_gpu.open`.

        Raises
        ------
        InputError
            when xarray is not installed.
        """
        return import_lazy().to_dataarray(self, chunks, masked=masked)

    # -- description -----------------------------------------------------------------------

    @property
    def block_size(self) -> int:
        """Side of a block in cells."""
        return self.blocks.block

    @property
    def info(self) -> JsonObject:
        """This package's own attributes: statistics, sources, settings."""
        attributes_of_package = self.attributes.get(KEY)
        return attributes_of_package if isinstance(attributes_of_package, dict) else {}

    @property
    def is_sealed(self) -> bool:
        """Whether checksums are recorded, as for every layer that this program wrote."""
        return "digest" in self.info

    @property
    def identity(self) -> str:
        """Digest of the content: equal for equal cells with the same meaning.

        It is recorded in the layer. For a layer that another program wrote, all cells are read.

        Raises
        ------
        StoreError
            when cells must be read and cannot be.
        """
        if self.is_sealed:
            return str(self.info["digest"])
        digests = np.zeros(self.blocks.shape, np.uint64)
        for block in self.blocks.ids():
            digests[block] = block_digest(self.read_block(*block).tobytes())
        return layer_digest(self.facts, digests)

    @property
    def emptiness(self) -> str:
        """The message if no cell is valid, so that all results will be empty; else ""."""
        if self.info.get("valid_cells") != 0:
            return ""
        kinds = ["NaN", "infinite"] * (self.dtype.kind == "f")
        kinds += [] if self.nodata is None else [f"nodata ({self.nodata})"]
        settings = self.info.get("settings")
        computed = isinstance(settings, dict) and "of" in settings
        of_raster = "the nodata value, band and bounds of the raster"
        remedy = "the layers it was computed from" if computed else of_raster
        return f"has no valid cells, all are {' or '.join(kinds)}; check {remedy}"

    def warn_if_empty(self, name: str | None = None) -> None:
        """Warn if no cell is valid.

        Parameters
        ----------
        name
            Name of the layer in the message, such as its raster; its path when None.
        """
        if self.emptiness:
            log.warning("%s: %s", name or self.path, self.emptiness)

    def refuse_if_empty(self) -> None:
        """Reject a layer without valid cells, for which later messages would be misleading.

        Raises
        ------
        InputError
        """
        if self.emptiness:
            raise InputError(f"{self.path or self.name}: {self.emptiness}")

    def statistics(self) -> JsonObject:
        """The recorded statistics: valid_cells, min and max."""
        return {key: self.info.get(key) for key in ("valid_cells", "min", "max")}

    @property
    def facts(self) -> JsonObject:
        """The meaning of the cells, as JSON: shape, location, dtype, nodata, layout."""
        return {
            "shape": list(self.grid.shape),
            "transform": [float(v) for v in self.grid.transform],
            "crs": self.grid.crs_wkt,
            "dtype": self.dtype.name,
            "nodata": cells.to_json(self.nodata),
            "block_size": self.block_size,
            "compress": self.compress,
        }

    @property
    def value_range(self) -> str:
        """The least and the greatest value in its unit; "" if it has no valid cell."""
        return units.range_of(self)

    def describe(self) -> JsonObject:
        """Describe the layer as plain JSON. Statistics were recorded when it was written."""
        recorded = self.info
        settings = recorded.get("settings")
        return {
            "dtype": self.dtype.name,
            **units.meaning_of(self),
            "nodata": cells.to_json(self.nodata),
            "valid_cells": recorded.get("valid_cells"),
            "min": recorded.get("min"),
            "max": recorded.get("max"),
            "block_size": self.block_size,
            "blocks": list(self.blocks.shape),
            "tile": TILE,
            "compress": self.compress,
            "raw_bytes": self.grid.cells * self.dtype.itemsize,
            "stored_bytes": recorded.get("stored_bytes"),
            "sources": recorded.get("sources", []),
            "weight": settings.get("weight") if isinstance(settings, dict) else None,
            "digest": recorded.get("digest"),
        }

    def shard_path(self, i: int, j: int) -> Path:
        """File of block (i, j), which does not exist if all its cells are fill."""
        return self.path / self.separator.join(("c", str(i), str(j)))

    @property
    def digests_path(self) -> Path:
        """File with the digests of all blocks."""
        return self.path / digests_name(self.separator)

    def block_window(self, i: int, j: int) -> Window:
        """Cells of block (i, j) as (row0, row1, col0, col1)."""
        return self.blocks.window(i, j)

    def is_empty_block(self, i: int, j: int) -> bool:
        """Whether all cells of block (i, j) are recorded to be fill."""
        return self._expected(i, j) == 0

    # -- reading ---------------------------------------------------------------------------

    def read_block(
        self, i: int, j: int, out: np.ndarray | None = None, *, halo: int = 0
    ) -> np.ndarray:
        """Read the cells of block (i, j), clipped to the raster.

        Parameters
        ----------
        out
            Buffer of this layer's dtype, at least as large as the result; the result is its upper
            left corner.
        halo
            Number of rings of neighbouring cells around the block; outside the raster they have the
            fill value.

        Returns
        -------
        numpy.ndarray, shape (rows + 2 halo, cols + 2 halo)

        Raises
        ------
        StoreError
            when the shard is damaged or cannot be read.
        """
        return self.read_ring(self._window(i, j), out, halo=halo)

    def read_ring(
        self, window: Window, out: np.ndarray | None = None, *, halo: int = 1
    ) -> np.ndarray:
        """Read a window inside the raster with `halo` rings around it; see `read_block`."""
        halo, (r0, r1, c0, c1) = arguments.whole("halo", halo, 0), window
        shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
        result = np.empty(shape, self.dtype) if out is None else out[: shape[0], : shape[1]]
        check_buffer(result, shape, self.dtype, f"cells of {shape}")
        self._read((r0 - halo, r1 + halo, c0 - halo, c1 + halo), result)
        return result

    def read_window(
        self, row0: int, row1: int, col0: int, col1: int, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Read the cells [row0, row1) x [col0, col1), which must lie inside the raster.

        Raises
        ------
        InputError
            when the window is empty or not inside the raster, or `out` has a wrong shape or dtype.
        StoreError
            when a shard is damaged or cannot be read.
        """
        window = (row0, row1, col0, col1)
        if is_empty(window) or clip(window, self.grid.window) != window:
            raise InputError(
                f"window {window} is empty or not inside the raster of {self.grid.shape}"
            )
        shape = row1 - row0, col1 - col0
        result = np.empty(shape, self.dtype) if out is None else out
        check_buffer(result, shape, self.dtype, f"a window of {shape}")
        self._read(window, result)
        return result

    def read_tiles(self, i: int, j: int, out: np.ndarray) -> None:
        """Read all tiles of block (i, j) in Z-order; absent tiles are set to the fill value.

        Parameters
        ----------
        out
            Array of this layer's dtype, C-contiguous, shape (tiles, 64, 64).

        Raises
        ------
        InputError, StoreError
            when `out` is not such an array; when the shard is damaged or cannot be read.
        """
        count = self._ranks.size
        check_buffer(out, (count, TILE, TILE), self.dtype, counted(count, "tile"))
        if not out.flags.c_contiguous:
            raise InputError("the buffer is not contiguous; use a C-contiguous array")
        self._window(i, j)
        digests = self._digests_for_kernel()
        if digests is not None and self._reader.read_tiles(digests, i, j, out):
            return
        with self._shard(i, j, full=True) as shard:
            if shard is None:
                out[...] = self.fill
                return
            if not self.compress and np.array_equal(
                shard.offsets, np.arange(count) * self._tile_bytes
            ):
                shard.read(out.reshape(-1).view(np.uint8))
                self._check(shard, out, np.arange(count), np.arange(count))
                return
            if self.compress:
                present = np.flatnonzero(shard.offsets != ABSENT)
                self._decode(shard, present, out, present)
                out[shard.offsets == ABSENT] = self.fill
                return
            tiles, slots = self._tiles(shard, np.arange(count))
            present_slots = slots != ABSENT
            out[present_slots] = tiles[slots[present_slots]]
            out[~present_slots] = self.fill

    def map_tiles(self, i: int, j: int, row: int = 0, col: int = 0, side: int = 0) -> np.ndarray:
        """Map the tiles of an aligned power-of-two sub-block into memory, without a copy.

        Parameters
        ----------
        row, col
            First tile row and column within the block, multiples of `side`.
        side
            Number of tiles on a side, a power of two; 0 for the whole block.

        Returns
        -------
        numpy.ndarray, read-only, shape (present tiles, 64, 64)
            The tiles in Z-order, without absent (all fill) tiles.

        Raises
        ------
        InputError
            when the sub-block is not aligned, or the layer is compressed.
        """
        tiles = len(self._ranks)
        side = side or tiles
        fits = 0 < side <= tiles and 0 <= row <= tiles - side and 0 <= col <= tiles - side
        if not fits or side & (side - 1) or row % side or col % side:
            raise InputError(f"sub-block at tile ({row}, {col}) of side {side} is not aligned")
        if self.compress:
            raise InputError(f"{self.path}: a compressed layer cannot be mapped; use read_window")
        with self._shard(i, j) as shard:
            if shard is None:
                return np.empty((0, TILE, TILE), self.dtype)
            first = self._ranks[row, col]
            offsets = shard.offsets[first : first + side * side]
            offsets = offsets[offsets != ABSENT]
            if not offsets.size:
                return np.empty((0, TILE, TILE), self.dtype)
            if np.any(np.diff(offsets) != self._tile_bytes):
                raise StoreError(
                    f"{shard.path}: tiles are not in Z-order (written by another program); "
                    "use read_window"
                )
            data = shard.map()[offsets[0] : offsets[-1] + self._tile_bytes]
            mapped = data.view(self.dtype).reshape(-1, TILE, TILE)
            ranks = first + np.flatnonzero(shard.offsets[first : first + side * side] != ABSENT)
            self._check(shard, mapped, ranks, np.arange(len(mapped)))
            return mapped

    def holds(self, i: int, j: int, digest: int, *, small: bool) -> bool:
        """Whether the shard of block (i, j) has this digest; a `small` shard is checked in full."""
        try:
            if small:
                self.check_block(i, j)
            with self._shard(i, j) as shard:
                return shard is not None and shard.digest == digest
        except StoreError:
            return False

    def check_block(self, i: int, j: int) -> int:
        """Compare all tiles of block (i, j) with their checksums; return their number.

        Raises
        ------
        StoreError
            when tiles differ; names the first one.
        """
        with self._shard(i, j, whole=True, full=True) as shard:
            if shard is None:
                return 0
            ranks = np.flatnonzero(shard.offsets != ABSENT)
            self._tiles(shard, ranks)
            return ranks.size

    def _read(self, ring: Window, out: np.ndarray) -> None:
        """Read a window; cells outside the raster become fill."""
        inside, b = clip(ring, self.grid.window), self.block_size
        digests = None
        if not is_empty(inside) and out.strides[1] == out.itemsize:
            digests = self._digests_for_kernel()
        if digests is None and ring != inside:
            out[...] = self.fill
        if is_empty(inside):
            return
        down, across = (range(inside[k] // b, ceil_div(inside[k + 1], b)) for k in (0, 2))
        n, count = 0, len(down) * len(across)
        while n < count:
            if digests is not None:
                some = n, min(n + AT_ONCE, count)
                n = self._reader.read(digests, ring, inside, some, out)
                if n == some[1]:
                    continue
            i, j = down[n // len(across)], across[n % len(across)]
            part = clip(inside, self.blocks.window(i, j))
            self._read_part(i, j, part, part_of(out, ring, part))
            n += 1

    def _read_part(self, i: int, j: int, part: Window, out: np.ndarray) -> None:
        """Read the cells `part` of block (i, j) into `out`."""
        b = self.block_size
        inner = (part[0] - i * b, part[1] - i * b, part[2] - j * b, part[3] - j * b)
        down, across = (slice(inner[k] // TILE, ceil_div(inner[k + 1], TILE)) for k in (0, 2))
        ranks = self._ranks[down, across]
        r0, r1, c0, c1 = window = self._window(i, j)
        most = 4 * ranks.size > ceil_div(r1 - r0, TILE) * ceil_div(c1 - c0, TILE)
        with self._shard(i, j, whole=most, full=part == window) as shard:
            if shard is None:
                out[...] = self.fill
                return
            arrange(*self._tiles(shard, ranks), self._ranks, inner, out, self.fill)

    def _digests_for_kernel(self) -> np.ndarray | None:
        """The digests for `_reader`, a `ShardReader`; None if it cannot read the layer."""
        if not isinstance(self.path, Path):
            return None
        if (digests := self._recorded()) is None:
            return None
        if (kernels := shards_at_once(self.compress)) is None:
            return None
        if self._reader is None:
            options = self._order, self.block_size, self.compress, self.fill
            self._reader = kernels.ShardReader(str(self.path / "c"), self.separator, *options)
        return digests

    def _tiles(self, shard: Shard, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an array that contains the tiles of `ranks`, and the slot of each tile in it."""
        offsets = shard.offsets[ranks]
        present = offsets != ABSENT
        if not present.any():
            return np.empty((1, TILE, TILE), self.dtype), np.full(ranks.shape, ABSENT)
        if self.compress or (offsets[present] % self._tile_bytes).any():
            return self._decoded(shard, ranks, present)
        # A few tiles (a halo) are mapped; for more, one sequential read is faster than page faults.
        few = 4 * np.count_nonzero(present) <= np.count_nonzero(shard.offsets != ABSENT)
        if few and not shard.source.mapped:
            return self._decoded(shard, ranks, present)
        if few or shard.source.held:
            data = shard.map()
        else:
            data = shard.read(self._scratch(shard.data_bytes))
        whole = len(data) // self._tile_bytes * self._tile_bytes
        tiles = data[:whole].view(self.dtype).reshape(-1, TILE, TILE)
        slots = np.where(present, offsets // self._tile_bytes, ABSENT)
        self._check(shard, tiles, ranks[present], slots[present])
        return tiles, slots

    def _decoded(
        self, shard: Shard, ranks: np.ndarray, present: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        count = int(np.count_nonzero(present))
        tiles = self._scratch(count * self._tile_bytes).view(self.dtype).reshape(-1, TILE, TILE)
        slots = np.full(ranks.shape, ABSENT)
        slots[present] = np.arange(count)
        self._decode(shard, ranks[present], tiles, np.arange(count))
        return tiles, slots

    def _decode(
        self, shard: Shard, ranks: np.ndarray, tiles: np.ndarray, slots: np.ndarray
    ) -> None:
        """Check and decode the tiles with these `ranks` into the `slots` of `tiles`."""
        room = partial(self._scratch, name="coded")
        wrong = decode_tiles(shard, self.compress, ranks, tiles, slots, room)
        if wrong is not None:
            raise self._damaged(shard, wrong)

    def _check(self, shard: Shard, tiles: np.ndarray, ranks: np.ndarray, slots: np.ndarray) -> None:
        """Compare the tiles at `slots`, which have these `ranks`, with their checksums."""
        if shard.sums is None:
            return
        wrong = crc_of_tiles(tiles, slots) != shard.sums[ranks]
        if wrong.any():
            raise self._damaged(shard, int(ranks[np.argmax(wrong)]))

    def _damaged(self, shard: Shard, rank: int) -> StoreError:
        row, col = np.argwhere(self._ranks == rank)[0]
        i, j = str(shard.path).replace(self.separator, "/").split("/")[-2:]
        return StoreError(
            f"{shard.path}: damaged: tile ({row}, {col}) of block ({i}, {j}) of layer "
            f"{self.name!r} differs from its checksum (crc32c); copy or convert the layer again"
        )

    @contextlib.contextmanager
    def _shard(
        self, i: int, j: int, *, whole: bool = False, full: bool = False, cached: bool = True
    ) -> Iterator[Shard | None]:
        """Open the shard of block (i, j); None if the block is all fill.

        Parameters
        ----------
        whole, full
            Whether most, or all, of it will be read; an object is then read with one request.
        cached
            Whether data cached from an earlier read of the object may be used.
        """
        self._window(i, j)
        path, expected = self.shard_path(i, j), self._expected(i, j)
        sealed = expected not in (None, ANY_DIGEST)
        end, key = end_bytes(self._ranks.size), self._key if sealed and cached else None
        if expected == 0 and not full and isinstance(path, ObjectPath):
            yield None
            return
        try:
            with _unless_replaced(self), contextlib.ExitStack() as stack:
                try:
                    source_bytes = opened(path, end, whole=whole, full=full, layer=key)
                    source = stack.enter_context(source_bytes)
                except FileNotFoundError:
                    if sealed and expected:
                        raise StoreError(
                            f"{path}: missing from layer {self.name!r} (an incomplete copy?); "
                            f"{again(self.path)}"
                        ) from None
                    yield None
                    return
                options = path, self.path, self._order, self._tile_bytes, expected
                yield Shard(source, *options, compress=self.compress)
        except TerrainError:
            if isinstance(path, ObjectPath) and recent.forget(key, path):
                with self._shard(i, j, cached=False):  # fails if the layer was replaced
                    pass
            raise
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error

    def _expected(self, i: int, j: int) -> int | None:
        """The recorded digest of a block, 0 if it has no file; None without recorded digests."""
        if (digests := self._recorded()) is None:
            return None
        return int(digests[i, j]) if digests.size else ANY_DIGEST

    def _recorded(self) -> np.ndarray | None:
        """The recorded digests of all blocks; `ANY_DIGESTS` while they are written; or None."""
        if not self.is_sealed:
            return None
        if self._digests is None:
            with self._lock, _unless_replaced(self):
                if self._digests is None:
                    self._digests = self._read_digests()
        return self._digests

    def _read_digests(self) -> np.ndarray:
        path = self.digests_path
        size = 8 * self.blocks.count
        try:
            data = read_small(path, size + 1)
        except OSError as error:
            if isinstance(error, TerrainError):
                raise
            raise StoreError(
                f"{path}: cannot be read: {error.strerror}; copy or convert the layer again"
            ) from error
        digests = np.frombuffer(data, "<u8") if len(data) == size else np.zeros(0, "<u8")
        if layer_digest(self.facts, digests) != self.identity:
            raise StoreError(
                f"{path}: not the digests that {self.path}/zarr.json records (an incomplete copy, "
                f"or damaged); {again(self.path)}"
            )
        return digests.reshape(self.blocks.shape).astype(np.uint64)  # kernels require uint64

    def _window(self, i: int, j: int) -> Window:
        """Cells of block (i, j), which must exist."""
        down, across = self.blocks.shape
        if not (0 <= i < down and 0 <= j < across):
            raise InputError(f"block ({i}, {j}) is outside the {down} x {across} blocks")
        return self.blocks.window(i, j)

    def _scratch(self, size: int, name: str = "cells") -> np.ndarray:
        """A byte buffer of this thread, reused by later calls."""
        have = getattr(self._local, name, None)
        if have is None or have.size < size:
            have = np.empty(size, np.uint8)
            setattr(self._local, name, have)
        return have[:size]


@contextlib.contextmanager
def _unless_replaced(layer: Layer) -> Iterator[None]:
    """If reading a layer fails because another run replaces or has replaced it, say so.

    Raises
    ------
    StoreError
    """
    try:
        yield
    except StoreError:
        if layer.is_sealed and _is_other(layer):
            text = f"{layer.path}: replaced since it was opened; open it again"
            raise StoreError(text) from None
        raise


def _is_other(layer: Layer) -> bool:
    """Whether the layer at this path has been replaced since it was opened, or is about to be."""
    try:
        now = json.loads(read_small(layer.path / "zarr.json"))["attributes"][KEY]["digest"]
    except FileNotFoundError:  # between two renames
        return True
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # damaged
    return bool(now != layer.identity)
