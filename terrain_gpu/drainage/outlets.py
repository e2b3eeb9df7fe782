"""Where water leaves the raster: `Outlets`.

By name: "edge", the cells at the raster's edge and beside voids that reach it; or "border", those
at the raster's edge and beside any void. Or given cells.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ..engine.proof import around
from ..errors import InputError, StoreError
from ..grid import Window
from ..io.places import Places, PlacesLike, as_places
from ..io.settling import Ground, refuse_unusable
from ..store import Layer

EDGE, BORDER = "edge", "border"
NAMED = (EDGE, BORDER)


@dataclass(frozen=True)
class Outlets:
    """The outlets of a run.

    Attributes
    ----------
    digest
        Their name, or a digest of the cells.
    places
        The cells, None for those with a name.
    """

    digest: str
    places: Places | None = None

    @classmethod
    def of(cls, cells: Layer, given: PlacesLike | str) -> Outlets:
        """Check outlets over a layer of heights.

        Raises
        ------
        InputError
            when there are none, or one has no value.
        """
        if isinstance(given, str):
            if given not in NAMED:
                raise InputError(f"outlets {given!r}: give cells, or one of {', '.join(NAMED)}")
            return cls(given)
        places = as_places(cells.grid, given, "outlets")
        if not len(places):
            raise InputError(f"there are no outlets; give some, or one of {', '.join(NAMED)}")
        refuse_unusable(places, Ground([cells]))
        places = places.one_per_cell("outlets")
        digest = hashlib.sha256(np.ascontiguousarray(places.places).tobytes()).hexdigest()
        return cls(digest, places)

    def within(
        self, window: Window, valid: np.ndarray, outside: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the outlets in a block, flat indices, int32.

        Parameters
        ----------
        valid
            Which cells of the block and one ring around it have a value.
        outside
            Which of these lie in voids that reach the raster's edge, or outside of it; needed for
            "edge".
        """
        if self.places is None:
            beyond = ~valid if outside is None else outside
            if not beyond.any():
                return np.empty(0, np.int32)
            return np.flatnonzero(valid[1:-1, 1:-1] & around(beyond)).astype(np.int32)
        return cells_in(window, self.places)


def has_voids(outlets: str, cells: Layer) -> bool:
    """Whether it matters to these outlets which voids reach the edge of the raster."""
    possible = cells.nodata is not None or cells.dtype.kind == "f"
    return outlets == EDGE and possible and not is_full(cells)


def is_full(cells: Layer) -> bool:
    """Whether the layer says that all its cells have a value."""
    return cells.statistics()["valid_cells"] == cells.grid.cells


def refuse_missing(cells: Layer, found: int) -> None:
    """Refuse a layer that says that all its cells have a value, if not as many were found.

    Raises
    ------
    StoreError
    """
    if is_full(cells) and found != cells.grid.cells:
        raise StoreError(
            f"{cells.path}: says that all cells have a value, but {found:,} of "
            f"{cells.grid.cells:,} have; convert the raster again"
        )


def cells_in(window: Window, places: Places) -> np.ndarray:
    """Return the places in a window, as flat indices, int32."""
    r0, r1, c0, c1 = window
    first, last = np.searchsorted(places.rows, [r0, r1])
    rows, cols = places.rows[first:last], places.cols[first:last]
    here = (cols >= c0) & (cols < c1)
    return ((rows[here] - r0) * (c1 - c0) + cols[here] - c0).astype(np.int32)
