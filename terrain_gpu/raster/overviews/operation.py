"""Build the overviews of layers: `build_overviews`."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ... import arguments
from ...arguments import Resampling, checked
from ...engine.machine import Machine
from ...engine.operation import Operation, OutputLayer, Phase, SolvedBlock
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.run import Here, Run, run
from ...errors import InputError, StoreError
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid, GridSpec, Window, clip
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer, TileStore
from ...store.levels import coarser, factors_of, is_level, levels_of, place_of, root_of
from ...store.manage import is_coded
from ...store.objects import named
from ...store.overviews import begin_level, list_levels
from .proof import verify_overview
from .reduce import METHODS, STRIP, reduce

log = logging.getLogger(__name__)

MARK = "overview_of"


@dataclass(frozen=True)
class Overview(Operation):
    """A layer of one level from that of the level before.

    Attributes
    ----------
    store
        Path of the level's store, which exists; see `store.levels`.
    """

    store: str
    layer: str
    resampling: str

    command = "overviews"
    mark = MARK
    phases = (Phase("overviews", writes=True),)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @cached_property
    def layers(self) -> list[Layer]:
        root, factor = root_of(named(self.store))
        return [TileStore.open(place_of(root, factor)).layer(self.layer)]

    @cached_property
    def grid(self) -> GridSpec:
        return TileStore.open(self.store).grid

    @property
    def blocks(self) -> BlockGrid:
        return BlockGrid(*self.grid.shape, self.layers[0].block_size)

    @property
    def shared(self) -> str:
        return str(root_of(named(self.store))[0])

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        (fine,) = self.layers
        units = ("units", "scale_factor", "add_offset")
        described = {name: fine.attributes[name] for name in units if name in fine.attributes}
        holds = "overviews"
        return (
            OutputLayer(
                self.layer,
                fine.dtype,
                fine.nodata,
                holds,
                described=described,
                compress=fine.compress,
            ),
        )

    def settings(self) -> Settings:
        return {MARK: self.layer, "resampling": self.resampling}

    def fingerprint(self) -> Settings:
        # Not "of", which names layers of the same store.
        return {**self.settings(), "finer": self.layers[0].identity}

    def refuse(self, *, overwrite: bool) -> None:
        """Reject averages of integers that float64 does not hold, and replacing another layer."""
        dtype = self.layers[0].dtype
        if self.resampling == "average" and dtype.kind in "iu" and dtype.itemsize == 8:
            raise InputError(
                f"{self.shared}: layer {self.layer!r} holds {dtype.name}, whose averages are not "
                "exact; choose nearest, min, max or mode"
            )
        for output in self.outputs:
            output.refuse(self, overwrite=overwrite)

    def plan(self, machine: Machine) -> StreamPlan:
        (fine,) = self.layers
        block, size = fine.block_size, fine.dtype.itemsize
        rows, cols = (min(block, side) for side in self.grid.shape)
        return fit_blocks(
            self.blocks,
            fine.dtype.name,
            "for overviews of",
            buffer=5 * rows * cols * size,
            worker=16 * STRIP * cols * (size + 24),
            # Tiles and shard of a writer, and what a reader decodes.
            scratch=3 * self.blocks.largest(tiled=True) * size,
            compiled=False,
            bytes_read=layer_bytes(*fine.grid.shape, size, block),
            bytes_written=layer_bytes(*self.grid.shape, size, block),
            machine=machine,
        )

    def new_buffer(self) -> list[np.ndarray]:
        rows, cols = (min(self.blocks.block, side) for side in self.grid.shape)
        dtype = self.layers[0].dtype
        return [np.empty(4 * rows * cols, dtype), np.empty(rows * cols, dtype)]

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        r0, r1, c0, c1 = self.window(at)
        windows = []
        fine = finer_window((r0, r1, c0, c1), self.layers[0].grid)
        for (top, bottom, left, right), flat in zip((fine, (r0, r1, c0, c1)), buffer, strict=True):
            shape = bottom - top, right - left
            windows.append(flat[: shape[0] * shape[1]].reshape(shape))
        self.layers[0].read_window(*fine, windows[0])
        return windows

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        reduce(cells[0], self.layers[0].nodata, self.resampling, out[0])
        return SolvedBlock(tuple(out))

    def verify(self, run: Run, totals: Findings) -> Findings:
        (fine,) = self.layers
        verify_overview(fine, run.layer(self.layer), self.resampling, run.proof_limits)
        return {"verified_cells": self.grid.cells}


def finer_window(window: Window, fine: GridSpec) -> Window:
    """The cells that a window of the next level is made from."""
    r0, r1, c0, c1 = window
    return clip((2 * r0, 2 * r1, 2 * c0, 2 * c1), fine.window)


def _usual(store: TileStore, name: str) -> str:
    """Return how a layer was reduced before, or else the default of its type: integers may be
    codes."""
    layer = store.layer(name)
    coded = is_coded(layer)
    for _, level in levels_of(store):
        with contextlib.suppress(StoreError, KeyError, TypeError):
            overview = level.find(name)
            resampling = overview.info["settings"]["resampling"] if overview else None
            if resampling in METHODS and not (coded and resampling == "average"):
                return str(resampling)
    return "average" if layer.dtype.kind == "f" and not coded else "nearest"


def _resampling(store: TileStore, name: str, requested: str | None, *, chosen: bool) -> str:
    """Return how to reduce a layer; `chosen` says whether it was named, or is one of all."""
    if requested == "average" and is_coded(store.layer(name)):
        problem = (
            f"{store.path}: layer {name!r} holds codes or labels, whose averages are meaningless"
        )
        if chosen:
            raise InputError(f"{problem}; choose nearest or mode")
        usual = _usual(store, name)
        log.warning("%s; it is reduced by %s", problem, usual)
        return usual
    return requested or _usual(store, name)


@checked(layers=arguments.names)
def build_overviews(
    store: str | os.PathLike[str] | TileStore,
    *,
    layers: Sequence[str] | None = None,
    resampling: Resampling | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Build overviews of layers: coarser levels that programs show when they zoom out.

    Each level has cells twice as wide and high as the one before, until no side has more than 256.
    A level is a store in the folder ``overviews`` of the store, such as ``dem.zarr/overviews/8``.
    The group lists them according to the Zarr convention "multiscales". Existing overviews of the
    current cells are kept; others are built again. A command that replaces a layer removes its
    overviews.

    Parameters
    ----------
    store
        A store, or its path.
    layers
        Names of layers; all when None.
    resampling
        How one cell is made of the valid ones among the two by two cells of the level before:
        "average" (of integers, rounded to even), "nearest" (the upper left one, valid or not),
        "min", "max" or "mode" (the most frequent; the first of several). None keeps the previous
        method, or else means "average" for floats other than aspects and "nearest" for the rest.
        Codes and labels, such as flow directions and basins, are not averaged: this is an error if
        `layers` names them; otherwise they are reduced as by None.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify each level before it appears.
    resume
        Continue an unfinished run.
    overwrite
        Rebuild existing overviews.
    progress
        Called with the cells just done and all cells, of all levels.

    Returns
    -------
    Report
        ``result`` has "store" and "layers": for each layer, the resampling, and the factors of the
        levels that were "built" and "kept".

    Raises
    ------
    InputError
        for the average of 64-bit integers, or of codes and labels.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, lacks a layer, or is a level itself.
    OutputError
        when the disk is full. Finished levels, and blocks of the last one, are kept.
    VerificationError
        when the proof fails; the level does not appear then.

    Examples
    --------
    >>> build_overviews("dem.zarr", layers=["elevation"]).result["layers"]
    {'elevation': {'resampling': 'average', 'built': [2, 4, 8], 'kept': []}}
    """
    opened = TileStore.open(store)
    root = opened.path
    if is_level(root):
        raise StoreError(f"{root}: an overview of {root_of(root)[0]}; build the overviews of that")
    names = list(dict.fromkeys(opened.layers if layers is None else layers))
    for name in layers or ():
        opened.layer(name)  # also of rasters too small for levels
    grids = [opened.grid]
    factors = factors_of(opened.grid)
    for _ in factors:
        grids.append(coarser(grids[-1]))
    chosen = layers is not None
    methods = {name: _resampling(opened, name, resampling, chosen=chosen) for name in names}
    all_cells = len(names) * (1 + verify) * sum(grid.cells for grid in grids[1:])
    limits: Settings = {"memory_limit": memory_limit, "threads": threads}
    if client is not None:
        from ...engine.cluster import Cluster  # start-up time counts

        client = Cluster(client, str(root))
    report = Report("overviews")
    report.cells = opened.grid.cells
    results: dict[str, Findings] = {
        name: {"resampling": methods[name], "built": [], "kept": []} for name in names
    }
    with report.measured():
        for name in names:
            for factor, grid in zip(factors, grids[1:], strict=True):
                begin_level(root, factor, grid)
                operation = Overview(str(place_of(root, factor)), name, methods[name])
                if _is_fresh(operation) and not overwrite:
                    results[name]["kept"].append(factor)
                    progress(grid.cells * (1 + verify), all_cells)
                    continue
                result = run(
                    operation,
                    **limits,
                    client=client,
                    verify=verify,
                    resume=resume,
                    overwrite=overwrite or name in TileStore.open(operation.store),
                    place=Here(lambda cells, _: progress(cells, all_cells)),
                )
                results[name]["built"].append(factor)
                for phase, seconds in result.report.seconds.items():
                    report.seconds[phase] = report.seconds.get(phase, 0.0) + seconds
        list_levels(opened)
    report.settings = {"layers": names, "resampling": resampling, "verify": verify}
    if client is not None:
        report.settings["cluster"] = client.settings()
    report.result = {"store": str(root), "layers": results}
    return report


def _is_fresh(operation: Overview) -> bool:
    """Whether the level has the layer, made from the present cells in the same way."""
    level = TileStore.open(operation.store)
    if operation.layer not in level.layers:
        return False
    try:
        return level.layer(operation.layer).info.get("settings") == operation.fingerprint()
    except StoreError:  # damaged: build it again
        return False
