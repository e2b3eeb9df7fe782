"""Options that had another name, which still works: `RenamedOption`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import click

log = logging.getLogger(__name__)


class RenamedOption(click.Option):
    """An option that may have had another name.

    Parameters
    ----------
    formerly
        That name, such as --layer; None if there is none.
    """

    def __init__(self, *args: Any, formerly: str | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.formerly = formerly


def with_present_names(words: list[str], parameters: Iterable[click.Parameter]) -> list[str]:
    """A command line with present names of options in place of former ones, which it tells."""
    renamed = {
        one.formerly: max(one.opts, key=len)
        for one in parameters
        if isinstance(one, RenamedOption) and one.formerly is not None
    }
    end = words.index("--") if "--" in words else len(words)
    found = []
    for word in words[:end]:
        name, equals, value = word.partition("=")
        if name in renamed:
            log.warning("%s is now called %s", name, renamed[name])
        found.append(f"{renamed.get(name, name)}{equals}{value}")
    return found + words[end:]
