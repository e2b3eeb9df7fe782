"""Seconds of the clock and of processors, of calls in this process: once, in rounds, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class Spent(NamedTuple):
    """Seconds of the clock, and of processors: only these compare on a busy machine."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.processor:.2f} s of processors"


def timed(work: Callable[..., Any], *words: Any, **how: Any) -> tuple[Spent, Any]:
    """What a call takes, and its result."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work(*words, **how)
    return Spent(time.perf_counter() - wall, time.process_time() - processor), found


def summed_up(each: Iterable[Spent], of: Callable[..., float] = statistics.median) -> Spent:
    """Medians of both, or another summary."""
    return Spent(*map(of, zip(*each, strict=True)))


def repeated(
    work: Callable[[], Any], rounds: int, of: Callable[..., float] = statistics.median
) -> tuple[Spent, Any]:
    """Medians over rounds, and the last result; one round before, which compiles, is left out."""
    work()
    spent, found = [], None
    for _ in range(rounds):
        found = None  # two results may not fit into memory
        one, found = timed(work)
        spent.append(one)
    return summed_up(spent, of), found


def in_turn(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """What each work returns in each round; a first round, which compiles, is left out."""
    found: dict[str, list[Any]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            found[name].append(work())
    return {name: each[1:] for name, each in found.items()}


def phases(seconds: Mapping[str, float]) -> str:
    """The seconds of a report, in a line."""
    return " ".join(f"{name} {each:.2f}" for name, each in seconds.items())
