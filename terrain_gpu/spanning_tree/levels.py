"""From solved blocks to the forest: spilled blocks, joining level by level, and patches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numba
import numpy as np
from numpy.typing import DTypeLike

from ..compiled import known_types
from ..errors import CellError, StoreError
from ..grid import BlockGrid, Window
from ..store.checksums import crc32c
from ..store.files import read_sealed, write_sealed
from .cpu import contract, frozen
from .cpu.merge import Children
from .cpu.operands import vertices_of
from .region import Border, Region
from .weights import Weight, plus

METHODS: dict[str, ModuleType] = {"frozen": frozen, "contract": contract}
"""Interchangeable modules, see their `__all__`."""


@dataclass
class Solved:
    """The result of solving a block.

    Attributes
    ----------
    region
        Its border and candidates.
    edges, vertices
        Final edges and valid cells.
    sums
        Accumulated weights of the final edges.
    """

    region: Region
    edges: int
    vertices: int
    sums: np.ndarray


class Solver:
    """Solves blocks; each thread has its own work arrays."""

    def __init__(
        self,
        shape: tuple[int, int],
        block: int,
        weight: Weight,
        nodata: float | int | None,
        diagonal: bool,
        method: ModuleType = frozen,
    ) -> None:
        self.shape, self.block, self.weight = shape, block, weight
        self.nodata, self.diagonal, self.method = nodata, diagonal, method
        self._local = threading.local()

    def compiled(self) -> bool:
        """Return whether numba's cache has the kernels for these cells, so nothing is compiled."""
        signatures = known_types(self.method.kernel)
        cells = numba.from_dtype(self.weight.operand_dtype)
        slopes = self.weight.slopes
        return any(
            types[0].dtype == cells and isinstance(types[2], numba.types.Array) == slopes
            for types in signatures
        )

    def solve(self, window: Window, data: np.ndarray, mask: np.ndarray) -> Solved:
        """Solve a block; `mask` receives its final edges."""
        if not hasattr(self._local, "work"):
            blocks = BlockGrid(*self.shape, self.block)
            self._local.work = self.method.new_work(blocks.sides, self.weight)
            self._local.cells = np.empty(blocks.largest(), self.weight.operand_dtype)
        work = self._local.work
        rows, cols = self.shape
        open_sides = (window[0] > 0, window[1] < rows, window[2] > 0, window[3] < cols)
        cells, valid = vertices_of(self.weight, data, self.nodata, self._local.cells)
        self._refuse_largest(window, data, valid)
        mask[...] = 0
        sums = self.weight.new_sums()
        edges, (keys, ids, us, vs) = self.method.solve_block(
            cells,
            valid,
            self.weight.rule(window[0], window[1]),
            self.diagonal,
            open_sides,
            work,
            mask,
            sums,
            self.weight.sum_mode,
        )
        width = window[3] - window[2]

        def globally(cell: np.ndarray) -> np.ndarray:
            return (window[0] + cell // width) * cols + window[2] + cell % width

        candidates = (keys.copy(), 4 * globally(ids >> 2) + (ids & 3), globally(us), globally(vs))
        region = Region(window, Border.of_block(cells, valid), candidates)
        return Solved(region, int(edges), int(np.count_nonzero(valid)), sums)

    def merge(self, children: Children, sums: np.ndarray) -> tuple[Region, np.ndarray]:
        """Join siblings, see `merge.merge`; adds the weights of the final edges to `sums`."""
        weight = self.weight
        return self.method.merge(
            children, self.shape, weight.rule(), self.diagonal, sums, weight.sum_mode
        )

    def _refuse_largest(self, window: Window, data: np.ndarray, valid: np.ndarray) -> None:
        """Reject the largest 64-bit integer: its key would mean "no edge"."""
        dtype = self.weight.dtype
        if dtype.kind == "f" or dtype.itemsize < 8:
            return
        wrong = valid & (data == np.iinfo(dtype).max)
        if wrong.any():
            row, col = np.unravel_index(np.argmax(wrong), wrong.shape)
            raise CellError(
                f"row {window[0] + row}, column {window[2] + col}: {np.iinfo(dtype).max}, the "
                f"largest {dtype.name}, cannot be an elevation; declare it as nodata "
                f"(convert-dataset --nodata={np.iinfo(dtype).max})"
            )


class Spill(Protocol):
    """Stores solved blocks between phases."""

    def has(self, i: int, j: int) -> bool: ...

    def save(self, i: int, j: int, solved: Solved) -> None: ...

    def load(self, i: int, j: int) -> Solved: ...


class MemorySpill:
    """Solved blocks in memory, for rasters that are in memory themselves."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Solved] = {}

    def has(self, i: int, j: int) -> bool:
        """Return whether a block is stored."""
        return (i, j) in self._kept

    def save(self, i: int, j: int, solved: Solved) -> None:
        self._kept[i, j] = solved

    def load(self, i: int, j: int) -> Solved:
        return self._kept.pop((i, j))


class DiskSpill:
    """Solved blocks in files, one per block, so that a killed run can resume.

    The folder must exist: after the end of a run, a late worker must not write. A file is an int64
    header (window, edges, vertices, sums, candidates, sides of the border) followed by the bytes of
    the arrays.
    """

    def __init__(self, folder: Path, weight: Weight) -> None:
        self._folder, self._weight = folder, weight

    def _path(self, i: int, j: int) -> Path:
        return self._folder / f"{i}.{j}"

    def has(self, i: int, j: int) -> bool:
        """Return whether a block is stored and undamaged."""
        path = self._path(i, j)
        if not path.exists():
            return False
        with suppress(StoreError):
            read_sealed(path)
            return True
        return False

    def save(self, i: int, j: int, solved: Solved) -> None:
        region = solved.region
        counts = solved.edges, solved.vertices, solved.sums.size, region.candidates[0].size
        arrays = (
            np.array([*region.window, *counts, *map(len, region.border.cells)], np.int64),
            solved.sums,
            *region.candidates,
            *region.border.cells,
            *region.border.valid,
        )
        write_sealed(self._path(i, j), b"".join(array.tobytes() for array in arrays))

    def load(self, i: int, j: int) -> Solved:
        data = read_sealed(self._path(i, j))
        at = 0

        def take(count: int, dtype: DTypeLike) -> np.ndarray:
            nonlocal at
            array = np.frombuffer(data, dtype, count, at)
            at += array.nbytes
            return array

        def sides(dtype: DTypeLike) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            top, bottom, left, right = (take(size, dtype) for size in sizes)
            return top, bottom, left, right

        *window, edges, vertices, n_sums, count = take(8, np.int64).tolist()
        sizes = take(4, np.int64).tolist()
        sums = take(n_sums, np.int64)
        keys = take(count, self._weight.key_dtype)
        candidates = keys, take(count, np.int64), take(count, np.int64), take(count, np.int64)
        border = Border(sides(self._weight.operand_dtype), sides(np.bool_))
        return Solved(Region(tuple(window), border, candidates), edges, vertices, sums)


@dataclass
class Totals:
    """Sums over all levels: edges, vertices and the exact weight (see `Weight.exact`)."""

    edges: int = 0
    vertices: int = 0
    exact: int | float = 0

    def add(self, weight: Weight, edges: int, vertices: int, sums: np.ndarray) -> None:
        self.merge(Totals(edges, vertices, weight.exact(sums, edges)))

    def merge(self, other: Totals) -> None:
        """Add the totals of other regions."""
        self.edges += other.edges
        self.vertices += other.vertices
        self.exact = plus(self.exact, other.exact)


def spill_bytes(blocks: BlockGrid, weight: Weight, method: ModuleType) -> int:
    """Return the largest possible size of `DiskSpill` and `Patches`, in bytes."""
    rim = 2 * (min(blocks.block, blocks.rows) + min(blocks.block, blocks.cols))
    # Above the blocks, fewer edges become final than there are candidates: 8 bytes each.
    candidates = method.most_candidates(rim) * (weight.key_dtype.itemsize + 24 + 8)
    border = rim * (weight.operand_dtype.itemsize + 1)
    return blocks.count * (96 + weight.new_sums().nbytes + candidates + border)


def join_levels(
    regions: BlockGrid,
    solver: Solver,
    spill: Spill,
    totals: Totals,
    patch: Callable[[np.ndarray], None],
    top: tuple[int, int, int] | None = None,
) -> Region | None:
    """Phase 2: join regions, four at a time, depth first.

    Parameters
    ----------
    patch
        Called with the global ids of final edges, level by level.
    top
        Join only a square of regions: its first row and column, and its side, a power of two. All
        regions when None.

    Returns
    -------
    Region or None
        The joined region; None if it lies outside the raster.
    """
    down, across = regions.shape
    weight = solver.weight

    def region(i: int, j: int, side: int) -> Region | None:
        if i >= down or j >= across:
            return None
        if side == 1:
            solved = spill.load(i, j)
            totals.add(weight, solved.edges, solved.vertices, solved.sums)
            return solved.region
        half = side // 2
        children = {
            (a, b): child
            for a in (0, 1)
            for b in (0, 1)
            if (child := region(i + a * half, j + b * half, half)) is not None
        }
        if len(children) == 1:
            return children[0, 0]
        sums = weight.new_sums()
        joined, final = solver.merge(children, sums)
        totals.add(weight, len(final), 0, sums)
        patch(final)
        return joined

    return region(*(top or (0, 0, 1 << max(down - 1, across - 1, 0).bit_length())))


class Patches:
    """Edges that became final above the blocks, grouped by block; in memory or in files."""

    GROUP = 256
    """Number of blocks whose patches are sorted together."""

    def __init__(self, blocks: BlockGrid, cols: int, folder: Path | None) -> None:
        self._blocks, self._cols, self._folder = blocks, cols, folder
        self._kept: dict[int, list[np.ndarray]] = {}
        self._sums: dict[int, int] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
        self.count = 0

    def add(self, ids: np.ndarray) -> None:
        """Store edges in the group of their lower endpoint's block."""
        if not len(ids):
            return
        self.count += len(ids)
        groups = self._block(ids) // self.GROUP
        order = np.argsort(groups, kind="stable")
        ids, groups = ids[order], groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        for part, group in zip(np.split(ids, starts[1:]), groups[starts].tolist(), strict=True):
            if self._folder is None:
                self._kept.setdefault(group, []).append(part)
            else:
                data = part.tobytes()
                self._sums[group] = crc32c(data, self._sums.get(group, 0))
                with open(self._folder / str(group), "ab") as file:
                    file.write(data)

    def _block(self, ids: np.ndarray) -> np.ndarray:
        cell = ids >> 2
        side, across = self._blocks.block, self._blocks.shape[1]
        return (cell // self._cols // side) * across + cell % self._cols // side

    def by_block(self) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]]:
        """(i, j, row, col, bit) of every block with patches; rows and columns inside the block."""
        for group in self._groups():
            ids = self._load(group)
            which = self._block(ids)
            order = np.argsort(which, kind="stable")
            ids, which = ids[order], which[order]
            starts = np.flatnonzero(np.diff(which, prepend=-1))
            for part, block in zip(np.split(ids, starts[1:]), which[starts].tolist(), strict=True):
                i, j = divmod(block, self._blocks.shape[1])
                r0, _, c0, _ = self._blocks.window(i, j)
                cell = part >> 2
                bit = np.left_shift(1, part & 3).astype(np.uint8)
                yield i, j, cell // self._cols - r0, cell % self._cols - c0, bit

    def _groups(self) -> Iterable[int]:
        if self._folder is None:
            return sorted(self._kept)
        return sorted(int(path.name) for path in self._folder.iterdir())

    def _load(self, group: int) -> np.ndarray:
        if self._folder is None:
            return np.concatenate(self._kept.pop(group))
        path = self._folder / str(group)
        data = path.read_bytes()
        if crc32c(data) != self._sums[group]:
            raise StoreError(f"{path}: damaged while in use; compute again with --overwrite")
        return np.frombuffer(data, np.int64)
