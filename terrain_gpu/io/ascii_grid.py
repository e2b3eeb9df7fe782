"""Check the text of ESRI ASCII grids and XYZ files: GDAL reads nearly any word as a number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from ..errors import InputError
from ..plurals import counted

DRIVERS = "AAIGrid", "ISG"
"""GDAL's names for the formats; in both, numbers follow the lines of a header."""

_PIECE, _HEAD = 1 << 17, 1 << 16  # words of a piece take ten times its bytes
_KNOWN = rb"ncols|nrows|[xy]llcorner|[xy]llcenter|cellsize|d[xy]|nodata_value"
_HEADER = re.compile(
    rb"begin_of_head.*?\send_of_head\b[^\r\n]*"
    # GDAL also reads a header of one line.
    rb"|(?:\s*(?:(?:%b)\s+\S+(?=\s)|(?!nan)[a-z]\w*[ \t]+\S+(?=[ \t]*[\r\n])))*" % _KNOWN,
    re.IGNORECASE | re.DOTALL,
)
_NODATA = re.compile(rb"nodata_value\s+(\S+)", re.IGNORECASE)
_NUMBER = (
    rb"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
    # GDAL reads other spellings of NaN as 0 or 1.
    rb"|\+?nan|NaN|-1\.#IND0*|-?1\.#QNAN0*|1\.#SNAN0*"
)
_WRONG = re.compile(rb"(?<!\S)(?!(?:%b)(?!\S))\S+" % _NUMBER)
_REAL, _LARGE = re.compile(rb"[.,eEnN]"), re.compile(rb"[0-9]{10}")
_ONE = re.compile(_NUMBER)
_BLANKS = bytes.maketrans(b",;", b"  ")
_NAME = re.compile(rb'"?(x|y|z|lon|lat|east|north|alt|height|elev)', re.IGNORECASE)
_NOT_OURS = re.compile(rb"[_iInN]")
"""In words that Python reads as numbers and GDAL may not: 1_000, inf, -nan."""
_END = b"\x00\x1a"
"""What some programs write after the last value."""


class AsciiCells(NamedTuple):
    """Whether some of the cells are real, and whether some have ten digits or more."""

    real: bool
    large: bool


def check_text(path: str, rows: int, cols: int) -> AsciiCells:
    """Check all values as text: GDAL reads words and missing values as 0.

    Raises
    ------
    InputError
        naming the first word that is not a number, or when values are missing or left over.
    """
    count, real, large = 0, False, False
    for line, text in _pieces(path):
        words = text.split()
        if not _plain(text, words) and (wrong := _WRONG.search(text)):
            before, word = text[: wrong.start()], wrong[0][:40].decode("latin-1")
            row, col = divmod(count + len(before.split()), cols)
            raise InputError(
                f"{path}: line {line + _ends(before)}: {word!r}, at row {row}, column {col}, is "
                "not a number; correct it, or replace it by the NODATA_value"
            )
        count += len(words)
        real = real or bool(_REAL.search(text))
        large = large or bool(_LARGE.search(text))
    if count != rows * cols:
        why = "the file is truncated" if count < rows * cols else "correct its header"
        raise InputError(f"{path}: has {counted(count, 'value')}, not {rows:,} x {cols:,}; {why}")
    return AsciiCells(real, large)


def check_points(path: str) -> None:
    """Check the points of an XYZ file as text. Further columns may hold anything.

    Raises
    ------
    InputError
        naming the first coordinate or value that is not a number.
    """
    columns, begun = [0, 1, 2], False
    with open(path, encoding="latin-1") as file:  # as text: lines may end in CR only
        for number, text in enumerate(file, 1):
            line = text.encode("latin-1")
            words, wrong = line.translate(_BLANKS).split(), []
            if not _plain(line, words):
                used = [k for k in columns if k < len(words)]
                wrong = [words[k] for k in used if not _ONE.fullmatch(words[k])]
            if wrong and begun:
                word = wrong[0][:40].decode("latin-1")
                raise InputError(
                    f"{path}: line {number}: {word!r} is not a number; correct it, or remove the "
                    "line"
                )
            if wrong:  # a header
                columns = [k for k, word in enumerate(words) if _NAME.match(word)] or columns
            begun = begun or not wrong


def stated_nodata(file: BinaryIO) -> bytes | None:
    """The nodata value in the header of an open ESRI ASCII grid, as its text."""
    match = _NODATA.search(file.read(_HEAD))
    return match and match[1]


def _plain(text: bytes, words: list[bytes]) -> bool:
    """Whether Python reads all words as numbers; this is faster than a search for `_WRONG`."""
    try:
        for word in words:
            float(word)
    except ValueError:
        return False
    return not _NOT_OURS.search(text)


def _pieces(path: str) -> Iterator[tuple[int, bytes]]:
    """The text after the header in pieces of whole words, and the line where each starts."""
    with open(path, "rb") as file:
        header = _HEADER.match(file.read(_HEAD))
        head = header[0] if header else b""
        file.seek(len(head))
        line, rest = 1 + _ends(head), b""
        while piece := file.read(_PIECE):
            text = rest + piece
            cut = max(text.rfind(space, 0, -1) for space in (b" ", b"\n", b"\t", b"\r")) + 1
            cut += text[cut - 1 : cut + 1] == b"\r\n"  # one line ending
            if not cut and len(text) > _HEAD:  # no number is that long
                cut = len(text)
            rest = text[cut:]
            yield line, text[:cut]
            line += _ends(text[:cut])
        yield line, rest.rstrip(_END)


def _ends(text: bytes) -> int:
    """The number of line endings in a text: LF, CR or both."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
