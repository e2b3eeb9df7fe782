"""Building a distance index, block by block, on the CPU or a GPU."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from ... import arguments
from ...arguments import Backend, Connectivity, Cost, checked
from ...cuda.backend import Gpu, Placement, find_gpu
from ...cuda.device import memory_bound
from ...engine.plan import COMPILED_BASELINE, CUDA_BASELINE, MB, format_size, limit_of, threads_of
from ...engine.schedule import stream
from ...errors import PlanError, StoreError
from ...grid import TILE, Block, ceil_div
from ...grid.lengths import step_lengths
from ...io.places import NO_PLACES
from ...progress import Progress, silent
from ...report import Report
from ...store import TileStore
from ...store.checksums import sealed_line, unsealed_line
from ...store.files import new_file, output_errors, sync_tree
from ...store.metadata import drop_consolidated
from ...store.run import Target
from ...store.swap import beside, exclusive, is_locked, swap
from ..costs import MODELS, CostModel, friction_beside
from ..cpu.tile import PADDED
from ..fields import Field
from ..ground import Raster, Terrain
from .files import FORMAT, NAME, Index, index_dtype, index_settings
from .tile import LANES, entries_of, index_tile, new_index_work


class _Build(Target):
    """A build: its folder, what is finished of it, and how it gets into place."""

    def __init__(self, store: Path) -> None:
        super().__init__(store, NAME, replace_store=False)

    def records(self, index: Index) -> Iterator[tuple[int, int]]:
        """Blocks that are finished."""
        with open(self.manifest, "rb") as lines:
            next(lines, None)
            for line in lines:
                # A kill may leave the last line half written: that block is simply done again.
                if not (at := unsealed_line(line)):
                    continue
                with contextlib.suppress(StoreError):
                    index.read(tuple(at))
                    yield tuple(at)
        index.close()

    def put_in_place(self) -> None:
        sync_tree(self.work)
        swap(self.work, self.place, beside(self.work, "replaced"))
        drop_consolidated(self.base)
        self.clear()
        self._unlock()


@checked(
    data=arguments.store,
    cost=arguments.one_of(MODELS),
    friction=arguments.text,
    barriers=arguments.text,
)
def build_index(  # noqa: PLR0913 - keyword-only
    data: str | os.PathLike[str] | TileStore,
    *,
    cost: Cost = "absdiff",
    friction: str | None = None,
    barriers: str | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: Connectivity = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Build the distance index of a store, for `shortest_paths` with ``method="index"``.

    A build that was killed goes on where it stood. An index that is there already, for the same
    layers and costs, stays.

    Parameters
    ----------
    data
        A store, or its path.
    cost, friction, barriers, parameters, connectivity, corner_cutting, reverse, layer
        As for `shortest_paths`. `reverse` matters for tobler and langmuir only.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    backend
        "cpu", "cuda", or "auto": CUDA where it works. The files are the same, byte for byte.
    device
        Which GPU.
    gpu_memory_limit
        Bound on the GPU memory used, bytes; nine tenths of what is free when None.
    overwrite
        Replace an index for other costs, or a damaged one.
    progress
        Called with the cells just done and those to do in all.

    Returns
    -------
    Report
        Its result has "bytes", "bytes_per_cell", "blocks_resumed" and "built".

    Raises
    ------
    InputError
        for unknown models and integer heights of 64 bits; when CUDA is wanted and does not work.
    PlanError
        when a limit is too small.
    StoreError
        when an index for other costs is there, or another run is building one.
    OutputError
        when the disk is full.
    """
    store = data if isinstance(data, TileStore) else TileStore.open(data)
    friction = friction_beside(cost, layer, friction)
    model = CostModel(cost, friction is not None, parameters or {})
    rasters = {"layer": layer, "friction": friction, "barriers": barriers}
    opened = {key: None if name is None else _raster(store, name) for key, name in rasters.items()}
    problem = {
        "connectivity": connectivity,
        "corner_cutting": corner_cutting,
        "reverse": reverse,
    }
    block_size = store.layer(layer).block_size
    gpu = find_gpu(backend, device, gpu_memory_limit, memory_limit, block_size)
    limits = limit_of(memory_limit), threads
    placement = Placement(gpu, progress)
    report = Report("build-index")
    with report.measured():
        _build(store, model, problem, opened, limits, placement, overwrite, report)
    report.settings |= placement.settings()
    return report


