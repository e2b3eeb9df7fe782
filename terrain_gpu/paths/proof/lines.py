"""Proof of paths as lines: the costs of a line's steps, computed again, add up to its cost.

The file is read back. Consecutive cells of a line must be joined by a step that exists. The cost of
each step is computed from its two cells (and for a knight's move from those that it passes between)
by the cost model's function; the kernels that compute distances are not used. The costs are added
in the order of the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...engine.machine import NO_LIMIT, Machine
from ...engine.plan import PER_ROW, Excess, require
from ...errors import StoreError, VerificationError
from ...facts import Findings, JsonObject
from ...grid import BlockGrid
from ...grid.neighbours import COL_STEP, COL_STEP_16, EDGE_OF_16, ROW_STEP, ROW_STEP_16
from ...io.places import Places
from ...io.proof.line_files import (
    Batch,
    FileRoom,
    LineFile,
    check_attributes,
    count_lines,
    fields_of,
    in_parts,
    read_lines,
    wrong_line,
)
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ...store.readable import Readable
from ..cost.edges import infinity_of
from ..cost.fields import Field
from ..cost.knights import Options
from ..cost.steps import RESULTS, SOURCE, layer_named, unreached
from ..cost.terrain import EDGE, Terrain
from .line_kernels import price_steps
from .stored import RecordedPaths, check_settings, layers_of

_CELL_BYTES = 40
"""Bytes of a cell of the block in which steps are priced: heights, frictions and masks."""

LAYER = "paths"
"""Name of the layer in a GeoPackage of paths."""

_FIELDS = "source", "target", "source_name", "target_name", "cost", "length", "cells"


class WalkedSteps(NamedTuple):
    """The steps into the cells of some lines: costs, lengths and rises; 0 at first cells."""

    prices: np.ndarray
    lengths: np.ndarray
    rises: np.ndarray


@dataclass
class PathLines:
    """Lines of a file as steps over the raster.

    Attributes
    ----------
    terrain, options
        The cells, and which steps exist; see `fill_weights`.
    dtype
        Dtype of distances.
    memory_limit
        As for `shortest_paths`.
    """

    file: LineFile
    terrain: Terrain
    options: Options
    dtype: np.dtype
    memory_limit: int | str | None = NO_LIMIT

    def batches(self) -> Iterator[tuple[Batch, WalkedSteps]]:
        """Yield lines, and the costs of their steps.

        Raises
        ------
        VerificationError
            when positions are not cell centres, or a step does not exist.
        PlanError
            when a line, or a block of cells, does not fit within the memory limit.
        """
        blocks, machine = self.terrain.blocks, Machine.of(self.memory_limit)
        held = machine.baseline(blocks.block) + PER_ROW * blocks.rows
        held += _CELL_BYTES * blocks.largest()

        require(held, machine.memory_limit, "to verify paths")
        room = FileRoom(Excess(held, machine.memory_limit), "to verify a path")
        for batch in read_lines(self.file, room):
            whole = batch.without_repeats()
            yield whole, self._walked(whole)

    def _walked(self, batch: Batch) -> WalkedSteps:
        blocks, ways = self.terrain.blocks, 8 * self.terrain.halo
        steps = batch.steps(self.file.path, blocks.cols, wraps=blocks.wraps, ways=ways)
        steps = steps.astype(np.int64)
        back = (steps + 4) % 8 + steps // 8 * 8  # the neighbour in the opposite direction
        into = np.append(np.full(min(len(steps), 1), -1), np.where(steps == ways, -1, back)[:-1])
        found = WalkedSteps(
            np.zeros(len(into), self.dtype), np.zeros(len(into)), np.zeros(len(into))
        )
        row, col = np.divmod(batch.cells, blocks.cols)
        moved = np.flatnonzero(into >= 0)
        owner = row[moved] // blocks.block * blocks.shape[1] + col[moved] // blocks.block
        for number in np.unique(owner).tolist():
            at = divmod(number, blocks.shape[1])
            r0, _, c0, _ = blocks.window(*at)
            mine, h = moved[owner == number], self.terrain.halo
            own = row[mine] - r0 + h, col[mine] - c0 + h, into[mine]
            prices, lengths, rises = self._priced(self.terrain.load(at), *own)
            found.prices[mine], found.lengths[mine], found.rises[mine] = prices, lengths, rises
        closed = np.flatnonzero(found.prices >= infinity_of(found.prices))
        if len(closed):
            k = int(closed[0])
            self._wrong(batch, k, f"there is no step from {self.named(batch.cells[k - 1])}")
        return found

    def _priced(self, field: Field, r: np.ndarray, c: np.ndarray, k: np.ndarray) -> WalkedSteps:
        """The steps into padded cells of a block from their neighbours `k`; infinite if closed."""
        diagonal, corner_cutting, reverse = self.options
        absent, dy, dx = field.absent, ROW_STEP_16[k], COL_STEP_16[k]
        here, there = (r, c), (r + dy, c + dx)
        lengths = field.lengths[EDGE_OF_16[k], r + np.minimum(dy, 0)]
        closed = absent[here] | absent[there]
        slanted = (k < 8) & (dy != 0) & (dx != 0)
        if not diagonal:
            closed |= slanted
        if not corner_cutting:
            closed |= slanted & absent[r, c + dx] & absent[r + dy, c]
        fro, to = (here, there) if reverse else (there, here)
        cells = field.heights, field.frictions
        begins, ends = ([layer[at].astype(self.dtype) for layer in cells] for at in (fro, to))
        prices = self._costs(begins, ends, lengths)
        if self.terrain.halo == 2:  # a knight's move, through the middle between two cells
            one, other = k % 8, (k + 1) % 8
            beside = [(r + ROW_STEP[n], c + COL_STEP[n]) for n in (one, other)]
            middle = [0.5 * (layer[beside[0]].astype(float) + layer[beside[1]]) for layer in cells]
            halves = [
                self._costs(*part, 0.5 * lengths) for part in ((begins, middle), (middle, ends))
            ]
            join = np.maximum if self.terrain.model.kind.bottleneck else np.add
            prices = np.where(k < 8, prices, join(*halves))
            closed |= (k >= 8) & (absent[beside[0]] | absent[beside[1]])
        infinity = infinity_of(prices)
        prices = np.where(closed | ~(prices <= infinity), infinity, prices)
        return WalkedSteps(prices, lengths, _rises(begins[0], ends[0]))

    def _costs(self, fro: list[np.ndarray], to: list[np.ndarray], length: np.ndarray) -> np.ndarray:
        found = np.empty(len(length), self.dtype)
        price_steps(self.terrain.model.kernel, fro[0], to[0], fro[1], to[1], length, found)
        return found

    def total(self, begin: Any, prices: np.ndarray) -> float:
        """The cost at the end of a path that begins with `begin`."""
        return self.sums(begin, prices)[-1].item()

    def sums(self, begin: Any, prices: np.ndarray) -> np.ndarray:
        """The costs at all cells of a path; the first of `prices` is not used."""
        join = np.maximum if self.terrain.model.kind.bottleneck else np.add
        kind = np.float64 if self.dtype.kind == "f" else np.uint64
        all_ = np.concatenate((np.array([begin], kind), prices[1:].astype(kind)))
        found: np.ndarray = join.accumulate(all_)  # from left to right, not in pairs
        return found

    def named(self, cell: int) -> str:
        """A cell, for messages."""
        row, col = divmod(int(cell), self.terrain.blocks.cols)
        return f"row {row}, column {col}"

    def _wrong(self, batch: Batch, k: int, what: str) -> None:
        line = int(np.searchsorted(batch.starts, k, side="right")) - 1
        wrong_line(self.file.path, batch.number + line, f"{self.named(batch.cells[k])}: {what}")


def _rises(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rise from one height to another; heights may be unsigned."""
    with np.errstate(all="ignore"):
        return np.where(b > a, b - a, 0).astype(np.float64)


