"""Cost distance over a raster as an operation: `CostDistance`.

1. *Relax*: blocks in the order of their least pending distance, to convergence
   (`relax.relaxation`), or from a distance index, or on a GPU (`relax.gpu`).
2. *Finalise*: each block once, in parallel: distances, predecessors, allocation.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...cells import is_nodata
from ...cuda.backend import Gpu, Placement
from ...cuda.device import free_staging
from ...engine.arrays import ArrayLayer
from ...engine.connection import OVERHEAD
from ...engine.machine import COMPILED_BASELINE, CUDA_BASELINE, NO_BOUND, Machine
from ...engine.operation import OutputLayer, Phase
from ...engine.plan import StreamPlan, plan_paths
from ...engine.run import Run, run_in_memory
from ...errors import InputError
from ...facts import Findings, Settings
from ...grid import TILE, Block, BlockGrid, GridSpec, units
from ...grid.lengths import refuse_without_lengths
from ...grid.neighbours import BACKLINKS, KNIGHT_BACKLINKS
from ...io.places import NO_PLACES, Places
from ...report import trim
from ...store import Layer, TileStore
from ...store.swap import withdraw
from ...store.temporary import TemporaryFolder
from ..cost.graph import CostGraph
from ..cost.knights import halo_of
from ..cost.models import is_directed
from ..cost.steps import RESULTS, UNREACHED, layer_named, unreached
from ..cost.terrain import Terrain
from ..distance_index.files import Index
from ..distance_index.solve import rims_bytes
from ..proof import RingAcrossSeam, ring_of, threads_within, upper_limit, verify_paths
from ..relax.dijkstra import players_bytes
from ..relax.relaxation import GUARDS, Overflow
from . import FindShortestPaths
from .remote import RemotePhases
from .solve import Phases, solve_on_cpu

LAYERS: tuple[str, ...] = RESULTS

PLACE_BYTES = 100
"""Memory for a source or a target."""

LABEL_BYTES = 32
"""Memory for a cell of a block that `relax.allocate` follows."""

FEW_PLACES = 10_000
"""Up to this number, sources and targets are not counted: the baseline has room for them."""

_rehearsed: set[tuple[Any, ...]] = set()
"""The problems whose kernels this process has loaded."""


@dataclass(frozen=True)
class CostDistance(CostGraph):
    """The problem; its fields are parameters of `shortest_paths`.

    Attributes
    ----------
    names
        Outputs: "distance", "backlink", "allocation", in this order.
    into
        The layer of distances; the others are named after it, see `named`.
    indexed, built
        Whether distances come from the store's index, and whether that was built just before.
    wide
        Whether integer distances have 64 bits, whatever the type of the elevations.
    verified
        Whether the memory limit must leave room for the proof.
    wrap
        Whether the last column meets the first one, see `wrap.joined`.
    """

    sources: Places = field(default=NO_PLACES, compare=False)
    source_edge: bool = False
    max_cost: float | None = None
    targets: Places | None = field(default=None, compare=False)
    stop_at_targets: bool = False
    names: tuple[str, ...] = ("distance",)
    into: str = LAYERS[0]
    method: str = "relax"
    indexed: bool = False
    built: bool = False
    wide: bool = False
    verified: bool = False
    wrap: bool = False

    command = FindShortestPaths.command
    mark = FindShortestPaths.mark

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase("relax"), Phase("finalise", writes=True))

    @property
    def passes(self) -> int:
        # A cell is counted when it is first reached, and when it is final.
        return 2 + self.built

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        kinds = {
            "distance": (self.dtype, unreached(self.dtype), "distances"),
            "backlink": (np.dtype(np.uint8), UNREACHED, "backlinks"),
            "allocation": (np.dtype(np.uint32), 0, "ids of sources"),
        }
        own = {"start_costs": bool(self.sources.costs.any())}
        codes = KNIGHT_BACKLINKS if self.connectivity == 16 else BACKLINKS
        directed = {"directed": True} if is_directed(self.model.kernel) else {}
        more: dict[str, dict[str, Any]] = {"backlink": {"encoding": codes}, "distance": directed}
        described = {"distance": units.in_unit(self.unit)}
        return tuple(
            OutputLayer(
                *(self.named[n], *kinds[n], {**own, **more.get(n, {})}),
                described=described.get(n, {}),
            )
            for n in self.names
        )

    @property
    def named(self) -> dict[str, str]:
        """The layers of the store that the outputs go to."""
        return {name: layer_named(self.into, name) for name in LAYERS}

    def settings(self) -> Settings:
        return {
            **self.steps,
            "source_edge": self.source_edge,
            "max_cost": self.max_cost,
            "layer": self.layer,
            "friction": self.friction,
            "barriers": self.barriers,
            "sources": _digest(self.sources),
            "targets": _digest(self.targets) if self.stop_at_targets else None,
            # Omitted if false, as in older stores.
            **({"wrap": True} if self.wrap else {}),
        }

    def fingerprint(self) -> Settings:
        # All methods give the same bits, so one may resume the work of another.
        inexact = {"method": "index"} if self.indexed and not self.exact else {}
        return {**super().fingerprint(), **inexact}

    def beside(self, made: Mapping[str, Layer | None]) -> Settings:
        # Backlinks and ids are meaningless without their own distances.
        distance = made.get(self.into)
        return {} if distance is None else {"beside": {self.into: distance.identity}}

    # -- the problem ----------------------------------------------------------------------------

    @property
    def blocks(self) -> BlockGrid:
        return replace(super().blocks, wraps=self.wrap)

    @cached_property
    def dtype(self) -> np.dtype:
        """Type of distances."""
        found = self.model.distance_dtype(self.heights.dtype)
        most = self.sources.costs.max(initial=0)
        if found == np.uint32 and (self.wide or most > GUARDS[4]):
            return np.dtype(np.uint64)
        return found

    @property
    def exact(self) -> bool:
        """Whether distances are independent of the order in which costs are added."""
        return self.dtype.kind != "f" or self.model.kind.bottleneck

    @property
    def farthest(self) -> Any:
        """The limit of distances: larger ones are not propagated."""
        return upper_limit(self.max_cost, self.dtype)

    @property
    def ends(self) -> Places | None:
        """The targets; the search stops at the farthest one."""
        return self.targets if self.stop_at_targets else None

    @cached_property
    def ground(self) -> Terrain:
        return Terrain(
            self.blocks,
            self.model,
            self.heights,
            self.rasters["friction"],
            self.rasters["barriers"],
            self.lengths,
            self.sources,
            self.dtype,
            edge=self.source_edge,
        ).stepping(self.options)

    @cached_property
    def index(self) -> Index | None:
        return Index.open(TileStore.open(self.store), self.blocks) if self.indexed else None

    # -- memory ---------------------------------------------------------------------------------

    def plan(self, machine: Machine) -> StreamPlan:
        refuse_without_lengths(self.grid)  # lengths are not computed yet
        friction, barriers = self.rasters["friction"], self.rasters["barriers"]
        gpu = machine.gpu
        there = gpu is not None and bool(gpu.workers)  # the driver has the rims, no fields
        plan = plan_paths(
            *self.grid.shape,
            self.heights.dtype,
            self.blocks.block,
            distance=self.dtype,
            friction=None if friction is None else friction.dtype,
            barriers=None if barriers is None else barriers.dtype,
            layers=self.names,
            halo=halo_of(self.options),
            beside=self._held + self._needs(machine.threads),
            machine=replace(machine, threads=1) if there else machine,
        )
        if self.verified:
            self._verifiers(plan, CUDA_BASELINE if gpu else 0, machine)
        if gpu is None:
            return plan
        return self._regions(plan, machine if there else replace(machine, threads=plan.workers))

    def _regions(self, plan: StreamPlan, machine: Machine) -> StreamPlan:
        """The plan for a GPU, or for GPUs of workers, whose threads read and write."""
        gpu = machine.gpu
        problem = self._problem(machine.threads, plan, gpu, Path(), machine.room)
        high, wide = problem.plan()[1]
        whole = (high, wide) == self.blocks.shape
        if gpu.workers:
            high, wide = problem.sides(len(gpu.workers))
        passing = dict.fromkeys(("buffers", "readers", "writers"), problem.stagings)
        needed = {"memory": problem.host_memory + (0 if whole else problem.held_bytes)}
        if gpu.workers:  # rims are here; there the CPU allocates when the GPU is done
            allocating = COMPILED_BASELINE + CUDA_BASELINE + LABEL_BYTES * self.blocks.largest()
            most = max(problem.host_memory, allocating * ("allocation" in self.names))
            needed = {"worker_memory": most + OVERHEAD + self._held}
        return replace(
            plan,
            unit_rows=min(high * self.blocks.block, self.blocks.rows),
            unit_cols=min(wide * self.blocks.block, self.blocks.cols),
            workers=1,
            **needed,
            **passing,
        )

    def _needs(self, threads: int) -> int:
        """Return the bytes of the method's own working memory."""
        return method_bytes(self.method, self.index, self.dtype, self.blocks, threads)

    @property
    def _held(self) -> int:
        """Bytes of sources and targets; of arrays, the results and what was copied."""
        places = len(self.sources) + len(self.targets or ())
        held = PLACE_BYTES * max(places - FEW_PLACES, 0)
        for layer in self.layers:
            held += layer.copied if isinstance(layer, ArrayLayer) else 0
        if isinstance(self.layers[0], ArrayLayer):
            held += self.grid.cells * sum(output.dtype.itemsize for output in self.outputs)
        return held

    def _verifiers(self, plan: StreamPlan, held: int, machine: Machine) -> int:
        """Return the number of threads that verify, given the bytes that are held already."""
        limits = replace(machine, memory_limit=plan.memory_limit, threads=plan.workers)
        least = plan.workers if plan.worker_memory else 1  # all threads of a worker
        return threads_within(
            self.blocks, 8, limits, held + self._held, halo_of(self.options), least
        )

    # -- the phases -----------------------------------------------------------------------------

    def execute(self, run: Run) -> Findings:
        with ExitStack() as stack:
            if run.in_memory:
                folder = stack.enter_context(TemporaryFolder(tempfile.gettempdir()))
            else:
                folder = run.spill
                stack.callback(lambda: run.keep_spill(_any_left(folder)))
            try:
                if run.gpu is not None and run.gpu.workers:
                    return self._solve_on_gpus_of_workers(run, folder / "fields")
                if run.gpu is not None:
                    return self._solve_on_gpu(run, folder / "fields")
                if run.held:  # the CPU cannot use what the GPU has spilled
                    for left in (*folder.glob("regions*"), *folder.glob("hops*")):
                        left.unlink()
                if not run.in_memory:
                    self._rehearse()
                kind = RemotePhases if run.engine.remote else Phases
                return solve_on_cpu(kind(self, run, folder / "fields"))
            except Overflow:
                run.forget()  # results with 32 bits are useless
                for left in folder.glob("fields-*"):
                    withdraw(left)  # workers may still write there
                raise

    def _problem(
        self, threads: int, plan: StreamPlan, gpu: Gpu, spill: Path, room: int = NO_BOUND
    ) -> Any:
        """Return the problem in the form for the GPU."""
        from ..relax.gpu.problem import Problem

        limit = None if isinstance(self.layers[0], ArrayLayer) else plan.memory_limit
        if plan.worker_memory and limit is not None:
            limit = min(limit, room) - OVERHEAD - self._held
        how = self.farthest, self.ends, self.names, threads, gpu, limit, spill, self.method
        return Problem(self.ground, self.options, *how)

    def _solve_on_gpu(self, run: Run, spill: Path) -> Findings:
        from ..relax.gpu.solve import solve

        def read(name: str, at: tuple[int, int]) -> np.ndarray:
            return run.writers[self.named[name]].read_block(*at)

        def write(name: str, at: Block, data: np.ndarray) -> None:
            run.write(self.named[name], at, data)

        problem = self._problem(run.plan.readers, run.plan, run.gpu, spill)
        cells = self.grid.cells
        done = solve(problem, run.report, lambda n: run.progress(n, cells), write, read)
        if self.verified:
            free_staging()
        run.told |= {
            "valid_cells": done["valid"],
            "blocks_resumed": done["blocks_resumed"],
            "regions": done["regions"],
            "region_visits": done["region_visits"],
            "blocks_read": done["blocks_read"],
            "gpu_memory_bytes": done["memory"],
            "tile_visits_per_tile": round(done["tile_visits"] / done["tiles"], 3),
            "waves": done["waves"],
        }
        return self.found(done["reached"])

    def _solve_on_gpus_of_workers(self, run: Run, spill: Path) -> Findings:
        from .gpu_remote import RemoteRegions

        with RemoteRegions(self, run, spill) as regions:
            return self.found(regions.solve())

    def found(self, reached: int) -> Findings:
        """Return the attributes of the layers, which do not depend on the method."""
        return {
            "reached": reached,
            "sources": len(self.sources),
            "distance_dtype": self.dtype.name,
        }

    def _rehearse(self) -> None:
        """Load or compile the kernels of all phases, while little else is in memory."""
        if self.method not in ("relax", "dijkstra"):
            return
        dtypes = [layer.dtype for layer in self.layers]
        how = self.method, self.verified, type(self.options)
        what = type(self.model.kernel), self.dtype, *dtypes, *self.names, *how
        if what in _rehearsed:
            return
        grid, blocks, zero = GridSpec(2, 2), BlockGrid(2, 2, TILE), np.zeros(1, np.int64)
        tiny = replace(
            self,
            sources=Places(zero, zero, np.ones(1, np.uint32), np.zeros(1)),
            source_edge=False,
            max_cost=None,
            targets=None,
            stop_at_targets=False,
            wrap=False,
        )
        # 0 makes flats, but the continuous metric needs frictions above 0, and a formula that is
        # right over the raster may be negative there. If it is elsewhere, too, kernels come later.
        for value in (0, 1, 100):
            filled = [np.full((2, 2), value, dtype) for dtype in dtypes]
            arrays = [ArrayLayer(cells, blocks, grid) for cells in filled]
            if self.barriers is not None:
                arrays[-1].data[...] = 0
            with contextlib.suppress(InputError):
                run_in_memory(tiny.over(arrays), threads=1, verify=self.verified)
                _rehearsed.add(what)
                break
        trim()

    def verify(self, run: Run, found: Findings) -> Findings:
        farthest = self.farthest
        layers = {name: run.layer(self.named[name]) for name in self.names}
        distance = layers["distance"]
        if self.ends is not None:
            at = zip(self.ends.rows.tolist(), self.ends.cols.tolist(), strict=True)
            windows = [(r, r + 1, c, c + 1) for r, c in at]
            ends = np.array([distance.read_ring(w, halo=0)[0, 0] for w in windows])
            if not is_nodata(ends, unreached(self.dtype)).any():
                farthest = min(farthest, ends.max())

        def read(name: str) -> Any:
            if name not in layers:
                return None
            layer, missing = layers[name], unreached(self.dtype) if name == "distance" else 0
            ring = ring_of(layer.data, missing) if run.in_memory else layer.read_ring
            return RingAcrossSeam(ring, self.blocks)

        # The CPU verifies results that do not fit the GPU or were computed by workers.
        here = None if run.gpu is None or run.gpu.workers else run.gpu._replace(wanted=False)
        proof = Placement(here, doing="verifying ")
        with run.proof_limits.planning() as machine:
            threads = proof.run(
                lambda gpu: self._verifiers(run.plan, CUDA_BASELINE if gpu else proof.held, machine)
            )
        checked = verify_paths(
            self.ground,
            self.model.kernel,
            self.options,
            self.dtype,
            *map(read, LAYERS),
            farthest=farthest,
            threads=threads,
            gpu=proof.gpu,
            progress=run.progress,
            cluster=run.cluster,
        )
        return {"verified_steps": checked["checked_steps"], "verified_on": checked["backend"]}

    # For the workers of a cluster.

    visitor: ClassVar[Any] = None
    """What this process keeps between visits."""

    def close(self) -> None:
        if self.visitor is not None:
            vars(self).pop("visitor").close()


def method_bytes(
    method: str | None, index: Index | None, distance: np.dtype, blocks: BlockGrid, threads: int
) -> int:
    """Working memory of a method in bytes, with or without an index."""
    if index is not None:
        return rims_bytes(index, distance) + threads * index.unpacked_bytes
    return threads * players_bytes(blocks) if method == "dijkstra" else 0


def _any_left(folder: Path) -> bool:
    """Whether there are saved fields to resume from, of one machine or of a cluster."""
    return any(any(folder.glob(names)) for names in ("*.saved", "fields-*/*"))


def _digest(places: Places | None) -> str | None:
    """Return a digest of sources or targets."""
    if places is None:
        return None
    found = hashlib.sha256()
    for a in (places.rows, places.cols, places.ids, places.costs):
        found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()
