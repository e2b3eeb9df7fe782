"""What a layer of directions becomes in the encoding of another program."""

from __future__ import annotations

import numpy as np

from ..grid import neighbours
from ..grid.neighbours import CODE_16, KNIGHT_BACKLINKS
from ..store import Layer

KNIGHTS_TOO = "r.cost"
"""The only encoding with values for knight's moves, those of r.cost -k; they are then float32."""


def has_knights(layer: Layer) -> bool:
    """Whether cells may be knight's moves, backlinks of 16 neighbours."""
    return bool(layer.info.get("encoding") == KNIGHT_BACKLINKS)


def encoded(layer: Layer, encoding: str) -> np.ndarray:
    """Return what an encoding has for each code of the layer; values below -1 for other codes."""
    table = neighbours.encoded(encoding)
    if has_knights(layer) and encoding == KNIGHTS_TOO:
        table = table.astype(np.float64)
        table[CODE_16[8:]] = 337.5 - 45 * np.arange(8)
    return table


def encoding_dtype(layer: Layer, encoding: str) -> np.dtype:
    """The type of cells in an encoding."""
    if has_knights(layer) and encoding == KNIGHTS_TOO:
        return np.dtype(np.float32)
    return neighbours.encoding_dtype(encoding)
