"""Check the cells and steps of one block, in any thread or process: `PathBlocks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from ...errors import VerificationError
from ...facts import JsonObject
from ...grid import TILE, Block, BlockGrid
from ...grid.neighbours import COL_STEP_16, NAMES_16, ROW_STEP_16
from ..cost.edges import infinity_of
from ..cost.fields import Field
from ..cost.formula.program import Formula
from ..cost.knights import Options, halo_of, mask_dtype
from ..cost.models import is_directed
from ..cost.proof import wrong_price
from ..cost.terrain import Terrain
from ..relax.allocate import cells_around, sides_of
from ..relax.trace import KEPT_BLOCKS, trace_path
from .kernels import (
    FAULTS,
    check_cells,
    check_ids,
    check_steps,
    join_flats,
    one_step,
    spread_roots,
)
from .roots import CheckedCells, KnownRoots, Read, ids_of, seeds_of

if TYPE_CHECKING:
    from ..cost.models import CostModel

Cell = tuple[int, int]


class Counts(NamedTuple):
    """Steps, reached cells and sources of a block."""

    steps: int
    reached: int
    sources: int


class RimFlats(NamedTuple):
    """The flats at the rim of a block, by positions on the rim; see `kernels.join_flats`.

    Attributes
    ----------
    joined, to
        1 + position of cells of flats without a root in the block, and that of another cell of the
        same flat.
    open, steps
        Positions of cells with tight steps from outside the block, and these steps.
    """

    joined: np.ndarray
    to: np.ndarray
    open: np.ndarray
    steps: np.ndarray


class Spread(NamedTuple):
    """The cells of a block that have been shown to lead to a root.

    Attributes
    ----------
    left, row, col
        Number of the other cells, and the first of them.
    sides
        Which cells of the sides lead to a root, see `allocate.sides_of`.
    """

    left: int
    row: int
    col: int
    sides: tuple[np.ndarray, ...]


class _Masks(NamedTuple):
    """The tight predecessors of a block's cells.

    `near` and `even` have bit k set for a tight predecessor in direction k that is strictly nearer
    or at equal distance, respectively. `flat` marks reached cells that have only the latter and are
    not roots; with backlinks, `even` of such a cell has only the one that the backlink names.
    """

    near: np.ndarray
    even: np.ndarray
    flat: np.ndarray
    distances: np.ndarray
    field: Field


@dataclass(frozen=True)
class PathBlocks:
    """Checks one block at a time; can be sent to workers. Attributes: see `verify_paths`."""

    ground: CheckedCells | KnownRoots
    cost: Any
    options: Options
    dtype: np.dtype
    farthest: Any
    read_distance: Read
    read_backlink: Read | None
    read_allocation: Read | None

    def __getstate__(self) -> JsonObject:
        # The kernels of costs may hold arrays and code; they are made again from the terrain.
        return {**vars(self), "cost": self.cost if self._model is None else None}

    def __setstate__(self, state: JsonObject) -> None:
        vars(self).update(state)
        if self._model is not None:
            vars(self)["cost"] = self._model.kernel

    @property
    def _model(self) -> CostModel | None:
        ground = self.ground.terrain if isinstance(self.ground, KnownRoots) else self.ground
        return ground.model if isinstance(ground, Terrain) else None

    @property
    def blocks(self) -> BlockGrid:
        return self.ground.blocks

    @property
    def halo(self) -> int:
        return halo_of(self.options)

    @property
    def infinity(self) -> Any:
        return self.dtype.type(infinity_of(np.empty(0, self.dtype)))

    @property
    def one_way(self) -> bool:
        """Whether steps on flats may cost nothing in one direction only, without backlinks."""
        return self.read_backlink is None and is_directed(self.cost)

    # -- results of blocks ---------------------------------------------------------------------

    def codes(self, at: Block) -> np.ndarray | None:
        """The backlinks of a block."""
        if self.read_backlink is None:
            return None
        return np.ascontiguousarray(self.read_backlink(self.blocks.window(*at), halo=0))

    def joined(self, at: Block, _: object) -> tuple[Counts, RimFlats, Cell | None]:
        """Check a block, and unite the cells of its flats; return those that reach its rim.

        Also returns a cell of the raster whose id differs from its predecessor's, if there is one.
        """
        codes = self.codes(at)
        masks, counts = self.masks(at, codes)
        (height, width), b = self.size(at), self.blocks.block
        parent = np.zeros(4 * self.halo * b + 1, np.int64)
        outward = np.zeros(4 * self.halo * b, mask_dtype(self.halo))
        flat = masks.flat[:height, :width]
        lost = join_flats(flat, masks.even, self.halo, 0, b, parent, outward)
        if lost >= 0:
            self.refuse_cycle(at, *divmod(int(lost), width), masks.distances)
        joined, open_ = np.flatnonzero(parent), np.flatnonzero(outward)
        odd = None if codes is None else self.odd(at, codes, masks.field)
        return counts, RimFlats(joined, parent[joined], open_, outward[open_]), odd

    def odd(self, at: Block, codes: np.ndarray, field: Field) -> Cell | None:
        """Find a cell that is allocated to another source than its predecessor."""
        if self.read_allocation is None:
            return None
        ids = np.ascontiguousarray(self.read_allocation(self.blocks.window(*at), halo=self.halo))
        row, col = check_ids(codes, ids, *ids_of(self.ground, at, field))
        r0, _, c0, _ = self.blocks.window(*at)
        return None if row < 0 else (int(r0 + row), int(c0 + col))

    def spread(self, at: Block, _: object, around: np.ndarray) -> tuple[Counts, Spread]:
        """Check a block; spread from cells that lead to a root, also from those `around` it."""
        masks, counts = self.masks(at, None)
        (height, width), h = self.size(at), self.halo
        r0, _r1, c0, _c1 = window = self.blocks.window(*at)
        rooted = np.zeros((height + 2 * h, width + 2 * h), np.bool_)
        rows, cols = cells_around(window, h)
        rooted[rows - r0 + h, cols - c0 + h] = around
        left, r, c = spread_roots(
            masks.flat[:height, :width], masks.even, masks.distances, h, rooted
        )
        inner = np.ascontiguousarray(rooted[h:-h, h:-h])
        return counts, Spread(int(left), int(r), int(c), sides_of(inner, h))

    # -- cells and steps -----------------------------------------------------------------------

    def priced(self, at: Block, field: Field) -> None:
        """Check costs by interpreting their formula, if there is one."""
        if not isinstance(self.cost, Formula):
            return
        assert isinstance(self.ground, Terrain | KnownRoots)
        terrain = self.ground if isinstance(self.ground, Terrain) else self.ground.terrain
        assert terrain.model.tree is not None
        if wrong := wrong_price(terrain.model.tree, self.cost, field, self.options):
            r, c, k, found, right = wrong
            text = f"has cost {found} from the {NAMES_16[k]}, but the formula gives {right}"
            self.fail("cost", at, r, c, text)

    def masks(self, at: Block, codes: np.ndarray | None) -> tuple[_Masks, Counts]:
        """Check the cells and steps of a block; also count them."""
        window = r0, r1, c0, c1 = self.blocks.window(*at)
        field = self.ground.load(at)
        self.priced(at, field)
        shape = field.absent.shape
        distances = np.full(shape, self.infinity, self.dtype)
        h = self.halo
        written = self.read_distance(window, halo=h)
        part = distances[: r1 - r0 + 2 * h, : c1 - c0 + 2 * h]
        part[...] = written
        if self.dtype.kind == "f":
            void = np.isnan(written)
            odd = written == self.infinity
        else:
            void = written == np.iinfo(self.dtype).max
            odd = (written >= self.infinity) & ~void
        part[void | odd] = self.infinity
        odd = odd[h:-h, h:-h]
        if odd.any():
            r, c = self.first(odd)
            self.fail("value", at, r, c, f"has {written[r + h, c + h]}, which is not a distance")
        rows, cols, values = seeds_of(self.ground, at, field, written[h:-h, h:-h], codes)
        found = distances[rows + h, cols + h]
        wrong = (found > values) & (values <= self.farthest)
        if wrong.any():
            k = int(np.argmax(wrong))
            text = f"is a source with start value {values[k]}, but {self.told(found[k])}"
            self.fail("source", at, int(rows[k]), int(cols[k]), text)
        tiled = shape[0] - 2 * h, shape[1] - 2 * h
        near, even = (np.zeros(tiled, mask_dtype(h)) for _ in range(2))
        bounded = self.dtype.kind != "f" and self.farthest == self.infinity
        limits = self.farthest, bounded, c1 - c0
        steps, k, r, c = check_steps(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            distances,
            limits,
            np.empty((8 * h, TILE, TILE), self.dtype),
            near,
            even,
        )
        if k >= 0:
            self.infeasible(at, field, distances, k, r, c)
        root = np.zeros((r1 - r0, c1 - c0), np.bool_)
        root[rows[found == values], cols[found == values]] = True
        flat = np.zeros(tiled, np.bool_)
        links = np.empty((0, 0), np.uint8) if codes is None else codes
        reached, fault, r, c = check_cells(
            field.absent, distances, self.farthest, near, even, root, links, codes is not None, flat
        )
        if fault:
            check, text = FAULTS[fault]
            d = self.told(distances[r + h, c + h])
            code = codes[r, c] if codes is not None else None
            tight = ", ".join(
                NAMES_16[m] for m in range(8 * h) if (near[r, c] | even[r, c]) >> m & 1
            )
            self.fail(
                check,
                at,
                r,
                c,
                f"{d}, {text.format(code=code, farthest=self.farthest, tight=tight or 'none')}",
            )
        counts = Counts(int(steps), int(reached), len(rows))
        return _Masks(near, even, flat, distances, field), counts

    # -- violations ----------------------------------------------------------------------------

    def refuse_cycle(
        self, at: Block, r: int, c: int, distances: np.ndarray | None = None
    ) -> NoReturn:
        """Refuse a flat that is not reached from a source."""
        if distances is None:
            distances = self.read_distance(self.blocks.window(*at), halo=self.halo)
        why = (
            "is on a flat that no source and no nearer cell leads to: its predecessors form a cycle"
            if self.read_backlink is None
            else "its backlinks lead to a cycle and not to a source"
        )
        told = self.told(distances[r + self.halo, c + self.halo])
        self.fail("acyclic", at, r, c, f"{told}, but {why}")

    def misallocated(self, cell: Cell) -> NoReturn:
        """Refuse the first cell with a wrong id on the path to a cell unlike its predecessor.

        Backlinks are known to be correct, so the path begins at a source, and all cells must have
        the id of this source.
        """

        def by_block(read: Read | None) -> Callable[[int, int], np.ndarray]:
            assert read is not None
            return lru_cache(KEPT_BLOCKS)(lambda *at: read(self.blocks.window(*at), halo=0))

        ids, codes = by_block(self.read_allocation), by_block(self.read_backlink)
        path = trace_path(codes, self.blocks, *cell, 8 * self.halo)
        if path is None:
            at, (r, c) = self.place(*cell)
            text = f"is allocated to {ids(*at)[r, c]}, but is unreached"
            self.fail("allocation", at, r, c, text)
        right, side = self.id_of_source(path[0], ids), self.blocks.block
        crossings = np.flatnonzero(np.diff(path // side, axis=0).any(axis=1)) + 1
        for cells in np.split(path, crossings):
            at, (r, c) = self.place(*cells[0].tolist())
            found = ids(*at)[*(cells % side).T]
            if right == 0:
                self.fail("allocation", at, r, c, "is a source, but is allocated to 0")
            if (wrong := found != right).any():
                k = int(np.argmax(wrong))
                text = f"is allocated to {found[k]}, but belongs to source {right}"
                self.fail("allocation", at, *self.place(*cells[k].tolist())[1], text)
        raise AssertionError("no cell of the path has another id than its source")

    def id_of_source(self, cell: np.ndarray, ids: Callable[[int, int], np.ndarray]) -> int:
        """The id of a source; the stored id if sources are inferred."""
        at, (r, c) = self.place(*cell.tolist())
        if isinstance(self.ground, KnownRoots):
            return int(ids(*at)[r, c])
        rows, cols, given = self.ground.roots(at, self.ground.load(at))
        return int(given[(rows == r) & (cols == c)][0])

    def place(self, row: int, col: int) -> tuple[Block, Cell]:
        """The block of a cell, and its row and column there."""
        side = self.blocks.block
        return (row // side, col // side), (row % side, col % side)

    def infeasible(
        self, at: Block, field: Field, distances: np.ndarray, k: int, r: int, c: int
    ) -> NoReturn:
        h, dy, dx = self.halo, int(ROW_STEP_16[k]), int(COL_STEP_16[k])
        there = distances[r + h + dy, c + h + dx]
        work = np.empty((8 * h, TILE, TILE), self.dtype)
        row, col = r // TILE * TILE, c // TILE * TILE
        f = field
        weight, through = one_step(
            self.cost, f.heights, f.frictions, f.absent, f.lengths, row, col, self.options, work,
            k, r - row, c - col, there,
        )  # fmt: skip
        r0, _, c0, _ = self.blocks.window(*at)
        y, x = r0 + r + dy, (c0 + c + dx) % self.ground.blocks.cols
        self.fail(
            "feasible",
            at,
            r,
            c,
            f"{self.told(distances[r + h, c + h])}, but the step of cost {weight} from (row {y}, "
            f"column {x}) at distance {there} gives {through}",
        )

    def fail(self, check: str, at: Block, r: int, c: int, text: str) -> NoReturn:
        r0, _, c0, _ = self.blocks.window(*at)
        row, col = int(r0 + r), int(c0 + c)
        message = f"{_PROPERTIES[check]}: cell (row {row}, column {col}) {text}"
        raise VerificationError(message, check, row, col)

    def told(self, distance: Any) -> str:
        return "is unreached" if distance == self.infinity else f"has distance {distance}"

    @staticmethod
    def first(mask: np.ndarray) -> tuple[int, int]:
        r, c = np.unravel_index(np.argmax(mask), mask.shape)
        return int(r), int(c)

    def size(self, at: Block) -> tuple[int, int]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        return r1 - r0, c1 - c0


_PROPERTIES = {
    "value": "no distance",
    "source": "not least",
    "absent": "not a cell",
    "cost": "wrong cost",
    "farthest": "too far",
    "feasible": "not least",
    "tight": "no path",
    "acyclic": "not acyclic",
    "backlink": "wrong backlink",
    "allocation": "wrong allocation",
}
