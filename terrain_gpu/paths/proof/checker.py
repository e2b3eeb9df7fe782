"""Check the blocks of a raster one by one, and conditions across blocks: `verify_paths`."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.backend import Gpu, Placement
from ...engine.machine import MB, NO_LIMIT, Machine
from ...engine.plan import format_size
from ...engine.proof import Limits, check_blocks, plan_threads
from ...errors import PlanError
from ...facts import Findings
from ...grid import TILE, Block, BlockGrid, Window, ceil_div, clip
from ...progress import Progress, silent
from ..cost.continuous import Continuous
from ..cost.edges import infinity_of
from ..cost.formula.program import Formula
from ..cost.knights import Options, mask_dtype
from ..cost.terrain import Terrain
from ..relax.allocate import cells_around, places_of
from .blocks import Cell, Counts, PathBlocks, RimFlats, Spread
from .continuous import FrontBlocks
from .kernels import join_rims
from .roots import WRONG, CheckedCells, KnownRoots, Read

if TYPE_CHECKING:
    from ...engine.cluster import Cluster

log = logging.getLogger(__name__)


def verify_paths(
    ground: CheckedCells | KnownRoots,
    cost: Any,
    options: Options,
    dtype: np.dtype,
    read_distance: Read,
    read_backlink: Read | None = None,
    read_allocation: Read | None = None,
    *,
    farthest: float,
    threads: int,
    gpu: Gpu | None = None,
    progress: Progress = silent,
    cluster: Cluster | None = None,
) -> Findings:
    """Check every step of distances, and of backlinks and allocation if there are any.

    Parameters
    ----------
    ground
        Cells and sources.
    cost
        The model's kernel, see `models.CostModel`.
    options
        (diagonal, corner_cutting, reverse).
    dtype
        Dtype of distances.
    read_distance
        Reads distances of a window with one ring around it, as stored; unreached outside the
        raster. Accepts an output array, and ``halo`` for another number of rings.
    read_backlink, read_allocation
        Read codes and ids in the same way, with arbitrary values outside the raster. Allocation
        requires backlinks.
    farthest
        Distances beyond this count as unreached; `edges.infinity_of` for no limit.
    threads
        Number of threads.
    gpu
        GPU that checks everything; the CPU when None. Violations are always located by the CPU. The
        CPU also does the check if the GPU's memory is too small, unless the GPU is `wanted`.
    progress
        Called with the number of cells just checked, and the total. A negative number means that
        cells will be checked again.
    cluster
        Its workers check the blocks, each with `threads` threads; `ground` and the functions that
        read must then be picklable.

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
    if isinstance(options, Continuous):
        fronts = FrontBlocks(ground, options, float(farthest), read_distance)
        return _check_fronts(fronts, Limits.of(NO_LIMIT, threads, progress, cluster))
    dtype = np.dtype(dtype)
    reads = read_distance, read_backlink, read_allocation
    of = PathBlocks(ground, cost, options, dtype, dtype.type(farthest), *reads)
    placement = Placement(gpu, progress, "verifying ")

    def prove(gpu: Gpu | None) -> Findings:
        left = None
        if gpu is not None:
            checker = _PathChecker(of, threads, None)
            found, left = checker.run_on(gpu, threads, placement.progress)
            if found is not None:
                return {**found, "backend": "cuda"}
            log.info("verifying on the CPU: %s", left)
        found = _PathChecker(of, threads, cluster).run(placement.progress)
        if left == WRONG:
            raise AssertionError("the GPU rejects distances that the CPU accepts: a bug")
        return {**found, "backend": "cpu"}

    return placement.run(prove)


