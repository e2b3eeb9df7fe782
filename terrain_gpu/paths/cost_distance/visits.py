"""Shortest paths in the workers of a cluster: visits of blocks, and the fields they leave.

A worker keeps the fields of its last visits, as many as its memory limit allows, and saves those
that leave. Whether the field it keeps is the one that the driver means is told by a stamp: each
call of `visit_blocks` gives its blocks a new one, which the driver knows once it has the result.
When nothing is pending any more, `write_blocks` writes the layers from these fields; one that is
lost is found again from the halo, which is final then.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...cells import is_nodata
from ...grid import TILE, Block
from ...io.places import Places
from ...store.spill import SlotFiles
from ..cost.edges import infinity_of
from ..cost.fields import Field, pages
from ..cost.knights import halo_of
from ..cost.steps import unreached
from ..relax.allocate import ids_of, labels_of, sides_of
from ..relax.block import receive, receive_seam
from ..relax.counts import Visits
from ..relax.final import (
    closed_codes,
    distances_of,
    own_cells,
    relaxation_of,
    relaxation_of_hops,
    steps_in,
    steps_of,
)
from ..relax.finalise import Flats
from ..relax.relaxation import Relaxation, rim_of_hops

if TYPE_CHECKING:
    from ...store.writer import BlockWriter
    from .operation import CostDistance

SECONDS = 0.07
"""Target duration of the visits of a call: a task costs some milliseconds, but halos get old."""


class Visit(NamedTuple):
    """The input of visits of a block.

    Attributes
    ----------
    key
        The least pending distance; infinite if nothing is pending.
    stamp
        That of the field.
    folder, name
        Where distances are saved, and the file with those of the block, if there is one.
    known
        Keys of tiles, and which of them are whole; None if the file is older than the stamp.
    sides
        The least distances on the sides, of a field that an earlier run has saved.
    sources, targets
        In the block.
    halo
        See `receive`; None if nothing in it lowers the field with the stamp.
    capacity
        Fields that a worker keeps.
    save
        Whether to save the field in the end.
    write
        Which of the lent layers to write, distances and backlinks.
    after
        For hops: the last visit for the distances, which are written.
    """

    at: Block
    key: float
    stamp: str
    folder: Path
    name: str | None
    known: tuple[np.ndarray, np.ndarray] | None
    sides: np.ndarray | None
    sources: Places
    targets: Places | None
    farthest: Any
    halo: np.ndarray | None
    capacity: int
    save: bool
    write: tuple[bool, ...]
    after: Visit | None


class Left(NamedTuple):
    """What a visit leaves for the driver: see `Visit`; `at_targets` are their distances."""

    rim: np.ndarray
    keys: np.ndarray
    whole: np.ndarray
    at_targets: np.ndarray | None


class Visited(NamedTuple):
    """The result of `visit_blocks`, and of `write_blocks`.

    Attributes
    ----------
    given
        The blocks that might be visited, or were written.
    stamp
        Of the blocks that were.
    left
        What these leave.
    pending
        Keys of blocks.
    saved
        Blocks with stamps and names of new files; also blocks that were not given.
    written
        What blocks that were written leave for later phases.
    """

    given: list[Block]
    stamp: str
    left: dict[Block, Left]
    pending: dict[Block, Any]
    saved: list[tuple[Block, str, str]]
    counts: dict[str, int]
    written: dict[Block, Any]


def least_key(dtype: np.dtype) -> float:
    """Return the key of a block that comes first."""
    return dtype.type(0 if dtype.kind == "u" else -np.inf)


class InFiles(Relaxation):
    """A relaxation whose fields are saved in files that several processes share."""

    @property
    def files(self) -> SlotFiles:
        assert isinstance(self._slots, SlotFiles)
        return self._slots


@dataclass
class Visitor(InFiles):
    """A relaxation of the blocks that a worker is given, which keeps their fields."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._given: dict[Block, Visit] = {}
        self._away: dict[Block, Any] = {}
        self._stamps: dict[Block, str] = {}
        self._older: set[Block] = set()
        self._left: dict[Block, Left] = {}
        self._named: dict[Block, str] = {}
        self._work_memory = self._new_work(self.shape((0, 0)))

    def _new_slots(self, *, resume: bool) -> SlotFiles:
        return SlotFiles(self.spill)

    def visit(self, visits: list[Visit], seconds: float = SECONDS) -> Visited:
        """Visit pending blocks, the least key first, for a while; save those that are due."""
        self._begin(visits[0])
        self._given, stamp = {one.at: one for one in visits}, uuid.uuid4().hex
        for one in visits:
            self.prepare(one)
        end = time.perf_counter() + seconds
        while (at := self._pop()) is not None:
            self._visit(at, self._work_memory)
            if time.perf_counter() >= end:
                break
        for one in visits:
            if one.save and (field := self._fields.get(one.at)) is not None:
                # The driver may not have heard of a file that was saved earlier.
                field.dirty |= self.files.names.get(self._slot(one.at)) != one.name
                self._save(one.at, field)
        pending = self._away | self._pending
        return self._end(visits, stamp, pending, {})

    def finish(self, visits: list[Visit], write: Callable[[Visitor, Visit], Any]) -> Visited:
        """Write blocks whose halos are final; a field that is lost is found again from its halo."""
        self._begin(visits[0])
        written = {}
        for one in visits:
            self._given = {one.at: one}
            self.prepare(one)
            while self._pop() is not None:
                self._visit(one.at, self._work_memory)
            written[one.at] = write(self, one)
            if one.at in self._left or not self._fields[one.at].dirty:
                self._forget(one.at)  # others may resume from a dirty one with its stamp
        self._left = {}
        return self._end(visits, "", {}, written)

    def _begin(self, one: Visit) -> None:
        self.visits, self._left, self._named, self._away = Visits(), {}, {}, {}
        self._pending, self._queue, self.farthest = {}, [], one.farthest

    def prepare(self, visit: Visit) -> None:
        """Get ready for a block: its field is there, or in its file, or begins anew."""
        at, key = visit.at, visit.key
        if at not in self._fields or self._stamps.get(at) != visit.stamp:
            self._forget(at)
            if visit.name is not None:
                self.files.names[self._slot(at)] = visit.name
            if visit.known is not None:
                self._keys[at], self._whole[at] = visit.known
                self._rims[at] = self._infinite(4 * self.halo, max(self.shape(at)))
            elif visit.stamp and visit.halo is None:  # the field is lost, and cannot be found
                del self._given[at]
                self.start(at, least_key(self.dtype))
                return
            elif visit.stamp:  # the field is lost: what the file lacks must be found again
                key = least_key(self.dtype)
                self._older.add(at)
        if visit.sides is not None:
            self._sides[at] = visit.sides
        self.start(at, key)

    def _forget(self, at: Block) -> None:
        for of_block in (self._fields, self._stamps, self._keys, self._whole, self._rims):
            of_block.pop(at, None)
        self._sides.pop(at, None)
        self._older.discard(at)
        self.files.names.pop(self._slot(at), None)

    def _end(
        self, visits: list[Visit], stamp: str, pending: dict[Block, Any], written: dict[Block, Any]
    ) -> Visited:
        """Stamp the visited blocks, forget what left memory, and return the result."""
        saved, given = [], [one.at for one in visits]
        for at, name in self._named.items():
            # A field that was visited after it was saved is newer than its file.
            dirty = at in self._fields and self._fields[at].dirty
            own = stamp if at in self._left else self._stamps.get(at, "")
            saved.append((at, "" if dirty else own, name))
        self._stamps |= dict.fromkeys(self._left, stamp)
        for at in {*given, *self._stamps} - self._fields.keys():
            self._forget(at)
        counts = self.visits.counts
        del counts["seen"]  # a block may begin twice
        return Visited(given, stamp, self._left, pending, saved, counts, written)

    def start(self, at: Block, key: float) -> None:
        if at in self._given:
            super().start(at, key)
        elif key < self._away.get(at, self.infinity) and key <= self.farthest:
            self._away[at] = key

    def _visit(self, at: Block, work: Any) -> None:
        tiles, new = self.visits.tiles, at not in self._fields and not self._is_saved(at)
        super()._visit(at, work)
        if self.visits.tiles == tiles and not new and not self._fields[at].dirty:
            return  # the field is as before
        field, targets = self._fields[at], self._given[at].targets
        at_targets = None
        if targets is not None:
            rows, cols = targets.rows % self.blocks.block, targets.cols % self.blocks.block
            at_targets = field.distances[rows + self.halo, cols + self.halo]
        self._left[at] = Left(self._rims[at], self._keys[at], self._whole[at], at_targets)

    def _halo(self, at: Block) -> np.ndarray:
        # The neighbours that are visited in this call are newer than what the driver knew.
        own, given = super()._halo(at), self._given[at].halo
        return own if given is None else np.minimum(own, given)

    def _load(self, at: Block) -> Field:
        found = super()._load(at)
        if at in self._older:
            self._older.discard(at)
            if self._is_saved(at):
                padded, h = found.distances, self.halo
                inside = padded[h:-h, h:-h].copy()
                padded[...] = self.infinity  # the halo as well
                padded[h:-h, h:-h] = inside
                self._make_pending(at, padded)
                found.dirty = True  # newer than the file as soon as it is visited
        return found

    def _save(self, at: Block, field: Field) -> None:
        if not field.dirty and self._is_saved(at):
            return
        before = self._named.get(at)
        super()._save(at, field)
        self._named[at] = self.files.names[self._slot(at)]
        if before is not None:
            (self.files.folder / before).unlink(missing_ok=True)


