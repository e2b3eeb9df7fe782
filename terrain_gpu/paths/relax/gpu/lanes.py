"""Several GPUs that share the regions of a raster, each in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from .memory import LEAST_NOTES, NOTES, BlockStaging, new_notes
from .piece import Piece
from .problem import Problem
from .rims import Region, Rims

_POLL = 0.2
"""Seconds between checks: of the main thread for Ctrl-C, of the others for the end of the run."""


class Stopped(Exception):
    """Another GPU failed, or the run was interrupted."""


class Lane:
    """A GPU that computes one region at a time.

    Attributes
    ----------
    piece, at
        The region in its memory, and its place; None before the first.
    resident
        Which blocks of the region are in memory.
    pool, notes
        As for `Piece`.
    """

    def __init__(self, device: int, problem: Problem, stagings: int) -> None:
        import cupy

        self.device = device
        with cupy.cuda.Device(device):
            self.pool = [BlockStaging(problem.staging_bytes) for _ in range(stagings)]
            self.notes = new_notes()
        self.piece: Any = None
        self.at: Region | None = None
        self.resident: Any = None


class Lanes:
    """The GPUs of a run, and which of them has which region.

    Parameters
    ----------
    tick
        Called in the caller's thread with the number of cells that were read or written.

    Attributes
    ----------
    own
        Whether each region stays on one GPU, because there are no more regions than GPUs.
    """

    def __init__(
        self, problem: Problem, regions: Iterable[Region], tick: Callable[[int], None]
    ) -> None:
        regions, devices = list(regions), problem.gpu.devices
        count = min(len(devices), len(regions), problem.stagings)
        each = problem.stagings // count
        self.all = [Lane(device, problem, each) for device in devices[:count]]
        self.own = len(regions) <= count
        self._owner = dict(zip(regions, self.all, strict=False)) if self.own else {}
        self._holder: dict[Region, Lane] = {}
        self._tick, self._ticks = tick, deque[int]()
        self._lock = threading.Lock()
        self._stopped = False

    # -- regions ---------------------------------------------------------------------------

    def has(self, lane: Lane, at: Region) -> bool:
        """Whether a GPU still has a region, and no other GPU has visited it since."""
        return lane.at == at and self._holder.get(at) is lane

    def hold(self, lane: Lane, at: Region, piece: Piece) -> None:
        """Record that a GPU has a region."""
        lane.piece, lane.at = piece, at
        self._holder[at] = lane

    def _may(self, lane: Lane, at: Region) -> bool:
        return not self.own or self._owner[at] is lane

    # -- work ------------------------------------------------------------------------------

    def visit(
        self, rims: Rims, farthest: Callable[[], Any], work: Callable[[Lane, Region], None]
    ) -> None:
        """Call `work` for pending regions, on all GPUs at once, until none is pending."""
        busy: set[Region] = set()

        def take(lane: Lane) -> Region | None:
            def may(at: Region) -> bool:
                return at not in busy and self._may(lane, at)

            with rims.changed:
                while True:
                    self.check()
                    at = rims.next(farthest(), may)
                    if at is not None:
                        busy.add(at)
                        return at
                    if not busy and not rims.pending:
                        return None
                    rims.changed.wait(_POLL)

        def visit(lane: Lane) -> None:
            while (at := take(lane)) is not None:
                work(lane, at)
                with rims.changed:
                    busy.remove(at)
                    rims.changed.notify_all()

        self._share(visit)

    def each(self, regions: Iterable[Region], work: Callable[[Lane, Region], object]) -> None:
        """Call `work` once for each region, on all GPUs at once."""
        left = list(regions)

        def take(lane: Lane) -> Region | None:
            self.check()
            with self._lock:
                at = next((at for at in left if self._may(lane, at)), None)
                if at is not None:
                    left.remove(at)
                return at

        def one_by_one(lane: Lane) -> None:
            while (at := take(lane)) is not None:
                work(lane, at)

        self._share(one_by_one)

    def check(self) -> None:
        """Raise `Stopped` if another GPU failed or the run was interrupted."""
        if self._stopped:
            raise Stopped

    def tick(self, cells: int) -> None:
        """Count cells that were read or written."""
        if len(self.all) == 1:
            self._tick(cells)
        else:
            self._ticks.append(cells)

    def _tell(self) -> None:
        with suppress(IndexError):
            while True:
                self._tick(self._ticks.popleft())

    def _share(self, work: Callable[[Lane], None]) -> None:
        """Run `work` on every GPU at once."""
        import cupy

        if len(self.all) == 1:  # in this thread, which Ctrl-C reaches
            work(self.all[0])
            return

        def on(lane: Lane) -> None:
            try:
                with cupy.cuda.Device(lane.device):
                    work(lane)
            except BaseException:
                self._stopped = True
                raise

        with ThreadPoolExecutor(len(self.all)) as pool:
            running = [pool.submit(on, lane) for lane in self.all]
            try:
                while wait(running, _POLL).not_done:
                    self._tell()
            except BaseException:
                self._stopped = True
                raise
        self._tell()
        errors = [error for one in running if (error := one.exception()) is not None]
        if errors:
            raise next((one for one in errors if not isinstance(one, Stopped)), errors[0])

    # -- the end ---------------------------------------------------------------------------

    def noted(self) -> dict[str, int]:
        """Return the counts among `NOTES`, summed over all GPUs."""
        found = [lane.notes.get().tolist() for lane in self.all]
        sums = map(sum, zip(*found, strict=True))
        return dict(list(zip(NOTES, sums, strict=True))[LEAST_NOTES:])

    def clear(self) -> None:
        """Free the memory of all regions."""
        for lane in self.all:
            lane.piece = lane.at = lane.resident = None
        self._holder.clear()
