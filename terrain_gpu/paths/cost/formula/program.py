"""Formulas as programs: a list of simple operations on registers, the same on CPU and GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .tree import FormulaTree

Z_FROM, Z_TO, FRICTION_FROM, FRICTION_TO, LENGTH, INPUTS = range(6)
"""Registers that hold what is known of a step; constants follow."""
INPUT_NAMES = "z_from", "z_to", "friction_from", "friction_to", "length"

OPERATIONS = [*("+", "-", "*", "/", "abs", "sqrt", "exp", "log", "atan", "min", "max")]
OPERATIONS += ["<", "<=", "==", "!=", "where"]
(ADD, SUBTRACT, MULTIPLY, DIVIDE, ABS, SQRT, EXP, LOG, ATAN, MIN, MAX) = range(11)
LESS, LESS_EQUAL, EQUAL, UNEQUAL, WHERE = range(11, 16)
"""Numbers of operations in a program."""

_IN_C = {
    **{sign: f"{{0}} {sign} {{1}}" for sign in ("+", "-", "*")},
    "/": "{0} / ({1} + 0.0)",
    **{sign: f"{{0}} {sign} {{1}} ? 1.0 : 0.0" for sign in ("<", "<=", "==", "!=")},
    "abs": "fabs({0})",
    "sqrt": "sqrt({0})",
    "exp": "formula_exp({0})",
    "log": "formula_log({0})",
    "atan": "formula_atan({0})",
    "min": "{1} < {0} || {1} != {1} ? {1} : {0}",
    "max": "{1} > {0} || {1} != {1} ? {1} : {0}",
    "where": "{0} != 0.0 ? {1} : {2}",
}
"""Operations in C, as in `machine`: min and max of a NaN are NaN, -0 divides as 0."""


class Formula(NamedTuple):
    """The kernel of a formula, as `models.Tobler` is one of Tobler's function.

    Unlike other models, all formulas have one type: kernels are compiled once for all of them.

    Attributes
    ----------
    code
        int64 (n, 5): operation, register of the result, registers of up to three operands.
    constants
        float64: what the registers from `INPUTS` on hold.
    registers
        Number of registers.
    result
        The register that holds the cost at the end.
    frictions
        Whether frictions are read.
    symmetric
        Whether a step and the one back cost the same.
    signed
        Whether costs may be negative.
    """

    code: np.ndarray
    constants: np.ndarray
    registers: int
    result: int
    frictions: bool
    symmetric: bool
    signed: bool


def compiled(tree: FormulaTree) -> Formula:
    """The program of a formula."""
    names = dict(zip(INPUT_NAMES, range(INPUTS), strict=True))
    numbers = [node for node in tree.nodes if node.op == "number"]
    places = {node: INPUTS + k for k, node in enumerate(numbers)}
    places |= {node: names[str(node.value)] for node in tree.nodes if node.op == "name"}
    last = {arg: node for node in tree.nodes for arg in node.args}
    code, free, registers = [], list[int](), INPUTS + len(numbers)
    for node in tree.nodes:
        if not node.args:
            continue
        if not free:
            free, registers = [registers], registers + 1
        operands = [places[arg] for arg in node.args]
        places[node] = free.pop()  # before those of operands are free: loops may assume no overlap
        free += {places[arg] for arg in node.args if arg.args and last[arg] is node}
        code.append([OPERATIONS.index(node.op), places[node], *operands, 0, 0][:5])
    return Formula(
        np.array(code, np.int64).reshape(-1, 5),
        np.array([node.value for node in numbers], np.float64),
        registers,
        places[tree.nodes[-1]],
        tree.needs_friction,
        tree.is_symmetric,
        tree.may_be_negative,
    )


def in_c(formula: Formula) -> str:
    """The program as statements of C that compute `cost` from a, b, fa, fb and length."""
    held = dict(enumerate(("a", "b", "fa", "fb", "length")))
    for k, bits in enumerate(formula.constants.view(np.uint64).tolist()):
        held[INPUTS + k] = f"__longlong_as_double({bits:#x}LL)"
    found = []
    for k, (operation, to, *operands) in enumerate(formula.code.tolist()):
        named = (held[register] for register in operands)
        found.append(f"f64 v{k} = {_IN_C[OPERATIONS[operation]].format(*named)};")
        held[to] = f"v{k}"
    return " ".join([*found, f"cost = {held[formula.result]};"])
