"""Proof that distances, backlinks and allocation are right: `verify_paths`.

Nothing is shared with the program that finds distances but what defines the problem: which cells
there are, what a step costs, and how a step is joined to a distance. Distances are the shortest
ones exactly when

- every source is at most its start value, and no step leads to a cell for less than its distance:
  then no distance is too large;
- every reached cell is a source at its start value, or has a *tight* predecessor, from which a step
  gives exactly its distance, and going from predecessor to predecessor ends at a source: then every
  distance is the cost of a path.

Each block is read once, with one ring of cells around it. A tight predecessor that is strictly
nearer cannot be part of a circle. Others can: on flats, where steps cost nothing. With backlinks,
these are followed (`allocate.Forest`). Without, the cells of a flat are joined, in blocks and then
from rim to rim, and every flat must hold a cell with a nearer predecessor, or a source. Where a
step may cost nothing in one direction only, this is spread from such cells along the steps instead,
block by block until nothing changes. Memory is O(boundary) in all cases.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba.extending import register_jitable

from ..errors import InputError, PlanError, StoreError
from ..executor import stream
from ..grid import TILE, BlockGrid, Window, ceil_div, clip
from ..mst.boruvka import jit
from ..planner import (
    COMPILED_BASELINE,
    MB,
    available_threads,
    default_memory_limit,
    format_size,
)
from ..progress import Progress, silent
from ..store import Layer, TileStore
from .allocate import Forest
from .costs import CostModel, Langmuir, Scaled, Tobler, join, largest
from .finalise import UNREACHED
from .ground import Raster, Terrain
from .lengths import step_lengths
from .relax import Block, Field
from .sources import Sources
from .tile import COL_STEP, ROW_STEP, fill_weights

Read = Callable[[Window], np.ndarray]
Cells = tuple[np.ndarray, np.ndarray, np.ndarray]

_NAMES = ["E", "SE", "S", "SW", "W", "NW", "N", "NE"]


class VerificationError(StoreError):
    """Results that are not those of the problem.

    Attributes
    ----------
    check
        The property that fails: "value" (no distance at all), "source", "absent", "farthest",
        "feasible" (a step leads to the cell for less), "tight" (no predecessor), "acyclic",
        "backlink", "allocation", or "totals" (the recorded figures).
    row, col
        The cell at fault; None where only a block, or nothing, can be named.
    """

    exit_code = 1

    def __init__(
        self, message: str, check: str, row: int | None = None, col: int | None = None
    ) -> None:
        super().__init__(message)
        self.check, self.row, self.col = check, row, col


class Problem(Protocol):
    """What the cells and sources are; `ground.Terrain` is one."""

    blocks: BlockGrid

    def load(self, at: Block) -> Field: ...

    def seeds(self, at: Block, field: Field) -> Cells:
        """Rows and columns in the block, and start values, of sources."""

    def roots(self, at: Block) -> tuple[np.ndarray, ...]:
        """Rows and columns in the block, and ids, of sources."""


def verify_paths(
    ground: Problem,
    cost: Any,
    options: tuple[bool, bool, bool],
    dtype: np.dtype,
    read_distance: Read,
    read_backlink: Read | None = None,
    read_allocation: Read | None = None,
    *,
    farthest: Any,
    threads: int,
    progress: Progress = silent,
) -> dict[str, int]:
    """Check distances, and backlinks and allocation when there are any, step by step.

    Parameters
    ----------
    ground
        Cells and sources.
    cost
        The model's kernel, see `costs.CostModel`.
    options
        (diagonal, corner_cutting, reverse).
    dtype
        Of distances.
    read_distance
        Distances of a window with one ring around it, as the layer holds them; unreached outside
        of the raster.
    read_backlink, read_allocation
        D8 codes and ids of a window, without a ring. Allocation needs backlinks.
    farthest
        Distances beyond this count as unreached; `costs.largest` for none.
    threads
        Threads.
    progress
        Called with the cells just checked and the cells in all.

    Returns
    -------
    dict
        "checked_steps", all directed steps between cells, and "reached", the number of cells.

    Raises
    ------
    VerificationError
        at the first violation found: row, column and values.
    StoreError
        when a layer is damaged.

    Notes
    -----
    A backlink has to be the lowest direction of a strictly nearer predecessor where there is one;
    on flats any forest is accepted.
    """
    checker = _Checker(
        ground,
        cost,
        options,
        np.dtype(dtype),
        farthest,
        read_distance,
        read_backlink,
        read_allocation,
    )
    return checker.run(threads, progress)


def upper_limit(max_cost: float | None, dtype: np.dtype) -> Any:
    """The largest distance that is passed on."""
    top = largest(np.empty(0, dtype))
    if max_cost is None or max_cost >= top:
        return top
    return max_cost if dtype.kind == "f" else math.floor(max_cost)


def ring_of(distances: np.ndarray, unreached: float) -> Read:
    """A function that reads windows of an array with one ring around them."""

    def read(window: Window) -> np.ndarray:
        r0, r1, c0, c1 = window
        rows, cols = distances.shape
        a, b, c, d = clip((r0 - 1, r1 + 1, c0 - 1, c1 + 1), (0, rows, 0, cols))
        found = np.full((r1 - r0 + 2, c1 - c0 + 2), unreached, distances.dtype)
        found[a - r0 + 1 : b - r0 + 1, c - c0 + 1 : d - c0 + 1] = distances[a:b, c:d]
        return found

    return read


def threads_within(
    blocks: BlockGrid, item: int, memory_limit: int | None, threads: int | None
) -> int:
    """Threads that verify distances of `item` bytes under a memory limit."""
    limit = default_memory_limit() if memory_limit is None else memory_limit
    cells = (blocks.block + 2) ** 2
    # Heights, frictions, two of distances; what the layers give; masks, codes, labels of flats.
    one = cells * (4 * item + 16 + 24) + 10 * TILE * TILE * 8
    always = blocks.count * 4 * blocks.block * 17 + 64 * blocks.rows
    for n in range(min(threads or available_threads(), blocks.count), 0, -1):
        if (memory := COMPILED_BASELINE + always + n * one) <= limit:
            return n
    raise PlanError(
        f"a memory limit of {format_size(limit)} is too small to verify shortest paths over "
        f"{blocks.rows} x {blocks.cols} cells in blocks of {blocks.block}; give at least "
        f"{ceil_div(memory, MB)} MB"
    )


def verify_stored(
    store: TileStore,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Check the layers "distance", "backlink" and "allocation" that a store has.

    The sources are not recorded: see `KnownRoots` for the cells that count as such.

    Returns
    -------
    dict
        As `verify_paths`, and "sources", their number, "sources_from" and "layers".

    Raises
    ------
    VerificationError
        at the first violation found.
    StoreError
        when a layer or what is recorded of it is damaged, or the cells have changed since.
    """
    present = [n for n in ("distance", "backlink", "allocation") if n in store.layers]
    if present[:1] != ["distance"]:
        raise StoreError(f"{store.path}: no layer 'distance'; compute-sssp makes one")
    layers = {name: store.layer(name) for name in present}
    distance = layers["distance"]
    recorded = _Recorded(distance)
    if recorded.settings.get("method") == "index":
        raise StoreError(
            f"{distance.path}: real distances from an index, within 1e-12 of the exact ones, "
            "which are what can be proven; compute it again without --method index"
        )
    if "allocation" in layers and "backlink" not in layers:
        raise StoreError(
            f"{store.path}: the layer 'allocation' is proven from 'backlink', which is not there; "
            "compute both again"
        )
    for name, layer in layers.items():
        if layer.blocks != distance.blocks or layer.info.get("settings") != recorded.settings:
            raise StoreError(
                f"{layer.path}: of another run than {distance.path}; compute it again or delete it"
            )
        expected = {"distance": distance.dtype.name, "backlink": "uint8", "allocation": "uint32"}
        if layer.dtype.name != expected[name]:
            raise StoreError(f"{layer.path}: cells of type {layer.dtype.name}; compute it again")
    if "backlink" not in layers and recorded.start_costs:
        raise StoreError(
            f"{distance.path}: its sources have start costs and only backlinks tell where they "
            "are; compute it again with --backlink"
        )
    terrain, farthest = recorded.problem(store)
    backlink, allocation = (
        (lambda window, layer=layers[name]: layer.read_ring(window, halo=0))
        if name in layers
        else None
        for name in ("backlink", "allocation")
    )
    problem = KnownRoots(terrain, distance.read_ring, backlink, allocation)
    try:
        found: dict[str, Any] = dict(
            verify_paths(
                problem,
                terrain.model.kernel,
                recorded.options,
                distance.dtype,
                distance.read_ring,
                backlink,
                allocation,
                farthest=farthest,
                threads=threads_within(
                    terrain.blocks, distance.dtype.itemsize, memory_limit, threads
                ),
                progress=progress,
            )
        )
        recorded.compare(found["reached"], problem.count if backlink else 0)
    except VerificationError as error:
        error.args = (f"{distance.path}: {error}; compute it again with --overwrite",)
        raise
    kind = "height" if terrain.model.name == "minimax" else "distance 0"
    return {
        **found,
        "sources": problem.count,
        "sources_from": "backlinks" if backlink else f"cells at {kind}",
        "layers": present,
    }


