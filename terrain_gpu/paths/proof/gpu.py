"""The proof of distances on a GPU, in regions of blocks; see ``cuda/kernels/proof.cu``.

Cells are stored as in layers: row by row, without tiles. The GPU only detects violations; the CPU
then locates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.backend import Gpu
from ...cuda.device import CELL_TYPES, RESERVED, Staging, free_staging, memory_bound, module
from ...engine.machine import MB
from ...engine.plan import format_size
from ...engine.schedule import stream
from ...errors import InputError, PlanError, StoreError
from ...facts import Settings
from ...grid import Block, RegionGrid, Window, ceil_div, clip
from ...progress import Progress
from ..cost.models import MODELS, Scaled, cuda_parameters, is_directed
from ..cost.terrain import Raster, Terrain
from ..relax.gpu.variants import absent, launch, nodata_of, step_macros
from .kernels import join_rims
from .roots import GIVEN, GIVEN_AND_EDGE, WRONG, KnownRoots, Read

MOST_CELLS = 2**31 - 2
"""Most cells of a region, including its ring: labels of flats have 31 bits."""

_BARRIERS, _NOT_NEGATIVE, _NOT_FAR = 1, 2, 4
"""What a layer is, as in kernels/gaps.cu."""

_REGION = np.dtype(
    [(name, "<i8") for name in ("height", "width", "heights", "frictions")]
    + [(name, "<i8") for name in ("absent", "lengths", "written", "codes", "ids")]
)
"""Layout of the struct Region in kernels/proof.cu; arrays are given as addresses."""

_MOST = 2**19
"""Most threads of a launch; each processes several cells."""

_TALLY = "steps", "reached", "roots", "flats", "faults"


def variants() -> list[Settings]:
    """Macros of kernels/proof.cu for every cell type and every model, for compile tests."""
    every, closed, four = (True, True, False), (True, False, True), (False, True, False)
    f64, found = np.dtype(np.float64), []
    for name in CELL_TYPES:
        cell = np.dtype(name)
        found.append(step_macros(MODELS["friction"].kernel(), cell, None, f64, every))
        if cell.kind in "iu":
            distance = np.dtype(np.uint32 if cell.itemsize <= 2 else np.uint64)
            found.append(step_macros(MODELS["absdiff"].kernel(), cell, None, distance, closed))
    small, real = np.dtype(np.int16), np.dtype(np.float32)
    for model in MODELS.values():
        if model.cuda is None:
            continue
        friction = small if model.friction == "own" else None
        found.append(step_macros(model.kernel(), real, friction, f64, closed))
    return [*found, step_macros(Scaled(MODELS["surface"].kernel()), real, small, f64, four)]


@dataclass
class Proof:
    """A proof on a GPU; the attributes are as for `verify_paths`, and these:

    Attributes
    ----------
    threads
        Number of threads that read.
    left
        Why the proof is left to the CPU, if it is.
    """

    ground: Terrain | KnownRoots
    cost: Any
    options: tuple[bool, bool, bool]
    dtype: np.dtype
    farthest: Any
    read_distance: Read
    read_backlink: Read | None
    read_allocation: Read | None
    gpu: Gpu
    threads: int

    def __post_init__(self) -> None:
        if isinstance(self.ground, KnownRoots):
            self.terrain, self.rule = self.ground.terrain, self.ground.rule
        else:
            self.terrain, self.rule = self.ground, GIVEN_AND_EDGE if self.ground.edge else GIVEN
        self.blocks = self.terrain.blocks
        # Flats are united to find whether they lead to a root: along all steps that cost nothing,
        # where these lead back as well, or along backlinks.
        self.joins = self.read_backlink is not None or not is_directed(self.cost)
        self.left = WRONG

    @property
    def _items(self) -> list[int]:
        """Bytes per cell of each raster, and per distance."""
        t = self.terrain
        rasters = [r.dtype.itemsize for r in (t.heights, t.friction, t.barriers) if r is not None]
        return [*rasters, self.dtype.itemsize]

    def memory(self, side: int) -> int:
        """Bytes of GPU memory for regions of `side` x `side` cells."""
        # Absent cells, levels, marks; codes, ids, labels.
        linked, allocated = self.read_backlink is not None, self.read_allocation is not None
        each = sum(self._items) + 3 + linked + 4 * allocated + 4 * self.joins
        cells = (min(side, self.blocks.rows) + 2) * (min(side, self.blocks.cols) + 2)
        return (
            RESERVED
            + cells * each
            + 16 * 4 * side
            + 32 * (side + 2)
            + 24 * len(self.terrain.sources)
        )

    def side(self) -> int:
        """Side of regions, in cells.

        Raises
        ------
        PlanError
            when the GPU's memory does not hold a block.
        """
        limit, b = self.gpu.memory, self.blocks.block

        def fits(count: int) -> bool:
            rows, cols = (min(count * b, n) + 2 for n in (self.blocks.rows, self.blocks.cols))
            narrow = cols * max(self._items) < 2**31  # CUDA's limit for copying windows
            return narrow and rows * cols <= MOST_CELLS and self.memory(count * b) <= limit

        count = max(self.blocks.shape)
        while count > 1 and not fits(count):
            count -= 1
        if not fits(count):
            raise PlanError(
                f"verifying distances in blocks of {b} takes {ceil_div(self.memory(b), MB)} MB of "
                f"GPU memory, more than the {format_size(limit)} "
                f"{'given' if self.gpu.given else 'free'}; raise "
                "--gpu-memory-limit, or use --backend cpu"
            )
        # As many regions, of about one size.
        return ceil_div(max(self.blocks.shape), ceil_div(max(self.blocks.shape), count)) * b

    def prove(self, progress: Progress) -> tuple[int, int] | None:
        """Number of steps and reached cells; None if `left` to the CPU.

        Raises
        ------
        PlanError
            see `side`.
        """
        import cupy

        side, limit, device = self.side(), self.gpu.memory, self.gpu.device
        counted = 0

        def count(cells: int, total: int) -> None:
            nonlocal counted
            counted += cells
            progress(cells, total)

        found = None
        try:
            with memory_bound(limit, device), cupy.cuda.Device(device):
                try:
                    found = self._prove(side, count)
                except PlanError:
                    raise
                except (StoreError, InputError):  # the CPU may find another error first
                    self.left = "the data is damaged"
        finally:
            # A proof on the CPU may follow, whose plan does not include page-locked buffers.
            free_staging()
            if found is None:
                progress(-counted, self.blocks.rows * self.blocks.cols)
        return found

    def _prove(self, side: int, progress: Progress) -> tuple[int, int] | None:
        rows, cols = self.blocks.rows, self.blocks.cols
        regions = RegionGrid(rows, cols, side)
        # For cells on rims of regions: what they are united with, and tight steps from outside.
        parent = np.zeros(regions.count * 4 * side + 1 if self.joins else 1, np.int64)
        outward = np.zeros(len(parent) - 1, np.uint8)
        steps = reached = 0
        region = _ProofRegion(self, side)
        for at in regions.ids():
            region.read(regions.window(*at), progress)
            found = region.check()
            if found["faults"]:
                return None
            if found["flats"] and not self.joins:
                self.left = "there are flats whose steps lead in one direction only"
                return None
            if isinstance(self.ground, KnownRoots):
                self.ground.note(at, found["roots"])
            steps, reached = steps + found["steps"], reached + found["reached"]
            if found["flats"] and self.joins:
                start = (at[0] * regions.shape[1] + at[1]) * 4 * side
                labels, outward[start : start + 4 * side] = (
                    region.labels.get(),
                    region.outward.get(),
                )
                places = np.flatnonzero(labels)
                _, first, which = np.unique(labels[places], return_index=True, return_inverse=True)
                parent[start + 1 + places] = start + 1 + places[first][which]
        if self.joins and join_rims(parent, outward, rows, cols, side, 1)[0] >= 0:
            return None
        return steps, reached


class _ProofRegion:
    """A region on the GPU, with a ring of cells around it, and the kernels that check it."""

    def __init__(self, proof: Proof, side: int) -> None:
        import cupy

        self.cupy, self.proof, self.side = cupy, proof, side
        self.blocks, self.dtype, terrain = proof.blocks, proof.dtype, proof.terrain
        rows, cols = min(side, self.blocks.rows), min(side, self.blocks.cols)
        cells, ring = rows * cols, (rows + 2) * (cols + 2)
        self.rasters: list[tuple[Raster, Any, int]] = []
        frictions = terrain.friction or (terrain.heights if terrain.model.needs_friction else None)
        for raster in (terrain.heights, terrain.friction, terrain.barriers):
            if raster is not None:
                kind = _BARRIERS if raster is terrain.barriers else 0
                kind |= _NOT_NEGATIVE if raster is frictions else 0
                kind |= _NOT_FAR if raster is terrain.heights and self.dtype == np.uint64 else 0
                self.rasters.append((raster, cupy.empty(ring, raster.dtype), kind))
        self.written, self.absent = cupy.empty(ring, self.dtype), cupy.empty(ring, np.uint8)
        self.codes = cupy.empty(cells, np.uint8) if proof.read_backlink else None
        self.ids = cupy.empty(ring, np.uint32) if proof.read_allocation else None
        self.level, self.marks = cupy.empty(cells, np.uint8), cupy.empty(cells, np.uint8)
        self.parent = cupy.empty(cells + 1, np.int32) if proof.joins else np.uint64(0)
        self.labels = cupy.empty(4 * side, np.int32)
        self.outward = cupy.empty(4 * side, np.uint8)
        self.tally = cupy.empty(len(_TALLY), np.uint64)
        self.parameters = cupy.array(cuda_parameters(proof.cost))
        friction = None if terrain.friction is None else terrain.friction.dtype
        types = terrain.heights.dtype, friction, self.dtype
        self.kernels = module("proof", step_macros(proof.cost, *types, proof.options))
        item = max(self.dtype.itemsize, *(raster.dtype.itemsize for raster, _, _ in self.rasters))
        # A side of the ring is as long as a region.
        self.staging = Staging(max(self.blocks.block**2, side + 2) * item, proof.gpu.device)

    def read(self, window: Window, progress: Progress) -> None:
        """Fill all arrays with a window of the raster and its ring."""
        r0, r1, c0, c1 = self.window = window
        self.height, self.width = r1 - r0, c1 - c0
        shape = self.height + 2, self.width + 2
        proof, total = self.proof, self.blocks.rows * self.blocks.cols

        def view(array: DeviceArray, part: Window) -> DeviceArray:
            whole = array[: shape[0] * shape[1]].reshape(shape)
            return whole[part[0] - r0 + 1 : part[1] - r0 + 1, part[2] - c0 + 1 : part[3] - c0 + 1]

        ring = clip((r0 - 1, r1 + 1, c0 - 1, c1 + 1), (0, self.blocks.rows, 0, self.blocks.cols))
        self.written[...] = absent(self.dtype)
        self.absent[...] = 1
        view(self.absent, ring)[...] = 0
        self.cupy.cuda.Device().synchronize()  # the threads copy on streams of their own

        def copy(part: Window, into: DeviceArray, fill: Callable[..., Any], **how: int) -> None:
            host = self.staging.host((part[1] - part[0], part[3] - part[2]), into.dtype)
            fill(part, host, **how)
            self.staging.place(host, into)

        def read(item: tuple[Block | None, Window], _: None) -> None:
            at, part = item
            for raster, cells, _kind in self.rasters:
                copy(part, view(cells, part), raster.read)
            copy(part, view(self.written, part), proof.read_distance, halo=0)
            if proof.read_allocation is not None:
                copy(part, view(self.ids, part), proof.read_allocation, halo=0)
            if at is not None and self.codes is not None:
                assert proof.read_backlink is not None
                codes = self.codes[: self.height * self.width].reshape(self.height, self.width)
                into = codes[part[0] - r0 : part[1] - r0, part[2] - c0 : part[3] - c0]
                copy(part, into, proof.read_backlink, halo=0)

        def done(item: tuple[Block | None, Window]) -> None:
            at, part = item
            if at is not None:
                progress((part[1] - part[0]) * (part[3] - part[2]), total)

        stream(
            self._parts(ring),
            read,
            lambda item, _: None,
            buffers=[None] * proof.threads,
            readers=proof.threads,
            done=done,
        )
        inside = view(self.absent, ring)
        faults = self.tally[-1:]
        self.tally[...] = 0
        for raster, cells, kind in self.rasters:
            gaps = module("gaps", {"CELL": CELL_TYPES[raster.dtype.name]}).get_function("gaps")
            size = inside.shape[0] * inside.shape[1]
            known = nodata_of(raster)
            given = view(cells, ring), *inside.shape, shape[1], *known, np.int32(kind)
            launch(gaps, min(size, _MOST), *given, inside, faults)

    def _parts(self, ring: Window) -> Iterator[tuple[Block | None, Window]]:
        """The blocks of the region, and the sides of its ring, which have None for a block."""
        r0, r1, c0, c1 = self.window
        side = self.blocks.block
        for i in range(r0 // side, ceil_div(r1, side)):
            for j in range(c0 // side, ceil_div(c1, side)):
                yield (i, j), self.blocks.window(i, j)
        a, b, c, d = ring
        for part in (a, r0, c, d), (r1, b, c, d), (r0, r1, c, c0), (r0, r1, c1, d):
            if part[0] < part[1] and part[2] < part[3]:
                yield None, part

    def check(self) -> dict[str, int]:
        """Run the kernels; returns their counts."""
        proof, height, width = self.proof, self.height, self.width
        r0, r1, c0, c1 = self.window
        cells = height * width
        dtype, farthest = self.dtype, self.dtype.type(proof.farthest)
        bounded = dtype.kind == "u" and farthest == np.iinfo(dtype).max >> 1
        lengths = self.cupy.array(np.ascontiguousarray(proof.terrain.lengths[:4, r0 : r1 + 2]))
        heights = self.rasters[0][1]
        frictions = heights if proof.terrain.friction is None else self.rasters[1][1]
        arrays = heights, frictions, self.absent, lengths, self.written, self.codes, self.ids
        places = (0 if array is None else array.data.ptr for array in arrays)
        described = np.array([(height, width, *places)], _REGION)
        region = self.cupy.array(described.view(np.uint8))
        self.marks[...] = 0
        sources = proof.terrain.sources
        mine = (sources.rows >= r0) & (sources.rows < r1)
        mine &= (sources.cols >= c0) & (sources.cols < c1)
        if proof.rule in (GIVEN, GIVEN_AND_EDGE) and mine.any():
            starts = self.cupy.array((sources.rows[mine] - r0) * width + sources.cols[mine] - c0)
            costs = self.cupy.array(sources.costs[mine].astype(dtype))
            names = self.cupy.array(sources.ids[mine])
            given = region, starts, costs, names, starts.size, farthest
            self._launch("seeds", starts.size, *given, self.marks, self.tally)
        told = region, self.parameters, farthest, np.int32(bounded), np.int32(proof.rule)
        self._launch("check", cells, *told, self.marks, self.level, self.parent, self.tally)
        found = self._counted()
        if found["flats"] and proof.joins and not found["faults"]:
            # Unite the flats, and count the cells that do not lead to a root.
            self._launch("flats", cells, height, width, self.level, self.parent)
            self.marks[...] = 0
            rims = height, width, self.side, self.level, self.parent, self.labels, self.outward
            self._launch("rims", 4 * self.side, *rims, self.marks)
            self._launch("lost", cells, cells, self.level, self.parent, self.marks, self.tally)
            found = self._counted()
        return found

    def _counted(self) -> dict[str, int]:
        return dict(zip(_TALLY, map(int, self.tally.get()), strict=True))

    def _launch(self, name: str, cells: int, *arguments: object) -> None:
        launch(self.kernels.get_function(name), min(cells, _MOST), *arguments)
