"""Progress as a callback: the library reports, only the command line draws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with the cells just finished and the cells in all."""


def silent(cells: int, total: int) -> None:
    """Show no progress."""


class Passes:
    """Progress of a run that passes over every cell several times.

    Parameters
    ----------
    progress
        Called with the cells of all passes.
    count
        Number of passes; may change until the first cell is done.
    """

    def __init__(self, progress: Progress, count: int) -> None:
        self._progress, self.count = progress, count
        self._seen = self._total = 0

    def __call__(self, cells: int, total: int) -> None:
        """Report the cells done in this pass, and the cells of a whole pass."""
        self._seen += cells
        self._total = self.count * total
        self._progress(cells, self._total)

    def restart(self, seen: int = 0) -> None:
        """Go back to this count of cells done."""
        if self._seen != seen:
            self._progress(seen - self._seen, self._total)
        self._seen = seen

    @property
    def seen(self) -> int:
        return self._seen


@contextmanager
def bar(label: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A tqdm bar on standard error when that is a terminal, else `silent`."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from tqdm import tqdm

    with tqdm(desc=label, unit="cell", unit_scale=True, leave=False) as shown:

        def update(cells: int, total: int) -> None:
            shown.total = total
            shown.update(cells)

        yield update
