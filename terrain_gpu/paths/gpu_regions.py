"""Shortest paths on a GPU whose memory is too small for the raster: regions, one after another.

Regions are squares of blocks. As the CPU does with blocks, the one with the least pending key is
relaxed to its end; its distances then go to a file, its outer cells stay in memory, and neighbours
become pending. Hops on flats are found in the same way. Distances are upper bounds at any time, so
the order decides the time alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..grid import BlockGrid, Window, ceil_div
from ..report import Report
from ..store.writer import output_errors
from .costs import largest
from .gpu import Hopping, Output, Piece, Problem, Staging, Write, new_notes
from .relax import Block
from .tile import COL_STEP, ROW_STEP

Region = tuple[int, int]


class Rims:
    """Outer cells of all regions, what each has seen of its neighbours', and who is pending."""

    def __init__(self, windows: dict[Region, Window], dtype: np.dtype) -> None:
        self.windows, self.dtype = windows, dtype
        self.top = largest(np.empty(0, dtype))
        self.pending: dict[Region, Any] = {}
        self._sides: dict[Region, tuple[np.ndarray, ...]] = {}
        self._seen: dict[Region, np.ndarray] = {}

    def shape(self, at: Region) -> tuple[int, int]:
        r0, r1, c0, c1 = self.windows[at]
        return r1 - r0, c1 - c0

    def start(self, at: Region, key: Any) -> None:
        """Make a region pending."""
        self.pending[at] = min(key, self.pending.get(at, key))

    def next(self, farthest: Any) -> Region | None:
        """The region with the least key, which is no longer pending; None at the end."""
        if not self.pending:
            return None
        at = min(self.pending, key=lambda region: self.pending[region])
        if self.pending.pop(at) > farthest:
            self.pending.clear()
            return None
        return at

    def ring(self, at: Region) -> tuple[np.ndarray, np.ndarray]:
        """What neighbours have beside a region, and what it saw of that the last time.

        Top and bottom row with corners, left and right column.
        """
        height, width = self.shape(at)
        none = np.full(1, self.top, self.dtype)

        def beside(k: int, side: int, length: int) -> np.ndarray:
            other = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
            if other not in self._sides:
                return np.full(length, self.top, self.dtype)
            return self._sides[other][side]

        def corner(k: int, side: int, end: int) -> np.ndarray:
            other = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
            return self._sides[other][side][end : end + 1 or None] if other in self._sides else none

        ring = np.concatenate(
            (
                corner(5, 1, -1),
                beside(6, 1, width),
                corner(7, 1, 0),
                corner(3, 0, -1),
                beside(2, 0, width),
                corner(1, 0, 0),
                beside(4, 3, height),
                beside(0, 2, height),
            )
        )
        seen = self._seen.get(at, np.full(len(ring), self.top, self.dtype))
        self._seen[at] = ring
        return ring, seen

    def put(self, at: Region, rim: np.ndarray) -> None:
        """Note a region's outer cells; neighbours beside those that became less are pending."""
        height, width = self.shape(at)
        new = tuple(np.split(rim, np.cumsum((width, width, height))))
        old = self._sides.get(at, tuple(np.full(len(a), self.top, self.dtype) for a in new))
        self._sides[at] = new
        first, last, whole = slice(0, 1), slice(-1, None), slice(None)
        for k, (side, part) in enumerate(
            (
                (3, whole), (1, last), (1, whole), (1, first),
                (2, whole), (0, first), (0, whole), (0, last),
            )
        ):  # fmt: skip
            other = at[0] + int(ROW_STEP[k]), at[1] + int(COL_STEP[k])
            better = new[side][part] < old[side][part]
            if other in self.windows and better.any():
                self.start(other, new[side][part][better].min())