# -- functions of tasks -------------------------------------------------------------------------


def visit_blocks(problem: CostDistance, writers: list[BlockWriter], visits: list[Visit]) -> Visited:
    """Relax some blocks until nothing in them is pending, in a worker."""
    return _visitor(problem, writers, visits).visit(visits)


def write_blocks(problem: CostDistance, writers: list[BlockWriter], visits: list[Visit]) -> Visited:
    """Write some blocks when nothing is pending anywhere, in a worker."""
    write = _write_distances if visits[0].after is None else _write_hops
    return _visitor(problem, writers, visits).finish(visits, partial(write, problem, writers))


def _write_distances(
    problem: CostDistance, writers: list[BlockWriter], paths: Visitor, visit: Visit
) -> tuple[int, int, np.ndarray | None, int]:
    """Write distances, and backlinks unless there are flats.

    Returns
    -------
    reached, valid
        Numbers of cells.
    rim, count
        Hops on the rim if there are backlinks, and the number of cells on flats.
    """
    at = visit.at
    distances, reached, valid = distances_of(problem, paths, at)
    if visit.write[0]:
        writers[0].write_block(*at, distances)
    if len(writers) == 1:
        return reached, valid, None, 0
    codes, flat, count = steps_of(problem, paths, at)
    if visit.write[1] and not count:
        writers[1].write_block(*at, own_cells(problem.blocks.window(*at), codes))
    seam = problem.blocks.seam(at, paths.halo)
    return reached, valid, rim_of_hops(flat, np.dtype(np.uint32), paths.halo, seam), count


