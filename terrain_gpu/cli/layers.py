"""terrain-gpu layers: list, rename and remove the layers of a store."""

from __future__ import annotations

import click

from ..engine.plan import format_size
from ..facts import JsonObject
from . import options
from .sections import program_command

ACTIONS = ("rename", "remove")


@program_command("layers", short_help="List, rename or remove layers")
@click.argument("store", metavar="STORE")
@click.argument("words", metavar="[rename OLD NEW | remove NAME...]", nargs=-1)
@click.option(
    "--force",
    is_flag=True,
    help="Also remove elevation, and remove or rename layers that others were computed from.",
)
@options.json_option
@options.verbosity_options
def command(store: str, words: tuple[str, ...], force: bool, json_target: str | None) -> None:
    """List, rename or remove the layers of STORE.

    The list tells type, size, what made each layer and from which others. Backlinks and allocation
    are renamed with their distances. What is removed is gone: there is no way back.

    \b
    terrain-gpu layers dem.zarr
    terrain-gpu layers dem.zarr rename distance walk
    terrain-gpu layers dem.zarr remove walk walk_backlink
    """
    from ..report import Report
    from ..store import TileStore
    from ..store.manage import list_layers, remove_layers, rename_layer

    action, names = (words[0], [*words[1:]]) if words else ("", [])
    if action not in ("", *ACTIONS):
        raise click.UsageError(f"{action!r} is not known; use rename OLD NEW or remove NAME...")
    if action == "rename" and len(names) != 2:
        raise click.UsageError("rename needs two names: OLD NEW")
    if action == "remove" and not names:
        raise click.UsageError("remove needs the name of a layer, or several")
    if force and not action:
        raise click.UsageError("--force is for rename and remove")
    opened = TileStore.open(store)
    report = Report("layers")
    with report.measured():
        report.cells = opened.grid.cells
        report.result = {"store": str(opened.path)}
        if action == "remove":
            names = list(dict.fromkeys(names))
            remove_layers(opened, names, force=force)
            report.result["removed"] = names
        elif action == "rename":
            report.result["renamed"] = rename_layer(opened, *names, force=force)
        report.result["layers"] = list_layers(opened)
    options.write_json(report.to_json(), json_target)
    if action:
        done = "removed" if action == "remove" else "renamed"
        options.say(
            f"{store}: {done} {', '.join(names[:1] if action == 'rename' else names)}"
            + (f" to {', '.join(report.result['renamed'])}" if action == "rename" else ""),
            json_target,
        )
    elif json_target != "-":
        options.say(_table(report.result["layers"]))


def _table(layers: dict[str, JsonObject]) -> str:
    rows = [("layer", "type", "size", "made by", "from")]
    for name, one in layers.items():
        if "unreadable" in one:
            rows.append((name, "?", "?", "?", one["unreadable"]))
            continue
        stale = f" (STALE: {' and '.join(one['stale'])} changed since)" if one["stale"] else ""
        size = format_size(one["stored_bytes"] or 0)
        rows.append(
            (name, one["dtype"], size, one["made_by"] or "?", ", ".join(one["from"]) + stale)
        )
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    return "\n".join(
        "  ".join([*(row[k].ljust(widths[k]) for k in range(4)), row[4]]).rstrip() for row in rows
    )
