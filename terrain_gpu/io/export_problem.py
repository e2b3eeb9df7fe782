"""The operation that exports a layer to a raster file: `Export`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..cells import is_nodata, near, stats
from ..engine.machine import BASELINE, MB, Machine
from ..engine.operation import Operation, OutputFile, Phase, SolvedBlock, State
from ..engine.plan import StreamPlan, format_size
from ..engine.plan_stream import SourceShape, plan_stream
from ..engine.proof import Limits
from ..engine.run import Run
from ..errors import InputError, PlanError
from ..facts import Findings, Settings
from ..grid import Block, BlockGrid, GridSpec, Window, ceil_div, clip
from ..grid.neighbours import DEGREES, FLOW_DIRECTIONS, FORWARD_EDGES, no_direction, symmetric
from ..store import Layer
from ..store.manage import is_coded
from . import nextxy
from .encodings import encoded, encoding_dtype, to_own_codes
from .geotiff import OutputProfile, RasterOutput
from .nextxy import NEXTXY
from .proof.nextxy import PLANNED, plan_next_cells, verify_next_cells
from .proof.raster import plan_raster, verify_raster

# Ordered, so that equal runs write equal bytes.
EXPORT = Phase("export", writes=True, ordered=True)

log = logging.getLogger(__name__)


def plan_export(
    blocks: BlockGrid,
    kinds: tuple[np.dtype, np.dtype],
    profile: OutputProfile,
    stored: int,
    machine: Machine,
) -> StreamPlan:
    """Plan the export of a layer.

    Parameters
    ----------
    kinds
        Types of the cells of the layer and of the file.
    stored
        Size of the stored layer, in bytes.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    limit, (source, kind) = machine.memory_limit, kinds
    copying = profile.copying((blocks.rows, blocks.cols))
    copying += BASELINE * bool(copying)
    if copying > limit:
        raise PlanError(
            f"a memory limit of {format_size(limit)} is too small to make overviews; give at "
            f"least {ceil_div(copying, MB)} MB"
        )
    chunk = blocks.block, blocks.block
    plan = plan_stream(
        *(blocks.rows, blocks.cols),
        PLANNED if profile.bands == 2 else max(source, kind, key=lambda one: one.itemsize),
        SourceShape(chunk, source.itemsize, stored, extra=1, libraries=profile.writing),
        machine=machine,
        block_size=blocks.block,
    )
    return replace(plan, memory=max(plan.memory, copying))


def profile_within(most: OutputProfile, plan: Callable[[OutputProfile], object]) -> OutputProfile:
    """The profile with the largest number of threads that can be planned."""
    while most.threads > 1:
        with suppress(PlanError):
            plan(most)
            break
        most = replace(most, threads=ceil_div(most.threads, 2))
    return most


