"""Options of tools that name outlets: `outlets` and `added_outlets`."""

from __future__ import annotations

from typing import Any

from ...tool import places


def outlets(*, python: str, form: str = "outlets") -> Any:
    """The option for outlets: the name of a kind of them, or cells."""
    return places(
        default=None,
        form=form,
        help="Outlets at the points, lines and polygons of a vector file (FILE:LAYER for one layer "
        "of several), or at the cells of an aligned raster that are neither 0 nor nodata.",
        python=python,
    )


def added_outlets(*, form: str = "added outlets") -> Any:
    """The option for cells that are outlets in addition to those of a name."""
    return places(
        default=None,
        form=form,
        help="Add these outlets to the default ones, instead of replacing them.",
        python="Cells that are outlets in addition to those of a name, in the same forms.",
    )
