"""A window of the raster on a GPU: read, relaxed, linked, written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....cuda.arrays import DeviceArray, DeviceKernel, DeviceModule
from ....cuda.device import module
from ....engine.schedule import stream
from ....errors import InputError
from ....grid import Block, BlockGrid, Window, ceil_div, clip
from ...cost.continuous import Continuous, ratios_of
from ...cost.edges import infinity_of
from ...cost.knights import mask_dtype
from ...cost.models import cuda_name
from ...cost.terrain import Raster
from ..relaxation import GUARDS
from .memory import NOTES, BlockStaging, Shape, padded
from .problem import Problem, Write
from .relaxing import LAUNCH, Relaxing
from .variants import absent, fields_macros, launch, nodata_of, reading_macros

_STEPS = [0, 1, 2, 4, 5]
"""Rows of `lengths.step_lengths` that kernels take: E, a diagonal, S; two knight's moves."""


class PieceLayer(NamedTuple):
    """An output layer of a piece; `cut` copies a window of cells to a block on the device."""

    name: str
    dtype: np.dtype
    cut: Callable[..., None]


def field_kernels(problem: Problem) -> Any:
    """Kernels of kernels/fields.cu, for the current device."""
    ground, (cell, _) = problem.ground, problem.cell_dtypes()
    given = cuda_name(ground.model.kernel), cell, ground.dtype, problem.halo
    return module("fields", fields_macros(*given))


def blocks_in(blocks: BlockGrid, window: Window) -> Iterator[Block]:
    """The blocks of a window that ends between blocks."""
    (r0, r1, c0, c1), b = window, blocks.block
    for i, j in BlockGrid(r1 - r0, c1 - c0, b).ids():
        yield i + r0 // b, j + c0 // b


def each(
    pool: list[BlockStaging],
    work: Callable[[Block, BlockStaging], None],
    blocks: Iterable[Block],
    done: Callable[[Block], None] | None = None,
) -> None:
    """Call `work` for blocks, in a thread for each of the staging buffers."""
    import cupy

    cupy.cuda.Device().synchronize()
    stream(blocks, work, lambda at, _: None, buffers=pool, readers=len(pool), done=done)


