"""Layers of D8 flow directions: the codes they hold, and where flow paths end.

Flow paths end at outlets: cells of code 0, and cells whose direction points to a cell that does not
drain, or out of the raster.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import numpy as np

from ...errors import StoreError
from ...grid import BlockGrid, GridSpec, Window
from ...grid.neighbours import BACKLINKS, FLOW_DIRECTIONS
from ...io.encodings import CODES, to_own_codes, warn_of_encoding
from ...plurals import counted
from ...store import Layer, TileStore
from ...store.readable import Readable
from .code_values import NOWHERE

log = logging.getLogger(__name__)

DIRECTIONS = "flow_direction"
"""Default name of the layer."""

TREE_DIRECTIONS = "flow_direction_tree"
"""Name of the layer along which elevations are filled if directions by gradients are asked for."""

ENCODING = {"encoding": FLOW_DIRECTIONS}
"""The attribute of layers that hold D8 codes."""

RECODE = "convert-dataset --encoding recodes those of another program"
"""Advice for directions in another encoding."""


def open_directions(store: TileStore, name: str) -> Layer:
    """Open a layer of directions; warn if its encoding is not recorded.

    Raises
    ------
    StoreError
        If it does not exist, or cannot hold D8 codes.
    """
    if name not in store:
        raise StoreError(
            f"{store.path}: has no layer {name!r} of flow directions; terrain-gpu flow-direction "
            "makes it"
        )
    layer = store.layer(name)
    if layer.dtype != np.uint8:
        raise StoreError(
            f"{layer.path}: holds {layer.dtype.name}, but flow directions are D8 codes of uint8 "
            f"({CODES}); {RECODE}"
        )
    encoding = layer.info.get("encoding")
    if encoding not in (None, FLOW_DIRECTIONS, BACKLINKS):
        raise StoreError(
            f"{layer.path}: holds {encoding}, not flow directions; terrain-gpu flow-direction "
            "makes them"
        )
    if encoding is None:
        warn_of_encoding(str(layer.path))
    with_value = (layer.info.get("result") or {}).get("cells")
    if isinstance(with_value, int) and layer.is_sealed:
        warn_of_undrained(str(layer.path), with_value - layer.statistics()["valid_cells"])
    return layer


@lru_cache
def warn_of_undrained(path: str, cells: int) -> None:
    """Warn once of cells that reach no outlet."""
    if cells > 0:
        log.warning(
            "%s: %s, such as those of an island in an inner void; flow-direction --inner-voids "
            "also makes outlets next to inner voids",
            path,
            counted(
                cells,
                "cell reaches no outlet and has no direction",
                "cells reach no outlet and have no direction",
            ),
        )


def open_links(store: TileStore, name: str) -> Layer:
    """Open a layer of labels where flow paths may end, such as links of streams.

    Raises
    ------
    StoreError
        If it does not exist, or does not hold integers.
    """
    if name not in store:
        raise StoreError(
            f"{store.path}: has no layer {name!r} of links; terrain-gpu streams --order link makes "
            "it"
        )
    layer = store.layer(name)
    if layer.dtype.kind not in "iu":
        raise StoreError(
            f"{layer.path}: holds {layer.dtype.name}, but links are whole numbers; give such a "
            "layer (terrain-gpu streams --order link)"
        )
    return layer


def end_ways(layer: Readable, grid: GridSpec, window: Window, codes: np.ndarray) -> None:
    """Set codes to `NOWHERE` for nodata cells and outside the raster, in place.

    Inland sinks of other programs become outlets; see `to_own_codes`.

    Parameters
    ----------
    window, codes
        The window of a block, and its codes with a margin of one cell.
    """
    r0, r1, c0, c1 = window
    to_own_codes(codes, layer.nodata)
    codes[: r0 == 0] = NOWHERE
    codes[codes.shape[0] - (r1 == grid.rows) :] = NOWHERE
    codes[:, : c0 == 0] = NOWHERE
    codes[:, codes.shape[1] - (c1 == grid.cols) :] = NOWHERE


def label_dtype(grid: GridSpec) -> np.dtype:
    """Return the data type for labels of basins: uint32, which all GIS read, if it suffices."""
    return np.dtype(np.uint32 if grid.cells < 2**32 else np.int64)


def hops_dtype(grid: BlockGrid) -> np.dtype:
    """Return the data type for hop distances; a shortest path has at most every other cell."""
    return np.dtype(np.int32 if grid.rows * grid.cols < 2**32 else np.int64)


def no_code(layer: Readable, row: int, col: int, code: int) -> StoreError:
    return StoreError(
        f"{layer.path}: row {row}, column {col}: {code} is not a D8 code ({CODES}); {RECODE}"
    )
