"""terrain-gpu verify: verify all results in a store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from ..arguments import is_raster
from ..errors import (
    ClusterError,
    InputError,
    ReprojectionError,
    StoreError,
    TerrainError,
    VerificationError,
    without_secrets,
)
from ..facts import Findings, Settings
from ..plurals import counted
from ..spanning_tree import LAYER as TREE
from ..tool import Tool
from ..tools import TOOLS, tool_of
from . import options
from .sections import program_command
from .stored import Check, accepted_now, of_data, of_levels
from .working import Given, store_option

if TYPE_CHECKING:
    from distributed import Client

    from ..store import TileStore


INDEX = "distance_index"
LINES = (".geojson", ".gpkg", ".parquet", ".fgb")
"""How files of lines end."""


@program_command("verify", short_help="Verify results and data of a store")
@click.argument("store", metavar="STORE|RASTER")
@click.option(
    "--data",
    is_flag=True,
    help="Check every tile of every layer against its checksum, and the coordinates and attributes "
    "that other programs read.",
)
@click.option(
    "--file",
    metavar="OUT.tif|FEATURES",
    help="Instead, compare a file that export wrote with the layer; or features (.gpkg, .geojson, "
    ".parquet, .fgb): those of contours and polygons with the layer, lines that streams wrote with "
    "the channels of a layer of streams, paths of compute-sssp with a --layer of distances.",
)
@click.option(
    "--layer", metavar="NAME", help="The layer for --file.  [default: elevation; of lines, streams]"
)
@click.option(
    "--heights",
    metavar="NAME",
    help="The layer from which lines have their elevations.  [default: elevation]",
)
@click.option(
    "--accept-changes",
    "accepted",
    metavar="LAYER",
    multiple=True,
    help="Accept the present cells of LAYER after another program changed them on purpose. x, y or "
    "spatial_ref: write these coordinates again.",
)
@store_option
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.devices_option
@options.gpu_memory_limit_option
@options.cluster_options(
    "spanning_tree.proof.forest",
    "paths.proof",
    "raster.label_components.proof",
    "hydrology.accumulate.proof",
    "raster.slope.proof",
)
@options.scratch_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    data: bool,
    file: str | None,
    layer: str | None,
    heights: str | None,
    accepted: tuple[str, ...],
    kept: str | None,
    backend: str,
    device: Any,
    gpu_memory_limit: int | None,
    json_target: str | None,
    **limits: Any,
) -> None:
    """Verify the results in STORE: its layers mst, distance, backlink and allocation, the layers
    made by convert-dataset, slope, label-components, accumulate, streams, calc, corridor and
    rasterize, and the distance index. A RASTER is converted to a store first: with --file, features
    are compared with its cells.

    Checks every cell, and every edge of the grid, of each result. The sources of distances are not
    recorded: cells whose backlink is 0 count as sources, or, without backlinks, cells at distance
    0. Sums of drainage can be verified only if there is a layer of directions (accumulate
    --directions), and converted layers only while their sources are where they were.

    GPUs verify spanning forests and distances of any raster, region by region; of several GPUs,
    distances use the first. The CPU follows backlinks and allocation, and verifies all other
    layers, with --workers or --scheduler in the workers.

    With --data, read all tiles of all layers instead and check them against their checksums; and
    check the coordinates and attributes by which other programs place the layers.

    \b
    terrain-gpu verify dem.zarr
    terrain-gpu verify dem.zarr --data
    terrain-gpu verify dem.zarr --workers 8
    terrain-gpu verify dem.zarr --file dem.tif
    terrain-gpu verify dem.zarr --file streams.gpkg --heights carved
    terrain-gpu verify dem.zarr --file paths.gpkg --layer distance
    terrain-gpu verify dem.tif --file contours.gpkg
    """
    if bool(file) + data + bool(accepted) > 1:
        raise click.UsageError("give only one of --file, --data and --accept-changes")
    if layer and not file:
        raise click.UsageError("--layer needs --file: give that too")
    of_file = _of_file(file, layer, heights)
    here = (file and "--file") or (accepted and "--accept-changes")
    _refuse_workers(limits["client"], here or None, backend)
    if accepted and is_raster(store) and kept is None:
        raise click.UsageError(f"{store} is a raster: --accept-changes needs a store")
    with Given.read_only(store, {"kept": kept, **limits}) as opened:
        checks: dict[str, Check] = {}
        if data:
            checks = of_data(opened)
        elif file:
            checks = {file: of_file}
        elif not accepted:
            gpu = {"backend": backend, "device": device, "gpu_memory_limit": gpu_memory_limit}
            checks = _results(opened, gpu)
        accept = [partial(accepted_now, opened, name) for name in accepted]
        _verify(store, opened, checks, accept, json_target, limits, of="file" if file else "layer")


def _verify(
    store: str,
    opened: TileStore,
    checks: dict[str, Check],
    accept: Sequence[Callable[[], str]],
    json_target: str | None,
    limits: dict[str, Any],
    *,
    of: str,
) -> None:
    """Run the checks of a store, report them, and raise the worst of their errors."""
    from ..report import Report

    limits, figures = _of_cluster(opened, **limits)
    report = Report("verify")
    report.cells = opened.grid.cells
    report.result["store"] = without_secrets(store) if is_raster(store) else str(opened.path)
    wrong: list[TerrainError] = []
    lines = []
    with report.measured():
        for accepted in accept:
            lines.append(f"{store}: {accepted()}")
        for name, check in checks.items():
            advice = "the store is unchanged"
            with (
                options.if_interrupted(advice),
                report.phase(name),
                options.progress_of(f"verify {name}") as progress,
            ):
                try:
                    found, line = check(opened, progress=progress, **limits)
                except ClusterError:
                    raise
                except TerrainError as error:  # go on: verify the other results too
                    if isinstance(error, ReprojectionError):
                        error.name_file(name)
                    found, line = {"error": str(error)}, ""
                    if isinstance(error, VerificationError):
                        line = f"{of} {name} is wrong"
                    wrong.append(error)
            report.result[name] = {"verified": "error" not in found, **found}
            report.result[name] |= figures.since_last()
            lines += [f"{store}: {line}, {report.seconds[name]:.2f} s"] if line else []
    report.settings |= figures.settings()
    options.write_json(report.to_json(), json_target)
    for line in lines:
        options.say(line, json_target)
    if wrong:
        # Exit with the worst code: a wrong result outranks one that could not be checked.
        worst = min(wrong, key=lambda error: error.exit_code)
        worst.args = ("; ".join(dict.fromkeys(map(str, wrong))),)
        raise worst


def _refuse_workers(client: Client | None, here: str | None, backend: str) -> None:
    """Refuse workers for what is done in this process, or on a GPU."""
    if client is not None and here:
        raise click.UsageError(f"{here} works in this process; leave out --workers and --scheduler")
    if client is not None and backend == "cuda":
        raise click.UsageError("workers verify on CPUs; leave out --backend cuda")


class _ClusterFigures:
    """What the report tells of a cluster, if there is one."""

    def __init__(self, cluster: Any) -> None:
        self._cluster, self._tasks = cluster, 0

    def since_last(self) -> dict[str, int]:
        """The number of tasks since the last call."""
        if self._cluster is None:
            return {}
        before, self._tasks = self._tasks, self._cluster.figures.tasks
        return {"proof_tasks": self._tasks - before}

    def settings(self) -> Settings:
        return {} if self._cluster is None else {"cluster": self._cluster.settings()}


def _of_cluster(
    store: TileStore, client: Client | None, **limits: Any
) -> tuple[Settings, _ClusterFigures]:
    """Limits of proofs, with the cluster that runs them, and its figures."""
    if client is None:
        return limits, _ClusterFigures(None)
    from ..engine.cluster import Cluster

    cluster = Cluster(client, str(store.path))
    limits |= {"memory_limit": cluster.limit(limits["memory_limit"]), "cluster": cluster}
    return limits, _ClusterFigures(cluster)


def _results(store: TileStore, gpu: Settings) -> dict[str, Check]:
    """Proofs of all results, by name."""
    checks: dict[str, Check] = {}
    if TREE in store:
        checks[TREE] = partial(_forest, **gpu)
    checks |= {name: partial(_paths, name=name, **gpu) for name in _distances(store)}
    checks |= _on_the_cpu(store)
    checks |= of_levels(store, _PROOFS["overview_of"])
    if not checks:
        raise StoreError(
            f"{store.path}: no results to verify; run compute-mst, compute-sssp, slope, "
            "label-components, accumulate, streams or build-index first"
        )
    return checks


def _forest(store: TileStore, **how: Any) -> tuple[Findings, str]:
    tool = tool_of("compute-mst")
    found = tool.load(tool.proof)(store, store.layer(TREE), **how)
    return found, f"layer {TREE} verified, {tool.proven(found)}"


def _distances(store: TileStore) -> list[str]:
    """Names of the layers of distances, also of those missing beside their backlinks."""
    usual, found = False, list[str]()
    for name, layer in store.each():
        if name in ("distance", "backlink", "allocation"):
            usual = True
            continue
        if isinstance(layer, StoreError):
            raise layer
        settings = layer.info.get("settings")
        if isinstance(settings, dict) and {"cost", "source_edge"} <= settings.keys():
            found += layer.info.get("beside") or [name]
    return list(dict.fromkeys(["distance"] * usual + found))


def _paths(store: TileStore, name: str, **how: Any) -> tuple[Findings, str]:
    from ..paths.proof import verify_stored

    found = verify_stored(store, name, **how)
    layers = found["layers"]
    return (
        found,
        f"layer{'s' * (len(layers) > 1)} {', '.join(layers)} verified, "
        f"{counted(found['reached'], 'cell')} against {counted(found['checked_steps'], 'step')}; "
        f"{counted(found['sources'], 'source')} taken from {found['sources_from']}"
        + (", on the GPU" if found["backend"] == "cuda" else ""),
    )


@dataclass(frozen=True)
class _LayerProof:
    """The proof of a layer: its function, as module:name in the package, and how to tell it."""

    function: str | Callable[..., Any]
    tell: Callable[[Findings], str]

    def __call__(self, store: TileStore, name: str, **how: Any) -> tuple[Findings, str]:
        from ..engine.proof import Limits

        verify = self.function
        if isinstance(verify, str):
            module, function = verify.split(":")
            verify = getattr(import_module(f"..{module}", __package__), function)
        found = verify(store, store.layer(name), Limits.of(**how))
        names = found.get("layers", [name])
        layers = f"layer{'s' * (len(names) > 1)} {', '.join(names)}"
        return found, f"{layers} verified, {self.tell(found)}"


def _with_a_value(found: Findings) -> str:
    return counted(found["cells"], "cell with a value")


_PROOFS = {
    "overview_of": _LayerProof("raster.overviews.proof:verify_stored_overview", _with_a_value),
    "ties_of": _LayerProof(
        "paths.ties.proof:verify_stored_ties",
        lambda found: counted(found["cells"], "cell with several steps back"),
    ),
}
"""The proofs of layers by a setting that these record."""


_DRAINED = "outlets"
"""A setting of sums along the spanning forest, and of their directions: proven together."""


def _of_tool(tool: type[Tool]) -> _LayerProof:
    """The proof of the layers of a tool."""

    def verify(*args: Any) -> Findings:
        found: Findings = tool.load(tool.proof)(*args)
        return found

    return _LayerProof(verify, tool.proven)


def _on_the_cpu(store: TileStore) -> dict[str, Check]:
    """Proofs of the layers of other operations, which are known by what they record."""
    from ..store.objects import is_there

    proofs: dict[str, Check] = {
        "rasters": _conversion,
        **_PROOFS,
        **{
            one.mark: _of_tool(one)
            for one in map(tool_of, TOOLS)
            if one.proof and one.mark != _DRAINED and one.gpu != "several"
        },
    }
    checks: dict[str, Check] = {}
    drained: dict[str, tuple[list[str], list[str]]] = {}
    for name, layer in store.each():
        if isinstance(layer, StoreError):
            raise layer
        settings = layer.info.get("settings")
        if not isinstance(settings, dict):
            continue
        if layer.info.get("holds") == "pour points":  # which are proven with their watersheds
            continue
        if mark := next((mark for mark in proofs if mark in settings), None):
            checks[name] = partial(proofs[mark], name=name)
        elif _DRAINED in settings:
            of_run = drained.setdefault(json.dumps(settings), ([], []))
            of_run["encoding" in layer.info].append(name)
    if is_there(store.path / INDEX / "zarr.json"):
        checks[INDEX] = _index
    for sums, codes in drained.values():
        # Directions of another run are as good, where it had the same outlets.
        for name in sums or codes[:1]:
            own = [name] if sums else []
            checks[name] = partial(_drainage, sums=own, codes=codes[:1])
        for name in codes[1:]:
            checks[name] = partial(_drainage, sums=[], codes=[name])
    return checks


def _conversion(store: TileStore, name: str, **how: Any) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..io.proof.conversion import verify_stored_conversion

    found = verify_stored_conversion(store.layer(name), Limits.of(**how))
    if "unproven" in found:
        return found, f"layer {name} not proven: {found['unproven']}"
    cells, rasters = found["cells"], found["sources"]
    return (
        found,
        f"layer {name} verified, {counted(cells, 'cell')} against {counted(rasters, 'raster')}",
    )


def _of_file(
    file: str | None, layer: str | None, heights: str | None
) -> Callable[..., tuple[Findings, str]]:
    """The check of --file, by its ending."""
    if file and file.lower().endswith(LINES):
        return partial(_features, file=file, name=layer, heights=heights)
    if heights:
        raise click.UsageError("--heights needs --file with lines: give that too")
    return partial(_file, file=file or "", name=layer or "elevation")


def _file(store: TileStore, file: str, name: str, **how: Any) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..io.proof.raster import verify_exported

    found = verify_exported(file, store.layer(name), Limits.of(**how))
    return found, f"file {file} verified, {counted(found['cells'], 'cell')} of layer {name}"


def _features(
    store: TileStore, file: str, name: str | None, heights: str | None, **how: Any
) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..hydrology.streams.proof_lines import verify_stored_lines
    from ..raster.contours.proof_files import is_drawing

    if not os.path.isfile(file):
        raise InputError(f"{file}: no such file")
    if heights is None and is_drawing(file, store.grid):
        return _drawing(store, file, name or "elevation", **how)
    if not name and "streams" not in store:
        raise InputError(
            f"{file} is not a file as contours or polygons write it; name the layer of streams or "
            "distances that its lines are of: --layer NAME"
        )
    name = name or "streams"
    if name in _distances(store):
        return _path_lines(store, file, name, **how)
    found = verify_stored_lines(store, name, file, heights or "elevation", Limits.of(**how))
    return found, f"file {file} verified, {counted(found['links'], 'link')} of layer {name}"


def _drawing(store: TileStore, file: str, name: str, **how: Any) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..raster.contours.proof_files import verify_drawing

    found = verify_drawing(store.layer(name), file, Limits.of(**how))
    what = "line" if "lines" in found else "polygon"
    told = counted(found[f"{what}s"], what)
    if "levels" in found:
        told += f" of {counted(found['levels'], 'level')}"
    return found, f"file {file} verified, {told} of layer {name}"


def _path_lines(store: TileStore, file: str, name: str, **how: Any) -> tuple[Findings, str]:
    from ..paths.proof.lines import verify_stored_paths

    limit, progress = how["memory_limit"], how["progress"]
    found = verify_stored_paths(store, name, file, limit, progress=progress)
    return found, f"file {file} verified, {counted(found['paths'], 'path')} by layer {name}"


def _index(store: TileStore, **how: Any) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..paths.distance_index.stored import verify_stored_index

    found = verify_stored_index(store, Limits.of(**how))
    return found, (
        f"distance index of {found['cost']} verified, "
        + counted(found["entries"], "entry", "entries")
    )


def _drainage(
    store: TileStore, sums: list[str], codes: list[str], **how: Any
) -> tuple[Findings, str]:
    from ..engine.proof import Limits
    from ..hydrology.accumulate.proof import verify_stored_drainage

    if not codes:
        why = "sums are proven from directions (accumulate --directions), which are not there"
        return {"verified": False, "unproven": why}, f"layer {sums[0]} not proven: {why}"
    layer = store.layer(sums[0]) if sums else None
    found = verify_stored_drainage(store, store.layer(codes[0]), layer, Limits.of(**how))
    layers = [*sums, *codes]
    return (
        {**found, "layers": layers},
        f"layer{'s' * (len(layers) > 1)} {', '.join(layers)} verified, "
        + tool_of("accumulate").proven(found),
    )
