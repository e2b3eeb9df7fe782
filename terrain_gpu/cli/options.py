"""Options shared by the commands; output, errors and interrupts of a command."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from .. import __version__
from ..arguments import (
    MOST_DEVICES,
    MOST_THREADS,
    Backend,
    FileCompression,
    LayerCompression,
    devices,
    parse_size,
)
from ..engine import machine
from ..engine.forks import leave_out_unused
from ..errors import (
    ArgumentError,
    FormulaError,
    InputError,
    OutputError,
    TerrainError,
    without_secrets,
)
from ..facts import Settings
from ..plurals import counted
from ..progress import Progress
from ..tool import as_option
from .advice import about_minus, about_word, without_resume
from .terminal import echo, log_handler, prepare, printable, settle

if TYPE_CHECKING:
    from ..report import Report

NAME = "terrain_gpu"

Decorator = Callable[[Any], Any]
"""Adds an option to the function of a command, or to a command."""


class Parameter(click.ParamType):
    """NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        name, equals, number = value.partition("=")
        try:
            if name.strip() and equals:
                return name.strip(), float(number)
        except ValueError:
            pass
        self.fail(f"{value!r} is not {self.name}, such as a=0.72", param, ctx)


def named_parameters(
    ctx: click.Context, param: click.Parameter, pairs: Sequence[tuple[str, float]]
) -> dict[str, float]:
    found = dict(pairs)
    for name in found:
        if sum(other == name for other, _ in pairs) > 1:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
    return found


class Size(click.ParamType):
    """A size in bytes, such as 512MB, 2GB or 1.5GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except TerrainError as error:
            self.fail(str(error), param, ctx)


class Devices(click.ParamType):
    """Numbers of GPUs: 0, or 0,2, or all."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value == "all":
            return value
        try:
            found = devices("device", tuple(map(int, value.split(","))))
        except (TerrainError, ValueError):
            most = MOST_DEVICES - 1
            text = f"{value!r} is none of: all, a number from 0 to {most}, distinct ones like 0,1"
            self.fail(text, param, ctx)
        return found if len(found) > 1 else found[0]


def _verbosity(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Set the log level: warnings by default, INFO with -v, DEBUG with -vv, errors with -q."""
    state = ctx.find_root().meta.setdefault(NAME, {"verbose": 0})
    if param.name == "quiet":
        state["verbose"] = -1 if value else state["verbose"]
    elif value:
        state["verbose"] = value
    level = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
    logging.getLogger(NAME).setLevel(level.get(state["verbose"], logging.DEBUG))


def _progress(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Remember how to show progress; from now on, programs can cancel."""
    ctx.find_root().meta[f"{NAME}.progress"] = value
    if value == "json" and not ctx.resilient_parsing:
        from ..progress import call_when_cancelled

        call_when_cancelled(partial(os.kill, os.getpid(), signal.SIGTERM))


def progress_of(step: str) -> AbstractContextManager[Progress]:
    """Show the progress of a step as --progress says."""
    from .. import progress

    context = click.get_current_context(silent=True)
    how = "auto" if context is None else context.find_root().meta.get(f"{NAME}.progress", "auto")
    if how == "json":
        from ..report import process_io  # start-up time counts

        return progress.lines(step, process_io)
    return progress.bar(step, quiet=how == "none" or quiet())


progress_option = click.option(
    "--progress", type=click.Choice(("auto", "json", "none")), default="auto",
    show_default=True, expose_value=False, callback=_progress,
    help="auto: a bar on a terminal. json, for programs: lines on standard error with phase, "
    "done, total, bytes, seconds and seconds_left; a line 'cancel' on standard input ends the run "
    "like Ctrl-C.",
)  # fmt: skip


def verbosity_options(command: Callable[..., Any]) -> Any:
    """Add -v and -q, and let errors name --resume only if the command has it."""
    command = without_resume(command)
    command = click.option(
        "-v", "--verbose", count=True, expose_value=False, is_eager=True, callback=_verbosity,
        help="Print more messages; -vv adds tracebacks.",
    )(command)  # fmt: skip
    return click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, is_eager=True, callback=_verbosity,
        help="Print only errors.",
    )(command)  # fmt: skip


_REPORT = b'{\n  "command": '
"""The first bytes of a report. No other JSON, such as GeoJSON or store metadata, starts so."""


