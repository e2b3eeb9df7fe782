"""Runs programs of formulas in compiled code, on many steps at once.

Each operation is a loop over registers that are rows of an array, so it is vectorised, and what
it costs to choose the operation is shared by a row of steps. No formula is compiled by itself.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload, register_jitable

from .. import instructions
from . import functions
from .program import (
    ABS,
    ADD,
    ATAN,
    DIVIDE,
    EQUAL,
    EXP,
    FRICTION_FROM,
    FRICTION_TO,
    INPUTS,
    LENGTH,
    LESS,
    LESS_EQUAL,
    LOG,
    MAX,
    MIN,
    MULTIPLY,
    SQRT,
    SUBTRACT,
    UNEQUAL,
    WHERE,
    Z_FROM,
    Z_TO,
)


@overload(functions.bits_of)
def _compiled_bits_of(x):
    return lambda x: instructions.bits_of(x)  # noqa: PLW0108 - numba takes no intrinsic here


@overload(functions.float_of)
def _compiled_float_of(bits):
    return lambda bits: instructions.float_of(bits)  # noqa: PLW0108


@overload(functions.real)
def _compiled_real(whole):
    return lambda whole: instructions.real(whole)  # noqa: PLW0108


@overload(functions.quotient)
def _compiled_quotient(a, b):
    return lambda a, b: instructions.quotient(a, b)  # noqa: PLW0108


@overload(functions.select)
def _compiled_select(condition, yes, no):
    return lambda condition, yes, no: instructions.select(condition, yes, no)  # noqa: PLW0108


_exp = register_jitable(functions.exp)
_log = register_jitable(functions.log)
_atan = register_jitable(functions.atan)


@register_jitable
def new_registers(formula, width):
    """Registers for `width` steps, with the constants."""
    registers = np.empty((formula.registers, width))
    for k in range(len(formula.constants)):
        registers[INPUTS + k] = formula.constants[k]
    return registers


@register_jitable
def run(code, registers):
    """Run a program; the inputs are in the first registers.

    Long because it holds a loop for each operation.
    """
    width = registers.shape[1]
    for n in range(len(code)):
        operation, to = code[n, 0], registers[code[n, 1]]
        a, b = registers[code[n, 2]], registers[code[n, 3]]
        if operation == ADD:
            for x in range(width):
                to[x] = a[x] + b[x]
        elif operation == SUBTRACT:
            for x in range(width):
                to[x] = a[x] - b[x]
        elif operation == MULTIPLY:
            for x in range(width):
                to[x] = a[x] * b[x]
        elif operation == DIVIDE:
            for x in range(width):
                to[x] = instructions.quotient(a[x], b[x])
        elif operation == ABS:
            for x in range(width):
                to[x] = abs(a[x])
        elif operation == SQRT:
            for x in range(width):
                to[x] = math.sqrt(a[x])
        elif operation == EXP:
            for x in range(width):
                to[x] = _exp(a[x])
        elif operation == LOG:
            for x in range(width):
                to[x] = _log(a[x])
        elif operation == ATAN:
            for x in range(width):
                to[x] = _atan(a[x])
        elif operation == MIN:
            for x in range(width):
                to[x] = b[x] if (b[x] < a[x]) | (b[x] != b[x]) else a[x]
        elif operation == MAX:
            for x in range(width):
                to[x] = b[x] if (b[x] > a[x]) | (b[x] != b[x]) else a[x]
        elif operation == LESS:
            for x in range(width):
                to[x] = 1.0 if a[x] < b[x] else 0.0
        elif operation == LESS_EQUAL:
            for x in range(width):
                to[x] = 1.0 if a[x] <= b[x] else 0.0
        elif operation == EQUAL:
            for x in range(width):
                to[x] = 1.0 if a[x] == b[x] else 0.0
        elif operation == UNEQUAL:
            for x in range(width):
                to[x] = 1.0 if a[x] != b[x] else 0.0
        elif operation == WHERE:
            c = registers[code[n, 4]]
            for x in range(width):
                to[x] = b[x] if a[x] != 0.0 else c[x]


def one_step(formula, a, b, fa, fb, length):
    """The edge function of formulas, for one step."""
    registers = new_registers(formula, 1)
    registers[Z_FROM, 0], registers[Z_TO, 0] = a, b
    registers[FRICTION_FROM, 0], registers[FRICTION_TO, 0] = fa, fb
    registers[LENGTH, 0] = length
    run(formula.code, registers)
    return registers[formula.result, 0]
