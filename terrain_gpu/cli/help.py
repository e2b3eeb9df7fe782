"""`terrain-gpu help`: show the help of a command."""

from __future__ import annotations

import click

from .sections import program_command


@program_command("help", short_help="Show the help of a command")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show the help of COMMAND, or the list of commands.

    \b
    terrain-gpu help streams
    """
    parent = ctx.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    if name is None:
        click.echo(parent.get_help())
        return
    shown, found, _ = parent.command.resolve_command(parent, [name])
    assert found is not None
    click.echo(found.get_help(click.Context(found, info_name=shown, parent=parent)))
