"""Joining regions: four siblings become one, until one region is left.

A region is a rectangle of blocks, reduced to its border cells and the candidate edges between them.
Siblings are joined by the edges across the cuts between them. Border cells that are now inside are
no longer frozen, and `contract` decides their edges.
"""

from __future__ import annotations

import numpy as np

from ...grid import BlockGrid, Window
from ..region import Border, Edges, Region
from .keys import edge_key, rule_at
from .kruskal import contract, new_list_work

Children = dict[tuple[int, int], Region]
"""Up to four siblings, keyed by (row, column) 0 or 1; (0, 0) always exists."""

_STRIP = 2**14
"""Cells processed at a time, so that temporaries stay in the cache."""


def merge(
    children: Children,
    shape: tuple[int, int],
    rule: np.unsignedinteger | np.ndarray,
    diagonal: bool,
    sums: np.ndarray,
    mode: int,
) -> tuple[Region, np.ndarray]:
    """Join siblings.

    Parameters
    ----------
    shape
        Rows and columns of the raster.
    rule, sums, mode
        See `Weight`.
    diagonal
        Whether diagonal neighbours are joined.

    Returns
    -------
    region, final
        The joined region, and the global ids of the edges now final.
    """
    frame = Frame(children, shape)
    keys, ids, *ends = frame.edges(rule, diagonal)
    us, vs = (frame.number(cells).astype(np.uint32) for cells in ends)
    edges = keys, ids, us, vs
    del ends
    work = edges, *new_list_work(frame.cells.size, keys.size, keys.dtype)[1:]
    work[3][:] = frame.is_open(frame.cells)
    final, count = contract(work, frame.cells.size, keys.size, sums, mode)
    keys, ids, us, vs = (array[:count].copy() for array in edges)
    return frame.region((keys, ids, frame.cells[us], frame.cells[vs])), work[4][:final].copy()


