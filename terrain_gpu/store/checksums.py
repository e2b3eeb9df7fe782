"""Checksums of stored data (tiles, lines, files), and digests of content."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from ..facts import JsonObject

_IN_C = google_crc32c.implementation == "c"
_MANY = 1 << 16
"""For more bytes, google_crc32c would hold the interpreter's lock too long."""


def crc32c(data: Any, crc: int = 0) -> int:
    """CRC-32C of bytes or of a contiguous array, continued from `crc`."""
    if isinstance(data, np.ndarray) and data.nbytes >= _MANY and "numba" in sys.modules:
        from . import codec_kernel, crc_kernel

        if crc_kernel.kernel is not None and data.flags.writeable:
            return codec_kernel.crc_of(data, crc)
    if not (_IN_C and isinstance(data, bytes | np.ndarray)):
        data = bytes(data)
    return google_crc32c.extend(crc, data)


def crc_of_tiles(tiles: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """CRC-32C of some tiles of an uncompressed block; uint32.

    Parameters
    ----------
    tiles
        Contiguous, shape (n, 64, 64), of any dtype.
    slots
        int64: the tiles to process.
    """
    # Importing numba takes as long as this loop for gigabytes of tiles. If it is loaded anyway, its
    # kernel is used, which releases the interpreter's lock.
    if "numba" in sys.modules:
        from .crc_kernel import kernel

        if kernel is not None:
            sums = np.empty(slots.size, np.uint32)
            kernel(tiles.view(np.uint8).reshape(len(tiles), -1).view(np.uint64), slots, sums)
            return sums
    rows = tiles.view(np.uint8).reshape(len(tiles), -1)
    return np.fromiter((crc32c(rows[k]) for k in slots), np.uint32, slots.size)


def seal(data: bytes) -> bytes:
    """Append their CRC-32C to some bytes."""
    return data + struct.pack("<I", crc32c(data))


def unseal(data: bytes) -> bytes | None:
    """Inverse of `seal`; None if the checksum differs."""
    body = data[:-4]
    return body if len(data) >= 4 and seal(body) == data else None


def sealed_line(value: Any) -> bytes:
    """A line of a manifest: a JSON value, a tab, and the CRC-32C of the value's bytes."""
    text = json.dumps(value).encode()
    return text + b"\t%08x\n" % crc32c(text)


def unsealed_line(line: bytes) -> Any:
    """Inverse of `sealed_line`; None if the line is incomplete or damaged."""
    text, _, crc = line.rstrip(b"\n").rpartition(b"\t")
    if not text or crc != b"%08x" % crc32c(text):
        return None
    return json.loads(text)


def block_digest(*parts: Any) -> int:
    """64-bit digest of the content of a block; 0 is reserved for a block without a file."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        # For more bytes, hashlib releases the interpreter's lock, and getting it back takes longer.
        for at in range(0, len(part), 2047):
            digest.update(part[at : at + 2047])
    return int.from_bytes(digest.digest(), "little") or 1


def layer_digest(facts: JsonObject, blocks: np.ndarray) -> str:
    """Digest of the content of a layer: of the meaning of its cells and the digests of blocks."""
    text = json.dumps(facts, sort_keys=True, allow_nan=False).encode()
    return hashlib.blake2b(text + blocks.astype("<u8").tobytes(), digest_size=16).hexdigest()


DIGESTS = "digests"
"""Name of the file with the digests of all blocks of a layer."""


def digests_name(separator: str) -> str:
    """Name of the file of digests, for the version of a layer with this separator."""
    return DIGESTS if separator == "/" else f"{DIGESTS}-dotted"


def crc_of_json(*values: Mapping[str, Any] | Sequence[Any]) -> str:
    """CRC-32C of JSON values, independent of the order of keys; 8 hexadecimal digits."""
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    return f"{crc32c(text.encode()):08x}"


_POLYNOMIAL, _ONE, _BYTE = 0x82F63B78, 1 << 31, 1 << 23
"""The polynomial of CRC-32C, and 1 and x^8 in the same bit order: the highest bit is x^0."""


def _product(a: int, b: int) -> int:
    """Multiply polynomials over GF(2), modulo that of CRC-32C."""
    product = 0
    for power in range(32):
        if a & (_ONE >> power):
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def joined_crc(first: int, second: int, length: int) -> int:
    """Return the CRC-32C of bytes followed by `length` others, from the CRC-32C of each part."""
    shift, square = _ONE, _BYTE
    while length:
        if length & 1:
            shift = _product(shift, square)
        square, length = _product(square, square), length >> 1
    return _product(shift, first) ^ second


def checksum_of_part(path: str, start: int, size: int) -> int:
    """Return the CRC-32C of `size` bytes of a file."""
    crc = 0
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while piece := file.read(min(size, 1 << 22)):
            crc, size = google_crc32c.extend(crc, piece), size - len(piece)
    return crc


def checksum(path: str, stop: threading.Event | None = None) -> str:
    """CRC-32C of a file's bytes, as 8 hexadecimal digits."""
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 22):
            crc = google_crc32c.extend(crc, piece)
            if stop is not None and stop.is_set():
                break
    return f"{crc:08x}"
