"""The filled DEM over which flow is divided, and the directions in its flats: `open_surface`."""

from __future__ import annotations

from ...engine.proof import RunRecord
from ...errors import InputError, StoreError
from ...store import Layer, TileStore
from ..common.codes import open_directions
from ..forest.source import open_filled


def open_surface(store: TileStore, filled: str, directions: str) -> tuple[Layer, Layer]:
    """Open filled elevations, and directions that drain their flats.

    These are the directions along which the elevations were filled, others along the same tree to
    the same outlets, or directions by gradients in the flats of these elevations.

    Raises
    ------
    StoreError
        If a layer does not exist, was not made by `fill` or `flow_direction`, or was made from
        cells that have changed since.
    InputError
        If the directions do not belong to the elevations.
    """
    codes = open_directions(store, directions)
    heights = open_filled(store, filled)
    if "outlets" not in (codes.info.get("settings") or {}):
        raise StoreError(f"{codes.path}: not made by flow-direction, so flats might not drain")
    of_heights, of_codes = RunRecord(store, heights), RunRecord(store, codes)
    along = of_heights.input(of_heights.get("directions", str))
    if of_codes.settings.get("flats") == "gradient":
        belongs = of_codes.settings.get("filled") == filled
        if belongs:
            of_codes.input(filled)
    else:
        keys = "outlets", "of"
        theirs = RunRecord(store, along).settings
        belongs = all(of_codes.settings.get(key) == theirs.get(key) for key in keys)
    if not belongs:
        raise InputError(
            f"{codes.path}: directions of other heights, or to other outlets, than those of "
            f"{heights.path}; fill along these (terrain-gpu fill --directions {directions})"
        )
    return heights, codes
