"""Shortest paths on a GPU that cannot hold the raster: one region at a time.

Regions are rectangles of blocks, the fewest that fit. The region with the least pending key is
relaxed until nothing in it changes, as blocks are on the CPU. Its distances are then saved to a
file, and stay in memory while there is room; its outer cells stay there anyhow, and neighbours
become pending. When a region is visited again, little of it changes: blocks are read only when
their tiles are needed, and written only if a distance was lowered. Hops on flats are found in the
same way, but with whole regions. Distances are always upper bounds, so the order affects only the
running time, and a stopped run can continue from the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....cuda.arrays import DeviceArray, DeviceModule
from ....grid import Block, BlockGrid, ceil_div
from ....report import Report
from ....store.spill import CodedSlots, HeldSlots
from ...cost.edges import infinity_of
from ..relaxation import Overflow
from .allocate import Allocation
from .flats import FlatDistance
from .lanes import Lane, Lanes
from .memory import BlockStaging
from .piece import Piece, PieceLayer, blocks_in, each, field_kernels
from .problem import Problem, Read, Write
from .resident import ResidentBlocks
from .rims import Region, RegionMap, Rims
from .variants import launch

_EXCHANGE = 0.02
"""Seconds between exchanges of regions that are relaxed at the same time."""


class RegionSpill:
    """The distances of blocks in a file, compressed: writing and reading cost more than coding.

    Parameters
    ----------
    resume
        Whether to continue with the distances of an earlier run.
    threads
        Number of threads that code the blocks.
    held, savers
        Most blocks that stay in memory, and number of threads that save them meanwhile.
    """

    def __init__(
        self, path: Path, blocks: BlockGrid, dtype: np.dtype, *, resume: bool, threads: int = 1,
        held: int = 0, savers: int = 1,
    ) -> None:  # fmt: skip
        self.blocks, self.dtype = blocks, dtype
        size = blocks.block**2 * dtype.itemsize
        self._slots = CodedSlots(path, blocks.count, size, dtype, resume=resume, threads=threads)
        self._held = HeldSlots(self._slots, size, held, savers)
        across = blocks.shape[1]
        self.saved: set[Block] = set()
        for slot in list(self._slots.sums):
            at = divmod(slot, across)
            r0, r1, c0, c1 = blocks.window(*at)
            if self._slots.is_whole(slot, np.empty((r1 - r0, c1 - c0), dtype)):
                self.saved.add(at)

    def _slot(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def save(self, _: str, at: Block, cells: np.ndarray) -> None:
        self._held.save(self._slot(at), cells)
        self.saved.add(at)

    def restore(self, at: Block, cells: np.ndarray) -> None:
        self._held.load(self._slot(at), cells)

    def staged(self, at: Block, staging: BlockStaging) -> np.ndarray:
        """Restore a block into a host buffer."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        cells = staging.array((r1 - r0, c1 - c0), self.dtype)
        self.restore(at, cells)
        return cells

    def close(self, *, keep: bool) -> None:
        try:
            if keep:
                self._held.sync()
        finally:
            self._held.close(keep=keep)


class RegionField:
    """One kind of distance (costs or hops) over all regions, for regions not on the GPU."""

    def __init__(self, path: Path, problem: Problem, rims: Rims, *, resume: bool) -> None:
        how = {"threads": problem.threads, "held": problem.held, "savers": problem.savers}
        self.spill = RegionSpill(path, problem.blocks, rims.dtype, resume=resume, **how)
        self.rims = rims
        self.begun: set[Region] = set()

    def evict(
        self,
        at: Region,
        piece: Piece,
        cells: DeviceArray,
        kernels: DeviceModule,
        blocks: list[Block] | None = None,
    ) -> None:
        """Save blocks of the region on the GPU, all when None, and update its neighbours."""
        self.save(piece, cells, kernels, blocks)
        self.begun.add(at)
        self.put(at, piece, cells, kernels)

    def save(
        self,
        piece: Piece,
        cells: DeviceArray,
        kernels: DeviceModule,
        blocks: Iterable[Block] | None,
    ) -> None:
        """Save blocks of a piece on the GPU, all when None."""
        pitch, dtype = piece.shape.pitch, self.rims.dtype
        save = partial(launch, kernels.get_function("save"))

        def cut(size: int, *place: Any) -> None:
            *where, block = place
            save(size, cells, *where, pitch, block)

        piece.move([PieceLayer("", dtype, cut)], self.spill.save, blocks=blocks)

    def put(self, at: Region, piece: Piece, cells: DeviceArray, kernels: DeviceModule) -> None:
        """Pass the outer cells of a region to its neighbours."""
        import cupy

        shape, dtype = piece.shape, self.rims.dtype
        rim = cupy.empty(2 * shape.halo * (shape.rows + shape.cols), dtype)
        size = shape.rows, shape.cols, shape.pitch
        launch(kernels.get_function("rim"), len(rim), cells, *size, rim)
        self.rims.put(at, rim.get())

    def restorer(
        self, piece: Piece, cells: DeviceArray, kernels: DeviceModule
    ) -> Callable[[Block, BlockStaging], None] | None:
        """Return a function that copies a saved block back to the GPU; None if there is none."""
        known = self.spill.saved.intersection(piece.blocks())
        if not known:
            return None
        kernel = kernels.get_function("restore")

        def restore(block: Block, staging: BlockStaging) -> None:
            if block not in known:
                return
            r0, _, c0, _ = piece.problem.blocks.window(*block)
            host = self.spill.staged(block, staging)
            place = *host.shape, r0 - piece.window[0], c0 - piece.window[2], piece.shape.pitch
            with staging:
                staging.copy(host.nbytes, back=False)
                launch(kernel, host.size, cells, *place, staging.device)

        return restore

    def receive(
        self, at: Region, piece: Piece, cells: DeviceArray, kernels: DeviceModule, pending: Any
    ) -> None:
        """Take the distances that neighbours have lowered since the last visit."""
        receive(*self.rims.ring(at), piece, cells, kernels, pending)


