"""Ask which faults of one line the tests find: `scripts/mutate.sh`.

    bash scripts/mutate.sh --seed 48 --faults 60 --into benchmarks/mutants.txt

A seed draws the faults, as many from each part of the package (`PARTS`): an operator, a comparison,
a condition or a constant is changed, or a statement that only calls something is removed; never a
text, an annotation or a message. Each is made in a copy of the repository, which keeps the compiled
kernels that it does not concern. The tests concerned run there: the files with the most words in
common with the place (names of function, module, package and of the modules that import it), those
tests first that name the function, for `--seconds` of a processor in all.

The table has a line for each fault: killed, and by what, or survived. Faults with a line are not
made again. `--long` asks the long tests which of the survivors they find, and adds lines for these.
Where a survivor changes no result, write `equivalent` and the reason into its line. At the end, the
tests that found faults run without one.
Files and functions without a test that runs here (GPUs, the map's page) are left out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import fnmatch
import inspect
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from faults import PACKAGE, Fault, changed

ROOT = PACKAGE.parent

PARTS = {
    "proofs": "*proof* cli/verify.py",
    "plan": "engine/plan*.py engine/schedule.py hydrology/forest/plan.py cli/plan*.py",
    "limits": "arguments.py running.py engine/machine.py engine/forks.py store/lazy.py"
    " store/paged.py cli/options.py",
    "resume": "engine/ledger.py engine/run.py store/run.py store/spill.py store/scratch.py"
    " prerequisites.py paths/*/recorded.py paths/cost_matrix/run.py paths/cost_matrix/folder.py",
    "commit": "store/writer.py store/swap.py store/removal.py store/temporary.py store/outputs.py"
    " store/file_writer.py store/nodes.py store/metadata.py store/checksums.py io/small_files.py"
    " paths/distance_index/writer.py",
    "conventions": "grid/* cells.py wide.py io/crs.py io/encodings.py io/georeference.py"
    " hydrology/common/code* paths/cost/* spanning_tree/weights.py spanning_tree/cpu/keys.py",
    "joins": "*seam* *rims.py *merge.py *joins.py *skeleton* *crossings.py *entries.py *pieces.py"
    " *links.py *link_kernels.py *levels.py *visits.py primitives/* hydrology/forest/*",
    "kernels": "*kernels.py *_kernel.py spanning_tree/cpu/* paths/relax/* *tile.py *block.py"
    " paths/*/walk.py hydrology/*/steps.py raster/*/rows.py",
    "readers": "io/* store/layer.py store/shard.py store/decoding.py store/object*.py"
    " store/client.py store/coordinates.py store/opening.py store/overviews.py store/bucket.py",
}
"""Parts of the package, by files; a file belongs to the first that names it."""
LEFT_OUT = "*gpu* *cuda* map/* *simd.py"

ALWAYS = {
    "plan": "engine/test_planner.py cli/test_plan.py",
    "limits": "engine/test_planner.py test_arguments.py",
    "resume": "test_kill.py store/test_identity.py",
    "commit": "test_kill.py store/test_power_cut.py store/test_store.py",
    "readers": "store/test_store.py io/test_roundtrip.py",
}
"""Test files that a part is asked, too."""
NEVER = (
    "test_cuda* test_layout.py test_registers.py test_release.py test_site.py test_docs.py"
    " test_net.py test_forecast.py test_campaign.py test_qgis.py test_browser.py"
    " test_literature.py test_bench.py"
)

FILES = 5
HANGS = 480
"""Seconds of the clock after which a test does not end: it has found the fault."""
SPINS = 100
"""Seconds of a processor, beyond those that tests have, after which one of them does not end."""


# -- drawing -------------------------------------------------------------------------------------


def matches(path: str, patterns: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns.split())


def part_of(path: str) -> str | None:
    if matches(path, LEFT_OUT):
        return None
    return next((part for part, patterns in PARTS.items() if matches(path, patterns)), None)


def altered(node: ast.AST) -> str | None:
    """`changed`, and what concerns statements more than sums."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        what = f"{ast.unparse(node.value.func)}() removed"
        node.value = ast.Name("pass")
        return what
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and isinstance(
        node.test, (ast.Name, ast.Call, ast.Attribute)
    ):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return "condition negated"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return None  # of the condition that it belongs to
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
        return f"-> {node.value}"
    return changed(node)


