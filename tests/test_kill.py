"""Runs that are killed, interrupted or out of disk: nothing is lost, and --resume finishes them.

Real processes get real signals at moments drawn from a fixed seed over the usual duration of the
run; what a resumed run leaves is compared file for file with what an undisturbed one leaves.
`test_store.py` kills at every single step of a small run instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import rasterio
from pauses import Pause, go_on, pausing, wait_for_pause
from programs import fork, program, server
from rasterio.transform import from_origin

from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine import schedule
from terrain_gpu.grid.neighbours import symmetric
from terrain_gpu.io import geotiff
from terrain_gpu.store import TileStore

SHAPE = 1800, 1500
BLOCK = 128
FOLLOW = schedule._BACKLOG + 16
"""Blocks that threads may still write when Ctrl-C comes; these rasters have many more."""


def run(folder: Path, command: str) -> dict:
    """Run a command that succeeds; its report."""
    process = fork(folder, f"{command} --json report.json")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert err == ""
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").unlink()
    return report


def snapshot(path: Path) -> dict[str, str]:
    """Every file and folder below `path` with a digest of its content."""
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        for p in path.rglob("*")
    }


def write_tif(path: Path, data: np.ndarray, row: int = 0, col: int = 0) -> None:
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=data.shape[0],
        width=data.shape[1],
        count=1,
        dtype=data.dtype,
        nodata=-32768,
        crs="EPSG:32633",
        transform=from_origin(500_000 + 10 * col, 5_000_000 - 10 * row, 10, 10),
        tiled=True,
    ) as out:
        out.write(data, 1)


def cells(path: Path, layer: str = "elevation") -> np.ndarray:
    found = TileStore.open(path).layer(layer)
    return found.read_window(*found.grid.window)


def terrain(seed: int, shape=SHAPE) -> np.ndarray:
    data = np.random.default_rng(seed).integers(0, 3000, shape).astype("int16")
    data[100:900, 200:700] = -32768  # some blocks are all nodata: they have no shard
    return data


class Situation:
    """A folder, the command of a run in it, and what an undisturbed run leaves."""

    def __init__(
        self, folder: Path, command: str, before: Path | None, layer: str = "elevation"
    ) -> None:
        self.folder, self.command, self.before, self.layer = folder, command, before, layer
        self.store = folder / "s.zarr"
        self.reset()
        server()  # so that the start is not timed
        begin = time.perf_counter()
        run(folder, command)
        self.seconds = time.perf_counter() - begin
        self.wanted = snapshot(self.store)
        self.new = cells(self.store, layer)
        self.blocks = TileStore.open(self.store).layer(layer).blocks.count
        self.reset()

    def reset(self) -> None:
        for path in self.folder.glob("s.zarr*"):
            shutil.rmtree(path)
        if self.before:
            shutil.copytree(self.before, self.store)

    def pause(self) -> Pause:
        """Pause when a quarter of the blocks is written; few may follow the interrupt."""
        return Pause("os.rename", f"{self.layer}/c/", self.blocks // 4, FOLLOW)

    def finish(self) -> int:
        """Resume to the end, compare, and count the blocks already done."""
        report = run(self.folder, f"{self.command} --resume")
        assert snapshot(self.store) == self.wanted
        assert not list(self.folder.glob("s.zarr.*"))
        return report["result"]["blocks_resumed"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rasters: one whole, the same in two overlapping halves, and an older one."""
    folder = tmp_path_factory.mktemp("kill")
    data = terrain(1)
    write_tif(folder / "whole.tif", data)
    write_tif(folder / "west.tif", data[:, :1100])
    write_tif(folder / "east.tif", data[:, 1000:], col=1000)
    write_tif(folder / "old.tif", terrain(2))
    return folder


@pytest.fixture(scope="module")
def new_store(folder):
    command = f"convert-dataset whole.tif s.zarr --block-size {BLOCK} --threads 2"
    return Situation(folder, command, None)


