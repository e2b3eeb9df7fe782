"""Run a tool whose inputs are there, or plan it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .arguments import is_demanded
from .cuda.backend import Placement, find_gpu
from .cuda.workers import cluster_on_gpus
from .engine.machine import Machine
from .engine.operation import Operation
from .engine.plan import StreamPlan, layer_bytes
from .engine.run import Here, Location, Result, run
from .errors import ArgumentError
from .facts import Settings
from .grid import BlockGrid, GridSpec
from .progress import Progress, silent
from .store import TileStore
from .tool import COUNTS, SIGNED_COUNTS, FileKind, Tool, drawn, options_of


def compute(
    asked: Tool,
    store: TileStore,
    *,
    overwrite: bool = False,
    progress: Progress = silent,
    **how: Any,
) -> Any:
    """Compute what a tool asks for.

    Parameters
    ----------
    how
        How to run it, see `engine.run.run`.

    Returns
    -------
    Any
        A `Result`, or what the operation makes of it.
    """
    files = checked_files(asked, overwrite=overwrite)
    given = {name: how.pop(name, usual) for name, usual in _ON_GPU.items()}
    operation = _operation(store, replace(asked, **files))  # type: ignore[type-var]
    if operation.after is not None:
        found = _run_both(operation, operation.after, progress, overwrite=overwrite, **how)
    else:
        client, place = _placed(asked, operation, given, how, progress)
        found = run(operation, overwrite=overwrite, place=place, **how | {"client": client})
    result, features = found.report.result, drawn(type(asked))
    for name in files:
        result["output" if name == features else name] = os.fspath(getattr(asked, name))
    if features is not None:
        del result["layers"], result["blocks_resumed"]
    return operation.result(found)


def _run_both(
    operation: Operation,
    drawn: Operation,
    progress: Progress,
    *,
    verify: bool = False,
    client: Any = None,
    resume: bool = False,
    compress: str | None = None,
    **how: Any,
) -> Result:
    """Run an operation, and another that draws a file after it, see `Operation.after`."""
    proven = verify and drawn.proof_passes > 0
    there = client if drawn.solved_by_workers else None
    if there is None:  # before the layers are made, and left there without the file
        machine = Machine.of(how.get("memory_limit"), how.get("threads"))
        drawn.plan(machine)
        if proven:
            drawn.plan_verify(machine)
    passes = sum(one.passes + one.proof_passes * verify for one in (operation, drawn))

    def counted(cells: int, total: int) -> None:
        progress(cells, operation.grid.cells * passes)

    own = {"resume": resume, "compress": compress, "verify": verify, "client": client}
    found = run(operation, place=Here(counted), **own, **how)
    more = run(drawn, place=Here(counted), verify=proven, client=there, **how)
    found.report.add_file(more.report)
    return found


_ON_GPU = {"backend": "auto", "device": 0, "gpu_memory_limit": None}
"""Where to compute, unless the caller says."""


def _placed(
    asked: Tool,
    operation: Operation,
    given: Settings,
    how: Settings,
    progress: Progress,
) -> tuple[Any, Location]:
    """Return the client of a run, or its cluster, and the location."""
    client = how.get("client")
    if asked.gpu in (None, "steps before"):
        return client, Here(progress)
    backend = operation.backend_for(given["backend"])
    only_cpu = operation.only_on_cpu
    if client is not None and asked.gpu == "one":
        only_cpu = ON_CLUSTER
    refuse_cuda(backend, only_cpu)
    if only_cpu is not None:
        return client, Placement(None, progress)
    limits = given["gpu_memory_limit"], how.get("memory_limit"), operation.blocks.block
    if client is not None:
        cluster, gpu = cluster_on_gpus(client, operation, backend, *limits)
        return cluster, Placement(gpu, progress)
    return None, Placement(find_gpu(backend, given["device"], *limits), progress)


ON_CLUSTER = "workers of a cluster compute this"
"""What runs on the CPU alone with a client, see `Operation.only_on_cpu`."""


def refuse_cuda(backend: str | None, only_cpu: str | None) -> None:
    """Refuse a GPU that a call requires for what runs on the CPU alone.

    As a default of `set_options`, it is for what can run there.

    Raises
    ------
    ArgumentError
    """
    if backend == "cuda" and only_cpu is not None and is_demanded("backend"):
        raise ArgumentError(
            "{backend} cuda: {what} on the CPU only; use {backend} auto or cpu", what=only_cpu
        )


def checked_files(asked: Tool, *, overwrite: bool) -> dict[str, str]:
    """The paths of files to write, after checking that they can be written."""
    found = {}
    for name, one in options_of(type(asked)).items():
        path = getattr(asked, name)
        if one.option.file is not None and path is not None:
            found[name] = os.fspath(_CHECKED[one.option.file](path, overwrite))
    return found


def _checked_table(path: Any, overwrite: bool) -> Any:
    from .io.tables import checked_table  # brings GDAL

    return checked_table(path, overwrite=overwrite)


def _checked_lines(path: Any, overwrite: bool) -> Any:
    from .io.lines import checked_target

    checked_target(path, overwrite=overwrite)
    return path


_CHECKED: dict[FileKind, Callable[[Any, bool], Any]] = {
    "table": _checked_table,
    "lines": _checked_lines,
    "features": _checked_lines,
}


@dataclass(frozen=True)
class PlannedLayer:
    """What a plan may know of a layer that need not exist."""

    dtype: np.dtype
    blocks: BlockGrid
    grid: GridSpec
    nodata: None = None

    @property
    def block_size(self) -> int:
        return self.blocks.block

    @property
    def info(self) -> dict[str, int]:
        """What it would take in a store, at most."""
        blocks = self.blocks
        stored = layer_bytes(blocks.rows, blocks.cols, self.dtype.itemsize, blocks.block)
        return {"stored_bytes": stored}


def plan_of(
    asked: Tool,
    blocks: BlockGrid,
    cells: np.dtype,
    machine: Machine,
    types: Mapping[str, np.dtype] | None = None,
) -> StreamPlan:
    """Plan a tool on a raster of this shape and type, which need not exist.

    Parameters
    ----------
    types
        Of layers, by the options that name them.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    grid, known = GridSpec(blocks.rows, blocks.cols), types or {}
    usual: dict[str | None, Any] = {
        None: cells,
        COUNTS: np.uint32 if grid.cells < 2**32 else np.int64,
        SIGNED_COUNTS: np.int32 if grid.cells < 2**31 else np.int64,
    }
    found = [
        known.get(one.option, np.dtype(usual.get(one.dtype, one.dtype))) for one in asked.inputs()
    ]
    if asked.planner:
        planned: StreamPlan = asked.load(asked.planner)(asked, blocks, found, machine)
        return planned
    layers = [PlannedLayer(dtype, blocks, grid) for dtype in found]
    operation = _operation(None, asked)
    if operation.after is None:
        return operation.over(layers).plan(machine)
    first = operation.over(layers[: len(operation.inputs)]).plan(machine)
    return then(first, operation.after.over(layers).plan(machine))


def then(plan: StreamPlan, drawn: StreamPlan) -> StreamPlan:
    """The plan of layers and of a file that is drawn after them."""
    return replace(
        plan,
        memory=max(plan.memory, drawn.memory),
        worker_memory=max(plan.worker_memory, drawn.worker_memory),
        passes=plan.passes + drawn.passes,
        bytes_read=plan.bytes_read + drawn.bytes_read,
    )


def _operation(store: TileStore | None, asked: Tool) -> Operation:
    start = asked.load(asked.operation)
    make = getattr(start, "of", start)  # of a class, or a function
    found: Operation = make(store, asked)
    return found
