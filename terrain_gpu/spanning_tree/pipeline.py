"""The spanning forest of a store or an array: `minimum_spanning_tree`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import (
    Backend,
    Connectivity,
    Devices,
    LayerCompression,
    TreeMethod,
    TreeWeight,
    checked,
    devices,
    one_of,
    raster_or_store,
    word,
)
from ..cuda.backend import Placement, find_gpu
from ..cuda.workers import cluster_on_gpus
from ..engine.arrays import ArrayLayer, fitting_block
from ..engine.compression import refuse_for_arrays
from ..engine.machine import NO_LIMIT, limit_of
from ..engine.run import run, run_in_memory
from ..errors import ArgumentError, InputError
from ..grid import BlockGrid, GridSpec
from ..grid.neighbours import symmetric
from ..io.labelled import ArrayKind, RasterLike, opened_store, takes_dataarrays
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer
from ..store.labels import Layered
from .operation import LAYER, MOST_CELLS, SpanningForest, plan_spanning_tree
from .weights import WEIGHTS


@dataclass(repr=False)
class SpanningTree(Layered):
    """A minimum spanning forest.

    Attributes
    ----------
    layer
        The store's layer of forward edges: bits 0 to 3 of a cell are its edges E, SW, S, SE; None
        for arrays.
    edge_count, components
        Number of edges and of trees (a cell without neighbours is a tree).
    total_weight
        Sum of the edges' weights: exact for integers, correctly rounded for real cells.
    report
        The run's `Report`.
    """

    layer: Layer | None
    edge_count: int
    components: int
    total_weight: int | float
    report: Report
    _forward: np.ndarray | None = None
    _kind: ArrayKind | None = None

    @property
    def layers(self) -> dict[str, Layer]:
        """The layer by its name; none for arrays."""
        return {} if self.layer is None else {LAYER: self.layer}

    def edges(self) -> np.ndarray:
        """Return the whole edge raster in memory: uint8, one bit per edge of a cell.

        Bits are ESRI's D8 codes: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128. Nodata cells
        are 0. Where the raster was an array of CuPy or a masked one, so are the edges.
        """
        if self._forward is not None:
            forward = self._forward
        elif self.layer is not None:
            forward = self.layer.read_window(*self.layer.grid.window)
        found = symmetric(np.pad(forward, 1))
        return self._kind.array(found, None) if self._kind else found


@takes_dataarrays
@checked(data=raster_or_store, device=devices, weight=one_of(WEIGHTS), method=word(TreeMethod))
def minimum_spanning_tree(
    data: RasterLike,
    *,
    weight: TreeWeight = "max",
    connectivity: Connectivity = 8,
    method: TreeMethod = "frozen",
    nodata: float | int | None = None,
    layer: str = "elevation",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    block_size: int | None = None,
    backend: Backend = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> SpanningTree:
    """Compute the minimum spanning forest of a raster as a grid graph.

    Edges join neighbouring cells; nodata (and NaN or infinite) cells are absent, so the result is
    one tree per connected part. Edges are ordered by (weight, id of the lower endpoint, direction),
    so the forest is unique: the same bits for every block size, memory limit and thread count.

    Parameters
    ----------
    data
        A store or a raster (a path), a DataArray, or a 2-D array (or nested lists).
    weight
        "max": the higher of the two cells, so that paths in the tree cross the lowest passes;
        "absdiff": their absolute difference; "flow": as "max", but of edges with one weight the
        steeper comes first, so that the tree of a cell follows its steepest descent; over cells of
        64 bits by the method "contract", on the CPU. Arrays have square cells.
    connectivity
        8 or 4.
    method
        "frozen": Boruvka with frozen components. "contract": the classical contraction, kept as a
        reference; on a GPU with `backend` "cuda" only. Both give the same bits.
    nodata
        For arrays: value of absent cells. A store's layer has its own.
    layer
        Layer of the store to read. The result is its layer "mst".
    memory_limit
        Limit on the peak resident set of the process, in bytes or as "2GB"; a quarter of RAM when
        None. For arrays: without the caller's own memory, with the results; no limit when None.
    threads
        Number of threads; all processors when None.
    block_size
        For arrays: side of a block. A store's layer has its own.
    backend
        "cuda", "cpu", or "auto": CUDA if it works. The results have the same bits.
    device
        Number of the GPU; or numbers of several, or "all", between which the raster is shared.
    gpu_memory_limit
        Limit on the GPU memory in bytes; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process. Each computes on the first GPU that it sees if `backend` is "cuda", or if
        it is "auto" and all workers announce the resource GPU; `device` does not matter.
    verify
        Verify the result in a second pass over the cells.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just solved or verified, and the cells of all passes.

    Raises
    ------
    InputError
        for unknown weights, connectivity or types, limits that are too small, and "cuda" if it
        does not work.
    StoreError
        when the store is damaged, or already has a result.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    Boruvka's algorithm with frozen boundary components; docs/design/spanning-trees.md.
    """
    problem = weight, connectivity, method
    if client is not None and isinstance(data, np.ndarray):
        raise ArgumentError("a cluster computes only from stores; leave out {client}")
    if method != "frozen" and backend == "auto":
        backend = "cpu"
    if isinstance(data, np.ndarray):
        refuse_for_arrays(compress)
        limit = NO_LIMIT if memory_limit is None else limit_of(memory_limit)
        grid = GridSpec(*data.shape)
        block = fitting_block(*data.shape) if block_size is None else block_size
        cells = ArrayLayer(data, BlockGrid(grid.rows, grid.cols, block), grid, nodata)
        forest = SpanningForest("", layer, *problem).over([cells])
        gpu = find_gpu(backend, device, gpu_memory_limit, limit, 0)
        place = Placement(gpu, progress)
        arrays, report = run_in_memory(
            forest, memory_limit=limit, threads=threads, verify=verify, place=place
        )
        report.valid_cells = report.result["vertices"]
        return _tree(report, None, arrays[LAYER])
    if nodata is not None or block_size is not None:
        raise ArgumentError("{nodata} and {block_size} are for arrays; a store's layer has its own")
    store = opened_store(data)
    if layer == LAYER:
        raise InputError(f"{store.path}: {layer!r} is the result layer; name a layer of heights")
    forest = SpanningForest(str(store.path), layer, *problem)
    if forest.grid.cells > MOST_CELLS:
        rows, cols = forest.grid.shape
        raise InputError(f"{rows} x {cols} cells exceed the maximum of {MOST_CELLS}")
    where = gpu_memory_limit, memory_limit, forest.source.block_size
    if client is None:
        gpu = find_gpu(backend, device, *where)
    else:
        client, gpu = cluster_on_gpus(client, forest, backend, *where)
    found = run(
        forest,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Placement(gpu, progress),
        client=client,
    )
    report = found.report
    report.valid_cells = report.result["vertices"]
    del report.result["layers"]
    report.result = {"patched_edges": 0, **report.result, "layer": LAYER}
    return _tree(report, found.layers[LAYER])


__all__ = ["LAYER", "SpanningTree", "minimum_spanning_tree", "plan_spanning_tree"]


def _tree(report: Report, layer: Layer | None, forward: np.ndarray | None = None) -> SpanningTree:
    found = report.result
    total = found["total_weight"]
    return SpanningTree(
        layer,
        found["edges"],
        found["components"],
        float(total) if isinstance(total, str) else total,
        report,
        forward,
    )
