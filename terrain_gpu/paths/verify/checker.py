"""Check the blocks of a raster one by one, and the conditions across blocks: `verify_paths`."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...cuda.backend import Gpu, Placement
from ...engine.plan import COMPILED_BASELINE, MB, format_size, limit_of, loaded, threads_of
from ...engine.schedule import stream
from ...errors import PlanError, StoreError, VerificationError
from ...grid import TILE, Block, BlockGrid, Window, ceil_div, clip
from ...grid.neighbours import COL_STEP_16, NAMES_16, ROW_STEP_16
from ...progress import Progress, silent
from ..costs import is_directed
from ..cpu.allocate import BacklinkForest
from ..edges import infinity_of
from ..fields import Field
from ..formula.program import Formula
from ..ground import Terrain
from ..knights import Options, halo_of, mask_dtype
from .kernels import FAULTS, check_cells, check_steps, join_flats, join_rims, one_step, spread_roots
from .prices import wrong_price
from .roots import WRONG, Cells, KnownRoots, Read

log = logging.getLogger(__name__)


class CheckedCells(Protocol):
    """The cells and sources of a problem, such as `ground.Terrain`."""

    blocks: BlockGrid

    def load(self, at: Block) -> Field: ...

    def seeds(self, at: Block, field: Field) -> Cells:
        """Rows and columns within the block, and start values, of its sources."""

    def roots(self, at: Block) -> tuple[np.ndarray, ...]:
        """Rows and columns within the block, and ids, of its sources."""


def verify_paths(  # noqa: PLR0913 - keyword-only
    ground: CheckedCells,
    cost: Any,
    options: Options,
    dtype: np.dtype,
    read_distance: Read,
    read_backlink: Read | None = None,
    read_allocation: Read | None = None,
    *,
    farthest: Any,
    threads: int,
    gpu: Gpu | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Check every step of distances, and of backlinks and allocation if there are any.

    Parameters
    ----------
    ground
        Cells and sources.
    cost
        The model's kernel, see `costs.CostModel`.
    options
        (diagonal, corner_cutting, reverse).
    dtype
        Dtype of distances.
    read_distance
        Reads distances of a window with one ring around it, as stored; unreached outside the
        raster. Accepts an output array, and ``halo`` for another number of rings.
    read_backlink, read_allocation
        Read codes and ids of a window, without a ring. Allocation requires backlinks.
    farthest
        Distances beyond this count as unreached; `edges.infinity_of` for no limit.
    threads
        Number of threads.
    gpu
        GPU that checks steps and flats; the CPU when None. The CPU always follows backlinks and
        allocation, and locates violations. It also checks everything else if the GPU's memory is
        too small, unless the GPU is `wanted`.
    progress
        Called with the number of cells just checked, and the total. A negative number means that
        cells will be checked again.

    Returns
    -------
    dict
        "checked_steps" (number of directed steps between cells), "reached" (number of cells) and
        "backend" ("cpu" or "cuda").

    Raises
    ------
    VerificationError
        at the first violation found; with row, column and values.
    StoreError
        when a layer is damaged.
    PlanError
        when a GPU is `wanted` and its memory is too small.

    Notes
    -----
    A backlink must be the lowest direction of a strictly nearer predecessor, if there is one. On
    flats, any forest is accepted.
    """
    given = ground, cost, options, np.dtype(dtype), farthest
    reads = read_distance, read_backlink, read_allocation
    placement = Placement(gpu, progress, "verifying ")

    def prove(gpu: Gpu | None) -> dict[str, Any]:
        left = None
        if gpu is not None:
            found, left = _PathChecker(*given, *reads).run_on(gpu, threads, placement.progress)
            if found is not None:
                return {**found, "backend": "cuda"}
            log.info("verifying on the CPU: %s", left)
        found = _PathChecker(*given, *reads).run(threads, placement.progress)
        if left == WRONG:
            raise AssertionError("the GPU rejects distances that the CPU accepts: a bug")
        return {**found, "backend": "cpu"}

    return placement.run(prove)


