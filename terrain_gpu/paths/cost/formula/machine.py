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
def run(code, r):
    """Run a program; the inputs are in the first of the registers `r`.

    It holds a loop for each operation. Rows of `r` are not taken out of it, because
    numba would count references to each.
    """
    width = r.shape[1]
    for n in range(len(code)):
        operation, to, a, b = code[n, 0], code[n, 1], code[n, 2], code[n, 3]
        if operation == ADD:
            for x in range(width):
                r[to, x] = r[a, x] + r[b, x]
        elif operation == SUBTRACT:
            for x in range(width):
                r[to, x] = r[a, x] - r[b, x]
        elif operation == MULTIPLY:
            for x in range(width):
                r[to, x] = r[a, x] * r[b, x]
        elif operation == DIVIDE:
            for x in range(width):
                r[to, x] = instructions.quotient(r[a, x], r[b, x] + 0.0)  # -0 + 0 is 0
        elif operation == ABS:
            for x in range(width):
                r[to, x] = abs(r[a, x])
        elif operation == SQRT:
            for x in range(width):
                r[to, x] = math.sqrt(r[a, x])
        elif operation == EXP:
            for x in range(width):
                r[to, x] = _exp(r[a, x])
        elif operation == LOG:
            for x in range(width):
                r[to, x] = _log(r[a, x])
        elif operation == ATAN:
            for x in range(width):
                r[to, x] = _atan(r[a, x])
        elif operation == MIN:
            for x in range(width):
                r[to, x] = r[b, x] if (r[b, x] < r[a, x]) | (r[b, x] != r[b, x]) else r[a, x]
        elif operation == MAX:
            for x in range(width):
                r[to, x] = r[b, x] if (r[b, x] > r[a, x]) | (r[b, x] != r[b, x]) else r[a, x]
        elif operation == LESS:
            for x in range(width):
                r[to, x] = 1.0 if r[a, x] < r[b, x] else 0.0
        elif operation == LESS_EQUAL:
            for x in range(width):
                r[to, x] = 1.0 if r[a, x] <= r[b, x] else 0.0
        elif operation == EQUAL:
            for x in range(width):
                r[to, x] = 1.0 if r[a, x] == r[b, x] else 0.0
        elif operation == UNEQUAL:
            for x in range(width):
                r[to, x] = 1.0 if r[a, x] != r[b, x] else 0.0
        elif operation == WHERE:
            c = code[n, 4]
            for x in range(width):
                r[to, x] = r[b, x] if r[a, x] != 0.0 else r[c, x]


def one_step(formula, a, b, fa, fb, length):
    """The edge function of formulas, for one step."""
    registers = new_registers(formula, 1)
    registers[Z_FROM, 0], registers[Z_TO, 0] = a, b
    registers[FRICTION_FROM, 0], registers[FRICTION_TO, 0] = fa, fb
    registers[LENGTH, 0] = length
    run(formula.code, registers)
    return registers[formula.result, 0]