@dataclass(frozen=True)
class Export(Operation):
    """The operation; its fields are the parameters of `export_layer`, with an absolute `path`."""

    store: str
    path: str
    layer: str = "elevation"
    bounds: tuple[float, float, float, float] | None = None
    cog: bool = False
    compress: str = "none"
    dtype: str | None = None
    encoding: str | None = None
    profile: OutputProfile = field(default=OutputProfile(), compare=False, repr=False)

    command = "export"
    mark = ""
    phases = (EXPORT,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.layer,)

    @property
    def outputs(self) -> tuple[OutputRaster, ...]:
        return (OutputRaster(self.path),)

    @property
    def source(self) -> Layer:
        return self.layers[0]

    @property
    def kind(self) -> np.dtype:
        """Dtype of the cells in the file."""
        if self.encoding is not None and self.encoding in DEGREES:
            return encoding_dtype(self.source, self.encoding)
        return nextxy.DTYPE if self.bands == 2 else np.dtype(self.dtype or self.source.dtype)

    @property
    def bands(self) -> int:
        return 2 if self.encoding == NEXTXY else 1

    @property
    def nodata(self) -> float | int | None:
        """Nodata value of the file."""
        if self.bands == 2:
            return nextxy.NONE
        if self.encoding is not None:
            return no_direction(self.encoding)
        return self.source.nodata if self.kind == self.source.dtype else math.nan

    @property
    def encoding_tag(self) -> str | None:
        """The tag of the file that names the encoding of its flow directions."""
        stored = "esri" if self.source.info.get("encoding") == FLOW_DIRECTIONS else None
        return self.encoding or stored

    @cached_property
    def part(self) -> Window:
        """The cells of the layer that `bounds` touch."""
        grid = self.source.grid
        try:
            return grid.window_of(self.bounds) if self.bounds else grid.window
        except InputError as error:
            error.reword(lambda text: f"{self.store}: {text}")
            raise

    @cached_property
    def grid(self) -> GridSpec:
        return self.source.grid.crop(self.part)

    def settings(self) -> Settings:
        settings = super().settings()
        del settings["path"], settings["profile"]
        if self.encoding is None:
            del settings["encoding"]
        return settings | {"bounds": list(self.bounds) if self.bounds else None}

    def fingerprint(self) -> Settings:
        return self.settings()

    def plan(self, machine: Machine) -> StreamPlan:
        return self._plan_with(self.profile, machine)

    def _plan_with(self, profile: OutputProfile, machine: Machine) -> StreamPlan:
        source, stored = self.source, self.source.info.get("stored_bytes") or 0
        blocks = BlockGrid(*self.grid.shape, source.block_size)
        return plan_export(blocks, (source.dtype, self.kind), profile, stored, machine)

    def within(self, machine: Machine) -> Export:
        """Return the operation with as many compressing threads as fit the limit."""
        most = OutputProfile(self.compress, self.cog, machine.threads, self.bands)

        def plan(profile: OutputProfile) -> object:
            return self._plan_with(profile, machine)

        return replace(self, profile=profile_within(most, plan))

    # The blocks of the layer, clipped to the part.

    def window(self, block: Block) -> Window:
        return clip(self.part, self.blocks.window(*block))

    def order(self, plan: StreamPlan) -> Iterator[Block]:
        return plan.blocks_of(self.part)

    def new_buffer(self) -> list[np.ndarray]:
        return [np.empty(self.blocks.largest(), self.source.dtype)]

    def read(self, block: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        part = self.window(block)
        if self.source.info.get("encoding") == FORWARD_EDGES:
            return [symmetric(self.source.read_ring(part))]
        if self.bands == 2:
            return [self.source.read_ring(part)]
        rows, cols = part[1] - part[0], part[3] - part[2]
        out = buffer[0][: rows * cols].reshape(rows, cols)
        return [self.source.read_window(*part, out=out)]

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _ValidCells()

    def solve(
        self,
        phase: Phase,
        block: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        (data,) = cells
        if self.bands == 2:
            to_own_codes(data, self.source.nodata)
            codes = data[1:-1, 1:-1]
            self._refuse_others(block, codes, nextxy.no_directions(codes))
            nextxy.end_outside(data, self.window(block), self.source.grid.shape)
            data_out = nextxy.next_cells(data, self.window(block), self.part)
            return SolvedBlock((data_out,), (int((data_out[0] != nextxy.NONE).sum()), 0))
        valid = stats(data, self.source.nodata).valid
        data_out = self._converted(block, data)
        return SolvedBlock((data_out,), (valid, self._lost(data_out)))

    def execute(self, run: Run) -> Findings:
        result = super().execute(run)
        if lost := result.pop("lost"):
            log.warning(
                "%s: %s valid cells are so close to the nodata value %s that GDAL reads them as "
                "nodata. If they are nodata, convert the raster again; if not, make a layer with "
                "calc, whose nodata value is NaN, and export that",
                self.path,
                f"{lost:,}",
                self.nodata,
            )
        with run.report.phase("commit"):
            run.writers[self.path].finish()
        return result

    def _lost(self, data: np.ndarray) -> int:
        """Number of valid cells that GDAL would read as nodata."""
        if data.dtype.kind != "f" or self.nodata is None or not math.isfinite(self.nodata):
            return 0
        return int(np.count_nonzero(near(data, self.nodata) & (data != self.nodata)))

    def plan_verify(self, machine: Machine) -> None:
        limits = Limits(machine)
        if self.bands == 2:
            plan_next_cells(self.source, self.part, limits)
        else:
            plan_raster(self.source, self.part, self.kind, limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        file, limits = run.writers[self.path].part, run.proof_limits
        if self.bands == 2:
            proven = verify_next_cells(file, self.source, self.part, limits, name=self.path)
            return {"verified_cells": proven["cells"]}
        proven = verify_raster(
            file,
            self.source,
            self.part,
            self.kind,
            limits,
            encoding=self.encoding_tag,
            name=self.path,
        )
        return {"verified_cells": proven["cells"]}

    def _converted(self, block: Block, data: np.ndarray) -> np.ndarray:
        """Cells in the encoding and the dtype of the file; in floats, nodata is NaN."""
        if self.encoding is not None:
            data = self._encoded(block, data)
        if self.kind == data.dtype:
            return data
        void = is_nodata(data, self.source.nodata)
        with np.errstate(over="ignore"):
            converted = data.astype(self.kind)
        converted[void] = np.nan
        beyond = np.isinf(converted)
        if beyond.any():
            row, col = np.argwhere(beyond)[0]
            top, _, left, _ = self.window(block)
            raise InputError(
                f"{self.source.path}: {data[row, col]} at row {top + row}, column {left + col} is "
                f"beyond the range of {self.kind.name}; write float64"
            )
        return converted

    def _encoded(self, block: Block, data: np.ndarray) -> np.ndarray:
        """Flow directions in another encoding."""
        assert self.encoding is not None
        to_own_codes(data, self.source.nodata)
        codes = encoded(self.source, self.encoding)[data]
        self._refuse_others(block, data, codes < -1)
        return codes.astype(encoding_dtype(self.source, self.encoding))

    def _refuse_others(self, block: Block, data: np.ndarray, wrong: np.ndarray) -> None:
        """Reject values that are not flow directions."""
        if wrong.any():
            row, col = np.argwhere(wrong)[0]
            top, _, left, _ = self.window(block)
            raise InputError(
                f"{self.source.path}: {data[row, col]} at row {top + row}, column {left + col} is "
                "not a flow direction; leave out --encoding"
            )


class _ValidCells(State):
    """Counts the valid cells, and those of them that GDAL would read as nodata."""

    def __init__(self) -> None:
        self.valid = self.lost = 0

    def add(self, phase: Phase, block: Block, counts: Any) -> None:
        self.valid += counts[0]
        self.lost += counts[1]

    def found(self) -> Findings:
        return {"valid_cells": self.valid, "lost": self.lost}


class OutputRaster(OutputFile):
    """The GeoTIFF that an `Export` writes."""

    def open(self, operation: Operation, *, resume: bool, overwrite: bool) -> RasterOutput:
        assert isinstance(operation, Export)
        source = operation.source
        described = {**source.attributes, "encoding": operation.encoding_tag}
        described["coded"] = operation.encoding_tag is not None or is_coded(source)
        return RasterOutput(
            Path(self.name),
            operation.grid,
            operation.kind,
            operation.nodata,
            operation.profile,
            described,
            source.path,
            operation.blocks,
            operation.part,
        )
