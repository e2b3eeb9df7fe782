"""The cells where water leaves the raster: `Outlets`.

Outlets are given by name, as cells, or both. "edge" means the cells at the raster's edge and next
to voids that reach it; "border" those at the raster's edge and next to any void. All of these are
outlets. For "low_edge" and "low_border", only those are that do not drain inwards.

Each of these cells has an outward edge. That of a low cell has the elevation of the cell and slope
0, so water leaves where a cell has no lower neighbour, or where a depression spills. These cells
follow from the spanning forest. See docs/design/drainage.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...arguments import refused, wrong
from ...errors import StoreError
from ...grid import Window
from ...io.places import Places, PlacesLike, as_places
from ...io.settling import Ground, refuse_unusable
from ...running import PlannedLayer
from ...store import Layer

EDGE, BORDER = "edge", "border"
LOW_EDGE: str = "low_edge"
LOW_BORDER: str = "low_border"
NAMED = (LOW_EDGE, LOW_BORDER, EDGE, BORDER)


class Asked(NamedTuple):
    """Outlets as arguments: a name or cells, and cells added to those of a name."""

    outlets: PlacesLike | str = LOW_EDGE
    added: PlacesLike | None = None

    @classmethod
    def of(cls, outlets: PlacesLike | str | None, added: PlacesLike | None) -> Asked:
        """Return the outlets from the options of a tool; None stands for the default."""
        return cls(LOW_EDGE if outlets is None else outlets, added)


class BlockOutlets(NamedTuple):
    """The cells of a block that have an outward edge, int32, and the mask of low ones."""

    cells: np.ndarray
    low: np.ndarray


@dataclass(frozen=True)
class Outlets:
    """The outlets of a run.

    Attributes
    ----------
    digest
        Their name, a digest of the cells, or both joined by "+".
    places
        The cells, None if there is only a name.
    """

    digest: str
    places: Places | None = None

    @classmethod
    def of(
        cls, cells: Layer, outlets: PlacesLike | str, added: PlacesLike | None = None
    ) -> Outlets:
        """Check outlets over an elevation layer.

        Raises
        ------
        InputError
            If there are none, one is nodata, or outlets are added to given cells.
        """
        if isinstance(outlets, str):
            if outlets not in NAMED:
                raise wrong("outlets", outlets, f"cells, or one of {', '.join(NAMED)}")
            if added is None:
                return cls(outlets)
            extra = cls.of(cells, added)
            return cls(f"{outlets}+{extra.digest}", extra.places)
        if added is not None:
            raise refused("add_outlets", f": these are added to one of {', '.join(NAMED)}")
        places = as_places(cells.grid, outlets, "outlets")
        if not len(places):
            raise refused(
                "outlets", f": has no cells; give at least one, or one of {', '.join(NAMED)}"
            )
        refuse_unusable(places, Ground([cells]))
        places = places.one_per_cell("outlets")
        digest = hashlib.sha256(np.ascontiguousarray(places.places).tobytes()).hexdigest()
        return cls(digest, places)

    def added(self, cols: int) -> list[int]:
        """Return the ids of cells added to those of a name; `cols` are the raster's columns."""
        if self.places is None or name_of(self.digest) is None:
            return []
        return list(map(int, self.places.rows * cols + self.places.cols))

    def within(
        self, window: Window, valid: np.ndarray, outside: np.ndarray | None = None
    ) -> BlockOutlets:
        """Return the outlets in a block.

        Parameters
        ----------
        valid
            bool, the valid cells of the block and its ring.
        outside
            bool, those in voids that reach the raster's edge, or outside the raster; needed for
            "edge" and "low_edge".
        """
        cells = np.empty(0, np.int32) if self.places is None else cells_in(window, self.places)
        name, beyond = name_of(self.digest), ~valid if outside is None else outside
        if name is None or not beyond.any():
            return BlockOutlets(cells, np.zeros(len(cells), bool))
        from .cell_kernels import cells_beside  # loads numba

        border = cells_beside(valid, beyond)
        if len(cells):
            border = np.setdiff1d(border, cells)
        low = np.zeros(len(border) + len(cells), bool)
        low[: len(border)] = is_low(name)
        return BlockOutlets(np.concatenate((border, cells)), low)


def name_of(digest: str) -> str | None:
    """Return the name of outlets, without added cells; None for given cells."""
    name = digest.split("+", maxsplit=1)[0]
    return name if name in NAMED else None


def named_outlets(outlets: object) -> str:
    """Return words for recorded outlets in messages."""
    name = name_of(str(outlets))
    added = " and added ones" if name and name != outlets else ""
    return f"the outlets {name!r}{added}" if name else "given outlets"


def is_low(digest: str) -> bool:
    """Whether only cells that do not drain inwards are outlets."""
    return name_of(digest) in (LOW_EDGE, LOW_BORDER)


def with_inner_voids(outlets: object) -> bool:
    """Whether cells next to inner voids are among the outlets of this name."""
    return isinstance(outlets, str) and outlets in (BORDER, LOW_BORDER)


def has_voids(outlets: str, cells: Layer | PlannedLayer) -> bool:
    """Whether these outlets depend on which voids reach the edge of the raster.

    A plan does not know whether there are voids, and assumes that there are.
    """
    if name_of(outlets) not in (EDGE, LOW_EDGE):
        return False
    if isinstance(cells, PlannedLayer):
        return True
    possible = cells.nodata is not None or cells.dtype.kind == "f"
    return possible and not is_full(cells)


def is_full(cells: Layer) -> bool:
    """Whether all cells of the layer are valid, according to its statistics."""
    return cells.statistics()["valid_cells"] == cells.grid.cells


def refuse_missing(cells: Layer, valid: int) -> None:
    """Check the statistics of a layer that says that all its cells are valid.

    Raises
    ------
    StoreError
        If fewer valid cells were found.
    """
    if is_full(cells) and valid != cells.grid.cells:
        raise StoreError(
            f"{cells.path}: recorded as having no nodata, but only {valid:,} of "
            f"{cells.grid.cells:,} cells are valid; convert the raster again"
        )


def cells_in(window: Window, places: Places) -> np.ndarray:
    """Return the given cells in a window, as flat indices, int32."""
    r0, r1, c0, c1 = window
    first, last = np.searchsorted(places.rows, [r0, r1])
    rows, cols = places.rows[first:last], places.cols[first:last]
    inside = (cols >= c0) & (cols < c1)
    return ((rows[inside] - r0) * (c1 - c0) + cols[inside] - c0).astype(np.int32)
