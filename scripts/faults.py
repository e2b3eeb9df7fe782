"""Faults of one line in the package: operators turned round, comparisons and constants changed."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "terrain_gpu"


@dataclass(frozen=True, order=True)
class Fault:
    """A change of one operator, comparison or constant: the number of its node in a file."""

    file: str
    line: int
    node: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


TURNED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Add,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
REVERSED: dict[type, type] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


def changed(node: ast.AST) -> str | None:
    """Change a node in place; return what was done, or None if there is nothing to change."""
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in TURNED:
        old, node.op = type(node.op), TURNED[type(node.op)]()
        return f"{old.__name__} -> {type(node.op).__name__}"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        old = type(node.ops[0])
        # At every second place the direction is changed, not whether equal ones count.
        table = REVERSED if old in REVERSED and node.col_offset % 2 else TURNED
        node.ops = [table[old]()]
        return f"{old.__name__} -> {table[old].__name__}"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        old_value = node.value
        node.value = old_value + 1 if isinstance(old_value, int) else old_value * 2 or 1.0
        return f"{old_value} -> {node.value}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        old, node.op = type(node.op), ast.UAdd() if isinstance(node.op, ast.USub) else ast.USub()
        return f"{old.__name__} removed"
    if isinstance(node, ast.Name) and node.id in ("min", "max"):
        node.id = {"min": "max", "max": "min"}[node.id]
        return f"-> {node.id}"
    return None


def faults_of(file: Path, wanted: set[str]) -> list[Fault]:
    """All faults in functions of a file, by name."""
    tree = ast.parse(file.read_bytes())
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in wanted:
            for node in (inner for statement in function.body for inner in ast.walk(statement)):
                if (what := changed(copy.copy(node))) is not None:
                    name = file.relative_to(PACKAGE).as_posix()
                    found.add(Fault(name, node.lineno, numbers[id(node)], what))
    return sorted(found)


def mutated(fault: Fault) -> ast.Module:
    tree = ast.parse((PACKAGE / fault.file).read_bytes())
    for number, node in enumerate(ast.walk(tree)):
        if number == fault.node:
            changed(node)
    return tree
