"""How `--help` shows commands and options: in sections, and in full with `--help-all`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import click

from ..tools import TOOLS, tool_of
from .renamed import with_present_names

GROUPS = {
    "Rasters and stores": ("convert-dataset", "info", "layers", "overviews", "export", "verify"),
    "Hydrology": (),
    "Cost distance and paths": ("query-index",),
    "Terrain": (),
    "Cells and areas": (),
    "Plan, map and program": ("plan", "map", "compile", "demo", "help"),
}  # fmt: skip
"""Commands that are not tools, by the section of the list of commands; tools name theirs."""

PATHS = {
    "Sources and targets": (
        "source", "source_rowcol", "sources", "source_edge", "target", "target_rowcol", "targets",
        "pairs", "id_field", "target_id_field", "cost_field", "outside", "on_nodata", "snap",
    ),
    "Cost of a step": (
        "cost", "friction", "barriers", "parameters", "reverse", "max_slope", "vertical_factor",
        "no_corner_cutting", "connectivity", "metric", "wrap",
    ),
    "Limits": ("max_cost", "max_cost_field", "stop_at_targets", "nearest"),
}  # fmt: skip
"""Further sections of commands that compute costs of paths."""

OUTPUT = (
    "into", "output", "dtype", "backlink", "allocation", "all_ties", "path", "paths", "lines",
    "table", "cog", "compress", "encoding", "kept", "overwrite",
)  # fmt: skip
RESOURCES = (
    "memory_limit", "threads", "workers", "scheduler", "backend", "device", "gpu_memory_limit",
    "compress_layers", "scratch",
)  # fmt: skip
RUN = "verify", "resume", "progress", "json_target", "quiet", "verbose", "version"
HELP = ["-h", "--help"]
FOLDED = {"Resources": RESOURCES, "Run and messages": RUN}
"""Sections that only `--help-all` describes; `--help` names their options."""


class Command(click.Command):
    """A command whose help has sections; that of `--help` only names what all commands share."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), _help_all]

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return HELP

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_present_names(args, self.params))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        folded = []
        for title, parameters in self.sections(ctx):
            if title in FOLDED and not ctx.meta.get(_SHOW_ALL):
                folded += [max(one.opts, key=len) for one in parameters]
            elif records := [record for one in parameters if (record := one.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)
        if folded:
            with formatter.section("More options (see --help-all)"):
                formatter.write_text(", ".join(folded))

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Option]]]:
        """Options by section; those of the command alone are "Options"."""
        parameters = self.get_params(ctx)
        named = {"Options": (), "Output": OUTPUT, **FOLDED, "Help": ("help_all", "help")}
        if any(one.name == "reverse" for one in parameters):  # `plan` has fewer: of other meanings
            named = PATHS | named
        section_of = {name: title for title, names in named.items() for name in names}
        by_section: dict[str, list[click.Option]] = defaultdict(list)
        for one in parameters:
            if isinstance(one, click.Option) and not one.hidden:
                name = "help" if "--help" in one.opts else str(one.name)
                by_section[section_of.get(name, "Options")].append(one)
        for title in named:
            yield title, by_section[title]


_SHOW_ALL = f"{__name__}.show_all"


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOW_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_help_all = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
    help="Show all options and exit.",
)  # fmt: skip

program_command = partial(click.command, cls=Command)
"""Decorates the function of a command of the program."""


class CommandGroup(click.Group):
    """Commands, listed in sections."""

    command_class = Command

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return HELP

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in commands_by_group().items():
            with formatter.section(title):
                formatter.write_dl([(name, self._short(ctx, name)) for name in names])

    def _short(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(limit=80)


def commands_by_group() -> dict[str, list[str]]:
    """The names of all commands, by the section of the list of commands."""
    names = {title: list(names) for title, names in GROUPS.items()}
    for tool in map(tool_of, TOOLS):
        names[tool.group].append(tool.command)
    return names
