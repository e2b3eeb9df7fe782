"""Shortest paths on the GPUs of a cluster's workers: the regions that a worker keeps.

A worker has one region on its GPU. What it has there is told by a number, which is new each time
that a region is loaded: a visit names the number that the driver knows. If the worker has another
one, it loads the region again, from saved blocks and what is around it. Any upper bounds will do.
See docs/design/cluster.md.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...cuda.backend import Gpu
from ...cuda.device import free_staging, gpu_memory_errors, memory_bounds
from ...cuda.workers import HOLDERS, require_own_gpu
from ...engine.plan import StreamPlan
from ...grid import TILE, Block, BlockGrid, ceil_div, round_up
from ...report import Report
from ...store.spill import SlotFiles
from ..cost.edges import infinity_of
from ..relax.gpu.flats import FlatDistance
from ..relax.gpu.lanes import Lane
from ..relax.gpu.piece import Piece, blocks_in
from ..relax.gpu.problem import Problem
from ..relax.gpu.regions import RegionField, Regions, RegionSpill, receive
from ..relax.gpu.resident import ResidentBlocks
from ..relax.gpu.rims import Region

if TYPE_CHECKING:
    from ...store.writer import BlockWriter
    from .operation import CostDistance

REMEDY = "choose a smaller --gpu-memory-limit, or use --backend cpu"


class Around(NamedTuple):
    """The cells around a region, as `Rims.ring` has them, and the bits of the lowered ones."""

    ring: np.ndarray
    lowered: np.ndarray

    @classmethod
    def of(cls, ring: np.ndarray, seen: np.ndarray) -> Around:
        return cls(ring, np.packbits(ring < seen))

    def seen(self) -> np.ndarray:
        """What was seen before, as far as it matters: more than now where cells are lowered."""
        lowered = np.unpackbits(self.lowered, count=len(self.ring)).astype(bool)
        return np.where(lowered, infinity_of(self.ring), self.ring).astype(self.ring.dtype)


NOTHING = Around(np.empty(0, np.uint32), np.empty(0, np.uint8))


class RegionVisit(NamedTuple):
    """What a worker is to do with a region.

    Attributes
    ----------
    field, hops
        The numbers of the distances and of the hops that the driver knows; "" for none.
    settled
        Whether the files hold these distances, and nothing in them is pending.
    folder, names
        Where blocks are saved, and the files of those of this region, by slot.
    around, hops_around
        Distances, and hops, around the region; the latter where hops are relaxed.
    seconds
        How long to relax, roughly. If the region has to leave for others, until the end.
    save
        Whether to save the region in the end.
    write
        Which of the lent layers to write, distances and backlinks.
    gpu, plan
        What the worker may use.
    """

    at: Region
    field: str
    hops: str
    settled: bool
    folder: Path
    names: dict[int, str]
    around: Around
    hops_around: Around | None
    farthest: Any
    seconds: float
    save: bool
    write: tuple[bool, ...]
    gpu: Gpu
    plan: StreamPlan


class SavedRegion(NamedTuple):
    """All files of a region that hold its distances."""

    at: Region
    field: str
    names: dict[int, str]


class RegionVisited(NamedTuple):
    """The result of a visit.

    Attributes
    ----------
    field, hops
        The numbers of what the worker has now.
    pending
        Whether something in the region is still pending.
    rim, hops_rim
        The outer cells, where they may have changed.
    saved
        Regions that were saved: this one, or one that had to leave.
    at_targets
        Distances of the targets; the largest ones of those elsewhere.
    flats
        Whether the region has flats whose backlinks are not written yet.
    """

    at: Region
    field: str
    hops: str
    pending: bool
    rim: np.ndarray | None
    hops_rim: np.ndarray | None
    saved: list[SavedRegion]
    at_targets: np.ndarray
    flats: bool
    counts: dict[str, int]


def slot_shape(blocks: BlockGrid, at: Block, halo: int) -> tuple[int, int]:
    """The shape of a block as CPUs save it: whole tiles, with what is around."""
    r0, r1, c0, c1 = blocks.window(*at)
    return round_up(r1 - r0, TILE) + 2 * halo, round_up(c1 - c0, TILE) + 2 * halo


class RegionFiles(RegionSpill):
    """Blocks of a region in files, as the CPUs of a cluster save them.

    Attributes
    ----------
    exact
        Whether the files hold the final distances of a visit, of which none may be missing.
    """

    def __init__(self, problem: Problem, files: SlotFiles, *, exact: bool) -> None:
        self.exact = exact
        self.blocks, self.dtype = problem.blocks, problem.ground.dtype
        self.files, self.halo = files, problem.halo
        self.saved = {divmod(slot, self.blocks.shape[1]) for slot in files}
        self.infinity = infinity_of(np.empty(0, self.dtype))

    def _padded(self, at: Block) -> np.ndarray:
        return np.full(slot_shape(self.blocks, at, self.halo), self.infinity, self.dtype)

    def _inside(self, padded: np.ndarray, cells: np.ndarray) -> np.ndarray:
        h, (rows, cols) = self.halo, cells.shape
        return padded[h : h + rows, h : h + cols]

    def save(self, _: str, at: Block, cells: np.ndarray) -> None:
        padded = self._padded(at)
        # CPUs know absent cells by the heights.
        np.fmin(cells, self.dtype.type(self.infinity), out=self._inside(padded, cells))
        self.files.save(self._slot(at), padded)
        self.saved.add(at)

    def restore(self, at: Block, cells: np.ndarray) -> None:
        """Read a block; one that is damaged counts as never visited, where any bounds will do."""
        padded = self._padded(at)
        if self.exact:
            self.files.load(self._slot(at), padded)
        elif not self.files.is_whole(self._slot(at), padded):
            self.saved.discard(at)
            padded[...] = self.infinity
        cells[...] = self._inside(padded, cells)


class GivenRims:
    """What a region needs of `Rims`: the cells around it; keeps its own ones."""

    def __init__(self, around: Around) -> None:
        self._around, self.dtype, self.anew = around, around.ring.dtype, False
        self.rim: np.ndarray | None = None

    def ring(self, at: Region) -> tuple[np.ndarray, np.ndarray]:
        ring = self._around.ring
        if self.anew:
            return ring, np.full(len(ring), infinity_of(ring), ring.dtype)
        return ring, self._around.seen()

    def put(self, at: Region, rim: np.ndarray) -> None:
        self.rim = rim


class GivenField(RegionField):
    """The distances of a region, and what is around it, as a visit gives them."""

    spill: Any
    rims: Any

    def __init__(self, spill: RegionFiles | None, rims: GivenRims) -> None:
        self.spill, self.rims, self.begun = spill, rims, set()


class RegionKeeper(Regions):
    """Visits the regions that a worker is given, and keeps the last one on the GPU.

    Attributes
    ----------
    field, hops
        The numbers of what is there.
    names
        The files of the region there.
    """

    def __init__(self, problem: CostDistance, visit: RegionVisit) -> None:
        self.folder, self._opened, self._lock = visit.folder, ExitStack(), threading.Lock()
        plan, block = visit.plan, problem.blocks.block
        own: Problem = problem._problem(plan.readers, plan, visit.gpu, visit.folder)
        self._opened.enter_context(memory_bounds(visit.gpu.memory, own.gpu.devices))
        sides = ceil_div(plan.unit_rows, block), ceil_div(plan.unit_cols, block)
        report = Report(problem.command)
        super().__init__(own, sides, report, lambda cells: None, self._write, _nothing)
        self._lane = self.lanes.all[0]
        self._writers: list[Any] = []
        self._wanted: tuple[bool, ...] = ()
        self._end = 0.0
        self.field = self.hops = ""
        self.names: dict[int, str] = {}
        self._flats: FlatDistance | None = None
        HOLDERS.add(self)

    # -- what workers are asked for --------------------------------------------------------

    @contextmanager
    def at_work(self, writers: list[BlockWriter]) -> Iterator[None]:
        """Write with these writers; leave the GPU if it fails."""
        with self._lock:
            self._writers = writers
            try:
                with gpu_memory_errors(REMEDY):
                    yield
            except BaseException:
                self._forget()
                raise

    def relax(self, visit: RegionVisit) -> RegionVisited:
        """Relax a region, for a while, and save it if that is due."""
        field, left = self._begin(visit)
        self._visit_for(visit.seconds, visit.at, field)
        if visit.save or visit.seconds == np.inf:
            left.append(self._saved(field, visit.names))
        return self._told(visit, field, left, rim=field.rims.rim)

    def save(self, visit: RegionVisit) -> RegionVisited:
        """Save a region if it is still there."""
        field, left = self._begin(visit)
        if field.begun and self._lane.at == visit.at:
            left.append(self._saved(field, visit.names))
        return self._told(visit, field, left)

    def finish(self, visit: RegionVisit) -> RegionVisited:
        """Write distances, and backlinks unless there are flats, when nothing is pending."""
        field, left = self._settled(visit)
        before, hops = self._lane.notes.get(), None
        if "backlink" in self.problem.names:
            hops = GivenField(None, GivenRims(NOTHING))
        self._flats = self._finish(self._lane, visit.at, field, hops, {})
        if self._flats is not None:
            self.hops = uuid.uuid4().hex
        else:
            self._forget()
        names = self.lanes.noted().keys()
        after = self._lane.notes.get()[-len(names) :]
        counts = (after - before[-len(names) :]).tolist()
        rim = None if hops is None else hops.rims.rim
        more = dict(zip(names, counts, strict=True))
        return self._told(visit, field, left, hops_rim=rim, flats=self.hops != "", more=more)

    def hop(self, visit: RegionVisit) -> RegionVisited:
        """Relax the hops on a region's flats."""
        field, left, hops, flats = self._hops_of(visit)
        flats.relax()
        hops.put(visit.at, flats.piece, flats.hops, flats.kernels)
        return self._told(visit, field, left, hops_rim=hops.rims.rim, flats=True)

    def close_flats(self, visit: RegionVisit) -> RegionVisited:
        """Write the backlinks of a region with flats, when nothing is pending."""
        field, left, _, flats = self._hops_of(visit)
        flats.relax()  # if they were lost
        flats.close()
        flats.piece.move([flats.piece.backlink_output()], self._write)
        del flats
        self._forget()
        return self._told(visit, field, left)

    # -- the region on the GPU -------------------------------------------------------------

    def _begin(self, visit: RegionVisit) -> tuple[GivenField, list[SavedRegion]]:
        """Get ready for a region; return its field, and the one that had to leave."""
        lane, left = self._lane, []
        self.farthest, self._wanted = visit.farthest, visit.write
        self.visits = self.tile_visits = self.waves = self.blocks_read = 0
        if lane.at is not None and lane.at != visit.at:
            leaving = GivenField(self._files(self.names), GivenRims(visit.around))
            if lane.resident.changed():
                left.append(self._saved(leaving, self.names))
        if lane.at != visit.at or self.field != visit.field:
            self._forget()
            self.names = visit.names
        # What is not yet here of a region that is kept was settled when it was loaded.
        exact = lane.at == visit.at or visit.settled
        field = GivenField(self._files(visit.names, exact=exact), GivenRims(visit.around))
        if exact:
            field.begun.add(visit.at)
        else:  # begins from upper bounds
            self.resumed, field.rims.anew = len(visit.names), True
        return field, left

    def _files(self, names: dict[int, str], *, exact: bool = False) -> RegionFiles:
        return RegionFiles(self.problem, SlotFiles(self.folder, dict(names)), exact=exact)

    def _forget(self) -> None:
        """Free the region, whatever it holds."""
        self.field, self.hops, self._flats = "", "", None
        self.lanes.clear()

    def _piece(self, lane: Lane, at: Region) -> Piece:
        self._forget()  # its memory is needed
        self.field = uuid.uuid4().hex
        return super()._piece(lane, at)

    def _read(self, lane: Lane, at: Region, field: RegionField) -> Piece:
        piece = super()._read(lane, at, field)
        lane.resident = ResidentBlocks(piece, whole=True)
        return piece

    def _visit_for(self, seconds: float, at: Region, field: GivenField) -> None:
        self.lanes.own, self._end = seconds < np.inf, time.monotonic() + seconds
        there = self.field
        self._visit(self._lane, at, field)
        if self.field != there:  # it was loaded, without damaged files
            self.names = dict(field.spill.files.names)

    def _exchange(self, at: Region, piece: Piece, field: RegionField) -> bool:
        return time.monotonic() >= self._end

    def _to_save(self, lane: Lane) -> list[Block]:
        return []  # `_saved` does it

    def _saved(self, field: GivenField, known: dict[int, str]) -> SavedRegion:
        """Save the region's changed blocks, and those that the driver has not heard of."""
        lane, files = self._lane, field.spill
        inside, across = blocks_in(self.problem.blocks, lane.piece.window), files.blocks.shape[1]
        slots = {at: at[0] * across + at[1] for at in inside}
        unheard = {
            at for at, k in slots.items() if k in self.names and known.get(k) != self.names[k]
        }
        changed: Iterable[Block] = unheard.union(lane.resident.changed())
        piece = lane.piece
        field.save(piece, piece.distances, piece.kernels, changed)
        piece.relaxing.saved()
        self.names = dict(files.files.names)
        assert lane.at is not None
        return SavedRegion(lane.at, self.field, self.names)

    def _settled(self, visit: RegionVisit) -> tuple[GivenField, list[SavedRegion]]:
        """As `_begin`; the whole region is there, with its final distances."""
        (field, left), lane = self._begin(visit), self._lane
        self._flats = None  # of a visit whose result was not heard: its memory is needed
        if not field.begun:  # it is found again: what is around it is final
            self._visit_for(np.inf, visit.at, field)
        elif lane.at == visit.at and not lane.resident.whole:
            left.append(self._saved(field, visit.names))
            field.spill.exact = True
            self._forget()
        self.lanes.own = lane.at == visit.at
        self._load(lane, visit.at, field)
        self.lanes.own = True
        return field, left

    def _hops_of(
        self, visit: RegionVisit
    ) -> tuple[GivenField, list[SavedRegion], GivenField, FlatDistance]:
        """Return the hops on a region's flats, which begin again if they are not there."""
        assert visit.hops_around is not None
        lane, hops = self._lane, GivenField(None, GivenRims(visit.hops_around))
        if self._flats is None or lane.at != visit.at or self.hops != visit.hops:
            field, left = self._settled(visit)
            hops.rims.anew = True
            piece: Piece = lane.piece
            piece.link(self.farthest)
            self._flats, self.hops = FlatDistance(piece), uuid.uuid4().hex
            self._flats.begin()
        else:
            field, left = self._begin(visit)
        flats = self._flats
        ring, seen = hops.rims.ring(visit.at)
        pending = flats.relaxing.pending
        receive(ring, seen, flats.piece, flats.hops, flats.kernels, pending)
        return field, left, hops, flats

    # -- results ---------------------------------------------------------------------------

    def _write(self, name: str, at: Block, cells: np.ndarray) -> None:
        number = ("distance", "backlink").index(name)
        if self._wanted[number]:
            self._writers[number].write_block(*at, cells)

    def _told(
        self,
        visit: RegionVisit,
        field: GivenField,
        saved: list[SavedRegion],
        *,
        rim: np.ndarray | None = None,
        hops_rim: np.ndarray | None = None,
        flats: bool = False,
        more: dict[str, int] | None = None,
    ) -> RegionVisited:
        piece = self._lane.piece
        counts = {
            "region_visits": self.visits,
            "tile_visits": self.tile_visits,
            "waves": self.waves,
            "blocks_read": self.blocks_read,
        }
        return RegionVisited(
            visit.at,
            self.field,
            self.hops,
            piece is not None and piece.relaxing.is_pending(),
            rim,
            hops_rim,
            saved,
            self.at_targets.copy(),
            flats,
            counts | (more or {}),
        )

    # -- the end ---------------------------------------------------------------------------

    def let_go(self) -> None:
        """Free the GPU for another run unless a visit is under way; from any thread."""
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Free the GPU."""
        HOLDERS.discard(self)
        self._forget()
        self.lanes.all.clear()
        del self._lane
        free_staging()
        self._opened.close()


def _nothing(name: str, at: Block) -> np.ndarray:
    raise AssertionError("a worker reads no layers: a bug")


# -- functions of tasks -------------------------------------------------------------------------


def relax_region(
    problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    """See `RegionKeeper.relax`; in a worker, as those below."""
    return _work("relax", problem, writers, visit)


def save_region(
    problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    return _work("save", problem, writers, visit)


def finish_region(
    problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    return _work("finish", problem, writers, visit)


def hop_region(
    problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    return _work("hop", problem, writers, visit)


def close_region(
    problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    return _work("close_flats", problem, writers, visit)


def _work(
    name: str, problem: CostDistance, writers: list[BlockWriter], visit: RegionVisit
) -> RegionVisited:
    require_own_gpu()
    kept = problem.visitor
    if not isinstance(kept, RegionKeeper) or kept.folder != visit.folder:
        problem.close()
        with gpu_memory_errors(REMEDY):
            kept = RegionKeeper(problem, visit)
        vars(problem)["visitor"] = kept
    with kept.at_work(writers):
        found: RegionVisited = getattr(kept, name)(visit)
    return found
