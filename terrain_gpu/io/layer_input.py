"""Layers of a store as rasters: `LayerInput`."""

from __future__ import annotations

import numpy as np

from ..facts import JsonObject
from ..grid import TILE, Window
from ..grid.crs import grid_crs
from ..grid.units import UNITS, scale_of
from ..store import Layer
from ..store.nodes import DESCRIBED


class LayerInput:
    """A layer as an input of a `Mosaic`.

    Attributes
    ----------
    described, recorded
        Attributes for another layer with the same cells: for all readers, and for this program.
    """

    driver, files, masked, encoding = "layer", (), False, None

    def __init__(self, layer: Layer) -> None:
        self.layer, self.path, self.grid = layer, str(layer.path), layer.grid
        self.dtype, self.nodata = layer.dtype, layer.nodata
        self.crs = grid_crs(self.grid) if self.grid.crs_wkt else None
        attributes: JsonObject = layer.attributes
        self.units, (self.scale, self.offset) = str(attributes.get(UNITS) or ""), scale_of(layer)
        self.described = {name: attributes[name] for name in DESCRIBED if name in attributes}
        self.recorded = {name: layer.info[name] for name in ("encoding",) if name in layer.info}
        self.chunk = TILE, TILE
        self.decoding = 4 * TILE * TILE * layer.dtype.itemsize

    def read(self, window: Window, out: np.ndarray) -> None:
        """Read a window into `out`."""
        self.layer.read_window(*window, out=out)

    def close(self) -> None:
        """Do nothing: no file is open."""
