"""Stream burning as an operation: `burn`."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, height, refused
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...errors import InputError
from ...grid import Block, BlockGrid, cells_in, units
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.places import PlacesLike, as_places, values_at
from ...progress import Progress, silent
from ...store import TileStore
from .proof import plan_burn_proof, verify_burn

log = logging.getLogger(__name__)

LAYER = "burned"
CELL_BYTES = 48
"""Of each cell that is lowered in a block."""


@dataclass(frozen=True)
class Burn(Operation):
    """The operation.

    Attributes
    ----------
    depth
        By how much cells are lowered; an int where heights are integers.
    digest
        Of the cells.
    layer, into
        Layers of heights.
    cells
        int64, ids of the cells to lower, sorted; all have a value.
    """

    store: str
    depth: float
    digest: str
    layer: str = "elevation"
    into: str = LAYER
    cells: np.ndarray = field(
        default_factory=lambda: np.empty(0, np.int64), compare=False, repr=False
    )

    command = "burn"
    mark = "burn_of"
    phases = (Phase("burn", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        heights = self.layers[0]
        like = heights.dtype, heights.nodata, "burned heights"
        return (OutputLayer(self.into, *like, described=units.same_quantity(heights)),)

    def settings(self) -> dict[str, Any]:
        return {"burn_of": self.layer, "depth": self.depth, "streams": self.digest}

    def plan(self, machine: Machine) -> StreamPlan:
        layer = self.layers[0]
        return plan_burn(
            *self.grid.shape,
            layer.dtype,
            layer.block_size,
            cells=len(self.cells),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Any) -> State:
        return _Burned(len(self.cells))

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        window, cols = self.blocks.window(*at), self.grid.cols
        row, col = np.divmod(self.cells[cells_in(window, self.cells, cols)], cols)
        where = row - window[0], col - window[2]
        out[0][...] = cells[0]
        before = cells[0][where]
        lowered, bad = _lowered(before, self.depth, self.layers[0].nodata)
        if bad.any():
            k = int(np.argmax(bad))
            raise InputError(
                f"{self.layers[0].path}: row {row[k]}, column {col[k]}: height "
                f"{before[k]} cannot be lowered by {self.depth}: no other {before.dtype.name} that "
                "is a height is there; give another depth, or convert the raster to a wider type"
            )
        out[0][where] = lowered
        return SolvedBlock(tuple(out))

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        plan_burn_proof(self.layers[0], self.outputs[0], len(self.cells), limits)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        layers = self.layers[0], run.layer(self.into)
        verify_burn(*layers, self.depth, self.digest, found, run.proof_limits)
        return {"verified_cells": self.grid.cells}


class _Burned(State):
    """The number of cells that are lowered, which is known before."""

    def __init__(self, burned: int) -> None:
        self._burned = burned

    def found(self) -> dict[str, Any]:
        return {"burned": self._burned}


def _lowered(
    heights: np.ndarray, depth: float, nodata: float | int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Heights less the depth, and where that is not another height of the type."""
    dtype = heights.dtype
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            found = (heights.astype(np.float64) - depth).astype(dtype)
        return found, is_nodata(found, nodata) | (found == heights)
    unsigned, bits = np.dtype(f"u{dtype.itemsize}"), 8 * dtype.itemsize
    if depth >= 1 << bits:
        return heights, np.ones(heights.shape, bool)
    words, least = heights.view(unsigned), np.iinfo(dtype).min % (1 << bits)
    # Unsigned words wrap around, so they hold every difference.
    room = words - unsigned.type(least)
    found = (words - unsigned.type(depth)).view(dtype)
    return found, is_nodata(found, nodata) | (room < unsigned.type(depth))


def plan_burn(
    rows: int,
    cols: int,
    dtype: np.dtype,
    block: int,
    *,
    cells: int = 0,
    machine: Machine,
) -> StreamPlan:
    """Plan `burn` for a layer of this shape, type and block size, and so many cells to lower.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    blocks = BlockGrid(rows, cols, block)
    size, tiled = blocks.largest(), blocks.largest(tiled=True)
    whole = layer_bytes(rows, cols, dtype.itemsize, block)
    return fit_blocks(
        blocks,
        dtype.name,
        "to burn streams into",
        buffer=2 * size * dtype.itemsize,
        worker=CELL_BYTES * min(cells, size),
        scratch=2 * tiled * dtype.itemsize,
        held=8 * cells,
        bytes_read=whole,
        bytes_written=whole,
        machine=machine,
    )


def digest_of(cells: np.ndarray) -> str:
    """Digest of sorted ids."""
    return hashlib.sha256(cells.astype("<i8").tobytes()).hexdigest()


@takes_dataarrays
@checked(streams=lambda name, value: value, depth=height)
def burn(
    store: StoreLike,
    streams: PlacesLike,
    *,
    depth: float,
    layer: str = "elevation",
    into: str = LAYER,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Burn streams into a layer of heights: lower their cells by a depth.

    Water then flows along known streams where the DEM hides them, under bridges or in plains.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    streams
        Cells, in the forms that `shortest_paths` accepts as sources; ``io.places.from_vector`` with
        `all_touched` finds those of lines and polygons. Cells without a height stay without one.
    depth
        By how much each cell is lowered, in the unit of the heights, above 0; a whole number where
        heights are integers. Floats are rounded to their type.
    layer
        Layer of heights.
    into
        Layer to write, of the type of the heights, with the nodata value of these.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of the passes.

    Returns
    -------
    Result
        Its `layers` are named `into`; `found` has the number of cells "burned".

    Raises
    ------
    InputError
        when a name, the cells or the depth cannot be used, or the type of the heights does not hold
        a lowered one: named by row and column.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks the layer, or already has such a result.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    W. Saunders (1999), Preparation of DEMs for use in environmental modeling analysis; Esri User
    Conference. Heights beside streams stay as they are, unlike in AGREE.

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> burn("dem.zarr", from_vector(grid, "streams.gpkg", all_touched=True), depth=10)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="burned")
    """
    opened = opened_store(store)
    return run(
        burning_of(opened, streams, depth, layer, into),
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )


def burning_of(
    store: TileStore,
    streams: PlacesLike,
    depth: float,
    layer: str,
    into: str = LAYER,
    *,
    called: str = "depth",
) -> Burn:
    """Check the arguments of `burn`, of which the depth is `called`; return the operation."""
    heights = store.layer(layer)
    if heights.dtype.kind != "f" and depth % 1:
        raise refused(
            called,
            " {depth}: the heights are {dtype}; give a whole number",
            depth=depth,
            dtype=heights.dtype.name,
        )
    places = as_places(store.grid, streams, "streams").one_per_cell()
    if not len(places):
        raise refused("streams", ": there are no cells; give some")
    absent = is_nodata(values_at(heights, places.rows, places.cols), heights.nodata)
    cells = (places.rows * store.grid.cols + places.cols)[~absent]
    if not len(cells):
        heights.refuse_if_empty()
        raise InputError(
            f"{heights.path}: all cells of the streams are nodata; give streams elsewhere"
        )
    if absent.any():
        log.info("%d of %d cells of the streams have no height", absent.sum(), len(absent))
    whole = float(depth) if heights.dtype.kind == "f" else int(depth)
    return Burn(str(store.path), whole, digest_of(cells), layer, into, cells)
