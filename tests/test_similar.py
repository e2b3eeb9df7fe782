"""Mistyped words: every kind of message asks whether the most similar one was meant."""

from __future__ import annotations

import numpy as np
import pytest
from programs import forked

import terrain_gpu
from terrain_gpu import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.similar import did_you_mean
from terrain_gpu.store import create_layer


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("elevation", "resistance"):
        with create_layer("s.zarr", name, GridSpec(8, 8), "float32", nodata=-9) as out:
            out.write_block(0, 0, np.add.outer(np.arange(8), np.arange(8)).astype("f4"))
            out.commit()
    return "s.zarr"


def test_the_most_similar_word():
    assert did_you_mean("elevtion", ["slope", "elevation"]) == "; did you mean elevation?"
    assert did_you_mean("D8", ["dinf", "d8"]) == "; did you mean d8?"
    assert did_you_mean(9, [8, 4]) == did_you_mean("", ["slope"]) == did_you_mean("x", []) == ""


COMMANDS = {
    "stream s.zarr": "streams",
    "slope s.zarr --aspekt a": "--aspect",
    "flow-accumulation s.zarr --method dinff": "dinf",
    "slope s.zarr --layer elevaton": "elevation",
    "calc s.zarr 'elevatio + 1'": "elevation",
    "label-components s.zarr --where 'elevatio > 1'": "elevation",
    "compute-sssp s.zarr --source-rowcol 1,1 --cost toblr": "tobler",
    "compute-sssp s.zarr --source-rowcol 1,1 --cost 'length * slop'": "slope",
    "compute-sssp s.zarr --source-rowcol 1,1 --friction resistence": "resistance",
    "compile slop": "slope",
    "help slop": "slope",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_commands(store, words):
    done = forked(f"terrain-gpu {words}")
    assert done.returncode == 2
    meant = done.stderr.replace("'", "").lower().split("did you mean")[-1]
    assert COMMANDS[words] in meant.split("(see")[0], done.stderr


def test_python(store):
    with pytest.raises(InputError, match=r"order .* is not known; .*; did you mean strahler"):
        terrain_gpu.streams(store, 9, order="strahlr")
    with pytest.raises(TypeError, match="unexpected keyword argument 'treshold'; did you mean thr"):
        terrain_gpu.streams(store, treshold=9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bound'; did you mean bounds"):
        terrain_gpu.export_layer(store, "a.tif", bound=(0, 0, 1, 1))
    with pytest.raises(TypeError, match="missing a required argument"):
        terrain_gpu.export_layer(store)
    with pytest.raises(StoreError, match=r"no layer 'elevatio'; .*; did you mean elevation"):
        terrain_gpu.slope(store, layer="elevatio")
