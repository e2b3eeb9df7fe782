"""The digest of a block, without the interpreter's lock: BLAKE2b with eight bytes (RFC 7693)."""

from __future__ import annotations

import numpy as np

from ..compiled import jit

BYTES = 128
"""Bytes that are mixed at a time."""

_BEGIN = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_ORDER = (
    "0123456789abcdef",
    "ea489fd61c02b753",
    "b8c052fdae367194",
    "7931dcbe265a40f8",
    "905724afe1bc683d",
    "2c6a0b834d75fe19",
    "c51fed4a0763928b",
    "db7ec13950f4862a",
    "6fe9b308c2d714a5",
    "a2847615fb9e3cd0",
)
_ROUNDS = np.array([[int(c, 16) for c in _ORDER[k % 10]] for k in range(12)], np.int8)
_1, _16, _24, _63 = (np.uint64(k) for k in (1, 16, 24, 63))
_LENGTH = np.uint64(0x01010008)
"""No key, and a digest of eight bytes."""


@jit
def _mix(a, b, c, d, x, y):  # type: ignore[no-untyped-def]
    a, d = a + b + x, d ^ (a + b + x)
    d = d >> _16 + _16 | d << _16 + _16
    c, b = c + d, b ^ (c + d)
    b = b >> _24 | b << _24 + _16
    a, d = a + b + y, d ^ (a + b + y)
    d = d >> _16 | d << _24 + _24
    c, b = c + d, b ^ (c + d)
    return a, b >> _63 | b << _1, c, d


@jit
def _round(state, m, s):  # type: ignore[no-untyped-def]
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = state
    a0, b0, c0, d0 = _mix(a0, b0, c0, d0, m[s[0]], m[s[1]])
    a1, b1, c1, d1 = _mix(a1, b1, c1, d1, m[s[2]], m[s[3]])
    a2, b2, c2, d2 = _mix(a2, b2, c2, d2, m[s[4]], m[s[5]])
    a3, b3, c3, d3 = _mix(a3, b3, c3, d3, m[s[6]], m[s[7]])
    a0, b1, c2, d3 = _mix(a0, b1, c2, d3, m[s[8]], m[s[9]])
    a1, b2, c3, d0 = _mix(a1, b2, c3, d0, m[s[10]], m[s[11]])
    a2, b3, c0, d1 = _mix(a2, b3, c0, d1, m[s[12]], m[s[13]])
    a3, b0, c1, d2 = _mix(a3, b0, c1, d2, m[s[14]], m[s[15]])
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@jit
def digest_of(words, size):  # type: ignore[no-untyped-def]
    """As `checksums.block_digest`, of `size` > 0 bytes; zeros follow to a multiple of `BYTES`."""
    h = _BEGIN
    h0, h1, h2, h3, h4, h5, h6, h7 = h[0] ^ _LENGTH, h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    for begin in range(0, size, BYTES):
        done = np.uint64(min(begin + BYTES, size))
        last = np.uint64(0) if begin + BYTES < size else ~np.uint64(0)
        h12, h14 = h[4] ^ done, h[6] ^ last
        v = h0, h1, h2, h3, h4, h5, h6, h7, h[0], h[1], h[2], h[3], h12, h[5], h14, h[7]
        m = words[begin // 8 : begin // 8 + 16]
        for k in range(12):
            v = _round(v, m, _ROUNDS[k])
        h0, h1, h2, h3 = h0 ^ v[0] ^ v[8], h1 ^ v[1] ^ v[9], h2 ^ v[2] ^ v[10], h3 ^ v[3] ^ v[11]
        h4, h5, h6, h7 = h4 ^ v[4] ^ v[12], h5 ^ v[5] ^ v[13], h6 ^ v[6] ^ v[14], h7 ^ v[7] ^ v[15]
    return max(h0, np.uint64(1))
