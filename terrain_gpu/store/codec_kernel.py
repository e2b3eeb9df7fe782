"""Code and decode the tiles of a shard in one call, without the interpreter's lock.

A loop over tiles in Python takes 4 us for each, most of it with the lock, so threads wait for each
other. The kernels here loop over the C functions in numcodecs' libraries, whose addresses are
arguments, so that kernels can be cached. They read and write the same bytes as `codecs`. A tile
that is not as expected is left to it, and so are its messages. Several frames of zstd in one tile,
which nobody writes, are taken here and refused there.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numcodecs.blosc
import numcodecs.zstd
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..compiled import jit
from .coding import BLOSC_LEVEL, ZSTD_LEVEL, most_bytes, shuffle_of
from .crc_kernel import has_instruction

log = logging.getLogger(__name__)

_OVERHEAD = 16
"""Bytes that blosc adds to a tile that it cannot compress."""


@intrinsic
def call_at(typing: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at an address; its arguments are integers and addresses of 64 bits.

    64-bit Linux passes narrower integers in the same places.
    """

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word = ir.IntType(64)
        values = cgutils.unpack_tuple(builder, given[1], len(arguments))
        kind = ir.FunctionType(word, [word] * len(values))
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), values)

    return types.int64(types.int64, arguments), emit


