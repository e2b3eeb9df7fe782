"""Proof of distances by the continuous metric: `FrontBlocks`, in numpy.

For every cell, the least distance that its neighbours and the triangles between them give is
computed again, and must be its distance, bit for bit; at a source, the start value if that is less.
A distance depends only on lesser ones, so by induction over increasing distances these equations
have one solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ...errors import VerificationError
from ...grid import Block, BlockGrid
from ..cost.continuous import NEXT, SHARES
from ..cost.knights import Options
from .blocks import Counts
from .roots import CheckedCells, KnownRoots, Read, seeds_of

_STRIP = 16
"""Rows that are checked together."""

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class FrontBlocks:
    """Checks one block at a time; can be sent to workers. Attributes: see `verify_paths`."""

    ground: CheckedCells | KnownRoots
    options: Options
    farthest: float
    read_distance: Read

    @property
    def blocks(self) -> BlockGrid:
        return self.ground.blocks

    def check(self, at: Block, _: object) -> Counts:
        """Check the cells of a block."""
        r0, r1, c0, c1 = window = self.blocks.window(*at)
        field, shape = self.ground.load(at), (r1 - r0 + 2, c1 - c0 + 2)
        distances = self.read_distance(window, halo=1)
        inside, padded = np.s_[1:-1, 1:-1], np.s_[: shape[0], : shape[1]]
        absent, frictions = field.absent[padded], field.frictions[padded]
        self._refuse(at, distances[inside], absent[inside])
        # Outside the raster, a store has the fill value of the layer.
        distances[np.isnan(distances) | absent] = np.inf
        rows, cols, values = seeds_of(self.ground, at, field, distances[inside])
        starts = np.full((r1 - r0, c1 - c0), np.inf)
        np.minimum.at(starts, (rows, cols), values)
        steps = 0
        for top in range(0, r1 - r0, _STRIP):
            part = slice(top, min(top + _STRIP, r1 - r0) + 2)
            least, count = self._least(
                distances[part],
                frictions[part].astype(np.float64),
                absent[part],
                field.lengths[:, part],
            )
            steps += count
            start, here = starts[part.start : part.stop - 2], distances[part][inside]
            right = np.minimum(least, start)
            right[~(right <= self.farthest)] = np.inf
            bad = (right != here) | ((here < _TINY) & (here != start))
            if bad.any():
                r, c = divmod(int(np.argmax(bad)), bad.shape[1])
                text = f"has distance {here[r, c]}, but its neighbours give {right[r, c]}"
                self._fail("front", at, top + r, c, text)
        return Counts(steps, int(np.count_nonzero(np.isfinite(distances[inside]))), len(rows))

    def _refuse(self, at: Block, written: np.ndarray, absent: np.ndarray) -> None:
        """Refuse values that are not distances, and distances of absent cells."""
        odd = (written == np.inf) | (written < 0)
        for wrong, text in (
            (odd, "which is not a distance"),
            (~np.isnan(written) & absent, "but is nodata or a barrier"),
        ):
            if wrong.any():
                r, c = divmod(int(np.argmax(wrong)), wrong.shape[1])
                self._fail("value", at, r, c, f"has distance {written[r, c]}, {text}")

    def _least(
        self, distances: np.ndarray, frictions: np.ndarray, absent: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Distances that neighbours give in some rows, padded by one cell, and number of steps."""
        rows, cols = (n - 2 for n in distances.shape)
        own, gone = frictions[1:-1, 1:-1], absent[1:-1, 1:-1]
        best, steps = np.full((rows, cols), np.inf), 0
        for vertical in (True, False):
            for one in (-1, 1):
                for other in (-1, 1):
                    (dy, dx), ey = ((one, 0), one) if vertical else ((0, one), other)
                    ex = other if vertical else one
                    edge = slice(min(ey, 0) + 1, min(ey, 0) + 1 + rows)
                    down, diagonal = (lengths[k][edge][:, None] for k in (2, 3))
                    level = lengths[0][1 : 1 + rows][:, None]
                    beside, across = level, down
                    if vertical:
                        beside, across = down, lengths[0][1 + one : 1 + one + rows][:, None]
                    ends = []
                    for y, x, length in ((dy, dx, beside), (ey, ex, diagonal)):
                        there = np.s_[1 + y : 1 + y + rows, 1 + x : 1 + x + cols]
                        cost = 0.5 * (frictions[there] + own) * length
                        cost[gone | absent[there]] = np.inf
                        if not self.options[1] and y and x:  # between two absent cells
                            cost[
                                absent[1 + y : 1 + y + rows, 1:-1]
                                & absent[1:-1, 1 + x : 1 + x + cols]
                            ] = np.inf
                        ends.append((distances[there], cost))
                        steps += int(np.count_nonzero(cost < np.inf))
                        best = np.fmin(best, np.maximum(ends[-1][0] + cost, NEXT * ends[-1][0]))
                    (a, wa), (d, wd) = ends
                    inner = np.full((rows, cols), np.inf)
                    for share in SHARES:
                        rest = 1.0 - share
                        square = rest * (beside * beside) + share * (diagonal * diagonal)
                        with np.errstate(invalid="ignore"):  # cells wider than a quarter turn
                            length = np.sqrt(square - share * rest * (across * across))
                        through = rest * (a + wa * (length / beside))
                        through = through + share * (d + wd * (length / diagonal))
                        inner = np.fmin(inner, through)
                    best = np.minimum(best, np.maximum(inner, NEXT * np.maximum(a, d)))
        return best, steps // 2  # two triangles share each step

    def _fail(self, check: str, at: Block, r: int, c: int, text: str) -> NoReturn:
        r0, _, c0, _ = self.blocks.window(*at)
        row, col = int(r0 + r), int(c0 + c)
        message = f"not least, or no path: cell (row {row}, column {col}) {text}"
        raise VerificationError(message, check, row, col)