def _check_fronts(of: FrontBlocks, limits: Limits) -> Findings:
    """As `verify_paths`, for the continuous metric."""
    steps = reached = 0

    def add(at: Block, counts: Counts) -> None:
        nonlocal steps, reached
        steps, reached = steps + counts.steps, reached + counts.reached
        if isinstance(of.ground, KnownRoots):
            of.ground.note(at, counts.sources)

    worker = block_bytes(of.blocks, 8, 1)
    plan = plan_threads(of.blocks, "float64", limits.checkers, worker, limits)
    check_blocks(plan, of.blocks, [], of.check, add, limits)
    return {"checked_steps": steps, "reached": reached, "backend": "cpu"}


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


@dataclass(frozen=True)
class RingAcrossSeam:
    """Reads distances with `read`, also the cells beyond the seam where the raster wraps."""

    read: Read
    blocks: BlockGrid

    def __call__(
        self, window: Window, out: np.ndarray | None = None, *, halo: int = 1
    ) -> np.ndarray:
        found = self.read(window, out, halo=halo)
        r0, r1, _, _ = window
        for here, there in self.blocks.beyond_seam(window, halo):
            found[:, here] = self.read((r0, r1, there, there + 1), halo=halo)[:, halo]
        return found


def block_bytes(blocks: BlockGrid, item: int, halo: int) -> int:
    """Bytes of a thread that verifies distances of `item` bytes."""
    cells = blocks.largest(halo)
    # Heights, frictions, two arrays of distances; cells as read; masks, codes, labels of flats.
    return cells * (4 * item + 16 + 22 + 2 * halo) + 10 * halo * TILE * TILE * 8


def threads_within(
    blocks: BlockGrid,
    item: int,
    machine: Machine,
    held: int = 0,
    halo: int = 1,
    least: int = 1,
) -> int:
    """Number of threads that can verify distances of `item` bytes within the limits.

    `held` is the number of bytes in use for other purposes, `halo` how many cells steps reach, and
    `least` the lowest number of threads, if there are as many blocks.
    """
    limit, one = machine.memory_limit, block_bytes(blocks, item, halo)
    always = held + blocks.count * 4 * halo * blocks.block * 17 + 128 * blocks.rows
    for n in range(min(machine.threads, blocks.count), min(least, blocks.count) - 1, -1):
        if (memory := machine.baseline() + always + n * one) <= limit:
            return n
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to verify shortest paths over "
        f"{blocks.rows} x {blocks.cols} cells in blocks of {blocks.block}; give at least "
        f"{ceil_div(memory, MB)} MB"
    )


