"""Layers are listed, renamed and removed, and what depends on them is told."""

from __future__ import annotations

import fcntl
import json
import os
import shutil

import numpy as np
import pytest
from contract import make_store

import terrain_gpu
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import InputError, StoreError
from terrain_gpu.store import TileStore
from terrain_gpu.store import manage as managing
from terrain_gpu.store.manage import dependants, remove_layers, rename_layer


@pytest.fixture
def store(tmp_path, no_fsync):
    data = np.random.default_rng(3).integers(0, 50, (70, 90)).astype("int16")
    make_store(tmp_path / "s.zarr", data, -1, 64)
    how = {"backend": "cpu", "backlink": True, "allocation": True}
    terrain_gpu.shortest_paths(tmp_path / "s.zarr", [(3, 3)], **how)
    terrain_gpu.slope(tmp_path / "s.zarr")
    return TileStore.open(tmp_path / "s.zarr")


def call(capfd, words: str) -> tuple[int, str, str]:
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    return code, *capfd.readouterr()


def test_what_depends_on_a_layer(store):
    assert dependants(store, "elevation") == ["allocation", "backlink", "distance", "slope"]
    assert dependants(store, "distance") == ["allocation", "backlink"]
    assert dependants(store, "slope") == []


def test_the_list(store, capfd, tmp_path):
    code, out, err = call(capfd, f"layers {store.path} --json {tmp_path}/r.json")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["layer", "type", "size", "made", "by", "from"]
    assert [row[0] for row in rows[1:]] == store.layers
    assert rows[2][1] == "uint8"
    assert rows[2][4:] == ["compute-sssp", "elevation,", "distance"]
    found = json.loads((tmp_path / "r.json").read_text())["result"]["layers"]
    assert found["slope"]["made_by"] == "slope"
    assert found["elevation"]["made_by"] is None
    remove_layers(store, ["elevation"], force=True)
    shutil.rmtree(store.path / "slope")
    (store.path / "slope").mkdir()
    (store.path / "slope" / "zarr.json").write_text("{")
    code, out, err = call(capfd, f"layers {store.path}")
    assert (code, err) == (0, "")
    assert "STALE: elevation changed since" in out
    assert "damaged" in out.splitlines()[-1] or "slope" in out.splitlines()[-1]
    remove_layers(store, ["slope"])
    assert store.layers == ["allocation", "backlink", "distance"]


def test_python_takes_paths_and_the_command_lists_the_same(store, capfd, tmp_path):
    path = str(store.path)
    assert call(capfd, f"layers {path} --json {tmp_path}/r.json -q")[0] == 0
    found = terrain_gpu.list_layers(path)
    assert found == json.loads((tmp_path / "r.json").read_text())["result"]["layers"]
    assert found["slope"] == {
        "dtype": "float32", "stored_bytes": store.layer("slope").info["stored_bytes"],
        "made_by": "slope", "from": ["elevation"], "stale": [],
    }  # fmt: skip
    assert terrain_gpu.rename_layer(path, "distance", "walk") == [
        "walk", "walk_allocation", "walk_backlink",
    ]  # fmt: skip
    with pytest.raises(InputError, match="give a list of names of layers"):
        terrain_gpu.remove_layers(path, "walk")
    terrain_gpu.remove_layers(path, ["walk", "walk_allocation", "walk_backlink"])
    assert sorted(terrain_gpu.list_layers(store)) == ["elevation", "slope"]
    with pytest.raises(StoreError):
        terrain_gpu.list_layers(tmp_path / "none.zarr")


def test_a_layer_is_removed(store):
    remove_layers(store, ["slope"])
    assert store.layers == ["allocation", "backlink", "distance", "elevation"]
    assert not (store.path / ".incomplete").exists()
    with pytest.raises(StoreError, match="no layer 'slope'; it has: allocation, backlink"):
        remove_layers(store, ["slope"])
    with pytest.raises(InputError, match="'allocation' and 'backlink' were computed from 'dista"):
        remove_layers(store, ["distance"])
    with pytest.raises(InputError, match="were computed from 'elevation'"):
        remove_layers(store, ["elevation"])
    remove_layers(store, ["backlink", "allocation", "distance"])
    with pytest.raises(InputError, match="'elevation' is the main layer of the store"):
        remove_layers(store, ["elevation"])
    remove_layers(store, ["elevation"], force=True)
    assert TileStore.open(store.path).layers == []


