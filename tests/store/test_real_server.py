"""A real server of object storage: the same bytes as on a disk, kills, two writers.

Set TERRAIN_GPU_SOAK to an existing bucket, such as s3://soak, and the credentials and the endpoint
as usual (docs/how-to/object-storage.md). What the tests write there, they delete.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from contract import make_store
from programs import program
from test_bucket import files, leftovers, pipeline

import terrain_gpu
from terrain_gpu import build_index
from terrain_gpu.errors import StoreError
from terrain_gpu.store import TileStore, create_layer
from terrain_gpu.store.objects import ObjectPath, for_each

BUCKET = os.environ.get("TERRAIN_GPU_SOAK", "")
pytestmark = pytest.mark.skipif(not BUCKET, reason="TERRAIN_GPU_SOAK names no bucket")

SIDE = 500


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The URL of an empty folder in the bucket."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path / "scratch"))
    found = ObjectPath(BUCKET) / f"soak-{uuid.uuid4().hex}"
    yield str(found)
    found.delete_below(name for name, _ in found.walk())


def terrain(seed=1) -> np.ndarray:
    found = np.cumsum(np.random.default_rng(seed).integers(-3, 4, (SIDE, SIDE)), 1)
    found[200:230, 100:400] = -9999
    return found.astype(np.int16)


def contents(store: str) -> dict[str, bytes]:
    place, found = ObjectPath(store), {}

    def fetch(name: str) -> None:
        found[name] = (place / name).read()[0]

    for_each(fetch, (name for name, _ in place.walk()))
    return found


def both(folder: str, tmp_path: Path) -> list:
    """The same store on a disk and in the bucket."""
    return [
        make_store(place, terrain(), -9999, 128) for place in (tmp_path / "s.zarr", f"{folder}/s")
    ]


def test_all_operations(folder, tmp_path):
    here, there = both(folder, tmp_path)
    pipeline(here, tmp_path / "here")
    pipeline(there, tmp_path / "there")
    assert contents(str(there)) == files(here)
    for _ in range(3):  # from one version to the other, and back
        terrain_gpu.minimum_spanning_tree(there, overwrite=True, verify=True)
        build_index(there, overwrite=True)
    assert sorted(name.replace(".", "/") for name in contents(str(there))) == sorted(
        name.replace(".", "/")
        for name in files(here) | {"mst/digests-dotted": b""}
        if name != "mst/digests"
    )
    assert leftovers(str(there)) == []


COMMANDS = [
    "compute-mst {} --resume --verify",
    "compute-sssp {} --source-rowcol 5,5 --resume",
    "terrain-gpu build-index {}",
    "terrain-gpu label-components {} --where elevation>3 --resume",
    "terrain-gpu accumulate {} --resume",
    "convert-dataset {raster} {}-converted --block-size 128 --resume",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_random_moments_and_resumed(folder, tmp_path, command):
    here, there = both(folder, tmp_path)
    raster = tmp_path / "r.tif"
    terrain_gpu.export_layer(here, raster)
    if "accumulate" in command:
        for place in (here, there):
            terrain_gpu.minimum_spanning_tree(place)
    run = [shlex.split(command.format(place, raster=raster)) for place in (here, there)]
    if "convert" in command:
        here, there = f"{here}-converted", f"{there}-converted"
    subprocess.run([*program(run[0][0]), *run[0][1:]], check=True)
    kills = 0
    for delay in random.Random(command).sample(range(1000, 6000), 6):
        with subprocess.Popen([*program(run[1][0]), *run[1][1:]]) as process:
            try:
                process.wait(delay / 1000)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
            else:
                break
        if kills % 2:  # as on another machine
            shutil.rmtree(tmp_path / "scratch")
            (tmp_path / "scratch").mkdir()
    subprocess.run([*program(run[1][0]), *run[1][1:]], check=True)
    assert contents(str(there)) == files(Path(here))
    assert leftovers(str(there)) == []


def test_two_writers(folder, tmp_path, monkeypatch):
    store = make_store(f"{folder}/s", terrain(), -9999, 128)
    new = tmp_path.joinpath
    names = iter(range(9))

    def elsewhere():
        (place := new(f"machine{next(names)}")).mkdir()
        return place

    monkeypatch.setattr("terrain_gpu.store.scratch.scratch_folder", elsewhere)
    grid = TileStore.open(store).grid
    how = {"nodata": -9999, "block_size": 128}
    data = terrain(2)

    def write(writer, blocks):
        for i, j in blocks:
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))

    with create_layer(store, "other", grid, np.int16, **how) as first:
        blocks = list(first.blocks.ids())
        write(first, blocks[:7])
        with create_layer(store, "other", grid, np.int16, resume=True, **how) as second:
            assert second.done.sum() == 7
            with pytest.raises(StoreError, match="another run has begun to write this layer"):
                write(first, blocks[:1])
            write(second, blocks[7:])
            second.commit()
        with pytest.raises(StoreError, match="another run has begun to write this layer"):
            first.commit()
    found = TileStore.open(store).layer("other").read_window(0, SIDE, 0, SIDE)
    np.testing.assert_array_equal(found, data)


def test_two_programs_at_once(folder, tmp_path):
    """On machines of their own: one wins, and the other is told."""
    here, there = both(folder, tmp_path)
    terrain_gpu.minimum_spanning_tree(here)
    running = []
    for number in range(2):
        (scratch := tmp_path / f"machine{number}").mkdir()
        command = ["compute-mst", str(there), "--overwrite", "--scratch", str(scratch)]
        running.append(
            subprocess.Popen(
                [*program(command[0]), *command[1:]], stderr=subprocess.PIPE, text=True
            )
        )
        time.sleep(0.5 * number)
    ends = [(process.communicate(timeout=300)[1], process.returncode) for process in running]
    assert 0 in [code for _, code in ends], ends
    for message, code in ends:
        assert code == 0 or "another run has begun to write this layer" in message
    name = "mst"
    window = 0, SIDE, 0, SIDE
    found = [TileStore.open(place).layer(name).read_window(*window) for place in (here, there)]
    np.testing.assert_array_equal(*found)
