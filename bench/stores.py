"""Stores of arrays, of functions and of tiles, and what lies in them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from terrain_gpu import GridSpec, TileStore, create_layer
from terrain_gpu.engine.machine import available_threads


def square_cells(shape: tuple[int, int], cell: float = 10.0, crs: str = "") -> GridSpec:
    """A grid with cells of so many metres."""
    return GridSpec(*shape, (cell, 0.0, 0.0, 0.0, -cell, 0.0), crs)


def add_layer(
    store: Path,
    cells: np.ndarray | Callable[[int, int, int, int], np.ndarray],
    *,
    shape: tuple[int, int] | None = None,
    dtype: Any = None,
    layer: str = "elevation",
    grid: GridSpec | None = None,
    **how: Any,
) -> Path:
    """Write an array, or what a function returns for windows; if no grid is given, cells of 10 m.

    `shape` and `dtype` are needed with a function. Returns the store.
    """
    if isinstance(cells, np.ndarray):
        shape, dtype = cells.shape, dtype or cells.dtype
    grid = grid or square_cells(shape or (0, 0))
    with create_layer(store, layer, grid, np.dtype(dtype), **how) as writer:

        def write(at: tuple[int, int]) -> None:
            r0, r1, c0, c1 = writer.block_window(*at)
            window = cells(r0, r1, c0, c1) if callable(cells) else cells[r0:r1, c0:c1]
            writer.write_block(*at, np.ascontiguousarray(window, dtype))

        with ThreadPoolExecutor(available_threads()) as pool:
            deque(pool.map(write, writer.blocks.ids()), 0)
        writer.commit()
    return store


def add_tiles(store: Path, tiles: np.ndarray, block: int = 1024, **how: Any) -> Path:
    """Write the blocks of a square raster that are tiles in Z-order already; returns the store."""
    across = int(len(tiles) ** 0.5)
    grid = GridSpec(across * block, across * block)
    with create_layer(store, "elevation", grid, tiles.dtype, block_size=block, **how) as writer:

        def write(k: int) -> None:
            writer.write_tiles(*divmod(k, across), tiles[k])

        with ThreadPoolExecutor(available_threads()) as pool:
            deque(pool.map(write, range(len(tiles))), 0)
        writer.commit()
    return store


def cells_of(store: Path, layer: str = "elevation") -> np.ndarray:
    """All cells of a layer."""
    opened = TileStore.open(store).layer(layer)
    return opened.read_window(*opened.grid.window)


def shards(store: Path, layer: str = "elevation") -> list[Path]:
    """The files of the cells of a layer."""
    return sorted(path for path in (store / layer / "c").rglob("*") if path.is_file())


def digest(store: Path, layer: str) -> str:
    """A digest of the files of a layer's cells."""
    found = hashlib.sha256()
    for file in shards(store, layer):
        found.update(str(file.relative_to(store)).encode() + file.read_bytes())
    return found.hexdigest()
