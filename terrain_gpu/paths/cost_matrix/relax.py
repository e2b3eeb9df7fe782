"""Distances from a batch of sources, one in each lane, until their targets are final."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grid import TILE, Block, BlockGrid
from ..cost.fields import Field
from ..cost.terrain import Terrain
from ..relax.relaxation import GUARDS, Relaxation
from .block import receive, receive_seam, relax_block, seed, take_rim
from .lanes import LANES
from .reached import Reached
from .tile import new_work

if TYPE_CHECKING:
    from ..least_cost_network.matrix import PairedPlaces
    from .operation import MatrixProblem


class SourceBatch:
    """The cells from which the distances of a batch start: the `CellSource` of its relaxation.

    Parameters
    ----------
    grounds
        One for each lane with a source.
    kept
        Fields of an earlier batch, whose cells need not be read again. Each block that is loaded
        takes one of them away, so fields never become more.
    """

    def __init__(self, grounds: Sequence[Terrain], kept: dict[Block, Field]) -> None:
        self.grounds, self._kept = grounds, kept
        self.blocks: BlockGrid = grounds[0].blocks
        self._spare: dict[tuple[int, ...], list[np.ndarray]] = {}
        self._lock = threading.Lock()

    def load(self, at: Block) -> Field:
        with self._lock:
            found = self._kept.pop(at, None)
            left = found
            if left is None and self._kept:
                left = self._kept.pop(next(iter(self._kept)))
            if left is not None:
                self._spare.setdefault(left.distances.shape, []).append(left.distances)
        return found or self.grounds[0].load(at)

    def distances(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """An array of an earlier batch, if there is one of this shape."""
        with self._lock:
            spare = self._spare.get(shape)
            return spare.pop() if spare else None

    def seeds(self, at: Block, field: Field) -> Any:
        raise NotImplementedError("every lane has its own")


class BatchRelaxation(Relaxation):
    """Relaxes the distances from up to `LANES` sources at once, see `cost_matrix.block`.

    Attributes
    ----------
    reached
        What is found at the targets.
    """

    lanes = (LANES,)
    receive, receive_seam = staticmethod(receive), staticmethod(receive_seam)
    take_rim = staticmethod(take_rim)

    def __init__(
        self,
        batch: SourceBatch,
        problem: MatrixProblem | PairedPlaces,
        reached: Reached,
        capacity: int,
        spill: Path,
    ) -> None:
        how = problem.model.kernel, problem.options, problem.dtype, problem.farthest
        super().__init__(batch, *how, capacity, spill, guarded=problem.guarded)
        self.operator = relax_block
        self.guard = GUARDS[8] if problem.guarded else self.infinity
        self.batch, self.reached = batch, reached

    @property
    def limits(self) -> np.ndarray:
        """By lane: larger distances are not passed on, and not final."""
        return self.reached.limits

    def _new_work(self, largest_block: tuple[int, int]) -> Any:
        return new_work(self.dtype, self.halo)

    def _new_distances(self, at: Block) -> np.ndarray:
        height, width = (n + 2 * self.halo for n in self.shape(at))
        found = self.batch.distances((height, width, LANES))
        return super()._new_distances(at) if found is None else found

    def _set_sources(self, at: Block, field: Field) -> None:
        for lane, ground in enumerate(self.batch.grounds):
            rows, cols, values = ground.seeds(at, field)
            where = self._keys[at], self._whole[at]
            seed(field.distances, *where, lane, rows, cols, values.astype(self.dtype))

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
            self.limits.copy(),
            self.dtype.type(self.guard),
            work,
            sides,
        )

    def _note_targets(self, at: Block, field: Field) -> None:
        """Lower the limits to what the targets in a block allow."""
        ends = self.reached.ends
        mine = ends.cells_in(self.blocks, at)
        if not len(mine):
            return
        rows, cols = (a[mine] % self.blocks.block + self.halo for a in (ends.rows, ends.cols))
        if self.reached.note(mine, field.distances[rows, cols]):
            self.farthest = self.limits.max()

    @property
    def known(self) -> set[Block]:
        """The blocks that were visited."""
        return set(self._keys)

    def close(self, *, keep: bool = True) -> None:
        """Close the spill, and remove it unless `keep`."""
        super().close()
        self._slots.close(keep=keep)

    def take_fields(self) -> dict[Block, Field]:
        """Take the fields away, for the next batch."""
        found = dict(self._fields)
        self._fields.clear()
        return found

    def around(self, lane: int, at: Block) -> np.ndarray:
        """The distances of a lane in a block when all is final, with its halo."""
        more = 2 * self.halo
        r0, r1, c0, c1 = self.blocks.window(*at)
        ring = np.s_[: r1 - r0 + more, : c1 - c0 + more, lane]
        if at in self.known:
            with self.solved(at) as field:
                return field.distances[ring].copy()
        height, width = self.shape(at)  # never visited, but its neighbours may have been
        empty, tiles = self._infinite(height + more, width + more), (height // TILE, width // TILE)
        ignored = self._infinite(*tiles), np.zeros(tiles, bool)
        self._receive(at, empty, *ignored, self._halo(at))
        return empty[ring]

    def lane(self, field: Field, lane: int) -> Field:
        """A field with the distances of one lane."""
        distances = np.ascontiguousarray(field.distances[..., lane])
        own = field.heights, field.frictions, field.absent, field.lengths
        return Field(*own, distances)
