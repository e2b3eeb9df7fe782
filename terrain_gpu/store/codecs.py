"""Codecs of tiles: encode cells to the bytes of a shard, and decode them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numcodecs.blosc
import numcodecs.zstd
import numpy as np

from ..plurals import counted
from .checksums import crc32c
from .coding import BLOSC_LEVEL, ZSTD_LEVEL, most_bytes, shuffle_of

# The same as in zarr-python. Blosc's own threads share a lock; without them, any thread may encode
# outside the interpreter's lock.
numcodecs.blosc.use_threads = False

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOSC_HEADER = struct.Struct("<4B3I")
_BLOSC_VERSION = 2


def encoder(name: str, dtype: np.dtype) -> Callable[[np.ndarray], bytes]:
    """A function that encodes a tile; thread-safe, and outside the interpreter's lock.

    Parameters
    ----------
    name
        One of `NAMES`.
    """
    if name == "zstd":
        return partial(numcodecs.zstd.compress, level=ZSTD_LEVEL)
    shuffle = getattr(numcodecs.blosc, shuffle_of(dtype).upper())
    cname = name.removeprefix("blosc-").encode()
    return partial(numcodecs.blosc.compress, cname=cname, clevel=BLOSC_LEVEL, shuffle=shuffle)


def together(name: str | None) -> Any:
    """The module `codec_kernel`, which encodes many tiles at once; None where it cannot be used.

    It needs numba, which takes longer to import than most layers to encode, so it is used only if
    numba is loaded.
    """
    if name is None or "numba" not in sys.modules:
        return None
    from . import codec_kernel

    return codec_kernel if codec_kernel.can(name) else None


def code_tiles(
    name: str, tiles: np.ndarray, slots: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Encode the tiles at `slots` one after another into `room`.

    Tiles may be in `room` themselves, if the encoded bytes never reach the next tile.

    Returns
    -------
    lengths, sums
        int64 and uint32: length and CRC-32C of each tile's bytes.
    """
    if (kernels := together(name)) is not None:
        coded: tuple[np.ndarray, np.ndarray] = kernels.code_tiles(name, tiles, slots, room)
        return coded
    code, end = encoder(name, tiles.dtype), 0
    lengths, sums = np.zeros(slots.size, np.int64), np.zeros(slots.size, np.uint32)
    for n, k in enumerate(slots):
        part = code(tiles[k])
        lengths[n], sums[n] = len(part), crc32c(part)
        room[end : end + len(part)] = np.frombuffer(part, np.uint8)
        end += len(part)
    return lengths, sums


def decode_tiles(
    name: str,
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    sums: np.ndarray,
    tiles: np.ndarray,
) -> bool:
    """Inverse of `code_tiles`; return whether the bytes match their checksums and decode."""
    if (kernels := together(name)) is not None:
        if (kernels.crc_of_parts(data, starts, lengths) != sums).any():
            return False
        slots = np.arange(len(tiles))
        return bool(kernels.decode_tiles(name, data, starts, lengths, tiles, slots) == len(tiles))
    for start, length, crc, tile in zip(starts, lengths, sums, tiles, strict=True):
        part = data[start : start + length]
        if crc32c(part) != crc:
            return False
        try:
            decode(name, part, tile)
        except ValueError:
            return False
    return True


def decode(name: str | None, stored: Any, out: np.ndarray) -> None:
    """Decode the bytes of a tile into `out`, which is contiguous.

    Sizes are compared first, so that damaged or malicious bytes never take more memory than a tile.

    Raises
    ------
    ValueError
        unless the bytes decode to exactly the size of `out`.
    """
    size = out.nbytes
    if name is None:
        if len(stored) != size:
            raise ValueError(f"holds {counted(len(stored), 'byte')}, not {size:,}")
        out.reshape(-1).view(np.uint8)[...] = np.frombuffer(stored, np.uint8)
        return
    if len(stored) > most_bytes(size):
        raise ValueError(f"takes {counted(len(stored), 'byte')}, too many for {size} when decoded")
    decoded_size = _zstd_size(stored) if name == "zstd" else _blosc_size(stored)
    if decoded_size not in (None, size):
        raise ValueError(f"holds {counted(decoded_size or 0, 'byte')}, not {size:,}")
    module = numcodecs.zstd if name == "zstd" else numcodecs.blosc
    try:
        module.decompress(stored, out)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"does not decompress: {error}") from None


def _zstd_size(stored: Any) -> int | None:
    """The decoded size in the header of a zstd frame; None if the header has none."""
    head = bytes(stored[:18])
    if len(head) < 6 or head[:4] != _ZSTD_MAGIC:
        raise ValueError("does not decompress: not a zstd frame")
    code, single, dictionary = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    at = 6 - single + (0, 1, 2, 4)[dictionary]
    width = (single, 2, 4, 8)[code]
    size = int.from_bytes(head[at : at + width], "little") + 256 * (code == 1)
    return size if width else None


def _blosc_size(stored: Any) -> int:
    """The decoded size in the header of a blosc frame, after checks of the header."""
    if len(stored) < _BLOSC_HEADER.size:
        raise ValueError("does not decompress: not a blosc frame")
    version, _, _, width, size, block, coded = _BLOSC_HEADER.unpack(stored[: _BLOSC_HEADER.size])
    if version != _BLOSC_VERSION or not width or not 0 < block <= max(size, 1):
        raise ValueError("does not decompress: not a blosc frame of format 2")
    if coded != len(stored):
        raise ValueError(f"is truncated or padded: {counted(len(stored), 'byte')} of {coded}")
    return size
