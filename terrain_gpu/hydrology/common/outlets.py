"""Where water leaves the raster: `Outlets`.

By name: "edge", the cells at the raster's edge and beside voids that reach it; or "border", those
at the raster's edge and beside any void. All of these are outlets; of "low_edge" and "low_border",
only those from which nothing drains inwards. Or given cells, alone or in addition.

An edge leads outwards from each of these cells. From low ones it is as high as the cell and has no
slope, so water leaves where a cell has no lower neighbour, or where a depression spills; which
these are follows from the spanning forest. See docs/design/drainage.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...arguments import refused, wrong
from ...engine.proof import around
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
    """Outlets as arguments: a name or cells, and cells in addition to those of a name."""

    outlets: PlacesLike | str = LOW_EDGE
    added: PlacesLike | None = None

    @classmethod
    def of(cls, outlets: PlacesLike | str | None, added: PlacesLike | None) -> Asked:
        """Outlets as options of tools, of which none is the usual ones."""
        return cls(LOW_EDGE if outlets is None else outlets, added)


class BlockOutlets(NamedTuple):
    """Cells of a block from which an edge leads outwards, int32, and which of these are low."""

    cells: np.ndarray
    low: np.ndarray


@dataclass(frozen=True)
class Outlets:
    """The outlets of a run.

    Attributes
    ----------
    digest
        Their name, or a digest of the cells; or both, joined by "+".
    places
        The cells, None for those with a name.
    """

    digest: str
    places: Places | None = None

    @classmethod
    def of(cls, cells: Layer, given: PlacesLike | str, added: PlacesLike | None = None) -> Outlets:
        """Check outlets over a layer of heights.

        Raises
        ------
        InputError
            when there are none, one has no value, or some are added to given ones.
        """
        if isinstance(given, str):
            if given not in NAMED:
                raise wrong("outlets", given, f"cells, or one of {', '.join(NAMED)}")
            if added is None:
                return cls(given)
            more = cls.of(cells, added)
            return cls(f"{given}+{more.digest}", more.places)
        if added is not None:
            raise refused("add_outlets", f": these are added to one of {', '.join(NAMED)}")
        places = as_places(cells.grid, given, "outlets")
        if not len(places):
            raise refused(
                "outlets", f": there are no cells; give some, or one of {', '.join(NAMED)}"
            )
        refuse_unusable(places, Ground([cells]))
        places = places.one_per_cell("outlets")
        digest = hashlib.sha256(np.ascontiguousarray(places.places).tobytes()).hexdigest()
        return cls(digest, places)

    def added(self, cols: int) -> list[int]:
        """Return ids of the cells in addition to those of a name; `cols` of the raster."""
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
            Which cells of the block and one ring around it have a value.
        outside
            Which of these lie in voids that reach the raster's edge, or outside of it; needed for
            "edge" and "low_edge".
        """
        given = np.empty(0, np.int32) if self.places is None else cells_in(window, self.places)
        name, beyond = name_of(self.digest), ~valid if outside is None else outside
        if name is None or not beyond.any():
            return BlockOutlets(given, np.zeros(len(given), bool))
        border = np.flatnonzero(valid[1:-1, 1:-1] & around(beyond)).astype(np.int32)
        if len(given):
            border = np.setdiff1d(border, given)
        low = np.arange(len(border) + len(given)) < len(border) * is_low(name)
        return BlockOutlets(np.concatenate((border, given)), low)


def name_of(digest: str) -> str | None:
    """The name of outlets, without those that were added; None for given ones."""
    name = digest.split("+", maxsplit=1)[0]
    return name if name in NAMED else None


def named_outlets(outlets: object) -> str:
    """What messages call recorded outlets."""
    name = name_of(str(outlets))
    more = " and added ones" if name and name != outlets else ""
    return f"the outlets {name!r}{more}" if name else "given outlets"


def is_low(digest: str) -> bool:
    """Whether of these outlets only those count from which nothing drains inwards."""
    return name_of(digest) in (LOW_EDGE, LOW_BORDER)


def with_inner_voids(outlets: object) -> bool:
    """Whether cells beside inner voids are among outlets of this name."""
    return isinstance(outlets, str) and outlets in (BORDER, LOW_BORDER)


def has_voids(outlets: str, cells: Layer | PlannedLayer) -> bool:
    """Whether it matters to these outlets which voids reach the edge of the raster.

    A plan does not know whether there are any, and counts them.
    """
    if name_of(outlets) not in (EDGE, LOW_EDGE):
        return False
    if isinstance(cells, PlannedLayer):
        return True
    possible = cells.nodata is not None or cells.dtype.kind == "f"
    return possible and not is_full(cells)


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
