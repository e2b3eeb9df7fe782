"""Sums along the spanning forest, out of core.

1. *Outlines*: read each block once, and contract it to the cells with edges to other blocks.
2. *Skeleton*: join the outlines in memory, and compute the flow between blocks.
3. *Drain*: read each block again, now that its inflows and outflows are known, and write it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import ArgumentError, StoreError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...grid.lengths import Measured
from ...io.places import Places
from ...report import Report
from ...spanning_tree import LAYER as TREE
from ...spanning_tree.weights import valid_cells
from ...store import Layer, TileStore
from ...store.labels import Layered
from ..common.code_values import NOWHERE
from ..common.codes import ENCODING
from ..common.outlets import BORDER, LOW_BORDER, Outlets, has_voids, is_low, refuse_missing
from ..common.rims import BlockRim
from ..common.sums import SumRule, count_dtype
from ..common.voids import Voids, known_bytes, label_voids, outside, voids_bytes
from ..common.weights import described_sums
from ..forest.block import Work, read_forest
from ..forest.drain import VERTEX_BYTES, Flows, drain, outline, solve
from ..forest.plan import plan_blocks, planned_skeleton
from ..forest.skeleton import Outline
from ..forest.source import Forest, heights_in, open_drained, open_forest
from ..forest.tree import contract
from . import LAYER, TreeAccumulation
from .proof import plan_passes, verify_drainage

if TYPE_CHECKING:
    from ...engine.run import Result


@dataclass(repr=False)
class Accumulation(Layered):
    """The result of `accumulate`.

    Attributes
    ----------
    layer
        Number of cells (uint32, or int64 for rasters of 2^32 cells or more) or area (float64) that
        drains through each cell; 0 for cells that reach no outlet, and for nodata.
    directions
        uint8, D8 codes towards the outlet (E 1, SE 2, ... NE 128), 0 at outlets, 255 for cells that
        reach none; None unless requested.
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

    @property
    def layers(self) -> dict[str, Layer]:
        """The layers by their names, the sums first."""
        written = [self.layer] if self.directions is None else [self.layer, self.directions]
        return {layer.path.name: layer for layer in written}


