"""The QGIS plugin: its description of the commands, its command lines, and algorithms in QGIS.

Where QGIS is not installed, all is tested but that it runs there.
"""

from __future__ import annotations

import ast
import configparser
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import numpy as np
import programs
import pyogrio
import pytest
import rasterio
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import terrain_gpu
from terrain_gpu.cli.main import group

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import build_qgis

SAMPLE = build_qgis.ROOT / "data" / "jacksboro.tif"


def plugin():
    """The plugin as a package of the name that it has in QGIS, not that of the library."""
    name, folder = build_qgis.FOLDER, build_qgis.PLUGIN
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return name


program = importlib.import_module(f"{plugin()}.program")
words = importlib.import_module(f"{plugin()}.words")
DESCRIBED = words.description()
ALGORITHMS = {one["command"]: one for one in DESCRIBED["algorithms"]}

# The description


def test_the_description_is_fresh():
    stored = build_qgis.DESCRIPTION.read_text(encoding="utf-8")
    assert stored == build_qgis.text(), "run python scripts/build_qgis.py"


def test_every_command_is_an_algorithm_or_left_out():
    assert group.commands.keys() == ALGORITHMS.keys() | DESCRIBED["left_out"].keys()
    assert not ALGORITHMS.keys() & DESCRIBED["left_out"].keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_parameters_are_named_once_and_explained(name):
    parameters = ALGORITHMS[name]["parameters"]
    names = [one["name"] for one in parameters]
    assert len(names) == len(set(names))
    assert names[0] == "INPUT"
    for one in parameters:
        explained = one.get("help") or one["name"] in ("INPUT", "OUTPUT")
        assert explained, one["name"]
        for text in (*ALGORITHMS[name]["help"], one.get("help", "")):
            assert "STORE" not in text
            assert "then give -o" not in text
    assert any(one["kind"].endswith("_out") for one in parameters)
    # qgisprocess in R takes the first choice where none is given.
    choices = [one for one in parameters if one["kind"] == "choice"]
    assert all(one["choices"][0] == one["default"] for one in choices)


def test_styles_are_there():
    wanted = {one.get("style") for a in ALGORITHMS.values() for one in a["parameters"]}
    files = {file.stem for file in (build_qgis.PLUGIN / "styles").iterdir()}
    assert wanted - {None, "labels"} == files  # labels get one colour each


def test_metadata():
    parser = configparser.ConfigParser()
    parser.read(build_qgis.PLUGIN / "metadata.txt", encoding="utf-8")
    told = parser["general"]
    for key in ("name", "description", "about", "author", "email", "repository", "tracker"):
        assert told[key]
    assert told["version"] == DESCRIBED["version"] == terrain_gpu.__version__
    assert told["qgisMinimumVersion"] == "3.22"
    assert told["hasProcessingProvider"] == "yes"
    assert (build_qgis.PLUGIN / told["icon"]).is_file()


