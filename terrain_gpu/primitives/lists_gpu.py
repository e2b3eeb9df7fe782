"""The steps of list ranking on a GPU (``cuda/kernels/lists.cu``), named as in `lists_cpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cuda.arrays import DeviceArray
from ..cuda.device import module
from ..facts import Settings
from . import lists_cpu
from .lists_cpu import NARROW, NotLists, random_words

SHIFT = 6
"""log2 of the elements per splitter."""
SMALL = 2**16
"""Recursion ends at this many elements."""
SIMPLE = ("wyllie", 2**25)
"""A method that is faster than splitters up to this many elements: its reads are random, but its
writes are sequential, while walks also write at random."""
ONE_BLOCK = 2**12
"""Up to this many elements, one thread block does all rounds of pointer jumping in one launch."""

THREADS = 256
BAD, LASTS, TARGETS, HEADS, VISITED, NOTES = range(6)


def variants() -> list[Settings]:
    """Return the macros of ``cuda/kernels/lists.cu``."""
    return [{"BITS": bits} for bits in (32, 48, 64, 128)]


@dataclass
class Level:
    """Lists on the GPU: the given ones, or the reduced lists of their sublists.

    Attributes
    ----------
    words, owners
        One word per element and one for the end, see the kernels; `owners` holds the upper 16 bits
        of 48-bit words.
    marks
        One bit per element: whether it has a predecessor.
    count, lists
        Numbers of elements and of lists.
    bits
        Size of a word.
    """

    words: DeviceArray
    owners: DeviceArray
    marks: DeviceArray
    count: int
    lists: int
    bits: int

    def launch(self, name: str, size: int, *arguments: object, threads: int = THREADS) -> None:
        """Launch a kernel with one thread per item, or as many threads as fit the device."""
        import cupy

        processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        blocks = max(1, min(-(-size // threads), 8 * processors))
        kernel = module("lists", {"BITS": self.bits}).get_function(name)
        kernel((blocks,), (threads,), arguments)


def _new_words(count: int, bits: int) -> DeviceArray:
    import cupy

    kinds = {32: (1, np.uint32), 48: (1, np.uint32), 64: (1, np.uint64), 128: (2, np.int64)}
    width, kind = kinds[bits]
    return cupy.empty(width * (count + 1), kind)


def _new_marks(count: int) -> DeviceArray:
    import cupy

    return cupy.zeros(-(-count // 32), np.uint32)


def _id_type(bits: int) -> Any:
    return np.int64 if bits == 128 else np.uint32


def pack(succ: DeviceArray, weights: DeviceArray, bits: int) -> Level:
    """Pack successors into words of `bits`; see `lists_cpu.pack`."""
    import cupy

    count = len(succ)
    if weights is not None or count >= NARROW:
        bits = 128
    owners = cupy.empty(count, np.uint16) if bits == 48 else None
    level = Level(_new_words(count, bits), owners, _new_marks(count), count, 0, bits)
    notes = cupy.zeros(NOTES, np.uint64)
    level.launch(
        f"prepare_{succ.dtype}",
        count,
        succ,
        _pointer(weights),
        count,
        level.words,
        level.marks,
        notes,
    )
    level.launch("count_targets", -(-count // 32), level.marks, count, notes)
    counters = notes.get()
    if counters[BAD] or counters[TARGETS] + counters[LASTS] != count:
        raise NotLists
    level.lists = int(counters[LASTS])
    return level


def _pointer(array: DeviceArray) -> Any:
    return np.uint64(0) if array is None else array


def walk(level: Level, shift: int) -> Level:
    """RS2 and RS3: cut lists at splitters and return the reduced lists. See `lists_cpu.walk`."""
    import cupy

    splitters = level.count >> shift
    heads = cupy.empty(level.lists, _id_type(level.bits))
    notes = cupy.zeros(NOTES, np.uint64)
    size = -(-level.count // 32)
    level.launch("find_heads", size, level.marks, level.count, shift, splitters, heads, notes)
    count = splitters + int(notes[HEADS])
    if level.bits == 48 and count > 2**16:
        _widen(level)
    bits = max(level.bits, 64)
    reduced = Level(_new_words(count, bits), None, _new_marks(count), count, level.lists, bits)
    level.launch(
        "walk",
        count,
        level.words,
        _pointer(level.owners),
        level.count,
        shift,
        splitters,
        heads,
        count,
        reduced.words,
        reduced.marks,
        notes,
    )
    if int(notes[VISITED]) != level.count:
        raise NotLists
    return reduced


def _widen(level: Level) -> None:
    """Widen 48-bit words to 64 bits: there are too many sublists."""
    nexts = level.words
    level.words = nexts + ((nexts != level.count).astype(np.uint64) << np.uint64(32))
    level.words[level.count] = level.count
    level.owners, level.bits = None, 64


def jump(level: Level) -> DeviceArray:
    """RS4, or Wyllie's algorithm: compute ranks by pointer jumping."""
    import cupy

    rounds = level.count.bit_length()
    unfinished = cupy.zeros(rounds, np.int32)
    words = level.words
    # 128-bit words are not read atomically, so they cannot be updated in place.
    other = cupy.empty_like(words) if level.bits == 128 else words
    if level.count <= ONE_BLOCK and other is words:
        level.launch("jump", 1, words, words, level.count, unfinished, 0, rounds, threads=1024)
    else:
        for step in range(rounds):
            level.launch("jump", level.count, words, other, level.count, unfinished, step, 1)
            words, other = other, words
    if int(unfinished[-1]):
        raise NotLists
    ranks = _room(level, words)
    level.launch("values", level.count, words, level.count, ranks)
    return ranks


