"""Levels: coarser copies of a store, each a store of its own in the folder ``overviews``.

Cells of ``STORE/overviews/2`` are twice as wide and high as those of STORE, and so on for 4, 8, ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from ..grid import GridSpec
from .layer import Layer
from .objects import AnyPath
from .swap import is_marked

if TYPE_CHECKING:
    from .metadata import TileStore

FOLDER_OF_LEVELS = "overviews"
SMALLEST = 256
"""The coarsest level has at most this number of rows and columns."""


def factors_of(grid: GridSpec) -> list[int]:
    """The number of cells of a grid along a side of a cell of each level: 2, 4, 8, ..."""
    factors: list[int] = []
    side = max(grid.shape)
    while side > SMALLEST:
        factors.append(2 ** (len(factors) + 1))
        side = -(-side // 2)
    return factors


def coarser(grid: GridSpec) -> GridSpec:
    """The grid of cells twice as wide and high; the last ones may extend beyond the raster."""
    a, b, c, d, e, f = grid.transform
    shape = [-(-side // 2) for side in grid.shape]
    return replace(grid, rows=shape[0], cols=shape[1], transform=(2 * a, b, c, d, 2 * e, f))


def place_of(root: AnyPath, factor: int) -> AnyPath:
    """The folder of a level; of the store itself for 1."""
    return root if factor == 1 else root / FOLDER_OF_LEVELS / str(factor)


def root_of(level: AnyPath) -> tuple[Any, int]:
    """The store that a level belongs to, and the factor of the level that it was made from."""
    return level.parent.parent, int(level.name) // 2


def is_level(path: AnyPath) -> bool:
    """Whether a store is a level of another."""
    return path.parent.name == FOLDER_OF_LEVELS and path.name.isdecimal() and int(path.name) > 1


def levels_of(store: TileStore) -> Iterator[tuple[int, TileStore]]:
    """Yield the factors and stores of the levels that exist, the finest first."""
    factor = 2
    while is_marked(folder := place_of(store.path, factor)):
        yield factor, type(store).open(folder)
        factor *= 2


def overviews_of(store: TileStore, name: str) -> tuple[list[int], list[int]]:
    """Factors of the overviews of a layer: those made from its current cells, and others."""
    return fresh_of(store.layer(name), levels_of(store))


def fresh_of(layer: Layer, levels: Iterable[tuple[int, TileStore]]) -> tuple[list[int], list[int]]:
    """The same as `overviews_of`, for these levels of its store."""
    fresh: list[int] = []
    other: list[int] = []
    identity = layer.identity
    for factor, level in levels:
        finer = made_from(level, layer.name)
        if finer is None:
            continue
        whole = finer == identity
        (fresh if whole else other).append(factor)
        identity = level.layer(layer.name).identity if whole else ""
    return fresh, other


def made_from(level: TileStore, name: str) -> str | None:
    """Digest of the layer that an overview was made from, "" if damaged; None for others."""
    with contextlib.suppress(StoreError):
        layer = level.find(name)
        settings = layer.info.get("settings") if layer else None
        if not isinstance(settings, dict) or "overview_of" not in settings:
            return None
        return str(settings.get("finer"))
    return ""