class _Recorded:
    """What a layer of distances records of its problem; checked, for it may be damaged."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        settings = layer.info.get("settings")
        self.settings: dict[str, Any] = settings if isinstance(settings, dict) else {}
        if self.settings is not settings:
            raise self.damaged("settings", settings)
        result = layer.info.get("result")
        if not isinstance(result, dict):
            raise self.damaged("result", result)
        self.result = result
        self.start_costs = layer.info.get("start_costs") is not False

    def damaged(self, key: str, value: Any) -> StoreError:
        return StoreError(
            f"{self.layer.path}/zarr.json: {key} is recorded as {value!r}; compute it again"
        )

    def get(self, key: str, *kinds: type) -> Any:
        """A setting of one of the types, exactly."""
        value = self.settings.get(key)
        if type(value) not in kinds:
            raise self.damaged(key, value)
        return value

    @property
    def options(self) -> tuple[bool, bool, bool]:
        connectivity = self.get("connectivity", int)
        if connectivity not in (4, 8):
            raise self.damaged("connectivity", connectivity)
        return connectivity == 8, self.get("corner_cutting", bool), self.get("reverse", bool)

    def problem(self, store: TileStore) -> tuple[Terrain, Any]:
        """Cells without sources, and the largest distance that is passed on."""
        nothing = type(None)
        names = {key: self.get(key, str, nothing) for key in ("layer", "friction", "barriers")}
        rasters = {}
        for key, name in names.items():
            if (name is None and key == "layer") or name in ("distance", "backlink", "allocation"):
                raise self.damaged(key, name)
            if name is not None:
                layer = store.layer(name)
                rasters[key] = Raster(layer, str(layer.path), layer.nodata)
        source = rasters["layer"].data
        assert isinstance(source, Layer)
        of = self.get("of", dict)
        if any(source.info.get(key) != value for key, value in of.items()):
            raise StoreError(
                f"{self.layer.path}: computed from other cells than {source.path} holds now; "
                "compute it again with --overwrite"
            )
        parameters = self.get("parameters", dict)
        for key, value in parameters.items():
            if type(value) not in (int, float):
                raise self.damaged(f"parameter {key}", value)
        cost = self.get("cost", str)
        try:
            model = CostModel(cost, names["friction"] is not None, parameters)
        except InputError as error:
            raise StoreError(f"{self.layer.path}/zarr.json: {error}; compute it again") from error
        dtype = self.layer.dtype
        right = {model.distance_dtype(source.dtype).name}
        right |= {"uint64"} if right == {"uint32"} else set()
        if dtype.name not in right or source.blocks != self.layer.blocks:
            raise StoreError(
                f"{self.layer.path}: {dtype.name} in blocks of {self.layer.block_size}, for "
                f"{source.dtype.name} in blocks of {source.block_size}; compute it again"
            )
        max_cost = self.get("max_cost", int, float, nothing)
        least = -math.inf if cost == "minimax" else 0
        if max_cost is not None and not max_cost >= least:
            raise self.damaged("max_cost", max_cost)
        farthest = upper_limit(max_cost, dtype)
        most = self.layer.info.get("max")
        if self.get("targets", str, nothing) is not None and type(most) in (int, float):
            # It was stopped at the farthest target, whose distance is the largest.
            farthest = min(farthest, most)
            if farthest < least:
                raise self.damaged("max", most)
        none = np.empty(0, np.int64)
        sources = Sources(none, none, none.astype(np.uint32), none.astype(np.float64))
        return (
            Terrain(
                source.blocks,
                model,
                rasters["layer"],
                rasters.get("friction"),
                rasters.get("barriers"),
                step_lengths(source.grid),
                sources,
                dtype,
            ),
            farthest,
        )

    def compare(self, reached: int, roots: int) -> None:
        """Compare figures with those of the run."""
        if self.result.get("reached") != reached:
            raise VerificationError(
                f"wrong totals: {reached} cells are reached, recorded are "
                f"{self.result.get('reached')!r}",
                "totals",
            )
        most = self.result.get("sources")
        if type(most) is not int:
            raise self.damaged("sources", most)
        if roots > most and not self.get("source_edge", bool):
            raise VerificationError(
                f"wrong totals: backlinks end at {roots} cells, but the run had {most} sources",
                "totals",
            )


class KnownRoots:
    """A problem whose sources are not known but from its results.

    With backlinks they are the cells of code 0; without, those at distance 0, or, for minimax, at
    their own height. Each counts as a source with the start value it has.

    Attributes
    ----------
    count
        Such cells in the blocks that were asked for.
    """

    def __init__(
        self,
        terrain: Terrain,
        read_distance: Read,
        read_backlink: Read | None,
        read_allocation: Read | None,
    ) -> None:
        self.terrain, self.blocks = terrain, terrain.blocks
        self._distance, self._backlink, self._allocation = (
            read_distance,
            read_backlink,
            read_allocation,
        )
        self._counts: dict[Block, int] = {}

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def load(self, at: Block) -> Field:
        return self.terrain.load(at)

    def seeds(self, at: Block, field: Field) -> Cells:
        window = self.blocks.window(*at)
        distances = self._distance(window)[1:-1, 1:-1]
        if self._backlink is not None:
            root = self._backlink(window) == 0
        elif self.terrain.model.name == "minimax":
            height, width = distances.shape
            root = distances == field.heights[1 : height + 1, 1 : width + 1]
        else:
            root = distances == 0
        rows, cols = np.nonzero(root)
        self._counts[at] = len(rows)
        return rows, cols, distances[rows, cols]

    def roots(self, at: Block) -> tuple[np.ndarray, ...]:
        window = self.blocks.window(*at)
        assert self._backlink is not None
        rows, cols = np.nonzero(self._backlink(window) == 0)
        if self._allocation is None:
            return rows, cols, np.ones(len(rows), np.uint32)
        return rows, cols, self._allocation(window)[rows, cols]


class _Masks(NamedTuple):
    """A block as far as the proof needs it.

    `near` and `even` have bit k for a tight predecessor in direction k that is strictly nearer, or
    as far. `flat` are the reached cells that have only the latter and are no roots.
    """

    near: np.ndarray
    even: np.ndarray
    flat: np.ndarray
    distances: np.ndarray


class _Checker:
    def __init__(
        self,
        ground: Problem,
        cost: Any,
        options: tuple[bool, bool, bool],
        dtype: np.dtype,
        farthest: Any,
        read_distance: Read,
        read_backlink: Read | None,
        read_allocation: Read | None,
    ) -> None:
        self.ground, self.blocks, self.cost, self.options = ground, ground.blocks, cost, options
        self.dtype = dtype
        self.top = dtype.type(largest(np.empty(0, dtype)))
        self.farthest = dtype.type(farthest)
        self.read_distance, self.read_backlink = read_distance, read_backlink
        self.read_allocation = read_allocation
        self.steps = self.reached = 0
        self.lock = threading.Lock()
        places = self.blocks.count * 4 * self.blocks.block
        self.forest = Forest(self.blocks) if read_backlink else None
        self.one_way = False
        if self.forest is None:
            inner = cost.cost if isinstance(cost, Scaled) else cost
            self.one_way = isinstance(inner, (Tobler, Langmuir))
            # Of the rims' cells: what they are joined to, or whether they have a way to a root.
            self.parent = np.zeros(0 if self.one_way else places + 1, np.int64)
            self.outward = np.zeros(0 if self.one_way else places, np.uint8)
            self.solid = np.zeros(places if self.one_way else 0, np.uint8)
            self.open: dict[Block, tuple[int, int, int]] = {}

    def run(self, threads: int, progress: Progress) -> dict[str, int]:
        blocks = self.blocks

        def each(work: Callable[[Block, Any], None], show: Progress) -> None:
            def done(at: Block) -> None:
                r0, r1, c0, c1 = blocks.window(*at)
                show((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

            stream(
                blocks.ids(),
                lambda at, _: at,
                work,
                buffers=[None] * threads,
                writers=threads,
                done=done,
            )

        each(self.block, progress)
        if self.forest is None:
            self.anchored()
            return {"checked_steps": self.steps, "reached": self.reached}
        with _as_violation():
            self.forest.resolve()
        if self.read_allocation is not None:
            each(self.allocation, silent)
        return {"checked_steps": self.steps, "reached": self.reached}

    # -- one block -------------------------------------------------------------------------

    def block(self, at: Block, _: Any) -> None:
        """Check a block, and note what of it matters beyond."""
        codes = None
        if self.read_backlink is not None:
            codes = np.ascontiguousarray(self.read_backlink(self.blocks.window(*at)))
        masks, steps, reached = self.masks(at, codes)
        with self.lock:
            self.steps += steps
            self.reached += reached
        if self.forest is not None:
            with _as_violation():
                self.forest.add(at, codes, *self.ground.roots(at))  # type: ignore[arg-type]
        elif self.one_way:
            self.spread(at, masks)
        else:
            self.join(at, masks)

    def masks(self, at: Block, codes: np.ndarray | None) -> tuple[_Masks, int, int]:
        """All that can be said of a block from itself; also the steps and the reached cells."""
        window = r0, r1, c0, c1 = self.blocks.window(*at)
        field = self.ground.load(at)
        shape = field.absent.shape
        distances = np.full(shape, self.top, self.dtype)
        written = self.read_distance(window)
        part = distances[: r1 - r0 + 2, : c1 - c0 + 2]
        part[...] = written
        if self.dtype.kind == "f":
            void = np.isnan(written)
            odd = written == self.top
        else:
            void = written == np.iinfo(self.dtype).max
            odd = (written >= self.top) & ~void
        part[void | odd] = self.top
        odd = odd[1:-1, 1:-1]
        if odd.any():
            r, c = self.first(odd)
            self.fail("value", at, r, c, f"holds {written[r + 1, c + 1]}, which is no distance")
        rows, cols, values = self.ground.seeds(at, field)
        found = distances[rows + 1, cols + 1]
        wrong = (found > values) & (values <= self.farthest)
        if wrong.any():
            k = int(np.argmax(wrong))
            text = f"is a source of start value {values[k]}, but {self.told(found[k])}"
            self.fail("source", at, int(rows[k]), int(cols[k]), text)
        tiled = shape[0] - 2, shape[1] - 2
        near, even = np.zeros(tiled, np.uint8), np.zeros(tiled, np.uint8)
        limits = self.farthest, self.dtype.kind != "f" and self.farthest == self.top
        steps, k, r, c = check_steps(
            self.cost,
            field.heights,
            field.frictions,
            field.absent,
            field.lengths,
            self.options,
            distances,
            limits,
            np.empty((8, TILE, TILE), self.dtype),
            near,
            even,
        )
        if k >= 0:
            self.infeasible(at, field, distances, k, r, c)
        root = np.zeros((r1 - r0, c1 - c0), np.bool_)
        root[rows[found == values], cols[found == values]] = True
        flat = np.zeros(tiled, np.bool_)
        links = np.empty((0, 0), np.uint8) if codes is None else codes
        reached, fault, r, c = check_cells(
            field.absent, distances, self.farthest, near, even, root, links, codes is not None, flat
        )
        if fault:
            check, text = _FAULTS[fault]
            d = self.told(distances[r + 1, c + 1])
            code = codes[r, c] if codes is not None else None
            tight = ", ".join(_NAMES[m] for m in range(8) if (near[r, c] | even[r, c]) >> m & 1)
            self.fail(
                check,
                at,
                r,
                c,
                f"{d}, {text.format(code=code, farthest=self.farthest, tight=tight or 'none')}",
            )
        return _Masks(near, even, flat, distances), int(steps), int(reached)

    def allocation(self, at: Block, _: Any) -> None:
        """Compare a block's allocation with where its backlinks lead."""
        assert self.forest is not None
        assert self.read_backlink is not None
        assert self.read_allocation is not None
        window = self.blocks.window(*at)
        codes = np.ascontiguousarray(self.read_backlink(window))
        with _as_violation():
            right = self.forest.labels(at, codes, *self.ground.roots(at))
        found = self.read_allocation(window)
        if (found != right).any():
            r, c = self.first(found != right)
            text = f"is allocated to {found[r, c]}, but belongs to source {right[r, c]}"
            self.fail("allocation", at, r, c, text)

    # -- flats -----------------------------------------------------------------------------

    def join(self, at: Block, masks: _Masks) -> None:
        """Join the cells of flats in a block; what reaches its rim is decided in the end."""
        b, index = self.blocks.block, self.index(at)
        height, width = self.size(at)
        lost = join_flats(
            masks.flat[:height, :width],
            masks.even,
            index * 4 * b,
            b,
            self.parent,
            self.outward,
        )
        if lost >= 0:
            self.circle(at, *divmod(int(lost), width), masks.distances)

    def spread(self, at: Block, masks: _Masks) -> int:
        """Go on from cells that have a way to a root; the cells of the block that are left."""
        height, width = self.size(at)
        r0, _, c0, _ = self.blocks.window(*at)
        left, r, c = spread_roots(
            masks.flat[:height, :width],
            masks.even,
            masks.distances,
            (r0, c0, self.blocks.rows, self.blocks.cols, self.blocks.block),
            self.solid,
        )
        with self.lock:
            self.open.pop(at, None)
            if left:
                self.open[at] = int(left), int(r), int(c)
        return int(left)

    def anchored(self) -> None:
        """Refuse flats that no step leads to."""
        blocks = self.blocks
        if not self.one_way:
            shape = blocks.rows, blocks.cols, blocks.block
            row, col = join_rims(self.parent, self.outward, *shape)
            if row >= 0:
                at = int(row) // blocks.block, int(col) // blocks.block
                r0, _, c0, _ = blocks.window(*at)
                self.circle(at, int(row) - r0, int(col) - c0)
            return
        while self.open:
            before = sum(left for left, _, _ in self.open.values())
            for at in list(self.open):
                self.spread(at, self.masks(at, None)[0])
            if sum(left for left, _, _ in self.open.values()) == before:
                at, (_, r, c) = next(iter(self.open.items()))
                self.circle(at, r, c)

    def circle(self, at: Block, r: int, c: int, distances: np.ndarray | None = None) -> None:
        if distances is None:
            distances = self.read_distance(self.blocks.window(*at))
        self.fail(
            "acyclic",
            at,
            r,
            c,
            f"{self.told(distances[r + 1, c + 1])}, but lies on a flat that no source and no "
            "nearer cell leads to: its predecessors run in a circle",
        )

    # -- violations ------------------------------------------------------------------------

    def infeasible(
        self, at: Block, field: Field, distances: np.ndarray, k: int, r: int, c: int
    ) -> None:
        there = distances[r + 1 + int(ROW_STEP[k]), c + 1 + int(COL_STEP[k])]
        work = np.empty((8, TILE, TILE), self.dtype)
        row, col = r // TILE * TILE, c // TILE * TILE
        f = field
        weight, through = one_step(
            self.cost, f.heights, f.frictions, f.absent, f.lengths, row, col, self.options, work,
            k, r - row, c - col, there,
        )  # fmt: skip
        r0, _, c0, _ = self.blocks.window(*at)
        y, x = r0 + r + int(ROW_STEP[k]), c0 + c + int(COL_STEP[k])
        self.fail(
            "feasible",
            at,
            r,
            c,
            f"{self.told(distances[r + 1, c + 1])}, but the step of cost {weight} from (row {y}, "
            f"column {x}) at distance {there} leads there for {through}",
        )

    def fail(self, check: str, at: Block, r: int, c: int, text: str) -> None:
        r0, _, c0, _ = self.blocks.window(*at)
        row, col = int(r0 + r), int(c0 + c)
        message = f"{_PROPERTIES[check]}: cell (row {row}, column {col}) {text}"
        raise VerificationError(message, check, row, col)

    def told(self, distance: Any) -> str:
        return "is unreached" if distance == self.top else f"has distance {distance}"

    @staticmethod
    def first(mask: np.ndarray) -> tuple[int, int]:
        r, c = np.unravel_index(np.argmax(mask), mask.shape)
        return int(r), int(c)

    def index(self, at: Block) -> int:
        return at[0] * self.blocks.shape[1] + at[1]

    def size(self, at: Block) -> tuple[int, int]:
        r0, r1, c0, c1 = self.blocks.window(*at)
        return r1 - r0, c1 - c0


