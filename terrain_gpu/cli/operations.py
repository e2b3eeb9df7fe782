"""Build the command of an operation from the declarations in its module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..facts import Settings
from . import options
from .places import naming, refuse_shared_files, tell_reprojected
from .sections import program_command
from .working import Given, files_read, store_option, warn_if_empty

if TYPE_CHECKING:
    from ..progress import Progress
    from ..report import Report
    from ..store import Layer
    from .options import Decorator


def refuse_output(output: str | None, form: Settings, *, overwrite: bool) -> None:
    """Refuse, before the work starts, a raster that cannot be written."""
    if output:
        from ..io.export import checked_target, refuse_form  # brings GDAL

        checked_target(output, overwrite=overwrite)
        refuse_form(output, form)


def also_export(
    layer: Layer,
    output: str | None,
    report: Report,
    settings: Settings,
    form: Settings,
) -> None:
    """Write a finished layer to the raster given by -o, if any, in that form."""
    if not output:
        return
    from ..io.export import export_layer

    name, store = layer.path.name, layer.path.parent
    advice = f"layer {name} is complete, {output} is unchanged"
    wanted = {key: settings[key] for key in ("memory_limit", "threads", "overwrite")}
    with (
        options.if_interrupted(advice),
        report.phase("export"),
        options.progress_of("export") as progress,
    ):
        export_layer(store, output, layer=name, progress=progress, **form, **wanted)
    report.result["output"] = output


def _refuse_other_grid(output: str | None, store: str) -> None:
    """Refuse, before the work starts, a store as output that the result does not fit into."""
    if output:
        from ..io.export import refuse_other_grid
        from ..store import TileStore

        refuse_other_grid(output, TileStore.open(store).grid)


def _refuse_gpus_of_workers(settings: Settings) -> None:
    """Refuse, before any step, what the last one would refuse."""
    if settings.get("backend") == "cuda" and settings["client"] is not None:
        from ..running import ON_CLUSTER, refuse_cuda

        refuse_cuda("cuda", ON_CLUSTER)


def command_of(operation: Any) -> click.Command:
    """Build the command of a tool that makes layers, as `tools.command_of_tool` declares it.

    Adds the options common to all such tools: -o (the first output as a raster), --cog, --compress,
    --store, --memory-limit, --threads, --workers, --scheduler, --resume, --overwrite, --json, -v
    and -q; and --verify if it is PROVEN. One that can run ON_GPU also has --backend, --device and
    --gpu-memory-limit; ON_GPUS, on several, also on those of workers. A raster may stand in place
    of a store, and files in place of frictions and barriers. READS and WRITES are options of files
    to read and of layers to write. Workers import MODULES of the package before they start. A
    PROGRAM of its own has --version. FUNCTION is the name in Python.
    """
    gpu_options = [
        options.backend_option,
        options.devices_option if operation.ON_GPUS else options.device_option,
        options.gpu_memory_limit_option,
    ]

    def command(store: str, output: str | None, json_target: str | None, **settings: Any) -> None:
        from ..store import TileStore

        form = options.taken_format(settings, [output])
        operation.refuse(settings)
        check_arguments(operation.FUNCTION, _without_contents(operation, settings))
        if not operation.ON_GPUS:
            _refuse_gpus_of_workers(settings)
        files = {k: file for k in ("table", "lines") if (file := settings.get(k)) is not None}
        written = [*files.values(), *([output] if output else [])]
        outputs = {f"--{name}": file for name, file in files.items()}
        given = Given.of(store, written, settings, operation.WRITES)
        refuse_shared_files(
            {**given.inputs, **_inputs(operation, settings)},
            {**outputs, "--output": output, "--json": json_target},
        )
        _refuse_features(output, settings)
        operation.refuse_output(output)
        refuse_output(output, form, overwrite=settings["overwrite"])
        _refuse_files(settings)
        _refuse_layers(given, operation.WRITES, _inputs(operation, settings), settings)

        with (
            options.if_interrupted(given.advice()),
            given.store(settings) as at,
            given.together(at),
        ):
            _refuse_other_grid(output, at)
            given.layers(TileStore.open(at), settings)
            before = _provide(operation, at, settings)
            with options.progress_of(operation.NAME) as progress:
                found = operation.run(TileStore.open(at), progress=progress, **settings)
            report, names = found.report, list(found.layers)
            told = operation.tell(found) + operation.told()  # which may read a temporary store
            also_export(found.layers[names[0]], output, report, settings, form)
        given.name(report)
        total, reprojected = _timed(report, before), tell_reprojected(report)
        options.write_json(report.to_json(), json_target)
        options.say(
            ("" if given.temporary else f"{at}: layer{'s' * (len(names) > 1)} {', '.join(names)}, ")
            + f"{told}{reprojected}{options.resumed(report)}, {total:.2f} s"
            + (", verified" if settings.get("verify") else "")
            + (f"\nwritten: {', '.join(written)}" if written else ""),
            json_target,
        )

    decorators = [
        *operation.OPTIONS,
        click.option(
            "-o",
            "--output",
            metavar="RASTER.tif|.zarr",
            help="Also write the first layer as a raster.",
        ),
        *options.format_options,
        store_option,
        options.memory_limit_option,
        options.threads_option,
        *(gpu_options if operation.ON_GPU else []),
        options.cluster_options(*operation.MODULES),
        *([options.verify_option] if operation.PROVEN else []),
        options.compress_layers_option,
        options.resume_option,
    ]
    return _command(operation, command, decorators, "STORE|RASTER")


def writer_of(operation: Any) -> click.Command:
    """Build the command of a tool that writes a vector file, its second argument.

    FILE is the name of the argument, FORMATS what the help calls it; the rest is as in
    `command_of`.
    """

    def command(store: str, json_target: str | None, **settings: Any) -> None:
        from ..io.lines import checked_target  # brings GDAL
        from ..store import TileStore

        operation.refuse(settings)
        check_arguments(operation.FUNCTION, _without_contents(operation, settings))
        output = settings[operation.FILE]
        given = Given.of(store, [output], settings)
        refuse_shared_files(
            {**given.inputs, **_inputs(operation, settings)},
            {operation.FORMATS.partition(".")[0]: output, "--json": json_target},
        )
        checked_target(output, overwrite=settings["overwrite"])  # before a raster is converted

        with (
            options.if_interrupted(f"{output} is unchanged"),
            given.store(settings) as at,
        ):
            before = _provide(operation, at, settings)
            with options.progress_of(operation.NAME) as progress:
                found = operation.run(TileStore.open(at), progress=progress, **settings)
        given.name(found.report)
        total, reprojected = _timed(found.report, before), tell_reprojected(found.report)
        options.write_json(found.report.to_json(), json_target)
        options.say(
            f"{output}: {operation.tell(found)}{operation.told()}{reprojected}, {total:.2f} s"
            + (", verified" if settings.get("verify") else ""),
            json_target,
        )

    decorators = [
        *operation.OPTIONS,
        store_option,
        options.memory_limit_option,
        options.threads_option,
        options.cluster_options(*operation.MODULES),
        *([options.verify_option] if operation.PROVEN else []),
        options.scratch_option,
    ]
    return _command(operation, command, decorators, "STORE|RASTER")


def runner_of(operation: Any) -> click.Command:
    """Build the command of a tool that makes no layers, over an existing store.

    HOW names the parameters that say how it runs; the rest is as in `command_of`.
    """

    def command(store: str, json_target: str | None, **settings: Any) -> None:
        from ..store import TileStore

        operation.refuse(settings)
        check_arguments(operation.FUNCTION, _without_contents(operation, settings))
        opened = TileStore.open(store)
        warn_if_empty(store, settings)
        operation.take(opened, settings)
        advice = "finished work is kept, the same command continues"
        with options.if_interrupted(advice), options.progress_of(operation.NAME) as progress:
            report = operation.run(opened, progress=progress, **settings)
        options.write_json(report.to_json(), json_target)
        options.say(
            f"{store}: {operation.tell(report)}{operation.told()}, {report.seconds['total']:.2f} s"
            + (", verified" if settings.get("verify") else ""),
            json_target,
        )

    decorators = [
        *operation.OPTIONS,
        *_how(operation),
        options.scratch_option,
    ]
    return _command(operation, command, decorators, "STORE")


def _how(operation: Any) -> list[Decorator]:
    """The options of HOW."""
    how = {
        "memory_limit": options.memory_limit_option,
        "threads": options.threads_option,
        "backend": options.backend_option,
        "device": options.devices_option if operation.ON_GPUS else options.device_option,
        "gpu_memory_limit": options.gpu_memory_limit_option,
        "client": options.cluster_options(*operation.MODULES),
        "verify": options.verify_option,
    }
    return [one for name, one in how.items() if name in operation.HOW]


def files_of(operation: Any) -> click.Command:
    """Build the command of a tool that writes files, those of FILES, over a store or a raster.

    KEPT is what an interrupted run keeps, HOW as in `runner_of`; the rest is as in `command_of`.
    """

    def command(store: str, json_target: str | None, **settings: Any) -> None:
        from ..store import TileStore

        operation.refuse(settings)
        check_arguments(operation.FUNCTION, _without_contents(operation, settings))
        files = {name: settings[name] for name in operation.FILES if settings[name] is not None}
        given = Given.of(store, [files[operation.FILES[0]]], settings)
        named = {options.spelled(name): file for name, file in files.items()}
        refuse_shared_files(
            {**given.inputs, **_inputs(operation, settings)}, {**named, "--json": json_target}
        )
        for name, file in files.items():
            with naming(options.spelled(name)):
                operation.refuse_file(name, file, overwrite=settings["overwrite"])

        with (
            options.if_interrupted(given.advice(operation.KEPT)),
            given.store(settings) as at,
            given.together(at),
            options.progress_of(operation.NAME) as progress,
        ):
            opened = given.layers(TileStore.open(at), settings)
            operation.take(opened, settings)
            found = operation.run(opened, progress=progress, **settings)
        report = found.report
        given.name(report)
        told, contents = operation.told() + tell_reprojected(report), operation.contents(found)
        options.write_json(report.to_json(), json_target)
        files = {k: f"{one} ({contents[k]})" if k in contents else one for k, one in files.items()}
        options.say(
            f"{store}: {operation.tell(found)}, {report.seconds['total']:.2f} s"
            + (", verified" if settings["verify"] else "")
            + f"{told}\nwritten: {', '.join(files.values())}",
            json_target,
        )

    decorators = [
        *operation.OPTIONS,
        store_option,
        *_how(operation),
        options.resume_option,
    ]
    return _command(operation, command, decorators, "STORE|RASTER")


def _command(
    operation: Any, command: Callable[..., Any], decorators: list[Decorator], metavar: str
) -> click.Command:
    """The command, with the options that all have."""
    command.__doc__ = operation.HELP
    first = (
        program_command(operation.NAME, short_help=operation.SHORT),
        click.argument("store", metavar=metavar),
    )
    last = [options.overwrite_option, options.progress_option]
    last += [options.json_option, options.verbosity_options]
    last += [options.version_option] if operation.PROGRAM else []
    made: Any = options.all_of([*first, *decorators, *last])(command)
    return made


def _provide(operation: Any, store: str, settings: Settings) -> dict[str, float]:
    """Compute the layers that an operation needs; return the seconds of each step."""
    from ..prerequisites import refuse_other_run
    from ..store import TileStore

    opened = TileStore.open(store)
    names = [settings[name] for name in operation.WRITES]

    def show(step: str) -> AbstractContextManager[Progress]:
        refuse_other_run(opened, names, settings, step)
        return options.progress_of(step)

    found: dict[str, float] = operation.provide(opened, show, settings)
    return found


def _timed(report: Report, before: dict[str, float]) -> float:
    """Add the seconds of the steps before to a report; return those of all."""
    report.add_steps_before(before)
    return report.seconds["total"] + sum(before.values())


def _inputs(operation: Any, settings: Settings) -> dict[str, str | None]:
    """The options that name files to read."""
    read = "outlets", "pour_points", *operation.READS
    named = {f"--{name.replace('_', '-')}": settings.get(name) for name in read}
    return named | files_read(settings)


def _refuse_features(output: str | None, settings: Settings) -> None:
    """Refuse a vector file or table as -o, and name the option that writes it."""
    kind = Path(output or "").suffix.lower()
    names = ("table",) if kind == ".csv" else ("lines", "table")
    others = [name for name in names if name in settings]
    if kind in (".csv", ".gpkg", ".geojson", ".parquet", ".fgb") and others:
        raise click.UsageError(
            f"-o {output}: -o writes a raster (.tif, .zarr); --{others[0]} writes {kind} files"
        )


def _refuse_files(settings: Settings) -> None:
    """Refuse, before the work starts, a table or lines that cannot be written."""
    if settings.get("table"):
        from ..io.tables import checked_table  # brings GDAL

        checked_table(settings["table"], overwrite=settings["overwrite"])
    if settings.get("lines"):
        from ..store.file_writer import writable_file

        writable_file(Path(settings["lines"]), overwrite=settings["overwrite"])


def _without_contents(operation: Any, settings: Settings) -> Settings:
    """Settings in which no file stands for what the function takes from it."""
    files = {name: settings[name] for name in operation.READS}
    return settings | {name: None if file is None else [file] for name, file in files.items()}


def check_arguments(function: str, settings: Settings) -> None:
    """Refuse, before any work, what a public function refuses of its arguments."""
    import terrain_gpu

    given = dict(settings)
    for name, cells in settings.items():
        if name.endswith("_rowcol"):  # one of three options that name places
            one = name.removesuffix("_rowcol")
            given[f"{one}s"] = settings[f"{one}s"] or settings[one] or cells or None
    getattr(terrain_gpu, function).check(given)


def _refuse_layers(
    given: Given, writes: Iterable[str], files: Iterable[str], settings: Settings
) -> None:
    """Refuse names given twice, and inputs that do not exist, before any work."""
    from ..store import TileStore

    own = [option for option in _GIVEN if settings.get(option) and f"--{option}" not in files]
    if given.temporary:
        for option in own:
            if settings[option] != "elevation":
                raise click.UsageError(
                    f"{given.path} is a raster: --{option} {settings[option]} is a layer, which "
                    "needs a store; give --store too"
                )
    if given.raster:
        return
    named = {
        settings[option]: option
        for option in _READ
        if option not in writes and settings.get(option)
    }
    for option in writes:
        if (name := settings[option]) == "mst":
            raise click.UsageError(f"--{option} mst: that is the spanning tree; name another")
        if name in named:
            raise click.UsageError(
                f"--{option} {name}: --{named[name]} already names this layer; name another"
            )
        if name is not None:
            named[name] = option
    store = TileStore.open(given.path)
    for option in own:
        if settings[option] != settings.get("filled"):
            store.layer(settings[option])


_READ = "layer", "heights", "directions", "weights", "links", "accumulation", "filled", "slope"
"""Options that name layers which are read."""

_GIVEN = ("weights", "streams")
"""Options that name layers which no command computes on its way."""
