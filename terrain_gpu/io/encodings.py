"""Flow directions in the encodings of other programs, in files that are read and written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import InputError, without_secrets
from ..grid import neighbours
from ..grid.neighbours import CODE_16, ENCODINGS, KNIGHT_BACKLINKS
from ..store import Layer
from .gdal import ENCODING_TAG
from .nextxy import NEXTXY

log = logging.getLogger(__name__)

KNIGHTS_TOO = "r.cost"
"""The only encoding with values for knight's moves: r.cost -k; its files are then float32."""


CODES = "E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 outlet, 255 none"
"""Codes in layers of flow directions: Esri's."""


@lru_cache
def warn_of_encoding(path: str) -> None:
    """Warn once about a layer whose codes may be those of another program."""
    log.warning(
        "%s: no tag names the encoding of its directions; they are treated as Esri's (%s). If they "
        "are in the encoding of another program, convert them with convert-dataset --encoding",
        path,
        CODES,
    )


@lru_cache
def warn_of_sinks(path: str) -> None:
    """Warn once about codes that mean inland sinks in some programs, and no direction in others."""
    log.warning(
        "%s: declares no nodata value, so 255 and -1 are treated as no direction; if they are "
        "inland sinks, as in HydroSHEDS, MERIT Hydro and pyflwdir, set the nodata value "
        "(--nodata 247)",
        path,
    )


def to_own_codes(codes: np.ndarray, nodata: float | int | None) -> None:
    """Set codes of a layer to 255 at its nodata value, and to 0 at inland sinks.

    Where nodata is another value, 255 is an inland sink: HydroSHEDS, MERIT Hydro and pyflwdir.
    """
    if nodata not in (None, 255):
        void = codes == nodata
        codes[codes == 255] = 0
        codes[void] = 255


def has_knights(layer: Layer) -> bool:
    """Whether cells may be knight's moves, backlinks of 16 neighbours."""
    return bool(layer.info.get("encoding") == KNIGHT_BACKLINKS)


def encoded(layer: Layer, encoding: str) -> np.ndarray:
    """Return the value in an encoding for each code of the layer; below -1 for invalid codes."""
    table = neighbours.encoded(encoding)
    if has_knights(layer) and encoding == KNIGHTS_TOO:
        table = table.astype(np.float64)
        table[CODE_16[8:]] = 337.5 - 45 * np.arange(8)
    return table


def encoding_dtype(layer: Layer, encoding: str) -> np.dtype:
    """The data type of a layer's directions in an encoding."""
    if has_knights(layer) and encoding == KNIGHTS_TOO:
        return np.dtype(np.float32)
    return neighbours.encoding_dtype(encoding)


def warn_of_tags(inputs: Sequence[Any], encoding: str | None) -> None:
    """Warn about rasters whose tags name another encoding than `encoding`."""
    for one in inputs if encoding else ():
        if one.encoding not in (None, encoding):
            log.warning(
                "%s: its tag %s says %s; it is read as %s",
                without_secrets(one.path),
                ENCODING_TAG,
                one.encoding,
                encoding,
            )


def encoding_of(inputs: Sequence[Any], wanted: str | None) -> str | None:
    """Return the encoding of rasters of flow directions: `wanted`, or else that of their tags.

    Raises
    ------
    InputError
        when tags name several encodings, or one that cannot be converted.
    """
    first = inputs[0]
    for one in inputs:
        tagged = one.encoding
        if wanted is None and tagged != first.encoding:
            raise InputError(
                f"{first.path} and {one.path}: their tags {ENCODING_TAG} name the encodings "
                f"{first.encoding} and {tagged}; convert them to one first"
            )
    encoding = first.encoding if wanted is None else wanted
    if encoding == NEXTXY:
        raise InputError(
            f"{first.path}: encoding 'nextxy' has two bands, the columns and rows of the next "
            "cells, and cannot be converted; export the directions in another encoding first"
        )
    if encoding not in (None, *ENCODINGS):
        raise InputError(
            f"{first.path}: its tag {ENCODING_TAG} names an unknown encoding {encoding!r}; give "
            f"the encoding with --encoding ({', '.join(ENCODINGS)})"
        )
    return encoding
