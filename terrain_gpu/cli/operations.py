"""Commands of operations, made from what they say of themselves."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import click

from . import options
from .places import refuse_shared_files


def command_of(operation: ModuleType) -> click.Command:
    """The command of a module with NAME, HELP, OPTIONS and `run`, which returns a `Result`.

    It has the options that all operations have: -o for the first output as a raster, the memory
    limit, threads, --resume, --overwrite, --json, -v and -q.
    """

    def command(store: str, output: str | None, json_target: str | None, **settings: Any) -> None:
        from ..progress import bar

        refuse_shared_files({}, {"--output": output, "--json": json_target})
        if output:
            from ..io.export import checked_target, export_layer  # brings GDAL

            checked_target(output, overwrite=settings["overwrite"])
        advice = "finished blocks are kept, --resume continues"
        with options.if_interrupted(advice), bar(operation.NAME, quiet=options.quiet()) as progress:
            found = operation.run(store, progress=progress, **settings)
        report, names = found.report, list(found.layers)
        if output:
            advice = f"layer {names[0]} is complete, {output} is as it was"
            with options.if_interrupted(advice), report.phase("export"):
                export_layer(
                    store,
                    output,
                    layer=names[0],
                    memory_limit=settings["memory_limit"],
                    threads=settings["threads"],
                    overwrite=settings["overwrite"],
                )
            report.result["output"] = output
        options.write_json(report.to_json(), json_target)
        options.say(
            f"{store}: layer{'s' * (len(names) > 1)} {', '.join(names)}, "
            f"{report.valid_cells:,} of {report.cells:,} cells with a value, "
            f"{report.seconds['total']:.2f} s" + (f"\nwritten: {output}" if output else ""),
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
        options.resume_option,
        options.overwrite_option,
        options.json_option,
        options.verbosity_options,
    ]
    made: Any = command
    for decorator in reversed(decorators):
        made = decorator(made)
    return made
