"""The eight neighbours of a cell: their D8 codes (ESRI's), the steps to them, and edges.

Neighbours are numbered clockwise from E (E, SE, S, SW, W, NW, N, NE); the code of neighbour k is
2**k. An edge is stored once, at its *lower endpoint*, the first of its two cells in row-major
order; its direction from there is E, SW, S or SE, numbered from 0.
"""

from __future__ import annotations

import numpy as np

E, SE, S, SW, W, NW, N, NE = (1 << k for k in range(8))

FORWARD_EDGES = "forward edges"
"""Encoding of a layer that stores each edge once, at its lower endpoint: bits E, SW, S, SE."""

FLOW_DIRECTIONS = "esri-d8-downstream"
"""Encoding of flow directions in a layer: code of the neighbour, 0 at outlets, 255 for none."""

ENCODINGS = {
    "esri": (1, 2, 4, 8, 16, 32, 64, 128, 0),
    "grass": (8, 7, 6, 5, 4, 3, 2, 1, 0),
    "taudem": (1, 8, 7, 6, 5, 4, 3, 2, 255),
    "whitebox": (2, 4, 8, 16, 32, 64, 128, 1, 0),
    "saga": (2, 3, 4, 5, 6, 7, 0, 1, 255),
    "ldd": (6, 3, 2, 1, 4, 7, 8, 9, 5),
    "esri-backlink": (1, 2, 3, 4, 5, 6, 7, 8, 0),
    "esri-degrees": (90, 135, 180, 225, 270, 315, 360, 45, 0),
    "r.cost": (360, 315, 270, 225, 180, 135, 90, 45, 0),
}
"""Codes of other programs for flow to each neighbour, and at outlets; 255 if there is no code.

They are those of r.watershed, TauDEM, WhiteboxTools, SAGA and PCRaster. TauDEM and SAGA have no
code for outlets; SAGA's nodata value -1 is 255 as a byte. The last three are for steps back to a
source: the codes of Cost Back Link, the azimuths of Distance Accumulation, and the angles from E of
r.cost's outdir.
"""

BACKLINK_ENCODINGS = ("esri-backlink", "esri-degrees", "r.cost")
"""Encodings of steps back to a source."""

DEGREES = ("esri-degrees", "r.cost")
"""Encodings in int16, with -1 for no direction."""

ROW_STEP = np.array([0, 1, 1, 1, 0, -1, -1, -1])
COL_STEP = np.array([1, 1, 0, -1, -1, -1, 0, 1])
"""Row and column steps from a cell to each neighbour."""

NEIGHBOUR = np.array([[5, 6, 7], [4, 255, 0], [3, 2, 1]], np.uint8)
"""Number of the neighbour at (row step + 1, column step + 1)."""

DIRECTIONS = ((0, 1), (1, -1), (1, 0), (1, 1))
"""(row, column) steps of an edge from its lower endpoint."""

EDGE_OF = np.array([0, 3, 2, 1, 0, 3, 2, 1])
"""Direction of the edge to each neighbour. The first four also map directions to neighbours."""

# -- 16 neighbours ---------------------------------------------------------------------------
#
# Neighbour 8 + k is a knight's move away: one step to neighbour k and one to the next, k + 1.
# The move passes between these two, and its code is the sum of theirs.

ROW_STEP_16 = np.concatenate((ROW_STEP, ROW_STEP + np.roll(ROW_STEP, -1)))
COL_STEP_16 = np.concatenate((COL_STEP, COL_STEP + np.roll(COL_STEP, -1)))
CODE_16 = (1 << np.arange(8)).astype(np.uint8)
CODE_16 = np.concatenate((CODE_16, CODE_16 + np.roll(CODE_16, -1)))
EDGE_OF_16 = np.concatenate((EDGE_OF, [4, 5, 6, 7, 4, 5, 6, 7]))

NAMES_16 = ["E", "SE", "S", "SW", "W", "NW", "N", "NE"]
NAMES_16 += ["ESE", "SSE", "SSW", "WSW", "WNW", "NNW", "NNE", "ENE"]

NEIGHBOUR_OF = np.full(256, 255, np.uint8)
"""Number of the neighbour with each code, 0 to 15; 255 for other codes."""
NEIGHBOUR_OF[CODE_16] = np.arange(16)

BACKLINKS = "esri-d8-backlink"
"""Encoding of a layer of backlinks with the codes of 4 or 8 neighbours, 0 at sources."""

KNIGHT_BACKLINKS = "16-neighbours-backlink"
"""Encoding of a layer of backlinks with the codes of 16 neighbours."""


def reach_of(connectivity: int) -> int:
    """The number of rows or columns that steps to 4, 8 or 16 neighbours reach."""
    return 2 if connectivity == 16 else 1


def encoded(encoding: str) -> np.ndarray:
    """Return the value in an encoding for each code of flow directions, int64; -2 for others."""
    table = np.full(256, -2)
    table[[1 << k for k in range(8)] + [0]] = ENCODINGS[encoding]
    table[255] = no_direction(encoding)
    return table


def encoding_dtype(encoding: str | None) -> np.dtype:
    """The type of cells in an encoding."""
    return np.dtype(np.int16 if encoding in DEGREES else np.uint8)


def no_direction(encoding: str | None) -> int:
    """The value in an encoding for no direction."""
    return -1 if encoding in DEGREES else 255


def symmetric(ring: np.ndarray) -> np.ndarray:
    """Return the D8 edge bits of a window from its forward edges and those of a ring around it.

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
        (own, 3, SE),
        (own, 2, S),
        (own, 1, SW),
        (ring[1:-1, :-2], 0, W),
        (above[:, :-2], 3, NW),
        (above[:, 1:-1], 2, N),
        (above[:, 2:], 1, NE),
    )
    result, moved = own & np.uint8(E), np.empty_like(own)
    for forward, bit, code in sources:
        np.bitwise_and(forward, np.uint8(1 << bit), out=moved)
        change = code.bit_length() - 1 - bit
        shift = np.left_shift if change > 0 else np.right_shift
        result |= shift(moved, np.uint8(abs(change)), out=moved)
    return result
