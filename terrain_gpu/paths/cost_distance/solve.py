"""The phases of cost distance on the CPU: `solve_on_cpu`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiled import tell_compiling
from ...engine.run import Run
from ...engine.schedule import stream
from ...facts import Findings
from ...grid import TILE, Block, ceil_div
from ...store.spill import SlotFiles, Slots
from ..distance_index.solve import FromIndex
from ..relax.allocate import BacklinkForest
from ..relax.final import (
    closed_codes,
    distances_of,
    own_cells,
    relaxation_of,
    relaxation_of_hops,
    steps_of,
)
from ..relax.relaxation import Relaxation

if TYPE_CHECKING:
    from .operation import CostDistance

CHECKPOINT = 60.0
"""Seconds between checkpoints, from which a killed run can continue."""


def solve_on_cpu(phases: Phases) -> Findings:
    """Run all phases; return the attributes of the layers. Counts of the work go to `run.told`."""
    problem, run = phases.problem, phases.run
    # An error may outlive the run, and open files would keep their space on disk.
    with phases.opened:
        with run.report.phase("relax"):
            restored = phases.relax()
        with run.report.phase("finalise"):
            reached, valid = phases.finalise()
        phases.paths.close()
        if "allocation" in problem.names:
            with run.report.phase("allocation"):
                phases.allocate()
    visits = phases.paths.visits
    side = TILE if problem.index is None else problem.index.tile
    tiles = math.prod(ceil_div(n, side) for n in problem.grid.shape)
    run.told |= {
        "valid_cells": valid,
        "blocks_resumed": restored,
        "block_visits_per_block": round(visits.blocks / problem.blocks.count, 3),
        "tile_visits_per_tile": round(visits.tiles / tiles, 3),
        "row_passes_per_visit": round(visits.passes / max(visits.tiles, 1) / TILE, 3),
        "spilled_bytes": visits.spilled,
        "loaded_bytes": visits.loaded,
    }
    if problem.index is not None:
        run.told["index_bytes"] = problem.index.bytes
    return problem.found(reached)


class Phases:
    """The phases of a run, and the objects that they share.

    Attributes
    ----------
    paths
        The relaxation.
    opened
        Closes the spills.
    """

    def __init__(self, problem: CostDistance, run: Run, spill: Path) -> None:
        self.problem, self.run, self.ground = problem, run, problem.ground
        self.threads, self.opened, self._told = run.plan.workers, ExitStack(), 0
        self.spill = spill
        self.paths = self._relaxation()
        self.opened.callback(self.paths.close)

    def _relaxation(self) -> Relaxation:
        problem, plan = self.problem, self.run.plan
        kind: Callable[..., Relaxation] = Relaxation
        if problem.index is not None:
            problem.index.room = plan.memory_limit - plan.memory
            problem.index.cache = self.spill.with_name("index")
            kind = partial(FromIndex, problem.index)
        how = self.ground, problem.farthest, plan.buffers, self.spill, problem.ends
        return relaxation_of(kind, problem, *how)

    def _left(self) -> Slots | SlotFiles:
        """Return fields left by an earlier run on a cluster."""
        return SlotFiles.left(self.spill)

    def relax(self) -> int:
        """Compute distances; return the number of blocks left by an earlier run."""
        paths, problem = self.paths, self.problem
        if not paths.compiled(*self.ground.types):
            tell_compiling(paths.operator, f"cost {problem.cost}")
            paths.compile(*self.ground.types)
        restored = paths.restore(self._left())
        for at, key in self.ground.starts():
            paths.start(at, problem.dtype.type(key))
        checkpoint = math.inf if self.run.in_memory else CHECKPOINT
        with self._saved_when_stopped():
            paths.run(self.threads, checkpoint, self._tick)
        return restored

    @contextmanager
    def _saved_when_stopped(self) -> Iterator[None]:
        """Save all fields after an interrupt, for a resumed run."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            if not self.run.in_memory:
                self.paths.save_all()
            raise

    def _tick(self, seen: int) -> None:
        """Report progress. Each cell is counted twice: when first reached, and when final."""
        cells = self.problem.grid.cells
        seen = min(seen, cells)
        self.run.progress(seen - self._told, cells)
        self._told = seen

    def finalise(self) -> tuple[int, int]:
        """Write distances and backlinks; return the numbers of reached and of valid cells."""
        paths, problem, run = self.paths, self.problem, self.run
        blocks = problem.blocks
        reached, valid = np.zeros((2, *blocks.shape), np.int64)
        flats = self._flats() if "backlink" in problem.names else None

        def save(at: Block) -> None:
            distances, reached[at], valid[at] = distances_of(problem, paths, at)
            run.write(problem.named["distance"], at, distances)
            if flats is None:
                return
            codes, flat, count = steps_of(problem, paths, at)
            flats.offer(at, flat, count)
            if not count:
                run.write(problem.named["backlink"], at, own_cells(blocks.window(*at), codes))

        with self._saved_when_stopped():
            self._tick(problem.grid.cells)
            self._each(blocks.ids(), save, run.tick)
            if flats is not None and flats.pending():
                self._close_flats(flats)
        return int(reached.sum()), int(valid.sum())

    def _flats(self) -> Relaxation:
        flats = relaxation_of_hops(
            Relaxation,
            self.problem.blocks,
            self.paths.halo,
            lambda at: steps_of(self.problem, self.paths, at)[1],
            self.run.plan.buffers,
            self.paths.spill.with_suffix(".flats"),
        )
        self.opened.callback(flats.close)
        return flats

    def _close_flats(self, flats: Relaxation) -> None:
        """Write the backlinks of blocks with flats, along the hops."""
        problem, run, uneven = self.problem, self.run, flats.pending()
        flats.run(self.threads)

        def close(at: Block) -> None:
            codes, flat, _count = steps_of(problem, self.paths, at)
            run.write(problem.named["backlink"], at, closed_codes(problem, flats, at, codes, flat))

        self._each(uneven, close)
        self.paths.visits.add(spilled=flats.visits.spilled, loaded=flats.visits.loaded)
        flats.close()

    def allocate(self) -> None:
        """Write the source of each cell, following the backlinks."""
        blocks = self.problem.blocks
        forest = BacklinkForest(blocks, self.paths.halo)
        named = self.problem.named
        backlinks = self.run.writers[named["backlink"]]

        def followed(
            at: Block,
        ) -> tuple[tuple[int, int], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            return at, backlinks.read_block(*at), *self.ground.roots(at)

        self._each(blocks.ids(), lambda at: forest.add(*followed(at)))
        forest.resolve()
        self._each(
            blocks.ids(),
            lambda at: self.run.write(named["allocation"], at, forest.labels(*followed(at))),
        )

    def _each(
        self,
        blocks: Iterable[Block],
        work: Callable[[Block], Any],
        done: Callable[[Block], None] | None = None,
    ) -> None:
        """Call a function for every block, in threads."""
        stream(
            blocks,
            lambda at, _: at,
            lambda at, _: work(at),
            buffers=[None] * self.threads,
            writers=self.threads,
            done=done,
        )
