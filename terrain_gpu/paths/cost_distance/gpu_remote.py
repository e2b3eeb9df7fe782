"""Shortest paths on the GPUs of a cluster's workers: this process keeps the order of regions.

A visit may happen twice, or be lost with its worker and the region on its GPU: see
docs/design/cluster.md for why the result is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.run import Run
from ...grid import ceil_div
from ...store.spill import SlotFiles, Slots
from ..cost.edges import infinity_of
from ..relax.gpu.piece import blocks_in
from ..relax.gpu.rims import Region, RegionMap, Rims
from ..relax.gpu.variants import SIDE
from .gpu_worker import (
    Around,
    RegionVisit,
    RegionVisited,
    SavedRegion,
    close_region,
    finish_region,
    hop_region,
    relax_region,
    save_region,
    slot_shape,
)
from .remote import allocate
from .solve import CHECKPOINT
from .visits import least_key

if TYPE_CHECKING:
    from .operation import CostDistance

SECONDS = 0.2
"""Target duration of a visit if all regions are relaxed at once: then neighbours exchange rims."""

Given = tuple[Callable[..., Any], RegionVisit]


class RemoteRegions:
    """Solves a problem in regions, on GPUs of workers.

    If there are no more regions than workers, each stays on one GPU: its home.
    """

    def __init__(self, problem: CostDistance, run: Run, spill: Path) -> None:
        self.problem, self.run, plan = problem, run, run.plan
        blocks, dtype = problem.blocks, problem.dtype
        sides = ceil_div(plan.unit_rows, blocks.block), ceil_div(plan.unit_cols, blocks.block)
        self.halo = problem.ground.halo
        self.map = RegionMap(blocks, sides, self.halo)
        self.rims, self.hops_rims = (
            Rims(self.map.windows, kind, wraps=blocks.wraps, halo=self.halo)
            for kind in (dtype, np.dtype(np.uint32))
        )
        self.farthest, self.least = problem.farthest, least_key(dtype)
        ends = () if problem.ends is None else problem.ends
        self._at_targets = np.full(len(ends), infinity_of(np.empty(0, dtype)), dtype)
        self._spill, self._opened = spill, ExitStack()
        self.files = SlotFiles.left(spill)
        self._present: Collection[str] = ()
        self._homes: dict[Region, str] = {}
        self._last: dict[str, Region] = {}
        self._busy: set[Region] = set()
        self._fields: dict[Region, str] = {}
        self._hops: dict[Region, str] = {}
        self._settled: set[Region] = set()
        self._unfinished: set[Region] = set()
        self._unsaved: dict[Region, float] = {}
        self._seen: set[Region] = set()
        self._uneven: set[Region] = set()
        self._unwritten: list[Region] = []
        self._counts: dict[str, int] = {}
        outputs = problem.outputs[:2]
        self._write = tuple(not run.writers[output.name].finished for output in outputs)

    def __enter__(self) -> RemoteRegions:
        names = [self.problem.named[name] for name in self.problem.names]
        # One loan for all: workers keep their regions until its end.
        self.loan = self._opened.enter_context(self.run.engine.lend(self.run, names))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def solve(self) -> int:
        """Run all phases; return how many cells are reached."""
        report, linked = self.run.report, "backlink" in self.problem.names
        resumed = self._restore()
        with report.phase("relax"), self._saved_when_stopped():
            self._converse(self._to_relax)
            for at in self.map.windows.keys() - self._seen:
                self._tick(at)
        with report.phase("finalise"), self._saved_when_stopped():
            self._write_all(finish_region, list(self.map.windows))
            if linked and self._uneven:
                self.hops_rims.pending = dict.fromkeys(self._uneven, 0)
                self._converse(self._to_hop)
                self._write_all(close_region, sorted(self._uneven))
        self.files.close(keep=False)
        allocation = self.run.writers.get(self.problem.named["allocation"])
        if allocation is not None and not allocation.finished:
            with report.phase("allocation"):
                allocate(self.problem.ground, self.loan)
        self._tell(resumed)
        return self._counts["reached"]

    def _tell(self, resumed: int) -> None:
        counts, windows = self._counts, self.map.windows.values()
        tiles = sum(ceil_div(b - a, SIDE) * ceil_div(d - c, SIDE) for a, b, c, d in windows)
        gpu, plan = self.run.gpu._replace(workers=()), self.run.plan
        form = self.problem._problem(plan.readers, plan, gpu, self._spill)
        self.run.told |= {
            "valid_cells": counts["valid"],
            "blocks_resumed": resumed,
            "regions": len(windows),
            "region_visits": counts["region_visits"],
            "blocks_read": counts["blocks_read"],
            "gpu_memory_bytes": form.memory(*self.map.sides),
            "tile_visits_per_tile": round(counts["tile_visits"] / tiles, 3),
            "waves": counts["waves"],
        }

    def _restore(self) -> int:
        """Take what earlier runs have saved, here or on one machine; return how many blocks."""
        problem, files, blocks = self.problem, self.files, self.problem.blocks
        files.begin()
        largest = slot_shape(blocks, (0, 0), self.halo)
        size = largest[0] * largest[1] * problem.dtype.itemsize
        others = Slots(self._spill, blocks.count, size, resume=True)
        across = blocks.shape[1]
        for slot in others:
            cells = np.empty(slot_shape(blocks, divmod(slot, across), self.halo), problem.dtype)
            if slot not in files and others.is_whole(slot, cells):
                files.save(slot, cells)
        others.close(keep=False)
        for slot in files:
            self.rims.start(self.map.of(divmod(slot, across)), self.least)
        for at, key in problem.ground.starts():
            self.rims.start(self.map.of(at), problem.dtype.type(key))
        return len(files.names)

    @contextmanager
    def _saved_when_stopped(self) -> Iterator[None]:
        """Save all regions after an interrupt, for a run that resumes."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self._busy.clear()
            self._converse(self._to_save)
            raise

    def _converse(self, give: Callable[[str], Given | None]) -> None:
        def given(home: str, present: Collection[str]) -> Given | None:
            self._present = present
            for at, own in self._homes.items():
                if own not in present and at not in self._busy:
                    self._lose(at)
            return give(home)

        with closing(self.loan.converse(given)) as results:
            for home, visited in results:
                self._take(home, visited)

    def _write_all(self, work: Callable[..., Any], regions: list[Region]) -> None:
        self._unwritten = regions
        self._converse(lambda home: self._to_write(home, work))

    # -- what workers are given ----------------------------------------------------------------

    def _home(self, at: Region) -> str:
        """The worker that has a region on its GPU; "" if none has."""
        home = self._homes.get(at, "")
        return home if home in self._present and self._last.get(home) == at else ""

    def _alone(self) -> bool:
        """Whether each region stays on one GPU."""
        return len(self.map.windows) <= len(self._present)

    def _may(self, home: str) -> Callable[[Region], bool]:
        """Return whether a worker may be given a region."""
        alone, taken = self._alone(), any(self._home(at) == home for at in self._homes)

        def may(at: Region) -> bool:
            own = self._home(at)
            free = not alone or own == home or not (own or taken)
            return free and at not in self._busy

        return may

    def _to_relax(self, home: str) -> Given | None:
        """Return the region with the least key; at the beginning any, so that all are read."""
        may, now = self._may(home), time.monotonic()
        at, seconds = self.rims.next(self.farthest, may), SECONDS if self._alone() else np.inf
        if at is None and self._alone():
            unread = (at for at in self.map.windows if at not in self._fields and may(at))
            at = next(unread, None)
        if at is None:
            due = (at for at in self._unsaved if self._is_due(at, now) and self._home(at) == home)
            at = next((at for at in due if at not in self._busy), None)
        if at is None:
            return None
        return relax_region, self._visit(home, at, seconds, save=self._is_due(at, now))

    def _is_due(self, at: Region, now: float) -> bool:
        return now >= self._unsaved.get(at, now) + CHECKPOINT

    def _to_save(self, home: str) -> Given | None:
        for at in self._unsaved:
            if self._home(at) == home:
                del self._unsaved[at]
                return save_region, self._visit(home, at)
        return None

    def _to_hop(self, home: str) -> Given | None:
        may = self._may(home)
        at = self.hops_rims.next(2**31 - 1, lambda at: at in self._uneven and may(at))
        return None if at is None else (hop_region, self._visit(home, at, hops=True))

    def _to_write(self, home: str, work: Callable[..., Any]) -> Given | None:
        """Return a region that the worker has, or none has, or that others have saved."""

        def order(at: Region) -> int:
            own = self._home(at)
            return 0 if own == home else 1 if not own else 2

        free = [at for at in self._unwritten if order(at) < 2 or at in self._settled]
        if not free:
            return None
        at = min(free, key=order)
        self._unwritten.remove(at)
        return work, self._visit(home, at, hops=work is close_region)

    def _visit(
        self,
        home: str,
        at: Region,
        seconds: float = 0.0,
        *,
        save: bool = False,
        hops: bool = False,
    ) -> RegionVisit:
        """Return a visit, which is under way from now on."""
        around = Around.of(*self.rims.ring(at))
        hops_around = Around.of(*self.hops_rims.ring(at)) if hops else None
        names, slots = self.files.names, self._slots(at)
        self._busy.add(at)
        self._homes[at], self._last[home] = home, at
        return RegionVisit(
            at,
            self._fields.get(at, ""),
            self._hops.get(at, ""),
            at in self._settled,
            self.files.folder,
            {slot: names[slot] for slot in slots if slot in names},
            around,
            hops_around,
            self.farthest,
            seconds,
            save,
            self._write,
            self.run.gpu._replace(workers=()),
            self.run.plan,
        )

    def _slots(self, at: Region) -> Iterator[int]:
        """Yield the slots of a region's blocks."""
        blocks, across = self.problem.blocks, self.problem.blocks.shape[1]
        return (i * across + j for i, j in blocks_in(blocks, self.map.windows[at]))

    # -- what they return ----------------------------------------------------------------------

    def _take(self, home: str, visited: RegionVisited) -> None:
        at = visited.at
        self._busy.discard(at)
        self._homes[at], self._last[home] = home, at
        self._fields[at], self._hops[at] = visited.field, visited.hops
        for name, count in visited.counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        if visited.rim is not None:
            self._settled.discard(at)
            self._unsaved.setdefault(at, time.monotonic())
            self.rims.put(at, visited.rim)
            self._unfinished.discard(at)
            if visited.pending:
                self._unfinished.add(at)
                self.rims.start(at, self.least)
            if at not in self._seen:
                self._seen.add(at)
                self._tick(at)
        if visited.hops_rim is not None:
            self.hops_rims.put(at, visited.hops_rim)
        for saved in visited.saved:
            self._take_files(saved, own=saved.at == at)
        if len(self._at_targets):
            self._at_targets = np.minimum(self._at_targets, visited.at_targets)
            self.farthest = min(self.farthest, self._at_targets.max())
        if "reached" in visited.counts:
            if visited.flats:
                self._uneven.add(at)
            self._tick(at)
        for other, own in self._homes.items():  # what had to leave was saved, or is lost
            if own == home and other != at and other not in self._busy:
                self._lose(other)

    def _take_files(self, saved: SavedRegion, *, own: bool) -> None:
        """Take the files of the region that was visited, its `own`, or of one that had to leave."""
        at = saved.at
        # A visit under way may read the files before, and those of an older field are useless.
        if not own and (at in self._busy or self._fields.get(at) != saved.field):
            for name in set(saved.names.values()) - set(self.files.names.values()):
                with suppress(OSError):
                    (self.files.folder / name).unlink()
            return
        for slot, name in saved.names.items():
            self.files.rename(slot, name)
        for slot in self._slots(at):
            if slot not in saved.names and slot in self.files:
                self.files.forget(slot)  # it was damaged, and nothing reaches its block
        self._unsaved.pop(at, None)
        if at not in self._unfinished:
            self._settled.add(at)

    def _lose(self, at: Region) -> None:
        """What a worker had not saved of a region must be found again, unless all is final."""
        if at in self._settled or not self._fields.get(at):
            return
        self._fields[at] = ""
        self._unsaved.pop(at, None)
        self.rims.start(at, self.least)

    def _tick(self, at: Region) -> None:
        self.run.progress(self.map.cells(at), self.problem.grid.cells)