class _PathChecker:
    """Checks blocks, and the conditions across blocks."""

    def __init__(self, of: PathBlocks, threads: int, cluster: Cluster | None) -> None:
        self.of, self.blocks, self.halo = of, of.blocks, of.halo
        self.cluster, worker = cluster, block_bytes(of.blocks, of.dtype.itemsize, of.halo)
        name, limits = of.dtype.name, self.limits(silent)
        self.plan = plan_threads(of.blocks, name, threads, worker, limits)
        self.steps = self.reached = 0
        places = self.blocks.count * 4 * self.halo * self.blocks.block
        self.odd: Cell | None = None
        if of.one_way:
            self.solid = np.zeros(places, np.bool_)
            self.open: dict[Block, Spread] = {}
        else:
            # For cells on rims: what they are united with, or whether a root can be reached.
            self.parent = np.zeros(places + 1, np.int64)
            self.outward = np.zeros(places, mask_dtype(self.halo))

    def run(self, progress: Progress) -> dict[str, int]:
        of, limits = self.of, self.limits(progress)
        if of.one_way:
            self.spread(limits)
            return self.counts()
        check_blocks(self.plan, self.blocks, [], of.joined, self.join, limits)
        row, col = join_rims(
            self.parent, self.outward, self.blocks.rows, self.blocks.cols, self.blocks.block,
            self.halo,
        )  # fmt: skip
        if row >= 0:
            at = int(row) // self.blocks.block, int(col) // self.blocks.block
            r0, _, c0, _ = self.blocks.window(*at)
            of.refuse_cycle(at, int(row) - r0, int(col) - c0)
        if self.odd is not None:
            of.misallocated(self.odd)
        return self.counts()

    def limits(self, progress: Progress) -> Limits:
        return Limits.of(NO_LIMIT, progress=progress, cluster=self.cluster)

    def run_on(
        self, gpu: Gpu, threads: int, progress: Progress
    ) -> tuple[dict[str, int] | None, str | None]:
        """As `run`, on a GPU; or returns None and the reason why the CPU must do it."""
        from .gpu import Proof

        if isinstance(self.of.cost, Formula):
            return None, "the CPU interprets formulas"
        if self.blocks.wraps:
            return None, "the CPU joins the sides of rasters that go round the Earth"
        if self.halo > 1:
            return None, "the CPU checks knight's moves"
        assert isinstance(self.of.ground, Terrain | KnownRoots)
        proof = Proof(
            self.of.ground,
            self.of.cost,
            self.of.options,
            self.of.dtype,
            self.of.farthest,
            self.of.read_distance,
            self.of.read_backlink,
            self.of.read_allocation,
            gpu,
            threads,
        )
        found = proof.prove(progress)
        if found is None:
            return None, proof.left
        self.steps, self.reached = found
        return self.counts(), None

    def counts(self) -> dict[str, int]:
        return {"checked_steps": self.steps, "reached": self.reached}

    # -- results of blocks ---------------------------------------------------------------------

    def count(self, at: Block, counts: Counts) -> None:
        self.steps += counts.steps
        self.reached += counts.reached
        if isinstance(self.of.ground, KnownRoots):
            self.of.ground.note(at, counts.sources)

    def join(self, at: Block, found: tuple[Counts, RimFlats, Cell | None]) -> None:
        """Keep the flats that reach the rim of a block, to check them after all blocks."""
        counts, flats, odd = found
        self.count(at, counts)
        # The first of several, in whatever order blocks come.
        self.odd = min((cell for cell in (self.odd, odd) if cell is not None), default=None)
        first = (at[0] * self.blocks.shape[1] + at[1]) * 4 * self.halo * self.blocks.block
        self.parent[first + flats.joined] = first + flats.to
        self.outward[first + flats.open] = flats.steps

    # -- flats with steps in one direction -----------------------------------------------------

    def spread(self, limits: Limits) -> None:
        """Spread from cells that lead to a root until nothing changes."""
        check_blocks(
            self.plan, self.blocks, [], self.of.spread, self.first_spread, limits,
            given=self.around,
        )  # fmt: skip
        while self.open:
            before, again = self.left, list(self.open)
            check_blocks(
                self.plan, self.blocks, [], self.of.spread, self.take, limits.quietly(),
                only=again, given=self.around,
            )  # fmt: skip
            if self.left == before:
                at = next(at for at in self.blocks.ids() if at in self.open)
                self.of.refuse_cycle(at, self.open[at].row, self.open[at].col)

    @property
    def left(self) -> int:
        return sum(one.left for one in self.open.values())

    def first_spread(self, at: Block, found: tuple[Counts, Spread]) -> None:
        self.count(at, found[0])
        self.take(at, found)

    def take(self, at: Block, found: tuple[Counts, Spread]) -> None:
        spread = found[1]
        rims = self.solid.reshape(self.blocks.count, 4 * self.halo, -1)
        for place, known in zip(
            rims[at[0] * self.blocks.shape[1] + at[1]], spread.sides, strict=True
        ):
            place[: len(known)] = known
        self.open.pop(at, None)
        if spread.left:
            self.open[at] = spread

    def around(self, at: Block) -> np.ndarray:
        """Which of the cells around a block are known to lead to a root."""
        inside, places = places_of(
            self.blocks, self.halo, *cells_around(self.blocks.window(*at), self.halo)
        )
        found = np.zeros(len(inside), np.bool_)
        found[inside] = self.solid[places]
        return found
