"""Standard output and standard error of a program."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress

import click

from ..errors import ArgumentError, without_secrets


def prepare() -> None:
    """Make the streams safe to write to, whatever they are."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file would get its number, and a library's messages
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def settle() -> None:
    """Write what is left; give up a stream that fails: the interpreter would exit with code 120."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (AttributeError, OSError, ValueError):
            setattr(sys, name, None)


def echo(text: str, *, err: bool, nl: bool = True) -> None:
    """Print. What standard error cannot take is lost, and changes no exit code."""
    with suppress(OSError) if err else nullcontext():
        click.echo(text, err=err, nl=nl)


def printable(text: str) -> str:
    """Escape unprintable characters: a hostile name must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def log_handler(spell: Callable[[str], str]) -> logging.Handler:
    """Writes log messages to standard error; `spell` names the options of arguments."""
    handler = _LosingHandler()
    handler.setFormatter(_Formatter(spell))
    handler.addFilter(_Once())
    return handler


class _LosingHandler(logging.StreamHandler):
    """Loses a message that standard error cannot take."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class _Once(logging.Filter):
    """Suppresses repeats: several steps of a command may emit the same warning."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text in self._told:
            return False
        self._told.add(text)
        return True


class _Formatter(logging.Formatter):
    """Spells names of arguments as options, and leaves out credentials in the names of inputs."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        super().__init__("%(levelname)s: %(message)s")
        self._spell = spell

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._spelled, record.args))
        return without_secrets(super().format(record))

    def _spelled(self, value: object) -> object:
        return value.spelled(self._spell) if isinstance(value, ArgumentError) else value
