"""The command group `terrain-gpu` and the standalone programs."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from itertools import chain

import click

from ..tools import TOOLS, tool_of
from . import options
from .sections import GROUPS, CommandGroup

COMMANDS = *chain.from_iterable(GROUPS.values()), "compute-sssp"
"""Files with a click command."""


class Commands(MutableMapping[str, click.Command]):
    """The commands by name, each imported when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, click.Command | None] = dict.fromkeys((*COMMANDS, *TOOLS))

    def __getitem__(self, name: str) -> click.Command:
        found = self._made[name]
        if found is None:
            found = self._made[name] = _command(name)
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _command(name: str) -> click.Command:
    """Import a command: from the file of its name, or from the declaration of its tool."""
    if name not in COMMANDS:
        from .tools import command_of_tool

        found: click.Command = command_of_tool(tool_of(name))
    else:
        found = import_module(f".{name.replace('-', '_')}", __package__).command
    assert found.callback is not None
    found.callback = options.naming_options(found.callback)
    return found


@click.group(invoke_without_command=True, commands=Commands(), cls=CommandGroup)
@options.version_option
@click.pass_context
def group(context: click.Context) -> None:
    """Analyse elevation rasters far larger than memory as grid graphs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the program `terrain-gpu`."""
    options.run(group)


def convert_dataset() -> None:
    """Run the program `convert-dataset`."""
    options.run(group.commands["convert-dataset"])


def compute_mst() -> None:
    """Run the program `compute-mst`."""
    options.run(group.commands["compute-mst"])


def compute_sssp() -> None:
    """Run the program `compute-sssp`."""
    options.run(group.commands["compute-sssp"])
