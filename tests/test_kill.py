"""Runs that are killed, interrupted or out of disk: nothing is lost, and --resume ends them.

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
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from terrain_gpu import raster
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.store import TileStore

SHAPE = 2400, 2000
BLOCK = 128
BLOCKS = 19 * 16


def program(name: str) -> list[str]:
    """The installed program beside this Python, or what it would run."""
    script = Path(sys.executable).parent / name
    if script.exists():
        return [str(script)]
    function = "main" if name == "terrain-gpu" else name.replace("-", "_")
    return [sys.executable, "-c", f"from terrain_gpu.cli.main import {function} as f; f()"]


def start(folder: Path, command: str) -> subprocess.Popen:
    name, *words = command.split()
    return subprocess.Popen(
        [*program(name), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, command: str) -> dict:
    """Run a command that succeeds; its report."""
    process = start(folder, f"{command} --json report.json")
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

    def __init__(self, folder: Path, command: str, before: Path | None) -> None:
        self.folder, self.command, self.before = folder, command, before
        self.store = folder / "s.zarr"
        self.reset()
        begin = time.perf_counter()
        run(folder, command)
        self.usual = time.perf_counter() - begin
        self.wanted = snapshot(self.store)
        self.new = cells(self.store)
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        if self.before:
            shutil.copytree(self.before, self.store)

    def finished_blocks(self) -> int:
        """Blocks that the run has recorded so far."""
        base = self.store if self.before else self.folder / "s.zarr.incomplete"
        manifest = base / ".incomplete/elevation.jsonl"
        return manifest.read_bytes().count(b"]\n") if manifest.exists() else 0

    def finish(self) -> int:
        """Resume to the end, compare, and count the blocks that were found done."""
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


def moments(usual: float, seed: int) -> Iterator[float]:
    """Seconds after the start: most of them anywhere, some near the end."""
    random = np.random.default_rng(seed)
    while True:
        yield random.random() * usual
        yield random.random() * usual
        yield (0.8 + random.random() / 3) * usual


def kill_often(situation: Situation, times: int, seed: int, check) -> int:
    """Kill -9 and resume until `times` kills have hit, then finish: blocks that were found done."""
    situation.reset()
    hits = 0
    for moment in moments(situation.usual, seed):
        process = start(situation.folder, f"{situation.command} --resume")
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
    # The last one surely in the middle.
    situation.reset()
    process = start(situation.folder, f"{situation.command} --resume")
    wait_for(lambda: situation.finished_blocks() > BLOCKS // 4, process)
    process.kill()
    process.communicate()
    check()
    return situation.finish()


def test_kill_a_conversion(new_store):
    def check():
        """Nothing under the final name, or all of it."""
        assert not new_store.store.exists() or snapshot(new_store.store) == new_store.wanted

    assert BLOCKS // 4 <= kill_often(new_store, 10, 1, check) < BLOCKS
    assert np.array_equal(cells(new_store.store), new_store.new)


def test_kill_a_mosaic_that_replaces_a_layer(replaced_layer):
    old = cells(replaced_layer.before)

    def check():
        """The old layer or the new one, whole, and the other layer as it was."""
        now = cells(replaced_layer.store)
        assert np.array_equal(now, old) or np.array_equal(now, replaced_layer.new)
        assert np.array_equal(cells(replaced_layer.store, "friction"), old)

    assert BLOCKS // 4 <= kill_often(replaced_layer, 6, 2, check) < BLOCKS
    assert np.array_equal(cells(replaced_layer.store), terrain(1))


def wait_for(there, process, seconds: float = 20) -> None:
    """Until `there()`; the process must not end before."""
    end = time.monotonic() + seconds
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupt_a_conversion(new_store, number):
    new_store.reset()
    process = start(new_store.folder, new_store.command)
    wait_for(lambda: new_store.finished_blocks() > 30, process)
    process.send_signal(number)
    begin = time.perf_counter()
    out, err = process.communicate()
    assert time.perf_counter() - begin < 2
    assert process.returncode == 1
    assert (out, err) == ("", "Error: interrupted; finished blocks are kept, --resume goes on\n")
    assert not new_store.store.exists()
    assert 30 < new_store.finish() < BLOCKS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupt_an_export(new_store, number):
    folder = new_store.folder
    if not new_store.store.exists():
        new_store.finish()
    target = folder / "export.tif"
    target.write_bytes(b"the previous file")
    before = set(os.listdir(folder))
    words = "terrain-gpu export s.zarr export.tif --overwrite --compress deflate --threads 1"
    process = start(folder, words)
    wait_for(lambda: list(folder.glob(".export.tif.*")), process)
    process.send_signal(number)
    begin = time.perf_counter()
    out, err = process.communicate()
    assert time.perf_counter() - begin < 2
    assert target.read_bytes() == b"the previous file"
    if number == signal.SIGKILL:
        for part in folder.glob(".export.tif.*"):
            part.unlink()
    else:
        assert process.returncode == 1
        assert (out, err) == ("", "Error: interrupted; export.tif is as it was\n")
        assert set(os.listdir(folder)) == before
    run(folder, words)
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
    """A ballast file that leaves so many bytes free."""
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
        process = start(tmp_path, command)
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


@pytest.mark.parametrize("more", ["", "--cog", "--compress deflate"])
def test_disk_that_fills_up_during_an_export(tmp_path, monkeypatch, more):
    """Others may fill the disk after every check: GDAL then fails at any write, or in close."""
    monkeypatch.setattr(raster, "_free", lambda path: 1 << 60)
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
