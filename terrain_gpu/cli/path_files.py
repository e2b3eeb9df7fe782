"""The files of compute-sssp: rasters of its layers, and paths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..arguments import FloatType
from ..facts import Settings
from ..plurals import counted
from . import options
from .places import naming, refuse_shared_files

if TYPE_CHECKING:
    from pathlib import Path

    from ..grid import GridSpec
    from ..io.places import Places
    from ..paths.cost_distance.result import ShortestPaths
    from ..paths.relax.trace import TracedPath
    from ..report import Report
    from ..store import TileStore
    from .working import Given

log = logging.getLogger(__name__)

NAMED = 5
"""A message names at most this many targets."""


@dataclass(frozen=True)
class Files:
    """Where each layer goes, and the paths; None for those that are not asked for.

    Attributes
    ----------
    dtype
        Of the raster of distances; that of the layer when None.
    form
        How rasters are written: cog, compress.
    """

    distance: str | None
    backlink: str | None
    allocation: str | None
    ties: str | None
    path: str | None
    dtype: FloatType | None
    form: Settings

    @property
    def rasters(self) -> dict[str, str]:
        """The file of each layer that is written as a raster."""
        names = "distance", "backlink", "allocation", "ties"
        return {name: file for name in names if (file := getattr(self, name)) is not None}

    @property
    def written(self) -> list[str]:
        return [*self.rasters.values(), *([] if self.path is None else [self.path])]

    def check(
        self, inputs: dict[str, str | None], json_target: str | None, settings: Settings
    ) -> None:
        """Refuse, before the work starts, files that the results cannot be written to."""
        from ..io import export, lines

        outputs = {OPTIONS[name]: file for name, file in self.rasters.items()}
        outputs |= {} if self.path is None else {"--path": self.path}
        refuse_shared_files(inputs, {**outputs, "--json": json_target})
        for option, file in outputs.items():
            with naming(option):
                checked = lines.checked_target if option == "--path" else export.checked_target
                checked(file, overwrite=settings["overwrite"])
                if option != "--path":
                    export.refuse_form(file, self._form(option))

    def _form(self, option: str) -> Settings:
        """How the raster of an option is written."""
        return {**self.form, "dtype": self.dtype if option == OPTIONS["distance"] else None}

    def refuse_late(self, store: TileStore, settings: Settings) -> None:
        """Refuse, before the paths are computed, what depends on the store."""
        from ..io.export import refuse_other_grid

        for file in self.rasters.values():
            refuse_other_grid(file, store.grid)
        self._refuse_ties(store, settings)

    def _refuse_ties(self, store: TileStore, settings: Settings) -> None:
        """Refuse ties of 16 neighbours, and a layer that exists."""
        if self.ties is None:
            return
        if settings["connectivity"] == 16:
            raise click.UsageError("--all-ties takes 4 or 8 neighbours: give --connectivity 8")
        from ..errors import StoreError
        from ..paths.cost.steps import layer_named

        name = layer_named(settings["into"], "ties")
        if name in store and not (settings["overwrite"] or settings["resume"]):
            raise StoreError(f"{store.path}: layer {name!r} exists; --overwrite replaces it")

    def write(
        self,
        given: Given,
        found: ShortestPaths,
        store: TileStore,
        starts: Places,
        ends: Places | None,
        settings: Settings,
    ) -> None:
        """Write all of them."""
        if self.ties is not None:
            with options.if_interrupted(given.advice("distances and backlinks are complete")):
                _add_ties(found, store, settings)
        # --resume with --overwrite keeps a finished result and replaces its files.
        made = ", ".join(layer.name for layer in found.layers.values())
        advice = f"the layers {made} are complete, --resume --overwrite writes the files"
        with options.if_interrupted("nothing is kept" if given.temporary else advice):
            self._write_rasters(found, store, settings, stores=False)
            if self.path is not None and ends is not None:
                with found.report.phase("paths"):
                    lines = found.paths(ends, starts)
                    missing = _unreached(self.path, store.grid, ends, lines)
                    _write_paths(self.path, found, lines, (starts, ends), store, settings)
                result = {"path": self.path, "paths": len(lines), "unreached_targets": missing}
                found.report.result |= result
            # Last, because a store is in place at once, and files when all are complete.
            self._write_rasters(found, store, settings, stores=True)

    def _write_rasters(
        self, found: ShortestPaths, store: TileStore, settings: Settings, *, stores: bool
    ) -> None:
        """Write the rasters that are files, or those that are stores."""
        from ..io.export import export_layer, is_store

        how = {name: settings[name] for name in ("memory_limit", "threads", "overwrite")}
        for name, file in self.rasters.items():
            if is_store(file) != stores:
                continue
            form = self._form(OPTIONS[name])
            with found.report.phase("export"), options.progress_of("export") as progress:
                layer = found.layers[name].name
                export_layer(store.path, file, layer=layer, progress=progress, **form, **how)
            found.report.result[OPTIONS[name].removeprefix("--").replace("-", "_")] = file

    def described(self, report: Report) -> str:
        """The line of a summary that names them."""
        names = list(self.rasters.values())
        if self.path is not None:
            count = report.result["paths"]
            names.append(f"{self.path} ({counted(count, 'path')})")
        return f"\nwritten: {', '.join(names)}" if names else ""


OPTIONS = {
    "distance": "--output",
    "backlink": "--backlink",
    "allocation": "--allocation",
    "ties": "--all-ties",
}
"""The option of each raster."""


def _write_paths(
    path: str,
    found: ShortestPaths,
    lines: Sequence[TracedPath],
    places: tuple[Places, Places],
    store: TileStore,
    settings: Settings,
) -> None:
    """Write paths, and prove the file before it gets its name."""
    from ..paths.cost_distance.output import write_paths
    from ..paths.proof.lines import KnownEnds, verify_stored_paths

    def prove(part: Path) -> None:
        how = settings["into"], path, settings["memory_limit"]
        with options.progress_of("verify paths") as progress:
            ends = KnownEnds(*places)
            checked = verify_stored_paths(store, *how, part=part, ends=ends, progress=progress)
        found.report.result["verified_path_steps"] = checked["steps"]

    wanted = prove if settings["verify"] else None
    write_paths(path, lines, store.grid, overwrite=settings["overwrite"], prove=wanted)


def _add_ties(found: ShortestPaths, store: TileStore, settings: Settings) -> None:
    """Compute the layer of ties."""
    from ..paths.ties.operation import tied_steps

    own = "memory_limit", "threads", "client", "verify", "resume", "overwrite"
    how = {name: settings[name] for name in own}
    with found.report.phase("ties"), options.progress_of("ties") as progress:
        made = tied_steps(store, settings["into"], progress=progress, **how)
    (found.layers["ties"],) = made.layers.values()
    found.report.result["layers"].append(found.layers["ties"].name)


def _unreached(
    path: str, grid: GridSpec, targets: Places, lines: Sequence[TracedPath]
) -> list[dict[str, int]]:
    """Return the unreached targets and log a warning that names them; raise if no path exists."""
    from ..errors import TerrainError
    from ..grid import cell_centres

    reached = {tuple(line.cells[-1].tolist()) for line in lines}
    missing = [
        {"target": targets.names.get(name, name), "row": row, "col": col}
        for name, row, col in sorted(
            zip(*(a.tolist() for a in (targets.ids, targets.rows, targets.cols)), strict=True)
        )
        if (row, col) not in reached
    ]
    if not missing:
        return []
    import numpy as np

    shown = np.array([(one["row"], one["col"]) for one in missing[:NAMED]])
    names = ", ".join(
        f"x {x:.12g}, y {y:.12g} (row {row}, column {col})"
        for (x, y), (row, col) in zip(cell_centres(grid, shown), shown, strict=True)
    ) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")
    if not lines:
        raise TerrainError(
            f"--path {path}: not written, no target is reached: {names}; check for nodata and "
            "barriers on the way, and --max-cost"
        )
    log.warning("%d of %d targets not reached: %s", len(missing), len(targets), names)
    return missing
