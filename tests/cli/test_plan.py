"""`plan`: for variants of hydrology as their runs report it, and for every shape."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from contract import make_store

from terrain_gpu import (
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    hand,
    minimum_spanning_tree,
)
from terrain_gpu.cli.plan import NEEDS, PURPOSES, command
from terrain_gpu.errors import PlanError
from terrain_gpu.mst import plan_spanning_tree

LIMITS = {"memory_limit": 10**9, "threads": 2}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    heights = np.random.default_rng(4).integers(0, 50, (200, 300)).astype(np.float32)
    path = make_store(tmp_path_factory.mktemp("plan") / "s.zarr", heights, None, 64)
    minimum_spanning_tree(path, weight="flow")
    flow_direction(path)
    fill(path)
    flow_accumulation(path)
    return path


VARIANTS = {
    "flow-direction --flats gradient": lambda s: flow_direction(
        s, flats="gradient", into="a", **LIMITS
    ),
    "flow-accumulation --method dinf": lambda s: flow_accumulation(
        s, method="dinf", into="b", **LIMITS
    ),
    "flow-accumulation --method quinn": lambda s: flow_accumulation(
        s, method="quinn", into="b", overwrite=True, **LIMITS
    ),
    "hand --method dinf": lambda s: hand(
        s, threshold=9, method="dinf", into="c", distance="d", **LIMITS
    ),
    "fill-spill-merge": lambda s: fill_spill_merge(s, rain=0.1, **LIMITS),
    "fill --epsilon": lambda s: fill(s, epsilon=True, into="e", **LIMITS),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_plan_says_is_what_a_run_does(variant, store):
    words = ["--for", *variant.split(), "--memory-limit", "1GB", "--threads", "2", "--json", "-"]
    done = CliRunner().invoke(command, [str(store), *words])
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)["result"]
    assert planned == VARIANTS[variant](store).report.settings["plan"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fill --method mfd", "--method needs --for flow-accumulation or --for hand"),
        ("hand --method mfd", "--method mfd: hand knows d8 and dinf"),
        ("basins --epsilon", "--epsilon needs --for fill"),
        ("fill --flats gradient", "--flats needs --for flow-direction"),
    ],
)
def test_options_of_other_commands_are_refused(words, message):
    done = CliRunner().invoke(command, ["90x90", "--for", *words.split()])
    assert done.exit_code == 2
    assert message in done.output


def test_there_is_no_forecast_of_what_was_not_measured():
    for words in (
        "fill --epsilon",
        "fill-spill-merge",
        "flow-direction --flats gradient",
        "hand --method dinf",
    ):
        done = CliRunner().invoke(command, ["900x900", "--for", *words.split(), "--workers", "4"])
        assert done.exit_code == 0
        assert "no forecast" in done.output
    plain = ["900x900", "--for", "hand", "--method", "d8", "--workers", "4"]
    assert "scheduler" in CliRunner().invoke(command, plain).output


@pytest.mark.parametrize("shape", ["2147483647x2147483647", "1x2147483647", "2147483647x1", "1x1"])
@pytest.mark.parametrize("purpose", PURPOSES)
def test_every_shape_has_a_plan_or_none(purpose, shape):
    """However large, a raster is planned, or its plan says how much memory it would take."""
    words = [shape, "--for", purpose]
    for points in ("9", "2147483647") if purpose in NEEDS["points"] else ("",):
        more = ["--points", points] if points else []
        done = CliRunner().invoke(command, [*words, *more], standalone_mode=False)
        assert done.exception is None or isinstance(done.exception, PlanError)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_blocks_are_planned_no_larger_than_the_raster(purpose):
    def least(shape, block):
        words = [shape, "--for", purpose, "--block-size", str(block), "--threads", "1"]
        more = ["--points", "9"] if purpose in NEEDS["points"] else []
        done = CliRunner().invoke(command, [*words, *more, "--memory-limit", "1B"])
        return int(re.search(r"give (?:at least|more than) (\d+) MB", str(done.exception))[1])

    for shape in ("500x20", "20x500"):
        assert least(shape, 8192) <= least(shape, 512) + 1


def test_long_rasters_have_no_borders_beside_their_edges():
    for shape in (1, 30_000_000), (30_000_000, 1):
        plan = plan_spanning_tree(*shape, np.dtype(np.float32), 1024, threads=1)
        assert plan.memory < 300e6
