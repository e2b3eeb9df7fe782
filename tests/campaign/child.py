"""The forked side of a step: set up the faults of the process, then run the program.

Besides the users' programs there are a few in Python, which use the API.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import programs

import terrain_gpu
import terrain_gpu.cells
from terrain_gpu.cli import main
from terrain_gpu.store import writer

EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.listdir", "os.scandir"}
WRITES = ("write", "pwrite", "fsync")
NOBODY = 65534
MEMORY = 24 * 2**30
"""Bytes of address space: what asks for terabytes fails here, not on the machine."""


def prepare(plan: dict[str, Any]) -> None:
    """Set up the faults of this process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name, limit in plan.get("limits", {}).items():
        number = getattr(resource, name)
        resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))
    if plan.get("nobody"):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if "event" in plan:
        at_event(**plan["event"])


def at_event(number: int, signal_name: str = "", error: str = "", always: bool = False) -> None:
    """At this operation on files of the folder: end by a signal, or fail."""
    here = os.getcwd()
    count = 0
    lock = threading.Lock()

    def tick() -> None:
        nonlocal count
        with lock:
            count += 1
            now = count
        if signal_name and now == number:
            os.kill(os.getpid(), signal.Signals[signal_name])
        if error and (now == number or (always and now > number)):
            code = getattr(errno, error)
            raise OSError(code, os.strerror(code))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS and isinstance(args[0], str | bytes | os.PathLike):
            path = os.fsdecode(args[0])
            if not os.path.isabs(path) or path.startswith(here):
                tick()

    def ticking(function: Any) -> Any:
        def call(fd: int, *args: Any) -> Any:
            if fd > 2:
                tick()
            return function(fd, *args)

        return call

    for name in WRITES:
        setattr(os, name, ticking(getattr(os, name)))
    writer.saves_at_once = lambda compress: None  # compiled code writes without any of these
    sys.addaudithook(hook)


# -- through the API ---------------------------------------------------------------------------


def dump(store: str, out: str) -> None:
    """All layers as arrays, with what else is known of them, or why they cannot be read."""
    facts: dict[str, Any] = {"layers": {}}
    arrays = {}
    try:
        opened = terrain_gpu.TileStore.open(store)
        names = opened.layers
        facts["grid"] = [*opened.grid.shape, *opened.grid.transform]
        facts["crs"] = [opened.grid.crs_wkt, opened.grid.crs_code]
    except terrain_gpu.TerrainError as error:
        facts["error"] = str(error)
        names = []
    for name in names:
        try:
            layer = opened.layer(name)
            arrays[name] = layer.read_window(*opened.grid.window)
        except terrain_gpu.TerrainError as error:
            facts["layers"][name] = {"error": str(error)}
        else:
            recorded = {key: layer.info.get(key) for key in ("valid_cells", "min", "max")}
            nodata = terrain_gpu.cells.to_json(layer.nodata)
            facts["layers"][name] = {"nodata": nodata, **recorded}
    np.savez(out, facts=np.array(json.dumps(facts)), **{f"cells:{n}": a for n, a in arrays.items()})


def create(store: str, name: str, cells: str, options: str) -> None:
    """Make a layer from an array in a file, through `create_layer`."""
    given = json.loads(options)
    data = np.load(cells)
    rows, cols, *transform = given.pop("grid")
    grid = terrain_gpu.GridSpec(rows, cols, tuple(transform), *given.pop("crs"))
    given["nodata"] = terrain_gpu.cells.from_json(given["nodata"])
    with terrain_gpu.create_layer(store, name, grid, data.dtype, **given) as writer:
        for i, j in writer.blocks.ids():
            if not writer.done[i, j]:
                r0, r1, c0, c1 = writer.block_window(i, j)
                writer.write_block(i, j, data[r0:r1, c0:c1])
        writer.commit()


def read_by(how: str, store: str, out: str) -> None:
    """The layer of heights through zarr, xarray or maps."""
    warnings.simplefilter("ignore")  # about what zarr finds that is not its own
    if how == "zarr":
        import zarr

        data = zarr.open_group(store, mode="r")["elevation"][...]
    elif how == "xarray":
        import xarray

        data = xarray.open_zarr(store, consolidated=False, mask_and_scale=False, chunks=None)[
            "elevation"
        ].values
    else:
        layer = terrain_gpu.TileStore.open(store).layer("elevation")
        rows = []
        for i in range(layer.blocks.shape[0]):
            rows.append(
                [layer.read_block(i, j, halo=1)[1:-1, 1:-1] for j in range(layer.blocks.shape[1])]
            )
        data = np.block(rows)
    np.save(out, data)


def gdal(path: str, out: str) -> None:
    """A raster as GDAL reads it."""
    import rasterio

    with rasterio.open(path) as file:
        np.savez(out, cells=file.read(1), nodata=np.array(repr(file.nodata)))


def run(words: list[str]) -> None:
    """The program of this command line; those of this file are guarded like the others."""
    own = {"dump": dump, "create": create, "read": read_by, "gdal": gdal}
    name = words[0]
    if name not in own:
        sys.argv[:] = words
        getattr(main, programs.function(name))()
        return
    try:
        own[name](*words[1:])
    except terrain_gpu.TerrainError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__" and sys.argv[1] == "alone":
    run(sys.argv[2:])
elif __name__ == "__main__":
    import rasterio.crs  # noqa: F401
    import xarray  # noqa: F401
    import zarr  # noqa: F401

    programs.serve()
    prepare(json.loads(sys.argv.pop(0)))
    run(list(sys.argv))
