"""What a layer is to those who read it, in a store, in memory or still being written."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..grid import BlockGrid, GridSpec, Window


class Typed(Protocol):
    """A layer of which only the type of its cells need be known: it may not exist yet."""

    @property
    def dtype(self) -> np.dtype: ...


class Readable(Typed, Protocol):
    """A layer with cells: `Layer`, `LayerWriter` or `ArrayLayer`, where each is documented."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> object: ...

    @property
    def grid(self) -> GridSpec: ...

    @property
    def blocks(self) -> BlockGrid: ...

    @property
    def block_size(self) -> int: ...

    @property
    def nodata(self) -> float | int | None: ...

    def read_block(self, i: int, j: int, out: np.ndarray | None = None) -> np.ndarray: ...

    def read_ring(
        self, window: Window, out: np.ndarray | None = None, *, halo: int = 1
    ) -> np.ndarray: ...

    def read_window(self, row0: int, row1: int, col0: int, col1: int, /) -> np.ndarray: ...

    def read_tiles(self, i: int, j: int, out: np.ndarray) -> None: ...
