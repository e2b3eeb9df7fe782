"""The operation that converts rasters into a layer: `Convert`."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from .. import cells
from ..engine.machine import Machine, owns_process
from ..engine.operation import Operation, OutputLayer, Phase, SolvedBlock, State
from ..engine.plan import StreamPlan
from ..engine.plan_stream import SourceShape, plan_stream
from ..engine.proof import Limits
from ..engine.run import Run
from ..errors import ArgumentError, CellError, ClusterError, InputError, without_secrets
from ..facts import Findings, JsonObject, Settings
from ..grid import Block, BlockGrid, GridSpec, ceil_div
from ..grid.crs import same_crs
from ..grid.neighbours import BACKLINK_ENCODINGS, BACKLINKS, FLOW_DIRECTIONS
from ..plurals import counted
from ..report import return_large_arrays
from ..store import TileStore
from ..store.checksums import checksum, checksum_of_part, crc_of_json, joined_crc
from ..store.objects import has_store, is_url, named
from ..store.swap import absolute
from .crs import crs_name
from .encodings import encoding_of
from .fills import warn_of_fills
from .gdal import bound_cache, gdal_environment
from .inputs import offset_bytes
from .mosaic import Mosaic
from .proof.conversion import Conversion, plan_conversion, verify_conversion
from .recode import Recode, RecodeDirections

log = logging.getLogger(__name__)

PART = 1 << 28
"""Size of the part of a file, in bytes, whose checksum one task computes."""

_SHARED = "inputs must be visible to all hosts under the same path"


@dataclass(frozen=True)
class Convert(Operation):
    """The operation. `rasters` are the inputs; the other fields are those of `convert_dataset`.

    Blocks are read in groups that cover whole strips of the source, so each strip is decoded once.
    """

    store: str
    rasters: tuple[Any, ...]
    layer: str = "elevation"
    block_size: int | None = None
    band: int | None = None
    round_cells: bool = False
    dtype: str | None = None
    clamp_min: float | int | None = None
    nodata: float | int | None = None
    bounds: tuple[float, float, float, float] | None = None
    crs: str | None = None
    encoding: str | None = None

    command = "convert-dataset"
    mark = "inputs"
    phases = (Phase("convert", writes=True),)
    inputs = ()

    def sized(self, block_size: int | None, planned: Callable[[Convert], StreamPlan]) -> Convert:
        """Copy with this block size, or with the block size of the plan when None."""
        copy = replace(self, block_size=block_size)
        vars(copy)["mosaic"] = self.mosaic
        return copy.sized(planned(copy).block_size, planned) if block_size is None else copy

    @cached_property
    def mosaic(self) -> Mosaic:
        """The opened rasters."""
        return Mosaic(
            self.rasters, band=self.band, nodata=self.nodata, bounds=self.bounds, crs=self.crs
        )

    @cached_property
    def layers(self) -> list[Any]:
        return [self.mosaic]

    @cached_property
    def directions(self) -> str | None:
        """The encoding of flow directions in the rasters, from the option or tag; None if none."""
        return encoding_of(self.mosaic.inputs, self.encoding)

    @cached_property
    def recode(self) -> Recode | RecodeDirections:
        if self.directions is not None:
            for value, option in (
                (self.clamp_min, "{clamp_min}"),
                (self.round_cells, "{round_cells}"),
                (self.dtype, "{dtype}"),
            ):
                if value not in (None, False):
                    raise ArgumentError(
                        f"{{path}}: holds flow directions, to which {option} cannot be applied",
                        path=self.mosaic.inputs[0].path,
                    )
            mosaic = self.mosaic
            name = str(mosaic.inputs[0].path)
            return RecodeDirections(self.directions, mosaic.nodata, mosaic.cell_name, name)
        return Recode.of(
            self.mosaic,
            round_cells=self.round_cells,
            rounded=self.dtype,
            clamp_min=self.clamp_min,
            nodata=self.nodata,
        )

    @cached_property
    def others(self) -> list[str]:
        """Other layers of the store, which have the same grid as this one."""
        if not has_store(named(self.store)):
            return []
        existing = TileStore.open(self.store)
        same = self.mosaic.grid.same_place(existing.grid)
        return [name for name in existing.layers if name != self.layer] if same else []

    @cached_property
    def grid(self) -> GridSpec:
        """The grid of the rasters; as an existing store describes it, if it is the same grid."""
        grid = self.mosaic.grid
        if not has_store(named(self.store)):
            return grid
        existing = TileStore.open(self.store)
        if not grid.same_place(existing.grid):
            return grid
        if same_crs(grid.crs_wkt, existing.grid.crs_wkt):
            return replace(existing.grid)
        if self.others:
            raise InputError(
                f"{self.mosaic.inputs[0].path} and {self.store}: coordinate systems differ "
                f"({crs_name(self.mosaic.crs)} and {existing.grid.crs_name})"
            )
        return grid

    @cached_property
    def blocks(self) -> BlockGrid:
        assert self.block_size is not None
        return BlockGrid(*self.grid.shape, self.block_size)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        layer = OutputLayer(
            self.layer,
            self.recode.dtype,
            self.recode.nodata,
            described=self.mosaic.attributes,
            attributes=self._recorded,
            origin=self.mosaic.inputs[0].path,
        )
        return (layer,)

    @property
    def _recorded(self) -> Settings:
        """Attributes of the layer that tell this program what its cells are."""
        if self.directions is None:
            return getattr(self.mosaic.inputs[0], "recorded", {})
        back = self.directions in BACKLINK_ENCODINGS
        return {"encoding": BACKLINKS if back else FLOW_DIRECTIONS}

    @cached_property
    def _settings(self) -> Settings:
        settings = {
            # Other names may hold passwords, as those of databases do.
            "rasters": [one.path if one.files else None for one in self.mosaic.inputs],
            "inputs": self.mosaic.fingerprint(),
            "band": self.band,
            "round": self.round_cells,
            "clamp_min": cells.to_json(self.clamp_min),
            "nodata": cells.to_json(self.nodata),
            "bounds": list(self.bounds) if self.bounds else None,
            "crs": self.crs,
        }
        rare = {"encoding": self.directions, "dtype": self.dtype}
        return settings | {name: value for name, value in rare.items() if value is not None}

    def settings(self) -> Settings:
        return self._settings

    def fingerprint(self) -> Settings:
        return self.settings()

    def refuse(self, *, overwrite: bool) -> None:
        """Accept everything: any layer may be replaced, and the store need not exist."""

    def plan(self, machine: Machine) -> StreamPlan:
        source, kind = self.mosaic, self.recode.dtype
        shape = SourceShape(
            chunk=source.chunk,
            itemsize=max(source.dtype.itemsize, kind.itemsize),
            source_bytes=source.source_bytes,
            also_read=source.source_bytes,
            sequential=source.sequential,
            extra=int(len(source.inputs) > 1),
            decoding=source.decoding,
            libraries=offset_bytes(source.inputs),
        )
        return plan_stream(
            *self.grid.shape, kind, shape, machine=machine, block_size=self.block_size
        )

    # -- reading ------------------------------------------------------------------------------

    def order(self, plan: StreamPlan) -> Iterator[Block]:
        for unit in plan.units():
            yield from plan.blocks_of(unit)

    def groups(self, plan: StreamPlan, blocks: Iterator[Block]) -> Iterator[_Group]:
        down, across = (ceil_div(n, plan.block_size) for n in (plan.unit_rows, plan.unit_cols))
        for (i, j), unit in groupby(blocks, lambda block: (block[0] // down, block[1] // across)):
            left = j * across
            yield _Group.of((i * down, left), min(across, self.blocks.shape[1] - left), unit)

    def group_buffer(self, plan: StreamPlan) -> list[np.ndarray]:
        return [np.empty(plan.unit_rows * plan.unit_cols, self.mosaic.dtype)]

    def new_buffer(self) -> list[np.ndarray]:
        rows, cols = (min(self.blocks.block, side) for side in self.grid.shape)
        return [np.empty(rows * cols, self.mosaic.dtype)]

    def read_group(
        self, group: Iterable[Block], buffer: list[np.ndarray]
    ) -> Iterator[list[np.ndarray]]:
        first, last = (most(i for i, _ in group) for most in (min, max))
        start, end = (most(j for _, j in group) for most in (min, max))
        top, _, left, _ = self.window((first, start))
        _, bottom, _, right = self.window((last, end))
        data = buffer[0][: (bottom - top) * (right - left)].reshape(bottom - top, right - left)
        self.mosaic.read((top, bottom, left, right), data)
        windows = map(self.window, group)
        return ([data[a - top : b - top, c - left : d - left]] for a, b, c, d in windows)

    def read(self, block: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        (data,) = self.read_group([block], buffer)
        return data

    # -- running ------------------------------------------------------------------------------

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        if self.mosaic.decoding and owns_process():
            return_large_arrays()
        return _LostCells()

    def solve(
        self,
        phase: Phase,
        block: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        row, _, col, _ = self.window(block)
        return SolvedBlock((self.recode(cells[0], row, col),), self.mosaic.take_lost())

    def execute(self, run: Run) -> Findings:
        (writer,) = run.writers.values()
        alone = run.engine.slots == 1
        with SourceChecksums(self.mosaic.files if alone else []) as sums:
            try:
                lost = super().execute(run)["lost"]
                if lost:
                    log.warning(
                        "%s: %s the nodata value %s and became nodata; choose another value with "
                        "--nodata",
                        without_secrets(self.mosaic.inputs[0].path),
                        counted(
                            lost,
                            "cell that is valid according to its mask has",
                            "cells that are valid according to its mask have",
                        ),
                        self.nodata,
                    )
                if self.directions is None:
                    warn_of_fills(writer, self.mosaic.inputs[0].path)
                if not alone:
                    with run.report.phase("checksums"):
                        return {"sources": checksums_by(run, self.mosaic.files)}
            except CellError:
                run.forget()
                raise
            except InputError as error:
                if not writer.any_written():
                    raise
                raise InputError(
                    f"{error}; finished blocks are kept: --resume continues, --overwrite starts "
                    "again"
                ) from error
            with run.report.phase("convert"):
                return {"sources": sums.result()}

    def plan_verify(self, machine: Machine) -> None:
        (output,), files = self.outputs, self.mosaic.inputs
        limits = Limits(machine)
        plan_conversion(files, self.grid, output.dtype, self.blocks.block, limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        conversion = Conversion.of(self)
        proven = verify_conversion(run.layer(self.layer), conversion, run.proof_limits)
        return {"verified_cells": proven["cells"]}

    # -- in another process ---------------------------------------------------------------------

    @property
    def shared(self) -> str:
        store = absolute(self.store)
        return str(store if is_url(self.store) or store.is_dir() else store.parent)

    @property
    def _looks(self) -> str:
        """A digest of shape, type and file sizes: equal where processes see the same inputs."""
        grid, sizes = self.mosaic.grid, [os.path.getsize(f) for f in self.mosaic.files]
        return crc_of_json(sizes, [*grid.shape, *grid.transform], [self.mosaic.dtype.name])

    def __getstate__(self) -> JsonObject:
        # The other process may be in another folder.
        rasters = tuple(os.path.abspath(r) if os.path.exists(r) else r for r in self.rasters)
        state = {"store": str(absolute(self.store)), "rasters": rasters, "looks": self._looks}
        return super().__getstate__() | state

    def open(self) -> None:
        where = f"a worker on {socket.gethostname()}"
        bound_cache()
        try:
            with gdal_environment():
                same = self._looks == vars(self)["looks"]
        except InputError as error:
            raise ClusterError(f"{where} cannot read its input ({error}); {_SHARED}") from error
        if not same:
            self.close()
            raise ClusterError(
                f"{where} sees different files at the paths of the inputs; {_SHARED}"
            )
        if self.mosaic.decoding:
            return_large_arrays()

    def close(self) -> None:
        if "mosaic" in vars(self):
            self.mosaic.close()

    # -------------------------------------------------------------------------------------------

    def record(self, totals: Findings) -> Findings:
        return totals if totals["sources"] else {}

    def recorded(self, attributes: JsonObject) -> Findings:
        return {"sources": attributes.get("sources", [])}


@dataclass(frozen=True)
class _Group:
    """Blocks of a unit, row by row. A strip may have millions, so only runs of them are stored.

    Attributes
    ----------
    corner, across
        First block of the unit, and blocks in each of its rows.
    runs
        Positions in the unit.
    """

    corner: Block
    across: int
    runs: list[range]

    @classmethod
    def of(cls, corner: Block, across: int, blocks: Iterable[Block]) -> _Group:
        runs: list[range] = []
        for i, j in blocks:
            k = (i - corner[0]) * across + j - corner[1]
            if runs and runs[-1].stop == k:
                runs[-1] = range(runs[-1].start, k + 1)
            else:
                runs.append(range(k, k + 1))
        return cls(corner, across, runs)

    def __iter__(self) -> Iterator[Block]:
        for k in chain.from_iterable(self.runs):
            yield self.corner[0] + k // self.across, self.corner[1] + k % self.across


class _LostCells(State):
    """Counts cells that are valid according to a mask but have the nodata value the user chose."""

    def __init__(self) -> None:
        self.cells = 0

    def add(self, phase: Phase, block: Block, lost: Any) -> None:
        self.cells += lost

    def found(self) -> Findings:
        return {"lost": self.cells}


def checksums_by(run: Run, files: Sequence[str]) -> list[JsonObject]:
    """Return the same as `SourceChecksums`, computed by the workers of a cluster."""
    sizes = [os.path.getsize(path) for path in files]
    parts = (
        (k, os.path.abspath(files[k]), start, min(PART, size - start))
        for k, size in enumerate(sizes)
        for start in range(0, size, PART)
    )
    crcs: dict[tuple[int, int], int] = {}
    for k, start, crc in run.engine.each(run, _checksum, parts):
        crcs[k, start] = crc
    joined = [0] * len(files)
    for k, start in sorted(crcs):
        joined[k] = joined_crc(joined[k], crcs[k, start], min(PART, sizes[k] - start))
    return [
        {"path": path, "bytes": size, "crc32c": f"{crc:08x}"}
        for path, size, crc in zip(files, sizes, joined, strict=True)
    ]


def _checksum(
    operation: Convert, folder: Path | None, part: tuple[int, str, int, int]
) -> tuple[int, int, int]:
    """Compute the CRC-32C of a part of a file, given as number, absolute path, start and size."""
    k, path, start, size = part
    try:
        return k, start, checksum_of_part(path, start, size)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


class SourceChecksums:
    """Computes the CRC-32C of the source files in a thread during the conversion."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._stop = threading.Event()
        self._found: list[JsonObject] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SourceChecksums:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for path in self._files:
                try:
                    crc = checksum(path, self._stop)
                    size = os.path.getsize(path)
                except OSError as error:
                    raise InputError(f"{path}: cannot be read: {error.strerror}") from error
                if self._stop.is_set():  # the checksum may cover only a part of the file
                    return
                self._found.append({"path": path, "bytes": size, "crc32c": crc})
        except BaseException as error:  # raised in the caller's thread, by `result`
            self._error = error

    def result(self) -> list[JsonObject]:
        """Wait for the thread; return path, size and checksum of every file."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found
