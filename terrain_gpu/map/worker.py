"""The process of a run started by the map: `python -m terrain_gpu.map.worker`.

The job is one line of JSON on standard input, see `jobs.MapJob`. Lines on standard output are
``{"phase": ..., "done": ..., "total": ...}`` and at the end ``{"layer": ...}`` or
``{"error": ...}``. The process ends when standard input is closed.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from ..cells import is_nodata
from ..errors import StoreError, TerrainError
from ..facts import JsonObject, Settings
from ..grid.lengths import metres_per_unit
from ..progress import Progress
from ..store import TileStore
from .jobs import CATCHMENT
from .paths import describe_path, flow_path

EVERY = 0.1
"""Seconds between two lines."""


def send(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def report_progress(phase: str) -> Progress:
    """Report progress as lines."""
    done, last = 0, 0.0

    def update(cells: int, total: int) -> None:
        nonlocal done, last
        done += cells
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            send(phase=phase, done=done, total=total)

    send(phase=phase, done=0, total=0)
    return update


def distance(job: Settings, limits: Settings) -> str:
    """Compute cost distances around barriers; return the name of the layer."""
    from .. import rasterize, shortest_paths
    from ..io.geo_objects import GeoObject
    from ..io.places import from_vector

    store, barriers = job["store"], None
    if job["barriers"]:
        line = {"type": "MultiLineString", "coordinates": job["barriers"]}
        grid = TileStore.open(store).grid
        drawn = GeoObject("the barriers", {"type": "Feature", "geometry": line, "properties": {}})
        cells = from_vector(grid, drawn, all_touched=True, fields=False)
        barriers = "drawn_barriers"
        draw_progress = report_progress("Drawing barriers")
        rasterize(
            store,
            cells,
            value=1,
            into=barriers,
            layer=job["layer"],
            progress=draw_progress,
            **limits,
        )
    shortest_paths(
        store,
        job["places"],
        cost=job["cost"],
        barriers=barriers,
        corner_cutting=False,
        wrap="no",
        layer=job["layer"],
        into="cost_distance",
        backlink=True,
        overwrite=True,
        progress=report_progress("Computing distances"),
        **limits,
    )
    return "cost_distance"


def upstream(job: Settings, limits: Settings) -> str:
    """Compute the watershed of a cell, and describe it; return the name of the layer."""
    from .. import polygons, watershed

    folder = Path(job["store"]).parent
    outline, table = folder / "outline.geojson", folder / "outlet.csv"
    watershed(
        job["store"],
        job["places"],
        snap=f"{job['snap']!r} map units" if job["snap"] else None,
        into="upstream",
        table=table,
        overwrite=True,
        progress=report_progress("Following the flow"),
        **limits,
    )
    polygons(
        job["store"],
        outline,
        layer="upstream",
        overwrite=True,
        progress=report_progress("Drawing the outline"),
        **limits,
    )
    store = TileStore.open(job["store"])
    told = describe_catchment(store, job["layer"], outline, table)
    (folder / CATCHMENT).write_text(json.dumps(told))
    return "upstream"


def describe_catchment(store: TileStore, heights: str, outline: Path, table: Path) -> JsonObject:
    """The outline, statistics and flow path of the layer "upstream".

    Places are rows and columns, as real numbers; areas are in km2, or None if the CRS does not say.
    """
    from ..io.vectors import read_features

    grid = store.grid
    with open(table, newline="") as file:
        (outlet,) = csv.DictReader(file)
    row, col = int(outlet["row"]), int(outlet["col"])
    a, _, c, _, e, f = grid.transform
    polygons = [
        [
            np.stack(((ring[:, 1] - f) / e, (ring[:, 0] - c) / a), axis=1).round(3).tolist()
            for ring in rings
        ]
        for parts in read_features(outline, grid, fields=False).parts
        for _, rings in parts
    ]
    labels, elevations = store.layer("upstream"), store.layer(heights)
    report = report_progress("Adding up elevations")
    count, total, low, high = 0, 0.0, np.inf, -np.inf
    for at in labels.blocks.ids():
        inside = labels.read_block(*at) != 0
        report(inside.size, grid.rows * grid.cols)
        if not inside.any():
            continue
        values = elevations.read_window(*labels.blocks.window(*at))
        values = values[inside & ~is_nodata(values, elevations.nodata)].astype(np.float64)
        if values.size:
            count, total = count + values.size, total + float(values.sum())
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    try:
        path = flow_path(store.layer("flow_direction"), row, col)
    except StoreError:  # directions of another program that lead out of the raster
        path = None
    known = count > 0
    square = metres_per_unit(grid) ** 2 / 1e6
    return {
        "outlet": [row, col],
        "outline": polygons,
        "down": None if path is None else describe_path(path, 1, elevations),
        "facts": {
            "cells": int(outlet["cells"]),
            "area_km2": float(outlet["area"]) * square if grid.crs_wkt else None,
            "lowest": low if known else None,
            "mean": total / count if known else None,
            "highest": high if known else None,
        },
    }


KINDS: dict[str, Callable[[Settings, Settings], str]] = {
    "distance": distance,
    "watershed": upstream,
}


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Run the job."""
    job = json.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_parent, daemon=True).start()
    limits = {"memory_limit": job["memory_limit"], "threads": job["threads"]}
    try:
        name = KINDS[job["kind"]](job, limits)
        from .. import build_overviews

        steps = report_progress("Building overviews")
        build_overviews(job["store"], layers=[name], progress=steps, **limits)
        send(layer=name)
    except TerrainError as error:
        send(error=str(error))
    sys.stdout.flush()
    os._exit(0)  # the thread is waiting for standard input


if __name__ == "__main__":
    main()