def plan_accumulation(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    sums: bool = True,
    areas: bool = False,
    directions: bool = False,
    voids: bool = False,
    machine: Machine,
) -> StreamPlan:
    """Plan `accumulate` for a layer of this shape, dtype and block size.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    size = 8 if areas else count_dtype(rows * cols).itemsize
    blocks, sizes = BlockGrid(rows, cols, block), [size] * sums + [1] * directions
    return plan_blocks(
        blocks,
        dtype,
        "drain",
        vertex=VERTEX_BYTES,
        work=6 * voids,
        results=9,
        beside=known_bytes(blocks) if voids else 0,
        before=voids_bytes(blocks) if voids else 0,
        row_bytes=48,  # lengths of the weight, areas
        written=sum(layer_bytes(rows, cols, size, block) for size in sizes),
        machine=machine,
    )


def plan_asked(
    tool: TreeAccumulation, blocks: BlockGrid, types: list[np.dtype], machine: Machine
) -> StreamPlan:
    """Plan a tool on elevations of a data type, without voids."""
    options = {"areas": tool.areas, "directions": tool.directions is not None}
    shape = blocks.rows, blocks.cols
    return plan_accumulation(*shape, types[0], blocks.block, **options, machine=machine)


@dataclass(frozen=True)
class Accumulate(Operation):
    """The operation. `digest` identifies the outlets; other fields are options of the tool."""

    store: str
    digest: str = BORDER
    areas: bool = False
    into: str | None = LAYER
    directions: str | None = None
    places: Places | None = field(default=None, compare=False, repr=False)

    command = "accumulate"
    mark = "outlets"
    messages = (Outline, BlockRim)
    halo = 1

    @property
    def phases(self) -> tuple[Phase, ...]:
        solved = Phase("outlines", joined="skeleton"), Phase("drain", writes=True)
        return (Phase("voids", joined="outside"), *solved) if self.has_voids else solved

    @property
    def has_voids(self) -> bool:
        return has_voids(self.digest, self.layers[0])

    @property
    def proof_passes(self) -> int:  # type: ignore[override]
        return 1 + self.has_voids + 2 * (self.into is not None)

    @cached_property
    def forest(self) -> Forest:
        return open_forest(self.store)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.forest.cells.name, self.forest.edges.name

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        layers = []
        if self.into is not None:
            like = self.rule.dtype, self.rule.nodata, "sums"
            described = described_sums(self.grid, None, "sum", self.areas)
            layers.append(OutputLayer(self.into, *like, described=described))
        if self.directions is not None:
            code = np.dtype(np.uint8)
            layers.append(
                OutputLayer(self.directions, code, NOWHERE, "drainage directions", ENCODING)
            )
        return tuple(layers)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("areas",) if self.areas else ()

    def settings(self) -> Settings:
        added = Outlets(self.digest, self.places).added(self.grid.cols)
        extra = {"added_outlets": added} if added else {}
        return {"outlets": self.digest, **extra, "areas": self.areas}

    def plan(self, machine: Machine) -> StreamPlan:
        cells = self.layers[0]
        return plan_accumulation(
            *cells.grid.shape,
            cells.dtype,
            cells.block_size,
            sums=self.into is not None,
            areas=self.areas,
            directions=self.directions is not None,
            voids=self.has_voids,
            machine=machine,
        )

    @cached_property
    def rule(self) -> SumRule:
        return SumRule(self.grid, self.areas)

    def new_work(self) -> tuple[Work, np.ndarray]:
        work = Work(self.blocks, self.forest.weight)
        return work, np.empty(self.blocks.largest(), np.uint8)

    def result(self, result: Result) -> Accumulation | Result:
        if self.into is None:  # directions alone
            return result
        report, layers, totals = result.report, result.layers, result.found
        reached = report.valid_cells
        report.settings |= {"into": self.into, "directions": self.directions}
        report.valid_cells = totals["cells"]
        report.result["reached"] = reached
        codes = None if self.directions is None else layers[self.directions]
        return Accumulation(layers[self.into], codes, totals["outlets"], reached or 0, report)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        if not known_types(contract):
            tell_compiling(contract, self.command)
        return _Drainage(self.forest.cells, plan, self.has_voids)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: tuple[Work, np.ndarray],
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        rims, flows = context
        if phase.name == "voids":
            absent = ~valid_cells(cells[0][1:-1, 1:-1], self.forest.cells.nodata)
            return SolvedBlock(known=BlockRim.of(label_voids(absent)[0]) if absent.any() else None)
        block = read_forest(self.forest, window, cells[0], cells[1], work[0])
        outer = None if rims is None else outside(~block.valid[1:-1, 1:-1], rims)
        outlets = Outlets(self.digest, self.places).within(window, block.valid, outer)
        values = None
        if self.into is not None:
            values = block.valid[1:-1, 1:-1] * self.rule.units[window[0] : window[1], None]
        if not phase.writes:
            return SolvedBlock(known=(*outline(block, outlets, values), len(block.order)))
        shape = window[1] - window[0], block.width
        codes = out[-1] if self.directions is not None else work[1][: block.size].reshape(shape)
        total = drain(block, outlets, values, flows, codes.reshape(-1))
        if self.into is not None:
            self.rule.write(window, codes, None, [total.reshape(shape)], out[0])
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        if self.directions is None:
            raise ArgumentError(
                "{verify} needs the directions along which sums are added up; also name a layer "
                "for them: {directions}"
            )
        *sums, codes = self.outputs
        outlets = 0 if self.places is None else len(self.places)
        limits = Limits(machine)
        total = sums[0] if sums else None
        voids = self.has_voids
        plan_passes(self.forest, codes, total, limits, outlets=outlets, voids=voids)

    def verify(self, run: Run, totals: Findings) -> Findings:
        verify_drainage(
            self.forest,
            run.layer(str(self.directions)),
            None if self.into is None else run.layer(self.into),
            self.digest,
            self.areas,
            totals,
            run.proof_limits,
            Outlets(self.digest, self.places).added(self.grid.cols),
        )
        return {"verified_cells": self.grid.cells}


class _Drainage(State):
    """The outlines of all blocks, then the flows between them."""

    def __init__(self, heights: Layer, plan: StreamPlan, has_voids: bool) -> None:
        self._heights, self._blocks = heights, heights.blocks
        self._voids = Voids(self._blocks) if has_voids else None
        sizes = {"vertex": VERTEX_BYTES, "beside": known_bytes(self._blocks) if has_voids else 0}
        self._skeleton = planned_skeleton(plan, heights.dtype, **sizes)
        self._flows: Flows | None = None
        self._found = {"cells": 0, "outlets": 0}

    def given(self, phase: Phase, at: Block) -> Any:
        if phase.name == "voids":
            return None, None
        outer = None if self._voids is None else self._voids.of(at)
        return outer, None if self._flows is None else self._flows.of(at)

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if phase.name == "voids":
            assert self._voids is not None
            self._voids.add(at, message)
        elif message is not None:
            outline, outlets, cells = message
            self._skeleton.add(outline)
            self._found["cells"] += cells
            self._found["outlets"] += outlets

    def join(self, phase: Phase) -> None:
        if phase.name == "voids":
            assert self._voids is not None
            self._voids.join()
            return
        refuse_missing(self._heights, self._found["cells"])
        self._flows = solve(self._skeleton.join(), self._blocks)
        self._found["outlets"] -= len(self._flows.closed)

    def found(self) -> Findings:
        return self._found


def refuse(tool: TreeAccumulation, store: TileStore) -> None:
    """Reject outlets that cannot be used, before a spanning forest is computed.

    Raises
    ------
    InputError
        As for `Outlets.of`.
    """
    if TREE not in store:
        outlets = BORDER if tool.outlets is None else tool.outlets
        Outlets.of(heights_in(store), outlets, tool.add_outlets)


def operation_of(store: TileStore | None, tool: TreeAccumulation) -> Accumulate:
    """Return the operation after checking the outlets."""
    assert store is not None, "`plan_asked` plans"
    forest, outlets = open_drained(store, "drainage"), tool.outlets
    if outlets is None:  # low outlets need outward edges, which only weights with slopes can order
        outlets = LOW_BORDER if forest.weight.slopes else BORDER
    ends = Outlets.of(forest.cells, outlets, tool.add_outlets)
    if is_low(ends.digest) and not forest.weight.slopes:
        raise StoreError(
            f"{forest.edges.path}: outlets {outlets!r} need a spanning forest of weight flow, but "
            f"this one has weight {forest.weight.name}; give 'edge' or 'border', or compute it "
            "again (compute-mst --weight flow --overwrite)"
        )
    named = tool.into, tool.directions
    return Accumulate(str(store.path), ends.digest, tool.areas, *named, ends.places)
