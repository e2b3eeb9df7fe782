"""Build the command of an operation from the declarations in its module."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from . import options
from .places import refuse_shared_files

if TYPE_CHECKING:
    from ..report import Report
    from ..store import Layer


def refuse_output(output: str | None, *, overwrite: bool) -> None:
    """Refuse, before the work starts, a raster that cannot be written."""
    if output:
        from ..io.export import checked_target  # brings GDAL

        checked_target(output, overwrite=overwrite)


def also_export(layer: Layer, output: str | None, report: Report, settings: dict[str, Any]) -> None:
    """Write a finished layer to the raster given by -o, if any."""
    if not output:
        return
    from ..io.export import export_layer

    name, store = layer.path.name, layer.path.parent
    advice = f"layer {name} is complete, {output} is unchanged"
    wanted = {key: settings[key] for key in ("memory_limit", "threads", "overwrite")}
    with options.if_interrupted(advice), report.phase("export"):
        export_layer(store, output, layer=name, **wanted)
    report.result["output"] = output


def command_of(operation: ModuleType) -> click.Command:
    """Build the command of a module with NAME, HELP, OPTIONS, PROVEN and `run` (gives a `Result`).

    Adds the options common to all operations: -o (the first output as a raster), --memory-limit,
    --threads, --workers, --scheduler, --resume, --overwrite, --json, -v and -q; and --verify if it
    is PROVEN.
    """

    def command(store: str, output: str | None, json_target: str | None, **settings: Any) -> None:
        from ..progress import bar

        refuse_shared_files({}, {"--output": output, "--json": json_target})
        refuse_output(output, overwrite=settings["overwrite"])
        advice = "finished blocks are kept, --resume continues"
        with options.if_interrupted(advice), bar(operation.NAME, quiet=options.quiet()) as progress:
            found = operation.run(store, progress=progress, **settings)
        report, names = found.report, list(found.layers)
        also_export(found.layers[names[0]], output, report, settings)
        options.write_json(report.to_json(), json_target)
        options.say(
            f"{store}: layer{'s' * (len(names) > 1)} {', '.join(names)}, "
            f"{report.valid_cells:,} of {report.cells:,} cells with a value, "
            f"{report.seconds['total']:.2f} s"
            + (", verified" if settings.get("verify") else "")
            + (f"\nwritten: {output}" if output else ""),
            json_target,
        )

    command.__doc__ = operation.HELP
    decorators = [
        click.command(operation.NAME),
        click.argument("store", metavar="STORE"),
        *operation.OPTIONS,
        click.option(
            "-o", "--output", metavar="RASTER.tif", help="Also write the first layer as a raster."
        ),
        options.memory_limit_option,
        options.threads_option,
        options.cluster_options,
        *([options.verify_option] if operation.PROVEN else []),
        options.resume_option,
        options.overwrite_option,
        options.json_option,
        options.verbosity_options,
    ]
    made: Any = command
    for decorator in reversed(decorators):
        made = decorator(made)
    return made
