"""Compute an expression over the layers of a store, as an operation: `Calculation`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...cells import as_scalar, exact, layer_dtype
from ...engine.machine import Machine
from ...engine.operation import OutputLayer, Phase, SolvedBlock, State
from ...engine.plan import StreamPlan, fit_blocks, layer_bytes
from ...engine.proof import Limits
from ...engine.run import Run
from ...engine.tools import ToolOperation
from ...errors import ArgumentError, InputError, StoreError, plain
from ...facts import Findings, Settings
from ...grid import Block, BlockGrid
from ...store import TileStore
from ...tokens import named_store
from . import Calc
from .arithmetic import CONDITION, INTEGER, REAL, Arithmetic, Cells, TooLarge
from .classes import Classes, read_classes
from .proof import Sought, plan_calc_proof, verify_calc

_STRIP = 1 << 16
"""Number of cells computed at a time, so that temporaries stay in the cache."""

PARTS = 20
"""Number of layers, numbers and operations assumed for a plan."""

MOST_MISSING = 1000
"""Number of missing classes that are kept for the error message."""


class _Missing(InputError):
    """A table lacks classes."""


@dataclass(frozen=True)
class Calculation(ToolOperation):
    """The operation. `classes` is the content of the table."""

    asked: Calc
    classes: Classes | None = None

    phases = (Phase("calc", writes=True),)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        store = TileStore.open(self.store)
        dtypes = {}
        for name, layer in store.each():
            if isinstance(layer, StoreError):
                raise layer
            dtypes[name] = layer.dtype
        with named_store(store.path):
            return Arithmetic(self.asked.expression, dtypes)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.arithmetic.layers

    @cached_property
    def target(self) -> np.dtype:
        """Data type of the layer."""
        if self.asked.dtype is not None:
            return layer_dtype(self.asked.dtype)
        kind = self.arithmetic.kind
        if self.classes is not None:
            values = self.asked.default, *(value for _, value in self.classes)
            kind = REAL if any(isinstance(one, float) for one in values) else INTEGER
        return layer_dtype({CONDITION: "uint8", REAL: "float64"}.get(kind, "int64"))

    @property
    def nodata(self) -> float | int:
        if self.target.kind == "f":
            return math.nan
        info = np.iinfo(self.target)
        return int(info.max if self.target.kind == "u" else info.min)

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        return (OutputLayer(self.asked.into, self.target, self.nodata, "results of calc"),)

    def settings(self) -> Settings:
        classes = None if self.classes is None else [list(pair) for pair in self.classes]
        return {
            "calc_of": self.asked.expression,
            "dtype": self.target.name,
            "classes": classes,
            "default": self.asked.default,
        }

    def plan(self, machine: Machine) -> StreamPlan:
        layers = self.layers
        return plan_calc(
            self.blocks,
            [layer.dtype for layer in layers],
            self.target,
            parts=self.arithmetic.parts if self.store else PARTS,
            classes=len(self.classes or ()),
            stored=sum(layer.info.get("stored_bytes") or 0 for layer in layers),
            machine=machine,
        )

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        return _Lacking(self)

    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: object,
        work: object,
    ) -> SolvedBlock:
        window = self.blocks.window(*at)
        rows, cols = out[0].shape
        step = max(_STRIP // cols, 1)
        missing: set[float] = set()
        for row in range(0, rows, step):
            part = slice(row, row + step)
            layers = {
                name: (data[part], layer.nodata)
                for name, data, layer in zip(self.inputs, cells, self.layers, strict=True)
            }
            self._solve(layers, out[0][part], missing, (window[0] + row, window[2]))
        return SolvedBlock(tuple(out), sorted(missing))

    def _solve(
        self,
        layers: dict[str, Any],
        out: np.ndarray,
        missing: set[float],
        corner: tuple[int, int],
    ) -> None:
        """Compute cells of the layer; `corner` is the row and column of the first cell."""

        def refuse(k: int, gives: str, why: str) -> InputError:
            row, col = divmod(k, out.shape[1])
            return InputError(
                f"{self.store}: expression {self.asked.expression!r} gives {gives} at row "
                f"{corner[0] + row}, column {corner[1] + col}{why}"
            )

        try:
            result = self.arithmetic.over(layers)
        except TooLarge as error:
            remedy = "; multiply an integer by 1.0 to compute with real numbers"
            raise refuse(error.args[0], "an integer beyond int64", remedy) from None
        if self.classes is not None:
            result = self._reclassed(result, missing)
        self._convert(result, out, refuse)

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Possible classes in the type of results, their values, and the mask of nodata values."""
        assert self.classes is not None
        kind = INTEGER if self.arithmetic.kind == CONDITION else self.arithmetic.kind
        able = [(key, value) for key, value in self.classes if exact(key, kind)]
        void = np.array([value is None for _, value in able], bool)
        values = np.zeros(len(able), REAL if self.target.kind == "f" else self.target)
        for k in np.flatnonzero(~void).tolist():
            values[k] = as_scalar(able[k][1] or 0, values.dtype)
        return np.array([key for key, _ in able], kind), values, void

    def _reclassed(self, cells: Cells, missing: set[float]) -> Cells:
        keys, values, void = self.table
        classes = cells.values.astype(keys.dtype, copy=False)
        at = np.searchsorted(keys[1:], classes, side="right")
        lacks = ~cells.void & (keys[at] != classes)
        result, gone = values[at], cells.void | void[at]
        if lacks.any():
            default = self.asked.default
            if default is None:
                room = MOST_MISSING + 1 - len(missing)
                missing.update(np.unique(classes[lacks])[: max(room, 0)].tolist())
            elif isinstance(default, str):
                gone |= lacks
            else:
                gone &= ~lacks
                result[lacks] = as_scalar(default, result.dtype)
        return Cells(result, gone)

    def _convert(
        self, cells: Cells, out: np.ndarray, refuse: Callable[[int, str, str], InputError]
    ) -> None:
        """Write values in the data type of the layer; reject those that it cannot hold."""
        values, void = cells
        name = self.target.name
        if self.target.kind == "f":
            with np.errstate(over="ignore"):
                out[...] = values
            bad = ~void & ~np.isfinite(out)
        else:
            info = np.iinfo(self.target)
            low, high = info.min, info.max
            if values.dtype.kind == "f":
                with np.errstate(invalid="ignore"):
                    fine = (values >= float(low)) & (values < float(high) + 1) & (values % 1 == 0)
            elif values.dtype == CONDITION:
                fine = np.ones(values.shape, bool)
            else:
                limits = np.iinfo(values.dtype)
                fine = (values >= max(low, limits.min)) & (values <= min(high, limits.max))
            bad = ~void & ~fine
            with np.errstate(invalid="ignore"):
                np.copyto(out, np.where(fine & ~void, values, 0), casting="unsafe")
            bad |= ~void & (out == self.nodata)
        if bad.any():
            k = int(np.argmax(bad))
            remedy = f", which {name} cannot hold as a valid value; choose another type (--dtype)"
            raise refuse(k, str(values.flat[k]), remedy)
        out[void] = self.nodata

    def plan_verify(self, machine: Machine) -> None:
        limits, parts = Limits(machine), self.arithmetic.parts
        plan_calc_proof(self.blocks, self.layers, self.outputs[0], parts, limits)

    def verify(self, run: Run, totals: Findings) -> Findings:
        classes: Any = None if self.classes is None else dict(self.classes)
        sought = Sought(self.asked.expression, self.arithmetic.parts, classes, self.asked.default)
        sources = dict(zip(self.inputs, self.layers, strict=True))
        proven = verify_calc(sought, sources, run.layer(self.asked.into), run.proof_limits)
        return {"verified_cells": proven["cells"]}

    def execute(self, run: Run) -> Findings:
        try:
            return super().execute(run)
        except _Missing:
            run.forget()  # the blocks cannot be used with another table
            raise


