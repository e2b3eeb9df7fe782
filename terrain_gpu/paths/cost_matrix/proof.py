"""Prove the costs of a batch: the distances of each lane, step by step, and those of its targets.

The proof is that of `shortest_paths` (`paths.proof`), for the cells within the limit of a lane.
Lengths and climbs are those of paths whose steps give the distance of each cell exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import VerificationError
from ...grid import Block, Window
from ..cost.knights import halo_of
from ..cost.steps import unreached
from ..cost.terrain import Terrain
from ..proof import verify_paths

if TYPE_CHECKING:
    from ..least_cost_network.matrix import PairedPlaces
    from .operation import MatrixProblem
    from .reached import Reached

Distances = Callable[[int, Block], np.ndarray]
"""Returns the distances of a lane in a block, with the halo that steps need."""


def prove(
    problem: MatrixProblem | PairedPlaces,
    grounds: Sequence[Terrain],
    reached: Reached,
    distances: Distances,
    threads: int,
    stopped: Callable[[], None],
) -> int:
    """Prove the results of a batch; return the number of steps checked.

    Raises
    ------
    VerificationError
        at the first cell or target that is wrong.
    """
    steps = 0
    for lane, ground in enumerate(grounds):
        if not reached.wanted[:, lane].any():
            continue
        limit, none = reached.limits[lane], unreached(problem.dtype)

        def read(
            window: Window,
            out: None = None,
            *,
            halo: int = 1,
            lane: int = lane,
            limit: Any = limit,
            none: Any = none,
        ) -> np.ndarray:
            """Distances with their halo."""
            assert out is None
            assert halo == halo_of(problem.options)
            stopped()
            side = problem.blocks.block
            at = window[0] // side, window[2] // side
            found = distances(lane, at)
            # NaN, and the largest integer, are absent cells.
            found = np.where((found <= limit) & (found < reached.infinity), found, none)
            _check_targets(problem, reached, lane, at, found)
            return found

        checked = verify_paths(
            ground,
            problem.model.kernel,
            problem.options,
            problem.dtype,
            read,
            None,
            None,
            farthest=limit,
            threads=threads,
        )
        steps += checked["checked_steps"]
    return steps


def _check_targets(
    problem: MatrixProblem | PairedPlaces,
    reached: Reached,
    lane: int,
    at: Block,
    distances: np.ndarray,
) -> None:
    """Compare the costs recorded for targets in a block with its distances."""
    ends, side = reached.ends, problem.blocks.block
    mine, halo = ends.cells_in(problem.blocks, at), halo_of(problem.options)
    found = distances[ends.rows[mine] % side + halo, ends.cols[mine] % side + halo]
    noted = reached.distances[mine, lane]
    noted = np.where(noted <= min(reached.limits[lane], reached.infinity), noted, reached.infinity)
    found = np.where(found < reached.infinity, found, reached.infinity)
    if (found != noted).any():
        k = int(np.argmax(found != noted))
        row, col = int(ends.rows[mine[k]]), int(ends.cols[mine[k]])
        raise VerificationError(
            f"{problem.heights.name}: the target at row {row}, column {col} has cost {noted[k]}, "
            f"but its distance is {found[k]}",
            "totals",
            row,
            col,
        )
