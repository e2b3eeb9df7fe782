"""terrain-gpu verify: proof of all results in a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import options

if TYPE_CHECKING:
    from ..store import TileStore


@click.command("verify")
@click.argument("store", metavar="STORE")
@options.memory_limit_option
@options.threads_option
@options.backend_option
@options.device_option
@options.gpu_memory_limit_option
@options.json_option
@options.verbosity_options
def command(
    store: str,
    backend: str,
    device: int,
    gpu_memory_limit: int | None,
    json_target: str | None,
    **limits: Any,
) -> None:
    """Prove the results in STORE: its layers mst, distance, backlink and allocation.

    One pass over the cells checks every edge of the grid against each result. The sources of
    distances are not recorded: cells whose backlink is 0 count as such, or without backlinks those
    at distance 0.

    A spanning forest is proven on the GPU where that holds the whole raster, 15 bytes for each cell
    of 16 bits; distances of any raster, region by region. The CPU follows backlinks and allocation.

    \b
    terrain-gpu verify dem.zarr
    """
    from ..errors import StoreError, TerrainError
    from ..mst import LAYER
    from ..mst.verify import VerificationError as WrongForest
    from ..paths.verify import VerificationError as WrongPaths
    from ..progress import bar
    from ..report import Report
    from ..store import TileStore

    opened = TileStore.open(store)
    checks: dict[str, Callable[..., tuple[dict[str, Any], str]]] = {}
    if LAYER in opened.layers:
        checks[LAYER] = _forest
    if {"distance", "backlink", "allocation"} & set(opened.layers):
        checks["distance"] = _paths
    if not checks:
        raise StoreError(f"{store}: no results; compute-mst and compute-sssp make some")
    limits |= {"backend": backend, "device": device, "gpu_memory_limit": gpu_memory_limit}
    report = Report("verify")
    report.cells = opened.grid.cells
    report.result["store"] = str(opened.path)
    wrong: list[TerrainError] = []
    lines = []
    with report.measured():
        for name, check in checks.items():
            advice = "the store is as it was"
            with (
                options.if_interrupted(advice),
                report.phase(name),
                bar(f"verify {name}", quiet=options.quiet()) as progress,
            ):
                try:
                    found, line = check(opened, progress=progress, **limits)
                except (WrongForest, WrongPaths) as error:
                    found, line = {"error": str(error)}, f"layer {name} is wrong"
                    wrong.append(error)
            report.result[name] = {"verified": "error" not in found, **found}
            lines.append(f"{store}: {line}, {report.seconds[name]:.2f} s")
    options.write_json(report.to_json(), json_target)
    for line in lines:
        options.say(line, json_target)
    if wrong:
        raise TerrainError("; ".join(map(str, wrong)))


def _forest(store: TileStore, **how: Any) -> tuple[dict[str, Any], str]:
    from ..errors import StoreError
    from ..mst import LAYER
    from ..mst.verify import verify_forest

    layer = store.layer(LAYER)
    settings, result = (layer.info.get(key) for key in ("settings", "result"))
    file = f"{layer.path}/zarr.json"
    for key, value in (("settings", settings), ("result", result)):
        if not isinstance(value, dict):
            raise StoreError(f"{file}: {key} is recorded as {value!r}; compute it again")
    assert isinstance(settings, dict)
    assert isinstance(result, dict)
    source = settings.get("layer")
    for key, good in (
        ("layer", isinstance(source, str) and source != LAYER),
        ("weight", settings.get("weight") in ("max", "absdiff")),
        ("connectivity", settings.get("connectivity") in (4, 8)),
        ("of", isinstance(settings.get("of"), dict)),
    ):
        if not good:
            raise StoreError(
                f"{file}: {key} is recorded as {settings.get(key)!r}; compute it again"
            )
    for key in ("edges", "components", "total_weight"):
        # An infinite total is recorded as a word.
        kinds = (int, float) if key != "total_weight" else (int, float, str)
        value = result.get(key)
        good = type(value) in kinds
        if type(value) is str:
            good = value in ("inf", "-inf", "Infinity", "-Infinity")
        if not good:
            raise StoreError(f"{file}: {key} is recorded as {value!r}; compute it again")
    cells = store.layer(str(source))
    cells.careful = True
    if not cells.is_still(settings["of"]):
        raise StoreError(
            f"{layer.path}: computed from other cells than {cells.path} holds now; compute it "
            "again with --overwrite"
        )
    found = verify_forest(
        cells,
        layer,
        weight=settings["weight"],
        connectivity=settings["connectivity"],
        expected=result,
        **how,
    )
    return (
        {**found, "total_weight": result["total_weight"]},
        f"layer {LAYER} verified, {found['edges']:,} edges against {found['checked_edges']:,} of "
        "the grid" + (", on the GPU" if found["backend"] == "cuda" else ""),
    )


def _paths(store: TileStore, **how: Any) -> tuple[dict[str, Any], str]:
    from ..paths.verify import verify_stored

    found = verify_stored(store, **how)
    layers = found["layers"]
    return (
        found,
        f"layer{'s' * (len(layers) > 1)} {', '.join(layers)} verified, {found['reached']:,} cells "
        f"against {found['checked_steps']:,} steps; {found['sources']:,} sources taken from "
        f"{found['sources_from']}" + (", on the GPU" if found["backend"] == "cuda" else ""),
    )
