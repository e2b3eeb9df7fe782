"""Progress as a callback: the library reports, only the command line draws."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

Progress = Callable[[int, int], None]
"""Called with the number of cells just finished, and the total."""


def silent(cells: int, total: int) -> None:
    """Show no progress."""


def in_cells(progress: Progress, cells: int) -> Progress:
    """Progress of other items, shown as that of these cells."""
    seen = shown = 0

    def update(items: int, total: int) -> None:
        nonlocal seen, shown
        seen += items
        reached = cells * seen // total
        progress(reached - shown, cells)
        shown = reached

    return update


class Passes:
    """Progress of a run that passes over every cell several times.

    Parameters
    ----------
    progress
        Called with the number of cells of all passes.
    count
        Number of passes; may change until the first cell is done.
    """

    def __init__(self, progress: Progress, count: int) -> None:
        self._progress, self.count = progress, count
        self._seen = self._total = 0

    def __call__(self, cells: int, total: int) -> None:
        """Report the number of cells just finished in this pass, and the total of a pass."""
        self._seen += cells
        self._total = self.count * total
        self._progress(cells, self._total)

    def restart(self, seen: int = 0) -> None:
        """Go back to this number of finished cells."""
        if self._seen != seen:
            self._progress(seen - self._seen, self._total)
        self._seen = seen

    @property
    def seen(self) -> int:
        return self._seen


@contextmanager
def bar(label: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A tqdm bar on standard error if it is a terminal, otherwise `silent`."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit="cell", unit_scale=True, leave=False) as shown:

        def update(cells: int, total: int) -> None:
            shown.total = total
            shown.update(cells)

        yield update


class Bar:
    """A tqdm bar in a terminal or a notebook, which closes itself when all cells are done."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._silent = not (sys.stderr.isatty() or "ipykernel" in sys.modules)

    def __call__(self, cells: int, total: int) -> None:
        if self._silent:
            return
        if self._shown is None:
            from tqdm.auto import tqdm

            self._shown = tqdm(unit="cell", unit_scale=True, leave=False)
        self._shown.total = total
        self._shown.update(cells)
        if self._shown.n >= total:
            self._shown.close()
            self._shown = None


EVERY = 0.5
"""Seconds between two lines of `lines`."""


@contextmanager
def lines(label: str, moved: Callable[[], tuple[int, int] | None]) -> Iterator[Progress]:
    """Lines of JSON on standard error, for programs; the last one when the step is complete.

    Parameters
    ----------
    moved
        Returns the bytes that the process has read and written so far; None if unknown.
    """
    begin = last = time.monotonic()
    before, done, total = moved(), 0, 0

    def write() -> None:
        spent = time.monotonic() - begin
        left = spent * (total - done) / done if done > 0 else None
        now = moved()
        size = sum(now) - sum(before) if now and before else None
        state = {"phase": label, "done": done, "total": total, "bytes": size}
        state |= {"seconds": round(spent, 3), "seconds_left": left and round(left, 3)}
        try:
            print(json.dumps(state), file=sys.stderr, flush=True)
        except BrokenPipeError:
            raise  # the program that reads them has ended
        except OSError:
            pass  # a full disk, for example: the run is more important

    def update(cells: int, of: int) -> None:
        nonlocal done, total, last
        done, total = done + cells, of
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            write()

    write()
    yield update
    write()


def call_when_cancelled(call: Callable[[], None]) -> None:
    """Call a function when a line "cancel" is read from standard input, in a separate thread."""

    def wait() -> None:
        text = b""
        # Not sys.stdin: a waiting thread would hold its lock when the program ends.
        while part := os.read(0, 4096):
            *complete, text = (text + part).split(b"\n")
            if b"cancel" in map(bytes.strip, complete):
                call()
                return

    Thread(target=wait, daemon=True).start()