def _json_target(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse, before the run, a file that the report cannot be written to."""
    if value is None or value == "-":
        return value
    from ..store.objects import refuse_url

    refuse_url(value)
    path = Path(value)
    if path.is_dir():
        raise click.BadParameter(f"{value!r} is a folder", ctx, param)
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder of {value!r} does not exist", ctx, param)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{value!r} cannot be written", ctx, param)
    if path.is_file():
        with open(path, "rb") as file:
            start = file.read(len(_REPORT))
        if start not in (b"", _REPORT):
            raise click.BadParameter(
                f"{value!r} exists and is not a report; remove it or name another file", ctx, param
            )
    from ..store.swap import refuse_inside  # start-up time counts

    refuse_inside(path)
    return value


def json_option(command: Callable[..., Any]) -> Any:
    """Add --json FILE|-."""
    return click.option(
        "--json", "json_target", metavar="FILE|-", callback=_json_target,
        help="Write a machine-readable report of the run; - is standard output.",
    )(command)  # fmt: skip


memory_limit_option = click.option(
    "--memory-limit", type=Size(), metavar="SIZE",
    help="Limit on the peak memory of the whole process, such as 512MB or 2GB.  "
    "[default: a quarter of RAM, at least 512MB]",
)  # fmt: skip
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    metavar="N",
    help="Number of threads.  [default: all cores]",
)
workers_option = click.option(
    "--workers", type=click.IntRange(1, MOST_THREADS), metavar="N",
    help="Solve blocks in N processes, each with its own memory limit.  [needs Dask]",
)  # fmt: skip
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS",
    help="Solve blocks on the workers of this Dask scheduler, such as tcp://host:8786.",
)  # fmt: skip
backend_option = click.option(
    "--backend", type=click.Choice(get_args(Backend)), default="auto", show_default=True,
    help="Where to compute; auto uses CUDA if it works, else the CPU.",
)  # fmt: skip
device_option = click.option(
    "--device", type=click.IntRange(0, MOST_DEVICES - 1), default=0, show_default=True, metavar="N",
    help="Number of the GPU to use.",
)  # fmt: skip
devices_option = click.option(
    "--device", type=Devices(), default="0", show_default=True, metavar="N[,N...]|all",
    help="Number of the GPU to use, or several.",
)  # fmt: skip
gpu_memory_limit_option = click.option(
    "--gpu-memory-limit", type=Size(), metavar="SIZE",
    help="Limit on the GPU memory.  [default: nine tenths of the free memory]",
)  # fmt: skip


class NumberChoice(click.Choice):
    """One of some whole numbers, such as how many neighbours a cell has."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value = str(value)
        if value == "16" and value not in self.choices:
            known = " or ".join(map(str, self.choices))
            self.fail(f"16 neighbours are for cost distances; use {known} here", param, ctx)
        return int(super().convert(value, param, ctx))


overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace existing output once the new one is complete."
)


def _compress(name: str) -> Decorator:
    return click.option(
        name,
        type=click.Choice(get_args(LayerCompression)),
        help="Compress the tiles of layers; auto measures whether it saves time.  [default: none]",
    )


compress_option = _compress("--compress")
compress_layers_option = _compress("--compress-layers")
"""Of commands whose --compress is that of a raster."""
verify_option = click.option(
    "--verify", is_flag=True, help="Verify the result in a second pass over the cells."
)


