"""What messages of commands advise."""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

import click

from ..errors import OutputError
from ..similar import did_you_mean


def without_resume(command: Any) -> Any:
    """Let a command that has no --resume advise to run it again when a disk is full."""

    @wraps(command)
    def advising(*args: Any, **more: Any) -> Any:
        try:
            return command(*args, **more)
        except OutputError as error:
            options = click.get_current_context().command.params
            if any(option.name == "resume" for option in options):
                raise
            from ..store.files import RESUME

            again = "free some and run the command again"
            raise OutputError(str(error).replace(RESUME, again)) from error.__cause__

    return advising


def about_word(error: click.UsageError) -> str:
    """The word that a mistyped one of some choices may have meant."""
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    given = re.match(r"'(.*)' is not one of", error.message)
    if given is None or not isinstance(kind, click.Choice):
        return ""
    return did_you_mean(given[1], kind.choices)


def about_minus(error: click.UsageError) -> str:
    """What to do about a minus sign in front of an argument."""
    if error.message.startswith("Got unexpected extra argument") and "(--" in error.message:
        return "; options come before --"
    named = [] if error.ctx is None else [one.name for one in error.ctx.command.params]
    known = isinstance(error, click.NoSuchOption) and error.possibilities
    wrong = isinstance(error, click.NoSuchOption | click.MissingParameter) and not known
    if not wrong or "expression" not in named:
        return ""
    return '; an expression that begins with - comes last, after --, or is written "0 - ..."'