def _write_hops(
    problem: CostDistance, writers: list[BlockWriter], flats: Visitor, visit: Visit
) -> None:
    """Write the backlinks of a block with flats."""
    assert visit.after is not None
    codes, flat = _steps(problem, writers, visit.after)
    found = closed_codes(problem, flats, visit.at, codes, flat)
    if visit.write[1]:
        writers[1].write_block(*visit.at, found)


class Followed(NamedTuple):
    """A block whose backlinks are followed: its sources, and later the ids around it."""

    at: Block
    sources: Places
    around: np.ndarray | None = None


def follow_block(
    problem: CostDistance, writers: list[BlockWriter], given: Followed
) -> tuple[Block, tuple[np.ndarray, ...]]:
    """Return where the backlinks from a block's rim lead, in a worker."""
    return given.at, sides_of(_labels(problem, writers, given)[1], halo_of(problem.options))


def allocate_block(problem: CostDistance, writers: list[BlockWriter], given: Followed) -> None:
    """Write the sources of a block's cells, in a worker."""
    assert given.around is not None
    found = *_labels(problem, writers, given), given.around
    how = problem.blocks, halo_of(problem.options), given.at
    writers[2].write_block(*given.at, ids_of(*how, *found))


def _labels(
    problem: CostDistance, writers: list[BlockWriter], given: Followed
) -> tuple[np.ndarray, np.ndarray]:
    """Return the backlinks of a block, and where they lead."""
    problem.close()  # the fields of visits
    codes = writers[1].read_block(*given.at)
    roots = problem.ground.holding(given.sources).roots(given.at)
    how = problem.blocks, halo_of(problem.options), given.at
    return codes, labels_of(*how, codes, *roots)


