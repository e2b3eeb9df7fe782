"""Shortest paths on a GPU: `solve`. The raster lies in its memory as one piece, if that fits.

Phases as on the CPU: blocks are read into padded arrays, `relax` in kernels/paths.cu runs waves of
tiles to convergence, then distances, predecessors and allocation follow and blocks are written.
Distances are the one fixed point of relaxation, so they have the bits that the CPU's have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...cuda.backend import Gpu
from ...cuda.device import RESERVED, memory_bound, module, shared_memory
from ...engine.plan import COMPILED_BASELINE, CUDA_BASELINE, MB, format_size
from ...engine.schedule import stream
from ...errors import InputError, PlanError
from ...grid import Block, BlockGrid, Window, ceil_div, clip, round_up
from ...io.places import Places
from ...report import Report
from ..costs import Hops, cuda_parameters
from ..cpu.relax import GUARDS, Overflow
from ..edges import infinity_of
from ..ground import Raster, Terrain
from .variants import (
    SIDE,
    absent,
    cell_dtype,
    fields_macros,
    launch,
    nodata_of,
    reading_macros,
    variant,
)

AWAY, CHANGED = 4, 8
"""Flags of tiles, as in kernels/pending.cuh."""

_SHIFT = 31
"""Cells in front of a padded array, so that tiles begin at multiples of 32 cells."""


_FILL = 1.0
"""Tiles of a wave for each warp there is, about."""

_LAUNCH = 0.1
"""Seconds that a launch of `relax` should take, between looks at Ctrl-C and targets."""

_STAGING = 1024 * MB
"""Most bytes of page-locked memory for blocks on their way."""

Write = Callable[[str, Block, np.ndarray], Any]
Read = Callable[[str, Block], np.ndarray]


# -- arrays on the device ------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A raster and its padded arrays: a ring around it, up to whole tiles.

    Attributes
    ----------
    rows, cols
        Of the raster.
    """

    rows: int
    cols: int

    @property
    def tiles(self) -> tuple[int, int]:
        return ceil_div(self.rows, SIDE), ceil_div(self.cols, SIDE)

    @property
    def pitch(self) -> int:
        """Cells from one padded row to the next."""
        return round_up(self.cols, SIDE) + 2 * SIDE

    @property
    def padded(self) -> int:
        """Padded rows."""
        return round_up(self.rows, SIDE) + 2

    @property
    def cells(self) -> int:
        """Of a padded array."""
        return self.padded * self.pitch + _SHIFT


def padded(shape: Shape, dtype: np.dtype, value: Any) -> Any:
    """An array on the device, all cells of one value; its first is the ring's corner."""
    import cupy

    return cupy.full(shape.cells, value, dtype)[_SHIFT:]


def _state_dtype(distance: np.dtype) -> np.dtype:
    """State in kernels/pending.cuh."""
    key = np.uint32 if distance == np.uint32 else np.uint64
    wave = np.dtype(
        [("sum", np.float64), ("least", key)]
        + [(n, np.uint32) for n in ("candidates", "chosen", "taken", "overflow")],
        align=True,
    )
    return np.dtype(
        [("waves", wave, 3), ("farthest", distance)]
        + [(n, np.uint64) for n in ("number", "visits", "steps")]
        + [(n, np.uint32) for n in ("arrived", "overflow")],
        align=True,
    )


_NOTES = ("negative", "far", "blocked", "reached", "valid", "flats", "lost")
"""Notes in kernels/notes.cuh; the first three are least numbers, the others counts."""


def new_notes() -> Any:
    import cupy

    return cupy.array([2**64 - 1] * 3 + [0] * (len(_NOTES) - 3), np.uint64)


