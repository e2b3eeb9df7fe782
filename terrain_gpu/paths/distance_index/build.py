"""Build a distance index: `build_index`."""

from __future__ import annotations

import os
from typing import Any

from ... import arguments
from ...arguments import Backend, Connectivity, CostName, IndexMethod, IndexTile, checked
from ...cuda.backend import Gpu, Placement, find_gpu, gpu_for
from ...engine.run import run
from ...errors import ArgumentError
from ...progress import Progress, silent
from ...report import Report
from ...store import TileStore
from ..cost.graph import warn_about_lengths
from ..cost.models import cost_text
from ..cost.resolve import VerticalFactor, stated_cost
from ..cost.rules import Cost
from ..cost.wrap import tell_open
from .operation import DistanceIndex


def _levels(name: str, value: Any) -> int:
    return arguments.whole(name, value, 0, 9)


@checked(
    data=arguments.store,
    cost=cost_text,
    friction=arguments.text,
    barriers=arguments.text,
    tile=arguments.word(IndexTile),
    levels=_levels,
    method=arguments.word(IndexMethod),
)
def build_index(
    data: str | os.PathLike[str] | TileStore,
    *,
    cost: Cost | CostName | str | None = None,
    friction: str | None = None,
    barriers: str | None = None,
    parameters: dict[str, float] | None = None,
    connectivity: Connectivity = 8,
    corner_cutting: bool = True,
    reverse: bool = False,
    max_slope: float | None = None,
    vertical_factor: VerticalFactor | None = None,
    layer: str = "elevation",
    tile: IndexTile = 64,
    levels: int = 0,
    method: IndexMethod = "relax",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Build the distance index of a store, for `shortest_paths` with ``method="index"``.

    A build that was killed resumes where it stopped. An existing index for the same layers and
    costs is kept.

    Parameters
    ----------
    data
        A store, or its path.
    cost, friction, barriers, parameters, connectivity, corner_cutting, reverse, max_slope, \
vertical_factor, layer
        As for `shortest_paths`. `reverse` matters only for directed costs, such as tobler.
    tile
        Side of the tiles between whose rim cells the index holds distances: 16, 32, 64 or 128.
        Larger tiles take longer to build and are faster to search; see
        docs/design/distance-index.md.
    levels
        Number of levels above the tiles: squares of 2, 4, 8, ... tiles on a side, none larger than
        a block of the store. They make the index larger, and queries between distant cells faster
        for integer costs and minimax.
    method
        How the distances within tiles are computed: "relax"; or, on a GPU and for comparison, one
        of the classical methods "relax-array" and "tournament". The files are the same.
    memory_limit
        Limit on the peak resident set size of the process, in bytes; a quarter of RAM when None.
    threads
        Number of threads; one per processor when None.
    backend
        "cpu", "cuda", or "auto": CUDA if it works. The files are the same, byte for byte.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory used, in bytes; 90 % of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks; `memory_limit` then applies to
        each worker. None: this process solves them.
    verify
        Verify the index, even if an existing one is kept, in another pass over the cells, on the
        CPU.
    overwrite
        Replace an index for other costs, or a damaged one.
    progress
        Called with the number of cells just processed, and the total.

    Returns
    -------
    Report
        ``result`` holds "bytes", "bytes_per_cell", "blocks_resumed" and "built".

    Raises
    ------
    InputError
        when the cost model is unknown, heights are 64-bit integers, tiles or the squares of a level
        are larger than the blocks of the store, or CUDA is requested and does not work.
    PlanError
        when a limit is too small.
    StoreError
        when there is an index for other costs, or with other tiles or levels, or another run is
        building one.
    OutputError
        when the disk is full.
    VerificationError
        when an entry is wrong; a new index is then discarded.
    """
    cost, parameters, friction, _ = stated_cost(
        data, cost, layer, friction, parameters, vertical_factor
    )
    problem = DistanceIndex(
        str(TileStore.open(data).path),
        layer,
        friction,
        barriers,
        cost,
        parameters,
        connectivity,
        corner_cutting,
        reverse,
        max_slope=max_slope,
        tile=tile,
        levels=levels,
        method=method,
    )
    if client is not None:
        if method != "relax":
            raise ArgumentError(
                "{method} {value} runs only on a GPU of this process; use {method} relax, or leave "
                "out {client}",
                value=repr(method),
            )
        if backend == "cuda":
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
