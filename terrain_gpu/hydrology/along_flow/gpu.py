"""Operations along flow directions on a whole raster on a GPU: `accumulate`, `raise_levels`.

Sums start at all cells without inflow and are passed downstream. Where flow paths meet, the thread
that arrives last continues. Sums are whole numbers, so their order does not matter.

Levels use pointer doubling: each cell stores a cell further down its flow path and the highest cell
before it, until that cell is the end of the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...cuda.arrays import DeviceArray
from ...cuda.device import CELL_TYPES
from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...engine.run import Run
from ...errors import StoreError
from ...facts import Findings, Settings
from ..common.codes import no_code
from ..common.flow_loops import loop_error
from ..common.gpu import ResidentRaster, plan_resident, resident
from ..common.sums import SumRule
from .operation import AlongFlow

if TYPE_CHECKING:
    from ..fill.operation import PlainFill
    from ..flow_accumulation.operation import FlowSums

BAD, DRAINED, PASSED = range(3)
"""Counters of ``cuda/kernels/flow.cu``."""

HEAD, END, NOWHERE = 16, 8, 255
"""Marks of its kernels."""


def macros(dtype: np.dtype, sums: str = "u64") -> Settings:
    """Return the macros of ``cuda/kernels/flow.cu`` for a type of elevations and of sums."""
    return {"CELL": CELL_TYPES[dtype.name], "SUM": sums}


def variants() -> list[Settings]:
    """Return macros that cover every type of elevations and of sums."""
    return [macros(np.dtype(dtype)) for dtype in CELL_TYPES] + [macros(np.dtype(np.uint8), "u32")]


def plan_along(operation: AlongFlow, machine: Machine) -> StreamPlan:
    """Plan `accumulate` or `raise_levels`.

    Raises
    ------
    PlanError
        If the raster does not fit the memory limits.
    """
    read, written = [layer.dtype for layer in operation.layers], operation.layers_out[0].dtype
    # Sums need a byte per cell for the inflow that it waits for; levels a word of two cell indices.
    work = 1 if len(read) == 1 else 8
    return plan_resident(
        operation.blocks,
        operation.command,
        read,
        written,
        cell=sum(dtype.itemsize for dtype in (*read, written)) + work,
        machine=machine,
    )


def accumulate(operation: FlowSums, run: Run) -> Settings:
    """Write the sum of what drains through each cell.

    Raises StoreError if a cell holds no D8 code, or the directions have a cycle.
    """
    import cupy

    rule = operation.rule
    assert isinstance(rule, SumRule)
    kind = "u32" if rule.dtype.itemsize == 4 else "u64"
    with resident(run, "flow", macros(np.dtype(np.uint8), kind)) as raster:
        (steps,) = raster.read(operation.layers[0])
        with raster.phase("sum"):
            notes = _read_codes(operation, raster, steps)
            waiting, sums = raster.empty(np.uint8), raster.empty(f"u{rule.dtype.itemsize}")
            units = cupy.asarray(rule.units)
            raster.launch("start_sums", steps, units, waiting, sums)
            raster.launch("pass_on", steps, waiting, sums, notes)
            counts = notes.get().tolist()
            if counts[PASSED] != counts[DRAINED]:
                on_cycle = (waiting > 0) & (waiting < HEAD) & (steps != NOWHERE)
                raise _cycle(operation, raster, cupy.flatnonzero(on_cycle))
            floats, without = rule.dtype.kind == "f", rule.exclude_self
            output = np.int32(floats), np.float64(rule.unit), np.int32(without)
            raster.launch("write_sums", steps, units, *output, sums)
        raster.write(operation.into, sums.view(rule.dtype))
    return {}


def raise_levels(operation: PlainFill, run: Run) -> Findings:
    """Raise each cell to its filled level, and write that.

    Raises StoreError if a cell holds no D8 code, or the directions have a cycle.
    """
    import cupy

    codes, heights = operation.layers
    with resident(run, "flow", macros(heights.dtype)) as raster:
        steps, cells = raster.read(codes, heights)
        with raster.phase("raise"):
            _read_codes(operation, raster, steps)
            words = cupy.arange(raster.size, dtype=np.uint64)
            raster.launch("start_ways", steps, words)
            unfinished = cupy.zeros(1, np.int32)
            for _ in range(raster.size.bit_length() + 1):
                unfinished[...] = 0
                raster.launch("jump", cells, steps, words, unfinished)
                if not int(unfinished[0]):
                    break
            else:  # paths longer than the raster has cells are on a cycle
                after = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
                raise _cycle(operation, raster, after[steps[after] < END])
            out = raster.empty(heights.dtype)
            raster.launch("levels", cells, words, out)
        raster.write(operation.into, out)
    return {}


def _read_codes(operation: AlongFlow, raster: ResidentRaster, codes: DeviceArray) -> DeviceArray:
    """Replace codes with directions that stop where flow paths end; return the counters."""
    layer = operation.layers[0]
    notes = raster.cupy.zeros(3, np.uint64)
    notes[BAD] = 2**64 - 1
    nodata = -1 if layer.nodata is None else int(layer.nodata)
    raster.launch("decode", np.int32(nodata), codes, notes)
    bad = int(notes[BAD])
    if bad != 2**64 - 1:
        row, col = divmod(bad, raster.blocks.cols)
        raise no_code(layer, row, col, layer.read_ring((row, row + 1, col, col + 1), halo=0)[0, 0])
    raster.launch("end_ways", codes)
    return notes


def _cycle(operation: AlongFlow, raster: ResidentRaster, cells: DeviceArray) -> StoreError:
    """Return the error for cycles, which names the first of their cells."""
    rows, cols = operation.grid.shape
    positions = map(raster.position, raster.cupy.asnumpy(cells).tolist())
    first = min((row, col) for row, col in positions if row < rows and col < cols)
    return loop_error(operation.layers[0], *first)
