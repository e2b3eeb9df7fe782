"""The operation that links places over their areas: `PlaceNetwork`.

1. *Cross*: each block finds the cheapest steps between areas of different places.
2. *Write*: links are chosen; their paths follow the backlinks from both sides of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...compiled import known_types, tell_compiling
from ...engine.machine import Machine
from ...engine.operation import OutputFile, Phase, SolvedBlock, State
from ...engine.plan import PER_ROW, Excess, StreamPlan, fit_blocks, layer_bytes
from ...engine.run import Run
from ...errors import InputError, StoreError
from ...facts import Findings, Settings
from ...grid import TILE, Block, BlockGrid
from ...grid.neighbours import COL_STEP_16, ROW_STEP_16
from ...io.features import library_bytes
from ...io.places import NO_PLACES, Places
from ...io.proof.line_files import LineFile
from ...plurals import counted
from ...store import Layer
from ..cost_distance.recorded import RecordedSteps
from ..proof import RingAcrossSeam
from ..relax.trace import KEPT_BLOCKS, path_length, trace_path
from .crossings import SHARED, WAYS, cheapest, crossings, link_dtype, spanning_tree
from .files import COLUMNS, LAYER, Link, write_links
from .proof import NetworkLayers, NetworkProof

LINK_BYTES = 400
"""Memory for a link while links are collected, chosen and written."""

LINKS = 4
"""Links that are planned for each place: areas in a plane touch at most three others each."""

PATH_BYTES = 200
"""Memory for a cell of a path."""

CROSS = Phase("cross")


@dataclass(frozen=True)
class PlaceNetwork(RecordedSteps):
    """The operation; its fields are parameters of `least_cost_network`.

    Attributes
    ----------
    sources
        The places, including those that share a cell.
    """

    path: str = ""
    table: str | None = None
    pairs: str = "mst"
    max_cost: float | None = None
    sources: Places = field(default=NO_PLACES, compare=False)

    command = "least-cost-network"
    knights = True
    mark = ""
    phases = (CROSS,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.named("backlink", "allocation")

    @property
    def outputs(self) -> tuple[OutputFile, ...]:
        return tuple(OutputFile(name) for name in (self.path, self.table) if name is not None)

    def settings(self) -> Settings:
        return {"distances": self.distances, "pairs": self.pairs, "max_cost": self.max_cost}

    @property
    def joins(self) -> np.dtype:
        return link_dtype(self.layers[0].dtype)

    @property
    def heights(self) -> Layer | None:
        """The elevation layer for climbs; None if the raster holds frictions."""
        own = self.problem.settings
        if own["cost"] == "friction" and own["friction"] is None:
            return None
        return self.layers[self.inputs.index(own["layer"])]

    def plan(self, machine: Machine) -> StreamPlan:
        kinds = [layer.dtype for layer in self.layers[3:]]
        files, places = [output.name for output in self.outputs], len(self.sources)
        how: Settings = {"files": files, "halo": self.terrain.halo, "machine": machine}
        return plan_network(self.blocks, self.layers[0].dtype, kinds, places, **how)

    def compile(self) -> None:
        """Load or compile the kernels, in the main thread, which Ctrl-C stops."""
        if not known_types(crossings):
            tell_compiling(crossings, "least-cost-network")
        halo = self.terrain.halo
        shape = (TILE + 2 * halo, TILE + 2 * halo)
        cells = *(np.zeros(shape, kind) for kind in self.terrain.types), np.ones(shape, bool)
        distances, ids = np.zeros(shape, self.layers[0].dtype), np.zeros(shape, np.uint32)
        self._cross((*cells, np.ones((4 * halo, shape[0]))), (0, 0, 0, 0), distances, ids)

    def new_buffer(self) -> list[np.ndarray]:
        return []

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        return []

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: object,
        work: object,
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        read = RingAcrossSeam(self.layers[2].read_ring, self.terrain.blocks)
        ring = read(window, halo=self.terrain.halo)
        most = ring.max()
        if not ((ring != most) & (ring != 0)).any():  # one place at most
            return SolvedBlock(known=np.empty(0, self.joins))
        field = self.terrain.load(at)
        ids = np.zeros(field.absent.shape, np.uint32)
        ids[: ring.shape[0], : ring.shape[1]] = ring
        distances = self.padded(self.layers[0], at, field.absent.shape)
        own = field.heights, field.frictions, field.absent, field.lengths
        return SolvedBlock(known=self._cross(own, window, distances, ids))

    def _cross(
        self,
        cells: tuple[Any, ...],
        window: tuple[int, ...],
        distances: np.ndarray,
        ids: np.ndarray,
    ) -> np.ndarray:
        """The cheapest link of each pair of places in a block."""
        r0, r1, c0, c1 = window
        inner, origin = (r1 - r0, c1 - c0), (r0, c0, self.blocks.cols)
        halo, joins = self.terrain.halo, self.joins
        work = np.empty((8 * halo, TILE, TILE), distances.dtype)
        room = np.empty(4 * halo * TILE * max(inner[1], 1), joins)
        names = joins.names or ()
        columns = tuple(np.empty(len(room), joins[name]) for name in names)
        found = [room[:0]]
        for row in range(0, max(inner[0], 1), TILE):
            count = crossings(
                self.terrain.model.kernel, cells, self.problem.options, inner, origin, row,
                distances, ids, work, columns,
            )  # fmt: skip
            for name, column in zip(names, columns, strict=True):
                room[name][:count] = column[:count]
            found.append(cheapest(room[:count]))
        return cheapest(np.concatenate(found))

    def execute(self, run: Run) -> Findings:
        self.compile()
        state = _CheapestLinks(self, run.plan)
        run.map(CROSS, state)
        links = state.links()
        chosen = links if self.pairs == "delaunay" else spanning_tree(links)
        total = math.fsum(costs := chosen["cost"].tolist())
        if self.joins["cost"].kind == "u":
            total = sum(costs)
            if max(costs, default=0) > np.iinfo(np.int64).max:
                raise InputError(f"{self.layers[0].path}: costs exceed 63 bits; convert to float64")
        lines, *tables = run.writers.values()
        with run.report.phase("write"):
            table = tables[0].part if tables else None
            kinds = self.joins["cost"].kind == "u", bool(self.sources.names)
            written = self._paths(chosen, Excess.of(run.plan, beside=state.excess.more))
            named = [writer.path for writer in run.writers.values()]
            how: Settings = {"named": named, "wrap": self.terrain.blocks.wraps}
            write_links(lines.part, table, written, self.grid, kinds, **how)
        places = len(np.unique(self.sources.ids))
        return {
            "places": places,
            "links": len(chosen),
            "parts": places - len(spanning_tree(links)),
            "cost": total,
        }

    proven_by_workers = False

    def verify(self, run: Run, found: Findings) -> Findings:
        lines = next(iter(run.writers.values()))
        layers = NetworkLayers(self.layers[0], self.layers[1], self.layers[2], self.heights)
        wraps = self.terrain.blocks.wraps
        file = LineFile(lines.part, lines.path, self.grid, LAYER, COLUMNS, wraps=wraps)
        most = math.inf if self.max_cost is None else self.max_cost
        how = self.terrain, self.problem.options, self.sources, self.pairs == "mst", most
        checked = NetworkProof(file, layers, *how).run(run.proof_limits)
        return {"verified_links": checked["links"], "verified_crossings": checked["steps"]}

    # -- the paths ------------------------------------------------------------------------------

    def _paths(self, links: np.ndarray, excess: Excess) -> Iterator[Link]:
        read = {
            layer: lru_cache(KEPT_BLOCKS)(lambda i, j, layer=layer: layer.read_block(i, j))
            for layer in (self.layers[1], self.heights)
            if layer is not None
        }
        names, heights = self.sources.names, self.heights
        lengths = self.terrain.lengths[:, self.terrain.halo :]
        across = self.blocks.cols if self.terrain.blocks.wraps else None
        for one, other, cost, where in links.tolist():
            cells = self._cells(one, where, read[self.layers[1]], excess)
            if cells is None:
                continue
            climb = None
            if heights is not None:
                way = cells[::-1] if self.problem.options[2] else cells
                climb = climb_along(self._along(read[heights], way))
                if math.isinf(climb):
                    raise InputError(
                        f"{heights.path}: the sum of rises between {one} and {other} exceeds the "
                        "largest float64 number; set the cells that cause this to nodata"
                    )
            begin, end = (names.get(k, str(k)) if names else k for k in (one, other))
            yield Link(begin, end, cost, path_length(cells, lengths, across), climb, cells)
        excess.refuse()

    def _cells(self, begin: int, where: int, read: Any, excess: Excess) -> np.ndarray | None:
        """The cells of a link, starting at the place with the id `begin`; None without room."""
        cell, k = divmod(where, WAYS)
        row, col = divmod(cell, self.blocks.cols)
        sides = [(row, col)]
        if k != SHARED:
            across = (col + int(COL_STEP_16[k])) % self.blocks.cols
            sides.append((row + int(ROW_STEP_16[k]), across))
        found: list[np.ndarray] = []
        for at in sides:
            way = trace_path(read, self.terrain.blocks, *at, ways=8 * self.terrain.halo)
            if way is None:
                raise StoreError(
                    f"{self.layers[1].path}: no backlink at row {at[0]}, column {at[1]}; "
                    "compute it again with --overwrite"
                )
            found.append(way)
            size = sum(map(len, found))
            if not excess.has_room(PATH_BYTES * size, f"for a path of {counted(size, 'cell')}"):
                return None
        if self.layers[2].read_window(row, row + 1, col, col + 1)[0, 0] != begin:
            found.reverse()
        return np.concatenate([found[0], *(way[::-1] for way in found[1:])])

    def _along(self, read: Any, cells: np.ndarray) -> np.ndarray:
        """The values of a layer at the cells of a path."""
        blocks = cells // self.blocks.block
        new = np.flatnonzero(np.append(True, (blocks[1:] != blocks[:-1]).any(axis=1)))
        found = []
        for part, at in zip(np.split(cells, new[1:]), blocks[new].tolist(), strict=True):
            rows, cols = (part % self.blocks.block).T
            found.append(read(*at)[rows, cols])
        return np.concatenate(found)


def climb_along(heights: np.ndarray) -> float:
    """The sum of all rises, exactly rounded; infinite if float64 cannot hold it."""
    own = heights.astype(np.float64) if heights.dtype.kind == "f" else heights.astype(object)
    rises = own[1:] - own[:-1]
    try:
        return math.fsum(rises[rises > 0].tolist())
    except OverflowError:
        return math.inf


class _CheapestLinks(State):
    """The cheapest links of all blocks.

    Attributes
    ----------
    excess
        Memory for more pairs than are planned.
    """

    def __init__(self, operation: PlaceNetwork, plan: StreamPlan) -> None:
        self.excess = Excess.of(plan)
        self._planned, self._most = LINKS * len(operation.sources), operation.max_cost
        self._parts = [_shared(operation)]
        self._count, self._pairs_alone = 0, False

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        self._parts.append(_pairs(self._cheap(known)) if self._pairs_alone else known)
        self._count += len(known)
        if self._count > max(2 * self._planned, 1 << 16):
            self._reduce()

    def links(self) -> np.ndarray:
        """One link for each pair, by pairs, of at most the maximum cost."""
        self._reduce()
        self.excess.refuse()
        return self._parts[0]

    def _reduce(self) -> None:
        """Keep one link for each pair; their pairs alone, to be counted, if there is no room."""
        found = np.concatenate(self._parts)
        found = np.unique(found) if self._pairs_alone else self._cheap(cheapest(found))
        more = max(len(found) - self._planned, 0) * LINK_BYTES
        fits = self.excess.has_room(more, f"for {counted(len(found), 'pair')} of places")
        if not (fits or self._pairs_alone):
            self._pairs_alone, found = True, _pairs(found)
        self._parts, self._count = [found], len(found)

    def _cheap(self, links: np.ndarray) -> np.ndarray:
        return links if self._most is None else links[links["cost"] <= self._most]


def _pairs(links: np.ndarray) -> np.ndarray:
    """The places of links, as numbers."""
    return links["from"].astype(np.uint64) << np.uint64(32) | links["to"]


def _shared(operation: PlaceNetwork) -> np.ndarray:
    """The links of places that share a cell."""
    places = operation.sources
    again = np.flatnonzero((np.diff(places.rows) == 0) & (np.diff(places.cols) == 0)) + 1
    found = np.zeros(len(again), operation.joins)
    kept = np.arange(len(places))
    kept[again] = 0
    first = np.maximum.accumulate(kept)[again]
    found["from"] = np.minimum(places.ids[first], places.ids[again])
    found["to"] = np.maximum(places.ids[first], places.ids[again])
    rows, cols = places.rows[again], places.cols[again]
    found["where"] = (rows * operation.blocks.cols + cols) * WAYS + SHARED
    if operation.terrain.model.kind.bottleneck:  # no path is lower than its places
        layer = operation.layers[0]
        for k, (r, c) in enumerate(zip(rows.tolist(), cols.tolist(), strict=True)):
            found["cost"][k] = layer.read_window(r, r + 1, c, c + 1)[0, 0]
    return found[found["from"] != found["to"]]


def plan_network(
    blocks: BlockGrid,
    distance: np.dtype,
    kinds: Sequence[np.dtype],
    places: int,
    *,
    files: Sequence[str] = (LAYER + ".gpkg",),
    halo: int = 1,
    machine: Machine,
) -> StreamPlan:
    """Plan the network over distances, elevations, frictions and barriers of these types.

    `halo` is the reach of steps: 2 for 16 neighbours, otherwise 1.
    """
    block = blocks.block
    ring, item = blocks.largest(halo, tiled=True), distance.itemsize
    raw = sum(kind.itemsize + 1 for kind in kinds)
    steps = 4 * halo * TILE * max(blocks.sides) * link_dtype(distance).itemsize
    each = distance.itemsize, 1, 4, *(kind.itemsize for kind in kinds)
    kept = min(KEPT_BLOCKS, blocks.count) * blocks.largest()
    kept *= 1 + max(kind.itemsize for kind in kinds)
    library = sum(library_bytes(name) for name in files)
    return fit_blocks(
        blocks,
        distance.name,
        "for a network over",
        buffer=0,
        worker=ring * (2 * item + 2 * raw + 8 + 8 + 4) + 8 * 8 * halo * TILE * TILE + 4 * steps,
        scratch=blocks.largest(tiled=True) * 4,
        common=PER_ROW * blocks.rows,
        held=LINK_BYTES * LINKS * places + library + kept,
        bytes_read=sum(layer_bytes(blocks.rows, blocks.cols, size, block) for size in each),
        machine=machine,
    )
