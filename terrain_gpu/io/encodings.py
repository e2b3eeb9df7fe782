"""Flow directions in the encodings of other programs: what files hold, and what layers become."""

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
"""The only encoding with values for knight's moves, those of r.cost -k; they are then float32."""


CODES = "E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 outlet, 255 none"
"""Of layers of directions: Esri's."""


@lru_cache
def warn_of_encoding(path: str) -> None:
    """Warn once of a layer whose codes may be those of another program."""
    log.warning(
        "%s: no tag names the encoding of its directions; they are treated as Esri's (%s). Convert "
        "those of another program with convert-dataset --encoding",
        path,
        CODES,
    )


@lru_cache
def warn_of_sinks(path: str) -> None:
    """Warn once of codes that are inland sinks of some programs, and no direction of others."""
    log.warning(
        "%s: declares no nodata value, so 255 and -1 are treated as no direction; if they are "
        "inland sinks, as in HydroSHEDS, MERIT Hydro and pyflwdir, name the nodata value "
        "(--nodata 247)",
        path,
    )


def to_own_codes(codes: np.ndarray, nodata: float | int | None) -> None:
    """Set codes of a layer to 255 at its nodata value, and to 0 at inland sinks.

    Those are 255 where another value is nodata, as HydroSHEDS, MERIT Hydro and pyflwdir have it.
    """
    if nodata not in (None, 255):
        void = codes == nodata
        codes[codes == 255] = 0
        codes[void] = 255


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


def warn_of_tags(inputs: Sequence[Any], given: str | None) -> None:
    """Warn of rasters whose tags name another encoding than the given one."""
    for one in inputs if given else ():
        if one.encoding not in (None, given):
            log.warning(
                "%s: its tag %s says %s; taken as %s",
                without_secrets(one.path),
                ENCODING_TAG,
                one.encoding,
                given,
            )


def encoding_of(inputs: Sequence[Any], given: str | None) -> str | None:
    """Return the encoding of rasters of flow directions: the given one, or else that of their tags.

    Raises
    ------
    InputError
        when tags name several encodings, or one that cannot be converted.
    """
    first = inputs[0]
    for one in inputs:
        told = one.encoding
        if given is None and told != first.encoding:
            raise InputError(
                f"{first.path} and {one.path}: their tags {ENCODING_TAG} name the encodings "
                f"{first.encoding} and {told}; convert them to one first"
            )
    found = first.encoding if given is None else given
    if found == NEXTXY:
        raise InputError(
            f"{first.path}: encoding 'nextxy' has two bands, columns and rows of the next cells; "
            "export the directions in another encoding, and convert that"
        )
    if found not in (None, *ENCODINGS):
        raise InputError(
            f"{first.path}: its tag {ENCODING_TAG} names an unknown encoding {found!r}; name one "
            f"with --encoding ({', '.join(ENCODINGS)})"
        )
    return found