def upper_limit(max_cost: float | None, dtype: np.dtype) -> Any:
    """The largest distance that is propagated."""
    infinity = infinity_of(np.empty(0, dtype))
    if max_cost is None or max_cost >= infinity:
        return infinity
    return max_cost if dtype.kind == "f" else math.floor(max_cost)


def ring_of(distances: np.ndarray, unreached: float) -> Read:
    """Return a function that reads windows of an array with one ring around them."""

    def read(window: Window, out: np.ndarray | None = None, *, halo: int = 1) -> np.ndarray:
        r0, r1, c0, c1 = window
        rows, cols = distances.shape
        a, b, c, d = clip((r0 - halo, r1 + halo, c0 - halo, c1 + halo), (0, rows, 0, cols))
        shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
        found = np.empty(shape, distances.dtype) if out is None else out
        found[...] = unreached
        r0, c0 = r0 - halo, c0 - halo
        found[a - r0 : b - r0, c - c0 : d - c0] = distances[a:b, c:d]
        return found

    return read


def ring_across_seam(read: Read, blocks: BlockGrid) -> Read:
    """Return a function that also reads the cells beyond the seam where the raster wraps."""

    def across(window: Window, out: np.ndarray | None = None, *, halo: int = 1) -> np.ndarray:
        found = read(window, out, halo=halo)
        r0, r1, _, _ = window
        for here, there in blocks.beyond_seam(window) if halo else ():
            found[:, here] = read((r0, r1, there, there + 1))[:, 1]
        return found

    return across


def threads_within(
    blocks: BlockGrid,
    item: int,
    memory_limit: int | None,
    threads: int | None,
    held: int = 0,
    halo: int = 1,
) -> int:
    """Number of threads that can verify distances of `item` bytes within a memory limit.

    `held` are bytes in use for other purposes, and `halo` is how far steps reach.
    """
    limit = limit_of(memory_limit)
    cells = (blocks.block + 2 * halo) ** 2
    # Heights, frictions, two arrays of distances; cells as read; masks, codes, labels of flats.
    one = cells * (4 * item + 16 + 22 + 2 * halo) + 10 * halo * TILE * TILE * 8
    always = held + loaded() + blocks.count * 4 * halo * blocks.block * 17 + 128 * blocks.rows
    for n in range(min(threads_of(threads), blocks.count), 0, -1):
        if (memory := COMPILED_BASELINE + always + n * one) <= limit:
            return n
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to verify shortest paths over "
        f"{blocks.rows} x {blocks.cols} cells in blocks of {blocks.block}; give at least "
        f"{ceil_div(memory, MB)} MB"
    )


class _Masks(NamedTuple):
    """The tight predecessors of a block's cells.

    `near` and `even` have bit k set for a tight predecessor in direction k that is strictly nearer
    or at equal distance. `flat` marks reached cells that have only the latter and are not roots.
    """

    near: np.ndarray
    even: np.ndarray
    flat: np.ndarray
    distances: np.ndarray


