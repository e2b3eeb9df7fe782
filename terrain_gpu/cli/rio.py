"""`rio terrain`: the commands of `terrain-gpu`, as a plugin of rasterio's program."""

from __future__ import annotations

import logging

import click

from .sections import CommandGroup


class Plugin(CommandGroup):
    """The commands of `terrain-gpu`, imported when one is asked for: every `rio` loads plugins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from .main import group

        return group.list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from .main import group

        return group.get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command as `terrain-gpu` does: the same messages and exit codes."""
        from . import options

        def body() -> int:
            try:
                return super(Plugin, self).invoke(ctx)
            except click.exceptions.Exit as ended:
                return ended.exit_code

        logging.getLogger(options.NAME).propagate = False  # rio's handler would repeat messages
        options.run_body(body)


@click.group("terrain", cls=Plugin, invoke_without_command=True)
@click.pass_context
def terrain(context: click.Context) -> None:
    """Analyse elevation rasters far larger than memory as grid graphs."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
