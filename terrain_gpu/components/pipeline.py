"""Components of a whole raster, streamed: `label_components`.

1. *Survey*: every block is read and labelled; what is at its rim, and where its other components
   begin, is kept.
2. *Join*: components are joined over the lines between blocks, and numbered.
3. *Label*: every block is read and labelled again, now with its final labels, and written.

Labelling twice is cheaper than keeping labels in between, which are larger than the cells.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import Connectivity, checked
from ..compiled import known_types, tell_compiling
from ..engine.plan import (
    COMPILED_BASELINE,
    MB,
    StreamPlan,
    format_size,
    layer_bytes,
    limit_of,
    other_blocks,
    threads_of,
)
from ..engine.schedule import missing, stream
from ..errors import InputError, PlanError, StoreError
from ..grid import MIN_BLOCK, Block, BlockGrid, Window, ceil_div
from ..primitives.grid_components import label_block, most_labels
from ..progress import Progress, silent
from ..report import Report
from ..store import Layer, LayerWriter, TileStore, create_layer
from ..store.files import output_errors
from .block import CELLS, MEASURES, count_firsts, measure, number, rename, rim_slots
from .expression import Expression
from .joins import Joins, joins_bytes

if TYPE_CHECKING:
    from .table import Rows

log = logging.getLogger(__name__)

LAYER = "components"
_STRIP = 1 << 16
"""Cells for which a condition is evaluated together: their temporaries stay in the cache."""


@dataclass
class Components:
    """Connected components of a condition.

    Attributes
    ----------
    layer
        The store's layer of labels: 1, 2, ... in the order of the components' first cells, row by
        row; 0 outside.
    count
        Components.
    cells
        Cells inside.
    report
        The run's `Report`.
    """

    layer: Layer
    count: int
    cells: int
    report: Report

    def labels(self) -> np.ndarray:
        """All labels in memory."""
        return self.layer.read_window(*self.layer.grid.window)


@checked()
def label_components(
    store: str | os.PathLike[str] | TileStore,
    where: str,
    *,
    connectivity: Connectivity = 8,
    into: str = LAYER,
    table: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Components:
    """Label the connected components of the cells where a condition holds.

    Labels are dense and ordered by the components' first cells, so they do not depend on blocks,
    memory limit and threads.

    Parameters
    ----------
    store
        A store, or its path.
    where
        A condition on its layers, such as ``"0 < elevation <= 100"``; see `expression`.
    connectivity
        8 or 4.
    into
        The layer that receives the labels: uint32, or int64 where the raster has room for 2**32
        components; nodata is 0.
    table
        Also write label, cells, area and box of each component, to .csv, .parquet or .geojson.
        Areas are in square metres on the ellipsoid for a geographic CRS, else in square map units.
    memory_limit
        Bound on the peak resident set of the process, bytes; a quarter of RAM when None.
    threads
        Threads; all processors when None.
    resume
        Go on with an unfinished run.
    overwrite
        Replace an existing layer and table, at the end.
    progress
        Called with the cells just done and the cells of both passes.

    Raises
    ------
    InputError
        when the condition, the connectivity or a name cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or has such a layer already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.

    Notes
    -----
    Union-find in each block, then over the lines between blocks; docs/design/components.md.
    """
    report = Report("label-components")
    store = store if isinstance(store, TileStore) else TileStore.open(store)
    condition = Expression(where, store.layers)
    if into in condition.layers:
        raise InputError(f"{store.path}: layer {into!r} is read; give the labels another name")
    store.refuse_foreign(into, "where", "components", "labels")
    sources = [store.layer(name) for name in condition.layers]
    grid, block = store.grid, max(source.block_size for source in sources)
    plan = plan_components(
        grid.rows,
        grid.cols,
        [source.dtype for source in sources],
        block,
        connectivity=connectivity,
        table=table is not None,
        source_bytes=sum(source.info.get("stored_bytes") or 0 for source in sources),
        memory_limit=memory_limit,
        threads=threads,
    )
    for line in plan.describe().splitlines():
        log.info("%s", line)
    if table is not None:
        from ..grid.lengths import area_units
        from .table import Rows, checked_table, write_table  # brings GDAL

        target = checked_table(table, overwrite=overwrite)
        units, unit = area_units(grid)
    else:
        units = np.ones(grid.rows, np.int64)
    settings = {"where": where, "connectivity": connectivity, "table": table is not None}
    # What the layers hold, so that a run over other cells is not resumed.
    identity = {source.name: source.identity for source in sources}
    with (
        report.measured(),
        ExitStack() as stack,
        create_layer(
            store.path,
            into,
            grid,
            label_dtype(grid.rows, grid.cols, connectivity),
            nodata=0,
            block_size=block,
            settings={**settings, "layer": ", ".join(condition.layers), "of": identity},
            overwrite=overwrite,
            resume=resume,
        ) as writer,
    ):
        resumed = int(writer.done.sum())
        if writer.finished:
            found = writer.info["result"]
            if table is not None and not target.exists():
                raise StoreError(
                    f"{store.path}: layer {into!r} is complete and {table} is not there; "
                    "--overwrite without --resume makes both again"
                )
        else:
            with output_errors(writer.spill):
                _compile(writer.dtype)
                run = _Labelling(
                    condition,
                    sources,
                    writer,
                    plan,
                    units,
                    progress,
                    diagonal=connectivity == 8,
                    measured=table is not None,
                )
                with report.phase("survey"):
                    run.survey()
                with report.phase("join"):
                    run.joins.number()
                rows = None
                if table is not None:
                    writer.spill.mkdir(exist_ok=True)
                    rows = Rows(writer.spill / "rows", run.joins.count)
                    stack.callback(rows.close)
                with report.phase("label"):
                    run.label(rows)
                if rows is not None:
                    with report.phase("table"):
                        write_table(target, rows, grid, unit)
            found = {"components": run.joins.count, "cells": run.cells}
        with report.phase("commit"):
            layer = writer.commit({"result": found})
    report.settings = {**settings, "plan": plan.as_dict()}
    report.cells, report.valid_cells = grid.cells, found["cells"]
    report.result = {**found, "store": str(store.path), "layer": into, "blocks_resumed": resumed}
    if table is not None:
        report.result["table"] = os.fspath(table)
    return Components(layer, found["components"], found["cells"], report)


def label_dtype(rows: int, cols: int, connectivity: int) -> np.dtype:
    """Type of labels: uint32, which all GIS read, where no raster of this shape has too many."""
    return np.dtype(
        np.uint32 if _most(rows, cols, connectivity == 8) < 2**32 else np.int64
    ).newbyteorder("<")


def _most(rows: int, cols: int, diagonal: bool) -> int:
    """More components a raster of this shape cannot have."""
    return int(most_labels(rows, cols, diagonal))


def plan_components(
    rows: int,
    cols: int,
    dtypes: Sequence[np.dtype],
    block: int,
    *,
    connectivity: int = 8,
    table: bool = True,
    source_bytes: int | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
) -> StreamPlan:
    """The plan of a labelling, for as many components as there can be.

    Parameters
    ----------
    dtypes
        Types of the layers in the condition.
    block
        Side of a block, the layers'.
    table
        Whether to measure components for a table.
    source_bytes
        Size of their shards; of uncompressed ones without nodata when None.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    limit, threads = limit_of(memory_limit), threads_of(threads)
    blocks, cells = BlockGrid(rows, cols, block), block * block
    label = label_dtype(rows, cols, connectivity).itemsize
    itemsizes = [dtype.itemsize for dtype in dtypes]
    buffer = cells * (sum(itemsizes) + label)
    scratch = cells * (sum(itemsizes) + 2 * label)  # of the reader and the writer
    # Mask, labels and temporaries of the condition; for each component two numbers in the block,
    # what is measured, the final label, and temporaries for the table.
    work = cells * (1 + 4) + 32 * _STRIP * len(dtypes)
    work += _most(block, block, connectivity == 8) * (4 + 4 + 8 * MEASURES + 8 + 20)
    held = joins_bytes(blocks, measured=table)
    always = COMPILED_BASELINE + held + scratch + 16 * rows
    for workers in range(min(threads, blocks.count), 0, -1):
        buffers = min(workers + 2, blocks.count)
        memory = always + workers * work + buffers * buffer
        while buffers > 1 and memory > limit:
            buffers, memory = buffers - 1, memory - buffer
        if memory <= limit:
            break
    else:
        raise PlanError(
            f"a memory limit of {format_size(limit)} is too small for the components of {rows} x "
            f"{cols} cells in blocks of {block}; give at least {ceil_div(memory, MB)} MB"
            + other_blocks("smaller" if work > held else "larger", block)
        )
    if source_bytes is None:
        source_bytes = sum(layer_bytes(rows, cols, size, block) for size in itemsizes)
    return StreamPlan.of_blocks(
        blocks,
        ", ".join(dtype.name for dtype in dtypes),
        buffers=buffers,
        readers=1,
        writers=1,
        workers=workers,
        passes=2,
        memory_limit=limit,
        memory=memory,
        bytes_read=2 * source_bytes,
        bytes_written=layer_bytes(rows, cols, label, block),
    )


