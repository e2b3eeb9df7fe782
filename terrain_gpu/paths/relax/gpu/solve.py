"""Shortest paths on a GPU: `solve`. The raster is kept in GPU memory as one piece, if it fits.

The phases are those of the CPU. Blocks are read into padded arrays, and `relax` in kernels/paths.cu
relaxes waves of tiles to convergence. Then predecessors and allocation are computed, and blocks are
written. Distances are the unique fixed point of relaxation, so they have the same bits as on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....cuda.device import memory_bounds
from ....grid import Block
from ....report import Report
from .flats import FlatDistance
from .memory import BlockStaging, new_notes
from .piece import Piece, PieceLayer
from .problem import Problem, Read, Write


def solve(
    problem: Problem, report: Report, tick: Callable[[int], None], write: Write, read: Read
) -> dict[str, int]:
    """Compute the layers of a problem and write them block by block.

    Parameters
    ----------
    tick
        Called with the number of cells just read or written.
    write
        Called with layer, block and cells, from several threads.
    read
        Called with layer and block, from several threads; returns what was written.

    Returns
    -------
    counts
        "reached" and "valid" cells, "regions" and "region_visits", "tiles" and "tile_visits",
        "waves"; "memory", the planned GPU memory in bytes.

    Raises
    ------
    Overflow
        when distances overflow their dtype.
    PlanError
        when the GPU's memory is too small.
    """
    import cupy

    from .regions import Regions

    limit, sides = problem.plan()
    whole = sides == problem.blocks.shape
    devices = problem.gpu.devices[: 1 if whole else None]
    with memory_bounds(limit, devices), cupy.cuda.Device(devices[0]):
        if whole:
            return _Whole(problem, report, tick, write).run()
        return Regions(problem, sides, report, tick, write, read).run()


class _Whole:
    """Solves a problem whose raster fits GPU memory."""

    def __init__(
        self, problem: Problem, report: Report, tick: Callable[[int], None], write: Write
    ) -> None:
        self.problem, self.report, self.tick, self.write = problem, report, tick, write
        self.pool = [BlockStaging(problem.staging_bytes) for _ in range(problem.stagings)]
        window = (0, problem.blocks.rows, 0, problem.blocks.cols)
        self.piece = Piece(problem, window, self.pool, new_notes())

    def run(self) -> dict[str, int]:
        from .classic import RELAXERS

        piece = self.piece
        with self.report.phase("read"):
            piece.read(self._done)
        with self.report.phase("relax"):
            piece.seed()
            relax = RELAXERS.get(self.problem.method, Piece.relax)
            found = relax(piece, self._look_at_targets)
            self._look_at_targets()
        farthest = piece.relaxing.farthest
        outputs = [piece.distance_output(farthest)]
        if "backlink" in self.problem.names:
            with self.report.phase("finalise"):
                piece.link(farthest)
                hopping = FlatDistance(piece)
                if hopping.begin():
                    hopping.relax()
                    hopping.close()
                del hopping
                piece.heights = piece.frictions = piece.flat = None
            outputs.append(piece.backlink_output())
        if "allocation" in self.problem.names:
            with self.report.phase("allocation"):
                outputs.append(self._allocation())
        with self.report.phase("write"):
            piece.move(outputs, self.write, self._done)
        noted = piece.noted()
        return {
            "reached": noted["reached"],
            "valid": noted["valid"],
            "regions": 1,
            "region_visits": 1,
            "blocks_read": self.problem.blocks.count,
            "blocks_resumed": 0,
            "tiles": piece.shape.tiles[0] * piece.shape.tiles[1],
            "tile_visits": int(found["visits"]),
            "waves": int(found["number"]),
            "memory": self.problem.memory(*self.problem.blocks.shape),
        }

    def _done(self, at: Block) -> None:
        r0, r1, c0, c1 = self.problem.blocks.window(*at)
        self.tick((r1 - r0) * (c1 - c0))

    def _look_at_targets(self) -> None:
        """Lower the limit of distances to that of the farthest target."""
        targets, relaxing = self.problem.targets, self.piece.relaxing
        if targets is not None and len(targets):
            found = self.piece.at(targets.rows, targets.cols).max()
            relaxing.farthest = min(relaxing.farthest, found)

    def _allocation(self) -> PieceLayer:
        import cupy

        from .allocate import follow, naming

        piece = self.piece
        names = cupy.array(self.problem.ground.sources.ids)
        size = piece.shape.rows, piece.shape.cols
        around = piece.problem.blocks.wraps
        labels = follow(piece.kernels, piece.codes, piece.ids, names, *size, wraps=around)
        return naming(piece.kernels, labels, np.uint64(0), piece.shape.cols)