@intrinsic
def word_at(typing: Any, address: Any) -> Any:
    """The eight bytes at an address."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = builder.inttoptr(given[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.int64(types.int64), emit


@intrinsic
def copy_bytes(typing: Any, to: Any, source: Any, size: Any) -> Any:
    """Copy bytes between addresses; numba's own loop takes longer than lz4."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(one, byte) for one in given[:2])
        cgutils.raw_memcpy(builder, to, source, given[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _crc_step(name: str, crc: ir.IntType, data: ir.IntType) -> Any:
    """The processor's instruction that continues a CRC-32C."""

    @intrinsic
    def step(typing: Any, before: Any, after: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            kind = ir.FunctionType(crc, [crc, data])
            return builder.call(builder.module.declare_intrinsic(name, fnty=kind), given)

        return before(before, after), emit

    return step


_add_word = _crc_step("llvm.x86.sse42.crc32.64.64", ir.IntType(64), ir.IntType(64))
_add_byte = _crc_step("llvm.x86.sse42.crc32.32.8", ir.IntType(32), ir.IntType(8))


@jit
def _rest_of_crc(crc, data, start, done, length):  # type: ignore[no-untyped-def]
    """Complete the CRC-32C of some bytes, of which the first ones are done."""
    for at in range(done, length // 8 * 8, 8):
        crc = _add_word(crc, word_at(data.ctypes.data + start + at))
    last = np.uint32(crc)
    for at in range(length // 8 * 8, length):
        last = _add_byte(last, data[start + at])
    return ~last


@jit
def crc_of_some(data, starts, lengths, out):  # type: ignore[no-untyped-def]
    """CRC-32C of parts of some bytes; four at a time, as in `crc_kernel`."""
    begin, last = np.uint64(0xFFFFFFFF), starts.size - 1
    base = data.ctypes.data
    for k in range(0, starts.size, 4):
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        i0, i1, i2, i3 = starts[k], starts[k1], starts[k2], starts[k3]
        least = min(lengths[k], lengths[k1], lengths[k2], lengths[k3]) // 8 * 8
        a = b = c = d = begin
        for at in range(0, least, 8):
            a = _add_word(a, word_at(base + i0 + at))
            b = _add_word(b, word_at(base + i1 + at))
            c = _add_word(c, word_at(base + i2 + at))
            d = _add_word(d, word_at(base + i3 + at))
        out[k] = _rest_of_crc(a, data, i0, least, lengths[k])
        out[k1] = _rest_of_crc(b, data, i1, least, lengths[k1])
        out[k2] = _rest_of_crc(c, data, i2, least, lengths[k2])
        out[k3] = _rest_of_crc(d, data, i3, least, lengths[k3])


@jit
def decode_tile(function, context, at, length, to, size):  # type: ignore[no-untyped-def]
    """Decode a tile between addresses; return whether it is as expected.

    With a context by zstd, else by blosc.
    """
    if context:
        return call_at(function, (context, to, size, at, length)) == size
    if length < _OVERHEAD:
        return False
    # Format, flags, width of an element, bytes of the tile; bytes of a block, and of all.
    first, second = word_at(at), word_at(at + 8)
    block, coded = second & 0xFFFFFFFF, second >> 32 & 0xFFFFFFFF
    if first & 0xFF != 2 or first >> 24 & 0xFF == 0 or not 0 < block <= size:
        return False
    if first >> 32 & 0xFFFFFFFF != size or coded != length:
        return False
    return np.int32(call_at(function, (at, to, size, np.int64(1)))) == size


@jit
def _decode_some(function, context, data, starts, lengths, out, slots):  # type: ignore[no-untyped-def]
    """Decode tiles up to one that is not as expected; return its number, or how many there are."""
    source, target, size = data.ctypes.data, out.ctypes.data, out.shape[1]
    for n in range(starts.size):
        at, to = source + starts[n], target + slots[n] * size
        if not decode_tile(function, context, at, lengths[n], to, size):
            return n
    return starts.size


@jit
def code_tile(codec, tile, size, into, most):  # type: ignore[no-untyped-def]
    """Code a tile between addresses; return its length, or -1 if that fails. See `coder`."""
    function, context, level, shuffle, width, name = codec
    zero, one = np.int64(0), np.int64(1)
    if context:
        length = call_at(function, (context, into, most, tile, size, level))
    else:
        given = level, shuffle, width, size, tile, into, size + _OVERHEAD, name, zero, one
        length = np.int64(np.int32(call_at(function, given)))
    return length if 0 < length <= most else np.int64(-1)


@jit
def _code(codec, tiles, slots, part, room, lengths, sums):  # type: ignore[no-untyped-def]
    """Code tiles one after another into `room`, with the CRC-32C of each; return whether all were.

    Tiles may lie in `room`, if what is coded never reaches the next of them: a tile is coded into
    `part` first. Only arguments are used by address: numba frees its own arrays too early.
    """
    size, most, end = tiles.shape[1], part.size, np.int64(0)
    starts = np.empty(slots.size, np.int64)
    source, target = tiles.ctypes.data, part.ctypes.data
    for n in range(slots.size):
        length = code_tile(codec, source + slots[n] * size, size, target, most)
        if length < 0:
            return False
        copy_bytes(room.ctypes.data + end, target, length)
        starts[n], lengths[n] = end, length
        end += length
        first = n // 4 * 4
        if n == first + 3 or n == slots.size - 1:  # while they are in the cache
            some = slice(first, n + 1)
            crc_of_some(room, starts[some], lengths[some], sums[some])
    return True


def crc_of_parts(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """CRC-32C of parts of some bytes; uint32."""
    found = np.empty(starts.size, np.uint32)
    crc_of_some(data, starts, lengths, found)
    return found


def crc_of(data: np.ndarray, crc: int) -> int:
    """As `checksums.crc32c`, of an array that can be written: numba compiles others again."""
    begin, some = np.uint64(crc ^ 0xFFFFFFFF), data.reshape(-1).view(np.uint8)
    return int(_rest_of_crc(begin, some, 0, 0, some.size))


class _Functions(NamedTuple):
    """C functions of a codec: to code, to decode, to make and to free a context for either."""

    code: Any
    decode: Any
    contexts: tuple[tuple[Any, Any], tuple[Any, Any]] | None = None


@cache
def _functions(codec: str) -> _Functions | None:
    """Find the C functions of blosc or zstd in numcodecs' libraries; None if they are hidden."""
    if not has_instruction():
        return None
    try:
        if codec == "blosc":
            library = ctypes.CDLL(numcodecs.blosc.__file__)
            return _Functions(library.blosc_compress_ctx, library.blosc_decompress_ctx)
        library = ctypes.CDLL(numcodecs.zstd.__file__)
        pairs = (
            (library.ZSTD_createCCtx, library.ZSTD_freeCCtx),
            (library.ZSTD_createDCtx, library.ZSTD_freeDCtx),
        )
        for make, free in pairs:
            make.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        return _Functions(library.ZSTD_compressCCtx, library.ZSTD_decompressDCtx, pairs)
    except (OSError, AttributeError) as error:
        log.debug("tiles are coded one by one: %s", error)
        return None


@contextmanager
def _context(functions: _Functions, which: int) -> Iterator[int]:
    """Yield the address of a context; 0 where none is needed."""
    if functions.contexts is None:
        yield 0
        return
    make, free = functions.contexts[which]
    if not (context := make()):
        raise MemoryError("no memory for a context of zstd")
    try:
        yield context
    finally:
        free(context)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def decoder(name: str | None) -> tuple[int, int, int]:
    """The addresses of functions: to decode, to make a context and to free it; 0 for none."""
    if name is None:
        return 0, 0, 0
    functions = _functions(name.partition("-")[0])
    assert functions is not None
    make, free = map(_address, functions.contexts[1]) if functions.contexts else (0, 0)
    return _address(functions.decode), make, free


def coder(name: str | None, dtype: np.dtype) -> AbstractContextManager[tuple[int, ...]]:
    """Lend the addresses of the function that codes and of its context, and what it is given."""
    return nullcontext((0,) * 6) if name is None else _coder(name, dtype)


@contextmanager
def _coder(name: str, dtype: np.dtype) -> Iterator[tuple[int, ...]]:
    codec, _, inner = name.partition("-")
    functions, word = _functions(codec), ctypes.create_string_buffer(inner.encode())
    assert functions is not None
    level = BLOSC_LEVEL if inner else ZSTD_LEVEL
    how = level, getattr(numcodecs.blosc, shuffle_of(dtype).upper()), dtype.itemsize
    with _context(functions, 0) as context:
        yield _address(functions.code), context, *how, ctypes.addressof(word)


def can(name: str | None) -> bool:
    """Whether tiles with this compression can be coded and decoded here."""
    return name is not None and _functions(name.partition("-")[0]) is not None


def decode_tiles(
    name: str,
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    slots: np.ndarray,
) -> int:
    """Decode tiles that lie at `starts` in some bytes into the `slots` of `out`.

    Returns
    -------
    int
        Number of the first tile that is not as expected; how many there are if all is well.
    """
    assert out.flags.c_contiguous
    functions = _functions(name.partition("-")[0])
    assert functions is not None
    with _context(functions, 1) as context:
        function = _address(functions.decode)
        rows = out.view(np.uint8).reshape(len(out), -1)
        return int(_decode_some(function, context, data, starts, lengths, rows, slots))


def code_tiles(
    name: str, tiles: np.ndarray, slots: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `codecs.code_tiles`.

    Raises
    ------
    RuntimeError
        when the codec fails, as numcodecs does.
    """
    rows = tiles.view(np.uint8).reshape(len(tiles), -1)
    assert tiles.flags.c_contiguous
    part = np.empty(most_bytes(rows.shape[1]), np.uint8)
    lengths, sums = np.empty(slots.size, np.int64), np.empty(slots.size, np.uint32)
    with coder(name, tiles.dtype) as codec:
        done = _code(codec, rows, slots, part, room, lengths, sums)
    if not done:
        raise RuntimeError(f"{name} failed to compress a tile")
    return lengths, sums