@contextmanager
def _as_violation() -> Iterator[None]:
    """What `Forest` refuses is a violation."""
    try:
        yield
    except StoreError as error:
        raise VerificationError(f"not acyclic: {error}", "acyclic") from None


_PROPERTIES = {
    "value": "no distance",
    "source": "not least",
    "absent": "not a cell",
    "farthest": "too far",
    "feasible": "not least",
    "tight": "no path",
    "acyclic": "not acyclic",
    "backlink": "wrong backlink",
    "allocation": "wrong allocation",
}

_ABSENT, _FAR, _LONE, _NOT_VOID, _NOT_ROOT, _NO_CODE, _NOT_TIGHT, _NOT_FIRST = range(1, 9)
_FAULTS = {
    _ABSENT: ("absent", "but is nodata or a barrier"),
    _FAR: ("farthest", "beyond the limit {farthest}"),
    _LONE: ("tight", "but is no source at its start value, and no step leads there for exactly it"),
    _NOT_VOID: ("backlink", "but its backlink is {code}, not 255"),
    _NOT_ROOT: ("backlink", "at its start value, but its backlink is {code}, not 0"),
    _NO_CODE: ("backlink", "but its backlink is {code}, which is no direction"),
    _NOT_TIGHT: (
        "backlink",
        "but its backlink {code} leads to no predecessor (these lie {tight})",
    ),
    _NOT_FIRST: (
        "backlink",
        "but its backlink {code} is not the first direction to a nearer predecessor (these lie "
        "{tight})",
    ),
}