class Frame:
    """The graph of the border cells of siblings.

    Attributes
    ----------
    window
        The window of all siblings together.
    cells
        Global cell of each vertex: of the rows and columns along the cuts, and along the window
        where the raster continues; at most four each. Those rows are numbered first, from end to
        end, then the columns; where a column crosses a row, the cell has a second vertex without
        edges.
    """

    def __init__(self, children: Children, shape: tuple[int, int]) -> None:
        row0, row_cut, col0, col_cut = children[0, 0].window
        row1 = children[1, 0].window[1] if (1, 0) in children else row_cut
        col1 = children[0, 1].window[3] if (0, 1) in children else col_cut
        self.window: Window = row0, row1, col0, col1
        self._children, self._shape, self._cuts = children, shape, (row_cut, col_cut)
        self._rows = _lines(row0, row_cut, row1, shape[0])
        self._cols = _lines(col0, col_cut, col1, shape[1])
        self.cells = np.concatenate(
            (
                (self._rows[:, None] * shape[1] + np.arange(col0, col1)).ravel(),
                (np.arange(row0, row1) * shape[1] + self._cols[:, None]).ravel(),
            )
        )

    def number(self, cells: np.ndarray) -> np.ndarray:
        """Return the vertices of border cells."""
        row0, row1, col0, col1 = self.window
        height, width = row1 - row0, col1 - col0
        numbers = np.empty_like(cells)
        for start in range(0, cells.size, _STRIP):
            part, found = cells[start : start + _STRIP], numbers[start : start + _STRIP]
            row = part // self._shape[1]
            col = part - row * self._shape[1]
            for k, line in enumerate(self._cols.tolist()):
                first = width * self._rows.size + height * k - row0
                np.add(row, first, out=found, where=col == line)
            for k, line in enumerate(self._rows.tolist()):
                np.add(col, width * k - col0, out=found, where=row == line)
        return numbers

    def is_open(self, cells: np.ndarray) -> np.ndarray:
        """Return which cells have neighbours outside the window."""
        row0, row1, col0, col1 = self.window
        rows, cols = self._shape
        row, col = cells // cols, cells % cols
        return (
            ((row == row0) & (row0 > 0))
            | ((row == row1 - 1) & (row1 < rows))
            | ((col == col0) & (col0 > 0))
            | ((col == col1 - 1) & (col1 < cols))
        )

    @property
    def most_edges(self) -> int:
        """Bound on the number of `edges`."""
        row0, row1, col0, col1 = self.window
        inherited = sum(child.candidates[0].size for child in self._children.values())
        across = ((0, 1) in self._children) * (row1 - row0)
        return inherited + 3 * (across + ((1, 0) in self._children) * (col1 - col0))

    def edges(self, rule: np.unsignedinteger | np.ndarray, diagonal: bool) -> Edges:
        """Return the siblings' candidates and the edges across the cuts; ends are global cells."""
        row0, row1, col0, col1 = self.window
        row_cut, col_cut = self._cuts
        cols = self._shape[1]
        found = [child.candidates for child in self._children.values()]
        if (0, 1) in self._children:
            cells = np.arange(row0, row1) * cols + col_cut
            left = cells - 1, *self._line((0, 0), (1, 0), 3)
            right = cells, *self._line((0, 1), (1, 1), 2)
            found += _across(left, right, 0, cols, rule, diagonal)
        if (1, 0) in self._children:
            cells = np.arange(col0, col1) + row_cut * cols
            above = cells - cols, *self._line((0, 0), (0, 1), 1)
            below = cells, *self._line((1, 0), (1, 1), 0)
            # The diagonals through the crossing of the cuts are already included.
            found += _across(above, below, 2, cols, rule, diagonal, but=col_cut - col0 - 1)
        keys, ids, us, vs = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return keys, ids, us, vs

    def region(self, candidates: Edges) -> Region:
        """Return the joined region; its border has no cells where the raster ends."""
        row0, row1, col0, col1 = self.window
        rows, cols = self._shape
        bottom = 1 if (1, 0) in self._children else 0
        right = 1 if (0, 1) in self._children else 0
        lines = (
            self._line((0, 0), (0, 1), 0),
            self._line((bottom, 0), (bottom, 1), 1),
            self._line((0, 0), (1, 0), 2),
            self._line((0, right), (1, right), 3),
        )
        goes_on = row0 > 0, row1 < rows, col0 > 0, col1 < cols
        kept = [
            line if more else (line[0][:0].copy(), line[1][:0].copy())
            for line, more in zip(lines, goes_on, strict=True)
        ]
        border = Border(tuple(x[0] for x in kept), tuple(x[1] for x in kept))  # type: ignore[arg-type]
        return Region(self.window, border, candidates)

    def _line(
        self, first: tuple[int, int], then: tuple[int, int], side: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells and validity along one side of one or two adjacent siblings."""
        found = [self._children[k].border for k in (first, then) if k in self._children]
        return (
            np.concatenate([b.cells[side] for b in found]),
            np.concatenate([b.valid[side] for b in found]),
        )


def _lines(start: int, cut: int, end: int, size: int) -> np.ndarray:
    """Rows, or columns, along a cut, and at ends where the raster of this size continues."""
    found = [cut - 1, cut] if cut < end else []
    return np.unique([*[start][: start > 0], *found, *[end - 1][: end < size]]).astype(np.int64)


def most_vertices(blocks: BlockGrid) -> int:
    """Bound on the vertices of a `Frame` while the regions of a raster are joined."""
    most, half = 0, blocks.block
    while half < max(blocks.rows, blocks.cols):
        found, side = 0, 2 * half
        for size, other in ((blocks.rows, blocks.cols), (blocks.cols, blocks.rows)):
            lines = 2 * (half < size) + (side < size) + (2 * side < size)
            found += lines * min(other, side)
        most, half = max(most, found), side
    return most


Line = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Numbers, operands and validity of cells in a line."""


def _across(
    one: Line,
    other: Line,
    straight: int,
    cols: int,
    rule: np.unsignedinteger | np.ndarray,
    diagonal: bool,
    but: int | None = None,
) -> list[Edges]:
    """Return the straight and diagonal edges between two parallel lines of cells.

    Omits the diagonals between the cells `but` and `but` + 1.
    """
    found = []
    forth, back = slice(1, None), slice(None, -1)
    ways = [(straight, slice(None), slice(None)), (3, back, forth), (1, forth, back)]
    for direction, from_one, to_other in ways if diagonal else ways[:1]:
        u, z_u, valid_u = (array[from_one] for array in one)
        v, z_v, valid_v = (array[to_other] for array in other)
        good = valid_u & valid_v
        if direction != straight and but is not None:
            good[but : but + 1] = False
        u, v = u[good], v[good]
        lower = np.minimum(u, v)
        of_step = rule_at(rule, direction, lower // cols)
        found.append((edge_key(z_u[good], z_v[good], of_step), 4 * lower + direction, u, v))
    return found
