"""The proof of a spanning forest on GPUs: it holds exactly the edges that Boruvka's rounds pick.

A region is one graph in the GPU's memory, row by row, without tiles, blocks or borders; see
``cuda/kernels/verify.cu``. It is as large as the memory allows, so often the whole raster. Regions
are joined like the squares of the CPU's proof. The GPU only finds that a forest is wrong; the CPU
locates the error.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...cells import fits, layer_dtype
from ...cuda.arrays import DeviceArray
from ...cuda.backend import Gpu
from ...cuda.device import CELL_TYPES, RESERVED, Staging, free_staging, memory_bounds, module
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, MB
from ...engine.plan import format_size
from ...engine.schedule import stream
from ...errors import PlanError, VerificationError
from ...facts import Settings
from ...grid import Block, BlockGrid, RegionGrid, Window, ceil_div
from ...progress import Progress
from ..weights import WEIGHTS, valid_cells, weights_of
from .checker import ForestChecker, Joiner
from .pieces import CheckedPiece, ForestTally, PieceEdges, Side

if TYPE_CHECKING:
    from .blocks import Blocks

NARROW = 2**32
"""With fewer cells than this, 32 bits number the cells."""
STRIP = 2**28
"""Cells whose weights are summed at a time, so that no sum exceeds 64 bits."""

_THREADS = 256


class Found(NamedTuple):
    """Sums over a raster, like `pieces.ForestTally`."""

    vertices: int
    edges: int
    checked: int
    exact: int | float


def variants() -> list[Settings]:
    """Return macros that cover every type, every weight and both widths."""
    return [
        macros(np.dtype(dtype), name, narrow)
        for dtype in CELL_TYPES
        for name, narrow in zip(weights_of(np.dtype(dtype)), cycle((True, False)), strict=False)
    ]


def macros(dtype: np.dtype, weight: str, narrow: bool) -> Settings:
    """Return the macros of ``cuda/kernels/verify.cu``."""
    return {
        "CELL": CELL_TYPES[dtype.name],
        "ABSDIFF": WEIGHTS[weight].subtracts,
        "SLOPES": WEIGHTS[weight].slopes,
        "VERTEX": CELL_TYPES["uint32" if narrow else "uint64"],
    }


def gpu_bytes(cells: int, dtype: np.dtype, slots: int = 1) -> int:
    """Return the GPU memory of a region in bytes.

    Cells and mask, of each of the regions that are read and proven at a time; and each cell's
    parent and best edge.
    """
    return RESERVED + cells * (slots * (dtype.itemsize + 1) + (4 if cells < NARROW else 8) + 8)


def region_side(blocks: BlockGrid, dtype: np.dtype, gpu: Gpu) -> int:
    """Return the side of regions in cells: one region for each GPU, or as large as fit.

    Raises
    ------
    PlanError
        when the GPU's memory does not hold a block.
    """
    whole = max(blocks.shape)

    def size(count: int) -> int:
        rows, cols = (min(count * blocks.block, n) for n in (blocks.rows, blocks.cols))
        regions = RegionGrid(blocks.rows, blocks.cols, count * blocks.block).count
        lists = 2 * 2 * (rows + cols) * 33 if regions > 1 else 0
        return gpu_bytes(rows * cols, dtype, slots_of(regions, gpu)) + lists

    def fits(count: int) -> bool:
        narrow = min(count * blocks.block, blocks.cols) * dtype.itemsize < 2**31
        return narrow and size(count) <= gpu.memory

    def busy(count: int) -> bool:
        regions = RegionGrid(blocks.rows, blocks.cols, count * blocks.block).count
        return regions >= len(gpu.devices)

    count = whole
    while count > 1 and not (fits(count) and busy(count)):
        count -= 1
    if not fits(count):
        needed = f"{ceil_div(size(count), MB)}MB"
        raise PlanError(
            f"verifying blocks of {blocks.block} x {blocks.block} cells of {dtype.name} takes "
            f"{needed} of GPU memory, more than the {format_size(gpu.memory)} "
            f"{'given' if gpu.given else 'free'}; give --gpu-memory-limit {needed}, or use "
            "--backend cpu"
        )
    # As many regions, of about one size.
    return ceil_div(whole, ceil_div(whole, count)) * blocks.block


def slots_of(regions: int, gpu: Gpu) -> int:
    """Return how many regions each GPU holds: one is read while another is proven."""
    return 2 if regions > len(gpu.devices) else 1


class _Wrong(Exception):
    """The forest is wrong."""


def prove(
    cells: Blocks,
    edges: Blocks,
    checker: ForestChecker,
    *,
    gpu: Gpu,
    memory_limit: int,
    held: int,
    threads: int,
    progress: Progress,
) -> Found | None:
    """Return sums over a raster if the layer `edges` is its minimum spanning forest, else None.

    Parameters
    ----------
    gpu
        The GPUs, with the limit on the memory of each.
    memory_limit, held, threads
        Limit on the resident set of the process in bytes, the part of it that joining regions
        takes, and the number of reading threads.

    Raises
    ------
    PlanError
        when the GPU's memory does not hold a block.

    Notes
    -----
    Boruvka's rounds [1]_. GPU memory per cell is the cell itself and 13 bytes, or 17 bytes from
    2**32 cells; of several regions, two cells and 14 bytes.

    .. [1] O. Boruvka, "O jistem problemu minimalnim", 1926.
    """
    blocks, dtype = cells.blocks, layer_dtype(cells.dtype)
    side = region_side(blocks, dtype, gpu)
    # Each reader has a staging buffer and the encoded block of either layer.
    reader = blocks.block**2 * (2 * dtype.itemsize + 1)
    room = memory_limit - COMPILED_BASELINE - CUDA_BASELINE - held
    readers = max(min(threads, room // reader), 1)
    try:
        with memory_bounds(gpu.memory, gpu.devices):
            return _prove(cells, edges, checker, gpu, side, readers, progress)
    except (_Wrong, VerificationError):
        return None
    finally:
        # A proof on the CPU that may follow does not budget for page-locked buffers.
        free_staging()


def _prove(
    cells: Blocks,
    edges: Blocks,
    checker: ForestChecker,
    gpu: Gpu,
    side: int,
    readers: int,
    progress: Progress,
) -> Found:
    """Read regions, prove them and join them, each while others are at the other steps."""
    blocks, weight = cells.blocks, checker.weight
    regions = RegionGrid(blocks.rows, blocks.cols, side)
    most = min(side, blocks.rows) * min(side, blocks.cols)
    lanes = [GpuProof(most, checker, number) for number in gpu.devices[: regions.count]]
    slots = [lane.slot() for _ in range(slots_of(regions.count, gpu)) for lane in lanes]
    staging = Staging(blocks.block**2 * weight.dtype.itemsize, gpu.device)
    joiner, tally = Joiner(checker, regions.shape), ForestTally()
    total = blocks.rows * blocks.cols
    share = max(readers // len(lanes), 1)

    def fill(at: Block, slot: HeldRegion) -> HeldRegion:
        slot.window = r0, _, c0, _ = regions.window(*at)

        def read(part: Block, _: None) -> None:
            a, b, c, d = blocks.window(*part)
            for source, whole in zip((cells, edges), slot.arrays(), strict=True):
                host = source.read_block(*part, out=staging.host((b - a, d - c), whole.dtype))
                staging.place(host, whole[a - r0 : b - r0, c - c0 : d - c0])

        within = _blocks_in(blocks, slot.window)
        stream(within, read, lambda part, _: None, buffers=[None] * share, readers=share)
        return slot

    def check(at: Block, slot: HeldRegion) -> tuple[CheckedPiece, ForestTally]:
        found = slot.lane.prove(slot)
        if found is None:
            raise _Wrong
        return found

    def join(at: Block, part: tuple[CheckedPiece, ForestTally]) -> None:
        tally.merge(part[1])
        joiner.add(*at, part[0], tally)
        if tally.missing >= 0:
            raise _Wrong

    def finished(at: Block) -> None:
        r0, r1, c0, c1 = regions.window(*at)
        progress((r1 - r0) * (c1 - c0), total)

    stream(
        regions.ids(),
        fill,
        join,
        compute=check,
        buffers=slots,
        readers=min(len(lanes), readers),
        workers=len(lanes),
        done=finished,
    )
    return Found(tally.vertices, tally.edges, tally.checked, tally.exact)


def _blocks_in(blocks: BlockGrid, window: Window) -> list[Block]:
    r0, r1, c0, c1 = window
    b = blocks.block
    return [
        (i, j) for i in range(r0 // b, ceil_div(r1, b)) for j in range(c0 // b, ceil_div(c1, b))
    ]


@dataclass
class HeldRegion:
    """A region on a GPU.

    Attributes
    ----------
    cells, mask
        Memory for its cells and forward edges.
    window
        The region.
    """

    lane: GpuProof
    cells: DeviceArray
    mask: DeviceArray
    window: Window = (0, 0, 0, 0)

    def arrays(self) -> tuple[DeviceArray, DeviceArray]:
        """Return cells and mask in the shape of the region."""
        r0, r1, c0, c1 = self.window
        shape = r1 - r0, c1 - c0
        cells, mask = (a[: shape[0] * shape[1]].reshape(shape) for a in (self.cells, self.mask))
        return cells, mask


class GpuProof:
    """Proves regions on a GPU, one at a time.

    Parameters
    ----------
    most
        Most cells of a region.
    checker
        Describes the raster.
    device
        Number of the GPU.
    """

    def __init__(self, most: int, checker: ForestChecker, device: int) -> None:
        import cupy

        self.cupy, self.checker, self.most, self.device = cupy, checker, most, device
        self._lock = threading.Lock()
        weight = checker.weight
        self._dtype = dtype = layer_dtype(weight.dtype)
        narrow, nodata = most < NARROW, checker.nodata
        # A nodata value that does not fit the cells' type marks no cell.
        marks = nodata is not None and fits(nodata, dtype)
        self._nodata = dtype.type(nodata if marks else 0), np.int32(marks)
        with cupy.cuda.Device(device):
            self._parent = cupy.empty(most, np.uint32 if narrow else np.uint64)
            self._best = cupy.empty(most, np.uint64)
            self._kernels = module("verify", macros(dtype, weight.name, narrow))
            self._blocks = 32 * cupy.cuda.Device().attributes["MultiProcessorCount"]

    def slot(self) -> HeldRegion:
        """Allocate memory for a region."""
        with self.cupy.cuda.Device(self.device):
            cells = self.cupy.empty(self.most, self._dtype)
            return HeldRegion(self, cells, self.cupy.empty(self.most, np.uint8))

    def prove(self, slot: HeldRegion) -> tuple[CheckedPiece, ForestTally] | None:
        """Return what other regions need of a region, and its sums; None if the mask is wrong."""
        with self._lock, self.cupy.cuda.Device(self.device):
            return self._prove(slot)

    def _prove(self, slot: HeldRegion) -> tuple[CheckedPiece, ForestTally] | None:
        checker, (r0, r1, c0, c1) = self.checker, slot.window
        cells, mask = slot.arrays()
        # Open are the sides with neighbours, as in the kernels: above, below, left, right.
        near = r0 > 0, r1 < checker.rows, c0 > 0, c1 < checker.cols
        sides = np.int32(sum(1 << k for k, is_open in enumerate(near) if is_open))
        shape = np.int64(r1 - r0), np.int64(c1 - c0)
        weight = checker.weight
        per_length = self.cupy.asarray(weight.rule(r0, r1)) if weight.slopes else np.uint64(0)
        graph = *shape, cells, per_length
        work = self._parent, self._best
        self._launch("start", *shape, sides, cells, *self._nodata, *work)
        sums, wrong = self._survey(shape, sides, cells, mask)
        picked = -1 if wrong else self._rounds(graph, mask, None)
        if picked < 0 or (not sides and picked != sums.edges):
            return None
        tally = ForestTally(*sums)
        ids, keys, us, vs, tree = self._candidates(graph, mask, sides)
        # Any other edge is the largest of a cycle.
        if picked + np.count_nonzero(tree) != sums.edges:
            return None
        return self._piece(slot, near, ids, keys, us, vs, tree, tally), tally

    def _piece(
        self,
        slot: HeldRegion,
        near: tuple[bool, ...],
        ids: np.ndarray,
        keys: np.ndarray,
        us: np.ndarray,
        vs: np.ndarray,
        tree: np.ndarray,
        tally: ForestTally,
    ) -> CheckedPiece:
        """Return a region as its open cells and the candidates between them."""
        checker, (r0, r1, c0, c1) = self.checker, slot.window
        rows, cols = r1 - r0, c1 - c0
        at = np.arange(cols), (rows - 1) * cols + np.arange(cols)
        beside = np.arange(rows) * cols, np.arange(rows) * cols + cols - 1
        cells, mask = slot.arrays()
        ends = (0,), (-1,), (slice(None), 0), (slice(None), -1)
        sides = []
        for has_neighbour, end, line in zip(near, ends, (*at, *beside), strict=True):
            cell = line[: None if has_neighbour else 0]
            data, bits = (a[end][: len(cell)].get() for a in (cells, mask))
            valid = valid_cells(data, checker.nodata)
            operands = checker.weight.operands(data[None])[0]
            sides.append((operands, bits, np.where(valid, cell, -1)))
        numbered = np.unique(np.concatenate([vertex for _, _, vertex in sides]))
        numbered = numbered[numbered >= 0]

        def number(cells: np.ndarray) -> np.ndarray:
            positions = np.searchsorted(numbered, cells).astype(np.int32)
            return np.where(cells < 0, np.int32(-1), positions)

        row, col = np.divmod(ids >> 2, cols)
        whole = 4 * ((r0 + row) * checker.cols + c0 + col) + (ids & 3)
        edges = PieceEdges(keys, whole, number(us), number(vs), tree, np.where(tree, -1, whole))
        borders = tuple(Side(cells, bits, number(vertex)) for cells, bits, vertex in sides)
        return checker.reduced(slot.window, borders, len(numbered), edges, tally)

    def _launch(self, name: str, *arguments: object) -> None:
        self._kernels.get_function(name)((self._blocks,), (_THREADS,), arguments)

    def _survey(
        self,
        shape: tuple[np.int64, np.int64],
        sides: np.int32,
        cells: DeviceArray,
        mask: DeviceArray,
    ) -> tuple[Found, int]:
        """Return the sums, and the number of bits that are not edges."""
        dtype = self._dtype
        exponents = 1 if dtype.kind != "f" else 256 if dtype.itemsize == 4 else 2048
        counts, exact, infinite = self._zeros(4), 0, False
        for first in range(0, cells.size, STRIP):
            sums = self._zeros(2 * exponents)
            span = np.int64(first), np.int64(min(cells.size, first + STRIP))
            arguments = *shape, np.int32(self.checker.diagonal), sides
            self._launch("survey", *span, *arguments, cells, mask, self._parent, counts, sums)
            words = sums.get().view(np.int64).reshape(-1, 2)
            infinite |= exponents > 1 and bool(words[-1].any())
            for k in np.flatnonzero(words.any(axis=1)).tolist():
                exact += (int(words[k, 0]) + (int(words[k, 1]) << 32)) << max(k - 1, 0)
        if exponents > 1:
            # Convert the unit from the least subnormal of the type to 2**-1126.
            exact <<= 1126 - (149 if dtype.itemsize == 4 else 1074)
        vertices, edges, checked, wrong = counts.get().tolist()
        return Found(vertices, edges, checked, math.inf if infinite else exact), wrong

    def _rounds(
        self,
        graph: tuple[DeviceArray, ...],
        mask: DeviceArray,
        listed: tuple[DeviceArray, DeviceArray] | None,
    ) -> int:
        """Return the number of edges picked; -1 if one of them is not in the mask.

        Picks are `listed` instead, if there is a list and the number of its edges.
        """
        rows, cols, cells, per_length = graph
        n, diagonal, total = np.int64(rows * cols), np.int32(self.checker.diagonal), 0
        work = self._parent, self._best
        while True:
            counts = self._zeros(2)
            self._launch("least_edges", rows, cols, diagonal, cells, per_length, *work)
            into = (np.uint64(0), counts) if listed is None else listed
            self._launch("aim", n, cols, mask, *work, *into)
            self._launch("hook", n, *work, counts[1:])
            lacking, picks = counts.get().tolist()
            if lacking or not picks:
                return -1 if lacking else total
            total += picks
            unfinished = True
            while unfinished:
                flag = self._zeros(1)
                self._launch("flatten", rows, cols, *work, flag)
                unfinished = bool(flag.get()[0])

    def _candidates(
        self, graph: tuple[DeviceArray, ...], mask: DeviceArray, sides: np.int32
    ) -> tuple[np.ndarray, ...]:
        """Return ids, keys and ends of the candidates, and whether the mask has them."""
        rows, cols, cells, per_length = graph
        # A round lists at most two picks for each edge, which halves the components.
        most = 2 * 2 * int(rows + cols) if sides else 1
        listed, count = self.cupy.empty(most, np.uint64), self._zeros(1)
        if sides:
            self._launch("let_pick", np.int64(rows * cols), self._parent, self._best)
            self._rounds(graph, mask, (listed, count))
        ids = np.unique(listed[: int(count.get()[0])].get())
        listed = self.cupy.asarray(ids)
        keys, us, vs = (self.cupy.empty(ids.size, np.uint64) for _ in range(3))
        tree = self.cupy.empty(ids.size, np.uint8)
        if ids.size:
            where = rows, cols, sides, cells, per_length, mask, self._best
            self._launch("describe", np.int64(ids.size), listed, *where, keys, us, vs, tree)
        weights = keys.get()
        if self.checker.weight.subtracts_floats:
            # Kernels map all floats to unsigned numbers, also those that are not negative.
            weights ^= np.uint64(1) << np.uint64(8 * self._dtype.itemsize - 1)
        weights = weights.astype(self.checker.weight.key_dtype)
        ends = us.get().astype(np.int64), vs.get().astype(np.int64)
        return ids.astype(np.int64), weights, *ends, tree.get().astype(bool)

    def _zeros(self, count: int) -> DeviceArray:
        return self.cupy.zeros(count, np.uint64)
