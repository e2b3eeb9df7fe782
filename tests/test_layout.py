"""Names that mean one thing, no circular imports, proofs that share no solver."""

from __future__ import annotations

import ast
import fnmatch
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "terrain_gpu").rglob("*.py"))
NAMES = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in FILES]
MODULES = {
    name.removesuffix(".__init__"): (file, ast.parse(file.read_text()))
    for name, file in zip(NAMES, FILES, strict=True)
}
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


def kernel_modules():
    """Those that numba types, as mypy is told."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (patterns,) = (t["module"] for t in told if "disallow_untyped_defs" in t)
    files = [module for module, (file, _) in MODULES.items() if file.name != "__init__.py"]
    found = {pattern: fnmatch.filter(files, pattern) for pattern in patterns}
    assert all(found.values()), found
    return chain.from_iterable(found.values())


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


def imports(module, *, anywhere=False):
    """Modules of the package that are imported with a module, or by its functions, too.

    Not those that are imported for types alone.
    """
    file, tree = MODULES[module]
    parts = module.split(".")
    package = parts if file.name == "__init__.py" else parts[:-1]
    for_types = [
        node
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
    ]
    for node in ast.walk(tree) if anywhere else tree.body:
        if not isinstance(node, ast.ImportFrom) or node in for_types:
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
        for alias in node.names:
            for name in (f"{source}.{alias.name}", source):
                if name in MODULES:
                    yield name
                    break


def test_no_import_cycles():
    """Nor by imports within functions."""
    graph = {module: {*imports(module, anywhere=True)} - {module} for module in MODULES}
    assert sum(map(len, graph.values())) > 400
    TopologicalSorter(graph).prepare()


ROOMS = "hydrology", "paths", "raster", "spanning_tree"
DEFINITIONS = {
    "hydrology.common",
    "hydrology.breach.kinds",
    "hydrology.breach.rule",
    "hydrology.divided_flow.division",
    "hydrology.fill_spill_merge.rain",
    "hydrology.forest.source",
    "hydrology.terrain_indices.rule",
    "hydrology.watershed.pour_points",
    "hydrology.watershed.snap",
    "hydrology.watershed.snap_kernels",
    "paths.cost",
    "paths.cost_distance.inputs",
    "paths.relax.allocate",
    "paths.relax.gpu.variants",
    "paths.relax.trace",
    "raster.calc.arithmetic",
    "raster.drawing.levels",
    "raster.label_components.expression",
    "raster.rasterize.changes",
    "spanning_tree.weights",
}
"""What says which result is right: modules, or folders of them, that proofs share with solvers."""
SOLVERS = {"hydrology.common.gpu", "hydrology.common.rims", "hydrology.common.voids"}
"""What stands beside definitions."""


def is_proof(module):
    return any(part.split("_")[0] == "proof" for part in module.split("."))


def solves(module):
    """Whether a module of a command is neither a proof nor a definition."""
    room, *rest = module.split(".")[1:] or [""]
    parents = {".".join([room, *rest[:k]]) for k in range(len(rest) + 1)}
    empty = not rest or all(isinstance(node, ast.Expr) for node in MODULES[module][1].body)
    defined = parents & DEFINITIONS and not parents & SOLVERS
    return room in ROOMS and not (empty or defined or is_proof(module))


@pytest.mark.parametrize("module", sorted(filter(is_proof, MODULES)))
def test_proofs_share_no_solver(module):
    """Neither directly nor through what they import."""
    seen, new = set(), {module}
    while new:
        seen |= new
        new = {other for one in new for other in imports(one, anywhere=True)} - seen
    assert {one for one in seen if solves(one)} == set()


@pytest.mark.parametrize("module", ["a", "b"])
def test_within_notices(module):
    with pytest.raises(AssertionError):
        within({module: 2}, {"a": 1})
    with pytest.raises(AssertionError):
        within({}, {module: 1})
