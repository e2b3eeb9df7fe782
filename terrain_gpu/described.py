"""Short descriptions of objects, for consoles and notebooks."""

from __future__ import annotations

import html

import numpy as np

from .facts import JsonObject

MOST = 60
"""Characters of a value."""


class Described:
    """Shown by a line per fact in notebooks, and on one line elsewhere. Arrays are not printed."""

    def facts_shown(self) -> JsonObject:
        """What is shown: public attributes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_short(v)}" for name, v in self.facts_shown().items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(_short(value))}</td></tr>"
            for name, value in self.facts_shown().items()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{rows}</table>"


def _short(value: object) -> str:
    """A value on one line."""
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} {value.dtype.name}>"
    if isinstance(value, Described):
        return f"<{type(value).__name__}>"
    if isinstance(value, dict) and any(isinstance(v, Described) for v in value.values()):
        return f"<{', '.join(value)}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."
