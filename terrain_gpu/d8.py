"""D8 codes of ESRI: one bit for each of the eight neighbours of a cell."""

from __future__ import annotations

import numpy as np

E, SE, S, SW, W, NW, N, NE = (1 << k for k in range(8))

FORWARD_EDGES = "forward edges"
"""Encoding of a layer that keeps each edge once, at its lower endpoint: bits E, SW, S, SE."""


def symmetric(ring: np.ndarray) -> np.ndarray:
    """D8 edge bits of a window, from the forward edges of it and of one ring of cells around it.

    Parameters
    ----------
    ring
        uint8, shape (rows + 2, cols + 2): bit 0 E, 1 SW, 2 S, 3 SE.

    Returns
    -------
    numpy.ndarray, uint8, shape (rows, cols)
    """
    own, above = ring[1:-1, 1:-1], ring[:-2]
    sources = (
        (own, 0, E),
        (own, 3, SE),
        (own, 2, S),
        (own, 1, SW),
        (ring[1:-1, :-2], 0, W),
        (above[:, :-2], 3, NW),
        (above[:, 1:-1], 2, N),
        (above[:, 2:], 1, NE),
    )
    result = np.zeros(own.shape, np.uint8)
    for forward, bit, code in sources:
        result |= ((forward >> bit) & 1) * np.uint8(code)
    return result
