"""Build the command of an operation from the declarations in its module."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
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


def _refuse_gpus_of_workers(settings: dict[str, Any]) -> None:
    """Refuse, before any step, what the last one would refuse."""
    if settings.get("backend") == "cuda" and settings["client"] is not None:
        from ..drainage.location import ON_CLUSTER, refuse_cuda

        refuse_cuda("cuda", ON_CLUSTER)


gpu_options = [options.backend_option, options.device_option, options.gpu_memory_limit_option]


def command_of(operation: ModuleType) -> click.Command:
    """Build the command of a module with NAME, HELP, OPTIONS, PROVEN and `run` (gives a `Result`).

    Adds the options common to all operations: -o (the first output as a raster), --memory-limit,
    --threads, --workers, --scheduler, --resume, --overwrite, --json, -v and -q; and --verify if it
    is PROVEN. A module may say which MODULES of the package its workers import before they start,
    and what it found (`tell`); it may `refuse` settings before any work, and name further options
    of files that it READS. One that can run ON_GPU also has --backend, --device and
    --gpu-memory-limit. One with `provide`, which computes the layers that it needs, accepts a
    raster in place of a store; it names the options of layers that it WRITES, if not --into.
    """
    provide = getattr(operation, "provide", None)
    writes = getattr(operation, "WRITES", ("into",))
    on_gpu = getattr(operation, "ON_GPU", False)
    tell = getattr(operation, "tell", cells_with_a_value)
    refuse = getattr(operation, "refuse", lambda settings: None)

    def command(store: str, output: str | None, json_target: str | None, **settings: Any) -> None:
        from ..progress import bar
        from ..store import TileStore

        refuse(settings)
        _refuse_gpus_of_workers(settings)
        read = ("outlets", "pour_points", *getattr(operation, "READS", ()))
        given = {f"--{k.replace('_', '-')}": settings[k] for k in read if settings.get(k)}
        raster = provide is not None and is_raster(store)
        inputs = {**given, "STORE": store} if raster else given
        files = {name: settings[name] for name in ("table", "lines") if settings.get(name)}
        written = [*files.values(), *([output] if output else [])]
        outputs = {f"--{name}": file for name, file in files.items()}
        refuse_shared_files(inputs, {**outputs, "--output": output, "--json": json_target})
        refuse_output(output, overwrite=settings["overwrite"])
        _refuse_files(settings)
        if raster:
            _refuse_raster(store, written, settings)
        elif provide is not None:
            _refuse_layers(store, writes, settings)
        advice = "nothing is kept" if raster else "finished blocks are kept, --resume continues"

        def show(step: str) -> Any:
            return bar(step, quiet=options.quiet())

        with (
            _as_options(settings),
            options.if_interrupted(advice),
            as_store(store, raster, written, settings, show) as at,
        ):
            opened, how = TileStore.open(at), ["memory_limit", "threads", "client", "resume"]
            how += ["backend", "device", "gpu_memory_limit"] if on_gpu else []
            before = {} if provide is None else provide(
                opened, show, {name: settings[name] for name in how}, settings
            )  # fmt: skip
            with show(operation.NAME) as progress:
                found = operation.run(TileStore.open(at), progress=progress, **settings)
            report, names = found.report, list(found.layers)
            also_export(found.layers[names[0]], output, report, settings)
        if raster:
            report.result["raster"] = store
            del report.result["store"]
        report.seconds |= {f"before: {step}": seconds for step, seconds in before.items()}
        options.write_json(report.to_json(), json_target)
        total = report.seconds["total"] + sum(before.values())
        options.say(
            ("" if raster else f"{store}: layer{'s' * (len(names) > 1)} {', '.join(names)}, ")
            + f"{tell(found)}, {total:.2f} s"
            + (", verified" if settings.get("verify") else "")
            + (f"\nwritten: {', '.join(written)}" if written else ""),
            json_target,
        )

    command.__doc__ = operation.HELP
    decorators = [
        click.command(operation.NAME),
        click.argument("store", metavar="STORE" if provide is None else "STORE|RASTER"),
        *operation.OPTIONS,
        click.option(
            "-o", "--output", metavar="RASTER.tif", help="Also write the first layer as a raster."
        ),
        options.memory_limit_option,
        options.threads_option,
        *(gpu_options if on_gpu else []),
        options.cluster_options(*getattr(operation, "MODULES", ())),
        *([options.verify_option] if operation.PROVEN else []),
        options.resume_option,
        options.overwrite_option,
        options.json_option,
        options.verbosity_options,
    ]
    made: Any = options.all_of(decorators)(command)
    return made


def cells_with_a_value(found: Any) -> str:
    """Tell the number of cells with a value."""
    return f"{found.report.valid_cells:,} of {found.report.cells:,} cells with a value"


def _refuse_raster(path: str, written: list[str], settings: dict[str, Any]) -> None:
    """Refuse a raster in place of a store where that cannot work."""
    if not written:
        raise click.UsageError(
            f"{path} is a raster: give -o, or convert it first (convert-dataset)"
        )
    for name in ("resume", "links"):
        if settings.get(name):
            raise click.UsageError(
                f"{path} is a raster: --{name} needs a store; convert-dataset makes one"
            )


def _refuse_files(settings: dict[str, Any]) -> None:
    """Refuse, before the work starts, a table or lines that cannot be written."""
    if settings.get("table"):
        from ..components.table import checked_table  # brings GDAL

        checked_table(settings["table"], overwrite=settings["overwrite"])
    if settings.get("lines"):
        from ..store.file_writer import writable_file

        writable_file(Path(settings["lines"]), overwrite=settings["overwrite"])


@contextmanager
def _as_options(settings: dict[str, Any]) -> Iterator[None]:
    """Let errors about an argument name the option, such as --max-depth for max_depth."""
    from ..errors import InputError

    try:
        yield
    except InputError as error:
        named = re.match(r"([a-z_]+) (?=['0-9-]|nan|inf)", str(error))
        if type(error) is InputError and named and named[1] in settings:
            option = f"--{named[1].replace('_', '-')} "
            raise InputError(option + str(error)[named.end() :]) from None
        raise


def _refuse_layers(path: str, writes: Iterable[str], settings: dict[str, Any]) -> None:
    """Refuse names given twice and layers that exist, before what they need is computed."""
    from ..errors import StoreError
    from ..store import TileStore

    named = {settings[option]: option for option in _READ if settings.get(option)}
    for option in writes:
        if (name := settings[option]) in named:
            raise click.UsageError(
                f"--{option} {name}: --{named[name]} already names this layer; name another"
            )
        if name is not None:
            named[name] = option
    if settings["overwrite"] or settings["resume"]:
        return
    store = TileStore.open(path)
    for option in writes:
        if settings[option] in store.layers:
            raise StoreError(
                f"{store.path}: layer {settings[option]!r} exists; --overwrite replaces it"
            )


_READ = ("layer", "directions", "weights", "links")
"""Options that name layers which are read."""


def is_raster(path: str) -> bool:
    return os.path.isfile(path) or path.startswith("/vsi")


@contextmanager
def as_store(
    path: str, raster: bool, written: list[str], settings: dict[str, Any], show: Any
) -> Iterator[str]:
    """The store itself; or one that a raster is converted to, beside what is written."""
    if not raster:
        yield path
        return
    from ..errors import TerrainError
    from ..io.convert import convert_dataset

    beside = Path(written[-1]).absolute().parent
    with TemporaryDirectory(prefix=".terrain-gpu-", dir=beside, ignore_cleanup_errors=True) as made:
        store = os.path.join(made, "store.zarr")
        with show("convert") as progress:
            how = {name: settings[name] for name in ("memory_limit", "threads", "client")}
            convert_dataset(path, store, progress=progress, **how)
        try:
            yield store
        except TerrainError as error:  # name what the user gave
            text = str(error).replace(f"{store}/elevation", path).replace(store, path)
            raise type(error)(text, *error.args[1:]) from None
