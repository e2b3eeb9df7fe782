"""A class name means one thing in the whole package."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import terrain_gpu

TWINS = {"Level", "Batches"}
"""In lists_cpu and lists_gpu, of which one or the other is `steps` in lists.py."""


def test_no_two_classes_have_one_name():
    files = Path(terrain_gpu.__file__).parent.rglob("*.py")
    names = Counter(
        node.name.lstrip("_")
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == TWINS
