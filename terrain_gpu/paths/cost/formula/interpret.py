"""A plain interpreter of formulas over arrays, which shares nothing with programs but `functions`.

Proofs and tests compare with it what programs compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import functions
from .tree import FormulaTree, Node


def evaluate(tree: FormulaTree, **step: Any) -> np.ndarray:
    """The costs of steps.

    Parameters
    ----------
    step
        float64 arrays z_from, z_to, friction_from, friction_to and length, of shapes that fit each
        other. Those that the formula does not use may be missing.
    """
    found: dict[Node, Any] = {}
    last = {arg: node for node in tree.nodes for arg in node.args}
    with np.errstate(all="ignore"):
        for node in tree.nodes:
            if node.op == "name":
                found[node] = np.asarray(step[str(node.value)], np.float64)
            elif node.op == "number":
                found[node] = np.float64(node.value)
            else:
                found[node] = _PLAIN[node.op](*(found[arg] for arg in node.args))
                for arg in {*node.args}:
                    if last[arg] is node:
                        del found[arg]
    shape = np.broadcast_shapes(*(np.shape(value) for value in step.values()))
    return np.broadcast_to(np.asarray(found[tree.nodes[-1]], np.float64), shape)


def _chosen(compare: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Minimum or maximum: NaN if one is NaN, else the first of equal ones."""
    return lambda a, b: np.where(compare(b, a) | np.isnan(b), b, a)


_PLAIN: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": lambda a, b: np.divide(a, b + 0.0),  # -0 + 0 is 0
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": functions.exp,
    "log": functions.log,
    "atan": functions.atan,
    "min": _chosen(np.less),
    "max": _chosen(np.greater),
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "where": lambda condition, yes, no: np.where(condition != 0, yes, no),
}