@jit
def check_steps(
    cost,
    heights,
    frictions,
    absent,
    lengths,
    options,
    distances,
    limits,
    work,
    near,
    even,
):
    """Steps into a block: (their number; k, row, col of one that leads for less, or -1).

    Parameters
    ----------
    heights, frictions, absent, lengths, options
        See `fill_weights`.
    limits
        Steps beyond the first count as none; whether they must not be beyond the largest integer.
    work
        (8, TILE, TILE) of the type of distances.
    near, even
        uint8, not padded: receive bit k for tight steps from neighbour k, see `_Masks`.
    """
    farthest, bounded = limits
    top = largest(distances)
    height, width = near.shape
    steps = np.int64(0)
    for row in range(0, height, TILE):
        for col in range(0, width, TILE):
            fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
            for k in range(8):
                bit = np.uint8(1 << k)
                for y in range(TILE):
                    r, first = row + y + 1, col + 1 + COL_STEP[k]
                    here = distances[r, col + 1 : col + 1 + TILE]
                    there = distances[r + ROW_STEP[k], first : first + TILE]
                    gone = absent[r + ROW_STEP[k], first : first + TILE]
                    nearer = near[row + y, col : col + TILE]
                    level = even[row + y, col : col + TILE]
                    w = work[k, y]
                    bad = False
                    count = np.int64(0)
                    for x in range(TILE):
                        d, v, step = there[x], here[x], w[x]
                        through = join(cost, d, step)
                        count += (step < top) & (not gone[x])
                        bad |= (through < v) & (through <= farthest)
                        bad |= bounded & (step < top) & (d < top) & (through >= top)
                        tight = (through == v) & (v < top)
                        nearer[x] |= bit if tight & (d < v) else np.uint8(0)
                        level[x] |= bit if tight & (d == v) else np.uint8(0)
                    steps += count
                    if bad:
                        for x in range(TILE):
                            through = join(cost, there[x], w[x])
                            less = (through < here[x]) & (through <= farthest)
                            over = bounded & (w[x] < top) & (there[x] < top) & (through >= top)
                            if less | over:
                                return steps, k, row + y, col + x
    return steps, -1, -1, -1