class _PathChecker:
    def __init__(
        self,
        ground: CheckedCells,
        cost: Any,
        options: Options,
        dtype: np.dtype,
        farthest: Any,
        read_distance: Read,
        read_backlink: Read | None,
        read_allocation: Read | None,
    ) -> None:
        self.ground, self.blocks, self.cost, self.options = ground, ground.blocks, cost, options
        self.halo = halo_of(options)
        self.dtype = dtype
        self.infinity = dtype.type(infinity_of(np.empty(0, dtype)))
        self.farthest = dtype.type(farthest)
        self.read_distance, self.read_backlink = read_distance, read_backlink
        self.read_allocation = read_allocation
        self.steps = self.reached = 0
        self.lock = threading.Lock()
        places = self.blocks.count * 4 * self.halo * self.blocks.block
        self.forest = BacklinkForest(self.blocks, self.halo) if read_backlink else None
        self.one_way = False
        if self.forest is None:
            self.one_way = is_directed(cost)
            # For cells on rims: what they are united with, or whether a root can be reached.
            self.parent = np.zeros(0 if self.one_way else places + 1, np.int64)
            self.outward = np.zeros(0 if self.one_way else places, mask_dtype(self.halo))
            self.solid = np.zeros(places if self.one_way else 0, np.uint8)
            self.open: dict[Block, tuple[int, int, int]] = {}

    def run(self, threads: int, progress: Progress) -> dict[str, int]:
        self.each(threads, self.block, progress)
        if self.forest is None:
            self.anchored()
        return self.followed(threads)

    def run_on(
        self, gpu: Gpu, threads: int, progress: Progress
    ) -> tuple[dict[str, int] | None, str | None]:
        """As `run`, on a GPU; or None and the reason why the CPU must do it."""
        from .gpu import Proof

        if isinstance(self.cost, Formula):
            return None, "the CPU interprets formulas"
        if self.blocks.wraps:
            return None, "the CPU joins the sides of rasters that go round the Earth"
        if self.halo > 1:
            return None, "the CPU checks knight's moves"
        assert isinstance(self.ground, Terrain | KnownRoots)
        proof = Proof(
            self.ground,
            self.cost,
            self.options,
            self.dtype,
            self.farthest,
            self.read_distance,
            self.read_backlink,
            self.link,
            gpu,
            threads,
        )
        found = proof.prove(progress)
        if found is None:
            return None, proof.left
        self.steps, self.reached = found
        return self.followed(threads), None

    def followed(self, threads: int) -> dict[str, int]:
        """Check where backlinks lead, once all blocks have been read."""
        if self.forest is not None:
            with _as_violation():
                self.forest.resolve()
        if self.read_allocation is not None:
            self.each(threads, self.allocation, silent)
        return {"checked_steps": self.steps, "reached": self.reached}

    def link(self, at: Block, codes: np.ndarray) -> None:
        """Add the backlinks of a block."""
        assert self.forest is not None
        with _as_violation():
            self.forest.add(at, codes, *self.ground.roots(at))

    def each(self, threads: int, work: Callable[[Block, Any], None], show: Progress) -> None:
        blocks = self.blocks

        def done(at: Block) -> None:
            r0, r1, c0, c1 = blocks.window(*at)
            show((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

        stream(
            blocks.ids(),
            lambda at, _: at,
            work,
            buffers=[None] * threads,
            writers=threads,
            done=done,
        )

    # -- one block -------------------------------------------------------------------------

    def block(self, at: Block, _: Any) -> None:
        """Check a block, and keep what other blocks depend on."""
        codes = None
        if self.read_backlink is not None:
            codes = np.ascontiguousarray(self.read_backlink(self.blocks.window(*at)))
        masks, steps, reached = self.masks(at, codes)
        with self.lock:
            self.steps += steps
            self.reached += reached
        if codes is not None:
            self.link(at, codes)
        elif self.one_way:
            self.spread(at, masks)
        else:
            self.join(at, masks)

    def priced(self, at: Block, field: Field) -> None:
        """Interpret the formula of the costs, if there is one."""
        if not isinstance(self.cost, Formula):
            return
        assert isinstance(self.ground, Terrain | KnownRoots)
        terrain = self.ground if isinstance(self.ground, Terrain) else self.ground.terrain
        assert terrain.model.tree is not None
        if wrong := wrong_price(terrain.model.tree, self.cost, field, self.options):
            r, c, k, found, right = wrong
            text = f"is priced at {found} from the {NAMES_16[k]}, but the formula gives {right}"
            self.fail("cost", at, r, c, text)

    def masks(self, at: Block, codes: np.ndarray | None) -> tuple[_Masks, int, int]:
        """Check the cells and steps of a block; also count its steps and reached cells."""
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
        rows, cols, values = self.ground.seeds(at, field)
        found = distances[rows + h, cols + h]
        wrong = (found > values) & (values <= self.farthest)
        if wrong.any():
            k = int(np.argmax(wrong))
            text = f"is a source of start value {values[k]}, but {self.told(found[k])}"
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
        return _Masks(near, even, flat, distances), int(steps), int(reached)

    def allocation(self, at: Block, _: Any) -> None:
        """Compare a block's allocation with the sources that its backlinks lead to."""
        assert self.forest is not None
        assert self.read_backlink is not None
        assert self.read_allocation is not None
        window = self.blocks.window(*at)
        codes = np.ascontiguousarray(self.read_backlink(window))
        with _as_violation():
            right = self.forest.labels(at, codes, *self.ground.roots(at))
        found = self.read_allocation(window)
        if (found != right).any():
            r, c = self.first(found != right)
            text = f"is allocated to {found[r, c]}, but belongs to source {right[r, c]}"
            self.fail("allocation", at, r, c, text)

    # -- flats -----------------------------------------------------------------------------

    def join(self, at: Block, masks: _Masks) -> None:
        """Unite the cells of flats in a block; flats that reach its rim are decided later."""
        b, index = self.blocks.block, self.index(at)
        height, width = self.size(at)
        lost = join_flats(
            masks.flat[:height, :width],
            masks.even,
            self.halo,
            index * 4 * self.halo * b,
            b,
            self.parent,
            self.outward,
        )
        if lost >= 0:
            self.circle(at, *divmod(int(lost), width), masks.distances)

    def spread(self, at: Block, masks: _Masks) -> int:
        """Spread from cells that lead to a root; returns the number of cells not reached yet."""
        height, width = self.size(at)
        r0, _, c0, _ = self.blocks.window(*at)
        left, r, c = spread_roots(
            masks.flat[:height, :width],
            masks.even,
            masks.distances,
            (r0, c0, self.blocks.rows, self.blocks.cols, self.blocks.block, self.halo),
            self.solid,
        )
        with self.lock:
            self.open.pop(at, None)
            if left:
                self.open[at] = int(left), int(r), int(c)
        return int(left)

    def anchored(self) -> None:
        """Refuse flats that cannot be reached from outside."""
        blocks = self.blocks
        if not self.one_way:
            shape = blocks.rows, blocks.cols, blocks.block
            row, col = join_rims(self.parent, self.outward, *shape, self.halo)
            if row >= 0:
                at = int(row) // blocks.block, int(col) // blocks.block
                r0, _, c0, _ = blocks.window(*at)
                self.circle(at, int(row) - r0, int(col) - c0)
            return
        while self.open:
            before = sum(left for left, _, _ in self.open.values())
            for at in list(self.open):
                self.spread(at, self.masks(at, None)[0])
            if sum(left for left, _, _ in self.open.values()) == before:
                at, (_, r, c) = next(iter(self.open.items()))
                self.circle(at, r, c)

    def circle(self, at: Block, r: int, c: int, distances: np.ndarray | None = None) -> None:
        if distances is None:
            distances = self.read_distance(self.blocks.window(*at), halo=self.halo)
        self.fail(
            "acyclic",
            at,
            r,
            c,
            f"{self.told(distances[r + self.halo, c + self.halo])}, but lies on a flat that no "
            "source and no nearer cell leads to: its predecessors run in a circle",
        )

    # -- violations ------------------------------------------------------------------------

    def infeasible(
        self, at: Block, field: Field, distances: np.ndarray, k: int, r: int, c: int
    ) -> None:
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
        y, x = r0 + r + dy, (c0 + c + dx) % self.blocks.cols
        self.fail(
            "feasible",
            at,
            r,
            c,
            f"{self.told(distances[r + h, c + h])}, but the step of cost {weight} from (row {y}, "
            f"column {x}) at distance {there} leads there for {through}",
        )

    def fail(self, check: str, at: Block, r: int, c: int, text: str) -> None:
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

    def index(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def size(self, at: Block) -> tuple[int, int]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        return r1 - r0, c1 - c0


@contextmanager
def _as_violation() -> Iterator[None]:
    """Turn an error of `BacklinkForest` into a violation."""
    try:
        yield
    except StoreError as error:
        raise VerificationError(f"not acyclic: {error}", "acyclic") from None


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
