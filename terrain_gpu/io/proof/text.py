"""Read GRASS ASCII rasters word by word: GDAL reads their null markers as 0."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from ...errors import InputError
from ...grid import Window

_PIECE = _HEAD = 1 << 16


class TextCells:
    """Reads rows forwards in one pass; going back restarts at the top."""

    def __init__(self, path: str, cols: int) -> None:
        self.path, self.cols = path, cols
        self._row, self._cells = 0, chain.from_iterable(_numbers(path))

    def read(self, window: Window, out: np.ndarray, null: float) -> None:
        """Read a window; null cells get the value `null`."""
        r0, r1, c0, c1 = window
        if r0 < self._row:
            self._row, self._cells = 0, chain.from_iterable(_numbers(self.path))
        while self._row < r1:
            row = np.fromiter(islice(self._cells, self.cols), np.float64)
            if row.size < self.cols:
                raise InputError(f"{self.path}: ends in row {self._row}; the file is truncated")
            if self._row >= r0:
                row[np.isnan(row)] = null
                out[self._row - r0] = row[c0:c1]
            self._row += 1


def _numbers(path: str) -> Iterator[list[float]]:
    """The numbers after the header, NaN for null, a few thousand at a time."""
    nulls, start = {b"*"}, 0
    with open(path, "rb") as file:
        for line in file.read(_HEAD).splitlines(keepends=True):  # lines may end in CR only
            name, colon, value = line.partition(b":")
            if not colon:
                break
            if name.strip().lower() == b"null":
                nulls.add(value.strip())
            start += len(line)
        file.seek(start)
        rest = b""
        while piece := file.read(_PIECE):
            text = rest + piece
            words = text.split()
            rest = b"" if text[-1:].isspace() or not words else words.pop()
            yield [math.nan if word in nulls else float(word) for word in words]
        yield [math.nan if word in nulls else float(word) for word in rest.split()]
