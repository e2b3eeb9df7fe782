"""Given directions that form a loop, or are in another encoding: cells are named."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from contract import make_store
from test_flow import call, store_of_codes

from terrain_gpu import TileStore

E, S, W, N = 1, 4, 16, 64
COMMANDS = (
    "flow-accumulation s.zarr --directions codes",
    "basins s.zarr --directions codes",
    "watershed s.zarr --directions codes --pour-point-rowcol 3,3",
    "hand s.zarr --directions codes --accumulation few --threshold 9",
    "streams s.zarr --directions codes --accumulation sums --threshold 9",
)


@pytest.fixture
def place(tmp_path, monkeypatch, no_fsync):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store_of(codes):
    """Directions, with heights and sums beside them."""
    z = np.full(codes.shape, 7, np.int16)
    store = make_store(Path("s.zarr"), z, None, 64)
    grid = TileStore.open(store).grid
    store_of_codes(store, codes, grid=grid)
    add_sums(store, grid)


def add_sums(store, grid):
    """Sums by which all cells are channels, or one is."""
    sums = np.full(grid.shape, 50, np.int64)
    store_of_codes(store, sums, nodata=0, grid=grid, name="sums")
    sums[:], sums[1, 1] = 1, 50
    store_of_codes(store, sums, nodata=0, grid=grid, name="few")


def circle(codes, top, left, bottom, right):
    """Let directions lead round a rectangle; return its cells."""
    codes[top, left:right] = E
    codes[top:bottom, right] = S
    codes[bottom, left + 1 : right + 1] = W
    codes[top + 1 : bottom + 1, left] = N
    rows, cols = np.indices(codes.shape)
    inside = (rows >= top) & (rows <= bottom) & (cols >= left) & (cols <= right)
    inner = (rows > top) & (rows < bottom) & (cols > left) & (cols < right)
    return set(map(tuple, np.argwhere(inside & ~inner).tolist()))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("corners", [(70, 10, 75, 30), (60, 60, 66, 70), (5, 5, 5, 6)])
def test_loops_are_named(place, capsys, command, corners):
    """Within a block, over the corner of four, and of two cells; fed by other cells."""
    codes = np.full((130, 140), E, np.uint8)
    cells = circle(codes, *corners)
    if corners[0] == corners[2]:
        codes[5, 5], codes[5, 6], cells = E, W, {(5, 5), (5, 6)}
    store_of(codes)
    before = set(TileStore.open("s.zarr").layers)
    assert call(f"{command} --into made -q") == 2
    told = capsys.readouterr().err
    row, col = map(int, re.search(r"row ([0-9]+), column ([0-9]+)", told).groups())
    assert (row, col) == min(cells)
    listed = re.search(rf"form a loop of {len(cells)} cells: (\(.*\))", told)[1]
    named = [tuple(map(int, one)) for one in re.findall(r"\((\d+), (\d+)\)", listed)]
    assert named[0] == min(cells)
    assert set(named) <= cells
    assert len(named) == min(len(cells), 12)
    assert all(max(abs(r - s), abs(c - d)) == 1 for (r, c), (s, d) in pairwise(named))
    if len(cells) > 12:
        assert f" and {len(cells) - 12} more" in told
    assert set(TileStore.open("s.zarr").layers) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("at", "code"), [((70, 65), 3), ((5, 5), 7), ((129, 139), 9)])
def test_other_codes_are_named(place, capsys, command, at, code):
    """Such as those of GRASS, TauDEM and PCRaster."""
    codes = np.full((130, 140), E, np.uint8)
    codes[at] = code
    store_of(codes)
    assert call(f"{command} --into made -q") == 2
    told = capsys.readouterr().err
    assert f"row {at[0]}, column {at[1]}: {code} is not a D8 code (E 1, SE 2, S 4" in told


@pytest.mark.parametrize("command", COMMANDS)
def test_other_types_are_refused(place, capsys, command):
    z = np.full((70, 80), 7, np.int16)
    store = make_store(Path("s.zarr"), z, None, 64)
    grid = TileStore.open(store).grid
    store_of_codes(store, z, nodata=-1, grid=grid)
    add_sums(store, grid)
    assert call(f"{command} --into made -q") == 2
    assert (
        "codes: holds int16, but flow directions are D8 codes of uint8" in capsys.readouterr().err
    )