def plan_calc(
    blocks: BlockGrid,
    kinds: Sequence[np.dtype],
    target: np.dtype,
    *,
    parts: int,
    classes: int = 0,
    stored: int | None = None,
    machine: Machine,
) -> StreamPlan:
    """Plan `calc` for layers of these types, and a result of the type `target`.

    Parameters
    ----------
    parts
        Number of operations, layers and numbers in the expression.
    classes
        Number of classes in the table.
    stored
        Bytes of the layers; None assumes full layers.

    Raises
    ------
    PlanError
        If the memory limit is too small.
    """
    size, tiled, shape, out = (
        blocks.largest(),
        blocks.largest(tiled=True),
        (blocks.rows, blocks.cols),
        target.itemsize,
    )
    read = sum(kind.itemsize for kind in kinds)
    if stored is None:
        stored = sum(layer_bytes(*shape, kind.itemsize, blocks.block) for kind in kinds)
    return fit_blocks(
        blocks,
        ", ".join(kind.name for kind in kinds),
        "to compute with",
        buffer=size * (read + out),
        # Values and masks of every part, and temporaries of one.
        worker=min(size, 2 * _STRIP) * (10 * parts + 64),
        scratch=tiled * (read + out),
        compiled=False,
        held=32 * classes,
        bytes_read=stored,
        bytes_written=layer_bytes(*shape, out, blocks.block),
        machine=machine,
    )


class _Lacking(State):
    """The classes that are missing from the table."""

    def __init__(self, operation: Calculation) -> None:
        self._operation = operation
        self._missing: set[float] = set()

    def add(self, phase: Phase, at: Block, message: Any) -> None:
        if len(self._missing) <= MOST_MISSING:
            self._missing.update(message)

    def found(self) -> Findings:
        if not self._missing:
            return {}
        names = ", ".join(str(one).removesuffix(".0") for one in sorted(self._missing)[:20])
        count = len(self._missing)
        others = f" and {count - 20} more" if count > 20 else ""
        others += ", or even more" if count > MOST_MISSING else ""
        expression = self._operation.asked.expression
        raise _Missing(
            f"{self._operation.store}: the table lacks classes of {expression!r}: "
            f"{names}{others}; add them, or set a value for them with --default"
        )


def calculation(store: TileStore | None, tool: Calc) -> Calculation:
    """Return the operation, after checking that its layer can hold the values of the table.

    Raises
    ------
    InputError
    """
    if store is None:
        return Calculation("", tool)
    reclass, default = tool.reclass, tool.default
    classes = None if reclass is None else read_classes(reclass)
    operation = Calculation(str(store.path), tool, classes)
    source = plain(f"{reclass}: its value")
    named_values = [(source, value) for _, value in classes or () if value is not None]
    if default is not None and not isinstance(default, str):
        named_values.append(("{default}", default))
    for name, one in named_values:
        if not exact(one, operation.target):
            raise ArgumentError(
                f"{name} {one} does not fit {operation.target.name}; choose another {{dtype}}"
            )
    if classes and not len(operation.table[0]):
        raise InputError(f"{reclass}: results of {tool.expression!r} cannot be one of its classes")
    return operation
