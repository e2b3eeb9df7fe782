"""The spanning forest of a raster as an operation: `SpanningForest`.

1. *Blocks*: read every block once, solve it and write its final edges; spill its border and
   candidates.
2. *Levels*: join regions four at a time, depth first in Z-order, so that memory holds only the
   borders of one branch; collect the edges that become final inside finished blocks.
3. *Patches*: write those edges into the finished blocks, in order.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import Devices
from ..cells import to_json
from ..compiled import tell_compiling
from ..cuda.backend import Gpu, Placement, find_gpu
from ..engine.arrays import ArrayLayer, fitting_block
from ..engine.compression import refuse_for_arrays
from ..engine.machine import NO_LIMIT, Machine, limit_of
from ..engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ..engine.plan import PER_ROW, StreamPlan, layer_bytes, plan_forest
from ..engine.run import Result, Run, run_in_memory
from ..engine.schedule import missing
from ..errors import CellError, InputError
from ..facts import Findings, Settings
from ..grid import TILE, Block, BlockGrid, GridSpec, RegionGrid
from ..grid.lengths import Measured, refuse_without_lengths
from ..grid.neighbours import FORWARD_EDGES, symmetric
from ..io.labelled import ArrayKind
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, TileStore
from ..store.labels import Layered
from . import LAYER, MinimumSpanningTree
from .cpu.merge import most_vertices
from .levels import (
    METHODS,
    DiskSpill,
    MemorySpill,
    Patches,
    Solved,
    Solver,
    Spill,
    Totals,
    join_levels,
    spill_bytes,
)
from .proof.forest import verify_arrays, verify_forest
from .weights import Weight

MOST_CELLS = 2**61
"""Edge ids, four per cell, must fit int64."""


@dataclass(repr=False)
class SpanningTree(Layered):
    """A minimum spanning forest.

    Attributes
    ----------
    layer
        The store's layer of forward edges: bits 0 to 3 of a cell are its edges E, SW, S, SE; None
        for arrays.
    edge_count, components
        Number of edges and of trees (a cell without neighbours is a tree).
    total_weight
        Sum of the edges' weights: exact for integers, correctly rounded for real cells.
    report
        The run's `Report`.
    """

    layer: Layer | None
    edge_count: int
    components: int
    total_weight: int | float
    report: Report
    _forward: np.ndarray | None = None
    _kind: ArrayKind | None = None

    @classmethod
    def of(
        cls, report: Report, layer: Layer | None, forward: np.ndarray | None = None
    ) -> SpanningTree:
        """Return the forest that a report describes."""
        totals = report.result
        report.valid_cells = totals["vertices"]
        total = totals["total_weight"]
        exact = float(total) if isinstance(total, str) else total
        return cls(layer, totals["edges"], totals["components"], exact, report, forward)

    @property
    def layers(self) -> dict[str, Layer]:
        """The layer by its name; none for arrays."""
        return {} if self.layer is None else {LAYER: self.layer}

    def edges(self) -> np.ndarray:
        """Return the whole edge raster in memory: uint8, one bit per edge of a cell.

        Bits are ESRI's D8 codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128. Nodata cells
        are 0. Where the raster was an array of CuPy or a masked one, so are the edges.
        """
        if self._forward is not None:
            forward = self._forward
        elif self.layer is not None:
            forward = self.layer.read_window(*self.layer.grid.window)
        links = symmetric(np.pad(forward, 1))
        return self._kind.array(links, None) if self._kind else links


@dataclass(frozen=True)
class SpanningForest(Operation):
    """The spanning forest of a layer; fields are options of `MinimumSpanningTree`."""

    store: str
    layer: str = "elevation"
    weight: str = "max"
    connectivity: int = 8
    method: str = "frozen"

    command = MinimumSpanningTree.command
    mark = MinimumSpanningTree.mark

    @classmethod
    def of(cls, store: TileStore | None, tool: MinimumSpanningTree) -> SpanningForest:
        """Return the operation for an open store; None for a plan."""
        problem = tool.layer, tool.weight, tool.connectivity, tool.method
        if store is None:
            return cls("", *problem)
        if tool.layer == LAYER:
            raise InputError(
                f"{store.path}: {LAYER!r} is the result layer; name a layer of elevations"
            )
        forest = cls(str(store.path), *problem)
        if forest.grid.cells > MOST_CELLS:
            rows, cols = forest.grid.shape
            raise InputError(f"{rows} x {cols} cells exceed the maximum of {MOST_CELLS}")
        return forest

    def backend_for(self, requested: str) -> str:
        return "cpu" if requested == "auto" and self.method != "frozen" else requested

    def result(self, result: Result) -> SpanningTree:
        report = result.report
        del report.result["layers"]
        report.result = {"patched_edges": 0, **report.result, "layer": LAYER}
        return SpanningTree.of(report, result.layers[LAYER])

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("blocks", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        encoded = {"encoding": FORWARD_EDGES}
        return (OutputLayer(LAYER, np.dtype(np.uint8), None, "edges", encoded),)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return ("directions",) if self.weight == "flow" else ()

    @property
    def source(self) -> Any:
        """The layer of elevations, or an array wrapped as one."""
        return self.layers[0]

    @cached_property
    def bare(self) -> Weight:
        """The weight without lengths of steps, which are planned before they are computed."""
        try:
            weight = Weight(self.weight, self.source.dtype)
            if weight.slopes:
                refuse_without_lengths(self.grid)
        except InputError as error:
            if isinstance(self.source, ArrayLayer):
                raise
            raise InputError(f"{self.source.path}: {error}") from None
        return weight

    @cached_property
    def kind(self) -> Weight:
        return Weight.on(self.grid, self.bare.name, self.bare.dtype)

    @property
    def solved_by(self) -> str:
        """The method; tiles of "frozen" have no keys of two words."""
        return "contract" if self.bare.two_words else self.method

    def plan(self, machine: Machine) -> StreamPlan:
        source, kind, (rows, cols) = self.source, self.bare, self.grid.shape
        key, method = kind.key_dtype, METHODS[self.solved_by]
        spill = partial(spill_bytes, weight=kind, method=method)
        blocks, beside = self.blocks, 0
        if isinstance(source, ArrayLayer):  # solved blocks are spilled into memory
            stored = source.data.nbytes
            beside = source.data.size + source.copied + spill(blocks)
        else:
            stored = source.info.get("stored_bytes")
            if stored is None:
                stored = layer_bytes(rows, cols, source.dtype.itemsize, source.block_size)
        lengths = (PER_ROW + 32) * rows * kind.slopes  # and their reciprocals, as measured
        levels = most_vertices(blocks) * method.levels_per_vertex(key)
        if (gpu := machine.gpu) is not None:
            from .gpu.plan import keeps_cells, plan_regions

            for device in () if gpu.workers else gpu.devices:
                keeps_cells(kind, device)
            return plan_regions(
                rows,
                cols,
                kind,
                source.block_size,
                spill=spill,
                levels=levels,
                source_bytes=stored,
                machine=machine.beside(beside + lengths),
                method=self.solved_by,
            )
        return plan_forest(
            rows,
            cols,
            source.dtype,
            source.block_size,
            # Operands and their temporary, validity, and the method's work arrays.
            work=blocks.largest() * (2 * key.itemsize + 2) + method.work_bytes(blocks.sides, key),
            levels=levels,
            spill=spill(blocks),
            source_bytes=stored,
            common=lengths,
            beside=beside,
            machine=machine,
        )

    @cached_property
    def joiner(self) -> Solver:
        """Joins levels on the CPU; its kernel of blocks may not be compiled."""
        options = self.kind, self.source.nodata, self.connectivity == 8, METHODS[self.solved_by]
        return Solver(self.grid.shape, self.blocks.block, *options)

    @cached_property
    def solver(self) -> Solver:
        """The solver of blocks on the CPU, with compiled kernels."""
        solver, dtype = self.joiner, self.source.dtype
        if not solver.compiled():
            tell_compiling(solver.method.kernel, f"{dtype.name} cells")
            # Compile in the main thread: Ctrl-C would have to wait for a worker.
            one = Solver((1, 1), TILE, self.kind, None, solver.diagonal, solver.method)
            one.solve((0, 1, 0, 1), np.zeros((1, 1), dtype), np.zeros((1, 1), np.uint8))
        return solver

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        solved = self.solver.solve(self.blocks.window(*at), cells[0], out[0])
        return SolvedBlock(tuple(out), solved)

    def execute(self, run: Run) -> Findings:
        gpu = run.gpu
        if gpu is None:
            regions, solver = self.blocks, self.solver
        else:
            regions = RegionGrid(*self.grid.shape, run.plan.unit_rows)
            solver = self.joiner if gpu.workers else self.solver_on(gpu, run.plan)
        spill = self._spill(run, regions)
        try:
            if gpu is None:
                run.map(self.phases[0], _Spilled(spill))
            else:
                self._solve_regions(run, solver, regions, spill)
        except CellError as error:
            run.forget()
            if run.in_memory:
                raise
            raise CellError(f"{self.source.path}: {error}") from error
        lists = None if run.in_memory else run.spill / "patches"
        patches = Patches(self.blocks, self.grid.cols, lists)
        with run.report.phase("levels"):
            totals = self._join(run, solver, regions, spill, patches)
        run.patch(LAYER, patches.by_block())
        if not run.in_memory:
            run.told["patched_edges"] = patches.count
        return {
            "edges": totals.edges,
            "components": totals.vertices - totals.edges,
            "total_weight": to_json(self.kind.rounded(totals.exact)),
            "vertices": totals.vertices,
        }

    def _spill(self, run: Run, regions: BlockGrid) -> Spill:
        """Return the spill, and delete that of a run whose regions had another size."""
        if run.in_memory:
            return MemorySpill()
        folder = self.solved_in(run.spill, regions.block)
        for entry in run.spill.glob("solved-*"):
            if entry != folder:
                shutil.rmtree(entry)
        folder.mkdir(parents=True, exist_ok=True)
        return DiskSpill(folder, self.kind)

    def _join(
        self, run: Run, solver: Solver, regions: BlockGrid, spill: Spill, patches: Patches
    ) -> Totals:
        """Join all levels; on a cluster, the lower levels run as its tasks."""
        totals, leaf = Totals(), regions.block
        side = regions_of_a_task(regions.count, run.engine.slots)
        if side > 1:
            regions = RegionGrid(*self.grid.shape, leaf * side)
            self.joined_in(run.spill, regions.block).mkdir(exist_ok=True)
            tops = ((i * side, j * side, side, leaf) for i, j in regions.ids())
            for part, ids in run.engine.each(run, join_below, tops):
                totals.merge(part)
                patches.add(ids)
            spill = DiskSpill(self.joined_in(run.spill, regions.block), self.kind)
        join_levels(regions, solver, spill, totals, patches.add)
        return totals

    def keep(self, phase: Phase, at: Block, message: Any, folder: Path | None) -> Any:
        if folder is None:
            return message
        DiskSpill(self.solved_in(folder), self.kind).save(*at, message)
        return None

    def solved_in(self, folder: Path, side: int | None = None) -> Path:
        """Return the folder of solved regions of this side in cells; of blocks when None."""
        return folder / f"solved-{side or self.blocks.block}-{self.digest}"

    def joined_in(self, folder: Path, side: int) -> Path:
        """Return the folder of joined regions of this side in cells."""
        return folder / f"joined-{side}-{self.digest}"

    @cached_property
    def digest(self) -> str:
        """Part of the folders' names: a late worker of another run must not write into this one."""
        of = {**self.fingerprint(), "files": 2}  # with the sides of borders
        return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]

    def solver_on(self, gpu: Gpu, plan: StreamPlan) -> Any:
        """Return a `GpuSolver` for regions."""
        from .gpu.regions import GpuSolver

        nodata, diagonal = self.source.nodata, self.connectivity == 8
        method = METHODS[self.solved_by]
        return GpuSolver(self.blocks, plan.unit_rows, self.kind, nodata, diagonal, gpu, method)

    def _solve_regions(self, run: Run, solver: Any, regions: BlockGrid, spill: Spill) -> None:
        """Run the first phase on GPUs: of this process, or of a cluster's workers."""
        from .gpu.regions import solve_regions
        from .gpu.remote import region_tasks, solve_task

        def there(at: Block) -> bool:
            return spill.has(*at) and all(map(run.written, run.plan.blocks_of(regions.window(*at))))

        def done(at: Block) -> None:
            r0, r1, c0, c1 = regions.window(*at)
            run.progress((r1 - r0) * (c1 - c0), self.grid.cells)

        with run.report.phase(self.phases[0].name):
            unsolved = missing(regions, there, done)
            if not run.gpu.workers:
                solve_regions(
                    self.source, solver, run.writers[LAYER], unsolved, spill, run.plan, done
                )
                return
            folder = self.solved_in(run.spill, regions.block)
            tasks = region_tasks(unsolved, regions.count, run.gpu, run.plan, folder)
            with run.engine.lend(run, [LAYER]) as loan:
                for solved in loan.each(solve_task, tasks):
                    for at in solved:
                        done(at)

    def verify(self, run: Run, totals: Findings) -> Findings:
        # The CPU verifies if this GPU cannot hold a block, or is a worker's.
        gpu = None if run.gpu is None or run.gpu.workers else run.gpu._replace(wanted=False)
        options: Settings = {"gpu": gpu}
        options |= {"memory_limit": run.machine.memory_limit - run.held, "progress": run.progress}
        kind = self.weight, self.connectivity
        if isinstance(self.source, ArrayLayer):
            forward = run.writers[LAYER].data
            held = forward.size + self.source.copied
            data, nodata = self.source.data, self.source.nodata
            verify_arrays(data, nodata, forward, *kind, held=held, **options)
            return {}
        checked = verify_forest(
            self.source,
            run.layer(LAYER),
            weight=self.weight,
            connectivity=self.connectivity,
            expected=totals,
            threads=run.machine.threads,
            cluster=run.cluster,
            **options,
        )
        return {
            "verified_edges": checked["checked_edges"],
            "verified_on": checked["backend"],
        }


