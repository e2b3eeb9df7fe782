"""Layers of a store as rasters: `LayerInput`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..grid import TILE, Window
from ..grid.crs import grid_crs
from ..grid.units import UNITS, scale_of
from ..store import Layer
from ..store.labels import DESCRIBED


class LayerInput:
    """A layer as an input of a `Mosaic`.

    Attributes
    ----------
    described, recorded
        What another layer of the same cells says of them: to all readers, and to this program.
    """

    driver, files, masked, encoding = "layer", (), False, None

    def __init__(self, layer: Layer) -> None:
        self.layer, self.path, self.grid = layer, str(layer.path), layer.grid
        self.dtype, self.nodata = layer.dtype, layer.nodata
        self.crs = grid_crs(self.grid) if self.grid.crs_wkt else None
        own: dict[str, Any] = layer.attributes
        self.units, (self.scale, self.offset) = str(own.get(UNITS) or ""), scale_of(layer)
        self.described = {name: own[name] for name in DESCRIBED if name in own}
        self.recorded = {name: layer.info[name] for name in ("encoding",) if name in layer.info}
        self.chunk = TILE, TILE
        self.decoding = 4 * TILE * TILE * layer.dtype.itemsize

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window into `out`."""
        self.layer.read_window(*window, out=out)

    def close(self) -> None:
        """Nothing is open."""
