"""Recode cells between a raster and a store: rounding, clamping, nodata."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import cells
from ..errors import ArgumentError, CellError
from ..grid.neighbours import DEGREES, ENCODINGS, no_direction
from .encodings import warn_of_sinks
from .gdal import ENCODING_TAG
from .mosaic import Mosaic

NEGATIVE = ("taudem", "saga", *DEGREES)
"""Encodings in which 255 or -1 means no direction, whatever the nodata value is."""


def _cell_name(row: int, col: int) -> str:
    return f"row {row}, column {col}"


@dataclass(frozen=True)
class Recode:
    """The conversion of cells between a raster and a store."""

    source: np.dtype
    dtype: np.dtype
    source_nodata: float | int | None
    nodata: float | int | None
    round_cells: bool
    clamp_min: float | int | None
    cell_name: Callable[[int, int], str] = _cell_name

    @classmethod
    def of(
        cls,
        mosaic: Mosaic,
        *,
        round_cells: bool,
        rounded: str | None,
        clamp_min: float | None,
        nodata: float | int | None,
    ) -> Recode:
        """Determine dtype and nodata value of the result, for the cells of a mosaic.

        Raises
        ------
        InputError
            when the nodata or clamp value does not fit the dtype of the result.
        """
        name = mosaic.inputs[0].path
        dtype, out = mosaic.dtype, mosaic.nodata
        if rounded is not None and not round_cells:
            raise ArgumentError(
                "{name}: {dtype} is the type of rounded cells and requires {round_cells}", name=name
            )
        round_cells = round_cells and (dtype.kind == "f" or rounded is not None)
        if round_cells:
            dtype = np.dtype(rounded or "int32").newbyteorder("<")
            if nodata is not None:
                out = cells.as_scalar(nodata, dtype, f"{name}: --nodata")
            elif out is None or not cells.fits(out, dtype):
                info = np.iinfo(dtype)
                out = info.max if info.min == 0 else info.min
            else:
                out = cells.as_scalar(out, dtype)
        if clamp_min is not None:
            clamp_min = cells.as_scalar(clamp_min, dtype, f"{name}: --clamp-min")
            if not math.isfinite(clamp_min):
                raise ArgumentError(
                    "{name}: {clamp_min} {value} must be a finite number",
                    name=name,
                    value=clamp_min,
                )
        return cls(
            mosaic.dtype, dtype, mosaic.nodata, out, round_cells, clamp_min, mosaic.cell_name
        )

    @property
    def changes(self) -> bool:
        """Whether any cell may change."""
        return self.round_cells or self.clamp_min is not None

    def __call__(self, data: np.ndarray, row0: int, col0: int) -> np.ndarray:
        """Recode a block whose first cell is (row0, col0).

        Raises
        ------
        CellError
            naming row and column of a value that does not fit or would become nodata.
        """
        if not self.changes:
            return data
        empty = np.zeros(data.shape, bool)
        if data.dtype.kind == "f":
            empty |= ~np.isfinite(data)
        if self.source_nodata is not None:
            empty |= data == self.source_nodata
        values = np.rint(data) if self.round_cells and data.dtype.kind == "f" else data
        if self.clamp_min is not None:
            least = values.dtype.type(self.clamp_min)
            # Not np.maximum: whether it returns 0.0 or -0.0 depends on the vector lanes.
            values = np.where(values < least, least, values)
        if self.round_cells:
            info = np.iinfo(self.dtype)
            wider = "" if self.dtype.name == "int32" else "choose a wider --dtype, or "
            # Not "> info.max": as float32, info.max is rounded up by one.
            wrong = ~empty & ((values < info.min) | (values >= info.max + 1))
            self._refuse(
                wrong,
                data,
                row0,
                col0,
                f"does not fit {self.dtype.name}; {wider}leave out --round",
            )
        if self.nodata is not None:
            wrong = ~empty & (values == self.nodata)
            self._refuse(
                wrong,
                data,
                row0,
                col0,
                f"would become the nodata value {self.nodata}; choose another with --nodata",
            )
        result = np.where(empty, values.dtype.type(0), values).astype(self.dtype)
        result[empty] = data[empty] if self.nodata is None else self.nodata
        return result

    def _refuse(
        self, wrong: np.ndarray, data: np.ndarray, row0: int, col0: int, reason: str
    ) -> None:
        if wrong.any():
            row, col = np.unravel_index(np.argmax(wrong), wrong.shape)
            where = self.cell_name(row0 + int(row), col0 + int(col))
            raise CellError(f"{where}: value {data[row, col]!s} {reason}")


@dataclass(frozen=True)
class RecodeDirections:
    """The conversion of flow directions in the encoding of another program to our D8 codes."""

    encoding: str
    source_nodata: float | int | None
    cell_name: Callable[[int, int], str] = _cell_name
    name: str = ""

    dtype = np.dtype(np.uint8)
    nodata = 255

    def __call__(self, data: np.ndarray, row0: int, col0: int) -> np.ndarray:
        """Recode a block whose first cell is (row0, col0).

        Raises
        ------
        CellError
            naming row and column of a value that is not a direction.
        """
        theirs, declared = ENCODINGS[self.encoding], self.source_nodata
        other = data == no_direction(self.encoding)
        if self.encoding != "grass":  # its directions are negative where water leaves the map
            other |= data == -1
        recognised = np.isnan(data) if data.dtype.kind == "f" else np.zeros(data.shape, bool)
        if declared is None or self.encoding in NEGATIVE:
            recognised |= other
        if declared is not None:
            recognised |= data == declared
        if self.encoding == "esri" and declared is None and other.any():
            warn_of_sinks(self.name)
        result = np.full(data.shape, self.nodata, self.dtype)
        open_cells = ~recognised
        values = np.abs(data) if self.encoding == "grass" else data
        if self.encoding == "esri":
            if data.dtype == np.int8:
                values = np.where(data == -128, np.int16(128), data)  # NE in a signed byte
            values = np.where(other, 0, values)  # inland sinks, where they are open
        for k, value in enumerate(theirs):
            same = open_cells & (values == value)
            result[same] = 1 << k & 255  # 0 at outlets
            recognised |= same
        if not recognised.all():
            row, col = np.unravel_index(np.argmin(recognised), recognised.shape)
            where = self.cell_name(row0 + int(row), col0 + int(col))
            listed = ", ".join(str(value) for value in theirs[:8])
            raise CellError(
                f"{where}: value {data[row, col]!s} is not a direction in encoding "
                f"{self.encoding!r} ({listed}; {theirs[8]} at outlets); give the right encoding "
                f"with --encoding, which takes precedence over the tag {ENCODING_TAG}"
            )
        return result
