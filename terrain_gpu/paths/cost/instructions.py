"""Instructions of processors that numba has no name for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def bits_of(typing: Any, x: Any) -> Any:
    """A float64's bits as int64."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), emit


@intrinsic
def float_of(typing: Any, bits: Any) -> Any:
    """The float64 with these bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def real(typing: Any, whole: Any) -> Any:
    """An int64 as float64."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def quotient(typing: Any, a: Any, b: Any) -> Any:
    """a / b, without numba's test for zero, which prevents vectorisation."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return types.float64(types.float64, types.float64), emit


@intrinsic
def select(typing: Any, condition: Any, yes: Any, no: Any) -> Any:
    """One of two float64, without a branch."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), emit
