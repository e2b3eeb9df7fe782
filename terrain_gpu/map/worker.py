"""The process of a run started by the map: `python -m terrain_gpu.map.worker`.

The job is one line of JSON on standard input, see `jobs.MapJob`. Lines on standard output are
``{"phase": ..., "done": ..., "total": ...}`` and at the end ``{"layer": ...}`` or
``{"error": ...}``. The process ends when standard input is closed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from ..errors import TerrainError
from ..facts import Settings
from ..progress import Progress

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
    from ..store import TileStore

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
    """Compute the watershed of a cell; return the name of the layer."""
    from .. import watershed

    watershed(
        job["store"],
        job["places"],
        into="upstream",
        overwrite=True,
        progress=report_progress("Following the flow"),
        **limits,
    )
    return "upstream"


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
