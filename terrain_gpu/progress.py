"""Progress as a callback: the library reports, only the command line draws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with the cells just finished and the cells in all."""


def silent(cells: int, total: int) -> None:
    """No progress shown."""


class Undoable:
    """Progress that can be taken back, where work is done again."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._cells, self._total = progress, 0, 0

    def __call__(self, cells: int, total: int) -> None:
        self._cells, self._total = self._cells + cells, total
        self._progress(cells, total)

    def undo(self) -> None:
        """Take back all that was told."""
        if self._cells:
            self(-self._cells, self._total)


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