class Spill:
    """A file with the distances of all blocks."""

    def __init__(self, path: Path, blocks: BlockGrid, dtype: np.dtype) -> None:
        self.path, self.blocks, self.dtype = path, blocks, dtype
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w+b", buffering=0)

    def _offset(self, at: Block) -> int:
        place = at[0] * self.blocks.shape[1] + at[1]
        return place * self.blocks.block**2 * self.dtype.itemsize

    def save(self, _: str, at: Block, cells: np.ndarray) -> None:
        rest, offset = memoryview(cells).cast("B"), self._offset(at)  # type: ignore[arg-type]
        with output_errors(self.path):
            while rest:
                count = os.pwrite(self._file.fileno(), rest, offset)
                rest, offset = rest[count:], offset + count

    def restore(self, at: Block, cells: np.ndarray) -> None:
        rest, offset = memoryview(cells).cast("B"), self._offset(at)  # type: ignore[arg-type]
        with output_errors(self.path):
            while rest:
                count = os.preadv(self._file.fileno(), [rest], offset)
                if not count:
                    raise OSError(5, "is cut short")
                rest, offset = rest[count:], offset + count

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class Field:
    """One kind of distance over all regions: where it lies when its region is not on the GPU."""

    def __init__(self, path: Path, problem: Problem, rims: Rims) -> None:
        self.spill = Spill(path, problem.blocks, rims.dtype)
        self.rims = rims
        self.saved: set[Region] = set()

    def leave(self, at: Region, piece: Piece, cells: Any, kernels: Any) -> None:
        """Save what is on the GPU, and tell the neighbours."""
        pitch, dtype = piece.shape.pitch, self.rims.dtype
        save = partial(_run, kernels.get_function("save"))

        def cut(size: int, *place: Any) -> None:
            *where, block = place
            save(size, cells, *where, pitch, block)

        piece.move([Output("", dtype, cut)], self.spill.save)
        self.saved.add(at)
        self.put(at, piece, cells, kernels)

    def put(self, at: Region, piece: Piece, cells: Any, kernels: Any) -> None:
        """Tell the neighbours."""
        import cupy

        shape, dtype = piece.shape, self.rims.dtype
        rim = cupy.empty(2 * (shape.rows + shape.cols), dtype)
        size = shape.rows, shape.cols, shape.pitch
        _run(kernels.get_function("rim"), len(rim), cells, *size, rim)
        self.rims.put(at, rim.get())

    def come(self, at: Region, piece: Piece, cells: Any, kernels: Any, pending: Any) -> None:
        """Bring back what was saved, and what the neighbours have found since."""
        import cupy

        shape, dtype = piece.shape, self.rims.dtype
        restore = kernels.get_function("restore")
        if at in self.saved:
            cupy.cuda.Device().synchronize()

            def bring(block: Block, staging: Staging) -> None:
                r0, r1, c0, c1 = piece.problem.blocks.window(*block)
                host = staging.array((r1 - r0, c1 - c0), dtype)
                self.spill.restore(block, host)
                place = *host.shape, r0 - piece.window[0], c0 - piece.window[2], shape.pitch
                with staging:
                    staging.copy(host.nbytes, back=False)
                    _run(restore, host.size, cells, *place, staging.device)

            piece.each(bring)
        ring, seen = map(cupy.array, self.rims.ring(at))
        size = shape.rows, shape.cols, shape.pitch
        _run(kernels.get_function("receive"), len(ring), ring, seen, *size, cells, *pending)


def _run(kernel: Any, cells: int, *arguments: Any) -> None:
    kernel((int(min(ceil_div(cells, 256), 1 << 16)),), (256,), arguments)


