"""Knight's moves: what tells kernels that a cell has 16 neighbours.

A knight's move passes through the middle of the edge between two cells, and is priced as two steps
of half its length, to this point and from it. The height and the friction there are the means of
both cells. If one of these is absent, there is no such move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from .continuous import Continuous


class Knights(NamedTuple):
    """Options of kernels for 16 neighbours: a type, so that others are compiled without them."""

    diagonal: bool
    corner_cutting: bool
    reverse: bool


Options = tuple[bool, bool, bool] | Knights | Continuous
"""(diagonal, corner_cutting, reverse)."""


def options_of(
    connectivity: int, corner_cutting: bool, reverse: bool, metric: str = "steps"
) -> Options:
    """The options of kernels."""
    if metric == "continuous":
        return Continuous(True, corner_cutting, reverse)
    if connectivity == 16:
        return Knights(True, corner_cutting, reverse)
    return connectivity == 8, corner_cutting, reverse


def halo_of(options: Options) -> int:
    """How many cells around a block its steps reach; a cell has 8 neighbours for each."""
    return 2 if isinstance(options, Knights) else 1


def mask_dtype(halo: int) -> np.dtype:
    """The type with a bit for each neighbour."""
    return np.dtype(np.uint8 if halo == 1 else np.uint16)


@overload(halo_of)
def _compiled_halo_of(options):  # type: ignore[no-untyped-def]
    halo = 2 if getattr(options, "instance_class", None) is Knights else 1
    return lambda options: halo