class Relaxing:
    """Tiles that wait, and the kernel that relaxes them.

    Parameters
    ----------
    cell, friction
        Types of the arrays given to `run`.
    farthest
        Distances beyond are not passed on.
    """

    def __init__(
        self,
        shape: Shape,
        cost: Any,
        cell: np.dtype,
        friction: np.dtype | None,
        distance: np.dtype,
        options: tuple[bool, bool, bool],
        farthest: Any,
    ) -> None:
        import cupy

        device = cupy.cuda.Device()
        self.shape, self.dtype, self.device = shape, distance, device.id
        self._multiprocessors = device.attributes["MultiProcessorCount"]
        limit = shared_memory(device.id)
        self.macros = variant(cost, cell, friction, distance, options, limit)
        self.module = module("paths", self.macros)
        self._kernel = self.module.get_function("relax")
        self._shared = self.macros["WARPS"] * self.macros["TILE_BYTES"]
        self._kernel.max_dynamic_shared_size_bytes = self._shared
        self.parameters = cupy.array(cuda_parameters(cost))
        key = np.uint32 if distance == np.uint32 else np.uint64
        tiles = shape.tiles[0] * shape.tiles[1]
        self._keys = cupy.full(tiles, np.iinfo(key).max, key)
        self._flags = cupy.zeros(tiles, np.uint32)
        self._lists = cupy.empty(3 * tiles, np.uint32)
        self._layout = _state_dtype(distance)
        state = np.zeros((), self._layout)
        state["waves"]["least"] = np.iinfo(key).max
        self._state = cupy.array(state[None].view(np.uint8))
        self.farthest = farthest

    @property
    def pending(self) -> tuple[Any, ...]:
        """What kernels that make tiles pending take."""
        return (*self.shape.tiles, self._keys, self._flags, self._lists, self._state)

    def send_away(self) -> None:
        """No tile has been read: they keep their keys until `admit`, see kernels/fields.cu."""
        self._flags.fill(AWAY)

    def waiting(self) -> np.ndarray:
        """Tiles that are away and have keys, (down, across)."""
        keys = self._keys.get()
        return self.flagged(AWAY) & (keys != np.iinfo(keys.dtype).max).reshape(self.shape.tiles)

    def flagged(self, flag: int) -> np.ndarray:
        """Tiles with a flag, (down, across)."""
        return (self._flags.get() & flag).astype(bool).reshape(self.shape.tiles)

    @property
    def farthest(self) -> Any:
        return self._farthest

    @farthest.setter
    def farthest(self, value: Any) -> None:
        import cupy

        self._farthest = value
        at, size = self._layout.fields["farthest"][1], self.dtype.itemsize  # type: ignore[index]
        there = self._state[at : at + size]
        there[:] = cupy.array(np.array([value], self.dtype).view(np.uint8))

    def state(self) -> Any:
        """The kernel's own account, once it has come to rest."""
        return self._state.get().view(self._layout)[0]

    def run(
        self,
        heights: Any,
        frictions: Any,
        lengths: Any,
        distances: Any,
        guard: Any,
        between: Callable[[], None] = lambda: None,
    ) -> Any:
        """Relax until no tile is pending; `between` is called from time to time.

        Raises
        ------
        Overflow
            when an integer distance is beyond `guard`.
        """
        grid = (self._multiprocessors,)
        target = float(_FILL * grid[0] * self.macros["WARPS"])
        at = self._layout.fields["arrived"][1]  # type: ignore[index]
        waves = 64
        while True:
            start = time.perf_counter()
            self._state[at : at + 4] = 0
            self._kernel.kernel(
                grid,
                (32 * self.macros["WARPS"],),
                (
                    heights,
                    frictions,
                    lengths,
                    self.shape.padded,
                    self.shape.pitch,
                    distances,
                    *self.pending,
                    self.parameters,
                    self.dtype.type(guard),
                    target,
                    waves,
                ),
                shared_mem=self._shared,
                enable_cooperative_groups=True,
            )
            state = self.state()
            if state["overflow"]:
                raise Overflow
            if not state["waves"][int(state["number"]) % 3]["candidates"]:
                return state
            between()
            seconds = time.perf_counter() - start
            waves = int(np.clip(waves * _LAUNCH / seconds, waves / 2, waves * 4)) + 1


# -- blocks on their way -------------------------------------------------------------------------


