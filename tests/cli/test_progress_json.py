"""Progress for programs: lines of JSON on standard error, and "cancel" on standard input."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess

import click
import numpy as np
import pytest
from pauses import Pause, go_on, pausing, wait_for_pause
from programs import program
from test_cli import call, terrain, write_tif

from terrain_gpu import TileStore
from terrain_gpu.cli.main import group
from terrain_gpu.progress import EVERY

RUNS = {
    "convert-dataset dem.tif new.zarr": ["convert"],
    "compute-mst s.zarr --verify": ["compute-mst"],
    "compute-sssp dem.tif --source-rowcol 5,6 --cost tobler -o t.tif": [
        "convert",
        "shortest paths",
    ],
    "cost-matrix s.zarr --source-rowcol 5,6 --source-rowcol 7,8 -o m.csv": ["cost-matrix"],
    "slope dem.tif -o slope.tif": ["convert", "slope"],
    "hand dem.tif --threshold 50 -o hand.tif": ["convert", "compute-mst", "flow-direction"],
    "contours dem.tif lines.gpkg --interval 500": ["convert", "contours"],
    "build-index s.zarr": ["build-index"],
    "export s.zarr back.tif": ["export"],
    "verify s.zarr": [],
}


@pytest.fixture
def world(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_tif("dem.tif", terrain(90, 110).astype(np.int16))
    assert call(capfd, "convert-dataset dem.tif s.zarr --block-size 64")[0] == 0
    return tmp_path


@pytest.mark.parametrize("command", RUNS)
def test_lines(world, capfd, command):
    code, out, err = call(capfd, f"{command} --progress json")
    assert code == 0, err
    found = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert "{" not in out
    phases = list(dict.fromkeys(line["phase"] for line in found))
    assert phases[: len(RUNS[command])] == RUNS[command]
    for phase in phases:
        mine = [line for line in found if line["phase"] == phase]
        assert all(set(line) == set(mine[0]) for line in mine)
        assert (mine[0]["done"], mine[0]["seconds_left"]) == (0, None)
        assert mine[-1]["done"] == mine[-1]["total"] > 0
        assert mine[-1]["seconds_left"] == 0
    if command.startswith("convert"):
        assert mine[-1]["bytes"] > 2 * 90 * 110 * 2  # read and written
        for one, two in itertools.pairwise(mine):
            assert one["done"] <= two["done"] <= two["total"]
            assert one["seconds"] <= two["seconds"]
            assert 0 <= one["bytes"] <= two["bytes"]
        # The last two may follow each other at once.
        times = [line["seconds"] for line in mine[:-1]]
        assert all(b - a > EVERY - 0.01 for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("words", ["--progress none", "--progress auto", "--progress json -q"])
def test_other_ways(world, capfd, words):
    code, _, err = call(capfd, f"slope s.zarr {words}")
    assert code == 0
    assert [line.startswith("{") for line in err.splitlines()] == [True, True] * ("json" in words)


def test_every_command_that_takes_time_has_it():
    quick = {"demo", "help", "info", "layers", "map", "plan"}
    for name, command in group.commands.items():
        if isinstance(command, click.Group) or name in quick:
            continue
        assert any(option.name == "progress" for option in command.params), name


def test_cancel(world):
    """In the midst of a run: as Ctrl-C, and --resume continues."""
    write_tif("large.tif", terrain(1280, 1280).astype(np.int16))
    subprocess.run(
        [*program("convert-dataset"), "large.tif", "l.zarr", "--block-size", "64"], check=True
    )
    subprocess.run([*program("terrain-gpu"), "slope", "l.zarr"], check=True)  # compiles
    slope = TileStore.open("l.zarr").layer("slope")
    expected = slope.read_window(*slope.grid.window).tobytes()
    words = [*program("terrain-gpu"), "slope", "l.zarr", "--overwrite", "--progress", "json"]
    pause = Pause("os.rename", "slope", 20, 350)
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(pausing(words[0], words[1:], pause), text=True, **pipes) as process:
        wait_for_pause(process)
        process.stdin.write("something else\n cancel \n")
        process.stdin.flush()
        _, err = go_on(process, signal.SIGCONT)
    assert process.returncode == 130, err
    last = err.splitlines()[-1]
    assert last == "Error: interrupted; finished blocks are kept, --resume continues"
    done = subprocess.run(
        [*words, "--resume", "--json", "-"], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["result"]["blocks_resumed"] > 0
    slope = TileStore.open("l.zarr").layer("slope")
    assert slope.read_window(*slope.grid.window).tobytes() == expected


@pytest.mark.parametrize("text", ["", "cance", "CANCEL\n", "x cancel\n"])
def test_other_input_does_not_cancel(world, text):
    words = [*program("terrain-gpu"), "slope", "s.zarr", "--progress", "json"]
    done = subprocess.run(words, input=text, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
