"""What is declared of tools, and what is made from it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import terrain_gpu
from terrain_gpu.cli import working
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError
from terrain_gpu.tool import InputLayer, described, drawn, options_of
from terrain_gpu.tools import FUNCTIONS, TOOLS, tool_of

sys.path.append(str(Path(__file__).parent.parent / "scripts"))
import build_stub

USUAL = {
    "hand": {"threshold": 1000},
    "fill-spill-merge": {"rain": 0.02},
    "burn": {"streams": [(0, 0)], "depth": 1},
    "calc": {"expression": "elevation"},
    "contours": {"interval": 10},
    "compute-sssp": {"sources": [(0, 0)]},
    "corridor": {"distances": ("one", "other")},
    "cost-matrix": {"sources": [(0, 0)]},
    "least-cost-network": {"places": [(0, 0), (3, 3)]},
    "label-components": {"where": "elevation > 0"},
    "network": {"min_length": 1},
    "rasterize": {"features": [(0, 0)]},
    "streams": {"threshold": 1000},
    "terrain-indices": {"twi": "twi"},
    "watershed": {"links": "links"},
}
"""Options that a tool cannot do without."""

PLACES = ["--source-rowcol=0,0", "--source-rowcol=3,3"]
"""Those of a network, whose places have other names in the command."""


def test_the_stub_is_up_to_date():
    stored = build_stub.STUB.read_text(encoding="utf-8")
    assert stored == build_stub.text(), "run python scripts/build_stub.py"


@pytest.mark.parametrize("command", TOOLS)
def test_a_tool_is_declared_completely(command):
    tool = tool_of(command)
    asked = tool(**USUAL.get(command, {}))
    assert (tool.command, FUNCTIONS[tool.function]) == (command, command)
    assert all(isinstance(one, InputLayer) for one in asked.inputs())
    assert {"", "Returns"} <= described(tool).keys()
    texts = [tool.__doc__, *(one.option.help for one in options_of(tool).values())]
    named = {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}
    assert named <= options_of(tool).keys()


UNSET = click.Option(["--other"]).default
"""The default of options that have none."""


@pytest.mark.parametrize("command", TOOLS)
def test_the_function_and_the_command_have_the_same_options(command):
    tool = tool_of(command)
    function = getattr(terrain_gpu, tool.function)
    parameters = inspect.signature(function).parameters
    options = {param.name: param for param in group.commands[command].params}
    for name, one in options_of(tool).items():
        if one.option.of_arrays:
            assert name not in options or name == "nodata"  # which is about places there
        elif one.required:
            assert one.option.form or options[name].required
            assert parameters[name].default is inspect.Parameter.empty
        else:
            assert parameters[name].default == one.default
            assert one.option.form or options[name].default in (one.default, UNSET)
        assert f"\n{name}\n" in function.__doc__
    if any(one.required for one in options_of(tool).values()):
        missing = click.UsageError if command == "compute-sssp" else click.MissingParameter
        with pytest.raises(missing):
            group.main([command, "s.zarr"], standalone_mode=False)


@pytest.mark.parametrize("command", [name for name in TOOLS if drawn(tool_of(name))])
def test_a_file_of_another_kind_is_refused_before_a_raster_is_converted(
    command, tmp_path, monkeypatch
):
    monkeypatch.setattr(working, "_convert", lambda *_, **__: pytest.fail("converted"))
    (tmp_path / "dem.tif").touch()
    words = [f"--{k.replace('_', '-')}={v}" for k, v in USUAL.get(command, {}).items()]
    words = PLACES if command == "least-cost-network" else words
    option = [] if options_of(tool_of(command))[drawn(tool_of(command))].option.argument else ["-o"]
    files = str(tmp_path / "dem.tif"), *option, str(tmp_path / "out.shp")
    with pytest.raises(InputError, match=r"out\.shp: .*\.geojson"):
        group.main([command, *files, *words], standalone_mode=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with elevations and a result of calc, and a vector file."""
    folder = tmp_path_factory.mktemp("tools")
    cells = np.add.outer(np.arange(5), np.arange(7)).astype("float32")
    grid = terrain_gpu.GridSpec(5, 7)
    with terrain_gpu.create_layer(folder / "s.zarr", "elevation", grid, "float32") as writer:
        writer.write_block(0, 0, cells)
        writer.commit()
    terrain_gpu.calc(folder / "s.zarr", "elevation + 1", into="links", dtype="int64")
    point = {"type": "Point", "coordinates": [2.0, -2.0]}
    (folder / "p.geojson").write_text(json.dumps({**point, "crs": None}))
    return folder


INTO = [one for one in TOOLS if "into" in options_of(tool_of(one)) and one != "corridor"]
"""Tools with a layer of a name to write; but one that names its inputs otherwise."""


@pytest.mark.parametrize("layer", ["elevation", "links"])
@pytest.mark.parametrize("command", INTO)
def test_overwrite_is_not_advised_where_it_is_refused(folder, command, layer):
    """A layer that is read, or was made by another command."""
    usual = {"watershed": {"pour_points": "p"}, "calc": {"expression": f"{layer} + 1"}}
    options, words = options_of(tool_of(command)), []
    for name, value in (USUAL | usual).get(command, {}).items():
        given = str(value) if isinstance(value, int | float) or options[name].type is str else None
        given = given or str(folder / "p.geojson")
        words.append(
            given if options[name].option.argument else f"--{name.replace('_', '-')}={given}"
        )
    if command == "least-cost-network":
        words = [*PLACES, f"-o{folder / 'n.geojson'}"]
    said = []
    for more in ([], ["--overwrite"]):
        with pytest.raises((InputError, click.UsageError)) as error:
            group.main(
                [command, str(folder / "s.zarr"), *words, f"--into={layer}", *more],
                standalone_mode=False,
            )
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "different names" in said[0] or "hold" in said[0] or "already names" in said[0]
    assert terrain_gpu.TileStore.open(folder / "s.zarr").layers == ["elevation", "links"]


def test_tools_differ():
    tools = [tool_of(command) for command in TOOLS]
    for name in ("function", "accessor", "mark"):
        values = [value for one in tools if (value := getattr(one, name))]
        assert len(set(values)) == len(values)


ROOT = Path(__file__).parent.parent


def test_lists_that_are_written_by_hand_name_every_tool():
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    commands = text.partition("\n## Commands\n")[2].partition("\n## ")[0]
    sections = re.findall(r"^### (?:terrain-gpu )?([a-z-]+)$", commands, re.M)
    assert sorted(sections) == sorted(group.commands)
    contents = text.partition("- [Commands](#commands): ")[2].partition("\n- ")[0]
    assert re.findall(r"\[([a-z-]+)\]", contents) == sections

    proven = {name for name in TOOLS if tool_of(name).proof}
    for file, named in {
        "tests/everywhere.py": TOOLS.keys(),
        "docs/how-to/cluster.md": TOOLS.keys(),
        "scripts/mutate_proofs.py": proven,
    }.items():
        words = set(re.findall(r"[a-z][a-z-]*", (ROOT / file).read_text(encoding="utf-8")))
        assert named - words == set(), file
