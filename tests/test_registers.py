"""The tables of cost models and of weights: a new one takes a single row."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, get_args

import numba
import numpy as np
import pytest
import strategies
from test_mst import make_store

import terrain_gpu
from terrain_gpu import arguments, shortest_paths
from terrain_gpu.cuda.device import source
from terrain_gpu.engine.operation import Operation
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.paths.cost import models as costs
from terrain_gpu.paths.cost.edges import Max, edge, join, joining
from terrain_gpu.paths.cost.formula.presets import PRESETS
from terrain_gpu.paths.cost.models import MODELS, CostModel, Model, Scaled, model_of
from terrain_gpu.paths.relax.gpu.variants import step_macros
from terrain_gpu.spanning_tree import weights
from terrain_gpu.store import manage

REFERENCE = Path(__file__).parent.parent / "docs/reference.md"


def test_types_name_the_rows_of_the_tables():
    assert get_args(arguments.CostName) == tuple(MODELS)
    assert get_args(arguments.TreeWeight) == tuple(weights.WEIGHTS)
    assert set(strategies.MODELS) == set(MODELS)


def test_the_list_of_layers_knows_all_commands():
    for module in pkgutil.walk_packages(terrain_gpu.__path__, "terrain_gpu."):
        if ".cuda" not in module.name:
            importlib.import_module(module.name)
    kinds, marked = [Operation], {}
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not kind.__module__.startswith("terrain_gpu."):
            continue
        if isinstance(mark := getattr(kind, "mark", ""), str) and mark:
            marked.setdefault(kind.mark, set()).add(kind.command)
    assert marked.keys() <= manage.makers().keys()
    # The index is no layer; ties are of compute-sssp; directions and sums are told apart by more.
    others = {"build-index", "tied-steps", "flow-direction"}
    for mark, commands in marked.items():
        assert commands - others <= {manage.makers()[mark]}
        # Breached heights, too, record the outlets by which sums are known.
        layer = SimpleNamespace(info={"settings": {"outlets": "edge", mark: "elevation"}})
        assert manage.made_by(layer) == manage.makers()[mark]


def test_the_reference_lists_the_models():
    text = REFERENCE.read_text(encoding="utf-8")
    table = text[text.index("| model | cost of a step") :].partition("\n\n")[0].splitlines()[2:]
    rows = [re.fullmatch(r"\| `(\w+)` \| (.*[^\\]) \| (.*[^\\]) \|", row).groups() for row in table]
    assert [name for name, _, _ in rows] == list(MODELS)
    words = {"factor": "factor", "own": "as in r.walk", "needed": "F", "refused": "not possible"}
    for name, cost, friction in rows:
        model = MODELS[name]
        assert friction == words[model.friction]
        named = cost.partition("Parameters ")[2].split(", ") if model.parameters else []
        defaults = [f"{k} {v:g}" for k, v in zip(model.parameters, model.kernel(), strict=True)]
        assert named == defaults
        assert ("seconds" in cost) == (model.unit == "s")
    metric = re.search(r"((?:`\w+`,?\s(?:and\s)?)+)need metres", text)[1]
    assert re.findall(r"`(\w+)`", metric) == [
        name for name, model in MODELS.items() if model.metric
    ]
    option = re.search(r"`--weight ([^`]*)`", text)[1]
    assert option.split(r"\|") == list(weights.WEIGHTS)


def test_the_reference_lists_the_models_of_the_literature():
    text = REFERENCE.read_text(encoding="utf-8")
    for name, preset in PRESETS.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*) \| `(.*?)`(.*) \| (.*) \|$", text, re.M)
        given = "".join(f"; `{key}` {value:g}" for key, value in preset.parameters.items())
        assert row == (preset.unit or "-", preset.formula, given, preset.source)


def test_the_gpu_knows_every_model():
    text = source("costs")
    for model in MODELS.values():
        assert re.search(rf"^#define {model.cuda} \d+$", text, re.M)
        assert f"if MODEL == {model.cuda}\n" in text
    # By name in costs.cuh and fields.cu: how costs are joined, and which parameters there are.
    assert [model.cuda for model in MODELS.values() if model.bottleneck] == ["MINIMAX"]
    assert [model.cuda for model in MODELS.values() if model.parameters] == ["LANGMUIR"]


# -- one more model ----------------------------------------------------------------------------


class Climb(NamedTuple):
    """Metres uphill, plus a share of those downhill."""

    share: float = 0.5


def _climb(cost, a, b, fa, fb, length):
    return max(b - a, (a - b) * cost.share)


CLIMB = Model("climb", Climb, _climb, None, directed=True, lengths=False)


def test_a_model_more_is_compiled(monkeypatch):
    monkeypatch.setitem(MODELS, "climb", CLIMB)

    @numba.njit
    def walk(cost, heights, friction, joined):
        found = 0.0
        for k in range(len(heights) - 1):
            step = edge(cost, heights[k], heights[k + 1], friction, friction, 1.0)
            found = join(joined, found, step)
        return found

    heights = np.array([0.0, 4.0, 2.0, 3.0])
    plain = CostModel("climb", False, {"share": 0.25})
    scaled = CostModel("climb", True, {"share": 0.25})
    assert plain.kernel == Climb(0.25)
    assert scaled.kernel == Scaled(Climb(0.25))
    assert model_of(scaled.kernel) is CLIMB
    assert costs.is_directed(scaled.kernel)
    for model, expected in (plain, 5.5), (scaled, 16.5):
        assert walk(model.kernel, heights, 3.0, joining(model.kernel)) == expected
    monkeypatch.setitem(MODELS, "climb", replace(CLIMB, bottleneck=True, friction="refused"))
    assert joining(plain.kernel) == Max()
    assert walk(plain.kernel, heights, 3.0, joining(plain.kernel)) == 4
    with pytest.raises(InputError, match="climb does not use friction; leave it out"):
        CostModel("climb", True, {})
    f64 = np.dtype(np.float64)
    with pytest.raises(PlanError, match="cost 'climb' is not available on a GPU"):
        step_macros(plain.kernel, f64, None, f64, (True, True, False))


PROGRAM = """
import dataclasses, json, sys
import terrain_gpu
from terrain_gpu.paths.cost.models import MODELS

