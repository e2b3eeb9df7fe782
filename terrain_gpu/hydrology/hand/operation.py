"""Height above the nearest drainage along flow directions: `hand`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import HandMethod, LayerCompression, checked, exactly_one, word
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...grid.lengths import Measured
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import ADD, TAKE, step_lengths_to
from ..along_flow.operation import AlongFlow
from ..common.codes import DIRECTIONS, NOWHERE, OUTLET, open_directions
from ..common.height_above import KINDS, NEVER, AboveRule, streams_settings
from ..completing import completed
from ..divided_flow.surface import open_surface
from ..flow_accumulation import LAYER as ACCUMULATION
from ..streams.inputs import open_channels
from .divided import DinfHand
from .proof import plan_above, verify_above

LAYER = "hand"


@dataclass(frozen=True)
class Hand(AlongFlow):
    """The operation; fields are parameters of `hand`, but `streams`.

    Attributes
    ----------
    streams
        The layer of streams; None for the outlets.
    """

    store: str
    threshold: float | None = None
    streams: str | None = ACCUMULATION
    layer: str = "elevation"
    directions: str = DIRECTIONS
    into: str = LAYER
    distance: str | None = None

    command = "hand"
    mark = "hand_of"
    proof_passes = 2
    worker_bytes = 64

    @property
    def inputs(self) -> tuple[str, ...]:
        names = self.directions, self.layer
        return names if self.streams is None else (*names, self.streams)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return self.rule.outputs(self.into, self.distance)

    @property
    def measures(self) -> tuple[Measured, ...]:
        return () if self.distance is None else ("lengths",)

    def settings(self) -> dict[str, Any]:
        return {
            "hand_of": self.layer,
            "directions": self.directions,
            **streams_settings(self.streams, self.threshold),
            "distance": self.distance is not None,
        }

    @cached_property
    def rule(self) -> AboveRule:
        _, heights, *streams = self.layers
        return AboveRule(heights, streams[0] if streams else None, self.threshold)

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        hows = (TAKE,) if self.distance is None else (TAKE, ADD)
        return Beyond(self, plan, *hows)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        block, columns = self._own(block, self.rule.height(cells[0]), cells[1:])
        into = block.entries
        for how, values in columns:
            exits = block.follow(into, how, values)
        ways = block.globally(into), block.globally(exits)
        return *ways, *(values.ravel()[into] for _, values in columns)

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> None:
        heights = self.rule.height(cells[0])
        block, columns = self._own(block, heights, cells[1:])
        ring = block.locally(given[0])
        for (how, values), around in zip(columns, given[1:], strict=True):
            values.ravel()[ring] = around
            block.follow_all(how, values)
        streams, *lengths = (values[1:-1, 1:-1] for _, values in columns)
        self.rule.write_heights(heights[1:-1, 1:-1], streams, out[0])
        if lengths:
            self.rule.write_distances(lengths[0], out[1])

    def _own(
        self, block: FlowBlock, heights: np.ndarray, streams: list[np.ndarray]
    ) -> tuple[FlowBlock, list[tuple[int, np.ndarray]]]:
        """The block with ways that end at streams; and what cells contribute to ways, and how.

        That is the heights of streams; and lengths of steps, where distances are asked for.
        """
        stops = block.codes == OUTLET
        if streams:
            stops = self.rule.is_stream(streams[0]) & (block.codes != NOWHERE)
        stopped = block.stopped(stops)
        met = np.where(stops, heights, heights.dtype.type(np.nan))
        met.ravel()[block.ring] = np.nan
        columns = [(TAKE, met)]
        if self.distance is not None:
            lengths = block.array(np.int64)
            lengths[...] = np.where(stops, 0, NEVER)
            lengths.ravel()[block.ring] = 0
            step_lengths_to(stopped.codes, block.window[0], self.rule.lengths[0], lengths)
            columns.append((ADD, lengths))
        return stopped, columns

    def plan_verify(self, machine: Machine) -> None:
        plan_above(self.layers[0], self.rule, self.outputs, Limits(machine))

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        made = dict(zip(KINDS, (run.layer(one.name) for one in self.outputs), strict=False))
        verify_above(self.layers[0], self.rule, made, run.proof_limits)
        return {"verified_cells": self.grid.cells}


@takes_dataarrays
@checked(exactly_one("threshold", "streams", "to_outlets"), method=word(HandMethod))
@completed(
    reads=("streams", "accumulation", "directions", "layer", "filled"), writes=("into", "distance")
)
def hand(
    store: StoreLike,
    threshold: float | str | None = None,
    *,
    streams: str | None = None,
    to_outlets: bool = False,
    accumulation: str = ACCUMULATION,
    directions: str = DIRECTIONS,
    layer: str = "elevation",
    into: str = LAYER,
    distance: str | None = None,
    method: HandMethod = "d8",
    filled: str = "filled",
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute the height above the nearest drainage (HAND): above the stream a cell drains to.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Missing layers of default names that it needs
        are computed: "mst", "flow_direction", "flow_accumulation" and "filled".
    threshold
        Cells are streams where the accumulation is at least this: a number of cells, or an area as
        text such as "5km2".
    streams
        Instead: a layer; cells are streams where it is neither 0 nor nodata.
    to_outlets
        Instead: only the outlets are streams, where ways end. Then `distance` is the downstream
        flow length.
    accumulation
        Layer of flow accumulation, for `threshold`.
    directions
        Layer of flow directions, see `flow_accumulation`.
    layer
        Layer of heights.
    into
        Layer to write: the height of each cell less that of the first stream cell on its way, which
        may be the cell itself. float32; float64 for heights of float64 and of integers of 32 or
        more bits. -9999, the nodata value, where the way meets no stream, and where the cell or the
        stream has no height.
    distance
        Also write this layer: the length of the way to the stream, float64, in map units, in metres
        for a geographic CRS; -9999 where there is no stream.
    method
        "d8": along the directions. "dinf": averages over all ways of D-infinity flow, weighted by
        the parts of the flow that take them; see Notes. Both layers are float64 then.
    filled
        For "dinf": layer of heights over which flow divides, as `fill` made it for the outlets of
        the directions.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in two more passes over the cells ("dinf": one).
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and all cells of both passes.

    Returns
    -------
    Result
        Its `layers` are named `into` and `distance`.

    Raises
    ------
    InputError
        when a name cannot be used, or there is not exactly one of `threshold`, `streams` and
        `to_outlets`.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or lacks a layer, when directions lead round in a circle without
        a stream, or when the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    A. D. Nobre and others (2011), Journal of Hydrology 404. Lengths are summed as integers of a
    unit of about 2^-61 of the longest possible way, so they do not depend on the blocks.

    With "dinf", a stream has 0, and any other cell the average, over the cells that it drains to,
    of their values and the step there: the difference of heights, or the length. That is the
    vertical drop and the horizontal distance of TauDEM's D-Infinity Distance Down (average), with
    its rule for edges: no value where any part of the flow meets no stream, or a cell without a
    height. A cell that drains to one other, in flats and under water, follows the directions. See
    `flow_accumulation` for how cells divide.

    Examples
    --------
    >>> found = hand("dem.zarr", 1000, distance="distance_to_stream")
    >>> heights = found.layers["hand"].read_window(0, 100, 0, 100)
    """
    opened = opened_store(store)
    least = None
    if threshold is not None:
        streams = accumulation
        *_, least = open_channels(opened, directions, accumulation, threshold)
    open_directions(opened, directions)
    threshold = None if least is None else float(least)
    how = str(opened.path), threshold, streams, layer, directions, into, distance
    operation: Hand | DinfHand = Hand(*how)
    if method != "d8":
        open_surface(opened, filled, directions)
        operation = DinfHand(*how, filled)
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