def test_the_zip_is_complete_and_reproducible(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    build_qgis.build(first)
    build_qgis.build(second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as made:
        names = {Path(name) for name in made.namelist()}
    files = {Path(build_qgis.FOLDER) / file for file in ("metadata.txt", "LICENSE", "icon.svg")}
    assert files < names
    assert {name.parts[0] for name in names} == {build_qgis.FOLDER}
    assert not any("__pycache__" in name.parts for name in names)


OLD_NAMES = {
    "QgsProcessing.TypeVector": "Qgis.ProcessingSourceType.Vector",
    "QgsProcessing.TypeVectorAnyGeometry": "Qgis.ProcessingSourceType.VectorAnyGeometry",
    "QgsProcessingParameterDefinition.FlagAdvanced": "Qgis.ProcessingParameterFlag.Advanced",
    "QgsProcessingParameterFile.Folder": "Qgis.ProcessingFileParameterBehavior.Folder",
    "QgsProcessingParameterNumber.Double": "Qgis.ProcessingNumberParameterType.Double",
    "QgsProcessingParameterNumber.Integer": "Qgis.ProcessingNumberParameterType.Integer",
    "QgsRasterBandStats.Max": "Qgis.RasterBandStatistic.Max",
    "QgsRasterBandStats.Min": "Qgis.RasterBandStatistic.Min",
}
"""Enums by the names that QGIS 3.22 has; QGIS 4 keeps these names for their successors."""


def test_the_plugin_uses_nothing_that_qt_6_lacks():
    """Qt only through `qgis.PyQt`, no enum of Qt without its scope, no `exec_`."""
    used = set()
    for file in build_qgis.PLUGIN.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        of_qt = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not any(one.name.startswith("PyQt") for one in node.names), file
            elif isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("PyQt"), file
                if node.module and node.module.startswith("qgis.PyQt"):
                    of_qt |= {one.name for one in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                assert node.attr != "exec_", file
                if node.attr[0].isupper():
                    assert node.value.id not in of_qt, f"{file}: {name}: an enum without scope"
                    used |= {name} if name.startswith("Qgs") else set()
    assert used == set(OLD_NAMES)


def test_only_modules_for_qgis_import_it():
    for file in build_qgis.PLUGIN.glob("*.py"):
        thin = file.stem in ("__init__", "program", "words")
        text = file.read_text(encoding="utf-8")
        assert thin != ("from qgis" in text), file


# Words

TEXTS = st.text("abc123.,=<>-+ ()/'\"$ä", min_size=1).filter(lambda text: text.strip())
VALUES = {
    "flag": lambda one: st.booleans(),
    "choice": lambda one: st.sampled_from(one["choices"]),
    "integer": lambda one: st.integers(one.get("min", -9), one.get("max", 10**6)),
    "number": lambda one: st.floats(one.get("min"), allow_nan=False, allow_infinity=False),
}


def values_of(algorithm):
    """Values of some of its parameters; of alternatives, at most one."""
    required, optional = {}, {}
    for one in algorithm["parameters"]:
        strategy = VALUES.get(one["kind"], lambda one: TEXTS)(one)
        taken = "COST" if one["name"].endswith(("_RASTER", "_FORMULA")) else one["name"]
        if one.get("repeated"):
            strategy = st.just("a=1 b=2")
        (optional if one.get("optional") or taken != one["name"] else required)[one["name"]] = (
            strategy
        )
    return st.fixed_dictionaries(required, optional=optional)


def given_twice(algorithm, values):
    """Whether two of the values stand for one option."""
    options = [
        one["option"]
        for one in algorithm["parameters"]
        if "option" in one and values.get(one["name"], one.get("default")) != one.get("default")
        if values[one["name"]] is not False
    ]
    return len(options) != len(set(options))


@settings(max_examples=examples(150))
@given(data=st.data())
def test_the_command_reads_what_was_given(data):
    """Every value arrives under its own option, as the command line reads it."""
    name = data.draw(st.sampled_from([*ALGORITHMS]))
    algorithm = ALGORITHMS[name]
    values = data.draw(values_of(algorithm))
    if given_twice(algorithm, values):
        with pytest.raises(words.WrongValues, match="give only one"):
            words.words(algorithm, values, DESCRIBED["always"])
        return
    first, *rest = words.words(algorithm, values, DESCRIBED["always"])
    command = group.commands[first]
    read, left, _ = command.make_parser(click.Context(command)).parse_args(rest)
    assert first == name
    assert left == []
    wanted = {"progress": "json", "overwrite": True}
    names = {max(param.opts, key=len): param.name for param in command.params}
    for one in algorithm["parameters"]:
        value = values.get(one["name"])
        if value is None or value is False:
            continue
        if "prefix" in one:
            wanted[value] = value
        elif "option" not in one:
            arguments = {"INPUT": "store", "OUTPUT": "path"}
            key = arguments.get(one["name"], one["name"].lower())
            wanted[key] = value
        elif value != one.get("default"):
            text = ["a=1", "b=2"] if one.get("repeated") else value
            many = one["kind"] == "point"
            wanted[names[one["option"]]] = [text] if many else text
            wanted |= {"resume": True} if one.get("more") else {}
    found = {key: value for key, value in read.items() if isinstance(value, str | bool | list)}
    assert found == {
        key: value if isinstance(value, bool | list) else words.text_of(value)
        for key, value in wanted.items()
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(5.0, "5"), (0.1, "0.1"), (1e300, "1e+300"), (-3, "-3"), (1 / 3, repr(1 / 3))],
)
def test_numbers_keep_all_digits(value, text):
    assert words.text_of(value) == text
    assert float(text) == value


def test_stores_have_names_of_their_own(tmp_path):
    store = tmp_path / "older name"
    store.mkdir()
    assert words.store_in(str(store), "/maps/dem 1.tif") == str(store / "dem 1.zarr")
    (store / "zarr.json").touch()
    assert words.store_in(str(store), "/maps/dem 1.tif") == str(store)
    assert words.store_in(str(tmp_path / "a.zarr"), "b.tif") == str(tmp_path / "a.zarr")


def test_choices_have_names_and_numbers():
    """R gives numbers; a name that is one, such as a connectivity, is no other's number."""
    for algorithm in ALGORITHMS.values():
        for one in algorithm["parameters"]:
            choices = one.get("choices", [])
            for number, choice in enumerate(choices):
                for value in (choice, number, str(number), float(number)):
                    found = words.named(algorithm, {one["name"]: value, "INPUT": "1"})
                    assert found == {one["name"]: choice, "INPUT": "1"}
            for value in (None, "no", str(len(choices)), True, -1):
                assert words.named(algorithm, {one["name"]: value}) == {one["name"]: value}


# The page

PAGE = (build_qgis.ROOT / "docs" / "how-to" / "qgis.md").read_text(encoding="utf-8")


def test_the_page_is_right():
    """It names algorithms and parameters that there are, and all commands that are left out."""
    assert f"{len(ALGORITHMS)} algorithms" in PAGE
    calls = re.findall(r"terrain_gpu:(\w+)(.*?)(?=\n\n|\n```)", PAGE, re.S)
    assert len(calls) > 3
    for name, text in calls:
        known = {one["name"] for one in ALGORITHMS[name.replace("_", "-")]["parameters"]}
        assert set(re.findall(r"\b([A-Z_]{3,})\b(?= ?=|\":)", text)) <= known, name
    _, left_out = PAGE.split("## What the plugin leaves out")
    for name in DESCRIBED["left_out"]:
        assert f"`{name}`" in left_out


# The program


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_program_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv(program.VARIABLE, raising=False)
    with pytest.raises(program.ProgramMissing, match="pip install"):
        program.find()
    home = script(tmp_path / "home/miniforge3/envs/dem/bin/terrain-gpu", "")
    assert program.find() == home
    on_path = script(tmp_path / "path/terrain-gpu", "")
    assert program.find() == on_path
    told = script(tmp_path / "own env/bin/terrain-gpu", "")
    assert program.find(str(tmp_path / "own env")) == program.find(told) == told
    with pytest.raises(program.ProgramMissing, match="elsewhere: no program"):
        program.find(str(tmp_path / "elsewhere"))
    monkeypatch.setenv(program.VARIABLE, told)
    assert program.find() == told


def ran(path, cancelled=lambda: False):
    """What a program told: progress, messages."""
    events, messages = [], []
    program.run([path], events.append, messages.append, cancelled)
    return events, messages


def test_all_that_a_program_writes_is_passed_on(tmp_path):
    text = """import sys
for number in range(3000):
    print("said", number, "é" * 50)
    sys.stderr.write('{"phase": "fill", "done": %d, "total": 3000}\\n' % number)
print('{"phase" is no progress', file=sys.stderr)
"""
    events, messages = ran(script(tmp_path / "p", text))
    assert [event["done"] for event in events] == [*range(3000)]
    assert [m for m in messages if "said" in m] == [f"said {n} {'é' * 50}" for n in range(3000)]
    assert messages.count('{"phase" is no progress') == 1


def test_errors_keep_their_message_and_code(tmp_path):
    text = """import sys
print("WARNING: large", file=sys.stderr)
print("Error: not 5\\n  here ^", file=sys.stderr)
sys.exit(2)
"""
    with pytest.raises(program.ProgramFailed) as failed:
        ran(script(tmp_path / "p", text))
    assert (str(failed.value), failed.value.code) == ("not 5\n  here ^", 2)
    with pytest.raises(program.ProgramFailed, match="ended with code -9"):
        ran(script(tmp_path / "q", "import os; os.kill(os.getpid(), 9)"))


def test_a_cancel_is_told_and_waited_for(tmp_path):
    text = """import sys
line = sys.stdin.readline()
sys.exit("Error: interrupted by " + line)
"""
    with pytest.raises(program.ProgramFailed, match="interrupted by cancel"):
        ran(script(tmp_path / "p", text), lambda: True)


def test_a_program_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "CANCEL_WITHIN", 0.2)
    with pytest.raises(program.ProgramFailed, match="code -9"):
        ran(script(tmp_path / "p", "import time; time.sleep(60)"), lambda: True)


def test_variables_of_qgis_do_not_reach_the_program(tmp_path, monkeypatch):
    for name in program.OF_QGIS[:4]:
        monkeypatch.setenv(name, "/of/qgis")
    monkeypatch.setenv("KEPT", "yes")
    assert program.environment().keys() & set(program.OF_QGIS[:4]) == set()
    assert program.environment()["KEPT"] == "yes"


@pytest.mark.parametrize(
    ("event", "percent", "told"),
    [
        ({"phase": "fill", "done": 0, "total": 0, "seconds_left": None}, 0, "fill"),
        ({"phase": "fill", "done": 5, "total": 20, "seconds_left": 9.4}, 25, "fill: 9 s left"),
        ({"phase": "mst", "done": 9, "total": 9, "seconds_left": 0.0}, 100, "mst"),
        (
            {"phase": "a", "done": 1, "total": 9, "seconds_left": 125.0},
            100 / 9,
            "a: 2 min 5 s left",
        ),
    ],
)
def test_progress_for_people(event, percent, told):
    assert program.percent(event) == pytest.approx(percent)
    assert program.told_of(event) == told


def test_the_real_program_runs_and_refuses(tmp_path):
    before = programs.program("terrain-gpu")
    given = {"INPUT": str(SAMPLE), "OUTPUT": str(tmp_path / "slope.tif")}
    line = words.words(ALGORITHMS["slope"], given, DESCRIBED["always"])
    events, messages = [], []
    program.run([*before, *line], events.append, messages.append, lambda: False)
    assert {event["phase"] for event in events} == {"convert", "slope", "export"}
    assert program.percent(events[-1]) == 100
    assert any("written" in message for message in messages)
    line = words.words(ALGORITHMS["slope"], given | {"INPUT": "no.tif"}, DESCRIBED["always"])
    with pytest.raises(program.ProgramFailed, match=r"no\.tif: no such raster") as failed:
        program.run([*before, *line], events.append, messages.append, lambda: False)
    assert failed.value.code == 2


# In QGIS


@functools.cache
def qgis():
    """The programs `qgis_process` and Python of QGIS; skip where they are not installed."""
    found = shutil.which("qgis_process") or shutil.which("qgis_process", path="/usr/bin")
    if not found:
        return None
    folder = Path(found).parent
    # Debian's script adds an option that this program does not know.
    plain = next(p for p in (folder / "qgis_process.bin", Path(found)) if p.exists())
    python = folder / "python3"
    asked = [python, "-c", "import qgis.core"]
    there = (
        python.exists() and not subprocess.run(asked, check=False, capture_output=True).returncode
    )
    return (str(plain), str(python)) if there else None


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """QGIS with the plugin from the zip, in a home of its own."""
    if qgis() is None:
        pytest.skip("QGIS is not installed")
    build_qgis.build(tmp_path / "plugin.zip")
    with zipfile.ZipFile(tmp_path / "plugin.zip") as made:
        made.extractall(tmp_path / "plugins")
    line = shlex.join(programs.program("terrain-gpu"))
    starter = tmp_path / "terrain-gpu"
    starter.write_text(f'#!/bin/sh\nexec {line} "$@"\n', encoding="utf-8")
    starter.chmod(0o755)
    (tmp_path / "run").mkdir(mode=0o700)
    for name in [name for name in os.environ if name.startswith(("PYTHON", "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    monkeypatch.setenv("QGIS_PLUGINPATH", str(tmp_path / "plugins"))
    monkeypatch.setenv(program.VARIABLE, str(starter))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def session(folder, cases):
    """What the cases told, in one session of QGIS without a window."""
    asked = {"plugin": str(folder / "plugins" / build_qgis.FOLDER), "cases": cases}
    _, python = qgis()
    line = [python, str(Path(__file__).with_name("qgis_session.py"))]
    ended = subprocess.run(
        line, input=json.dumps(asked), text=True, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def qgis_process(*line):
    process, _ = qgis()
    return subprocess.run([process, *map(str, line)], check=False, text=True, capture_output=True)


def test_qgis_process(installed):
    """List, help, a run as R asks for it, a wrong input, and no program."""
    assert build_qgis.FOLDER in qgis_process("plugins", "enable", build_qgis.FOLDER).stdout
    listed = json.loads(qgis_process("list", "--json").stdout)["providers"]["terrain_gpu"]
    for name, algorithm in ALGORITHMS.items():
        found = listed["algorithms"][f"terrain_gpu:{name.replace('-', '_')}"]
        assert found["name"] == algorithm["title"]
    told = qgis_process("help", "terrain_gpu:fill").stdout
    assert "Every cell is raised to the level" in told
    assert "Raise cells until a neighbour is strictly lower" in told
    target = installed / "new folder" / "filled.tif"
    given = [f"INPUT={SAMPLE}", f"OUTPUT={target}", "COMPRESS=0", "COMPRESS_LAYERS=0"]
    ended = qgis_process("--json", "run", "terrain_gpu:fill", "--", *given)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["results"] == {"OUTPUT": str(target)}
    assert "138,632 of 138,632 cells valid" in str(told["log"])
    expected = programs.forked(f"terrain-gpu fill {SAMPLE} -o {installed}/expected.tif")
    assert expected.returncode == 0
    assert target.read_bytes() == (installed / "expected.tif").read_bytes()
    wrong = ["run", "terrain_gpu:streams", "--", f"INPUT={SAMPLE}", "OUTPUT=s.tif", "THRESHOLD=x"]
    ended = qgis_process(*wrong)
    assert ended.returncode != 0
    assert "--threshold 'x': give a number of cells" in ended.stdout + ended.stderr
    (installed / "terrain-gpu").unlink()
    ended = qgis_process(*wrong)
    assert "no program terrain-gpu there" in ended.stdout + ended.stderr
    assert "pip install" in ended.stdout + ended.stderr


def test_the_page_runs_in_r(installed, monkeypatch):
    """Where R has what it needs: no test elsewhere sees that package."""
    asked = ["Rscript", "-e", "find.package('qgisprocess'); find.package('terra')"]
    if not shutil.which("Rscript") or subprocess.run(asked, check=False).returncode:
        pytest.skip("R, or its package qgisprocess, is not installed")
    (text,) = re.findall(r"^```r\n(.*?)^```", PAGE, re.S | re.M)
    shutil.copy(SAMPLE, installed)
    monkeypatch.setenv("R_QGISPROCESS_PATH", qgis()[0])
    subprocess.run(["Rscript", "-e", text], check=True)
    readable("seconds.tif")


A, B, C = [-84.2, 36.6, True], [-84.3, 36.65, True], [-84.35, 36.5, False]
CASES = {
    "fill": {},
    "breach": {"LINES": "cuts.gpkg"},
    "burn": {"STREAMS": {"points": [A, B, C]}, "DEPTH": 10},
    "flow-direction": {"OUTLET": "-84.2,36.6", "DEPRESSIONS": "fill"},
    "flow-accumulation": {"METHOD": "dinf", "AREAS": True},
    "streams": {"THRESHOLD": "200", "LINES": "streams.gpkg", "ORDER": "link"},
    "watershed": {"POUR_POINTS": {"points": [A, B, C]}, "SNAP": 500, "TABLE": "w.gpkg"},
    "basins": {"TABLE": "basins.geojson"},
    "hand": {"THRESHOLD": "200"},
    "depressions": {"MIN_DEPTH": 5, "TABLE": "depressions.gpkg"},
    "fill-spill-merge": {"RAIN": 0.5, "TABLE": "water.gpkg"},
    "accumulate": {"OUTLETS": {"file": "streams.gpkg", "filter": "strahler = 4"}},
    "network": {"MIN_LENGTH": 5000},
    "compute-sssp": {
        "SOURCES": {"points": [A, B, C]}, "TARGET": "-84.3,36.6 [EPSG:4326]", "PATH": "path.gpkg",
        "ALLOCATION": "ids.tif", "BACKLINK": "codes.tif", "STORE": ".",
        "BARRIERS_RASTER": "label_components.tif", "MEMORY_LIMIT": "1GB", "THREADS": 1,
        "VERIFY": True,
    },
    "cost-matrix": {"SOURCES": {"points": [A, B, C]}, "COST": 3, "BACKEND": "1"},
    "least-cost-network": {"SOURCES": {"points": [A, B, [*C[:2], True]]}, "TABLE": "network.csv"},
    "corridor": {
        "SOURCES": {"points": [A, B, C]}, "TARGET": "-84.35,36.5 [EPSG:4326]", "COST": "surface",
        "BARRIERS_RASTER": "label_components.tif", "WITHIN": "10%",
    },
    "slope": {},
    "terrain-indices": {"INDEX": "spi"},
    "compute-mst": {"WEIGHT": "absdiff"},
    "contours": {"INTERVAL": 100},
    "calc": {"EXPRESSION": "where(elevation > 500, 1, 0)"},
    "rasterize": {"FEATURES": "two layers.gpkg"},
    "label-components": {"WHERE": "elevation > 800", "TABLE": "components.csv"},
    "polygons": {"INPUT": "label_components.tif"},
}  # fmt: skip
"""Parameters of each algorithm beside INPUT and OUTPUT."""

ORDER = sorted(CASES, key=lambda name: (name != "label-components", name == "polygons"))
"""What others read comes first."""


RENDERERS = {"paletted", "singlebandpseudocolor", "singleSymbol"}


def case(folder, name):
    """A case for `qgis_session`, its files in a folder."""
    suffix = {"table_out": "csv", "vector_out": "gpkg", "raster_out": "tif"}
    (kind,) = (one["kind"] for one in ALGORITHMS[name]["parameters"] if one["name"] == "OUTPUT")
    base = name.replace("-", "_")
    parameters = {"INPUT": str(SAMPLE), "OUTPUT": f"{base}.{suffix[kind]}", **CASES[name]}

    def placed(value):
        if isinstance(value, dict) and "file" in value:
            return value | {"file": placed(value["file"])}
        ends = (".gpkg", ".geojson", ".csv", ".tif")
        is_name = isinstance(value, str) and (value == "." or value.endswith(ends))
        return str(folder / value) if is_name else value

    placed_all = {key: placed(value) for key, value in parameters.items()}
    return {"algorithm": f"terrain_gpu:{base}", "parameters": placed_all}


def readable(path):
    """A file has something in it."""
    if path.endswith(".tif"):
        with rasterio.open(path) as opened:
            assert opened.shape == (344, 403)
            assert opened.read_masks(1).any()
    elif path.endswith(".csv"):
        assert len(Path(path).read_text(encoding="utf-8").splitlines()) > 1
    else:
        assert pyogrio.read_info(path, layer=0)["features"] > 0


def test_every_algorithm_runs_and_one_is_cancelled(installed):
    files = installed / "files"
    files.mkdir()
    assert CASES.keys() == ALGORITHMS.keys()
    two = files / "two layers.gpkg"
    for layer, place in (("places", A), ("others", C)):
        geometry = np.array([struct.pack("<BIdd", 1, 1, *place[:2])], dtype=object)
        how = {"geometry_type": "Point", "crs": "EPSG:4326", "layer": layer}
        pyogrio.raw.write(two, geometry, [], [], append=two.exists(), **how)
    cases = [case(files, name) for name in ORDER]
    left = {"INPUT": str(SAMPLE), "OUTPUT": str(files / "left.tif")}
    cases.append({"algorithm": "terrain_gpu:fill", "parameters": left, "cancel": True})
    cases.append({"algorithm": "terrain_gpu:burn", "parameters": left | {"DEPTH": 1}})
    places = {"OUTLETS": str(files / "streams.gpkg"), "OUTLETS_RASTER": str(files / "streams.tif")}
    cases.append({"algorithm": "terrain_gpu:fill", "parameters": left | places})
    cases.append({"algorithm": "terrain_gpu:fill", "parameters": left | {"INPUT": "none.tif"}})
    told = session(installed, cases)
    for name, found in zip(ORDER, told, strict=False):
        assert "error" not in found, (name, found)
        described = ALGORITHMS[name]["parameters"]
        wanted = {one["name"] for one in described if one["kind"].endswith("_out")}
        assert found["outputs"].keys() == wanted & (CASES[name].keys() | {"OUTPUT"}), name
        for path in found["outputs"].values():
            readable(path)
        styled = {one["name"] for one in described if "style" in one} & found["outputs"].keys()
        assert found["styles"].keys() == styled
        assert set(found["styles"].values()) <= {
            "paletted",
            "singlebandpseudocolor",
            "singleSymbol",
        }
        assert found["progress"][-1][1] == 100
    assert (files / "jacksboro.zarr" / "elevation").is_dir()
    by_name = dict(zip(ORDER, told, strict=False))
    # Only the selected points are sources, and only features that the filter lets through outlets.
    assert pyogrio.read_info(files / "w.gpkg", layer=0)["features"] == 2
    assert "processing_" in by_name["accumulate"]["messages"][0]
    # QGIS reads the first layer of a file.
    assert f"'{two}:places'" in by_name["rasterize"]["messages"][0]
    cancelled, missing, twice, none = told[len(ORDER) :]
    assert cancelled["error"] == "interrupted; nothing is kept"
    assert "Missing option '--streams'" in missing["error"]
    assert "give only one of them" in twice["error"]
    assert "none.tif" in none["error"]
    assert not (files / "left.tif").exists()
    assert not [*files.glob(".terrain-gpu-*")]


SLOW = """#!{python}
import sys, time
from pathlib import Path

def hook(event, args):
    if event == "os.rename" and "/slope/" in str(args[1]):
        time.sleep(0.3)

first = Path(__file__).with_name("first")
if sys.argv[1] == "slope" and first.exists():
    first.unlink()
    sys.addaudithook(hook)
sys.argv[0] = "terrain-gpu"
from terrain_gpu.cli.main import main
main()
"""
"""The program, with a first run of `slope` that takes 0.3 s for each block."""


def test_a_cancelled_run_continues_with_the_same_store(installed):
    """Cancelled when some blocks are done: the next run computes only the others."""
    files = installed / "files"
    files.mkdir()
    terrain_gpu.convert_dataset(SAMPLE, files / "jacksboro.zarr", block_size=64)
    expected = terrain_gpu.slope(files / "jacksboro.zarr", into="expected").layers["expected"]
    (installed / "terrain-gpu").write_text(SLOW.format(python=sys.executable), encoding="utf-8")
    (installed / "first").touch()
    target = files / "slope.tif"
    given = {"INPUT": str(SAMPLE), "OUTPUT": str(target), "STORE": str(files), "THREADS": 1}
    case = {"algorithm": "terrain_gpu:slope", "parameters": given}
    cancelled, finished = session(installed, [{**case, "cancel": "slope"}, case])
    wanted = "interrupted; finished blocks are kept, a run with the same store continues"
    assert cancelled["error"] == wanted
    (resumed,) = re.findall(r"layer slope, .* (\d+) blocks? resumed", str(finished["messages"]))
    assert 0 < int(resumed) < 42  # of the sample
    assert finished["outputs"] == {"OUTPUT": str(target)}
    with rasterio.open(target) as written:
        cells = expected.read_window(*expected.grid.window)
        assert np.array_equal(written.read(1), cells, equal_nan=True)
