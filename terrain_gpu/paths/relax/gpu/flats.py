"""Flats on a GPU: the backlinks of their cells lead out by the fewest hops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....cuda.device import module
from ....plurals import counted
from ...cost.knights import mask_dtype, options_of
from ...cost.models import Hops
from .memory import padded
from .piece import Piece
from .relaxing import Relaxing
from .variants import fields_macros, launch


class FlatDistance:
    """Distances in hops on the flats of a piece, after `Piece.link`."""

    def __init__(self, piece: Piece) -> None:
        self.piece, self.shape = piece, piece.shape
        self.dtype: np.dtype = np.dtype(np.uint32)
        self.infinity = 2**31 - 1
        self.hops = padded(self.shape, self.dtype, self.infinity)
        halo = self.shape.halo
        kind, every = mask_dtype(halo), options_of(8 * halo, corner_cutting=True, reverse=False)
        self.relaxing = Relaxing(self.shape, Hops(), kind, None, self.dtype, every, self.infinity)
        self.kernels = module("fields", fields_macros("HOPS", kind, self.dtype, halo))

    def begin(self) -> int:
        """Mark the cells of flats as unreached; returns their number."""
        before = self.piece.noted()["flats"]
        launch(
            self.kernels.get_function("flats"),
            32 * self.shape.tiles[0] * self.shape.tiles[1],
            self.piece.flat,
            self.shape.rows,
            self.shape.cols,
            self.shape.pitch,
            self.hops,
            *self.relaxing.pending,
            self.piece.notes,
        )
        return self.piece.noted()["flats"] - before

    def relax(self) -> Any:
        flat = self.piece.flat
        seam = self.piece.seam(self.kernels, self.hops, self.relaxing)
        cells = flat, flat, self.piece.lengths, self.hops
        return self.relaxing.run(*cells, self.infinity, seam=seam)

    def close(self) -> None:
        """Set the codes of the cells of flats."""
        rows, cols = self.shape.rows, self.shape.cols
        launch(
            self.kernels.get_function("close_flats"),
            rows * cols,
            self.piece.flat,
            self.hops,
            rows,
            cols,
            self.shape.pitch,
            self.piece.codes,
            self.piece.notes,
        )
        lost = self.piece.noted()["lost"]
        if lost:
            raise AssertionError(
                f"{counted(lost, 'cell of flats leads', 'cells of flats lead')} nowhere"
            )
