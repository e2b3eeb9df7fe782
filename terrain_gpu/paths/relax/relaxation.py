"""Phase 2: relax blocks to convergence, the one with the least pending distance first.

Every block keeps a pending key, the least distance still to be passed on into it or inside of it.
Threads take the least. Fields, the cells and distances of a block, stay in memory while the plan
allows and are spilled otherwise; rims and keys of all blocks always stay.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numba
import numpy as np

from ...compiled import known_types
from ...grid import TILE, Block, BlockGrid, Window, round_up
from ...grid.neighbours import COL_STEP, ROW_STEP
from ...io.places import Places
from ...store.spill import SlotFiles, Slots
from ..cost.edges import infinity_of
from ..cost.fields import Field, forget_spare_pages, pages
from ..cost.knights import Options, halo_of
from .block import receive, receive_seam, relax_block, seed, take_rim
from .counts import Visits
from .dijkstra import dijkstra_block, new_players
from .seam import lower_sides, take_halo, trim_rim
from .tile import new_tile_work

GUARDS = {4: 2**31 - 2**16 - 1, 8: 2**62 - 2}
"""Integers up to here are exact: one more step, of 16 bits or of 2**62, stays below the largest."""

_POLL = 0.1
"""Seconds between checks of the main thread for Ctrl-C."""


class Overflow(Exception):
    """Integer distances overflow their type."""


class CellSource(Protocol):
    """Reads the fields of blocks."""

    blocks: BlockGrid

    def load(self, at: Block) -> Field:
        """Read the cells of a block; distances are not set."""

    def seeds(self, at: Block, field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sources in a block: rows and columns in it, and distances."""


def rim_of_hops(steps: np.ndarray, dtype: np.dtype, halo: int, seam: int | None) -> np.ndarray:
    """Return the rim of a block of `Flats` that is not loaded yet; see `BlockGrid.seam`."""
    infinity = infinity_of(np.empty(0, dtype))
    hops = np.where(steps != 0, infinity, 0).astype(dtype)
    rim = np.full((4 * halo, max(hops.shape) - 2 * halo), infinity, dtype)
    take_rim(hops, rim)
    if seam:
        trim_rim(hops, rim, seam)
    return rim