def _room(level: Level, words: DeviceArray) -> DeviceArray:
    """Return an array for ranks: in place of 64-bit words, else a new one."""
    import cupy

    if level.bits == 64:
        return words.view(np.int64)[: level.count]
    return cupy.empty(level.count, np.int64)


def expand(level: Level, ranks: DeviceArray) -> DeviceArray:
    """RS5: compute the ranks of all elements from those of their sublists."""
    out = _room(level, level.words)
    owners = _pointer(level.owners)
    level.launch("expand", level.count, level.words, owners, level.count, ranks, out)
    return out


# -- fractional independent sets -------------------------------------------------------------------


class Batches(lists_cpu.Batches):
    """Random bits, generated on the CPU and copied while the GPU uses the previous batch.

    Uses two page-locked buffers, two buffers on the GPU, and a stream for the copies.
    """

    def __init__(self, count: int, seed: int) -> None:
        import cupy

        words = -(-count // 64)
        memory = [cupy.cuda.alloc_pinned_memory(8 * words) for _ in range(2)]
        self._hosts = [np.frombuffer(buffer, np.int64, words) for buffer in memory]
        self._devices: list[DeviceArray] = [cupy.empty(words, np.int64) for _ in range(2)]
        self._copies = cupy.cuda.Stream(non_blocking=True)
        self._device = cupy.cuda.Device()
        super().__init__(count, seed)

    def make(self, number: int, words: int) -> DeviceArray:
        """Generate batch `number`, with this many words."""
        host, bits = self._hosts[number % 2][:words], self._devices[number % 2][:words]
        random_words(host, self.seed + number)
        with self._device:
            bits.set(host, self._copies)
            self._copies.synchronize()
        return bits

    def take(self, count: int) -> DeviceArray:
        """Return the next batch; the one after it will have `count` bits."""
        import cupy

        # Kernels may still read the buffer that the batch after next will overwrite.
        cupy.cuda.get_current_stream().synchronize()
        return super().take(count)


def thin(
    level: Level, batches: Batches, rounds: int
) -> tuple[Level, DeviceArray, list[DeviceArray]]:
    """Remove independent elements from the lists; see `lists_cpu.thin`."""
    import cupy

    coins = cupy.empty(level.count, np.uint8)
    live = cupy.arange(level.count, dtype=_id_type(level.bits))
    notes = cupy.zeros(NOTES, np.uint64)
    gone = []
    for _ in range(rounds):
        count = len(live)
        bits = batches.take(count)
        chosen = cupy.empty(count, np.bool_)
        level.launch("toss", count, live, count, bits, coins)
        level.launch("choose", count, level.words, level.count, live, count, coins, chosen)
        level.launch("splice", count, level.words, level.count, live, count, coins, notes)
        gone.append(live[chosen])
        live = live[~chosen]
    if int(notes[BAD]):
        raise NotLists
    count = len(live)
    numbers = cupy.empty(level.count, live.dtype)
    kept = Level(
        _new_words(count, level.bits), None, _new_marks(count), count, level.lists, level.bits
    )
    level.launch("number", count, live, count, numbers)
    level.launch(
        "gather",
        count,
        level.words,
        level.count,
        live,
        count,
        numbers,
        kept.words,
        kept.marks,
    )
    return kept, live, gone


def insert(
    level: Level, live: DeviceArray, gone: list[DeviceArray], ranks: DeviceArray
) -> DeviceArray:
    """Return the ranks of all elements from those of the remaining ones; see `lists_cpu.insert`."""
    import cupy

    out = cupy.empty(level.count, np.int64)
    level.launch("scatter", len(live), live, len(live), ranks, out)
    for ids in reversed(gone):
        level.launch("insert", len(ids), level.words, ids, len(ids), out)
    return out
