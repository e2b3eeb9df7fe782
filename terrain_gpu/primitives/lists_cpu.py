"""The steps of list ranking on the CPU; `lists_gpu` exports the same names.

An element is one word. It holds the successor and the value of the step to it, and finally the
rank. The last element of a list leads to the end, an extra word after all others with value 0.
Words are uint32 or int64, with half the bits for each number, or rows of two int64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

from ..compiled import jit
from ..engine.machine import available_threads

SHIFT = 10
"""log2 of the elements per splitter."""
SMALL = 2**16
"""Recursion ends at this many elements; below it, threads do not pay."""
SIMPLE = ("sequential", 2**16)
"""A method that is faster than splitters up to this many elements."""
NARROW = 2**31
"""Lists with this many elements or more, and lists with weights, have 128-bit words."""
LANES = 64
"""Sublists that a thread walks in an interleaved way, so that their cache misses overlap."""


class NotLists(Exception):
    """The input is not a set of lists."""


@dataclass
class Level:
    """Lists: the given ones, or the reduced lists of their sublists.

    Attributes
    ----------
    words
        One per element and one for the end.
    marks
        uint8: whether an element has a predecessor.
    count, lists
        Numbers of elements and of lists.
    """

    words: np.ndarray
    marks: np.ndarray
    count: int
    lists: int


def get(words, v):
    """Return both numbers of a word: successor and value."""
    raise RuntimeError("for compiled code only")


def put(words, v, low, high):
    """Set both numbers of a word."""
    raise RuntimeError("for compiled code only")


@overload(get, inline="always")
def _get(words, v):
    if words.ndim == 2:
        return lambda words, v: (words[v, 0], words[v, 1])
    half = words.dtype.bitwidth // 2
    mask = (1 << half) - 1
    return lambda words, v: (np.int64(words[v]) & mask, np.int64(words[v]) >> half)


@overload(put, inline="always")
def _put(words, v, low, high):
    if words.ndim == 2:

        def put_pair(words, v, low, high):
            words[v, 0] = low
            words[v, 1] = high

        return put_pair
    half = words.dtype.bitwidth // 2

    def put_word(words, v, low, high):
        words[v] = high << half | low

    return put_word


def _new_words(count: int, bits: int) -> np.ndarray:
    if bits == 128:
        return np.empty((count + 1, 2), np.int64)
    return np.empty(count + 1, np.uint32 if bits == 32 else np.int64)


def each(kernel: Callable[..., Any], count: int, *arguments: Any) -> list[Any]:
    """Call ``kernel(begin, end, *arguments)`` for the parts of a range, one per thread."""
    threads = available_threads() if count > SMALL else 1
    if threads == 1:
        return [kernel(0, count, *arguments)]
    cuts = [count * k // threads for k in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda k: kernel(cuts[k], cuts[k + 1], *arguments), range(threads)))


def pack(succ: np.ndarray, weights: np.ndarray | None, bits: int) -> Level:
    """Pack successors into words of `bits`; 128 bits with weights. For 48 bits, the CPU uses 64.

    Raises
    ------
    NotLists
        when a successor is out of range, or two elements have the same one.
    """
    count = len(succ)
    if weights is not None or count >= NARROW:
        bits = 128
    words = _new_words(count, bits)
    marks = np.zeros(count, np.uint8)
    given = np.ones(1, np.int64) if weights is None else weights
    put_end(words)
    found = each(_pack, count, succ, given, weights is not None, words, marks)
    bad, lasts = (sum(part[i] for part in found) for i in range(2))
    if bad or np.count_nonzero(marks) + lasts != count:
        raise NotLists
    return Level(words, marks, count, lasts)


@jit
def _pack(begin, end, succ, weights, weighted, words, marks):
    """Pack a range; return the numbers of successors out of range and of last elements."""
    count = len(succ)
    bad = 0
    lasts = 0
    for v in range(begin, end):
        after = np.int64(succ[v])
        if after < 0 or after >= count:
            bad += 1
        elif after == v:
            lasts += 1
            put(words, v, count, 0)
        else:
            marks[after] = 1
            put(words, v, after, weights[v] if weighted else 1)
    return bad, lasts


@jit
def put_end(words):
    """Make the extra last word lead to itself."""
    put(words, len(words) - 1, len(words) - 1, 0)


# -- sequential ------------------------------------------------------------------------------------


def sequential(level: Level) -> np.ndarray:
    """Return ranks by walking along each list: once for its length, once for the ranks."""
    ranks = np.empty(level.count, np.int64)
    known = level.count - 1 if level.lists == 1 and level.words.ndim == 1 else -1
    if _sequential(level.words, np.flatnonzero(level.marks == 0), known, ranks) != level.count:
        raise NotLists
    return ranks


@jit
def _sequential(words, heads, known, ranks):
    end = len(words) - 1
    visited = 0
    for head in heads:
        total = known
        if known < 0:
            total = 0
            v = head
            while v != end:
                v, value = get(words, v)
                total += value
        v = head
        while v != end:
            ranks[v] = total
            visited += 1
            v, value = get(words, v)
            total -= value
    return visited


# -- splitters -------------------------------------------------------------------------------------


@register_jitable
def pick(block, shift):
    """Return the splitter of a block of 2^shift elements: a random one of them."""
    x = (block * 0x9E3779B1) & 0xFFFFFFFF
    x = ((x ^ x >> 15) * 0x85EBCA77) & 0xFFFFFFFF
    x = x ^ x >> 13
    return (block << shift) + (x & ((1 << shift) - 1))


@register_jitable
def is_splitter(v, shift, splitters):
    """Return whether `v` is the splitter of one of the first blocks."""
    block = v >> shift
    return block < splitters and pick(block, shift) == v


def walk(level: Level, shift: int) -> Level:
    """RS2 and RS3: cut the lists at splitters and walk all sublists.

    Parameters
    ----------
    level
        Afterwards an element's word holds its sublist and its distance from the sublist's head.
    shift
        log2 of the elements per splitter.

    Returns
    -------
    level
        The reduced lists, of sublists.

    Raises
    ------
    NotLists
        when an element is not reached: it is on a cycle.
    """
    splitters = level.count >> shift
    heads = np.flatnonzero(level.marks == 0)
    block = heads >> shift
    heads = heads[(block >= splitters) | (pick(block, shift) != heads)]
    count = splitters + len(heads)
    wide = level.words.ndim == 2
    reduced = Level(
        _new_words(count, 128 if wide else 64), np.zeros(count, np.uint8), count, level.lists
    )
    put_end(reduced.words)
    visited = each(_walk, count, level.words, shift, splitters, heads, reduced.words, reduced.marks)
    if sum(visited) != level.count:
        raise NotLists
    return reduced


@jit
def _walk(begin, end, words, shift, splitters, heads, reduced, marks):
    """Walk the sublists from `begin` to `end`, `LANES` at a time; return the elements visited."""
    last = len(words) - 1
    beyond = len(reduced) - 1
    at = np.empty(LANES, np.int64)
    owner = np.empty(LANES, np.int64)
    way = np.empty(LANES, np.int64)
    nexts = np.empty(LANES, np.int64)
    values = np.empty(LANES, np.int64)
    lanes = min(LANES, end - begin)
    coming = begin + lanes
    for lane in range(lanes):
        owner[lane] = begin + lane
        way[lane] = 0
        at[lane] = _start(begin + lane, shift, splitters, heads)
    visited = 0
    while lanes > 0:
        # This loop only loads: it is so short that the processor overlaps all lanes' cache misses.
        for lane in range(lanes):
            nexts[lane], values[lane] = get(words, at[lane])
        visited += lanes
        lane = 0
        while lane < lanes:
            after = nexts[lane]
            put(words, at[lane], owner[lane], way[lane])
            way[lane] += values[lane]
            at[lane] = after
            if after == last or is_splitter(after, shift, splitters):
                following = beyond if after == last else after >> shift
                if after != last:
                    marks[following] = 1
                put(reduced, owner[lane], following, way[lane])
                if coming < end:
                    owner[lane] = coming
                    at[lane] = _start(coming, shift, splitters, heads)
                    way[lane] = 0
                    coming += 1
                else:  # the last lane takes this lane's place, and is processed next
                    lanes -= 1
                    owner[lane], at[lane], way[lane] = owner[lanes], at[lanes], way[lanes]
                    nexts[lane], values[lane] = nexts[lanes], values[lanes]
                    continue
            lane += 1
    return visited


@register_jitable
def _start(k, shift, splitters, heads):
    """Return the head of sublist `k`."""
    return pick(k, shift) if k < splitters else heads[k - splitters]


def expand(level: Level, ranks: np.ndarray) -> np.ndarray:
    """RS5: compute the ranks of all elements from those of sublists; in place of 64-bit words."""
    out = level.words if level.words.ndim == 1 else np.empty(level.count, np.int64)
    each(_expand, level.count, level.words, ranks, out)
    return out[: level.count]


@jit
def _expand(begin, end, words, ranks, out):
    for v in range(begin, end):
        owner, way = get(words, v)
        out[v] = ranks[owner] - way


# -- pointer jumping -------------------------------------------------------------------------------


def jump(level: Level) -> np.ndarray:
    """RS4, or Wyllie's algorithm: compute ranks by pointer jumping.

    Raises
    ------
    NotLists
        when an element has not reached the end after the rounds that the longest list needs.
    """
    words, other = level.words, np.empty_like(level.words)
    for _ in range(level.count.bit_length()):
        left = sum(each(_jump, len(words), words, other))
        words, other = other, words
        if not left:
            break
    if left:
        raise NotLists
    if words.ndim == 2:
        return words[:-1, 1].copy()
    return (words[:-1] >> (4 * words.itemsize)).astype(np.int64, copy=False)


@jit
def _jump(begin, end, words, to):
    """Run one round; return how many elements have not reached the end."""
    last = len(words) - 1
    left = 0
    for v in range(begin, end):
        after, value = get(words, v)
        then, more = get(words, after)
        put(to, v, then, value + more)
        left += then != last
    return left


# -- fractional independent sets -------------------------------------------------------------------


class Batches:
    """Batches of random bits; a thread generates each batch while the previous one is used.

    Parameters
    ----------
    count
        Most bits of a batch.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.seed, self.number = seed, 0
        self._pool = ThreadPoolExecutor(1)
        self._coming = self._pool.submit(self.make, 0, -(-count // 64))

    def make(self, number: int, words: int) -> Any:
        """Generate batch `number`, with this many words."""
        bits = np.empty(words, np.int64)
        random_words(bits, self.seed + number)
        return bits

    def take(self, count: int) -> Any:
        """Return the next batch; the one after it will have `count` bits."""
        bits = self._coming.result()
        self.number += 1
        self._coming = self._pool.submit(self.make, self.number, -(-count // 64))
        return bits

    def close(self) -> None:
        """Wait for the thread."""
        self._pool.shutdown()


def thin(level: Level, batches: Batches, rounds: int) -> tuple[Level, Any, list[Any]]:
    """Remove independent elements from the lists, a quarter of the remaining ones in each round.

    Returns
    -------
    level
        The lists of the remaining elements, renumbered.
    live
        The remaining elements.
    gone
        For each round, the elements removed.
    """
    words, end = level.words, level.count
    coins = np.empty(level.count, np.uint8)
    live = np.arange(level.count)
    gone = []
    for _ in range(rounds):
        bits = batches.take(len(live))
        chosen = np.empty(len(live), np.bool_)
        each(_toss, len(live), live, bits, coins)
        each(_choose, len(live), words, end, live, coins, chosen)
        if any(each(_splice, len(live), words, end, live, coins)):
            raise NotLists
        gone.append(live[chosen])
        live = live[~chosen]
    numbers = np.empty(level.count + 1, np.int64)
    numbers[live] = np.arange(len(live))
    numbers[end] = len(live)
    kept = Level(
        _new_words(len(live), 128 if words.ndim == 2 else 64),
        np.zeros(len(live), np.uint8),
        len(live),
        level.lists,
    )
    put_end(kept.words)
    each(_gather, len(live), words, live, numbers, kept.words, kept.marks)
    return kept, live, gone


@jit
def _toss(begin, end, live, bits, coins):
    """Give each remaining element a random bit."""
    for i in range(begin, end):
        coins[live[i]] = bits[i >> 6] >> (i & 63) & 1


@jit
def _choose(begin, end, words, last, live, coins, chosen):
    """Choose the elements with heads whose successor has tails: never two in a row."""
    for i in range(begin, end):
        v = live[i]
        after, _ = get(words, v)
        chosen[i] = coins[v] > 0 and after != last and coins[after] & 1 == 0
        if chosen[i]:
            coins[v] = 3


@jit
def _splice(begin, end, words, last, live, coins):
    """Make elements skip a chosen successor; return how many then lead to themselves."""
    back = 0
    for i in range(begin, end):
        v = live[i]
        after, value = get(words, v)
        if after != last and coins[v] < 2 and coins[after] >= 2:
            then, more = get(words, after)
            put(words, v, then, value + more)
            back += then == v
    return back


@jit
def _gather(begin, end, words, live, numbers, kept, marks):
    for i in range(begin, end):
        after, value = get(words, live[i])
        after = numbers[after]
        put(kept, i, after, value)
        if after < len(marks):
            marks[after] = 1


def insert(level: Level, live: Any, gone: list[Any], ranks: np.ndarray) -> np.ndarray:
    """Return the ranks of all elements from those of the remaining ones, undoing the rounds."""
    out = np.empty(level.count, np.int64)
    out[live] = ranks
    for ids in reversed(gone):
        each(_insert, len(ids), level.words, ids, out)
    return out


@jit
def _insert(begin, end, words, ids, out):
    for i in range(begin, end):
        after, value = get(words, ids[i])
        out[ids[i]] = value + out[after]


@jit
def random_words(out, seed):
    """Fill an array with random words: splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014)."""
    state = np.uint64(seed) << np.uint64(40)
    for i in range(len(out)):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = np.int64(z ^ (z >> np.uint64(31)))