class BlockStaging:
    """Room for a block in page-locked memory and on the device, and a stream between them."""

    def __init__(self, size: int) -> None:
        import cupy

        self.host = np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
        self.device = cupy.empty(size, np.uint8)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.id = cupy.cuda.Device().id

    def array(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """The host's room as an array."""
        return self.host[: shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)

    def copy(self, size: int, *, back: bool) -> None:
        """Copy to the device, or back; waits for the latter."""
        from cupy.cuda import runtime

        pair = (self.device.data.ptr, self.host.ctypes.data)
        to, source = pair[::-1] if back else pair
        kind = runtime.memcpyDeviceToHost if back else runtime.memcpyHostToDevice
        runtime.memcpyAsync(to, source, size, kind, self.stream.ptr)

    def __enter__(self) -> BlockStaging:
        import cupy

        with ExitStack() as entered:
            entered.enter_context(cupy.cuda.Device(self.id))
            entered.enter_context(self.stream)
            entered.callback(self.stream.synchronize)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)  # all of it, also where waiting for the stream fails


@dataclass
class Problem:
    """What `solve` needs to know.

    Attributes
    ----------
    ground
        Rasters, sources, model, type of distances.
    options
        (diagonal, corner_cutting, reverse).
    farthest
        Distances beyond count as unreached.
    targets
        Stop where the farthest of these is reached; None to go on to the end.
    names
        Layers to compute: "distance", "backlink", "allocation".
    threads
        That read and write blocks.
    gpu
        Where, and how much of its memory may be used.
    host_limit
        Bound on the peak resident set of the process, bytes; None for arrays.
    spill
        File for the distances of regions that the GPU has no room for.
    method
        "relax", or one of `gpu_classic.RELAXERS`, for which the raster must fit.
    """

    ground: Terrain
    options: tuple[bool, bool, bool]
    farthest: Any
    targets: Places | None
    names: Sequence[str]
    threads: int
    gpu: Gpu
    host_limit: int | None
    spill: Path
    method: str = "relax"

    @property
    def blocks(self) -> BlockGrid:
        return self.ground.blocks

    @property
    def rasters(self) -> list[Raster]:
        g = self.ground
        return [r for r in (g.heights, g.friction, g.barriers) if r is not None]

    @property
    def staging_bytes(self) -> int:
        """Of the largest block that is read or written."""
        items = [r.dtype.itemsize for r in self.rasters] + [self.ground.dtype.itemsize, 4]
        r0, r1, c0, c1 = self.blocks.window(0, 0)
        return (r1 - r0) * (c1 - c0) * max(items)

    @property
    def stagings(self) -> int:
        """Threads that read and write; 0 where the limit is too small for one."""
        most = min(self.threads, self.blocks.count, max(1, _STAGING // self.staging_bytes))
        if self.host_limit is None:
            return most
        room = self.host_limit - COMPILED_BASELINE - CUDA_BASELINE
        return max(0, min(most, room // self._passing))

    @property
    def host_memory(self) -> int:
        """Predicted peak of the process, bytes, without arrays of its own."""
        return COMPILED_BASELINE + CUDA_BASELINE + self.stagings * self._passing

    @property
    def _passing(self) -> int:
        """Bytes of a thread: its staging, and what layers read and write in; see `plan_stream`."""
        return 5 * self.staging_bytes

    def cell_dtypes(self) -> tuple[np.dtype, np.dtype | None]:
        """Types of heights and frictions on the GPU."""
        g = self.ground
        friction = None if g.friction is None else cell_dtype(g.friction.dtype, g.dtype)
        return cell_dtype(g.heights.dtype, g.dtype), friction

    def memory(self, side: int) -> int:
        """Bytes of the GPU's memory that regions of `side` blocks on a side take."""
        rows = min(side * self.blocks.block, self.blocks.rows)
        cols = min(side * self.blocks.block, self.blocks.cols)
        shape = Shape(rows, cols)
        cell, friction = self.cell_dtypes()
        item = self.ground.dtype.itemsize
        linked = "backlink" in self.names
        each = cell.itemsize + (friction.itemsize if friction else 0) + item
        if linked:
            each += 1 + 1 + 4  # codes, steps of flats, hops
        if "allocation" in self.names and (rows, cols) == (self.blocks.rows, self.blocks.cols):
            each = max(each, item + 1 + 8)
        tiles = shape.tiles[0] * shape.tiles[1]
        lists = tiles * (8 + 4 + 12 + (4 + 4 + 12 if linked else 0))
        rims = 8 * 4 * (rows + cols) + 32 * shape.padded
        if self.method != "relax":
            lists += shape.cells // 8 + 48 * tiles  # flags; keys, and what finds the pending ones
        sources = 24 * len(self.ground.sources)
        staging = self.stagings * self.staging_bytes
        return RESERVED + shape.cells * each + lists + rims + sources + staging + 2**16

    def plan(self) -> tuple[int, int]:
        """The limit in force, and the side of regions in blocks.

        Raises
        ------
        PlanError
            when not even one block fits, here or in the process.
        InputError
            when the method needs the whole raster, which does not fit.
        """
        if not self.stagings:
            least = COMPILED_BASELINE + CUDA_BASELINE + self._passing
            raise PlanError(
                f"a memory limit of {format_size(self.host_limit or 0)} is too small for CUDA and "
                f"blocks of {self.blocks.block}; give at least {ceil_div(least, MB)} MB, or use "
                "--backend cpu"
            )
        limit = self.gpu.memory
        side = max(self.blocks.shape)
        while side > 1 and self.memory(side) > limit:
            side -= 1
        if self.memory(side) > limit:
            raise PlanError(
                f"shortest paths in blocks of {self.blocks.block} take "
                f"{format_size(self.memory(1))} of GPU memory, more than "
                + ("the limit of " if self.gpu.given else "")
                + f"{format_size(limit)}"
                + ("" if self.gpu.given else " that are free")
                + "; raise --gpu-memory-limit, convert with a smaller --block-size, or use "
                "--backend cpu"
            )
        count = ceil_div(max(self.blocks.shape), side)
        if count > 1 and self.method != "relax":
            raise InputError(
                f"method {self.method!r} needs the whole raster in GPU memory, "
                f"{format_size(self.memory(max(self.blocks.shape)))} of {format_size(limit)}; "
                "raise --gpu-memory-limit, or use --method relax"
            )
        return limit, ceil_div(max(self.blocks.shape), count)


def solve(
    problem: Problem, report: Report, tick: Callable[[int], None], write: Write, read: Read
) -> dict[str, int]:
    """Compute the layers of a problem and write them block by block.

    Parameters
    ----------
    tick
        Told how many cells were read or written since.
    write
        Called with layer, block and cells from several threads.
    read
        Called with layer and block, likewise: what was written.

    Returns
    -------
    counts
        "reached" and "valid" cells, "regions" and "region_visits", "tiles" and "tile_visits",
        "waves"; "memory", bytes of the GPU's as planned.

    Raises
    ------
    Overflow
        when distances do not fit their type.
    PlanError
        when the GPU's memory is too small.
    """
    import cupy

    from .regions import Regions

    limit, side = problem.plan()
    device = problem.gpu.device
    with memory_bound(limit, device), cupy.cuda.Device(device):
        if side >= max(problem.blocks.shape):
            return _Whole(problem, report, tick, write).run()
        return Regions(problem, side, report, tick, write, read).run()


class Piece:
    """A window of the raster on the device, with a ring of cells around it.

    Attributes
    ----------
    heights, frictions, distances
        Padded, see `Shape`.
    codes, flat
        Backlinks, not padded, and steps on flats, padded; from `link`.
    """

    def __init__(
        self, problem: Problem, window: Window, pool: list[BlockStaging], notes: Any
    ) -> None:
        self.problem, self.window, self.pool, self.notes = problem, window, pool, notes
        r0, r1, c0, c1 = window
        self.shape = Shape(r1 - r0, c1 - c0)
        g = self.ground = problem.ground
        self.dtype = g.dtype
        mine = (g.sources.rows >= r0) & (g.sources.rows < r1)
        mine &= (g.sources.cols >= c0) & (g.sources.cols < c1)
        self.mine = np.flatnonzero(mine)
        self.codes: Any = None
        self.flat: Any = None
        self._allocate()

    def _allocate(self) -> None:
        import cupy

        problem, g = self.problem, self.ground
        cell, friction = problem.cell_dtypes()
        self.distances = padded(self.shape, self.dtype, absent(self.dtype))
        self.heights: Any = padded(self.shape, cell, 0)
        self.frictions: Any = self.heights
        if friction is not None:
            self.frictions = padded(self.shape, friction, 0)
        lengths = g.lengths[:3, self.window[0] : self.window[0] + self.shape.padded]
        self.lengths = cupy.array(np.ascontiguousarray(lengths))
        self.relaxing = Relaxing(
            self.shape,
            g.model.kernel,
            cell,
            friction,
            self.dtype,
            problem.options,
            problem.farthest,
        )
        self.kernels = module(
            "fields", fields_macros(self.relaxing.macros["MODEL"], cell, self.dtype)
        )
        sources = g.sources
        rows = sources.rows[self.mine] - self.window[0]
        self.ids = cupy.array(rows * self.shape.cols + sources.cols[self.mine] - self.window[2])
        self.costs = cupy.array(sources.costs[self.mine].astype(self.dtype))

    def noted(self) -> dict[str, int]:
        return dict(zip(_NOTES, map(int, self.notes.get()), strict=True))

    def launch(self, name: str, cells: int, *arguments: Any) -> None:
        """Run a kernel of kernels/fields.cu."""
        launch(self.kernels.get_function(name), cells, *arguments)

    # -- reading ---------------------------------------------------------------------------

    def read(
        self,
        done: Callable[[Block], None] | None = None,
        *,
        blocks: Collection[Block] | None = None,
        then: Callable[[Block, BlockStaging], None] = lambda block, staging: None,
    ) -> None:
        """Fill heights and frictions; cells are not reached, or absent.

        Parameters
        ----------
        blocks
            Of the window and around it; all of them when None.
        then
            What else to do with each.
        """
        import cupy

        jobs = list(self._layers())
        cupy.cuda.Device().synchronize()

        def read(item: tuple[Block, Window], staging: BlockStaging) -> None:
            for raster, place in jobs:
                with staging:
                    self._read_part(raster, place, item[1], staging)
            then(item[0], staging)

        stream(
            (part for part in self._parts() if blocks is None or part[0] in blocks),
            read,
            lambda item, _: None,
            buffers=self.pool,
            readers=len(self.pool),
            done=None if done is None else lambda item: done(item[0]),
        )
        self._refuse()

    def _parts(self) -> Iterator[tuple[Block, Window]]:
        """Blocks that reach into the window or its ring, and their parts."""
        blocks, b = self.problem.blocks, self.problem.blocks.block
        r0, r1, c0, c1 = self.window
        ring = clip((r0 - 1, r1 + 1, c0 - 1, c1 + 1), (0, blocks.rows, 0, blocks.cols))
        for i in range(ring[0] // b, ceil_div(ring[1], b)):
            for j in range(ring[2] // b, ceil_div(ring[3], b)):
                yield (i, j), clip(blocks.window(i, j), ring)

    def around(self) -> set[Block]:
        """Blocks that reach into the ring alone."""
        return {at for at, _ in self._parts()} - set(self.blocks())

    def _layers(self) -> Iterator[tuple[Raster, Callable[..., None]]]:
        """The rasters, and what puts a part of each in its place."""
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
            target = r0 * cols + c0, cols, self.shape.pitch, cells, self.distances
            settings = np.int32(appear), np.int32(frictions), self.notes

            def place(
                part: tuple[Any, ...], nodata: tuple[Any, ...], kernel: Any = kernel,
                target: tuple[Any, ...] = target, settings: tuple[Any, ...] = settings,
            ) -> None:  # fmt: skip
                launch(kernel, part[1] * part[2], *part, *target, *nodata, *settings)

            yield raster, place
        if g.barriers is not None:
            macros = reading_macros(g.barriers.dtype, g.barriers.dtype, self.dtype)
            close = module("read", macros).get_function("close")

            def shut(part: tuple[Any, ...], nodata: tuple[Any, ...]) -> None:
                launch(close, part[1] * part[2], *part, self.shape.pitch, self.distances, *nodata)

            yield g.barriers, shut

    def _read_part(
        self, raster: Raster, place: Callable[..., None], part: Window, staging: BlockStaging
    ) -> None:
        r0, r1, c0, c1 = part
        cells = staging.array((r1 - r0, c1 - c0), raster.dtype)
        raster.read(part, cells)
        staging.copy(cells.nbytes, back=False)
        at = r0 - self.window[0], c0 - self.window[2]
        place((staging.device, *cells.shape, *at), nodata_of(raster))

    def _refuse(self) -> None:
        """Errors that the CPU reports when it loads a block."""
        noted, cols = self.noted(), self.problem.blocks.cols
        if noted["far"] != 2**64 - 1:
            raise InputError(
                f"{self.ground.heights.name}: heights beyond 2**61 have no integer distances; "
                "convert them to float64"
            )
        if noted["negative"] != 2**64 - 1:
            self.ground.refuse_negative(*divmod(noted["negative"], cols))

    # -- relaxing --------------------------------------------------------------------------

    def seed(self) -> None:
        """Begin at the sources."""
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

    def relax(self, between: Callable[[], None] = lambda: None) -> Any:
        """To convergence; the kernel's account."""
        guard = GUARDS[self.dtype.itemsize] if self.dtype.kind == "u" else np.inf
        return self.relaxing.run(
            self.heights, self.frictions, self.lengths, self.distances, guard, between
        )

    def at(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Distances of cells of the window; the largest where there is none."""
        import cupy

        places = (rows - self.window[0] + 1) * self.shape.pitch + cols - self.window[2] + 1
        found = self.distances[cupy.array(places)].get()
        infinity = infinity_of(found)
        return np.where(found <= infinity, found, self.dtype.type(infinity))

    # -- what follows from distances -------------------------------------------------------

    def link(self, farthest: Any) -> None:
        """Predecessors, but for flats."""
        import cupy

        rows, cols, pitch = self.shape.rows, self.shape.cols, self.shape.pitch
        self.codes = cupy.empty(rows * cols, np.uint8)
        self.flat = padded(self.shape, np.dtype(np.uint8), 0)
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
        """Of the window."""
        b = self.problem.blocks.block
        for i, j in BlockGrid(self.shape.rows, self.shape.cols, b).ids():
            yield i + self.window[0] // b, j + self.window[2] // b

    def move(
        self,
        outputs: Sequence[PieceLayer],
        write: Write,
        done: Callable[[Block], None] | None = None,
        blocks: Iterable[Block] | None = None,
    ) -> None:
        """Write blocks of some outputs, in threads; all of the window when None."""

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
        """Do something for blocks, in threads; for all of the window when None."""
        import cupy

        cupy.cuda.Device().synchronize()
        stream(
            self.blocks() if blocks is None else blocks,
            work,
            lambda at, _: None,
            buffers=self.pool,
            readers=len(self.pool),
            done=done,
        )

    def distance_output(self, farthest: Any) -> PieceLayer:
        """Distances as they are stored; counts reached and valid cells."""
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


class PieceLayer(NamedTuple):
    """A layer of a piece: `cut` copies a window of so many cells to a block on the device."""

    name: str
    dtype: np.dtype
    cut: Callable[..., None]


class FlatDistance:
    """Hops on the flats of a piece, after `Piece.link`."""

    def __init__(self, piece: Piece) -> None:
        self.piece, self.shape = piece, piece.shape
        self.dtype: np.dtype = np.dtype(np.uint32)
        self.infinity = 2**31 - 1
        self.hops = padded(self.shape, self.dtype, self.infinity)
        kind, every = np.dtype(np.uint8), (True, True, False)
        self.relaxing = Relaxing(self.shape, Hops(), kind, None, self.dtype, every, self.infinity)
        self.kernels = module("fields", fields_macros("HOPS", kind, self.dtype))

    def begin(self) -> int:
        """Cells of flats are not reached; how many there are."""
        before = self.piece.noted()["flats"]
        launch(
            self.kernels.get_function("flats"),
            32 * self.shape.tiles[0] * self.shape.tiles[1],
            self.piece.flat,
            self.shape.pitch,
            self.hops,
            *self.relaxing.pending,
            self.piece.notes,
        )
        return self.piece.noted()["flats"] - before

    def relax(self) -> Any:
        flat = self.piece.flat
        return self.relaxing.run(flat, flat, self.piece.lengths, self.hops, self.infinity)

    def close(self) -> None:
        """Give the cells of flats their codes."""
        rows, cols = self.shape.rows, self.shape.cols
        launch(
            self.kernels.get_function("close_flats"),
            rows * cols,
            self.piece.flat,
            self.hops,
            rows,
            cols,
            self.shape.pitch,
            self.piece.codes,
            self.piece.notes,
        )
        lost = self.piece.noted()["lost"]
        if lost:
            raise AssertionError(f"{lost} cells of flats lead nowhere")


class _Whole:
    """One solve of a raster that fits."""

    def __init__(
        self, problem: Problem, report: Report, tick: Callable[[int], None], write: Write
    ) -> None:
        self.problem, self.report, self.tick, self.write = problem, report, tick, write
        self.pool = [BlockStaging(problem.staging_bytes) for _ in range(problem.stagings)]
        window = (0, problem.blocks.rows, 0, problem.blocks.cols)
        self.piece = Piece(problem, window, self.pool, new_notes())

    def run(self) -> dict[str, int]:
        from .classic import RELAXERS

        piece = self.piece
        with self.report.phase("read"):
            piece.read(self._done)
        with self.report.phase("relax"):
            piece.seed()
            relax = RELAXERS.get(self.problem.method, Piece.relax)
            found = relax(piece, self._look_at_targets)
            self._look_at_targets()
        farthest = piece.relaxing.farthest
        outputs = [piece.distance_output(farthest)]
        if "backlink" in self.problem.names:
            with self.report.phase("finalise"):
                piece.link(farthest)
                hopping = FlatDistance(piece)
                if hopping.begin():
                    hopping.relax()
                    hopping.close()
                del hopping
                piece.heights = piece.frictions = piece.flat = None
            outputs.append(piece.backlink_output())
        if "allocation" in self.problem.names:
            with self.report.phase("allocation"):
                outputs.append(self._allocation())
        with self.report.phase("write"):
            piece.move(outputs, self.write, self._done)
        noted = piece.noted()
        return {
            "reached": noted["reached"],
            "valid": noted["valid"],
            "regions": 1,
            "region_visits": 1,
            "blocks_read": self.problem.blocks.count,
            "blocks_resumed": 0,
            "tiles": piece.shape.tiles[0] * piece.shape.tiles[1],
            "tile_visits": int(found["visits"]),
            "waves": int(found["number"]),
            "memory": self.problem.memory(max(self.problem.blocks.shape)),
        }

    def _done(self, at: Block) -> None:
        r0, r1, c0, c1 = self.problem.blocks.window(*at)
        self.tick((r1 - r0) * (c1 - c0))

    def _look_at_targets(self) -> None:
        """No path that is wanted is longer than the way to the farthest target."""
        targets, relaxing = self.problem.targets, self.piece.relaxing
        if targets is not None and len(targets):
            found = self.piece.at(targets.rows, targets.cols).max()
            relaxing.farthest = min(relaxing.farthest, found)

    def _allocation(self) -> PieceLayer:
        import cupy

        from .allocate import follow, naming

        piece = self.piece
        names = cupy.array(self.problem.ground.sources.ids)
        size = piece.shape.rows, piece.shape.cols
        labels = follow(piece.kernels, piece.codes, piece.ids, names, *size)
        return naming(piece.kernels, labels, np.uint64(0), piece.shape.cols)


__all__ = ["Problem", "Relaxing", "Shape", "solve"]