def _raster(store: TileStore, name: str) -> Raster:
    found = store.layer(name)
    return Raster(found, str(found.path), found.nodata)


def _build(
    store: TileStore,
    model: CostModel,
    problem: Mapping[str, Any],
    rasters: Mapping[str, Any],
    limits: tuple[int, int | None],
    placement: Placement,
    overwrite: bool,
    report: Report,
) -> None:
    heights = rasters["layer"]
    blocks = heights.data.blocks
    dtype = index_dtype(model, heights.dtype)
    settings = index_settings(model, problem, rasters)
    own = {
        "format": FORMAT,
        "settings": settings,
        "dtype": dtype.name,
        "symmetric": not model.kind.directed,
    }
    target = _Build(store.path)
    index = Index(target.work, blocks, own)

    @cache
    def plan_on(gpu: Gpu | None) -> _Plan:
        return _plan(index, model, limits[0] - placement.held, limits[1], gpu)

    report.settings = {**settings, "threads": placement.run(plan_on).threads}
    report.cells = blocks.rows * blocks.cols
    with output_errors(store.path), exclusive(store.path):
        if is_locked(target.manifest):
            raise StoreError(f"{store.path}: another run is building the distance index")
        there = None if overwrite else Index.open(store, blocks)
        if there is not None:
            different = there.difference(settings)
            if different:
                raise StoreError(
                    f"{there.path}: is for other costs: {different}; --overwrite replaces it"
                )
            report.result = _result(there, 0, built=False)
            return
        header = json.loads(json.dumps(own))
        if target.header() != header:
            target.begin(store.grid, header)
        target.lock()
        index.write_metadata(own)

    def write(gpu: Gpu | None) -> None:
        """Write what is not there; what a GPU has left, or an earlier run, are the same files."""
        plan = plan_on(gpu)
        report.settings["threads"] = plan.threads
        done = set(target.records(index))
        _write_blocks(target, index, model, problem, rasters, done, plan, placement.progress)

    try:
        resumed = len(set(target.records(index)))
        placement.run(write)
        stored = blocks.count * index.file_bytes
        with output_errors(store.path), exclusive(store.path):
            index.write_metadata({**own, "stored_bytes": stored})
            target.put_in_place()
    except BaseException:
        target.release(keep=True)
        raise
    index.bytes = stored
    report.result = _result(index, resumed, built=True)


def _result(index: Index, resumed: int, *, built: bool) -> dict[str, Any]:
    return {
        "bytes": index.bytes,
        "bytes_per_cell": round(index.bytes / (index.blocks.rows * index.blocks.cols), 2),
        "blocks_resumed": resumed,
        "built": built,
    }


class _Plan(NamedTuple):
    """Threads, and for a GPU which one, and rows of tiles that are solved at once."""

    threads: int
    gpu: Gpu | None = None
    tile_rows: int = 0


def _plan(
    index: Index, model: CostModel, memory_limit: int | None, threads: int | None, gpu: Gpu | None
) -> _Plan:
    """How to build under the limits."""
    if gpu is None:
        return _Plan(_threads_within(index, model, memory_limit, threads, COMPILED_BASELINE))
    from .gpu import plan

    baseline = COMPILED_BASELINE + CUDA_BASELINE
    most = _threads_within(index, model, memory_limit, threads, baseline)
    most, tile_rows = plan(index, most, gpu.memory)
    return _Plan(most, gpu, tile_rows)


def _threads_within(
    index: Index, model: CostModel, memory_limit: int | None, threads: int | None, baseline: int
) -> int:
    """Threads that build under a memory limit."""
    blocks, item = index.blocks, index.dtype.itemsize
    limit = limit_of(memory_limit)
    cells = (blocks.block + 2) ** 2
    # Heights, frictions, barriers, as read and as the kernels take them; masks; a row of tiles,
    # once more as bytes; the lanes.
    one = cells * (2 * item + 16 * model.needs_friction + 8 + 3)
    one += 2 * (blocks.block // TILE) * entries_of(False) * item + PADDED**2 * LANES * item
    for n in range(min(threads_of(threads), blocks.count), 0, -1):
        if (memory := baseline + n * one) <= limit:
            return n
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to build a distance index in blocks "
        f"of {blocks.block}; give at least {ceil_div(memory, MB)} MB"
    )


