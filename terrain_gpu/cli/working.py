"""A raster in place of a store, and the store that it becomes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..report import Report

store_option = click.option(
    "--store",
    "kept",
    metavar="STORE",
    help="Keep the store that RASTER is converted to, with all results; the next run finds it "
    "there.  [default: a temporary one beside the output]",
)


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
    """

    path: str
    written: list[str]
    raster: bool
    kept: str | None

    @classmethod
    def of(cls, path: str, written: list[str], settings: dict[str, Any]) -> Given:
        """Check the argument and the settings about it; take --store out of the settings."""
        raster, kept = os.path.isfile(path) or path.startswith("/vsi"), settings.pop("kept", None)
        if kept is not None and not raster:
            raise click.UsageError(f"--store {kept} is for a raster, and {path} is not a file")
        found = cls(path, written, raster, kept)
        if not found.temporary:
            return found
        if not written:
            raise click.UsageError(
                f"{path} is a raster: give -o for the result, or --store to keep it"
            )
        for name in ("resume", "links"):
            if settings.get(name):
                raise click.UsageError(
                    f"{path} is a raster: --{name} needs a store; give --store too"
                )
        return found

    @property
    def inputs(self) -> dict[str, str | None]:
        """The raster, for `refuse_shared_files`."""
        return {"STORE": self.path if self.raster else None}

    @property
    def temporary(self) -> bool:
        """Whether the store is removed at the end."""
        return self.raster and self.kept is None

    def advice(self, kept: str = "finished blocks are kept") -> str:
        """What an interrupted run leaves."""
        return "nothing is kept" if self.temporary else f"{kept}, --resume continues"

    @contextmanager
    def store(self, settings: dict[str, Any], show: Any) -> Iterator[str]:
        """The path of the store: the one given, or what the raster is converted to."""
        if not self.raster:
            yield self.path
            return
        from ..errors import StoreError, TerrainError
        from ..io.convert import convert_dataset

        def convert(store: str, **more: Any) -> None:
            names = "memory_limit", "threads", "client"
            how: dict[str, Any] = {name: settings.get(name) for name in names}
            with show("convert") as progress:
                convert_dataset(self.path, store, progress=progress, **how, **more)

        if self.kept is not None:
            try:  # a finished layer of the same raster is left as it is
                convert(self.kept, resume=True, overwrite=settings["overwrite"])
            except StoreError as error:
                raise StoreError(f"--store must hold {self.path} as it is now; {error}") from None
            yield self.kept
            return
        place = Path(self.written[-1]).absolute().parent
        with TemporaryDirectory(
            prefix=".terrain-gpu-", dir=place, ignore_cleanup_errors=True
        ) as made:
            store = os.path.join(made, "store.zarr")
            convert(store)
            try:
                yield store
            except TerrainError as error:  # name what the user gave
                text = str(error).replace(f"{store}/elevation", self.path).replace(store, self.path)
                raise type(error)(text, *error.args[1:]) from None

    def name(self, report: Report) -> None:
        """Let a report name the raster, and no store that is gone."""
        if self.raster:
            report.result["raster"] = self.path
        if self.temporary:
            for key in ("store", "layers"):
                report.result.pop(key, None)