@dataclass
class _Labelled:
    """A block whose components have the numbers of the block."""

    labels: np.ndarray
    found: np.ndarray
    slots: np.ndarray
    at_rim: int


def _labelled(
    mask: np.ndarray,
    labels: np.ndarray,
    window: Window,
    width: int,
    units: np.ndarray,
    diagonal: bool,
) -> _Labelled:
    """Label the block of `window`, of a raster of `width` columns, into `labels`."""
    count = label_block(mask, diagonal, labels)
    found = np.empty((count + 1, MEASURES), np.int64)
    slots = np.empty(count + 1, np.int32)
    measure(labels, window[0], window[2], width, units, found)
    return _Labelled(labels, found, slots, rim_slots(labels, slots))


def _surveyed(
    block: _Labelled, window: Window
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """What `Joins.add` wants of it."""
    labels, slots = block.labels, block.slots
    firsts = np.empty(len(labels), np.int64)
    left = np.empty(block.at_rim, np.int64)
    count_firsts(block.found, slots, window[0], firsts, left)
    sides = [slots[line] for line in (labels[0], labels[-1], labels[:, 0], labels[:, -1])]
    return sides, firsts, left, block.found[slots >= 0]


def _compile(dtype: np.dtype) -> None:
    """Load or compile the kernels, for labels of a type, in this thread, which Ctrl-C reaches."""
    if not known_types(measure):
        tell_compiling(measure, "components")
    blocks = BlockGrid(MIN_BLOCK + 1, 1, MIN_BLOCK)
    joins = Joins(blocks, diagonal=True, measured=True)
    for at in blocks.ids():
        window = blocks.window(*at)
        mask = np.ones((window[1] - window[0], 1), bool)
        labels = np.empty(mask.shape, np.int32)
        block = _labelled(mask, labels, window, 1, np.ones(len(mask), np.int64), True)
        joins.add(at, *_surveyed(block, window))
    joins.number()
    starts, at_rim, _, _ = joins.of(at)
    final = np.empty(2, np.int64)
    number(block.found, block.slots, window[0], starts, at_rim, final)
    rename(labels, final, np.empty(labels.shape, dtype))


class _Labelling:
    """Both passes over the blocks."""

    def __init__(
        self,
        condition: Expression,
        sources: list[Layer],
        writer: LayerWriter,
        plan: StreamPlan,
        units: np.ndarray,
        progress: Progress,
        diagonal: bool,
        measured: bool,
    ) -> None:
        self.condition, self.sources, self.writer = condition, sources, writer
        self.plan, self.units, self.progress, self.diagonal = plan, units, progress, diagonal
        self.blocks = writer.blocks
        self.joins = Joins(self.blocks, diagonal=diagonal, measured=measured)
        self.cells = 0
        self._local = threading.local()

    def survey(self) -> None:
        """Pass 1."""

        # One writer, so one thread that comes here.
        def note(at: Block, surveyed: tuple[Any, ...]) -> None:
            inside, *more = surveyed
            self.cells += inside
            self.joins.add(at, *more)

        def examine(at: Block, data: list[np.ndarray]) -> tuple[Any, ...]:
            window = self.blocks.window(*at)
            block = self._solved(window, data)
            return (int(block.found[1:, CELLS].sum()), *_surveyed(block, window))

        self._stream(self.blocks.ids(), examine, note)

    def label(self, rows: Rows | None) -> None:
        """Pass 2: every block that is not there already, or all where rows are wanted.

        Rows that a killed run has left are not trusted: a power cut may have taken some.
        """

        def final(at: Block, data: list[np.ndarray]) -> np.ndarray:
            window = self.blocks.window(*at)
            block = self._solved(window, data)
            starts, labels, own, whole = self.joins.of(at)
            numbers = np.empty(len(block.slots), np.int64)
            number(block.found, block.slots, window[0], starts, labels, numbers)
            if rows is not None:
                rows.put(block.found, block.slots, own, whole, numbers)
            out = data[-1]
            rename(block.labels, numbers, out)
            return out

        done = self.writer.done

        def save(at: Block, labels: np.ndarray) -> None:
            if not done[at]:
                self.writer.write_block(*at, labels)

        blocks = missing(self.blocks, lambda at: rows is None and done[at], self._advance)
        self._stream(blocks, final, save)

    def _advance(self, at: Block) -> None:
        r0, r1, c0, c1 = self.blocks.window(*at)
        self.progress((r1 - r0) * (c1 - c0), 2 * self.plan.rows * self.plan.cols)

    def _stream(self, items: Any, compute: Any, write: Any) -> None:
        block, kinds = self.blocks.block, [source.dtype for source in self.sources]

        def read(at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
            r0, r1, c0, c1 = window = self.blocks.window(*at)
            data = [
                source.read_ring(window, out, halo=0)
                for source, out in zip(self.sources, buffer, strict=False)
            ]
            shape = r1 - r0, c1 - c0
            return [*data, buffer[-1].reshape(-1)[: shape[0] * shape[1]].reshape(shape)]

        stream(
            items,
            read,
            write,
            compute=compute,
            buffers=[
                [np.empty((block, block), kind) for kind in (*kinds, self.writer.dtype)]
                for _ in range(self.plan.buffers)
            ],
            readers=self.plan.readers,
            workers=self.plan.workers,
            writers=self.plan.writers,
            done=self._advance,
        )

    def _solved(self, window: Window, data: list[np.ndarray]) -> _Labelled:
        """Label a block, in arrays of this thread that the next block takes again."""
        if not hasattr(self._local, "mask"):
            self._local.mask = np.empty(self.blocks.block**2, bool)
            self._local.labels = np.empty(self.blocks.block**2, np.int32)
        rows, cols = window[1] - window[0], window[3] - window[2]
        # Contiguous for every shape, so that the kernels are compiled once.
        mask = self._local.mask[: rows * cols].reshape(rows, cols)
        labels = self._local.labels[: rows * cols].reshape(rows, cols)
        layers = list(zip(self.condition.layers, data, self.sources, strict=False))
        step = max(_STRIP // cols, 1)
        for row in range(0, rows, step):
            part = slice(row, row + step)
            mask[part] = self.condition.holds(
                {name: (cells[part], source.nodata) for name, cells, source in layers}
            )
        units = self.units[window[0] : window[1]]
        return _labelled(mask, labels, window, self.blocks.cols, units, self.diagonal)
