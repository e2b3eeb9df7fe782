"""Build a distance index: `build`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...arguments import is_demanded
from ...cuda.backend import Gpu, Placement, find_gpu, gpu_for
from ...engine.run import run
from ...errors import ArgumentError
from ...progress import Progress, silent
from ...report import Report
from ...store import TileStore
from ..cost.graph import warn_about_lengths
from ..cost.resolve import stated_cost
from ..cost.wrap import tell_open
from . import BuildIndex
from .operation import DistanceIndex

if TYPE_CHECKING:
    from distributed import Client


def build(
    asked: BuildIndex,
    data: str | os.PathLike[str] | TileStore,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Client | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Build the distance index of a store, or keep the one that is there."""
    method = asked.method
    cost, parameters, friction, _ = stated_cost(
        data, asked.cost, asked.layer, asked.friction, asked.parameters, asked.vertical_factor
    )
    problem = DistanceIndex(
        str(TileStore.open(data).path),
        asked.layer,
        friction,
        asked.barriers,
        cost,
        parameters,
        asked.connectivity,
        asked.corner_cutting,
        asked.reverse,
        max_slope=asked.max_slope,
        tile=asked.tile,
        levels=asked.levels,
        method=method,
    )
    if client is not None:
        if method != "relax":
            raise ArgumentError(
                "{method} {value} runs only on a GPU of this process; use {method} relax, or leave "
                "out {client}",
                value=repr(method),
            )
        if backend == "cuda" and is_demanded("backend"):
            raise ArgumentError(
                "the workers of a cluster build an index on the CPU only; leave out {backend} cuda "
                "or {client}"
            )
        backend = "cpu"
    tell_open(problem.grid)
    warn_about_lengths(problem)
    block_size = problem.blocks.block
    gpu: Gpu | None
    if method == "relax":
        gpu = find_gpu(backend, device, gpu_memory_limit, memory_limit, block_size)
    else:
        gpu = gpu_for(method, backend, device, gpu_memory_limit)
    found = run(
        problem,
        memory_limit=memory_limit,
        threads=threads,
        resume=True,
        overwrite=overwrite,
        verify=verify,
        place=Placement(gpu, progress),
        client=client,
    )
    report = found.report
    built = "build" in report.seconds
    report.result |= {"built": built}
    if not built:
        report.result["blocks_resumed"] = 0
    report.settings |= {"threads": report.settings["plan"]["writers"], "method": method}
    for key in ("store", "layers"):
        del report.result[key]
    return report