def _scratch(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    if not os.path.isdir(value):
        raise click.BadParameter(f"{value!r} is not a folder", ctx, param)
    os.environ["TERRAIN_GPU_SCRATCH"] = value


scratch_option = click.option(
    "--scratch", metavar="FOLDER", expose_value=False, callback=_scratch,
    help="Folder for temporary files of a run over object storage, and for the temporary store of "
    "a raster.  [default: TERRAIN_GPU_SCRATCH; or the system's folder for temporary files, and the "
    "folder of the output]",
)  # fmt: skip


def resume_option(command: Callable[..., Any]) -> Any:
    """Add --resume and --scratch."""
    return click.option(
        "--resume", is_flag=True, help="Continue a run that was interrupted or killed."
    )(scratch_option(command))


layer_option = click.option(
    "--layer", default="elevation", show_default=True, metavar="NAME", help="Layer of the store."
)
bounds_option = click.option(
    "--bounds", type=float, nargs=4, metavar="W S E N",
    help="Only the cells that these bounds touch, in the raster's CRS.",
)  # fmt: skip


class _OfFiles(click.Choice):
    """Compressions of files; those of layers are named by another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        taken = () if ctx is None else (option.name for option in ctx.command.params)
        of_layers = value in get_args(LayerCompression) and value not in self.choices
        if of_layers and "compress_layers" in taken:
            self.fail(f"{value!r} is for layers: give --compress-layers {value}", param, ctx)
        return super().convert(value, param, ctx)


format_options = (
    click.option("--cog", is_flag=True, help="Cloud-optimised GeoTIFF with overviews."),
    click.option(
        "--compress", type=_OfFiles(get_args(FileCompression)),
        help="Compression of the file.  [default: none; deflate with --cog]",
    ),
)  # fmt: skip
"""How a GeoTIFF is written."""


def taken_format(settings: Settings, rasters: Collection[str | None]) -> Settings:
    """Take what `format_options` gave out of the settings; refuse it if no raster is written."""
    found = {name: settings.pop(name) for name in ("cog", "compress")}
    if both := "compress_layers" in settings:
        settings["compress"] = settings.pop("compress_layers")
    for name, value in found.items():
        if value and not any(rasters):
            more = "; for layers, --compress-layers" if name == "compress" and both else ""
            raise click.UsageError(f"--{name} is for the raster of -o: give that, too{more}")
    return found


def cluster_options(*modules: str) -> Decorator:
    """Add --workers and --scheduler, and pass the command a `client` (None without them).

    Parameters
    ----------
    modules
        The modules of the package that workers of the command need.
    """

    def decorator(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def connected(
            *args: Any, workers: int | None = None, scheduler: str | None = None, **more: Any
        ) -> Any:
            if workers is None and scheduler is None:
                return command(*args, client=None, **more)
            if more.get("threads") is not None:
                raise click.UsageError(
                    "--threads cannot be combined with --workers or --scheduler; leave it out"
                )
            if workers is not None and scheduler is None:
                from ..engine.forks import load_numba, start_server

                needed = tuple(f"terrain_gpu.{name}" for name in modules)
                start_server(needed)
                for name in needed:  # at the same time: the cluster waits for the server
                    import_module(name)
                load_numba()
            from ..engine.cluster import open_client  # brings Dask

            with open_client(workers, scheduler, _devices_of_workers(more)) as client:
                return command(*args, client=client, **more)

        return workers_option(scheduler_option(connected))

    return decorator


def _devices_of_workers(settings: Settings) -> Any:
    """Return which GPUs --workers get, one each, if --backend or --device asks for them."""
    named = (
        click.get_current_context().get_parameter_source("device") is ParameterSource.COMMANDLINE
    )
    if settings.get("backend") == "cuda" or (named and settings["backend"] == "auto"):
        return settings["device"] if named else "all"
    return None


def all_of(decorators: Sequence[Decorator]) -> Decorator:
    """Return a decorator that applies several, in the order in which --help lists them."""

    def decorate(command: Callable[..., Any]) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def quiet() -> bool:
    """Return whether -q was given."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().meta.get(NAME, {}).get("verbose", 0) < 0


_CALLED = {
    "corner_cutting": "no_corner_cutting",
    "data": "store",
    "ends": "to",
    "path": "output",
    "paths": "path",
    "places": "sources",
    "starts": "from",
    "trace": "path",
}
"""Parameters of functions whose options have another name."""


def spelled(name: str) -> str:
    """What the command that is running calls a parameter of a function: its option."""
    if name == "client":
        return "--workers or --scheduler"
    context = click.get_current_context(silent=True)
    if context is None:
        return name
    own = {one.name: one for one in context.command.params}
    one = name.removesuffix("s")
    if f"{one}_rowcol" in own:  # one of three options that name places
        places = [one, f"{one}_rowcol", name]
        given = [key for key in places if context.params.get(key)]
        *most, last = map(as_option, given or places)
        return f"{', '.join(most)} or {last}" if most else last
    found = own.get(name) or own.get(_CALLED.get(name, name))
    if isinstance(found, click.Option):
        return max(found.opts, key=len)
    return found.human_readable_name if found else name


def naming_options(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Let errors about arguments name the options of a command; `callback` is what it does."""

    @wraps(callback)
    def command(*args: Any, **more: Any) -> Any:
        try:
            return callback(*args, **more)
        except ArgumentError as error:
            raise InputError(error.spelled(spelled)) from error

    return command


def resumed(report: Report) -> str:
    """How many blocks an earlier run had finished, for the summary; "" of none."""
    blocks = report.result.get("blocks_resumed", 0)
    return f", {counted(blocks, 'block')} resumed" if blocks else ""


def say(text: str, json_target: str | None = None) -> None:
    """Print text for a person: to standard output, or to standard error when JSON goes there."""
    if not quiet():
        echo("\n".join(map(printable, text.split("\n"))), err=json_target == "-")


def write_json(text: str, json_target: str | None) -> None:
    """Write the report to the target of --json."""
    if json_target == "-":
        click.echo(text)
    elif json_target:
        from ..store.outputs import whole_file  # start-up time counts

        path = Path(json_target).absolute()
        replaced = path.is_file() and not path.is_symlink() and os.access(path.parent, os.W_OK)
        try:
            if path.exists() and not replaced:  # a pipe, a link such as /dev/stdout
                path.write_text(text + "\n", encoding="utf-8")
            else:
                with whole_file(path) as part:
                    part.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise OutputError(
                f"--json {json_target}: cannot be written: {cause.strerror}; the run is complete"
            ) from error


INTERRUPTED = 130
"""Exit code after Ctrl-C, SIGTERM or a cancelled run: the one that shells use for Ctrl-C."""


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. Not a KeyboardInterrupt: click prints its own lines for that."""


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt raised where it cannot propagate, such as in a destructor."""
    if issubclass(lost.exc_type, Interrupted):
        signal.setitimer(signal.ITIMER_REAL, 0.02)
    elif _tracebacks():
        sys.__unraisablehook__(lost)


def _tracebacks() -> bool:
    """Return whether -vv was given."""
    return logging.getLogger(NAME).level == logging.DEBUG


@contextmanager
def if_interrupted(advice: str) -> Iterator[None]:
    """Add advice to an interrupt in this context: what is kept, and how to continue."""
    try:
        yield
    except Interrupted as error:
        raise Interrupted(*(error.args or (advice,))) from None


def run(command: click.Command) -> None:
    """Run a command as a program and exit."""
    run_body(lambda: command.main(standalone_mode=False))


def run_body(body: Callable[[], Any]) -> None:
    """Call it as a program and exit: one-line errors; code 0, 2 (bad input), 130 or 1 (else)."""
    leave_out_unused()
    prepare()
    logging.getLogger(NAME).addHandler(log_handler(spelled))
    # Hide the logs and warnings of other libraries: they address Python programmers.
    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell starts background jobs with SIGINT ignored; keep that.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = _interrupt_again
    machine.whole_process = True
    # zarr would import it even for commands that use only the CPU: 130 MB and one second.
    sys.modules.setdefault("cupy", None)  # type: ignore[arg-type]
    try:
        code = _guarded(body)
    finally:
        machine.whole_process = False
    # The work is done: ignore a late alarm, and let a late Ctrl-C end the process.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_DFL)
    settle()
    gc.freeze()  # a last collection of all that was imported takes 0.1 to 0.4 s
    sys.exit(code)


def _guarded(body: Callable[[], Any]) -> int:
    try:
        code = body()
        if sys.stdout is not None:
            sys.stdout.flush()  # on a full disk it fails here, not at the interpreter's end
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        advice = about_word(error) + about_minus(error)
        return _fail(error, f"{error.format_message().rstrip('.')}{advice}{where}", 2)
    except click.ClickException as error:
        return _fail(error, error.format_message(), 2)
    except FormulaError as error:
        return _fail(error, error.args[0], error.exit_code, *error.excerpt)
    except TerrainError as error:
        return _fail(error, str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort, Interrupted) as error:
        return _fail(error, "; ".join(("interrupted", *map(str, error.args))), INTERRUPTED)
    except BrokenPipeError:  # the reader of our output is gone
        return 1
    except OSError as error:
        name = f"{error.filename}: " if error.filename else "input or output failed: "
        wrong = error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
        return _fail(error, f"{name}{error.strerror or error}", 2 if wrong else 1)
    except MemoryError as error:
        return _fail(error, "out of memory; choose a smaller --memory-limit", 1)
    except Exception as error:  # one line for the user; -vv shows the traceback
        return _fail(error, f"unexpected {type(error).__name__}: {error} (-vv shows where)", 1)
    return code if isinstance(code, int) else 0


def _fail(error: BaseException, message: str, code: int, *excerpt: str) -> int:
    if _tracebacks():
        lines = "".join(traceback.format_exception(error))
        echo(without_secrets(lines), err=True, nl=False)
    echo("Error: " + printable(without_secrets(" ".join(message.split()))), err=True)
    for line in excerpt:
        echo(printable(line), err=True)
    return code


version_option = click.version_option(__version__, "--version", message=f"{NAME} %(version)s")