def over_array(
    tool: MinimumSpanningTree,
    data: np.ndarray,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    verify: bool = False,
    compress: str | None = None,
    progress: Progress = silent,
    **_: object,  # of stores alone
) -> SpanningTree:
    """Compute the spanning forest of an array in memory."""
    refuse_for_arrays(compress)
    limit = NO_LIMIT if memory_limit is None else limit_of(memory_limit)
    grid = GridSpec(*data.shape)
    block = fitting_block(*data.shape) if tool.block_size is None else tool.block_size
    cells = ArrayLayer(data, BlockGrid(grid.rows, grid.cols, block), grid, tool.nodata)
    forest = SpanningForest.of(None, tool).over([cells])
    gpu = find_gpu(forest.backend_for(backend), device, gpu_memory_limit, limit, 0)
    arrays, report = run_in_memory(
        forest,
        memory_limit=limit,
        threads=threads,
        verify=verify,
        place=Placement(gpu, progress),
    )
    return SpanningTree.of(report, None, arrays[LAYER])


def regions_of_a_task(regions: int, slots: int) -> int:
    """Return the side, in regions, of what each task joins; 1 when there are too few.

    Several tasks per worker balance the load.
    """
    side = 1
    while regions >= slots * 4 * (2 * side) ** 2 and slots > 1:
        side *= 2
    return side


def join_below(
    forest: SpanningForest, folder: Path, top: tuple[int, int, int, int]
) -> tuple[Totals, np.ndarray]:
    """Join a square of regions of some side in cells and store the result; see `join_levels`."""
    i, j, side, cells = top
    leaves = DiskSpill(forest.solved_in(folder, cells), forest.kind)
    totals, final = Totals(), [np.empty(0, np.int64)]
    regions = RegionGrid(*forest.grid.shape, cells)
    region = join_levels(regions, forest.joiner, leaves, totals, final.append, (i, j, side))
    assert region is not None
    # The sums below it are returned, not stored.
    whole = Solved(region, 0, 0, forest.kind.new_sums())
    joined = DiskSpill(forest.joined_in(folder, side * cells), forest.kind)
    joined.save(i // side, j // side, whole)
    return totals, np.concatenate(final)


class _Spilled(State):
    """Spills solved blocks; a block is finished only if it is both written and spilled."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill

    def finished(self, phase: Phase, at: Block, done: bool) -> bool:
        return done and self._spill.has(*at)

    def add(self, phase: Phase, at: Block, message: Solved | None) -> None:
        if message is not None:
            self._spill.save(*at, message)
