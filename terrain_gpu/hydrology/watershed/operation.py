"""Label the watersheds of pour points or links along flow directions: `WatershedLabels`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...arguments import refused
from ...cells import is_nodata
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, State
from ...engine.plan import StreamPlan
from ...engine.proof import Limits
from ...engine.run import Run
from ...errors import InputError, StoreError
from ...facts import Findings, Settings
from ...grid import Block, ceil_div
from ...grid.distance import Distance
from ...io.places import PlacesLike
from ...store import Layer, TileStore
from ..along_flow.basin_table import band_bytes, bands, figures, joined
from ..along_flow.block import FlowBlock
from ..along_flow.entries import Beyond
from ..along_flow.kernels import TAKE
from ..along_flow.labels import FlowLabels, labelled
from ..common.code_values import NOWHERE
from ..common.codes import DIRECTIONS, open_directions, open_links
from ..forest.source import heights_in
from ..streams.inputs import least_sum, open_sums, refuse_beyond_raster, refuse_other_sums
from . import LAYER, Watershed
from .pour_points import HOLDS, PourPoints, naming_nearest, points_layer
from .proof import plan_watershed, verify_watershed
from .table import LINK_BYTES, PLANNED_LINKS, LinkRows, PointRows

POINT_BYTES, END_BYTES = 140, 100
"""Of a pour point, with its row of the table; and while its block is finished."""
LINKS_BYTES = PLANNED_LINKS * LINK_BYTES
"""Bytes planned for the table of links."""


@dataclass(frozen=True)
class WatershedLabels(FlowLabels):
    """The operation. `points` are the pour points; other fields are options of `Watershed`."""

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
            # Nearly all cells are 0, but if there are many points, few tiles are empty.
            OutputLayer(points_layer(self.into), number, 0, HOLDS, holds, compress="zstd"),
        )

    @property
    def worker_bytes(self) -> int:
        if self.points is None:  # links may be at every cell
            return super().worker_bytes
        ring = self.blocks.largest(1)
        beside = 12 + ceil_div(END_BYTES * min(self._count, ring), ring)
        return beside if self.table is None else band_bytes(self.blocks, beside, 120)

    @property
    def held_bytes(self) -> int:
        if self.points is None:
            return 0 if self.table is None else LINKS_BYTES
        return POINT_BYTES * self._count

    @property
    def _count(self) -> int:
        return 0 if self.points is None else len(self.points)

    def settings(self) -> Settings:
        if self.points is None:
            of_links = {"watershed_of": self.directions, "links": self.links}
            return {**of_links, "table": self.table is not None}
        return {
            "watershed_of": self.directions,
            "pour_points": self.digest,
            "table": None if self.table is None else self.points.table_digest,
        }

    def refuse(self, *, overwrite: bool) -> None:
        super().refuse(overwrite=overwrite)
        store, of_points = TileStore.open(self.store), points_layer(self.into)
        if _holds_points(store, self.into):
            raise InputError(
                f"{store.path}: layer {self.into!r} holds pour points, not watersheds; choose "
                "another name for the new ones (--into)"
            )
        holds_points = _holds_points(store, of_points)
        if self.links is None and holds_points is False:
            wrong = "holds watersheds, and pour points would replace it"
        elif self.links is not None and holds_points:
            wrong = "holds pour points, which would not be those of the new watersheds"
        else:
            return
        raise InputError(
            f"{store.path}: layer {of_points!r} {wrong}; delete its folder, or choose another name "
            f"than {self.into!r} for the new ones (--into)"
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Watersheds(self, plan)

    def trace(self, block: FlowBlock, cells: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        into, labels = block.entries, self._own(block, cells)
        exits = block.stopped(labels != 0).follow(into, TAKE, labels)
        return block.globally(into), block.globally(exits), labels.ravel()[into].astype(np.int64)

    def finish(
        self,
        block: FlowBlock,
        cells: list[np.ndarray],
        context: tuple[np.ndarray, np.ndarray],
        out: list[np.ndarray],
    ) -> tuple[np.ndarray, ...] | None:
        labels = self._own(block, cells)
        stops, inner = labels != 0, labels[1:-1, 1:-1]
        ends = np.flatnonzero(stops).astype(np.int32)
        labels_at_ends = labels.ravel()[ends].astype(np.int64)
        around, names = context[1], None if self.points is None else self.points.named
        if names is not None:
            row, col = np.divmod(ends, block.codes.shape[1])
            out[1][...] = 0
            out[1][row - 1, col - 1] = names[labels_at_ends]
            if self.table is None:  # a table needs the numbers
                labels.ravel()[ends], around, names = names[labels_at_ends], names[around], None
        labels.ravel()[block.locally(context[0])] = around
        block.stopped(stops).follow_all(TAKE, labels)
        out[0][...] = inner if names is None else names[inner]
        if self.table is None:
            return None
        after = block.after(ends)
        beyond = np.where(after < 0, 0, labels.ravel()[np.maximum(after, 0)].astype(np.int64))
        (r0, _, c0, _), edge, areas = block.window, block.edge, self.units[0]
        rows = [
            figures(inner[band], edge[band], None, areas[r0:][band], (r0 + band.start, c0))
            for band in bands(inner.shape)
        ]
        return *joined(rows), labels_at_ends, block.globally(ends), beyond

    def _own(self, block: FlowBlock, cells: list[np.ndarray]) -> np.ndarray:
        """Return the labels of links, int64, or numbers of pour points, uint32; see `labelled`."""
        if self.points is None:
            links = cells[0][1:-1, 1:-1]
            drains = block.codes[1:-1, 1:-1] != NOWHERE
            at = np.flatnonzero(~is_nodata(links, self.layers[1].nodata) & drains & (links != 0))
            return labelled(block, at, links.ravel()[at].astype(np.int64), np.int64)
        rows, cols, numbers = self.points.within(block.window)
        width = block.codes.shape[1] - 2
        return labelled(block, rows * width + cols, numbers, np.uint32)

    def plan_verify(self, machine: Machine) -> None:
        marks, limits = self._marks(self.outputs), Limits(machine)
        plan_watershed(self.layers[0], *marks, limits, points=self._count)

    def verify(self, run: Run, totals: Findings) -> Findings:
        layers = [run.layer(output.name) for output in self.outputs]
        options: Settings = {"limits": run.proof_limits, "points": self._count}
        proof = verify_watershed(self.layers[0], *self._marks(layers), self.digest, **options)
        return {"verified_cells": self.grid.cells, "labelled": proof["cells"]}

    def _marks(self, layers: Any) -> tuple[Any, Any]:
        """Return the layers of labels where flow paths end, and of watersheds."""
        return self.layers[1] if self.links is not None else layers[1], layers[0]


class _Watersheds(Beyond):
    """The watershed of each entry, and the rows of the table."""

    def __init__(self, operation: WatershedLabels, plan: StreamPlan) -> None:
        codes, *links = operation.layers
        super().__init__(operation, plan, TAKE)
        self._operation = operation
        # The table rows of finished blocks are not stored, so a resumed run computes them again.
        self.again = operation.table is not None
        if operation.points is None:
            self._rows: LinkRows | PointRows = LinkRows(links[0], codes, self._room)
        else:
            self._rows = PointRows(codes, operation.points)

    def add(self, phase: Phase, at: Block, message: tuple[np.ndarray, ...] | None) -> None:
        if not phase.writes:
            super().add(phase, at, message)
        elif message is not None:
            self._rows.add(*message)

    def join(self, phase: Phase) -> None:
        operation = self._operation
        if not phase.writes:
            super().join(phase)
            return
        from ...io.tables import write_table  # brings GDAL

        assert operation.table is not None
        columns = self._rows.columns(operation.grid, operation.units[1])
        write_table(Path(operation.table), columns, operation.grid)

    def found(self) -> Findings:
        points = self._operation.points
        return {} if points is None else {"pour_points": len(points)}


def _holds_points(store: TileStore, name: str) -> bool | None:
    """Whether a layer holds pour points; None if there is none, or it is damaged."""
    with suppress(StoreError):
        if (layer := store.find(name)) is not None:
            return bool(layer.info.get("holds") == HOLDS)
    return None


def refuse_missing_areas(snap_area: Mapping[int, Any], points: PourPoints) -> None:
    """Check that each pour point has an area.

    Raises
    ------
    InputError
        If one has none.
    """
    if missing := sorted(set(points.ids.tolist()) - set(snap_area)):
        raise refused(
            "snap_area",
            f" has none for {len(missing)} of {len(points)} pour points, such as the one with id "
            f"{missing[0]}; give an area for each",
        )


def _expected(snap_area: Any, sums: Layer, points: PourPoints) -> np.ndarray | None:
    """Return the expected sum at each point, in the unit of the sums; None for the largest."""
    if snap_area is None:
        return None
    if not isinstance(snap_area, Mapping):
        return np.full(len(points), float(least_sum(snap_area, sums, "snap_area")))
    refuse_missing_areas(snap_area, points)
    ids = points.ids.tolist()
    expected = {
        key: float(least_sum(snap_area[key], sums, f"{{snap_area}} of {key}")) for key in set(ids)
    }
    return np.array([expected[key] for key in ids])


def refuse(tool: Watershed, store: TileStore) -> None:
    """Reject pour points or sums that cannot be used, before missing layers are computed.

    Raises
    ------
    InputError
        If a pour point is outside the raster or on nodata, or an area is missing or too large.
    StoreError
        If a layer does not exist or holds something else.
    """
    if tool.pour_points is None:
        open_links(store, str(tool.links))
        return
    if tool.snap_area is not None and not isinstance(tool.snap_area, Mapping):
        refuse_beyond_raster(tool.snap_area, store.grid, "snap_area")
    if (snap := _snap(tool)) is not None:
        snap.measured(store.grid)
        if tool.accumulation in store:
            refuse_other_sums(store.layer(tool.accumulation))
    if tool.directions not in store:
        layer = heights_in(store)
        layer.refuse_if_empty()
    elif snap is not None and tool.accumulation not in store:
        layer = open_directions(store, tool.directions)
    else:
        return
    with naming_nearest(store, tool.directions):
        points = PourPoints.of(layer, tool.pour_points)
    if isinstance(tool.snap_area, Mapping):
        refuse_missing_areas(tool.snap_area, points)
    points.refuse_nodata(layer, snap)


def operation_of(store: TileStore | None, tool: Watershed) -> WatershedLabels:
    """Return the operation after checking the layers.

    When only planning, `store` is None and the number of pour points is enough.
    """
    path, points = "", cast("Any", tool.pour_points)
    if store is not None:
        path, codes = str(store.path), open_directions(store, tool.directions)
        if points is None:
            open_links(store, str(tool.links))
        else:
            points = _points(store, codes, points, tool)
    digest = getattr(points, "digest", None)
    table = None if tool.table is None else os.fspath(tool.table)
    return WatershedLabels(path, digest, tool.links, tool.directions, tool.into, table, points)


def _snap(tool: Watershed) -> Distance | None:
    """How far points may be moved, as the tool has checked it."""
    return cast("Distance | None", tool.snap)


def _points(store: TileStore, codes: Layer, pour_points: PlacesLike, tool: Watershed) -> PourPoints:
    """Return the pour points, snapped if asked for."""
    with naming_nearest(store, tool.directions):
        points = PourPoints.of(codes, pour_points)
    if (snap := _snap(tool)) is not None:
        sums = open_sums(store, tool.accumulation, codes)
        expected = _expected(tool.snap_area, sums, points)
        points = points.snapped(store, codes, sums, snap, expected)
    points.refuse_undrained(store, codes)
    points.tell_shared()
    points.tell_small(codes, snapped=snap is not None)
    return points