def values_at(layer: Readable, blocks: BlockGrid, cells: np.ndarray) -> np.ndarray:
    """The values of a layer at some cells, given by their ids."""
    row, col = np.divmod(cells, blocks.cols)
    owner = row // blocks.block * blocks.shape[1] + col // blocks.block
    found = np.empty(len(cells), layer.dtype)
    for number in np.unique(owner).tolist():
        window = blocks.window(*divmod(number, blocks.shape[1]))
        mine = owner == number
        found[mine] = layer.read_window(*window)[row[mine] - window[0], col[mine] - window[2]]
    return found


class KnownEnds(NamedTuple):
    """The sources and targets of paths, as they were given."""

    sources: Places
    targets: Places


def verify_stored_paths(
    store: TileStore,
    into: str,
    path: str | Path,
    memory_limit: int | str | None = None,
    *,
    part: Path | None = None,
    ends: KnownEnds | None = None,
    progress: Progress = silent,
) -> Findings:
    """Check a file of paths against a layer of distances and its backlinks.

    Each line must begin at a source. At each of its cells, the sum of the costs of its steps must
    be the distance, bit for bit, and at its end its cost. Its length is computed again.

    Parameters
    ----------
    into
        The layer of distances, which `verify_stored` proves.
    part
        Temporary path of the file, before it is renamed to `path`.
    ends
        Sources and targets of the run that writes the file: there must be a line for every target
        that is reached, in their order, with their ids and names. When None, the ids of sources
        must be those of the layer of allocation, if there is one, and those of targets are not
        checked.
    progress
        Called with the number of lines just checked, and the total.

    Returns
    -------
    dict
        "paths" and "steps": their numbers.

    Raises
    ------
    VerificationError
        at the first wrong line.
    StoreError
        when there are no backlinks, or layers are damaged or of another run.
    """
    layers = layers_of(store, into)
    recorded = RecordedPaths(layers[RESULTS[0]])
    check_settings(store, layers, recorded)
    if RESULTS[1] not in layers:
        name = layer_named(into, RESULTS[1])
        raise StoreError(
            f"{store.path}: no layer {name!r}, which is needed to find where paths begin; compute "
            f"{into!r} again with --backlink or --path"
        )
    terrain, _ = recorded.problem(store)
    found = part or Path(path)
    own = LineFile(found, Path(path), store.grid, LAYER, fields_of(found, LAYER, _FIELDS))
    own = own._replace(wraps=in_parts(own))
    how = terrain, recorded.options, layers[RESULTS[0]].dtype
    lines = PathLines(own, *how, memory_limit)
    claims = None if ends is None else _expected(terrain.blocks, layers[RESULTS[0]], ends)
    return _PathProof(lines, layers, claims, ends).run(progress)


