"""Flow accumulation on the spanning forest, out of core: `accumulate`.

1. *Outlines*: every block is read once and contracted to the cells with edges to other blocks.
2. *Skeleton*: the outlines are joined in memory, and the flow between blocks is computed.
3. *Drain*: every block is read again; its inflows and outflows are now known, and it is written.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import checked
from ..engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ..engine.plan import StreamPlan, layer_bytes
from ..engine.proof import Limits
from ..engine.run import Here, Run, run
from ..errors import InputError, StoreError
from ..grid import Block, BlockGrid
from ..grid.lengths import area_units
from ..io.places import Places, PlacesLike, as_places, refuse_nodata
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from .block import BlockForest, Work, read_forest
from .drain import VERTEX_BYTES, Flows, drain, outline, solve
from .plan import plan_blocks
from .skeleton import Skeleton
from .source import Forest, open_forest
from .verify import verify_drainage
from .verify.checker import plan_passes

LAYER = "accumulation"
NOWHERE = 255
"""D8 code of cells that do not drain to an outlet."""


@dataclass
class Accumulation:
    """The result of `accumulate`.

    Attributes
    ----------
    layer
        Number of cells (int64) or area (float64) that drains through each cell; 0 where no outlet
        is reached, and at cells without a value.
    directions
        uint8 D8 codes towards the outlet (E 1, SE 2, ... NE 128), 0 at outlets, 255 where none is
        reached; None unless requested.
    outlets, reached
        Number of outlets, and of cells that drain to one.
    report
        The run's `Report`.
    """

    layer: Layer
    directions: Layer | None
    outlets: int
    reached: int
    report: Report


def plan_accumulation(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    directions: bool = False,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """Plan `accumulate` for a layer of this shape, dtype and block size.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    return plan_blocks(
        BlockGrid(rows, cols, block),
        dtype,
        "accumulate",
        vertex=VERTEX_BYTES,
        results=9,
        written=sum(layer_bytes(rows, cols, size, block) for size in (8, 1)[: 1 + directions]),
        memory_limit=memory_limit,
        threads=threads,
    )