@dataclass
class Relaxation:
    """One solve.

    Attributes
    ----------
    cost
        A model of `cost.models`.
    options
        (diagonal, corner_cutting, reverse).
    dtype
        Of distances.
    farthest
        Distances beyond are not passed on.
    capacity
        Fields kept in memory.
    spill
        File for the others; created when needed.
    targets
        Stop where the farthest of these is reached: `farthest` becomes its distance.
    guarded
        Raise `Overflow` before integers get too large.
    method
        What works inside of a block: "relax", or "dijkstra".
    """

    ground: CellSource
    cost: Any
    options: Options
    dtype: np.dtype
    farthest: float
    capacity: int
    spill: Path
    targets: Places | None = None
    guarded: bool = False
    method: str = "relax"
    visits: Visits = field(default_factory=Visits)

    lanes: ClassVar[tuple[int, ...]] = ()
    """Shape of the distances of a cell; () for one."""

    receive, receive_seam = staticmethod(receive), staticmethod(receive_seam)
    take_rim = staticmethod(take_rim)

    def __post_init__(self) -> None:
        self.blocks, self.halo = self.ground.blocks, halo_of(self.options)
        self.infinity = infinity_of(np.empty(0, self.dtype))
        self._lock = threading.Condition()
        self._pending: dict[Block, Any] = {}
        self._queue: list[tuple[Any, Block]] = []
        self._busy: set[Block] = set()
        self._fields: OrderedDict[Block, Field] = OrderedDict()
        self._loading: set[Block] = set()
        self._rims: dict[Block, np.ndarray] = {}
        self._keys: dict[Block, np.ndarray] = {}
        self._whole: dict[Block, np.ndarray] = {}
        self._sides: dict[Block, np.ndarray] = {}
        self._at_targets: np.ndarray | None = None
        self.operator = dijkstra_block if self.method == "dijkstra" else relax_block
        self.guard = GUARDS[self.dtype.itemsize] if self.guarded else self.infinity
        self._slots = self._new_slots(resume=False)
        self._error: BaseException | None = None

    def shape(self, at: Block) -> tuple[int, int]:
        """Return the rows and columns of a block, rounded up to whole tiles."""
        r0, r1, c0, c1 = self.blocks.window(*at)
        return round_up(r1 - r0, TILE), round_up(c1 - c0, TILE)

    def seam(self, at: Block) -> int | None:
        """See `BlockGrid.seam`."""
        return self.blocks.seam(at, self.halo)

    # -- the order of blocks ---------------------------------------------------------------

    def start(self, at: Block, key: float) -> None:
        """Make a block pending."""
        if key < self._pending.get(at, self.infinity) and key <= self.farthest:
            self._pending[at] = key
            heapq.heappush(self._queue, (key, at))

    def compiled(self, heights: np.dtype, frictions: np.dtype) -> bool:
        """Whether the kernels for this cost are in numba's cache."""
        wanted = tuple(map(numba.from_dtype, (heights, frictions, self.dtype)))
        how = numba.typeof(self.cost), numba.typeof(self.options)
        return any(
            (t[0], t[5]) == how and (t[1].dtype, t[2].dtype, t[6].dtype) == wanted
            for t in known_types(self.operator)
        )

    def compile(self, heights: np.dtype, frictions: np.dtype) -> None:
        """Compile in this thread, which Ctrl-C can interrupt; a worker thread could not be."""
        side = TILE + 2 * self.halo
        cells, absent = np.zeros((side, side), heights), np.zeros((side, side), bool)
        lengths = np.ones((4 * self.halo, side))
        distances = self._infinite(side, side)
        self._relax(
            Field(cells, cells.astype(frictions), absent, lengths, distances),
            self._infinite(1, 1),
            np.zeros((1, 1), bool),
            self._new_work((TILE, TILE)),
            self._infinite(8),
        )

    def run(
        self,
        threads: int,
        checkpoint: float = math.inf,
        tick: Callable[[int], None] = lambda cells: None,
    ) -> None:
        """Relax until nothing is pending.

        Fields are saved every `checkpoint` seconds; `tick` is told how many cells were seen.
        """
        workers = [
            threading.Thread(target=self._work, name=f"terrain_gpu-{k}", daemon=True)
            for k in range(threads)
        ]
        try:
            for worker in workers:
                worker.start()
            saved = time.monotonic()
            for worker in workers:
                while worker.is_alive():
                    worker.join(_POLL)
                    tick(self.visits.seen)
                    if time.monotonic() - saved >= checkpoint:
                        self.save_all()
                        saved = time.monotonic()
        except BaseException as error:
            self._fail(error)
        for worker in workers:
            if worker.ident is not None:  # it was started
                worker.join()
        if self._error is not None:
            raise self._error

    def save_all(self) -> None:
        """Save every field that changed, for `restore`."""
        with self._lock:
            there = list(self._fields)
        for at in there:
            with self._lock:
                field = self._fields.get(at)
                if field is None or at in self._busy or not field.dirty:
                    continue
                self._busy.add(at)
            try:
                self._save(at, field)
            finally:
                self._release(at)
        self._slots.sync()

    def restore(self, others: Slots | SlotFiles) -> int:
        """Continue from saved fields, upper bounds of the distances; return their number.

        A damaged field counts as never visited: its neighbours and sources reach it again.

        Parameters
        ----------
        others
            Fields that a run on a cluster saved, if this one runs on one machine, or the
            reverse; they are removed.
        """
        self._slots.close()
        self._slots = self._new_slots(resume=True)
        across = self.blocks.shape[1]
        for owner in others:
            if owner not in self._slots:
                distances = self._new_distances(divmod(owner, across))
                if others.is_whole(owner, distances):
                    self._slots.save(owner, distances)
        others.close(keep=False)
        for owner in self._slots:
            at = divmod(owner, across)
            distances = self._new_distances(at)
            self.visits.add(loaded=distances.nbytes)
            if not self._slots.is_whole(owner, distances):
                continue
            self._make_pending(at, distances)
            self.start(at, self._keys[at].min())
            self._sides[at] = self._rim_sides(at, distances)
        return len(list(self._slots))

    def _make_pending(self, at: Block, distances: np.ndarray) -> None:
        """All that a block's upper bounds have reached may still have to be passed on."""
        (height, width), h = self.shape(at), self.halo
        tiles = distances[h:-h, h:-h].reshape(height // TILE, TILE, width // TILE, TILE)
        self._keys[at] = tiles.min(axis=(1, 3))
        self._whole[at] = self._keys[at] < self.infinity
        self._rims[at] = self._infinite(4 * h, max(height, width))
        self._put_rim(at, distances)

    def _new_distances(self, at: Block) -> np.ndarray:
        height, width = (n + 2 * self.halo for n in self.shape(at))
        found = pages((height, width * math.prod(self.lanes)), self.dtype)
        return found.reshape(height, width, *self.lanes)

    def _infinite(self, *shape: int) -> np.ndarray:
        """Distances that are not reached."""
        return np.full((*shape, *self.lanes), self.infinity, self.dtype)

    def stop(self, error: BaseException) -> None:
        """Let `run` end with an error; from any thread."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            self._lock.notify_all()

    def _work(self) -> None:
        work = self._new_work(self.shape((0, 0)))
        try:
            while (job := self._next()) is not None:
                try:
                    self._visit(job, work)
                finally:
                    self._release(job)
        except BaseException as error:
            self._fail(error)

    def _new_work(self, largest_block: tuple[int, int]) -> Any:
        if self.method == "dijkstra":
            return new_players(largest_block)
        return new_tile_work(self.dtype, self.halo)

    def _next(self) -> Block | None:
        """Return the idle block with the least key; None at the end."""
        with self._lock:
            while self._error is None:
                found = self._pop()
                if found is not None:
                    self._busy.add(found)
                    return found
                if not self._busy:
                    self._lock.notify_all()
                    return None
                self._lock.wait()
        return None

    def _pop(self) -> Block | None:
        later = []
        found = None
        while self._queue:
            key, at = heapq.heappop(self._queue)
            if self._pending.get(at, self.infinity) != key:
                continue
            if at in self._busy:
                later.append((key, at))
                continue
            found = at
            del self._pending[at]
            break
        for entry in later:
            heapq.heappush(self._queue, entry)
        return found

    # -- one visit -------------------------------------------------------------------------

    def _visit(self, at: Block, work: Any) -> None:
        field = self._take(at)
        keys, seam = self._keys[at], self.seam(at)
        self._receive(at, field.distances, keys, self._whole[at], self._halo(at))
        before = self._rims[at][3 * self.halo :].copy()
        sides = self._sides.pop(at, None)
        if sides is None:
            sides = self._infinite(8)
        least, tiles, passes, overflow = self._relax(field, keys, self._whole[at], work, sides)
        field.dirty = field.dirty or tiles > 0
        self._put_rim(at, field.distances)
        if seam:
            lower_sides(field.distances, before, seam, sides)
        if overflow:
            raise Overflow
        self.visits.add(blocks=1, tiles=int(tiles), passes=int(passes))
        with self._lock:
            for k, other in self._around(at):
                self.start(other, sides[k].min())
            self.start(at, least)
            self._note_targets(at, field)

    def _around(self, at: Block) -> Iterable[tuple[int, Block]]:
        """Return the blocks around one, each once with its D8 direction; the nearer ones first.

        Beyond the seam, a block of one column is passed by moves that reach two.
        """
        _, _, c0, c1 = self.blocks.window(*at)
        found: dict[tuple[int, Block], None] = {}
        for m in range(self.halo):
            for k in (0, 2, 4, 6, 1, 3, 5, 7):
                n = (0, c1 - c0 + m, -1 - m)[COL_STEP[k]]
                if m and (COL_STEP[k] == 0 or not self.blocks.wraps):
                    continue
                row, beside = at[0] + int(ROW_STEP[k]), self.blocks.column_beside(at[1], n)
                if beside is not None and 0 <= row < self.blocks.shape[0]:
                    found[k, (row, beside[0])] = None
        return found

    def _receive(
        self,
        at: Block,
        distances: np.ndarray,
        keys: np.ndarray,
        whole: np.ndarray,
        halo: np.ndarray,
    ) -> None:
        self.receive(distances, keys, halo)
        if seam := self.seam(at):
            self.receive_seam(distances, keys, whole, seam, halo[4 * self.halo :])

    def _put_rim(self, at: Block, distances: np.ndarray) -> None:
        """Set a block's rim, which other threads may be reading."""
        seam, rim = self.seam(at), self._rims[at]
        if seam is None:
            self.take_rim(distances, rim)
            return
        found = rim.copy()
        self.take_rim(distances, found)
        trim_rim(distances, found, seam)
        rim[...] = found

    def _relax(
        self,
        field: Field,
        keys: np.ndarray,
        whole: np.ndarray,
        work: Any,
        sides: np.ndarray,
    ) -> tuple[Any, int, int, bool]:
        return self.operator(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            field.distances,
            keys,
            whole,
            self.dtype.type(self.farthest),
            self.dtype.type(self.guard),
            work,
            sides,
        )

    def _note_targets(self, at: Block, field: Field) -> None:
        if self.targets is None or not len(self.targets):
            return
        mine = self._targets_in(at)
        rows, cols = (a[mine] % self.blocks.block for a in (self.targets.rows, self.targets.cols))
        self._reach_targets(mine, field.distances[rows + self.halo, cols + self.halo])

    def _reach_targets(self, mine: np.ndarray, distances: np.ndarray) -> None:
        if self._at_targets is None:
            self._at_targets = np.full(len(mine), self.infinity, self.dtype)
        self._at_targets[mine] = distances
        self.farthest = min(self.farthest, self._at_targets.max())

    def _targets_in(self, at: Block) -> np.ndarray:
        assert self.targets is not None
        b = self.blocks.block
        return (self.targets.rows // b == at[0]) & (self.targets.cols // b == at[1])

    def _halo(self, at: Block) -> np.ndarray:
        """Return the cells of neighbours' rims next to a block, see `receive`.

        Where the raster wraps, further rows hold the cells beyond the seam, see `receive_seam`.
        """
        h, wraps = self.halo, self.blocks.wraps
        halo = self._infinite(4 * h + h * wraps, max(self.shape(at)) + 2 * h)
        take_halo(self.blocks, at, self.shape(at), self._rims, halo)
        return halo

    # -- fields, in memory or spilled ------------------------------------------------------

    def _take(self, at: Block) -> Field:
        with self._lock:
            field = self._fields.get(at)
            if field is not None:
                self._fields.move_to_end(at)
                return field
            victims = {}
            while len(self._fields) + len(self._loading) >= self.capacity:
                other = next((b for b in self._fields if b not in self._busy), None)
                if other is None:
                    break
                victims[other] = self._fields.pop(other)
            self._loading.add(at)
            self._busy.update(victims)  # no thread may load them before they are written
        try:
            self._evict(victims)
            field = self._load(at)
        except BaseException:
            with self._lock:
                self._loading.discard(at)
            raise
        with self._lock:
            self._loading.discard(at)
            self._fields[at] = field
        return field

    def _evict(self, victims: dict[Block, Field]) -> None:
        """Save fields that leave memory; if one cannot be saved, all stay, for want of copies."""
        try:
            for at, field in victims.items():
                self._save(at, field)
        except BaseException:
            with self._lock:
                self._fields.update(victims)
            raise
        finally:
            for at in victims:
                self._release(at)

    def _load(self, at: Block) -> Field:
        field = self.ground.load(at)
        height, width = self.shape(at)
        if self._is_saved(at):
            field.distances = self._new_distances(at)
            self.visits.add(loaded=field.distances.nbytes)
            self._slots.load(self._slot(at), field.distances)
            return field
        field.distances = self._new_distances(at)
        field.distances[...] = self.infinity
        self.visits.add(seen=height * width)
        self._rims[at] = self._infinite(4 * self.halo, max(height, width))
        self._keys[at] = self._infinite(height // TILE, width // TILE)
        self._whole[at] = np.zeros((height // TILE, width // TILE), bool)
        self._set_sources(at, field)
        # Sources on the rim also affect the neighbours.
        self._put_rim(at, field.distances)
        self._sides[at] = self._rim_sides(at, field.distances)
        return field

    def _set_sources(self, at: Block, field: Field) -> None:
        rows, cols, values = self.ground.seeds(at, field)
        seed(field.distances, self._keys[at], self._whole[at], rows, cols, values)

    def _rim_sides(self, at: Block, padded: np.ndarray) -> np.ndarray:
        """Return the least distance on each side and corner, by D8 direction."""
        h = self.halo
        d = padded[h:-h, h : self.seam(at) or -h]
        first, last, every = slice(h), slice(-h, None), slice(None)
        rows = every, last, last, last, every, first, first, first  # clockwise from the east
        cols = last, last, every, first, first, first, every, last
        found = [d[one].min(axis=(0, 1)) for one in zip(rows, cols, strict=True)]
        return np.array(found, self.dtype)

    @property
    def field_bytes(self) -> int:
        """Bytes of the distances of a block."""
        side = self.blocks.block + 2 * self.halo
        return side**2 * self.dtype.itemsize * math.prod(self.lanes)

    def _slot(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def _new_slots(self, *, resume: bool) -> Slots | SlotFiles:
        return Slots(self.spill, self.blocks.count, self.field_bytes, resume=resume)

    def _save(self, at: Block, field: Field) -> None:
        if not field.dirty and self._is_saved(at):
            return
        self.visits.add(spilled=field.distances.nbytes)
        self._slots.save(self._slot(at), field.distances)
        field.dirty = False

    def _is_saved(self, at: Block) -> bool:
        return self._slot(at) in self._slots

    def close(self) -> None:
        """Close and delete the spill."""
        self._fields.clear()
        forget_spare_pages()
        self._slots.close()

    def offer(self, at: Block, steps: np.ndarray, count: int) -> None:
        """For `Flats`: give a block's rim before it is loaded, and make it pending if uneven."""
        rim = rim_of_hops(steps, self.dtype, self.halo, self.seam(at))
        self.take_offer(at, rim, count)

    def take_offer(self, at: Block, rim: np.ndarray, count: int) -> None:
        """See `offer`."""
        self._rims[at] = rim
        if count:
            with self._lock:
                self.start(at, self.dtype.type(0))

    def pending(self) -> list[Block]:
        """Pending blocks."""
        return list(self._pending)

    @contextmanager
    def solved(self, at: Block) -> Iterator[Field]:
        """Return a block after `run`, with a complete halo, for phase 3; from any thread."""
        with self._lock:
            while at in self._busy:
                self._lock.wait()
            self._busy.add(at)
        try:
            field = self._take(at)
            self._complete(at, field)
            yield field
        finally:
            self._release(at)

    def _complete(self, at: Block, field: Field) -> None:
        """Update the halo of a field."""
        ignored = self._keys[at].copy(), np.zeros(self._keys[at].shape, bool)
        self._receive(at, field.distances, *ignored, self._halo(at))

    def _release(self, at: Block) -> None:
        with self._lock:
            self._busy.discard(at)
            self._lock.notify_all()

    def interior(self, window: Window, padded: np.ndarray) -> np.ndarray:
        """The raster's own cells of a padded array."""
        h = self.halo
        return padded[h : window[1] - window[0] + h, h : window[3] - window[2] + h]
