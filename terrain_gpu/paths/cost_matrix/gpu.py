"""Batches on a GPU: the distances from many sources at once, and the paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.backend import Gpu
from ...cuda.device import memory_bounds, module
from ...engine.plan import format_size
from ...errors import PlanError
from ...grid import Block, clip
from ..cost.terrain import Terrain
from ..relax.gpu.flats import FlatDistance
from ..relax.gpu.memory import BlockStaging, Shape, new_notes
from ..relax.gpu.piece import Piece
from ..relax.gpu.problem import Problem
from ..relax.gpu.variants import SIDE, launch
from .lanes import LANES
from .reached import Reached
from .walk import INSIDE, ON_FLAT

if TYPE_CHECKING:
    from ..least_cost_network.matrix import PairedPlaces
    from .operation import MatrixProblem

PATH = np.dtype(
    [(name, np.int64) for name in ("plane", "row", "col", "state", "steps")]
    + [("length", np.float64, 2), ("climb", np.float64, 2)]
)
"""The struct Path in kernels/walk.cu."""

_PATHS = 1 << 18
"""Paths that are followed at a time."""

_STEPS = 1 << 26
"""Steps of paths that are copied from the GPU at a time."""

_MOST = 1 << 16
"""Steps of a path in one launch."""


def form_of(
    problem: MatrixProblem | PairedPlaces, gpu: Gpu, threads: int, host_limit: int | None
) -> Problem:
    """The problem as `paths.relax.gpu` takes it; backlinks are what flats need."""
    how = problem.farthest, None, ("backlink",), threads, gpu, host_limit, Path()
    return Problem(problem.ground, problem.options, *how)


def _shape(form: Problem) -> Shape:
    return Shape(form.blocks.rows, form.blocks.cols, form.halo)


def memory_of(form: Problem, planes: int) -> int:
    """Bytes of GPU memory for so many planes."""
    shape, item = _shape(form), form.ground.dtype.itemsize
    each = item * shape.cells + 24 * shape.tiles[0] * shape.tiles[1]
    walks = _PATHS * PATH.itemsize + _STEPS
    return form.memory(*form.blocks.shape) + (planes - 1) * each + walks


def planes_within(form: Problem, most: int) -> int:
    """As many planes as fit, a multiple of `LANES`, and no more than hold `most` sources.

    Raises
    ------
    PlanError
        when there is no room for `LANES`.
    """
    limit, given = form.gpu.memory, form.gpu.given
    one, two = memory_of(form, LANES), memory_of(form, 2 * LANES)
    if one > limit:
        raise PlanError(
            f"a cost matrix over {form.blocks.rows} x {form.blocks.cols} cells takes "
            f"{format_size(one)} of GPU memory, more than "
            + (f"the limit of {format_size(limit)}" if given else f"{format_size(limit)} that are "
               "free")
            + "; raise --gpu-memory-limit, or use --backend cpu"
        )  # fmt: skip
    tiles = int(np.prod(_shape(form).tiles))
    fitting = min(1 + (limit - one) // (two - one), 2**32 // (LANES * tiles))
    return LANES * max(min(fitting, -(-most // LANES)), 1)


class PlaneStack:
    """Distances from many sources on a GPU: a *plane* of the raster for each, over shared cells.

    `relax` in kernels/paths.cu takes tiles of all planes into its waves. The distances are its
    unique fixed point, so they have the same bits as on the CPU.

    Parameters
    ----------
    form
        See `form_of`.
    planes
        Their number.
    stopped
        Raises an error if the run is to end; called about ten times a second.
    """

    def __init__(
        self,
        problem: MatrixProblem | PairedPlaces,
        form: Problem,
        planes: int,
        stopped: Callable[[], None],
    ) -> None:
        self.problem, self.planes, self.stopped = problem, planes, stopped
        blocks = form.blocks
        pool = [BlockStaging(form.staging_bytes) for _ in range(form.stagings)]
        window = (0, blocks.rows, 0, blocks.cols)
        self.piece = piece = Piece(form, window, pool, new_notes(), planes)
        self.shape = piece.shape
        self._size = self.shape.padded * self.shape.pitch
        piece.read()
        self.stack = piece.distances[: planes * self._size].reshape(planes, self._size)
        self.stack[1:] = self.stack[0]
        self._walk = module("walk", piece.relaxing.macros).get_function("walk")
        self._roots: tuple[Any, ...] = ()
        self._grounds: Sequence[Terrain] = ()
        self.visits = 0

    def solve(self, grounds: Sequence[Terrain], reached: Reached) -> None:
        """Find the distances from the sources of each ground, until the targets are final."""
        self._clear()
        self._seed(grounds)
        self._limit(reached)
        ends, plane = reached.ends, np.arange(len(grounds)) * self._size
        places = self._places(ends.rows, ends.cols)[:, None] + plane

        def look() -> None:
            self.stopped()
            found = self._at(places)
            reached.note(slice(None), np.where(found < reached.infinity, found, reached.infinity))
            self._limit(reached)

        state = self.piece.relax(look)
        look()
        self.visits += int(state["visits"])

    def _limit(self, reached: Reached) -> None:
        none = 0 if self.piece.dtype.kind == "u" else -np.inf
        limits = np.full(self.planes, none, self.piece.dtype)
        limits[: len(reached.limits)] = reached.limits
        self.piece.relaxing.farthest = limits

    def _clear(self) -> None:
        """Forget all distances; absent cells stay so: NaN, or the largest integer."""
        import cupy

        infinity = self.piece.dtype.type(self.problem.infinity)
        cupy.maximum(self.stack, infinity, out=self.stack)

    def _places(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        return (rows + 1) * self.shape.pitch + cols + 1

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Distances at places of the stack."""
        import cupy

        return self.piece.distances[cupy.array(places.ravel())].get().reshape(places.shape)

    def _seed(self, grounds: Sequence[Terrain]) -> None:
        """Set the distances of sources; their tiles become pending."""
        import cupy

        self._grounds = grounds
        parts = [self._starts(ground) for ground in grounds]
        plane = np.repeat(np.arange(len(parts)), [len(cells) for cells, _ in parts])
        first = np.searchsorted(plane, np.arange(self.planes + 1))
        cells, starts = (np.concatenate(part) for part in zip(*parts, strict=True))
        rows, cols = np.divmod(cells, self.shape.cols)
        self.piece.distances[cupy.array(plane * self._size + self._places(rows, cols))] = (
            cupy.array(starts)
        )
        self._roots = cupy.array(first), cupy.array(cells), cupy.array(starts)
        down, across = self.shape.tiles
        reach, found = (-self.shape.halo, 0, self.shape.halo), []  # of steps
        for dy in reach:
            for dx in reach:
                i, j = (rows + dy) // SIDE, (cols + dx) // SIDE
                there = (i >= 0) & (i < down) & (j >= 0) & (j < across)
                own = (i == rows // SIDE) & (j == cols // SIDE)
                tiles = plane * down * across + i * across + j
                found.append(np.stack((tiles, np.arange(len(tiles)), own))[:, there])
        tiles, k, own = np.concatenate(found, axis=1)
        order = np.lexsort((starts[k], tiles))
        tiles, once = np.unique(tiles[order], return_index=True)
        whole = np.maximum.reduceat(own[order], once) > 0
        self.piece.relaxing.restart(tiles, starts[k[order[once]]], whole)

    def _starts(self, ground: Terrain) -> tuple[np.ndarray, np.ndarray]:
        """The cells of a ground's sources, ascending, and their start values."""
        import cupy

        sources = ground.sources
        places = self._places(sources.rows, sources.cols)
        absent = ~(self._at(places) <= self.problem.infinity)
        if absent.any():
            raise ground.blocked(int(np.argmax(absent)))
        values = sources.costs.astype(self.piece.dtype)
        if self.problem.model.kind.bottleneck:
            own = self.piece.heights[cupy.array(places)].get()
            values = np.where(values == 0, own, np.maximum(values, own)) + 0.0
        cells = sources.rows * self.shape.cols + sources.cols
        order = np.lexsort((values, cells))
        cells, once = np.unique(cells[order], return_index=True)
        return cells, values[order[once]].astype(self.piece.dtype)

    def around(self, plane: int, at: Block) -> np.ndarray:
        """The distances of a plane in a block, with their halo; from any thread."""
        import cupy

        blocks = self.problem.blocks
        r0, r1, c0, c1 = window = blocks.window(*at)
        shape, h = self.shape, self.shape.halo
        rows, cols = (r0 - h, r1 + h), (c0 - h, c1 + h)
        ring = clip((*rows, *cols), (-1, shape.rows + 1, -1, shape.cols + 1))
        with cupy.cuda.Device(self.piece.relaxing.device):
            cells = self.stack[plane].reshape(shape.padded, shape.pitch)
            found = cells[ring[0] + 1 : ring[1] + 1, ring[2] + 1 : ring[3] + 1].get()
            across = [
                (here, cells[ring[0] + 1 : ring[1] + 1, there + 1].get())
                for here, there in blocks.beyond_seam(window, h)
            ]
        # The stack has one ring around the raster; what lies further out is absent, too.
        missing = np.abs(np.subtract((*rows, *cols), ring)).reshape(2, 2)
        found = np.pad(found, missing, mode="edge")
        for here, column in across:
            found[:, here] = np.pad(column, missing[0], mode="edge")
        return found

    # -- paths -----------------------------------------------------------------------------

    def take_visits(self) -> int:
        """The number of visits of tiles since the last call."""
        found, self.visits = self.visits, 0
        return found

    def tracing(self, lanes: slice, reached: Reached) -> Callable[..., Any]:
        """The function that follows paths of some planes, see `solve.Trace`."""

        def trace(ends: np.ndarray, keep: Any) -> tuple[np.ndarray, np.ndarray]:
            return self.trace(lanes.start + ends[:, 0], ends[:, 1:], reached.limits, keep)

        return trace

    def trace(
        self, plane: np.ndarray, ends: np.ndarray, limits: np.ndarray, keep: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Follow paths to their sources.

        Parameters
        ----------
        plane, ends
            Of each path, and the row and column of its target; sorted by plane.
        limits
            Of each plane: larger distances are not final.
        keep
            As for `trace.Tracer`.

        Returns
        -------
        sums, cells
            As of `trace.Tracer`.
        """
        paths = np.zeros(len(plane), PATH)
        paths["plane"], paths["row"], paths["col"] = plane, *ends.T
        given = paths.copy()

        def follow(which: np.ndarray, codes: DeviceArray = None) -> None:
            for first in range(0, len(which), _PATHS):
                part = which[first : first + _PATHS]
                paths[part] = self._follow(given[part], part, keep, codes)

        follow(np.arange(len(paths)))
        stopped = np.flatnonzero(paths["state"] == ON_FLAT)
        for flat in np.unique(plane[stopped]).tolist():
            follow(stopped[plane[stopped] == flat], self._codes(flat, limits[flat]))
        sums = paths["length"].sum(axis=1), paths["climb"].sum(axis=1)
        return np.stack(sums, axis=1), paths["steps"] + 1

    def _codes(self, plane: int, limit: Any) -> DeviceArray:
        """The predecessors of all cells of a plane, those on flats too."""
        import cupy

        view, sources = copy(self.piece), self._grounds[plane].sources
        view.distances = self.stack[plane]
        view.ids = cupy.array(sources.rows * self.shape.cols + sources.cols)
        view.costs = cupy.array(sources.costs.astype(self.piece.dtype))
        view.link(limit)
        flats = FlatDistance(view)
        if flats.begin():
            flats.relax()
            flats.close()
        return view.codes

    def _follow(
        self, given: np.ndarray, which: np.ndarray, keep: Any, codes: DeviceArray = None
    ) -> np.ndarray:
        """Follow some paths; keep the steps of those that do not end on a flat."""
        found = self._launch(given, codes, None, None)
        if keep is None:
            return found
        ready = np.flatnonzero((found["state"] != ON_FLAT) & (found["steps"] > 0))
        groups = np.cumsum(found["steps"][ready]) // _STEPS
        for k in np.unique(groups).tolist():
            mine = ready[groups == k]
            counts = found["steps"][mine]
            self._keep(given[mine], which[mine], counts, keep, codes)
        return found

    def _keep(
        self,
        given: np.ndarray,
        which: np.ndarray,
        counts: np.ndarray,
        keep: Any,
        codes: DeviceArray,
    ) -> None:
        import cupy

        steps = cupy.empty(int(counts.sum()), np.uint8)
        self._launch(given, codes, cupy.array(np.cumsum(counts) - counts), steps)
        keep.add(which, counts, steps.get())

    def _launch(
        self, given: np.ndarray, codes: DeviceArray, first: DeviceArray, steps: DeviceArray
    ) -> np.ndarray:
        """Follow paths to their ends, or to flats."""
        import cupy

        piece, backwards = self.piece, np.int32(self.problem.reverse)
        paths = cupy.array(given.view(np.uint8))
        null = np.uint64(0)
        while True:
            self.stopped()
            launch(
                self._walk,
                len(given),
                piece.heights,
                piece.frictions,
                piece.lengths,
                self.shape.padded,
                self.shape.pitch,
                piece.distances,
                piece.relaxing.parameters,
                null if codes is None else codes,
                *self._roots,
                self.shape.cols,
                backwards,
                paths,
                len(given),
                _MOST,
                null if first is None else first,
                null if steps is None else steps,
            )
            found = paths.get().view(PATH)
            if not (found["state"] == INSIDE).any():
                return found


@contextmanager
def bounded(form: Problem) -> Iterator[None]:
    """The context in which a stack is made and used: its device, and a bound of its memory."""
    import cupy

    with memory_bounds(form.gpu.memory, [form.gpu.device]), cupy.cuda.Device(form.gpu.device):
        yield