@jit
def one_step(cost, heights, frictions, absent, lengths, row, col, options, work, k, y, x, distance):
    """Cost of the step from neighbour k, and what it makes of a distance."""
    fill_weights(cost, heights, frictions, absent, lengths, row, col, options, work)
    return work[k, y, x], join(cost, distance, work[k, y, x])


@jit
def check_cells(absent, distances, farthest, near, even, root, codes, linked, flat):
    """Cells of a block: (those reached, fault or 0, row, col).

    Parameters
    ----------
    absent, distances
        Padded.
    root
        Sources at their start values.
    codes, linked
        Backlinks, if there are any.
    flat
        Receives the cells that have only predecessors as far as themselves.
    """
    top = largest(distances)
    height, width = root.shape
    reached = np.int64(0)
    for r in range(height):
        for c in range(width):
            d = distances[r + 1, c + 1]
            code = np.int64(codes[r, c]) if linked else np.int64(0)
            if d == top:
                if linked and code != UNREACHED:
                    return reached, _NOT_VOID, r, c
                continue
            reached += 1
            if absent[r + 1, c + 1]:
                return reached, _ABSENT, r, c
            if d > farthest:
                return reached, _FAR, r, c
            nearer, tight = np.int64(near[r, c]), np.int64(near[r, c] | even[r, c])
            if root[r, c]:
                if linked and code != 0:
                    return reached, _NOT_ROOT, r, c
                continue
            if tight == 0:
                return reached, _LONE, r, c
            flat[r, c] = nearer == 0
            if not linked:
                continue
            if code == 0 or code & (code - 1):
                return reached, _NO_CODE, r, c
            if code & tight == 0:
                return reached, _NOT_TIGHT, r, c
            if nearer != 0 and code != nearer & -nearer:
                return reached, _NOT_FIRST, r, c
    return reached, 0, -1, -1


