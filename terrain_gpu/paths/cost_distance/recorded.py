"""Operations on distances in a store and the steps from which they were computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...engine.operation import Operation, Phase, SolvedBlock
from ...errors import InputError
from ...grid import Block, BlockGrid
from ...store import Layer, TileStore
from ..cost.edges import infinity_of
from ..cost.steps import RESULTS, layer_named, unreached
from ..cost.terrain import Terrain
from ..proof import RingAcrossSeam
from ..proof.stored import RecordedPaths


@dataclass(frozen=True)
class RecordedSteps(Operation):
    """Base class of such operations.

    Attributes
    ----------
    distances
        The layer of distances.
    """

    store: str
    distances: str = RESULTS[0]

    knights: ClassVar[bool] = False
    """Whether the operation supports knight's moves."""

    @cached_property
    def problem(self) -> RecordedPaths:
        """The problem that the layer records."""
        found = RecordedPaths(TileStore.open(self.store).layer(self.distances))
        if found.connectivity == 16 and not self.knights:
            raise InputError(
                f"{found.layer.path}: {self.command} needs steps to 4 or 8 neighbours; compute the "
                "distances with connectivity 8"
            )
        if found.metric == "continuous":
            raise InputError(
                f"{found.layer.path}: {self.command} needs steps between neighbours, which the "
                "continuous metric does not have; compute the distances with metric steps"
            )
        return found

    @cached_property
    def terrain(self) -> Terrain:
        return self.problem.problem(TileStore.open(self.store))[0]

    @property
    def blocks(self) -> BlockGrid:
        """The blocks of the distances, whatever those of frictions and barriers."""
        return self.terrain.blocks

    def named(self, *results: str) -> tuple[str, ...]:
        """Names of the layers of distances, further results, elevations, frictions and barriers."""
        own = self.problem.settings
        names = [own.get(key) for key in ("layer", "friction", "barriers")]
        results = tuple(layer_named(self.distances, name) for name in results)
        return (self.distances, *results, *dict.fromkeys(str(n) for n in names if n is not None))

    def solve_read(
        self, phase: Phase, at: Block, data: list[np.ndarray], given: Any, work: Any
    ) -> SolvedBlock:
        # `solve` reads its inputs, with a ring.
        return self.solve(phase, at, [], data, given, work)

    def padded(self, layer: Layer, at: Block, shape: tuple[int, int]) -> np.ndarray:
        """Distances of a block with its halo and padding, in the form for kernels."""
        window, halo = self.blocks.window(*at), self.terrain.halo
        blocks = self.terrain.blocks
        ring = RingAcrossSeam(layer.read_ring, blocks)(window, halo=halo)
        found = np.empty(shape, layer.dtype)
        infinity = infinity_of(found)
        found[...] = infinity
        part = found[: ring.shape[0], : ring.shape[1]]
        void = np.isnan(ring) if layer.dtype.kind == "f" else ring == unreached(layer.dtype)
        np.copyto(part, ring, where=~void)
        # The rings outside the raster hold no distances.
        (r0, r1, c0, c1), (rows, cols) = window, (blocks.rows, blocks.cols)
        row = np.arange(r0 - halo, r1 + halo)
        col = np.arange(c0 - halo, c1 + halo)
        part[(row < 0) | (row >= rows)] = infinity
        if not blocks.wraps:
            part[:, (col < 0) | (col >= cols)] = infinity
        return found
