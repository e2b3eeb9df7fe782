"""D8 flow directions from the spanning forest: `flow_direction`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..arguments import checked
from ..engine.run import Here, Result, run
from ..io.places import PlacesLike
from ..progress import Progress, silent
from ..store import TileStore
from .accumulation import Accumulate
from .codes import DIRECTIONS
from .outlets import EDGE, Outlets
from .source import open_drained


@dataclass(frozen=True)
class FlowDirection(Accumulate):
    """The operation; fields are as of `Accumulate`."""

    digest: str = EDGE
    into: None = None
    directions: str | None = DIRECTIONS

    command = "flow-direction"


@checked()
def flow_direction(
    store: str | os.PathLike[str] | TileStore,
    outlets: PlacesLike | str = EDGE,
    *,
    into: str = DIRECTIONS,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute the D8 flow direction of every cell.

    Each cell drains to its steepest lower neighbour. Flats drain along the spanning forest, and
    depressions are carved at their lowest passes, so that every way ends at an outlet.

    Parameters
    ----------
    store
        A store with the layer "mst" of weight "flow", or its path.
    outlets
        "edge": the cells at the raster's edge and beside voids (cells without a value, joined over
        eight neighbours) that reach it. "border": beside inner voids too. Or cells, in the forms
        that `shortest_paths` accepts as sources.
    into
        Layer to write, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at outlets; 255,
        the nodata value, at cells that have no value or reach no outlet.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells, or two.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and the cells of all passes.

    Returns
    -------
    Result
        Its `layers` are named `into`; `found` has the numbers of "cells" with a value and of
        "outlets". The report's `valid_cells` drain.

    Raises
    ------
    InputError
        when a name or the outlets cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when there is no spanning forest, its weight is not "flow", it is damaged, or the layer
        exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The minimum spanning forest relative to the outlets (J. Cousty and others 2009, Watershed cuts),
    of edges ordered by their higher end, then the steeper first.

    Examples
    --------
    >>> minimum_spanning_tree("dem.zarr", weight="flow")
    >>> codes = flow_direction("dem.zarr").layers["flow_direction"]
    """
    opened = store if isinstance(store, TileStore) else TileStore.open(store)
    ends = Outlets.of(open_drained(opened, "flow-direction", ("flow",)).cells, outlets)
    operation = FlowDirection(str(opened.path), ends.digest, directions=into, places=ends.places)
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
