"""Tables in Markdown, as the log has them, printed row by row."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any


def shown(value: Any) -> str:
    """A cell: figures with two or three digits that matter, nothing for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.{3 if abs(value) < 1 else 2 if abs(value) < 100 else 0}f}"
    return f"{value:,}" if isinstance(value, Integral) else str(value)


class Table:
    """Prints the names of its columns, one or several ("s | ratio") in a string, then rows."""

    def __init__(self, *columns: str) -> None:
        names = " | ".join(columns)
        print(f"| {names} |\n" + "| --- " * (names.count(" | ") + 1) + "|", flush=True)

    def row(self, *cells: Any) -> None:
        """Print a row."""
        print(f"| {' | '.join(map(shown, cells))} |", flush=True)
