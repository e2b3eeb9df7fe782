"""A raster in place of a store, and files in place of its layers."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import click

from ..arguments import is_raster
from ..facts import Settings
from ..similar import did_you_mean
from . import options
from .places import file_and_layer, from_file, is_vector, naming

if TYPE_CHECKING:
    from ..report import Report
    from ..store import TileStore

log = logging.getLogger(__name__)

_ELSEWHERE = "name another folder with --scratch, or a store with --store"
"""Where a raster can be converted to."""

LAYERS = "friction", "barriers"
"""Options that take files in place of layers."""


store_option = click.option(
    "--store",
    "kept",
    metavar="STORE",
    help="Keep the store that RASTER is converted to, with all results; the next run finds it "
    "there.  [default: a temporary one, in --scratch or beside the output]",
)


def warn_if_empty(store: str, settings: Settings) -> None:
    """Warn if the heights in a store have no value, as conversion warns of a raster."""
    from ..store import TileStore

    opened, name = TileStore.open(store), settings.get("layer") or "elevation"
    if (found := opened.find(name)) is not None:
        found.warn_if_empty()


@dataclass(frozen=True)
class Given:
    """What a command is given as STORE|RASTER.

    Attributes
    ----------
    path, raster
        The argument, and whether it is a raster.
    written
        Files that the command writes.
    kept
        Where --store keeps the store of a raster.
    files
        Options whose files have become layers: the layer and the file of each.
    """

    path: str
    written: list[str]
    raster: bool
    kept: str | None
    files: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: str,
        written: list[str],
        settings: Settings,
        layers: Sequence[str] = (),
        *,
        reading: bool = False,
    ) -> Given:
        """Check the argument and the settings about it; take --store out of the settings.

        `layers` are the options that name layers to write, of which -o writes the first. A command
        that is only `reading` writes nothing that would be lost with a temporary store.
        """
        raster, kept = is_raster(path), settings.pop("kept", None)
        if kept is not None and not raster:
            raise click.UsageError(f"--store {kept} is for a raster, and {path} is not a file")
        called = "" if "://" in path else Path(path).suffix
        if called not in ("", ".zarr") and not (raster or os.path.exists(path)):
            raise click.UsageError(f"{path}: no such raster or store")
        found = cls(path, written, raster, kept)
        if not found.temporary:
            return found
        if not written and not reading:
            raise click.UsageError(
                f"{path} is a raster: give -o for the result, or --store to keep it"
            )
        for name in ("resume", "links"):
            if settings.get(name):
                raise click.UsageError(
                    f"{path} is a raster: --{name} needs a store; give --store too"
                )
        for name in [name for name in layers if settings[name]][1:]:
            raise click.UsageError(
                f"{path} is a raster: --{name} {settings[name]} writes a second layer, which needs "
                "a store; give --store too"
            )
        return found

    @classmethod
    @contextmanager
    def read_only(cls, path: str, settings: Settings) -> Iterator[TileStore]:
        """The store of a command that only reads one: the one given, or made of a raster."""
        from ..store import TileStore

        given = cls.of(path, [], settings, reading=True)
        if not given.raster:
            yield TileStore.open(path)
            return
        with given.store(settings) as at:
            yield TileStore.open(at)

    @property
    def inputs(self) -> dict[str, str | None]:
        """The raster or store, and the store that is kept, for `refuse_shared_files`."""
        return {"STORE": self.path, "--store": self.kept}

    @property
    def temporary(self) -> bool:
        """Whether the store is removed at the end."""
        return self.raster and self.kept is None

    def advice(self, kept: str = "finished blocks are kept") -> str:
        """What an interrupted run leaves."""
        return "nothing is kept" if self.temporary else f"{kept}, --resume continues"

    @contextmanager
    def store(self, settings: Settings) -> Iterator[str]:
        """The path of the store: the one given, or what the raster is converted to."""
        if not self.raster:
            warn_if_empty(self.path, settings)
            yield self.path
            return
        from ..errors import OutputError, StoreError, TerrainError, logged_as
        from ..store.files import RESUME

        if self.kept is not None:
            again = {"resume": True, "overwrite": settings.get("overwrite", False)}
            try:  # a finished layer of the same raster is left as it is
                _convert(self.path, self.kept, settings, **again)
            except StoreError as error:
                raise StoreError(f"--store must hold {self.path} as it is now; {error}") from None
            yield self.kept
            return
        remote = not self.written or "://" in self.written[-1]
        beside = None if remote else Path(self.written[-1]).absolute().parent
        place = os.environ.get("TERRAIN_GPU_SCRATCH") or beside or gettempdir()
        with self._temporary_folder(place) as made:
            store = os.path.join(made, "store.zarr")

            def named(text: str) -> str:
                """A message that names what the user gave."""
                text = text.replace(f"{store}/.incomplete/", f"{store}/")
                for layer, file in [*self.files.values(), ("elevation", self.path)]:
                    text = text.replace(f"{store}/{layer}", file)
                return text.replace(store, self.path)

            with logged_as(named):
                try:
                    _convert(self.path, store, settings)
                    yield store
                except OutputError as error:
                    text = str(error)
                    if text.startswith(made):  # a file that the user does not know
                        _, _, reason = text.removeprefix(made).partition(": ")
                        text = self._no_temporary(place, reason.removeprefix("cannot be written: "))
                    text = named(text).replace(RESUME, f"free some, or {_ELSEWHERE}")
                    raise OutputError(text) from error.__cause__
                except TerrainError as error:
                    error.reword(named)
                    raise

    @contextmanager
    def _temporary_folder(self, place: str | Path) -> Iterator[str]:
        """A folder for the temporary store."""
        from ..errors import OutputError
        from ..store.temporary import TemporaryFolder

        try:
            made = TemporaryFolder(place)
        except OSError as error:
            raise OutputError(self._no_temporary(place, str(error.strerror))) from error
        with made as folder:
            yield os.path.realpath(folder)

    def _no_temporary(self, place: str | Path, reason: str) -> str:
        """The message where the temporary store cannot be written; the reason may have advice."""
        advice = "" if ";" in reason else f"; {_ELSEWHERE}"
        return f"{place}: the temporary store of {self.path} cannot be written: {reason}{advice}"

    def together(self, store: str) -> AbstractContextManager[None]:
        """Move the files of the command into place when all are complete."""
        from ..store.outputs import together

        if self.temporary:
            return together(passing=store)
        return together("--resume --overwrite writes the rest")

    def layers(self, store: TileStore, settings: Settings) -> TileStore:
        """Turn the files of LAYERS into layers called like them; return the store that has them.

        A layer of the same file is left as it is.
        """
        for option in LAYERS:
            file = settings.get(option)
            if file is None:
                continue
            settings[option] = layer_of(option, store, settings)
            if _is_file(file):
                self.files[option] = settings[option], file
        return type(store).open(store.path) if self.files else store

    def name(self, report: Report) -> None:
        """Let a report name the raster, and no store that is gone."""
        from ..errors import without_secrets

        if self.raster:
            report.result["raster"] = without_secrets(self.path)
        report.result |= {option: without_secrets(file) for option, (_, file) in self.files.items()}
        if self.temporary:
            for key in ("store", "layers"):
                report.result.pop(key, None)


def layer_of(option: str, store: TileStore, settings: Settings, nor: str = "") -> str:
    """The layer that an option names, made from its file if it names that.

    `nor` begins the error, by what else the option takes.
    """
    from ..errors import StoreError

    given: str = settings[option]
    if not _is_file(given):
        if given not in store:
            raise StoreError(
                f"--{option} {given}: {nor}{store.path} has no layer {given!r}; it has: "
                f"{', '.join(store.layers)}; name a file with its extension, such as {option}.tif"
                f"{did_you_mean(given, store.layers)}"
            )
        return given
    name = _layer_called(given)
    try:
        with naming(f"--{option}"):
            _add(given, store, name, settings, barriers=option == "barriers")
    except StoreError:
        if name not in store:
            raise
        remove = shlex.join(["terrain-gpu", "layers", str(store.path), "remove", "--force", name])
        old = f"if that is what the file was before, {remove}; "
        if name == settings["layer"]:
            old = ""
        raise StoreError(
            f"--{option} {given}: layer {name!r}, which it would become, holds something "
            f"else; {old}rename the file, or name a layer"
        ) from None
    return name


def files_read(settings: Settings) -> dict[str, str | None]:
    """The files that LAYERS name, for `refuse_shared_files`."""
    given = {option: settings.get(option) for option in LAYERS}
    return {f"--{option}": name for option, name in given.items() if name and _is_file(name)}


def _is_file(name: str) -> bool:
    """Whether it is neither the name of a layer nor a number."""
    return "/" in name or ("." in name and not re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", name))


def _layer_called(file: str) -> str:
    """The layer that a file, or FILE:LAYER, becomes."""
    path, layer = file_and_layer(file)
    parts = [Path(path).name.partition(".")[0], *([layer] if layer else [])]
    found = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(parts))
    return found if found[:1].isalpha() else f"layer_{found}"


def _add(file: str, store: TileStore, layer: str, settings: Settings, *, barriers: bool) -> None:
    """Add a raster to a store, or features where they are barriers."""
    from ..errors import InputError

    # A layer that is there is not replaced, but an unfinished run of it is.
    again = {"resume": True, "overwrite": settings["overwrite"] and layer not in store}
    if not is_vector(file):
        from ..io.aligned import must_align

        must_align(store.grid, file)
        _convert(file, str(store.path), settings, layer=layer, **again)
        return
    if not barriers:
        raise InputError(
            f"{file}: a vector file, and frictions are a raster; `terrain-gpu rasterize` makes a "
            "layer of it"
        )
    from ..raster.rasterize import Rasterize
    from ..raster.rasterize.operation import open_corner
    from ..running import compute

    cells = from_file(store.grid, file, settings["memory_limit"], "barriers", all_touched=True)
    params = click.get_current_context().params
    cut = params["connectivity"] != 4 and not params["no_corner_cutting"]
    heights = store.layer(settings["layer"])
    if cut and (corner := open_corner(cells, heights)) is not None:
        log.warning(
            "%s: barriers touch only at a corner, such as that at row %d, column %d, and paths may "
            "slip between them; --no-corner-cutting forbids it",
            file,
            *corner,
        )
    own = {name: settings[name] for name in _RUN}
    with options.progress_of("rasterize") as progress:
        asked = Rasterize(cells, value=1, layer=settings["layer"], into=layer)
        compute(asked, store, progress=progress, **again, **own)


def _convert(path: str, store: str, settings: Settings, **more: Any) -> None:
    """Convert a raster."""
    from ..io.convert import convert_dataset

    how: Settings = {name: settings.get(name) for name in _RUN}
    with options.progress_of("convert") as progress:
        convert_dataset(path, store, progress=progress, **how, **more)


_RUN = "memory_limit", "threads", "client"
