"""All steps back on least-cost paths, as bits: `tied_steps`.

Where several paths have the same cost, a backlink is only one of the steps. All of them follow from
the distances and the costs of steps: those from strictly nearer neighbours, and the backlink
itself, which on a flat is the only one certain to lead out. So these steps never form a loop.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, text
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...facts import Findings, Settings
from ...grid import TILE, Block
from ...progress import Progress, silent
from ...store import TileStore
from ..cost.fields import Field
from ..cost.steps import RESULTS, layer_named
from ..cost_distance.recorded import RecordedSteps
from .kernels import tied
from .proof import plan_ties_proof, verify_ties

TIES = "ties"


@dataclass(frozen=True)
class TiedSteps(RecordedSteps):
    """The operation; fields are parameters of `tied_steps`."""

    into: str = TIES

    command = "tied-steps"
    mark = "ties_of"
    phases = (Phase("ties", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.named("backlink")

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.into, np.dtype(np.uint8), None, "tied steps"),)

    def settings(self) -> Settings:
        return {"ties_of": self.distances}

    def plan(self, machine: Machine) -> StreamPlan:
        block = self.blocks.block
        ring, item = (block + 2 + TILE) ** 2, self.layers[0].dtype.itemsize
        raw = sum(layer.dtype.itemsize + 1 for layer in self.layers[2:])
        size = [layer_bytes(*self.grid.shape, one.dtype.itemsize, block) for one in self.layers]
        return fit_blocks(
            self.blocks,
            self.layers[0].dtype.name,
            "for the ties of",
            buffer=self.blocks.largest(),
            worker=ring * (2 * item + 2 * raw + 8 + 8 + 4) + 8 * 8 * TILE * TILE,
            scratch=4 * self.blocks.largest(tiled=True),
            common=PER_ROW * self.grid.rows,
            bytes_read=sum(size),
            bytes_written=layer_bytes(*self.grid.shape, 1, block),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        # Compile in the main thread, which Ctrl-C stops.
        shape, dtype = (TILE + 2, TILE + 2), self.layers[0].dtype
        heights, frictions = (np.zeros(shape, kind) for kind in self.terrain.types)
        cells = np.zeros((1, 1), np.uint8)
        self._mark(
            Field(heights, frictions, np.ones(shape, bool), np.ones((4, TILE + 2)), heights),
            np.zeros(shape, dtype),
            cells,
            cells.copy(),
        )
        return State()

    def plan_verify(self, machine: Machine) -> None:
        limits, others = Limits(machine), (self.layers[1], self.outputs[0])
        plan_ties_proof(self.terrain, self.layers[0], *others, limits)

    def verify(self, run: Run, found: Findings) -> Findings:
        paths = self.problem.problem(TileStore.open(self.store))
        distances, backlinks, *_ = self.layers
        made = run.layer(self.into)
        proven = verify_ties(paths, distances, backlinks, made, run.proof_limits)
        return {"verified_ties": proven["cells"]}

    def new_buffer(self) -> list[np.ndarray]:
        return [np.empty(self.blocks.largest(), np.uint8)]

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        r0, r1, c0, c1 = self.window(at)
        return [buffer[0][: (r1 - r0) * (c1 - c0)].reshape(r1 - r0, c1 - c0)]

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: object,
        work: object,
    ) -> SolvedBlock:
        field = self.terrain.load(at)
        distances = self.padded(self.layers[0], at, field.absent.shape)
        window = self.blocks.window(*at)
        self._mark(field, distances, self.layers[1].read_window(*window), out[0])
        return SolvedBlock(tuple(out))

    def _mark(
        self, field: Field, distances: np.ndarray, codes: np.ndarray, ties: np.ndarray
    ) -> None:
        tied(
            self.terrain.model.kernel,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.problem.options,
            distances,
            codes,
            np.empty((8, TILE, TILE), distances.dtype),
            ties,
        )


@checked(distances=text)
def tied_steps(
    store: str | os.PathLike[str] | TileStore,
    distances: str = RESULTS[0],
    *,
    into: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Find all steps back from each cell along least-cost paths, not only one.

    Parameters
    ----------
    store
        A store with distances and backlinks of `shortest_paths`.
    distances
        The layer of distances.
    into
        Layer to write: uint8, the sum of the D8 codes (E 1, SE 2, ... NE 128) of all neighbours
        that are strictly nearer to a source and on a least-cost path, and of the backlink; 0 at
        sources and unreached cells. "ties" when None, or "walk_ties" for the distances "walk".
    memory_limit
        Limit on the peak resident set size of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers compute the blocks, each within `memory_limit`. When
        None, this process does the work.
    verify
        Prove the steps in another pass over the cells; distances and backlinks have their own
        proof.
    compress
        Compression of the layer, as for `convert_dataset`; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the number of cells just done, and the total.

    Returns
    -------
    Result
        Its layer is named `into`.

    Raises
    ------
    InputError
        when a name is not valid.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks distances or backlinks, or already has such a result.
    VerificationError
        when the proof fails; no result is written then.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Examples
    --------
    >>> shortest_paths("dem.zarr", [(0, 0)], backlink=True)
    >>> tied_steps("dem.zarr").layers["ties"].read_window(0, 100, 0, 100)
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    name = into or layer_named(distances, TIES)
    return run(
        TiedSteps(str(opened.path), distances, name),
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