MODELS["hike"] = dataclasses.replace(MODELS["tobler"], name="hike")

from terrain_gpu.cli.main import group

store, report = sys.argv[1:]
for words in (
    f"compute-sssp {store} --source-rowcol 0,0 --cost hike --reverse --verify --backend cpu",
    f"verify {store}",
    f"build-index {store} --cost hike --reverse --backend cpu",
    f"compute-sssp {store} --source-rowcol 0,0 --cost hike --reverse --method index --overwrite "
    f"--json {report}",
    "plan 300x400 --for sssp --cost hike --block-size 64",
    "compute-sssp --help",
):
    group.main(words.split(), standalone_mode=False)
"""


def test_a_model_more_is_known_everywhere(tmp_path):
    heights = np.random.default_rng(3).uniform(0, 50, (70, 90))
    store = make_store(tmp_path / "s.zarr", heights, None, 64)
    report = tmp_path / "r.json"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, store, report],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "tobler|langmuir|minimax|hike|PRESET|FORMULA]" in "".join(done.stdout.split())
    found = json.loads(report.read_text())
    assert found["settings"]["cost"] == "hike"
    assert found["settings"]["method"] == "index"
    index = json.loads((store / "distance_index/zarr.json").read_text())
    own = next(iter(index["attributes"].values()))
    assert own["settings"]["cost"] == "hike"
    assert own["settings"]["reverse"]
    assert not own["symmetric"]


def test_a_model_more_is_known_to_python(monkeypatch):
    heights = np.random.default_rng(4).uniform(0, 50, (20, 30))
    with pytest.raises(InputError, match=r"cost 'hike' is not known; use one of absdiff, .*max"):
        shortest_paths(heights, [(1, 1)], cost="hike")
    monkeypatch.setitem(MODELS, "hike", replace(MODELS["tobler"], name="hike"))
    found = shortest_paths(heights, [(1, 1)], cost="hike", backend="cpu").distance()
    expected = shortest_paths(heights, [(1, 1)], cost="tobler", backend="cpu").distance()
    assert np.array_equal(found, expected)


def test_a_weight_more_is_known(monkeypatch):
    row = replace(weights.WEIGHTS["absdiff"], name="drop")
    with pytest.raises(InputError, match="weight 'drop' is not known"):
        weights.Weight("drop", np.dtype(np.int16))
    monkeypatch.setitem(weights.WEIGHTS, "drop", row)
    found = weights.Weight("drop", np.dtype(np.int16))
    assert found.rule() == np.iinfo(np.uint32).max
