"""Watersheds of pour points along flow directions: `watershed`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...arguments import LayerCompression, checked, refused
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Here, Result, Run, run
from ...errors import ArgumentError, InputError, StoreError
from ...grid import Block
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.places import PlacesLike
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ..along_flow.basin_table import figures
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import TAKE
from ..along_flow.labels import FlowLabels, labelled
from ..common.codes import DIRECTIONS, NOWHERE, open_directions, open_links
from ..completing import completed
from ..flow_accumulation import LAYER as ACCUMULATION
from ..streams.inputs import least_sum, open_sums
from .pour_points import HOLDS, PourPoints, naming_nearest, points_layer
from .proof import plan_watershed, verify_watershed
from .table import LINK_BYTES, PLANNED_LINKS, LinkRows, PointRows

LAYER = "watershed"

POINT_BYTES = 140
"""Of a pour point, with its row of the table."""
LINKS_BYTES = PLANNED_LINKS * LINK_BYTES
"""Of the table of so many links that is planned for."""


@dataclass(frozen=True)
class Watershed(FlowLabels):
    """The operation; `points` are the pour points, other fields are parameters of `watershed`."""

    store: str
    digest: str | None = None
    links: str | None = None
    directions: str = DIRECTIONS
    into: str = LAYER
    table: str | None = None
    points: PourPoints | None = field(default=None, compare=False, repr=False)

    command = "watershed"
    mark = "watershed_of"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.directions,) if self.links is None else (self.directions, self.links)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        if self.links is not None:
            return (OutputLayer(self.into, self.layers[1].dtype, 0, "watersheds"),)
        number, holds = np.dtype(np.uint32), {"holds": HOLDS}
        return (
            OutputLayer(self.into, number, 0, "watersheds"),
            # Nearly all of it is 0, but few tiles are without a point where there are many.
            OutputLayer(points_layer(self.into), number, 0, HOLDS, holds, compress="zstd"),
        )

    @property
    def held_bytes(self) -> int:
        if self.points is None:
            return 0 if self.table is None else LINKS_BYTES
        return POINT_BYTES * self._count

    @property
    def _count(self) -> int:
        return 0 if self.points is None else len(self.points)

    def settings(self) -> dict[str, Any]:
        if self.points is None:
            own = {"watershed_of": self.directions, "links": self.links}
            return {**own, "table": self.table is not None}
        return {
            "watershed_of": self.directions,
            "pour_points": self.digest,
            "table": None if self.table is None else self.points.table_digest,
        }

    def refuse(self, *, overwrite: bool) -> None:
        super().refuse(overwrite=overwrite)
        store, beside = TileStore.open(self.store), points_layer(self.into)
        if _holds_points(store, self.into):
            raise InputError(
                f"{store.path}: layer {self.into!r} holds pour points, not watersheds; choose "
                "another name for the new ones (--into)"
            )
        there = _holds_points(store, beside)
        if self.links is None and there is False:
            wrong = "holds watersheds, and pour points would replace it"
        elif self.links is not None and there:
            wrong = "holds pour points, which would not be those of the new watersheds"
        else:
            return
        raise InputError(
            f"{store.path}: layer {beside!r} {wrong}; delete its folder, or choose another name "
            f"than {self.into!r} for the new ones (--into)"
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Watersheds(self, plan)

    def ways(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        into, labels = block.entries, self._own(block, cells)
        exits = block.stopped(labels != 0).follow(into, TAKE, labels)
        return block.globally(into), block.globally(exits), labels.ravel()[into].astype(np.int64)

    def finish(
        self, block: FlowBlock, cells: list[np.ndarray], given: Any, out: list[np.ndarray]
    ) -> tuple[np.ndarray, ...] | None:
        found = self._own(block, cells)
        stops, inner = found != 0, found[1:-1, 1:-1]
        ends = np.flatnonzero(stops).astype(np.int32)
        own = found.ravel()[ends].astype(np.int64)
        around, names = given[1], None if self.points is None else self.points.named
        if names is not None:
            row, col = np.divmod(ends, block.codes.shape[1])
            out[1][...] = 0
            out[1][row - 1, col - 1] = names[own]
            if self.table is None:  # which would need the numbers
                found.ravel()[ends], around, names = names[own], names[around], None
        found.ravel()[block.locally(given[0])] = around
        block.stopped(stops).follow_all(TAKE, found)
        out[0][...] = inner if names is None else names[inner]
        if self.table is None:
            return None
        after = block.after(ends)
        beyond = np.where(after < 0, 0, found.ravel()[np.maximum(after, 0)].astype(np.int64))
        r0, r1, c0, _ = block.window
        labels, areas = inner.astype(np.int64), self.units[0][r0:r1]
        rows = figures(labels, block.edge, None, areas, (r0, c0))
        return *rows, own, block.globally(ends), beyond

    def _own(self, block: FlowBlock, cells: list[np.ndarray]) -> np.ndarray:
        """Labels of links, int64, or numbers of pour points, uint32, see `labelled`."""
        if self.points is None:
            links = cells[0][1:-1, 1:-1]
            here = ~is_nodata(links, self.layers[1].nodata) & (block.codes[1:-1, 1:-1] != NOWHERE)
            at = np.flatnonzero(here & (links != 0))
            return labelled(block, at, links.ravel()[at].astype(np.int64), np.int64)
        rows, cols, numbers = self.points.within(block.window)
        width = block.codes.shape[1] - 2
        return labelled(block, rows * width + cols, numbers, np.uint32)

    def plan_verify(self, machine: Machine) -> None:
        marks, limits = self._marks(self.outputs), Limits(machine)
        plan_watershed(self.layers[0], *marks, limits, points=self._count)

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        made = [run.layer(output.name) for output in self.outputs]
        how: dict[str, Any] = {"limits": run.proof_limits, "points": self._count}
        proof = verify_watershed(self.layers[0], *self._marks(made), self.digest, **how)
        return {"verified_cells": self.grid.cells, "labelled": proof["cells"]}

    def _marks(self, made: Any) -> tuple[Any, Any]:
        """The layers of labels where ways end, and of watersheds."""
        return self.layers[1] if self.links is not None else made[1], made[0]


class _Watersheds(Beyond):
    """The watershed of each entry, and the rows of the table."""

    def __init__(self, operation: Watershed, plan: StreamPlan) -> None:
        codes, *links = operation.layers
        super().__init__(operation, plan, TAKE)
        self._operation = operation
        # What finished blocks have for the table is not stored.
        self.again = operation.table is not None
        if operation.points is None:
            self._rows: LinkRows | PointRows = LinkRows(links[0], codes, self._room)
        else:
            self._rows = PointRows(codes, operation.points)

    def add(self, phase: Phase, at: Block, known: tuple[np.ndarray, ...] | None) -> None:
        if not phase.writes:
            super().add(phase, at, known)
        elif known is not None:
            self._rows.add(*known)

    def join(self, phase: Phase) -> None:
        operation = self._operation
        if not phase.writes:
            super().join(phase)
            return
        from ...io.tables import write_table  # brings GDAL

        assert operation.table is not None
        columns = self._rows.columns(operation.grid, operation.units[1])
        write_table(Path(operation.table), columns, operation.grid)

    def found(self) -> dict[str, Any]:
        points = self._operation.points
        return {} if points is None else {"pour_points": len(points)}


def _holds_points(store: TileStore, name: str) -> bool | None:
    """Whether a layer holds pour points; None if there is none, or it is damaged."""
    with suppress(StoreError):
        if (found := store.find(name)) is not None:
            return bool(found.info.get("holds") == HOLDS)
    return None


def refuse_missing_areas(snap_area: Mapping[int, Any], points: PourPoints) -> None:
    """Refuse areas that lack the one of a pour point.

    Raises
    ------
    InputError
    """
    if missing := sorted(set(points.ids.tolist()) - set(snap_area)):
        raise refused(
            "snap_area",
            f" has none for {len(missing)} of {len(points)} pour points, such as the one with id "
            f"{missing[0]}; give an area for each",
        )


def _expected(snap_area: Any, sums: Layer, points: PourPoints) -> np.ndarray | None:
    """The sum that each point expects, in the unit of the sums; None for the largest."""
    if snap_area is None:
        return None
    if not isinstance(snap_area, Mapping):
        return np.full(len(points), float(least_sum(snap_area, sums, "snap_area")))
    refuse_missing_areas(snap_area, points)
    ids = points.ids.tolist()
    known = {
        key: float(least_sum(snap_area[key], sums, f"{{snap_area}} of {key}")) for key in set(ids)
    }
    return np.array([known[key] for key in ids])


def _refuse_arguments(settings: Mapping[str, Any]) -> None:
    """Refuse arguments of `watershed` that contradict each other."""
    if settings["links"] is not None and settings["pour_points"] is not None:
        raise ArgumentError("{links} is in place of {pour_points}: leave out one of them")
    if settings["links"] is None and settings["pour_points"] is None:
        raise ArgumentError("give {pour_points} or {links}")
    if settings["links"] is not None and settings["snap"] is not None:
        raise ArgumentError("{snap} needs {pour_points}; leave it out for {links}")
    if settings["snap_area"] is not None and settings["snap"] is None:
        raise ArgumentError("{snap_area} needs {snap}, the farthest to look")


@takes_dataarrays
@checked(_refuse_arguments)
@completed(reads=("links", "accumulation", "directions"), writes=("into",))
def watershed(
    store: StoreLike,
    pour_points: PlacesLike | None = None,
    *,
    links: str | None = None,
    snap: float | None = None,
    snap_area: float | str | Mapping[int, float | str] | None = None,
    accumulation: str = ACCUMULATION,
    directions: str = DIRECTIONS,
    into: str = LAYER,
    table: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Label watersheds: each cell with the pour point that its flow reaches first.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Missing layers of default names that it needs
        are computed: "mst", "flow_direction" and "flow_accumulation".
    pour_points
        Cells, in the forms that `shortest_paths` accepts as sources. Their ids are the labels: 1,
        2, ... in the given order, or those of a `Places`. Several points in one cell have the label
        with the lowest id.
    links
        Instead: a layer of whole numbers, such as the links of streams (`streams` with order
        "link"). Each cell gets the first number on its way that is neither 0 nor nodata.
    snap
        Move each pour point to the cell with the largest accumulation within this distance, in map
        units, in metres for a geographic CRS; of equal ones the nearest, then the first in
        row-major order.
    snap_area
        Instead, move each to the cell within `snap` whose accumulation differs least from this: a
        number of cells, or an area as text such as "5km2"; or one for every id of the pour points.
    accumulation
        Layer of flow accumulation, for `snap`.
    directions
        Layer of flow directions, see `flow_accumulation`.
    into
        Layer to write: 0, the nodata value, where no pour point is reached. uint32; of the type of
        `links` if given. Pour points are written to a layer beside it, named `into` and "_points",
        so that they can be proven.
    table
        Also write a table of the pour points or links to .csv, .parquet, .geojson, .gpkg or .fgb;
        see the reference.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the labels in two more passes over the cells; the table is not verified.
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
        Its `layers` are named `into` and, with pour points, `into` and "_points"; `found` has the
        number of "pour_points".

    Raises
    ------
    InputError
        when a name cannot be used, there is not exactly one of `pour_points` and `links`, or a
        pour point lies outside the raster, does not drain, or has nothing to snap to.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged or lacks a layer, when directions lead round in a circle without
        a pour point, or when the layer exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Examples
    --------
    >>> labels = watershed("dem.zarr", [(120, 40), (300, 200)], snap=200).layers["watershed"]
    """
    opened = opened_store(store)
    codes = open_directions(opened, directions)
    target = None
    if table is not None:
        from ...io.tables import checked_table  # brings GDAL

        target = str(checked_table(table, overwrite=overwrite))
    points = None
    if pour_points is not None:
        with naming_nearest(opened, directions):
            points = PourPoints.of(codes, pour_points)
        if snap is not None:
            sums = open_sums(opened, accumulation, codes)
            expected = _expected(snap_area, sums, points)
            points = points.snapped(opened, codes, sums, snap, expected)
        points.refuse_undrained(opened, codes)
        points.tell_shared()
        points.tell_small(codes, snapped=snap is not None)
    else:
        open_links(opened, str(links))
    operation = Watershed(
        str(opened.path),
        None if points is None else points.digest,
        links,
        directions,
        into,
        target,
        points,
    )
    result = run(
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
    if table is not None:
        result.report.result["table"] = os.fspath(table)
    return result