def receive(
    ring: np.ndarray,
    seen: np.ndarray,
    piece: Piece,
    cells: DeviceArray,
    kernels: DeviceModule,
    pending: Any,
) -> None:
    """Set the distances around a piece; tiles beside lower ones than were seen become pending."""
    import cupy

    given = *map(cupy.array, (ring, seen)), piece.shape.rows, piece.shape.cols, piece.shape.pitch
    launch(kernels.get_function("receive"), len(ring), *given, cells, *pending)


class Regions:
    """Solves a problem region by region, see `solve.solve`."""

    def __init__(
        self,
        problem: Problem,
        sides: tuple[int, int],
        report: Report,
        tick: Callable[[int], None],
        write: Write,
        read: Read,
    ) -> None:
        self.problem, self.report, self.write = problem, report, write
        self.read = read
        self.farthest = problem.farthest
        self.map = RegionMap(problem.blocks, sides, problem.halo)
        self.windows = self.map.windows
        self.lanes = Lanes(problem, self.windows, tick)
        self.lock = threading.Lock()
        self.visits = self.tile_visits = self.waves = self.blocks_read = 0
        targets = problem.targets
        infinity = infinity_of(np.empty(0, problem.ground.dtype))
        self.at_targets = np.full(
            0 if targets is None else len(targets), infinity, problem.ground.dtype
        )

    def run(self) -> dict[str, int]:
        problem = self.problem
        path, dtype = problem.spill.with_name("regions"), problem.ground.dtype
        distances = RegionField(path, problem, self._rims(dtype), resume=True)
        self.resumed = len(distances.spill.saved)
        done = False
        try:
            with self.report.phase("relax"):
                self._relax(distances)
            with self.report.phase("finalise"):
                self._finalise(distances)
            done = True
        except Overflow:
            done = True  # the saved distances are of no use for another dtype
            raise
        finally:
            distances.spill.close(keep=not done and bool(distances.spill.saved))
        noted = self.lanes.noted()
        self.lanes.clear()
        if "allocation" in problem.names:
            with self.report.phase("allocation"):
                side = min(self.map.sides) * problem.blocks.block
                given = problem, side, field_kernels(problem), self.lanes.all[0].pool
                Allocation(*given, self.read, self.write).run()
        tiles = self.windows.values()
        return {
            "reached": noted["reached"],
            "valid": noted["valid"],
            "regions": len(self.windows),
            "region_visits": self.visits,
            "blocks_read": self.blocks_read,
            "blocks_resumed": self.resumed,
            "tiles": sum(ceil_div(b - a, 32) * ceil_div(d - c, 32) for a, b, c, d in tiles),
            "tile_visits": self.tile_visits,
            "waves": self.waves,
            "memory": self.problem.memory(*self.map.sides),
        }

    def _rims(self, dtype: np.dtype) -> Rims:
        problem = self.problem
        return Rims(self.windows, dtype, wraps=problem.blocks.wraps, halo=problem.halo)

    def _load(self, lane: Lane, at: Region, field: RegionField) -> Piece:
        """Load a whole region with its distances so far."""
        if self.lanes.own and self.lanes.has(lane, at):
            piece = lane.piece
            piece.relaxing.farthest = self.farthest
        else:
            piece = self._read(lane, at, field)
        self._receive(at, piece, field)
        return piece

    def _read(self, lane: Lane, at: Region, field: RegionField) -> Piece:
        piece = self._piece(lane, at)
        piece.read(then=field.restorer(piece, piece.distances, piece.kernels))
        if at not in field.begun:
            piece.seed()
        return piece

    def _piece(self, lane: Lane, at: Region) -> Piece:
        lane.piece = lane.resident = None  # their memory is needed
        piece = Piece(self.problem, self.windows[at], lane.pool, lane.notes)
        piece.relaxing.farthest = self.farthest
        self.lanes.hold(lane, at, piece)
        return piece

    def _receive(self, at: Region, piece: Piece, field: RegionField) -> None:
        field.receive(at, piece, piece.distances, piece.kernels, piece.relaxing.pending)

    def _starts(self) -> Iterator[tuple[Region, Any]]:
        """Regions with sources, and a lower bound of the start values in each."""
        least: dict[Region, float] = {}
        for at, key in self.problem.ground.starts():
            region = self.map.of(at)
            least[region] = min(key, least.get(region, key))
        for region, key in least.items():
            yield region, self.problem.ground.dtype.type(key)

    def _relax(self, field: RegionField) -> None:
        for at, key in self._starts():
            field.rims.start(at, key)
        for at in {self.map.of(block) for block in field.spill.saved}:
            field.rims.start(at, -np.inf if field.rims.dtype.kind == "f" else 0)
        if self.lanes.own:  # all at once, not each when its turn comes
            self.lanes.each(self.windows, lambda lane, at: self._read(lane, at, field))
        self.lanes.visit(
            field.rims, lambda: self.farthest, lambda lane, at: self._visit(lane, at, field)
        )
        for at in self.windows:
            if at not in field.begun:
                self.lanes.tick(self.map.cells(at))

    def _visit(self, lane: Lane, at: Region, field: RegionField) -> None:
        """Relax a region until nothing in it is pending; after the first visit, read on demand."""
        first, ring = at not in field.begun, None
        if first:
            piece = self._load(lane, at, field)
            if self.resumed:
                piece.launch(
                    "wake",
                    piece.shape.tiles[0] * piece.shape.tiles[1],
                    piece.distances,
                    piece.shape.pitch,
                    *piece.relaxing.pending,
                )
            lane.resident = ResidentBlocks(piece, whole=True)
        else:
            if self.lanes.has(lane, at):
                piece = lane.piece
                piece.relaxing.farthest = self.farthest
            else:
                piece = self._piece(lane, at)
                lane.resident = ResidentBlocks(piece, whole=False)
            ring, seen = field.rims.ring(at)
            self._fetch(lane, field, lane.resident.beside(ring < seen), ring, seen)
        self._relax_piece(lane, at, piece, field, ring)
        field.evict(at, piece, piece.distances, piece.kernels, self._to_save(lane))
        self._look_at_targets(piece)
        if first:
            self.lanes.tick(self.map.cells(at))

    def _to_save(self, lane: Lane) -> list[Block]:
        """The blocks to save after a visit."""
        return [] if self.lanes.own else lane.resident.changed()

    def _exchange(self, at: Region, piece: Piece, field: RegionField) -> Any:
        """Pass the outer cells to neighbours and take theirs, while all are being relaxed.

        The visit ends if this returns something true.
        """
        self.lanes.check()
        field.put(at, piece, piece.distances, piece.kernels)
        self._receive(at, piece, field)

    @staticmethod
    def _fetch(
        lane: Lane, field: RegionField, blocks: list[Block], ring: np.ndarray, seen: np.ndarray
    ) -> None:
        """Read blocks and what lies around them; then distances around the region are known."""
        piece = lane.piece
        given = piece.distances, piece.kernels
        if blocks:
            some = lane.resident.with_around(blocks)
            piece.read(blocks=some, then=field.restorer(piece, *given))
        receive(ring, seen, piece, *given, piece.relaxing.pending)
        if blocks:
            lane.resident.admit(blocks)

    def _relax_piece(
        self, lane: Lane, at: Region, piece: Piece, field: RegionField, ring: np.ndarray | None
    ) -> None:
        """Relax the region on a GPU, and read blocks when pending tiles need them."""
        before = piece.relaxing.state()
        while True:
            if self.lanes.own:
                state = piece.relax(lambda: self._exchange(at, piece, field), _EXCHANGE)
            else:
                state = piece.relax(self.lanes.check)
            blocks = lane.resident.wanted()
            if not blocks or ring is None:  # or the whole region is there
                break
            self._fetch(lane, field, blocks, ring, ring)
        with self.lock:
            self.visits += 1
            self.tile_visits += int(state["visits"]) - int(before["visits"])
            self.waves += int(state["number"]) - int(before["number"])
            self.blocks_read += lane.resident.arrived()

    def _look_at_targets(self, piece: Piece) -> None:
        targets = self.problem.targets
        if targets is None or not len(targets):
            return
        r0, r1, c0, c1 = piece.window
        mine = (targets.rows >= r0) & (targets.rows < r1)
        mine &= (targets.cols >= c0) & (targets.cols < c1)
        found = piece.at(targets.rows[mine], targets.cols[mine])  # the largest in what is away
        with self.lock:
            self.at_targets[mine] = np.minimum(self.at_targets[mine], found)
            self.farthest = min(self.farthest, self.at_targets.max())

    def _finalise(self, field: RegionField) -> None:
        hops = None
        uneven: dict[Region, int] = {}  # with the least key of each
        try:
            if "backlink" in self.problem.names:
                path = self.problem.spill.with_name("hops")
                rims = self._rims(np.dtype(np.uint32))
                hops = RegionField(path, self.problem, rims, resume=False)
            self.lanes.each(
                self.windows, lambda lane, at: self._finish(lane, at, field, hops, uneven)
            )
            if hops is not None and uneven:
                self._close_flats(field, hops, uneven)
        finally:
            if hops is not None:
                hops.spill.close(keep=False)

    def _finish(
        self,
        lane: Lane,
        at: Region,
        field: RegionField,
        hops: RegionField | None,
        uneven: dict[Region, int],
    ) -> FlatDistance | None:
        """Write a region's distances, and its backlinks unless it has flats; return these."""
        blocks = None
        if hops is None and at in field.begun and not self.lanes.own:
            blocks = self._pass_on(lane, at, field)
            if not blocks:
                return None
            piece = self._piece(lane, at)
            piece.read(blocks=blocks)  # to tell nodata from unreached
        else:  # also checks the sources
            piece = self._load(lane, at, field)
        outputs, flats = [piece.distance_output(self.farthest)], None
        if hops is not None:
            piece.link(self.farthest)
            hopping = FlatDistance(piece)
            if hopping.begin():
                flats = hopping
                with self.lock:
                    uneven[at] = 0
            else:
                outputs.append(piece.backlink_output())
            hops.put(at, piece, hopping.hops, hopping.kernels)
            del hopping
        piece.move(outputs, self.write, self._done, blocks)
        return flats

    def _pass_on(self, lane: Lane, at: Region, field: RegionField) -> set[Block]:
        """Write the distances of a region's saved blocks; return the other blocks."""
        blocks = list(blocks_in(self.problem.blocks, self.windows[at]))
        saved = [block for block in blocks if block in field.spill.saved]
        kernel = field_kernels(self.problem).get_function("finish")
        bound = field.rims.dtype.type(self.farthest)

        def finish(block: Block, staging: BlockStaging) -> None:
            cells = field.spill.staged(block, staging)
            rows, cols = cells.shape
            place = rows, cols, -1, -1, cols  # an array without rings
            with staging:
                staging.copy(cells.nbytes, back=False)
                given = staging.device, *place, bound, staging.device, lane.notes
                launch(kernel, cells.size, *given)
                staging.copy(cells.nbytes, back=True)
            self.write("distance", block, cells)

        each(lane.pool, finish, saved, self._done)
        return set(blocks) - field.spill.saved

    def _done(self, at: Block) -> None:
        r0, r1, c0, c1 = self.problem.blocks.window(*at)
        self.lanes.tick((r1 - r0) * (c1 - c0))

    def _close_flats(
        self, field: RegionField, hops: RegionField, uneven: dict[Region, int]
    ) -> None:
        """Relax hops over the regions with flats, then write their backlinks."""
        hops.rims.pending = dict(uneven)

        def relax(lane: Lane, at: Region) -> None:
            if at not in uneven:
                return
            hopping = self._hopping(lane, at, field, hops)
            hopping.relax()
            hops.evict(at, hopping.piece, hopping.hops, hopping.kernels)

        def close(lane: Lane, at: Region) -> None:
            hopping = self._hopping(lane, at, field, hops)
            hopping.close()
            hopping.piece.move([hopping.piece.backlink_output()], self.write)

        self.lanes.visit(hops.rims, lambda: 2**31 - 1, relax)
        self.lanes.each(uneven, close)

    def _hopping(
        self, lane: Lane, at: Region, field: RegionField, hops: RegionField
    ) -> FlatDistance:
        piece = self._load(lane, at, field)
        piece.link(self.farthest)
        hopping = FlatDistance(piece)
        if at in hops.begun:
            restore = hops.restorer(piece, hopping.hops, hopping.kernels)
            if restore is not None:
                piece.each(restore)
        else:
            hopping.begin()
        pending = hopping.relaxing.pending
        hops.receive(at, piece, hopping.hops, hopping.kernels, pending)
        return hopping


__all__ = ["Regions"]