def code(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it whose change may change behaviour."""
    quiet = (ast.Raise, ast.JoinedStr, ast.arguments, ast.Assert)
    if isinstance(node, quiet) or (
        isinstance(node, ast.Call) and re.match(r"log\.|_?warn|tell", ast.unparse(node.func))
    ):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "type_params"):
            for below in value if isinstance(value, list) else [value]:
                if isinstance(below, ast.AST):
                    yield from code(below)


def faults_in(path: str) -> list[Fault]:
    tree = ast.parse((PACKAGE / path).read_bytes())
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found = []
    for node in code(tree):
        whole = isinstance(node, (ast.If, ast.While))
        one_line = whole or getattr(node, "lineno", 0) == getattr(node, "end_lineno", -1)
        quiet = isinstance(node, ast.Expr) and node.value not in list(code(node.value))
        if one_line and not quiet and (what := altered(copy.deepcopy(node))) is not None:
            found.append(Fault(path, node.lineno, numbers[id(node)], what))
    return found


def draw(seed: int, count: int) -> dict[Fault, str]:
    """Faults and their parts, in turn: first a file of the part, then a place in it."""
    files = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if (part := part_of(name)) and faults_in(name):
            files[part].append(name)
    rngs = {part: random.Random(f"{seed} {part}") for part in PARTS}
    drawn: dict[Fault, str] = {}
    while len(drawn) < count:
        for part, rng in rngs.items():
            drawn.setdefault(rng.choice(faults_in(rng.choice(files[part]))), part)
    return dict(list(drawn.items())[:count])


def write(fault: Fault, root: Path) -> None:
    """Make a fault in a copy of the repository: only its line changes."""
    path = root / "terrain_gpu" / fault.file
    source = path.read_bytes()
    node: ast.AST = list(ast.walk(ast.parse(source)))[fault.node]
    place = node.test if isinstance(node, (ast.If, ast.While)) else node
    altered(node)
    after = node.test if isinstance(node, (ast.If, ast.While)) else node
    text = ast.unparse(after)
    if isinstance(after, ast.expr) and not isinstance(after, (ast.Name, ast.Constant)):
        text = f"({text})"
    lines = source.splitlines(keepends=True)
    ends = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    begin = ends[place.lineno - 1] + place.col_offset
    end = ends[place.end_lineno - 1] + place.end_col_offset
    new = source[:begin] + text.encode() + source[end:]
    ast.parse(new)
    path.unlink()  # a link to the file of all copies
    path.write_bytes(new)


# -- the tests concerned -------------------------------------------------------------------------


@cache
def words_of(path: Path) -> Counter[str]:
    return Counter(re.findall(r"[A-Za-z_]\w+", re.sub(r"(?<=\w)-(?=\w)", "_", path.read_text())))


@cache
def test_files() -> list[Path]:
    return [one for one in sorted(ROOT.glob("tests/**/test_*.py")) if not matches(one.name, NEVER)]


@cache
def named(what: str) -> Counter[str]:
    """How many functions and classes, or how many modules and packages, have a name."""
    files = list(PACKAGE.rglob("*.py"))
    if what == "module":
        return Counter(one.parent.name if one.stem == "__init__" else one.stem for one in files)
    pattern = re.compile(r"^ *(?:def|class) (\w+)", re.M)
    return Counter(name for one in files for name in pattern.findall(one.read_text()))


def enclosing(fault: Fault) -> set[str]:
    """The function and the class that a fault is in."""
    return {
        node.name
        for node in ast.walk(ast.parse((PACKAGE / fault.file).read_bytes()))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and node.lineno <= fault.line <= (node.end_lineno or 0)
    }


def names_of(fault: Fault) -> dict[str, float]:
    """The words of a place, with weights: common ones have little."""
    found: dict[str, float] = Counter()
    for word in enclosing(fault):
        found[word] += 4 / named("function")[word]
    file = PACKAGE / fault.file
    importers = [one for one in PACKAGE.rglob("*.py") if imports(one, file)]
    for one, weight in [(file, 3.0), *((one, 3 / len(importers)) for one in importers)]:
        for word in one.relative_to(PACKAGE).with_suffix("").parts[1:]:
            if named("module")[word] == 1:
                found[word] += weight
    return found


def imports(file: Path, other: Path) -> bool:
    words = words_of(file)
    stem = other.parent.name if other.stem == "__init__" else other.stem
    return (
        file != other
        and words[stem] > 0
        and re.search(
            rf"^from \.[\w.]*{stem} import|^from \.[\w.]* import [^\n]*\b{stem}\b",
            file.read_text(),
            re.M,
        )
        is not None
    )


def concerned(fault: Fault, part: str) -> list[Path]:
    """Test files, those first that have most in common with a place."""
    files, names = test_files(), names_of(fault)
    rarity = {
        word: math.log(len(files) / max(1, sum(words_of(file)[word] > 0 for file in files)))
        for word in names
    }

    def score(file: Path) -> float:
        words = words_of(file)
        same = sum(names[w] * rarity[w] * math.log2(1 + min(words[w], 15)) for w in names)
        same += sum(4 * names[word] for word in names if re.search(rf"_{word}s?(_|$)", file.stem))
        own = Path(fault.file)
        same += 20 * (file.stem in (f"test_{own.stem}", f"test_{own.parent.name}"))
        return same + 8 * (file.parent.name == fault.file.partition("/")[0])

    found = sorted(files, key=score, reverse=True)[:FILES]
    always = [ROOT / "tests" / name for name in ALWAYS.get(part, "").split()]
    return [*found, *(file for file in always if file not in found)]


# -- in the process of the tests: pytest -p mutate ------------------------------------------------

spent: Counter[Path] = Counter()


def processor() -> float:
    return sum(os.times()[:4])


def pytest_collection_modifyitems(items):
    """Begin with the tests that name what has changed."""
    words = set(os.environ["MUTATE_WORDS"].split())
    order = list(dict.fromkeys(item.path for item in items))

    @cache
    def concerns(function) -> bool:
        return bool(words & set(re.findall(r"\w+", inspect.getsource(function))))

    items.sort(key=lambda item: (not concerns(item.function), order.index(item.path)))


def pytest_runtest_setup(item):
    import pytest

    seconds = float(os.environ["MUTATE_SECONDS"])
    if spent[item.path] > seconds / 3 or spent.total() > seconds:
        pytest.skip("its file has had its time")
    item.mutate_began = processor()


def pytest_runtest_teardown(item):
    if hasattr(item, "mutate_began"):
        spent[item.path] += processor() - item.mutate_began


# -- in the process that starts them --------------------------------------------------------------


def run_tests(
    root: Path, words: set[str], tests: list[str], *more: str, seconds: float
) -> list[str]:
    """The tests that fail in a copy, or what else went wrong."""
    temporary = root.with_name(root.name + ".tmp")
    temporary.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}:{root / 'scripts'}",
        "TMPDIR": str(temporary),
        "MUTATE_WORDS": " ".join(words),
        "MUTATE_SECONDS": str(seconds),
    }
    options = ["-q", "-rfE", "--tb=no", "-p", "mutate", "-p", "no:cacheprovider", *more]
    options += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
    # A fault may ask for any memory.
    bounds = [f"--as={16 << 30}"]
    if seconds < math.inf:
        bounds += [f"--cpu={math.ceil(seconds) + SPINS}"]
    command = ["prlimit", *bounds, sys.executable, "-m", "pytest", *options, *tests]
    with tempfile.TemporaryFile("w+", dir=root) as out:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        code = process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        said = out.read()
    shutil.rmtree(temporary, ignore_errors=True)
    if code in (0, 5):
        return []
    if found := re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.M):
        return found
    if hanging := re.search(r'/(tests/[^"]+)", line \d+ in (test_\w+)', said):
        return [f"{hanging[1]}::{hanging[2]}, which does not end"]
    if code == -signal.SIGXCPU:
        return ["a test that does not end"]
    return [f"pytest: {(said.strip().splitlines() or ['?'])[-1][:90]} ({code})"]


def attempt(base: Path, fault: Fault, part: str, seconds: float, *more: str) -> str:
    """Make a fault in a copy of its own, and say how it ended."""
    root = base.with_name(f"{fault.file.replace('/', '_')}_{fault.line}_{fault.node}")
    shutil.copytree(base, root, copy_function=os.link)
    write(fault, root)
    tests = [file.relative_to(ROOT).as_posix() for file in concerned(fault, part)]
    found = run_tests(root, enclosing(fault), tests, "-x", *more, seconds=seconds)
    shutil.rmtree(root, ignore_errors=True)
    how = ("long" if more else "killed") if found else "survived"
    return f"{how:12}{part:12}{fault}" + (f"  by {found[0]}" if found else "")


def copy_of_repository(folder: Path) -> Path:
    """What git has of the working tree, and compiled kernels."""
    base = folder / "base"
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    )
    names = [name for name in listed.decode().split("\0") if name]
    names += [str(p.relative_to(ROOT)) for p in PACKAGE.rglob("__pycache__/*")]
    for name in names:
        if (ROOT / name).is_file():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, base / name)
    return base


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--into", type=Path, help="the table, which a later run continues")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=75, help="of a processor, for a fault")
    parser.add_argument("--long", action="store_true", help="ask survivors of the table again")
    parser.add_argument("--only", default="", help="faults whose place this pattern matches")
    parser.add_argument("--list", action="store_true", help="only name faults and their tests")
    given = parser.parse_args()
    table = given.into.read_text() if given.into and given.into.exists() else ""
    drawn = draw(given.seed, given.faults)
    if given.long:
        new = {f: p for f, p in drawn.items() if f"{'survived':12}{p:12}{f}" in table.splitlines()}
    else:
        new = {f: p for f, p in drawn.items() if f"{p:12}{f}" not in table}
    new = {fault: part for fault, part in new.items() if re.search(given.only, str(fault))}
    if given.list:
        for fault, part in new.items():
            print(part, fault, *(file.stem for file in concerned(fault, part)))
        return 0
    os.nice(5)
    found_by = set()
    more = ["--long"] if given.long else []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        base = copy_of_repository(Path(name))
        asked = [pool.submit(attempt, base, *one, given.seconds, *more) for one in new.items()]
        for done in as_completed(asked):
            line = done.result()
            print(line, flush=True)
            found_by.update(re.findall("  by (tests/.*?)(?:, which does not end)?$", line))
            if given.into and (not given.long or line.startswith("long")):
                with given.into.open("a") as file:
                    file.write(line + "\n")
        if found_by:
            sound = run_tests(base, set(), sorted(found_by), "--long", seconds=math.inf)
            print(*(f"fails without a fault: {test}" for test in sound), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
