"""Errors: one root, and a second base class so that callers can catch the built-in exceptions."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import Formatter
from typing import Any

# pathlib merges two slashes into one. A password may contain a slash.
_URL = r"\b(?:https?|ftp|s3|gs|az):/{1,2}"
_USER = re.compile(rf"({_URL})(?:[^/\s]*|[^/\s:[]*:(?!\d+/)\S*)@", re.IGNORECASE)
# Buckets have no queries: in their URLs a question mark belongs to the name.
_QUERY = re.compile(
    r"(\b(?:https?|ftp):/{1,2}[^\s?]+\?|/vsi\w+\?)[^\s'\"]*[^\s'\",:;]", re.IGNORECASE
)


def without_secrets(text: str) -> str:
    """Return a text whose URLs have no user, password and query: these may be credentials."""
    return _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text))


@contextmanager
def logged_as(named: Callable[[str], str]) -> Iterator[None]:
    """Change the messages that this package logs, as `TerrainError.reword` does those of errors."""

    def change(record: logging.LogRecord) -> bool:
        if _is_ours(record.name):
            record.msg, record.args = named(record.getMessage()), ()
        return True

    existing = list(logging.root.manager.loggerDict.items())
    loggers = [logging.root, *(one for name, one in existing if _is_ours(name))]
    # A logger filters only its own messages; a handler filters every message that it emits.
    handlers = {h for one in loggers for h in getattr(one, "handlers", ())} | {logging.lastResort}
    for handler in filter(None, handlers):
        handler.addFilter(change)
    try:
        yield
    finally:
        for handler in filter(None, handlers):
            handler.removeFilter(change)


def _is_ours(logger: str) -> bool:
    return logger.partition(".")[0] == __package__


class TerrainError(Exception):
    """Root of every error raised on purpose. The message names file, value and remedy."""

    exit_code = 1

    def __init__(self, message: object = "", *details: Any) -> None:
        super().__init__(without_secrets(str(message)), *details)

    def reword(self, change: Callable[[str], str]) -> None:
        """Change the message; the type and the other attributes of the error stay."""
        self.args = without_secrets(change(self.args[0])), *self.args[1:]


class InputError(TerrainError, ValueError):
    """An argument, a raster or a value that cannot be used as given."""

    exit_code = 2


class ArgumentError(InputError):
    """An argument that cannot be used; the text names parameters in braces.

    Fields given by keyword are values, all others are names of parameters, which a command spells
    as its options: ``ArgumentError("{min_slope} {value}: give less than 90 degrees", value=95)``.
    """

    def __init__(self, text: str, /, **values: object) -> None:
        def field(name: str) -> str:
            return plain(values[name]) if name in values else f"{{{name}}}"

        # What is kept is a text again, in which only names of parameters are in braces.
        super().__init__(_filled(text, field, plain))

    def __str__(self) -> str:
        return self.spelled(str)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that the text names, in its order."""
        return tuple(name for _, name, *_ in Formatter().parse(self.args[0]) if name)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The text, with each name of a parameter as `spell` writes it."""
        return _filled(self.args[0], spell)

    def reword(self, change: Callable[[str], str]) -> None:
        """Change the text as readers see it; names of parameters remain fields."""
        marked = change(self.spelled("\0{}\0".format))
        self.args = (without_secrets(re.sub(r"\0([^\0]+)\0", r"{\1}", plain(marked))),)


def _filled(text: str, field: Callable[[str], str], literal: Callable[[str], str] = str) -> str:
    """A text whose fields in braces are replaced by what `field` returns for them."""
    parts = Formatter().parse(text)
    return "".join(literal(words) + (field(name) if name else "") for words, name, *_ in parts)


def plain(value: object) -> str:
    """A value for use in a text with fields in braces: its own braces are doubled."""
    return str(value).replace("{", "{{").replace("}", "}}")


class FormulaError(InputError):
    """A formula that cannot be used.

    Attributes
    ----------
    excerpt
        Two lines: the formula around the fault, and a caret under it.
    """

    def __init__(self, message: str, excerpt: tuple[str, str]) -> None:
        super().__init__(message, excerpt)
        self.excerpt = excerpt
        self.add_note("\n".join(excerpt))  # shown with the traceback

    def __str__(self) -> str:
        return str(self.args[0])


class OutsideError(InputError):
    """A position outside the raster.

    Attributes
    ----------
    cell
        Row and column of the cell on the raster's edge that is nearest to the first such position.
    """

    def __init__(self, message: str, cell: tuple[int, int]) -> None:
        super().__init__(message, cell)
        self.cell = cell

    def __str__(self) -> str:
        return str(self.args[0])


class ReprojectionError(InputError):
    """A position that another coordinate system cannot represent.

    Attributes
    ----------
    number
        Number of the first such position, counted from 0.
    """

    def __init__(self, message: str, number: int, named: bool = False) -> None:
        super().__init__(message, number, named)
        self.number = number

    def __str__(self) -> str:
        return str(self.args[0])

    def name_file(self, path: object) -> None:
        """Let the message begin with the file that holds or was to hold the position."""
        message, number, named = self.args
        if not named:
            self.args = without_secrets(f"{path}: {message}"), number, True


class CellError(InputError):
    """A cell whose value cannot be stored as requested; repeating the run cannot succeed."""


class StoreError(TerrainError, OSError):
    """A store or layer that is missing, already exists, is damaged, or is not one of ours."""

    exit_code = 2


class OutputError(TerrainError, OSError):
    """Writing failed (disk full, no permission). Everything committed before stays valid."""


class PlanError(InputError):
    """The work does not fit into the memory limit."""


class ClusterError(TerrainError):
    """A Dask cluster that is unusable or was lost. Everything committed stays valid."""


class VerificationError(StoreError):
    """A result that does not solve its problem.

    Attributes
    ----------
    check
        The property that fails. Spanning trees: "edges" (not an edge of the grid), "acyclic",
        "spanning", "minimal". Shortest paths: "value" (not a distance at all), "source", "absent",
        "farthest", "cost" (of a step, by a formula), "feasible" (a step leads to the cell for
        less), "tight" (no predecessor), "acyclic", "backlink", "allocation". Conversions and
        exports: "cells", "nodata", "type" and other parts of the description. All: "totals" (the
        recorded figures).
    row, col
        The cell at fault; for an edge, its lower endpoint. None where no single cell is.
    """

    exit_code = 1

    def __init__(
        self, message: str, check: str, row: int | None = None, col: int | None = None
    ) -> None:
        super().__init__(message)
        self.check, self.row, self.col = check, row, col

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None, int | None]]:
        return type(self), (str(self), self.check, self.row, self.col)