@pytest.fixture(scope="module")
def replaced_layer(folder):
    """A mosaic that replaces a layer of a store which has two."""
    for layer in ("elevation", "friction"):
        run(folder, f"convert-dataset old.tif old.zarr --block-size {BLOCK} --layer {layer}")
    command = (
        f"convert-dataset west.tif east.tif s.zarr --overwrite --block-size {BLOCK} --threads 2"
    )
    return Situation(folder, command, folder / "old.zarr")


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Stores of heights without a spanning tree, and with an older one."""
    folder = tmp_path_factory.mktemp("trees")
    write_tif(folder / "heights.tif", terrain(1))
    run(folder, f"convert-dataset heights.tif heights.zarr --block-size {BLOCK}")
    shutil.copytree(folder / "heights.zarr", folder / "tree.zarr")
    # Quiet, as this may be the run that compiles.
    run(folder, "compute-mst tree.zarr --weight absdiff -q")
    return folder


@pytest.fixture(scope="module")
def new_tree(trees, tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    return Situation(folder, "compute-mst s.zarr --threads 2", trees / "heights.zarr", "mst")


@pytest.fixture(scope="module")
def replaced_tree(trees, tmp_path_factory):
    folder = tmp_path_factory.mktemp("replaced")
    command = "compute-mst s.zarr --overwrite --threads 2"
    return Situation(folder, command, trees / "tree.zarr", "mst")


def moments(situation: Situation, seed: int) -> Iterator[float]:
    """Seconds after the start: most of them anywhere in the run, some near the end."""
    random = np.random.default_rng(seed)
    while True:
        for part in (random.random(), random.random(), 0.8 + random.random() / 3):
            yield part * situation.seconds


def kill_often(situation: Situation, times: int, seed: int, check) -> None:
    """Kill -9 and resume until `times` kills have hit, then finish."""
    situation.reset()
    hits = 0
    for moment in moments(situation, seed):
        process = fork(situation.folder, f"{situation.command} --resume")
        try:
            process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            hits += 1
            check()
        else:
            assert process.returncode == 0
            situation.finish()  # resuming a finished run leaves it as it is
            situation.reset()
        if hits == times - 1:
            break
    situation.finish()
    kill_in_the_middle(situation, check)


def kill_in_the_middle(situation: Situation, check) -> None:
    """Kill -9 after a quarter of the blocks and resume."""
    situation.reset()
    process = fork(situation.folder, f"{situation.command} --resume", situation.pause())
    wait_for_pause(process)
    go_on(process, signal.SIGKILL)
    check()
    assert interrupted_in_the_middle(situation)


def test_kill_a_conversion(new_store):
    def check():
        """Under the final name is nothing, or all of it."""
        assert not new_store.store.exists() or snapshot(new_store.store) == new_store.wanted

    kill_often(new_store, 7, 1, check)
    assert np.array_equal(cells(new_store.store), new_store.new)


def test_kill_a_mosaic_that_replaces_a_layer(replaced_layer):
    old = cells(replaced_layer.before)

    def check():
        """The old layer or the new one, whole, and the other layer as it was."""
        now = cells(replaced_layer.store)
        assert np.array_equal(now, old) or np.array_equal(now, replaced_layer.new)
        assert np.array_equal(cells(replaced_layer.store, "friction"), old)

    kill_often(replaced_layer, 6, 2, check)
    assert np.array_equal(cells(replaced_layer.store), terrain(1))


def test_kill_a_spanning_tree(new_tree):
    def check():
        """No tree, or all of it."""
        layers = TileStore.open(new_tree.store).layers
        assert layers == ["elevation"] or np.array_equal(cells(new_tree.store, "mst"), new_tree.new)

    kill_often(new_tree, 5, 3, check)


def test_kill_a_spanning_tree_that_replaces_one(replaced_tree):
    old = snapshot(replaced_tree.before / "mst")
    new = {
        name.removeprefix("mst/"): digest
        for name, digest in replaced_tree.wanted.items()
        if name.startswith("mst/")
    }
    assert old.keys() == new.keys()
    assert old != new

    def check():
        """The old tree or the new one, file for file."""
        assert TileStore.open(replaced_tree.store).layers == ["elevation", "mst"]
        assert snapshot(replaced_tree.store / "mst") in (old, new)

    kill_often(replaced_tree, 4, 4, check)


@pytest.fixture(scope="module")
def new_paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    files = "--backlink back.tif --allocation ids.tif --overwrite"
    write_tif(folder / "heights.tif", terrain(1, (1300, 1100)))
    run(folder, f"convert-dataset heights.tif heights.zarr --block-size {BLOCK}")
    shutil.copytree(folder / "heights.zarr", folder / "warm.zarr")
    run(folder, f"compute-sssp warm.zarr --source-rowcol 10,10 {files} -q")  # may compile
    command = f"compute-sssp s.zarr --source-rowcol 10,10 --source-rowcol 1200,1000,5 {files}"
    return Situation(folder, f"{command} --threads 2", folder / "heights.zarr", "distance")


def test_kill_shortest_paths(new_paths):
    """What has the final name is whole, whenever the run is killed."""
    names = ("distance", "backlink", "allocation")

    def of(found, layer):
        return {name: digest for name, digest in found.items() if name.startswith(f"{layer}/")}

    new_paths.reset()
    hits = 0
    for moment in moments(new_paths, 7):
        process = fork(new_paths.folder, f"{new_paths.command} --resume")
        try:
            process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            hits += 1
            now = snapshot(new_paths.store)
            for name in names:
                assert not of(now, name) or of(now, name) == of(new_paths.wanted, name)
            if hits == 5:
                break
        else:
            new_paths.finish()
            new_paths.reset()
    new_paths.finish()


def test_interrupt_shortest_paths(new_paths):
    new_paths.reset()
    process = fork(new_paths.folder, new_paths.command, new_paths.pause())
    wait_for_pause(process)
    out, err = go_on(process, signal.SIGINT)
    assert (process.returncode, out) == (130, "")
    assert err == "Error: interrupted; finished work is kept, --resume continues\n"
    assert TileStore.open(new_paths.store).layers == ["elevation"]
    assert interrupted_in_the_middle(new_paths)


def interrupted_in_the_middle(situation: Situation) -> bool:
    """Whether a resumed run finds what was done at the pause, and not much more."""
    return situation.blocks // 5 < situation.finish() < situation.blocks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupt_a_conversion(new_store, number):
    """As users start it."""
    new_store.reset()
    name, *words = new_store.command.split()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = pausing(*program(name), words, new_store.pause())
    process = subprocess.Popen(words, cwd=new_store.folder, **pipes)
    wait_for_pause(process)
    out, err = go_on(process, number)
    assert process.returncode == 130
    assert (out, err) == ("", "Error: interrupted; finished blocks are kept, --resume continues\n")
    assert not new_store.store.exists()
    assert interrupted_in_the_middle(new_store)


def test_interrupt_a_spanning_tree(replaced_tree):
    replaced_tree.reset()
    old = snapshot(replaced_tree.store / "mst")
    process = fork(replaced_tree.folder, replaced_tree.command, replaced_tree.pause())
    wait_for_pause(process)
    out, err = go_on(process, signal.SIGINT)
    assert process.returncode == 130
    assert (out, err) == ("", "Error: interrupted; finished blocks are kept, --resume continues\n")
    assert snapshot(replaced_tree.store / "mst") == old
    assert interrupted_in_the_middle(replaced_tree)


def test_interrupt_the_export_of_a_spanning_tree(new_tree):
    """The layer is complete by then: resuming only exports it."""
    folder = new_tree.folder
    new_tree.reset()
    target = folder / "edges.tif"
    target.write_bytes(b"the previous file")
    words = f"{new_tree.command} -o edges.tif --overwrite"
    process = fork(folder, words, exporting("mst", new_tree))
    wait_for_pause(process)
    assert list(folder.glob(".terrain_gpu-*/*"))
    out, err = go_on(process, signal.SIGINT)
    assert process.returncode == 130
    assert out == ""
    assert err == "Error: interrupted; layer mst is complete, edges.tif is unchanged\n"
    assert target.read_bytes() == b"the previous file"
    assert snapshot(new_tree.store) == new_tree.wanted
    assert run(folder, f"{words} --resume")["result"]["blocks_resumed"] == new_tree.blocks
    with rasterio.open(target) as data:
        assert np.array_equal(data.read(1), symmetric(np.pad(new_tree.new, 1)))


def exporting(layer: str, situation: Situation) -> Pause:
    """Pause when a quarter of the blocks is read."""
    return Pause("open", f"s.zarr/{layer}/c/", situation.blocks // 4, FOLLOW)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupt_an_export(new_store, number):
    folder = new_store.folder
    if not new_store.store.exists():
        new_store.finish()
    target = folder / "export.tif"
    target.write_bytes(b"the previous file")
    before = set(os.listdir(folder))
    words = "terrain-gpu export s.zarr export.tif --overwrite --compress deflate --threads 1"
    process = fork(folder, words, exporting("elevation", new_store))
    wait_for_pause(process)
    assert list(folder.glob(".terrain_gpu-*/*"))
    out, err = go_on(process, number)
    assert target.read_bytes() == b"the previous file"
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert (out, err) == ("", "Error: interrupted; export.tif is unchanged\n")
        assert set(os.listdir(folder)) == before
    run(folder, words)
    assert set(os.listdir(folder)) == before
    with rasterio.open(target) as data:
        assert np.array_equal(data.read(1), new_store.new)
    target.unlink()


# -- full disks ----------------------------------------------------------------------------------


@contextmanager
def disk(path: Path, size: str):
    """A small tmpfs; the test is skipped where mounting is not allowed."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    allowed = (
        shutil.which("mount")
        and not subprocess.run(mount, check=False, capture_output=True).returncode
    )
    if not allowed:
        pytest.skip("may not mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(path: Path, leave: int) -> None:
    """A ballast file that leaves this many bytes free."""
    found = os.statvfs(path.parent)
    path.write_bytes(b"\1" * (found.f_bavail * found.f_frsize - leave))


SMALL = 600, 500


@pytest.mark.parametrize("existing", [False, True], ids=["new-store", "replaced-layer"])
def test_full_disk_half_way(tmp_path, existing):
    data, old = (np.random.default_rng(k).integers(0, 99, SMALL).astype("int16") for k in (3, 4))
    write_tif(tmp_path / "a.tif", data)
    write_tif(tmp_path / "b.tif", old)
    run(tmp_path, "convert-dataset a.tif wanted.zarr --block-size 64")
    command = "convert-dataset a.tif disk/s.zarr --block-size 64 --overwrite"
    with disk(tmp_path / "disk", "8m"):
        store = tmp_path / "disk/s.zarr"
        if existing:
            run(tmp_path, "convert-dataset b.tif disk/s.zarr --block-size 64")
            before = snapshot(store)
        fill(tmp_path / "disk/ballast", 400_000)
        process = fork(tmp_path, command)
        out, err = process.communicate()
        assert process.returncode == 1
        assert out == ""
        assert re.fullmatch(
            r"Error: \S+/disk/s\.zarr\S*: no space left on the disk; free some and --resume\n", err
        )
        if existing:
            assert np.array_equal(cells(store), old)
            now = snapshot(store)
            assert {name: now[name] for name in before} == before
        else:
            assert not store.exists()
        (tmp_path / "disk/ballast").unlink()
        report = run(tmp_path, f"{command} --resume")
        assert 0 < report["result"]["blocks_resumed"] < 80
        assert np.array_equal(cells(store), data)
        assert sorted(os.listdir(tmp_path / "disk")) == ["s.zarr"]
        wanted = snapshot(tmp_path / "wanted.zarr")
        assert snapshot(store).keys() == wanted.keys()
        shards = [name for name in wanted if "/c/" in name]
        assert len(shards) > 80
        assert all(snapshot(store)[name] == wanted[name] for name in shards)


def test_full_disk_in_every_phase_of_a_spanning_tree(tmp_path, monkeypatch, capfd):
    data = np.random.default_rng(6).integers(0, 99, SMALL).astype("int16")
    write_tif(tmp_path / "a.tif", data)
    monkeypatch.chdir(tmp_path)
    for words in (
        "convert-dataset a.tif old.zarr --block-size 64 -q",
        "convert-dataset a.tif wanted.zarr --block-size 64 -q",
        "compute-mst old.zarr -q",
        "compute-mst wanted.zarr --weight absdiff -q",
    ):
        assert call(words) == 0
    old, wanted = snapshot(tmp_path / "old.zarr"), snapshot(tmp_path / "wanted.zarr")
    command = "compute-mst disk/s.zarr --weight absdiff --overwrite -q"
    with disk(tmp_path / "disk", "8m"):
        store = tmp_path / "disk/s.zarr"
        # Blocks and what they leave take 1.5 MB, the patches 0.1 MB.
        for leave in (*range(20_000, 1_400_000, 200_000), *range(1_500_000, 1_900_000, 40_000)):
            shutil.copytree("old.zarr", store)
            fill(tmp_path / "disk/ballast", leave)
            capfd.readouterr()
            code = call(command)
            err = capfd.readouterr().err
            (tmp_path / "disk/ballast").unlink()
            if code:
                assert re.fullmatch(
                    r"Error: \S+/disk/s\.zarr/\.incomplete/mst\S*: no space left on the disk; "
                    r"free some and --resume\n",
                    err,
                )
                now = snapshot(store)
                assert {name: now[name] for name in old} == old
                assert call(f"{command} --resume") == 0
            assert snapshot(store) == wanted
            shutil.rmtree(store)
        assert (leave, code) == (1_860_000, 0)


def test_full_disk_in_every_phase_of_shortest_paths(tmp_path, monkeypatch, capfd):
    """Also while fields are spilled, as few fit under the limit.

    How many depends on the order in which threads solve blocks, so there is one thread.
    """
    write_tif(tmp_path / "a.tif", np.random.default_rng(7).integers(0, 99, SMALL).astype("int16"))
    monkeypatch.chdir(tmp_path)
    sssp = "--cost surface --allocation ids.tif --threads 1 --memory-limit 283MB --backend cpu"
    sssp += " --overwrite -q"
    for words in (
        "convert-dataset a.tif old.zarr --block-size 64 -q",
        "convert-dataset a.tif wanted.zarr --block-size 64 -q",
        f"compute-sssp old.zarr --source-rowcol 1,1 {sssp}",
        f"compute-sssp wanted.zarr --source-rowcol 300,250 {sssp}",
    ):
        assert call(words) == 0
    old, wanted = snapshot(tmp_path / "old.zarr"), snapshot(tmp_path / "wanted.zarr")
    files = snapshot(tmp_path)["ids.tif"]
    command = f"compute-sssp disk/s.zarr --source-rowcol 300,250 {sssp}"
    places, codes = [], []
    with disk(tmp_path / "disk", "16m"):
        store = tmp_path / "disk/s.zarr"
        # The spill takes up to 2.8 MB, then the layers 4.2 MB.
        for leave in (20_000, *range(1_500_000, 9_600_000, 1_300_000)):
            shutil.copytree("old.zarr", store)
            fill(tmp_path / "disk/ballast", leave)
            capfd.readouterr()
            codes.append(call(command))
            err = capfd.readouterr().err
            (tmp_path / "disk/ballast").unlink()
            if codes[-1]:
                found = re.fullmatch(
                    r"Error: \S+/disk/s\.zarr(?:/\.incomplete/([\w.]+)\S*)?: no space left on the "
                    r"disk; free some and --resume\n",
                    err,
                )
                assert found, err
                places.append(found[1])
                now = snapshot(store)
                assert {name: now[name] for name in old} == old
                assert call(f"{command} --resume --threads 2") == 0
            assert snapshot(store) == wanted
            assert snapshot(tmp_path)["ids.tif"] == files
            shutil.rmtree(store)
    assert {"distance.spill", "distance", "allocation"} <= set(places)
    assert codes == [1] * len(places) + [0]


@pytest.mark.parametrize("more", ["", "--cog", "--compress deflate"])
def test_disk_that_fills_up_during_an_export(tmp_path, monkeypatch, more):
    """Others may fill the disk after every check: GDAL then fails at any write, or in close."""
    monkeypatch.setattr(geotiff, "free_space", lambda path: 1 << 60)
    data = np.random.default_rng(5).integers(-9, 9, SMALL).astype("int16")
    write_tif(tmp_path / "a.tif", data)
    codes = set()
    monkeypatch.chdir(tmp_path)
    assert call("convert-dataset a.tif a.zarr -q") == 0
    with disk(tmp_path / "disk", "5m"):
        target = tmp_path / "disk/out.tif"
        for leave in [*range(20_000, 1_700_000, 80_000), 5_000_000]:
            target.write_bytes(b"the previous file")
            fill(tmp_path / "disk/ballast", min(leave, 4_500_000))
            code = call(f"export a.zarr disk/out.tif --overwrite -q {more}")
            codes.add(code)
            assert sorted(os.listdir(tmp_path / "disk")) == ["ballast", "out.tif"]
            if code == 0:
                with rasterio.open(target) as out:
                    assert np.array_equal(out.read(1), data)
            else:
                assert target.read_bytes() == b"the previous file"
            (tmp_path / "disk/ballast").unlink()
    assert codes == {0, 1}


def call(command: str) -> int:
    """Run a command line in this process."""
    return options._guarded(lambda: group.main(command.split(), standalone_mode=False))


# -- damaged inputs ------------------------------------------------------------------------------


def test_spanning_tree_of_a_damaged_layer(replaced_tree):
    """Damage is found in the last block: the older tree stays, and the repaired run resumes."""
    replaced_tree.reset()
    old = snapshot(replaced_tree.store / "mst")
    shard = replaced_tree.store / "elevation/c/14/11"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    process = fork(replaced_tree.folder, replaced_tree.command)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err == f"Error: {shard}: corrupt shard index (crc32c differs); convert it again\n"
    assert snapshot(replaced_tree.store / "mst") == old
    shard.write_bytes(whole)
    assert 30 < replaced_tree.finish() < replaced_tree.blocks


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """A store of heights, frictions and an older result, the folder it is in, and its command."""
    folder = tmp_path_factory.mktemp("walks")
    write_tif(folder / "heights.tif", terrain(8, (600, 500)))
    frictions = np.random.default_rng(9).uniform(1, 5, (600, 500)).astype("float32")
    write_tif(folder / "frictions.tif", frictions)
    for layer in ("elevation", "friction"):
        file = "heights.tif" if layer == "elevation" else "frictions.tif"
        run(folder, f"convert-dataset {file} s.zarr --block-size {BLOCK} --layer {layer}")
    files = "--backlink back.tif --allocation ids.tif"
    run(folder, f"compute-sssp s.zarr --source-rowcol 5,5 {files} -q")  # may compile
    command = f"compute-sssp s.zarr --source-rowcol 590,100 {files} --overwrite --threads 2"
    command += " --cost tobler --friction friction"
    shutil.copytree(folder / "s.zarr", folder / "wanted.zarr")
    run(folder, command.replace("s.zarr", "wanted.zarr") + " -q")
    return folder, command


def flipped(shard: bytes) -> bytes:
    """One bit of the index."""
    return shard[:-9] + bytes([shard[-9] ^ 1]) + shard[-8:]


CORRUPT, SHORT = "corrupt shard index (crc32c differs)", "truncated: no room for its index"


@pytest.mark.parametrize(
    ("shard", "damage", "words"),
    [
        ("elevation/c/0/3", flipped, CORRUPT),
        ("elevation/c/4/0", lambda shard: b"", SHORT),
        ("friction/c/0/3", lambda shard: shard[:50], SHORT),
        ("friction/c/4/0", lambda shard: shard[:-5000], CORRUPT),
    ],
    ids=["corrupt-far", "empty-at-the-source", "cut-off-far", "truncated-at-the-source"],
)
def test_shortest_paths_of_a_damaged_layer(walks, shard, damage, words):
    """The older results stay, and the repaired run resumes."""
    folder, command = walks
    store = folder / "s.zarr"
    shard = store / shard
    whole, before = shard.read_bytes(), snapshot(store)
    files = {name: (folder / name).read_bytes() for name in ("back.tif", "ids.tif")}
    shard.write_bytes(damage(whole))
    now = snapshot(store)
    process = fork(folder, command)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err == f"Error: {shard}: {words}; convert it again\n"
    after = snapshot(store)
    assert {name: after[name] for name in now} == now
    assert {name: (folder / name).read_bytes() for name in files} == files
    shard.write_bytes(whole)
    # In a new store, so that the older results here remain for the next case.
    copy = folder / "copy.zarr"
    shutil.copytree(store, copy)
    run(folder, f"{command.replace('s.zarr', 'copy.zarr')} --resume")
    assert snapshot(copy) == snapshot(folder / "wanted.zarr")
    shutil.rmtree(copy)
    shutil.rmtree(store / ".incomplete", ignore_errors=True)
    assert snapshot(store) == before
    for name, data in files.items():
        (folder / name).write_bytes(data)
