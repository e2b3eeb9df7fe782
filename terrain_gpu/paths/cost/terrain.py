"""The cells that paths cross: elevations, frictions and barriers, from a store or arrays."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...cells import is_nodata
from ...errors import InputError
from ...grid import TILE, Block, BlockGrid, Window, clip, round_up
from ...grid.neighbours import COL_STEP_16, ROW_STEP_16
from ...io.places import Places
from ...store import Layer
from .continuous import LEAST_FRICTION, Continuous
from .fields import Field, pages
from .formula.program import Formula
from .knights import Options, halo_of
from .models import CostModel

_FAR = 2**61
"""Largest 64-bit elevation for which differences are exact."""


EDGE = 2**32 - 1
"""Id of the sources at the edge of the raster."""


def held(cells: np.dtype, distance: np.dtype) -> np.dtype:
    """The dtype of cells in a `Field`: the narrowest exact one, as memory bandwidth is the limit.

    Costs are computed in the dtype of distances in any case.
    """
    if distance.kind == "u":
        return np.dtype(np.uint16) if distance.itemsize == 4 else distance
    small = cells == np.float32 or (cells.kind in "iu" and cells.itemsize <= 2)
    return np.dtype(np.float32 if small else np.float64)


@dataclass
class Raster:
    """A layer or an array, read in windows with a ring of cells around them.

    Attributes
    ----------
    data
        `Layer` or 2-D array.
    name
        Name in messages.
    nodata
        Value of absent cells, in addition to NaN and infinities.
    """

    data: Layer | np.ndarray
    name: str
    nodata: Any = None

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.data.dtype)

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read the cells of a window inside the raster."""
        if isinstance(self.data, Layer):
            self.data.read_window(*window, out=out)
        else:
            r0, r1, c0, c1 = window
            out[...] = self.data[r0:r1, c0:c1]

    def ring(
        self, window: Window, blocks: BlockGrid, halo: int, unit: int = TILE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Read a window and the ring around it, padded to whole tiles; also a mask of nodata."""
        r0, r1, c0, c1 = window
        shape = round_up(r1 - r0, unit) + 2 * halo, round_up(c1 - c0, unit) + 2 * halo
        cells, gone = pages(shape, self.dtype), pages(shape, np.dtype(bool))
        gone[...] = True
        inside = (0, blocks.rows, 0, blocks.cols)
        a, b, c, d = clip((r0 - halo, r1 + halo, c0 - halo, c1 + halo), inside)
        parts = [(c - c0 + halo, c, d)]
        parts += [(here, there, there + 1) for here, there in blocks.beyond_seam(window, halo)]
        for first, c, d in parts:
            part = np.s_[a - r0 + halo : b - r0 + halo, first : first + d - c]
            self.read((a, b, c, d), cells[part])
            gone[part] = is_nodata(cells[part], self.nodata)
        cells[gone] = 0
        return cells, gone


class Terrain:
    """The `CellSource` of a problem.

    Parameters
    ----------
    heights
        Raster of elevations, or of frictions for the model "friction" without a friction layer.
    friction
        Raster of frictions, at least 0; nodata cells are absent.
    barriers
        Raster; cells with values other than 0 are absent.
    lengths
        float64 (4 or 8, rows), see `lengths.step_lengths`.
    edge
        Whether cells at the edge of the raster and next to absent cells are sources, with id
        `EDGE`.

    Attributes
    ----------
    options
        (diagonal, corner_cutting, reverse) of the steps, none of which may have a negative cost.
    unit
        Fields are padded to whole tiles of this side.
    """

    options: Options = (True, True, False)
    halo, unit = 1, TILE

    def __init__(
        self,
        blocks: BlockGrid,
        model: CostModel,
        heights: Raster,
        friction: Raster | None,
        barriers: Raster | None,
        lengths: np.ndarray,
        sources: Places,
        dtype: np.dtype,
        *,
        edge: bool = False,
    ) -> None:
        self.blocks, self.model, self.dtype = blocks, model, dtype
        self.heights, self.friction, self.barriers = heights, friction, barriers
        halo = len(lengths) // 4
        self.lengths = np.pad(lengths, ((0, 0), (halo, blocks.block + halo)), mode="edge")
        self.edge = edge
        self._hold(sources)

    def _hold(self, sources: Places) -> None:
        self.sources, blocks = sources, self.blocks
        owners = sources.rows // blocks.block * blocks.shape[1] + sources.cols // blocks.block
        self._order = np.argsort(owners, kind="stable")
        self._owners = owners[self._order]

    def holding(self, sources: Places) -> Terrain:
        """A copy with other sources."""
        found = copy(self)
        found._hold(sources)
        return found

    def stepping(self, options: Options, unit: int = TILE) -> Terrain:
        """A copy with other options, padded to whole tiles of side `unit`."""
        found = copy(self)
        found.options, found.halo, found.unit = options, halo_of(options), unit
        return found

    def places(self, at: Block) -> Places:
        """The sources in a block."""
        own, chosen = self.sources, self._sources_in(at)
        return own.chosen(chosen)

    @property
    def types(self) -> tuple[np.dtype, np.dtype]:
        """Dtypes of elevations and frictions in a `Field`."""
        heights = held(self.heights.dtype, self.dtype)
        if self.friction is None:
            return heights, heights
        # One dtype for both: kernels are compiled for every combination.
        return np.dtype(np.float64), np.dtype(np.float64)

    def load(self, at: Block) -> Field:
        window = self.blocks.window(*at)
        h = self.halo
        how = window, self.blocks, h, self.unit
        cells, absent = self.heights.ring(*how)
        heights = self._heights(cells, window)
        frictions = heights
        if self.friction is not None:
            cells, gone = self.friction.ring(*how)
            absent |= gone
            frictions = cells
            if cells.dtype != np.float64:
                frictions = pages(cells.shape, np.dtype(np.float64))
                frictions[...] = cells
        if self.model.needs_friction and (frictions < 0).any():
            row, col = np.unravel_index(np.argmax(frictions < 0), frictions.shape)
            col = (window[2] + col - h) % self.blocks.cols  # it may be beyond the seam
            self.refuse_negative(window[0] + int(row) - h, int(col))
        if self.barriers is not None:
            cells, gone = self.barriers.ring(*how)
            absent |= (cells != 0) & ~gone
        if isinstance(self.options, Continuous):
            self._refuse_no_friction((frictions < LEAST_FRICTION) & ~absent, window)
        lengths = np.ascontiguousarray(self.lengths[:, window[0] : window[0] + len(absent)])
        field = Field(heights, frictions, absent, lengths, None)  # type: ignore[arg-type]
        if isinstance(self.model.kernel, Formula) and self.model.kernel.signed:
            self._refuse_negative_costs(field, window)
        return field

    def _refuse_no_friction(self, where: np.ndarray, window: Window) -> None:
        """Reject cells with too small frictions, for the continuous metric."""
        if where.any():
            r, c = divmod(int(np.argmax(where)), where.shape[1])
            row, col = window[0] + r - self.halo, (window[2] + c - self.halo) % self.blocks.cols
            raster = self.friction or self.heights
            raise InputError(
                f"{raster.name}: the friction at row {row}, column {col} is less than "
                f"{LEAST_FRICTION}; the continuous metric needs frictions above 0, so raise it, or "
                "use metric steps"
            )

    def _refuse_negative_costs(self, field: Field, window: Window) -> None:
        from .formula.negative import negative_step

        if found := negative_step(self.model.kernel, field, self.options):
            row, col = found[0] + window[0] - self.halo, found[1] + window[2] - self.halo
            dy, dx = int(ROW_STEP_16[found[2]]), int(COL_STEP_16[found[2]])
            cols = self.blocks.cols
            fro, to = (row + dy, (col + dx) % cols), (row, col % cols)
            fro, to = (to, fro) if self.options[2] else (fro, to)
            raise InputError(
                f"{self.heights.name}: the step from row {fro[0]}, column {fro[1]} to row {to[0]}, "
                f"column {to[1]} costs {found[3]:.10g}, but costs must be at least 0; change the "
                "formula, for example to max(0, ...)"
            )

    def _heights(self, cells: np.ndarray, window: Window) -> np.ndarray:
        """Elevations for kernels: floats, or unsigned integers in the same order."""
        dtype, _ = self.types
        wide = dtype.kind == "u" and cells.dtype.itemsize == 8
        if wide and ((cells > _FAR).any() or (cells.dtype.kind == "i" and (cells < -_FAR).any())):
            raise InputError(
                f"{self.heights.name}: elevations beyond 2**61 are too large for integer "
                "distances; convert them to float64"
            )
        if cells.dtype == dtype:
            return cells
        heights = pages(cells.shape, dtype)
        if dtype.kind == "f":
            heights[...] = cells
            return heights
        if not wide:
            # Both operations may wrap around; together they map the least value to 0.
            np.copyto(heights, cells, casting="unsafe")
            heights -= dtype.type(np.iinfo(cells.dtype).min % 2 ** (8 * dtype.itemsize))
            return heights
        np.copyto(heights, cells, casting="unsafe")
        heights += self.dtype.type(_FAR)
        return heights

    def refuse_negative(self, row: int, col: int) -> NoReturn:
        """Raise the error for a cell with a negative friction."""
        raster = self.friction or self.heights
        cell = np.empty((1, 1), raster.dtype)
        raster.read((row, row + 1, col, col + 1), cell)
        raise InputError(
            f"{raster.name}: friction {float(cell[0, 0])} at row {row}, column {col} is negative; "
            "costs must be at least 0"
        )

    def _sources_in(self, at: Block) -> np.ndarray:
        owner = at[0] * self.blocks.shape[1] + at[1]
        first, last = np.searchsorted(self._owners, [owner, owner + 1])
        return self._order[first:last]

    def seeds(self, at: Block, field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns within the block, and start values, of its sources."""
        rows, cols, _ = self.roots(at, field)
        chosen = self._sources_in(at)
        self._refuse_absent(chosen, field, at)
        values = np.zeros(len(rows), self.dtype)
        values[: len(chosen)] = self.sources.costs[chosen]
        if self.model.kind.bottleneck:
            # Without a start cost, a source starts at its own elevation.
            own = field.heights[rows + self.halo, cols + self.halo]
            values = np.where(values == 0, own, np.maximum(values, own)) + 0.0
        return rows, cols, values

    def _refuse_absent(self, chosen: np.ndarray, field: Field, at: Block) -> None:
        """Reject sources on barriers or without friction; those on nodata were rejected before."""
        rows, cols = self.sources.rows[chosen], self.sources.cols[chosen]
        row0, _, col0, _ = self.blocks.window(*at)
        void = field.absent[rows - row0 + self.halo, cols - col0 + self.halo]
        if void.any():
            raise self.blocked(int(chosen[np.argmax(void)]))

    def blocked(self, k: int) -> InputError:
        """The error for source `k`, which is not on a usable cell."""
        layers = " or ".join(r.name for r in (self.barriers, self.friction) if r is not None)
        return InputError(
            f"the source at row {self.sources.rows[k]}, column {self.sources.cols[k]} is a barrier "
            f"or has no friction ({layers}); move it"
        )

    def roots(self, at: Block, field: Field | None = None) -> tuple[np.ndarray, ...]:
        """Rows and columns within the block, and ids, of its sources."""
        chosen = self._sources_in(at)
        b = self.blocks.block
        rows, cols = self.sources.rows[chosen] % b, self.sources.cols[chosen] % b
        ids = self.sources.ids[chosen]
        if not self.edge:
            return rows, cols, ids
        absent, more = (field or self.load(at)).absent, self.halo - 1
        absent = absent[more : len(absent) - more, more : absent.shape[1] - more]
        near = np.zeros_like(absent[1:-1, 1:-1])
        height, width = near.shape
        for dy in range(3):
            for dx in range(3):
                near |= absent[dy : dy + height, dx : dx + width]
        # Cells beyond the seam belong to another block.
        own = np.s_[:, : (self.blocks.seam(at) or width + 1) - 1]
        edge = np.nonzero((near & ~absent[1:-1, 1:-1])[own])
        given = set(zip(rows.tolist(), cols.tolist(), strict=True))
        keep = (
            [
                k
                for k, cell in enumerate(zip(*map(np.ndarray.tolist, edge), strict=True))
                if cell not in given
            ]
            if given
            else slice(None)
        )
        rows = np.concatenate((rows, edge[0][keep]))
        cols = np.concatenate((cols, edge[1][keep]))
        return rows, cols, np.concatenate((ids, np.full(len(rows) - len(ids), EDGE, np.uint32)))

    def starts(self) -> list[tuple[Block, float]]:
        """The blocks with sources, and a lower bound of the start values in each."""
        # Start values that depend on elevations are unknown before reading; use a lower bound.
        unknown = self.edge or self.model.kind.bottleneck
        found: dict[Block, float] = dict.fromkeys(self.blocks.ids(), 0.0) if self.edge else {}
        for owner, k in zip(self._owners.tolist(), self._order.tolist(), strict=True):
            at = divmod(owner, self.blocks.shape[1])
            found[at] = min(found.get(at, np.inf), float(self.sources.costs[k]))
        if unknown and self.dtype.kind == "f":
            found = dict.fromkeys(found, -np.inf)
        return list(found.items())