@register_jitable
def _place(r, c, height, block):
    """Place of a cell in its block's rims, one behind the other: top, bottom, left, right."""
    if r == 0:
        return c
    if r == height - 1:
        return block + c
    return 2 * block + r if c == 0 else 3 * block + r


@register_jitable
def _place_of(row, col, rows, cols, block):
    """Place of a cell on a rim among those of all blocks."""
    across = (cols + block - 1) // block
    i, j = row // block, col // block
    height = min((i + 1) * block, rows) - i * block
    return (i * across + j) * 4 * block + _place(row % block, col % block, height, block)


@register_jitable
def _find(parent, v):
    """Root of `v`, halving the path on the way (R. Tarjan and J. van Leeuwen 1984)."""
    root = v
    while parent[root] != root:
        parent[root] = parent[parent[root]]
        root = parent[root]
    return root


@register_jitable
def _unite(parent, a, b):
    one, other = _find(parent, a), _find(parent, b)
    parent[max(one, other)] = min(one, other)


@jit
def join_flats(flat, even, offset, block, parent, outward):
    """Join the cells of flats inside a block; a cell of one that is lost, or -1.

    Parameters
    ----------
    flat, even
        See `_Masks`.
    offset
        First place of the block's rims.
    parent
        Receives, at 1 + place of the rims' cells, the same of one they are joined to; 0 where there
        is a way to a root.
    outward
        Receives the tight steps from outside of the block.
    """
    height, width = flat.shape
    own = np.arange(height * width + 1).astype(np.int32)  # 0 is all that has a way to a root
    for r in range(height):
        for c in range(width):
            if not flat[r, c]:
                continue
            for k in range(8):
                if not (even[r, c] >> k) & 1:
                    continue
                y, x = r + ROW_STEP[k], c + COL_STEP[k]
                if 0 <= y < height and 0 <= x < width:
                    _unite(own, 1 + r * width + c, 1 + y * width + x if flat[y, x] else 0)
    at_rim = np.zeros(height * width + 1, np.int32)
    for side in range(4):
        for m in range(width if side < 2 else height):
            r = m if side >= 2 else (0 if side == 0 else height - 1)
            c = m if side < 2 else (0 if side == 2 else width - 1)
            if not flat[r, c]:
                continue
            place = _place(r, c, height, block)
            for k in range(8):
                y, x = r + ROW_STEP[k], c + COL_STEP[k]
                if not (0 <= y < height and 0 <= x < width):
                    outward[offset + place] |= even[r, c] & np.uint8(1 << k)
            top = _find(own, 1 + r * width + c)
            if top == 0:
                continue
            if at_rim[top] == 0:
                at_rim[top] = 1 + place
            parent[offset + 1 + place] = offset + at_rim[top]
    for cell in range(height * width):
        if flat[cell // width, cell % width]:
            top = _find(own, 1 + cell)
            if top != 0 and at_rim[top] == 0:
                return cell
    return -1


@jit
def join_rims(parent, outward, rows, cols, block):
    """Join flats across blocks; (row, col) of a cell of one that is lost, or -1."""
    across = (cols + block - 1) // block
    for again in range(2):
        for place in range(len(outward)):
            if again == 0 and outward[place] == 0:
                continue
            if again == 1 and _find(parent, 1 + place) == 0:
                continue
            i, j = place // (4 * block) // across, place // (4 * block) % across
            side, m = place // block % 4, place % block
            height = min((i + 1) * block, rows) - i * block
            width = min((j + 1) * block, cols) - j * block
            r = m if side >= 2 else (0 if side == 0 else height - 1)
            c = m if side < 2 else (0 if side == 2 else width - 1)
            row, col = i * block + r, j * block + c
            if again == 1:
                return row, col
            for k in range(8):
                if (outward[place] >> k) & 1:
                    y, x = row + ROW_STEP[k], col + COL_STEP[k]
                    _unite(parent, 1 + place, 1 + _place_of(y, x, rows, cols, block))
    return -1, -1


@jit
def spread_roots(flat, even, distances, where, solid):
    """Go along tight steps from cells that have a way to a root.

    Parameters
    ----------
    flat, even, distances
        Of a block, see `_Masks`.
    where
        First row and column of the block, rows and columns of the raster, side of blocks.
    solid
        Per place of all rims, whether the cell has a way to a root; read around the block and
        updated on its rims.

    Returns
    -------
    left, row, col
        Cells of the block without a way, and one of them.
    """
    row0, col0, rows, cols, block = where
    top = largest(distances)
    height, width = flat.shape
    rooted = np.zeros((height + 2, width + 2), np.bool_)
    way = np.empty((height + 2) * (width + 2), np.int64)
    count = 0
    for r in range(-1, height + 1):
        for c in range(-1, width + 1):
            row, col = row0 + r, col0 + c
            if not (0 <= row < rows and 0 <= col < cols):
                continue
            if 0 <= r < height and 0 <= c < width:
                yes = not flat[r, c] and distances[r + 1, c + 1] < top
            else:
                yes = solid[_place_of(row, col, rows, cols, block)] != 0
            if yes:
                rooted[r + 1, c + 1] = True
                way[count] = (r + 1) * (width + 2) + c + 1
                count += 1
    while count:
        count -= 1
        r, c = way[count] // (width + 2) - 1, way[count] % (width + 2) - 1
        for k in range(8):
            y, x = r - ROW_STEP[k], c - COL_STEP[k]
            if not (0 <= y < height and 0 <= x < width) or rooted[y + 1, x + 1]:
                continue
            if flat[y, x] and (even[y, x] >> k) & 1:
                rooted[y + 1, x + 1] = True
                way[count] = (y + 1) * (width + 2) + x + 1
                count += 1
    left, found = 0, -1
    for r in range(height):
        for c in range(width):
            if rooted[r + 1, c + 1]:
                if r in (0, height - 1) or c in (0, width - 1):
                    solid[_place_of(row0 + r, col0 + c, rows, cols, block)] = 1
            elif flat[r, c]:
                left += 1
                if found < 0:
                    found = r * width + c
    return left, found // width, found % width


__all__ = [
    "KnownRoots",
    "Problem",
    "VerificationError",
    "ring_of",
    "threads_within",
    "upper_limit",
    "verify_paths",
    "verify_stored",
]
