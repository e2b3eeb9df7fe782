"""What follows from flow directions, over a whole raster on a GPU: `accumulate`, `raise_levels`.

FlowSums are passed down from all cells into which nothing drains; where ways meet, the last one to
arrive goes on. They are whole numbers, so their order does not matter.

For levels, ways are doubled: each cell knows a cell further down its way, and the highest before
that one, until that is the way's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...cuda.device import CELL_TYPES
from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...engine.run import Run
from ...errors import StoreError
from ..common.codes import no_code
from ..common.flow_loops import circle
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


def macros(dtype: np.dtype, sums: str = "u64") -> dict[str, Any]:
    """Return the macros of ``cuda/kernels/flow.cu``, for types of heights and of sums."""
    return {"CELL": CELL_TYPES[dtype.name], "SUM": sums}


def variants() -> list[dict[str, Any]]:
    """Return macros that cover every type of heights, and of sums."""
    return [macros(np.dtype(dtype)) for dtype in CELL_TYPES] + [macros(np.dtype(np.uint8), "u32")]


def plan_along(operation: AlongFlow, machine: Machine) -> StreamPlan:
    """Plan `accumulate` or `raise_levels`.

    Raises
    ------
    PlanError
        when the raster does not fit one of the limits.
    """
    read, written = [layer.dtype for layer in operation.layers], operation.layers_out[0].dtype
    # FlowSums need a byte for the flow that a cell waits for; levels words of two cells.
    work = 1 if len(read) == 1 else 8
    return plan_resident(
        operation.blocks,
        operation.command,
        read,
        written,
        cell=sum(dtype.itemsize for dtype in (*read, written)) + work,
        machine=machine,
    )


def accumulate(operation: FlowSums, run: Run) -> dict[str, Any]:
    """Sum what drains through each cell, and write it; return what is found."""
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
            found = notes.get().tolist()
            if found[PASSED] != found[DRAINED]:
                on_circle = (waiting > 0) & (waiting < HEAD) & (steps != NOWHERE)
                raise _circle(operation, raster, cupy.flatnonzero(on_circle))
            floats, without = rule.dtype.kind == "f", rule.exclude_self
            how = np.int32(floats), np.float64(rule.unit), np.int32(without)
            raster.launch("write_sums", steps, units, *how, sums)
        raster.write(operation.into, sums.view(rule.dtype))
    return {}


def raise_levels(operation: PlainFill, run: Run) -> dict[str, Any]:
    """Raise each cell to its level, and write that; return what is found."""
    import cupy

    codes, heights = operation.layers
    with resident(run, "flow", macros(heights.dtype)) as raster:
        steps, cells = raster.read(codes, heights)
        with raster.phase("raise"):
            _read_codes(operation, raster, steps)
            words = cupy.arange(raster.size, dtype=np.uint64)
            raster.launch("start_ways", steps, words)
            left = cupy.zeros(1, np.int32)
            for _ in range(raster.size.bit_length() + 1):
                left[...] = 0
                raster.launch("jump", cells, steps, words, left)
                if not int(left[0]):
                    break
            else:  # what is farther than all cells of the raster lies on a circle
                after = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
                raise _circle(operation, raster, after[steps[after] < END])
            out = raster.empty(heights.dtype)
            raster.launch("levels", cells, words, out)
        raster.write(operation.into, out)
    return {}


def _read_codes(operation: AlongFlow, raster: ResidentRaster, codes: Any) -> Any:
    """Replace codes by directions that end where ways do; return the counters."""
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


def _circle(operation: AlongFlow, raster: ResidentRaster, cells: Any) -> StoreError:
    """Return the error for circles: at the first of their cells."""
    rows, cols = operation.grid.shape
    places = map(raster.position, raster.cupy.asnumpy(cells).tolist())
    first = min((row, col) for row, col in places if row < rows and col < cols)
    return circle(operation.layers[0], *first)