def _visitor(problem: CostDistance, writers: list[BlockWriter], visits: list[Visit]) -> Visitor:
    """Return the visitor that this process keeps for the blocks of a run."""
    one, kept = visits[0], problem.visitor
    after = {visit.at: visit.after for visit in visits}

    def steps(at: Block) -> np.ndarray:
        final = after[at]
        assert final is not None
        return _steps(problem, writers, final)[1]

    if kept is None or kept.spill != one.folder:
        problem.close()
        kept = _of_distances(problem, one) if one.after is None else _of_hops(problem, one, steps)
        vars(problem)["visitor"] = kept
    if one.after is None:
        kept.ground = problem.ground.holding(_joined([visit.sources for visit in visits]))
    else:
        kept.ground = Flats(problem.blocks, steps)
    return kept


def _of_distances(problem: CostDistance, visit: Visit) -> Visitor:
    ground = problem.ground.holding(visit.sources)
    how = ground, visit.farthest, visit.capacity, visit.folder, None
    return relaxation_of(Visitor, problem, *how)


def _of_hops(problem: CostDistance, visit: Visit, steps: Callable[[Block], np.ndarray]) -> Visitor:
    how = problem.blocks, halo_of(problem.options), steps
    return relaxation_of_hops(Visitor, *how, visit.capacity, visit.folder)


def _joined(places: list[Places]) -> Places:
    names = "rows", "cols", "ids", "costs"
    columns = [np.concatenate([getattr(one, name) for one in places]) for name in names]
    return Places(*columns)  # type: ignore[arg-type]


def _steps(
    problem: CostDistance, writers: list[BlockWriter], visit: Visit
) -> tuple[np.ndarray, np.ndarray]:
    """Return predecessors, and the steps on flats, from the distances that are written."""
    assert visit.halo is not None
    ground = problem.ground.holding(visit.sources)
    field, cells = ground.load(visit.at), writers[0].read_block(*visit.at)
    infinity = infinity_of(cells)
    cells[is_nodata(cells, unreached(problem.dtype))] = infinity
    field.distances = pages(field.absent.shape, problem.dtype)
    field.distances[...] = infinity
    (height, width), h = cells.shape, halo_of(problem.options)
    field.distances[h : height + h, h : width + h] = cells
    tiles = [(n - 2 * h) // TILE for n in field.absent.shape]
    keys = np.empty(tiles, problem.dtype)
    receive(field.distances, keys, visit.halo)
    if seam := problem.blocks.seam(visit.at, h):
        whole = np.empty(tiles, bool)
        receive_seam(field.distances, keys, whole, seam, visit.halo[4 * h :])
    codes, flat, _count = steps_in(problem, ground, visit.at, field, visit.farthest)
    return codes, flat