class Piece:
    """A window of the raster on the device, with a ring of cells around it.

    Attributes
    ----------
    heights, frictions, distances
        Padded arrays, see `Shape`.
    codes, flat
        Backlinks (not padded) and steps on flats (padded); set by `link`.
    planes
        Number of rasters of distances over the same cells, see `cost_matrix.gpu`; all but `read`
        and `relax` concern the first.
    """

    def __init__(
        self,
        problem: Problem,
        window: Window,
        pool: list[BlockStaging],
        notes: DeviceArray,
        planes: int = 1,
    ) -> None:
        self.problem, self.window, self.pool, self.notes = problem, window, pool, notes
        self.planes = planes
        r0, r1, c0, c1 = window
        self.shape = Shape(r1 - r0, c1 - c0, problem.halo)
        g = self.ground = problem.ground
        self.dtype = g.dtype
        mine = (g.sources.rows >= r0) & (g.sources.rows < r1)
        mine &= (g.sources.cols >= c0) & (g.sources.cols < c1)
        self.mine = np.flatnonzero(mine)
        self.codes: DeviceArray = None
        self.flat: DeviceArray = None
        self._allocate()

    def _allocate(self) -> None:
        import cupy

        problem, g = self.problem, self.ground
        cell, friction = problem.cell_dtypes()
        self.distances = padded(self.shape, self.dtype, absent(self.dtype), self.planes)
        self.heights: DeviceArray = padded(self.shape, cell, 0)
        self.frictions: DeviceArray = self.heights
        if friction is not None:
            self.frictions = padded(self.shape, friction, 0)
        halo, first = self.shape.halo, self.window[0]
        steps = _STEPS[: 3 if halo == 1 else None]
        lengths = g.lengths[:, first : first + self.shape.padded]
        if isinstance(problem.options, Continuous):
            lengths = np.concatenate((lengths[steps], ratios_of(lengths)))
        else:
            lengths = lengths[steps]
        self.lengths = cupy.array(np.ascontiguousarray(lengths).reshape(-1))[halo - 1 :]
        self.relaxing = Relaxing(
            self.shape,
            g.model.kernel,
            cell,
            friction,
            self.dtype,
            problem.options,
            problem.farthest,
            self.planes,
        )
        self.kernels = field_kernels(problem)
        sources = g.sources
        rows = sources.rows[self.mine] - self.window[0]
        self.ids = cupy.array(rows * self.shape.cols + sources.cols[self.mine] - self.window[2])
        self.costs = cupy.array(sources.costs[self.mine].astype(self.dtype))

    def noted(self) -> dict[str, int]:
        return dict(zip(NOTES, map(int, self.notes.get()), strict=True))

    def launch(self, name: str, cells: int, *arguments: object) -> None:
        """Run a kernel of kernels/fields.cu."""
        launch(self.kernels.get_function(name), cells, *arguments)

    # -- reading ---------------------------------------------------------------------------

    def read(
        self,
        done: Callable[[Block], None] | None = None,
        *,
        blocks: Collection[Block] | None = None,
        then: Callable[[Block, BlockStaging], None] | None = None,
    ) -> None:
        """Read heights and frictions, and mark cells as unreached or absent.

        Parameters
        ----------
        blocks
            Blocks of the window and around it to read; all of them when None.
        then
            Called for each of these blocks afterwards, in threads.
        """
        import cupy

        jobs = list(self._layers())
        cupy.cuda.Device().synchronize()

        def read(item: tuple[Block, Window, int], staging: BlockStaging) -> None:
            _, part, shift = item
            for raster, place in jobs:
                with staging:
                    self._read_part(raster, place, part, shift, staging)

        stream(
            (part for part in self._parts() if blocks is None or part[0] in blocks),
            read,
            lambda item, _: None,
            buffers=self.pool,
            readers=len(self.pool),
            done=None if done is None else lambda item: None if item[2] else done(item[0]),
        )
        if then is not None:
            self.each(then, blocks=blocks)
        self._refuse()
        if blocks is None and {"SIGNED", "CONTINUOUS"} & set(self.relaxing.macros):
            self._refuse_costs()

    def _parts(self) -> Iterator[tuple[Block, Window, int]]:
        """The blocks that overlap the window or its ring, the overlaps, and their shift.

        What lies beyond the seam is shifted by the columns of the raster; such a block counts as
        one beside the raster.
        """
        blocks, b = self.problem.blocks, self.problem.blocks.block
        (r0, r1, c0, c1), h = self.window, self.shape.halo
        ring = clip((r0 - h, r1 + h, c0 - h, c1 + h), (0, blocks.rows, 0, blocks.cols))
        for i in range(ring[0] // b, ceil_div(ring[1], b)):
            for j in range(ring[2] // b, ceil_div(ring[3], b)):
                yield (i, j), clip(blocks.window(i, j), ring), 0
            beyond = blocks.beyond_seam(self.window, h)
            rows = max(i * b, ring[0]), min((i + 1) * b, ring[1])
            for right, j, shift in (0, -1, -blocks.cols), (1, blocks.shape[1], blocks.cols):
                if there := [col for here, col in beyond if (here >= h) == right]:
                    yield (i, j), (*rows, there[0], there[-1] + 1), shift

    def around(self) -> set[Block]:
        """The blocks that overlap only the ring."""
        return {at for at, _, _ in self._parts()} - set(self.blocks())

    def _layers(self) -> Iterator[tuple[Raster, Callable[..., None]]]:
        """The rasters, each with a function that stores a part of it."""
        g, r0, c0 = self.ground, self.window[0], self.window[2]
        cell, friction = self.problem.cell_dtypes()
        alone = g.model.needs_friction and g.friction is None
        cols = self.problem.blocks.cols
        for raster, kind, cells, appear, frictions in (
            (g.heights, cell, self.heights, True, alone),
            (g.friction, friction, self.frictions, False, True),
        ):
            if raster is None or kind is None:
                continue
            kernel = module("read", reading_macros(raster.dtype, kind, self.dtype)).get_function(
                "place"
            )
            target = cols, self.shape.pitch, cells, self.distances
            settings = np.int32(appear), np.int32(frictions), self.notes

            def place(
                part: tuple[Any, ...], shift: int, nodata: tuple[Any, ...],
                kernel: DeviceKernel = kernel,
                target: tuple[Any, ...] = target, settings: tuple[Any, ...] = settings,
            ) -> None:  # fmt: skip
                first = r0 * cols + c0 - shift
                launch(kernel, part[1] * part[2], *part, first, *target, *nodata, *settings)

            yield raster, place
        if g.barriers is not None:
            macros = reading_macros(g.barriers.dtype, g.barriers.dtype, self.dtype)
            close = module("read", macros).get_function("close")

            def shut(part: tuple[Any, ...], shift: int, nodata: tuple[Any, ...]) -> None:
                launch(close, part[1] * part[2], *part, self.shape.pitch, self.distances, *nodata)

            yield g.barriers, shut

    def _read_part(
        self,
        raster: Raster,
        place: Callable[..., None],
        part: Window,
        shift: int,
        staging: BlockStaging,
    ) -> None:
        r0, r1, c0, c1 = part
        cells = staging.array((r1 - r0, c1 - c0), raster.dtype)
        raster.read(part, cells)
        staging.copy(cells.nbytes, back=False)
        at = r0 - self.window[0], c0 + shift - self.window[2]
        place((staging.device, *cells.shape, *at), shift, nodata_of(raster))

    def _refuse(self) -> None:
        """Raise the errors that the CPU reports when it loads a block."""
        noted, cols = self.noted(), self.problem.blocks.cols
        if noted["far"] != 2**64 - 1:
            raise InputError(
                f"{self.ground.heights.name}: heights beyond 2**61 are too large for integer "
                "distances; "
                "convert them to float64"
            )
        if noted["negative"] != 2**64 - 1:
            self.ground.refuse_negative(*divmod(noted["negative"], cols))

    def _refuse_costs(self) -> None:
        """Look for costs that are refused, below 0 or none; the CPU names one."""
        blocks, shape = self.problem.blocks, self.shape
        launch(
            self.relaxing.module.get_function("find_refused"),
            shape.rows * shape.cols,
            self.heights,
            self.frictions,
            self.lengths,
            shape.padded,
            shape.pitch,
            self.distances,
            self.relaxing.parameters,
            shape.rows,
            shape.cols,
            self.window[0] * blocks.cols + self.window[2],
            blocks.cols,
            self.notes,
        )
        below = self.noted()["below"]
        if below != 2**64 - 1:
            row, col = divmod(below, blocks.cols)
            self.ground.load((row // blocks.block, col // blocks.block))
            raise AssertionError("the CPU takes the costs that a GPU refuses: a bug")

    # -- relaxing --------------------------------------------------------------------------

    def seed(self) -> None:
        """Set the distances of sources; their tiles become pending."""
        shape, count = self.shape, len(self.mine)
        places = shape.pitch, self.heights, self.distances, *self.relaxing.pending
        if self.ground.edge:
            self.launch("rim_sources", shape.rows * shape.cols, shape.rows, shape.cols, *places)
        if count:
            given = self.ids, self.costs, count, shape.cols
            self.launch("sources", count, *given, *places, self.notes)
            k = self.noted()["blocked"]
            if k != 2**64 - 1:
                raise self.ground.blocked(int(self.mine[k]))

    def relax(self, between: Callable[[], object] = lambda: None, every: float = LAUNCH) -> Any:
        """Relax to convergence, see `Relaxing.run`; returns the final state of the kernel."""
        guard = GUARDS[self.dtype.itemsize] if self.dtype.kind == "u" else np.inf
        cells = self.heights, self.frictions, self.lengths, self.distances
        seam = self.seam(self.kernels, self.distances, self.relaxing)
        return self.relaxing.run(*cells, guard, between, seam, every)

    def seam(
        self, kernels: DeviceModule, cells: DeviceArray, relaxing: Relaxing
    ) -> Callable[[], None] | None:
        """Return a function that passes distances across the seam, if both sides are here.

        In all planes of `relaxing`.
        """
        blocks, shape = self.problem.blocks, self.shape
        if not blocks.wraps or self.window != (0, blocks.rows, 0, blocks.cols):
            return None
        kernel = kernels.get_function("seam")
        size = shape.rows, shape.cols, shape.padded, shape.pitch
        given = *size, cells, shape.tiles[0], *relaxing.pending
        return lambda: launch(kernel, 2 * shape.halo * shape.rows * relaxing.planes, *given)

    def at(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Distances of cells of the window; the largest value at absent cells."""
        import cupy

        places = (rows - self.window[0] + 1) * self.shape.pitch + cols - self.window[2] + 1
        found = self.distances[cupy.array(places)].get()
        infinity = infinity_of(found)
        return np.where(found <= infinity, found, self.dtype.type(infinity))

    # -- what follows from distances -------------------------------------------------------

    def link(self, farthest: float) -> None:
        """Find predecessors, except on flats."""
        import cupy

        rows, cols, pitch = self.shape.rows, self.shape.cols, self.shape.pitch
        self.codes = self.flat = None  # their memory is needed
        self.codes = cupy.empty(rows * cols, np.uint8)
        self.flat = padded(self.shape, mask_dtype(self.shape.halo), 0)
        launch(
            self.relaxing.module.get_function("predecessors"),
            rows * cols,
            self.heights,
            self.frictions,
            self.lengths,
            self.shape.padded,
            pitch,
            self.distances,
            self.relaxing.parameters,
            self.dtype.type(farthest),
            rows,
            cols,
            self.codes,
            self.flat,
        )
        places = pitch, self.heights, self.distances, self.codes, self.flat
        count = len(self.ids)
        if self.ground.edge:
            self.launch("rim_roots", rows * cols, self.ids, count, rows, cols, *places)
        if count:
            self.launch("roots", count, self.ids, self.costs, count, cols, *places)

    # -- writing ---------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """The blocks of the window."""
        return blocks_in(self.problem.blocks, self.window)

    def move(
        self,
        outputs: Sequence[PieceLayer],
        write: Write,
        done: Callable[[Block], None] | None = None,
        blocks: Iterable[Block] | None = None,
    ) -> None:
        """Write blocks of some outputs, in threads; all blocks of the window when None."""

        def work(at: Block, staging: BlockStaging) -> None:
            r0, r1, c0, c1 = self.problem.blocks.window(*at)
            for output in outputs:
                cells = staging.array((r1 - r0, c1 - c0), output.dtype)
                with staging:
                    place = *cells.shape, r0 - self.window[0], c0 - self.window[2]
                    output.cut(cells.size, *place, staging.device)
                    staging.copy(cells.nbytes, back=True)
                write(output.name, at, cells)

        self.each(work, done, blocks)

    def each(
        self,
        work: Callable[[Block, BlockStaging], None],
        done: Callable[[Block], None] | None = None,
        blocks: Iterable[Block] | None = None,
    ) -> None:
        """Call `work` for blocks, in threads; for all blocks of the window when None."""
        each(self.pool, work, self.blocks() if blocks is None else blocks, done)

    def distance_output(self, farthest: float) -> PieceLayer:
        """The layer of distances; writing it counts reached and valid cells."""
        bound = self.dtype.type(farthest)

        def cut(size: int, *place: Any) -> None:
            *where, block = place
            before = *where, self.shape.pitch, bound
            self.launch("finish", size, self.distances, *before, block, self.notes)

        return PieceLayer("distance", self.dtype, cut)

    def backlink_output(self) -> PieceLayer:
        def cut(size: int, *place: Any) -> None:
            *where, block = place
            self.launch("cut", size, self.codes, *where, self.shape.cols, block)

        return PieceLayer("backlink", np.dtype(np.uint8), cut)
