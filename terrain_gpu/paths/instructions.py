"""Instructions of processors that numba has no name for."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def bits_of(typing, x):
    """A float64's bits as int64."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), emit


@intrinsic
def float_of(typing, bits):
    """The float64 with these bits."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def real(typing, whole):
    """An int64 as float64."""

    def emit(context, builder, signature, arguments):
        return builder.sitofp(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def quotient(typing, a, b):
    """a / b, without numba's test for zero, which prevents vectorisation."""

    def emit(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return types.float64(types.float64, types.float64), emit


@intrinsic
def select(typing, condition, yes, no):
    """One of two float64, without a branch."""

    def emit(context, builder, signature, arguments):
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), emit