def _expected(
    blocks: BlockGrid, distance: Layer, ends: KnownEnds
) -> Iterator[tuple[int, JsonObject]]:
    """Yield the last cell and the attributes of each path that a run must write."""
    targets = ends.targets.as_given()
    cells = targets.rows * blocks.cols + targets.cols
    values = values_at(distance, blocks, cells)
    none = unreached(distance.dtype)
    reached = ~np.isnan(values) if distance.dtype.kind == "f" else values != none
    for cell, name, there in zip(cells.tolist(), targets.ids.tolist(), reached, strict=True):
        if there:
            own: JsonObject = {"target": name}
            if targets.names:
                own["target_name"] = targets.names.get(name, str(name))
            yield cell, own


class _PathProof:
    def __init__(
        self,
        lines: PathLines,
        layers: dict[str, Layer],
        claims: Iterable[tuple[int, JsonObject]] | None,
        ends: KnownEnds | None,
    ) -> None:
        self._lines, self._layers = lines, layers
        self._claims = None if claims is None else iter(claims)
        self._sources: dict[int, int] | None = None
        self._names: Any = {}
        if ends is not None:
            own = ends.sources.one_per_cell()
            cells = own.rows * lines.terrain.blocks.cols + own.cols
            self._sources = dict(zip(cells.tolist(), own.ids.tolist(), strict=True))
            self._names = own.names

    def run(self, progress: Progress) -> Findings:
        paths, steps, total = 0, 0, count_lines(self._lines.file)
        for batch, walked in self._lines.batches():
            self._check(batch, walked)
            paths += len(batch.attributes)
            steps += len(batch.cells) - len(batch.attributes)
            progress(len(batch.attributes), total)
        if self._claims is not None and (left := next(self._claims, None)) is not None:
            raise VerificationError(
                f"{self._lines.file.path}: no line to target {left[1]['target']}, which is reached;"
                " write the file again with --overwrite",
                "line",
            )
        return {"paths": paths, "steps": steps}

    def _check(self, batch: Batch, walked: WalkedSteps) -> None:
        blocks, path = self._lines.terrain.blocks, self._lines.file.path
        distances = values_at(self._layers[RESULTS[0]], blocks, batch.cells)
        firsts = batch.cells[batch.starts[:-1]]
        codes = values_at(self._layers[RESULTS[1]], blocks, firsts)
        areas = self._layers.get(RESULTS[2])
        ids = None if areas is None else values_at(areas, blocks, firsts)
        for n, own in enumerate(batch.attributes):
            number, (a, b) = batch.number + n, batch.starts[n : n + 2].tolist()
            cell = int(firsts[n])
            if codes[n] != SOURCE:
                wrong_line(path, number, f"begins at {self._lines.named(cell)}, not at a source")
            sums = self._lines.sums(distances[a], walked.prices[a:b])
            other = np.flatnonzero(sums != distances[a:b])
            if len(other):
                k = int(other[0])
                wrong_line(
                    path,
                    number,
                    f"its steps up to {self._lines.named(batch.cells[a + k])} cost {sums[k]}, but "
                    f"the distance there is {distances[a + k]}",
                )
            source = None if ids is None else int(ids[n])
            if self._sources is not None:
                source = self._sources.get(cell, EDGE)
            right = self._attributes(number, own, source, int(batch.cells[b - 1]))
            right["cost"] = distances[b - 1].item()
            right["length"] = math.fsum(walked.lengths[a:b].tolist())
            right["cells"] = b - a
            check_attributes(path, number, own, right)

    def _attributes(
        self, number: int, own: JsonObject, source: int | None, last: int
    ) -> JsonObject:
        """The correct ids and names of a line; its own where the correct ones are unknown."""
        path = self._lines.file.path
        if self._claims is None:
            right = {key: own[key] for key in _FIELDS[:4] if key in own}
            return right if source is None else {**right, "source": source}
        found = next(self._claims, None)
        if found is None:
            wrong_line(path, number, "has no target: all reached targets have earlier lines")
        cell, right = found
        if cell != last:
            wrong_line(
                path,
                number,
                f"ends at {self._lines.named(last)}, not at target {right['target']} at "
                f"{self._lines.named(cell)}",
            )
        right = {"source": source, **right}
        if self._names:
            right["source_name"] = self._names.get(source, str(source))
        return right
