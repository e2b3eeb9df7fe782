"""Sizes that a reader can take in, names that mean one thing, no circular imports."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "terrain_gpu").rglob("*.py"))
NAMES = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in FILES]
MODULES = {
    name.removesuffix(".__init__"): (file, ast.parse(file.read_text()))
    for name, file in zip(NAMES, FILES, strict=True)
}
FUNCTIONS = [
    (module, node)
    for module, (_, tree) in MODULES.items()
    for node in ast.walk(tree)
    if isinstance(node, ast.FunctionDef)
]

MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 600, 80, 10

LONG_MODULES: dict[str, int] = {}
"""Their lines at most; these may only become less."""

LONG_FUNCTIONS: dict[str, int] = {}
"""Likewise."""

REASON = "Long because"
"""How the docstring of a long function, or a comment in it, begins to say why."""

SHARED_NAMES = {"Batches": 2, "Level": 2}
"""Classes of one name, and how many; these, too, may only become less."""


def within(found, known):
    """Nothing exceeds the known exceptions, and none of these is out of date."""
    assert {n: k for n, k in found.items() if k > known.get(n, 0)} == {}
    assert {n: k for n, k in known.items() if n not in found} == {}, "take these off the list"


def test_folders_of_tests_are_packages():
    packages = {file.parent.name for file in (ROOT / "terrain_gpu").glob("*/__init__.py")}
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    assert folders <= packages


def test_no_module_is_long():
    lines = {m: len(file.read_text().splitlines()) for m, (file, _) in MODULES.items()}
    within({m: n for m, n in lines.items() if n > MOST_LINES}, LONG_MODULES)


def code_lines(function):
    """Lines of a function without its docstring."""
    first, lines = function.body[0], function.end_lineno - function.lineno + 1
    described = ast.get_docstring(function) is not None
    return lines - (first.end_lineno - first.lineno + 1) * described


def test_no_function_is_long_without_a_reason():
    found = {}
    for module, function in FUNCTIONS:
        source = MODULES[module][0].read_text().splitlines()
        text = source[function.lineno - 1 : function.end_lineno]
        if code_lines(function) > MOST_FUNCTION_LINES and not any(REASON in t for t in text):
            found[f"{module}.{function.name}"] = code_lines(function)
    within(found, LONG_FUNCTIONS)


def kernel_modules():
    """Those that numba types, as mypy is told."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (modules,) = (t["module"] for t in told if "disallow_untyped_defs" in t)
    return modules


def test_few_parameters():
    """Functions that others call may have more, by name only; kernels take what they need."""
    kernels, found = kernel_modules(), []
    for module, function in FUNCTIONS:
        given = function.args
        placed = len(given.posonlyargs) + len(given.args)
        most = placed if not function.name.startswith("_") else placed + len(given.kwonlyargs)
        if most > MOST_PARAMETERS and module not in kernels:
            found.append(f"{module}.{function.name}")
    assert not found


def test_kernel_modules_hold_kernels():
    """No module escapes mypy without need."""
    for module in kernel_modules():
        text = MODULES[module][0].read_text()
        assert any(word in text for word in ("@jit", "@register_jitable", "@overload")), module


def test_class_names_are_unique():
    counts = Counter(
        node.name.lstrip("_")
        for _, tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    within({name: n for name, n in counts.items() if n > 1}, SHARED_NAMES)


def imports(module):
    """Modules of the package that are imported with a module, not for types alone."""
    file, tree = MODULES[module]
    parts = module.split(".")
    package = parts if file.name == "__init__.py" else parts[:-1]
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
        for alias in node.names:
            for name in (f"{source}.{alias.name}", source):
                if name in MODULES:
                    yield name
                    break


def test_no_import_circles():
    graph = {module: {*imports(module)} - {module} for module in MODULES}
    assert sum(map(len, graph.values())) > 400
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("module", ["a", "b"])
def test_within_notices(module):
    with pytest.raises(AssertionError):
        within({module: 2}, {"a": 1})
    with pytest.raises(AssertionError):
        within({}, {module: 1})