def test_a_killed_removal_is_finished_by_the_next(store, monkeypatch):
    removed = shutil.rmtree

    def stop(path, ignore_errors=False):
        if not ignore_errors:
            raise KeyboardInterrupt
        removed(path, ignore_errors=True)

    monkeypatch.setattr(shutil, "rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        remove_layers(store, ["slope"])
    monkeypatch.undo()
    assert "slope" not in TileStore.open(store.path).layers
    assert (store.path / ".incomplete" / "slope.removed").exists()
    terrain_gpu.slope(store.path)
    remove_layers(store, ["slope"])
    assert not (store.path / ".incomplete").exists()


def test_distances_are_renamed_with_what_belongs_to_them(store, capfd):
    before = store.layer("distance").read_window(*store.grid.window)
    code, out, _ = call(capfd, f"layers {store.path} rename distance walk")
    assert code == 0
    assert out.endswith("renamed distance to walk, walk_allocation, walk_backlink\n")
    assert store.layers == ["elevation", "slope", "walk", "walk_allocation", "walk_backlink"]
    code, out, _ = call(capfd, f"verify {store.path} --backend cpu")
    assert (code, "layers walk, walk_backlink, walk_allocation verified" in out) == (0, True)
    assert np.array_equal(store.layer("walk").read_window(*store.grid.window), before)
    assert rename_layer(store, "walk", "distance2") == [
        "distance2",
        "distance2_allocation",
        "distance2_backlink",
    ]
    terrain_gpu.shortest_paths(store.path, [(9, 9)], backlink=True, backend="cpu")
    assert call(capfd, f"verify {store.path} --backend cpu")[0] == 0
    with pytest.raises(StoreError, match="'distance' exists; remove it first"):
        rename_layer(store, "distance2", "distance")


def test_a_killed_renaming_is_finished_by_the_next(store, monkeypatch, capfd):
    renamed = os.rename

    def stop(old, new):
        if str(old).endswith("distance"):
            raise KeyboardInterrupt
        renamed(old, new)

    monkeypatch.setattr(managing.os, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        rename_layer(store, "distance", "walk")
    monkeypatch.undo()
    assert rename_layer(store, "distance", "walk") == ["walk"]
    assert call(capfd, f"verify {store.path} --backend cpu")[0] == 0


def test_renaming_that_is_refused(store):
    with pytest.raises(InputError, match=r"'slope' were computed from 'elevation' and could not"):
        rename_layer(store, "elevation", "dem")
    for name in ("x", "a b", "", "../up"):
        with pytest.raises(InputError, match=f"layer name {name!r}: use letters.* none of x, y,"):
            rename_layer(store, "slope", name)
    with pytest.raises(StoreError, match="no layer 'nothing'"):
        rename_layer(store, "nothing", "slope2")
    assert rename_layer(store, "elevation", "dem", force=True) == ["dem"]
    assert store.stale(store.layer("slope")) == ["elevation"]


def test_layers_that_a_run_writes_stay(store):
    folder = store.path / ".incomplete"
    folder.mkdir()
    with open(folder / "slope.jsonl", "w") as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="a run is writing 'slope'"):
            remove_layers(store, ["slope"])
        with pytest.raises(StoreError, match="a run is writing 'slope'"):
            rename_layer(store, "slope", "steep")
    assert "slope" in store.layers


def test_wrong_words(store, capfd):
    for words, what in (
        ("move a b", "'move' is not known; use rename OLD NEW or remove NAME"),
        ("rename a", "rename needs two names: OLD NEW"),
        ("remove", "remove needs the name of a layer, or several"),
        ("--force", "--force is for rename and remove"),
    ):
        code, _, err = call(capfd, f"layers {store.path} {words}")
        assert (code, what in err) == (2, True), err


def test_a_name_given_twice_is_removed_once(store, capfd):
    code, out, err = call(capfd, f"layers {store.path} remove slope slope")
    assert (code, out + err) == (0, f"{store.path}: removed slope\n")