@checked()
def accumulate(  # noqa: PLR0913 - keyword-only
    store: str | os.PathLike[str] | TileStore,
    outlets: PlacesLike | None = None,
    *,
    areas: bool = False,
    into: str = LAYER,
    directions: str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Accumulation:
    """Root the spanning forest at outlets, and sum what drains through each cell.

    Every cell drains along the forest to one outlet. A tree with several outlets is cut between
    any two of them at the heaviest edge of the path that joins them, as if water rose from all
    outlets at once. The result is the minimum spanning forest relative to the outlets.

    Parameters
    ----------
    store
        A store with the layer "mst".
    outlets
        Cells, in the forms that `shortest_paths` accepts as sources. Trees without an outlet drain
        nowhere. None: all cells at the edge of the raster and next to cells without a value.
    areas
        Sum areas (map units squared, or square metres for a geographic CRS) instead of cells.
    into, directions
        Names of the layers for the sums and for the drainage directions; no directions when None.
    memory_limit
        Bound on the peak resident set of the process, in bytes; a quarter of RAM when None.
    threads
        Number of threads; one per processor when None.
    client
        A ``distributed.Client`` whose workers solve the blocks; `memory_limit` then applies to
        each worker. None: this process solves them.
    verify
        Verify the result in two more passes over the cells; needs `directions`.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result, once the new one is complete.
    progress
        Called with the number of cells just processed, and the total over both passes.

    Raises
    ------
    InputError
        when the memory limit is too small, an outlet has no value, a result would replace one of
        its own inputs, or `verify` is set without `directions`.
    StoreError
        when there is no spanning forest, its weight is "absdiff", it is damaged, or the result
        exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    J. Cousty, G. Bertrand, L. Najman, M. Couprie (2009), Watershed cuts: minimum spanning forests
    and the drop of water principle; IEEE TPAMI 31(8). Sums are sums of integers, so they do not
    depend on the blocks; see `area_units`.
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    forest = open_forest(opened)
    if forest.weight.subtracts:
        raise StoreError(
            f"{forest.edges.path}: computed with weight {forest.weight.name}, but drainage needs "
            "weight flow or max; compute it again (compute-mst --weight flow --overwrite)"
        )
    if outlets is not None:
        outlets = as_places(forest.cells.grid, outlets, "outlets")
        if not len(outlets):
            raise InputError("there are no outlets; give some, or None for the raster's edge")
        refuse_nodata(outlets, forest.cells)
        outlets = outlets.one_per_cell("outlets")
    digest = "border" if outlets is None else _digest(outlets)
    operation = Accumulate(str(opened.path), digest, areas, into, directions, outlets)
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    report, found, layers = result.report, result.found, result.layers
    reached = report.valid_cells
    report.settings |= {"into": into, "directions": directions}
    report.valid_cells = found["cells"]
    report.result["reached"] = reached
    codes = None if directions is None else layers[directions]
    return Accumulation(layers[into], codes, found["outlets"], reached or 0, report)


def _digest(outlets: Places) -> str:
    return hashlib.sha256(np.ascontiguousarray(outlets.places).tobytes()).hexdigest()


def outlets_in(block: BlockForest, given: Places | None) -> np.ndarray:
    """Outlets in a block, int32: those given, or else the cells at the border of the data."""
    r0, r1, c0, c1 = block.window
    if given is None:
        valid = block.valid
        across = valid[:, :-2] & valid[:, 1:-1] & valid[:, 2:]
        inner = across[:-2] & across[1:-1] & across[2:]
        return np.flatnonzero(valid[1:-1, 1:-1] & ~inner).astype(np.int32)
    first, last = np.searchsorted(given.rows, [r0, r1])
    rows, cols = given.rows[first:last], given.cols[first:last]
    here = (cols >= c0) & (cols < c1)
    return ((rows[here] - r0) * block.width + cols[here] - c0).astype(np.int32)


@dataclass(frozen=True)
class Accumulate(Operation):
    """The operation. `digest` identifies the outlets; other fields are as for `accumulate`."""

    store: str
    digest: str = "border"
    areas: bool = False
    into: str = LAYER
    directions: str | None = None
    outlets: Places | None = field(default=None, compare=False, repr=False)

    command = "accumulate"
    mark = "outlets"
    halo = 1
    proof_passes = 2

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("outlines", joined="skeleton"), Phase("drain", writes=True)

    @cached_property
    def forest(self) -> Forest:
        return open_forest(self.store)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.forest.cells.name, self.forest.edges.name

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        sums = OutputLayer(self.into, np.dtype(np.float64 if self.areas else np.int64), 0, "sums")
        if self.directions is None:
            return (sums,)
        code = {"encoding": "esri-d8-downstream"}
        codes = OutputLayer(
            self.directions, np.dtype(np.uint8), NOWHERE, "drainage directions", code
        )
        return sums, codes

    def settings(self) -> dict[str, Any]:
        return {"outlets": self.digest, "areas": self.areas}

    def plan(
        self, memory_limit: int | str | None, threads: int | None, gpu: Any = None
    ) -> StreamPlan:
        cells = self.forest.cells
        return plan_accumulation(
            *cells.grid.shape,
            cells.dtype,
            cells.block_size,
            directions=self.directions is not None,
            memory_limit=memory_limit,
            threads=threads,
        )

    @cached_property
    def units(self) -> tuple[np.ndarray, float]:
        """The value of a cell of each row, as an integer number of units, and the unit."""
        return area_units(self.grid) if self.areas else (np.ones(self.grid.rows, np.int64), 1.0)

    def new_work(self) -> Any:
        return Work(self.blocks), np.empty(self.blocks.block**2, np.uint8)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Drainage(self.blocks, plan.memory_limit)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        units, unit = self.units
        block = read_forest(self.forest, self.blocks.window(*at), cells[0], cells[1], work[0])
        r0, r1, _, _ = block.window
        outlets = outlets_in(block, self.outlets)
        values = block.valid[1:-1, 1:-1] * units[r0:r1, None]
        if not phase.writes:
            return SolvedBlock(
                known=(outline(block, outlets, values), len(block.order), len(outlets))
            )
        codes = out[1].reshape(-1) if len(out) > 1 else work[1][: block.size]
        total = drain(block, outlets, values, given, codes).reshape(out[0].shape)
        np.multiply(total, unit if self.areas else 1, out=out[0])
        return SolvedBlock(tuple(out))

    def plan_verify(self, memory_limit: int, threads: int | None) -> None:
        if self.directions is None:
            raise InputError(
                "verify (--verify) adds the sums up along the directions; name a layer for these "
                "too (--directions)"
            )
        sums, codes = self.outputs
        given = 0 if self.outlets is None else len(self.outlets)
        plan_passes(self.forest, codes, sums, Limits(memory_limit, threads), outlets=given)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        verify_drainage(
            self.forest,
            run.layer(str(self.directions)),
            run.layer(self.into),
            self.digest,
            self.areas,
            found,
            run.proof_limits,
        )
        return {"verified_cells": self.grid.cells}


class _Drainage(State):
    """The outlines of all blocks; then the flows between them."""

    def __init__(self, blocks: BlockGrid, memory_limit: int) -> None:
        self._blocks = blocks
        self._skeleton = Skeleton(VERTEX_BYTES, memory_limit)
        self._flows: Flows | None = None
        self._found = {"cells": 0, "outlets": 0}

    def given(self, phase: Phase, at: Block) -> Any:
        return None if self._flows is None else self._flows.of(at)

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        if known is not None:
            outline, cells, outlets = known
            self._skeleton.add(outline)
            self._found["cells"] += cells
            self._found["outlets"] += outlets

    def join(self, phase: Phase) -> None:
        self._flows = solve(self._skeleton.join(), self._blocks)

    def found(self) -> dict[str, Any]:
        return self._found