class _EntrySolver:
    """Computes the entries of blocks, one after the other, in arrays of its own."""

    def __init__(
        self, terrain: Terrain, options: tuple[bool, bool, bool], index: Index, nothing: Any
    ) -> None:
        self.terrain, self.options, self.index, self.nothing = terrain, options, index, nothing
        self._work = new_index_work(index.dtype)
        self._row = np.zeros((index.chunk[1], index.entries), index.dtype)

    def rows(self, at: Block) -> Iterator[np.ndarray]:
        """Entries of a block, row by row of tiles, in a buffer that is used again."""
        field = self.terrain.load(at)
        down, across = self.index.tiles(at)
        self._row[across:] = 0
        for i in range(down):
            for j in range(across):
                self.solve(field, i, j, self._row[j])
            yield self._row

    def solve(self, field: Field, i: int, j: int, entries: np.ndarray) -> None:
        """Entries of a tile of a block."""
        index_tile(
            self.terrain.model.kernel,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            i * TILE,
            j * TILE,
            self.options,
            self.nothing,
            self.index.symmetric,
            self._work,
            entries,
        )

    def compile(self) -> None:
        """Compile in this thread, which Ctrl-C reaches; a worker would be waited for."""
        heights, frictions = (np.zeros((PADDED, PADDED), dtype) for dtype in self.terrain.types)
        absent, lengths = np.ones((PADDED, PADDED), bool), np.ones((4, PADDED))
        field = Field(heights, frictions, absent, lengths, None)  # type: ignore[arg-type]
        self.solve(field, 0, 0, self._row[0])


@contextlib.contextmanager
def _solvers(
    terrain: Terrain, options: tuple[bool, bool, bool], index: Index, plan: _Plan
) -> Iterator[list[Any]]:
    """One for each thread."""
    nothing = index.dtype.type(-np.inf if terrain.model.kind.bottleneck else 0)
    how = terrain, options, index, nothing
    if plan.gpu is None:
        found = [_EntrySolver(*how) for _ in range(plan.threads)]
        found[0].compile()
        yield found
        return
    import cupy

    from .gpu import GpuEntrySolver

    device = plan.gpu.device
    with memory_bound(plan.gpu.memory, device), cupy.cuda.Device(device):
        yield [GpuEntrySolver(*how, plan.tile_rows) for _ in range(plan.threads)]


def _write_blocks(
    target: _Build,
    index: Index,
    model: CostModel,
    problem: Mapping[str, Any],
    rasters: Mapping[str, Any],
    done: set[Block],
    plan: _Plan,
    progress: Progress,
) -> None:
    blocks = index.blocks
    layer = rasters["layer"].data
    terrain = Terrain(
        blocks,
        model,
        rasters["layer"],
        rasters["friction"],
        rasters["barriers"],
        step_lengths(layer.grid),
        NO_PLACES,
        index.dtype,
    )
    options = problem["connectivity"] == 8, problem["corner_cutting"], problem["reverse"]
    target.temporary.mkdir(exist_ok=True)
    record = os.open(target.manifest, os.O_WRONLY | os.O_APPEND)

    def write(at: Block, solver: Any) -> None:
        with output_errors(target.manifest):
            _write_file(index, target.temporary, at, solver.rows(at))
            os.write(record, sealed_line(at))

    def size(at: Block) -> int:
        r0, r1, c0, c1 = blocks.window(*at)
        return (r1 - r0) * (c1 - c0)

    total = blocks.rows * blocks.cols
    try:
        os.write(record, b"\n")  # ends a line that a kill left half written
        progress(sum(map(size, done)), total)
        with _solvers(terrain, options, index, plan) as solvers:
            stream(
                (at for at in blocks.ids() if at not in done),
                lambda at, solver: solver,
                write,
                buffers=solvers,
                writers=plan.threads,
                done=lambda at: progress(size(at), total),
            )
    finally:
        os.close(record)


def _write_file(index: Index, folder: Path, at: Block, rows: Iterator[np.ndarray]) -> None:
    """Write the file of a block."""
    with new_file(index.file(at), folder / "{}-{}".format(*at)) as file:
        crc, written = 0, 0
        for row in rows:
            data = row.tobytes()
            crc = google_crc32c.extend(crc, data)
            written += file.write(data)
        # A block at the raster's edge has fewer tiles: the rest of its chunk is never read.
        rest = index.file_bytes - 4 - written
        crc = google_crc32c.extend(crc, bytes(rest)) if rest else crc
        file.seek(rest, os.SEEK_CUR)
        file.write(crc.to_bytes(4, "little"))
