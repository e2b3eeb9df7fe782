"""Nouns agree with their numbers in all messages."""

from __future__ import annotations

import ast
import re
from functools import reduce
from pathlib import Path

import terrain_gpu

NEVER_ONE = (
    *("0 bands; choose one", "0 places form 0 parts", "0 threads, and one with a GPU"),
    *("only one of these 0 values", "fewer than 0 cells", "in the 0 columns", "0 vertices"),
    *("0 bytes of shared memory", "have 0 bytes, but servers", "(0 cells)", "0 to 0 arguments"),
    *("0 bytes, too many for 0 bytes", "0 bytes per cell", "0 ends at", "0 of 0 "),
)
"""Texts whose numbers are larger than one, or a part of others; and one of no number."""


def test_numbers_agree_with_what_they_count():
    """Messages say "1 cell": what `counted` counts somewhere, it counts everywhere."""
    root = Path(terrain_gpu.__file__).parent
    trees = {file: ast.parse(file.read_text("utf-8")) for file in root.rglob("*.py")}
    nodes = [(file, node) for file, tree in trees.items() for node in ast.walk(tree)]
    nouns = {
        word.value.split()[0] + "s" * (len(node.args) == 2)
        for _, node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "counted"
        for word in node.args[-1:]
        if isinstance(word, ast.Constant)
    }
    assert {"cells", "blocks", "vertices"} <= nouns
    number = re.compile(rf"(?<!x )(?<!= )0 (?:more )?({'|'.join(nouns - {'more'})})\b")
    for file, node in nodes:
        text = reduce(lambda text, one: text.replace(one, ""), NEVER_ONE, _with_numbers(node))
        assert not number.search(text), (file, node.lineno, text)


def _with_numbers(node: ast.AST) -> str:
    """An f-string, or the format of a log message, with 0 for whatever may be a number."""
    if isinstance(node, ast.JoinedStr):
        parts = [*node.values, ast.Constant("")]
        return "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else "A"
            if (part.format_spec and ast.unparse(part.format_spec)[-2] in "fg%")
            or re.search(r"(name|shape|key|[A-Z])(\[-?1\])?$|^format_size", ast.unparse(part.value))
            else "0"
            for part in parts
        )
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "%" in node.value:
        return re.sub("%[ds]", "0", node.value)
    return ""