class Regions:
    """One solve, region by region. See `gpu.solve`."""

    def __init__(
        self,
        problem: Problem,
        side: int,
        report: Report,
        tick: Callable[[int], None],
        write: Write,
    ) -> None:
        self.problem, self.report, self.tick, self.write = problem, report, tick, write
        self.pool = [Staging(problem.staging_bytes) for _ in range(problem.stagings)]
        self.notes = new_notes()
        self.farthest = problem.farthest
        blocks = problem.blocks
        cells = side * blocks.block
        down, across = ceil_div(blocks.rows, cells), ceil_div(blocks.cols, cells)
        self.windows = {
            (i, j): (
                i * cells,
                min((i + 1) * cells, blocks.rows),
                j * cells,
                min((j + 1) * cells, blocks.cols),
            )
            for i in range(down)
            for j in range(across)
        }
        self.cells = cells
        self.visits = self.tile_visits = self.waves = 0
        targets = problem.targets
        top = largest(np.empty(0, problem.ground.dtype))
        self.at_targets = np.full(0 if targets is None else len(targets), top, problem.ground.dtype)

    def run(self) -> dict[str, int]:
        problem = self.problem
        spill = problem.spill
        distances = Field(
            spill.with_name("regions"), problem, Rims(self.windows, problem.ground.dtype)
        )
        try:
            with self.report.phase("relax"):
                self._relax(distances)
            with self.report.phase("finalise"):
                self._finalise(distances)
        finally:
            distances.spill.close()
        noted = self.piece.noted()
        tiles = self.windows.values()
        return {
            "reached": noted["reached"],
            "valid": noted["valid"],
            "regions": len(self.windows),
            "region_visits": self.visits,
            "tiles": sum(ceil_div(b - a, 32) * ceil_div(d - c, 32) for a, b, c, d in tiles),
            "tile_visits": self.tile_visits,
            "waves": self.waves,
            "named": False,
            "memory": self.problem.memory(self.cells // self.problem.blocks.block),
        }

    def _load(self, at: Region, field: Field) -> Piece:
        """A region with its distances, as far as they are known."""
        self.piece: Any = None
        piece = self.piece = Piece(self.problem, self.windows[at], self.pool, self.notes)
        piece.relaxing.farthest = self.farthest
        piece.read()
        if at not in field.saved:
            piece.seed()
        field.come(at, piece, piece.distances, piece.kernels, piece.relaxing.pending)
        return piece

    def _starts(self) -> Iterator[tuple[Region, Any]]:
        """Regions with sources, and a bound below what these begin with."""
        least: dict[Region, float] = {}
        for (i, j), key in self.problem.ground.starts():
            b = self.problem.blocks.block
            at = i * b // self.cells, j * b // self.cells
            least[at] = min(key, least.get(at, key))
        for at, key in least.items():
            yield at, self.problem.ground.dtype.type(key)

    def _relax(self, field: Field) -> None:
        seen = set()
        for at, key in self._starts():
            field.rims.start(at, key)
        while (found := field.rims.next(self.farthest)) is not None:
            piece = self._load(found, field)
            self._count(piece.relax())
            field.leave(found, piece, piece.distances, piece.kernels)
            self._look_at_targets(piece)
            if found not in seen:
                self.tick(piece.shape.rows * piece.shape.cols)
            seen.add(found)
            del piece  # its memory goes to the next
        for r0, r1, c0, c1 in (w for at, w in self.windows.items() if at not in seen):
            self.tick((r1 - r0) * (c1 - c0))

    def _count(self, state: Any) -> None:
        self.visits += 1
        self.tile_visits += int(state["visits"])
        self.waves += int(state["number"])

    def _look_at_targets(self, piece: Piece) -> None:
        targets = self.problem.targets
        if targets is None or not len(targets):
            return
        r0, r1, c0, c1 = piece.window
        mine = (targets.rows >= r0) & (targets.rows < r1)
        mine &= (targets.cols >= c0) & (targets.cols < c1)
        if mine.any():
            self.at_targets[mine] = piece.at(targets.rows[mine], targets.cols[mine])
        self.farthest = min(self.farthest, self.at_targets.max())

    def _finalise(self, field: Field) -> None:
        linked = "backlink" in self.problem.names
        hops = None
        uneven: dict[Region, int] = {}  # and the least key of each
        try:
            if linked:
                path = self.problem.spill.with_name("hops")
                hops = Field(path, self.problem, Rims(self.windows, np.dtype(np.uint32)))
            for at in self.windows:
                piece = self._load(at, field)
                outputs = [piece.distance_output(self.farthest)]
                if hops is not None:
                    piece.link(self.farthest)
                    hopping = Hopping(piece)
                    if hopping.begin():
                        uneven[at] = 0
                    else:
                        outputs.append(piece.backlink_output())
                    hops.put(at, piece, hopping.hops, hopping.kernels)
                    del hopping
                piece.move(outputs, self.write, self._done)
                del piece, outputs
            if hops is not None and uneven:
                self._close_flats(field, hops, uneven)
        finally:
            if hops is not None:
                hops.spill.close()

    def _done(self, at: Block) -> None:
        r0, r1, c0, c1 = self.problem.blocks.window(*at)
        self.tick((r1 - r0) * (c1 - c0))

    def _close_flats(self, field: Field, hops: Field, uneven: dict[Region, int]) -> None:
        """Relax hops over the regions with flats, then write their backlinks."""
        hops.rims.pending = dict(uneven)
        while (at := hops.rims.next(2**31 - 1)) is not None:
            if at not in uneven:
                continue
            hopping = self._hopping(at, field, hops)
            hopping.relax()
            hops.leave(at, hopping.piece, hopping.hops, hopping.kernels)
            del hopping
        for at in uneven:
            hopping = self._hopping(at, field, hops)
            hopping.close()
            hopping.piece.move([hopping.piece.backlink_output()], self.write)
            del hopping

    def _hopping(self, at: Region, field: Field, hops: Field) -> Hopping:
        piece = self._load(at, field)
        piece.link(self.farthest)
        hopping = Hopping(piece)
        if at not in hops.saved:
            hopping.begin()
        pending = hopping.relaxing.pending
        hops.come(at, piece, hopping.hops, hopping.kernels, pending)
        return hopping


__all__ = ["Regions"]
